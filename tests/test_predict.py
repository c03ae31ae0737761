"""`pujax.predict`: rows in chunks of any size give the same file, which is there whole or not."""

import csv
import gzip

import jax.numpy as jnp
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pujax
from pujax import predict
from pujax.calibration import Calibration, Ends
from pujax.data import preparation
from pujax.data.image_preparation import ImagePreparation
from pujax.data.readers import frame_chunks, frames
from pujax.methods.base import Method
from pujax.predict import Predictor
from pujax.training import new_rows, prediction_csv
from pujax.training.saved_model import SavedModel

ROWS = 103


def table(seed=0, rows=ROWS):
    rng = np.random.default_rng(seed)
    return pd.DataFrame(
        {
            "name": [f"K{i:03d}, 'x'" for i in rng.permutation(rows)],
            "amount": np.where(rng.random(rows) < 0.1, "", np.round(rng.normal(size=rows), 3)),
            "city": rng.choice(["Rome", "Ulm", "", "Bonn"], rows),
            "since": pd.date_range("2024-01-01", periods=rows).strftime("%Y-%m-%d"),
        }
    )


@pytest.fixture(scope="module")
def model():
    """A linear model of a table, as if it had been loaded; batches of 16 rows."""
    learned = preparation.fit(table(), aside=("name", "label"))
    weights = jnp.asarray(np.random.default_rng(1).normal(size=len(learned.feature_names)))
    method = Method(stages=(), predict=lambda state, inputs: (inputs / 100) @ state)
    description = {
        "id_name": "name",
        "decide": "top:5",
        "config": {"run": {"eval_batch_size": 16}},
    }
    sigmoid = Calibration("platt", (0.0,), (1.0, 0.0), 0.3)
    low = Calibration("isotonic", (-9.0, 9.0), (0.0, 0.3), 0.5)
    ends = Ends(low, low._replace(values=(0.4, 1.0)), (0.1, 0.5))
    return Predictor(SavedModel(method, weights, learned, sigmoid, description, ends))


@pytest.fixture
def command(model, monkeypatch, tmp_path):
    """Runs the command line with that model; returns its status."""
    monkeypatch.setattr(predict, "load", lambda run, **_: model)
    monkeypatch.setattr(predict.saved_model, "check_run", lambda run: None)
    return lambda *words: predict.main(["predict", "run", *map(str, words)])


def written(path):
    with open(path, newline="") as file:
        return list(csv.reader(file))


def save(frame, path):
    match path.suffixes[-1]:
        case ".parquet":
            frame.to_parquet(path)
        case ".gz":
            path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
        case _:
            frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize(
    "name",
    ["a.csv", *(pytest.param(x, marks=pytest.mark.thorough) for x in ("a.csv.gz", "a.parquet"))],
)
def test_numbers_do_not_depend_on_the_chunks_or_the_format(model, tmp_path, name):
    whole = model.predict(table())
    assert len(set(whole.scores.tolist())) > ROWS // 2
    path = save(table(), tmp_path / name)
    for size in (13, 16, 50, ROWS, 1000):
        cut = model.predict(path, chunk_size=size)
        assert list(cut.ids) == list(table().name)
        for field in ("scores", "probabilities", "ranks", "decisions"):
            np.testing.assert_array_equal(getattr(cut, field), getattr(whole, field))


def test_a_name_with_any_line_end_stays_one_cell(model, tmp_path):
    names = ["a\rb", "a\nb", "a\r\nb", 'a"b', "a,b"]
    model.write(table(rows=5).assign(name=names), tmp_path / "scores.csv")
    assert (tmp_path / "scores.csv").read_bytes().count(b"\r\n") == 1  # that of the name
    assert [row[0] for row in written(tmp_path / "scores.csv")] == ["name", *names]


def test_a_name_may_be_longer_than_a_csv_reader_takes(model, tmp_path):
    names = ["x" * (csv.field_size_limit() + 1), "ü\u2028b", "c"]
    model.write(table(rows=3).assign(name=names), tmp_path / "scores.csv")
    text = (tmp_path / "scores.csv").read_text(encoding="utf-8")
    assert all(f"{name}," in text for name in names)


