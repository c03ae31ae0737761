import errno
import json
import math
import os
import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

from pujax import files


def test_write_json_keeps_order_and_converts_scalars(tmp_path):
    path = tmp_path / "summary.json"
    document = {
        "z": np.float64(0.1),
        "a": {"f32": np.float32(0.1), "jax": jnp.float32(1 / 3), "bf16": jnp.bfloat16(1.5)},
        "ints": [np.int64(2**62), jnp.int32(7), True, np.bool_(False)],
        "array": np.asarray([[1.0, math.nan]]),
        "bf16": jnp.asarray([0.5], jnp.bfloat16),
        "none": None,
        "path": pathlib.PurePosixPath("runs/é"),
        "tuple": (1, math.inf),
    }
    files.write_json(path, document)
    read = json.loads(path.read_text(encoding="utf-8"))
    assert list(read) == list(document)
    assert read["z"] == 0.1
    # A float32 is exactly a double, so nothing is lost on the way.
    assert np.float32(read["a"]["f32"]) == np.float32(0.1) and read["a"]["f32"] != 0.1
    assert read["a"]["jax"] == float(np.float32(1 / 3)) and read["a"]["bf16"] == 1.5
    assert read["ints"] == [2**62, 7, True, False] and read["ints"][2] is True
    assert read["array"] == [[1.0, None]] and read["bf16"] == [0.5]
    assert read["none"] is None and read["path"] == "runs/é" and read["tuple"] == [1, None]
    text = path.read_text(encoding="utf-8")
    assert text.startswith('{\n  "z": 0.1,\n') and text.endswith("}\n") and "é" in text


def test_what_json_cannot_hold_is_named_and_the_old_file_stays(tmp_path):
    path = tmp_path / "summary.json"
    files.write_json(path, {"old": 1})
    with pytest.raises(ValueError, match=r"value\.test\[1\] is a set; accepted"):
        files.write_json(path, {"test": [0, {1}]})
    assert json.loads(path.read_text()) == {"old": 1}


@pytest.mark.parametrize("text", ["[" * 100_000, "{", "[]", "\xff"])
def test_a_document_that_is_none_is_refused_in_one_line(tmp_path, text):
    path = tmp_path / "a.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(ValueError, match=r"a\.json is damaged .*; accepted") as error:
        files.read_json(path)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("is_folder", [False, True])
def test_where_nothing_can_be_written_is_named_and_nothing_is_left(tmp_path, is_folder):
    (tmp_path / "file").touch()
    files.check_writable("--out", tmp_path / "new" / "a", is_folder=is_folder)
    files.check_writable("--out", tmp_path / "file", is_folder=False)
    for place, why in (
        ("/proc/x/a", r"written in /proc \("),
        (tmp_path / "file/a", "is no folder"),
    ):
        with pytest.raises(ValueError, match=f"^--out is '{place}', but .*{why}.*; accepted: a f"):
            files.check_writable("--out", place, is_folder=is_folder)
    with pytest.raises(ValueError, match="a folder; accepted: a file"):
        files.check_writable("--out", tmp_path)
    with pytest.raises(ValueError, match="File name too long"):  # with what `replacing` adds
        files.check_writable("--out", tmp_path / ("a" * 240))
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    files.make_folder_of(tmp_path / "new" / "a")
    assert (tmp_path / "new").is_dir()


def test_a_path_on_a_drive_that_windows_does_not_have_is_refused(monkeypatch):
    looks = iter(range(100))
    monkeypatch.setattr(files.os.path, "lexists", lambda _: next(looks) < 0)
    monkeypatch.setattr(files.os.path, "isdir", lambda _: False)
    with pytest.raises(ValueError, match="--out is '/a/b', on /, which is not there; accepted: a"):
        files.check_folder("--out", "/a/b")


def test_a_failed_rewrite_leaves_the_old_file_whole(tmp_path, monkeypatch):
    files.write_json(tmp_path / "a.json", {"old": 1})

    def no_space(number):
        raise OSError("no space left")

    def full(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(files.os, "fsync", no_space)
    with pytest.raises(OSError, match="no space"):
        files.write_json(tmp_path / "a.json", {"new": 2})
    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(OSError, match=r"No space left on device: '.*a\.json'"):
        files.write_json(tmp_path / "a.json", {"new": 2})
    assert json.loads((tmp_path / "a.json").read_text()) == {"old": 1}


def test_a_file_is_replaced_when_it_is_complete_and_else_stays(tmp_path):
    path = tmp_path / "numbers"
    for content in (b"old", b"new"):
        with files.replacing(path) as file:
            file.write(content)
            file.flush()
            assert not path.exists() or path.read_bytes() == b"old"
        assert path.read_bytes() == content
    with pytest.raises(ZeroDivisionError), files.replacing(path) as file:
        file.write(b"half")
        file.flush()
        assert len(list(tmp_path.iterdir())) == 2
        _ = 1 / 0
    assert path.read_bytes() == b"new" and list(tmp_path.iterdir()) == [path]


def test_a_link_stays_and_the_file_that_it_names_is_replaced(tmp_path):
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.txt", tmp_path / "link"
    target.write_text("old")
    link.symlink_to(target)
    files.replace_text(link, "new")
    assert link.is_symlink() and target.read_text() == "new"
    assert [path.name for path in target.parent.iterdir()] == ["a.txt"]


def test_two_machines_that_share_a_folder_write_the_same_file_at_once(tmp_path):
    path = tmp_path / "table"  # process ids repeat on other machines: here they are the same
    with files.replacing(path) as first, files.replacing(path) as second:
        first.write(b"first")
        second.write(b"second")
    assert path.read_bytes() == b"first"  # which was complete last
    assert list(tmp_path.iterdir()) == [path]
