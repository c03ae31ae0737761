"""Configuration: the default tree, and the checks that run before anything is compiled or written.

A config is `seed`, `data`, `model`, `method` and `run`. Every field has a default here or in the
method's `default_config()`, so a misspelt key is an error and never a silent no-op.
"""

import difflib
import math
from typing import Any

import ml_collections
from ml_collections import config_dict

from pujax import methods, models
from pujax.data import dataset, mechanisms, sources
from pujax.methods import _checks as checks
from pujax.priors._names import NAMES as PRIOR_METHODS
from pujax.training import selection


def default_config(method: str) -> ml_collections.ConfigDict:
    """The whole tree with the defaults of one method; configuration files start from it.

    Args:
      method: name of a file in `pujax/methods`.

    Returns:
      A `ConfigDict` with the sections `seed`, `data`, `model`, `method`, `run`.
    """
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "data": {
                "source": "digits",
                "dir": "",  # where the files are or go; '' is the user's cache
                "tfds_name": "",  # for source 'tfds', for example 'cifar10'
                "image_size": 0,  # for 'alzheimer' and 'tfds'; 0 keeps the stored size
                "label_column": "",  # for 'table': its name in CSV files; '' is the last column
                "positive_classes": (0, 2, 4, 6, 8),
                "num_labeled": 100,
                "num_unlabeled": 0,  # 0: all that is left; else P and U are samples of their own
                "class_prior": config_dict.placeholder(object),  # draws U and the test set at it
                "num_support": 0,
                "setting": "one_sample",
                "sampling": "stratified",
                "labeling": "scar",  # or a biased choice: see pujax/data/mechanisms.py
                "labeling_power": 1.0,  # exponent of 'power', 'gap' and 'gap_boundary'
                "num_validation": 0,  # held out of training, for run.selection
                "validation_labeled": 0,  # of its positives; 0 labels half of them
                "scaling": "standard",  # by mean and deviation; 'unit': 0 to 1, tables as they are
                # None counts it in the source's labels, 'auto' estimates it before training.
                "prior": config_dict.placeholder(object),
                "prior_method": "best_bin",  # of 'auto', one of pujax.priors.NAMES
                "prior_epochs": 5,  # of 'auto', for the network that scores P against U
            },
            "model": {"name": "small_cnn", "dtype": "float32", "options": {}},
            "method": methods.module(method).default_config().to_dict(),
            "run": {
                "stop_after_epoch": 0,  # end cleanly after so many epochs in all; 0 is never
                "eval_every": 1,  # epochs between evaluations; the last is always evaluated
                "eval_batch_size": 512,
                "selection": "last",  # which epoch is reported: see pujax/training/selection.py
                "checkpoint_every": 10,  # epochs; every stop and the end are always saved
                "keep_checkpoints": 2,
                "steps_per_dispatch": 0,  # 0: 32, or 1 for convolutions on a CPU
                "progress_every": 20,  # steps between updates of the progress bar
                "nonfinite": "stop",  # or 'skip': undo the step, count it, go on
                "compare": "",  # methods to train on the same split afterwards: 'naive,supervised'
                "figures": True,
                "tensorboard": "auto",  # when tensorboardX is installed; or 'off'
                "distributed": False,  # join the hosts of a cluster through jax.distributed
                "coordinator": "",  # 'host:port' where the cluster is not detected by itself
                "num_processes": 0,
                "process_id": -1,
            },
        }
    )


