"""The numbers of the audit's checks against worked ones and against naive versions."""

import numpy as np
import pytest
from scipy import special, stats

from pujax import audit
from pujax.audit import class_prior, labeling, leaks, overlap, scoring
from pujax.audit.base import ERROR, NOTE, WARNING
from pujax.metrics import auc


def naive_bound(odds, labeled):
    """Over all thresholds: Wilson's upper end of the share of U, over the share of P."""
    level = 2 * special.ndtr(scoring.Z) - 1
    best, rows = np.inf, None
    for threshold in np.unique(odds)[::-1]:
        above = odds >= threshold
        p, u = above[labeled], above[~labeled]
        if p.mean() < 0.2:
            continue
        interval = stats.binomtest(int(u.sum()), len(u)).proportion_ci(level, method="wilson")
        if interval.high / p.mean() < best:
            best, rows = interval.high / p.mean(), p
    return min(best, 1.0), rows


@pytest.mark.parametrize("seed", range(8))
def test_the_bound_of_a_part_is_wilsons_over_every_threshold(seed):
    rng = np.random.default_rng(seed)
    labeled = rng.permutation(120) < 25
    # Few different values, so that thresholds have ties.
    odds = np.round(rng.normal(size=120) + rng.uniform(0, 3) * labeled, 1)
    bound, rows = leaks._bound(odds, labeled)
    expected, of_p = naive_bound(odds, labeled)
    assert bound == pytest.approx(expected, rel=1e-9)
    np.testing.assert_array_equal(rows, of_p)


def test_a_value_that_fills_a_bin_has_one_of_its_own():
    values = np.r_[np.zeros(200), np.linspace(-1, -0.001, 110), np.linspace(0.001, 1, 90)]
    bins = leaks._binned(values)
    assert (bins[:200] == bins[0]).all() and bins[0] not in bins[200:]
    assert (np.diff(bins[np.argsort(values, kind="stable")]) >= 0).all()


def test_a_column_speaks_by_its_strongest_feature_wherever_that_stands():
    rng = np.random.default_rng(0)
    labeled = np.arange(200) < 80
    weak = rng.normal(size=200)
    strong = weak + 6 * labeled
    (alone,) = leaks._seen(strong[:, None], ("c",), labeled, seed=0)
    for features in ([strong, weak], [weak, strong]):
        (found,) = leaks._seen(np.stack(features, 1), ("c", "c"), labeled, seed=0)
        assert found.column == alone.column
        np.testing.assert_array_equal(found.rows, alone.rows)


def test_what_is_certain_is_named_however_many_are_more_suspicious(monkeypatch):
    problem = audit.problem(np.ones([30, 2]), np.arange(30) < 10, ["c", "d"])
    rows = np.ones(10, bool)
    suspects = [leaks.Column(f"s{i}", 0.7, 0.01, 0.5) for i in range(8)]
    certain = leaks.Column("certain", 0.99, 0.5, 0.5)
    seen = [leaks._Seen(one, rows) for one in (*suspects, certain)]
    monkeypatch.setattr(leaks, "_seen", lambda values, names, labeled, seed: seen if names else [])
    judged = []

    def judge(problem, column, is_fact, copies, *, seed):
        judged.append(column.name)
        return ERROR, column.name

    monkeypatch.setattr(leaks, "_judge", judge)
    (found,) = leaks.check(problem, seed=0)
    assert judged == ["certain", "s0", "s1", "s2", "s3", "s4"]
    assert found.evidence == (*judged[:5], "1 more like these")


def test_a_part_of_less_than_a_fifth_of_p_does_not_count():
    # A sixth of P lies above all of U, and then everything is alike.
    odds = np.r_[np.full(5, 2.0), np.zeros(25), np.zeros(200)]
    bound, rows = leaks._bound(odds, np.arange(230) < 30)
    assert bound == 1 and rows.all()
    # Exactly a fifth counts: no row of U, of which Wilson leaves z^2 / (n + z^2).
    odds = np.r_[np.full(6, 2.0), np.zeros(24), np.zeros(200)]
    bound, rows = leaks._bound(odds, np.arange(230) < 30)
    assert bound == pytest.approx(1.64**2 / (200 + 1.64**2) / 0.2) and rows.sum() == 6


