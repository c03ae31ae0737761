"""Damaged checkpoints, encoders and exported models: seen and said, never taken for good."""

import pathlib
import shutil
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pujax import checksums, processor, training
from pujax.models import encoder as encoder_lib
from pujax.training import checkpoint, environment, loop_state, saved_model, train_step
from pujax.training import config as config_lib
from pujax.training.checkpoint import Checkpoints, Position
from tests import tiny
from tests.faults import runs
from tests.x64 import x64


def tree(step):
    """Incompressible numbers of three types, more than one row of a checksum."""
    rng = np.random.default_rng(step)
    return {
        "params": {"kernel": jnp.asarray(rng.normal(size=(128, 40)), jnp.float32)},
        "stats": jnp.asarray(rng.normal(size=(33,)), jnp.bfloat16),
        "count": jnp.asarray(rng.integers(0, 1000, 7), jnp.int32),
    }


def like(_=None):
    return jax.eval_shape(lambda: tree(1))


def placed(structure):
    where = NamedSharding(tiny.mesh(1), PartitionSpec())
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where), structure)


def saved(folder, steps=(1, 2)):
    store = Checkpoints(str(folder), keep=3, fingerprint={"a": 1})
    for step in steps:
        store.save(Position(step, 0, step), tree(step))
    store.close()


def restored(folder):
    """Position and tree of the newest good checkpoint."""
    store = Checkpoints(str(folder), keep=3, fingerprint={"a": 1})
    try:
        return store.restore_newest(lambda _: placed(like()))
    finally:
        store.close()


def same(found, step):
    wanted = jax.tree.leaves(tree(step))
    return all(np.array_equal(a, b) for a, b in zip(jax.tree.leaves(found), wanted, strict=True))


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    folder = tmp_path_factory.mktemp("two") / "checkpoints"
    saved(folder)
    return folder


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def survives(two, folder, damage):
    """Damages the newest of two checkpoints; returns which was restored, always as saved."""
    shutil.copytree(two, folder)
    shutil.copy(f"{two}.json", f"{folder}.json")
    damage(folder / "2")
    position, found = restored(folder)
    assert same(found, position.epoch), "other numbers than were saved"
    return position.epoch


def largest(step):
    return max(files_of(step / "tree"), key=lambda path: path.stat().st_size)


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_a_flipped_bit_in_the_largest_file_is_seen(two, tmp_path, place, caplog):
    def damage(step):
        path = largest(step)
        runs.flip(path, int(place * path.stat().st_size), 3)

    assert survives(two, tmp_path / "c", damage) == 1
    assert "checkpoint 2 is damaged and passed over" in caplog.text
    assert (tmp_path / "c_damaged" / "2").is_dir()


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("none left"),
        PermissionError("Permission denied"),
        jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory"),
        ValueError("PERMISSION_DENIED: Error opening 'x': Permission denied [OS error 13]"),
        ValueError("RESOURCE_EXHAUSTED: Error opening 'x': Too many open files [OS error 24]"),
    ],
)
def test_a_checkpoint_that_cannot_be_read_now_stays_where_it_is(two, tmp_path, monkeypatch, error):
    folder = tmp_path / "c"
    shutil.copytree(two, folder)
    shutil.copy(f"{two}.json", f"{folder}.json")

    def full(*args):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.Checkpoints, "_restore", full)
        with pytest.raises(OSError, match="checkpoint 2 in .* cannot be read now"):
            restored(folder)
    assert (folder / "2").is_dir() and not (tmp_path / "c_damaged").exists()
    assert restored(folder)[0].epoch == 2


@pytest.mark.thorough
def test_flipped_bits_anywhere_never_give_other_numbers(two, tmp_path):
    rng = np.random.default_rng(0)
    for number in range(24):
        path = rng.choice([str(x.relative_to(two / "2")) for x in files_of(two / "2")])
        size = (two / "2" / path).stat().st_size

        def damage(step, path=path, size=size):
            if size:
                runs.flip(step / path, int(rng.integers(size)), int(rng.integers(8)))

        survives(two, tmp_path / str(number) / "c", damage)


@pytest.mark.parametrize(
    "name", ["_METADATA", "metadata", "manifest.ocdbt", "_sharding", "_CHECKPOINT_METADATA"]
)
@pytest.mark.parametrize("how", [pathlib.Path.unlink, lambda path: path.write_bytes(b"")])
def test_a_lost_or_empty_file_falls_back_or_does_not_matter(two, tmp_path, name, how):
    def damage(step):
        found = [path for path in files_of(step) if path.name == name]
        assert found
        for path in found:
            how(path)

    epoch = survives(two, tmp_path / "c", damage)
    assert epoch == 1 or name != "metadata"  # of the others orbax can do without some


