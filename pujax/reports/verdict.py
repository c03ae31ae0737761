"""The verdict: whether a classifier can be used, why or why not, and what to do next.

The rules are tried in the order of `of`; the thresholds are named here and in `docs/reports.md`.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from pujax.reports import comparison, evidence
from pujax.reports.evidence import HELD_OUT, NOTHING, TEST, Evidence
from pujax.reports.parts import Number, percent, plural, with_interval
from pujax.reports.run_folder import Run

GOOD, CARE, BAD, UNJUDGED, UNFINISHED = "good", "care", "bad", "unjudged", "unfinished"
WORDS = {
    GOOD: "Can be used",
    CARE: "Can be used with care",
    BAD: "Do not use",
    UNJUDGED: "Cannot be judged",
    UNFINISHED: "Not finished",
}
WEAK_AUC = 0.7
"""Below this a ranking separates poorly (Hosmer and Lemeshow call 0.7 to 0.8 acceptable)."""
FEW = 20
"""Known positives below which a number on held-out or test rows is mostly chance."""
WIDE_PRIOR = 2.0
"""Ratio of the ends of the prior's interval from which on it counts as uncertain."""
FAR_FLAGGED = 2.0
"""Factor between the share called positive and the prior from which on the threshold is off."""


class Verdict(NamedTuple):
    """What a page begins with.

    Attributes:
      level: `GOOD`, `CARE`, `BAD`, `UNJUDGED` or `UNFINISHED`.
      sentences: three: whether it can be used, why or why not, what to do next.
      remarks: everything else that speaks against it, a sentence each.
    """

    level: str
    sentences: tuple[str, str, str]
    remarks: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """The level in two to four words."""
        return WORDS[self.level]


class _Doubt(NamedTuple):
    """Something that speaks against a classifier, and what to do about it."""

    text: str
    advice: str


def of(run: Run, pairings: Sequence[comparison.Pairing] = ()) -> Verdict:
    """The verdict on one run.

    Args:
      run: what its folder holds.
      pairings: differences of other methods from it, on the same data.
    """
    if run.summary is None:
        return _unfinished(run)
    known = evidence.of(run)
    remarks = _warnings(run)
    if run.is_multilabel:
        return _multilabel(run, remarks)
    for rule in (_broken, _one_class, _nothing_known, _chance):
        found = rule(run, known)
        if found is not None:
            return found._replace(remarks=(*found.remarks, *remarks))
    doubts = [doubt for rule in _DOUBTS if (doubt := rule(run, known)) is not None]
    # A better method comes before what is doubtful of this one, but not before a lack of rows.
    place = sum(rule in (_reference, _few) for rule in _DOUBTS if rule(run, known) is not None)
    doubts[place:place] = _better_methods(known, pairings)
    first = _quality(run, known)
    if not doubts:
        return Verdict(GOOD, (f"It can be used: {first}", _in_favour(known), _next(run)), remarks)
    texts = [doubt.text for doubt in doubts]
    return Verdict(
        CARE,
        (
            f"It can be used with care: {first}",
            f"The main doubt: {texts[0]}.",
            f"Next: {doubts[0].advice}.",
        ),
        (*(f"{text[0].upper()}{text[1:]}; {doubt.advice}." for text, doubt in _rest(doubts)),)
        + remarks,
    )


