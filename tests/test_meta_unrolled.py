"""Derivatives through inner steps: closed forms, central differences, inputs of a step, memory."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from pujax import meta
from tests import meta_problems as quadratic
from tests.x64 import x64

thorough = pytest.mark.thorough


@pytest.mark.parametrize(
    "estimator, options, window",
    [
        ("reverse", {}, None),
        ("mixed", {"rolled": True, "segment": 2}, None),
        ("forward", {}, None),
        ("truncated", {"window": 2}, 2),
        ("one_step", {}, 1),
        pytest.param("reverse", {"segment": 2}, None, marks=thorough),
        pytest.param("reverse", {"segment": 5, "rolled": True}, None, marks=thorough),
        pytest.param("reverse", {"segment": 3, "rolled": True}, None, marks=thorough),
        pytest.param("mixed", {}, None, marks=thorough),
        pytest.param("mixed", {"segment": 4}, None, marks=thorough),
        pytest.param("forward", {"chunk_size": 2, "rolled": True}, None, marks=thorough),
        pytest.param("truncated", {"window": 3, "segment": 2, "rolled": True}, 3, marks=thorough),
        pytest.param("truncated", {"window": 5}, 5, marks=thorough),
        pytest.param("one_step", {"rolled": True}, 1, marks=thorough),
    ],
)
def test_the_closed_form_of_a_linear_quadratic_problem(estimator, options, window):
    with x64():
        found = quadratic.estimate(estimator, **options)
    np.testing.assert_allclose(found, quadratic.gradient(5, window), rtol=1e-12)


@pytest.mark.parametrize("options", [{}, pytest.param({"chunk_size": 2}, marks=thorough)])
def test_central_differences_are_exact_for_a_quadratic_up_to_rounding(options):
    with x64():
        found = quadratic.estimate("finite_difference", **options)
        np.testing.assert_allclose(found, quadratic.gradient(5), rtol=1e-9)
        # A third derivative: (m + e)^3 - (m - e)^3 over 2 e is 3 m^2 + e^2.
        cubic = meta.meta_gradient(
            lambda w, m: w * m**3,
            lambda w: w,
            np.float64(0),
            np.float64(2),
            learning_rate=1.0,
            estimator="finite_difference",
            epsilon=0.125,
        )
        np.testing.assert_allclose(cubic, -(12 + 0.125**2), rtol=1e-12)


def momentum_gradient(num_steps, rate, decay, start_trace):
    """`v <- decay v + gradient, w <- w - rate v`, and its derivative, worked out by hand."""
    w, v = quadratic.START, start_trace
    dw = dv = np.zeros((4, 3))
    for _ in range(num_steps):
        v, dv = (
            decay * v + quadratic.A @ w - quadratic.B @ quadratic.META,
            decay * dv + quadratic.A @ dw - quadratic.B,
        )
        w, dw = w - rate * v, dw - rate * dv
    return dw.T @ (w - quadratic.TARGET), w, v


@pytest.mark.parametrize(
    "estimator, rolled",
    [
        ("mixed", False),
        pytest.param("reverse", True, marks=thorough),
        pytest.param("forward", True, marks=thorough),
        pytest.param("mixed", True, marks=thorough),
    ],
)
def test_the_closed_form_with_momentum_from_a_state_that_is_given(estimator, rolled):
    optimizer = optax.sgd(0.2, momentum=0.7)
    trace = np.array([0.3, -0.2, 0.1, 0.5])
    expected, w, v = momentum_gradient(4, 0.2, 0.7, trace)
    with x64():
        state = optimizer.init(quadratic.START)
        state = jax.tree_util.tree_map(lambda leaf: jnp.asarray(trace), state)
        found, info = quadratic.estimate(
            estimator,
            num_steps=4,
            learning_rate=None,
            optimizer=optimizer,
            opt_state=state,
            rolled=rolled,
            return_info=True,
        )
        np.testing.assert_allclose(found, expected, rtol=1e-12)
        np.testing.assert_allclose(info.params, w, rtol=1e-12)
        np.testing.assert_allclose(jax.tree_util.tree_leaves(info.opt_state)[0], v, rtol=1e-12)
        np.testing.assert_allclose(info.outer_loss, np.sum((w - quadratic.TARGET) ** 2) / 2)


def test_adam_moves_part_of_a_tree_whose_other_leaves_stay_the_same_objects():
    x = np.random.default_rng(0).normal(size=(5, 3))
    params = {"kernel": np.ones(3), "scale": np.float64(2), "count": np.array(3)}

    def inner(tree, m):
        return jnp.mean(m * (x @ tree["kernel"] * tree["scale"] + tree["count"]) ** 2)

    def by_hand(m):
        kernel, state = params["kernel"], optax.adam(0.1).init(params["kernel"])
        for _ in range(2):
            slope = jax.grad(lambda k: inner(params | {"kernel": k}, m))(kernel)
            update, state = optax.adam(0.1).update(slope, state)
            kernel = kernel + update
        return jnp.sum(kernel**2), kernel

    with x64():
        masses = np.linspace(0.5, 1, 5)
        expected, kernel = jax.jit(jax.grad(by_hand, has_aux=True))(masses)
        found, info = meta.meta_gradient(
            inner,
            lambda tree: jnp.sum(tree["kernel"] ** 2),
            params,
            masses,
            optimizer=optax.adam(0.1),
            num_steps=2,
            trainable=lambda path: path[-1].key == "kernel",
            return_info=True,
        )
        # Eager and compiled steps round differently.
        np.testing.assert_allclose(found, expected, rtol=1e-9)
        np.testing.assert_allclose(info.params["kernel"], kernel, rtol=1e-12)
    assert info.params["scale"] is params["scale"] and info.params["count"] is params["count"]


def by_the_loss():
    """Steps of the size of the loss, as Polyak's are."""

    def update(gradients, state, params=None, *, value, **others):
        return jax.tree_util.tree_map(lambda g: -0.1 * value * g, gradients), state

    return optax.GradientTransformationExtraArgs(lambda params: optax.EmptyState(), update)


