"""What every method gets without a line of its own: averaged weights and frozen parts."""

import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax import methods
from pujax.data.batching import Batching
from pujax.methods import naive, puupl
from pujax.methods._common import averaging
from pujax.methods.base import Method, Stage
from pujax.training import method_setup, model_numbers, seed_axis, sharding, train_step
from tests import tiny

NORMED = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}}
PLAIN = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": False}}  # for GradPU
RESIDUAL = {"model": "resnet_small", "options": {"width": 4, "stage_sizes": (1, 1)}}


# What is fitted outside of JAX has no weights to average or to freeze, and no fields for it.
NETWORKS = tuple(name for name in methods.names() if methods.has_network(name))
STEPPERS = tuple(name for name in NETWORKS if name not in tiny.SAME_STEP)


def setup(name, **changes):
    """The method, its first stage, its start and its first batch."""
    data = tiny.multilabel_problem() if methods.is_multilabel(name) else tiny.problem()
    config = tiny.config(name, **changes)
    built = method_setup.build(config, data, tiny.mesh())
    arrays = sharding.replicate(built.data.training_data(), tiny.mesh())
    stage = built.method.stages[0]
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, tiny.mesh())
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    batch = tiny.gather(arrays, plan, 0, epoch=0, step=0)
    return built.method, stage, state, arrays, batch


def numbers(state, *fields):
    """The leaves of a state under some fields, by path."""
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {
        jax.tree_util.keystr(path): np.asarray(leaf)
        for path, leaf in leaves
        if {getattr(entry, "name", None) for entry in path} & set(fields)
    }


# What the views of a table's rows are, and what that means for a method that compares views.
OF_TABLES = {
    "holistic_pu": "the two only makes sure predictions surer",
    "impulses": "views are rows with features of other rows of the batch, SCARF's and not the",
    "lagam": "are the row itself, so that the instance loss only pushes rows apart",
    "ncpu": "strong views are rows with features of other rows of the batch, which nobody has",
}


@pytest.mark.parametrize("name", [x for x in methods.names() if not methods.is_multilabel(x)])
def test_methods_that_compare_views_say_what_those_of_a_table_are(name, caplog):
    config = tiny.config(name, **PLAIN, augment=False)
    methods.build(config, tiny.table_problem().info)
    said = [text for text in caplog.messages if "no crops and colours" in text]
    assert len(said) == (name in OF_TABLES)
    for text in said:
        assert text.startswith("rows is a table of numbers, which has no crops and colours: ")
        assert OF_TABLES[name] in text
    caplog.clear()
    methods.build(tiny.config(name, **PLAIN), tiny.problem().info)
    assert "no crops and colours" not in caplog.text


@pytest.mark.parametrize(
    ("name", "changes"),
    [("lagam", {"use_contrast": False}), ("impulses", {"pretrain_epochs": 0, "head": "finetune"})],
)
def test_nothing_is_said_of_views_that_are_not_compared(name, changes, caplog):
    methods.build(tiny.config(name, **PLAIN, augment=False, **changes), tiny.table_problem().info)
    assert "no crops and colours" not in caplog.text


DAILY = ("nnpu", "dist_pu", "pu_mlc")


@tiny.by_kind(STEPPERS, *DAILY)
def test_predictions_are_those_of_averaged_weights(name):
    network = PLAIN if name == "gradpu" else NORMED
    method, stage, state, arrays, batch = setup(name, **network, average_decay=0.5)
    step, fields = stage.step, ("params", "batch_stats")
    wanted = numbers(state.method, *fields)
    for seed in range(3):
        state, _ = step(state, batch, jax.random.key(seed))
        new = numbers(state.method, *fields)
        wanted = {path: 0.5 * wanted[path] + 0.5 * new[path] for path in wanted}
    assert any(np.any(wanted[path] != new[path]) for path in wanted)
    by_hand = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.asarray(wanted.get(jax.tree_util.keystr(path), leaf)), state.method
    )
    # The alternative 'raw' reads a method's own weights: here those worked out by hand.
    raw, inputs = jax.jit(method.alternatives["raw"]), arrays.inputs[:20]
    average = jax.jit(method.predict)(state, inputs)
    np.testing.assert_allclose(
        average, raw(state._replace(method=by_hand), inputs), rtol=1e-4, atol=1e-5
    )
    assert np.any(average != raw(state, inputs))


