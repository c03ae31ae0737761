"""Conversions between priors and the label frequency: by hand, from counts, and back."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.priors import conversions

COUNTS = {"n_p": 100, "n_u": 300}


def test_hand_worked_numbers_tell_shares_of_labelled_and_of_unlabeled_apart():
    # 100 labelled, 300 unlabeled of which 60 are positive: 160 positives, 400 in all.
    assert conversions.label_frequency_from_unlabeled_prior(0.2, **COUNTS) == 100 / 160
    assert conversions.unlabeled_prior_from_label_frequency(100 / 160, **COUNTS) == pytest.approx(
        0.2, rel=1e-15
    )
    assert conversions.population_prior(0.2, **COUNTS) == 160 / 400
    assert conversions.unlabeled_prior(160 / 400, **COUNTS) == pytest.approx(0.2, rel=1e-15)


@pytest.mark.parametrize("n_p, n_u", [(1, 1), (10, 1000), (1000, 10), (200, 300)])
def test_counted_pools_agree_with_every_conversion(n_p, n_u):
    for in_u in {0, n_u // 3, n_u}:
        prior, positives = in_u / n_u, n_p + in_u
        counts = {"n_p": n_p, "n_u": n_u}
        frequency = conversions.label_frequency_from_unlabeled_prior(prior, **counts)
        assert frequency == pytest.approx(n_p / positives, rel=1e-14)
        pool = conversions.population_prior(prior, **counts)
        assert pool == pytest.approx(positives / (n_p + n_u), rel=1e-14)
        # The pool's prior is also n_p / (c n).
        assert pool == pytest.approx(n_p / (frequency * (n_p + n_u)), rel=1e-14)


@pytest.mark.parametrize("n_p, n_u", [(1, 7), (10, 1000), (1000, 10)])
def test_each_is_the_inverse_of_the_other(n_p, n_u):
    counts = {"n_p": n_p, "n_u": n_u}
    for prior in np.linspace(0, 1, 21).tolist():
        frequency = conversions.label_frequency_from_unlabeled_prior(prior, **counts)
        back = conversions.unlabeled_prior_from_label_frequency(frequency, **counts)
        assert back == pytest.approx(prior, abs=1e-13 * n_p)
        pool = conversions.population_prior(prior, **counts)
        assert conversions.unlabeled_prior(pool, **counts) == pytest.approx(prior, abs=1e-12)


def test_a_label_frequency_too_small_for_the_counts_gives_a_prior_of_one():
    assert conversions.unlabeled_prior_from_label_frequency(0.25, **COUNTS) == 1
    assert conversions.unlabeled_prior_from_label_frequency(0.01, **COUNTS) == 1
    assert conversions.unlabeled_prior_from_label_frequency(1.0, **COUNTS) == 0


def test_wrong_arguments_are_named():
    to_frequency = conversions.label_frequency_from_unlabeled_prior
    to_prior = conversions.unlabeled_prior_from_label_frequency
    for function in (to_frequency, to_prior, conversions.population_prior):
        for bad in (-0.1, 1.1, float("nan")):
            with pytest.raises(ValueError, match=rf"(prior|label_frequency) is {bad}; accepted"):
                function(bad, **COUNTS)
        with pytest.raises(ValueError, match="n_p is 0; accepted"):
            function(0.5, n_p=0, n_u=300)
        with pytest.raises(ValueError, match="n_p is inf; accepted"):
            function(0.5, n_p=float("inf"), n_u=300)
        with pytest.raises(ValueError, match="n_u is 0; accepted"):
            function(0.5, n_p=100, n_u=0)
    with pytest.raises(ValueError, match=r"label_frequency is 0; accepted: a number in \(0, 1\]"):
        to_prior(0, **COUNTS)
    for wrong in ("half", None):
        with pytest.raises(ValueError, match="prior is .*; accepted: a number in"):
            conversions.population_prior(wrong, **COUNTS)
        with pytest.raises(ValueError, match="population is .*; accepted: a number from 0.25"):
            conversions.unlabeled_prior(wrong, **COUNTS)
    with pytest.raises(ValueError, match=r"population is 0.2; .*from 0.25, .*100 of 400, to 1"):
        conversions.unlabeled_prior(0.2, **COUNTS)
    with pytest.raises(ValueError, match="population is nan"):
        conversions.unlabeled_prior(float("nan"), **COUNTS)


def test_rounding_at_the_least_possible_population_prior_is_forgiven():
    for n_p, n_u in ((1, 2), (7, 93), (12345, 54321)):
        least = conversions.population_prior(0.0, n_p=n_p, n_u=n_u)
        below = np.nextafter(least, 0)
        assert conversions.unlabeled_prior(below, n_p=n_p, n_u=n_u) == pytest.approx(0, abs=1e-12)


def test_numbers_may_be_arrays_without_axes():
    for one in (np.asarray, jnp.asarray):
        assert float(conversions.unlabeled_prior(one(0.5), n_p=one(10), n_u=one(30))) == (
            pytest.approx(conversions.unlabeled_prior(0.5, n_p=10, n_u=30), rel=1e-6)
        )


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_counts_are_not_rounded_to_the_type_of_the_number(dtype):
    n_p, n_u = 100_000, 6_000_000  # more than float16 has
    prior = dtype(0.3)
    frequency = conversions.label_frequency_from_unlabeled_prior(prior, n_p=n_p, n_u=n_u)
    exact = n_p / (n_p + float(prior) * n_u)
    np.testing.assert_allclose(float(frequency), exact, rtol=1e-6)
    population = conversions.population_prior(prior, n_p=n_p, n_u=n_u)
    np.testing.assert_allclose(
        float(population), (n_p + float(prior) * n_u) / (n_p + n_u), rtol=1e-6
    )
    for half in (np.float16(0.5), np.array(0.5, np.float16)):
        back = conversions.unlabeled_prior(half, n_p=n_p, n_u=n_u)
        np.testing.assert_allclose(back, (0.5 * (n_p + n_u) - n_p) / n_u, rtol=1e-6)
    share = conversions.unlabeled_prior_from_label_frequency(dtype(0.5), n_p=n_p, n_u=n_u)
    np.testing.assert_allclose(float(share), n_p / n_u, rtol=1e-6)


def test_a_learned_prior_goes_through_the_conversions():
    """The population's is linear in that of U, slope n_u / (n_p + n_u); the inverse undoes it."""
    there = functools.partial(conversions.population_prior, **COUNTS)
    back = functools.partial(conversions.unlabeled_prior, **COUNTS)
    slope = COUNTS["n_u"] / sum(COUNTS.values())
    value, found = jax.jit(jax.value_and_grad(there))(0.2)
    np.testing.assert_allclose([value, found], [there(0.2), slope], rtol=1e-6)
    np.testing.assert_allclose(jax.jit(lambda x: back(there(x)))(0.2), 0.2, rtol=1e-6)
    frequency = functools.partial(conversions.label_frequency_from_unlabeled_prior, **COUNTS)
    prior = functools.partial(conversions.unlabeled_prior_from_label_frequency, **COUNTS)
    np.testing.assert_allclose(jax.jit(lambda x: prior(frequency(x)))(0.2), 0.2, rtol=1e-6)
    assert jax.jit(prior)(1e-3) == 1
