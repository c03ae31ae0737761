"""Speed of training steps on random images of a task's shape; compilation is timed apart.

    python -m benchmarks.train_step --config=configs/lagam_cifar.py --steps=3
    python -m benchmarks.train_step --config=configs/lagam_digits.py --steps=100

Prints, for each stage of the method, seconds to compile, milliseconds per step (median over calls),
images per second and the peak memory of the device or process.
"""

import statistics
import sys
import time

import jax
import numpy as np
from absl import app, flags

from pujax import huge_pages
from pujax.data import dataset
from pujax.data.raw import RawDataset
from pujax.training import config as config_lib
from pujax.training import method_setup, sharding, train_step
from pujax.training.config import flags as run_flags
from pujax.training.evaluation import summary

# Height, width, channels and classes of the sources' training images.
_SHAPES = {
    "digits": (8, 8, 1, 10),
    "mnist": (28, 28, 1, 10),
    "fashion_mnist": (28, 28, 1, 10),
    "cifar10": (32, 32, 3, 10),
    "cifar100": (32, 32, 3, 20),
    "stl10": (96, 96, 3, 10),
}
_STEPS = flags.DEFINE_integer("steps", 20, "Timed steps per stage.", lower_bound=1)
_EXAMPLES = flags.DEFINE_integer("examples", 6000, "Training images to make up.")
_CONFIG = flags.DEFINE_string("config", "configs/lagam_cifar.py", "As for train.py.")
_SET = flags.DEFINE_multi_string("set", [], "Overrides, e.g. --set=model.dtype=bfloat16.")


def first_step(call, count, num_steps):
    """Where a call of `count` steps begins: calls go through an epoch, and begin it anew."""
    return (call * count) % max(num_steps - count, 1)


def main(argv):
    """Times every stage."""
    del argv
    overrides = [f"--config.{text}" for text in _SET.value]
    tree, _, name = run_flags.parse(["", f"--config={_CONFIG.value}", *overrides])
    config = config_lib.resolve(tree)
    *shape, classes = _SHAPES[config.data.source]
    classes = 100 if config.data.label_set == "fine" else classes
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, [_EXAMPLES.value, *shape], dtype=np.uint8)
    labels = (np.arange(len(images)) % classes).astype(np.int32)
    half = tuple([0.5] * shape[-1])
    raw = RawDataset("random", images, labels, images[:9], labels[:9], ("",) * classes, half, half)
    data = dataset.build(
        raw,
        positive_classes=config.data.positive_classes,
        num_labeled=min(config.data.num_labeled, len(images) // 10),
        num_support=config.data.num_support,
        setting=config.data.setting,
        sampling=config.data.sampling,
        seed=0,
    )
    mesh = sharding.make_mesh()
    built = method_setup.build(config, data, mesh)
    arrays = sharding.replicate(built.data.training_data(), mesh)
    key = train_step.run_key(0, mesh)
    per_call = train_step.steps_per_dispatch(config.run.steps_per_dispatch)
    lines, state, epoch = [f"{name}: {config.model.name} {config.model.dtype}"], None, 0
    for index, stage in enumerate(built.method.stages):
        state = train_step.init_state(
            stage, train_step.stage_key(key, 0, index), state, arrays, mesh
        )
        carry = train_step.Carry(state, train_step.zero_sums(built.metric_names[index], mesh))
        plan = train_step.epoch_plan(stage, key, 0, arrays)
        train = train_step.make_train(stage, mesh)
        num_steps = plan.ids.shape[0]
        count = min(per_call, num_steps)
        start = time.perf_counter()
        size = config.run.eval_batch_size
        seen = jax.block_until_ready(
            train_step.stage_data(stage, state, arrays, mesh, batch_size=size)
        )
        encoding = time.perf_counter() - start
        times = []
        for call in range(max(_STEPS.value // count, 1) + 1):
            start = time.perf_counter()
            first = first_step(call, count, num_steps)
            carry = jax.block_until_ready(
                train(carry, seen, plan, key, epoch, first, call, count=count)
            )
            times.append((time.perf_counter() - start) / count)
        state, epoch = carry.state, epoch + stage.num_epochs
        step = statistics.median(times[1:])
        lines.append(
            f"  {stage.name:8s} compile {times[0] * count:6.1f} s   step {1e3 * step:9.2f} ms   "
            f"{stage.batching.batch_size / step:9.0f} images/s"
        )
        if stage.encode is not None:
            lines[-1] += f"   encoding {len(images) / encoding:.0f} images/s, compilation included"
    memory = summary.peak_memory()
    peak = "unknown" if memory is None else f"{memory / 2**20:.0f} MiB"
    lines.append(f"  peak memory {peak}, {summary.device(mesh)}, jax {jax.__version__}")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    huge_pages.restart()  # as training does
    app.run(main)
