"""A plain classifier of one or several labels per example, trained on an objective.

A method that is a risk of scores and labels is `build(config, info, risk)`; one with its own
objective (a penalty, mixup) gives that to `minimize`; one whose scores need an offset known only
after training (a threshold, a largest probability) gives `offset`.
"""

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import augment
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch, Batching
from pujax.data.multilabel_dataset import MultilabelInfo
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import alignment, online, sections
from pujax.methods._common import network as network_lib
from pujax.methods._common import optimizer as optimizer_lib
from pujax.methods._common.network import Network
from pujax.methods.base import Method, Stage
from pujax.models import encoder as encoder_lib
from pujax.models import multilabel

# Folded into a step's key for dropout. Objectives split that key, which folds in 0, 1 and so on, so
# that a number far above these gives a key of its own.
_DROPOUT_KEY = 2**30
Info = DataInfo | MultilabelInfo
# (batch_stats, images) -> (outputs, batch_stats), a training pass with the parameters of the step;
# with `drops=False` without dropout
Forward = Callable[..., tuple[Any, Any]]
# (forward, batch_stats, images, batch, key) -> (loss, (batch_stats, metrics)); with the keywords
# `numbers` where the stage has them, `scalars` or `weights` where it learns them
Objective = Callable[..., tuple[jax.Array, tuple[Any, dict[str, jax.Array]]]]


class Fixed(NamedTuple):
    """What a state holds that training leaves as it is, where an objective reads numbers.

    Attributes:
      graph: constants of the semantic-graph head, else None.
      numbers: what the objective took from the training labels before the first step.
    """

    graph: multilabel.GraphConstants | None
    numbers: Any


class State(NamedTuple):
    """Everything that training a plain classifier changes.

    Attributes:
      params: network parameters.
      batch_stats: running batch-norm statistics.
      opt_state: optimizer state.
      offset: what `predict` subtracts from the scores; set by `calibrate`, 0 during training;
        None for several labels, whose thresholds are always 0.
      constants: of the semantic-graph head, else None; `Fixed` where the objective reads numbers.
      learned: scalars and weights that are learned online, else None.
      target: the copy of the network that representations are aligned with, else None.
    """

    params: Any
    batch_stats: Any
    opt_state: Any
    offset: jax.Array | None
    constants: multilabel.GraphConstants | Fixed | None = None
    learned: online.Learned | None = None
    target: alignment.Target | None = None

    @property
    def graph(self) -> multilabel.GraphConstants | None:
        """Constants of the semantic-graph head, else None."""
        return self.constants.graph if isinstance(self.constants, Fixed) else self.constants


def from_risk(risk: Callable[..., jax.Array]) -> Objective:
    """The objective of a risk of scores and labels, each `[batch]` or `[batch, classes]`.

    What is learned online the risk gets by name, but for the temperature that divides scores.
    """

    def objective(forward, batch_stats, images, batch, key, scalars=None, **given):
        del key
        outputs, batch_stats = forward(batch_stats, images)
        scores, given = outputs.logits, {**(scalars or {}), **given}
        if "temperature" in given:
            scores = scores / given.pop("temperature")
        return risk(scores, batch.labeled, **given), (batch_stats, {})

    return objective


