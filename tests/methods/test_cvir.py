"""CVIR and TED^n: which examples of U train, by which share, and what the estimate rests on."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import priors, risks
from pujax.methods import cvir
from pujax.methods._common import network as network_lib
from pujax.priors import _classifier
from pujax.priors.ted_n import best_bin_value, keep
from pujax.training import method_setup, sharding, train_step
from tests import tiny
from tests.pu_batches import LN3
from tests.x64 import x64

OPTIONS = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}}


@functools.cache
def setup(alpha="known", **changes):
    """Data, method, arrays, and the state at the start of the main stage, before a choice."""
    data = tiny.problem(setting=changes.pop("setting", "one_sample"))
    config = tiny.config("cvir", alpha=alpha, **(OPTIONS | changes))
    method = method_setup.build(config, data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    state = None
    for stage in method.stages:
        state = train_step.init_state(stage, jax.random.key(0), state, arrays, tiny.mesh())
    return data, method, arrays, state


def scores_of(method, arrays, state):
    return np.asarray(method.predict(state, arrays.inputs), np.float64)


def test_risk_matches_a_batch_worked_by_hand():
    scores, labeled = np.array([LN3, 0.0, -LN3, LN3, 0.0]), np.array([1, 1, 0, 0, 0])
    kept = np.array([False, False, True, False, True])
    with x64():
        call = functools.partial(risks.cvir, kept=kept)
        value, gradient = jax.jit(jax.value_and_grad(call))(scores, labeled)
        # P: log(4/3), log 2. Kept: log(4/3), log 2. Each mean over its own count, each one half.
        assert float(value) == pytest.approx((np.log(4 / 3) + np.log(2)) / 2, abs=1e-15)
        np.testing.assert_allclose(gradient, [-1 / 16, -1 / 8, 1 / 16, 0, 1 / 8], rtol=1e-13)
        nothing, gradient = jax.jit(jax.value_and_grad(risks.cvir))(
            scores, labeled, kept=np.zeros(5, bool)
        )
        assert float(nothing) == pytest.approx((np.log(4 / 3) + np.log(2)) / 4, abs=1e-15)
        assert (gradient[2:] == 0).all()
        everything = risks.cvir(scores, labeled, kept=np.ones(5))
        assert float(everything) == pytest.approx(float(risks.naive(scores, labeled)) / 2)
        of_samples = jax.value_and_grad(risks.cvir_of_samples, argnums=(0, 1))
        same, (of_p, of_u) = jax.jit(of_samples)(scores[:2], scores[2:], kept=kept[2:])
        assert float(same) == pytest.approx(float(value), abs=1e-15)
        np.testing.assert_allclose(of_p, [-1 / 16, -1 / 8], rtol=1e-13)
        np.testing.assert_allclose(of_u, [1 / 16, 0, 1 / 8], rtol=1e-13)
        only_u = risks.cvir(scores[2:], labeled[2:], kept=kept[2:])
        assert float(only_u) == pytest.approx((np.log(4 / 3) + np.log(2)) / 4, abs=1e-15)
    with pytest.raises(ValueError, match=r"kept has shape \(2,\).*\(5,\)"):
        risks.cvir(scores, labeled, kept=kept[:2])
    with pytest.raises(ValueError, match=r"kept has shape \(2,\).*unlabeled, \(3,\)"):
        risks.cvir_of_samples(scores[:2], scores[2:], kept=kept[:2])


def test_the_choice_drops_exactly_the_highest_scores():
    scores = np.array([0.3, 0.9, 0.1, 0.9, 0.5])
    for share, dropped in ((0.0, []), (0.39, [1]), (0.4, [1, 3]), (0.7, [1, 3, 4])):
        np.testing.assert_array_equal(np.flatnonzero(~keep(scores, share)), dropped)
    assert keep(scores, 1.0).sum() == 1  # one negative stays
    # 15 of 22, though 15 / 22 * 22 rounds to less than 15.
    assert (~keep(np.arange(22.0), 15 / 22)).sum() == 15 > int(15 / 22 * 22)
    np.testing.assert_array_equal(keep(np.zeros(5), 0.4), [False, False, True, True, True])


@pytest.mark.parametrize("alpha", [0.2, 0.5])
def test_a_wrong_share_leaves_the_positives_and_takes_the_negatives_of_the_closed_form(alpha):
    """Separable scores: kept U holds (pi - alpha)/(1 - alpha) of positives, or lacks negatives."""
    pi, n = 0.35, 2000
    truth = np.arange(n) < pi * n
    kept = keep(np.where(truth, 1.0, -1.0) + np.linspace(0, 0.1, n), alpha)
    positives = truth[kept].mean()
    ignored = 1 - kept[~truth].mean()
    np.testing.assert_allclose(positives, max(0, (pi - alpha) / (1 - alpha)), atol=1e-3)
    np.testing.assert_allclose(ignored, max(0, (alpha - pi) / (1 - pi)), atol=1e-3)


@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_a_known_share_is_that_of_u_and_not_the_populations(setting):
    """A public implementation drops the population's share, too much of one-sample data."""
    data, method, arrays, state = setup(setting=setting)
    assert not np.asarray(state.held).any()
    after = method.stages[1].refresh(state, arrays, jax.random.key(1), 0)
    kept, labeled = np.asarray(after.kept), np.asarray(arrays.labeled)
    num_dropped = int(data.info.prior_unlabeled * data.info.n_u)
    assert (~kept & ~labeled).sum() == num_dropped and not kept[labeled].any()
    scores = scores_of(method, arrays, state)
    assert scores[~kept & ~labeled].min() >= scores[kept].max()
    if setting == "one_sample":
        assert num_dropped < int(data.info.prior * data.info.n_u)
    np.testing.assert_allclose(after.share, data.info.prior_unlabeled, rtol=1e-6)
    assert method.estimates is None


