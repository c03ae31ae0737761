"""Which epoch a run reports: criteria on held-out P and U, and the choice among epochs.

Pure functions of scores and of a run's rows. Only the oracles look at true labels, and no rule at
the test set. Source of the criteria: the fair-evaluation literature on PU learning (proxy
accuracy and proxy AUC estimate accuracy and AUC, up to terms that no model changes, without
negatives) and the nnPU risk of Kiryo et al. (NeurIPS 2017) on the validation set.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from pujax import metrics, risks
from pujax.console import plural
from pujax.methods.base import Stage

LAST = "last"
AUTO = "auto"
"""The rule that suits a method, which a resolved configuration names: `resolved`."""
# The column of a row that each rule compares.
COLUMNS = {
    "proxy_accuracy": "val_proxy_accuracy",
    "proxy_auc": "val_proxy_auc",
    "nnpu_risk": "val_nnpu_risk",
    "vpu_risk": "val_vpu_risk",
    "proxy_accuracy_vpu": "val_proxy_accuracy_vpu",
    "oracle": "val_oracle_accuracy",
    "oracle_f1": "val_oracle_f1",
}
RULES = (LAST, *COLUMNS)
_LOWEST_WINS = ("nnpu_risk", "vpu_risk")
_WITH_PRIOR = ("proxy_accuracy", "nnpu_risk", "proxy_accuracy_vpu")
_ORACLES = ("oracle", "oracle_f1")
WITHOUT_TRUTH = tuple(rule for rule in RULES if rule not in _ORACLES)
"""Rules that look at no true label."""
FEW_POSITIVES = 20
"""Known positives below which a number on held-out or test rows is mostly chance."""


class BinaryMetric(NamedTuple):
    """How a test metric of problems with one label per example is shown.

    Attributes:
      title: what it is called where it is read.
      heading: of its column in the final table of a run.
      meaning: a sentence.
      depends_on_share: whether it depends on the share of positives among the test examples.
    """

    title: str
    heading: str
    meaning: str
    depends_on_share: bool


BINARY = {
    "accuracy": BinaryMetric(
        "accuracy",
        "test accuracy",
        "Share of the test examples on the right side of the threshold.",
        depends_on_share=True,
    ),
    "f1": BinaryMetric(
        "F1",
        "F1",
        "Harmonic mean of recall and precision on the test set.",
        depends_on_share=True,
    ),
    "auc": BinaryMetric(
        "AUC",
        "AUC",
        "Share of pairs in which the positive has the higher score; 0.5 is chance.",
        depends_on_share=False,
    ),
    "average_precision": BinaryMetric(
        "average precision",
        "AP",
        "Area under the precision-recall curve; chance is the share of positives.",
        depends_on_share=True,
    ),
}
"""Test metrics of problems with one label per example, from which all lists of them follow. Each is
named like its function in `pujax.metrics`, of scores and labels, whose values are in [0, 1]."""
BINARY_METRICS = tuple(BINARY)
# Of those with several labels; the last two are at thresholds that are chosen on the test set.
MULTILABEL_METRICS = ("mean_average_precision", "overall_f1", "class_f1")
ORACLE_METRICS = ("oracle_overall_f1", "oracle_class_f1")
PRIOR_ERROR = "prior_error"  # the column of methods that estimate the class prior
VPU_WEIGHT = 0.3
"""Of the VPU risk beside the proxy accuracy; chosen among 0.1 to 1, see the results."""
TITLES = {
    **{name: metric.title for name, metric in BINARY.items()},
    "mean_average_precision": "mean average precision",
    "overall_f1": "overall F1",
    "class_f1": "class F1",
    PRIOR_ERROR: "error of the prior",
}
"""What metrics that need true labels are called where they are read."""

Row = Mapping[str, Any]


def proxy_accuracy_vpu(proxy: float, risk: float, *, weight: float = VPU_WEIGHT) -> float:
    """The rule of two parts: the proxy accuracy less the weighted VPU risk."""
    return proxy - weight * risk


def criteria(
    scores: np.ndarray,
    labeled: np.ndarray,
    truth: np.ndarray,
    *,
    prior: float,
    setting: str,
    plain_scores: np.ndarray | None = None,
) -> dict[str, float]:
    """What every rule compares, from the scores of one evaluation of the validation set.

    The nnPU risk has the sigmoid loss and is `positive + max(0, negative)` over the whole set in
    one piece; in one-sample data its negative part is calibrated with the counts of the validation
    set. The VPU risk is that of `Phi = sigmoid(score)` before the method calibrates its scores
    (Chen et al., NeurIPS 2020, select by it). `proxy_accuracy_vpu` is the proxy accuracy less
    `VPU_WEIGHT` times the VPU risk: few held-out positives give many epochs nearly the same proxy
    accuracy, and the risk, which no threshold makes coarse, decides among them. The oracles'
    accuracy and F1 are those on a sample of the population.

    Args:
      scores: `[v]`, raw scores of P_val and U_val.
      labeled: bool `[v]`, True for P_val.
      truth: `[v]`, true labels 1 or 0; -1, unknown, leaves the oracles' rules without a value.
      prior: share of positives in the population; NaN, where it is unknown, leaves the rules
        that need it without a value.
      setting: 'one_sample' (P_val and U_val together are a sample of the population) or
        'two_sample' (U_val is, and may repeat P_val).
      plain_scores: `[v]`, scores before the method's own threshold; None if it has none.

    Returns:
      A dict with the columns `COLUMNS`; NaN where P or a sample of the population is missing.
    """
    labeled = np.asarray(labeled, bool)
    n_p, n = int(labeled.sum()), len(labeled)
    one_sample = setting == "one_sample"
    plain_scores = scores if plain_scores is None else plain_scores
    items = np.ones(n, bool) if one_sample else ~labeled
    has_both = n_p > 0 and bool(items.any())  # else nothing is told of P, or of the population
    vpu_risk = math.nan
    if has_both:
        risk = risks.vpu(jnp.asarray(plain_scores), labeled, include_positives=one_sample)
        vpu_risk = float(risk)
    result = {
        "val_proxy_accuracy": math.nan,
        "val_proxy_auc": float(metrics.proxy_auc(scores, labeled)),
        "val_nnpu_risk": math.nan,
        "val_vpu_risk": vpu_risk,
        "val_proxy_accuracy_vpu": math.nan,
        "val_oracle_accuracy": math.nan,
        "val_oracle_f1": math.nan,
    }
    if items.any() and (np.asarray(truth)[items] >= 0).all():
        result["val_oracle_accuracy"] = float(metrics.accuracy(scores[items], truth[items]))
        result["val_oracle_f1"] = float(metrics.f1(scores[items], truth[items]))
    if not (has_both and 0 < prior < 1):  # unknown, or there is one class
        return result
    proxy = metrics.proxy_accuracy(scores, labeled, prior=prior, setting=setting)
    result["val_proxy_accuracy"] = float(proxy)
    result["val_proxy_accuracy_vpu"] = proxy_accuracy_vpu(float(proxy), vpu_risk)
    calibration: dict[str, Any] = {}
    if one_sample:
        n_u = n - n_p
        # 0 where every positive is labelled.
        share = 0.0 if math.isclose(prior * n, n_p) else (prior * n - n_p) / max(n_u, 1)
        if not (n_u and 0 <= share < 1):  # by chance, in a small part held out
            return result
        calibration = {"unlabeled_prior": share, "unlabeled_weight": n_u / n}
    risk = risks.nnpu(
        jnp.asarray(scores), labeled, prior=prior, loss=risks.sigmoid_loss, **calibration
    )
    return result | {"val_nnpu_risk": float(risk)}


def resolved(
    rule: str, suits: str, *, without_prior: str, has_validation: bool, has_prior: bool
) -> str:
    """The rule that `AUTO` stands for; any other rule is itself.

    Args:
      rule: one of `RULES`, or `AUTO`.
      suits: the method's own rule, `pujax.methods.selection`.
      without_prior: the rule in its place where it needs a prior and none is known.
      has_validation: whether a part is held out, which all rules but the last epoch need.
      has_prior: whether a class prior will be known.
    """
    if rule != AUTO:
        return rule
    if not has_validation:
        return LAST
    return without_prior if suits in _WITH_PRIOR and not has_prior else suits


def check(rule: str, prior: float, *, field: str = "run.selection") -> None:
    """Raises a ValueError for a rule that needs a prior where it is unknown."""
    if rule in _WITH_PRIOR and not math.isfinite(prior):
        others = ", ".join(repr(name) for name in RULES if name not in _WITH_PRIOR)
        raise ValueError(
            f"{field} is {rule!r} and data.prior None; accepted: {others}, or a number for "
            "data.prior, since the true classes of these data do not tell it"
        )


def handed_on(rows: Sequence[Row], stages: Sequence[Stage]) -> dict[str, dict[str, Any]]:
    """Which epoch each stage before the last handed on: rule, epoch and value by stage's name.

    Args:
      rows: of the whole run.
      stages: of the method. Those that hand on their last epoch are left out, and so are those
        without any value, as where nothing is held out.
    """
    found = {}
    for stage in stages[:-1]:
        rule = stage.selection
        best = None
        if rule != LAST:
            best = choose([row for row in rows if row["stage"] == stage.name], rule)
        if best is not None:
            value = best[COLUMNS[rule]]
            found[stage.name] = {"rule": rule, "epoch": best["epoch"], "value": value}
    return found


def improves(rule: str, value: float | None, best: float | None) -> bool:
    """Whether an epoch's value beats the best before it; a tie keeps the earlier epoch.

    Args:
      rule: one of `COLUMNS`.
      value: of the epoch; None or NaN never win.
      best: of the epochs before, None where there is none yet.
    """
    if value is None or not math.isfinite(value):
        return False
    if best is None:
        return True
    return value < best if rule in _LOWEST_WINS else value > best


def choose(rows: Sequence[Row], rule: str) -> Row | None:
    """The row of the epoch that a rule reports.

    Only epochs of the last stage count: the stages before prepare it and may not classify at all.

    Args:
      rows: one per epoch, as in `metrics.jsonl`.
      rule: one of `RULES`.

    Returns:
      A row, or None where no epoch has a value.
    """
    if rule == LAST:
        return rows[-1] if rows else None
    chosen, best, column = None, None, COLUMNS[rule]
    for row in rows:
        if row["stage"] == rows[-1]["stage"] and improves(rule, row.get(column), best):
            chosen, best = row, row[column]
    return chosen


def by_few_positives(
    rows: Sequence[Row], stages: Sequence[Stage], rule: str, num_positives: int
) -> list[str]:
    """Sentences about epochs that a rule without true labels chose by few positives; usually none.

    Args:
      rows: of the whole run.
      stages: of the method.
      rule: `run.selection`.
      num_positives: labelled positives among the examples held out.
    """
    if not 0 < num_positives < FEW_POSITIVES:
        return []

    def has_choice(stage: str, rule: str) -> bool:
        """Whether the rule had more than one epoch of a stage to choose among."""
        return sum(row["stage"] == stage and row.get(COLUMNS[rule]) is not None for row in rows) > 1

    chosen = [
        (f"the epoch that stage {name!r} handed on", found["rule"], "method.pretrain_selection")
        for name, found in handed_on(rows, stages).items()
        if has_choice(name, found["rule"])
    ]
    if rule != LAST and has_choice(rows[-1]["stage"], rule):
        chosen.append(("the reported epoch", rule, "run.selection"))
    held = plural(num_positives, "held-out positive")
    return [
        f"{what} was chosen by the {name} on {held}, mostly by chance; hold out more "
        f"(data.num_validation, data.holdout) or set {field} to 'last'"
        for what, name, field in chosen
        if name in WITHOUT_TRUTH
    ]


def describe(rows: Sequence[Row], rule: str) -> dict[str, Any]:
    """Rule, epoch and value of what a run reports; the last epoch where the rule has no value."""
    row = choose(rows, rule) or rows[-1]
    return {
        "rule": rule,
        "epoch": row["epoch"],
        "value": row.get(COLUMNS[rule]) if rule != LAST else None,
        "is_oracle": rule in _ORACLES,
    }


def table(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """What every rule would have reported: its epoch, its value, and the test metrics there.

    Args:
      rows: one per epoch.

    Returns:
      By rule, for 'last' and every rule with a value: `epoch`, `value`, `is_oracle`, `accuracy`,
      `f1`, `auc`, `average_precision` (of multi-label problems their own metrics), and
      `prior_error` where the method estimates the class prior.
    """
    result = {}
    for rule in RULES:
        row = choose(rows, rule)
        if row is not None:
            description = describe(rows, rule)
            description.pop("rule")
            is_multilabel = f"test_{MULTILABEL_METRICS[0]}" in row
            names = (*MULTILABEL_METRICS, *ORACLE_METRICS) if is_multilabel else BINARY_METRICS
            tested = {name: row.get(f"test_{name}") for name in names}
            if PRIOR_ERROR in row:
                tested[PRIOR_ERROR] = row[PRIOR_ERROR]
            result[rule] = description | tested
    return result
