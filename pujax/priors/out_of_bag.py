"""The class prior from a bagged density ratio: networks score the examples they never saw.

A network that was fitted to P and U tells its own training points apart better than the densities
allow, and more so with every step; an estimator on what it says of them falls far below the prior.
Halves that are held out cure that, but leave half of the sample for training and half for the
estimate. Bags use all of it for both.
"""

import functools
import inspect
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
from pujax.priors._classifier import mlp
from pujax.priors.base import ANYTHING, PriorEstimate
from pujax.priors.km import LAMBDA_MAX, half_bracket, km2, least_share
from pujax.priors.scores import best_bin

_LOG = logging.getLogger(__name__)

LOSSES = ("logistic", "squared")
ESTIMATORS = ("km2", "best_bin")
_MIN_EXAMPLES = 4
"""Two in each half."""
_MAX_KERNEL_POINTS = 2000
"""Scores of P, and of U, that KM2 gets at once."""
_MAX_RESAMPLED_POINTS = 500
"""The same in a resample."""
_CHANCE = 1.645
"""Standard errors by which scores of no use are ahead of a constant in one of 20 samples."""
_LARGE = 0.8
"""KM2 says at most .875, and too little where most of U is positive; docs/results/priors.md has its
errors there."""


class OutOfBag(NamedTuple):
    """Scores of all examples by networks that did not see them.

    Attributes:
      scores_positive: float64 `[pairs, m]`. The networks come in pairs trained on complementary
        halves, so that each pair has one network that never saw an example, whose score this is:
        for 'logistic' the balanced probability `p_P / (p_P + p_U)`, for 'squared' the density ratio
        `p_P / p_U`. The mean over the pairs is the score of an example.
      scores_unlabeled: float64 `[pairs, n]`, likewise.
      objectives: float64 `[looks]`, the objective of the mean scores over all examples, after every
        `look_every` steps.
      num_steps: steps after which it was least, and the scores were taken.
    """

    scores_positive: np.ndarray
    scores_unlabeled: np.ndarray
    objectives: np.ndarray
    num_steps: int


class _Settings(NamedTuple):
    """What a compiled fit depends on, beside shapes."""

    loss: str
    hidden: tuple[int, ...]
    num_pairs: int
    num_looks: int
    look_every: int
    batch_size: int
    learning_rate: float


