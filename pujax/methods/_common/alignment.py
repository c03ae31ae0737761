"""Representations pulled together within the predicted classes: the target network and its loss.

An online network with a predictor looks at one strong view of a batch, and a slowly moving copy of
its backbone and its head for alignment, the target, at another one. Source: Zhao et al.,
"Noisy-pair robust representation alignment for positive-unlabeled learning", ICLR 2026, on the
networks of BYOL. NcPU is built on it, and other methods have it as a switch, `align_weight`: the
paper's bolted versions, whose code is not published.
"""

import logging
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections
import optax

from pujax import checks, contrastive
from pujax.contrastive.alignment import CLAMPS
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo
from pujax.methods._common import views as views_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Method

_LOG = logging.getLogger(__name__)
_MUCH = 0.02  # of the first weights in a target network at the end
AUTO = "auto"
"""For `target_momentum` in place of a number, where a method accepts it: `target_momentum`."""
PUBLISHED_MOMENTUM = 0.99
_LEFT = 0.01  # of what an average begins with, after a run
COLOURS = {"brightness": 0.4, "contrast": 0.4, "saturation": 0.4, "hue": 0.1}
"""Of the published strong views."""


class Target(NamedTuple):
    """The copy that online views are compared with; no gradient reaches it.

    Attributes:
      weights: of the backbone and the head for alignment; not named `params`, since averaged
        weights (`method.average_decay`) are those that predict.
      statistics: their running statistics, which nothing but the copy's own passes moves. Unless
        `freeze_norm` is on it normalises by its batch, and they are only kept for the module.
    """

    weights: Any
    statistics: Any


class Views(NamedTuple):
    """What the loss of a batch compares.

    Attributes:
      strong: normalised strong views for the online network, `[batch, ...]`.
      vectors: the target's unit vectors of other strong views, `[batch, align_dim]`, constants.
    """

    strong: jax.Array
    vectors: jax.Array


class Aligner(NamedTuple):
    """The part of a method that aligns representations.

    Attributes:
      config: a section with the fields of `fields`.
      network: with the heads for alignment.
      views: a section with the fields of `views.default_config`.
      size: side of the views of images; 0 keeps the side.
    """

    config: ml_collections.ConfigDict
    network: Network
    views: ml_collections.ConfigDict
    size: int

    def begin(
        self,
        target: Target | None,
        params: Any,
        batch_stats: Any,
        inputs: jax.Array,
        key: jax.Array,
    ) -> tuple[Views, Target]:
        """Moves the target, and lets it look at a strong view.

        The target follows the weights before this step, and looks after that.

        Args:
          target: before the step; a state without alignment has none.
          params: of the online network.
          batch_stats: of the online network.
          inputs: raw inputs `[batch, ...]`.
          key: of both strong views.

        Returns:
          What `loss` compares, and the target after the step.
        """
        assert target is not None
        strong, other = (
            self.network.normalize(views_lib.random_view(k, inputs, self.views, size=self.size))
            for k in jax.random.split(key)
        )
        share = 1 - self.config.target_momentum
        moved = optax.incremental_update(_shared(params), target.weights, share)
        # The target has no weights for the other heads, which the module must have: those of the
        # online network stand in, since nothing reads what these heads give.
        outputs, stats = self.network.train_pass(
            {**params, **moved},
            {**batch_stats, **target.statistics},
            other,
            with_prediction=True,
        )
        kept = {name: stats[name] for name in target.statistics}
        return Views(strong, jax.lax.stop_gradient(outputs.aligned)), Target(moved, kept)

    def loss(
        self,
        params: Any,
        batch_stats: Any,
        views: Views,
        scores: jax.Array,
        *,
        uses_pairs: jax.Array | bool,
    ) -> tuple[jax.Array, Any, jax.Array]:
        """The alignment loss of a batch, without its weight.

        Args:
          params: of the online network.
          batch_stats: of the online network, after the pass over the weak view.
          views: from `begin`.
          scores: `[batch]`, of the weak view; they choose the pairs, as constants.
          uses_pairs: False for nothing but the two views of every example.

        Returns:
          The loss, a scalar; the statistics; the predicted unit vectors `[batch, align_dim]`.
        """
        outputs, batch_stats = self.network.train_pass(
            params, batch_stats, views.strong, with_prediction=True
        )
        probabilities = jax.nn.sigmoid(jax.lax.stop_gradient(scores))
        pairs = same_class(probabilities, threshold=self.config.pair_threshold) & uses_pairs
        loss = contrastive.noise_robust_alignment(
            outputs.prediction, views.vectors, pairs, clamp=self.config.align_clamp
        )
        return loss, batch_stats, outputs.prediction

    def add(
        self,
        found: tuple[jax.Array, Any, dict[str, jax.Array]],
        scores: jax.Array,
        *,
        params: Any,
        views: Views,
        batch: Batch,
    ) -> tuple[jax.Array, Any, dict[str, jax.Array]]:
        """What a method's loss found of a batch, with the alignment loss added.

        Args:
          found: loss, running statistics and metrics.
          scores: `[batch]`, of the weak view.
          params: of the online network.
          views: from `begin`.
          batch: its epoch says whether pairs count.

        Returns:
          The same three.
        """
        loss, batch_stats, metrics = found
        uses_pairs = batch.epoch >= self.config.align_warmup_epochs
        align, batch_stats, _ = self.loss(params, batch_stats, views, scores, uses_pairs=uses_pairs)
        return (
            loss + self.config.align_weight * align,
            batch_stats,
            metrics | {"loss_align": align},
        )


