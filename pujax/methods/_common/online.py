"""Scalars and weights of examples that a method learns while it trains, on a support set.

Before a step of the method, virtual steps of its loss are taken on the same batch, with the same
views and random numbers. The loss of the support examples after them is differentiated with respect
to scalars of the method's loss (a class prior, a weight of a term, a temperature) or to weights of
the batch's examples, by `meta.meta_gradient`. Scalars then move by an optimizer of their own and
are put back into their ranges; weights are what of the negative gradient is above zero. The step
itself uses the new values. A method says which of its scalars can be learned and takes them as
arguments of its loss; without `method.online` and `method.example_weights` nothing of this is in
its program.
"""

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax

from pujax import augment, checks, meta, risks
from pujax.arrays import on_host
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import calibration, mixup
from pujax.methods._common.network import Network
from pujax.methods.base import Method

OPTIMIZERS = ("adam", "sgd", "momentum")
ESTIMATORS = ("mixed", "reverse", "forward", "es")
LOSSES = ("mean", "balanced")
TRAINABLE = ("head", "all")
_WORDS = {
    "online_optimizer": OPTIMIZERS,
    "online_loss": LOSSES,
    "online_trainable": TRAINABLE,
    "online_estimator": ESTIMATORS,
}
WEIGHTS = ("none", "batch", "stored")
AUGMENTATION = "augmentation"
_MOST_SUPPORT = 64  # examples per step where `online_batch_size` is 0
_MARGIN = 0.01  # least share of either class in U that a learned prior leaves
# Beyond what a method draws from the same key: parts of a split are its first folds.
_OWN_KEY = 2**31
_PAIRS = {"num_pairs": 8, "sigma": 0.1}  # of 'es', in units of the scalars


class Scalar(NamedTuple):
    """A number of a method's loss that can be learned.

    Attributes:
      start: where it starts.
      low: smallest value.
      high: largest value.
      unit: what a step of size 1 changes it by; the optimizer sees the number over its unit.
    """

    start: float
    low: float
    high: float
    unit: float = 1.0


TEMPERATURE = Scalar(1.0, 0.1, 10.0)
"""Divisor of the scores in a risk."""


class Learned(NamedTuple):
    """What is learned beside the network.

    Attributes:
      values: float32 scalars by name.
      opt_state: of their optimizer.
      weights: float32 `[n]`, stored weight of every training example; None if none are stored.
    """

    values: dict[str, jax.Array]
    opt_state: Any
    weights: jax.Array | None


def default_config(*, weights: bool = False) -> dict[str, Any]:
    """Fields of a method that can learn scalars, and `weights` of examples.

    `online` names scalars, separated by commas. A virtual step is a plain one of size
    `online_virtual_rate` and moves `online_trainable`: the last layer ('head'), or 'all'. Through
    batch norm 'all' can run away, see docs/meta_gradients.md. `online_batch_size` counts support
    examples per step, 0 for all of them but at most 64.
    """
    fields = {
        "online": "",
        "online_learning_rate": 0.003,
        "online_optimizer": "adam",
        "online_loss": "mean",
        "online_estimator": "mixed",
        "online_trainable": "head",
        "online_virtual_rate": 0.01,
        "online_num_steps": 1,
        "online_batch_size": 0,
    }
    return fields | ({"example_weights": "none", "example_decay": 0.9} if weights else {})


def class_prior(info: DataInfo) -> Scalar:
    """The share of positives in the population, where from 1 % to 99 % of U are positive."""
    if info.setting != "one_sample":
        return Scalar(info.prior, _MARGIN, 1 - _MARGIN)
    low, high = (
        (info.sample_labeled + info.n_u * share) / info.sample_size
        for share in (_MARGIN, 1 - _MARGIN)
    )
    return Scalar(info.prior, low, high)


def weight(start: float) -> Scalar:
    """A factor of a term of the loss; steps are in units of the value it starts from."""
    return Scalar(start, 0.0, float("inf"), start or 1.0)


def augmentation(config: ml_collections.ConfigDict) -> dict[str, Scalar]:
    """The share of the strong view in the images that a method with weak views trains on."""
    return {AUGMENTATION: Scalar(0.0, 0.0, 1.0)} if config.augment else {}


def names(config: ml_collections.ConfigDict) -> tuple[str, ...]:
    """The scalars that a section learns; none where it has no such field."""
    return tuple(x.strip() for x in config.get("online", "").split(",") if x.strip())


