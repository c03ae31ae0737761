"""Robust-PU: self-paced weights for P and U after an nnPU start (Zhu et al., KDD 2023).

The first stage is nnPU. Then come episodes: every example, P and U, gets a weight that falls with
its loss under its nominal label (U is negative), as the network at the start of the episode sees it
in evaluation mode (`risks.hardness`, `risks.self_paced_weights`); a new optimizer trains the
weighted cross-entropy for a few epochs. The tolerance grows from episode to episode, so that the
surest examples come first. What differs from the authors' code:
- weights belong to examples and not to places in a batch: there data are shuffled anew every
  episode and stored weights are not, so that `smoothing` mixes those of different examples;
- the number of episodes is fixed, and `run.selection` says which epoch is reported. There the best
  episode by 500 true labels is kept and five without a better one end the training;
- the episodes start from the epoch of nnPU that `pretrain_selection` prefers on a part held out.
  There it is the best one by the same labels;
- a 'convex' tolerance stays at its end after `tolerance_episodes`; there it falls again;
- nnPU has this package's defaults, see `nnpu`.
Not offered are the weights called mixture, focal hardness and hardness by distances of features, a
network that starts anew in every episode, and a first stage of another risk.
A public implementation takes U's loss under the positive label, which gives likely positives of U
the large weights; tests show that ours does not.
"""

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks, risks
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods import nnpu
from pujax.methods._common import classifier, sections
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods.base import Method, Stage

SELECTION = "vpu_risk"
STAGE_LENGTHS = ("pretrain_epochs",)

_PRETRAIN_SELECTIONS = (
    *("last", "proxy_accuracy", "nnpu_risk", "vpu_risk"),
    *("proxy_accuracy_vpu", "proxy_auc"),
)
"""Rules for the epoch of nnPU that the episodes start from. The authors look at true labels."""
_SCHEDULES = ("constant", "linear", "convex", "concave", "exponential")
_LITTLE = 1e-3  # mean weights below which an episode hardly trains
_ALL = 0.95  # mean weight of U above which nearly all of U counts as negative, unless it is so
_NO_EPISODE = (
    "no episode follows nnPU, whose classifier is the result: method.num_epochs is as large as "
    "method.pretrain_epochs, which it counts, too"
)


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state of the episode.
      weights: float32 `[n]`, of the episode; 1 before the first.
      mean_positive: scalar, their mean over P.
      mean_unlabeled: scalar, their mean over U.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    weights: jax.Array
    mean_positive: jax.Array
    mean_unlabeled: jax.Array


def default_config() -> ml_collections.ConfigDict:
    """nnPU as in the published MNIST command, five episodes of five epochs, batches of 128.

    That command has up to a hundred episodes of twenty epochs at a rate of 0.01, and stops by true
    labels. Without them nothing says when to stop, and the weights of U rise as a network learns
    its labels by heart. Rate, lengths and `pretrain_selection` are those that held-out P and U
    prefer (`configs/sweeps/method_choices.py`): nnPU may diverge before its 100 epochs are over,
    and long episodes at 0.01 may lose what it has found.
    `num_epochs` counts the nnPU stage (`pretrain_epochs`), too. A tolerance runs from its start to
    its end in `tolerance_episodes` by `tolerance_schedule`. Five episodes take the steps 0 to 4 of
    it, and do not reach the end. Fields of the risk and of how P is drawn are the nnPU stage's;
    episodes shuffle P and U together.
    """
    return sections.baseline_config(
        "robust_pu",
        num_epochs=125,
        batch_size=128,
        learning_rate=1e-3,
        weight_decay=0.0,
        batching="separate",
        positive_share=0.125,
        pretrain_epochs=100,
        pretrain_learning_rate=1e-3,
        pretrain_weight_decay=1e-4,
        pretrain_selection="proxy_accuracy",
        episode_epochs=5,
        hardness="logistic",
        weights="welsch",
        positive_temperature=1.0,
        unlabeled_temperature=1.3,
        tolerance_schedule="linear",
        tolerance_episodes=5,
        positive_tolerance=0.1,
        positive_tolerance_end=1.0,
        unlabeled_tolerance=0.11,
        unlabeled_tolerance_end=1.0,
        smoothing=0.0,
        keep_positive=True,
        **nnpu.risk_config(),
    )


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    sections.check(config)
    checks.between("method.pretrain_epochs", config.pretrain_epochs, 0, config.num_epochs)
    checks.positive("method.pretrain_learning_rate", config.pretrain_learning_rate)
    checks.at_least("method.pretrain_weight_decay", config.pretrain_weight_decay, 0)
    rule = config.pretrain_selection
    checks.one_of("method.pretrain_selection", rule, _PRETRAIN_SELECTIONS)
    for name in ("episode_epochs", "tolerance_episodes"):
        checks.whole_number(f"method.{name}", config[name], 1)
    checks.one_of("method.hardness", config.hardness, risks.HARDNESS_LOSSES)
    checks.one_of("method.weights", config.weights, risks.SELF_PACED_SCHEMES)
    checks.one_of("method.tolerance_schedule", config.tolerance_schedule, _SCHEDULES)
    for group in ("positive", "unlabeled"):
        checks.positive(f"method.{group}_temperature", config[f"{group}_temperature"])
        for end in ("", "_end"):
            name = f"{group}_tolerance{end}"
            checks.positive(f"method.{name}", config[name])
    checks.between("method.smoothing", config.smoothing, 0, 1, include="low")


