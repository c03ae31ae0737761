"""Shards share a plan, each cell is in one of them, and a cell is trained by one process."""

import json
import subprocess
import sys
import threading

import pytest

from pujax import locks, sweep
from pujax.sweep import __main__ as command
from pujax.sweep import cell_runner, claims, own_rows, runner, shards
from tests.sweep import small_plan


@pytest.mark.parametrize("total", [1, 2, 3, 5, 9])
def test_all_shards_together_are_the_plan_once(total):
    cells = [3, 1, 4, 15, 9]
    found = [shards.Shard(number, total).of(cells) for number in range(total)]
    assert sorted(sum(found, ())) == sorted(cells)
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize(
    "text", ["2/2", "-1/2", "1", "0/0", "1/2/3", "a/b", "0.5/2", " 0/2", "٠/2"]
)
def test_a_shard_that_is_none_is_named(text):
    with pytest.raises(ValueError, match=f"--shard is {text!r}; accepted: I/N with I from 0"):
        shards.parse(text)
    assert shards.parse("1/2") == (1, 2)


def finished(workdir):
    """Methods that have a summary."""
    return sorted(path.parts[-3] for path in workdir.glob("even/*/seed_0/summary.json"))


@pytest.fixture
def plan_file(tmp_path):
    path = tmp_path / "plan.py"
    path.write_text("from tests.sweep import small_plan\nget_plan = small_plan.plan\n")
    return path


@pytest.mark.thorough
def test_shards_train_their_cells_and_the_last_one_writes_the_table(plan_file, tmp_path, capsys):
    workdir = tmp_path / "work"
    run = [*("sweep", f"--plan={plan_file}", f"--workdir={workdir}", "--set=method.num_epochs=1")]
    assert command.main([*run, "--shard=1/2"]) == 0
    assert finished(workdir) == ["weighted_bce"]
    assert not (workdir / "table.md").exists()
    assert "2 of 3 cells are not finished: the shard that ends last" in capsys.readouterr().out
    assert command.main([*run, "--shard=0/2"]) == 0
    assert finished(workdir) == ["naive", "supervised", "weighted_bce"]
    table = (workdir / "table.md").read_text()
    assert table.count("| 1 of 1 |") == 3 and table in capsys.readouterr().out
    (workdir / "table.md").unlink()
    assert command.main([*run, "--shard=7/8"]) == 0  # has no cell
    assert (workdir / "table.md").read_text() == table
    (workdir / "table.md").unlink()
    assert command.main(run) == 0
    assert (workdir / "table.md").read_text() == table


def test_the_share_does_not_depend_on_what_is_finished_but_on_what_is_chosen(
    plan_file, tmp_path, capsys
):
    dry = [*("sweep", f"--plan={plan_file}", "--dry_run", "--shard=1/2", "--only=e ")]
    assert command.main(dry) == 0  # naive and weighted_bce end with e; so does the latter alone
    said = capsys.readouterr().out
    assert "1 of 3 cells" in said and "weighted_bce on even" in said


@pytest.mark.thorough
def test_a_cell_with_an_error_is_over(tmp_path):
    plan = small_plan.plan(("naive", "supervised"), epochs=1)
    place = cell_runner.Place(str(tmp_path), None, None, False, {})
    place.write_error(plan.cells[1], [0], "went wrong")
    assert sweep.run(plan, str(tmp_path), shard=shards.Shard(0, 2)) == 0
    assert "supervised on even stopped: seed 0: went wrong" in (tmp_path / "table.md").read_text()


HOLD = """
import fcntl, sys
file = open(sys.argv[1], "a")
fcntl.flock(file, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.thorough
def test_a_cell_that_another_process_trains_is_left_to_it(tmp_path, monkeypatch):
    plan = small_plan.plan(("naive",), epochs=1)
    folder = tmp_path / plan.cells[0].folder
    with claims.claim(str(folder)) as is_ours:
        assert is_ours
    (lock,) = folder.iterdir()
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with other:
        assert other.stdout.readline() == b"held\n"
        with monkeypatch.context() as patch:
            patch.setattr(cell_runner, "train", lambda *a: pytest.fail("trained"))
            assert sweep.run(plan, str(tmp_path)) == 1
        assert json.loads((tmp_path / "results.json").read_text())["records"] == []
        other.kill()  # and with the process goes its claim
        other.wait()
        assert sweep.run(plan, str(tmp_path)) == 0


def test_what_another_process_trained_with_other_settings_is_no_result_of_this_one(
    tmp_path, monkeypatch
):
    plan, other = (small_plan.plan(("naive",), epochs=epochs) for epochs in (2, 1))
    train_cell = runner.train_cell

    def after_the_other(*args):
        monkeypatch.setattr(runner, "train_cell", train_cell)
        assert sweep.run(other, str(tmp_path)) == 0
        return train_cell(*args)

    monkeypatch.setattr(runner, "train_cell", after_the_other)
    with pytest.raises(ValueError, match="seed_0 holds a run with another .*num_epochs: 1 there"):
        sweep.run(plan, str(tmp_path))
    (record,) = json.loads((tmp_path / "results.json").read_text())["records"]
    assert record["config"]["method"]["num_epochs"] == 1


def test_where_files_cannot_be_locked_a_cell_is_trained_all_the_same(tmp_path, monkeypatch):
    def no_locks(file, how):
        raise OSError("not supported")

    monkeypatch.setattr(locks.fcntl, "flock", no_locks)
    with claims.claim(str(tmp_path / "cell")) as first, claims.claim(str(tmp_path / "cell")) as two:
        assert first and two


def test_waiting_for_a_claim_ends_when_the_other_gives_it_back(tmp_path, monkeypatch):
    folder = str(tmp_path)
    first = claims.claim(folder)
    assert first.__enter__()
    with claims.claim(folder) as is_ours:
        assert not is_ours
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        if len(slept) == 3:
            first.__exit__(None, None, None)

    monkeypatch.setattr(locks.time, "sleep", sleep)
    with claims.claim(folder, wait=3600) as is_ours:
        assert is_ours and len(slept) == 3


def test_results_collected_first_are_not_written_over_later_ones(tmp_path, monkeypatch):
    plan = own_rows.settle(small_plan.plan(("naive",), epochs=1), [None])
    began, goes_on = threading.Event(), threading.Event()
    found = iter(["of before", "of now"])

    def error(place, cell, seeds):
        text = next(found)
        if text == "of before":
            began.set()
            assert goes_on.wait(60)
        return text

    monkeypatch.setattr(cell_runner.Place, "error", error)
    monkeypatch.setattr(locks, "_SECONDS_BETWEEN_TRIES", 0.01)
    place = cell_runner.Place(str(tmp_path), None, None, False, {})
    writer = runner.Sweep(plan, [[]], (0,), place, [])
    threads = [threading.Thread(target=writer.write_results) for _ in range(2)]
    threads[0].start()
    assert began.wait(60)
    threads[1].start()
    threads[1].join(0.2)  # it waits, or has written by then
    goes_on.set()
    for thread in threads:
        thread.join()
    assert json.loads((tmp_path / "results.json").read_text())["cells"][0]["error"] == "of now"


def test_a_process_that_holds_the_results_and_stands_still_keeps_none_back(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "_SECONDS_FOR_RESULTS", 0.0)
    with claims.results(str(tmp_path)), claims.results(str(tmp_path)):
        pass
