"""Results of several seeds as a Markdown table beside published figures."""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from pujax.training.evaluation import model_selection

PERCENT = (*model_selection.BINARY_METRICS, *model_selection.MULTILABEL_METRICS)
WITH_BEST_EPOCH = ("accuracy", *model_selection.MULTILABEL_METRICS)
METRICS = (*PERCENT, model_selection.PRIOR_ERROR)
BEST_EPOCH = "oracle_best_epoch"
RULES = (*model_selection.RULES, BEST_EPOCH)
# Rules that look at true labels say so wherever they are shown.
ORACLES = {"oracle": "true validation labels", BEST_EPOCH: "test labels"}

_PAIRED = "'Paired' is the difference, seed by seed, from the row that is named there."


@dataclasses.dataclass(frozen=True)
class Spread:
    """Mean and spread of a number over seeds.

    Attributes:
      mean: arithmetic mean.
      std: standard deviation with n - 1; None for one value.
      count: number of values.
    """

    mean: float
    std: float | None
    count: int


def spread(values: Sequence[float | None]) -> Spread | None:
    """Mean and standard deviation (n - 1) of the values that are known; None without any."""
    known = [x for x in values if x is not None and math.isfinite(x)]
    if not known:
        return None
    std = statistics.stdev(known) if len(known) > 1 else None
    return Spread(statistics.fmean(known), std, len(known))


