"""What methods hold out of their training: samples, both copies of an example, replacements."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import special
from sklearn.linear_model import LogisticRegression

from pujax.methods import classic
from pujax.methods._common import holdout
from pujax.methods.purl import density_ratio, ratio_stage
from pujax.priors import conversions
from pujax.training import method_setup, sharding, train_step
from tests import tiny

LABELED = np.arange(30) < 10
MLP = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}}


def test_as_many_of_each_group_are_drawn_as_asked():
    held = holdout.choose(jax.random.key(0), jnp.asarray(LABELED), num_positives=3, num_unlabeled=5)
    assert np.sum(held[LABELED]) == 3 and np.sum(held[~LABELED]) == 5


def test_both_copies_are_held_out_and_as_large_a_share_of_u_as_of_p():
    # P are the rows 0 to 9, U the rows 10 to 49, whose last ten repeat P in the other order.
    labeled, rows = np.arange(50) < 10, np.arange(50)
    copies = np.concatenate([rows[49:39:-1], rows[10:40], rows[9::-1]])
    info = tiny.problem().info._replace(n_p=10, n_u=40)
    count = holdout.num_unlabeled(4, 17, info=info, copies=copies)
    assert count == 16 and holdout.num_unlabeled(4, 17, info=info, copies=None) == 17
    draw = jax.jit(holdout.choose, static_argnames=("num_positives", "num_unlabeled"))
    for seed in range(3):
        held = draw(
            jax.random.key(seed), labeled, num_positives=4, num_unlabeled=count, copies=copies
        )
        held = np.asarray(held)
        np.testing.assert_array_equal(held, held[copies])
        # 4 of 10 of P, of their copies, and 12 of the 30 others.
        assert [held[x].sum() for x in (slice(10), slice(40, 50), slice(10, 40))] == [4, 4, 12]


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
    held, ids, labeled = np.asarray(state.held), data.source_ids, data.labeled
    # P is in U as a whole, so that the other copies of the P held out would train as negatives.
    assert np.isin(ids[labeled], ids[~labeled]).all() and held[labeled].any()
    assert not np.isin(ids[held], ids[~held]).any()
    of_p = held[labeled].mean()
    assert held[~labeled].mean() == pytest.approx(of_p, abs=1 / (~labeled).sum())
    # What is left of U is like U.
    copied = np.isin(ids, ids[labeled]) & ~labeled
    assert held[copied].mean() == of_p


def test_purl_measures_all_that_it_holds_out():
    data, few = tiny.problem(setting="two_sample"), {"validation_positives": 4}
    method, arrays, state = first_state("purl", data, **few)
    held, labeled = np.asarray(state.held), data.labeled
    section = tiny.config("purl", **MLP, **few).method
    counts = ratio_stage.num_held_out(section, data.info, arrays.copies)
    assert counts == (held[labeled].sum(), held[~labeled].sum())
    assert counts != ratio_stage.num_held_out(section, data.info)
    after = method.stages[0].refresh(state, arrays, jax.random.key(1))
    ratios = np.asarray(method.predict(after, arrays.inputs)) + 1
    expected = density_ratio.ratio_objective(ratios[held], labeled[held], positive_share=0.0)
    assert float(after.current.objective) == pytest.approx(float(expected), rel=1e-4)


@pytest.mark.parametrize("num_labeled", [200, 600])
def test_elkan_and_noto_find_the_share_where_u_repeats_p_and_the_classes_are_apart(num_labeled):
    """Were more held out of P than of U, the counts that the share rests on would be others."""
    shares = []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        positive = np.arange(2000) < 1000
        unlabeled = rng.normal(size=(2000, 2)) + 8 * positive[:, None]
        rows = np.concatenate([unlabeled[:num_labeled], unlabeled])
        labeled, order = np.arange(len(rows)) < num_labeled, np.arange(len(rows))
        copies = order.copy()
        copies[:num_labeled], copies[num_labeled : 2 * num_labeled] = (
            order[num_labeled : 2 * num_labeled],
            order[:num_labeled],
        )
        config = tiny.config("classic", correction="elkan_noto", weighting="none").method
        frequency = classic.fit(config, rows, labeled, seed=seed, copies=copies).label_frequency
        counts = {"n_p": num_labeled, "n_u": 2000}
        shares.append(conversions.unlabeled_prior_from_label_frequency(float(frequency), **counts))
    assert np.mean(shares) == pytest.approx(0.5, abs=0.04)


def test_elkan_and_noto_hold_both_copies_out():
    labeled, order = np.arange(200) < 60, np.arange(200)
    copies = np.concatenate([order[60:120], order[:60], order[120:]])
    held = classic.held_out(np.random.default_rng(0), labeled, 0.25, copies)
    np.testing.assert_array_equal(held, held[copies])
    assert [held[x].sum() for x in (slice(60), slice(60, 120), slice(120, 200))] == [15, 15, 20]
    rows = np.random.default_rng(1).normal(size=(200, 3))
    changes = {"correction": "elkan_noto", "weighting": "none", "hold_out_ratio": 0.25}
    config = tiny.config("classic", **changes).method
    by_hand = LogisticRegression(C=config.C, tol=config.tol, max_iter=config.max_iter)
    margins = by_hand.fit(rows[~held], labeled[~held]).decision_function(rows[held & labeled])
    state = classic.fit(config, rows, labeled, seed=0, copies=copies)
    assert float(state.label_frequency) == pytest.approx(special.expit(margins).mean(), rel=1e-5)
    # U is P alone: none of the others can be held out.
    alone = classic.held_out(np.random.default_rng(0), labeled[:120], 0.25, copies[:120])
    assert alone.sum() == 30


def test_the_classic_method_is_told_of_copies(monkeypatch):
    seen, held_out = [], classic.held_out
    monkeypatch.setattr(classic, "held_out", lambda *args: seen.append(args[3]) or held_out(*args))
    data = tiny.table_problem(setting="two_sample")
    method, arrays, state = first_state("classic", data, correction="elkan_noto")
    method.stages[0].refresh(state, arrays, jax.random.key(0))
    np.testing.assert_array_equal(seen[0], data.training_data().copies)
    assert seen[0] is not None
