"""From one file to predictions: what a run on one's own table leaves, and how it is used again."""

import csv
import json
import os
import pathlib
import shutil

import ml_collections
import numpy as np
import pandas as pd
import pytest
import safetensors.numpy

import pujax
from pujax import calibration, methods, metrics, predict, reports, training
from pujax.configs import own_table
from pujax.data.pu_dataset import PriorChoice
from pujax.data.readers import frames
from pujax.data.sources import own_table as source
from pujax.training import config as config_lib
from pujax.training import example_scores, experiment, own_results, prior_estimation, saved_model
from pujax.training.evaluation.summary import Final
from tests import tiny

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


pytestmark = pytest.mark.usefixtures("one_device")


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


def load(path, **data):
    """The problem of a file, without a run."""
    return experiment.load_data(config_lib.resolve(configured(path, **data)))


def prior_in_unlabeled(folder):
    """The prior in U of a finished run."""
    return json.loads((folder / "run" / "summary.json").read_text())["prior_unlabeled"]


def held_out(folder, frame):
    """Scores of the labelled and of the unlabeled rows that were held out."""
    data = experiment.load_data(config_lib.resolve(configured(folder / "customers.csv")))
    scores = pujax.load(folder / "run").predict(frame).scores[data.validation_ids]
    return scores[data.validation_labeled], scores[~data.validation_labeled]


@pytest.fixture(scope="module")
def finished(tmp_path_factory, one_device):
    """Folder of a finished run, its file, who is a fraud, and what was printed."""
    folder = tmp_path_factory.mktemp("own")
    frame, fraud = table()
    frame.to_csv(folder / "customers.csv", index=False)
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "message", said.append)
        summary = training.run(configured(folder / "customers.csv"), str(folder / "run"))
    return folder, frame, fraud, "\n".join(said), summary


def test_scores_of_the_examples_are_those_of_the_predictions(finished):
    folder, frame, *_ = finished
    written = pd.read_csv(folder / "run" / "predictions.csv", index_col="customer")
    found = example_scores.read(folder / "run")
    for part in ("train", "held"):
        rows, labeled = getattr(found, f"{part}_ids"), getattr(found, f"{part}_labeled")
        customers = frame.customer.to_numpy()[rows[~labeled]]
        listed = written.loc[customers]
        assert (listed.held_out == (part == "held")).all()
        scores = getattr(found, f"{part}_scores")[~labeled]
        chances = getattr(found, f"{part}_probabilities")[~labeled]
        # Written with 8 and 6 digits; float32 has 7.
        np.testing.assert_allclose(scores, listed.score, rtol=1e-6)
        np.testing.assert_allclose(chances, listed.probability, rtol=1e-5, atol=1e-6)
        assert (frame.is_fraud.to_numpy()[rows] == labeled).all()


@pytest.mark.thorough
def test_a_page_shows_rows_of_the_file(finished):
    folder, frame, *_ = finished
    page = reports.build([str(folder / "run")])
    written = pd.read_csv(folder / "run" / "predictions.csv")
    best = written.customer[written["rank"].idxmin()]
    assert f"customer {best}" in page.html and "could not be read" not in page.html
    assert page.html.count("<svg") >= 6


def test_predictions_name_every_unlabeled_row_once_in_the_order_of_the_file(finished):
    folder, frame, fraud, *_ = finished
    written = pd.read_csv(folder / "run" / "predictions.csv")
    names = ["customer", "score", "probability", "rank", "decision", "held_out"]
    names += ["probability_low", "probability_high"]
    assert (
        list(written) == names and written.held_out.sum() == 100 - 16
    )  # a quarter of 66 and of 334
    unlabeled = frame[frame.is_fraud == 0]
    assert list(written.customer) == list(unlabeled.customer)
    order = np.argsort(-written.score, kind="stable")
    assert written["rank"].iloc[order].is_monotonic_increasing and written["rank"].min() == 1
    assert written.probability.iloc[order].is_monotonic_decreasing
    assert written.probability.between(0, 1).all()
    assert written.probability.between(written.probability_low, written.probability_high).all()
    assert (written.probability_high > written.probability_low + 0.05).any()
    assert (written.decision == (written.score > 0)).all()
    truth = fraud[unlabeled.index]
    assert metrics.auc(written.score.to_numpy(), truth) > 0.8


@pytest.mark.parametrize(("name", "given"), [("rank", ""), ("held_out", "held_out")])
def test_an_id_with_the_name_of_a_column_of_predictions_is_called_id(tmp_path, name, given):
    frame = table()[0].drop(columns="customer")
    frame[name] = np.arange(1, ROWS + 1)[::-1]
    frame.to_csv(tmp_path / "a.csv", index=False)
    training.run(configured(tmp_path / "a.csv", "naive", id_column=given), str(tmp_path / "run"))
    unlabeled = frame[frame.is_fraud == 0]
    output = tmp_path / "scores.csv"
    command = ["predict", str(tmp_path / "run"), str(tmp_path / "a.csv"), f"--output={output}"]
    for _ in range(2):  # the second replaces the first
        assert predict.main(command) == 0
    for path, rows in ((tmp_path / "run" / "predictions.csv", unlabeled), (output, frame)):
        written = frames.read(path)  # which refuses two columns of one name
        assert written.names[:5] == ("id", "score", "probability", "rank", "decision")
        assert written.values["id"].tolist() == [str(row) for row in rows[name]]


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


def test_estimates_are_those_of_the_held_out_scores(finished):
    folder, frame, _, _, summary = finished
    positive, unlabeled = held_out(folder, frame)
    assert (len(positive), len(unlabeled)) == (16, 84)
    wanted = {"recall": (positive > 0).mean(), "flagged_share": (unlabeled > 0).mean()}
    wanted["auc_pu"] = (positive[:, None] > unlabeled).mean()
    held = {entry["name"]: entry["value"] for entry in summary["held_out"]}
    assert {name: held[name] for name in wanted} == pytest.approx(wanted)


