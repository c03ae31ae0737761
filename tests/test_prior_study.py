"""The study of a wrong prior: its heads, its files, and the command."""

import csv
import json
import os
import re
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import linear_head, metrics, prior_study
from pujax.prior_study import __main__ as command
from pujax.training import config as config_lib
from pujax.training import experiment, init_from


def problem(seed=0, *, d=6):
    """Features of U's and P's two clouds, and of a test set."""
    rng = np.random.default_rng(seed)
    truth = np.repeat([1, 0], [80, 320])
    labeled = (np.arange(400) < 30).astype(np.float32)
    test_truth = np.tile([1, 0], 100)
    train, test = (rng.normal(size=[len(t), d]) + 0.8 * t[:, None] for t in (truth, test_truth))
    return jnp.float32(train), labeled, jnp.float32(test), test_truth


@pytest.mark.thorough
def test_every_factor_and_seed_is_the_head_that_would_be_trained_alone():
    features, labeled, tested, truth = problem()
    found = prior_study.study(
        features,
        labeled,
        tested,
        truth,
        prior=0.135,
        factors=(0.5, 1, 3),
        num_seeds=2,
        num_epochs=4,
    )
    assert found.auc.shape == (3, 2, 4) and found.f1.shape == found.accuracy.shape == (3, 2)
    np.testing.assert_allclose(found.priors, [0.0675, 0.135, 0.405])
    for i, prior in enumerate(found.priors):
        for seed in range(2):
            _, scores = linear_head.fit(
                jax.random.key(seed), features, labeled, prior=prior, num_epochs=4, watched=tested
            )
            aucs = [metrics.auc(np.asarray(row), truth) for row in scores]
            np.testing.assert_allclose(found.auc[i, seed], aucs, atol=1e-3)
            for name in ("f1", "accuracy"):
                wanted = getattr(metrics, name)(scores[-1], truth)
                np.testing.assert_allclose(getattr(found, name)[i, seed], wanted, atol=0.02)


def test_runs_beside_it_are_told_apart_and_only_read(tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(prior_study, "of_run", lambda *args, **options: None)
    monkeypatch.setattr(prior_study, "write", lambda *args, beside, **about: drawn.update(beside))
    monkeypatch.setattr(prior_study, "table", lambda found: "")
    whole = '{"epoch": 0, "test_auc": 0.5}\n'
    folders = []
    for method, text in (("naive", whole), ("nnpu", whole + '{"epoch": 1, "te')):
        folder = tmp_path / method / "seed_0"
        folder.mkdir(parents=True)
        (folder / "metrics.jsonl").write_text(text)  # the second still trains
        folders.append(str(folder))
    assert command.main(["prior_study", "run", f"--beside={','.join(folders)}"]) == 0
    row = {"epoch": 0, "test_auc": 0.5}
    assert drawn == {"naive/seed_0": [row], "nnpu/seed_0": [row]}
    assert (tmp_path / "nnpu/seed_0/metrics.jsonl").read_text().endswith('"te')
    assert os.listdir(tmp_path / "nnpu/seed_0") == ["metrics.jsonl"]
    drawn.clear()
    assert command.main(["prior_study", "run", f"--beside={folders[0]}"]) == 0
    assert list(drawn) == ["seed_0"]
    assert command.main(["prior_study", "run", f"--beside={folders[0]},{folders[0]}/"]) == 2


@pytest.mark.thorough
def test_a_larger_prior_calls_more_positive():
    features, labeled, tested, truth = problem()
    options = {"factors": (0.2, 5), "num_seeds": 1, "num_epochs": 800, "loss": "nnpu"}
    found = prior_study.study(features, labeled, tested, truth, prior=0.135, **options)
    # Half of the test set is positive, so that F1 lacks what recall lacks.
    assert found.f1[0, 0] + 0.2 < found.f1[1, 0], found.f1


@pytest.mark.thorough
def test_the_usual_factors_stop_where_the_prior_would_reach_one():
    features, labeled, tested, truth = problem()
    found = prior_study.study(
        features, labeled, tested, truth, prior=0.3, num_seeds=1, num_epochs=1
    )
    assert max(found.factors) == 3 and found.factors[0] == 0.1


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"factors": (1, 8)}, "factors holds 8; accepted: positive numbers below 7.407"),
        ({"factors": (0,)}, "factors holds 0; accepted"),
        ({"factors": (float("nan"),)}, "factors holds nan; accepted"),
        ({"prior": 1.0}, "prior is 1.0; accepted"),
        ({"num_seeds": 0}, "num_seeds is 0; accepted"),
        ({"num_seeds": "3"}, "num_seeds is '3'; accepted"),
        ({"prior": "0.1"}, "prior is '0.1'; accepted"),
        ({"factors": ("2",)}, "factors holds '2'; accepted"),
        ({"batch_size": 2.5}, "batch_size is 2.5; accepted"),
        ({"loss": "bce"}, "loss is 'bce'; accepted: 'imbalanced_nnpu', 'nnpu'"),
    ],
)
def test_what_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        prior_study.study(*problem(), **({"prior": 0.135, "num_epochs": 1} | changes))


def test_the_files_hold_what_the_study_found(tmp_path):
    found = prior_study.study(*problem(), prior=0.135, factors=(0.5, 2), num_seeds=2, num_epochs=3)
    beside = {"scratch": [{"epoch": 0, "test_auc": 0.7}, {"epoch": 1}]}
    prior_study.write(found, str(tmp_path), title="a title", beside=beside)
    assert sorted(os.listdir(tmp_path)) == ["curves.csv", "curves.png", "study.json"]
    with open(tmp_path / "curves.csv", newline="") as file:
        rows = list(csv.reader(file))
    assert rows[0] == ["epoch", "factor 0.5", "factor 2"]
    np.testing.assert_allclose(np.asarray(rows[1:], float)[:, 1:], found.auc.mean(1).T)
    with open(tmp_path / "study.json") as file:
        np.testing.assert_allclose(json.load(file)["auc"], found.auc)
    lines = prior_study.table(found).splitlines()
    assert len(lines) == 4 and "+0.00" in lines[2] + lines[3]


