"""Files that are damaged, absurd or malicious: one line says what is wrong, and that is all.

What each file is refused for is tested first; then `fuzzed_readers` feeds every reader files that
nobody has thought of.
"""

import bz2
import io
import json
import os
import pathlib
import re
import struct
import subprocess
import sys
import types
import zipfile
import zlib

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from pujax import reading
from pujax.data import sources
from pujax.data.readers import (
    archive,
    frame_chunks,
    frames,
    idx,
    image_arrays,
    multilabel_csv,
    multilabel_npz,
    tfds_records,
)
from pujax.models import encoder
from tests.faults import fuzzed_readers

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
HUGE = fuzzed_readers.npy_header((10**12, 3), "<f8", False)
NEVER_READ = {"svmlight, source"}  # whose rows are counted, as published


def refusal(read, path, *args, **kwargs):
    """The message with which a file is refused: one line that names it."""
    with pytest.raises(ValueError) as error:
        read(path, *args, **kwargs)
    message = str(error.value)
    assert len(message.splitlines()) == 1 and str(path) in message
    return message


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("sizes", [(2**32 - 1,) * 3, (10**5, 1000, 1000), (2**16, 2**16, 2**31)])
def test_an_idx_header_of_absurd_size_takes_no_memory(tmp_path, sizes, suffix):
    content = fuzzed_readers.idx_bytes(sizes)
    content = zlib.compress(content, wbits=31) if suffix else content
    path = write(tmp_path / f"images{suffix}", content)
    assert str(sizes) in refusal(idx.read_idx, path, rank=3)


@pytest.mark.parametrize("shape", [(10**12, 3), (10**30, 3), (-1, 3), (0, 10**12)])
def test_an_array_of_absurd_shape_takes_no_memory(tmp_path, shape):
    header = fuzzed_readers.npy_header(shape, "<f8", False)
    path = write(tmp_path / "a.npy", header)
    assert f"its header says float64 of shape {shape}" in refusal(frames.read, path)
    assert str(shape) in refusal(lambda path: list(frame_chunks.read(path, 10)), path)
    names = ("x", "labels", "labeled", "X_train", "Y_train", "X_test", "Y_test")
    path = write(tmp_path / "a.npz", fuzzed_readers.zipped(**dict.fromkeys(names, header)))
    options = {"image_size": 0, "load_size": 0, "missing": "fail"}
    for read in (frames.read, fuzzed_readers.one_table, lambda path: encoder.load(str(path))):
        assert str(shape) in refusal(read, path)
    assert str(shape) in refusal(multilabel_npz.load, path, **options)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\x93NUMPY\x01\x00\x88\x13" + b"(" * 5000, "statement|parenthes|never closed|nested"),
        (b"\x93NUMPY\x03\x00\x04\x00\x00\x00{}  ", r"version \(3, 0\)"),
        (b"\x93NUMPY\x01\x00", "EOF"),
        (fuzzed_readers.npy_header((3,), "|V100000000", False), "300000000 bytes"),
    ],
)
def test_an_array_header_that_is_no_header_is_refused(tmp_path, content, message):
    with pytest.raises(ValueError, match=message):
        reading.read_npy(write(tmp_path / "a.npy", content))


def test_an_archive_whose_members_overlap_or_swell_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w", zipfile.ZIP_BZIP2) as swollen:
        swollen.writestr("x.npy", bytes(7 * 10**7))
    assert "its members unpack to" in refusal(frames.read, tmp_path / "a.npz")
    content = fuzzed_readers.zipped(x=np.random.default_rng(0).bytes(1000))
    start, end = content.index(b"PK\1\2"), content.index(b"PK\5\6")
    entry = content[start:end]
    tail = struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 2, 2, 2 * len(entry), start, 0)
    path = write(tmp_path / "b.npz", content[:start] + 2 * entry + tail)
    assert "overlap" in refusal(frames.read, path)


@pytest.mark.parametrize("index", [99999999999999999999, 2**32, 2**63 - 1, 10**9])
def test_an_index_of_svmlight_that_no_memory_holds_is_refused(tmp_path, index):
    path = write(tmp_path / "a.svm", f"1 1:1\n1 {index}:1\n")
    for read in (frames.read, fuzzed_readers.one_table):
        refusal(read, path)
    for name in ("a9a", "a9a.t"):
        write(tmp_path / name, f"1 {index}:1\n")
    refusal(lambda _: sources.load("a9a", directory=tmp_path), tmp_path / "a9a")


@pytest.mark.parametrize("text", ["a,b,y\n1,x\0z,1\n", "a\0,b,y\n1,2,1\n", "a,b,y\n1,2,1\n\0,2,1"])
def test_a_zero_byte_in_a_cell_is_no_category(tmp_path, text):
    path = write(tmp_path / "a.csv", text)
    line = text[: text.index("\0")].count("\n") + 1
    for read in (
        frames.read,
        fuzzed_readers.one_table,
        lambda path: list(frame_chunks.read(path, 10)),
    ):
        assert f"line {line}, character" in refusal(read, path)
    images = text.replace("a,b,y", "file,dog,cat")
    path = write(tmp_path / "b.csv", images)
    options = {"image_size": 0, "load_size": 0, "missing": "fail"}
    assert f"line {line}, character" in refusal(multilabel_csv.load, path, **options)