def out_of_bag(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    estimator: str = "km2",
    num_resamples: int = 40,
    level: float = 0.9,
    key: jax.Array | int | None = None,
    **options: Any,
) -> PriorEstimate:
    """Share of positives in U by an estimator on one number, the out-of-bag score of each example.

    Bagging and its out-of-bag predictions: Breiman, "Out-of-bag estimation" (1996). The squared
    objective of a density ratio: Sakai, Niu, Sugiyama, Neural Computation 33(1), 2021
    (`mutual_info.pu_objective`).

    Args:
      positives: `[m]` or `[m, ...]`, at least 4; trailing axes are flattened.
      unlabeled: `[n]` or `[n, ...]`, at least 4.
      estimator: 'km2', on at most 2,000 random scores of P and of U, or 'best_bin', which is also
        taken in the place of 'km2' where it says more than 0.8, or the scores tell nothing. The
        least answer of 'km2', .0135, stands for 0 to .0266 at least: a warning says so where it is
        given, its interval reaches at least so far, and any that begins at it begins at 0.
      num_resamples: of the interval; 0 for none. Each draws the pairs of networks and the examples
        anew, with 'km2' at most 500 of P and of U, and is moved to the estimate on all: too wide
        rather than too narrow.
      level: of the interval.
      key: random key or seed; None is 0.
      **options: of `out_of_bag_scores`.

    Returns:
      The estimate. Its interval covers the randomness of the samples, of the halves and of the
      training; where the classes overlap at every score, the prior lies below it. Where the scores
      tell P from U no better than a constant, by 1.645 standard errors, U is nearly all positive,
      the labels are too few, or the features say nothing: the value is best bin's, the interval is
      0 to 1, and a warning says why.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    checks.one_of("estimator", estimator, ESTIMATORS)
    base.check_level(num_resamples, level)
    known = inspect.signature(out_of_bag_scores).parameters
    defaults = {x.name: x.default for x in known.values() if x.kind is x.KEYWORD_ONLY}
    del defaults["key"]
    for name in options.keys() - defaults.keys():
        raise TypeError(f"out_of_bag() got an unexpected keyword argument {name!r}")
    settings = _checked(**(defaults | options))
    rng = base.generator(key)
    p, u, is_blank = _points(positives, unlabeled)
    if is_blank:
        return ANYTHING
    found = _scores(p, u, settings, base.generator(int(rng.integers(2**31))))
    pairs = found.scores_positive, found.scores_unlabeled
    p, u = (scores.mean(0) for scores in pairs)
    if base.are_blank(p, u):
        _LOG.warning("the out-of-bag scores tell nothing apart: every prior is possible")
        return ANYTHING
    bins = best_bin(p, u, num_resamples=0)
    if bins[1:] == ANYTHING[1:]:
        return ANYTHING
    if _advantage(settings.loss, p, u) <= _CHANCE:
        _LOG.warning(
            "out_of_bag cannot tell the positives from the unlabeled: these are nearly all "
            "positive, the labels are too few, or the features say nothing; any share is possible"
        )
        return PriorEstimate(bins.value, *ANYTHING[1:])
    if estimator == "best_bin" or bins.value > _LARGE:
        resampled = [_best_bin_resample(*_drawn(pairs, rng), rng) for _ in range(num_resamples)]
        return base.with_interval(bins.value, resampled, level=level)
    value = _km2(*(x[rng.permutation(len(x))[:_MAX_KERNEL_POINTS]] for x in (p, u)))
    resampled = [_km2_resample(*_drawn(pairs, rng), rng) for _ in range(num_resamples)]
    if value <= least_share()[0]:
        _LOG.warning(
            "out_of_bag found no positives among the unlabeled: %.3g is the least share that it "
            "can state, and stands for anything from 0 to a few percent",
            value,
        )
    if not num_resamples:
        return PriorEstimate(value)
    about_median = base.with_interval(np.median(resampled), resampled, level=level)
    # Brackets first: an end that stands for 0, or for 1, is not moved.
    bracketed = base.with_brackets(about_median, half_bracket(), LAMBDA_MAX)
    return base.moved(bracketed, value)


def out_of_bag_scores(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    loss: str = "logistic",
    num_networks: int = 16,
    hidden: Sequence[int] = (100,),
    max_steps: int = 300,
    look_every: int = 10,
    batch_size: int = 128,
    learning_rate: float = 1e-3,
    key: jax.Array | int | None = None,
) -> OutOfBag:
    """Trains small networks on halves of P and U, all at once, and scores what each did not see.

    Features are standardised over P and U together. Every `look_every` steps the objective of the
    mean out-of-bag scores is taken over all examples, and the scores are those of the look where it
    is least: a network that is trained further fits the sample and not the densities. The objective
    sees no class, only P and U.

    Args:
      positives: `[m]` or `[m, ...]`, at least 4; trailing axes are flattened.
      unlabeled: `[n]` or `[n, ...]`, at least 4.
      loss: 'logistic', P against U at equal weights, or 'squared', `E_U[w^2] / 2 - E_P[w]`, whose
        minimum is the ratio of the densities.
      num_networks: an even number; each pair is trained on complementary halves.
      hidden: units per layer.
      max_steps: of Adam, a multiple of `look_every`.
      look_every: steps between two looks at the objective.
      batch_size: examples of P, and of U, in a step, drawn with replacement.
      learning_rate: of Adam.
      key: random key or seed; None is 0.

    Returns:
      An `OutOfBag`.

    Raises:
      ValueError: naming the argument that is not accepted.
    """
    settings = _checked(
        loss=loss,
        num_networks=num_networks,
        hidden=hidden,
        max_steps=max_steps,
        look_every=look_every,
        batch_size=batch_size,
        learning_rate=learning_rate,
    )
    rng = base.generator(key)
    p, u, _ = _points(positives, unlabeled)
    return _scores(p, u, settings, rng)


def _checked(
    *,
    loss: str,
    num_networks: int,
    hidden: Sequence[int],
    max_steps: int,
    look_every: int,
    batch_size: int,
    learning_rate: float,
) -> _Settings:
    """The settings of `out_of_bag_scores`, which says what they are."""
    checks.one_of("loss", loss, LOSSES)
    networks = base.whole("num_networks", num_networks, 2)
    checks.require(networks % 2 == 0, "num_networks", num_networks, "an even number from 2")
    units = base.layer_sizes("hidden", hidden)
    every = base.whole("look_every", look_every, 1)
    steps = base.whole("max_steps", max_steps, every)
    checks.require(steps % every == 0, "max_steps", max_steps, f"a multiple of look_every, {every}")
    size = base.whole("batch_size", batch_size, 1)
    checks.positive("learning_rate", learning_rate)
    return _Settings(loss, units, networks // 2, steps // every, every, size, float(learning_rate))


def _points(
    positives: npt.ArrayLike, unlabeled: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray, bool]:
    """`base.points`, and enough of both for two halves."""
    p, u, is_blank = base.points(positives, unlabeled)
    for name, sample in (("positives", p), ("unlabeled", u)):
        if len(sample) < _MIN_EXAMPLES:
            raise ValueError(
                f"{name} has {len(sample)} examples; accepted: at least {_MIN_EXAMPLES}, two in "
                "each half"
            )
    return p, u, is_blank


def _scores(
    p: np.ndarray, u: np.ndarray, settings: _Settings, rng: np.random.Generator
) -> OutOfBag:
    """Scores of points `[m, d]` and `[n, d]` that are known to be accepted."""
    both = base.standardised(p, u, np.float32)
    halves = [_halves(rng, settings.num_pairs, len(x)) for x in (p, u)]
    root = jax.random.key(int(rng.integers(2**31)))
    fit = _fit(settings)
    looks, best, *scores = fit(both[: len(p)], both[len(p) :], *halves, root)
    objectives = np.asarray(looks, np.float64)
    if not np.isfinite(objectives).any():
        raise ValueError(
            f"learning_rate is {settings.learning_rate}, at which the scores are no longer finite; "
            "accepted: a smaller one"
        )
    on_p, on_u = (
        _unseen(np.asarray(x, np.float64), rows) for x, rows in zip(scores, halves, strict=True)
    )
    return OutOfBag(on_p, on_u, objectives, (int(best) + 1) * settings.look_every)


def _halves(rng: np.random.Generator, num_pairs: int, size: int) -> np.ndarray:
    """Rows that each network is trained on, int32 `[2 * pairs, size // 2]`, a pair side by side.

    Of an odd number one row, another one for every pair, is in neither half.
    """
    half = size // 2
    orders = (rng.permutation(size) for _ in range(num_pairs))
    rows = [part for order in orders for part in (order[:half], order[half : 2 * half])]
    return np.array(rows, np.int32)


def _unseen(scores: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of each pair `[2 * pairs, size]` the score by the network that did not see the example."""
    seen = np.zeros(scores.shape, bool)
    np.put_along_axis(seen, rows, True, axis=1)
    unseen = (~seen).reshape(-1, 2, scores.shape[1])
    total = (scores.reshape(unseen.shape) * unseen).sum(1)
    return total / unseen.sum(1)


