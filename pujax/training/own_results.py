"""What a run on one's own rows leaves: estimates without negatives, predictions, a saved model."""

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

import ml_collections
import numpy as np

from pujax import calibration, checks, methods, metrics
from pujax.console import fixed
from pujax.data.pu_dataset import PUDataset
from pujax.files import replace_text, write_json
from pujax.methods.base import Method
from pujax.training import config as config_lib
from pujax.training import (
    decisions,
    model_card,
    prediction_csv,
    prior_dependence,
    saved_model,
)
from pujax.training.evaluation import model_selection
from pujax.training.evaluation.summary import Final
from pujax.training.evaluation.tasks import Problem

PREDICTIONS = "predictions.csv"
MODEL = "model"
_LEVEL = 0.95
"""How sure it is that the held-out scores leave no room for a larger share of positives in U."""
FAR_FLAGGED = 2.0
"""Factor between the share called positive and the prior from which on the threshold is off."""
BY_METHOD = "score:0"
_NUMBERS = ("value", "low", "high")
COLUMNS = {
    "AUC of P against U": "auc_pu",
    "recall": "recall",
    "flagged in U": "flagged_share",
    "Lee-Liu": "lee_liu",
    "precision of the top 100": "precision_top_100",
}
"""Headings of the table that compares methods, and the estimates below them."""


@dataclasses.dataclass(frozen=True)
class Results:
    """What is known of a trained classifier without a negative.

    Attributes:
      estimates: numbers with intervals, in the order of `metrics.unlabeled_estimates`.
      calibration: from scores to probabilities; None where the prior is not known, or nothing was
        held out.
      dependence: what depends on the prior at each estimate of it, see `prior_dependence.by_prior`.
      largest_prior: share of positives in U that the held-out scores leave room for, at a level of
        95 %; NaN where nothing is held out.
    """

    estimates: tuple[metrics.Estimate, ...]
    calibration: calibration.Calibration | None
    dependence: tuple[dict[str, Any], ...] = ()
    largest_prior: float = math.nan


def of(data: PUDataset, final: Final) -> Results:
    """Estimates and calibration from the held-out examples.

    Args:
      data: the PU problem, with what is held out as its validation set.
      final: evaluation of the reported state.
    """
    if final.held_scores is None:
        return Results((), None)
    held = data.validation_labeled
    positive, unlabeled = final.held_scores[held], final.held_scores[~held]
    prior, setting = data.info.prior_unlabeled, data.info.setting
    labeled_share = _labeled_share(data)
    estimates = metrics.unlabeled_estimates(
        positive,
        unlabeled,
        prior=prior,
        prior_interval=possible_priors(data) if data.prior_choice is not None else None,
        labeled_share=labeled_share,
        setting=setting,
        seed=0,
    )
    learned = None
    if math.isfinite(prior) and np.isfinite(final.held_scores).all():
        learned = calibration.fit(
            positive, unlabeled, prior=prior, setting=setting, labeled_share=labeled_share
        )
    dependence: tuple[dict[str, Any], ...] = ()
    if data.prior_choice is not None:
        everything = np.concatenate([final.train_scores[data.hidden()], final.held_scores[~held]])
        dependence = prior_dependence.by_prior(
            positive,
            unlabeled,
            everything,
            choice=data.prior_choice,
            setting=setting,
            labeled_share=labeled_share,
        )
    largest = metrics.largest_prior(positive, unlabeled, level=_LEVEL)
    return Results(estimates, learned, dependence, largest)


def fit_ends(data: PUDataset, final: Final, results: Results) -> calibration.Ends | None:
    """Fits the ends of the intervals of the probabilities; None where there are none.

    Args:
      data: the PU problem.
      final: evaluation of the reported state.
      results: `of` the same.
    """
    if results.calibration is None:
        return None
    assert final.held_scores is not None  # else there is no calibration
    held = data.validation_labeled
    return calibration.fit_ends(
        final.held_scores[held],
        final.held_scores[~held],
        priors=possible_priors(data),
        setting=data.info.setting,
        labeled_share=_labeled_share(data),
    )


def _labeled_share(data: PUDataset) -> float:
    """The share of labelled positives among all rows.

    Of few positives a share is rounded to whole ones, so that this is not the held-out part's.
    """
    held, info = data.validation_labeled, data.info
    return float((info.sample_labeled + held.sum()) / (info.sample_size + len(held)))


