"""A sweep trains what a plan says and no more, resumes, and its table says what the runs say."""

import csv
import json
import math
import os
import re
import shutil
import signal
import socket
import statistics
import types

import numpy as np
import pytest

from pujax import report, sweep
from pujax.data.readers import download
from pujax.sweep import __main__ as command
from pujax.sweep import cell_runner, claims, figure, resume, runner, tables
from pujax.sweep import plan as plan_lib
from pujax.training import (
    checkpoint,
    compilation_cache,
    experiment,
    method_setup,
    metrics_writer,
    train_loop,
    train_step,
)
from pujax.training import config as config_lib
from pujax.training.evaluation import one_class
from tests import tiny
from tests.sweep import small_plan

CONFIG = """
from pujax.training import config as config_lib

def get_config(argument=""):
    chosen = dict(part.split("=") for part in argument.split(",") if part)
    config = config_lib.default_config(chosen.get("method", "naive"))
    config.data.update({"source": "digits", "num_labeled": int(chosen["labeled"])})
    tasks = {"even": (0, 2, 4, 6, 8), "low": (0, 1, 2)}
    if chosen["task"] not in tasks:
        raise ValueError(f"task is {chosen['task']!r}; accepted: {', '.join(tasks)}")
    config.data.positive_classes = tasks[chosen["task"]]
    config.model.name = "mlp"
    config.model.options = {"hidden": (4,)}
    config.method.update({"num_epochs": 2, "batch_size": 64, "augment": False})
    config.run.eval_every = 1
    return config
"""

_MADE = (
    "from ml_collections import ConfigDict as C\nfrom pujax import sweep\n"
    "def get_plan(): return sweep.Plan('t', "
)


pytestmark = pytest.mark.usefixtures("one_device")
_shared = tiny.shared_setups()


@pytest.fixture(autouse=True)
def one_method():
    """Cells of equal settings share a built method and its programs; each trains anew."""
    with pytest.MonkeyPatch.context() as patch:  # which a test that undoes its own leaves alone
        patch.setattr(method_setup, "build", _shared)
        yield


@pytest.fixture(scope="module")
def config_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("configs") / "small.py"
    path.write_text(CONFIG)
    return f"{path}:labeled=100"


def flags(config_file, workdir, *more):
    given = ["--methods=naive,supervised", "--tasks=even", "--seeds=0,1"]
    names = {text.split("=")[0] for text in more}
    given = [text for text in given if text.split("=")[0] not in names]
    return ["sweep", f"--config={config_file}", f"--workdir={workdir}", *given, *more]


def run(*arguments):
    return command.main(flags(*arguments))


def results(workdir):
    return json.loads((workdir / "results.json").read_text())


def table(workdir):
    """Cells of the table's lines, header first."""
    lines = (workdir / "table.md").read_text().splitlines()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line[:1] == "|"]
    return [rows[0], *rows[2:]]


@pytest.fixture(scope="module")
def finished(config_file, tmp_path_factory):
    """A sweep of two methods and two seeds."""
    folder = tmp_path_factory.mktemp("finished")
    assert run(config_file, folder, "--rules=last,oracle_best_epoch") == 0
    return folder


def test_the_table_holds_mean_and_deviation_of_what_the_runs_report(finished):
    header, *lines = table(finished)
    assert header[2:4] == ["last", "oracle_best_epoch (oracle: test labels)"]
    assert [line[:2] for line in lines] == [
        ["even", "naive"],
        ["even", "supervised (true labels)"],
    ]
    for name, line in zip(("naive", "supervised"), lines, strict=True):
        values = []
        for seed in (0, 1):
            folder = finished / "even" / name / f"seed_{seed}"
            rows = [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]
            values.append([row["test_accuracy"] for row in rows])
        last = [100 * both[-1] for both in values]
        best = [100 * max(both) for both in values]
        for chosen, cell in ((last, line[2]), (best, line[3])):
            mean = sum(chosen) / 2
            deviation = abs(chosen[0] - chosen[1]) / 2**0.5  # n - 1, for two values
            assert cell == f"{mean:.2f} ± {deviation:.2f}"
        assert line[4:] == ["-", "-", "2 of 2"]


def test_records_say_what_was_trained_and_how(finished):
    records = results(finished)["records"]
    assert [(r["row"], r["seed"]) for r in records] == [
        ("naive", 0),
        ("naive", 1),
        ("supervised", 0),
        ("supervised", 1),
    ]
    assert all(r["trained_together"] == 2 and r["seconds"] > 0 for r in records)
    assert records[2]["oracle"] and not records[0]["oracle"]
    assert records[0]["config"]["method"]["num_epochs"] == 2
    assert "dir" not in records[0]["config"]["data"]
    assert len({r["config_digest"] for r in records}) == 4
    with open(finished / "results.csv") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 4 * 3  # three rules have a value
    first = records[0]["metrics"]["last"]
    assert first == records[0]["metrics"]["reported"]
    assert float(lines[0]["accuracy"]) == float(lines[1]["accuracy"]) == first["accuracy"]
    assert lines[2]["rule"] == "oracle_best_epoch" and lines[2]["is_oracle"] == "True"


def test_a_sweep_leaves_the_summary_that_the_command_makes_of_its_results(finished, tmp_path):
    assert tables.main(["tables", str(finished), f"--out={tmp_path / 'summary'}"]) == 0
    for name in ("summary.csv", "summary.md"):
        assert (tmp_path / name).read_text() == (finished / name).read_text()
    with open(finished / "summary.csv") as file:
        lines = list(csv.DictReader(file))
    shown = [f"{float(x['mean']):.2f} ± {float(x['std']):.2f}" for x in lines]
    assert shown == [cell for line in table(finished)[1:] for cell in line[2:4]]


def test_a_finished_sweep_trains_nothing_again(config_file, finished, monkeypatch):
    before = (finished / "table.md").read_text()
    monkeypatch.setattr(experiment, "run_members", lambda *a, **k: pytest.fail("trained"))
    assert run(config_file, finished, "--rules=last,oracle_best_epoch") == 0
    assert (finished / "table.md").read_text() == before


def test_the_end_draws_differences_from_a_reference_and_lives_without_the_figure(
    config_file, finished, tmp_path, monkeypatch, capsys, caplog
):
    monkeypatch.setattr(experiment, "run_members", lambda *a, **k: pytest.fail("trained"))
    folder = tmp_path / "compared"
    shutil.copytree(finished, folder)
    plan, _ = command.parse(flags(config_file, folder))
    assert not list(folder.glob("*.png"))  # the plan has no reference
    assert sweep.run(plan._replace(reference="naive"), str(folder)) == 0
    (drawn,) = folder.glob("*.png")
    assert drawn.name == "paired_even.png" and drawn.read_bytes().startswith(b"\x89PNG")

    def fails(*_):
        raise ValueError("no paint")

    capsys.readouterr()
    monkeypatch.setattr(figure, "write", fails)
    assert sweep.run(plan._replace(reference="naive"), str(folder)) == 0
    assert "paired with 'naive'" in "".join(capsys.readouterr())
    assert "could not be drawn" in caplog.text and "no paint" in caplog.text


@pytest.mark.parametrize(
    ("columns", "reference", "drawn"),
    [("aab", "", []), ("abc", "", ["here"]), ("a", "naive", ["here"])],
)
def test_figures_of_many_columns_need_no_reference(columns, reference, drawn, monkeypatch):
    cells = [plan_lib.Cell("naive", column, None) for column in columns]
    plan = plan_lib.Plan("a title", cells, reference=reference)
    place = types.SimpleNamespace(workdir="here")
    ended = types.SimpleNamespace(
        plan=plan,
        place=place,
        is_over=lambda _: True,
        write_results=lambda: "table",
        left_out=[],
    )
    found = []
    monkeypatch.setattr(runner, "_draw", found.append)
    runner.show_table(ended, needs_all=True)
    assert found == drawn


