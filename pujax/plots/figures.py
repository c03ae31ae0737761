"""Figures of a run, as PNG files.

Every figure is built by one function (`*_figure`) and written by another, through matplotlib's
objects: no global figure, no display. What they share is in `style.py`.
"""

import io
import math
import os
import textwrap
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from pujax.files import replacing
from pujax.plots import style as style_lib

MADE_BY = "pujax"
"""What a PNG file of `save` says of the program that made it."""
_DPI = 120
_TWO_PANELS = (10.5, 4.8)  # inches, with room for legends below the panels
_BINS = 40
_FAR = 2.0
"""Ranges of the scores that the threshold may be away from them and still be drawn."""


def training_curves(rows: style_lib.Rows, path: str | os.PathLike, *, title: str = "") -> None:
    """Writes losses and test metrics over epochs; see `training_curves_figure`."""
    save(training_curves_figure(rows, title=title), path)


def label_error(rows: style_lib.Rows, path: str | os.PathLike, *, title: str = "") -> None:
    """Writes the error of the learned labels over epochs; see `label_error_figure`."""
    save(label_error_figure(rows, title=title), path)


def score_histogram(
    scores: np.ndarray,
    truth: np.ndarray,
    labeled: np.ndarray,
    path: str | os.PathLike,
    *,
    title: str = "",
) -> None:
    """Writes how scores are distributed by true class; see `score_histogram_figure`."""
    save(score_histogram_figure(scores, truth, labeled, title=title), path)


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Draws a figure into a PNG file, which is replaced atomically and says who made it.

    Args:
      figure: what to draw.
      path: file to write; its folder is made if missing.
    """
    image = io.BytesIO()
    made_by = {"Software": MADE_BY}
    FigureCanvasAgg(figure).print_figure(image, format="png", dpi=_DPI, metadata=made_by)
    path = os.fspath(path)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with replacing(path) as file:
        file.write(image.getbuffer())


def training_curves_figure(rows: style_lib.Rows, *, title: str = "") -> Figure:
    """Losses in one panel, test metrics and the accuracy of the learned labels in the other.

    Args:
      rows: one mapping per epoch, with `epoch` counted from 0, perhaps `stage`, and any of `loss`,
        `loss_*`, `test_*`, `label_accuracy`; a value may be absent, None or not finite in any row.
      title: method, data set and seed of the run.

    Returns:
      The figure.
    """
    names = dict.fromkeys(name for row in rows for name in row)
    losses = [name for name in names if "loss" in name.split("_")]
    shares = style_lib.metric_columns(rows)
    figure, (left, right) = style_lib.panels(title, 2, size=_TWO_PANELS)
    left.set(title="training loss", ylabel="loss (mean over the epoch)")
    style_lib.curves(left, rows, losses, bold=["loss"])
    has_labels = _is_known(rows, "label_accuracy")
    right.set(title="test set" + ", and learned labels" * has_labels, ylabel="share (%)")
    right.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, symbol=""))
    style_lib.curves(right, rows, [*shares, "label_accuracy"], bold=["label_accuracy"])
    return figure


def _is_known(rows: style_lib.Rows, name: str) -> bool:
    """Whether a column has a number in any row."""
    values = (row.get(name) for row in rows)
    return any(value is not None and math.isfinite(value) for value in values)


def label_error_figure(rows: style_lib.Rows, *, title: str = "") -> Figure:
    """How far the learned labels of U are from the hidden truth (LaGAM, Fig. 4).

    Args:
      rows: one mapping per epoch, with `epoch` counted from 0, `label_mse` and `label_accuracy`; a
        value may be absent, None or not finite in any row.
      title: method, data set and seed of the run.

    Returns:
      The figure: mean squared error in one panel, accuracy in the other.
    """
    figure, (left, right) = style_lib.panels(title, 2, size=_TWO_PANELS)
    left.set(title="error of the learned labels of U", ylabel="mean squared error")
    style_lib.curves(left, rows, ["label_mse"])
    left.set_ylim(bottom=0)
    right.set(title="accuracy of the learned labels of U", ylabel="accuracy (%)")
    right.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, symbol=""))
    style_lib.curves(right, rows, ["label_accuracy"])
    return figure


def map_figure(
    flat: np.ndarray,
    classes: np.ndarray,
    labeled: np.ndarray,
    *,
    method: str,
    title: str = "",
    remark: str = "",
    size: tuple[float, float] = (6.4, 6.6),
) -> Figure:
    """A map of the representation, coloured by true class (LaGAM, Figs. 5 and 6).

    Args:
      flat: `[m, 2]`, coordinates of the `m` points; `[0, 2]` where they are not drawn.
      classes: `[m]`, 1 positive, 0 negative, -1 unknown.
      labeled: `[m]` bool, the labelled positives.
      method: 'pca' or 'tsne', for the labels of the axes.
      title: of the figure.
      remark: what has to be known before structure is seen in the map, such as
        `embedding_map.collapse`; with it t-SNE, which shows clusters in noise too, is not drawn.
      size: inches.

    Returns:
      The figure.
    """
    figure, (axes,) = style_lib.panels(title, 1, size=size)
    word = {"pca": "principal component", "tsne": "t-SNE coordinate"}[method]
    axes.set(xlabel=f"{word} 1 (no unit)", ylabel=f"{word} 2 (no unit)")
    if remark and method == "tsne":
        text = textwrap.fill(f"Not drawn: {remark}.", 44)
        axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
        return figure
    if remark:
        axes.set_title(textwrap.fill(f"Note: {remark}.", 64), fontsize=8, loc="left")
    groups: list[tuple[str, np.ndarray, dict[str, Any]]] = [
        ("unknown class", classes == -1, {"color": style_lib.GREY, "marker": "x", "s": 10}),
        ("negative", classes == 0, {"color": style_lib.BLUE, "marker": "o", "s": 12}),
        ("positive", classes == 1, {"color": style_lib.VERMILION, "marker": "^", "s": 14}),
    ]
    for name, mask, style in groups:
        if mask.any():
            x, y = flat[mask].T
            label = f"{name} ({mask.sum()})"
            axes.scatter(x, y, label=label, alpha=0.6, linewidths=0.5, **style)
    if labeled.any():
        x, y = flat[labeled].T
        axes.scatter(
            x,
            y,
            label=f"labelled positive ({labeled.sum()})",
            facecolors="none",
            edgecolors=style_lib.BLACK,
            marker="o",
            s=42,
            linewidths=0.9,
        )
    style_lib.legend_or_note(axes, "no finite points")
    return figure


def score_histogram_figure(
    scores: np.ndarray,
    truth: np.ndarray,
    labeled: np.ndarray,
    *,
    title: str = "",
    size: tuple[float, float] = (7.2, 5.0),
) -> Figure:
    """Scores of the labelled positives and of the hidden positives and negatives.

    A classifier that only remembers which positives were labelled shows here: hidden positives lie
    with the negatives, left of the threshold. A threshold far from all scores is named instead of
    drawn, since all scores would fall into one or two bins beside it.

    Args:
      scores: `[n]` logits; non-finite ones are left out.
      truth: `[n]`, 1 positive, 0 negative, -1 unknown.
      labeled: `[n]` bool.
      title: method, data set and seed of the run.
      size: inches.

    Returns:
      The figure: one step histogram per group, each a probability density.

    Raises:
      ValueError: if the lengths differ.
    """
    scores, truth, labeled = np.asarray(scores), np.asarray(truth), np.asarray(labeled, bool)
    if scores.ndim != 1 or not scores.shape == truth.shape == labeled.shape:
        raise ValueError(
            f"scores, truth, labeled have shapes {scores.shape}, {truth.shape}, {labeled.shape}; "
            "accepted: [n] each"
        )
    finite = np.isfinite(scores)
    edges = _bin_edges(scores[finite].astype(np.float64))
    figure, (axes,) = style_lib.panels(title, 1, size=size)
    axes.set(xlabel="score (logit)", ylabel="probability density (per unit of score)")
    groups = [
        ("labelled positives", labeled, style_lib.GREEN, "-."),
        ("U, positives", ~labeled & (truth == 1), style_lib.VERMILION, "-"),
        ("U, negatives", ~labeled & (truth == 0), style_lib.BLUE, "--"),
        ("U, class unknown", ~labeled & (truth == -1), style_lib.GREY, ":"),
    ]
    for name, mask, color, style in groups:
        if (mask & finite).any():
            density, _ = np.histogram(scores[mask & finite], edges, density=True)
            label = f"{name} ({(mask & finite).sum()})"
            axes.stairs(density, edges, label=label, color=color, linestyle=style, linewidth=1.6)
    axes.margins(y=0.15)  # room for the note
    style_lib.legend_or_note(axes, "no finite scores")
    if edges[0] <= 0.0 <= edges[-1]:
        axes.axvline(0.0, color=style_lib.BLACK, linewidth=1.0)
        style_lib.note_at_top(axes, 0.0, "decision threshold")
    else:
        side: Any = "left" if edges[0] > 0 else "right"
        axes.set_title(f"decision threshold: 0, {side} of this range", fontsize=8, loc=side)
    return figure


def _bin_edges(scores: np.ndarray) -> np.ndarray:
    """Equal bins over all scores, and to the threshold 0, with an edge there, unless it is far."""
    if len(scores):
        first, last = scores.min(), scores.max()
        half = last / 2 - first / 2  # a range may overflow
        if max(first, -last) > 2 * _FAR * half > 0:
            return np.linspace(first, last, _BINS + 1)
    low, high = min(scores.min(initial=0.0), 0.0), max(scores.max(initial=0.0), 0.0)
    width = (high - low) / _BINS or 1.0
    return width * np.arange(math.floor(low / width) - 1, math.ceil(high / width) + 2)