def stage(
    config: ml_collections.ConfigDict,
    network: Network,
    objective: Objective,
    *,
    batching: Batching,
    view: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    constants: Callable[[TrainingData], Any] | None = None,
    numbers: Callable[[jax.Array], Any] | None = None,
    steps_per_epoch: int | None = None,
    learn: online.Online | None = None,
    align: alignment.Aligner | None = None,
    first_bias: float | None = None,
) -> Stage:
    """A stage that minimises an objective, starting from the previous stage's network if any.

    Args:
      config: the method's section.
      network: what is trained.
      objective: see `Objective`; its metrics are reported beside `loss`.
      batching: which examples a batch holds.
      view: `(inputs, key) -> images`, normalised; None for `weak_view`.
      constants: makes those of the semantic-graph head.
      numbers: what the objective needs to know of all training labels, `labeled -> arrays`. They
        are arrays of the state and no constants of the program, so that seeds whose labels differ
        still are one program.
      steps_per_epoch: see `optimizer.build`.
      learn: what is learned online.
      align: what aligns representations, with the scores of the objective's first pass.
      first_bias: of the last layer of a network that is not handed on; None leaves it its own.

    Returns:
      A `Stage` on `State`.
    """
    optimizer = optimizer_lib.build(
        config, num_epochs=config.num_epochs, steps_per_epoch=steps_per_epoch
    )
    view = view or functools.partial(weak_view, config, network)

    def init(key: jax.Array, previous: State | None, data: TrainingData) -> State:
        fixed = constants(data) if constants else None
        if previous is None:
            params, batch_stats = network.init(key, data.inputs[:2], data.encoder, constants=fixed)
            if first_bias is not None:
                last = params["classifier"]
                shifted = {**last, "bias": jnp.full_like(last["bias"], first_bias)}
                params = {**params, "classifier": shifted}
        else:
            params, batch_stats = previous.params, previous.batch_stats
        offset = None if network.is_multilabel else jnp.zeros([])
        kept = Fixed(fixed, numbers(data.labeled)) if numbers else fixed
        learned = learn.init(len(data.labeled)) if learn else None
        target = alignment.first_target(params, batch_stats) if align else None
        return State(params, batch_stats, optimizer.init(params), offset, kept, learned, target)

    def step(state: State, batch: Batch, key: jax.Array):
        view_key, objective_key = jax.random.split(key)
        images = view(batch.inputs, view_key)
        state, views = alignment.begin(align, state, batch, key)

        def loss_of(params, **given):
            forward = _passes(network, params, state.graph, objective_key)
            passes = []
            if align:
                forward = _recorded(forward, passes)
            read = {"numbers": state.constants.numbers} if numbers else {}
            seen = images
            if learn:
                seen, given = learn.blended(images, batch.inputs, view_key, given)
            loss, (batch_stats, metrics) = objective(
                forward, state.batch_stats, seen, batch, objective_key, **read, **given
            )
            if align:
                loss, batch_stats, metrics = align.add(
                    (loss, batch_stats, metrics),
                    passes[0].logits,
                    params=params,
                    views=views,
                    batch=batch,
                )
            return loss, (batch_stats, metrics)

        state, loss_of_step, found = online.update(learn, state, loss_of, batch, objective_key)
        state, loss, (batch_stats, metrics) = optimizer_lib.descend(
            optimizer, state, loss_of_step, batch.stage_progress
        )
        return state._replace(batch_stats=batch_stats), metrics | found | {"loss": loss}

    return Stage("train", config.num_epochs, init, step, batching)


def _passes(network: Network, params: Any, graph: Any, key: jax.Array) -> Forward:
    """Training passes of a step; each drops outputs of its own where the network has dropout."""
    count = itertools.count()

    def forward(batch_stats, images, *, drops=True):
        dropout_key = None
        if drops and network.has_dropout:
            dropout_key = jax.random.fold_in(jax.random.fold_in(key, _DROPOUT_KEY), next(count))
        return network.train_pass(
            params, batch_stats, images, constants=graph, dropout_key=dropout_key
        )

    return forward


def _recorded(forward: Forward, passes: list[Any]) -> Forward:
    """The same pass, whose outputs are kept in the order in which they are asked for."""

    def kept(batch_stats, images, **options):
        outputs, batch_stats = forward(batch_stats, images, **options)
        passes.append(outputs)
        return outputs, batch_stats

    return kept


def weak_view(
    config: ml_collections.ConfigDict, network: Network, inputs: jax.Array, key: jax.Array
) -> jax.Array:
    """Normalised images, randomly flipped and shifted where `config.augment` says so."""
    if config.augment:
        inputs = augment.weak_view(key, inputs, flip=config.flip, padding=config.padding)
    return network.normalize(inputs)


def cropped_view(
    config: ml_collections.ConfigDict,
    info: MultilabelInfo,
    network: Network,
    inputs: jax.Array,
    key: jax.Array,
) -> jax.Array:
    """Normalised images, randomly cropped and flipped; streamed ones are cropped already."""
    if config.augment:
        crop_key, flip_key = jax.random.split(key)
        if config.crop_sizes and not info.load_side:
            side = network.image_size or min(info.input_shape[:2])
            inputs = augment.multiscale_crop(crop_key, inputs, sizes=config.crop_sizes, side=side)
        if config.flip:
            inputs = augment.random_flip(flip_key, inputs)
    return network.normalize(inputs)


