"""The results of a prior study: numbers, curves, a figure and a table."""

import csv
import io
import os
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pujax.console import render_table
from pujax.files import replace_text, to_plain, write_json
from pujax.plots import figures, style
from pujax.prior_study.heads import Study

_COLUMNS = ("factor", "prior", "test AUC", "change", "F1", "accuracy")


def write(
    result: Study, folder: str, *, title: str, beside: dict[str, list[dict[str, Any]]]
) -> None:
    """Writes `study.json`, `curves.csv` and `curves.png`.

    Args:
      result: the study.
      folder: made if missing.
      title: of the figure.
      beside: rows of other runs by name, whose `test_auc` is drawn too.
    """
    os.makedirs(folder, exist_ok=True)
    write_json(os.path.join(folder, "study.json"), to_plain(result._asdict()))
    text = io.StringIO()
    lines = csv.writer(text)
    lines.writerow(["epoch", *(f"factor {x:g}" for x in result.factors)])
    for epoch, row in enumerate(result.auc.mean(1).T, 1):
        lines.writerow([epoch, *map(repr, map(float, row))])
    replace_text(os.path.join(folder, "curves.csv"), text.getvalue())
    figures.save(figure(result, title=title, beside=beside), os.path.join(folder, "curves.png"))


def figure(
    result: Study, *, title: str = "", beside: dict[str, list[dict[str, Any]]] | None = None
) -> Figure:
    """Test AUC over the epochs of the head, one curve per factor: Fig. 3 of ImPULSeS."""
    drawing, (axes,) = style.panels(title, 1, (7.5, 4.5))
    epochs = np.arange(1, result.auc.shape[-1] + 1)
    colours = style.shades(len(result.factors))
    lines: list[Line2D] = []
    for factor, auc, colour in zip(result.factors, 100 * result.auc, colours, strict=True):
        lines += axes.plot(epochs, auc.mean(0), color=colour, label=f"prior x {factor:g}")
        if auc.shape[0] > 1:
            axes.fill_between(epochs, auc.min(0), auc.max(0), color=colour, alpha=0.15, lw=0)
    for name, rows in (beside or {}).items():
        rows = [row for row in rows if row.get("test_auc") is not None]
        points = [row["epoch"] + 1 for row in rows], [100 * row["test_auc"] for row in rows]
        lines += axes.plot(*points, color=style.BLACK, linestyle="--", label=name)
    axes.set_xlabel("epochs completed")
    axes.set_ylabel("test AUC in %")
    # By hand, since Matplotlib leaves out names that begin with '_'.
    names = [str(line.get_label()) for line in lines]
    style.literal(axes.legend(lines, names, fontsize=8, framealpha=0.85, ncols=2))
    return drawing


def table(result: Study) -> str:
    """Means over the seeds after the last epoch; `change` is against the factor nearest to 1."""
    last = 100 * result.auc[:, :, -1].mean(1)
    reference = last[np.argmin(np.abs(np.log(result.factors)))]
    rows = [
        {
            "factor": f"{factor:g}",
            "prior": f"{prior:.4f}",
            "test AUC": f"{auc:.2f} %",
            "change": f"{auc - reference:+.2f}",
            "F1": f"{f1:.4f}",
            "accuracy": f"{100 * accuracy:.2f} %",
        }
        for factor, prior, auc, f1, accuracy in zip(
            result.factors,
            result.priors,
            last,
            result.f1.mean(1),
            result.accuracy.mean(1),
            strict=True,
        )
    ]
    return render_table(rows, _COLUMNS)