def test_a_feature_called_row_names_no_row():
    frame = pd.DataFrame({"row": [1.0, 2.0, 2.0], "b": [0.0, 1.0, 5.0]})
    found = new_rows.of_table(preparation.fit(frame), frame, id_name="row")
    assert [list(chunk.ids) for chunk in found.chunks] == [[1, 2, 3]]
    named = preparation.fit(frame.assign(row=["x", "y", "z"]), aside=("row",))
    found = new_rows.of_table(named, frame.assign(row=["x", "y", "z"]), id_name="row")
    assert [list(chunk.ids) for chunk in found.chunks] == [["x", "y", "z"]]


@pytest.mark.parametrize(
    ("aside", "leave_out", "is_id"),
    [
        (("row",), "", False),  # it was the label
        (("label", "row"), "row", False),
        (("label", "a, b", "row"), "a, b, row", False),
        (("label", "a, row"), "a, row", False),
        (("label", "row"), "", True),
        (("label", "row", "other"), "other", True),
    ],
)
def test_a_column_called_row_that_was_no_feature_names_rows_only_if_it_did_in_training(
    model, aside, leave_out, is_id
):
    frame = pd.DataFrame({"x": [0.0, 1.0, 5.0], "y": [1.0, 0.0, 1.0]})
    learned = preparation.fit(frame, aside=aside)
    data = {"data": {"leave_out": leave_out}} if leave_out else {}
    config = model.model.description["config"] | data
    description = model.model.description | {"id_name": "row", "config": config}
    rows = model.model._replace(preparation=learned, description=description).rows_of
    for cells in (["u", "v", "w"], ["same", "same", ""]):
        if is_id and "" in cells:
            continue  # which is refused, as it is no id
        found = rows(frame.assign(row=cells) if "row" in aside else frame)
        assert found.id_name == "row"
        assert [list(chunk.ids) for chunk in found.chunks] == [cells if is_id else [1, 2, 3]]


def test_rows_without_names_are_counted_through_all_chunks():
    frame = pd.DataFrame({"a": [1.0, 2.0, 2.0, 4.0, 7.0], "b": [0.0, 1.0, 5.0, 5.0, 5.0]})
    learned = preparation.fit(frame)
    for size, wanted in ((2, [[1, 2], [3, 4], [5]]), (5, [[1, 2, 3, 4, 5]])):
        found = new_rows.of_table(learned, frame, id_name="row", num_rows=size)
        assert [list(chunk.ids) for chunk in found.chunks] == wanted


def test_images_without_names_are_counted_through_all_chunks(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, [5, 4, 4, 1]).astype(np.uint8)
    np.save(tmp_path / "a.npy", images)
    for rows in (images, tmp_path / "a.npy"):
        found = new_rows.of_images(ImagePreparation(4, 1), rows, num_rows=2)
        chunks = list(found.chunks)
        assert found.id_name == "row"
        assert [list(chunk.ids) for chunk in chunks] == [[1, 2], [3, 4], [5]]
        assert [(chunk.done, chunk.total) for chunk in chunks] == [(2, 5), (4, 5), (5, 5)]
        np.testing.assert_array_equal(np.concatenate([chunk.inputs for chunk in chunks]), images)


def test_the_text_of_predictions_by_hand():
    columns = (
        np.array(["x", "y"], object),
        np.array([1.23456789012, np.nan]),
        np.array([0.75, np.nan]),
        np.array([1, 2]),
        np.array([True, False]),
    )
    text = prediction_csv.text("name", *columns)
    assert text.splitlines() == [
        "name,score,probability,rank,decision,probability_low,probability_high",
        "x,1.2345679,0.75,1,1,,",
        "y,,,,,,",
    ]
    ends = np.array([0.5, np.nan]), np.array([1.0, np.nan])
    text = prediction_csv.text("name", *columns, np.array([True, False]), between=ends)
    assert text.splitlines() == [
        "name,score,probability,rank,decision,held_out,probability_low,probability_high",
        "x,1.2345679,0.75,1,1,1,0.5,1",
        "y,,,,,,,",
    ]
    for name in text.splitlines()[0].split(",")[1:]:  # else two columns would be called alike
        assert prediction_csv.text(name, *columns).startswith("id,score,")


def test_rows_may_come_one_by_one(model):
    few = table().iloc[:4]
    scores = model.predict(table()).scores[:4]
    np.testing.assert_array_equal(model.predict(few, chunk_size=1).scores, scores)