def is_on(config: ml_collections.ConfigDict) -> bool:
    """Whether a section learns scalars or weights of examples."""
    return bool(names(config)) or has_weights(config)


def has_weights(config: ml_collections.ConfigDict) -> bool:
    """Whether a section learns weights of examples."""
    return config.get("example_weights", "none") != "none"


def check_weights(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for a word that `method.example_weights` does not know."""
    if "example_weights" in config:
        checks.one_of("method.example_weights", config.example_weights, WEIGHTS)


def check(config: ml_collections.ConfigDict, info: DataInfo, offered: Mapping[str, Scalar]) -> None:
    """Raises a ValueError for settings that cannot be; all numbers are accepted, and words that it
    knows, while nothing is learned.

    Args:
      config: the method's section.
      info: numbers of the data set.
      offered: scalars that the method can learn.
    """
    c, chosen, weighted = config, names(config), has_weights(config)
    check_weights(c)
    for name, words in _WORDS.items():
        if name in c:
            checks.one_of(f"method.{name}", c[name], words)
    if not is_on(c):
        accepted = "'', or names of scalars"
        checks.require(not c.get("online", "").strip(), "method.online", c.get("online"), accepted)
        return
    accepted = ", ".join(map(repr, offered)) or "'', since this method has none to learn"
    known = set(chosen) <= set(offered) and len(set(chosen)) == len(chosen)
    checks.require(known, "method.online", c.online, f"{accepted}, each at most once")
    for name in chosen:
        scalar = offered[name]
        known_start = on_host(scalar.start)  # that of a part of the data may be traced
        if known_start is not None:
            start = f"where method.online={name} starts"
            checks.between(start, float(known_start), float(scalar.low), float(scalar.high))
    accepted = "'' while method.example_weights is not 'none'"
    checks.require(not (weighted and chosen), "method.online", c.online, accepted)
    checks.require(
        0 < info.support_positives < info.n_support,
        "data.num_support",
        info.n_support,
        "enough support examples to hold both classes while method.online or "
        f"method.example_weights is set ({info.support_positives} of these are positive)",
    )
    for name in ("online_learning_rate", "online_virtual_rate"):
        checks.positive(f"method.{name}", c[name])
    if weighted:
        checks.one_of("method.online_estimator", c.online_estimator, ESTIMATORS[:2])
    checks.whole_number("method.online_num_steps", c.online_num_steps, 1)
    checks.between("method.online_batch_size", c.online_batch_size, 0, info.n_support)
    if weighted:
        checks.between("method.example_decay", c.example_decay, 0, 1, include="low")
        accepted = "1 while method.example_weights is not 'none'"
        one_step = c.online_num_steps == 1
        checks.require(one_step, "method.online_num_steps", c.online_num_steps, accepted)


class Online(NamedTuple):
    """What a stage learns beside its network.

    Attributes:
      config: the method's section.
      network: whose training-mode passes score support examples.
      scalars: those that this stage learns.
      groups: whether learned weights have a mean of 1 over P and over U, not over the batch.
    """

    config: ml_collections.ConfigDict
    network: Network
    scalars: dict[str, Scalar]
    groups: bool = False

    def batching(self, batching: Batching, info: DataInfo) -> Batching:
        """The batches of a stage, with support examples."""
        size = self.config.online_batch_size or min(info.n_support, _MOST_SUPPORT)
        return batching._replace(support_batch_size=size)

    def only(self, names: Iterable[str]) -> "Online | None":
        """The same for a stage that has these scalars alone; None where it learns none of them."""
        scalars = {name: x for name, x in self.scalars.items() if name in names}
        return self._replace(scalars=scalars) if scalars else None

    def init(self, num_examples: int, previous: Learned | None = None) -> Learned:
        """Where learning starts: where a previous stage ended, else at the configured values."""
        start = {name: jnp.float32(x.start) for name, x in self.scalars.items()}
        if previous is not None:
            start |= {name: x for name, x in previous.values.items() if name in start}
        weights = None
        if self.config.get("example_weights", "none") == "stored":
            weights = jnp.ones([num_examples])
        return Learned(start, self._optimizer().init(self._in_units(start)), weights)

    def update(
        self,
        state: Any,
        loss_of: Callable[..., tuple[jax.Array, Any]],
        batch: Batch,
        key: jax.Array,
    ) -> tuple[Any, dict[str, Any], dict[str, jax.Array]]:
        """Learns from one batch, before the method's own step on it.

        Args:
          state: of the method, with `params`, `batch_stats` and `learned`.
          loss_of: the method's loss on the batch and its other results, of
            `(params, scalars={name: value})`, or of `(params, weights=[batch])`, in whose weights
            it is linear, or taken at weights of 0, where the sign rule of nnPU does not act.
          batch: with support examples.
          key: for the perturbations of 'es'.

        Returns:
          `(state, given, metrics)`; `given` are keywords for `loss_of` in the method's step.
        """
        outer = self._support_loss(state.batch_stats, batch)
        if has_weights(self.config):
            result = self._update_weights(state.learned, loss_of, outer, state.params, batch)
        else:
            key = jax.random.fold_in(key, _OWN_KEY)
            result = self._update_scalars(state.learned, loss_of, outer, state.params, key)
        learned, given, metrics = result
        return state._replace(learned=learned), given, metrics

    def blended(
        self, images: jax.Array, inputs: jax.Array, key: jax.Array, given: dict[str, Any]
    ) -> tuple[jax.Array, dict[str, Any]]:
        """The images that a step trains on, and what is left of `given` for its loss.

        Where the strength of the augmentation is learned, these are `(1 - strength)` times the weak
        views and `strength` times strong ones of the same images.
        """
        if AUGMENTATION not in self.scalars:
            return images, given
        scalars = dict(given["scalars"])
        strength = scalars.pop(AUGMENTATION)
        how = {"flip": self.config.flip, "padding": self.config.padding}
        strong = augment.strong_view(jax.random.fold_in(key, _OWN_KEY), inputs, **how)
        return mixup.mix(self.network.normalize(strong), images, strength), {"scalars": scalars}

    def reported(self, method: Method, info: DataInfo) -> Method:
        """The method, which reports the share of positives in U where it learns the class prior."""
        if "prior" not in self.scalars:
            return method

        def estimates(state):
            return {
                "estimated_prior": calibration.at_prior(
                    info, state.learned.values["prior"]
                ).prior_unlabeled
            }

        return method._replace(estimates=estimates)

    def _update_scalars(self, learned, loss_of, outer, params, key):
        c = self.config

        def inner(params, in_units):
            values = self._from_units(in_units)
            if c.online_estimator == "es":  # its perturbations leave the ranges
                values = self._within(values)
            return loss_of(params, scalars=values)[0]

        before = self._in_units(learned.values)
        gradient = meta.meta_gradient(
            inner,
            outer,
            params,
            before,
            learning_rate=c.online_virtual_rate,
            num_steps=c.online_num_steps,
            trainable=self._trainable,
            estimator=c.online_estimator,
            **({"key": key, **_PAIRS} if c.online_estimator == "es" else {}),
        )
        # One that is not finite would stay in the optimizer for good.
        gradient = jax.tree.map(lambda g: jnp.where(jnp.isfinite(g), g, 0), gradient)
        change, opt_state = self._optimizer().update(gradient, learned.opt_state)
        values = self._within(self._from_units(optax.apply_updates(before, change)))
        metrics = {f"online_{name}": value for name, value in values.items()}
        learned = learned._replace(values=values, opt_state=opt_state)
        return learned, {"scalars": values}, metrics

    def _update_weights(self, learned, loss_of, outer, params, batch):
        gradient = meta.meta_gradient(
            lambda params, weights: loss_of(params, weights=weights)[0],
            outer,
            params,
            jnp.zeros(batch.labeled.shape),
            learning_rate=self.config.online_virtual_rate,
            trainable=self._trainable,
            estimator=self.config.online_estimator,
        )
        weights = clipped_weights(gradient, batch.labeled if self.groups else None)
        if learned.weights is not None:
            decay = self.config.example_decay
            weights = decay * learned.weights[batch.ids] + (1 - decay) * weights
            kept = weights[last_places(batch.ids, len(learned.weights))]
            learned = learned._replace(weights=learned.weights.at[batch.ids].set(kept))
        metrics = {"zero_weights": jnp.mean(weights == 0)}
        return learned, {"weights": weights}, metrics

    def _support_loss(self, batch_stats: Any, batch: Batch) -> Callable[[Any], jax.Array]:
        """The outer loss: that of support examples, as they are predicted in an evaluation."""

        def loss(params):
            scores = self.network.infer(params, batch_stats, batch.support_inputs).logits
            if self.config.online_loss == "balanced":
                return meta.balanced_bce(scores, batch.support_labels)
            return jnp.mean(risks.logistic_loss((2 * batch.support_labels - 1) * scores))

        return loss

    @property
    def _trainable(self) -> Callable[[tuple[Any, ...]], bool] | None:
        """Which parameters move in a virtual step."""
        if self.config.online_trainable == "head":
            return lambda path: path[0].key == "classifier"
        return self.network.is_trainable

    def _optimizer(self) -> optax.GradientTransformation:
        rate = self.config.online_learning_rate
        if self.config.online_optimizer == "adam":
            return optax.adam(rate)
        momentum = 0.9 if self.config.online_optimizer == "momentum" else None
        return optax.sgd(rate, momentum=momentum)

    def _within(self, values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """The values, brought into their ranges."""
        ends = {name: (x.low, x.high) for name, x in self.scalars.items()}
        return {name: jnp.clip(value, *ends[name]) for name, value in values.items()}

    def _in_units(self, values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: value / self.scalars[name].unit for name, value in values.items()}

    def _from_units(self, values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        return {name: value * self.scalars[name].unit for name, value in values.items()}


def build(
    config: ml_collections.ConfigDict,
    info: DataInfo,
    network: Network,
    offered: Mapping[str, Scalar],
    *,
    groups: bool = False,
) -> Online | None:
    """What a section learns beside its network, or None.

    Args:
      config: the method's section.
      info: numbers of the data set.
      network: see `Online`.
      offered: scalars that the method can learn.
      groups: see `Online`.

    Raises:
      ValueError: for a setting that cannot be.
    """
    check(config, info, offered)
    if not is_on(config):
        return None
    return Online(config, network, {name: offered[name] for name in names(config)}, groups)


def update(
    learn: Online | None,
    state: Any,
    loss_of: Callable[..., tuple[jax.Array, Any]],
    batch: Batch,
    key: jax.Array,
) -> tuple[Any, Callable[[Any], tuple[jax.Array, Any]], dict[str, jax.Array]]:
    """What a step begins with: `Online.update`, or nothing where nothing is learned.

    Returns:
      `(state, loss_of, metrics)`, the loss now being one of parameters alone.
    """
    if learn is None:
        return state, loss_of, {}
    state, given, metrics = learn.update(state, loss_of, batch, key)
    return state, functools.partial(loss_of, **given), metrics


def last_places(ids: jax.Array, num_examples: int) -> jax.Array:
    """For every place of a batch the last one that holds the same example.

    An example that is twice in a batch, as one of few P may be, has a gradient in each place. What
    is stored of it has to be one number: of several writes to one place XLA promises no order.

    Args:
      ids: int `[batch]`, ids of examples.
      num_examples: of all, more than any id.

    Returns:
      int `[batch]`.
    """
    places = jnp.arange(len(ids))
    return jnp.zeros(num_examples, places.dtype).at[ids].max(places)[ids]


def clipped_weights(gradient: jax.Array, labeled: jax.Array | None = None) -> jax.Array:
    """Weights of examples from meta-gradients: negatives clipped, scaled to a mean of 1.

    Ren et al., "Learning to Reweight Examples for Robust Deep Learning", ICML 2018, Eq. 12 and 13,
    whose weights sum to 1 and stand before losses that are not divided by the size of the batch.
    Where no weight is above zero, all stay zero; so do those of a gradient that is not finite.

    Args:
      gradient: `[batch]`, of the outer loss with respect to the weights, at weights of zero.
      labeled: `[batch]`, 1 for labelled positives: the mean is then 1 over P and over U; None for
        the mean over the batch.

    Returns:
      `[batch]`.
    """
    gain = jnp.where(jnp.isfinite(gradient), jnp.maximum(-gradient, 0), 0)

    def scaled(rows):
        total = jnp.sum(jnp.where(rows, gain, 0))
        # In this order a sum that overflows gives 0.
        return jnp.where(rows, gain / jnp.where(total > 0, total, 1) * jnp.sum(rows), 0)

    if labeled is None:
        return scaled(jnp.ones(gain.shape, bool))
    return scaled(labeled > 0) + scaled(labeled <= 0)
