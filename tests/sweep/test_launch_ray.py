"""Cells as tasks of Ray on this machine: a worker that dies, and a launching process that stops."""

import json
import os
import signal

import pytest

from pujax import sweep
from pujax.sweep import launch
from pujax.sweep.ray_engine import RayEngine
from tests.sweep import small_plan

ray = pytest.importorskip("ray", reason="needs Ray, pip install 'pujax[ray]'")
pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def cluster():
    """Ray with two workers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


def plan(*methods, epochs=2):
    result = small_plan.plan(methods, epochs=epochs)
    for cell in result.cells:
        cell.config.run.checkpoint_every = 1
    return result


def epochs(folder):
    lines = (folder / "seed_0/metrics.jsonl").read_text().splitlines()
    return [json.loads(line)["epoch"] for line in lines]


def test_a_cell_whose_worker_dies_goes_on_in_another_one(cluster, tmp_path):
    def train(task):
        import time

        from pujax.sweep import launch
        from pujax.training import metrics_writer

        row = task.plan.cells[0].row
        with open(os.path.join(task.workdir, f"{row}.tries"), "a") as file:
            file.write(f"{os.getpid()}\n")
        append = metrics_writer.MetricsWriter.append

        def killing(self, values):
            append(self, values)
            marker = os.path.join(task.workdir, "killed")
            if row == "naive" and values["epoch"] == 1 and not os.path.exists(marker):
                saved = os.path.join(self._folder, "checkpoints")
                for _ in range(3000):  # until that of the first epoch is written
                    if any(name.isdigit() for name in os.listdir(saved)):
                        break
                    time.sleep(0.02)
                open(marker, "w").close()
                os.kill(os.getpid(), signal.SIGKILL)
            with open(os.path.join(task.workdir, f"{row}.epochs"), "a") as file:
                file.write(f"{values['epoch']}\n")

        metrics_writer.MetricsWriter.append = killing
        return launch.train_task(task)

    (tmp_path / "ray").mkdir()
    both = plan("naive", "weighted_bce")
    assert launch.run(both, str(tmp_path / "ray"), RayEngine(), train=train) == 0

    def lines(name):
        return (tmp_path / "ray" / name).read_text().split()

    assert (tmp_path / "ray/killed").exists()
    tries = {row: lines(f"{row}.tries") for row in ("naive", "weighted_bce")}
    assert len(set(tries["naive"])) == 2 and len(tries["weighted_bce"]) == 1
    # The second try went on after the first epoch, whose checkpoint the first one left.
    assert lines("naive.epochs") == ["0", "1"] and epochs(tmp_path / "ray/even/naive") == [0, 1]
    assert sweep.run(both, str(tmp_path / "here")) == 0
    tables = [(tmp_path / name / "table.md").read_text() for name in ("ray", "here")]
    assert tables[0] == tables[1]


def test_a_signal_lets_the_cells_save_and_the_same_call_goes_on(cluster, tmp_path):
    launching = os.getpid()

    def train(task):
        import time

        from pujax.sweep import launch
        from pujax.training import metrics_writer, preemption

        handle, append, asked = (
            preemption.StopRequest._handle,
            metrics_writer.MetricsWriter.append,
            [],
        )

        def handling(self, number, frame):
            asked.append(number)
            handle(self, number, frame)

        def stopping(self, values):
            append(self, values)
            if values["epoch"] == 0:
                os.kill(launching, signal.SIGTERM)
                for _ in range(6000):  # until the launching process has passed it on
                    if asked:
                        return
                    time.sleep(0.02)

        preemption.StopRequest._handle = handling
        metrics_writer.MetricsWriter.append = stopping
        return launch.train_task(task)

    one = plan("naive", epochs=3)
    with pytest.raises(SystemExit) as ended:
        launch.run(one, str(tmp_path), RayEngine(), train=train)
    assert ended.value.code == 128 + signal.SIGTERM
    assert epochs(tmp_path / "even/naive") in ([0], [0, 1])  # several steps are one call
    assert not (tmp_path / "even/naive/seed_0/error.txt").exists()
    assert not (tmp_path / "even/naive/seed_0/summary.json").exists()
    assert launch.run(one, str(tmp_path), RayEngine()) == 0
    assert epochs(tmp_path / "even/naive") == [0, 1, 2]
