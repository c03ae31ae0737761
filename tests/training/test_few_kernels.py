"""What an accelerator computes in fewer kernels gives the numbers that a CPU's form gives."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from pujax import accelerator
from pujax.methods._common import mixup
from pujax.models import layers
from pujax.training import method_setup, run_state, seed_axis, train_step
from pujax.training.seed_axis import Member
from tests import tiny

NORMED = {"model": "mlp", "options": {"hidden": (16,), "batch_norm": True}}


@functools.cache
def trainer(name, setting, **changes):
    config = tiny.config(name, run={"few_kernels": setting}, **(NORMED | changes))
    return tiny.Trainer(config, tiny.problem())


def trained(name, setting, *, per_call=4, seed=0, **changes):
    return trainer(name, setting, **changes).run(steps=4, per_call=per_call, seed=seed)


def differences(first, second):
    """Largest difference of two carries, relative to the numbers' own size."""
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return max(
        float(np.max(np.abs(np.asarray(a, np.float64) - b) / (np.abs(b) + 1e-2), initial=0))
        for a, b in pairs
    )


@pytest.mark.parametrize(
    "name",
    [
        "dist_pu",
        *(pytest.param(x, marks=pytest.mark.thorough) for x in ("lagam", "p3mix_c", "impulses")),
    ],
)
def test_few_kernels_give_the_same_state_and_metrics(name):
    many, few = trained(name, "off"), trained(name, "on")
    assert jax.tree.structure(many) == jax.tree.structure(few)
    assert differences(few, many) < 1e-3  # of four steps in single precision
    assert differences(few, trained(name, "on", seed=1)) > 1e-2  # a bound that can be missed


def test_a_step_that_is_not_finite_is_undone_on_vectors_too():
    for setting in ("off", "on"):
        config = tiny.config("nnpu", run={"few_kernels": setting}, **NORMED)
        trainer = tiny.Trainer(config, tiny.problem())
        stage = trainer.method.stages[0]

        def broken(state, batch, key, step=stage.step):
            state, metrics = step(state, batch, key)
            factor = jnp.where(batch.step == 1, jnp.nan, 1.0)
            params = jax.tree.map(functools.partial(jnp.multiply, factor), state.params)
            return state._replace(params=params), metrics

        train = train_step.make_train(
            stage._replace(step=broken), tiny.mesh(), packed=setting == "on"
        )
        key = train_step.run_key(0, tiny.mesh())
        state = train_step.init_state(stage, key, None, trainer.arrays, tiny.mesh())
        sums = train_step.zero_sums(trainer.setup.metric_names[0], tiny.mesh())
        plan = train_step.epoch_plan(stage, key, 0, trainer.arrays)
        at = (trainer.arrays, plan, key, 0)
        after = train(train_step.Carry(state, sums), *at, 0, 0, count=2)
        (values,) = train_step.means(after.sums)
        assert values["nonfinite"] == 1
        assert all(np.isfinite(x).all() for x in jax.tree.leaves(after.state))


@pytest.mark.parametrize("setting", ["off", "on"])
def test_steps_beyond_those_wanted_change_nothing(setting):
    config = tiny.config("nnpu", run={"few_kernels": setting}, **NORMED)
    trainer = tiny.Trainer(config, tiny.problem())
    stage, mesh = trainer.method.stages[0], tiny.mesh()
    train = train_step.make_train(stage, mesh, packed=setting == "on")
    key = train_step.run_key(0, mesh)
    plan = train_step.epoch_plan(stage, key, 0, trainer.arrays)

    def after(calls):
        state = train_step.init_state(stage, key, None, trainer.arrays, mesh)
        carry = train_step.Carry(state, train_step.zero_sums(trainer.setup.metric_names[0], mesh))
        first = 0
        for wanted, count in calls:
            carry = train(carry, trainer.arrays, plan, key, 0, first, first, wanted, count=count)
            first += wanted
        return carry

    whole, parted = after([(5, 5)]), after([(3, 3), (2, 3)])
    assert differences(parted, whole) < 1e-5
    assert train_step.means(parted.sums)[0]["nonfinite"] == 0
    assert float(parted.sums["steps"]) == 5
    assert differences(after([(3, 3)]), whole) > 1e-3


