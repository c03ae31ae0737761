"""Every rule of the verdict, each with a run that it is for."""

import math
import re

import numpy as np
import pytest
from scipy import stats

from pujax import metrics
from pujax.reports import comparison, evidence, parts, run_folder, shares, verdict
from pujax.training.evaluation import one_class
from pujax.training.evaluation.model_selection import FEW_POSITIVES
from tests.reports import folders


def judged(folder):
    return verdict.of(folders.read(folder))


def said(found):
    return " ".join([*found.sentences, *found.remarks])


def test_a_good_classifier_can_be_used_and_says_how_good_it_is(tmp_path):
    found = judged(folders.tested(tmp_path / "run"))
    assert found.level == verdict.GOOD and found.word == "Can be used"
    run = folders.read(tmp_path / "run")
    accuracy, auc = run.summary["test"]["accuracy"], run.summary["test"]["auc"]
    assert f"right for {100 * accuracy:.1f} %" in found.sentences[0]
    assert f"AUC of {auc:.4f} [" in found.sentences[0] and "150 test examples" in found.sentences[0]
    assert found.remarks == () and len(found.sentences) == 3


def test_a_command_that_is_printed_can_be_copied(tmp_path):
    found = judged(folders.held(tmp_path / "my run"))
    assert f"`pujax predict '{tmp_path / 'my run'}' NEW`" in found.sentences[2]


@pytest.mark.parametrize("make", [folders.tested, folders.held])
def test_examples_that_are_not_shown_are_not_to_be_looked_at(make, tmp_path):
    make(tmp_path / "run")
    run = folders.read(tmp_path / "run")
    assert "look at the examples on the page" in verdict.of(run).sentences[2]
    left_out = verdict.of(run, with_examples=False).sentences[2]
    assert "examples on the page" not in left_out and re.match("Next: (score|repeat) ", left_out)


def test_a_good_classifier_of_own_rows_says_what_to_do_with_new_ones(tmp_path):
    found = judged(folders.held(tmp_path / "run"))
    assert found.level == verdict.GOOD, found
    assert "known positives that training did not see" in found.sentences[0]
    assert f"`pujax predict {tmp_path / 'run'} NEW`" in found.sentences[2]


@pytest.mark.parametrize("make", [folders.tested, folders.held])
def test_scores_that_say_nothing_are_no_better_than_chance(make, tmp_path):
    found = judged(make(tmp_path / "run", gap=0.0))
    assert found.level == verdict.BAD
    assert "no better than chance" in found.sentences[0] and "0.5" in found.sentences[1]


def test_an_order_that_is_turned_round_is_said(tmp_path):
    found = judged(folders.tested(tmp_path / "run", gap=-2.0))
    assert found.level == verdict.BAD and "worse than chance" in found.sentences[0]
    assert "turned round" in found.sentences[1]


def test_few_positives_explain_why_chance_cannot_be_ruled_out(tmp_path):
    found = judged(folders.tested(tmp_path / "run", gap=0.3, positives=4, negatives=30))
    assert found.level == verdict.BAD and "4 positives were there" in found.sentences[2]


def test_without_scores_the_interval_of_the_auc_comes_from_the_counts(tmp_path):
    folder = folders.tested(tmp_path / "run", gap=0.0, with_scores=False)
    assert "no better than chance" in judged(folder).sentences[0]
    assert judged(folders.tested(tmp_path / "good", with_scores=False)).level == verdict.GOOD


@pytest.mark.parametrize(("shift", "side"), [(-50.0, "negative"), (50.0, "positive")])
def test_one_class_is_not_to_be_used_though_its_ranking_may(shift, side, tmp_path):
    found = judged(folders.tested(tmp_path / "run", shift=shift))
    assert found.level == verdict.BAD
    assert f"all of the 150 evaluated examples {side}" in found.sentences[0]
    assert "run.decide=top:K" in found.sentences[2]


def test_one_class_is_what_the_run_itself_warns_of(tmp_path):
    for side, score in (("negative", -1.0), ("positive", 1.0)):
        scores = {"test": np.asarray([1.0, -1.0]), "training": np.asarray([score, score])}
        found = one_class.sides(**scores)
        judgement = judged(
            folders.tested(
                tmp_path / side, change=lambda x, found=found: x.update(predicts_one_class=found)
            )
        )
        assert judgement.level == verdict.BAD
        assert f"it calls all of the examples {side}." in judgement.sentences[0]


