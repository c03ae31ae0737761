"""What is said of own rows at each estimate of the prior."""

import json
import math

import numpy as np
import pandas as pd
import pytest

from pujax import calibration, metrics, training
from pujax.data.pu_dataset import PriorChoice
from pujax.training import config as config_lib
from pujax.training import own_results, prior_dependence, prior_estimation
from pujax.training.evaluation.summary import Final
from tests import tiny  # noqa: F401  (devices are set there)

CHOICE = PriorChoice(
    "tice",
    False,
    {"best_bin": (0.3, 0.2, 0.4), "tice": (0.1, 0.05, 0.15), "ratio": (0.3, 0.28, 0.4)},
)


def scores(seed=0, m=60, n=600, share=0.1):
    rng, hidden = np.random.default_rng(seed), round(share * n)
    positive = rng.normal(2, 1, m)
    return positive, np.concatenate([rng.normal(2, 1, hidden), rng.normal(-2, 1, n - hidden)])


def rows(choice=CHOICE, setting="two_sample", **changes):
    positive, unlabeled = scores()
    given = {"positive": positive, "unlabeled": unlabeled, "everything": unlabeled} | changes
    return prior_dependence.by_prior(
        *given.values(), choice=choice, setting=setting, labeled_share=0.2
    )


def test_every_prior_is_a_row_in_order_and_equal_ones_share_it():
    found = rows()
    assert [row["prior from"] for row in found] == [
        "half of the smallest",
        "tice",
        "best_bin, ratio",
    ]
    assert [row["prior in U"] for row in found] == [0.05, 0.1, 0.3]
    assert [row["used"] for row in found] == [False, True, False]


@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_a_row_is_what_the_functions_say_at_its_prior(setting):
    positive, unlabeled = scores()
    for row in rows(setting=setting):
        prior = row["prior in U"]
        known = {"prior": prior, "setting": setting, "labeled_share": 0.2}
        told = metrics.unlabeled_estimates(positive, unlabeled, **known)
        expected = {x.name: x.value for x in told}
        assert set(prior_dependence.NUMBERS) <= set(expected)
        for name in prior_dependence.NUMBERS:
            assert row[name] == expected[name]
        learned = calibration.fit(positive, unlabeled, **known)
        above = unlabeled > calibration.threshold_at(learned, 0.5)
        assert row["called positive"] == above.sum()


@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_all_rows_of_u_count_as_called_positive_and_none_of_p(setting):
    choice = PriorChoice("tice", False, {"tice": (0.1,), "ratio": (0.6,)})
    data = tiny.problem(num_validation=60, setting=setting)._replace(prior_choice=choice)
    rng = np.random.default_rng(0)
    train, held = (
        rng.normal(4.0 * truth - 2, 0.3) for truth in (data.truth, data.validation_truth)
    )
    final = Final({}, np.zeros(0), train, None, {}, {}, held)
    found = own_results.of(data, final).dependence
    of_u = data.truth[data.hidden()].sum() + data.validation_truth[~data.validation_labeled].sum()
    assert found[-1][prior_dependence.CALLED] == of_u > 0


def test_precision_is_proportional_to_the_prior_until_it_is_one():
    half, smallest, largest = rows()
    assert smallest["precision"] == pytest.approx(2 * half["precision"])
    assert largest["precision"] == pytest.approx(min(3 * smallest["precision"], 1))
    assert half["called positive"] <= smallest["called positive"] <= largest["called positive"]


def test_nothing_is_said_of_one_estimate_and_shares_of_0_and_1_are_left_out():
    alone = CHOICE._replace(estimates={"tice": CHOICE.estimates["tice"]})
    assert rows(alone) == ()
    more = CHOICE.estimates | {"pearson": (1.0, 0.0, 1.0), "alphamax": (0.0, 0.0, 0.1)}
    assert rows(CHOICE._replace(estimates=more)) == rows()


