"""Several seeds in one program: each is what it is alone, and the group resumes as one."""

import functools
import json
import signal
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import metrics
from pujax.data import batching
from pujax.data.batching import Batching, EpochPlan
from pujax.data.pu_dataset import TrainingData
from pujax.methods.base import Stage
from pujax.training import (
    experiment,
    loop_state,
    preemption,
    run_state,
    seed_axis,
    train_loop,
    train_step,
)
from pujax.training.evaluation import model_selection, tasks
from pujax.training.seed_axis import Member
from tests import tiny

TIMING = ("seconds", "examples_per_second")
SEEDS = (3, 4)


# One for all tests of a worker, which ask for the same seeds and settings again and again.
_setup = tiny.shared_setups()
_over_seeds = functools.cache(seed_axis.over_seeds)


def members(folder, method, *, seeds=SEEDS, problem=None, model="mlp", **changes):
    """Seeds of one configuration, each with a split of its own."""
    result = []
    options = {"hidden": (8, 8)} if model == "mlp" else None
    for seed in seeds:
        config = tiny.config(method, seed=seed, model=model, options=options, **changes)
        data = tiny.problem(seed, **(problem or {}))
        setup = _setup(config, data, tiny.mesh())
        result.append(Member(setup, data, str(folder / f"seed_{seed}")))
    return result


@pytest.fixture(autouse=True)
def one_axis(monkeypatch):
    """Functions along the seed axis are the same object for the same seeds, so compile once."""
    monkeypatch.setattr(seed_axis, "over_seeds", lambda functions: _over_seeds(tuple(functions)))


def train(group, folder, request=None):
    request = request or preemption.StopRequest()
    return experiment.run_members(group, tiny.mesh(), request, folder=str(folder))


def alone(member, folder):
    """Where a seed stands that trains without the others, and its rows."""
    return tiny.train_in(folder, member.setup.config, member.truth, setup=member.setup)


def final_state(group, folder):
    """The last state of every seed, from the checkpoint."""
    run = run_state.prepare(group, tiny.mesh(), folder=str(folder / "checkpoints"))
    try:
        state = loop_state.start(run).carry.state
    finally:
        run.close()
    return [run.of_seed(state, index) for index in range(len(group))]


def rows_in(folder):
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(x).items() if k not in TIMING} for x in lines]


def assert_rows_close(first, second):
    assert len(first) == len(second)
    for one, two in zip(first, second, strict=True):
        assert one.keys() == two.keys()
        for name, value in one.items():
            if isinstance(value, float):
                # float32 sums in another order, over 48 steps
                np.testing.assert_allclose(value, two[name], rtol=2e-3, atol=2e-3, err_msg=name)
            else:
                assert value == two[name], name


@pytest.mark.parametrize(
    ("method", "model", "changes"),
    [
        pytest.param(
            *("naive", "mlp", {"run": {"steps_per_dispatch": 5}}),  # shuffled jointly
            marks=pytest.mark.slow,
        ),
        # P and U drawn apart
        pytest.param("gradpu", "mlp", {}, marks=pytest.mark.thorough),
        ("dist_pu", "mlp", {}),  # two stages, refreshed
        pytest.param("pusb", "mlp", {}, marks=pytest.mark.slow),  # calibrated
        # The second stage sees encoded inputs. Adam at higher rates makes much of small roundings.
        pytest.param(
            *("impulses", "mlp", {"run": {"eval_every": 4}, "head_learning_rate": 1e-3}),
            marks=pytest.mark.thorough,
        ),
        # Roundings of convolutions grow from step to step.
        pytest.param("naive", "small_cnn", {"num_epochs": 1}, marks=pytest.mark.thorough),
    ],
)
def test_seeds_together_equal_seeds_alone(tmp_path, method, model, changes):
    group = members(tmp_path, method, model=model, **changes)
    results = train(group, tmp_path)
    states = final_state(group, tmp_path)
    for member, state, result in zip(group, states, results, strict=True):
        seed = member.setup.config.seed
        now, rows = alone(member, tmp_path / f"alone_{seed}")
        assert_rows_close(rows_in(tmp_path / f"seed_{seed}"), rows)
        for a, b in zip(jax.tree.leaves(state), jax.tree.leaves(now.carry.state), strict=True):
            # Last digits of the start are those of another program, and grow from step to step.
            np.testing.assert_allclose(a, b, rtol=5e-3, atol=5e-3)
        assert result["test"]["auc"] == rows_in(tmp_path / f"seed_{seed}")[-1]["test_auc"]
        assert (result["seed"], result["trained_together"]) == (seed, len(SEEDS))
        written = json.loads((tmp_path / f"seed_{seed}" / "summary.json").read_text())
        assert written == result
    assert rows_in(tmp_path / "seed_3") != rows_in(tmp_path / "seed_4")


