"""A scorer of P against U for an estimate of the class prior: few epochs, nothing kept."""

import jax
import ml_collections
import numpy as np
from jax.sharding import Mesh

from pujax.data import batching
from pujax.data.pu_dataset import PUDataset, TrainingData
from pujax.methods import naive
from pujax.training import config as config_lib
from pujax.training import sharding, train_step

_KEY = 1001  # purpose that its keys are drawn for, beside those of `engine`
_BATCH_SIZE = 128
_MIN_STEPS = 5
"""Steps of an epoch of the scorer, where fewer batches would hold all examples."""


def network_scores(
    config: ml_collections.FrozenConfigDict,
    data: PUDataset,
    rows: np.ndarray,
    held: np.ndarray,
    mesh: Mesh,
) -> np.ndarray:
    """Trains the configuration's own network on P against U and scores examples held apart.

    The loss is that of the 'naive' method, P and U at weight 1 each, with its defaults. Batches
    hold as many of P as of U. No checkpoints and no evaluation: it is short, and only ranks.

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
    training = TrainingData(
        data.inputs[rows], labeled, data.support_inputs[:0], np.zeros(0, np.float32), data.encoder
    )
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
    names = train_step.metric_names(method.stages, training)[0]
    on_device = sharding.replicate(training, mesh)
    key = train_step.stage_key(train_step.run_key(config.seed, mesh), _KEY, 0)
    state = train_step.init_state(
        stage, train_step.stage_key(key, train_step.INIT, 0), None, on_device, mesh
    )
    carry = train_step.Carry(state, train_step.zero_sums(names, mesh))
    train, step = train_step.make_train(stage, mesh), 0
    per_call = train_step.steps_per_dispatch(config.run.steps_per_dispatch, carry.state)
    for epoch in range(stage.num_epochs):
        plan = train_step.epoch_plan(stage, key, epoch, on_device)
        for first in range(0, num_steps, per_call):
            count = min(per_call, num_steps - first)
            carry = train(carry, on_device, plan, key, epoch, first, step, count=count)
            step += count
    predict = jax.jit(method.predict, out_shardings=sharding.replicated(mesh))
    result = batching.map_batches(
        lambda inputs: predict(carry.state, inputs),
        sharding.replicate(held, mesh),
        batch_size=config.run.eval_batch_size,
    )
    return sharding.to_host(result)
