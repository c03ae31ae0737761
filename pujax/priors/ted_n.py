"""TED^n: in turns a classifier without the likely positives of U, and the prior it shows."""

import functools
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from pujax import checks
from pujax.priors import _best_bin, base
from pujax.priors._classifier import Network, make_epoch, mlp
from pujax.priors.base import ANYTHING, PriorEstimate
from pujax.priors.scores import best_bin

_LOG = logging.getLogger(__name__)

_LAST = 10
"""Epochs whose estimates are summed up by their median."""
_RISE = 0.1
"""How far an estimate may rise above that of the warm-up before it is warned about."""


class TedN(NamedTuple):
    """What TED^n learned.

    Attributes:
      estimate: the prior.
      history: float64 `[epochs]`, the best-bin estimate after every epoch, warm-up first; NaN where
        the scores carry no information.
      num_warmup_epochs: how many of them are P against U.
      scores_positive: `[m']`, last scores of the held-out half of P.
      scores_unlabeled: `[n']`, of the held-out half of U.
      predict: `features [b, ...] -> scores [b]`; positive iff above 0. Examples are as those of the
        fit, finite and of as many numbers, or a `ValueError` says what they are. None where the
        samples are the same and nothing was trained.
    """

    estimate: PriorEstimate
    history: np.ndarray
    num_warmup_epochs: int
    scores_positive: np.ndarray
    scores_unlabeled: np.ndarray
    predict: Callable[[npt.ArrayLike], np.ndarray] | None


def ted_n(positives: npt.ArrayLike, unlabeled: npt.ArrayLike, **options: Any) -> PriorEstimate:
    """Share of positives in U by TED^n; see `ted_n_fit`, whose options it takes."""
    return ted_n_fit(positives, unlabeled, **options).estimate


