"""Seeds on devices of their own: each is what it is alone, and the group is one run as before."""

import json
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.training import experiment, preemption, run_state, seed_axis, sharding, train_loop
from tests import tiny
from tests.training.test_seed_axis import assert_rows_close, members, rows_in

DEVICES = 4


def train(group, folder, num_devices=DEVICES):
    request = preemption.StopRequest()
    return experiment.run_members(group, tiny.mesh(num_devices), request, folder=str(folder))


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "model", "num_seeds", "num_devices", "changes"),
    [
        pytest.param(
            *("naive", "mlp", 4, 2, {"num_epochs": 1}), id="two-each", marks=pytest.mark.slow
        ),
        # Two devices share the batches of a seed; steps are refreshed, seed by seed.
        pytest.param(*("lagam", "mlp", 2, 4, {"num_epochs": 1, "warmup_epochs": 0}), id="two-rows"),
        # The second stage sees what the first one's network encodes.
        pytest.param(
            *("impulses", "mlp", 2, 2, {"run": {"eval_every": 2}, "head_learning_rate": 1e-3}),
            id="encoded",
        ),
    ],
)
def test_seeds_on_devices_of_their_own_equal_seeds_alone(
    tmp_path, method, model, num_seeds, num_devices, changes
):
    seeds = tuple(range(3, 3 + num_seeds))
    group = members(tmp_path, method, seeds=seeds, model=model, **changes)
    mesh = tiny.mesh(num_devices)
    assert not seed_axis.why_sequential(group, mesh)
    assert seed_axis.rows_for(group, mesh) == min(num_seeds, num_devices)
    results = train(group, tmp_path, num_devices)
    assert [result["seed"] for result in results] == list(seeds)
    assert {result["trained_together"] for result in results} == {num_seeds}
    _, rows = tiny.train_in(tmp_path / "alone", group[-1].setup.config, group[-1].truth)
    assert_rows_close(rows_in(tmp_path / f"seed_{group[-1].seed}"), rows)
    assert rows_in(tmp_path / f"seed_{group[0].seed}") != rows


def test_every_row_of_devices_holds_its_own_seeds_and_nothing_else(tmp_path):
    group = members(tmp_path, "naive", seeds=(3, 4, 5, 6))
    run = run_state.prepare(group, tiny.mesh(DEVICES), folder=str(tmp_path / "checkpoints"))
    run.close()
    assert run.mesh.shape == {"seed": 4, "data": 1}
    for array in (*jax.tree.leaves(run.on_device), run.key):
        shards = array.addressable_shards
        assert len({shard.device for shard in shards}) == 4
        assert all(shard.data.shape == (1, *array.shape[1:]) for shard in shards)
    for index, member in enumerate(group):
        inputs = run.of_seed(run.on_device, index).inputs
        np.testing.assert_array_equal(inputs, member.setup.data.inputs)


@pytest.mark.thorough
def test_rows_of_devices_tell_each_other_nothing(tmp_path):
    group = members(tmp_path, "naive", seeds=(3, 4, 5, 6), run={"steps_per_dispatch": 1})
    run = run_state.prepare(group, tiny.mesh(DEVICES), folder=str(tmp_path / "checkpoints"))
    run.close()
    state = train_loop.loop_state.start(run)
    plan = train_loop.train_step.epoch_plan(run.stages[0], run.key, 0, run.on_device)
    args = (state.carry, run.on_device, plan, run.key, 0, 0, 0)
    text = run.train_steps[0].lower(*args, count=1).compile().as_text()
    for name in ("all-reduce", "all-gather", "all-to-all", "collective-permute"):
        assert f" {name}(" not in text and f" {name}-start(" not in text


@pytest.mark.thorough
def test_a_group_goes_on_where_there_are_fewer_devices(tmp_path):
    def group(name, **run):
        run |= {"checkpoint_every": 1}
        return members(tmp_path / name, "naive", num_epochs=2, run=run)

    straight = train(group("straight"), tmp_path / "straight", 2)
    assert train(group("moved", stop_after_epoch=1), tmp_path / "moved", 2) is None
    moved = train(group("moved"), tmp_path / "moved", 1)
    for first, second in zip(straight, moved, strict=True):
        name = f"seed_{first['seed']}"
        assert_rows_close(rows_in(tmp_path / "straight" / name), rows_in(tmp_path / "moved" / name))
        assert first["seed"] == second["seed"]


def _poisoned(group, seed):
    """The group with a step that is not finite, late, for the seed alone: its inputs are marked."""
    setup = group[0].setup
    (stage,) = setup.method.stages

    def step(state, batch, key):
        is_marked = jnp.all(batch.inputs[:, 0, 0] == 255)
        state, metrics = stage.step(state, batch, key)
        bad = jnp.where(is_marked & (batch.step >= 17), jnp.nan, 0)
        return state, metrics | {"loss": metrics["loss"] + bad}

    method = setup.method._replace(stages=(stage._replace(step=step),))
    result = []
    for member in group:
        inputs = member.setup.data.inputs.copy()
        inputs[:, 0, 0] = 255 if member.seed == seed else 0
        changed = member.setup.data._replace(inputs=inputs)
        result.append(member._replace(setup=member.setup._replace(method=method, data=changed)))
    return result


