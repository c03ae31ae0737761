"""PURL's toy in two dimensions: the direction that it finds, and what that does for the prior.

    python benchmarks/purl_toy.py --trials=10 --figure=FILE

The first axis tells the classes apart, the second one has the larger spread and tells nothing:
figure 2 and appendix D of Sakai, Niu, Sugiyama 2021, whose parameters are not known. Here P is
`N((1.5, 0), diag(1, 25))` and N its mirror image. PURL's network for it is a line, a ReLU and one
weight, fitted to all points at once by Adam at 0.01. Prints, for each size of P and of U, the angle
between the line and the first axis (of PCA's first component, too) and the mean absolute error of
KM2's prior on both axes, on each of them, and on what the line and PCA see. `--figure` draws the
points of the first trial with both directions, and the errors.
"""

import argparse
import functools
import pathlib
import sys
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import optax

from pujax import checks, mutual_info, priors

MEAN, SPREAD = np.array([1.5, 0.0]), np.array([1.0, 5.0])
PRIOR = 0.5
VIEWS = ("both axes", "first axis", "second axis", "PCA", "PURL")


def sample(rng: np.random.Generator, n_p: int, n_u: int) -> tuple[np.ndarray, np.ndarray]:
    """P `[n_p, 2]` and U `[n_u, 2]`, whose positives come first."""
    signs = np.where(np.arange(n_p + n_u) < n_p + round(PRIOR * n_u), 1.0, -1.0)[:, None]
    points = signs * MEAN + SPREAD * rng.standard_normal((n_p + n_u, 2))
    return points[:n_p], points[n_p:]


@functools.partial(jax.jit, static_argnames="steps")
def purl_line(key: jax.Array, p: jax.Array, u: jax.Array, *, steps: int) -> jax.Array:
    """The unit vector `[2]` of the line of the network `a relu(b + x . v)`."""
    optimizer = optax.adam(0.01)

    def loss(params):
        ratios = (params["a"] * jax.nn.relu(params["b"] + x @ params["v"]) for x in (p, u))
        return mutual_info.pu_objective(*ratios)

    def step(carry, _):
        params, state = carry
        updates, state = optimizer.update(jax.grad(loss)(params), state)
        return (optax.apply_updates(params, updates), state), None

    start = {"a": jnp.ones([]), "b": jnp.ones([]), "v": jax.random.normal(key, [2]) / 10}
    (params, _), _ = jax.lax.scan(step, (start, optimizer.init(start)), length=steps)
    return params["v"] / jnp.linalg.norm(params["v"])


def pca_line(points: np.ndarray) -> np.ndarray:
    """The unit vector `[2]` of the largest spread."""
    return np.linalg.svd(points - points.mean(0), full_matrices=False)[2][0]


def angle(line: np.ndarray) -> float:
    """Degrees between a line and the first axis, from 0 to 90."""
    return float(np.degrees(np.arccos(min(abs(line[0]), 1.0))))


def trial(seed: int, n_p: int, n_u: int, steps: int) -> dict:
    """Points, lines, and errors of KM2's prior by `VIEWS`."""
    p, u = sample(np.random.default_rng(seed), n_p, n_u)
    purl = np.asarray(purl_line(jax.random.key(seed), jnp.asarray(p), jnp.asarray(u), steps=steps))
    pca = pca_line(np.concatenate([p, u]))
    views = (np.eye(2), np.eye(2)[:, :1], np.eye(2)[:, 1:], pca[:, None], purl[:, None])
    errors = {
        name: priors.estimate(p @ view, u @ view, method="km2", key=seed).value - PRIOR
        for name, view in zip(VIEWS, views, strict=True)
    }
    return {"points": (p, u), "purl": purl, "pca": pca, "errors": errors}


def mean_and_error(errors: Sequence[float]) -> str:
    """Mean of the absolute errors and its standard error, which one trial says nothing of."""
    values = np.abs(errors)
    error = f"{values.std() / len(values) ** 0.5:.3f}" if len(values) > 1 else "-"
    return f"{values.mean():.3f} ± {error}"


def draw(results: dict[int, list[dict]], path: str) -> None:
    """Left the points of a trial and both lines, right the errors over the sizes."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
    first = next(iter(results.values()))[0]
    p, u = first["points"]
    left.scatter(*u.T, s=5, color="0.7", label="unlabeled")
    left.scatter(*p.T, s=5, color="tab:red", label="labelled positive")
    for name, color in (("purl", "tab:blue"), ("pca", "black")):
        ends = 8 * np.outer([-1, 1], first[name])
        left.plot(*ends.T, color=color, linewidth=2, label=name.upper())
    left.set(xlabel="first axis", ylabel="second axis", xlim=(-8, 16))
    left.legend(frameon=False, fontsize="small", loc="right")
    for name in VIEWS:
        means = [np.mean([abs(x["errors"][name]) for x in trials]) for trials in results.values()]
        dashes = "--" if name in ("PCA", "PURL") else "-"  # both lie on an axis's own line
        right.plot(list(results), means, dashes, marker="o", markersize=3, label=name)
    right.set(xscale="log", ylim=(0, None), xlabel="size of P, and of U")
    right.set_ylabel("mean absolute error of KM2's prior")
    right.set_xticks(list(results), [f"{size:,}" for size in results])
    right.minorticks_off()
    right.legend(frameon=False, fontsize="small")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main(argv: Sequence[str] | None = None) -> int:
    """Reads the flags, prints the table and draws the figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="500,1000,2000,5000", help="of P, and of U")
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2000, help="of PURL's network")
    parser.add_argument("--figure", default="", help="PNG to draw; none if empty")
    flags = parser.parse_args(argv)
    try:
        sizes = [int(x) if x.isdecimal() else x for x in flags.sizes.split(",")]
        for size in sizes:
            checks.whole_number("--sizes", size, 10)
        checks.whole_number("--trials", flags.trials, 1)
        checks.whole_number("--steps", flags.steps, 1)
        path = pathlib.Path(flags.figure)
        is_file = path.parent.is_dir() and path.suffix == ".png"
        accepted = "a file .png in a folder that exists"
        checks.require(is_file or not flags.figure, "--figure", flags.figure, accepted)
    except ValueError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    print("| size | angle of PURL | of PCA | " + " | ".join(VIEWS) + " |")
    print("|" + "---|" * (len(VIEWS) + 3), flush=True)
    results = {}
    for size in sizes:
        trials = [trial(seed, size, size, flags.steps) for seed in range(flags.trials)]
        results[size] = trials
        angles = (np.mean([angle(x[name]) for x in trials]) for name in ("purl", "pca"))
        cells = [f"{x:.1f}" for x in angles]
        for name in VIEWS:
            cells.append(mean_and_error([x["errors"][name] for x in trials]))
        print(f"| {size:,} | " + " | ".join(cells) + " |", flush=True)
    if flags.figure:
        draw(results, flags.figure)
    return 0


if __name__ == "__main__":
    sys.exit(main())