def test_the_folder_of_the_data_is_no_part_of_a_result(config_file, finished):
    assert run(config_file, finished, "--data_dir=digits=/elsewhere", "--dry_run") == 0


def test_a_dry_run_writes_nothing_and_says_what_there_is_to_do(
    config_file, finished, tmp_path, capsys
):
    assert run(config_file, tmp_path / "new", "--dry_run") == 0
    assert not (tmp_path / "new").exists()
    # 1438 training images in batches of 64, two epochs
    assert "naive on even: 2 epochs, 44 steps, seeds 0, 1; together\n" in capsys.readouterr().out
    assert run(config_file, finished, "--dry_run", "--only=naive", "--seeds=0,1,2") == 0
    said = capsys.readouterr().out
    assert "seeds 0, 1, 2 (finished: 0, 1)" in said and "supervised" not in said


@pytest.mark.thorough
@pytest.mark.parametrize("sequential", [False, True])
def test_an_interrupted_sweep_goes_on_as_if_nothing_had_happened(
    config_file, finished, tmp_path, monkeypatch, sequential
):
    append, calls = metrics_writer.MetricsWriter.append, []

    def interrupting(self, row):
        append(self, row)
        calls.append(row)
        if len(calls) == (3 if sequential else 2):
            os.kill(os.getpid(), signal.SIGTERM)

    mode = ["--sequential"] if sequential else []
    more = ["--only=naive", "--rules=last,oracle_best_epoch", *mode]
    monkeypatch.setattr(metrics_writer.MetricsWriter, "append", interrupting)
    with pytest.raises(SystemExit) as stopped:
        run(config_file, tmp_path, *more)
    assert stopped.value.code == 128 + signal.SIGTERM
    monkeypatch.undo()
    assert table(tmp_path)[1][-1] == ("1 of 2" if sequential else "0 of 2")
    assert run(config_file, tmp_path, *more) == 0
    after, before = results(tmp_path), results(finished)
    for one, two in zip(after["records"], before["records"][:2], strict=True):
        assert one["trained_together"] == (1 if sequential else 2)
        if not sequential:  # else equal to rounding, see test_seed_axis
            assert one["metrics"] == two["metrics"]
    assert table(tmp_path)[2][2:] == ["-", "-", "-", "-", "0 of 2"]


@pytest.mark.parametrize("begun", ["together", "alone"])
@pytest.mark.thorough
def test_seeds_go_on_as_they_were_begun_whatever_the_flags_say(config_file, tmp_path, begun):
    modes = ([], ["--sequential"]) if begun == "together" else (["--sequential"], [])
    first, second = (["--only=naive", *mode] for mode in modes)
    assert run(config_file, tmp_path, "--set=run.stop_after_epoch=1", *first) == 0
    assert results(tmp_path)["records"] == []
    assert run(config_file, tmp_path, "--seeds=0,1,2", "--dry_run", *second) == 0
    assert run(config_file, tmp_path, "--seeds=0,1,2", *second) == 0
    together_of = {r["seed"]: r["trained_together"] for r in results(tmp_path)["records"]}
    assert together_of == ({0: 2, 1: 2, 2: 1} if begun == "together" else {0: 1, 1: 1, 2: 1})
    for seed in (0, 1, 2):
        lines = (tmp_path / f"even/naive/seed_{seed}/metrics.jsonl").read_text().splitlines()
        assert [json.loads(line)["epoch"] for line in lines] == [0, 1]


def test_a_group_killed_between_its_summaries_trains_nothing_again(
    config_file, finished, tmp_path, monkeypatch
):
    shutil.copytree(finished / "even" / "naive", tmp_path / "even" / "naive")
    (tmp_path / "even/naive/seed_1/summary.json").unlink()
    monkeypatch.setattr(train_loop, "_train_epoch", lambda *a: pytest.fail("trained"))
    # Seed 0 belongs to the group though nobody asks for it.
    assert run(config_file, tmp_path, "--only=naive", "--seeds=1") == 0
    (record,) = results(tmp_path)["records"]
    assert record["metrics"] == results(finished)["records"][1]["metrics"]


def test_results_that_a_smaller_call_leaves_out_are_spoken_of(
    config_file, finished, tmp_path, capsys
):
    shutil.copytree(finished, tmp_path, dirs_exist_ok=True)
    assert run(config_file, tmp_path, "--methods=naive", "--seeds=0") == 0
    assert "3 of the 4 results in " in capsys.readouterr().out
    assert len(results(tmp_path)["records"]) == 1
    assert run(config_file, tmp_path, "--rules=last,oracle_best_epoch") == 0  # trains nothing
    assert results(tmp_path)["records"] == results(finished)["records"]
    assert "3 of the 4" not in capsys.readouterr().out


def test_a_file_as_the_folder_of_a_sweep_is_named(config_file, tmp_path, capsys):
    (tmp_path / "a").write_text("x")
    for more in ([], ["--dry_run"]):
        assert run(config_file, tmp_path / "a", *more) == 2
        assert f"--workdir is '{tmp_path / 'a'}', " in capsys.readouterr().err


def test_a_group_of_many_seeds_has_a_folder_and_is_found_again(tmp_path):
    seeds = tuple(range(2_000_000_000, 2_000_000_030))
    folder = resume.make_group_folder(str(tmp_path), seeds)
    assert len(os.path.basename(folder)) < 100 and folder == resume.group_folder(tmp_path, seeds)
    assert folder != resume.group_folder(tmp_path, seeds[::-1])
    assert resume.find(str(tmp_path), seeds) == ((), (), seeds)  # it has no checkpoint yet
    os.makedirs(os.path.join(folder, "checkpoints", "1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "exists", os.path.isdir)
        assert resume.find(str(tmp_path), seeds) == (((folder, seeds),), (), ())
    assert os.path.basename(resume.group_folder("a", (3, 1))) == "together_3-1"


@pytest.mark.parametrize("held", ["{}", '{"seeds": 3}', '{"seeds": []}', '{"seeds": [0, true]}'])
def test_a_damaged_list_of_seeds_is_named(tmp_path, held):
    seeds = tuple(range(2_000_000_000, 2_000_000_030))
    path = os.path.join(resume.make_group_folder(str(tmp_path), seeds), "seeds.json")
    with open(path, "w") as file:
        file.write(held)
    with pytest.raises(ValueError, match=rf"{path} is damaged \(.*; accepted: the file as written"):
        resume.find(str(tmp_path), seeds)


@pytest.mark.parametrize(
    "held",
    [
        "{}",
        '{"selections": 3, "oracle_best_epoch": {}}',
        '{"selections":{},"oracle_best_epoch":{}}',
    ],
)
def test_a_damaged_summary_of_a_seed_is_named(tmp_path, held):
    (cell, *_) = small_plan.plan(("naive",)).cells
    place = cell_runner.Place(str(tmp_path), None, None, False, {})
    path = os.path.join(resume.seed_folder(place.folder(cell), 0), "summary.json")
    os.makedirs(os.path.dirname(path))
    with open(path, "w") as file:
        file.write(held)
    with pytest.raises(ValueError, match=rf"{path} is damaged \(.*; accepted: the file as written"):
        place.unfinished(cell, (0,))


def _with_checkpoints(folder, *names):
    for name in names:
        os.makedirs(os.path.join(folder, name, "checkpoints"))


def test_a_damaged_summary_is_found_before_another_cell_trains(config_file, tmp_path, capsys):
    config = plan_lib.from_config(config_file, tasks=["even"], methods=["naive"]).cells[0].config
    folder = tmp_path / "even" / "naive" / "seed_0"
    folder.mkdir(parents=True)
    resolved = config_lib.resolve(config)
    (folder / "config.json").write_text(json.dumps(resolved.to_dict()))
    (folder / "summary.json").write_text("{")
    assert run(config_file, tmp_path, "--only=supervised") == 2
    assert "seed_0/summary.json is damaged" in capsys.readouterr().err
    assert not (tmp_path / "even" / "supervised").exists()


def test_the_larger_of_two_groups_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "exists", os.path.isdir)
    _with_checkpoints(tmp_path, "together_0-1", "together_0-1-2")
    groups = ((str(tmp_path / "together_0-1-2"), (0, 1, 2)),)
    assert resume.find(str(tmp_path), (0, 1, 2)) == (groups, (), ())


def test_a_seed_that_left_its_group_goes_on_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "exists", os.path.isdir)
    _with_checkpoints(tmp_path, "together_0-1", "seed_0")
    assert resume.find(str(tmp_path), (0,)) == ((), (0,), ())
    groups = ((str(tmp_path / "together_0-1"), (0, 1)),)
    assert resume.find(str(tmp_path), (0, 1)) == (groups, (0,), ())
    assert resume.find(str(tmp_path), (7, 0, 3)) == ((), (0,), (7, 3))  # in the order of the plan


