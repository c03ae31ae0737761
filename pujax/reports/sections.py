"""The sections of one run, each a function of the run that gives None where it has nothing."""

import math
from typing import Any

import numpy as np
from matplotlib import ticker

from pujax.plots import embedding_map, figures, style
from pujax.reports import drawing, evidence
from pujax.reports.comparison import TITLES
from pujax.reports.evidence import HELD_OUT, TEST, Evidence
from pujax.reports.parts import (
    UNKNOWN,
    Figure,
    Number,
    Section,
    Table,
    count,
    decimal,
    number,
    percent,
    with_interval,
)
from pujax.reports.run_folder import Run

NOT_WRITTEN = (
    "Unknown: this run did not write the scores of its examples (scores.npz), which runs of this "
    "version of pujax do. Train it again into a new folder to see this."
)
_MULTILABEL = "Not shown: examples of this run have several labels each."
_MEANINGS = {
    "accuracy": "Share of the test examples on the right side of the threshold.",
    "f1": "Harmonic mean of recall and precision on the test set.",
    "auc": "Share of pairs in which the positive has the higher score; 0.5 is chance.",
    "average_precision": "Area under the precision-recall curve; chance is the share of positives.",
    "recall": "Share of the positives that are called positive.",
    "false_positive_rate": "Share of the negatives that are called positive.",
}
_MAP_POINTS = 600
_BINS = 8


def settings(run: Run) -> Section:
    """What was trained on what, and how."""
    summary, config = run.summary or {}, run.config
    data, method = config["data"], config["method"]
    selection = summary.get("selection") or {}
    rule = str(selection.get("rule", config["run"].get("selection", UNKNOWN)))
    epoch = selection.get("epoch")
    oracle = " (oracle: it looks at true labels)" if selection.get("is_oracle") else ""
    facts = [
        ("method", run.method + (" (oracle: true labels)" if summary.get("oracle") else "")),
        ("data", run.dataset + (f", {data['path']}" if data.get("path") else "")),
        ("setting", str(summary.get("setting", data.get("setting", UNKNOWN)))),
        ("seed", str(run.seed)),
        ("network", str((config.get("model") or {}).get("name", UNKNOWN))),
        ("epochs", str(summary.get("num_epochs", method.get("num_epochs", UNKNOWN)))),
        (
            "reported epoch",
            f"{UNKNOWN if epoch is None else epoch + 1}, chosen by {rule}{oracle}",
        ),
        ("called positive by", str(config["run"].get("decide", "score:0"))),
        ("finished", str(summary.get("finished_at", "no"))),
        ("training time", f"{summary['seconds']:.0f} s" if _is_number(summary, "seconds") else ""),
        ("device", str(summary.get("device", UNKNOWN))),
        (
            "versions",
            ", ".join(f"{k} {v}" for k, v in (summary.get("versions") or {}).items()) or UNKNOWN,
        ),
        ("folder", run.folder),
    ]
    shown = Table(
        "The run", ("setting", "value"), tuple((name, value) for name, value in facts if value)
    )
    own = Table(
        "All settings of the method",
        ("setting", "value"),
        tuple((f"method.{k}", str(v)) for k, v in sorted(method.items()) if k != "name"),
    )
    return Section("settings", "Settings", tables=(shown, own))


def _is_number(summary: dict[str, Any], name: str) -> bool:
    return isinstance(summary.get(name), int | float)


def counts(run: Run) -> Section:
    """How many examples of each kind there were."""
    if run.summary is None:
        return Section("counts", "Counts", ("Unknown: the run is not finished.",))
    known: dict[str, Any] = run.summary["counts"]
    if run.is_multilabel:
        rows = tuple((name.replace("_", " "), count(value)) for name, value in known.items())
        return Section("counts", "Counts", tables=(Table("Examples", ("kind", "number"), rows),))
    held, held_labeled = known.get("validation"), known.get("validation_labeled")
    kinds = [
        ("labelled positives (P), trained on", count(known.get("labeled"))),
        ("unlabeled (U), trained on", count(known.get("unlabeled"))),
        ("positives hidden among them", count(known.get("hidden_positives"))),
        ("unlabeled rows of unknown class", count(known.get("unlabeled_without_truth"))),
        ("held out of training", count(held)),
        ("labelled positives among the held-out", count(held_labeled)),
        ("clean examples for the method (support)", count(known.get("support"))),
        ("test examples of known class", count(known.get("test"))),
        ("positives among the test examples", count(known.get("test_positives"))),
    ]
    return Section(
        "counts", "Counts", tables=(Table("Examples", ("kind", "number"), tuple(kinds)),)
    )


