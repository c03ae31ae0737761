"""CIFAR-10 and CIFAR-100 in every layout that was published."""

import hashlib
import io
import os
import pickle
import sys
import tarfile

import numpy as np
import pytest

from pujax.data import sources
from pujax.data.readers import cifar_batches
from tests import conftest
from tests.data import official_layouts

PICKLE = official_layouts.Python2Pickle()
LAYOUTS = ("binary folder", "binary files", "binary archive", "python folder", "python files")
LAYOUTS += ("python archive",)


def images(count, seed):
    return np.random.default_rng(seed).integers(0, 256, (count, 32, 32, 3)).astype(np.uint8)


def cifar10_content():
    """Five training batches of 3 images and a test batch of 4: `{name: (images, labels)}`."""
    sets = {f"data_batch_{i}": (images(3, i), np.arange(i, i + 3) % 10) for i in range(1, 6)}
    return sets | {"test_batch": (images(4, 9), np.array([9, 0, 5, 1]))}


def cifar100_content():
    """`{name: (images, coarse, fine)}`."""
    return {
        "train": (images(4, 1), np.array([0, 19, 7, 3]), np.array([99, 0, 50, 12])),
        "test": (images(2, 2), np.array([18, 2]), np.array([41, 77])),
    }


def python_file(batch):
    x, *labels = batch
    entries = {b"batch_label": b"a batch", b"data": official_layouts.cifar_rows(x)}
    keys = (b"labels",) if len(labels) == 1 else (b"coarse_labels", b"fine_labels")
    entries |= {key: [int(v) for v in label] for key, label in zip(keys, labels, strict=True)}
    return PICKLE.dump(entries | {b"filenames": [b"%d.png" % i for i in range(len(x))]})


def write(root, layout, content, stem="cifar-10-", folders=("batches-bin", "batches-py")):
    """Writes a content in one of LAYOUTS."""
    kind, form = layout.split()
    if kind == "binary":
        folder = f"{stem}{folders[0]}"
        files = {f"{n}.bin": official_layouts.cifar_binary(*b) for n, b in content.items()}
    else:
        folder = f"{stem}{folders[1]}"
        files = {name: python_file(batch) for name, batch in content.items()}
    files["readme.html"] = b"not data"
    if form == "archive":
        official_layouts.write_tar(root / f"{stem}{kind}.tar.gz", folder, files)
    else:
        official_layouts.write_files(root / folder if form == "folder" else root, files)


def write100(root, layout):
    write(root, layout, cifar100_content(), "cifar-100-", ("binary", "python"))


@pytest.mark.parametrize("below", ["", "cifar10"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_cifar10_is_the_same_from_every_layout(tmp_path, layout, below):
    content = cifar10_content()
    write(tmp_path / below, layout, content)
    data = sources.load("cifar10", directory=tmp_path)
    train = [content[f"data_batch_{i}"] for i in range(1, 6)]
    np.testing.assert_array_equal(data.train_inputs, np.concatenate([x for x, _ in train]))
    np.testing.assert_array_equal(data.train_labels, np.concatenate([y for _, y in train]))
    np.testing.assert_array_equal(data.test_inputs, content["test_batch"][0])
    np.testing.assert_array_equal(data.test_labels, content["test_batch"][1])
    assert data.class_names[8] == "ship" and data.mean == (0.4914, 0.4822, 0.4465)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("labels", "column", "count"), [("coarse", 1, 20), ("fine", 2, 100)])
def test_cifar100_is_the_same_from_every_layout(tmp_path, layout, labels, column, count):
    write100(tmp_path, layout)
    content = cifar100_content()
    data = sources.load("cifar100", directory=tmp_path, label_set=labels)
    np.testing.assert_array_equal(data.train_inputs, content["train"][0])
    np.testing.assert_array_equal(data.train_labels, content["train"][column])
    np.testing.assert_array_equal(data.test_labels, content["test"][column])
    assert len(data.class_names) == count


def test_cifar100_has_the_superclasses_by_default_in_alphabetical_order(tmp_path):
    write100(tmp_path, "binary folder")
    data = sources.load("cifar100", directory=tmp_path)
    assert list(data.class_names) == sorted(data.class_names) and len(data.class_names) == 20
    assert data.class_names[18:] == ("vehicles_1", "vehicles_2")
    assert data.class_names[14] == "people"
    fine = sources.load("cifar100", directory=tmp_path, label_set="fine").class_names
    assert list(fine) == sorted(set(fine)) and len(fine) == 100


def test_another_sort_of_labels_is_refused(tmp_path):
    with pytest.raises(ValueError, match="label_set is 'medium'; accepted: '', 'coarse', 'fine'"):
        sources.load("cifar100", directory=tmp_path, label_set="medium")


def test_an_image_folder_named_train_is_not_taken_for_a_cifar100_file(tmp_path, monkeypatch):
    (tmp_path / "train").mkdir()
    monkeypatch.setattr(
        "pujax.data.readers.download.fetch_all", lambda *a, **k: [tmp_path / "fetched"]
    )
    with pytest.raises((ValueError, OSError), match="fetched"):
        sources.load("cifar100", directory=tmp_path)


@pytest.mark.parametrize("cut", [0, 1, 3072, 3074, 2 * 3073 + 5])
def test_a_truncated_binary_file_is_named(tmp_path, cut):
    write(tmp_path, "binary folder", cifar10_content())
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=f"{path} is truncated"):
        sources.load("cifar10", directory=tmp_path)