def test_possible_shares_reach_from_half_of_the_smallest_end_to_the_largest():
    larger = CHOICE._replace(estimates={"a": (0.3, 0.2, 0.4), "b": (0.5, 0.3, 0.6)})
    assert prior_dependence.possible_shares(larger, used=0.3) == (0.1, 0.6)
    # Of a few percent nothing may be left.
    low, high = prior_dependence.possible_shares(CHOICE, used=0.1)
    assert 0 < low < 0.001 and high == 0.4
    small = CHOICE._replace(estimates={"a": (0.1, 0.08, 0.12)})
    assert prior_dependence.possible_shares(small, used=0.1) == (pytest.approx(0.03), 0.12)
    nothing = {"pearson": (1.0, 0.001, 1.0), "ratio": (0.0, 0.0, 0.9), "tice": (0.5, 0.0, 1.0)}
    silent = CHOICE._replace(estimates=nothing)
    assert prior_dependence.possible_shares(silent, used=0.1) == (0.1, 0.1)
    without = CHOICE._replace(estimates={"km2": (0.3, math.nan, math.nan)})
    assert prior_dependence.possible_shares(without, used=0.3) == (0.15, 0.3)
    whole = CHOICE._replace(estimates={"a": (0.2, 0.0, 0.3), "b": (0.4, 0.3, 1.0)})
    low, high = prior_dependence.possible_shares(whole, used=0.2)
    assert 0 < low < 0.001 and 0.999 < high < 1


@pytest.mark.parametrize(
    "change",
    [{"everything": np.array([np.inf])}, {"positive": np.zeros(0)}, {"unlabeled": np.zeros(0)}],
)
def test_what_cannot_be_known_is_missing(change):
    for row in rows(**change):
        assert row["called positive"] is None
    table = prior_dependence.describe(rows(**change), agree=False)
    assert "tice *" in table


def test_the_table_marks_what_is_used_and_says_whether_estimators_agree():
    text = prior_dependence.describe(rows(), agree=False)
    assert "disagree beyond their intervals" in text
    (line,) = [x for x in text.splitlines() if x.startswith("tice *")]
    assert line.split()[2] == "0.1000" and line.split()[-1] == str(rows()[1]["called positive"])
    agreed = prior_dependence.describe(rows(), agree=True)
    assert "(0.100 to 0.300), and all may be too high. What depends on it" in agreed
    assert "disagree" not in agreed


@pytest.mark.thorough
@pytest.mark.usefixtures("one_device")
def test_a_run_on_own_rows_prints_and_keeps_it(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(prior_estimation, "_NUM_RESAMPLES", 20)
    rng = np.random.default_rng(0)
    hidden = rng.random(900) < 0.15
    frame = pd.DataFrame(rng.normal(size=[900, 3]) + 1.2 * hidden[:, None], columns=list("abc"))
    frame["s"] = (hidden & (rng.random(900) < 0.5)).astype(int)
    frame.to_csv(tmp_path / "mine.csv", index=False)
    config = config_lib.default_config("nnpu")
    config.data.update({"source": "own_table", "path": str(tmp_path / "mine.csv"), "label": "s"})
    config.data.update({"positive_classes": (), "num_labeled": 0, "num_support": 0})
    config.data.update({"holdout": 0.2, "prior": "auto", "prior_epochs": 3})
    config.model.update({"name": "mlp", "options": {"hidden": (8,)}})
    config.method.update({"num_epochs": 3, "batch_size": 64, "batching": "separate"})
    config.run.update({"figures": False, "compare": ""})
    folder = tmp_path / "run"
    summary = training.run(config, str(folder))
    text = capsys.readouterr().out
    kept = json.loads((folder / prior_estimation.FILE).read_text())
    choice = summary["prior_choice"]
    assert set(choice["estimates"]) == set(kept["estimates"])
    assert choice["agree"] == kept["agree"] and choice["method"] == kept["method"]
    by_prior = summary["held_out_by_prior"]
    assert "half of the smallest" in text and f"{choice['method']} *" in text
    (used,) = [row for row in by_prior if row["used"]]
    assert used["prior in U"] == summary["prior_unlabeled"]
    held = {x["name"]: x["value"] for x in summary["held_out"]}
    assert used["auc"] == held["auc"] and used["precision"] == held["precision"]
    written = pd.read_csv(folder / "predictions.csv")
    count = int((written.probability > 0.5).sum())
    # Probabilities of the run are fitted at the same prior; the file rounds them to six digits.
    assert abs(used["called positive"] - count) <= 1
    assert all(math.isfinite(row["accuracy"]) for row in by_prior)
    doubt = summary["mean_probability"]
    assert doubt["mean"] == pytest.approx(written.probability.mean(), rel=1e-4)
    assert doubt["low"] == pytest.approx(written.probability_low.mean(), rel=1e-4)
    assert doubt["high"] == pytest.approx(written.probability_high.mean(), rel=1e-4)
    smallest = min(row["prior in U"] for row in by_prior)
    assert doubt["smallest_prior"] <= smallest < used["prior in U"] < doubt["largest_prior"]
    assert "see probability_low and probability_high" in text
