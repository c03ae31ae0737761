"""PU-MLC's losses against loops over classes, its gradient formula, and awkward batches."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from tests.pu_batches import LN3
from tests.x64 import x64

EPSILON = 1e-10
vpu = jax.jit(risks.multilabel_vpu)
gamma_of = jax.jit(risks.multilabel_gamma)
known_of = jax.jit(risks.multilabel_known)
known_and_grad = jax.jit(jax.value_and_grad(risks.multilabel_known))
vpu_and_grad = jax.jit(jax.value_and_grad(risks.multilabel_vpu))
consistency = jax.jit(risks.multilabel_mixup_consistency)


def multilabel_batch(seed=0, batch=7, classes=3):
    """Scores and targets in {-1, 0, 1}; the last class has no known positive."""
    rng = np.random.default_rng(seed)
    targets = rng.integers(-1, 2, size=(batch, classes))
    targets[:, -1] = np.minimum(targets[:, -1], 0)
    return 2 * rng.normal(size=(batch, classes)), targets


def phi(scores):
    return 1 / (1 + np.exp(-scores))


def temperatures(scores, alpha):
    if alpha is None:
        return np.ones(scores.shape[1])
    spread = np.sqrt(np.mean((scores - scores.mean(0)) ** 2, axis=0))
    return np.clip(alpha * spread, 1e-6, 1)


def naive_vpu(scores, targets, gamma, alpha):
    total = 0.0
    for c, temperature in enumerate(temperatures(scores, alpha)):
        q = phi(scores[:, c] / temperature)
        total += q.mean() ** gamma * np.log(q.mean() + 2 * EPSILON)
        known = q[targets[:, c] == 1]
        total -= np.log(known + 2 * EPSILON).mean() if known.size else 0
    return total


OPTIONS = [
    {},
    {"gamma": 0.55},
    {"gamma": 0.85, "alpha": 2.0},
    {"gamma": 0.55, "alpha": 0.3},
    {"alpha": 1e-8},
]


def test_vpu_matches_a_batch_worked_by_hand():
    # First class: q = 3/4, 1/4, the first known; second class: q = 1/2 twice, none known.
    scores, targets = np.array([[LN3, 0], [-LN3, 0]]), np.array([[1, 0], [0, -1]])
    with x64():
        value = vpu(scores, targets)
        # The floor moves each logarithm by less than 1e-9.
        assert float(value) == pytest.approx(2 * np.log(0.5) - np.log(0.75), abs=1e-9)
        value = vpu(scores, targets, gamma=2.0)
        assert float(value) == pytest.approx(0.5 * np.log(0.5) - np.log(0.75), abs=1e-9)


@pytest.mark.parametrize("options", OPTIONS)
def test_vpu_matches_a_loop_over_classes(options):
    scores, targets = multilabel_batch()
    # Below a temperature of 1e-6 the exponentials of the naive form overflow harmlessly.
    with x64(), np.errstate(over="ignore"):
        value = vpu(scores, targets, **options)
        expected = naive_vpu(scores, targets, options.get("gamma", 0), options.get("alpha"))
        np.testing.assert_allclose(value, expected, rtol=1e-12)


@pytest.mark.parametrize("options", OPTIONS[:-1])
def test_vpu_follows_the_gradient_with_factor_and_temperature_fixed(options):
    scores, targets = multilabel_batch(seed=1)
    temperature = temperatures(scores, options.get("alpha"))
    q = phi(scores / temperature)
    share, known = q.mean(0), targets == 1
    pushed = share ** options.get("gamma", 0) / (len(scores) * (share + 2 * EPSILON))
    pulled = known / (np.maximum(known.sum(0), 1) * (q + 2 * EPSILON))
    with x64():
        gradient = vpu_and_grad(scores, targets, **options)[1]
        np.testing.assert_allclose(
            gradient, q * (1 - q) / temperature * (pushed - pulled), rtol=1e-11, atol=1e-13
        )
        # A class without known positives is only pushed down.
        assert (gradient[:, -1] > 0).all()


def test_vpu_with_one_class_is_vpu_on_one_sample_data():
    scores, targets = multilabel_batch(classes=2)
    with x64():
        value = vpu(scores[:, :1], targets[:, :1])
        plain = risks.vpu(scores[:, 0], targets[:, 0] == 1, include_positives=True)
        # The floor changes each logarithm by 2e-10 / q.
        np.testing.assert_allclose(value, plain, atol=1e-8)


def test_the_floor_makes_a_hopeless_positive_constant():
    with x64():
        scores, targets = np.array([[-60.0], [0.0]]), np.array([[1], [0]])
        value, gradient = vpu_and_grad(scores, targets)
        assert float(value) == pytest.approx(np.log(0.25) - np.log(2e-10), rel=1e-9)
        assert abs(float(gradient[0, 0])) < 1e-15


def test_negatives_and_masked_entries_are_the_same_to_both_losses():
    scores, targets = multilabel_batch()
    mixed, permutation = scores[:3] / 2, np.array([2, 0, 1])
    for other in (0, -1):
        known = np.where(targets == 1, 1, other)
        np.testing.assert_array_equal(vpu(scores, known), vpu(scores, targets))
        np.testing.assert_array_equal(
            consistency(scores, known, mixed, permutation, 0.3),
            consistency(scores, targets, mixed, permutation, 0.3),
        )


def test_gamma_is_the_share_of_positives_that_are_hidden_beside_two_hidden_ones():
    with x64():
        found = gamma_of(np.array([[0.0, 0.1], [0.75, 1.0]]))
        np.testing.assert_allclose(found, [[1, 0.729], [0.015625, 0]], atol=1e-15)
    assert float(gamma_of(1)) == 0 and gamma_of(1).dtype == jnp.float32
    # One label of four is known: the push on a row is the geometric mean of 1, where a positive and
    # two others are hidden, and 1 / m.
    known, share = (True, False, False, False), 0.04
    pushes = [1 / share if any(three) else 1 for three in itertools.product(known, repeat=3)]
    gamma = float(gamma_of(0.25))
    assert share**gamma / share == pytest.approx(np.exp(np.mean(np.log(pushes))), rel=1e-6)
    for ratio in (-0.1, 1.1, np.nan, np.array([0.5, 2])):
        with pytest.raises(ValueError, match=r"known_ratio is .*, but must be in \[0, 1\]"):
            risks.multilabel_gamma(ratio)


def test_gamma_raises_the_least_of_the_risk_above_the_posterior_as_stated():
    posterior, gamma = np.array([0.9, 0.5, 0.2, 0.05]), 0.6
    targets = np.tile(np.arange(100), 4) < np.repeat(np.rint(100 * posterior), 100)
    share, mean = posterior.mean(), 0.5
    for _ in range(200):
        mean = np.minimum(1, mean ** (1 - gamma) * posterior / share).mean()
    q = np.minimum(1, mean ** (1 - gamma) * posterior / share)
    assert (q >= posterior).all() and (q < 1).sum() == 2
    with x64(), np.errstate(divide="ignore"):
        scores = np.repeat(np.minimum(np.log(q) - np.log1p(-q), 40), 100)
        slope = vpu_and_grad(scores[:, None], targets[:, None], gamma=gamma)[1]
        np.testing.assert_allclose(np.reshape(slope, (4, 100)).sum(1), 0, atol=1e-9)


def naive_known(scores, targets, shares):
    total = 0.0
    for row, c in np.ndindex(scores.shape):
        if targets[row, c]:
            q = phi(scores[row, c])
            total -= np.log(q if targets[row, c] == 1 else 1 - q) / shares[c] / len(scores)
    return total


def test_known_labels_match_a_loop_and_its_gradient_finite_differences():
    scores, targets = multilabel_batch(seed=3)
    shares = np.array([0.4, 0.05, 1.0])
    with x64():
        value, gradient = known_and_grad(scores, targets, positive_share=shares)
        np.testing.assert_allclose(value, naive_known(scores, targets, shares), rtol=1e-12)
    for row, c in np.ndindex(scores.shape):
        step = np.zeros(scores.shape)
        step[row, c] = 1e-6
        high, low = (naive_known(scores + sign * step, targets, shares) for sign in (1, -1))
        np.testing.assert_allclose(gradient[row, c], (high - low) / 2e-6, atol=1e-8)
    gradient = np.asarray(gradient)
    assert (gradient[targets == 0] == 0).all() and (gradient[targets == -1] > 0).all()
    assert known_of(np.zeros((0, 2)), np.zeros((0, 2)), positive_share=0.5) == 0


def test_known_labels_are_unbiased_over_all_ways_to_hide_them():
    scores, ratio, shares = np.array([[0.5, -1.0], [-2.0, 3.0]]), 0.3, np.array([0.5, 0.25])
    truth = np.array([[1, -1], [-1, -1]])
    masks = np.array(list(itertools.product((0, 1), repeat=4))).reshape(-1, 2, 2)
    chances = np.prod(np.where(masks, ratio, 1 - ratio), axis=(1, 2))
    with x64():
        values = jax.jit(
            jax.vmap(lambda m: risks.multilabel_known(scores, truth * m, positive_share=shares))
        )(masks)
        whole = np.log1p(np.exp(-truth * scores)).mean(0) / shares
        np.testing.assert_allclose(chances @ values, ratio * whole.sum(), rtol=1e-12)


def test_the_sum_with_the_variational_risk_is_least_at_the_posterior():
    # Four kinds of rows, equally many, of which these shares are positive; every label counts.
    posterior = np.array([0.9, 0.5, 0.2, 0.05])
    rows, counts = np.repeat(posterior, 100), np.repeat(np.rint(100 * posterior).astype(int), 100)
    targets = np.where(np.tile(np.arange(100), 4) < counts, 1, -1)[:, None]
    share = (targets == 1).mean()

    def loss(scores):
        whole = scores[:, None]
        known = risks.multilabel_known(whole, targets, positive_share=share)
        return risks.multilabel_vpu(whole, targets) + 0.3 * known

    with x64():
        best = np.log(rows) - np.log1p(-rows)
        slope = np.asarray(jax.jit(jax.grad(loss))(best)).reshape(4, 100).sum(1)
        np.testing.assert_allclose(slope, 0, atol=1e-9)
        moved = np.asarray(jax.jit(jax.grad(loss))(best + 0.1)).reshape(4, 100).sum(1)
        assert np.abs(moved).min() > 1e-4


def naive_consistency(scores, targets, mixed_scores, permutation, mix):
    batch, classes = scores.shape
    half = batch // 2
    total = 0.0
    for c in range(classes):
        soft = [
            1.0 if t == 1 else phi(s) + EPSILON
            for s, t in zip(scores[:, c], targets[:, c], strict=True)
        ]
        for i in range(half):
            target = mix * soft[permutation[i]] + (1 - mix) * soft[batch - half + i]
            gap = np.log(target + EPSILON) - np.log(phi(mixed_scores[i, c]) + EPSILON)
            total += gap**2 / half
    return total


@pytest.mark.parametrize("batch", [2, 6, 7])
def test_consistency_matches_a_loop_over_pairs(batch):
    scores, targets = multilabel_batch(batch=batch)
    rng = np.random.default_rng(batch)
    mixed, permutation = rng.normal(size=(batch // 2, 3)), rng.permutation(batch // 2)
    arguments = scores, targets, mixed, permutation, 0.3
    with x64():
        value = consistency(*arguments)
        np.testing.assert_allclose(value, naive_consistency(*arguments), rtol=1e-12)


def test_consistency_moves_both_passes_but_not_known_positives_or_the_middle_row():
    scores, targets = multilabel_batch(batch=5)
    permutation, mixed = np.array([1, 0]), np.array([[0.5, -1, 2], [1, 0, -3]])
    with x64():

        def loss(flat):
            first, second = flat[:15].reshape(5, 3), flat[15:].reshape(2, 3)
            return consistency(first, targets, second, permutation, 0.3)

        flat = np.concatenate([scores.ravel(), mixed.ravel()])
        gradient = jax.jit(jax.grad(loss))(flat)
        steps = 1e-6 * np.eye(flat.size)
        losses = jax.jit(jax.vmap(loss))
        slopes = (losses(flat + steps) - losses(flat - steps)) / 2e-6
        np.testing.assert_allclose(gradient, slopes, atol=2e-8)
        first = np.asarray(gradient[:15]).reshape(5, 3)
        fixed = (targets == 1) | (np.arange(5) == 2)[:, None]
        np.testing.assert_array_equal(first == 0, fixed)
        assert np.abs(gradient[15:]).min() > 1e-3


def test_detached_consistency_has_the_same_value_and_moves_the_second_pass_only():
    scores, targets = multilabel_batch(batch=5)
    permutation, mixed = np.array([1, 0]), np.array([[0.5, -1, 2], [1, 0, -3]])

    def loss(first, second, detach_targets):
        return risks.multilabel_mixup_consistency(
            first, targets, second, permutation, 0.3, detach_targets=detach_targets
        )

    compiled = jax.jit(jax.value_and_grad(loss, argnums=(0, 1)), static_argnums=2)
    with x64():
        value, (first, second) = compiled(scores, mixed, True)
        attached, (attached_first, attached_second) = compiled(scores, mixed, False)
        np.testing.assert_allclose(value, attached, rtol=1e-14)
        np.testing.assert_allclose(second, attached_second, rtol=1e-14)
        assert (first == 0).all() and np.abs(attached_first).max() > 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize("options", [{}, {"gamma": 0.85, "alpha": 2.0}])
def test_vpu_is_finite_on_awkward_batches(options):
    for batch in (0, 1, 4):
        for spread in (0.0, 1.0):
            scores = spread * np.linspace(-60, 60, 2 * batch).reshape(batch, 2) + (1 - spread)
            for targets in (np.zeros((batch, 2)), np.ones((batch, 2))):
                value, gradient = vpu_and_grad(scores, targets, **options)
                assert np.isfinite(value) and np.isfinite(gradient).all()
    assert vpu(np.zeros((0, 2)), np.zeros((0, 2)), **options) == 0


def test_equal_scores_get_the_smallest_temperature():
    with x64():
        scores, targets = np.full((4, 1), 3e-6), np.array([[1], [0], [0], [0]])
        gradient = vpu_and_grad(scores, targets, alpha=1.0)[1]
        q = phi(3.0)
        np.testing.assert_allclose(gradient[1], (1 - q) / 4 / 1e-6, rtol=1e-8)


def test_extreme_scores_are_exact_in_float32():
    scores = np.array([[60.0, -60], [-60, 60], [60, 15], [-15, -60]])
    targets = np.array([[1, 1], [1, 0], [0, 1], [0, 0]])
    second, permutation = scores[::-1][:2], np.array([1, 0])

    def both(s, second):
        mixup = risks.multilabel_mixup_consistency(s, targets, second, permutation, 0.25)
        return risks.multilabel_vpu(s, targets, gamma=0.5, alpha=1.0) + mixup

    compiled = jax.jit(jax.value_and_grad(both, argnums=(0, 1)))
    value, gradients = compiled(scores, second)
    with x64():
        exact, exact_gradients = compiled(scores, second)
    assert value.dtype == jnp.float32
    np.testing.assert_allclose(value, exact, rtol=1e-6)
    for found, expected in zip(gradients, exact_gradients, strict=True):
        # Slopes far below 1 next to sums of size 1 are exact to float32 of those sums.
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_compiled_mapped_low_precision_and_codings_agree():
    scores, targets = multilabel_batch(batch=6)
    mixed, permutation = scores[:3] / 2, np.array([2, 0, 1])

    def both(s, t, second, permutation, mix, gamma):
        mixup = risks.multilabel_mixup_consistency(s, t, second, permutation, mix)
        return risks.multilabel_vpu(s, t, gamma=gamma, alpha=1.0), mixup

    numbers = permutation, 0.3, 0.5
    compiled = jax.jit(both)
    expected = both(scores, targets, mixed, *numbers)
    for known in (targets == 1, (targets == 1).astype(np.uint8), 1.0 * (targets == 1)):
        np.testing.assert_array_equal(both(scores, known, mixed, *numbers), expected)
    np.testing.assert_allclose(compiled(scores, targets, mixed, *numbers), expected, rtol=1e-5)
    stacked = [np.stack([values, values]) for values in (scores, targets, mixed)]
    mapped = jax.jit(jax.vmap(both, in_axes=(0, 0, 0, None, None, None)))(*stacked, *numbers)
    np.testing.assert_allclose(mapped, [[v, v] for v in expected], rtol=1e-5)

    half = jnp.asarray(scores, jnp.bfloat16), jnp.asarray(mixed, jnp.bfloat16)
    values = compiled(half[0], targets, half[1], *numbers)
    full = compiled(half[0].astype(jnp.float32), targets, half[1].astype(jnp.float32), *numbers)
    assert all(value.dtype == jnp.float32 for value in values)
    np.testing.assert_array_equal(values, full)
    with x64():
        assert all(
            value.dtype == jnp.float64 for value in compiled(scores, targets, mixed, *numbers)
        )
        single = [jnp.asarray(values, jnp.float32) for values in (scores, mixed)]
        values = compiled(single[0], targets, single[1], *numbers)
        assert all(value.dtype == jnp.float32 for value in values)


def test_arguments_that_do_not_fit_are_named():
    scores, targets = np.zeros((4, 2)), np.zeros((4, 2))
    with pytest.raises(ValueError, match=r"positives has shape \(4, 1\).*\(4, 2\)"):
        risks.multilabel_vpu(scores, targets[:, :1])
    with pytest.raises(ValueError, match=r"scores has shape \(4,\).*\[batch, classes\]"):
        risks.multilabel_vpu(scores[:, 0], targets[:, 0])
    with pytest.raises(ValueError, match="positives holds the values 0, 2, .*-1/0/1"):
        risks.multilabel_vpu(scores, jnp.asarray([[2, 0]] + 3 * [[0, 0]]))

    with pytest.raises(ValueError, match=r"^known has shape \(4, 1\).*\(4, 2\)"):
        risks.multilabel_known(scores, targets[:, :1], positive_share=0.5)
    with pytest.raises(ValueError, match=r"^known holds the values 0, 2, .*-1/0/1"):
        risks.multilabel_known(scores, jnp.asarray([[2, 0]] + 3 * [[0, 0]]), positive_share=0.5)
    for share in (0.0, 1.5, np.nan, np.array([0.5, 0.0])):
        with pytest.raises(ValueError, match="positive_share is .*above 0 and at most 1"):
            risks.multilabel_known(scores, targets, positive_share=share)

    def mixup(rows, mixed_rows, permutation):
        mixed = np.zeros((mixed_rows, 2))
        return risks.multilabel_mixup_consistency(
            scores[:rows], targets[:rows], mixed, np.arange(permutation), 0.5
        )

    with pytest.raises(ValueError, match="1 rows, but must have 2 or more"):
        mixup(1, 0, 0)
    with pytest.raises(ValueError, match=r"mixed_scores has shape \(4, 2\).*\(2, 2\)"):
        mixup(4, 4, 2)
    with pytest.raises(ValueError, match=r"permutation has shape \(4,\).*\(2,\)"):
        mixup(4, 2, 4)

    for share in (np.full((4, 2), 0.5), np.full(4, 0.5), np.full(1, 0.5)):
        with pytest.raises(ValueError, match=r"positive_share has shape .*\(2,\)"):
            risks.multilabel_known(scores, targets, positive_share=share)
    consistency = functools.partial(
        risks.multilabel_mixup_consistency, scores, targets, np.zeros((2, 2))
    )
    with pytest.raises(ValueError, match=r"mix has shape \(2,\)"):
        consistency(np.arange(2), np.array([0.1, 0.9]))  # would be a share per class
    for mix in (2.0, -0.1, np.nan, "half"):
        with pytest.raises(ValueError, match=r"mix is .*in \[0, 1\]"):
            consistency(np.arange(2), mix)
    for rows in ([0, 2], [-1, 0]):
        with pytest.raises(ValueError, match="permutation is .*0 to 1"):
            consistency(np.array(rows), 0.5)
    with pytest.raises(ValueError, match="permutation has type float.*integers"):
        consistency(np.array([0.0, 1.0]), 0.5)
    for rows in (None, "abc", ["x", "y"], [[0], [0, 1]]):
        with pytest.raises(ValueError, match="permutation is .*; accepted: an array of real num"):
            consistency(rows, 0.5)
    for name in ("gamma", "alpha"):
        for value in (-1.0, np.nan, "much"):
            with pytest.raises(ValueError, match=f"{name} is .*0 or more"):
                risks.multilabel_vpu(scores, targets, **{name: value})


def test_a_class_that_nobody_can_belong_to_has_a_finite_gradient():
    scores = np.array([[-np.inf, 1.0], [-np.inf, -2.0]], np.float32)
    targets = np.array([[0, 1], [0, 0]])
    value, slope = jax.jit(jax.value_and_grad(risks.multilabel_vpu))(scores, targets)
    assert np.isfinite(value) and np.isfinite(slope).all()
    assert (slope[:, 0] == 0).all() and (slope[:, 1] != 0).all()
    assert np.isnan(risks.multilabel_vpu(np.where(targets, np.nan, scores), targets))


@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("sign", [1, -1])
def test_an_infinite_score_is_the_limit_of_large_ones_at_every_temperature(alpha, sign):
    def risk(score):
        scores = jnp.array([[score, 1.0], [0.0, -2.0], [0.3, 0.1]])
        targets = np.array([[sign > 0, 1], [0, 0], [0, 0]], int)
        return risks.multilabel_vpu(scores, targets, gamma=0.5, alpha=alpha)

    limit = float(risk(sign * 1e20))
    assert np.isfinite(limit)
    assert float(risk(sign * jnp.inf)) == pytest.approx(limit, rel=1e-6)


@pytest.mark.parametrize("name", ["gamma", "alpha"])
def test_the_derivative_by_a_number_is_that_of_the_value(name):
    """What is constant in the scores is none in the number that the user chose."""
    scores, targets = multilabel_batch(seed=4)
    options = {"gamma": 0.6, "alpha": 0.3}
    with x64():

        def risk(number, scores=scores):
            return risks.multilabel_vpu(scores, targets, **(options | {name: number}))

        at = options[name]
        slope = (risk(at + 1e-6) - risk(at - 1e-6)) / 2e-6
        assert abs(slope) > 1e-3
        np.testing.assert_allclose(jax.grad(risk)(at), slope, rtol=1e-7)
        infinite = scores.copy()
        infinite[0, 0] = np.inf
        assert np.isfinite(jax.grad(risk)(at, infinite))


@pytest.mark.parametrize("column", [[-3.0, -3.05, -2.98], [-3.0, -3.0, -3.0], [-90.0, -91.0, -90]])
def test_the_derivative_by_alpha_is_there_where_tempered_probabilities_round_to_0(column):
    """A class of nearly equal scores has a temperature near 0, and its factor rounds to 0."""
    scores = np.stack([column, [0.3, -0.2, 0.1]], axis=1)
    targets = np.array([[1, 0], [0, 1], [0, 0]])

    def risk(alpha, scores=scores):
        return risks.multilabel_vpu(scores, targets, gamma=0.85, alpha=alpha)

    with x64():
        slope = (risk(0.8 + 1e-6) - risk(0.8 - 1e-6)) / 2e-6
        np.testing.assert_allclose(jax.grad(risk)(0.8), slope, rtol=1e-5)
    found = jax.grad(risk)(0.8, scores.astype(np.float32))
    np.testing.assert_allclose(found, slope, rtol=1e-3)


def test_the_factor_is_that_of_its_logarithm_where_the_mean_rounds_to_0():
    scores = np.full([4, 1], -130, np.float32)
    found = risks.multilabel_vpu(scores, np.zeros([4, 1], int), gamma=0.1, alpha=None)
    # m = exp(-130), which float32 does not hold; log(m + 2 epsilon) is that of the rest.
    np.testing.assert_allclose(found, np.exp(-13) * np.log(2 * EPSILON), rtol=1e-6)
    at_zero = risks.multilabel_vpu(np.full([2, 1], -np.inf), np.zeros([2, 1], int), gamma=0.0)
    assert float(at_zero) == pytest.approx(np.log(2 * EPSILON))
