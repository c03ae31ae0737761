"""A saved model that is damaged or forged is refused in one line."""

import hashlib
import json
import os
import shutil

import jax
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st
from sklearn.preprocessing import OneHotEncoder

from pujax import checksums, methods
from pujax.data import table_encoder
from pujax.methods.base import Method
from pujax.models import encoder
from pujax.training import config as config_lib
from pujax.training import experiment, saved_model, seed_axis
from tests.faults import fuzzing
from tests.faults.fuzzed_readers import JSON, mutated


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The folder of a model that was never trained."""
    folder = tmp_path_factory.mktemp("model")
    rng = np.random.default_rng(0)
    labels = np.repeat([1, 0], [20, 60])
    rows = pd.DataFrame({"amount": rng.normal(size=80), "age": rng.integers(20, 60, 80)})
    rows.assign(label=labels).to_csv(folder / "rows.csv", index=False)
    config = config_lib.default_config("nnpu")
    config.data.update({"source": "own_table", "path": str(folder / "rows.csv"), "label": "label"})
    config.data.update({"positive_classes": (), "num_labeled": 0, "holdout": 0.2, "prior": 0.5})
    config.model.update({"name": "mlp", "options": {"hidden": (4,)}})
    config.method.update({"batch_size": 16, "augment": False})
    config = config_lib.resolve(config)
    data = experiment.load_data(config)
    method = methods.build(config, data.info)
    shapes = seed_axis.state_shapes(method.stages, data.training_data())
    state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    saved_model.save(str(folder / "model"), config, method, state, data, None)
    return folder / "model"


@pytest.fixture(scope="module")
def unchecked(model, tmp_path_factory):
    """The same without checksums, as an earlier version wrote it and as a forger would."""
    folder = tmp_path_factory.mktemp("unchecked") / "model"
    shutil.copytree(model, folder)
    as_format_1(folder)
    return folder


def as_format_1(folder):
    """Writes a model's description as the first version did."""
    document = json.loads((folder / "config.json").read_text())
    for name in ("checksum", "files", "arrays", "library_name", "pujax_version"):
        del document[name]
    (folder / "model.json").write_text(json.dumps(document | {"format": 1}))
    (folder / "config.json").unlink()


@pytest.fixture
def copy(unchecked, tmp_path):
    shutil.copytree(unchecked, tmp_path / "model")
    return tmp_path / "model"


def refusal(folder):
    with pytest.raises(ValueError) as error:
        saved_model.load(folder)
    message = str(error.value)
    assert len(message.splitlines()) == 1 and str(folder) in message
    return message


def changed(path, *place, value):
    """Replaces one value of a JSON file."""
    document = json.loads(path.read_text())
    inner = document
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    path.write_text(json.dumps(document))


def test_the_model_is_one(model):
    assert isinstance(saved_model.load(model).method, Method)
    names = ["README.md", "config.json", "model.safetensors", "preparation.json"]
    assert sorted(os.listdir(model)) == names


def test_a_model_of_before_checksums_is_read_with_a_warning(copy, caplog):
    saved_model.load(copy)
    assert f"{copy / 'model.json'} has no checksums" in caplog.text


def test_a_model_of_the_second_format_is_read(model, tmp_path, caplog):
    folder = tmp_path / "model"
    shutil.copytree(model, folder)
    document = json.loads((folder / "config.json").read_text())
    for name in ("checksum", "library_name", "pujax_version", "estimates", "test"):
        del document[name]
    document["format"] = 2
    document["checksum"] = checksums.of_document(document)
    (folder / "config.json").unlink()
    (folder / "model.json").write_text(json.dumps(document))
    assert isinstance(saved_model.load(folder).method, Method)
    assert "no checksums" not in caplog.text
    changed(folder / "model.json", "decide", value="top:3")
    assert "is not what was saved" in refusal(folder)


@pytest.mark.parametrize(("name", "value"), [("format", 1), ("library_name", "transformers")])
def test_a_config_of_something_else_is_refused(model, tmp_path, name, value):
    """A description under the new name cannot say that it has no checksums."""
    shutil.copytree(model, tmp_path / "model")
    changed(tmp_path / "model" / "config.json", name, value=value)
    assert "config.json is no model of pujax of format 3" in refusal(tmp_path / "model")


def test_the_new_name_comes_before_the_old_one(model, tmp_path):
    """A run that is finished by a newer version leaves the old description behind."""
    shutil.copytree(model, tmp_path / "model")
    (tmp_path / "model" / "model.json").write_text("{}")
    assert saved_model.load(tmp_path).description["format"] == 3


def test_an_error_of_this_version_is_not_taken_for_damage(model, monkeypatch, caplog):
    caplog.set_level("DEBUG")
    monkeypatch.setattr(saved_model.methods, "build", lambda *_: None.name)
    message = refusal(model)
    assert "is as it was saved, and this version cannot use it (AttributeError(" in message
    assert "Traceback" in caplog.text  # at debug level