@tiny.by_kind(STEPPERS, *DAILY, "vpu")
def test_a_model_of_averaged_weights_is_saved_and_restored(name):
    """Where a method calibrates, what it calibrated is a second state beside the averages."""
    network = PLAIN if name == "gradpu" else NORMED
    method, stage, state, arrays, batch = setup(name, **network, average_decay=0.5)
    if len(method.stages) > 1:  # what is saved is of the last stage
        arguments = (jax.random.key(0), state, arrays, tiny.mesh())
        state = train_step.init_state(method.stages[-1], *arguments)
    else:
        state, _ = stage.step(state, batch, jax.random.key(0))
    if method.calibrate:
        state = method.calibrate(state, arrays)
    is_multilabel = methods.is_multilabel(name)
    info = (tiny.multilabel_problem() if is_multilabel else tiny.problem()).info
    saved = model_numbers.numbers_of(method, jax.device_get(state), info)
    inputs = arrays.inputs[:20]
    restored = model_numbers.restored(saved, method, info)
    np.testing.assert_array_equal(method.predict(restored, inputs), method.predict(state, inputs))


@tiny.by_kind(tiny.METHODS, *DAILY, "puupl")
def test_a_saved_model_holds_neither_the_optimizer_nor_a_number_of_each_training_row(name):
    """Labels that a method learned of the training rows, say, are in no published model."""
    problem = tiny.multilabel_problem() if methods.is_multilabel(name) else tiny.problem()
    method = methods.build(
        tiny.config(name, **(PLAIN if name == "gradpu" else NORMED)), problem.info
    )
    shapes = seed_axis.state_shapes(method.stages, problem.training_data())
    shapes = method.evaluated(shapes) if method.evaluated else shapes
    state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    saved = model_numbers.numbers_of(method, state, problem.info)
    assert saved
    assert not [x for x in saved if ".opt_state" in x or problem.info.n in saved[x].shape]


class Evaluated(NamedTuple):
    """A state to which an evaluation adds a number."""

    params: dict
    shift: jax.Array | None = None


@pytest.mark.parametrize("calibrates", [True, False])
def test_averages_keep_a_structure_that_the_method_gives_its_evaluated_states(calibrates):
    def given(state):
        return state._replace(shift=state.params["w"])

    method = Method((), lambda state, inputs: inputs, evaluated=given)
    if calibrates:
        method = method._replace(calibrate=lambda state, data: given(state))
    stage = Stage("train", 1, lambda *_: None, lambda *_: None, Batching(batch_size=2))
    config = ml_collections.ConfigDict({"average_decay": 0.5, "frozen_stages": 0})
    wrapped = averaging.wrap(method._replace(stages=(stage,)), config, tiny.problem().info)
    state = averaging.State(Evaluated({"w": jnp.ones(2)}), (jnp.ones(2),))
    shapes = jax.tree.structure(wrapped.evaluated(state))
    if calibrates:
        assert shapes == jax.tree.structure(wrapped.calibrate(state, None))
    else:
        inner = jax.tree.structure(given(state.method))
        assert shapes.children()[0] == inner and wrapped.evaluated(state).calibrated is None