def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_refused(tmp_path):
    path = write(tmp_path / "a.svm.bz2", bz2.compress(bytes(2**20)) * 70)
    message = refusal(frames.read, path)
    assert "unpacks to more than" in message and "unpack it first" in message


def coco(tmp_path, **changes):
    """Reads annotations with some of their lists replaced."""
    lists = json.loads(fuzzed_readers.COCO_FILE) | changes
    return coco_text(tmp_path, json.dumps(lists))


def coco_text(tmp_path, text):
    """Reads a text as annotations."""
    fuzzed_readers.prepare_coco(tmp_path)
    path = write(tmp_path / "annotations" / "instances_train2014.json", text)
    return refusal(lambda _: sources.load("coco2014", directory=tmp_path), path)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a":' * 100_000])
def test_deep_json_is_refused(tmp_path, text):
    assert "nested too deeply" in coco_text(tmp_path, text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"categories": [{"id": float("inf"), "name": "a"}]}, "'id' is inf"),
        ({"images": [{"id": [1], "file_name": "a.jpg"}]}, r"'id' is \[1\]"),
        ({"images": [{"id": 1, "file_name": None}]}, "'file_name' is None"),
        ({"annotations": [{"image_id": {}, "category_id": 1}]}, "'image_id' is {}"),
        ({"annotations": [{"image_id": 1, "category_id": [1]}]}, r"'category_id' is \[1\]"),
        ({"categories": 3}, "'categories' is no list"),
    ],
)
def test_annotations_of_another_form_are_refused(tmp_path, changes, message):
    assert re.search(message, coco(tmp_path, **changes))


OUTSIDE = ["/etc/passwd", "../x.jpg", "a/../../x.jpg", "..", "a\0.jpg", "", "..\\x.jpg", "a\nb.jpg"]


@pytest.mark.parametrize("name", OUTSIDE)
def test_an_image_outside_of_its_folder_is_refused(tmp_path, name):
    message = coco(tmp_path, images=[{"id": 1, "file_name": name}])
    assert f"names the image {name!r}" in message


@pytest.mark.parametrize("name", ["/etc/passwd", "../x.jpg", "a/../../x.jpg"])
def test_an_image_of_a_table_outside_of_its_folder_is_refused(tmp_path, name):
    rows = "".join(f"{i}{name},1,0\n" if i else f"{name},1,0\n" for i in range(6))
    path = write(tmp_path / "labels.csv", f"file,dog,cat\n{rows}")
    message = refusal(multilabel_csv.load, path, image_size=0, load_size=0, missing="skip")
    assert f"names the image {name!r}" in message


def test_a_list_of_voc_that_leaves_its_folder_is_refused(tmp_path):
    fuzzed_readers.prepare_voc(tmp_path)
    path = write(tmp_path / "ImageSets" / "Main" / "test.txt", "../../x\n")
    assert "../../x" in refusal(lambda _: sources.load("voc2007", directory=tmp_path), path)


@pytest.mark.parametrize(
    "text", ['<?xml version="1.0" encoding="foo"?><a/>', "<a>" * 100_000, "<a/><a/>"]
)
def test_an_annotation_that_is_no_xml_is_refused(tmp_path, text):
    fuzzed_readers.prepare_voc(tmp_path)
    path = write(tmp_path / "Annotations" / "a.xml", text)
    refusal(lambda _: sources.load("voc2007", directory=tmp_path), path)


@pytest.mark.parametrize(
    "column",
    [
        np.zeros(20_000_000, np.int8),  # one run
        pa.DictionaryArray.from_arrays(np.zeros(2000, np.int8), ["a" * 100_000]),
    ],
)
def test_a_parquet_file_of_runs_takes_no_memory(tmp_path, column):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"x": column}), path, compression="zstd")
    assert os.path.getsize(path) < 90_000
    message = refusal(frames.read, path)
    assert "accepted: at most 1100 times" in message and "use_dictionary=False" in message
    refusal(lambda path: next(frame_chunks.read(path, 10)), path)


def test_gzip_and_zip_cannot_pack_better_than_a_file_may():
    for size in (10**6, 10**7):
        assert len(zlib.compress(bytes(size), 9)) * reading.FACTOR > size


def honest_zeros(path):
    np.savez_compressed(path.with_suffix(".npz"), x=np.zeros((120_000, 700), np.uint8))
    return frames.read(path.with_suffix(".npz")).values.shape == (120_000, 700)


def honest_one_hot(kind):
    def read(path):
        ones = np.random.default_rng(0).integers(0, 50_000, 150_000)  # most are in no column
        table = {f"c{i}": (ones == i).astype(kind) for i in range(500)}
        pq.write_table(pa.table(table), path)
        return frames.read(path).values.shape == (150_000, 500)

    return read


