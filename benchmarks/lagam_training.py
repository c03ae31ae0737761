"""A LaGAM run up to an epoch of its main stage, for what benchmarks look at there."""

from typing import Any

from pujax.data import batching
from pujax.training import method_setup, sharding, train_step


def trained(config: Any, data: Any, num_epochs: int, num_batches: int) -> tuple[Any, list[Any]]:
    """State before an epoch, and its first batches.

    Args:
      config: resolved.
      data: its problem.
      num_epochs: epochs to train, those of the warm-up and some of the main stage.
      num_batches: at most, of the next epoch.
    """
    mesh = sharding.make_mesh()
    setup = method_setup.build(config, data, mesh)
    arrays = sharding.replicate(setup.data.training_data(), mesh)
    key, state, epoch, done = train_step.run_key(config.seed, mesh), None, 0, 0
    for index, stage in enumerate(setup.method.stages):
        first = epoch
        init_key = train_step.stage_key(key, train_step.INIT, index)
        state = train_step.init_state(stage, init_key, state, arrays, mesh)
        train = train_step.make_train(stage, mesh, first_epoch=first)
        while epoch < min(num_epochs, first + stage.num_epochs):
            if stage.is_refreshed(epoch - first):
                refresh_key = train_step.stage_key(key, train_step.REFRESH, epoch)
                state = stage.refresh(state, arrays, refresh_key, epoch - first)
            sums = train_step.zero_sums(setup.metric_names[index], mesh)
            carry = train_step.Carry(state, sums)
            plan = train_step.epoch_plan(stage, key, epoch, arrays)
            for step in range(len(plan.ids)):
                carry = train(carry, arrays, plan, key, epoch, step, done, count=1)
                done += 1
            state, epoch = carry.state, epoch + 1
    plan = train_step.epoch_plan(stage, key, epoch, arrays)
    batches = [
        batching.gather(arrays, plan, step, epoch=epoch, step=done + step, first_epoch=first)
        for step in range(min(num_batches, len(plan.ids)))
    ]
    return state, batches
