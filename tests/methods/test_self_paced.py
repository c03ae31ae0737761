"""The mathematics of Self-PU: picking, what is left, calibrated weights, ramps."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import calibration, losses
from pujax.methods.self_pu import self_paced
from tests.pu_batches import sigmoid
from tests.x64 import x64

RULE = {"prior": 0.4, "unlabeled_prior": 0.3, "unlabeled_weight": 0.8}
# Compiled, since operations one by one cost a program each.
pick = jax.jit(self_paced.pick, static_argnames=("count", "count_labeled"))
allot = jax.jit(self_paced.allot)


def info(**changes):
    """CIFAR-10 with vehicles positive and 1000 labels, two samples."""
    numbers = {
        "name": "x",
        "setting": "two_sample",
        "n_p": 1000,
        "n_u": 50000,
        "n_support": 0,
        "support_positives": 0,
        "prior": 0.4,
        "prior_unlabeled": 0.4,
        "prior_source": "given",
        "input_shape": (2,),
        "mean": (0.0,),
        "std": (1.0,),
    }
    return DataInfo(**(numbers | changes))


@pytest.mark.parametrize(
    ("epoch", "top", "count"),
    [
        (0, 0.4, 0),
        (10, 0.4, 1200),
        (20, 0.4, 2400),
        (30, 0.4, 3600),
        (40, 0.4, 4800),
        (10, 0.6, 1800),
        (40, 0.6, 7200),
        (100, 0.6, 18000),
        (180, 0.6, 18000),
    ],
)
def test_the_number_picked_grows_with_the_epoch_up_to_the_ramp(epoch, top, count):
    got = self_paced.pick_count(60000, epoch, share=0.5, ramp_epochs=100, top=top)
    assert got == count


def test_products_round_down_and_lose_nothing_to_floating_point():
    for size in range(1000, 60000, 1000):
        for epoch in range(100):
            got = self_paced.pick_count(size, epoch, share=0.5, ramp_epochs=100, top=0.6)
            assert got == size * 5 * epoch * 6 // 10000
    assert self_paced.pick_count(99, 1, share=0.5, ramp_epochs=1, top=0.5) == 24
    assert self_paced.floor_of(0.29 * 100) == 29 and self_paced.floor_of(28.99) == 28


def test_picked_are_the_ends_of_u_and_a_share_of_p():
    rng = np.random.default_rng(0)
    scores, labeled = rng.normal(size=30), np.arange(30) % 3 == 0
    scores[labeled] *= 100  # the ends of all scores are labelled
    pool = np.asarray(pick(jax.random.key(0), scores, labeled, count=4, count_labeled=5))
    assert pool.dtype == np.int8
    in_order = sorted(np.flatnonzero(~labeled), key=lambda i: scores[i])
    for ids, code in (
        (in_order[:4], self_paced.NEGATIVE),
        (in_order[4:-4], self_paced.NOISY),
        (in_order[-4:], self_paced.POSITIVE),
    ):
        assert (pool[ids] == code).all()
    assert sorted(pool[labeled]) == [self_paced.NOISY] * 5 + [self_paced.POSITIVE] * 5


def test_the_key_decides_only_which_labelled_positives_are_picked():
    scores, labeled = np.arange(60.0), np.arange(60) < 20
    pools = [
        np.asarray(pick(jax.random.key(i), scores, labeled, count=7, count_labeled=10))
        for i in range(2)
    ]
    np.testing.assert_array_equal(pools[0][20:], pools[1][20:])
    assert not np.array_equal(pools[0][:20], pools[1][:20])


def test_nothing_is_picked_for_counts_of_zero():
    pool = pick(jax.random.key(0), np.zeros(6), np.arange(6) < 2, count=0, count_labeled=0)
    assert (np.asarray(pool) == self_paced.NOISY).all()


@pytest.mark.parametrize("picked", [0, 2000, 8000])
def test_prior_of_the_noisy_set_is_the_published_one_for_two_samples(picked):
    left = self_paced.noisy_info(info(), picked=picked, picked_labeled=500)
    wanted = (20000 - picked / 2) / (50000 - picked)
    assert left.prior == left.prior_unlabeled == pytest.approx(wanted, rel=1e-12)
    assert (left.n_p, left.n_u) == (500, 50000 - picked)


def test_one_sample_numbers_are_those_counted_in_the_set_that_is_left():
    positive = np.arange(100) < 40  # of which the first 10 are labelled
    labeled = np.arange(100) < 10
    whole = info(setting="one_sample", n_p=10, n_u=90, prior=0.4, prior_unlabeled=30 / 90)
    # Four labelled ones leave, and of U five positives and five negatives.
    stays = ~np.isin(np.arange(100), [0, 1, 2, 3, 10, 11, 12, 13, 14, 50, 51, 52, 53, 54])
    left = self_paced.noisy_info(whole, picked=10, picked_labeled=4)
    numbers = calibration.risk_numbers(left)
    assert numbers["prior"] == pytest.approx(positive[stays].mean(), rel=1e-12)
    assert numbers["unlabeled_prior"] == pytest.approx(positive[stays & ~labeled].mean(), rel=1e-12)
    assert numbers["unlabeled_weight"] == pytest.approx((~labeled)[stays].mean(), rel=1e-12)


def test_nothing_picked_leaves_the_numbers_alone():
    whole = info(setting="one_sample", prior=0.37, prior_unlabeled=0.35)
    left = self_paced.noisy_info(whole, picked=0, picked_labeled=0)
    assert left.prior == pytest.approx(0.37) and left.prior_unlabeled == pytest.approx(0.35)


def batch(seed=0, *, shift=0.0, size=14):
    """Scores, labels, weights and a mask of rows; a large shift makes nnPU's rule fire."""
    rng = np.random.default_rng(seed)
    labeled = rng.permutation(np.arange(size) < 5)
    scores = rng.normal(size=size) + shift * (2 * labeled - 1)
    return scores, labeled.astype(float), rng.uniform(size=size), rng.uniform(size=size) < 0.7


