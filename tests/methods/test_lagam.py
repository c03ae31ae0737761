"""LaGAM's own mathematics: the label update, the views, the skip rule, schedules, every switch."""

import functools
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pujax import augment, clustering, methods
from pujax.data.batching import Batch
from pujax.methods import lagam
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer
from pujax.methods.lagam import label_update, losses
from pujax.training import method_setup, sharding, train_step
from tests import tiny
from tests.test_contrastive import naive_group

# Dense layers with batch normalisation: quick to compile, and training differs from inference. Half
# of a step's compilation is its random views, which only the tests that look at them ask for.
DENSE = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}, "augment": False}


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


_MADE: dict[str, Any] = {}


def setup(data, **changes):
    """Method, device arrays and a state at the start of the main stage.

    The same for the same changes, so that tests share compiled steps; what a test replaces in the
    package has no effect on it.
    """
    known = repr(sorted(changes.items()))
    if known not in _MADE:
        _MADE[known] = fresh_setup(data, **changes)
    return _MADE[known]


def fresh_setup(data, **changes):
    """`setup` that sees what a test has replaced."""
    mesh = tiny.mesh()
    made = method_setup.build(tiny.config("lagam", **(DENSE | changes)), data, mesh)
    arrays = sharding.replicate(made.data.training_data(), mesh)
    stage = made.method.stages[-1]
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, mesh)
    return made.method, arrays, stage, state


def first_batch(stage, arrays, *, epoch=2, seed=1) -> Batch:
    """A batch; `epoch` counts from the start of training, whose warm-up takes one."""
    plan = train_step.epoch_plan(stage, jax.random.key(seed), 0, arrays)
    first_epoch = int(stage.name == "main")
    return tiny.gather(arrays, plan, 0, epoch=epoch, step=0, first_epoch=first_epoch)


def test_label_update_equals_the_closed_form():
    """lagam.md section 6, written out in NumPy float64 on an independent path."""
    rng = np.random.default_rng(0)
    n, m, d, rate = 12, 9, 5, 1e-3
    h, h_sup = rng.normal(size=[n, d]), rng.normal(size=[m, d])
    w, b = rng.normal(size=d), 0.3
    y, y_sup = rng.uniform(size=n), (rng.uniform(size=m) < 0.5).astype(float)
    y_sup[:2] = 0, 1

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    def u(z):
        p = sigmoid(z)
        live = (p >= 1e-4) & (p <= 1 - 1e-4)
        return p * live, -(1 - p) * live

    def class_gradients(z, h, y):
        u0, u1 = u(z)
        return ((1 - y) * u0) @ h / (1 - y).sum(), (y * u1) @ h / y.sum()

    z = h @ w + b
    g0, g1 = class_gradients(z, h, y)
    moved = w - rate * (g0 + g1)
    v = sum(class_gradients(h_sup @ moved + b, h_sup, y_sup))
    u0, u1 = u(z)
    d0 = -rate * (h * u0[:, None] - g0) @ v / (1 - y).sum()
    d1 = -rate * (h * u1[:, None] - g1) @ v / y.sum()
    wanted = 0.9 * y + 0.1 * (-d1 > -d0)
    pinned = np.arange(n) < 2
    wanted[pinned] = 1

    got = jax.jit(lagam.update_labels, static_argnames=("learning_rate",))(
        {"kernel": np.float32(w[:, None]), "bias": np.float32([b])},
        *map(np.float32, (h, y, h_sup, y_sup)),
        pinned=pinned,
        rho=0.9,
        learning_rate=rate,
    )
    assert 0 < np.sum(-d1 > -d0) < n  # the example has both outcomes
    np.testing.assert_allclose(got, wanted, atol=1e-6)  # float32 EMA of equal signs


@pytest.mark.thorough
@pytest.mark.parametrize("only", [0.0, 1.0])
@pytest.mark.parametrize("size", [4, 41, 47])  # of ones of which the mean may be rounded below 1
def test_a_support_batch_of_one_class_leaves_the_labels_alone(only, size):
    rng = np.random.default_rng(0)
    labels = jnp.asarray(rng.uniform(size=6), jnp.float32)
    got = lagam.update_labels(
        {"kernel": jnp.ones([3, 1]), "bias": jnp.zeros([1])},
        jnp.asarray(rng.normal(size=[6, 3]), jnp.float32),
        labels,
        jnp.asarray(rng.normal(size=[size, 3]), jnp.float32),
        jnp.full([size], only),
        pinned=jnp.zeros([6], bool),
        rho=0.5,
        learning_rate=1e-3,
    )
    np.testing.assert_array_equal(got, labels)


