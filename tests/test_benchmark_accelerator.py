"""The benchmark of an accelerator: its budget, its files, its arithmetic, and a dry run of it."""

import argparse
import gzip
import itertools
import json
import os
import signal
import sys
import threading
import time

import jax
import jax.numpy as jnp
import pytest

from benchmarks.accelerator_parts import (
    ahead,
    command,
    measuring,
    plan,
    problems,
    results,
    runner,
    steps,
    table,
    trace_summary,
    training,
    worker,
)
from benchmarks.accelerator_parts.plan import Budget, Part
from pujax.configs import lagam_cifar, ncpu
from pujax.methods._common import optimizer
from pujax.training import config as config_lib

# Stands for a worker: says what it was asked, and does what the part's name says.
_FAKE = """
import json, os, sys, time
out = sys.argv[1]
for line in sys.stdin:
    name = json.loads(line)["part"]
    with open(os.path.join(out, "asked"), "a") as file:
        file.write(f"{name} {os.getpid()} {os.environ.get('XLA_FLAGS', '')}\\n")
    if name == "dies":
        sys.exit("Unknown flag: --xla_nonsense")
    if name in ("hangs", "device"):
        time.sleep(60)
    path = os.path.join(out, name + ".json")
    with open(path) as file:
        entry = json.load(file)
    entry["status"] = "failed" if name == "fails" else "done"
    with open(path + ".new", "w") as file:
        json.dump(entry, file)
    os.replace(path + ".new", path)
"""


def _part(name, seconds=100.0, **more):
    """A part whose process has time to answer, three times these seconds, on a busy machine too."""
    return Part(name, seconds, "", "none:none", **more)


def _run(parts, out, budget=None, **more):
    said = []
    command_line = [sys.executable, "-c", _FAKE, str(out)]
    budget = budget or Budget(600)
    runner.run(parts, str(out), budget, worker=command_line, say=said.append, **more)
    return said


def _told(out, *, tiny=True):
    """What a worker's command line says."""
    return argparse.Namespace(out=str(out), tiny=tiny, data_dir="", epochs=0)


def _asked(out):
    path = out / "asked"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_a_part_begins_if_its_stated_cost_fits_in_what_is_left():
    times = iter([100.0, 100.0, 150.0, 150.5, 200.0])
    budget = Budget(60, clock=lambda: next(times))
    assert budget.left() == 60
    assert budget.fits(_part("a", 10))
    assert not budget.fits(_part("a", 10))
    assert budget.left() == 0


def test_a_part_that_does_not_fit_is_not_begun_and_a_cheaper_one_after_it_is(tmp_path):
    said = _run([_part("dear", 700), _part("cheap", 100)], tmp_path)
    assert [line[0] for line in _asked(tmp_path)] == ["cheap"]
    assert said[0].startswith("dear: not begun, 700 s")
    assert not results.path(tmp_path, "dear").exists()


def test_finished_parts_are_skipped_and_failed_ones_too_unless_they_are_to_be_tried_again(tmp_path):
    parts = [_part("good"), _part("fails")]
    _run(parts, tmp_path)
    assert _run(parts, tmp_path) == ["good: done before", "fails: failed before"]
    assert [line[0] for line in _asked(tmp_path)] == ["good", "fails"]
    _run(parts, tmp_path, retry=True)
    assert [line[0] for line in _asked(tmp_path)] == ["good", "fails", "fails"]


def test_a_process_that_ends_costs_its_own_part_and_says_why(tmp_path):
    _run([_part("first"), _part("dies"), _part("next")], tmp_path)
    first, second, third = (line[1] for line in _asked(tmp_path))
    assert first == second != third
    entry = results.load(tmp_path, "dies")
    assert entry["status"] == results.FAILED
    assert entry["reason"] == "its process ended with status 1: Unknown flag: --xla_nonsense"
    assert results.load(tmp_path, "next")["status"] == results.DONE