@pytest.mark.thorough
def test_each_seed_keeps_the_numbers_of_its_own_split(tmp_path):
    # Far enough apart that the functions of one seed would be seen in the rows of the other.
    group = [
        *members(tmp_path, "nnpu", seeds=(3,), problem={"prior": 0.4}, num_epochs=2),
        *members(tmp_path, "nnpu", seeds=(4,), problem={"prior": 0.7}, num_epochs=2),
    ]
    first, second = (member.setup.data.info for member in group)
    assert second.prior_unlabeled > first.prior_unlabeled + 0.2 and not seed_axis.why_sequential(
        group, tiny.mesh()
    ).startswith("their")
    train(group, tmp_path)
    for member in group:
        seed = member.setup.config.seed
        _, rows = alone(member, tmp_path / f"alone_{seed}")
        assert_rows_close(rows_in(tmp_path / f"seed_{seed}"), rows)


@pytest.mark.thorough
def test_a_group_resumes_bit_for_bit_from_epochs_stage_borders_and_single_steps(
    tmp_path, monkeypatch
):
    def made(name, stop=0):
        run = {"steps_per_dispatch": 4, "checkpoint_every": 1, "progress_seconds": 0.0}
        run |= {"stop_after_epoch": stop, "selection": "proxy_auc"}
        problem = {"num_validation": 40}
        return members(tmp_path / name, "dist_pu", problem=problem, run=run, data=problem)

    straight = train(made("straight"), tmp_path / "straight")
    broken, positions = tmp_path / "broken", []
    for stop in (1, 2):  # the first stage has one epoch
        assert train(made("broken", stop), broken) is None
    original = train_loop._fetch

    def fetch(state):
        positions.append(state.position)
        return original(state)

    monkeypatch.setattr(train_loop, "_fetch", fetch)

    class StopInTheMiddle:
        @property
        def signal(self):
            return signal.SIGTERM if positions and positions[-1].step == 3 else 0

    with pytest.raises(SystemExit) as stopped:
        train(made("broken"), broken, StopInTheMiddle())
    assert stopped.value.code == 128 + signal.SIGTERM
    # The third epoch has 9 steps and stopped after the third: the rows end before it.
    assert (positions[-1].epoch, positions[-1].step) == (2, 3)
    assert len(rows_in(broken / "seed_3")) == 2
    positions.clear()
    again = train(made("broken"), broken)
    assert (positions[0].epoch, positions[0].step) == (2, 6)
    for seed, first, second in zip(SEEDS, straight, again, strict=True):
        name = f"seed_{seed}"
        assert rows_in(broken / name) == rows_in(tmp_path / "straight" / name)
        for key in ("test", "train", "selections", "selection"):
            assert first[key] == second[key]


@pytest.mark.thorough
def test_every_seed_reports_the_epoch_of_its_own_selection(tmp_path):
    problem = {"num_validation": 40}
    run = {"selection": "nnpu_risk"}
    group = members(
        tmp_path, "naive", problem=problem, data=problem, run=run, learning_rate=0.5, num_epochs=6
    )
    for seed, result in zip(SEEDS, train(group, tmp_path), strict=True):
        rows = rows_in(tmp_path / f"seed_{seed}")
        best = min(rows, key=lambda row: row["val_nnpu_risk"])
        assert result["selection"]["epoch"] == best["epoch"]
        assert result["test"] == {k: best[f"test_{k}"] for k in result["test"]}


