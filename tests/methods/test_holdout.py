"""What methods hold out of their training: samples, both copies of an example, replacements."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from sklearn.linear_model import LogisticRegression

from pujax.methods import classic
from pujax.methods._common import holdout
from pujax.methods.purl import class_prior
from pujax.training import method_setup, sharding, train_step
from tests import tiny

LABELED = np.arange(30) < 10
MLP = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}}


def test_as_many_of_each_group_are_drawn_as_asked():
    drawn = holdout.choose(
        jax.random.key(0), jnp.asarray(LABELED), num_positives=3, num_unlabeled=5
    )
    assert np.sum(drawn[LABELED]) == 3 and np.sum(drawn[~LABELED]) == 5
    np.testing.assert_array_equal(holdout.with_copies(drawn, None), drawn)


def test_copies_of_what_is_drawn_stay_out():
    # P are the rows 0 and 1, U the rows 2 to 6, of which 2 repeats 1 and 5 repeats 0.
    copies = jnp.array([5, 2, 1, 3, 4, 0, 6])
    drawn = jnp.array([False, True, False, True, False, True, False])
    out = jax.jit(holdout.with_copies)(drawn, copies)
    np.testing.assert_array_equal(out, [True, True, True, True, False, True, False])


def test_shares_of_u_and_of_what_is_left_of_it_by_hand():
    # U: 200, 80 of them positive. Out are 40 of U like all of it, and 10 copies of positives.
    left = {"num_rest": 150, "num_copies": 10}
    assert holdout.share_of_rest(80 / 200, **left) == pytest.approx((80 - 16 - 10) / 150)
    assert holdout.share_of_all(54 / 150, **left) == pytest.approx(80 / 200)
    assert holdout.share_of_rest(0.01, **left) == 0
    nothing = {"num_rest": 150, "num_copies": 0}
    assert holdout.share_of_rest(0.4, **nothing) == pytest.approx(0.4)


def test_rows_held_out_give_way_to_others_of_their_group_in_turn():
    labeled = np.array([1, 1, 1, 0, 0, 0, 0, 0])
    held = np.array([0, 1, 0, 1, 0, 1, 1, 0], bool)
    got = jax.jit(holdout.replacements)(held, labeled)
    np.testing.assert_array_equal(got, [0, 0, 2, 4, 4, 7, 4, 7])


def test_where_a_whole_group_is_held_out_it_stays():
    held, labeled = np.asarray([True, True, False]), np.asarray([1, 1, 0])
    replacements = jax.jit(holdout.replacements)
    np.testing.assert_array_equal(replacements(held, labeled), [0, 1, 2])
    np.testing.assert_array_equal(replacements(~held, 1 - labeled), [0, 1, 2])


def first_state(name, data, **changes):
    method = method_setup.build(tiny.config(name, **(MLP | changes)), data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    key = jax.random.key(0)
    return method, arrays, train_step.init_state(method.stages[0], key, None, arrays, tiny.mesh())


@pytest.mark.parametrize(
    ("name", "changes"), [("cvir", {"alpha": "estimated", "hold_out_ratio": 0.25}), ("purl", {})]
)
def test_no_example_that_is_held_out_trains_by_its_other_copy(name, changes):
    data = tiny.problem(setting="two_sample")
    _, _, state = first_state(name, data, **changes)
    drawn, held = np.asarray(state.drawn), np.asarray(state.held)
    ids = data.source_ids
    # P is in U as a whole, so that the other copies of the P drawn would train as negatives.
    assert np.isin(ids[data.labeled], ids[~data.labeled]).all() and drawn[data.labeled].any()
    assert not np.isin(ids[held], ids[~held]).any()
    assert held.sum() > drawn.sum() and held[drawn].all()
    _, _, alone = first_state(name, tiny.problem(), **changes)
    np.testing.assert_array_equal(alone.drawn, alone.held)


def test_cvir_drops_as_many_as_are_positive_in_what_is_left_of_u():
    data = tiny.problem(setting="two_sample")
    method, arrays, state = first_state("cvir", data, alpha="estimated", hold_out_ratio=0.25)
    labeled, drawn, held = (np.asarray(x) for x in (data.labeled, state.drawn, state.held))
    after = method.stages[1].refresh(state, arrays, jax.random.key(1), 0)
    share = float(method.estimates(after)["estimated_prior"])
    rest, copies = (~labeled & ~held).sum(), (~labeled & held & ~drawn).sum()
    assert copies > 0 and 0 < share < 1
    positive = share * (rest + copies) - copies
    assert np.asarray(after.kept).sum() == rest - max(int(positive), 0)
    assert not np.asarray(after.kept)[held | labeled].any()


@pytest.mark.parametrize("points", ["training", "fresh"])
def test_purl_states_its_prior_for_all_of_u(points, monkeypatch):
    data, seen = tiny.problem(setting="two_sample"), {}

    def estimate(positives, unlabeled, **options):
        seen.update(p=len(positives), u=len(unlabeled))
        return 0.3

    monkeypatch.setattr(class_prior, "estimate", estimate)
    # The least that 'fresh' takes is more than a fifth of P.
    monkeypatch.setattr(class_prior, "_MIN_FRESH", 2)
    method, arrays, state = first_state("purl", data, representation="none", prior_points=points)
    labeled, drawn, held = (np.asarray(x) for x in (data.labeled, state.drawn, state.held))
    after = method.stages[0].refresh(state, arrays, jax.random.key(0))
    if points == "fresh":  # what was drawn is like U
        assert seen == {"p": (labeled & drawn).sum(), "u": (~labeled & drawn).sum()}
        assert float(after.prior) == pytest.approx(0.3)
    else:
        rest, copies = (~labeled & ~held).sum(), (~labeled & held & ~drawn).sum()
        assert seen == {"p": (labeled & ~held).sum(), "u": rest} and copies > 0
        assert float(after.prior) == pytest.approx((0.3 * rest + copies) / (rest + copies))


def test_elkan_and_notos_frequency_is_that_of_examples_without_a_copy_in_training():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(200, 3))
    rows[60:120] = rows[:60]  # U repeats P
    labeled, order = np.arange(200) < 60, np.arange(200)
    copies = np.concatenate([order[60:120], order[:60], order[120:]])
    config = tiny.config("classic", correction="elkan_noto", weighting="none").method
    known, both = (
        float(classic.fit(config, rows, labeled, seed=0, copies=x).label_frequency)
        for x in (None, copies)
    )
    drawn = classic.held_out(np.random.default_rng(0), labeled, config.hold_out_ratio)
    trains = ~(drawn | drawn[copies])
    by_hand = LogisticRegression(C=config.C, tol=config.tol, max_iter=config.max_iter)
    margins = by_hand.fit(rows[trains], labeled[trains]).decision_function(rows[drawn & labeled])
    assert both == pytest.approx(special.expit(margins).mean(), rel=1e-6)
    assert known != both
