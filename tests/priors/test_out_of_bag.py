"""Bags of networks score what they did not see, stop in time, and show the prior."""

import jax
import numpy as np
import pytest

from pujax import metrics, mutual_info, priors
from pujax.priors import base, out_of_bag, out_of_bag_scores
from pujax.priors.base import ANYTHING, PriorEstimate
from pujax.priors.km import least_share

FEW = {"num_networks": 4, "hidden": (16,), "max_steps": 40}
INTERNALS = out_of_bag_scores.__globals__


def samples(prior, *, m=300, n=600, shift=4.0, seed=0):
    """Unit Gaussians in two dimensions, `shift` apart along each."""
    rng = np.random.default_rng(seed)
    num_positive = round(prior * n)
    p, hidden = (rng.normal(shift, 1, [count, 2]) for count in (m, num_positive))
    return p, np.concatenate([hidden, rng.normal(0, 1, [n - num_positive, 2])])


def means(found):
    return found.scores_positive.mean(0), found.scores_unlabeled.mean(0)


@pytest.mark.parametrize("estimator", ["km2", "best_bin"])
@pytest.mark.parametrize("loss", ["logistic", pytest.param("squared", marks=pytest.mark.thorough)])
def test_finds_the_prior_of_separated_classes(loss, estimator):
    for prior in (0.2, 0.7):
        options = FEW | {"loss": loss, "estimator": estimator, "learning_rate": 0.01}
        found = out_of_bag(*samples(prior), num_resamples=0, **options)
        assert found.value == pytest.approx(prior, abs=0.06)
        assert np.isnan(found.low)


@pytest.mark.parametrize("size", [10, 11])
def test_of_each_pair_one_network_never_saw_an_example(size):
    rows = INTERNALS["_halves"](np.random.default_rng(0), 3, size)
    assert rows.shape == (6, 5)
    scores = np.random.default_rng(1).normal(size=[6, size])
    got = INTERNALS["_unseen"](scores, rows)
    for pair in range(3):
        first, second = set(rows[2 * pair]), set(rows[2 * pair + 1])
        assert not first & second and len(first) == len(second) == 5
        for example in range(size):
            of = [
                scores[2 * pair + i, example] for i in (0, 1) if example not in rows[2 * pair + i]
            ]
            assert got[pair, example] == pytest.approx(np.mean(of))
    assert len({tuple(row) for row in rows}) == 6


def test_of_an_odd_number_every_pair_leaves_out_another_row():
    rows = INTERNALS["_halves"](np.random.default_rng(0), 40, 5).reshape(40, 4)
    assert all(len(set(row)) == 4 for row in rows)
    left_out = 10 - rows.sum(1)  # of 0 to 4
    np.testing.assert_array_equal(np.unique(left_out), np.arange(5))