def test_a_changed_position_is_seen(two, tmp_path, caplog):
    def damage(step):
        path = step / "description" / "metadata"
        text = path.read_text()
        assert '"step": 0' in text
        path.write_text(text.replace('"step": 0', '"step": 1'))

    assert survives(two, tmp_path / "c", damage) == 1
    assert "its description is not what was saved" in caplog.text


def test_where_no_checkpoint_is_good_all_reasons_are_said(two, tmp_path):
    folder = tmp_path / "c"
    shutil.copytree(two, folder)
    for step in ("1", "2"):
        runs.flip(folder / step / "description" / "metadata", 40, 0)
    with pytest.raises(ValueError, match=r"none of the checkpoints in .* \(2: .*; 1: .*\); acc"):
        restored(folder)
    assert sorted(path.name for path in folder.iterdir()) == ["1", "2"]


def test_the_damaged_array_is_named(two, tmp_path, monkeypatch, caplog):
    shutil.copytree(two, tmp_path / "c")
    of_array = checksums.of_array
    monkeypatch.setattr(
        checksums, "of_array", lambda x: "other" if x.dtype == jnp.bfloat16 else of_array(x)
    )
    with pytest.raises(ValueError, match="stats is not what was saved"):
        restored(tmp_path / "c")
    assert "kernel" not in caplog.text


def test_damaged_checkpoints_of_one_step_are_all_kept(tmp_path):
    store = Checkpoints(str(tmp_path / "c"), keep=3, fingerprint={"a": 1})
    for number, name in enumerate(("2", "2-1", "2-2", "2-3")):
        (tmp_path / "c" / "2").mkdir()
        (tmp_path / "c" / "2" / "file").write_text(str(number))
        store._set_aside([2])
        assert (tmp_path / "c_damaged" / name / "file").read_text() == str(number)
    store.close()


@pytest.mark.parametrize("digit", ["0", "f"])  # sorts before the right one, and after
@pytest.mark.parametrize("of", ["of_array", "of_document"])
def test_any_other_checksum_is_refused(two, monkeypatch, of, digit):
    monkeypatch.setattr(checksums, of, lambda _: digit * 64)
    store = Checkpoints(str(two), keep=3, fingerprint={"a": 1})
    with pytest.raises(ValueError, match="is not what was saved .its checksum differs"):
        store._restore(2, lambda _: placed(like()))
    store.close()


def test_a_checkpoint_with_numbers_that_are_not_finite_is_passed_over(tmp_path, monkeypatch):
    folder = tmp_path / "c"
    saved(folder, steps=(1,))
    bad = tree(2)
    bad["params"]["kernel"] = bad["params"]["kernel"].at[3, 4].set(jnp.nan)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_copied", lambda tree: (True, jax.tree.map(jnp.copy, tree)))
        store = Checkpoints(str(folder), keep=3, fingerprint={"a": 1})
        assert store.save(Position(2, 0, 2), bad)
        store.close()
    assert (folder / "2").is_dir()
    position, found = restored(folder)
    assert position.epoch == 1 and same(found, 1)


def test_a_metric_without_a_value_keeps_no_state_from_being_saved(tmp_path):
    def carry(loss, weight=1.0):
        kept = train_step.Carry(jnp.full(2, weight), {"share": jnp.float32(loss)})
        return loop_state._tree(SimpleNamespace(carry=kept, best=None))

    store = Checkpoints(str(tmp_path), keep=3, fingerprint={})
    assert store.save(Position(1, 0, 1), carry(jnp.nan))
    position, found = store.restore_newest(lambda _: placed(carry(0.0)))
    assert position.epoch == 1 and bool(jnp.isnan(found["carry"].sums["share"]))
    assert not store.save(Position(2, 0, 2), carry(0.0, weight=jnp.nan))
    store.close()


def test_a_checkpoint_without_checksums_is_not_taken(two, tmp_path, monkeypatch):
    store = Checkpoints(str(two), keep=3, fingerprint={"a": 1})
    monkeypatch.setattr(store._manager, "restore", lambda *_, **__: {"description": {}})
    with pytest.raises(ValueError, match="it has no checksums"):
        store._description(2)
    store.close()