def column(**changes):
    return leaks.Column("c", 0.95, 0.02, 0.5)._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "rest", "severity"),
    [
        ({}, 0.2, ERROR),  # contradicted ten times over, and hardly anything else tells more
        ({}, 0.19, ""),
        ({"auc": 0.89}, 0.2, WARNING),
        ({"auc": 0.9}, 0.2, ERROR),
        ({"auc": 0.98, "bound": 1.0}, 0.2, ERROR),  # certain, whatever the others say
        ({"auc": 0.979, "bound": 1.0}, 1.0, ""),
        ({"part": 0.19}, 1.0, ""),
        ({"part": 0.2}, 0.2, ERROR),
        ({"bound": 0.11}, 1.0, ""),  # nothing could contradict it
        ({"bound": 0.1, "auc": 0.5}, 1.0, WARNING),
        ({"auc": 0.99, "part": 0.1}, 0.0, ERROR),
    ],
)
@pytest.mark.parametrize("is_fact", [False, True])
def test_a_column_is_judged_by_what_all_others_say(monkeypatch, changes, rest, severity, is_fact):
    problem = audit.problem(np.ones([30, 2]), np.arange(30) < 10, ["c", "d"])
    seen = []

    def held_out(others, *, seed):
        seen.append((others.columns, seed))
        return scoring.Scores(np.arange(30.0, 0, -1), others.labeled)  # which tell P from U

    monkeypatch.setattr(scoring, "held_out", held_out)
    monkeypatch.setattr(scoring, "largest_prior", lambda scores: rest)
    found, text = leaks._judge(problem, column(**changes), is_fact, (), seed=7)
    assert found == severity
    # What is known of the files is no column, so that nothing is left out for it.
    assert seen in ([], [(("c", "d") if is_fact else ("d",), 7)])
    assert ("all others without it" in text) is bool(severity)


def test_a_fact_of_files_is_a_warning_where_other_pixels_contradict_it():
    rng = np.random.default_rng(3)
    positive, labeled = np.arange(900) < 450, np.arange(900) < 200
    rows = (rng.normal(size=(900, 3)) + 2.0 * positive[:, None]).astype(np.float32)
    half = np.where(labeled & (rng.random(900) < 0.5), 9.0, rng.integers(0, 9, 900))
    problem = audit.problem(rows, labeled)._replace(
        facts=half[:, None], fact_names=("width of files",)
    )
    (finding,) = leaks.check(problem, seed=0)
    assert finding.severity == WARNING and "width of files" in finding.title
    (numbers,) = finding.numbers["columns"]
    assert numbers["part"] == pytest.approx(0.5, abs=0.08)


def test_the_common_share_is_a_median_weighted_by_the_way_to_the_negatives():
    ways, weights = np.array([0.1, 0.6, 0.3]), np.array([1.0, -2.0, 4.0])
    # In the order .1, .3, .6 the weights are 1, 4 and 2, and half of 7 lies in the second.
    assert labeling._common_share(ways * weights, weights) == pytest.approx(0.3)
    assert labeling._common_share(np.array([0.5]), np.array([0.25])) == 1  # a share is at most 1
    assert labeling._common_share(np.array([-0.5]), np.array([1.0])) == 0
    # Columns that negatives do not move say nothing.
    assert labeling._common_share(np.array([3.0, 0.2]), np.array([0.0, 0.4])) == pytest.approx(0.5)
    assert labeling._common_share(np.array([3.0]), np.array([0.0])) == 0


def test_scores_of_a_fold_are_its_weights_and_a_constant():
    rng = np.random.default_rng(0)
    labeled = rng.permutation(200) < 60
    ranks = labeling._ranks(rng.normal(size=(200, 3)) + labeled[:, None])
    scores, weights, folds = labeling._cross_fitted(ranks, labeled, 0)
    nothing = labeling._without(scores, ranks, weights, folds, [0, 1, 2])
    for fold in range(5):
        of_u = scores[(folds == fold) & ~labeled]
        assert of_u.mean() == pytest.approx(0, abs=1e-9) and of_u.std() == pytest.approx(1)
        np.testing.assert_allclose(nothing[folds == fold], nothing[folds == fold][0], atol=1e-9)


def test_columns_are_alike_by_their_ranks_in_u_alone():
    rng = np.random.default_rng(0)
    first = rng.normal(size=400)
    labeled = np.arange(400) < 150
    # Alike in U, and the other way round in P; alike in P alone; of nothing.
    second = np.where(labeled, -first, first)
    third = np.where(labeled, first, rng.normal(size=400))
    ranks = np.stack([first, second, third], axis=1)
    found = list(labeling._alike(ranks, labeled, [[0], [1], [2]]))
    np.testing.assert_array_equal(found, [[1, 1, 0], [1, 1, 0], [0, 0, 1]])