@pytest.mark.parametrize(
    "estimator, rolled",
    [("mixed", False)]
    + [pytest.param(*case, marks=thorough) for case in (("reverse", True), ("forward", False))],
)
def test_an_optimizer_that_looks_at_the_loss_by_hand(estimator, rolled):
    w, dw = quadratic.START, np.zeros((4, 3))
    a, b, m = quadratic.A, quadratic.B, quadratic.META
    for _ in range(3):
        value, slope = w @ a @ w / 2 - w @ b @ m, a @ w - b @ m
        dvalue, dslope = slope @ dw - w @ b, a @ dw - b
        w, dw = (
            w - 0.1 * value * slope,
            dw - 0.1 * (value * dslope + np.outer(slope, dvalue)),
        )
    options = {"learning_rate": None, "optimizer": by_the_loss(), "rolled": rolled}
    with x64():
        found = quadratic.estimate(estimator, num_steps=3, **options)
    np.testing.assert_allclose(found, dw.T @ (w - quadratic.TARGET), rtol=1e-10)


# --- what a step is given


@pytest.mark.parametrize(
    "randomness, estimator, rolled",
    [
        ("fresh", "mixed", True),
        ("common", "reverse", False),
        pytest.param("fresh", "reverse", False, marks=thorough),
        pytest.param("common", "mixed", True, marks=thorough),
        pytest.param("fresh", "truncated", True, marks=thorough),
    ],
)
def test_every_step_has_its_key_and_its_batch(randomness, estimator, rolled):
    key, batches = jax.random.key(7), np.random.default_rng(1).normal(size=(3, 4))
    options = {"window": 2} if estimator == "truncated" else {}

    def inner(w, m, *, key, batch):
        return quadratic.inner(w, m) - w @ (batch + jax.random.normal(key, (4,), jnp.float64))

    with x64():
        keys = [key if randomness == "common" else jax.random.fold_in(key, i) for i in range(3)]
        noise = np.stack([jax.random.normal(k, (4,), jnp.float64) for k in keys])
        found = jax.jit(
            lambda m: meta.meta_gradient(
                inner,
                quadratic.outer,
                quadratic.START,
                m,
                learning_rate=quadratic.RATE,
                estimator=estimator,
                num_steps=3,
                key=key,
                randomness=randomness,
                batches=batches,
                rolled=rolled,
                **options,
            )
        )(quadratic.META)
    expected = quadratic.gradient(3, options.get("window"), forces=noise + batches)
    np.testing.assert_allclose(found, expected, rtol=1e-12)


