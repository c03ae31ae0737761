"""ImPULSeS: what each of its two stages learns from, and what it leaves alone."""

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax import augment, contrastive, risks
from pujax.configs import impulses as impulses_config
from pujax.methods import impulses
from pujax.methods._common import network as network_lib
from pujax.methods._common import views as views_lib
from pujax.methods.impulses import head_rate
from pujax.training import config as config_lib
from pujax.training import method_setup, sharding, train_step
from tests import tiny


def built(problem, *, image_size=0, **changes):
    """Configuration, method and arrays of a small problem."""
    options = {"hidden": (16, 16), "batch_norm": True}  # dense layers compile fastest
    config = ml_collections.ConfigDict(
        tiny.config("impulses", model="mlp", options=options, **changes)
    )
    config.model.image_size = image_size
    config = config_lib.resolve(config)
    made = method_setup.build(config, problem, tiny.mesh())
    return config, made.method, sharding.replicate(made.data.training_data(), tiny.mesh())


def batch_of(stage, state, arrays, epoch=0):
    seen = train_step.stage_data(stage, state, arrays, tiny.mesh(), batch_size=50)
    plan = train_step.epoch_plan(stage, jax.random.key(1), epoch, arrays)
    return tiny.gather(seen, plan, 0, epoch=epoch, step=0)


def start(stage, arrays, previous=None, seed=0):
    return train_step.init_state(stage, jax.random.key(seed), previous, arrays, tiny.mesh())


def without_classifier(params):
    return {name: value for name, value in params.items() if name != "classifier"}


def differ(first, second):
    pairs = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return any(not np.array_equal(a, b) for a, b in pairs)


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


@pytest.fixture(scope="module")
def small(data):
    return built(data)


def embedded(config, state, batch, key):
    """Embeddings of the random views of a step, `[views, batch, d]`, and statistics after them."""
    c, batch_stats, embeddings = config.method, state.batch_stats, []
    network = network_lib.build(
        config, tiny.problem().info, embedding_dim=c.embedding_dim, projection=c.projection
    )
    for view_key in jax.random.split(key, c.num_views):
        view = augment.contrastive_view(view_key, batch.inputs, flip=c.flip)
        outputs, batch_stats = network.train_pass(
            state.params, batch_stats, network.normalize(view), with_embedding=True
        )
        embeddings.append(outputs.embedding)
    return jnp.stack(embeddings), batch_stats


