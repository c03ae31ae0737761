"""An encoder apart from its heads: what one run leaves and another starts from."""

import json
import logging
from typing import Any, NamedTuple

import numpy as np
from flax import traverse_util

from pujax import checksums, reading
from pujax.files import replacing
from pujax.models.lgconv import GLOBAL_BRANCH

_LOG = logging.getLogger(__name__)

_DESCRIPTION = "description"
_CHECKSUMS = "checksums"
_SEPARATOR = "/"


class Encoder(NamedTuple):
    """A backbone's numbers.

    Attributes:
      params: its parameters, `params['backbone']` of a `heads.PUNet`.
      batch_stats: its running batch-norm statistics; an empty dict where it has none.
    """

    params: Any
    batch_stats: Any


def of(params: Any, batch_stats: Any) -> Encoder:
    """The encoder of a `heads.PUNet`.

    Args:
      params: parameters of the whole network.
      batch_stats: its running statistics, or an empty dict.
    """
    return Encoder(params["backbone"], batch_stats.get("backbone", {}))


def put(encoder: Encoder, params: Any, batch_stats: Any) -> tuple[Any, Any]:
    """The numbers of a `heads.PUNet` with another encoder in it.

    Args:
      encoder: of the same architecture. Where it holds no global branch of any `lgconv.LgConv`, as
        one read from outside weights, those of `params` and `batch_stats` are kept.
      params: parameters of the whole network; the heads' are kept.
      batch_stats: its running statistics, or an empty dict.

    Returns:
      `(params, batch_stats)`.

    Raises:
      ValueError: naming the first array that differs in name or shape.
    """
    here, there = (_flat(x) for x in (of(params, batch_stats), encoder))
    if not any(_is_global(name) for name in there):
        there = {**there, **{name: leaf for name, leaf in here.items() if _is_global(name)}}
    for name in [*here, *there]:
        shapes = [list(x[name].shape) if name in x else None for x in (there, here)]
        if shapes[0] != shapes[1]:
            there_is, here_is = ("missing" if shape is None else shape for shape in shapes)
            raise ValueError(
                f"init_from: {name} of the saved encoder is {there_is}, in this run's network it "
                f"is {here_is}; accepted: an encoder of the same architecture, channels and, where "
                "the network depends on it, image size (see model.image_size)"
            )
    encoder = _unflat(there)
    params = {**params, "backbone": encoder.params}
    if encoder.batch_stats:
        batch_stats = {**batch_stats, "backbone": encoder.batch_stats}
    return params, batch_stats


def save(path: str, encoder: Encoder, description: dict[str, Any]) -> None:
    """Writes an encoder as one `.npz` file: it appears whole or not at all.

    Args:
      path: of the file.
      encoder: arrays on the host or on a device of this host.
      description: what JSON can hold.
    """
    arrays: dict[str, Any] = {name: np.asarray(array) for name, array in _flat(encoder).items()}
    sums = {name: checksums.of_array(array) for name, array in arrays.items()}
    sums[_DESCRIPTION] = checksums.of_document(description)  # tuples and lists are the same
    arrays[_DESCRIPTION] = np.asarray(json.dumps(description))
    arrays[_CHECKSUMS] = np.asarray(json.dumps(sums))
    with replacing(path) as file:
        np.savez(file, **arrays)


def load(path: str) -> tuple[Encoder, dict[str, Any]]:
    """Reads what `save` wrote.

    Args:
      path: of the file.

    Returns:
      The encoder, on the host, and its description.

    Raises:
      ValueError: if the file is not what `save` wrote, or holds a number that is not finite.
      OSError: if it cannot be read.
    """
    with open(path, "rb"):  # an error from here on is one of its content
        pass
    try:
        arrays: dict[str, Any] = reading.read_npz(path)
        sums = reading.parse_json(str(arrays.pop(_CHECKSUMS, "null")))
        description = reading.parse_json(str(arrays.pop(_DESCRIPTION)))
        if not isinstance(description, dict):
            raise ValueError("its description is no JSON object")
        found = {name: checksums.of_array(array) for name, array in arrays.items()}
        found[_DESCRIPTION] = checksums.of_document(description)
        if sums is None:
            _LOG.warning("%s has no checksums: an earlier version wrote it", path)
            sums = found
        for name in sorted({*sums, *found}):
            if sums.get(name) != found.get(name):
                raise ValueError(f"the checksum of {name} differs")
        for name, array in arrays.items():
            if not np.all(np.isfinite(array)):
                raise ValueError(f"{name} holds a number that is not finite")
        return _unflat(arrays), description
    except (LookupError, ValueError, AttributeError, TypeError) as error:  # names within names, too
        reason = reading.one_line(error)
        raise ValueError(f"{path} is damaged ({reason}); accepted: the file as written") from error


def _flat(encoder: Encoder) -> dict[str, Any]:
    """Arrays by name, `params/stem/kernel` and so on."""
    return traverse_util.flatten_dict(encoder._asdict(), sep=_SEPARATOR)


def _unflat(arrays: dict[str, Any]) -> Encoder:
    trees = traverse_util.unflatten_dict(arrays, sep=_SEPARATOR)
    return Encoder(trees["params"], trees.get("batch_stats", {}))


def _is_global(name: str) -> bool:
    return GLOBAL_BRANCH in name.split(_SEPARATOR)