def test_the_figure_has_a_curve_per_factor_and_per_run_beside():
    found = prior_study.study(*problem(), prior=0.135, factors=(0.5, 2), num_seeds=2, num_epochs=3)
    drawn = prior_study.figure(found, beside={"scratch": [{"epoch": 0, "test_auc": 0.7}]})
    axes = drawn.axes[0]
    labels = [line.get_label() for line in axes.lines]
    assert labels == ["prior x 0.5", "prior x 2", "scratch"]
    np.testing.assert_allclose(axes.lines[0].get_ydata(), 100 * found.auc[0].mean(0))
    names = {name: [{"epoch": 0, "test_auc": 0.7}] for name in ("_scratch", "b$\\q$")}
    drawn = prior_study.figure(found, title="a$\\q$", beside=names)
    texts = drawn.axes[0].get_legend().get_texts()
    assert [x.get_text() for x in texts][-2:] == list(names)
    drawn.canvas.draw()  # what is no mathematics is not read as such


def test_a_saved_model_is_not_taken_for_a_run(tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"library_name": "pujax"}')
    assert command.main(["prior_study", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert "not the folder of a run" in error and error.count("\n") == 1


def run_on_digits(folder, **data_file):
    """The folder of a run that starts from outside weights, without the encoder that it left."""
    config = config_lib.default_config("naive")
    config.data.update({"source": "digits", "num_labeled": 20})
    config.model.update({"name": "resnet18_v1", "init": "weights.npz"})
    (folder / "config.json").write_text(json.dumps(config.to_dict()))
    (folder / "data.json").write_text(json.dumps(data_file))
    return experiment.load_data(config_lib.resolve(config)).digest()


def test_data_that_have_changed_since_the_run_are_refused(tmp_path):
    run_on_digits(tmp_path, digest="of an encoder too", examples="of other rows")
    with pytest.raises(ValueError, match="^RUNDIR is .*, a run on other data .*; accepted: "):
        prior_study.of_run(str(tmp_path))


def test_the_runs_own_encoder_takes_the_place_of_outside_weights(tmp_path):
    """They may be gone, too: its examples are compared without them."""
    examples = run_on_digits(tmp_path)
    run_on_digits(tmp_path, digest="of an encoder too", examples=examples)
    with pytest.raises(ValueError, match="^init_from is .*, which holds no encoder.npz"):
        prior_study.of_run(str(tmp_path))


def test_data_of_a_run_of_an_older_version_are_compared_with_its_encoder(tmp_path, monkeypatch):
    run_on_digits(tmp_path, digest="of an encoder too")
    (tmp_path / "weights.npz").touch()
    monkeypatch.chdir(tmp_path)
    attached = SimpleNamespace(digest=lambda: "of another encoder")
    monkeypatch.setattr(init_from, "attach", lambda config, data: attached)
    with pytest.raises(ValueError, match="^RUNDIR is .*, a run on other data"):
        prior_study.of_run(str(tmp_path))


@pytest.mark.parametrize("field", ["init_from", "model.init"])
def test_an_older_run_is_studied_without_the_encoder_that_it_began_with(tmp_path, field):
    """The next error is of the run's own encoder, which this folder lacks."""
    run_on_digits(tmp_path, digest="of an encoder that is gone")
    path = tmp_path / "config.json"
    if field == "init_from":
        config = json.loads(path.read_text()) | {"init_from": str(tmp_path / "gone")}
        config["model"]["init"] = "random"
        path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"^init_from is '{re.escape(str(tmp_path))}'"):
        prior_study.of_run(str(tmp_path))


def test_a_run_without_a_test_set_is_named(tmp_path):
    rows = "".join(f"{i},{i % 7},{int(i < 30)}\n" for i in range(60))
    (tmp_path / "rows.csv").write_text(f"a,b,label\n{rows}")
    config = config_lib.default_config("naive")
    place = {"source": "own_table", "path": str(tmp_path / "rows.csv"), "label": "label"}
    config.data.update(place | {"positive_classes": (), "num_labeled": 0, "prior": 0.6})
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    with pytest.raises(ValueError, match="RUNDIR is .*, a run without a test set; accepted: one"):
        prior_study.of_run(str(tmp_path))


@pytest.mark.parametrize(
    "arguments, message",
    [
        ([], "RUNDIR is ''; accepted: one folder"),
        (["nowhere"], "RUNDIR is 'nowhere', which holds no config.json"),
        (["nowhere", "--factors=a"], "--factors is 'a'; accepted"),
        (["nowhere", "--beside=none"], "--beside: none holds no metrics.jsonl"),
    ],
)
def test_the_command_says_what_is_wrong_in_one_line(arguments, message, capsys):
    assert command.main(["prior_study", *arguments]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_missing_data_are_advised_about_in_flags_of_the_command(tmp_path, capsys):
    config = config_lib.default_config("nnpu")
    config.data.source, config.data.dir = "image_folder", str(tmp_path / "moved")
    (tmp_path / "config.json").write_text(json.dumps(config.to_dict()))
    with pytest.raises(ValueError, match="--config.data.dir"):
        prior_study.of_run(str(tmp_path))
    assert command.main(["prior_study", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "--data_dir" in said and "--config" not in said and said.count("\n") == 1