def test_estimates_have_the_range_of_the_prior_that_probabilities_have(finished):
    folder, frame, *_ = finished
    data = experiment.load_data(config_lib.resolve(configured(folder / "customers.csv")))
    used = data.info.prior_unlabeled
    shares = {"km2": (used, used - 0.02, used + 0.03), "best_bin": (0.5, 0.4, 0.55)}
    data = data._replace(prior_choice=PriorChoice("km2", False, shares))
    positive, unlabeled = held_out(folder, frame)
    scores = np.concatenate([positive, unlabeled])
    every = np.zeros(data.info.n)
    final = Final({}, scores, every, None, {}, {}, held_scores=scores)
    # Half of the smallest lower end to the largest upper end.
    wanted = metrics.unlabeled_estimates(
        *(positive, unlabeled),
        prior=used,
        prior_interval=((used - 0.02) / 2, 0.55),
        setting="one_sample",
        labeled_share=66 / 400,  # training rows: 50 labelled of 300
    )
    known = own_results.of(data, final)
    for estimate, other in zip(known.estimates, wanted, strict=True):
        assert estimate[:1] == other[:1] and estimate[1:4] == pytest.approx(other[1:4], nan_ok=True)
    ends = own_results.fit_ends(data, final, known)
    assert tuple(ends.priors) == pytest.approx(((used - 0.02) / 2, 0.55))
    bound = metrics.largest_prior(positive, unlabeled, level=0.95)
    assert known.largest_prior == bound > metrics.largest_prior(positive, unlabeled)


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
    assert (shares > written.probability + 1e-4).any()
    learned = saved_model.load(folder / "run" / "model").calibration
    in_u = calibration.probabilities(learned, written.score.to_numpy())
    np.testing.assert_allclose(written.probability, in_u, rtol=1e-4)
    wanted = calibration.probabilities(learned, result.scores, unlabeled_only=False)
    np.testing.assert_array_equal(result.probabilities, wanted)
    ends = saved_model.load(folder / "run" / "model").ends
    assert ends.priors[0] == ends.priors[1] == prior_in_unlabeled(folder)  # the prior is given
    in_u = calibration.probability_interval(learned, ends, written.score.to_numpy())
    new = calibration.probability_interval(learned, ends, result.scores, unlabeled_only=False)
    found = (result.probabilities_low, result.probabilities_high)
    for name, expected, told, of_new in zip(("low", "high"), in_u, found, new, strict=True):
        np.testing.assert_allclose(written[f"probability_{name}"], expected, rtol=1e-4)
        np.testing.assert_array_equal(told, of_new)
    top = pujax.load(folder / "run").predict(frame, decide="top:7")
    assert top.decisions.sum() == 7 and set(result.ranks[top.decisions]) == set(range(1, 8))


def test_the_model_holds_what_prediction_needs_and_no_more(finished):
    folder, *_ = finished
    numbers = safetensors.numpy.load_file(folder / "run" / "model" / "model.safetensors")
    assert numbers and not any("opt_state" in name for name in numbers)
    card = (folder / "run" / "model" / "README.md").read_text()
    assert "nnpu" in card and "0.3000 (given)" in card and "score:0" in card
    assert "`probability_low`" in card and card.count("% of the unlabeled rows are positive") == 1
    assert "% to " not in card  # the prior is given


def test_a_model_of_earlier_days_has_no_ends_and_leaves_their_cells_empty(finished, tmp_path):
    folder, frame, *_ = finished
    shutil.copytree(folder / "run" / "model", tmp_path / "model")
    description = json.loads((tmp_path / "model" / "config.json").read_text())
    (tmp_path / "model" / "config.json").unlink()
    for name in ("probability_ends", "checksum", "arrays", "files"):
        del description[name]
    description["format"] = 1
    (tmp_path / "model" / "model.json").write_text(json.dumps(description))
    model = pujax.load(tmp_path / "model")
    assert model.predict(frame).probabilities_low is None
    model.write(frame, str(tmp_path / "scores.csv"))
    written = pd.read_csv(tmp_path / "scores.csv")
    assert written.probability_low.isna().all() and written.probability.notna().all()


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


def test_an_output_that_would_take_the_place_of_something_is_refused(
    finished, tmp_path, capsys, monkeypatch
):
    folder, frame, *_ = finished
    monkeypatch.chdir(tmp_path)
    frame.to_csv("new.csv", index=False)
    run = str(folder / "run")
    for output, message in (
        ("new.csv", "another file than the rows"),
        (str(folder / "run" / "predictions.csv"), "a place outside of the run's folder"),
        (str(folder / "run" / "model" / "scores.csv"), "a place outside of the run's folder"),
        ("/dev/null", "--output is '/dev/null'; accepted: the name of a file"),
    ):
        assert predict.main(["predict", run, "new.csv", f"--output={output}"]) == 2
        assert message in capsys.readouterr().err
    assert len(pd.read_csv("new.csv")) == ROWS
    assert predict.main(["predict", run, "new.csv"]) == 0
    assert (tmp_path / "scores.csv").exists()


def test_few_rows_are_trained_in_smaller_batches(tmp_path):
    frame, _ = table()
    frame[:60].to_csv(tmp_path / "a.csv", index=False)
    config = configured(tmp_path / "a.csv")
    config.method.batch_size = 256
    first = training.run(config, str(tmp_path / "run"))
    stored = json.loads((tmp_path / "run" / "config.json").read_text())
    assert stored["method"]["batch_size"] == 44  # 45 rows train
    labels = frame.is_fraud[:60].sum()
    (said,) = (text for text in first["warnings"] if "too few to judge" in text)
    assert labels < 30 and said.startswith(f"{labels} labelled positives, ")
    assert training.run(config, str(tmp_path / "run")) == first


