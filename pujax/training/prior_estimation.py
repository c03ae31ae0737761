"""`data.prior='auto'`: the class prior, estimated from P and U before training and kept in a file.

Two-sample data leave copies of P in U. They are left out of the estimate, since their label is
visible to the estimator, and are added again afterwards.
"""

import json
import logging
import math
import os
from typing import Any

import jax
import ml_collections
import numpy as np
import scipy.special
from jax.sharding import Mesh

from pujax.data import batching, pu_dataset
from pujax.data.dataset import AUTO
from pujax.data.image_files import ImageFiles, as_array
from pujax.data.pu_dataset import PriorChoice, PUDataset, TrainingData
from pujax.files import read_json, write_json
from pujax.methods import naive
from pujax.models import RANDOM
from pujax.priors import Consensus, PriorEstimate, consensus, estimates_of
from pujax.priors.consensus import NAME as CONSENSUS
from pujax.priors.consensus import is_informative, shown, warning, why
from pujax.priors.conversions import population_prior
from pujax.priors.estimate import (
    WITH_PROBABILITIES,
    affordable_resamples,
    estimate,
    from_scores,
    is_balanced,
    needs_scores,
)
from pujax.training import config as config_lib
from pujax.training import sharding, train_step

_LOG = logging.getLogger(__name__)

FILE = "prior.json"
_NUM_RESAMPLES = 200
_KEY = 1001  # beside the seed, what the halves are drawn by, and the network's keys
_BATCH_SIZE = 128  # of the network that scores P against U
_MIN_STEPS = 5
"""Steps of an epoch of that network, where fewer batches would hold all examples."""
_MAX_POINTS = 10_000
"""Rows of P, and of U, that methods on features get."""
_MAX_NUMBERS = 2**25
"""Numbers of P, and of U, that methods on features get, in whole rows: they make float64 of them,
of which this many of both take half a gigabyte. 10,000 images of 32 x 32 x 3 have fewer."""
_MAX_STREAMED_BYTES = 2**30
"""Of streamed images that are held in memory for an estimate; the others play no part in it."""


def is_wanted(config: ml_collections.ConfigDict) -> bool:
    """True where a configuration asks for an estimate."""
    return config.data.prior == AUTO


def provisional(config: ml_collections.ConfigDict, data: PUDataset) -> PUDataset:
    """The problem with a stand-in for a prior that is still to be estimated.

    For checks that build a method before the estimate has been paid for; never to train on.
    """
    if not is_wanted(config):
        return data
    return _with_priors(data, _alone(PriorEstimate(0.5), ""), "to be estimated")


def settle(
    config: ml_collections.FrozenConfigDict,
    data: PUDataset,
    folder: str,
    mesh: Mesh,
    *,
    known: dict[str, Consensus] | None = None,
) -> PUDataset:
    """The problem with its estimated prior, where a configuration asks for one.

    Args:
      config: resolved configuration.
      data: the PU problem.
      folder: of the run; the estimate is read from its `prior.json`, or written there.
      mesh: devices.
      known: estimates of other runs of this process, used and added to; a run of the same data,
        seed and scorer need not estimate again.

    Returns:
      The problem with `info.prior`, `info.prior_unlabeled`, `info.prior_source`, `prior_interval`
      and `prior_choice`; as it is where the prior is given or counted. Where estimators disagree, a
      warning names them all, once for all runs that share `known`.

    Raises:
      ValueError: if the estimate carries no information (0, 1, or an interval from 0 to 1),
        `prior.json` belongs to other data, or the validation set holds more labels than such a
        prior allows.
    """
    if not is_wanted(config):
        return data
    known = {} if known is None else known
    identity = _identity(config, data)
    path = os.path.join(folder, FILE)
    name = json.dumps(identity, sort_keys=True)
    is_said = name in known
    # All hosts train the scorer together, so one that does not find the file decides for all.
    if not sharding.any_host(not os.path.exists(path)):
        result = _read(path, identity)
    else:
        if sharding.any_host(name not in known):
            _LOG.info("estimating the prior by %s", config.data.prior_method)
            known[name] = estimate_all(config, data, mesh)
        result = known[name]
    # Where hosts have other numbers of cores, theirs may differ in the last digits; the prior is a
    # constant of the program that they run together.
    result = _consensus(json.loads(sharding.of_first_host(json.dumps(_document(result)))))
    _check(result)
    data = _with_priors(data, result, _source(result))
    _check_validation(data)
    if sharding.is_writer() and not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        kept = _document(result) | {"prior": data.info.prior}
        kept |= {"prior_unlabeled": data.info.prior_unlabeled, "of": identity}
        write_json(path, kept | {"prior_interval": data.prior_interval})
    if not result.agree and not is_said and sharding.is_writer():
        _LOG.warning("%s", warning(result))
    return data