def test_sharded_arrays_have_the_checksum_of_the_whole(tmp_path):
    mesh = Mesh(np.asarray(jax.devices()[:4]), ("data",))
    split = NamedSharding(mesh, PartitionSpec("data"))
    array = jax.device_put(tree(1)["params"]["kernel"], split)
    store = Checkpoints(str(tmp_path / "c"), keep=1, fingerprint={})
    store.save(Position(1, 0, 1), {"kernel": array})
    wanted = {"kernel": jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=split)}
    _, found = store.restore_newest(lambda _: wanted)
    where = NamedSharding(mesh, PartitionSpec())
    copy = {"kernel": jax.ShapeDtypeStruct(array.shape, array.dtype, sharding=where)}
    _, whole = store.restore_newest(lambda _: copy)
    store.close()
    np.testing.assert_array_equal(found["kernel"], array)
    np.testing.assert_array_equal(whole["kernel"], array)


def test_other_cores_are_warned_about(two, tmp_path, monkeypatch, caplog):
    shutil.copytree(two, tmp_path / "c")
    restored(tmp_path / "c")
    assert "other conditions" not in caplog.text
    monkeypatch.setattr(processor, "num_cores", lambda: 77)
    monkeypatch.setenv("XLA_FLAGS", "--xla_other=1")
    restored(tmp_path / "c")
    (line,) = [x for x in caplog.messages if "made under other conditions" in x]
    assert "XLA_FLAGS: " in line and "cores: " in line and "77 here" in line
    assert "last digits may differ" in line


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("jax_default_matmul_precision", "bfloat16"),
        ("jax_default_prng_impl", "rbg"),
        ("jax_threefry_partitionable", False),
    ],
)
def test_settings_of_jax_that_change_every_number_are_told(name, value):
    saved, before = environment.current(), getattr(jax.config, name)
    jax.config.update(name, value)
    try:
        assert environment.changes(saved) == [f"{name}: {before!r} there, {value!r} here"]
    finally:
        jax.config.update(name, before)
    del saved[name]  # as in a checkpoint of an earlier version
    assert environment.changes(saved) == []


def test_with_64_bits_what_a_host_computes_for_an_epoch_keeps_its_type(tmp_path, caplog):
    changes = {"model": "mlp", "options": {"hidden": (4,)}, "augment": False}
    with x64():
        for epochs in (2, 0):
            config = tiny.config("cvir", **changes, stop_after_epoch=epochs)
            _, rows = tiny.train_in(tmp_path, config, tiny.problem())
    assert len(rows) == 4 and "damaged" not in caplog.text


def test_a_checkpoint_with_another_width_of_numbers_is_not_called_damaged(tmp_path, caplog):
    store = Checkpoints(str(tmp_path / "c"), keep=3, fingerprint={})
    with x64():
        store.save(Position(1, 0, 10), {"offset": jnp.zeros([])})
    message = r"jax_enable_x64=True, here it is False \(.*offset is float64.*JAX_ENABLE_X64=1, as"
    with pytest.raises(ValueError, match=message):
        store.restore_newest(lambda _: {"offset": jax.ShapeDtypeStruct([], "float32")})
    with x64():
        like = {"offset": jax.ShapeDtypeStruct([], "float64")}
        assert store.restore_newest(lambda _: like) is not None
    store.close()
    assert "damaged" not in caplog.text


