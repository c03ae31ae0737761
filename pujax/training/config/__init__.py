"""Configuration: the default tree, and the checks that run before anything is compiled or written.

A config is `seed`, `data`, `model`, `method` and `run`. Every field has a default here or in the
method's `default_config()`, so a misspelt key is an error and never a silent no-op.
"""

import contextlib
import difflib
import functools
import types
from typing import Any

import ml_collections
import numpy as np

from pujax import accelerator, checks, methods, models
from pujax.augment.layout import MAX_SIDE
from pujax.data import dataset, sources
from pujax.training import decisions, model_card
from pujax.training.config import data_section
from pujax.training.evaluation import model_selection

_LARGEST = float(np.finfo(np.float32).max)
_WITH_RATE = ("optimizer", "learning_rate", "momentum", "weight_decay")
"""Fields of the optimizer that a rate is chosen with, beside those of the schedule, `lr_...`."""

_LATER = (
    ("data", "split_seed", -1),
    ("data", "leave_out", ""),
    ("data", "words", ""),
    ("data", "train_split", ""),
    ("data", "test_split", ""),
    ("method", "first_bias", "random"),
    ("method", "threshold", "zero"),
    ("method", "discriminator_rate", 1.0),
)
"""Fields that came after the first runs, with the value that changes nothing: where they have it
they are left out of a fingerprint, so that runs which began without them go on."""

OWN_EPOCHS = {"own_table": 30, "own_folder": 20}
"""Epochs of nnPU on a user's own rows, by `data.source`; other methods keep their own number."""

_THRESHOLD = 0.5
"""Default of `run.threshold`."""

SAVED = "saved"
"""`model.name` that stands for the network of the encoder in `init_from`."""