def of_several(
    runs: Sequence[Run], verdicts: Sequence[Verdict], pairings: Sequence[comparison.Pairing]
) -> Verdict:
    """The verdict on a comparison; differences are from the group of the first run."""
    finished = [run for run in runs if run.summary is not None]
    counts = [f"{WORDS[level].lower()}: {n}" for level in WORDS if (n := _count(verdicts, level))]
    first = f"Of {plural(len(runs), 'run')}, by the verdict on each: {', '.join(counts)}."
    if len(finished) < len(runs):
        missing = len(runs) - len(finished)
        return Verdict(
            UNFINISHED,
            (
                first,
                f"{plural(missing, 'run')} did not finish, so the comparison is not complete.",
                "Next: finish them by the same commands, and make this page again.",
            ),
        )
    reference = comparison.groups(runs)[0].name
    usable = [p for p in pairings if not p.reason]
    level = max((v.level for v in verdicts), key=[GOOD, CARE, UNJUDGED, BAD].index)
    if not pairings:
        second = "They are seeds of one configuration: their spread shows what chance does."
        return Verdict(level, (first, second, "Next: read the verdict on each run below."))
    if not usable:
        second = "None can be paired: they were trained on other data or other splits."
        advice = "Next: train all on the same data with the same seeds, and compare again."
        return Verdict(UNJUDGED, (first, second, advice))
    source, names = comparison.metrics_of(runs)
    name = ("auc" if "auc" in names else names[0]) if source == TEST else "auc_pu"
    title, sentences = comparison.TITLES[name], []
    best: tuple[comparison.Group, float] | None = None
    for pairing in usable:
        found = pairing.differences.get(name, Number())
        if not found.has_interval:
            continue
        if found.low > 0:
            oracle = any((run.summary or {}).get("oracle") for run in pairing.group.runs)
            sentences.append(f"{pairing.group.name} is better than {reference} by {_gap(found)}")
            if not oracle and (best is None or found.value > best[1]):
                best = (pairing.group.name, found.value)
        elif found.high < 0:
            sentences.append(f"{pairing.group.name} is worse than {reference} by {_gap(found)}")
        else:
            sentences.append(
                f"{pairing.group.name} and {reference} do not differ by more than chance"
            )
    second = (
        f"In {title}, {'; '.join(sentences)}."
        if sentences
        else (f"Differences in {title} have no interval: the runs did not write their scores.")
    )
    advice = f"Next: take {best[0] if best else reference}"
    advice += "." if best else ", or the simplest of those that do not differ from it."
    return Verdict(level, (first, second, advice))


def _gap(found: Number) -> str:
    low, high = sorted((abs(found.low), abs(found.high)))
    return f"{abs(found.value):.4f} [{low:.4f}, {high:.4f}]"


def _count(verdicts: Sequence[Verdict], level: str) -> int:
    return sum(verdict.level == level for verdict in verdicts)


def _rest(doubts: Sequence[_Doubt]) -> list[tuple[str, _Doubt]]:
    return [(doubt.text, doubt) for doubt in doubts[1:]]


def _warnings(run: Run) -> tuple[str, ...]:
    """The run's own warnings as sentences."""
    texts = [str(text) for text in (run.summary or {}).get("warnings", ())]
    return tuple(f"The run warns: {text}." for text in texts)


def _unfinished(run: Run) -> Verdict:
    planned = run.config["method"].get("num_epochs")
    done = f"{plural(len(run.rows), 'epoch')} of {planned or 'an unknown number'}"
    return Verdict(
        UNFINISHED,
        (
            f"This run is not finished: {done} were trained, and nothing was evaluated at its end.",
            "What is shown below is what it has left so far; no number of it is a result.",
            f"Next: the same command with --workdir={run.folder} goes on where it stopped.",
        ),
    )


def _multilabel(run: Run, remarks: tuple[str, ...]) -> Verdict:
    test = (run.summary or {})["test"]
    value = test.get("mean_average_precision")
    shown = "unknown" if value is None else f"{100 * value:.2f} %"
    return Verdict(
        UNJUDGED,
        (
            f"This page cannot judge it: examples have several labels each, with a mean average "
            f"precision of {shown} on the test set.",
            "What is good enough differs by label, and no rule here says so.",
            "Next: look at the average precision of the labels that matter to you, in the "
            "`classes` of summary.json.",
        ),
        remarks,
    )


def _broken(run: Run, known: Evidence) -> Verdict | None:
    """Scores that are not a number."""
    scores = run.scores
    parts = () if scores is None else (scores.train_scores, scores.held_scores, scores.test_scores)
    if all(np.isfinite(part).all() for part in parts):
        return None
    return Verdict(
        BAD,
        (
            "Do not use it: some of its scores are not a number.",
            "Its training has diverged, so that no other number of it means anything.",
            "Next: train again with a lower method.learning_rate.",
        ),
    )


