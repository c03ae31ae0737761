"""Columns of a run's rows that belong to the loop and to the evaluation, not to the method.

Whatever a method reports joins the same row, so that a metric or an estimate of such a name would
replace the column, or be replaced by it in the epochs that are evaluated.
"""

from collections.abc import Iterable

_OF_LOOP = (
    *("epoch", "stage", "step", "steps", "nonfinite", "batches_without_positives"),
    *("seconds", "examples_per_second"),
)
_OF_LABELS = (
    *("label_accuracy", "label_precision", "label_mse", "recovered_positives", "hidden_positives"),
    "prior_error",
)
_PREFIXES = ("test_", "val_", "label_gradient_agreement")


def check(what: str, names: Iterable[str], *, also: tuple[str, ...] = ()) -> None:
    """Requires names that leave those columns alone.

    Args:
      what: the kind of name, as the message has it.
      names: of the numbers that a method reports.
      also: further names that these may not have.

    Raises:
      ValueError: naming the first that belongs to such a column, and what is accepted.
    """
    taken = (*_OF_LOOP, *_OF_LABELS, *also)
    for name in names:
        if name in taken or name.startswith(_PREFIXES):
            raise ValueError(
                f"{what} is {name!r}; accepted: names that do not begin with "
                f"{', '.join(_PREFIXES[:-1])} or {_PREFIXES[-1]}, and are none of "
                f"{', '.join(taken)}, columns of the run itself"
            )
