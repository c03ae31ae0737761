"""`meta_gradient`: its defaults, one program for all devices and seeds, bad input, warnings."""

import re
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pujax import meta
from tests import meta_problems as quadratic
from tests.x64 import x64

thorough = pytest.mark.thorough
KEY = jax.random.key(0)
# Options with which every estimator runs on the problems below.
OPTIONS = {
    "reverse": {"segment": 2},
    "mixed": {},
    "forward": {},
    "truncated": {"window": 2},
    "one_step": {},
    "implicit_cg": {"max_residual": np.inf},
    "implicit_neumann": {"num_terms": 3},
    "es": {"num_pairs": 3},
    "pes": {"num_pairs": 3},
    "finite_difference": {},
}


def test_every_estimator_is_tried_here():
    assert set(meta.ESTIMATORS) == set(OPTIONS)


# --- the defaults


def one_step_as_before(inner_loss, outer_loss, params, meta_params, *, learning_rate, trainable):
    """The function as it was when it knew one plain step, with nothing around it."""

    def after(m):
        kernel = jnp.asarray(params["kernel"])
        slope = jax.grad(lambda k: inner_loss(params | {"kernel": k}, m))(kernel)
        return outer_loss(params | {"kernel": kernel - learning_rate * slope})

    return jax.grad(after)(meta_params)


@pytest.mark.parametrize("jit", [True, pytest.param(False, marks=thorough)])
def test_the_defaults_are_one_plain_step_bit_for_bit(jit):
    rng = np.random.default_rng(0)
    x, x_clean = rng.normal(size=(2, 7, 3)).astype(np.float32)
    y, y_clean = rng.random(7, np.float32), np.array([1, 0, 1, 0, 0, 1, 1], np.float32)
    params = {"bias": np.float32(0.2), "kernel": rng.normal(size=3).astype(np.float32)}

    def loss(inputs):
        return lambda tree, y: meta.balanced_bce(inputs @ tree["kernel"] + tree["bias"], y)

    def found(function):
        gradient = lambda m: function(  # noqa: E731
            loss(x),
            lambda tree: loss(x_clean)(tree, y_clean),
            params,
            m,
            learning_rate=0.7,
            trainable=lambda path: path[-1].key == "kernel",
        )
        return np.asarray((jax.jit(gradient) if jit else gradient)(y))

    before, now = found(one_step_as_before), found(meta.meta_gradient)
    assert np.abs(now).max() > 1e-4
    np.testing.assert_array_equal(now, before)


def test_integers_are_meta_parameters_of_reverse_mode_as_before():
    gradient = meta.meta_gradient(
        lambda w, m: w * m**2, lambda w: w, np.float32(1), np.array(3), learning_rate=0.5
    )
    assert gradient.dtype == jnp.float32 and float(gradient) == -3


# --- one program


def labels_problem(estimator):
    """A function of data and a key: soft labels and a temperature of a small network."""

    def of_data(x, labels, key):
        def inner(params, m, *, key):
            noisy = x + 0.1 * jax.random.normal(key, x.shape)
            scores = jnp.tanh(noisy @ params["body"]) @ params["head"]
            decay = sum(jnp.sum(leaf**2) for leaf in jax.tree_util.tree_leaves(params))
            return meta.balanced_bce(scores / m["temperature"], m["labels"]) + decay

        def outer(params):
            return jnp.mean(jnp.square(jnp.tanh(x @ params["body"]) @ params["head"] - labels))

        return meta.meta_gradient(
            inner,
            outer,
            {"body": jnp.eye(4, 3), "head": jnp.array([0.5, -0.2, 0.1])},
            {"labels": labels, "temperature": jnp.float32(0.8)},
            estimator=estimator,
            optimizer=None if estimator == "implicit_neumann" else optax.sgd(0.1, momentum=0.9),
            learning_rate=0.1 if estimator == "implicit_neumann" else None,
            num_steps=3,
            key=key,
            randomness="fresh",
            rolled=True,
            **OPTIONS[estimator],
        )

    return of_data


