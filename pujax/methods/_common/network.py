"""A network as functions of parameter trees and batch statistics."""

import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from pujax import accelerator, augment, checks, models, reading
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import freezing
from pujax.models import encoder as encoder_lib
from pujax.models import layers, multilabel
from pujax.models.encoder import Encoder

_WORD_WIDTH = 300
_GRAPH = "semantic_graph"

RESIZE = {"bilinear": augment.resize, "bicubic": augment.resize_bicubic}
"""Pillow's filters on the device, by the names of `data.readers.image_arrays.FILTERS`."""


class Network(NamedTuple):
    """A Linen module bound to a data set's normalisation.

    Attributes:
      module: a `models.heads.PUNet`, or a `models.multilabel.MultilabelNet`, which all functions
        below take `constants` for where its head needs them.
      mean: per channel, of pixels in 0-1; per feature of a table.
      std: likewise.
      image_size: side in pixels that images are resized to; 0 keeps theirs.
      frozen_stages: stages of the backbone that do not train, which it must have.
      freeze_norm: whether batch norm uses its running statistics in training too.
      joins_views: whether the views of a batch go through the module in one call.
      resample: filter that resizes images, one of `RESIZE`.
    """

    module: nn.Module
    mean: tuple[float, ...]
    std: tuple[float, ...]
    image_size: int = 0
    frozen_stages: int = 0
    freeze_norm: bool = False
    joins_views: bool = False
    resample: str = "bilinear"

    def normalize(self, inputs: jax.Array) -> jax.Array:
        """Raw inputs to normalised float32.

        Bytes are images: resized, brought to 0-1, less mean, over std. The rest is a table's rows.
        """
        return normalize(inputs, self.mean, self.std, self.image_size, resample=self.resample)

    def init(
        self,
        key: jax.Array,
        inputs: jax.Array,
        encoder: Encoder | None = None,
        *,
        constants: multilabel.GraphConstants | None = None,
    ) -> tuple[Any, Any]:
        """Parameters and batch statistics to start from.

        Args:
          key: random key.
          inputs: raw inputs `[batch, ...]`.
          encoder: backbone to start from, usually `TrainingData.encoder`; None makes a fresh one.
          constants: of the semantic-graph head.

        Returns:
          `(params, batch_stats)`; heads are always fresh.

        Raises:
          ValueError: if the encoder is of another architecture, or the backbone has fewer stages
            than are to be frozen.
        """
        options: dict[str, Any] = {} if constants is None else {"constants": constants}
        variables = self.module.init(key, self.normalize(inputs), False, **options)
        fresh = variables["params"], variables.get("batch_stats", {})
        freezing.check_stages(fresh[0], self.frozen_stages)
        return fresh if encoder is None else encoder_lib.put(encoder, *fresh)

    def has_batch_stats(self, info: DataInfo) -> bool:
        """True where the network normalises by batch statistics; nothing is computed."""
        return bool(self._shapes(info)[1])

    def num_features(self, info: DataInfo) -> int:
        """How many features the backbone gives to the classifier; nothing is computed."""
        return int(self._shapes(info)[0]["classifier"]["kernel"].shape[0])

    def _shapes(self, info: DataInfo) -> tuple[Any, Any]:
        """Those of `init`."""
        inputs = jax.ShapeDtypeStruct((2, *info.input_shape), info.input_dtype)
        return jax.eval_shape(self.init, jax.eval_shape(jax.random.key, 0), inputs)

    @property
    def has_dropout(self) -> bool:
        """Whether layers drop outputs in training passes that have a key."""
        return getattr(self.module.backbone, "dropout", 0) > 0

    @property
    def is_multilabel(self) -> bool:
        """Whether there is one logit per class."""
        return isinstance(self.module, multilabel.MultilabelNet)

    @property
    def is_trainable(self) -> Callable[[tuple[Any, ...]], bool] | None:
        """Whether the parameter at a key path trains; None where all do."""
        if not self.frozen_stages:
            return None
        trains = freezing.trainable_path(self.frozen_stages)
        return lambda path: trains(freezing.joined(path))

    def _options(self, with_embedding: bool, constants: Any) -> dict[str, Any]:
        """What the module takes beside inputs."""
        if self.is_multilabel:
            return {"constants": constants}
        return {"with_embedding": with_embedding}

    def infer(
        self, params, batch_stats, inputs: jax.Array, *, with_embedding=False, constants=None
    ):
        """Outputs on raw inputs with running statistics and no augmentation."""
        variables = {"params": params, "batch_stats": batch_stats}
        options = self._options(with_embedding, constants)
        return self.module.apply(variables, self.normalize(inputs), False, **options)

    def train_pass(
        self,
        params,
        batch_stats,
        images: jax.Array,
        *,
        with_embedding: bool = False,
        with_prediction: bool = False,
        constants: multilabel.GraphConstants | None = None,
        dropout_key: jax.Array | None = None,
    ):
        """Training-mode outputs of one view, normalised by its own batch statistics.

        Args:
          params: parameters.
          batch_stats: running statistics.
          images: normalised images `[batch, height, width, channels]` or rows `[batch, features]`.
          with_embedding: whether the projection head is needed.
          with_prediction: whether the heads for alignment are needed.
          constants: of the semantic-graph head.
          dropout_key: of the layers that drop; None drops nothing.

        Returns:
          `(outputs, batch_stats)` with the running statistics moved towards this view's, or as
          they were with `freeze_norm`, whose outputs are normalised by them.
        """
        options: dict[str, Any] = self._options(with_embedding, constants)
        if with_prediction:
            options["with_prediction"] = True
        outputs, updated = self.module.apply(
            {"params": params, "batch_stats": batch_stats},
            images,
            not self.freeze_norm,
            **options,
            mutable=["batch_stats"],
            rngs=None if dropout_key is None else {"dropout": dropout_key},
        )
        return outputs, updated.get("batch_stats", {})

    def train_passes(
        self, params, batch_stats, views: Sequence[jax.Array], *, with_embedding: bool = False
    ):
        """Training-mode outputs of several views of a batch, each by its own batch statistics.

        As many passes as views, as in the papers, or with `joins_views` one pass over all of them,
        which gives the same numbers up to rounding in a third of the kernels for three views. On a
        CPU the separate passes are a third faster (ResNet-18, 3 views of 64).

        Args:
          params: parameters.
          batch_stats: running statistics.
          views: normalised images or rows `[batch, ...]` each, in the order in which they move the
            running statistics.
          with_embedding: whether the projection head is needed.

        Returns:
          `(outputs of every view, batch_stats)`.
        """
        if not self.joins_views or self.freeze_norm:
            passes = []
            for view in views:
                outputs, batch_stats = self.train_pass(
                    params, batch_stats, view, with_embedding=with_embedding
                )
                passes.append(outputs)
            return passes, batch_stats
        with layers.interleaved_views(len(views)):
            return self.train_together(params, batch_stats, views, with_embedding=with_embedding)

    def train_together(
        self, params, batch_stats, views: Sequence[jax.Array], *, with_embedding: bool = False
    ):
        """Training-mode outputs of several views, normalised by the statistics of all of them.

        As `train_passes`, with one pass, which moves the running statistics once.
        """
        count = len(views)
        joined = jnp.stack(views, axis=1)  # the views of an example stay on its device
        outputs, batch_stats = self.train_pass(
            params,
            batch_stats,
            joined.reshape(-1, *joined.shape[2:]),
            with_embedding=with_embedding,
        )

        def of_view(index: int) -> Any:
            return jax.tree.map(lambda x: x[index::count], outputs)

        return [of_view(index) for index in range(count)], batch_stats


