"""Error and time of every class-prior estimator on sets whose prior is known.

    python benchmarks/prior_estimators.py --data_dir=a9a=FOLDER,mnist=FOLDER --trials=3 --out=FILE

Draws 1,000 positives and, disjoint from them, 2,000 unlabeled examples at each class prior, as
PURL's experiments do (Sakai, Niu, Sugiyama 2021, section 5.2), or other sizes, and calls
`priors.estimate`, without intervals unless `--num_resamples` asks for them; 'consensus' is the rule
of `priors.consensus` with 50 resamples. Digits, MNIST and Fashion-MNIST: even classes are positive.
Sets that are no files need no `--data_dir` and are named by `--sets`: digits, and the simulated
ones: overlap_2.0 and overlap_3.5 are Gaussians in ten dimensions that far apart, half_apart has
half of its positives where the negatives are, clusters is scikit-learn's make_classification.
Settings of `out_of_bag` stand behind its name, as in
`--methods=out_of_bag,out_of_bag:loss=squared:hidden=50x50`. FILE gets one JSON line per estimate,
and estimates that it already holds are not repeated, so that other sizes, or intervals, want
another file; the tables are printed from it.
"""

import argparse
import json
import logging
import os
import pathlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from sklearn import datasets

from pujax import checks, priors
from pujax.data import sources

FILES = ("a9a", "mushrooms", "phishing", "ijcnn1", "mnist", "fashion_mnist", "newsgroups")
SIMULATED = ("overlap_2.0", "overlap_3.5", "half_apart", "clusters")
SETS = (*FILES, "digits", *SIMULATED)
CONSENSUS, OUT_OF_BAG = "consensus", "out_of_bag"
FIELDS = ("set", "prior", "method", "trial")


