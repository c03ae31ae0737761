"""A saved model as others get it: its card, its names on the Hugging Face Hub, its download."""

import json
import logging
import shutil
import subprocess
import sys
import types

import numpy as np
import pandas as pd
import pytest
import yaml

import pujax
from pujax import predict
from pujax.metrics import Estimate
from pujax.training import config as config_lib
from pujax.training import hub, saved_model
from tests.faults import test_model_files

model = test_model_files.model
"""The folder of a model that was never trained."""
COMMIT = "0123456789abcdef0123456789abcdef01234567"
ADDRESS = "hf://jane/fraud"


def metadata(card):
    """What stands between the first two lines of dashes."""
    before, text, _ = card.split("---\n", 2)
    assert before == ""
    return yaml.safe_load(text)


def card(model, **changes):
    """The card of a description with a few changes, as text."""
    document = json.loads((model / "config.json").read_text())
    document["config"]["run"]["license"] = changes.pop("license", "")
    document["config"]["data"]["path"] = changes.pop("path", "rows.csv")
    return saved_model.model_card.card(document | changes)


def test_the_description_says_whose_it_is_and_names_no_folder(model):
    description = json.loads((model / "config.json").read_text())
    assert description["library_name"] == "pujax"
    assert description["pujax_version"] == pujax.__version__
    assert description["config"]["data"]["path"] == "rows.csv"
    for path in model.iterdir():
        assert str(model.parent).encode() not in path.read_bytes(), path.name


def test_a_card_says_which_decision_its_numbers_are_of(model):
    said = "are those of a score above 0, not of this one"
    assert said in card(model, decide="top:5") and said not in card(model, decide="score:0")


def test_all_places_are_names_only(tmp_path):
    config = config_lib.default_config("nnpu").to_dict()
    config["init_from"] = "/home/jane/runs/first/"
    config["data"].update({"dir": "C:\\jane\\data", "test_path": "a/b.csv"})
    config["data"]["label"] = "share/year"
    found = saved_model.without_places(config)
    assert (found["init_from"], found["data"]["dir"]) == ("first", "data")
    assert (found["data"]["test_path"], found["data"]["label"]) == ("b.csv", "share/year")
    config["data"]["label"] = "/home/jane/labels.npy"
    assert saved_model.without_places(config)["data"]["label"] == "labels.npy"


def test_every_file_of_a_model_would_be_downloaded(model):
    assert {path.name for path in model.iterdir()} <= set(hub.FILES)


def test_a_card_says_unknown_of_what_nobody_knows(model):
    text = (model / "README.md").read_text()
    known = metadata(text)
    assert known == {
        "library_name": "pujax",
        "license": "unknown",
        "pipeline_tag": "tabular-classification",
        "tags": ["pujax", "jax", "positive-unlabeled-learning", "nnpu"],
    }
    assert "License of the model: unknown" in text
    assert "accuracy on rows of known class is unknown" in text and "nothing was held out" in text


def test_a_card_says_what_is_known(model):
    estimates = [
        Estimate("recall", 0.75, 0.5, 0.875, "Of all positives.")._asdict(),
        Estimate("auc", float("nan"), float("nan"), float("nan"), "Of all.")._asdict(),
    ]
    text = card(model, estimates=estimates, test={"accuracy": 0.9, "f1": None}, license="mit")
    known = metadata(text)
    assert known["license"] == "mit"
    (index,) = known["model-index"]
    (result,) = index["results"]
    assert index["name"] == "nnpu on rows.csv" and result["dataset"]["name"] == "rows.csv"
    assert [(x["type"], x["value"]) for x in result["metrics"]] == [
        ("accuracy", 0.9),
        ("recall", 0.75),
    ]
    assert "test set" in result["metrics"][0]["name"]
    # Who reads the metadata alone is told the interval, and what the number rests on.
    assert result["metrics"][1]["name"] == (
        "recall (estimate without negatives on held-out rows, 90 % interval 0.5 to 0.875. Of all "
        "positives.)"
    )
    assert "| recall | 0.7500 | 0.5000 | 0.8750 | Of all positives. |" in text
    assert "| auc | unknown | unknown | unknown | Of all. |" in text
    assert "| accuracy | 0.9000 |" in text and "| f1 | unknown |" in text


@pytest.mark.parametrize("path", ['a": b\n- "c".csv', "---\nlicense: mit", "é#:'\x07.csv", "[x"])
def test_names_do_not_change_the_metadata(model, path):
    estimates = [Estimate("recall", 0.5, 0.4, 0.6, "Of all.")._asdict()]
    known = metadata(card(model, path=path, estimates=estimates))
    assert set(known) == {"library_name", "license", "pipeline_tag", "tags", "model-index"}
    assert known["license"] == "unknown"
    shown = "".join(x if x.isprintable() else "?" for x in path)
    assert known["model-index"][0]["results"][0]["dataset"]["name"] == shown