def estimate_all(config: ml_collections.FrozenConfigDict, data: PUDataset, mesh: Mesh) -> Consensus:
    """The share by `data.prior_method`, or by several methods and the rule of `priors.consensus`.

    Methods on scores get those of the configuration's network, methods on features the inputs, as
    `estimate_unlabeled` says.

    Raises:
      ValueError: where none of several estimates carries information.
    """
    if config.data.prior_method != CONSENSUS:
        result = estimate_unlabeled(config, data, mesh)
        return _alone(result, config.data.prior_method)
    p, u = _shuffled(config, data)
    scores = tuple(map(scipy.special.expit, _held_out(config, data, p, u, mesh)))
    points = (_points(data, rows) for rows in (p, u))
    options = {"num_resamples": _NUM_RESAMPLES, "key": config.seed}
    found = estimates_of(*points, scores=(scores[0], scores[1]), **options)
    if not any(map(is_informative, found.values())):
        raise ValueError(
            f"data.prior is 'auto', and the estimators find {shown(found) or 'nothing'} in the "
            "unlabeled examples, which carries no information; accepted: a number for data.prior, "
            "or another data.prior_method"
        )
    return consensus(found)


def estimate_unlabeled(
    config: ml_collections.FrozenConfigDict, data: PUDataset, mesh: Mesh
) -> PriorEstimate:
    """The share of positives among the unlabeled examples whose label is hidden.

    Methods on scores get those of the configuration's own network, trained on P against U as the
    'naive' method does. Methods on features get the inputs, flattened, of at most 10,000 random
    rows of P and of U, fewer of images beyond 32 x 32 x 3: of either at most 33 million numbers
    (but 4 rows). Of streamed images at most a gigabyte is decoded. A function of the data and
    `config.seed`.

    Args:
      config: resolved configuration; `data.prior_method` and `data.prior_epochs` count.
      data: the PU problem.
      mesh: devices that the network trains on.
    """
    method = config.data.prior_method
    options: dict[str, Any] = {"method": method, "key": config.seed}
    options["num_resamples"] = affordable_resamples(method, _NUM_RESAMPLES)
    p, u = _shuffled(config, data)
    if not needs_scores(method):
        return estimate(_points(data, p), _points(data, u), **options)
    scores_p, scores_u = _held_out(config, data, p, u, mesh)
    if method in WITH_PROBABILITIES:
        scores_p, scores_u = scipy.special.expit(scores_p), scipy.special.expit(scores_u)
    if not is_balanced(method):
        m, n = len(scores_p), len(scores_u)
        scores_p, scores_u = (m * x / (m * x + n * (1 - x)) for x in (scores_p, scores_u))
    return from_scores(scores_p, scores_u, **options)