def test_a_part_that_hangs_ends_after_three_times_its_cost_or_with_the_budget(tmp_path):
    _run([_part("hangs", 0.05), _part("next")], tmp_path)
    entry = results.load(tmp_path, "hangs")
    assert entry["status"] == results.FAILED
    assert "3 times its stated cost" in entry["reason"]
    assert results.load(tmp_path, "next")["status"] == results.DONE
    other = tmp_path / "other"
    other.mkdir()
    # Asked when the budget is made, when the part begins, for its limit, and once it is over.
    times = itertools.chain([0.0, 0.0, 0.0], itertools.repeat(1.0))
    budget = Budget(0.4, clock=lambda: next(times))
    _run([_part("hangs", 0.3), _part("next", 0.3)], other, budget)
    assert results.load(other, "hangs")["status"] == results.UNFINISHED
    assert results.load(other, "next") is None


def test_a_call_that_is_ended_by_its_time_limit_leaves_no_process_on_the_device(
    tmp_path, monkeypatch
):
    fake = _FAKE.replace("out = sys.argv[1]", "out = sys.argv[1].removeprefix('--out=')")
    monkeypatch.setattr(runner, "WORKER", (sys.executable, "-c", fake))

    def end_this_call():
        while not _asked(tmp_path):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)

    results.save(tmp_path, "kmeans", {"status": results.RUNNING})
    thread = threading.Thread(target=end_this_call)
    thread.start()
    with pytest.raises(SystemExit):
        command.main([f"--out={tmp_path}", "--part=kmeans,device", "--minutes=1", "--tiny"])
    thread.join()
    ((_, pid, *_),) = _asked(tmp_path)
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)
    entry = results.load(tmp_path, "device")
    assert (entry["status"], entry["reason"]) == (results.UNFINISHED, "this call was ended")
    assert entry["seconds"] > 0
    assert results.load(tmp_path, "kmeans")["status"] == results.RUNNING  # of another call
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


# Stands for a process that compiles.
_COMPILES = """
import os, sys, time
out, name = sys.argv[1], sys.argv[2].removeprefix("--part=")
flags, own = os.environ.get("XLA_FLAGS", ""), os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"]
with open(os.path.join(out, name), "w") as file:
    file.write(f"{os.getpid()} {own} {flags}")
end = time.monotonic() + 60
while not all(os.path.exists(os.path.join(out, other)) for other in ("quick", "slow", "breaks")):
    time.sleep(0.02)
    assert time.monotonic() < end
if name == "slow":
    time.sleep(60)
sys.exit(name == "breaks")
"""


def test_programs_are_compiled_at_once_and_those_that_take_too_long_are_ended(tmp_path):
    names = ("quick", "slow", "breaks")
    steps = [Part(name, 100.0, "", "steps:run", flags=f"--{name}=1") for name in names]
    said = []
    ahead.run(
        [*steps, _part("no_steps")],
        *(str(tmp_path), 5.0),
        command=[sys.executable, "-c", _COMPILES, str(tmp_path)],
        say=said.append,
        at_once=3,
        clock=lambda: 6.0 if len(said) == 2 else 0.0,
    )
    # None of them ends before all have begun: in turn, they would never end.
    assert sorted(said) == [
        f"breaks: not compiled, see {tmp_path / 'ahead.log'}",
        "quick: compiled",
        "slow: not compiled within 5 s",
    ]
    assert not (tmp_path / "no_steps").exists()
    pid, own, *flags = (tmp_path / "slow").read_text().split()
    assert own == "false" and flags[-1] == "--slow=1"
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid), 0)


def test_half_as_many_programs_are_compiled_at_once_as_there_are_cores(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    alone = """
import os, sys, time
place = os.path.join(sys.argv[1], "place")
os.mkdir(place)  # fails if another one is at work
time.sleep(0.5)
os.rmdir(place)
sys.exit(3 * (sys.argv[2] == "--part=elsewhere"))
"""
    steps = [Part(name, 100.0, "", "steps:run") for name in ("a", "b", "elsewhere")]
    said = []
    command_line = [sys.executable, "-c", alone, str(tmp_path)]
    ahead.run(steps, str(tmp_path), 60.0, command=command_line, say=said.append)
    nothing = "elsewhere: nothing to compile on this platform"
    assert said == ["a: compiled", "b: compiled", nothing]


@pytest.mark.slow
def test_what_was_compiled_ahead_is_found_by_its_part(tmp_path, capfd, monkeypatch):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path / "compiled"))  # an empty one
    arguments = [f"--out={tmp_path}", "--tiny", "--part=gradpu-float32", "--minutes=10"]
    assert command.main([*arguments, "--ahead=300"]) == 0
    assert "gradpu-float32: compiled\n" in capfd.readouterr().out
    (program,) = results.load(str(tmp_path), "gradpu-float32")["values"]["programs"]
    assert program["found_in_cache"]
    # A part that is done compiles nothing.
    assert command.main([*arguments, "--ahead=300"]) == 0
    assert ": compiled" not in capfd.readouterr().out