@pytest.mark.thorough
def test_loss_ignores_what_is_dropped_and_warm_up_drops_nothing():
    _, method, arrays, state = setup()
    stage = method.stages[0]
    assert stage.name == "warmup" and stage.refresh is None
    assert bool((state.kept == ~arrays.labeled).all())
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    batch = tiny.gather(arrays, plan, 0, epoch=1, step=0)
    half = batch.labeled.sum()
    assert half == 8  # P and U weigh the same, and are as many
    step = jax.jit(stage.step)
    _, whole = step(state, batch, jax.random.key(2))
    assert whole["kept"] == 1
    only = state._replace(kept=jnp.zeros_like(state.kept).at[batch.ids[-1]].set(True))
    _, part = step(only, batch, jax.random.key(2))
    np.testing.assert_allclose(part["kept"], 1 / 8)
    assert part["loss"] != whole["loss"]


def test_estimate_and_choice_are_those_of_best_bin_on_what_is_held_out():
    data, method, arrays, state = setup("estimated", hold_out_ratio=0.5)
    held, labeled = np.asarray(state.held), data.labeled
    assert held[labeled].sum() == 20 and held[~labeled].sum() == data.info.n_u // 2
    after = method.stages[1].refresh(state, arrays, jax.random.key(1), 0)
    scores = scores_of(method, arrays, state)
    value = best_bin_value(scores[held & labeled], scores[held & ~labeled])
    same = priors.best_bin(scores[held & labeled], scores[held & ~labeled], num_resamples=0)
    assert value == same.value
    estimates = method.estimates(after)
    np.testing.assert_allclose(estimates["estimated_prior"], value, rtol=1e-6)
    np.testing.assert_allclose(estimates["warmup_prior"], value, rtol=1e-6)
    # The estimate after the warm-up stays, and the share in use is the median of the last ones.
    said = after._replace(history=jnp.float32([-1, -1, -1, 0.9, 0.8]))
    later = method.estimates(method.stages[1].refresh(said, arrays, jax.random.key(1), 1))
    np.testing.assert_allclose(later["estimated_prior"], np.median([0.9, 0.8, value]), rtol=1e-6)
    np.testing.assert_allclose(later["warmup_prior"], value, rtol=1e-6)
    trained = ~held & ~labeled
    np.testing.assert_array_equal(np.asarray(after.kept)[trained], keep(scores[trained], value))
    assert not np.asarray(after.kept)[~trained].any()


@pytest.mark.thorough
def test_no_more_than_the_most_is_held_out():
    data, _, _, state = setup("estimated", hold_out_max=7)
    held = np.asarray(state.held)
    assert held[data.labeled].sum() == held[~data.labeled].sum() == 7  # of 40 and 152