@pytest.mark.parametrize(
    ("changes", "numbers"),
    [
        ({}, {"temperature": 0.5, "tau_plus": 0.1}),
        ({"temperature": 0.3, "tau_plus": 0.0}, {"temperature": 0.3, "tau_plus": 0.0}),
    ],
)
def test_pretraining_minimises_the_debiased_loss_of_two_random_views(data, changes, numbers):
    config, method, arrays = built(data, **changes)
    stage = method.stages[0]
    state = start(stage, arrays)
    batch, key = batch_of(stage, state, arrays), jax.random.key(5)

    @jax.jit
    def by_hand():
        embeddings, batch_stats = embedded(config, state, batch, key)
        return contrastive.debiased(*embeddings, **numbers), batch_stats

    expected, batch_stats = by_hand()
    after, metrics = jax.jit(stage.step)(state, batch, key)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-5)
    for a, b in zip(jax.tree.leaves(after.batch_stats), jax.tree.leaves(batch_stats), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_views_have_the_size_that_the_model_asks_for(data, monkeypatch):
    _, method, arrays = built(data, image_size=12)  # the images have 8 pixels
    view, shapes = views_lib.random_view, []

    def recorded(*arguments, **options):
        found = view(*arguments, **options)
        shapes.append(found.shape)
        return found

    monkeypatch.setattr(views_lib, "random_view", recorded)
    stage = method.stages[0]
    state = start(stage, arrays)
    # The shapes alone, which need no compiled step.
    jax.eval_shape(stage.step, state, batch_of(stage, state, arrays), jax.random.key(0))
    assert shapes == [(16, 12, 12, 1)]  # of one view; the others are a dimension of the same call


def test_pretraining_does_not_look_at_labels_though_its_probe_does(small):
    _, method, arrays = small
    stage = method.stages[0]
    state = start(stage, arrays)
    batch, key = batch_of(stage, state, arrays), jax.random.key(5)
    step = jax.jit(stage.step)
    first, _ = step(state, batch, key)
    second, _ = step(state, batch._replace(labeled=1 - batch.labeled), key)
    tiny.assert_same(without_classifier(first.params), without_classifier(second.params))
    assert differ(first.params["classifier"], second.params["classifier"])
    assert differ(first.params["backbone"], state.params["backbone"])


@pytest.mark.thorough
def test_the_head_trains_a_fresh_classifier_on_features_computed_once(small):
    _, method, arrays = small
    pretraining, head = method.stages
    pretrained = start(pretraining, arrays)
    state = start(head, arrays, pretrained, seed=2)
    tiny.assert_same(without_classifier(state.params), without_classifier(pretrained.params))
    assert differ(state.params["classifier"], pretrained.params["classifier"])
    batch = batch_of(head, state, arrays)
    np.testing.assert_allclose(
        batch.inputs, method.embed(state, arrays.inputs[batch.ids]), rtol=1e-4, atol=1e-6
    )
    after, _ = head.step(state, batch, jax.random.key(0))
    tiny.assert_same(without_classifier(after.params), without_classifier(state.params))
    tiny.assert_same(after.batch_stats, state.batch_stats)
    classifier = after.params["classifier"]
    by_hand = batch.inputs @ classifier["kernel"][:, 0] + classifier["bias"]
    np.testing.assert_allclose(
        method.predict(after, arrays.inputs[batch.ids]), by_hand, rtol=1e-4, atol=1e-5
    )


def test_the_head_reads_features_with_the_statistics_of_pretraining(small):
    _, method, arrays = small
    pretraining, head = method.stages
    before = start(pretraining, arrays)
    moved = before._replace(batch_stats=jax.tree.map(lambda x: x + 0.5, before.batch_stats))
    tiny.assert_same(start(head, arrays, moved).batch_stats, moved.batch_stats)


def test_the_head_minimises_the_imbalanced_risk_with_the_prior_of_u(data, small):
    _, method, arrays = small
    head = method.stages[1]
    state = start(head, arrays, start(method.stages[0], arrays))
    batch = batch_of(head, state, arrays)
    _, metrics = head.step(state, batch, jax.random.key(0))
    scores = method.predict(state, arrays.inputs[batch.ids])
    expected = risks.imbalanced_nnpu(scores, batch.labeled, prior=data.info.prior_unlabeled)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-4)


def test_only_faithful_batches_come_again(data):
    for faithful in (False, True):
        _, method, arrays = built(data, faithful=faithful)
        head = method.stages[1]
        plans = [train_step.epoch_plan(head, jax.random.key(0), epoch, arrays) for epoch in (3, 4)]
        assert np.array_equal(plans[0].ids, plans[1].ids) == faithful


def test_separate_batches_of_the_head_hold_as_many_positives_as_asked(data):
    _, method, arrays = built(data, batching="separate", positives_per_batch=5)
    head = method.stages[1]
    state = start(head, arrays, start(method.stages[0], arrays))
    for epoch in range(3):
        batch = batch_of(head, state, arrays, epoch)
        assert np.sum(batch.labeled) == np.sum(arrays.labeled[batch.ids]) == 5
    with pytest.raises(ValueError, match="method.batching is 'separate'; accepted: 'joint'"):
        built(data, batching="separate", head_loss="bce")


def test_fine_tuning_moves_the_encoder_and_sees_images(data):
    config, method, arrays = built(data, head="finetune")
    stage = method.stages[1]
    assert stage.name == "finetune" and stage.encode is None
    state = start(stage, arrays, start(method.stages[0], arrays))
    batch, key = batch_of(stage, state, arrays), jax.random.key(0)
    after, metrics = jax.jit(stage.step)(state, batch, key)
    assert differ(after.params["backbone"], state.params["backbone"])
    assert differ(after.batch_stats, state.batch_stats)
    # By the risk of the head, on images shifted at random.
    network = network_lib.build(config, data.info, embedding_dim=config.method.embedding_dim)

    @jax.jit
    def by_hand():
        view = network.normalize(augment.weak_view(key, batch.inputs, flip=False, padding=1))
        outputs, _ = network.train_pass(state.params, state.batch_stats, view)
        prior = data.info.prior_unlabeled
        return risks.imbalanced_nnpu(outputs.logits, batch.labeled, prior=prior)

    np.testing.assert_allclose(metrics["loss"], by_hand(), rtol=1e-5)