def by_rule(summary: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Epoch and test metrics that every selection rule reports for a run.

    Args:
      summary: what `summary.json` holds.

    Returns:
      By rule: `epoch`, `is_oracle`, `accuracy`, `f1`, `auc`, `average_precision` (fractions), and
      `prior_error` of methods that estimate the class prior. `oracle_best_epoch` is chosen by the
      test accuracy and has no other metric; of multi-label problems every metric is the largest
      of any epoch, thresholds and weights included, each chosen for itself on the test set.
    """
    best = summary["oracle_best_epoch"]
    best_values = {"epoch": best["epoch"], "is_oracle": True}
    tested = {name.removeprefix("test_"): value for name, value in best.items()}
    best_values |= {name: tested.get(f"oracle_{name}", tested.get(name)) for name in tested}
    return {**summary["selections"], BEST_EPOCH: best_values}


def render(
    title: str,
    cells: Sequence[Mapping[str, Any]],
    *,
    rules: Sequence[str],
    metric: str = "accuracy",
    num_seeds: int,
    reference: str = "",
) -> str:
    """A Markdown table: one line per cell, one column per rule.

    Args:
      title: heading.
      cells: dicts with `row`, `column`, `published` (mean and standard deviation, in percent but
        for `prior_error`, or None), `note`, `summaries` (of the seeds that are finished) and
        `error` ('' if none).
      rules: which epochs to report, of `RULES`.
      metric: one of `METRICS`.
      num_seeds: seeds that a finished cell has.
      reference: a row that the others are compared with, seed by seed, by the first rule; '' for
        none.

    Returns:
      The text of a file.
    """
    digits = 2 if metric in PERCENT else 3
    names = list(map(rule_label, rules))
    header = ["data", "method", *names, "published", "difference"]
    header += [f"paired with '{reference}'"] * bool(reference) + ["seeds"]
    lines = [table_line(header), table_line(["---"] * len(header))]
    compared = {cell["column"]: cell for cell in cells if cell["row"] == reference}
    for cell in cells:
        paired = _paired(cell, compared.get(cell["column"]), rules[0], metric)
        spreads = [_spread_of(cell, rule, metric) for rule in rules]
        lines.append(
            table_line(
                [
                    cell["column"],
                    cell["row"] + _remark(cell),
                    *(_figure(value, digits) for value in spreads),
                    published_figure(cell["published"]),
                    _difference(spreads[0], cell["published"], digits),
                    *[_figure(paired, digits, sign="+")] * bool(reference),
                    f"{len(cell['summaries'])} of {num_seeds}",
                ]
            )
        )
    text = [
        f"# {title}",
        "",
        f"{describe(metric)}, mean ± standard deviation (n - 1) over seeds, at the epoch "
        f"that each rule reports. The difference is that of '{rules[0]}' from the published mean.",
        *[_PAIRED] * bool(reference),
        "",
        *lines,
        "",
    ]
    notes = [_note(cell, "", cell["note"]) for cell in cells]
    notes += [_note(cell, "", _collapsed(cell)) for cell in cells]
    notes += [_note(cell, " stopped", cell["error"]) for cell in cells]
    notes = list(filter(None, notes))
    text += [*notes, ""] if notes else []
    return "\n".join(text)


def rule_label(rule: str) -> str:
    """The name of a selection rule, with the labels that it looks at if it is an oracle."""
    return f"{rule} (oracle: {ORACLES[rule]})" if rule in ORACLES else rule


def describe(metric: str) -> str:
    """What a number of the metric is, with its unit."""
    if metric in PERCENT:
        return f"Test {metric} in percent"
    return "Absolute error of the estimated share of positives in U (0 is best)"


def _values(cell: Mapping[str, Any], rule: str, metric: str) -> list[float | None]:
    """Of the seeds of a cell, in percent where the metric is."""
    scale = 100 if metric in PERCENT else 1
    values = [by_rule(summary).get(rule, {}).get(metric) for summary in cell["summaries"]]
    return [None if x is None else scale * x for x in values]


def _spread_of(cell: Mapping[str, Any], rule: str, metric: str) -> Spread | None:
    return spread(_values(cell, rule, metric))


def _paired(
    cell: Mapping[str, Any], other: Mapping[str, Any] | None, rule: str, metric: str
) -> Spread | None:
    """Differences from another cell over the seeds that both have; None for the cell itself."""
    if other is None or other is cell:
        return None
    ours, theirs = (
        dict(zip((x["seed"] for x in own["summaries"]), _values(own, rule, metric), strict=True))
        for own in (cell, other)
    )
    pairs = [(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]
    return spread([a - b for a, b in pairs if a is not None and b is not None])


def _remark(cell: Mapping[str, Any]) -> str:
    """Marks methods that train on true labels."""
    return " (true labels)" if any(x["oracle"] for x in cell["summaries"]) else ""


def _note(cell: Mapping[str, Any], what: str, text: str) -> str:
    """A line below the table; '' without a text."""
    return f"- {cell['row']} on {cell['column']}{what}: {text}" if text else ""


def _collapsed(cell: Mapping[str, Any]) -> str:
    """How many seeds call every test example the same, and which did for epochs; '' if none."""
    count, total = sum(map(_predicts_one_class, cell["summaries"])), len(cell["summaries"])
    parts = []
    if count:
        parts.append(
            f"{count} of {total} seeds {'predicts' if count == 1 else 'predict'} one class"
        )
    for summary in cell["summaries"]:
        for period in summary.get("one_class", ()):  # summaries of older versions have none
            first, last = period["first_epoch"], period["last_epoch"]
            parts.append(f"seed {summary['seed']} predicts one class in epochs {first} to {last}")
    return "; ".join(parts)


def _predicts_one_class(summary: Mapping[str, Any]) -> bool:
    beginnings = ("every test example", "every label of every test example")
    return any(text.startswith(beginnings) for text in summary.get("warnings", ()))


def _figure(value: Spread | None, digits: int, *, sign: str = "") -> str:
    if value is None:
        return "-"
    std = f" ± {value.std:.{digits}f}" if value.std is not None else ""
    return f"{value.mean:{sign}.{digits}f}{std}"


def published_figure(published: Sequence[float | None] | None) -> str:
    """Mean and standard deviation that a paper states, '-' without them."""
    if published is None:
        return "-"
    mean, std = published
    return f"{mean:g}" + (f" ± {std:g}" if std is not None else "")


def _difference(
    value: Spread | None, published: tuple[float, float | None] | None, digits: int
) -> str:
    if value is None or published is None:
        return "-"
    return f"{value.mean - published[0]:+.{digits}f}"


def table_line(cells: Sequence[str]) -> str:
    """One line of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
