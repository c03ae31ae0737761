import csv
import json
import logging
import math
import sys

import jax.numpy as jnp
import numpy as np
import pytest

from pujax.training.metrics_writer import MetricsWriter

# Numbers whose shortest decimal form needs all digits, and the ends of the range.
HARD_FLOATS = [0.1, 1 / 3, math.pi * 1e-300, 5e-324, 1.7976931348623157e308, -0.0]


def lines_of(folder):
    return (folder / "metrics.jsonl").read_text().splitlines()


def table_of(folder):
    with open(folder / "metrics.csv", newline="") as file:
        return list(csv.DictReader(file))


def filled(folder, num_epochs):
    writer = MetricsWriter(folder)
    for epoch in range(num_epochs):
        writer.append({"epoch": epoch, "loss": 1 / (epoch + 3)})
    writer.close()
    return writer


def test_rows_read_back_with_the_same_bits(tmp_path):
    row = {"epoch": 0, **{f"x{i}": value for i, value in enumerate(HARD_FLOATS)}}
    MetricsWriter(tmp_path).append(row)
    again = MetricsWriter(tmp_path).rows
    from_csv = table_of(tmp_path)[0]
    for name, value in row.items():
        assert again[0][name].hex() == value.hex() if name != "epoch" else again[0][name] == 0
        assert str(float(from_csv[name])) == str(float(value))


def test_every_line_is_strict_json_and_non_finite_numbers_are_null(tmp_path):
    def refuse(word):
        raise AssertionError(f"{word} is not JSON")

    writer = MetricsWriter(tmp_path)
    writer.append({"epoch": 0, "a": float("nan"), "b": np.float32("inf"), "c": jnp.float32("-inf")})
    (line,) = lines_of(tmp_path)
    row = json.loads(line, parse_constant=refuse)
    assert row == {"epoch": 0, "a": None, "b": None, "c": None}
    assert writer.rows == [row] == MetricsWriter(tmp_path).rows
    assert table_of(tmp_path) == [{"epoch": "0", "a": "", "b": "", "c": ""}]


def test_csv_has_the_union_of_columns_in_first_seen_order(tmp_path):
    writer = MetricsWriter(tmp_path)
    writer.append({"epoch": 0, "stage": "warm, up", "loss": 0.5})
    writer.append({"epoch": 1, "test_auc": 0.25, "loss": 0.125})
    text = (tmp_path / "metrics.csv").read_text()
    assert text == 'epoch,stage,loss,test_auc\n0,"warm, up",0.5,\n1,,0.125,0.25\n'


def test_a_later_writer_goes_on_in_the_same_files(tmp_path):
    filled(tmp_path, 2)
    writer = MetricsWriter(tmp_path)
    writer.append({"epoch": 2, "loss": 0.5})
    assert [json.loads(line)["epoch"] for line in lines_of(tmp_path)] == [0, 1, 2]
    assert [row["epoch"] for row in table_of(tmp_path)] == ["0", "1", "2"]


@pytest.mark.parametrize(
    "torn", [b'{"epoch": 2, "lo', b"{", b'{"stage": "\xc3', b"\0\0\0\n", b"3\n"]
)
def test_a_torn_last_line_is_dropped_and_the_file_mended(tmp_path, torn):
    rows = filled(tmp_path, 2).rows
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(torn)
    writer = MetricsWriter(tmp_path)
    assert writer.rows == rows
    assert [json.loads(line) for line in lines_of(tmp_path)] == rows
    writer.append({"epoch": 2, "loss": 0.5})
    assert MetricsWriter(tmp_path).rows == [*rows, {"epoch": 2, "loss": 0.5}]


def test_a_whole_last_line_without_newline_is_kept(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0, "loss": 0.5}')
    MetricsWriter(tmp_path).append({"epoch": 1})
    assert MetricsWriter(tmp_path).rows == [{"epoch": 0, "loss": 0.5}, {"epoch": 1}]


