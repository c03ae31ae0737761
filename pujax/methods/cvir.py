"""CVIR and (TED)^n: U is negative but for the likely positives (Garg et al., NeurIPS 2021).

After a warm-up of P against all of U, every epoch begins with a pass that scores U, drops as large
a share of it as it holds positives, the highest scores first, and trains P against the rest by
`risks.cvir`. With `alpha='known'` that share is the data's (CVIR). With `alpha='estimated'` it is
the best-bin estimate on P and U that are held out of training, again before every epoch (TED^n);
`priors.ted_n` is the same alternation for tables alone; both share how examples are dropped and the
estimate, but it drops by the last estimate, reports the median of ten, and holds out half.

Garg, Wu, Smola, Balakrishnan, Lipton, "Mixture Proportion Estimation and PU Learning: A Modern
Approach", NeurIPS 2021. What differs from the authors' code:
- the classifier has one logit where theirs has two, whose difference takes steps twice as long;
- both variants warm up; there CVIR starts at once, from the ranking of a random network;
- U is ranked as it is; there through the random crops and flips of training;
- what is held out for the estimate is training data; there it is the test set's;
- the share that is dropped is the median of the last estimates and not the last one;
- a batch of which nothing of U is kept trains P; there it is left out.
The share is that of positives in U, which in one-sample data is below the population's; a public
implementation drops as many as the population has, and weighs P and U by that, too.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np

from pujax import checks, risks
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import calibration, classifier, holdout, host, sections, threshold
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods.base import Method, Stage
from pujax.priors.ted_n import best_bin_value, feeds_on_itself, keep, settled

STAGE_LENGTHS = ("warmup_epochs",)
_LAST = 5
"""Estimates whose median is the share that is dropped."""
_UNKNOWN = -1.0


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state.
      kept: bool `[n]`, which examples of U train as negatives.
      held: bool `[n]`, examples that are held out for the estimate.
      history: float32 `[5]`, the last estimates, the latest last; -1 where there is none, or the
        scores told nothing.
      share: scalar, the share of positives in U by these estimates, or the data's; 0 before.
      first: scalar, `share` as the warm-up left it.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    kept: jax.Array
    held: jax.Array
    history: jax.Array
    share: jax.Array
    first: jax.Array


def default_config() -> ml_collections.ConfigDict:
    """Momentum and decay of the paper, a rate of its logs, and fewer epochs; half of a batch are P.

    Rate and warm-up are those of the candidate that held-out P and U prefer on four problems
    (`configs/sweeps/method_choices.py`). Where labels are few, a network with batch norm soon knows
    by heart which examples are labelled, and then ranks U by that: the specification's warm-up of
    20 epochs is too long for it.

    `alpha` is 'known' (the prior of the data, corrected for one-sample data) or 'estimated'.
    `num_epochs` counts the warm-up, too; an epoch passes once over U. `hold_out_ratio` of P and of
    U, at most `hold_out_max` of each, are held out where alpha is estimated. `threshold`: 'zero' is
    published; 'prior' leaves the share of positives of U, that is known or estimated, above the
    cut; 'auto' is 'prior' where the share is estimated, or known and neither 0 nor 1. While no
    estimate tells P from U, in the warm-up too, the cut is 0.
    """
    return sections.default_config(
        "cvir",
        num_epochs=120,
        batch_size=400,
        batching="separate",
        positive_share=0.5,
        augment=False,
        learning_rate=0.05,
        weight_decay=5e-4,
        lr_schedule="constant",
        alpha="known",
        warmup_epochs=5,
        hold_out_ratio=0.2,
        hold_out_max=2500,
        threshold="zero",
    )


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be."""
    sections.check(config)
    checks.one_of("method.batching", config.batching, ("separate",))
    checks.one_of("method.alpha", config.alpha, ("known", "estimated"))
    checks.between("method.warmup_epochs", config.warmup_epochs, 0, config.num_epochs)
    checks.between("method.hold_out_ratio", config.hold_out_ratio, 0, 1, include="neither")
    checks.whole_number("method.hold_out_max", config.hold_out_max, 2)
    if config.alpha == "known":
        return
    for name, count, held in zip(
        ("P", "U"), (info.n_p, info.n_u), num_held_out(config, info), strict=True
    ):
        accepted = f"a share that holds at least 2 of the {count} of {name} out and leaves 1"
        ok = 2 <= held < count
        checks.require(ok, "method.hold_out_ratio", config.hold_out_ratio, accepted)
    # An estimate needs a network that tells P from U.
    accepted = "at least 1 while method.alpha is 'estimated'"
    checks.require(config.warmup_epochs > 0, "method.warmup_epochs", config.warmup_epochs, accepted)


def num_held_out(config: ml_collections.ConfigDict, info: DataInfo) -> tuple[int, int]:
    """How many of P, and of U, are held out of training."""
    if config.alpha == "known":
        return 0, 0
    p, u = (
        min(math.ceil(config.hold_out_ratio * count), config.hold_out_max)
        for count in (info.n_p, info.n_u)
    )
    return p, u