def _points(data: PUDataset, rows: np.ndarray) -> np.ndarray:
    """Inputs of the first of some rows, as many as methods on features get."""
    most = min(_MAX_POINTS, max(_MAX_NUMBERS // math.prod(data.inputs.shape[1:]), 4))
    return as_array(data.inputs[rows[:most]])


def _shuffled(
    config: ml_collections.FrozenConfigDict, data: PUDataset
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of P, and of U without copies of P, in a random order; of streamed images a part."""
    rng = np.random.default_rng([config.seed, _KEY])
    p = rng.permutation(np.flatnonzero(data.labeled))
    u = rng.permutation(np.flatnonzero(data.hidden()))
    if not isinstance(data.inputs, ImageFiles):
        return p, u
    most = max(_MAX_STREAMED_BYTES // math.prod(data.inputs.shape[1:]) // 2, 4)
    return p[:most], u[:most]


def _held_out(
    config: ml_collections.FrozenConfigDict,
    data: PUDataset,
    p: np.ndarray,
    u: np.ndarray,
    mesh: Mesh,
) -> tuple[np.ndarray, np.ndarray]:
    """Logits of the second halves of rows of P and U, from a network trained on the first."""
    if min(len(p), len(u)) < 4:
        known = int(data.validation_labeled.sum())
        others = len(data.validation_labeled) - known
        beside = f" beside {known} and {others} held out" * (known > 0)
        raise ValueError(
            f"data.prior is 'auto' with {len(p)} labelled and {len(u)} unlabeled examples{beside}; "
            "accepted: at least 4 of each, two in each half, or a number for data.prior"
        )
    (train_p, held_p), (train_u, held_u) = (np.array_split(x, 2) for x in (p, u))
    rows = np.concatenate([train_p, train_u])
    held = np.concatenate([held_p, held_u])
    scores = network_scores(config, data, rows, as_array(data.inputs[held]), mesh)
    scores = scores.astype(np.float64)
    return scores[: len(held_p)], scores[len(held_p) :]


def network_scores(
    config: ml_collections.FrozenConfigDict,
    data: PUDataset,
    rows: np.ndarray,
    held: np.ndarray,
    mesh: Mesh,
) -> np.ndarray:
    """Trains the configuration's own network on P against U and scores held-out examples.

    The loss is that of the 'naive' method, P and U at weight 1 each, with its defaults. Batches
    hold as many of P as of U. No checkpoints and no evaluation: it is short, and only its ranking
    counts.

    Args:
      config: resolved configuration; `model`, `data.prior_epochs` and `seed` count.
      data: the PU problem.
      rows: int `[r]`, which examples it trains on.
      held: `[h, ...]`, inputs to score.
      mesh: devices.

    Returns:
      float32 `[h]`, logits.
    """
    labeled = data.labeled[rows]
    inputs, support = as_array(data.inputs[rows]), data.support_inputs[:0]
    arrays: Any = (inputs, labeled, support, np.zeros(0, np.float32), data.encoder)  # on the host
    training = TrainingData(*arrays)
    size = min(_BATCH_SIZE, len(rows) // 2 * 2)  # even, or U would count more than P
    tree = config_lib.default_config("naive")
    tree.update({"seed": config.seed, "model": config.model.to_dict()})
    tree.method.update(
        {
            "num_epochs": config.data.prior_epochs,
            "batch_size": size,
            "batching": "separate",
            "positives_per_batch": size // 2,
        }
    )
    info = data.info._replace(n_p=int(labeled.sum()), n_u=int((~labeled).sum()), n_support=0)
    method = naive.build(tree, info)
    (stage,) = method.stages
    num_steps = max(stage.batching.steps_per_epoch(len(rows)), _MIN_STEPS)
    stage = stage._replace(batching=stage.batching._replace(steps=num_steps))
    stage = train_step.traced_once(stage)
    names = train_step.metric_names((stage,), training, mesh)[0]
    on_device = sharding.replicate(training, mesh)
    key = train_step.stage_key(train_step.run_key(config.seed, mesh), _KEY, 0)
    state = train_step.init_state(
        stage, train_step.stage_key(key, train_step.INIT, 0), None, on_device, mesh
    )
    carry = train_step.Carry(state, train_step.zero_sums(names, mesh))
    train = train_step.make_train(stage, mesh)
    most = train_step.steps_per_dispatch(config.run.steps_per_dispatch, carry.state)
    per_call = train_step.steps_per_call(num_steps, most)
    for epoch in range(stage.num_epochs):
        plan = train_step.epoch_plan(stage, key, epoch, on_device)
        at = epoch, 0, epoch * num_steps
        for _, place in train_step.calls(*at, num_steps=num_steps, per_call=per_call):
            carry = train(carry, on_device, plan, key, *place, count=per_call)
    predict = jax.jit(method.predict, out_shardings=sharding.replicated(mesh))
    result = batching.map_batches(
        predict,
        sharding.replicate(held, mesh),
        args=(carry.state,),
        batch_size=config.run.eval_batch_size,
    )
    return sharding.to_host(result)


def _alone(estimate: PriorEstimate, method: str) -> Consensus:
    """One estimate as if it had been chosen."""
    return Consensus(estimate, method, True, {method: estimate})


def _source(result: Consensus) -> str:
    """Where the prior came from, in words."""
    text = f"estimated by {result.method}"
    if not result.agree:
        text += f", {why(result.method)} of {len(result.estimates)} that disagree"
    return text


def _with_priors(data: PUDataset, found: Consensus, source: str) -> PUDataset:
    """Priors of U as it is and of the population, from that of U without copies of P."""
    info, result = data.info, found.estimate
    hidden = int(data.hidden().sum())
    copies = info.n_u - hidden

    def in_unlabeled(share: float) -> float:
        return (copies + share * hidden) / info.n_u

    def in_population(share: float) -> float:
        if info.setting == "two_sample":
            return in_unlabeled(share)
        return population_prior(share, n_p=info.sample_labeled, n_u=info.n_u)

    interval = None
    if np.isfinite(result.low):
        interval = (in_population(result.low), in_population(result.high))
    shares = {name: tuple(map(in_unlabeled, x)) for name, x in found.estimates.items()}
    return data._replace(
        info=info._replace(
            prior=in_population(result.value),
            prior_unlabeled=in_unlabeled(result.value),
            prior_source=source,
        ),
        prior_interval=interval,
        prior_choice=PriorChoice(found.method, found.agree, shares),
    )


def _check(found: Consensus) -> None:
    result, method = found.estimate, found.method
    if 0 < result.value < 1 and not (result.low == 0 and result.high == 1):
        return
    interval = f", interval {result.low:.3g} to {result.high:.3g}" * bool(np.isfinite(result.low))
    raise ValueError(
        f"data.prior is 'auto', and {method} finds {result.value:.3g} in the unlabeled "
        f"examples{interval}, which carries no information; accepted: a number for data.prior, "
        "or another data.prior_method"
    )


def _check_validation(data: PUDataset) -> None:
    count, labeled = data.counts()["validation"], int(data.validation_labeled.sum())
    one_sample = data.info.setting == "one_sample"
    if one_sample and count and not data.validation_prior() * count > labeled:
        raise ValueError(
            f"data.prior is 'auto' and estimated to be {data.info.prior:.4f}, which leaves no "
            f"positives unlabeled among {count} validation examples, {labeled} of them labelled; "
            "accepted: fewer data.validation_labeled, or a number for data.prior"
        )


def _identity(config: ml_collections.FrozenConfigDict, data: PUDataset) -> dict[str, Any]:
    """All that an estimate depends on."""
    identity = {
        "data_digest": pu_dataset.digest(data),
        "setting": data.info.setting,
        "seed": config.seed,
        "prior_method": config.data.prior_method,
    }
    if config.data.prior_method == CONSENSUS or needs_scores(config.data.prior_method):
        identity |= {
            "scaling": config.data.scaling,
            "prior_epochs": config.data.prior_epochs,
            "model": _without_place(config.model.to_dict()),
        }
    return json.loads(json.dumps(identity))  # as JSON gives it back


def _without_place(model: dict[str, Any]) -> dict[str, Any]:
    """The section without the place of its weights, which are in the digest of the data."""
    return {**model, "init": "a file"} if model.get("init", RANDOM) != RANDOM else model


def _read(path: str, identity: dict[str, Any]) -> Consensus:
    """The estimate of an earlier call.

    Raises:
      ValueError: if the file is damaged, or that of other data or settings.
    """
    kept = read_json(path)
    try:
        stored, result = dict(kept["of"]), _consensus(kept)
        if "model" in stored:  # of an earlier version with the place
            stored["model"] = _without_place(stored["model"])
    except (AttributeError, ValueError, KeyError, TypeError, OverflowError) as error:
        raise ValueError(f"{path} is damaged ({error}); accepted: the file as written") from error
    other = config_lib.differences(stored, identity)
    if other:
        raise ValueError(
            f"{path} belongs to another run ({'; '.join(other)}); accepted: the same data and "
            "settings, or another folder"
        )
    return result


def _document(result: Consensus) -> dict[str, Any]:
    """Estimates as JSON has them."""

    def numbers(found: PriorEstimate) -> dict[str, float]:
        return {name: float(x) for name, x in found._asdict().items()}

    return {
        "estimate": numbers(result.estimate),
        "method": result.method,
        "agree": bool(result.agree),
        "estimates": {name: numbers(x) for name, x in result.estimates.items()},
    }


def _consensus(document: Any) -> Consensus:
    """Estimates from JSON."""
    estimates = {name: _stored(x) for name, x in dict(document["estimates"]).items()}
    estimate, method = _stored(document["estimate"]), str(document["method"])
    return Consensus(estimate, method, bool(document["agree"]), estimates)


def _stored(document: Any) -> PriorEstimate:
    """An estimate from JSON."""
    numbers = dict(document)
    if set(numbers) != set(PriorEstimate._fields):
        raise ValueError(f"'estimate' has {sorted(numbers)}")
    # A string is not a number; JSON's null is a missing end of the interval.
    numbers = {name: np.nan if x is None else x + 0.0 for name, x in numbers.items()}
    if np.isnan(numbers["value"]):
        raise ValueError("'value' is not a number")
    return PriorEstimate(**numbers)