@tiny.by_kind([x for x in STEPPERS if x != "gradpu"], kinds=(*DAILY, *tiny.KINDS))
def test_frozen_stages_and_frozen_statistics_stay_and_the_rest_trains(name):
    # PURL's first update moves its head alone unless `inner` says otherwise.
    changes = {"average_decay": 0.0, "frozen_stages": 1, "freeze_norm": "on", "inner": "all"}
    _, stage, state, _, batch = setup(name, **RESIDUAL, **changes)
    after, _ = stage.step(state, batch, jax.random.key(0))
    before, new = (numbers(s, "params") for s in (state, after))
    moved = {path for path in before if np.any(before[path] != new[path])}
    frozen = {path for path in before if "stem" in path or "stage1" in path}
    assert frozen and not moved & frozen
    assert any("stage2" in path for path in moved)
    before, new = (numbers(s, "batch_stats") for s in (state, after))
    assert before
    for path, leaf in before.items():
        # Heads for alignment are new and normalise by the batch.
        is_new = "aligned_" in path or "predictor_" in path
        assert np.array_equal(leaf, new[path]) != is_new, path


def first_step_of_the_last_stage(name, **changes):
    """Places of the networks that it moves, and of all networks."""
    data, method, arrays, state = tiny.initialised(name, **NORMED, **changes)
    stage, first = method.stages[-1], sum(stage.num_epochs for stage in method.stages[:-1])
    assert first > 0
    arrays = train_step.stage_data(stage, state, arrays, tiny.mesh(), batch_size=50)
    plan = train_step.epoch_plan(stage, jax.random.key(1), first, arrays)
    batch = tiny.gather(arrays, plan, 0, epoch=first, step=100, first_epoch=first)
    after, _ = jax.jit(stage.step)(state, batch, jax.random.key(0))
    before, new = (numbers(x, "params") for x in (state, after))
    moved = (path for path in before if np.any(before[path] != new[path]))
    return tuple({path.partition("params")[0] for path in paths} for paths in (moved, before))


OWN_SCHEDULE = ("dist_pu", "holistic_pu", "impulses", "pulda", "purl", "robust_pu")
ONE_SCHEDULE = ("cvir", "lagam", "lbe", "self_pu")


@tiny.by_kind(OWN_SCHEDULE, "impulses", kinds=OWN_SCHEDULE)
def test_the_rate_of_a_stage_with_a_schedule_of_its_own_warms_up_from_its_start(name):
    changes = {"head": "finetune"} if name == "impulses" else {}
    assert not first_step_of_the_last_stage(name, lr_warmup=1.0, **changes)[0]


@tiny.by_kind(ONE_SCHEDULE, "lbe", kinds=ONE_SCHEDULE)
def test_a_schedule_over_all_stages_goes_on(name):
    moved, networks = first_step_of_the_last_stage(name, lr_warmup=1.0)
    assert moved == networks


def test_all_that_is_read_of_the_weights_is_averaged_but_labels_and_the_raw_scores():
    class Weights(NamedTuple):
        params: dict

    def read(state, *inputs):
        return state.params["w"]

    def grown(state, batch, key):
        return Weights({"w": state.params["w"] + 1}), {}

    stage = Stage("a", 1, lambda *_: Weights({"w": jnp.zeros(1)}), grown, Batching(4))
    method = Method((stage,), predict=read, embed=read, soft_labels=read, encoder=read)
    config = ml_collections.ConfigDict({"average_decay": 0.5, "frozen_stages": 0})
    wrapped = averaging.wrap(method, config, types.SimpleNamespace(n=4))
    (stage,) = wrapped.stages
    state, _ = stage.step(stage.init(None, None, None), None, None)
    for function in (wrapped.predict, wrapped.embed, lambda state, _: wrapped.encoder(state)):
        assert function(state, None) == 0.5
    assert wrapped.soft_labels(state) == wrapped.alternatives["raw"](state, None) == 1


def test_frozen_weights_are_not_averaged():
    method, _, state, _, _ = setup("nnpu", **RESIDUAL, average_decay=0.5, frozen_stages=1)
    stays = [path for path in numbers(state.method, "params") if "stem" in path or "stage1" in path]
    all_weights = numbers(state.method, "params", "batch_stats")
    assert len(state.average) == len(all_weights) - len(stays)


