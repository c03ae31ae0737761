"""What rules without negatives lose to the best epoch, and what a wrong class prior adds to it.

    python benchmarks/selection_rules.py DIR [DIR ...]

Reads the finished runs below the folders, such as those of `configs/sweeps/defaults_hold.py`, and
prints per method and data set, in the mean of the seeds, by how many points of test accuracy the
epoch that each rule chooses is below the best one (oracle: test labels). The second table has the
rules that take a prior, with 0.5 to 2 times the true one, of one-sample data: recall follows from
the proxy accuracy and the share that is predicted positive, and from both the proxy accuracy at
another prior. Nothing is trained.
"""

import argparse
import collections
import json
import pathlib
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pujax.training.evaluation import model_selection

RULES = ("last", "nnpu_risk", "vpu_risk", "proxy_accuracy", "proxy_accuracy_vpu", "proxy_auc")
FACTORS = (0.5, 0.75, 1.0, 1.5, 2.0)
"""Of the true prior, at most 1."""
_PROXY, _MIXED = "proxy_accuracy", "proxy_accuracy_vpu"
Row = dict[str, Any]


def runs(folders: Sequence[str]) -> Iterator[tuple[Mapping[str, Any], list[Row]]]:
    """Summary and rows of every finished run with a part held out below some folders."""
    for folder in folders:
        for path in sorted(pathlib.Path(folder).rglob("summary.json")):
            summary = json.loads(path.read_text())
            lines = path.with_name("metrics.jsonl").read_text().splitlines()
            rows = [with_mixed(json.loads(line)) for line in lines]
            if rows[-1].get("val_vpu_risk") is not None:
                yield summary, rows


def with_mixed(row: Row) -> Row:
    """A row with the criterion that runs before 2026-11-28 did not write."""
    proxy, risk = row.get("val_proxy_accuracy"), row.get("val_vpu_risk")
    if proxy is None or risk is None:
        return row
    return row | {"val_proxy_accuracy_vpu": proxy - model_selection.VPU_WEIGHT * risk}


def at_prior(row: Row, prior: float, other: float) -> Row:
    """A row of one-sample data as it would be if another prior were taken for the true one.

    The proxy accuracy is `2 prior recall + share predicted negative`.
    """
    proxy = row.get("val_proxy_accuracy")
    if proxy is None:
        return row
    negative = 1 - row["val_predicted_positive"]
    recall = (proxy - negative) / (2 * prior)
    return with_mixed(row | {"val_proxy_accuracy": 2 * other * recall + negative})


def loss(rows: Sequence[Row], rule: str) -> float:
    """Points of test accuracy between the best epoch and the one that a rule chooses."""
    best = max(row["test_accuracy"] for row in rows if row.get("test_accuracy") is not None)
    chosen = model_selection.choose(rows, rule) or rows[-1]
    return 100 * (best - chosen["test_accuracy"])


def losses(summary: Mapping[str, Any], rows: Sequence[Row]) -> dict[str, float]:
    """The losses of one run: by rule, and by rule and factor of the prior (`'RULE x 0.5'`)."""
    found = {rule: loss(rows, rule) for rule in RULES}
    prior = summary["prior"]
    if summary["setting"] != "one_sample" or not prior:
        return found
    for factor in FACTORS:
        moved = [at_prior(row, prior, min(factor * prior, 1.0)) for row in rows]
        found |= {f"{rule} x {factor:g}": loss(moved, rule) for rule in (_PROXY, _MIXED)}
    return found


def table(cells: Mapping[tuple[str, str], list[dict[str, float]]], names: Sequence[str]) -> str:
    """Means of the losses as Markdown, a line per method and data set."""
    lines = [("method", "data", "seeds", *names), ("---",) * (3 + len(names))]
    for (method, data), found in sorted(cells.items()):
        means = [[x[name] for x in found if name in x] for name in names]
        shown = [f"{statistics.mean(x):.1f}" if x else "-" for x in means]
        lines.append((method, data, str(len(found)), *shown))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def main() -> None:
    """Reads the runs and prints both tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="DIR")
    cells = collections.defaultdict(list)
    for summary, rows in runs(parser.parse_args().folders):
        cells[summary["method"], summary["dataset"]].append(losses(summary, rows))
    if not cells:
        raise SystemExit("no finished run with a part held out is below these folders")
    print(table(cells, RULES), end="\n\n")
    print(table(cells, [f"{rule} x {x:g}" for rule in (_PROXY, _MIXED) for x in FACTORS]))


if __name__ == "__main__":
    main()