@pytest.mark.parametrize(
    "update, estimator",
    [
        ("carried", "mixed"),
        pytest.param("frozen", "mixed", marks=thorough),
        pytest.param("stopped", "mixed", marks=thorough),
        pytest.param("carried", "reverse", marks=thorough),
        pytest.param("stopped", "reverse", marks=thorough),
        pytest.param("frozen", "forward", marks=thorough),
        pytest.param("carried", "forward", marks=thorough),
        pytest.param("stopped", "forward", marks=thorough),
    ],
)
def test_statistics_that_act_on_the_loss_by_hand(update, estimator):
    """Loss `w m - w s` with `s <- s / 2 + w^2 + m` and a counter, plain steps, outer loss `w s`."""
    rate, w, dw, s, ds = 0.1, 0.4, 0.0, 0.3, 0.0
    m, steps = 1.5, 3
    for _ in range(steps):
        new, dnew = s / 2 + w**2 + m, ds / 2 + 2 * w * dw + 1
        w, dw = w - rate * (m - s), dw - rate * (1 - ds)
        if update != "frozen":
            s, ds = new, dnew if update == "carried" else 0.0

    def inner(w, m, *, batch_stats):
        s = batch_stats["mean"]
        return w * m - w * s, {"mean": s / 2 + w**2 + m, "count": batch_stats["count"] + 1}

    with x64():
        found, info = jax.jit(
            lambda m: meta.meta_gradient(
                inner,
                lambda w, *, batch_stats: w * batch_stats["mean"],
                np.float64(0.4),
                m,
                learning_rate=rate,
                estimator=estimator,
                num_steps=steps,
                batch_stats={"mean": np.float64(0.3), "count": np.array(0)},
                stats_update=update,
                rolled=True,
                return_info=True,
            )
        )(np.float64(m))
    np.testing.assert_allclose(found, dw * s + w * ds, rtol=1e-12)
    np.testing.assert_allclose(info.batch_stats["mean"], s, rtol=1e-12)
    assert int(info.batch_stats["count"]) == (0 if update == "frozen" else steps)


@pytest.mark.parametrize("first", [{"mean": jnp.bfloat16(0.5)}, {}])
def test_mixed_mode_takes_statistics_that_change_in_the_first_step(first):
    def inner(w, m, *, batch_stats):
        mean = batch_stats.get("mean", 0.5) * jnp.float32(1) + w**2
        return w * m - w * mean, {"mean": mean}

    found = [
        meta.meta_gradient(
            inner,
            lambda w, *, batch_stats: w * batch_stats["mean"],
            jnp.float32(0.4),
            jnp.float32(1.5),
            learning_rate=0.1,
            estimator=estimator,
            num_steps=3,
            batch_stats=first,
            stats_update="carried",
        )
        for estimator in ("reverse", "mixed")
    ]
    np.testing.assert_allclose(*found, rtol=1e-5)


def test_central_differences_move_what_a_small_step_would_not_and_leave_infinity_alone():
    def slope(m, **options):
        return meta.meta_gradient(
            lambda w, m: w * jnp.sum(jnp.where(jnp.isinf(m), 0, m)),
            lambda w: w,
            jnp.float32(0),
            m,
            learning_rate=1.0,
            estimator="finite_difference",
            **options,
        )

    # 1e4 has roundings of 1e-3.
    np.testing.assert_allclose(slope(jnp.float32(1e4), epsilon=1e-4), -1, rtol=0.01)
    np.testing.assert_allclose(slope(jnp.array([2.0, -jnp.inf]))[0], -1, rtol=1e-3)


@pytest.mark.parametrize("estimator", ["forward", "finite_difference"])
def test_memory_of_one_direction_at_a_time_does_not_grow_with_their_square(estimator):
    size = 2000

    def slopes(m):
        return meta.meta_gradient(
            lambda w, m: w * jnp.sum(m),
            lambda w: w,
            jnp.float32(0),
            m,
            learning_rate=1.0,
            estimator=estimator,
            chunk_size=1,
        )

    compiled = jax.jit(slopes).lower(jnp.ones(size)).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 100 * 4 * size
    np.testing.assert_allclose(compiled(jnp.ones(size)), -1, rtol=0.05)


class ConvolutionalNetwork(nn.Module):
    """Two convolutions with batch norm, one score."""

    @nn.compact
    def __call__(self, x, train):
        for _ in range(2):
            x = nn.Conv(3, (3, 3), use_bias=False, dtype=x.dtype)(x)
            x = nn.BatchNorm(use_running_average=not train, momentum=0.5, dtype=x.dtype)(x)
            x = nn.softplus(x)
        return nn.Dense(1, dtype=x.dtype)(x.mean((1, 2)))[:, 0]


