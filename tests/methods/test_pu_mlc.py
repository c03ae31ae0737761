"""PU-MLC's step: two passes, their loss and its gradient, against NumPy on a linear network."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import methods, risks
from pujax.methods import pu_mlc
from pujax.methods._common import network as network_lib
from pujax.training import method_setup, seed_axis, sharding, train_step
from pujax.training.evaluation import multilabel
from tests import tiny

EPSILON = 1e-10
LINEAR = {"model": "mlp", "options": {"hidden": ()}, "flip": False}
FIXED = LINEAR | {"gamma": 0.5}


@pytest.fixture(scope="module")
def data():
    return tiny.multilabel_problem(known_ratio=0.6)


def setup(data, **changes):
    """The method, its arrays, state at the start and first batch; of images, without a view."""
    config = tiny.config("pu_mlc", **(LINEAR | changes))
    method = method_setup.build(config, data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    (stage,) = method.stages
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, tiny.mesh())
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    batch = tiny.gather(arrays, plan, 0, epoch=0, step=0)
    assert {-1, 0, 1} == set(np.unique(batch.labeled))
    return method, arrays, state, batch


def rows_of(data, batch):
    """Normalised rows of a batch in float64."""
    pixels = np.asarray(batch.inputs, np.float64) / 255
    return ((pixels - data.info.mean) / data.info.std).reshape(len(pixels), -1)


def draws(batch, key, *, num_groups=1, alpha=0.3):
    """The permutations and shares that a step with this key draws."""
    objective_key = jax.random.split(key)[1]
    images = jnp.zeros([num_groups, len(batch.ids) // num_groups, 1])
    _, permutations, shares = pu_mlc.mix_halves(objective_key, images, alpha=alpha)
    return np.asarray(permutations), np.asarray(shares, np.float64)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def variational(scores, known, *, gamma, alpha):
    """Value and gradient, section 2.2 of the specification."""
    temperature = np.clip(alpha * scores.std(0), 1e-6, 1)
    q = sigmoid(scores / temperature)
    share, count = q.mean(0), np.maximum(known.sum(0), 1)
    factor = share**gamma
    value = factor * np.log(share + 2 * EPSILON)
    value -= (known * np.log(q + 2 * EPSILON)).sum(0) / count
    pushed = factor / (len(scores) * (share + 2 * EPSILON))
    gradient = q * (1 - q) / temperature * (pushed - known / (count * (q + 2 * EPSILON)))
    return value.sum(), gradient


def consistency(scores, known, mixed, permutation, share):
    """Value and both gradients, section 2.3: the targets are not detached."""
    half = len(scores) // 2
    soft = np.where(known, 1, sigmoid(scores) + EPSILON)
    target = share * soft[:half][permutation] + (1 - share) * soft[-half:]
    q = sigmoid(mixed)
    gap = np.log(target + EPSILON) - np.log(q + EPSILON)
    by_mixed = -2 * gap / half * q * (1 - q) / (q + EPSILON)
    by_target = 2 * gap / half / (target + EPSILON)
    by_scores = np.zeros_like(scores)
    by_scores[permutation] += share * by_target
    by_scores[-half:] += (1 - share) * by_target
    slope = sigmoid(scores) * (1 - sigmoid(scores))
    return (gap**2).mean(0).sum(), np.where(known, 0, by_scores * slope), by_mixed


@pytest.mark.parametrize("detach", [False, True])
def test_two_steps_equal_two_worked_out_in_numpy(data, detach):
    rate, decay, weight = 0.01, 0.1, 0.7
    method, _, state, batch = setup(
        data,
        **{"gamma": 0.8, "alpha": 2.0, "mixup_weight": weight, "detach_targets": detach},
        **{"optimizer": "sgd", "momentum": 0.5, "learning_rate": rate, "weight_decay": decay},
    )
    step = jax.jit(method.stages[0].step)
    rows, known = rows_of(data, batch), np.asarray(batch.labeled) == 1
    kernel, bias = (
        np.asarray(state.method.params["classifier"][k], np.float64) for k in ("kernel", "bias")
    )
    moment_kernel, moment_bias = 0.0, 0.0
    for seed in (5, 6):
        key = jax.random.key(seed)
        (order,), (share,) = draws(batch, key)
        scores = rows @ kernel + bias
        mixed_rows = share * rows[:8][order] + (1 - share) * rows[8:]
        plain, by_scores = variational(scores, known, gamma=0.8, alpha=2.0)
        gap, by_targets, by_mixed = consistency(
            scores, known, mixed_rows @ kernel + bias, order, share
        )
        by_scores = by_scores + (0 if detach else weight * by_targets)
        by_mixed = weight * by_mixed
        state, metrics = step(state, batch, key)
        # The network computes in float32.
        np.testing.assert_allclose(metrics["loss_variational"], plain, rtol=1e-4)
        np.testing.assert_allclose(metrics["loss_mixup"], gap, rtol=1e-4)
        np.testing.assert_allclose(metrics["loss"], plain + weight * gap, rtol=1e-4)
        moment_kernel = 0.5 * moment_kernel + rows.T @ by_scores + mixed_rows.T @ by_mixed
        moment_kernel = moment_kernel + decay * kernel
        moment_bias = 0.5 * moment_bias + by_scores.sum(0) + by_mixed.sum(0) + decay * bias
        kernel, bias = kernel - rate * moment_kernel, bias - rate * moment_bias
        found = state.method.params["classifier"]
        np.testing.assert_allclose(found["kernel"], kernel, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(found["bias"], bias, rtol=1e-3, atol=1e-5)


def test_a_step_draws_its_share_with_the_parameter_of_the_method(data):
    method, _, state, batch = setup(data, gamma=0.5, mixup_alpha=2.0)
    key = jax.random.key(5)
    _, metrics = jax.jit(method.stages[0].step)(state, batch, key)
    (order,), (share,) = draws(batch, key, alpha=2.0)
    head = jax.tree.map(np.asarray, state.method.params["classifier"])
    rows, known = rows_of(data, batch), np.asarray(batch.labeled) == 1
    mixed = share * rows[:8][order] + (1 - share) * rows[8:]
    scores, mixed_scores = (x @ head["kernel"] + head["bias"] for x in (rows, mixed))
    gap, _, _ = consistency(scores, known, mixed_scores, order, share)
    np.testing.assert_allclose(metrics["loss_mixup"], gap, rtol=1e-4)


@pytest.mark.thorough
def test_both_passes_move_the_running_statistics(data):
    changes = {"options": {"hidden": (4,), "batch_norm": True}, "gamma": 0.5}
    method, _, state, batch = setup(data, **changes)
    key = jax.random.key(5)
    after, _ = jax.jit(method.stages[0].step)(state, batch, key)
    network = network_lib.build_multilabel(tiny.config("pu_mlc", **(LINEAR | changes)), data.info)
    rows = network.normalize(batch.inputs)
    (order,), (share,) = draws(batch, key)

    @jax.jit
    def by_hand():
        batch_stats = state.method.batch_stats
        for images in (rows, share * rows[:8][order] + (1 - share) * rows[8:]):
            _, batch_stats = network.train_pass(state.method.params, batch_stats, images)
        return batch_stats

    pairs = zip(*map(jax.tree.leaves, (after.method.batch_stats, by_hand())), strict=True)
    for got, due in pairs:
        np.testing.assert_allclose(got, due, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_halves_of_a_group_are_mixed_as_specified():
    images = jnp.arange(2 * 7 * 3, dtype=jnp.float32).reshape(2, 7, 3) ** 1.5
    mixed, permutations, shares = pu_mlc.mix_halves(jax.random.key(4), images, alpha=0.3)
    assert mixed.shape == (2, 3, 3) and shares.shape == (2,)
    assert shares[0] != shares[1] and ((shares >= 0) & (shares <= 1)).all()
    for group in range(2):
        np.testing.assert_array_equal(np.sort(permutations[group]), np.arange(3))
        for row in range(3):  # of seven rows the fourth is unused
            first, last = images[group, permutations[group, row]], images[group, 4 + row]
            wanted = shares[group] * first + (1 - shares[group]) * last
            np.testing.assert_allclose(mixed[group, row], wanted, rtol=1e-6)


@pytest.mark.thorough
def test_shares_follow_the_beta_distribution():
    _, _, shares = pu_mlc.mix_halves(jax.random.key(0), jnp.zeros([4000, 2, 1]), alpha=0.3)
    # Beta(a, a) has mean 1/2 and variance 1 / (4 (2 a + 1)); four standard errors.
    assert abs(shares.mean() - 0.5) < 4 * 0.4 / 4000**0.5
    np.testing.assert_allclose(shares.var(), 1 / (4 * 1.6), rtol=0.05)


@pytest.mark.thorough
def test_groups_of_a_batch_keep_statistics_of_their_own(data):
    options = {"gamma": 0.6, "alpha": 1.5, "num_groups": 2}
    method, _, state, batch = setup(data, **options)
    key = jax.random.key(5)
    _, metrics = jax.jit(method.stages[0].step)(state, batch, key)
    permutations, shares = draws(batch, key, num_groups=2)
    found = state.method.params["classifier"]
    rows, known = rows_of(data, batch), np.asarray(batch.labeled) == 1
    parts = []
    for group, rows_here in enumerate((slice(0, 8), slice(8, 16))):
        x, p, order, share = rows[rows_here], known[rows_here], permutations[group], shares[group]
        scores = x @ found["kernel"] + found["bias"]
        mixed = (share * x[:4][order] + (1 - share) * x[4:]) @ found["kernel"] + found["bias"]
        parts.append(
            [
                variational(scores, p, gamma=0.6, alpha=1.5)[0],
                consistency(scores, p, mixed, order, share)[0],
            ]
        )
    wanted = np.mean(parts, axis=0)
    np.testing.assert_allclose(metrics["loss_variational"], wanted[0], rtol=1e-4)
    np.testing.assert_allclose(metrics["loss_mixup"], wanted[1], rtol=1e-4)
    scores = rows @ found["kernel"] + found["bias"]
    whole = variational(scores, known, gamma=0.6, alpha=1.5)[0]
    assert abs(whole - wanted[0]) > 0.01 * abs(whole)


@pytest.mark.thorough
def test_alpha_0_is_temperature_1(data):
    method, _, state, batch = setup(data, alpha=0.0, gamma=0.0, mixup_weight=0.0)
    _, metrics = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
    found = state.method.params["classifier"]
    scores = rows_of(data, batch) @ found["kernel"] + found["bias"]
    wanted = risks.multilabel_vpu(jnp.asarray(scores), np.asarray(batch.labeled))
    np.testing.assert_allclose(metrics["loss"], wanted, rtol=1e-4)


def test_without_mixup_there_is_no_second_pass(data):
    def products(**changes):
        method, _, state, batch = setup(data, options={"hidden": (4,)}, **changes)
        step = jax.make_jaxpr(method.stages[0].step)(state, batch, jax.random.key(0))
        _, metrics = jax.eval_shape(method.stages[0].step, state, batch, jax.random.key(0))
        return str(step).count("dot_general["), set(metrics)

    with_mixup, names = products()
    without, fewer = products(mixup_weight=0.0)
    assert (without, with_mixup) == (5, 10)  # two products forward, three backward
    assert names - fewer == {"loss_mixup"} and fewer == {"loss", "loss_variational"}


@pytest.mark.thorough
def test_known_negatives_are_thrown_away(data):
    config = tiny.config("pu_mlc", **FIXED)
    forgotten = data._replace(labeled=np.maximum(data.labeled, 0))
    assert (data.labeled < 0).any()
    carries = [tiny.train_steps(config, each, steps=3)[1] for each in (data, forgotten)]
    for a, b in zip(*map(jax.tree.leaves, carries), strict=True):
        np.testing.assert_array_equal(a, b)


def labels_of(*, positives, negatives, rows):
    """Labels of two classes with so many known ones in each."""
    labeled = np.zeros([rows, 2], np.int8)
    for column, (p, n) in enumerate(zip(positives, negatives, strict=True)):
        labeled[:p, column], labeled[p : p + n, column] = 1, -1
    return labeled


def auto(labeled, **changes):
    return pu_mlc.from_labels(tiny.config("pu_mlc", gamma="auto", **changes).method, labeled)


def test_gamma_is_counted_over_all_known_labels():
    # 16 of 80 labels are known, of whatever sign and class.
    cube = near(0.8**3)
    assert auto(labels_of(positives=(3, 1), negatives=(5, 7), rows=40)) == {"gamma": cube}
    assert auto(labels_of(positives=(8, 0), negatives=(0, 8), rows=40)) == {"gamma": cube}
    # Where positives alone are known, they are what is counted.
    assert auto(labels_of(positives=(4, 1), negatives=(0, 0), rows=10)) == {"gamma": near(0.75**3)}
    everything = labels_of(positives=(40, 1), negatives=(1133, 1172), rows=1173)
    assert auto(everything) == {"gamma": 0}
    assert auto(np.zeros([1173, 2], np.int8)) == {"gamma": 1}
    assert pu_mlc.from_labels(tiny.config("pu_mlc", gamma=0.3).method, everything) == {}


def test_gamma_by_the_rule_is_warned_of_where_hardly_any_negative_is_known(data):
    def said(negatives, **changes):
        config = tiny.config("pu_mlc", **{"gamma": "auto"} | changes)
        labeled = labels_of(positives=(18, 2), negatives=negatives, rows=40)
        return methods.label_warnings(config, labeled)

    for few in ((0, 0), (0, 1)):
        (sentence,) = said(few)
        assert f"negatives are {sum(few)}, known positives 20, but method.gamma=auto" in sentence
        assert said(few, gamma=0.5) == []
    assert said((0, 2)) == []
    config = tiny.config("pu_mlc", gamma="auto")
    assert "supposes" not in multilabel.describe(config, data, "cpu")
    forgotten = data._replace(labeled=np.maximum(data.labeled, 0))
    assert "set method.gamma to a number" in multilabel.describe(config, forgotten, "cpu")


def test_gamma_is_zero_to_the_last_bit_where_all_is_known():
    """Also where XLA multiplies by a rounded 1 / 2346, as it does but with the tests' own flags."""
    everything = labels_of(positives=(40, 1), negatives=(1133, 1172), rows=1173)
    numbers_of = pu_mlc._numbers_of.lower(everything)
    numbers_of = numbers_of.compile(compiler_options={"xla_backend_optimization_level": 2})
    assert numbers_of(everything).gamma == 0 and numbers_of(everything).known_share == 1


