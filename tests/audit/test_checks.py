"""Faults that are planted into the digits are found by the check that they are meant for."""

import json
import pathlib
import re
import tracemalloc

import numpy as np
import pytest

from pujax import audit, metrics
from pujax.audit import (
    class_prior,
    duplicates,
    inputs,
    label_counts,
    labeling,
    leaks,
    overlap,
    scales,
)
from pujax.audit import scoring as scoring_lib
from pujax.audit.base import ERROR, NOTE, WARNING, in_order
from pujax.priors import PriorEstimate
from tests import benchmark_scripts
from tests.conftest import real_data_folder


@pytest.fixture(scope="module")
def rates():
    with pytest.MonkeyPatch.context() as patch:
        yield benchmark_scripts.imported(patch, "check_rates")


@pytest.fixture(scope="module")
def digits(rates):
    return rates.load("digits", pathlib.Path())


@pytest.fixture
def planted(rates, digits):
    def make(fault, seed=0):
        return rates.plant(digits, fault, 150, seed)

    return make


def severities(findings):
    return {finding.name: finding.severity for finding in findings}


@pytest.mark.parametrize(
    ("num_p", "severity"),
    [(0, ERROR), (3, ERROR), (4, ERROR), (5, WARNING), (29, WARNING), (30, NOTE), (79, NOTE)],
)
def test_few_labels_are_the_more_severe_the_fewer_they_are(num_p, severity):
    (finding,) = label_counts.check(np.arange(500) < num_p)
    assert finding.severity == severity and str(num_p) in finding.title


@pytest.mark.parametrize(
    ("num_p", "held", "step"), [(5, 1, "100%"), (12, 2, "50%"), (20, 4, "25%")]
)
def test_few_labels_say_what_the_held_out_fifth_can_tell(num_p, held, step):
    (finding,) = label_counts.check(np.arange(500) < num_p)
    assert f"is {held} labels, so that recall moves by {step} with" in finding.evidence[1]


def test_the_advice_for_few_labels_fits_the_kind_of_data():
    labeled = np.arange(500) < 40
    (table,), (images,) = (label_counts.check(labeled, kind=kind) for kind in ("table", "images"))
    assert "logistic regression" in table.advice and "begins at 80 labels" in table.evidence[1]
    assert "imbalanced_nnpu" in table.advice and "is not measured with fewer" in table.advice
    assert "logistic" not in images.advice and "begins at 200 labels for im" in images.evidence[1]


def test_many_labels_are_no_finding_and_few_unlabeled_rows_are():
    assert label_counts.check(np.arange(500) < 80) == []
    assert severities(label_counts.check(np.arange(100) < 97)) == {"label_counts": ERROR}
    assert severities(label_counts.check(np.arange(100) < 90)) == {"label_counts": WARNING}


def test_copies_of_labelled_rows_in_u_are_counted_and_named(planted):
    problem, _ = planted("copies")
    (finding,) = duplicates.check(problem)
    assert finding.severity == WARNING
    assert finding.numbers["labeled_rows"] == finding.numbers["unlabeled_rows"] == 50
    assert re.search(r"(\d+) \(P\) = (\d+) \(U\)", finding.evidence[1])
    for p, u in re.findall(r"(\d+) \(P\) = (\d+) \(U\)", finding.evidence[1]):
        rows = int(p) - 1, int(u) - 1
        np.testing.assert_array_equal(*problem.features[list(rows)])
        assert problem.labeled[rows[0]] and not problem.labeled[rows[1]]


def test_copies_by_nature_are_a_note_and_repeated_labels_a_warning():
    rng = np.random.default_rng(0)
    rows = rng.integers(0, 2, [400, 6])
    assert severities(duplicates.check(audit.problem(rows, np.arange(400) < 60))) == {
        "duplicates": NOTE
    }
    rows = rng.normal(size=[400, 3])
    rows[30:60] = rows[:30]
    problem = audit.problem(rows, np.arange(400) < 60)
    assert severities(duplicates.check(problem)) == {"repeated_labels": WARNING}
    rows[:, 0] = 0.0
    rows[200, 0], rows[201] = -0.0, rows[200]
    rows[201, 0] = 0.0
    counted = audit.problem(rows, np.arange(400) == 201)
    assert duplicates.check(counted)[0].numbers["labeled_rows"] == 1  # -0 is 0