def quality(run: Run) -> Section:
    """The numbers: on the test set, and what held-out P and U tell."""
    if run.summary is None:
        return Section("quality", "Quality", ("Unknown: the run is not finished.",))
    tables, texts = [], []
    summary = run.summary
    known, held = evidence.of(run), evidence.held_out(run)
    if run.is_multilabel:
        rows = tuple(
            (name.replace("_", " "), decimal(number(value)))
            for name, value in summary["test"].items()
        )
        return Section("quality", "Quality", tables=(Table("Test set", ("number", "value"), rows),))
    if known.source == TEST:
        tables.append(
            Table(
                "On the test set, whose classes are known, with 90 % intervals",
                ("number", "value", "meaning"),
                tuple(
                    (TITLES[name], with_interval(found), _MEANINGS[name])
                    for name, found in known.numbers.items()
                ),
                "" if run.scores is not None else "A number without an interval: " + NOT_WRITTEN,
            )
        )
        best = summary.get("oracle_best_epoch") or {}
        if best.get("test_accuracy") is not None:
            texts.append(
                f"The best epoch by test accuracy would be {best['epoch'] + 1} with "
                f"{percent(best['test_accuracy'], 2)} (oracle: chosen on test labels, no result)."
            )
    else:
        texts.append("The true class of no test example is known, so there is no accuracy to show.")
    if held.numbers:
        tables.append(
            Table(
                "What held-out P and U tell without a known negative, with 90 % intervals",
                ("number", "value", "of what, and what it assumes"),
                tuple(
                    (
                        TITLES.get(name, name.replace("_", " ")),
                        with_interval(found),
                        held.assumptions[name],
                    )
                    for name, found in held.numbers.items()
                ),
            )
        )
        tables += _by_prior(summary)
    elif known.source != TEST:
        texts.append("Nothing was held out (data.holdout), so nothing is known of its quality.")
    train = summary.get("train") or {}
    if train.get("label_accuracy") is not None:
        tables.append(
            Table(
                "Hidden labels of the training set, whose truth is known here",
                ("number", "value"),
                (
                    (f"accuracy, by {train.get('labels_from', 'predictions')}", _train(train)),
                    (
                        "hidden positives recovered",
                        f"{count(train.get('recovered_positives'))} of "
                        f"{count(train.get('hidden_positives'))}",
                    ),
                ),
            )
        )
    return Section("quality", "Quality", tuple(texts), tables=tuple(tables))


def _train(train: dict[str, Any]) -> str:
    return percent(number(train.get("label_accuracy")), 2)


def _by_prior(summary: dict[str, Any]) -> list[Table]:
    """What depends on the share of positives in U, at each estimate of it."""
    rows = summary.get("held_out_by_prior") or []
    possible = ("precision", "precision_top_100", "auc", "accuracy", "f1")
    names = tuple(name for name in possible if any(row.get(name) is not None for row in rows))
    if not rows:
        return []
    lines = tuple(
        (
            f"{row.get('prior from', UNKNOWN)}{' (used)' if row.get('used') else ''}",
            percent(number(row.get("prior in U"))),
            *(decimal(number(row.get(name))) for name in names),
            count(row.get("called positive")),
        )
        for row in rows
    )
    return [
        Table(
            "What depends on the share of positives in U, at each estimate of it",
            ("share from", "share", *(TITLES[name] for name in names), "called positive"),
            lines,
            "'called positive' counts rows of U with a probability above 0.5.",
        )
    ]


def curves(run: Run, prefix: str) -> Section:
    """Losses and metrics over the epochs."""
    names = dict.fromkeys(name for row in run.rows for name in row)
    losses = [name for name in names if "loss" in name.split("_")]
    tested = [name for name in names if name.startswith("test_") and name not in losses]
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
        where = "test set" if tested else "held-out rows"
        found.append(
            Figure(
                drawing.svg(figure, f"{prefix}-metrics"),
                f"Metrics on the {where} over the epochs",
                f"Metrics on the {where}. The broad pale curve is the share called positive, which "
                "is no measure of quality and should settle near the share of positives.",
            )
        )
    return Section("curves", "Training", figures=tuple(found))