def normalize(
    inputs: jax.Array,
    mean: tuple[float, ...],
    std: tuple[float, ...],
    image_size: int = 0,
    *,
    resample: str = "bilinear",
) -> jax.Array:
    """Raw inputs as networks see them, see `Network.normalize`."""
    if inputs.dtype == jnp.uint8:
        images = resize(inputs, image_size, resample=resample)
        return augment.normalize(images, mean=mean, std=std)
    center, scale = (jnp.asarray(number, jnp.float32) for number in (mean, std))
    return (inputs - center) / scale


def resize(inputs: jax.Array, image_size: int, *, resample: str = "bilinear") -> jax.Array:
    """Images with sides of so many pixels; 0 keeps theirs, and tables stay as they are."""
    is_other = inputs.dtype == jnp.uint8 and inputs.shape[1:3] != (image_size, image_size)
    if not image_size or not is_other:
        return inputs
    return RESIZE[resample](inputs, image_size, image_size)


def build(
    config: ml_collections.ConfigDict,
    info: DataInfo,
    *,
    embedding_dim: int,
    projection: str = "lagam",
    aligned_dim: int = 0,
    may_drop: bool = False,
) -> Network:
    """Builds the network that `config.model` names for the data set `info` describes.

    Every method builds its network here, before anything is compiled, so this is where a table of
    numbers is told from images.

    Args:
      config: the resolved configuration, with the sections `model` and `method`.
      info: what the data set is.
      embedding_dim: width of the projection head's embedding; 0 leaves that head out.
      projection: layers of that head, one of `models.heads.PROJECTIONS`.
      aligned_dim: width of the heads for alignment; 0 leaves them out.
      may_drop: whether the method gives its training passes the key that dropout needs.

    Returns:
      A `Network`.

    Raises:
      ValueError: if the network, or the method's random views, do not go with such data.
    """
    check(config, info)
    _check_dropout(config, may_drop)
    module = models.build(
        config.model.name,
        embedding_dim=embedding_dim,
        projection=projection,
        aligned_dim=aligned_dim,
        dtype=config.model.dtype,
        **config.model.options.to_dict(),
    )
    return _bound(module, config, info)


