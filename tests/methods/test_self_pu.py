"""Self-PU as a method: pools over epochs, losses of both students, teachers, calibration."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from pujax.configs import self_pu as self_pu_config
from pujax.data.batching import Batch
from pujax.methods import self_pu
from pujax.methods._common import network as network_lib
from pujax.methods.self_pu import self_paced
from pujax.methods.self_pu import train_step as self_pu_step
from pujax.training import config as config_lib
from pujax.training import method_setup, sharding, train_step
from tests import tiny

OPTIONS = {"hidden": (8,), "batch_norm": True}


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


def config(**changes):
    return tiny.config("self_pu", model="mlp", options=OPTIONS, **changes)


def build(data, **changes):
    """The method, its arrays on one device, and the state at the start of every stage."""
    made = method_setup.build(config(**changes), data, tiny.mesh())
    arrays = sharding.replicate(made.data.training_data(), tiny.mesh())
    states, state = {}, None
    for index, stage in enumerate(made.method.stages):
        key = jax.random.key(index)
        state = train_step.init_state(stage, key, state, arrays, tiny.mesh())
        states[stage.name] = state
    return made.method, arrays, states


def stage_of(method, name):
    return next(stage for stage in method.stages if stage.name == name)


def first_batch(stage, arrays, *, epoch=2) -> Batch:
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    return tiny.gather(arrays, plan, 0, epoch=epoch, step=0)


@pytest.fixture(scope="module")
def made(data):
    return build(data)


@pytest.fixture(scope="module")
def picked(made):
    """The state of the self-paced stage after its first picking."""
    method, arrays, states = made
    stage = stage_of(method, "self_paced")
    return stage.refresh(states["self_paced"], arrays, jax.random.key(7))


def test_published_schedule():
    chosen = self_pu_config.get_config("task=mnist")
    info = tiny.problem().info._replace(n_support=500, n_p=1000, n_u=59500)
    method = self_pu.build(config_lib.resolve(chosen), info)
    assert [(s.name, s.num_epochs) for s in method.stages] == [
        ("warmup", 10),
        ("self_paced", 40),
        ("settled_taught", 150),
    ]
    assert [s.batching.support_batch_size for s in method.stages] == [0, 256, 0]
    assert [s.refresh is not None for s in method.stages] == [False, True, False]
    assert {(s.batching.batch_size, s.batching.num_positives) for s in method.stages} == {(256, 4)}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"teacher_start": 2}, ["warmup", "self_paced", "self_paced_taught", "settled_taught"]),
        ({"teacher_start": 4}, ["warmup", "self_paced", "settled"]),
        ({"pick_start": 0, "pick_stop": 4, "teacher_start": 0}, ["self_paced_taught"]),
        ({"pick_start": 4, "pick_stop": 4, "teacher_start": 4}, ["warmup"]),
    ],
)
def test_phases_follow_the_thresholds(data, changes, names):
    method = method_setup.build(config(**changes), data, tiny.mesh()).method
    assert [stage.name for stage in method.stages] == names
    assert sum(stage.num_epochs for stage in method.stages) == 4


def test_a_support_set_is_drawn_only_where_it_is_used(data):
    small = data.info
    method = self_pu.build(config(support_batch_size=0), small)
    assert [s.batching.support_batch_size for s in method.stages] == [0, small.n_support, 0]
    method = self_pu.build(config(calibration_meta=False), small._replace(n_support=0))
    assert not any(s.batching.support_batch_size for s in method.stages)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pick_stop": 9}, "method.pick_stop is 9"),
        ({"pick_stop": 0}, "method.pick_stop is 0"),
        ({"teacher_start": 5}, "method.teacher_start is 5"),
        ({"pick_every": 0}, "method.pick_every is 0"),
        ({"clean_labeled": 1.0}, "method.clean_labeled is 1.0"),
        ({"pick_share": 1.0, "pick_ramp_epochs": 1}, "method.pick_share is 1.0"),
        ({"report": "both"}, "method.report is 'both'"),
        ({"meta_loss": "accuracy"}, "method.meta_loss is 'accuracy'"),
        ({"support_batch_size": 99}, "method.support_batch_size is 99"),
        ({"loss": "hinge"}, "method.loss is 'hinge'"),
        ({"calibration": "no"}, "method.calibration is 'no'"),
    ],
)
def test_settings_that_cannot_be_are_named(data, changes, message):
    with pytest.raises(ValueError, match=message):
        method_setup.build(config(**changes), data, tiny.mesh())


def test_calibration_without_a_support_set_names_the_field(data):
    with pytest.raises(ValueError, match="data.num_support is 0"):
        self_pu.build(config(), data.info._replace(n_support=0))


def ends_of_unlabeled(method_config, data, params, batch_stats, count):
    """Sets of ids with the lowest and highest scores of U, computed in one pass."""
    network = network_lib.build(method_config, data.info, embedding_dim=0)
    scores = np.asarray(jax.jit(network.infer)(params, batch_stats, data.inputs).logits)
    order = [i for i in np.argsort(scores, kind="stable") if not data.labeled[i]]
    return set(order[:count]), set(order[-count:])


def assert_pool(student, data, params, batch_stats, count):
    low, high = ends_of_unlabeled(config(), data, params, batch_stats, count)
    pool = np.asarray(student.pool)
    unlabeled = ~np.asarray(data.labeled)
    assert set(np.flatnonzero(pool == self_paced.NEGATIVE)) == low
    assert set(np.flatnonzero((pool == self_paced.POSITIVE) & unlabeled)) == high
    assert np.sum(pool[~unlabeled] == self_paced.POSITIVE) == data.info.n_p // 2


def test_each_student_picks_by_its_own_scores_and_ratio(data, picked):
    # 152 unlabeled, share 0.5, epoch 1 of 4, tops 0.4 and 0.6.
    for student, count in zip(picked.students, (7, 11), strict=True):
        assert_pool(student, data, student.params, student.batch_stats, count)


@pytest.mark.thorough
def test_each_student_picks_as_much_as_its_field_says(data):
    share = 1 - 27 / 40  # of 40 labelled 13, by a hair less in floating point
    method, arrays, states = build(data, pick_top_1=0.2, pick_top_2=0.9, clean_labeled=share)
    stage = stage_of(method, "self_paced")
    after = stage.refresh(states["self_paced"], arrays, jax.random.key(7))
    # 152 unlabeled, share 0.5, epoch 1 of 4: of 19 a fifth, and nine tenths.
    counts = [np.sum(student.pool == self_paced.NEGATIVE) for student in after.students]
    assert counts == [3, 17]
    for student in after.students:
        assert np.sum((np.asarray(student.pool) != self_paced.NOISY) & data.labeled) == 13


def test_priors_follow_the_pool(data, picked):
    n_u, total = data.info.n_u, data.info.n
    for student, count in zip(picked.students, (7, 11), strict=True):
        in_u = round(data.info.prior_unlabeled * n_u) - count
        left = n_u - 2 * count
        wanted = {
            "prior": (in_u + 20) / (left + 20),
            "unlabeled_prior": in_u / left,
            "unlabeled_weight": left / (left + 20),
        }
        assert {k: float(v) for k, v in student.noisy.items()} == pytest.approx(wanted, rel=1e-6)
        assert left + 20 == total - 2 * count - 20


def test_pools_are_replaced_and_not_accumulated(data, made, picked):
    """After the networks have changed their minds nothing of the first pool survives as such."""
    method, arrays, _ = made
    stage = stage_of(method, "self_paced")
    flipped = [
        s._replace(
            params=jax.tree.map(lambda x: x, s.params)
            | {"classifier": jax.tree.map(lambda x: -x, s.params["classifier"])}
        )
        for s in picked.students
    ]
    again = stage.refresh(picked._replace(students=tuple(flipped)), arrays, jax.random.key(9), 1)
    # Epoch 2 of 4: twice the share.
    for student, count in zip(again.students, (15, 22), strict=True):
        assert_pool(student, data, student.params, student.batch_stats, count)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("teacher_start", "due"),
    [(5, {"self_paced": [1, 3]}), (2, {"self_paced": [1], "self_paced_taught": [3]})],
)
def test_pools_stay_between_the_epochs_of_picking(data, teacher_start, due):
    """Also where teachers start between two epochs of picking."""
    method, arrays, states = build(
        data, num_epochs=6, pick_stop=5, pick_every=2, teacher_start=teacher_start
    )
    first, picks = 0, {name: [] for name in due}
    for stage in method.stages:
        state = states[stage.name]
        for epoch in range(stage.num_epochs):
            if stage.is_refreshed(epoch):
                after = stage.refresh(state, arrays, jax.random.key(0), epoch)
                if after is not state:
                    picks[stage.name].append(first + epoch)
                    # 152 unlabeled, share 0.5, top 0.4, and a ramp of 4 epochs.
                    lowest = np.asarray(after.students[0].pool) == self_paced.NEGATIVE
                    assert lowest.sum() == {1: 7, 3: 22}[first + epoch]
        first += stage.num_epochs
    assert picks == due


@pytest.mark.thorough
def test_active_teachers_rank_the_pool(data):
    method, arrays, states = build(data, teacher_start=1)
    state = states["self_paced_taught"]
    flipped = tuple(t._replace(params=jax.tree.map(lambda x: -x, t.params)) for t in state.teachers)
    stage = stage_of(method, "self_paced_taught")
    after = stage.refresh(state._replace(teachers=flipped), arrays, jax.random.key(0))
    for student, teacher, count in zip(after.students, flipped, (7, 11), strict=True):
        assert_pool(student, data, teacher.params, teacher.batch_stats, count)


def test_the_students_start_apart_and_the_teachers_as_their_students(made):
    _, _, states = made
    first, second = states["warmup"].students
    assert not np.array_equal(
        first.params["classifier"]["kernel"], second.params["classifier"]["kernel"]
    )
    assert states["self_paced"].teachers is None
    final = states["settled_taught"]
    for student, teacher in zip(final.students, final.teachers, strict=True):
        tiny.assert_same((student.params, student.batch_stats), tuple(teacher))


def student_with(pool):
    noisy = {"prior": 0.4, "unlabeled_prior": 0.3, "unlabeled_weight": 0.8}
    return self_pu_step.Student(None, None, None, jnp.asarray(pool, jnp.int8), noisy)


def batch_of(labeled, epoch=0):
    size = len(labeled)
    return Batch(
        jnp.int32(epoch),
        jnp.int32(0),
        jnp.float32(0),
        jnp.int32(0),  # a stage that begins here does not count anew
        jnp.float32(0),
        jnp.arange(size)[::-1],
        None,
        jnp.asarray(labeled, jnp.float32),
        None,
        None,
    )


def example(**changes):
    """Losses of seven rows worked out in NumPy beside those of the method."""
    scores = np.asarray([0.5, -1.0, 2.0, -0.3, 0.8, -2.0, 1.1])
    peer, teacher = scores + 0.4, scores * 0.5
    labeled = np.asarray([1, 1, 0, 0, 0, 0, 0])
    rows_pool = np.asarray([0, 2, 0, 1, 2, 0, 0])  # a labelled positive and two of U are clean
    weights = np.stack([np.linspace(1, 0.4, 7), np.linspace(0, 0.6, 7)], axis=1)
    chosen = config(consistency_weight=0.7, consistency_ramp_epochs=200, **changes).method
    got = self_pu_step.losses(
        chosen,
        student_with(rows_pool[::-1]),
        batch_of(labeled, epoch=50),
        *(jnp.asarray(x, jnp.float32) for x in (weights, scores, peer, teacher)),
    )
    p = 1 / (1 + np.exp(-scores))
    noisy = rows_pool == 0
    p_rows, u_rows = noisy & (labeled == 1), noisy & (labeled == 0)
    up, down = weights[:, 0] * (1 - p), weights[:, 0] * p
    positive = 0.4 * up[p_rows].mean()
    negative = 0.8 * (down[u_rows].mean() - 0.3 * down[p_rows].mean())
    assert negative > 0
    entropy = -p * np.log(p) - (1 - p) * np.log(1 - p)
    target = rows_pool == 2
    cross = -np.where(target, np.log(p), np.log(1 - p))
    q_peer, q_teacher = 1 / (1 + np.exp(-peer)), 1 / (1 + np.exp(-teacher))
    mutual = np.square(p - q_peer)[noisy].mean()
    ramp = 0.7 * np.exp(-5 * (1 - 50 / 200) ** 2)
    wanted = {
        "loss_risk": positive + negative,
        "loss_entropy": (weights[:, 1] * entropy)[noisy].mean(),
        "loss_clean": (entropy if chosen.soft_label else cross)[~noisy].sum() / 7,
        "loss_mutual": mutual if mutual < chosen.mutual_alpha * (positive + negative) else 0,
        "loss_consistency": ramp * np.square(p - q_teacher).mean(),
        "clean_share": 3 / 7,
    }
    noisy_terms = ("loss_risk", "loss_entropy", "loss_mutual")
    wanted["loss"] = (
        4 / 7 * sum(wanted[name] for name in noisy_terms)
        + wanted["loss_clean"]
        + wanted["loss_consistency"]
    )
    return {name: float(value) for name, value in got.items()}, wanted


@pytest.mark.thorough
@pytest.mark.parametrize("soft_label", [False, True])
@pytest.mark.parametrize("mutual_alpha", [0.001, 0.1])
def test_losses_by_hand(soft_label, mutual_alpha):
    got, wanted = example(soft_label=soft_label, mutual_alpha=mutual_alpha)
    assert got == pytest.approx(wanted, rel=1e-5)
    assert (got["loss_mutual"] > 0) == (mutual_alpha == 0.1)
    assert got["loss_consistency"] > 0  # a softmax over one output would give zero


@pytest.mark.thorough
def test_without_teachers_there_is_no_distillation():
    labeled, scores = np.asarray([1, 0, 0]), jnp.asarray([0.3, -0.2, 0.1])
    got = self_pu_step.losses(
        config().method,
        student_with([0, 0, 0]),
        batch_of(labeled),
        jnp.tile(jnp.asarray([1.0, 0.0]), (3, 1)),
        scores,
        scores + 1,
        None,
    )
    assert got["loss_mutual"] == got["loss_consistency"] == got["loss_clean"] == 0
    assert got["loss"] == got["loss_risk"]


@pytest.mark.thorough
def test_peers_and_teachers_are_constants_of_a_students_loss():
    labeled, scores = np.asarray([1, 0, 0]), jnp.asarray([0.3, -0.2, 0.1])

    def loss(scores, peer, teacher):
        return self_pu_step.losses(
            config(mutual_alpha=9.0).method,
            student_with([0, 0, 0]),
            batch_of(labeled),
            jnp.tile(jnp.asarray([1.0, 0.0]), (3, 1)),
            scores,
            peer,
            teacher,
        )["loss"]

    mine, peer, teacher = jax.grad(loss, (0, 1, 2))(scores, scores + 1, scores - 1)
    alone = jax.grad(loss)(scores, scores, scores)
    assert np.abs(mine - alone).min() > 1e-4
    np.testing.assert_array_equal(peer, 0)
    np.testing.assert_array_equal(teacher, 0)


FIRES = jnp.asarray([0.1, -0.4, -9.0, -8.0, -9.0, -7.0]), np.asarray([1, 1, 0, 0, 0, 0])


@pytest.mark.parametrize(
    "changes", [{"loss": "logistic"}, {"beta": 0.02}, {"gamma": 0.5}, {"ascent": False}], ids=str
)
def test_the_risk_of_noisy_rows_follows_its_settings_where_the_sign_rule_fires(changes):
    scores, labeled = FIRES
    student = student_with(np.zeros(6))

    def found(**changes):
        def of(scores):
            weights = jnp.tile(jnp.asarray([1.0, 0.0]), (6, 1))
            section = config(**changes).method
            given = section, student, batch_of(labeled), weights, scores, scores, None
            return self_pu_step.losses(*given)["loss_risk"]

        return jax.value_and_grad(of)(scores)

    def wanted(loss="sigmoid", **changes):
        function = {"sigmoid": risks.sigmoid_loss, "logistic": risks.logistic_loss}[loss]
        rule = student.noisy | changes
        return jax.value_and_grad(lambda g: risks.nnpu(g, labeled, loss=function, **rule))(scores)

    got, by_default = found(**changes), found()
    for x, y in zip(got, wanted(**changes), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-9)
    assert not all(np.allclose(x, y, rtol=1e-2) for x, y in zip(got, by_default, strict=True))


def test_the_noisy_set_has_the_priors_of_its_calibration(data):
    prior, section = data.info.prior, config(calibration="none").method
    numbers = self_pu._noisy_numbers(section, data.info, picked=0, picked_labeled=0)
    wanted = {"prior": prior, "unlabeled_prior": prior, "unlabeled_weight": 1.0}
    found = {name: float(value) for name, value in numbers.items()}
    assert found == pytest.approx(wanted, rel=1e-6)
    assert prior != data.info.prior_unlabeled


def test_before_anything_is_picked_a_step_is_that_of_nnpu_for_each_student(data, made):
    """Two nnPU classifiers on the same batch, each with its own first parameters."""
    method, arrays, states = made
    stage, state = stage_of(method, "warmup"), states["warmup"]
    batch = first_batch(stage, arrays, epoch=0)
    after, _ = jax.jit(stage.step)(state, batch, jax.random.key(0))
    plain = method_setup.build(
        tiny.config(
            "nnpu",
            model="mlp",
            options=OPTIONS,
            lr_schedule="cosine",
            lr_floor=0.0,
            batching="separate",
        ),
        data,
        tiny.mesh(),
    ).method.stages[0]
    start = plain.init(jax.random.key(0), None, arrays)
    step = jax.jit(plain.step)
    for before, student in zip(state.students, after.students, strict=True):
        begun = start._replace(
            params=before.params, batch_stats=before.batch_stats, opt_state=before.opt_state
        )
        wanted, _ = step(begun, batch, jax.random.key(0))
        for a, b in zip(
            jax.tree.leaves((student.params, student.batch_stats)),
            jax.tree.leaves((wanted.params, wanted.batch_stats)),
            strict=True,
        ):
            np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)  # float32, Adam's first step


@pytest.fixture(scope="module")
def weights(made, picked):
    """Weights of the first student on the first batch of the self-paced stage."""
    method, arrays, _ = made
    batch = first_batch(stage_of(method, "self_paced"), arrays)
    return batch, weights_of(picked, batch)


@functools.cache
def weigher(**changes):
    """`(student, batch) -> [batch, 2]`, compiled once for every configuration."""
    chosen = config(**changes)
    network = network_lib.build(chosen, tiny.problem().info, embedding_dim=0)

    @jax.jit
    def weigh(student, batch):
        images = network.normalize(batch.inputs)
        return self_pu_step.learned_weights(chosen.method, network, student, images, batch)

    return weigh


def weights_of(state, batch, **changes):
    return np.asarray(weigher(**changes)(state.students[0], batch))


def test_only_noisy_unlabeled_examples_get_an_entropy_weight(picked, weights):
    batch, got = weights
    rows = np.asarray(picked.students[0].pool[batch.ids]) == self_paced.NOISY
    unlabeled = np.asarray(batch.labeled) == 0
    assert not rows.all()
    np.testing.assert_allclose(got.sum(axis=1), 1, rtol=1e-6)
    assert (got[~(rows & unlabeled), 1] == 0).all()
    assert got[rows & unlabeled, 1].max() > 0


def test_the_budget_is_a_share_of_the_noisy_rows(picked, weights):
    batch, got = weights
    rows = np.asarray(picked.students[0].pool[batch.ids]) == self_paced.NOISY
    free = weights_of(picked, batch, entropy_budget=1.0)[:, 1]
    before = np.concatenate([[0], np.cumsum(free)[:-1]])
    np.testing.assert_allclose(got[:, 1], free * (before < rows.sum() / 16), atol=1e-6)
    assert (free > got[:, 1]).any()  # the budget was short
    # The last that could get one comes just too late, and not if the whole batch counted.
    last = np.flatnonzero(free > 0)[-1]
    short = 0.999 * float(before[last]) / rows.sum()
    assert 0 < before[last] < short * len(rows)
    assert weights_of(picked, batch, entropy_budget=short)[last, 1] == 0


@pytest.mark.parametrize("meta_loss", ["entropy", "cross_entropy"])
def test_calibration_sees_the_support_set_and_its_labels_only_if_told_to(
    picked, weights, monkeypatch, meta_loss
):
    # The gradients themselves: of the weights, most are 0 or 1 and few signs differ.
    monkeypatch.setattr(self_paced, "allot", lambda gradient, **_: gradient)
    weigh = weigher.__wrapped__(meta_loss=meta_loss)
    batch, _ = weights
    changed = {
        "inputs": batch._replace(support_inputs=batch.inputs[:8] // 2),
        "labels": batch._replace(support_labels=1 - batch.support_labels),
    }
    first = weigh(picked.students[0], batch)
    differs = {
        name: not np.allclose(weigh(picked.students[0], other), first, rtol=1e-2, atol=0)
        for name, other in changed.items()
    }
    assert differs == {"inputs": True, "labels": meta_loss == "cross_entropy"}


def test_an_entropy_weight_follows_the_slope_of_its_entropy_along_the_clean_loss(
    data, picked, weights, monkeypatch
):
    monkeypatch.setattr(self_paced, "allot", lambda gradient, **_: gradient)
    batch, _ = weights
    # Without batch norm, which would hide how inputs are scaled.
    options = {"hidden": (8,), "batch_norm": False}
    chosen = tiny.config("self_pu", model="mlp", options=options, meta_loss="cross_entropy")
    network = network_lib.build(chosen, data.info, embedding_dim=0)
    params, stats = network.init(jax.random.key(0), data.inputs[:2])
    student = picked.students[0]._replace(params=params, batch_stats=stats)
    weigh = functools.partial(self_pu_step.learned_weights, chosen.method, network)
    got = jax.jit(weigh)(student, network.normalize(batch.inputs), batch)

    def scores(params, images):
        images = (jnp.asarray(images, jnp.float32) / 255 - 0.6) / 0.3
        return network.train_pass(params, student.batch_stats, images)[0].logits

    def clean(params):
        sign = 2 * batch.support_labels - 1
        return jnp.mean(jax.nn.softplus(-sign * scores(params, batch.support_inputs)))

    def entropies(params):
        z = scores(params, batch.inputs)
        p = jax.nn.sigmoid(z)
        return p * jax.nn.softplus(-z) + (1 - p) * jax.nn.softplus(z)

    rows = np.asarray(student.pool[batch.ids]) == self_paced.NOISY

    @jax.jit
    def slopes(params):
        return jax.jvp(entropies, (params,), (jax.grad(clean)(params),))[1]

    wanted = -1e-3 * np.where(rows, slopes(student.params), 0) / rows.sum()
    np.testing.assert_allclose(got[:, 1], wanted, rtol=1e-3, atol=1e-3 * np.abs(wanted).max())


@pytest.mark.thorough
def test_calibration_sends_no_gradient_into_the_step(made, picked, weights, monkeypatch):
    """With the weights put in as constants, the step is the same step."""
    method, arrays, _ = made
    stage = stage_of(method, "self_paced")
    batch, _ = weights
    after, metrics = jax.jit(stage.step)(picked, batch, jax.random.key(0))
    assert metrics["loss_entropy"] > 0
    constants = [np.asarray(weigher()(student, batch)) for student in picked.students]
    calls = iter(constants)
    monkeypatch.setattr(self_pu_step, "learned_weights", lambda *_: jnp.asarray(next(calls)))
    again, _ = jax.jit(lambda *a: stage.step(*a))(picked, batch, jax.random.key(0))
    for a, b in zip(jax.tree.leaves(after), jax.tree.leaves(again), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.thorough
def test_the_cheap_version_differs_only_in_the_weights(data, made, picked, weights):
    batch, _ = weights
    cheap, _, _ = build(data, calibration_meta=False)
    stage = stage_of(cheap, "self_paced")
    _, metrics = jax.jit(stage.step)(picked, batch, jax.random.key(0))
    _, full = jax.jit(stage_of(made[0], "self_paced").step)(picked, batch, jax.random.key(0))
    assert metrics["loss_entropy"] == 0 and full["loss_entropy"] > 0
    assert float(metrics["loss_clean"]) == pytest.approx(float(full["loss_clean"]), rel=1e-5)
    assert float(metrics["loss_risk"]) != pytest.approx(float(full["loss_risk"]), rel=1e-3)


@pytest.mark.thorough
def test_teachers_are_moving_averages_of_their_students(data):
    # So small that the second update is none of a plain mean any more.
    method, arrays, states = build(data, teacher_decay=0.25)
    stage, state = stage_of(method, "settled_taught"), states["settled_taught"]
    step = jax.jit(stage.step)
    network = network_lib.build(config(), data.info, embedding_dim=0)
    for count in range(3):
        batch = first_batch(stage, arrays, epoch=3)
        after, metrics = step(state, batch, jax.random.key(count))
        # Statistics are those of the teacher's own pass.
        _, stats = network.train_pass(*state.teachers[0], network.normalize(batch.inputs))
        for a, b in zip(
            jax.tree.leaves(after.teachers[0].batch_stats), jax.tree.leaves(stats), strict=True
        ):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        decay = 0.25 if count else 0.0  # the first update copies
        for old, student, teacher in zip(
            state.teachers, after.students, after.teachers, strict=True
        ):
            wanted = jax.tree.map(
                lambda a, b, decay=decay: decay * a + (1 - decay) * b, old.params, student.params
            )
            for a, b in zip(jax.tree.leaves(teacher.params), jax.tree.leaves(wanted), strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)
        assert int(after.updates) == count + 1
        state = after
    assert metrics["loss_consistency"] > 0  # the teachers lag behind by now


@pytest.mark.thorough
def test_a_student_learns_from_the_other_student_and_from_its_own_teacher(data):
    method, arrays, states = build(data, mutual_alpha=9.0, consistency_ramp_epochs=1)
    stage, state = stage_of(method, "settled_taught"), states["settled_taught"]
    # Teachers that differ from their students, and not both in the same way.
    teachers = tuple(
        teacher._replace(params=jax.tree.map(lambda x, s=scale: s * x, teacher.params))
        for teacher, scale in zip(state.teachers, (0.5, -2.0), strict=True)
    )
    batch = first_batch(stage, arrays, epoch=3)
    _, metrics = jax.jit(stage.step)(state._replace(teachers=teachers), batch, jax.random.key(0))
    network = network_lib.build(config(), data.info, embedding_dim=0)
    images = network.normalize(batch.inputs)

    def probability(part):
        scores = network.train_pass(part.params, part.batch_stats, images)[0].logits
        return 1 / (1 + np.exp(-np.asarray(scores, np.float64)))

    first, second, *taught = map(probability, (*state.students, *teachers))
    assert metrics["clean_share"] == 0  # all rows count
    np.testing.assert_allclose(metrics["loss_mutual"], np.mean((first - second) ** 2), rtol=1e-4)
    apart = np.stack([first - taught[0], second - taught[1]])
    np.testing.assert_allclose(metrics["loss_consistency"], 0.3 * np.mean(apart**2), rtol=1e-4)


@pytest.mark.parametrize("report", ["student_1", "student_2", "teacher_1", "teacher_2"])
def test_the_reported_network_predicts(data, report):
    method, arrays, states = build(data, report=report)
    kind, index = report.split("_")[0], int(report[-1]) - 1
    network = network_lib.build(config(), data.info, embedding_dim=0)
    final = states["settled_taught"]
    # Teachers that differ from their students.
    teachers = tuple(
        t._replace(params=jax.tree.map(lambda x: x + 0.1, t.params)) for t in final.teachers
    )
    final = final._replace(teachers=teachers)
    inputs = arrays.inputs[:5]
    for state, networks in (
        (states["warmup"], states["warmup"].students),
        (final, final.students if kind == "student" else teachers),
    ):
        chosen = networks[index]
        wanted = network.infer(chosen.params, chosen.batch_stats, inputs)
        np.testing.assert_allclose(method.predict(state, inputs), wanted.logits, rtol=1e-6)
        np.testing.assert_allclose(method.embed(state, inputs), wanted.features, rtol=1e-6)


@pytest.mark.parametrize(
    ("argument", "source", "model"),
    [("", "mnist", "mlp"), ("task=cifar10-1,calibration=off", "cifar10", "cnn13")],
)
def test_config_file_has_the_published_setup(argument, source, model):
    chosen = config_lib.resolve(self_pu_config.get_config(argument))
    assert (chosen.data.source, chosen.model.name) == (source, model)
    assert (chosen.data.setting, chosen.data.num_labeled) == ("two_sample", 1000)
    # Clean images are kept apart only where the weights of examples are learned on them.
    assert chosen.data.num_support == (0 if "off" in argument else 500)
    m = chosen.method
    assert m.soft_label
    assert (m.optimizer, m.learning_rate, m.weight_decay) == ("adam", 5e-4, 5e-3)
    assert (m.batch_size, m.num_epochs, m.lr_schedule) == (256, 200, "cosine")
    assert m.calibration_meta == ("off" not in argument)
