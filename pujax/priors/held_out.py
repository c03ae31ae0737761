"""Scores of examples that their classifier was not trained on, and estimates from them."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import numpy.typing as npt
import threadpoolctl

from pujax import checks
from pujax.priors import base as base_lib
from pujax.priors.base import ANYTHING, PriorEstimate
from pujax.priors.scores import best_bin, elkan_noto

_MIN_EXAMPLES = 4
"""Two to train on and two to score."""
_NUM_KERNEL_FEATURES = 300
_MAX_TRAINED = 50_000
"""Examples of P, and of U, that the default scorer is trained on; more do not improve it."""
_CHUNK = 20_000
_MIN_THREADED = 20_000
"""Fewer training examples are faster on one thread, many times faster on a busy machine."""


class HeldOut(NamedTuple):
    """Scores of the held-out halves, and the classifier that gave them.

    Attributes:
      scores_positive: float64 `[m]`, probability of being labelled of the held-out positives.
      scores_unlabeled: float64 `[n]`, that of the held-out unlabeled examples.
      positive_rows: int `[m]`, which of the positives these are; the others were trained on.
      unlabeled_rows: int `[n]`, which of the unlabeled examples.
      scorer: the fitted classifier; it takes examples as `[b, d]`.
    """

    scores_positive: np.ndarray
    scores_unlabeled: np.ndarray
    positive_rows: np.ndarray
    unlabeled_rows: np.ndarray
    scorer: Any


def default_scorer(num_examples: int, *, seed: int = 0) -> Any:
    """The classifier of `held_out_scores`: logistic regression on an approximate Gaussian kernel.

    Standardised features, 300 Nystroem features of a kernel as wide as the data. The mean error of
    `best_bin` over Gaussian toy cases (200 P, 300 U), a9a, ijcnn1, mushrooms, phishing, MNIST and
    20 Newsgroups (1000 P, 2000 U) is 0.033, against 0.061 of logistic regression on the features
    (0.12 on MNIST, 0.07 on ijcnn1). Random and boosted trees came close on the tables, at several
    times the cost, but shrink their probabilities, of which `elkan_noto` takes the mean. For larger
    images a network is better.

    Args:
      num_examples: how many it will be trained on.
      seed: of the choice of kernel centres.

    Returns:
      A scikit-learn classifier, not fitted.
    """
    # Where it is needed: scikit-learn loads for a second.
    from sklearn import kernel_approximation, linear_model, pipeline, preprocessing

    from pujax.priors import _units

    kernel = kernel_approximation.Nystroem(
        n_components=min(_NUM_KERNEL_FEATURES, num_examples), random_state=seed
    )
    linear = linear_model.LogisticRegression(max_iter=500)
    scale = pipeline.make_pipeline(_units.Units(), preprocessing.StandardScaler())
    return pipeline.Pipeline([("scale", scale), ("kernel", kernel), ("linear", linear)])


def held_out_scores(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    scorer: Any = None,
    balanced: bool = True,
    key: jax.Array | int | None = None,
) -> HeldOut:
    """Train a classifier of P against U on one half of each, and score the other halves.

    On its own training examples a classifier separates P from U better than the densities allow,
    and every estimate from such scores is off. With `balanced` P and U weigh the same, and the
    score is `f = a / (a + b)` of the densities `a` of P and `b` of U, as the 'ratio' of
    `elkan_noto` asks for; else it is `g = P(labelled | x)` where P and U are as many as are scored,
    which the other forms of `elkan_noto` ask for. A `best_bin` takes either. A scorer whose `fit`
    takes no `sample_weight` is trained without and its `g` turned into `f`.

    Args:
      positives: `[n_p, ...]`, at least 4; trailing axes, as of images, are flattened.
      unlabeled: `[n_u, ...]`, at least 4.
      scorer: a classifier with `fit` and `predict_proba` as in scikit-learn, of which a copy is
        trained on labels 1 (P) and 0 (U); None is `default_scorer`.
      balanced: whether P and U weigh the same.
      key: random key of the halves, or an integer; None is 0.

    Returns:
      The scores and the rows they belong to. Of an odd number the larger half is scored.

    Raises:
      ValueError: for points that are not accepted, too few of them, or a scorer without the two
        methods.
    """
    p, u, _ = _halvable(positives, unlabeled)
    return _split_and_score(p, u, scorer=scorer, balanced=balanced, rng=base_lib.generator(key))


def held_out(
    positives: npt.ArrayLike,
    unlabeled: npt.ArrayLike,
    *,
    estimator: Callable[..., PriorEstimate] = best_bin,
    scorer: Any = None,
    balanced: bool | None = None,
    num_resamples: int = 200,
    level: float = 0.9,
    key: jax.Array | int | None = None,
    **options: Any,
) -> PriorEstimate:
    """Estimate the share of positives in U from features, by an estimator on held-out scores.

    The interval comes from resampling the scores; the halves and the classifier are held fixed.

    Args:
      positives: `[n_p, ...]`, at least 4; trailing axes are flattened.
      unlabeled: `[n_u, ...]`, at least 4.
      estimator: `best_bin`, `elkan_noto`, or a function like them; set options of its own that
        share a name with one here by `functools.partial(elkan_noto, estimator='e2')`.
      scorer: as in `held_out_scores`.
      balanced: as in `held_out_scores`; None is True but for the forms of `elkan_noto` that need
        P(labelled | x).
      num_resamples: resamples of the interval; 0 for none.
      level: confidence level of the interval.
      key: random key of halves and bootstrap, or an integer; None is 0.
      **options: further ones of the estimator.

    Returns:
      The estimate.

    Raises:
      ValueError: for points or settings that are not accepted.
    """
    base_lib.check_level(num_resamples, level)
    p, u, is_blank = _halvable(positives, unlabeled)
    if is_blank:
        return ANYTHING
    rng = base_lib.generator(key)
    checks.require(callable(estimator), "estimator", estimator, "a function like best_bin")
    if balanced is None:
        balanced = not _needs_label_probability(estimator)
    scores = _split_and_score(p, u, scorer=scorer, balanced=balanced, rng=rng)
    return estimator(
        scores.scores_positive,
        scores.scores_unlabeled,
        num_resamples=num_resamples,
        level=level,
        key=int(rng.integers(2**31)),
        **options,
    )


def _halvable(
    positives: npt.ArrayLike, unlabeled: npt.ArrayLike
) -> tuple[np.ndarray, np.ndarray, bool]:
    for name, values in (("positives", positives), ("unlabeled", unlabeled)):
        shape = base_lib.real_array(name, values, "real numbers, one row per example").shape
        if shape and shape[0] < _MIN_EXAMPLES:
            raise ValueError(
                f"{name} has {shape[0]} examples; accepted: at least {_MIN_EXAMPLES}, half of "
                "them to train on and half to score"
            )
    return base_lib.points(positives, unlabeled)


def _split_and_score(
    p: np.ndarray, u: np.ndarray, *, scorer: Any, balanced: bool, rng: np.random.Generator
) -> HeldOut:
    p_rows, u_rows = rng.permutation(len(p)), rng.permutation(len(u))
    m, n = len(p) // 2, len(u) // 2
    p_trained, u_trained = p_rows[:m], u_rows[:n]
    if scorer is None:
        p_trained, u_trained = p_trained[:_MAX_TRAINED], u_trained[:_MAX_TRAINED]
        seed = int(rng.integers(2**31))
        scorer = default_scorer(len(p_trained) + len(u_trained), seed=seed)
    p_rows, u_rows = np.sort(p_rows[m:]), np.sort(u_rows[n:])
    with threadpoolctl.threadpool_limits(1 if m + n < _MIN_THREADED else None):
        scorer, odds = _fitted(scorer, p[p_trained], u[u_trained], balanced=balanced)
        # P and U weigh the same in f, and in g as many as are scored; where the fit saw another
        # ratio, the odds of its probabilities are off by that factor.
        factor = (1 if balanced else len(p_rows) / len(u_rows)) / odds
        p_scores, u_scores = (_scores(scorer, part, factor) for part in (p[p_rows], u[u_rows]))
    return HeldOut(p_scores, u_scores, p_rows, u_rows, scorer)


def _scores(scorer: Any, examples: np.ndarray, factor: float) -> np.ndarray:
    """Probabilities of being labelled, their odds times a factor."""
    column = list(scorer.classes_).index(1)
    chunks = (examples[first : first + _CHUNK] for first in range(0, len(examples), _CHUNK))
    labeled = np.concatenate([scorer.predict_proba(chunk)[:, column] for chunk in chunks])
    labeled = labeled.astype(np.float64)
    return labeled if factor == 1 else labeled * factor / (labeled * factor + 1 - labeled)


def _fitted(scorer: Any, p: np.ndarray, u: np.ndarray, *, balanced: bool) -> tuple[Any, float]:
    """A fitted copy of the scorer, and the odds of P against U that its fit saw."""
    from sklearn import base

    for method in ("fit", "predict_proba"):
        if not callable(getattr(scorer, method, None)):
            raise ValueError(
                f"scorer is {scorer!r}, which has no {method}; accepted: a classifier with fit and "
                "predict_proba"
            )
    scorer = base.clone(scorer, safe=False)
    m, n = len(p), len(u)
    features, is_labeled = np.concatenate([p, u]), np.arange(m + n) < m
    argument = _weight_argument(scorer)
    if not balanced or argument is None:
        scorer.fit(features, is_labeled.astype(int))
        return scorer, m / n
    weights = np.where(is_labeled, (m + n) / (2 * m), (m + n) / (2 * n))
    scorer.fit(features, is_labeled.astype(int), **{argument: weights})
    return scorer, 1.0


def _weight_argument(scorer: Any) -> str | None:
    """Name under which `fit` takes weights of the examples, None where it takes none."""
    from sklearn import pipeline
    from sklearn.utils import validation

    prefix = ""
    while isinstance(scorer, pipeline.Pipeline):
        name, scorer = scorer.steps[-1]
        prefix += f"{name}__"
    takes = validation.has_fit_parameter(scorer, "sample_weight")
    return f"{prefix}sample_weight" if takes else None


def _needs_label_probability(estimator: Callable[..., PriorEstimate]) -> bool:
    settings: dict[str, Any] = {}
    while isinstance(estimator, functools.partial):
        settings = estimator.keywords | settings
        estimator = estimator.func
    return estimator is elkan_noto and settings.get("estimator", "e1") != "ratio"
