"""PULDA: Dist-PU with a smooth distance, moving averages and a margin (Jiang et al., TPAMI 2023).

Network, two phases, memory and mixup are those of `dist_pu`. In place of the entropies there is a
margin loss (`risks.two_way_margin`), and the predicted share of positives in U is compared with the
prior by a smooth distance of a moving average (`risks.label_alignment`). This follows the authors'
code, whose numbers the settings are, but for these points:
- the averages belong to training: an evaluation neither reads nor moves them. The authors' code
  calls the loss on the test set after every epoch, with true labels, and keeps what it leaves;
- a batch is given to the loss once, P and U together;
- the schedule of the warm-up runs over its own length, not over that of the second phase;
- a batch lacks a group: its term is 0, and its averages stay as they are;
- of one-sample data the prior is that of U, which is a little smaller than the population's, in all
  terms, also where it weighs P.
Averages start afresh with the second phase.
"""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import arrays, checks, risks
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods import dist_pu
from pujax.methods._common import calibration, classifier, sections
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Method, Stage

STAGE_LENGTHS = ("warmup_epochs",)


class Averages(NamedTuple):
    """Moving averages over the batches of a phase.

    Attributes:
      share: of the predicted share of positives in U.
      margin_unlabeled: of the loss of U within the negative side's margin.
      margin_positive: likewise of P.
    """

    share: risks.MovingMean
    margin_unlabeled: risks.MovingMean
    margin_positive: risks.MovingMean


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state of the phase.
      labels: float32 `[n]`, the memory, see `dist_pu.State`.
      averages: of the phase.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    labels: jax.Array
    averages: Averages


def default_config() -> ml_collections.ConfigDict:
    """The authors' settings for CIFAR-10; unprefixed optimizer fields are the second phase's.

    At least 0.11 of a batch of 144 is P: 16 beside 128 of U as there, and more where P is a
    larger share of the data. `num_epochs` is the length of both phases; an epoch passes once over
    U. `decay` and `margin_decay` are those of the averages, 0 for the means of a batch.
    """
    return sections.baseline_config(
        "pulda",
        num_epochs=120,
        batch_size=144,
        batching="separate",
        positive_share=0.11,
        learning_rate=1e-3,
        weight_decay=1e-4,
        lr_schedule="cosine",
        lr_floor=0.7,
        warmup_epochs=60,
        warmup_learning_rate=1e-4,
        warmup_weight_decay=5e-4,
        warmup_lr_floor=0.0,
        sharpness=3.5,
        decay=0.85,
        margin=0.6,
        margin_decay=0.5,
        mixup_weight=4.2,
        mixup_alpha=11.0,
        calibration="auto",
    )


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    dist_pu.check_phases(config)
    checks.positive("method.sharpness", config.sharpness)
    checks.at_least("method.margin", config.margin, 0)
    for name in ("decay", "margin_decay"):
        checks.between(f"method.{name}", config[name], 0, 1, include="low")


class _Parts(NamedTuple):
    """What both phases are made of: the section, the network, and the share asked of U."""

    config: ml_collections.ConfigDict
    network: Network
    prior: float


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds PULDA for a resolved configuration and a data set's numbers."""
    c = config.method
    check(c)
    network = network_lib.build(config, info, embedding_dim=0)
    parts = _Parts(c, network, calibration.unlabeled_prior(info, c.calibration))
    batching = sections.once_through_unlabeled(sections.batches(c, info), info)

    def stage(name: str, num_epochs: int, loss: Any, settings: Any) -> Stage:
        optimizer = optimizer_lib.build(settings, num_epochs=max(num_epochs, 1))

        def init(key: jax.Array, previous: State | None, data: TrainingData) -> State:
            if previous is None:
                params, batch_stats = network.init(key, data.inputs[:2], data.encoder)
            else:
                params, batch_stats = previous.params, previous.batch_stats
            return State(
                params=params,
                batch_stats=batch_stats,
                opt_state=optimizer.init(params),
                labels=data.labeled.astype(jnp.float32),
                averages=Averages(*(risks.MovingMean.start() for _ in Averages._fields)),
            )

        def step(state: State, batch: Batch, key: jax.Array):
            view_key, loss_key = jax.random.split(key)
            images = classifier.weak_view(c, network, batch.inputs, view_key)

            def loss_of(params):
                return loss(parts, params, state, images, batch, loss_key)

            state, total, (changes, metrics) = optimizer_lib.descend(
                optimizer, state, loss_of, batch.stage_progress
            )
            return state._replace(**changes), metrics | {"loss": total}

        return Stage(name, num_epochs, init, step, batching, refresh_every=0)

    def infer(state: State, inputs: jax.Array):
        return network.infer(state.params, state.batch_stats, inputs)

    warmup = stage("warmup", c.warmup_epochs, _warmup_loss, dist_pu.warmup_section(c))
    main = stage("main", c.num_epochs - c.warmup_epochs, _main_loss, c)
    fill = dist_pu.filling(network, batch_size=config.run.eval_batch_size)
    return Method(
        stages=tuple(part for part in (warmup, main._replace(refresh=fill)) if part.num_epochs),
        predict=lambda state, inputs: infer(state, inputs).logits,
        embed=lambda state, inputs: infer(state, inputs).features,
        soft_labels=lambda state: state.labels,
    )


def _objective(parts, state: State, scores: jax.Array, labeled: jax.Array):
    """Both risks of a batch: `(loss, averages, metrics)`."""
    c, averages = parts.config, state.averages
    alignment, share = risks.label_alignment(
        scores,
        labeled,
        prior=parts.prior,
        average=averages.share,
        decay=c.decay,
        sharpness=c.sharpness,
    )
    margin, (of_u, of_p) = risks.two_way_margin(
        scores,
        labeled,
        prior=parts.prior,
        averages=(averages.margin_unlabeled, averages.margin_positive),
        decay=c.margin_decay,
        margin=c.margin,
    )
    # The loss has a floor, and a factor that only its gradient needs; the metric has neither.
    distance = risks.softplus_distance(share.value, parts.prior, sharpness=c.sharpness)
    metrics = {
        "loss_alignment": alignment,
        "loss_margin": margin,
        "distance": distance - 2 * math.log(2) / c.sharpness,
    }
    return alignment + margin, Averages(share, of_u, of_p), metrics


def _warmup_loss(parts, params, state, images, batch, key):
    """The first phase's; the memory stays as it is."""
    del key
    outputs, stats = parts.network.train_pass(params, state.batch_stats, images)
    loss, averages, metrics = _objective(parts, state, outputs.logits, batch.labeled)
    return loss, ({"batch_stats": stats, "averages": averages}, metrics)


def _main_loss(parts, params, state, images, batch, key):
    """The second phase's: scores clipped as the memory's are, and mixup."""
    c = parts.config
    passed = dist_pu.mixed_pass(
        parts.network, params, state, images, batch, key, alpha=c.mixup_alpha
    )
    scores = arrays.clipped(passed.scores, -risks.ENTROPY_CLIP, risks.ENTROPY_CLIP)
    loss, averages, metrics = _objective(parts, state, scores, batch.labeled)
    loss += c.mixup_weight * passed.loss
    changes = {
        "batch_stats": passed.batch_stats,
        "labels": passed.labels,
        "averages": averages,
    }
    return loss, (changes, metrics | {"loss_mixup": passed.loss})
