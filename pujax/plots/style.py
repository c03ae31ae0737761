"""Panels, colours and curves that the figures of a run share.

Colours are those of Okabe and Ito, which colour-blind readers can distinguish; line styles and
markers differ too.
"""

import itertools
import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib import colormaps, colors, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.transforms import ScaledTranslation

# https://jfly.uni-koeln.de/color, without the yellow, which is too pale on white.
BLACK, GREY = "#000000", "#8C8C8C"
BLUE, VERMILION, GREEN = "#0072B2", "#D55E00", "#009E73"
PURPLE, ORANGE, SKY = "#CC79A7", "#E69F00", "#56B4E9"
_CYCLE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY)
_STYLES = ("-", "--", "-.", ":")
_MAX_MARKED_POINTS = 40
# A share that is no measure of quality: broad and pale, so that a curve of the same values shows.
_PALE = ("test_predicted_positive", "val_predicted_positive")
# The curves of problems with several labels per example.
_SEVERAL_LABELS = ("test_mean_average_precision", "test_overall_f1", "test_class_f1")
# In points: from the panel's lower edge to its legend, a letter of a legend, and its line.
_LEGEND_BELOW, _LETTER, _HANDLE = 38.0, 4.8, 40.0

_NAMES = {
    "loss": "total",
    "test_f1": "F1",
    "test_auc": "AUC",
    "test_predicted_positive": "predicted positive (share)",
    "val_predicted_positive": "predicted positive (share)",
    "val_proxy_auc": "AUC of P against U",
    "test_mean_average_precision": "mean average precision",
    "test_overall_f1": "overall F1",
    "test_class_f1": "F1, mean over labels",
    "label_mse": "learned labels of U (mean squared error)",
    "label_accuracy": "learned labels of U (accuracy)",
}

Rows = Sequence[Mapping[str, Any]]


def panels(
    title: str, count: int, size: tuple[float, float] = (10.5, 4.2)
) -> tuple[Figure, list[Axes]]:
    """A figure of `size` inches with `count` empty panels side by side."""
    figure = Figure(figsize=size, layout="constrained")
    if title:
        figure.suptitle(title, fontsize=12, parse_math=False)
    axes = [figure.add_subplot(1, count, i + 1) for i in range(count)]
    for panel in axes:
        panel.grid(color="#DDDDDD", linewidth=0.6)
        panel.set_axisbelow(True)
        panel.spines[["top", "right"]].set_visible(False)
    return figure, axes


def metric_columns(rows: Rows) -> list[str]:
    """The columns of test metrics that are drawn, in their order.

    Where examples have several labels, three of the twenty are: the others are precisions, recalls,
    what an oracle's thresholds would give, and a count.
    """
    names = dict.fromkeys(name for row in rows for name in row if name.startswith("test_"))
    several = [name for name in _SEVERAL_LABELS if name in names]
    return several or [name for name in names if "loss" not in name.split("_")]


def shades(count: int) -> list[str]:
    """Colours of curves whose order means something, from dark to light."""
    scale = colormaps["viridis"]
    return [colors.to_hex(scale(0.92 * i / max(count - 1, 1))) for i in range(count)]


def line(place: int) -> dict[str, Any]:
    """Colour and line style of a curve by its place, counted from 0."""
    styles = _STYLES[place // len(_CYCLE) % len(_STYLES)]
    return {"linestyle": styles, "color": _CYCLE[place % len(_CYCLE)]}


def literal(legend: Legend) -> None:
    """Shows the names of a legend as they are, '$' in them, too."""
    for text in legend.get_texts():
        text.set_parse_math(False)


def legend_or_note(axes: Axes, note: str) -> None:
    """Adds the legend below the panel, or a note in the middle where nothing was drawn.

    Below the panel it covers no curve, wherever the curves run.
    """
    labels = axes.get_legend_handles_labels()[1]
    if labels:
        figure: Any = axes.get_figure()
        below = ScaledTranslation(0, -_LEGEND_BELOW / 72, figure.dpi_scale_trans)
        width = 72 * figure.get_figwidth() * 0.85 / len(figure.axes)
        columns = int(width / (_LETTER * max(map(len, labels)) + _HANDLE))
        axes.legend(
            fontsize=8,
            frameon=False,
            loc="upper left",
            bbox_to_anchor=(0.0, 0.0),
            bbox_transform=axes.transAxes + below,
            borderaxespad=0.0,
            ncols=min(max(columns, 1), len(labels)),
        )
    else:
        axes.text(0.5, 0.5, note, ha="center", va="center", color=GREY, transform=axes.transAxes)


def note_at_top(axes: Axes, x: float, text: str) -> None:
    """Writes small text at the top of a panel beside `x`, on the side with more room."""
    left, right = axes.get_xlim()
    is_right = x - left > right - x
    axes.annotate(
        text,
        (x, 1.0),
        (-3 if is_right else 3, -3),
        xycoords=("data", "axes fraction"),
        textcoords="offset points",
        ha="right" if is_right else "left",
        va="top",
        fontsize=8,
        color="#444444",
    )


def curves(axes: Axes, rows: Rows, names: Sequence[str], *, bold: Sequence[str] = ()) -> None:
    """Draws one line per name over the epochs that have a number, and the borders between stages.

    Args:
      axes: panel to draw into.
      rows: one mapping per epoch.
      names: what to draw; one that no row has is left out.
      bold: those of `names` that stand out in black.
    """
    points_of = {
        name: [(row["epoch"] + 1, row[name]) for row in rows if _is_number(row.get(name))]
        for name in names
    }
    styles = map(line, itertools.count())
    for name, points in points_of.items():
        if not points:
            continue
        look = {"color": BLACK, "linewidth": 2.0} if name in bold else next(styles)
        if name in _PALE:
            look = {**look, "linewidth": 5.0, "alpha": 0.4, "zorder": 1.5, "linestyle": "-"}
        # Without a marker a single evaluation would be invisible.
        marker = "o" if len(points) <= _MAX_MARKED_POINTS else None
        axes.plot(*zip(*points, strict=True), label=_label(name), marker=marker, ms=3, **look)
    axes.margins(y=0.12)  # room for the names of stages
    legend_or_note(axes, "nothing was measured")
    axes.set_xlabel("epochs completed")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True))
    for before, after in zip(rows[:-1], rows[1:], strict=True):
        if before.get("stage") != after.get("stage"):
            border = after["epoch"] + 0.5
            axes.axvline(border, color=GREY, linestyle=(0, (4, 3)), linewidth=1.0)
            note_at_top(axes, border, str(after.get("stage")))


def _is_number(value: Any) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def _label(name: str) -> str:
    if name in _NAMES:
        return _NAMES[name]
    return name.removeprefix("loss_").removeprefix("test_").replace("_", " ")