def test_a_file_is_read_in_chunks(tmp_path, monkeypatch):
    path = save(table(), tmp_path / "a.csv")
    monkeypatch.setattr(frames, "read", None)  # which reads a whole file
    sizes, places, done = [], [], []
    for chunk in frame_chunks.read(path, 40):
        sizes.append(chunk.frame.num_rows)
        places.append(chunk.frame.place(0))
        done.append((chunk.done, chunk.total))
    assert sizes == [40, 40, 23]
    assert places == [f"{path}, line {line}" for line in (2, 42, 82)]
    assert done[-1] == (path.stat().st_size,) * 2
    np.save(tmp_path / "a.npy", np.arange(30.0).reshape(10, 3))
    table().to_parquet(tmp_path / "a.parquet")
    for name, total in (("a.npy", 10), ("a.parquet", ROWS)):
        parts = list(frame_chunks.read(tmp_path / name, 4))
        assert [part.frame.num_rows for part in parts][:2] == [4, 4]
        assert parts[1].frame.place(2) == f"{tmp_path / name}, row 7"
        assert parts[-1].done == parts[-1].total == total


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.npy", "a.npz", "a.svm"])
def test_chunks_are_the_rows_of_the_whole_file(tmp_path, name):
    path, numbers = tmp_path / name, np.random.default_rng(0).normal(size=(11, 3))
    match path.suffix:
        case ".csv" | ".parquet":
            save(table(rows=11), path)
        case ".npy":
            np.save(path, numbers)
        case ".npz":
            np.savez(path, x=numbers, labels=np.arange(11))
        case _:
            lines = [f"{i % 2} 1:{row[0]:.4f} 3:{row[2]:.4f}" for i, row in enumerate(numbers)]
            path.write_text("\n".join(lines))
    whole = frames.read(path)
    parts = [chunk.frame for chunk in frame_chunks.read(path, 4)]
    assert [part.num_rows for part in parts] == [4, 4, 3]
    together = [np.asarray(part.values) for part in parts]
    np.testing.assert_array_equal(np.concatenate(together), np.asarray(whole.values))
    places = [part.place(row) for part in parts for row in range(part.num_rows)]
    assert places == [whole.place(row) for row in range(11)]


def test_a_named_range_of_pandas_is_a_column_in_all_chunks(model, tmp_path):
    rows = np.random.default_rng(0).normal(size=ROWS)
    index = pd.RangeIndex(5000, 5000 - 3 * ROWS, -3, name="customer_id")
    frame = pd.DataFrame({"x": rows, "y": rows**2}, index)
    frame.to_parquet(tmp_path / "a.parquet")
    whole = frames.read(tmp_path / "a.parquet")
    assert whole.names == ("customer_id", "x", "y")
    learned = preparation.fit(whole)
    assert "customer_id" in learned.feature_names[0]
    weights = jnp.asarray(np.linspace(-1, 1, len(learned.feature_names)))
    ranged = Predictor(model.model._replace(preparation=learned, state=weights))
    expected = ranged.predict(frame).scores
    for size in (1, 40, ROWS - 1, ROWS, 1000):
        for chunk in frame_chunks.read(tmp_path / "a.parquet", size):
            first = chunk.done - chunk.frame.num_rows
            wanted = whole.values.iloc[first : chunk.done].reset_index(drop=True)
            pd.testing.assert_frame_equal(chunk.frame.values, wanted)
        found = ranged.predict(tmp_path / "a.parquet", chunk_size=size)
        np.testing.assert_array_equal(found.scores, expected)


