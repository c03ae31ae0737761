"""Wall time of several seeds trained in one program against one after another.

    python -m benchmarks.seeds_together --seeds=3 --epochs=3
    python -m benchmarks.seeds_together --method=nnpu --set=method.batch_size=500

Seeds of `configs/gradpu.py` on random images of MNIST's size, each with a split of its own. Both
sides run as a sweep runs them, with evaluation, checkpoints and compilation, in one process and in
turn. Besides the whole time the table has that of the epochs after the first, which compiles.
"""

import itertools
import os
import statistics
import sys
import tempfile
import time

import jax
import ml_collections
import numpy as np
from absl import app, flags

from pujax import sweep
from pujax.configs import gradpu
from pujax.data import dataset
from pujax.data.raw import RawDataset
from pujax.sweep import plan as plan_lib
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup, preemption, sharding
from pujax.training.evaluation import summary
from pujax.training.seed_axis import Member

_SEEDS = flags.DEFINE_integer("seeds", 3, "Seeds to train.")
_EPOCHS = flags.DEFINE_integer("epochs", 3, "Epochs of each seed, at least 2.", lower_bound=2)
_EXAMPLES = flags.DEFINE_integer("examples", 60000, "Training images; a sixth as many test images.")
_METHOD = flags.DEFINE_string("method", "gradpu", "As in configs/gradpu.py.")
_ROUNDS = flags.DEFINE_integer("rounds", 1, "Times that each side is timed, in turn.")
_SET = flags.DEFINE_multi_string("set", [], "Overrides, e.g. --set=method.batch_size=500.")


def _configs():
    """The resolved configuration of every seed."""
    config = gradpu.get_config(f"task=mnist,method={_METHOD.value}")
    config.method.num_epochs = _EPOCHS.value
    config.run.update({"figures": False, "tensorboard": "off"})
    plan = plan_lib.override(sweep.Plan("", [sweep.Cell("", "", config)]), _SET.value)
    for seed in range(_SEEDS.value):
        changed = ml_collections.ConfigDict(plan.cells[0].config.to_dict())
        changed.seed = seed
        yield config_lib.resolve(changed)


def _problem(config, raw):
    fields = config.data
    return dataset.build(
        raw,
        positive_classes=fields.positive_classes,
        num_labeled=min(fields.num_labeled, _EXAMPLES.value // 20),
        num_support=0,
        setting=fields.setting,
        sampling=fields.sampling,
        seed=config.seed,
        num_validation=min(fields.num_validation, _EXAMPLES.value // 20),
    )


def _members(folder, mesh):
    """The seeds, built anew so that nothing compiled before is used again."""
    rng = np.random.default_rng(0)
    sizes = (_EXAMPLES.value, _EXAMPLES.value // 6)
    images = [rng.integers(0, 256, [size, 28, 28, 1], dtype=np.uint8) for size in sizes]
    labels = [(np.arange(size) % 10).astype(np.int32) for size in sizes]
    parts = zip(images, labels, strict=True)
    raw = RawDataset("random", *itertools.chain(*parts), ("",) * 10, (0.5,), (0.3,))
    for config in _configs():
        data = _problem(config, raw)
        setup = method_setup.build(config, data, mesh)
        yield Member(setup, data, os.path.join(folder, f"seed_{config.seed}"))


def _later_seconds(folder):
    """Mean seconds of an epoch of one seed, the first epoch left out."""
    with open(os.path.join(folder, "metrics.csv"), encoding="utf-8") as file:
        header, _, *lines = (line.strip().split(",") for line in file)
    return statistics.fmean(float(line[header.index("seconds")]) for line in lines)


def _measure(is_together, mesh):
    """Whole seconds, and seconds per seed of an epoch after the first."""
    with tempfile.TemporaryDirectory() as folder, preemption.StopRequest() as request:
        members = list(_members(folder, mesh))
        start = time.perf_counter()
        if is_together:
            place = os.path.join(folder, "together")
            experiment.run_members(members, mesh, request, folder=place)
        else:
            for each in members:
                experiment.run_one(each.setup, each.truth, mesh, each.folder, request)
        whole = time.perf_counter() - start
        return whole, statistics.fmean(_later_seconds(each.folder) for each in members)


def main(argv):
    """Times both sides in turn."""
    del argv
    mesh = sharding.make_mesh()
    times = {"together": [], "one after another": []}
    for _ in range(_ROUNDS.value):
        for name, found in times.items():
            found.append(_measure(name == "together", mesh))
    lines = [
        f"{_SEEDS.value} seeds of {_METHOD.value}, {_EPOCHS.value} epochs, "
        f"{_EXAMPLES.value} images, {summary.device(mesh)}, jax {jax.__version__}",
        f"{'':18s} {'all, s':>9s} {'epoch of one seed, s':>21s}",
    ]
    best = {name: tuple(map(min, zip(*found, strict=True))) for name, found in times.items()}
    lines += [f"{name:18s} {whole:9.2f} {epoch:21.3f}" for name, (whole, epoch) in best.items()]
    (whole, epoch), (whole_alone, epoch_alone) = best.values()
    lines.append(f"{'ratio':18s} {whole / whole_alone:9.2f} {epoch / epoch_alone:21.2f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    app.run(main)