def test_reasons_are_those_of_seeds_that_are_not_finished_and_equal_ones_are_one(tmp_path):
    (cell,) = small_plan.plan(("naive",)).cells
    place = cell_runner.Place(str(tmp_path), None, None, False, {})
    for seeds, reason in (((0, 2, 3), "no memory"), ((1,), "no data")):
        place.write_error(cell, seeds, reason)
    assert place.error(cell, (0, 1, 2)) == "seed 0, 2: no memory; seed 1: no data"
    # Seed 2 is finished by another process, which left the old reason in its folder.
    summary = {x: {} for x in ("selections", "oracle_best_epoch", "test", "train")}
    (tmp_path / cell.folder / "seed_2" / "summary.json").write_text(json.dumps(summary))
    assert place.error(cell, (0, 1, 2)) == "seed 0: no memory; seed 1: no data"
    place.write_error(cell, (0, 1, 2), "killed")
    assert place.error(cell, (0, 1, 2)) == "seed 0, 1: killed"
    assert (tmp_path / cell.folder / "seed_2" / "error.txt").read_text() == "no memory\n"


def test_an_old_reason_is_gone_while_the_seed_trains_again(tmp_path):
    (cell,) = small_plan.plan(("naive",)).cells
    place = cell_runner.Place(str(tmp_path), None, None, False, {})
    place.write_error(cell, [0], "stopped")
    assert place.is_over(cell, [0])
    with cell_runner._keeping_errors(cell, [0], place, []):
        seen = place.is_over(cell, [0]), place.error(cell, [0])  # it would keep an assertion, too
    assert seen == (False, "")


@pytest.mark.thorough
@pytest.mark.parametrize("error", [train_loop.NonFiniteError, ValueError, MemoryError])
def test_a_seed_that_fails_leaves_the_others_and_its_reason(
    config_file, tmp_path, monkeypatch, error
):
    run_one = experiment.run_one

    def failing(setup, *rest):
        if setup.config.seed == 0:
            raise error("went wrong")
        return run_one(setup, *rest)

    monkeypatch.setattr(experiment, "run_one", failing)
    more = ["--methods=naive", "--sequential"]
    assert run(config_file, tmp_path, *more) == 1
    reason = "MemoryError: went wrong" if error is MemoryError else "went wrong"
    said = f"- naive on even stopped: seed 0: {reason}"
    assert table(tmp_path)[1][-1] == "1 of 2" and said in (tmp_path / "table.md").read_text()
    monkeypatch.undo()
    # Another command, which trains another cell, still says why.
    both = ["--methods=naive,supervised", "--seeds=0"]
    assert run(config_file, tmp_path, "--only=supervised", *both) == 0
    assert said in (tmp_path / "table.md").read_text()
    assert run(config_file, tmp_path, *more) == 0
    assert "stopped" not in (tmp_path / "table.md").read_text()


def test_a_dry_run_says_how_seeds_would_train_and_downloads_nothing(
    config_file, tmp_path, monkeypatch, capsys
):
    command_line = flags(config_file, tmp_path, "--methods=naive", "--dry_run")
    command_line = [text for text in command_line if not text.startswith("--workdir")]
    assert command.main(command_line) == 0
    assert "44 steps, seeds 0, 1; together\n" in capsys.readouterr().out
    assert command.main([*command_line, "--sequential"]) == 0
    assert "seeds 0, 1; one after another: --sequential\n" in capsys.readouterr().out
    monkeypatch.setattr(socket, "getaddrinfo", lambda *a, **k: pytest.fail("asked the network"))
    elsewhere = tmp_path / "nothing"
    assert command.main([*command_line, "--set=data.source=mnist", f"--data_dir={elsewhere}"]) == 0
    assert f"naive on even: data not found at {elsewhere}\n" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("batch", "mode", "uneven"), [(21, (), False), (21, ("--sequential",), True), (24, (), False)]
)
def test_a_dry_run_says_which_batches_the_devices_of_a_seed_cannot_share(
    config_file, tmp_path, caplog, monkeypatch, batch, mode, uneven
):
    monkeypatch.setattr(runner.sharding, "make_mesh", lambda: tiny.mesh(2))
    options = ("--methods=naive", "--dry_run", f"--set=method.batch_size={batch}", *mode)
    assert command.main(flags(config_file, tmp_path, *options)) == 0
    said = f"method.batch_size is {batch}, which 2 devices cannot share evenly"
    assert (said in caplog.text) == uneven  # two seeds together have a device each


def test_help_is_no_error(capsys):
    assert command.main(["sweep", "--help"]) == 0
    assert capsys.readouterr().out.startswith("usage: python -m pujax.sweep")


def test_only_takes_the_cell_of_that_name_before_those_that_hold_it():
    cells = [
        sweep.Cell("nnPU", column, None) for column in ("MNIST k=1", "MNIST k=10", "FMNIST k=1")
    ]
    plan = sweep.Plan("names", cells, seeds=(0,))

    def chosen(text):
        return [cell.column for cell in plan_lib.only(plan, text).cells]

    assert chosen("nnPU on MNIST k=1") == ["MNIST k=1"]
    assert chosen("MNIST k=1") == ["MNIST k=1", "MNIST k=10", "FMNIST k=1"]
    assert chosen("on MNIST") == ["MNIST k=1", "MNIST k=10"]


def test_missing_flags_are_named(config_file, capsys):
    assert command.main(["sweep", f"--config={config_file}"]) == 2
    assert capsys.readouterr().err.startswith("--workdir is missing")
    assert command.main(["sweep", "--workdir=x"]) == 2
    assert capsys.readouterr().err.startswith("--plan or --config is missing")


@pytest.mark.parametrize("name", ["results.json", "results.csv", "table.md", "summary.csv"])
def test_files_of_somebody_else_are_not_written_over(config_file, tmp_path, name, capsys):
    (tmp_path / name).write_text("{}")
    assert run(config_file, tmp_path) == 2
    assert f"holds {name}, but no results.json of a sweep" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert (tmp_path / name).read_text() == "{}"