def tolerance(
    episode: int, ends: tuple[float, float], *, num_episodes: int, schedule: str
) -> float:
    """The tolerance of an episode.

    With `a` and `m` the ends and `s = episode / num_episodes`, at most 1, it is `a + (m - a) r`
    where r is 0 ('constant'), s ('linear'), `sin(pi s / 2)` ('convex'), `1 - cos(pi s / 2)`
    ('concave', as the authors' code names them), or `1 - 0.5^episode` ('exponential').

    Args:
      episode: from 0.
      ends: of the first episode, and of those after `num_episodes`; 'constant' stays at the first,
        and 'exponential' comes nearer to the second by half of the rest with every episode.
      num_episodes: until the end is reached; those two do not ask.
      schedule: one of `_SCHEDULES`.
    """
    start, end = ends
    share = min(episode / num_episodes, 1)
    risen = {
        "constant": 0.0,
        "linear": share,
        "convex": math.sin(math.pi * share / 2),
        "concave": 1 - math.cos(math.pi * share / 2),
        "exponential": 1 - 0.5**episode,
    }
    return start + (end - start) * risen[schedule]


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds Robust-PU for a resolved configuration and a data set's numbers."""
    c = config.method
    check(c)
    network = network_lib.build(config, info, embedding_dim=0)
    first_config = ml_collections.ConfigDict(c.to_dict())
    first_config.learning_rate = c.pretrain_learning_rate
    first_config.weight_decay = c.pretrain_weight_decay
    pu_risk = nnpu.risk(c, info)

    def nnpu_loss(scores: jax.Array, state: State, batch: Batch) -> jax.Array:
        del state
        return pu_risk(scores, batch.labeled)

    def weighted_loss(scores: jax.Array, state: State, batch: Batch) -> jax.Array:
        weights = state.weights[batch.ids]
        return risks.weighted_cross_entropy(scores, batch.labeled, weights=weights)

    def stage(name: str, length: int, settings: Any, loss: Any, batching: Batching) -> Stage:
        optimizer = optimizer_lib.build(settings, num_epochs=max(length, 1))
        training = _Training(c, network, optimizer, loss)
        return Stage(name, length, training.init, training.step, batching)

    def infer(state: State, inputs: jax.Array):
        return network.infer(state.params, state.batch_stats, inputs)

    first = stage("nnpu", c.pretrain_epochs, first_config, nnpu_loss, sections.batches(c, info))
    first = first._replace(selection=c.pretrain_selection)
    length = c.num_epochs - c.pretrain_epochs
    episodes = stage("episodes", length, c, weighted_loss, Batching(c.batch_size))
    episodes = episodes._replace(
        refresh=_begin_episode(config, network), refresh_every=c.episode_epochs
    )
    return Method(
        stages=tuple(part for part in (first, episodes) if part.num_epochs),
        predict=lambda state, inputs: infer(state, inputs).logits,
        embed=lambda state, inputs: infer(state, inputs).features,
        estimates=lambda state: {
            "mean_weight_positive": state.mean_positive,
            "mean_weight_unlabeled": state.mean_unlabeled,
        },
        diagnose=(
            functools.partial(diagnose, prior=info.prior_unlabeled)
            if length
            else lambda _: [_NO_EPISODE]
        ),
    )