@pytest.mark.thorough
def test_normalized_update_is_linear_in_the_gradient_and_agrees_in_sign():
    rng = np.random.default_rng(1)
    arguments = (
        {"kernel": jnp.asarray(rng.normal(size=[4, 1]), jnp.float32), "bias": jnp.zeros([1])},
        jnp.asarray(rng.normal(size=[10, 4]), jnp.float32),
        jnp.full([10], 0.5),
        jnp.asarray(rng.normal(size=[6, 4]), jnp.float32),
        jnp.asarray([0, 1, 0, 1, 1, 0], jnp.float32),
    )
    options = {"pinned": jnp.zeros([10], bool), "rho": 0.0, "learning_rate": 1e-3}
    hard = lagam.update_labels(*arguments, **options)
    soft = lagam.update_labels(*arguments, **options, rule="normalized")
    assert set(np.unique(hard)) == {0.0, 1.0}
    assert soft.min() >= 0 and soft.max() <= 1
    np.testing.assert_array_equal(soft > 0.5, hard == 1)
    assert np.isclose(np.abs(soft - 0.5).max(), 0.5, atol=1e-6)


def test_a_weighted_update_moves_by_the_size_of_the_gradient_beside_its_mean():
    pulls = jnp.asarray([0.2, -0.1, 0.0, 0.3, -9.0])
    pinned = jnp.asarray([False, False, False, False, True])
    gradient = jnp.stack([pulls / 2, -pulls / 2], axis=-1)
    # The mean over the four that are free is 0.15.
    wanted = [1, 0.1 / 0.15, 0, 1]
    np.testing.assert_allclose(label_update.share_by_size(gradient, pinned)[:4], wanted, rtol=1e-6)
    labels = jnp.asarray([0.5, 0.5, 0.5, 0.9, 0.3])
    got = label_update.moved_labels(
        labels, gradient, jnp.asarray([0.0, 1.0]), pinned=pinned, rho=0.8, rule="weighted"
    )
    by_hand = [0.5 + 0.2 * 0.5, 0.5 - 0.2 * (2 / 3) * 0.5, 0.5, 0.9 + 0.2 * 0.1, 1]
    np.testing.assert_allclose(got, by_hand, rtol=1e-6)
    none = label_update.share_by_size(jnp.zeros([5, 2]), jnp.ones([5], bool))
    np.testing.assert_array_equal(none, 0)


@pytest.mark.parametrize(
    ("form", "wanted"),
    # Of one positive at score 1 and three negatives at -2, and the same of scores 0.
    [
        ("mean", (np.log1p(np.exp(-1)) + 3 * np.log1p(np.exp(-2))) / 4 / np.log(2)),
        ("balanced", (np.log1p(np.exp(-1)) + np.log1p(np.exp(-2))) / 2 / np.log(2)),
    ],
)
def test_the_share_of_the_support_loss_that_is_left(form, wanted):
    labels = jnp.asarray([1.0, 0.0, 0.0, 0.0])
    left = functools.partial(label_update.loss_left, support_labels=labels, form=form)
    np.testing.assert_allclose(left(jnp.asarray([1.0, -2, -2, -2])), wanted, rtol=1e-6)
    np.testing.assert_allclose(left(jnp.zeros([4])), 1, rtol=1e-6)
    assert left(jnp.asarray([-5.0, 5, 5, 5])) == 1  # worse than to know nothing
    assert left(jnp.asarray([20.0, -20, -20, -20])) < 2e-4  # probabilities are clipped at 1e-4


@pytest.mark.parametrize("form", ["mean", "balanced"])
@pytest.mark.parametrize("margin", [1.5, 15.0])
def test_a_margin_asks_more_of_every_support_score(form, margin):
    """Central differences of the whole virtual step, written down with NumPy."""
    rng = np.random.default_rng(4)
    h, y = rng.normal(size=[5, 3]), rng.uniform(size=5)
    h_support, y_support = rng.normal(size=[4, 3]), np.array([1.0, 0, 0, 1])
    w, rate = rng.normal(size=3), 0.1

    def softplus(x):
        return np.log1p(np.exp(x))

    def shares(masses):
        """What each example's two losses weigh."""
        return masses / (masses.sum(axis=0) if form == "balanced" else len(masses))

    def outer(masses):
        p, weights = 1 / (1 + np.exp(-h @ w)), shares(masses)
        gradient = h.T @ (weights[:, 0] * p - weights[:, 1] * (1 - p))
        scores = h_support @ (w - rate * gradient)
        losses = np.stack([softplus(margin + scores), softplus(margin - scores)], axis=-1)
        return np.sum(shares(np.stack([1 - y_support, y_support], axis=-1)) * losses)

    masses, step = np.stack([1 - y, y], axis=-1), 1e-5
    wanted = np.zeros_like(masses)
    for index in np.ndindex(*masses.shape):
        shift = np.zeros_like(masses)
        shift[index] = step
        wanted[index] = (outer(masses + shift) - outer(masses - shift)) / (2 * step)
    assert np.abs(wanted).max() > 1e-3
    got = label_update.label_gradient(
        lambda params: jnp.float32(h) @ params,
        lambda params: jnp.float32(h_support) @ params,
        jnp.float32(w),
        jnp.float32(y),
        jnp.float32(y_support),
        form=form,
        margin=margin,
        learning_rate=rate,
    )
    np.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-6)


