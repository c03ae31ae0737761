"""A linear PU classifier on fixed features: trained as one program, for many priors at once.

This is the second half of ImPULSeS as a function of arrays, for features from anywhere; `pujax.
methods.impulses` trains the same step by step, within a run, but for the learning rate. By default
that of `fit` is the published one, 3e-4, for any number d of features, while the method's is
3e-4 * 2048 / d: `learning_rate=pujax.methods.impulses.head_rate.linear(d)` makes them the same.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.typing import ArrayLike

from pujax import arrays, checks, risks

Risk = Callable[..., jax.Array]
"""A PU risk: `risk(scores, labeled, prior=prior)` of scores and labels 1 or 0 `[n]`, a scalar."""


class LinearHead(NamedTuple):
    """A linear classifier.

    Attributes:
      weights: `[d]`.
      bias: scalar.
    """

    weights: jax.Array
    bias: jax.Array

    def __call__(self, features: ArrayLike) -> jax.Array:
        """Scores `[batch]` of features `[batch, d]`; positive iff above 0."""
        product = jnp.matmul(
            jnp.asarray(features), self.weights, precision=jax.lax.Precision.HIGHEST
        )
        return product + self.bias


def fit(
    key: jax.Array,
    features: ArrayLike,
    labeled: ArrayLike,
    *,
    prior: float | jax.Array,
    risk: Risk = risks.imbalanced_nnpu,
    num_epochs: int = 100,
    batch_size: int = 256,
    learning_rate: float = 3e-4,
    watched: ArrayLike | None = None,
) -> tuple[LinearHead, jax.Array | None]:
    """Trains a linear classifier with Adam on a PU risk.

    A pure function: under `jax.vmap` over `prior` or `key` it trains many heads as one program. The
    defaults are those of ImPULSeS (Dorigatti and others, 2022; imbalanced nnPU of Su, Chen and
    Xu, IJCAI 2021); batches are shuffled again in every epoch, a last partial batch is left out.
    Its derivatives are NaN if a feature is 0 in all rows of the first batch (a rare column of
    categories, say), since Adam divides by a root whose derivative at 0 is infinite: leave such
    features out before.

    Args:
      key: random key of the initial weights and of the order of the rows.
      features: `[n, d]`, P and U.
      labeled: `[n]`, 1 for a labelled positive and 0 for unlabeled.
      prior: share of positives in U that the risk assumes, in (0, 1).
      risk: called as `risk(scores, labeled, prior=prior)`.
      num_epochs: passes over the features.
      batch_size: rows per step, at most n.
      learning_rate: of Adam, constant.
      watched: `[t, d]`, features to score after every epoch, or None.

    Returns:
      The head, and the scores of `watched` after every epoch, `[num_epochs, t]`, or None.

    Raises:
      ValueError: naming the argument, if a shape does not fit or a number is out of its range.
    """
    arrays.check_key(key)
    accepted = "a function called as risk(scores, labeled, prior=prior)"
    checks.require(callable(risk), "risk", risk, accepted)
    prior_accepted = "a number strictly between 0 and 1; several at once by jax.vmap"
    known = arrays.on_host(prior)
    is_share = known is None or (checks.is_number(prior) and 0 < float(known) < 1)
    checks.require(np.shape(prior) == () and is_share, "prior", prior, prior_accepted)
    arrays.check_labeled(labeled)
    features, labeled = arrays.real("features", features), jnp.asarray(labeled)
    watched = None if watched is None else arrays.real("watched", watched)
    _check(features, labeled, num_epochs, batch_size, learning_rate, watched)
    features = features.astype(jnp.promote_types(features.dtype, jnp.float32))
    labeled = labeled.astype(features.dtype)
    (n, d), steps = features.shape, features.shape[0] // batch_size
    initial_key, order_key = jax.random.split(key)
    bound = 1 / d**0.5
    # PyTorch's initialisation of a linear layer, the same for the weights and the bias.
    initial = jax.random.uniform(initial_key, [d + 1], features.dtype, -bound, bound)
    head = LinearHead(initial[:d], initial[d])
    optimizer = optax.adam(learning_rate)

    def loss_of(head, rows):
        return risk(head(features[rows]), labeled[rows], prior=prior)

    def step(carry, rows):
        head, moments = carry
        updates, moments = optimizer.update(jax.grad(loss_of)(head, rows), moments)
        return (optax.apply_updates(head, updates), moments), None

    def epoch(carry, key):
        order = jax.random.permutation(key, n)[: steps * batch_size]
        carry, _ = jax.lax.scan(step, carry, order.reshape(steps, batch_size))
        return carry, None if watched is None else carry[0](watched)

    keys = jax.random.split(order_key, num_epochs)
    (head, _), scores = jax.lax.scan(epoch, (head, optimizer.init(head)), keys)
    return head, scores


def _check(features, labeled, num_epochs, batch_size, learning_rate, watched) -> None:
    if features.ndim != 2:
        raise ValueError(f"features has shape {features.shape}; accepted: [n, d]")
    n, d = features.shape
    if labeled.shape != (n,):
        raise ValueError(f"labeled has shape {labeled.shape}; accepted: [n] = {(n,)}")
    if watched is not None and (watched.ndim != 2 or watched.shape[1] != d):
        raise ValueError(f"watched has shape {watched.shape}; accepted: [t, d] with d = {d}")
    if d < 1:
        raise ValueError(f"features has shape {features.shape}; accepted: [n, d] with d from 1")
    checks.whole_number("batch_size", batch_size, 1)
    if batch_size > n:
        raise ValueError(f"batch_size is {batch_size}; accepted: 1 to {n}, the number of rows")
    checks.whole_number("num_epochs", num_epochs, 1)
    arrays.check_shape_of_number("learning_rate", learning_rate)
    if arrays.on_host(learning_rate) is not None:
        checks.positive("learning_rate", learning_rate)