@pytest.mark.parametrize("cut", [0, 1, 100, 9000, -1])
def test_a_truncated_python_file_is_named(tmp_path, cut):
    write(tmp_path, "python folder", cifar10_content())
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(ValueError, match=f"{path} is damaged"):
        sources.load("cifar10", directory=tmp_path)


@pytest.mark.parametrize("layout", ["binary archive", "python archive"])
@pytest.mark.parametrize("share", [0.0, 0.01, 0.5, 0.98])
def test_a_truncated_archive_is_named(tmp_path, layout, share):
    write(tmp_path, layout, cifar10_content())
    (path,) = tmp_path.glob("*.tar.gz")
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=path.name):
        sources.load("cifar10", directory=tmp_path)


@pytest.mark.parametrize("layout", ["binary folder", "python folder", "binary archive"])
def test_a_missing_batch_is_named(tmp_path, layout):
    content = cifar10_content()
    del content["data_batch_4"], content["test_batch"]
    write(tmp_path, layout, content)
    with pytest.raises(ValueError, match="is incomplete: data_batch_4.*, test_batch.* missing"):
        sources.load("cifar10", directory=tmp_path)


def test_a_set_of_another_size_than_the_original_brings_a_warning(tmp_path, monkeypatch, caplog):
    write(tmp_path, "binary folder", cifar10_content())
    sources.load("cifar10", directory=tmp_path)
    monkeypatch.setattr(cifar_batches, "SIZES", (15, 4))
    sources.load("cifar10", directory=tmp_path)
    (warning,) = caplog.messages
    assert "cifar-10-batches-bin" in warning and "(15, 4)" in warning and "50000" in warning


def test_a_label_beyond_the_classes_is_refused(tmp_path):
    content = cifar10_content()
    content["test_batch"] = (content["test_batch"][0], np.array([1, 2, 3, 10]))
    write(tmp_path, "binary folder", content)
    with pytest.raises(ValueError, match="test_batch.bin holds the label 10; accepted: 0..9"):
        sources.load("cifar10", directory=tmp_path)


def read_python(content):
    return cifar_batches.read_python(io.BytesIO(content), "FILE", label_keys=("labels",))


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("encode", [str, str.encode])
def test_a_batch_pickled_by_python_3_is_read_too(protocol, encode):
    x, y = images(3, 0), [1, 2, 3]
    entries = {"data": official_layouts.cifar_rows(x), "labels": y, "batch_label": "x"}
    content = pickle.dumps({encode(k): v for k, v in entries.items()}, protocol=protocol)
    found, labels = read_python(content)
    np.testing.assert_array_equal(found, x)
    np.testing.assert_array_equal(labels["labels"], y)


class Evil:
    def __init__(self, call, *args):
        self.reduced = (call, args)

    def __reduce__(self):
        return self.reduced


@pytest.mark.parametrize(
    "make",
    [
        lambda path: Evil(os.mkdir, path),
        lambda path: Evil(eval, f"__import__('os').mkdir({path!r})"),
        lambda path: Evil(getattr, "text", "upper"),
        lambda path: Evil(np.fromfile, path),
    ],
)
def test_a_pickle_that_calls_anything_else_is_refused_and_not_run(tmp_path, make):
    path = str(tmp_path / "made")
    with pytest.raises(ValueError, match="FILE is damaged.*not allowed"):
        read_python(pickle.dumps({"data": make(path)}, protocol=2))
    assert not os.path.exists(path)


