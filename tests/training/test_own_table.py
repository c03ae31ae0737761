"""From one file to predictions: what a run on one's own table leaves, and how it is used again."""

import csv
import json
import pathlib

import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

import pujax
from pujax import calibration, methods, metrics, predict, training
from pujax.training import config as config_lib
from pujax.training import experiment, saved_model
from pujax.training.config import flags
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
ROWS = 400


def table(seed=0):
    """Customers with numbers, words, dates, missing cells, and a few known frauds."""
    rng = np.random.default_rng(seed)
    fraud = rng.random(ROWS) < 0.3
    frame = pd.DataFrame(
        {
            "customer": [f"C{i:04d}" for i in rng.permutation(ROWS)],
            "amount": np.round(rng.normal(20, 5, ROWS) + 15 * fraud, 2).astype(str),
            "city": np.where(fraud & (rng.random(ROWS) < 0.6), "Rome", "Paris"),
            "since": pd.date_range("2024-01-01", periods=ROWS).strftime("%Y-%m-%d"),
        }
    )
    frame.loc[rng.random(ROWS) < 0.05, "amount"] = "N/A"
    frame["is_fraud"] = (fraud & (rng.random(ROWS) < 0.5)).astype(int)
    return frame, fraud


@pytest.fixture(autouse=True)
def one_device(monkeypatch):
    monkeypatch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))


def configured(path, method="nnpu", **data):
    config = config_lib.default_config(method)
    config.data.update({"source": "own_table", "path": str(path), "label": "is_fraud"})
    config.data.update({"positive_classes": (), "num_labeled": 0, "holdout": 0.25, "prior": 0.3})
    config.data.update(data)
    config.model.name = "mlp"
    config.model.options = {"hidden": (8,), "batch_norm": method != "gradpu"}
    small = {"num_epochs": 4, "batch_size": 64, "warmup_epochs": 2, "round_epochs": 2}
    small |= {"pretrain_epochs": 2, "representation_epochs": 2, "pick_start": 1, "pick_stop": 3}
    small |= {"teacher_start": 3, "calibration_meta": False, "augment": False}
    config.method.update({k: v for k, v in small.items() if k in config.method})
    config.run.update({"figures": False})
    return config


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """Folder of a finished run, its file, who is a fraud, and what was printed."""
    folder = tmp_path_factory.mktemp("own")
    frame, fraud = table()
    frame.to_csv(folder / "customers.csv", index=False)
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
        patch.setattr(experiment, "message", said.append)
        summary = training.run(configured(folder / "customers.csv"), str(folder / "run"))
    return folder, frame, fraud, "\n".join(said), summary


def test_predictions_name_every_unlabeled_row_once_in_the_order_of_the_file(finished):
    folder, frame, fraud, *_ = finished
    written = pd.read_csv(folder / "run" / "predictions.csv")
    names = ["customer", "score", "probability", "rank", "decision", "held_out"]
    assert (
        list(written) == names and written.held_out.sum() == 100 - 16
    )  # a quarter of 66 and of 334
    unlabeled = frame[frame.is_fraud == 0]
    assert list(written.customer) == list(unlabeled.customer)
    order = np.argsort(-written.score, kind="stable")
    assert written["rank"].iloc[order].is_monotonic_increasing and written["rank"].min() == 1
    assert written.probability.iloc[order].is_monotonic_decreasing
    assert written.probability.between(0, 1).all()
    assert (written.decision == (written.score > 0)).all()
    truth = fraud[unlabeled.index]
    assert metrics.auc(written.score.to_numpy(), truth) > 0.8


def test_what_is_known_without_negatives_is_said_with_intervals(finished):
    folder, _, _, said, summary = finished
    held = {entry["name"]: entry for entry in summary["held_out"]}
    assert json.loads((folder / "run" / "held_out.json").read_text()) == summary["held_out"]
    assert {"recall", "auc_pu", "auc", "precision", "accuracy", "f1"} <= set(held)
    for entry in held.values():
        if entry["value"] is not None:
            assert entry["low"] <= entry["value"] <= entry["high"] and entry["assumption"]
            assert entry["name"] in said
    assert "is_fraud" in said and "'customer'" in said and "no test set" in said
    assert "validation 100" in said and summary["test"] == {}


