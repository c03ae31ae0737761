"""The network of a multi-label method: what it sees, and what its head is told of the classes."""

import os

import jax
import ml_collections
import numpy as np

from pujax import augment, checks, models
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.methods._common import network as network_lib
from pujax.methods._common.network import Network

RANDOM = "random"
"""`method.word_vectors` that are drawn and mean nothing."""
_WORD_WIDTH = 300
_GRAPH = "semantic_graph"


def build(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Network:
    """The network that a configuration names, of one logit per class.

    Raises:
      ValueError: if it does not go with the data, or with how they are loaded.
    """
    network_lib.check(config, info)
    c = config.method
    checks.require(
        not (info.load_side and config.data.load_size) or len(c.crop_sizes) > 0,
        "data.load_size",
        config.data.load_size,
        "0 without method.crop_sizes, since images are then resized to data.image_size alone",
    )
    module = models.build_multilabel(
        config.model.name,
        num_classes=info.num_classes,
        head=c.head,
        reduced_width=c.reduced_width,
        attention_width=c.attention_width,
        graph_steps=c.graph_steps,
        dtype=config.model.dtype,
        **config.model.options.to_dict(),
    )
    return Network(module, info.mean, info.std, config.model.image_size)


def word_vectors(config: ml_collections.ConfigDict, num_classes: int) -> np.ndarray | None:
    """One vector per class for the semantic-graph head, else None."""
    path = config.word_vectors
    if config.head != _GRAPH:
        checks.require(not path, "method.word_vectors", path, f"'' without method.head={_GRAPH!r}")
        return None
    accepted = f"the path of an .npy file with {num_classes} vectors, or {RANDOM!r}"
    if path == RANDOM:
        return np.random.default_rng(0).normal(size=[num_classes, _WORD_WIDTH]).astype(np.float32)
    checks.require(os.path.isfile(path), "method.word_vectors", path, accepted)
    try:
        words = np.load(path, allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(
            f"method.word_vectors is {path!r}, no .npy file; accepted: {accepted}"
        ) from error
    right = getattr(words, "ndim", 0) == 2 and words.dtype.kind in "fiu"
    right = right and len(words) == num_classes and words.shape[1] > 0
    what = f"{path} of {getattr(words, 'dtype', 'several arrays')} {getattr(words, 'shape', '')}"
    finite = right and bool(np.isfinite(words).all())
    checks.require(finite, "method.word_vectors", what, accepted)
    return words.astype(np.float32)


def view(
    config: ml_collections.ConfigDict,
    info: MultilabelInfo,
    network: Network,
    inputs: jax.Array,
    key: jax.Array,
) -> jax.Array:
    """Normalised images of a training batch; streamed ones are cropped already."""
    if config.augment:
        crop_key, flip_key = jax.random.split(key)
        if config.crop_sizes and not info.load_side:
            side = network.image_size or min(info.input_shape[:2])
            inputs = augment.multiscale_crop(crop_key, inputs, sizes=config.crop_sizes, side=side)
        if config.flip:
            inputs = augment.random_flip(flip_key, inputs)
    return network.normalize(inputs)