@pytest.fixture(scope="module")
def convolutional():
    """Losses of the network, its variables in float64, and meta-parameters."""
    rng = np.random.default_rng(0)
    x, x_clean = rng.normal(size=(2, 6, 5, 5, 2))
    y, y_clean = rng.random(6), np.array([1.0, 0, 1, 1, 0, 0])
    network = ConvolutionalNetwork()
    with x64():
        variables = network.init(jax.random.key(0), jnp.asarray(x), True)
        variables = jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, np.float64), variables)

    def inner(params, options, *, batch_stats):
        given = {"params": params, "batch_stats": batch_stats}
        scores, changed = network.apply(given, x, True, mutable=["batch_stats"])
        decay = sum(jnp.sum(leaf**2) for leaf in jax.tree_util.tree_leaves(params))
        loss = meta.balanced_bce(scores / options["temperature"], y) + options["decay"] * decay
        return loss, changed["batch_stats"]

    def outer(params, *, batch_stats):
        scores = network.apply({"params": params, "batch_stats": batch_stats}, x_clean, False)
        return meta.balanced_bce(scores, y_clean)

    return inner, outer, variables, {"temperature": np.float64(0.8), "decay": np.float64(0.05)}


@thorough
def test_every_exact_estimator_matches_central_differences_on_a_convolutional_network(
    convolutional,
):
    inner, outer, variables, options = convolutional
    optimizer = optax.sgd(0.2, momentum=0.9)

    def steps(options):
        params, stats = variables["params"], variables["batch_stats"]
        state = optimizer.init(params)
        for _ in range(2):
            slopes, stats = jax.grad(inner, has_aux=True)(params, options, batch_stats=stats)
            updates, state = optimizer.update(slopes, state, params)
            params = optax.apply_updates(params, updates)
        return params, stats

    with x64():
        run, judge = jax.jit(steps), jax.jit(lambda params, stats: outer(params, batch_stats=stats))
        _, stats_here = run(options)
        differences = {"carried": {}, "stopped": {}, "frozen": {}}
        for name in options:
            ends = [run(options | {name: options[name] + h}) for h in (1e-5, -1e-5)]
            # The steps look at the batch only, so the three treatments differ in the end alone.
            for update, stats in {
                "carried": [stats for _, stats in ends],
                "stopped": [stats_here] * 2,
                "frozen": [variables["batch_stats"]] * 2,
            }.items():
                above, below = (judge(p, s) for (p, _), s in zip(ends, stats, strict=True))
                differences[update][name] = (above - below) / 2e-5
        for estimator, update, rolled in [
            ("reverse", "carried", False),
            ("mixed", "carried", False),
            ("mixed", "stopped", True),
            ("reverse", "frozen", False),
            ("forward", "carried", False),
            ("finite_difference", "carried", False),
        ]:
            found = jax.jit(
                lambda options, e=estimator, u=update, r=rolled: meta.meta_gradient(
                    inner,
                    outer,
                    variables["params"],
                    options,
                    optimizer=optimizer,
                    num_steps=2,
                    estimator=e,
                    batch_stats=variables["batch_stats"],
                    stats_update=u,
                    rolled=r,
                )
            )(options)
            for name, wanted in differences[update].items():
                # Rounding of the outer loss over the width: about 1e-11.
                np.testing.assert_allclose(found[name], wanted, rtol=1e-6, err_msg=estimator)
        assert abs(differences["carried"]["decay"] / differences["stopped"]["decay"] - 1) > 1e-3
        assert abs(differences["frozen"]["decay"] / differences["stopped"]["decay"] - 1) > 1e-3


# --- one program, and its memory


def integer_problem(estimator, *, rolled=True, **options):
    """A function of integer images and labels, which the inner loss closes over."""

    def of_data(images, labels, masses):
        def inner(w, m, *, key):
            scores = images.astype(jnp.float64) @ w + 0.1 * jax.random.normal(key, labels.shape)
            return jnp.mean(m * jax.nn.softplus(jnp.where(labels > 0, -scores, scores)))

        return meta.meta_gradient(
            inner,
            lambda w: jnp.sum(w**2),
            jnp.ones(3),
            masses,
            optimizer=optax.sgd(0.1, momentum=0.9),
            num_steps=3,
            key=jax.random.key(0),
            randomness="fresh",
            rolled=rolled,
            estimator=estimator,
            **options,
        )

    return of_data


def integer_data(seeds):
    rng = np.random.default_rng(3)
    images = rng.integers(0, 5, (seeds, 8, 3), dtype=np.uint8)
    return images, rng.integers(0, 2, (seeds, 8)), rng.random((seeds, 8))


