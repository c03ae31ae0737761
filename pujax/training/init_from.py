"""`init_from`, the encoder that one run leaves and another starts from, and `model.init`, a file of
outside weights.
"""

import os
from typing import Any, TypeVar

import jax
import ml_collections

from pujax import models
from pujax.data.multilabel_dataset import MultilabelDataset, MultilabelInfo
from pujax.data.pu_dataset import DataInfo, PUDataset
from pujax.methods.base import Method
from pujax.models import encoder as encoder_lib
from pujax.models import torch_weights
from pujax.training import sharding
from pujax.training.config import SAVED

FILE = "encoder.npz"
SEED = "{seed}"
"""What stands in `init_from` for the seed of a run."""

_Problem = TypeVar("_Problem", bound=PUDataset | MultilabelDataset)


def save(
    folder: str,
    config: ml_collections.FrozenConfigDict,
    method: Method,
    state: Any,
    info: DataInfo | MultilabelInfo,
) -> None:
    """Writes the encoder of a method's final state into the run's folder, if it has one.

    Args:
      folder: of the run.
      config: resolved configuration.
      method: the method.
      state: the state that the run reports.
      info: numbers of the data set.
    """
    if method.encoder is None:
        return
    description = {
        "model": config.model.name,
        "options": config.model.options.to_dict(),
        "image_size": config.model.image_size,
        "input_shape": info.input_shape,
        "mean": info.mean,
        "std": info.std,
        "method": config.method.name,
        "dataset": info.name,
        "seed": config.seed,
    }
    encoder = jax.tree.map(sharding.to_host, method.encoder(state))
    encoder_lib.save(os.path.join(folder, FILE), encoder, description)


def resolve_model(config: ml_collections.FrozenConfigDict) -> ml_collections.FrozenConfigDict:
    """A configuration with the network of an encoder in place of `config.SAVED`.

    Args:
      config: resolved configuration; a `model.image_size` there counts more than the saved one.

    Returns:
      The configuration, or the same object where it names its network.

    Raises:
      ValueError: if there is no encoder in `init_from`, no file at `model.init`, or `model` has
        other options than the encoder.
    """
    model = config.model
    if model.init != models.RANDOM and not os.path.isfile(model.init):
        raise ValueError(
            f"model.init is {model.init!r}, where no file is; accepted: {models.RANDOM!r}, or a "
            "file of weights (docs/pretrained_weights.md)"
        )
    if model.name != SAVED:
        return config
    folder = _folder(config.init_from, config.seed)
    _, saved = _load(folder)
    options = model.options.to_dict()
    if _architecture(options) and _architecture(options) != _architecture(saved["options"]):
        raise ValueError(
            f"model.options is {options}; accepted: none with model.name={SAVED!r}, or those of "
            f"the encoder in {folder}, {saved['options']}"
        )
    tree = config.to_dict()
    tree["model"] |= {
        "name": saved["model"],
        "options": _architecture(saved["options"])
        | {name: value for name, value in options.items() if name == "dropout"},
        "image_size": model.image_size or saved["image_size"],
    }
    return ml_collections.FrozenConfigDict(tree)


def attach(config: ml_collections.ConfigDict, data: _Problem) -> _Problem:
    """The problem with the encoder of `config.init_from` or `config.model.init`, if one is named.

    `{seed}` in `init_from` stands for the run's seed, so that every seed of a sweep can start from
    an encoder of its own. Inputs are then normalised as they were in that run, since the encoder
    was trained with these only (outside weights leave that to the data set). Whether its arrays fit
    this run's network is checked when a method is built.

    Args:
      config: the configuration.
      data: the problem.

    Raises:
      ValueError: naming what differs, if there is no encoder or it is of another architecture.
    """
    is_random = config.model.init == models.RANDOM
    if not config.init_from and is_random:
        return data
    replace: Any = data._replace  # the result is of the same kind of problem
    if not is_random:
        if data.info.input_shape[-1] != 3:
            raise ValueError(
                f"model.init is {config.model.init!r}, weights for images of 3 channels, and "
                f"{data.info.name} has inputs {list(data.info.input_shape)}; accepted: "
                f"{models.RANDOM!r}"
            )
        backbone: Any = models.build(  # `load` refuses networks that the weights do not fit
            config.model.name, embedding_dim=0, **config.model.options.to_dict()
        ).backbone
        try:
            encoder = torch_weights.load(config.model.init, backbone)
        except ValueError as error:
            raise ValueError(f"model.init: {error}") from error
        return replace(encoder=encoder)
    folder = _folder(config.init_from, config.seed)
    encoder, saved = _load(folder)
    pairs = (
        ("model.name", saved["model"], config.model.name),
        ("model.options", *map(_architecture, (saved["options"], dict(config.model.options)))),
    )
    for field, of_encoder, wanted in pairs:
        if of_encoder != wanted:
            raise ValueError(
                f"init_from: the encoder in {folder} is of {field} {of_encoder!r}, this run's "
                f"is {wanted!r}; accepted: the same {field}"
            )
    shapes = saved["input_shape"], list(data.info.input_shape)
    if shapes[0][-1] != shapes[1][-1]:
        raise ValueError(
            f"init_from: the encoder in {folder} takes inputs {shapes[0]}, those of "
            f"{data.info.name} are {shapes[1]}; accepted: as many channels or features"
        )
    info = data.info._replace(mean=tuple(saved["mean"]), std=tuple(saved["std"]))
    return replace(info=info, encoder=encoder)


def _folder(init_from: str, seed: int) -> str:
    return init_from.replace(SEED, str(seed))


def _load(folder: str) -> tuple[encoder_lib.Encoder, dict[str, Any]]:
    path = os.path.join(folder, FILE)
    if not os.path.exists(path):
        raise ValueError(
            f"init_from is {folder!r}, which holds no {FILE}; accepted: the folder of a finished "
            "run of a method that leaves an encoder, for example 'impulses'"
        )
    return encoder_lib.load(path)


def _architecture(options: dict[str, Any]) -> dict[str, Any]:
    """The options that say what a network is; dropout says how it is trained."""
    return _plain({name: value for name, value in options.items() if name != "dropout"})


def _plain(value: Any) -> Any:
    """As JSON gives it back."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in sorted(value.items())}
    return list(value) if isinstance(value, tuple) else value