def test_the_held_out_rows_are_in_no_part_of_training(finished):
    folder, frame, *_ = finished
    data = experiment.load_data(config_lib.resolve(configured(folder / "customers.csv")))
    together = np.concatenate([data.source_ids, data.validation_ids])
    assert sorted(together) == list(range(ROWS))
    labeled = np.flatnonzero(frame.is_fraud == 1)
    assert set(data.source_ids[data.labeled]) < set(labeled)
    assert len(data.validation_ids) == 100
    assert data.validation_labeled.sum() == round(len(labeled) / 4)
    # Preparation does not look at them: other cells there leave the training rows as they are.
    other = frame.copy()
    other.loc[data.validation_ids, "amount"] = "1000000"
    other.loc[data.validation_ids, "city"] = "Oslo"
    other.to_csv(folder / "other.csv", index=False)
    changed = experiment.load_data(config_lib.resolve(configured(folder / "other.csv")))
    np.testing.assert_array_equal(changed.inputs, data.inputs)
    assert changed.info.mean == data.info.mean


def test_a_loaded_model_gives_the_numbers_of_training(finished):
    folder, frame, *_ = finished
    written = pd.read_csv(folder / "run" / "predictions.csv", index_col="customer")
    result = pujax.load(folder / "run").predict(frame)
    assert result.id_name == "customer" and list(result.ids) == list(frame.customer)
    scores = pd.Series(result.scores, index=result.ids)[written.index]
    np.testing.assert_allclose(scores, written.score, rtol=1e-6)
    # New rows are of the population, which has more positives than what is left unlabeled.
    shares = pd.Series(result.probabilities, index=result.ids)[written.index]
    assert (shares >= written.probability - 1e-6).all() and (shares > written.probability).any()
    learned = saved_model.load(folder / "run" / "model").calibration
    wanted = calibration.probabilities(learned, result.scores, unlabeled_only=False)
    np.testing.assert_array_equal(result.probabilities, wanted)
    top = pujax.load(folder / "run").predict(frame, decide="top:7")
    assert top.decisions.sum() == 7 and set(result.ranks[top.decisions]) == set(range(1, 8))


def test_the_model_holds_what_prediction_needs_and_no_more(finished):
    folder, *_ = finished
    numbers = safetensors.numpy.load_file(folder / "run" / "model" / "model.safetensors")
    assert numbers and not any("opt_state" in name for name in numbers)
    card = (folder / "run" / "model" / "README.md").read_text()
    assert "nnpu" in card and "0.3000 (given)" in card and "score:0" in card


def test_new_rows_may_lack_the_label_hold_new_words_and_missing_cells(finished, tmp_path, capsys):
    folder, frame, *_ = finished
    new = frame.drop(columns="is_fraud").iloc[:5].copy()
    new.loc[0, "city"], new.loc[1, "amount"] = "Atlantis", ""
    new.to_csv(tmp_path / "new.csv", index=False)
    target = tmp_path / "deep" / "scores.csv"
    command = ["predict", str(folder / "run"), str(tmp_path / "new.csv"), f"--output={target}"]
    assert predict.main(command) == 0
    with open(target) as file:
        lines = list(csv.DictReader(file))
    assert [line["customer"] for line in lines] == list(new.customer)
    assert all(np.isfinite(float(line["score"])) for line in lines)
    assert "5 rows" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda frame: frame.drop(columns="city"), "city"),
        (lambda frame: frame.assign(colour="red"), "colour"),
        (lambda frame: frame.assign(amount="much"), "amount"),
    ],
)
def test_other_columns_are_refused_by_name_and_nothing_is_written(
    finished, tmp_path, capsys, change, message
):
    folder, frame, *_ = finished
    change(frame).to_csv(tmp_path / "new.csv", index=False)
    target = tmp_path / "out" / "scores.csv"
    assert predict.main(["p", str(folder / "run"), str(tmp_path / "new.csv"), f"--output={target}"])
    error = capsys.readouterr().err.strip()
    assert message in error and len(error.splitlines()) == 1
    assert not target.parent.exists()


def test_other_ids_or_another_decision_do_not_go_on_in_the_same_folder(finished, tmp_path):
    folder, frame, *_ = finished
    config = configured(folder / "customers.csv")
    config.run.decide = "top:10"
    with pytest.raises(ValueError, match="run.decide: 'score:0' there, 'top:10' here"):
        training.run(config, str(folder / "run"))
    frame.assign(customer=frame.customer.str.replace("C", "D")).to_csv(
        tmp_path / "renamed.csv", index=False
    )
    with pytest.raises(ValueError, match="holds a run on other data"):
        training.run(configured(tmp_path / "renamed.csv"), str(folder / "run"))


def test_unlabeled_rows_of_two_sample_data_hold_no_copies_of_the_labelled(finished):
    folder, frame, *_ = finished
    config = configured(folder / "customers.csv", setting="two_sample")
    data = experiment.load_data(config_lib.resolve(config))
    assert len(set(data.source_ids)) == len(data.source_ids) == 300
    assert data.info.n_u + 84 == (frame.is_fraud == 0).sum()
    assert data.info.prior == data.info.prior_unlabeled == 0.3


