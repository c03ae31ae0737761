"""Whether probabilities are what they say."""

import math
from typing import Any

import numpy as np

from pujax.plots import style
from pujax.reports import drawing, evidence, missing
from pujax.reports.parts import Figure, Number, Section, number, percent
from pujax.reports.run_folder import Run

_BINS = 8


def calibration(run: Run, prefix: str) -> Section:
    """Whether probabilities are what they say."""
    title = "Calibration"
    if run.is_multilabel:
        return Section("calibration", title, (missing.SEVERAL_LABELS,))
    scores = run.scores
    if scores is None:
        return Section("calibration", title, (missing.reason(run),))
    found, texts = [], []
    if evidence.two_classes(scores.test_labels, scores.test_scores):
        learned = len(scores.test_probabilities) > 0
        probabilities = scores.test_probabilities
        if not learned:
            probabilities = 1 / (1 + np.exp(-np.clip(scores.test_scores.astype(float), -60, 60)))
            texts.append(
                "This run fitted no calibration, so that the score is read as log-odds here; it "
                "ranks, and need not be a probability."
            )
        found.append(_reliability(probabilities, scores.test_labels == 1, prefix))
    held = scores.held_probabilities
    prior = evidence.prior_of_unlabeled(run.summary or {}).value
    if len(held) and math.isfinite(prior):
        found.append(_unlabeled_reliability(run, prior, prefix))
        unlabeled = held[~scores.held_labeled]
        texts.append(
            f"The mean probability of the held-out rows of U is {percent(float(unlabeled.mean()))}"
            f", and {percent(prior)} of U are taken for positive."
        )
    doubt = (run.summary or {}).get("mean_probability")
    if doubt:
        ends = [percent(number(doubt.get(x))) for x in ("mean", "low", "high")]
        smallest, largest = (number(doubt.get(f"{x}_prior")) for x in ("smallest", "largest"))
        over = f"if {percent(smallest)} to {percent(largest)} of U are positive, all of which the"
        over += " estimates leave open, and"
        if smallest == largest:
            over = f"where {percent(smallest)} of U are taken to be positive, for certain,"
        texts.append(
            f"The mean probability of U may be anything from {ends[1]} to {ends[2]}, {over} by "
            f"chance in the held-out rows; {ends[0]} is reported."
        )
    if not found:
        texts.append(
            "Unknown: there are no test examples of both classes, and no calibration was fitted "
            "on held-out rows."
        )
    return Section("calibration", title, tuple(texts), figures=tuple(found))


def _groups(probabilities: np.ndarray) -> list[np.ndarray]:
    """Rows in bins of equal size by probability; equal probabilities share a bin."""
    edges = np.unique(np.quantile(probabilities, np.linspace(0, 1, _BINS + 1)[1:-1]))
    bins = np.searchsorted(edges, probabilities, side="right")
    return [np.flatnonzero(bins == i) for i in np.unique(bins)]


def _reliability(probabilities: np.ndarray, is_positive: np.ndarray, prefix: str) -> Figure:
    error, points = 0.0, []
    for rows in _groups(probabilities):
        seen = evidence.jeffreys(int(is_positive[rows].sum()), len(rows))
        said = float(probabilities[rows].mean())
        points.append((said, seen))
        error += abs(said - seen.value) * len(rows) / len(probabilities)
    figure, axes = drawing.panel()
    drawing.share_axes(axes, "probability that is stated (%)", "positive in truth (%)")
    _points(axes, points, "test examples, in bins of equal size")
    return Figure(
        drawing.svg(figure, f"{prefix}-reliability"),
        f"Stated probabilities against shares of positives, expected calibration error {error:.3f}",
        f"Test examples in bins of equal size, with 90 % intervals; points on the line are right. "
        f"Expected calibration error {error:.3f}.",
    )


def _points(axes: Any, points: list[tuple[float, Number]], label: str) -> None:
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="exact")
    x = [said for said, _ in points]
    values = np.array([seen for _, seen in points]).reshape(-1, 3)
    below = np.nan_to_num(values[:, 0] - values[:, 1]).clip(0)
    above = np.nan_to_num(values[:, 2] - values[:, 0]).clip(0)
    axes.errorbar(x, values[:, 0], [below, above], fmt="o", color=style.BLUE, ms=5, label=label)
    style.legend_or_note(axes, "")


def _unlabeled_reliability(run: Run, prior: float, prefix: str) -> Figure:
    """Of held-out U: a bin holds `prior * (its share of P) / (its share of U)` positives (SCAR)."""
    scores = run.scores
    assert scores is not None  # `calibration` has looked
    is_p = scores.held_labeled
    unlabeled, positive = scores.held_probabilities[~is_p], scores.held_probabilities[is_p]
    edges = np.unique(np.quantile(unlabeled, [0.5, 0.75, 0.9]))
    points = []
    bins_u, bins_p = (np.searchsorted(edges, x, side="right") for x in (unlabeled, positive))
    for one in np.unique(bins_u):
        share_u = float(np.mean(bins_u == one))
        hits = evidence.jeffreys(int((bins_p == one).sum()), len(positive))
        seen = Number(*(min(prior * end / share_u, 1.0) for end in hits))
        points.append((float(unlabeled[bins_u == one].mean()), seen))
    figure, axes = drawing.panel()
    drawing.share_axes(axes, "probability that is stated (%)", "positive, by the held-out P (%)")
    _points(axes, points, "held-out U, by probability")
    return Figure(
        drawing.svg(figure, f"{prefix}-pu-reliability"),
        "Stated probabilities of held-out rows of U against the share that held-out P implies",
        f"Held-out U in four bins (half, a quarter, 15 % and 10 % of the rows, by probability) "
        f"with 90 % intervals of the chance in P. It rests on the prior of {percent(prior)} and on "
        "SCAR, and the calibration was fitted on the same rows, so it shows a wrong shape, not a "
        "wrong prior.",
    )