@pytest.mark.thorough
@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_unit_weights_give_nnpu_of_the_rows_that_count(shift):
    with x64():
        scores, labeled, _, rows = map(jnp.asarray, batch(shift=shift))

        def weighted(scores):
            return self_paced.weighted_nnpu(
                scores, labeled, jnp.ones(scores.shape), rows=rows, **RULE
            )

        def plain(scores):
            return risks.nnpu(scores[rows], labeled[rows], **RULE)

        for got, wanted in zip(
            jax.value_and_grad(weighted)(scores), jax.value_and_grad(plain)(scores), strict=True
        ):
            np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-14)
        fired = risks.pu_parts(scores[rows], labeled[rows], **RULE).negative < 0
        assert fired == (shift > 0)  # the example has both cases


def weighted_parts(scores, labeled, weights, rows):
    """Both parts of the weighted risk, written out."""
    p, u = rows & (labeled > 0), rows & (labeled == 0)
    up, down = weights * sigmoid(-scores), weights * sigmoid(scores)
    positive = RULE["prior"] * up[p].sum() / p.sum()
    negative = down[u].sum() / u.sum() - RULE["unlabeled_prior"] * down[p].sum() / p.sum()
    return positive, RULE["unlabeled_weight"] * negative


@pytest.mark.parametrize("shift", [0.0, 4.0])
def test_weights_multiply_losses_and_not_the_counts(shift):
    with x64():
        arrays = batch(1, shift=shift)
        positive, negative = weighted_parts(*arrays)
        scores, labeled, weights, rows = arrays

        @jax.jit
        @jax.value_and_grad
        def risk(scores, weights):
            return self_paced.weighted_nnpu(scores, labeled, weights, rows=rows, **RULE)

        (got, gradient), step = risk(scores, weights), 1e-6
        np.testing.assert_allclose(got, positive + max(negative, 0), rtol=1e-12)
        # The sign rule: once the negative part is below zero, the step climbs it.
        gradient = np.asarray(gradient)
        for i in range(3):
            moved = [arrays[0] + s * step * (np.arange(len(scores)) == i) for s in (1, -1)]
            parts = np.asarray([weighted_parts(m, *arrays[1:]) for m in moved])
            slope = (parts[0] - parts[1]) / (2 * step)
            wanted = -slope[1] if negative < 0 else slope.sum()
            np.testing.assert_allclose(gradient[i], wanted, atol=1e-9)  # central differences
        assert (negative < 0) == (shift > 0)


