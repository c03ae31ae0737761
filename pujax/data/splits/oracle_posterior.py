"""An oracle's p(y=1|x), used only to *make* data whose labels depend on the instance.

No method ever sees it: it decides which positives get a label and is then forgotten.
"""

import hashlib
import math
import warnings

import numpy as np
import threadpoolctl

from pujax.data import raw
from pujax.data.image_files import ImageFiles, as_array

# Inverse L2 strengths to choose from, for inputs of unit overall variance, and how they are chosen.
# They are tried from the strongest penalty on until the loss rises.
_STRENGTHS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
_FOLDS = 3
_MAX_CV_ROWS = 10_000
_MIN_CV_ROWS = 500
_MAX_CV_NUMBERS = 8_000_000  # rows times features: large images are tuned on fewer rows
_MAX_ITERATIONS = 200
_CHUNK = 4096  # rows converted or predicted at once
_MOST_REMEMBERED = 32
_remembered: dict[bytes, np.ndarray] = {}


def fit(inputs: np.ndarray | ImageFiles, binary: np.ndarray, *, seed: int) -> np.ndarray:
    """Estimates the positive-class posterior of every example with a linear classifier.

    A binary logistic regression with an L2 penalty on all examples of known class, as in GradPU's
    selection-bias protocol, which leaves the penalty open. PUSB's authors take the posterior from
    the network itself, trained on training and test set: near 1 for most positives, so that their
    labels are less biased. Pixels are centred and divided by one overall standard deviation, the
    features of a table each by their own, since their units differ. Of five penalties, tried from
    the strongest on, the last before the log loss rises is taken; the loss is that of 3-fold
    cross-validation on at most 10000 examples (fewer where images are large). The final fit uses
    all of them, in single precision with L-BFGS: some ten seconds of one core for 60000 images of
    28 by 28 pixels, and memory for one float32 copy of the images of known class. One thread does
    it all, so that the number of cores, which changes the order of sums, does not change who gets a
    label. A process remembers its last results: problems of a sweep that differ in the mechanism
    only share a fit.

    Args:
      inputs: uint8 `[n, ...]` images or a float32 table `[n, features]`, the whole training set;
        image files are decoded.
      binary: int `[n]`, true classes 1 and 0, or -1 where unknown.
      seed: of the subsample and the folds.

    Returns:
      float64 `[n]`, read-only, estimates of p(y=1|x); NaN for examples of unknown class.

    Raises:
      ValueError: where a class has fewer than 3 known examples.
    """
    key = _digest(inputs, binary, seed)
    if key not in _remembered:
        while len(_remembered) >= _MOST_REMEMBERED:
            del _remembered[next(iter(_remembered))]  # the oldest
        _remembered[key] = _fit(inputs, binary, seed)
        _remembered[key].flags.writeable = False
    return _remembered[key]


def _digest(inputs: np.ndarray | ImageFiles, binary: np.ndarray, seed: int) -> bytes:
    """Tells problems with another posterior apart."""
    digest = hashlib.blake2b(str((inputs.shape, inputs.dtype, binary.dtype, seed)).encode())
    if isinstance(inputs, ImageFiles):
        digest.update(f"{inputs}{inputs.digest()}".encode(errors="surrogateescape"))
    else:
        digest.update(np.ascontiguousarray(inputs).data)
    digest.update(np.ascontiguousarray(binary).data)
    return digest.digest()


def _fit(inputs, binary, seed):
    known = np.flatnonzero(binary >= 0)
    target = binary[known]
    fewest = int(min((target == 1).sum(), (target == 0).sum()))
    if fewest < _FOLDS:
        raise ValueError(
            f"data.positive_classes leaves {fewest} examples of known class on one side; accepted: "
            f"at least {_FOLDS} positives and {_FOLDS} negatives, to fit the labelling model on"
        )
    features = _features(inputs, known)
    rows = _subsample(target, features.shape[1], seed)
    posterior = np.full(len(binary), np.nan)
    with threadpoolctl.threadpool_limits(limits=1):
        strength = _choose_strength(features[rows], target[rows], seed)
        model = _fitted(features, target, strength)
        for start in range(0, len(known), _CHUNK):
            chunk = slice(start, start + _CHUNK)
            posterior[known[chunk]] = model.predict_proba(features[chunk])[:, 1]
    return posterior


def _features(inputs, rows):
    """Centred and scaled rows, float32; the only large array that a fit makes."""
    features = np.empty([len(rows), math.prod(inputs.shape[1:])], np.float32)
    chunks = [slice(start, start + _CHUNK) for start in range(0, len(rows), _CHUNK)]
    for chunk in chunks:
        part = as_array(inputs[rows[chunk]])
        features[chunk] = part.reshape(len(part), -1)
    if len(inputs.shape) == 2:
        mean, std = raw.feature_statistics(features)
        features -= np.asarray(mean, np.float32)
        features /= np.asarray(std, np.float32)
        return features
    features -= features.mean(0)
    squares = sum(float(np.square(features[chunk]).sum(dtype=np.float64)) for chunk in chunks)
    features /= max((squares / features.size) ** 0.5, 1e-12)
    return features


def _subsample(target, num_features, seed):
    """Rows to cross-validate on: some of each class, in its proportion."""
    most = min(_MAX_CV_ROWS, max(_MIN_CV_ROWS, _MAX_CV_NUMBERS // num_features))
    if len(target) <= most:
        return np.arange(len(target))
    rng = np.random.default_rng([seed, 0x4C52])
    parts = []
    for label in (0, 1):
        rows = rng.permutation(np.flatnonzero(target == label))
        parts.append(rows[: max(_FOLDS, round(most * len(rows) / len(target)))])
    return np.concatenate(parts)


def _choose_strength(features, target, seed):
    """The inverse penalty before the first that raises the cross-validated log loss."""
    from sklearn.model_selection import StratifiedKFold  # where it is needed: it loads for a second

    folds = list(StratifiedKFold(_FOLDS, shuffle=True, random_state=seed).split(features, target))
    chosen, lowest = None, np.inf
    for strength in _STRENGTHS:
        loss = sum(_loss(features, target, *fold, strength) for fold in folds)
        if loss >= lowest:
            break
        chosen, lowest = strength, loss
    return chosen


def _loss(features, target, train, held_out, strength):
    """Mean log loss on the held-out rows."""
    model = _fitted(features[train], target[train], strength)
    margin = model.decision_function(features[held_out])
    return np.mean(np.logaddexp(0, np.where(target[held_out] == 1, -margin, margin)))


def _fitted(features, target, strength):
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(C=strength, max_iter=_MAX_ITERATIONS)
    with warnings.catch_warnings():
        # An early end costs the oracle nothing that matters: any smooth posterior will do.
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(features, target)
