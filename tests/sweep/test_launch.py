"""Cells on engines: what the command refuses, and what the launching process does with outcomes."""

import importlib.util
import os
import pathlib
import shlex
import shutil
import signal
import subprocess

import pytest

from pujax.sweep import __main__ as command
from pujax.sweep import cell_runner, launch, slurm_engine
from pujax.sweep import plan as plan_lib
from tests.sweep import small_plan

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PLAN = f"--plan={REPOSITORY}/configs/sweeps/digits.py"


@pytest.fixture
def everything_is_installed(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--launch=dask"], "--launch is 'dask'; accepted: '', 'ray', 'slurm'"),
        (
            ["--launch=ray", "--shard=0/2"],
            "--shard is '0/2' with --launch; accepted: one of them",
        ),
        (["--shard=2/2"], "--shard is '2/2'; accepted: I/N"),
        (["--gpus_per_cell=1"], "--gpus_per_cell is 1; accepted: with --launch=ray or --launch="),
        (["--cpus_per_cell=2"], "--cpus_per_cell is 2; accepted: with --launch=ray or"),
        (
            ["--launch=ray", "--minutes_per_cell=9"],
            "--minutes_per_cell is 9; accepted: with --launch=slurm",
        ),
        (["--launch=ray", "--sbatch=qos=low"], "--sbatch is ['qos=low']; accepted: with --launch="),
        (["--launch=ray", "--gpus_per_cell=-1"], "--gpus_per_cell is -1; accepted: an integer"),
        (["--launch=ray", "--gpus_per_cell=0.5"], "--gpus_per_cell is '0.5'; accepted: an integer"),
        (["--launch=slurm", "--minutes_per_cell=1h"], "--minutes_per_cell is '1h'; accepted: an i"),
        (["--launch=ray", "--cpus_per_cell=0"], "--cpus_per_cell is 0; accepted: an integer"),
        (["--launch=slurm", "--minutes_per_cell=0"], "--minutes_per_cell is 0; accepted: an"),
        (
            ["--launch=slurm", "--sbatch=time=9"],
            "--sbatch is 'time=9', which the sweep sets (flag: --minutes_per_cell)",
        ),
        (["--launch=slurm", "--sbatch=gpus_per_node=2"], "(flag: --gpus_per_cell)"),
        (["--launch=slurm", "--sbatch==9"], "--sbatch is '=9'; accepted: KEY=VALUE, or KEY"),
    ],
)
def test_flags_that_do_not_fit_are_named(everything_is_installed, tmp_path, capsys, more, said):
    assert command.main(["sweep", PLAN, f"--workdir={tmp_path / 'new'}", *more]) == 2
    message = capsys.readouterr().err
    assert said in message and message.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_package_is_named_with_its_extra(tmp_path, capsys, monkeypatch, engine, package):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    assert command.main(["sweep", PLAN, f"--workdir={tmp_path}/x", f"--launch={engine}"]) == 2
    assert capsys.readouterr().err == (
        f"--launch is '{engine}'; accepted: with the package {package}, pip install "
        f"'pujax[{engine}]'\n"
    )


def test_a_machine_without_slurm_is_named(tmp_path, capsys, monkeypatch, everything_is_installed):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert command.main(["sweep", PLAN, f"--workdir={tmp_path}/x", "--launch=slurm"]) == 2
    assert "accepted: on a machine that has the commands sbatch" in capsys.readouterr().err


def test_options_of_sbatch_have_their_own_names():
    texts = ["partition=gpu", "--mem_per_cpu=2G", "exclusive", "comment=a=b"]
    expected = {"partition": "gpu", "mem-per-cpu": "2G", "exclusive": True, "comment": "a=b"}
    assert slurm_engine.sbatch_options(texts) == expected


class Here:
    """An engine that runs tasks in this process, the last one first."""

    gpus = 0

    def __init__(self, stop_after=None):
        self.tasks = []
        self._stop_after = stop_after

    def run(self, train, tasks, request):
        self.tasks = list(tasks)
        for number in reversed(range(len(tasks))):
            yield number, train(tasks[number])
            if number == self._stop_after:
                os.kill(os.getpid(), signal.SIGTERM)