@thorough
@pytest.mark.parametrize("estimator", OPTIONS)
def test_one_program_for_seeds_and_devices(estimator):
    rng = np.random.default_rng(1)
    x = rng.normal(size=(2, 16, 4)).astype(np.float32)
    labels, keys = rng.random((2, 16), np.float32), jax.random.split(KEY, 2)
    one = jax.jit(labels_problem(estimator))
    alone = [one(x[seed], labels[seed], keys[seed]) for seed in range(2)]
    # Differences of float32 losses over a small width have few digits.
    digits = 1e-2 if estimator in ("es", "pes", "finite_difference") else 1e-5
    mapped = jax.jit(jax.vmap(labels_problem(estimator)))(x, labels, keys)
    spread = NamedSharding(Mesh(np.array(jax.devices()), ("data",)), PartitionSpec("data"))
    assert len(jax.devices()) == 8
    divided = one(jax.device_put(x[0], spread), jax.device_put(labels[0], spread), keys[0])
    for name in ("labels", "temperature"):
        wanted = np.stack([gradient[name] for gradient in alone])
        scale = digits * np.abs(wanted).max()
        assert scale > 0 and not np.allclose(wanted[0], wanted[1], atol=scale)
        np.testing.assert_allclose(mapped[name], wanted, atol=scale)
        np.testing.assert_allclose(divided[name], wanted[0], atol=scale)


# --- bad input


@pytest.mark.parametrize(
    "estimator",
    [
        x if x == "forward" else pytest.param(x, marks=thorough)
        for x in OPTIONS
        if x not in ("es", "pes")  # whose draws are of the whole tree
    ],
)
def test_every_estimator_works_on_the_parts_of_a_mesh(estimator):
    """Unit vectors made of nothing but counts did not vary over the axis that weights do."""
    mesh = Mesh(np.array(jax.devices()[:2]), ("data",))

    def inner(weights, m):
        return jnp.mean(jnp.square(weights * m - 1)) + 0.1 * jnp.sum(jnp.square(weights))

    def gradient(weights, m):
        options = {"learning_rate": 0.05, "estimator": estimator, "num_steps": 2}
        options |= OPTIONS[estimator]
        return meta.meta_gradient(inner, lambda w: jnp.sum(jnp.square(w)), weights, m, **options)

    spec = PartitionSpec("data")
    weights, m = jnp.linspace(0.2, 1, 4), jnp.linspace(0.5, 1.5, 4)
    found = jax.shard_map(gradient, mesh=mesh, in_specs=spec, out_specs=spec)(weights, m)
    each = [gradient(weights[part], m[part]) for part in (slice(2), slice(2, 4))]
    digits = 1e-2 if estimator == "finite_difference" else 1e-5
    np.testing.assert_allclose(found, jnp.concatenate(each), rtol=digits)


def never(*arguments, **named):
    raise AssertionError("a loss was evaluated before the arguments were checked")


def of_unknown_argument():
    """A transformation that asks for something that no step has."""

    def update(gradients, state, params=None, *, curvature):
        return jax.tree_util.tree_map(lambda g: g / curvature, gradients), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


LINE_SEARCH = optax.lbfgs()


def looping():
    """A transformation whose update is a loop of unknown length."""

    def update(gradients, state, params=None):
        shrunk = jax.tree_util.tree_map(
            lambda g: jax.lax.while_loop(lambda v: jnp.sum(v**2) > 1, lambda v: v / 2, g), gradients
        )
        return shrunk, state

    return optax.GradientTransformation(lambda params: optax.EmptyState(), update)