def test_every_call_of_an_epoch_runs_the_same_number_of_steps():
    for num_steps in (*range(1, 200), 773, 781, 1000, 50_001):
        for most in (1, 2, 7, 32):
            count = train_step.steps_per_call(num_steps, most)
            calls = -(-num_steps // count)
            assert 1 <= count <= most and count * calls >= num_steps
            assert count == num_steps or 2 * count >= most
            # Never worse than full calls and a tenth of a step for each.
            cost = count * calls - num_steps + 0.1 * calls
            full = -(-num_steps // most)
            assert cost <= most * full - num_steps + 0.1 * full + 1e-9
    assert train_step.steps_per_call(773, 32) == 31  # 25 calls, two steps in vain


def test_runs_of_the_same_stage_share_one_compiled_step():
    config = tiny.config("nnpu", **NORMED)
    (stage,) = method_setup.build(config, tiny.problem(), tiny.mesh()).method.stages
    train = train_step.make_train(stage, tiny.mesh(), first_epoch=2)
    assert train_step.make_train(stage, tiny.mesh(), first_epoch=2) is train
    for other in ({"first_epoch": 1}, {"first_epoch": 2, "packed": True}):
        assert train_step.make_train(stage, tiny.mesh(), **other) is not train
    another = stage._replace(name="another")
    assert train_step.make_train(another, tiny.mesh(), first_epoch=2) is not train


def test_an_epoch_compiles_one_program(tmp_path):
    config = tiny.config("nnpu", run={"steps_per_dispatch": 4}, batch_size=18, **NORMED)
    setup = method_setup.build(config, tiny.problem(), tiny.mesh())
    assert run_steps(setup) % 4  # the last call is not full
    made = []
    original = train_step.make_train

    def counted(*args, **options):
        made.append(original(*args, **options))
        return made[-1]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(train_step, "make_train", counted)
        tiny.train_in(tmp_path, config, tiny.problem(), setup=setup)
    assert [train._cache_size() for train in made] == [1]


def run_steps(setup):
    stage = setup.method.stages[0]
    return stage.batching.steps_per_epoch(len(setup.data.labeled))


@pytest.mark.parametrize("alpha", [1.0, 4.0, 6.0])
def test_the_share_of_mixup_is_distributed_as_a_beta(alpha):
    drawn = np.asarray(mixup.draw_lam(jax.random.key(0), alpha, (4000,)))
    assert stats.kstest(drawn, stats.beta(alpha, alpha).cdf).pvalue > 1e-3
    assert stats.kstest(drawn, stats.beta(alpha + 1, alpha + 1).cdf).pvalue < 1e-3
    assert mixup.draw_lam(jax.random.key(0), 0.3, (5,)).shape == (5,)
    scalar = jax.make_jaxpr(lambda key: mixup.draw_lam(key, alpha))(jax.random.key(0))
    assert scalar.out_avals[0].shape == () and "while" not in str(scalar)


@pytest.mark.parametrize("alpha", [4.0, 0.5])
def test_shares_of_mixup_have_the_moments_of_a_beta_and_the_larger_is_that_of_two(alpha):
    share = np.asarray(mixup.draw_lam(jax.random.key(0), alpha, (20_000,)), np.float64)
    variance = 1 / (4 * (2 * alpha + 1))
    assert share.mean() == pytest.approx(0.5, abs=4 * (variance / len(share)) ** 0.5)
    assert share.var() == pytest.approx(variance, rel=0.05)
    larger = mixup.larger_lam(jax.random.key(0), alpha, (20_000,))
    np.testing.assert_allclose(larger, np.maximum(share, 1 - share), rtol=1e-6)


@pytest.mark.parametrize("shape", [(12, 5), (12, 3, 2, 5)])
def test_batch_norm_of_joined_views_is_that_of_one_view_after_another(shape):
    rng = np.random.default_rng(0)
    views = [jnp.asarray(rng.normal(i, 1 + i, shape), jnp.float32) for i in range(3)]
    module = layers.BatchNorm()
    variables = module.init(jax.random.key(0), views[0], False)
    running = jax.tree.map(lambda x: x + 0.3, variables["batch_stats"])
    weights = jnp.asarray(rng.normal(size=(3, *shape)), jnp.float32)

    def one_by_one(params, views):
        stats, outputs = running, []
        for view in views:
            out, new = module.apply(
                {"params": params, "batch_stats": stats}, view, True, mutable=["batch_stats"]
            )
            stats = new["batch_stats"]
            outputs.append(out)
        return jnp.sum(jnp.stack(outputs) * weights), (outputs, stats)

    def joined(params, views):
        together = jnp.stack(views, axis=1).reshape(-1, *shape[1:])
        with layers.interleaved_views(3):
            out, new = module.apply(
                {"params": params, "batch_stats": running}, together, True, mutable=["batch_stats"]
            )
        outputs = [out[i::3] for i in range(3)]
        return jnp.sum(jnp.stack(outputs) * weights), (outputs, new["batch_stats"])

    results = [
        jax.value_and_grad(f, argnums=(0, 1), has_aux=True)(variables["params"], views)
        for f in (one_by_one, joined)
    ]
    for a, b in zip(*map(jax.tree.leaves, results), strict=True):
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5)


def test_the_setting_is_checked_and_auto_asks_for_the_device(monkeypatch):
    with pytest.raises(ValueError, match="run.few_kernels is 'yes'; accepted: 'auto', 'on', 'off'"):
        tiny.config("nnpu", run={"few_kernels": "yes"})
    assert not accelerator.few_kernels("auto") and accelerator.few_kernels("on")
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    assert accelerator.few_kernels("auto") and not accelerator.few_kernels("off")


def test_a_run_of_an_accelerator_hands_the_state_on_in_vectors(tmp_path, monkeypatch):
    config = tiny.config("nnpu", run={"few_kernels": "on"}, **NORMED)
    setup = method_setup.build(config, tiny.problem(), tiny.mesh())
    asked = []
    original = train_step.make_train
    monkeypatch.setattr(
        train_step, "make_train", lambda *a, **k: asked.append(k["packed"]) or original(*a, **k)
    )
    run = run_state.prepare([Member(setup, tiny.problem(), str(tmp_path))], tiny.mesh())
    assert run.train_steps and asked == [True]
    run.close()


class Halves(NamedTuple):
    """A state of which a step changes one part."""

    weight: jax.Array
    encoder: jax.Array
    labels: jax.Array


def half_frozen(stage):
    """A stage whose step moves `weight` by what it finds in `encoder`, and nothing else."""

    def step(state, batch, key):
        new = state.weight + jnp.mean(state.encoder) + jax.random.normal(key)
        return state._replace(weight=new), {"loss": jnp.sum(new) + 0 * jnp.sum(batch.labeled)}

    return train_step.traced_once(stage._replace(step=step))


def carried_shapes(jaxpr):
    """Shapes that the loops of a program hand on from step to step."""
    found = []
    for equation in jaxpr.eqns:
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            found += carried_shapes(inner) if hasattr(inner, "eqns") else []
        if equation.primitive.name == "scan":
            # How many values are carried is said under other names by other versions of jax. They
            # leave the loop with the shape of the body's, stacked outputs with an axis more.
            body = equation.params["jaxpr"].jaxpr.outvars
            shapes = [
                (x.aval.shape, y.aval.shape) for x, y in zip(equation.outvars, body, strict=True)
            ]
            found += [outside for outside, inside in shapes if outside == inside]
    return found


def test_what_calls_within_a_step_hand_on_is_left_as_it_was():
    """Whether a compiled function within a step is a call in its trace depends on jax."""

    @jax.jit
    def inner(moved, kept, one, other):
        return moved + 1, kept, other, one

    @jax.jit
    def outer(moved, kept, one, other):
        moved, kept, one, other = inner(moved, kept, one, other)
        return inner(2 * moved, kept, one, other)

    def once(state, batch, key):
        return inner(*state), {}

    def twice(state, batch, key):
        return outer(*state), {}

    def thrice(state, batch, key):
        return inner(*outer(*state)), {}

    state = tuple(jnp.full(3, i) for i in range(4))
    found = [train_step._moves(step, state, 0.0, 0.0) for step in (once, twice, thrice)]
    # What is exchanged once or three times is moved, twice is back where it was.
    assert found == [[True, False, True, True], [True, False, False, False], found[0]]
    assert train_step._moves(lambda *x: ((0.0, *x[0][1:]), {}), state, 0.0, 0.0)[0]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("count", [1, 4])
def test_what_a_step_leaves_as_it_was_is_not_carried_from_step_to_step(packed, count):
    trainer = tiny.Trainer(tiny.config("naive", **NORMED), tiny.problem())
    stage, mesh = half_frozen(trainer.method.stages[0]), trainer.mesh
    state = Halves(jnp.zeros(3), jnp.full(50, 0.25), jnp.arange(7))
    key = train_step.run_key(0, mesh)
    carry = train_step.Carry(state, train_step.zero_sums(["loss"], mesh))
    plan = train_step.epoch_plan(stage, key, 0, trainer.arrays)
    data = train_step.stage_data(stage, state, trainer.arrays, mesh, batch_size=64)
    run = functools.partial(train_step.make_train(stage, mesh, packed=packed), count=count)
    arguments = data, plan, key, 0, 0, 0
    shapes = carried_shapes(jax.make_jaxpr(run)(carry, *arguments).jaxpr)
    assert (50,) not in shapes and (53,) not in shapes and (7,) not in shapes
    assert ((3,) in shapes) == (count > 1)
    noise = [
        float(jax.random.normal(train_step.stage_key(key, train_step.STEP, i)))
        for i in range(count)
    ]
    after = run(carry, *arguments)
    np.testing.assert_allclose(after.state.weight, [0.25 * count + sum(noise)] * 3, rtol=1e-5)
    np.testing.assert_array_equal(after.state.encoder, np.full(50, 0.25))
    np.testing.assert_array_equal(after.state.labels, np.arange(7))
    assert int(after.sums["steps"]) == count and int(after.sums["nonfinite"]) == 0


@pytest.mark.parametrize("packed", [False, True])
def test_of_seeds_together_no_more_is_carried_where_they_share_a_step(packed):
    trainer = tiny.Trainer(tiny.config("naive", **NORMED), tiny.problem())
    one, mesh = half_frozen(trainer.method.stages[0]), trainer.mesh
    single = Halves(jnp.zeros(3), jnp.full(50, 0.25), jnp.arange(7))
    key = train_step.run_key(0, mesh)
    plan = train_step.epoch_plan(one, key, 0, trainer.arrays)
    data = train_step.stage_data(one, single, trainer.arrays, mesh, batch_size=64)
    sums = train_step.zero_sums(["loss"], mesh)
    carry = train_step.Carry(single, sums)
    both = jax.tree.map(lambda x: jnp.stack([x, x]), (carry, data, plan, key))

    def shapes_of(step):
        stage = one._replace(step=step)
        run = functools.partial(train_step.make_train(stage, mesh, packed=packed), count=4)
        after = run(*jax.tree.map(jnp.array, both), 0, 0, 0)
        np.testing.assert_array_equal(after.state.encoder, np.full([2, 50], 0.25))
        assert after.sums["steps"].tolist() == [4, 4]
        return carried_shapes(jax.make_jaxpr(run)(*both, 0, 0, 0).jaxpr), after.state.weight

    shared, weight = shapes_of(seed_axis.over_seeds([one.step, one.step]))
    assert (2, 3) in shared and not {(2, 50), (2, 53), (2, 7)} & set(shared)
    # Steps that differ are called one after another, and what they leave alone is stacked anew.
    apart, same = shapes_of(seed_axis.over_seeds([one.step, lambda *given: one.step(*given)]))
    assert {(2, 50), (2, 53)} & set(apart) and (2, 7) in apart
    np.testing.assert_allclose(weight, same, rtol=1e-6)
    assert np.ptp(np.asarray(weight)) == 0
