"""Encoders on disk: what comes back is what was written, and damage is said."""

import functools
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import models
from pujax.models import encoder


@functools.cache
def network(channels=(4, 8, 8), size=8, *, batch_norm=True, seed=0):
    """Random numbers in the shapes of a network, statistics too; nothing is compiled for it."""
    options = {"channels": channels, "hidden": (16,), "batch_norm": batch_norm}
    module = models.build("small_cnn", embedding_dim=4, **options)
    inputs, rng = jnp.zeros([2, size, size, 1]), np.random.default_rng(seed)
    shapes = jax.eval_shape(lambda key: module.init(key, inputs, False), jax.random.key(0))
    variables = jax.tree.map(lambda leaf: jnp.asarray(rng.random(leaf.shape), leaf.dtype), shapes)
    return variables["params"], variables.get("batch_stats", {})


def assert_same(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.thorough
@pytest.mark.parametrize("batch_norm", [True, False])
def test_what_is_loaded_is_what_was_saved(tmp_path, batch_norm):
    saved = encoder.of(*network(batch_norm=batch_norm))
    path = str(tmp_path / "encoder.npz")
    encoder.save(path, saved, {"model": "small_cnn", "mean": [0.5]})
    loaded, description = encoder.load(path)
    assert_same(loaded, saved)
    assert description == {"model": "small_cnn", "mean": [0.5]}
    assert os.listdir(tmp_path) == ["encoder.npz"]


def test_put_replaces_the_backbone_and_keeps_the_heads():
    ours, theirs = network(seed=0), network(seed=1)
    params, stats = encoder.put(encoder.of(*theirs), *ours)
    assert_same(params["backbone"], theirs[0]["backbone"])
    assert_same(stats["backbone"], theirs[1]["backbone"])
    assert_same(params["classifier"], ours[0]["classifier"])
    assert jax.tree.structure(params) == jax.tree.structure(ours[0])


@pytest.mark.parametrize(
    "other, message",
    [
        ({"channels": (4, 6, 8)}, r"params/conv2/bias of the saved encoder is \[6\], .* it is .8."),
        ({"batch_norm": False}, "params/norm1/bias of the saved encoder is missing, .* it is .4."),
        ({"size": 12}, "params/dense1/kernel .*model.image_size"),
    ],
)
def test_another_architecture_is_named(other, message):
    with pytest.raises(ValueError, match=f"init_from: .*{message}"):
        encoder.put(encoder.of(*network(**other)), *network())


@pytest.mark.parametrize("damage", ["cut", "text", "no description"])
def test_a_damaged_file_is_named(tmp_path, damage):
    path = str(tmp_path / "encoder.npz")
    encoder.save(path, encoder.of(*network()), {})
    if damage == "cut":
        os.truncate(path, os.path.getsize(path) // 2)
    elif damage == "text":
        (tmp_path / "encoder.npz").write_text("hello")
    else:
        with open(path, "wb") as file:
            np.savez(file, **{"params/a": np.zeros(3)})
    with pytest.raises(ValueError, match="encoder.npz is damaged"):
        encoder.load(path)