@pytest.mark.parametrize(("fault", "severity"), [("leak", ERROR), ("half leak", WARNING)])
def test_a_leaking_column_is_named(planted, fault, severity):
    problem, column = planted(fault)
    (finding,) = leaks.check(problem, seed=0)
    assert finding.severity == severity
    assert [x["name"] for x in finding.numbers["columns"]] == [column]
    assert column in finding.title and column in finding.evidence[0]


def test_copies_of_a_leak_do_not_clear_each_other(planted):
    problem, leak = planted("half leak twice")
    (finding,) = leaks.check(problem, seed=0)
    assert {x["name"] for x in finding.numbers["columns"]} == {leak, f"{leak}, too"}
    assert f"and without {leak!r}, which say the same" in " ".join(finding.evidence)


def test_a_copy_is_a_column_that_is_suspicious_because_of_the_same_rows():
    rows = np.arange(20) < 16

    def seen(name, bound, of=rows):
        return leaks._Seen(leaks.Column(name, 0.9, bound, float(of.mean())), of)

    others = [
        seen("leak", 0.01),
        seen("same rows", 0.01),
        seen("some of them", 0.01, np.arange(20) < 5),
        seen("other rows", 0.01, np.arange(20) > 12),
        seen("says nothing of the label", 0.8),
    ]
    assert leaks._copies(others[0], others) == ("same rows", "some of them")


def test_a_leak_of_both_ends_of_a_column_and_of_files_is_seen(planted):
    problem, _ = planted("clean")
    rng = np.random.default_rng(0)
    ends = np.where(problem.labeled, rng.choice([-5, 5], len(problem.labeled)), 0)
    facts = (ends + rng.normal(size=len(ends)))[:, None]
    found = leaks.check(problem._replace(facts=facts, fact_names=("width",)), seed=0)
    assert severities(found) == {"leak": ERROR} and "width" in found[0].title


def test_scores_that_say_nothing_are_no_witness_against_a_column(monkeypatch):
    """Ten labels, 220 unlabeled rows: an AUC above .653 is chance in one of twenty draws."""
    labeled = np.arange(230) < 10
    column = leaks.Column("gene", 0.75, 0.04, 0.4)
    problem = audit.problem(np.random.default_rng(0).normal(size=(230, 3)), labeled)

    def severity(auc, column=column):
        # The scores of U are 1 to 220, and all of P have the one with this share of U below.
        values = np.where(labeled, 220 * auc + 0.5, np.arange(230) - 9.0)
        scores = scoring_lib.Scores(values, labeled)
        monkeypatch.setattr(scoring_lib, "held_out", lambda *a, **k: scores)
        monkeypatch.setattr(scoring_lib, "largest_prior", lambda scores: 1.0)
        return leaks._judge(problem, column, False, (), seed=0)[0]

    assert [severity(auc) for auc in (0.26, 0.5, 0.65)] == ["", "", ""]
    assert severity(0.66) == WARNING
    # What is as clear as this is no chance, whatever the others say.
    clear = [severity(auc, column._replace(auc=0.9)) for auc in (0.26, 0.65, 0.66)]
    assert clear == [WARNING, WARNING, ERROR]


def test_an_auc_is_by_chance_as_large_as_it_is_in_one_of_twenty_draws():
    rng = np.random.default_rng(0)
    labeled = np.arange(60) < 12
    drawn = np.array([metrics.auc(rng.random(60), labeled) for _ in range(2000)])
    assert (drawn > scoring_lib.auc_by_chance(labeled)).mean() == pytest.approx(0.05, abs=0.015)


def test_clean_digits_have_neither_leak_nor_copies_nor_bias(planted):
    for seed in range(2):
        problem, _ = planted("clean", seed)
        assert leaks.check(problem, seed=seed) == []
        assert duplicates.check(problem) == []
        assert labeling.check(problem, seed=seed) == []


def test_a_column_that_says_nothing_has_an_auc_of_a_half():
    rng = np.random.default_rng(0)
    labeled = np.arange(4000) < 400
    values = np.column_stack([rng.normal(size=4000), rng.integers(0, 300, 4000), np.ones(4000)])
    found = leaks._seen(values, ("a", "b", "c"), labeled, seed=0)
    assert [x.column.name for x in found] == ["a", "b"]
    for column in (x.column for x in found):
        assert abs(column.auc - 0.5) < 0.05 and column.bound > 0.7