def test_a_budget_needs_no_threshold(tmp_path):
    run = folders.read(folders.tested(tmp_path / "run", shift=-50.0))
    run.config["run"]["decide"] = "top:20"
    found = verdict.of(run)
    assert found.level == verdict.GOOD
    # Nor does the page say how many it calls positive: it only knows a score above 0.
    assert "positive where" not in said(found) and "decides by top:20" in said(found)
    assert "the run decides by top:20" in shares.flagged(run, "x").texts[-1]


def test_where_u_holds_hardly_a_positive_none_may_be_called_positive(tmp_path):
    def change(summary):
        for entry in summary["held_out"]:
            if entry["name"] == "flagged_share":
                entry |= {"value": 0.0, "low": 0.0, "high": 0.01}
            if entry["name"] == "recall":
                entry["value"] = recall

    recall = 0.95  # so not all of the evaluated examples are called negative
    found = judged(folders.held(tmp_path / "rare", change=change))
    assert found.level == verdict.CARE and "so too few" in found.sentences[1]
    recall = 0.0
    found = judged(folders.held(tmp_path / "none", change=change))
    assert found.level == verdict.BAD
    assert "all of the 240 evaluated examples negative" in found.sentences[0]


def test_a_test_set_of_one_class_is_not_called_missing(tmp_path):
    def change(summary):
        summary["test"]["auc"] = None
        summary["counts"]["test_positives"] = 0

    found = judged(folders.tested(tmp_path / "run", change=change, with_scores=False))
    assert found.level == verdict.UNJUDGED and "no test set" not in found.sentences[0]
    assert found.sentences[1] == "There were 0 positives and 150 others to evaluate it on."


def test_without_anything_held_out_nobody_can_judge(tmp_path):
    def forget(summary):
        summary["held_out"] = []

    found = judged(folders.held(tmp_path / "run", change=forget))
    assert found.level == verdict.UNJUDGED and "data.holdout" in found.sentences[2]


def test_a_run_that_is_not_finished_says_how_far_it_came(tmp_path):
    tree = folders.config()
    folder = folders.write(tmp_path / "run", tree)
    found, planned = judged(folder), tree["method"]["num_epochs"]
    assert found.level == verdict.UNFINISHED
    assert f"4 epochs of {planned} were" in found.sentences[0]
    # No folder is named: that of a compared method, or of a seed, is not what the command takes.
    assert "with the same --workdir" in found.sentences[2] and str(folder) not in str(found)
    del tree["method"]["num_epochs"]
    unknown = judged(folders.write(tmp_path / "other", tree))
    assert "4 epochs of an unknown number were" in unknown.sentences[0]


def test_scores_that_are_not_numbers_are_not_to_be_used(tmp_path):
    run = folders.read(folders.tested(tmp_path / "run"))
    run.scores.test_scores[3] = np.nan
    found = verdict.of(run)
    assert found.level == verdict.BAD and "not a number" in found.sentences[0]


def _disagree(summary):
    summary["prior_choice"]["agree"] = False


def _wide(summary):
    summary["prior_choice"]["estimates"]["km2"] = [0.3, 0.2, 0.45]


def _open_wide(summary):
    summary["mean_probability"] = {"smallest_prior": 0.09, "largest_prior": 0.39}


def _too_large(summary):
    summary["held_out_prior"]["at_most"] = 0.2


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_disagree, "disagree beyond their intervals"),
        (_wide, "known only roughly (20.0 % to 45.0 %)"),
        (_open_wide, "known only roughly (9.0 % to 39.0 %)"),
        (_too_large, "30.0 % of the unlabeled rows are taken for positive"),
    ],
)
def test_an_uncertain_prior_leaves_the_ranking(change, text, tmp_path):
    found = judged(folders.held(tmp_path / "run", change=change))
    assert found.level == verdict.CARE
    assert text in found.sentences[1] and "top:K" in found.sentences[2]


def test_a_small_share_is_not_said_to_be_0():
    found = [parts.percent(x) for x in (0.0, 0.0001, 0.00049, 0.0005, 0.171, math.nan)]
    assert found == ["0.0 %", "0.01 %", "0.05 %", "0.1 %", "17.1 %", "unknown"]
    assert parts.percent(0.003, 0) == "0.3 %"
    found = [parts.percent(x) for x in (0.9994, 0.9996, 1 - 3e-6, 1.0)]
    assert found == ["99.9 %", "99.96 %", "99.9997 %", "100.0 %"]
    assert [parts.decimal(x) for x in (0.99994, 0.99997, 1.0)] == ["0.9999", "0.99997", "1.0000"]
    assert [parts.decimal(x) for x in (3e-6, 1e-38)] == ["0.000003", "1.0e-38"]


