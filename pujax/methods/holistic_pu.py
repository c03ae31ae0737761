"""HolisticPU: pseudo-labels from how scores develop in training (Wang et al., NeurIPS 2023).

The first phase trains P against U with as many of P as of U in every step, and records after every
epoch what an average of the weights says of each example. Scores of negatives in U fall steadily,
those of positives do not: an example's trend score sums up the differences of its record, robustly
to jumps, and a natural break of the trend scores of U cuts them in two. The second phase trains a
new network on P and on labels of U that move from "all negative" to this cut, and asks that
confident predictions of weak views hold for strong ones (FixMatch). No class prior is needed.

The trend score is the simplified one of the authors' code. What differs from that code:
- U is shuffled, and all of it is recorded and cut; there it comes in one order, and what is left of
  the last batch is left out everywhere;
- records are of images as they are; there they are of random crops, which is not offered;
- the limit of the second cut is a total rise, `max_total_rise`; there it is 0.2 / 9, whatever the
  number of records;
- the classifier has one logit where theirs has two, whose difference takes steps twice as long;
- SGD is without Nesterov's step, decays all weights, and its rate moves by `lr_schedule` 'fixmatch'
  over the length of the longer phase, as there over that of the second;
- weak views are padded with black before they are cropped; there by reflection;
- strong views are those of `augment.strong_view`.
As there, all views of P and U pass the network together, those without a loss too, and share the
statistics of batch norm.

A public implementation lets the average run on from the first phase into the new network of the
second; here the average belongs to the first phase, and the network itself predicts.
"""

import logging
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import optax

from pujax import augment, checks, risks
from pujax.arrays import mean_where
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import host, losses, sections
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common import views as views_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Method, Stage

COMPARES_VIEWS = True
SELECTION = "vpu_risk"
STAGE_LENGTHS = ("pretrain_epochs",)

_LOG = logging.getLogger(__name__)


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      params: network parameters of the phase.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state of the phase.
      teacher: averaged parameters and the running statistics of the first phase, which the second
        leaves as they are.
      history: float32 `[n, pretrain_epochs]`, the teacher's probabilities after every epoch of the
        first phase; 0 before.
      labels: float32 `[n]`, 1 for labelled positives and for what the cut calls positive.
      prior: scalar, the share of U that the cut calls positive; 0 before.
      trend_break: scalar, the trend score above which it does; 0 before.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    teacher: tuple[Any, Any]
    history: jax.Array
    labels: jax.Array
    prior: jax.Array
    trend_break: jax.Array


def default_config() -> ml_collections.ConfigDict:
    """The authors' settings for CIFAR-10; half of a batch are P.

    `num_epochs` counts both phases, `pretrain_epochs` is the length of the first, and an epoch has
    `steps_per_epoch` steps, 512 as published, whatever the size of U; 0 is one pass over it. On
    small sets held-out P and U prefer the 512, too (`configs/sweeps/method_choices.py`).
    `label_smoothing` is that of P in the first phase. `max_total_rise` is the rise of a score over
    all records from which an example is left out of a second cut; 0.2 / 9 per record, as in the
    authors' code, is `max_total_rise = 0.2 / 9 * (pretrain_epochs - 1)`.
    """
    return sections.default_config(
        "holistic_pu",
        num_epochs=40,
        batch_size=128,
        batching="separate",
        positive_share=0.5,
        learning_rate=1.5e-3,
        weight_decay=5e-4,
        lr_schedule="fixmatch",
        pretrain_epochs=15,
        steps_per_epoch=512,
        label_smoothing=0.1,
        teacher_decay=0.999,
        max_total_rise=0.2,
        label_power=0.8,
        confidence=0.9,
        strong_ops=2,
        strong_cutout=0.5,
    )


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    sections.check(config)
    checks.one_of("method.batching", config.batching, ("separate",))
    last = config.num_epochs - 1
    accepted = f"2 to {last} epochs, for two records and a second phase"
    ok = 2 <= config.pretrain_epochs <= last
    checks.require(ok, "method.pretrain_epochs", config.pretrain_epochs, accepted)
    checks.at_least("method.steps_per_epoch", config.steps_per_epoch, 0)
    checks.between("method.label_smoothing", config.label_smoothing, 0, 1, include="low")
    checks.between("method.teacher_decay", config.teacher_decay, 0, 1, include="low")
    checks.positive("method.max_total_rise", config.max_total_rise)
    checks.positive("method.label_power", config.label_power)
    checks.between("method.confidence", config.confidence, 0.5, 1)
    checks.whole_number("method.strong_ops", config.strong_ops, 0)
    checks.between("method.strong_cutout", config.strong_cutout, 0, 1)


def trend_scores(history: np.ndarray) -> np.ndarray:
    """How far scores rise per record, big jumps damped: the mean of `log(1 + d + d^2 / 2)`.

    For small differences d that is `d - d^3 / 6`: the mean is the total rise over the number of
    differences, but for cubes. Source: Wang et al., NeurIPS 2023, as their code simplifies it.

    Args:
      history: `[n, records]` probabilities, at least two records.

    Returns:
      float64 `[n]`, between -0.694 and 0.917.
    """
    d = np.diff(np.asarray(history, np.float64), axis=1)
    return np.mean(np.log1p(d + d**2 / 2), axis=1)