def test_a_number_that_is_not_finite_undoes_the_step_of_its_seed_only():
    def init(key, previous, data):
        return {"count": jnp.zeros([]), "kept": jnp.zeros([2]), "empty": jnp.zeros([0])}

    def step(state, batch, key):
        bad = jnp.any(batch.inputs == 9) & (batch.step != 1)
        state = state | {"count": state["count"] + 1}
        state["kept"] = state["kept"] + jnp.where(bad, jnp.inf, 1.0)
        # A step that is left out and not finite is undone, and counted once.
        return state, {"loss": batch.inputs[0, 0].astype(jnp.float32), "skipped": bad * 1.0}

    stage = Stage("only", 1, init, step, Batching(2))
    inputs = jnp.asarray([[[1]] * 4, [[9]] * 4], jnp.uint8)
    data = TrainingData(inputs, jnp.zeros([2, 4], bool), inputs[:, :0], jnp.zeros([2, 0]))
    mesh = tiny.mesh()
    keys = train_step.run_key((0, 1), mesh)
    both = seed_axis.join_stages([stage, stage])
    state = train_step.init_state(both, keys, None, data, mesh)
    carry = train_step.Carry(state, train_step.zero_sums(["loss", "skipped"], mesh, num_seeds=2))
    plan = EpochPlan(jnp.zeros([2, 3, 2], jnp.int32), jnp.zeros([2, 3, 0], jnp.int32))
    carry = train_step.make_train(both, mesh)(carry, data, plan, keys, 0, 0, 0, count=3)
    np.testing.assert_array_equal(carry.state["count"], [3, 1])
    np.testing.assert_array_equal(carry.state["kept"], [[3, 3], [1, 1]])
    good, poor = train_step.means(carry.sums)
    assert good == {"loss": 1.0, "skipped": 0.0, "nonfinite": 0.0}
    assert poor == {"loss": 9.0, "skipped": 0.0, "nonfinite": 2.0}


@functools.cache
def _not_finite(original, from_step):
    def step(state, batch, key):
        state, metrics = original(state, batch, key)
        bad = jnp.where(batch.step >= from_step, jnp.nan, 0)
        return state, metrics | {"loss": metrics["loss"] + bad}

    return step


def diverging(member, *, from_step):
    """The member with a step whose loss is not finite from a step on."""
    (stage,) = member.setup.method.stages
    step = _not_finite(stage.step, from_step)
    method = member.setup.method._replace(stages=(stage._replace(step=step),))
    # Equal numbers of a split would make the loop take the first member's method.
    setup = member.setup
    info = setup.data.info._replace(name=f"{setup.data.info.name} {member.seed}")
    return member._replace(setup=setup._replace(method=method, data=setup.data._replace(info=info)))


@pytest.mark.thorough
def test_a_seed_that_meets_a_number_that_is_not_finite_leaves_and_the_others_end(tmp_path):
    run = {"progress_seconds": 0.0, "steps_per_dispatch": 2, "checkpoint_every": 1}

    def group(folder, **changes):
        made = members(folder, "naive", seeds=(3, 4, 5), run=run | changes)
        return [made[0], diverging(made[1], from_step=17), made[2]]  # in its second epoch

    with pytest.raises(
        train_loop.NonFiniteError,
        match=r"^seed 4 left the others: 1 of its steps up to 18.*--set=run.nonfinite=skip",
    ):
        train(group(tmp_path), tmp_path)
    for seed in (3, 5):
        folder = tmp_path / f"seed_{seed}"
        (member,) = members(tmp_path / "alone", "naive", seeds=(seed,), run=run)
        _, rows = alone(member, tmp_path / f"alone_{seed}")
        assert_rows_close(rows_in(folder), rows)
        assert json.loads((folder / "summary.json").read_text())["trained_together"] == 3
    left = tmp_path / "seed_4"
    assert len(rows_in(left)) == 1 and not (left / "summary.json").exists()
    # A stop after an epoch does not hide it.
    with pytest.raises(train_loop.NonFiniteError, match="^seed 4 left the others"):
        train(group(tmp_path / "short", stop_after_epoch=2), tmp_path / "short")
    # The group's checkpoint knows that it left: the same call trains nobody again.
    assert [r["seed"] for r in train(group(tmp_path), tmp_path)] == [3, 5]
    # It goes on alone where it stood, with the policy that tolerates such steps.
    skipping = group(tmp_path, nonfinite="skip")[1]
    (result,) = experiment.run_members([skipping], tiny.mesh(), preemption.StopRequest())
    rows = rows_in(left)
    assert [row["epoch"] for row in rows] == [0, 1, 2, 3] and rows[1]["step"] == 24
    assert result["undone_steps"] == 12 * 3 - 5  # of steps 12 to 47 those from 17 on


def test_a_seed_that_leaves_is_saved_before_anything_is_said_of_it(tmp_path, monkeypatch):
    """A report that fails costs no run: the group goes on from what is there."""
    made = members(tmp_path, "naive", run={"progress_seconds": 0.0, "checkpoint_every": 1})
    group = [made[0], diverging(made[1], from_step=17)]
    order, save_alone = [], loop_state.save_alone

    def saved(state, seed):
        order.append("saved")
        return save_alone(state, seed)

    def told(state, seed):
        order.append("told")
        return "nothing is known"

    monkeypatch.setattr(loop_state, "save_alone", saved)
    monkeypatch.setattr(train_loop.nonfinite, "describe", told)
    with pytest.raises(train_loop.NonFiniteError, match=r"undone \(nothing is known\)"):
        train(group, tmp_path)
    assert order == ["saved", "told"]