BAD = [
    ({"estimator": "exact"}, r"estimator is 'exact'; accepted: 'reverse', 'mixed', .*'es', 'pes'"),
    ({"num_steps": 0}, r"num_steps is 0; accepted: an integer from 1"),
    ({"num_steps": 2.0}, r"num_steps is 2.0; accepted: an integer from 1"),
    ({"num_steps": -1, "estimator": "implicit_cg"}, r"num_steps is -1; .* an integer from 0"),
    ({"learning_rate": None}, r"learning_rate is None; accepted: a step size without optimizer"),
    ({"learning_rate": float("nan")}, r"learning_rate is nan; accepted: a number in \[0, inf\)"),
    ({"learning_rate": -0.1}, r"learning_rate is -0.1; accepted: a number in \[0, inf\)"),
    ({"learning_rate": np.ones(2)}, r"learning_rate is array\(\[1., 1.\]\); accepted: one number"),
    ({"learning_rate": "slow"}, r"learning_rate is 'slow'; accepted: one number"),
    ({"trainable": "head"}, r"trainable is 'head'; accepted: a function of a leaf's path, or None"),
    ({"rolled": 1}, r"rolled is 1; accepted: True or False"),
    ({"return_info": "all"}, r"return_info is 'all'; accepted: True or False"),
    ({"randomness": "common", "key": 3}, r"key is 3; accepted: one jax.random key with random"),
    ({"estimator": "pes", "key": KEY, "particles": 3}, r"particles is 'int'; accepted: None, or"),
    ({"optimizer": optax.sgd(1.0)}, r"learning_rate is 0.1; .* None with one, which has its own"),
    ({"opt_state": ()}, r"opt_state is 'tuple'; accepted: None without optimizer"),
    ({"learning_rate": np.complex64(1)}, r"learning_rate is .*; accepted: one number"),
    ({"randomness": "always"}, r"randomness is 'always'; accepted: 'none', 'fresh', 'common'"),
    ({"randomness": "fresh"}, r"key is None; accepted: one jax.random key with randomness 'fresh'"),
    ({"stats_update": "kept"}, r"stats_update is 'kept'; accepted: 'frozen', 'carried', 'stopped'"),
    ({"stats_update": "carried"}, r"stats_update is 'carried'; .* 'frozen' without batch_stats"),
    (
        {"batches": {"x": np.zeros((3, 2))}, "num_steps": 2},
        r"the shape of batches\['x'\] is \(3, 2\); accepted: one slice per step, a first axis of 2",
    ),
    ({"window": 1}, r"window is 1; accepted: only with estimator 'truncated', not with 'reverse'"),
    ({"terms": 1}, r"terms is no option of meta_gradient; accepted: segment with estimator 'rev"),
    ({"terms": 1, "estimator": "one_step"}, r"terms is no .* accepted: none with estimator 'one_"),
    ({"estimator": "truncated"}, r"window is missing; accepted: an integer from 1 to num_steps"),
    ({"estimator": "truncated", "window": 2}, r"window is 2; accepted: a number in \[1, 1\]"),
    ({"segment": 0}, r"segment is 0; accepted: an integer from 1"),
    ({"segment": 3, "num_steps": 2}, r"segment is 3; accepted: a number in \[1, 2\]"),
    ({"estimator": "forward", "chunk_size": 0}, r"chunk_size is 0; accepted: an integer from 1"),
    (
        {"estimator": "finite_difference", "epsilon": 0.0},
        r"epsilon is 0.0, but must be a positive number",
    ),
    (
        {"estimator": "implicit_cg", "damping": -1.0},
        r"damping is -1.0, but must be a number from 0",
    ),
    ({"estimator": "implicit_cg", "tolerance": 0}, r"tolerance is 0; accepted: a number in \(0,"),
    ({"estimator": "implicit_cg", "max_iterations": 0}, r"max_iterations is 0; accepted: an int"),
    ({"estimator": "implicit_cg", "max_residual": 0}, r"max_residual is 0; accepted: a number in"),
    ({"estimator": "implicit_neumann", "num_terms": 0}, r"num_terms is 0; accepted: an integer"),
    (
        {"estimator": "implicit_neumann", "learning_rate": None, "optimizer": optax.sgd(0.1)},
        r"step_size is None; accepted: a positive number where there is no learning_rate",
    ),
    (
        {"estimator": "implicit_cg", "batch_stats": 1.0, "stats_update": "carried"},
        r"stats_update is 'carried'; accepted: 'frozen' or 'stopped' with an implicit estimator",
    ),
    ({"estimator": "es"}, r"key is None; accepted: one jax.random key for perturbations"),
    ({"estimator": "es", "key": KEY, "num_pairs": 0}, r"num_pairs is 0; accepted: an integer fr"),
    (
        {"estimator": "pes", "key": KEY, "sigma": 0.0},
        r"sigma is 0.0, but must be a positive number",
    ),
    ({"estimator": "es", "key": KEY, "chunk_size": 0.5}, r"chunk_size is 0.5; accepted: an integ"),
    ({"meta_params": {}}, r"meta_params is \{\}; accepted: a pytree with at least one array"),
    (
        {"meta_params": {"a": np.ones(2), "b": np.array(1)}, "estimator": "forward"},
        r"the type of meta_params\['b'\] is 'int\d\d'; accepted: floating-point .*'forward'",
    ),
    (
        {"meta_params": [np.ones(2), np.array([None])]},
        r"the type of meta_params\[1\] is 'ndarray of object'; accepted: an array of numbers",
    ),
    ({"meta_params": KEY}, r"the type of meta_params is 'key.*'; accepted: floating-point"),
    ({"params": {"count": np.array(3)}}, r"trainable selects no floating-point leaf of params"),
    ({"trainable": lambda path: False}, r"trainable selects no .* their paths are \['\[0\]'\]"),
    (
        {"optimizer": of_unknown_argument(), "learning_rate": None},
        r"optimizer is .*; accepted: .* gradients, state and params, .* value_fn .*TypeError",
    ),
    (
        {"optimizer": LINE_SEARCH, "learning_rate": None},
        r"optimizer is .*; accepted: one that reverse mode can differentiate; estimators 'forward'",
    ),
    (
        {"optimizer": optax.adam(0.1), "opt_state": (1,), "learning_rate": None},
        r"optimizer is .*; accepted: .* with an opt_state of the parameters that move",
    ),
    ({"optimizer": "adam", "learning_rate": None}, r"optimizer is str; accepted: an optax"),
    (
        {"optimizer": looping(), "learning_rate": None, "estimator": "mixed"},
        r"optimizer is .*; accepted: one that reverse mode can differentiate; estimators 'forward'",
    ),
]


