"""Losses and metrics over the epochs."""

from matplotlib import ticker

from pujax.plots import style
from pujax.reports import drawing
from pujax.reports.parts import Figure, Section
from pujax.reports.run_folder import Run


def curves(run: Run, prefix: str) -> Section:
    """Losses and metrics over the epochs."""
    names = dict.fromkeys(name for row in run.rows for name in row)
    losses = [name for name in names if "loss" in name.split("_")]
    tested = style.metric_columns(run.rows)
    if not run.rows:
        return Section("curves", "Training", ("Unknown: no epoch has been written.",))
    found = []
    figure, axes = drawing.panel()
    axes.set_ylabel("loss (mean over the epoch)")
    style.curves(axes, run.rows, losses, bold=["loss"])
    found.append(
        Figure(
            drawing.svg(figure, f"{prefix}-loss"),
            f"Training loss over {len(run.rows)} epochs",
            "Training loss. A loss that still falls at the end calls for more epochs.",
        )
    )
    held = [x for x in ("val_proxy_auc", "val_predicted_positive") if x in names]
    shares = [*tested, *([] if tested else held), "label_accuracy"]
    if any(row.get(name) is not None for row in run.rows for name in shares):
        figure, axes = drawing.panel()
        axes.set_ylabel("share (%)")
        axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0, symbol=""))
        style.curves(axes, run.rows, shares, bold=["label_accuracy"])
        parts = ["test set"] * bool(tested) + ["held-out rows"] * bool(held and not tested)
        parts += ["learned labels of U"] * ("label_accuracy" in names)
        where = " and the ".join(parts)
        note = f"Metrics on the {where}."
        if any("predicted_positive" in name for name in shares):
            note += (
                " The broad pale curve is the share called positive, which is no measure of "
                "quality and should settle near the share of positives."
            )
        found.append(
            Figure(
                drawing.svg(figure, f"{prefix}-metrics"),
                f"Metrics on the {where} over the epochs",
                note,
            )
        )
    return Section("curves", "Training", figures=tuple(found))