def test_the_bound_of_a_column_is_not_below_the_prior_under_random_labels():
    """Share of U over share of P in any part is at least the prior; its upper end is so, too."""
    rng = np.random.default_rng(1)
    for prior in (0.05, 0.3):
        positive = rng.random(6000) < prior
        values = rng.normal(size=6000) + 5.0 * positive
        labeled = np.concatenate([np.ones(300, bool), np.zeros(6000, bool)])
        values = np.concatenate([rng.normal(size=300) + 5.0, values])[:, None]
        ((column, _),) = leaks._seen(values, ("a",), labeled, seed=0)
        assert prior * 0.9 < column.bound < prior * 1.4
        assert column.auc == pytest.approx(1 - prior / 2, abs=0.02)


def test_the_only_column_that_says_something_is_not_one_that_labels_depend_on():
    """Many columns of noise beside it: what looks positive by them are any rows."""
    rng = np.random.default_rng(0)
    positive = rng.random(400) < 0.5
    labeled = positive & (rng.random(400) < 0.4)
    rows = rng.normal(size=(400, 300))
    rows[:, 0] += 2 * positive
    problem = audit.problem(rows, labeled)
    assert "1" not in [one.column for one in labeling.differences(problem, seed=0)]
    assert labeling.check(problem, seed=0) == []


@pytest.mark.parametrize("block", [1, 2, 256])
def test_features_that_are_alike_are_those_of_all_pairs(monkeypatch, block):
    monkeypatch.setattr(labeling, "_BLOCK", block)
    rng = np.random.default_rng(0)
    labeled = np.arange(90) < 20
    ranks = rng.normal(size=(90, 7))
    ranks[:, 4] = ranks[:, 0] + 0.5 * rng.normal(size=90)
    ranks[:, 5] = -ranks[:, 2]
    ranks[:, 6] = 0  # constant in U
    groups = [[0, 3], [1], [2], [4, 6], [5]]
    correlation = np.abs(np.corrcoef(ranks[~labeled, :6].T)) >= labeling.ALIKE
    for group, found in zip(groups, labeling._alike(ranks, labeled, groups), strict=True):
        expected = [
            i in group or correlation[[g for g in group if g < 6], i].any() for i in range(6)
        ]
        assert found[:6].tolist() == expected and found[6] == (6 in group)


def test_what_a_column_is_compared_by_takes_no_more_memory_among_many():
    rng = np.random.default_rng(0)
    labeled = np.arange(200) < 60

    def peak(width):
        ranks, scores = rng.normal(size=(200, width)), rng.normal(size=200)
        tracemalloc.start()
        labeling._compared(ranks, [3], "a", scores, labeled)
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    peak(10)  # what is imported on the way
    assert peak(3000) < 1.5 * peak(10)


def test_labels_that_depend_on_a_column_are_found_by_name(planted):
    problem, column = planted("by column", 2)
    (finding,) = labeling.check(problem, seed=0)
    assert finding.severity == WARNING
    assert column in [x["column"] for x in finding.numbers["columns"]]
    assert repr(column) in " ".join([finding.title, *finding.evidence])


def test_the_test_of_labels_sees_ranks_only_and_no_order_of_columns(planted):
    problem, _ = planted("by column", 2)
    plain = labeling.differences(problem, seed=0)
    order = np.random.default_rng(0).permutation(problem.features.shape[1])
    cubed = problem._replace(
        features=(problem.features[:, order].astype(np.float64) ** 3).astype(np.float32),
        columns=tuple(problem.columns[i] for i in order),
    )
    changed = {x.column: x for x in labeling.differences(cubed, seed=0)}
    for one in plain:
        assert changed[one.column].difference == pytest.approx(one.difference, abs=0.02)


def test_too_few_rows_or_columns_find_no_bias(planted):
    problem, _ = planted("by column", 2)
    few = problem._replace(labeled=np.arange(len(problem.labeled)) < labeling.LEAST_P - 1)
    assert labeling.differences(few, seed=0) == []
    one = problem._replace(columns=("same",) * len(problem.columns))
    assert labeling.differences(one, seed=0) == []


def test_overlap_is_a_warning_where_nothing_is_learned_and_silent_where_all_is():
    rng = np.random.default_rng(0)
    labeled = np.arange(600) < 200
    blind = scoring_lib.Scores(rng.random(600), labeled)
    assert severities(overlap.check(blind, 0.3, seed=0)) == {"overlap": WARNING}
    positive = labeled | (rng.random(600) < 0.3)
    told = scoring_lib.Scores(rng.normal(size=600) + 6.0 * positive, labeled)
    assert overlap.check(told, 0.3, seed=0) == []
    weak = scoring_lib.Scores(rng.normal(size=600) + 1.0 * positive, labeled)
    (finding,) = overlap.check(weak, 0.3, seed=0)
    assert finding.severity == NOTE and finding.numbers["low"] < finding.numbers["auc_pu"]


