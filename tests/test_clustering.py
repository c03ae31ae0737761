"""k-means: blobs, its own definition, monotone inertia, refilled clusters, and scikit-learn."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import cluster, datasets

from pujax import clustering
from tests.x64 import x64


def blobs(seed=0, num_blobs=4, size=15, offset=0.0):
    rng = np.random.default_rng(seed)
    corners = 10 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 1]])[:num_blobs]
    labels = np.repeat(np.arange(num_blobs), size)
    return corners[labels] + offset + rng.normal(scale=0.5, size=(labels.size, 3)), labels


def naive_inertia(points, centers):
    distances = ((points[:, None] - centers[None]) ** 2).sum(axis=-1)
    return distances.min(axis=1).sum(), distances.argmin(axis=1)


def test_separated_blobs_are_recovered():
    points, labels = blobs()
    result = clustering.kmeans(jax.random.key(0), points, num_clusters=4)
    assert result.assignments.dtype == jnp.int32
    pairs = set(zip(labels.tolist(), np.asarray(result.assignments).tolist(), strict=True))
    assert len(pairs) == 4
    for blob, found in pairs:
        expected = points[labels == blob].mean(axis=0)
        np.testing.assert_allclose(result.centers[found], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("num_iterations", [0, 1, 5])
def test_inertia_and_assignments_equal_their_definition(num_iterations):
    points = np.random.default_rng(1).normal(size=(40, 3)) + 50
    with x64():
        result = clustering.kmeans(
            jax.random.key(1), points, num_clusters=6, num_iterations=num_iterations
        )
        inertia, nearest = naive_inertia(points, np.asarray(result.centers))
        np.testing.assert_array_equal(result.assignments, nearest)
        np.testing.assert_allclose(result.inertia, inertia, rtol=1e-12)
        assignments, again = clustering.assign_clusters(points, result.centers)
        np.testing.assert_array_equal(assignments, nearest)
        np.testing.assert_allclose(again, inertia, rtol=1e-12)


def test_starts_are_distinct_points():
    points = np.random.default_rng(2).normal(size=(12, 2))
    result = clustering.kmeans(
        jax.random.key(3), points, num_clusters=12, num_iterations=0, num_restarts=1
    )
    assert len(set(np.asarray(result.assignments).tolist())) == 12
    assert float(result.inertia) == pytest.approx(0, abs=1e-10)


@pytest.mark.parametrize("seed", range(3))
def test_inertia_never_rises_with_iterations_even_when_clusters_are_refilled(seed):
    rng = np.random.default_rng(seed)
    # Many duplicates make empty clusters in most starts; the outlier makes the split the hardest.
    points = np.concatenate([np.ones((60, 3)), rng.normal(size=(20, 3)), [[40.0, 0, 0]]])
    with x64():
        run = functools.partial(
            clustering.kmeans, jax.random.key(seed), points, num_clusters=7, num_restarts=1
        )
        inertias = np.array([run(num_iterations=count).inertia for count in (0, 1, 2, 4, 8)])
    assert np.all(np.diff(inertias) <= 1e-12 * inertias[0]), inertias
    assert inertias[-1] < inertias[0]


@pytest.mark.parametrize("seed", range(4))
def test_no_cluster_stays_empty_when_the_starts_coincide(seed):
    # Nine in ten points are one and the same far point: nearly all starts are duplicates of it.
    rng = np.random.default_rng(seed)
    points = np.concatenate([np.full((90, 2), 7.3), rng.normal(size=(10, 2))])
    result = clustering.kmeans(jax.random.key(seed), points, num_clusters=5, num_restarts=1)
    counts = np.bincount(result.assignments, minlength=5)
    assert np.all(counts > 0), counts
    duplicates = np.asarray(result.assignments)[:90]
    assert np.all(duplicates == duplicates[0])


def test_fewer_distinct_points_than_clusters_are_all_fitted_exactly():
    points = np.repeat(np.array([[0.0, 1], [2, 3]]), 5, axis=0)
    result = clustering.kmeans(jax.random.key(0), points, num_clusters=4)
    assert float(result.inertia) == pytest.approx(0, abs=1e-10)
    assert np.isfinite(result.centers).all()


def test_a_cluster_without_scatter_has_nothing_to_give_to_an_empty_one():
    """Three rows, two of them equal: every row has a centre already, and one cluster is empty."""
    points, centers = jnp.array([[10.0], [10.0], [0.0]]), jnp.array([[0.0], [10.0], [10.0]])
    moved = clustering._update_centers(points, centers)
    assert {0.0, 10.0} <= set(np.asarray(moved)[:, 0])
    _, distances = clustering._assign(points, moved)
    assert float(distances.sum()) == 0


@pytest.mark.parametrize("seed", range(4))
def test_clusters_that_fit_exactly_stay_so(seed):
    """More clusters than distinct rows, from one start, at any number of iterations."""
    codes = np.array([[a, b, c] for a in (-1.0, 1) for b in (-1, 1) for c in (-1, 1)])
    rows = np.random.default_rng(seed).permutation(np.repeat(codes, 6, axis=0))
    for count in (5, 20):
        found = clustering.kmeans(
            *(jax.random.key(seed), rows), num_clusters=12, num_restarts=1, num_iterations=count
        )
        assert float(found.inertia) == pytest.approx(0, abs=1e-9)
        assert len(set(np.asarray(found.assignments))) >= 8  # no two distinct rows share one


@pytest.mark.thorough
def test_the_same_key_repeats_and_more_starts_never_hurt():
    points = np.random.default_rng(3).normal(size=(80, 2))
    run = functools.partial(clustering.kmeans, jax.random.key(5), points, num_clusters=9)
    first, second = run(), run()
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)
    inertias = [float(run(num_restarts=count).inertia) for count in (1, 2, 5, 8)]
    assert inertias == sorted(inertias, reverse=True) and inertias[-1] < inertias[0]
    other = clustering.kmeans(jax.random.key(6), points, num_clusters=9, num_restarts=1)
    assert not np.array_equal(other.centers, run(num_restarts=1).centers)


def test_inertia_on_digits_is_that_of_scikit_learn():
    points = datasets.load_digits().data[::3].astype(np.float32)
    ours = clustering.kmeans(jax.random.key(0), points, num_clusters=10).inertia
    theirs = cluster.KMeans(10, init="random", n_init=5, max_iter=20, random_state=0).fit(points)
    # Two random best-of-5 runs of the same algorithm; over seeds they spread by about 1 percent.
    assert float(ours) == pytest.approx(theirs.inertia_, rel=0.03)


def test_points_far_from_the_origin_keep_float32_accuracy():
    points, _ = blobs(offset=3e4)
    points = points.astype(np.float32)
    result = clustering.kmeans(jax.random.key(0), points, num_clusters=4)
    expected, _ = naive_inertia(points.astype(np.float64), np.asarray(result.centers, np.float64))
    # Numbers near 3e4 are stored to 2e-3, against a spread of 0.5; their squares only to 64.
    assert float(result.inertia) == pytest.approx(expected, rel=1e-2)
    assert float(result.inertia) < 60
    assignments, _ = clustering.assign_clusters(points, result.centers)
    np.testing.assert_array_equal(assignments, result.assignments)


def test_it_compiles_and_maps_over_keys():
    points, _ = blobs(size=5)
    run = functools.partial(clustering.kmeans, points=points, num_clusters=4, num_iterations=6)
    keys = jax.random.split(jax.random.key(0), 2)
    mapped = jax.jit(jax.vmap(run))(keys)
    single = jax.jit(run)(keys[1])
    np.testing.assert_array_equal(mapped.assignments[1], single.assignments)
    np.testing.assert_allclose(mapped.centers[1], single.centers, atol=1e-5)
    assignments, inertias = jax.vmap(clustering.assign_clusters, in_axes=(None, 0))(
        points, mapped.centers
    )
    np.testing.assert_array_equal(assignments, mapped.assignments)
    np.testing.assert_allclose(inertias, mapped.inertia, rtol=1e-4)


def test_types_bfloat16_becomes_float32_and_float64_stays():
    points, _ = blobs(size=4)
    low = clustering.kmeans(jax.random.key(0), jnp.asarray(points, jnp.bfloat16), num_clusters=2)
    assert low.centers.dtype == low.inertia.dtype == jnp.float32
    with x64():
        high = clustering.kmeans(jax.random.key(0), points, num_clusters=2)
        assert high.centers.dtype == high.inertia.dtype == jnp.float64
        assert high.assignments.dtype == jnp.int32


def test_wrong_arguments_are_named():
    key, points = jax.random.key(0), np.zeros((3, 2))
    for num_clusters in (0, 4, 2.0, None):
        with pytest.raises(ValueError, match=f"num_clusters is {num_clusters}, .*points, 3"):
            clustering.kmeans(key, points, num_clusters=num_clusters)
    for num_iterations in (-1, 2.5):
        with pytest.raises(ValueError, match=f"num_iterations is {num_iterations}"):
            clustering.kmeans(key, points, num_clusters=1, num_iterations=num_iterations)
    with pytest.raises(ValueError, match="num_restarts is 0"):
        clustering.kmeans(key, points, num_clusters=1, num_restarts=0)
    with pytest.raises(ValueError, match=r"points has shape \(3,\)"):
        clustering.kmeans(key, np.zeros(3), num_clusters=1)
    for shape in ((2, 3), (0, 2)):
        with pytest.raises(ValueError, match=rf"centers has shape \({shape[0]}, {shape[1]}\)"):
            clustering.assign_clusters(points, np.zeros(shape))


@pytest.mark.parametrize(
    "key", [0, None, jax.random.split(jax.random.key(0)), np.zeros(3, np.uint32)]
)
def test_what_is_no_key_is_named(key):
    with pytest.raises(ValueError, match="key is .*accepted: one jax.random key"):
        clustering.kmeans(key, np.zeros((3, 2)), num_clusters=1)


def test_a_raw_key_of_numpy_is_the_same_key():
    points = np.random.default_rng(0).normal(size=(30, 2))
    key = jax.random.key(3)
    raw = np.asarray(jax.random.key_data(key))
    first, second = (clustering.kmeans(k, points, num_clusters=3) for k in (key, raw))
    np.testing.assert_array_equal(first.centers, second.centers)


@pytest.mark.parametrize("wrong", [[["a", "b"]], None, [[1.0], [1.0, 2.0]]])
def test_what_is_no_array_is_named(wrong):
    key, points = jax.random.key(0), np.zeros([3, 2])
    with pytest.raises(ValueError, match="^points is .*; accepted: an array of real numbers"):
        clustering.kmeans(key, wrong, num_clusters=1)
    with pytest.raises(ValueError, match="^centers is .*; accepted: an array of real numbers"):
        clustering.assign_clusters(points, wrong)
    with pytest.raises(ValueError, match="^key is 'k'; accepted: one jax.random key"):
        clustering.kmeans("k", points, num_clusters=1)
    for number in (jnp.array(2), [2], "two"):
        with pytest.raises(ValueError, match="^num_clusters is "):
            clustering.kmeans(key, points, num_clusters=number)