def possible_priors(data: PUDataset) -> tuple[float, float]:
    """The smallest and the largest share of positives in U; NaN twice where none is known.

    An estimated one may be anything from half of the smallest lower end of its estimates (of small
    ones less) to the largest upper end, see `prior_dependence.possible_shares`; a given one is
    taken for known. All that depends on the prior has this range: probabilities, precision,
    accuracy and the rest.
    """
    used = data.info.prior_unlabeled
    if data.prior_choice is None:
        return used, used
    return prior_dependence.possible_shares(data.prior_choice, used=used)


def with_fitting_batches(
    config: ml_collections.FrozenConfigDict, num_examples: int
) -> ml_collections.FrozenConfigDict:
    """The configuration with batches of at most as many rows as there are, or as clean ones."""
    rows = max(num_examples // 2 * 2, 2)  # even, as halves of P and U are
    changed = ml_collections.ConfigDict(config.to_dict())
    for name, value in config.method.items():
        most = config.data.num_support or rows if name == "support_batch_size" else rows
        if name.endswith("batch_size") and value > most:
            changed.method[name] = most
    is_smaller = changed.method.get("batch_size") != config.method.get("batch_size")
    if is_smaller and changed.method.get("positives_per_batch", 0) >= changed.method.batch_size:
        changed.method.positives_per_batch = changed.method.batch_size // 2
    return ml_collections.FrozenConfigDict(changed)


def describe_batches(
    given: ml_collections.FrozenConfigDict, used: ml_collections.FrozenConfigDict
) -> str:
    """What `with_fitting_batches` changed, as a sentence that names the fields; '' if nothing.

    Args:
      given: the configuration before.
      used: the one that it returned.
    """
    changed = [
        f"method.{name} is {size} in place of {given.method[name]}"
        for name, size in used.method.items()
        if name.endswith(("batch_size", "per_batch")) and size != given.method[name]
    ]
    if not changed:
        return ""
    is_clean = all(text.startswith("method.support_") for text in changed)
    what = "clean ones" if is_clean else "rows to train on"
    return f"{used.method.name}: {', '.join(changed)}, since there are no more {what}"


def check_decision(config: ml_collections.FrozenConfigDict, data: Problem) -> None:
    """Raises a ValueError where `run.decide` or `run.threshold` would do nothing.

    Likewise where the first asks for what nobody can know.
    """
    rule, _ = decisions.parse(config.run.decide)
    if isinstance(data, PUDataset):
        accepted = "0.5 with one label per example, of whose own rows run.decide says who is called"
        checks.require(
            config.run.threshold == 0.5,
            "run.threshold",
            config.run.threshold,
            f"{accepted} positive",
        )
    if not isinstance(data, PUDataset) or data.own is None:
        accepted = "'score:0' with data that are not your own, whose predictions are not written"
        if not isinstance(data, PUDataset):
            accepted = "'score:0' with several labels per example, for which run.threshold decides"
        checks.require(config.run.decide == BY_METHOD, "run.decide", config.run.decide, accepted)
        return
    known = math.isfinite(data.info.prior) and len(data.validation_inputs) > 0
    checks.require(
        rule != "probability" or known,
        "run.decide",
        config.run.decide,
        "another rule without a prior (data.prior) or a part held out (data.holdout)",
    )


def check_names(config: ml_collections.FrozenConfigDict) -> None:
    """Raises a ValueError for a method that needs known negatives while none are set apart."""
    has_support = config.data.num_support > 0
    names: list[tuple[str, str, Any]] = [("method.name", config.method.name, config.method)]
    names += [("run.compare", name, None) for name in config_lib.compared_methods(config.run)]
    for field, name, section in names:
        accepted = methods.for_own_rows(name, section, has_support=has_support)
        hint = ""
        if not has_support and name in methods.for_own_rows(name, section, has_support=True):
            hint = "data.num_support above 0 beside it, out of known negatives and positives; or "
        text = hint + ", ".join(map(repr, accepted))
        checks.require(name in accepted, field, name, text)


def check_rule(config: ml_collections.FrozenConfigDict, data: PUDataset) -> None:
    """Raises a ValueError for a rule of true labels where those of held-out rows are unknown."""
    if (data.validation_truth < 0).any():
        rules = model_selection.WITHOUT_TRUTH
        checks.one_of("run.selection", config.run.selection, rules)


def check_method(name: str, method: Method) -> None:
    """Raises a ValueError for a score that depends on the other rows, so that no model can keep it.

    Args:
      name: of the method.
      method: as it is built.
    """
    if method.adjust is not None:
        raise ValueError(
            f"method.name is {name!r} with a threshold that is found on the rows to predict "
            "(method.threshold_on='test'); accepted for your own rows: a method that scores each "
            "row by itself (method.threshold_on='unlabeled')"
        )


def is_off_threshold(flagged: float, expected: float) -> bool:
    """Whether a threshold calls far more, or far fewer, positive than are; False where unknown.

    Args:
      flagged: share that is called positive.
      expected: share that is positive, or is thought to be.
    """
    if not (math.isfinite(flagged) and math.isfinite(expected)) or not expected:
        return False
    return not 1 / FAR_FLAGGED <= flagged / expected <= FAR_FLAGGED


def describe(summary: Mapping[str, Any], *, decide: str = BY_METHOD) -> str:
    """What the held-out rows say of a method, with what it rests on.

    Args:
      summary: of a run on one's own rows; a number that is not known is NaN or None.
      decide: which rows the run calls positive, `run.decide`.
    """
    held_out = summary["held_out"]
    if not held_out:
        return "Nothing was held out (data.holdout), so nothing is known of these predictions."
    lines = [
        f"What the held-out rows say of {summary['method']}, with 90 % intervals; the top rows are "
        "those of the held-out:"
    ]
    unknown = []
    for entry in held_out:
        value, low, high = (_number(entry[x]) for x in _NUMBERS)
        if math.isfinite(value):
            number = f"{value:.4f} [{low:.4f}, {high:.4f}]"
            lines.append(f"  {entry['name']:<18}{number}  {entry['assumption']}")
        else:
            unknown.append(entry["name"])
    if unknown:
        lines.append(f"  unknown: {', '.join(unknown)}")
    prior = summary["held_out_prior"]
    if None not in prior.values() and prior["used"] > prior["at_most"]:
        lines.append(
            f"  The held-out rows leave room for at most {prior['at_most']:.1%} positives among "
            f"the unlabeled ({_LEVEL:.0%} sure), and {prior['used']:.1%} is used: probabilities, "
            "and the estimates that rest on it, are too high."
        )
    if decide != BY_METHOD:
        lines.append(
            "  Recall, the share called positive and precision without a number of rows are those "
            f"of a score above 0, not of run.decide={decide}."
        )
    flagged, used = held_out_value(summary, "flagged_share"), _number(prior["used"])
    if decide == BY_METHOD and is_off_threshold(flagged, used):
        lines.append(
            f"  By its own threshold it calls {flagged:.1%} of the held-out unlabeled rows "
            f"positive, where {used:.1%} are taken to be. {_advice(held_out, used)}"
        )
    doubt = summary.get("mean_probability")
    if doubt:
        shares = model_card.shares_of(doubt["smallest_prior"], doubt["largest_prior"])
        ends = [fixed(doubt[name], 3) for name in ("low", "high")]
        lines.append(
            f"  The mean probability of the unlabeled rows is {doubt['mean']:.3f}. It may be from "
            f"{' to '.join(ends)}, if {shares} of them are positive and by "
            "chance in the held-out rows: see probability_low and probability_high."
        )
    rows = summary.get("held_out_by_prior")
    if rows:
        lines.append(prior_dependence.describe(rows, agree=summary["prior_choice"]["agree"]))
    return "\n".join(lines)


def _advice(held_out: Sequence[Mapping[str, Any]], used: float) -> str:
    """What to do about a threshold that is off, which depends on whether the ranking is good."""
    found: Mapping[str, Any] = next((x for x in held_out if x["name"] == "auc_pu"), {})
    ranking = ranking_of(_number(found.get("low")), _number(found.get("high")))
    if ranking == "inverted":
        return (
            "No other threshold helps: its ranking is the wrong way round, unlabeled rows above "
            "the labelled ones. Train for longer, by another method, or look at the labels."
        )
    if ranking == "unknown":
        return (
            "Another threshold may not help: by the held-out rows its ranking may be no better "
            "than chance. Train for longer, by another method, or with more labels."
        )
    return (
        "Its ranking may be good all the same: call as many positive as there are by "
        f"run.decide=share:{used:.2g}, your budget by run.decide=top:K; for new rows, of which "
        "another share may be positive, by --decide of pujax predict."
    )


def ranking_of(low: float, high: float) -> str:
    """What the interval of the held-out AUC of P against U says of a ranking.

    Args:
      low: its lower end; NaN where it is not known.
      high: its upper end.

    Returns:
      'good', 'inverted' (the wrong way round), or 'unknown' (perhaps no better than chance).
    """
    if high < 0.5:
        return "inverted"
    return "good" if low > 0.5 else "unknown"


def held_out(result: Mapping[str, Any]) -> dict[str, float | None]:
    """The values of the estimates in a summary by name, None for what cannot be known."""
    return {x["name"]: x["value"] for x in result["held_out"]}


def held_out_value(summary: Mapping[str, Any], name: str) -> float:
    """One of the estimates in a summary, NaN where it is not known."""
    return _number(held_out(summary).get(name))


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def table(results: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], tuple[str, ...]]:
    """What the held-out rows say of each method.

    Args:
      results: summaries.

    Returns:
      Rows and columns of a table; the first estimate, which needs no prior, has its interval.
    """
    rows = []
    for result in results:
        row: dict[str, Any] = {name: held_out(result).get(key) for name, key in COLUMNS.items()}
        for x in result["held_out"]:
            if x["name"] == "auc_pu" and x["value"] is not None:
                row["AUC of P against U"] = f"{x['value']:.4f} [{x['low']:.4f}, {x['high']:.4f}]"
        rows.append({"method": result["method"], **row})
    return rows, ("method", *COLUMNS)


