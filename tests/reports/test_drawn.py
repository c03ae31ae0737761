"""What the figures draw, and intervals of differences, against values worked out by hand."""

import numpy as np
import pytest

from pujax.reports import calibration, comparison, drawing, evidence, examples, ranking
from tests.reports import folders


@pytest.fixture
def drawn(monkeypatch):
    """The panels that a section draws, by the end of their ids; nothing becomes SVG."""
    panels = {}

    def keep(figure, prefix):
        (panels[prefix.removeprefix("x-")],) = figure.axes
        return "<svg></svg>"

    monkeypatch.setattr(drawing, "svg", keep)
    monkeypatch.setattr(evidence, "_RESAMPLES", 5)
    return panels


def line(axes, label):
    (found,) = [x for x in axes.get_lines() if x.get_label() == label]
    return np.asarray(found.get_xdata(), float), np.asarray(found.get_ydata(), float)


def test_roc_and_precision_recall_are_those_of_every_threshold(drawn, tmp_path):
    run = folders.read(folders.tested(tmp_path / "run", gap=1.0, positives=20, negatives=50))
    ranking.ranking(run, "x")
    scores, positive = run.scores.test_scores, run.scores.test_labels == 1
    called = scores[None] >= np.sort(scores)[::-1, None]
    recall, wrong = called[:, positive].mean(1), called[:, ~positive].mean(1)
    precision = (called & positive).sum(1) / called.sum(1)
    x, y = line(drawn["roc"], "this run")
    np.testing.assert_allclose([x[1:], y[1:]], [wrong, recall])
    assert x[0] == y[0] == 0
    np.testing.assert_allclose(line(drawn["pr"], "this run"), [recall, precision])
    at = scores > 0
    x, y = line(drawn["pr"], "at the threshold 0")
    assert [*x, *y] == pytest.approx([at[positive].mean(), positive[at].mean()])


def test_the_curve_of_p_against_u_has_the_shares_of_u_across(drawn, tmp_path):
    run = folders.read(folders.held(tmp_path / "run", gap=1.0))
    ranking.ranking(run, "x")
    scores, is_p = run.scores.held_scores, run.scores.held_labeled
    x, y = line(drawn["pu"], "at the threshold 0")
    assert [*x, *y] == pytest.approx([(scores[~is_p] > 0).mean(), (scores[is_p] > 0).mean()])
    # By 30 % positives in U, a classifier without error has found all P at 30 % of U.
    np.testing.assert_allclose(line(drawn["pu"], "no error, if the prior is right")[0][1], 0.3)


@pytest.mark.parametrize("learned", [False, True])
def test_the_calibration_error_is_the_mean_gap_over_the_bins(learned, drawn, tmp_path):
    run = folders.read(folders.tested(tmp_path / "run", gap=1.0, positives=30, negatives=101))
    stated = 1 / (1 + np.exp(-run.scores.test_scores.astype(float)))
    if learned:
        stated = np.where(np.arange(131) % 2, 0.25, stated)  # equal ones share a bin
        scores = folders.changed(run.scores, test_probabilities=stated)
        run = folders.changed(run, scores=scores)
    found = calibration.calibration(run, "x")
    truth, edges = run.scores.test_labels, np.quantile(stated, np.arange(1, 8) / 8)
    bins = [np.sum(edges <= p) for p in stated]
    error = 0.0
    for one in set(bins):
        rows = np.equal(bins, one)
        error += abs(stated[rows].mean() - truth[rows].mean()) * rows.sum() / 131
    assert f"calibration error {error:.3f}" in found.figures[0].label
    assert ("no calibration" in " ".join(found.texts)) != learned


def test_held_out_u_is_positive_as_often_as_p_and_the_prior_imply(drawn, tmp_path):
    run = folders.read(folders.held(tmp_path / "run", gap=1.0, prior=0.2))
    calibration.calibration(run, "x")
    scores = run.scores
    u = scores.held_probabilities[~scores.held_labeled]
    p = scores.held_probabilities[scores.held_labeled]
    edges = np.quantile(u, [0.5, 0.75, 0.9])
    shares = [
        [np.mean([np.sum(edges <= x) == i for x in part]) for i in range(4)] for part in (p, u)
    ]
    expected = [min(0.2 * of_p / of_u, 1) for of_p, of_u in zip(*shares, strict=True)]
    (points,) = drawn["pu-reliability"].containers
    np.testing.assert_allclose(points.lines[0].get_ydata(), expected)


@pytest.mark.parametrize(
    ("smallest", "why"),
    [
        (0.15, "if 15.0 % to 40.0 % of U are positive, all of which the estimates leave open, and"),
        (0.4, "where 40.0 % of U are taken to be positive, for certain,"),
    ],
)
def test_between_what_the_mean_probability_lies_and_why(smallest, why, drawn, tmp_path):
    def change(summary):
        summary["mean_probability"] = {"mean": 0.3, "low": 0.1, "high": 0.6}
        summary["mean_probability"] |= {"smallest_prior": smallest, "largest_prior": 0.4}

    run = folders.read(folders.held(tmp_path / "run", change=change))
    assert (
        f"The mean probability of U may be anything from 10.0 % to 60.0 %, {why} by chance in the "
        "held-out rows; 30.0 % is reported." in calibration.calibration(run, "x").texts
    )


def test_every_list_of_examples_has_those_that_it_names(tmp_path):
    run = folders.read(folders.held(tmp_path / "run", gap=1.0))
    score = {
        (part, row): value
        for part in ("train", "held")
        for row, value in enumerate(getattr(run.scores, f"{part}_scores").tolist())
    }
    is_known = {x: getattr(run.scores, f"{x[0]}_labeled")[x[1]] for x in score}
    unlabeled = [x for x in score if not is_known[x]]
    wanted = [
        sorted(unlabeled, key=lambda x: -score[x]),
        sorted(unlabeled, key=score.get),
        sorted(unlabeled, key=lambda x: abs(score[x])),
        sorted((x for x in score if is_known[x]), key=score.get),
    ]
    found = [kind.members for kind in examples._kinds(run)]
    assert found[:4] == [tuple(rows[: examples.SHOWN]) for rows in wanted]


def test_the_surest_errors_come_first(tmp_path):
    run = folders.read(folders.tested(tmp_path / "run", gap=0.5))
    scores, labels = run.scores.test_scores, run.scores.test_labels
    wrong = [i for i in range(150) if (scores[i] > 0) != (labels[i] == 1)]
    surest = sorted(wrong, key=lambda i: -abs(scores[i]))[: examples.SHOWN]
    assert examples._kinds(run)[4].members == tuple(("test", i) for i in surest)


def test_a_pair_of_held_out_rows_has_intervals_around_each_difference(tmp_path):
    a = folders.read(folders.held(tmp_path / "a", gap=1.0), "a")
    b = folders.read(folders.held(tmp_path / "b", gap=4.0), "b")
    b.config["method"]["name"] = "vpu"
    (found,) = comparison.paired([a, b])
    assert {"auc_pu", "recall", "flagged_share"} <= set(found.differences)
    for name in ("auc_pu", "recall", "flagged_share"):
        value, low, high = found.differences[name]
        assert abs((low + high) / 2 - value) < 0.3 * (high - low), name
