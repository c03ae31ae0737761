"""The command: what it reads, where it writes, and what it refuses."""

import json
import pathlib
import re

import numpy as np
import pytest

from pujax import commands, usage
from pujax.reports import __main__ as command
from pujax.reports import evidence, page, run_folder
from tests.reports import folders


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(evidence, "_RESAMPLES", 10)


def run(*words):
    return commands.main(["pujax", "report", *map(str, words)])


def test_the_page_lies_in_the_first_folder_and_the_verdict_is_printed(tmp_path, capsys):
    folder = folders.tested(tmp_path / "run")
    before = sorted(path.name for path in folder.iterdir())
    assert run(folder, "--noexamples") == 0
    assert "The settings name its file" in (folder / "report.html").read_text()
    out = capsys.readouterr().out
    assert out.startswith("Can be used:\nIt can be used: it is right for ")
    assert "examples" not in out.partition("Next:")[2]
    assert out.endswith(f"Report: {folder / 'report.html'}\n") and out.count("\n") == 5
    assert sorted(path.name for path in folder.iterdir()) == sorted([*before, "report.html"])
    text = (folder / "report.html").read_text()
    assert "Left out, as was asked for" in text and "Most certain" not in text
    # An earlier page may be replaced.
    page.check_writable(str(folder / "report.html"))


def test_the_saved_model_in_a_run_is_not_a_run_of_its_own(tmp_path, capsys):
    folder = folders.tested(tmp_path / "run")
    model = folder / "model"
    model.mkdir()
    (model / "config.json").write_text('{"library_name": "pujax"}')
    for left in (("model.safetensors", "preparation.json"), ("preparation.json",)):
        for name in left:
            (model / name).write_bytes(b"")
        assert run_folder.compared(*run_folder.find([str(folder)])) == []
        assert len(run_folder.find([str(tmp_path)])) == 1
        (model / left[0]).unlink()
    (model / "preparation.json").write_bytes(b"")
    assert run(model, "--noexamples") == 2 and "a saved model" in capsys.readouterr().err


def test_a_file_that_somebody_else_made_stays(tmp_path, capsys):
    folder = folders.tested(tmp_path / "run")
    mine = folder / "report.html"
    mine.write_text("<p>mine</p>")
    for words in ((folder,), (folder, f"--out={mine}")):
        assert run(*words) == 2
        assert "a file that pujax report did not make" in capsys.readouterr().err
    assert mine.read_text() == "<p>mine</p>"
    for out in (tmp_path, pathlib.Path("/proc/x.html")):
        assert run(folder, f"--out={out}") == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"--out is '{out}', ") and "; accepted: a file" in line


def test_the_folder_of_the_page_is_made(tmp_path):
    out = tmp_path / "none" / "x.html"
    assert run(folders.tested(tmp_path / "run"), "--noexamples", f"--out={out}") == 0
    assert page.MARK in out.read_text()


def test_what_is_no_run_is_refused_in_a_line(tmp_path, capsys):
    empty, other = tmp_path / "empty", tmp_path / "other"
    empty.mkdir()
    other.mkdir()
    (other / "notes.txt").write_text("x")
    wrong = {
        tmp_path / "none": "which does not exist; accepted: the folder of a run",
        other / "notes.txt": "a file; accepted: the folder of a run",
        empty: "an empty folder; accepted: the folder of a run",
        other: "which holds no config.json; accepted: the folder of a run",
    }
    for folder, text in wrong.items():
        assert run(folder) == 2
        err = capsys.readouterr().err
        assert f"RUN is '{folder}', {text}" in err and err.count("\n") == 1
    assert run() == 2
    assert "RUN is missing" in capsys.readouterr().err
    assert run(other, "--examples=maybe") == 2
    assert capsys.readouterr().err == "--examples is 'maybe'; accepted: true or false\n"
    assert run(other, "--ou=x.html") == 2
    found = capsys.readouterr().err
    wanted = "--ou is not an option of this command (did you mean --out?); accepted: --examples, "
    assert found.startswith(wanted) and found.count("\n") == 1
    assert not list(empty.iterdir())


def _cut(path):
    path.write_text(path.read_text()[:40])


def _set(section, value):
    def damage(path):
        document = json.loads(path.read_text())
        *parents, name = section.split(".")
        inner = document
        for parent in parents:
            inner = inner[parent]
        inner[name] = value
        path.write_text(json.dumps(document))

    return damage


