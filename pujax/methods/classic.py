"""Classical PU learning over scikit-learn: what a network has to beat.

`base` separates labelled positives P from unlabeled examples U, and `correction` says what is made
of its score g, the log odds of P against U:
- 'naive': g itself. With `weighting='balanced'` P and U weigh the same, and g > 0 where P is denser
  than U, which is where positives are denser than negatives. With 'none' g > 0 says that an example
  of this kind is more likely labelled than not, which hardly any is where few are labelled.
- 'elkan_noto': log odds of the class. Where P was taken out of one sample, P(y = 1 | x) is
  P(s = 1 | x) / c, and c is the mean of P(s = 1 | x) over positives held out (Elkan and Noto 2008,
  "Learning classifiers from only positive and unlabeled data", estimator e1). In two-sample data
  P(y = 1 | x) is instead proportional to the odds of P against U, which are n_p / (prior n_u) where
  x is surely positive; c = n_p / (n_p + prior n_u) is the same mean, and the odds are divided by
  c / (1 - c). Balanced weights are undone first.
- 'bagging': the mean of g over `num_bags` classifiers of P against a bootstrap of U each (Mordelet
  and Vert 2014, "A bagging SVM to learn from positive and unlabeled examples", Algorithm 1), or,
  with `aggregation='probability'`, the log odds of the mean of their probabilities, which one
  classifier that is very sure of itself moves less.

The classifiers are fitted once, on the host and in one thread, so that every host and every machine
gets the same. They become arrays, and all else (predictions, checkpoints, saved models) is as for a
network. There is nothing to train further: the one step of the one epoch only measures the loss.
"""

import functools
import logging
import math
import warnings
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import threadpoolctl
from scipy import special
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from pujax import checks, risks
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import network as network_lib
from pujax.methods.base import Method, Stage
from pujax.priors import conversions

_LOG = logging.getLogger(__name__)

NETWORK = False
"""There are no weights to average, to freeze or to start from, and no epochs to repeat."""

_LARGEST = 1 - 1e-3
"""Probabilities of Elkan and Noto from here on are rounded: the ratio may exceed 1."""
_BATCH_SIZE = 256  # of the step that measures the loss
_EARLY_STOPPING: dict[str, Any] = {"auto": "auto", "on": True, "off": False}
_AUTO_ABOVE = 10_000
"""Rows above which scikit-learn's boosting stops early with 'auto'."""
_FEWEST_TO_STOP = 11
"""Rows of which the tenth that it holds out, rounded up, has room for one of P and one of U."""


class Linear(NamedTuple):
    """Logistic regressions.

    Attributes:
      coef: `[models, features]`, of normalised inputs.
      intercept: `[models]`.
    """

    coef: Any
    intercept: Any


class Trees(NamedTuple):
    """Boosted trees of several models, each with as many trees and nodes as the settings allow.

    Node 0 is the root. Leaves, and nodes that do not exist, are their own children.

    Attributes:
      feature: int32 `[models, trees, nodes]`, the input that a node looks at.
      threshold: float32, inputs up to it go left. Rounded down from scikit-learn's float64, which
        leaves every float32 input on its side.
      left: int32, child.
      right: int32, child.
      value: float32, what a leaf adds to the score.
      baseline: `[models]`, the score before the first tree.
      depth: int32 `[models]`, steps from the root to the deepest leaf.
    """

    feature: Any
    threshold: Any
    left: Any
    right: Any
    value: Any
    baseline: Any
    depth: Any


class State(NamedTuple):
    """The fitted classifiers.

    Attributes:
      models: `Linear` or `Trees`.
      label_frequency: Elkan and Noto's c; 1 for other corrections.
      iterations: int32, the most iterations that a model took.
    """

    models: Linear | Trees
    label_frequency: Any
    iterations: Any


