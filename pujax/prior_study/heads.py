"""Linear heads for several priors: from arrays, or from the encoder and the split of a run."""

import functools
import os
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from pujax import accelerator, checks, linear_head, methods, metrics, models, risks
from pujax.data import batching
from pujax.data.image_files import ImageFiles, as_array
from pujax.data.pu_dataset import PUDataset
from pujax.files import read_json
from pujax.methods.impulses import head_rate
from pujax.training import config as config_lib
from pujax.training import experiment, init_from, run_state, sharding
from pujax.training import prior_estimation as prior_lib

FACTORS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 3.0, 5.0, 7.5, 10.0)
LOSSES: dict[str, Callable[..., jax.Array]] = {
    "imbalanced_nnpu": risks.imbalanced_nnpu,
    "nnpu": risks.nnpu,
}


class Study(NamedTuple):
    """Heads of several priors.

    Attributes:
      factors: `[k]`.
      priors: `[k]`, the prior that the risk assumed.
      auc: `[k, seeds, epochs]` on the test set, fractions.
      f1: `[k, seeds]` after the last epoch.
      accuracy: `[k, seeds]` after the last epoch.
    """

    factors: np.ndarray
    priors: np.ndarray
    auc: np.ndarray
    f1: np.ndarray
    accuracy: np.ndarray


def study(
    features: jax.Array,
    labeled: jax.Array,
    test_features: jax.Array,
    test_labels: np.ndarray,
    *,
    prior: float,
    factors: Sequence[float] = (),
    num_seeds: int = 3,
    num_epochs: int = 100,
    loss: str = "imbalanced_nnpu",
    batch_size: int = 256,
    learning_rate: float = 3e-4,
) -> Study:
    """Trains one linear head per factor and seed, all in one program.

    Args:
      features: `[n, d]`, P and U.
      labeled: `[n]`, 1 for a labelled positive.
      test_features: `[t, d]`.
      test_labels: `[t]`, 1 or 0; for evaluation only.
      prior: share of positives in U.
      factors: factors of the prior; by default those of `FACTORS` that keep it below 1.
      num_seeds: heads per factor.
      num_epochs: of every head.
      loss: one of `LOSSES`.
      batch_size: rows per step, at most all.
      learning_rate: of Adam.

    Returns:
      A `Study`.

    Raises:
      ValueError: naming the argument, for a value that is not accepted.
    """
    checks.one_of("loss", loss, LOSSES)
    checks.between("prior", prior, 0, 1, include="neither")
    checks.whole_number("num_seeds", num_seeds, 1)
    checks.whole_number("batch_size", batch_size, 1)
    factors = tuple(factors) or tuple(x for x in FACTORS if x * prior < 1)
    for factor in factors:
        if not (checks.is_number(factor) and 0 < factor * prior < 1):
            raise ValueError(
                f"factors holds {factor!r}; accepted: positive numbers below {1 / prior:.4g}, "
                f"where the prior {prior:.4g} reaches 1"
            )
    priors = np.asarray(factors) * prior
    fit = functools.partial(
        linear_head.fit,
        risk=LOSSES[loss],
        num_epochs=num_epochs,
        batch_size=min(batch_size, len(features)),
        learning_rate=learning_rate,
    )

    @jax.jit
    def scores_of(keys, priors, features, labeled, watched):
        def one(prior, key):
            return fit(key, features, labeled, prior=prior, watched=watched)[1]

        over_seeds = jax.vmap(one, in_axes=(None, 0))
        return jax.vmap(over_seeds, in_axes=(0, None))(priors, keys)

    keys = jax.vmap(jax.random.key)(np.arange(num_seeds))
    scores = np.asarray(
        scores_of(keys, jnp.asarray(priors, jnp.float32), features, labeled, test_features)
    )

    def metric_of_each(metric, scores):
        values = [metric(row, test_labels) for row in scores.reshape(-1, scores.shape[-1])]
        return np.asarray(values).reshape(scores.shape[:-1])

    return Study(
        factors=np.asarray(factors),
        priors=priors,
        auc=metric_of_each(metrics.auc, scores),
        f1=metric_of_each(metrics.f1, scores[:, :, -1]),
        accuracy=metric_of_each(metrics.accuracy, scores[:, :, -1]),
    )


