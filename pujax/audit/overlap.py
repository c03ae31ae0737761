"""Can labelled and unlabeled rows be told apart at all, and how much do the classes overlap?"""

import numpy as np

from pujax import metrics
from pujax.audit.base import NOTE, WARNING, Finding
from pujax.audit.scoring import Scores

CHANCE = 0.55
"""Lower end of the AUC of P against U below which nothing is learned."""
SEPARATED = 0.9
"""AUC of positives against negatives from which classes count as separated."""
_RESAMPLES = 200


def check(scores: Scores, prior: float | None, *, seed: int) -> list[Finding]:
    """Findings of a classifier's held-out scores.

    Args:
      scores: of P and U.
      prior: share of positives in U that is assumed, in (0, 1); None where nothing is known of it.
      seed: of the bootstrap.
    """
    p, u = scores.values[scores.labeled], scores.values[~scores.labeled]
    auc = metrics.auc(scores.values, scores.labeled)
    rng = np.random.default_rng([seed, 5])
    labels = np.arange(len(p) + len(u)) < len(p)
    resampled = [
        metrics.auc(np.concatenate([rng.choice(p, len(p)), rng.choice(u, len(u))]), labels)
        for _ in range(_RESAMPLES)
    ]
    low, high = (float(x) for x in np.quantile(resampled, [0.05, 0.95]))
    of_classes = None if prior is None else float(metrics.auc_from_auc_pu(auc, prior))
    numbers = {"auc_pu": auc, "low": low, "high": high, "auc": of_classes, "prior": prior}
    evidence = [f"held-out AUC of P against U: {auc:.3f} (90 % interval {low:.3f} to {high:.3f})"]
    if of_classes is not None:
        evidence.append(
            f"with {prior:.1%} positives in U, that is an AUC of {of_classes:.3f} of positives "
            "against negatives; the share is an upper bound, and so is this"
        )
    if low < CHANCE:
        return [
            Finding(
                "overlap",
                WARNING,
                "labelled positives can hardly be told from unlabeled rows",
                tuple(evidence),
                "look for columns that say something of the class; if U is nearly all positive, no "
                "method can help; with few labels, label more and check again",
                numbers,
            )
        ]
    if of_classes is not None and of_classes < SEPARATED:
        return [
            Finding(
                "overlap",
                NOTE,
                "positives and negatives overlap",
                tuple(evidence),
                "expect the prior to be overestimated, and probabilities with it; give data.prior "
                "if it is known",
                numbers,
            )
        ]
    return []
