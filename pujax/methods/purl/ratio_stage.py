"""The stage that learns PURL's features: a network for the density ratio, its best state kept.

The network is the `models.heads.PUNet` of the configuration: its backbone is the representation v
and its linear classifier the head g, so that w = g(v(x)) is what it puts out. In turn four updates
move one part and one moves the other; both lower the same objective. P and U pass the network
together, so that batch norm sees them in the batch's proportion.
"""

import logging
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import ml_collections

from pujax import checks, mutual_info
from pujax.data import batching as batching_lib
from pujax.data.batching import Batch
from pujax.data.pu_dataset import DataInfo, TrainingData
from pujax.methods._common import freezing, holdout, sections
from pujax.methods._common.network import Network
from pujax.methods.base import Stage
from pujax.methods.purl import density_ratio

_LOG = logging.getLogger(__name__)

_HEAD = "classifier"  # its place in the parameters of a `PUNet`
_LARGEST = 3e38  # stands for infinity, which the loop would take for a failure


class Fit(NamedTuple):
    """A network and how well it fits the examples held out.

    Attributes:
      params: parameters.
      batch_stats: running batch-norm statistics.
      objective: `density_ratio.ratio_objective`, lower is better.
      mean_ratio: mean of w, which is 1 for the true ratio.
    """

    params: Any
    batch_stats: Any
    objective: jax.Array
    mean_ratio: jax.Array


class State(NamedTuple):
    """Everything that the stage changes.

    Attributes:
      current: the network that is trained, as measured when the epoch began.
      best: the network of the epoch with the lowest objective so far.
      held: bool `[n]`, the examples held out.
    """

    current: Fit
    best: Fit
    held: jax.Array


def default_config() -> dict[str, Any]:
    """Fields of the stage that learns the features: the paper's values but for its unknown length.

    `inner` says what the four updates move: 'head' is g alone, 'all' is the whole network. `head`
    is trained ('sgd') or solved for in every batch ('closed_form'; then each update moves v).
    `output` 'softplus' keeps w above 0. `pre_activation` makes v what comes before the last batch
    norm and ReLU, which then belong to g. Held out are at most a fifth of P, and of U.
    """
    return {
        "representation_epochs": 300,
        "representation_learning_rate": 1e-3,
        "representation_weight_decay": 5e-4,
        "gradient_noise": 0.01,
        "inner": "head",
        "inner_steps": 4,
        "head": "sgd",
        "head_ridge": 1e-2,
        "output": "linear",
        "pre_activation": False,
        "validation_positives": 50,
        "validation_unlabeled": 200,
    }


def check(config: ml_collections.ConfigDict) -> None:
    """Raises a ValueError for settings that cannot be."""
    c = config.method
    checks.at_least("method.num_epochs", c.num_epochs, 2)
    checks.between("method.representation_epochs", c.representation_epochs, 1, c.num_epochs - 1)
    checks.positive("method.representation_learning_rate", c.representation_learning_rate)
    checks.at_least("method.representation_weight_decay", c.representation_weight_decay, 0)
    checks.at_least("method.gradient_noise", c.gradient_noise, 0)
    checks.one_of("method.inner", c.inner, ("head", "all"))
    checks.at_least("method.inner_steps", c.inner_steps, 1)
    checks.one_of("method.head", c.head, ("sgd", "closed_form"))
    checks.positive("method.head_ridge", c.head_ridge)
    checks.one_of("method.output", c.output, ("linear", "softplus"))
    for name in ("validation_positives", "validation_unlabeled"):
        checks.at_least(f"method.{name}", c[name], 1)
    if c.head == "closed_form":
        accepted = "'linear' while method.head is 'closed_form'"
        checks.require(c.output == "linear", "method.output", c.output, accepted)
    if c.pre_activation:
        accepted = "'mlp' while method.pre_activation is True"
        checks.require(config.model.name == "mlp", "model.name", config.model.name, accepted)


def hold_out(
    key: jax.Array, data: TrainingData, config: ml_collections.ConfigDict, info: DataInfo
) -> jax.Array:
    """The examples held out, bool `[n]`; see `default_config`."""
    num_positives, num_unlabeled = num_held_out(config, info, data.copies)
    return holdout.choose(
        key,
        data.labeled,
        num_positives=num_positives,
        num_unlabeled=num_unlabeled,
        copies=data.copies,
    )


