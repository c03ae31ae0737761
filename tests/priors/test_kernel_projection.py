"""The nearest point of a hull: brute force, closed forms, another algorithm, its certificate."""

import itertools

import numpy as np
import pytest
from scipy import optimize

from pujax.priors import _hull_projection, _interior_point
from tests.priors.naive_hull import distance_by_nnls


def gaussian(points, width):
    squares = ((points[:, None] - points[None]) ** 2).sum(-1)
    return np.exp(-squares / (2 * width**2))


def case(dim, size=120, seed=0, overlap=2.0):
    """A kernel of nearly the rank that `dim` says, and targets as KM has them."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(size, dim))
    num_unlabeled = 2 * size // 3
    points[: num_unlabeled // 2, 0] += overlap
    points[num_unlabeled:, 0] += overlap
    is_unlabeled = np.arange(size) < num_unlabeled
    positive, unlabeled = ~is_unlabeled / (size - num_unlabeled), is_unlabeled / num_unlabeled
    kernel = gaussian(points, 0.7 * np.sqrt(2 * dim))
    return kernel, lambda value: value * unlabeled + (1 - value) * positive


def by_enumeration(kernel, target):
    """The least distance over all supports: on the best one the sign constraints do not bind."""
    size, best = len(target), np.inf
    for count in range(1, size + 1):
        for support in itertools.combinations(range(size), count):
            index = list(support)
            system = np.ones((count + 1, count + 1))
            system[:count, :count], system[-1, -1] = kernel[np.ix_(index, index)], 0
            inner = np.linalg.solve(system, np.append((kernel @ target)[index], 1))[:-1]
            if (inner >= 0).all():
                weights = np.zeros(size)
                weights[index] = inner
                best = min(best, (weights - target) @ kernel @ (weights - target))
    return np.sqrt(best)


@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_best_of_all_supports(seed):
    rng = np.random.default_rng(seed)
    kernel, target = gaussian(rng.normal(size=(7, 2)), 0.8), rng.normal(size=7)
    target += (1 - target.sum()) / 7
    found = _hull_projection.Projector(kernel).project(target)
    assert found.distance == pytest.approx(by_enumeration(kernel, target), abs=1e-9)


@pytest.mark.parametrize("value", [0.7, 1.0, 3.0])
def test_orthonormal_points_give_the_projection_on_the_simplex(value):
    target = value * np.random.default_rng(0).normal(size=60)
    # The Euclidean projection shifts all coordinates by one number and clips.
    shift = optimize.brentq(lambda s: np.maximum(target - s, 0).sum() - 1, -9, 9, xtol=1e-15)
    found = _hull_projection.Projector(np.eye(60)).project(target)
    np.testing.assert_allclose(found.weights, np.maximum(target - shift, 0), atol=1e-9)


# One and two features have low rank; four make pivoting cycle; thirty have full rank.
@pytest.mark.parametrize("dim", [1, 2, 4, 30])
@pytest.mark.parametrize("value", [1.05, 1.3, 2.0, 5.0])
def test_distances_equal_those_of_non_negative_least_squares(dim, value):
    kernel, target = case(dim)
    found = _hull_projection.Projector(kernel).project(target(value))
    assert found.distance == pytest.approx(distance_by_nnls(kernel, target(value)), abs=2e-7)
    assert found.error < (1e-8 if found.distance > 1e-4 else 3e-7)
    assert found.weights.min() >= 0 and found.weights.sum() == pytest.approx(1, abs=1e-12)


def test_a_point_of_the_hull_is_its_own_projection():
    for dim in (1, 4, 30):
        kernel, target = case(dim)
        found = _hull_projection.Projector(kernel).project(target(1.0))
        assert found.distance < 1e-7


@pytest.mark.parametrize("dim", [2, 4, 30])
def test_the_order_of_the_targets_does_not_matter(dim):
    kernel, target = case(dim)
    values = (1.05, 4.5, 1.2, 2.75, 1.4, 8.0)
    warm = _hull_projection.Projector(kernel)
    for value in values:
        cold = _hull_projection.Projector(kernel).project(target(value)).distance
        assert warm.project(target(value)).distance == pytest.approx(cold, abs=1e-8), value


@pytest.mark.parametrize("dim", [3, 30])
@pytest.mark.parametrize("small_rank", [5, 300])
@pytest.mark.parametrize("max_rank", [10, 1200])
def test_each_way_through_the_algorithms_ends_at_the_same_distance(
    monkeypatch, dim, small_rank, max_rank
):
    kernel, target = case(dim, size=210)
    expected = {
        v: _hull_projection.Projector(kernel).project(target(v)).distance for v in (1.2, 2.5)
    }
    monkeypatch.setattr(_hull_projection, "_SMALL_RANK", small_rank)
    monkeypatch.setattr(_hull_projection, "_MAX_RANK", max_rank)
    vertex = _hull_projection.certify(kernel, target(1.2), np.eye(210)[0])
    monkeypatch.setattr(_hull_projection.Projector, "_pivot", lambda *_: vertex)
    for value, distance in expected.items():
        found = _hull_projection.Projector(kernel).project(target(value))
        assert found.error < 1e-8
        assert found.distance == pytest.approx(distance, abs=1e-8)


def test_the_certificate_holds_for_any_point_of_the_hull():
    rng = np.random.default_rng(0)
    for dim in (1, 5, 30):
        kernel, target = case(dim)
        least = _hull_projection.Projector(kernel).project(target(2.0))
        for share in (1e-6, 1e-3, 0.1, 1.0):
            weights = (1 - share) * least.weights + share * rng.dirichlet(np.ones(len(kernel)))
            found = _hull_projection.certify(kernel, target(2.0), weights)
            assert found.distance - found.error <= least.distance <= found.distance + 1e-12
        assert found.error > 1e-3


def test_coinciding_points_do_no_harm():
    points = np.repeat(np.random.default_rng(0).normal(size=(6, 3)), 20, axis=0)
    kernel, target = gaussian(points, 1.0), case(1)[1](2.0)
    few = target.reshape(6, 20).sum(1)
    found = _hull_projection.Projector(kernel).project(target)
    assert found.distance == pytest.approx(by_enumeration(kernel[::20, ::20], few), abs=1e-8)


def test_the_factor_reproduces_the_kernel_and_says_when_it_does_not():
    kernel, _ = case(2)
    rows, is_exact = _interior_point.pivoted_cholesky(kernel, tolerance=1e-9, max_rank=100)
    assert is_exact and 20 < len(rows) < 100
    rest = kernel - rows.T @ rows
    assert np.abs(rest).max() < 1.1e-9
    assert np.abs(kernel - rows[:-1].T @ rows[:-1]).max() > 1e-9
    rows, is_exact = _interior_point.pivoted_cholesky(kernel, tolerance=1e-9, max_rank=20)
    assert len(rows) <= 20 and not is_exact
    rows, is_exact = _interior_point.pivoted_cholesky(case(30)[0], tolerance=1e-9, max_rank=60)
    assert len(rows) == 20 and not is_exact


def test_both_models_of_the_interior_point_solve_the_same_system():
    kernel, _ = case(2)
    rows, _ = _interior_point.pivoted_cholesky(kernel, tolerance=1e-14, max_rank=120)
    rng = np.random.default_rng(0)
    diagonal, right = 10 ** rng.uniform(-3, 3, len(kernel)), rng.normal(size=len(kernel))
    expected = np.linalg.solve(kernel + np.diag(diagonal), right)
    for model in (_interior_point.dense(kernel), _interior_point.low_rank(rows)):
        np.testing.assert_allclose(model.product(right), kernel @ right, atol=1e-12)
        np.testing.assert_allclose(model.factor(diagonal)(right), expected, rtol=1e-7, atol=1e-9)
