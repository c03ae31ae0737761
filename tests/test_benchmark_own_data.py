"""The benchmark of one's own data: its flags are checked before anything is read or written."""

import numpy as np
import pytest

from benchmarks import own_data
from pujax.configs import own_table
from pujax.data import sources
from pujax.data.splits import split


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--seeds=0"], "--seeds is 0; accepted: an integer from 1"),
        (["--rows=nnpu;forest"], "--rows is 'forest'; accepted: a part of 'nnpu', "),
        (["--set=holdout"], "--set is 'holdout'; accepted: FIELD=VALUE, such as data.holdout=0"),
        (["--set=--data.holdout=0"], "--set is '--data.holdout=0'; accepted: FIELD=VALUE"),
        (["--sets=iris"], "--sets is 'iris'; accepted: a part of 'a9a, 1 %', "),
        (["--data_dir=nowhere"], "--data_dir is 'nowhere'; accepted: a folder that holds"),
        (["--output=."], "--output is '.'; accepted: a file in a folder that exists"),
        (["--output=nowhere/x"], "--output is 'nowhere/x'; accepted: a file in a folder"),
        (["--python=nowhere/python"], "--python is 'nowhere/python'; accepted: an interp"),
    ],
)
def test_a_wrong_flag_is_refused_in_one_line(tmp_path, monkeypatch, capsys, flags, said):
    monkeypatch.chdir(tmp_path)
    assert own_data.main(["--output=cells.jsonl", *flags]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.startswith(said) and captured.err.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("held", ['"settings": ["data.holdout=0"], ', ""])
def test_cells_of_other_settings_are_not_mixed(tmp_path, capsys, held):
    path = tmp_path / "cells.jsonl"
    text = f'{{"data": "mushrooms", "row": "nnpu", "seed": 0, {held}"lines": 2, "ap": 0.5}}\n'
    path.write_text(text)
    other = [] if held else ["--set=data.holdout=0"]
    assert own_data.main([f"--output={path}", f"--data_dir={tmp_path}", *other]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"--output is '{path}'; accepted: a file of cells with --set")
    assert path.read_text() == text


def test_parts_of_names_choose_rows():
    names = ("nnpu", "classic logistic, naive", "classic boosting, naive")
    assert own_data.chosen("--rows", "", names) == list(names)
    assert own_data.chosen("--rows", "boosting; nnpu", names) == [names[0], names[2]]


def test_a_damaged_file_of_results_is_named(tmp_path, capsys):
    path = tmp_path / "cells.jsonl"
    for text in ("{", "3\n", '{"data": "mushrooms"}\n'):
        path.write_text(text)
        assert own_data.main([f"--output={path}"]) == 2
        assert capsys.readouterr().err.startswith(f"{path} is damaged")


def test_the_tables_hold_means_over_seeds(tmp_path, capsys):
    path = tmp_path / "cells.jsonl"
    cell = '{"data": "mushrooms", "row": "nnpu", "seed": %d, "lines": 2, "ap": %s}\n'
    path.write_text(cell % (0, 0.5) + cell % (1, 0.7))
    assert own_data.main([f"--output={path}"]) == 0
    assert "| nnpu | 0.600 +- 0.141 (2) |" in capsys.readouterr().out


@pytest.mark.parametrize("ending", ["csv", "npz", "folder"])
def test_files_hold_known_negatives_on_request_and_the_same_positives(tmp_path, ending):
    known = np.arange(9) < 3
    drawn = {"known": known, "negative": np.arange(9) > 6, "rows": np.ones([9, 4], np.float32)}
    drawn["new"] = drawn["rows"][:2]
    found = []
    for has_negatives in (False, True):
        folder = tmp_path / str(has_negatives)
        folder.mkdir()
        own_data.write(drawn, folder, ending, has_negatives=has_negatives)
        if ending == "folder":
            found.append({x: len([*x.iterdir()]) for x in (folder / "train").iterdir()})
            continue
        path = str(folder / f"train.{ending}")
        raw = sources.load("own_table", path=path, label="known" if ending == "csv" else "")
        found.append(raw.train_labels)
    if ending == "folder":
        counts = [{x.name: count for x, count in sides.items()} for sides in found]
        assert counts[0] == {"positive": 3, "unlabeled": 6}
        assert counts[1] == {"positive": 3, "unlabeled": 4, "negative": 2}
        return
    assert list(found[0]) == [1] * 3 + [-1] * 6
    assert list(found[1]) == [1] * 3 + [-1] * 4 + [0] * 2


@pytest.mark.parametrize("seed", range(5))
def test_known_negatives_are_enough_for_the_support_set_of_the_default(seed):
    config = own_table.get_config("method=lagam")
    binary = np.repeat([1, 0, -1], [80, own_data.NUM_NEGATIVES, 4000])
    fields = {"holdout": config.data.holdout, "num_support": config.data.num_support}
    assert len(split.as_labelled(binary, seed=seed, **fields).support) == 60


def test_commands_hold_in_a_folder_whose_name_has_spaces(monkeypatch):
    monkeypatch.setattr(own_data, "REPOSITORY", "/my projects/pujax")
    train, _ = own_data.commands("nnpu", "csv", seed=3)
    words = own_data.shlex.split(train)
    assert "/my projects/pujax/train.py" in words
    assert "--config=/my projects/pujax/configs/own_table.py:method=nnpu" in words


@pytest.mark.parametrize(
    ("row", "ending"), [("classic logistic, naive", "csv"), ("nnpu", "folder")]
)
def test_settings_are_of_the_training_alone(row, ending):
    settings = ("data.holdout=0", "run.decide=top: 5")
    train, predict = own_data.commands(row, ending, seed=3, settings=settings)
    words = own_data.shlex.split(train)
    assert {"--config.data.holdout=0", "--config.run.decide=top: 5"} <= set(words)
    assert "holdout" not in predict
    assert (
        own_data.commands(row, ending, seed=3)[0] == train[: train.index(" --config.data.holdout")]
    )


def test_a_failed_cell_is_done_again_and_counted(tmp_path, capsys, monkeypatch):
    path, tried = tmp_path / "cells.jsonl", []
    cell = '{"data": "mushrooms", "row": "nnpu", "seed": %d, "lines": 2, "seconds": 9, %s}\n'
    path.write_text(cell % (0, '"ap": 0.5') + cell % (1, '"error": "no memory"'))

    def run(row, folder, ending, *, seed, python, settings):
        tried.append((row, seed))
        return 2, "no memory" if seed == 2 else ""

    drawn = {"new_positive": None}
    monkeypatch.setattr(own_data, "draw", lambda problem, folder, *, seed: drawn)
    monkeypatch.setattr(own_data, "write", lambda drawn, folder, ending, has_negatives: None)
    monkeypatch.setattr(own_data, "judge", lambda folder, positive: {"ap": 0.7})
    monkeypatch.setattr(own_data, "run", run)
    flags = [f"--output={path}", f"--data_dir={tmp_path}", "--seeds=3", "--sets=mushrooms"]
    assert own_data.main([*flags, "--rows=nnpu"]) == 0
    assert tried == [("nnpu", 1), ("nnpu", 2)]  # seed 0 is done
    text = capsys.readouterr().out
    assert "| nnpu | 0.600 +- 0.141 (2, 1 failed) |" in text
    assert "failed: mushrooms, nnpu, seed 2: no memory" in text and "seed 1: no" not in text
    assert "| nnpu | 2 (2, 1 failed) |" in text  # what a failed cell took does not count
