"""What speaks against a classifier that is better than chance, and what to do about it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from scipy import stats

from pujax.console import plural
from pujax.reports import comparison
from pujax.reports.evidence import HELD_OUT, TEST, Evidence
from pujax.reports.parts import Number, number, percent, with_interval
from pujax.reports.run_folder import Run
from pujax.training import own_results
from pujax.training.evaluation import one_class
from pujax.training.evaluation.model_selection import FEW_POSITIVES

WEAK_AUC = 0.7
"""Below this a ranking separates poorly (Hosmer and Lemeshow call 0.7 to 0.8 acceptable)."""
WIDE_PRIOR = 2.0
"""Ratio of the ends of the prior's interval from which on it counts as uncertain."""
_ALPHA = 0.01
"""Chance below which equal rows of different cases do not explain what test and training share."""


class Doubt(NamedTuple):
    """Something that speaks against a classifier, and what to do about it."""

    text: str
    advice: str


def of(run: Run, known: Evidence, pairings: Sequence[comparison.Pairing]) -> list[Doubt]:
    """All doubts, the gravest first.

    Args:
      run: what its folder holds.
      known: of its classifier.
      pairings: differences of other methods from it, on the same data.
    """
    found = [(rule, doubt) for rule in _DOUBTS if (doubt := rule(run, known)) is not None]
    # A better method comes before what is doubtful of this one, but not before what is doubtful of
    # the rows that all are measured on.
    first = [doubt for rule, doubt in found if rule in _ROWS]
    others = [doubt for rule, doubt in found if rule not in _ROWS]
    return first + _better_methods(known, pairings) + others


def gap(found: Number) -> str:
    """The size of a difference with its interval, without a sign."""
    low, high = sorted((abs(found.low), abs(found.high)))
    return f"{abs(found.value):.4f} [{low:.4f}, {high:.4f}]"


def decides_by_sign(run: Run) -> bool:
    """Whether the sign of the score is what calls a row positive, and not a share or a budget."""
    by_sign = own_results.BY_METHOD
    return str(run.config["run"].get("decide", by_sign)) == by_sign


def _reference(run: Run, known: Evidence) -> Doubt | None:
    summary = run.summary or {}
    if summary.get("oracle"):
        return Doubt(
            "it was trained on true labels that are hidden in practice (oracle), so it is an upper "
            "bound and not a result",
            "compare your PU method with it, and judge that one",
        )
    if (summary.get("selection") or {}).get("is_oracle"):
        return Doubt(
            "its epoch was chosen by true labels (oracle), so its numbers are higher than a rule "
            "without them would give",
            "train with run.selection=last, or a rule that needs no true label",
        )
    return None


def _test_copies(run: Run, known: Evidence) -> Doubt | None:
    """Test rows that were trained on, more than equal rows of different cases would explain."""
    copies = (run.summary or {}).get("test_copies") or {}
    rows, total = int(copies.get("rows") or 0), int(copies.get("of") or 0)
    if known.source != TEST or not 0 < rows <= total:
        return None
    natural = number(copies.get("among_training"))
    expected = min(max(natural, 1e-6), 1.0) if natural == natural else 1e-6
    by_chance = stats.binomtest(rows, total, expected, "greater").pvalue >= _ALPHA
    if by_chance and not copies.get("same_id"):
        return None
    what = "images" if run.dataset == "own_folder" else "rows"
    return Doubt(
        f"{rows:,} of {total:,} test {what} are also training {what}, so that the numbers of the "
        f"test set are too good, and say less of new {what}",
        "leave them out of what is trained on, and train again",
    )


def _few(run: Run, known: Evidence) -> Doubt | None:
    if known.positives >= FEW_POSITIVES:
        return None
    return Doubt(
        f"its numbers rest on {plural(known.positives, 'positive')} only",
        "collect more known positives before it is relied upon",
    )


