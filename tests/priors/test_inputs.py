"""What every estimator shares: number types, keys, whole numbers, and honest intervals."""

import functools
import tracemalloc
import warnings

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from pujax import priors
from pujax.priors import PriorEstimate, base

ON_FEATURES = ("km2", "tice", "pen_l1", "pearson", "held_out", "ted_n")
ON_SCORES = ("best_bin", "elkan_noto", "alphamax")
FEW_EPOCHS = {"num_warmup_epochs": np.int64(2), "num_epochs": np.int32(2), "hidden": (np.int64(8),)}


def samples(dim=2):
    """Multiples of 1/8 in the unit box, which bfloat16 holds exactly."""
    rng = np.random.default_rng(0)
    p, u = rng.integers(4, 8, (24, dim)), rng.integers(0, 8, (36, dim))
    return p / 8, u / 8


def estimator(name):
    function = getattr(priors, name)
    return functools.partial(function, **FEW_EPOCHS) if name == "ted_n" else function


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16, np.float32])
@pytest.mark.parametrize("name", [*ON_FEATURES, *ON_SCORES])
def test_half_precision_is_taken_for_the_numbers_that_it_holds(name, dtype):
    p, u = samples()
    if name in ON_SCORES:
        p, u = p[:, 0], u[:, 0]
    run = functools.partial(estimator(name), num_resamples=2)
    assert run(jnp.asarray(p, dtype), u.astype(dtype)) == run(p, u)


def test_what_is_no_number_is_still_refused():
    _, u = samples()
    for values, dtype in (
        (np.array([["a"], ["b"]]), "<U1"),
        (np.ones((2, 2)) + 1j, "complex128"),
        (np.zeros(3, "V2"), r"\|V2"),
        (np.zeros(3, "m8[s]"), "timedelta64"),
        (np.array([None, 1.0]), "object"),
    ):
        with pytest.raises(ValueError, match=f"positives has dtype {dtype}.*accepted: real num"):
            priors.pen_l1(values, u)
    assert np.dtype(ml_dtypes.bfloat16).kind == "V"


@pytest.mark.parametrize("name", ON_FEATURES)
def test_whole_numbers_of_numpy_are_whole_numbers(name):
    p, u = samples()
    run = estimator(name)
    expected = run(p, u, num_resamples=2, key=3)
    assert run(p, u, num_resamples=np.int64(2), key=np.int64(3)) == expected
    assert run(p, u, num_resamples=np.uint8(2), key=jnp.int32(3)) == expected


def test_counts_of_numpy_are_counts():
    p, u = samples()
    options = {"num_folds": np.int64(4), "max_splits": np.int16(9)}
    assert priors.tice(p, u, **options) == priors.tice(p, u, num_folds=4, max_splits=9)
    scores = p[:, 0], u[:, 0]
    assert priors.alphamax(*scores, num_bins=np.int64(5)) == priors.alphamax(*scores, num_bins=5)
    for number in (True, np.True_, 2.0, np.float64(2), "2", None, np.array([2])):
        with pytest.raises(ValueError, match="num_folds is .*; accepted: a whole number from 2"):
            priors.tice(p, u, num_folds=number)


def test_keys_of_every_kind_and_nothing_else():
    draw = lambda key: base.generator(key).integers(2**31)  # noqa: E731
    assert draw(None) == draw(0) == draw(np.int64(0)) == draw(np.uint32(0)) == draw(np.array(0))
    assert draw(1) == draw(np.int64(1)) == draw(jnp.int32(1)) != draw(0)
    assert draw(jax.random.key(5)) == draw(jax.random.PRNGKey(5)) != draw(jax.random.key(6))
    assert draw(np.asarray(jax.random.PRNGKey(5))) == draw(jax.random.key(5))
    for key in (1.5, -1, np.int64(-3), "a", True, np.array([1, 2]), np.float64(1)):
        with pytest.raises(ValueError, match="key is .*; accepted: a whole number from 0, a JAX"):
            base.generator(key)
    with pytest.raises(ValueError, match="key is "):
        base.generator(jax.random.split(jax.random.key(0), 2))
    with pytest.raises(ValueError, match="key is -1"):
        priors.estimate(*samples(), key=-1)


