"""What a method is: stages of pure functions, and what evaluation asks of the trained state."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import chex
import jax

from pujax.data.batching import Batch, Batching
from pujax.data.pu_dataset import TrainingData
from pujax.models.encoder import Encoder

Metrics = dict[str, jax.Array]


class Stage(NamedTuple):
    """One phase of training with its own state, step and length.

    Attributes:
      name: short name, a column of the metrics, which no other stage of the method has.
      num_epochs: length, at least 1.
      init: `(key, previous_state, data) -> state`; the first stage gets None as previous state.
      step: `(state, batch, key) -> (state, metrics)`; pure, traced once, compiled by the loop.
        Metrics are scalars, `loss` among them; the loop averages them over an epoch. A metric
        `skipped` above 0 says that the method left the step out, which then is not averaged.
      batching: which examples a batch holds.
      refresh: `(state, data, key, epoch) -> state` before an epoch, or None. `epoch` is a Python
        int, the epochs of this stage that are done; a refresh that needs it gives it the default 0.
        Pure, but called without an outer jit, so that it can loop over the data set in batches; it
        jits what is heavy.
      refresh_every: epochs of the stage from one refresh to the next, the first before its first
        epoch; 0 refreshes before the first epoch only.
      encode: `(state, inputs [batch, ...]) -> [batch, ...]`, or None: what the stage sees in place
        of raw inputs. All examples are encoded once when the stage begins (and again when a run
        goes on within it), so that it may only look at what the stage leaves as it is: a frozen
        encoder. `init` sees raw inputs.
      selection: which of its epochs a stage before the last hands on: of those that are evaluated
        (`run.eval_every`, and its last one) the one that this rule of `run.selection`, no oracle,
        prefers on the part held out. It is the last one where nothing is held out or no epoch has a
        value. Which epoch of the last stage counts is `run.selection` alone. A method that leaves
        the rule to its user calls the field `pretrain_selection`, for which `configs/baseline.py`
        holds a part out.
      refresh_restarts: whether every refresh draws the weights anew, so that training begins again.
    """

    name: str
    num_epochs: int
    init: Callable[[jax.Array, Any, TrainingData], Any]
    step: Callable[[Any, Batch, jax.Array], tuple[Any, Metrics]]
    batching: Batching
    refresh: Callable[..., Any] | None = None
    refresh_every: int = 1
    encode: Callable[[Any, jax.Array], jax.Array] | None = None
    selection: str = "last"
    refresh_restarts: bool = False

    def is_refreshed(self, epoch: int) -> bool:
        """Whether a refresh is due before an epoch of the stage, counted from 0."""
        if self.refresh is None:
            return False
        return epoch % self.refresh_every == 0 if self.refresh_every else epoch == 0


class Method(NamedTuple):
    """A PU learning method.

    Attributes:
      stages: run one after the other.
      predict: `(state, inputs) -> scores [batch]` on raw inputs, or `[batch, classes]` in
        multi-label problems; positive iff score > 0.
      embed: `(state, inputs) -> [batch, dim]`, what the embedding figures show, or None.
      soft_labels: `state -> [n]`, learned positive mass of every training example, or None.
      label_gradients: `state -> [n]`, how strongly the last update drew every soft label towards
        positive (above 0) or negative; 0 where there was none. Evaluation compares its signs with
        the hidden truth. None without.
      calibrate: `(state, data) -> state` before every evaluation, or None: sets numbers that
        `predict` needs and training does not touch, such as a threshold. Called without an outer
        jit like `refresh`; training goes on from the state as it was before.
      evaluated: `state -> state` of the structure that `calibrate` returns, where it is not that of
        the last stage's states, or None. Saved models are rebuilt by it, from shapes.
      adjust: `(scores [m], population [m]) -> scores [m]` of a whole set of examples on the host,
        applied after `predict`, or None; `population` masks a sample of the population. Only for
        transductive rules, whose score of one example depends on the others.
      estimates: `state -> {name: scalar}`, numbers that the method found out itself, or None. They
        are reported at every evaluation. `estimated_prior` is the share of positives in U and is
        compared with the truth.
      diagnose: `{name: number} -> sentences` on the host, what to distrust about the final
        estimates, or None; the summary's warnings say it.
      encoder: `state -> models.encoder.Encoder`, what other runs may start from (`init_from`), or
        None. It is saved at the end of a run.
      alternatives: other functions like `predict` by name, or None: states that can be read in
        several ways, with averaged and with raw weights say. They are evaluated beside it in
        multi-label problems.
      reveals: hidden labels that an oracle baseline trains on, see `PUDataset.reveal`: '' for none,
        'all', or 'negatives'. Oracles are reported as such.
    """

    stages: tuple[Stage, ...]
    predict: Callable[[Any, jax.Array], jax.Array]
    embed: Callable[[Any, jax.Array], jax.Array] | None = None
    soft_labels: Callable[[chex.ArrayTree], jax.Array] | None = None
    label_gradients: Callable[[chex.ArrayTree], jax.Array] | None = None
    calibrate: Callable[[Any, TrainingData], Any] | None = None
    evaluated: Callable[[Any], Any] | None = None
    adjust: Callable[[jax.Array, Any], jax.Array] | None = None
    estimates: Callable[[Any], dict[str, jax.Array]] | None = None
    diagnose: Callable[[dict[str, float]], list[str]] | None = None
    encoder: Callable[[Any], Encoder] | None = None
    alternatives: Mapping[str, Callable[[Any, jax.Array], jax.Array]] | None = None
    reveals: str = ""