@functools.cache
def _fit(settings: _Settings) -> Callable[..., tuple[jax.Array, ...]]:
    """Compiles the training of all networks with its looks.

    Returns:
      `(P [m, d], U [n, d], rows of P [k, m // 2], rows of U [k, n // 2], key) -> (objectives
      [looks], index of the least, scores of P [k, m] and of U [k, n] at that look)`.
    """
    net, optimizer = mlp(settings.hidden), optax.adam(settings.learning_rate)

    def loss(params, p, u):
        return _objective(
            settings.loss, *(_scored(settings.loss, net.apply(params, x)) for x in (p, u))
        )

    def train(params, state, rows_p, rows_u, key, p, u):
        def step(carry, key):
            params, state = carry
            keys = jax.random.split(key)
            drawn = (
                x[rows[jax.random.randint(k, (settings.batch_size,), 0, len(rows))]]
                for x, rows, k in zip((p, u), (rows_p, rows_u), keys, strict=True)
            )
            updates, state = optimizer.update(jax.grad(loss)(params, *drawn), state, params)
            return (optax.apply_updates(params, updates), state), None

        keys = jax.random.split(key, settings.look_every)
        return jax.lax.scan(step, (params, state), keys)[0]

    def mean_unseen(scores, unseen):
        return (scores * unseen).sum(0) / unseen.sum(0)

    @jax.jit
    def run(p, u, rows_p, rows_u, key):
        init_key, train_key = jax.random.split(key)
        num_networks = 2 * settings.num_pairs
        params = jax.vmap(net.init, (0, None))(jax.random.split(init_key, num_networks), p[:1])
        state = jax.vmap(optimizer.init)(params)
        unseen = [
            jnp.ones((num_networks, len(x)), jnp.float32)
            .at[np.arange(num_networks)[:, None], rows]
            .set(0)
            for x, rows in ((p, rows_p), (u, rows_u))
        ]

        def look(carry, key):
            params, state, least, best = carry
            keys = jax.random.split(key, num_networks)
            params, state = jax.vmap(train, (0, 0, 0, 0, 0, None, None))(
                params, state, rows_p, rows_u, keys, p, u
            )
            # One network after another: the hidden units of all examples are large.
            scores = [
                jax.lax.map(lambda w, x=x: _scored(settings.loss, net.apply(w, x)), params)
                for x in (p, u)
            ]
            objective = _objective(settings.loss, *map(mean_unseen, scores, unseen))
            is_best = jnp.isfinite(objective) & (objective < least)
            best = [jnp.where(is_best, new, old) for new, old in zip(scores, best, strict=True)]
            return (params, state, jnp.where(is_best, objective, least), best), objective

        none = [jnp.zeros((num_networks, len(x)), jnp.float32) for x in (p, u)]
        start = params, state, jnp.asarray(jnp.inf, jnp.float32), none
        keys = jax.random.split(train_key, settings.num_looks)
        (_, _, _, best), objectives = jax.lax.scan(look, start, keys)
        known = jnp.where(jnp.isfinite(objectives), objectives, jnp.inf)
        return objectives, jnp.argmin(known), *best

    return run