def test_examples_that_are_held_out_do_not_train():
    _, method, arrays, state = setup("estimated")
    stage = method.stages[0]
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    batch = tiny.gather(arrays, plan, 0, epoch=1, step=0)
    held = np.asarray(state.held)[np.asarray(batch.ids)]
    assert held.any()
    # Numbers there that nobody may read: nothing of the step changes.
    mask = jnp.asarray(held).reshape(-1, 1, 1, 1)
    blinded = batch._replace(inputs=jnp.where(mask, 0, batch.inputs))
    step = jax.jit(stage.step)
    for a, b in zip(
        jax.tree.leaves(step(state, batch, jax.random.key(2))),
        jax.tree.leaves(step(state, blinded, jax.random.key(2))),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_the_share_is_the_median_of_the_last_five_estimates():
    history = np.full(5, -1, np.float32)
    for estimate, share in ((0.4, 0.4), (0.6, 0.5), (0.9, 0.6), (np.nan, 0.0), (0.5, 0.55)):
        history, got = cvir.updated(history, estimate)
        assert got == pytest.approx(share)
    for _ in range(5):
        history, got = cvir.updated(history, 0.2)
    assert got == pytest.approx(0.2)


def test_an_estimate_that_feeds_on_itself_or_says_nothing_is_warned_about():
    (sentence,) = cvir.diagnose({"estimated_prior": 0.6, "warmup_prior": 0.45})
    assert "rose from 0.450 after the warm-up to 0.600: it feeds on itself" in sentence
    assert not cvir.diagnose({"estimated_prior": 0.54, "warmup_prior": 0.45})
    (sentence,) = cvir.diagnose({"estimated_prior": 0.0, "warmup_prior": 0.0})
    assert "do not tell P from U" in sentence


@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_a_known_share_and_a_perfect_scorer_keep_the_negatives_of_u_alone(setting):
    data = tiny.table_problem(setting=setting)
    config = tiny.config("cvir", model="mlp", options={"hidden": ()})
    method = method_setup.build(config, data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    state = train_step.init_state(method.stages[0], jax.random.key(0), None, arrays, tiny.mesh())
    kernel = jnp.zeros([6, 1]).at[0].set(1)  # the score is the first feature
    state = state._replace(params={"classifier": {"kernel": kernel, "bias": jnp.zeros(1)}})
    noise = 0.1 * np.random.default_rng(0).normal(size=len(data.truth))
    inputs = arrays.inputs.at[:, 0].set(data.truth + noise.astype(np.float32))
    after = method.stages[1].refresh(state, arrays._replace(inputs=inputs), jax.random.key(1), 0)
    np.testing.assert_array_equal(after.kept, ~data.labeled & (data.truth == 0))


def test_on_a_table_it_is_the_estimator_for_tables_choice_by_choice(monkeypatch):
    """The same halves, first weights and steps over all of a half: only sums have another order.

    The share that is dropped is the last estimate, as in `priors.ted_n`, not the median of five.
    """
    warmup, main, size = 3, 6, 60
    monkeypatch.setattr(cvir, "_LAST", 1)
    data = tiny.table_problem(num_labeled=size, num_unlabeled=size, setting="two_sample")
    # Halves as of `ted_n`, and rows whose mean and deviation on the trained ones are 0 and 1.
    rng = priors.base.generator(5)
    trained, held = zip(*(np.array_split(rng.permutation(size), 2) for _ in "pu"), strict=True)
    seen = data.inputs[[*trained[0], *(size + trained[1])]].astype(np.float64)
    rows = np.float32((data.inputs - seen.mean(0)) / seen.std(0))
    info = data.info._replace(mean=(0.0,) * 6, std=(1.0,) * 6)
    data = data._replace(inputs=rows, info=info)
    lengths = {"num_epochs": warmup + main, "warmup_epochs": warmup, "batch_size": 2 * size}
    changes = {"alpha": "estimated", "hold_out_ratio": 0.5, **lengths}
    config = tiny.config("cvir", model="mlp", options={"hidden": (8,)}, **changes)
    method = method_setup.build(config, data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    first, second = method.stages
    state = train_step.init_state(first, jax.random.key(0), None, arrays, tiny.mesh())
    is_held = np.zeros(2 * size, bool)
    is_held[[*held[0], *(size + held[1])]] = True
    state = state._replace(held=jnp.asarray(is_held))
    network = network_lib.build(config, data.info, embedding_dim=0)
    start = jax.tree.map(np.asarray, state.params)

    choices, shares = [], []
    step = jax.jit(first.step)
    for epoch in range(warmup + main):
        if epoch >= warmup:
            state = second.refresh(state, arrays, jax.random.key(1), epoch - warmup)
            shares.append(float(state.share))
        choices.append(np.asarray(state.kept)[size:][trained[1]])
        plan = train_step.epoch_plan(first, jax.random.key(2), epoch, arrays)
        assert plan.ids.shape == (1, 2 * size)
        batch = tiny.gather(arrays, plan, 0, epoch=epoch, step=epoch)
        state, _ = step(state, batch, jax.random.key(3))

    asked = []

    def watched(*arguments):
        run = _classifier.make_epoch(*arguments)

        def epoch(params, state, p, u, kept, key):
            asked.append(kept > 0)
            return run(params, state, p, u, kept, key)

        return epoch

    names = priors.ted_n_fit.__globals__
    monkeypatch.setitem(names, "make_epoch", watched)
    # What an earlier test compiled is not watched.
    monkeypatch.setitem(names, "_default_training", names["_default_training"].__wrapped__)
    fit = priors.ted_n_fit(
        *(rows[:size], rows[size:]),
        num_warmup_epochs=warmup,
        num_epochs=main,
        learning_rate=config.method.learning_rate,
        momentum=config.method.momentum,
        weight_decay=config.method.weight_decay,
        network=_classifier.Network(
            lambda key, x: start,
            lambda params, x: network.train_pass(params, {}, x)[0].logits,
        ),
        key=5,
    )
    np.testing.assert_array_equal(choices, asked)
    assert len({tuple(kept) for kept in choices}) > 2  # it is not one choice
    np.testing.assert_array_equal(np.float32(shares), np.float32(fit.history[warmup - 1 : -1]))
    scores = scores_of(method, arrays, state)
    np.testing.assert_allclose(scores[:size][held[0]], fit.scores_positive, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(scores[size:][held[1]], fit.scores_unlabeled, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_on_a_table_the_prior_is_found_and_positives_are_dropped():
    data = tiny.table_problem(num_labeled=50, setting="two_sample")
    changes = {"num_epochs": 30, "warmup_epochs": 10, "batch_size": 40, "hold_out_ratio": 0.5}
    config = tiny.config(
        "cvir", model="mlp", options={"hidden": (16,)}, alpha="estimated", **changes
    )
    built = method_setup.build(config, data, tiny.mesh())
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    state = None
    for stage in built.method.stages:
        state = train_step.init_state(stage, jax.random.key(0), state, arrays, tiny.mesh())
        step = jax.jit(stage.step)
        for epoch in range(stage.num_epochs):
            if stage.refresh:
                state = stage.refresh(state, arrays, jax.random.key(1), epoch)
            plan = train_step.epoch_plan(stage, jax.random.key(2), epoch, arrays)
            for index in range(plan.ids.shape[0]):
                batch = tiny.gather(arrays, plan, index, epoch=epoch, step=0)
                state, _ = step(state, batch, jax.random.key(3))
    truth = data.truth[~data.labeled].mean()
    assert abs(float(state.share) - truth) < 0.15
    assert data.truth[np.asarray(state.kept)].mean() < truth / 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"alpha": "none"}, "method.alpha is 'none'; accepted: 'known', 'estimated'"),
        ({"warmup_epochs": 9}, "method.warmup_epochs is 9; accepted"),
        (
            {"alpha": "estimated", "warmup_epochs": 0},
            "method.warmup_epochs is 0; accepted: at least 1 while method.alpha is 'estimated'",
        ),
        (
            {"alpha": "estimated", "hold_out_ratio": 0.02},
            "method.hold_out_ratio is 0.02; accepted: a share that holds at least 2 of the 40 of P",
        ),
        ({"hold_out_max": 1}, "method.hold_out_max is 1; accepted: an integer from 2"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        cvir.build(tiny.config("cvir", **(OPTIONS | changes)), tiny.problem().info)


def test_a_known_share_needs_a_prior():
    info = tiny.problem().info._replace(prior=np.nan, prior_unlabeled=np.nan)
    with pytest.raises(ValueError, match="data.prior is None; accepted"):
        cvir.build(tiny.config("cvir", **OPTIONS), info)
    assert cvir.build(tiny.config("cvir", alpha="estimated", **OPTIONS), info).estimates
