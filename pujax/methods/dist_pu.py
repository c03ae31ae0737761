"""Dist-PU: match the share of predicted positives, then sharpen it (Zhao et al., CVPR 2022).

A warm-up trains `risks.dist_pu`, which asks that labelled positives be predicted positive and that
the predicted share of positives in U be the prior, and a little of the entropy of U's predictions.
A second phase starts a new optimizer, raises the entropy's weight step by step and adds mixup: a
memory holds a probability for every training example, the target of mixed examples. This follows
the authors' code, whose scale of the risk their settings belong to:
- a batch's mixed images pass the network first, then the images themselves, and both move the
  running statistics;
- the memory starts from an evaluation-mode pass over the data and takes over the probabilities of
  each batch after its step, from the pass that the step trained on;
- the target of a labelled positive is always 1. The code stores its probability and puts the 1 in
  its place whenever it is read; here 1 is what the memory keeps, which trains the same network.
The risk gets scores as they are; the code clips those of the second phase to [-10, 10] as well,
which moves a probability by at most 5e-5.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import arrays, checks, risks
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import alignment, calibration, classifier, losses, online, sections
from pujax.methods._common import mixup as mixup_lib
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Method, Stage

STAGE_LENGTHS = ("warmup_epochs",)
_WEIGHTS = ("warmup_entropy_weight", "entropy_weight", "mixed_entropy_weight", "mixup_weight")
# Scalars that can be learned, by phase.
_LEARNABLE = {
    "warmup": ("prior", online.AUGMENTATION, _WEIGHTS[0]),
    "main": ("prior", online.AUGMENTATION, *_WEIGHTS[1:]),
}


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state of the phase.
      labels: float32 `[n]`, the memory: probability of every training example to be positive, 1 for
        labelled positives. Before the second phase 0 for all others.
      learned: scalars that are learned online, else None.
      target: the copy of the network that representations are aligned with, else None.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    labels: jax.Array
    learned: online.Learned | None = None
    target: alignment.Target | None = None


def default_config() -> ml_collections.ConfigDict:
    """The authors' settings; unprefixed optimizer fields are those of the second phase.

    `num_epochs` is the length of both phases. `calibration` says which share of positives is asked
    of U, see `calibration.unlabeled_prior`.
    """
    return sections.baseline_config(
        "dist_pu",
        num_epochs=120,
        learning_rate=5e-5,
        weight_decay=1e-3,
        lr_schedule="cosine",
        lr_floor=0.7,
        entropy_weight=0.004,
        mixed_entropy_weight=0.04,
        mixup_weight=5.0,
        mixup_alpha=6.0,
        warmup_epochs=60,
        warmup_learning_rate=5e-4,
        warmup_weight_decay=5e-3,
        warmup_lr_floor=0.0,
        warmup_entropy_weight=2e-3,
        calibration="auto",
        **online.default_config(),
        **alignment.switch(),
    )


def check_phases(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings of the two phases, without entropies, that cannot be."""
    sections.check(config)
    checks.between("method.warmup_epochs", config.warmup_epochs, 0, config.num_epochs)
    checks.positive("method.mixup_alpha", config.mixup_alpha)
    checks.positive("method.warmup_learning_rate", config.warmup_learning_rate)
    checks.between("method.warmup_lr_floor", config.warmup_lr_floor, 0, 1)
    for name in ("warmup_weight_decay", "mixup_weight"):
        checks.at_least(f"method.{name}", config[name], 0)


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    check_phases(config)
    for name in ("warmup_entropy_weight", "entropy_weight", "mixed_entropy_weight"):
        checks.at_least(f"method.{name}", config[name], 0)
    if "prior" in online.names(config):
        accepted = "'es' while method.online has 'prior', which decides the sign of a difference"
        estimator = config.online_estimator
        checks.require(estimator == "es", "method.online_estimator", estimator, accepted)


def entropy_ramp(epoch: jax.Array, *, num_epochs: int) -> jax.Array:
    """Share of the entropy's weight at an epoch of the second phase: from 0 up, ever faster.

    `1 - cos(pi / 2 * epoch / num_epochs)`, as in the authors' code, to the precision of float32.

    Args:
      epoch: whole epochs of the second phase that are done.
      num_epochs: its length.

    Returns:
      A scalar in [0, 1].
    """
    # Not as a difference: of two near numbers, it loses digits in the first epochs.
    return 2 * jnp.square(jnp.sin(jnp.pi / 4 * epoch / num_epochs))


def clipped_cross_entropy(scores: jax.Array, targets: jax.Array) -> jax.Array:
    """Mean cross-entropy against probabilities, of scores clipped to [-10, 10].

    Args:
      scores: `[batch]`.
      targets: `[batch]`, probabilities of the positive class.

    Returns:
      A scalar.
    """
    return jnp.mean(losses.soft_cross_entropy(_clipped(scores), targets))


def probability(scores: jax.Array) -> jax.Array:
    """What the memory keeps: `sigmoid` of scores clipped to [-10, 10]."""
    return jax.nn.sigmoid(_clipped(scores))