def test_features_are_standardised_over_p_and_u_together(monkeypatch):
    rng = np.random.default_rng(0)
    given = []

    def fit(p, u, rows_p, rows_u, key):
        given.extend((p, u))
        return np.zeros(1), 0, *(np.zeros([len(rows_p), len(x)]) for x in (p, u))

    monkeypatch.setitem(INTERNALS, "_fit", lambda settings: fit)
    # In P the first feature hardly varies, the second not at all, the third nowhere.
    p = np.column_stack([rng.normal(0, 0.01, 30), np.zeros(30), np.full(30, 7.0)])
    u = np.column_stack([rng.normal(0, 1, 50), rng.normal(3, 2, 50), np.full(50, 7.0)])
    out_of_bag_scores(p, u, **FEW)
    assert [x.shape for x in given] == [(30, 3), (50, 3)]
    both = np.concatenate([p, u])
    wanted = (both[:, :2] - both[:, :2].mean(0)) / both[:, :2].std(0)
    np.testing.assert_allclose(np.concatenate(given)[:, :2], wanted, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(np.concatenate(given)[:, 2], 0)


@pytest.mark.thorough
def test_what_tells_nothing_looks_like_nothing():
    """Where P and U are the same noise, what was learned by heart must not show."""
    rng = np.random.default_rng(0)
    p, u = rng.normal(size=[80, 60]), rng.normal(size=[160, 60])
    options = {"num_networks": 8, "hidden": (32,), "max_steps": 200, "look_every": 200}
    scores = np.concatenate(means(out_of_bag_scores(p, u, **options)))
    is_labeled = np.arange(240) < 80
    assert metrics.auc(scores, is_labeled) == pytest.approx(0.5, abs=0.1)
    # A network scored on its own half is sure of it: the test above would not hold for it.
    seen = INTERNALS["_halves"]
    rows = [seen(np.random.default_rng(i), 1, len(x)) for i, x in enumerate((p, u))]
    fit = INTERNALS["_fit"](INTERNALS["_Settings"]("logistic", (32,), 1, 1, 200, 128, 1e-3))
    _, _, on_p, on_u = fit(p.astype(np.float32), u.astype(np.float32), *rows, jax.random.key(0))
    own = np.concatenate([on_p[0][rows[0][0]], on_u[0][rows[1][0]]])
    assert metrics.auc(own, np.arange(120) < 40) > 0.95


@pytest.mark.parametrize("loss", ["logistic", pytest.param("squared", marks=pytest.mark.thorough)])
def test_scores_are_those_of_the_step_of_least_objective(loss):
    p, u = samples(0.5, shift=1.0)
    found = out_of_bag_scores(p, u, loss=loss, **FEW | {"learning_rate": 0.3, "look_every": 5})
    assert found.objectives.shape == (8,)
    best = int(found.objectives.argmin())
    assert found.num_steps == 5 * (best + 1)
    assert 0 < best < 7  # of a rate that large the last look is not the best one
    on_p, on_u = means(found)
    if loss == "logistic":
        wanted = -(np.log(on_p).mean() + np.log(1 - on_u).mean()) / 2
    else:
        wanted = float(mutual_info.pu_objective(on_p, on_u))
    assert found.objectives[best] == pytest.approx(wanted, rel=1e-4)
    short = FEW | {"learning_rate": 0.3, "look_every": 5, "max_steps": found.num_steps}
    assert out_of_bag_scores(p, u, loss=loss, **short).num_steps == found.num_steps


@pytest.mark.thorough
def test_the_squared_loss_gives_the_ratio_of_the_densities():
    """One feature of two values: the ratio is that of their shares in P and in U."""
    p = np.repeat([0.0, 1.0], [100, 300])
    u = np.repeat([0.0, 1.0], [500, 500])
    options = {"learning_rate": 3e-3, "batch_size": 400, "num_networks": 8, "hidden": (16,)}
    on_p, on_u = means(out_of_bag_scores(p, u, loss="squared", **options))
    np.testing.assert_allclose(on_u[:500].mean(), 0.25 / 0.5, atol=0.08)
    np.testing.assert_allclose(on_p[100:].mean(), 0.75 / 0.5, atol=0.08)
    on_p, _ = means(out_of_bag_scores(p, u, **options))
    np.testing.assert_allclose(on_p[100:].mean(), 0.75 / (0.75 + 0.5), atol=0.03)


def test_the_key_decides_everything_and_units_nothing():
    p, u = samples(0.4, shift=1.5)
    first = out_of_bag_scores(p, u, key=3, **FEW)
    again = out_of_bag_scores(p, u, key=3, **FEW)
    np.testing.assert_array_equal(first.scores_unlabeled, again.scores_unlabeled)
    other = out_of_bag_scores(p, u, key=4, **FEW)
    assert not np.array_equal(first.scores_unlabeled, other.scores_unlabeled)
    # Powers of two change no digit.
    scaled = out_of_bag_scores(p * [4, 0.25], u * [4, 0.25], key=3, **FEW)
    np.testing.assert_array_equal(first.scores_unlabeled, scaled.scores_unlabeled)
    options = FEW | {"key": jax.random.key(3), "num_resamples": 2}
    assert out_of_bag(p, u, **options) == out_of_bag(p, u, **options)


def test_the_interval_holds_the_value_and_widens_with_the_level():
    p, u = samples(0.4, shift=2.0)
    for estimator in ("km2", "best_bin"):
        options = FEW | {"estimator": estimator, "num_resamples": 15}
        narrow, wide = (out_of_bag(p, u, level=level, **options) for level in (0.5, 0.95))
        assert (
            narrow.value == wide.value == out_of_bag(p, u, **options | {"num_resamples": 0}).value
        )
        assert wide.low < narrow.low <= narrow.value <= narrow.high < wide.high
        few = out_of_bag(p[::8], u[::8], level=0.95, **options)
        assert few.high - few.low > wide.high - wide.low


def test_the_interval_covers_the_randomness_of_the_halves():
    """Scores differ between draws where the pairs do, and only there."""
    rng = np.random.default_rng(0)
    p, u = samples(0.5, shift=2.0)
    same = tuple(np.tile(x.sum(1), (8, 1)) for x in (p, u))
    differ = tuple(x + rng.normal(0, 3, x.shape) for x in same)
    drawn, resample = INTERNALS["_drawn"], INTERNALS["_best_bin_resample"]
    for pairs, spread in ((same, 0.0), (differ, 3 / np.sqrt(8))):
        of_u = np.array([drawn(pairs, rng)[1] for _ in range(200)])
        assert of_u.std(0).mean() == pytest.approx(spread, rel=0.15, abs=1e-9)
    values = [resample(*drawn(same, rng), rng) for _ in range(50)]
    assert np.mean(values) == pytest.approx(0.5, abs=0.15) and np.std(values) > 0


def test_it_is_a_method_of_estimate_with_all_of_its_settings_at_their_defaults():
    p, u = samples(0.4, m=60, n=100)
    assert "out_of_bag" in priors.NAMES
    got = priors.estimate(p, u, method="out_of_bag", key=5, num_resamples=3)
    assert got == out_of_bag(p, u, key=5, num_resamples=3)


def test_samples_without_information_give_every_prior():
    p, _ = samples(0.4)
    assert out_of_bag(p, p[::-1], **FEW) == ANYTHING


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"loss": "hinge"}, "loss is 'hinge'; accepted: 'logistic', 'squared'"),
        ({"estimator": "km1"}, "estimator is 'km1'; accepted: 'km2', 'best_bin'"),
        ({"num_networks": 3}, "num_networks is 3; accepted: an even number from 2"),
        ({"num_networks": 0}, "num_networks is 0; accepted: a whole number from 2"),
        ({"num_networks": True}, "num_networks is True; accepted: a whole number from 2"),
        ({"num_networks": 4.0}, "num_networks is 4.0; accepted: a whole number from 2"),
        ({"hidden": (0,)}, "hidden is 0; accepted: a whole number from 1"),
        ({"hidden": 100}, "hidden is 100; accepted: whole numbers from 1, one for each layer"),
        ({"hidden": "100"}, "hidden is '100'; accepted: whole numbers from 1, one for each layer"),
        ({"look_every": 0}, "look_every is 0; accepted: a whole number from 1"),
        ({"num_resamples": -1}, "num_resamples is -1; accepted: a whole number from 0"),
        ({"key": "a"}, "key is 'a'; accepted: a whole number from 0, a JAX key or None"),
        ({"learning_rate": "fast"}, "learning_rate is 'fast'; accepted: a number in "),
        ({"learning_rate": np.nan}, "learning_rate is nan; accepted: a number in "),
        ({"learning_rate": None}, "learning_rate is None; accepted: a number in "),
        ({"positives": [["a"]] * 9}, "positives has dtype <U1; accepted: real numbers"),
        ({"unlabeled": np.zeros([9, 3])}, "unlabeled has 3 features; accepted: 2"),
        ({"max_steps": 25}, "max_steps is 25; accepted: a multiple of look_every, 10"),
        ({"max_steps": 5}, "max_steps is 5; accepted: a whole number from 10"),
        ({"batch_size": 0}, "batch_size is 0; accepted: a whole number from 1"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0; accepted: a number in "),
        ({"level": 1}, "level is 1; accepted"),
        (
            {"positives": [[1.0, 2], [2, 2], [3, 2]]},
            "positives has 3 examples; accepted: at least 4",
        ),
        (
            {"unlabeled": [[1.0, 2], [np.inf, 2]]},
            "unlabeled has 1 examples with values that are not",
        ),
    ],
)
def test_what_is_not_accepted_is_named(changes, text):
    p, u = samples(0.4, m=20, n=20)
    # Also where the samples say nothing, and nothing would be computed.
    for other in (u, p):
        arguments = {"positives": p, "unlabeled": other} | changes
        with pytest.raises(ValueError) as error:
            out_of_bag(**arguments)
        assert str(error.value).startswith(text)