@pytest.mark.thorough
def test_the_schedule_of_each_stage_is_as_long_as_the_stage(data):
    """At half of a stage a cosine is at half of its start, however long the other stage is."""
    changes = {"optimizer": "sgd", "learning_rate": 0.5, "head_learning_rate": 0.5}
    cosine = {"lr_schedule": "cosine", "lr_floor": 0.0}
    _, method, arrays = built(
        data, head="finetune", num_epochs=6, pretrain_epochs=2, **changes, **cosine
    )
    state, first_epoch = None, 0
    for stage, num_epochs in zip(method.stages, (2, 4), strict=True):
        assert stage.num_epochs == num_epochs
        state = start(stage, arrays, state)
        batch, step = batch_of(stage, state, arrays), jax.jit(stage.step)
        moves = []
        for passed in (0, num_epochs / 2):
            times = {"stage_progress": passed, "progress": first_epoch + passed}
            at = batch._replace(**{name: jnp.float32(x) for name, x in times.items()})
            after, _ = step(state, at, jax.random.key(5))
            moves.append(jax.tree.map(lambda new, old: new - old, after.params, state.params))
        for whole, half in zip(*map(jax.tree.leaves, moves), strict=True):
            np.testing.assert_allclose(half, whole / 2, rtol=1e-3, atol=1e-6)
        assert max(np.abs(x).max() for x in jax.tree.leaves(moves[0])) > 1e-2
        first_epoch += num_epochs


@pytest.mark.thorough
def test_of_more_views_than_two_every_pair_counts(data):
    config, method, arrays = built(data, num_views=3, block_size=7)
    stage = method.stages[0]
    state = start(stage, arrays)
    batch, key = batch_of(stage, state, arrays), jax.random.key(0)

    @jax.jit
    def by_hand():
        embeddings, _ = embedded(config, state, batch, key)
        return contrastive.multiview_debiased(embeddings, temperature=0.5, tau_plus=0.1)

    after, metrics = jax.jit(stage.step)(state, batch, key)
    np.testing.assert_allclose(metrics["loss"], by_hand(), rtol=1e-5)
    assert differ(after.params["backbone"], state.params["backbone"])


def test_stages_come_apart(data):
    assert [s.name for s in built(data, pretrain_epochs=4)[1].stages] == ["pretrain"]
    alone = built(data, pretrain_epochs=0, head="finetune")[1].stages
    assert [(s.name, s.num_epochs) for s in alone] == [("finetune", 4)]


# CIFAR-10 imbalanced, Table II.
CIFAR = tiny.problem().info._replace(
    n_p=600, n_u=32400, prior=3000 / 33000, prior_unlabeled=2400 / 32400
)


@pytest.mark.parametrize(
    "changes, expected",
    [
        ({}, lambda s, y: risks.imbalanced_nnpu(s, y, prior=0.0740740740740740)),
        ({"prior_factor": 10.0}, lambda s, y: risks.imbalanced_nnpu(s, y, prior=0.740740740740740)),
        ({"head_loss": "nnpu"}, lambda s, y: risks.nnpu(s, y, prior=0.0740740740740740)),
        (
            {"head_loss": "nnpu", "prior_factor": 2.0, "calibration": "none"},
            lambda s, y: risks.nnpu(s, y, prior=2 / 11),
        ),
        (
            {"head_loss": "nnpu", "prior_factor": 2.0, "calibration": "auto"},
            lambda s, y: risks.nnpu(
                s, y, prior=2 / 11, unlabeled_prior=4 / 27, unlabeled_weight=54 / 55
            ),
        ),
        ({"head_loss": "bce"}, lambda s, y: risks.weighted_bce(s, y, positive_weight=1.0)),
        ({"head_loss": "weighted_bce"}, lambda s, y: risks.weighted_bce(s, y, positive_weight=54)),
    ],
)
def test_head_losses_are_those_of_the_published_numbers(changes, expected):
    rng = np.random.default_rng(0)
    scores = jnp.asarray(rng.normal(size=50), jnp.float32)
    labeled = jnp.asarray(rng.random(50) < 0.2, jnp.float32)
    config = impulses.default_config()
    config.update(changes)
    found = impulses.head_risk(config, CIFAR)(scores, labeled)
    np.testing.assert_allclose(found, expected(scores, labeled), rtol=1e-6)