def _clipped(scores: jax.Array) -> jax.Array:
    return arrays.clipped(scores, -risks.ENTROPY_CLIP, risks.ENTROPY_CLIP)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds Dist-PU for a resolved configuration and a data set's numbers."""
    c = config.method
    check(c)
    network = network_lib.build(config, info, embedding_dim=0, aligned_dim=alignment.width(c))
    learnable = {"prior": online.class_prior(info), **online.augmentation(c)}
    lengths = {"warmup": c.warmup_epochs, "main": c.num_epochs - c.warmup_epochs}
    trained = {name for phase, length in lengths.items() if length for name in _LEARNABLE[phase]}
    learnable |= {name: online.weight(c[name]) for name in _WEIGHTS if name in trained}
    parts = _Parts(
        config=c,
        network=network,
        batching=sections.batches(c, info),
        info=info,
        share=calibration.unlabeled_prior(info, c.calibration),
        main_epochs=c.num_epochs - c.warmup_epochs,
        learn=online.build(c, info, network, learnable),
        align=alignment.switched(c, info, network),
    )

    def predict(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs).logits

    def embed(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs).features

    warmup = _stage(parts, "warmup", c.warmup_epochs, _warmup_loss, settings=warmup_section(c))
    main = _stage(parts, "main", parts.main_epochs, _main_loss, settings=c)
    main = main._replace(refresh=filling(network, batch_size=config.run.eval_batch_size))
    method = Method(
        stages=tuple(stage for stage in (warmup, main) if stage.num_epochs),
        predict=predict,
        embed=embed,
        soft_labels=lambda state: state.labels,
    )
    return parts.learn.reported(method, info) if parts.learn else method


def warmup_section(config: ml_collections.ConfigDict) -> ml_collections.ConfigDict:
    """The section with the rate, the decay and the schedule's floor of the first phase."""
    changed = ml_collections.ConfigDict(config.to_dict())
    for name in ("learning_rate", "weight_decay", "lr_floor"):
        changed[name] = config[f"warmup_{name}"]
    return changed


def filling(network: Network, *, batch_size: int) -> Callable[..., Any]:
    """A refresh that fills a state's `labels` from an evaluation-mode pass over the data.

    Args:
      network: of the `params` and `batch_stats` of the state.
      batch_size: examples per call.
    """

    @jax.jit
    def first_labels(params, batch_stats, inputs: jax.Array) -> jax.Array:
        return probability(network.infer(params, batch_stats, inputs).logits)

    def fill(state: Any, data: TrainingData, key: jax.Array, epoch: int = 0) -> Any:
        del key, epoch
        labels = batching_lib.map_batches(
            first_labels,
            data.inputs,
            batch_size=batch_size,
            args=(state.params, state.batch_stats),
        )
        return state._replace(labels=jnp.where(data.labeled, 1, labels))

    return fill


class MixedPass(NamedTuple):
    """What a step of the second phase computes, of mixed and of plain images.

    Attributes:
      scores: `[batch]` of the plain images.
      mixed_scores: `[batch]` of the mixed ones.
      batch_stats: running statistics after both.
      labels: `[n]`, the memory with the probabilities of the batch, 1 for labelled positives.
      loss: cross-entropy of the mixed scores against the mixed memory, a scalar.
    """

    scores: jax.Array
    mixed_scores: jax.Array
    batch_stats: Any
    labels: jax.Array
    loss: jax.Array


def mixed_pass(
    network: Network,
    params: Any,
    state: Any,
    images: jax.Array,
    batch: Batch,
    key: jax.Array,
    *,
    alpha: float,
) -> MixedPass:
    """Passes a batch mixed with itself through the network, then the batch as it is.

    Args:
      network: what is trained.
      params: its parameters.
      state: with `batch_stats` and the memory `labels`.
      images: the batch's weak view.
      batch: the batch.
      key: of the mixing share and of the partners.
      alpha: of the Beta distribution of the share.
    """
    lam_key, pair_key = jax.random.split(key)
    lam = mixup_lib.draw_lam(lam_key, alpha)
    partner = jax.random.permutation(pair_key, images.shape[0])
    stored = state.labels[batch.ids]
    targets = mixup_lib.mix(stored, stored[partner], lam)
    mixed = mixup_lib.mix(images, images[partner], lam)
    (first, outputs), stats = network.train_passes(params, state.batch_stats, [mixed, images])
    updated = jnp.where(batch.labeled > 0, 1, probability(outputs.logits))
    labels = state.labels.at[batch.ids].set(jax.lax.stop_gradient(updated))
    loss = clipped_cross_entropy(first.logits, targets)
    return MixedPass(outputs.logits, first.logits, stats, labels, loss)