@pytest.mark.parametrize(
    "records",
    [
        None,
        [1],
        [{"row": ["a"], "column": "b", "seed": 0, "metrics": {}, "oracle": False}],
        [{"row": "a", "column": "b", "seed": True, "metrics": {}, "oracle": False}],
    ],
)
def test_damaged_results_are_named(config_file, tmp_path, capsys, records):
    path = tmp_path / "results.json"
    path.write_text(json.dumps({"title": "", "cells": [], "records": records}))
    assert run(config_file, tmp_path) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{path} is damaged (") and said.count("\n") == 1
    assert "accepted: the file as written" in said and list(tmp_path.iterdir()) == [path]


def test_other_settings_in_a_used_folder_are_refused_by_name(config_file, finished, capsys):
    assert run(config_file, finished, "--set=method.learning_rate=0.5") == 2
    assert "method.learning_rate: 0.001 there, 0.5 here" in capsys.readouterr().err


# What a variable that a shell does not know leaves, and which would train all there is.
EMPTY = ("methods", "tasks", "seeds", "rules", "only", "shard", "launch")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--tasks=odd"], "task is 'odd'; accepted: even, low"),
        (["--methods=naive,none"], "method.name is 'none'; accepted: "),
        (["--seeds=0,x"], "--seeds is '0,x'; accepted: "),
        (["--seeds=0,0"], "seeds is (0, 0); accepted: "),
        (["--seeds=-1"], "seeds is -1; accepted: "),
        (["--seeds=99999999999"], "accepted: whole numbers from 0 to 2147483647"),
        (["--rules=last,last"], "rules is ('last', 'last'); accepted: rules that differ"),
        (["--set=model.options=3"], "accepted: a field of the section model.options, as model.opt"),
        (["--set=data={'source': 'digits'}"], "accepted: a field of the section data, as data."),
        (["--set=method.learning_rate={[]: 1}"], "method.learning_rate is '{[]: 1}'; accepted: "),
        (["--set=run=3"], "--set is 'run=3'; accepted: a field of the section run, as run."),
        (["--rules=best"], "rules is 'best'; accepted: 'last', "),
        (["--rules=proxy_auc"], "data.num_validation and data.holdout are 0"),
        (["--set=method.beta=1"], "--set is 'method.beta=1'; accepted: "),
        (["--set=seed=1"], "--set is 'seed=1'; accepted: "),
        (["--set=run.figures=True"], "accepted: another field, since run.figures is False in"),
        (["--set=run.compare=nnpu"], "accepted: another field, since run.compare is '' in every"),
        (["--methods=naive,"], "--methods is 'naive,'; accepted: names with one comma between"),
        (["--tasks=,even"], "--tasks is ',even'; accepted: names with one comma between two"),
        (["--set=method.num_epochs"], "--set is 'method.num_epochs'; accepted: "),
        (["--set=method.num_epochs=two"], "naive on even: method.num_epochs is 'two'; accepted: "),
        (["--set=data.num_labeled=5000"], "data.num_labeled is 5000"),
        (["--set=method.batch_size=9000"], "naive on even: method.batch_size is 9000; accepted: "),
        (["--data_dir=nowhere=/a"], "--data_dir is 'nowhere'; accepted: "),
        (["--only=upu"], "--only is 'upu'; accepted: a part of 'naive on even'"),
        *((["--" + name + "="], f"--{name} is ''; accepted: a value") for name in EMPTY),
        (
            ["--plan=missing.py"],
            "--plan and --config are both given; accepted: one of them\nusage: ",
        ),
        (["--set=run.distributed=true"], "run.distributed is True; accepted: False"),
        (["--nonsense=1"], "--nonsense is not an option of this command; accepted: --config, "),
        (["--seeds=0", "--seeds=1"], "--seeds is '0' and '1'; accepted: every option once"),
    ],
)
def test_bad_input_is_named_before_anything_is_written(config_file, tmp_path, capsys, more, said):
    assert run(config_file, tmp_path / "new", *more) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("source", ["table", "image_folder"])
def test_missing_data_are_told_where_to_go_by_the_sweeps_own_flag(
    config_file, tmp_path, capsys, source
):
    more = (f"--set=data.source={source}", "--set=data.positive_classes=(1,)")
    assert run(config_file, tmp_path / "new", *more, f"--data_dir={tmp_path}") == 2
    said = capsys.readouterr().err
    assert said.startswith("naive on even: cannot find ") and f"{tmp_path}" in said
    assert "pass the folder that holds them as --data_dir\n" in said and "--config" not in said


@pytest.mark.parametrize("kind", [ValueError, download.MissingDataError])
def test_errors_of_data_keep_their_kind_and_advise_with_the_sweeps_flags(monkeypatch, kind):
    def load_data(config):
        raise kind("some are missing; --config.data.missing=skip, or another --config.data.dir")

    monkeypatch.setattr(experiment, "load_data", load_data)
    config = config_lib.resolve(config_lib.default_config("naive"))
    wanted = "^some are missing; --set=data.missing=skip, or another --data_dir$"
    with pytest.raises(kind, match=wanted) as caught:
        cell_runner.loader(1)(config)
    assert caught.type is kind
    (advice,) = re.findall(r"--set=([\w.]+=skip)", str(caught.value))
    plan = plan_lib.override(small_plan.plan(), [advice])
    assert {cell.config.data.missing for cell in plan.cells} == {"skip"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "the path of a Python file"),
        ("x = 1", "has no get_plan()"),
        ("x =", "plan.py, line 1); accepted: Python\n"),
        (
            "import no_such_module",
            "No module named 'no_such_module'; accepted: a file that imports",
        ),
        ("def get_plan(): pass", "gives a NoneType; accepted: a pujax.sweep.Plan"),
        ("def get_plan():\n    return {}['boom']", "raised KeyError: 'boom' ("),
        ("x = unknown", "raised NameError: name 'unknown' is not defined ("),
        ("raise RuntimeError('boo')", "plan.py, line 1); accepted: a file that runs\n"),
        (f"{_MADE}3)", "cells is a int; accepted: a list of pujax.sweep.Cell"),
        (f"{_MADE}'abc')", "cells is a str; accepted: a list of pujax.sweep.Cell"),
        (f"{_MADE}[('a', 'b', 1)])", "cells is a list of tuple; accepted: a list of"),
        (f"{_MADE}(1 / x for x in [0]))", "plan.py, line 3); accepted: a file whose get_plan"),
        ("raise RuntimeError('a\\nb')", "raised RuntimeError: a b ("),
        ("from pujax import sweep\ndef get_plan():\n    return sweep.no_such", "plan.py, line 3)"),
        (f"{_MADE}[sweep.Cell('a', 'b', {{}})])", "config of a on b is a dict; accepted: "),
        (
            f"{_MADE}[sweep.Cell('a', 'b', C({{'data': 1}}))])",
            "config of a on b is a ConfigDict without method, model, run, seed; accepted: ",
        ),
    ],
)
def test_a_file_without_a_plan_is_named(tmp_path, capsys, text, said):
    path = tmp_path / "plan.py"
    if text is not None:
        path.write_text(text)
    assert command.main(["sweep", f"--plan={path}", f"--workdir={tmp_path / 'new'}"]) == 2
    message = capsys.readouterr().err
    assert said in message and message.count("\n") == 1
    assert str(path) in message or "Plan('t'" in str(text)  # what a plan lacks is named by itself


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = unknown", "raised NameError: name 'unknown' is not defined ("),
        ("def get_config(argument):\n    return 1 / 0", "raised ZeroDivisionError: division by"),
        ("def get_config():\n    return 1", "raised TypeError: get_config() takes 0 positional"),
        ("def get_config(argument):\n    return 1", "get_config returns a int; accepted: "),
        (
            "import ml_collections\n"
            "def get_config(argument):\n    return ml_collections.ConfigDict({'data': {}})",
            "get_config returns a ConfigDict without method, model, run, seed; accepted: ",
        ),
    ],
)
def test_a_file_without_a_configuration_is_named(tmp_path, capsys, text, said):
    path = tmp_path / "mine.py"
    path.write_text(text)
    assert command.main(["sweep", f"--config={path}", f"--workdir={tmp_path / 'new'}"]) == 2
    message = capsys.readouterr().err
    assert f"--config={path}" in message and said in message and message.count("\n") == 1
    assert not (tmp_path / "new").exists()


