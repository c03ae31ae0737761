"""Checkpoints: the only file that touches orbax.

A checkpoint holds the training state, the running sums of the epoch's metrics, the best state so
far, and the position in the run, so that training goes on from any step as if it had never stopped.
Orbax writes beside and renames, so a half-written checkpoint is never read. Its description has a
checksum of every array and one of itself, so that a damaged one is never taken for good.
"""

import contextlib
import json
import logging
import os
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from pujax import checksums
from pujax.console import first_line
from pujax.files import write_json
from pujax.training import config as config_lib
from pujax.training import environment, sharding

_LOG = logging.getLogger(__name__)

_METRIC_SUMS = "carry/sums/"
"""Where a run's tree has the sums of metrics, see `train_step.Carry`."""


class Position(NamedTuple):
    """Where a run stands.

    Attributes:
      epoch: epochs completed over all stages.
      step: steps taken in the epoch after those.
      global_step: steps taken over all stages.
      seconds: time spent on the steps of the unfinished epoch.
      members: which members of the run still train, counted from 0: a seed can leave it.
      best_values: of each of these, the value of the stage's rule at its best epoch so far; None
        while there is none, and always under 'last'.
    """

    epoch: int = 0
    step: int = 0
    global_step: int = 0
    seconds: float = 0.0
    members: tuple[int, ...] = (0,)
    best_values: tuple[float | None, ...] = (None,)


def check_place(field: str, folder: str) -> None:
    """Requires a folder in which checkpoints can be kept.

    Orbax takes square brackets of a path for a pattern, which matches nothing, and what writes the
    arrays takes a backslash for a border of folders: the arrays of a checkpoint would be lost, and
    without a word. The address of a bucket would be a folder here whose name ends in a colon.

    Raises:
      ValueError: naming the field, the path and the character.
    """
    if re.match(r"[A-Za-z][\w+.-]+://", folder):
        accepted = "a folder of this machine, where a bucket can be mounted, and no address"
        raise ValueError(f"{field} is {folder!r}; accepted: {accepted}")
    path = os.path.abspath(folder)
    found = [x for x in "[]\\" if x in path and x != os.sep]
    if found:
        accepted = "a path without square brackets and backslashes, in which checkpoints are lost"
        raise ValueError(f"{field} is {folder!r} ({path} has {found[0]!r}); accepted: {accepted}")