@pytest.mark.parametrize(
    "entries",
    [
        {},
        {"data": np.zeros((2, 3072), np.uint8)},
        {"labels": [1, 2]},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [1]},
        {"data": np.zeros((2, 3072), np.int64), "labels": [1, 2]},
        {"data": np.zeros((2, 3071), np.uint8), "labels": [1, 2]},
        {"data": np.zeros((0, 3072), np.uint8), "labels": []},
        {"data": "text", "labels": ["a"]},
        ["a list"],
    ],
)
def test_a_pickle_of_something_else_is_refused(entries):
    with pytest.raises(ValueError, match="FILE"):
        read_python(pickle.dumps(entries, protocol=2))


def unsafe_archive(path, member):
    content = official_layouts.cifar_binary(*cifar10_content()["test_batch"])
    with tarfile.open(path, "w:gz") as archive:
        if member.isfile():
            member.size = len(content)
        archive.addfile(member, io.BytesIO(content) if member.isfile() else None)


@pytest.mark.parametrize("name", ["../evil", "/evil", "cifar-10-batches-bin/../../evil"])
def test_an_archive_with_a_path_that_leaves_its_folder_is_refused(tmp_path, name):
    inside = tmp_path / "inside"
    inside.mkdir()
    unsafe_archive(inside / "cifar-10-binary.tar.gz", tarfile.TarInfo(name))
    with pytest.raises(ValueError, match="cifar-10-binary.tar.gz is unsafe.*evil"):
        sources.load("cifar10", directory=inside)
    assert [path.name for path in tmp_path.rglob("*")] == ["inside", "cifar-10-binary.tar.gz"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE])
def test_an_archive_with_a_link_where_a_file_belongs_is_refused(tmp_path, kind):
    member = tarfile.TarInfo("cifar-10-batches-bin/data_batch_1.bin")
    member.type, member.linkname = kind, "/etc/passwd"
    unsafe_archive(tmp_path / "cifar-10-binary.tar.gz", member)
    with pytest.raises(ValueError, match="data_batch_1.bin is not an ordinary file"):
        sources.load("cifar10", directory=tmp_path)


@pytest.fixture(scope="module")
def real_cifar10():
    """The arrays behind the shared archives, and the module that reads them."""
    folder = conftest.real_data_folder("cifar10")
    sys.path.insert(0, str(folder))
    try:
        import load
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop("load", None)
    return load, load.load(), folder


@pytest.mark.slow
def test_the_real_binary_files_give_the_real_images(real_cifar10, tmp_path):
    module, arrays, _ = real_cifar10
    module.write_binary(tmp_path, arrays)
    digest = hashlib.md5((tmp_path / "test_batch.bin").read_bytes()).hexdigest()
    assert digest == "803d5f7f4d78ea53de84dbe85f74fb6d"
    data = sources.load("cifar10", directory=tmp_path)
    np.testing.assert_array_equal(data.train_inputs, arrays["train_x"])
    np.testing.assert_array_equal(data.train_labels, arrays["train_y"])
    np.testing.assert_array_equal(data.test_inputs, arrays["test_x"])
    np.testing.assert_array_equal(data.test_labels, arrays["test_y"])
    assert (np.bincount(data.train_labels) == 5000).all()
    pixels = data.train_inputs[::25] / 255.0
    np.testing.assert_allclose(data.mean, pixels.mean((0, 1, 2)), atol=0.01)  # every 25th image
    np.testing.assert_allclose(data.std, pixels.std((0, 1, 2)), atol=0.01)


@pytest.mark.thorough
def test_the_real_python_file_gives_the_real_images(real_cifar10):
    _, arrays, folder = real_cifar10
    with np.load(folder / "cifar10_test.npz") as archive:
        names = [bytes(name) for name in archive["test_name"]]
    entries = {
        b"batch_label": b"testing batch 1 of 1",
        b"labels": [int(label) for label in arrays["test_y"]],
        b"data": official_layouts.cifar_rows(arrays["test_x"]),
        b"filenames": names,
    }
    content = PICKLE.dump(entries)
    # The published checksum: what is read here is byte for byte the original file.
    assert hashlib.md5(content).hexdigest() == "40351d587109b95175f43aff81a1287e"
    found, labels = read_python(content)
    np.testing.assert_array_equal(found, arrays["test_x"])
    np.testing.assert_array_equal(labels["labels"], arrays["test_y"])