def test_a_plan_may_take_an_argument(tmp_path):
    path = tmp_path / "plan.py"
    head = "from pujax import sweep\n"
    path.write_text(head + "def get_plan(text='none'): return sweep.Plan(text, ())")
    assert plan_lib.from_file(f"{path}:some=1").title == "some=1"
    assert plan_lib.from_file(str(path)).title == "none"
    path.write_text(head + "def get_plan(): return sweep.Plan('t', ())")
    with pytest.raises(ValueError, match="accepted: .*plan.py', which takes no argument"):
        plan_lib.from_file(f"{path}:some=1")


def test_settings_take_the_type_of_their_field(config_file):
    plan = plan_lib.from_config(config_file, tasks=["even"])
    settings = [
        "run.selection=last",
        "run.figures=false",
        "method.augment=TRUE",
        "model.options.hidden=(3, 3)",
        "data.prior=0.4",
    ]
    config = plan_lib.override(plan, settings).cells[0].config
    assert config.run.selection == "last"
    assert config.run.figures is False and config.method.augment is True
    assert config.model.options.hidden == (3, 3) and config.data.prior == 0.4
    unknown = plan_lib.override(plan, ["data.prior=auto"])
    assert unknown.cells[0].config.data.prior == "auto"
    options = (
        plan_lib.override(plan, ["model.options={'hidden': (3,)}"]).cells[0].config.model.options
    )
    assert options.hidden == (3,)
    assert plan_lib.override(unknown, ["data.prior=0.04"]).cells[0].config.data.prior == 0.04
    assert plan_lib.override(unknown, ["data.prior=auto"]).cells[0].config.data.prior == "auto"


def test_a_setting_is_asked_of_the_cells_that_are_trained_alone(config_file, tmp_path):
    """nnPU has a beta and the naive classifier has none."""

    def plan(*more):
        wanted = ("--methods=naive,nnpu", "--set=method.beta=0.25", *more)
        return command.parse(flags(config_file, tmp_path, *wanted))[0]

    naive, nnpu = plan("--only=nnpu on").cells
    assert nnpu.config.method.beta == 0.25 and "beta" not in naive.config.method
    naive, nnpu = plan("--only=nnpu on", "--set=method.num_epochs=7").cells
    assert naive.config.method.num_epochs == nnpu.config.method.num_epochs == 7
    for more in ((), ("--only=naive",), ("--only=even",)):
        with pytest.raises(ValueError, match="that is trained .naive on even has no such field"):
            plan(*more)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("seed=3", "--seeds has the seeds"),
        ("config.seed=3", "--seeds has the seeds"),
        ("method.num_epochs", "that is trained$"),
        ("method.rate=1", "that is trained .naive on even has no such field; --only=TEXT .*.$"),
    ],
)
def test_a_setting_that_is_none_is_told_why(config_file, setting, said):
    plan = plan_lib.from_config(config_file, methods=["naive"], tasks=["even"])
    with pytest.raises(ValueError, match=f"--set is '{setting}'; accepted: .*{said}"):
        plan_lib.override(plan, [setting])


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": ([0],)}, "seeds is [0]; accepted: whole numbers"),
        ({"rules": (["last"],)}, "rules is ['last']; accepted: "),
    ],
)
def test_what_a_list_of_a_plan_holds_is_named(changes, said):
    with pytest.raises(ValueError, match=f"^{re.escape(said)}"):
        plan_lib.check(small_plan.plan(["naive"])._replace(**changes))


@pytest.mark.parametrize("figures", [(math.nan, None), (math.inf, 1.0), (90.0, math.nan)])
def test_a_published_figure_is_finite(figures):
    """The file of a finished sweep has no word for others."""
    plan = small_plan.plan(["naive"])
    cells = tuple(cell._replace(published=figures) for cell in plan.cells)
    with pytest.raises(ValueError, match="^published of naive on even is .*; accepted: None, or a"):
        plan_lib.check(plan._replace(cells=cells))


def test_cells_of_a_plan_may_be_a_generator_and_must_be_some(tmp_path, capsys):
    path = tmp_path / "plan.py"
    head = "from pujax import sweep\nfrom tests.sweep import small_plan\n"
    path.write_text(
        f"{head}def get_plan(): return sweep.Plan('t', (c for c in small_plan.plan().cells))"
    )
    given = [f"--plan={path}", f"--workdir={tmp_path / 'new'}", "--dry_run"]
    assert command.main(["sweep", *given]) == 0
    assert command.main(["sweep", *given, "--only=naive", "--set=method.num_epochs=3"]) == 0
    assert "naive on even: 3 epochs" in capsys.readouterr().out
    path.write_text(f"{head}def get_plan(): return sweep.Plan('t', ())")
    assert command.main(["sweep", *given]) == 2
    assert "cells is (); accepted: at least one cell" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("methods", "given", "rules"),
    [
        (["naive", "nnpu"], None, ("reported",)),
        (["nnpu"], None, None),
        (["naive"], ("last",), ("last",)),
    ],
)
def test_what_is_held_out_chooses_the_epoch_of_a_table(methods, given, rules):
    plan = plan_lib.from_config("baseline", methods=methods, tasks=["digits"], rules=given)
    plan = plan_lib.with_usual_rules(plan)
    assert [cell.config.data.num_validation for cell in plan.cells][:1] == [
        0 if rules is None else 100
    ]
    assert plan.rules == rules


def test_every_method_meets_every_task(config_file):
    plan = plan_lib.from_config(config_file, methods=["naive", "nnpu"], tasks=["even", "low"])
    assert [(c.row, c.column) for c in plan.cells] == [
        ("naive", "even"),
        ("nnpu", "even"),
        ("naive", "low"),
        ("nnpu", "low"),
    ]
    assert plan.cells[3].config.data.positive_classes == (0, 1, 2)


@pytest.mark.parametrize(
    ("label", "folder"),
    [("nnPU, k=1", "nnPU_k_1"), ("..", "_"), ("../x", "x"), (".hidden", "hidden"), ("", "_")],
)
def test_a_label_is_a_folder_inside_that_of_the_sweep(label, folder):
    assert plan_lib.slug(label) == folder
    assert plan_lib.Cell(label, label, None).folder == os.path.join(folder, folder)


def test_cells_that_would_share_a_folder_are_refused():
    config = config_lib.default_config("naive")
    plan = sweep.Plan("two", [sweep.Cell("a b", "c", config), sweep.Cell("a_b", "c", config)])
    with pytest.raises(ValueError, match="'a b on c' and 'a_b on c'; accepted: labels"):
        plan_lib.check(plan)