def test_at_zero_weights_the_derivative_is_each_examples_loss():
    """The rule has not fired there: a negative part of exactly zero is not below zero."""
    with x64():
        arrays = batch(2, shift=4.0)
        scores, labeled, _, rows = arrays

        def risk(weights):
            return self_paced.weighted_nnpu(scores, labeled, weights, rows=rows, **RULE)

        got = np.asarray(jax.jit(jax.grad(risk))(np.zeros(scores.shape)))
        for i in range(len(scores)):
            one = np.arange(len(scores)) == i
            wanted = sum(weighted_parts(arrays[0], arrays[1], one.astype(float), arrays[3]))
            np.testing.assert_allclose(got[i], wanted, rtol=1e-12, atol=1e-15)


@pytest.mark.thorough
@pytest.mark.parametrize("case", ["no rows", "no positives", "no unlabeled"])
def test_empty_groups_count_as_zero(case):
    scores, labeled, weights, rows = map(jnp.asarray, batch())
    keep = {"no rows": rows & False, "no positives": labeled == 0, "no unlabeled": labeled > 0}

    def loss(scores, weights):
        pair = jnp.stack([weights, weights], axis=1)
        return sum(self_paced.noisy_terms(scores, labeled, pair, rows=keep[case], **RULE))

    value, gradients = jax.value_and_grad(loss, (0, 1))(scores, weights)
    assert np.isfinite(value) and all(np.isfinite(g).all() for g in gradients)
    if case == "no rows":
        assert value == 0


def test_entropy_term_is_a_mean_over_the_noisy_rows():
    scores, labeled, weights, rows = batch()
    pair = np.stack([np.zeros(len(scores)), weights], axis=1)
    terms = jax.jit(functools.partial(self_paced.noisy_terms, **RULE))
    risk, own = terms(scores, labeled, pair, rows=rows)
    p = sigmoid(scores)
    each = -p * np.log(p) - (1 - p) * np.log(1 - p)
    assert risk == 0
    np.testing.assert_allclose(own, (weights * each)[rows].sum() / rows.sum(), rtol=1e-5)


def test_weights_are_clipped_normalised_and_within_the_budget():
    gradient = -np.asarray(
        [
            [1.0, 9.0],  # not adjustable
            [3.0, 1.0],
            [-5.0, 2.0],  # the first is clipped: entropy alone
            [2.0, -5.0],  # the second is clipped
            [-1.0, -1.0],  # both are: nnPU alone
            [1.0, 1.0],
            [0.0, 4.0],
        ]
    )
    adjustable = np.arange(7) > 0
    got = allot(gradient, adjustable=adjustable, budget=100.0)
    np.testing.assert_allclose(got[:, 1], [0, 0.25, 1, 0, 0, 0.5, 1])
    np.testing.assert_allclose(got.sum(axis=1), 1)
    # Given out: 0.25, then 1.25, which reaches 1.2; the examples after that get none.
    got = allot(gradient, adjustable=adjustable, budget=1.2)
    np.testing.assert_allclose(got[:, 1], [0, 0.25, 1, 0, 0, 0, 0])
    # 1.75 is below 1.8, so the last one is served in full.
    got = allot(gradient, adjustable=adjustable, budget=1.8)
    np.testing.assert_allclose(got[:, 1], [0, 0.25, 1, 0, 0, 0.5, 1])
    got = allot(gradient, adjustable=adjustable, budget=0.0)
    np.testing.assert_array_equal(got, [[1, 0]] * 7)