def test_an_unknown_argument_is_one_of_the_function_that_was_called():
    with pytest.raises(
        TypeError, match=r"out_of_bag\(\) got an unexpected keyword argument 'step'"
    ):
        out_of_bag(*samples(0.4, m=20, n=20), step=3)


@pytest.mark.parametrize(
    "size", [4, *(pytest.param(size, marks=pytest.mark.thorough) for size in (5, 10))]
)
def test_a_handful_of_points_gives_an_estimate_with_an_interval(size, caplog):
    """Of a feature of two values a resample may hold only one, in P as in U."""
    p, u = np.arange(size) > 0, np.arange(size) > 1
    for estimator in ("km2", "best_bin"):
        found = out_of_bag(p, u, estimator=estimator, num_resamples=8, **FEW)
        assert 0 <= found.low <= found.value <= found.high <= 1
    # So few tell nothing apart, and that is all there is to say.
    assert all("cannot tell the positives" in x.getMessage() for x in caplog.records)


def test_samples_that_tell_nothing_are_warned_of_once(caplog):
    p, _ = samples(0.4, m=20)
    assert out_of_bag(p, p, **FEW) == priors.estimate(p, p, method="out_of_bag") == ANYTHING
    assert len(caplog.records) == 2  # one for each call


def test_a_rate_at_which_nothing_is_finite_is_named():
    with pytest.raises(ValueError, match="learning_rate is 1e[+]30, at which the scores"):
        out_of_bag(*samples(0.4), learning_rate=1e30, **FEW)