def near(value):
    return pytest.approx(value, rel=1e-6)


@pytest.mark.thorough
def test_gamma_by_the_rule_is_the_same_step_as_the_number(data):
    found = auto(data.labeled)["gamma"]
    assert 0.05 < found < 0.6
    key, losses = jax.random.key(5), []
    for gamma in ("auto", found, 0.9):
        method, _, state, batch = setup(data, gamma=gamma)
        assert (state.method.constants is None) == (gamma != "auto")
        _, metrics = jax.jit(method.stages[0].step)(state, batch, key)
        losses.append(float(metrics["loss_variational"]))
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)
    assert abs(losses[0] - losses[2]) > 1e-3


def test_seeds_that_know_other_labels_are_one_program():
    methods, arrays = [], None
    for seed in (0, 1):
        data = tiny.multilabel_problem(seed, known_ratio=0.6)
        config = tiny.config("pu_mlc", **LINEAR, gamma="auto", known_negatives=True)
        methods.append(pu_mlc.build(config, data.info))
        arrays = data.training_data()
    first, second = seed_axis.share_methods(methods, arrays)
    assert first.stages[0].step is second.stages[0].step
    assert first.stages[0].init is second.stages[0].init


@pytest.mark.parametrize("groups", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_known_labels_enter_the_loss_as_in_numpy(data, groups):
    options = {"gamma": 0.6, "alpha": 1.5, "known_negatives": True, "num_groups": groups}
    method, _, state, batch = setup(data, **options, mixup_weight=0.7)
    _, metrics = jax.jit(method.stages[0].step)(state, batch, jax.random.key(5))
    found = state.method.params["classifier"]
    scores = rows_of(data, batch) @ found["kernel"] + found["bias"]
    known = np.asarray(batch.labeled)
    share = (data.labeled == 1).sum(0) / (data.labeled != 0).sum(0)
    ratio = (data.labeled != 0).mean()
    plain, told = [], []
    for s, t in zip(np.split(scores, groups), np.split(known, groups), strict=True):
        plain.append(variational(s, t == 1, gamma=0.6, alpha=1.5)[0])
        entropy = np.where(t != 0, np.log1p(np.exp(-np.where(t == 1, 1, -1) * s)), 0)
        told.append((entropy.mean(0) / share).sum())
    plain, told = np.mean(plain), np.mean(told)
    np.testing.assert_allclose(metrics["loss_variational"], plain, rtol=1e-4)
    np.testing.assert_allclose(metrics["loss_known"], told, rtol=1e-4)
    whole = (1 - ratio) * plain + told + 0.7 * float(metrics["loss_mixup"])
    np.testing.assert_allclose(metrics["loss"], whole, rtol=1e-4)


def test_known_negatives_are_refused_where_there_are_none(data):
    forgotten = data._replace(labeled=np.maximum(data.labeled, 0))
    config = tiny.config("pu_mlc", **LINEAR, known_negatives=True)
    method_setup.build(config, data, tiny.mesh())
    with pytest.raises(ValueError, match=r"method.known_negatives is True; accepted: False, since"):
        method_setup.build(config, forgotten, tiny.mesh())


@pytest.mark.parametrize(
    ("field", "value", "accepted"),
    [
        ("gamma", -0.1, r"'auto', or a number in \[0, inf\)"),
        ("alpha", -1.0, ""),
        ("mixup_weight", -1.0, ""),
        ("mixup_alpha", 0.0, ""),
        ("num_groups", 0, ""),
        ("num_groups", 3, "a divisor of method.batch_size=16"),
        ("num_groups", 16, "that leaves 2 rows or more"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(data, field, value, accepted):
    with pytest.raises(ValueError, match=f"method.{field} is {value!r}; accepted.*{accepted}"):
        pu_mlc.build(tiny.config("pu_mlc", **(LINEAR | {field: value})), data.info)
