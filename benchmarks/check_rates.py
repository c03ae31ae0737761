"""How often `python -m pujax.check` warns: of clean draws of real sets, and of planted faults.

    python benchmarks/check_rates.py --data_dir=FOLDER [--draws=10] [--output=cells.jsonl]

A draw takes rows of a real set and labels some of its positives. 'clean' labels at random; the
faults are those of `EXPECTED`. The table counts the draws in which the check that a fault is meant
for warned (and named the column, where one was planted), and those in which any other did, by name;
estimates of the prior and the overlap are looked at in clean draws only.
"""

import argparse
import collections
import json
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pujax import audit, checks
from pujax.audit import duplicates, label_counts, labeling, leaks
from pujax.console import render_table
from pujax.data import sources
from pujax.data.splits import labeling_mechanisms, oracle_posterior

SETS = {
    "mushrooms": ("libsvm", 4000, 200),
    "a9a": ("libsvm", 6000, 200),
    "phishing": ("libsvm", 4000, 200),
    "digits": ("", 1797, 150),
    "fashion_mnist": ("fashion_mnist", 3000, 200),
}
"""Folder, rows and labels."""
_MOST = 20_000
EXPECTED = {
    "clean": "",
    "by branch": "labeling",
    "by column": "labeling",
    "easy": "labeling",
    "hard": "labeling",
    "leak": "leak",
    "half leak": "leak",
    "half leak twice": "leak",
    "copies": "duplicates",
    "3 labels": "label_counts",
}
"""The finding that a fault is meant to cause."""


class Rows(NamedTuple):
    """A real set.

    Attributes:
      features: float32 `[n, d]`.
      positive: bool `[n]`.
    """

    features: np.ndarray
    positive: np.ndarray


def load(name: str, folder: pathlib.Path) -> Rows:
    """Reads one of `SETS`; of ten classes the even ones are positive."""
    inside = folder / SETS[name][0]
    data = sources.load(name, directory=str(inside if inside.is_dir() else folder))
    labels = data.train_labels[:_MOST]
    rows = data.train_inputs[:_MOST].reshape(len(labels), -1).astype(np.float32)
    return Rows(rows, labels == 1 if len(data.class_names) == 2 else labels % 2 == 0)


def draw(rows: Rows, num_rows: int, seed: int) -> Rows:
    """Some of the rows."""
    order = np.random.default_rng([seed, 10]).permutation(len(rows.positive))[:num_rows]
    return Rows(rows.features[order], rows.positive[order])