def test_a_run_that_is_refused_leaves_no_folder(tmp_path, monkeypatch):
    frame, _ = table()
    few = frame.assign(is_fraud=np.arange(ROWS) < 3)
    few.to_csv(tmp_path / "a.csv", index=False)
    monkeypatch.chdir(tmp_path)
    message = "'auto' with 2 labelled and .* beside 1 and 99 held out; accepted: at least 4 of each"
    with pytest.raises(ValueError, match=message):
        training.run(configured(tmp_path / "a.csv", prior="auto"))
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]


def test_a_folder_that_cannot_be_written_is_named_before_the_file_is_read(tmp_path):
    accepted = r"^--workdir is '/proc/x/run', but nothing can be written in /proc "
    with pytest.raises(ValueError, match=accepted):
        training.run(configured(tmp_path / "none.csv"), "/proc/x/run")


def test_runs_that_begin_in_one_second_have_folders_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with experiment._new_folder("x") as first, experiment._new_folder("x") as second:
        assert first != second and os.path.isdir(first) and os.path.isdir(second)
        pathlib.Path(second, "config.json").write_text("{}")
    assert not os.path.exists(first) and os.listdir(second) == ["config.json"]


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


@pytest.mark.thorough
def test_few_positives_keep_their_share_in_the_population(tmp_path):
    frame, _ = table()
    few = np.flatnonzero(frame.is_fraud)[:6]  # a quarter of them is rounded to 2
    frame["is_fraud"] = np.isin(np.arange(ROWS), few).astype(int)
    frame.to_csv(tmp_path / "a.csv", index=False)
    training.run(configured(tmp_path / "a.csv", "vpu"), str(tmp_path / "run"))
    learned = saved_model.load(tmp_path / "run").calibration
    in_u = 0.3 * ROWS - 6  # hidden positives; the share of all in the population is given
    assert learned.labeled_odds == pytest.approx(6 / in_u, rel=0.02)


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


def test_a_file_of_known_classes_beside_the_table_is_the_test_set(tmp_path):
    frame, fraud = table()
    frame[:300].to_csv(tmp_path / "a.csv", index=False)
    known = frame[300:].assign(is_fraud=np.where(fraud[300:], "yes", "no"))
    known.to_csv(tmp_path / "known.csv", index=False)
    config = configured(tmp_path / "a.csv", test_path=str(tmp_path / "known.csv"))
    summary = training.run(config, str(tmp_path / "run"))
    scores = pujax.load(tmp_path / "run").predict(known).scores
    assert summary["test"]["accuracy"] == pytest.approx(np.mean((scores > 0) == fraud[300:]))
    assert summary["test"]["auc"] == pytest.approx(metrics.auc(scores, fraud[300:]))
    assert {entry["name"] for entry in summary["held_out"]} >= {"recall", "auc"}


def test_how_the_labels_of_a_test_set_were_read_is_said(tmp_path):
    frame, fraud = table()
    frame[:300].to_csv(tmp_path / "a.csv", index=False)
    frame[300:].assign(is_fraud=fraud[300:].astype(int)).to_csv(tmp_path / "b.csv", index=False)
    data = load(tmp_path / "a.csv", test_path=str(tmp_path / "b.csv"))
    count = fraud[300:].sum()
    said = f"test label 'is_fraud': {count} rows '1' positive, {100 - count} rows '0' negative"
    assert said in data.own.notes and data.own.test_copies is None
    words = np.where(fraud[300:], "fraud", np.where(np.arange(100) % 2, "open", "closed"))
    frame[300:].assign(is_fraud=words).to_csv(tmp_path / "b.csv", index=False)
    frame[:300].replace({"is_fraud": {1: "fraud"}}).to_csv(tmp_path / "a.csv", index=False)
    data = load(tmp_path / "a.csv", test_path=str(tmp_path / "b.csv"), positive="fraud")
    said = next(note for note in data.own.notes if note.startswith("test label"))
    assert f"{count} rows 'fraud' positive" in said and "rows 'open' negative" in said


def test_a_single_positive_cannot_be_held_out_and_is_one_example(tmp_path):
    frame = table()[0].assign(is_fraud=[1, *[0] * (ROWS - 1)])
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match="has 1 positive example, of which data.holdout=0.25 hold"):
        load(tmp_path / "a.csv")


@pytest.mark.parametrize("link", [False, True])
def test_the_training_file_is_no_test_set(tmp_path, link):
    table()[0].to_csv(tmp_path / "a.csv", index=False)
    test_path = tmp_path / "a.csv"
    if link:
        test_path = tmp_path / "b.csv"
        test_path.symlink_to(tmp_path / "a.csv")
    with pytest.raises(ValueError, match="^data.test_path is .*same file as data.path; accepted"):
        training.run(configured(tmp_path / "a.csv", test_path=str(test_path)), str(tmp_path / "r"))
    assert not (tmp_path / "r").exists()


def test_test_rows_that_are_training_rows_are_counted_and_warned_of(tmp_path, monkeypatch):
    frame, fraud = table()
    frame[:300].to_csv(tmp_path / "a.csv", index=False)
    known = frame.assign(is_fraud=fraud.astype(int))[280:].drop(columns="customer")
    known.to_csv(tmp_path / "b.csv", index=False)
    said = []
    monkeypatch.setattr(experiment, "message", said.append)
    config = configured(tmp_path / "a.csv", "naive", test_path=str(tmp_path / "b.csv"))
    config.method.num_epochs = 1
    summary = training.run(config, str(tmp_path / "run"))
    text = "20 of 120 test rows (16.7%) are also training rows, equal in every feature column; of"
    assert any(f"warning: {text}" in x for x in said)
    assert any(x.startswith(text) for x in summary["warnings"])
    copies = {"rows": 20, "same_id": 0, "of": 120, "among_training": 0.0}
    assert summary["test_copies"] == copies