@pytest.mark.thorough
def test_a_cell_that_is_not_finite_is_reported_and_the_others_go_on(
    config_file, tmp_path, monkeypatch
):
    releases = []
    monkeypatch.setattr(compilation_cache, "release", lambda: releases.append(1))
    plan = plan_lib.from_config(config_file, tasks=["even"], methods=["naive"], seeds=(0, 1))
    cell = plan.cells[0]
    wild = cell._replace(
        row="wild", config=plan_lib.override(plan, ["method.learning_rate=1e38"]).cells[0].config
    )
    plan = plan._replace(cells=(wild, cell._replace(published=(50.0, 1.5), note="A remark.")))
    assert sweep.run(plan, str(tmp_path)) == 1
    assert len(releases) == 2  # of each cell's programs, where they are too many
    _, *lines = table(tmp_path)
    assert lines[0][1:] == ["wild", "-", "-", "-", "0 of 2"]
    accuracies = [
        100 * record["metrics"]["last"]["accuracy"] for record in results(tmp_path)["records"]
    ]
    mean = sum(accuracies) / 2
    assert lines[1][3:] == ["50 ± 1.5", f"{mean - 50:+.2f}", "2 of 2"]
    text = (tmp_path / "table.md").read_text()
    assert (
        "- naive on even: A remark." in text
        and "- wild on even stopped: seed 0, 1: steps up to" in text
    )
    (advice,) = re.findall(r"--set=([\w.]+=skip)", text)
    assert plan_lib.override(plan, [advice]).cells[0].config.run.nonfinite == "skip"


@pytest.mark.thorough
def test_a_seed_that_left_its_group_and_lost_its_folder_starts_again(
    config_file, tmp_path, monkeypatch
):
    plan = plan_lib.from_config(config_file, tasks=["even"], methods=["naive"], seeds=(0, 1, 2))
    means, met = train_step.means, []

    def with_one_that_is_not_finite(sums):
        found = means(sums)
        if len(found) == 3 and not met:
            met.append(True)
            found[1]["nonfinite"] = 1.0
        return found

    monkeypatch.setattr(train_step, "means", with_one_that_is_not_finite)
    assert sweep.run(plan, str(tmp_path)) == 1 and met
    folder = tmp_path / plan.cells[0].folder
    assert (folder / "seed_1" / "error.txt").exists() and table(tmp_path)[1][-1] == "2 of 3"
    shutil.rmtree(folder / "seed_1")
    assert sweep.run(plan, str(tmp_path)) == 0
    assert table(tmp_path)[1][-1] == "3 of 3"


def test_a_seed_with_checkpoints_of_its_own_goes_on_once_beside_its_group(
    config_file, tmp_path, monkeypatch
):
    plan = plan_lib.from_config(config_file, tasks=["even"], methods=["naive"], seeds=(0, 1, 2))
    cell, calls = plan.cells[0], []
    found = resume.Unfinished(groups=(("together_0-1-2", (0, 1, 2)),), alone=(1,), new=())
    monkeypatch.setattr(resume, "find", lambda *given: found)
    monkeypatch.setattr(cell_runner.method_setup, "build", lambda config, *rest: config)

    def made(config, data, folder):
        return types.SimpleNamespace(seed=config.seed, setup=config, truth=data, folder=folder)

    monkeypatch.setattr(cell_runner, "Member", made)
    monkeypatch.setattr(experiment, "run_members", lambda *given, **named: calls.append("group"))
    monkeypatch.setattr(experiment, "run_one", lambda setup, *rest: calls.append(setup.seed))
    place = cell_runner.Place(str(tmp_path), tiny.mesh(), lambda config: None, False, {})
    # The group is faked, and finishes none.
    monkeypatch.setattr(cell_runner.Place, "unfinished", lambda self, cell, seeds: [*seeds])
    configs = runner._resolve(cell, plan)
    assert cell_runner.train(cell, configs, place, types.SimpleNamespace(signal=None))
    assert calls == ["group", 1, 0, 2]  # seed 1 once, and what the group did not finish


def test_a_folder_of_data_may_have_an_equals_sign_in_its_name():
    found = plan_lib._folders(f"{os.sep}mnt{os.sep}run=3")
    assert found == {"": f"{os.sep}mnt{os.sep}run=3"}
    assert plan_lib._folders("a9a=x=1,mnist=y") == {"a9a": "x=1", "mnist": "y"}


def test_spread_is_the_sample_deviation_and_leaves_out_what_is_undefined():
    values = [90.0, 91.0, 95.0]
    found = report.spread([*values, None, float("nan")])
    assert found.count == 3 and found.mean == pytest.approx(92.0, rel=1e-12)
    assert found.std == pytest.approx((14 / 2) ** 0.5, rel=1e-12)  # 4 + 1 + 9 over n - 1
    assert found.std == pytest.approx(statistics.stdev(values), rel=1e-12)
    assert report.spread([1.0]).std is None
    assert report.spread([None]) is None


def test_models_that_predict_one_class_are_counted_below_the_table():
    def summary(test_score, training_score):
        chosen = {"last": {"accuracy": 0.5}}
        best = {"epoch": 0, "test_accuracy": 0.5}
        about = {"oracle": False, "selections": chosen, "oracle_best_epoch": best}
        about["selection"] = {"rule": "last"}
        scores = {"test": [test_score, -1.0], "training": [training_score, -1.0]}
        scores = {part: np.asarray(values) for part, values in scores.items()}
        return about | {"predicts_one_class": one_class.sides(**scores)}

    collapsed, good, training = summary(-1.0, -1.0), summary(1.0, 1.0), summary(1.0, -1.0)

    def notes(*summaries):
        cell = {"row": "a", "column": "b", "published": None, "note": "", "error": ""}
        cells = [cell | {"summaries": summaries}]
        text = report.render("title", cells, rules=["last"], num_seeds=3)
        return [line for line in text.splitlines() if line.startswith("- ")]

    assert notes(collapsed, good, training) == ["- a on b: 1 of 3 seeds predicts one class"]
    assert notes(collapsed, collapsed) == ["- a on b: 2 of 2 seeds predict one class"]
    assert notes(good, good) == []


@pytest.mark.parametrize(("rule", "accuracy"), [("oracle", 0.9), ("last", 0.8), ("vpu_risk", 0.8)])
def test_what_a_run_reports_is_a_rule_of_its_own(rule, accuracy):
    """A rule without a value at any epoch reports the last one."""
    summary = {
        "selection": {"rule": rule},
        "selections": {"last": {"accuracy": 0.8}, "oracle": {"accuracy": 0.9}},
        "oracle_best_epoch": {"epoch": 3, "test_accuracy": 0.95},
    }
    found = report.by_rule(summary)
    assert found["reported"]["accuracy"] == accuracy
    assert (found["last"]["accuracy"], found["oracle"]["accuracy"]) == (0.8, 0.9)
    assert found["oracle_best_epoch"] == {"epoch": 3, "is_oracle": True, "accuracy": 0.95}


