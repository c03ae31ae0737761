"""Scalars and weights of examples that a method learns while it trains."""

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax import meta, methods
from pujax.data import dataset
from pujax.data.sources import digits
from pujax.methods import nnpu
from pujax.methods._common import classifier, online
from pujax.methods.self_pu import self_paced
from pujax.models import mlp
from pujax.training import train_step
from tests import tiny

OPTIONS = {"hidden": (8, 8), "batch_norm": False}
RATE = 0.1  # of virtual steps, and of plain training steps that are to equal them


def config(name, **changes):
    changes = {"online_batch_size": 8, "batch_size": 32} | changes
    return tiny.config(name, model="mlp", options=OPTIONS, **changes)


def plain(name, **changes):
    """Training by plain gradient steps of the size of virtual ones."""
    steps = {"optimizer": "sgd", "momentum": 0.0, "weight_decay": 0.0, "learning_rate": RATE}
    steps |= {"lr_schedule": "constant", "online_virtual_rate": RATE, "online_trainable": "all"}
    if name == "dist_pu":
        steps |= {"warmup_epochs": 0}
    return config(name, **(steps | {"online_optimizer": "sgd"} | changes))


def first_batch(trainer):
    """The stage, its first state and batch, and a key."""
    key, arrays, stage = jax.random.key(3), trainer.arrays, trainer.method.stages[0]
    state = train_step.init_state(stage, key, None, arrays, trainer.mesh)
    plan = train_step.epoch_plan(stage, key, 0, arrays)
    return stage, state, tiny.gather(arrays, plan, 0, epoch=2, step=0), key


def with_values(state, values):
    return state._replace(learned=state.learned._replace(values=values))


LEARNED = {
    "nnpu": "prior,temperature,augmentation",
    "upu": "prior",
    "imbalanced_nnpu": "prior,target_prior",
    "weighted_bce": "positive_weight",
    "vpu": "mixup_weight",
    "gradpu": "alpha",
    "dist_pu": "mixup_weight,entropy_weight,mixed_entropy_weight",
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    # uPU and imbalanced nnPU hand their scalars to the risk that nnPU does.
    [
        pytest.param(x, marks=pytest.mark.slow if x in ("upu", "imbalanced_nnpu") else ())
        for x in LEARNED
    ],
)
def test_a_step_is_the_derivative_of_the_support_loss_after_a_step_of_training(name, monkeypatch):
    """Against central differences, whose points are parameters after training steps."""
    # Smooth: a gradient of ReLU units jumps where one is switched on, which no derivative sees.
    monkeypatch.setattr(mlp.nn, "relu", jnp.tanh)
    changes = {"online": LEARNED[name], "augment": name == "nnpu"}
    if name == "dist_pu":
        changes |= {"num_epochs": 4}
    data = tiny.problem()
    # At a step size of 1e-30 the scalars stay, and the training step is the virtual one.
    moving, still = (
        tiny.Trainer(plain(name, online_learning_rate=rate, **changes), data)
        for rate in (1.0, 1e-30)
    )
    stage, state, batch, key = first_batch(moving)
    start, scalars = state.learned.values, stage_scalars(name)
    if name == "nnpu":  # away from the edge of its range
        start = start | {"augmentation": jnp.float32(0.4)}
        state = with_values(state, start)
    moved, _ = jax.jit(stage.step)(state, batch, key)
    step = jax.jit(still.method.stages[0].step)
    signs = 2 * np.asarray(batch.support_labels, np.float64) - 1

    def support_loss(values):
        after, _ = step(with_values(state, values), batch, key)
        # Without batch norm this is what the method predicts.
        scores = still.method.predict(after, batch.support_inputs)
        return np.mean(np.logaddexp(0, -signs * np.asarray(scores, np.float64)))

    for scalar, value in start.items():
        unit = scalars[scalar]
        far = 0.02 * unit
        ends = [support_loss(start | {scalar: value + side * far}) for side in (1, -1)]
        expected = (ends[0] - ends[1]) / 0.04
        got = float((value - moved.learned.values[scalar]) / unit)
        assert abs(expected) > 1e-6
        np.testing.assert_allclose(got, expected, rtol=0.03, atol=2e-6, err_msg=scalar)