def method(
    network: Network,
    stages: tuple[Stage, ...],
    *,
    offset: Callable[[jax.Array, jax.Array], jax.Array] | None = None,
    batch_size: int = 512,
    reveals: str = "",
) -> Method:
    """A method whose state is a `State`.

    Args:
      network: what is trained.
      stages: its stages.
      offset: `(scores of all training examples, labeled) -> scalar`, the score above which an
        example is positive; None is 0.
      batch_size: examples per call when all training examples are scored.
      reveals: as in `Method`.

    Returns:
      A `Method`.
    """

    def infer(state: State, inputs: jax.Array):
        return network.infer(state.params, state.batch_stats, inputs, constants=state.graph)

    def raw(state: State, inputs: jax.Array) -> jax.Array:
        return infer(state, inputs).logits

    compiled = jax.jit(raw)

    def predict(state: State, inputs: jax.Array) -> jax.Array:
        scores = raw(state, inputs)
        return scores if state.offset is None else scores - state.offset

    def embed(state: State, inputs: jax.Array) -> jax.Array:
        return infer(state, inputs).features

    def calibrate(state: State, data: TrainingData) -> State:
        scores = batching_lib.map_batches(
            compiled, data.inputs, batch_size=batch_size, args=(state,)
        )
        assert offset is not None  # else there is nothing to calibrate
        return state._replace(offset=offset(scores, data.labeled))

    return Method(
        stages=stages,
        predict=predict,
        embed=embed,
        calibrate=None if offset is None else calibrate,
        encoder=lambda state: encoder_lib.of(state.params, state.batch_stats),
        reveals=reveals,
    )


def build(
    config: ml_collections.ConfigDict,
    info: Info,
    risk: Callable[..., jax.Array],
    *,
    scalars: Mapping[str, online.Scalar] | None = None,
    **options: Any,
) -> Method:
    """A one-stage method that minimises `risk(scores, labels)` over batches.

    Args:
      config: the whole configuration.
      info: numbers of the data set.
      risk: maps scores and labels, `[batch]` or `[batch, classes]`, to a scalar. Scalars that are
        learned, and `weights` of examples, are keywords.
      scalars: which can be learned beside the temperature, see `minimize`.
      **options: of `minimize`.

    Returns:
      A `Method`.
    """
    scalars = {**(scalars or {}), "temperature": online.TEMPERATURE}
    return minimize(config, info, from_risk(risk), scalars=scalars, **options)


def minimize(
    config: ml_collections.ConfigDict,
    info: Info,
    objective: Objective,
    *,
    batching: Batching | None = None,
    numbers: Callable[[jax.Array], Any] | None = None,
    scalars: Mapping[str, online.Scalar] | None = None,
    groups: bool = False,
    first_bias: float | None = None,
    **options: Any,
) -> Method:
    """A one-stage method that minimises an objective over batches.

    Args:
      config: the whole configuration.
      info: numbers of the data set, whose kind says whether examples have one label or several.
      objective: see `Objective`.
      batching: which examples a batch holds; None for those of the configuration.
      numbers: see `stage`.
      scalars: which numbers of the objective can be learned online, beside the strength of the
        augmentation; the objective takes `scalars`, those that are.
      groups: see `online.Online`.
      first_bias: of the last layer, see `stage`.
      **options: of `method`.

    Returns:
      A `Method`.

    Raises:
      ValueError: for a setting that cannot be.
    """
    c = config.method
    if isinstance(info, MultilabelInfo):
        network, training = _multilabel_stage(config, info, objective, numbers)
        return method(network, (training,), **options)._replace(embed=None)
    sections.check(c)
    network = network_lib.build(
        config, info, embedding_dim=0, aligned_dim=alignment.width(c), may_drop=True
    )
    align = alignment.switched(c, info, network)
    batching = batching or sections.batches(c, info)
    offered = {**(scalars or {}), **online.augmentation(c)}
    learn = online.build(c, info, network, offered, groups=groups)
    if learn:
        batching = learn.batching(batching, info)
    training = stage(
        c,
        network,
        objective,
        batching=batching,
        numbers=numbers,
        learn=learn,
        align=align,
        first_bias=first_bias,
    )
    made = method(network, (training,), batch_size=config.run.eval_batch_size, **options)
    return learn.reported(made, info) if learn else made


def _multilabel_stage(
    config: ml_collections.ConfigDict,
    info: MultilabelInfo,
    objective: Objective,
    numbers: Callable[[jax.Array], Any] | None,
) -> tuple[Network, Stage]:
    """The network of several labels, and the stage that trains it."""
    c = config.method
    sections.check_multilabel(c, info)
    network = network_lib.build_multilabel(config, info)
    words = network_lib.word_vectors(c, info.num_classes)

    def constants(data: TrainingData) -> multilabel.GraphConstants:
        return multilabel.GraphConstants(
            jnp.asarray(words), multilabel.adjacency(data.labeled == 1)
        )

    return network, stage(
        c,
        network,
        objective,
        batching=Batching(c.batch_size, crop_sizes=c.crop_sizes if c.augment else ()),
        view=functools.partial(cropped_view, c, info, network),
        constants=None if words is None else constants,
        numbers=numbers,
        steps_per_epoch=max(info.n // c.batch_size, 1),
    )
