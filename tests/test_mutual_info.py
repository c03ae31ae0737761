"""Squared-loss mutual information: quadrature, discrete closed forms, naive versions, gradients."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import integrate, stats

from pujax import mutual_info
from pujax.mutual_info import features, selection
from tests.x64 import x64


def gaussians(seed, num, prior=0.5, dim=1):
    """`num` positives from N(1, I) and twice as many of its mixture with N(-1, I)."""
    rng = np.random.default_rng(seed)
    side = np.where(rng.random(2 * num) < prior, 1, -1)
    positives = rng.normal(size=(num, dim)) + 1
    return positives, rng.normal(size=(2 * num, dim)) + side[:, None]


def true_ratio(points, prior):
    return 1 / (prior + (1 - prior) * np.exp(-2 * points))


def quantiles(center, num):
    """A sample of N(center, 1) without chance: the middles of `num` equally likely cells."""
    return center + stats.norm.ppf((np.arange(num) + 0.5) / num)


def naive_features(points, centers, sigma):
    return np.exp(-((points[:, None] - centers) ** 2).sum(-1) / (2 * sigma**2))


def naive_fit(mean, gram, ridge):
    weights = np.linalg.inv(gram + ridge * np.eye(len(gram))) @ mean
    return weights, weights @ gram @ weights / 2 - weights @ mean


def discrete(counts_p, counts_n):
    """Points 0, 1, 2 as often as told; Gaussian features around them span every function."""
    values = np.arange(3.0)[:, None]
    return np.repeat(values, counts_p, axis=0), np.repeat(values, counts_n, axis=0), values


def discrete_smi(counts_p, counts_n, prior):
    """The definition: a sum over classes and values."""
    given = np.array([counts_p / np.sum(counts_p), counts_n / np.sum(counts_n)])
    shares = np.array([prior, 1 - prior])
    margin = shares @ given
    return 0.5 * np.sum(shares[:, None] * margin * (given / margin - 1) ** 2)


def test_objectives_equal_numbers_worked_by_hand():
    positive, other = np.array([1.0, 2]), np.array([1.0, 0, 2, 1])
    assert float(mutual_info.pu_objective(positive, other)) == pytest.approx(-0.75)
    value = mutual_info.pn_objective(positive, other, prior=0.25)
    assert float(value) == pytest.approx((0.25 * 2.5 + 0.75 * 1.5) / 2 - 1.5)
    assert float(mutual_info.smi_from_objective(-0.75, prior=0.25)) == pytest.approx(0.25 / 3)
    # No information is w = 1 and J = -1/2; the mean over an empty sample is 0.
    assert float(mutual_info.smi_from_objective(-0.5, prior=0.9)) == 0
    assert float(mutual_info.pu_objective(np.zeros(0), np.ones(2))) == 0.5


@pytest.mark.parametrize("prior, known", [(0.5, 0.275200), (0.3, 0.263518)])
def test_the_true_ratio_gives_the_mutual_information_found_by_quadrature(prior, known):
    def integrand(x):
        p, n = stats.norm.pdf(x, 1), stats.norm.pdf(x, -1)
        margin = prior * p + (1 - prior) * n
        return 0.5 * margin * (prior * (p / margin - 1) ** 2 + (1 - prior) * (n / margin - 1) ** 2)

    truth = integrate.quad(integrand, -9, 9)[0]
    assert truth == pytest.approx(known, abs=1e-6)

    positives = quantiles(1, round(1e5 * prior))
    negatives = quantiles(-1, round(1e5 * (1 - prior)))
    ratio_p, ratio_n = true_ratio(positives, prior), true_ratio(negatives, prior)
    ratio_u = np.concatenate([ratio_p, ratio_n])
    with x64():
        pu_objective = jax.jit(mutual_info.pu_objective)
        from_pu = float(pu_objective(ratio_p, ratio_u))
        from_pn = mutual_info.pn_objective(ratio_p, ratio_n, prior=prior)
        assert float(mutual_info.smi_from_objective(from_pu, prior=prior)) == pytest.approx(
            truth, abs=1e-5
        )
        np.testing.assert_allclose(from_pn, from_pu, rtol=1e-12)
        # Every other ratio gives less, by half the mean square of the difference.
        for change in (np.sin, np.abs, np.ones_like):
            w_p, w_u = ratio_p + 0.1 * change(ratio_p), ratio_u + 0.1 * change(ratio_u)
            lost = float(pu_objective(w_p, w_u)) - from_pu
            expected = 0.005 * np.mean(change(ratio_u) ** 2)
            assert lost == pytest.approx(expected, rel=1e-3) and lost > 0


@pytest.mark.thorough
@pytest.mark.parametrize("prior", [0.2, 0.5])
def test_all_closed_forms_are_exact_where_the_features_span_everything(prior):
    counts_p, counts_n = np.array([6, 3, 1]), np.array([1, 2, 7])
    positives, negatives, centers = discrete(counts_p, counts_n)
    unlabeled = np.concatenate(
        [
            np.repeat(positives, round(10 * prior), 0),
            np.repeat(negatives, round(10 - 10 * prior), 0),
        ]
    )
    truth = discrete_smi(counts_p, counts_n, prior)
    with x64():
        settings = {"sigma": 0.8, "ridge": 0.0}
        model = mutual_info.fit_gaussian_ratio(positives, unlabeled, centers, **settings)
        twin = mutual_info.fit_gaussian_pn(positives, negatives, centers, prior=prior, **settings)
        both = mutual_info.fit_gaussian_two_output(
            positives, negatives, centers, prior=prior, **settings
        )
        for fitted in (model, twin):
            value = mutual_info.smi_from_objective(mutual_info.objective(fitted), prior=prior)
            np.testing.assert_allclose(value, truth, rtol=1e-10)
        np.testing.assert_allclose(-mutual_info.two_output_objective(both) - 0.5, truth, rtol=1e-10)
        ratio = mutual_info.ratio(model, centers)
        given = counts_p / 10
        margin = prior * given + (1 - prior) * counts_n / 10
        np.testing.assert_allclose(ratio, given / margin, rtol=1e-9)
        np.testing.assert_allclose(both.weights[0], model.weights, rtol=1e-7)
        # Without a ridge the shorter form is the same number.
        np.testing.assert_allclose(
            mutual_info.objective(model, short_form=True), mutual_info.objective(model), rtol=1e-10
        )


@pytest.mark.parametrize("prior", [0.1, 0.7])
def test_classes_that_do_not_overlap_share_one_half(prior):
    positives, negatives, centers = discrete([4, 0, 0], [0, 2, 2])
    with x64():
        model = mutual_info.fit_gaussian_pn(
            positives, negatives, centers, prior=prior, sigma=0.5, ridge=0.0
        )
        value = mutual_info.smi_from_objective(mutual_info.objective(model), prior=prior)
        np.testing.assert_allclose(value, 0.5, rtol=1e-10)


@pytest.mark.thorough
def test_fits_equal_a_naive_version_with_the_ridge_outside_the_gram_matrix():
    positives, unlabeled = gaussians(0, 30, dim=3)
    negatives, centers, sigma, ridge, prior = -positives[:20], unlabeled[:8], 1.3, 0.05, 0.3
    phi_p, phi_u, phi_n = (
        naive_features(points, centers, sigma) for points in (positives, unlabeled, negatives)
    )
    gram, mean = phi_u.T @ phi_u / len(phi_u), phi_p.mean(0)
    mixed = prior * phi_p.T @ phi_p / len(phi_p) + (1 - prior) * phi_n.T @ phi_n / len(phi_n)
    with x64():
        settings = {"sigma": sigma, "ridge": ridge}
        model = mutual_info.fit_gaussian_ratio(positives, unlabeled, centers, **settings)
        weights, value = naive_fit(mean, gram, ridge)
        np.testing.assert_allclose(model.gram, gram, rtol=1e-10)
        np.testing.assert_allclose(model.mean, mean, rtol=1e-10)
        np.testing.assert_allclose(model.weights, weights, rtol=1e-8)
        np.testing.assert_allclose(mutual_info.objective(model), value, rtol=1e-9)
        ratio_p = mutual_info.ratio(model, positives)
        ratio_u = mutual_info.ratio(model, unlabeled)
        np.testing.assert_allclose(ratio_u, phi_u @ weights, rtol=1e-8)
        np.testing.assert_allclose(mutual_info.pu_objective(ratio_p, ratio_u), value, rtol=1e-9)

        linear = mutual_info.fit_linear_ratio(phi_p, phi_u, ridge=ridge)
        np.testing.assert_allclose(linear.weights, weights, rtol=1e-8)
        np.testing.assert_allclose(mutual_info.ratio(linear, phi_u), ratio_u, rtol=1e-8)

        twin = mutual_info.fit_gaussian_pn(positives, negatives, centers, prior=prior, **settings)
        weights, value = naive_fit(mean, mixed, ridge)
        np.testing.assert_allclose(twin.weights, weights, rtol=1e-8)
        np.testing.assert_allclose(mutual_info.objective(twin), value, rtol=1e-9)

        both = mutual_info.fit_gaussian_two_output(
            positives, negatives, centers, prior=prior, **settings
        )
        total = 0.0
        for share, phi, found in zip((prior, 1 - prior), (phi_p, phi_n), both.weights, strict=True):
            damped = share * mixed + ridge * np.eye(8)
            weights = np.linalg.solve(damped, share * phi.mean(0))
            np.testing.assert_allclose(found, weights, rtol=1e-8)
            total += share * (weights @ mixed @ weights / 2 - weights @ phi.mean(0))
        np.testing.assert_allclose(mutual_info.two_output_objective(both), total, rtol=1e-9)


def test_the_gradient_in_the_points_is_that_of_finite_differences():
    positives, unlabeled = gaussians(1, 6, dim=2)
    centers = unlabeled[:4]

    def value(positives, unlabeled, centers, sigma):
        model = mutual_info.fit_gaussian_ratio(
            positives, unlabeled, centers, sigma=sigma, ridge=0.1
        )
        return mutual_info.objective(model)

    with x64():
        arguments = [jnp.asarray(x) for x in (positives, unlabeled, centers, 0.9)]
        compiled = jax.jit(value)
        gradients = jax.jit(jax.grad(value, argnums=(0, 1, 2, 3)))(*arguments)
        rng, step = np.random.default_rng(0), 1e-5
        for index, gradient in enumerate(gradients):
            direction = rng.normal(size=gradient.shape)
            ends = []
            for sign in (1, -1):
                moved = list(arguments)
                moved[index] = moved[index] + sign * step * direction
                ends.append(float(compiled(*moved)))
            slope = (ends[0] - ends[1]) / (2 * step)
            assert slope == pytest.approx(float(jnp.sum(gradient * direction)), rel=1e-6)
            assert abs(slope) > 1e-4


def test_second_derivatives_are_exact_at_a_point_that_is_a_centre():
    with x64():
        centers = jnp.array([[0.3, -1.2], [2.0, 0.7], [-1.0, 1.1]])

        def first(point):
            return features.gaussian_features(point[None], centers, sigma=0.8)[0]

        second = jax.jit(jax.hessian(first))
        for index in range(3):
            point, width = centers[index], 0.8**2
            hessian = second(point)
            for phi, center, found in zip(first(point), centers, hessian, strict=True):
                away = point - center
                exact = phi * (jnp.outer(away, away) / width - jnp.eye(2)) / width
                np.testing.assert_allclose(found, exact, atol=1e-12)
        # Rounding below 0, of which the value has nothing.
        many = jnp.asarray(np.random.default_rng(0).normal(size=[200, 5]))
        # As wide as the rounding: of 200 squares some are below 0 before the bound.
        assert (features.gaussian_features(many, many, sigma=1e-8) <= 1).all()
        assert jnp.diag(features.gaussian_features(many, many, sigma=0.5)) == pytest.approx(1)
    # A square that overflows is far away.
    values, slopes = jax.value_and_grad(
        lambda x: features.gaussian_features(x, jnp.zeros([1, 2]), sigma=1.0).sum()
    )(jnp.array([[1e20, 0.0]]))
    assert values == 0 and (slopes == 0).all()


def test_chunks_change_neither_values_nor_gradients(monkeypatch):
    positives, unlabeled = gaussians(2, 25, dim=2)

    def value(unlabeled):
        model = mutual_info.fit_gaussian_ratio(
            positives, unlabeled, positives[:5], sigma=1.0, ridge=0.1
        )
        return mutual_info.objective(model) + jnp.mean(mutual_info.ratio(model, unlabeled) ** 3)

    with x64():
        expected = jax.jit(jax.value_and_grad(value))(jnp.asarray(unlabeled))
        # 50 rows in chunks of 16 leave 2, 25 rows in chunks of 25 leave none.
        for chunk in (16, 25):
            monkeypatch.setattr(features, "CHUNK", chunk)
            # A new function, or the compiled one would be found again.
            found = jax.jit(jax.value_and_grad(lambda x: value(x)))(jnp.asarray(unlabeled))
            np.testing.assert_allclose(found[0], expected[0], rtol=1e-12)
            np.testing.assert_allclose(found[1], expected[1], rtol=1e-9, atol=1e-14)


def naive_scores(fit_and_score, samples, folds, sigmas, ridges, centers):
    scores = np.zeros((len(sigmas), len(ridges)))
    for i, sigma in enumerate(sigmas):
        phi = [naive_features(sample, centers, sigma) for sample in samples]
        for j, ridge in enumerate(ridges):
            for fold in zip(*folds, strict=True):
                rest = [np.delete(f, rows, axis=0) for f, rows in zip(phi, fold, strict=True)]
                held = [f[rows] for f, rows in zip(phi, fold, strict=True)]
                scores[i, j] += fit_and_score(rest, held, ridge) / len(folds[0])
    return scores


def gram_of(phi):
    return phi.T @ phi / len(phi)


@pytest.mark.thorough
def test_cross_validation_equals_a_naive_loop():
    positives, unlabeled = gaussians(3, 23, dim=2)
    centers, sigmas, ridges = unlabeled[:6], np.array([0.4, 1.0, 3.0]), np.array([1e-3, 0.1])
    key, prior = jax.random.key(7), 0.4

    def pu(rest, held, ridge):
        weights, _ = naive_fit(rest[0].mean(0), gram_of(rest[1]), ridge)
        return weights @ gram_of(held[1]) @ weights / 2 - weights @ held[0].mean(0)

    def mixed(phi):
        return prior * gram_of(phi[0]) + (1 - prior) * gram_of(phi[1])

    def pn(rest, held, ridge):
        weights, _ = naive_fit(rest[0].mean(0), mixed(rest), ridge)
        return weights @ mixed(held) @ weights / 2 - weights @ held[0].mean(0)

    def two_output(rest, held, ridge):
        total = 0.0
        for share, r, h in zip((prior, 1 - prior), rest, held, strict=True):
            weights = np.linalg.solve(share * mixed(rest) + ridge * np.eye(6), share * r.mean(0))
            total += share * (weights @ mixed(held) @ weights / 2 - weights @ h.mean(0))
        return total

    with x64():
        folds = selection._folds(key, 5, positives=positives, unlabeled=unlabeled)
        folds = [[row for rows in parts for row in np.asarray(rows)] for parts in folds]
        for sample, rows in zip((positives, unlabeled), folds, strict=True):
            assert sorted(np.concatenate(rows)) == list(range(len(sample)))
            assert {len(fold) for fold in rows} <= {len(sample) // 5, len(sample) // 5 + 1}
        settings = {"sigmas": sigmas, "ridges": ridges, "key": key}
        twin = functools.partial(
            mutual_info.cross_validate_pn, positives, unlabeled, centers, prior=prior, **settings
        )
        for found, naive in (
            (mutual_info.cross_validate(positives, unlabeled, centers, **settings), pu),
            (twin(), pn),
            (twin(two_output=True), two_output),
        ):
            expected = naive_scores(naive, (positives, unlabeled), folds, sigmas, ridges, centers)
            np.testing.assert_allclose(found.scores, expected, rtol=1e-8)
            i, j = np.unravel_index(expected.argmin(), expected.shape)
            assert (found.sigma, found.ridge) == (sigmas[i], ridges[j])


@pytest.mark.thorough
def test_a_fit_that_fails_in_rounding_is_not_chosen():
    positives, unlabeled = (x.astype(np.float32) for x in gaussians(4, 20))
    # Centres twice, no ridge: the Gram matrix is singular, and a width of 1e3 makes all ones of it.
    centers = np.concatenate([unlabeled[:3], unlabeled[:3]])
    chosen = mutual_info.cross_validate(
        positives,
        unlabeled,
        centers,
        sigmas=np.array([1e3, 1.0]),
        ridges=np.array([0.0, 0.1]),
        key=jax.random.key(0),
    )
    assert np.isnan(chosen.scores).any()
    assert np.isfinite([chosen.sigma, chosen.ridge]).all() and float(chosen.ridge) > 0


def test_the_error_falls_with_the_root_of_the_sample():
    def errors(num, repeats=24):
        samples = [gaussians(seed, num) for seed in range(repeats)]
        positives, unlabeled = (np.stack(x).astype(np.float32) for x in zip(*samples, strict=True))

        def one(positives, unlabeled):
            model = mutual_info.fit_gaussian_ratio(
                positives, unlabeled, jnp.linspace(-4, 4, 12)[:, None], sigma=1.0, ridge=1e-2
            )
            return mutual_info.smi_from_objective(mutual_info.objective(model), prior=0.5)

        values = jax.jit(jax.vmap(one))(positives, unlabeled)
        return np.sqrt(np.mean((np.asarray(values) - 0.275200) ** 2))

    few, many = errors(400), errors(6400)
    # 16 times the data is a quarter of the error; 24 repeats know either to about 15 percent.
    assert 2.5 < few / many < 6.5
    assert 0.02 < few < 0.08 and 0.005 < many < 0.02


@pytest.mark.thorough
def test_the_complete_estimates_find_the_truth_and_repeat():
    positives, unlabeled = (x.astype(np.float32) for x in gaussians(5, 1500))
    estimate = jax.jit(functools.partial(mutual_info.pu_smi, prior=0.5, num_centers=50))
    found = estimate(positives, unlabeled, key=jax.random.key(0))
    assert float(found.value) == pytest.approx(0.2752, abs=0.05)
    assert float(found.mean_ratio) == pytest.approx(1, abs=0.05)
    mean = jnp.mean(mutual_info.ratio(found.model, unlabeled))
    assert float(found.mean_ratio) == pytest.approx(float(mean), rel=1e-4)
    assert not mutual_info.diagnose(found.value, found.mean_ratio)
    assert len(np.unique(found.model.centers)) == 50
    assert np.isin(found.model.centers, unlabeled).all()
    again, other = (estimate(positives, unlabeled, key=jax.random.key(seed)) for seed in (0, 1))
    assert float(again.value) == float(found.value) != float(other.value)


@pytest.mark.thorough
@pytest.mark.parametrize("two_output", [False, True])
def test_the_supervised_twins_find_the_truth(two_output):
    positives, _ = gaussians(5, 1000)
    negatives = np.random.default_rng(6).normal(-1, 1, (1500, 1))
    estimate = functools.partial(mutual_info.pn_smi, prior=0.3, two_output=two_output)
    twin = jax.jit(estimate)(positives, negatives, key=jax.random.key(0))
    assert float(twin.value) == pytest.approx(0.263518, abs=0.04)
    assert float(twin.mean_ratio) == pytest.approx(1, abs=0.05)


@pytest.mark.thorough
def test_the_centres_are_rows_of_u_by_the_key_and_not_the_first_ones():
    """Rows of a file are often sorted, so that the first ones are of one kind."""
    positives, unlabeled = gaussians(3, 60)
    unlabeled = np.sort(unlabeled, axis=0)
    settings = {"prior": 0.5, "num_centers": 20, "sigmas": [1.0], "ridges": [0.1]}
    centers = [
        np.asarray(
            mutual_info.pu_smi(
                positives, unlabeled, key=jax.random.key(i), **settings
            ).model.centers
        )
        for i in (0, 1)
    ]
    for found in centers:
        rows = np.searchsorted(unlabeled[:, 0].astype(np.float32), found[:, 0])
        assert len(set(rows)) == 20 and (rows < 20).sum() < 15 and rows.max() > 40
    assert not np.array_equal(*(np.sort(found, axis=0) for found in centers))


def test_the_short_form_is_smaller_by_the_ridge():
    positives, unlabeled = gaussians(7, 400)
    with x64():
        arguments = {"prior": 0.5, "key": jax.random.key(1), "num_centers": 30}
        arguments |= {"sigmas": np.array([0.5]), "ridges": np.array([0.3])}
        full = jax.jit(lambda p, u: mutual_info.pu_smi(p, u, **arguments))(positives, unlabeled)
        arguments["short_form"] = True
        short = jax.jit(lambda p, u: mutual_info.pu_smi(p, u, **arguments))(positives, unlabeled)
        penalty = 0.15 * jnp.sum(full.model.weights**2)
        np.testing.assert_allclose(full.value - short.value, penalty, rtol=1e-9)
        assert float(short.value) < float(full.value) - 0.05
        assert abs(float(full.value) - 0.2752) < abs(float(short.value) - 0.2752)


@pytest.mark.thorough
def test_median_distance_is_the_median_and_falls_back_where_points_coincide():
    points = np.random.default_rng(8).normal(size=(40, 3)) + 1e3
    distances = np.sqrt(((points[:, None] - points) ** 2).sum(-1))[np.triu_indices(40, 1)]
    key = jax.random.key(0)
    with x64():
        found = mutual_info.median_distance(key, points)
        np.testing.assert_allclose(found, np.median(distances), rtol=1e-9)
        twice = np.repeat([[0.0], [1.0]], [9, 1], axis=0)
        np.testing.assert_allclose(mutual_info.median_distance(key, twice), 9 / 45, rtol=1e-12)


def test_the_gradient_of_the_median_distance_is_that_of_finite_differences():
    points = np.random.default_rng(3).normal(size=(8, 2))
    direction = np.random.default_rng(4).normal(size=points.shape)
    key = jax.random.key(0)

    def width(points):
        return mutual_info.median_distance(key, points)

    with x64():
        slope = jnp.sum(jax.grad(width)(jnp.asarray(points)) * direction)
        ends = [float(width(points + sign * 1e-6 * direction)) for sign in (1, -1)]
        assert float(slope) == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)
        # Most pairs coincide: the mean distance to the only other point, that of 9 pairs of 45.
        twice = jnp.repeat(jnp.array([[0.0], [1.0]]), jnp.array([9, 1]), axis=0)
        pulled = np.asarray(jax.grad(width)(twice))[:, 0]
        np.testing.assert_allclose(pulled, [-1 / 45] * 9 + [9 / 45], rtol=1e-12)
        np.testing.assert_array_equal(jax.grad(width)(jnp.ones([4, 2])), 0)


def test_the_gradient_goes_through_an_estimate_whose_widths_are_found():
    positives, unlabeled = gaussians(1, 8, dim=2)

    def value(scale):
        found = mutual_info.pu_smi(
            positives * scale, unlabeled * scale, prior=0.3, key=jax.random.key(0), num_folds=2
        )
        return found.value

    assert np.isfinite(jax.grad(value)(1.0))


def test_types_half_becomes_float32_and_float64_stays():
    positives, unlabeled = gaussians(9, 10)

    def everything(positives, unlabeled):
        model = mutual_info.fit_gaussian_ratio(
            positives, unlabeled, unlabeled[:4], sigma=np.float64(1), ridge=np.float64(0.1)
        )
        ratio = mutual_info.ratio(model, unlabeled)
        value = mutual_info.pu_objective(positives[:, 0], unlabeled[:, 0])
        twin = mutual_info.pn_objective(positives[:, 0], unlabeled[:, 0], prior=np.float64(0.3))
        smi = [
            mutual_info.smi_from_objective(positives[:, 0], prior=prior)
            for prior in (0.3, np.float64(0.3), jnp.float32(0.3), jnp.bfloat16(0.25))
        ]
        return *model[:3], ratio, mutual_info.objective(model), value, twin, *smi

    def all_types(dtype):
        arguments = np.asarray(positives, dtype), np.asarray(unlabeled, dtype)
        return {x.dtype.name for x in jax.eval_shape(everything, *arguments)}

    assert all_types(jnp.bfloat16) == all_types(jnp.float16) == {"float32"}
    with x64():
        assert all_types(jnp.float64) == {"float64"}
        assert all_types(jnp.float32) == {"float32"}


def test_mutual_information_of_half_precision_is_computed_in_float32():
    objectives = np.array([-0.75, -0.5625, -0.5], jnp.bfloat16)
    found = mutual_info.smi_from_objective(objectives, prior=0.3)
    np.testing.assert_allclose(found, 3 / 7 * np.array([0.25, 0.0625, 0]), rtol=1e-6)
    # Lists are arrays, and numbers stay numbers in double precision.
    np.testing.assert_allclose(
        mutual_info.smi_from_objective([-0.75, -0.5], prior=0.5), [0.25, 0], rtol=1e-6
    )
    number = mutual_info.smi_from_objective(-0.5 - 1e-12, prior=0.5)
    assert isinstance(number, float) and number == pytest.approx(1e-12, rel=1e-3)
    # 1 - 0.0390625 is no number of eight bits.
    prior = jnp.bfloat16(0.0390625)
    found = mutual_info.smi_from_objective(-1.5, prior=prior)
    assert found.dtype == jnp.float32
    assert float(found) == pytest.approx(0.0390625 / 0.9609375, rel=1e-6)
    found = mutual_info.pn_objective(np.ones(2), np.full(2, 2.0), prior=prior)
    assert float(found) == pytest.approx((0.0390625 + 4 * 0.9609375) / 2 - 1, rel=1e-6)


def test_points_far_from_the_origin_keep_float32_accuracy():
    positives, unlabeled = (np.round(x * 8).astype(np.float32) / 8 for x in gaussians(10, 50))
    near = mutual_info.gaussian_features(positives, unlabeled, sigma=1.0)
    far = mutual_info.gaussian_features(positives + 4096, unlabeled + 4096, sigma=1.0)
    np.testing.assert_allclose(near, far, atol=1e-5)


def test_monitors_say_what_is_wrong_in_words():
    assert mutual_info.diagnose(0.5, 1.0) == mutual_info.diagnose(-0.05, 0.9) == []
    (above,) = mutual_info.diagnose(0.8, 1.1)
    assert "is 0.800, but cannot exceed 0.5" in above
    (below,) = mutual_info.diagnose(-0.3, 1.0)
    assert "is -0.300, but cannot be negative" in below
    (off,) = mutual_info.diagnose(jnp.float32(0.2), jnp.float32(0.5))
    assert "averages 0.500" in off
    assert len(mutual_info.diagnose(0.9, 3.0)) == 2
    (diverged,) = mutual_info.diagnose(float("nan"), float("inf"))
    assert "diverged" in diverged
    assert mutual_info.diagnose(0.65, 1.0) == mutual_info.diagnose(-0.15, 1.0) == []
    assert mutual_info.diagnose(0.55, 1.0, smi_slack=0.01)
    assert mutual_info.diagnose(0.3, 1.2, ratio_tolerance=0.1)


@pytest.mark.parametrize("prior", [0.3, 0.5, 0.7])
@pytest.mark.parametrize("shift", [3.0, 6.0])
def test_the_slacks_are_about_two_standard_errors_of_a_small_held_out_sample(prior, shift):
    rng = np.random.default_rng(0)
    positives = rng.normal(shift, 1, (4000, 50))
    unlabeled = rng.normal(0, 1, (4000, 200)) + shift * (rng.random((4000, 200)) < prior)

    def ratio(x):
        return 1 / (prior + (1 - prior) * np.exp(-shift * (x - shift / 2)))

    objectives = (ratio(unlabeled) ** 2).mean(1) / 2 - ratio(positives).mean(1)
    smi = np.asarray(mutual_info.smi_from_objective(objectives, prior=prior))
    mean_ratio = ratio(unlabeled).mean(1)
    assert 0.13 < 2 * np.std(smi) < 0.25
    assert 0.07 < 2 * np.std(mean_ratio) < 0.25
    # So a true ratio is rarely accused, which half the slack of the SMI would not keep to.
    found = [mutual_info.diagnose(*pair) for pair in zip(smi, mean_ratio, strict=True)]
    assert np.mean([bool(said) for said in found]) < 0.06
    if shift == 6:
        assert np.mean(np.asarray(smi) > 0.6) > 0.06 > 3 * np.mean(np.asarray(smi) > 0.7)


def test_wrong_arguments_are_named():
    points, key = np.zeros((4, 2)), jax.random.key(0)
    for prior in (0, 1, float("nan")):
        with pytest.raises(ValueError, match=f"prior is {prior}"):
            mutual_info.smi_from_objective(0.0, prior=prior)
    fit = mutual_info.fit_gaussian_ratio
    with pytest.raises(ValueError, match=r"unlabeled has shape \(4, 3\).*positives, \(4, 2\)"):
        fit(points, np.zeros((4, 3)), points, sigma=1.0, ridge=0.1)
    with pytest.raises(ValueError, match=r"positives has shape \(0, 2\)"):
        fit(points[:0], points, points, sigma=1.0, ridge=0.1)
    with pytest.raises(ValueError, match="sigma is 0"):
        fit(points, points, points, sigma=0, ridge=0.1)
    with pytest.raises(ValueError, match="ridge is -1"):
        fit(points, points, points, sigma=1, ridge=-1)
    validate = functools.partial(mutual_info.cross_validate, points, points, points, key=key)
    with pytest.raises(ValueError, match="num_folds is 5.*number of positives, 4"):
        validate(sigmas=np.ones(1), ridges=np.ones(1))
    with pytest.raises(ValueError, match=r"sigmas has shape \(\)"):
        validate(sigmas=1.0, ridges=np.ones(1), num_folds=2)
    estimate = functools.partial(mutual_info.pu_smi, key=key, num_folds=2)
    with pytest.raises(ValueError, match="one and the same point"):
        estimate(points, points, prior=0.5)
    with pytest.raises(ValueError, match="unlabeled has 1 examples .* not finite.* row 2"):
        estimate(points, np.array([[0.0, 1], [1, 1], [np.nan, 0], [1, 0]]), prior=0.5)
    with pytest.raises(ValueError, match="num_centers is 0"):
        estimate(points, points, prior=0.5, num_centers=0)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"sigma": np.ones(6)}, r"sigma has shape \(6,\), but must be a single number"),
        ({"ridge": np.ones([6, 6])}, r"ridge has shape \(6, 6\)"),
        ({"sigma": np.inf}, "sigma is inf, but must be above 0 and finite"),
        ({"sigma": "1"}, "sigma is '1', but must be above 0"),
        ({"ridge": None}, "ridge is None, but must be 0 or more"),
    ],
)
def test_a_width_or_ridge_that_would_broadcast_is_refused(changes, said):
    """One width per centre would be another function of the points."""
    positives, unlabeled = gaussians(0, 6)
    settings = {"sigma": 1.0, "ridge": 0.1} | changes
    with pytest.raises(ValueError, match=said):
        mutual_info.fit_gaussian_ratio(positives, unlabeled, positives, **settings)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"num_centers": 2.5}, "num_centers is 2.5; accepted: an integer from 1"),
        ({"num_folds": 2.5}, "num_folds is 2.5; accepted: an integer from 2"),
        ({"sigmas": "abc"}, "sigmas is 'abc'; accepted: an array of real numbers"),
        ({"sigmas": [np.inf]}, r"sigmas is \[inf\], but must be above 0 and finite"),
        ({"key": 0}, "key is 0; accepted: one jax.random key"),
    ],
)
def test_settings_of_the_estimate_that_cannot_be_are_named(changes, said):
    positives, unlabeled = gaussians(0, 20)
    options = {"key": jax.random.key(0), "prior": 0.5} | changes
    with pytest.raises(ValueError, match=said):
        mutual_info.pu_smi(positives, unlabeled, **options)


def test_the_median_looks_at_random_points_where_there_are_many():
    points = jnp.concatenate([jnp.zeros([500, 1]), jnp.arange(500.0)[:, None]])
    found = {float(features.median_distance(jax.random.key(i), points)) for i in range(2)}
    assert len(found) == 2 and min(found) > 10


def test_the_moments_of_other_folds_weigh_their_sizes():
    mean = jnp.array([[1.0], [2.0], [6.0]])
    found = selection._others(
        selection._Moments(mean, mean[:, :, None], jnp.array([3.0, 3.0, 1.0]))
    )
    expected = [(3 * 2 + 6) / 4, (3 * 1 + 6) / 4, (3 * 1 + 3 * 2) / 6]
    np.testing.assert_allclose(found.mean[:, 0], expected, rtol=1e-6)
    np.testing.assert_allclose(found.gram[:, 0, 0], expected, rtol=1e-6)
    np.testing.assert_array_equal(found.sizes, [4, 4, 6])


def test_the_best_of_a_grid_has_its_own_width_and_ridge():
    sigmas, ridges = jnp.array([1.0, 2.0, 4.0]), jnp.array([0.1, 0.3])
    for i, j in np.ndindex(3, 2):
        scores = jnp.ones([3, 2]).at[i, j].set(0.0).at[i, 1 - j].set(jnp.nan)
        best = selection._best(sigmas, ridges, scores)
        assert (best.sigma, best.ridge) == (sigmas[i], ridges[j])


@pytest.mark.parametrize("key", ["k", None, 3])
def test_a_median_distance_needs_a_key(key):
    with pytest.raises(ValueError, match=f"^key is {key!r}; accepted: one jax.random key"):
        features.median_distance(key, np.zeros([3, 2]))
