"""What is compiled without data takes the arguments that a run with data gives it."""

import jax
import pytest

from pujax.aot import problem, topologies
from pujax.data import pu_dataset
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup, sharding, train_step
from tests.conftest import real_data_folder


def kinds(tree):
    """Shape, type and shard of every leaf."""
    leaves, structure = jax.tree.flatten(tree)
    return structure, [(x.shape, x.dtype, x.sharding.shard_shape(x.shape)) for x in leaves]


def impulses():
    config = config_lib.default_config("impulses")
    config.data.update({"source": "digits", "scaling": "unit"})
    config.model.name = "mlp"
    config.method.update({"batch_size": 64, "flip": False, "crop_area": 0.5, "padding": 1})
    return config


def lagam_on_mnist():
    config = config_lib.default_config("lagam")
    config.data.update({"source": "mnist", "num_labeled": 1000, "num_support": 500})
    config.data.dir = str(real_data_folder("mnist"))
    config.model.name = "mlp"
    return config


def pu_only(method):
    def make():
        config = config_lib.default_config(method)
        config.data.num_support = 0
        config.model.name = "mlp"
        config.method.update({"batch_size": 100, "augment": False})
        return config

    return make


@pytest.mark.thorough
@pytest.mark.parametrize(
    "make", [impulses, lagam_on_mnist, pu_only("nnpu"), pu_only("vpu"), pu_only("supervised")]
)
def test_arguments_are_those_of_a_run(make):
    mesh = topologies.find("cpu:2").mesh
    config = make()
    built = problem.build(config, mesh)
    expected = problem.stage_shapes(built)
    resolved = config_lib.resolve(config)
    setup = method_setup.build(resolved, experiment.load_data(resolved), mesh)
    data = sharding.replicate(pu_dataset.flat(setup.data.training_data()), mesh)
    assert kinds(data) == kinds(built.data) and setup.metric_names == built.metric_names
    key, state = train_step.run_key(0, mesh), None
    for stage, shapes in zip(setup.method.stages, expected, strict=True):
        state = train_step.init_state(stage, key, state, data, mesh)
        assert kinds(state) == kinds(shapes.state)
        seen = train_step.stage_data(stage, state, data, mesh, batch_size=512)
        assert kinds(seen) == kinds(shapes.data)
        plan = train_step.epoch_plan(stage, key, 0, data)
        found, wanted = kinds(plan), kinds(shapes.plan)
        assert [x[:2] for x in found[1]] == [x[:2] for x in wanted[1]] and found[0] == wanted[0]
