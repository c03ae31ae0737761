"""Figures of a page: small single panels as SVG elements that follow the page's colours."""

import io
import re
from typing import Any

import matplotlib
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from pujax.plots import style

SIZE = (4.2, 3.5)
"""Inches: 400 px wide, so that letters of 8 points can be read on a telephone too."""
_MOST_POINTS = 400
"""Of a curve; the eye sees no difference to more of them."""
_SETTINGS: Any = {"svg.fonttype": "none", "svg.hashsalt": "pujax", "font.size": 10.0}
# What takes the page's colours, in dark mode too: text, curves in black, and lines of the grid.
_COLORS = {
    "#000000": "currentColor",
    "#444444": "currentColor",
    "#dddddd": "var(--grid)",
    "#8c8c8c": "var(--muted)",
}
_PLAIN = re.compile(r"<metadata>.*?</metadata>|<\?xml.*?\?>|<!DOCTYPE.*?>", re.DOTALL)


def panel() -> tuple[Figure, Axes]:
    """A figure with one empty panel."""
    figure, (axes,) = style.panels("", 1, size=SIZE)
    return figure, axes


def share_axes(axes: Axes, x: str, y: str) -> None:
    """Labels both axes, which are shares, in percent."""
    axes.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.PercentFormatter(1.0, symbol=""))


def svg(figure: Figure, prefix: str) -> str:
    """A figure as an SVG element for a page.

    Args:
      figure: what to draw.
      prefix: of all ids in it, unique among the figures of the page.

    Returns:
      Text from `<svg` to `</svg>`, without size, so that it takes that of its place; it loads
      nothing, and its text is text.
    """
    figure.patch.set_alpha(0.0)
    for axes in figure.axes:
        axes.patch.set_alpha(0.0)
    file = io.StringIO()
    with matplotlib.rc_context(_SETTINGS):
        FigureCanvasSVG(figure).print_svg(file, metadata={"Date": None})
    text = _PLAIN.sub("", file.getvalue()).strip()
    text = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', text)
    text = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', text)
    text = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", text)
    for color, named in _COLORS.items():
        text = re.sub(color, named, text, flags=re.IGNORECASE)
    head, rest = text.split(">", 1)
    head = re.sub(r' (width|height|version)="[^"]*"', "", head)
    return f'{head} aria-hidden="true" focusable="false">{rest}'


def step_curve(scores: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shares above every threshold, from the highest to the lowest score.

    Args:
      scores: `[n]`, finite.
      labels: `[n]`, 1 or 0.

    Returns:
      Shares of the labels 1, and of the labels 0, with a point (0, 0) before them; equal scores
      are one point.
    """
    order = np.argsort(-scores, kind="stable")
    ordered, positive = scores[order], labels[order] == 1
    last = np.append(np.flatnonzero(np.diff(ordered)), len(ordered) - 1)
    hits = np.cumsum(positive)[last] / max(positive.sum(), 1)
    others = np.cumsum(~positive)[last] / max((~positive).sum(), 1)
    return np.append(0.0, hits), np.append(0.0, others)


def thinned(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """At most `_MOST_POINTS` points of a curve, its ends among them."""
    if len(x) <= _MOST_POINTS:
        return x, y
    rows = np.unique(np.linspace(0, len(x) - 1, _MOST_POINTS).round().astype(int))
    return x[rows], y[rows]