def test_intervals_are_quantiles_of_what_can_be():
    found = base.with_interval(0.4, np.linspace(0.2, 0.6, 101), level=0.9)
    assert found == pytest.approx((0.4, 0.22, 0.58))
    # Nothing rules out 1 where a resample says nothing, and more than 1 is 1.
    for strange in (np.nan, np.inf, 7.0):
        found = base.with_interval(0.4, [0.3] * 8 + [strange] * 2, level=0.9)
        assert found == pytest.approx((0.4, 0.3, 1.0))
    found = base.with_interval(0.4, [-np.inf, 0.3, 0.5], level=0.99)
    assert found.low == pytest.approx(0, abs=0.01) and found.high < 0.5


def test_an_interval_moves_with_its_value_unless_it_is_everything():
    found = base.moved(PriorEstimate(0.4, 0.3, 0.6), 0.5)
    assert found == pytest.approx((0.5, 0.4, 0.7))
    found = base.moved(PriorEstimate(0.4, 0.3, 0.6), 0.9)
    assert found == pytest.approx((0.9, 0.8, 1.0))
    assert base.moved(base.ANYTHING, 0.4) == (0.4, 0, 1)
    assert base.moved(PriorEstimate(0.5, 0.0, 1.0), 0.2) == (0.2, 0, 1)


def test_a_magnitude_is_a_power_of_two_beside_the_largest_number():
    for number in (1.0, 3.0, 0.7, 1e308, 1.7e308, 5e-324, 1e-310):
        found = base.magnitude(np.array([number / 4, -number]))
        assert np.frexp(found)[0] == 0.5 and 1 <= number / found < 2
    found = base.magnitude(np.array([[1.0, 0.0, 6.0], [-5.0, 0.0, 2.0]]), axis=0)
    np.testing.assert_array_equal(found, [4, 0.5, 4])


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["km2", "pen_l1", "pearson", "ted_n", "best_bin"])
def test_the_unit_of_features_does_not_matter_to_what_standardises_them(method):
    p, u = samples()
    p, u = p * [1, 1e6], u * [1, 1e6]
    run = functools.partial(priors.estimate, method=method, num_resamples=0)
    value = run(p, u).value
    assert run(p * 2.0**900, u * 2.0**900).value == value
    assert run(p * 2.0**-900, u * 2.0**-900).value == value


def test_an_interval_that_begins_at_0_or_ends_at_1_still_does_so_when_it_is_moved():
    assert base.moved(PriorEstimate(0.1, 0.0, 0.2), 0.15) == (0.15, 0, pytest.approx(0.25))
    assert base.moved(PriorEstimate(0.85, 0.6, 1.0), 0.7) == (0.7, pytest.approx(0.45), 1)


def test_the_greatest_answer_of_km_stands_for_all_that_is_more():
    half, largest = 7 / 1024, 8.0
    answers = [1 - 1 / (largest - k * half) for k in (1, 3)]  # the last one, and the one before
    top, below = (
        base.with_brackets(PriorEstimate(0.5, 0.4, high), half, largest) for high in answers
    )
    assert top.high == 1
    assert below.high == pytest.approx(1 - 1 / (largest - 2 * half), abs=1e-12)
    assert top.low == below.low == pytest.approx(1 - 1 / (1 / 0.6 - half), abs=1e-12)


@pytest.mark.parametrize(
    "bad", [np.ma.masked_equal([[1.0], [-999.0]], -999.0), [[1.0], [1.0, 2.0]], [["a"], [1.0, 2]]]
)
def test_what_is_no_array_of_numbers_is_named(bad):
    with pytest.raises(ValueError, match="^positives is (a masked|no) array.*accepted: "):
        priors.tice(bad, np.ones([5, 1]))


@pytest.mark.parametrize("bad", [np.array(0.9 + 1j), np.array("a"), np.array(None)])
def test_a_share_is_real(bad):
    with pytest.raises(ValueError, match="^prior is .*accepted: "):
        priors.population_prior(bad, n_p=10, n_u=20)


def test_numbers_whose_range_overflows_give_tice_what_small_ones_do():
    rng = np.random.default_rng(0)
    p = rng.normal(2, 1, [200, 2])
    u = np.concatenate([rng.normal(2, 1, [120, 2]), rng.normal(-2, 1, [280, 2])])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert priors.tice(2e307 * p, 2e307 * u).value == pytest.approx(priors.tice(p, u).value)