def test_three_labels_end_the_audit_with_what_could_not_be_checked(planted):
    problem, _ = planted("3 labels")
    findings, not_checked, prior = audit.check(problem)
    assert severities(findings) == {"label_counts": ERROR} and prior is None
    assert "everything but counts" in not_checked[0]


def test_findings_are_sorted_by_severity_and_else_stay_in_order():
    found = [audit.Finding(str(i), x, "t", (), "a") for i, x in enumerate([NOTE, ERROR, WARNING])]
    found += [audit.Finding("3", ERROR, "t", (), "a")]
    assert [x.name for x in in_order(found)] == ["1", "3", "2", "0"]


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"features is of shape \(3,\).*accepted: \[n, d\]"):
        audit.problem(np.zeros(3), np.zeros(3, bool))
    with pytest.raises(ValueError, match="columns has 1 names; accepted: 2"):
        audit.problem(np.zeros([3, 2]), np.zeros(3, bool), ["a"])
    with pytest.raises(ValueError, match="severity is 'bad'"):
        audit.Finding("x", "bad", "t", (), "a")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mushrooms", "a9a"])
def test_planted_faults_of_real_tables_are_found_and_clean_draws_are_not(rates, name):
    rows = rates.load(name, real_data_folder("libsvm").parent)
    alarms, found = 0, 0
    for seed in range(3):
        drawn = rates.draw(rows, 3000, seed)
        clean, _ = rates.plant(drawn, "clean", 200, seed)
        alarms += bool(labeling.check(clean, seed=seed)) + bool(leaks.check(clean, seed=seed))
        for fault in ("leak", "half leak"):
            leaking, column = rates.plant(drawn, fault, 200, seed)
            (finding,) = leaks.check(leaking, seed=seed)
            assert [x["name"] for x in finding.numbers["columns"]] == [column]
        copied, _ = rates.plant(drawn, "copies", 200, seed)
        assert severities(duplicates.check(copied))["duplicates"] == WARNING
        biased, column = rates.plant(drawn, "by branch", 200, seed)
        named = [
            x["column"] for f in labeling.check(biased, seed=seed) for x in f.numbers["columns"]
        ]
        found += column in named
    assert alarms == 0 and found == 3


@pytest.mark.thorough
def test_a_whole_audit_is_the_same_twice_and_has_leaks_left_out(planted):
    problem, column = planted("leak")
    findings, _, prior = audit.check(problem, seed=1)
    without = problem.without([column])
    clean, _, prior_clean = audit.check(without, seed=1)
    kept = [x for x in findings if x.name != "leak"]
    assert len(kept) == len(findings) - 1
    assert [x.name for x in kept] == [x.name for x in clean]
    # What follows is computed twice, from the same rows and seed.
    assert json.dumps([x.numbers for x in kept]) == json.dumps([x.numbers for x in clean])
    assert prior == prior_clean
    first, second = ([x.numbers for x in leaks.check(problem, seed=1)] for _ in range(2))
    assert json.dumps(first) == json.dumps(second)


def test_rows_are_copies_where_their_cells_are_the_same(tmp_path):
    seconds = np.arange(60) * 10  # single precision has steps of 128 seconds today
    times = np.datetime64("2024-03-05T10:00:00") + seconds
    rows = [f"{time},{i % 2},{int(i < 20)}" for i, time in enumerate(np.r_[times, times[-1:]])]
    (tmp_path / "a.csv").write_text("\n".join(["time,side,y", *rows[:60], rows[59]]))
    keys = inputs.read(str(tmp_path / "a.csv"), label="y", id_column="none").problem.keys
    assert len(set(keys.tolist())) == 60 and keys[59] == keys[60]


@pytest.mark.parametrize("codes", [(0, 1), (-1, 1), (0.0, 1.0), (False, True)])
def test_labels_are_coded_as_everywhere(codes):
    known = np.arange(20) < 5
    labels = np.where(known, codes[1], codes[0])
    np.testing.assert_array_equal(audit.problem(np.ones([20, 2]), labels).labeled, known)


@pytest.mark.parametrize("labels", [[1, 2], ["yes", "no"], [1.0, np.nan], [1.0, 0.5]])
def test_other_labels_are_refused(labels):
    with pytest.raises(ValueError, match="^labeled .*0/1 or -1/1"):
        audit.problem(np.ones([2, 2]), np.array(labels))


