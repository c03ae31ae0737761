"""Runs on multi-label tables and images in memory: what they leave behind, report and refuse."""

import json

import jax
import numpy as np
import pytest
from scipy import special

from pujax import metrics, training
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup
from pujax.training.evaluation import multilabel
from pujax.training.evaluation.evaluator import Final
from tests import tiny
from tests.training import multilabel_runs as runs

CHOSEN = ("mean_average_precision", "overall_f1", "class_f1")


pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return runs.write_table(tmp_path_factory.mktemp("table") / "small.npz")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, one_device):
    """A run with figures and two comparisons on a set with an untested and an empty class."""
    root = tmp_path_factory.mktemp("finished")
    path = runs.write_table(root / "odd.npz", never_tested=True)
    others = "assume_negative,multilabel_supervised"
    folder = root / "run"
    with pytest.MonkeyPatch.context() as patch:
        config = runs.table_config(path, figures=True, compare=others)
        said = []
        patch.setattr(experiment, "message", said.append)
        summary = training.run(config, str(folder))
    return folder, summary, "\n".join(said)


def test_a_run_leaves_what_the_design_lists(finished):
    folder, summary, _ = finished
    assert json.loads((folder / "summary.json").read_text()) == summary
    wanted = {
        **{"method": "pu_mlc", "dataset": "multilabel", "seed": 0, "num_epochs": 3},
        **{"setting": "multilabel", "known_ratio": 0.5, "threshold": 0.5, "oracle": False},
        "test_copies": None,
        "selection": {"rule": "last", "epoch": 2, "value": None, "is_oracle": False},
    }
    assert {key: summary[key] for key in wanted} == wanted
    data = experiment.load_data(config_of(folder))
    assert summary["counts"] == data.counts()
    assert summary["counts"]["train"] == summary["counts"]["test"] == 120
    assert list(summary["selections"]) == ["last"]
    assert set(summary["test"]) == {
        *CHOSEN,
        *("overall_precision", "overall_recall", "class_precision", "class_recall"),
        *("oracle_overall_f1", "oracle_class_f1", "tied_scores"),
    }
    for key in ("seconds", "examples_per_second", "peak_memory_bytes", "versions", "device"):
        assert summary[key]
    assert set(summary["comparison"]) == {"assume_negative", "multilabel_supervised"}
    assert {path.name for path in (folder / "figures").iterdir()} == {"training.png", "scores.png"}
    assert (folder / "encoder.npz").exists() and any((folder / "checkpoints").iterdir())
    header = (folder / "metrics.csv").read_text().splitlines()[0].split(",")
    columns = {f"test_{raw}{name}" for raw in ("", "raw_") for name in summary["test"]}
    assert {"epoch", "loss", "loss_variational", "loss_mixup"} | columns <= set(header)


def config_of(folder):
    tree = json.loads((folder / "config.json").read_text())
    return config_lib.resolve(config_lib.ml_collections.ConfigDict(tree))


def test_what_is_said_on_the_way(finished):
    folder, summary, said = finished
    counts = summary["counts"]
    assert "pu_mlc on multilabel (multi-label), 1 x" in said
    assert "120 training and 120 test examples, 5 classes; known_ratio 0.5" in said
    assert f"known positives {counts['labeled']}, known negatives" in said
    assert f"({counts['hidden_positives']} hidden positives)" in said
    assert "no known positive in 1 class: never" in said
    gamma = (counts["unlabeled"] / 600) ** 3
    assert said.count(f"method.gamma=auto is {gamma:.4f}, by the known labels") == 1
    assert summary["estimates"] == {"gamma": pytest.approx(gamma, rel=1e-5)}
    header = next(line for line in said.splitlines() if "test mAP" in line)
    assert [text in header for text in ("OF1", "CF1", "recovered")] == [True] * 3
    for name in ("pu_mlc", "assume_negative", "multilabel_supervised (true labels)"):
        assert f"\n{name} " in said or f"| {name} " in said or name in said.split("test mAP")[1]
    assert f"{100 * summary['test']['mean_average_precision']:.2f} %" in said


