"""Which method to train, with which settings, and why: from what was measured.

The rules are those that docs/results/own_data.md supports, and no more: on a table with few
positives (a9a, 8 %) bagged classical rows rank best, where about half of the rows are positive nnPU
is ahead or level; on images nnPU with a small convolutional network is what was measured. Below 80
labels bagging is not measured, and docs/results/nnpu.md has imbalanced nnPU ahead: the two are
compared.
"""

import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pujax.audit import label_counts
from pujax.audit.base import ERROR, NOTE, Finding

RARE = 0.33
"""Share of positives in U, as estimated, up to which they count as few. It is an upper bound: on
a9a with 6 % it came out as 0.13 to 0.26, on sets with a half as 0.39 and more."""
_BOOSTED = 120
"""Labels from which bagged boosting was measured ahead of bagged logistic regression on a9a."""


class Recommendation(NamedTuple):
    """What to type.

    Attributes:
      method: name of a method of `pujax.methods`; '' where there are too few rows for any.
      command: the command line; '' likewise.
      reasons: sentences.
      first: what has to be done before; empty without errors and leaks.
    """

    method: str
    command: str
    reasons: tuple[str, ...]
    first: tuple[str, ...]


def recommend(
    path: str,
    *,
    kind: str,
    options: Mapping[str, str],
    num_labeled: int,
    prior: float | None,
    findings: Sequence[Finding],
) -> Recommendation:
    """A method and a command for the data.

    Args:
      path: of the data.
      kind: 'table' or 'images'.
      options: how the data are read, see `pujax.audit.audit`.
      num_labeled: labelled positives.
      prior: share of positives in U as estimated, None where unknown.
      findings: all of them.
    """
    first = tuple(
        f"{x.title}: {x.advice}" for x in findings if x.severity == ERROR or x.name == "leak"
    )
    if any(x.name == "label_counts" and x.severity == ERROR for x in findings):
        return Recommendation("", "", (), first)  # training would refuse the data
    method, settings, reasons = _choice(kind, num_labeled, prior)
    file = {"table": "own_table", "images": "own_folder"}[kind]
    words = ["pujax", "train", f"--config={file}:method={method}"]
    words.append(f"--config.data.path={path}")
    words += [f"--config.data.{name}={value}" for name, value in options.items() if value]
    words += [f"--config.method.{name}={value}" for name, value in settings.items()]
    names = {finding.name for finding in findings}
    if "damaged" in names:
        words.append("--config.data.unreadable=skip")
    if "labeling" in names:
        reasons.append(
            "labels depend on the row: read the ranking of predictions.csv; its probabilities, and "
            "recall, hold for positives like the labelled ones only"
        )
    priors = [finding for finding in findings if finding.name == "class_prior"]
    if any(finding.severity != NOTE for finding in priors):
        reasons.append("the share of positives is uncertain: add --config.data.prior=... if known")
    if method != "nnpu":
        compared = "compare with nnPU by --config.run.compare=nnpu"
        if num_labeled < label_counts.MEASURED:
            compared = (
                "compare with nnPU and imbalanced nnPU by --config.run.compare=nnpu,imbalanced_nnpu"
            )
        reasons.append(compared)
    return Recommendation(method, shlex.join(words), tuple(reasons), first)


def _choice(
    kind: str, num_labeled: int, prior: float | None
) -> tuple[str, dict[str, str], list[str]]:
    """Method, its options, and the reason."""
    if kind == "images":
        return (
            "nnpu",
            {},
            [
                "nnPU with a small convolutional network is what was measured on folders of images "
                "(Fashion-MNIST, 200 labels: average precision .978)"
            ],
        )
    few = num_labeled < label_counts.MEASURED
    if few or prior is None or prior <= RARE:
        base = "boosting" if num_labeled >= _BOOSTED else "logistic"
        measured = {
            "boosting": "160 labels: average precision .447, nnPU .392",
            "logistic": "80 labels: average precision .421, nnPU .362",
        }[base]
        if few:
            why = f"there are few labels ({num_labeled})"
        elif prior is None:
            why = "nothing is known of the share of positives"
        else:
            why = f"few of the unlabeled rows are positive (at most about {prior:.0%})"
        name = {"boosting": "boosting", "logistic": "logistic regression"}[base]
        best = (
            f"bagged {name} ranked best on a9a, the census income of adults ({measured}; within "
            "the deviations)"
        )
        reasons = [f"{why}, where {best}"]
        if few:
            reasons = [
                f"{why}: {best}, and is not measured with fewer",
                "with 5 and 18 labels, and the share of positives given, imbalanced_nnpu ranked "
                "best of twelve methods, logistic regression without bags lower "
                "(docs/results/nnpu.md)",
            ]
        return "classic", {"base": base, "correction": "bagging"}, reasons
    reason = (
        f"many of the unlabeled rows are positive (at most about {prior:.0%}), where nnPU was "
        "ahead or level (average precision on phishing .957, bagged rows .946; on mushrooms .978 "
        "and .986); a logistic regression is trained beside it for comparison"
    )
    return "nnpu", {}, [reason]
