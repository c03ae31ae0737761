"""Label gradients inside a LaGAM run on the digits: direction, time and memory against K.

    python -m benchmarks.lagam_label_gradients --rounds=20 --figure=docs/figures/label_gradients.png

Trains `configs/lagam_digits.py` for its warm-up and some epochs of its main stage, and then takes
the label gradients of batches of the next epoch by every estimator, at a virtual step size of 0.1,
through steps of the classifier's weights and of all parameters.

- `cosine`: to the exact gradient of the same K and the same parameters, mean over the batches.
- `signs`: share of unlabeled examples whose gradient has the sign of the hidden truth.
- `ms`: of one label update, the fastest of all calls; everything else of a training step is left
  out of the program but for what the gradient needs.
- `MB`: what the compiled program needs besides its arguments and results.
"""

import sys
import time
from typing import Any, NamedTuple

import jax
import numpy as np
from absl import app, flags
from matplotlib import ticker

from benchmarks import lagam_training
from pujax.configs import lagam_digits
from pujax.plots import style
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup, sharding

_ROUNDS = flags.DEFINE_integer("rounds", 20, "Timed calls of each program.", lower_bound=1)
_BATCHES = flags.DEFINE_integer("batches", 10, "Batches of cosine and signs.", lower_bound=1)
_EPOCHS = flags.DEFINE_integer("epochs", 16, "Epochs before, the 12 of the warm-up among them.")
_SEED = flags.DEFINE_integer("seed", 0, "Of the run.")
_FIGURE = flags.DEFINE_string("figure", "", "Where to draw the figure; '' draws none.")
_STEPS = (1, 2, 3, 5)
_ESTIMATORS = {
    "reverse": {},
    "mixed": {"meta_estimator": "mixed"},
    "one_step": {"meta_estimator": "one_step"},
    "implicit_cg": {"meta_estimator": "implicit_cg", "meta_damping": 0.1},
    "implicit_neumann": {"meta_estimator": "implicit_neumann"},
    "es": {"meta_estimator": "es"},
}
# Perturbed copies of a whole network are slow on a CPU, and linear systems of it are no better.
_OF_ALL = ("reverse", "mixed", "one_step")


class Row(NamedTuple):
    """What was measured of an estimator at a number of steps."""

    subset: str
    estimator: str
    num_steps: int
    cosine: float
    signs: float
    milliseconds: float
    megabytes: float


def configuration(seed: int, **changes: Any) -> Any:
    """The run's configuration with other virtual steps; gradients are recorded."""
    config = lagam_digits.get_config()
    config.seed, config.run.compare = seed, ""
    config.method.update({"record_label_gradients": True, "meta_learning_rate": 0.1, **changes})
    return config_lib.resolve(config)


def measured(data: Any, state: Any, batches: list[Any]) -> list[Row]:
    """All rows, those of 'reverse' first within a subset and a number of steps."""
    rows, truth, mesh = [], np.asarray(data.truth), sharding.make_mesh()
    for subset in ("kernel", "all"):
        for num_steps in _STEPS:
            names = _ESTIMATORS if subset == "kernel" else _OF_ALL
            exact = None
            for name in names:
                changes = {"meta_trainable": subset, "meta_num_steps": num_steps}
                config = configuration(_SEED.value, **changes, **_ESTIMATORS[name])
                stage = method_setup.build(config, data, mesh).method.stages[-1]

                def pulls(state, batch, key, stage=stage):
                    return stage.step(state, batch, key)[0].pulls[batch.ids]

                keys = [jax.random.key(i) for i in range(len(batches))]
                call = jax.jit(pulls).lower(state, batches[0], keys[0]).compile()
                found = np.stack(
                    [call(state, *pair) for pair in zip(batches, keys, strict=True)]
                ).astype(np.float64)
                exact = found if exact is None else exact
                times = []
                for index in range(_ROUNDS.value):
                    start = time.perf_counter()
                    pair = batches[index % len(batches)], keys[index % len(batches)]
                    jax.block_until_ready(call(state, *pair))
                    times.append(time.perf_counter() - start)
                ids = np.stack([batch.ids for batch in batches])
                is_free = ~data.labeled[ids]
                norms = np.linalg.norm(found, axis=1) * np.linalg.norm(exact, axis=1)
                row = Row(
                    *(subset, name, num_steps, float(np.mean((found * exact).sum(1) / norms))),
                    float(np.mean(((found > 0) == (truth[ids] == 1))[is_free])),
                    1e3 * min(times),
                    call.memory_analysis().temp_size_in_bytes / 1e6,
                )
                rows.append(row)
                sys.stdout.write(
                    f"| {subset} | {name} | {num_steps} | {row.cosine:.3f} | {row.signs:.3f} "
                    f"| {row.milliseconds:.2f} | {row.megabytes:.2f} |\n"
                )
                sys.stdout.flush()
    return rows


def draw(rows: list[Row], path: str) -> None:
    """Cosine, time and memory against K; solid for the classifier's weights, dashed for all."""
    figure, axes = style.panels("", 3, (10.5, 3.8))
    colours = (style.BLUE, style.VERMILION, style.GREEN, style.PURPLE, style.ORANGE, style.SKY)
    marks = dict(zip(_ESTIMATORS, zip(colours, "os^Dv*", strict=True), strict=True))
    panels = {
        "cosine": "cosine to the exact gradient",
        "milliseconds": "ms per label update",
        "megabytes": "MB",
    }
    for axis, (field, title) in zip(axes, panels.items(), strict=True):
        for subset, line in (("kernel", "-"), ("all", "--")):
            for name, (colour, marker) in marks.items():
                points = [r for r in rows if (r.subset, r.estimator) == (subset, name)]
                if points:
                    axis.plot(
                        [r.num_steps for r in points],
                        [getattr(r, field) for r in points],
                        line,
                        color=colour,
                        marker=marker,
                        markersize=5,
                        label=f"{name}, {subset}",
                    )
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("K, virtual steps")
        axis.set_xticks(_STEPS)
    for axis in axes[1:]:
        axis.set_yscale("log")
        for which in (axis.yaxis.set_major_formatter, axis.yaxis.set_minor_formatter):
            which(ticker.LogFormatter(minor_thresholds=(2, 0.5)))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=8, frameon=False)
    figure.savefig(path, dpi=110)


def main(_) -> None:
    """Prints the table and draws the figure."""
    config = configuration(_SEED.value)
    data = experiment.load_data(config)
    state, batches = lagam_training.trained(config, data, _EPOCHS.value, _BATCHES.value)
    device = jax.devices()[0].device_kind
    sys.stdout.write(f"jax {jax.__version__}, {device}, {len(batches)} batches\n\n")
    sys.stdout.write("| moves | estimator | K | cosine | signs | ms | MB |\n" + "|---" * 7 + "|\n")
    rows = measured(data, state, batches)
    if _FIGURE.value:
        draw(rows, _FIGURE.value)


if __name__ == "__main__":
    app.run(main)
