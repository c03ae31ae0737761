"""NcPU: prototypes, thresholds, the gate, and what a step changes."""

import functools
import logging
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import methods
from pujax.configs import ncpu as tasks
from pujax.data import dataset, sources
from pujax.methods._common import alignment, network, views
from pujax.methods.ncpu import disambiguation, length
from pujax.training import config as config_lib
from pujax.training import train_step
from pujax.training.config import data_section
from tests import tiny
from tests.x64 import x64

RNG = np.random.default_rng(0)


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def small(*, frozen=False, **changes):
    """Dense layers, or a residual network of which the first half stays as it is."""
    if frozen:
        changes |= {"options": {"width": 4, "stage_sizes": (1, 1)}, "frozen_stages": 1}
        return tiny.config("ncpu", model="resnet_small", freeze_norm="on", **changes)
    return tiny.config("ncpu", model="mlp", options={"hidden": (16,)}, **changes)


@functools.cache
def problem():
    return tiny.problem()


@functools.cache
def started(**changes):
    """A configuration, its compiled step, a first state, and a batch of the third epoch."""
    config = small(**changes)
    made = tiny.Trainer(config, problem())
    (stage,) = made.method.stages
    state = train_step.init_state(stage, jax.random.key(0), None, made.arrays, made.mesh)
    seen = train_step.stage_data(stage, state, made.arrays, made.mesh, batch_size=64)
    plan = train_step.epoch_plan(stage, jax.random.key(1), 2, made.arrays)
    batch = tiny.gather(seen, plan, 0, epoch=2, step=0)
    return config, jax.jit(stage.step), state, batch


KEY = jax.random.key(7)


def positive(scores):
    return 1 / (1 + np.exp(-np.asarray(scores)))


@pytest.mark.parametrize("momentum", [0.99, 0.5, 0.0])
def test_prototypes_of_a_batch_are_those_of_its_examples_one_after_another(momentum):
    with x64():
        vectors, classes = unit(RNG.normal(size=(9, 4))), RNG.integers(0, 2, 9)
        start = unit(RNG.normal(size=(2, 4)))
        expected = start.copy()
        for vector, index in zip(vectors, classes, strict=True):
            expected[index] = momentum * expected[index] + (1 - momentum) * vector
        found = disambiguation.update_prototypes(start, vectors, classes, momentum=momentum)
        np.testing.assert_allclose(found, unit(expected), atol=1e-12)


def test_a_class_that_the_batch_lacks_keeps_its_prototype_and_zeros_stay_zeros():
    start = np.float32([[0, 0], [0.6, 0.8]])
    found = disambiguation.update_prototypes(
        start, np.float32([[1, 0]]), np.array([1]), momentum=0.9
    )
    np.testing.assert_array_equal(found[0], [0, 0])
    np.testing.assert_allclose(found[1], unit(np.array([0.64, 0.72])), rtol=1e-6)


def test_prototype_probabilities_are_a_softmax_of_products():
    with x64():
        prototypes, vectors = unit(RNG.normal(size=(2, 3))), unit(RNG.normal(size=(5, 3)))
        products = np.exp(vectors @ prototypes.T)
        found = disambiguation.prototype_probabilities(prototypes, vectors)
        np.testing.assert_allclose(found, products[:, 1] / products.sum(1), atol=1e-12)
        none = disambiguation.prototype_probabilities(np.zeros((2, 3)), vectors)
        np.testing.assert_array_equal(none, np.full(5, 0.5))
        ends = disambiguation.prototype_probabilities(
            np.array([[-1.0, 0], [1, 0]]), np.array([[1.0, 0], [-1, 0]])
        )
        # The bounds without a temperature: 1 / (1 + e^2) and its complement.
        np.testing.assert_allclose(ends, [1 - 1 / (1 + math.e**2), 1 / (1 + math.e**2)])


