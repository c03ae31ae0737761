"""How long a virtual step of LaGAM may be: curvature of its loss, and right signs by step size.

    python -m benchmarks.lagam_curvature --epochs=30
    python -m benchmarks.lagam_curvature --data=fashion_mnist --data_dir=FOLDER --epochs=8

Trains the published row of `configs/sweeps/lagam_meta.py` for `--epochs` of its epochs. Prints, for
batches of the next one, the largest eigenvalue of the Hessian of the inner loss in the classifier's
weights (on features in evaluation mode, without random views), and the share of unlabeled examples
whose label gradient has the sign of the hidden truth, by steps of these weights and step size. A
plain step goes past the minimum along a direction whose curvature times the step size is above 1.
"""

import sys
from typing import Any

import jax
import numpy as np
from absl import app, flags

from benchmarks import lagam_training
from pujax.configs.sweeps import lagam_meta
from pujax.methods._common import network as network_lib
from pujax.methods.lagam import label_update
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup, sharding

_DATA = flags.DEFINE_enum("data", "digits", ("digits", "fashion_mnist"), "Of the plan.")
_EPOCHS = flags.DEFINE_integer("epochs", 16, "Epochs before, those of the warm-up among them.")
_BATCHES = flags.DEFINE_integer("batches", 12, "Batches of the next one.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Of the run.", lower_bound=0)
_FOLDER = flags.DEFINE_string("data_dir", "", "Folder of the data; none for the digits.")
_VIRTUAL = ((1, 0.001), (1, 0.01), (1, 0.03), (1, 0.1), (5, 0.02), (5, 0.1))


def configuration(num_steps: int = 1, rate: float = 1e-3) -> Any:
    """The published row with other virtual steps; its gradients are recorded."""
    config = lagam_meta.get_plan(f"data={_DATA.value}").cells[0].config
    config.seed, config.data.dir = _SEED.value, _FOLDER.value
    config.method.update({"meta_num_steps": num_steps, "meta_learning_rate": rate})
    return config_lib.resolve(config)


def check_epochs(config: Any, epochs: int) -> None:
    """Raises a ValueError where the next epoch is not one of the main stage."""
    first, last = config.method.warmup_epochs, config.method.num_epochs - 1
    if not first <= epochs <= last:
        raise ValueError(f"--epochs is {epochs}; accepted: {first} to {last}")


def largest_curvatures(config: Any, data: Any, state: Any, batches: list[Any]) -> list[float]:
    """Largest eigenvalue of the Hessian in the classifier's weights, of each batch."""
    network = network_lib.build(config, data.info, embedding_dim=config.method.embedding_dim)
    kernel, bias = (state.params["classifier"][name] for name in ("kernel", "bias"))

    @jax.jit
    def hessian(batch):
        features = network.infer(state.params, state.batch_stats, batch.inputs).features

        def loss(weights):
            scores = label_update.linear_scores({"kernel": weights, "bias": bias}, features)
            labels = state.labels[batch.ids]
            return label_update.label_loss(scores, labels, form=config.method.classification_loss)

        return jax.hessian(loss)(kernel)[:, 0, :, 0]

    return [float(np.linalg.eigvalsh(hessian(batch))[-1]) for batch in batches]


def right_signs(config: Any, data: Any, state: Any, batches: list[Any]) -> float:
    """Share of unlabeled examples whose label gradient points to the hidden truth."""
    stage = method_setup.build(config, data, sharding.make_mesh()).method.stages[-1]
    pulls = jax.jit(lambda state, batch, key: stage.step(state, batch, key)[0].pulls[batch.ids])
    right = []
    for index, batch in enumerate(batches):
        is_free = ~data.labeled[batch.ids]
        found = np.asarray(pulls(state, batch, jax.random.key(index))) > 0
        right.append((found == (data.truth[batch.ids] == 1))[is_free])
    return float(np.mean(np.concatenate(right)))


def main(argv: list[str]) -> int:
    """Trains, measures and prints."""
    del argv
    config = configuration()
    try:
        check_epochs(config, _EPOCHS.value)
        data = experiment.load_data(config)
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    state, batches = lagam_training.trained(config, data, _EPOCHS.value, _BATCHES.value)
    found = largest_curvatures(config, data, state, batches)
    sys.stdout.write(
        f"largest curvature, median of {len(found)} batches: {np.median(found):.2f} "
        f"({min(found):.2f} to {max(found):.2f})\n"
    )
    for num_steps, rate in _VIRTUAL:
        share = right_signs(configuration(num_steps, rate), data, state, batches)
        sys.stdout.write(f"K = {num_steps}, rate {rate:g}: right signs {share:.3f}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    app.run(main)
