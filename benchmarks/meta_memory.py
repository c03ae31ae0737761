"""Peak memory of meta-gradients through ResNet-18, from compiled programs alone.

    python benchmarks/meta_memory.py --steps=16 --topology=cpu:1,h200,v5e

Labels of a batch of 64 images of CIFAR-10's size are the meta-parameters; all parameters of LaGAM's
ResNet-18 move in K plain steps of the class-balanced loss, one compiled loop, with frozen
statistics; the outer loss is that of 64 support images. Nothing is run: the accelerators need not
be there (`pip install -e '.[aot-gpu,aot-tpu]'`), one topology after another in one process.

Columns: bytes that the program needs besides its arguments and results in MB, the same as a share
of plain reverse mode's, and the seconds that compiling takes.
"""

import re
import sys
import time

import jax
import jax.numpy as jnp
from absl import app, flags

from pujax import checks, meta, models
from pujax.aot import topologies

_STEPS = flags.DEFINE_integer("steps", 16, "Inner steps K.", lower_bound=2)
_TOPOLOGY = flags.DEFINE_list("topology", ["cpu:1"], "Devices, as pujax compile names them.")
_WIDTH = flags.DEFINE_integer("width", 64, "Channels of ResNet-18's first stage.", lower_bound=1)
_BATCH, _SIDE, _RATE = 64, 32, 1e-3


def rows(steps: int) -> list[tuple[str, dict]]:
    """Estimators and their options, plain reverse mode first."""
    segment = round(steps**0.5)
    return [
        ("reverse", {}),
        ("reverse", {"segment": segment}),
        ("mixed", {}),
        ("mixed", {"segment": segment}),
        ("truncated", {"window": 1}),
    ]


def program(estimator: str, steps: int, options: dict):
    """The meta-gradient as a function of parameters, statistics and both batches."""
    net = models.build("resnet18", width=_WIDTH.value, embedding_dim=0)

    def scores(params, batch_stats, images):
        variables = {"params": params, "batch_stats": batch_stats}
        return net.apply(variables, images, True, mutable=["batch_stats"])[0].logits

    def gradient(variables, images, labels, support, support_labels):
        stats = variables["batch_stats"]
        return meta.meta_gradient(
            lambda params, labels: meta.balanced_bce(scores(params, stats, images), labels),
            lambda params: meta.balanced_bce(scores(params, stats, support), support_labels),
            variables["params"],
            labels,
            learning_rate=_RATE,
            num_steps=steps,
            estimator=estimator,
            rolled=True,
            **options,
        )

    images = jax.ShapeDtypeStruct((_BATCH, _SIDE, _SIDE, 3), jnp.float32)
    labels = jax.ShapeDtypeStruct((_BATCH,), jnp.float32)
    variables = jax.eval_shape(
        lambda key: net.init(key, jnp.zeros((1, _SIDE, _SIDE, 3)), False), jax.random.key(0)
    )
    return gradient, (variables, images, labels, images, labels)


def main(_) -> None:
    """Prints a table for each topology."""
    found = [(name, topologies.find(name)) for name in _TOPOLOGY.value]
    checks.require(bool(found), "--topology", "", "names such as cpu:1, h200 or v5e:1")
    write = sys.stdout.write
    for name, topology in found:
        write(f"\njax {jax.__version__}, {name}, K = {_STEPS.value}\n\n")
        write("| estimator | MB | share | compiling, s |\n|---|---|---|---|\n")
        plain = None
        copied = jax.sharding.NamedSharding(topology.mesh, jax.sharding.PartitionSpec())
        for estimator, options in rows(_STEPS.value):
            function, shapes = program(estimator, _STEPS.value, options)
            traced = jax.jit(function, in_shardings=copied, out_shardings=copied).trace(*shapes)
            started = time.monotonic()
            lowered = traced.lower(lowering_platforms=(topology.platform,))
            try:
                compiled = lowered.compile(compiler_options=topology.options or None)
                megabytes, remark = compiled.memory_analysis().temp_size_in_bytes / 1e6, ""
            except jax.errors.JaxRuntimeError as error:
                # TPUs' compiler ends where the device's memory does, and says what it needed.
                needed = re.search(r"temporaries \(([\d.]+)G\)", str(error))
                if needed is None:
                    raise
                megabytes, remark = float(needed[1]) * 1024**3 / 1e6, ", does not fit"
            plain = plain or megabytes
            words = "".join(f", `{key}={value}`" for key, value in options.items())
            seconds = time.monotonic() - started
            write(
                f"| `{estimator}`{words} | {megabytes:.0f}{remark} | {megabytes / plain:.2f} "
                f"| {seconds:.0f} |\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    app.run(main)
