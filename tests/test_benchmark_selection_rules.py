"""What the rules lose: hand-made runs, and the proxy accuracy at another prior against scores."""

import json

import numpy as np
import pytest

from pujax.training.evaluation import model_selection
from tests import benchmark_scripts


@pytest.fixture
def script(monkeypatch):
    return benchmark_scripts.imported(monkeypatch, "selection_rules")


def made_row(scores, labeled, prior, **columns):
    found = model_selection.criteria(
        scores, labeled, np.zeros(len(scores)), prior=prior, setting="one_sample"
    )
    row = {name: None if np.isnan(value) else value for name, value in found.items()}
    return row | {"stage": "main", "val_predicted_positive": float(np.mean(scores > 0))} | columns


def test_a_row_at_another_prior_is_what_the_scores_give_there(script):
    rng = np.random.default_rng(0)
    scores, labeled = rng.normal(size=50), np.arange(50) < 12
    row, other = (made_row(scores, labeled, prior) for prior in (0.3, 0.45))
    moved = script.at_prior(row, 0.3, 0.45, 0.3)
    assert row["val_proxy_accuracy"] != pytest.approx(other["val_proxy_accuracy"])
    for column in ("val_proxy_accuracy", "val_proxy_accuracy_vpu", "val_vpu_risk"):
        assert moved[column] == pytest.approx(other[column])


def test_runs_of_before_get_the_criterion_that_they_did_not_write(script):
    row = made_row(np.array([1.0, -1.0, 2.0]), np.array([True, False, False]), 0.5)
    wanted = row.pop("val_proxy_accuracy_vpu")
    assert script.with_mixed(row, 0.3)["val_proxy_accuracy_vpu"] == pytest.approx(wanted)
    unknown = row | {"val_proxy_accuracy": None}
    assert script.with_mixed(unknown, 0.3) == unknown


def test_the_table_has_the_points_below_the_best_epoch(script, tmp_path, capsys):
    """Epoch 0 is the best, 1 has the highest proxy accuracy, 2 the lowest risk, 3 is the last."""
    values = [(0.9, 1.2, 0.5), (0.8, 1.3, 0.4), (0.7, 1.25, -0.1), (0.6, 1.0, 0.6)]
    for seed in (0, 1):
        folder = tmp_path / f"seed_{seed}"
        folder.mkdir()
        rows = [
            {
                "stage": "main",
                "test_accuracy": accuracy - seed * (epoch == 3) * 0.1,
                "val_proxy_accuracy": proxy,
                "val_vpu_risk": risk,
                "val_predicted_positive": 0.5,
            }
            for epoch, (accuracy, proxy, risk) in enumerate(values)
        ]
        (folder / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
        summary = {"method": "m", "dataset": "d", "prior": 0.5, "setting": "two_sample"}
        (folder / "summary.json").write_text(json.dumps(summary))
        (folder / "config.json").write_text(json.dumps({"model": {"name": "mlp"}}))
    untested = tmp_path / "own_rows"
    untested.mkdir()
    rows = [{"stage": "main", "test_accuracy": None, "val_vpu_risk": 0.1}]
    (untested / "metrics.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (untested / "summary.json").write_text(json.dumps(summary))
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "metrics.jsonl").write_text("")
    assert not script.main([str(tmp_path)])
    # last: 30 and 40; no nnPU risk and no proxy AUC: the last; 1.25 + 0.03 is above 1.3 - 0.12.
    line = "| m | d | mlp | 2 | 35.0 | 35.0 | 20.0 | 10.0 | 20.0 | 35.0 |"
    out = capsys.readouterr().out
    assert line in out
    assert line.replace("m | d | mlp | 2", "mean |  |  | ") in out
    assert (
        "| m | d | mlp | 2 |" + " - |" * 10 in out
    )  # recall is solved for in one-sample data alone
    # 1.25 + 0.01 is below 1.3 - 0.04: the epoch of the highest proxy accuracy.
    assert not script.main([str(tmp_path), "--weight=0.05"])
    assert line.replace("10.0 | 20.0", "10.0 | 10.0") in capsys.readouterr().out
    # Of another network it is another line.
    (tmp_path / "seed_1" / "config.json").write_text(json.dumps({"model": {"name": "cnn"}}))
    assert not script.main([str(tmp_path)])
    out = capsys.readouterr().out
    assert "| m | d | cnn | 1 | 40.0" in out and "| m | d | mlp | 1 | 30.0" in out


@pytest.mark.parametrize("folder", ["", "missing"])
def test_a_folder_without_runs_is_refused_in_a_line(folder, script, tmp_path, capsys):
    assert script.main([str(tmp_path / folder)]) == 2
    out, err = capsys.readouterr()
    assert not out and err.count("\n") == 1
    assert f"DIR is '{tmp_path / folder}'; accepted: " in err and "finished runs" in err


@pytest.mark.parametrize("weight", ["nan", "-0.1", "inf"])
def test_a_weight_that_cannot_be_is_refused(weight, script, tmp_path, capsys):
    assert script.main([str(tmp_path), f"--weight={weight}"]) == 2
    assert f"--weight is {float(weight)}; accepted: 0 or more" in capsys.readouterr().err