@pytest.mark.parametrize("changes, message", BAD)
def test_bad_input_is_refused_before_a_loss_is_evaluated(changes, message):
    given = {"params": [np.ones(2)], "meta_params": np.ones(2), "learning_rate": 0.1} | changes
    params, meta_params = given.pop("params"), given.pop("meta_params")
    with pytest.raises(ValueError, match=message) as raised:
        meta.meta_gradient(never, never, params, meta_params, **given)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("estimator", ["reverse", "forward"])
def test_an_outer_loss_of_several_numbers_is_refused(estimator):
    with pytest.raises(
        ValueError, match=r"the shape of the outer loss is \(4,\); accepted: \(\), o"
    ):
        meta.meta_gradient(
            quadratic.inner,
            lambda w: w,
            quadratic.START,
            quadratic.META,
            learning_rate=0.1,
            estimator=estimator,
        )


@thorough
def test_forward_mode_takes_an_optimizer_that_reverse_mode_cannot_differentiate():
    with x64():
        found = quadratic.estimate(
            "forward", num_steps=1, learning_rate=None, optimizer=looping(), rolled=True
        )
        slope = quadratic.A @ quadratic.START - quadratic.B @ quadratic.META
        scale = 1.0
        while np.sum((scale * slope) ** 2) > 1:
            scale /= 2
        # The update is the shrunk gradient itself, added.
        end = quadratic.START + scale * slope
        expected = (-scale * quadratic.B).T @ (end - quadratic.TARGET)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@thorough
def test_particles_of_another_number_of_pairs_are_refused():
    _, info = quadratic.estimate("pes", key=KEY, num_pairs=3, return_info=True)
    with pytest.raises(ValueError, match=r"num_pairs is 4; accepted: the 3 pairs of particles"):
        quadratic.estimate("pes", key=KEY, num_pairs=4, particles=info.particles)


# --- no influence


def partial_influence(m, *, jit=False):
    def of_meta(m):
        return meta.meta_gradient(
            lambda w, m: w * m["used"][0] + jnp.sum(m["unused"]["deep"]),
            lambda w: w,
            np.float32(1),
            m,
            learning_rate=0.5,
        )

    return (jax.jit(of_meta) if jit else of_meta)(m)


