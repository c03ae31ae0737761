"""Are there copies of labelled positives among the unlabeled rows?

Tables of few different values have equal rows by nature. What is not natural is that labelled
positives have copies in U far more often than rows of U have copies among themselves.
"""

import collections

import numpy as np

from pujax.audit.base import NOTE, WARNING, Finding, Problem, listed

_LEAST_SHARE = 0.02
"""Share of P with a copy in U below which it is a note only."""
_TIMES = 2.0
"""How many times as often as rows of U among themselves."""
_ALPHA = 0.01


def check(problem: Problem) -> list[Finding]:
    """Findings of equal rows in P and U, and of labelled positives that occur several times.

    Args:
      problem: its `keys` are compared.
    """
    from scipy import stats  # where it is needed: it loads for a second

    in_p = collections.Counter(problem.keys[problem.labeled].tolist())
    in_u = collections.Counter(problem.keys[~problem.labeled].tolist())
    num_p, num_u = sum(in_p.values()), sum(in_u.values())
    if not num_p or not num_u:
        return []
    shared = [key for key in in_p if key in in_u]
    rows_p, rows_u = sum(in_p[key] for key in shared), sum(in_u[key] for key in shared)
    natural = sum(count for count in in_u.values() if count > 1) / num_u
    again = num_p - len(in_p)
    findings = []
    if shared:
        share = rows_p / num_p
        # A row of U has one row less to be equal to than a row of P, which changes nothing here.
        p_value = float(stats.binomtest(rows_p, num_p, max(natural, 1e-6), "greater").pvalue)
        is_much = share >= max(_LEAST_SHARE, _TIMES * natural) and p_value < _ALPHA
        examples = [_pair(problem, key) for key in shared[:3]]
        findings.append(
            Finding(
                "duplicates",
                WARNING if is_much else NOTE,
                "labelled positives with an exact copy among the unlabeled rows: "
                f"{rows_p:,} of {num_p:,}",
                (
                    f"{share:.1%} of the labelled positives equal {rows_u:,} unlabeled rows in "
                    f"every feature column; of the unlabeled rows {natural:.1%} have a copy among "
                    f"themselves (binomial test, p = {p_value:.1g})",
                    f"for example {listed(examples)}",
                ),
                "remove the copies from the unlabeled rows if they are the same cases: a method is "
                "told that they are positive and unlabeled at once, and held-out rows are no "
                "longer held out"
                if is_much
                else "nothing, if equal rows are different cases; else remove the unlabeled copies",
                {
                    "labeled_rows": rows_p,
                    "unlabeled_rows": rows_u,
                    "share_of_labeled": share,
                    "share_of_unlabeled_among_themselves": natural,
                    "p_value": p_value,
                },
            )
        )
    if (
        again
        and again / num_p >= max(_LEAST_SHARE, _TIMES * natural)
        and stats.binomtest(again, num_p, max(natural, 1e-6), "greater").pvalue < _ALPHA
    ):
        findings.append(
            Finding(
                "repeated_labels",
                WARNING,
                f"{again:,} of {num_p:,} labelled positives repeat another one",
                (f"{len(in_p):,} different rows are labelled; {again:,} are copies of them",),
                "keep one of each: copies on both sides of a hold-out make every number too good, "
                "and the number of labels is smaller than it looks",
                {"labeled": num_p, "different": len(in_p)},
            )
        )
    return findings


def _pair(problem: Problem, key: int) -> str:
    """Names of the first labelled and the first unlabeled row of a key."""
    rows = np.flatnonzero(problem.keys == key)
    labeled = problem.labeled[rows]
    return f"{problem.ids[rows[labeled][0]]} (P) = {problem.ids[rows[~labeled][0]]} (U)"