@pytest.mark.parametrize(("share", "clipped"), [(0.3, False), (0.05, True)])
def test_the_threshold_of_a_constant_prediction_has_a_closed_form(share, clipped):
    with x64():
        state = disambiguation.first_threshold(np.float64)
        # P is surer of itself than U, and does not count.
        probabilities, labeled = np.array([0.999, share, share]), np.array([1, 0, 0])
        steps = 200
        for _ in range(steps):
            state = disambiguation.update_threshold(state, probabilities, labeled, momentum=0.99)
        kept = 0.99**steps
        confidence = kept / 2 + (1 - kept) * (1 - share)
        assert (confidence > disambiguation.MOST_CONFIDENT) == clipped
        np.testing.assert_allclose(state.confidence, min(confidence, 0.8), rtol=1e-12)
        shares = kept / 2 + (1 - kept) * np.array([1 - share, share])
        np.testing.assert_allclose(state.shares, shares, rtol=1e-12)
        thresholds = disambiguation.class_thresholds(state)
        expected = [state.confidence, state.confidence * shares[1] / shares[0]]
        np.testing.assert_allclose(thresholds, expected, rtol=1e-12)


def test_a_batch_without_unlabeled_examples_leaves_the_threshold():
    state = disambiguation.first_threshold()
    after = disambiguation.update_threshold(state, jnp.array([0.9, 0.8]), jnp.ones(2), momentum=0.5)
    jax.tree.map(np.testing.assert_array_equal, after, state)


def test_the_gate_changes_the_target_of_sure_negatives_and_of_nothing_else():
    labels = jnp.array([1.0, 0.7, 0.7, 0.2])
    probabilities, labeled = jnp.array([0.01, 0.01, 0.6, 0.31]), jnp.array([1, 0, 0, 0])
    found = disambiguation.gated_targets(labels, probabilities, labeled, jnp.float32(0.7))
    np.testing.assert_array_equal(found, jnp.array([1.0, 0.0, 0.7, 0.2]))
    found = disambiguation.gated_targets(labels, probabilities, labeled, jnp.float32(0.69))
    np.testing.assert_array_equal(found, jnp.array([1.0, 0.0, 0.7, 0.0]))


def test_labels_follow_the_nearest_prototype_and_those_of_p_never_move():
    labels, labeled = jnp.array([1.0, 0.0, 0.5, 1.0]), jnp.array([1, 0, 0, 0])
    nearest = jnp.array([0.2, 0.5, 0.4, 0.8])
    found = disambiguation.update_labels(labels, nearest, labeled, momentum=0.99)
    np.testing.assert_allclose(found, [1, 0.01, 0.495, 1], rtol=1e-6)
    assert found[0] == 1


def test_a_score_of_zero_is_predicted_positive():
    scores = jnp.array([0.0, -0.0, -1e-9, -1.0])
    found = disambiguation.pseudo_classes(scores, jnp.array([0, 0, 0, 1]))
    np.testing.assert_array_equal(found, [1, 1, 0, 1])


def test_the_class_loss_is_a_mean_over_p_and_a_mean_over_u():
    with x64():
        scores, targets = RNG.normal(size=5), RNG.random(5)
        labeled = np.array([1, 0, 0, 1, 0])
        p = positive(scores)
        each = -(targets * np.log(p) + (1 - targets) * np.log(1 - p))
        expected = each[labeled == 1].sum() / (2 + 1e-8) + each[labeled == 0].sum() / (3 + 1e-8)
        found = disambiguation.class_balanced_cross_entropy(scores, targets, labeled)
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        alone = disambiguation.class_balanced_cross_entropy(scores, targets, np.zeros(5))
        np.testing.assert_allclose(alone, each.sum() / (5 + 1e-8), rtol=1e-12)


def test_pairs_at_one_half_are_those_of_one_predicted_class():
    p = RNG.random(12)
    both = np.stack([p, 1 - p], axis=1)
    for threshold in (0.5, 0.7):
        expected = both @ both.T >= threshold
        np.testing.assert_array_equal(alignment.same_class(p, threshold=threshold), expected)
    sides = p >= 0.5
    np.testing.assert_array_equal(
        alignment.same_class(p, threshold=0.5), sides[:, None] == sides[None, :]
    )