def test_a_test_row_with_the_id_of_a_training_row_is_counted_and_a_count_of_rows_names_none(
    tmp_path,
):
    frame, fraud = table()
    frame[:300].to_csv(tmp_path / "a.csv", index=False)
    known = frame[300:].assign(is_fraud=fraud[300:].astype(int))
    known.iloc[:7, 0] = frame.customer[:7]
    known.to_csv(tmp_path / "b.csv", index=False)
    copies = load(tmp_path / "a.csv", test_path=str(tmp_path / "b.csv")).own.test_copies
    assert copies.rows == copies.same_id == 7 and copies.of == 100
    assert "equal in every feature column or with the same id (7); of" in copies.sentence
    for trained, tested in (("{}", "{}.0"), ("{}.0", "{}")):  # as pandas may write whole numbers
        for name, part, form in (("a.csv", frame[:300], trained), ("b.csv", known, tested)):
            numbers = part.customer.str[1:].astype(int).map(form.format)
            part.assign(customer=numbers).to_csv(tmp_path / name, index=False)
        test_path = str(tmp_path / "b.csv")
        read = load(tmp_path / "a.csv", test_path=test_path, id_column="customer")
        assert read.own.test_copies == copies
    for name, part in (("a.csv", frame[:300]), ("b.csv", known)):
        counted = np.arange(len(part))[::-1]  # in any order, as after a sort
        part.assign(customer=counted).to_csv(tmp_path / name, index=False)
    assert load(tmp_path / "a.csv", test_path=str(tmp_path / "b.csv")).own.test_copies is None


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (["yes", "no", ""], r"known.csv, line 4, column 'is_fraud' says nothing of the class"),
        (["no", "no", "no"], r"known.csv: the label 'is_fraud' has no positive"),
        (["1", "1", "1"], r"has nothing but positives: '1' 3 times; accepted: known negatives as"),
        (["yes", "no", "maybe"], r"known.csv, line 4, column 'is_fraud' is 'maybe'"),
    ],
)
def test_a_test_set_of_unknown_classes_is_refused_by_line(finished, tmp_path, column, message):
    folder, frame, *_ = finished
    frame[:3].assign(is_fraud=column).to_csv(tmp_path / "known.csv", index=False)
    config = configured(folder / "customers.csv", test_path=str(tmp_path / "known.csv"))
    with pytest.raises(ValueError, match=message):
        training.run(config, str(tmp_path / "run"))
    config = configured(folder / "customers.csv", test_path=str(tmp_path / "none.csv"))
    with pytest.raises(ValueError, match=r"data.test_path is .*none.csv', which does not exist"):
        training.run(config, str(tmp_path / "run"))


def test_a_word_for_positives_makes_every_other_word_of_a_test_set_negative(tmp_path):
    frame, fraud = table()
    words = np.where(frame.is_fraud == 1, "fraud", "open")
    frame.assign(is_fraud=words).to_csv(tmp_path / "a.csv", index=False)
    words = np.where(fraud, "fraud", "closed")
    frame.assign(is_fraud=words).to_csv(tmp_path / "known.csv", index=False)
    config = configured(tmp_path / "a.csv", test_path=str(tmp_path / "known.csv"), positive="fraud")
    data = experiment.load_data(config_lib.resolve(config))
    np.testing.assert_array_equal(data.test_labels, fraud)
    assert data.test_inputs.shape == (ROWS, data.inputs.shape[1])


@pytest.mark.parametrize(
    ("cells", "is_known"),
    [
        (("1", "0", "Unlabelled"), False),
        (("1", "2", "unknown"), False),
        (("1", "no", "-1"), False),
        (("1", "0", ""), False),
        (("1", "2", "-1"), True),  # any other word is another class
        (("1", "-1", "-1"), True),
        (("u", "-1", "1"), True),
        (("0", "-1", "-1"), True),  # the word for positives is no negative
        (("d", "u", "l"), True),
        (("1", "-1", "7"), True),
    ],
)
def test_beside_a_word_for_positives_an_unknown_class_is_refused_by_line(tmp_path, cells, is_known):
    frame = pd.DataFrame({"amount": [1.5, 2.5, 3.5]})
    positive = cells[0]
    frame.assign(is_fraud=[positive, "", ""]).to_csv(tmp_path / "a.csv", index=False)
    frame.assign(is_fraud=cells).to_csv(tmp_path / "b.csv", index=False)
    said = {"path": "a.csv", "test_path": "b.csv", "label": "is_fraud", "positive": positive}
    if is_known:
        assert source.load(tmp_path, **said).test_labels.tolist() == [1, 0, 0]
        return
    with pytest.raises(ValueError, match="b.csv, line 4, column 'is_fraud' says nothing of the"):
        source.load(tmp_path, **said)


