"""An audit of positive and unlabeled data before anything is trained: `pujax check`.

Every check is one file with a function `check` of arrays and names that returns findings; `audit`
calls them one after another. docs/checking_your_data.md says what each can see and what it cannot.
"""

from typing import NamedTuple

from pujax.audit import (
    class_prior,
    duplicates,
    image_files,
    inputs,
    label_counts,
    labeling,
    leaks,
    overlap,
    recommendation,
    scales,
    scoring,
)
from pujax.audit.base import ERROR, WARNING, Finding, Problem, in_order, problem
from pujax.audit.recommendation import Recommendation
from pujax.console import plural

__all__ = ["Audit", "Finding", "Problem", "Recommendation", "audit", "check", "problem"]

CLEAN, WARNED, FAILED = 0, 1, 3
"""Exit status without warnings, with warnings, with errors; 2 is for input that is not accepted."""
_ALWAYS = (
    "whether labels are given at random in ways that the class looks like itself, which P and U "
    "cannot tell",
    "near copies, which differ in at least one value",
    "whether new rows will be like these",
)
_IMAGES = "what images show beyond 16 x 16 grey pixels and the size and type of their files"


class Audit(NamedTuple):
    """What was found.

    Attributes:
      described: the data in one line.
      notes: how it was read.
      findings: the most severe first.
      recommendation: what to train.
      not_checked: what was not looked at, or cannot be.
    """

    described: str
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    recommendation: Recommendation
    not_checked: tuple[str, ...]

    @property
    def status(self) -> int:
        """The exit status of the command."""
        severities = {finding.severity for finding in self.findings}
        return FAILED if ERROR in severities else WARNED if WARNING in severities else CLEAN


def audit(
    path: str,
    *,
    label: str = "",
    positive: str = "",
    id_column: str = "",
    leave_out: str = "",
    words: str = "",
    seed: int = 0,
) -> Audit:
    """Looks for faults in a file or a folder of images.

    Args:
      path: of the data.
      label: column of the label; needed for tables with named columns.
      positive: word that marks a positive, where it is not a usual one.
      id_column: column that names a row; '' looks for one, 'none' keeps all columns.
      leave_out: columns that are no features, with commas between them.
      words: columns whose cells are words, whatever they look like, likewise.
      seed: of everything random.

    Raises:
      ValueError: in one line, what cannot be read.
    """
    options = {
        "label": label,
        "positive": positive,
        "id_column": id_column,
        "leave_out": leave_out,
        "words": words,
    }
    read = inputs.read(path, **options)
    found, not_checked, prior = check(read.problem, seed=seed, kind=read.kind)
    found = in_order([*image_files.check(read.damaged, read.test_copies), *found])
    num_p = int(read.problem.labeled.sum())
    num_u = len(read.problem.labeled) - num_p
    num_columns = len(set(read.problem.columns))
    is_table = read.kind == "table"
    what = plural(num_columns, "column") if is_table else f"images, {num_columns} pixels"
    advised = recommendation.recommend(
        path,
        kind=read.kind,
        options=options,
        num_labeled=num_p,
        prior=prior,
        findings=found,
    )
    return Audit(
        described=f"{path}: {plural(num_p, 'labelled positive')}, {num_u:,} unlabeled, {what}",
        notes=read.notes,
        findings=tuple(found),
        recommendation=advised,
        not_checked=(*not_checked, *_ALWAYS, *([_IMAGES] if read.kind == "images" else [])),
    )


def check(
    data: Problem, *, seed: int = 0, kind: str = "table"
) -> tuple[list[Finding], list[str], float | None]:
    """All checks of rows in memory.

    Columns that leak the label are left out of what follows, since they would hide everything else.

    Args:
      data: P and U.
      seed: of everything random.
      kind: 'table' or 'images', of which what is advised for few labels depends.

    Returns:
      The findings, the most severe first; what was not checked, in sentences; and the
      share of positives in U as estimated, None where nothing is known of it.
    """
    findings = [
        *label_counts.check(data.labeled, kind=kind),
        *scales.check(data),
        *duplicates.check(data),
    ]
    num_p = int(data.labeled.sum())
    smaller = min(num_p, len(data.labeled) - num_p)
    if smaller < label_counts.LEAST:
        few = f"everything but counts and copies, which needs {label_counts.LEAST} rows of P and U"
        return in_order(findings), [few], None
    not_checked = []
    if smaller < leaks.LEAST:
        not_checked.append(f"columns that leak the label, which needs {leaks.LEAST} of P and of U")
    leaking = leaks.check(data, seed=seed)
    findings += leaking
    names = [column["name"] for finding in leaking for column in finding.numbers["columns"]]
    clean = data.without(names)
    if smaller < labeling.LEAST_P:
        not_checked.append(
            "whether labels are given at random, column by column, which needs "
            f"{labeling.LEAST_P} rows of P and of U"
        )
    findings += labeling.check(clean, seed=seed)
    scores = scoring.held_out(clean, seed=seed)
    estimates = class_prior.estimates(clean, scores, seed=seed)
    choice = class_prior.chosen(estimates)
    prior = choice.estimate.value if choice else None
    findings += class_prior.check(estimates, len(data.labeled) - num_p)
    findings += overlap.check(scores, prior, seed=seed)
    return in_order(findings), not_checked, prior