def updated(history: np.ndarray, estimate: float) -> tuple[np.ndarray, float]:
    """The last estimates with a new one, and the share of U that they ask to drop.

    Args:
      history: `[5]`, see `State`.
      estimate: the new one; NaN where the scores told nothing.

    Returns:
      `(history, share)`; after scores that told nothing the share is 0, and else the median.
    """
    known = not math.isnan(estimate)
    # In float64, so that the share of a single estimate is that estimate.
    history = np.append(history[1:].astype(np.float64), estimate if known else _UNKNOWN)
    told = np.where(history < 0, np.nan, history)
    share = settled(told, last=_LAST) if known else 0.0
    return history.astype(np.float32), share


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds CVIR, or TED^n where `alpha` is 'estimated'."""
    c = config.method
    check(c, info)
    network = network_lib.build(config, info, embedding_dim=0)
    training = _Training(c, info, network, optimizer_lib.build(c, num_epochs=c.num_epochs))
    is_known = c.alpha == "known"
    drop = _drop(config, network, calibration.unlabeled_prior(info) if is_known else None)
    batching = sections.once_through_unlabeled(sections.batches(c, info), info)

    def infer(state: State, inputs: jax.Array):
        return network.infer(state.params, state.batch_stats, inputs)

    parts = (training.init, training.step, batching)
    warmup = Stage("warmup", c.warmup_epochs, *parts)
    main = Stage("main", c.num_epochs - c.warmup_epochs, *parts, drop)
    method = Method(
        stages=tuple(part for part in (warmup, main) if part.num_epochs),
        predict=lambda state, inputs: infer(state, inputs).logits,
        embed=lambda state, inputs: infer(state, inputs).features,
        estimates=None if is_known else _estimates,
        diagnose=None if is_known else diagnose,
    )
    estimated = None if is_known else lambda state: state.share
    return threshold.wrap(method, config, info, estimated=estimated)


class _Training(NamedTuple):
    """The first state and the step of both stages.

    Attributes:
      config: the method's section.
      info: numbers of the data set.
      network: of both stages.
      optimizer: of both stages.
    """

    config: ml_collections.ConfigDict
    info: DataInfo
    network: network_lib.Network
    optimizer: optimizer_lib.Optimizer

    def init(self, key: jax.Array, previous: State | None, data: TrainingData) -> State:
        """A fresh network with all of U kept, or the state of the warm-up."""
        if previous is not None:
            return previous
        net_key, held_key = jax.random.split(key)
        params, batch_stats = self.network.init(net_key, data.inputs[:2], data.encoder)
        held_p, held_u = num_held_out(self.config, self.info)
        num_unlabeled = holdout.num_unlabeled(held_p, held_u, info=self.info, copies=data.copies)
        held = holdout.choose(
            held_key,
            data.labeled,
            num_positives=held_p,
            num_unlabeled=num_unlabeled,
            copies=data.copies,
        )
        return State(
            params=params,
            batch_stats=batch_stats,
            opt_state=self.optimizer.init(params),
            kept=~data.labeled,
            held=held,
            history=jnp.full([_LAST], _UNKNOWN),
            share=jnp.zeros([]),
            first=jnp.zeros([]),
        )

    def step(self, state: State, batch: Batch, key: jax.Array):
        """A step of P against what is kept of U."""
        inputs, ids = batch.inputs, batch.ids
        if self.config.alpha != "known":
            rows = holdout.replacements(state.held[ids], batch.labeled)
            inputs, ids = inputs[rows], ids[rows]
        images = classifier.weak_view(self.config, self.network, inputs, key)
        kept = state.kept[ids]

        def loss_of(params):
            outputs, stats = self.network.train_pass(params, state.batch_stats, images)
            return risks.cvir(outputs.logits, batch.labeled, kept=kept), stats

        state, loss, stats = optimizer_lib.descend(self.optimizer, state, loss_of, batch.progress)
        is_u = batch.labeled <= 0
        share = jnp.sum(kept & is_u) / jnp.maximum(jnp.sum(is_u), 1)
        return state._replace(batch_stats=stats), {"loss": loss, "kept": share}


def _drop(
    config: ml_collections.ConfigDict, network: network_lib.Network, known_share: float | None
) -> Callable[..., State]:
    """What begins an epoch: U is scored, and the likely positives are dropped.

    As many as the share says that is known, or else that the held-out scores give.
    """
    score = jax.jit(lambda params, stats, inputs: network.infer(params, stats, inputs).logits)

    def drop(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        del key
        scores = batching_lib.map_batches(
            score,
            data.inputs,
            batch_size=config.run.eval_batch_size,
            args=(state.params, state.batch_stats),
        )
        scores = host.on_host(scores, like=data.labeled).astype(np.float64)
        labeled, held = (host.on_host(x, like=data.labeled) for x in (data.labeled, state.held))
        if known_share is not None:
            history, share = np.asarray(state.history), known_share
        else:
            # Numbers that are not finite are the loop's to deal with; here they say nothing.
            sides = scores[held & labeled], scores[held & ~labeled]
            is_finite = all(np.isfinite(side).all() for side in sides)
            estimate = best_bin_value(*sides) if is_finite else math.nan
            history, share = updated(np.asarray(state.history), estimate)
        kept = ~labeled & ~held
        kept[kept] = keep(scores[kept], share)
        return state._replace(
            kept=jnp.asarray(kept),
            history=jnp.asarray(history),
            share=jnp.float32(share),
            first=state.first if epoch else jnp.float32(share),
        )

    return drop


def _estimates(state: State) -> dict[str, jax.Array]:
    return {"estimated_prior": state.share, "warmup_prior": state.first}


def diagnose(estimates: dict[str, float]) -> list[str]:
    """What to distrust about estimates named as in the rows of a run."""
    last, first = estimates["estimated_prior"], estimates["warmup_prior"]
    rise = feeds_on_itself(first, last)
    if rise:
        return [
            f"the estimated prior {rise}, since the more of U is dropped, the more looks positive"
        ]
    if last == 0:
        return ["the held-out scores do not tell P from U, so that nothing of U was dropped"]
    return []
