"""From which score on an example is positive: 0, or where the class prior asks for it.

A network that knows its labelled examples by heart, or whose objective does not hold the level of
its scores, may rank well while most scores are on one side of 0. The order of the unlabeled
examples and the share of positives among them then still say which of them are positive: as many of
the highest ones as there are. It is the rule of nnPUSB (Kato, Teshima, Honda, ICLR 2019), here for
any method with the field `threshold`.

The cut is that of U, on which as many negatives are above it as positives below. A population of
which many positives are labelled has more of them than U, and so a few too many are below. The
scores are those of training examples: the better a network knows them by heart, the lower are those
of U beside those of new examples, so that the epoch has to be chosen all the same.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks
from pujax.data import batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import calibration
from pujax.methods.base import Method

RULES = ("auto", "zero", "prior")
"""LaGAM's rules have the same names, and cut where the odds of its labels say
(`pujax.methods.lagam.decision`)."""


class Cut(NamedTuple):
    """What predicts where the cut follows the class prior.

    Attributes:
      state: as training left it.
      offset: scalar, the score above which an example is positive.
    """

    state: Any
    offset: jax.Array


def at_share(scores: jax.Array, share: float, *, keep: jax.Array, count: int) -> jax.Array:
    """The lowest score of as many examples as a share asks for, the highest ones.

    `sort(scores)[floor(m (1 - share))]` over the `m` examples kept, the order statistic of nnPUSB's
    authors, in floating point as theirs is. What equals it is not above it: one example fewer than
    the share asks for is, or just as many where `m (1 - share)` is whole but for its rounding.

    Args:
      scores: `[n]`.
      share: of the examples kept.
      keep: bool `[n]`, which examples count.
      count: `m`, how many they are.

    Returns:
      A scalar.
    """
    # What is left out sorts behind everything else.
    ordered = jnp.sort(jnp.where(keep, scores, jnp.inf))
    return ordered[min(math.floor(count * (1 - share)), count - 1)]


def follows_prior(
    config: ml_collections.ConfigDict, info: DataInfo, *, estimates: bool = False
) -> bool:
    """Whether the cut is where the class prior asks for it.

    Args:
      config: the whole configuration; models of earlier versions have no `threshold`.
      info: numbers of the data set.
      estimates: whether the method estimates the share itself, so that none need be known.

    Raises:
      ValueError: for an unknown rule, and for 'prior' where no prior is known, or U has one class.
    """
    rule = config.method.get("threshold", "zero")
    checks.one_of("method.threshold", rule, RULES)
    if rule == "prior":
        if not estimates:
            calibration.unlabeled_prior(info)  # refuses what is unknown, and one class only
        return True
    is_streamed = config.data.get("streaming", "off") == "on"  # seen batch by batch only
    is_known = estimates or 0 < info.prior_unlabeled < 1  # NaN where unknown
    return rule == "auto" and not is_streamed and is_known


def wrap(
    method: Method,
    config: ml_collections.ConfigDict,
    info: DataInfo,
    *,
    estimated: Callable[[Any], jax.Array] | None = None,
) -> Method:
    """The method, whose scores are cut where `config.method.threshold` says.

    Args:
      method: one that calibrates nothing itself, without `alternatives` and `adjust`.
      config: the whole configuration.
      info: numbers of the data set.
      estimated: `state -> share of positives in U`, by the method itself; the cut is 0 while it is
        0 or 1. None is the share that is known of the data.

    Returns:
      The same method where the cut is 0. Otherwise its functions take the states of its stages, of
      which the cut is 0, and what `calibrate` returns.
    """
    if not follows_prior(config, info, estimates=estimated is not None):
        return method
    compiled = jax.jit(method.predict)

    def predict(state: Any, inputs: jax.Array) -> jax.Array:
        if isinstance(state, Cut):
            return method.predict(state.state, inputs) - state.offset
        return method.predict(state, inputs)

    def uncut(state: Any) -> Cut:
        return Cut(state, jnp.zeros([], jnp.float32))

    def calibrate(state: Any, data: TrainingData) -> Cut:
        share = info.prior_unlabeled if estimated is None else float(estimated(state))
        if not 0 < share < 1:  # an estimate that is not there yet
            return uncut(state)
        size = config.run.eval_batch_size
        scores = batching.map_batches(compiled, data.inputs, batch_size=size, args=(state,))
        cut = at_share(scores, share, keep=~data.labeled, count=info.n_u)
        return Cut(state, cut.astype(jnp.float32))

    def reads(function: Any) -> Any:
        """A function of a stage's state as one of both kinds of state."""

        def read(state, *args):
            return function(state.state if isinstance(state, Cut) else state, *args)

        return function and read

    return method._replace(
        predict=predict,
        calibrate=calibrate,
        evaluated=uncut,
        embed=reads(method.embed),
        soft_labels=reads(method.soft_labels),
        label_gradients=reads(method.label_gradients),
        estimates=reads(method.estimates),
        encoder=reads(method.encoder),
    )