@pytest.mark.thorough
def test_a_seed_leaves_and_the_devices_share_the_others(tmp_path):
    run = {"progress_seconds": 0.0, "steps_per_dispatch": 2, "checkpoint_every": 1}

    def group(folder):
        return _poisoned(members(folder, "naive", seeds=(3, 4, 5), run=run), 4)

    assert seed_axis.rows_for(group(tmp_path), tiny.mesh(DEVICES)) == 3
    with pytest.raises(train_loop.NonFiniteError, match=r"^seed 4 left the others: 1 of its steps"):
        train(group(tmp_path), tmp_path)
    for member in group(tmp_path / "alone"):
        if member.seed != 4:
            alone = tmp_path / "alone" / str(member.seed)
            _, rows = tiny.train_in(alone, member.setup.config, member.truth, setup=member.setup)
            assert_rows_close(rows_in(tmp_path / f"seed_{member.seed}"), rows)
    assert len(rows_in(tmp_path / "seed_4")) == 1
    assert [r["seed"] for r in train(group(tmp_path), tmp_path)] == [3, 5]


@pytest.mark.thorough
def test_seeds_that_run_different_programs_are_not_held_apart(tmp_path):
    group = members(tmp_path, "nnpu", problem={"sampling": "uniform"})
    assert group[0].setup.data.info != group[1].setup.data.info
    mesh = tiny.mesh(2)
    assert seed_axis.rows_for(group, mesh) == 1
    assert "numbers of the splits that differ" in seed_axis.describe(group, mesh)


@pytest.mark.parametrize(
    ("seeds", "devices", "allowed", "rows"),
    [
        (8, 8, 0, 8),
        (4, 8, 0, 4),
        (6, 4, 0, 3),
        (9, 4, 0, 3),
        (5, 4, 0, 1),
        (6, 8, 2, 2),
        (6, 8, 5, 3),
    ],
)
def test_rows_are_the_most_that_divide_the_seeds(monkeypatch, seeds, devices, allowed, rows):
    setup = SimpleNamespace(config=SimpleNamespace(run=SimpleNamespace(seed_devices=allowed)))
    members = [SimpleNamespace(setup=setup)] * seeds
    monkeypatch.setattr(
        seed_axis, "shared_methods", lambda x: [SimpleNamespace(stages=())] * len(x)
    )
    assert seed_axis.rows_for(members, SimpleNamespace(size=devices)) == rows


@pytest.mark.parametrize(("batch_size", "uneven"), [(16, 0), (18, 0), (17, 2)])
def test_a_batch_is_shared_by_the_devices_of_one_seed(tmp_path, caplog, batch_size, uneven):
    group = members(tmp_path, "naive", seeds=(3, 4), batch_size=batch_size)
    run_state.prepare(group, tiny.mesh(DEVICES), folder=str(tmp_path / "checkpoints")).close()
    said = [r.getMessage() for r in caplog.records if "cannot share evenly" in r.getMessage()]
    assert len(said) == bool(uneven)  # two devices a seed, not four
    assert all(f"method.batch_size is 17, which {uneven} devices" in x for x in said)


def test_a_seed_that_stays_alone_is_told_which_batches_its_devices_cannot_share(tmp_path, caplog):
    group = members(tmp_path, "naive", seeds=(3, 4), batch_size=18)
    run = run_state.prepare(group, tiny.mesh(DEVICES), folder=str(tmp_path / "checkpoints"))
    assert "cannot share" not in caplog.text
    run.keep([1]).close()
    assert "method.batch_size is 18, which 4 devices cannot share evenly" in caplog.text


@pytest.mark.thorough
def test_the_layout_is_chosen_and_named(tmp_path):
    def layout(num_seeds, num_devices, **run):
        group = members(tmp_path, "naive", seeds=tuple(range(num_seeds)), run=run)
        mesh = tiny.mesh(num_devices)
        rows = seed_axis.rows_for(group, mesh)
        assert sharding.num_rows(sharding.spread_seeds(mesh, rows)) == rows
        return rows, seed_axis.describe(group, mesh)

    assert layout(3, 4) == (3, "3 rows of 1 device(s) with 1 seed(s) each")
    assert layout(4, 2) == (2, "2 rows of 1 device(s) with 2 seed(s) each")
    assert layout(2, 4) == (2, "2 rows of 2 device(s) with 1 seed(s) each")
    assert layout(4, 4, seed_devices=2)[0] == 2
    assert layout(2, 4, seed_devices=1) == (
        1,
        "all on every one of 4 devices, as run.seed_devices is 1",
    )
    assert layout(2, 1) == (1, "all on the only device")


def test_the_setting_is_checked():
    with pytest.raises(ValueError, match="run.seed_devices is -1; accepted: an integer from 0"):
        tiny.config("naive", run={"seed_devices": -1})
    assert json.dumps(tiny.config("naive").run.seed_devices) == "0"
