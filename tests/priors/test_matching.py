"""pen-L1 and PE: grids, naive algebra, discrete closed forms, coverage, and bad input."""

import numpy as np
import pytest
from scipy.spatial import distance

from pujax.priors import _moments, _settings, matching
from pujax.priors.base import ANYTHING


def samples(seed, prior=0.5, shift=2.0, dim=2, num_p=200, num_u=300):
    """Unit Gaussians `shift` apart on each of the first two axes."""
    rng = np.random.default_rng(seed)
    offset = np.where(np.arange(dim) < 2, shift, 0)
    side = rng.random(num_u) < prior
    return rng.normal(size=(num_p, dim)) + offset, rng.normal(size=(num_u, dim)) + np.outer(
        side, offset
    )


def naive_features(points, centers, sigma):
    return np.exp(-((points[:, None] - centers) ** 2).sum(-1) / (2 * sigma**2))


def pen_l1_objective(theta, p, u, centers, sigma, ridge):
    """The dual objective at its best weights, without the ridge's term, for each theta."""
    mean_p, mean_u = (naive_features(x, centers, sigma).mean(0) for x in (p, u))
    excess = np.multiply.outer(theta, mean_p) - mean_u
    weights = np.maximum(excess, 0) / ridge
    return (weights * excess).sum(-1) - theta + 1


def naive_pearson(p, u, centers, sigma, ridge):
    phi_p, phi_u = (
        np.column_stack([naive_features(x, centers, sigma), np.ones(len(x))]) for x in (p, u)
    )
    gram = phi_u.T @ phi_u / len(u)
    inverse = np.linalg.inv(gram + ridge * np.eye(len(gram)))
    form = 2 * inverse - inverse @ gram @ inverse
    mean_p, mean_u = phi_p.mean(0), phi_u.mean(0)
    return mean_p @ form @ mean_u / (mean_p @ form @ mean_p)


@pytest.mark.parametrize("seed", range(6))
def test_pen_l1_is_the_minimum_on_a_fine_grid(seed):
    rng = np.random.default_rng(seed)
    p, u = samples(seed, prior=rng.uniform(0.05, 0.95), shift=rng.uniform(0, 4), num_p=20, num_u=30)
    centers = np.concatenate([p, u])[: rng.integers(1, 50)]
    sigma, ridge = rng.uniform(0.3, 2), 10 ** rng.uniform(-3, 0)
    found = matching.pen_l1(p, u, centers=centers, sigma=sigma, ridge=ridge, num_resamples=0).value
    grid = np.linspace(0, 1, 20001)
    values = pen_l1_objective(grid, p, u, centers, sigma, ridge)
    assert found == pytest.approx(grid[values.argmin()], abs=1e-4)
    # Not a point of the grid is below it.
    assert pen_l1_objective(found, p, u, centers, sigma, ridge) <= values.min() + 1e-12


def test_pen_l1_equals_a_case_worked_by_hand():
    # One centre on all positives; of the unlabeled every second lies there and the rest far away.
    p, u, centers = np.zeros((4, 1)), np.array([[0.0], [100], [0], [100]]), np.zeros((1, 1))
    # b = theta - 1/2, and (theta - 1/2)^2 / ridge - theta is least at 1/2 + ridge / 2.
    for ridge in (0.02, 0.5):
        found = matching.pen_l1(p, u, centers=centers, sigma=1.0, ridge=ridge, num_resamples=0)
        assert found.value == pytest.approx(0.5 + ridge / 2, rel=1e-12)
    # With a ridge that large the best share is beyond 1.
    found = matching.pen_l1(p, u, centers=centers, sigma=1.0, ridge=3.0, num_resamples=0)
    assert found.value == 1


@pytest.mark.parametrize("ridge", [1e-3, 0.1])
def test_pearson_equals_naive_algebra(ridge):
    p, u = samples(1, num_p=40, num_u=60)
    centers = u[:25]
    found = matching.pearson(p, u, centers=centers, sigma=1.2, ridge=ridge, num_resamples=0)
    expected = naive_pearson(p, u, centers, 1.2, ridge)
    assert 0 < expected < 1
    assert found.value == pytest.approx(expected, rel=1e-9)