def test_a_run_too_short_for_its_labels_says_how_long_it_would_have_to_be(caplog):
    with caplog.at_level(logging.WARNING):
        made = methods.build(small(label_momentum=0.99), tiny.problem().info)
    assert "method.num_epochs is 4, and stored labels of unlabeled examples need 70" in caplog.text
    assert "need 70" in made.diagnose({})[0]
    caplog.clear()
    quick = small(target_momentum=0.5)
    assert methods.build(quick, tiny.problem().info).diagnose({}) == [] and not caplog.text


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augment": False}, "method.augment is False; accepted: True: without random views"),
        ({"align_clamp": "all"}, "method.align_clamp is 'all'; accepted: 'components', 'none'"),
        ({"align_weight": -1.0}, "method.align_weight is -1.0; accepted"),
        ({"pair_threshold": 1.5}, "method.pair_threshold is 1.5; accepted"),
        ({"target_momentum": 2.0}, "method.target_momentum is 2.0; accepted"),
        ({"clip_norm": 0.0}, "method.clip_norm is 0.0; accepted"),
        ({"crop_area": 0.0}, r"method.crop_area is 0.0; accepted: a number in \(0, 1\]"),
        ({"crop_area": 1.5}, r"method.crop_area is 1.5; accepted: a number in \(0, 1\]"),
        ({"entropy_weight": -0.1}, "method.entropy_weight is -0.1; accepted"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        methods.build(small(**changes), tiny.problem().info)


def passes(config, state, batch):
    """Weak scores and features, predictions and target vectors of a step, by the modules."""
    net = network.build(
        config, problem().info, embedding_dim=0, aligned_dim=config.method.align_dim
    )
    weak_key, strong_key = jax.random.split(KEY)
    seen = [
        views.cropped(weak_key, batch.inputs, config.method),
        *(views.random_view(k, batch.inputs, config.method) for k in jax.random.split(strong_key)),
    ]
    weak, strong, other = (net.normalize(view) for view in seen)

    def apply(stats, view, with_heads=True, params=state.params):
        variables = {"params": params, "batch_stats": stats}
        return net.module.apply(variables, view, True, False, with_heads, mutable=["batch_stats"])

    first, moved = apply(state.batch_stats, weak, False)
    second, moved = apply(moved["batch_stats"], strong)
    # The target looks after it has followed the online network.
    followed = jax.tree.map(
        lambda x, y: (x + y) / 2,
        state.target.weights,
        {name: state.params[name] for name in state.target.weights},
    )
    third, _ = apply(state.batch_stats, other, params={**state.params, **followed})
    found = (first.logits, first.features, second.prediction, third.aligned)
    return [np.asarray(x, np.float64) for x in found], moved["batch_stats"]


def rate_of_third_epoch(rate):
    """Of four, along the cosine."""
    return rate * (0.001 + 0.999 * (1 + math.cos(math.pi / 2)) / 2)


@pytest.mark.parametrize("warmup_epochs", [1, 4])
def test_a_step_reports_and_keeps_what_the_paper_says(warmup_epochs):
    changes = {"warmup_epochs": warmup_epochs, "label_momentum": 0.9, "align_clamp": "none"}
    changes |= {"target_momentum": 0.5, "prototype_momentum": 0.5, "threshold_momentum": 0.5}
    # Then the first step goes along the gradient alone.
    changes |= {"clip_norm": 1e6, "weight_decay": 0.0, "learning_rate": 0.1}
    config, step, state, batch = started(**changes)
    other = jax.tree.map(lambda x: x + 0.1 * jnp.cos(7 * x), state.target.weights)
    state = state._replace(target=state.target._replace(weights=other))
    rng = np.random.default_rng(3)
    labels = jnp.where(state.labels > 0, 1, rng.random(len(state.labels)).astype(np.float32))
    prototypes = unit(rng.normal(size=state.prototypes.shape)).astype(np.float32)
    state = state._replace(labels=labels, prototypes=jnp.asarray(prototypes))
    after, metrics = step(state, batch, KEY)

    (z, features, q, k), stats = passes(config, state, batch)
    labeled = np.asarray(batch.labeled) > 0
    f, past = positive(z), warmup_epochs == 1
    f_negative = 1 - f
    confidence = 0.5 * 0.5 + 0.5 * np.maximum(f, f_negative)[~labeled].mean()
    shares = 0.5 * 0.5 + 0.5 * np.array([f_negative[~labeled].mean(), f[~labeled].mean()])
    least = shares[0] / shares.max() * confidence
    # The threshold before this batch, one half, would let other examples through.
    assert np.any(((f_negative >= least) != (f_negative >= 0.5))[~labeled])
    stored = np.asarray(labels, np.float64)[np.asarray(batch.ids)]
    nearest = (q @ prototypes[1] >= q @ prototypes[0]).astype(float)
    if past:
        stored = np.where(labeled, 1, 0.9 * stored + 0.1 * nearest)
    targets = stored.copy()
    if past:
        targets[~labeled & (f_negative >= least)] = 0
    each = -(targets * np.log(f) + (1 - targets) * np.log(f_negative))
    classification = each[labeled].mean() + each[~labeled].mean()
    rows = []
    for i in range(len(z)):
        pulls = [2 * (1 - q[i] @ k[i])]
        for j in range(len(z)):
            if past and i != j and (f[i] >= 0.5) == (f[j] >= 0.5):
                pulls.append(2 * np.sqrt(max(1 - q[i] @ k[j], 1e-8)))
        rows.append(np.mean(pulls))
    entropy = -np.mean(f * np.log(f) + f_negative * np.log(f_negative))
    ramp = 1.0 if past else 2 / 4
    np.testing.assert_allclose(metrics["loss_classification"], classification, rtol=1e-4)
    np.testing.assert_allclose(metrics["loss_align"], np.mean(rows), rtol=1e-4)
    np.testing.assert_allclose(metrics["loss_entropy"], entropy, rtol=1e-4)
    np.testing.assert_allclose(metrics["threshold_negative"], least, rtol=1e-5)
    whole = classification + 50 * np.mean(rows) + 5 * ramp * entropy
    np.testing.assert_allclose(metrics["loss"], whole, rtol=1e-4)

    # Both losses of the scores move the classifier; pairs are chosen by constants.
    slopes = (f - targets) / np.where(labeled, labeled.sum(), (~labeled).sum())
    slopes -= 5 * ramp * z * f * f_negative / len(z)
    moved = jax.tree.map(jnp.subtract, state.params["classifier"], after.params["classifier"])
    by_hand = rate_of_third_epoch(0.1) * np.append(features.T @ slopes, slopes.sum())
    found = np.append(moved["kernel"], moved["bias"])
    np.testing.assert_allclose(found, by_hand, rtol=1e-3, atol=1e-3 * np.abs(by_hand).max())

    np.testing.assert_allclose(after.labels[batch.ids], stored, atol=1e-6)
    others = np.setdiff1d(np.arange(len(labels)), batch.ids)
    np.testing.assert_array_equal(after.labels[others], labels[others])
    classes = (labeled | (z >= 0)).astype(int)
    moved = np.asarray(prototypes, np.float64)
    for vector, index in zip(q, classes, strict=True):
        moved[index] = 0.5 * moved[index] + 0.5 * vector
    # The new prototypes would give other labels.
    assert np.any(((q @ moved[1] >= q @ moved[0]) != nearest)[~labeled])
    np.testing.assert_allclose(after.prototypes, unit(moved), atol=1e-5)
    np.testing.assert_allclose(after.threshold.confidence, confidence, rtol=1e-5)
    # Weak before strong; nothing else moves the online statistics.
    jax.tree.map(
        lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5),
        after.batch_stats,
        stats,
    )


