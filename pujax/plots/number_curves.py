"""Metrics of several rows over a number that columns differ in, such as the number of labels."""

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pujax import checks
from pujax.plots import style

_WIDTH, _HEIGHT = 4.6, 4.2
"""Inches of a panel."""
_TITLE = 90
"""Letters after which the title goes on in another line."""
_WIDE = 8
"""Ratio of the largest number to the smallest from which on the axis may be logarithmic."""

Curves = Mapping[str, Mapping[float, Sequence[float]]]


def curves_figure(panels: Mapping[str, Curves], *, numbers: str, title: str = "") -> Figure:
    """One panel per metric, one curve per row: the mean of the seeds, and bars of one deviation.

    Args:
      panels: by the name of a metric, with its unit, and that of a row, the values of the seeds at
        each number. A row need not have all numbers.
      numbers: what the numbers are, for the axis.
      title: of the figure.

    Returns:
      The figure.

    Raises:
      ValueError: if there is no panel, or a value that is not finite.
    """
    checks.require(len(panels) > 0, "panels", {}, "at least one metric")
    for curves in panels.values():
        for row, points in curves.items():
            values = [x for seeds in points.values() for x in seeds]
            is_known = all(points.values()) and all(map(math.isfinite, [*points, *values]))
            checks.require(is_known, f"values of {row!r}", dict(points), "finite numbers")
    figure, axes = style.panels("", len(panels), size=(_WIDTH * len(panels), _HEIGHT))
    if title:
        figure.suptitle(textwrap.fill(title, _TITLE), fontsize=12, parse_math=False)
    bars: list[Any] = []
    rows = list(dict.fromkeys(row for curves in panels.values() for row in curves))
    for panel, (metric, curves) in zip(axes, panels.items(), strict=True):
        seen = sorted({number for points in curves.values() for number in points})
        for place, row in enumerate(rows):
            points = dict(sorted(curves.get(row, {}).items()))
            deviations = [
                float(np.std(x, ddof=1)) if len(x) > 1 else math.nan for x in points.values()
            ]
            bar = panel.errorbar(
                list(points),
                [float(np.mean(x)) for x in points.values()],
                yerr=deviations,
                label=row,
                capsize=3,
                marker="o",
                ms=4,
                **style.line(place),
            )
            if panel is axes[0]:
                bars.append(bar)
        if _is_logarithmic(seen):
            panel.set_xscale("log")
        panel.set_xticks(seen, [f"{number:g}" for number in seen], minor=False)
        panel.minorticks_off()
        panel.set_xlabel(numbers, parse_math=False)
        panel.set_ylabel(metric, parse_math=False)
    num_columns = min(len(rows), 4)
    style.literal(figure.legend(bars, rows, loc="outside lower center", ncols=num_columns))
    return figure


def _is_logarithmic(numbers: Sequence[float]) -> bool:
    """Whether increasing numbers are far apart, and grow by factors rather than by steps."""
    if len(numbers) < 2 or numbers[0] <= 0 or numbers[-1] < _WIDE * numbers[0]:
        return False
    steps, factors = np.diff(numbers), np.diff(np.log(numbers))
    return bool(np.std(factors) / np.mean(factors) < np.std(steps) / np.mean(steps))
