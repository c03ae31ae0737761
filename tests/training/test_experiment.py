"""Runs from the command line down: what a folder holds, stops and goes on, refuses and reports."""

import copy
import dataclasses
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import report, reports, train, training
from pujax.methods import naive
from pujax.methods._common import optimizer
from pujax.reports import run_folder, verdict
from pujax.training import config as config_lib
from pujax.training import (
    example_scores,
    experiment,
    loop_state,
    method_setup,
    run_state,
    train_loop,
)
from pujax.training.checkpoint import Checkpoints, Position
from pujax.training.evaluation import binary, model_selection, tasks
from pujax.training.seed_axis import Member
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def small(method="dist_pu", **run):
    """A method on the digits with a very small network and few epochs; by default one that has two
    stages, a refresh between them, learned labels, and compiles in a second."""
    config = config_lib.default_config(method)
    config.data.update({"num_labeled": 200, "num_support": 60})
    config.model.name = "mlp"
    config.model.options = {"hidden": (16, 16)}
    config.method.update({"num_epochs": 4, "batch_size": 128, "learning_rate": 0.005})
    sizes = {"warmup_epochs": 2, "support_batch_size": 32}
    config.method.update({name: size for name, size in sizes.items() if name in config.method})
    # One step a call, as with convolutions, so that a run can stop between any two.
    every = {"figures": False, "checkpoint_every": 1, "steps_per_dispatch": 1}
    config.run.update(every | run)
    return config


pytestmark = pytest.mark.usefixtures("one_device")


_shared = tiny.shared_setups()


@pytest.fixture
def one_method(monkeypatch):
    """Runs of equal settings have one built method with its programs, as if nothing came between.

    That a process which builds it anew goes on to the same numbers is tested without.
    """
    monkeypatch.setattr(method_setup, "build", _shared)


def rows(folder):
    """Metrics without the wall-clock columns."""
    lines = (pathlib.Path(folder) / "metrics.jsonl").read_text().splitlines()
    timing = ("seconds", "examples_per_second")
    return [{k: v for k, v in json.loads(x).items() if k not in timing} for x in lines]


def last_state(folder):
    """The newest checkpoint as a flat list of arrays."""
    import orbax.checkpoint as ocp

    step = max(int(p.name) for p in (pathlib.Path(folder) / "checkpoints").iterdir())
    path = pathlib.Path(folder).resolve() / "checkpoints" / str(step) / "tree"
    with ocp.StandardCheckpointer() as reader:
        return [np.asarray(x) for x in jax.tree.leaves(reader.restore(path))]


@pytest.fixture(scope="module")
def straight(tmp_path_factory, one_device):
    """A run from start to end with everything on."""
    folder = tmp_path_factory.mktemp("straight")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(method_setup, "build", _shared)
        summary = training.run(
            small(figures=True, compare="naive,supervised"), str(folder), name="x"
        )
    return folder, summary


def test_a_run_leaves_what_the_design_lists(straight):
    folder, summary = straight
    assert json.loads((folder / "summary.json").read_text()) == summary
    wanted = {
        "method": "dist_pu",
        "dataset": "digits",
        "seed": 0,
        "num_epochs": 4,
        "setting": "one_sample",
        "selection": {"rule": "last", "epoch": 3, "value": None, "is_oracle": False},
        "warnings": [],
        "reveals": "",
    }
    assert {key: summary[key] for key in wanted} == wanted
    assert summary["counts"]["labeled"] == 200 and summary["counts"]["support"] == 60
    assert summary["labeling"]["mechanism"] == "scar" and summary["labeling"]["n_p"] == 200
    assert list(summary["selections"]) == ["last"]
    assert summary["selections"]["last"]["accuracy"] == summary["test"]["accuracy"]
    assert 0 < summary["prior"] < 1 and summary["prior_source"]
    assert set(summary["test"]) >= {"accuracy", "f1", "auc", "average_precision"}
    assert 0 <= summary["train"]["label_accuracy"] <= 1
    for key in ("seconds", "examples_per_second", "peak_memory_bytes", "versions", "device"):
        assert summary[key]
    assert set(summary["comparison"]) == {"naive", "supervised"}
    config = json.loads((folder / "config.json").read_text())
    assert config["method"]["name"] == "dist_pu" and config["data"]["num_labeled"] == 200
    assert len(rows(folder)) == 4
    header = (folder / "metrics.csv").read_text().splitlines()[0].split(",")
    assert {"epoch", "stage", "loss", "test_accuracy", "label_accuracy", "label_mse"} <= set(header)
    pictures = {path.name for path in (folder / "figures").iterdir()}
    assert pictures == {
        "training.png",
        "label_error.png",
        "scores.png",
        "embedding_pca.png",
        "embedding_tsne.png",
    }
    assert any((folder / "checkpoints").iterdir())


