"""What all binary risks share: codes, compilation, awkward batches, extreme scores, precision.

Numbers of the surrogate losses and of the risks without a prior are at the top.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from tests.pu_batches import LN3, random_batch
from tests.x64 import x64

LOSSES = [risks.sigmoid_loss, risks.logistic_loss]
RISKS = {
    "naive": risks.naive,
    "cvir": lambda scores, labeled: risks.cvir(
        scores, labeled, kept=np.arange(np.size(labeled)) % 3 > 0
    ),
    "weighted_bce": functools.partial(risks.weighted_bce, positive_weight=3.0),
    "upu": functools.partial(risks.upu, prior=0.4),
    "nnpu": functools.partial(risks.nnpu, prior=0.4),
    "upu_logistic": functools.partial(risks.upu, prior=0.4, loss=risks.logistic_loss),
    "nnpu_logistic": functools.partial(risks.nnpu, prior=0.4, loss=risks.logistic_loss),
    "nnpu_clamped": functools.partial(risks.nnpu, prior=0.4, ascent=False),
    "imbalanced_nnpu": functools.partial(risks.imbalanced_nnpu, prior=0.1),
    "imbalanced_nnpu_clamped": functools.partial(risks.imbalanced_nnpu, prior=0.1, ascent=False),
    "vpu": risks.vpu,
    "vpu_one_sample": functools.partial(risks.vpu, include_positives=True),
    "dist_pu": functools.partial(risks.dist_pu, prior=0.4),
    "pulda": lambda scores, labeled: (
        risks.label_alignment(scores, labeled, prior=0.4)[0]
        + risks.two_way_margin(scores, labeled, prior=0.4)[0]
    ),
    "gradpu": functools.partial(risks.gradpu, beta=3.0),
    "gradpu_through": functools.partial(risks.gradpu, beta=3.0, stop_weight_gradient=False),
}
# There gradient and value differ by design; their own tests say how.
SPLIT = {"nnpu", "nnpu_logistic", "imbalanced_nnpu", "gradpu"}


def test_surrogate_losses_match_hand_values():
    with x64():
        margins = np.array([0.0, LN3, -LN3])
        np.testing.assert_allclose(risks.sigmoid_loss(margins), [0.5, 0.25, 0.75], rtol=1e-14)
        expected = np.log([2.0, 4 / 3, 4.0])
        np.testing.assert_allclose(risks.logistic_loss(margins), expected, rtol=1e-14)


def test_surrogate_losses_satisfy_their_symmetry():
    with x64():
        z = np.linspace(-8, 8, 33)
        sigmoid, logistic = (jax.jit(lambda z, of=of: (of(z), of(-z)))(z) for of in LOSSES)
        np.testing.assert_allclose(np.add(*sigmoid), 1, rtol=1e-14)
        np.testing.assert_allclose(np.subtract(*logistic), -z, atol=1e-14)


def test_risks_match_a_batch_worked_by_hand():
    # P scores ln 3 and 0: E_P l(g) = (1/4 + 1/2)/2 = 3/8 and E_P l(-g) = 5/8.
    # U scores -ln 3, -ln 3, ln 3, 0: E_U l(-g) = (1/4 + 1/4 + 3/4 + 1/2)/4 = 7/16.
    scores, labeled = np.array([LN3, 0, -LN3, -LN3, LN3, 0]), np.array([1, 1, 0, 0, 0, 0])

    def value(risk, **options):
        return float(jax.jit(functools.partial(risk, **options))(scores, labeled))

    with x64():
        parts = risks.pu_parts(scores, labeled, prior=0.4)
        assert float(parts.positive) == pytest.approx(0.4 * 3 / 8, abs=1e-14)
        assert float(parts.negative) == pytest.approx(7 / 16 - 0.4 * 5 / 8, abs=1e-14)
        assert value(risks.upu, prior=0.4) == pytest.approx(0.3375, abs=1e-14)
        assert value(risks.nnpu, prior=0.4) == pytest.approx(0.3375, abs=1e-14)
        naive = value(risks.naive, loss=risks.sigmoid_loss)
        assert naive == pytest.approx(3 / 8 + 7 / 16, abs=1e-14)
        # Logistic losses: P log(4/3) + log 2; U 2 log(4/3) + log 4 + log 2.
        positives = np.log(4 / 3) + np.log(2)
        unlabeled = 2 * np.log(4 / 3) + np.log(4) + np.log(2)
        bce = value(risks.weighted_bce, positive_weight=2.5)
        assert bce == pytest.approx((2.5 * positives + unlabeled) / 6, abs=1e-14)
        assert value(risks.naive) == pytest.approx(positives / 2 + unlabeled / 4, abs=1e-14)


def test_weighted_bce_weighs_single_examples():
    scores, labeled = np.zeros(3), np.array([1, 0, 0])
    risk = functools.partial(risks.weighted_bce, positive_weight=2.0)
    found = risk(scores, labeled, weights=np.array([1.0, 0.0, 4.0]))
    assert float(found) == pytest.approx((2 + 4) * np.log(2) / 3)
    with pytest.raises(ValueError, match="weights has shape"):
        risk(scores, labeled, weights=np.ones(2))


@pytest.mark.parametrize("name", sorted(set(RISKS) - SPLIT))
def test_gradient_is_the_derivative_of_the_value(name):
    scores, labeled = random_batch(seed=3)
    with x64():
        gradient = jax.jit(jax.grad(RISKS[name]))(scores, labeled)
        risk = jax.jit(jax.vmap(RISKS[name], in_axes=(0, None)))
        steps = 1e-6 * np.eye(scores.size)
        ends = np.asarray([risk(scores + steps, labeled), risk(scores - steps, labeled)])
        slopes = (ends[0] - ends[1]) / 2e-6
        # Central differences err by step^2 and by rounding / step, both below 1e-9.
        np.testing.assert_allclose(gradient, slopes, atol=1e-8)


@pytest.mark.parametrize(
    ("risk", "number"),
    [
        (functools.partial(risks.upu, prior=0.4), "unlabeled_prior"),
        (functools.partial(risks.upu, prior=0.4), "unlabeled_weight"),
        (risks.nnpu, "prior"),
        (functools.partial(risks.nnpu, prior=0.4), "gamma"),
        (risks.imbalanced_nnpu, "prior"),
        (risks.dist_pu, "prior"),
        (lambda *args, **wide: risks.label_alignment(*args, **wide)[0], "prior"),
        (lambda *args, **wide: risks.two_way_margin(*args, **wide)[0], "prior"),
        (lambda *args, **wide: risks.two_way_margin(*args, prior=0.4, **wide)[0], "margin"),
        (lambda *args, **wide: risks.two_way_margin(*args, prior=0.4, **wide)[0], "sharpness"),
        (risks.gradpu, "beta"),
    ],
)
def test_a_number_of_numpy_leaves_the_type_of_the_scores(risk, number):
    """A loop carries a risk of one type, and the prior of a data set is such a number."""
    scores, labeled = random_batch()
    with x64():
        scores = jnp.asarray(scores, jnp.float32)
        wide = risk(scores, labeled, **{number: np.float64(0.3)})
        assert wide.dtype == jnp.float32
        assert float(wide) == pytest.approx(float(risk(scores, labeled, **{number: 0.3})), rel=1e-6)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(RISKS))
def test_label_codings_compile_and_map_to_the_same_result(name):
    scores, labeled = random_batch()
    risk = RISKS[name]
    expected = risk(scores, labeled)
    for dtype in (bool, np.uint8, np.int8, np.int32, np.float32, jnp.bfloat16):
        np.testing.assert_array_equal(risk(scores, labeled.astype(dtype)), expected)
        np.testing.assert_array_equal(risk(scores, jnp.asarray(labeled, dtype)), expected)
    np.testing.assert_array_equal(risk(scores, 2 * labeled - 1), expected)
    # Compilation reorders sums: a few float32 roundings.
    np.testing.assert_allclose(jax.jit(risk)(scores, labeled), expected, rtol=1e-5)
    mapped = jax.jit(jax.vmap(risk))(np.stack([scores, -scores]), np.stack([labeled, labeled]))
    np.testing.assert_allclose(mapped, [expected, risk(-scores, labeled)], rtol=1e-5)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_batches_of_one_group_one_example_or_nothing_are_finite(name):
    both = jax.value_and_grad(RISKS[name])
    compiled = jax.jit(lambda batches: [both(*batch) for batch in batches])
    for code in (0, 1):
        sizes = (3, 1, 0)
        batches = [(np.linspace(-60, 60, size), np.full(size, code)) for size in sizes]
        for size, (value, gradient) in zip(sizes, compiled(batches), strict=True):
            assert np.isfinite(value) and np.isfinite(gradient).all(), (size, code)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_extreme_scores_are_exact_in_float32(name):
    compiled = jax.jit(jax.value_and_grad(RISKS[name]))
    for scores in ([60.0, -60, 60, -60], [15.0, 60, -60, -15], [-60.0, -15, 15, 60]):
        batch = np.array(scores), np.array([1, 1, 0, 0])
        value, gradient = compiled(*batch)
        assert value.dtype == jnp.float32
        with x64():
            exact, exact_gradient = compiled(*batch)
        # Exact to rounding, but for numbers that float32 cannot hold and for slopes of 1e-14 that
        # are the difference of two terms of 1e-8.
        np.testing.assert_allclose(value, exact, rtol=1e-6, atol=1e-40)
        np.testing.assert_allclose(gradient, exact_gradient, rtol=1e-5, atol=1e-14)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_bfloat16_scores_are_summed_in_float32(name):
    scores, labeled = random_batch()
    scores = np.asarray(scores, jnp.bfloat16)
    compiled = jax.jit(jax.value_and_grad(RISKS[name]))
    value, gradient = compiled(scores, labeled)
    assert value.dtype == jnp.float32 and gradient.dtype == jnp.bfloat16
    np.testing.assert_array_equal(value, compiled(scores.astype(np.float32), labeled)[0])
    assert all(loss(scores).dtype == jnp.float32 for loss in LOSSES)


@pytest.mark.parametrize("name", sorted(RISKS))
def test_mismatched_shapes_are_refused(name):
    with pytest.raises(ValueError, match=r"labeled has shape \(3,\).*\(3, 1\)"):
        RISKS[name](jnp.zeros((3, 1)), jnp.zeros(3))


@pytest.mark.parametrize("name", sorted(RISKS))
def test_precision_is_kept_in_both_modes(name):
    scores, labeled = random_batch()
    with x64():
        for dtype in (np.float32, np.float64):
            batch = np.asarray(scores, dtype), labeled
            value, gradient = jax.eval_shape(jax.value_and_grad(RISKS[name]), *batch)
            assert value.dtype == gradient.dtype == dtype


@pytest.mark.parametrize("name", sorted(RISKS))
def test_other_codes_are_refused_where_they_can_be_seen(name):
    risk, scores = RISKS[name], np.zeros(3)
    for codes, listed in (
        ([0, 1, 2], "0, 1, 2"),
        ([-1, 0, 1], "-1, 0, 1"),
        ([0.5, 0, 1], "0, 0.5, 1"),
    ):
        for labeled in (np.array(codes), jnp.array(codes)):
            with pytest.raises(
                ValueError, match=f"^labeled holds the values {listed}, .*0/1 or -1/1"
            ):
                risk(scores, labeled)
            with pytest.raises(ValueError, match="^labeled holds"):
                jax.jit(jax.grad(lambda g, labeled=labeled: risk(g, labeled)))(scores)
        assert jax.eval_shape(risk, scores, jnp.array(codes)).shape == ()


def test_sigmoid_loss_has_exact_slopes_of_any_order():
    z = np.array([-90.0, -15, -1, 0, 2, 15, 60, 80], np.float32)
    exact = np.exp(-np.abs(z), dtype=np.float64) / (1 + np.exp(-np.abs(z), dtype=np.float64)) ** 2
    slopes = jax.jit(jax.vmap(jax.grad(risks.sigmoid_loss)))(z)
    # Below the smallest normal number the exact slope may be flushed to 0.
    np.testing.assert_allclose(slopes, -exact, rtol=1e-6, atol=1.2e-38)
    curvature = jax.jit(jax.vmap(jax.grad(jax.grad(risks.sigmoid_loss))))(z)
    np.testing.assert_allclose(curvature, exact * np.tanh(z / 2), rtol=1e-6, atol=1.2e-38)


WEIGHTED = {
    "weighted_bce": functools.partial(risks.weighted_bce, positive_weight=2.0),
    "weighted_cross_entropy": risks.weighted_cross_entropy,
    "prediction_entropy": lambda scores, labeled, weights: risks.prediction_entropy(
        scores, weights=weights
    ),
}


@pytest.mark.parametrize("name", sorted(WEIGHTED))
def test_an_infinite_loss_without_weight_adds_nothing(name):
    scores, labeled, weights = np.array([1.0, -1, 0.5, 2]), np.array([1, 0, 0, 0]), np.ones(4)
    weights[3] = 0

    def risk(scores, weights):
        return WEIGHTED[name](scores, labeled, weights=weights)

    with x64():
        value, slopes = jax.value_and_grad(risk, argnums=(0, 1))(scores, weights)
        scores[3] = np.inf
        np.testing.assert_allclose(risk(scores, weights), value, rtol=1e-12)
        slope = jax.grad(risk)(scores, weights)
        np.testing.assert_allclose(slope[:3], slopes[0][:3], rtol=1e-12)
        assert slope[3] == 0
        scores[3] = np.nan
        assert np.isnan(risk(scores, weights))  # a fault, and not hidden


def test_the_derivative_by_a_weight_of_zero_is_the_loss_of_its_example():
    scores, labeled = np.array([1.0, -1.0]), np.array([1, 0])

    def risk(weights):
        return risks.weighted_bce(scores, labeled, positive_weight=1.0, weights=weights)

    slopes = jax.grad(risk)(np.array([1.0, 0.0]))
    np.testing.assert_allclose(slopes, np.log1p(np.exp([-1.0, -1.0])) / 2, rtol=1e-6)


def test_the_derivative_by_the_weight_of_positives_stays_finite_at_infinite_scores():
    scores, labeled = jnp.array([jnp.inf, -jnp.inf, 1.0]), np.array([1, 0, 1])

    def risk(weight):
        return risks.weighted_bce(scores, labeled, positive_weight=weight)

    value, slope = jax.value_and_grad(risk)(2.0)
    loss = np.log1p(np.exp(-1.0)) / 3  # of the third, the others have none
    assert float(value) == pytest.approx(2 * loss) and float(slope) == pytest.approx(loss)


S, L = np.array([1.0, -0.5, 0.3, 2.0]), np.array([1, 0, 1, 0])
KNOWN = np.array([[1, -1], [0, 1], [1, 0], [-1, -1]])


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda x: risks.upu(S, L, prior=x), "prior"),
        (lambda x: risks.nnpu(S, L, prior=0.4, unlabeled_prior=x), "unlabeled_prior"),
        (lambda x: risks.nnpu(S, L, prior=0.4, unlabeled_weight=x), "unlabeled_weight"),
        (lambda x: risks.nnpu(S, L, prior=0.4, beta=x), "beta"),
        (lambda x: risks.nnpu(S, L, prior=0.4, gamma=x), "gamma"),
        (lambda x: risks.imbalanced_nnpu(S, L, prior=0.4, target_prior=x), "target_prior"),
        (lambda x: risks.dist_pu(S, L, prior=x), "prior"),
        (lambda x: risks.label_alignment(S, L, prior=x)[0], "prior"),
        (lambda x: risks.two_way_sigmoid_loss(S, margin=x), "margin"),
        (lambda x: risks.gradpu(S, L, beta=x), "beta"),
        (lambda x: risks.weighted_bce(S, L, positive_weight=x), "positive_weight"),
        (lambda x: risks.lbe_propensity(S, S, L, epsilon=x), "epsilon"),
        (lambda x: risks.hardness(S, L, positive_temperature=x), "positive_temperature"),
        (lambda x: risks.partial_bce(S[:, None], L[:, None], gamma=x), "gamma"),
        (lambda x: risks.partial_bce(S[:, None], L[:, None], weight_at_tenth=x), "weight_at_tenth"),
        (lambda x: risks.multilabel_vpu(KNOWN * 1.0, KNOWN, gamma=x), "gamma"),
        (lambda x: risks.asymmetric(KNOWN * 1.0, KNOWN, gamma_negative=x), "gamma_negative"),
        (lambda x: risks.asymmetric(KNOWN * 1.0, KNOWN, clip=x), "clip"),
    ],
)
def test_a_number_of_another_shape_is_refused_also_where_it_is_traced(call, name):
    """`[batch, 1]` against `[batch]` is a matrix, whose sum would pass for a risk."""
    call(0.3)
    call(jnp.float32(0.3))
    for column in (np.full((4, 1), 0.3), jnp.full((4, 1), 0.3), np.full((1, 1), 0.3)):
        with pytest.raises(ValueError, match=rf"{name} has shape \(., 1\), but must be a single"):
            call(column)
        with pytest.raises(ValueError, match=rf"{name} has shape \(., 1\), but must be a single"):
            jax.jit(call)(column)


def test_numbers_with_one_entry_per_example_or_class_are_taken():
    weight = np.array([2.0, 7.0, 3.0, 7.0])
    found = risks.weighted_bce(S, L, positive_weight=weight)
    losses = np.log1p(np.exp(-np.where(L == 1, S, -S)))
    assert float(found) == pytest.approx((np.where(L == 1, weight, 1) * losses).mean())
    gamma, scores = np.array([0.2, 0.9]), KNOWN * 0.5
    by_class = [
        risks.multilabel_vpu(scores[:, [i]], KNOWN[:, [i]], gamma=gamma[i], alpha=None)
        for i in range(2)
    ]
    both = risks.multilabel_vpu(scores, KNOWN, gamma=gamma, alpha=None)
    assert float(both) == pytest.approx(float(sum(by_class)), rel=1e-5)


@pytest.mark.parametrize("value", ["2", None, np.nan, np.inf])
def test_factors_that_are_no_finite_numbers_are_named(value):
    with pytest.raises(ValueError, match="positive_weight is .*, but must be a finite number"):
        risks.weighted_bce(S, L, positive_weight=value)
    with pytest.raises(ValueError, match="weight_at_tenth is .*, but must be a finite number"):
        risks.partial_bce(S[:, None], L[:, None], weight_at_tenth=value)


def test_an_infinite_loss_of_a_positive_without_weight_adds_nothing():
    """As with a weight of its own: 0 where an infinite value has no weight."""
    without = risks.weighted_bce([-jnp.inf, 0.0], [1, 0], positive_weight=0.0)
    np.testing.assert_allclose(without, np.log(2) / 2, rtol=1e-6)
    each = risks.weighted_bce([-jnp.inf, 1.0, 0.0], [1, 1, 0], positive_weight=[0.0, 2.0, 1.0])
    np.testing.assert_allclose(each, (2 * np.log1p(np.exp(-1)) + np.log(2)) / 3, rtol=1e-6)


@pytest.mark.parametrize("name", RISKS)
@pytest.mark.parametrize("scores", [np.array([1 + 1j, 2]), ["x", "y"], [None, 1.0]])
def test_scores_that_are_no_real_numbers_are_named(name, scores):
    with pytest.raises(ValueError, match="scores is .*; accepted: an array of real numbers"):
        RISKS[name](scores, [1, 0])


def test_the_scores_of_the_propensity_are_named_as_its_argument():
    with pytest.raises(ValueError, match="^propensity_scores is None; accepted"):
        risks.lbe_propensity(None, [0.5], [1])
    with pytest.raises(ValueError, match="posterior has shape .* the shape of propensity_scores"):
        risks.lbe_propensity([0.5], [0.5, 0.5], [1])


@pytest.mark.parametrize("name", ["labeled", "prior", "beta"])
def test_rows_of_several_lengths_are_named(name):
    given = {"scores": [1.0, -1.0], "labeled": [1, 0], "prior": 0.4, name: [1, [0, 1]]}
    with pytest.raises(ValueError, match=rf"{name} is \[1, \[0, 1\]\]; accepted: rows of one"):
        risks.nnpu(**given)


WITH_LOSS = {
    "naive": risks.naive,
    "cvir": functools.partial(risks.cvir, kept=[False, True]),
    "cvir_of_samples": functools.partial(risks.cvir_of_samples, kept=[False, True]),
    "upu": functools.partial(risks.upu, prior=0.4),
    "nnpu": functools.partial(risks.nnpu, prior=0.4),
    "imbalanced_nnpu": functools.partial(risks.imbalanced_nnpu, prior=0.4),
}


@pytest.mark.parametrize("name", WITH_LOSS)
def test_a_loss_that_is_not_elementwise_is_refused(name):
    """Its values would broadcast into the masks: a mean to itself, a column to a matrix."""
    call = functools.partial(WITH_LOSS[name], [1.0, -1.0], [1, 0])
    for wrong in (lambda m: jnp.mean(jnp.exp(-m)), lambda m: jnp.exp(-m)[:, None]):
        with pytest.raises(ValueError, match=r"the shape of loss is .*; accepted: .*\(2,\), since"):
            call(loss=wrong)
        with pytest.raises(ValueError, match="the shape of loss is"):
            jax.eval_shape(functools.partial(call, loss=wrong))
    with pytest.raises(ValueError, match="loss is 'logistic'; accepted: a function of the margin"):
        call(loss="logistic")


@pytest.mark.parametrize("name", WITH_LOSS)
def test_the_mean_of_a_loss_in_low_precision_is_taken_in_full_precision(name):
    """In bfloat16 the mean of 1003 losses has three digits, and its count is rounded, too."""
    scores, labeled = np.random.default_rng(0).normal(size=1003), np.arange(1003) < 302
    second = scores if name == "cvir_of_samples" else labeled
    options = {"kept": ~labeled} if name.startswith("cvir") else {}
    risk = functools.partial(WITH_LOSS[name], scores, second, **options)

    def low(margin):
        return risks.logistic_loss(margin).astype(jnp.bfloat16)

    found = risk(loss=low)
    assert found.dtype == jnp.float32
    assert found == risk(loss=lambda margin: low(margin).astype(jnp.float32))


@pytest.mark.parametrize("kept", [None, ["x", "y"], [1j, 0], [[True], [False, True]]])
@pytest.mark.parametrize("risk", [risks.cvir, risks.cvir_of_samples])
def test_what_is_kept_must_be_numbers(risk, kept):
    with pytest.raises(ValueError, match="kept is .*; accepted: an array of real numbers"):
        risk([1.0, -1.0], [1, 0], kept=kept)


@pytest.mark.parametrize(
    "call, said",
    [
        (functools.partial(risks.gradpu, beta=1.0, stop_weight_gradient="False"), "stop_weight"),
        (functools.partial(risks.vpu, include_positives="False"), "include_positives is 'False'"),
        (functools.partial(risks.nnpu, prior=0.4, loss="logistic"), "loss is 'logistic'; acc"),
    ],
)
def test_words_in_place_of_switches_and_losses_are_refused(call, said):
    """A word is true, whatever it says."""
    with pytest.raises(ValueError, match=said):
        call([1.0, -1.0], [1, 0])
