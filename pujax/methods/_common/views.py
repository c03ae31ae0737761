"""Random views of a batch for losses that compare several views of an example."""

import logging
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from pujax import augment, checks
from pujax.data.pu_dataset import DataInfo

_LOG = logging.getLogger(__name__)

_PROBABILITIES = (
    *("jitter_probability", "grayscale_probability"),
    *("blur_probability", "solarize_probability"),
)
_IN_COLOUR = ("brightness", "contrast", "saturation", "hue", *_PROBABILITIES)


def default_config(**changes: Any) -> dict[str, Any]:
    """Fields of the random views: those of ImPULSeS' released code unless changed."""
    return {
        "augment": True,
        "flip": True,
        "crop_area": 0.08,  # smallest share of an image that a crop shows
        "brightness": 0.8,
        "contrast": 0.8,
        "saturation": 0.8,
        "hue": 0.2,
        "jitter_probability": 0.8,
        "grayscale_probability": 0.2,
        "blur_probability": 0.0,
        "solarize_probability": 0.0,
        "corruption": 0.6,  # of tables: the share of features taken from another row
    } | changes


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for views that cannot be."""
    c = config
    checks.between("method.crop_area", c.crop_area, 0, 1, include="high")
    for name in ("brightness", "contrast", "saturation"):
        checks.between(f"method.{name}", c[name], 0, 1)
    checks.between("method.hue", c.hue, 0, 0.5)
    for name in _PROBABILITIES:
        checks.between(f"method.{name}", c[name], 0, 1)
    checks.between("method.corruption", c.corruption, 0, 1, include="neither")


def require_two(config: ml_collections.ConfigDict, info: DataInfo, accepted: str) -> None:
    """Requires views of an example that differ: images without random views have but one."""
    differ = info.is_table or config.augment
    checks.require(differ, "method.augment", config.augment, accepted)


def say_of_tables(info: DataInfo, meaning: str) -> None:
    """Warns that the views of a table's rows are not those that a method was published with.

    Args:
      info: numbers of the data set; images are as published, and nothing is said.
      meaning: what the views are instead, and what that does to the method.
    """
    if info.is_table:
        _LOG.warning(
            "%s is a table of numbers, which has no crops and colours: %s", info.name, meaning
        )


def random_view(
    key: jax.Array, inputs: jax.Array, config: ml_collections.ConfigDict, *, size: int = 0
) -> jax.Array:
    """One random view of every example, raw like the inputs.

    Args:
      key: random key.
      inputs: uint8 images `[batch, height, width, channels]` or a table `[batch, features]`.
      config: a section with the fields of `default_config`.
      size: side of the views of images; 0 keeps the side.
    """
    if inputs.dtype != jnp.uint8:
        return corrupted(key, inputs, share=config.corruption)
    return augment.contrastive_view(
        key,
        inputs,
        size=size,
        area=(config.crop_area, 1.0),
        **{name: config[name] for name in ("flip", *_IN_COLOUR)},
    )


def cropped(
    key: jax.Array, inputs: jax.Array, config: ml_collections.ConfigDict, *, size: int = 0
) -> jax.Array:
    """Every image cropped and mirrored as in `random_view`, its colours kept; rows as they are.

    Args:
      key: random key.
      inputs: as for `random_view`.
      config: a section with the fields of `default_config`.
      size: side of the views of images; 0 keeps the side.
    """
    if inputs.dtype != jnp.uint8:
        return inputs
    crop_key, flip_key = jax.random.split(key)
    side, area = size or None, (config.crop_area, 1.0)
    inputs = augment.random_resized_crop(crop_key, inputs, height=side, width=side, area=area)
    return augment.random_flip(flip_key, inputs) if config.flip else inputs


def corrupted(key: jax.Array, rows: jax.Array, *, share: float) -> jax.Array:
    """Rows in which some features are those of other rows (Bahri and others, 2022, "SCARF").

    Args:
      key: random key.
      rows: `[batch, features]`.
      share: probability that a feature is replaced by that of a random row of the batch.
    """
    which_key, row_key = jax.random.split(key)
    replaced = jax.random.bernoulli(which_key, share, rows.shape)
    others = jax.random.randint(row_key, rows.shape, 0, rows.shape[0])
    return jnp.where(replaced, jnp.take_along_axis(rows, others, axis=0), rows)
