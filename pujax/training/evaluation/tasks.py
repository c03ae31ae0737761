"""Tasks: what differs between problems with one label per example and with several."""

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_collections
import numpy as np

from pujax import methods
from pujax.data.multilabel_dataset import MultilabelDataset
from pujax.data.pu_dataset import PUDataset
from pujax.training.evaluation import binary, multilabel

Problem = PUDataset | MultilabelDataset


class Task(NamedTuple):
    """Functions of one kind of problem; see their namesakes in `binary` and `multilabel`.

    Attributes:
      name: as error messages have it.
      columns: of the final table.
      describe: the counts printed at the start.
      summarize: what `summary.json` holds.
      table_row: one line of the final table.
      test_metrics: of scores on the test set.
      validation_metrics: of scores on the validation set.
      label_metrics: of learned labels against the hidden truth.
      label_gradient_metrics: of the gradients of learned labels against the hidden truth.
      with_prior_error: adds the error of an estimated prior to a method's estimates.
      figure_points: what figures show one point for.
    """

    name: str
    columns: tuple[str, ...]
    describe: Callable[..., str]
    summarize: Callable[..., dict[str, Any]]
    table_row: Callable[[dict[str, Any]], dict[str, Any]]
    test_metrics: Callable[..., dict[str, float]]
    validation_metrics: Callable[..., dict[str, float]]
    label_metrics: Callable[..., dict[str, float]]
    label_gradient_metrics: Callable[..., dict[str, float]]
    with_prior_error: Callable[..., dict[str, float]]
    figure_points: Callable[..., tuple[np.ndarray, np.ndarray, np.ndarray]]


def _task(name: str, module: Any) -> Task:
    functions = {field: getattr(module, field) for field in Task._fields[2:]}
    return Task(name, module.COLUMNS, **functions)


_BINARY, _MULTILABEL = _task("binary", binary), _task("multi-label", multilabel)


def of(data: Problem) -> Task:
    """The task of a problem."""
    return _MULTILABEL if isinstance(data, MultilabelDataset) else _BINARY


def check(config: ml_collections.ConfigDict, data: Problem) -> None:
    """Raises a ValueError unless the method is for this kind of problem."""
    wanted, name = isinstance(data, MultilabelDataset), config.method.name
    if methods.is_multilabel(name) == wanted:
        return
    accepted = methods.of_kind(multilabel=wanted)
    raise ValueError(
        f"method.name is {name!r} and the data ({data.info.name}) are {of(data).name}; accepted: "
        + ", ".join(map(repr, accepted))
    )
