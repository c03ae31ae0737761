"""PUUPL: pseudo-labels that an ensemble is sure of, in rounds (Dorigatti et al., arXiv:2201.13192).

Each round trains a few networks from scratch on P, U and the pseudo-labels so far. Where they agree
on an unlabeled example, which is measured by the mutual information between the prediction and the
choice of a network, the example gets their mean probability as a soft label for the rounds to come;
a label on which they come to disagree is withdrawn. Where the description leaves a choice:
- all networks see the same batches and start every round from the weights of the first round, each
  from its own (the authors' published settings for another data set do that too);
- a pseudo-label keeps the value it was given (likewise);
- examples with a pseudo-label stay in U, where the risk needs a sample of the whole population, and
  those that happen to be in a batch are its pseudo-labelled part;
- uncertainties are in nats, at most log 2.
The published rounds end when a PU validation set no longer improves. Here their number is fixed
(`num_epochs / round_epochs`), and that rule is to report the epoch that a PU validation set
prefers: `data.num_validation` and `run.selection`.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods import imbalanced_nnpu, nnpu
from pujax.methods._common import classifier, sections
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods.base import Method, Stage
from pujax.methods.puupl import ensemble
from pujax.methods.puupl.networks import Networks

ROUND_LENGTHS = ("round_epochs",)


class State(NamedTuple):
    """Everything that training changes; trees of networks have a leading axis `[num_nets]`.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state of all networks.
      seeds: uint32 `[num_nets, ...]`, the key data that each network starts from in every round.
      is_pseudo: bool `[n]`, which unlabeled examples have a pseudo-label.
      targets: float32 `[n]`: 1 for labelled positives, the pseudo-label where there is one, else
        the ensemble's probability at the end of the last round (0 before).
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    seeds: jax.Array
    is_pseudo: jax.Array
    targets: jax.Array


def default_config() -> ml_collections.ConfigDict:
    """Baseline settings, rounds, and the paper's numbers as recalled, not verified.

    Recalled are `num_nets`, `pseudo_weight`, `max_new`, `label_below` and `withdraw_above`. The
    optimizer's settings and the length of a round are this package's. `risk` is 'nnpu' or
    'imbalanced_nnpu', for the balanced risk of a population with `target_prior`.
    """
    return sections.baseline_config(
        "puupl",
        num_epochs=200,
        round_epochs=20,
        batching="separate",
        num_nets=2,
        pseudo_weight=0.1,
        max_new=1000,
        label_below=0.05,
        withdraw_above=0.35,
        risk="nnpu",
        target_prior=0.5,
        **nnpu.risk_config(),
    )


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    sections.check(config)
    checks.at_least("method.round_epochs", config.round_epochs, 1)
    checks.require(
        config.num_epochs % config.round_epochs == 0 and config.num_epochs > config.round_epochs,
        "method.num_epochs",
        config.num_epochs,
        f"two or more rounds of method.round_epochs={config.round_epochs} epochs",
    )
    checks.at_least("method.num_nets", config.num_nets, 2)
    # The steps of LARS depend on the norms of a network's own weights, and here all are one.
    own = (name for name in optimizer_lib.OPTIMIZERS if name != "lars")
    checks.one_of("method.optimizer", config.optimizer, own)
    checks.between("method.pseudo_weight", config.pseudo_weight, 0, 1)
    checks.at_least("method.max_new", config.max_new, 0)
    checks.at_least("method.label_below", config.label_below, 0)
    # A label that is withdrawn must not be given back in the same round.
    checks.at_least("method.withdraw_above", config.withdraw_above, config.label_below)
    checks.one_of("method.risk", config.risk, ("nnpu", "imbalanced_nnpu"))
    checks.between("method.target_prior", config.target_prior, 0, 1, include="neither")


def pu_risk(
    config: ml_collections.ConfigDict, info: DataInfo
) -> Callable[[jax.Array, jax.Array], jax.Array]:
    """The risk `(scores, labeled) -> scalar` that `config.risk` names."""
    module = nnpu if config.risk == "nnpu" else imbalanced_nnpu
    return module.risk(config, info)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds PUUPL for a resolved configuration and a data set's numbers."""
    c = config.method
    check(c)
    networks = Networks(network_lib.build(config, info, embedding_dim=0), c.num_nets)
    optimizer = optimizer_lib.build(c, num_epochs=c.round_epochs)
    training = _Training(c, networks, optimizer, pu_risk(c, info))

    @jax.jit
    def scores_of(state: State, inputs: jax.Array) -> jax.Array:
        return networks.infer(state.params, state.batch_stats, inputs).logits

    def embed(state: State, inputs: jax.Array) -> jax.Array:
        features = networks.infer(state.params, state.batch_stats, inputs).features
        return jnp.moveaxis(features, 0, 1).reshape(inputs.shape[0], -1)

    stage = Stage(
        "train",
        c.num_epochs,
        training.init,
        training.step,
        sections.batches(c, info),
        refresh=_begin_round(config, training, scores_of),
        refresh_every=c.round_epochs,
        refresh_restarts=True,
    )
    return Method(
        stages=(stage,),
        predict=lambda state, inputs: ensemble.mean_score(scores_of(state, inputs)),
        embed=embed,
        soft_labels=lambda state: state.targets,
    )