def test_a_damaged_line_in_the_middle_is_named(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"epoch": 0}\n{"epo\n{"epoch": 2}\n')
    with pytest.raises(ValueError, match=r"line 2 of .*metrics\.jsonl.*accepted"):
        MetricsWriter(tmp_path)


def test_a_csv_that_fell_behind_is_brought_level(tmp_path):
    filled(tmp_path, 3)
    (tmp_path / "metrics.csv").write_text("epoch,loss\n0,0.5\n")
    MetricsWriter(tmp_path)
    assert len(table_of(tmp_path)) == 3


def test_a_row_of_known_columns_is_added_to_the_csv_as_it_stands(tmp_path):
    """A long run would write its whole table anew with every epoch."""
    writer, path = filled(tmp_path, 2), tmp_path / "metrics.csv"
    file, text = path.stat().st_ino, path.read_text()
    writer.append({"epoch": 2, "loss": math.nan})
    assert (path.stat().st_ino, path.read_text()) == (file, f"{text}2,\n")
    path.write_text("epoch\n")  # by somebody else
    writer.append({"epoch": 3})
    assert path.read_text() == f"{text}2,\n3,\n"


def test_a_torn_last_row_of_the_csv_is_no_row(tmp_path):
    rows = filled(tmp_path, 2).rows
    (tmp_path / "metrics.jsonl").unlink()
    with open(tmp_path / "metrics.csv", "a") as file:
        file.write("2,0.1")  # of 2,0.125
    assert MetricsWriter(tmp_path).rows == rows


@pytest.mark.parametrize("num_epochs", [0, 1, 3, 9])
def test_truncate_keeps_the_first_epochs_in_memory_and_on_disk(tmp_path, num_epochs):
    filled(tmp_path, 3)
    writer = MetricsWriter(tmp_path)
    writer.truncate(num_epochs)
    epochs = list(range(min(num_epochs, 3)))
    assert [row["epoch"] for row in writer.rows] == epochs
    assert [json.loads(line)["epoch"] for line in lines_of(tmp_path)] == epochs
    assert [row["epoch"] for row in table_of(tmp_path)] == [str(epoch) for epoch in epochs]


def test_repeating_truncated_epochs_gives_identical_files(tmp_path):
    filled(tmp_path / "once", 4)
    filled(tmp_path / "twice", 4).truncate(2)
    writer = MetricsWriter(tmp_path / "twice")
    for epoch in (2, 3):
        writer.append({"epoch": epoch, "loss": 1 / (epoch + 3)})
    for name in ("metrics.jsonl", "metrics.csv"):
        assert (tmp_path / "once" / name).read_bytes() == (tmp_path / "twice" / name).read_bytes()


def test_a_row_without_epoch_is_refused_and_nothing_is_written(tmp_path):
    writer = MetricsWriter(tmp_path)
    for row in ({"loss": 0.5}, {"epoch": 1.5}, {"epoch": 0, "loss": object()}):
        with pytest.raises(ValueError, match=r"epoch|value\.loss"):
            writer.append(row)
    assert writer.rows == []
    assert not (tmp_path / "metrics.jsonl").exists()


def events_of(folder):
    """Scalars by tag and epoch as TensorBoard shows them: a new session discards what follows."""
    from tensorboardX.proto import event_pb2

    shown = {}
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        while data:
            length = int.from_bytes(data[:8], "little")
            event = event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[12 + length + 4 :]
            if event.session_log.status == event_pb2.SessionLog.START:
                shown = {key: v for key, v in shown.items() if key[1] < event.step}
            for value in event.summary.value:
                shown[value.tag, event.step] = value.simple_value
    return shown


def test_tensorboard_gets_the_numbers_and_forgets_truncated_epochs(tmp_path):
    pytest.importorskip("tensorboardX")
    writer = MetricsWriter(tmp_path, tensorboard=True)
    for epoch in range(3):
        row = {"epoch": epoch, "stage": "main", "loss": 0.5 + epoch, "bad": math.nan}
        writer.append(row)
    writer.truncate(1)
    writer.append({"epoch": 1, "loss": 8.0})
    writer.close()
    assert events_of(tmp_path / "tensorboard") == {("loss", 0): 0.5, ("loss", 1): 8.0}


def test_tensorboard_is_skipped_with_one_line_when_not_installed(tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with caplog.at_level(logging.DEBUG, logger="pujax"):
        writer = MetricsWriter(tmp_path, tensorboard=True)
        writer.append({"epoch": 0, "loss": 0.5})
        writer.append({"epoch": 1, "loss": 0.5})
        writer.close()
    assert sum("tensorboardX" in record.message for record in caplog.records) == 1
    assert not (tmp_path / "tensorboard").exists()
    assert len(writer.rows) == 2


def test_tensorboard_is_written_only_when_asked_for(tmp_path):
    filled(tmp_path, 1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["metrics.csv", "metrics.jsonl"]