def write(
    folder: str,
    config: ml_collections.FrozenConfigDict,
    method: Method,
    state: Any,
    data: PUDataset,
    final: Final,
    results: Results,
) -> dict[str, float] | None:
    """Writes predictions for the unlabeled rows, and the model for rows to come.

    Args:
      folder: of the run.
      config: resolved configuration.
      method: what was trained.
      state: the reported state, as it is evaluated.
      data: the PU problem.
      final: evaluation of that state.
      results: `of` the same.

    Returns:
      How far the mean probability of the unlabeled rows may be off: `mean`, `low`, `high`, and the
      priors in U at both ends; None without probabilities.
    """
    assert data.own is not None  # else there are no rows to name
    hidden, held = data.hidden(), ~data.validation_labeled
    rows = np.concatenate([data.source_ids[hidden], data.validation_ids[held]])
    scores = final.train_scores[hidden]
    if final.held_scores is not None:
        scores = np.concatenate([scores, final.held_scores[held]])
    order = np.argsort(rows, kind="stable")
    rows, scores = rows[order], scores[order]
    share, between, doubt = None, None, None
    ends = fit_ends(data, final, results)
    if results.calibration is not None and ends is not None:
        share = calibration.probabilities(results.calibration, scores)
        between = calibration.probability_interval(results.calibration, ends, scores)
        doubt = {"smallest_prior": float(ends.priors[0]), "largest_prior": float(ends.priors[1])}
        means = (("mean", share), ("low", between[0]), ("high", between[1]))
        doubt |= {name: float(values.mean()) for name, values in means}
    chosen = decisions.decide(config.run.decide, scores, share)
    ids = data.own.ids[rows]
    is_held = np.isin(rows, data.validation_ids)
    columns = (ids, scores, share, decisions.ranks(scores), chosen)
    text = prediction_csv.text(data.own.id_name, *columns, is_held, between=between)
    replace_text(os.path.join(folder, PREDICTIONS), text)
    learned = results.calibration
    saved_model.save(
        os.path.join(folder, MODEL),
        config,
        method,
        state,
        data,
        learned,
        ends,
        estimates=results.estimates,
        test=final.test,
    )
    document = [estimate._asdict() for estimate in results.estimates]
    write_json(os.path.join(folder, "held_out.json"), document)
    return doubt
