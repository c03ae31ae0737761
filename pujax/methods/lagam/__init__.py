"""LaGAM: group-aware contrastive learning with labels learned by a bi-level update.

Long et al., "Positive-Unlabeled Learning by Latent Group-Aware Meta Disambiguation", CVPR 2024.
Where the paper and the authors' code disagree this follows the code, except that
- labelled positives are pinned by a mask (the code loses the pin after one epoch);
- the label store is always written back;
- positive classes are passed directly instead of flipping labels;
- a support batch of one class only leaves the labels alone instead of giving NaN;
- `entropy_weight`, which is 0 in both, adds the entropy to the network's own step alone;
- support batches are always full (the code's eighth batch of an order has 52 of 500 images);
- k-means draws a new subset and new initial centres in every epoch (the code's seed is fixed).

`align_weight` adds the alignment of two more strong views (`_common.alignment`) to the loss of the
network's own step, in the warm-up and after it. Nobody has published the two together. The virtual
step and the loss of the support set are without it, so that labels follow the published gradient.
Pairs are those of one predicted class, by the scores of the weak view, as in NcPU: the soft labels
would call all of U one class until the first of them have come to one half.

The settings are in `settings`, the label update in `label_update`, what else its virtual steps can
be in `virtual_steps`, a support set without clean examples in `pseudo_support`, the training losses
in `losses`, from which score on an example is positive in `decision`.
"""

import functools
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import accelerator, clustering, packing
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import alignment, mixup
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common import views as views_lib
from pujax.methods.base import Method, Stage
from pujax.methods.lagam import (
    decision,
    label_update,
    losses,
    pseudo_support,
    settings,
    virtual_steps,
)
from pujax.methods.lagam.label_update import label_loss as label_loss
from pujax.methods.lagam.label_update import update_labels as update_labels
from pujax.methods.lagam.pseudo_support import PseudoSupport
from pujax.methods.lagam.settings import check as check
from pujax.methods.lagam.settings import default_config as default_config
from pujax.methods.lagam.settings import needs_negatives as needs_negatives

_LOG = logging.getLogger(__name__)
NEEDS_NEGATIVES = True
"""As published; `needs_negatives` says it of a configuration."""
COMPARES_VIEWS = True
STAGE_LENGTHS = ("warmup_epochs",)
SELECTION = "nnpu_risk"
# The last epoch is as near to the best one on images, and needs no prior.
SELECTION_WITHOUT_PRIOR = "last"
OWN_ROWS = {
    "num_epochs": 60,
    "warmup_epochs": 12,
    "neighbors_after_epoch": 18,
    "learning_rate": 1e-2,
    "lr_schedule": "cosine",
    "rho_start": 0.8,
    "rho_end": 0.6,
    "num_clusters": 10,
}
"""Length, rate and memory of the digits (configs/lagam_digits.py), a set of the size of most own
ones, with a rate that falls with the length whatever that is."""
# Folded into a step's key beyond what is split from it: parts of a split are its first folds.
_SUPPORT_KEY, _PERTURBATION_KEY = 2**31, 2**31 + 1
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
      support: the support set of this epoch where it is chosen out of P and U, else None.
      pulls: float32 `[n]`, where it is recorded how strongly the last label gradient of every
        training example drew it towards positive, see `label_update.pull`; 0 before the first.
      target: the copy of the network that representations are aligned with, else None.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    labels: jax.Array
    clusters: jax.Array
    support: PseudoSupport | None = None
    pulls: jax.Array | None = None
    target: alignment.Target | None = None


def _new_labels(config, network, state, batch, views, weak_pass, key):
    """The label update of step 4a, on constants: nothing here feeds the real gradient.

    Returns:
      `(labels, pulls)` of the batch, `[batch]` each; pulls are None where they are not recorded.
    """
    params, features = jax.lax.stop_gradient((state.params, weak_pass.features))
    images, support_labels = batch.support_inputs, batch.support_labels
    if state.support is not None:
        images, support_labels = pseudo_support.draw(
            state.support, jax.random.fold_in(key, _SUPPORT_KEY), size=config.support_batch_size
        )
    images = network.normalize(images)
    share = batch.epoch / config.num_epochs
    labels = state.labels[batch.ids]

    def seen(params, images):
        return network.train_pass(params, state.batch_stats, images)[0]

    def through_network(images):
        return lambda params: seen(params, images).logits

    def of_features(rows):
        return lambda params: label_update.linear_scores(params["classifier"], rows)

    if virtual_steps.moves_features(config):
        # Batch norm by the batch's own statistics, as in the real step and as in the features of
        # the published one; running statistics are dropped in all passes.
        scores = through_network(jax.lax.stop_gradient(views.weak)), through_network(images)
        moving = params
    else:
        scores = of_features(features), of_features(seen(params, images).features)
        moving = {"classifier": params["classifier"]}
    form = config.classification_loss if config.meta_loss == "same" else config.meta_loss
    gradient = label_update.label_gradient(
        *scores,
        moving,
        labels,
        support_labels,
        form=form,
        margin=config.support_margin,
        trainable=virtual_steps.trainable(config, moving, network.is_trainable),
        **virtual_steps.arguments(config, jax.random.fold_in(key, _PERTURBATION_KEY)),
    )
    rho = label_update.kept_share(config, share)
    if config.label_memory == "support_loss":
        left = label_update.loss_left(scores[1](moving), support_labels, form=form)
        rho = 1 - (1 - rho) * left
    new = label_update.moved_labels(
        labels,
        gradient,
        support_labels,
        pinned=(batch.labeled > 0) & config.pin_labeled,
        rho=rho,
        rule=config.label_update,
    )
    is_used = label_update.has_both_classes(support_labels)
    if not virtual_steps.is_published(config):
        # Steps that diverge, and a linear system without a solution, say nothing about labels.
        is_used &= jnp.all(jnp.isfinite(gradient))
        new = jnp.where(is_used, new, labels)
    pulls = None
    if state.pulls is not None:
        pulls = jnp.where(is_used, label_update.pull(gradient), state.pulls[batch.ids])
    return new, pulls


