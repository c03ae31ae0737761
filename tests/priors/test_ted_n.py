"""TED^n finds the prior where it is defined, holds examples apart, and takes any network."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pujax.priors import _classifier, best_bin, ted_n, ted_n_fit
from pujax.priors._classifier import Network

FEW = {"num_warmup_epochs": 3, "num_epochs": 3, "hidden": (16,)}


def patch_epoch(monkeypatch, make_epoch):
    """Another training epoch, that of no earlier test and not kept for later ones."""
    names = ted_n_fit.__globals__
    monkeypatch.setitem(names, "make_epoch", make_epoch)
    monkeypatch.setitem(names, "_default_training", names["_default_training"].__wrapped__)


def samples(prior, *, m=400, n=600, shift=4.0, seed=0):
    """Unit Gaussians in two dimensions, `shift` apart along each."""
    rng = np.random.default_rng(seed)
    num_positive = round(prior * n)
    p, hidden = (rng.normal(shift, 1, [count, 2]) for count in (m, num_positive))
    return p, np.concatenate([hidden, rng.normal(0, 1, [n - num_positive, 2])])


@pytest.mark.thorough
@pytest.mark.parametrize("prior", [0.2, 0.6])
def test_finds_the_prior_of_separated_classes(prior):
    assert ted_n(*samples(prior)).value == pytest.approx(prior, abs=0.06)


def test_the_scale_and_place_of_the_features_do_not_matter():
    p, u = samples(0.4)
    moved = [np.array([1e6, 1e-3]) * x + [5, -7] for x in (p, u)]
    assert ted_n(*moved, **FEW).value == pytest.approx(ted_n(p, u, **FEW).value, abs=0.02)


def test_a_constant_whose_mean_is_rounded_is_not_blown_up():
    """Rare codes as 0.3 and 0.4: in the half that trains most of the columns are constant."""
    rng = np.random.default_rng(3)
    p, u = samples(0.5, m=100, n=200)
    rare = np.where(rng.random((300, 30)) < 0.004, 0.4, 0.3)
    fit = ted_n_fit(np.c_[p, rare[:100]], np.c_[u, rare[100:]], **FEW)
    for scores in (fit.scores_positive, fit.scores_unlabeled, fit.predict(np.c_[u, rare[100:]])):
        assert np.abs(scores).max() < 1e3  # 1e15 by a deviation of rounding alone


def test_the_value_is_the_median_of_the_last_ten_estimates_and_the_last_is_best_bin():
    p, u = samples(0.4, shift=2)
    fit = ted_n_fit(p, u, num_warmup_epochs=2, num_epochs=12, hidden=(8,))
    assert fit.history.shape == (14,)
    assert fit.estimate.value == np.median(fit.history[-10:])
    last = best_bin(fit.scores_positive, fit.scores_unlabeled, num_resamples=0).value
    assert fit.history[-1] == last
    assert len(fit.scores_positive) == 200 and len(fit.scores_unlabeled) == 300
    few = ted_n_fit(p, u, num_warmup_epochs=2, num_epochs=3, hidden=(8,))
    assert few.estimate.value == np.median(few.history[2:])
    none = ted_n_fit(p, u, num_warmup_epochs=2, num_epochs=0, hidden=(8,))
    np.testing.assert_array_equal(none.history, fit.history[:2])


def test_the_classifier_that_comes_with_it_separates_the_classes():
    p, u = samples(0.4)
    fit = ted_n_fit(p, u)
    assert (fit.predict(u)[:240] > 0).mean() > 0.95
    assert (fit.predict(u)[240:] < 0).mean() > 0.95


def test_a_network_that_forgets_nothing_learns_from_one_half_only():
    # A table with a private dimension per example: what is trained on is known by heart, and what
    # is held out scores like anything else. Scores of trained examples would be told apart.
    p, u = np.eye(80)[:40], np.eye(80)[40:]
    options = {"num_warmup_epochs": 30, "num_epochs": 0, "hidden": (), "learning_rate": 0.5}
    fit = ted_n_fit(p, u, batch_size=40, **options)
    everything = fit.predict(p)
    assert np.isin(fit.scores_positive.round(3), everything.round(3)).all()
    assert np.sort(everything)[20:].min() > fit.scores_positive.max() + 0.3


def test_an_epoch_is_gradient_descent_on_half_of_each_mean_without_what_was_dropped():
    rng = np.random.default_rng(0)
    p, u = rng.normal(size=[3, 2]), rng.normal(size=[4, 2])
    kept = np.array([1, 0, 1, 1], np.float32)
    net = Network(lambda key, x: jnp.zeros(2), lambda params, x: x @ params)
    run = _classifier.make_epoch(net, optax.sgd(0.5), 12)
    params, _ = run(jnp.zeros(2), optax.sgd(0.5).init(jnp.zeros(2)), p, u, kept, jax.random.key(0))
    # One step of 4 rows each; P's shuffle of 3 begins again, so one of its rows counts twice.
    unlabeled = u[kept > 0].mean(0) / 2
    candidates = [(p.sum(0) + row) / 4 / 2 - unlabeled for row in p]
    expected = [0.5 * each / 2 for each in candidates]  # sigmoid(0) = 1/2
    assert min(np.abs(params - each).max() for each in expected) < 1e-6


def test_the_highest_share_of_u_is_dropped(monkeypatch):
    seen = []
    original = ted_n_fit.__globals__["make_epoch"]

    def watched(net, optimizer, batch_size):
        run = original(net, optimizer, batch_size)

        def epoch(params, state, p, u, kept, key):
            seen.append((np.asarray(net.apply(params, u)), np.asarray(kept)))
            return run(params, state, p, u, kept, key)

        return epoch

    patch_epoch(monkeypatch, watched)
    fit = ted_n_fit(*samples(0.4, shift=2), **FEW)
    assert len(seen) == len(fit.history)
    for index, (scores, kept) in enumerate(seen):
        dropped = 0 if index < 3 else math.floor(fit.history[index - 1] * 300)
        assert (kept == 0).sum() == dropped
        if dropped:
            assert scores[kept == 0].min() >= scores[kept == 1].max()


def test_a_key_decides_everything_and_an_interval_holds_the_value():
    p, u = samples(0.4, shift=2)
    first, again, other = (ted_n(p, u, key=key, **FEW) for key in (1, 1, 2))
    assert first.value == again.value != other.value
    assert math.isnan(first.low)
    spread = ted_n(p, u, key=1, num_resamples=50, **FEW)
    assert spread.value == first.value
    assert 0 <= spread.low < spread.value < spread.high <= 1


def test_images_and_a_network_of_ones_own_are_accepted():
    p, u = samples(0.5)
    net = Network(lambda key, x: jnp.zeros(x.shape[1]), lambda params, x: x @ params)
    images = [np.tile(x[:, None, :], [1, 3, 1]) for x in (p, u)]
    value = ted_n(*images, network=net, **FEW).value
    assert value == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("last", [0.5, 0.39])
def test_rising_above_the_warm_up_is_warned_about(caplog, monkeypatch, last):
    values = iter([0.7, 0.3, *[last] * 4])
    monkeypatch.setitem(ted_n_fit.__globals__, "best_bin_value", lambda *scores: next(values))
    with caplog.at_level("WARNING"):
        fit = ted_n_fit(*samples(0.3), num_warmup_epochs=2, num_epochs=4, hidden=())
    assert fit.estimate.value == last
    assert (last == 0.5) == ("feeds on itself" in caplog.text)


def test_epochs_that_say_nothing_drop_nothing_and_do_not_count(monkeypatch, caplog):
    seen, values = [], iter([0.5, math.nan, math.nan, 0.4, math.nan, 0.3])

    def watched(net, optimizer, batch_size):
        def epoch(params, state, p, u, kept, key):
            seen.append(int((np.asarray(kept) == 0).sum()))
            return params, state

        return epoch

    patch_epoch(monkeypatch, watched)
    monkeypatch.setitem(ted_n_fit.__globals__, "best_bin_value", lambda *scores: next(values))
    fit = ted_n_fit(*samples(0.4), num_warmup_epochs=2, num_epochs=4, hidden=(4,))
    assert seen == [0, 0, 0, 0, math.floor(0.4 * 300), 0]
    assert fit.estimate.value == pytest.approx(0.35)
    np.testing.assert_array_equal(np.isnan(fit.history), [0, 1, 1, 0, 1, 0])


def test_a_scorer_that_knows_nothing_is_one_warning_and_anything(caplog):
    net = Network(lambda key, x: jnp.zeros(2), lambda params, x: 0 * (x @ params))
    with caplog.at_level("WARNING"):
        fit = ted_n_fit(*samples(0.4), network=net, num_resamples=5, **FEW)
    assert fit.estimate == (1, 0, 1) and np.isnan(fit.history).all()
    assert len(caplog.records) == 1 and "every prior is possible" in caplog.text


def test_samples_that_are_the_same_allow_anything():
    p = np.arange(10.0)
    assert ted_n(p, p[::-1]) == (1, 0, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_epochs": -1}, "num_epochs is -1"),
        ({"num_warmup_epochs": 0}, "num_warmup_epochs is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"learning_rate": 0.0}, "learning_rate is 0.0"),
        ({"momentum": 1.0}, "momentum is 1.0"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0"),
        ({"hidden": (0,)}, "hidden is 0; accepted: a whole number from 1"),
        ({"num_resamples": -1}, "num_resamples is -1"),
        ({"learning_rate": 1e30}, "no longer finite"),
    ],
)
def test_bad_settings_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        ted_n(*samples(0.4), **(FEW | options))


def test_too_few_examples_are_named():
    with pytest.raises(ValueError, match="positives has 3 examples; accepted: at least 4"):
        ted_n(np.arange(3.0), np.arange(8.0))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (np.ones(3), r"features has shape \(3,\); accepted: 3 numbers for each example"),
        (np.ones([2, 1]), r"features has shape \(2, 1\); accepted: 3 numbers for each example"),
        (np.full([1, 3], np.nan), "features has 1 examples with values that are not finite"),
    ],
)
def test_rows_unlike_those_of_the_fit_get_no_scores(rows, said):
    """One example without its axis would be three of one number, each used for every feature."""
    rng = np.random.default_rng(0)
    p, u = rng.normal(1, 1, [20, 3]), rng.normal(size=[30, 3])
    fit = ted_n_fit(p, u, num_warmup_epochs=1, num_epochs=0, hidden=(4,))
    assert fit.predict(u[:1]).shape == (1,) and fit.predict(u[:0]).shape == (0,)
    with pytest.raises(ValueError, match=f"^{said}"):
        fit.predict(rows)


def test_equal_settings_are_compiled_once(monkeypatch):
    """Many keys or data sets of one shape need not wait for the compiler each."""
    made = []
    settings = {"num_warmup_epochs": 1, "num_epochs": 0, "hidden": [7]}  # of no other test

    def counted(*arguments):
        made.append(arguments)
        return _classifier.make_epoch(*arguments)

    monkeypatch.setitem(ted_n_fit.__globals__, "make_epoch", counted)
    p, u = samples(0.5, m=20, n=30)
    found = [ted_n(p, u, key=key, **settings).value for key in (0, 1, 0)]
    assert found[0] == found[2]
    assert len(made) == 1
    ted_n(p, u, batch_size=10, **settings)
    assert len(made) == 2