def test_columns_are_left_out_or_read_as_words_where_that_is_said(tmp_path):
    frame, _ = table()
    codes = np.where(np.arange(ROWS) % 2, "01067", "80331")
    frame.assign(plz=codes, **{"a,b": "x", "note": codes}).to_csv(tmp_path / "a.csv", index=False)
    config = configured(tmp_path / "a.csv", leave_out="since, note,since", words="plz")
    data = experiment.load_data(config_lib.resolve(config))
    learned = data.own.preparation
    assert {c.name: c.kind for c in learned.columns} == {
        "amount": "number",
        "city": "words",
        "plz": "category",
        "a,b": "dropped",
    }
    assert "left out, as data.leave_out says: 'since', 'note'" in data.own.notes
    new = frame.assign(plz="01067").drop(columns=["since", "is_fraud", "customer"])
    x = learned.transform(new.assign(**{"a,b": "x"}))
    place = learned.feature_names.index("plz_01067")
    np.testing.assert_array_equal(x[:, [place, place + 1]], [[1, 0]] * ROWS)
    assert learned.feature_names[place + 1] == "plz_80331"
    also = learned.transform(new.assign(since="?", note=1, customer=2, **{"a,b": "x"}))
    np.testing.assert_array_equal(also, x)  # new rows may have what is left out
    with pytest.raises(ValueError, match="has 'age', which training rows do not have"):
        learned.transform(new.assign(age=1, **{"a,b": "x"}))
    # A name with a comma is one column where there is such a one.
    config.data.update({"leave_out": "a,b", "words": ""})
    read = experiment.load_data(config_lib.resolve(config)).own.preparation
    assert [c.name for c in read.columns] == ["amount", "city", "since", "plz", "note"]
    assert "data.words='plz' reads them as words" in " ".join(read.messages)


def test_of_two_arrays_is_said_which_row_is_the_first_of_the_second(tmp_path):
    """A row of `predictions.csv` is looked up in `unlabeled`."""
    rows = np.random.default_rng(0).normal(size=[80, 2])
    np.savez(tmp_path / "pair.npz", unlabeled=rows[30:], positives=rows[:30])
    own = load(tmp_path / "pair.npz", label="", prior=0.6).own
    assert own.id_name == "row"
    np.testing.assert_array_equal(own.ids, np.arange(1, 81))
    assert "rows are counted over both arrays: row 31 is the first of 'unlabeled'" in own.notes
    (note,) = [x for x in own.notes if "labelled positive" in x]
    assert "known negative" not in note and "-1" not in note


def test_an_id_that_is_left_out_names_no_row(tmp_path):
    table()[0].to_csv(tmp_path / "a.csv", index=False)
    config = configured(tmp_path / "a.csv", leave_out="customer")
    own = experiment.load_data(config_lib.resolve(config)).own
    assert own.id_name == "row" and own.ids[0] == 1
    assert not any("set aside" in note for note in own.notes)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_negatives": 70}, "data.num_negatives is 70; accepted: 0 with data.num_labeled=0"),
        ({"labeling": "pusb"}, "data.labeling is 'pusb'; accepted: 'scar' with data.num_labeled=0"),
        ({"class_prior": 0.2}, "data.class_prior is 0.2; accepted: None with data.num_labeled=0"),
        ({"num_labeled": 20, "holdout": 0.0}, "data.num_labeled is 20; accepted: 0, which takes"),
        ({"path": "/nowhere/a.csv"}, "data.path is '/nowhere/a.csv', which does not exist"),
        ({"path": "/"}, "^data.path is '/', which is a folder; accepted: a file, .csv"),
        ({"test_path": "/"}, "^data.test_path is '/', which is a folder; accepted: a file"),
        ({"label": ""}, "data.label is ''; accepted: the column that holds the label: 'customer'"),
        ({"label": "is_froud"}, "^data.label is 'is_froud'.*did you mean 'is_fraud'"),
        ({"id_column": "client"}, "^data.id_column is 'client'"),
        ({"leave_out": "since,amonut"}, "^data.leave_out is 'amonut'.*did you mean 'amount'"),
        ({"leave_out": "since,"}, "^data.leave_out is ''; accepted: a column of"),
        ({"leave_out": "is_fraud"}, "^data.leave_out names 'is_fraud', which is the label; accep"),
        (
            {"leave_out": "customer", "id_column": "customer"},
            "^data.leave_out names 'customer', which is the id; accepted: other columns of",
        ),
        ({"words": "cities"}, "^data.words is 'cities'; accepted: a column of"),
        ({"words": "city,since", "leave_out": "since"}, "^data.words is 'since'; accepted: a col"),
        ({"words": "customer"}, "^data.words names 'customer', which is an id; accepted: other"),
        ({"zero_is": "no"}, "^data.zero_is is 'no'"),
        ({"label": "city"}, "'city' is 'P?p?[a-zA-Z]+'; .* as data.positive=...;"),
        (
            {"positive": "NA"},
            "^data.positive is 'NA', which stands for a missing cell; accepted: another",
        ),
        ({"num_labeled": 20}, "data.holdout is 0.25; accepted: 0 with data.num_labeled=20"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_written(finished, tmp_path, change, message):
    folder, *_ = finished
    config = configured(folder / "customers.csv")
    config.data.update(change)
    with pytest.raises(ValueError, match=message):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("method", "compare", "message"),
    [
        ("nnpu", "lagam", "^run.compare is 'lagam'; accepted: .*num_support above 0.*'vpu'"),
        ("lagam", "", "^method.name is 'lagam'; accepted: .*num_support above 0 .*'vpu'"),
        ("supervised", "", "^method.name is 'supervised'; accepted: 'classic', .*'vpu'"),
    ],
)
def test_a_method_that_needs_negatives_is_refused_by_name(tmp_path, method, compare, message):
    table()[0].to_csv(tmp_path / "customers.csv", index=False)
    config = configured(tmp_path / "customers.csv", method)
    config.run.compare = compare
    with pytest.raises(ValueError, match=message):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("rule", ["oracle", "oracle_f1"])
def test_a_rule_of_true_labels_that_nobody_knows_is_refused(finished, tmp_path, rule):
    folder, *_ = finished
    config = configured(folder / "customers.csv")
    config.run.selection = rule
    with pytest.raises(ValueError, match=f"^run.selection is '{rule}'; accepted: .*'vpu_risk'"):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_method_that_needs_hidden_labels_is_refused_with_the_reason():
    reason = "config argument method is 'supervised'; accepted: nnpu.*, which need no hidden label"
    with pytest.raises(ValueError, match=reason):
        own_table.get_config("method=supervised")
    with pytest.raises(ValueError, match=r"method is 'nmpu'; accepted: nnpu, [^;]*vpu[a-z_, ]*$"):
        own_table.get_config("method=nmpu")