@pytest.mark.thorough
def test_two_seeds_of_which_one_leaves_go_on_without_an_axis(tmp_path, monkeypatch):
    copies, keep = [], loop_state.keep

    def noted(state, seeds):
        keep(state, seeds)
        copies.append(state.data is state.run.on_device)

    monkeypatch.setattr(loop_state, "keep", noted)
    made = members(tmp_path, "naive", run={"progress_seconds": 0.0, "steps_per_dispatch": 4})
    with pytest.raises(train_loop.NonFiniteError, match="seed 3 left"):
        train([diverging(made[0], from_step=0), made[1]], tmp_path)
    assert copies == [True]  # the data are on the devices once
    _, rows = alone(made[1], tmp_path / "alone")
    assert_rows_close(rows_in(tmp_path / "seed_4"), rows)


@pytest.mark.thorough
def test_a_seed_stays_whose_own_checkpoint_was_not_completed(tmp_path):
    train(members(tmp_path, "naive", run={"stop_after_epoch": 1}), tmp_path)
    (tmp_path / "seed_3" / "checkpoints" / "24.orbax-checkpoint-tmp-0").mkdir(parents=True)
    assert [result["seed"] for result in train(members(tmp_path, "naive"), tmp_path)] == [3, 4]


@pytest.mark.thorough
def test_a_group_of_which_all_stop_names_the_seeds_and_goes_on_with_skip(tmp_path):
    with pytest.raises(train_loop.NonFiniteError, match=r"of seed 3, \d+ of seed 4"):
        train(members(tmp_path, "naive", learning_rate=1e38, num_epochs=1), tmp_path)
    skipping = members(
        tmp_path, "naive", learning_rate=1e38, num_epochs=1, run={"nonfinite": "skip"}
    )
    assert all(result["undone_steps"] > 0 for result in train(skipping, tmp_path))


@pytest.mark.thorough
def test_every_seed_of_a_group_has_its_figures(tmp_path):
    group = members(tmp_path, "naive", num_epochs=1, run={"figures": True})
    train(group, tmp_path)
    for member in group:
        names = {path.name for path in (tmp_path / f"seed_{member.seed}" / "figures").iterdir()}
        assert {"training.png", "scores.png", "embedding_pca.png"} <= names


class Clock:
    """A clock that a test sets; it stands in for the module `time` of the loop."""

    def __init__(self):
        self.now = 100.0

    def monotonic(self):
        return self.now


@pytest.mark.thorough
@pytest.mark.parametrize("count", [1, 2])
def test_the_seconds_of_an_epoch_are_those_of_its_parts_before_and_after_a_stop(
    tmp_path, monkeypatch, count
):
    clock, stops = Clock(), [True]
    monkeypatch.setattr(train_loop, "time", clock)
    original = train_loop._call

    def call(*args):
        clock.now += 2.0  # per call of one step
        original(*args)

    monkeypatch.setattr(train_loop, "_call", call)

    class StopOnce:
        @property
        def signal(self):
            return signal.SIGTERM if stops and clock.now == 110.0 else 0

    def group():
        run = {"progress_seconds": 0.0, "steps_per_dispatch": 1}
        return members(tmp_path, "naive", seeds=SEEDS[:count], num_epochs=2, run=run)

    folder = str(tmp_path) if count > 1 else ""
    with pytest.raises(SystemExit):
        experiment.run_members(group(), tiny.mesh(), StopOnce(), folder=folder)
    clock.now, stops = 5000.0, stops.clear()
    experiment.run_members(group(), tiny.mesh(), preemption.StopRequest(), folder=folder)
    lines = (tmp_path / "seed_3" / "metrics.jsonl").read_text().splitlines()
    # Twelve steps of 16 examples in 24 seconds, whatever the time between the two processes.
    for row, last_step in zip(map(json.loads, lines), (12, 24), strict=True):
        assert row["step"] == last_step and row["seconds"] == pytest.approx(24 / count)
        assert row["examples_per_second"] == pytest.approx(12 * 16 * count / 24)


