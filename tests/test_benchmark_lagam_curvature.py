"""The benchmark of LaGAM's virtual steps: curvature by hand, signs, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import lagam_curvature
from pujax.methods._common import network as network_lib
from pujax.training import config as config_lib
from tests.methods import test_lagam_meta as lagam


def setting(loss):
    """The resolved configuration, state and a batch, with weights that are not at 0."""
    changes = {**lagam.PLAIN, **lagam.RECORD, "classification_loss": loss}
    _, _, state, batch = lagam.setup(**changes)
    config = config_lib.resolve(lagam.tiny.config("lagam", **changes))
    return config, state, batch


def test_one_example_has_the_curvature_of_the_logistic_loss():
    config, state, batch = setting("mean")
    network = network_lib.build(
        config, lagam.problem().info, embedding_dim=config.method.embedding_dim
    )
    singles = [jax.tree.map(lambda x, i=i: x[i : i + 1], (batch.inputs, batch.ids)) for i in (0, 5)]
    batches = [batch._replace(inputs=inputs, ids=ids) for inputs, ids in singles]
    found = lagam_curvature.largest_curvatures(config, lagam.problem(), state, batches)
    for value, (inputs, _) in zip(found, singles, strict=True):
        out = network.infer(state.params, state.batch_stats, inputs)
        p = 1 / (1 + np.exp(-float(out.logits[0])))
        assert value == pytest.approx(p * (1 - p) * float((out.features**2).sum()), rel=1e-4)
        assert value > 1e-6


def test_virtual_steps_are_those_asked_for():
    lagam_curvature.flags.FLAGS(["curvature"])
    method = lagam_curvature.configuration(5, 0.02).method
    assert (method.meta_num_steps, method.meta_learning_rate) == (5, 0.02)
    assert method.record_label_gradients


def test_epochs_outside_the_main_stage_are_refused():
    config = lagam_curvature.configuration()
    warmup, length = config.method.warmup_epochs, config.method.num_epochs
    for epochs in (-1, warmup - 1, length):
        with pytest.raises(ValueError, match=f"--epochs is {epochs}; accepted: {warmup} to"):
            lagam_curvature.check_epochs(config, epochs)
    lagam_curvature.check_epochs(config, warmup)


def test_right_signs_are_those_of_unlabeled_examples(monkeypatch):
    config, state, batch = setting("balanced")
    data = lagam.problem()
    ids = np.asarray(batch.ids)
    free = ~np.asarray(data.labeled)[ids]
    truth = jnp.asarray(data.truth)

    class Step:
        """A stage whose gradients know the truth, or its opposite."""

        def __init__(self, sign):
            self.sign = sign

        def step(self, state, batch, key):
            pulls = jnp.where(truth == 1, self.sign, -self.sign)
            # Labelled positives are wrong, and do not count.
            return state._replace(pulls=jnp.where(jnp.asarray(data.labeled), -1.0, pulls)), {}

    for sign, wanted in ((1.0, 1.0), (-1.0, 0.0)):
        made = lagam_curvature.method_setup.build(config, data, lagam.tiny.mesh())
        made = made._replace(method=made.method._replace(stages=(Step(sign),)))
        monkeypatch.setattr(lagam_curvature.method_setup, "build", lambda *_, made=made: made)
        assert free.any()
        assert lagam_curvature.right_signs(config, data, state, [batch]) == wanted
        monkeypatch.undo()