def test_meta_parameters_without_influence_are_named_once():
    m = {"used": np.ones(2, np.float32), "unused": {"deep": np.ones(2, np.float32)}}
    with pytest.warns(UserWarning) as seen:
        gradient = partial_influence(m)
    assert len(seen) == 1
    np.testing.assert_array_equal(gradient["used"], [-0.5, 0])
    # One entry of 'used' has influence, which is enough.
    assert "gradient of meta_params['unused']['deep'] is exactly zero" in str(seen[0].message)
    assert seen[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        partial_influence(m, jit=True)  # values are unknown there


@pytest.mark.parametrize(
    "key",
    [jax.random.split(KEY), np.uint32(3), np.zeros([2, 2], np.uint32), jax.random.split(KEY)[:1]],
)
def test_several_keys_are_no_key(key):
    with pytest.raises(ValueError, match="accepted: one jax.random key for perturbations"):
        quadratic.estimate("es", key=key, jit=False)


@pytest.mark.parametrize("estimator", ["es", "pes", "finite_difference"])
def test_an_estimator_that_compares_losses_has_no_constants(estimator):
    with pytest.raises(ValueError, match="stats_update is 'stopped'; accepted: 'frozen' or"):
        meta.meta_gradient(
            lambda w, m, *, batch_stats: (w * m, batch_stats),
            lambda w, *, batch_stats: w,
            1.0,
            1.0,
            learning_rate=0.1,
            estimator=estimator,
            key=None if estimator == "finite_difference" else KEY,
            batch_stats=1.0,
            stats_update="stopped",
        )


def test_complex_meta_parameters_are_refused():
    with pytest.raises(ValueError, match="the type of meta_params is 'complex64'; accepted"):
        meta.meta_gradient(
            lambda w, m: w * m.real, lambda w: w, 1.0, jnp.complex64(1), learning_rate=0.1
        )


@pytest.mark.parametrize(
    "inner, outer, stats, message",
    [
        (lambda w, m: w * m, jnp.sum, False, r"the shape of the inner loss is \(2,\); accepted"),
        (lambda w, m: (jnp.sum(w * m), 1), jnp.sum, False, "inner loss returns is 'tuple'"),
        (lambda w, m: jnp.sum(w > m), jnp.sum, False, "type of the inner loss is 'int32'; acc"),
        (
            lambda w, m, batch_stats: jnp.sum(w * m),
            lambda w, batch_stats: jnp.sum(w),
            True,
            r"inner loss returns is '\w+'; accepted: \(loss, batch_stats\)",
        ),
        (
            lambda w, m: jnp.sum(w * m),
            lambda w: jnp.sum(w > 0),
            False,
            "type of the outer loss is 'int32'; accepted: real floating point",
        ),
    ],
)
def test_a_loss_that_has_no_gradient_is_named(inner, outer, stats, message):
    given = {"batch_stats": jnp.zeros(2)} if stats else {}
    with pytest.raises(ValueError, match=message):
        meta.meta_gradient(inner, outer, jnp.ones(2), jnp.ones(2), learning_rate=0.1, **given)


def test_a_virtual_step_of_several_numbers_is_named():
    with pytest.raises(ValueError, match=r"shape of the inner loss is \(2,\); accepted: \(\)"):
        meta.virtual_step(lambda w: w, jnp.ones(2), learning_rate=0.1)


def test_meta_parameters_that_are_no_arrays_are_named():
    with pytest.raises(ValueError, match="type of meta_params is 'str'; accepted: an array"):
        meta.meta_gradient(never, never, jnp.ones(2), "abc", learning_rate=0.1)


@pytest.mark.parametrize("damping, message", [("x", "damping is 'x', but"), (jnp.ones(2), "(2,)")])
def test_a_damping_that_is_no_number_is_named(damping, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        meta.meta_gradient(
            quadratic.inner,
            quadratic.outer,
            quadratic.START,
            quadratic.META,
            learning_rate=0.1,
            estimator="implicit_cg",
            damping=damping,
        )


def test_the_share_of_old_labels_may_be_a_list():
    found = meta.ema_labels([0.0, 1.0], [1.0, 1.0], rho=[0.25, 0.5], pinned=[0, 0])
    np.testing.assert_allclose(found, [0.75, 1.0])


@pytest.mark.parametrize("shape", [(4, 3), (1,)])  # of updates, and of the state alone
@pytest.mark.parametrize("optimizer", [optax.sgd(0.1, momentum=0.9), optax.adam(0.1)])
def test_a_state_of_parameters_of_another_shape_is_refused_even_if_it_broadcasts(optimizer, shape):
    params, wrong = {"w": jnp.ones(3)}, {"w": jnp.zeros(shape)}

    def gradient(opt_state):
        return meta.meta_gradient(
            lambda p, m: m * jnp.sum(p["w"] ** 2),
            lambda p: jnp.sum(p["w"] ** 2),
            params,
            jnp.float32(1),
            optimizer=optimizer,
            opt_state=opt_state,
            num_steps=2,
        )

    assert np.isfinite(gradient(optimizer.init(params)))
    with pytest.raises(ValueError, match="with an opt_state of the parameters that move .*shapes"):
        gradient(optimizer.init(wrong))
