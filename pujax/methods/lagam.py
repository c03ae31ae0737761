"""LaGAM: group-aware contrastive learning with labels learned by a bi-level update.

Long et al., "Positive-Unlabeled Learning by Latent Group-Aware Meta Disambiguation", CVPR 2024.
Where the paper and the authors' code disagree this follows the code, except that
- labelled positives are pinned by a mask (the code loses the pin after one epoch);
- the label store is always written back;
- positive classes are passed directly instead of flipping labels;
- a support batch of one class only leaves the labels alone instead of giving NaN;
- support batches are always full (the code's eighth batch of an order has 52 of 500 images);
- k-means draws a new subset and new initial centres in every epoch (the code's seed is fixed).
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import accelerator, augment, checks, clustering, contrastive, meta, packing, risks
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import calibration, mixup
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods.base import Method, Stage

NEEDS_NEGATIVES = True
# Points that k-means fits on, per cluster: the cap of the library the authors use.
_MAX_POINTS_PER_CLUSTER = 1000


class State(NamedTuple):
    """Everything that LaGAM's training changes.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state.
      labels: float32 `[n]`, soft label (positive mass) of every training example.
      clusters: int32 `[n]`, k-means cluster of every training example; zeros before the first.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    labels: jax.Array
    clusters: jax.Array