def begin(
    aligner: Aligner | None, state: Any, batch: Batch, key: jax.Array, *, parts: int = 2
) -> tuple[Any, Any]:
    """What a step begins with: `Aligner.begin`, or nothing where nothing is aligned.

    Args:
      aligner: of the method, or None.
      state: a NamedTuple with `params`, `batch_stats` and `target`.
      batch: raw.
      key: of the step, which the method splits itself.
      parts: how many keys the method splits it into.

    Returns:
      `(state, views)`, the state with the target of this step.
    """
    if aligner is None:
        return state, None
    own = jax.random.fold_in(key, parts)  # parts of a split are its first folds
    views, target = aligner.begin(state.target, state.params, state.batch_stats, batch.inputs, own)
    return state._replace(target=target), views


def fields(**changes: Any) -> dict[str, Any]:
    """Fields of the target network and of the loss, with the published values."""
    return {
        "align_weight": 50.0,
        "align_clamp": "components",  # or 'none', see `contrastive.noise_robust_alignment`
        "align_dim": 128,
        "pair_threshold": 0.5,  # of the products of two predicted distributions
        "target_momentum": 0.99,
    } | changes


def switch() -> dict[str, Any]:
    """Fields of a method that has alignment as a switch, which is off.

    Pairs count from epoch `align_warmup_epochs` on; strong views show at least the share
    `align_crop_area` of an image, and their colours change as published.
    """
    return fields(align_weight=0.0, align_warmup_epochs=5, align_crop_area=0.2)


def width(config: ml_collections.ConfigDict) -> int:
    """Of the heads for alignment; 0 where a section has none, or does not use them."""
    return config.align_dim if config.get("align_weight", 0) else 0


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    checks.at_least("method.align_weight", config.align_weight, 0)
    checks.one_of("method.align_clamp", config.align_clamp, CLAMPS)
    checks.at_least("method.align_dim", config.align_dim, 1)
    checks.between("method.pair_threshold", config.pair_threshold, 0, 1)
    checks.between("method.target_momentum", config.target_momentum, 0, 1)


def switched(config: ml_collections.ConfigDict, info: DataInfo, network: Network) -> Aligner | None:
    """The alignment that a section with the fields of `switch` asks for, or None.

    Args:
      config: the method's section.
      info: numbers of the data set.
      network: with heads of `width(config)`.

    Raises:
      ValueError: for a setting that cannot be.
    """
    if "align_weight" not in config:
        return None
    check(config)
    crop = config.align_crop_area
    checks.between("method.align_crop_area", crop, 0, 1, include="high")
    if not config.align_weight:
        return None
    checks.between("method.align_warmup_epochs", config.align_warmup_epochs, 0, config.num_epochs)
    views = views_lib.default_config(flip=config.flip, crop_area=crop, **COLOURS)
    say_of_tables(info)
    return Aligner(config, network, ml_collections.ConfigDict(views), network.image_size)