@pytest.mark.parametrize(
    "name, fields",
    [
        ("best_bin", ("delta", "gamma", "num_resamples", "level")),
        ("alphamax", ("num_bins", "num_resamples", "level")),
        ("elkan_noto", ("estimator", "level")),
        ("km", ("epsilon", "lambda_max")),
        ("km2", ("epsilon", "lambda_max")),
        ("distance_curve", ("lambdas",)),
        ("tice", ("folds", "delta", "cuts", "max_splits", "num_folds")),
        ("pen_l1", ("centers", "sigma", "ridge")),
        ("pearson", ("centers", "sigma", "ridge")),
        ("ted_n", ("learning_rate", "momentum", "weight_decay", "hidden", "network")),
        ("out_of_bag_scores", ("learning_rate", "hidden", "batch_size")),
        ("held_out", ("estimator",)),
        ("estimate", ("method", "num_resamples")),
    ],
)
def test_a_setting_that_is_not_of_its_kind_is_named(name, fields):
    p, u = samples()
    if name in ON_SCORES:
        p, u = p[:, 0], u[:, 0]
    for field in fields:
        for value in ("x", [[1], [2, 3]], {"a": 1}, 1j, object(), np.array([3.0, 2.0])):
            if field in ("centers", "lambdas") and isinstance(value, np.ndarray):
                continue  # one centre of two features, and two factors
            with pytest.raises(ValueError, match=f"^{field}.*accepted: "):
                getattr(priors, name)(p, u, **{field: value})


def test_the_name_of_an_estimate_is_a_text():
    estimates = {"best_bin": PriorEstimate(0.3, 0.2, 0.4)}
    with pytest.raises(ValueError, match=r"first is \['best_bin'\]; accepted"):
        priors.consensus(estimates, first=["best_bin"])


@pytest.mark.parametrize("name", [*ON_FEATURES, *ON_SCORES])
def test_a_traced_sample_is_refused_by_name(name):
    """Estimators run on the host: what `jit` or `grad` hands over has no numbers there."""
    p, u = samples()
    if name in ON_SCORES:
        p, u = p[:, 0], u[:, 0]
    with pytest.raises(ValueError, match="positive.* accepted: .* not traced: .* on the host"):
        jax.eval_shape(estimator(name), p, u)


@pytest.mark.parametrize("name", [*ON_FEATURES, *ON_SCORES])
def test_rows_of_several_lengths_are_refused_by_name(name):
    with pytest.raises(ValueError, match="^(scores_)?positives? is no array .*; accepted: "):
        estimator(name)([[1.0, 2.0], [3.0]], [[1.0, 2.0]] * 5)


@pytest.mark.parametrize("name", [*ON_FEATURES, *ON_SCORES])
def test_double_precision_is_not_copied_and_not_changed(name):
    p, u = samples()
    given = (p[:, 0], u[:, 0]) if name in ON_SCORES else (p, u)
    before = [sample.copy() for sample in given]
    estimator(name)(*given, num_resamples=2)
    for now, then in zip(given, before, strict=True):
        np.testing.assert_array_equal(now, then)
    assert all(map(np.shares_memory, base.samples(p, u), (p, u)))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("num_features", [1, 2, 127, 128, 200])
def test_features_standardised_some_at_a_time_have_the_bits_of_all_at_once(num_features, order):
    rng = np.random.default_rng(0)
    p, u = (np.array(rng.normal(3, 9, (n, num_features)), order=order) for n in (300, 501))
    p[:, 0] = u[:, 0] = 0.1
    both = np.concatenate([p, u])
    both /= base.magnitude(both, axis=0)
    scale = both.std(0)
    expected = (both - both.mean(0)) / np.where(scale > 0, scale, 1)
    np.testing.assert_array_equal(base.standardised(p, u, np.float64), expected)
    np.testing.assert_array_equal(base.standardised(p, u, np.float32), expected.astype(np.float32))


def test_many_features_take_twice_their_memory_in_double_precision_at_most():
    rng = np.random.default_rng(0)
    p, u = (rng.integers(0, 256, (n, 800), np.uint8) for n in (800, 801))
    few = {"num_networks": 2, "hidden": (2,), "max_steps": 1, "look_every": 1, "num_resamples": 0}
    out_of_bag = functools.partial(priors.out_of_bag, **few)
    pearson = functools.partial(priors.estimate, method="pearson", num_resamples=0)
    for run in (out_of_bag, pearson):
        run(p[:8, :60], u[:9, :60])  # imports
        run(p, u)  # compiles
        tracemalloc.start()
        run(p, u)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 2.5 * 8 * (p.size + u.size)


def test_the_same_points_in_another_order_are_the_same():
    p, _ = samples(3)
    assert base.points(p, p[::-1])[2]
    crossed = p.copy()
    crossed[:, 1] = np.sort(crossed[:, 1])  # every feature as before, but other points
    assert not base.points(p, crossed)[2]