def ted_n_fit(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    num_warmup_epochs: int = 20,
    num_epochs: int = 40,
    batch_size: int = 200,
    learning_rate: float = 0.01,
    momentum: float = 0.9,
    weight_decay: float = 5e-4,
    hidden: Sequence[int] = (200, 200),
    network: Network | None = None,
    num_resamples: int = 0,
    level: float = 0.9,
    key: jax.Array | int | None = None,
) -> TedN:
    """Alternates between a classifier without the likely positives of U and the best-bin estimate.

    One half of P and of U trains, the other is scored. After warm-up epochs of P against U, every
    epoch (1) drops the highest-scored share of training U, as large as the last estimate (CVIR),
    (2) trains on half the mean loss of P plus half that of the rest of U, and (3) estimates the
    prior by `best_bin` on the held-out halves. Garg et al., "Mixture Proportion Estimation and PU
    Learning: A Modern Approach" (NeurIPS 2021).

    The value is the median over the last 10 epochs, without those whose scores carry no
    information; after such an epoch nothing of U is dropped. Its interval is the bootstrap of
    `best_bin` on the last held-out scores, moved to that value: it does not cover the randomness of
    training.

    The paper's settings are 100 warm-up and as many further epochs at learning rate 0.1 with layers
    of 5000, 5000 and 50 units. The defaults train a table of a few thousand rows in seconds, where
    that rate and length overfit the training half. An estimate that rises above that of the warm-up
    may reinforce itself, since the more of U is dropped, the more looks positive; a warning says
    so.

    Args:
      positives: `[m, ...]`, at least 4; trailing axes are flattened.
      unlabeled: `[n, ...]`, at least 4.
      num_warmup_epochs: epochs of P against all of U, at least 1.
      num_epochs: epochs with a part of U dropped; 0 is the best-bin estimate of the warm-up.
      batch_size: examples of P, and of U, in a step; an epoch goes once through the larger half.
      learning_rate: of SGD.
      momentum: of SGD.
      weight_decay: added to the gradient, times the weights.
      hidden: units per layer of the default network.
      network: another one, in place of `hidden`.
      num_resamples: bootstrap resamples; 0 for no interval.
      level: of the interval.
      key: random key or seed of the halves, the network and the order; None is 0.

    Returns:
      A `TedN`.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    _check(num_warmup_epochs, num_epochs, batch_size, learning_rate, momentum, weight_decay, hidden)
    functions = [getattr(network, name, None) for name in Network._fields]
    is_network = network is None or all(map(callable, functions))
    checks.require(is_network, "network", network, "None, or functions init and apply")
    base.check_level(num_resamples, level)
    p, u, is_blank = base.points(positives, unlabeled)
    for name, sample in (("positives", p), ("unlabeled", u)):
        if len(sample) < 4:
            raise ValueError(
                f"{name} has {len(sample)} examples; accepted: at least 4, two in each half"
            )
    if is_blank:
        return TedN(ANYTHING, np.zeros(0), num_warmup_epochs, np.zeros(0), np.zeros(0), None)
    rng = base.generator(key)
    halves = [np.array_split(rng.permutation(len(sample)), 2)[::-1] for sample in (p, u)]
    (held_p, train_p), (held_u, train_u) = halves
    train = np.concatenate([p[train_p], u[train_u]])
    width = train.shape[1]
    unit = base.magnitude(train, axis=0)  # or squares may overflow
    mean, std = (train / unit).mean(0), (train / unit).std(0)
    # Of a constant whose mean is rounded the deviation is tiny, and not 0.
    std[np.ptp(train, axis=0) == 0] = 1

    def standardise(features: np.ndarray) -> jax.Array:
        return jnp.asarray((features / unit - mean) / std, jnp.float32)

    rates = float(learning_rate), float(momentum), float(weight_decay)
    if network is None:
        training = _default_training(base.layer_sizes("hidden", hidden), int(batch_size), *rates)
    else:
        training = _training(network, int(batch_size), *rates)
    net, optimizer, score, epoch = training
    arrays = standardise(p[train_p]), standardise(u[train_u])
    held = standardise(p[held_p]), standardise(u[held_u])
    root = jax.random.key(rng.integers(2**31))
    params = net.init(jax.random.fold_in(root, 0), arrays[0][:2])
    state, n = optimizer.init(params), len(train_u)
    history: list[float] = []
    for index in range(num_warmup_epochs + num_epochs):
        kept = np.ones(n, np.float32)
        share = history[-1] if index >= num_warmup_epochs else math.nan
        if not math.isnan(share):
            kept = keep(np.asarray(score(params, arrays[1])), share).astype(np.float32)
        params, state = epoch(params, state, *arrays, kept, jax.random.fold_in(root, index + 1))
        scores_p, scores_u = (np.asarray(score(params, x), np.float64) for x in held)
        if not (np.isfinite(scores_p).all() and np.isfinite(scores_u).all()):
            raise ValueError(
                f"learning_rate is {learning_rate}, at which the scores are no longer finite after "
                f"epoch {index + 1}; accepted: a smaller one"
            )
        history.append(best_bin_value(scores_p, scores_u))
    value = settled(history[num_warmup_epochs:] or history, last=_LAST)
    rise = feeds_on_itself(history[num_warmup_epochs - 1], value)
    if rise:
        _LOG.warning("TED^n %s, and best_bin may be nearer", rise)
    if math.isnan(value):
        _LOG.warning("no scores of TED^n separate P from U: every prior is possible")
        estimate = ANYTHING
    else:
        estimate = _with_interval(value, (scores_p, scores_u), num_resamples, level, rng)
    return TedN(
        estimate,
        np.array(history),
        num_warmup_epochs,
        scores_p,
        scores_u,
        predict=lambda x: np.asarray(
            score(params, standardise(base.rows("features", x, width=width))), np.float64
        ),
    )


class _Training(NamedTuple):
    """A network, its optimizer, and what is compiled of them: scores, and an epoch of training."""

    network: Network
    optimizer: optax.GradientTransformation
    score: Callable[..., jax.Array]
    epoch: Callable[..., tuple[Any, Any]]


def _training(
    network: Network, batch_size: int, learning_rate: float, momentum: float, weight_decay: float
) -> _Training:
    optimizer = optax.chain(
        optax.add_decayed_weights(weight_decay), optax.sgd(learning_rate, momentum=momentum)
    )
    epoch = make_epoch(network, optimizer, batch_size)
    return _Training(network, optimizer, jax.jit(network.apply), epoch)


@functools.lru_cache(maxsize=16)
def _default_training(hidden: tuple[int, ...], *settings: Any) -> _Training:
    """`_training` of the default network; equal settings get the same one, which compiles once."""
    return _training(mlp(hidden), *settings)


def keep(scores: np.ndarray, share: float) -> np.ndarray:
    """CVIR's choice: the unlabeled examples that train as negatives, all but the highest scores.

    Args:
      scores: `[n]`, scores of the unlabeled examples that train.
      share: of them to drop, `floor(share n)`, of equal scores the first ones.

    Returns:
      bool `[n]`. At least one example stays: without negatives nothing can be learned.
    """
    n, kept = len(scores), np.ones(len(scores), bool)
    order = np.argsort(-scores, kind="stable")
    count = math.floor(round(share * n, 6))  # 15/22 of 22 are 15, not 14
    kept[order[: min(count, n - 1)]] = False
    return kept


def settled(history: npt.ArrayLike, *, last: int) -> float:
    """The median of the last estimates, without those of scores that told nothing.

    Args:
      history: `[epochs]`, estimates in their order, NaN where the scores told nothing.
      last: how many epochs count.

    Returns:
      The median; NaN where none of them told anything.
    """
    recent = np.asarray(history, np.float64)[-last:]
    known = recent[~np.isnan(recent)]
    return float(np.median(known)) if len(known) else math.nan


def feeds_on_itself(first: float, last: float) -> str:
    """How an estimate rose that may reinforce itself, to follow its name in a sentence; else ''.

    Args:
      first: the estimate after the warm-up.
      last: that of the end; either may be NaN.
    """
    if not last > first + _RISE:
        return ""
    return f"rose from {first:.3f} after the warm-up to {last:.3f}: it feeds on itself"


def _check(num_warmup_epochs, num_epochs, batch_size, learning_rate, momentum, decay, hidden):
    counts = {"num_warmup_epochs": (num_warmup_epochs, 1), "num_epochs": (num_epochs, 0)}
    for name, (value, least) in (counts | {"batch_size": (batch_size, 1)}).items():
        base.whole(name, value, least)
    checks.positive("learning_rate", learning_rate)
    checks.between("momentum", momentum, 0, 1, include="low")
    checks.at_least("weight_decay", decay, 0)
    base.layer_sizes("hidden", hidden)


def best_bin_value(positive: np.ndarray, unlabeled: np.ndarray) -> float:
    """The value of `best_bin`, NaN in place of its warning that every prior is possible.

    Args:
      positive: float64 `[m]`, finite scores of held-out positives.
      unlabeled: float64 `[n]`, those of held-out unlabeled examples.
    """
    if base.are_blank(positive, unlabeled):
        return math.nan
    slack = _best_bin.slack(len(positive), len(unlabeled))
    return float(_best_bin.best(_best_bin.thresholds(positive, unlabeled), slack=slack))


def _with_interval(value, scores, num_resamples, level, rng) -> PriorEstimate:
    if not num_resamples:
        return PriorEstimate(value)
    seed = int(rng.integers(2**31))
    last = best_bin(*scores, num_resamples=num_resamples, level=level, key=seed)
    return base.moved(last, value)