def test_the_factor_reaches_as_far_as_the_prior_that_the_loss_reads():
    config = impulses.default_config()
    config.prior_factor = 2.6
    balanced = CIFAR._replace(n_p=4000, n_u=46000, prior=0.4, prior_unlabeled=16000 / 46000)
    impulses.head_risk(config, balanced)  # 2.6 times the prior in U is below 1, times 0.4 it is not
    config.update({"head_loss": "nnpu", "calibration": "auto"})
    with pytest.raises(ValueError, match="method.prior_factor is 2.6; accepted: below 2.5,"):
        impulses.head_risk(config, balanced)


@pytest.mark.thorough
def test_a_linear_head_keeps_its_rate_whatever_pretraining_warms_up(data):
    changes = {"optimizer": "lars", "lr_warmup": 100.0, "lr_schedule": "cosine"}
    _, method, arrays = built(data, **changes)
    pretraining, head = method.stages
    state = start(head, arrays, start(pretraining, arrays))
    batch = batch_of(head, state, arrays, epoch=2)
    after, _ = jax.jit(head.step)(state, batch, jax.random.key(0))
    moved = after.params["classifier"]["kernel"] - state.params["classifier"]["kernel"]
    np.testing.assert_allclose(np.max(np.abs(moved)), 0.1, rtol=1e-3)  # Adam's first step
    # That step has the length of the rate with any decay, which turns the sign of single weights.
    _, decayed, _ = built(data, **changes, weight_decay=5.0)
    again, _ = jax.jit(decayed.stages[1].step)(state, batch, jax.random.key(0))
    tiny.assert_same(again.params["classifier"], after.params["classifier"])


@pytest.mark.parametrize(
    ("head", "rate", "num_features", "expected"),
    [
        ("linear", "auto", 2048, 3e-4),  # a ResNet-50, as published
        ("linear", "auto", 512, 1.2e-3),
        ("linear", "auto", 16, 0.0384),
        ("finetune", "auto", 16, 3e-4),
        ("linear", 0.003, 16, 0.003),
    ],
)
def test_the_rate_of_a_linear_head_follows_its_features(head, rate, num_features, expected, caplog):
    section = impulses.default_config()
    section.update({"head": head, "head_learning_rate": rate})
    assert head_rate.resolved(section, num_features) == pytest.approx(expected)
    # Said where it is neither given nor the published one.
    is_other = rate == "auto" and expected != 3e-4
    assert [f"is {expected:.3g}: 0.0003 for" in x.getMessage() for x in caplog.records] == (
        [True] if is_other else []
    )


def test_a_head_takes_the_rate_of_the_features_that_it_sees(data):
    _, method, arrays = built(data, head_learning_rate="auto")
    pretraining, head = method.stages
    state = start(head, arrays, start(pretraining, arrays))
    after, _ = jax.jit(head.step)(state, batch_of(head, state, arrays, epoch=2), jax.random.key(0))
    moved = after.params["classifier"]["kernel"] - state.params["classifier"]["kernel"]
    np.testing.assert_allclose(np.max(np.abs(moved)), 0.0384, rtol=1e-3)  # 16 of them


def test_the_upper_bound_sees_the_truth_and_says_so(data):
    _, method, arrays = built(data, labels="true", head_loss="weighted_bce")
    assert method.reveals == "all"
    assert arrays.labeled.sum() == (data.truth == 1).sum() > data.labeled.sum()
    # Positives weigh as many as there are negatives for each in truth, not labelled ones beside U.
    pretraining, head = method.stages
    state = start(head, arrays, start(pretraining, arrays))
    batch = batch_of(head, state, arrays, epoch=2)
    _, metrics = jax.jit(head.step)(state, batch, jax.random.key(0))
    classifier = state.params["classifier"]
    scores = (batch.inputs @ classifier["kernel"] + classifier["bias"])[:, 0]
    weight = (data.truth != 1).sum() / (data.truth == 1).sum()
    expected = risks.weighted_bce(scores, batch.labeled, positive_weight=weight)
    np.testing.assert_allclose(metrics["loss"], expected, rtol=1e-5)


