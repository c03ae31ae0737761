"""Is the number of labels enough for what the methods need?"""

import numpy as np

from pujax.audit.base import ERROR, NOTE, WARNING, Finding
from pujax.console import plural

LEAST = 5
"""Of P and of U. A fifth is held out, and the estimate of the prior needs four of what is left."""
FEW = 30
"""Below this a held-out fifth is at most six rows, and no held-out number says much."""
MEASURED = 80
"""The fewest labels with which docs/results/own_data.md has measured methods on tables. With fewer,
docs/results/nnpu.md has measured some: 5 labels on one set and 18 on another."""
MEASURED_IMAGES = 200
"""Likewise on folders of images."""
_KINDS = {"table": "tables", "images": "images"}


def check(labeled: np.ndarray, *, kind: str = "table") -> list[Finding]:
    """Findings of the numbers of P and of U.

    Args:
      labeled: bool `[n]`.
      kind: 'table' or 'images'.
    """
    measured = MEASURED_IMAGES if kind == "images" else MEASURED
    num_p = int(labeled.sum())
    num_u = len(labeled) - num_p
    numbers = {"labeled": num_p, "unlabeled": num_u}
    p, u = plural(num_p, "labelled positive"), plural(num_u, "unlabeled row")
    evidence = (f"{p}, {u}",)
    labels = "1 label is" if num_p == 1 else f"{num_p} labels are"
    rows = "1 unlabeled row is" if num_u == 1 else f"{num_u} unlabeled rows are"

    def finding(severity: str, title: str, why: str, advice: str) -> list[Finding]:
        return [Finding("label_counts", severity, title, (*evidence, why), advice, numbers)]

    if num_p < LEAST:
        return finding(
            ERROR,
            f"{labels} fewer than any method can use",
            f"a fifth is held out and the prior needs 4 of the rest: at least {LEAST} labels",
            f"label more positives: {LEAST} let the commands run, and docs/results/own_data.md "
            f"begins at {measured}",
        )
    if num_u < LEAST:
        return finding(
            ERROR,
            f"{rows} fewer than any method can use",
            f"at least {LEAST} are needed to hold out a fifth and to estimate the prior",
            "add unlabeled rows of the population that the classifier is for",
        )
    if num_p < FEW:
        return finding(
            WARNING,
            f"{num_p} labels are too few to judge a result by",
            f"the held-out fifth is {max(1, round(num_p / 5))} labels, so that recall moves by "
            f"{1 / max(1, round(num_p / 5)):.0%} with each of them",
            f"label at least {FEW}, better {measured}; until then read rankings only",
        )
    if num_u < FEW:
        return finding(
            WARNING,
            f"{num_u} unlabeled rows are too few to judge a result by",
            f"the held-out fifth is {max(1, round(num_u / 5))} rows",
            "add unlabeled rows of the population that the classifier is for",
        )
    if num_p < measured:
        advice = (
            "train bagged logistic regression, which ranked best on one set with "
            f"{measured} labels and is not measured with fewer, and imbalanced_nnpu, which ranked "
            "best on two sets, with 5 and 18 labels; compare them with several seeds"
        )
        if kind == "images":
            advice = "train with several seeds and compare them, and label more if you can"
        return finding(
            NOTE,
            f"{num_p} labels are fewer than in most measurements",
            f"docs/results/own_data.md begins at {measured} labels for {_KINDS[kind]}",
            advice,
        )
    return []