def test_classes_that_nothing_can_be_said_of_are_warned_about(finished):
    _, summary, _ = finished
    assert "no known positive in 1 class: never" in summary["warnings"]
    assert any("no test positive in 2 classes" in text for text in summary["warnings"])
    assert any("once, never" in text for text in summary["warnings"])
    assert summary["predicts_one_class"] == {"test": None, "training": None}
    assert summary["test"]["class_recall"] is None and summary["test"]["class_f1"] == 0
    classes = summary["classes"]
    assert list(classes) == ["sea", "sun", "sand", "once", "never"]
    for name in ("once", "never"):
        assert classes[name]["average_precision"] is None
        assert classes[name]["test_positives"] == 0
    assert classes["never"]["known_positives"] == 0 < classes["once"]["known_positives"]
    # A class without test positives counts as 0 in the mean.
    known = [classes[name]["average_precision"] for name in ("sea", "sun", "sand")]
    assert summary["test"]["mean_average_precision"] == pytest.approx(sum(known) / 5, rel=1e-6)


def test_test_examples_that_are_training_examples_are_said_before_and_after(tmp_path):
    path = runs.write_table(tmp_path / "small.npz")
    arrays = dict(np.load(path))
    arrays["X_test"][:3] = arrays["X_train"][:3]
    np.savez(path, **arrays)
    config = config_lib.resolve(runs.table_config(path))
    data = experiment.load_data(config)
    said = "3 of 120 test examples (2.5%) are also training examples"
    assert f"\n  warning: {said}" in multilabel.describe(config, data, "1 x cpu")
    scores = np.random.default_rng(0).normal(size=data.test_labels.shape)
    final = Final(
        test={}, test_scores=scores, train_scores=scores, embeddings=None, labels={}, estimates={}
    )
    (text,) = multilabel.warnings(final, data, 0.5)
    assert text.startswith(said)


def test_scores_that_say_nothing_are_warned_about():
    data = tiny.multilabel_problem()
    scores = np.random.default_rng(0).normal(size=data.test_labels.shape)
    fine = Final(
        test={}, test_scores=scores, train_scores=scores, embeddings=None, labels={}, estimates={}
    )
    assert multilabel.warnings(fine, data, 0.5) == []
    equal = np.where(np.arange(3) == 1, 0.25, scores)
    (text,) = multilabel.warnings(fine._replace(test_scores=equal), data, 0.5)
    assert text == "all test scores are equal in 1 class: b"
    unnamed = data._replace(info=data.info._replace(class_names=("0", "1", "2")))
    (text,) = multilabel.warnings(fine._replace(test_scores=equal), unnamed, 0.5)
    assert text == "all test scores are equal in 1 class: label number 1 (the first is number 0)"
    untested = unnamed._replace(test_labels=data.test_labels * [1, 0, 0])
    (text,) = multilabel.warnings(fine, untested, 0.5)
    assert text.startswith(
        "no test positive in 2 classes, which count as average precision 0 and l"
    )
    assert text.endswith("leave CR and CF1 undefined: labels number 1, 2 (the first is number 0)")
    (text,) = multilabel.warnings(
        fine, data._replace(test_labels=data.test_labels * [1, 0, 1]), 0.5
    )
    assert text.endswith("counts as average precision 0 and leaves CR and CF1 undefined: b")
    single = data._replace(test_labels=np.ones((1, 3), np.int8))
    assert multilabel.warnings(fine._replace(test_scores=scores[:1]), single, 0.5) == []
    absent = fine._replace(train_scores=-np.abs(scores))
    assert multilabel.warnings(absent, data, 0.5) == [
        "every label of every training example is predicted absent"
    ]
    low = absent._replace(train_scores=np.clip(absent.train_scores, -2, None))
    assert multilabel.warnings(low, data, 0.1) == [  # whose logit is -2.2
        "every label of every training example is predicted present"
    ]