def default_config() -> ml_collections.ConfigDict:
    """The published settings (paper section 4.1 and the authors' command lines)."""
    config = optimizer_lib.default_config()
    config.update(
        {
            "name": "lagam",
            "num_epochs": 400,
            "warmup_epochs": 20,
            "batch_size": 64,
            "support_batch_size": 64,
            # Classification: 'balanced' (the code), 'mean' (paper Eq. 1) or 'nnpu' (Table 3).
            "classification_loss": "balanced",
            "entropy_weight": 0.0,
            "mixup_alpha": 4.0,
            "mixup_weight": 1.0,
            "skip_empty_batches": True,
            # Contrastive part (paper section 3.2).
            "use_contrast": True,
            "contrast_weight": 1.0,
            "temperature": 0.07,
            "embedding_dim": 128,
            "use_groups": True,
            "use_cutoff": True,
            "cutoff": 0.5,
            "use_neighbors": True,
            "num_neighbors": 10,
            "neighbors_after_epoch": 50,
            "num_clusters": 100,
            "kmeans_iterations": 20,
            "kmeans_restarts": 5,
            # Label update (paper section 3.3).
            "use_meta": True,
            "meta_learning_rate": 1e-3,
            "label_update": "projected",
            "rho_start": 0.95,
            "rho_end": 0.80,
            "pin_labeled": True,
            # Views.
            "augment": True,
            "flip": True,
            "padding": 4,
        }
    )
    return config


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be, before anything is compiled."""
    c = config
    optimizer_lib.check(c)
    checks.between("method.warmup_epochs", c.warmup_epochs, 0, c.num_epochs)
    losses = ("balanced", "mean", "nnpu")
    checks.one_of("method.classification_loss", c.classification_loss, losses)
    checks.one_of("method.label_update", c.label_update, ("projected", "normalized"))
    for name in ("temperature", "mixup_alpha", "meta_learning_rate"):
        checks.positive(f"method.{name}", c[name])
    for name in ("mixup_weight", "contrast_weight", "entropy_weight"):
        checks.at_least(f"method.{name}", c[name], 0)
    for name in ("rho_start", "rho_end"):
        checks.between(f"method.{name}", c[name], 0, 1)
    checks.at_least("method.padding", c.padding, 0)
    for name in ("embedding_dim", "kmeans_iterations", "kmeans_restarts"):
        checks.at_least(f"method.{name}", c[name], 1)
    checks.at_least("method.num_neighbors", c.num_neighbors, 0)
    checks.at_least("method.neighbors_after_epoch", c.neighbors_after_epoch, 0)
    checks.between("method.num_clusters", c.num_clusters, 1, info.n)
    if c.use_meta:
        checks.require(
            c.classification_loss != "nnpu",
            "method.classification_loss",
            c.classification_loss,
            "'balanced' or 'mean' while method.use_meta is True (nnPU has no labels to learn)",
        )
        checks.require(
            0 < info.support_positives < info.n_support,
            "data.num_support",
            info.n_support,
            "enough support examples to hold both classes while method.use_meta is True "
            f"({info.support_positives} of these are positive)",
        )
        checks.between("method.support_batch_size", c.support_batch_size, 1, info.n_support)


def label_loss(scores: jax.Array, labels: jax.Array, *, form: str) -> jax.Array:
    """Classification loss on soft labels: class-balanced (the code) or plain mean (paper Eq. 1).

    Args:
      scores: `[batch]`.
      labels: `[batch]` positive mass, or `[batch, 2]` (negative, positive).
      form: 'balanced' or 'mean'.

    Returns:
      A scalar.
    """
    if form == "balanced":
        return meta.balanced_bce(scores, labels)
    if labels.ndim == 1:
        labels = jnp.stack([1 - labels, labels], axis=-1)
    return jnp.mean(
        labels[:, 1] * risks.logistic_loss(scores) + labels[:, 0] * risks.logistic_loss(-scores)
    )


def update_labels(
    classifier: Any,
    features: jax.Array,
    labels: jax.Array,
    support_features: jax.Array,
    support_labels: jax.Array,
    *,
    pinned: jax.Array,
    rho: jax.Array,
    learning_rate: float,
    form: str = "balanced",
    rule: str = "projected",
) -> jax.Array:
    """One label update of a batch (paper Eq. 8-11): virtual step, label gradient, projection, EMA.

    Only the classifier's weight vector moves in the virtual step, so features are constants: they
    come from a training-mode pass whose running statistics are dropped. A support batch of one
    class says nothing about the other and leaves the labels as they are.

    Args:
      classifier: `{'kernel': [dim, 1], 'bias': [1]}`.
      features: `[batch, dim]` of the training batch.
      labels: `[batch]`, stored positive mass.
      support_features: `[support_batch, dim]`.
      support_labels: `[support_batch]`, 0 or 1.
      pinned: bool `[batch]`, examples whose label stays 1.
      rho: share of the old label.
      learning_rate: of the virtual step.
      form: as in `label_loss`.
      rule: 'projected' takes the sign of the gradient (the method); 'normalized' is the soft
        update of Table 4: the gradient difference, scaled to a largest magnitude of 1 over the
        batch, places the target linearly between 0 and 1.

    Returns:
      `[batch]`, the new positive mass.
    """

    def score(params, inputs):
        product = jnp.dot(inputs, params["kernel"][:, 0], precision="highest")
        return product + params["bias"][0]

    def inner_loss(params, shift):
        both = jnp.stack([1 - labels, labels], axis=-1) + shift
        return label_loss(score(params, features), both, form=form)

    def outer_loss(params):
        return label_loss(score(params, support_features), support_labels, form=form)

    gradient = meta.meta_gradient(
        inner_loss,
        outer_loss,
        classifier,
        jnp.zeros([labels.shape[0], 2], features.dtype),
        learning_rate=learning_rate,
        trainable=lambda path: path[-1].key == "kernel",
    )
    if rule == "projected":
        targets = meta.project_labels(gradient)
    else:
        pull = gradient[:, 0] - gradient[:, 1]
        largest = jnp.max(jnp.abs(pull))
        targets = (1 + pull / jnp.where(largest > 0, largest, 1)) / 2
    updated = meta.ema_labels(labels, targets, rho=rho, pinned=pinned)
    mean = jnp.mean(support_labels)
    return jnp.where((mean > 0) & (mean < 1), updated, labels)


def _contrastive_loss(config, weak_pass, strong, clusters, epoch, *, in_warmup):
    """Instance and group terms (paper Eq. 4-6); the compiler computes their similarities once."""
    weak = weak_pass.embedding
    instance = contrastive.instance_discrimination(weak, strong, temperature=config.temperature)
    if in_warmup or not config.use_groups:
        return instance, jnp.zeros([])
    sides = None
    if config.use_cutoff:
        sides = jax.lax.stop_gradient(weak_pass.logits) > config.cutoff
    find = {"clusters": clusters, "sides": sides}
    positives = contrastive.latent_group_positives(weak, strong, **find)
    if config.use_neighbors:
        near = contrastive.latent_group_positives(
            weak, strong, **find, num_neighbors=config.num_neighbors
        )
        positives = jnp.where(epoch > config.neighbors_after_epoch, near, positives)
    group = contrastive.group_contrast(weak, strong, positives, temperature=config.temperature)
    return instance, group


class _Views(NamedTuple):
    """Normalised views of a batch, `[batch, ...]` each, and how it was mixed.

    Attributes:
      mixed: weak views, each mixed with its partner's.
      weak: weak views.
      strong: strong views; None without the contrastive part.
      lam: share of the first example in `mixed`.
      partner: int32 `[batch]`, rows of the second.
    """

    mixed: jax.Array
    weak: jax.Array
    strong: jax.Array | None
    lam: jax.Array
    partner: jax.Array


def _views(config, network, batch, key):
    """Draws the views of a batch."""
    weak_key, strong_key, mix_key, pair_key = jax.random.split(key, 4)
    weak = strong = batch.inputs
    if config.augment:
        how = {"flip": config.flip, "padding": config.padding}
        weak = augment.weak_view(weak_key, batch.inputs, **how)
        strong = augment.strong_view(strong_key, batch.inputs, **how)
    weak = network.normalize(weak)
    lam = mixup.larger_lam(mix_key, config.mixup_alpha)
    partner = jax.random.permutation(pair_key, weak.shape[0])
    mixed = mixup.mix(weak, weak[partner], lam)
    strong = network.normalize(strong) if config.use_contrast else None
    return _Views(mixed, weak, strong, lam, partner)


def _classification(config, info, scores, batch, labels):
    """Losses of the weak and of the mixed view, whose scores and labels are pairs."""
    if config.classification_loss == "nnpu":
        loss = risks.nnpu(scores[0], batch.labeled, **calibration.risk_numbers(info))
        return loss, jnp.zeros([])
    weak_loss = label_loss(scores[0], labels[0], form=config.classification_loss)
    if config.entropy_weight:
        weak_loss += config.entropy_weight * _mean_entropy(scores[0])
    return weak_loss, label_loss(scores[1], labels[1], form=config.classification_loss)


def _new_labels(config, network, state, batch, weak_pass):
    """The label update of step 4a, on constants: nothing here feeds the real gradient."""
    params, features = jax.lax.stop_gradient((state.params, weak_pass.features))
    images = network.normalize(batch.support_inputs)
    support, _ = network.train_pass(params, state.batch_stats, images)
    share = batch.epoch / config.num_epochs
    return update_labels(
        params["classifier"],
        features,
        state.labels[batch.ids],
        support.features,
        batch.support_labels,
        pinned=(batch.labeled > 0) & config.pin_labeled,
        rho=config.rho_start + (config.rho_end - config.rho_start) * share,
        learning_rate=config.meta_learning_rate,
        form=config.classification_loss,
        rule=config.label_update,
    )


def _losses(config, info, network, params, state, batch, views, *, in_warmup):
    """The loss of a step for `params`, all other parts of `state` as they are.

    Returns:
      `(loss, (metrics, batch_stats, labels))`, with the batch's new soft labels `[batch]`.
    """
    # In the order of the reference, each moving the running statistics.
    seen = [views.mixed, views.weak, *([views.strong] if config.use_contrast else [])]
    (mixed_pass, weak_pass, *strong_pass), stats = network.train_passes(
        params, state.batch_stats, seen, with_embedding=config.use_contrast
    )
    labels = state.labels[batch.ids]
    if config.use_meta and not in_warmup:
        labels = _new_labels(config, network, state, batch, weak_pass)
    mixed_labels = mixup.mix(labels, labels[views.partner], views.lam)
    weak_loss, mixed_loss = _classification(
        config, info, (weak_pass.logits, mixed_pass.logits), batch, (labels, mixed_labels)
    )
    instance = group = jnp.zeros([])
    if config.use_contrast:
        instance, group = _contrastive_loss(
            config,
            weak_pass,
            strong_pass[0].embedding,
            state.clusters[batch.ids],
            batch.epoch,
            in_warmup=in_warmup,
        )
    loss = (
        weak_loss + config.mixup_weight * mixed_loss + config.contrast_weight * (instance + group)
    )
    metrics = {
        "loss_classification": weak_loss,
        "loss_mixup": mixed_loss,
        "loss_instance": instance,
        "loss_group": group,
    }
    return loss, (metrics, stats, labels)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds LaGAM for a resolved configuration and a data set's numbers."""
    c = config.method
    check(c, info)
    network = network_lib.build(config, info, embedding_dim=c.embedding_dim)
    optimizer = optimizer_lib.build(c, num_epochs=c.num_epochs)
    few_kernels = accelerator.few_kernels(config.run.few_kernels)
    support = c.support_batch_size if c.use_meta else 0
    batching = Batching(batch_size=c.batch_size, support_batch_size=support)

    def init(key: jax.Array, previous: State | None, data: TrainingData) -> State:
        if previous is not None:
            return previous
        params, batch_stats = network.init(key, data.inputs[:2], data.encoder)
        return State(
            params=params,
            batch_stats=batch_stats,
            opt_state=optimizer.init(params),
            labels=data.labeled.astype(jnp.float32),
            clusters=jnp.zeros(data.labeled.shape, jnp.int32),
        )

    def step(state: State, batch: Batch, key: jax.Array, *, in_warmup: bool):
        views = _views(c, network, batch, key)

        def loss_of(params):
            return _losses(c, info, network, params, state, batch, views, in_warmup=in_warmup)

        updated, loss, (metrics, stats, labels) = optimizer_lib.descend(
            optimizer, state, loss_of, batch.progress
        )
        updated = updated._replace(batch_stats=stats, labels=state.labels.at[batch.ids].set(labels))
        # A batch without positive mass leaves the balanced loss undefined; the code drops it whole.
        may_skip = c.skip_empty_batches and c.classification_loss == "balanced"
        skip = jnp.logical_and(may_skip, jnp.sum(state.labels[batch.ids]) <= 0)
        state = packing.choose(skip, state, updated, packed=few_kernels)
        return state, metrics | {"loss": loss, "skipped": skip.astype(jnp.float32)}

    @jax.jit
    def embed(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs, with_embedding=True).embedding

    def refresh(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        points = batching_lib.map_batches(
            embed, data.inputs, batch_size=config.run.eval_batch_size, args=(state,)
        )
        return state._replace(clusters=_cluster(c, key, points))

    def predict(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs).logits

    needs_clusters = c.use_contrast and c.use_groups
    warmup = Stage(
        name="warmup",
        num_epochs=c.warmup_epochs,
        init=init,
        step=lambda *args: step(*args, in_warmup=True),
        batching=Batching(batch_size=c.batch_size),
    )
    main = Stage(
        name="main",
        num_epochs=c.num_epochs - c.warmup_epochs,
        init=init,
        step=lambda *args: step(*args, in_warmup=False),
        batching=batching,
        refresh=refresh if needs_clusters else None,
    )
    return Method(
        stages=tuple(stage for stage in (warmup, main) if stage.num_epochs),
        predict=predict,
        embed=embed,
        soft_labels=(lambda state: state.labels) if c.use_meta else None,
    )


def _mean_entropy(scores):
    """Mean entropy of the two-way prediction, clipped as the classification loss is."""
    p = jnp.clip(jax.nn.sigmoid(scores), 1e-4, 1 - 1e-4)
    return -jnp.mean(p * jnp.log(p) + (1 - p) * jnp.log1p(-p))


def _cluster(config, key, points):
    """k-means ids of all points, fitted on at most 1000 points per cluster."""
    sample_key, fit_key = jax.random.split(key)
    size = min(points.shape[0], _MAX_POINTS_PER_CLUSTER * config.num_clusters)
    chosen = points
    if size < points.shape[0]:
        chosen = points[jax.random.permutation(sample_key, points.shape[0])[:size]]
    fitted = clustering.kmeans(
        fit_key,
        chosen,
        num_clusters=config.num_clusters,
        num_iterations=config.kmeans_iterations,
        num_restarts=config.kmeans_restarts,
    )
    return clustering.assign_clusters(points, fitted.centers)[0].astype(jnp.int32)
