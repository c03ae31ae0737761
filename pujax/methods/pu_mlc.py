"""PU-MLC: several labels per example, learned from known positives alone (Yuan et al., ICME 2024).

What is not known to be positive is unlabeled, known negatives too (but for an option). Per class,
the re-balanced variational risk (`risks.multilabel_vpu`) trains on the scores divided by a
temperature that follows their spread, and a second pass through the network makes it consistent
between mixed examples (`risks.multilabel_mixup_consistency`). The network's part is LgConv, an
option of the residual networks (`model.options.lgconv`).

Where paper and code disagree the code is followed: tempered, detached factors, raw scores and
attached targets in the mixup term, sums over classes, and the average of the weights is reported.

Two parts are not the authors'. The exponent gamma, which they publish at 10 % known labels and
nowhere else, follows from the share of known labels by default (`risks.multilabel_gamma`); any
number is taken as it is. With `known_negatives` the known labels have a cross-entropy of their own
(`risks.multilabel_known`): with the share r of the labels known the loss is
`(1 - r) variational + known`, plus the mixup term, and so a fully labelled one at r = 1.
"""

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
from ml_collections import config_dict

from pujax import checks, risks
from pujax.data.batching import Batch
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.methods._common import classifier, mixup, sections
from pujax.methods.base import Method

MULTILABEL = True
_AUTO = "auto"
_FEW = 0.1
"""Known negatives per known positive; where both are known at one rate there are more."""


class Numbers(NamedTuple):
    """What the loss takes from all training labels.

    Attributes:
      gamma: exponent of the re-balance factor, a scalar.
      known_share: share of the labels that are known, a scalar.
      positive_share: `[classes]`, share of positives among the known labels of a class.
    """

    gamma: jax.Array
    known_share: jax.Array
    positive_share: jax.Array


def default_config() -> ml_collections.ConfigDict:
    """Settings of every multi-label method, and those of the risk."""
    return sections.multilabel_config(
        "pu_mlc",
        # Exponent of the re-balance factor; 'auto' is the cube of the share of hidden labels.
        gamma=config_dict.FieldReference(_AUTO, field_type=object),
        alpha=1.0,  # factor of the scores' spread in the temperature; 0 for the temperature 1
        mixup_weight=1.0,
        mixup_alpha=0.3,  # both parameters of the Beta distribution
        detach_targets=False,  # of the mixup term
        num_groups=1,  # parts of a batch with statistics of their own; the authors' 2 GPUs: 2
        known_negatives=False,  # the known labels have a cross-entropy of their own
    )


def from_labels(c: ml_collections.ConfigDict, labeled: np.ndarray) -> dict[str, float]:
    """The exponent that `method.gamma='auto'` stands for; nothing where it is a number.

    Args:
      c: the method's section.
      labeled: int8 `[n, classes]`, 1 for a known positive, -1 for a known negative, else 0.

    Raises:
      ValueError: for `known_negatives` where none is known.
    """
    if c.known_negatives:
        accepted = "False, since no label of these data is known to be negative"
        checks.require(bool((labeled < 0).any()), "method.known_negatives", True, accepted)
    return {"gamma": float(_numbers_of(labeled).gamma)} if c.gamma == _AUTO else {}


def label_warnings(c: ml_collections.ConfigDict, labeled: np.ndarray) -> list[str]:
    """What speaks against the exponent that `method.gamma='auto'` stands for; arguments as above.

    The share of known labels says nothing of the share of known positives where it is negatives
    that are not recorded.
    """
    positives, negatives = int((labeled > 0).sum()), int((labeled < 0).sum())
    if c.gamma != _AUTO or negatives >= _FEW * positives:
        return []
    return [
        f"known negatives are {negatives}, known positives {positives}, but method.gamma={_AUTO} "
        "supposes that both are known at one rate: set method.gamma to a number, 0 where nearly "
        "all positives are known"
    ]


@jax.jit
def _numbers_of(labeled: jax.Array) -> Numbers:
    """Counts all training labels; a class without a known positive counts as having one."""
    positives, known = jnp.sum(labeled > 0, axis=0), jnp.sum(labeled != 0, axis=0)
    # By the hidden ones, so that it is 1 to the last bit where there are none.
    known_share = 1 - jnp.minimum(jnp.sum(labeled == 0) / labeled.size, 1)
    positive_share = jnp.maximum(positives, 1) / jnp.maximum(known, 1)
    return Numbers(risks.multilabel_gamma(known_share), known_share, positive_share)