def test_the_budget_is_spent_as_the_authors_loop_spends_it():
    rng = np.random.default_rng(0)
    for seed in range(20):
        gradient = np.random.default_rng(seed).normal(size=[40, 2])
        adjustable = rng.uniform(size=40) < 0.9
        gain = np.maximum(-gradient, 0)
        wanted, spent = np.zeros(40), 0.0
        for i in np.flatnonzero(adjustable):
            if spent < 2.5 and gain[i].sum() > 0:
                wanted[i] = gain[i, 1] / gain[i].sum()
                spent += wanted[i]
        got = allot(gradient, adjustable=adjustable, budget=2.5)
        np.testing.assert_allclose(got[:, 1], wanted, atol=1e-6)
        assert 2.5 <= spent < 3.5


def linear_problem():
    """A linear model, a noisy batch and a support batch."""
    rng = np.random.default_rng(3)
    inputs, support = rng.normal(size=[14, 3]), rng.normal(size=[6, 3])
    _, labeled, _, rows = batch(3)
    return rng.normal(size=3), inputs, support, labeled, rows


def linear_losses(inputs, support, labeled, rows):
    """`(noisy_loss, support_loss)` of a linear model, as the method builds them."""

    def noisy_loss(params, weights):
        scores = inputs @ params
        return sum(self_paced.noisy_terms(scores, labeled, weights, rows=rows, **RULE))

    return noisy_loss, lambda params: jnp.mean(losses.entropy(support @ params))


def test_meta_weights_equal_the_closed_form_of_a_linear_model():
    """One step from w: d outer / d eps_i = -rate v . (d loss_i / d w), in NumPy float64."""
    rate = 1e-3
    params, inputs, support, labeled, rows = linear_problem()
    z, z_support = inputs @ params, support @ params
    p, p_support = sigmoid(z), sigmoid(z_support)
    v = (-z_support * p_support * (1 - p_support)) @ support / len(support)
    n_p, n_u = (rows & (labeled > 0)).sum(), (rows & (labeled == 0)).sum()
    of_unlabeled = RULE["unlabeled_weight"] / n_u
    of_positive = -RULE["prior"] / n_p
    of_positive -= RULE["unlabeled_weight"] * RULE["unlabeled_prior"] / n_p
    slope = p * (1 - p) * rows  # of sigmoid(z), the loss of an example as negative
    of_risk = np.where(labeled > 0, of_positive, of_unlabeled) * slope
    of_entropy = -z * slope / rows.sum()
    gradient = -rate * np.stack([of_risk, of_entropy], axis=1) * (inputs @ v)[:, None]
    gain = np.maximum(-gradient, 0)
    adjustable = rows & (labeled == 0)
    wanted = np.zeros(len(z))
    useful = adjustable & (gain.sum(axis=1) > 0)
    wanted[useful] = gain[useful, 1] / gain[useful].sum(axis=1)
    assert 0 < (wanted > 0).sum() < adjustable.sum()  # the example has both outcomes
    with x64():
        arrays = map(jnp.asarray, (inputs, support, labeled, rows))
        losses = linear_losses(*arrays)
        weights = functools.partial(
            self_paced.calibrated_weights, *losses, learning_rate=rate, budget=100.0
        )
        got = jax.jit(weights)(params, adjustable=adjustable)
        assert got.dtype == jnp.float64
        # The closed form takes the support loss at the parameters before the step; with all
        # weights zero there is no step, so this is exact.
        np.testing.assert_allclose(got[:, 1], wanted, rtol=1e-9, atol=1e-12)