def test_a_prior_that_chance_explains_is_no_doubt(tmp_path):
    def change(summary):
        summary["held_out_prior"]["at_most"] = 0.3

    assert judged(folders.held(tmp_path / "run", change=change)).level == verdict.GOOD


def test_a_prior_of_which_half_is_left_open_is_no_doubt(tmp_path):
    """Half of the smallest end of all estimates is always left open."""

    def change(summary):
        summary["mean_probability"] = {"smallest_prior": 0.1, "largest_prior": 0.39}
        summary["prior_choice"]["estimates"]["km2"] = [0.3, 0.21, 0.39]

    assert judged(folders.held(tmp_path / "run", change=change)).level == verdict.GOOD


def test_an_unknown_prior_is_said(tmp_path):
    found = judged(folders.held(tmp_path / "run", prior=None))
    assert found.level == verdict.CARE and "is unknown" in found.sentences[1]


def _learned_from_truth(summary):
    summary["oracle"] = True


def _chosen_by_truth(summary):
    summary["selection"]["is_oracle"] = True


def _ends_in_one_class(summary):
    summary["one_class"] = [{"first_epoch": 1, "last_epoch": 3, "lasts": True}]


def test_a_test_set_that_was_trained_on_is_the_main_doubt_unless_chance_explains_it(tmp_path):
    def shared(rows, natural, same_id=0, **changes):
        def change(summary):
            named = {"rows": rows, "same_id": same_id, "of": 150, "among_training": natural}
            summary["test_copies"] = named
            summary.update(changes)

        return change

    many = judged(folders.tested(tmp_path / "many", change=shared(20, 0.01)))
    assert many.level == verdict.CARE
    assert "20 of 150 test rows are also training rows" in many.sentences[1]
    images = judged(
        folders.tested(tmp_path / "images", change=shared(20, 0.01, dataset="own_folder"))
    )
    assert "20 of 150 test images are also training images" in images.sentences[1]
    by_chance = folders.tested(tmp_path / "natural", change=shared(20, 0.15))
    assert judged(by_chance).level == verdict.GOOD
    by_id = folders.tested(tmp_path / "ids", change=shared(20, 0.15, same_id=3))
    assert judged(by_id).level == verdict.CARE


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (_learned_from_truth, "true labels that are hidden in practice (oracle)"),
        (_chosen_by_truth, "chosen by true labels (oracle)"),
        (_ends_in_one_class, "in its last epochs"),
    ],
)
def test_what_a_number_rests_on_is_said(change, text, tmp_path):
    found = judged(folders.tested(tmp_path / "run", change=change))
    assert found.level == verdict.CARE and text in found.sentences[1]


def test_a_weak_ranking_and_few_positives_call_for_care(tmp_path):
    found = judged(folders.tested(tmp_path / "weak", gap=0.6, positives=150, negatives=150))
    assert found.level == verdict.CARE and "separates poorly" in said(found)
    few = folders.tested(tmp_path / "few", positives=FEW_POSITIVES - 1)
    assert "rest on 19 positives only" in judged(few).sentences[1]
    enough = folders.tested(tmp_path / "enough", positives=FEW_POSITIVES)
    assert judged(enough).level == verdict.GOOD


def test_a_threshold_that_is_off_calls_for_another_rule(tmp_path):
    found = judged(folders.tested(tmp_path / "run", shift=-3.0))
    assert found.level == verdict.CARE and "so too few by its own threshold" in said(found)
    found = judged(folders.tested(tmp_path / "many", shift=3.0, positives=40, negatives=160))
    assert "so too many" in said(found) and "run.decide" in found.sentences[2]
    assert "than calling all negative, which is right for 80.0 %" in found.sentences[1]


@pytest.mark.parametrize(("accuracy", "is_doubted"), [(0.64, True), (0.74, False)])
def test_an_accuracy_is_above_the_majority_by_its_whole_interval(tmp_path, accuracy, is_doubted):
    # 90 of 150 test examples are negative; 0.64 of 150 is known to 0.06.
    folder = folders.tested(
        tmp_path / "run", change=lambda summary: summary["test"].update(accuracy=accuracy)
    )
    text = "than calling all negative, which is right for 60.0 %"
    assert (text in said(judged(folder))) == is_doubted