@pytest.mark.parametrize("number", [np.nan, np.inf, 1e300])
def test_a_number_that_is_not_finite_is_named_with_its_place(number):
    rows = np.ones([3, 2])
    rows[1, 1] = number
    with pytest.raises(ValueError, match=r"^features, row 2, column 2, is \S+; accepted: finite"):
        audit.problem(rows, np.arange(3) < 1)
    with pytest.raises(ValueError, match="^features is a .*accepted: an array of real numbers"):
        audit.problem(np.array([["a"], ["b"]]), np.arange(2) < 1)


def test_a_number_from_which_a_constant_is_subtracted_is_named_so(tmp_path):
    """The row holds 1700086400, and a finding said 86400 of the column."""
    rng = np.random.default_rng(0)
    rows = np.stack([1.7e9 + rng.uniform(0, 1, 400), rng.normal(size=400)], axis=1)
    rows[5, 0] = 1.7e9 + 86400
    labeled = rng.random(400) < 0.3
    (found,) = scales.check(audit.problem(rows, labeled, columns=["time", "x"]))
    name = found.numbers["outliers"][0]["column"]
    before, _, constant = name.partition(" - ")
    value = float(constant) + found.numbers["outliers"][0]["value"]
    assert before == "time" and value == pytest.approx(rows[5, 0], abs=0.01)
    assert repr(name) in found.evidence[0]
    cells = zip(rows.tolist(), labeled, strict=True)
    lines = ["time,x,label", *(f"{t!r},{x!r},{int(y)}" for (t, x), y in cells)]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    read = inputs.read(str(tmp_path / "a.csv"), label="label")
    (found,) = scales.check(read.problem)
    assert found.numbers["outliers"][0]["column"].startswith("time - 1700")


def test_numbers_that_differ_in_the_last_digits_are_no_copies():
    labeled = np.arange(400) < 80
    seconds = 1.7e9 + np.arange(400.0)
    # The same numbers beside others that are far away, which no constant brings near 0.
    for rows in (seconds, np.where(labeled, seconds, -seconds), seconds.astype(np.int64)):
        problem = audit.problem(rows[:, None], labeled)
        assert not duplicates.check(problem) and len(np.unique(problem.keys)) == 400
    assert len(np.unique(audit.problem(seconds[:, None], labeled).features)) == 400
    again = audit.problem(np.array([[0.0], [-0.0], [1.0]]), np.arange(3) < 1)
    assert again.keys.tolist() == [0, 0, 1]


def test_every_column_that_leaks_alone_is_named():
    rng = np.random.default_rng(0)
    labeled = np.arange(600) < 150
    rows = rng.normal(size=(600, 10))
    rows[:, 2:] += 8 * labeled[:, None]
    (found,) = leaks.check(audit.problem(rows, labeled), seed=0)
    assert found.severity == ERROR and len(found.evidence) == 6
    assert found.evidence[5] == "3 more like these"
    assert {column["name"] for column in found.numbers["columns"]} == set("3456789") | {"10"}
    assert "and 3 more" in found.title


@pytest.mark.parametrize(
    ("low", "upper_end", "expected"),
    [(0.0, 0.004, True), (0.0, 0.02, False), (0.01, 0.004, False)],
)
def test_u_without_positives_is_warned_of_where_an_estimate_leaves_no_room(
    low, upper_end, expected
):
    found = {
        "out_of_bag": PriorEstimate(0.013, low, 0.027),
        "best_bin": PriorEstimate(0.001, 0.0005, upper_end),
    }
    (finding,) = class_prior.check(found, 1000)
    assert ("next to no positives" in finding.title) is expected


def test_copies_are_counted_in_rows_of_both_and_of_u_among_themselves():
    # Of 100 labelled rows two are the same and occur twice in U, which has a triple besides.
    labeled, unlabeled = np.arange(100.0), 1000 + np.arange(400.0)
    labeled[1], unlabeled[:2], unlabeled[2:5] = 0.0, 0.0, 7000.0
    rows = np.concatenate([labeled, unlabeled])[:, None]
    found = duplicates.check(audit.problem(rows, np.arange(500) < 100))[0].numbers
    assert (found["labeled_rows"], found["unlabeled_rows"]) == (2, 2)
    assert found["share_of_labeled"] == 0.02
    assert found["share_of_unlabeled_among_themselves"] == 5 / 400