def test_rows_are_compared_with_the_reference_seed_by_seed():
    def cell(row, column, **by_seed):
        best = {"epoch": 0, "test_accuracy": 0.5}
        about = {"oracle": False, "selection": {"rule": "last"}, "oracle_best_epoch": best}
        summaries = [
            about | {"seed": int(seed[1:]), "selections": {"last": {"accuracy": value}}}
            for seed, value in by_seed.items()
        ]
        about = {"published": None, "note": "", "error": ""}
        return about | {"row": row, "column": column, "summaries": summaries}

    cells = [
        cell("full", "b", s0=0.90, s1=0.80, s2=0.70),
        # In another order, and without the seed 1: +2 and +4 points.
        cell("less", "b", s2=0.74, s0=0.92),
        cell("less", "c", s0=0.92),  # nothing to compare with
    ]
    text = report.render("title", cells, rules=["last"], num_seeds=3, reference="full")
    header, _, *lines = [line.split(" | ") for line in text.splitlines() if line.startswith("|")]
    place = header.index("paired with 'full'")
    assert [line[place] for line in lines] == ["-", "+3.00 ± 1.41", "-"]
    # The third seed of the row has no partner: the difference is of two, and says so.
    cells[:2] = [cell("full", "b", s0=0.90, s2=0.70), cell("less", "b", s0=0.92, s1=0.9, s2=0.74)]
    text = report.render("title", cells, rules=["last"], num_seeds=3, reference="full")
    assert "| +3.00 ± 1.41 (2 of 3) |" in text and "| 3 of 3 |" in text
    # What rounds to nothing has no minus.
    cells[1:] = [cell("less", "b", s0=0.90, s2=0.69999)]
    text = report.render("title", cells, rules=["last"], num_seeds=3, reference="full")
    assert "| +0.00 ± 0.00 |" in text and "-0.00" not in text
    assert "paired" not in report.render("title", cells, rules=["last"], num_seeds=3)


def test_a_wide_table_shows_several_metrics_costs_and_corrected_tests():
    def cell(row, accuracies, published=None, column="b", peak=3_000_000):
        best = {"epoch": 0, "test_accuracy": 1.0}
        about = {"oracle": False, "oracle_best_epoch": best, "peak_memory_bytes": peak}
        about["selection"] = {"rule": "last"}
        summaries = []
        for seed, value in enumerate(accuracies):
            chosen = {"accuracy": value, "auc": value / 2}
            run = {"seed": seed, "seconds": 8.0 + 4 * seed, "trained_together": 2}
            selections = {"last": chosen, "oracle": {"accuracy": 0.99, "auc": 0.5}}
            summaries.append(about | run | {"selections": selections})
        about = {"column": column, "published": published, "note": "", "error": ""}
        return about | {"row": row, "summaries": summaries}

    cells = [
        cell("nnpu", (0.80, 0.82, 0.84)),
        cell("far", (0.88, 0.92, 0.94), (98.0, None)),
        cell("near", (0.81, 0.82, 0.84), peak=None),  # as on Windows
        cell("waits", ()),
        cell("nnpu", (0.80, 0.82, 0.84), column="c"),
        cell("near", (0.81, 0.82, 0.84), column="c"),
    ]
    options = {"also": ("auc",), "published_rule": "oracle", "costs": True, "reference": "nnpu"}
    text = report.render("title", cells, rules=["last", "oracle"], num_seeds=3, **options)
    header, _, *lines = [line.split(" | ") for line in text.splitlines() if line.startswith("|")]
    table = [dict(zip(header, line, strict=True)) for line in lines]
    oracle = "oracle (oracle: true validation labels): AUC"
    assert [line["last: AUC"] for line in table[:1]] == ["41.00 ± 1.00"]
    assert [line[oracle] for line in table[:4]] == ["50.00 ± 0.00"] * 3 + ["-"]
    # Published figures are those of the oracle's rule, and are compared with it.
    assert [line["difference"] for line in table[:4]] == ["-", "+1.00", "-", "-"]
    # With two degrees of freedom p is 1 - t / sqrt(2 + t^2): 'far' has t = 14, 'near' 1. Of the two
    # tests on 'b' the smaller p is doubled; on 'c' there is one test.
    far, near = (f"{k * (1 - t / math.sqrt(2 + t * t)):.3f}" for k, t in ((2, 14), (1, 1)))
    assert [line["p (Holm)"] for line in table] == ["-", far, near, "-", "-", near]
    # Where seeds train together each has its share already.
    assert [line["seconds"] for line in table[:4]] == ["12.0"] * 3 + ["-"]
    assert [line["peak MB"] for line in table[:4]] == ["3"] * 2 + ["-"] * 2
    assert "trained together" not in text and "Holm's correction" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"also": ("accuracy",)}, "also is 'accuracy'; accepted: 'f1'"),
        ({"also": ("auc", "auc")}, "also is .*; accepted: metrics that differ"),
        ({"published_rule": "oracle"}, "published_rule is 'oracle'; accepted: 'last'"),
        ({"published_rule": "oracle", "rules": ()}, "rules is "),
        ({"costs": "no"}, "costs is 'no'; accepted: True or False"),
        ({"seeds": 3}, r"seeds is 3; accepted: a sequence, such as \(0, 1, 2\)"),
        ({"seeds": {0, 1}}, r"seeds is \{0, 1\}; accepted: a sequence"),
        ({"seeds": "01"}, "seeds is '01'; accepted: a sequence"),
        ({"rules": "last"}, r"rules is 'last'; accepted: a sequence, such as \('last',\)"),
        ({"also": "auc"}, r"also is 'auc'; accepted: a sequence, such as \('auc',\)"),
        ({"reference": None}, "reference is None; accepted: a string, '' for none"),
        ({"published_rule": None}, "published_rule is None; accepted: a string, '' for none"),
        ({"title": None}, "title is None; accepted: a string"),
        ({"title": "one\n# two"}, r"title is 'one\\n# two'; accepted: one line of text"),
        ({"cells": sweep.Cell("a", "c", None)}, "cells is a Cell; accepted: a list of"),
        ({"cells": [("a", "c", None)]}, "cells is a list of tuple; accepted: a list of"),
        ({"cells": None}, "cells is a NoneType; accepted: a list of"),
    ],
)
def test_what_a_wide_table_shows_is_checked(change, message):
    plan = sweep.Plan("one", [sweep.Cell("a", "c", config_lib.default_config("naive"))])
    with pytest.raises(ValueError, match=message):
        plan_lib.check(plan._replace(**change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"row": 100}, "row of a cell is 100; accepted: a string"),
        ({"row": "a\nb"}, r"row of a cell is 'a\\nb'; accepted: one line of text"),
        ({"column": "c\x1b"}, r"column of a cell is 'c\\x1b'; accepted: one line of text"),
        ({"row": 201 * "x"}, "row of a cell is 'x+'; accepted: a label of at most 200 char"),
        ({"column": None}, "column of a cell is None; accepted: a string"),
        ({"config": {}}, "config of a on c is a dict; accepted: a ml_collections.ConfigDict"),
        ({"config": None}, "config of a on c is a NoneType; accepted: a ml_coll"),
        ({"published": 90.0}, "published of a on c is 90.0; accepted: None, or a mean and a"),
        ({"published": (90.0,)}, r"published of a on c is \(90.0,\); accepted: "),
        ({"published": (None, 1.0)}, r"published of a on c is \(None, 1.0\); accepted: "),
        ({"published": ("90", None)}, r"published of a on c is \('90', None\); accepted: "),
    ],
)
def test_what_only_the_table_shows_of_a_cell_is_checked_before_it_trains(change, message):
    cell = sweep.Cell("a", "c", config_lib.default_config("naive"))._replace(**change)
    with pytest.raises(ValueError, match=message):
        plan_lib.check(sweep.Plan("one", [cell]))


def test_a_reference_is_one_of_the_rows():
    cells = [sweep.Cell("a", "c", config_lib.default_config("naive"))]
    plan = sweep.Plan("one", cells, reference="b")
    with pytest.raises(ValueError, match="reference is 'b'; accepted: 'a'"):
        plan_lib.check(plan)