def by_class(source: str, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Training rows of the positive and of the negative class, float32 `[n, d]`."""
    data = sources.load(source, directory=folder)
    rows = data.train_inputs.reshape(len(data.train_inputs), -1).astype(np.float32)
    rows = rows / 255 if data.train_inputs.dtype == np.uint8 else rows
    positive = data.train_labels == 1 if len(data.class_names) == 2 else data.train_labels % 2 == 0
    return rows[positive], rows[~positive]


def simulated(name: str) -> tuple[np.ndarray, np.ndarray]:
    """12,000 rows of the positive and as many of the negative class, float32."""
    rng, size = np.random.default_rng(0), 12_000
    if name == "clusters":
        rows, labels = datasets.make_classification(
            2 * size,
            20,
            n_informative=6,
            n_redundant=4,
            n_clusters_per_class=4,
            class_sep=1.5,
            flip_y=0,
            random_state=1,
        )
        return rows[labels == 1].astype(np.float32), rows[labels == 0].astype(np.float32)
    positive, negative = rng.normal(size=(2, size, 10)).astype(np.float32)
    if name == "half_apart":
        positive[: size // 2, :3] += 3
    else:
        positive[:, 0] += float(name.removeprefix("overlap_"))
    return rng.permutation(positive), negative


def classes_of(source: str, folder: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows of the positive and of the negative class of a set, in a file or not."""
    return simulated(source) if source in SIMULATED else by_class(source, folder)


def draw(classes, prior: float, trial: int, sizes: tuple[int, int]):
    """P and U of these sizes, which share no row; the positives of U come first."""
    (m, n), hidden = sizes, round(prior * sizes[1])
    most = tuple(map(len, classes))
    if m + hidden > most[0] or n - hidden > most[1]:
        raise ValueError(
            f"{m} positives and {n} unlabeled, {hidden} of them positive, are asked for; accepted: "
            f"what {most[0]} positive and {most[1]} negative rows are enough for"
        )
    rng = np.random.default_rng([trial, round(100 * prior)])
    positive = classes[0][rng.permutation(len(classes[0]))[: m + hidden]]
    negative = classes[1][rng.permutation(len(classes[1]))[: n - hidden]]
    return positive[:m], np.concatenate([positive[m:], negative])


def estimate_of(method: str, samples, num_resamples: int, key: int) -> priors.PriorEstimate:
    """The estimate of one method, with an interval if there are resamples."""
    options: dict[str, Any] = {"num_resamples": num_resamples, "key": key}
    if method == CONSENSUS:
        found = priors.estimates_of(*samples, **options | {"num_resamples": 50})
        return priors.consensus(found).estimate
    _, *settings = method.split(":")
    if settings:
        return priors.out_of_bag(*samples, **options, **dict(map(_setting, settings)))
    return priors.estimate(*samples, method=method, **options)


def _setting(text: str) -> tuple[str, Any]:
    """Name and value of `name=value`; `hidden` is whole numbers with x between them."""
    name, _, value = text.partition("=")
    if name == "hidden" and value.replace("x", "").isdecimal() and all(value.split("x")):
        return name, tuple(map(int, value.split("x")))
    for kind in (int, float):
        try:
            return name, kind(value)
        except ValueError:
            continue
    return name, value


def read(path: pathlib.Path, fields: Sequence[str], numbers: Sequence[str]) -> dict[tuple, dict]:
    """The lines of a file of results by these fields, of which 'set' is the first.

    Raises:
      ValueError: for a line that lacks one of the fields or numbers.
    """
    try:
        lines = path.read_text().splitlines() if path.exists() else []
        rows = [dict(json.loads(line)) for line in lines]
        found = {tuple(row[field] for field in fields): row for row in rows}
        for row in rows:
            checks.one_of("set", row["set"], SETS)
            _ = [row[name] for name in numbers]
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is damaged ({error!r}); accepted: a file of results") from error
    return found


def listed(
    flag: str, text: str, kind: type, is_accepted: Callable[[Any], bool], accepted: str
) -> list:
    """The numbers of a flag, split by commas; a ValueError names it where one is not accepted."""
    try:
        found = list(map(kind, text.split(",")))
    except ValueError:
        found = []
    ok = bool(found) and all(map(is_accepted, found))
    checks.require(ok, flag, text, f"{accepted}, split by commas")
    return found


def check_draws(flags: argparse.Namespace) -> tuple[dict[str, str], list[float]]:
    """Checks the flags that say what is drawn and where the results go, before anything is read.

    Returns:
      The folder of every set, '' for those that are no files, and the class priors.

    Raises:
      ValueError: naming the flag.
    """
    folders = {}
    for part in filter(None, flags.data_dir.split(",")):
        name, _, folder = part.partition("=")
        accepted = f"SOURCE=FOLDER with a folder that exists and one of {', '.join(FILES)}"
        checks.require(name in FILES and os.path.isdir(folder), "--data_dir", part, accepted)
        folders[name] = folder
    names = flags.sets.split(",") if flags.sets else list(folders)
    checks.require(bool(names) or flags.out.is_file(), "--sets", "", "sets, or a --data_dir")
    for name in names:
        checks.one_of("--sets", name, SETS)
        accepted = f"{name}=FOLDER, too, since --sets names it"
        checks.require(name in folders or name not in FILES, "--data_dir", flags.data_dir, accepted)
    checks.whole_number("--trials", flags.trials, 1)
    is_file = flags.out.parent.is_dir() and not flags.out.is_dir()
    checks.require(is_file, "--out", str(flags.out), "a file in a folder that exists")
    accepted = "shares between 0 and 1, both excluded"
    shares = listed("--priors", flags.priors, float, lambda x: 0 < x < 1, accepted)
    return {name: folders.get(name, "") for name in names}, shares


def check_method(text: str) -> None:
    """Raises a ValueError for an estimator, or settings of `out_of_bag`, that there are not."""
    name, *settings = text.split(":")
    checks.one_of("--methods", name, (*priors.NAMES, CONSENSUS))
    checks.require(
        not settings or name == OUT_OF_BAG, "--methods", text, f"{name}, or settings of out_of_bag"
    )
    if not settings:
        return
    same = np.arange(4.0)  # of samples that are the same, settings are checked and no more
    logging.disable(logging.WARNING)
    try:
        priors.out_of_bag(same, same, num_resamples=0, key=0, **dict(map(_setting, settings)))
    except (TypeError, ValueError) as error:
        raise ValueError(f"--methods holds {text!r}: {error}") from error
    finally:
        logging.disable(logging.NOTSET)


def show(results: dict, names: list[str]) -> None:
    """Mean absolute error, mean error and seconds, of every method over sets and priors."""
    trials = len({key[3] for key in results})
    print(f"\nmean absolute error (mean error) over up to {trials} trials")
    columns = sorted({key[:2] for key in results}, key=lambda c: (SETS.index(c[0]), c[1]))
    print("| method | " + " | ".join(f"{s} {p}" for s, p in columns) + " | all | seconds |")
    print("|" + "---|" * (len(columns) + 3))
    for name in names:
        mine = {key: x for key, x in results.items() if key[2] == name}
        errors = {key: x["value"] - key[1] for key, x in mine.items()}
        cells = []
        for column in columns:
            of = [error for key, error in errors.items() if key[:2] == column]
            cells.append(f"{np.mean(np.abs(of)):.3f} ({np.mean(of):+.3f})" if of else "-")
        everywhere = np.array(list(errors.values()))
        cells.append(f"{np.abs(everywhere).mean():.3f} ({everywhere.mean():+.3f})" if mine else "-")
        cells.append(f"{np.median([x['seconds'] for x in mine.values()]):.1f}" if mine else "-")
        print(f"| {name} | " + " | ".join(cells) + " |")
    print("\nmedian seconds of an estimate")
    print("| method | " + " | ".join(f"{s} {p}" for s, p in columns) + " |")
    print("|" + "---|" * (len(columns) + 1))
    for name in names:
        cells = []
        for column in columns:
            of = [x["seconds"] for k, x in results.items() if k[:2] == column and k[2] == name]
            cells.append(f"{np.median(of):.1f}" if of else "-")
        print(f"| {name} | " + " | ".join(cells) + " |")
    for name in names:
        known = [(key[1], x) for key, x in results.items() if key[2] == name and "low" in x]
        if known:
            held = [x["low"] <= prior <= x["high"] for prior, x in known]
            above = [x["low"] > prior for prior, x in known]
            width = np.mean([x["high"] - x["low"] for _, x in known])
            print(
                f"\n{name}: {sum(held)} of {len(held)} intervals hold the prior, {sum(above)} are "
                f"above it; mean width {width:.3f}"
            )


def measure(flags: argparse.Namespace) -> None:
    """Makes the estimates that are missing and prints the tables."""
    folders, shares = check_draws(flags)
    names = flags.methods.split(",")
    for name in names:
        check_method(name)
    sizes = flags.num_positives, flags.num_unlabeled
    for flag, size in zip(("--num_positives", "--num_unlabeled"), sizes, strict=True):
        checks.whole_number(flag, size, 1)
    checks.whole_number("--num_resamples", flags.num_resamples, 0)
    results = read(flags.out, FIELDS, ("value", "seconds"))
    for trial in range(flags.trials):
        for source, folder in folders.items():
            classes = classes_of(source, folder)
            for prior in shares:
                samples = draw(classes, prior, trial, sizes)
                for name in names:
                    key = (source, prior, name, trial)
                    if key in results:
                        continue
                    start = time.perf_counter()
                    found = estimate_of(name, samples, flags.num_resamples, trial)
                    seconds = time.perf_counter() - start
                    line = dict(zip(FIELDS, key, strict=True))
                    ends = {} if np.isnan(found.low) else {"low": found.low, "high": found.high}
                    results[key] = line | {"value": found.value, "seconds": seconds} | ends
                    with flags.out.open("a") as file:
                        file.write(json.dumps(results[key]) + "\n")
    show(results, names)


def exit_status(measure: Callable[[argparse.Namespace], None], flags: argparse.Namespace) -> int:
    """0, or 2 after a line that says which flag, file or sample is not accepted."""
    try:
        measure(flags)
    except ValueError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2
    return 0


def main(arguments: Sequence[str]) -> int:
    """Reads the flags, makes the estimates and prints; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data_dir", default="", help="SOURCE=FOLDER,... of sets that are files")
    parser.add_argument("--sets", default="", help="the sets to run; '' are those of --data_dir")
    parser.add_argument("--methods", default=",".join(priors.NAMES))
    parser.add_argument("--priors", default="0.3,0.5,0.7")
    parser.add_argument("--num_positives", type=int, default=1000)
    parser.add_argument("--num_unlabeled", type=int, default=2000)
    parser.add_argument("--num_resamples", type=int, default=0, help="of each 90 %% interval")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    return exit_status(measure, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
