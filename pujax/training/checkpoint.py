"""Checkpoints: the only file that touches orbax.

A checkpoint holds the training state, the running sums of the epoch's metrics, and the position in
the run, so that training goes on from any step as if it had never stopped. Orbax writes beside and
renames, so a half-written checkpoint is never read.
"""

import os
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from absl import logging


class Position(NamedTuple):
    """Where a run stands.

    Attributes:
      epoch: epochs completed over all stages.
      step: steps taken in the epoch after those.
      global_step: steps taken over all stages.
    """

    epoch: int = 0
    step: int = 0
    global_step: int = 0


class Checkpoints:
    """Saves and restores the state of one run.

    Args:
      folder: where checkpoints go; made if missing.
      keep: how many of the newest to keep.
      fingerprint: description of the run; a checkpoint of another run is refused.
    """

    def __init__(self, folder: str, *, keep: int, fingerprint: dict[str, Any]):
        self._fingerprint = fingerprint
        self._manager = ocp.CheckpointManager(
            os.path.abspath(folder),
            # Written in the foreground: the training step donates its buffers, and a writer in the
            # background may still be reading them.
            options=ocp.CheckpointManagerOptions(
                max_to_keep=keep, create=True, enable_async_checkpointing=False
            ),
            item_handlers={
                "tree": ocp.StandardCheckpointHandler(),
                "description": ocp.JsonCheckpointHandler(),
            },
        )

    def save(self, position: Position, tree: Any) -> None:
        """Saves `tree` (device arrays) at `position`.

        A tree with non-finite numbers is never saved: a run must not resume into one.
        """
        if position.global_step in self._manager.all_steps():
            return
        if not bool(_all_finite(tree)):
            logging.warning("step %d is not finite and was not saved", position.global_step)
            return
        description = {"position": position._asdict(), "fingerprint": self._fingerprint}
        self._manager.save(
            position.global_step,
            args=ocp.args.Composite(
                tree=ocp.args.StandardSave(tree), description=ocp.args.JsonSave(description)
            ),
        )

    def positions(self) -> list[Position]:
        """Positions of all checkpoints, newest first; unreadable ones are left out with a warning.

        Raises:
          ValueError: if the newest readable checkpoint belongs to another run.
        """
        found = []
        for step in sorted(self._manager.all_steps(), reverse=True):
            try:
                restored = self._manager.restore(
                    step, args=ocp.args.Composite(description=ocp.args.JsonRestore())
                )
                description = restored["description"]
            except (OSError, ValueError, KeyError) as error:
                logging.warning("checkpoint %d cannot be read and is passed over: %s", step, error)
                continue
            if description["fingerprint"] != self._fingerprint:
                raise ValueError(
                    f"checkpoint {step} in {self._manager.directory} belongs to another run; "
                    "accepted: the workdir of a run with the same configuration and data"
                )
            found.append(Position(**description["position"]))
        return found

    def restore(self, position: Position, like: Any) -> Any:
        """Restores the tree saved at `position`.

        Args:
          position: one of `positions()`.
          like: tree of `jax.ShapeDtypeStruct` with shardings.

        Returns:
          A tree like `like`.

        Raises:
          ValueError: if structure, a shape or a type differs; orbax alone would cast quietly.
        """
        step = position.global_step
        saved = self._manager.item_metadata(step)["tree"]
        _compare(jax.tree.leaves_with_path(like), saved)
        restored = self._manager.restore(
            step, args=ocp.args.Composite(tree=ocp.args.StandardRestore(like))
        )
        return restored["tree"]

    def close(self) -> None:
        """Releases the folder."""
        self._manager.close()


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