def _scored(loss: str, logits: jax.Array) -> jax.Array:
    """Balanced probability of being labelled, or a ratio of densities that is not negative."""
    return jax.nn.sigmoid(logits) if loss == "logistic" else jax.nn.softplus(logits)


def _objective(loss: str, p: jax.Array, u: jax.Array) -> jax.Array:
    """What is minimised, of scores as `_scored` gives them."""
    if loss == "squared":
        return (u**2).mean() / 2 - p.mean()
    tiny = jnp.finfo(jnp.float32).eps  # sigmoid rounds to 1
    return -(jnp.log(p + tiny).mean() + jnp.log1p(tiny - u).mean()) / 2


def _advantage(loss: str, p: np.ndarray, u: np.ndarray) -> float:
    """By how many standard errors the objective of the scores is ahead of that of a constant."""
    if loss == "squared":
        parts = p - 1, (1 - u**2) / 2
    else:
        tiny = float(np.finfo(np.float32).eps)
        parts = np.log(2 * p + tiny) / 2, np.log(2 - 2 * u + tiny) / 2
    error = math.sqrt(sum(float(x.var()) / len(x) for x in parts))
    return sum(float(x.mean()) for x in parts) / error if error else 0.0


def _drawn(
    pairs: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Mean scores of P and U over pairs of networks drawn with replacement."""
    drawn = rng.integers(len(pairs[0]), size=len(pairs[0]))
    return pairs[0][drawn].mean(0), pairs[1][drawn].mean(0)


def _best_bin_resample(p: np.ndarray, u: np.ndarray, rng: np.random.Generator) -> float:
    counts = _best_bin.thin(_best_bin.thresholds(p, u))
    slack = _best_bin.slack(len(p), len(u))
    return float(_best_bin.resampled(counts, slack=slack, num_resamples=1, rng=rng)[0])


def _km2_resample(p: np.ndarray, u: np.ndarray, rng: np.random.Generator) -> float:
    sizes = (min(len(x), _MAX_RESAMPLED_POINTS) for x in (p, u))
    drawn = (x[rng.integers(len(x), size=size)] for x, size in zip((p, u), sizes, strict=True))
    return _km2(*drawn)


def _km2(p: np.ndarray, u: np.ndarray) -> float:
    """KM2's value; of scores that are equal, of which a draw may have no others, any prior's."""
    return ANYTHING.value if base.are_blank(p, u) else km2(p, u).value