def test_a_run_leaves_the_scores_of_its_examples(straight):
    folder, summary = straight
    data = experiment.load_data(config_lib.resolve(small()))
    for place, result in ((folder, summary), (folder / "naive", None)):
        found = example_scores.read(place)
        np.testing.assert_array_equal(found.test_labels, data.test_labels)
        np.testing.assert_array_equal(found.train_ids, data.source_ids)
        np.testing.assert_array_equal(found.train_truth, data.truth)
        np.testing.assert_array_equal(found.train_labeled, data.labeled)
        test = (result or json.loads((place / "summary.json").read_text()))["test"]
        again = binary.test_metrics(found.test_scores, found.test_labels)
        assert again == pytest.approx(test, abs=1e-12)
        assert len(found.held_scores) == len(found.train_probabilities) == 0
    maps = example_scores.read(folder)
    # All 1,382 training examples, since they are fewer than 2,000.
    np.testing.assert_array_equal(maps.map_rows, np.arange(len(data.labeled)))
    assert maps.map_pca.shape == maps.map_tsne.shape == (len(data.labeled), 2)
    assert maps.map_remark == ""


@pytest.mark.thorough
def test_a_page_is_made_of_a_run_beside_the_methods_it_was_compared_with(straight):
    folder, summary = straight
    page = reports.build([str(folder)])
    assert f"{100 * summary['test']['accuracy']:.1f} %" in page.verdict.sentences[0]
    for text in ("data:image/png;base64,", "by t-SNE", "supervised (oracle: true labels)"):
        assert text in page.html
    assert page.html.count("<svg") == 8 and "unknown" not in page.verdict.sentences[0]


def test_a_finished_run_is_reported_again_and_not_trained_again(straight, monkeypatch, capsys):
    folder, summary = straight
    monkeypatch.setattr(train_loop, "train", lambda *_: pytest.fail("trained again"))
    again = training.run(small(figures=True, compare="naive,supervised"), str(folder))
    assert again == summary
    said = capsys.readouterr().out
    assert f"Finished on {summary['finished_at']}; nothing is trained again." in said


def test_a_finished_run_with_another_method_to_compare_is_not_said_to_train_nothing(
    straight, tmp_path, monkeypatch, capsys
):
    shutil.copytree(straight[0], tmp_path, dirs_exist_ok=True)
    monkeypatch.setattr(train_loop, "train", lambda *_: pytest.fail("trains"))
    with pytest.raises(pytest.fail.Exception, match="trains"):
        training.run(small(figures=True, compare="naive,upu"), str(tmp_path))
    assert "nothing is trained again" not in capsys.readouterr().out


