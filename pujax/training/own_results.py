"""What a run on one's own rows leaves: estimates without negatives, predictions, a saved model."""

import csv
import dataclasses
import io
import math
import os
from typing import Any

import ml_collections
import numpy as np

from pujax import calibration, checks, metrics
from pujax.data.pu_dataset import PUDataset
from pujax.files import replace_text, write_json
from pujax.methods.base import Method
from pujax.priors.conversions import unlabeled_prior
from pujax.training import decisions, saved_model
from pujax.training.evaluation.summary import Final

PREDICTIONS = "predictions.csv"
MODEL = "model"


@dataclasses.dataclass(frozen=True)
class Results:
    """What is known of a trained classifier without a negative.

    Attributes:
      estimates: numbers with intervals, in the order of `metrics.unlabeled_estimates`.
      calibration: from scores to probabilities; None where the prior is not known, or nothing was
        held out.
    """

    estimates: tuple[metrics.Estimate, ...]
    calibration: calibration.Calibration | None


def of(data: PUDataset, final: Final) -> Results:
    """Estimates and calibration from the held-out examples.

    Args:
      data: the PU problem, with what is held out as its validation set.
      final: evaluation of the reported state.
    """
    if final.held_scores is None:
        return Results((), None)
    held = data.validation_labeled
    # In two-sample data the copies of P in U are a part of the sample of the population.
    positive, unlabeled = final.held_scores[held], final.held_scores[~held]
    prior, setting = data.info.prior_unlabeled, data.info.setting
    estimates = metrics.unlabeled_estimates(
        positive,
        unlabeled,
        prior=prior,
        prior_interval=_interval_in_unlabeled(data),
        setting=setting,
        seed=0,
    )
    learned = None
    if math.isfinite(prior) and np.isfinite(final.held_scores).all():
        learned = calibration.fit(positive, unlabeled, prior=prior, setting=setting)
    return Results(estimates, learned)


def _interval_in_unlabeled(data: PUDataset) -> tuple[float, float] | None:
    """The interval of the prior, as shares of U."""
    if data.prior_interval is None:
        return None
    low, high = data.prior_interval
    if data.info.setting == "one_sample":
        counts = {"n_p": data.info.n_p, "n_u": data.info.n_u}
        low, high = unlabeled_prior(low, **counts), unlabeled_prior(high, **counts)
    prior, tiny = data.info.prior_unlabeled, float(np.finfo(np.float32).eps)
    return min(max(low, tiny), prior), max(min(high, 1 - tiny), prior)


def check_decision(config: ml_collections.FrozenConfigDict, data: PUDataset) -> None:
    """Raises a ValueError where `run.decide` asks for probabilities that nobody can know."""
    rule, _ = decisions.parse(config.run.decide)
    known = math.isfinite(data.info.prior) and len(data.validation_inputs) > 0
    checks.require(
        rule != "probability" or known,
        "run.decide",
        config.run.decide,
        "another rule without a prior (data.prior) or a part held out (data.holdout)",
    )


def describe(results: Results) -> str:
    """A table of the estimates, with what each of them assumes."""
    if not results.estimates:
        return "Nothing was held out (data.holdout), so nothing is known of these predictions."
    lines = [
        "What the held-out rows say, with 90 % intervals; the top rows are those of the held-out:"
    ]
    for estimate in results.estimates:
        if math.isfinite(estimate.value):
            number = f"{estimate.value:.4f} [{estimate.low:.4f}, {estimate.high:.4f}]"
            lines.append(f"  {estimate.name:<18}{number}  {estimate.assumption}")
    unknown = [x.name for x in results.estimates if not math.isfinite(x.value)]
    if unknown:
        lines.append(f"  unknown: {', '.join(unknown)}")
    return "\n".join(lines)


def write(
    folder: str,
    config: ml_collections.FrozenConfigDict,
    method: Method,
    state: Any,
    data: PUDataset,
    final: Final,
    results: Results,
) -> None:
    """Writes predictions for the unlabeled rows, and the model for rows to come.

    Args:
      folder: of the run.
      config: resolved configuration.
      method: what was trained.
      state: the reported state, as it is evaluated.
      data: the PU problem.
      final: evaluation of that state.
      results: `of` the same.
    """
    assert data.own is not None  # else there are no rows to name
    hidden = data.hidden()
    rows = np.concatenate([data.source_ids[hidden], _held_rows(data)])
    scores = np.concatenate([final.train_scores[hidden], _held_scores(data, final)])
    order = np.argsort(rows, kind="stable")
    rows, scores = rows[order], scores[order]
    share = None
    if results.calibration is not None:
        share = calibration.probabilities(results.calibration, scores)
    chosen = decisions.decide(config.run.decide, scores, share)
    ids = data.own.ids[rows]
    is_held = np.isin(rows, data.validation_ids)
    columns = (ids, scores, share, decisions.ranks(scores), chosen)
    text = csv_text(data.own.id_name, *columns, is_held)
    replace_text(os.path.join(folder, PREDICTIONS), text)
    saved_model.save(os.path.join(folder, MODEL), config, method, state, data, results.calibration)
    document = [estimate._asdict() for estimate in results.estimates]
    write_json(os.path.join(folder, "held_out.json"), document)


def _held_rows(data: PUDataset) -> np.ndarray:
    copies = np.isin(data.validation_ids, data.validation_ids[data.validation_labeled])
    return data.validation_ids[~copies]


def _held_scores(data: PUDataset, final: Final) -> np.ndarray:
    if final.held_scores is None:
        return np.zeros(0, np.float32)
    copies = np.isin(data.validation_ids, data.validation_ids[data.validation_labeled])
    return final.held_scores[~copies]


def csv_text(
    id_name: str,
    ids: np.ndarray,
    scores: np.ndarray,
    probabilities: np.ndarray | None,
    ranks: np.ndarray,
    chosen: np.ndarray,
    is_held: np.ndarray | None = None,
) -> str:
    """A CSV text: the id under its own name, score, probability, rank and decision.

    Args:
      id_name: heading of the first column.
      ids: `[n]`, in the order of the rows.
      scores: `[n]`.
      probabilities: `[n]`; None leaves them empty.
      ranks: int `[n]`.
      chosen: bool `[n]`, who is called positive.
      is_held: bool `[n]`, which rows training did not see; None leaves that column out.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    more = [] if is_held is None else ["held_out"]
    writer.writerow([id_name, "score", "probability", "rank", "decision", *more])
    for i, name in enumerate(ids):
        probability = "" if probabilities is None else f"{probabilities[i]:.6g}"
        last = [] if is_held is None else [int(is_held[i])]
        row = [name, f"{scores[i]:.8g}", probability, ranks[i], int(chosen[i]), *last]
        writer.writerow(row)
    return text.getvalue()