@pytest.mark.parametrize("name", ["model.json", "preparation.json"])
def test_deep_json_is_refused(copy, name):
    (copy / name).write_text("[" * 100_000)
    assert "nested too deeply" in refusal(copy)


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("config",), [1]),
        (("config", "method", "name"), "os"),
        (("config", "model", "options"), {"hidden": [2**60]}),
        (("config", "model", "options"), {"hidden": [60_000, 60_000]}),
        (("config", "run", "eval_batch_size"), 10**9),
        (("info", "input_shape"), [10**12]),
        (("info", "n_p"), "many"),
        (("info",), {}),
        (("calibration",), {"kind": 1}),
        (("decide",), "all"),
        (("id_name",), None),
        (("format",), 3),
    ],
)
def test_a_description_that_cannot_be_is_refused(copy, place, value):
    changed(copy / "model.json", *place, value=value)
    refusal(copy)


@pytest.mark.parametrize("part", ["files", "arrays"])
def test_checksums_that_are_none_are_refused(model, tmp_path, part):
    shutil.copytree(model, tmp_path / "model")
    path = tmp_path / "model" / "config.json"
    document = json.loads(path.read_text())
    del document["checksum"]
    for value in (3, None, {"../config.json": "0"} if part == "files" else ["a"]):
        forged = document | {part: value}
        path.write_text(json.dumps(forged | {"checksum": checksums.of_document(forged)}))
        assert f"is damaged ({part})" in refusal(tmp_path / "model")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("kept", [10**6]),
        ("kept", [-1]),
        ("fill", ["x"]),
        ("fill", [1e999]),
        ("columns", [{"name": "a", "kind": "code"}]),
        ("columns", [1]),
        ("columns", [{"name": "a", "kind": "number", "low": 1.0}]),
        ("columns", [{"name": "a", "kind": "number", "low": 1.0, "high": "2"}]),
        ("columns", [{"name": "a", "kind": "number", "low": 1.0, "high": 0.0}]),
        ("columns", [{"name": "a", "kind": "words", "missing": 7}]),
        ("first_index", 7),
        ("aside", [1]),
        ("feature_names", "ab"),
        ("sources", [1]),
        ("sources", ["a"] * 99),
        ("offsets", ["1"]),
        ("offsets", [0.0] * 99),
        pytest.param("encoder", {}, marks=pytest.mark.thorough),  # it imports skops
        pytest.param("encoder", {"sha256": 3, "versions": {}}, marks=pytest.mark.thorough),
    ],
)
def test_a_preparation_that_cannot_be_is_refused(copy, name, value):
    changed(copy / "preparation.json", name, value=value)
    refusal(copy)


def test_an_encoder_with_another_description_is_refused(tmp_path):
    path = tmp_path / "encoder.npz"
    for description in ('["a"]', "[" * 100_000, "3"):
        np.savez(path, description=np.asarray(description), **{"params/a": np.ones(2)})
        with pytest.raises(ValueError, match=r"encoder.npz is damaged .*accepted"):
            encoder.load(str(path))
    np.savez(path, description=np.asarray("{}"), **{"params": np.ones(2), "params/a": np.ones(2)})
    with pytest.raises(ValueError, match="encoder.npz is damaged"):
        encoder.load(str(path))


def fuzz(read, path, contents, examples):
    """Feeds a file; returns how often it was read."""
    good, counts = path.read_bytes(), [0]

    @fuzzing.feed(examples, contents)
    def feed(content):
        path.write_bytes(content)
        try:
            read()
            counts[0] += 1
        except ValueError as error:
            assert len(str(error).splitlines()) == 1 and str(path.parent) in str(error)

    feed()
    path.write_bytes(good)
    return counts[0]


@pytest.mark.filterwarnings("ignore")  # that a damaged version differs
@pytest.mark.thorough
def test_an_encoder_of_words_is_read_or_refused(tmp_path):
    """Whoever forges `encoder.skops` forges its hash, too."""
    learned = OneHotEncoder().fit([["Rome"], ["Ulm"]])  # skrub's encoder has one of these inside
    record = table_encoder.save(learned, tmp_path)
    path = tmp_path / "encoder.skops"

    def read():
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        table_encoder.load(tmp_path, record | {"sha256": digest})

    assert fuzz(read, path, mutated([path.read_bytes()]), 300) > 0


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "examples"),
    [("model.json", 60), ("model.safetensors", 40), ("preparation.json", 60)],
)
def test_a_model_is_read_or_refused(copy, name, examples):
    path = copy / name
    content = mutated([path.read_bytes()])
    if name.endswith(".json"):
        document = json.loads(path.read_text())
        places = [(key,) for key in document]
        for key, value in document.items():
            places += [(key, inner) for inner in value] if isinstance(value, dict) else []

        def replaced(place, value):
            tree = json.loads(json.dumps(document))
            inner = tree
            for part in place[:-1]:
                inner = inner[part]
            inner[place[-1]] = value
            return json.dumps(tree).encode()

        content = st.one_of(content, st.builds(replaced, st.sampled_from(places), JSON))
    assert fuzz(lambda: saved_model.load(copy), path, content, examples) > 0
