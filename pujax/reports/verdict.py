"""The verdict: whether a classifier can be used, why or why not, and what to do next.

The rules are tried in the order of `of`; the thresholds are named here and in `docs/reports.md`.
"""

import math
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pujax.console import plural
from pujax.reports import comparison, doubts, evidence
from pujax.reports.evidence import NOTHING, TEST, Evidence
from pujax.reports.parts import Number, percent, with_interval
from pujax.reports.run_folder import Run
from pujax.training.evaluation import one_class
from pujax.training.evaluation.model_selection import FEW_POSITIVES

GOOD, CARE, BAD, UNJUDGED, UNFINISHED = "good", "care", "bad", "unjudged", "unfinished"
WORDS = {
    GOOD: "Can be used",
    CARE: "Can be used with care",
    BAD: "Do not use",
    UNJUDGED: "Cannot be judged",
    UNFINISHED: "Not finished",
}


class Verdict(NamedTuple):
    """What a page begins with.

    Attributes:
      level: 'good', 'care', 'bad', 'unjudged' or 'unfinished'.
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


def of(
    run: Run, pairings: Sequence[comparison.Pairing] = (), *, with_examples: bool = True
) -> Verdict:
    """The verdict on one run.

    Args:
      run: what its folder holds.
      pairings: differences of other methods from it, on the same data.
      with_examples: whether the page has examples to look at.
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
    found_doubts = doubts.of(run, known, pairings)
    first = _quality(run, known)
    if not found_doubts:
        then = _next(run, with_examples)
        return Verdict(GOOD, (f"It can be used: {first}", _in_favour(run, known), then), remarks)
    return Verdict(
        CARE,
        (
            f"It can be used with care: {first}",
            f"The main doubt: {found_doubts[0].text}.",
            f"Next: {found_doubts[0].advice}.",
        ),
        (
            *(
                f"{doubt.text[0].upper()}{doubt.text[1:]}; {doubt.advice}."
                for doubt in found_doubts[1:]
            ),
        )
        + remarks,
    )


def to_take(pairings: Sequence[comparison.Pairing]) -> list[comparison.Pairing]:
    """Those whose group could take the place of the reference, as none of its runs is of no use."""
    return [x for x in pairings if all(of(run).level != BAD for run in x.group.runs)]


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
    usable = [p for p in pairings if not p.reason]
    order = [GOOD, CARE, UNJUDGED, BAD].index

    def level_of(group: comparison.Group) -> str:
        """The worst of a group's runs."""
        folders = {run.folder for run in group.runs}
        levels = [v.level for run, v in zip(runs, verdicts, strict=True) if run.folder in folders]
        return max(levels, key=order)

    reference_group = comparison.groups(runs)[0]
    reference = reference_group.name
    level = level_of(reference_group)
    if not pairings:
        second = "They are seeds of one configuration: their spread shows what chance does."
        if len(comparison.distinct(runs)) == 1:
            second = "They are one seed of one configuration, so they do not show what chance does."
        return Verdict(level, (first, second, "Next: read the verdict on each run on the page."))
    if not usable:
        reasons = dict.fromkeys(p.reason.removeprefix(comparison.NOT_PAIRED) for p in pairings)
        second = f"None can be paired: {'; '.join(reasons)}."
        advice = "Next: train all on the same data with the same seeds, and compare again."
        return Verdict(UNJUDGED, (first, second, advice))
    source, names = comparison.metrics_of(runs)
    name = next((x for x in ("auc", "mean_average_precision", "auc_pu") if x in names), "auc_pu")
    title, sentences = comparison.TITLES[name], []
    best: tuple[comparison.Group, float] | None = None
    for pairing in usable:
        found = pairing.differences.get(name, Number())
        if not found.has_interval:
            continue
        if found.low > 0:
            worse = comparison.worse_in(pairing, source)
            but = f", but worse by {doubts.gap(worse[1])} in {worse[0]}" if worse else ""
            sentences.append(
                f"{pairing.group.name} is better than {reference} by {doubts.gap(found)}{but}"
            )
            is_advice = comparison.may_be_taken(pairing, source, name)
            is_advice = is_advice and level_of(pairing.group) != BAD
            if is_advice and (best is None or found.value > best[1]):
                best = (pairing.group, found.value)
        elif found.high < 0:
            sentences.append(
                f"{pairing.group.name} is worse than {reference} by {doubts.gap(found)}"
            )
        else:
            sentences.append(
                f"{pairing.group.name} and {reference} do not differ by more than chance"
            )
    if not sentences:
        second = (
            f"Differences in {title} have no interval: one split each, without common scores, or "
            "splits that all differ by the same."
        )
        fixed = any(run.config["data"].get("split_seed", -1) >= 0 for run in runs)
        anew = " that split the data anew (data.split_seed=-1)" * fixed
        advice = f"Next: train each with several seeds{anew}, and compare."
        return Verdict(level, (first, second, advice))
    second = f"In {title}, {'; '.join(sentences)}."
    advice = f"Next: take {reference}, or the simplest of those that do not differ from it."
    if comparison.sees_truth(reference_group):  # an upper bound, and nothing to take
        level = UNJUDGED
        advice = "Next: name a run that sees no true labels first, and compare the others with it."
    elif best is not None:
        level, advice = level_of(best[0]), f"Next: take {best[0].name}."
    elif level == BAD:
        advice = f"Next: do not take {reference}; the verdict on each run is on the page."
    return Verdict(level, (first, second, advice))


