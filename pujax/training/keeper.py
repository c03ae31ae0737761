"""Keeps the state of the epoch that a selection rule prefers, and gives it back at the end.

A run may go on from any of its kept checkpoints, and after a crash from an older one than the
newest epoch. So besides the best state so far, those stay that were the best at each of these
checkpoints; a checkpoint's `Position` says which.
"""

from typing import Any

from pujax.training import checkpoint
from pujax.training.checkpoint import Checkpoints, Position
from pujax.training.evaluation import model_selection


class Keeper:
    """The selected state of one run, in a folder beside its checkpoints.

    Args:
      rule: one of `selection.RULES`; 'last' keeps nothing.
      folder: of the selected states.
      checkpoints: of the run.
      fingerprint: description of the run.
    """

    def __init__(
        self, rule: str, folder: str, *, checkpoints: Checkpoints, fingerprint: dict[str, Any]
    ):
        self._rule = rule
        self._checkpoints = checkpoints
        self._states = None
        if rule != model_selection.LAST:
            self._states = checkpoint.Checkpoints(folder, keep=0, fingerprint=fingerprint)

    def start_at(self, position: Position) -> None:
        """Forgets the states of epochs that are about to come again."""
        if self._states is not None:
            self._prune(position)

    def offer(self, position: Position, row: dict[str, Any], state: Any) -> Position:
        """Keeps a state if it is the best so far.

        Args:
          position: at the end of an evaluated epoch of the last stage.
          row: of the epoch, with the rule's column.
          state: training state, not donated.

        Returns:
          The position, which says whether this is the selected epoch.
        """
        if self._states is None:
            return position
        value = row[model_selection.COLUMNS[self._rule]]
        if not model_selection.improves(self._rule, value, position.selected_value):
            return position
        position = position._replace(selected_step=position.global_step, selected_value=value)
        self._states.save(position, state)
        self._prune(position)
        return position

    def reported(self, position: Position, last: Any, like: Any) -> Any:
        """The state to report at the end of a run.

        Args:
          position: at the end.
          last: the last state.
          like: tree of `jax.ShapeDtypeStruct` of a state of the last stage.

        Returns:
          The selected state, or `last` under the rule 'last' or where no epoch had a value.

        Raises:
          ValueError: if the selected state is missing or damaged.
        """
        if self._states is None or position.selected_step < 0:
            return last
        return self._states.restore(position.selected_step, like)

    def close(self) -> None:
        """Releases the folder."""
        if self._states is not None:
            self._states.close()

    def _prune(self, position: Position) -> None:
        needed = {each.selected_step for each in self._checkpoints.positions()}
        self._states.prune(needed | {position.selected_step})