def test_copies_of_a_fiftieth_of_the_labelled_rows_are_a_warning():
    for copies, severity in ((2, WARNING), (1, NOTE)):
        rows = np.arange(500.0)[:, None]
        rows[100 : 100 + copies] = rows[:copies]
        (found,) = duplicates.check(audit.problem(rows, np.arange(500) < 100))
        assert found.severity == severity


def test_biased_columns_are_named_the_most_biased_first_and_once(monkeypatch):
    one = labeling.Difference("x", 0, 0.8, 1.0, 0.5, 1e-6, 100, 100)
    found = [one, one._replace(feature=1, excess=0.7), one._replace(column="y", excess=0.6)]
    monkeypatch.setattr(labeling, "differences", lambda problem, seed: found)
    (finding,) = labeling.check(None, seed=0)
    assert [(x["column"], x["feature"]) for x in finding.numbers["columns"]] == [("x", 1), ("y", 0)]
    assert finding.title.endswith("by 'x', 'y'") and "0.70 more" in finding.evidence[0]


def test_one_repeated_label_of_few_is_no_news_where_rows_have_copies_by_nature():
    unlabeled = np.arange(1000.0)
    unlabeled[:10] = np.repeat(np.arange(5), 2)
    labeled = 2000 + np.arange(30.0)
    for again, expected in ((1, 0), (6, 1)):
        labeled[1 : 1 + again] = labeled[0]
        rows = np.concatenate([labeled, unlabeled])[:, None]
        found = duplicates.check(audit.problem(rows, np.arange(1030) < 30))
        assert sum(x.name == "repeated_labels" for x in found) == expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"to_negatives": 0.0}, True),  # nor one that tells P and N not apart
        ({"difference": -0.8}, True),  # the way that negatives never move a column
        ({"difference": 0.5}, False),  # half of the way to the negatives: some of U are negative
        ({"p_value": 0.01}, False),
        ({"excess": 0.3}, False),
    ],
)
def test_a_bias_is_large_certain_and_more_than_negatives_explain(changes, expected):
    one = labeling.Difference("x", 0, 0.8, 1.0, 0.5, 1e-6, 100, 100)._replace(**changes)
    assert labeling.is_biased(one) is expected


def test_differences_are_corrected_for_how_many_columns_were_looked_at():
    rng = np.random.default_rng(0)
    positive = np.arange(800) < 400
    labeled = np.arange(800) < 200
    rows = rng.normal(size=(800, 40))
    rows[:, 0] += 3 * positive  # the others say nothing
    found = labeling.differences(audit.problem(rows, labeled), seed=0)
    # The first one is not looked at: nothing else says what is positive.
    assert [x.feature for x in found] == list(range(1, 40))
    assert min(x.p_value for x in found) > 0.1


@pytest.mark.parametrize(("smallest", "far"), [(0.22, False), (0.2, True), (0.1, True)])
def test_estimates_are_far_apart_from_twice_the_smallest_on(smallest, far):
    found = {
        "out_of_bag": PriorEstimate(0.4, 0.35, 0.45),
        "best_bin": PriorEstimate(smallest, smallest - 0.05, smallest + 0.05),
    }
    (finding,) = class_prior.check(found, 1000)
    assert finding.severity == (WARNING if far else NOTE)
    assert ("far apart" in finding.title) is far
    # What says nothing is not far from anything.
    found |= {"tice": PriorEstimate(0.01, 0.0, 1.0)}
    (again,) = class_prior.check(found, 1000)
    title = finding.title if far else finding.title.replace("estimates", "2 of 3 estimates")
    assert again.title == title
    assert f"of the 2 that say something is {0.4 / smallest:.1f} times" in " ".join(again.evidence)
    assert [x.endswith("which says nothing") for x in again.evidence[:3]] == [False, False, True]
    (alone,) = class_prior.check({name: found[name] for name in ("out_of_bag", "tice")}, 1000)
    assert alone.title == "1 of 2 estimates of the share of positives in U says something"
    assert "no other estimate confirms it" in alone.evidence
    assert again.numbers["spread"] == pytest.approx(0.4 / smallest)


@pytest.mark.parametrize(
    "bad", [[[1, 2], [3]], np.ma.array([[1.0], [2.0]], mask=[[True], [False]])]
)
def test_what_is_no_array_is_named(bad):
    with pytest.raises(ValueError, match="^features is (no|a masked) array.*accepted: "):
        audit.problem(bad, [1, 0])
    with pytest.raises(ValueError, match="^labeled is (no|a masked) array.*accepted: "):
        audit.problem(np.ones([2, 1]), bad)