@pytest.mark.thorough
def test_what_stands_in_the_way_of_training_together_is_named(tmp_path, monkeypatch):
    pair = members(tmp_path, "naive")
    assert seed_axis.why_sequential(pair, tiny.mesh()) == ""
    assert seed_axis.why_sequential(pair[:1], tiny.mesh()) == "there is only one seed"
    other = members(tmp_path, "naive", seeds=(5,), problem={"num_support": 9})
    assert "differ ((40, 152, 8) and (40, 151, 9))" in seed_axis.why_sequential(
        pair + other, tiny.mesh()
    )
    convolutions = members(tmp_path, "naive", model="small_cnn")
    assert "convolutions" in seed_axis.why_sequential(convolutions, tiny.mesh())
    monkeypatch.setattr(seed_axis, "_memory", lambda: 100)
    assert "GB" in seed_axis.why_sequential(pair, tiny.mesh())
    monkeypatch.setattr(seed_axis, "_memory", lambda: None)
    assert "is not known" in seed_axis.why_sequential(pair, tiny.mesh())


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("method", "shared"),
    [
        ("gradpu", {"init", "step", "predict"}),
        ("naive", {"init", "step", "predict"}),
        ("vpu", {"init", "step", "predict"}),
        ("nnpu", {"init", "predict"}),  # its risk holds the prior in U
        ("dist_pu", {"init", "predict"}),
    ],
)
def test_seeds_share_what_no_number_of_their_split_goes_into(tmp_path, method, shared):
    group = members(tmp_path, method, problem={"sampling": "uniform"})
    infos = [member.setup.data.info for member in group]
    assert infos[0].prior_unlabeled != infos[1].prior_unlabeled
    run = run_state.prepare(group, tiny.mesh(), folder=str(tmp_path / "checkpoints"))
    run.close()
    predicts = [method.predict for method in run.methods]
    assert (predicts[0] is predicts[1]) == ("predict" in shared)
    for first, second in zip(*(method.stages for method in run.methods), strict=True):
        assert (first.init is second.init) == ("init" in shared)
        assert (first.step is second.step) == ("step" in shared)


def test_functions_are_one_program_only_if_every_constant_is_the_same():
    def make(scalar=0.1, inside=(1.0, 2.0), outside=(3.0, 4.0), key=0, name="y"):
        inside, outside = np.asarray(inside, np.float32), np.asarray(outside, np.float32)
        key = jax.random.key(key)

        def function(x):
            inner = jax.jit(lambda y: y * inside + jax.random.normal(key, [2]))
            looped = jax.lax.fori_loop(0, 2, lambda i, y: y + scalar, inner(x))
            return {name: looped + outside}

        return function

    def digest(**changes):
        return seed_axis.digest(make(**changes), jax.ShapeDtypeStruct([2], jnp.float32))

    assert digest() == digest()
    others = [
        {"scalar": np.nextafter(np.float32(0.1), np.float32(1))},
        {"inside": (1.0, np.nextafter(np.float32(2), np.float32(3)))},
        {"outside": (3.0, 5.0)},
        {"key": 1},
        {"name": "z"},
    ]
    assert len({digest(), *(digest(**other) for other in others)}) == 1 + len(others)
    first, same, other = make(), make(), make(key=1)
    shared = seed_axis.share([first, same, other, same], jnp.zeros([2]))
    assert [x is first for x in shared] == [True, True, False, True] and shared[2] is other


def epochs_behind(folder, kind, seeds):
    """Runs two seeds to epoch 2, in a group or one of them alone, all epochs saved."""
    run = {"stop_after_epoch": 2, "checkpoint_every": 1}
    pair = members(folder, "naive", run=run, seeds=seeds)
    if kind == "group":
        assert train(pair, folder) is None
    else:
        alone(pair[0], folder / f"seed_{seeds[0]}")


@pytest.mark.thorough
@pytest.mark.parametrize("kind", ["group", "alone"])
def test_rows_with_a_hole_are_refused_and_left_as_they_are(tmp_path, kind):
    epochs_behind(tmp_path, kind, SEEDS)
    path = tmp_path / "seed_3" / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    assert len(lines) == 2
    path.write_text(lines[1] + lines[1].replace('"epoch": 1', '"epoch": 2'))
    path.with_suffix(".csv").unlink()  # from which the missing row would be taken
    before = path.read_text()
    pair = members(tmp_path, "naive")
    with pytest.raises(ValueError, match=r"seed_3/metrics.jsonl has the epochs \[1\]"):
        if kind == "group":
            train(pair, tmp_path)
        else:
            alone(pair[0], tmp_path / "seed_3")
    assert path.read_text() == before


@pytest.mark.thorough
def test_a_group_at_its_end_writes_only_the_summaries_that_are_missing(tmp_path, monkeypatch):
    train(members(tmp_path, "naive"), tmp_path)
    kept, lost = (tmp_path / f"seed_{seed}" / "summary.json" for seed in SEEDS)
    before = json.loads(lost.read_text())
    sections = {x: {} for x in ("selections", "oracle_best_epoch", "test", "train")}
    found = {"seed": "kept"} | sections
    kept.write_text(json.dumps(found))
    lost.unlink()
    monkeypatch.setattr(train_loop, "_train_epoch", lambda *a: pytest.fail("trained"))
    results = train(members(tmp_path, "naive"), tmp_path)
    assert results[0] == found == json.loads(kept.read_text())
    assert json.loads(lost.read_text())["test"] == before["test"] == results[1]["test"]