def test_a_range_of_other_rows_than_there_are_is_no_column_in_any_chunk(tmp_path):
    frame = pd.DataFrame({"x": np.arange(4.0)}, pd.RangeIndex(4, name="key"))
    part = pa.Table.from_pandas(frame)
    pq.write_table(pa.concat_tables([part, part]), tmp_path / "a.parquet")  # it counts 4 of 8 rows
    assert frames.read(tmp_path / "a.parquet").names == ("x",)
    for size in (3, 4, 8):
        chunks = frame_chunks.read(tmp_path / "a.parquet", size)
        assert {chunk.frame.names for chunk in chunks} == {("x",)}
    pd.DataFrame({"x": [1.5, 2, 3]}).to_parquet(tmp_path / "b.parquet")
    assert [x.frame.names for x in frame_chunks.read(tmp_path / "b.parquet", 2)] == [("x",)] * 2


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n1,2\n3,4\n5\n", "line 4 has 1 cells; accepted: 2"),
        ("a,b\n1,2\n3,4\n5,6,7\n", "line 4 has 3 cells; accepted: 2"),
        ("a,b\n", "no rows below the header"),
        ("1,2\n3,4\n", "line 1 is '1,2'; accepted: a header"),
        ('a,b\n1,2\n3,"4\n', "line 3 cannot be read"),
        ("", "is empty"),
    ],
)
def test_a_file_is_refused_in_chunks_as_it_is_as_a_whole(tmp_path, text, said):
    path = tmp_path / "a.csv"
    path.write_text(text)
    messages = []
    for read in (frames.read, lambda path: list(frame_chunks.read(path, 2))):
        with pytest.raises(ValueError, match=said) as error:
            read(path)
        messages.append(str(error.value))
    assert messages[0] == messages[1] and "\n" not in messages[0]
    path.write_bytes(b"a,b\n1,2\n3,4\n5,\xff\n")
    with pytest.raises(ValueError, match="line 4, byte 3 is 0xff; accepted: text in UTF-8"):
        list(frame_chunks.read(path, 2))


def test_a_column_of_words_may_hold_numbers_in_a_chunk_but_not_throughout(model, tmp_path):
    frame = table()
    frame.loc[:59, "city"] = "17"
    path = save(frame, tmp_path / "a.csv")
    np.testing.assert_array_equal(
        model.predict(path, chunk_size=25).scores, model.predict(frame).scores
    )
    path = save(frame.assign(city="17"), tmp_path / "b.csv")
    for size in (25, 1000):
        with pytest.raises(ValueError, match="line 2, column 'city' is '17'; accepted: words"):
            model.predict(path, chunk_size=size)


@pytest.mark.parametrize("size", [30, 1000])
def test_an_id_that_occurs_twice_is_named_in_any_chunks(model, tmp_path, size):
    frame = table()
    frame.loc[90, "name"] = frame.loc[2, "name"]
    frame.loc[95, "name"] = frame.loc[1, "name"]
    path = save(frame, tmp_path / "a.csv")
    said = "line 4 and line 92: column 'name' is .K.* in both; .* once, or no column 'name', so"
    with pytest.raises(ValueError, match=said):
        model.predict(path, chunk_size=size)
    frame.loc[5, "name"] = ""
    with pytest.raises(ValueError, match="line 7, column 'name' is empty; .* or no column 'name'"):
        model.predict(save(frame, path), chunk_size=size)
    assert len(model.predict(save(frame.drop(columns="name"), path), chunk_size=30).ids) == ROWS