@pytest.mark.parametrize("size", [0, 1, 7, 16384, 16385, 3 * 16384 + 11])
def test_every_flipped_byte_changes_a_checksum(size):
    array = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8)
    known = checksums.of_array(array)
    assert checksums.of_array(array.copy()) == known
    for place in range(0, size, max(size // 50, 1)):
        array[place] ^= 16
        assert checksums.of_array(array) != known
        array[place] ^= 16


def test_a_checksum_sees_order_type_and_shape():
    array = np.arange(3 * 4096, dtype=np.float32)  # three rows of a checksum
    known = checksums.of_array(array)
    rows = array.reshape(-1, 1024)
    for other in (array[::-1], rows, array.view(np.int32), rows[[1, 0, *range(2, len(rows))]]):
        assert checksums.of_array(other) != known
    assert checksums.of_array(rows.T) == checksums.of_array(rows.T.copy())
    block = array.copy()
    block[100:200], block[200:300] = array[200:300], array[100:200]
    assert checksums.of_array(block) != known


def test_checksums_are_those_of_earlier_versions():
    """Else every checkpoint, encoder and model that was saved before would be refused."""
    known = checksums.of_array(np.arange(9000, dtype=np.float32).reshape(3, 3000))
    assert known == "07f059dbe41b59ac886a1af5bcb9f2a17e3d547ecb8489e88d1160f11fd551eb"
    assert checksums.of_document({"b": [1, 0.5], "a": None})[:16] == "fc2ad738648c4fb6"


def write_encoder(path):
    rng = np.random.default_rng(0)
    params = {"stem": {"kernel": rng.normal(size=(3, 8)).astype(np.float32)}}
    encoder = encoder_lib.Encoder(params, {"norm": {"mean": np.zeros(4, np.float32)}})
    encoder_lib.save(str(path), encoder, {"model": "mlp", "mean": (0.5,)})
    return encoder


def test_flipped_bits_of_an_encoder_are_seen_or_do_not_matter(tmp_path):
    path = tmp_path / "encoder.npz"
    encoder = write_encoder(path)
    good, refused = path.read_bytes(), 0
    for place in np.linspace(0, len(good) - 1, 100).astype(int):
        runs.flip(path, place, place % 8)
        try:
            found, description = encoder_lib.load(str(path))
        except ValueError as error:
            assert "damaged" in str(error) and "\n" not in str(error)
            refused += 1
        else:
            assert description == {"model": "mlp", "mean": [0.5]}
            assert jax.tree.structure(found) == jax.tree.structure(encoder)
            jax.tree.map(np.testing.assert_array_equal, found, encoder)
        path.write_bytes(good)
    assert refused > 50


def test_an_encoder_with_other_numbers_in_a_sound_file_is_refused_by_name(tmp_path):
    path = tmp_path / "encoder.npz"
    write_encoder(path)
    with np.load(path) as file:
        arrays = dict(file)
    np.savez(path, **arrays | {"batch_stats/norm/mean": np.ones(4, np.float32)})
    with pytest.raises(ValueError, match="the checksum of batch_stats/norm/mean differs"):
        encoder_lib.load(str(path))


def test_an_encoder_of_before_checksums_is_read_with_a_warning(tmp_path, caplog):
    path = tmp_path / "encoder.npz"
    write_encoder(path)
    with np.load(path) as file:
        np.savez(path, **{name: file[name] for name in file if name != "checksums"})
    assert encoder_lib.load(str(path))[1]["model"] == "mlp"
    assert f"{path} has no checksums" in caplog.text


def test_an_encoder_that_is_not_finite_is_refused_by_name(tmp_path):
    encoder = encoder_lib.Encoder({"stem": np.full(3, np.nan, np.float32)}, {})
    encoder_lib.save(str(tmp_path / "e.npz"), encoder, {})
    with pytest.raises(ValueError, match="params/stem holds a number that is not finite"):
        encoder_lib.load(str(tmp_path / "e.npz"))


@pytest.fixture
def exported(tmp_path, monkeypatch):
    """The folder of a model of one's own table."""
    monkeypatch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
    rng = np.random.default_rng(0)
    values = rng.normal(size=(200, 3)) + np.repeat([2, 0], [80, 120])[:, None]
    rows = [f"{a:.3f},{b:.3f},{c:.3f},{int(i < 60)}" for i, (a, b, c) in enumerate(values)]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,known", *rows]) + "\n")
    config = config_lib.default_config("nnpu")
    config.data.update({"source": "own_table", "path": str(tmp_path / "rows.csv")})
    config.data.update({"label": "known", "holdout": 0.25, "prior": 0.4})
    config.data.update({"positive_classes": (), "num_labeled": 0})
    config.model.name, config.model.options = "mlp", {"hidden": (8,)}
    config.method.update({"num_epochs": 1, "batch_size": 16})
    config.run.update({"figures": False, "tensorboard": "off"})
    training.run(config, str(tmp_path / "run"))
    return tmp_path / "run" / "model"


@pytest.mark.thorough
def test_flipped_bits_of_an_exported_model_are_always_seen(exported):
    saved_model.load(exported)
    for path in files_of(exported):
        if path.name == "README.md":
            continue
        good = path.read_bytes()
        for place in np.linspace(0, len(good) - 1, 12).astype(int):
            runs.flip(path, place, place % 8)
            with pytest.raises(ValueError, match="accepted"):
                saved_model.load(exported)
            path.write_bytes(good)
        path.unlink()
        with pytest.raises(ValueError, match="cannot be read"):
            saved_model.load(exported)
        path.write_bytes(good)


@pytest.mark.thorough
def test_the_damaged_numbers_of_a_model_are_named(exported):
    path = exported / "model.safetensors"
    runs.flip(path, path.stat().st_size - 1, 7)
    with pytest.raises(ValueError, match=r"model.safetensors: .* is not what was saved"):
        saved_model.load(exported)