def num_held_out(
    config: ml_collections.ConfigDict, info: DataInfo, copies: jax.Array | None = None
) -> tuple[int, int]:
    """How many of P and of U are held out; for `copies` see `TrainingData`."""
    num_positives = max(min(config.validation_positives, info.n_p // 5), 1)
    usual = max(min(config.validation_unlabeled, info.n_u // 5), 1)
    return num_positives, holdout.num_unlabeled(num_positives, usual, info=info, copies=copies)


def _say_held_out(config: ml_collections.ConfigDict, info: DataInfo) -> None:
    """Warns where fewer examples are held out than the configuration asks for."""
    names = ("validation_positives", "validation_unlabeled")
    sizes = (info.n_p, info.n_u)
    for name, count, size in zip(names, num_held_out(config, info), sizes, strict=True):
        if count < config[name]:
            _LOG.warning(
                "method.%s is %d, and %d are held out: a fifth of %d examples, which is the most",
                *(name, config[name], count, size),
            )


def measured(fit: Fit) -> dict[str, jax.Array]:
    """How well a density ratio fits the examples held out."""
    return {"validation_objective": fit.objective, "mean_ratio": fit.mean_ratio}


def diagnose(estimates: dict[str, float]) -> list[str]:
    """What the examples held out say against the features."""
    return mutual_info.diagnose(estimates["smi"], estimates["mean_ratio"])


class RatioStage:
    """Builds the stage and what later stages need of it.

    Args:
      config: the whole configuration.
      info: numbers of the data set.
      network: w of an input.
      positive_share: see `density_ratio.ratio_objective`.
    """

    def __init__(
        self,
        config: ml_collections.ConfigDict,
        info: DataInfo,
        network: Network,
        *,
        positive_share: float,
    ):
        check(config)
        _say_held_out(config.method, info)
        self._config = config.method
        self._info = info
        self._network = network
        self._share = positive_share
        self._batch_size = config.run.eval_batch_size
        self._last = ""
        if config.method.pre_activation:
            self._last = f"dense{len(network.module.backbone.hidden)}"
        offer = jax.jit(self._offer)
        self.stage = Stage(
            "represent",
            config.method.representation_epochs,
            self._init,
            self._step,
            sections.batches(config.method, info),
            lambda state, data, key, epoch=0: offer(state, data),
        )

    def ratio(self, state: State, inputs: jax.Array) -> jax.Array:
        """w `[batch]` of raw inputs under the network that is trained."""
        outputs = self._network.infer(state.current.params, state.current.batch_stats, inputs)
        return self._link(outputs.logits)

    def features(self, fit: Fit, inputs: jax.Array) -> jax.Array:
        """v `[batch, m]` of raw inputs."""
        if not self._last:
            return self._network.infer(fit.params, fit.batch_stats, inputs).features
        _, seen = self._network.module.apply(
            {"params": fit.params, "batch_stats": fit.batch_stats},
            self._network.normalize(inputs),
            False,
            capture_intermediates=lambda module, _: module.name == self._last,
            mutable=["intermediates"],
        )
        return seen["intermediates"]["backbone"][self._last]["__call__"][0].astype(jnp.float32)

    def best(self, state: State, data: TrainingData) -> Fit:
        """The best network when all epochs are done."""
        return self._offer(state, data).best

    def estimates(self, fit: Fit, prior: jax.Array) -> dict[str, jax.Array]:
        """`measured`, and the SMI that it stands for at a share of positives in U."""
        # With P in the mixture, the classes are P and U, and the prior is known.
        smi = mutual_info.smi_from_objective(fit.objective, prior=self._share or prior)
        return measured(fit) | {"smi": jnp.asarray(smi)}

    def _link(self, logits: jax.Array) -> jax.Array:
        return jax.nn.softplus(logits) if self._config.output == "softplus" else logits

    def _init(self, key: jax.Array, previous: None, data: TrainingData) -> State:
        del previous
        net_key, held_key = jax.random.split(key)
        params, batch_stats = self._network.init(net_key, data.inputs[:2], data.encoder)
        fit = Fit(params, batch_stats, jnp.float32(_LARGEST), jnp.float32(0))
        return State(fit, fit, hold_out(held_key, data, self._config, self._info))

    def _offer(self, state: State, data: TrainingData) -> State:
        """Measures the network and keeps it if it is the best so far."""
        current = state.current
        if self._config.head == "closed_form":
            current = current._replace(params=self._refitted(current, data, state.held))
        num_positives, num_unlabeled = num_held_out(self._config, self._info, data.copies)
        positives = jnp.nonzero(state.held & data.labeled, size=num_positives)[0]
        unlabeled = jnp.nonzero(state.held & ~data.labeled, size=num_unlabeled)[0]
        labeled = jnp.arange(num_positives + num_unlabeled) < num_positives
        inputs = data.inputs[jnp.concatenate([positives, unlabeled])]
        ratios = self.ratio(state._replace(current=current), inputs)
        share = {"positive_share": self._share}
        current = current._replace(
            objective=density_ratio.ratio_objective(ratios, labeled, **share),
            mean_ratio=density_ratio.mean_ratio(ratios, labeled, **share),
        )
        is_better = current.objective < state.best.objective
        best = jax.tree.map(lambda new, old: jnp.where(is_better, new, old), current, state.best)
        return state._replace(current=current, best=best)

    def _refitted(self, fit: Fit, data: TrainingData, held: jax.Array) -> Any:
        """Parameters with the head in closed form on all examples that are not held out."""
        features = batching_lib.map_batches(
            lambda inputs: self._network.infer(fit.params, fit.batch_stats, inputs).features,
            data.inputs,
            batch_size=self._batch_size,
        )
        return self._with_head(fit.params, features, data.labeled, ~held)

    def _with_head(self, params: Any, features, labeled, counted=None) -> Any:
        kernel, bias = density_ratio.fit_head(
            features,
            labeled,
            positive_share=self._share,
            ridge=self._config.head_ridge,
            counted=counted,
        )
        return params | {_HEAD: {"kernel": kernel, "bias": bias}}

    def _is_head(self, path: tuple[Any, ...]) -> bool:
        """Whether a parameter belongs to g."""
        names = [entry.key for entry in path]
        last_norm = self._last.replace("dense", "norm")
        return names[0] == _HEAD or bool(last_norm and last_norm in names)

    def _moves(self, params: Any, step: jax.Array) -> Any:
        """1 for each parameter that an update moves, 0 for the others."""
        c = self._config
        is_outer = step % (c.inner_steps + 1) == c.inner_steps
        if c.head == "closed_form":
            is_outer = jnp.ones_like(is_outer)
        inner_of_v = float(c.inner == "all")

        def moves(path, _):
            in_outer, in_inner = (0.0, 1.0) if self._is_head(path) else (1.0, inner_of_v)
            return jnp.where(is_outer, in_outer, in_inner)

        moved = jax.tree_util.tree_map_with_path(moves, params)
        if not self._network.frozen_stages:
            return moved
        trains = freezing.trainable(params, self._network.frozen_stages)
        return jax.tree.map(lambda moves, trains: moves * trains, moved, trains)

    def _step(self, state: State, batch: Batch, key: jax.Array):
        c, current = self._config, state.current
        rows = holdout.replacements(state.held[batch.ids], batch.labeled)
        inputs = self._network.normalize(batch.inputs[rows])

        def loss_of(params):
            outputs, stats = self._network.train_pass(params, current.batch_stats, inputs)
            logits = outputs.logits
            if c.head == "closed_form":
                params = self._with_head(params, outputs.features, batch.labeled)
                head = params[_HEAD]
                highest = jax.lax.Precision.HIGHEST  # as the head was found
                scores = jnp.matmul(outputs.features, head["kernel"], precision=highest)
                logits = (scores + head["bias"])[:, 0]
            loss = density_ratio.ratio_objective(
                self._link(logits), batch.labeled, positive_share=self._share
            )
            return loss, (stats, params[_HEAD])

        (loss, (stats, head)), gradient = jax.value_and_grad(loss_of, has_aux=True)(current.params)
        gradient = jax.tree.map(
            lambda g, p: g + c.representation_weight_decay * p, gradient, current.params
        )
        gradient = density_ratio.add_noise(key, gradient, eta=c.gradient_noise, updates=batch.step)
        params = jax.tree.map(
            lambda p, g, moves: p - c.representation_learning_rate * moves * g,
            current.params,
            gradient,
            self._moves(current.params, batch.step),
        )
        if c.head == "closed_form":
            params = params | {_HEAD: head}
        current = current._replace(params=params, batch_stats=stats)
        return state._replace(current=current), {"loss": loss}