def test_batches_have_one_size_whatever_the_chunks():
    rows = np.arange(23)[:, None]

    def chunks(size):
        for start in range(0, 23, size):
            part = rows[start : start + size]
            yield new_rows.Chunk((), part, np.ones(len(part), bool), 0, 0)

    for size in (1, 3, 8, 10, 50):
        taken = []
        found = list(new_rows.batches(chunks(size), 8, taken.append))
        assert [count for _, count in found] == [8, 8, 7]
        assert all(part.shape == (8, 1) for part, _ in found) and found[2][0][7] == 0
        joined = np.concatenate([part[:count] for part, count in found])
        np.testing.assert_array_equal(joined, rows)
        assert len(taken) == -(-23 // size)
    assert list(new_rows.batches(iter(()), 8, taken.append)) == []


def test_what_is_written_is_what_is_predicted(model, command, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(predict, "_WRITTEN", 10)
    monkeypatch.setattr(new_rows, "ROWS", 30)
    path = save(table(), tmp_path / "a.csv")
    assert command(path, f"--output={tmp_path / 'new' / 'b.csv'}", "--decide=share:0.25") == 0
    header, *lines = written(tmp_path / "new" / "b.csv")
    names = ["name", "score", "probability", "rank", "decision"]
    assert header == [*names, "probability_low", "probability_high"]
    expected = model.predict(table(), decide="share:0.25")
    assert [line[0] for line in lines] == list(expected.ids)
    assert [line[1] for line in lines] == [f"{score:.8g}" for score in expected.scores]
    assert [int(line[3]) for line in lines] == expected.ranks.tolist()
    assert sum(int(line[4]) for line in lines) == 26
    ends = (expected.probabilities_low, expected.probabilities_high)
    assert (ends[0] < expected.probabilities).all() and (ends[0] < ends[1]).all()
    for place, end in zip((5, 6), ends, strict=True):
        assert [line[place] for line in lines] == [f"{value:.6g}" for value in end]
    captured = capsys.readouterr()
    assert "103 rows, 26 called positive" in captured.out and captured.err == ""


class Terminal:
    """A stream that says that it is a terminal."""

    def __init__(self):
        self.text = ""

    def write(self, text):
        self.text += text
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return True


def test_a_terminal_shows_a_bar(command, tmp_path, monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(predict.sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    path = save(table(), tmp_path / "a.csv")
    assert command(path, f"--output={tmp_path / 'b.csv'}") == 0
    assert "scoring" in terminal.text


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ValueError("no"), OSError("full")])
@pytest.mark.parametrize("during", ["reading", "writing"])
def test_what_is_interrupted_leaves_the_old_file(
    model, command, tmp_path, monkeypatch, capsys, error, during
):
    def fail(*arguments, **options):
        raise error

    def parts(*arguments, **options):
        yield next(real(*arguments, **options))
        raise error

    real, text = frame_chunks.read, predict.prediction_csv.text
    monkeypatch.setattr(new_rows, "ROWS", 50)
    if during == "reading":
        monkeypatch.setattr(frame_chunks, "read", parts)
    else:
        calls = []
        monkeypatch.setattr(predict, "_WRITTEN", 10)
        monkeypatch.setattr(
            predict.prediction_csv,
            "text",
            lambda *a, **k: fail() if calls else (calls.append(1), text(*a, **k))[1],
        )
    path = save(table(), tmp_path / "a.csv")
    (tmp_path / "out").mkdir()
    target = tmp_path / "out" / "b.csv"
    old = "row,score,probability,rank,decision\n1,2,0.5,1,1\n"
    target.write_text(old)
    status = command(path, f"--output={target}")
    assert status == (130 if isinstance(error, KeyboardInterrupt) else 2)
    assert [p.name for p in target.parent.iterdir()] == ["b.csv"] and target.read_text() == old
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "the number of arguments is 1; accepted: two, RUN and FILE or FOLDER; --help"),
        (("a", "b"), "the number of arguments is 3; accepted: two"),
        (("a.csv", "--decide=best:3"), "--decide is 'best:3'; accepted: 'score:0'"),
        (("a.csv", "--decide=top:0.5"), "--decide is 'top:0.5'; accepted"),
        (("a.csv", "--unreadable=no"), "--unreadable is 'no'; accepted: 'fail', 'skip'"),
        (
            ("a.csv", "--decide=top:1", "--decide=top:2"),
            "--decide is 'top:1' and 'top:2'; accepted",
        ),
        (("nowhere.csv",), "FILE is 'nowhere.csv', which does not exist; accepted: rows"),
        ((".",), "FILE is '.', which is a folder; accepted: a file that holds a table with"),
        (("a.csv", "--output="), "--output is ''; accepted: the name of a file"),
        (("a.csv", "--output=."), "--output is '.'; accepted: the name of a file"),
        (
            ("a.csv", "--output=/proc/x.csv"),
            "--output is '/proc/x.csv', but nothing can",
        ),
        (("a.csv", "--output=a.csv/x.csv"), "--output is 'a.csv/x.csv', but "),
        (("a.csv", "--output=x.XLSX"), "--output is 'x.XLSX'; accepted: a name such as scores.csv"),
    ],
)
def test_a_wrong_command_is_refused_in_one_line(
    command, tmp_path, monkeypatch, capsys, words, said
):
    monkeypatch.chdir(tmp_path)
    save(table(), tmp_path / "a.csv")
    assert command(*words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said) and [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_a_budget_of_more_rows_than_there_are_is_said(command, tmp_path, capsys):
    path, count = save(table(), tmp_path / "a.csv"), len(table())
    for budget, said in (
        (count, ""),
        (5000, f"top:5000 is more than {count} rows: all are called"),
    ):
        assert command(path, f"--output={tmp_path / 'b.csv'}", f"--decide=top:{budget}") == 0
        error = capsys.readouterr().err
        assert error.startswith(said) and bool(error) == bool(said)


@pytest.mark.parametrize(
    ("run", "said"),
    [
        (
            "nowhere",
            "RUN is 'nowhere', which does not exist; accepted: the folder of a finished run",
        ),
        ("a.csv", "RUN is 'a.csv', which is a file; accepted: the folder of a finished run"),
        ("empty", "RUN is 'empty', a folder without a model; accepted: the folder of a finished r"),
    ],
)
def test_a_run_that_is_none_is_named(tmp_path, monkeypatch, capsys, run, said):
    monkeypatch.chdir(tmp_path)
    save(table(), tmp_path / "a.csv")
    (tmp_path / "empty").mkdir()
    assert predict.main(["predict", run, "a.csv"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(said) and not (tmp_path / "scores.csv").exists()


@pytest.mark.parametrize("run", ["run", "run/model", "run/classic/model"])
def test_no_file_but_earlier_predictions_is_overwritten(
    command, tmp_path, monkeypatch, capsys, run
):
    monkeypatch.chdir(tmp_path)
    save(table(), tmp_path / "a.csv")
    (tmp_path / run).mkdir(parents=True)
    others = {
        "config.json": "{}",
        "run/predictions.csv": "row,score,probability,rank,decision,held_out\n",
        "train.csv": "name,size\na,1\n",
        "picture.csv": "\x89PNG\x00",
        "notes.csv": "\nmy own notes, behind an empty line\n",
    }
    for name, content in others.items():
        (tmp_path / name).write_text(content, encoding="latin-1")
    before = {name: (tmp_path / name).read_bytes() for name in others}
    arguments = ["predict", run, "a.csv"]
    for name in others:
        assert predict.main([*arguments, f"--output={name}"]) == 2
        said = capsys.readouterr().err
        is_inside = run == "run" and name.startswith("run/")
        assert said == (
            f"--output is {name!r}; accepted: a place outside of the run's folder\n"
            if is_inside
            else f"--output is {name!r}, a file that pujax predict did not make; accepted: the "
            "name of a new file, or of earlier predictions\n"
        )
    assert before == {name: (tmp_path / name).read_bytes() for name in others}
    (tmp_path / "empty.csv").touch()
    for output in ("beside.csv", "beside.csv", "empty.csv"):
        assert predict.main([*arguments, f"--output={output}"]) == 0


def test_a_probability_that_nobody_knows_is_refused_before_anything_is_read(model):
    unknown = Predictor(model.model._replace(calibration=None))
    with pytest.raises(ValueError, match="decide is 'probability:0.5'; accepted: another rule"):
        unknown.predict("nowhere.csv", decide="probability:0.5")
    assert unknown.predict(table()).probabilities is None


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"decide": 3}, "decide is 3; accepted: 'score:0'"),
        ({"chunk_size": -1}, "chunk_size is -1; accepted: an integer from 0"),
        ({"chunk_size": "a"}, "chunk_size is 'a'; accepted: an integer from 0"),
        ({"unreadable": "no"}, "unreadable is 'no'; accepted: 'fail', 'skip'"),
    ],
)
def test_a_wrong_argument_is_named(model, options, said):
    with pytest.raises(ValueError, match=said):
        model.predict(table(), **options)


@pytest.mark.parametrize("run", [None, 3, ""])
def test_what_is_no_run_is_named(run):
    with pytest.raises(ValueError, match=f"the run is {run!r}; accepted: the folder of a finished"):
        pujax.load(run)


def test_help_says_what_there_is(command, capsys):
    assert command("--help") == 0
    assert "--unreadable" in capsys.readouterr().out


def test_a_link_into_a_folder_that_is_gone_is_named_before_anything_is_read(
    command, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    save(table(), tmp_path / "a.csv")
    (tmp_path / "run").mkdir()
    (tmp_path / "link.csv").symlink_to(tmp_path / "gone" / "scores.csv")
    assert predict.main(["predict", "run", "a.csv", f"--output={tmp_path / 'link.csv'}"]) == 2
    wanted = f"a link into a folder that exists, which {tmp_path / 'gone'} is not"
    assert wanted in capsys.readouterr().err
