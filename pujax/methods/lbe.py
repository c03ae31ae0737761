"""LBE: labels whose probability depends on the example, by EM (Gong et al., TPAMI 2022).

Two networks with one score each: the classifier `h = P(y = 1 | x)` and the propensity
`eta = P(labelled | y = 1, x)`. What is observed has the probability `h eta`. Both first learn P
against U with the weights of `risks.weighted_bce` that make the groups equal. Then every round
(1) scores all examples and gives each its probability q to be positive (E-step,
`risks.lbe_posterior`), and (2) takes steps on subsets: the classifier's cross-entropy against q on
the easiest examples, and the propensity's, in which an example counts with q (M-step). No class
prior is needed.

The authors' archive could not be read; settings and steps are those that a re-implementation and a
toolbox report of it. What differs from them:
- a pass of the pretraining is one step on all examples where they fit into `batch_size`, and else
  as many steps as whole batches, without the rest; subsets are no larger than that either;
- subsets of a round are consecutive parts of shuffles of P and U and not drawn anew each time; one
  that begins in a shuffle and ends in the next can hold an example twice.
Of two public implementations that weigh an unlabeled example of the propensity's loss by 1 and not
by q, tests show that ours is none.
The likelihood alone does not tell h from eta: every split of their product is as likely, and what
decides is where the networks start. Look at several seeds.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks, risks
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import classifier as classifier_lib
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common import sections
from pujax.methods._common.network import Network
from pujax.methods.base import Method, Stage
from pujax.methods.pan import Player

SELECTION = "nnpu_risk"
SELECTION_WITHOUT_PRIOR = "last"
STAGE_LENGTHS = ("pretrain_epochs",)
_STARTS = ("classifier", "unweighted", "half")
_PRETRAIN_SELECTIONS = ("vpu_risk", "proxy_auc", "last")
"""Rules for the pass of the pretraining that the rounds start from; none needs a class prior."""


class State(NamedTuple):
    """Everything that training changes.

    Attributes:
      classifier: the network of h, which predicts.
      propensity: the network of eta.
      posterior: float32 `[n]`, q of the round; in the pretraining 1 for labelled positives, else 0.
      prior: scalar, the mean of q over U; 0 before the first round.
      frequency: scalar, the mean of eta over P: the share of such positives that are labelled.
    """

    classifier: Player
    propensity: Player
    posterior: jax.Array
    prior: jax.Array
    frequency: jax.Array


def default_config() -> ml_collections.ConfigDict:
    """Numbers of rounds, subsets and kept examples, and rate, as reported of the authors' code.

    `num_epochs` counts the passes of the pretraining and the rounds; `batch_size` is the most
    examples that a step takes. `propensity_start` is 'classifier' (pretrained like the classifier,
    as there), 'unweighted' (pretrained with all examples alike, so that it starts at the chance of
    an example to be labelled) or 'half' (0.5 for every example and no pretraining, which a public
    version for tables does). `pretrain_selection` says from which pass of the pretraining the
    rounds start where a part is held out: that of the least VPU risk, of the highest proxy AUC, or
    the last one. By then a network that is large for the labels knows by heart which examples are
    labelled. Without rounds it has no effect. With `keep_positives` the labelled positives of a
    subset all train the classifier and weigh as much as the unlabeled examples that are kept.
    """
    return sections.default_config(
        "lbe",
        optimizer="adam",
        lr_schedule="constant",
        learning_rate=1e-3,
        weight_decay=1e-4,
        num_epochs=120,
        batch_size=4096,
        augment=False,
        pretrain_epochs=100,
        pretrain_selection="vpu_risk",
        round_steps=40,
        subset_share=0.1,
        keep=0.8,
        epsilon=1e-5,
        propensity_start="classifier",
        keep_positives=False,
    )


def check(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Raises a ValueError for settings that cannot be."""
    sections.check(config)
    sections.require_joint(config)
    checks.between("method.pretrain_epochs", config.pretrain_epochs, 0, config.num_epochs)
    checks.one_of("method.pretrain_selection", config.pretrain_selection, _PRETRAIN_SELECTIONS)
    checks.whole_number("method.round_steps", config.round_steps, 1)
    checks.between("method.subset_share", config.subset_share, 0, 1, include="high")
    checks.between("method.keep", config.keep, 0, 1, include="high")
    checks.at_least("method.epsilon", config.epsilon, 0)
    checks.one_of("method.propensity_start", config.propensity_start, _STARTS)
    checks.whole_number("method.batch_size", config.batch_size, 2)
    accepted = f"a share that holds at least 2 of {info.n} examples"
    share = config.subset_share
    checks.require(int(share * info.n) >= 2, "method.subset_share", share, accepted)
    subset = min(int(share * info.n), config.batch_size)
    accepted = f"a share that keeps at least 1 of the {subset} examples of a step"
    checks.require(int(config.keep * subset) >= 1, "method.keep", config.keep, accepted)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds LBE for a resolved configuration and a data set's numbers."""
    c = config.method
    check(c, info)
    network = network_lib.build(config, info, embedding_dim=0)
    optimizer = optimizer_lib.build(c, num_epochs=c.num_epochs)
    whole = sections.batches(c, info, batch_size=min(info.n, c.batch_size))
    subset = min(int(c.subset_share * info.n), c.batch_size)
    part = sections.batches(c, info, batch_size=subset, steps=c.round_steps)
    labeled_share = info.n_p / info.n
    training = _Training(c, network, optimizer, labeled_share, subset * labeled_share)
    expect = _expectation(network, config.run.eval_batch_size)

    def infer(state: State, inputs: jax.Array):
        return network.infer(state.classifier.params, state.classifier.batch_stats, inputs)

    first = Stage("pretrain", c.pretrain_epochs, training.init, training.pretrain, whole)
    first = first._replace(selection=c.pretrain_selection)
    rounds = c.num_epochs - c.pretrain_epochs
    second = Stage("em", rounds, training.init, training.maximize, part, expect)
    return Method(
        stages=tuple(stage for stage in (first, second) if stage.num_epochs),
        predict=lambda state, inputs: infer(state, inputs).logits,
        embed=lambda state, inputs: infer(state, inputs).features,
        soft_labels=lambda state: state.posterior,
        estimates=lambda state: {
            "estimated_prior": state.prior,
            "label_frequency": state.frequency,
        },
    )


