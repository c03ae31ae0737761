"""GradPU: a gradient penalty between P and U, and upweighted positives (Dai et al., AAAI 2023).

Unlabeled examples are treated as negative, and two things keep the classifier from memorising which
positives are labelled: the squared length of the input gradient is penalised on random
interpolates of P and U, and badly fitted positives weigh more, increasingly during training. No
class prior is needed. Where the paper is silent, the choices are
- the weight of a positive is a constant of the gradient (`stop_weight_gradient`);
- every batch holds the same number of labelled positives (`batching='separate'`; 'joint' is the
  paper's shuffle of P and U together, in which that number is random and may be 0);
- the smaller of the two sets of a batch is resampled with replacement to the size of the larger;
- the rate falls exponentially, by a small factor in every step, and weight decay is an L2 term of
  the gradient, before Adam.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks, risks
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import alignment, classifier, mixup, online, sections
from pujax.methods._common import network as network_lib
from pujax.methods.base import Method

SELECTION = "proxy_accuracy"
# Models from before these fields have neither.
_REGULARIZERS = ("input_noise", "mixup_alpha")


def default_config() -> ml_collections.ConfigDict:
    """The paper's settings for MNIST with 1000 labelled positives.

    `alpha` goes with pixels in [0, 1] (`data.scaling='unit'`): inputs multiplied by a divide the
    penalty by a^2. `input_noise` and `mixup_alpha` are what its Table 2 compares the penalty with,
    both off: they change the images of the data terms, and not those of the penalty.
    """
    return sections.default_config(
        "gradpu",
        optimizer="adam",
        learning_rate=1e-3,
        weight_decay=5e-4,
        lr_schedule="exponential",
        lr_floor=0.1,
        num_epochs=100,
        batch_size=250,
        batching="separate",
        augment=False,
        alpha=0.2,
        beta_max=30.0,
        stop_weight_gradient=True,
        penalty_on="score",
        input_noise=0.0,
        mixup_alpha=0.0,
        **online.default_config(),
        **alignment.switch(),
    )


def check(config: ml_collections.ConfigDict, info: DataInfo, network: network_lib.Network) -> None:
    """Raises a ValueError for settings that cannot be."""
    sections.check(config)
    for name in ("alpha", "beta_max", *_REGULARIZERS):
        checks.at_least(f"method.{name}", config.get(name, 0.0), 0)
    mixup_alpha = config.get("mixup_alpha", 0.0)
    checks.require(
        not mixup_alpha or not config.get("align_weight", 0.0),
        "method.mixup_alpha",
        mixup_alpha,
        "0 with method.align_weight above 0, since a mixed image has no class of its own",
    )
    checks.one_of("method.penalty_on", config.penalty_on, ("score", "tanh"))
    checks.require(
        not network.has_batch_stats(info),
        "model.options.batch_norm",
        True,
        "False: an example's input gradient is not defined under batch norm (GradPU, section 3); "
        "networks without it are 'mlp', 'cnn7' and 'lenet', and 'small_cnn', 'cnn9' and 'cnn13' "
        "with model.options.batch_norm=False",
    )


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds GradPU."""
    c = config.method
    check(c, info, network_lib.build(config, info, embedding_dim=0, may_drop=True))
    batching = sections.batches(c, info)
    num_steps = c.num_epochs * batching.steps_per_epoch(info.n)

    def objective(forward, batch_stats, images, batch, key, scalars=None):
        # Eq. 6's ramp over all steps, k = 1 .. K: large weights from the start destabilise.
        beta = c.beta_max * (batch.step + 1) / num_steps
        terms = functools.partial(
            risks.gradpu, beta=beta, stop_weight_gradient=c.stop_weight_gradient
        )
        risk, batch_stats = _regularized(c, forward, batch_stats, images, batch.labeled, key, terms)
        alpha = (scalars or {}).get("alpha", c.alpha)
        if not scalars and not c.alpha:
            return risk, (batch_stats, {})

        def score(image):
            # Without batch norm there are no statistics.
            logit = forward({}, image[None], drops=False)[0].logits[0]
            return jnp.tanh(logit) if c.penalty_on == "tanh" else logit

        positives, unlabeled, mix, weights = pairs(
            key, images, batch.labeled, num_positives=batching.num_positives
        )
        penalty = risks.gradient_penalty(score, positives, unlabeled, mix, weights=weights)
        return risk + alpha * penalty, (batch_stats, {"risk": risk, "penalty": penalty})

    learnable = {"alpha": online.weight(c.alpha)}
    return classifier.minimize(config, info, objective, batching=batching, scalars=learnable)


