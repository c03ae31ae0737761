"""P3MIX: candidates, partners, relabelling, the terms of the loss, the teacher, and whole steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.configs import p3mix as p3mix_file
from pujax.methods import _p3mix, p3mix_c, p3mix_e
from pujax.methods._common import network as network_lib
from pujax.methods._p3mix import parts
from pujax.training import method_setup, sharding, train_step
from tests import tiny
from tests.pu_batches import sigmoid
from tests.x64 import x64

MLP = {"hidden": (16, 16), "batch_norm": True}
# Compiled, since operations one by one cost a program each.
losses = jax.jit(parts.losses, static_argnames="num_positives")
choose_partners = jax.jit(parts.choose_partners, static_argnames=("gamma", "batch_size"))


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


# --- the pieces -----------------------------------------------------------------------------------


def test_candidates_are_the_scores_of_highest_entropy():
    scores = np.random.default_rng(0).normal(0, 3, 30)
    p = sigmoid(scores)
    entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
    got = parts.least_certain(jnp.asarray(scores, jnp.float32), size=7)
    np.testing.assert_array_equal(got, np.argsort(-entropy)[:7])


def test_candidates_are_ordered_where_the_entropy_has_underflowed():
    got = parts.least_certain(jnp.asarray([300.0, -200.0, 250.0]), size=2)
    assert got.tolist() == [1, 2]


def test_ambiguous_rows_get_their_candidate_and_all_others_a_row_of_the_batch():
    p = np.asarray([0.19, 0.21, 0.5, 0.79, 0.81, 0.0, 1.0], np.float32)
    unsure = [False, True, True, True, False, False, False]
    size, first = 12, 5  # 5 rows of P, 7 of U
    for seed in range(3):
        (rows, ambiguous), (at_random, none) = (
            choose_partners(jax.random.key(seed), p, gamma=0.8, batch_size=size, active=active)
            for active in (True, False)
        )
        assert ambiguous.tolist() == unsure
        assert not np.any(none)
        np.testing.assert_array_equal(np.sort(at_random), np.arange(size))
        for row in range(size):
            place = row - first
            heuristic = place >= 0 and unsure[place]
            assert rows[row] == (size + place if heuristic else at_random[row])


def test_the_borders_of_ambiguity_are_excluded():
    p = np.asarray([0.25, 0.75], np.float32)  # exact, as 1 - gamma is
    _, ambiguous = choose_partners(jax.random.key(0), p, gamma=0.75, batch_size=4, active=True)
    assert not np.any(ambiguous)


def test_cross_entropies_and_entropy_equal_sums_over_both_classes():
    with x64():
        rng = np.random.default_rng(1)
        scores, targets = rng.normal(0, 2, 9), rng.uniform(size=9)
        q = np.stack([1 - sigmoid(scores), sigmoid(scores)], axis=1)
        t = np.stack([1 - targets, targets], axis=1)
        cross = -(t * np.log(q)).sum(1)
        wanted = cross[:4].mean(), cross[4:].mean(), -(q * np.log(q)).sum(1).mean()
        got = losses(scores, targets, num_positives=4)
        np.testing.assert_allclose(got, wanted, rtol=1e-12)


def test_probabilities_are_clipped_so_that_nothing_explodes():
    far = np.float32([60.0, -60.0])
    got = losses(far, np.float32([0.0, 1.0]), num_positives=1)
    # -log(1e-4) on both, up to float32's 1 - (1 - 1e-4).
    np.testing.assert_allclose(got[:2], -np.log(1e-4), rtol=1e-3)

    def total(scores):
        first = sum(parts.losses(scores, jnp.asarray([0.0, 1.0]), num_positives=1))
        return first + parts.early_learning(scores, jnp.asarray([1.0, 0.0]))

    value, gradient = jax.jit(jax.value_and_grad(total))(far)
    assert np.isfinite(value) and np.isfinite(gradient).all()


def test_early_learning_is_the_log_of_one_minus_the_agreement():
    with x64():
        rng = np.random.default_rng(2)
        scores, targets = rng.normal(0, 2, 8), rng.uniform(size=8)
        q = sigmoid(scores)
        agreement = targets * q + (1 - targets) * (1 - q)
        got = jax.jit(parts.early_learning)(scores, targets)
        np.testing.assert_allclose(got, np.log(1 - agreement).mean(), rtol=1e-12)


def test_early_learning_pulls_towards_the_teacher_and_does_not_move_where_it_is_undecided():
    slope = jax.jit(jax.grad(parts.early_learning))
    gradient = np.asarray(slope(np.zeros(3), np.asarray([0.9, 0.1, 0.5])))
    assert gradient[0] < 0 < gradient[1]
    np.testing.assert_allclose(gradient[2], 0, atol=1e-7)


def test_the_teacher_is_a_copy_then_an_average_then_forgets_at_the_limit():
    def decay(epochs, **changes):
        options = {"start": 0, "limit": 0.997} | changes
        return float(parts.teacher_decay(jnp.asarray(epochs), **options))

    assert decay(0) == 1  # before the first epoch nothing has been learned
    wanted = {1: 0.0, 2: 1 / 2, 3: 2 / 3, 4: 3 / 4, 1000: 0.997}
    assert {n: decay(n) for n in wanted} == pytest.approx(wanted, rel=1e-6)
    late = {0: 1, 3: 1, 4: 0, 5: 1 / 2}
    assert {n: decay(n, start=3) for n in late} == pytest.approx(late, rel=1e-6)


# --- the pool and the teacher in the state --------------------------------------------------------


def setup(data, name="p3mix_e", **changes):
    """Configuration, method, arrays, state and a batch of 6 from P and 10 from U in epoch 2."""
    sgd = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": 1e-3}
    settings = {"positives_per_batch": 6, "pool_size": 5, "start_hmix": 1, "gamma": 0.8}
    config = tiny.config(name, model="mlp", options=MLP, **(sgd | settings | changes))
    made = method_setup.build(config, data, tiny.mesh())
    arrays = sharding.replicate(made.data.training_data(), tiny.mesh())
    stage = made.method.stages[0]
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, tiny.mesh())
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    batch = tiny.gather(arrays, plan, 0, epoch=2, step=0)
    return config, made.method, arrays, state, batch


def moved(state, by):
    """The state as if training had shifted every parameter."""
    return state._replace(params=jax.tree.map(lambda p: p + by, state.params))


def assert_equal(first, second):
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-7)


@pytest.mark.thorough
def test_the_pool_holds_the_least_certain_positives_and_their_images(data):
    _, method, arrays, state, _ = setup(data)
    after = method.stages[0].refresh(state, arrays, jax.random.key(0))
    scores = np.abs(np.asarray(method.predict(state, arrays.inputs)))
    positives = np.flatnonzero(arrays.labeled)
    wanted = positives[np.argsort(scores[positives])[:5]]
    np.testing.assert_array_equal(after.pool_ids, wanted)
    np.testing.assert_array_equal(after.pool_inputs, np.asarray(arrays.inputs)[wanted])
    assert after.pool_inputs.dtype == jnp.uint8
    assert np.asarray(arrays.labeled)[np.asarray(state.pool_ids)].all()  # from the start


@pytest.mark.thorough
def test_the_pool_follows_the_network_and_is_never_larger_than_p(data):
    _, method, arrays, state, _ = setup(data, pool_size=1000)
    assert state.pool_ids.shape == (data.info.n_p,)
    first = method.stages[0].refresh(state, arrays, jax.random.key(0))
    second = method.stages[0].refresh(moved(state, 0.05), arrays, jax.random.key(0))
    assert not np.array_equal(first.pool_ids, second.pool_ids)
    np.testing.assert_array_equal(np.sort(second.pool_ids), np.flatnonzero(arrays.labeled))


@pytest.mark.thorough
@pytest.mark.parametrize("first", [0, 1])
def test_the_teacher_follows_once_per_epoch_and_steps_leave_it_alone(data, first):
    _, method, arrays, state, batch = setup(data, ema_start=first, ema_decay=0.25)
    stage = method.stages[0]

    def refresh(state, epoch):
        return stage.refresh(state, arrays, jax.random.key(0), epoch)

    start = refresh(state, 0)
    assert_equal(start.teacher, state.params)
    stepped, _ = jax.jit(stage.step)(start, batch, jax.random.key(0))
    assert_equal(stepped.teacher, state.params)
    one, two = moved(start, 0.1), moved(start, 0.4)
    if first:  # no update before the epoch that starts them
        assert_equal(refresh(one, first).teacher, state.params)
    after_one = refresh(one, first + 1)
    assert_equal(after_one.teacher, one.params)  # the first update copies
    after_two = refresh(after_one._replace(params=two.params), first + 2)
    mean = jax.tree.map(lambda a, b: a / 4 + 3 * b / 4, one.params, two.params)
    assert_equal(after_two.teacher, mean)  # then the limit is less than a plain average keeps


# --- a whole step against NumPy -------------------------------------------------------------------


def by_hand(config, data, state, batch, key, *, shift=0.0):
    """Loss terms of a step, row by row in NumPy; `shift` is added to the scores of mixed rows."""
    c = config.method
    network = network_lib.build(config, data.info, embedding_dim=0)
    keys = jax.random.split(key, 5)

    def run(params, x):
        outputs, _ = network.train_pass(params, state.batch_stats, jnp.asarray(x))
        return np.asarray(outputs.logits, np.float64)

    images = np.asarray(network.normalize(batch.inputs))
    picks = np.asarray(jax.random.randint(keys[2], [10], 0, len(state.pool_ids)))
    pool = np.asarray(network.normalize(state.pool_inputs))
    p = sigmoid(run(state.params, images[6:]))
    order = np.asarray(jax.random.permutation(keys[3], 16))
    share = float(jax.random.beta(keys[4], c.mixup_alpha, c.mixup_alpha))
    if c.mixup_alpha == 1:
        share = float(jax.random.uniform(keys[4], [1])[0])
    share = max(share, 1 - share)
    started = int(batch.epoch) >= c.start_hmix
    targets = np.r_[np.ones(6), np.zeros(10)]
    teacher = sigmoid(run(state.teacher, images)) if state.teacher else np.zeros(16)
    for row in range(10):
        if started and c.relabel and p[row] >= c.gamma:
            targets[6 + row] = 1
    mixed, other, mixed_targets, mixed_teacher = [], [], [], []
    ambiguous = 0
    for row in range(16):
        unsure = row >= 6 and started and 1 - c.gamma < p[row - 6] < c.gamma
        ambiguous += unsure
        if unsure:
            partner, target, opinion = pool[picks[row - 6]], 1.0, 1.0
        else:
            partner, target, opinion = (x[order[row]] for x in (images, targets, teacher))
        mixed.append(share * images[row] + (1 - share) * partner)
        other.append(partner)
        mixed_targets.append(share * targets[row] + (1 - share) * target)
        mixed_teacher.append(share * teacher[row] + (1 - share) * opinion)
    if c.mix_at == "input":
        scores = run(state.params, np.stack(mixed))
    else:
        own, partners = run(state.params, images), run(state.params, np.stack(other))
        scores = share * own + (1 - share) * partners
    q, t, e = (
        np.clip(sigmoid(scores + shift), 1e-4, 1 - 1e-4),
        np.array(mixed_targets),
        mixed_teacher,
    )
    cross = -t * np.log(q) - (1 - t) * np.log(1 - q)
    agreement = e * q + (1 - np.array(e)) * (1 - q)
    terms = {
        "loss_positive": cross[:6].mean(),
        "loss_unlabeled": cross[6:].mean(),
        "entropy": (-q * np.log(q) - (1 - q) * np.log(1 - q)).mean(),
        "ambiguous": ambiguous / 10,
        "relabeled": targets[6:].mean(),
    }
    loss = terms["loss_positive"] + c.unlabeled_weight * terms["loss_unlabeled"]
    loss += c.entropy_weight * terms["entropy"]
    if c.elr_weight:
        terms["loss_elr"] = np.log(1 - agreement).mean()
        loss += c.elr_weight * terms["loss_elr"]
    return terms | {"loss": loss}


def spread_out(config, data, state, batch):
    """The state with scores of U on both sides of the thresholds, and with another teacher."""
    network = network_lib.build(config, data.info, embedding_dim=0)
    unlabeled = network.normalize(batch.inputs)[6:]
    scores = network.train_pass(state.params, state.batch_stats, unlabeled)[0].logits
    head, scale = state.params["classifier"], 2 / jnp.std(scores)
    head = {"kernel": head["kernel"] * scale, "bias": (head["bias"] - jnp.mean(scores)) * scale}
    teacher = moved(state, 0.02).params if state.teacher else None
    return state._replace(params=state.params | {"classifier": head}, teacher=teacher)


@pytest.mark.parametrize("name", ["p3mix_e", "p3mix_c"])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        pytest.param({"mix_at": "features"}, marks=pytest.mark.thorough),
        pytest.param({"start_hmix": 3}, marks=pytest.mark.thorough),
        pytest.param(
            {"unlabeled_weight": 0.5, "entropy_weight": 0.7, "mixup_alpha": 0.3},
            marks=pytest.mark.thorough,
        ),
    ],
    ids=str,
)
def test_a_step_reports_the_terms_worked_out_by_hand(data, name, changes):
    config, method, arrays, state, batch = setup(data, name, **changes)
    state = method.stages[0].refresh(state, arrays, jax.random.key(0))
    state = spread_out(config, data, state, batch)
    key = jax.random.key(4)
    _, got = jax.jit(method.stages[0].step)(state, batch, key)
    wanted = by_hand(config, data, state, batch, key)
    assert set(got) == set(wanted)
    for term, number in wanted.items():
        np.testing.assert_allclose(got[term], number, rtol=2e-4, atol=1e-5, err_msg=term)
    if "start_hmix" in changes:
        assert wanted["ambiguous"] == wanted["relabeled"] == 0
    else:  # the example has examples of every kind
        assert 0 < wanted["ambiguous"] < 1
        assert (wanted["relabeled"] > 0) == (name == "p3mix_c")


def test_the_teacher_is_not_heard_before_it_follows_a_trained_network(data):
    config, method, arrays, state, batch = setup(data, "p3mix_e")
    stage, key = method.stages[0], jax.random.key(4)
    state = spread_out(config, data, stage.refresh(state, arrays, key), batch)
    start = config.method.ema_start
    for epoch, is_heard in ((0, False), (start, False), (start + 1, True)):
        early = batch._replace(stage_epoch=jnp.asarray(epoch, jnp.int32))
        metrics = jax.jit(stage.step)(state, early, key)[1]
        assert (float(metrics["loss_elr"]) != 0) == is_heard


def test_a_step_follows_the_loss_with_targets_and_partners_held_fixed(data):
    """The bias of the classifier shifts every mixed score; the teacher and `p` must not count."""
    config, method, arrays, state, batch = setup(data, "p3mix_e")
    stage, key = method.stages[0], jax.random.key(4)
    state = spread_out(config, data, stage.refresh(state, arrays, key), batch)
    after, _ = jax.jit(stage.step)(state, batch, key)
    before, now = (float(each.params["classifier"]["bias"][0]) for each in (state, after))
    ends = [by_hand(config, data, state, batch, key, shift=h)["loss"] for h in (1e-4, -1e-4)]
    slope = (ends[0] - ends[1]) / 2e-4
    assert abs(slope) > 0.01
    # float32 parameters of size 1 moved by 1e-3 * slope: three digits of the difference are left.
    np.testing.assert_allclose((before - now) / 1e-3, slope, rtol=1e-2, atol=2e-4)


def test_the_hidden_layer_is_mixed_by_mixing_logits(data):
    """The classifier layer on mixed features gives the same scores."""
    config, _, _, state, batch = setup(data)
    network = network_lib.build(config, data.info, embedding_dim=0)
    first = network.infer(state.params, state.batch_stats, batch.inputs)
    features = 0.7 * first.features + 0.3 * first.features[::-1]
    head = state.params["classifier"]
    wanted = features @ head["kernel"][:, 0] + head["bias"][0]
    got = 0.7 * first.logits + 0.3 * first.logits[::-1]
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-6)


def test_only_the_variant_with_early_learning_keeps_a_teacher(data):
    assert setup(data, "p3mix_c")[3].teacher is None
    assert jax.tree.leaves(setup(data, "p3mix_e")[3].teacher)


def test_published_values_of_the_two_variants():
    e, c = p3mix_e.default_config(), p3mix_c.default_config()
    assert (e.gamma, e.entropy_weight, e.elr_weight, e.relabel) == (0.85, 0.5, 5.0, False)
    assert (c.gamma, c.entropy_weight, c.elr_weight, c.relabel) == (0.8, 0.1, 0.0, True)
    for config in (e, c):
        assert (config.pool_size, config.start_hmix, config.mixup_alpha) == (96, 5, 1.0)
        assert (config.lr_schedule, config.lr_factor, config.lr_every) == ("step", 0.5, 20)
        _p3mix.check(config)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("gamma", 0.3),
        ("mix_at", "hidden"),
        ("mixup_alpha", 0.0),
        ("pool_size", 0),
        ("ema_decay", 1.5),
        ("elr_weight", -1.0),
        ("start_hmix", -1),
        ("batching", "joint"),
        ("positives_per_batch", 16),
    ],
)
def test_a_bad_setting_is_named(data, field, value):
    with pytest.raises(ValueError, match=f"method.{field} is {value!r}"):
        setup(data, **{field: value})


@pytest.mark.parametrize("variant", ["e", "c"])
def test_the_configuration_file_names_task_and_variant(variant):
    published = p3mix_file.get_config(f"variant={variant}")
    config = p3mix_file.get_config(f"task=mnist,variant={variant}")
    assert (config.data.num_validation, published.data.num_validation) == (500, 0)
    assert config.method.name == f"p3mix_{variant}" and config.data.source == "mnist"
    with pytest.raises(ValueError, match="variant"):
        p3mix_file.get_config("variant=x")
