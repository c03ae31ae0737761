"""NcPU: representations aligned within predicted classes, labels by prototypes behind a gate.

Zhao et al., "Noisy-pair robust representation alignment for positive-unlabeled learning", ICLR
2026. It needs neither class prior nor negatives. Where the paper and the authors' code disagree
this follows the code, except that
- the classifier has one logit where theirs has two, whose difference takes steps twice as long;
- the random numbers of a split and of a run are those of the run's seed;
- float32 or bfloat16 take the place of float16 with a loss scaler.

A table of numbers has no crops and colours: its weak view is the row itself, and its strong views
replace features by those of other rows, as in `pujax.methods.impulses`, which is not the paper's.
"""

import logging
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax
from ml_collections import config_dict

from pujax import checks
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import alignment, losses
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common import views as views_lib
from pujax.methods.base import Method, Stage
from pujax.methods.ncpu import disambiguation, length
from pujax.models import encoder as encoder_lib

_LOG = logging.getLogger(__name__)
COMPARES_VIEWS = True
STAGE_LENGTHS = ("warmup_epochs",)
SELECTION = "nnpu_risk"
# It needs no prior, and without one no rule is near the best epoch on small and on large sets.
SELECTION_WITHOUT_PRIOR = "last"


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      params: network parameters, with projection and predictor.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state.
      target: the moving copy of backbone and projection.
      labels: float32 `[n]`, stored positive mass of every training example.
      prototypes: float32 `[2, align_dim]`, of negative and positive; zeros at first.
      threshold: how unlabeled examples are predicted on average.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    target: alignment.Target
    labels: jax.Array
    prototypes: jax.Array
    threshold: disambiguation.Threshold


