"""Differences of several methods from one of them, seed by seed, as a figure."""

import math
import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from pujax import checks, significance
from pujax.plots import style

_LEVEL = 0.95
_WIDTH, _ROW, _REST = 8.0, 0.36, 1.5
"""Inches: of the figure, of a row, and of what stands above and below the rows."""
_SPREAD = 0.25
"""Rows from the mean to the outermost seeds."""
_NAME, _LABEL = 40, 66
"""Letters after which the name of a row, and the text below the axis, go on in another line."""


def differences_figure(
    differences: Mapping[str, Sequence[float]],
    *,
    reference: str,
    unit: str,
    title: str = "",
    note: str = "",
) -> Figure:
    """One line per row: every seed's difference, the mean, and its interval of 95 % (Student's t).

    An interval that holds 0 does not tell the row from the reference. The intervals are those of
    single rows: of many rows one may miss 0 by chance.

    Args:
      differences: by the name of a row, from top to bottom, its differences from the reference, one
        for each seed; a row of one seed has no interval.
      reference: the row that the others are compared with.
      unit: what the differences are of, with its unit, for example 'accuracy (points)'.
      title: of the figure.
      note: what else a reader has to know, the last words below the axis.

    Returns:
      The figure.

    Raises:
      ValueError: if there is no row, or one without a difference or with one that is not finite.
    """
    checks.require(len(differences) > 0, "differences", {}, "at least one row")
    for name, values in differences.items():
        is_known = len(values) > 0 and all(math.isfinite(value) for value in values)
        checks.require(is_known, f"differences of {name!r}", list(values), "finite numbers")
    size = (_WIDTH, _REST + _ROW * len(differences))
    figure, (axes,) = style.panels("", 1, size=size)
    if title:
        figure.suptitle(textwrap.fill(title, _LABEL), fontsize=12, parse_math=False)
    axes.axvline(0, color=style.GREY, linewidth=1.0)
    for place, values in enumerate(differences.values()):
        # Seeds stand one below the other, so that equal ones can be counted.
        half = _SPREAD if len(values) > 1 else 0
        places = place + np.linspace(-half, half, len(values))
        axes.plot(values, places, "o", color=style.SKY, ms=4, zorder=5)
        interval = significance.mean_interval(values, level=_LEVEL)
        if math.isfinite(interval[0]):
            axes.plot(interval, [place] * 2, color=style.BLACK, linewidth=1.5, zorder=3)
        axes.plot([np.mean(values)], [place], "D", color=style.BLACK, ms=5, zorder=4)
    names = [textwrap.fill(name, _NAME) for name in differences]
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(differences) - 0.5, -0.5)
    marks = "dots are seeds, lines 95 % confidence intervals of single rows"
    label = "; ".join(filter(None, [f"{unit}: difference from '{reference}'", marks, note]))
    axes.set_xlabel(textwrap.fill(label, _LABEL), parse_math=False)
    return figure