def _weak(run: Run, known: Evidence) -> Doubt | None:
    found = known.auc if known.auc.is_known else known.ranking
    if found.value >= WEAK_AUC:
        return None
    return Doubt(
        f"it separates poorly, with an AUC of {with_interval(found)} (1 is perfect, 0.5 chance)",
        "use it at most to decide which rows are looked at first",
    )


def _uncertain_prior(run: Run, known: Evidence) -> Doubt | None:
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
        return Doubt(
            "the share of positives among the unlabeled rows is unknown, and so are its errors",
            advice,
        )
    choice = summary.get("prior_choice")
    if choice and not choice.get("agree", True):
        return Doubt(
            "estimators of the share of positives among the unlabeled rows disagree beyond their "
            "intervals, and precision and probabilities rest on it",
            advice,
        )
    at_most = (summary.get("held_out_prior") or {}).get("at_most")
    if at_most is not None and used.value > at_most:
        return Doubt(
            f"{percent(used.value)} of the unlabeled rows are taken for positive, and the held-out "
            f"rows leave room for {percent(at_most)}, so that precision and probabilities are too "
            "high",
            advice,
        )
    doubt = summary.get("mean_probability") or {}
    smallest, largest = (number(doubt.get(f"{end}_prior")) for end in ("smallest", "largest"))
    low, high = used.low, used.high
    if largest > 2 * WIDE_PRIOR * smallest:  # half of the smallest estimate is always left open
        low, high = smallest, largest
    elif not used.has_interval or high <= WIDE_PRIOR * low:
        return None
    return Doubt(
        f"the share of positives among the unlabeled rows is known only roughly "
        f"({percent(low)} to {percent(high)}), and precision and probabilities rest on it",
        advice,
    )


def _no_better_than_majority(run: Run, known: Evidence) -> Doubt | None:
    """A threshold by which the classifier is right no more often than one answer for all."""
    accuracy, share = known.numbers.get("accuracy", Number()), known.expected.value
    if known.source != TEST or not accuracy.has_interval or not decides_by_sign(run):
        return None
    majority = max(share, 1 - share)
    if accuracy.low > majority:
        return None
    side = "positive" if share > 0.5 else "negative"
    return Doubt(
        f"by its own threshold it is not shown to be right more often than calling all {side}, "
        f"which is right for {percent(majority)}",
        "use its ranking (run.decide=share:S or top:K) instead of the score's sign",
    )


def _off_threshold(run: Run, known: Evidence) -> Doubt | None:
    flagged, expected = known.flagged.value, known.expected.value
    if not decides_by_sign(run) or not own_results.is_off_threshold(flagged, expected):
        return None
    too = "many" if flagged > expected else "few"
    return Doubt(
        f"it calls {percent(flagged)} positive where {percent(expected)} {known.are}, so too {too} "
        "by its own threshold",
        "decide by run.decide=probability:0.5, share:S or top:K instead of by the score's sign",
    )


def _one_class_epochs(run: Run, known: Evidence) -> Doubt | None:
    """A run that ends in a stretch of epochs with one class, whatever epoch it reports."""
    periods = (run.summary or {}).get("one_class") or ()
    if not any(isinstance(period, dict) and period.get("lasts") for period in periods):
        return None
    word = one_class.rate_word(run.config.get("method", {}))
    return Doubt(
        "in its last epochs every evaluated example was on one side, so that it may fail again",
        f"train again with a {word} method.learning_rate or another seed",
    )


_DOUBTS: tuple[Callable[[Run, Evidence], Doubt | None], ...] = (
    _reference,
    _test_copies,
    _few,
    _weak,
    _one_class_epochs,
    _uncertain_prior,
    _no_better_than_majority,
    _off_threshold,
)
_ROWS = (_reference, _test_copies, _few)
"""Doubts of the numbers themselves, which come before a better method."""


def _better_methods(known: Evidence, pairings: Sequence[comparison.Pairing]) -> list[Doubt]:
    found = comparison.better(pairings, known)
    if found is None:
        return []
    group, difference, title = found
    return [
        Doubt(
            f"{group.name} is better on the same rows by {gap(difference)} in {title}",
            f"take {group.name} instead",
        )
    ]