class Checkpoints:
    """Saves and restores the state of one run.

    Args:
      folder: where checkpoints go; made if missing.
      keep: how many of the newest to keep, from 1.
      fingerprint: description of the run; a checkpoint of another run is refused.
    """

    def __init__(self, folder: str, *, keep: int, fingerprint: dict[str, Any]):
        self._folder = os.path.abspath(folder)
        self._fingerprint = fingerprint
        self._is_recorded = False
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep,
                create=True,
                enable_async_checkpointing=True,
                # A file system may show one host an older list than another.
                single_host_load_and_broadcast=jax.process_count() > 1,
            ),
            item_handlers={
                "tree": ocp.StandardCheckpointHandler(),
                "description": ocp.JsonCheckpointHandler(),
            },
        )

    def save(self, position: Position, tree: Any) -> bool:
        """Saves `tree` (device arrays) at `position`, in the background.

        It is copied first: the next training step gets its buffers and overwrites them while they
        are still being written. A tree with non-finite numbers is never saved: a run must not
        resume into one. Sums of metrics may be: a metric need not be defined in every batch.

        Returns:
          Whether there is a checkpoint of this position now, or will be once it is written.

        Raises:
          OSError: if it could not be saved, or an earlier one could not be written.
        """
        with self._plain_errors():
            if position.global_step in self._manager.all_steps():
                return True
            is_finite, copy = _copied(tree)
            if not bool(is_finite):
                _LOG.warning("step %d is not finite and was not saved", position.global_step)
                return False
            description = {
                "position": position._asdict(),
                "fingerprint": self._fingerprint,
                "environment": environment.current(),
                "arrays": _described(copy),
            }
            description = json.loads(json.dumps(description))  # as JSON gives it back
            description["checksum"] = checksums.of_document(description)
            saved = self._manager.save(
                position.global_step,
                args=ocp.args.Composite(
                    tree=ocp.args.StandardSave(copy), description=ocp.args.JsonSave(description)
                ),
                force=True,
            )
        if not saved:
            raise OSError(f"step {position.global_step} could not be saved in {self._folder}")
        self._record()  # of those before, which are written by now
        return True

    def restore_newest(self, like: Callable[[Position], Any]) -> tuple[Position, Any] | None:
        """Restores the newest checkpoint that is what was saved: every checksum is right.

        Others are passed over with a warning and moved beside the folder, so that the run can save
        at their steps again.

        Args:
          like: gives the tree of `jax.ShapeDtypeStruct` with shardings for a position.

        Returns:
          `(position, tree)`, or None if nothing has ever been saved here.

        Raises:
          ValueError: if a checkpoint belongs to another run, or to one with another
            `jax_enable_x64` on which types of its numbers depend, or if none of those that are
            here, or were, can be used.
          OSError: for lack of memory or of permission to read.
        """
        problems: dict[int, str] = {}
        for step in sorted(self._manager.all_steps(), reverse=True):
            problem, found = "", None
            # Orbax raises errors of many kinds on damaged files; what they have in common is that
            # an older checkpoint may still be good.
            try:
                found = self._restore(step, like)
            except _OtherRunError:
                raise
            except Exception as error:
                if _is_of_the_moment(error):
                    raise OSError(
                        f"checkpoint {step} in {self._folder} cannot be read now "
                        f"({first_line(error)}); nothing was changed, so that the same command "
                        "goes on with it once there is memory and permission to read it"
                    ) from error
                _LOG.debug("checkpoint %d", step, exc_info=True)
                problem = first_line(error)
            if sharding.any_host(found is None):
                problems[step] = problem or "another host cannot read it"
                _LOG.warning("checkpoint %d is damaged and passed over: %s", step, problems[step])
                continue
            self._set_aside(list(problems))
            self._record()
            return found
        if problems:
            reasons = "; ".join(f"{step}: {text}" for step, text in problems.items())
            raise ValueError(
                f"none of the checkpoints in {self._folder} can be used ({reasons}); accepted: a "
                "folder with a good one, or another folder to start again"
            )
        record = _record_file(self._folder)
        if sharding.any_host(os.path.exists(record)):
            raise ValueError(
                f"{self._folder} holds no checkpoint, though {record} says that some were saved; "
                "accepted: the checkpoints put back, another folder to start again, or that file "
                "removed too, to start again here and lose the rows of metrics"
            )
        return None

    def _restore(self, step: int, like: Callable[[Position], Any]) -> tuple[Position, Any]:
        """One checkpoint.

        Raises:
          _OtherRunError: if it is of another run, or of one with numbers of another width.
          Exception: of any kind, if it is not what was saved.
        """
        description = self._description(step)
        stored = description["position"].items()  # JSON has lists only
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored}
        position, arrays = Position(**fields), description["arrays"]
        wanted = like(position)
        try:
            _compare(wanted, arrays)
        except ValueError as error:
            self._refuse_other_types(step, description["environment"], error)
            raise
        tree = self._manager.restore(
            step, args=ocp.args.Composite(tree=ocp.args.StandardRestore(wanted))
        )["tree"]
        for path, leaf in jax.tree.leaves_with_path(tree):
            name = _name(path)
            if checksums.of_array(sharding.to_host(leaf)) != arrays[name]["checksum"]:
                raise ValueError(f"{name} is not what was saved (its checksum differs)")
        if not bool(_all_finite(tree)):
            raise ValueError("it holds numbers that are not finite")
        changes = environment.changes(description["environment"])
        if changes and sharding.is_writer():
            _LOG.warning(
                "checkpoint %d was made under other conditions (%s): from here on last digits may "
                "differ from those of a run that was never stopped",
                *(step, "; ".join(changes)),
            )
        return position, tree

    def _refuse_other_types(self, step: int, saved: dict[str, Any], error: ValueError) -> None:
        """Raises if a checkpoint does not fit for another width of numbers, and is not damaged."""
        there, here = (
            x["jax_enable_x64"] for x in (environment.DEFAULTS | saved, environment.current())
        )
        if there != here:
            raise _OtherRunError(
                f"checkpoint {step} in {self._folder} was made with jax_enable_x64={there}, here "
                f"it is {here} ({error}); accepted: JAX_ENABLE_X64={there:d}, as it was made"
            ) from error

    def _description(self, step: int) -> dict[str, Any]:
        restored = self._manager.restore(
            step, args=ocp.args.Composite(description=ocp.args.JsonRestore())
        )
        description = dict(restored["description"])
        if "checksum" not in description:
            raise ValueError("it has no checksums (an earlier version of pujax wrote it)")
        if description.pop("checksum") != checksums.of_document(description):
            raise ValueError("its description is not what was saved (its checksum differs)")
        differences = config_lib.stored_differences(description["fingerprint"], self._fingerprint)
        if differences:
            raise _OtherRunError(
                f"checkpoint {step} in {self._folder} belongs to another run "
                f"({'; '.join(differences)}); accepted: the same configuration and data"
            )
        return description

    def _set_aside(self, steps: list[int]) -> None:
        """Moves damaged checkpoints to another folder, so that orbax does not see them."""
        if not steps:
            return
        if sharding.is_writer():
            aside = f"{self._folder}_damaged"
            os.makedirs(aside, exist_ok=True)
            for step in steps:
                target, number = os.path.join(aside, str(step)), 1
                while os.path.exists(target):
                    target, number = os.path.join(aside, f"{step}-{number}"), number + 1
                os.rename(os.path.join(self._folder, str(step)), target)
        sharding.barrier("damaged checkpoints set aside")
        self._manager.reload()

    def _record(self) -> None:
        """Notes that a checkpoint has been written, once one has."""
        if self._is_recorded or not sharding.is_writer() or not _has_steps(self._folder):
            return
        if not os.path.exists(_record_file(self._folder)):
            write_json(_record_file(self._folder), {"saved": True})
        self._is_recorded = True

    @contextlib.contextmanager
    def _plain_errors(self) -> Iterator[None]:
        """Turns the errors of orbax, of many kinds and lines, into one line."""
        try:
            yield
        except jax.errors.JaxRuntimeError:  # of devices and other hosts, not of files
            raise
        except Exception as error:
            _LOG.debug("%s", self._folder, exc_info=True)
            # Python would warn, below the error, of each write that orbax had not begun by then.
            never_begun = "coroutine .* was never awaited"
            warnings.filterwarnings("ignore", message=never_begun, category=RuntimeWarning)
            raise OSError(
                f"no checkpoint could be written in {self._folder}: {first_line(error)}"
            ) from error

    def wait(self) -> None:
        """Waits until all is written; an error in the background is raised here."""
        with self._plain_errors():
            self._manager.wait_until_finished()
        self._record()

    def close(self) -> None:
        """Releases the folder, once all is written."""
        with self._plain_errors():
            self._manager.close()