def test_mean_loss_is_plain_cross_entropy():
    scores = jnp.asarray([0.3, -1.2, 2.0])
    labels = jnp.asarray([1.0, 0.25, 0.0])
    p = 1 / (1 + np.exp(-np.asarray(scores)))
    wanted = -np.mean(labels * np.log(p) + (1 - labels) * np.log(1 - p))
    np.testing.assert_allclose(lagam.label_loss(scores, labels, form="mean"), wanted, rtol=1e-6)


@pytest.mark.thorough
def test_running_statistics_see_mixed_then_weak_then_strong_view(data):
    """A step's statistics equal those of three passes over its views in the reference's order."""
    config = tiny.config("lagam", **(DENSE | {"augment": True}))
    _, arrays, stage, state = setup(data, augment=True)
    batch = first_batch(stage, arrays)
    network = network_lib.build(config, data.info, embedding_dim=8)
    views = losses.draw_views(config.method, network, batch, jax.random.key(0))[:3]
    stats = state.batch_stats
    for images in views:
        stats = network.train_pass(state.params, stats, images)[1]
    after, _ = stage.step(state, batch, jax.random.key(0))
    for a, b in zip(jax.tree.leaves(after.batch_stats), jax.tree.leaves(stats), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)
    other = network.train_pass(state.params, state.batch_stats, views[1])[1]
    assert not np.allclose(jax.tree.leaves(other)[0], jax.tree.leaves(stats)[0], rtol=1e-3)


def test_a_batch_without_positive_mass_changes_nothing(data):
    method, arrays, _, state = setup(data)
    warmup = method.stages[0]
    batch = first_batch(warmup, arrays)
    empty = batch._replace(ids=jnp.arange(100, 116), labeled=jnp.zeros([16]))
    after, metrics = warmup.step(state, empty, jax.random.key(0))
    assert metrics["skipped"] == 1
    for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(after), strict=True):
        np.testing.assert_array_equal(a, b)
    _, metrics = warmup.step(state, batch, jax.random.key(0))
    assert metrics["skipped"] == 0


def test_a_batch_without_stored_mass_is_left_out_in_the_main_stage_too(data):
    _, arrays, stage, state = setup(data, record_label_gradients=True)
    empty = first_batch(stage, arrays)._replace(ids=jnp.arange(100, 116), labeled=jnp.zeros([16]))
    for seed in range(3):  # whatever the update would make of the labels
        after, metrics = stage.step(state, empty, jax.random.key(seed))
        assert metrics["skipped"] == 1
        jax.tree.map(np.testing.assert_array_equal, after, state)


def test_labels_move_only_in_the_main_stage_only_in_the_batch_and_never_when_pinned(data):
    method, arrays, stage, state = setup(data)
    batch = first_batch(stage, arrays)
    after, _ = stage.step(state, batch, jax.random.key(0))
    ids = np.asarray(batch.ids)
    outside = np.setdiff1d(np.arange(len(state.labels)), ids)
    np.testing.assert_array_equal(after.labels[outside], state.labels[outside])
    # rho = 0.95 - 0.15 * 2 / 4 = 0.875: a label is 0.875 y + 0.125 s.
    moved = np.asarray(after.labels)[ids]
    labeled = np.asarray(batch.labeled) > 0
    assert labeled.any() and (moved[labeled] == 1).all()
    assert np.isin(moved[~labeled].round(6), [0.0, 0.125]).all()
    warmup = method.stages[0]
    after, _ = warmup.step(state, first_batch(warmup, arrays), jax.random.key(0))
    np.testing.assert_array_equal(after.labels, state.labels)


@pytest.mark.thorough
def test_unpinned_labels_can_fall(data):
    _, arrays, stage, state = setup(data, pin_labeled=False)
    fell = False
    for i in range(5):
        batch = first_batch(stage, arrays, seed=i)
        after, _ = stage.step(state, batch, jax.random.key(i))
        fell |= bool((after.labels[np.asarray(arrays.labeled)] < 1).any())
    assert fell


