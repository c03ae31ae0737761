"""PAN: predictive adversarial networks for PU learning (Hu et al., AAAI 2021).

A discriminator D tells labelled positives from unlabeled examples while a classifier C tries to
agree with it on U. Both put out probabilities; D maximises and C minimises

    V = sum_P log D + sum_U log(1 - D) + weight sum_U [log(1 - C) - log C] (2 D - 1).

No class prior is needed and C alone predicts. D moves first, then C against the D that has moved,
one step each per batch. D comes to know the labelled examples by heart, and calls all others
unlabeled then: what C learns it has to learn before, so that its rate is ten times that of D by
default. Constants inside the logarithms and a clipped U term, found in some re-implementations, are
not part of the paper and left out.

C's objective is linear in its logit, so that nothing holds the level of its scores, and they rank
well where they are all on one side of 0. Where a class prior is known the cut is therefore the
score that leaves the share of positives of U above it (`threshold='auto'`); the paper's is 0.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks
from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import classifier as classifier_lib
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common import sections, threshold
from pujax.methods.base import Method, Stage

SELECTION = "proxy_auc"


class Player(NamedTuple):
    """One of the two networks.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state.
    """

    params: Any
    batch_stats: Any
    opt_state: Any


class State(NamedTuple):
    """Everything that PAN's training changes.

    Attributes:
      classifier: the network that predicts.
      discriminator: its opponent; the same architecture from another initialisation.
    """

    classifier: Player
    discriminator: Player


def default_config() -> ml_collections.ConfigDict:
    """Published weight; optimizer, batch size and length are this package's, none was verified.

    `reduction`: 'sum' is V as published, which the weight 1e-4 belongs to; 'mean' divides all of V
    by the batch size, so that the ratio of its terms stays. Adam does not care for the factor until
    gradients come near its 1e-8, which C's, being 1e-4 times smaller than D's, do first: hence
    'sum', and no weight decay, which would outweigh them. `learning_rate` is C's,
    and `discriminator_rate` that of D as a share of it. `positives_per_batch` 0 is half of the
    batch. `threshold`: 'zero' is published; 'prior' leaves the share of positives of U above it;
    'auto' is 'prior' where one is known.
    """
    return sections.baseline_config(
        "pan",
        learning_rate=1e-3,
        discriminator_rate=0.1,
        weight_decay=0.0,
        batching="separate",
        adversarial_weight=1e-4,
        reduction="sum",
        threshold="auto",
    )


def value(
    positive: jax.Array, unlabeled: jax.Array, guesses: jax.Array, *, weight: float
) -> jax.Array:
    """V of a batch, from logits, as sums over P and U.

    Of the last term's factors `log(1 - C) - log C` is minus the logit of C and `2 D - 1` is `tanh`
    of half the logit of D, so no logarithm of a probability is formed.

    Args:
      positive: logits of D on P, `[positives]`.
      unlabeled: logits of D on U, `[unlabeled]`.
      guesses: logits of C on U, `[unlabeled]`.
      weight: of the last term.

    Returns:
      A scalar.
    """
    separation = jnp.sum(jax.nn.log_sigmoid(positive)) + jnp.sum(jax.nn.log_sigmoid(-unlabeled))
    return separation - weight * jnp.sum(guesses * jnp.tanh(unlabeled / 2))


def discriminator_loss(
    positive: jax.Array, unlabeled: jax.Array, guesses: jax.Array, *, weight: float
) -> jax.Array:
    """What D minimises: minus V with C held fixed; arguments as in `value`."""
    return -value(positive, unlabeled, jax.lax.stop_gradient(guesses), weight=weight)


def classifier_loss(
    positive: jax.Array, unlabeled: jax.Array, guesses: jax.Array, *, weight: float
) -> jax.Array:
    """What C minimises: V with D held fixed; arguments as in `value`."""
    positive, unlabeled = jax.lax.stop_gradient((positive, unlabeled))
    return value(positive, unlabeled, guesses, weight=weight)


def build(config: ml_collections.ConfigDict, info: DataInfo) -> Method:
    """Builds PAN; the first rows of every batch are labelled positives, the others are from U."""
    c = config.method
    sections.check(c)
    checks.one_of("method.batching", c.batching, ("separate",))
    checks.at_least("method.adversarial_weight", c.adversarial_weight, 0)
    checks.one_of("method.reduction", c.reduction, ("sum", "mean"))
    half = c.positives_per_batch or c.batch_size // 2
    checks.between("method.positives_per_batch", half, 1, c.batch_size - 1)
    share = c.get("discriminator_rate", 1.0)  # which models of earlier versions have not
    checks.positive("method.discriminator_rate", share)
    network = network_lib.build(config, info, embedding_dim=0)
    optimizer = optimizer_lib.build(c, num_epochs=c.num_epochs)
    own_rate = {"learning_rate": share * c.learning_rate}
    of_discriminator = ml_collections.ConfigDict(c.to_dict() | own_rate)
    opponent = optimizer_lib.build(of_discriminator, num_epochs=c.num_epochs)
    training = _Training(c, network, optimizer, opponent, half)

    def infer(state: State, inputs: jax.Array):
        player = state.classifier
        return network.infer(player.params, player.batch_stats, inputs)

    batching = Batching(c.batch_size, num_positives=half)
    method = Method(
        stages=(Stage("train", c.num_epochs, training.init, training.step, batching),),
        predict=lambda state, inputs: infer(state, inputs).logits,
        embed=lambda state, inputs: infer(state, inputs).features,
    )
    return threshold.wrap(method, config, info)


class _Training(NamedTuple):
    """The two players' first state and their steps.

    Attributes:
      config: the method's section.
      network: the architecture of both.
      optimizer: of the classifier.
      opponent: of the discriminator.
      num_positives: rows of a batch that are P, its first ones.
    """

    config: ml_collections.ConfigDict
    network: network_lib.Network
    optimizer: optimizer_lib.Optimizer
    opponent: optimizer_lib.Optimizer
    num_positives: int

    def init(self, key: jax.Array, previous: State | None, data: TrainingData) -> State:
        """Two fresh networks."""
        del previous  # there is one stage only

        def player(key: jax.Array, optimizer: optimizer_lib.Optimizer) -> Player:
            params, batch_stats = self.network.init(key, data.inputs[:2], data.encoder)
            return Player(params, batch_stats, optimizer.init(params))

        first, second = jax.random.split(key)
        return State(player(first, self.optimizer), player(second, self.opponent))

    def step(self, state: State, batch: Batch, key: jax.Array):
        """A step of D, then one of C against the D that has moved."""
        images = classifier_lib.weak_view(self.config, self.network, batch.inputs, key)

        def judge(params):
            return self._scores(state.discriminator, params, images)

        def guess(params):
            # Over U only: the objective does not show P to the classifier.
            return self._scores(state.classifier, params, images[self.num_positives :])

        def of_discriminator(params):
            opinions, stats = judge(params)
            guesses = guess(state.classifier.params)[0]
            return self._loss(discriminator_loss, opinions, guesses), stats

        discriminator, separation = _move(
            self.opponent, state.discriminator, of_discriminator, batch.progress
        )

        def of_classifier(params):
            guesses, stats = guess(params)
            opinions = judge(discriminator.params)[0]
            return self._loss(classifier_loss, opinions, guesses), stats

        classifier, loss = _move(self.optimizer, state.classifier, of_classifier, batch.progress)
        metrics = {"loss": loss, "loss_discriminator": separation}
        return State(classifier, discriminator), metrics

    def _scores(self, player: Player, params: Any, images: jax.Array):
        """Logits of a player with other parameters, and its new batch statistics."""
        outputs, stats = self.network.train_pass(params, player.batch_stats, images)
        return outputs.logits, stats

    def _loss(
        self, loss: Callable[..., jax.Array], opinions: jax.Array, guesses: jax.Array
    ) -> jax.Array:
        """A player's loss from the logits of D on the batch and of C on U."""
        half, c = self.num_positives, self.config
        scale = 1.0 if c.reduction == "sum" else 1 / c.batch_size
        both = opinions[:half], opinions[half:], guesses
        return scale * loss(*both, weight=c.adversarial_weight)


def _move(
    optimizer: optimizer_lib.Optimizer,
    player: Player,
    loss_of: Callable[..., Any],
    progress: jax.Array,
):
    """One step of one player; `loss_of(params) -> (loss, batch_stats)`."""
    player, loss, batch_stats = optimizer_lib.descend(optimizer, player, loss_of, progress)
    return player._replace(batch_stats=batch_stats), loss