def test_meta_weights_follow_finite_differences_through_the_step(monkeypatch):
    rate = 0.5
    params, inputs, support, labeled, rows = linear_problem()
    seen = []
    original = self_paced.allot
    monkeypatch.setattr(self_paced, "allot", lambda g, **k: (seen.append(g), original(g, **k))[1])
    with x64():
        noisy_loss, support_loss = linear_losses(
            *map(jnp.asarray, (inputs, support, labeled, rows))
        )
        self_paced.calibrated_weights(
            noisy_loss,
            support_loss,
            jnp.asarray(params),
            adjustable=jnp.asarray(rows),
            learning_rate=rate,
            budget=1.0,
        )

        @jax.jit
        def after_step(weights):
            return support_loss(params - rate * jax.grad(noisy_loss)(params, weights))

        for i in range(len(labeled)):
            for column in range(2):
                # Where more weight puts the negative part below zero the rule would fire, so the
                # difference is taken on the other side.
                fires = labeled[i] > 0 and column == 0
                step = -1e-6 if fires else 1e-6
                moved = jnp.zeros([len(labeled), 2]).at[i, column].set(step)
                slope = (after_step(moved) - after_step(jnp.zeros_like(moved))) / step
                # One-sided: the error is of the order of the step.
                np.testing.assert_allclose(seen[0][i, column], slope, atol=2e-6)
        assert np.abs(seen[0]).max() > 1e-3


def test_no_derivative_flows_through_the_weights():
    params, inputs, support, labeled, rows = linear_problem()
    losses = linear_losses(*map(jnp.asarray, (inputs, support, labeled, rows)))

    def total(params):
        weights = self_paced.calibrated_weights(
            *losses, params, adjustable=jnp.asarray(rows), learning_rate=1e-3, budget=9.0
        )
        return jnp.sum(weights * jnp.arange(2.0))

    assert total(jnp.asarray(params)) > 0
    np.testing.assert_array_equal(jax.grad(total)(jnp.asarray(params)), 0)


def test_ramp_by_hand():
    for epoch, wanted in (
        (0, 0.3 * np.exp(-5.0)),
        (50, 0.3 * np.exp(-5 * 0.875**2)),
        (200, 0.3 * np.exp(-1.25)),
        (400, 0.3),
        (900, 0.3),
    ):
        got = self_paced.ramp(epoch, weight=0.3, num_epochs=400)
        np.testing.assert_allclose(got, wanted, rtol=1e-5)


def test_teacher_decay_is_a_plain_mean_until_it_reaches_its_limit():
    decays = [float(self_paced.teacher_decay(t, decay=0.9)) for t in (0, 1, 2, 8, 9, 10, 500)]
    wanted = [0, 1 / 2, 2 / 3, 8 / 9, 0.9, 0.9, 0.9]
    np.testing.assert_allclose(decays, wanted, rtol=1e-6)
    mean, values = 7.0, np.arange(5.0)
    for t, value in enumerate(values):
        decay = float(self_paced.teacher_decay(t, decay=0.999))
        mean = decay * mean + (1 - decay) * value
    assert mean == pytest.approx(values.mean())


@pytest.mark.parametrize("scheme", risks.SELF_PACED_SCHEMES)
def test_infinite_hardness_has_no_weight_and_no_slope_by_the_tolerance(scheme):
    """The limit of large ones, whose weights no tolerance changes any more."""
    weight, slope = jax.value_and_grad(
        lambda t: risks.self_paced_weights(jnp.inf, tolerance=t, scheme=scheme)
    )(0.5)
    assert (weight, slope) == (0, 0)
    far = risks.self_paced_weights(1e30, tolerance=0.5, scheme=scheme)
    assert float(far) < 1e-14
    with pytest.raises(ValueError, match="hardness is -1.0, but must be 0 or more"):
        risks.self_paced_weights(-1.0, tolerance=0.5, scheme=scheme)


@pytest.mark.parametrize("scheme", ["welsch", "cauchy", "huber"])
@pytest.mark.parametrize("tolerance", [1e-30, 1e-23, 2e-20, 1e20])
def test_weights_are_shares_where_the_square_of_a_tolerance_is_no_number(scheme, tolerance):
    """Compiled, too: a compiler may write one division by a product for two divisions."""

    def weights(x, t):
        return risks.self_paced_weights(x, tolerance=t, scheme=scheme)

    hardness, expected = np.float32([0, 5]), [1, float(tolerance > 5)]
    for function in (weights, jax.jit(weights)):
        np.testing.assert_allclose(function(hardness, tolerance), expected, atol=1e-18)
