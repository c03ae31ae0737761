"""`PUClassifier`: every binary method as a scikit-learn estimator, for tables in memory."""

import collections
import contextlib
import numbers
import re
import tempfile
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import jax
import ml_collections
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_consistent_length, check_random_state, column_or_1d
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from pujax import calibration, checks, methods, metrics
from pujax.data import batching, dataset, raw
from pujax.data.pu_dataset import DataInfo
from pujax.data.readers import columns, frames, pu_labels
from pujax.training import (
    compilation_cache,
    method_setup,
    model_numbers,
    own_results,
    preemption,
    prior_estimation,
    run_state,
    saved_model,
    sharding,
    train_loop,
)
from pujax.training import config as config_lib
from pujax.training.progress import Progress
from pujax.training.seed_axis import Member

_SAME = 1e-6
"""Probabilities that differ by less count as equal: a fitted slope of 0 is only nearly 0."""

_FEW = 5
"""Labelled positives below which `pujax check` calls a result worthless."""
_TRAINS = threading.Lock()
"""Fits in threads of one process take turns: tracing and writing checkpoints are not for several at
once, and one fit uses all cores."""
_MAX_EPOCHS = 50
_BATCH_SIZE = 512
"""Rows that one call scores."""
_IN_PARAMETERS = (
    (r", or another data\.prior_method", ""),
    (r"\bdata\.(prior|holdout|setting)\b", r"\1"),
    (r"\bmethod\.(num_epochs|batch_size|learning_rate)\b", r"\1"),
    (r"\bmethod\.name\b", "method"),
    (r"\bmethod\.(\w+)", r"options['\1']"),
    (r"\bof the config; accepted in method:", "of the method; accepted:"),
    (r"\bmodel\.options\b", "hidden"),
)
"""Patterns of what errors say of the configuration's fields, and the estimator's parameters."""
_LOADED: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()
"""By fitted estimator its numbers, and what was made of them: no attribute, since predicting
changes none, and since neither a pickle nor a clone is to hold it."""


@contextlib.contextmanager
def _errors_in_parameters(options: Mapping[str, Any]) -> Iterator[None]:
    """Errors that name fields of the configuration name the estimator's parameters instead.

    Fields that `options` gives are called so, whether there is a parameter of their name or not.
    """
    try:
        yield
    except ValueError as error:
        text = str(error)
        names = [name for name in options if isinstance(name, str)]  # another kind is refused
        given = [(rf"\bmethod\.{re.escape(name)}\b", f"options[{name!r}]") for name in names]
        for pattern, parameter in (*given, *_IN_PARAMETERS):
            text = re.sub(pattern, parameter, text)
        if text == str(error):
            raise
        raise ValueError(text) from error


def _has_probabilities(model: "PUClassifier") -> bool:
    """True, or an AttributeError; parameters that are set after a fit change nothing of it."""
    if hasattr(model, "model_"):
        has = model.calibration_ is not None
    else:
        has = model.prior is not None and bool(model.holdout)
    if not has:
        raise _no_probabilities(model)
    return True


def _no_probabilities(model: "PUClassifier") -> AttributeError:
    prior, holdout, when = model.prior, model.holdout, ""
    if hasattr(model, "model_"):
        data = model.model_["config"]["data"]
        prior, holdout, when = data["prior"], data["holdout"], " in the fit"
    return AttributeError(
        f"prior is {prior!r} and holdout {holdout!r}{when}; accepted for probabilities: a prior, "
        "or 'auto', and a share above 0"
    )


