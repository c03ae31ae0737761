"""Results of several seeds as a Markdown table beside published figures.

The command `pujax report` is in `pujax/reports/`, which writes a page about runs.
"""

import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pujax import significance
from pujax.training import own_results
from pujax.training.evaluation import model_selection

HELD_OUT = {name: heading for heading, name in own_results.COLUMNS.items()}
"""Metrics from the held-out part of a user's own rows, and their headings."""
_NO_PERCENT = "lee_liu"
TEST_METRICS = (
    *model_selection.BINARY_METRICS,
    *model_selection.MULTILABEL_METRICS,
    model_selection.PRIOR_ERROR,
)
"""Metrics that need true labels."""
METRICS = (*TEST_METRICS, *HELD_OUT)
PERCENT = tuple(x for x in METRICS if x not in (model_selection.PRIOR_ERROR, _NO_PERCENT))
WITH_BEST_EPOCH = ("accuracy", *model_selection.MULTILABEL_METRICS)
BEST_EPOCH = "oracle_best_epoch"
REPORTED = "reported"  # by the rule of each run, `run.selection`
RULES = (*model_selection.RULES, REPORTED, BEST_EPOCH)
FIRST_COLUMNS = ("data", "method")
# Rules that look at true labels say so wherever they are shown.
ORACLES = {
    "oracle": "true validation labels",
    "oracle_f1": "true validation labels",
    BEST_EPOCH: "test labels",
}

