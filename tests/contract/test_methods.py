"""What every method must do: those in `pujax/methods`, and the one that PUJAX_TEST_METHOD names.

Three methods are put to every test in the default run; the others are built and traced there.
With the marker `thorough` one method of each kind is put to every test, and every method to those
that look at its numbers: that they are finite, also in a batch of one group, and that it learns.
The rest is marked `slow`.
"""

import functools
import inspect

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import methods
from pujax.training import method_setup, train_step
from tests import tiny

METHODS = tiny.METHODS
BINARY = [name for name in METHODS if not methods.is_multilabel(name)]
# One stage, two stages with a refresh, and several labels per example.
ALWAYS = ("nnpu", "dist_pu", "partial_bce")
# One method of each kind of batch: all from U or with positives, support, halves, several stages.
BATCHES = (*ALWAYS, "lagam", "p3mix_e", "pu_mlc", "self_pu", "supervised", "vpu")
# Operations outside of jit are compiled one by one, which takes longer than the step itself.
EAGER = (*ALWAYS, "gradpu")
# Fitted once, before the first step; its stage has one epoch, and a step changes nothing.
FITTED = tuple(name for name in METHODS if not methods.has_network(name))
# Beside one of each kind those that keep between epochs what no other method keeps: records and
# tolerances by epoch, an opponent, averages of a batch's shares, labels that are estimated.
RESUMED = (*tiny.KINDS, "holistic_pu", "lbe", "pan", "pulda", "robust_pu")
STEPS = 4  # of training wherever the number does not matter, so that tests share their programs


# Methods with a step of their own.
STEPPERS = [name for name in METHODS if name not in tiny.SAME_STEP]


def thorough(names, kinds=METHODS):
    """Parametrizes a test by these methods: `ALWAYS` by default, `kinds` in the thorough run."""
    return tiny.by_kind(names, *ALWAYS, kinds=kinds)


@functools.cache
def problem(name, table=False):
    """The small problem of a method; the same object every time, since nobody changes it."""
    if methods.is_multilabel(name):
        return tiny.multilabel_problem(rows=table)
    return tiny.table_problem() if table else tiny.problem()


@pytest.fixture
def data(request):
    named = getattr(request.node, "callspec", None)
    return problem(named.params["name"] if named else "nnpu")


def small(name, **changes):
    """A small configuration; dense layers compile fastest."""
    if name == "self_pu":  # its calibrated weights compile long and are tried in one test here
        changes = {"calibration_meta": False} | changes
    if name == "classic":  # the correction that draws at random, for all that a seed decides
        changes = {"correction": "bagging", "num_bags": 3, "base": "boosting"} | changes
        changes = {"learning_rate": 0.1, "max_iter": 20} | changes
    if name == "cvir":  # the variant that holds examples out and decides on the host
        changes = {"alpha": "estimated"} | changes
    options = {"hidden": (16, 16), "batch_norm": name != "gradpu"}
    return tiny.config(name, model="mlp", options=options, **changes)


@functools.cache
def trainer(name):
    """A method on one device."""
    return tiny.Trainer(small(name), problem(name))


@functools.cache
def trained(name):
    """A method's carry after `STEPS` steps of every stage on one device, by seed 0."""
    return trainer(name).run(steps=STEPS)


def seen(stage, state, arrays):
    """What a stage trains on."""
    return train_step.stage_data(stage, state, arrays, tiny.mesh(), batch_size=64)


def leaves(tree):
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def assert_same(first, second):
    for a, b in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)


def num_epochs(name):
    """Epochs of a small configuration."""
    return 1 if name in FITTED else 4


def test_there_are_methods():
    assert {"lagam", "naive", "supervised"} <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_default_config_builds_and_names_itself(name):
    module = methods.module(name)
    assert module.default_config().name == name
    method = trainer(name).method
    assert method.stages and all(stage.num_epochs >= 1 for stage in method.stages)
    assert sum(stage.num_epochs for stage in method.stages) == num_epochs(name)
    assert len({stage.name for stage in method.stages}) == len(method.stages)


@pytest.mark.parametrize("name", BINARY)
def test_it_accepts_two_sample_data(name):
    data = tiny.problem(setting="two_sample")
    made = method_setup.build(small(name), data, tiny.mesh())  # traces every stage
    assert made.method.stages
    assert data.info.prior_unlabeled == data.info.prior


def made_by(stage):
    """The functions whose closures the functions of a stage are."""
    inner = inspect.getclosurevars(inspect.unwrap(stage.step)).nonlocals.get("stage")
    if inner is not None:  # averaged weights
        return made_by(inner)
    functions = [f and inspect.unwrap(f).__code__ for f in (stage.init, stage.step, stage.refresh)]
    return stage.name, functions, stage.encode is None, stage.batching.support_batch_size > 0


@pytest.mark.parametrize(("name", "like"), tiny.SAME_STEP.items())
def test_methods_that_are_tested_on_another_one_share_its_step(name, like):
    built = [methods.build(small(x), problem(x).info) for x in (name, like)]
    first, second = ([made_by(stage) for stage in method.stages] for method in built)
    assert first == second