# The rule 'projected' has no slope anyway.
@pytest.mark.parametrize(
    "rule", ["normalized", pytest.param("weighted", marks=pytest.mark.thorough)]
)
def test_the_label_update_sends_no_gradient_into_the_network(data, monkeypatch, rule):
    """With the new labels put in as constants, the step is the same step."""
    changes = {"label_update": rule, "use_contrast": False}
    _, arrays, stage, state = setup(data, **changes)
    batch = first_batch(stage, arrays)
    after, _ = stage.step(state, batch, jax.random.key(0))
    constants = np.asarray(after.labels[batch.ids])
    monkeypatch.setattr(label_update, "moved_labels", lambda *_, **__: jnp.asarray(constants))
    again, _ = fresh_setup(data, **changes)[2].step(state, batch, jax.random.key(0))
    for a, b in zip(jax.tree.leaves(after.params), jax.tree.leaves(again.params), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


@pytest.fixture(scope="module")
def published(data):
    """One step with the default switches."""
    return one_step(data)


def one_step(data, **changes):
    """State and metrics after the first step of the main stage, from the same parameters.

    The cut-off is the median score of the untrained network, so that both sides are populated.
    """
    method, arrays, _, state = setup(data)
    median = float(jnp.median(method.predict(state, arrays.inputs)))
    _, arrays, stage, state = setup(data, **({"cutoff": median} | changes))
    if stage.refresh is not None:
        state = stage.refresh(state, arrays, jax.random.key(5))
    batch = first_batch(stage, arrays)
    after, metrics = stage.step(state, batch, jax.random.key(0))
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((after, metrics)))
    return after, {name: float(value) for name, value in metrics.items()}


@pytest.mark.thorough
def test_a_margin_reaches_the_gradients_of_a_step(data):
    changes = {"record_label_gradients": True, "label_update": "normalized"}
    (without, _), (with_margin, _) = (
        one_step(data, **changes, support_margin=margin) for margin in (0.0, 2.0)
    )
    assert np.abs(with_margin.pulls).sum() > np.abs(without.pulls).sum() > 0
    assert np.abs(np.asarray(with_margin.labels) - np.asarray(without.labels)).max() > 1e-4


@pytest.mark.thorough
def test_labels_move_by_the_share_of_the_support_loss_that_is_left(data, monkeypatch):
    forms = set()

    def labels(left):
        def loss_left(*_, form):
            forms.add(form)
            return left

        monkeypatch.setattr(label_update, "loss_left", loss_left)
        changes = {"classification_loss": "balanced", "meta_loss": "mean"}
        _, arrays, stage, state = fresh_setup(data, label_memory="support_loss", **changes)
        batch = first_batch(stage, arrays)
        after, _ = stage.step(state, batch, jax.random.key(0))
        return np.asarray(state.labels), np.asarray(after.labels)

    before, still = labels(0.0)
    np.testing.assert_array_equal(still, before)
    whole, quarter = labels(1.0)[1], labels(0.25)[1]
    assert np.abs(whole - before).max() > 0.01
    np.testing.assert_allclose(quarter - before, (whole - before) / 4, atol=1e-6)
    assert forms == {"mean"}  # the loss that the labels follow


CLASSIFICATION = ("loss_classification", "loss_mixup")
SWITCHES = [
    ({"use_contrast": False}, ("loss_instance", "loss_group"), (), CLASSIFICATION),
    ({"use_groups": False}, ("loss_group",), (), (*CLASSIFICATION, "loss_instance")),
    ({"use_cutoff": False}, (), ("loss_group",), (*CLASSIFICATION, "loss_instance")),
    ({"cutoff": 9.0}, (), ("loss_group",), (*CLASSIFICATION, "loss_instance")),
    ({"use_neighbors": False}, (), ("loss_group",), (*CLASSIFICATION, "loss_instance")),
    ({"num_clusters": 7}, (), ("loss_group",), (*CLASSIFICATION, "loss_instance")),
    ({"temperature": 0.2}, (), ("loss_group", "loss_instance"), CLASSIFICATION),
    ({"use_meta": False}, (), CLASSIFICATION, ("loss_instance", "loss_group")),
    ({"label_update": "normalized"}, (), CLASSIFICATION, ("loss_instance", "loss_group")),
    ({"label_update": "weighted"}, (), CLASSIFICATION, ("loss_instance", "loss_group")),
    ({"rho_start": 0.0, "rho_end": 0.0}, (), CLASSIFICATION, ("loss_instance",)),
    ({"classification_loss": "mean"}, (), CLASSIFICATION, ("loss_instance", "loss_group")),
    ({"entropy_weight": 0.1}, (), ("loss_classification",), ("loss_mixup", "loss_group")),
    ({"mixup_weight": 0.5}, (), ("loss",), (*CLASSIFICATION, "loss_group")),
    ({"contrast_weight": 0.5}, (), ("loss",), (*CLASSIFICATION, "loss_group")),
    ({"augment": True}, (), ("loss_instance", "loss_classification"), ()),
    (
        {"use_meta": False, "classification_loss": "nnpu"},
        ("loss_mixup",),
        ("loss_classification",),
        ("loss_instance", "loss_group"),
    ),
    ({"use_meta": False, "use_contrast": False}, ("loss_group",), (), ()),
]