def fake_record(cell, *_):
    return {"row": cell.row, "column": cell.column, "seed": 0, "oracle": False, "metrics": {}}


def fake_summary(task):
    """Stands in for training: leaves what a finished seed leaves."""
    place = cell_runner.Place(task.workdir, None, None, False, {})
    for seed in task.plan.seeds:
        folder = os.path.join(place.folder(task.plan.cells[0]), f"seed_{seed}")
        os.makedirs(folder)
        with open(os.path.join(folder, "summary.json"), "w") as file:
            file.write(
                '{"selections": {"last": {"accuracy": 0.5}}, "oracle_best_epoch": {}, "test": {}, '
                '"train": {}}'
            )
    return ""


@pytest.fixture
def no_data(monkeypatch):
    """Data are not loaded, nor methods built, nor summaries read in detail."""
    monkeypatch.setattr("pujax.sweep.dry_run.describe", lambda *a, **k: ("", None))
    monkeypatch.setattr("pujax.training.experiment.refuse_other_run", lambda *a, **k: None)
    monkeypatch.setattr("pujax.sweep.results._record", fake_record)
    monkeypatch.setattr("pujax.report.render", lambda title, entries, **k: str(entries))


def test_every_cell_is_sent_once_and_finished_ones_not_again(tmp_path, no_data, capsys):
    plan, engine = small_plan.plan(seeds=(0, 1)), Here()
    assert launch.run(plan, str(tmp_path), engine, train=fake_summary) == 0
    assert [task.plan.cells for task in engine.tasks] == [(cell,) for cell in plan.cells]
    assert all(task.plan.seeds == (0, 1) for task in engine.tasks)
    (tmp_path / "even/supervised/seed_1/summary.json").unlink()
    assert "supervised on even: done" in capsys.readouterr().out
    again = Here()  # as run.stop_after_epoch ends a cell: without an error, and before its end
    assert launch.run(plan, str(tmp_path), again, train=lambda task: "") == 0
    assert [task.plan.cells[0].row for task in again.tasks] == ["supervised"]
    assert "supervised on even: stopped before its end" in capsys.readouterr().out
    only = Here()
    assert launch.run(plan, str(tmp_path), only, only="naive", train=lambda task: "") == 0
    assert only.tasks == []


def test_a_worker_takes_its_cell_without_what_only_the_table_needs(tmp_path, no_data):
    plan, engine = small_plan.plan()._replace(reference="naive", rules=("last",)), Here()
    assert launch.run(plan, str(tmp_path), engine, train=fake_summary) == 0
    for task in engine.tasks:  # else all but the reference's worker would miss that row
        plan_lib.check(task.plan)


def test_a_worker_says_nothing_of_the_results_of_other_cells(
    tmp_path, no_data, capsys, monkeypatch
):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # which a worker sets
    plan, engine = small_plan.plan(), Here()
    assert launch.run(plan, str(tmp_path), engine, train=fake_summary) == 0
    capsys.readouterr()
    assert launch.train_task(engine.tasks[0]) == ""
    said = capsys.readouterr().out
    assert "Digits: 1 of 1 cells" in said and "the tables leave them out" not in said


def test_what_an_engine_says_of_a_cell_is_in_the_table(tmp_path, no_data, capsys):
    def failing(task):
        row = task.plan.cells[0].row
        if row == "supervised":
            return fake_summary(task)
        return "the worker died" if row == "naive" else launch._LEFT

    assert launch.run(small_plan.plan(), str(tmp_path), Here(), train=failing) == 2
    assert (tmp_path / "even/naive/seed_0/error.txt").read_text() == "the worker died\n"
    # What another process is training has no error of ours.
    assert not (tmp_path / "even/weighted_bce/seed_0/error.txt").exists()
    assert "seed 0: the worker died" in (tmp_path / "table.md").read_text()
    said = capsys.readouterr().out
    assert "supervised on even: done" in said
    assert "weighted_bce on even: another process trains it" in said