class _Training(NamedTuple):
    """The steps of the pretraining, and of the M-step.

    Attributes:
      config: the method's section.
      network: of both players, each with parameters of its own.
      optimizer: likewise.
      labeled_share: share of P in the data.
      labeled_per_subset: how many of P a subset of the M-step holds on average.
    """

    config: ml_collections.ConfigDict
    network: Network
    optimizer: optimizer_lib.Optimizer
    labeled_share: float
    labeled_per_subset: float

    def init(self, key: jax.Array, previous: State | None, data: TrainingData) -> State:
        """Two networks, or those of the stage before."""
        if previous is not None:  # new optimizers, which live through all rounds
            return previous._replace(
                classifier=self._fresh(*previous.classifier[:2]),
                propensity=self._fresh(*previous.propensity[:2]),
            )
        keys = jax.random.split(key)
        first, second = (self.network.init(k, data.inputs[:2], data.encoder) for k in keys)
        if self.config.propensity_start == "half":
            head = jax.tree.map(jnp.zeros_like, second[0]["classifier"])
            second = {**second[0], "classifier": head}, second[1]
        return State(
            classifier=self._fresh(*first),
            propensity=self._fresh(*second),
            posterior=data.labeled.astype(jnp.float32),
            prior=jnp.zeros([]),
            frequency=jnp.zeros([]),
        )

    def pretrain(self, state: State, batch: Batch, key: jax.Array):
        """A step of P against U, for each of the networks that does not start from zero."""
        c, share = self.config, self.labeled_share
        images = classifier_lib.weak_view(c, self.network, batch.inputs, key)

        def balanced(scores):
            weight = (1 - share) / share
            loss = risks.weighted_bce(scores, batch.labeled, positive_weight=weight)
            return share * loss, {}

        def unweighted(scores):
            return risks.weighted_bce(scores, batch.labeled, positive_weight=1), {}

        first, loss, _ = self._move(state.classifier, images, balanced, batch.progress)
        second, other = state.propensity, jnp.zeros([])
        if c.propensity_start != "half":
            loss_of = balanced if c.propensity_start == "classifier" else unweighted
            second, other, _ = self._move(state.propensity, images, loss_of, batch.progress)
        state = state._replace(classifier=first, propensity=second)
        return state, {"loss": loss, "loss_propensity": other}

    def maximize(self, state: State, batch: Batch, key: jax.Array):
        """A step of the M-step on a subset."""
        c = self.config
        images = classifier_lib.weak_view(c, self.network, batch.inputs, key)
        posterior, is_p = state.posterior[batch.ids], batch.labeled > 0

        def easiest(scores):
            labeled = batch.labeled if c.keep_positives else None
            return risks.lbe_classifier(scores, posterior, labeled, keep=c.keep, epsilon=c.epsilon)

        def labeling(scores):
            loss = risks.lbe_propensity(scores, posterior, batch.labeled, epsilon=c.epsilon)
            return loss, {}

        first, loss, kept = self._move(state.classifier, images, easiest, batch.progress)
        second, other, _ = self._move(state.propensity, images, labeling, batch.progress)
        metrics = {
            "loss": loss,
            "loss_propensity": other,
            # With few of P, early on, this rule can silence most of them. Subsets may hold none of
            # P, so that the shares of single subsets do not average to that of a round.
            "kept_positives": jnp.sum(kept & is_p) / self.labeled_per_subset,
        }
        return state._replace(classifier=first, propensity=second), metrics

    def _fresh(self, params: Any, batch_stats: Any) -> Player:
        return Player(params, batch_stats, self.optimizer.init(params))

    def _move(self, player: Player, images: jax.Array, loss_of: Any, progress: jax.Array):
        """One step of one network; `loss_of(scores) -> (loss, metrics)`."""

        def of_params(params):
            outputs, stats = self.network.train_pass(params, player.batch_stats, images)
            loss, metrics = loss_of(outputs.logits)
            return loss, (stats, metrics)

        player, loss, (stats, metrics) = optimizer_lib.descend(
            self.optimizer, player, of_params, progress
        )
        return player._replace(batch_stats=stats), loss, metrics