def plant(rows: Rows, fault: str, num_labeled: int, seed: int) -> tuple[audit.Problem, str]:
    """Labels positives with a fault of `EXPECTED`.

    'by branch': a further column of 0 and 1, drawn at random, is the branch that a row is of, and
    positives of one branch are labelled 20 times as often. 'by column': so are positives on the
    more frequent side of a column, drawn among those with at least a quarter of the positives on
    either side.
    'easy' and 'hard': propensities of the mechanisms 'gap' with power 10 and 'boundary'. 'leak': a
    further column, normal with deviation 1, is 6 higher for labelled rows; 'half leak': only for
    half of them; 'half leak twice': there are two such columns, for the same half. 'copies': a
    third of the labelled rows occurs in U, too. '3 labels': three.

    Returns:
      The problem, and what the column is called that was planted, '' where there is none.
    """
    rng = np.random.default_rng([seed, 11])
    features, positive = rows
    candidates = np.flatnonzero(positive)
    chances, column = np.ones(len(candidates)), ""
    if fault == "by branch":
        branch = rng.random(len(positive)) < 0.5
        features = np.column_stack([features, branch]).astype(np.float32)
        chances, column = np.where(branch[candidates], 20.0, 1.0), str(features.shape[1])
    elif fault == "by column":
        above = features[candidates] > np.median(features[candidates], axis=0)
        # A column of 0 and 1 that is mostly 1 has nothing above its median.
        binary = features[candidates] > 0
        above = np.where(above.any(0), above, binary)
        share = above.mean(0)
        chosen = rng.choice(np.flatnonzero((share >= 0.25) & (share <= 0.75)))
        side = above[:, chosen] if share[chosen] > 0.5 else ~above[:, chosen]
        chances, column = np.where(side, 20.0, 1.0), str(chosen + 1)
    elif fault in ("easy", "hard"):
        oracle = oracle_posterior.fit(features, positive.astype(int), seed=seed)
        name, power = ("gap", 10.0) if fault == "easy" else ("boundary", 1.0)
        chances = labeling_mechanisms.propensity(oracle[candidates], name, power=power)
    count = 3 if fault == "3 labels" else min(num_labeled, len(candidates) // 2)
    chosen_rows = rng.choice(candidates, count, replace=False, p=chances / chances.sum())
    labeled = np.zeros(len(positive), bool)
    labeled[chosen_rows] = True
    names = [str(i + 1) for i in range(features.shape[1])]
    if fault in ("leak", "half leak", "half leak twice"):
        told = labeled & (rng.random(len(labeled)) < (1 if fault == "leak" else 0.5))
        leaking = rng.normal(size=len(labeled)) + 6.0 * told
        features, column = np.column_stack([features, leaking]), "planted"
        names.append(column)
        if fault == "half leak twice":
            features = np.column_stack([features, rng.normal(size=len(labeled)) + 6.0 * told])
            names.append("planted, too")
    if fault == "copies":
        copied = chosen_rows[: count // 3]
        features = np.concatenate([features, features[copied]])
        labeled = np.concatenate([labeled, np.zeros(len(copied), bool)])
    return audit.problem(features, labeled, names), column


def main(argv: Sequence[str] | None = None) -> int:
    """Draws, checks and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", type=pathlib.Path, required=True)
    parser.add_argument("--draws", type=int, default=10)
    parser.add_argument("--first_seed", type=int, default=0)
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--faults", default=",".join(EXPECTED))
    parser.add_argument("--output", type=pathlib.Path, help="one line per draw")
    arguments = parser.parse_args(argv)
    try:
        for flag, known in (("sets", SETS), ("faults", EXPECTED)):
            for text in getattr(arguments, flag).split(","):
                checks.one_of(f"--{flag}", text, known)
        checks.whole_number("--draws", arguments.draws, 1)
        checks.whole_number("--first_seed", arguments.first_seed, 0)
        folder = arguments.data_dir.expanduser()
        checks.require(folder.is_dir(), "--data_dir", str(folder), "a folder")
        loaded = {name: load(name, folder) for name in arguments.sets.split(",")}
    except ValueError as error:  # of a file that is missing or damaged, too
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2
    table = []
    for name, rows in loaded.items():
        _, num_rows, num_labeled = SETS[name]
        for fault in arguments.faults.split(","):
            hits, others, seconds = 0, collections.Counter(), 0.0
            for seed in range(arguments.first_seed, arguments.first_seed + arguments.draws):
                problem, column = plant(draw(rows, num_rows, seed), fault, num_labeled, seed)
                start = time.process_time()
                findings, prior = check(problem, seed, whole=fault == "clean")
                seconds += time.process_time() - start
                severe = [x for x in findings if x.severity != "note"]
                right = [x for x in severe if x.name == EXPECTED[fault] and _names(x, column)]
                hits += bool(right)
                others.update({x.name for x in severe if x not in right})
                if arguments.output:
                    with open(arguments.output, "a") as file:
                        line = {"set": name, "fault": fault, "seed": seed, "prior": prior}
                        line["found"] = [[x.name, x.severity, x.title] for x in severe]
                        file.write(json.dumps(line) + os.linesep)
            table.append(
                {
                    "set": name,
                    "fault": fault,
                    "found": "" if fault == "clean" else f"{hits} of {arguments.draws}",
                    "other warnings": ", ".join(f"{k} {v}" for k, v in sorted(others.items())),
                    "CPU s": f"{seconds / arguments.draws:.1f}",
                }
            )
    print(render_table(table, ("set", "fault", "found", "other warnings", "CPU s")))
    return 0


def check(
    problem: audit.Problem, seed: int, *, whole: bool
) -> tuple[list[audit.Finding], float | None]:
    """All findings, or those of the checks that a planted fault is meant for, and the prior."""
    if whole:
        findings, _, prior = audit.check(problem, seed=seed)
        return findings, prior
    parts = (leaks, labeling)
    found = [*label_counts.check(problem.labeled), *duplicates.check(problem)]
    return [*found, *(x for part in parts for x in part.check(problem, seed=seed))], None


def _names(finding: audit.Finding, column: str) -> bool:
    """Whether a finding names a column, which every finding does where there is none."""
    named = [x.get("column", x.get("name")) for x in finding.numbers.get("columns", ())]
    return not column or column in named


if __name__ == "__main__":
    sys.exit(main())