class _Parts(NamedTuple):
    """What both phases are made of.

    Attributes:
      config: the method's section.
      network: what is trained.
      batching: which examples a batch holds.
      info: numbers of the data set.
      share: share of positives asked of U.
      main_epochs: length of the second phase.
      learn: what is learned online, or None.
      align: what aligns representations, or None.
    """

    config: ml_collections.ConfigDict
    network: Network
    batching: Batching
    info: DataInfo
    share: float
    main_epochs: int
    learn: online.Online | None
    align: alignment.Aligner | None


def _stage(parts: _Parts, name: str, num_epochs: int, loss, *, settings) -> Stage:
    """A phase with an optimizer of its own.

    Args:
      parts: see `_Parts`.
      name: of the stage.
      num_epochs: its length.
      loss: `(parts, params, state, images, batch, key, numbers) -> (loss, (batch_stats, labels,
        metrics), scores)`, where `numbers` are those of `_numbers`, learned ones replaced, and the
        scores those of the weak view.
      settings: section with the optimizer's fields.
    """
    optimizer = optimizer_lib.build(settings, num_epochs=max(num_epochs, 1))
    learn = parts.learn and parts.learn.only(_LEARNABLE[name])
    batching = learn.batching(parts.batching, parts.info) if learn else parts.batching

    def init(key: jax.Array, previous: State | None, data: TrainingData) -> State:
        if previous is None:
            params, batch_stats = parts.network.init(key, data.inputs[:2], data.encoder)
        else:
            params, batch_stats = previous.params, previous.batch_stats
        labels = data.labeled.astype(jnp.float32)
        before = previous.learned if previous else None
        learned = learn.init(len(labels), before) if learn else None
        target = previous.target if previous else None
        if target is None and parts.align:
            target = alignment.first_target(params, batch_stats)
        return State(params, batch_stats, optimizer.init(params), labels, learned, target)

    def step(state: State, batch: Batch, key: jax.Array):
        view_key, loss_key = jax.random.split(key)
        images = classifier.weak_view(parts.config, parts.network, batch.inputs, view_key)
        state, views = alignment.begin(parts.align, state, batch, key)

        def loss_of(params, scalars=None):
            seen, numbers = images, _numbers(parts, {})
            if scalars:
                seen, given = learn.blended(images, batch.inputs, view_key, {"scalars": scalars})
                numbers = _numbers(parts, given["scalars"])
            total, (stats, labels, metrics), scores = loss(
                parts, params, state, seen, batch, loss_key, numbers
            )
            if parts.align:
                total, stats, metrics = parts.align.add(
                    (total, stats, metrics),
                    scores,
                    params=params,
                    views=views,
                    batch=batch,
                )
            return total, (stats, labels, metrics)

        state, loss_of_step, found = online.update(learn, state, loss_of, batch, loss_key)
        state, total, (stats, labels, metrics) = optimizer_lib.descend(
            optimizer, state, loss_of_step, batch.stage_progress
        )
        return state._replace(batch_stats=stats, labels=labels), metrics | found | {"loss": total}

    return Stage(name, num_epochs, init, step, batching, refresh_every=0)


def _numbers(parts, learned):
    """Share of positives asked of U, and weights of the terms, learned ones replaced."""
    weights = {name: parts.config[name] for name in _WEIGHTS}
    shares = {"share": parts.share}
    if "prior" in learned:
        known = calibration.at_prior(parts.info, learned["prior"])
        shares = {"share": calibration.unlabeled_prior(known, parts.config.calibration)}
    return weights | learned | shares


def _matching(numbers, scores, labeled):
    """Label-distribution risk and the entropy over U."""
    entropy = risks.prediction_entropy(scores, weights=1 - labeled)
    return risks.dist_pu(scores, labeled, prior=numbers["share"]), entropy


def _warmup_loss(parts, params, state, images, batch, key, numbers):
    """The first phase's; the memory stays as it is."""
    del key
    outputs, stats = parts.network.train_pass(params, state.batch_stats, images)
    risk, entropy = _matching(numbers, outputs.logits, batch.labeled)
    loss = risk + numbers["warmup_entropy_weight"] * entropy
    return loss, (stats, state.labels, {"risk": risk, "entropy": entropy}), outputs.logits


def _main_loss(parts, params, state, images, batch, key, numbers):
    """The second phase's, with mixup; the memory takes over the batch's probabilities."""
    alpha = parts.config.mixup_alpha
    passed = mixed_pass(parts.network, params, state, images, batch, key, alpha=alpha)
    risk, entropy = _matching(numbers, passed.scores, batch.labeled)
    mixed_entropy = risks.prediction_entropy(passed.mixed_scores)
    ramp = entropy_ramp(jnp.floor(batch.stage_progress), num_epochs=parts.main_epochs)
    loss = risk + numbers["entropy_weight"] * ramp * entropy
    loss += numbers["mixed_entropy_weight"] * mixed_entropy + numbers["mixup_weight"] * passed.loss
    metrics = {
        "risk": risk,
        "entropy": entropy,
        "mixed_entropy": mixed_entropy,
        "loss_mixup": passed.loss,
    }
    return loss, (passed.batch_stats, passed.labels, metrics), passed.scores