def test_a_worker_that_goes_on_after_it_has_saved_is_told_that_no_part_follows(tmp_path):
    text = """
import signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("saved", flush=True))
print("ready", flush=True)
for line in sys.stdin:
    pass
"""
    log = tmp_path / "log"
    process = runner.Worker([sys.executable, "-c", text], "", str(log))
    while "ready" not in log.read_text():
        time.sleep(0.02)
    process.stop()
    assert process.status() == 0  # not killed
    assert "saved" in log.read_text()


def test_flags_have_a_process_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", "--a=1")
    _run([_part("x"), _part("y", flags="--b=2"), _part("z", flags="--b=2"), _part("w")], tmp_path)
    lines = _asked(tmp_path)
    assert [line[2:] for line in lines] == [
        ["--a=1"],
        ["--a=1", "--b=2"],
        ["--a=1", "--b=2"],
        ["--a=1"],
    ]
    numbers = [line[1] for line in lines]
    assert numbers[1] == numbers[2] and len(set(numbers)) == 3


def test_a_part_that_continues_keeps_what_it_knows_and_others_begin_anew(tmp_path):
    for name in ("goes_on", "anew"):
        entry = {"status": results.UNFINISHED, "values": {"epochs": 3}, "seconds": 5.0}
        results.save(tmp_path, name, entry)
    _run([_part("goes_on", continues=True), _part("anew")], tmp_path)
    assert results.load(tmp_path, "goes_on")["values"] == {"epochs": 3}
    assert "values" not in results.load(tmp_path, "anew")


