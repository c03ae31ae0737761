"""Feeds damaged and invented files to every reader, in a process of its own.

    python -m tests.faults.fuzzed_readers FOLDER EXAMPLES [NAME ...]

A reader may succeed or raise a `ValueError` of one line; anything else, more memory than
`pujax.reading` allows, and a file opened outside of the named folder end the process with a status
that is not 0, as a crash of the interpreter does. It prints, per reader, how many files were read
and how many refused. `FOLDER/named` is what readers are given; `FOLDER/outside` is what they must
not open.
"""

import bz2
import gzip
import io
import itertools
import json
import os
import pathlib
import pickle
import pickletools
import resource
import struct
import sys
import tarfile
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pandas as pd
from hypothesis import strategies as st
from PIL import Image

from pujax import reading
from pujax.data import preparation, sources
from pujax.data.readers import (
    archive,
    cifar_batches,
    frame_chunks,
    frames,
    idx,
    image_arrays,
    multilabel_csv,
    multilabel_npz,
    tables,
)
from pujax.models import encoder
from tests.data import official_layouts
from tests.faults import fuzzing

SLACK = 96 * 2**20
"""Bytes beyond what `pujax.reading` allows: the allocator's own, and caches of libraries."""
_LARGEST = 2**16
"""Bytes of a fuzzed file."""
_OPTIONS = {"image_size": 0, "load_size": 0, "missing": "fail"}


class Reader(NamedTuple):
    """What is fuzzed.

    Attributes:
      file: its path in the named folder.
      read: called with the folder.
      seeds: valid contents.
      invented: contents of the right sort that need not be valid, or None.
    """

    file: str
    read: Callable[[pathlib.Path], object]
    seeds: list[bytes]
    invented: st.SearchStrategy[bytes] | None = None


def array_bytes(save, *args, **kwargs) -> bytes:
    """What a function writes into a file."""
    stream = io.BytesIO()
    save(stream, *args, **kwargs)
    return stream.getvalue()


def png(size=(4, 4), kind="PNG", mode="RGB") -> bytes:
    """An image of random levels."""
    bands = len(Image.new(mode, (1, 1)).getbands())
    levels = np.random.default_rng(0).integers(0, 256, [*size, bands], dtype=np.uint8)
    image = Image.fromarray(levels.squeeze(-1) if bands == 1 else levels, mode)
    return array_bytes(image.save, kind)


def one_table(path, **options):
    """Reads a single file where two are usually read."""
    return tables.read_together([path], **options)


_PATHS = st.sampled_from(
    ["a.jpg", "b/a.jpg", "../outside/canary.jpg", "/etc/hostname", "..", ".", "", "a\0.jpg", "~/x"]
    + ["b/../../outside/canary.jpg", "..\\outside\\canary.jpg", "C:\\x", "\\\\host\\x", "a\nb.jpg"]
)
_NUMBERS = st.one_of(
    st.integers(-2, 5),
    st.sampled_from([2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 10**30, -(2**63), -(10**30)]),
    st.sampled_from([0.5, 1e400, float("nan"), 1e308]),
)
_WORDS = st.one_of(
    st.sampled_from(["", "1", "0", "-1", "a", "1e999", "nan", "\0", "|", '"', '""', "é", "\ud800"]),
    st.text(max_size=5),
)
JSON = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _WORDS | _PATHS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_WORDS, inner, max_size=3),
    max_leaves=6,
)


def as_json(value) -> bytes:
    """JSON with what Python writes beside it: NaN, Infinity, lone halves of characters."""
    return json.dumps(value).encode()