def test_pearson_tends_to_its_known_limit_above_the_prior():
    # Three values, and features around each of them span every function: the limit is exact.
    given_p, given_n, prior = np.array([0.6, 0.3, 0.1]), np.array([0.1, 0.2, 0.7]), 0.4
    values = np.arange(3.0)[:, None]
    p = np.repeat(values, [6, 3, 1], axis=0)
    mixed = prior * given_p + (1 - prior) * given_n
    u = np.repeat(values, np.round(50 * mixed).astype(int), axis=0)
    found = matching.pearson(p, u, centers=values, sigma=0.5, ridge=1e-9, num_resamples=0).value
    smi = prior / (2 * (1 - prior)) * np.sum(mixed * (given_p / mixed - 1) ** 2)
    limit = 1 / (1 + 2 * (1 - prior) / prior * smi)
    assert limit > prior + 0.1
    assert found == pytest.approx(limit, rel=1e-6)


def published(name):
    return {
        "separated": (samples, {"shift": 3.0, "prior": 0.4}, 0.405, 0.405),
        "overlap": (samples, {"shift": 2.0, "prior": 0.5}, 0.542, 0.555),
        "low prior": (samples, {"shift": 2.5, "prior": 0.15}, 0.188, 0.172),
        "high prior": (samples, {"shift": 2.5, "prior": 0.8}, 0.765, 0.781),
        "noise dimensions": (samples, {"shift": 2.5, "prior": 0.3, "dim": 10}, 0.505, 0.335),
    }[name]


@pytest.mark.parametrize(
    "name", ["separated", "overlap", "low prior", "high prior", "noise dimensions"]
)
def test_means_over_draws_are_those_measured_elsewhere(name):
    draw, settings, pen_l1, pearson = published(name)
    found = []
    for seed in range(8):
        p, u = draw(seed, **settings)
        both = np.concatenate([p, u])
        options = {"centers": both[::3], "sigma": np.median(distance.pdist(both)) / 2}
        options |= {"ridge": 0.1, "num_resamples": 0}
        found.append([f(p, u, **options).value for f in (matching.pen_l1, matching.pearson)])
    # Other draws, and other centres: half a dozen hundredths is what 8 draws leave open.
    np.testing.assert_allclose(np.mean(found, axis=0), [pen_l1, pearson], atol=0.06)


@pytest.mark.thorough
def test_the_defaults_are_near_the_prior_where_classes_hardly_overlap():
    for prior in (0.2, 0.6):
        p, u = samples(5, prior=prior, shift=3.0)
        for estimate in (matching.pen_l1, matching.pearson):
            assert estimate(p, u, num_resamples=0).value == pytest.approx(prior, abs=0.1)


def rest_and_fold(points, num_folds=5):
    """Every block of rows as a fold, for a generator that does not shuffle."""
    blocks = np.array_split(np.arange(len(points)), num_folds)
    return [(np.delete(points, rows, axis=0), points[rows]) for rows in blocks]


def naive_pen_l1_score(p, u, centers, sigma, ridge):
    """Held-out dual objective, negated, at the share that a fine grid finds on the rest."""
    scores = []
    for (rest_p, own_p), (rest_u, own_u) in zip(rest_and_fold(p), rest_and_fold(u), strict=True):
        grid = np.linspace(0, 1, 20001)
        values = pen_l1_objective(grid, rest_p, rest_u, centers, sigma, ridge)
        theta = grid[values.argmin()]
        means = [naive_features(x, centers, sigma).mean(0) for x in (rest_p, rest_u, own_p, own_u)]
        weights = np.maximum(theta * means[0] - means[1], 0) / ridge
        scores.append(-(weights @ (theta * means[2] - means[3]) - theta + 1))
    return np.mean(scores)


def naive_pearson_score(p, u, centers, sigma, ridge):
    """Held-out least squares of the ratio of P to U, fitted to the rest."""
    scores = []
    for pairs in zip(rest_and_fold(p), rest_and_fold(u), strict=True):
        (rest_p, own_p), (rest_u, own_u) = (
            [np.column_stack([naive_features(x, centers, sigma), np.ones(len(x))]) for x in pair]
            for pair in pairs
        )
        gram = rest_u.T @ rest_u / len(rest_u)
        weights = np.linalg.solve(gram + ridge * np.eye(len(gram)), rest_p.mean(0))
        scores.append(np.mean((own_u @ weights) ** 2) / 2 - np.mean(own_p @ weights))
    return np.mean(scores)


class Unshuffled(np.random.Generator):
    """Keeps all rows in order, so that folds are blocks."""

    def permutation(self, n):
        return np.arange(n)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["pen_l1", "pearson"])