@pytest.mark.parametrize(
    ("method", "compare", "start"), [("naive", "puupl", "run.compare=puupl: "), ("puupl", "", "")]
)
def test_an_error_of_a_compared_method_names_it(tmp_path, method, compare, start):
    table()[0].to_csv(tmp_path / "customers.csv", index=False)
    config = configured(tmp_path / "customers.csv", method)
    config.method.num_epochs, config.run.compare = 1, compare
    with pytest.raises(ValueError, match=f"^{start}method.num_epochs is 1; accepted: two or more"):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_batches_of_compared_methods_that_are_lowered_are_said(tmp_path, monkeypatch):
    table()[0][:200].to_csv(tmp_path / "customers.csv", index=False)
    config = configured(tmp_path / "customers.csv", "classic")  # which has no batches to share
    config.run.compare = "naive"

    def stop(*_):
        raise InterruptedError

    said = []
    monkeypatch.setattr(experiment, "message", said.append)
    monkeypatch.setattr(experiment, "_build_all", stop)
    with pytest.raises(InterruptedError):
        training.run(config, str(tmp_path / "run"))
    text = "\n".join(said)
    reason = "since there are no more rows to train on"
    assert text.endswith(f"\nnaive: method.batch_size is 150 in place of 256, {reason}")


def test_a_probability_that_nobody_can_know_is_refused_before_training(finished, tmp_path):
    folder, *_ = finished
    config = configured(folder / "customers.csv", "vpu", prior=None)
    config.run.decide = "probability:0.5"
    with pytest.raises(ValueError, match="run.decide is 'probability:0.5'; accepted: another"):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def saved_arrays(folder, labels, *, ending="npy"):
    features = np.random.default_rng(0).normal(size=[len(labels), 2, 3])
    for name, array in (("x", features), ("known", labels)):
        with open(folder / f"{name}.{ending}", "wb") as file:
            np.save(file, array)
    return configured(folder / f"x.{ending}", label=str(folder / f"known.{ending}"))


@pytest.mark.parametrize(
    ("dtype", "ending"),
    [(np.int64, "npy"), (np.float32, "npy"), (bool, "NPY"), ("U5", "npy")],  # 'True' and 'False'
)
def test_an_array_of_features_takes_its_labels_from_another(tmp_path, dtype, ending):
    labels = np.arange(40) % 4 == 1
    config = saved_arrays(tmp_path, labels.astype(dtype), ending=ending)
    data = experiment.load_data(config_lib.resolve(config))
    found = np.concatenate([data.source_ids[data.labeled], data.validation_ids])
    assert set(np.flatnonzero(labels)) <= set(found) and data.info.input_shape == (6,)
    assert set(data.source_ids[data.labeled]) <= set(np.flatnonzero(labels))
    rows = np.load(tmp_path / f"x.{ending}").reshape(40, 6)[data.source_ids]
    np.testing.assert_allclose(data.inputs, rows, rtol=1e-6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": ""}, "^data.label is ''; accepted: an .npy file with one label for each of the"),
        (
            {"label": "none.npy"},
            "^data.label is 'none.npy', which does not exist; accepted: an .n",
        ),
        ({"label": "x.npy"}, r"x.npy holds float64 of shape \(40, 2, 3\); accepted: an .npy file"),
        ({"label": "short.npy"}, r"short.npy holds bool of shape \(39,\); accepted: an .npy file"),
        (
            {"label": "dates.npy"},
            "dates.npy holds datetime64.*; accepted: .* a truth value",
        ),
        ({}, "known.npy, row 3, column 'labels' is '2'; accepted: a label such as"),
        (
            {"leave_out": "z", "positive": "1"},
            "^data.leave_out is 'z'; accepted: '', since .*x.npy names no columns",
        ),
        (
            {"id_column": "z", "positive": "1"},
            "^data.id_column is 'z'; accepted: .*x.npy: none",
        ),
        ({"label": "words.npy"}, r"words.npy cannot be read \(.*; accepted: an .npy file"),
        ({"test_path": "x.npy"}, "^data.test_path is 'x.npy'; accepted: a file with labels"),
    ],
)
def test_an_array_without_right_labels_is_refused(tmp_path, monkeypatch, change, message):
    monkeypatch.chdir(tmp_path)
    config = saved_arrays(tmp_path, np.arange(40) % 4)
    (tmp_path / "words.npy").write_text("no array")
    np.save(tmp_path / "short.npy", np.ones(39, bool))
    np.save(tmp_path / "dates.npy", np.full(40, np.datetime64("2026-01-01")))
    config.data.update(change)
    with pytest.raises(ValueError, match=message):
        experiment.load_data(config_lib.resolve(config))


def test_a_folder_without_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match=r"^the run is .*, a folder without a model; accepted"):
        pujax.load(tmp_path)


def test_a_damaged_model_is_named(finished, tmp_path):
    folder, *_ = finished
    for path in (folder / "run" / "model").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    (tmp_path / "model.safetensors").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"model.safetensors cannot be read"):
        pujax.load(tmp_path)
    (tmp_path / "config.json").unlink()
    (tmp_path / "model.json").write_text('{"format": 1}')
    with pytest.raises(ValueError, match=r"model.json is damaged \(KeyError\('config'\)\)"):
        pujax.load(tmp_path)
    (tmp_path / "model.json").write_text("{}")
    with pytest.raises(ValueError, match=r"model.json is no model of pujax of format 1 or 2"):
        pujax.load(tmp_path)