@pytest.mark.parametrize(
    ("changes", "zero", "other", "same"),
    [
        pytest.param(*case, marks=() if "use_meta" in case[0] else pytest.mark.thorough)
        for case in SWITCHES
    ],
    ids=str,
)
def test_every_switch_changes_what_it_names_and_nothing_else(
    data, published, changes, zero, other, same
):
    after, metrics = one_step(data, **changes)
    _, wanted = published
    for name in zero:
        assert metrics[name] == 0 and wanted[name] != 0
    for name in other:
        assert metrics[name] != pytest.approx(wanted[name], rel=1e-4), name
    for name in same:
        assert metrics[name] == pytest.approx(wanted[name], rel=1e-4), name
    moved = not np.array_equal(after.labels, setup(data)[3].labels)
    assert moved == changes.get("use_meta", True)


@pytest.mark.thorough
def test_empty_batches_are_kept_where_the_loss_is_defined_or_the_switch_is_off(data):
    for changes, skipped in (
        ({}, 1),
        ({"skip_empty_batches": False}, 0),
        ({"classification_loss": "mean"}, 0),
        ({"use_meta": False, "classification_loss": "nnpu"}, 0),
    ):
        method, arrays, _, state = setup(data, **changes)
        batch = first_batch(method.stages[0], arrays)
        empty = batch._replace(ids=jnp.arange(100, 116), labeled=jnp.zeros([16]))
        _, metrics = method.stages[0].step(state, empty, jax.random.key(0))
        assert metrics["skipped"] == skipped, changes


def test_labels_are_reported_as_learned_only_where_they_are(data):
    assert setup(data)[0].soft_labels is not None
    assert setup(data, use_meta=False)[0].soft_labels is None


@pytest.mark.parametrize(
    ("rho_start", "rho_end", "warmup_epochs"),
    [(0.95, 0.8, 20), (0.8, 0.6, 12), (0.5, 0.99, 0), (0.0, 0.0, 1), (0.999, 0.999, 3)],
)
def test_epochs_until_a_label_can_turn(rho_start, rho_end, warmup_epochs):
    def label(length):
        mass = 0.0
        for epoch in range(warmup_epochs, length):
            rho = rho_start + (rho_end - rho_start) * epoch / length
            mass = rho * mass + 1 - rho
        return mass

    config = lagam.default_config()
    config.update({"rho_start": rho_start, "rho_end": rho_end, "warmup_epochs": warmup_epochs})
    found = label_update.epochs_to_turn(config)
    assert label(found) >= 0.5 - 1e-9 and all(label(n) < 0.5 for n in range(found))


def test_a_run_too_short_for_its_labels_says_how_long_it_would_have_to_be(data, caplog):
    def said(**changes):
        return methods.build(tiny.config("lagam", **(DENSE | changes)), data.info).diagnose({})

    (text,) = said()
    assert "method.num_epochs is 4, and soft labels of unlabeled examples need 7" in text
    assert "(method.warmup_epochs=1, method.rho_start=0.95, method.rho_end=0.8)" in text
    assert text in caplog.text
    assert "need more than 1,000,000" in said(rho_start=1.0, rho_end=1.0)[0]
    assert said(rho_start=0.6, rho_end=0.6) == [] == said(use_meta=False)


def group_loss(data, epoch, **changes):
    _, arrays, stage, state = setup(data, **changes)
    state = stage.refresh(state, arrays, jax.random.key(5))
    batch = first_batch(stage, arrays, epoch=epoch)
    return float(stage.step(state, batch, jax.random.key(0))[1]["loss_group"])


@pytest.mark.thorough
def test_neighbors_join_only_after_their_epoch(data):
    # tiny.config sets neighbors_after_epoch = 1, so epoch 1 is without and epoch 2 with them.
    assert group_loss(data, 1) == group_loss(data, 1, use_neighbors=False)
    assert group_loss(data, 2) != group_loss(data, 2, use_neighbors=False)


def test_clusters_are_those_of_the_embeddings_in_inference_mode(data):
    method, arrays, stage, state = setup(data)
    clustered = stage.refresh(state, arrays, jax.random.key(5)).clusters
    points = np.asarray(method.embed(state, arrays.inputs))
    np.testing.assert_allclose(np.linalg.norm(points, axis=1), 1, atol=1e-5)
    clusters = np.asarray(clustered)
    assert set(clusters) == {0, 1, 2}
    centers = np.stack([points[clusters == c].mean(0) for c in range(3)])
    nearest = np.argmin(((points[:, None] - centers) ** 2).sum(-1), axis=1)
    assert np.mean(nearest == clusters) > 0.97  # Lloyd's fixed point, up to its 20 iterations


