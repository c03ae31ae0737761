"""Metrics of many labels: hand-worked numbers, loops over categories, ties, empty categories."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import metrics as sklearn_metrics

from pujax import metrics
from tests.conftest import real_data_folder

# First category, in order of score: hit, miss, hit, miss; second: miss, miss, hit, hit.
SCORES = np.array([[0.9, 0.2], [0.6, 0.8], [0.5, 0.4], [0.1, 0.7]])
LABELS = np.array([[1, 1], [0, 0], [1, 1], [0, 0]])
METRICS = {
    "mean_average_precision": metrics.mean_average_precision,
    "average_precisions": metrics.average_precisions,
    "multilabel_f1": lambda s, y: metrics.multilabel_f1(s, y, threshold=0.5),
    "multilabel_report": lambda s, y: metrics.multilabel_report(s, y, threshold=0.5),
    "oracle_multilabel_f1": metrics.oracle_multilabel_f1,
}
each_metric = pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)


def random_problem(seed=0, examples=40, classes=5, levels=None, share=0.4):
    """Scores in [0, 1], of `levels` distinct values where given, and labels of which some are 1."""
    rng = np.random.default_rng(seed)
    scores = rng.random((examples, classes))
    if levels:
        scores = rng.integers(0, levels, (examples, classes)) / levels
    return scores, (rng.random((examples, classes)) < share).astype(int)


def naive_average_precision(scores, labels):
    ranked = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    found, total = 0, 0.0
    for rank, index in enumerate(ranked, start=1):
        if labels[index] == 1:
            found += 1
            total += found / rank
    return total / (found + 1e-8)


def naive_report(scores, labels, threshold, ignore_empty=False):
    """The six figures from one pass over all entries."""
    examples, classes = labels.shape
    present, predicted, correct = [0] * classes, [0] * classes, [0] * classes
    for i in range(examples):
        for c in range(classes):
            present[c] += labels[i, c] == 1
            predicted[c] += scores[i, c] >= threshold
            correct[c] += labels[i, c] == 1 and scores[i, c] >= threshold
    predicted = [count or 1 for count in predicted]
    kept = [c for c in range(classes) if present[c] or not ignore_empty]
    op, recall = sum(correct) / sum(predicted), sum(correct) / sum(present)
    cp = sum(correct[c] / predicted[c] for c in kept) / len(kept)
    nan = float("nan")
    cr = sum(correct[c] / present[c] if present[c] else nan for c in kept) / len(kept)

    def harmonic(a, b):
        return 0.0 if not a + b > 0 else 2 * a * b / (a + b)

    return op, recall, harmonic(op, recall), cp, cr, harmonic(cp, cr)


def test_average_precision_matches_an_example_worked_by_hand():
    # Precision at the hits: 1/1 and 2/3; 1/3 and 2/4.
    expected = np.array([(1 + 2 / 3), (1 / 3 + 2 / 4)]) / (2 + 1e-8)
    np.testing.assert_allclose(metrics.average_precisions(SCORES, LABELS), expected, rtol=1e-15)
    value = metrics.mean_average_precision(SCORES, LABELS)
    assert type(value) is float
    assert value == pytest.approx(expected.mean(), rel=1e-15)


def test_report_matches_an_example_worked_by_hand():
    # At 0.5 three are predicted in the first category, two of them right; two wrong in the second.
    report = metrics.multilabel_report(SCORES, LABELS, threshold=0.5)
    assert all(type(value) is float for value in report)
    assert report.overall_precision == pytest.approx(2 / 5, rel=1e-15)
    assert report.overall_recall == pytest.approx(2 / 4, rel=1e-15)
    assert report.overall_f1 == pytest.approx(4 / 9, rel=1e-15)
    assert report.class_precision == pytest.approx((2 / 3 + 0) / 2, rel=1e-15)
    assert report.class_recall == pytest.approx((1 + 0) / 2, rel=1e-15)
    assert report.class_f1 == pytest.approx(2 * (1 / 3) * (1 / 2) / (5 / 6), rel=1e-15)
    pair = metrics.multilabel_f1(SCORES, LABELS, threshold=0.5)
    assert pair == (report.overall_f1, report.class_f1)


@pytest.mark.parametrize("levels", [None, 4, 1])
def test_average_precision_matches_a_loop_with_ties_by_index(levels):
    scores, labels = random_problem(levels=levels)
    expected = [naive_average_precision(scores[:, c], labels[:, c]) for c in range(5)]
    np.testing.assert_allclose(metrics.average_precisions(scores, labels), expected, rtol=1e-14)
    assert metrics.mean_average_precision(scores, labels) == pytest.approx(np.mean(expected))


@pytest.mark.parametrize("threshold", [0.0, 0.25, 0.5, 0.93, 1.5])
@pytest.mark.parametrize("empty", [False, True])
@pytest.mark.parametrize("ignore_empty", [False, True])
def test_report_matches_a_loop_over_all_entries(threshold, empty, ignore_empty):
    scores, labels = random_problem(seed=1, levels=8)
    scores[:, 3] /= 2  # Never predicted at the two highest thresholds and the middle one.
    labels[:, 0] &= not empty
    found = metrics.multilabel_report(
        scores, labels, threshold=threshold, ignore_empty=ignore_empty
    )
    expected = naive_report(scores, labels, threshold, ignore_empty)
    np.testing.assert_allclose(found, expected, rtol=1e-14)


def test_metrics_agree_with_scikit_learn_on_real_data():
    data = np.load(real_data_folder("multilabel") / "emotions.npz")
    inputs, labels = data["X_train"].astype(np.float64), data["Y_train"]
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    scores = inputs @ np.linalg.lstsq(inputs, labels - labels.mean(0), rcond=None)[0]
    assert metrics.tied_scores(scores) == 0
    mean = metrics.mean_average_precision(scores, labels)
    # The guard 1e-8 against a division by zero is all that differs.
    expected = sklearn_metrics.average_precision_score(labels, scores, average="macro")
    assert mean == pytest.approx(expected, abs=1e-9)
    assert mean > 1.5 * labels.mean()

    report, predicted = metrics.multilabel_report(scores, labels, threshold=0.1), scores >= 0.1
    for found, average in ((report[:2], "micro"), (report[3:5], "macro")):
        expected = sklearn_metrics.precision_recall_fscore_support(
            labels, predicted, average=average
        )
        np.testing.assert_allclose(found, expected[:2], rtol=1e-12)
    micro = sklearn_metrics.f1_score(labels, predicted, average="micro")
    assert report.overall_f1 == pytest.approx(micro, rel=1e-12)


def test_ranking_metrics_ignore_monotone_maps_and_take_infinite_scores():
    scores, labels = random_problem(seed=2)
    expected = metrics.average_precisions(scores, labels)
    np.testing.assert_array_equal(metrics.average_precisions(np.log(scores), labels), expected)
    scores[np.argmax(scores, 0), range(5)] = np.inf
    scores[np.argmin(scores, 0), range(5)] = -np.inf
    np.testing.assert_array_equal(metrics.average_precisions(scores, labels), expected)


def test_order_of_examples_and_categories_does_not_matter_without_ties():
    scores, labels = random_problem(seed=3)
    rng = np.random.default_rng(4)
    rows, columns = rng.permutation(40), rng.permutation(5)
    moved = scores[rows][:, columns], labels[rows][:, columns]
    np.testing.assert_allclose(
        metrics.average_precisions(*moved), metrics.average_precisions(scores, labels)[columns]
    )
    np.testing.assert_allclose(
        metrics.multilabel_report(*moved, threshold=0.5),
        metrics.multilabel_report(scores, labels, threshold=0.5),
    )
    np.testing.assert_allclose(
        metrics.oracle_multilabel_f1(*moved), metrics.oracle_multilabel_f1(scores, labels)
    )


def test_equal_scores_keep_the_order_of_the_examples_and_are_counted():
    scores, labels = np.zeros((4, 2)), np.array([[1, 0], [0, 0], [0, 0], [0, 1]])
    values = metrics.average_precisions(scores, labels)
    np.testing.assert_allclose(values, [1, 1 / 4], rtol=1e-7)
    reverse = metrics.average_precisions(scores, labels[::-1])
    np.testing.assert_allclose(reverse, [1 / 4, 1], rtol=1e-7)
    assert metrics.tied_scores(scores) == 8


def test_tied_scores_are_counted_within_categories_only():
    nan, inf = np.nan, np.inf
    assert metrics.tied_scores(SCORES) == 0
    assert metrics.tied_scores([[1, 1], [2, 3], [1, 2], [1, 2]]) == 3 + 2
    assert metrics.tied_scores([[1, inf], [1, inf], [2, -inf], [2, 5]]) == 4 + 2
    assert metrics.tied_scores([[0.0, nan], [-0.0, nan]]) == 2
    assert metrics.tied_scores(np.zeros((0, 3))) == 0
    assert metrics.tied_scores(np.zeros((1, 3))) == 0


def test_perfect_scores_reach_the_ends():
    labels = random_problem(seed=5)[1]
    assert metrics.mean_average_precision(labels, labels) == pytest.approx(1, abs=1e-8)
    assert metrics.multilabel_report(labels, labels, threshold=0.5) == (1,) * 6
    # All thresholds separate perfectly: the first is reported.
    assert metrics.oracle_multilabel_f1(labels, labels) == (1, 0.01, 1, 0.01)
    assert metrics.multilabel_f1(-labels, labels, threshold=0.5) == (0, 0)


def test_a_score_on_the_threshold_predicts_also_in_single_precision():
    # 0.7 in single precision is below 0.7 in double precision.
    for dtype in (np.float64, np.float32, jnp.bfloat16):
        scores = np.array([[0.7], [0.2]]).astype(dtype)
        assert metrics.multilabel_f1(scores, [[1], [0]], threshold=0.7) == (1, 1)
        oracle = metrics.oracle_multilabel_f1(scores, [[1], [0]], thresholds=[0.1, 0.7, 0.9])
        assert oracle == (1, 0.7, 1, 0.7)


def test_a_category_without_positives_counts_as_zero_unless_left_out():
    scores, labels = random_problem(seed=6, classes=3)
    labels[:, 1] = 0
    kept = scores[:, ::2], labels[:, ::2]
    assert metrics.average_precisions(scores, labels)[1] == 0
    expected = metrics.mean_average_precision(*kept)
    assert metrics.mean_average_precision(scores, labels) == pytest.approx(2 / 3 * expected)
    ignoring = metrics.mean_average_precision(scores, labels, ignore_empty=True)
    assert ignoring == pytest.approx(expected, rel=1e-15)

    report = metrics.multilabel_report(scores, labels, threshold=0.5)
    assert math.isnan(report.class_recall) and report.class_f1 == 0
    ignoring = metrics.multilabel_report(scores, labels, threshold=0.5, ignore_empty=True)
    alone = metrics.multilabel_report(*kept, threshold=0.5)
    # The overall figures keep the predictions in the empty category, which are all wrong.
    assert ignoring[:3] == report[:3] and report.overall_precision < alone.overall_precision
    np.testing.assert_allclose(ignoring[3:], alone[3:], rtol=1e-15)

    oracle = metrics.oracle_multilabel_f1(scores, labels)
    assert oracle.per_class == 0 and oracle.per_class_threshold == 0.01
    assert metrics.oracle_multilabel_f1(scores, labels, ignore_empty=True).per_class > 0.4


def test_a_category_that_is_never_predicted_lowers_overall_precision():
    scores, labels = np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([[1, 1], [1, 0]])
    report = metrics.multilabel_report(scores, labels, threshold=0.5)
    assert report[:2] == pytest.approx((2 / 3, 2 / 3))
    assert report[3:5] == (0.5, 0.5)


def test_nothing_to_find_is_undefined():
    scores, labels = random_problem()
    report = metrics.multilabel_report(scores, 0 * labels, threshold=0.5)
    assert math.isnan(report.overall_recall) and math.isnan(report.class_recall)
    assert report.overall_f1 == report.class_f1 == report.overall_precision == 0
    assert metrics.mean_average_precision(scores, 0 * labels) == 0
    assert math.isnan(metrics.mean_average_precision(scores, 0 * labels, ignore_empty=True))
    report = metrics.multilabel_report(scores, 0 * labels, threshold=0.5, ignore_empty=True)
    assert math.isnan(report.class_precision) and report.class_f1 == 0


@pytest.mark.parametrize("ignore_empty", [False, True])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_oracle_is_the_best_of_all_reports(ignore_empty, dtype):
    # Rare labels, and scores that fall on the thresholds.
    scores, labels = random_problem(seed=7, levels=20, share=0.1)
    scores = scores.astype(dtype)
    labels[:, 2] &= not ignore_empty
    thresholds = np.arange(1, 100) / 100
    pairs = np.array(
        [
            metrics.multilabel_f1(scores, labels, threshold=t, ignore_empty=ignore_empty)
            for t in thresholds
        ]
    )
    oracle = metrics.oracle_multilabel_f1(scores, labels, ignore_empty=ignore_empty)
    best = pairs.argmax(0)
    expected = pairs[best[0], 0], thresholds[best[0]], pairs[best[1], 1], thresholds[best[1]]
    np.testing.assert_allclose(oracle, expected, rtol=1e-12)
    assert oracle.overall > pairs[49, 0]
    # Any order of the thresholds does.
    backwards = metrics.oracle_multilabel_f1(
        scores, labels, thresholds=thresholds[::-1], ignore_empty=ignore_empty
    )
    assert (backwards.overall, backwards.per_class) == (oracle.overall, oracle.per_class)


@each_metric
def test_label_codings_and_array_kinds_agree(metric):
    expected = metric(SCORES, LABELS)
    for labels in (LABELS.astype(bool), 2 * LABELS - 1, 1.0 * LABELS, LABELS.tolist()):
        np.testing.assert_array_equal(metric(SCORES, labels), expected)
    np.testing.assert_array_equal(metric(SCORES.tolist(), LABELS.astype(np.uint8)), expected)
    for dtype in (jnp.float32, jnp.bfloat16):
        found = metric(jnp.asarray(SCORES, dtype), jnp.asarray(LABELS))
        np.testing.assert_array_equal(found, expected)


@each_metric
def test_scores_that_are_not_numbers_are_not_hidden(metric):
    scores = SCORES.copy()
    scores[1, 0] = np.nan
    found = np.atleast_1d(metric(scores, LABELS))
    if metric is metrics.average_precisions:
        np.testing.assert_array_equal(found, [np.nan, metric(SCORES, LABELS)[1]])
    else:
        assert np.isnan(found).all()
    assert np.isnan(metric(np.zeros((0, 3)), np.zeros((0, 3)))).all()


@each_metric
def test_wrong_arguments_are_named(metric):
    with pytest.raises(ValueError, match=r"one shape, got \(4, 2\) and \(4, 1\)"):
        metric(SCORES, LABELS[:, :1])
    for scores in (SCORES[:, 0], SCORES[:, :0], SCORES[None]):
        with pytest.raises(ValueError, match=r"scores has shape .* must be \[n, classes\]"):
            metric(scores, np.zeros(scores.shape))
    for wrong in (2, 0.5, np.nan):
        labels = 1.0 * LABELS
        labels[0, 0] = wrong
        with pytest.raises(ValueError, match=f"the values .*{wrong}.*must be 0/1 or -1/1"):
            metric(SCORES, labels)
    with pytest.raises(ValueError, match=r"the values \[-1, 0, 1\]"):
        metric(SCORES[:3], [[0, 1], [-1, 1], [1, 1]])


@each_metric
def test_what_are_no_numbers_or_no_arrays_are_named(metric):
    for scores in (np.full(LABELS.shape, "a"), 1j * LABELS, [[1.0], [1.0, 2.0]]):
        with pytest.raises(ValueError, match=r"scores is .*; accepted: \[n, classes\], one number"):
            metric(scores, LABELS)
    with pytest.raises(ValueError, match=r"labels is \[\[1\], \[0, 1\]\]; accepted: an array"):
        metric(SCORES[:2], [[1], [0, 1]])


@pytest.mark.parametrize("value", ["False", None, np.array([True, False]), jnp.ones(2, bool), 2])
def test_ignore_empty_is_true_or_false(value):
    asked = {"ignore_empty": value}
    for metric, options in (
        (metrics.multilabel_report, asked | {"threshold": 0.5}),
        (metrics.multilabel_f1, asked | {"threshold": 0.5}),
        (metrics.oracle_multilabel_f1, asked),
        (metrics.mean_average_precision, asked),
    ):
        with pytest.raises(ValueError, match="ignore_empty is .*; accepted: True, False"):
            metric(SCORES, LABELS, **options)


def test_thresholds_are_checked():
    for value in ("x", 1j, [[0.1], [0.2, 0.3]]):
        with pytest.raises(ValueError, match="threshold is .*; accepted: a number"):
            metrics.multilabel_f1(SCORES, LABELS, threshold=value)
    with pytest.raises(ValueError, match=r"thresholds is \['x'\]; accepted: a list of one number"):
        metrics.oracle_multilabel_f1(SCORES, LABELS, thresholds=["x"])
    for value in (np.nan, None, [0.5, 0.6]):
        with pytest.raises(ValueError, match="threshold is .*(must be|accepted:) a number"):
            metrics.multilabel_f1(SCORES, LABELS, threshold=value)
    for values in ([], 0.5, [0.5, np.nan]):
        with pytest.raises(ValueError, match="thresholds is .* must be a list"):
            metrics.oracle_multilabel_f1(SCORES, LABELS, thresholds=values)
    with pytest.raises(ValueError, match="scores has shape"):
        metrics.tied_scores([1.0, 1.0])