def _regularized(
    config: ml_collections.ConfigDict,
    forward: classifier.Forward,
    batch_stats: Any,
    images: jax.Array,
    labeled: jax.Array,
    key: jax.Array,
    terms: Callable[[jax.Array, jax.Array], jax.Array],
) -> tuple[jax.Array, Any]:
    """The data terms of a batch with the noise and the mixup of the configuration.

    Mixup is that of Zhang et al. (ICLR 2018): one share `lam` and one order of the batch, and the
    terms with the labels of both images by `lam` and `1 - lam`.

    Returns:
      `(risk, batch_stats)`.
    """
    input_noise, mixup_alpha = (config.get(name, 0.0) for name in _REGULARIZERS)
    # The first folds of the key are those that draw the pairs of the penalty.
    if input_noise:
        noise = jax.random.normal(jax.random.fold_in(key, 2), images.shape, images.dtype)
        images += input_noise * noise
    if not mixup_alpha:
        outputs, batch_stats = forward(batch_stats, images)
        return terms(outputs.logits, labeled), batch_stats
    order = jax.random.permutation(jax.random.fold_in(key, 3), len(images))
    lam = mixup.draw_lam(jax.random.fold_in(key, 4), mixup_alpha)
    outputs, batch_stats = forward(batch_stats, mixup.mix(images, images[order], lam))
    own, partners = (terms(outputs.logits, x) for x in (labeled, labeled[order]))
    return mixup.mix(own, partners, lam), batch_stats


def pairs(
    key: jax.Array, images: jax.Array, labeled: jax.Array, *, num_positives: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array | None]:
    """Pairs of a positive and an unlabeled image for the penalty (Algorithm 1).

    The larger set is used as it is, the smaller one drawn with replacement up to its size.

    Args:
      key: random key.
      images: `[batch, ...]`.
      labeled: 1 for labelled positives, `[batch]`.
      num_positives: how many rows are positive, which then are the first; 0 if that is random.

    Returns:
      `(positives, unlabeled, mix, weights)`: images `[pairs, ...]` twice, uniform shares `[pairs]`,
      and 1 or 0 `[pairs]` for pairs that exist, or None if all do.
    """
    mix_key, draw_key = jax.random.split(key)
    size = images.shape[0]
    if num_positives:
        positives, unlabeled = images[:num_positives], images[num_positives:]
        larger = max(num_positives, size - num_positives)
        draw = jax.random.uniform(draw_key, [larger])
        if num_positives < larger:
            positives = positives[_place(draw, num_positives)]
        elif larger > size - num_positives:
            unlabeled = unlabeled[_place(draw, size - num_positives)]
        return positives, unlabeled, jax.random.uniform(mix_key, [larger]), None
    num_labeled = jnp.sum(labeled > 0)
    num_unlabeled = size - num_labeled
    count = jnp.maximum(num_labeled, num_unlabeled)
    row, draw = jnp.arange(size), jax.random.uniform(draw_key, [size])

    def rows(order, how_many):
        resampled = jnp.where(how_many < count, _place(draw, how_many), row)
        return images[order[jnp.minimum(resampled, size - 1)]]

    exists = (row < count) & (num_labeled > 0) & (num_unlabeled > 0)
    return (
        rows(jnp.argsort(labeled <= 0, stable=True), num_labeled),
        rows(jnp.argsort(labeled > 0, stable=True), num_unlabeled),
        jax.random.uniform(mix_key, [size]),
        exists.astype(images.dtype),
    )


def _place(draw: jax.Array, count: int | jax.Array) -> jax.Array:
    """A uniform place in `range(count)` from uniform numbers in [0, 1)."""
    return jnp.minimum(jnp.floor(draw * count).astype(jnp.int32), count - 1)