def build(config: ml_collections.ConfigDict, info: MultilabelInfo) -> Method:
    """Builds PU-MLC for one data set."""
    c = config.method
    checks.between("method.gamma", c.gamma, 0, float("inf"), include="low", word=_AUTO)
    checks.at_least("method.alpha", c.alpha, 0)
    checks.at_least("method.mixup_weight", c.mixup_weight, 0)
    checks.positive("method.mixup_alpha", c.mixup_alpha)
    checks.at_least("method.num_groups", c.num_groups, 1)
    even = c.batch_size % c.num_groups == 0 and c.batch_size >= 2 * c.num_groups
    accepted = f"a divisor of method.batch_size={c.batch_size} that leaves 2 rows or more"
    checks.require(even, "method.num_groups", c.num_groups, accepted)

    def objective(
        forward,
        batch_stats: Any,
        images: jax.Array,
        batch: Batch,
        key: jax.Array,
        numbers: Any = None,  # `Numbers` where the loss reads them
    ):
        outputs, batch_stats = forward(batch_stats, images)
        scores = _grouped(outputs.logits, c.num_groups)
        labels = _grouped(batch.labeled, c.num_groups)
        gamma = numbers.gamma if c.gamma == _AUTO else c.gamma

        def variational_of(scores, labels):
            return risks.multilabel_vpu(scores, labels, gamma=gamma, alpha=c.alpha or None)

        loss = variational = jnp.mean(jax.vmap(variational_of)(scores, labels))
        metrics = {"loss_variational": variational}
        if c.known_negatives:
            known = jnp.mean(jax.vmap(functools.partial(known_of, numbers))(scores, labels))
            loss = (1 - numbers.known_share) * variational + known
            metrics["loss_known"] = known
        if c.mixup_weight:
            mixed, permutations, lams = mix_halves(
                key, _grouped(images, c.num_groups), alpha=c.mixup_alpha
            )
            flat = mixed.reshape(-1, *mixed.shape[2:])
            mixed_outputs, batch_stats = forward(batch_stats, flat)
            mixed_scores = _grouped(mixed_outputs.logits, c.num_groups)
            consistency = jnp.mean(
                jax.vmap(consistency_of)(scores, labels, mixed_scores, permutations, lams)
            )
            loss = loss + c.mixup_weight * consistency
            metrics["loss_mixup"] = consistency
        return loss, (batch_stats, metrics)

    def known_of(numbers: Numbers, scores, labels):
        return risks.multilabel_known(scores, labels, positive_share=numbers.positive_share)

    def consistency_of(scores, labels, mixed_scores, permutation, lam):
        return risks.multilabel_mixup_consistency(
            scores, labels, mixed_scores, permutation, lam, detach_targets=c.detach_targets
        )

    reads_labels = c.gamma == _AUTO or c.known_negatives
    return classifier.minimize(
        config, info, objective, numbers=_numbers_of if reads_labels else None
    )


def mix_halves(
    key: jax.Array, images: jax.Array, *, alpha: float
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Mixes the halves of every group: a permuted first half into the last.

    Args:
      key: random key.
      images: `[groups, rows, ...]`, normalised; of an odd number of rows the middle one is unused.
      alpha: parameter of Beta(alpha, alpha), from which each group draws one share.

    Returns:
      Mixed images `[groups, rows // 2, ...]`, the permutations `[groups, rows // 2]` of the first
      halves, and the shares `[groups]` that these keep.
    """
    groups, rows = images.shape[:2]
    half = rows // 2
    lam_key, order_key = jax.random.split(key)
    lams = jax.random.beta(lam_key, alpha, alpha, [groups])
    orders = jax.random.split(order_key, groups)
    permutations = jax.vmap(lambda key: jax.random.permutation(key, half))(orders)
    first = jax.vmap(lambda part, order: part[:half][order])(images, permutations)
    return mixup.mix(first, images[:, rows - half :], lams), permutations, lams


def _grouped(array: jax.Array, num_groups: int) -> jax.Array:
    """`[rows, ...]` as `[groups, rows of a group, ...]`."""
    return array.reshape(num_groups, -1, *array.shape[1:])