def test_a_group_leaves_the_rows_of_a_finished_member_alone(tmp_path):
    epochs_behind(tmp_path, "group", SEEDS)
    (tmp_path / "seed_3" / "summary.json").write_text("{}")
    with pytest.raises(ValueError, match="seed_3 holds a finished run, but its group has trained"):
        train(members(tmp_path, "naive"), tmp_path)
    assert len(rows_in(tmp_path / "seed_3")) == 2


def test_free_memory_is_what_the_machine_says_is_available(tmp_path, monkeypatch):
    path = tmp_path / "meminfo"
    path.write_text("MemTotal: 9 kB\nMemAvailable:       5 kB\n")
    monkeypatch.setattr(seed_axis, "_MEMINFO", str(path))
    if "bytes_limit" not in (jax.local_devices()[0].memory_stats() or {}):
        assert seed_axis._memory() == 5 * 1024
    monkeypatch.setattr(seed_axis, "_MEMINFO", str(tmp_path / "none"))
    assert seed_axis._memory() > 2**20
    if "bytes_limit" not in (jax.local_devices()[0].memory_stats() or {}):
        monkeypatch.delattr(seed_axis.os, "sysconf")  # as on Windows
        assert seed_axis._memory() is None


def test_keys_of_a_group_are_those_of_the_single_runs():
    mesh = tiny.mesh()
    keys = train_step.stage_key(train_step.run_key((0, 2**31 - 1), mesh), train_step.STEP, 7)
    for key, seed in zip(keys, (0, 2**31 - 1), strict=True):
        alone = train_step.stage_key(train_step.run_key(seed, mesh), train_step.STEP, 7)
        np.testing.assert_array_equal(jax.random.key_data(key), jax.random.key_data(alone))


def test_many_steps_per_call_unless_convolutions_run_on_a_cpu():
    dense, convolution = {"w": jnp.zeros([3, 4])}, {"w": jnp.zeros([3, 3, 1, 4])}
    assert train_step.steps_per_dispatch(0, dense) == 32
    assert train_step.steps_per_dispatch(0, convolution) == train_step.steps_per_dispatch(0) == 1
    assert train_step.steps_per_dispatch(5, convolution) == 5


# Batches of the two stages of `recording`; 192 examples, of which 40 are labelled, and 8 support.
RECORDED = (Batching(40, support_batch_size=5), Batching(48, num_positives=16, reshuffle=False))


def recording(member):
    """The member with a method that learns nothing and writes down what its functions are given.

    Two stages of two and three epochs, four steps each. The second is refreshed every other epoch.
    Both see the first pixel of an example plus the number of the stage.
    """

    def init(key, previous, data):
        state = previous or {
            "inits": jnp.zeros([2, 2], jnp.uint32),
            "refreshes": jnp.zeros([5, 2], jnp.uint32),
            "keys": jnp.zeros([20, 2], jnp.uint32),
            "ids": jnp.zeros([20, 48], jnp.int32),
            "inputs": jnp.zeros([20, 48]),
            "support": jnp.zeros([20, 5]),
            "epochs": jnp.zeros([20, 4]),
            "stage": jnp.int32(-1),
            "refreshed": jnp.int32(0),
        }
        stage = state["stage"] + 1
        inits = state["inits"].at[stage].set(jax.random.key_data(key))
        return state | {"stage": stage, "inits": inits}

    def refresh(state, data, key, epoch=0):
        keys = state["refreshes"].at[state["refreshed"]].set(jax.random.key_data(key))
        return state | {"refreshes": keys, "refreshed": state["refreshed"] + 1}

    def step(state, batch, key):
        places = (batch.epoch, batch.progress, batch.stage_epoch, batch.stage_progress)
        size = len(batch.ids)
        noted = {
            "keys": state["keys"].at[batch.step].set(jax.random.key_data(key)),
            "ids": state["ids"].at[batch.step, :size].set(batch.ids),
            "inputs": state["inputs"].at[batch.step, :size].set(batch.inputs[:, 0]),
            "epochs": state["epochs"].at[batch.step].set(jnp.stack(places).astype(jnp.float32)),
        }
        if batch.support_inputs is not None:
            noted["support"] = state["support"].at[batch.step].set(batch.support_inputs[:, 0])
        skipped = jnp.float32(batch.step == 6)
        return state | noted, {"loss": batch.step.astype(jnp.float32), "skipped": skipped}

    def encode(state, inputs):
        return inputs[:, 0, 0].astype(jnp.float32) + state["stage"]

    def predict(state, inputs):
        return inputs[:, 0, 0, 0].astype(jnp.float32) - 120 + 0 * state["stage"]

    stages = tuple(
        Stage(name, length, init, step, batching, refresh, every, encode)
        for name, length, batching, every in zip("ab", (2, 3), RECORDED, (1, 2), strict=True)
    )
    setup = member.setup
    method = setup.method._replace(stages=stages, predict=predict, embed=None)
    names = train_step.metric_names(stages, setup.data.training_data(), tiny.mesh())
    intervals = setup.eval_intervals * len(stages)
    setup = setup._replace(method=method, metric_names=names, eval_intervals=intervals)
    return member._replace(setup=setup)


