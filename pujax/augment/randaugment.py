"""RandAugment as LaGAM uses it: random operations, each with a random strength, then a cut-out.

Every image may get any of fourteen operations in every round. Instead of computing all fourteen and
keeping one, a round has three passes, each of which leaves an image alone if its operation belongs
to another pass: a gather through an affine matrix, a table of grey levels, and a blend.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from pujax.augment import blends, erase, geometry, layout, tones


class Operation(NamedTuple):
    """An operation by name, with the range of its strength (0 to 0 where it has none)."""

    name: str
    low: float = 0.0
    high: float = 0.0


# Ranges of the published code; its posterize takes the integer part of the strength.
OPERATIONS = (
    Operation("autocontrast"),
    Operation("brightness", 0.05, 0.95),
    Operation("color", 0.05, 0.95),
    Operation("contrast", 0.05, 0.95),
    Operation("equalize"),
    Operation("identity"),
    Operation("posterize", 4.0, 8.0),
    Operation("rotate", -30.0, 30.0),
    Operation("sharpness", 0.05, 0.95),
    Operation("shear_x", -0.3, 0.3),
    Operation("shear_y", -0.3, 0.3),
    Operation("solarize", 0.0, 256.0),
    Operation("translate_x", -0.3, 0.3),
    Operation("translate_y", -0.3, 0.3),
)

# Strengths are drawn as integers times a power of two of about 2**-24 of the range: a draw
# `low + span * uniform` in floats could round differently once compiled.
_LOW = np.array([operation.low for operation in OPERATIONS])
_SPAN = np.array([operation.high - operation.low for operation in OPERATIONS])
_UNIT = 2.0 ** np.ceil(np.log2(np.maximum(_SPAN, 1e-9)) - 24)
_LOW_UNITS = np.round(_LOW / _UNIT).astype(np.int32)
_SPAN_UNITS = np.round(_SPAN / _UNIT).astype(np.float32)


def rand_augment(
    key: jax.Array, images: jax.Array, *, num_ops: int = 3, max_cutout: float = 0.5
) -> jax.Array:
    """Random operations one after the other, then always one cut-out.

    The variant in LaGAM's published code (CVPR 2024); RandAugment itself is arXiv:1909.13719.

    Args:
      key: random key.
      images: uint8 `[batch, height, width, channels]`.
      num_ops: operations per image.
      max_cutout: largest side of the cut-out, as a share of the image width.

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for a negative `num_ops` or a `max_cutout` outside [0, 1].
    """
    operation_key, cutout_key = jax.random.split(key)
    operation, strength = random_operations(operation_key, images.shape[0], num_ops=num_ops)
    images = apply_operations(images, operation, strength)
    return erase.random_cutout(cutout_key, images, max_side=max_cutout)


def random_operations(
    key: jax.Array, batch: int, *, num_ops: int = 3
) -> tuple[jax.Array, jax.Array]:
    """Draws operations uniformly with replacement, and a uniform strength for each.

    Args:
      key: random key.
      batch: number of images.
      num_ops: operations per image.

    Returns:
      operation: int32 `[batch, num_ops]`, positions in `OPERATIONS`.
      strength: float32 `[batch, num_ops]`, uniform in the range of that operation.

    Raises:
      ValueError: for a negative `num_ops`.
    """
    if num_ops < 0:
        raise ValueError(f"num_ops is {num_ops}; accepted: 0 or more operations per image")
    operation_key, strength_key = jax.random.split(key)
    shape = (batch, num_ops)
    operation = jax.random.randint(operation_key, shape, 0, len(OPERATIONS), jnp.int32)
    span = jnp.asarray(_SPAN_UNITS)[operation]
    steps = (jax.random.uniform(strength_key, shape, jnp.float32) * span).astype(jnp.int32)
    steps = jnp.asarray(_LOW_UNITS)[operation] + steps
    return operation, steps.astype(jnp.float32) * jnp.asarray(_UNIT, jnp.float32)[operation]


def apply_operations(images: jax.Array, operation: jax.Array, strength: jax.Array) -> jax.Array:
    """Applies to each image its own operations, in order.

    Args:
      images: uint8 `[batch, height, width, channels]`.
      operation: int32 `[batch, num_ops]`, positions in `OPERATIONS`.
      strength: float32 `[batch, num_ops]`; ignored by operations without a strength.

    Returns:
      uint8 images of the same shape.

    Raises:
      ValueError: for images that are not accepted.
    """
    layout.check_images(images)
    # A loop also keeps XLA from fusing one round into the next, which would recompute it per pixel.
    return jax.lax.scan(_round, images, (operation.T, strength.T.astype(jnp.float32)))[0]


def identity(images: jax.Array) -> jax.Array:
    """Leaves the images as they are; one of the operations.

    Args:
      images: uint8 `[batch, height, width, channels]`.

    Returns:
      The same images.
    """
    layout.check_images(images)
    return images


def _round(images, drawn):
    """One operation per image; `drawn` is the operation and the strength, both `[batch]`."""
    operation, strength = drawn
    drawn = {known.name: operation == i for i, known in enumerate(OPERATIONS)}
    plain, factor = _plain_images(images, drawn, strength)
    matrix, table = _matrix(images, drawn, strength), _table(images, drawn, strength)
    images = tones.lookup(geometry.sample(images, matrix), table)
    return blends.blend(plain, images, factor), None


def _plain_images(images, drawn, strength):
    grey = blends.luminance(images)
    plain = {
        "brightness": jnp.zeros((1, 1, 1, 1), jnp.int32),
        "color": grey,
        "contrast": blends.mean_grey(grey),
        "sharpness": blends.smooth(images),
    }
    return (
        _choose(drawn, plain, images.astype(jnp.int32)),
        _choose(drawn, dict.fromkeys(plain, strength), jnp.ones_like(strength)),
    )


def _matrix(images, drawn, strength):
    batch, height, width, _ = images.shape
    shear = geometry.shear_x_matrix(strength)
    matrices = {
        "rotate": geometry.rotation_matrix(strength, height, width),
        "shear_x": shear,
        "shear_y": geometry.swap_axes(shear),
        "translate_x": geometry.translate_x_matrix(strength, width),
        "translate_y": geometry.swap_axes(geometry.translate_x_matrix(strength, height)),
    }
    return _choose(drawn, matrices, geometry.identity_matrix(batch))


def _table(images, drawn, strength):
    counts = tones.histogram(images)
    tables = {
        "autocontrast": tones.autocontrast_table(counts),
        "equalize": tones.equalize_table(counts),
        "posterize": tones.posterize_table(strength),
        "solarize": tones.solarize_table(strength),
    }
    chosen = [drawn[name] for name in tables]
    others = ~(chosen[0] | chosen[1] | chosen[2] | chosen[3])
    one_hot = jnp.stack([*chosen, others], axis=1).astype(jnp.float32)
    every = [jnp.broadcast_to(table, counts.shape) for table in (*tables.values(), tones.LEVELS)]
    # A product and not a `where`, which XLA would fuse into the look-up, computing the tables again
    # for every pixel. Levels up to 255 are exact in any matrix-product precision.
    return jnp.einsum("bk,bkcv->bcv", one_hot, jnp.stack(every, axis=1).astype(jnp.float32))


def _choose(drawn, options, otherwise):
    for name, option in options.items():
        mask = drawn[name].reshape((-1,) + (1,) * (otherwise.ndim - 1))
        otherwise = jnp.where(mask, option, otherwise)
    return otherwise