def ranking(run: Run, prefix: str) -> Section:
    """ROC and precision-recall where the truth is known, else P against U."""
    title = "Ranking"
    if run.is_multilabel:
        return Section("ranking", title, (_MULTILABEL,))
    scores = run.scores
    if scores is None:
        return Section("ranking", title, (_absent(run),))
    known = evidence.of(run)
    found, texts = [], []
    if len(scores.test_scores) and _two_classes(scores.test_labels, scores.test_scores):
        found += _known_curves(scores.test_scores, scores.test_labels, known, prefix)
    else:
        texts.append(
            "Without test examples of both classes there is no ROC and no precision-recall curve."
        )
    if len(scores.held_scores) and _two_classes(scores.held_labeled, scores.held_scores):
        found.append(_unlabeled_curve(run, prefix))
    elif not found:
        texts.append("Nothing was held out either, so there is no curve of P against U.")
    return Section("ranking", title, tuple(texts), figures=tuple(found))


def _two_classes(labels: np.ndarray, scores: np.ndarray) -> bool:
    return len(np.unique(labels)) == 2 and bool(np.isfinite(scores).all())


def _absent(run: Run) -> str:
    return NOT_WRITTEN if run.summary is not None else "Unknown: the run is not finished."


def _shares(axes: Any, x: str, y: str) -> None:
    axes.set(xlabel=x, ylabel=y, xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.PercentFormatter(1.0, symbol=""))


def _known_curves(
    scores: np.ndarray, labels: np.ndarray, known: Evidence, prefix: str
) -> list[Figure]:
    hits, others = drawing.step_curve(scores, labels)
    figure, axes = drawing.panel()
    _shares(axes, "negatives called positive (%)", "positives found (%)")
    axes.plot(*drawing.thinned(others, hits), color=style.BLUE, linewidth=2, label="this run")
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="chance")
    at = float(np.mean(scores[labels != 1] > 0)), float(np.mean(scores[labels == 1] > 0))
    axes.plot(*at, "o", color=style.VERMILION, label="at the threshold 0")
    style.legend_or_note(axes, "")
    area = with_interval(known.auc)
    roc = Figure(
        drawing.svg(figure, f"{prefix}-roc"),
        f"ROC curve on the test set, AUC {area}",
        f"ROC curve on the test set; area {area}. The nearer to the upper left corner the better.",
    )
    share = float(np.mean(labels == 1))
    flagged = hits[1:] * share + others[1:] * (1 - share)
    precision = hits[1:] * share / flagged
    figure, axes = drawing.panel()
    _shares(axes, "positives found, recall (%)", "of those called positive, right (%)")
    axes.plot(
        *drawing.thinned(hits[1:], precision),
        color=style.BLUE,
        linewidth=2,
        label="this run",
        drawstyle="steps-pre",
    )
    axes.axhline(share, color=style.GREY, linestyle="--", linewidth=1, label="chance")
    if at[0] + at[1] > 0:
        right = at[1] * share / (at[1] * share + at[0] * (1 - share))
        axes.plot(at[1], right, "o", color=style.VERMILION, label="at the threshold 0")
    style.legend_or_note(axes, "")
    area = with_interval(known.numbers["average_precision"])
    pr = Figure(
        drawing.svg(figure, f"{prefix}-pr"),
        f"Precision-recall curve on the test set, average precision {area}",
        f"Precision and recall on the test set; average precision {area}, chance {percent(share)}.",
    )
    return [roc, pr]


def _unlabeled_curve(run: Run, prefix: str) -> Figure:
    scores = run.scores
    assert scores is not None  # `ranking` has looked
    held = evidence.held_out(run)
    hits, others = drawing.step_curve(scores.held_scores, scores.held_labeled)
    figure, axes = drawing.panel()
    _shares(axes, "rows of U called positive (%)", "known positives found (%)")
    axes.plot(*drawing.thinned(others, hits), color=style.BLUE, linewidth=2, label="this run")
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="chance")
    share = held.expected.value
    if math.isfinite(share):
        line: dict[str, Any] = {"color": style.GREEN, "linestyle": "-.", "linewidth": 1.2}
        axes.plot([0, share, 1], [0, 1, 1], label="no error, if the prior is right", **line)
    at = [float(np.mean(scores.held_scores[x] > 0)) for x in (~scores.held_labeled,)]
    at += [float(np.mean(scores.held_scores[scores.held_labeled] > 0))]
    axes.plot(*at, "o", color=style.VERMILION, label="at the threshold 0")
    style.legend_or_note(axes, "")
    area = with_interval(held.numbers.get("auc_pu", Number()))
    return Figure(
        drawing.svg(figure, f"{prefix}-pu"),
        f"Held-out known positives found over the share of U called positive, area {area}",
        f"Held-out P against U; area {area}. Hidden positives of U count against it here, so that "
        "even a classifier without error stays below the corner.",
    )