def test_a_better_method_on_the_same_rows_is_recommended(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "_RESAMPLES", 40)
    folders.tested(tmp_path / "run", gap=2.0)
    folders.tested(tmp_path / "run" / "classic", gap=5.0, method="classic")
    run = folders.read(tmp_path / "run")
    others = run_folder.compared(run)
    _, pairings = comparison.section([run, *others])
    found = verdict.of(run, pairings)
    assert found.level == verdict.CARE
    assert "classic is better on the same rows" in found.sentences[1]
    assert found.sentences[2] == "Next: take classic instead."
    # An upper bound that trains on true labels is no alternative.
    others[0].summary["oracle"] = True
    _, pairings = comparison.section([run, *others])
    assert verdict.of(run, pairings).level == verdict.GOOD
    others[0].summary.update({"oracle": False, "selection": {"is_oracle": True}})
    assert verdict.of(run, pairings).level == verdict.GOOD


def test_of_several_better_ones_the_best_is_named(tmp_path):
    own = evidence.of(folders.read(folders.tested(tmp_path / "run")))
    ahead = [
        comparison.Pairing(
            comparison.Group(name, ()), {"accuracy": comparison.Number(x, x / 2, 2 * x)}, 3, ""
        )
        for name, x in (("slightly", 0.01), ("much", 0.2), ("more", 0.1))
    ]
    assert comparison.better(ahead, own)[0].name == "much"


def test_intervals_are_those_of_the_literature():
    # Brown, Cai and DasGupta (2001): Jeffreys' interval is the beta distribution's quantiles.
    assert evidence.jeffreys(0, 10).low == 0.0 and evidence.jeffreys(10, 10).high == 1.0
    found = evidence.jeffreys(5, 10)
    # The density of Beta(5.5, 5.5) is x^4.5 (1 - x)^4.5 but for a factor; 5 % lie below the end.
    x = (np.arange(1_000_000) + 0.5) / 1_000_000
    density = (x * (1 - x)) ** 4.5
    assert density[x < found.low].sum() / density.sum() == pytest.approx(0.05, abs=1e-5)
    assert found.low == pytest.approx(1 - found.high)
    # Hanley and McNeil (1982): AUC 0.8 of 50 and 40, Q1 = 2/3, Q2 = 0.7111, variance by hand. Of an
    # interval that ends there, 0.8 is as far away as chance explains (Newcombe 2006).
    half = 1.644854 * math.sqrt((0.16 + 49 * (2 / 3 - 0.64) + 39 * (1.28 / 1.8 - 0.64)) / 2000)
    assert evidence.hanley_mcneil(0.8 + half, 50, 40).low == pytest.approx(0.8, abs=1e-6)
    assert evidence.hanley_mcneil(0.8 - half, 50, 40).high == pytest.approx(0.8, abs=1e-6)
    assert evidence.hanley_mcneil(1.0, 50, 40).high == 1.0 > evidence.hanley_mcneil(1.0, 50, 40).low
    assert evidence.hanley_mcneil(0.0, 50, 40).low == 0.0 < evidence.hanley_mcneil(0.0, 50, 40).high


def test_an_area_near_1_has_room_above_it(monkeypatch):
    monkeypatch.setattr(evidence, "_RESAMPLES", 1)
    # Of 60 and 60 scores one pair in 100 is in the wrong order in truth; intervals of 90 % hold
    # that for 36 of 40 samples and more, which those of the bootstrap alone do not.
    gap, held = 2**0.5 * stats.norm.ppf(0.99), 0
    for seed in range(40):
        scores, labels = folders.scores_of(60, 60, gap=gap, seed=seed)
        value = metrics.auc(scores, labels)
        values = {"auc": value, "f1": 0.5, "average_precision": 0.5}
        found = evidence._from_scores(values, scores, labels)["auc"]
        assert found.low <= value <= found.high
        held += found.low <= 0.99 <= found.high
    assert held >= 36


def test_a_bootstrap_that_cannot_tell_gives_no_interval():
    labels = np.array([1] * 9 + [0] * 9)

    def share(scores, labels):
        return float(np.mean((scores > 0) == labels))

    perfect = evidence.resampled(share, labels - 0.5, labels, value=1.0)
    assert perfect.value == 1.0 and not perfect.has_interval
    mixed = np.where(np.arange(18) % 4, labels - 0.5, 0.5 - labels)
    found = evidence.resampled(share, mixed, labels, value=share(mixed, labels))
    assert found.low < found.value < found.high

    # Runs that say the same of every example differ by 0, and that is known.
    def nothing(scores, labels):
        return 0.0

    same = evidence.resampled(nothing, mixed, labels, value=0.0, is_difference=True)
    assert same == (0.0, 0.0, 0.0)
    # Another number that is 0 in all of them is as little known as a perfect one.
    assert not evidence.resampled(nothing, mixed, labels, value=0.0).has_interval