@pytest.mark.thorough
def test_epochs_report_metrics_of_averaged_and_of_raw_weights(tmp_path):
    data = tiny.multilabel_problem(known_ratio=0.5, rows=True)
    settings = {"augment": False, "learning_rate": 0.02, "run": {"threshold": 0.3}}
    config = tiny.config("pu_mlc", model="mlp", options={"hidden": (8,)}, **settings)
    now, rows = tiny.train_in(tmp_path, config, data)
    method = method_setup.build(config, data, tiny.mesh()).method
    for prefix, predict in (("", method.predict), ("raw_", method.alternatives["raw"])):
        scores = np.asarray(jax.jit(predict)(now.carry.state, data.test_inputs), np.float64)
        labels, probabilities = data.test_labels, special.expit(scores)
        wanted = metrics.multilabel_report(probabilities, labels, threshold=0.3)._asdict()
        wanted["mean_average_precision"] = metrics.mean_average_precision(scores, labels)
        tuned = metrics.oracle_multilabel_f1(probabilities, labels)
        wanted |= {"oracle_overall_f1": tuned.overall, "oracle_class_f1": tuned.per_class}
        for name, value in wanted.items():
            np.testing.assert_allclose(rows[-1][f"test_{prefix}{name}"], value, rtol=1e-6)
    assert any(row[f"test_{name}"] != row[f"test_raw_{name}"] for row in rows for name in CHOSEN)
    assert rows[-1]["test_mean_average_precision"] > 0.8


def test_the_best_epoch_is_the_largest_of_all_rows_and_weights(finished):
    folder, summary, _ = finished
    rows = runs.rows_in(folder)
    best = summary["oracle_best_epoch"]
    names = (*CHOSEN, "oracle_overall_f1", "oracle_class_f1")
    assert set(best) == {"epoch", *(f"test_{name}" for name in names)}
    for name in names:
        found = [row[f"test_{raw}{name}"] for row in rows for raw in ("", "raw_")]
        assert best[f"test_{name}"] == max(found)
    epoch = rows[best["epoch"]]
    both = [epoch[f"test_{raw}mean_average_precision"] for raw in ("", "raw_")]
    assert max(both) == best["test_mean_average_precision"]


def test_the_best_of_rows_by_hand():
    rows = [
        {"epoch": 0, "test_mean_average_precision": 0.5, "test_raw_mean_average_precision": 0.9},
        {"epoch": 1},  # not evaluated
        {"epoch": 2, "test_mean_average_precision": 0.9, "test_overall_f1": 0.3},
    ]
    found = multilabel.best(rows, alternatives=("raw",))
    assert (found["epoch"], found["test_mean_average_precision"]) == (0, 0.9)
    assert (found["test_overall_f1"], found["test_class_f1"]) == (0.3, None)
    assert multilabel.best(rows)["epoch"] == 2


def test_hidden_labels_are_compared_by_hand():
    data = tiny.multilabel_problem()
    labeled = np.ones_like(data.labeled)
    labeled[0], labeled[1] = 0, (0, 1, -1)
    truth = np.ones_like(data.truth)
    truth[0], truth[1] = (1, 0, -1), (1, 0, 0)
    scores = np.zeros(truth.shape)
    scores[0], scores[1] = (2.0, 1.0, 9.0), (-1.0, 9.0, 9.0)
    # Hidden and known to somebody: (0, 0) found, (0, 1) wrongly called, (1, 0) missed.
    found = multilabel.compare_labels(scores, data._replace(labeled=labeled, truth=truth))
    assert found == {
        "label_accuracy": pytest.approx(1 / 3),
        "label_precision": 0.5,
        "recovered_positives": 1.0,
        "hidden_positives": 2.0,
    }
    everything = data._replace(labeled=np.ones_like(labeled))
    nothing = multilabel.compare_labels(scores, everything)
    assert np.isnan(nothing["label_accuracy"]) and nothing["hidden_positives"] == 0


