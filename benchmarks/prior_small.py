"""Error of `data.prior=auto` by prior and number of labels, for several rules of choosing.

    python benchmarks/prior_small.py --sets=mushrooms,digits --data_dir=mushrooms=FOLDER --out=FILE

Draws labelled positives and, disjoint from them, 4,000 unlabeled rows (7,840 of a9a, 700 of the
digits, 1,500 of 20 Newsgroups) at each class prior, and estimates the prior as a run with a
perceptron does, by all of `priors.BOUNDS`. Digits, MNIST and Fashion-MNIST: even classes are
positive; overlap_2.0 and overlap_3.5 are Gaussians in ten dimensions that far apart, half_apart has
half of its positives where the negatives are, clusters is scikit-learn's make_classification. FILE
gets one JSON line per draw, and draws that it already holds are not repeated; the tables are
printed from it.
"""

import argparse
import json
import pathlib
import sys
import time
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from prior_estimators import SIMULATED, check_draws, classes_of, exit_status, listed, read

from pujax import checks, priors
from pujax.data import dataset, raw
from pujax.priors.consensus import is_informative
from pujax.training import config as config_lib
from pujax.training import prior_estimation, sharding

PRIORS = (0.5, 0.3, 0.1, 0.05, 0.02)
LABELED = (50, 160, 500)
NUM_UNLABELED = {"digits": 700, "newsgroups": 1500, "a9a": 7840}
MOST_UNLABELED = 4000
FIELDS = ("set", "prior", "labeled", "trial")
Estimates = Mapping[str, priors.PriorEstimate]


def draw(classes, name: str, prior: float, labeled: int, trial: int):
    """P and U, which share no row; None where the set is too small."""
    rng = np.random.default_rng([trial, round(1000 * prior), labeled])
    size = NUM_UNLABELED.get(name, MOST_UNLABELED)
    hidden = round(prior * size)
    if labeled + hidden > len(classes[0]) or size - hidden > len(classes[1]):
        return None
    positive = classes[0][rng.permutation(len(classes[0]))[: labeled + hidden]]
    negative = classes[1][rng.permutation(len(classes[1]))[: size - hidden]]
    return positive[:labeled], np.concatenate([positive[labeled:], negative])


def estimated(p: np.ndarray, u: np.ndarray, seed: int) -> priors.Consensus:
    """What a run finds before it trains."""
    rows = np.concatenate([p, u]).astype(np.float32)
    mean, std = raw.feature_statistics(rows)
    source = raw.of_rows(rows, np.arange(len(rows)) < len(p))
    data = dataset.build(
        raw.check(source._replace(mean=mean, std=std)),
        seed=seed,
        positive_classes=(1,),
        num_labeled=0,
        num_support=0,
        setting="one_sample",
        sampling="uniform",
        prior="auto",
    )
    config = config_lib.default_config("nnpu")
    config.seed, config.model.name = seed, "mlp"
    config.data.update({"num_labeled": 0, "prior": "auto", "sampling": "uniform"})
    config = config_lib.resolve(config)
    return prior_estimation.estimate_all(config, data, sharding.make_mesh())


def smallest(found: Estimates, by: Callable = lambda x: x.value, place: int = 0) -> float:
    """The value in some place of those in order."""
    ordered = sorted(filter(is_informative, found.values()), key=by)
    return ordered[min(place, len(ordered) - 1)].value


def where_apart(found: Estimates, **options) -> float:
    """best_bin where estimators agree, else the smallest."""
    result = priors.consensus(found)
    return result.estimate.value if result.agree else smallest(found, **options)


RULES: dict[str, Callable[[Estimates], float]] = {
    "best_bin (before)": lambda found: found["best_bin"].value,
    "rule": lambda found: priors.consensus(found).estimate.value,
    "smallest where they disagree": where_apart,
    "smallest always": smallest,
    "smallest upper end where they disagree": lambda x: where_apart(x, by=lambda y: y.high),
    "second smallest where they disagree": lambda x: where_apart(x, place=1),
    **{name: lambda found, name=name: found[name].value for name in priors.BOUNDS[1:]},
}


def show(results: dict) -> None:
    """Mean absolute and mean error of every rule by prior, by labels, and by set."""
    found = {
        key: {name: priors.PriorEstimate(*x) for name, x in line["estimates"].items()}
        for key, line in results.items()
    }
    apart = np.mean([not priors.consensus(x).agree for x in found.values()])
    seconds = np.median([line["seconds"] for line in results.values()])
    print(f"{len(found)} draws, estimators disagree in {apart:.0%}, median {seconds:.1f} s a draw")
    for title, place in (("prior in U", 1), ("labelled positives", 2), ("set", 0)):
        columns = sorted({key[place] for key in found})
        print(f"\nmean absolute error (mean error), by {title}")
        print("| rule | " + " | ".join(map(str, columns)) + " | all | lowest error |")
        print("|" + "---|" * (len(columns) + 3))
        for name, rule in RULES.items():
            # Draws without an estimate are those that an estimator cannot work on.
            needed = {name.partition(" ")[0]} & set(priors.BOUNDS)
            errors = {key: rule(x) - key[1] for key, x in found.items() if needed <= x.keys()}
            if not errors:
                print(f"| {name} |" + " - |" * (len(columns) + 2))
                continue
            cells = []
            for column in columns:
                of = [error for key, error in errors.items() if key[place] == column]
                cells.append(f"{np.mean(np.abs(of)):.3f} ({np.mean(of):+.3f})" if of else "-")
            every = np.array(list(errors.values()))
            cells.append(f"{np.abs(every).mean():.3f} ({every.mean():+.3f})")
            print(f"| {name} | " + " | ".join([*cells, f"{every.min():+.3f}"]) + " |")


def measure(flags: argparse.Namespace) -> None:
    """Makes the draws that are missing and prints the tables."""
    folders, shares = check_draws(flags)
    checks.whole_number("--first_trial", flags.first_trial, 0)
    accepted = "whole numbers from 1"
    numbers = listed("--labeled", flags.labeled, int, lambda x: x > 0, accepted)
    results, classes = read(flags.out, FIELDS, ("seconds", "estimates")), {}
    for trial in range(flags.first_trial, flags.first_trial + flags.trials):
        for prior in shares:
            for labeled in numbers:
                for name, folder in folders.items():
                    key = (name, prior, labeled, trial)
                    if key in results:
                        continue
                    if name not in classes:
                        classes[name] = classes_of(name, folder)
                    samples = draw(classes[name], name, prior, labeled, trial)
                    if samples is None:
                        continue
                    start = time.perf_counter()
                    found = estimated(*samples, seed=trial).estimates
                    line = dict(zip(FIELDS, key, strict=True))
                    line |= {"seconds": time.perf_counter() - start, "estimates": found}
                    with flags.out.open("a") as file:
                        file.write(json.dumps(line) + "\n")
                    results = read(flags.out, FIELDS, ("seconds", "estimates"))
    checks.require(bool(results), "--labeled", flags.labeled, "fewer, since no set has rows enough")
    show(results)


def main(arguments: Sequence[str]) -> int:
    """Reads the flags, makes the draws and prints; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sets", default=",".join(SIMULATED))
    parser.add_argument("--data_dir", default="", help="SOURCE=FOLDER,... of sets that are files")
    parser.add_argument("--priors", default=",".join(map(str, PRIORS)))
    parser.add_argument("--labeled", default=",".join(map(str, LABELED)))
    parser.add_argument("--first_trial", type=int, default=0)
    parser.add_argument("--trials", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    return exit_status(measure, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