def test_after_a_signal_nothing_is_called_an_error(tmp_path, no_data):
    def stopped(task):
        return "stopped"

    with pytest.raises(SystemExit) as ended:
        launch.run(small_plan.plan(), str(tmp_path), Here(stop_after=2), train=stopped)
    assert ended.value.code == 128 + signal.SIGTERM
    assert not (tmp_path / "even/naive/seed_0/error.txt").exists()
    assert (tmp_path / "even/supervised/seed_0/error.txt").exists()  # ended before the signal


def test_a_worker_without_gpus_does_not_see_any(tmp_path, monkeypatch):
    seen = []
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setattr(
        "pujax.sweep.runner.prepare",
        lambda *a, **k: seen.append(os.environ["CUDA_VISIBLE_DEVICES"]) or 1 / 0,
    )
    for uses_gpus in (True, False):
        task = launch.Task(small_plan.plan(("naive",)), str(tmp_path), False, uses_gpus)
        assert launch.train_task(task) == "ZeroDivisionError: division by zero"
    assert seen == ["0,1", ""]


def documented():
    """The sweeps in docs/scaling.md."""
    text = (REPOSITORY / "docs/scaling.md").read_text().replace("\\\n", " ")
    found = [line.split("-m pujax.sweep ")[1] for line in text.splitlines() if "--plan=" in line]
    return sorted(
        {line.split(" &")[0].replace("$i/", "0/") for line in found if "FILE" not in line}
    )


def test_documented_sweeps_are_understood(everything_is_installed, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    assert len(documented()) >= 4
    for line in documented():
        plan, _ = command.parse(["sweep", *shlex.split(line)])
        assert plan.cells


@pytest.fixture
def sbatch(tmp_path):
    """Runs examples/slurm.sbatch with programs that write down what they were called with."""
    for name, text in {"srun": 'exit "$STATUS"', "scontrol": ""}.items():
        path = tmp_path / name
        path.write_text(f'#!/bin/bash\necho {name} "$@" >> {tmp_path}/calls\n{text}\n')
        path.chmod(0o755)

    def run(*words, status=0, **variables):
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "STATUS": str(status)}
        script = [str(REPOSITORY / "examples/slurm.sbatch"), *words]
        ended = subprocess.run(["bash", *script], env=environment | variables)
        return ended.returncode, (tmp_path / "calls").read_text().splitlines()

    return run


def test_the_batch_file_runs_a_command_as_it_is(sbatch):
    called = sbatch("train.py", "--config.data.path=a b", SLURM_JOB_ID="5")
    assert called == (0, ["srun python train.py --config.data.path=a b"])


def test_the_batch_file_gives_a_job_of_an_array_its_shard_and_goes_on_after_the_limit(sbatch):
    array = {"SLURM_ARRAY_TASK_ID": "3", "SLURM_ARRAY_TASK_COUNT": "8", "SLURM_JOB_ID": "77"}
    array |= {"SLURM_ARRAY_TASK_MAX": "7"}
    calls = ["srun python -m pujax.sweep --plan=p --shard=3/8", "scontrol requeue 77"]
    assert sbatch("-m", "pujax.sweep", "--plan=p", status=143, **array) == (143, calls)


@pytest.mark.parametrize(("last", "count"), [("8", "8"), ("3", "1"), ("14", "8")])
def test_the_batch_file_trains_no_wrong_shard(sbatch, capfd, last, count):
    """Of an array that is not all shards from 0 on, the number of its jobs is not theirs."""
    numbers = {"ID": last, "MAX": last, "COUNT": count}
    array = {f"SLURM_ARRAY_TASK_{name}": number for name, number in numbers.items()}
    with pytest.raises(FileNotFoundError):  # nothing was called
        sbatch("-m", "pujax.sweep", **array)
    said = f"--array has {count} numbers up to {last}; accepted: all from 0 on, or the number of"
    assert said in capfd.readouterr().err
    called = sbatch("-m", "pujax.sweep", SHARDS="20", **array)
    assert called == (0, [f"srun python -m pujax.sweep --shard={last}/20"])


def test_the_batch_file_does_not_repeat_what_failed(sbatch):
    assert sbatch("train.py", status=2, SLURM_JOB_ID="5") == (2, ["srun python train.py"])
