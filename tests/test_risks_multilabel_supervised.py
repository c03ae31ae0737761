"""Comparison losses of many labels: hand numbers, loops, slopes, awkward batches, precision."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from tests.pu_batches import LN3
from tests.x64 import x64

LOSSES = {
    "assume_negative_bce": risks.assume_negative_bce,
    "partial_bce": risks.partial_bce,
    "partial_bce_mean": functools.partial(risks.partial_bce, gamma=-1.0, weight_at_tenth=10.0),
    "asymmetric": risks.asymmetric,
    "asymmetric_through": functools.partial(risks.asymmetric, stop_weight_gradient=False),
    "asymmetric_ignore": functools.partial(risks.asymmetric, unknown="ignore"),
    "asymmetric_plain": functools.partial(
        risks.asymmetric, gamma_negative=0.0, gamma_positive=0.0, clip=0.0
    ),
}
each_loss = pytest.mark.parametrize("name", LOSSES)


def batch_of(seed=0, batch=6, classes=5):
    """Scores and codes; the first example is known completely, the second not at all."""
    rng = np.random.default_rng(seed)
    known = rng.integers(-1, 2, size=(batch, classes))
    known[0], known[1] = np.where(known[0] == 0, -1, known[0]), 0
    return 2 * rng.normal(size=(batch, classes)), known


def phi(scores):
    return 1 / (1 + np.exp(-scores))


def entries(known):
    return [(i, c) for i in range(known.shape[0]) for c in range(known.shape[1])]


def naive_assume_negative(scores, known):
    total = 0.0
    for i, c in entries(known):
        p = phi(scores[i, c])
        total -= np.log(p) if known[i, c] == 1 else np.log(1 - p)
    return total / known.size


def naive_partial(scores, known, gamma=1.0, weight_at_tenth=5.0):
    # g(p) = a p^gamma + b with g(1) = 1 and g(0.1) given.
    a, b = np.linalg.solve([[1, 1], [0.1**gamma, 1]], [1, weight_at_tenth])
    total = 0.0
    for scores_of, known_of in zip(scores, known, strict=True):
        share = np.mean(known_of != 0)
        for score, code in zip(scores_of, known_of, strict=True):
            if code != 0:
                total -= (a * share**gamma + b) * np.log(phi(code * score)) / known.shape[1]
    return total / known.shape[0]


def naive_asymmetric(
    scores,
    known,
    gamma_negative=4.0,
    gamma_positive=1.0,
    clip=0.05,
    unknown="negative",
    weight_scores=None,
):
    """The loss entry by entry; `weight_scores` are what the focusing weights are computed from."""
    weight_scores = scores if weight_scores is None else weight_scores
    total = 0.0
    for i, c in entries(known):
        p, q = phi(scores[i, c]), phi(weight_scores[i, c])
        if known[i, c] == 1:
            total -= (1 - q) ** gamma_positive * np.log(max(p, 1e-8))
        elif known[i, c] == -1 or unknown == "negative":
            shifted = max(p - clip, 0)
            total -= max(q - clip, 0) ** gamma_negative * np.log(max(1 - shifted, 1e-8))
    return total


def test_losses_match_a_batch_worked_by_hand():
    asymmetric = jax.jit(risks.asymmetric, static_argnames="unknown")
    # p = 3/4, 1/4 and 1/2: a known positive, a known negative, an unknown.
    scores, known = np.array([[LN3, -LN3, 0.0]]), np.array([[1, -1, 0]])
    quarter = -np.log(0.75)
    with x64():
        value = jax.jit(risks.assume_negative_bce)(scores, known)
        assert float(value) == pytest.approx((2 * quarter + np.log(2)) / 3, rel=1e-14)
        # Two of three labels known: g = -40/9 * 2/3 + 49/9 = 67/27.
        value = jax.jit(risks.partial_bce)(scores, known)
        assert float(value) == pytest.approx(67 / 27 * 2 * quarter / 3, rel=1e-14)
        value = asymmetric(
            scores, known, gamma_negative=2.0, gamma_positive=1.0, clip=0.05, unknown="ignore"
        )
        expected = 0.25 * quarter - 0.2**2 * np.log(0.8)
        assert float(value) == pytest.approx(expected, rel=1e-14)
        value = asymmetric(scores, known, gamma_negative=2.0)
        expected -= 0.45**2 * np.log(0.55)
        assert float(value) == pytest.approx(expected, rel=1e-14)


def test_assume_negative_and_partial_bce_match_loops():
    scores, known = batch_of()
    partial = jax.jit(risks.partial_bce)
    with x64():
        value = risks.assume_negative_bce(scores, known)
        np.testing.assert_allclose(value, naive_assume_negative(scores, known), rtol=1e-13)
        for options in ({}, {"gamma": 0.5, "weight_at_tenth": 3.0}, {"weight_at_tenth": 5.005}):
            value = partial(scores, known, **options)
            np.testing.assert_allclose(value, naive_partial(scores, known, **options), rtol=1e-13)


@pytest.mark.parametrize("unknown", ["negative", "ignore"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"gamma_positive": 0.0},
        {"gamma_negative": 2.0, "gamma_positive": 0.5, "clip": 0.3},
        {"gamma_negative": 0.0, "gamma_positive": 0.0, "clip": 0.0},
    ],
)
def test_asymmetric_matches_a_loop_and_its_slopes(unknown, options):
    scores, known = batch_of(seed=1)
    options = options | {"unknown": unknown}
    with x64():
        flat, steps = scores.ravel(), 1e-6 * np.eye(scores.size)
        for stop in (True, False):

            def loss(flat, stop=stop):
                s = flat.reshape(scores.shape)
                return risks.asymmetric(s, known, stop_weight_gradient=stop, **options)

            def naive(flat, stop=stop):
                s, fixed = flat.reshape(scores.shape), scores if stop else None
                return naive_asymmetric(s, known, weight_scores=fixed, **options)

            value, gradient = jax.jit(jax.value_and_grad(loss))(flat)
            np.testing.assert_allclose(value, naive(flat), rtol=1e-13)
            slopes = [(naive(flat + step) - naive(flat - step)) / 2e-6 for step in steps]
            np.testing.assert_allclose(gradient, slopes, atol=2e-8)


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize(
    ("name", "value"), [("gamma_negative", 4.0), ("gamma_positive", 0.7), ("clip", 0.05)]
)
def test_asymmetric_is_differentiated_by_its_numbers(name, value, stop):
    """What is constant in the scores is none in the number that the user chose."""
    scores, known = batch_of(seed=2)
    with x64():

        def loss(number):
            return risks.asymmetric(scores, known, stop_weight_gradient=stop, **{name: number})

        slope = (loss(value + 1e-6) - loss(value - 1e-6)) / 2e-6
        assert abs(slope) > 1e-3
        np.testing.assert_allclose(jax.grad(loss)(value), slope, rtol=1e-6)


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("gamma", [1.0, 4.0])
def test_asymmetric_is_differentiated_by_a_clip_of_0(gamma, stop):
    """From where a learned clip may start: by the side that is accepted."""
    scores, known = batch_of(seed=2)
    with x64():

        def loss(clip):
            numbers = {"gamma_negative": gamma, "stop_weight_gradient": stop}
            return risks.asymmetric(scores, known, clip=clip, **numbers)

        first, second, third = (loss(step) for step in (0.0, 1e-6, 2e-6))
        slope = (4 * second - 3 * first - third) / 2e-6
        assert abs(slope) > 1e-3
        np.testing.assert_allclose(jax.grad(loss)(0.0), slope, rtol=1e-5)
        np.testing.assert_allclose(jax.grad(loss)(1e-9), slope, rtol=1e-5)


@pytest.mark.parametrize("name", ["assume_negative_bce", "partial_bce", "partial_bce_mean"])
def test_cross_entropies_follow_their_slopes(name):
    scores, known = batch_of(seed=2)
    with x64():

        def loss(flat):
            return LOSSES[name](flat.reshape(scores.shape), known)

        flat, steps = scores.ravel(), 1e-6 * np.eye(scores.size)
        slopes = jax.jit(jax.vmap(lambda d: (loss(flat + d) - loss(flat - d)) / 2e-6))(steps)
        np.testing.assert_allclose(jax.jit(jax.grad(loss))(flat), slopes, atol=1e-9)


def test_losses_agree_where_all_labels_are_known():
    scores, known = batch_of(seed=3)
    known = np.where(known == 0, -1, known)
    partial = jax.jit(risks.partial_bce)
    with x64():
        expected = jax.jit(risks.assume_negative_bce)(scores, known)
        for gamma in (1.0, 0.5, -1.0):
            value = partial(scores, known, gamma=gamma, weight_at_tenth=7.0)
            np.testing.assert_allclose(value, expected, rtol=1e-13)
        plain = jax.jit(LOSSES["asymmetric_plain"])(scores, known)
        np.testing.assert_allclose(plain / scores.size, expected, rtol=1e-13)


def test_partial_bce_goes_over_into_the_logarithm_of_the_share():
    """With gamma near 0 the weight is linear in log p: 1 at all labels, 5 at a tenth of them."""
    scores, known = jnp.array([[1.0, -1.0], [2.0, 0.0]]), jnp.array([[1, 0], [1, -1]])
    half = 1 + 4 * math.log(0.5) / math.log(0.1)
    losses = np.log1p(np.exp([-1.0])).sum() * half, np.log1p(np.exp([-2.0, 0.0])).sum()
    for gamma in (1e-7, -1e-7, jnp.float32(1e-7)):
        value = risks.partial_bce(scores, known, gamma=gamma)
        np.testing.assert_allclose(value, sum(losses) / 4, rtol=1e-5)


def test_partial_bce_can_be_the_mean_over_known_labels():
    scores, known = batch_of(seed=4)
    losses = np.where(known != 0, -np.log(phi(known * scores)), 0)
    counts = np.maximum(np.sum(known != 0, axis=1), 1)
    with x64():
        value = jax.jit(LOSSES["partial_bce_mean"])(scores, known)
        np.testing.assert_allclose(value, np.mean(losses.sum(1) / counts), rtol=1e-13)
        value = jax.jit(risks.partial_bce)(scores, known, weight_at_tenth=1.0)
        np.testing.assert_allclose(value, np.mean(losses), rtol=1e-13)


def test_which_labels_each_loss_looks_at():
    scores, known = batch_of(seed=5)
    unknown, negative = known == 0, known == -1
    for name, loss in LOSSES.items():
        compiled = jax.jit(jax.value_and_grad(loss))
        value, gradient = map(np.asarray, compiled(scores, known))
        assert (gradient[known == 1] < 0).all()
        if name.startswith("partial") or name == "asymmetric_ignore":
            assert (gradient[unknown] == 0).all() and (gradient[1] == 0).all()
        else:
            far = unknown & (phi(scores) > 0.06)
            assert (gradient[far] > 0).all()
            same, _ = compiled(scores, np.where(negative, 0, known))
            np.testing.assert_array_equal(same, value)


def test_asymmetric_forgets_easy_negatives_and_hopeless_positives():
    scores, known = np.array([[-3.0, -20.0]]), np.array([[-1, 1]])
    for stop in (True, False):
        loss = functools.partial(risks.asymmetric, gamma_positive=0.0, stop_weight_gradient=stop)
        value, gradient = jax.jit(jax.value_and_grad(loss))(scores, known)
        # sigmoid(-3) = 0.047 is below the clip; the floor is log(1e8) = 18.42.
        np.testing.assert_allclose(value, 18.420681, rtol=1e-6)
        np.testing.assert_array_equal(gradient, [[0, 0]])


def test_focusing_exponents_below_one_keep_slopes_finite():
    scores, known = np.array([[-60.0, -5, 60, 60]]), np.array([[0, -1, 1, -1]])
    loss = functools.partial(
        risks.asymmetric, gamma_negative=0.5, gamma_positive=0.5, stop_weight_gradient=False
    )
    assert np.isfinite(jax.jit(jax.grad(loss))(scores, known)).all()


@pytest.mark.parametrize(
    ("known", "numbers"),
    [
        (1, {"gamma_positive": 0.0}),
        (1, {"gamma_positive": 0.5}),
        (1, {"gamma_positive": 2.0}),
        (-1, {"gamma_negative": 0.0, "clip": 0.0}),
        (-1, {"gamma_negative": 0.5, "clip": 0.0}),
        (-1, {"gamma_negative": 4.0}),
    ],
)
def test_second_derivatives_by_the_scores_are_finite_and_exact(known, numbers):
    """A meta-gradient has them. Far out they are those of float64, where no power overflows."""
    loss = functools.partial(risks.asymmetric, stop_weight_gradient=False, **numbers)

    def second(scores):
        value = lambda s: loss(s[None, None], jnp.full([1, 1], known))  # noqa: E731
        return jax.jit(jax.vmap(jax.grad(jax.grad(value))))(scores)

    far = known * np.array([0.3, 5.0, 12.0, 45.0, 60.0, 80.0, 200.0, 1e4])
    found = second(jnp.asarray(far, jnp.float32))
    assert np.isfinite(found).all()
    with x64():
        wanted = second(jnp.asarray(far))
        middle = jnp.asarray(far[:2])
        step = 1e-4
        value = lambda s: loss(s[:, None], jnp.full([2, 1], known))  # noqa: E731
        slope = jax.grad(value)
        differences = (slope(middle + step) - slope(middle - step)) / (2 * step)
        np.testing.assert_allclose(second(middle), differences, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(found, wanted, rtol=1e-3, atol=1e-6)


@each_loss
def test_order_of_rows_and_classes_does_not_matter(name):
    scores, known = batch_of(seed=6)
    rng = np.random.default_rng(7)
    rows, columns = rng.permutation(6), rng.permutation(5)
    loss = jax.jit(LOSSES[name])
    with x64():
        moved = loss(scores[rows][:, columns], known[rows][:, columns])
        np.testing.assert_allclose(moved, loss(scores, known), rtol=1e-13)


@each_loss
def test_extreme_scores_are_exact_in_float32(name):
    scores = np.array([[60.0, -60, 15], [-60, 60, -15], [60, -60, 5], [1, 2, 3]])
    known = np.array([[1, 1, 1], [-1, -1, -1], [0, 0, 0], [1, -1, 0]])
    compiled = jax.jit(jax.value_and_grad(LOSSES[name]))
    value, gradient = compiled(scores, known)
    assert value.dtype == jnp.float32 and np.isfinite(gradient).all()
    with x64():
        exact, exact_gradient = compiled(scores, known)
    np.testing.assert_allclose(value, exact, rtol=2e-6)
    np.testing.assert_allclose(gradient, exact_gradient, rtol=2e-5, atol=1e-7)


@each_loss
def test_awkward_batches_are_finite(name):
    both = jax.value_and_grad(LOSSES[name])
    compiled = jax.jit(lambda batches: [both(*batch) for batch in batches])
    for code in (-1, 0, 1):
        for score in (0.0, 60.0, -60.0):
            shapes = ((0, 2), (2, 0), (1, 1), (3, 2))
            found = compiled([(np.full(shape, score), np.full(shape, code)) for shape in shapes])
            for value, gradient in found:
                assert np.isfinite(value) and np.isfinite(gradient).all()
            assert found[0][0] == 0  # without rows


@pytest.mark.thorough
@each_loss
def test_compiled_mapped_low_precision_and_codings_agree(name):
    loss = jax.jit(LOSSES[name])
    scores, known = batch_of(seed=8)
    expected = LOSSES[name](scores, known)
    np.testing.assert_allclose(loss(scores, known), expected, rtol=1e-6)
    np.testing.assert_allclose(loss(scores, known.astype(np.int8)), expected, rtol=1e-6)
    positive = loss(scores, known == 1)
    np.testing.assert_allclose(positive, loss(scores, 1 * (known == 1)), rtol=1e-6)
    mapped = jax.jit(jax.vmap(loss))(np.stack([scores, -scores]), np.stack([known, known]))
    np.testing.assert_allclose(mapped, [expected, loss(-scores, known)], rtol=1e-6)
    half = jnp.asarray(scores, jnp.bfloat16)
    value = loss(half, known)
    assert value.dtype == jnp.float32
    np.testing.assert_array_equal(value, loss(np.asarray(half, np.float32), known))
    with x64():
        assert loss(scores, known).dtype == jnp.float64
        assert loss(scores.astype(np.float32), known).dtype == jnp.float32


def test_options_may_be_traced():
    scores, known = batch_of(seed=9)
    partial = jax.jit(lambda g, w: risks.partial_bce(scores, known, gamma=g, weight_at_tenth=w))
    with x64():
        np.testing.assert_allclose(
            partial(0.5, 3.0), naive_partial(scores, known, 0.5, 3.0), rtol=1e-13
        )
        asymmetric = jax.jit(
            lambda n, p, c: risks.asymmetric(
                scores, known, gamma_negative=n, gamma_positive=p, clip=c
            )
        )
        for options in ((2.0, 0.0, 0.1), (4.0, 1.0, 0.0)):
            expected = naive_asymmetric(scores, known, *options)
            np.testing.assert_allclose(asymmetric(*options), expected, rtol=1e-13)


@each_loss
def test_arrays_that_do_not_fit_are_named(name):
    scores, known = np.zeros((4, 2)), np.zeros((4, 2))
    with pytest.raises(ValueError, match=r"known has shape \(4, 1\).*\(4, 2\)"):
        LOSSES[name](scores, known[:, :1])
    with pytest.raises(ValueError, match=r"scores has shape \(4,\).*\[batch, classes\]"):
        LOSSES[name](scores[:, 0], known[:, 0])
    with pytest.raises(ValueError, match="known holds the values 0, 2, .*-1/0/1"):
        LOSSES[name](scores, jnp.asarray([[2, 0]] + 3 * [[0, 0]]))


def test_options_out_of_range_are_named():
    scores, known = np.zeros((4, 2)), np.zeros((4, 2))
    for gamma in (0.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="gamma is .*other than 0"):
            risks.partial_bce(scores, known, gamma=gamma)
    for name in ("gamma_negative", "gamma_positive"):
        with pytest.raises(ValueError, match=f"{name} is -1.*0 or more"):
            risks.asymmetric(scores, known, **{name: -1.0})
    for clip in (-0.1, 1.0, float("nan")):
        with pytest.raises(ValueError, match="clip is .*below 1"):
            risks.asymmetric(scores, known, clip=clip)
    with pytest.raises(ValueError, match="unknown is 'positive'; accepted: 'negative', 'ignore'"):
        risks.asymmetric(scores, known, unknown="positive")
    with pytest.raises(ValueError, match=r"unknown is array\(.*; accepted: 'negative', 'ignore'"):
        risks.asymmetric(scores, known, unknown=np.array(["negative", "ignore"]))