def default_config() -> ml_collections.ConfigDict:
    """What to fit, and scikit-learn's own names and defaults of its settings.

    `hold_out_ratio` is the share of P and of U that only c is estimated from. A bag takes as many
    of U as there are in P unless `bag_size` says otherwise. `C`, `tol` and `max_iter` are of
    logistic regression, the last one and those below it of boosting, where `max_depth=0` is no
    limit and `early_stopping='auto'` stops early above 10,000 examples, but not where a classifier
    is fitted to a single one of P, or of U.
    """
    return ml_collections.ConfigDict(
        {
            "name": "classic",
            "base": "logistic",  # or 'boosting', histogram gradient boosting
            "correction": "naive",  # or 'elkan_noto', 'bagging'
            "weighting": "balanced",  # P and U weigh the same; or 'none'
            "hold_out_ratio": 0.2,
            "num_bags": 30,
            "bag_size": 0,
            "aggregation": "score",  # of the bags; or 'probability'
            "C": 1.0,
            "tol": 1e-4,
            "max_iter": 100,
            "learning_rate": 0.1,
            "max_leaf_nodes": 31,
            "max_depth": 0,
            "min_samples_leaf": 20,
            "l2_regularization": 0.0,
            "max_features": 1.0,
            "max_bins": 255,
            "early_stopping": "auto",  # or 'on', 'off'
        }
    )


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings, the whole configuration, that cannot be."""
    c = config.method
    accepted = "'' with method.name='classic', which has no network to start"
    checks.require(not config.init_from, "init_from", config.init_from, accepted)
    network_lib.check(config, info)
    checks.one_of("method.base", c.base, ("logistic", "boosting"))
    checks.one_of("method.correction", c.correction, ("naive", "elkan_noto", "bagging"))
    checks.one_of("method.weighting", c.weighting, ("balanced", "none"))
    checks.between("method.hold_out_ratio", c.hold_out_ratio, 0, 1, include="neither")
    checks.at_least("method.num_bags", c.num_bags, 1)
    checks.at_least("method.bag_size", c.bag_size, 0)
    checks.one_of("method.aggregation", c.get("aggregation", "score"), ("score", "probability"))
    for name in ("C", "tol", "learning_rate"):
        checks.positive(f"method.{name}", c[name])
    for name in ("max_iter", "min_samples_leaf"):
        checks.at_least(f"method.{name}", c[name], 1)
    checks.at_least("method.max_leaf_nodes", c.max_leaf_nodes, 2)
    checks.at_least("method.max_depth", c.max_depth, 0)
    checks.at_least("method.l2_regularization", c.l2_regularization, 0)
    checks.between("method.max_features", c.max_features, 0, 1, include="high")
    checks.between("method.max_bins", c.max_bins, 2, 255)
    checks.one_of("method.early_stopping", c.early_stopping, tuple(_EARLY_STOPPING))
    if c.correction == "elkan_noto":
        accepted = "'naive' or 'bagging' with fewer than 2 examples of P, or of U, to hold one out"
        checks.require(min(info.n_p, info.n_u) > 1, "method.correction", c.correction, accepted)
    if c.base == "boosting" and c.early_stopping == "on":
        n_p, n_u = _num_fitted(c, info.n_p, info.n_u)
        accepted = (
            f"'auto' or 'off' where a classifier is fitted to {n_p} of P and {n_u} of U; 'on' "
            f"takes 2 of each, and {_FEWEST_TO_STOP} in all"
        )
        checks.require(_can_stop(n_p, n_u), "method.early_stopping", c.early_stopping, accepted)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds the classical method for a resolved configuration and a data set's numbers."""
    c = config.method
    check(config, info)
    is_linear, corrects = c.base == "logistic", c.correction == "elkan_noto"
    is_bagged = c.correction == "bagging"
    num_models = c.num_bags if is_bagged else 1
    # Saved models from before the field have the mean of scores.
    of_probabilities = is_bagged and c.get("aggregation", "score") == "probability"
    margins: Any = _linear_margins if is_linear else _tree_margins

    def features(inputs: jax.Array) -> jax.Array:
        # Trees do not depend on the scale of a feature, and on raw inputs no rounding can come
        # between an input and its threshold.
        if is_linear:
            inputs = network_lib.normalize(inputs, info.mean, info.std, config.model.image_size)
        else:
            inputs = network_lib.resize(inputs, config.model.image_size).astype(jnp.float32)
        return inputs.reshape(inputs.shape[0], -1)

    def margin(state: State, inputs: jax.Array) -> jax.Array:
        scores = margins(state.models, features(inputs))
        return mean_log_odds(scores) if of_probabilities else jnp.mean(scores, axis=0)

    def predict(state: State, inputs: jax.Array) -> jax.Array:
        scores = margin(state, inputs)
        if corrects:
            return class_log_odds(scores, state.label_frequency, setting=info.setting)
        return scores

    def init(key: jax.Array, previous: None, data: TrainingData) -> State:
        del key, previous
        if is_linear:
            width = jax.eval_shape(features, data.inputs[:1]).shape[1]
            models: Any = Linear(jnp.zeros([num_models, width]), jnp.zeros([num_models]))
        else:
            models = jax.tree.map(jnp.asarray, _no_trees(c, num_models))
        return State(models, jnp.ones([]), jnp.zeros([], jnp.int32))

    compiled = jax.jit(features)

    def refresh(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        del state, epoch
        # A copy on a device of this host, which computes all of it.
        inputs = jnp.asarray(np.asarray(data.inputs))
        size = config.run.eval_batch_size
        rows = np.asarray(batching_lib.map_batches(compiled, inputs, batch_size=size))
        seed = int(jax.random.bits(key, dtype=jnp.uint32)) >> 1
        with threadpoolctl.threadpool_limits(limits=1):
            copies = None if data.copies is None else np.asarray(data.copies)
            fitted = fit(
                c, rows.astype(np.float64), np.asarray(data.labeled), seed=seed, copies=copies
            )
        return jax.tree.map(jnp.asarray, fitted)

    def step(state: State, batch: Batch, key: jax.Array):
        del key
        return state, {"loss": risks.naive(margin(state, batch.inputs), batch.labeled)}

    def estimates(state: State) -> dict[str, jax.Array]:
        found: dict[str, Any] = {"iterations": state.iterations}
        if corrects:
            frequency = float(np.asarray(state.label_frequency))
            counts = {"n_p": info.n_p, "n_u": info.n_u}
            prior = conversions.unlabeled_prior_from_label_frequency(frequency, **counts)
            found |= {"label_frequency": frequency, "estimated_prior": prior}
        return {name: jnp.asarray(value, jnp.float32) for name, value in found.items()}

    def diagnose(found: dict[str, float]) -> list[str]:
        if not is_linear or found["iterations"] < c.max_iter:
            return []
        return [
            f"logistic regression took all of method.max_iter={c.max_iter} iterations and may not "
            "have converged; more of them, or a smaller method.C, helps"
        ]

    size = min(_BATCH_SIZE, info.n)
    # Half of the batch is P, so that the loss never lacks it.
    batches = Batching(batch_size=size, num_positives=size // 2, steps=1)
    stage = Stage("fit", 1, init, step, batches, refresh, refresh_every=0)
    return Method((stage,), predict, estimates=estimates, diagnose=diagnose)


def mean_log_odds(scores: jax.Array) -> jax.Array:
    """Log odds of the mean of probabilities that are given as log odds.

    Args:
      scores: `[models, batch]`.

    Returns:
      `[batch]`, finite wherever the scores are.
    """
    log_p, log_not = jax.nn.log_sigmoid(scores), jax.nn.log_sigmoid(-scores)
    return jax.nn.logsumexp(log_p, axis=0) - jax.nn.logsumexp(log_not, axis=0)


def class_log_odds(margin: jax.Array, label_frequency: jax.Array, *, setting: str) -> jax.Array:
    """Elkan and Noto's P(y = 1 | x) as log odds.

    From the probability .999 on, or where the ratio exceeds 1, the score goes on along the margin,
    so that examples keep their order.

    Args:
      margin: `[batch]`, log odds of P against U.
      label_frequency: scalar c in (0, 1).
      setting: 'one_sample' or 'two_sample', see the module.

    Returns:
      `[batch]`, which rises with `margin`.
    """
    log_c, logit_c = jnp.log(label_frequency), jax.scipy.special.logit(label_frequency)
    if setting == "one_sample":
        log_share = jax.nn.log_sigmoid(margin) - log_c
        last = jax.scipy.special.logit(_LARGEST * label_frequency)
    else:
        log_share = margin - logit_c
        last = logit_c + math.log(_LARGEST)
    log_share = jnp.minimum(log_share, math.log(_LARGEST))
    odds = log_share - jnp.log1p(-jnp.exp(log_share))
    return odds + jnp.maximum(margin - last, 0)


def fit(
    config: ml_collections.ConfigDict,
    rows: np.ndarray,
    labeled: np.ndarray,
    *,
    seed: int,
    copies: np.ndarray | None = None,
) -> State:
    """Fits all classifiers.

    Args:
      config: the method's section.
      rows: float64 `[n, d]`.
      labeled: bool `[n]`, True for P.
      seed: of everything that is drawn.
      copies: where U repeats P, see `TrainingData`.

    Returns:
      A `State` of NumPy arrays.
    """
    c, rng, frequency = config, np.random.default_rng(seed), 1.0
    if c.correction == "bagging":
        size = c.bag_size or int(labeled.sum())
        parts = bags(rng, labeled, num_bags=c.num_bags, size=size)
    elif c.correction == "elkan_noto":
        held = held_out(rng, labeled, c.hold_out_ratio, copies)
        parts = [np.flatnonzero(~held)]
    else:
        parts = [np.arange(len(rows))]
    early_stopping = _early_stopping(c, labeled[parts[0]])  # all have as many of P and of U
    models = []
    for part in parts:
        drawn = int(rng.integers(2**31))
        model = _estimator(c, seed=drawn, early_stopping=early_stopping)
        with warnings.catch_warnings():
            # The number of iterations says it, see `diagnose`.
            warnings.simplefilter("ignore", ConvergenceWarning)
            models.append(model.fit(rows[part], labeled[part]))
    shift = 0.0
    if c.correction == "elkan_noto":
        if c.weighting == "balanced":
            # Odds in the data: those at equal weights times n_p / n_u.
            shift = math.log(labeled[parts[0]].sum() / (~labeled[parts[0]]).sum())
        margins = models[0].decision_function(rows[held & labeled]) + shift
        frequency = float(np.clip(special.expit(margins).mean(), 1e-6, 1 - 1e-6))
    arrays = (_linear if c.base == "logistic" else functools.partial(_trees, c))(models, shift)
    iterations = max(int(np.max(model.n_iter_)) for model in models)
    return State(arrays, np.float32(frequency), np.int32(iterations))


def bags(
    rng: np.random.Generator, labeled: np.ndarray, *, num_bags: int, size: int
) -> list[np.ndarray]:
    """Rows of every bag: all of P, then `size` of U drawn with replacement.

    Args:
      rng: source of randomness.
      labeled: bool `[n]`, True for P.
      num_bags: how many.
      size: rows of U in each.
    """
    positives, unlabeled = np.flatnonzero(labeled), np.flatnonzero(~labeled)
    return [np.concatenate([positives, rng.choice(unlabeled, size)]) for _ in range(num_bags)]


def held_out(
    rng: np.random.Generator, labeled: np.ndarray, ratio: float, copies: np.ndarray | None = None
) -> np.ndarray:
    """Which rows are held out, bool `[n]`: a share of P and of U, of each at least one, not all.

    Where U repeats P, the copies of these positives and a share of the others of U: an example
    whose copy trains would be known, as one without a label.
    """
    held = np.zeros(len(labeled), bool)
    others = np.ones(len(labeled), bool) if copies is None else copies == np.arange(len(copies))
    for rows in (np.flatnonzero(labeled), np.flatnonzero(~labeled & others)):
        held[rng.choice(rows, _num_held(ratio, len(rows)), replace=False)] = True
    return held if copies is None else held | held[copies]


def _num_held(ratio: float, count: int) -> int:
    """How many of so many examples are held out."""
    return max(min(max(round(ratio * count), 1), count - 1), 0)


def _num_fitted(c: ml_collections.ConfigDict, n_p: int, n_u: int) -> tuple[int, int]:
    """Examples of P and of U that each classifier is fitted to, where U does not repeat P."""
    if c.correction == "bagging":
        return n_p, c.bag_size or n_p
    if c.correction == "elkan_noto":
        return n_p - _num_held(c.hold_out_ratio, n_p), n_u - _num_held(c.hold_out_ratio, n_u)
    return n_p, n_u


def _can_stop(n_p: int, n_u: int) -> bool:
    """Whether scikit-learn can hold out examples, of P and of U, to see where boosting stops."""
    return min(n_p, n_u) > 1 and n_p + n_u >= _FEWEST_TO_STOP


def _early_stopping(c: ml_collections.ConfigDict, labeled: np.ndarray) -> Any:
    """scikit-learn's setting for a classifier of these examples; off where it would fail."""
    n_p, n_u = int(labeled.sum()), int((~labeled).sum())
    is_wanted = c.early_stopping == "on" or (
        c.early_stopping == "auto" and len(labeled) > _AUTO_ABOVE
    )
    if c.base == "logistic" or not is_wanted or _can_stop(n_p, n_u):
        return _EARLY_STOPPING[c.early_stopping]
    _LOG.warning(
        "boosting takes all of method.max_iter=%d iterations: it is fitted to %d of P and %d of U, "
        "and cannot hold out one of each to see where to stop early",
        *(c.max_iter, n_p, n_u),
    )
    return False


def _estimator(c: ml_collections.ConfigDict, *, seed: int, early_stopping: Any) -> Any:
    """scikit-learn's classifier of P against U."""
    weights = "balanced" if c.weighting == "balanced" else None
    if c.base == "logistic":
        return LogisticRegression(C=c.C, tol=c.tol, max_iter=c.max_iter, class_weight=weights)
    return HistGradientBoostingClassifier(
        learning_rate=c.learning_rate,
        max_iter=c.max_iter,
        max_leaf_nodes=c.max_leaf_nodes,
        max_depth=c.max_depth or None,
        min_samples_leaf=c.min_samples_leaf,
        l2_regularization=c.l2_regularization,
        max_features=c.max_features,
        max_bins=c.max_bins,
        early_stopping=early_stopping,
        class_weight=weights,
        random_state=seed,
    )


def _linear(models: list[Any], shift: float) -> Linear:
    coef = np.concatenate([model.coef_ for model in models])
    intercept = np.concatenate([model.intercept_ for model in models]) + shift
    return Linear(coef.astype(np.float32), intercept.astype(np.float32))


def _no_trees(c: ml_collections.ConfigDict, num_models: int) -> Trees:
    """Models whose trees are single leaves that add nothing."""
    num_nodes = 2 * c.max_leaf_nodes - 1
    shape = (num_models, c.max_iter, num_nodes)
    itself = np.broadcast_to(np.arange(num_nodes, dtype=np.int32), shape)
    return Trees(
        feature=np.zeros(shape, np.int32),
        threshold=np.zeros(shape, np.float32),
        left=itself.copy(),
        right=itself.copy(),
        value=np.zeros(shape, np.float32),
        baseline=np.zeros(num_models, np.float32),
        depth=np.zeros(num_models, np.int32),
    )


def _trees(c: ml_collections.ConfigDict, models: list[Any], shift: float) -> Trees:
    """The trees of scikit-learn's models, which has no public name for them."""
    result = _no_trees(c, len(models))
    for i, model in enumerate(models):
        result.baseline[i] = model._baseline_prediction[0, 0] + shift
        for j, (tree,) in enumerate(model._predictors):
            nodes = tree.nodes
            splits = np.flatnonzero(nodes["is_leaf"] == 0)
            result.feature[i, j, splits] = nodes["feature_idx"][splits]
            result.threshold[i, j, splits] = rounded_down(nodes["num_threshold"][splits])
            result.left[i, j, splits] = nodes["left"][splits]
            result.right[i, j, splits] = nodes["right"][splits]
            leaves = np.flatnonzero(nodes["is_leaf"])
            result.value[i, j, leaves] = nodes["value"][leaves]
            result.depth[i] = max(result.depth[i], nodes["depth"].max())
    return result


def rounded_down(numbers: np.ndarray) -> np.ndarray:
    """The largest float32 up to each float64; both have the same float32 numbers below them."""
    near = numbers.astype(np.float32)
    return np.where(near > numbers, np.nextafter(near, np.float32(-np.inf)), near)


def _linear_margins(models: Linear, rows: jax.Array) -> jax.Array:
    """`[models, batch]`."""
    products = jnp.matmul(models.coef, rows.T, precision=jax.lax.Precision.HIGHEST)
    return products + models.intercept[:, None]


def _tree_margins(models: Trees, rows: jax.Array) -> jax.Array:
    """`[models, batch]`."""
    batch, tree = jnp.arange(rows.shape[0])[:, None], jnp.arange(models.feature.shape[1])

    def of_model(model: Trees) -> jax.Array:
        def down(_: int, node: jax.Array) -> jax.Array:
            is_left = rows[batch, model.feature[tree, node]] <= model.threshold[tree, node]
            return jnp.where(is_left, model.left[tree, node], model.right[tree, node])

        start = jnp.zeros([rows.shape[0], len(tree)], jnp.int32)
        leaf = jax.lax.fori_loop(0, model.depth, down, start)
        return model.baseline + jnp.sum(model.value[tree, leaf], axis=1)

    return jax.lax.map(of_model, models)