class PUClassifier(ClassifierMixin, BaseEstimator):
    """A classifier of positive and unlabeled rows.

    `fit(X, s)` takes two labels, a labelled positive and one that is unlabeled, not negative. Of
    numbers the larger one is positive (with a warning, if they are not {0, 1} or {-1, 1}), of words
    the one that says so, or that is left where the other one says unlabeled or negative; of other
    words `pos_label` must name it. A share of both is held out for probabilities.

    As in all of scikit-learn, columns of `predict_proba` are in the order of `classes_`, which is
    sorted: the positive one is `[:, 1]` for 0 and 1, and the first for 'fraud' and 'no'. A warning
    says so in the latter case; `list(model.classes_).index(model.positive_)` is right in both.

    Args:
      method: a name of `pujax.methods.without_negatives()`, or one whose `options` say that it
        needs no negatives.
      prior: share of positives in the population; 'auto' estimates it from P and U; None for
        methods that need none, which then give no probabilities.
      setting: 'one_sample', labelled positives were taken out of the rows, or 'two_sample', the
        unlabeled rows are a sample of the population of their own.
      hidden: widths of the perceptron's layers.
      num_epochs: passes over the rows, shared among a method's stages as its defaults are; None for
        the method's own number, at most 50. A method with a warm-up, rounds or stages
        (`pujax.methods.stage_lengths`) keeps its own: LaGAM 60, PUUPL 200, NcPU 1,300.
      batch_size: rows per step, fewer where there are fewer.
      learning_rate: None for the method's own.
      holdout: share of P and of U that is held out; 0 gives no probabilities.
      pos_label: the label of a labelled positive, where it is another one.
      options: other fields of the method's section, by name. Their defaults are the method's own,
        or those for one's own rows, `pujax.methods.own_rows`.
      random_state: seed, or a NumPy RandomState.

    Attributes:
      classes_: `[2]`, the labels in order.
      positive_: the one of them that is positive.
      n_features_in_: number of columns.
      prior_: share of positives in the population that was used, NaN without one.
      estimates_: what the held-out rows say, see `metrics.unlabeled_estimates`.
      calibration_: from scores to probabilities, or None.
    """

    def __init__(
        self,
        method: str = "nnpu",
        *,
        prior: float | str | None = "auto",
        setting: str = "one_sample",
        hidden: tuple[int, ...] = (100, 100),
        num_epochs: int | None = None,
        batch_size: int = 256,
        learning_rate: float | None = None,
        holdout: float = 0.2,
        pos_label: Any = None,
        options: dict[str, Any] | None = None,
        random_state: Any = None,
    ):
        self.method = method
        self.prior = prior
        self.setting = setting
        self.hidden = hidden
        self.num_epochs = num_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.holdout = holdout
        self.pos_label = pos_label
        self.options = options
        self.random_state = random_state

    def __sklearn_tags__(self) -> Any:
        """Two classes only."""
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags

    def fit(self, X: Any, y: Any) -> "PUClassifier":
        """Trains on rows of which some are labelled positive.

        Args:
          X: `[n, d]`, finite numbers.
          y: `[n]`, two labels.

        Raises:
          ValueError: naming what is not accepted.
        """
        self._check_settings()
        checks.unmasked("X", X)
        checks.unmasked("y", y)
        _check_names(X)
        X = _dense(X)
        _check_cells(X)
        labels = np.asarray(y)
        if labels.ndim == 1:  # not as pandas has them, whose nullable types would become float
            y = _plain_labels(labels)
        X, y = validate_data(self, X, y, dtype=np.float64, ensure_min_samples=2)
        check_classification_targets(y)
        self.classes_ = np.unique(y)
        if len(self.classes_) != 2:
            raise ValueError(
                "Only binary classification is supported: y has "
                f"{len(self.classes_)} class{'es' * (len(self.classes_) != 1)}; accepted: labelled "
                "positives and unlabeled rows"
            )
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        self.positive_ = self._positive_class()
        self.offset_ = np.array([columns.offset(column) for column in X.T])
        rows, labeled = _in_single_precision(X - self.offset_), y == self.positive_
        self._warn(X, rows, labeled)
        with _TRAINS, _errors_in_parameters(self.options or {}):
            self._train(rows, labeled, seed)
        return self

    def _warn(self, X: np.ndarray, rows: np.ndarray, labeled: np.ndarray) -> None:
        """Warns of data that can be trained on, and that nothing good can come of, or mistakes."""
        if self.positive_ != self.classes_[-1]:
            first, last = self.classes_.tolist()
            warnings.warn(
                f"y has the labels {first!r} and {last!r}: the positive one, {first!r}, is the "
                "first in order, so that predict_proba(X)[:, 0] is its probability, and [:, 1] "
                "that of the other, and decision_function is above 0 for the other; take "
                "predict_proba(X)[:, list(model.classes_).index(model.positive_)], or labels 1 "
                "and 0",
                stacklevel=3,
            )
        count = int(labeled.sum())
        if count < _FEW:
            warnings.warn(
                f"y has {count} labelled positive{'s' * (count != 1)}; with fewer than {_FEW} "
                "neither the share of positives nor a classifier can be learned",
                stacklevel=3,
            )
        names = getattr(self, "feature_names_in_", range(rows.shape[1]))
        for text in raw.describe_outliers(
            X, columns=[*names], row="row {}".format, remedy="clip {}"
        ):
            warnings.warn(f"X: {text}", stacklevel=3)
        if hasattr(self, "feature_names_in_"):
            import pandas as pd

            table = pd.DataFrame(X, columns=names)  # all digits: single precision makes ids equal
            words = [str(name) for name in names]
            named = [name for name in words if pu_labels.is_called_like_an_id(name)]
            for text in pu_labels.kept_ids(frames.of(table[named])) if named else ():
                warnings.warn(f"X: {text}", stacklevel=3)

    def _train(self, rows: np.ndarray, labeled: np.ndarray, seed: int) -> None:
        """Sets the attributes that training gives."""
        data = self._problem(rows, labeled, seed)
        mesh = sharding.make_mesh()
        with tempfile.TemporaryDirectory() as folder:
            config = self._config(data.info.n, seed)
            data = prior_estimation.settle(config, data, folder, mesh)
            setup = method_setup.build(config, data, mesh)
            own_results.check_method(self.method, setup.method)
            run = run_state.prepare([Member(setup, data, folder)], mesh)
            try:
                with Progress(run.num_steps(), description="", enabled=False) as progress:
                    state = train_loop.train(run, progress, preemption.StopRequest())
            except train_loop.NonFiniteError as error:
                found, _, _ = str(error).rpartition("; ")  # then follows how a run goes on
                raise ValueError(
                    f"{found}; accepted: a lower learning_rate, or columns of X of a like scale"
                ) from error
            else:
                reported = state.reported(0)
                final = run.evaluators[0].final(reported, data.inputs)
                trained = run.evaluators[0].calibrated(reported)
            finally:
                run.close()
                compilation_cache.release()  # a search fits hundreds of times in one process
        known = own_results.of(data, final)
        self.estimates_, self.calibration_ = known.estimates, known.calibration
        self.prior_ = float(data.info.prior)
        doubts = [_doubt(known.estimates, float(data.info.prior_unlabeled))]
        if known.calibration is not None:
            doubts.append(_flat(known.calibration, final.train_scores))
        for doubt in filter(None, doubts):
            warnings.warn(doubt, stacklevel=4)
        trained = jax.tree.map(sharding.to_host, trained)
        numbers = model_numbers.numbers_of(setup.method, trained, data.info)
        self.model_ = {"config": config.to_dict(), "info": data.info._asdict(), "numbers": numbers}

    def decision_function(self, X: Any) -> np.ndarray:
        """Scores `[n]`, above 0 where the method's own rule says `classes_[1]`."""
        return self._sign() * self._scores(X)

    def _sign(self) -> int:
        """-1 where the positive class is the first, as scikit-learn's scores are of the second."""
        check_is_fitted(self, "model_")
        return 1 if self.positive_ == self.classes_[1] else -1

    def _scores(self, X: Any) -> np.ndarray:
        """Scores `[n]` of being positive."""
        check_is_fitted(self, "model_")
        checks.unmasked("X", X)
        _check_names(X)
        X = _dense(X)
        _check_cells(X)
        X = validate_data(self, X, dtype=np.float64, reset=False)
        X = _in_single_precision(X - getattr(self, "offset_", 0.0))  # older ones have none
        X = self._steady(X)
        method, state = self._loaded()
        # In full batches a row's score has the same bits wherever the row stands: XLA computes the
        # last rows of a batch whose size is not a multiple of 32 in another order. And no number of
        # rows needs a program of its own.
        rows = np.pad(X, [(0, max(0, _BATCH_SIZE - len(X))), (0, 0)])
        scores = batching.map_batches(
            saved_model.compiled(method.predict),
            sharding.replicate(rows, sharding.make_mesh()),
            batch_size=_BATCH_SIZE,
            args=(state,),
        )
        return np.asarray(scores)[: len(X)]

    def predict(self, X: Any) -> np.ndarray:
        """The class `[n]` of each row."""
        check_is_fitted(self, "model_")
        is_positive = self._scores(X) > 0
        other = self.classes_[0] if self._sign() == 1 else self.classes_[1]
        return np.where(is_positive, self.positive_, other).astype(self.classes_.dtype)

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> np.ndarray:
        """`[n, 2]`, probabilities of `classes_` for rows of the population.

        There is no such method where the prior is None or nothing is held out; once fitted, where
        it was so in the fit.

        Args:
          X: `[n, d]`.

        Raises:
          ValueError: for rows unlike those of `fit`.
          NotFittedError: before `fit`.
          AttributeError: where the fit left no probabilities.
        """
        check_is_fitted(self, "model_")
        if self.calibration_ is None:  # in a bound method from before the fit
            raise _no_probabilities(self)
        scores = self._scores(X)
        positive = calibration.probabilities(self.calibration_, scores, unlabeled_only=False)
        both = np.stack([1 - positive, positive], axis=1)
        return both[:, :: self._sign()]

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """AUC of labelled positives against unlabeled rows, which orders classifiers as the true
        AUC does (Menon et al. 2015).

        Args:
          X: `[n, d]`.
          y: `[n]`, labels as in `fit`.
          sample_weight: not supported; None.

        Raises:
          ValueError: for rows unlike those of `fit`, another number of labels than rows, labels of
            one kind only, or weights.
          NotFittedError: before `fit`.
        """
        check_is_fitted(self, "model_")
        if sample_weight is not None:
            raise ValueError("sample_weight is given; accepted: None")
        checks.unmasked("y", y)
        check_consistent_length(X, y)
        is_positive = _plain_labels(column_or_1d(y)) == self.positive_
        if is_positive.all() or not is_positive.any():
            positive = np.asarray(self.positive_).tolist()  # as Python shows it, not NumPy
            raise ValueError(
                f"y holds {np.unique(y).tolist()}; accepted: {positive!r} and another label"
            )
        return float(metrics.auc(self._scores(X), is_positive))

    def _positive_class(self) -> Any:
        """Which of the two labels is that of a labelled positive."""
        labels = self.classes_.tolist()
        if self.pos_label is not None:
            checks.one_of("pos_label", self.pos_label, labels)
            return self.classes_[labels.index(self.pos_label)]
        if self.classes_.dtype.kind in "OU":
            words = [str(label).strip().lower() for label in labels]
            others = (*pu_labels.NEGATIVE, *pu_labels.UNLABELED, pu_labels.MINUS)
            for known in (
                [word in pu_labels.POSITIVE for word in words],
                [word not in others for word in words],
            ):
                if sum(known) == 1:
                    return self.classes_[known.index(True)]
            raise ValueError(
                f"pos_label is None, and y has the labels {labels}, of which neither says that it "
                f"is positive; accepted: pos_label={labels[0]!r} or pos_label={labels[1]!r}"
            )
        if labels in ([0, 1], [-1, 1]):  # False and True are 0 and 1
            return self.classes_[1]
        text = f"y has the labels {labels}; {labels[1]!r}, the larger one, is taken for positive: "
        warnings.warn(f"{text}pos_label says which one is", stacklevel=3)
        return self.classes_[1]

    def _check_settings(self) -> None:
        """Raises a ValueError for what the configuration would name by another word, or not."""
        options = self.options if isinstance(self.options, Mapping) else {}
        checks.one_of("method", self.method, methods.without_negatives(self.method, options))
        if isinstance(self.prior, numbers.Real):
            number = 0 < self.prior < 1
        else:
            number = (
                self.prior is None or isinstance(self.prior, str) and self.prior == dataset.AUTO
            )
        accepted = "a number between 0 and 1, 'auto' or None"
        checks.require(number, "prior", self.prior, accepted)
        checks.one_of("setting", self.setting, dataset.SETTINGS)
        widths = np.iterable(self.hidden) and not isinstance(self.hidden, str)
        accepted = "a tuple of widths, such as (100, 100)"
        checks.require(widths, "hidden", self.hidden, accepted)
        for width in self.hidden:
            checks.whole_number("hidden", width, 1)
        if self.num_epochs is not None:
            checks.whole_number("num_epochs", self.num_epochs, 1)
        checks.whole_number("batch_size", self.batch_size, 2)
        if self.learning_rate is not None:
            checks.positive("learning_rate", self.learning_rate)
        checks.between("holdout", self.holdout, 0, 1, include="low")
        named = self.options is None or isinstance(self.options, Mapping)
        checks.require(named, "options", self.options, "a dict of fields, or None")

    def _problem(self, rows: np.ndarray, labeled: np.ndarray, seed: int) -> Any:
        def prepare(training: np.ndarray) -> raw.RawDataset:
            differ = rows[training].min(0) < rows[training].max(0)
            if not differ.any():
                raise ValueError(
                    "X has no column that differs between training rows; accepted: at least one"
                )
            # Nothing is learned of a column that training rows do not differ in: in other rows it
            # would come in by weights as they were before training.
            self.constants_ = np.where(differ, np.nan, rows[training[0]])
            mean, std = raw.feature_statistics(rows[training])
            return source._replace(train_inputs=self._steady(rows), mean=mean, std=std)

        source = raw.of_rows(rows, labeled)
        return dataset.build(
            raw.check(source._replace(prepare=prepare)),
            seed=seed,
            positive_classes=(1,),
            num_labeled=0,
            num_support=0,
            setting=self.setting,
            sampling="uniform",
            holdout=self.holdout,
            prior=self.prior,
        )

    def _steady(self, rows: np.ndarray) -> np.ndarray:
        """Rows `[n, d]` whose columns that are constant in training have that value everywhere."""
        constants = getattr(self, "constants_", None)  # older ones have none
        if constants is None or np.isnan(constants).all():
            return rows
        return np.where(np.isnan(constants), rows, constants).astype(rows.dtype)

    def _config(self, num_rows: int, seed: int) -> Any:
        config = config_lib.default_config(self.method)
        config.seed = seed
        config.data.update({"num_labeled": 0, "holdout": float(self.holdout)})
        config.data.update({"setting": self.setting, "sampling": "uniform"})
        config.data.prior = (
            float(self.prior) if isinstance(self.prior, numbers.Real) else self.prior
        )
        config.model.name = "mlp"
        config.model.options = {"hidden": tuple(int(width) for width in self.hidden)}
        fields = config.method
        size = max(min(int(self.batch_size), num_rows // 2), 2)
        wanted: dict[str, Any] = {"augment": False, "batch_size": size}
        own = methods.own_rows(self.method)
        lengths = ("num_epochs", *methods.stage_lengths(self.method))
        fields.update({name: own.pop(name) for name in lengths if name in own})
        wanted |= own
        if self.num_epochs is not None:
            methods.set_length(fields, int(self.num_epochs))
        elif not methods.stage_lengths(self.method) and "num_epochs" in fields:
            wanted["num_epochs"] = min(fields.num_epochs, _MAX_EPOCHS)
        if self.learning_rate is not None:
            wanted["learning_rate"] = float(self.learning_rate)
        fields.update({name: value for name, value in wanted.items() if name in fields})
        if fields.get("positives_per_batch", 0) >= fields.get("batch_size", size):
            fields.positives_per_batch = fields.batch_size // 2
        frozen = ml_collections.FrozenConfigDict(config)
        config = ml_collections.ConfigDict(
            own_results.with_fitting_batches(frozen, num_rows).to_dict()
        )
        defaults = methods.module(self.method).default_config()
        for name, value in (self.options or {}).items():
            # A field that takes a word or a number has lost that by now.
            is_free = name in defaults and defaults.get_type(name) is object
            with config.method.ignore_type() if is_free else contextlib.nullcontext():
                _set_option(config.method, name, value)
        config.run.update({"figures": False, "tensorboard": "off", "checkpoint_every": 10**9})
        resolved = config_lib.resolve(config)
        if config_lib.chooses_epochs(resolved):
            return resolved
        # Nothing chooses among epochs, and nobody sees them.
        config.run.eval_every = 10**9
        return config_lib.resolve(config)

    def _loaded(self) -> tuple[Any, Any]:
        """The method and its state, rebuilt from numbers, so that an estimator can be pickled.

        They are kept while the estimator lives: another method would be compiled at every call.
        """
        numbers, *loaded = _LOADED.get(self, (None,))
        if numbers is not self.model_["numbers"]:
            info = DataInfo(**self.model_["info"])
            config = ml_collections.FrozenConfigDict(self.model_["config"])
            method = methods.build(config, info)
            loaded = [method, model_numbers.restored(self.model_["numbers"], method, info)]
            _LOADED[self] = (self.model_["numbers"], *loaded)
        return tuple(loaded)


def _doubt(estimates: Iterable[Any], expected: float) -> str:
    """What to say of a ranking or a threshold that the held-out rows speak against; '' of none.

    Args:
      estimates: `metrics.unlabeled_estimates` of the held-out rows.
      expected: share of U that is taken for positive.
    """
    found = {x.name: x for x in estimates}
    if "auc_pu" not in found or "flagged_share" not in found:
        return ""
    auc, flagged = found["auc_pu"], found["flagged_share"].value
    ranking = own_results.ranking_of(auc.low, auc.high)
    if ranking == "inverted":
        return (
            f"the ranking is the wrong way round: the AUC of held-out labelled rows against "
            f"unlabeled ones is {auc.value:.2f} [{auc.low:.2f}, {auc.high:.2f}]; train for longer, "
            "with more hidden units, by another method, or look at the labels"
        )
    if not own_results.is_off_threshold(flagged, expected):
        return ""
    text = (
        f"predict calls {flagged:.1%} of the held-out unlabeled rows positive, where "
        f"{expected:.1%} are taken to be: "
    )
    if ranking == "good":
        return text + "rank by decision_function, or decide by predict_proba"
    return text + (
        "the ranking may be no better than chance, too; train for longer, by another method, or "
        "with more labels"
    )


def _flat(fitted: calibration.Calibration, scores: np.ndarray) -> str:
    """What to say where all rows get one probability, whatever their scores; '' elsewhere."""
    shares = calibration.probabilities(fitted, scores, unlabeled_only=False)
    if not np.ptp(scores) or np.ptp(shares) > _SAME:
        return ""
    return (
        f"predict_proba gives every row the probability {shares[0]:.3f}: held-out labelled rows "
        "have no higher scores than unlabeled ones, so that the ranking may be no better than "
        "chance, too; train for longer, by another method, or with more labels"
    )


def _plain_labels(y: np.ndarray) -> np.ndarray:
    """Labels whose type is that of what they hold: pandas and NumPy keep some as objects.

    Raises:
      ValueError: a label is missing, or words stand beside numbers.
    """
    missing = _is_missing(y)
    if missing.any():
        row = int(missing.argmax())
        raise ValueError(
            f"y holds {y[row]} in row {row}; accepted: a label of every row, such as 1 and 0, of "
            "which the latter is unlabeled"
        )
    if y.dtype != object:
        return y
    labels = y.tolist()
    are_numbers = [isinstance(x, (bool, int, float, np.bool_, np.number)) for x in labels]
    if all(are_numbers):
        return np.array(labels)
    if any(are_numbers):  # which have no order among words
        number, word = labels[are_numbers.index(True)], labels[are_numbers.index(False)]
        raise ValueError(f"y holds {number!r} and {word!r}; accepted: numbers only, or words only")
    return y


def _is_missing(labels: np.ndarray) -> np.ndarray:
    if labels.dtype != object:
        return np.isnan(labels) if labels.dtype.kind == "f" else np.zeros(len(labels), bool)
    import pandas as pd

    return pd.isna(labels)


def _check_names(X: Any) -> None:
    """Raises a ValueError if two columns of a DataFrame have one name."""
    for name, count in collections.Counter(getattr(X, "columns", ())).items():
        if count > 1:
            raise ValueError(
                f"X has {count} columns named {name!r}; accepted: columns whose names differ"
            )


def _dense(X: Any) -> Any:
    """A DataFrame without sparse columns, of which scikit-learn takes some and refuses others."""
    if not (hasattr(X, "columns") and hasattr(X, "iloc")):
        return X
    import pandas as pd

    kinds = zip(X.columns, X.dtypes, strict=True)
    sparse = {name: kind.subtype for name, kind in kinds if isinstance(kind, pd.SparseDtype)}
    return X.astype(sparse) if sparse else X


def _check_cells(X: Any) -> None:
    """Raises a ValueError for the first words, times or missing cell of a pandas DataFrame."""
    if not (hasattr(X, "columns") and hasattr(X, "iloc")):
        return  # scikit-learn's message is about an array, which has no names
    import pandas as pd

    accepted = "accepted: numbers; `pujax train --config=own_table` reads words and missing cells"
    missing = X.isna().to_numpy()
    for place, (name, dtype) in enumerate(zip(X.columns, X.dtypes, strict=True)):
        if isinstance(dtype, np.dtype) and dtype.kind in "biufc":
            continue  # numbers; of complex ones scikit-learn says more
        cells = X.iloc[:, place]
        if isinstance(dtype, (pd.DatetimeTZDtype, pd.PeriodDtype)) or dtype.kind in "mM":
            raise ValueError(f"X has dates or times in column {name!r}; {accepted}, dates too")
        wrong = pd.to_numeric(cells, errors="coerce").isna().to_numpy() & ~missing[:, place]
        if wrong.any():
            cell = cells.iloc[int(np.flatnonzero(wrong)[0])]
            raise ValueError(f"X has {cell!r} in column {name!r}; {accepted}")
    if missing.any():
        row, place = np.argwhere(missing)[0].tolist()
        text = f"X has NaN, no number, in column {X.columns[place]!r}, row {row}"
        raise ValueError(f"{text}; {accepted}")


def _in_single_precision(X: np.ndarray) -> np.ndarray:
    """float32 `[n, d]`, as networks take them."""
    with np.errstate(over="ignore"):
        rows = X.astype(np.float32)
    if not np.isfinite(rows).all():
        largest, limit = np.abs(X).max(), np.finfo(np.float32).max
        raise ValueError(
            f"X holds {largest:.3g}; accepted: numbers from {-limit:.3g} to {limit:.3g}"
        )
    return rows


def _set_option(fields: Any, name: Any, value: Any) -> None:
    """Sets a field of the method's section; `config.resolve` says which there are."""
    is_field = isinstance(name, str) and name != "name"
    accepted = "fields of the method's section but its name, which the parameter method gives"
    checks.require(is_field, "options", {name: value}, accepted)
    try:
        fields[name] = value
    except TypeError as error:  # of ConfigDict, whose fields keep their type
        kind = type(fields[name]).__name__
        raise ValueError(
            f"options[{name!r}] is {value!r}; accepted: a value of type {kind}"
        ) from error