@pytest.mark.parametrize("name", ["MIT license", "mit\ntags: x", "-", 3])
def test_a_license_that_the_hub_does_not_know_the_form_of_is_refused(name):
    config = config_lib.default_config("nnpu")
    with config.ignore_type():
        config.run.license = name
    with pytest.raises(ValueError, match="run.license"):
        config_lib.resolve(config)
    config = config_lib.default_config("nnpu")
    config.run.license = "cc-by-4.0"
    assert config_lib.resolve(config).run.license == "cc-by-4.0"


@pytest.fixture
def downloads(model, tmp_path, monkeypatch):
    """A Hub that has one model, without a network; what was asked of it."""
    folder = tmp_path / "snapshots" / COMMIT
    asked = []

    def snapshot_download(repo_id, *, revision=None, allow_patterns=None):
        asked.append((repo_id, revision, tuple(allow_patterns)))
        if repo_id != "jane/fraud":
            raise OSError(f"404 Client Error.\n\nRepository Not Found for {repo_id}")
        if not folder.exists():
            shutil.copytree(model, folder)
        return str(folder)

    fake = types.SimpleNamespace(snapshot_download=snapshot_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", fake)
    return types.SimpleNamespace(asked=asked, folder=folder)


def rows():
    return pd.DataFrame({"amount": [0.5, -1.0], "age": [30, 40]})


def test_a_model_of_the_hub_is_that_of_its_folder(model, downloads, caplog):
    caplog.set_level(logging.INFO)
    found = pujax.load(ADDRESS)
    assert downloads.asked == [("jane/fraud", None, hub.FILES)]
    scores = pujax.load(model).predict(rows()).scores
    np.testing.assert_array_equal(found.predict(rows()).scores, scores)
    assert f"revision='{COMMIT}' keeps it" in caplog.text
    assert set(found.files) == {"config.json", "model.safetensors", "preparation.json"}


def test_a_revision_is_handed_on(downloads, caplog):
    caplog.set_level(logging.INFO)
    pujax.load(ADDRESS, revision="v1.0")
    assert downloads.asked[0][:2] == ("jane/fraud", "v1.0") and "keeps it" not in caplog.text


def test_the_command_takes_an_address_and_a_revision(downloads, tmp_path, capsys):
    rows().to_csv(tmp_path / "new.csv", index=False)
    output = tmp_path / "scores.csv"
    words = [ADDRESS, str(tmp_path / "new.csv"), f"--output={output}", f"--revision={COMMIT}"]
    assert predict.main(["predict", *words]) == 0
    assert downloads.asked[0][1] == COMMIT and len(pd.read_csv(output)) == 2


def refusal(*args, **kwargs):
    with pytest.raises(ValueError) as error:
        pujax.load(*args, **kwargs)
    assert len(str(error.value).splitlines()) == 1 and "accepted: " in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    "run",
    ["hf://jane", "hf://", "hf://jane/fraud/x", "hf:///etc/passwd", "hf://../x", "hf://a/..b"]
    + ["hf://jane/fraud@main", "hf://jane/fraud\n", "hf://-a/b"],
)
def test_an_address_that_is_none_asks_nobody(downloads, run):
    assert "hf://OWNER/NAME" in refusal(run)
    assert downloads.asked == []


@pytest.mark.parametrize("revision", ["../main", "v1/../main", "a b", "-x", 3, None, "v1\n"])
def test_a_revision_that_is_none_asks_nobody(downloads, revision):
    assert "revision is" in refusal(ADDRESS, revision=revision)
    assert downloads.asked == []


def test_a_folder_asks_nobody_and_has_no_revision(model, downloads, tmp_path, monkeypatch):
    pujax.load(model)
    assert "revision is 'v1'" in refusal(model, revision="v1")
    monkeypatch.chdir(tmp_path)
    assert "or hf://OWNER/NAME" in refusal("jane/fraud")  # no such folder: not looked for elsewhere
    assert downloads.asked == []


def test_what_ends_a_download_is_one_line(downloads):
    text = refusal("hf://jane/nothing", revision="main")
    assert "hf://jane/nothing at 'main' cannot be downloaded (OSError: 404 Client" in text


def test_the_package_that_downloads_is_named_where_it_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert "pip install 'pujax[hub]'" in refusal(ADDRESS)


def test_a_download_is_checked_as_any_folder_is(downloads):
    pujax.load(ADDRESS)
    path = downloads.folder / "config.json"
    path.write_text(path.read_text().replace('"decide": "score:0"', '"decide": "score:1"'))
    assert "is not what was saved" in refusal(ADDRESS)
    path.write_text(json.dumps({"architectures": ["BertModel"], "model_type": "bert"}))
    assert "is no model of pujax" in refusal(ADDRESS)
    path.unlink()
    assert "config.json cannot be read" in refusal(ADDRESS)
    shutil.rmtree(downloads.folder)
    downloads.folder.mkdir()
    assert "cannot be read" in refusal(ADDRESS)


@pytest.mark.thorough
def test_nothing_imports_the_hub_before_it_is_asked_for():
    code = "import sys, pujax.predict\nprint('huggingface_hub' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