@thorough(METHODS)
def test_steps_give_finite_numbers_and_keep_the_state_structure(name):
    method, arrays, carry = trainer(name).method, trainer(name).arrays, trained(name)
    assert all(np.isfinite(x).all() for x in leaves(carry))
    key, previous = jax.random.key(0), None
    for stage in method.stages:
        previous = jax.eval_shape(stage.init, key, previous, arrays)
    assert jax.tree.structure(previous) == jax.tree.structure(carry.state)
    for wanted, got in zip(jax.tree.leaves(previous), jax.tree.leaves(carry.state), strict=True):
        assert (wanted.shape, wanted.dtype) == (got.shape, got.dtype)


@thorough(METHODS)
def test_it_learns_to_tell_two_separated_clouds_apart(name, data):
    method, state = trainer(name).method, trainer(name).run(steps=24).state
    if method.calibrate is not None:
        state = method.calibrate(state, trainer(name).arrays)
    scores = jax.jit(method.predict)(state, jnp.asarray(data.test_inputs))
    assert scores.shape == data.test_labels.shape
    accuracy = np.mean((np.asarray(scores) > 0) == data.test_labels)
    assert accuracy > 0.9, f"test accuracy {accuracy}"


def on_table(name, **changes):
    options = {"hidden": (16, 16), "batch_norm": name != "gradpu"}
    changes |= {"calibration_meta": False} if name == "self_pu" else {}
    return tiny.config(name, model="mlp", options=options, augment=False, **changes)


@pytest.mark.parametrize("name", METHODS)
def test_it_takes_a_table_of_numbers(name):
    data = problem(name, table=True)
    made = method_setup.build(on_table(name), data, tiny.mesh())  # traces every stage
    arrays, state = made.data.training_data(), None
    for stage in made.method.stages:
        state = jax.eval_shape(stage.init, jax.random.key(0), state, arrays)
    scores = jax.eval_shape(made.method.predict, state, data.test_inputs)
    assert (scores.shape, scores.dtype) == (data.test_labels.shape, jnp.float32)


def test_training_on_a_table_tells_two_clouds_apart_whatever_the_units_of_a_feature():
    data = tiny.table_problem()
    method, carry = tiny.train_steps(on_table("nnpu"), data, steps=24, per_call=4)
    scores = jax.jit(method.predict)(carry.state, jnp.asarray(data.test_inputs))
    # Over all features 99 % can be told apart, by the one of the largest numbers alone 84 %.
    assert np.mean((np.asarray(scores) > 0) == data.test_labels) > 0.95


@pytest.mark.parametrize("name", METHODS)
def test_a_network_or_view_for_images_is_refused_on_a_table(name):
    info = problem(name, table=True).info
    with pytest.raises(ValueError, match="model.name is 'small_cnn'; accepted: 'mlp', .* table"):
        methods.module(name).build(tiny.config(name, augment=False), info)
    if "augment" in methods.module(name).default_config():
        options = {"hidden": (16,), "batch_norm": False}
        config = tiny.config(name, model="mlp", options=options, augment=True)
        with pytest.raises(ValueError, match="method.augment is True; accepted: False, .* table"):
            methods.module(name).build(config, info)


def batches_of_stages(trainer):
    """Yields (stage, state, batch, key) of every stage, entered after one step."""
    arrays, state, key = trainer.arrays, None, jax.random.key(0)
    for stage in trainer.method.stages:
        state = train_step.init_state(stage, key, state, arrays, tiny.mesh())
        plan = train_step.epoch_plan(stage, key, 0, arrays)
        batch = train_step.batching.gather(seen(stage, state, arrays), plan, 0, epoch=2, step=0)
        yield stage, state, batch, key
        if stage is not trainer.method.stages[-1]:
            state, _ = stage.step(state, batch, key)


@thorough(METHODS)
def test_a_batch_of_one_group_stays_finite(name, data):
    made = trainer(name)
    if name == "self_pu":
        made = tiny.Trainer(small(name, calibration_meta=True), data)
    for stage, state, batch, key in batches_of_stages(made):
        for group in (0.0, 1.0):
            labeled = 0 * batch.labeled + group  # lies where the batch does: one program for all
            lonely = stage.step(state, batch._replace(labeled=labeled), key)
            assert all(np.isfinite(x).all() for x in leaves(lonely))


@thorough(EAGER)
def test_jit_equals_eager(name):
    for stage, state, batch, key in batches_of_stages(trainer(name)):
        compiled = stage.step(state, batch, key)
        with jax.disable_jit():
            eager = stage.step(state, batch, key)
        for a, b in zip(leaves(compiled), leaves(eager), strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)  # float32, other fusion


@thorough(BATCHES)
def test_eight_devices_equal_one(name, data):
    one = trained(name)
    _, eight = tiny.train_steps(small(name), data, steps=STEPS, num_devices=8)
    for a, b in zip(leaves(one), leaves(eight), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)  # float32 sums in another order


