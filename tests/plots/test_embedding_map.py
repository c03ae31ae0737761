import numpy as np
import pytest
from sklearn.manifold import trustworthiness

from pujax.plots import embedding_map


def test_pca_gives_the_projection_on_the_leading_eigenvectors():
    points = np.random.default_rng(0).normal(size=[40, 4]) * [5.0, 0.1, 2.0, 0.3] + 7.0
    centred = points - points.mean(axis=0)
    _, vectors = np.linalg.eigh(centred.T @ centred)
    expected = centred @ vectors[:, [3, 2]]
    found = embedding_map.project(points, method="pca")
    # The sign of a component is free; doubles of size 10 through two decompositions.
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-9)


def test_tsne_keeps_neighbourhoods_and_repeats_itself():
    random = np.random.default_rng(0)
    points = random.normal(size=[120, 8]) + 8.0 * (np.arange(120) % 3)[:, None]
    first = embedding_map.project(points, method="tsne", seed=1)
    # Neighbours in the plane are neighbours in space; a random map scores about 0.5.
    assert trustworthiness(points, first, n_neighbors=10) > 0.9
    np.testing.assert_array_equal(first, embedding_map.project(points, method="tsne", seed=1))


@pytest.mark.parametrize("method", ["pca", "tsne"])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 4, 7])
@pytest.mark.parametrize("d", [0, 1, 2, 6])
def test_few_points_and_few_features_give_finite_coordinates(method, n, d):
    points = np.random.default_rng(0).normal(size=[n, d])
    found = embedding_map.project(points, method=method)
    assert found.shape == (n, 2)
    assert np.isfinite(found).all()


@pytest.mark.parametrize("method", ["pca", "tsne"])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_constant_features_do_no_harm(method, scale):
    points = np.zeros([20, 3], np.float32)
    np.testing.assert_array_equal(
        embedding_map.project(points + 3, method=method), np.zeros([20, 2])
    )
    points[:, 1] = scale * (np.arange(20) % 2)
    found = embedding_map.project(points, method=method)
    assert np.isfinite(found).all()
    # Two places in space are two places on the map.
    gap = np.linalg.norm(found[0::2].mean(axis=0) - found[1::2].mean(axis=0))
    assert gap > 0.1 * scale if method == "pca" else gap > 0


def test_sample_takes_everything_usable_when_it_fits():
    usable = np.arange(10) != 4
    labeled = np.arange(10) < 3
    rows = embedding_map.sample(usable, labeled, seed=0, max_points=9)
    np.testing.assert_array_equal(rows, np.flatnonzero(usable))


@pytest.mark.parametrize(
    ("num_labeled", "expected"),
    [(0, 0), (4, 4), (40, 10), (500, 50)],
    ids=["none", "fewer than a tenth", "rare", "proportional"],
)
def test_sample_keeps_enough_labelled_points(num_labeled, expected):
    labeled = np.arange(1000) < num_labeled
    usable = np.ones(1000, bool)
    rows = embedding_map.sample(usable, labeled, seed=0, max_points=100)
    assert len(rows) == len(set(rows)) == 100
    assert labeled[rows].sum() == expected
    np.testing.assert_array_equal(
        rows, embedding_map.sample(usable, labeled, seed=0, max_points=100)
    )
    assert set(rows) != set(embedding_map.sample(usable, labeled, seed=1, max_points=100))


def test_points_that_are_nearly_one_have_collapsed_whatever_their_size():
    random = np.random.default_rng(0)
    noise = random.normal(size=[50, 6])
    for scale in (1e-30, 1.0, 1e30):
        assert "has collapsed" in embedding_map.collapse(scale * (1 + 1e-5 * noise))
        assert embedding_map.collapse(scale * (1 + 0.1 * noise)) == ""
        assert embedding_map.collapse(scale * noise) == ""
    assert "has collapsed" in embedding_map.collapse(np.zeros([5, 2]))
    assert (
        embedding_map.collapse(np.zeros([1, 2])) == embedding_map.collapse(np.zeros([0, 2])) == ""
    )


def test_points_of_which_all_are_called_alike_are_told():
    points, scores = np.random.default_rng(0).normal(size=[2, 30, 3])
    assert "called negative" in embedding_map.collapse(points, -np.ones(30))
    assert "called positive" in embedding_map.collapse(points, np.ones(30))
    assert embedding_map.collapse(points, scores[:, 0]) == ""
