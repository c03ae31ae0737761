"""Between the steps of an epoch nothing is sent to the devices, and nothing is asked of them."""

import json
import types
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import accelerator
from pujax.data import batching
from pujax.training import checkpoint, method_setup, train_loop, train_step
from pujax.training.checkpoint import Checkpoints, Position
from pujax.training.evaluation import evaluator as evaluator_lib
from pujax.training.metrics_writer import MetricsWriter
from tests import tiny

MLP = {"model": "mlp", "options": {"hidden": (8,)}}


def config(method="naive", **run):
    run = {"steps_per_dispatch": 5, "progress_seconds": 1e9} | run
    return tiny.config(method, num_epochs=3, run=run, **MLP)


def test_a_call_sends_nothing_to_the_devices(tmp_path, monkeypatch):
    original, calls = train_loop._call, []

    def guarded(*args):
        calls.append(args[-2:])
        with jax.transfer_guard("disallow"):
            original(*args)

    monkeypatch.setattr(train_loop, "_call", guarded)
    tiny.train_in(tmp_path, config(), tiny.problem())
    # Twelve steps an epoch are calls of four, in which all are wanted.
    assert [wanted for wanted, _ in calls] == [4] * 9
    places = [tuple(map(int, at)) for _, at in calls]
    assert places == [(e, s, 12 * e + s, 4) for e in range(3) for s in (0, 4, 8)]


def test_metrics_are_fetched_at_the_end_of_an_epoch_only(tmp_path, monkeypatch):
    original, fetched = train_step.means, []
    monkeypatch.setattr(train_step, "means", lambda sums: fetched.append(1) or original(sums))
    tiny.train_in(tmp_path, config(), tiny.problem())
    assert len(fetched) == 2 * 3  # for the bar and for the row


def test_devices_have_few_calls_before_them_so_that_a_signal_comes_in_between(
    tmp_path, monkeypatch
):
    call, wait, ahead, most = train_loop._call, jax.block_until_ready, [0], []

    def called(*args):
        most.append(ahead[0])
        ahead[0] += 1
        call(*args)

    def waited(value):
        if isinstance(value, jax.Array) and value.shape == ():
            ahead[0] -= 1
        return wait(value)

    monkeypatch.setattr(train_loop, "_call", called)
    monkeypatch.setattr(jax, "block_until_ready", waited)
    made = tiny.config("naive", num_epochs=1, run={"steps_per_dispatch": 1}, **MLP)
    tiny.train_in(tmp_path, made, tiny.problem())
    assert most == [0, 1] + [2] * 10


@pytest.mark.parametrize(
    ("run", "data", "order"),
    [
        # The first call of an epoch is queued before the row of the epoch before is computed.
        ({"checkpoint_every": 10}, {}, ["call", "call", "row", "call", "row", "row"]),
        # A checkpoint after every epoch wants its row, and so does the choice of an epoch.
        ({"checkpoint_every": 1}, {}, ["call", "row"] * 3),
        (
            {"checkpoint_every": 10, "selection": "proxy_auc"},
            {"num_validation": 40},
            ["call", "row"] * 3,
        ),
    ],
)
def test_an_epoch_begins_before_the_last_one_is_evaluated(tmp_path, monkeypatch, run, data, order):
    events = []

    def noted(owner, name, event):
        original = getattr(owner, name)

        def call(*args, **kwargs):
            events.append(event)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, call)

    noted(train_loop, "_call", "call")
    noted(MetricsWriter, "append", "row")
    made = tiny.config(
        "naive", num_epochs=3, run={"steps_per_dispatch": 12} | run, data=data, **MLP
    )
    _, rows = tiny.train_in(tmp_path, made, tiny.problem(**data))
    assert events == order
    assert [row["epoch"] for row in rows] == [0, 1, 2]


def test_a_row_needs_no_buffer_of_the_state(tmp_path):
    state, _ = tiny.train_in(tmp_path, config("lagam"), tiny.problem())
    evaluator, trained = state.run.evaluators[0], state.carry.state
    evaluator._method = evaluator._method._replace(
        soft_labels=lambda state: state.labels, estimates=lambda state: {"first": state.labels[0]}
    )
    wanted = evaluator.begin(trained).row()
    begun = evaluator.begin(trained)
    begun.wait()
    jax.tree.map(lambda x: x.delete(), trained)  # as a step does that gets it donated
    np.testing.assert_equal(begun.row(), wanted)


@pytest.mark.parametrize(("part", "counts"), [("wait", 0.0), ("row", 100.0)])
def test_time_of_an_epoch_is_without_the_devices_part_of_the_evaluation_before(
    tmp_path, monkeypatch, part, counts
):
    # While the host computes a row the devices are at the next steps, whose time this is.
    original, clock = evaluator_lib.Evaluator.begin, [0.0]

    class Slow(NamedTuple):
        begun: evaluator_lib.Begun

        def wait(self):
            clock[0] += 100.0 * (part == "wait")

        def row(self):
            clock[0] += 100.0 * (part == "row")
            return self.begun.row()

    monkeypatch.setattr(
        evaluator_lib.Evaluator, "begin", lambda self, state: Slow(original(self, state))
    )
    monkeypatch.setattr(train_loop, "time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    tiny.train_in(tmp_path, config(checkpoint_every=10, eval_every=1), tiny.problem())
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["seconds"] for line in lines] == [0.0, counts, counts]
    assert clock[0] == 300.0