def test_the_target_holds_backbone_and_projection_and_follows_the_weights_before_the_step():
    _, step, state, batch = started(target_momentum=0.99)
    parts = {"backbone", "aligned_hidden", "aligned_norm", "aligned_out"}
    assert set(state.target.weights) == parts
    moved = jax.tree.map(lambda x: x + 1.0, state.params)
    after, _ = step(state._replace(params=moved), batch, KEY)
    for name in parts:
        jax.tree.map(
            lambda new, old: np.testing.assert_allclose(new, old + 0.01, rtol=1e-4, atol=1e-5),
            after.target.weights[name],
            state.target.weights[name],
        )


@pytest.mark.parametrize("frozen", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_steps_are_no_longer_than_the_clip_and_what_moves_is_as_long(frozen):
    """The decay of what moves comes on top: it is added after the clip."""
    changes = {"clip_norm": 0.1, "weight_decay": 0.5, "learning_rate": 0.1}
    _, step, state, batch = started(**changes, frozen=frozen)
    after, _ = step(state, batch, KEY)
    rate = rate_of_third_epoch(0.1)

    def clipped(new, old):
        """What is left of the step of one array without its decay."""
        new, old = np.float64(new), np.float64(old)
        return (old - new) / rate - 0.5 * old * np.any(new != old)

    parts = jax.tree.map(clipped, after.params, state.params)
    found = math.sqrt(sum(np.sum(x**2) for x in jax.tree.leaves(parts)))
    np.testing.assert_allclose(found, 0.1, rtol=1e-2)


def test_before_the_warm_up_ends_no_label_moves_and_no_two_examples_are_a_pair():
    _, step, state, batch = started(warmup_epochs=4, align_clamp="none")
    classifier = jax.tree.map(lambda x: 3 * jnp.sin(9 * x), state.params["classifier"])
    loud = state._replace(prototypes=jnp.ones_like(state.prototypes))
    after, metrics = step(loud, batch, KEY)
    np.testing.assert_array_equal(after.labels, state.labels)
    again, same = step(loud._replace(labels=jnp.where(loud.labels > 0, 1, 0.4)), batch, KEY)
    assert same["loss_classification"] != metrics["loss_classification"]
    turned = loud._replace(params={**loud.params, "classifier": classifier})
    _, turned = step(turned, batch, KEY)
    np.testing.assert_array_equal(turned["loss_align"], metrics["loss_align"])


@pytest.mark.parametrize("gate", [True, False])
def test_the_gate_holds_negatives_where_prototypes_call_everything_positive(gate):
    """Two clouds on the circle, a linear classifier, and prototypes that know nothing."""
    rng = np.random.default_rng(0)
    is_positive = np.arange(200) < 80
    center = np.where(is_positive[:, None], [1.0, 0.35], [1.0, -0.35])
    vectors = jnp.asarray(unit(center + rng.normal(0, 0.05, (200, 2))), jnp.float32)
    labeled = jnp.asarray(np.arange(200) < 20, jnp.float32)

    def scores(weights):
        return 8 * (vectors @ weights[:2]) + weights[2]

    def loss(weights, targets):
        return disambiguation.class_balanced_cross_entropy(scores(weights), targets, labeled)

    def step(carry, epoch):
        weights, labels, threshold = carry
        p = jax.nn.sigmoid(scores(weights))
        threshold = disambiguation.update_threshold(threshold, p, labeled, momentum=0.9)
        nearest = disambiguation.prototype_probabilities(jnp.zeros((2, 2)), vectors)
        moved = disambiguation.update_labels(labels, nearest, labeled, momentum=0.95)
        labels = jnp.where(epoch >= 10, moved, labels)
        least = disambiguation.class_thresholds(threshold)[0]
        gated = disambiguation.gated_targets(labels, p, labeled, least)
        targets = jnp.where(gate & (epoch >= 10), gated, labels)
        return (weights - 0.5 * jax.grad(loss)(weights, targets), labels, threshold), None

    first = (jnp.zeros(3), labeled, disambiguation.first_threshold())
    (weights, labels, _), _ = jax.jit(jax.lax.scan, static_argnums=0)(step, first, jnp.arange(300))
    called = np.asarray(scores(weights) > 0)
    assert np.asarray(labels).min() > 0.99 and called[is_positive].all()
    assert called[~is_positive].mean() == (0 if gate else 1)


def data_of(task):
    """The problem of a task, without its images: the configuration, the problem, its classes."""
    config = config_lib.resolve(tasks.get_config(f"task={task}"))
    made = sources.without_data(config.data.source, **data_section.source_options(config.data))
    found = dataset.build(made, seed=config.seed, **data_section.settings(config.data))
    return config, found, made.train_labels


@pytest.mark.parametrize(
    ("task", "positive", "num_unlabeled", "prior"),
    [
        ("cifar10", (0, 1, 8, 9), 40_000, 0.4),
        # Of 20 superclasses.
        ("cifar100", (0, 1, 7, 8, 11, 12, 13, 14, 15, 16), 40_000, 0.5),
        ("stl10", (0, 2, 3, 8, 9), 90_000, None),
    ],
)
def test_published_tasks_have_the_data_and_the_settings_of_the_authors(
    task, positive, num_unlabeled, prior
):
    config, found, classes = data_of(task)
    info = found.info
    assert (info.n_p, info.n_u, info.n_support) == (1000, num_unlabeled, 0)
    assert info.setting == "two_sample" and len(np.unique(found.source_ids)) == info.n  # disjoint
    labeled, unlabeled = (found.source_ids[x] for x in (found.labeled, ~found.labeled))
    per_class = np.bincount(classes[labeled], minlength=classes.max() + 1)
    assert set(np.flatnonzero(per_class)) == set(positive) and np.ptp(per_class[[*positive]]) > 0
    assert len(found.validation_labeled) == 0  # the published runs have none
    if prior is None:  # those of unknown class alone, so that no one knows it
        assert (classes[unlabeled] < 0).all() and math.isnan(info.prior)
    else:
        assert (info.prior, info.prior_unlabeled) == (prior, prior)
        assert found.truth[~found.labeled].sum() == round(prior * num_unlabeled)
    assert len(found.test_labels) == (8000 if task == "stl10" else 10_000)
    method, wide = length.resolved(config.method, info.n), task == "stl10"
    assert (method.num_epochs, method.warmup_epochs) == (1300, 30)
    for name in ("target", "prototype", "threshold", "label"):
        assert method[f"{name}_momentum"] == 0.99
    assert (method.batch_size, method.learning_rate) == ((512, 1e-2) if wide else (256, 1e-3))
    assert method.entropy_weight == (5 if task == "cifar10" else 0.5)
    assert config.model.name == "resnet18"
    options = {"stem_norm": True, "pooling": "average", "initializer": "he_normal_fan_out"}
    assert dict(config.model.options) == options


@pytest.mark.parametrize(
    ("task", "counts"), [("digits", (100, 1342)), ("fashion_mnist", (1000, 9000))]
)
def test_small_tasks_are_one_sample_of_which_the_same_number_of_every_class_is_labelled(
    task, counts
):
    config, found, classes = data_of(task)
    assert (found.info.n_p, found.info.n_u) == counts and found.info.n_support == 0
    assert found.info.setting == "one_sample"
    assert len(np.unique(found.source_ids)) == sum(counts)  # P and U share no example
    share = (found.truth == 1).mean()  # of P and U together
    assert found.info.prior == pytest.approx(share) == pytest.approx(0.5, abs=0.02)
    assert found.info.prior_unlabeled == pytest.approx(found.truth[~found.labeled].mean())
    per_class = np.bincount(classes[found.source_ids[found.labeled]])
    np.testing.assert_array_equal(per_class, [counts[0] // 5, 0] * 4 + [counts[0] // 5])