def of_run(folder: str, *, data_dir: str = "", **options: Any) -> Study:
    """The study on a run's encoder: its split, and its head's batches and rate where it has one.

    Args:
      folder: of the run.
      data_dir: where the data are; '' is where the run found them.
      **options: of `study`.

    Raises:
      ValueError: if the folder holds no encoder, for a run without a test set or one whose data
        have changed since, or for an option that is not accepted.
    """
    accelerator.devices()
    path = os.path.join(folder, "config.json")
    if not os.path.exists(path):
        raise ValueError(f"RUNDIR is {folder!r}, which holds no config.json; accepted: a run")
    tree = read_json(path)
    if "data" not in tree:
        raise ValueError(f"RUNDIR is {folder!r}, not the folder of a run; accepted: a run")
    config = ml_collections.ConfigDict(tree)
    if data_dir:
        config.data.dir = data_dir
    resolved = config_lib.resolve(config)
    data = experiment.load_data(resolved)
    if not isinstance(data, PUDataset):
        raise ValueError(f"RUNDIR is {folder!r}, a run with several labels; accepted: one label")
    if not len(data.test_labels):
        raise ValueError(
            f"RUNDIR is {folder!r}, a run without a test set; accepted: one with data.test_path, "
            "or of a source with a test set"
        )
    _refuse_other_data(folder, resolved, data)
    if prior_lib.is_wanted(config):  # the run has stored its estimate
        seen = init_from.attach(resolved, data)
        settled = prior_lib.settle(config, seen, folder, sharding.make_mesh())
        data = data._replace(info=settled.info._replace(mean=data.info.mean, std=data.info.std))
    config.init_from, config.model.init = folder, models.RANDOM
    config = config_lib.resolve(config)
    data = init_from.attach(config, data)
    features, tested = (_features(config, data, x) for x in (data.inputs, data.test_inputs))
    labeled = jnp.asarray(data.labeled, jnp.float32)
    prior = data.info.prior_unlabeled
    for name in ("batch_size", "learning_rate"):
        if f"head_{name}" in config.method:
            options.setdefault(name, config.method[f"head_{name}"])
    if options.get("learning_rate") == head_rate.AUTO:
        options["learning_rate"] = head_rate.linear(features.shape[1])
    return study(features, labeled, tested, data.test_labels, prior=prior, **options)


def _refuse_other_data(
    folder: str, config: ml_collections.FrozenConfigDict, data: PUDataset
) -> None:
    """Raises if the data, given without an encoder, are not those that the run was trained on."""
    path = os.path.join(folder, run_state.DATA_FILE)
    if not os.path.exists(path):
        return
    kept = read_json(path)
    if "examples" not in kept:  # by older versions, whose digest has the encoder in it
        began_with = {config.init_from, config.model.init} - {"", models.RANDOM}
        if not all(map(os.path.exists, began_with)):
            return  # the study needs nothing of it, and the digest cannot be had without it
        data = init_from.attach(config, data)
    if data.digest() != kept.get("examples", kept.get("digest")):
        raise ValueError(
            f"RUNDIR is {folder!r}, a run on other data (the digest of its training, validation "
            "and test examples and labels differs); accepted: a run whose data are as they were"
        )


def _features(
    config: ml_collections.FrozenConfigDict, data: PUDataset, inputs: np.ndarray | ImageFiles
) -> jax.Array:
    """Features of raw inputs under the attached encoder."""
    network = methods.build_network(config, data.info, embedding_dim=0)
    samples = jnp.asarray(as_array(data.inputs[:2]))
    params, batch_stats = network.init(jax.random.key(0), samples, data.encoder)
    infer = jax.jit(lambda params, stats, x: network.infer(params, stats, x).features)
    rows = inputs if isinstance(inputs, ImageFiles) else jnp.asarray(inputs)
    return batching.map_batches(
        infer, rows, batch_size=config.run.eval_batch_size, args=(params, batch_stats)
    )