def test_a_threshold_found_on_the_rows_to_predict_is_refused(finished, tmp_path):
    folder, *_ = finished
    config = configured(folder / "customers.csv", "pusb")
    config.method.threshold_on = "test"
    with pytest.raises(ValueError, match="method.name is 'pusb'.*accepted for your own rows"):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
    options = {"threshold_on": "test"}
    rows = np.random.default_rng(0).normal(size=[40, 2])
    with pytest.raises(ValueError, match=r"^method is 'pusb' .*options\['threshold_on'\]='test'"):
        pujax.PUClassifier("pusb", prior=0.5, options=options).fit(rows, np.arange(40) < 9)


@pytest.mark.parametrize(
    ("method", "section", "field", "value", "message"),
    [
        ("pusb", "method", "threshold_on", "test", "method.name is 'pusb'.*your own rows"),
        ("naive", "data", "holdout", 0.0, "run.decide is 'probability:0.5'; accepted: another"),
    ],
)
def test_what_cannot_be_is_refused_before_the_prior_is_estimated(
    finished, tmp_path, monkeypatch, method, section, field, value, message
):
    folder, *_ = finished
    config = configured(folder / "customers.csv", method, prior="auto")
    config[section][field] = value
    if field == "holdout":
        config.run.update({"decide": "probability:0.5", "selection": "last"})
    monkeypatch.setattr(prior_estimation, "settle", lambda *a, **k: pytest.fail("estimated"))
    with pytest.raises(ValueError, match=message):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_decision_about_data_that_are_not_ones_own_is_refused(tmp_path):
    config = config_lib.default_config("nnpu")
    config.run.decide = "top:5"
    with pytest.raises(ValueError, match="run.decide is 'top:5'; accepted: 'score:0' with data"):
        own_results.check_decision(config, tiny.problem())
    config.run.decide = "score:0"
    own_results.check_decision(config, tiny.problem())


def test_a_finished_run_says_again_what_is_known_without_negatives(finished, monkeypatch):
    folder, _, _, said, summary = finished
    again = []
    monkeypatch.setattr(experiment, "message", again.append)
    assert training.run(configured(folder / "customers.csv"), str(folder / "run")) == summary
    (table,) = [text for text in again if text.startswith("What the held-out rows say")]
    assert table in said and said.count(table) == 1


def summary_of(held_out, used=None, at_most=None):
    prior = {"used": used, "at_most": at_most}
    return {"method": "vpu", "held_out": held_out, "held_out_prior": prior}


@pytest.mark.parametrize(
    ("rows", "positives", "wanted"),
    [
        (21, 20, (20, 20, 10)),  # even, and half of a batch where it would hold nothing else
        (21, 19, (20, 20, 19)),
        (20, 5, (20, 20, 5)),
        (1, 1, (2, 2, 1)),
        (40, 33, (33, 40, 33)),  # a batch that fits stays as it is
    ],
)
def test_batches_are_at_most_as_many_rows_as_there_are_and_even(rows, positives, wanted):
    method = {"batch_size": 33, "head_batch_size": 64, "positives_per_batch": positives}
    config = ml_collections.FrozenConfigDict({"method": method})
    found = own_results.with_fitting_batches(config, rows).method
    assert (found.batch_size, found.head_batch_size, found.positives_per_batch) == wanted


def test_a_prior_that_the_held_out_rows_leave_no_room_for_is_spoken_of():
    known = {"name": "recall", "value": 0.5, "low": 0.25, "high": 0.75, "assumption": "of P"}
    text = own_results.describe(summary_of([known], 0.444, 0.389))
    assert "at most 38.9% positives among the unlabeled (95% sure), and 44.4% is used" in text
    for used, at_most in ((0.3, 0.389), (0.39, 0.39), (None, 0.3), (0.3, None)):
        assert "leave room" not in own_results.describe(summary_of([known], used, at_most))


def test_a_threshold_that_calls_far_too_few_or_too_many_is_spoken_of_with_what_to_do():
    def text(flagged, used, *, area=(0.6, 0.9), **options):
        known = [
            {"name": "auc_pu", "value": area[0], "low": area[0], "high": area[1], "assumption": ""},
            {"name": "flagged_share", "value": flagged, "low": 0, "high": 1, "assumption": "U"},
        ]
        return own_results.describe(summary_of(known, used), **options)

    said = text(0.0, 0.05)
    assert "calls 0.0% of the held-out unlabeled rows positive, where 5.0% are taken to be" in said
    assert "run.decide=share:0.05" in said
    assert "By its own threshold" in text(0.11, 0.05)
    for flagged, used in ((0.025, 0.05), (0.1, 0.05), (None, 0.05), (0.0, None)):
        assert "By its own threshold" not in text(flagged, used)
    assert "By its own threshold" not in text(0.0, 0.05, decide="top:5")
    assert "are those of a score above 0, not of run.decide=top:5" in text(
        0.1, 0.05, decide="top:5"
    )
    assert "not of run.decide" not in text(0.1, 0.05)
    # Another threshold is no answer to a ranking that the held-out rows do not speak for.
    for area, said in (
        ((0.05, 0.41), "its ranking is the wrong way round"),
        ((0.5, 0.9), "its ranking may be no better than chance"),
        ((None, None), "its ranking may be no better than chance"),
    ):
        advice = text(0.0, 0.05, area=area)
        assert said in advice and "run.decide" not in advice


@pytest.mark.parametrize(
    ("largest", "said"), [(0.4, "if 15.0% to 40.0% of them"), (0.15, "if 15.0% of them")]
)
def test_what_the_mean_probability_may_be_is_said_with_the_shares_it_rests_on(largest, said):
    known = {"name": "recall", "value": 0.5, "low": 0.25, "high": 0.75, "assumption": "of P"}
    doubt = {"mean": 0.3, "low": 0.1, "high": 0.6, "smallest_prior": 0.15, "largest_prior": largest}
    text = own_results.describe(summary_of([known]) | {"mean_probability": doubt})
    assert f"is 0.300. It may be from 0.100 to 0.600, {said} are positive" in text


