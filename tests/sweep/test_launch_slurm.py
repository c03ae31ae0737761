"""Cells as jobs of submitit: on this machine, and what SLURM is told."""

import importlib.util
import json
import os
import signal
import sys

import pytest

from pujax import sweep
from pujax.sweep import launch
from pujax.sweep.slurm_engine import CellJob, SlurmEngine
from tests.sweep import small_plan

HAS_SUBMITIT = importlib.util.find_spec("submitit") is not None
needs_submitit = pytest.mark.skipif(
    not HAS_SUBMITIT, reason="needs submitit, pip install 'pujax[slurm]'"
)


def epochs(folder):
    lines = (folder / "seed_0/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


@needs_submitit
@pytest.mark.thorough
def test_jobs_train_the_cells_and_one_that_dies_is_named(tmp_path):
    def train(task):
        from pujax.sweep import launch

        if task.plan.cells[0].row == "naive":
            os.kill(os.getpid(), signal.SIGKILL)
        return launch.train_task(task)

    jobs, plan = tmp_path / "jobs", small_plan.plan(("naive", "weighted_bce"), epochs=1)

    def engine(name):
        return SlurmEngine(str(jobs / name), minutes=60, cluster="local", poll_seconds=0.2)

    workdir = tmp_path / "work"
    assert launch.run(plan, str(workdir), engine("first"), train=train) == 1
    reason = (workdir / "even/naive/seed_0/error.txt").read_text()
    assert reason.startswith("job ") and "ended without a result, its log is " in reason
    assert "weighted_bce" in (jobs / "first" / f"{job_of(jobs / 'first', 1)}_0_log.out").read_text()
    assert epochs(workdir / "even/weighted_bce") == [0]
    assert launch.run(plan, str(workdir), engine("second")) == 0
    assert len(list((jobs / "second").glob("*_submitted.pkl"))) == 1  # one cell was left
    assert sweep.run(plan, str(tmp_path / "here")) == 0
    tables = [(tmp_path / name / "table.md").read_text() for name in ("work", "here")]
    assert tables[0] == tables[1]


def job_of(folder, number):
    """The id of a job, in the order of submission."""
    paths = sorted(folder.glob("*_submitted.pkl"), key=lambda path: path.stat().st_mtime_ns)
    return paths[number].name.split("_")[0]


class Requeued(Exception):
    """Raised where submitit would submit again and end the process."""


@pytest.fixture
def submit_again():
    """Stands in for submitit's handler of SIGUSR2."""

    def handler(number, frame):
        raise Requeued(number)

    before = signal.signal(signal.SIGUSR2, handler)
    yield handler
    signal.signal(signal.SIGUSR2, before)


@pytest.mark.thorough
def test_before_its_time_limit_a_job_saves_and_is_submitted_again(
    tmp_path, monkeypatch, submit_again
):
    from pujax.training import metrics_writer

    append = metrics_writer.MetricsWriter.append

    def late(self, values):
        append(self, values)
        if values["epoch"] == 0:
            os.kill(os.getpid(), signal.SIGUSR2)

    monkeypatch.setattr(metrics_writer.MetricsWriter, "append", late)
    task = launch.Task(small_plan.plan(("naive",), epochs=3), str(tmp_path), False, False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    job = CellJob(launch.train_task)
    with pytest.raises(Requeued):
        job(task)
    assert signal.getsignal(signal.SIGUSR2) is submit_again
    assert epochs(tmp_path / "even/naive") in ([0], [0, 1])
    assert any((tmp_path / "even/naive/seed_0/checkpoints").iterdir())
    assert job(task) == ""
    assert epochs(tmp_path / "even/naive") == [0, 1, 2]


def test_a_job_that_is_cancelled_is_not_submitted_again(submit_again):
    def cancelled(task):
        raise SystemExit(128 + signal.SIGTERM)

    assert CellJob(cancelled)(None) == "stopped by a signal; the same command goes on"
    assert signal.getsignal(signal.SIGUSR2) is submit_again


@needs_submitit
def test_the_next_job_runs_the_same():
    again = CellJob(str).checkpoint("a task")
    assert again.function.__class__ is CellJob and again.result() == "a task"


SBATCH = f"""#!{sys.executable}
import os, pathlib, sys
text = pathlib.Path(sys.argv[1]).read_text()
pathlib.Path(os.environ["SAVED"]).write_text(text)
print("Submitted batch job 77")
"""


@needs_submitit
def test_slurm_is_told_what_a_cell_needs(tmp_path, monkeypatch):
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("sbatch", "srun"):
        (programs / name).write_text(SBATCH)
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("SAVED", str(tmp_path / "saved.sh"))
    engine = SlurmEngine(
        str(tmp_path / "jobs"), 6, 2, 90, {"partition": "gpu", "exclusive": True}, "slurm"
    )
    jobs = engine._submit(print, [1, 2, 3])
    assert [job.job_id for job in jobs] == ["77_0", "77_1", "77_2"]
    lines = (tmp_path / "saved.sh").read_text().splitlines()
    for line in (
        *("array=0-2%3", "cpus-per-task=6", "gpus-per-node=2", "time=90", "partition=gpu"),
        *("exclusive", "job-name=pujax", "nodes=1", "signal=USR2@90"),
    ):
        assert f"#SBATCH --{line}" in lines