@pytest.mark.parametrize("others_tell", [True, False])
def test_what_goes_with_a_column_is_taken_out_too_unless_nothing_would_be_left(
    monkeypatch, others_tell
):
    rng = np.random.default_rng(0)
    labeled = np.arange(600) < 200
    first = rng.normal(size=600) + labeled
    third = rng.normal(size=600) + 2 * labeled * others_tell
    rows = np.stack([first, first + 0.3 * rng.normal(size=600), third], axis=1)
    given = {}
    monkeypatch.setattr(
        labeling, "_compared", lambda r, f, column, scores, y: given.update({column: scores}) or []
    )
    problem = audit.problem(rows, labeled, ["a", "b", "c"])
    labeling.differences(problem, seed=0)
    ranks = labeling._ranks(problem.features)
    scores, weights, folds = labeling._cross_fitted(ranks, labeled, 0)
    for column, left_out in (("a", [0, 1] if others_tell else [0]), ("c", [2])):
        expected = scores - (ranks * weights[folds])[:, left_out].sum(1)
        np.testing.assert_allclose(given[column], expected, atol=1e-9)


def test_of_many_rows_as_many_of_p_and_of_u_are_drawn_at_random(monkeypatch):
    monkeypatch.setattr(labeling, "MOST", 20)
    rows = np.arange(100.0)[:, None]
    problem = audit.problem(rows, np.arange(100) % 2 == 0)
    drawn = [labeling._drawn(problem, seed) for seed in (0, 0, 1)]
    numbers = [one.features[:, 0].tolist() for one in drawn]
    assert numbers[0] == numbers[1] != numbers[2] and numbers[0] == sorted(set(numbers[0]))
    for one, of_it in zip(drawn, numbers, strict=True):
        np.testing.assert_array_equal(one.labeled, np.array(of_it) % 2 == 0)
        assert one.labeled.sum() == (~one.labeled).sum() == 20 and max(of_it) > 50


def test_classifiers_see_rows_of_p_and_of_u_at_random_where_there_are_many():
    problem = audit.problem(np.arange(100.0)[:, None], np.arange(100) % 2 == 0)
    drawn = [scoring.samples(problem, seed=seed, most=20) for seed in (0, 0, 1)]
    for side in (0, 1):
        numbers = [parts[side][:, 0].tolist() for parts in drawn]
        assert numbers[0] == numbers[1] != numbers[2]
        for one in numbers:
            assert len(set(one)) == 20 and one == sorted(one) and max(one) > 50
            assert all(number % 2 == side for number in one)
    p, u = scoring.samples(problem, seed=0, most=50)
    assert len(p) == len(u) == 50


def naive_difference(values, scores, labeled):
    """P less U above the median score of P: means, the way to N, and z, row by row."""
    cuts = np.quantile(scores[labeled], [0.5, 0.625, 0.75, 0.875])
    stratum = np.array([sum(score >= cut for cut in cuts) for score in scores])
    p, u, w = [], [], []
    for number in range(1, 5):
        of_p = [v for v, s, k in zip(values, stratum, labeled, strict=True) if s == number and k]
        of_u = [
            v for v, s, k in zip(values, stratum, labeled, strict=True) if s == number and not k
        ]
        if of_p and of_u:
            p, u = p + of_p, u + of_u
            w += [len(of_p) / len(of_u)] * len(of_u)
    p, u, w = np.array(p), np.array(u), np.array(w)
    effective = w.sum() ** 2 / (w**2).sum()
    w = w / w.sum()
    mean_u = (w * u).sum()
    of_mean_u = (w**2 * (u - mean_u) ** 2).sum() * effective / (effective - 1)
    z = (p.mean() - mean_u) / np.sqrt(p.var(ddof=1) / len(p) + of_mean_u)
    lower = ~labeled & (scores <= np.median(scores[~labeled]))
    return {
        "difference": p.mean() - mean_u,
        "to_negatives": values[labeled].mean() - values[lower].mean(),
        "p_value": 2 * stats.norm.sf(abs(z)),
        "num_p": len(p),
        "num_u": int(((stratum > 0) & ~labeled).sum()),
    }


