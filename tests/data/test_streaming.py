"""Streamed batches: the pixels of a plain loop, whatever the threads, devices, hosts and stops."""

import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from PIL import Image

from pujax.data import batching, streaming
from pujax.data.image_files import ImageFiles
from pujax.data.readers.download import MissingDataError

pytest.importorskip("grain")

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
SIZES = (20, 18, 12)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """21 images of different sizes."""
    folder = tmp_path_factory.mktemp("images")
    paths = []
    for i in range(21):
        small = np.random.default_rng(i).integers(0, 256, (5, 6, 3), np.uint8)
        image = Image.fromarray(small).resize((30 + i, 40 - i), Image.Resampling.BICUBIC)
        paths.append(str(folder / f"{i}.{'png' if i % 2 else 'jpg'}"))
        image.save(paths[-1])
    return ImageFiles(tuple(paths), side=16, load_side=20)


@pytest.fixture
def damaged(files, tmp_path):
    (tmp_path / "damaged.jpg").write_bytes(pathlib.Path(files.paths[0]).read_bytes()[:300])
    paths = list(files.paths)
    paths[13] = str(tmp_path / "damaged.jpg")
    return ImageFiles(tuple(paths), side=16, load_side=20)


def mesh(num_devices=8):
    return Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))


def split(num_devices=8):
    return NamedSharding(mesh(num_devices), PartitionSpec("data"))


def epoch_ids(steps=4, batch=8, seed=0):
    return np.random.default_rng(seed).integers(0, 21, (steps, batch)).astype(np.int32)


def train(files, ids, **changed):
    options = {"seed": 5, "epoch": 2, "crop_sizes": SIZES, "sharding": split()} | changed
    return streaming.train_batches(files, ids, **options)


def stacked(batches):
    return np.stack([np.asarray(batch) for batch in batches])


def decoding_threads():
    return [thread for thread in threading.enumerate() if "grain" in thread.name]


def assert_threads_end():
    for thread in decoding_threads():
        thread.join(timeout=300)  # seconds, which only a thread that never ends takes
    assert not decoding_threads()


def test_batches_equal_a_plain_loop_over_the_ids(files):
    ids = epoch_ids()
    batches = list(train(files, ids))
    assert [batch.shape for batch in batches] == [(8, 16, 16, 3)] * 4
    for batch, row in zip(batches, ids, strict=True):
        assert batch.dtype == jnp.uint8
        for image, i in zip(np.asarray(batch), row, strict=True):
            crop = files.read_crop(i, np.random.default_rng((5, 2, i)), SIZES)
            np.testing.assert_array_equal(image, crop)


@pytest.mark.parametrize(
    "options",
    [
        {"num_threads": 1, "read_ahead": 1},
        {"num_threads": 7, "read_ahead": 3},
        {"sharding": split(4)},
        {"sharding": SingleDeviceSharding(jax.devices()[3])},
        {"sharding": NamedSharding(mesh(), PartitionSpec())},
    ],
    ids=["one thread", "seven threads", "four devices", "one device", "copies"],
)
def test_pixels_do_not_depend_on_threads_or_devices(files, options):
    ids = epoch_ids()
    np.testing.assert_array_equal(stacked(train(files, ids, **options)), stacked(train(files, ids)))


def test_a_crop_is_the_same_wherever_its_image_comes_up_and_new_in_another_epoch_or_run(files):
    one = stacked(train(files, np.arange(16).reshape(2, 8))).reshape(16, -1)
    order = np.random.default_rng(0).permutation(16)
    other = stacked(train(files, order.reshape(4, 4), sharding=split(2))).reshape(16, -1)
    np.testing.assert_array_equal(other, one[order])
    for changed in ({"epoch": 3}, {"seed": 6}, {"seed": 2, "epoch": 5}):
        new = stacked(train(files, np.arange(16).reshape(2, 8), **changed)).reshape(16, -1)
        # Two crops agree by chance where both are of the full size, one time in nine.
        assert (new == one).all(axis=1).sum() < 8


def test_a_resumed_epoch_goes_on_with_the_same_batches(files):
    ids = epoch_ids(steps=5)
    whole = stacked(train(files, ids))
    for first_step in (1, 4):
        rest = stacked(train(files, ids, first_step=first_step))
        np.testing.assert_array_equal(rest, whole[first_step:])
    assert list(train(files, ids, first_step=5)) == []


def test_without_crop_sizes_training_sees_the_images_as_tested(files):
    (batch,) = train(files, np.arange(8)[None], crop_sizes=())
    np.testing.assert_array_equal(batch, np.stack([files.read(i) for i in range(8)]))


