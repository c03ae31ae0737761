"""The figure of a sweep that has a reference: every row's differences from it, seed by seed."""

import math
import os
from collections.abc import Mapping
from typing import Any

from pujax import report
from pujax.plots import figures, paired
from pujax.sweep import plan as plan_lib
from pujax.sweep import summary


def write(results: Mapping[str, Any], folder: str | os.PathLike) -> list[str]:
    """Draws `paired_COLUMN.png` for each column, by the first rule and metric, each atomically.

    Args:
      results: what `results.json` holds.
      folder: where to.

    Returns:
      The files, in the order of the columns. A column in which no row shares a seed with the
      reference has none, and so has a sweep without a reference.
    """
    rule, metric = results["rules"][0], results["metric"]
    cells = [{**cell, "summaries": summary.records_of(cell, results)} for cell in results["cells"]]
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
            unit=f"{unit}, {report.rule_label(rule)}",
            title=f"{results['title']}: {column}" if len(columns) > 1 else results["title"],
        )
        path = os.path.join(folder, f"paired_{plan_lib.slug(column)}.png")
        figures.save(drawn, path)
        written.append(path)
    return written