def calibration(run: Run, prefix: str) -> Section:
    """Whether probabilities are what they say."""
    title = "Calibration"
    if run.is_multilabel:
        return Section("calibration", title, (_MULTILABEL,))
    scores = run.scores
    if scores is None:
        return Section("calibration", title, (_absent(run),))
    found, texts = [], []
    if _two_classes(scores.test_labels, scores.test_scores):
        learned = len(scores.test_probabilities) > 0
        probabilities = scores.test_probabilities
        if not learned:
            probabilities = 1 / (1 + np.exp(-np.clip(scores.test_scores.astype(float), -60, 60)))
            texts.append(
                "This run fitted no calibration, so that the score is read as log-odds here; it "
                "ranks, and need not be a probability."
            )
        found.append(_reliability(probabilities, scores.test_labels == 1, prefix))
    held = scores.held_probabilities
    prior = evidence.prior_of_unlabeled(run.summary or {}).value
    if len(held) and math.isfinite(prior):
        found.append(_unlabeled_reliability(run, prior, prefix))
        unlabeled = held[~scores.held_labeled]
        texts.append(
            f"The mean probability of the held-out rows of U is {percent(float(unlabeled.mean()))}"
            f", and {percent(prior)} of U are taken for positive."
        )
    doubt = (run.summary or {}).get("mean_probability")
    if doubt:
        ends = [percent(number(doubt.get(x))) for x in ("mean", "low", "high")]
        texts.append(
            f"Over all shares of positives that the estimates leave open, the mean probability of "
            f"U may be anything from {ends[1]} to {ends[2]}; {ends[0]} is reported."
        )
    if not found:
        texts.append(
            "Unknown: there are no test examples of both classes, and no calibration was fitted "
            "on held-out rows."
        )
    return Section("calibration", title, tuple(texts), figures=tuple(found))


def _groups(probabilities: np.ndarray) -> list[np.ndarray]:
    """Rows in bins of equal size by probability; equal probabilities share a bin."""
    edges = np.unique(np.quantile(probabilities, np.linspace(0, 1, _BINS + 1)[1:-1]))
    bins = np.searchsorted(edges, probabilities, side="right")
    return [np.flatnonzero(bins == i) for i in np.unique(bins)]


def _reliability(probabilities: np.ndarray, is_positive: np.ndarray, prefix: str) -> Figure:
    error, points = 0.0, []
    for rows in _groups(probabilities):
        seen = evidence.jeffreys(int(is_positive[rows].sum()), len(rows))
        said = float(probabilities[rows].mean())
        points.append((said, seen))
        error += abs(said - seen.value) * len(rows) / len(probabilities)
    figure, axes = drawing.panel()
    _shares(axes, "probability that is stated (%)", "positive in truth (%)")
    _points(axes, points, "test examples, in bins of equal size")
    return Figure(
        drawing.svg(figure, f"{prefix}-reliability"),
        f"Stated probabilities against shares of positives, expected calibration error {error:.3f}",
        f"Test examples in bins of equal size, with 90 % intervals; points on the line are right. "
        f"Expected calibration error {error:.3f}.",
    )


def _points(axes: Any, points: list[tuple[float, Number]], label: str) -> None:
    axes.plot([0, 1], [0, 1], color=style.GREY, linestyle="--", linewidth=1, label="exact")
    x = [said for said, _ in points]
    values = np.array([seen for _, seen in points]).reshape(-1, 3)
    below = np.nan_to_num(values[:, 0] - values[:, 1]).clip(0)
    above = np.nan_to_num(values[:, 2] - values[:, 0]).clip(0)
    axes.errorbar(x, values[:, 0], [below, above], fmt="o", color=style.BLUE, ms=5, label=label)
    style.legend_or_note(axes, "")


def _unlabeled_reliability(run: Run, prior: float, prefix: str) -> Figure:
    """Of held-out U: a bin holds `prior * (its share of P) / (its share of U)` positives (SCAR)."""
    scores = run.scores
    assert scores is not None  # `calibration` has looked
    is_p = scores.held_labeled
    unlabeled, positive = scores.held_probabilities[~is_p], scores.held_probabilities[is_p]
    edges = np.unique(np.quantile(unlabeled, [0.5, 0.75, 0.9]))
    points = []
    bins_u, bins_p = (np.searchsorted(edges, x, side="right") for x in (unlabeled, positive))
    for one in np.unique(bins_u):
        share_u = float(np.mean(bins_u == one))
        hits = evidence.jeffreys(int((bins_p == one).sum()), len(positive))
        seen = Number(*(min(prior * end / share_u, 1.0) for end in hits))
        points.append((float(unlabeled[bins_u == one].mean()), seen))
    figure, axes = drawing.panel()
    _shares(axes, "probability that is stated (%)", "positive, by the held-out P (%)")
    _points(axes, points, "held-out U, by probability")
    return Figure(
        drawing.svg(figure, f"{prefix}-pu-reliability"),
        "Stated probabilities of held-out rows of U against the share that held-out P implies",
        f"Held-out U in four bins (half, a quarter, 15 % and 10 % of the rows, by probability) "
        f"with 90 % intervals of the chance in P. It rests on the prior of {percent(prior)} and on "
        "SCAR, and the calibration was fitted on the same rows, so it shows a wrong shape, not a "
        "wrong prior.",
    )


