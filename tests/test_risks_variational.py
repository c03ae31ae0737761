"""VPU: hand-worked numbers, the naive definition, empty groups, and undetached targets."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from tests.pu_batches import LN3, random_batch
from tests.x64 import x64

vpu = jax.jit(risks.vpu, static_argnames="include_positives")
vpu_and_grad = jax.jit(jax.value_and_grad(risks.vpu))
mixup = jax.jit(risks.vpu_mixup)


def phi(scores):
    return 1 / (1 + np.exp(-scores))


def test_vpu_matches_a_batch_worked_by_hand():
    # Phi is 3/4 on P, and 1/4, 1/2 and 3/4 on U.
    scores, labeled = np.array([LN3, -LN3, 0.0, LN3]), np.array([1, 0, 0, 0])
    with x64():
        value, gradient = vpu_and_grad(scores, labeled)
        assert float(value) == pytest.approx(np.log(1 / 2) - np.log(3 / 4), abs=1e-14)
        # On P -(1 - Phi); on U Phi (1 - Phi) / sum Phi.
        expected = [-1 / 4, 3 / 16 / 1.5, 1 / 4 / 1.5, 3 / 16 / 1.5]
        np.testing.assert_allclose(gradient, expected, rtol=1e-13)
        everyone = vpu(scores, labeled, include_positives=True)
        assert float(everyone) == pytest.approx(np.log(9 / 16) - np.log(3 / 4), abs=1e-14)


@pytest.mark.parametrize("shift", [-25.0, -3.0, 0.0, 3.0, 25.0])
def test_vpu_matches_its_definition_on_either_side_of_one_half(shift):
    scores, labeled = random_batch(seed=2)
    scores = scores + shift
    with x64():
        for include_positives in (False, True):
            value = vpu(scores, labeled, include_positives=include_positives)
            population = phi(scores[(labeled == 0) | include_positives])
            expected = np.log(np.mean(population)) - np.mean(np.log(phi(scores[labeled == 1])))
            # The naive form cancels digits where Phi is near 1.
            np.testing.assert_allclose(value, expected, rtol=1e-10, atol=1e-15)


def test_vpu_gains_from_a_common_factor_only_up_to_saturation():
    # The risk does not see a factor of Phi: shifting very low scores changes nothing.
    scores, labeled = random_batch()
    with x64():
        low, lower = (vpu(scores - shift, labeled) for shift in (50, 58))
        np.testing.assert_allclose(low, lower, rtol=1e-12)


def test_vpu_of_scores_near_saturation_keeps_its_digits_in_float32():
    scores, labeled = np.array([10.0, 12, 14, 11]), np.array([1, 0, 0, 0])
    with x64():
        exact, exact_gradient = vpu_and_grad(scores, labeled)
    value, gradient = vpu_and_grad(scores.astype(np.float32), labeled)
    # Both terms are of size 5e-5; a sum of exponentials would be 1e-7 off, 1 in 500.
    np.testing.assert_allclose(value, exact, rtol=1e-5)
    np.testing.assert_allclose(gradient, exact_gradient, rtol=1e-5)


def test_a_missing_group_of_vpu_adds_nothing():
    with x64():
        scores = np.array([LN3, -LN3])
        no_positives = vpu(scores, np.zeros(2))
        assert float(no_positives) == pytest.approx(np.log(1 / 2), abs=1e-15)
        no_unlabeled = vpu(scores, np.ones(2))
        assert float(no_unlabeled) == pytest.approx(-np.log(3 / 16) / 2, abs=1e-15)
        assert float(vpu(np.zeros(0), np.zeros(0))) == 0


def test_mixup_matches_a_batch_worked_by_hand():
    # Phi is 3/4 and 1/2, targets 1/4 and 1/2: only the first differs, by log 3.
    scores, targets = np.array([LN3, 0.0]), np.array([0.25, 0.5])
    with x64():
        both = jax.jit(jax.value_and_grad(risks.vpu_mixup, argnums=(0, 1)))
        value, gradients = both(scores, targets)
        assert float(value) == pytest.approx(np.log(3) ** 2 / 2, abs=1e-14)
        gap = np.log(1 / 3)
        np.testing.assert_allclose(gradients[0], [-gap / 4, 0], rtol=1e-13, atol=1e-15)
        np.testing.assert_allclose(gradients[1], [gap / 0.25, 0], rtol=1e-13, atol=1e-15)


def test_mixup_moves_the_network_through_its_targets_too():
    scores, _ = random_batch(seed=4)
    mixed = np.roll(scores, 1)
    with x64():

        def loss(g):
            return risks.vpu_mixup(mixed, 0.7 * jax.nn.sigmoid(g) + 0.3)

        gradient = jax.jit(jax.grad(loss))(scores)
        steps = 1e-6 * np.eye(scores.size)
        losses = jax.jit(jax.vmap(loss))
        slopes = (losses(scores + steps) - losses(scores - steps)) / 2e-6
        np.testing.assert_allclose(gradient, slopes, atol=1e-9)
        assert np.abs(gradient).max() > 1e-2


def test_mixup_is_finite_at_extremes_and_without_examples():
    mixed = np.array([60.0, -60, 60, -60, -60])
    targets = np.array([1.0, 1, 1e-26, 0, 1e-26])
    compiled = jax.jit(jax.value_and_grad(risks.vpu_mixup, argnums=(0, 1)))
    value, gradients = compiled(mixed, targets)
    assert value.dtype == jnp.float32
    assert all(np.isfinite(part).all() for part in (value, *gradients))
    assert compiled(mixed[:2], targets[:2])[0] == pytest.approx(60**2 / 2, rel=1e-6)
    assert compiled(np.zeros(0), np.zeros(0))[0] == 0


def test_mixup_maps_computes_bfloat16_in_float32_and_refuses_other_shapes():
    scores, targets = random_batch()[0], np.linspace(0.05, 1, 12)
    half = [jnp.asarray(values, jnp.bfloat16) for values in (scores, targets)]
    full = [values.astype(jnp.float32) for values in half]
    assert mixup(*half).dtype == jnp.float32
    assert mixup(*half) == mixup(*full)
    mapped = jax.jit(jax.vmap(risks.vpu_mixup))(scores.reshape(3, 4), targets.reshape(3, 4))
    np.testing.assert_allclose(mapped.mean(), mixup(scores, targets), rtol=1e-6)
    with pytest.raises(ValueError, match=r"targets has shape \(3,\).*\(4,\)"):
        risks.vpu_mixup(np.zeros(4), np.ones(3))