class _Training(NamedTuple):
    """The first state and the step of a stage.

    Attributes:
      config: the method's section.
      network: of both stages.
      optimizer: of this stage.
      loss: `loss(scores, state, batch)`, a scalar.
    """

    config: ml_collections.ConfigDict
    network: network_lib.Network
    optimizer: optimizer_lib.Optimizer
    loss: Callable[[jax.Array, State, Batch], jax.Array]

    def init(self, key: jax.Array, previous: State | None, data: TrainingData) -> State:
        """A fresh network, or that of the stage before with a new optimizer."""
        if previous is not None:
            return previous._replace(opt_state=self.optimizer.init(previous.params))
        params, batch_stats = self.network.init(key, data.inputs[:2], data.encoder)
        weights, mean = jnp.ones(data.labeled.shape), jnp.ones([])
        return State(params, batch_stats, self.optimizer.init(params), weights, mean, mean)

    def step(self, state: State, batch: Batch, key: jax.Array):
        """A step of the network."""
        images = classifier.weak_view(self.config, self.network, batch.inputs, key)

        def loss_of(params):
            outputs, stats = self.network.train_pass(params, state.batch_stats, images)
            return self.loss(outputs.logits, state, batch), stats

        state, total, stats = optimizer_lib.descend(
            self.optimizer, state, loss_of, batch.stage_progress
        )
        return state._replace(batch_stats=stats), {"loss": total}


def _begin_episode(
    config: ml_collections.ConfigDict, network: network_lib.Network
) -> Callable[..., State]:
    """What begins an episode: weights by the network as it is, and a new optimizer."""
    c = config.method
    score = jax.jit(lambda params, stats, inputs: network.infer(params, stats, inputs).logits)
    optimizer = optimizer_lib.build(c, num_epochs=max(c.num_epochs - c.pretrain_epochs, 1))

    @jax.jit
    def weighted(state: State, scores, labeled: jax.Array, of_p, of_u, smoothing) -> State:
        hard = risks.hardness(
            scores,
            labeled,
            loss=c.hardness,
            positive_temperature=c.positive_temperature,
            unlabeled_temperature=c.unlabeled_temperature,
        )
        tolerances = jnp.where(labeled, of_p, of_u)
        weights = risks.self_paced_weights(hard, tolerance=tolerances, scheme=c.weights)
        weights = smoothing * state.weights + (1 - smoothing) * weights
        return state._replace(
            opt_state=optimizer.init(state.params),
            weights=weights,
            mean_positive=jnp.mean(weights, where=labeled),
            mean_unlabeled=jnp.mean(weights, where=~labeled),
        )

    def begin(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        del key
        episode = epoch // c.episode_epochs
        scores = batching_lib.map_batches(
            score,
            data.inputs,
            batch_size=config.run.eval_batch_size,
            args=(state.params, state.batch_stats),
        )
        plan: Any = {"num_episodes": c.tolerance_episodes, "schedule": c.tolerance_schedule}
        of_p, of_u = (  # arrays, so that another number is not another program
            jnp.float32(tolerance(episode, ends, **plan))
            for ends in (
                (c.positive_tolerance, c.positive_tolerance_end),
                (c.unlabeled_tolerance, c.unlabeled_tolerance_end),
            )
        )
        smoothing = jnp.float32(c.smoothing if episode else 0)  # there are no older weights
        return weighted(state, scores, data.labeled, of_p, of_u, smoothing)

    return begin


def diagnose(estimates: dict[str, float], *, prior: float = math.nan) -> list[str]:
    """What to distrust about estimates named as in the rows of a run.

    Args:
      estimates: the mean weights of P and U.
      prior: share of positives in U, NaN where unknown. With all positives of U left out and all
        negatives kept the mean weight of U is `1 - prior`, and is too high halfway from there to 1.
    """
    weights = estimates["mean_weight_positive"], estimates["mean_weight_unlabeled"]
    limit = _ALL if math.isnan(prior) else max(_ALL, 1 - prior / 2)
    if weights[1] > limit:
        return [
            f"the mean weight of U is {weights[1]:.3f}, so that its positives count as negatives, "
            "too: the network knows its labels by heart; train fewer epochs (method.num_epochs)"
        ]
    if max(weights) >= _LITTLE:
        return []
    return [
        f"the mean weights of P and U are {weights[0]:.1e} and {weights[1]:.1e}, so that the last "
        "episode hardly trained: the scores are small for such a tolerance; raise "
        "method.positive_tolerance and method.unlabeled_tolerance"
    ]
