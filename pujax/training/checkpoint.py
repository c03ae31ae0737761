"""Checkpoints: the only file that touches orbax.

A checkpoint holds the training state, the running sums of the epoch's metrics, the best state so
far, and the position in the run, so that training goes on from any step as if it had never stopped.
Orbax writes beside and renames, so a half-written checkpoint is never read.
"""

import logging
import os
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp

from pujax.training import config as config_lib
from pujax.training import sharding

_LOG = logging.getLogger(__name__)


class Position(NamedTuple):
    """Where a run stands.

    Attributes:
      epoch: epochs completed over all stages.
      step: steps taken in the epoch after those.
      global_step: steps taken over all stages.
      seconds: time spent on the steps of the unfinished epoch.
      members: which members of the run still train, counted from 0: a seed can leave it.
      best_values: of each of these, the value of `run.selection` at its best epoch so far; None
        while there is none, and always under 'last'.
    """

    epoch: int = 0
    step: int = 0
    global_step: int = 0
    seconds: float = 0.0
    members: tuple[int, ...] = (0,)
    best_values: tuple[float | None, ...] = (None,)


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
        self._manager = ocp.CheckpointManager(
            self._folder,
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, create=True, enable_async_checkpointing=True
            ),
            item_handlers={
                "tree": ocp.StandardCheckpointHandler(),
                "description": ocp.JsonCheckpointHandler(),
            },
        )

    def save(self, position: Position, tree: Any) -> None:
        """Saves `tree` (device arrays) at `position`, in the background.

        It is copied first: the next training step gets its buffers and overwrites them while they
        are still being written. A tree with non-finite numbers is never saved: a run must not
        resume into one.

        Raises:
          OSError: if it could not be saved, or an earlier one could not be written.
        """
        if position.global_step in self._manager.all_steps():
            return
        if not bool(_all_finite(tree)):
            _LOG.warning("step %d is not finite and was not saved", position.global_step)
            return
        description = {"position": position._asdict(), "fingerprint": self._fingerprint}
        saved = self._manager.save(
            position.global_step,
            args=ocp.args.Composite(
                tree=ocp.args.StandardSave(jax.tree.map(jnp.copy, tree)),
                description=ocp.args.JsonSave(description),
            ),
            force=True,
        )
        if not saved:
            raise OSError(f"step {position.global_step} could not be saved in {self._folder}")

    def restore_newest(self, like: Callable[[Position], Any]) -> tuple[Position, Any] | None:
        """Restores the newest checkpoint that can be read.

        Damaged ones are passed over with a warning and moved beside the folder, so that the run can
        save at their steps again.

        Args:
          like: gives the tree of `jax.ShapeDtypeStruct` with shardings for a position.

        Returns:
          `(position, tree)`, or None if there is no checkpoint at all.

        Raises:
          ValueError: if a checkpoint belongs to another run, differs in structure, shape or type
            (orbax alone would cast quietly), or if there are checkpoints but none can be read.
        """
        steps = sorted(self._manager.all_steps(), reverse=True)
        damaged = []
        for step in steps:
            # Orbax raises errors of many kinds on damaged files; what they have in common is that
            # an older checkpoint may still be good.
            try:
                position = self._position(step)
                saved = self._manager.item_metadata(step)["tree"]
            except _OtherRunError:
                raise
            except Exception as error:
                _LOG.warning("checkpoint %d cannot be read: %s", step, error)
                damaged.append(step)
                continue
            wanted = like(position)
            _compare(jax.tree.leaves_with_path(wanted), saved)
            try:
                tree = self._manager.restore(
                    step, args=ocp.args.Composite(tree=ocp.args.StandardRestore(wanted))
                )["tree"]
            except Exception as error:
                _LOG.warning("checkpoint %d cannot be read: %s", step, error)
                damaged.append(step)
                continue
            self._set_aside(damaged)
            return position, tree
        if damaged:
            raise ValueError(
                f"none of the checkpoints {damaged} in {self._folder} can be read; accepted: a "
                "folder with a readable one, or without any to start again"
            )
        return None

    def _position(self, step: int) -> Position:
        restored = self._manager.restore(
            step, args=ocp.args.Composite(description=ocp.args.JsonRestore())
        )
        description = restored["description"]
        differences = config_lib.differences(description["fingerprint"], self._fingerprint)
        if differences:
            raise _OtherRunError(
                f"checkpoint {step} in {self._folder} belongs to another run "
                f"({'; '.join(differences)}); accepted: the same configuration and data"
            )
        stored = description["position"].items()  # JSON has lists only
        fields: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in stored}
        return Position(**fields)

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

    def wait(self) -> None:
        """Waits until all is written; an error in the background is raised here."""
        self._manager.wait_until_finished()

    def close(self) -> None:
        """Releases the folder, once all is written."""
        self._manager.close()


def exists(folder: str) -> bool:
    """Whether a folder of `Checkpoints` holds one; those half written have other names."""
    return os.path.isdir(folder) and any(name.isdigit() for name in os.listdir(folder))


class _OtherRunError(ValueError):
    """A checkpoint with another fingerprint."""


@jax.jit
def _all_finite(tree: Any) -> jax.Array:
    leaves = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.floating)]
    return jnp.all(jnp.asarray([jnp.all(jnp.isfinite(x)) for x in leaves]))


def _compare(wanted: list, saved: Any) -> None:
    """Raises unless saved leaves have the wanted paths, shapes and types."""
    have = {_name(path): leaf for path, leaf in jax.tree.leaves_with_path(saved)}
    for path, leaf in wanted:
        name = _name(path)
        other = have.pop(name, None)
        if other is None:
            raise ValueError(f"the checkpoint has no {name}")
        if tuple(other.shape) != tuple(leaf.shape) or other.dtype != leaf.dtype:
            raise ValueError(
                f"the checkpoint's {name} is {other.dtype}{list(other.shape)}; accepted: "
                f"{leaf.dtype}{list(leaf.shape)}"
            )
    if have:
        raise ValueError(f"the checkpoint holds {sorted(have)[:3]}, which this run does not have")


def _name(path: tuple) -> str:
    """A path as both orbax and this project spell it: keys, fields, indices joined by '/'."""
    parts = (getattr(p, "key", getattr(p, "name", getattr(p, "idx", None))) for p in path)
    return "/".join(map(str, parts))
