"""What all multi-label methods share: views, frozen parts, heads, settings."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import traverse_util
from PIL import Image

from pujax import augment, risks
from pujax.data.batching import Batching
from pujax.methods import assume_negative
from pujax.methods._common import network as network_lib
from pujax.training import method_setup, sharding, train_step
from tests import tiny

LINEAR = {"model": "mlp", "options": {"hidden": ()}, "flip": False, "average_decay": 0.0}
NORMED = {"options": {"hidden": (4,), "batch_norm": True}}
# One block of 8 and one of 16 channels; LgConv needs multiples of 8.
RESIDUAL = {
    "model": "resnet_small",
    "options": {"width": 8, "stage_sizes": (1, 1), "lgconv": True},
}
GRAPH = {
    "model": "resnet_small",
    "options": {"width": 4, "stage_sizes": (1,)},
    **{"head": "semantic_graph", "reduced_width": 8, "attention_width": 4, "graph_steps": 1},
}


@pytest.fixture(scope="module")
def data():
    return tiny.multilabel_problem(known_ratio=0.6)


def setup(data, name="assume_negative", **changes):
    """The method, its state at the start and its first batch."""
    config = tiny.config(name, **(LINEAR | changes))
    built = method_setup.build(config, data, tiny.mesh())
    arrays = sharding.replicate(built.data.training_data(), tiny.mesh())
    (stage,) = built.method.stages
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, tiny.mesh())
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    batch = tiny.gather(arrays, plan, 0, epoch=0, step=0)
    return built.method, state, batch


def steps(method, state, batch, count):
    """The states after one step, two steps and so on, and the last metrics."""
    step, states = jax.jit(method.stages[0].step), []
    for seed in range(count):
        state, metrics = step(state, batch, jax.random.key(seed))
        states.append(state)
    return states, metrics


def scores_of(data, state, images):
    """Scores of the linear network on raw images."""
    pixels = np.asarray(images, np.float64) / 255
    rows = ((pixels - data.info.mean) / data.info.std).reshape(len(pixels), -1)
    head = jax.tree.map(np.asarray, state.params["classifier"])
    return rows @ head["kernel"] + head["bias"]


def changed(before, after):
    """Names of the leaves that differ."""
    before, after = (traverse_util.flatten_dict(x, sep="/") for x in (before, after))
    assert before.keys() == after.keys()
    return {name for name in before if not np.array_equal(before[name], after[name])}


@pytest.mark.parametrize(
    ("name", "changes", "risk"),
    [
        ("assume_negative", {}, risks.assume_negative_bce),
        (
            "partial_bce",
            {"gamma": -2.0, "weight_at_tenth": 4.0},
            lambda s, y: risks.partial_bce(s, y, gamma=-2.0, weight_at_tenth=4.0),
        ),
        (
            "asymmetric",
            {"gamma_negative": 3.0, "gamma_positive": 0.5, "clip": 0.1, "unknown": "ignore"},
            lambda s, y: risks.asymmetric(
                s, y, gamma_negative=3.0, gamma_positive=0.5, clip=0.1, unknown="ignore"
            ),
        ),
    ],
)
def test_a_method_minimises_its_risk_of_the_batch(data, name, changes, risk):
    method, state, batch = setup(data, name, **changes)
    _, metrics = steps(method, state, batch, 1)
    scores = scores_of(data, state, batch.inputs)
    wanted = risk(jnp.asarray(scores, jnp.float32), batch.labeled)
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-4)  # float32 network


@pytest.mark.parametrize("stop", [True, False])
def test_focusing_weights_are_constants_of_the_gradient_where_it_stops_there(data, stop):
    sgd = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 0.1}
    numbers = {"gamma_negative": 3.0, "gamma_positive": 0.5, "clip": 0.1}
    numbers["stop_weight_gradient"] = stop
    method, state, batch = setup(data, "asymmetric", **sgd, **numbers, lr_schedule="constant")
    (after,), _ = steps(method, state, batch, 1)

    def loss(bias):
        moved = jnp.asarray(scores_of(data, state, batch.inputs), jnp.float32) + bias
        return risks.asymmetric(moved, batch.labeled, **numbers)

    moves = (state.params["classifier"]["bias"] - after.params["classifier"]["bias"]) / 0.1
    np.testing.assert_allclose(moves, jax.jit(jax.grad(loss))(jnp.zeros(3)), rtol=1e-4)


def test_the_supervised_bound_sees_every_true_label(data):
    method, state, batch = setup(data, "multilabel_supervised")
    labels = data.truth[np.asarray(batch.ids)]
    np.testing.assert_array_equal(batch.labeled, np.where(labels == 1, 1, -1))
    _, metrics = steps(method, state, batch, 1)
    scores = scores_of(data, state, batch.inputs)
    wanted = np.logaddexp(0, np.where(labels == 1, -scores, scores)).mean()
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-4)  # float32 network


def branches(names):
    return {name for name in names if "global_branch" in name.split("/")}


@pytest.mark.thorough
def test_frozen_stages_keep_every_bit_and_global_branches_train(data):
    method, start, batch = setup(data, **RESIDUAL, frozen_stages=1)
    states, _ = steps(method, start, batch, 2)
    moved = changed(start.params, states[-1].params)
    frozen = set(traverse_util.flatten_dict(start.params, sep="/")) - moved
    assert "backbone/stem/kernel" in frozen and not branches(frozen)
    assert {name.split("/")[1] for name in frozen} == {"stem", "stage1_block1"}
    assert {name.split("/")[1] for name in branches(moved)} == {"stage1_block1", "stage2_block1"}
    assert {"classifier/kernel", "classifier/bias"} <= moved
    assert any("stage2_block1" in name for name in moved - branches(moved))
    # The statistics of frozen stages follow the data unless batch norm is frozen.
    assert changed(start.batch_stats, states[-1].batch_stats)


def test_frozen_batch_norm_keeps_its_statistics_and_trains_its_scale(data):
    method, start, batch = setup(data, **NORMED, freeze_norm="on")
    states, _ = steps(method, start, batch, 2)
    tiny.assert_same(states[-1].batch_stats, start.batch_stats)
    assert "backbone/norm1/scale" in changed(start.params, states[-1].params)
    # Every example is then scored alone: a batch of one is scored as it is within a larger one.
    np.testing.assert_allclose(
        method.predict(start, batch.inputs)[:1], method.predict(start, batch.inputs[:1]), rtol=1e-5
    )


@pytest.mark.thorough
@pytest.mark.parametrize("starts_from", ["", "another run"])
def test_auto_freezes_what_is_published_where_a_network_starts_from_other_weights(
    data, starts_from
):
    options = {"width": 8, "stage_sizes": (1, 1, 1), "lgconv": False}
    auto = {"frozen_stages": -1, "freeze_norm": "auto", "init_from": starts_from}
    settings = RESIDUAL | {"options": options} | auto
    if starts_from:
        method, state, _ = setup(data, **(RESIDUAL | {"options": options}))
        data = data._replace(encoder=jax.device_get(method.encoder(state)))
    method, start, batch = setup(data, **settings)
    states, _ = steps(method, start, batch, 1)
    moved = changed(start.params, states[-1].params)
    if starts_from:
        assert {name.split("/")[0] for name in moved} == {"classifier"}
        tiny.assert_same(start.params["backbone"], data.encoder.params)
        assert not changed(start.batch_stats, states[-1].batch_stats)
    else:
        assert "backbone/stem/kernel" in moved
        assert changed(start.batch_stats, states[-1].batch_stats)


@pytest.mark.thorough
def test_the_graph_head_holds_word_vectors_and_the_adjacency_of_known_positives(data):
    method, start, batch = setup(data, **GRAPH, word_vectors="random")
    known = (data.labeled == 1).astype(np.float64)
    together = known.T @ known
    np.testing.assert_allclose(
        start.constants.adjacency, together / np.diag(together)[:, None], rtol=1e-6
    )
    assert start.constants.word_vectors.shape == (3, 300)
    states, metrics = steps(method, start, batch, 2)
    tiny.assert_same(states[-1].constants, start.constants)
    assert np.isfinite(metrics["loss"])
    moved = changed(start.params, states[-1].params)
    assert any(name.startswith("semantic_graph/") for name in moved)
    # The graph decides: with other words the same weights score otherwise.
    inputs = data.test_inputs[:4]
    swapped = start._replace(
        constants=start.constants._replace(word_vectors=start.constants.word_vectors[::-1])
    )
    scores = method.predict(start, inputs)
    assert scores.shape == (4, 3)
    assert np.abs(scores - method.predict(swapped, inputs)).max() > 1e-6


def test_the_graph_head_has_the_sizes_of_the_method(data):
    config = tiny.config("assume_negative", **(LINEAR | GRAPH), word_vectors="random")
    module = network_lib.build_multilabel(config, data.info).module
    sizes = module.head, module.reduced_width, module.attention_width, module.graph_steps
    assert sizes == ("semantic_graph", 8, 4, 1)


@pytest.mark.thorough
def test_word_vectors_come_from_a_file(data, tmp_path):
    words = np.random.default_rng(3).normal(size=(3, 5))
    path = str(tmp_path / "words.npy")
    np.save(path, words)
    _, state, _ = setup(data, **GRAPH, word_vectors=path)
    np.testing.assert_array_equal(state.constants.word_vectors, words.astype(np.float32))
    text = np.full((3, 5), "word")
    for wrong in (words[:2], words[0], np.full((3, 5), np.nan), words[:, :0], 1j * words, text):
        np.save(path, wrong)
        with pytest.raises(ValueError, match=r"method.word_vectors is .*accepted: .* 3 vectors"):
            setup(data, **GRAPH, word_vectors=path)
    with open(path, "w") as file:
        file.write("0.1 0.2")
    with pytest.raises(ValueError, match=r"method.word_vectors is .*no .npy file"):
        setup(data, **GRAPH, word_vectors=path)


def test_crops_of_images_that_are_no_squares_need_a_size(data):
    wide = data._replace(
        inputs=np.repeat(data.inputs, 2, axis=2), info=data.info._replace(input_shape=(8, 16, 3))
    )
    accepted = r"method.crop_sizes is \(4, 6\); accepted: .*, since images are 8 x 16 pixels"
    with pytest.raises(ValueError, match=accepted):
        setup(wide, crop_sizes=(4, 6))


@pytest.mark.thorough
def test_images_in_memory_are_cropped_on_the_device(data):
    sizes = (4, 6)
    method, state, batch = setup(data, crop_sizes=sizes)
    assert method.stages[0].batching == Batching(16, crop_sizes=sizes)
    key = jax.random.key(0)
    crop_key, _ = jax.random.split(jax.random.split(key)[0])
    crops = augment.multiscale_crop(crop_key, batch.inputs, sizes=sizes, side=8)
    assert (np.asarray(crops) != np.asarray(batch.inputs)).any()
    _, metrics = steps(method, state, batch, 1)
    wanted = risks.assume_negative_bce(
        jnp.asarray(scores_of(data, state, crops), jnp.float32), batch.labeled
    )
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-4)
    # Without views training sees the images as they are.
    method, state, batch = setup(data, crop_sizes=sizes, augment=False)
    assert method.stages[0].batching.crop_sizes == ()
    _, metrics = steps(method, state, batch, 1)
    wanted = risks.assume_negative_bce(
        jnp.asarray(scores_of(data, state, batch.inputs), jnp.float32), batch.labeled
    )
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-4)


def test_flips_mirror_some_images(data):
    method, state, batch = setup(data, flip=True)
    _, flip_key = jax.random.split(jax.random.split(jax.random.key(0))[0])
    flipped = augment.random_flip(flip_key, batch.inputs)
    _, metrics = steps(method, state, batch, 1)
    wanted = risks.assume_negative_bce(
        jnp.asarray(scores_of(data, state, flipped), jnp.float32), batch.labeled
    )
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-4)


def test_test_images_are_resized_by_the_filter_of_the_crops(data):
    config = tiny.config("assume_negative", **LINEAR).as_configdict()
    config.model.image_size = 5
    method = assume_negative.build(config, data.info)
    arrays = data.training_data()
    state = method.stages[0].init(jax.random.key(0), None, arrays)
    resized = np.stack(
        [Image.fromarray(x).resize((5, 5), Image.Resampling.BICUBIC) for x in data.inputs[:4]]
    )
    # A crop of the whole image, as training sees it, is the same image.
    crops = augment.multiscale_crop(jax.random.key(1), data.inputs[:4], sizes=(8,), side=5)
    np.testing.assert_array_equal(crops, resized)
    np.testing.assert_allclose(
        method.predict(state, data.inputs[:4]), scores_of(data, state, resized), rtol=1e-4
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"average_decay": 1.0}, "method.average_decay is 1.0; accepted"),
        ({"head": "max"}, "method.head is 'max'; accepted: 'gap', 'semantic_graph'"),
        ({"head": "semantic_graph"}, "method.word_vectors is ''; accepted: .*'random'|head is"),
        (GRAPH | {"word_vectors": "/no.npy"}, "method.word_vectors is '/no.npy'; accepted: .* 3 v"),
        ({"word_vectors": "random"}, "method.word_vectors is 'random'; accepted: ''"),
        (GRAPH | {"word_vectors": "random", "reduced_width": 0}, "reduced_width is 0; accepted"),
        ({"frozen_stages": -2}, "method.frozen_stages is -2; accepted"),
        ({"frozen_stages": 1}, "method.frozen_stages is 1; accepted: 0 to 0, the stages"),
        (RESIDUAL | {"frozen_stages": 3}, "method.frozen_stages is 3; accepted: 0 to 2, the st"),
        ({"freeze_norm": "yes"}, "method.freeze_norm is 'yes'; accepted: 'off', 'on', 'auto'"),
        ({"crop_sizes": (8, 9)}, r"method.crop_sizes is \(8, 9\); accepted: .* 1 to 8"),
        ({"crop_sizes": (0,)}, r"method.crop_sizes is \(0,\); accepted"),
        ({"learning_rate": -1.0}, "method.learning_rate is -1.0; accepted"),
        ({"lr_schedule": "one_cycle", "lr_cycle_epochs": 2}, "method.lr_cycle_epochs is 2; accep"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(data, changes, message):
    with pytest.raises(ValueError, match=message):
        method_setup.build(tiny.config("assume_negative", **(LINEAR | changes)), data, tiny.mesh())


def test_the_learning_rate_follows_the_epochs_of_the_problem(data):
    """One cycle: 200 examples in batches of 16 are 12 steps an epoch, 48 in four epochs."""
    config = tiny.config(
        "assume_negative", **LINEAR, lr_schedule="one_cycle", weight_decay=0.0, learning_rate=0.25
    )
    method = assume_negative.build(config, data.info)
    _, state, batch = setup(data)
    (after,), _ = steps(method, state, batch, 1)
    moved = np.abs(after.params["classifier"]["kernel"] - state.params["classifier"]["kernel"])
    # Adam's first step has the length of the rate, which starts at a 25th of its peak.
    np.testing.assert_allclose(moved.max(), 0.01, rtol=1e-2)
