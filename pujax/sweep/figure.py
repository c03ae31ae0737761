"""Figures of a sweep: differences from its reference, and curves over what columns count."""

import contextlib
import math
import os
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any

from PIL import Image

from pujax import report
from pujax.plots import figures, number_curves, paired
from pujax.sweep import plan as plan_lib
from pujax.sweep import summary

_NUMBER = re.compile(r"(?<![\w.-])\d+(?:\.\d+)?(?![\w.])")
"""A number that stands by itself, as in 'digits, 20 labels', and not as in 'a9a'."""
_ONE_SPLIT = "all seeds are of one split of the data, so that intervals are of how training begins"
_LEAST = 3
"""Numbers that a curve needs."""


def write(results: Mapping[str, Any], folder: str | os.PathLike) -> list[str]:
    """Draws the figures of a sweep, each atomically, by its first rule.

    Args:
      results: what `results.json` holds.
      folder: where to.

    Returns:
      The files: `paired_COLUMN.png` of the first metric for each column in which a row shares a
      seed with the reference, if there is one, and `curve_COLUMNS.png` of all metrics for each
      three columns or more that differ in one number alone. Figures of these kinds that pujax drew
      of an earlier table in the folder are removed: they would stand beside another table.
    """
    cells = [{**cell, "summaries": summary.records_of(cell, results)} for cell in results["cells"]]
    written = [*_differences(results, cells, folder), *_curves(results, cells, folder)]
    _remove_others(folder, written)
    return written


def _remove_others(folder: str | os.PathLike, written: Sequence[str]) -> None:
    """Removes figures of an earlier table; what pujax has not drawn stays, whatever its name."""
    kept = {os.path.basename(path) for path in written}
    for path in pathlib.Path(folder).glob("*.png"):
        if path.name in kept or path.name.partition("_")[0] not in plan_lib.FIGURES:
            continue
        # No image, one of somebody's that is too large to be a figure, or gone by now.
        with contextlib.suppress(OSError, Image.DecompressionBombError):
            with Image.open(path) as image:
                is_ours = image.info.get("Software") == figures.MADE_BY
            if is_ours:
                path.unlink()


def _curves(
    results: Mapping[str, Any], cells: Sequence[Mapping[str, Any]], folder: str | os.PathLike
) -> list[str]:
    """Draws metrics over the number that columns differ in."""
    rule, metrics = results["rules"][0], [results["metric"], *results.get("also", [])]
    groups: dict[str, list[tuple[float, Mapping[str, Any]]]] = {}
    for cell in cells:
        numbers = _NUMBER.findall(cell["column"])
        if len(numbers) == 1:
            name = _NUMBER.sub("#", cell["column"])
            groups.setdefault(name, []).append((float(numbers[0]), cell))
    written = []
    for name, members in groups.items():
        panels: dict[str, dict[str, dict[float, list[float]]]] = {}
        for metric in metrics:
            curves = panels.setdefault(report.label(metric) + _percent(metric), {})
            for number, cell in members:
                values = [x for x in report.values_of(cell, rule, metric) if x is not None]
                if values:
                    curves.setdefault(cell["row"], {})[number] = values
        seen = {x for curves in panels.values() for points in curves.values() for x in points}
        if len(seen) < _LEAST:
            continue
        title = f"{results['title']}, rule: {report.rule_label(rule)}"
        drawn = number_curves.curves_figure(panels, numbers=name, title=title)
        path = os.path.join(folder, f"curve_{plan_lib.slug(name)}.png")
        figures.save(drawn, path)
        written.append(path)
    return written


def _percent(metric: str) -> str:
    return ", %" if metric in report.PERCENT else ""


def _differences(
    results: Mapping[str, Any], cells: Sequence[Mapping[str, Any]], folder: str | os.PathLike
) -> list[str]:
    """Draws every row's differences from the reference, seed by seed."""
    rule, metric = results["rules"][0], results["metric"]
    found = report.paired_differences(cells, results.get("reference", ""), rule, metric)
    written, columns = [], dict.fromkeys(cell["column"] for cell in cells)
    for column in columns:
        rows = {
            cell["row"]: [value for value in values if math.isfinite(value)]
            for cell, values in zip(cells, found, strict=True)
            if cell["column"] == column
        }
        rows = {row: values for row, values in rows.items() if values}
        if not rows:
            continue
        unit = report.label(metric) + " (points)" * (metric in report.PERCENT)
        drawn = paired.differences_figure(
            rows,
            reference=results["reference"],
            unit=f"{unit}, rule: {report.rule_label(rule)}",
            title=f"{results['title']}: {column}" if len(columns) > 1 else results["title"],
            note=_ONE_SPLIT * all(cell.get("one_split", False) for cell in cells),
        )
        path = os.path.join(folder, f"paired_{plan_lib.slug(column)}.png")
        figures.save(drawn, path)
        written.append(path)
    return written