def test_clusters_are_fitted_on_a_thousand_different_points_for_each(monkeypatch):
    """And all points are given the cluster whose centre is nearest."""
    fitted_on = []

    def kmeans(key, points, *, num_clusters, num_iterations, num_restarts):
        assert (num_clusters, num_iterations, num_restarts) == (3, 20, 5)
        fitted_on.append(np.asarray(points)[:, 0])
        return SimpleNamespace(centers=jnp.asarray([[0.0], [2000.0], [4999.0]]))

    monkeypatch.setattr(clustering, "kmeans", kmeans)
    config = lagam.default_config()
    config.num_clusters = 3
    points = jnp.arange(5000.0)[:, None]
    for rows in (points, points[:2999]):
        found = lagam._cluster(config, jax.random.key(0), rows)
        wanted = np.searchsorted([1000, 3499.5], np.asarray(rows)[:, 0], side="left")
        np.testing.assert_array_equal(found, wanted)
    many, few = fitted_on
    assert len(set(many)) == len(many) == 3000
    assert many.mean() == pytest.approx(2500, abs=100)  # not the first, nor the last of them
    np.testing.assert_array_equal(few, np.arange(2999))


def test_every_epoch_clusters_other_points_from_other_centers(monkeypatch):
    drawn = []

    def kmeans(key, points, **_):
        drawn.append((jax.random.key_data(key).tolist(), np.asarray(points)[:, 0].tolist()))
        return SimpleNamespace(centers=points[:3])

    monkeypatch.setattr(clustering, "kmeans", kmeans)
    monkeypatch.setattr(lagam, "_MAX_POINTS_PER_CLUSTER", 5)
    nothing: Any = None
    refresh = lagam._refresh(tiny.config("lagam"), lambda _, rows: rows, nothing, None)
    rows: Any = SimpleNamespace(inputs=jnp.arange(40.0)[:, None])
    state = lagam.State(*[nothing] * 6)
    assert refresh is not None
    for seed in (0, 1, 0):
        refresh(state, rows, jax.random.key(seed))
    (key, points), (other_key, other_points), again = drawn
    assert len(points) == 15 and key != other_key and set(points) != set(other_points)
    assert again == (key, points)  # a run that goes on does as one that was not interrupted


@pytest.mark.parametrize(
    ("changes", "size"),
    [({}, 8), ({"use_meta": False}, 0), ({"support_source": "pseudo_negatives"}, 0)],
    ids=str,
)
def test_clean_examples_are_drawn_where_labels_follow_them_and_nowhere_else(data, changes, size):
    stages = methods.build(tiny.config("lagam", **(DENSE | changes)), data.info).stages
    assert [stage.batching.support_batch_size for stage in stages] == [0, size]


@pytest.mark.thorough
def test_ablations_keep_augmentation_and_contrast_apart(data, monkeypatch):
    called = []
    original = augment.weak_view
    monkeypatch.setattr(
        augment, "weak_view", lambda *a, **k: (called.append(1), original(*a, **k))[1]
    )
    for changes, calls in (
        ({"augment": True, "use_contrast": False}, 1),
        ({"augment": False}, 0),
        ({"augment": True}, 1),
    ):
        called.clear()
        method_setup.build(tiny.config("lagam", **(DENSE | changes)), data, tiny.mesh())
        assert len(called) == 2 * calls, changes  # once in either stage


def test_weak_and_strong_views_are_drawn_by_keys_of_their_own(monkeypatch):
    for name in ("weak_view", "strong_view"):
        monkeypatch.setattr(
            augment, name, lambda key, x, **_: jnp.full(x.shape, jax.random.uniform(key))
        )
    config = tiny.config("lagam", **(DENSE | {"augment": True})).method
    network: Any = SimpleNamespace(normalize=lambda x: x)
    batch: Any = SimpleNamespace(inputs=jnp.zeros([4, 2]))
    views = losses.draw_views(config, network, batch, jax.random.key(0))
    assert np.all(views.weak != views.strong)


def test_step_schedule_drops_after_the_named_epochs():
    config = lagam.default_config()
    rates = {
        e: float(optimizer.learning_rate(config, jnp.asarray(e), num_epochs=400))
        for e in (0, 250, 251, 301, 351)
    }
    wanted = {0: 1e-3, 250: 1e-3, 251: 1e-4, 301: 1e-5, 351: 1e-6}
    assert rates == pytest.approx(wanted, rel=1e-5)


def test_cosine_schedule_runs_from_the_rate_to_a_thousandth():
    config = lagam.default_config()
    config.lr_schedule = "cosine"
    rate = [
        float(optimizer.learning_rate(config, jnp.asarray(e), num_epochs=400))
        for e in (0, 200, 400)
    ]
    assert rate == pytest.approx([1e-3, (1e-3 + 1e-6) / 2, 1e-6], rel=1e-5)


def test_optimizer_is_sgd_with_l2_before_momentum():
    config = lagam.default_config()
    config.lr_schedule, config.learning_rate = "constant", 0.1
    rule = optimizer.build(config, num_epochs=1)
    params, gradients = (
        jnp.asarray([1.0, -2.0]),
        [jnp.asarray([0.5, 0.1]), jnp.asarray([-1.0, 0.0])],
    )
    state, by_hand, velocity = rule.init(params), np.asarray(params), np.zeros(2)
    for gradient in gradients:
        updates, state = rule.update(gradient, state, params, progress=0)
        params = optax.apply_updates(params, updates)
        velocity = 0.9 * velocity + np.asarray(gradient) + 1e-4 * by_hand
        by_hand = by_hand - 0.1 * velocity
    np.testing.assert_allclose(params, by_hand, rtol=1e-6)