@pytest.mark.thorough
def test_rows_are_the_same_whenever_they_are_computed(tmp_path):
    data, shared = tiny.problem(), tiny.shared_setups()

    def rows(every):
        made = config("lagam", checkpoint_every=every)
        setup = shared(made, data, tiny.mesh())
        return tiny.train_in(tmp_path / str(every), made, data, setup=setup)[1]

    assert rows(10) == rows(1)


def test_a_profile_of_an_epoch_is_in_the_folder_and_changes_no_number(tmp_path):
    data = tiny.problem()

    def rows(folder, **run):
        made = config("naive", **run)
        setup = method_setup.build(made, data, tiny.mesh())
        return tiny.train_in(tmp_path / folder, made, data, setup=setup)[1]

    assert rows("with", profile_epoch=1) == rows("without")
    assert list((tmp_path / "with" / "profile").rglob("*.xplane.pb"))
    assert not (tmp_path / "without" / "profile").exists()
    with pytest.raises(ValueError, match="run.profile_epoch is 999; accepted: 0, or one of the"):
        method_setup.build(config("naive", profile_epoch=999), data, tiny.mesh())


@pytest.mark.thorough
@pytest.mark.parametrize("method", ["lagam", "impulses"])  # one refreshes, the other encodes
def test_whole_sets_in_one_call_give_the_numbers_of_a_call_per_batch(tmp_path, monkeypatch, method):
    made = config(method, eval_batch_size=48, eval_every=1)
    setup = method_setup.build(made, tiny.problem(), tiny.mesh())
    apart, apart_rows = tiny.train_in(tmp_path / "apart", made, tiny.problem(), setup=setup)
    made_programs = batching._compiled_over_batches.cache_info().misses
    monkeypatch.setattr(accelerator, "loops_beat_calls", lambda: True)
    whole, rows = tiny.train_in(tmp_path / "whole", made, tiny.problem(), setup=setup)
    # Features of the refresh, or of the encoded stage, and scores; both sets have 200 images.
    assert batching._compiled_over_batches.cache_info().misses == made_programs + 2
    for one, two in zip(rows, apart_rows, strict=True):
        assert one.keys() == two.keys()
        for name, value in one.items():
            is_number = isinstance(value, float)
            close = (
                pytest.approx(two[name], rel=1e-4, abs=1e-6, nan_ok=True)
                if is_number
                else two[name]
            )
            assert value == close, name
    states = [jax.tree.leaves(state.carry.state) for state in (whole, apart)]
    for one, two in zip(*states, strict=True):
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-6)


def test_what_is_saved_is_the_state_before_the_next_step_overwrites_it(tmp_path, monkeypatch):
    original, given = checkpoint.ocp.args.StandardSave, []
    monkeypatch.setattr(
        checkpoint.ocp.args, "StandardSave", lambda tree: given.append(tree) or original(tree)
    )
    saved = Checkpoints(str(tmp_path), keep=1, fingerprint={})
    overwrite = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0 - 1, tree), donate_argnums=0)
    tree = {"a": jnp.arange(500_000, dtype=jnp.float32), "b": jnp.ones([3], jnp.int32)}
    wanted = jax.tree.map(np.array, tree)
    saved.save(Position(global_step=1), tree)
    for mine, written in zip(jax.tree.leaves(tree), jax.tree.leaves(given), strict=True):
        assert mine.unsafe_buffer_pointer() != written.unsafe_buffer_pointer()
    assert overwrite(tree)["b"][0] == -1
    saved.wait()
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), wanted)
    _, found = saved.restore_newest(lambda position: shapes)
    jax.tree.map(np.testing.assert_array_equal, found, wanted)
    saved.close()


@pytest.mark.parametrize(
    ("seconds", "steps"), [(0.0, 64), (0.01, 64), (0.5, 10), (1.4, 3), (5.6, 1), (30.0, 1)]
)
def test_hosts_agree_on_a_signal_within_seconds(seconds, steps):
    assert train_loop._steps_between_agreements(3, 3 * seconds) == steps


@pytest.mark.parametrize("num_hosts", [1, 2])
def test_hosts_ask_one_another_after_the_first_step_and_then_as_steps_are_long(
    tmp_path, monkeypatch, num_hosts
):
    """With one host only the clock and a signal say when; the end of an epoch always is one."""
    asked = []
    original = train_loop._note_signal

    def note(state, request):
        asked.append((state.position.epoch, state.position.step))
        original(state, request)

    monkeypatch.setattr(train_loop, "_note_signal", note)
    monkeypatch.setattr(train_loop, "_steps_between_agreements", lambda steps, seconds: 4)
    monkeypatch.setattr(train_loop, "_num_hosts", lambda: num_hosts)
    tiny.train_in(tmp_path, config(steps_per_dispatch=1), tiny.problem())
    within = [step for epoch, step in asked if epoch == 0 and step]
    assert within == ([1, 5, 9, 12] if num_hosts == 2 else [12])