def test_the_settings_are_those_of_a_naive_cross_validation(name, seed, monkeypatch):
    p, u = samples(seed, num_p=32, num_u=43, shift=[0.5, 2.0, 4.0, 1.0][seed])
    p, u = p / 16, u / 16
    centers, seen, selected = u[:10], [], _settings.selected

    def watched(*arguments):
        seen.append(selected(*arguments))
        return seen[-1]

    monkeypatch.setattr(_settings, "selected", watched)
    monkeypatch.setattr(matching.base, "generator", lambda key: Unshuffled(np.random.PCG64(key)))
    estimate = getattr(matching, name)
    found = estimate(p, u, centers=centers, num_resamples=0, key=0).value

    median = np.median(distance.pdist(np.concatenate([p, u])))
    sigmas = [relative * median for relative in _settings.RELATIVE_SIGMAS]
    ridges = matching.PEARSON_RIDGES if name == "pearson" else [32**-0.5]
    score = {"pen_l1": naive_pen_l1_score, "pearson": naive_pearson_score}[name]
    table = [[score(p, u, centers, sigma, ridge) for ridge in ridges] for sigma in sigmas]
    i, j = np.unravel_index(np.argmin(table), np.shape(table))
    ((sigma, ridge),) = seen
    unit = sigma / sigmas[i]  # lengths inside are in a power of two
    assert np.frexp(unit)[0] == pytest.approx(0.5, rel=1e-9) and ridge == ridges[j]
    # And the estimate is the one with these settings, which others do not give.
    options = {"centers": centers, "num_resamples": 0}
    assert found == estimate(p, u, sigma=sigmas[i], ridge=ridges[j], **options).value
    assert found != estimate(p, u, sigma=sigmas[i - 1], ridge=ridges[j], **options).value


def test_folds_and_their_rests_make_up_the_sample():
    points = samples(2, num_u=41)[1]
    basis = _moments.Basis(points[:10], 1.5, True)
    phi = basis.features(points)
    expected = np.column_stack([naive_features(points, points[:10], 1.5), np.ones(41)])
    np.testing.assert_allclose(phi, expected, rtol=1e-12)
    rng = np.random.default_rng(0)
    folds = _moments.grouped(points, basis, num_groups=5, with_products=True, rng=rng).folds()
    for (rest, own), size in zip(folds, [9, 8, 8, 8, 8], strict=True):
        mean = (size * own.mean + (41 - size) * rest.mean) / 41
        gram = (size * own.gram + (41 - size) * rest.gram) / 41
        np.testing.assert_allclose(mean, phi.mean(0), rtol=1e-9)
        np.testing.assert_allclose(gram, phi.T @ phi / 41, rtol=1e-9)


@pytest.mark.parametrize("estimate", [matching.pen_l1, matching.pearson])
@pytest.mark.filterwarnings("error")
def test_the_unit_of_length_does_not_matter_however_extreme(estimate):
    p, u = samples(8, num_p=30, num_u=40)
    settings = {"centers": u[:12], "sigma": 1.5, "ridge": 0.1}
    for options in ({}, settings):
        expected = estimate(p, u, num_resamples=5, **options)
        assert 0 < expected.value < 1
        for unit in (2.0**1000, 2.0**-1000, 2.0**-7):
            lengths = {name: options[name] * unit for name in options if name != "ridge"}
            found = estimate(p * unit, u * unit, num_resamples=5, **options | lengths)
            assert found == expected
    # 1e200 and 1e-308 are no powers of two, and the latter leaves fewer digits.
    for unit in (1e200, 1e-308):
        found = estimate(p * unit, u * unit, num_resamples=0)
        assert found.value == pytest.approx(estimate(p, u, num_resamples=0).value, rel=1e-6)
    # Features that are narrower than every distance, or the same everywhere.
    for sigma in (1e-300, 1e300):
        found = estimate(p, u, sigma=sigma, num_resamples=0)
        assert 0 <= found.value <= 1
    found = estimate(p, u, centers=np.full((3, 2), 1e300), sigma=1.0, num_resamples=0)
    assert 0 <= found.value <= 1