class Shown(tiny.NoProgress):
    """Keeps what the bar is told of steps."""

    def __init__(self):
        self.steps, self.losses = 0, {}

    def update(self, steps, *, epoch, metrics, **_):
        if steps:
            self.steps += steps
            self.losses[epoch] = metrics["loss"]


@pytest.mark.parametrize("added", [{"refreshed": 3}, {"refreshed": np.float64(3)}, {"more": 1}])
def test_a_refresh_may_decide_numbers_and_not_the_form_of_the_state(tmp_path, added):
    (member,) = members(tmp_path, "naive", seeds=SEEDS[:1], num_epochs=5)
    setup = recording(member).setup
    first, second = setup.method.stages
    first = first._replace(refresh=lambda state, data, key, epoch=0: state | added)
    method = setup.method._replace(stages=(first, second._replace(refresh=None)))
    member = member._replace(setup=setup._replace(method=method))
    run = run_state.prepare([member], tiny.mesh(), folder=str(tmp_path / "checkpoints"))
    if "more" in added:
        with pytest.raises(
            ValueError, match="^refresh of stage 'a' returns .*'more'.*; accepted: "
        ):
            train_loop.train(run, Shown(), preemption.StopRequest())
    else:
        state = train_loop.train(run, Shown(), preemption.StopRequest())
        found = run.of_seed(state.carry.state, 0)["refreshed"]
        assert found == 3 and found.dtype == jnp.int32
    run.close()


@pytest.mark.parametrize("count", [1, 2])
def test_the_loop_gives_each_stage_the_keys_batches_and_data_that_the_seed_decides(tmp_path, count):
    run = {"eval_every": 2, "checkpoint_every": 2, "keep_checkpoints": 9, "steps_per_dispatch": 3}
    group = members(tmp_path, "naive", seeds=SEEDS[:count], run=run, num_epochs=5)
    group = [recording(member) for member in group]
    run = run_state.prepare(group, tiny.mesh(), folder=str(tmp_path / "checkpoints"))
    shown, started = Shown(), time.monotonic()
    state = train_loop.train(run, shown, preemption.StopRequest())
    elapsed = time.monotonic() - started
    run.close()
    losses = [1.5, (4 + 5 + 7) / 3, 9.5, 13.5, 17.5]  # the seventh step is left out
    assert shown.steps == 20 and shown.losses == pytest.approx(dict(enumerate(losses)))
    # After every other epoch, and at the end.
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {"8", "16", "20"}

    for index, member in enumerate(group):
        seed, data = SEEDS[index], member.truth

        def key_of(purpose, index, seed=seed):
            return jax.random.fold_in(jax.random.fold_in(jax.random.key(seed), purpose), index)

        def words(keys):
            return [jax.random.key_data(key) for key in keys]

        found = jax.tree.map(np.asarray, run.of_seed(state.carry.state, index))
        for_init, for_order, for_step, for_refresh = range(4)
        np.testing.assert_array_equal(found["inits"], words(key_of(for_init, i) for i in (0, 1)))
        refreshed = words(key_of(for_refresh, epoch) for epoch in (0, 1, 2, 4))
        np.testing.assert_array_equal(found["refreshes"][:4], refreshed)
        assert found["refreshed"] == 4
        np.testing.assert_array_equal(found["keys"], words(key_of(for_step, i) for i in range(20)))
        for epoch in range(5):
            stage = int(epoch >= 2)
            plan = batching.epoch_plan(
                key_of(for_order, (0, 1, 0, 0, 0)[epoch]),  # the second stage repeats its batches
                jnp.asarray(data.labeled),
                num_labeled=40,
                num_support=8,
                batching=RECORDED[stage],
            )
            steps, size = slice(4 * epoch, 4 * epoch + 4), RECORDED[stage].batch_size
            ids = np.asarray(plan.ids)
            np.testing.assert_array_equal(found["ids"][steps, :size], ids)
            seen = data.inputs[ids, 0, 0, 0] + float(stage)
            np.testing.assert_array_equal(found["inputs"][steps, :size], seen)
            if stage == 0:
                support = data.support_inputs[np.asarray(plan.support), 0, 0, 0]
                np.testing.assert_array_equal(found["support"][steps], support)
            progress, first = epoch + np.arange(4) / 4, 2 * stage
            for column, wanted in enumerate((epoch, progress, epoch - first, progress - first)):
                np.testing.assert_array_equal(found["epochs"][steps, column], wanted)

        lines = rows_in(tmp_path / f"seed_{seed}")
        assert [x["loss"] for x in lines] == pytest.approx(losses)
        assert [x["skipped"] for x in lines] == [0, 0.25, 0, 0, 0]
        assert ["test_auc" in x for x in lines] == [False, True, False, True, True]
        whole = (tmp_path / f"seed_{seed}" / "metrics.jsonl").read_text().splitlines()
        seconds, rates = zip(*([json.loads(x)[k] for k in TIMING] for x in whole), strict=True)
        assert 0 < sum(seconds) * count <= elapsed
        examples = [4 * RECORDED[int(epoch >= 2)].batch_size for epoch in range(5)]
        assert np.multiply(seconds, rates) == pytest.approx(examples)
        pixels = data.test_inputs[:, 0, 0, 0].astype(np.float32)
        assert lines[-1]["test_auc"] == float(metrics.auc(pixels, data.test_labels))