def _one_class(run: Run, known: Evidence) -> Verdict | None:
    """All examples on one side of the threshold, where that is what decides."""
    if not _decides_by_sign(run):
        return None
    share = known.flagged.value
    texts = [str(text) for text in (run.summary or {}).get("warnings", ())]
    said = [text for text in texts if text.startswith(("every test example", "every training"))]
    if share not in (0.0, 1.0) and not said:
        return None
    side = "positive" if share == 1.0 or (said and "positive" in said[0]) else "negative"
    which = f"the {known.others + known.positives:,} evaluated" if share in (0.0, 1.0) else "the"
    advice = "train longer, with a lower method.learning_rate, or another method"
    if known.ranking.has_interval and known.ranking.low > 0.5:
        advice += (
            f"; its ranking may still serve, with an AUC of {with_interval(known.ranking)}, by "
            "run.decide=top:K or share:S, which need no threshold"
        )
    return Verdict(
        BAD,
        (
            f"Do not use it as it is: it calls all of {which} examples {side}.",
            "A classifier that gives everybody the same answer tells nothing, however good its "
            "accuracy looks where one class is rare.",
            f"Next: {advice}.",
        ),
    )


def _decides_by_sign(run: Run) -> bool:
    """Whether the sign of the score is what calls a row positive, and not a share or a budget."""
    return str(run.config["run"].get("decide", "score:0")) == "score:0"


def _nothing_known(run: Run, known: Evidence) -> Verdict | None:
    """Neither a test set nor held-out rows."""
    if known.source != NOTHING and known.ranking.is_known:
        return None
    return Verdict(
        UNJUDGED,
        (
            "It cannot be judged: there is no test set, and nothing was held out.",
            "Numbers on rows that it was trained on would look good whatever it has learned.",
            "Next: train again with data.holdout=0.2, or give rows of known class as "
            "data.test_path.",
        ),
    )


def _chance(run: Run, known: Evidence) -> Verdict | None:
    """A ranking whose interval holds that of chance."""
    found = known.ranking
    low = found.low if found.has_interval else found.value
    if low > 0.5:
        return None
    rows = (
        "positives and negatives" if known.source == TEST else "known positives and unlabeled rows"
    )
    advice = "look for faults of the data with `pujax check`, and for columns that tell more"
    if known.positives < FEW:
        advice = f"collect more known positives; {plural(known.positives, 'positive')} were there"
    return Verdict(
        BAD,
        (
            f"Do not use it: it orders {rows} no better than chance, as far as these rows tell.",
            f"Their AUC is {with_interval(found)}, and a coin has 0.5.",
            f"Next: {advice}.",
        ),
    )


def _reference(run: Run, known: Evidence) -> _Doubt | None:
    summary = run.summary or {}
    if summary.get("oracle"):
        return _Doubt(
            "it was trained on true labels that are hidden in practice (oracle), so it is an upper "
            "bound and not a result",
            "compare your PU method with it, and judge that one",
        )
    if (summary.get("selection") or {}).get("is_oracle"):
        return _Doubt(
            "its epoch was chosen by true labels (oracle), so its numbers are higher than a rule "
            "without them would give",
            "train with run.selection=last, or a rule that needs no true label",
        )
    return None


def _few(run: Run, known: Evidence) -> _Doubt | None:
    if known.positives >= FEW:
        return None
    return _Doubt(
        f"its numbers rest on {plural(known.positives, 'positive')} only",
        "collect more known positives before it is relied upon",
    )


def _weak(run: Run, known: Evidence) -> _Doubt | None:
    found = known.auc if known.auc.is_known else known.ranking
    if found.value >= WEAK_AUC:
        return None
    return _Doubt(
        f"it separates poorly, with an AUC of {with_interval(found)} (1 is perfect, 0.5 chance)",
        "use it at most to decide which rows are looked at first",
    )


