"""Do intervals of probabilities hold the true shares, where the prior is estimated?

    python benchmarks/probability_interval.py --data_dir=FOLDER [--seeds=5] [--first_seed=200]
        [--sets=mushrooms;ijcnn1]

FOLDER is that of benchmarks/own_data.py, whose sets these are, and ijcnn1 (6,000 rows, 120 known);
of the rare ones 2 % are positive, of which about half are known.
A balanced logistic regression of P against U is trained on four fifths of both, which the prior is
estimated from, too; the last fifths calibrate it. New rows are cut into 15 bins of equal mass by
their score. Printed per set, as means over seeds: how often the share of positives of a bin is
within 0.03, or half of the share of all new rows if that is less, of the interval of its
probability, whether that of all new rows lies within the mean interval, and the mean width; for the
range of priors that a run uses, and for the estimate in use and the true prior, taken for known.
"""

import argparse
import os
import pathlib
import sys
from collections.abc import Sequence

import numpy as np
import own_data
from sklearn import linear_model

from pujax import calibration, checks
from pujax.data.pu_dataset import PriorChoice
from pujax.priors import consensus, estimates_of
from pujax.training import prior_dependence

PROBLEMS = own_data.PROBLEMS | {
    "ijcnn1": own_data.Problem("ijcnn1", "libsvm", 6000, 120),
    "mushrooms, rare": own_data.Problem("mushrooms", "libsvm", 4000, 40, 0.02),
    "ijcnn1, rare": own_data.Problem("ijcnn1", "libsvm", 6000, 60, 0.02),
}
SETS = (
    *("a9a, 1 %", "a9a, 2 %", "mushrooms", "phishing", "fashion_mnist", "ijcnn1"),
    *("mushrooms, rare", "ijcnn1, rare"),
)
STRENGTHS = {"fashion_mnist": 0.001}
"""`C` of the regression, where it is not 0.1."""
NEAR = 0.03
"""What a bin may be off, at most half of the share of positives among new rows."""
RANGES = ("range", "estimate", "true prior")
"""Of priors: what a run uses, and two that are taken for known."""


def measure(name: str, folder: pathlib.Path, *, seed: int) -> dict[str, tuple[float, ...]]:
    """For each range of priors: share of bins held, whether the mean is, and width."""
    drawn = own_data.draw(PROBLEMS[name], folder, seed=seed)
    rows, known = drawn["rows"], drawn["known"]
    mean, deviation = rows.mean(0), rows.std(0) + 1e-6
    rows, new = (rows - mean) / deviation, (drawn["new"] - mean) / deviation
    rng = np.random.default_rng(seed)
    (held_p, p), (held_u, u) = (
        np.split(rng.permutation(x), [len(x) // 5]) for x in map(np.flatnonzero, (known, ~known))
    )
    both = np.concatenate([p, u])
    strength = STRENGTHS.get(name, 0.1)
    model = linear_model.LogisticRegression(C=strength, max_iter=300, class_weight="balanced")
    model.fit(rows[both], known[both])
    found = estimates_of(rows[p], rows[u], num_resamples=100, key=seed)
    chosen = consensus(found)
    used, truth = chosen.estimate.value, drawn["positive"][~known].mean()
    choice = PriorChoice(chosen.method, chosen.agree, {k: tuple(x) for k, x in found.items()})
    priors = prior_dependence.possible_shares(choice, used=used)
    held = [model.decision_function(rows[x]) for x in (held_p, held_u)]
    scores, positive = model.decision_function(new), drawn["new_positive"]
    parts = np.array_split(np.argsort(scores, kind="stable"), own_data.BINS)
    result = {}
    cases = (used, priors), (used, (used, used)), (truth, (truth, truth))
    for title, (prior, ends) in zip(RANGES, cases, strict=True):
        share = float(known.mean())
        fitted = calibration.fit(*held, prior=prior, setting="one_sample", labeled_share=share)
        fitted_ends = calibration.fit_ends(
            *held, priors=ends, setting="one_sample", labeled_share=share
        )
        low, high = calibration.probability_interval(
            fitted, fitted_ends, scores, unlabeled_only=False
        )
        near = min(NEAR, float(positive.mean()) / 2)
        holds = [low[i].mean() - near <= positive[i].mean() <= high[i].mean() + near for i in parts]
        is_mean_held = low.mean() <= positive.mean() <= high.mean()
        result[title] = (np.mean(holds), is_mean_held, (high - low).mean())
    return result


def check(flags: argparse.Namespace) -> None:
    """Raises a ValueError for flags that cannot be, before anything is read."""
    checks.whole_number("--seeds", flags.seeds, 1)
    checks.whole_number("--first_seed", flags.first_seed, 0)
    own_data.chosen("--sets", flags.sets, SETS)
    is_there = os.path.isdir(flags.data_dir)
    accepted = "a folder that holds libsvm/ and fashion_mnist/"
    checks.require(is_there, "--data_dir", flags.data_dir, accepted)


def show(names: Sequence[str], folder: pathlib.Path, seeds: Sequence[int]) -> None:
    """Prints a line a cell, and the table of means."""
    means = {}
    for name in names:
        cells = []
        for seed in seeds:
            found = measure(name, folder, seed=seed)
            sys.stderr.write(f"{name}, seed {seed}: {found}\n")
            cells.append([x for numbers in found.values() for x in numbers])
        means[name] = np.mean(cells, axis=0)
    titles = [f"{title}: {x}" for title in RANGES for x in ("bins", "mean", "width")]
    print(f"| set | {' | '.join(titles)} |\n|{'---|' * (len(titles) + 1)}")
    for name, numbers in (means | {"all": np.mean(list(means.values()), axis=0)}).items():
        print(f"| {name} | {' | '.join(f'{x:.2f}' for x in numbers)} |")


def main(arguments: Sequence[str]) -> int:
    """Reads the flags and measures; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data_dir", required=True, help="holds libsvm/ and fashion_mnist/")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first_seed", type=int, default=200)
    parser.add_argument("--sets", default="", help="parts of names of sets, split by ;")
    flags = parser.parse_args(arguments)
    try:
        check(flags)
        names = own_data.chosen("--sets", flags.sets, SETS)
        seeds = range(flags.first_seed, flags.first_seed + flags.seeds)
        show(names, pathlib.Path(flags.data_dir), seeds)
    except ValueError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
