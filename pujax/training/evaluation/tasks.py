"""What differs between problems with one label per example and with several."""

from collections.abc import Callable
from typing import Any, NamedTuple

import ml_collections
from jax.sharding import Mesh

from pujax import methods
from pujax.data.multilabel_dataset import MultilabelDataset
from pujax.data.pu_dataset import PUDataset, TrainingData
from pujax.methods.base import Method
from pujax.training.evaluation import evaluator as evaluator_lib
from pujax.training.evaluation import multilabel, multilabel_summary, summary


class Kind(NamedTuple):
    """Functions of one kind of problem; see their namesakes in `summary`.

    Attributes:
      name: as error messages have it.
      describe: the counts printed at the start.
      summarize: what `summary.json` holds.
      table_row: one line of the final table.
      columns: of that table.
    """

    name: str
    describe: Callable[..., str]
    summarize: Callable[..., dict[str, Any]]
    table_row: Callable[[dict[str, Any]], dict[str, Any]]
    columns: tuple[str, ...]


_BINARY, _MULTILABEL = (
    Kind(name, module.describe, module.summarize, module.table_row, module.COLUMNS)
    for name, module in (("binary", summary), ("multi-label", multilabel_summary))
)


def of(data: PUDataset | MultilabelDataset) -> Kind:
    """The kind of a problem."""
    return _MULTILABEL if isinstance(data, MultilabelDataset) else _BINARY


def check(config: ml_collections.ConfigDict, data: PUDataset | MultilabelDataset) -> None:
    """Raises a ValueError unless the method is for this kind of problem."""
    wanted, name = isinstance(data, MultilabelDataset), config.method.name
    if methods.is_multilabel(name) == wanted:
        return
    accepted = [each for each in methods.names() if methods.is_multilabel(each) == wanted]
    raise ValueError(
        f"method.name is {name!r} and the data ({data.info.name}) are {of(data).name}; accepted: "
        + ", ".join(map(repr, accepted))
    )


def evaluator(
    method: Method,
    data: PUDataset | MultilabelDataset,
    training: TrainingData | None,
    mesh: Mesh,
    run: ml_collections.ConfigDict,
) -> evaluator_lib.Evaluator | multilabel.Evaluator:
    """What compares a method's states with the truth; `training` is what `calibrate` looks at."""
    if isinstance(data, MultilabelDataset):
        size, threshold = run.eval_batch_size, run.threshold
        return multilabel.Evaluator(method, data, mesh, batch_size=size, threshold=threshold)
    return evaluator_lib.Evaluator(method, data, training, mesh, batch_size=run.eval_batch_size)