@pytest.mark.thorough
def test_eight_devices_equal_one_with_convolutions(data):
    config = tiny.config("naive", augment=True)
    (_, one), (_, eight) = (tiny.train_steps(config, data, steps=2, num_devices=n) for n in (1, 8))
    for a, b in zip(leaves(one), leaves(eight), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_a_batch_that_eight_devices_cannot_share_evenly_gives_the_same_numbers(data):
    config = small("nnpu", batch_size=20)
    (_, one), (_, eight) = (tiny.train_steps(config, data, steps=2, num_devices=n) for n in (1, 8))
    for a, b in zip(leaves(one), leaves(eight), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@thorough(STEPPERS, tiny.KINDS)
def test_many_steps_per_dispatch_equal_single_steps(name):
    single = trained(name)
    many = trainer(name).run(steps=STEPS, per_call=STEPS)
    for a, b in zip(leaves(single), leaves(many), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@thorough(STEPPERS, tiny.KINDS)
def test_bfloat16_runs_and_parameters_stay_float32(name, data):
    config = small(name, dtype="bfloat16")
    method, carry = tiny.train_steps(config, data, steps=1)
    for leaf in jax.tree.leaves(carry.state):
        assert leaf.dtype != jnp.bfloat16
    assert all(np.isfinite(x).all() for x in leaves(carry))
    assert method.predict(carry.state, jnp.asarray(data.test_inputs[:2])).dtype == jnp.float32


@thorough(STEPPERS, tiny.KINDS)
def test_later_steps_do_not_trace_again(name):
    made = trainer(name)
    assert trained(name) and set(made.traced) == {stage.name for stage in made.method.stages}
    before = len(made.traced)
    made.run(steps=1, epochs=3, seed=1)
    assert len(made.traced) == before


@thorough(STEPPERS, RESUMED)
def test_stop_and_go_on_equals_a_straight_run_bit_for_bit(name, data, tmp_path):
    def run(folder, **changes):
        config = small(name, **changes)
        setup = trainer(name).setup._replace(config=config)
        return tiny.train_in(tmp_path / folder, config, data, setup=setup)

    straight, rows = run("straight")
    for epochs in (1, 3, 0):  # 0 goes on to the end
        resumed, resumed_rows = run("resumed", stop_after_epoch=epochs)
    assert straight.is_finished and resumed.is_finished and len(rows) == num_epochs(name)
    assert resumed_rows == rows
    assert_same(straight.carry, resumed.carry)


@pytest.mark.parametrize("name", METHODS)
def test_hidden_truth_is_not_handed_to_training(name, data):
    shuffled = data._replace(truth=np.random.default_rng(0).permutation(data.truth))
    assert not np.array_equal(shuffled.truth, data.truth)
    method = methods.build(small(name), data.info)  # which is not traced
    if method.reveals:  # an oracle must depend on it, or it would be no upper bound
        data, shuffled = data.reveal(method.reveals), shuffled.reveal(method.reveals)
        same = zip(leaves(data.training_data()), leaves(shuffled.training_data()), strict=True)
        assert not all(np.array_equal(a, b) for a, b in same)
    else:  # a method sees these and nothing else
        assert shuffled.info == data.info
        assert_same(shuffled.training_data(), data.training_data())


@pytest.mark.parametrize("name", ALWAYS)
def test_hidden_truth_does_not_touch_training(name, data):
    shuffled = np.random.default_rng(0).permutation(data.truth)
    _, second = tiny.train_steps(small(name), data._replace(truth=shuffled), steps=STEPS)
    assert_same(trained(name), second)


@thorough(METHODS, tiny.KINDS)
def test_the_seed_decides_everything(name):
    first, again = trained(name), trainer(name).run(steps=STEPS)
    assert_same(first, again)
    other = trainer(name).run(steps=STEPS, seed=1)
    assert not all(np.array_equal(a, b) for a, b in zip(leaves(first), leaves(other), strict=True))


@thorough(STEPPERS, tiny.KINDS)
def test_seeds_are_a_batch_axis(name):
    """A step under vmap over the whole state equals the same seed alone."""
    method, arrays = trainer(name).method, trainer(name).arrays
    alone = []
    for key in jax.random.split(jax.random.key(3), 2):
        state = None
        for stage in method.stages:
            state = train_step.init_state(stage, key, state, arrays, tiny.mesh())
        plan = train_step.epoch_plan(stage, key, 0, arrays)
        batch = train_step.batching.gather(seen(stage, state, arrays), plan, 0, epoch=2, step=0)
        alone.append((state, batch, key))
    stacked = jax.tree.map(lambda *x: jnp.stack(x), *alone)
    together = jax.jit(jax.vmap(stage.step))(*stacked)
    for i, arguments in enumerate(alone):
        for a, b in zip(leaves(together), leaves(stage.step(*arguments)), strict=True):
            np.testing.assert_allclose(a[i], b, rtol=2e-3, atol=2e-4)
