"""Differences of several methods from one of them, seed by seed, as a figure."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.figure import Figure

from pujax import checks, significance
from pujax.plots import style

_LEVEL = 0.95
_WIDTH, _ROW, _REST = 8.0, 0.3, 1.3
"""Inches: of the figure, of a row, and of what stands above and below the rows."""


def differences_figure(
    differences: Mapping[str, Sequence[float]], *, reference: str, unit: str, title: str = ""
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
    figure, (axes,) = style.panels(title, 1, size=size)
    axes.axvline(0, color=style.GREY, linewidth=1.0)
    for place, values in enumerate(differences.values()):
        axes.plot(values, [place] * len(values), "o", color=style.SKY, ms=4, zorder=2)
        if len(values) > 1:
            interval = significance.mean_interval(values, level=_LEVEL)
            axes.plot(interval, [place] * 2, color=style.BLACK, linewidth=1.5, zorder=3)
        axes.plot([np.mean(values)], [place], "D", color=style.BLACK, ms=5, zorder=4)
    axes.set_yticks(range(len(differences)), list(differences))
    axes.set_ylim(len(differences) - 0.5, -0.5)
    axes.set_xlabel(f"{unit}: difference from '{reference}', seed by seed")
    return figure
