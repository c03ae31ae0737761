"""Sections of numbers: settings, counts, quality."""

from typing import Any

from pujax.reports import evidence, missing
from pujax.reports.comparison import TITLES
from pujax.reports.evidence import TEST
from pujax.reports.parts import (
    UNKNOWN,
    Section,
    Table,
    count,
    decimal,
    number,
    percent,
    with_interval,
)
from pujax.reports.run_folder import Run
from pujax.training.evaluation import model_selection

_MEANINGS = {
    **{name: metric.meaning for name, metric in model_selection.BINARY.items()},
    "recall": "Share of the positives that are called positive.",
    "false_positive_rate": "Share of the negatives that are called positive.",
}


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
        *(
            [("labelled positives that U repeats", count(known["unlabeled_copies"]))]
            if known.get("unlabeled_copies")
            else []
        ),
        ("positives hidden among the others", count(known.get("hidden_positives"))),
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
    note = "" if run.scores is not None else f"A number without an interval: {missing.NOT_WRITTEN}"
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
                note,
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
                        f"hidden positives recovered, by {train.get('labels_from', 'predictions')}",
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
