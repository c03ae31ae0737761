"""Dist-PU: hand-worked numbers, its histogram form, the kink; the clipped entropy."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from tests.pu_batches import LN3, random_batch
from tests.x64 import x64

dist_pu = jax.jit(risks.dist_pu)
dist_pu_and_grad = jax.jit(jax.value_and_grad(risks.dist_pu))
entropy_of = jax.jit(risks.prediction_entropy)
entropy_and_grad = jax.jit(jax.value_and_grad(risks.prediction_entropy))


def histogram_distance(p, target_share):
    """Mean absolute difference of a two-bin triangular histogram and the target shares."""
    bins = np.array([0.0, 1.0])
    mass = np.maximum(0, 1 - np.abs(p[:, None] - bins))
    shares = mass.sum(0) / mass.sum()
    return np.mean(np.abs(shares - [1 - target_share, target_share]))


def test_dist_pu_matches_a_batch_worked_by_hand():
    # p is 3/4 on P and 1/4, 1/4, 1/2 on U, of mean 1/3.
    scores, labeled = np.array([LN3, -LN3, -LN3, 0.0]), np.array([1, 0, 0, 0])
    with x64():
        value, gradient = dist_pu_and_grad(scores, labeled, prior=0.4)
        assert float(value) == pytest.approx(1 / 4 + (0.4 - 1 / 3) / 0.8, abs=1e-14)
        # Too few predicted positives in U: raise them, with slope p (1 - p) / (3 * 0.8).
        expected = [-3 / 16, -3 / 16 / 2.4, -3 / 16 / 2.4, -1 / 4 / 2.4]
        np.testing.assert_allclose(gradient, expected, rtol=1e-13)
        value, gradient = dist_pu_and_grad(scores, labeled, prior=0.2)
        assert float(value) == pytest.approx(1 / 4 + (1 / 3 - 0.2) / 0.4, abs=1e-14)
        assert (gradient[1:] > 0).all()


@pytest.mark.parametrize("prior", [0.1, 0.4, 0.9])
def test_dist_pu_is_a_distance_of_histograms(prior):
    scores, labeled = random_batch(seed=5)
    p = 1 / (1 + np.exp(-scores))
    expected = histogram_distance(p[labeled == 1], 1.0)
    expected += histogram_distance(p[labeled == 0], prior) / (2 * prior)
    with x64():
        value = dist_pu(scores, labeled, prior=prior)
        np.testing.assert_allclose(value, expected, rtol=1e-13)


def test_dist_pu_at_the_kink_leaves_the_unlabeled_alone():
    with x64():
        scores, labeled = np.array([0.0, 0.0, 0.0]), np.array([1, 0, 0])
        value, gradient = dist_pu_and_grad(scores, labeled, prior=0.5)
        assert float(value) == 0.5
        np.testing.assert_array_equal(gradient, [-0.25, 0, 0])


def test_dist_pu_drops_the_term_of_a_missing_group():
    with x64():
        scores = np.array([0.0, LN3])
        assert float(dist_pu(scores, np.ones(2), prior=0.4)) == pytest.approx(3 / 8)
        only_unlabeled = dist_pu(scores, np.zeros(2), prior=0.5)
        assert float(only_unlabeled) == pytest.approx(1 / 8)
        assert float(dist_pu(np.zeros(0), np.zeros(0), prior=0.4)) == 0
        gradient = dist_pu_and_grad(scores, np.ones(2), prior=0.4)[1]
        np.testing.assert_allclose(gradient, [-1 / 8, -3 / 32], rtol=1e-13)


def test_entropy_matches_hand_values_and_its_slope():
    with x64():
        assert float(entropy_of(np.zeros(3))) == pytest.approx(np.log(2))
        # p = 3/4: log 4 - (3/4) log 3.
        expected = np.log(4) - 0.75 * np.log(3)
        value, gradient = entropy_and_grad(np.array([LN3, -LN3]))
        assert float(value) == pytest.approx(expected, abs=1e-14)
        np.testing.assert_allclose(gradient, [-LN3 * 3 / 32, LN3 * 3 / 32], rtol=1e-13)


def test_entropy_matches_its_definition_with_any_weights():
    scores, labeled = random_batch(seed=6)
    p = 1 / (1 + np.exp(-scores))
    entropies = -p * np.log(p) - (1 - p) * np.log(1 - p)
    with x64():
        everyone = entropy_of(scores)
        np.testing.assert_allclose(everyone, entropies.mean(), rtol=1e-12)
        for unlabeled in (labeled == 0, 1 - labeled, 1.0 - labeled):
            value = entropy_of(scores, weights=unlabeled)
            np.testing.assert_allclose(value, entropies[labeled == 0].mean(), rtol=1e-12)
        weights = np.arange(12)
        value = entropy_of(scores, weights=weights)
        np.testing.assert_allclose(value, np.average(entropies, weights=weights), rtol=1e-12)


def test_entropy_clips_scores_at_ten():
    assert risks.ENTROPY_CLIP == 10
    with x64():
        p = 1 / (1 + np.exp(-10.0))
        floor = -p * np.log(p) - (1 - p) * np.log(1 - p)
        entropy = jax.jit(jax.vmap(lambda score: risks.prediction_entropy(score[None])))
        scores = np.array([10.0, -10, 11, -60, 60])
        np.testing.assert_allclose(entropy(scores), floor, rtol=1e-11)
        slopes = jax.grad(lambda scores: entropy(scores).sum())(scores)
        # At the clip itself the whole slope passes, beyond it none.
        expected = [-10 * p * (1 - p), 10 * p * (1 - p), 0, 0, 0]
        np.testing.assert_allclose(slopes, expected, rtol=1e-11)


def test_entropy_without_weight_compiled_mapped_and_in_low_precision():
    for size in (0, 1, 3):
        value, gradient = entropy_and_grad(np.linspace(-60, 60, size), weights=np.zeros(size))
        assert value == 0 and (gradient == 0).all()
    assert entropy_of(np.zeros(0)) == 0
    scores = random_batch()[0]
    mapped = jax.jit(jax.vmap(risks.prediction_entropy))(scores.reshape(3, 4))
    np.testing.assert_allclose(mapped.mean(), entropy_of(scores), rtol=1e-6)
    half = jnp.asarray(scores, jnp.bfloat16)
    value = entropy_of(half, weights=np.ones(12, jnp.bfloat16))
    assert value.dtype == jnp.float32
    assert value == entropy_of(half.astype(jnp.float32), weights=np.ones(12))
    with pytest.raises(ValueError, match=r"weights has shape \(2,\).*\(3,\)"):
        risks.prediction_entropy(np.zeros(3), weights=np.ones(2))
