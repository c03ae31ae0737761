"""How well the scores order: ROC and precision-recall, and held-out P against U."""

import math
from typing import Any

import numpy as np

from pujax.plots import style
from pujax.reports import drawing, evidence, missing
from pujax.reports.evidence import Evidence
from pujax.reports.parts import Figure, Number, Section, percent, with_interval
from pujax.reports.run_folder import Run


def ranking(run: Run, prefix: str) -> Section:
    """ROC and precision-recall where the truth is known, else P against U."""
    title = "Ranking"
    if run.is_multilabel:
        return Section("ranking", title, (missing.SEVERAL_LABELS,))
    scores = run.scores
    if scores is None:
        return Section("ranking", title, (missing.reason(run),))
    known = evidence.of(run)
    found, texts = [], []
    if len(scores.test_scores) and evidence.two_classes(scores.test_labels, scores.test_scores):
        found += _known_curves(scores.test_scores, scores.test_labels, known, prefix)
    else:
        texts.append(
            "Without test examples of both classes there is no ROC and no precision-recall curve."
        )
    if len(scores.held_scores) and evidence.two_classes(scores.held_labeled, scores.held_scores):
        found.append(_unlabeled_curve(run, prefix))
    elif not found:
        texts.append("Nothing was held out either, so there is no curve of P against U.")
    return Section("ranking", title, tuple(texts), figures=tuple(found))


def _known_curves(
    scores: np.ndarray, labels: np.ndarray, known: Evidence, prefix: str
) -> list[Figure]:
    hits, others = drawing.step_curve(scores, labels)
    figure, axes = drawing.panel()
    drawing.share_axes(axes, "negatives called positive (%)", "positives found (%)")
    axes.plot(*drawing.thinned(others, hits), color=style.BLUE, linewidth=2, label="this run")
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="chance")
    at = float(np.mean(scores[labels != 1] > 0)), float(np.mean(scores[labels == 1] > 0))
    axes.plot(*at, "o", color=style.VERMILION, label="at the threshold 0")
    style.legend_or_note(axes, "")
    area = with_interval(known.auc)
    roc = Figure(
        drawing.svg(figure, f"{prefix}-roc"),
        f"ROC curve on the test set, AUC {area}",
        f"ROC curve on the test set; area {area}. The nearer to the upper left corner the better.",
    )
    share = float(np.mean(labels == 1))
    flagged = hits[1:] * share + others[1:] * (1 - share)
    precision = hits[1:] * share / flagged
    figure, axes = drawing.panel()
    drawing.share_axes(axes, "positives found, recall (%)", "of those called positive, right (%)")
    axes.plot(
        *drawing.thinned(hits[1:], precision),
        color=style.BLUE,
        linewidth=2,
        label="this run",
        drawstyle="steps-pre",
    )
    axes.axhline(share, color=style.GREY, linestyle="--", linewidth=1, label="chance")
    if at[0] + at[1] > 0:
        right = at[1] * share / (at[1] * share + at[0] * (1 - share))
        axes.plot(at[1], right, "o", color=style.VERMILION, label="at the threshold 0")
    style.legend_or_note(axes, "")
    area = with_interval(known.numbers.get("average_precision", Number()))
    pr = Figure(
        drawing.svg(figure, f"{prefix}-pr"),
        f"Precision-recall curve on the test set, average precision {area}",
        f"Precision and recall on the test set; average precision {area}, chance {percent(share)}.",
    )
    return [roc, pr]


def _unlabeled_curve(run: Run, prefix: str) -> Figure:
    scores = run.scores
    assert scores is not None  # `ranking` has looked
    held = evidence.held_out(run)
    hits, others = drawing.step_curve(scores.held_scores, scores.held_labeled)
    figure, axes = drawing.panel()
    drawing.share_axes(axes, "rows of U called positive (%)", "known positives found (%)")
    axes.plot(*drawing.thinned(others, hits), color=style.BLUE, linewidth=2, label="this run")
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="chance")
    share = held.expected.value
    if math.isfinite(share):
        line: dict[str, Any] = {"color": style.GREEN, "linestyle": "-.", "linewidth": 1.2}
        axes.plot([0, share, 1], [0, 1, 1], label="no error, if the prior is right", **line)
    at = [float(np.mean(scores.held_scores[x] > 0)) for x in (~scores.held_labeled,)]
    at += [float(np.mean(scores.held_scores[scores.held_labeled] > 0))]
    axes.plot(*at, "o", color=style.VERMILION, label="at the threshold 0")
    style.legend_or_note(axes, "")
    area = with_interval(held.numbers.get("auc_pu", Number()))
    return Figure(
        drawing.svg(figure, f"{prefix}-pu"),
        f"Held-out known positives found over the share of U called positive, area {area}",
        f"Held-out P against U; area {area}. Hidden positives of U count against it here, so that "
        "even a classifier without error stays below the corner.",
    )