def _expectation(network: Network, batch_size: int) -> Callable[..., State]:
    """The E-step, whose programs are compiled once for all rounds."""

    @jax.jit
    def both_scores(classifier: Player, propensity: Player, inputs: jax.Array) -> jax.Array:
        players = classifier, propensity
        scores = [network.infer(p.params, p.batch_stats, inputs).logits for p in players]
        return jnp.stack(scores, axis=1)

    @jax.jit
    def expected(state: State, scores: jax.Array, labeled: jax.Array) -> State:
        posterior = risks.lbe_posterior(scores[:, 0], scores[:, 1], labeled)
        eta = jax.nn.sigmoid(scores[:, 1])
        return state._replace(
            posterior=posterior,
            prior=jnp.mean(posterior, where=~labeled),
            frequency=jnp.mean(eta, where=labeled),
        )

    def expect(state: State, data: TrainingData, key: jax.Array, epoch: int = 0) -> State:
        del key, epoch
        players = _weights(state.classifier), _weights(state.propensity)
        scores = batching_lib.map_batches(
            both_scores, data.inputs, batch_size=batch_size, args=players
        )
        return expected(state, scores, data.labeled)

    return expect


def _weights(player: Player) -> Player:
    """A network without its optimizer, whose moments a pass does not need."""
    return player._replace(opt_state=None)