def stage_scalars(name):
    """Units of the scalars of a method with its small configuration."""
    own = {"weighted_bce": {"positive_weight": 160 / 40 - 0.2}, "vpu": {"mixup_weight": 0.3}}
    own |= {"gradpu": {"alpha": 0.2}}
    own |= {"dist_pu": {"mixup_weight": 5, "entropy_weight": 0.004, "mixed_entropy_weight": 0.04}}
    return dict.fromkeys(LEARNED[name].split(","), 1.0) | own.get(name, {})


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["nnpu", "dist_pu"])
def test_a_scalar_that_stays_trains_the_method_as_it_is(name):
    data = tiny.problem()
    carries = []
    for scalars in ("", LEARNED[name]):
        changes = {"online_learning_rate": 1e-30, "augment": name == "nnpu"}
        built = config(name, online=scalars, **changes)
        carries.append(tiny.train_steps(built, data, steps=3)[1].state)
    for a, b in zip(*(jax.tree.leaves((s.params, s.batch_stats)) for s in carries), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_nothing_learned_is_nothing_in_the_state_or_the_program():
    data = tiny.problem()
    programs = []
    for changes in ({}, {"online_learning_rate": 7.0, "online_estimator": "es"}):
        trainer = tiny.Trainer(config("nnpu", **changes), data)
        (arguments,) = train_step.step_arguments(
            trainer.method.stages, trainer.arrays, trainer.mesh
        )
        assert arguments[0].learned is None and arguments[1].support_inputs is None
        programs.append(str(jax.make_jaxpr(trainer.method.stages[0].step)(*arguments)))
    assert programs[0] == programs[1]


def test_a_configuration_from_before_these_fields_is_built():
    fields = [name for name in config("nnpu").method if name.startswith(("online", "example_"))]
    assert len(fields) == 11
    for name in ("naive", "nnpu", "dist_pu"):
        tree = config(name).to_dict()
        tree["method"] = {key: x for key, x in tree["method"].items() if key not in fields}
        methods.build(ml_collections.ConfigDict(tree), tiny.problem().info)


@pytest.mark.parametrize(("pull", "end"), [(-1, "high"), (1, "low")])
def test_a_scalar_is_put_back_into_its_range(pull, end):
    info = tiny.problem().info
    scalar = online.class_prior(info)
    # Of U, from 1 % to 99 % are positive; 40 of 192 are labelled.
    assert (scalar.low, scalar.high) == pytest.approx((41.52 / 192, 190.48 / 192))
    built = config("nnpu", online="prior", online_optimizer="sgd", online_learning_rate=1e6)
    learn = online.Online(built.method, FLAT, {"prior": scalar})
    state = STATE._replace(learned=learn.init(0))

    def loss_of(params, scalars):
        return pull * params["classifier"] * scalars["prior"], None

    batch = BATCH._replace(support_inputs=jnp.ones(1), support_labels=jnp.ones(1))
    after, given, metrics = learn.update(state, loss_of, batch, jax.random.key(0))
    assert float(given["scalars"]["prior"]) == pytest.approx(getattr(scalar, end))
    assert metrics["online_prior"] == after.learned.values["prior"] == given["scalars"]["prior"]


class _Flat:
    """A network whose score is its only parameter times the input."""

    is_trainable = None

    def infer(self, params, batch_stats, inputs):
        return _Logits(params["classifier"] * inputs)


class _Logits:
    def __init__(self, logits):
        self.logits = logits


FLAT = _Flat()
STATE = classifier.State({"classifier": jnp.float32(0.0)}, {}, None, None)
BATCH = tiny.batching.Batch(*[None] * len(tiny.batching.Batch._fields))


def test_an_example_that_is_twice_in_a_batch_has_one_place():
    ids = jnp.array([3, 1, 3, 2, 0, 2, 2])
    assert list(online.last_places(ids, 5)) == [2, 1, 2, 6, 4, 6, 6]


def test_units_scale_the_step_of_a_scalar():
    """A first step of Adam is its rate, in units of the start of a weight."""
    built = config("dist_pu", online="mixup_weight", online_learning_rate=0.1)
    weight = online.weight(5.0)
    learn = online.Online(built.method, FLAT, {"mixup_weight": weight})
    batch = BATCH._replace(support_inputs=jnp.ones(1), support_labels=jnp.ones(1))
    _, given, _ = learn.update(
        STATE._replace(learned=learn.init(0)),
        lambda params, scalars: (-params["classifier"] * scalars["mixup_weight"], None),
        batch,
        jax.random.key(0),
    )
    assert float(given["scalars"]["mixup_weight"]) == pytest.approx(5.5, rel=1e-4)
    assert online.weight(0.0) == online.Scalar(0.0, 0.0, float("inf"), 1.0)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"online_loss": "balanced"},
        {"online_optimizer": "momentum"},
        {"online_num_steps": 2},
    ],
)
def test_a_scalar_follows_the_loss_and_the_steps_that_the_fields_name(changes):
    rates = {"online_learning_rate": 0.5, "online_virtual_rate": 0.25}
    fields = {"online_optimizer": "sgd"} | rates | changes
    built = config("dist_pu", online="mixup_weight", **fields)
    learn = online.Online(built.method, FLAT, {"mixup_weight": online.Scalar(1.0, -9.0, 9.0)})
    labels = jnp.array([1.0, 1.0, 1.0, 0.0])
    batch = BATCH._replace(support_inputs=jnp.ones(4), support_labels=labels)
    state, found = STATE._replace(learned=learn.init(0)), []
    for _ in range(2):
        state, given, _ = learn.update(
            state,
            lambda params, scalars: (-params["classifier"] * scalars["mixup_weight"], None),
            batch,
            jax.random.key(0),
        )
        found.append(float(given["scalars"]["mixup_weight"]))

    def slope(value):
        # Each virtual step adds a quarter of the scalar to the score of all support examples.
        length = 0.25 * changes.get("online_num_steps", 1)
        p = 1 / (1 + np.exp(-length * value))
        return length * (2 * p - 1 if "online_loss" in changes else p - 3 / 4)

    first = 1 - 0.5 * slope(1)
    kept = 0.9 * slope(1) if "online_optimizer" in changes else 0
    np.testing.assert_allclose(found, [first, first - 0.5 * (slope(first) + kept)], rtol=1e-6)