def test_the_selected_epoch_is_what_the_summary_reports(tmp_path, capsys, monkeypatch):
    original = binary.validation_metrics

    def first_epoch_wins(scores, data, **options):
        found = original(scores, data, **options)
        return found | {"val_oracle_accuracy": 1.0}  # a tie of all epochs

    task = tasks._BINARY._replace(validation_metrics=first_epoch_wins)
    monkeypatch.setattr(tasks, "_BINARY", task)
    config = small("naive", selection="oracle")
    config.data.update({"num_validation": 100, "labeling": "power", "labeling_power": 3.0})
    training.run(copy.deepcopy(config), str(tmp_path))
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert summary["selection"] == {"rule": "oracle", "epoch": 0, "value": 1.0, "is_oracle": True}
    first, *_, last = rows(tmp_path)
    assert first["loss"] != last["loss"]
    for name, value in summary["test"].items():
        assert value == first[f"test_{name}"]
    assert set(summary["selections"]) == set(model_selection.RULES)
    for about in summary["selections"].values():
        row = rows(tmp_path)[about["epoch"]]
        assert [about[k] for k in ("accuracy", "f1", "auc")] == [
            row[f"test_{k}"] for k in ("accuracy", "f1", "auc")
        ]
    assert summary["selections"]["last"]["epoch"] == 3
    labeling = summary["labeling"]
    assert (labeling["mechanism"], labeling["power"], labeling["n_p"]) == ("power", 3.0, 200)
    assert labeling["e_min"] < labeling["e_median"] < labeling["e_max"] == 1
    assert summary["counts"]["validation"] == 100
    text = capsys.readouterr().out
    assert "labeling power, c 0." in text and "r is right on" in text
    assert "validation 100 (" in text and "selection by oracle" in text
    assert "naive (oracle epoch)" in text
    config.run.selection = "last"
    with pytest.raises(ValueError, match="run.selection: 'oracle' there, 'last' here"):
        training.run(config, str(tmp_path))


def test_a_collapsed_model_is_warned_about_in_the_summary(tmp_path, monkeypatch, caplog):
    build = naive.build

    def collapsed(config, info):
        return build(config, info)._replace(predict=lambda state, x: jnp.full(len(x), -1.0))

    monkeypatch.setattr(naive, "build", collapsed)
    config = small("naive")
    config.method.num_epochs = 1
    summary = training.run(config, str(tmp_path))
    assert summary["warnings"] == [
        "every test example is predicted negative at the reported epoch",
        "every training example is predicted negative at the reported epoch",
    ]
    assert "every test example is predicted negative" in caplog.text
    # What reads a summary finds it there, in no sentence.
    assert summary["predicts_one_class"] == {"test": "negative", "training": "negative"}
    cell = {"row": "a", "column": "b", "published": None, "note": "", "error": ""}
    cell["summaries"] = [summary | {"warnings": []}]
    table = report.render("title", [cell], rules=["last"], num_seeds=1)
    assert "1 of 1 seeds predicts one class" in table
    found = verdict.of(run_folder.read(str(tmp_path), "run"))
    assert found.sentences[0].endswith("evaluated examples negative.")


