"""Calibration error, Brier score and coverage of intervals on real sets, from P and U alone.

    python benchmarks/calibration.py --data_dir=a9a=FOLDER,mushrooms=FOLDER,...

Half of a set, at most 10,000 rows, is the data: a share of its positives, drawn at random, is P and
the rest U (one-sample data). Four fifths of P and of U train a balanced logistic regression of P
against U, whose scores of the last fifths are calibrated or judged. Up to 20,000 other rows are
the truth; for calibration, positives among them are dropped at random until their share is that of
U. Fashion-MNIST: even classes are positive. The last two tables are simulations: scores of both
classes are unit Gaussians at +offset and -offset. One has intervals of pujax and of the ordinary
bootstrap, the other how often a prior is called too large for the scores. Prints Markdown tables.
"""

import argparse
import collections
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import special, stats
from sklearn import isotonic, linear_model
from sklearn import metrics as sklearn_metrics

from pujax import calibration, checks, metrics
from pujax.data import sources

TOP, BINS = 100, 15
FACTORS = (0.8, 1.0, 1.25)
# Offset, held-out P, held-out U, prior in U.
SIMULATIONS = ((2.0, 20, 500, 0.3), (1.0, 20, 500, 0.3), (2.0, 200, 2000, 0.05))
LARGEST = ((2.5, 10, 200, 0.2), (2.5, 50, 200, 0.2), (2.5, 10, 2000, 0.2), (1.0, 50, 200, 0.2))


class Split(NamedTuple):
    """Held-out scores of P and U, the labels of U, its prior, and scores and labels of the rest."""

    positive: np.ndarray
    unlabeled: np.ndarray
    labels: np.ndarray
    prior: float
    rest: np.ndarray
    rest_labels: np.ndarray


