"""Linear heads: against a loop in numpy, under vmap, on features where the answer is known."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import linear_head, metrics, risks
from tests.x64 import x64


def clouds(seed=0, *, n_p=20, n_hidden=60, n_n=320, d=5):
    """Features, labels and truth of two clouds two deviations apart."""
    rng = np.random.default_rng(seed)
    truth = np.repeat([1, 1, 0], [n_p, n_hidden, n_n])
    features = rng.normal(size=[len(truth), d]) + truth[:, None]
    labeled = np.arange(len(truth)) < n_p
    return features.astype(np.float32), labeled.astype(np.float32), truth


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def naive_gradient(weights, bias, features, labeled, *, prior, target=0.5):
    """Gradient of the imbalanced nnPU update, worked out on paper for the sigmoid loss."""
    scores = features @ weights + bias
    slope = sigmoid(scores) * (1 - sigmoid(scores))
    is_p, is_u = labeled == 1, labeled == 0
    n_p, n_u = max(is_p.sum(), 1), max(is_u.sum(), 1)
    scale = (1 - target) / (1 - prior)
    negative_part = scale * (
        sigmoid(scores)[is_u].sum() / n_u - prior * sigmoid(scores)[is_p].sum() / n_p
    )
    of_negative = scale * slope * (is_u / n_u - prior * is_p / n_p)
    of_scores = of_negative - target * slope * is_p / n_p if negative_part >= 0 else -of_negative
    return features.T @ of_scores, of_scores.sum()


@pytest.mark.thorough
def test_it_is_adam_on_the_imbalanced_risk_written_out_in_numpy():
    with x64():
        features, labeled, _ = clouds()
        features = features.astype(np.float64)
        key = jax.random.key(3)
        options = {"prior": 0.15, "num_epochs": 3, "batch_size": 64, "learning_rate": 0.05}
        head, scores = linear_head.fit(key, features, labeled, watched=features[:7], **options)

        start_key, order_key = jax.random.split(key)
        d = features.shape[1]
        start = np.asarray(jax.random.uniform(start_key, [d + 1], jnp.float64, -(d**-0.5), d**-0.5))
        numbers, first, second, step, after = start, 0.0, 0.0, 0, []
        for epoch_key in jax.random.split(order_key, 3):
            order = np.asarray(jax.random.permutation(epoch_key, len(features)))
            for rows in order[: len(order) // 64 * 64].reshape(-1, 64):
                of_weights, of_bias = naive_gradient(
                    numbers[:d], numbers[d], features[rows], labeled[rows], prior=0.15
                )
                gradient, step = np.append(of_weights, of_bias), step + 1
                first = 0.9 * first + 0.1 * gradient
                second = 0.999 * second + 0.001 * gradient**2
                size = np.sqrt(second / (1 - 0.999**step)) + 1e-8
                numbers = numbers - 0.05 * first / (1 - 0.9**step) / size
            after.append(features[:7] @ numbers[:d] + numbers[d])
        np.testing.assert_allclose(head.weights, numbers[:d], rtol=1e-8)
        np.testing.assert_allclose(head.bias, numbers[d], rtol=1e-8)
        np.testing.assert_allclose(scores, after, rtol=1e-8)


@pytest.mark.thorough
def test_many_priors_in_one_program_equal_one_after_another():
    features, labeled, _ = clouds()
    keys = jax.random.split(jax.random.key(0), 2)
    priors = jnp.asarray([0.02, 0.15, 0.6])

    def last(key, prior):
        return linear_head.fit(key, features, labeled, prior=prior, num_epochs=2, batch_size=100)[0]

    together = jax.vmap(jax.vmap(last, (None, 0)), (0, None))(keys, priors)
    for i, key in enumerate(keys):
        for j, prior in enumerate(priors):
            alone = last(key, prior)
            np.testing.assert_allclose(together.weights[i, j], alone.weights, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(together.bias[i, j], alone.bias, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_it_finds_the_hidden_positives_where_unlabeled_as_negative_finds_none():
    features, labeled, truth = clouds(d=20)

    def outcome(risk):
        options = {"prior": 0.16, "num_epochs": 60, "learning_rate": 0.03, "risk": risk}
        head, _ = linear_head.fit(jax.random.key(1), features, labeled, **options)
        scores = np.asarray(head(features))
        return metrics.accuracy(scores, truth), np.mean(scores[(truth == 1) & (labeled == 0)] > 0)

    def as_negative(scores, labeled, *, prior):
        del prior
        return risks.weighted_bce(scores, labeled, positive_weight=1.0)

    accuracy, recall = outcome(risks.imbalanced_nnpu)
    assert accuracy > 0.85 and recall > 0.9
    assert outcome(as_negative)[1] < 0.5


@pytest.mark.thorough
def test_the_gradient_goes_through_training():
    with x64():
        features, labeled, _ = clouds()

        def outcome(prior):
            options = {"num_epochs": 5, "batch_size": 200, "learning_rate": 0.05}
            head, _ = linear_head.fit(
                jax.random.key(0), features.astype(np.float64), labeled, prior=prior, **options
            )
            return head.bias

        step = 1e-5
        by_differences = (outcome(0.2 + step) - outcome(0.2 - step)) / (2 * step)
        np.testing.assert_allclose(jax.grad(outcome)(0.2), by_differences, rtol=1e-4)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"prior": 0.0}, "prior is 0.0; accepted"),
        ({"prior": 1.0}, "prior is 1.0; accepted"),
        ({"prior": float("nan")}, "prior is nan; accepted"),
        ({"batch_size": 401}, "batch_size is 401; accepted: 1 to 400"),
        ({"batch_size": 5.0}, "batch_size is 5.0; accepted: an integer"),
        ({"num_epochs": 0}, "num_epochs is 0; accepted"),
        ({"num_epochs": 2.0}, "num_epochs is 2.0; accepted: an integer"),
        ({"learning_rate": float("inf")}, "learning_rate is inf; accepted"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; accepted"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; accepted"),
        ({"watched": jnp.zeros([3, 4])}, r"watched has shape \(3, 4\); accepted"),
        ({"watched": [["a", "b"]]}, r"watched is \[\['a', 'b'\]\]; accepted: an array of real num"),
        (
            {"watched": np.ones([3, 2], complex)},
            r"watched is complex.*; accepted: an array of real",
        ),
        ({"learning_rate": jnp.ones(2)}, "learning_rate has shape"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    features, labeled, _ = clouds()
    with pytest.raises(ValueError, match=message):
        linear_head.fit(jax.random.key(0), features, labeled, **({"prior": 0.2} | changes))


def test_shapes_that_do_not_fit_are_refused():
    features, labeled, _ = clouds()
    with pytest.raises(ValueError, match=r"labeled has shape \(3,\)"):
        linear_head.fit(jax.random.key(0), features, labeled[:3], prior=0.2)
    with pytest.raises(ValueError, match="features has shape"):
        linear_head.fit(jax.random.key(0), features[0], labeled, prior=0.2)
    for wrong in (None, [[1.0], [1.0, 2.0]], [["a"]], np.ones([3, 2], complex)):
        with pytest.raises(ValueError, match="^features is .*; accepted: an array of real numbers"):
            linear_head.fit(jax.random.key(0), wrong, labeled, prior=0.2)


@pytest.mark.parametrize("codes", [lambda y: y + 1, lambda y: y * np.nan, lambda y: y.astype(str)])
def test_labels_of_another_coding_are_refused_and_not_taken_for_positives(codes):
    features, labeled, _ = clouds()
    with pytest.raises(ValueError, match="^labeled .*0/1 or -1/1"):
        linear_head.fit(jax.random.key(0), features, codes(np.asarray(labeled)), prior=0.2)


def test_rows_without_numbers_are_refused():
    _, labeled, _ = clouds()
    with pytest.raises(ValueError, match=r"features has shape \(400, 0\)"):
        linear_head.fit(jax.random.key(0), np.zeros([400, 0]), labeled, prior=0.2)


def test_the_rate_may_be_traced_and_the_watched_rows_a_list():
    features, labeled, _ = clouds()
    features, labeled = np.asarray(features), np.asarray(labeled)

    def last_scores(rate):
        _, scores = linear_head.fit(
            *(jax.random.key(0), features, labeled),
            **{"prior": 0.2, "num_epochs": 2, "learning_rate": rate},
            watched=features[:3].tolist(),
        )
        return scores[-1]

    rates = np.array([1e-3, 1e-2])
    both = jax.vmap(last_scores)(rates)
    np.testing.assert_allclose(both, [last_scores(rate) for rate in rates], rtol=1e-5)


@pytest.mark.parametrize("key", [0, None, np.zeros(3)])
def test_a_key_that_is_none_is_named(key):
    with pytest.raises(ValueError, match=r"key is .*; accepted: one jax.random key"):
        linear_head.fit(key, np.zeros([8, 2]), np.ones(8), prior=0.5, batch_size=4)


@pytest.mark.parametrize(
    "changes, said",
    [
        ({"prior": jnp.array([0.2, 0.4])}, "several at once by jax.vmap"),
        ({"prior": "auto"}, "prior is 'auto'; accepted: a number"),
        ({"prior": None}, "prior is None; accepted: a number"),
        ({"risk": "nnpu"}, "risk is 'nnpu'; accepted: a function"),
    ],
)
def test_a_prior_or_risk_of_another_kind_is_named(changes, said):
    options = {"prior": 0.5, "batch_size": 4} | changes
    with pytest.raises(ValueError, match=said):
        linear_head.fit(jax.random.key(0), np.zeros([8, 2]), np.ones(8), **options)