def test_groups_are_the_ordinary_bootstrap_and_chunks_change_nothing(monkeypatch):
    points = np.random.default_rng(3).normal(size=(37, 2))
    basis = _moments.Basis(points[:4], 1.0, True)

    def group(num_groups):
        rng = np.random.default_rng(4)
        return _moments.grouped(points, basis, num_groups=num_groups, with_products=True, rng=rng)

    fine, coarse = group(1000), group(6)
    assert len(fine.sizes) == 37 and sorted(set(coarse.sizes)) == [6, 7]
    for found, other in zip(fine.all_rows(), coarse.all_rows(), strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-12)
    monkeypatch.setattr(_moments, "CHUNK", 2)
    for found, other in zip(coarse, group(6), strict=True):
        np.testing.assert_allclose(found, other, rtol=1e-12)

    rows = [1, 5, 5, 9]
    weights = np.bincount(rows, minlength=37).astype(float)
    found = fine.moments(weights)
    phi = basis.features(points[np.random.default_rng(4).permutation(37)])[rows]
    np.testing.assert_allclose(found.mean, phi.mean(0), rtol=1e-12)
    np.testing.assert_allclose(found.gram, phi.T @ phi / 4, rtol=1e-12)

    means = np.array([m.mean[0] for m in fine.resampled(np.random.default_rng(5), 2000)])
    feature = basis.features(points)[:, 0]
    assert means.std() == pytest.approx(feature.std() / np.sqrt(37), rel=0.1)


@pytest.mark.thorough
@pytest.mark.parametrize("estimate", [matching.pen_l1, matching.pearson])
def test_intervals_hold_the_spread_of_repeated_draws(estimate):
    options = {"sigma": 1.5, "ridge": 0.1, "centers": samples(99)[1][:40]}
    values, widths = [], []
    for seed in range(30):
        p, u = samples(seed, shift=3.0, num_p=150, num_u=600)
        found = estimate(p, u, num_resamples=100, key=seed, **options)
        assert 0 <= found.low <= found.value <= found.high <= 1
        values.append(found.value)
        widths.append(found.high - found.low)
    # A normal's 90 percent interval is 3.29 standard deviations wide; 30 draws know those to 13
    # percent. 600 rows stand in 256 groups, so this holds the grouped bootstrap to it as well.
    assert np.mean(widths) == pytest.approx(3.29 * np.std(values), rel=0.4)
    again = estimate(p, u, num_resamples=100, key=29, **options)
    assert again == found
    wide = estimate(p, u, num_resamples=100, key=29, level=0.99, **options)
    assert wide.low < found.low and wide.high > found.high
    assert np.isnan(estimate(p, u, num_resamples=0, **options).low)


@pytest.mark.parametrize("estimate", [matching.pen_l1, matching.pearson])
def test_extreme_data_give_numbers_and_the_same_points_give_anything(estimate):
    p, u = samples(6, num_p=20, num_u=20)
    assert estimate(p, p[::-1]) == ANYTHING
    far = estimate(p, u + 1e6, num_resamples=20)
    assert 0 <= far.low <= far.value <= far.high <= 1 and far.value < 0.3
    nearly_all_one = np.zeros((30, 2))
    nearly_all_one[0] = 1
    for first, second in ((nearly_all_one, u), (nearly_all_one[:9], nearly_all_one[3:])):
        found = estimate(first, second, num_resamples=5)
        assert np.isfinite(found).all()
    tiny = estimate(p[:2], u[:2], num_resamples=5)
    assert np.isfinite(tiny).all()
    images = estimate(p.reshape(20, 2, 1), u.reshape(20, 2, 1), num_resamples=5)
    assert images == estimate(p, u, num_resamples=5)


@pytest.mark.parametrize("estimate", [matching.pen_l1, matching.pearson])
def test_wrong_arguments_are_named(estimate):
    p, u = samples(7, num_p=10, num_u=10)
    for name, value in (("sigma", 0), ("sigma", np.nan), ("ridge", -1.0), ("ridge", np.inf)):
        with pytest.raises(ValueError, match=f"{name} is {value}"):
            estimate(p, u, **{name: value})
    with pytest.raises(ValueError, match=r"centers has shape \(3, 5\).*\[b, 2\]"):
        estimate(p, u, centers=np.zeros((3, 5)))
    with pytest.raises(ValueError, match=r"centers has shape \(0, 2\)"):
        estimate(p, u, centers=np.zeros((0, 2)))
    with pytest.raises(ValueError, match="num_resamples is -1"):
        estimate(p, u, num_resamples=-1)
    with pytest.raises(ValueError, match="unlabeled has 1 examples .* not finite"):
        estimate(p, np.array([[0.0, np.nan], [1, 1]]))


def test_a_ridge_below_rounding_is_refused_by_name():
    p = np.array([[0.0], [0.0], [1.0]])
    with pytest.raises(ValueError, match="ridge is 1e-300; accepted: a larger number"):
        matching.pearson(p, p[:2] + 0.5, centers=np.zeros((3, 1)), sigma=1.0, ridge=1e-300)
