"""P3MIX: mixup with the right partner (Li et al., ICLR 2022), the shared part of its two variants.

Unlabeled examples count as negative and everything is mixed with a partner. An unlabeled example
that the network is unsure about gets one out of a pool of the labelled positives nearest to the
learned boundary, which turns towards positive what is likely a hidden positive; all others get a
random one. Where the paper was not at hand this follows public re-implementations:
- partners from the pool, and the correction of labels, begin after `start_hmix` epochs;
- being unsure is judged by a training-mode pass over the unlabeled part of the batch;
- one mixing share per batch, and the first example of a pair keeps the larger part;
- the teacher is an average over parameters, moves once per epoch, and judges in training mode.
Random partners are a permutation of the batch throughout.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax

from pujax import checks
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import classifier, mixup, sections, threshold
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._p3mix import parts
from pujax.methods.base import Method, Stage


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state.
      teacher: averaged parameters, or None without the early-learning term.
      pool_ids: int32 `[pool]`, the candidate positives, least certain first.
      pool_inputs: uint8 `[pool, ...]`, their inputs.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    teacher: Any
    pool_ids: jax.Array
    pool_inputs: jax.Array


def default_config(name: str, **changes: Any) -> ml_collections.ConfigDict:
    """Settings that both variants share.

    The pool, the start and the halving of the learning rate every 20 epochs are those of one public
    re-implementation; Adam's moments, learning rate, weight decay, batch size and length those of
    another. None was checked against the authors' own code.

    `mix_at`: 'input', or 'features' for what the classifier layer sees. `positives_per_batch` 0 is
    half of the batch, `steps_per_epoch` 0 one pass over the data. `threshold`: 'zero' is published;
    'prior' leaves the share of positives of U above the cut; 'auto' is 'prior' where one is known.

    Args:
      name: of the method.
      **changes: fields to set.

    Returns:
      A new `ConfigDict`.
    """
    settings = {
        "learning_rate": 1e-3,
        "beta1": 0.5,
        "beta2": 0.99,
        "weight_decay": 5e-4,
        "lr_schedule": "step",
        "lr_factor": 0.5,
        "lr_every": 20,
        "batching": "separate",
        "steps_per_epoch": 0,
        "pool_size": 96,
        "start_hmix": 5,
        "gamma": 0.8,
        "mixup_alpha": 1.0,
        "mix_at": "input",
        "unlabeled_weight": 1.0,
        "entropy_weight": 0.1,
        "relabel": False,
        "elr_weight": 0.0,
        "ema_start": 0,
        "ema_decay": 0.997,
        "threshold": "auto",
    }
    return sections.baseline_config(name, **(settings | changes))


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    c = config
    sections.check(c)
    checks.one_of("method.batching", c.batching, ("separate",))
    checks.one_of("method.mix_at", c.mix_at, ("input", "features"))
    checks.at_least("method.pool_size", c.pool_size, 1)
    checks.between("method.gamma", c.gamma, 0.5, 1)
    checks.between("method.ema_decay", c.ema_decay, 0, 1)
    checks.positive("method.mixup_alpha", c.mixup_alpha)
    for name in ("steps_per_epoch", "start_hmix", "ema_start"):
        checks.at_least(f"method.{name}", c[name], 0)
    for name in ("unlabeled_weight", "entropy_weight", "elr_weight"):
        checks.at_least(f"method.{name}", c[name], 0)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds P3MIX; the first rows of every batch are labelled positives, the others are from U."""
    c = config.method
    check(c)
    num_positives = _num_positives(c)
    checks.between("method.positives_per_batch", num_positives, 1, c.batch_size - 1)
    pool_size = min(c.pool_size, info.n_p)
    network = network_lib.build(config, info, embedding_dim=0)
    optimizer = optimizer_lib.build(c, num_epochs=c.num_epochs)

    def init(key: jax.Array, previous: State | None, data: TrainingData) -> State:
        del previous  # there is one stage only
        params, batch_stats = network.init(key, data.inputs[:2], data.encoder)
        ids = _positives(data, pool_size)
        return State(
            params=params,
            batch_stats=batch_stats,
            opt_state=optimizer.init(params),
            teacher=params if c.elr_weight else None,
            pool_ids=ids,
            pool_inputs=data.inputs[ids],
        )

    @jax.jit
    def score(params, batch_stats, inputs: jax.Array) -> jax.Array:
        return network.infer(params, batch_stats, inputs).logits

    def refresh(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        del key
        ids = _positives(data, info.n_p)
        scores = batching_lib.map_batches(
            score,
            data.inputs[ids],
            batch_size=config.run.eval_batch_size,
            args=(state.params, state.batch_stats),
        )
        ids = ids[parts.least_certain(scores, size=pool_size)]
        teacher = state.teacher
        if c.elr_weight:
            done = jnp.int32(epoch)  # an array: the decay is computed in float32
            decay = parts.teacher_decay(done, start=c.ema_start, limit=c.ema_decay)
            # The step size is the teacher's share: 1 - (1 - decay) would be rounded.
            teacher = optax.incremental_update(teacher, state.params, decay)
        return state._replace(
            teacher=teacher,
            pool_ids=ids,
            pool_inputs=data.inputs[ids],
        )

    def step(state: State, batch: Batch, key: jax.Array):
        pairs = _pairs(c, network, state, batch, key)

        def loss_of(params):
            return _loss(c, network, params, state, batch, pairs)

        state, loss, (metrics, stats) = optimizer_lib.descend(
            optimizer, state, loss_of, batch.progress
        )
        return state._replace(batch_stats=stats), metrics | {"loss": loss}

    def embed(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs).features

    batching = Batching(c.batch_size, num_positives=num_positives, steps=c.steps_per_epoch)
    method = Method(
        stages=(Stage("train", c.num_epochs, init, step, batching, refresh),),
        predict=lambda state, inputs: score(state.params, state.batch_stats, inputs),
        embed=embed,
    )
    return threshold.wrap(method, config, info)


class _Pairs(NamedTuple):
    """A batch and what it is mixed with.

    Attributes:
      images: `[batch, ...]`, normalised views, labelled positives first.
      partners: `[batch, ...]`, the view that each is mixed with.
      targets: `[batch]`, mixed positive mass.
      teacher_targets: `[batch]`, mixed probabilities of the teacher; None without it.
      lam: share of the first example.
      ambiguous: bool `[unlabeled]`, who got a candidate positive as partner.
      relabeled: bool `[unlabeled]`, who counts as positive.
    """

    images: jax.Array
    partners: jax.Array
    targets: jax.Array
    teacher_targets: jax.Array | None
    lam: jax.Array
    ambiguous: jax.Array
    relabeled: jax.Array


def _pairs(config, network, state, batch, key) -> _Pairs:
    """Chooses the partner of every example, and corrects labels."""
    num_positives = _num_positives(config)
    num_unlabeled = config.batch_size - num_positives
    view_key, pool_key, pick_key, pair_key, lam_key = jax.random.split(key, 5)
    images = classifier.weak_view(config, network, batch.inputs, view_key)
    picks = jax.random.randint(pick_key, [num_unlabeled], 0, state.pool_ids.shape[0])
    candidates = classifier.weak_view(config, network, state.pool_inputs[picks], pool_key)

    active = batch.epoch >= config.start_hmix
    opinion, _ = network.train_pass(state.params, state.batch_stats, images[num_positives:])
    probabilities = jax.nn.sigmoid(opinion.logits)
    relabeled = active & config.relabel & (probabilities >= config.gamma)
    targets = jnp.concatenate([jnp.ones([num_positives]), relabeled.astype(jnp.float32)])
    rows, ambiguous = parts.choose_partners(
        pair_key, probabilities, gamma=config.gamma, batch_size=config.batch_size, active=active
    )
    lam = mixup.larger_lam(lam_key, config.mixup_alpha)
    partners = jnp.concatenate([images, candidates])[rows]

    def mixed(values: jax.Array) -> jax.Array:
        """Numbers of the batch, mixed with those of the partners; candidates have 1."""
        return mixup.mix(values, _with_candidates(values, num_unlabeled)[rows], lam)

    targets, teacher_targets = mixed(targets), None
    if config.elr_weight:
        teacher, _ = network.train_pass(state.teacher, state.batch_stats, images)
        teacher_targets = mixed(jax.nn.sigmoid(teacher.logits))
    return _Pairs(images, partners, targets, teacher_targets, lam, ambiguous, relabeled)


def _mixed_scores(config, network, params, batch_stats, pairs):
    """Scores of mixed inputs or of mixed features, and the running statistics."""
    if config.mix_at == "input":
        blend = mixup.mix(pairs.images, pairs.partners, pairs.lam)
        outputs, stats = network.train_pass(params, batch_stats, blend)
        return outputs.logits, stats
    # The classifier layer is affine: it takes mixed features to mixed logits.
    views = [pairs.images, pairs.partners]
    (first, second), stats = network.train_passes(params, batch_stats, views)
    return mixup.mix(first.logits, second.logits, pairs.lam), stats


def _loss(config, network, params, state, batch, pairs):
    """The loss of mixed examples, and `(metrics, batch_stats)`."""
    scores, stats = _mixed_scores(config, network, params, state.batch_stats, pairs)
    terms = parts.losses(scores, pairs.targets, num_positives=_num_positives(config))
    loss = terms.positive + config.unlabeled_weight * terms.unlabeled
    loss += config.entropy_weight * terms.entropy
    metrics = {
        "loss_positive": terms.positive,
        "loss_unlabeled": terms.unlabeled,
        "entropy": terms.entropy,
        "ambiguous": jnp.mean(pairs.ambiguous),
        "relabeled": jnp.mean(pairs.relabeled),
    }
    if config.elr_weight:
        # Not before the teacher is an average of trained networks.
        taught = batch.stage_epoch > config.ema_start
        agreement = parts.early_learning(scores, pairs.teacher_targets)
        metrics["loss_elr"] = jnp.where(taught, agreement, 0)
        loss += config.elr_weight * metrics["loss_elr"]
    return loss, (metrics, stats)


def _num_positives(config: ml_collections.ConfigDict) -> int:
    """Labelled positives of a batch, its first rows."""
    return config.positives_per_batch or config.batch_size // 2


def _positives(data: TrainingData, count: int) -> jax.Array:
    """Ids of the first `count` labelled positives, in order."""
    return jnp.argsort(~data.labeled, stable=True)[:count].astype(jnp.int32)


def _with_candidates(values: jax.Array, count: int) -> jax.Array:
    """Numbers of a batch followed by 1 for every candidate positive."""
    return jnp.concatenate([values, jnp.ones([count], values.dtype)])