def paced(updates: int) -> float:
    """The published momentum, or in a very short run the largest that forgets where it began.

    An average that starts from what is no average (weights before training, one half) has to lose
    it within the run: at the end at most 1 % of it is left, which 0.99 has after 459 updates.
    Longer runs have 0.99, as all published ones do, of 208,000 and 230,100 steps. Averages over the
    same share of a run instead, 0.99 to the power of how many times it is shorter, would be of a
    few steps, and a target network that follows the online one so closely is worse: measured on
    digits, docs/results/ncpu.md.

    Args:
      updates: of the average in the whole run.

    Returns:
      A momentum in [0.01, 0.99].
    """
    return min(PUBLISHED_MOMENTUM, _LEFT ** (1 / max(updates, 1)))


def target_momentum(config: ml_collections.ConfigDict, steps: int) -> float:
    """Share of the target network that stays in a step.

    Args:
      config: a section with the fields of `fields`.
      steps: of the whole run, which `AUTO` follows by `paced`.
    """
    if config.target_momentum == AUTO:
        return paced(steps)
    return float(config.target_momentum)


def say_of_tables(info: DataInfo) -> None:
    """Says that strong views of rows are no published ones."""
    views_lib.say_of_tables(
        info,
        "strong views are rows with features of other rows of the batch, which nobody has "
        "published",
    )


def diagnosed(method: Method, config: ml_collections.ConfigDict, info: Any) -> Method:
    """A method that says so, now and in its diagnosis, where a run is too short for its target.

    Args:
      method: any method; one that aligns nothing is returned as it is.
      config: its section.
      info: numbers of the data set.

    Returns:
      A `Method`.
    """
    if not width(config):
        return method
    stages = method.stages
    steps = sum(stage.num_epochs * stage.batching.steps_per_epoch(info.n) for stage in stages)
    sentence = too_short(config, steps)
    if not sentence:
        return method
    _LOG.warning("%s", sentence)
    own = method.diagnose
    return method._replace(diagnose=lambda estimates: [*(own(estimates) if own else []), sentence])


def too_short(config: ml_collections.ConfigDict, steps: int) -> str | None:
    """What to say of a run at whose end the target still is much of what it began as, else None.

    Args:
      config: a section with the fields of `fields`.
      steps: of the whole run.
    """
    momentum, epochs = target_momentum(config, steps), config.num_epochs
    share = momentum**steps
    if share < _MUCH or not steps:
        return None
    if momentum < 1:
        least = math.floor(math.log(_MUCH) / math.log(momentum)) + 1
        needed = f"needs {math.ceil(least * epochs / steps)}"
    else:
        needed = "never comes"
    return (
        f"method.num_epochs is {epochs}, and the target network of the alignment {needed} to have "
        f"less than {100 * _MUCH:g} % of its weights before training (method.target_momentum="
        f"{momentum:g}, {steps} steps): at the end it has {100 * share:.0f} % of them"
    )


def first_target(params: Any, batch_stats: Any) -> Target:
    """A target that is a copy of the online network."""
    # Copies: a training step gives its buffers back, and may not do so twice.
    return jax.tree.map(jnp.copy, Target(_shared(params), _shared(batch_stats)))


def same_class(probabilities: jax.Array, *, threshold: float) -> jax.Array:
    """Which pairs count: those whose predicted distributions have a product of at least so much.

    With two classes the product is `1/2 + (2 p_i - 1) (2 p_j - 1) / 2`, so that 0.5 asks for the
    same predicted class and for no confidence. It is rounded as it is in the authors' code: in
    float32 a product within 3e-8 of one half counts as one half.

    Args:
      probabilities: `[batch]`, of the positive class.
      threshold: in [0, 1].

    Returns:
      bool `[batch, batch]`.
    """
    sides = 2 * probabilities - 1
    return (1 + sides[:, None] * sides[None, :]) / 2 >= threshold


def _shared(tree: Any) -> dict[str, Any]:
    """What a target has of the online network: the backbone and the head for alignment."""
    return {
        name: part
        for name, part in tree.items()
        if name == "backbone" or name.startswith("aligned_")
    }