def default_config(method: str) -> ml_collections.ConfigDict:
    """The whole tree with the defaults of one method; configuration files start from it.

    Args:
      method: name of a file in `pujax/methods`, or of a module of one's own, with a dot.

    Returns:
      A `ConfigDict` with the sections `seed`, `data`, `model`, `method`, `run`.
    """
    return ml_collections.ConfigDict(
        {
            "seed": 0,
            "init_from": "",  # finished run whose encoder networks start from; {seed} is the seed
            "data": data_section.defaults(),
            "model": {
                "name": "small_cnn",  # or 'saved', the network of the encoder in init_from
                "dtype": "float32",
                "init": models.RANDOM,  # or a file of ImageNet weights for a resnet*_v1
                "image_size": 0,  # side that images are resized to on the device; 0 keeps theirs
                "options": {},
            },
            # A field that takes a word or a number is a reference, which says so.
            "method": methods.module(method)
            .default_config()
            .to_dict(preserve_field_references=True),
            "run": {
                "stop_after_epoch": 0,  # end cleanly after so many epochs in all; 0 is never
                "eval_every": 0,  # epochs; 0: see evaluation.eval_interval. The last always is
                "eval_batch_size": 512,
                "threshold": _THRESHOLD,  # probability that predicts a label, of several labels
                "decide": "score:0",  # of one's own rows: see training.decisions
                "license": "",  # of the saved model, for its card: 'apache-2.0'; '' is unknown
                "selection": "auto",  # which epoch is reported: see evaluation.model_selection
                "checkpoint_every": 10,  # epochs; every stop and the end are always saved
                "keep_checkpoints": 2,
                "seed_devices": 0,  # rows of devices with seeds of their own, at most; 0: any
                "steps_per_dispatch": 0,  # at most; 0: 32, or 1 for convolutions on a CPU
                "few_kernels": "auto",  # on accelerators; 'on' and 'off' give the same numbers
                "compilation_cache": "on",  # programs are kept for later runs; or 'off'
                "progress_seconds": 5.0,  # between updates of the progress bar
                "profile_epoch": 0,  # the n-th epoch is profiled into the run's folder; 0: none
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

    It opens no file: what `init_from` and `model.init` name is checked by
    `init_from.resolve_model`.

    Args:
      config: a tree like `default_config`'s, possibly with overridden fields.

    Returns:
      A `FrozenConfigDict`.

    Raises:
      ValueError: naming the field, its value and what is accepted.
    """
    for section in ("seed", "data", "model", "method", "run"):
        checks.require(section in config, "config", sorted(config), f"a section {section!r}")
    for section in ("data", "model", "method", "run"):
        is_section = isinstance(config[section], ml_collections.ConfigDict)
        checks.require(is_section, section, config[section], "a section of fields")
    name = config.method.get("name", None)
    checks.require(isinstance(name, str), "method.name", name, ", ".join(methods.names()))
    merged = _merge(_defaults(methods.module(name)), config.to_dict(), path="")
    if merged["data"]["prior"] not in (None, dataset.AUTO):
        accepted = f"a finite number, or {dataset.AUTO!r}"
        merged["data"]["prior"] = _number("data.prior", merged["data"]["prior"], accepted)
    if merged["data"]["class_prior"] is not None:
        merged["data"]["class_prior"] = _number("data.class_prior", merged["data"]["class_prior"])
    resolved = ml_collections.ConfigDict(merged)
    checks.between("seed", resolved.seed, 0, 2**31 - 1)
    data_section.check(resolved.data)
    _check_model(resolved.model, init_from=resolved.init_from)
    _check_lengths(resolved.method)
    _check_run(resolved.run)
    _check_compared(resolved)
    decisions.parse(resolved.run.decide)
    has_validation = holds_out(resolved)
    resolved.run.selection = model_selection.resolved(
        resolved.run.selection,
        methods.selection(name),
        without_prior=methods.selection_without_prior(name),
        has_validation=has_validation,
        # Where labels are as they are, true classes are not known and cannot be counted.
        has_prior=resolved.data.prior is not None or resolved.data.num_labeled > 0,
    )
    checks.require(
        resolved.run.selection == model_selection.LAST or has_validation,
        "run.selection",
        resolved.run.selection,
        "'last' while data.num_validation and data.holdout are 0, since other rules need a "
        "validation set",
    )
    return ml_collections.FrozenConfigDict(resolved)


@functools.cache
def _defaults(method: types.ModuleType) -> dict[str, Any]:
    """`default_config` as values and references, which nobody may change."""
    name = method.__name__.removeprefix(f"{methods.__name__}.")
    return default_config(name).to_dict(preserve_field_references=True)


def _merge(default: dict[str, Any], given: dict[str, Any], *, path: str) -> dict[str, Any]:
    """`given` over `default`, refusing unknown keys and wrong types."""
    for key in given:
        if key not in default:
            new = methods.RENAMED.get(key) if path == "method." else None
            if new in default:
                raise ValueError(f"{path}{key} was renamed to {path}{new}")
            close = difflib.get_close_matches(key, default, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(
                f"{path}{key} is not a field of the config{hint}; accepted in "
                f"{path.rstrip('.') or 'the config'}: {', '.join(sorted(default))}"
            )
    merged: dict[str, Any] = {}
    for key, fallback in default.items():
        takes_any = False
        if isinstance(fallback, ml_collections.FieldReference):
            takes_any, fallback = fallback.get_type() is object, fallback.get()
        field, value = path + key, given.get(key, fallback)
        if field == "model.options":
            checks.require(isinstance(value, dict), field, value, "a section of options")
            merged[key] = dict(value)
        elif isinstance(fallback, dict):
            checks.require(isinstance(value, dict), field, value, "a section of fields")
            merged[key] = _merge(fallback, value, path=f"{field}.")
        elif takes_any and isinstance(fallback, str):
            merged[key] = _word_or_number(field, value, fallback)
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
        for item in items:
            _check_whole(field, item)
        kinds: tuple[type, ...] = (int, str) if field == "data.positive_classes" else (int,)
        right = all(isinstance(x, kinds) and not isinstance(x, bool) for x in items)
        accepted = "a tuple of whole numbers" + " or names" * (str in kinds)
        checks.require(right, field, value, accepted)
        return items
    is_same = type(value) is type(default)
    checks.require(is_same, field, value, f"a value of type {type(default).__name__}")
    _check_whole(field, value)
    return value


def _check_whole(field: str, value: Any) -> None:
    """Requires that a whole number fits into the 32 bits in which devices count."""
    if isinstance(value, int) and not -(2**31) <= value < 2**31:
        raise ValueError(f"{field} is {value!r}; accepted: a whole number below 2**31")


def _number(field: str, value: Any, accepted: str = "a finite number") -> float:
    """A finite float."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    # A whole number may be larger than any float; that of single precision is what devices compute.
    is_finite = is_number and abs(value) <= _LARGEST
    checks.require(is_finite, field, value, accepted)
    return float(value)


def _word_or_number(field: str, value: Any, word: str) -> Any:
    """A finite float, which a sweep's `--set` gives as text, or what the method is to judge.

    Its check names the word and the range together: `checks.between(..., word=word)`.
    """
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = float(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return _number(field, value, f"{word!r}, or a finite number") if is_number else value


def _check_model(model: ml_collections.ConfigDict, *, init_from: str) -> None:
    if model.name == SAVED:
        with_init = "only with init_from, a run's folder"
        checks.require(bool(init_from), "model.name", model.name, with_init)
    else:
        checks.one_of("model.name", model.name, models.NAMES)
        options = models.check_options(model.name, model.options.to_dict())
        model.options = ml_collections.ConfigDict(options)  # lists are tuples now
    checks.one_of("model.dtype", model.dtype, models.DTYPES)
    checks.between("model.image_size", model.image_size, 0, MAX_SIDE)
    checks.require(model.image_size != 1, "model.image_size", 1, "0, or a side of 2 or more pixels")
    if model.init != models.RANDOM and init_from:
        raise ValueError(
            f"model.init is {model.init!r} and init_from {init_from!r}; accepted: one of them, "
            f"with model.init={models.RANDOM!r} or init_from=''"
        )


def _check_lengths(method: ml_collections.ConfigDict) -> None:
    if methods.has_network(method.name):
        checks.at_least("method.num_epochs", method.num_epochs, 1)
        checks.at_least("method.batch_size", method.batch_size, 2)


def _check_run(run: ml_collections.ConfigDict) -> None:
    from_zero = ("eval_every", "stop_after_epoch", "seed_devices", "steps_per_dispatch")
    for name in (*from_zero, "num_processes"):
        checks.whole_number(f"run.{name}", run[name], 0)
    checks.whole_number("run.profile_epoch", run.get("profile_epoch", 0), 0)
    for name in ("checkpoint_every", "keep_checkpoints"):
        checks.whole_number(f"run.{name}", run[name], 1)
    checks.between("run.eval_batch_size", run.eval_batch_size, 1, 2**20)
    checks.at_least("run.progress_seconds", run.progress_seconds, 0)
    accelerator.check_few_kernels(run.few_kernels)
    checks.one_of("run.compilation_cache", run.compilation_cache, ("on", "off"))
    alone = {"num_processes": 0, "process_id": -1, "coordinator": ""}
    for name, value in alone.items():
        accepted = f"{value!r} while run.distributed is False"
        checks.require(run.distributed or run[name] == value, f"run.{name}", run[name], accepted)
    is_described = run.process_id != -1 or run.num_processes > 0
    if is_described:
        checks.at_least("run.num_processes", run.num_processes, 1)
        checks.between("run.process_id", run.process_id, 0, run.num_processes - 1)
    if is_described or run.coordinator:  # by itself where the cluster says the rest
        host, _, port = run.coordinator.rpartition(":")
        is_port = port.isascii() and port.isdigit() and 1 <= int(port[:6]) <= 65535
        accepted = "'HOST:PORT' of the first, with a port from 1 to 65535"
        checks.require(bool(host) and is_port, "run.coordinator", run.coordinator, accepted)
    checks.between("run.threshold", run.threshold, 0, 1, include="neither")
    checks.one_of("run.tensorboard", run.tensorboard, ("auto", "off"))
    checks.one_of("run.selection", run.selection, (model_selection.AUTO, *model_selection.RULES))
    checks.one_of("run.nonfinite", run.nonfinite, ("stop", "skip"))
    accepted = "a license as the Hugging Face Hub names it, such as 'apache-2.0', or ''"
    checks.require(model_card.is_license(run.license), "run.license", run.license, accepted)


def _check_compared(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for names that would share a folder, or that are no methods."""
    compared, own = compared_methods(config.run), config.method.name
    several = methods.is_multilabel(own)
    known = methods.of_kind(multilabel=several)
    if sources.is_own(config.data.source) and not several:  # of which no truth is known
        known = methods.for_own_rows(has_support=config.data.num_support > 0)
    for name in compared:
        if name not in methods.names() and not methods.is_own(name):
            checks.one_of("run.compare", name, (x for x in known if x != own))
        accepted = f"methods for {'several labels' if several else 'one label'}, as {own!r} is"
        checks.require(methods.is_multilabel(name) == several, "run.compare", name, accepted)
        accepted = f"methods other than the run's own, {own!r}, which is in the table anyway"
        checks.require(name != own, "run.compare", config.run.compare, accepted)
        once = compared.count(name) == 1
        checks.require(once, "run.compare", config.run.compare, "every method once")


def compared_methods(run: ml_collections.ConfigDict) -> tuple[str, ...]:
    """Names in `run.compare`."""
    return tuple(name.strip() for name in run.compare.split(",") if name.strip())


def to_compare(
    config: ml_collections.ConfigDict,
    method: str,
    *,
    is_table: bool = False,
    rule: str = model_selection.AUTO,
) -> ml_collections.ConfigDict:
    """The config of another method on the same split, for the comparison at the end of a run.

    Length, batch size, optimizer and views carry over, so that the comparison differs in the method
    and in nothing else, but for the optimizer where one of the two finds its rate by itself, and
    for `method.augment` of a method whose loss compares views of an image; the stages of a method
    share that length as they share its own. Where the run's method trains from scratch in a warm-up
    stage with settings of its own (`warmup_learning_rate`, say), it is those that carry over. On a
    user's own rows a method has its settings for them, `methods.own_rows`. Where the run's method
    trains no network, the other one has the settings, its length among them, that the source's
    configuration gives it by itself.
    Which epoch is reported is `rule`; by default every method has its own, as in a run of its own.

    Args:
      config: of the run.
      method: name of the other one.
      is_table: whether the data are a table, whose rows have no random views, and not images.
      rule: a value of `run.selection`.
    """
    other = ml_collections.ConfigDict(config.to_dict())
    section = methods.module(method).default_config()
    if sources.is_own(config.data.source):
        section.update(methods.own_rows(method))
    both_networks = methods.has_network(method) and methods.has_network(config.method.name)
    if both_networks:
        methods.set_length(section, config.method.num_epochs)
    elif method == "nnpu" and config.data.source in OWN_EPOCHS:
        section.num_epochs = OWN_EPOCHS[config.data.source]
    # A rate that a method finds by itself is not the other one's, nor is what goes with it.
    rates = (config.method.get("learning_rate"), section.get("learning_rate"))
    finds_rate = any(isinstance(rate, str) for rate in rates)
    for key in methods.shared_fields() if both_networks else ():
        if finds_rate and (key in _WITH_RATE or key.startswith("lr_")):
            continue
        if key == "augment" and methods.compares_views(method):
            continue
        if key in config.method and key in section:
            value = config.method.get(f"warmup_{key}", config.method[key])
            # A word, such as NcPU's 'auto' for an average, is of the run's method alone.
            if isinstance(value, str) == isinstance(section[key], str):
                section[key] = value
    # Of the named sources only the run's own configuration says which views suit the images.
    has_own_views = both_networks or sources.is_own(config.data.source)
    if "augment" in section and (is_table or not has_own_views):
        section.augment = False
    other.method = section
    other.run.compare, other.run.selection = "", rule
    other.run.update({"figures": False, "profile_epoch": 0})
    return other


def holds_out(config: ml_collections.ConfigDict) -> bool:
    """Whether a part of P and U is held out, by which epochs can be compared."""
    return max(config.data.get("num_validation", 0), config.data.get("holdout", 0)) > 0


def chooses_epochs(config: ml_collections.ConfigDict) -> bool:
    """Whether a rule chooses among epochs, for the report or in a stage before the last."""
    last = model_selection.LAST
    rules = {
        config.get("run", {}).get("selection", last),
        config.get("method", {}).get("pretrain_selection", last),
    }
    return rules != {last} and holds_out(config)


def fingerprint(config: ml_collections.ConfigDict) -> dict[str, Any]:
    """The fields that must be equal to resume a run: all but places of files and most of `run`.

    Of `run` the selection rule and the epochs that it chooses among count, which decide which state
    was kept on the way, and what `predictions.csv` was written by.
    """
    tree = config.to_dict()
    run = tree.get("run", {})
    tree["run"] = {
        "selection": run.get("selection", model_selection.LAST),
        "decide": run.get("decide", "score:0"),
    }
    if run.get("threshold", _THRESHOLD) != _THRESHOLD:  # of several labels, which it decides
        tree["run"]["threshold"] = run["threshold"]
    every = run.get("eval_every", 0)
    # 0 is every epoch where a rule chooses, see `evaluation.eval_interval`.
    if every > 1 and chooses_epochs(config):
        tree["run"]["eval_every"] = every
    _without_places(tree)
    for section, name, as_before in _LATER:
        if tree.get(section, {}).get(name) == as_before:
            del tree[section][name]
    # What the file holds is in the digest of the data.
    if tree.get("model", {}).get("init", models.RANDOM) != models.RANDOM:
        tree["model"]["init"] = "a file"
    return tree


def _without_places(tree: dict[str, Any]) -> None:
    """Takes out where a table and its test set lie: what they hold is in the digest of the data.

    The place of an encoder (`init_from`) stays, by which the cells of a sweep are told apart.
    """
    data = tree.get("data", {})
    for place in ("dir", "path"):
        data.pop(place, None)
    if data.get("test_path"):
        data["test_path"] = "a file"
    if str(data.get("label", "")).endswith(".npy"):
        data["label"] = "a file"


def stored_differences(stored: dict[str, Any], own: dict[str, Any]) -> list[str]:
    """`differences` of a fingerprint from a file, which an earlier version may have written.

    Those of `config.json`, from which both fingerprints are made anew, are found before.

    Args:
      stored: the one in the file, which is changed to what is compared.
      own: that of the run which goes on.
    """
    for name, value in stored.items():
        if isinstance(value, dict) and "run" in value:  # of one of several seeds
            stored_differences(value, own.get(name, {}))
    _without_places(stored)
    run = stored.get("run", {})
    every = own.get("run", {}).get("eval_every")
    if every is not None and "eval_every" not in run:  # it was 1, or is not in the file
        stored["run"] = run | {"eval_every": every}
    if "threshold" in own.get("run", {}):  # which is not in the file of an earlier version
        stored["run"] = {"threshold": own["run"]["threshold"]} | stored.get("run", {})
    return differences(stored, own)


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