def read(source: str, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows of a set, float32 `[n, d]`, and which are positive."""
    data = sources.load(source, directory=folder)
    parts = [(data.train_inputs, data.train_labels), (data.test_inputs, data.test_labels)]
    parts = [(rows, labels) for rows, labels in parts if rows is not None]
    rows = np.concatenate([rows.reshape(len(rows), -1) for rows, _ in parts])
    labels = np.concatenate([labels for _, labels in parts])
    rows = rows / np.float32(255) if rows.dtype == np.uint8 else rows
    return rows, labels == 1 if len(data.class_names) == 2 else labels % 2 == 0


def draw(rows: np.ndarray, positive: np.ndarray, *, labeled: float, seed: int) -> Split:
    """Draws the data, trains on four fifths and scores the rest."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(rows))
    size = min(10_000, len(rows) // 2)
    data, rest = order[:size], order[size : size + 20_000]
    is_labeled = positive[data] & (rng.random(size) < labeled)
    p, u = data[is_labeled], data[~is_labeled]
    held_p, held_u = p[: len(p) // 5], u[: len(u) // 5]
    train = np.concatenate([p[len(held_p) :], u[len(held_u) :]])
    model = linear_model.LogisticRegression(class_weight="balanced", max_iter=100)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a limit of steps that is reached
        model.fit(rows[train], np.arange(len(train)) < len(p) - len(held_p))
    scores = model.decision_function
    return Split(
        scores(rows[held_p]),
        scores(rows[held_u]),
        positive[held_u],
        float(positive[u].mean()),
        scores(rows[rest]),
        positive[rest],
    )


def calibration_error(probabilities: np.ndarray, positive: np.ndarray) -> float:
    """Expected calibration error over bins of equal mass."""
    parts = np.array_split(np.argsort(probabilities, kind="stable"), BINS)
    return sum(abs(probabilities[i].sum() - positive[i].sum()) for i in parts) / len(positive)


def normalized(found: calibration.Calibration, split: Split, prior: float):
    """Probabilities whose log-odds are moved until their mean over U is the prior."""

    def moved(scores: np.ndarray, by: float) -> np.ndarray:
        odds = special.logit(calibration.probabilities(found, scores))
        return special.expit(odds + by)

    low, high = -20.0, 20.0
    while high - low > 1e-6:
        middle = (low + high) / 2
        is_low = moved(split.unlabeled, middle).mean() < prior
        low, high = (middle, high) if is_low else (low, middle)
    return moved(split.rest, low)


def sigmoid_of_p(split: Split, prior: float) -> np.ndarray:
    """Probabilities from the odds of an ordinary sigmoid fit of P against U, clipped to 1."""
    m, n = len(split.positive), len(split.unlabeled)
    scores = np.concatenate([split.positive, split.unlabeled])[:, None]
    model = linear_model.LogisticRegression(C=1e6).fit(scores, np.arange(m + n) < m)
    odds = np.exp(model.decision_function(split.rest[:, None]))
    return np.minimum(prior * n / m * odds, 1)


def calibrated(split: Split, rest: np.ndarray) -> dict:
    """Probabilities of the rows `rest` of the truth, by (way, factor of the prior)."""
    split = split._replace(rest=split.rest[rest])
    found = {}
    for factor in FACTORS:
        prior = min(factor * split.prior, 0.99)
        for kind in calibration.KINDS:
            fitted = calibration.fit(
                split.positive, split.unlabeled, prior=prior, setting="one_sample", kind=kind
            )
            found[kind, factor] = calibration.probabilities(fitted, split.rest)
            found[f"{kind}, mean forced", factor] = normalized(fitted, split, prior)
        found["sigmoid of P against U", factor] = sigmoid_of_p(split, prior)
    labels = split.labels.astype(float)
    exact = isotonic.IsotonicRegression(out_of_bounds="clip").fit(split.unlabeled, labels)
    found["true labels, isotonic", 1.0] = exact.predict(split.rest)
    sigmoid = linear_model.LogisticRegression(C=1e6).fit(split.unlabeled[:, None], labels)
    found["true labels, sigmoid", 1.0] = sigmoid.predict_proba(split.rest[:, None])[:, 1]
    return found


def rows_like_u(split: Split, seed: int) -> np.ndarray:
    """Rows of the truth whose share of positives is that of U."""
    share = split.rest_labels.mean()
    keep = split.prior * (1 - share) / ((1 - split.prior) * share)
    random = np.random.default_rng(seed).random(len(split.rest))
    return np.flatnonzero(~split.rest_labels | (random < keep))


def truths(split: Split) -> dict[str, float]:
    """What the estimates without negatives should hold, by the labels of the truth."""
    flagged, positive = split.rest > 0, split.rest_labels
    recall, false = flagged[positive].mean(), flagged[~positive].mean()
    highest = np.argsort(-split.unlabeled, kind="stable")[:TOP]
    return rates(recall, false, split.prior, positive.mean()) | {
        "auc": metrics.auc(split.rest, positive),
        f"precision_top_{TOP}": split.labels[highest].mean(),
    }


def rates(recall: float, false: float, prior: float, population: float) -> dict[str, float]:
    """Rates at the threshold from recall, false positive rate, and the priors."""
    share = population * recall + (1 - population) * false
    return {
        "recall": recall,
        "precision": prior * recall / (prior * recall + (1 - prior) * false),
        "lee_liu": recall**2 / share,
        "accuracy": population * recall + (1 - population) * (1 - false),
        "f1": 2 * population * recall / (population + share),
    }


def ordinary(p: np.ndarray, u: np.ndarray, prior: float, *, seed: int) -> dict:
    """90 % percentile intervals of the ordinary bootstrap for one-sample data."""
    rng, labeled = np.random.default_rng(seed), len(p) / (len(p) + len(u))
    population = labeled + (1 - labeled) * prior
    found = collections.defaultdict(list)
    for _ in range(300):
        a, b = rng.choice(p, len(p)), np.sort(rng.choice(u, len(u)))
        recall, flagged = (a > 0).mean(), (b > 0).mean()
        false = np.clip((flagged - prior * recall) / (1 - prior), 0, 1)
        for name, value in rates(recall, false, prior, population).items():
            found[name].append(value)
        below = np.searchsorted(b, a, "left") + np.searchsorted(b, a, "right")
        area = below.mean() / (2 * len(b))
        found["auc"].append(np.clip((area - prior / 2) / (1 - prior), 0, 1))
        cut = b[-TOP]
        found[f"precision_top_{TOP}"].append(min(prior * (a >= cut).mean() * len(u) / TOP, 1))
    return {name: np.quantile(values, [0.05, 0.95]) for name, values in found.items()}


def simulate(offset: float, m: int, n: int, prior: float, *, seed: int) -> Split:
    """Scores whose rates are known; the rest is left empty."""
    rng = np.random.default_rng(seed)
    labels = rng.random(n) < prior
    unlabeled = rng.normal(np.where(labels, offset, -offset))
    return Split(rng.normal(offset, size=m), unlabeled, labels, prior, np.empty(0), np.empty(0))


def simulated_truths(split: Split, offset: float) -> dict[str, float]:
    """The same for a simulation."""
    labeled = len(split.positive) / (len(split.positive) + len(split.unlabeled))
    population = labeled + (1 - labeled) * split.prior
    highest = np.argsort(-split.unlabeled)[:TOP]
    found = rates(stats.norm.cdf(offset), stats.norm.cdf(-offset), split.prior, population)
    return found | {
        "auc": stats.norm.cdf(offset * 2**0.5),
        f"precision_top_{TOP}": split.labels[highest].mean(),
    }


def held(split: Split, truth: dict[str, float], *, seed: int, **prior) -> tuple[dict, dict]:
    """Which truths lie in their intervals of pujax, and how wide these are.

    `prior` may give another prior than that of the split, or an interval of it.
    """
    estimates = metrics.unlabeled_estimates(
        split.positive,
        split.unlabeled,
        setting="one_sample",
        seed=seed,
        **{"prior": split.prior, **prior},
    )
    known = [x for x in estimates if x.name in truth]
    inside = {x.name: x.low <= truth[x.name] <= x.high for x in known}
    return inside, {x.name: x.high - x.low for x in known}


def table(head: list[str], lines: list[list[str]]) -> None:
    """Prints a Markdown table."""
    print("\n| " + " | ".join(head) + " |\n|" + "---|" * len(head))
    for line in lines:
        print("| " + " | ".join(line) + " |")


def show_calibration(sets: dict, flags: argparse.Namespace) -> None:
    """Prints calibration error, Brier score and AUC by way of calibration."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    sizes = {}
    for name, (rows, positive) in sets.items():
        for seed in range(flags.seeds):
            split = draw(rows, positive, labeled=flags.labeled, seed=seed)
            rest = rows_like_u(split, seed)
            truth = split.rest_labels[rest]
            sizes[name] = f"{name} ({len(split.positive)} P, {len(split.unlabeled)} U)"
            for way, chances in calibrated(split, rest).items():
                area = sklearn_metrics.roc_auc_score(truth, chances)
                brier = np.mean((chances - truth) ** 2)
                found[way][name].append([calibration_error(chances, truth), brier, area])
    print("\nheld out in the last split:", ", ".join(sizes.values()))
    for i, title in enumerate(("calibration error", "Brier score", "AUC")):
        lines = []
        for (way, factor), by_set in found.items():
            means = [np.mean(by_set[name], 0)[i] for name in sets]
            cells = [f"{x:.3f}" for x in [*means, np.mean(means)]]
            lines.append([way, "-" if way.startswith("true") else str(factor), *cells])
        print(f"\n{title}")
        table(["calibration", "prior times", *sets, "mean"], sorted(lines))


def stated(prior: float) -> dict[str, dict]:
    """Ways to state a prior: as it is, too high, and too high with an interval that holds it."""
    high = min(1.25 * prior, 0.9)
    return {
        "all sets": {},
        "prior times 1.25": {"prior": high},
        "[1, 1.5] times": {
            "prior": high,
            "prior_interval": (prior, min(1.5 * prior, 0.95)),
        },
    }


def show_coverage(sets: dict, flags: argparse.Namespace) -> None:
    """Prints how often intervals hold the truth on real sets."""
    found: dict = collections.defaultdict(lambda: collections.defaultdict(list))
    for name, (rows, positive) in sets.items():
        for seed in range(flags.splits):
            split = draw(rows, positive, labeled=flags.labeled, seed=seed)
            truth = truths(split)
            for way, prior in stated(split.prior).items():
                inside, widths = held(split, truth, seed=seed, **prior)
                for key in inside:
                    for line in (way, name)[: 1 if prior else 2]:
                        found[line][key].append((inside[key], widths[key]))
    lines = []
    for line in (*sets, *stated(0.5)):
        means = [np.mean(values, 0) for values in found[line].values()]
        lines.append([line, *(f"{inside:.2f} ({width:.2f})" for inside, width in means)])
    table(["set", *found["all sets"]], lines)


def show_simulations(flags: argparse.Namespace) -> None:
    """Prints how often intervals hold the truth in simulations."""
    lines = []
    for case in SIMULATIONS:
        found = {"pujax": collections.defaultdict(list), "ordinary": collections.defaultdict(list)}
        for seed in range(flags.simulations):
            split = simulate(*case, seed=seed)
            truth = simulated_truths(split, case[0])
            for key, value in held(split, truth, seed=seed)[0].items():
                found["pujax"][key].append(value)
            ends = ordinary(split.positive, split.unlabeled, split.prior, seed=seed)
            for key in found["pujax"]:
                found["ordinary"][key].append(ends[key][0] <= truth[key] <= ends[key][1])
        for way, inside in found.items():
            lines.append([*map(str, case), way, *(f"{np.mean(v):.2f}" for v in inside.values())])
    table(["offset", "P", "U", "prior", "bootstrap", *found["pujax"]], lines)


def show_largest_prior(flags: argparse.Namespace) -> None:
    """Prints how often scores are said to leave no room for a prior, by the factor it is off."""
    lines = []
    for case in LARGEST:
        splits = [simulate(*case, seed=seed) for seed in range(flags.simulations)]
        for level in (None, 0.95):
            bounds = np.array(
                [metrics.largest_prior(x.positive, x.unlabeled, level=level) for x in splits]
            )
            shares = [f"{np.mean(bounds < factor * case[3]):.3f}" for factor in (1, 1.5, 2)]
            lines.append([*map(str, case), "the sample" if level is None else f"{level}", *shares])
    head = ["offset", "P", "U", "prior", "bound of", "the prior", "1.5 times it", "twice"]
    table(head, lines)


def folders(text: str) -> dict[str, str]:
    """The folders of `--data_dir`, by the sets that they hold."""
    pairs = [part.split("=", 1) for part in text.split(",") if part]
    for pair in pairs:
        checks.require(len(pair) == 2, "--data_dir", text, "SOURCE=FOLDER, several with commas")
        checks.one_of("a set of --data_dir", pair[0], sources.NAMES)
        is_folder = os.path.isdir(os.path.expanduser(pair[1]))
        checks.require(is_folder, f"{pair[0]} of --data_dir", pair[1], "a folder")
    return dict(pairs)


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the flags and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", default="", help="SOURCE=FOLDER,... of the sets to run")
    parser.add_argument("--labeled", type=float, default=0.1, help="share of positives in P")
    parser.add_argument("--seeds", type=int, default=3, help="splits to calibrate on")
    parser.add_argument("--splits", type=int, default=20, help="splits to count coverage on")
    parser.add_argument("--simulations", type=int, default=600)
    flags = parser.parse_args(argv)
    try:
        checks.between("--labeled", flags.labeled, 0, 1, include="neither")
        for name in ("seeds", "splits", "simulations"):
            checks.whole_number(f"--{name}", getattr(flags, name), 0)
        sets = {name: read(name, folder) for name, folder in folders(flags.data_dir).items()}
    except ValueError as error:  # of a file that is missing or damaged, too
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2
    if sets and flags.seeds:
        show_calibration(sets, flags)
    if sets and flags.splits:
        print("\nshare of splits whose 90 % interval holds the truth (mean width)")
        show_coverage(sets, flags)
    if flags.simulations:
        print("\nthe same in simulations")
        show_simulations(flags)
        print("\nshare of simulations that are said to leave no room for a prior")
        show_largest_prior(flags)
    return 0


if __name__ == "__main__":
    sys.exit(main())