@pytest.mark.parametrize("seed", range(4))
def test_a_difference_within_strata_equals_a_naive_version(seed):
    rng = np.random.default_rng(seed)
    labeled = rng.permutation(300) < 80
    scores = rng.normal(size=300) + 1.5 * (labeled | (rng.random(300) < 0.4))
    if seed % 2:  # scores that are ends of strata
        scores = np.round(scores, 1)
    ranks = labeling._ranks(rng.normal(size=(300, 2)) + 0.4 * labeled[:, None])
    found = labeling._compared(ranks, [0, 1], "c", scores, labeled)
    assert [one.feature for one in found] == [0, 1]
    for one in found:
        expected = naive_difference(ranks[:, one.feature], scores, labeled)
        for name, value in expected.items():
            assert getattr(one, name) == pytest.approx(value, rel=1e-9), name


def test_rows_of_one_stratum_tell_less_than_their_number():
    """Of 16 rows of U one has the weight of 15 others: they tell as much as 3.75 alike."""
    labeled = np.arange(296) < 80
    in_top = np.r_[np.full(15, 41.0), 61.0]
    scores = np.r_[np.arange(80.0), in_top, np.full(200, -1.0)]
    ranks = labeling._ranks(np.random.default_rng(0).normal(size=(296, 1)))
    assert labeling._compared(ranks, [0], "c", scores, labeled) == []
    spread = np.r_[np.arange(80.0), np.repeat([41.0, 51.0, 61.0, 71.0], 4), np.full(200, -1.0)]
    (found,) = labeling._compared(ranks, [0], "c", spread, labeled)
    assert found.num_u == 16


def test_too_few_rows_that_look_positive_are_not_compared():
    labeled = np.arange(200) < 40
    ranks = labeling._ranks(np.random.default_rng(0).normal(size=(200, 1)))
    for num_u, count in ((14, 0), (15, 1)):
        # The upper half of P, and so many of U among them.
        scores = np.where(np.arange(200) < 20, 1.0, 0.0)
        scores[60 : 60 + num_u] = 1.0
        assert len(labeling._compared(ranks, [0], "c", scores, labeled)) == count


@pytest.mark.parametrize(
    ("smaller", "left_out"),
    [(5, ["leak", "at random"]), (8, ["at random"]), (39, ["at random"]), (40, []), (60, [])],
)
def test_what_could_not_be_checked_is_said(monkeypatch, smaller, left_out):
    # The slow parts say nothing of it.
    monkeypatch.setattr(scoring, "held_out", lambda data, *, seed: None)
    monkeypatch.setattr(class_prior, "estimates", lambda data, scores, *, seed: {})
    monkeypatch.setattr(overlap, "check", lambda scores, prior, *, seed: [])
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(smaller + 100, 3))
    _, not_checked, _ = audit.check(audit.problem(rows, np.arange(len(rows)) < smaller))
    assert len(not_checked) == len(left_out)
    assert all(part in said for part, said in zip(left_out, not_checked, strict=True))


def test_the_interval_of_the_auc_leaves_a_twentieth_out_at_either_end(monkeypatch):
    drawn = iter([0.7, *np.random.default_rng(0).permutation(np.linspace(0.6, 1, 200))])
    monkeypatch.setattr(overlap.metrics, "auc", lambda scores, labels: float(next(drawn)))
    scores = scoring.Scores(np.linspace(0, 1, 40), np.arange(40) < 10)
    (finding,) = overlap.check(scores, 0.3, seed=0)
    assert finding.numbers["low"] == pytest.approx(0.62)
    assert finding.numbers["high"] == pytest.approx(0.98)


@pytest.mark.parametrize(("prior", "severities"), [(0.3, [NOTE]), (0.9, []), (None, [])])
def test_classes_overlap_by_the_auc_that_the_prior_implies(prior, severities):
    rng = np.random.default_rng(0)
    labeled = np.arange(900) < 300
    scores = scoring.Scores(rng.normal(size=900) + 0.7 * labeled, labeled)
    found = overlap.check(scores, prior, seed=0)
    # With nine positives in ten rows of U an AUC as small as this is that of classes apart.
    assert [finding.severity for finding in found] == severities
    for finding in found:
        of_pu = auc(scores.values, labeled)
        # The AUC against U is a half for the positives in it.
        assert finding.numbers["auc"] == pytest.approx((of_pu - prior / 2) / (1 - prior))
        assert finding.numbers["auc_pu"] == of_pu


def test_a_leak_needs_eight_rows_of_p_and_of_u():
    for num_p, count in ((7, 0), (8, 1), (9, 1)):
        rows = (
            np.random.default_rng(0).normal(size=(300, 2)) + 9.0 * (np.arange(300) < num_p)[:, None]
        )
        found = leaks.check(audit.problem(rows, np.arange(300) < num_p), seed=0)
        assert len(found) == count
