"""Milliseconds per GradPU step on MNIST-sized images, beside the same step in PyTorch.

    python benchmarks/gradpu_step.py --steps=300 --pytorch=/path/to/python/with/torch --rounds=3

Batch 250, MLP 784-300-300-300-300-1, gradient penalty, Adam. Ours is the whole training step as a
run takes it: data gathering, finite check and metrics included, compilation not. With `--pytorch`
the two are timed in turn, so that both meet the same machine.
"""

import pathlib
import statistics
import subprocess
import sys
import time

import jax
import numpy as np
from absl import app, flags

from pujax.data import dataset
from pujax.data.raw import RawDataset
from pujax.training import config as config_lib
from pujax.training import method_setup, sharding, train_step
from pujax.training.evaluation import summary

_STEPS = flags.DEFINE_integer("steps", 300, "Timed steps.", lower_bound=1)
_ROUNDS = flags.DEFINE_integer(
    "rounds", 3, "Times that each side is timed, in turn.", lower_bound=1
)
_PYTORCH = flags.DEFINE_string("pytorch", "", "Python that has PyTorch; '' times ours alone.")
_PER_CALL = flags.DEFINE_integer("steps_per_dispatch", 34, "Steps per call.", lower_bound=1)


def first_step(call, count, num_steps):
    """Where a call of `count` steps begins: calls go through an epoch, and begin it anew."""
    return (call * count) % max(num_steps - count, 1)


def _ours():
    """A function that times our step."""
    tree = config_lib.default_config("gradpu")
    tree.model.name = "mlp"
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [60000, 28, 28, 1], dtype=np.uint8)
    labels = (np.arange(60000) % 2).astype(np.int32)
    raw = RawDataset(
        "random", images, labels, images[:9], labels[:9], ("", ""), (0.1307,), (0.3081,)
    )
    data = dataset.build(
        raw,
        positive_classes=(1,),
        num_labeled=1000,
        num_support=0,
        setting="one_sample",
        sampling="uniform",
        seed=0,
    )
    mesh = sharding.make_mesh()
    built = method_setup.build(config_lib.resolve(tree), data, mesh)
    stage = built.method.stages[0]
    arrays = sharding.replicate(built.data.training_data(), mesh)
    key = train_step.run_key(0, mesh)
    state = train_step.init_state(stage, key, None, arrays, mesh)
    plan = train_step.epoch_plan(stage, key, 0, arrays)
    num_steps = plan.ids.shape[0]
    count = min(_PER_CALL.value, num_steps)
    train = train_step.make_train(stage, mesh)
    carry = train_step.Carry(state, train_step.zero_sums(built.metric_names[0], mesh))
    carry = jax.block_until_ready(train(carry, arrays, plan, key, 0, 0, 0, count=count))

    def measure():
        nonlocal carry
        times = []
        for call in range(max(_STEPS.value // count, 1)):
            start = time.perf_counter()
            first = first_step(call, count, num_steps)
            carry = train(carry, arrays, plan, key, 0, first, call * count, count=count)
            jax.block_until_ready(carry)
            times.append((time.perf_counter() - start) / count)
        return 1e3 * statistics.median(times)

    return measure


def _pytorch():
    """Times PyTorch's step in its own process."""
    script = pathlib.Path(__file__).with_name("gradpu_step_pytorch.py")
    command = [_PYTORCH.value, str(script), f"--steps={_STEPS.value}"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main(argv):
    """Times both sides in turn."""
    del argv
    measure = _ours()
    ours, theirs = [], []
    for _ in range(_ROUNDS.value):
        ours.append(measure())
        if _PYTORCH.value:
            theirs.append(_pytorch())
    where = f"{summary.device(sharding.make_mesh())}, jax {jax.__version__}"
    lines = [f"ours     {min(ours):7.2f} ms  (rounds {[round(x, 2) for x in ours]}; {where})"]
    if theirs:
        lines.append(f"PyTorch  {min(theirs):7.2f} ms  (rounds {[round(x, 2) for x in theirs]})")
        lines.append(f"ratio    {min(ours) / min(theirs):7.2f}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    app.run(main)