def exists(folder: str) -> bool:
    """Whether a folder of `Checkpoints` holds one, or did; those half written have other names."""
    return _has_steps(folder) or os.path.exists(_record_file(folder))


def _has_steps(folder: str) -> bool:
    return os.path.isdir(folder) and any(name.isdigit() for name in os.listdir(folder))


def _record_file(folder: str) -> str:
    """Beside the folder: says that there was a checkpoint, should it be lost."""
    return f"{folder}.json"


def _is_of_the_moment(error: Exception) -> bool:
    """Whether a read failed for lack of memory or permission, which says nothing of the file."""
    kinds = (MemoryError, PermissionError, jax.errors.JaxRuntimeError)
    text = str(error)
    return isinstance(error, kinds) or "PERMISSION_DENIED" in text or "RESOURCE_EXHAUSTED" in text


class _OtherRunError(ValueError):
    """A checkpoint with another fingerprint, or of other types of numbers."""


@jax.jit
def _copied(tree: Any) -> tuple[jax.Array, Any]:
    """Whether all numbers are finite, and a copy: one program instead of one for each shape."""
    return _all_finite(tree), jax.tree.map(jnp.copy, tree)


@jax.jit
def _all_finite(tree: Any) -> jax.Array:
    leaves = [
        leaf
        for path, leaf in jax.tree.leaves_with_path(tree)
        if jnp.issubdtype(leaf.dtype, jnp.floating) and not _name(path).startswith(_METRIC_SUMS)
    ]
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(x)) for x in leaves]))


def _described(tree: Any) -> dict[str, dict[str, Any]]:
    """Shape, type and checksum of every array by its name.

    Every process could compute them: an array is the same on all hosts, or its parts are all on
    this one.
    """
    result = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        array = sharding.to_host(leaf)
        result[_name(path)] = {
            "shape": list(array.shape),
            "dtype": str(array.dtype),
            "checksum": checksums.of_array(array),
        }
    return result


def _compare(wanted: Any, saved: dict[str, dict[str, Any]]) -> None:
    """Raises unless saved arrays have the wanted names, shapes and types."""
    rest = dict(saved)
    for path, leaf in jax.tree.leaves_with_path(wanted):
        name = _name(path)
        other = rest.pop(name, None)
        if other is None:
            raise ValueError(f"the checkpoint has no {name}")
        if other["shape"] != list(leaf.shape) or other["dtype"] != str(leaf.dtype):
            raise ValueError(
                f"the checkpoint's {name} is {other['dtype']}{other['shape']}; accepted: "
                f"{leaf.dtype}{list(leaf.shape)}"
            )
    if rest:
        raise ValueError(f"the checkpoint holds {sorted(rest)[:3]}, which this run does not have")


def _name(path: tuple) -> str:
    """A path as both orbax and this project spell it: keys, fields, indices joined by '/'."""
    parts = (getattr(p, "key", getattr(p, "name", getattr(p, "idx", None))) for p in path)
    return "/".join(map(str, parts))