def test_weights_are_clipped_and_have_a_mean_of_one():
    gradient = jnp.array([-3.0, 2.0, -1.0, 0.0])
    np.testing.assert_allclose(online.clipped_weights(gradient), [3, 0, 1, 0])
    np.testing.assert_array_equal(online.clipped_weights(jnp.abs(gradient)), 0)
    labeled = jnp.array([1, 1, 0, 0])
    np.testing.assert_allclose(online.clipped_weights(gradient, labeled), [2, 0, 2, 0])
    lonely = online.clipped_weights(gradient, jnp.zeros(4))
    np.testing.assert_allclose(lonely, [3, 0, 1, 0])
    # An infinite or unknown gradient is no gain, and a sum of large ones no number that is not.
    for wrong in (jnp.nan, jnp.inf, -jnp.inf):
        found = online.clipped_weights(gradient.at[0].set(wrong))
        np.testing.assert_allclose(found, [0, 0, 4, 0])
    np.testing.assert_array_equal(online.clipped_weights(jnp.full(3, -3e38)), 0)


@pytest.mark.thorough
def test_weights_are_those_of_ren_et_al_worked_out_by_hand():
    """The gain of an example is the product of its gradient with that of the support loss."""
    changes = {"weighting": "pooled", "online_loss": "mean", "example_decay": 0.75}
    data = tiny.problem()
    trainers = [
        tiny.Trainer(config("naive", example_weights=how, **changes), data)
        for how in ("batch", "stored")
    ]
    stage, state, batch, key = first_batch(trainers[0])
    images = batch.inputs
    _, metrics = jax.jit(stage.step)(state, batch, key)

    def last_layer(inputs, signs):
        """Gradients `[batch, features + 1]` of the losses of examples, and the losses."""
        features = np.asarray(trainers[0].method.embed(state, inputs), np.float64)
        scores = np.asarray(trainers[0].method.predict(state, inputs), np.float64)
        slope = -signs / (1 + np.exp(signs * scores))
        losses = np.logaddexp(0, -signs * scores)
        return slope[:, None] * np.hstack([features, np.ones([len(scores), 1])]), losses

    signs = 2 * np.asarray(batch.labeled) - 1
    support_signs = 2 * np.asarray(batch.support_labels) - 1
    of_examples, losses = last_layer(images, signs)
    of_support, _ = last_layer(batch.support_inputs, support_signs)
    gain = np.maximum(of_examples @ of_support.mean(0), 0)
    weights = gain / gain.mean()
    assert 0 < np.mean(weights == 0) < 1
    np.testing.assert_allclose(metrics["loss"], np.mean(weights * losses), rtol=1e-4)
    assert float(metrics["zero_weights"]) == pytest.approx(np.mean(weights == 0))

    # Stored weights start at 1 and move by a quarter.
    stage, state, batch, key = first_batch(trainers[1])
    after, _ = jax.jit(stage.step)(state, batch, key)
    expected = np.ones(len(data.labeled))
    expected[np.asarray(batch.ids)] = 0.75 + 0.25 * weights
    np.testing.assert_allclose(after.learned.weights, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("how", ["auto", "none", "unlabeled"])
@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_a_risk_at_the_configured_prior_and_weights_of_one_is_the_risk(setting, how):
    info = tiny.problem(setting=setting).info
    rng = np.random.default_rng(0)
    scores, labeled = rng.normal(size=12), np.arange(12) < 3

    @jax.jit
    def both(prior):
        risk = nnpu.risk(config("nnpu", calibration=how).method, info)
        return risk(scores, labeled), risk(scores, labeled, prior=prior, weights=jnp.ones(12))

    first, second = both(info.prior)
    np.testing.assert_allclose(first, second, rtol=1e-6)
    other = both(info.prior + 0.1)[1]
    assert abs(float(other - first)) > 1e-3


@pytest.mark.thorough
def test_a_prior_moves_from_both_sides_towards_the_truth_and_is_reported():
    task = {"positive_classes": (0, 2, 4, 6, 8), "num_labeled": 100, "num_support": 60}
    how = {"setting": "one_sample", "sampling": "stratified", "seed": 0}
    changes = {"batch_size": 16, "online_batch_size": 60, "learning_rate": 0.01}
    built = config("nnpu", online="prior", **changes)
    for start in (0.3, 0.75):
        data = dataset.build(digits.load(), prior=start, **task, **how)
        trainer = tiny.Trainer(built, data)
        carry = trainer.run(steps=80, per_call=10)
        prior = float(carry.state.learned.values["prior"])
        assert carry.sums["steps"] == 80 and abs(prior - 0.5) < abs(start - 0.5) - 0.1, prior
        assert {} | trainer.method.estimates(carry.state) == {
            "estimated_prior": pytest.approx((data.info.n * prior - 100) / data.info.n_u, rel=1e-5)
        }


RUNS = {
    "nnpu": {"online": "prior,temperature"},
    "dist_pu": {"online": "prior,mixup_weight", "online_estimator": "es"},
    "naive": {"example_weights": "stored", "weighting": "pooled"},
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUNS)
def test_going_on_equals_a_straight_run_and_values_are_in_every_row(name, tmp_path):
    data = tiny.problem()
    setup = tiny.Trainer(config(name, **RUNS[name]), data).setup

    def run(folder, **changes):
        built = config(name, **RUNS[name], **changes)
        folder, same = tmp_path / folder, setup._replace(config=built)
        return tiny.train_in(folder, built, data, setup=same)

    straight, rows = run("straight")
    for epochs in (2, 0):
        resumed, resumed_rows = run("resumed", stop_after_epoch=epochs)
    assert straight.is_finished and resumed.is_finished and resumed_rows == rows
    state = jax.tree.map(np.asarray, (straight.carry.state, resumed.carry.state))
    jax.tree.map(np.testing.assert_array_equal, *state)
    column = "zero_weights" if name == "naive" else "online_prior"
    assert len(rows) == 4 and all(np.isfinite(row[column]) for row in rows)
    if name == "dist_pu":  # the second phase goes on where the first ended
        arrays = data.training_data()
        entered = setup.method.stages[1].init(jax.random.key(0), straight.carry.state, arrays)
        assert entered.learned.values == straight.carry.state.learned.values
        assert {"prior", "mixup_weight"} == set(entered.learned.values)
        assert abs(entered.learned.values["prior"] - data.info.prior) > 1e-3


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["nnpu", "naive"])
def test_seeds_and_devices_give_the_same(name):
    data = tiny.problem()
    trainer = tiny.Trainer(config(name, **RUNS[name]), data)
    alone = [first_batch(trainer)[1:3] + (jax.random.key(seed),) for seed in (0, 1)]
    step = trainer.method.stages[0].step
    together = jax.jit(jax.vmap(step))(*jax.tree.map(lambda *x: jnp.stack(x), *alone))
    for index, arguments in enumerate(alone):
        one = jax.jit(step)(*arguments)
        for a, b in zip(jax.tree.leaves(together), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(a[index], b, rtol=2e-3, atol=2e-4)
    one = trainer.run(steps=2)
    eight = tiny.Trainer(config(name, **RUNS[name]), data, num_devices=8).run(steps=2)
    for a, b in zip(jax.tree.leaves(one.state), jax.tree.leaves(eight.state), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


def test_weights_of_self_pu_are_meta_gradients(monkeypatch):
    """Through one step of the parameters that move, of a loss that is curved in all of them."""
    monkeypatch.setattr(self_paced, "allot", lambda gradient, **_: gradient)
    inputs = jax.random.normal(jax.random.key(0), (6, 3))
    params = {"kernel": jnp.array([0.3, -0.2, 0.5]), "bias": jnp.float32(0.5)}

    def scores(params):
        return jnp.tanh(inputs @ params["kernel"]) + params["bias"]

    def noisy_loss(params, weights):
        return jnp.sum(weights[:, 0] * scores(params) ** 2 + weights[:, 1] * scores(params))

    def support_loss(params):
        return jnp.sum(jnp.exp(scores(params)))

    for moves in ({"kernel"}, {"kernel", "bias"}):
        how = {"learning_rate": 0.1, "trainable": lambda path, moves=moves: path[-1].key in moves}
        gradient = self_paced.calibrated_weights(
            noisy_loss, support_loss, params, adjustable=jnp.ones(6, bool), budget=4.0, **how
        )
        wanted = meta.meta_gradient(noisy_loss, support_loss, params, jnp.zeros([6, 2]), **how)
        np.testing.assert_allclose(gradient, wanted, rtol=1e-5, atol=1e-7)


WRONG = [
    ("nnpu", {"online": "mixup_weight"}, "method.online is 'mixup_weight'; accepted: 'prior', "),
    ("nnpu", {"online": "prior,prior"}, "each at most once"),
    ("nnpu", {"online": "augmentation"}, "method.online is 'augmentation'"),  # without views
    ("pusb", {"online": "prior"}, "method.online is 'prior'; accepted: 'temperature'"),
    ("nnpu", {"online": "prior", "online_learning_rate": 0.0}, "method.online_learning_rate is 0"),
    ("nnpu", {"online": "prior", "online_virtual_rate": -1.0}, "method.online_virtual_rate is -1"),
    ("nnpu", {"online": "prior", "online_optimizer": "lion"}, "method.online_optimizer is 'lion'"),
    ("nnpu", {"online": "prior", "online_estimator": "pes"}, "method.online_estimator is 'pes'"),
    ("nnpu", {"online": "prior", "online_trainable": "body"}, "method.online_trainable is 'body'"),
    ("nnpu", {"online": "prior", "online_loss": "nnpu"}, "method.online_loss is 'nnpu'"),
    # Words are read while nothing is learned, too.
    ("nnpu", {"online_estimator": "bogus"}, "method.online_estimator is 'bogus'; accepted: 'mix"),
    ("naive", {"online_loss": "bogus"}, "method.online_loss is 'bogus'; accepted: 'mean', 'bal"),
    ("dist_pu", {"online_optimizer": "bogus"}, "method.online_optimizer is 'bogus'; accepted"),
    ("nnpu", {"online": "prior", "online_num_steps": 0}, "method.online_num_steps is 0"),
    ("nnpu", {"online": "prior", "online_batch_size": 9}, "method.online_batch_size is 9"),
    ("dist_pu", {"online": "prior"}, "method.online_estimator is 'mixed'; accepted: 'es'"),
    ("nnpu", {"example_weights": "meta"}, "method.example_weights is 'meta'; accepted: 'none', "),
    ("nnpu", {"example_weights": "batch", "online": "prior"}, "while method.example_weights"),
    ("nnpu", {"example_weights": "batch", "online_estimator": "es"}, "accepted: 'mixed', 'rev"),
    ("nnpu", {"example_weights": "batch", "online_num_steps": 2}, "accepted: 1 while"),
    ("nnpu", {"example_weights": "stored", "example_decay": 1.0}, "method.example_decay is 1"),
    ("naive", {"example_weights": "batch"}, "method.weighting is 'balanced'; accepted: 'pooled'"),
]


@pytest.mark.parametrize(("name", "changes", "message"), WRONG)
def test_what_cannot_be_is_refused(name, changes, message):
    with pytest.raises(ValueError, match=message):
        methods.build(config(name, augment=False, **changes), tiny.problem().info)


@pytest.mark.parametrize("changes", [{"online": "prior"}, {"example_weights": "batch"}])
def test_a_support_set_of_both_classes_is_needed(changes):
    none = tiny.problem(num_support=0).info
    one_class = tiny.problem().info._replace(support_positives=8)
    for info in (none, one_class):
        message = f"data.num_support is {info.n_support}; accepted: .* to hold both classes"
        with pytest.raises(ValueError, match=message):
            methods.build(config("nnpu", **changes), info)
