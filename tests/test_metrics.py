"""Metrics: hand-worked numbers, naive definitions, label codings, and undefined cases."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import metrics

proxy_accuracy = functools.partial(metrics.proxy_accuracy, prior=0.3, setting="one_sample")
ALL = [metrics.accuracy, metrics.f1, metrics.auc, metrics.average_precision]
# Predicted positive: the first three, of which two are; one positive of three is missed.
SCORES = np.array([2.0, 1.0, 0.5, -0.5, -1.0])
LABELS = np.array([1, 0, 1, 1, 0])


def test_metrics_match_an_example_worked_by_hand():
    assert metrics.accuracy(SCORES, LABELS) == pytest.approx(3 / 5, abs=1e-15)
    # Precision 2/3 and recall 2/3.
    assert metrics.f1(SCORES, LABELS) == pytest.approx(2 / 3, abs=1e-15)
    # Pairs won: 2.0 beats both negatives, 0.5 and -0.5 beat one each: 4 of 6.
    assert metrics.auc(SCORES, LABELS) == pytest.approx(4 / 6, abs=1e-15)
    # Precision at the three positives: 1/1, 2/3, 3/4.
    expected = (1 + 2 / 3 + 3 / 4) / 3
    assert metrics.average_precision(SCORES, LABELS) == pytest.approx(expected, abs=1e-15)


def test_metrics_match_their_definitions_with_ties():
    rng = np.random.default_rng(0)
    scores, labels = rng.integers(-3, 4, size=60) / 2, rng.integers(0, 2, size=60)
    positive, negative = scores[labels == 1], scores[labels == 0]
    wins = positive[:, None] - negative[None, :]
    auc = np.mean((wins > 0) + 0.5 * (wins == 0))
    assert metrics.auc(scores, labels) == pytest.approx(auc, abs=1e-12)

    precision_recall = [(1.0, 0.0)]
    for threshold in sorted(set(scores), reverse=True):
        chosen = labels[scores >= threshold]
        precision_recall.append((chosen.mean(), chosen.sum() / labels.sum()))
    expected = sum(
        precision * (recall - before)
        for (_, before), (precision, recall) in zip(
            precision_recall, precision_recall[1:], strict=False
        )
    )
    assert metrics.average_precision(scores, labels) == pytest.approx(expected, abs=1e-12)

    predicted = scores > 0
    precision, recall = labels[predicted].mean(), predicted[labels == 1].mean()
    f1 = 2 * precision * recall / (precision + recall)
    assert metrics.f1(scores, labels) == pytest.approx(f1, abs=1e-12)
    assert metrics.accuracy(scores, labels) == pytest.approx(np.mean(predicted == labels))


def test_a_score_of_zero_predicts_negative():
    assert metrics.accuracy([0.0, 0.0], [1, 0]) == 0.5
    assert metrics.f1([0.0, 0.0], [1, 0]) == 0


@pytest.mark.parametrize("metric", ALL)
def test_label_codings_and_array_kinds_give_the_same_float(metric):
    expected = metric(SCORES, LABELS)
    assert type(expected) is float
    for labels in (LABELS.astype(bool), 2 * LABELS - 1, LABELS.astype(float), LABELS.tolist()):
        assert metric(SCORES, labels) == expected
    for dtype in (jnp.float32, jnp.bfloat16):
        assert metric(jnp.asarray(SCORES, dtype), jnp.asarray(LABELS)) == expected


def test_ranking_metrics_ignore_monotone_maps_and_take_infinite_scores():
    infinite = np.array([np.inf, 1.0, 0.5, -0.5, -np.inf])
    for metric in (metrics.auc, metrics.average_precision):
        assert metric(np.exp(SCORES), LABELS) == metric(SCORES, LABELS)
        assert metric(infinite, LABELS) == metric(SCORES, LABELS)
    assert metrics.auc(-SCORES, LABELS) == pytest.approx(1 - metrics.auc(SCORES, LABELS))


def test_perfect_and_reversed_scores_reach_the_ends():
    scores = 2.0 * LABELS - 1
    assert [metric(scores, LABELS) for metric in ALL] == [1, 1, 1, 1]
    assert [metric(-scores, LABELS) for metric in ALL[:3]] == [0, 0, 0]


def test_undefined_cases_have_the_documented_answers():
    assert math.isnan(metrics.auc([1.0, 2.0], [1, 1]))
    assert math.isnan(metrics.auc([1.0, 2.0], [0, 0]))
    assert math.isnan(metrics.average_precision([1.0, 2.0], [0, 0]))
    assert metrics.average_precision([1.0, 2.0], [1, 1]) == 1
    assert metrics.f1([-1.0, -2.0], [1, 1]) == 0
    assert metrics.f1([1.0, 2.0], [0, 0]) == 0
    assert metrics.f1([-1.0, -2.0], [0, 0]) == 0
    assert metrics.f1([], []) == 0
    assert all(math.isnan(metric([], [])) for metric in ALL if metric is not metrics.f1)


@pytest.mark.parametrize("metric", ALL)
def test_scores_that_are_not_numbers_are_not_hidden(metric):
    assert math.isnan(metric([1.0, np.nan, -1.0], [1, 1, 0]))


@pytest.mark.parametrize("metric", ALL)
def test_wrong_arguments_are_named(metric):
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\)"):
        metric([1.0, 2.0], [1, 0, 1])
    with pytest.raises(ValueError, match=r"\(2, 1\) and \(2,\)"):
        metric([[1.0], [2.0]], [1, 0])
    for labels in ([-1, 0, 1], [0, 2, 1], [0.5, 0, 1]):
        with pytest.raises(ValueError, match="must be 0/1 or -1/1"):
            metric([1.0, 2.0, 3.0], labels)


@pytest.mark.parametrize("metric", [*ALL, metrics.proxy_auc])
@pytest.mark.parametrize(
    "scores",
    [["a", "b"], ["0.5", "-1"], [None, 1.0], [[1.0], [2.0, 3.0]], [1j, 2.0], [10**400, 1], 1j],
)
def test_scores_that_are_no_real_numbers_are_named(metric, scores):
    with pytest.raises(ValueError, match=r"scores is .*; accepted: \[n\], one number each"):
        metric(scores, [0, 1])


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        ([None, 1], r"labels holds the values \[1, None\], but must be 0/1 or -1/1"),
        (["a", "b"], r"labels holds the values \['a', 'b'\], but must be 0/1 or -1/1"),
        ([[1], [0, 1]], r"labels is \[\[1\], \[0, 1\]\]; accepted: an array, one label each"),
    ],
)
def test_labels_that_are_no_codes_are_named(labels, said):
    with pytest.raises(ValueError, match=said):
        metrics.accuracy([1.0, 2.0], labels)


@pytest.mark.parametrize("metric", [metrics.proxy_auc, proxy_accuracy])
@pytest.mark.parametrize(
    ("labeled", "said"),
    [
        ([2, 1], r"labeled holds the values \[1, 2\], but must be 0/1 or -1/1"),
        ([[1], [0, 1]], r"labeled is \[\[1\], \[0, 1\]\]; accepted: an array, one label each"),
        ([1, 0, 1], r"scores and labeled must be \[n\] and of one shape, got \(2,\) and \(3,\)"),
    ],
)
def test_proxies_call_their_argument_by_its_name(metric, labeled, said):
    with pytest.raises(ValueError, match=said):
        metric([1.0, 2.0], labeled)


def test_the_first_few_of_many_words_are_shown():
    with pytest.raises(ValueError, match="scores is .*'a', .*; accepted") as refused:
        metrics.auc(["a"] * 1000, [0, 1] * 500)
    assert len(str(refused.value)) < 200
    with pytest.raises(ValueError, match="scores is .*; accepted") as refused:
        metrics.auc(np.array([["a", "b"]] * 1000), [0, 1] * 500)
    assert len(str(refused.value)) < 200 and "\n" not in str(refused.value)


@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_proxy_accuracy_matches_an_example_worked_by_hand(setting):
    # Two of three labelled positives found; of U one in two, of all five two, are negative.
    scores, labeled = np.array([2.0, 1.0, -1.0, 3.0, 0.0]), np.array([1, 1, 1, 0, 0])
    negative = {"one_sample": 2 / 5, "two_sample": 1 / 2}[setting]
    value = metrics.proxy_accuracy(scores, labeled, prior=0.3, setting=setting)
    assert type(value) is float
    assert value == pytest.approx(0.6 * 2 / 3 + negative, abs=1e-15)


def test_proxies_recover_accuracy_and_auc_from_exact_group_shares():
    # Six positives of which three are labelled and rank like the rest; nine negatives.
    found, missed = [1.0, 2.0, -1.0], [0.5, -0.5, -2.0, -1.5, -3.0, 1.5, -0.2, -0.1, -4.0]
    scores = np.array(found + found + missed)
    truth = np.array([1] * 6 + [0] * 9)
    labeled = np.array([1] * 3 + [0] * 12)
    accuracy, prior, unlabeled_prior = metrics.accuracy(scores, truth), 6 / 15, 3 / 12
    one_sample = metrics.proxy_accuracy(scores, labeled, prior=prior, setting="one_sample")
    assert one_sample == pytest.approx(accuracy + prior, abs=1e-14)

    # Case-control: P in addition to a sample of the population.
    extended = np.concatenate([found, scores])
    two_sample = metrics.proxy_accuracy(
        extended, np.arange(18) < 3, prior=prior, setting="two_sample"
    )
    assert two_sample == pytest.approx(accuracy + prior, abs=1e-14)

    expected = unlabeled_prior / 2 + (1 - unlabeled_prior) * metrics.auc(scores, truth)
    assert metrics.proxy_auc(scores, labeled) == pytest.approx(expected, abs=1e-14)


def test_a_perfect_classifier_has_an_accuracy_of_one_plus_the_prior():
    # 3 of 6 positives are labelled. To count P predicted positive in the one-sample term instead,
    # as a public board does, would give 3 / 10 more.
    scores, labeled = np.repeat([1.0, -1.0], [6, 4]), np.arange(10) < 3
    one_sample = metrics.proxy_accuracy(scores, labeled, prior=0.6, setting="one_sample")
    assert one_sample == pytest.approx(1 + 0.6, abs=1e-15)
    scores, labeled = np.concatenate([np.ones(3), scores]), np.arange(13) < 3
    two_sample = metrics.proxy_accuracy(scores, labeled, prior=0.6, setting="two_sample")
    assert two_sample == pytest.approx(1 + 0.6, abs=1e-15)


def test_proxy_accuracy_is_not_that_of_a_public_board_which_adds_what_is_found_of_p_twice():
    """Its one-sample term takes P predicted positive: n_P / n times 2 TPR - 1 more than ours."""
    rng = np.random.default_rng(0)
    scores, labeled = rng.normal(0.3, 1, 40), np.arange(40) < 12
    recall = np.mean(scores[labeled] > 0)
    theirs = 2 * 0.4 * recall + (np.sum(scores[labeled] > 0) + np.sum(scores[~labeled] <= 0)) / 40
    ours = metrics.proxy_accuracy(scores, labeled, prior=0.4, setting="one_sample")
    assert recall not in (0, 0.5, 1) and theirs - ours == pytest.approx(12 / 40 * (2 * recall - 1))


def test_proxy_accuracy_does_not_reward_predicting_everything_positive():
    scores, labeled = np.ones(10), np.arange(10) < 4
    everything = metrics.proxy_accuracy(scores, labeled, prior=0.5, setting="one_sample")
    nothing = metrics.proxy_accuracy(-scores, labeled, prior=0.5, setting="one_sample")
    assert everything == nothing == 1


def test_undefined_proxies_are_nan():
    for setting in ("one_sample", "two_sample"):
        for scores, labeled in (([1.0, 2.0], [0, 0]), ([], []), ([np.nan, 1.0], [1, 0])):
            value = metrics.proxy_accuracy(scores, labeled, prior=0.5, setting=setting)
            assert math.isnan(value)
    two_sample = metrics.proxy_accuracy([1.0, 2.0], [1, 1], prior=0.5, setting="two_sample")
    assert math.isnan(two_sample)
    assert metrics.proxy_accuracy([1.0, 2.0], [1, 1], prior=0.5, setting="one_sample") == 1
    assert math.isnan(metrics.proxy_auc([1.0, 2.0], [0, 0]))


def test_options_of_proxy_accuracy_are_checked():
    for prior in (0.0, 1.0, -1, float("nan"), "half", None):
        with pytest.raises(ValueError, match=r"prior is .*; accepted: a number in \(0, 1\)"):
            metrics.proxy_accuracy(SCORES, LABELS, prior=prior, setting="one_sample")
    with pytest.raises(ValueError, match="setting is 'censored'; accepted: 'one_sample'"):
        metrics.proxy_accuracy(SCORES, LABELS, prior=0.5, setting="censored")
    with pytest.raises(ValueError, match="must be 0/1 or -1/1"):
        metrics.proxy_accuracy(SCORES, 2 * LABELS, prior=0.5, setting="one_sample")


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([1, 2], True), ([-1, 0], True), ([1, -1], False), ([0, 1e-30], False), ([], False)],
)
def test_one_class_predictions_are_seen(scores, expected):
    assert metrics.predicts_one_class(scores) is expected
    assert metrics.predicts_one_class(jnp.asarray(scores, jnp.float32)) is expected
    with pytest.raises(ValueError, match=r"scores is \['a'\]; accepted: \[n\], one number each"):
        metrics.predicts_one_class(["a"])


@pytest.mark.parametrize("metric", [*ALL, proxy_accuracy])
def test_traced_scores_and_labels_are_refused_by_name(metric):
    """Metrics run on the host: what `jit` or `grad` hands over has no numbers there."""
    said = " is .*; accepted: .* not traced: this is computed on the host"
    with pytest.raises(ValueError, match="scores" + said):
        jax.eval_shape(lambda scores: metric(scores, LABELS), SCORES)
    with pytest.raises(ValueError, match="label.*" + said):
        jax.eval_shape(lambda labels: metric(SCORES, labels), LABELS)


def test_a_traced_number_that_must_be_known_is_refused_by_name():
    with pytest.raises(
        ValueError, match=r"prior is .*; accepted: a number in \(0, 1\) .* not trac"
    ):
        jax.eval_shape(lambda prior: metrics.auc_from_auc_pu(0.7, prior), 0.3)


@pytest.mark.parametrize("metric", [*ALL, proxy_accuracy])
def test_what_lies_under_a_mask_and_dates_are_refused_by_name(metric):
    def hidden(values):
        return np.ma.masked_array(values, mask=np.arange(len(values)) == 1)

    dates = np.zeros(len(SCORES), "M8[D]")
    for values in (hidden(SCORES), dates, dates.astype(object), np.zeros(len(SCORES), "m8[s]")):
        with pytest.raises(ValueError, match=r"^scores is .*; accepted: "):
            metric(values, LABELS)
    with pytest.raises(ValueError, match="^label.* is a masked array; accepted: an array without"):
        metric(SCORES, hidden(LABELS))
