"""Seconds of the class-prior estimators that are meant for many examples.

    python benchmarks/priors_speed.py --scores=1000000 --points=2000,20000,200000

Best bin and Elkan-Noto on as many scores of P and of U, with their default bootstrap intervals;
TIcE on points with `--features` features, a fifth of them labelled, with seconds per million
points, which stay level where the cost is linear. Every line is the median of `--repeats` calls.
"""

import argparse
import functools
import statistics
import sys
import time
from collections.abc import Sequence

import numpy as np

from pujax import checks
from pujax.priors import scores
from pujax.priors.tice import tice


def seconds(function, repeats: int) -> tuple[float, object]:
    """Median time of some calls, and what the last one returned."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        result = function()
        times.append(time.perf_counter() - start)
    return statistics.median(times), result


def gaussians(rng, size: int, features: int) -> tuple[np.ndarray, np.ndarray]:
    """Two classes 3 apart along two features; P is a fifth of the points, U 0.4 positive."""
    positives = rng.normal(size=(size // 5, features))
    unlabeled = rng.normal(size=(size - size // 5, features))
    positives[:, :2] += 3
    unlabeled[rng.random(len(unlabeled)) < 0.4, :2] += 3
    return positives, unlabeled


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the flags and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scores", type=int, default=1_000_000, help="scores of P, and of U")
    parser.add_argument("--points", default="2000,20000,200000", help="points for TIcE, P and U")
    parser.add_argument("--features", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    flags = parser.parse_args(argv)
    try:
        sizes = [int(text) if text.isdecimal() else text for text in flags.points.split(",")]
        for size in sizes:
            checks.whole_number("--points", size, 10)
        for name in ("scores", "features", "repeats"):
            checks.whole_number(f"--{name}", getattr(flags, name), 2 if name == "features" else 1)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2

    rng = np.random.default_rng(0)
    size = flags.scores
    x = rng.normal(1.5, 1, size), rng.normal(3 * (rng.random(size) < 0.4) - 1.5, 1)
    # The exact balanced probability, which is also P(labelled | x) for samples of equal size.
    data = [1 / (1.4 + 0.6 * np.exp(-3 * sample)) for sample in x]
    print(f"{size} scores of P and of U, true prior 0.4")
    print(f"{'method':<24}{'seconds':>9}{'prior':>9}{'low':>9}{'high':>9}")
    rows = {"best_bin, no interval": functools.partial(scores.best_bin, num_resamples=0)}
    rows["best_bin"] = scores.best_bin
    for name in scores.ELKAN_NOTO_ESTIMATORS:
        rows[f"elkan_noto {name}"] = functools.partial(scores.elkan_noto, estimator=name)
    for name, function in rows.items():
        took, result = seconds(functools.partial(function, *data), flags.repeats)
        print(f"{name:<24}{took:>9.2f}{result.value:>9.4f}{result.low:>9.4f}{result.high:>9.4f}")

    print(f"\nTIcE, {flags.features} features, true prior 0.4")
    print(f"{'points':<24}{'seconds':>9}{'prior':>9}{'seconds per million points':>30}")
    for size in sizes:
        data = gaussians(rng, size, flags.features)
        took, result = seconds(functools.partial(tice, *data), flags.repeats)
        print(f"{size:<24}{took:>9.2f}{result.value:>9.4f}{took / size * 1e6:>30.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