class _Training(NamedTuple):
    """The first state, the step, and the networks of a new round.

    Attributes:
      config: the method's section.
      networks: of the ensemble.
      optimizer: of all networks.
      risk: `(scores, labeled) -> scalar`.
    """

    config: ml_collections.ConfigDict
    networks: Networks
    optimizer: optimizer_lib.Optimizer
    risk: Callable[[jax.Array, jax.Array], jax.Array]

    def init(self, key: jax.Array, previous: State | None, data: TrainingData) -> State:
        """Fresh networks without a pseudo-label."""
        if previous is not None:
            return previous
        seeds = jax.random.key_data(jax.random.split(key, self.config.num_nets))
        params, batch_stats = self.networks.init(seeds, data.inputs[:2], data.encoder)
        return State(
            params=params,
            batch_stats=batch_stats,
            opt_state=self.optimizer.init(params),
            seeds=seeds,
            is_pseudo=jnp.zeros_like(data.labeled),
            targets=data.labeled.astype(jnp.float32),
        )

    def again(self, state: State, data: TrainingData) -> State:
        """The networks as the first round began with them."""
        params, batch_stats = self.networks.init(state.seeds, data.inputs, data.encoder)
        opt_state = self.optimizer.init(params)
        return state._replace(params=params, batch_stats=batch_stats, opt_state=opt_state)

    def step(self, state: State, batch: Batch, key: jax.Array):
        """A step of all networks on one batch."""
        c, network = self.config, self.networks.network
        images = classifier.weak_view(c, network, batch.inputs, key)
        is_pseudo, targets = state.is_pseudo[batch.ids], state.targets[batch.ids]
        epoch = jnp.mod(batch.progress, c.round_epochs)

        def loss_of(params, batch_stats):
            outputs, stats = network.train_pass(params, batch_stats, images)
            pu = self.risk(outputs.logits, batch.labeled)
            pseudo = ensemble.pseudo_loss(outputs.logits, targets, is_pseudo)
            loss = c.pseudo_weight * pseudo + (1 - c.pseudo_weight) * pu
            return loss, (stats, {"loss": loss, "loss_pu": pu, "loss_pseudo": pseudo})

        gradient, (batch_stats, metrics) = self.networks.each(
            jax.grad(loss_of, has_aux=True), state.params, state.batch_stats
        )
        state = optimizer_lib.apply(self.optimizer, state, gradient, epoch)
        state = state._replace(batch_stats=batch_stats)
        metrics = {name: jnp.mean(values) for name, values in metrics.items()}
        return state, metrics | {"pseudo_labels": jnp.sum(state.is_pseudo).astype(jnp.float32)}


def _begin_round(
    config: ml_collections.ConfigDict,
    training: _Training,
    scores_of: Callable[[State, jax.Array], jax.Array],
) -> Callable[..., State]:
    """What begins a round: pseudo-labels by the ensemble as it is, and fresh networks."""

    @jax.jit
    def scores_by_example(state: State, inputs: jax.Array) -> jax.Array:
        return scores_of(state, inputs).T

    @jax.jit
    def next_round(state: State, scores, data: TrainingData, key) -> State:
        return training.again(_relabeled(config.method, state, scores, data.labeled, key), data)

    def begin(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        if epoch == 0:  # the first round starts from `init`
            return state
        scores = batching_lib.map_batches(
            scores_by_example,
            data.inputs,
            batch_size=config.run.eval_batch_size,
            args=(state,),
        )
        # Two rows tell the networks what inputs look like; the rest is not compiled in.
        return next_round(state, scores.T, data._replace(inputs=data.inputs[:2]), key)

    return begin


def _relabeled(config, state: State, scores: jax.Array, labeled: jax.Array, key) -> State:
    """New pseudo-labels by the ensemble's scores `[num_nets, n]`; older ones keep their value."""
    score = ensemble.mean_score(scores)
    is_pseudo, is_new = ensemble.select(
        key,
        ensemble.mutual_information(scores),
        score,
        state.is_pseudo,
        labeled=labeled,
        label_below=config.label_below,
        withdraw_above=config.withdraw_above,
        max_new=config.max_new,
    )
    is_kept = (is_pseudo & ~is_new) | labeled
    targets = jnp.where(is_kept, state.targets, jax.nn.sigmoid(score))
    return state._replace(is_pseudo=is_pseudo, targets=targets)