def test_the_error_of_a_prior_that_nobody_estimates_is_refused_before_anything_trains(tmp_path):
    plan = small_plan.plan(["naive"])
    for change in ({"metric": "prior_error"}, {"also": ("prior_error",)}):
        with pytest.raises(ValueError, match="is 'prior_error'; accepted: a metric of predictions"):
            sweep.run(plan._replace(**change), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_what_the_table_leaves_out_is_said_below_it_too(tmp_path, capsys):
    sweep.run(small_plan.plan(["naive"], seeds=(0, 1), epochs=1), str(tmp_path))
    capsys.readouterr()
    sweep.run(small_plan.plan(["naive"], seeds=(0,), epochs=1), str(tmp_path))
    said = capsys.readouterr().out
    assert said.count("1 of the 2 results in") == 2
    assert said.rindex("1 of the 2 results in") > said.rindex("Folder of the sweep")


def test_results_that_another_call_wrote_meanwhile_are_spoken_of(
    config_file, finished, tmp_path, capsys
):
    shutil.copytree(finished / "even", tmp_path / "even")
    plan = plan_lib.from_config(config_file, methods=["naive"], tasks=["even"])
    first, second = (runner.prepare(plan._replace(seeds=(x,)), str(tmp_path)) for x in (0, 1))
    second.write_results()
    assert first.left_out == second.left_out == []
    first.write_results()  # as after a cell: the next one finds its own results alone
    runner.show_table(first, needs_all=False)
    said = capsys.readouterr().out
    assert said.index("1 of the 1 results in") > said.index("Folder of the sweep")
    (tmp_path / "results.json").write_text("{")  # damaged while it trains: written anew
    first.write_results()
    assert json.loads((tmp_path / "results.json").read_text())["seeds"] == [0]


def test_a_cell_left_to_another_process_is_said_below_the_table(tmp_path, capsys):
    plan = small_plan.plan(["naive"], epochs=1)
    with claims.claim(str(tmp_path / "even" / "naive")) as is_ours:
        assert is_ours and sweep.run(plan, str(tmp_path)) == 1
    assert (
        "another process trains in the folders of these cells: naive on even; repeat the command "
        "once it has ended if it has other seeds"
    ) in capsys.readouterr().out


@pytest.mark.parametrize("is_finished", [True, False])
def test_a_cell_that_others_let_go_of_meanwhile_is_done_by_the_end(
    tmp_path, monkeypatch, is_finished
):
    """Of two processes the one that ends last finds all finished, or finishes it."""
    plan, train = small_plan.plan(["naive", "weighted_bce"], epochs=1), runner.train_cell
    tried = []

    def held_once(sweep_, index, request, **options):
        tried.append(index)
        if tried != [0]:
            return train(sweep_, index, request, **options)
        if is_finished:  # by the other process, before this one looks again
            train(sweep_, index, request, **options)
        return False

    monkeypatch.setattr(runner, "train_cell", held_once)
    assert sweep.run(plan, str(tmp_path)) == 0
    assert tried == [0, 1, 0]
    assert (tmp_path / "table.md").read_text().count("| 1 of 1 |") == 2


def test_a_cell_that_an_error_stopped_is_not_tried_again(tmp_path, monkeypatch):
    tried = []

    def failing(sweep_, index, request, **options):
        tried.append(index)
        sweep_.place.write_error(sweep_.plan.cells[index], sweep_.plan.seeds, "no")
        return False

    monkeypatch.setattr(runner, "train_cell", failing)
    assert sweep.run(small_plan.plan(["naive"], epochs=1), str(tmp_path)) == 1
    assert tried == [0]


def test_a_part_of_a_plan_may_have_no_method_that_estimates_the_prior(tmp_path):
    """The table holds the others as well."""
    plan = small_plan.plan(["naive", "weighted_bce"])._replace(also=("prior_error",))
    sweep.run(plan, str(tmp_path), dry_run=True, only="naive")
    with pytest.raises(ValueError, match="no method of the plan estimates"):
        sweep.run(plan, str(tmp_path), dry_run=True)


def test_a_table_without_figures_removes_those_of_an_earlier_one(tmp_path, monkeypatch):
    plan = small_plan.plan(["naive"], epochs=1)
    sweep.run(plan, str(tmp_path))
    found = []
    monkeypatch.setattr(runner, "_draw", found.append)
    sweep.run(plan, str(tmp_path))
    assert not found
    (tmp_path / "paired_even.png").write_bytes(b"")
    sweep.run(plan, str(tmp_path))
    assert found == [str(tmp_path)]


def test_a_signal_in_an_estimate_of_the_prior_ends_the_cell_before_the_next(tmp_path, monkeypatch):
    request, estimated = types.SimpleNamespace(signal=None), []

    def settle(config, data, folder, mesh, *, known):
        estimated.append(config.seed)
        request.signal = signal.SIGTERM
        return data._replace(info=data.info._replace(prior=0.5, prior_unlabeled=0.5))

    monkeypatch.setattr(cell_runner.prior_estimation, "settle", settle)
    monkeypatch.setattr(experiment, "run_members", None)  # nothing trains
    plan = small_plan.plan(("naive",), seeds=(0, 1, 2))
    plan.cells[0].config.data.prior = "auto"
    resolved = runner._resolve(plan.cells[0], plan)
    place = cell_runner.Place(str(tmp_path), tiny.mesh(), cell_runner.loader(4), False, {})
    with pytest.raises(SystemExit) as stop:
        cell_runner.train(plan.cells[0], resolved, place, request)
    assert stop.value.code == 128 + signal.SIGTERM and estimated == [0]


def test_seeds_that_evaluated_other_epochs_are_no_mean_of_a_rule_that_chooses_among_them(tmp_path):
    plan = small_plan.plan(("naive",), seeds=(0,))
    plan.cells[0].config.run.eval_every = 2
    assert sweep.run(plan, str(tmp_path)) == 0
    now = small_plan.plan(("naive",), seeds=(0, 1))
    with pytest.raises(ValueError, match=r"seed_0 holds a run .*eval_every.*2.*accepted: the same"):
        sweep.run(now._replace(rules=("last", "oracle_best_epoch")), str(tmp_path))
    assert not (tmp_path / "even" / "naive" / "seed_1").exists()
    # The last epoch is the same whatever was evaluated before it.
    assert sweep.run(now._replace(rules=("last",)), str(tmp_path)) == 0


def test_the_address_of_a_bucket_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "^--workdir is 'gs://a/b'; accepted: a folder of this machine"
    plan = small_plan.plan(("naive",))
    with pytest.raises(ValueError, match=said):
        sweep.run(plan, "gs://a/b")
    with pytest.raises(ValueError, match=said):
        experiment.run(config_lib.resolve(plan.cells[0].config), "gs://a/b")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["lr[0.1]", "a]b", "back\\slash"])
def test_a_folder_in_which_checkpoints_would_be_lost_is_refused(tmp_path, name):
    folder = str(tmp_path / name)
    with pytest.raises(ValueError, match=r"^--workdir is .* has '.*'\); accepted: a path without"):
        sweep.run(small_plan.plan(("naive",)), folder)
    config = config_lib.resolve(small_plan.plan(("naive",)).cells[0].config)
    with pytest.raises(ValueError, match=r"^--workdir is .*; accepted: a path without square"):
        experiment.run(config, folder)
    assert list(tmp_path.iterdir()) == []
    checkpoint.check_place("--workdir", str(tmp_path / "a b?ü*{}%,='"))