def natural_break(values: np.ndarray) -> float:
    """The largest value of the lower of two classes, by the natural breaks of Fisher and Jenks.

    The split of the sorted values with the least squared deviations from the two means (Otsu's
    rule, without bins). Equal values stay together, and the first of equally good splits is taken.

    Args:
      values: `[n]`, at least one.

    Returns:
      The value; the largest of all where all are equal.
    """
    ordered = np.sort(np.asarray(values, np.float64))
    n = len(ordered)
    splits = np.flatnonzero(ordered[1:] > ordered[:-1]) + 1  # sizes of the lower class
    if not len(splits):
        return float(ordered[-1])
    # With centered values the deviations are least where this, between the classes, is largest.
    sums = np.cumsum(ordered - ordered.mean())[splits - 1]
    between = sums**2 * n / (splits * (n - splits))
    return float(ordered[splits[np.argmax(between)] - 1])


def cut(trend: np.ndarray, *, limit: float) -> float:
    """The trend score above which an example of U is called positive.

    A natural break. One above 0 separates what rises most from all the rest: then trend scores from
    `limit` on are left out, and the rest is cut again.

    Args:
      trend: `[n]`, of U.
      limit: a rise per record.
    """
    found = natural_break(trend)
    rest = trend[trend < limit]
    return natural_break(rest) if found > 0 and len(rest) else found


def label_weight(epoch: jax.Array, *, num_epochs: int, power: float) -> jax.Array:
    """How far labels of U have moved from "negative" to the cut: `(epoch / num_epochs)^power`.

    Args:
      epoch: whole epochs of the second phase that are done.
      num_epochs: its length.
      power: of the ramp.

    Returns:
      A scalar, 0 in the first epoch.
    """
    return (epoch / num_epochs) ** power


def consistency(
    weak: jax.Array, strong: jax.Array, counts: jax.Array, *, confidence: float
) -> jax.Array:
    """FixMatch's loss: what a confident weak view says is asked of the strong one.

    Args:
      weak: scores `[batch]`, without gradient.
      strong: scores `[batch]`.
      counts: bool `[batch]`, rows of the mean; those without confidence add 0 to it.
      confidence: least probability of the predicted class.

    Returns:
      A scalar.
    """
    weak = jax.lax.stop_gradient(weak)
    sure = jax.nn.sigmoid(jnp.abs(weak)) >= confidence
    each = risks.logistic_loss(jnp.where(weak > 0, strong, -strong))
    return mean_where(jnp.where(sure, each, 0), counts)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds HolisticPU for a resolved configuration and a data set's numbers."""
    c = config.method
    check(c)
    network = network_lib.build(config, info, embedding_dim=0)
    main_epochs = c.num_epochs - c.pretrain_epochs
    optimizer = optimizer_lib.build(c, num_epochs=max(c.pretrain_epochs, main_epochs))
    batching = sections.batches(c, info)
    if c.steps_per_epoch:
        batching = batching._replace(steps=c.steps_per_epoch)
    else:
        batching = sections.once_through_unlabeled(batching, info)
    views_lib.say_of_tables(
        info,
        "the weak and the strong view of a row are the row itself, so that the loss which compares "
        "the two only makes sure predictions surer",
    )
    training = _Training(c, network, optimizer, main_epochs)
    records = _Records(c, network, config.run.eval_batch_size)

    def infer(state: State, inputs: jax.Array):
        return network.infer(state.params, state.batch_stats, inputs)

    first = (training.init, training.compare, batching, records.record)
    second = (training.init, training.classify, batching, records.divide)
    return Method(
        stages=(
            Stage("trend", c.pretrain_epochs, *first),
            Stage("classify", main_epochs, *second, refresh_every=0),
        ),
        predict=lambda state, inputs: infer(state, inputs).logits,
        embed=lambda state, inputs: infer(state, inputs).features,
        soft_labels=lambda state: state.labels,
        estimates=lambda state: {
            "estimated_prior": state.prior,
            "trend_break": state.trend_break,
        },
    )


