"""PUUPL's own mathematics: uncertainty, the choice of pseudo-labels, the loss, the rounds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from pujax.methods import puupl
from pujax.methods._common import network as network_lib
from pujax.methods.puupl import ensemble
from pujax.training import method_setup, sharding, train_step
from tests import tiny, x64
from tests.pu_batches import sigmoid

OPTIONS = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}}


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


def setup(data, **changes):
    """Configuration, method, arrays and the first state."""
    config = tiny.config("puupl", **(OPTIONS | changes))
    method = method_setup.build(config, data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    state = train_step.init_state(method.stages[0], jax.random.key(0), None, arrays, tiny.mesh())
    return config, method, arrays, state


def batch_of(method, arrays, *, epoch=0):
    plan = train_step.epoch_plan(method.stages[0], jax.random.key(1), 0, arrays)
    return tiny.gather(arrays, plan, 0, epoch=epoch, step=0)


def test_uncertainty_is_the_mutual_information_of_prediction_and_network():
    """Against the definition as a sum over the joint distribution of label and network."""
    scores = np.random.default_rng(0).normal(0, 4, [3, 50])
    p = sigmoid(scores)
    wanted = np.zeros(50)
    for each in (p, 1 - p):
        joint, apart = each / 3, each.mean(axis=0) / 3
        wanted += np.sum(joint * np.log(joint / apart), axis=0)
    with x64.x64():
        got = jax.jit(ensemble.mutual_information)(scores)
    np.testing.assert_allclose(got, wanted, atol=1e-12)  # float64


def test_uncertainty_at_its_ends():
    scores = np.float32([[60.0, 2.0, 60.0], [-60.0, 2.0, 60.0]])
    got = np.asarray(jax.jit(ensemble.mutual_information)(scores))
    # Two sure networks that contradict each other, two that agree, two that agree and are sure.
    np.testing.assert_allclose(got, [np.log(2), 0, 0], atol=1e-6)
    assert (got >= 0).all()


def test_ensemble_score_is_the_logit_of_the_mean_probability():
    scores = np.array([[1.0, -3.0, 0.0], [2.0, 0.5, 0.0]])
    p = sigmoid(scores).mean(axis=0)
    mean_score = jax.jit(ensemble.mean_score)
    got = mean_score(scores)
    np.testing.assert_allclose(got, np.log(p / (1 - p)), atol=1e-6)  # float32
    # Where the probability rounds to 1 in float32 the score is still exact.
    far = mean_score(np.float32([[60.0, -70.0], [60.0, -70.0]]))
    np.testing.assert_allclose(far, [60, -70], rtol=1e-6)


def test_the_ensemble_has_as_many_networks_as_asked(data):
    _, method, arrays, state = setup(data, num_nets=3)
    assert {len(leaf) for leaf in jax.tree.leaves((state.seeds, state.params))} == {3}
    first = np.asarray(state.params["classifier"]["kernel"]).reshape(3, -1)
    assert len(np.unique(first, axis=0)) == 3
    assert jax.eval_shape(method.embed, state, arrays.inputs).shape == (data.info.n, 3 * 8)


def test_pseudo_loss_is_cross_entropy_over_pseudo_labelled_rows():
    rng = np.random.default_rng(1)
    scores, targets = rng.normal(0, 2, 8), rng.uniform(size=8)
    mask = np.array([1, 0, 0, 1, 1, 0, 0, 0], bool)
    p = sigmoid(scores)
    losses = -targets * np.log(p) - (1 - targets) * np.log(1 - p)
    with x64.x64():
        got, gradient = jax.jit(jax.value_and_grad(ensemble.pseudo_loss))(scores, targets, mask)
    np.testing.assert_allclose(got, losses[mask].mean(), rtol=1e-12)
    np.testing.assert_allclose(gradient, mask * (p - targets) / 3, rtol=1e-12)


def test_pseudo_loss_of_no_rows_is_zero_with_a_zero_gradient():
    value, gradient = jax.jit(jax.value_and_grad(ensemble.pseudo_loss))(
        np.float32([3.0, -80.0]), np.float32([0.2, 0.9]), np.zeros(2, bool)
    )
    assert value == 0
    np.testing.assert_array_equal(gradient, 0)


def chosen(uncertainty, score, is_pseudo=None, labeled=None, *, seed=0, **changes):
    n = len(uncertainty)
    options = {"label_below": 0.05, "withdraw_above": 0.35, "max_new": 1000} | changes
    is_pseudo, is_new = jax.jit(ensemble.select, static_argnames=("max_new",))(
        jax.random.key(seed),
        np.asarray(uncertainty, np.float32),
        np.asarray(score, np.float32),
        np.zeros(n, bool) if is_pseudo is None else np.asarray(is_pseudo, bool),
        labeled=np.zeros(n, bool) if labeled is None else np.asarray(labeled, bool),
        **options,
    )
    return np.asarray(is_pseudo), np.asarray(is_new)


def test_selection_worked_by_hand():
    uncertainty = [0.01, 0.02, 0.03, 0.04, 0.06, 0.001, 0.002, 0.36, 0.34, 0.04]
    score = [1, 2, 3, -1, -1, 4, 5, 6, -6, -2]
    labeled = [0, 0, 0, 0, 0, 1, 0, 0, 0, 0]
    before = [0, 0, 0, 0, 0, 0, 1, 1, 1, 0]
    after, new = chosen(uncertainty, score, before, labeled)
    # Candidates: 0, 1, 2 positive and 3, 9 negative (4 is too uncertain, 5 is labelled, 6 has a
    # label), hence two of each side. 7 is withdrawn, 6 and 8 stay.
    np.testing.assert_array_equal(np.flatnonzero(new), [0, 1, 3, 9])
    np.testing.assert_array_equal(np.flatnonzero(after), [0, 1, 3, 6, 8, 9])


def test_thresholds_are_strict_below_and_above():
    _, new = chosen([0.05, 0.05, 0.049, 0.049], [1, -1, 1, -1])
    np.testing.assert_array_equal(new, [0, 0, 1, 1])
    after, _ = chosen([0.35, 0.351], [1, -1], [1, 1], withdraw_above=np.float32(0.35))
    np.testing.assert_array_equal(after, [1, 0])


@pytest.mark.parametrize("max_new", [0, 1, 6, 7, 1000])
def test_selection_equals_sorting_each_side(max_new):
    rng = np.random.default_rng(max_new)
    uncertainty, score = rng.uniform(0, 0.5, 200).astype(np.float32), rng.normal(size=200)
    before, labeled = rng.uniform(size=200) < 0.2, np.arange(200) < 30
    before &= ~labeled
    after, new = chosen(uncertainty, score, before, labeled, label_below=0.2, max_new=max_new)
    free = ~before & ~labeled & (uncertainty < 0.2)
    sides = [np.flatnonzero(free & side) for side in (score > 0, score <= 0)]
    each = min(max_new // 2, *map(len, sides))
    wanted = np.concatenate([ids[np.argsort(uncertainty[ids])[:each]] for ids in sides])
    np.testing.assert_array_equal(np.flatnonzero(new), np.sort(wanted))
    np.testing.assert_array_equal(after, new | (before & (uncertainty <= np.float32(0.35))))


def test_equal_uncertainties_are_chosen_by_lot_and_not_by_place():
    score = np.tile([1, -1], 50)
    picks = [chosen(np.zeros(100), score, max_new=20, seed=seed)[1] for seed in range(3)]
    for pick in picks:
        assert pick[score > 0].sum() == pick[score < 0].sum() == 10
    assert not np.array_equal(picks[0], picks[1])
    assert max(np.flatnonzero(pick).max() for pick in picks) > 50


@pytest.mark.parametrize("name", ["nnpu", "imbalanced_nnpu"])
def test_risk_option_names_the_risk_and_the_setting_its_priors(data, name):
    config = tiny.config("puupl", risk=name, target_prior=0.3, beta=0.01, gamma=0.5, **OPTIONS)
    rng = np.random.default_rng(0)
    scores = jnp.asarray(rng.normal(size=20), jnp.float32)
    labeled = jnp.asarray(np.arange(20) < 6, jnp.float32)
    shared = {"beta": 0.01, "gamma": 0.5}
    info = data.info
    if name == "nnpu":
        wanted = risks.nnpu(
            scores,
            labeled,
            prior=info.prior,
            unlabeled_prior=info.prior_unlabeled,
            unlabeled_weight=info.n_u / info.n,
            **shared,
        )
    else:
        wanted = risks.imbalanced_nnpu(
            scores, labeled, prior=info.prior_unlabeled, target_prior=0.3, **shared
        )
    np.testing.assert_allclose(puupl.pu_risk(config.method, info)(scores, labeled), wanted)


def test_a_step_is_one_sgd_step_of_every_network_on_its_own_loss(data):
    config, method, arrays, state = setup(
        data, optimizer="sgd", momentum=0.0, weight_decay=0.0, learning_rate=0.1, pseudo_weight=0.3
    )
    batch = batch_of(method, arrays)
    unlabeled = np.asarray(batch.ids)[np.asarray(batch.labeled) == 0]
    state = state._replace(
        is_pseudo=state.is_pseudo.at[unlabeled[:5]].set(True),
        targets=state.targets.at[unlabeled].set(0.8),
    )
    after, metrics = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
    network = network_lib.build(config, data.info, embedding_dim=0)
    images = network.normalize(batch.inputs)
    mask = np.isin(np.asarray(batch.ids), unlabeled[:5])
    numbers = {
        "prior": data.info.prior,
        "unlabeled_prior": data.info.prior_unlabeled,
        "unlabeled_weight": data.info.n_u / data.info.n,
    }
    losses = []
    for k in range(2):
        params, stats, moved = jax.tree.map(
            lambda x, k=k: x[k], (state.params, state.batch_stats, after.params)
        )

        def loss_of(params, stats=stats):
            scores = network.train_pass(params, stats, images)[0].logits
            p = jax.nn.sigmoid(scores[mask])
            pseudo = -jnp.mean(0.8 * jnp.log(p) + 0.2 * jnp.log(1 - p))
            return 0.3 * pseudo + 0.7 * risks.nnpu(scores, batch.labeled, **numbers)

        value, gradient = jax.value_and_grad(loss_of)(params)
        losses.append(value)
        wanted = jax.tree.map(lambda p, g: p - 0.1 * g, params, gradient)
        for a, b in zip(jax.tree.leaves(moved), jax.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6)  # float32, other fusion
    np.testing.assert_allclose(metrics["loss"], np.mean(losses), rtol=1e-5)
    assert abs(losses[0] - losses[1]) > 1e-4  # the networks are not copies
    assert metrics["pseudo_labels"] == 5


@pytest.mark.thorough
def test_scores_are_those_of_the_mean_probability_of_both_networks(data):
    config, method, arrays, state = setup(data)
    network = network_lib.build(config, data.info, embedding_dim=0)
    inputs = arrays.inputs[:7]
    p = 0
    for k in range(2):
        params, stats = jax.tree.map(lambda x, k=k: x[k], (state.params, state.batch_stats))
        p = p + sigmoid(network.infer(params, stats, inputs).logits) / 2
    np.testing.assert_allclose(method.predict(state, inputs), np.log(p / (1 - p)), atol=1e-5)
    assert method.embed(state, inputs).shape == (7, 16)


@pytest.mark.thorough
def test_rounds_end_on_time_start_afresh_and_hand_on_soft_labels(data):
    config, method, arrays, state = setup(data, round_epochs=2, label_below=0.6, withdraw_above=0.7)
    stage, key = method.stages[0], jax.random.key(4)
    step = jax.jit(stage.step)
    first = state
    assert [stage.is_refreshed(epoch) for epoch in range(4)] == [True, False, True, False]
    assert stage.refresh(state, arrays, key, 0) is state  # the first round has begun already
    for epoch in range(2):
        state, _ = step(state, batch_of(method, arrays, epoch=epoch), key)
    probability = sigmoid(method.predict(state, arrays.inputs))
    state = stage.refresh(state, arrays, key, 2)  # epoch 2 begins: the second round
    for a, b in zip(
        jax.tree.leaves((state.params, state.batch_stats)),
        jax.tree.leaves((first.params, first.batch_stats)),
        strict=True,
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6)
    assert all((np.asarray(x) == 0).all() for x in jax.tree.leaves(state.opt_state))
    pseudo = np.asarray(state.is_pseudo)
    called = probability > 0.5
    assert pseudo.any() and not pseudo[data.labeled].any()
    assert (pseudo & called).sum() == (pseudo & ~called).sum()
    wanted = np.where(data.labeled, 1, probability)
    np.testing.assert_allclose(method.soft_labels(state), wanted, rtol=1e-4)


def test_a_pseudo_label_keeps_its_value_until_it_is_withdrawn(data):
    _, method, arrays, state = setup(data, label_below=0.0, withdraw_above=0.3, max_new=0)
    ids = np.array([60, 61])  # unlabeled: P are the first 40
    state = state._replace(
        is_pseudo=state.is_pseudo.at[ids].set(True),
        targets=state.targets.at[ids].set(0.123),
    )
    kept = method.stages[0].refresh(state, arrays, jax.random.key(0), 2)
    np.testing.assert_array_equal(np.flatnonzero(kept.is_pseudo), ids)
    np.testing.assert_allclose(kept.targets[ids], 0.123)
    # Networks that contradict each other everywhere: all labels go.
    bias = jnp.asarray([[20.0], [-20.0]])
    params = jax.tree.map(jnp.zeros_like, state.params)
    params["classifier"]["bias"] = bias
    gone = method.stages[0].refresh(state._replace(params=params), arrays, jax.random.key(0), 2)
    assert not gone.is_pseudo.any()
    np.testing.assert_allclose(gone.targets[ids], 0.5, atol=1e-6)


def test_learning_rate_starts_anew_every_round(data):
    _, method, arrays, state = setup(
        data,
        num_epochs=8,
        round_epochs=4,
        lr_schedule="cosine",
        lr_floor=0.0,
        learning_rate=0.01,
        weight_decay=0.0,
    )
    moves = []
    for epoch in (0, 2, 4, 6):
        batch = batch_of(method, arrays, epoch=epoch)
        after, _ = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
        move = after.params["classifier"]["kernel"] - state.params["classifier"]["kernel"]
        moves.append(float(jnp.abs(move).max()))
    # Adam's first step from rest is the learning rate: full, half, full, half.
    np.testing.assert_allclose(moves, [0.01, 0.005, 0.01, 0.005], rtol=1e-2)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("round_epochs", 0),
        ("num_nets", 1),
        ("optimizer", "lars"),
        ("pseudo_weight", 1.5),
        ("max_new", -1),
        ("withdraw_above", 0.01),
        ("risk", "upu"),
        ("target_prior", 1.0),
        ("calibration", "both"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(data, field, value):
    with pytest.raises(ValueError, match=f"method.{field} is {value!r}; accepted"):
        puupl.build(tiny.config("puupl", **(OPTIONS | {field: value})), data.info)