def refused(config, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        training.run(config, str(tmp_path / "never"))
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data.num_labeled", 50),
        ("data.positive_classes", (1,)),
        ("data.setting", "two_sample"),
        ("data.prior", 0.3),
        ("data.prior", "auto"),
        ("data.num_validation", 10),
        ("data.labeling", "power"),
        ("data.known_ratio", 0.0),
        ("data.known_ratio", 1.5),
        ("data.known_seed", -2),
        ("data.missing", "ignore"),
        ("run.threshold", 0.0),
        ("run.threshold", 1.0),
        ("run.decide", "top:7"),
    ],
)
def test_fields_that_do_not_go_with_several_labels_are_named(table, tmp_path, field, value):
    config = runs.table_config(table)
    section, name = field.split(".")
    with config.ignore_type():
        config[section][name] = value
    refused(config, rf"{field} is {value!r}".replace("(", r"\(").replace(")", r"\)"), tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("known_ratio", 0.5, "; accepted: .* have one label each"),
        ("known_seed", 0, "; accepted: .* have one label each"),
        ("load_size", 9, ", but source 'digits' has no such option"),
    ],
)
def test_fields_that_do_not_go_with_one_label_are_named(tmp_path, field, value, message):
    config = config_lib.default_config("naive")
    config.data[field] = value
    refused(config, f"data.{field} is {value!r}{message}", tmp_path)


def test_a_method_of_the_other_kind_is_refused_with_those_that_do(table, tmp_path):
    message = r"method.name is 'naive' and the data \(multilabel\) are multi-label; .*'pu_mlc'"
    compared = runs.table_config(table, compare="naive")
    refused(compared, "run.compare is 'naive'; accepted: methods for several labels", tmp_path)
    config = runs.table_config(table)
    config.method = config_lib.default_config("naive").method
    config.method.augment = False
    refused(config, message, tmp_path)
    binary = config_lib.default_config("pu_mlc")
    refused(binary, r"'pu_mlc' and the data \(digits\) are binary; accepted: .*'nnpu'", tmp_path)


def test_weights_from_outside_that_are_not_there_are_named(table, tmp_path):
    config = runs.table_config(table)
    config.model.init = str(tmp_path / "none.safetensors")
    refused(config, "model.init is .*none.safetensors', where no file is", tmp_path)
    config.init_from = str(tmp_path)
    refused(config, "model.init is .* and init_from .*; accepted: one of them", tmp_path)


def test_weights_from_outside_do_not_go_with_a_table(table, tmp_path):
    config = runs.table_config(table)
    config.model.init = str(tmp_path / "some.safetensors")
    (tmp_path / "some.safetensors").write_bytes(b"")
    refused(config, "model.init is .*, weights for images of 3 channels, and multilabel", tmp_path)


@pytest.mark.thorough
def test_averaged_weights_that_are_mostly_those_before_training_are_warned_about(table, tmp_path):
    config = runs.table_config(table)
    config.method.average_decay = 0.999
    config.run.compare = ""
    summary = experiment.run(config, str(tmp_path / "run"))
    assert any("the averaged weights still are 9" in text for text in summary["warnings"])


def test_known_labels_follow_the_seed_of_the_run_unless_they_have_one(table):
    def labeled(seed, known_seed):
        config = runs.table_config(table)
        config.seed, config.data.known_seed = seed, known_seed
        return experiment.load_data(config_lib.resolve(config)).labeled

    np.testing.assert_array_equal(labeled(0, -1), labeled(5, 0))
    np.testing.assert_array_equal(labeled(5, -1), labeled(0, 5))
    assert (labeled(0, -1) != labeled(5, -1)).any()