def naive_balanced(scores, labels):
    """`-log p` of each class, averaged by the mass of the class; no score reaches the clip."""
    p = 1 / (1 + np.exp(-np.asarray(scores, np.float64)))
    assert p.min() > 1e-4 and p.max() < 1 - 1e-4
    positive = np.sum(labels * -np.log(p)) / np.sum(labels)
    return positive + np.sum((1 - labels) * -np.log(1 - p)) / np.sum(1 - labels)


def naive_positives(weak, strong, clusters, sides, num_neighbors):
    """Own key, same cluster and side, and the nearest of the batch, the anchor itself being one."""
    size, pool = len(weak), np.concatenate([weak, strong])
    positives = np.zeros([size, 2 * size], bool)
    for i in range(size):
        nearest = np.argsort(-(pool @ weak[i]), kind="stable")[:num_neighbors]
        for j in range(2 * size):
            grouped = clusters[i] == clusters[j % size] and sides[i] == sides[j % size]
            positives[i, j] = j != i and (grouped or j in nearest or j == size + i)
    return positives


def test_a_step_equals_its_parts_worked_out_one_after_another(data):
    """Views, mixed labels, the label update, groups and weights, each from its own definition."""
    # At such an inner rate the virtual step changes the signs of some label gradients.
    changes = {"entropy_weight": 0.3, "mixup_weight": 0.7, "contrast_weight": 0.5, "cutoff": 0.1}
    changes |= {"meta_learning_rate": 100.0, "temperature": 0.2, "num_clusters": 4, "augment": True}
    _, arrays, stage, state = setup(data, **changes)
    network = network_lib.build(
        tiny.config("lagam", **(DENSE | changes)), data.info, embedding_dim=8
    )
    state = stage.refresh(state, arrays, jax.random.key(5))
    stored = np.random.default_rng(2).uniform(0, 0.6, len(state.labels)).astype(np.float32)
    stored[np.asarray(arrays.labeled)] = 1
    state = state._replace(labels=jnp.asarray(stored))
    # Neighbours count after epoch 1; of the main stage this is epoch 1.
    batch = first_batch(stage, arrays, epoch=2)
    ids = np.asarray(batch.ids)
    after, metrics = stage.step(state, batch, jax.random.key(7))

    @jax.jit  # operation by operation would compile longer
    def parts():
        def outputs(images):
            return network.train_pass(state.params, state.batch_stats, images, with_embedding=True)[
                0
            ]

        weak_key, strong_key, share_key, partner_key = jax.random.split(jax.random.key(7), 4)
        how = {"flip": False, "padding": 1}
        weak = network.normalize(augment.weak_view(weak_key, batch.inputs, **how))
        strong = network.normalize(augment.strong_view(strong_key, batch.inputs, **how))
        share = jnp.sort(jax.random.uniform(share_key, [7]))[3]
        share = jnp.maximum(share, 1 - share)
        partner = jax.random.permutation(partner_key, 16)
        mixed = share * weak + (1 - share) * weak[partner]
        support = outputs(network.normalize(batch.support_inputs))
        labels = lagam.update_labels(
            state.params["classifier"],
            outputs(weak).features,
            state.labels[batch.ids],
            support.features,
            batch.support_labels,
            pinned=batch.labeled > 0,
            rho=0.95 - 0.15 * 2 / 4,  # the third of four epochs, the warm-up's one among them
            learning_rate=100.0,
        )
        return outputs(weak), outputs(strong), outputs(mixed), share, partner, labels

    of_weak, of_strong, of_mixed, share, partner, labels = parts()
    share, partner = float(share), np.asarray(partner)
    wanted = stored.copy()
    wanted[ids] = labels
    np.testing.assert_allclose(after.labels, wanted, atol=1e-6)
    moved = np.asarray(labels)[np.asarray(batch.labeled) == 0] - stored[ids][batch.labeled == 0]
    assert (moved > 0).any() and (moved < 0).any()

    labels = np.asarray(labels, np.float64)
    p = 1 / (1 + np.exp(-np.asarray(of_weak.logits, np.float64)))
    entropy = -np.mean(p * np.log(p) + (1 - p) * np.log(1 - p))
    classification = naive_balanced(of_weak.logits, labels) + 0.3 * entropy
    mixup = naive_balanced(of_mixed.logits, share * labels + (1 - share) * labels[partner])
    weak_points, strong_points = (np.asarray(x.embedding, np.float64) for x in (of_weak, of_strong))
    clusters, sides = np.asarray(state.clusters)[ids], np.asarray(of_weak.logits) > 0.1
    assert len(set(sides)) == 2
    positives = naive_positives(weak_points, strong_points, clusters, sides, num_neighbors=4)
    partners = np.eye(16, 32, k=16, dtype=bool)
    instance = naive_group(weak_points, strong_points, partners, 0.2)
    group = naive_group(weak_points, strong_points, positives, 0.2)
    expected = {
        "loss_classification": classification,
        "loss_mixup": mixup,
        "loss_instance": instance,
        "loss_group": group,
        "loss": classification + 0.7 * mixup + 0.5 * (instance + group),
        "skipped": 0,
    }
    for name, value in expected.items():
        assert float(metrics[name]) == pytest.approx(value, rel=1e-4), name