class _Training(NamedTuple):
    """The steps of both phases."""

    config: ml_collections.ConfigDict
    network: Network
    optimizer: optimizer_lib.Optimizer
    main_epochs: int

    def init(self, key: jax.Array, previous: State | None, data: TrainingData) -> State:
        """A new network in each phase."""
        params, batch_stats = self.network.init(key, data.inputs[:2], data.encoder)
        opt_state = self.optimizer.init(params)
        if previous is not None:
            return previous._replace(params=params, batch_stats=batch_stats, opt_state=opt_state)
        return State(
            params=params,
            batch_stats=batch_stats,
            opt_state=opt_state,
            # Copies: a training step gives its buffers back, and may not do so twice.
            teacher=jax.tree.map(jnp.copy, (params, batch_stats)),
            history=jnp.zeros([data.labeled.shape[0], self.config.pretrain_epochs]),
            labels=data.labeled.astype(jnp.float32),
            prior=jnp.zeros([]),
            trend_break=jnp.zeros([]),
        )

    def compare(self, state: State, batch: Batch, key: jax.Array):
        """A step of the first phase: P against U."""
        c = self.config

        def loss(weak, strong, is_p):
            smooth = 1 - c.label_smoothing / 2
            of_p = losses.soft_cross_entropy(weak, smooth)
            of_p += losses.soft_cross_entropy(strong, smooth)
            of_u = risks.logistic_loss(-weak)
            return mean_where(of_p / 2, is_p) + mean_where(of_u, ~is_p), {}

        state, metrics = self._descend(state, batch, key, loss)
        params, _ = state.teacher
        params = optax.incremental_update(state.params, params, 1 - c.teacher_decay)
        return state._replace(teacher=(params, state.batch_stats)), metrics

    def classify(self, state: State, batch: Batch, key: jax.Array):
        """A step of the second phase: P, labels of U, and views that agree."""
        c = self.config
        epoch = jnp.floor(batch.stage_progress)
        weight = label_weight(epoch, num_epochs=self.main_epochs, power=c.label_power)
        targets = weight * state.labels[batch.ids]

        def loss(weak, strong, is_p):
            of_p = mean_where(risks.logistic_loss(weak), is_p)
            of_u = mean_where(losses.soft_cross_entropy(weak, targets), ~is_p)
            agree = consistency(weak, strong, ~is_p, confidence=c.confidence)
            return of_p + of_u + agree, {"loss_consistency": agree}

        return self._descend(state, batch, key, loss)

    def _descend(self, state: State, batch: Batch, key: jax.Array, loss: Any):
        """A step on a loss of the weak and the strong view's scores."""
        seen = self._views(batch.inputs, key)
        is_p = batch.labeled > 0

        def loss_of(params):
            outputs, stats = self.network.train_together(params, state.batch_stats, seen)
            value, metrics = loss(outputs[0].logits, outputs[-1].logits, is_p)
            return value, (stats, metrics)

        state, total, (stats, metrics) = optimizer_lib.descend(
            self.optimizer, state, loss_of, batch.stage_progress
        )
        return state._replace(batch_stats=stats), metrics | {"loss": total}

    def _views(self, inputs: jax.Array, key: jax.Array) -> list[jax.Array]:
        """A weak and a strong view, normalised; without random views the inputs alone."""
        c = self.config
        if not c.augment:
            return [self.network.normalize(inputs)]
        weak_key, strong_key = jax.random.split(key)
        how: dict[str, Any] = {"flip": c.flip, "padding": c.padding}
        strong = {"num_ops": c.strong_ops, "max_cutout": c.strong_cutout}
        drawn = (
            augment.weak_view(weak_key, inputs, **how),
            augment.strong_view(strong_key, inputs, **how, **strong),
        )
        return [self.network.normalize(view) for view in drawn]


class _Records:
    """What is done between epochs: the teacher's record of every example, and the cut of U."""

    def __init__(self, config: ml_collections.ConfigDict, network: Network, batch_size: int):
        self._config, self._batch_size = config, batch_size

        # Compiled once for all epochs.
        @jax.jit
        def probabilities(params, batch_stats, inputs: jax.Array) -> jax.Array:
            return jax.nn.sigmoid(network.infer(params, batch_stats, inputs).logits)

        @jax.jit
        def put(history: jax.Array, values: jax.Array, index: jax.Array) -> jax.Array:
            return history.at[:, index].set(values)

        self._probabilities, self._put = probabilities, put

    def record(self, state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        """What the teacher says after the last epoch; the last record is `divide`'s."""
        del key
        return self._recorded(state, data, epoch - 1) if epoch else state

    def divide(self, state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        """The last record, then the cut."""
        del key, epoch
        c = self._config
        state = self._recorded(state, data, c.pretrain_epochs - 1)
        history, labeled = (
            host.on_host(x, like=data.labeled) for x in (state.history, data.labeled)
        )
        trend = trend_scores(history)
        limit = c.max_total_rise / (c.pretrain_epochs - 1)
        found = cut(trend[~labeled], limit=limit)
        positive = (trend > found) & ~labeled
        if not positive.any():
            _LOG.warning(
                "the trend scores of all unlabeled examples are equal: none is called positive"
            )
        return state._replace(
            labels=jnp.asarray((positive | labeled).astype(np.float32)),
            prior=jnp.float32(positive.sum() / (~labeled).sum()),
            trend_break=jnp.float32(found),
        )

    def _recorded(self, state: State, data: TrainingData, index: int) -> State:
        values = batching_lib.map_batches(
            self._probabilities, data.inputs, batch_size=self._batch_size, args=state.teacher
        )
        return state._replace(history=self._put(state.history, values, jnp.int32(index)))