@pytest.mark.parametrize(
    "first_stop",
    [pytest.param(1, marks=pytest.mark.thorough), 2, pytest.param(3, marks=pytest.mark.slow)],
)
def test_stop_and_go_on_equals_a_straight_run_bit_for_bit(straight, tmp_path, capsys, first_stop):
    folder, summary = straight
    assert training.run(small(stop_after_epoch=first_stop), str(tmp_path)) is None
    assert "goes on once run.stop_after_epoch is larger, or 0.\n" in capsys.readouterr().out
    assert len(rows(tmp_path)) == first_stop
    assert not (tmp_path / "summary.json").exists()
    resumed = training.run(small(), str(tmp_path))
    assert rows(tmp_path) == rows(folder)
    assert resumed["test"] == summary["test"]
    mine, whole = (dataclasses.asdict(example_scores.read(place)) for place in (tmp_path, folder))
    for name in (name for name in mine if not name.startswith("map_")):
        np.testing.assert_array_equal(mine[name], whole[name])
    for a, b in zip(last_state(folder), last_state(tmp_path), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.thorough
@pytest.mark.usefixtures("one_method")
def test_rows_of_epochs_after_the_checkpoint_are_written_again_not_twice(straight, tmp_path):
    folder, _ = straight
    training.run(small(stop_after_epoch=2, checkpoint_every=5), str(tmp_path))
    # A crash after an epoch's row and before its checkpoint leaves such a row behind.
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"epoch": 2, "stage": "main", "loss": 0.5}\n{"epoch": 3, "sta')
    training.run(small(), str(tmp_path))
    assert rows(tmp_path) == rows(folder)


@pytest.mark.thorough
@pytest.mark.usefixtures("one_method")
def test_a_signal_in_the_middle_of_an_epoch_loses_nothing(straight, tmp_path, monkeypatch):
    folder, _ = straight
    original = train_loop._fetch

    def fetch(state):
        if state.position.epoch == 2 and state.position.step == 4:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(state)

    monkeypatch.setattr(train_loop, "_fetch", fetch)
    with pytest.raises(SystemExit) as stop:
        training.run(small(progress_seconds=0.0), str(tmp_path))
    assert stop.value.code == 128 + signal.SIGTERM
    assert len(rows(tmp_path)) == 2  # it did not finish the third epoch
    monkeypatch.setattr(train_loop, "_fetch", original)
    training.run(small(), str(tmp_path))
    assert rows(tmp_path) == rows(folder)
    for a, b in zip(last_state(folder), last_state(tmp_path), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.thorough
@pytest.mark.usefixtures("one_method")
def test_a_signal_in_the_last_epoch_stops_before_the_compared_methods(tmp_path, monkeypatch):
    original = train_loop._end_epoch

    def end_epoch(state, *rest):
        if state.run.config.method.name == "dist_pu" and state.position.epoch == 4:
            os.kill(os.getpid(), signal.SIGINT)
        return original(state, *rest)

    monkeypatch.setattr(train_loop, "_end_epoch", end_epoch)
    with pytest.raises(SystemExit):
        training.run(small(compare="naive"), str(tmp_path))
    assert not (tmp_path / "naive").exists()
    monkeypatch.setattr(train_loop, "_end_epoch", original)
    summary = training.run(small(compare="naive"), str(tmp_path))
    assert set(summary["comparison"]) == {"naive"}
    assert len(rows(tmp_path)) == 4


@pytest.mark.thorough
@pytest.mark.usefixtures("one_method")
def test_a_stop_in_a_compared_method_names_the_folder_that_the_command_takes(
    tmp_path, monkeypatch, capsys
):
    original = train_loop._end_epoch

    def end_epoch(state, *rest):
        if state.run.config.method.name == "naive":
            os.kill(os.getpid(), signal.SIGINT)
        return original(state, *rest)

    monkeypatch.setattr(train_loop, "_end_epoch", end_epoch)
    config = small(compare="naive")
    config.method.update({"num_epochs": 2, "warmup_epochs": 1})
    with pytest.raises(SystemExit):
        training.run(config, str(tmp_path))
    said = f"of naive. The same command with --workdir={tmp_path} goes on."
    assert said in capsys.readouterr().out


def test_another_configuration_in_the_same_folder_is_refused(straight):
    folder, _ = straight
    other = small()
    other.method.mixup_weight = 0.5
    before = sorted(p.stat().st_mtime_ns for p in folder.rglob("*"))
    with pytest.raises(ValueError, match=r"workdir.*method.mixup_weight: 5.0 there, 0.5 here"):
        training.run(other, str(folder))
    assert sorted(p.stat().st_mtime_ns for p in folder.rglob("*")) == before


@pytest.mark.parametrize(
    ("section", "field", "value"),
    [
        ("data", "num_labeled", 5000),
        ("data", "num_support", 2000),
        ("data", "positive_classes", (11,)),
        ("data", "prior", 2.0),
        ("method", "batch_size", 5000),
        ("method", "support_batch_size", 61),
        ("method", "rho_start", 1.5),
        ("method", "temperature", 0.0),
        ("method", "label_update", "guess"),
        ("method", "label_memory", "guess"),
        ("method", "support_margin", -1.0),
        ("method", "num_clusters", 100000),
        ("method", "warmup_epochs", 9),
    ],
)
def test_bad_input_names_the_field_and_writes_nothing(tmp_path, section, field, value):
    config = small("lagam")
    with config.ignore_type():
        config[section][field] = value
    folder = tmp_path / "run"
    with pytest.raises(ValueError, match=f"{section}.{field} .*accepted"):
        training.run(config, str(folder))
    assert not folder.exists()


def test_a_bad_compared_method_is_found_before_training(tmp_path, monkeypatch):
    def refuse(config, info):
        raise ValueError("method.weighting is bad; accepted: good")

    monkeypatch.setattr(naive, "build", refuse)
    with pytest.raises(ValueError, match="method.weighting"):
        training.run(small(compare="naive"), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_model_that_cannot_be_built_writes_nothing(tmp_path):
    config = small()
    config.model.options = {"hidden": (-3,)}
    with pytest.raises(ValueError, match="model.options.hidden"):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_step_that_is_not_finite_is_undone_reported_and_stops_the_run_every_time(tmp_path):
    config = small("naive")
    config.method.learning_rate = 1e30
    for _ in range(2):  # going on does not get past it unless the policy is 'skip'
        with pytest.raises(train_loop.NonFiniteError, match="run.nonfinite=skip"):
            training.run(config, str(tmp_path))
    for leaf in last_state(tmp_path):
        assert np.isfinite(leaf).all()
    assert not (tmp_path / "summary.json").exists()


def test_a_step_of_a_stage_that_sees_features_is_told_about_by_its_raw_examples(tmp_path):
    """What predicts takes no features: the head of ImPULSeS trains on those of its encoder."""
    view = {"crop_area": 0.9, "jitter_probability": 0.0, "grayscale_probability": 0.0}
    head = {"head_loss": "bce", "head_learning_rate": 1e38}
    options = {"model": "mlp", "options": {"hidden": (16,)}, "num_epochs": 3, "pretrain_epochs": 1}
    config = tiny.config("impulses", **options, **view, **head)
    said = (
        "computed again gives .*; 16 of its 16 examples have a score that is not finite: training"
    )
    with pytest.raises(train_loop.NonFiniteError, match=said):
        tiny.train_in(tmp_path, config, tiny.problem())


def test_the_policy_skip_undoes_such_steps_and_counts_them(tmp_path, monkeypatch):
    monkeypatch.setattr(
        optimizer,
        "learning_rate",
        lambda c, epoch, **length: jnp.where(jnp.floor(epoch) == 1, jnp.nan, 0.05),
    )
    summary = training.run(small("naive", nonfinite="skip"), str(tmp_path))
    assert [row["nonfinite"] for row in rows(tmp_path)] == [0, 10, 0, 0]
    assert summary["undone_steps"] == 10
    before, during = rows(tmp_path)[:2]
    assert during["test_auc"] == before["test_auc"] and during["loss"] is None


def damage(folder, *, newest):
    """Empties the arrays of the newest or of all checkpoints."""
    steps = sorted((p for p in (folder / "checkpoints").iterdir()), key=lambda p: int(p.name))
    for step in steps[-1:] if newest else steps:
        for path in (step / "tree").rglob("*"):
            if path.is_file():
                path.write_bytes(b"")


@pytest.mark.thorough
@pytest.mark.usefixtures("one_method")
def test_an_unreadable_newest_checkpoint_falls_back_and_is_saved_again(straight, tmp_path):
    folder, _ = straight
    training.run(small(stop_after_epoch=3), str(tmp_path))
    damage(tmp_path, newest=True)
    assert training.run(small(stop_after_epoch=3), str(tmp_path)) is None
    assert [p.name for p in (tmp_path / "checkpoints_damaged").iterdir()] == ["30"]
    damage_free = sorted(int(p.name) for p in (tmp_path / "checkpoints").iterdir())
    assert damage_free == [20, 30]
    training.run(small(), str(tmp_path))
    assert rows(tmp_path) == rows(folder)


@pytest.mark.thorough
@pytest.mark.usefixtures("one_method")
def test_a_run_whose_checkpoints_are_all_unreadable_is_not_started_over(tmp_path):
    training.run(small(stop_after_epoch=2), str(tmp_path))
    damage(tmp_path, newest=False)
    with pytest.raises(ValueError, match=r"none of the checkpoints .* can be used"):
        training.run(small(), str(tmp_path))
    assert len(rows(tmp_path)) == 2


@pytest.fixture
def other_data(monkeypatch):
    """Makes `load_data` return data with one part changed."""
    original = experiment.load_data

    def change(part):
        def load(config):
            data = original(config)
            return data._replace(**{part: np.max(getattr(data, part)) - getattr(data, part)})

        monkeypatch.setattr(experiment, "load_data", load)

    return change


@pytest.mark.parametrize("part", ["inputs", "test_inputs", "test_labels"])
def test_other_data_are_refused_in_the_folder_of_a_finished_run(straight, other_data, part, capsys):
    folder, _ = straight
    before = sorted(p.stat().st_mtime_ns for p in folder.rglob("*"))
    other_data(part)
    with pytest.raises(ValueError, match=r"--workdir=.* holds a run on other data"):
        training.run(small(figures=True, compare="naive,supervised"), str(folder))
    assert "labeled positives" not in capsys.readouterr().out
    assert sorted(p.stat().st_mtime_ns for p in folder.rglob("*")) == before


def test_other_data_are_refused_in_the_folder_of_an_unfinished_run(tmp_path, other_data):
    training.run(small(stop_after_epoch=1), str(tmp_path))
    other_data("test_labels")
    with pytest.raises(ValueError, match=r"--workdir=.* holds a run on other data"):
        training.run(small(), str(tmp_path))


@pytest.mark.parametrize("name", ["predictions.csv", "summary.json", "metrics.csv", "model"])
def test_files_of_somebody_else_are_not_written_over(tmp_path, name):
    for folder in (tmp_path / "run", tmp_path / "other" / "naive"):
        folder.mkdir(parents=True)
        (folder / name).write_text("mine")
    for folder, compare in (("run", ""), ("other", "naive")):
        with pytest.raises(ValueError, match=f"--workdir=.* holds {name}, but no config.json"):
            training.run(small(compare=compare), str(tmp_path / folder))
    written = {path.name for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {name} and (tmp_path / "run" / name).read_text() == "mine"


@pytest.mark.parametrize("line", ['{"epoch": 0, "loss": 1.5}', '{"loss": 1.5}', "mine"])
def test_rows_of_another_program_are_not_emptied(tmp_path, line):
    (tmp_path / "metrics.jsonl").write_text(f"{line}\n")
    (tmp_path / "model").mkdir()
    with pytest.raises(ValueError, match="holds metrics.jsonl, model, but no config.json of a run"):
        training.run(small(), str(tmp_path))
    assert (tmp_path / "metrics.jsonl").read_text() == f"{line}\n"


def test_a_run_that_another_process_begins_meanwhile_is_a_run(tmp_path):
    """Of many shards one looks at a folder while another writes both files."""
    (tmp_path / "data.json").write_text("{}")
    with pytest.raises(ValueError, match="holds data.json, but no config.json"):
        experiment._refuse_foreign(str(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    experiment._refuse_foreign(str(tmp_path))


def test_a_run_does_not_begin_in_or_below_a_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ValueError, match=r"--workdir is '.*file', a file; accepted: a folder"):
        training.run(small(), str(tmp_path / "file"))
    with pytest.raises(ValueError, match=r"--workdir is '.*run', below the file .*file; accepted"):
        training.run(small(), str(tmp_path / "file" / "run"))


def test_what_is_not_known_is_said_to_be_unknown(tmp_path, monkeypatch, capsys):
    """As in a user's own data: no class of an unlabeled example, and no prior."""
    original = experiment.load_data

    def unknown(config):
        data = original(config)
        info = data.info._replace(prior=np.nan, prior_unlabeled=np.nan, prior_source="unknown")
        truth = np.where(data.labeled, 1, -1).astype(np.int8)
        labeling = data.labeling._replace(c=None)
        return data._replace(info=info, truth=truth, labeling=labeling)

    monkeypatch.setattr(experiment, "load_data", unknown)
    config = small("naive", figures=True)
    config.method.num_epochs = 1
    summary = training.run(config, str(tmp_path))
    said = capsys.readouterr().out
    assert "unlabeled 1182 (hidden positives unknown)" in said and "c unknown" in said
    assert "prior unknown" in said and "nan" not in said and "0 / 0" not in said
    assert said.splitlines()[-2].split()[-1] == "-"  # the column of recovered positives
    assert summary["counts"]["hidden_positives"] is None
    assert summary["train"]["recovered_positives"] is None and summary["prior"] is None
    assert not (tmp_path / "figures" / "label_error.png").exists()


def test_the_classes_are_printed_by_name(tmp_path, capsys):
    config = small("naive")
    config.data.positive_classes = ("3", "8")
    config.method.num_epochs = 1
    training.run(config, str(tmp_path))
    said = capsys.readouterr().out
    assert "positive: 3, 8; negative: 0, 1, 2, 4, 5, 6, 7, 9" in said


def test_batches_without_labelled_positives_are_counted(tmp_path):
    config = small("nnpu")
    config.data.num_labeled = 20
    config.method.update({"num_epochs": 2, "batch_size": 32, "batching": "joint"})
    summary = training.run(config, str(tmp_path))
    counts = [row["batches_without_positives"] for row in rows(tmp_path)]
    # 41 batches of 32 of 1382 examples, each without P with chance (1 - 20 / 1382)^32 = 0.63.
    assert all(15 < count < 37 for count in counts) and counts[0] != counts[1]
    (sentence,) = [text for text in summary["warnings"] if "no labelled positive" in text]
    assert sentence.startswith(f"{counts[1]} batches of the last epoch")


def test_a_damaged_config_file_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"config.json is damaged"):
        training.run(small(), str(tmp_path))


@pytest.mark.thorough
def test_a_checkpoint_of_another_shape_is_named(tmp_path):
    data = tiny.problem()

    def prepared(config):
        setup = method_setup.build(config, data, tiny.mesh(1))
        run = run_state.prepare([Member(setup, data, str(tmp_path))], tiny.mesh(1))
        run.checkpoints._fingerprint = {}
        return run

    first = prepared(tiny.config("naive"))
    carry = loop_state.first_carry(first, 0, None)
    first.checkpoints.save(Position(1, 0, 10), {"carry": carry})
    first.checkpoints.wait()
    second = prepared(tiny.config("naive", options={"channels": (4, 8, 8), "hidden": (17,)}))
    with pytest.raises(ValueError, match=r"params/.* is float32\[16\]; accepted: float32\[17\]"):
        loop_state.start(second)


@pytest.mark.thorough
def test_eight_devices_train_evaluate_and_go_on_as_one_does(straight, tmp_path, monkeypatch):
    folder, summary = straight
    monkeypatch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(8))
    config = {"checkpoint_every": 1, "eval_batch_size": 100}  # 355 test images: nothing divides
    training.run(small(stop_after_epoch=3, **config), str(tmp_path))
    monkeypatch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
    training.run(small(**config), str(tmp_path))  # the last epoch on one device again
    for one, eight in zip(rows(folder), rows(tmp_path), strict=True):
        assert one["loss"] == pytest.approx(eight["loss"], rel=1e-3)
        assert one["test_auc"] == pytest.approx(eight["test_auc"], abs=5e-3)


def test_counts_and_the_final_table_are_printed(straight, capsys):
    folder, summary = straight
    training.run(small(figures=True, compare="naive,supervised"), str(folder))
    text = capsys.readouterr().out
    assert "labeled positives 200, unlabeled 1182 (485 hidden positives), support 60" in text
    heading, _, *table, last = text.splitlines()[-6:]
    assert heading.split()[:3] == ["method", "test", "accuracy"]
    assert [line.split()[0] for line in table] == ["dist_pu", "naive", "supervised"]
    assert f"{100 * summary['test']['accuracy']:.2f} %" in table[0]
    assert last == f"Run directory: {folder}"


@pytest.mark.thorough
def test_the_command_line_reports_errors_in_one_line_and_stops_on_a_signal(
    tmp_path, capsys, monkeypatch
):
    file = "--config=configs/baseline.py:method=naive,backbone=mlp"
    command = [sys.executable, "train.py", file]
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(train.console, "show_own_messages", lambda: None)  # for a whole process
    assert train.main([*command[1:], "--config.data.prior=nan"]) == 2
    said = capsys.readouterr().err.strip()
    assert said == "data.prior is 'nan'; accepted: a finite number, or 'auto'"

    process = subprocess.Popen(
        [*command, f"--workdir={tmp_path}", "--config.method.num_epochs=100000"],
        cwd=REPOSITORY,
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    metrics = tmp_path / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    text, _ = process.communicate(timeout=120)
    assert process.returncode == 128 + signal.SIGINT, text
    assert "goes on" in text and str(tmp_path) in text
    assert any((tmp_path / "checkpoints").iterdir())


def test_a_device_without_memory_is_one_line_and_other_errors_of_devices_are_not(
    capsys, monkeypatch
):
    monkeypatch.chdir(REPOSITORY)
    monkeypatch.setattr(train.console, "show_own_messages", lambda: None)

    def fail(text):
        def run(*args, **kwargs):
            raise jax.errors.JaxRuntimeError(text)

        monkeypatch.setattr(training, "run", run, raising=False)
        return train.main(["train", "--config=configs/lagam_digits.py"])

    assert fail("RESOURCE_EXHAUSTED: Out of memory allocating 7 bytes.\nmore") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "Out of memory allocating 7 bytes" in line and "method.batch_size" in line
    with pytest.raises(jax.errors.JaxRuntimeError, match="INTERNAL"):
        fail("INTERNAL: it broke")


def checkpoints(folder, **fingerprint):
    return Checkpoints(str(folder / "checkpoints"), keep=3, fingerprint=fingerprint)


def test_a_tree_that_is_not_finite_is_never_saved(tmp_path):
    like = {"a": jax.ShapeDtypeStruct([2], "float32"), "b": jax.ShapeDtypeStruct([], "int32")}
    store = checkpoints(tmp_path)
    store.save(Position(1, 0, 10), {"a": jnp.ones([2]), "b": jnp.int32(5)})
    for step, bad in ((20, jnp.nan), (30, jnp.inf)):
        store.save(Position(step // 10, 0, step), {"a": jnp.asarray([1, bad]), "b": jnp.int32(6)})
    position, tree = store.restore_newest(lambda _: like)
    store.close()
    assert position.global_step == 10 and tree["b"] == 5


def test_a_compared_run_of_other_settings_is_said_to_be_moved_away(tmp_path):
    """No flag gives the settings of an earlier version back."""
    config, other = (config_lib.default_config(name) for name in ("nnpu", "naive"))
    config.run.compare, other.method.learning_rate = "naive", 0.5
    beside = tmp_path / "run" / "naive"
    beside.mkdir(parents=True)
    (beside / "config.json").write_text(json.dumps(config_lib.resolve(other).to_dict()))
    with pytest.raises(ValueError, match=f"another configuration .*; or move {beside} away, to "):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run" / "config.json").exists()


@pytest.mark.parametrize("error", [RuntimeError("no TPU here\nand more"), AssertionError()])
def test_devices_that_jax_cannot_start_are_refused_before_anything_is_written(
    tmp_path, monkeypatch, error
):
    def devices():
        raise error

    monkeypatch.setattr(jax, "devices", devices)
    reason = "(no TPU here|a plugin of JAX for it is missing)"
    message = rf"^JAX_PLATFORMS is '\w*', .*{reason}.*; accepted: [^\n]*$"
    with pytest.raises(ValueError, match=message):
        training.run(config_lib.default_config("naive"), str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        ({"a": jnp.float32, "b": jnp.bfloat16}, r"b is float32\[2\]; accepted: bfloat16\[2\]"),
        ({"a": jnp.float32}, r"holds \['b'\], which this run does not have"),
        ({"a": jnp.float32, "b": jnp.float32, "c": jnp.float32}, "has no c"),
    ],
)
def test_a_checkpoint_of_other_types_or_leaves_is_named(tmp_path, wanted, message):
    store = checkpoints(tmp_path)
    store.save(Position(1, 0, 10), {"a": jnp.ones([2]), "b": jnp.ones([2])})
    like = {name: jax.ShapeDtypeStruct([2], kind) for name, kind in wanted.items()}
    with pytest.raises(ValueError, match=message):
        store.restore_newest(lambda _: like)
    store.close()