def honest_constant(path):
    table = pa.table({"x": np.zeros(20_000_000, np.int8)})  # as the message of its refusal says
    pq.write_table(table, path, compression="none", use_dictionary=False)
    return frames.read(path).num_rows == 20_000_000


def honest_color(mode):
    def read(path):
        Image.new(mode, (4000, 4000)).save(path.with_suffix(".png"))
        return image_arrays.decode(path.with_suffix(".png"), channels=3).size == (4000, 4000)

    return read


@pytest.mark.thorough
@pytest.mark.parametrize(
    "read",
    [honest_zeros, honest_constant]
    + [*map(honest_one_hot, ("int8", "bool")), *map(honest_color, ("1", "RGB"))],
)
def test_honest_files_that_pack_well_are_read(tmp_path, read):
    assert read(tmp_path / "a.parquet")


def test_a_parquet_file_of_text_that_is_not_utf_8_is_refused(tmp_path):
    buffers = [None, pa.py_buffer(struct.pack("<3i", 0, 1, 2)), pa.py_buffer(b"a\xff")]
    column = pa.Array.from_buffers(pa.string(), 2, buffers)
    pq.write_table(pa.table({"x": column}), tmp_path / "a.parquet")
    assert "UTF" in refusal(frames.read, tmp_path / "a.parquet")


def test_an_image_of_absurd_size_takes_no_memory(tmp_path):
    def chunk(name, content):
        checksum = zlib.crc32(name + content)
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)

    header = struct.pack(">2I5B", 9000, 9000, 8, 2, 0, 0, 0)
    pixels = chunk(b"IHDR", header) + chunk(b"IDAT", b"x") + chunk(b"IEND", b"")
    path = write(tmp_path / "a.png", b"\x89PNG\r\n\x1a\n" + pixels)
    for read in (image_arrays.decode, image_arrays.decode_any):
        assert "9000 x 9000 pixels" in refusal(read, path, channels=3)


def test_postscript_is_never_handed_to_another_program(tmp_path, monkeypatch):
    stream = io.BytesIO()
    Image.new("RGB", (4, 4)).save(stream, "EPS")
    monkeypatch.setattr(subprocess, "Popen", None)
    path = write(tmp_path / "a.png", stream.getvalue())
    for read in (image_arrays.decode, image_arrays.decode_any):
        assert "format of the image is 'EPS'" in refusal(read, path, channels=3)


@pytest.mark.parametrize("size", [10**11, 2**60])
def test_a_member_of_absurd_size_is_refused(tmp_path, size):
    content = bytearray(fuzzed_readers.tar_bytes({"inside/a.bin": b"x"}, "w"))
    content[124:136] = b"\x80" + size.to_bytes(11, "big")  # of GNU, for sizes beyond eight octals
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    path = write(tmp_path / "a.tar", bytes(content))
    message = refusal(archive.read_members, path, "inside", ["a.bin"], lambda stream, where: 0)
    assert "'inside/a.bin' unpacks to" in message


def test_a_record_of_absurd_length_takes_no_memory(tmp_path):
    path = write(tmp_path / "a.tfrecord", struct.pack("<QI", 2**62, 0) + bytes(100))
    instruction = types.SimpleNamespace(filename=str(path), skip=0, take=1)
    builder = types.SimpleNamespace()
    stored = types.SimpleNamespace(value="tfrecord")
    split = types.SimpleNamespace(file_instructions=[instruction])
    builder.info = types.SimpleNamespace(file_format=stored, splits={"train": split})
    read = tfds_records.examples(builder, "train")
    assert "is truncated" in refusal(lambda _: next(read), path)


def fuzz(folder, examples, *names):
    """Runs `fuzzed_readers` in a process of its own; returns what it counted."""
    environment = os.environ | {
        "PYTHONPATH": str(REPOSITORY),
        "JAX_PLATFORMS": "cpu",
        "OMP_NUM_THREADS": "1",
        # What the limit counts is address space, of which every thread would reserve 128 MiB.
        "MALLOC_ARENA_MAX": "1",
        "ARROW_DEFAULT_MEMORY_POOL": "system",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(folder / "hypothesis"),
        "TMPDIR": str(folder),
    }
    command = [sys.executable, "-m", "tests.faults.fuzzed_readers", folder, str(examples), *names]
    run = subprocess.run(
        command, env=environment, cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, f"status {run.returncode}\n{run.stderr[-4000:]}"
    return json.loads(run.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="limits of memory are those of Linux")
@pytest.mark.parametrize(
    "examples",
    [
        12,
        pytest.param(30, marks=pytest.mark.thorough),
        pytest.param(400, marks=pytest.mark.slow),
    ],
)
def test_every_reader_reads_a_file_or_refuses_it_in_one_line(tmp_path, examples):
    found = fuzz(tmp_path, examples)
    assert set(found) == set(fuzzed_readers.readers())
    for name, counts in found.items():
        assert counts["refused"] > 0 and (counts["read"] > 0) is (name not in NEVER_READ), name