def test_the_rows_of_a_batch_are_split_over_the_devices_in_order(files):
    ids = epoch_ids(steps=1, batch=16)
    (batch,) = train(files, ids)
    assert batch.sharding == split()
    shards = sorted(batch.addressable_shards, key=lambda shard: shard.index[0].start)
    assert [shard.data.shape for shard in shards] == [(2, 16, 16, 3)] * 8
    assert [shard.device for shard in shards] == jax.devices()
    whole = stacked(train(files, ids, sharding=SingleDeviceSharding(jax.devices()[0])))[0]
    np.testing.assert_array_equal(np.concatenate([s.data for s in shards]), whole)


def test_a_batch_that_the_devices_do_not_divide_is_copied_to_all(files):
    ids = epoch_ids(steps=2, batch=6)
    batches = list(train(files, ids))
    assert all(batch.sharding.is_fully_replicated for batch in batches)
    assert len(batches[0].sharding.device_set) == 8
    alone = stacked(train(files, ids, sharding=SingleDeviceSharding(jax.devices()[0])))
    np.testing.assert_array_equal(stacked(batches), alone)


def test_every_image_is_decoded_once_also_where_it_is_copied(files, monkeypatch):
    reads = []
    read = ImageFiles.read
    monkeypatch.setattr(ImageFiles, "read", lambda s, i: reads.append(int(i)) or read(s, i))
    for sharding in (split(), NamedSharding(mesh(), PartitionSpec())):
        reads.clear()
        list(train(files, np.arange(16).reshape(2, 8), crop_sizes=(), sharding=sharding))
        assert sorted(reads) == list(range(16))


HOST = """
import json, sys
import jax, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from pujax.data import streaming
from pujax.data.image_files import ImageFiles
port, process, *paths = sys.argv[1:]
jax.distributed.initialize(f"localhost:{port}", 2, int(process))
reads, read = [], ImageFiles.read
ImageFiles.read = lambda self, i: reads.append(int(i)) or read(self, i)
# Devices of the two hosts in turn, so that a host does not have one run of rows.
devices = np.asarray(jax.devices())[[0, 2, 1, 3]]
sharding = NamedSharding(Mesh(devices, ("data",)), PartitionSpec("data"))
files = ImageFiles(tuple(paths), 16, 20)
batches = streaming.train_batches(
    files, np.arange(16).reshape(2, 8), seed=0, epoch=0, crop_sizes=(), sharding=sharding
)
rows = []
for step, batch in enumerate(batches):
    assert batch.shape == (8, 16, 16, 3)
    for shard in batch.addressable_shards:
        for row, image in zip(range(8)[shard.index[0]], np.asarray(shard.data)):
            np.testing.assert_array_equal(image, read(files, 8 * step + row))
            rows.append(8 * step + row)
print(json.dumps([sorted(reads), sorted(rows)]))
"""