@pytest.mark.parametrize("segment", [None, pytest.param(2, marks=thorough)])
def test_mixed_mode_is_reverse_mode_in_a_loop_that_closes_over_mapped_integers(segment):
    data = integer_data(2)
    with x64():
        mixed, reverse = (
            jax.jit(jax.vmap(integer_problem(e, segment=segment)))(*data)
            for e in ("mixed", "reverse")
        )
    np.testing.assert_allclose(mixed, reverse, rtol=1e-12)


@thorough
def test_mixed_mode_has_the_derivative_of_reverse_mode():
    images, labels, masses = (part[0] for part in integer_data(1))
    with x64():
        slopes = [
            jax.grad(lambda s, e=e: jnp.sum(integer_problem(e)(images * s, labels, masses) ** 2))(
                1.5
            )
            for e in ("mixed", "reverse")
        ]
    assert abs(float(slopes[0])) > 1e-6
    np.testing.assert_allclose(*slopes, rtol=1e-10)


def compiled_memory(estimator, num_steps, segment=None, rolled=True):
    """Bytes of temporary arrays; a batch of 256 makes activations far larger than parameters."""
    x = np.random.default_rng(0).normal(size=(256, 8)).astype(np.float32)
    params = [np.full((8, 8), 0.1, np.float32)] * 3

    def inner(params, m):
        hidden = x
        for kernel in params:
            hidden = jax.nn.softplus(hidden @ kernel)
        return jnp.mean(m * jnp.sum(hidden, axis=1))

    def of_meta(m):
        return meta.meta_gradient(
            inner,
            lambda params: sum(jnp.sum(kernel**2) for kernel in params),
            params,
            m,
            learning_rate=0.1,
            num_steps=num_steps,
            estimator=estimator,
            segment=segment,
            rolled=rolled,
        )

    compiled = jax.jit(of_meta).lower(np.ones(256, np.float32)).compile()
    return compiled.memory_analysis().temp_size_in_bytes


@thorough
def test_memory_of_sixteen_steps_is_bounded_by_segments_and_in_mixed_mode():
    everything, few = compiled_memory("reverse", 16), compiled_memory("reverse", 4)
    assert everything > 3 * few  # it grows with the steps
    # Four segments of four steps: one segment's activations, and the parameters between them.
    parameters = 16 * 3 * 64 * 4
    assert compiled_memory("reverse", 16, segment=4) < 1.2 * few + parameters
    mixed = compiled_memory("mixed", 16)
    assert mixed < everything / 4
    assert mixed < 1.1 * compiled_memory("mixed", 4) + parameters


@thorough
def test_batch_statistics_of_an_nnx_module_are_differentiated():
    """As docs/meta_gradients.md says: split off, merged as a copy, and returned."""

    class Net(nnx.Module):
        def __init__(self, rngs):
            self.norm = nnx.BatchNorm(2, momentum=0.5, rngs=rngs)
            self.head = nnx.Linear(2, 1, rngs=rngs)

        def __call__(self, x):
            return self.head(self.norm(x))[:, 0]

    with x64():
        net = Net(nnx.Rngs(0))
        graph, *parts = nnx.split(net, nnx.Param, nnx.BatchStat)
        params, stats = jax.tree.map(lambda leaf: jnp.asarray(leaf, jnp.float64), tuple(parts))
        x = np.random.default_rng(0).normal(size=[6, 2])
        labels = np.array([1, 0, 1, 0.5, 0.2, 0.7])

        def inner(params, labels, *, batch_stats):
            merged = nnx.merge(graph, params, batch_stats, copy=True)
            return meta.balanced_bce(merged(x), labels), nnx.state(merged, nnx.BatchStat)

        def outer(params, *, batch_stats):
            merged = nnx.merge(graph, params, batch_stats, copy=True)
            merged.eval()
            return meta.balanced_bce(merged(x), (labels > 0.5) * 1.0)

        def after(labels):
            moved, kept = params, stats
            for _ in range(2):
                slope, kept = jax.grad(
                    lambda p, kept=kept: inner(p, labels, batch_stats=kept), has_aux=True
                )(moved)
                moved = jax.tree.map(lambda a, b: a - 0.1 * b, moved, slope)
            return outer(moved, batch_stats=kept)

        steps = {"learning_rate": 0.1, "num_steps": 2}
        found = meta.meta_gradient(
            inner, outer, params, labels, **steps, batch_stats=stats, stats_update="carried"
        )
        differences = [(after(labels + d) - after(labels - d)) / 2e-5 for d in 1e-5 * np.eye(6)]
        np.testing.assert_allclose(found, differences, rtol=1e-5, atol=1e-9)