def test_the_interval_of_an_answer_holds_all_that_it_stands_for():
    # Brackets of lambda that are 0.5 wide: 1 to 1.5 around 1.25, and 1.25 to 1.75 around 1.5.
    found = base.with_brackets(PriorEstimate(0.3, 0.2, 1 - 1 / 1.5), 0.25, 8.0)
    np.testing.assert_allclose(found, (0.3, 0, 1 - 1 / 1.75), atol=1e-12)
    assert base.with_brackets(PriorEstimate(0.3, 0.1, 1.0), 0.25, 8.0) == (0.3, 0, 1)
    bare = base.with_brackets(PriorEstimate(0.01), 0.25, 8.0)
    assert np.isnan(bare.low) and np.isnan(bare.high)


@pytest.mark.parametrize(("prior", "m", "n"), [(0.0, 60, 600), (0.02, 40, 900)])
def test_the_least_answer_says_that_nothing_was_found(prior, m, n, caplog):
    """With few labels 18 hidden positives among 900 rows are not found either."""
    p, u = samples(prior, m=m, n=n, shift=3.0)
    found = out_of_bag(p, u, num_resamples=4, key=0)
    # All halvings of lambda in [1, 8] to the left leave [1, 1 + 7 / 256].
    least, most = least_share()
    assert least == pytest.approx(1 - 1 / (1 + 3.5 / 256), abs=1e-12)
    assert most == pytest.approx(1 - 1 / (1 + 7 / 256), abs=1e-12)
    assert found.value == least
    assert found.low == 0 and found.high >= most
    (record,) = caplog.records
    assert "found no positives among the unlabeled" in record.getMessage()


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("estimator", ["km2", "best_bin"])
def test_other_samples_of_the_same_noise_leave_every_share_open(loss, estimator, caplog):
    rng = np.random.default_rng(2)
    p, u = rng.normal(size=[200, 2]), rng.normal(size=[400, 2])
    options = {"num_networks": 4, "max_steps": 60, "loss": loss, "estimator": estimator}
    for num_resamples in (0, 10):
        found = out_of_bag(p, u, num_resamples=num_resamples, key=2, **options)
        assert found.value > 0.8 and found[1:] == (0, 1)
    said = [x.getMessage() for x in caplog.records]
    assert len(said) == 2 and "cannot tell the positives from the unlabeled" in said[0]


def test_a_large_share_is_that_of_the_best_bin_and_a_small_one_that_of_km2():
    for prior in (0.9, 0.3):
        p, u = samples(prior, m=500, n=1000, shift=3.0)
        pair = [
            out_of_bag(p, u, estimator=name, num_resamples=8, learning_rate=0.01, **FEW)
            for name in ("km2", "best_bin")
        ]
        assert pair[0].value == pytest.approx(prior, abs=0.05)
        assert (pair[0] == pair[1]) == (prior == 0.9)
        assert pair[0].low > 0


def test_of_many_scores_the_kernel_gets_random_ones(monkeypatch):
    """Rows of U may be sorted: here the positives among them come first."""
    given = []

    def scores(p, u, *_):
        # Of positives 0.7 is about 1 / (1 + 0.4), the probability of being labelled.
        pairs = (np.tile(0.7 / (1 + np.exp(4 - x.sum(1))), (2, 1)) for x in (p, u))
        return INTERNALS["OutOfBag"](*pairs, np.zeros(1), 1)

    monkeypatch.setitem(INTERNALS, "_scores", scores)
    monkeypatch.setitem(INTERNALS, "_MAX_KERNEL_POINTS", 150)
    monkeypatch.setitem(INTERNALS, "_km2", lambda *scores: given.append(scores) or 0.4)
    assert out_of_bag(*samples(0.4), num_resamples=0).value == 0.4
    ((p, u),) = given
    assert len(p) == len(u) == 150
    assert np.mean(u > 0.35) == pytest.approx(0.4, abs=0.15)


def test_the_advantage_is_that_of_the_objective_in_standard_errors():
    rng = np.random.default_rng(0)
    p, u = rng.uniform(0.3, 0.9, 50), rng.uniform(0.1, 0.7, 80)
    for loss, constant, parts in (
        ("logistic", np.log(2), (np.log(2 * p), np.log(2 * (1 - u)))),
        ("squared", -0.5, (2 * (p - 1), 1 - u**2)),
    ):
        gain = constant - float(INTERNALS["_objective"](loss, p, u))
        error = np.sqrt(parts[0].var() / 50 + parts[1].var() / 80) / 2
        assert INTERNALS["_advantage"](loss, p, u) == pytest.approx(gain / error, rel=1e-4)
    assert INTERNALS["_advantage"]("logistic", np.full(5, 0.5), np.full(5, 0.5)) == 0