@pytest.mark.parametrize(
    "text", ["{", "[]", '{"part": "device"}', '{"part": "x", "status": "done"}']
)
def test_a_damaged_file_is_named_before_anything_runs(text, tmp_path, capsys):
    path = results.path(tmp_path, "device")
    path.write_text(text)
    assert command.main([f"--out={tmp_path}", "--tiny"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(f"{path} is damaged") and error.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == ["device.json"]


def test_an_exception_becomes_the_reason_of_its_part(tmp_path):
    part = _part("bad")._replace(function="steps:run", options={"network": "none"})
    results.save(tmp_path, "bad", {"status": results.RUNNING})
    worker.carry_out(part, _told(tmp_path), 5)
    entry = results.load(tmp_path, "bad")
    assert entry["status"] == results.FAILED
    assert entry["reason"].startswith("TypeError: ")


def test_a_part_that_continues_is_given_what_it_knows_and_its_seconds_add_up(tmp_path):
    entry = {"status": results.RUNNING, "values": {"epochs_done": 3}, "seconds": 500.0}
    for name, continues in (("goes_on", True), ("anew", False)):
        part = _part(name, continues=continues)
        results.save(tmp_path, name, entry)
        worker.carry_out(part, _told(tmp_path), 5)
        found = results.load(tmp_path, name)
        assert found["values"] == ({"epochs_done": 3} if continues else {})
        assert (found["seconds"] >= 500) == continues


def test_training_without_data_is_skipped_and_tried_again_by_a_later_call(tmp_path):
    part = next(part for part in plan.all_parts() if part.name == "train-gradpu_table1")
    results.save(tmp_path, part.name, {"status": results.RUNNING})
    worker.carry_out(part, _told(tmp_path, tiny=False), 5)
    entry = results.load(tmp_path, part.name)
    assert entry["status"] == results.SKIPPED and "--data_dir" in entry["reason"]
    assert not results.is_settled(entry, retry=False)


def test_parts_are_chosen_by_name_or_kind_and_keep_their_order():
    parts = plan.all_parts()
    assert len({part.name for part in parts}) == len(parts)
    names = [part.name for part in plan.choose(parts, "kmeans,step,flags-latency_hiding")]
    assert names[-1] == "kmeans" and "flags-latency_hiding" in names
    assert {"step-bfloat16", "step-float32"} < set(names) and "device" not in names
    assert plan.choose(parts, "") == parts
    with pytest.raises(ValueError, match="--part is 'steps'; accepted: device, step, profile"):
        plan.choose(parts, "steps")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "--out is ''"),
        (["--out=x", "--part=nothing"], "--part is 'nothing'"),
        (["--out=x", "--minutes=0"], "--minutes is 0.0"),
        (["--out=x", "--data_dir=nowhere"], "--data_dir is 'nowhere'; accepted: a folder"),
        (["--out=x", "--data_dir=mnist=nowhere"], "--data_dir is 'mnist=nowhere'; accepted"),
        (["--out=x", "--data_dir=minst=."], "--data_dir is 'minst'; accepted: 'a9a'"),
        ([f"--out={__file__}"], "--out is"),
        (
            ["--out=x", "--ahead=540"],
            "--ahead is 540.0; accepted: seconds from 0 to less than the 540",
        ),
        (["--out=x", "--epochs=-1"], "--epochs is -1; accepted: 0 (as published) or more"),
        (["--out=x", "--ahead=nan"], "--ahead is nan; accepted"),
    ],
)
def test_errors_are_one_line(arguments, text, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert command.main(arguments) == 2
    error = capsys.readouterr().err
    assert error.startswith(text) and error.count("\n") == 1
    assert not os.listdir(tmp_path)


def test_the_list_has_every_part_and_its_cost(capsys):
    assert command.main(["--list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    parts = plan.all_parts()
    assert len(lines) == len(parts) + 1
    for line, part in zip(lines, parts, strict=False):
        assert line.split()[:2] == [part.name, f"{part.seconds:.0f}"]


def test_share_of_the_peak_by_hand():
    # 710 GFLOP in 2 ms are 355 TFLOP/s, of 710.
    assert measuring.share_of_peak(710e9, 2e-3, 710e12) == pytest.approx(0.5)
    assert measuring.share_of_peak(710e9, 2e-3, None) is None
    assert measuring.share_of_peak(None, 2e-3, 710e12) is None


def test_flops_are_those_of_products_in_a_step_and_none_where_they_are_not_known():
    def steps(x):
        return jax.lax.fori_loop(0, 3, lambda _, x: x @ x, x)

    text = jax.jit(steps).lower(jnp.ones([4, 4])).compile().as_text()
    assert measuring.flops_per_step(text, 3) == 2 * 4**3
    added = jax.jit(lambda x: x + 1).lower(jnp.ones([4, 4])).compile().as_text()
    assert measuring.flops_per_step(added, 1) is None


def test_a_count_that_fails_costs_no_times():
    class Compiled:
        def __init__(self, text):
            self.text = text

        def as_text(self):
            if not self.text:
                raise jax.errors.JaxRuntimeError("UNIMPLEMENTED: no text")
            return self.text

    program = measuring.StageProgram("main", None, None, (), (), 1, 64, 1)
    for text, reason in (("", "JaxRuntimeError: UNIMPLEMENTED: no text"), ("?", "ValueError: ")):
        program._compiled = Compiled(text)
        found = program._flops()
        assert found["flops"] is None and found["flops_unknown"].startswith(reason)


# What a GPU's program calls: 3 x 3, from 4 channels to 5, on 2 images of 8 x 8 without padding.
_CUDNN = """HloModule jit_step

ENTRY %main (x: f32[2,8,8,4], k: f32[5,3,3,4]) -> f32[2,6,6,5] {
  %x = f32[2,8,8,4]{3,2,1,0} parameter(0)
  %k = f32[5,3,3,4]{3,2,1,0} parameter(1)
  %c = (f32[2,6,6,5]{3,2,1,0}, u8[0]{0}) custom-call(%x, %k), HOW
  ROOT %r = f32[2,6,6,5]{3,2,1,0} get-tuple-element(%c), index=0
}
"""
_HOW = 'window={size=3x3}, dim_labels=b01f_o01i->b01f, custom_call_target="__cudnn$convForward"'


def test_convolutions_that_a_gpu_program_calls_of_cudnn_are_counted():
    flops = measuring.flops_per_step(_CUDNN.replace("HOW", _HOW), 1)
    assert flops == 2 * (2 * 6 * 6 * 5) * (3 * 3 * 4)


def test_a_part_of_one_stage_and_one_platform_measures_and_compiles_no_other(tmp_path, monkeypatch):
    compiled = []

    class Program:
        def __init__(self, name):
            self.name = name

        def compile(self):
            compiled.append(self.name)
            return {"compile_seconds": 1.0}

        def measure(self, peak, *, tiny):
            return {"stage": self.name}

    programs = [Program("warmup"), Program("main")]
    monkeypatch.setattr(measuring, "stage_programs", lambda *args, **more: iter(programs))
    known = {}
    given = (_told(tmp_path, tiny=False), lambda: 1.0, {}, lambda **found: known.update(found))
    context = worker.context_of(*given)
    monkeypatch.setattr(problems, "build", lambda *args: problems.Problem(None, "pixels", False))
    asked = {"network": "lagam", "dtype": "bfloat16", "few_kernels": "on", "only_stage": "main"}
    steps.run(context, **asked, needs="cpu")
    assert known["programs"] == [{"stage": "main"}]
    assert steps.compile_ahead(context, **asked) and compiled == ["main"]
    with pytest.raises(worker.NotHereError, match="the platform 'gpu'"):
        steps.run(context, **asked, needs="gpu")
    assert not steps.compile_ahead(context, **asked, needs="gpu") and compiled == ["main"]


def test_the_peak_is_that_of_the_device_part(tmp_path):
    assert measuring.measured_peak(str(tmp_path), "bfloat16") is None
    values = {"peak_flops": {"bfloat16": 7e14, "float32": 3e14}}
    results.save(tmp_path, "device", {"status": results.DONE, "values": values})
    assert measuring.measured_peak(str(tmp_path), "float32") == 3e14


def _meta(kind, name, pid, tid=None):
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _event(name, start, duration, pid=1, tid=1, **args):
    where = {"pid": pid, "tid": tid, "args": args}
    return {"ph": "X", "name": name, "ts": start, "dur": duration, **where}


_HAND_WRITTEN = [
    _meta("process_name", "/device:GPU:0", 1),
    _meta("process_name", "/host:CPU", 2),
    _meta("thread_name", "Stream #13(Compute)", 1, 1),
    _meta("thread_name", "Stream #14(Memcpy)", 1, 2),
    _meta("thread_name", "XLA Ops", 1, 3),
    _event("fusion_1", 100, 10),
    _event("fusion_27", 120, 20),
    _event("conv.3", 150, 30),
    _event("copy", 155, 35, tid=2),  # 10 microseconds longer than the convolution
    _event("fusion_1", 100, 90, tid=3),  # the same time once more, as an operation
    _event("python", 0, 1000, pid=2),
    _event("hlo on the host", 0, 1000, pid=2, hlo_op="call"),
]


def test_kernels_of_a_hand_written_profile():
    found = trace_summary.summarize(_HAND_WRITTEN, steps=2)
    assert found["kernels"] == 2.0
    # Busy in 100-110, 120-140 and 150-190.
    assert found["busy_seconds"] == pytest.approx(70e-6 / 2)
    assert found["gap_seconds"] == pytest.approx(20e-6 / 2)
    assert [entry["name"] for entry in found["top"]] == ["copy", "fusion", "conv"]
    assert found["top"][1]["seconds"] == pytest.approx(30e-6 / 2)
    assert found["top"][1]["count"] == 1.0
    assert found["top"][0]["share"] == pytest.approx(35 / 95)


def test_kernels_of_a_tpu_and_of_a_cpu():
    no_streams = [event for event in _HAND_WRITTEN if event["tid"] not in (1, 2)]
    assert trace_summary.summarize(no_streams, steps=1)["busy_seconds"] == pytest.approx(90e-6)
    on_host = [event for event in _HAND_WRITTEN if event["pid"] == 2]
    assert trace_summary.summarize(on_host, steps=1)["top"][0]["name"] == "hlo on the host"
    assert trace_summary.summarize(on_host[:1], steps=1) is None


def test_two_devices_are_two_lines_of_time_and_names_beyond_forty_are_left_out():
    events = [
        *(_meta("process_name", f"/device:GPU:{i}", i) for i in (1, 2)),
        *(_meta("thread_name", "Stream #1", i, 1) for i in (1, 2)),
        *(_event(f"{'k' * (i + 1)}", 10 * i, 5) for i in range(45)),
        _event("far", 5000, 10, pid=2),
    ]
    found = trace_summary.summarize(events, steps=1)
    assert found["gap_seconds"] == pytest.approx(44 * 5e-6)
    assert len(found["top"]) == trace_summary.TOP == 40 and found["top"][0]["name"] == "far"


def test_the_newest_profile_is_read(tmp_path):
    assert trace_summary.read(str(tmp_path)) is None
    for day in ("2026_01_01", "2026_01_02"):
        folder = tmp_path / "plugins" / "profile" / day
        folder.mkdir(parents=True)
        with gzip.open(folder / "host.trace.json.gz", "wt") as file:
            json.dump({"traceEvents": [{"name": day}]}, file)
    assert trace_summary.read(str(tmp_path)) == [{"name": "2026_01_02"}]


def test_a_curve_leaves_out_a_line_that_is_being_written(tmp_path):
    path = tmp_path / "metrics.jsonl"
    assert training.curve(str(path)) == []
    row = {"epoch": 0, "stage": "main", "loss": 1.5, "test_accuracy": 0.5, "step": 7}
    path.write_text(json.dumps(row) + '\n{"epoch": 1, "lo')
    row.pop("step")
    assert training.curve(str(path)) == [row]


def test_the_table_shows_milliseconds_percent_and_reasons():
    program = {
        "stage": "main",
        "seeds": 1,
        "compile_seconds": 40.0,
        "found_in_cache": False,
        "step_seconds": 0.0029,
        "images_per_second": 22069.0,
        "share_of_peak": 0.31,
        "flops": 710e9,
        "temporary_bytes": 529e6,
        "undone_steps": 0.0,
    }
    text = table.render(
        {
            "step-bfloat16": {"status": "done", "seconds": 90.4, "values": {"programs": [program]}},
            "kmeans": {"status": "failed", "reason": "XlaRuntimeError: out of memory"},
        }
    )
    assert "| step-bfloat16 | main | 1 | 2.900 | 22,069 | 31.0 % | 710 | 529 | 40.0 |" in text
    assert "| kmeans | failed |  | XlaRuntimeError: out of memory |" in text
    assert table.render({}) == "No part has run."


def test_a_shorter_run_drops_its_rate_and_ends_its_warm_up_at_the_same_share_of_it():
    method = lagam_cifar.get_config().method
    assert (method.num_epochs, method.warmup_epochs, method.lr_drops) == (400, 20, (250, 300, 350))
    training.shortened(method, 84)
    assert (method.num_epochs, method.warmup_epochs, method.neighbors_after_epoch) == (84, 4, 10)
    assert method.lr_drops == (52, 63, 74)
    other = ncpu.get_config("task=cifar10")
    training.shortened(other.method, 130)
    assert (other.method.num_epochs, other.method.warmup_epochs) == (130, "auto")
    config_lib.resolve(other)  # a cosine has no drops, and takes none


@pytest.mark.parametrize("num_epochs", [1, 2, 3, 4, 5, 6])
def test_a_run_of_few_epochs_has_drops_that_follow_one_another(num_epochs):
    method = lagam_cifar.get_config().method
    training.shortened(method, num_epochs)
    optimizer.check(method)
    assert all(0 < drop < num_epochs for drop in method.lr_drops)
    assert 0 < method.warmup_epochs <= num_epochs
    method.update({"num_epochs": 400, "warmup_epochs": 0})
    training.shortened(method, num_epochs)
    assert method.warmup_epochs == 0


def test_the_length_of_runs_reaches_them_and_stays_the_same(tmp_path, monkeypatch, capsys):
    lengths = []

    def run(tree, folder):
        lengths.append(tree.method.num_epochs)

    monkeypatch.setattr(training.training, "run", run)
    for length, function in ((0, training.lagam), (7, training.lagam), (7, training.ncpu)):
        given = _told(tmp_path)
        given.epochs = length
        known = {}
        context = worker.context_of(
            given, lambda: 100.0, {}, lambda known=known, **f: known.update(f)
        )
        assert not function(context)
        assert known["epochs_asked"] == length
    assert lengths == [training.TINY_EPOCHS, 7, 7]

    out = str(tmp_path)
    values = {"status": results.UNFINISHED, "values": {"epochs_asked": 7}}
    results.save(out, "train-ncpu", values)
    results.save(out, "train-lagam", values | {"status": results.DONE})
    assert command.main([f"--out={out}", "--part=train-lagam", "--epochs=8"]) == 0  # done before
    capsys.readouterr()
    assert command.main([f"--out={out}", "--part=train-ncpu", "--epochs=8"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("--epochs is 8; accepted: 7, of which --out has a run of train-ncpu")
    told = "import sys; assert '--epochs=7' in sys.argv"
    monkeypatch.setattr(runner, "WORKER", (sys.executable, "-c", told))
    assert command.main([f"--out={out}", "--part=train-ncpu", "--epochs=7"]) == 0
    assert "status 0" in results.load(out, "train-ncpu")["reason"]  # ended well, without an answer


@pytest.mark.thorough
def test_a_training_part_stops_in_time_and_the_next_call_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(training, "TINY_EPOCHS", 100000)

    def until(epochs, known):
        def left():
            path = tmp_path / "runs" / "lagam" / "metrics.jsonl"
            return -1.0 if len(training.curve(str(path))) >= epochs else 1.0

        def record(**found):
            known.update(found)

        return worker.context_of(_told(tmp_path), left, {}, record)

    first, second = {}, {}
    with pytest.raises(SystemExit):
        training.lagam(until(2, first))
    with pytest.raises(SystemExit):
        training.lagam(until(first["epochs_done"] + 2, second))
    assert second["epochs_done"] >= first["epochs_done"] + 2 >= 4
    assert second["curve"][: first["epochs_done"]] == first["curve"]
    assert [row["epoch"] for row in second["curve"]] == list(range(second["epochs_done"]))


# A part of every function that measures; of those that time steps, whose networks differ, one.
EVERY_FUNCTION = (
    *("device", "step-bfloat16", "profile", "seeds-gradpu", "kmeans", "augment", "evaluate"),
    "train-gradpu_table1",
)


@pytest.mark.slow
@pytest.mark.parametrize(
    "names",
    [EVERY_FUNCTION, [part.name for part in plan.all_parts()]],
    ids=["a part of every function", "all"],
)
def test_a_dry_run_and_a_second_call_that_finds_all_done(names, tmp_path, capfd):
    functions = {part.name: part.function for part in plan.all_parts()}
    apart = {"training:lagam", "training:ncpu"}  # the test before, and the case 'all'
    assert {functions[name] for name in names} | apart == {*functions.values()}
    out, part = tmp_path / "out", f"--part={','.join(names)}"
    assert command.main([f"--out={out}", "--tiny", "--minutes=60", part]) == 0
    capfd.readouterr()
    found = table.entries(str(out))
    assert set(found) == set(names)
    assert {name: entry.get("reason", "") for name, entry in found.items()} == dict.fromkeys(
        found, ""
    )
    assert {entry["status"] for entry in found.values()} == {results.DONE}
    for name, stages in (("step-bfloat16", 2), ("impulses-float32", 1), ("seeds-lagam", 2)):
        if name not in names:
            continue
        programs = found[name]["values"]["programs"]
        assert len(programs) == stages
        for program in programs:
            assert program["flops"] > 0 and program["share_of_peak"] > 0
            assert program["undone_steps"] == 0
            # Three calls: the one that compiles, and two that are timed.
            assert program["finished_steps"] == 3 * 2 * program["seeds"]
    assert [x["seeds"] for x in found["seeds-gradpu"]["values"]["programs"]] == [1, 2]
    assert found["profile"]["values"]["profile"]["kernels"] > 10
    assert found["evaluate"]["values"]["images"] == 300
    for name in {"train-lagam", "train-ncpu"} & set(names):
        assert found[name]["values"]["epochs_done"] == training.TINY_EPOCHS
    assert found["train-gradpu_table1"]["values"]["trained_together"] == [2] * 4
    assert command.main([f"--out={out}", "--tiny", "--minutes=0.001", part]) == 0
    text = capfd.readouterr().out
    assert text.count(": done before") == len(found)
    assert command.main([f"--out={out}", "--show"]) == 0
    assert capfd.readouterr().out.strip() == text[text.index("| part") :].strip()
