"""What rules without negatives lose to the best epoch, and what a wrong class prior adds to it.

    python benchmarks/selection_rules.py DIR [DIR ...] [--weight=0.3]

Reads the finished runs below the folders, such as those of `configs/sweeps/defaults_hold.py`, and
prints per method and data set, in the mean of the seeds, by how many points of test accuracy the
epoch that each rule chooses is below the best one (oracle: test labels). The second table has the
rules that take a prior, with 0.5 to 2 times the true one, of one-sample data: recall follows from
the proxy accuracy and the share that is predicted positive, and from both the proxy accuracy at
another prior. `--weight` is that of the VPU risk in `proxy_accuracy_vpu`; the first table ends with
the mean over its lines. Nothing is trained.
"""

import argparse
import collections
import json
import math
import os
import pathlib
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prior_estimators import exit_status

from pujax import checks
from pujax.training.evaluation import model_selection

RULES = ("last", "nnpu_risk", "vpu_risk", "proxy_accuracy", "proxy_accuracy_vpu", "proxy_auc")
FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Of the true prior, at most 1."""
_PROXY, _MIXED = "proxy_accuracy", "proxy_accuracy_vpu"
Row = dict[str, Any]


def runs(
    folders: Sequence[str], weight: float
) -> Iterator[tuple[Mapping[str, Any], str, list[Row]]]:
    """Summary, network and rows of every finished run below some folders, held out and tested.

    Raises:
      ValueError: a folder is missing, or no such run is below them.
    """
    found = False
    for folder in folders:
        checks.require(os.path.isdir(folder), "DIR", folder, "a folder with finished runs")
        for path in sorted(pathlib.Path(folder).rglob("metrics.jsonl")):
            summary = path.with_name("summary.json")
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            rows = [with_mixed(row, weight) for row in rows if row.get("test_accuracy") is not None]
            if summary.exists() and rows and rows[-1].get("val_vpu_risk") is not None:
                found = True
                config = json.loads(path.with_name("config.json").read_text())
                yield json.loads(summary.read_text()), config["model"]["name"], rows
    accepted = "folders with finished runs that held a part out and have a test set"
    checks.require(found, "DIR", ", ".join(folders), accepted)


def with_mixed(row: Row, weight: float) -> Row:
    """A row with the criterion of two parts, which runs before 2026-11-28 did not write."""
    proxy, risk = row.get("val_proxy_accuracy"), row.get("val_vpu_risk")
    if proxy is None or risk is None:
        return row
    mixed = model_selection.proxy_accuracy_vpu(proxy, risk, weight=weight)
    return row | {"val_proxy_accuracy_vpu": mixed}


def at_prior(row: Row, prior: float, other: float, weight: float) -> Row:
    """A row of one-sample data as it would be if another prior were taken for the true one.

    The proxy accuracy is `2 prior recall + share predicted negative`.
    """
    proxy = row.get("val_proxy_accuracy")
    if proxy is None:
        return row
    negative = 1 - row["val_predicted_positive"]
    recall = (proxy - negative) / (2 * prior)
    return with_mixed(row | {"val_proxy_accuracy": 2 * other * recall + negative}, weight)


def loss(rows: Sequence[Row], rule: str) -> float:
    """Points of test accuracy between the best epoch and the one that a rule chooses."""
    best = max(row["test_accuracy"] for row in rows)
    chosen = model_selection.choose(rows, rule) or rows[-1]
    return 100 * (best - chosen["test_accuracy"])


def losses(summary: Mapping[str, Any], rows: Sequence[Row], weight: float) -> dict[str, float]:
    """The losses of one run: by rule, and by rule and factor of the prior (`'RULE x 0.5'`)."""
    found = {rule: loss(rows, rule) for rule in RULES}
    prior = summary["prior"]
    if summary["setting"] != "one_sample" or not prior:
        return found
    for factor in FACTORS:
        moved = [at_prior(row, prior, min(factor * prior, 1.0), weight) for row in rows]
        found |= {f"{rule} x {factor:g}": loss(moved, rule) for rule in (_PROXY, _MIXED)}
    return found


def table(
    cells: Mapping[tuple[str, str, str], list[dict[str, float]]], names: Sequence[str]
) -> str:
    """Means of the losses as Markdown: a line per method, data set and network, and their mean."""
    lines = [("method", "data", "network", "seeds", *names), ("---",) * (4 + len(names))]
    columns: list[list[float]] = [[] for _ in names]
    for (method, data, network), found in sorted(cells.items()):
        shown = []
        for name, column in zip(names, columns, strict=True):
            values = [x[name] for x in found if name in x]
            column += [statistics.mean(values)] if values else []
            shown.append(_shown(values))
        lines.append((method, data, network, str(len(found)), *shown))
    lines.append(("mean", "", "", "", *map(_shown, columns)))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _shown(values: Sequence[float]) -> str:
    return f"{statistics.mean(values):.1f}" if values else "-"


def measure(flags: argparse.Namespace) -> None:
    """Reads the runs and prints both tables."""
    checks.require(0 <= flags.weight < math.inf, "--weight", flags.weight, "0 or more")
    cells = collections.defaultdict(list)
    for summary, network, rows in runs(flags.folders, flags.weight):
        place = summary["method"], summary["dataset"], network
        cells[place].append(losses(summary, rows, flags.weight))
    print(table(cells, RULES), end="\n\n")
    print(table(cells, [f"{rule} x {x:g}" for rule in (_PROXY, _MIXED) for x in FACTORS]))


def main(arguments: Sequence[str]) -> int:
    """Reads the flags; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="DIR")
    parser.add_argument("--weight", type=float, default=model_selection.VPU_WEIGHT)
    return exit_status(measure, parser.parse_args(arguments))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