@pytest.mark.thorough
def test_a_seed_that_leaves_and_those_that_stay_keep_their_best_values_and_states(
    tmp_path, monkeypatch
):
    calls = []

    def falling(scores, data, **options):  # the first epoch of every seed is its best
        calls.append(None)
        return dict.fromkeys(model_selection.COLUMNS.values(), -float(len(calls)))

    changed = tasks._BINARY._replace(validation_metrics=falling)
    monkeypatch.setattr(tasks, "_BINARY", changed)
    problem = {"num_validation": 40}
    settings = {"problem": problem, "data": problem, "num_epochs": 2}
    made = members(tmp_path, "naive", seeds=(3, 4, 5), run={"selection": "proxy_auc"}, **settings)
    made[1] = diverging(made[1], from_step=10)  # in its second epoch
    run = run_state.prepare(made, tiny.mesh(), folder=str(tmp_path / "checkpoints"))
    state = train_loop.train(run, tiny.NoProgress(), preemption.StopRequest())
    assert state.position.best_values == (-1, -3) and state.position.members == (0, 2)
    state.run.close()
    left_run = run_state.prepare([made[1]], tiny.mesh())
    left = loop_state.start(left_run)
    assert left.position.best_values == (-2,) and left.position.epoch == 1
    left_run.close()
    run = {"selection": "proxy_auc", "stop_after_epoch": 1}
    short = members(tmp_path / "short", "naive", seeds=(3, 4, 5), run=run, **settings)
    for index, reported in ((0, state.reported(0)), (1, left.best), (2, state.reported(1))):
        member = short[index]
        first, _ = alone(member, member.folder)
        pairs = zip(*map(jax.tree.leaves, (reported, first.carry.state)), strict=True)
        for a, b in pairs:
            np.testing.assert_allclose(a, b, rtol=2e-3, atol=2e-3)


def test_a_call_takes_over_the_memory_of_its_carry():
    def step(state, batch, key):
        return state + 1, {"loss": jnp.zeros([])}

    stage, mesh = Stage("only", 1, lambda *_: jnp.zeros([3]), step, Batching(2)), tiny.mesh()
    data = TrainingData(jnp.zeros([4, 1]), jnp.zeros([4], bool), jnp.zeros([0, 1]), jnp.zeros([0]))
    key = train_step.run_key(0, mesh)
    state = train_step.init_state(stage, key, None, data, mesh)
    carry = train_step.Carry(state, train_step.zero_sums(["loss"], mesh))
    plan = train_step.epoch_plan(stage, key, 0, data)
    after = train_step.make_train(stage, mesh)(carry, data, plan, key, 0, 0, 0, count=2)
    np.testing.assert_array_equal(after.state, [2, 2, 2])
    assert carry.state.is_deleted() and carry.sums["loss"].is_deleted()