def flagged(run: Run, prefix: str) -> Section:
    """The share called positive beside the share that is."""
    title = "Share called positive"
    if run.is_multilabel:
        return Section("flagged", title, (_MULTILABEL,))
    if run.summary is None:
        return Section("flagged", title, (_absent(run),))
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
    if hidden is not None and unlabeled and not counts_of.get("unlabeled_without_truth"):
        lines.append(("U, in truth", Number(hidden / unlabeled), style.GREEN))
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
        axes.set_xlim(left=0)
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
    texts = (
        f"The prior of the population is {percent(number(summary.get('prior')))} ({source}); in U, "
        f"{percent(held.expected.value)}.",
    )
    table = Table("Shares, with 90 % intervals", ("share of", "value"), tuple(rows))
    return Section("flagged", title, texts, figures=found, tables=(table,))


def histogram(run: Run, prefix: str) -> Section:
    """Scores of P and U."""
    title = "Scores of P and U"
    if run.is_multilabel:
        return Section("scores", title, ("See figures/scores.png in the run's folder.",))
    scores = run.scores
    if scores is None:
        return Section("scores", title, (_absent(run),))
    found = []
    parts = [("train", "trained on", scores.train_scores, scores.train_truth, scores.train_labeled)]
    if len(scores.held_scores):
        part = ("held", "held out", scores.held_scores, scores.held_truth, scores.held_labeled)
        parts.insert(0, part)
    for name, what, values, truth, labeled in parts:
        figure = figures.score_histogram_figure(values, truth, labeled, size=drawing.SIZE)
        figure.axes[0].set_ylabel("density (per unit of score)")
        finite = values[np.isfinite(values)]
        ends = f"{finite.min():.3g} to {finite.max():.3g}" if len(finite) else UNKNOWN
        found.append(
            Figure(
                drawing.svg(figure, f"{prefix}-scores-{name}"),
                f"Score histograms of P and U, {what}",
                f"Scores of the rows {what}, from {ends}; above 0 they are called positive by the "
                "score's sign. P and the positives of U should look alike.",
            )
        )
    return Section("scores", title, figures=tuple(found))


def embedding(run: Run, prefix: str) -> Section:
    """A map of the representation."""
    title = "Map of the representation"
    if run.is_multilabel:
        return Section("embedding", title, (_MULTILABEL,))
    scores = run.scores
    if scores is None:
        return Section("embedding", title, (_absent(run),))
    if not len(scores.map_rows):
        text = (
            "Not shown: the method has no representation to draw, or the run drew no figures "
            "(run.figures=False)."
        )
        return Section("embedding", title, (text,))
    method = "tsne" if len(scores.map_tsne) else "pca"
    flat = scores.map_tsne if method == "tsne" else scores.map_pca
    truth, labeled = scores.train_truth[scores.map_rows], scores.train_labeled[scores.map_rows]
    rows = embedding_map.sample(np.isfinite(flat).all(axis=1), labeled, 0, _MAP_POINTS)
    figure = figures.map_figure(
        flat[rows], truth[rows], labeled[rows], method=method, size=(4.2, 4.6)
    )
    name = {"tsne": "t-SNE", "pca": "the first two principal components"}[method]
    texts: tuple[str, ...] = ()
    if scores.map_remark:
        remark = scores.map_remark
        texts = (
            f"{remark[0].upper()}{remark[1:]}. Only principal components are shown, since t-SNE "
            "would draw structure that is not there.",
        )
    caption = f"{len(rows):,} training examples by {name}; circles are labelled positives."
    if method == "tsne":
        caption += " Distances between groups and their sizes mean nothing in t-SNE."
    drawn = Figure(
        drawing.svg(figure, f"{prefix}-map"), f"Map of the representation, {name}", caption
    )
    return Section("embedding", title, texts, figures=(drawn,))