@pytest.mark.parametrize(
    ("file", "damage", "text"),
    [
        ("summary.json", _cut, "summary.json is damaged"),
        ("config.json", _cut, "config.json is damaged"),
        ("data.json", lambda path: path.write_text("[]"), "data.json is damaged"),
        ("summary.json", _set("test", [1]), "test is [1]; accepted: an object"),
        ("summary.json", _set("test.auc", "high"), "test.auc is 'high'; accepted: a number"),
        ("summary.json", _set("method", None), "method is None; accepted: text"),
        ("summary.json", _set("counts", 3), "counts is 3; accepted: an object"),
        ("summary.json", _set("counts.test", "x"), "counts.test is 'x'; accepted: a number"),
        ("summary.json", _set("held_out", [{}]), "held_out[0].name is None; accepted: text"),
        ("summary.json", _set("prior_choice", {}), "prior_choice.method is None; accepted: text"),
        ("config.json", _set("method", "nnpu"), "method is 'nnpu'; accepted: an object"),
        ("summary.json", _set("test.auc", 7), "test.auc is 7; accepted: a number in [0, 1]"),
        ("summary.json", _set("counts.test", -3), "counts.test is -3; accepted: a whole number"),
        ("summary.json", _set("selection.epoch", "3"), "selection.epoch is '3'; accepted: a num"),
        (
            "summary.json",
            _set("predicts_one_class", {"test": "absent"}),
            "predicts_one_class.test is 'absent'; accepted: 'positive', 'negative' or null",
        ),
        (
            "summary.json",
            _set("oracle_best_epoch", {"test_accuracy": 0.9}),
            "oracle_best_epoch.epoch is None; accepted: a number",
        ),
        (
            "summary.json",
            _set("prior_choice", {"method": "km2", "estimates": {"km2": [0.3, 0.1, 0.5, 0.2]}}),
            "prior_choice.estimates.km2 has 4 numbers; accepted: a share",
        ),
        ("metrics.jsonl", lambda p: p.write_text("x\n{}\n{}\n"), "line 1 of"),
        ("scores.npz", lambda p: p.write_bytes(p.read_bytes()[:99]), "scores.npz is damaged"),
    ],
)
def test_a_damaged_file_is_named_in_a_line(file, damage, text, tmp_path, capsys):
    folder = folders.tested(tmp_path / "run")
    damage(folder / file)
    assert run(folder) == 2
    err = capsys.readouterr().err
    assert file in err and text in err and "accepted" in err and err.count("\n") == 1
    assert not (folder / "report.html").exists()


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("test_labels", np.zeros(3, np.int8), "test_labels has 3 rows"),
        ("test_labels", np.full(150, 7, np.int8), "test_labels holds other classes"),
        ("train_truth", np.full(130, "x"), "train_truth holds <U1"),
        ("test_scores", np.full(150, "x"), "test_scores holds <U1"),
        ("map_rows", np.linspace(0, 1, 65), "map_rows holds float64"),
        ("map_rows", np.full(65, 130), "map_rows holds rows that there are not"),
    ],
)
def test_scores_that_are_no_such_scores_are_refused(name, array, text, tmp_path, capsys):
    folder = folders.tested(tmp_path / "run")
    arrays = dict(np.load(folder / "scores.npz"))
    np.savez_compressed(folder / "scores.npz", **arrays | {name: array})
    assert run(folder) == 2
    err = capsys.readouterr().err
    assert f"scores.npz is damaged ({text}" in err and err.count("\n") == 1
    assert not (folder / "report.html").exists()


def test_a_folder_that_is_named_twice_is_one_run(tmp_path, monkeypatch):
    folders.tested(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("run")
    found = run_folder.find(["run", "run/", "./run", str(tmp_path / "run"), "link", "."])
    assert [one.folder for one in found] == ["run"]


def test_the_help_lists_the_options_that_there_are():
    text = usage.text("report")
    listed = set(re.findall(r"^  --(\w+)(?=[=\[ ])", text, re.MULTILINE))
    assert listed == {"out", "noexamples", "help"}
    assert set(command._flags()) >= {"out", "examples"}
    assert "python -m pujax.reports RUN" in text
