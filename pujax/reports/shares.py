"""The share called positive beside the share that is positive."""

from matplotlib import ticker

from pujax.plots import style
from pujax.reports import doubts, drawing, evidence, missing
from pujax.reports.evidence import HELD_OUT, TEST
from pujax.reports.parts import (
    UNKNOWN,
    Figure,
    Number,
    Section,
    Table,
    number,
    percent,
    with_interval,
)
from pujax.reports.run_folder import Run


def flagged(run: Run, prefix: str) -> Section:
    """The share called positive beside the share that is."""
    title = "Share called positive"
    if run.is_multilabel:
        return Section("flagged", title, (missing.SEVERAL_LABELS,))
    if run.summary is None:
        return Section("flagged", title, (missing.reason(run),))
    summary, lines = run.summary, []
    known, held = evidence.of(run), evidence.held_out(run)
    if known.source == TEST:
        lines.append(("test set, called positive", known.flagged, style.VERMILION))
        lines.append(("test set, in truth", known.expected, style.BLUE))
    if held.source == HELD_OUT:
        lines.append(("held-out U, called positive", held.flagged, style.VERMILION))
    lines.append(("U, prior that is used", held.expected, style.BLUE))
    choice = summary.get("prior_choice") or {}
    for name, ends in sorted((choice.get("estimates") or {}).items()):
        lines.append((f"U, by {name}", Number(*map(number, ends)), style.GREY))
    counts_of = summary["counts"]
    hidden, unlabeled = counts_of.get("hidden_positives"), counts_of.get("unlabeled")
    copies = counts_of.get("unlabeled_copies")
    if copies is None and summary.get("setting") == "one_sample":
        copies = 0  # older runs did not count them
    is_known = hidden is not None and copies is not None
    if is_known and unlabeled and not counts_of.get("unlabeled_without_truth"):
        lines.append(("U, in truth", Number((hidden + copies) / unlabeled), style.GREEN))
    at_most = (summary.get("held_out_prior") or {}).get("at_most")
    rows = [(name, with_interval(one, as_percent=True)) for name, one, _ in lines]
    if at_most is not None:
        rows.append(("U, at most by the held-out rows", percent(at_most)))
    drawn = [line for line in lines if line[1].is_known]
    found: tuple[Figure, ...] = ()
    if drawn:
        figure, axes = drawing.panel()
        for i, (_, one, color) in enumerate(reversed(drawn)):
            if one.has_interval:
                axes.plot([one.low, one.high], [i, i], color=color, linewidth=2)
            axes.plot(one.value, i, "o", color=color, ms=6)
        axes.set_yticks(range(len(drawn)), [name for name, *_ in reversed(drawn)], fontsize=9)
        axes.set_ylim(-0.7, len(drawn) - 0.3)
        most = max(max(one.value, one.high if one.has_interval else 0.0) for _, one, _ in drawn)
        axes.set_xlim(-0.03 * most, 1.05 * most or 1.0)
        axes.xaxis.set_major_formatter(ticker.PercentFormatter(1.0, symbol=""))
        axes.set_xlabel("share (%)")
        found = (
            Figure(
                drawing.svg(figure, f"{prefix}-flagged"),
                "Shares called positive beside shares that are positive",
                "A threshold is plausible where the share called positive lies near the share that "
                "is. Lines are 90 % intervals.",
            ),
        )
    source = str(summary.get("prior_source", UNKNOWN))
    texts: tuple[str, ...] = (
        f"The prior of the population is {percent(number(summary.get('prior')))} ({source}); in U, "
        f"{percent(held.expected.value)}.",
    )
    if not doubts.decides_by_sign(run):
        texts += (
            "Called positive is here what has a score above 0; the run decides by "
            f"{run.config['run']['decide']}.",
        )
    table = Table("Shares, with 90 % intervals", ("share of", "value"), tuple(rows))
    return Section("flagged", title, texts, figures=found, tables=(table,))