def build_multilabel(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Network:
    """The network that a configuration names, of one logit per class.

    Raises:
      ValueError: if it does not go with the data, or with how they are loaded.
    """
    check(config, info)
    _check_dropout(config, may_drop=False)
    c = config.method
    checks.require(
        not (info.load_side and config.data.load_size) or (len(c.crop_sizes) > 0 and c.augment),
        "data.load_size",
        config.data.load_size,
        "0 without method.crop_sizes, or with method.augment=False, since images are then resized "
        "to data.image_size alone",
    )
    height, width = info.input_shape[:2] if len(info.input_shape) > 1 else (0, 0)
    if c.augment and c.crop_sizes and not info.load_side and not config.model.image_size:
        accepted = f"() or model.image_size above 0, since images are {height} x {width} pixels"
        checks.require(height == width, "method.crop_sizes", tuple(c.crop_sizes), accepted)
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
    # As its random crops are resized (`augment.multiscale_crop`), and as files are read.
    return _bound(module, config, info)._replace(resample="bicubic")


def _bound(
    module: nn.Module, config: ml_collections.ConfigDict, info: DataInfo | MultilabelInfo
) -> Network:
    """The module with the data's normalisation, and what of it is frozen."""
    return Network(
        module,
        info.mean,
        info.std,
        config.model.image_size,
        config.method.frozen_stages,
        config.method.freeze_norm == "on",
        accelerator.few_kernels(config.run.few_kernels),
    )


def word_vectors(config: ml_collections.ConfigDict, num_classes: int) -> np.ndarray | None:
    """One vector per class for the semantic-graph head, else None.

    Those called `models.RANDOM` are drawn, always the same, and mean nothing.
    """
    path = config.word_vectors
    if config.head != _GRAPH:
        checks.require(not path, "method.word_vectors", path, f"'' without method.head={_GRAPH!r}")
        return None
    accepted = f"the path of an .npy file with {num_classes} vectors, or {models.RANDOM!r}"
    if path == models.RANDOM:
        return np.random.default_rng(0).normal(size=[num_classes, _WORD_WIDTH]).astype(np.float32)
    checks.require(os.path.isfile(path), "method.word_vectors", path, accepted)
    try:
        words = reading.read_npy(path)
    except (ValueError, OSError) as error:
        raise ValueError(
            f"method.word_vectors is {path!r}, no .npy file; accepted: {accepted}"
        ) from error
    right = getattr(words, "ndim", 0) == 2 and words.dtype.kind in "fiu"
    right = right and len(words) == num_classes and words.shape[1] > 0
    what = f"{path} of {getattr(words, 'dtype', 'several arrays')} {getattr(words, 'shape', '')}"
    finite = right and bool(np.isfinite(words).all())
    checks.require(finite, "method.word_vectors", what, accepted)
    return words.astype(np.float32)


def _check_dropout(config: ml_collections.ConfigDict, may_drop: bool) -> None:
    """Raises a ValueError for dropout where passes are given no key for it."""
    drops = config.model.options.get("dropout", 0)
    aligned = config.method.get("align_weight", 0) > 0
    where = "method.align_weight above 0" if may_drop else f"method.name={config.method.name!r}"
    accepted = f"0.0 with {where}, whose training passes drop nothing"
    is_right = not drops or (may_drop and not aligned)
    checks.require(is_right, "model.options.dropout", drops, accepted)


def check(config: ml_collections.ConfigDict, info: DataInfo | MultilabelInfo) -> None:
    """Raises a ValueError if the network, or the method's random views, do not go with the data."""
    if info.is_table:
        table = f"the data ({info.name}) are a table of {info.input_shape[0]} numbers a row"
        checks.require(
            config.model.name in models.FOR_TABLES,
            "model.name",
            config.model.name,
            f"{', '.join(map(repr, models.FOR_TABLES))}, since {table}",
        )
        checks.require(
            not config.method.get("augment", False),
            "method.augment",
            True,
            f"False, since {table}; there is nothing to flip or shift",
        )
    elif "padding" in config.method and config.method.get("augment", True):
        side = min(info.input_shape[:2])
        accepted = f"0 to {side - 1} pixels, less than the side of the images of {info.name}"
        padding = config.method.padding
        checks.require(padding < side, "method.padding", padding, accepted)