_PAIRED = (
    "'Paired' is the difference, seed by seed, from the row that is named there, and p that of "
    "Student's paired t test, after Holm's correction over all rows of the same data; '-' where "
    "fewer than two seeds are shared, or the difference is the same in all of them and not 0."
)
_SPLITS = (
    "Every seed holds out other rows of the same data: the deviation says how much a number "
    "depends on which rows these are and on how training begins, not how far it is from the truth. "
    "Intervals and assumptions are in `held_out.json` of each run."
)
_ONE_SPLIT = (
    "All seeds hold out the same rows (data.split_seed): the deviation, and what is paired by "
    "seed, say how much a number depends on how training begins, not on which rows these are, and "
    "not how far it is from the truth. Intervals and assumptions are in `held_out.json` of each "
    "run."
)
_OVERLAP = (
    "The rows that two seeds hold out overlap, and so do those that they train on: p is too small."
)
_BY_SIGN_ALONE = {"recall", "lee_liu", "flagged_share"}
"""Metrics of what has a score above 0, whatever decides."""
_DECIDED = (
    "Recall, Lee-Liu and the share called positive are those of a score above 0, not of "
    "run.decide={}."
)
_DESCRIBED = {
    "auc_pu": "AUC of P against U in percent, of the rows held out, where hidden positives count "
    "as negatives",
    "recall": "Recall in percent, of the labelled rows held out, and of all positives if those are "
    "a random sample of them (SCAR)",
    "flagged_share": "Flagged in U: the share of the unlabeled rows held out that is called "
    "positive, in percent",
    "lee_liu": "Lee-Liu: recall² / share called positive, of the rows held out",
    "precision_top_100": "Precision of the top 100 in percent, of the 100 unlabeled rows held out "
    "with the highest scores, if SCAR and the prior hold; unknown where fewer are held out",
    model_selection.PRIOR_ERROR: "Absolute error of the estimated share of positives in U (0 is "
    "best)",
}
_COSTS = (
    "Seconds are those of training one seed, a share of the whole where seeds train together; "
    "memory is the peak of the device; where the device keeps no count, that of the whole process "
    "up to then, which an earlier row may have set."
)


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
      By rule, 'reported' being the run's own: `epoch`, `is_oracle`, `accuracy`, `f1`, `auc`,
      `average_precision` (fractions), and `prior_error` of methods that estimate the class prior.
      Of a run on a user's own rows 'reported' also has `HELD_OUT`, None where a number cannot be
      known, and without a test set no rule has a test metric, and `oracle_best_epoch` is left out.
      `oracle_best_epoch` is chosen by the test accuracy and has no other metric; of multi-label
      problems every metric is the largest of any epoch, thresholds and weights included, each
      chosen for itself on the test set.
    """
    best = summary["oracle_best_epoch"]
    best_values = {"epoch": best["epoch"], "is_oracle": True}
    tested = {name.removeprefix("test_"): value for name, value in best.items()}
    best_values |= {name: tested.get(f"oracle_{name}", tested.get(name)) for name in tested}
    selections = summary["selections"]
    # A rule without a value at any epoch leaves the last one.
    reported = selections.get(summary["selection"]["rule"], selections[model_selection.LAST])
    found = {REPORTED: reported, **selections, BEST_EPOCH: best_values}
    if "held_out" not in summary:
        return found
    if not _has_test(summary):
        del found[BEST_EPOCH]
        found = {
            rule: {key: value for key, value in values.items() if key not in TEST_METRICS}
            for rule, values in found.items()
        }
    estimates = own_results.held_out(summary)
    found[REPORTED] = found[REPORTED] | {name: estimates.get(name) for name in HELD_OUT}
    return found


def _has_test(summary: Mapping[str, Any]) -> bool:
    """Whether a run, or a record of one, has a test set; older ones all have."""
    return (summary.get("counts") or {}).get("test") != 0


def render(
    title: str,
    cells: Sequence[Mapping[str, Any]],
    *,
    rules: Sequence[str],
    metric: str = "accuracy",
    num_seeds: int,
    reference: str = "",
    also: Sequence[str] = (),
    published_rule: str = "",
    costs: bool = False,
) -> str:
    """A Markdown table: one line per cell, one column per rule.

    Args:
      title: heading.
      cells: dicts with `row`, `column`, `published` (mean and standard deviation, in percent where
        the metric is, or None), `note`, `summaries` (of the seeds that are finished, or the
        records of a sweep's `results.json`), `error` ('' if none), and perhaps `one_split`, whether
        all seeds hold out the same rows, and `decide`, which rows the runs call positive.
      rules: which epochs to report, of `RULES`.
      metric: one of `METRICS`.
      num_seeds: seeds that a finished cell has.
      reference: a row that the others are compared with, seed by seed, by the first rule; '' for
        none.
      also: other metrics, beside `metric` under every rule. Beside one of `HELD_OUT`, which no
        paper states, there is no column for published figures that no cell has.
      published_rule: the rule that published figures are compared with, as they were chosen; ''
        for the first.
      costs: whether seconds and peak memory of a seed are shown.

    Returns:
      The text of a file.
    """
    compared_rule = published_rule or rules[0]
    shown = [(rule, name) for rule in rules for name in (metric, *also)]
    header = list(FIRST_COLUMNS)
    header += [rule_label(rule) + (f": {label(name)}" if also else "") for rule, name in shown]
    is_own = any(name in HELD_OUT for _, name in shown)
    has_published = not is_own or any(cell["published"] is not None for cell in cells)
    header += ["published", "difference"] * has_published
    header += [f"paired with '{reference}'", "p (Holm)"] * bool(reference)
    header += ["seconds", "peak MB"] * costs + ["seeds"]
    lines = [table_line(header), table_line(["---"] * len(header))]
    paired, p_values = _all_paired(cells, reference, rules[0], metric)
    for i, cell in enumerate(cells):
        ours = _spread_of(cell, compared_rule, metric)
        count = len(cell["summaries"])
        figures = [_figure(_spread_of(cell, *one), _digits(one[1]), of=count) for one in shown]
        line = [cell["column"], cell["row"] + _remark(cell, rules), *figures]
        if has_published:
            line += [published_figure(cell["published"])]
            line += [_difference(ours, cell["published"], _digits(metric))]
        difference = _figure(paired[i], _digits(metric), sign="+", of=count)
        line += [difference, _p_value(p_values[i])] * bool(reference)
        line += _costs_of(cell) * costs + [f"{count} of {num_seeds}"]
        lines.append(table_line(line))
    about = (
        f"{'. '.join(describe(name) for name in (metric, *also))}. Mean ± standard deviation "
        "(n - 1) over seeds, at the epoch that each rule reports."
    )
    if has_published:
        about += f" The difference is that of '{compared_rule}' from the published mean."
    one_split = all(cell.get("one_split", False) for cell in cells)
    named = (metric, *also)
    decides = dict.fromkeys(
        x
        for cell in cells
        if (x := cell.get("decide", own_results.BY_METHOD)) != own_results.BY_METHOD
    )
    text = [
        f"# {title}",
        "",
        about,
        *[_ONE_SPLIT if one_split else _SPLITS] * is_own,
        *[_PAIRED] * bool(reference),
        *[_OVERLAP] * (is_own and not one_split and bool(reference)),
        *[_DECIDED.format(", ".join(decides))]
        * (bool(decides) and not _BY_SIGN_ALONE.isdisjoint(named)),
        *[_COSTS] * costs,
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


def oracle_of(rule: str, summaries: Sequence[Mapping[str, Any]]) -> str:
    """Which true labels a rule saw, '' if none; of 'reported' those that the runs' own rules saw.

    Args:
      rule: of `RULES`.
      summaries: of the runs, or records of them.
    """
    own = [(x.get("selection") or {}).get("rule") for x in summaries]
    seen = [ORACLES[x] for x in (own if rule == REPORTED else [rule]) if x in ORACLES]
    return seen[0] if seen else ""


def label(metric: str) -> str:
    """What a metric is called in headings."""
    return HELD_OUT.get(metric) or model_selection.TITLES[metric]


def describe(metric: str) -> str:
    """What a number of the metric is, with its unit."""
    return _DESCRIBED.get(metric) or f"Test {model_selection.TITLES[metric]} in percent"


def values_of(cell: Mapping[str, Any], rule: str, metric: str) -> list[float | None]:
    """A metric of the seeds of a cell, in percent where it is; None where it is not known.

    Args:
      cell: as in `render`.
      rule: of `RULES`.
      metric: of `METRICS`.
    """
    scale = 100 if metric in PERCENT else 1
    tested = [x["metrics"] if "metrics" in x else by_rule(x) for x in cell["summaries"]]
    values = [by_name.get(rule, {}).get(metric) for by_name in tested]
    return [None if x is None else scale * x for x in values]


def _spread_of(cell: Mapping[str, Any], rule: str, metric: str) -> Spread | None:
    return spread(values_of(cell, rule, metric))


def paired_differences(
    cells: Sequence[Mapping[str, Any]], reference: str, rule: str, metric: str
) -> list[list[float]]:
    """Differences of every cell from the reference of its column, one for each seed of both.

    Args:
      cells: as in `render`.
      reference: its row; '' for none.
      rule: of `RULES`.
      metric: of `METRICS`; in percent where the metric is.

    Returns:
      One list per cell, empty for the reference itself and where there is none.
    """
    others = {cell["column"]: cell for cell in cells if reference and cell["row"] == reference}
    return [_paired(cell, others.get(cell["column"]), rule, metric) for cell in cells]


def _all_paired(
    cells: Sequence[Mapping[str, Any]], reference: str, rule: str, metric: str
) -> tuple[list[Spread | None], list[float]]:
    """Differences of every cell from the reference of its column, and their corrected p-values."""
    found = paired_differences(cells, reference, rule, metric)
    p_values = np.array([significance.paired_p_value(values) for values in found])
    columns = np.array([cell["column"] for cell in cells])
    for column in dict.fromkeys(columns):
        p_values[columns == column] = significance.holm(p_values[columns == column])
    return list(map(spread, found)), p_values.tolist()


def _paired(
    cell: Mapping[str, Any], other: Mapping[str, Any] | None, rule: str, metric: str
) -> list[float]:
    """Differences from another cell over the seeds that both have; none for the cell itself."""
    if other is None or other is cell:
        return []
    ours, theirs = (
        dict(zip((x["seed"] for x in own["summaries"]), values_of(own, rule, metric), strict=True))
        for own in (cell, other)
    )
    pairs = [(ours[seed], theirs[seed]) for seed in ours.keys() & theirs.keys()]
    return [a - b for a, b in pairs if a is not None and b is not None]


def _costs_of(cell: Mapping[str, Any]) -> list[str]:
    """Mean seconds of a seed and the largest peak of memory in MB, '-' where unknown."""
    seconds, peaks = [], []
    for summary in cell["summaries"]:
        if summary.get("seconds") is not None:
            seconds.append(summary["seconds"])
        peaks.append(summary.get("peak_memory_bytes") or 0)
    peak = max(peaks, default=0)
    return [
        f"{statistics.fmean(seconds):.1f}" if seconds else "-",
        f"{peak / 1e6:,.0f}" if peak else "-",
    ]


def _remark(cell: Mapping[str, Any], rules: Sequence[str]) -> str:
    """Marks methods that train on true labels, and runs that choose what they report by them."""
    remark = " (true labels)" if any(x["oracle"] for x in cell["summaries"]) else ""
    saw = oracle_of(REPORTED, cell["summaries"]) if REPORTED in rules else ""
    return remark + (f" ({REPORTED} by an oracle: {saw})" if saw else "")


def _note(cell: Mapping[str, Any], what: str, text: str) -> str:
    """A line below the table; '' without a text."""
    return f"- {cell['row']} on {cell['column']}{what}: {text}" if text else ""


def _collapsed(cell: Mapping[str, Any]) -> str:
    """How many seeds call every test example the same, and which did for epochs; '' if none.

    Without a test set it is every training example.
    """
    count, total = sum(map(_predicts_one_class, cell["summaries"])), len(cell["summaries"])
    parts, end = [], ""
    if count:
        parts.append(
            f"{count} of {total} seeds {'predicts' if count == 1 else 'predict'} one class"
        )
    for summary in cell["summaries"]:
        for period in summary.get("one_class") or ():  # older versions, several labels: none
            first, last = period["first_epoch"], period["last_epoch"]
            parts.append(f"seed {summary['seed']} predicts one class in epochs {first} to {last}")
            end = " (epochs are counted from 0)"
    return "; ".join(parts) + end


def _predicts_one_class(summary: Mapping[str, Any]) -> bool:
    sides = summary.get("predicts_one_class") or {}  # older versions: none
    return sides.get("test" if _has_test(summary) else "training") is not None


def _figure(value: Spread | None, digits: int, *, sign: str = "", of: int = 0) -> str:
    """A mean and its deviation; of fewer seeds than `of`, if that is not 0, with their number."""
    if value is None:
        return "-"
    std = f" ± {value.std:.{digits}f}" if value.std is not None else ""
    count = f" ({value.count} of {of})" if value.count < of else ""
    return f"{value.mean:{sign}z.{digits}f}{std}{count}"


def _p_value(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:.3f}" if value >= 0.001 else "< 0.001"


def _digits(metric: str) -> int:
    """Decimals that a metric is shown with."""
    return 2 if metric in PERCENT else 3


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