def test_known_negatives_count_as_unlabeled_and_say_nothing_of_the_prior(tmp_path):
    frame, fraud = table()
    words = np.where(frame.is_fraud == 1, "1", np.where(~fraud & (frame.index % 3 == 0), "0", ""))
    frame.assign(is_fraud=words).to_csv(tmp_path / "a.csv", index=False)
    config = configured(tmp_path / "a.csv", "vpu", prior=None)
    summary = training.run(config, str(tmp_path / "run"))
    assert summary["prior"] is None and summary["counts"]["hidden_positives"] is None
    assert summary["labeling"]["c"] is None and summary["train"]["label_accuracy"] is None
    written = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert len(written) == (words != "1").sum()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_negatives": 70}, "data.num_negatives is 70; accepted: 0 with data.num_labeled=0"),
        ({"num_labeled": 20, "holdout": 0.0}, "data.num_labeled is 20; accepted: 0, which takes"),
        ({"path": "/nowhere/a.csv"}, "data.path is '/nowhere/a.csv', which does not exist"),
        ({"label": ""}, "data.label is ''; accepted: the column that holds the label: 'customer'"),
        ({"label": "is_froud"}, "is_froud.*did you mean 'is_fraud'"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(finished, tmp_path, change, message):
    folder, *_ = finished
    config = configured(folder / "customers.csv")
    config.data.update(change)
    with pytest.raises(ValueError, match=message):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_probability_that_nobody_can_know_is_refused_before_training(finished, tmp_path):
    folder, *_ = finished
    config = configured(folder / "customers.csv", "vpu", prior=None)
    config.run.decide = "probability:0.5"
    with pytest.raises(ValueError, match="run.decide is 'probability:0.5'; accepted: another"):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_the_configuration_as_it_is_shipped_ends_with_predictions(finished, tmp_path, monkeypatch):
    folder, *_ = finished
    monkeypatch.chdir(REPOSITORY)
    config, *_ = flags.parse(
        ["", "--config=configs/own_table.py", f"--config.data.path={folder / 'customers.csv'}"]
        + ["--config.data.label=is_fraud", "--config.run.figures=False"]
    )
    summary = training.run(config, str(tmp_path))
    assert summary["prior_source"] == "estimated by best_bin" and 0 < summary["prior"] < 1
    assert pd.read_csv(tmp_path / "predictions.csv").probability.between(0, 1).all()


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"model.json cannot be read .*accepted: the folder"):
        pujax.load(tmp_path)


def test_a_damaged_model_is_named(finished, tmp_path):
    folder, *_ = finished
    for path in (folder / "run" / "model").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"model.safetensors cannot be read"):
        pujax.load(tmp_path)
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(ValueError, match=r"model.json is no model of format 1"):
        pujax.load(tmp_path)


def test_without_a_prior_there_are_ranks_and_no_probabilities(tmp_path):
    frame, _ = table(1)
    frame.to_csv(tmp_path / "a.csv", index=False)
    config = configured(tmp_path / "a.csv", "vpu", prior=None)
    summary = training.run(config, str(tmp_path / "run"))
    written = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert written.probability.isna().all() and written["rank"].notna().all()
    held = {entry["name"]: entry["value"] for entry in summary["held_out"]}
    assert held["recall"] is not None and held["auc"] is None and held["accuracy"] is None
    assert pujax.load(tmp_path / "run").predict(frame).probabilities is None


def test_a_method_that_needs_clean_examples_says_so(tmp_path):
    frame, _ = table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=r"data.num_support is 10; .*LaGAM does, .*nnpu, vpu"):
        training.run(configured(tmp_path / "a.csv", num_support=10), str(tmp_path / "run"))
    with pytest.raises(ValueError, match=r"data.num_support is 0"):
        training.run(configured(tmp_path / "a.csv", "lagam"), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


# LaGAM needs clean examples, and the supervised bound true labels.
OTHERS = ("lagam", "supervised")
BINARY = [x for x in methods.names() if not methods.is_multilabel(x) and x not in OTHERS]


@pytest.mark.thorough
@pytest.mark.parametrize("name", BINARY)
def test_every_method_predicts_what_it_did_in_training(tmp_path, name):
    frame, _ = table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    config = configured(tmp_path / "a.csv", name)
    training.run(config, str(tmp_path / "run"))
    written = pd.read_csv(tmp_path / "run" / "predictions.csv", index_col="customer")
    result = pujax.load(tmp_path / "run").predict(frame)
    scores = pd.Series(result.scores, index=result.ids)[written.index]
    if name != "pusb":  # whose threshold is that of a set
        np.testing.assert_allclose(scores, written.score, rtol=1e-5, atol=1e-6)
