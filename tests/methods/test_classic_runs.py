"""Runs of the classical method: saved models, comparisons, several seeds, scikit-learn."""

import jax
import numpy as np
import pandas as pd
import pytest

import pujax
from pujax import methods, training
from pujax.methods import classic
from pujax.training import config as config_lib
from pujax.training import (
    experiment,
    method_setup,
    preemption,
    run_state,
    seed_axis,
    train_loop,
)
from pujax.training.seed_axis import Member
from tests import tiny
from tests.methods.test_classic import BASES, rows_and_labels


def small_table(tmp_path):
    rng = np.random.default_rng(0)
    positive = rng.random(500) < 0.3
    frame = pd.DataFrame(rng.normal(size=[500, 3]) + 1.5 * positive[:, None], columns=list("abc"))
    frame["word"] = np.where(rng.random(500) < 0.5, "x", "y")
    frame["known"] = (positive & (rng.random(500) < 0.4)).astype(int)
    path = tmp_path / "rows.csv"
    frame.to_csv(path, index=False)
    config = config_lib.default_config("classic")
    config.data.update({"source": "own_table", "path": str(path), "label": "known"})
    config.data.update({"positive_classes": (), "num_labeled": 0, "holdout": 0.2, "prior": 0.3})
    config.model.name = "mlp"
    config.run.figures = False
    return config, frame, positive


@pytest.mark.parametrize("base", ["logistic", pytest.param("boosting", marks=pytest.mark.thorough)])
def test_a_saved_model_predicts_what_the_run_predicted(tmp_path, base, monkeypatch):
    monkeypatch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
    config, frame, _ = small_table(tmp_path)
    config.method.update({"base": base, "correction": "bagging", "num_bags": 2, "max_iter": 9})
    summary = training.run(config, str(tmp_path / "run"))
    written = pd.read_csv(tmp_path / "run" / "predictions.csv", index_col="row")
    loaded = pujax.load(tmp_path / "run").predict(frame)
    np.testing.assert_allclose(loaded.scores[written.index - 1], written.score, rtol=1e-6)
    assert summary["num_epochs"] == 1 and summary["estimates"]["iterations"] > 0
    again = training.run(config, str(tmp_path / "run"))
    assert again["held_out"] == summary["held_out"]


def test_own_rows_are_compared_by_what_is_held_out(tmp_path, monkeypatch):
    monkeypatch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
    said = []
    monkeypatch.setattr(experiment, "message", said.append)
    config, *_ = small_table(tmp_path)
    nnpu = config_lib.default_config("nnpu").method
    nnpu.update({"augment": False, "num_epochs": 2, "batch_size": 50})
    config.method, config.run.compare = nnpu, "classic"
    config.model.options = {"hidden": (8,)}
    summary = training.run(config, str(tmp_path / "run"))
    table = said[-1]
    assert "AUC of P against U" in table and "test accuracy" not in table
    lines = {line.split()[0]: line for line in table.splitlines() if line.strip()}
    assert "nnpu" in lines and "classic" in lines
    other = training.run(config, str(tmp_path / "run"))["comparison"]["classic"]
    assert other == summary["comparison"]["classic"]
    held = {entry["name"]: entry["value"] for entry in summary["held_out"]}
    assert f"{held['auc_pu']:.4f}" in lines["nnpu"]
    value = summary["comparison"]["classic"]["held_out"]["auc_pu"]
    assert 0.6 < value < 1 and f"{value:.4f}" in lines["classic"]


@pytest.mark.parametrize("base", ["logistic", pytest.param("boosting", marks=pytest.mark.thorough)])
def test_seeds_that_train_together_are_each_what_it_is_alone(tmp_path, base):
    changes = {"base": base, "correction": "bagging", "num_bags": 2, "max_iter": 9}
    members, alone = [], []
    for seed in range(2):
        data = tiny.table_problem(seed)
        config = tiny.config("classic", model="mlp", seed=seed, **changes)
        alone.append(tiny.train_in(tmp_path / f"alone{seed}", config, data)[0].reported(0))
        setup = method_setup.build(config, data, tiny.mesh())
        members.append(Member(setup, data, str(tmp_path / str(seed))))
    assert seed_axis.why_sequential(members, tiny.mesh()) == ""
    run = run_state.prepare(members, tiny.mesh(), folder=str(tmp_path / "checkpoints"))
    try:
        state = train_loop.train(run, tiny.NoProgress(), preemption.StopRequest())
    finally:
        run.close()
    for seed in range(2):
        together = state.reported(seed)
        for a, b in zip(jax.tree.leaves(alone[seed]), jax.tree.leaves(together), strict=True):
            np.testing.assert_array_equal(a, b)
    first, second = (np.asarray(jax.tree.leaves(x.models)[0]) for x in alone)
    assert np.any(first != second)


def test_no_setting_carries_over_between_a_network_and_a_classical_row():
    config = config_lib.default_config("nnpu")
    config.method.update({"learning_rate": 1e-5, "num_epochs": 7})
    compared = config_lib.to_compare(config, "classic").method
    assert compared.to_dict() == classic.default_config().to_dict()
    back = config_lib.to_compare(config_lib.default_config("classic"), "naive").method
    assert back.to_dict() == methods.module("naive").default_config().to_dict()


@pytest.mark.parametrize("base", BASES)
def test_it_is_a_scikit_learn_estimator(base):
    rows, labeled = rows_and_labels(500)
    options = {"base": base, "max_iter": 20}
    model = pujax.PUClassifier("classic", prior=0.5, options=options, random_state=0)
    assert model.fit(rows, labeled).score(rows, labeled) > 0.75
    assert model.predict_proba(rows).shape == (500, 2)