@pytest.mark.thorough
def test_a_host_decodes_the_rows_of_its_own_devices_only(files):
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    environment = os.environ | {"XLA_FLAGS": "", "JAX_NUM_CPU_DEVICES": "2"}
    hosts = [
        subprocess.Popen(
            [sys.executable, "-c", HOST, port, str(process), *files.paths],
            cwd=REPOSITORY,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for process in range(2)
    ]
    texts = [host.communicate(timeout=120) for host in hosts]
    for host, (_, errors) in zip(hosts, texts, strict=True):
        assert host.returncode == 0, errors
    halves = []
    for printed, _ in texts:
        reads, rows = json.loads(printed.splitlines()[-1])
        assert reads == rows
        halves.append(rows)
    assert halves[0] == [0, 1, 4, 5, 8, 9, 12, 13]
    assert sorted(halves[0] + halves[1]) == list(range(16))


@pytest.mark.parametrize("batch_size", [1, 5, 8, 20, 21, 64])
def test_all_images_come_in_order_in_batches_of_one_size(files, batch_size):
    everything = np.stack([files.read(i) for i in range(21)])
    size = min(batch_size, 21)
    seen = set()
    for start, batch in streaming.all_batches(files, batch_size=batch_size, sharding=split()):
        assert batch.shape == (size, 16, 16, 3)
        np.testing.assert_array_equal(batch, everything[start : start + size])
        assert start == min(len(seen), 21 - size)
        seen.update(range(start, start + size))
    assert seen == set(range(21))


def means_and_first(images):
    values = images.astype(jnp.float32)
    return {"mean": values.mean(axis=(1, 2)), "first": values[:, 0, 0, 0]}


@pytest.mark.parametrize("batch_size", [1, 4, 8, 21, 100])
def test_a_map_over_files_equals_that_over_their_pixels(files, batch_size):
    pixels = jnp.asarray(np.stack([files.read(i) for i in range(21)]))
    expected = batching.map_batches(means_and_first, pixels, batch_size=batch_size)
    found = streaming.map_files(
        jax.jit(means_and_first), files, batch_size=batch_size, sharding=split()
    )
    assert set(found) == {"mean", "first"}
    np.testing.assert_array_equal(found["first"], expected["first"])
    np.testing.assert_allclose(found["mean"], expected["mean"], rtol=1e-6)
    by_hand = np.stack([files.read(i).astype(np.float64).mean(axis=(0, 1)) for i in range(21)])
    np.testing.assert_allclose(found["mean"], by_hand, rtol=1e-5)


def test_a_map_to_numpy_stays_on_the_host_in_its_precision(files):
    found = streaming.map_files(
        lambda images: np.asarray(images, np.float64).sum(axis=(1, 2, 3)) / 7,
        files,
        batch_size=8,
        sharding=split(),
    )
    assert isinstance(found, np.ndarray) and found.dtype == np.float64
    np.testing.assert_array_equal(found, [files.read(i).sum() / 7 for i in range(21)])


@pytest.mark.parametrize("num_threads", [1, 4])
def test_a_damaged_file_is_named_and_no_thread_stays(damaged, num_threads):
    with pytest.raises(ValueError, match="damaged.jpg cannot be read as an image"):
        list(train(damaged, np.arange(16).reshape(4, 4), num_threads=num_threads))
    with pytest.raises(ValueError, match="damaged.jpg cannot be read as an image"):
        streaming.map_files(
            means_and_first, damaged, batch_size=4, sharding=split(4), num_threads=num_threads
        )
    assert_threads_end()


def test_batches_before_a_damaged_file_are_delivered(damaged):
    batches = train(damaged, np.arange(16).reshape(4, 4))
    np.testing.assert_array_equal(next(batches), next(train(damaged, np.arange(4)[None])))
    with pytest.raises(ValueError, match="damaged.jpg"):
        list(batches)


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_an_iterator_that_is_closed_early_leaves_no_thread(files, taken):
    ids = np.tile(np.arange(20, dtype=np.int32), (50, 1))
    evaluated = streaming.all_batches(files, batch_size=2, sharding=split(2))
    assert_threads_end()  # those of earlier tests
    for batches in (train(files, ids), evaluated):
        for _ in range(taken):
            next(batches)
        assert bool(decoding_threads()) == bool(taken)
        batches.close()
        assert list(batches) == []
        assert_threads_end()


def test_an_iterator_that_is_forgotten_leaves_no_thread(files):
    for _ in train(files, np.tile(np.arange(20, dtype=np.int32), (50, 1))):
        break
    assert_threads_end()


def test_bad_arguments_are_named_before_anything_is_read(files):
    ids = epoch_ids()
    for changed, message in (
        ({"seed": -1}, "seed is -1; accepted"),
        ({"epoch": -2}, "epoch is -2; accepted"),
        ({"first_step": 5}, "first_step is 5; accepted: 0 to 4"),
        ({"first_step": -1}, "first_step is -1; accepted"),
        ({"crop_sizes": (20, 21)}, "crop_sizes is .*accepted: .* 20"),
        ({"num_threads": -1}, "num_threads is -1; accepted"),
        ({"read_ahead": 0}, "read_ahead is 0; accepted"),
    ):
        with pytest.raises(ValueError, match=message):
            train(files, ids, **changed)
    for wrong in (ids + 21, ids - 21, ids.astype(np.float32), ids[0], ids[:, :0]):
        with pytest.raises(ValueError, match="ids .*accepted"):
            train(files, wrong)
    with pytest.raises(ValueError, match="batch_size is 0; accepted"):
        streaming.all_batches(files, batch_size=0, sharding=split())
    with pytest.raises(ValueError, match="the number of files is 0; accepted"):
        streaming.all_batches(ImageFiles((), 16, 20), batch_size=4, sharding=split())


def test_a_missing_grain_is_explained(files, monkeypatch):
    monkeypatch.setitem(sys.modules, "grain", None)
    with pytest.raises(MissingDataError, match="pip install 'grain"):
        train(files, epoch_ids())
