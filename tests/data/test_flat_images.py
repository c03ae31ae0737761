"""Images as rows stand for the array of images in whatever asks for some of them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.data import batching, flat_images, pu_dataset
from pujax.data.flat_images import FlatImages
from pujax.training import run_state
from pujax.training.seed_axis import Member
from tests import tiny

IMAGES = np.arange(7 * 2 * 3 * 4, dtype=np.uint8).reshape(7, 2, 3, 4)


def test_it_has_the_images_shape_type_and_rows():
    flat = flat_images.flatten(IMAGES)
    assert isinstance(flat, FlatImages) and flat.rows.shape == (7, 24)
    assert (flat.shape, flat.dtype, len(flat)) == (IMAGES.shape, IMAGES.dtype, 7)
    np.testing.assert_array_equal(np.asarray(flat), IMAGES)
    for ids in (slice(2), np.asarray([[5, 0], [1, 6]]), 3):
        np.testing.assert_array_equal(flat[ids], IMAGES[ids])
    assert pu_dataset.like(flat) == jax.ShapeDtypeStruct((7, 2, 3, 4), np.uint8)
    with_seeds = jax.tree.map(lambda rows: np.stack([rows, rows]), flat)
    assert with_seeds.shape == (2, 7, 2, 3, 4)


def test_a_table_stays_as_it_is():
    table = np.zeros([3, 5], np.float32)
    assert flat_images.flatten(table) is table


def test_compiled_functions_look_up_the_same_images():
    flat, ids = flat_images.flatten(IMAGES), np.asarray([4, 4, 2])
    look_up = jax.jit(lambda inputs, ids: inputs[ids])
    np.testing.assert_array_equal(look_up(flat, ids), IMAGES[ids])
    both = jax.tree.map(lambda rows: jnp.stack([rows, 255 - rows]), flat)
    found = jax.vmap(lambda inputs, ids: inputs[ids], in_axes=(0, None))(both, ids)
    np.testing.assert_array_equal(found, [IMAGES[ids], 255 - IMAGES[ids]])


@pytest.mark.parametrize("batch_size", [2, 7, 100])
def test_functions_of_batches_see_images(batch_size):
    flat = jax.tree.map(jnp.asarray, flat_images.flatten(IMAGES))
    shapes = []

    def total(images):
        shapes.append(images.shape[1:])
        return images.astype(jnp.int32).sum(axis=(1, 2, 3))

    result = batching.map_batches(total, flat, batch_size=batch_size)
    np.testing.assert_array_equal(result, IMAGES.sum(axis=(1, 2, 3)))
    assert set(shapes) == {(2, 3, 4)}


def test_a_run_keeps_images_as_rows(tmp_path):
    trainer = tiny.Trainer(
        tiny.config("naive", model="mlp", options={"hidden": (8,)}), tiny.problem()
    )
    member = Member(trainer.setup, tiny.problem(), str(tmp_path))
    run = run_state.prepare([member], tiny.mesh())
    run.close()
    assert isinstance(run.on_device.inputs, FlatImages)
    np.testing.assert_array_equal(run.on_device.inputs, trainer.setup.data.inputs)