def test_corrupted_rows_take_the_asked_share_of_features_from_other_rows():
    rows = jnp.arange(6000.0).reshape(2000, 3)
    found = np.asarray(views_lib.corrupted(jax.random.key(0), rows, share=0.6))
    assert np.all(found % 3 == np.arange(3))  # a feature stays a value of its own column
    np.testing.assert_allclose(np.mean(found != rows), 0.6, atol=0.02)
    assert len(np.unique(found[:, 0])) > 1000


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"tau_plus": 1.0}, r"method.tau_plus is 1.0; accepted: a number in \[0, 1\)"),
        ({"tau_plus": -0.1}, "method.tau_plus is -0.1"),
        ({"temperature": 0.0}, "method.temperature is 0.0"),
        ({"batch_size": 1}, "method.batch_size is 1"),
        ({"num_views": 1}, "method.num_views is 1"),
        ({"block_size": -1}, "method.block_size is -1"),
        ({"head_batch_size": 1}, "method.head_batch_size is 1"),
        ({"head_learning_rate": 0}, "method.head_learning_rate is 0.0; accepted: 'auto', or a num"),
        ({"head_learning_rate": "fast"}, "method.head_learning_rate is 'fast'; accepted: 'auto'"),
        ({"head": "deep"}, "method.head is 'deep'; accepted: 'linear', 'finetune'"),
        ({"head_loss": "hinge"}, "method.head_loss is 'hinge'"),
        ({"projection": "none"}, "^method.projection is 'none'"),
        ({"pretrain_epochs": 0}, "method.pretrain_epochs is 0; accepted: at least 1, unless"),
        ({"pretrain_epochs": 5}, "method.pretrain_epochs is 5"),
        ({"augment": False}, "method.augment is False; accepted: True"),
        ({"crop_area": 0.0}, "method.crop_area is 0.0"),
        ({"hue": 0.6}, "method.hue is 0.6"),
        ({"prior_factor": 50.0}, "method.prior_factor is 50.0; accepted: below"),
        ({"prior_factor": 2.0, "head_loss": "bce"}, "prior_factor is 2.0; accepted: 1.0 while"),
        ({"labels": "true"}, "head_loss is 'imbalanced_nnpu'; accepted: 'bce' or 'weighted_bce'"),
        ({"head_batch_size": 500}, "method.head_batch_size is 500; accepted: at most 192"),
        ({"brightness": 1.5}, "method.brightness is 1.5"),
        ({"data": {"prior": 1.0}}, "data.prior is 1.0"),
        ({"data": {"prior": 0.0}}, "data.prior is 0.0"),
    ],
)
def test_what_cannot_be_is_refused(data, changes, message):
    with pytest.raises(ValueError, match=message):
        built(data, **changes)


@pytest.mark.parametrize("head_loss", ["imbalanced_nnpu", "nnpu"])
def test_u_without_positives_is_refused_before_anything_is_compiled(head_loss):
    all_labeled = tiny.problem(num_labeled=100, num_support=0)
    assert all_labeled.info.prior_unlabeled == 0
    with pytest.raises(ValueError, match="share of positives in U is 0.0; accepted"):
        built(all_labeled, head_loss=head_loss)


@pytest.mark.parametrize("row", impulses_config._ROWS)
@pytest.mark.parametrize("size", ["224", "32", "small", "plain"])
def test_every_row_of_its_tables_has_a_configuration(row, size):
    config = config_lib.resolve(impulses_config.get_config(f"row={row},size={size}"))
    info = CIFAR._replace(input_shape=(32, 32, 3), mean=(0.0,) * 3, std=(1.0,) * 3)
    method = impulses.build(config, info)
    assert sum(stage.num_epochs for stage in method.stages) == config.method.num_epochs
    assert bool(method.reveals) == row.endswith("_wbce")