def test_a_small_end_of_the_mean_probability_is_not_said_to_be_0():
    known = {"name": "recall", "value": 0.5, "low": 0.25, "high": 0.75, "assumption": "of P"}
    doubt = {"mean": 0.06, "low": 0.00005, "high": 0.2, "smallest_prior": 1e-4}
    doubt |= {"largest_prior": 0.17}
    text = own_results.describe(summary_of([known]) | {"mean_probability": doubt})
    assert "is 0.060. It may be from 0.00005 to 0.200, if 0.01% to 17.0% of them" in text
    assert "It may be from 0.000 to 0.200" in own_results.describe(
        summary_of([known]) | {"mean_probability": doubt | {"low": 0.0}}
    )


def test_estimates_that_are_not_known_are_listed_as_such():
    known = {"name": "recall", "value": 0.5, "low": 0.25, "high": 0.75, "assumption": "of P"}
    unknown = [
        {"name": name, "value": value, "low": value, "high": value, "assumption": "any"}
        for name, value in (("auc", None), ("f1", float("nan")))
    ]
    text = own_results.describe(summary_of([known, *unknown]))
    assert "recall            0.5000 [0.2500, 0.7500]  of P" in text
    assert text.startswith("What the held-out rows say of vpu,")
    assert text.endswith("unknown: auc, f1")
    assert "data.holdout" in own_results.describe(summary_of([]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda name, x: {name: x[..., :1]}, r"model.safetensors: .*kernel.*; accepted: float32\["),
        (lambda name, x: {name: x.astype(np.float16)}, r"is float16\[.*; accepted: float32\["),
        (lambda name, x: {name: x, "more": x}, "more is not a part of the state"),
    ],
)
def test_numbers_that_do_not_fit_the_method_are_named(finished, tmp_path, change, message):
    folder, *_ = finished
    for path in (folder / "run" / "model").iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    file = tmp_path / "model.safetensors"
    numbers = safetensors.numpy.load_file(file)
    name = max(numbers, key=lambda key: numbers[key].size)  # a kernel
    changed = numbers | change(name, numbers[name])
    safetensors.numpy.save_file({k: np.array(v, order="C") for k, v in changed.items()}, file)
    with pytest.raises(ValueError, match=message):
        pujax.load(tmp_path)


def test_without_a_prior_there_are_ranks_and_no_probabilities(tmp_path):
    frame, _ = table(1)
    frame.to_csv(tmp_path / "a.csv", index=False)
    config = configured(tmp_path / "a.csv", "vpu", prior=None)
    config.run.decide = "top:9"
    summary = training.run(config, str(tmp_path / "run"))
    written = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert written.probability.isna().all() and written["rank"].notna().all()
    held = {entry["name"]: entry["value"] for entry in summary["held_out"]}
    assert held["recall"] is not None and held["auc"] is None and held["accuracy"] is None
    loaded = pujax.load(tmp_path / "run")
    assert loaded.predict(frame).probabilities is None
    assert written.decision.sum() == 9 == loaded.predict(frame).decisions.sum()
    assert loaded.predict(frame, decide="top:4").decisions.sum() == 4
    assert loaded.model.description["class_names"] == [["positive"], ["negative"]]


def test_a_support_set_needs_known_negatives(tmp_path):
    frame, _ = table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    message = "data.num_support is 10, .* 0 known negatives; accepted: 0, with a method that needs"
    with pytest.raises(ValueError, match=message):
        training.run(configured(tmp_path / "a.csv", num_support=10), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_known_negatives_are_a_support_set_for_lagam_as_for_a_method_beside(tmp_path):
    frame, fraud = table()
    is_known = ~fraud & (np.arange(ROWS) % 3 == 0)
    frame["is_fraud"] = np.select([frame.is_fraud == 1, is_known], ["1", "0"], "")
    frame.to_csv(tmp_path / "a.csv", index=False)
    config = configured(tmp_path / "a.csv", "lagam", num_support=30)
    config.method.num_clusters = 4
    summary = training.run(config, str(tmp_path / "run"))
    assert summary["counts"]["support"] == 30 and summary["counts"]["support_positives"] == 15
    written = pd.read_csv(tmp_path / "run" / "predictions.csv")
    assert len(written) == (frame.is_fraud != "1").sum()  # known negatives among them
    result = pujax.load(tmp_path / "run").predict(frame)
    scores = pd.Series(result.scores, index=result.ids)[written.customer]
    np.testing.assert_allclose(scores, written.score, rtol=1e-5, atol=1e-6)
    config.method, config.run.compare = configured("", "vpu").method, "lagam"
    resolved = config_lib.resolve(config)
    own_results.check_names(resolved)
    config.data.num_support = 0
    with pytest.raises(ValueError, match="^run.compare is 'lagam'; accepted: .*'upu'"):
        own_results.check_names(config_lib.resolve(config))


@tiny.by_kind(methods.without_negatives())
def test_every_method_predicts_what_it_did_in_training(tmp_path, name):
    frame, _ = table()
    frame.to_csv(tmp_path / "a.csv", index=False)
    config = configured(tmp_path / "a.csv", name)
    training.run(config, str(tmp_path / "run"))
    written = pd.read_csv(tmp_path / "run" / "predictions.csv", index_col="customer")
    result = pujax.load(tmp_path / "run").predict(frame)
    scores = pd.Series(result.scores, index=result.ids)[written.index]
    np.testing.assert_allclose(scores, written.score, rtol=1e-5, atol=1e-6)