def _losses(config, info, network, params, state, batch, views, key, *, in_warmup):
    """The loss of a step for `params`, all other parts of `state` as they are; without alignment.

    Returns:
      `(loss, (metrics, batch_stats, labels, pulls), scores)`, with the batch's new soft labels
      `[batch]`, the pulls of their gradients, or None, and the scores of the weak view.
    """
    # In the order of the reference, each moving the running statistics.
    seen = [views.mixed, views.weak, *([views.strong] if config.use_contrast else [])]
    (mixed_pass, weak_pass, *strong_pass), stats = network.train_passes(
        params, state.batch_stats, seen, with_embedding=config.use_contrast
    )
    labels, pulls = state.labels[batch.ids], None
    if config.use_meta and not in_warmup:
        labels, pulls = _new_labels(config, network, state, batch, views, weak_pass, key)
    mixed_labels = mixup.mix(labels, labels[views.partner], views.lam)
    weak_loss, mixed_loss = losses.classification_losses(
        config, info, (weak_pass.logits, mixed_pass.logits), batch, (labels, mixed_labels)
    )
    instance = group = jnp.zeros([])
    if config.use_contrast:
        instance, group = losses.contrastive_losses(
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
    return loss, (metrics, stats, labels, pulls), weak_pass.logits


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds LaGAM for a resolved configuration and a data set's numbers."""
    c = config.method
    check(c, info)
    network = network_lib.build(
        config, info, embedding_dim=c.embedding_dim, aligned_dim=alignment.width(c)
    )
    pseudo = (
        _pseudo_sizes(c, info)
        if c.use_meta and c.support_source == settings.PSEUDO_NEGATIVES
        else None
    )
    is_recorded = c.use_meta and c.record_label_gradients
    training = _Training(
        config=config,
        info=info,
        network=network,
        align=alignment.switched(c, info, network),
        optimizer=optimizer_lib.build(c, num_epochs=c.num_epochs),
        pseudo=pseudo,
        is_recorded=is_recorded,
        few_kernels=accelerator.few_kernels(config.run.few_kernels),
    )
    if c.use_contrast:
        views_lib.say_of_tables(
            info,
            "the weak and the strong view of a row are the row itself, so that the instance loss "
            "only pushes rows apart",
        )
    too_short = label_update.too_short(c) if c.use_meta else None
    if too_short:
        _LOG.warning("%s", too_short)

    cut = decision.offset(c, info)

    def predict(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs).logits - cut

    @jax.jit
    def embed(state: State, inputs: jax.Array) -> jax.Array:
        return network.infer(state.params, state.batch_stats, inputs, with_embedding=True).embedding

    clean = c.support_batch_size if c.use_meta and pseudo is None else 0
    warmup = Stage(
        name="warmup",
        num_epochs=c.warmup_epochs,
        init=training.init,
        step=functools.partial(training.step, in_warmup=True),
        batching=Batching(batch_size=c.batch_size),
    )
    main = Stage(
        name="main",
        num_epochs=c.num_epochs - c.warmup_epochs,
        init=training.init,
        step=functools.partial(training.step, in_warmup=False),
        batching=Batching(batch_size=c.batch_size, support_batch_size=clean),
        refresh=_refresh(config, embed, jax.jit(predict), pseudo),
    )
    return Method(
        stages=tuple(stage for stage in (warmup, main) if stage.num_epochs),
        predict=predict,
        embed=embed,
        soft_labels=(lambda state: state.labels) if c.use_meta else None,
        label_gradients=(lambda state: state.pulls) if is_recorded else None,
        diagnose=lambda estimates: [too_short] if too_short else [],
    )


class _PseudoSizes(NamedTuple):
    """Numbers of a support set that is chosen out of P and U.

    Attributes:
      num_positives: of P that are in it.
      num_negatives: of U that are in it.
      num_low: rows of U with the lowest scores, which the negatives are drawn from.
    """

    num_positives: int
    num_negatives: int
    num_low: int


def _pseudo_sizes(c: ml_collections.ConfigDict, info: DataInfo) -> _PseudoSizes:
    num_low = max(round(c.pseudo_negative_share * info.n_u), 1)
    half = c.pseudo_support_size // 2
    return _PseudoSizes(min(half, info.n_p), min(half, num_low), num_low)


class _Training(NamedTuple):
    """The first state and the step of both stages.

    Attributes:
      config: the resolved configuration.
      info: numbers of the data set.
      network: with its heads.
      align: the part that aligns representations, or None.
      optimizer: of the network.
      pseudo: sizes of a support set that is chosen out of P and U, or None.
      is_recorded: whether the pulls of label gradients are kept.
      few_kernels: whether a state is chosen in one piece.
    """

    config: ml_collections.ConfigDict
    info: DataInfo
    network: network_lib.Network
    align: alignment.Aligner | None
    optimizer: optimizer_lib.Optimizer
    pseudo: _PseudoSizes | None
    is_recorded: bool
    few_kernels: bool

    def init(self, key: jax.Array, previous: State | None, data: TrainingData) -> State:
        """A fresh network with U labelled negative, or the state of the warm-up."""
        if previous is not None:
            return previous
        params, batch_stats = self.network.init(key, data.inputs[:2], data.encoder)
        support = None
        if self.pseudo is not None:
            support = pseudo_support.empty(
                data,
                num_positives=self.pseudo.num_positives,
                num_negatives=self.pseudo.num_negatives,
            )
        return State(
            params=params,
            batch_stats=batch_stats,
            opt_state=self.optimizer.init(params),
            labels=data.labeled.astype(jnp.float32),
            clusters=jnp.zeros(data.labeled.shape, jnp.int32),
            support=support,
            pulls=jnp.zeros(data.labeled.shape, jnp.float32) if self.is_recorded else None,
            target=alignment.first_target(params, batch_stats) if self.align else None,
        )

    def step(self, state: State, batch: Batch, key: jax.Array, *, in_warmup: bool):
        """A step of the network, and in the main stage one of the batch's labels before it."""
        c = self.config.method
        views = losses.draw_views(c, self.network, batch, key)
        # Not `state` itself: a batch that is left out does not move the target either.
        begun, pair = alignment.begin(self.align, state, batch, key, parts=losses.NUM_KEYS)

        def loss_of(params):
            loss, (metrics, stats, *learned), scores = _losses(
                c, self.info, self.network, params, state, batch, views, key, in_warmup=in_warmup
            )
            if self.align:
                found = loss, stats, metrics
                loss, stats, metrics = self.align.add(
                    found, scores, params=params, views=pair, batch=batch
                )
            return loss, (metrics, stats, *learned)

        updated, loss, (metrics, stats, labels, pulls) = optimizer_lib.descend(
            self.optimizer, begun, loss_of, batch.progress
        )
        updated = updated._replace(batch_stats=stats, labels=state.labels.at[batch.ids].set(labels))
        if state.pulls is not None and pulls is not None:
            updated = updated._replace(pulls=state.pulls.at[batch.ids].set(pulls))
        # A batch without positive mass leaves the balanced loss undefined; the code drops it whole.
        may_skip = c.skip_empty_batches and c.classification_loss == "balanced"
        skip = jnp.logical_and(may_skip, jnp.sum(state.labels[batch.ids]) <= 0)
        state = packing.choose(skip, state, updated, packed=self.few_kernels)
        return state, metrics | {"loss": loss, "skipped": skip.astype(jnp.float32)}


def _refresh(
    config: ml_collections.ConfigDict,
    embed: Callable[..., jax.Array],
    score: Callable[..., jax.Array],
    pseudo: _PseudoSizes | None,
) -> Callable[..., State] | None:
    """What precedes an epoch of the main stage: clusters and the pseudo support set, if any."""
    c, size = config.method, config.run.eval_batch_size
    needs_clusters = c.use_contrast and c.use_groups

    def refresh(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        if needs_clusters:
            points = batching_lib.map_batches(embed, data.inputs, batch_size=size, args=(state,))
            state = state._replace(clusters=_cluster(c, key, points))
        if pseudo is not None:
            scores = batching_lib.map_batches(score, data.inputs, batch_size=size, args=(state,))
            key = jax.random.fold_in(key, _SUPPORT_KEY)
            support = pseudo_support.choose(data, scores, key, **pseudo._asdict())
            state = state._replace(support=support)
        return state

    return refresh if needs_clusters or pseudo is not None else None


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
