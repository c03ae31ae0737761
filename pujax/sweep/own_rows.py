"""A sweep on a user's own rows: batches that fit them, and columns for what they can tell."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import ml_collections

from pujax import checks, report
from pujax.data import sources
from pujax.data.pu_dataset import PUDataset
from pujax.sweep.cell_runner import Place
from pujax.sweep.plan import Cell, Plan
from pujax.training import own_results
from pujax.training.evaluation import model_selection

_TRUE_LABELS = ("oracle", "oracle_f1")
"""Rules that need the true labels of what is held out."""


class OwnRows(NamedTuple):
    """What a table may show of a cell whose data are a user's own rows.

    Attributes:
      has_test: whether there is a test set.
      has_held_out: whether a part is held out.
      has_truth: whether the true labels of all that is held out are known.
      notes: how the rows were read, and what was changed to fit them.
    """

    has_test: bool
    has_held_out: bool
    has_truth: bool
    notes: tuple[str, ...]


def look(
    cell: Cell, configs: Sequence[ml_collections.FrozenConfigDict], place: Place
) -> tuple[list[ml_collections.FrozenConfigDict], OwnRows | None]:
    """The configurations of a cell as a single run would train them, and what its rows can tell.

    Args:
      cell: the cell.
      configs: resolved configurations, one per seed, of which all have as many rows to train on.
      place: gives the data of the first one.

    Returns:
      The configurations, with smaller batches where there are few rows; and what is known of the
      rows, None for data that are not a user's own.

    Raises:
      ValueError: naming the cell, for data that cannot be read, a method that needs negatives, or
        rows of which nothing would be known.
    """
    if not sources.is_own(configs[0].data.source):
        return list(configs), None
    try:
        data = place.load(configs[0])
        own_results.check_names(configs[0])
        for config in configs[1:] if configs[0].data.num_support else ():
            place.load(config)  # how many known negatives are not held out depends on the seed
    except ValueError as error:
        raise ValueError(f"{cell.name}: {error}") from error
    assert isinstance(data, PUDataset) and data.own is not None
    if not len(data.test_labels) and not len(data.validation_labeled):
        raise ValueError(
            f"{cell.name}: data.holdout is {configs[0].data.holdout:g} without a test set; "
            "accepted: a share above 0, since a table has nothing to show otherwise"
        )
    fitting = [own_results.with_fitting_batches(config, data.info.n) for config in configs]
    notes = (*data.own.notes, own_results.describe_batches(configs[0], fitting[0]))
    rows = OwnRows(
        has_test=len(data.test_labels) > 0,
        has_held_out=len(data.validation_labeled) > 0,
        has_truth=bool((data.validation_truth >= 0).all()),
        notes=tuple(filter(None, notes)),
    )
    return fitting, rows


def _check_kind(several: set[bool], field: str, name: str) -> None:
    """Raises a ValueError for a metric of several labels where no cell has them, or the reverse."""
    of_several = (*model_selection.MULTILABEL_METRICS, *model_selection.ORACLE_METRICS)
    if True not in several and name in of_several:
        accepted = f"{_listed(model_selection.BINARY_METRICS)}, since no cell has several labels"
        checks.require(False, field, name, accepted)
    if False not in several and name in model_selection.BINARY_METRICS:
        accepted = f"{_listed(model_selection.MULTILABEL_METRICS)}, since all have several labels"
        checks.require(False, field, name, accepted)


def settle(plan: Plan, known: Sequence[OwnRows | None]) -> Plan:
    """The plan with rules and metrics where it leaves them open.

    On own rows alone these are what a single run shows: the epoch that it reports, the metrics of a
    test set if there is one, and the estimates from the rows held out. Elsewhere they are the
    accuracy at the last epoch, or the mean average precision where all examples have several
    labels, of which no accuracy is measured.

    Args:
      plan: a plan that `plan.check` accepts.
      known: what is known of each cell's rows, None for data that are not a user's own.

    Raises:
      ValueError: for rules and metrics that nobody can know in any cell, a metric that would be
        shown twice, and a published rule that would not be shown.
    """
    own = [rows for rows in known if rows is not None]
    is_own = len(own) == len(known)
    has_test = not is_own or any(rows.has_test for rows in own)
    has_held_out = any(rows.has_held_out for rows in own)
    several = {sources.is_multilabel(cell.config.data.source) for cell in plan.cells}
    names: tuple[str, ...] = model_selection.BINARY_METRICS
    if several == {True}:
        names = model_selection.MULTILABEL_METRICS
    tested = names * has_test
    usual: tuple[str, ...] = tested[:1]
    rules = plan.rules
    if rules is None:
        rules = (report.REPORTED if is_own else model_selection.LAST,)
    if is_own and set(rules) == {report.REPORTED}:
        usual = tested + tuple(report.HELD_OUT) * has_held_out
    metric = plan.metric or (usual or tuple(report.HELD_OUT))[0]
    also = plan.also
    if also is None:
        also = () if plan.metric else usual[1:]
    for field, name in (("metric", metric), *(("also", name) for name in also)):
        _check_kind(several, field, name)
        if name not in report.HELD_OUT:
            accepted = f"{_listed(report.HELD_OUT)}, since no cell has a test set"
            checks.require(has_test, field, name, accepted)
            continue
        known_ones = (*names, model_selection.PRIOR_ERROR)
        accepted = f"{_listed(known_ones)}, since no cell holds out a part of own rows"
        checks.require(has_held_out, field, name, accepted)
        for rule in rules:
            accepted = (
                f"{report.REPORTED!r} with the metric {name!r}, which is known of the epoch that "
                "each run reports (run.selection)"
            )
            checks.require(rule == report.REPORTED, "rules", rule, accepted)
    if is_own and not any(rows.has_truth for rows in own):
        for rule in rules:
            others = [name for name in report.RULES if name not in _TRUE_LABELS]
            checks.one_of("rules", rule, others)
    shown = report.TEST_METRICS * has_test
    if has_held_out and set(rules) == {report.REPORTED}:
        shown += tuple(report.HELD_OUT)
    for name in also:
        checks.one_of("also", name, [other for other in shown if other != metric])
    if plan.published_rule:
        checks.one_of("published_rule", plan.published_rule, rules)
    return plan._replace(rules=tuple(rules), metric=metric, also=tuple(also))


def check_estimates(plan: Plan, estimates: Sequence[bool | None]) -> None:
    """Raises a ValueError for the error of a prior that no method of the plan estimates.

    Args:
      plan: with its metrics settled.
      estimates: of every cell, whether its method estimates numbers; None where that is unknown, as
        of cells that this call does not train.
    """
    for field, names in (("metric", [plan.metric]), ("also", plan.also or [])):
        is_possible = model_selection.PRIOR_ERROR not in names or any(
            x is not False for x in estimates
        )
        checks.require(
            is_possible,
            field,
            model_selection.PRIOR_ERROR,
            "a metric of predictions, since no method of the plan estimates the class prior",
        )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(map(repr, names))
