"""How the error of PU-SMI falls with the number of positive and of unlabeled examples.

    python benchmarks/pu_smi_convergence.py --data_dir=FOLDER --sets=a9a,mushrooms,phishing,ijcnn1

The study of Sakai, Niu, Sugiyama 2021, section 5.1, on the LIBSVM sets at class prior 0.5: one of
n_P and n_U goes from 10 to 200 while the other is held at `--fixed`. The error is against the
supervised estimate from `--reference` examples of each class. Sets are read from FOLDER, features
as they are. Prints a table of mean squared errors with standard errors over trials; `--figure`
draws it.
"""

import argparse
import os
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from pujax import checks, mutual_info
from pujax.data import sources

SETS = ("a9a", "mushrooms", "phishing", "ijcnn1")
SIZES = (10, 20, 50, 100, 200)
PRIOR = 0.5


@jax.jit
def _estimate(key, positives, unlabeled):
    return mutual_info.pu_smi(positives, unlabeled, prior=PRIOR, key=key, num_centers=100).value


def reference(by_class, size: int, rng: np.random.Generator) -> float:
    """The supervised estimate from many examples of either class."""
    p, n = (rows[rng.permutation(len(rows))[:size]] for rows in by_class)
    key = jax.random.key(0)
    return float(mutual_info.pn_smi(jnp.array(p), jnp.array(n), prior=PRIOR, key=key).value)


def squared_errors(by_class, truth, n_p, n_u, trials, rng) -> np.ndarray:
    """Squared errors of the estimate on fresh samples, `[trials]`."""
    positive, negative = by_class
    errors = []
    for trial in range(trials):
        half = rng.binomial(n_u, PRIOR)
        p_and_u = positive[rng.permutation(len(positive))[: n_p + half]]
        rest = negative[rng.permutation(len(negative))[: n_u - half]]
        unlabeled = np.concatenate([p_and_u[n_p:], rest])
        key = jax.random.key(trial)
        estimate = _estimate(key, jnp.array(p_and_u[:n_p]), jnp.array(unlabeled))
        errors.append((float(estimate) - truth) ** 2)
    return np.array(errors)


def draw(results: dict, path: str) -> None:
    """One panel per sweep, one line per set, both axes logarithmic."""
    figure, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
    for axis, name in zip(axes, ("n_P", "n_U"), strict=True):
        for source, sweeps in results.items():
            means = [np.mean(e) for e in sweeps[name]]
            bars = [np.std(e, ddof=1) / np.sqrt(len(e)) for e in sweeps[name]]
            axis.errorbar(SIZES, means, bars, marker="o", markersize=3, capsize=2, label=source)
        axis.set(xscale="log", yscale="log", xlabel=name.replace("_", " "))
    axes[0].set_ylabel("mean squared error of PU-SMI")
    axes[0].legend(frameon=False)
    figure.savefig(path, dpi=150)


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the flags, prints the table and draws the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data_dir", required=True, help="folder of the LIBSVM files")
    parser.add_argument("--sets", default=",".join(SETS))
    parser.add_argument("--trials", type=int, default=100)
    parser.add_argument("--fixed", type=int, default=200, help="size of the sample held fixed")
    parser.add_argument("--reference", type=int, default=2000, help="examples of each class")
    parser.add_argument("--figure", default="", help="PNG to draw; none if empty")
    flags = parser.parse_args(argv)
    try:
        for name in flags.sets.split(","):
            checks.one_of("--sets", name, SETS)
        is_folder = os.path.isdir(os.path.expanduser(flags.data_dir))
        checks.require(is_folder, "--data_dir", flags.data_dir, "a folder")
        # One has no spread, and a sample of both classes has at least two rows.
        for name, low in (("trials", 2), ("fixed", 2), ("reference", 2)):
            checks.whole_number(f"--{name}", getattr(flags, name), low)
        read = {
            name: sources.load(name, directory=flags.data_dir) for name in flags.sets.split(",")
        }
    except ValueError as error:  # of a file that is missing or damaged, too
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2

    results = {}
    print(f"{'set':<11}{'varied':<8}" + "".join(f"{size:>20}" for size in SIZES))
    for source, data in read.items():
        rng = np.random.default_rng(0)
        by_class = [data.train_inputs[data.train_labels == c].astype(np.float32) for c in (1, 0)]
        truth = reference(by_class, flags.reference, rng)
        sweeps = {
            name: [
                squared_errors(by_class, truth, *pair, flags.trials, rng)
                for pair in ((s, flags.fixed) if name == "n_P" else (flags.fixed, s) for s in SIZES)
            ]
            for name in ("n_P", "n_U")
        }
        results[source] = sweeps
        for name, errors in sweeps.items():
            cells = (f"{e.mean():.5f} ± {e.std(ddof=1) / np.sqrt(len(e)):.5f}" for e in errors)
            row = "".join(f"{cell:>20}" for cell in cells)
            print(f"{source:<11}{name:<8}{row}   reference {truth:.4f}", flush=True)
    if flags.figure:
        draw(results, flags.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