def test_the_projection_moves_by_the_slopes_of_the_instance_loss_in_both_views(data):
    """Nothing else reaches it in the warm-up; neither view is a constant."""
    method, arrays, _, state = setup(data)
    network = network_lib.build(tiny.config("lagam", **DENSE), data.info, embedding_dim=8)
    warmup = method.stages[0]
    batch = first_batch(warmup, arrays, epoch=0)
    after, _ = warmup.step(state, batch, jax.random.key(0))
    images = network.normalize(batch.inputs)  # either view: nothing is augmented here
    heads = {name: x for name, x in state.params.items() if name.startswith("projection")}

    @jax.jit
    @jax.grad
    def slopes(heads):
        params = {**state.params, **heads}
        outputs, _ = network.train_pass(params, state.batch_stats, images, with_embedding=True)
        similar = outputs.embedding @ outputs.embedding.T / 0.07
        pool = jnp.concatenate([jnp.where(jnp.eye(16), -jnp.inf, similar), similar], axis=1)
        return jnp.mean(jax.nn.logsumexp(pool, axis=1) - jnp.diagonal(similar))

    assert heads
    gradient = slopes(heads)
    for name, weights in heads.items():
        moved = jax.tree.map(lambda new, old: (old - new) / 0.05, after.params[name], weights)
        wanted = jax.tree.map(lambda g, w: g + 1e-4 * w, gradient[name], weights)
        for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3 * np.abs(b).max() + 1e-6)


@pytest.mark.thorough
def test_a_batch_with_learned_positive_mass_only_is_not_left_out(data):
    _, arrays, stage, state = setup(data)
    state = state._replace(labels=jnp.full(len(state.labels), 0.3))
    batch = first_batch(stage, arrays)._replace(ids=jnp.arange(100, 116), labeled=jnp.zeros([16]))
    after, metrics = stage.step(state, batch, jax.random.key(0))
    assert metrics["skipped"] == 0
    kernels = (x.params["classifier"]["kernel"] for x in (state, after))
    assert not np.array_equal(*kernels)


def test_the_learning_rate_follows_the_epochs_of_both_stages(data):
    changes = {"lr_schedule": "cosine", "use_meta": False, "use_contrast": False}
    _, arrays, stage, state = setup(data, **changes)
    batch, step = first_batch(stage, arrays), stage.step

    def moved(progress):
        # The warm-up has one epoch.
        place = batch._replace(
            progress=jnp.float32(progress), stage_progress=jnp.float32(progress - 1)
        )
        after, _ = step(state, place, jax.random.key(0))
        return np.asarray(
            after.params["classifier"]["kernel"] - state.params["classifier"]["kernel"]
        )

    def rate(progress):
        return 1e-3 + (1 - 1e-3) * (1 + np.cos(np.pi * progress / 4)) / 2

    np.testing.assert_allclose(moved(3) / moved(1), rate(3) / rate(1), rtol=1e-3)


def test_the_entropy_is_that_of_clipped_probabilities():
    """Beyond the clip a score has the entropy of the clip, and no slope that is not a number."""
    scores, labels = np.float32([12, -300, 0.3]), np.float32([1, 0, 1])
    batch = SimpleNamespace(labeled=labels)

    def loss(weight, scores=scores, form="balanced", info=None):
        config = SimpleNamespace(classification_loss=form, entropy_weight=weight)
        return losses.classification_losses(
            config, info, (scores, scores), batch, (labels, labels)
        )[0]

    p = np.clip(1 / (1 + np.exp(-np.float64(scores))), 1e-4, 1 - 1e-4)
    entropy = -np.mean(p * np.log(p) + (1 - p) * np.log(1 - p))
    np.testing.assert_allclose(loss(1.0) - loss(0.0), entropy, rtol=1e-5)
    info = tiny.problem().info  # with the risk of nnPU, too
    np.testing.assert_allclose(
        loss(1.0, form="nnpu", info=info) - loss(0.0, form="nnpu", info=info), entropy, rtol=1e-5
    )
    slope = jax.grad(lambda s: loss(1.0, s) - loss(0.0, s))(jnp.asarray(scores))
    np.testing.assert_allclose(slope, [0, 0, -0.3 * p[2] * (1 - p[2]) / 3], rtol=1e-5, atol=1e-7)