def _uncertain_prior(run: Run, known: Evidence) -> _Doubt | None:
    """Without truth all but the ranking rests on the share of positives."""
    summary = run.summary or {}
    if known.source != HELD_OUT:
        return None
    advice = (
        "use its ranking (run.decide=top:K), and look through a random sample of the unlabeled "
        "rows to learn the share of positives (data.prior)"
    )
    used = known.expected
    if not used.is_known:
        return _Doubt(
            "the share of positives among the unlabeled rows is unknown, and so are its errors",
            advice,
        )
    choice = summary.get("prior_choice")
    if choice and not choice.get("agree", True):
        return _Doubt(
            "estimators of the share of positives among the unlabeled rows disagree beyond their "
            "intervals, and precision and probabilities rest on it",
            advice,
        )
    at_most = (summary.get("held_out_prior") or {}).get("at_most")
    if at_most is not None and used.value > at_most:
        return _Doubt(
            f"{percent(used.value)} of the unlabeled rows are taken for positive, and the held-out rows leave room "
            f"for {percent(at_most)}, so that precision and probabilities are too high",
            advice,
        )
    if used.has_interval and used.high > WIDE_PRIOR * used.low:
        return _Doubt(
            f"the share of positives among the unlabeled rows is known only roughly "
            f"({percent(used.low)} to {percent(used.high)}), and precision and probabilities rest on it",
            advice,
        )
    return None


def _off_threshold(run: Run, known: Evidence) -> _Doubt | None:
    flagged, expected = known.flagged.value, known.expected.value
    if not (math.isfinite(flagged) and math.isfinite(expected)) or not expected:
        return None
    if not _decides_by_sign(run):
        return None
    ratio = flagged / expected
    if 1 / FAR_FLAGGED <= ratio <= FAR_FLAGGED:
        return None
    too = "many" if ratio > 1 else "few"
    return _Doubt(
        f"it calls {percent(flagged)} positive where {percent(expected)} are, so too {too} by its "
        "own threshold",
        "decide by run.decide=probability:0.5, share:S or top:K instead of by the score's sign",
    )


def _one_class_epochs(run: Run, known: Evidence) -> _Doubt | None:
    """A run that ends in a stretch of epochs with one class, whatever epoch it reports."""
    periods = (run.summary or {}).get("one_class") or ()
    if not any(isinstance(period, dict) and period.get("lasts") for period in periods):
        return None
    return _Doubt(
        "in its last epochs every evaluated example was on one side, so that it may fail again",
        "train again with a lower method.learning_rate or another seed",
    )


_DOUBTS: tuple[Callable[[Run, Evidence], _Doubt | None], ...] = (
    _reference,
    _few,
    _weak,
    _one_class_epochs,
    _uncertain_prior,
    _off_threshold,
)


def _better_methods(known: Evidence, pairings: Sequence[comparison.Pairing]) -> list[_Doubt]:
    found = comparison.better(pairings, known)
    if found is None:
        return []
    group, difference, title = found
    return [
        _Doubt(
            f"{group.name} is better on the same rows by {_gap(difference)} in {title}",
            f"take {group.name} instead",
        )
    ]


def _quality(run: Run, known: Evidence) -> str:
    """How good it is, after a colon."""
    if known.source == TEST:
        accuracy = with_interval(known.numbers.get("accuracy", Number()), as_percent=True)
        total = known.positives + known.others
        return (
            f"it is right for {accuracy} of {total:,} test examples of known class, with an AUC "
            f"of {with_interval(known.auc)} (0.5 is chance)."
        )
    recall = with_interval(known.numbers.get("recall", Number()), as_percent=True)
    return (
        f"it finds {recall} of the known positives that training did not see, and ranks them above "
        f"unlabeled rows with an AUC of {with_interval(known.ranking)} (0.5 is chance)."
    )


def _in_favour(known: Evidence) -> str:
    """Why nothing speaks against it."""
    flagged, expected = known.flagged.value, known.expected.value
    if not math.isfinite(flagged) or not math.isfinite(expected):
        return "No rule of this page speaks against it."
    are = "are" if known.source == TEST else "are estimated to be"
    return (
        f"No rule of this page speaks against it: it calls {percent(flagged)} positive where "
        f"{percent(expected)} {are}."
    )


def _next(run: Run) -> str:
    if run.dataset in ("own_table", "own_folder"):
        return (
            "Next: look at the examples below, then score new data with "
            f"`pujax predict {run.folder} NEW`."
        )
    return "Next: look at the examples below, and repeat the run with other seeds."