def resolve(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """Checks a config and returns a frozen copy with plain values.

    Args:
      config: a tree like `default_config`'s, possibly with overridden fields.

    Returns:
      A `FrozenConfigDict`.

    Raises:
      ValueError: naming the field, its value and what is accepted.
    """
    for section in ("seed", "data", "model", "method", "run"):
        checks.require(section in config, "config", sorted(config), f"a section {section!r}")
    name = config.method.get("name", None)
    checks.require(isinstance(name, str), "method.name", name, ", ".join(methods.names()))
    default = default_config(name)
    merged = _merge(default.to_dict(), config.to_dict(), path="")
    if merged["data"]["prior"] not in (None, dataset.AUTO):
        accepted = f"a finite number, or {dataset.AUTO!r}"
        merged["data"]["prior"] = _number("data.prior", merged["data"]["prior"], accepted)
    if merged["data"]["class_prior"] is not None:
        merged["data"]["class_prior"] = _number("data.class_prior", merged["data"]["class_prior"])
    resolved = ml_collections.ConfigDict(merged)
    _check_data(resolved)
    _check_model(resolved.model)
    _check_lengths(resolved.method)
    _check_run(resolved.run)
    checks.require(
        resolved.run.selection == selection.LAST or resolved.data.num_validation > 0,
        "run.selection",
        resolved.run.selection,
        "'last' while data.num_validation is 0; other rules need a validation set",
    )
    return ml_collections.FrozenConfigDict(resolved)


def _merge(default: dict[str, Any], given: dict[str, Any], *, path: str) -> dict[str, Any]:
    """`given` over `default`, refusing unknown keys and wrong types."""
    for key in given:
        if key not in default:
            close = difflib.get_close_matches(key, default, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(
                f"{path}{key} is not a field of the config{hint}; accepted in "
                f"{path.rstrip('.') or 'the config'}: {', '.join(sorted(default))}"
            )
    merged = {}
    for key, fallback in default.items():
        field, value = path + key, given.get(key, fallback)
        if field == "model.options":
            merged[key] = dict(value)
        elif isinstance(fallback, dict):
            checks.require(isinstance(value, dict), field, value, "a section of fields")
            merged[key] = _merge(fallback, value, path=f"{field}.")
        else:
            merged[key] = _typed(field, value, fallback)
    return merged


def _typed(field: str, value: Any, default: Any) -> Any:
    """The value in the type of its default; an integer may stand for a float."""
    if default is None:
        return value
    if isinstance(default, float):
        return _number(field, value)
    if isinstance(default, (tuple, list)):
        checks.require(isinstance(value, (tuple, list)), field, value, "a tuple")
        items = tuple(value)
        numbers = all(isinstance(x, int) and not isinstance(x, bool) for x in items)
        checks.require(numbers, field, value, "a tuple of whole numbers")
        return items
    is_same = type(value) is type(default)
    checks.require(is_same, field, value, f"a value of type {type(default).__name__}")
    return value


def _number(field: str, value: Any, accepted: str = "a finite number") -> float:
    """A finite float."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    checks.require(is_number and math.isfinite(value), field, value, accepted)
    return float(value)


def _check_data(config: ml_collections.ConfigDict) -> None:
    data = config.data
    checks.between("seed", config.seed, 0, 2**31 - 1)
    checks.one_of("data.source", data.source, sources.NAMES)
    checks.one_of("data.setting", data.setting, dataset.SETTINGS)
    checks.one_of("data.sampling", data.sampling, dataset.SAMPLINGS)
    checks.one_of("data.scaling", data.scaling, dataset.SCALINGS)
    checks.one_of("data.labeling", data.labeling, mechanisms.NAMES)
    checks.at_least("data.labeling_power", data.labeling_power, 0)
    checks.require(
        data.labeling_power == 1.0 or data.labeling in mechanisms.WITH_POWER,
        "data.labeling_power",
        data.labeling_power,
        f"1.0 with data.labeling={data.labeling!r}, which has no exponent to choose",
    )
    checks.at_least("data.num_labeled", data.num_labeled, 1)
    counts = ("num_unlabeled", "num_support", "num_validation", "validation_labeled", "image_size")
    for name in counts:
        checks.at_least(f"data.{name}", data[name], 0)
    if data.class_prior is not None:
        checks.between("data.class_prior", data.class_prior, 0, 1, include="neither")
    checks.require(
        data.validation_labeled <= data.num_validation,
        "data.validation_labeled",
        data.validation_labeled,
        f"at most {data.num_validation}, which is data.num_validation",
    )
    checks.one_of("data.prior_method", data.prior_method, PRIOR_METHODS)
    checks.at_least("data.prior_epochs", data.prior_epochs, 1)
    if data.prior not in (None, dataset.AUTO):
        checks.between("data.prior", data.prior, 0, 1, include="neither")
    if data.source == "tfds":
        checks.require(bool(data.tfds_name), "data.tfds_name", "", "the name of a TFDS data set")


def _check_model(model: ml_collections.ConfigDict) -> None:
    checks.one_of("model.name", model.name, models.NAMES)
    checks.one_of("model.dtype", model.dtype, models.DTYPES)


def _check_lengths(method: ml_collections.ConfigDict) -> None:
    checks.at_least("method.num_epochs", method.num_epochs, 1)
    checks.at_least("method.batch_size", method.batch_size, 2)


def _check_run(run: ml_collections.ConfigDict) -> None:
    for name in ("stop_after_epoch", "steps_per_dispatch", "num_processes"):
        checks.at_least(f"run.{name}", run[name], 0)
    positive = (
        "eval_every",
        "eval_batch_size",
        "checkpoint_every",
        "keep_checkpoints",
        "progress_every",
    )
    for name in positive:
        checks.at_least(f"run.{name}", run[name], 1)
    if run.process_id != -1 or run.num_processes:
        checks.at_least("run.num_processes", run.num_processes, 1)
        checks.between("run.process_id", run.process_id, 0, run.num_processes - 1)
        checks.require(
            ":" in run.coordinator, "run.coordinator", run.coordinator, "'HOST:PORT' of the first"
        )
    checks.one_of("run.tensorboard", run.tensorboard, ("auto", "off"))
    checks.one_of("run.selection", run.selection, selection.RULES)
    checks.one_of("run.nonfinite", run.nonfinite, ("stop", "skip"))
    for name in compared_methods(run):
        methods.module(name)


def compared_methods(run: ml_collections.ConfigDict) -> tuple[str, ...]:
    """Names in `run.compare`."""
    return tuple(name.strip() for name in run.compare.split(",") if name.strip())


# What a comparison carries over: how long and how fast is trained, and on which views.
_SHARED = (
    *("num_epochs", "batch_size", "augment", "flip", "padding"),
    *("optimizer", "learning_rate", "weight_decay", "momentum", "beta1", "beta2"),
    *("lr_schedule", "lr_drops", "lr_factor", "lr_every", "lr_floor", "lr_resets"),
)


def to_compare(config: ml_collections.ConfigDict, method: str) -> ml_collections.ConfigDict:
    """The config of another method on the same split, for the comparison at the end of a run.

    Length, batch size, optimizer and views carry over, so that the comparison differs in the method
    and in nothing else. Where a method trains from scratch in a warm-up stage with settings of its
    own (`warmup_learning_rate`, say), it is those that carry over.
    """
    other = ml_collections.ConfigDict(config.to_dict())
    section = methods.module(method).default_config()
    for key in _SHARED:
        if key in config.method and key in section:
            section[key] = config.method.get(f"warmup_{key}", config.method[key])
    other.method = section
    other.run.compare = ""
    other.run.figures = False
    return other


def fingerprint(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """What must be equal for a run to go on: everything but the data folder and most of `run`.

    Of `run` the selection rule counts: it decides which state was kept on the way.
    """
    tree = config.to_dict()
    tree["run"] = {"selection": tree.get("run", {}).get("selection", selection.LAST)}
    tree.get("data", {}).pop("dir", None)
    return tree


def differences(first: dict[str, Any], second: dict[str, Any], *, path: str = "") -> list[str]:
    """Human-readable list of fields in which two config trees differ."""
    lines = []
    for key in sorted(set(first) | set(second)):
        a, b = first.get(key), second.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            lines += differences(a, b, path=f"{path}{key}.")
        elif (list(a) if isinstance(a, tuple) else a) != (list(b) if isinstance(b, tuple) else b):
            lines.append(f"{path}{key}: {a!r} there, {b!r} here")
    return lines
