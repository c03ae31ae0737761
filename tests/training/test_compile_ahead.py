"""Programs compiled in the background are those that the run calls, and no others."""

import contextlib
import threading
import types

import jax
import numpy as np
import pytest

from pujax import commands
from pujax.training import compile_ahead, method_setup, train_step
from tests import tiny


@contextlib.contextmanager
def counted():
    """Names of the functions that are compiled while the block runs, with the compiling threads."""
    found = []

    def listen(event, seconds, fun_name="", **_):
        if event.endswith("backend_compile_duration"):
            name = threading.current_thread().name.split("_")[0]
            found.append((fun_name, "ahead" if name == "compile" else "main"))

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield found
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def setups(seed):
    """A run of two stages and one to compare with, of settings that no other test has."""
    configs = [
        tiny.config("lagam", model="mlp", num_epochs=3, learning_rate=0.011 + 1e-4 * seed),
        tiny.config("nnpu", model="mlp", num_epochs=2, learning_rate=0.012 + 1e-4 * seed),
    ]
    return [method_setup.build(config, tiny.problem(), tiny.mesh()) for config in configs]


def trained(folder, runs):
    return [
        tiny.train_in(folder / str(i), setup.config, tiny.problem(), setup=setup)[1]
        for i, setup in enumerate(runs)
    ]


def steps_and_starts(found, *, where=("main", "ahead")):
    return sorted(x for x, thread in found if thread in where and x in ("jit(init)", "jit(train)"))


@pytest.mark.thorough
def test_what_is_compiled_ahead_is_what_the_run_calls(tmp_path):
    with counted() as without:
        expected = trained(tmp_path / "without", setups(0))
    runs = setups(0)  # other functions, which nothing has compiled
    with counted() as found, compile_ahead.compiling(runs, tiny.mesh()):
        for program in list(compile_ahead._PROGRAMS.values()):
            program.result()
        rows = trained(tmp_path / "with", runs)
    assert steps_and_starts(without) == ["jit(init)"] * 3 + ["jit(train)"] * 3
    assert steps_and_starts(found) == steps_and_starts(without)
    # The first stage trains at once, and so compiles for itself.
    assert steps_and_starts(found, where=("main",)) == ["jit(init)", "jit(train)"]
    assert rows == expected
    assert not compile_ahead._PROGRAMS


@pytest.mark.thorough
def test_every_stage_waits_for_its_programs_and_so_does_one_that_goes_on(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(compile_ahead, "finish", asked.append)
    changes = {"num_epochs": 3, "learning_rate": 0.013, "model": "mlp"}
    config = tiny.config("lagam", stop_after_epoch=2, **changes)
    setup = method_setup.build(config, tiny.problem(), tiny.mesh())
    tiny.train_in(tmp_path, config, tiny.problem(), setup=setup)
    steps = compile_ahead._steps(setup, tiny.mesh())
    assert asked == steps
    config = tiny.config("lagam", **changes)
    setup = method_setup.build(config, tiny.problem(), tiny.mesh())
    tiny.train_in(tmp_path, config, tiny.problem(), setup=setup)
    assert asked == [*steps, compile_ahead._steps(setup, tiny.mesh())[1]]


def slow_compilation(monkeypatch):
    """Events that it has begun and may end, and what it has compiled."""
    begun, go_on, compiled = threading.Event(), threading.Event(), []

    def slow(setup, index, train, mesh):
        begun.set()
        assert go_on.wait(60)
        compiled.append(train)

    monkeypatch.setattr(compile_ahead, "_compile", slow)
    return begun, go_on, compiled


def test_a_stage_waits_for_its_program_and_compiles_one_that_has_not_begun(monkeypatch):
    begun, go_on, compiled = slow_compilation(monkeypatch)
    with compile_ahead.compiling(setups(1), tiny.mesh()):
        in_work, waiting = compile_ahead._PROGRAMS
        assert begun.wait(60)
        compile_ahead.finish(waiting)  # returns, though nothing has been compiled
        compile_ahead.finish("a stage that is not compiled ahead")
        assert not compiled
        threading.Timer(0.2, go_on.set).start()
        compile_ahead.finish(in_work)
        assert compiled == [in_work]
    assert compiled == [in_work]


def test_what_is_being_compiled_is_not_waited_for_at_the_end(monkeypatch):
    begun, go_on, compiled = slow_compilation(monkeypatch)
    before = threading.enumerate()
    with compile_ahead.compiling(setups(3), tiny.mesh()):
        (in_work, _), programs = compile_ahead._PROGRAMS, [*compile_ahead._PROGRAMS.values()]
        assert begun.wait(60)
    assert not compiled and programs[1].cancelled() and not compile_ahead._PROGRAMS
    (thread,) = set(threading.enumerate()) - set(before)
    assert thread.daemon  # Python ends without it
    go_on.set()
    thread.join(60)
    assert compiled == [in_work]


def test_what_cannot_be_compiled_is_left_to_the_stage_that_needs_it(monkeypatch, caplog):
    def fails(*_, **__):
        raise RuntimeError("no program")

    monkeypatch.setattr(compile_ahead.stage_shapes, "of_stages", fails)
    with caplog.at_level("DEBUG"), compile_ahead.compiling(setups(2), tiny.mesh()):
        for program in list(compile_ahead._PROGRAMS.values()):
            assert program.result() is None
    assert sum("was not compiled ahead" in x.getMessage() for x in caplog.records) == 2


@pytest.mark.parametrize(
    ("place", "name", "value"),
    [(jax, "default_backend", "gpu"), (jax, "process_count", 2)],
)
def test_nothing_is_compiled_ahead_where_it_would_disturb(monkeypatch, place, name, value):
    runs = setups(3)
    monkeypatch.setattr(place, name, lambda: value)
    with compile_ahead.compiling(runs, tiny.mesh()):
        assert not compile_ahead._PROGRAMS


def test_the_start_of_a_stage_compiles_fast_and_gives_the_same_numbers():
    setup, mesh = setups(4)[1], tiny.mesh()
    data, (stage,) = setup.data.training_data(), setup.method.stages
    init, key = train_step.make_init(stage.init, mesh), jax.random.key(3)
    assert train_step.make_init(stage.init, mesh) is init
    for one, two in zip(
        jax.tree.leaves(init(key, None, data)),
        jax.tree.leaves(jax.jit(stage.init)(key, None, data)),
        strict=True,
    ):
        np.testing.assert_allclose(one, two, rtol=1e-6)
    assert train_step._runs_once(mesh)["xla_backend_optimization_level"] == 1
    elsewhere = types.SimpleNamespace(devices=np.array([types.SimpleNamespace(platform="tpu")]))
    assert train_step._runs_once(elsewhere) is None


def test_a_process_ends_at_once_with_its_status_while_a_program_is_compiled(monkeypatch):
    class Left(BaseException):
        pass

    def leave(status):
        raise Left(status)

    monkeypatch.setattr(commands.os, "_exit", leave)
    monkeypatch.setattr(commands.logging, "shutdown", lambda: None)
    with monkeypatch.context() as idle:
        idle.setattr(compile_ahead, "is_compiling", lambda: False)
        assert commands.leave_if_compiling(0) is None
    go_on = threading.Event()
    thread = threading.Thread(target=go_on.wait, name=compile_ahead._THREAD, daemon=True)
    thread.start()
    try:
        with pytest.raises(Left) as left:
            commands.leave_if_compiling(143)
    finally:
        go_on.set()
        thread.join()
    assert left.value.args == (143,)
