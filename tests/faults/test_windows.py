"""What Python lacks on Windows is not needed: a process that has none of it trains and predicts."""

import json
import os
import subprocess
import sys

import pytest

from tests.faults import runs, windows

_FIT = """
import numpy as np
import pujax

rng = np.random.default_rng(0)
rows = rng.normal(size=[80, 3])
labels = (rows[:, 0] > 0.5) & (rng.random(80) < 0.7)
options = {"prior": 0.4, "num_epochs": 20, "batch_size": 32, "random_state": 0}
model = pujax.PUClassifier(hidden=(8,), learning_rate=0.05, **options).fit(rows, labels)
assert model.predict(rows)[rows[:, 0] > 1].all() and not model.predict(rows)[rows[:, 0] < -1].any()
assert model.predict_proba(rows).shape == (80, 2)
"""
_COMMANDS = """
from pujax import commands

own = ["--config.data.path=rows.csv", "--config.data.label=known", "--config.data.prior=0.4"]
short = ["--config.method.num_epochs=2", "--config.model.options.hidden=(4,)"]
train = ["pujax", "train", "--config=own_table", *own, *short, "--workdir=run"]
assert commands.main([*train, "--config.run.compare="]) == 0
assert commands.main(["pujax", "predict", "run", "rows.csv", "--output=scores.csv"]) == 0
"""


_LOCK = """
import json, pathlib, socket, sys
from pujax import locks

path = pathlib.Path("lock")
ended, running = map(int, sys.argv[1:])
for pid in (ended, running):
    path.write_text(json.dumps({"pid": pid, "host": socket.gethostname(), "since": "then"}))
    try:
        with locks.hold(path, what="it", accepted="another"):
            assert pid == ended
    except locks.HeldError as error:
        assert pid == running and f"it is in use by process {pid} on" in str(error), error
"""
# What `pretend` refuses, and how.
_REFUSED = {
    **{f"import {name}": ModuleNotFoundError for name in windows.MODULES},
    "import os; os.sysconf('SC_PAGE_SIZE')": AttributeError,
    "import os; os.kill(os.getpid(), 0)": AssertionError,
    "import os; file = open('x', 'w'); os.remove('x')": PermissionError,
    "import os; file = open('x', 'w'); os.rename('x', 'y')": PermissionError,
}


def on_windows(code, folder, *arguments, trains=True):
    """Runs code in a process where Python lacks what it lacks on Windows; returns what it wrote."""
    start = f"from tests.faults import windows\nwindows.pretend(trains={trains})\n"
    process = subprocess.run(
        [sys.executable, "-c", start + code, *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1", "PYTHONPATH": str(runs.REPOSITORY)},
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


def test_what_windows_refuses_is_refused_here(tmp_path):
    lines = ["import contextlib"]
    for code, kind in _REFUSED.items():
        lines += [f"with contextlib.suppress({kind.__name__}):", f"    {code}"]
        lines += [f"    raise SystemExit({code!r})"]
    on_windows("\n".join(lines), tmp_path, trains=False)


def test_a_process_that_runs_keeps_others_out_and_one_that_ended_does_not(tmp_path):
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    on_windows(_LOCK, tmp_path, ended.pid, os.getpid(), trains=False)


def test_the_estimator_trains_and_predicts(tmp_path):
    on_windows(_FIT, tmp_path)


@pytest.mark.thorough
def test_commands_train_and_predict_and_the_peak_of_memory_is_unknown(tmp_path):
    lines = [f"{i % 7},{i % 11},{int(i % 7 > 3 and i % 3 == 0)}" for i in range(200)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,known", *lines]) + "\n")
    on_windows(_COMMANDS, tmp_path)
    assert len((tmp_path / "scores.csv").read_text().splitlines()) == 201
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["peak_memory_bytes"] is None
