"""Do intervals of probabilities hold the true shares, where the prior is estimated?

    python benchmarks/probability_interval.py --data_dir=FOLDER [--seeds=5] [--first_seed=200]

FOLDER is that of benchmarks/own_data.py, whose sets these are, and ijcnn1 (6,000 rows, 120 known).
A balanced logistic regression of P against U is trained on four fifths of both, which the prior is
estimated from, too; the last fifths calibrate it. New rows are cut into 15 bins of equal mass by
their score. Printed per set, as means over seeds: how often the share of positives of a bin is
within 0.03 of the interval of its probability, whether that of all new rows lies within the mean
interval, and the mean width; for the range of priors that a run uses, and for the estimate in use
and the true prior, taken for known.
"""

import argparse
import pathlib
import sys

import numpy as np
from sklearn import linear_model

from benchmarks import own_data
from pujax import calibration
from pujax.data.pu_dataset import PriorChoice
from pujax.priors import consensus, estimates_of
from pujax.training import prior_dependence

PROBLEMS = own_data.PROBLEMS | {"ijcnn1": own_data.Problem("ijcnn1", "libsvm", 6000, 120)}
SETS = ("a9a, 1 %", "a9a, 2 %", "mushrooms", "phishing", "fashion_mnist", "ijcnn1")
STRENGTHS = {"fashion_mnist": 0.001}
"""`C` of the regression, where it is not 0.1."""
NEAR = 0.03


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
    for title, prior, ends in (
        ("range", used, priors),
        ("estimate", used, (used, used)),
        ("true prior", truth, (truth, truth)),
    ):
        share = float(known.mean())
        fitted = calibration.fit(*held, prior=prior, setting="one_sample", labeled_share=share)
        fitted_ends = calibration.fit_ends(
            *held, priors=ends, setting="one_sample", labeled_share=share
        )
        low, high = calibration.probability_interval(
            fitted, fitted_ends, scores, unlabeled_only=False
        )
        holds = [low[i].mean() - NEAR <= positive[i].mean() <= high[i].mean() + NEAR for i in parts]
        is_mean_held = low.mean() <= positive.mean() <= high.mean()
        result[title] = (np.mean(holds), is_mean_held, (high - low).mean())
    return result


def main() -> None:
    """Prints a line a cell, and the table of means."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data_dir", required=True, help="holds libsvm/ and fashion_mnist/")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first_seed", type=int, default=200)
    parser.add_argument("--sets", nargs="*", default=SETS, choices=SETS)
    flags = parser.parse_args()
    lines, everything = [], []
    for name in flags.sets:
        cells = []
        for seed in range(flags.first_seed, flags.first_seed + flags.seeds):
            found = measure(name, pathlib.Path(flags.data_dir), seed=seed)
            sys.stderr.write(f"{name}, seed {seed}: {found}\n")
            cells.append([x for numbers in found.values() for x in numbers])
        lines.append((name, np.mean(cells, axis=0)))
        everything.append(lines[-1][1])
    titles = [f"{title}: {x}" for title in found for x in ("bins", "mean", "width")]
    print(f"| set | {' | '.join(titles)} |\n|{'---|' * (len(titles) + 1)}")
    for name, numbers in [*lines, ("all", np.mean(everything, axis=0))]:
        print(f"| {name} | {' | '.join(f'{x:.2f}' for x in numbers)} |")


if __name__ == "__main__":
    main()