def mutated(seeds: list[bytes]) -> st.SearchStrategy[bytes]:
    """Valid contents with a few edits, and what has no form at all."""
    payload = st.one_of(
        st.binary(max_size=8),
        st.sampled_from([b"\xff" * 4, b"\xff" * 8, b"\x00" * 8, b"\x7f\xff\xff\xff", b"\x80"]),
    )
    edit = st.tuples(st.sampled_from("rrricdt"), st.integers(0, 2**16), payload)

    def apply(seed: bytes, edits) -> bytes:
        content = bytearray(seed)
        for kind, place, piece in edits:
            place %= max(len(content), 1)
            if kind == "r":  # in place of what is there
                content[place : place + len(piece)] = piece
            elif kind == "i":
                content[place:place] = piece
            elif kind == "c":  # cut out
                del content[place : place + len(piece)]
            elif kind == "d":  # twice
                content[place:place] = content[place : place + 64]
            else:
                del content[place:]
        return bytes(content[:_LARGEST])

    edited = st.builds(apply, st.sampled_from(seeds), st.lists(edit, max_size=4))
    return st.one_of(edited, edited, edited, st.binary(max_size=64))


def npy_header(shape, dtype, order) -> bytes:
    """A `.npy` file whose header may promise anything, with a few bytes behind it."""
    text = f"{{'descr': {dtype!r}, 'fortran_order': {order}, 'shape': {shape}, }}".encode()
    text += b" " * (63 - (len(text) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\x01" * 48


_SHAPES = st.lists(_NUMBERS.filter(lambda x: isinstance(x, int)), max_size=4).map(tuple)
_DTYPES = st.sampled_from(["<f8", "|u1", "|O", "<U9999", "|V0", "<f8,<f8", "|S0", "<M8[s]", "zz"])
NPY = st.builds(npy_header, _SHAPES, _DTYPES, st.sampled_from([True, False, 3]))


def zipped(**members: bytes) -> bytes:
    """An `.npz` file of these members."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive_:
        for name, content in members.items():
            archive_.writestr(f"{name}.npy", content)
    return stream.getvalue()


def idx_bytes(sizes, rest: bytes = b"\x01" * 16) -> bytes:
    """An idx file of three dimensions."""
    return bytes((0, 0, 8, 3)) + struct.pack(">3I", *sizes) + rest


_OPCODES = [code for code in pickletools.opcodes if code.arg is None]


def pickles() -> st.SearchStrategy[bytes]:
    """Programs of the unpickler: whatever its operations and the names it may look up make."""
    names = ["numpy\nndarray", "numpy\ndtype", "_codecs\nencode", "os\nsystem"]
    names += ["numpy.core.multiarray\n_reconstruct", "numpy\nfromfile"]
    pieces = st.one_of(
        st.sampled_from([code.code.encode("latin1") for code in _OPCODES]),
        st.sampled_from(names).map(lambda name: b"c" + name.encode() + b"\n"),
        st.binary(max_size=4).map(lambda text: b"U" + bytes([len(text)]) + text),
        st.integers(0, 255).map(lambda x: b"K" + bytes([x])),
        st.integers(-(2**31), 2**31 - 1).map(lambda x: b"J" + struct.pack("<i", x)),
        st.integers(0, 2**32 - 1).map(lambda x: b"r" + struct.pack("<I", x)),
        st.integers(0, 9).map(lambda x: b"q" + bytes([x])),
        st.integers(0, 9).map(lambda x: b"h" + bytes([x])),
        st.sampled_from([b"U\x02u1K\x00K\x01\x87R", b"(K\x01K\x01K\x02\x86", b"tb", b"U\x04data"]),
        st.just(b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"),
    )
    return st.lists(pieces, max_size=30).map(lambda parts: b"\x80\x02}(" + b"".join(parts) + b"u.")


def csv_bytes(cells: list[list[str]], delimiter: str) -> bytes:
    """Lines of cells without quotes."""
    text = "\n".join(delimiter.join(row) for row in cells)
    return text.encode("utf-8", errors="surrogatepass")


CSV = st.builds(
    csv_bytes,
    st.lists(st.lists(_WORDS | _PATHS | _NUMBERS.map(str), min_size=2, max_size=3), max_size=5),
    st.sampled_from(",;\t"),
)
SVM = st.lists(
    st.lists(
        st.one_of(_WORDS, st.builds("{}:{}".format, _NUMBERS, _NUMBERS), _NUMBERS.map(str)),
        max_size=4,
    ),
    max_size=4,
).map(lambda rows: "\n".join(map(" ".join, rows)).encode("utf-8", errors="surrogatepass"))


def coco_file(categories, images, annotations) -> bytes:
    """An annotation file."""
    keys = ("categories", "images", "annotations")
    return as_json(dict(zip(keys, (categories, images, annotations), strict=True)))


def entries(**fields) -> st.SearchStrategy:
    """A list of objects with these fields, or anything."""
    values = {name: st.one_of(value, value, value, JSON) for name, value in fields.items()}
    return st.one_of(st.lists(st.fixed_dictionaries(values), min_size=1, max_size=3), JSON)


COCO_FILE = coco_file(
    [{"id": 1, "name": "a"}],
    [{"id": 1, "file_name": "a.jpg"}],
    [{"image_id": 1, "category_id": 1}],
)
_SMALL = st.integers(1, 2)
COCO = st.builds(
    coco_file,
    entries(id=_SMALL, name=_WORDS),
    entries(id=_SMALL, file_name=_PATHS),
    entries(image_id=_SMALL, category_id=_SMALL),
)
XML = st.recursive(
    st.sampled_from(
        ["<object><name>cat</name></object>", "<difficult>1</difficult>", "&x;", "cat", "<name/>"]
        + ['<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]>', "<?xml encoding='zz'?>"]
    ),
    lambda inner: st.tuples(st.sampled_from(["annotation", "object", "name"]), inner, inner).map(
        lambda parts: f"<{parts[0]}>{parts[1]}{parts[2]}</{parts[0]}>"
    ),
    max_leaves=6,
).map(str.encode)


def tar_bytes(members: dict[str, bytes], mode: str) -> bytes:
    """A tar archive."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=mode) as archive_:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive_.addfile(info, io.BytesIO(content))
    return stream.getvalue()


def prepare_coco(folder: pathlib.Path) -> None:
    """All of the official folders but the training annotations."""
    official_layouts.write_files(folder / "annotations", {"instances_val2014.json": COCO_FILE})
    for split in ("train2014", "val2014"):
        official_layouts.write_files(folder / split, {"a.jpg": png(kind="JPEG")})


def prepare_voc(folder: pathlib.Path) -> None:
    """All of the official folders but one annotation."""
    good = b"<annotation><object><name>cat</name></object></annotation>"
    lists = {"trainval.txt": b"a\n", "test.txt": b"b\n"}
    official_layouts.write_files(folder / "ImageSets" / "Main", lists)
    official_layouts.write_files(folder / "Annotations", {"a.xml": good, "b.xml": good})
    images = {name: png(kind="JPEG") for name in ("a.jpg", "b.jpg")}
    official_layouts.write_files(folder / "JPEGImages", images)


def prepare_images(folder: pathlib.Path) -> None:
    """An image folder of two classes but for one image."""
    for place in ("train/x", "train/y", "test/x", "test/y"):
        official_layouts.write_files(folder / place, {"a.png": png(), "b.png": png((4, 4))})


def prepare_listed(folder: pathlib.Path) -> None:
    """Images beside a table."""
    official_layouts.write_files(folder, {f"{i}.jpg": png(kind="JPEG") for i in range(10)})


def readers() -> dict[str, Reader]:
    """Every reader by name."""
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 256, [3, 3072], dtype=np.uint8)
    batch = {b"labels": [1, 2, 3], b"data": rows}
    cifar = [official_layouts.Python2Pickle().dump(batch), pickle.dumps(batch, protocol=2)]
    numbers = np.ones((3, 2))
    npz = array_bytes(np.savez, x=numbers, labels=np.array([1, 0, 0]))
    several = {"X_train": numbers + np.arange(3)[:, None], "Y_train": np.eye(3, dtype=np.int8)}
    several |= {"X_test": numbers, "Y_test": np.eye(3, dtype=np.int8)}
    csv = b"id,amount,city,label\n007,1.5,Ulm,1\n008,,Bonn,0\n009,2,,0\n"
    numbers_csv = b"a,b,y\n1,x,1\n2,y,0\n3,x,0\n"
    svm = b"1 1:2.5 3:4\n-1 2:1 # a comment\n0\n"
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": ["x", "y"], "c": [True, None]})
    parquet = [array_bytes(lambda stream: frame.to_parquet(stream))]
    npzs = st.builds(lambda x, y: zipped(x=x, labels=y), NPY, NPY)
    table = array_bytes(np.savez, x=numbers, labeled=np.array([1, 0, 0]))
    tables_npz = st.builds(lambda x, y: zipped(x=x, labeled=y), NPY, NPY)
    labels_npz = st.builds(lambda *x: zipped(**dict(zip(several, x, strict=True))), *[NPY] * 4)
    listed = "file,dog,cat\n" + "".join(f"{i}.jpg,{i % 2},1\n" for i in range(10))
    small = rng.integers(0, 256, [2, 32, 32, 3], dtype=np.uint8)
    binary = official_layouts.cifar_binary(small, np.array([0, 1]))
    learned = preparation.fit(frames.of(pd.DataFrame({"a": ["1", "2"], "b": ["3", "5"]})))
    saved = {"format": 1, "encoder": None, "columns": []} | {
        name: getattr(learned, name)
        for name in ("feature_names", "aside", "fill", "kept", "first_index", "messages")
        + ("sources", "offsets")
    }
    saved["columns"] = [column.__dict__ for column in learned.columns]
    weights = {"params/dense/kernel": np.ones((2, 2), np.float32)}
    described = array_bytes(np.savez, description=np.asarray('{"model": "mlp"}'), **weights)
    header = json.dumps({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    tensors = struct.pack("<Q", len(header)) + header + b"\0" * 8
    tensors_json = JSON.map(as_json).map(lambda x: struct.pack("<Q", len(x)) + x + b"\0" * 8)

    def of(function, name, **options):
        return lambda folder: function(folder / name, **options)

    def cifar_python(folder):
        with open(folder / "data_batch_1", "rb") as file:
            return cifar_batches.read_python(file, "data_batch_1", label_keys=("labels",))

    def members(folder):
        def read(stream, where):
            return cifar_batches.read_binary(stream, where, label_keys=("labels",))

        return archive.read_members(folder / "a.tar", "inside", ["a.bin"], read)

    def chunks(name):
        return lambda folder: list(frame_chunks.read(str(folder / name), 2))

    def image(folder):
        image_arrays.decode(folder / "a.png", channels=1)

    def any_image(folder):
        image_arrays.decode_any(folder / "a.png", channels=3)

    def packed_with(pack, strategy):
        return strategy.map(pack)

    images = [png(kind=kind) for kind in ("PNG", "JPEG", "GIF", "TIFF", "BMP", "WEBP", "PPM")]
    images += [png(mode=mode) for mode in ("L", "RGBA", "LA")]
    images += [b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 4 4\n%%EndComments\nshowpage\n"]
    good_idx = idx_bytes((4, 2, 2))
    huge = st.sampled_from([0, 1, 2, 4, 65536, 2**31, 2**32 - 1])
    idxs = st.builds(lambda *sizes: idx_bytes(sizes), huge, huge, huge)
    tars = [tar_bytes({"inside/a.bin": binary}, mode) for mode in ("w", "w:gz", "w:bz2", "w:xz")]
    evil = st.builds(
        lambda name, mode: tar_bytes({name: binary, "inside/a.bin": binary}, mode),
        _PATHS.filter(bool).filter(lambda name: "\0" not in name),
        st.sampled_from(["w", "w:gz"]),
    )
    csv_options = {"label": None}
    return {
        "idx": Reader("a-idx3", of(idx.read_idx, "a-idx3", rank=3), [good_idx], idxs),
        "idx, packed": Reader(
            "a.gz",
            of(idx.read_idx, "a.gz", rank=3),
            [gzip.compress(good_idx)],
            packed_with(gzip.compress, idxs),
        ),
        "cifar, python": Reader("data_batch_1", cifar_python, cifar, pickles()),
        "cifar, archive": Reader("a.tar", members, tars, evil),
        "npy": Reader("a.npy", of(frames.read, "a.npy"), [array_bytes(np.save, numbers)], NPY),
        "npy, chunks": Reader("a.npy", chunks("a.npy"), [array_bytes(np.save, numbers)], NPY),
        "npz": Reader("a.npz", of(frames.read, "a.npz"), [npz], npzs),
        "npz, table": Reader("a.npz", of(one_table, "a.npz"), [table], tables_npz),
        "npz, labels": Reader(
            "a.npz",
            of(multilabel_npz.load, "a.npz", **_OPTIONS),
            [array_bytes(np.savez, **several), array_bytes(np.savez_compressed, **several)],
            labels_npz,
        ),
        "csv": Reader("a.csv", of(frames.read, "a.csv"), [csv], CSV),
        "csv, packed": Reader(
            "a.csv.bz2",
            of(frames.read, "a.csv.bz2"),
            [bz2.compress(csv), bz2.compress(b"a,b\n" + b"1,2\n" * 1000)],
            packed_with(bz2.compress, CSV),
        ),
        "csv, chunks": Reader("a.csv", chunks("a.csv"), [csv], CSV),
        "csv, table": Reader("a.csv", of(one_table, "a.csv", **csv_options), [numbers_csv], CSV),
        "csv, images": Reader(
            "a.csv", of(multilabel_csv.load, "a.csv", **_OPTIONS), [listed.encode()], CSV
        ),
        "svmlight": Reader("a.svm", of(frames.read, "a.svm"), [svm], SVM),
        "svmlight, table": Reader("a.svm", of(one_table, "a.svm"), [svm], SVM),
        "svmlight, source": Reader(
            "a9a", lambda folder: sources.load("a9a", directory=folder), [svm], SVM
        ),
        "parquet": Reader(
            "a.parquet",
            of(frames.read, "a.parquet"),
            parquet,
        ),
        "parquet, chunks": Reader("a.parquet", chunks("a.parquet"), parquet),
        "coco": Reader(
            "annotations/instances_train2014.json",
            lambda folder: sources.load("coco2014", directory=folder),
            [COCO_FILE],
            COCO,
        ),
        "voc": Reader(
            "Annotations/a.xml",
            lambda folder: sources.load("voc2007", directory=folder),
            [b"<annotation><object><name>cat</name></object></annotation>"],
            XML,
        ),
        "voc, list": Reader(
            "ImageSets/Main/trainval.txt",
            lambda folder: sources.load("voc2007", directory=folder),
            [b"a\nb\n"],
            st.lists(_PATHS, max_size=3).map(lambda names: "\n".join(names).encode()),
        ),
        "image": Reader("a.png", image, images),
        "image, any": Reader("a.png", any_image, images),
        "image folder": Reader(
            "train/x/a.png",
            lambda folder: sources.load("image_folder", directory=folder),
            images[:3],
        ),
        "own folder": Reader(
            "positive/a.png",
            lambda folder: sources.load("own_folder", path=str(folder), image_size=4),
            images[:3],
        ),
        "preparation": Reader(
            "preparation.json",
            preparation.load,
            [as_json(saved)],
            st.tuples(st.sampled_from(list(saved)), JSON).map(
                lambda change: as_json(saved | dict([change]))
            ),
        ),
        "encoder": Reader(
            "encoder.npz",
            lambda folder: encoder.load(str(folder / "encoder.npz")),
            [described],
            st.builds(lambda x, y: zipped(**{"params/a": x, "description": y}), NPY, NPY),
        ),
        "safetensors": Reader(
            "a.safetensors",
            of(reading.read_safetensors, "a.safetensors"),
            [tensors],
            tensors_json,
        ),
    }


PREPARE = {
    "coco": prepare_coco,
    "voc": prepare_voc,
    "voc, list": prepare_voc,
    "image folder": prepare_images,
    "own folder": lambda folder: [
        official_layouts.write_files(folder / name, {"b.png": png(), "c.png": png((5, 4))})
        for name in ("positive", "unlabeled")
    ],
    "csv, images": prepare_listed,
    "svmlight, source": lambda folder: official_layouts.write_files(folder, {"a9a.t": b"1 1:1\n"}),
}
UNNAMED = {"preparation": "preparation.json", "safetensors": ""}
"""What a message names where it is not the file: `reading` leaves that to its callers."""


class Watch:
    """Notes files that are opened outside of the folder that a reader was given."""

    def __init__(self, base: pathlib.Path):
        self.inside = ""
        self.opened: list[str] = []
        # Modules that are imported late, the system's tables of encodings and processors.
        own = [sys.prefix, sys.base_prefix, "/usr", "/lib", "/proc", "/sys", "/dev"]
        own += [str(pathlib.Path(reading.__file__).parents[1]), os.environ.get("TMPDIR", "/tmp")]
        own += [sys.pycache_prefix] if sys.pycache_prefix else []
        self._own = tuple(os.path.realpath(path) for path in own)
        self._base = str(base)
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple) -> None:
        if event not in ("open", "os.listdir", "os.scandir") or not self.inside:
            return
        path = args[0]
        if isinstance(path, (str, bytes, os.PathLike)):
            place = os.path.realpath(os.fsdecode(path))
            below = place.startswith(self._base)
            if not place.startswith(self.inside if below else self._own):
                self.opened.append(place)


def virtual_bytes() -> int:
    """Bytes of address space that this process has."""
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def fuzz(name: str, reader: Reader, base: pathlib.Path, watch: Watch, examples: int) -> dict:
    """Feeds a reader; returns how many files it has read and how many it has refused."""
    folder = base / "named" / name.replace(", ", "_").replace(" ", "_")
    folder.mkdir(parents=True)
    if name in PREPARE:
        PREPARE[name](folder)
    path = folder / reader.file
    path.parent.mkdir(parents=True, exist_ok=True)
    counts = {"read": 0, "refused": 0}

    def feed(content: bytes) -> None:
        path.write_bytes(content)
        watch.opened.clear()
        watch.inside = str(folder)
        try:
            reader.read(folder)
            counts["read"] += 1
        except ValueError as error:
            counts["refused"] += 1
            text = str(error)
            named = UNNAMED.get(name, path.name if name != "own folder" else "a.png")
            known = (named, path.parent.name, folder.name)  # a folder stands for what is in it
            assert len(text.splitlines()) == 1, f"{name}: a message of several lines: {text!r}"
            assert any(place in text for place in known), f"{name}: no place in {text!r}"
        finally:
            watch.inside = ""
        assert not watch.opened, f"{name}: opened {watch.opened}"

    for seed in itertools.chain(reader.seeds, reader.seeds):  # with it, what is imported late
        feed(seed)
    contents = mutated(reader.seeds)
    if reader.invented is not None:
        contents = st.one_of(contents, reader.invented)
    most = virtual_bytes() + reading.ROOM + reading.FACTOR * _LARGEST + SLACK
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    try:
        fuzzing.feed(examples, contents)(feed)()
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (hard, hard))
    return counts


def main(arguments: list[str]) -> None:
    """Fuzzes the readers that the command line names, or all."""
    warnings.simplefilter("ignore")
    base, examples, names = pathlib.Path(arguments[0]).resolve(), int(arguments[1]), arguments[2:]
    official_layouts.write_files(base / "outside", {"canary.jpg": png(kind="JPEG")})
    tempfile.gettempdir()  # the first call of a process tries the folder with a file of its own
    watch, found = Watch(base), {}
    for name, reader in readers().items():
        if not names or name in names:
            print(name, file=sys.stderr, flush=True)  # the last one named is the one that crashed
            found[name] = fuzz(name, reader, base, watch, examples)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