@pytest.mark.thorough
def test_averages_start_anew_with_a_stage_and_where_a_refresh_replaces_the_weights():
    changes = {"num_epochs": 4, "round_epochs": 2, "average_decay": 0.9}
    _, stage, state, arrays, batch = setup("puupl", **NORMED, **changes)
    state, _ = stage.step(state, batch, jax.random.key(0))
    state = stage.refresh(state, arrays, jax.random.key(0), 2)
    weights = numbers(state.method, "params", "batch_stats").values()
    for average, weight in zip(state.average, weights, strict=True):
        np.testing.assert_array_equal(average, weight)
    method, stage, state, arrays, batch = setup("dist_pu", **NORMED, average_decay=0.9)
    state, _ = stage.step(state, batch, jax.random.key(0))
    state = train_step.init_state(method.stages[1], jax.random.key(0), state, arrays, tiny.mesh())
    filled = method.stages[1].refresh(state, arrays, jax.random.key(1), 0)
    weights = numbers(state.method, "params", "batch_stats").values()
    for average, kept, weight in zip(state.average, filled.average, weights, strict=True):
        np.testing.assert_array_equal(average, weight)
        np.testing.assert_array_equal(average, kept)


def test_a_threshold_is_that_of_the_weights_it_is_used_with():
    method, stage, state, arrays, batch = setup("vpu", **NORMED, average_decay=0.5)
    state, _ = stage.step(state, batch, jax.random.key(0))
    state = method.calibrate(state, arrays)
    for scores in (
        method.predict(state, arrays.inputs),
        method.alternatives["raw"](state, arrays.inputs),
    ):
        # The largest probability of a training example stands for 1.
        assert float(jnp.max(scores)) > 0
    assert state.method.offset != state.calibrated.offset


def test_few_steps_leave_a_warning_about_the_average():
    method, *_ = setup("nnpu", **NORMED, average_decay=0.99)
    (sentence,) = method.diagnose({})
    assert "after 48 steps at method.average_decay=0.99" in sentence and "62 %" in sentence
    method, *_ = setup("nnpu", **NORMED, average_decay=0.5)
    assert method.diagnose({}) == []


@pytest.mark.parametrize(("num_epochs", "steps"), [(4, 24), (6, 24), (5, 12)])
def test_steps_before_weights_are_drawn_anew_do_not_count_in_the_average(num_epochs, steps):
    """A round of PUUPL starts from other weights; the last one of five epochs would have one."""
    config, info = tiny.config("puupl", num_epochs=4, round_epochs=2), tiny.problem().info
    method = puupl.build(config, info)
    (stage,) = method.stages
    assert (
        stage.refresh_restarts
        and not naive.build(tiny.config("naive"), info).stages[0].refresh_restarts
    )
    method = method._replace(stages=(stage._replace(num_epochs=num_epochs),))
    section = ml_collections.ConfigDict({"average_decay": 0.97, "frozen_stages": 0})
    (sentence,) = averaging.wrap(method, section, info).diagnose({})
    assert f"after {steps} steps at method.average_decay=0.97" in sentence


def test_without_a_decay_a_method_is_left_as_it_is():
    config = tiny.config("nnpu")
    method = methods.module("nnpu").build(config, tiny.problem().info)
    assert averaging.wrap(method, config.method, tiny.problem().info) is method


@pytest.mark.parametrize("name", NETWORKS)
def test_every_method_refuses_what_cannot_be(name):
    wrong = {
        "average_decay": (1.0, "method.average_decay is 1.0; accepted"),
        "frozen_stages": (-2, "method.frozen_stages is -2; accepted"),
        "freeze_norm": ("yes", "method.freeze_norm is 'yes'; accepted: 'off', 'on', 'auto'"),
    }
    data = tiny.multilabel_problem() if methods.is_multilabel(name) else tiny.problem()
    for field, (value, message) in wrong.items():
        with pytest.raises(ValueError, match=message):
            methods.build(tiny.config(name, **NORMED, **{field: value}), data.info)