def _count(verdicts: Sequence[Verdict], level: str) -> int:
    return sum(verdict.level == level for verdict in verdicts)


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
            "What the page shows is what it has left so far; no number of it is a result.",
            "Next: the command that began it, with the same --workdir, goes on where it stopped.",
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
    if not doubts.decides_by_sign(run):
        return None
    share = known.flagged.value
    if known.source != TEST and known.numbers.get("recall", Number()).value != share:
        share = math.nan  # of U alone: where positives are rare, it may hold none
    sides = (run.summary or {}).get("predicts_one_class") or {}
    side, which = sides.get("test") or sides.get("training"), "the"
    if share in (0.0, 1.0):
        side = "positive" if share == 1.0 else "negative"
        which = f"the {known.others + known.positives:,} evaluated"
    if side is None:
        return None
    word = one_class.rate_word(run.config.get("method", {}))
    advice = f"train longer, with a {word} method.learning_rate, or another method"
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


def _nothing_known(run: Run, known: Evidence) -> Verdict | None:
    """Neither a test set nor held-out rows."""
    if known.source != NOTHING and known.ranking.is_known:
        return None
    if known.source != NOTHING:
        kinds = "positives and negatives" if known.source == TEST else "known positives and U"
        return Verdict(
            UNJUDGED,
            (
                f"It cannot be judged: its order is unknown, which takes {kinds}.",
                f"There were {plural(known.positives, 'positive')} and "
                f"{plural(known.others, 'other')} to evaluate it on.",
                "Next: train again with data.holdout=0.2, or give rows of both classes as "
                "data.test_path.",
            ),
        )
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
    better, coin = (
        "no better than chance",
        f"Their AUC is {with_interval(found)}, and a coin has 0.5.",
    )
    if found.has_interval and found.high < 0.5:
        better = "worse than chance"
        coin += " Such an order is often a label or a score that is turned round."
    advice = "look for faults of the data with `pujax check`, and for columns that tell more"
    if known.positives < FEW_POSITIVES:
        advice = f"collect more known positives; {plural(known.positives, 'positive')} were there"
    return Verdict(
        BAD,
        (
            f"Do not use it: it orders {rows} {better}, as far as these rows tell.",
            coin,
            f"Next: {advice}.",
        ),
    )


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


def _in_favour(run: Run, known: Evidence) -> str:
    """Why nothing speaks against it."""
    if not doubts.decides_by_sign(run):
        return (
            "No rule of this page speaks against it; what depends on a decision is said of a score "
            f"above 0 here, and the run decides by {run.config['run']['decide']}."
        )
    flagged, expected = known.flagged.value, known.expected.value
    if not math.isfinite(flagged) or not math.isfinite(expected):
        return "No rule of this page speaks against it."
    return (
        f"No rule of this page speaks against it: it calls {percent(flagged)} positive where "
        f"{percent(expected)} {known.are}."
    )


def _next(run: Run, with_examples: bool) -> str:
    """What to do with a good classifier; the sentence stands in a terminal, too."""
    look = "look at the examples on the page, " * with_examples
    if run.dataset in ("own_table", "own_folder"):
        then = "then " * with_examples
        return (
            f"Next: {look}{then}score new data with `pujax predict {shlex.quote(run.folder)} NEW`."
        )
    return f"Next: {look}{'and ' * with_examples}repeat the run with other seeds."