def default_config() -> ml_collections.ConfigDict:
    """The authors' settings for CIFAR-10; 'auto' is their number in runs as long as theirs.

    In shorter runs rate, warm-up and momenta follow the length: `pujax.methods.ncpu.length`.
    """

    def auto() -> config_dict.FieldReference:
        return config_dict.FieldReference(length.AUTO, field_type=object)

    config = optimizer_lib.default_config(
        weight_decay=1e-3, lr_schedule="cosine", lr_floor=1e-3, learning_rate=auto()
    )
    config.update(
        {
            "name": "ncpu",
            "num_epochs": length.EPOCHS,
            "warmup_epochs": auto(),
            "batch_size": 256,
            "clip_norm": 30.0,
            "entropy_weight": 5.0,
            "label_momentum": auto(),
            "prototype_momentum": auto(),
            "threshold_momentum": auto(),
            "gate": True,
            **alignment.fields(target_momentum=auto()),
            **views_lib.default_config(crop_area=0.2, **alignment.COLOURS),
        }
    )
    return config


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be, before anything is compiled."""
    c = config
    length.check(c)
    resolved = length.resolved(c, info.n)
    optimizer_lib.check(resolved)
    alignment.check(resolved)
    views_lib.check(c)
    accepted = "True: without random views there is no pair of views to compare"
    views_lib.require_two(c, info, accepted)
    checks.positive("method.clip_norm", c.clip_norm)
    checks.at_least("method.entropy_weight", c.entropy_weight, 0)


def _too_short(config: ml_collections.ConfigDict) -> str | None:
    """What to say of a run in which no unlabeled example can become positive, else None."""
    needed = length.epochs_needed(config)
    if needed <= config.num_epochs:
        return None
    return (
        f"method.num_epochs is {config.num_epochs}, and stored labels of unlabeled examples need "
        f"{needed} to pass one half (method.warmup_epochs={length.warmup_epochs(config)}, label "
        f"momentum {length.label_momentum(config):g}): none can train as positive"
    )


def _class_loss(config, batch, scores, labels, threshold):
    """Cross-entropy to the stored labels, of which the gate makes some negative for this step."""
    targets = labels
    if config.gate:
        probabilities = jax.nn.sigmoid(scores)
        least = disambiguation.class_thresholds(threshold)[0]
        gated = disambiguation.gated_targets(labels, probabilities, batch.labeled, least)
        targets = jnp.where(batch.epoch >= config.warmup_epochs, gated, labels)
    targets = jax.lax.stop_gradient(targets)
    return disambiguation.class_balanced_cross_entropy(scores, targets, batch.labeled)


def _disambiguate(config, state, batch, scores, vectors):
    """Labels, prototypes and threshold after a batch, from its weak scores and its predictions."""
    probabilities = jax.nn.sigmoid(scores)
    # By the prototypes before this batch.
    nearest = disambiguation.prototype_probabilities(state.prototypes, vectors)
    prototypes = disambiguation.update_prototypes(
        state.prototypes,
        vectors,
        disambiguation.pseudo_classes(scores, batch.labeled),
        momentum=config.prototype_momentum,
    )
    threshold = disambiguation.update_threshold(
        state.threshold, probabilities, batch.labeled, momentum=config.threshold_momentum
    )
    labels = state.labels[batch.ids]
    moved = disambiguation.update_labels(
        labels, nearest, batch.labeled, momentum=config.label_momentum
    )
    labels = jnp.where(batch.epoch >= config.warmup_epochs, moved, labels)
    return labels, prototypes, threshold


def _losses(config, aligner, params, state, batch, weak, views):
    """The loss of a step for `params`; `weak` are normalised images.

    Returns:
      `(loss, (metrics, batch_stats, (labels, prototypes, threshold)))`.
    """
    outputs, batch_stats = aligner.network.train_pass(params, state.batch_stats, weak)
    scores = outputs.logits
    is_past = batch.epoch >= config.warmup_epochs
    align, batch_stats, vectors = aligner.loss(
        params, batch_stats, views, scores, uses_pairs=is_past
    )
    found = _disambiguate(config, state, batch, *jax.lax.stop_gradient((scores, vectors)))
    labels, _, threshold = found
    classification = _class_loss(config, batch, scores, labels, threshold)
    ramp = jnp.minimum(batch.epoch / config.warmup_epochs, 1) if config.warmup_epochs else 1.0
    entropy = jnp.mean(losses.entropy(scores))
    loss = classification + config.align_weight * align + config.entropy_weight * ramp * entropy
    metrics = {
        "loss_classification": classification,
        "loss_align": align,
        "loss_entropy": entropy,
        "threshold_negative": disambiguation.class_thresholds(threshold)[0],
    }
    return loss, (metrics, batch_stats, found)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds NcPU."""
    check(config.method, info)
    c, size = length.resolved(config.method, info.n), config.model.image_size
    network = network_lib.build(config, info, embedding_dim=0, aligned_dim=c.align_dim)
    aligner = alignment.Aligner(c, network, c, size)
    alignment.say_of_tables(info)
    optimizer = optimizer_lib.build(c, num_epochs=c.num_epochs)
    clip = optax.clip_by_global_norm(c.clip_norm)
    too_short = _too_short(config.method)
    if too_short:
        _LOG.warning("%s", too_short)
    if config.method.learning_rate == length.AUTO:
        steps = c.warmup_epochs * (info.n // c.batch_size)
        _LOG.info("method.learning_rate is %.3g: the warm-up has %d steps", c.learning_rate, steps)

    def init(key: jax.Array, previous: None, data: TrainingData) -> State:
        del previous
        params, batch_stats = network.init(key, data.inputs[:2], data.encoder)
        return State(
            params=params,
            batch_stats=batch_stats,
            opt_state=optimizer.init(params),
            target=alignment.first_target(params, batch_stats),
            labels=data.labeled.astype(jnp.float32),
            prototypes=jnp.zeros([2, c.align_dim]),
            threshold=disambiguation.first_threshold(),
        )

    def step(state: State, batch: Batch, key: jax.Array):
        weak_key, strong_key = jax.random.split(key)
        weak = network.normalize(views_lib.cropped(weak_key, batch.inputs, c, size=size))
        views, target = aligner.begin(
            state.target, state.params, state.batch_stats, batch.inputs, strong_key
        )

        def loss_of(params):
            return _losses(c, aligner, params, state, batch, weak, views)

        (loss, aux), gradient = jax.value_and_grad(loss_of, has_aux=True)(state.params)
        metrics, batch_stats, (labels, prototypes, threshold) = aux
        moves = network.is_trainable
        if moves:  # the norm is that of what moves
            gradient = jax.tree_util.tree_map_with_path(
                lambda path, x: x if moves(path) else jnp.zeros_like(x), gradient
            )
        gradient, _ = clip.update(gradient, clip.init(state.params))
        moved = optimizer_lib.apply(optimizer, state, gradient, batch.progress)
        state = moved._replace(
            batch_stats=batch_stats,
            target=target,
            labels=state.labels.at[batch.ids].set(labels),
            prototypes=prototypes,
            threshold=threshold,
        )
        return state, metrics | {"loss": loss}

    def outputs(state: State, inputs: jax.Array):
        return network.infer(state.params, state.batch_stats, inputs)

    return Method(
        stages=(Stage("train", c.num_epochs, init, step, Batching(batch_size=c.batch_size)),),
        predict=lambda state, inputs: outputs(state, inputs).logits,
        embed=lambda state, inputs: outputs(state, inputs).features,
        soft_labels=lambda state: state.labels,
        diagnose=lambda estimates: [too_short] if too_short else [],
        encoder=lambda state: encoder_lib.of(state.params, state.batch_stats),
    )
