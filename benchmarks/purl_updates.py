"""Error of the prior on PURL's features by the number of updates and by whose features they are.

    python benchmarks/purl_updates.py --data_dir=mnist=FOLDER,a9a=FOLDER --trials=3 --out=FILE

Draws 1,000 positives and 2,000 unlabeled examples at each class prior, as PURL's experiments do,
and, disjoint from them, as many fresh ones; trains PURL's network and takes KM2's estimate
after each number of updates (0: as it starts), with no choice of the best epoch, on the features of

- training: the examples that it was trained on;
- fresh: the fresh examples;
- halves: one random half of P and of U by a network trained on the other half, both ways, averaged;
- out_of_bag: the density ratio by small networks that did not see an example, trained that long
  (`priors.out_of_bag_scores`), or, in the column 'own', until they stop by themselves.

Column 'own' has KM2 also on the inputs ('rows'), on PCA components of half their number ('pca'), on
standardised inputs and on components of these, and on standardised components. `--sets` are those
of `prior_estimators.py`, and so are the classes. FILE gets one JSON line per estimate, and
estimates that it already holds are not repeated, so that other sizes want another file; the table
is printed from it.
"""

import argparse
import functools
import json
import pathlib
import sys
from collections.abc import Callable, Iterator, Sequence

import jax
import ml_collections
import numpy as np
from prior_estimators import SETS, check_draws, classes_of, draw, exit_status, listed, read

from pujax import checks, priors
from pujax.data import batching, dataset, raw
from pujax.data.pu_dataset import PUDataset
from pujax.methods.purl import linear_maps
from pujax.training import config as config_lib
from pujax.training import method_setup, sharding, train_step

OWN = "own"
ON_UPDATES = ("training", "fresh", "halves", "out_of_bag")
ON_ROWS = ("rows", "standardised rows", "pca", "standardised pca", "pca of standardised rows")
FIELDS = ("set", "prior", "trial", "points", "updates")
Samples = tuple[np.ndarray, np.ndarray]
Features = Callable[[np.ndarray], np.ndarray]


def divided(p: np.ndarray, u: np.ndarray, prior: float, sizes: tuple[int, int]):
    """P and U of these sizes at the same prior, and the rest; the positives of U come first."""
    (m, n), hidden = sizes, round(prior * len(u))
    kept = round(prior * n)
    positive, negative = u[:hidden], u[hidden:]
    first = p[:m], np.concatenate([positive[:kept], negative[: n - kept]])
    return first, (p[m:], np.concatenate([positive[kept:], negative[n - kept :]]))


def problem(p: np.ndarray, u: np.ndarray, seed: int) -> PUDataset:
    """P and U as the problem that a method trains on."""
    rows = np.concatenate([p, u])
    return dataset.build(
        raw.check(raw.of_rows(rows, np.arange(len(rows)) < len(p))),
        seed=seed,
        positive_classes=(1,),
        num_labeled=0,
        num_support=0,
        setting="one_sample",
        sampling="uniform",
        scaling="unit",
    )


def configuration(
    hidden: tuple[int, ...], updates: int, seed: int, size: int
) -> ml_collections.ConfigDict:
    """PURL as `configs/purl.py` has it, long enough, with one of P and of U held out."""
    batch_size = min(300, size)
    config = config_lib.default_config("purl")
    config.seed = seed
    config.data.update({"num_labeled": 0, "num_support": 0, "sampling": "uniform"})
    config.model.name = "mlp"
    config.model.options = ml_collections.ConfigDict({"hidden": hidden, "batch_norm": True})
    config.method.update({"validation_positives": 1, "validation_unlabeled": 1})
    config.method.update({"batch_size": batch_size, "positives_per_batch": batch_size // 3})
    config.method.representation_epochs = max(updates, 1)
    config.method.num_epochs = config.method.representation_epochs + 1
    return config_lib.resolve(config)


def trained(
    p: np.ndarray, u: np.ndarray, *, hidden: tuple[int, ...], lengths: list[int], seed: int
) -> Iterator[tuple[int, Samples, Features]]:
    """PURL's network after each number of updates.

    Args:
      p: `[m, d]`.
      u: `[n, d]`.
      hidden: units per layer; the last are the features.
      lengths: numbers of updates, rising.
      seed: of its start and its batches.

    Yields:
      `(updates, (features of P, features of U) that it was trained on, features of other rows)`.
    """
    mesh, data = sharding.make_mesh(), problem(p, u, seed)
    config = configuration(hidden, lengths[-1], seed, len(p) + len(u))
    method = method_setup.build(config, data, mesh).method
    stage, arrays = method.stages[0], sharding.replicate(data.training_data(), mesh)
    key = train_step.run_key(seed, mesh)
    init_key = train_step.stage_key(key, train_step.INIT, 0)
    state = train_step.init_state(stage, init_key, None, arrays, mesh)
    embed = jax.jit(method.embed)

    @functools.partial(jax.jit, static_argnames="count")
    def advance(state, plan, first, done, *, count):
        def body(state, index):
            step = done + index
            batch = batching.gather(arrays, plan, first + index, epoch=0, step=step)
            step_key = train_step.stage_key(key, train_step.STEP, step)
            return stage.step(state, batch, step_key)[0], None

        return jax.lax.scan(body, state, np.arange(count))[0]

    done, epoch, plan, first = 0, 0, None, 0
    for length in lengths:
        while done < length:
            if plan is None or first == len(plan.ids):
                plan, first = train_step.epoch_plan(stage, key, epoch, arrays), 0
                epoch += 1
            count = min(len(plan.ids) - first, length - done)
            state = advance(state, plan, first, done, count=count)
            done, first = done + count, first + count
        labeled, used = np.asarray(data.labeled) > 0, ~np.asarray(state.held)
        own = np.asarray(embed(state, arrays.inputs))
        now = state
        yield (
            length,
            (own[labeled & used], own[~labeled & used]),
            lambda rows, now=now: np.asarray(embed(now, rows)),
        )


def half(rows: np.ndarray, hidden: int, rng: np.random.Generator) -> Samples:
    """Two random halves with equal shares of the first `hidden` rows, as far as they divide."""
    order = np.concatenate([rng.permutation(hidden), hidden + rng.permutation(len(rows) - hidden)])
    return rows[order[::2]], rows[order[1::2]]


def of_rows(name: str, p: np.ndarray, u: np.ndarray) -> Samples:
    """P and U as KM2 gets them for a name of `ON_ROWS`."""
    rows, counted = np.concatenate([p, u]), np.ones(len(p) + len(u), bool)
    if name.endswith("standardised rows"):
        rows = linear_maps.standardized(rows, counted)
    if "pca" in name:
        like = linear_maps.blank("pca", rows.shape[1], pca_share=0.5)
        labeled = np.arange(len(rows)) < len(p)
        rows = np.asarray(linear_maps.fit(like, "pca", rows, labeled, ridge=0.0)(rows))
    if name == "standardised pca":
        rows = linear_maps.standardized(rows, counted)
    return rows[: len(p)], rows[len(p) :]


def show(results: dict) -> None:
    """Mean error and mean absolute error over trials, by set, points and updates."""
    trials = len({key[2] for key in results})
    lengths = sorted({key[4] for key in results if key[4] != OWN})
    print(f"\nmean error (mean absolute error) over up to {trials} trials")
    print("| set | prior | points | " + " | ".join(f"{x:,}" for x in lengths) + " | own |")
    print("|" + "---|" * (len(lengths) + 4))
    places = sorted({key[:2] for key in results}, key=lambda x: (SETS.index(x[0]), x[1]))
    for source, prior in places:
        for points in (*ON_UPDATES, *ON_ROWS):
            cells = []
            for length in (*lengths, OWN):
                errors = [
                    line["value"] - prior
                    for key, line in results.items()
                    if key[:2] == (source, prior) and key[3:] == (points, length)
                ]
                shown = f"{np.mean(errors):+.3f} ({np.mean(np.abs(errors)):.3f})" if errors else "-"
                cells.append(shown)
            if set(cells) != {"-"}:
                print(f"| {source} | {prior} | {points} | " + " | ".join(cells) + " |")


def measure(flags: argparse.Namespace) -> None:
    """Makes the estimates that are missing and prints the table."""
    folders, shares = check_draws(flags)
    wanted = flags.points.split(",")
    for name in wanted:
        checks.one_of("--points", name, (*ON_UPDATES, *ON_ROWS))
    accepted = "whole numbers from 0"
    lengths = sorted(set(listed("--updates", flags.updates, int, lambda x: x >= 0, accepted)))
    # Halves of them, of which one is held out, still are samples.
    checks.whole_number("--num_positives", flags.num_positives, 8)
    checks.whole_number("--num_unlabeled", flags.num_unlabeled, 8)
    checks.whole_number("--fresh_positives", flags.fresh_positives, 0)
    checks.whole_number("--fresh_unlabeled", flags.fresh_unlabeled, 0)
    sizes = flags.num_positives, flags.num_unlabeled
    fresh_sizes = flags.fresh_positives or sizes[0], flags.fresh_unlabeled or sizes[1]
    both = sizes[0] + fresh_sizes[0], sizes[1] + fresh_sizes[1]
    results = read(flags.out, FIELDS, ("value",))

    def run(source: str, classes: Samples, prior: float, trial: int) -> None:
        (p, u), fresh = divided(*draw(classes, prior, trial, both), prior, sizes)
        hidden = (30, 10) if source == "newsgroups" else (60, 20)
        network = {"hidden": hidden, "lengths": lengths, "seed": trial}

        def missing(points: str, *updates: int | str) -> bool:
            here = [(source, prior, trial, points, x) for x in updates]
            return points in wanted and any(key not in results for key in here)

        def keep(points: str, updates: int | str, value_of: Callable[[], float]) -> None:
            if not missing(points, updates):
                return
            key = source, prior, trial, points, updates
            results[key] = line = dict(zip(FIELDS, key, strict=True)) | {"value": value_of()}
            with flags.out.open("a") as file:
                file.write(json.dumps(line) + "\n")

        if missing("training", *lengths) or missing("fresh", *lengths):
            for updates, own, features in trained(p, u, **network):
                keep("training", updates, lambda own=own: priors.km2(*own).value)
                others = [features(x) for x in fresh]
                keep("fresh", updates, lambda others=others: priors.km2(*others).value)
        if missing("halves", *lengths):
            rng = np.random.default_rng(trial)
            parts = list(zip(half(p, 0, rng), half(u, round(prior * len(u)), rng), strict=True))
            found: dict[int, list[float]] = {}
            for own, other in (parts, parts[::-1]):
                for updates, _, features in trained(*own, **network):
                    value = priors.km2(*(features(x) for x in other)).value
                    found.setdefault(updates, []).append(value)
            for updates, values in found.items():
                keep("halves", updates, lambda values=values: float(np.mean(values)))
        for updates in filter(None, lengths):

            def bagged(updates=updates) -> float:
                steps = {"max_steps": updates, "look_every": updates}
                options = {"loss": "squared", "num_resamples": 0, "key": trial}
                return priors.out_of_bag(p, u, **options, **steps).value

            keep("out_of_bag", updates, bagged)

        def stopped() -> float:
            return priors.out_of_bag(p, u, loss="squared", num_resamples=0, key=trial).value

        keep("out_of_bag", OWN, stopped)
        for name in ON_ROWS:
            keep(name, OWN, lambda name=name: priors.km2(*of_rows(name, p, u)).value)

    for trial in range(flags.trials):
        for source, folder in folders.items():
            classes = classes_of(source, folder)
            for prior in shares:
                run(source, classes, prior, trial)
    show(results)


def main(arguments: Sequence[str]) -> int:
    """Reads the flags, makes the estimates and prints; returns the process's exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data_dir", default="", help="SOURCE=FOLDER,... of sets that are files")
    parser.add_argument("--sets", default="", help="the sets to run; '' are those of --data_dir")
    parser.add_argument("--updates", default="0,100,300,1000,3000")
    parser.add_argument("--points", default=",".join((*ON_UPDATES, *ON_ROWS)))
    parser.add_argument("--priors", default="0.7")
    parser.add_argument("--num_positives", type=int, default=1000)
    parser.add_argument("--num_unlabeled", type=int, default=2000)
    # KM2's answer depends on how many points it gets, so that fresh ones are as many.
    parser.add_argument("--fresh_positives", type=int, default=0, help="0: --num_positives")
    parser.add_argument("--fresh_unlabeled", type=int, default=0, help="0: --num_unlabeled")
    parser.add_argument("--trials", type=int, default=3)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    return exit_status(measure, parser.parse_args(arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
