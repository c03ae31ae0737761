"""Bi-level updates: closed forms, finite differences, frozen leaves, and the label rules."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import meta
from tests.x64 import x64

LN3 = float(np.log(3.0))


def naive_balanced_bce(scores, columns, clip=1e-4):
    """The definition in plain numpy, one class and one example at a time."""
    probability = 1 / (1 + np.exp(-np.asarray(scores)))
    total = 0.0
    for c, p in enumerate([1 - probability, probability]):
        losses = [-np.log(min(max(v, clip), 1 - clip)) for v in p]
        total += (
            sum(y * v for y, v in zip(columns[:, c], losses, strict=True)) / columns[:, c].sum()
        )
    return total


def soft_batch(seed=0, size=7):
    rng = np.random.default_rng(seed)
    return 2 * rng.normal(size=size), rng.random(size)


def is_kernel(path):
    return path[-1].key == "kernel"


def linear_problem(seed=0):
    """A linear head on fixed features: params, training and support data."""
    rng = np.random.default_rng(seed)
    params = {"head": {"kernel": rng.normal(size=3), "bias": rng.normal()}}
    data = {"x": rng.normal(size=(6, 3)), "y": rng.random(6)}
    support = {"x": rng.normal(size=(5, 3)), "y": np.array([1.0, 0, 1, 0, 0])}
    return params, data, support


def head_scores(params, features):
    return features @ params["head"]["kernel"] + params["head"]["bias"]


# --- balanced_bce


def test_balanced_bce_matches_a_batch_worked_by_hand():
    # sigmoid(ln 3) = 3/4: positives weigh 1 and 1/2, negatives 0 and 1/2.
    # Positive class: (1 * log(4/3) + 1/2 * log 2) / 1.5; negative class: (1/2 * log 2) / 0.5.
    expected = (np.log(4 / 3) + np.log(2) / 2) / 1.5 + np.log(2)
    with x64():
        value = jax.jit(meta.balanced_bce)(np.array([LN3, 0.0]), np.array([1.0, 0.5]))
        np.testing.assert_allclose(value, expected, rtol=1e-14)


@pytest.mark.parametrize("clip", [1e-4, 0.2, 0.0])
def test_balanced_bce_matches_the_naive_version(clip):
    scores, labels = soft_batch()
    scores[:2] = 11.0, -12.0
    columns = np.random.default_rng(1).random((7, 2))
    with x64():
        one_column = jax.jit(meta.balanced_bce)(scores, labels, clip=clip)
        two_columns = jax.jit(meta.balanced_bce)(scores, columns, clip=clip)
    expected = naive_balanced_bce(scores, np.stack([1 - labels, labels], axis=1), clip)
    np.testing.assert_allclose(one_column, expected, rtol=1e-11)
    np.testing.assert_allclose(two_columns, naive_balanced_bce(scores, columns, clip), rtol=1e-11)


def test_balanced_bce_weighs_both_classes_alike():
    loss = jax.jit(meta.balanced_bce)
    with x64():
        few = loss(np.array([1.0, -1, -2]), np.array([1.0, 0, 0]))
        scores, labels = np.array([1.0] * 9 + [-1, -2]), np.array([1.0] * 9 + [0, 0])
        np.testing.assert_allclose(loss(scores, labels), few, rtol=1e-14)


def test_balanced_bce_gradients_match_finite_differences():
    scores, labels = soft_batch(seed=2)
    columns = np.stack([1 - labels, labels], axis=1)
    columns[:, 0] += 0.3
    with x64():
        for argument, values in enumerate((scores, columns)):
            arguments = [scores, columns]

            def loss(flat, argument=argument, arguments=arguments, shape=values.shape):
                arguments = list(arguments)
                arguments[argument] = flat.reshape(shape)
                return meta.balanced_bce(*arguments)

            steps = 1e-6 * np.eye(values.size)
            mapped = jax.jit(jax.vmap(loss))
            upper, lower = (mapped(values.ravel() + s) for s in (steps, -steps))
            gradient = jax.jit(jax.grad(loss))(values.ravel())
            # Central differences: rounding / step is the larger error, about 1e-10.
            np.testing.assert_allclose(gradient, (upper - lower) / 2e-6, atol=1e-8)


def test_one_column_moves_mass_between_both_columns():
    scores, labels = soft_batch()
    columns = np.stack([1 - labels, labels], axis=1)
    gradient = jax.jit(jax.grad(meta.balanced_bce, argnums=1))
    with x64():
        by_column, by_label = map(np.asarray, (gradient(scores, columns), gradient(scores, labels)))
        np.testing.assert_allclose(by_label, by_column[:, 1] - by_column[:, 0], rtol=1e-12)


@pytest.mark.thorough
def test_gradient_vanishes_outside_the_clip_and_passes_at_its_boundary():
    with x64():
        # The clip begins at a score of log(0.9999 / 0.0001) = 9.2102.
        gradient = jax.grad(meta.balanced_bce)(np.array([9.22, -9.22, 9.2, -9.2]), np.full(4, 0.5))
        np.testing.assert_array_equal(np.asarray(gradient) == 0, [True, True, False, False])
        # A score of 0 has probability 1/2 exactly, which is both limits of the clip 1/2: the whole
        # gradient sigmoid(z) - y passes.
        at_limit = jax.grad(meta.balanced_bce)(np.array([0.0, 1.0]), np.array([1.0, 1.0]), clip=0.5)
        np.testing.assert_allclose(at_limit, [-0.25, 0], rtol=1e-14)


@pytest.mark.parametrize("labels", [[0.0, 0, 0], [1.0, 1, 1], [0.0], [1.0], []])
def test_a_class_without_mass_drops_its_term(labels):
    labels = np.array(labels)
    scores = np.linspace(-1, 2, labels.size)
    loss = jax.jit(jax.value_and_grad(meta.balanced_bce, argnums=(0, 1)))
    value, (score_gradient, label_gradient) = loss(scores, labels)
    assert np.isfinite(score_gradient).all() and np.isfinite(label_gradient).all()
    signs = 2 * labels - 1
    expected = np.mean(np.logaddexp(0, -signs * scores)) if labels.size else 0
    np.testing.assert_allclose(value, expected, rtol=1e-6)


def test_balanced_bce_is_stable_in_float32():
    scores, labels = np.array([60.0, -60, 60, -60, 0.1]), np.array([1.0, 0, 0, 1, 0.4])
    value, gradient = jax.value_and_grad(meta.balanced_bce)(scores, labels)
    assert value.dtype == jnp.float32
    with x64():
        exact, exact_gradient = jax.value_and_grad(meta.balanced_bce)(scores, labels)
    np.testing.assert_allclose(value, exact, rtol=1e-6)
    np.testing.assert_allclose(gradient, exact_gradient, rtol=1e-6)
    unclipped, gradient = jax.value_and_grad(meta.balanced_bce)(scores, labels, clip=0.0)
    assert np.isfinite(unclipped) and np.isfinite(gradient).all()


@pytest.mark.thorough
def test_balanced_bce_computes_bfloat16_in_float32_maps_and_keeps_nan_visible():
    scores, labels = (jnp.asarray(v, jnp.bfloat16) for v in soft_batch())
    value = meta.balanced_bce(scores, labels)
    assert value.dtype == jnp.float32
    exact = meta.balanced_bce(scores.astype(jnp.float32), labels.astype(jnp.float32))
    np.testing.assert_array_equal(value, exact)
    mapped = jax.vmap(meta.balanced_bce)(jnp.stack([scores, -scores]), jnp.stack([labels, labels]))
    np.testing.assert_allclose(mapped[0], exact, rtol=1e-6)
    assert np.isnan(meta.balanced_bce(scores.at[0].set(jnp.nan), labels))


# --- virtual_step


def test_virtual_step_is_a_plain_gradient_step():
    params, data, _ = linear_problem()
    with x64():

        def loss(tree):
            return meta.balanced_bce(head_scores(tree, data["x"]), data["y"])

        gradient = jax.grad(loss)(params)
        expected = jax.tree_util.tree_map(lambda w, g: w - 0.3 * g, params, gradient)
        stepped = jax.jit(lambda tree: meta.virtual_step(loss, tree, learning_rate=0.3))(params)
        jax.tree_util.tree_map(
            lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-14), stepped, expected
        )


def test_only_trainable_leaves_move_and_the_others_stay_bit_identical():
    params, data, _ = linear_problem()
    params = jax.tree_util.tree_map(lambda leaf: jnp.asarray(leaf, jnp.float32), params)
    params["head"]["count"] = jnp.array(7)
    params["body"] = [jnp.full(2, 0.1, jnp.bfloat16), jax.random.key(0)]

    def loss(tree):
        fitted = meta.balanced_bce(head_scores(tree, data["x"]), data["y"])
        return fitted + jnp.sum(tree["body"][0].astype(jnp.float32) ** 2)

    stepped = meta.virtual_step(
        loss,
        params,
        learning_rate=0.1,
        trainable=lambda path: path[-1] == jax.tree_util.DictKey("kernel"),
    )
    assert not np.allclose(stepped["head"]["kernel"], params["head"]["kernel"])
    for before, after in [
        (params["head"]["bias"], stepped["head"]["bias"]),
        (params["head"]["count"], stepped["head"]["count"]),
        (params["body"][0], stepped["body"][0]),
        (params["body"][1], stepped["body"][1]),
    ]:
        assert after is before

    everything = meta.virtual_step(loss, params, learning_rate=0.1)
    assert everything["head"]["count"] is params["head"]["count"]
    assert everything["body"][0].dtype == jnp.float32
    # The gradient of 2 * 0.1 (in bfloat16) moves 0.1 by 2 percent of itself times 10.
    start = float(params["body"][0][0])
    np.testing.assert_allclose(everything["body"][0], start * (1 - 0.2), rtol=1e-6)


def test_frozen_leaves_are_constants_of_the_inner_derivative():
    @jax.custom_vjp
    def body(frozen):
        return frozen**2

    def differentiated(frozen):
        raise AssertionError("the frozen part was differentiated")

    body.defvjp(differentiated, lambda _, cotangent: (cotangent,))
    params = {"kernel": jnp.array(2.0), "frozen": jnp.array(3.0)}
    stepped = meta.virtual_step(
        lambda tree: tree["kernel"] * body(tree["frozen"]),
        params,
        learning_rate=0.5,
        trainable=is_kernel,
    )
    assert float(stepped["kernel"]) == 2 - 0.5 * 9


def test_the_step_is_differentiable_in_frozen_leaves():
    def kernel_after_step(frozen):
        stepped = meta.virtual_step(
            lambda tree: tree["kernel"] * tree["frozen"] ** 2,
            {"kernel": jnp.array(2.0), "frozen": frozen},
            learning_rate=0.5,
            trainable=is_kernel,
        )
        return stepped["kernel"]

    assert float(jax.grad(kernel_after_step)(3.0)) == -0.5 * 2 * 3


def test_selecting_nothing_is_refused():
    params = {"kernel": jnp.ones(2), "count": jnp.array(1)}
    for trainable in (lambda path: False, lambda path: path[-1].key == "count"):
        with pytest.raises(ValueError, match=r"trainable selects no .*\['kernel'\]"):
            meta.virtual_step(
                lambda tree: jnp.sum(tree["kernel"]), params, learning_rate=1.0, trainable=trainable
            )


def test_derivatives_through_the_step_match_a_quadratic_solved_by_hand():
    # inner = k w^2 / 2, so w' = (1 - a k) w; outer = w'^2 / 2.
    # d outer/da = -k w w', d2 outer/da2 = (k w)^2, d outer/dw = (1 - a k) w', d2 outer/da dk below.
    w, k, a = 1.5, 0.8, 0.3

    def outer(rate, curvature, weight):
        stepped = meta.virtual_step(
            lambda tree: curvature * tree["w"] ** 2 / 2, {"w": weight}, learning_rate=rate
        )
        return stepped["w"] ** 2 / 2

    with x64():
        arguments = (np.float64(a), np.float64(k), np.float64(w))
        stepped = (1 - a * k) * w
        gradient = jax.jit(jax.grad(outer, argnums=(0, 1, 2)))(*arguments)
        expected = (-k * w * stepped, -a * w * stepped, (1 - a * k) * stepped)
        np.testing.assert_allclose(gradient, expected, rtol=1e-13)
        second, mixed = jax.jit(jax.grad(jax.grad(outer), argnums=(0, 1)))(*arguments)
        np.testing.assert_allclose(second, (k * w) ** 2, rtol=1e-13)
        np.testing.assert_allclose(mixed, -w * stepped + a * k * w**2, rtol=1e-13)


def test_learning_a_learning_rate_over_two_nested_steps_matches_finite_differences():
    params, data, support = linear_problem(seed=5)

    def after_two_steps(rate):
        def inner(tree):
            return meta.balanced_bce(head_scores(tree, data["x"]), data["y"])

        tree = meta.virtual_step(inner, params, learning_rate=rate)
        tree = meta.virtual_step(inner, tree, learning_rate=rate, trainable=is_kernel)
        return meta.balanced_bce(head_scores(tree, support["x"]), support["y"])

    def first_two_derivatives(rate):
        return jax.value_and_grad(jax.grad(after_two_steps))(rate)

    with x64():
        slope, curvature = jax.jit(first_two_derivatives)(0.4)
        values = jax.jit(jax.vmap(after_two_steps))(0.4 + np.array([1e-4, 0.0, -1e-4]))
        # Truncation and rounding of central differences at this step: below 1e-7 and 1e-5.
        np.testing.assert_allclose(slope, (values[0] - values[2]) / 2e-4, rtol=1e-6)
        curvature_estimate = (values[0] - 2 * values[1] + values[2]) / 1e-8
        np.testing.assert_allclose(curvature, curvature_estimate, rtol=1e-4)


# --- meta_gradient


def closed_form_label_gradient(params, data, support, rate, clip=1e-4):
    """LaGAM's label gradient without automatic differentiation (only the kernel moves)."""

    def sigmoid(z):
        return 1 / (1 + np.exp(-z))

    def unit_slopes(z):
        live = (sigmoid(z) >= clip) & (sigmoid(z) <= 1 - clip)
        return np.stack([sigmoid(z), sigmoid(z) - 1], axis=1) * live[:, None]

    def columns(y):
        return np.stack([1 - y, y], axis=1)

    kernel, bias = params["head"]["kernel"], params["head"]["bias"]
    y = columns(data["y"])
    u = unit_slopes(data["x"] @ kernel + bias)
    mass = y.sum(axis=0)
    mean_gradient = (y * u / mass).T @ data["x"]  # [2, dim]
    stepped = kernel - rate * mean_gradient.sum(axis=0)
    y_support = columns(support["y"])
    u_support = unit_slopes(support["x"] @ stepped + bias)
    v = ((y_support * u_support / y_support.sum(axis=0)).sum(axis=1)) @ support["x"]
    along = u * (data["x"] @ v)[:, None]
    return -rate * (along - mean_gradient @ v) / mass


def autograd_label_gradient(params, data, support, rate):
    columns = jnp.stack([1 - data["y"], data["y"]], axis=1)
    return meta.meta_gradient(
        lambda tree, labels: meta.balanced_bce(head_scores(tree, data["x"]), labels),
        lambda tree: meta.balanced_bce(head_scores(tree, support["x"]), support["y"]),
        params,
        columns,
        learning_rate=rate,
        trainable=is_kernel,
    )


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("rate", [1e-3, 1.0])
def test_label_gradient_equals_lagams_closed_form(seed, rate):
    params, data, support = linear_problem(seed)
    if seed == 3:
        # Features far out saturate some scores, where the clip is active.
        data["x"][:2] *= 30
        support["x"][1] *= 30
    expected = closed_form_label_gradient(params, data, support, rate)
    with x64():
        gradient = jax.jit(autograd_label_gradient)(params, data, support, rate)
        scale = np.abs(expected).max()
        np.testing.assert_allclose(gradient / scale, expected / scale, atol=1e-10)


def test_label_gradient_matches_finite_differences_for_a_dict_of_meta_parameters():
    params, data, support = linear_problem(seed=1)
    with x64():
        rng = np.random.default_rng(0)
        meta_params = {"weights": rng.random(6), "log_temperature": np.float64(0.2)}

        def inner(tree, options):
            scores = head_scores(tree, data["x"]) / jnp.exp(options["log_temperature"])
            return jnp.mean(options["weights"] * (scores - data["y"]) ** 2)

        def outer(tree):
            return meta.balanced_bce(head_scores(tree, support["x"]), support["y"])

        @jax.jit
        def after_step(options):
            stepped = meta.virtual_step(lambda t: inner(t, options), params, learning_rate=0.2)
            return outer(stepped)

        gradient = meta.meta_gradient(inner, outer, params, meta_params, learning_rate=0.2)
        assert jax.tree_util.tree_structure(gradient) == jax.tree_util.tree_structure(meta_params)
        step = 1e-6
        for i in range(6):
            moved = [
                meta_params | {"weights": meta_params["weights"] + h * (np.arange(6) == i)}
                for h in (step, -step)
            ]
            slope = (after_step(moved[0]) - after_step(moved[1])) / (2 * step)
            np.testing.assert_allclose(gradient["weights"][i], slope, atol=1e-8)
        moved = [
            meta_params | {"log_temperature": meta_params["log_temperature"] + h}
            for h in (step, -step)
        ]
        slope = (after_step(moved[0]) - after_step(moved[1])) / (2 * step)
        np.testing.assert_allclose(gradient["log_temperature"], slope, atol=1e-8)
        assert abs(float(slope)) > 1e-3


def test_meta_gradient_is_the_two_line_version():
    params, data, support = linear_problem(seed=2)

    def inner(tree, labels):
        return meta.balanced_bce(head_scores(tree, data["x"]), labels)

    def outer(tree):
        return meta.balanced_bce(head_scores(tree, support["x"]), support["y"])

    def two_lines(labels):
        gradient = jax.grad(inner)(params, labels)
        return outer(jax.tree_util.tree_map(lambda w, g: w - 0.1 * g, params, gradient))

    with x64():
        gradient = meta.meta_gradient(inner, outer, params, data["y"], learning_rate=0.1)
        wanted = jax.jit(jax.grad(two_lines))(data["y"])
        np.testing.assert_allclose(gradient, wanted, rtol=1e-12)


def test_meta_gradient_worked_by_hand():
    # inner = sum_i m_i (w - x_i)^2 / 2, so w' = w - a sum m_i (w - x_i); outer = w' gives
    # d outer / d m_i = -a (w - x_i).
    points = np.array([1.0, -2.0, 0.5])
    with x64():
        gradient = meta.meta_gradient(
            lambda w, masses: jnp.sum(masses * (w - points) ** 2) / 2,
            lambda w: w,
            np.float64(3.0),
            np.ones(3),
            learning_rate=0.1,
        )
        np.testing.assert_allclose(gradient, [-0.2, -0.5, -0.25], rtol=1e-13)


def test_meta_gradient_maps_over_meta_parameters_and_is_float32_for_bfloat16():
    params, data, support = linear_problem()
    params = jax.tree_util.tree_map(lambda leaf: np.asarray(leaf, jnp.bfloat16), params)
    labels = np.asarray(data["y"], jnp.bfloat16)

    def label_gradient(y):
        return meta.meta_gradient(
            lambda tree, m: meta.balanced_bce(head_scores(tree, data["x"]), m),
            lambda tree: meta.balanced_bce(head_scores(tree, support["x"]), support["y"]),
            params,
            y,
            learning_rate=1e-3,
        )

    gradient = jax.jit(label_gradient)(labels)
    assert gradient.dtype == jnp.float32
    mapped = jax.jit(jax.vmap(label_gradient))(np.stack([labels, 1 - labels]))
    # Compilation reorders float32 sums; the gradient itself is of the order 1e-4.
    np.testing.assert_allclose(mapped[0], gradient, atol=1e-9)
    assert not np.allclose(mapped[1], gradient, atol=1e-6)


# --- label rules


def test_labels_follow_the_steeper_column_and_ties_and_nan_give_zero():
    nan = np.nan
    gradient = np.array([[0.1, -0.2], [-0.3, -0.2], [0.5, 0.5], [nan, -1], [1, nan], [nan, nan]])
    for project in (meta.project_labels, jax.jit(meta.project_labels)):
        np.testing.assert_array_equal(project(gradient), [1, 0, 0, 0, 0, 0])
        single = np.array([-0.1, 0.1, 0.0, nan], np.float32)
        np.testing.assert_array_equal(project(single), [1, 0, 0, 0])
    assert meta.project_labels(gradient).dtype == jnp.float32
    with x64():
        assert meta.project_labels(gradient).dtype == jnp.float64
    np.testing.assert_array_equal(
        jax.vmap(meta.project_labels)(np.stack([gradient, -gradient]))[:, :2], [[1, 0], [0, 1]]
    )


def test_projection_agrees_for_one_and_two_columns():
    scores, labels = soft_batch()
    columns = np.stack([1 - labels, labels], axis=1)
    gradient = jax.jit(jax.grad(meta.balanced_bce, argnums=1))
    two, one = gradient(scores, columns), gradient(scores, labels)
    projected = meta.project_labels(two)
    np.testing.assert_array_equal(projected, meta.project_labels(one))
    assert 0 < projected.sum() < 7


def test_ema_moves_towards_the_targets_and_pins_known_positives():
    labels, targets = np.array([0.5, 0.5, 0.25, 1.0]), np.array([1.0, 0, 0, 0])
    pinned = np.array([False, False, True, True])
    for update in (meta.ema_labels, jax.jit(meta.ema_labels)):
        new = update(labels, targets, rho=0.9, pinned=pinned)
        np.testing.assert_allclose(new[:2], [0.55, 0.45], rtol=1e-6)
        np.testing.assert_array_equal(new[2:], 1)
    assert new.dtype == jnp.float32
    # Many updates towards 0 never wear a pinned label down.
    for _ in range(50):
        new = update(new, np.zeros(4), rho=0.8, pinned=pinned)
    np.testing.assert_array_equal(new[2:], 1)
    assert np.all(new[:2] < 1e-4)


def test_wrong_shapes_are_named():
    with pytest.raises(ValueError, match=r"\(3,\) and \(3, 3\)"):
        meta.balanced_bce(np.zeros(3), np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"\(3, 1\) and \(3,\)"):
        meta.balanced_bce(np.zeros((3, 1)), np.zeros(3))
    with pytest.raises(ValueError, match=r"scores must be \[batch\] .* \(3, 3\) and \(3, 3\)"):
        meta.balanced_bce(np.zeros((3, 3)), np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"label_gradient has shape \(3, 2, 2\)"):
        meta.project_labels(np.zeros((3, 2, 2)))
    with pytest.raises(ValueError, match=r"label_gradient has shape \(3, 3\)"):
        meta.project_labels(np.zeros((3, 3)))
    with pytest.raises(ValueError, match=r"\(3,\), \(3,\) and \(2,\)"):
        meta.ema_labels(np.zeros(3), np.zeros(3), rho=0.9, pinned=np.zeros(2))


@pytest.mark.parametrize("pinned", [None, "ab", ["x", "y", "z"], [1j, 0, 1], [[1], [0, 1]]])
def test_what_does_not_say_which_labels_are_pinned_is_named(pinned):
    with pytest.raises(ValueError, match="pinned is .*; accepted: an array of real numbers"):
        meta.ema_labels(np.zeros(3), np.zeros(3), rho=0.9, pinned=pinned)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ("abc", "the type of params is 'str'"),
        ({"a": np.ones(2), "b": "abc"}, r"the type of params\['b'\] is 'str'"),
        ({"a": np.ones(2), "b": object()}, r"the type of params\['b'\] is 'object'"),
        ([np.ones(2), np.array([None])], r"the type of params\[1\] is 'ndarray of object'"),
        ([np.ones(2), np.array(["a"])], r"the type of params\[1\] is 'ndarray of <U1'"),
    ],
)
def test_parameters_that_are_no_arrays_are_named(params, message):
    def never(*args):
        raise AssertionError("the loss was asked for")

    with pytest.raises(ValueError, match=f"{message}; accepted: an array of numbers"):
        meta.virtual_step(never, params, learning_rate=0.1)
    with pytest.raises(ValueError, match=f"{message}; accepted: an array of numbers"):
        meta.meta_gradient(never, never, params, np.ones(2), learning_rate=0.1)


@pytest.mark.parametrize("loss", [None, "ab"])
def test_a_loss_that_is_no_function_is_named(loss):
    said = f"{loss!r}; accepted: a function that returns a scalar loss"
    with pytest.raises(ValueError, match=f"inner_loss is {said}"):
        meta.virtual_step(loss, np.ones(2), learning_rate=0.1)
    with pytest.raises(ValueError, match=f"inner_loss is {said}"):
        meta.meta_gradient(loss, np.sum, np.ones(2), np.ones(2), learning_rate=0.1)
    with pytest.raises(ValueError, match=f"outer_loss is {said}"):
        meta.meta_gradient(np.dot, loss, np.ones(2), np.ones(2), learning_rate=0.1)


def test_soft_labels_take_one_memory_for_all_or_one_for_each():
    labels, targets, pinned = (
        np.array([0.5, 0.2, 0.8]),
        np.array([1.0, 0.0, 0.0]),
        np.zeros(3, bool),
    )
    rho = np.array([0.9, 0.5, 0.0])
    found = meta.ema_labels(labels, targets, rho=rho, pinned=pinned)
    np.testing.assert_allclose(found, rho * labels + (1 - rho) * targets, rtol=1e-6)
    with pytest.raises(ValueError, match=r"rho has shape \(3, 1\), but must be a single number or"):
        meta.ema_labels(labels, targets, rho=rho[:, None], pinned=pinned)


@pytest.mark.parametrize("value", [-0.1, 0.6, 1.5, np.nan, "small"])
def test_a_clip_out_of_range_is_refused(value):
    with pytest.raises(ValueError, match=r"clip is .*\[0, 0.5\]"):
        meta.balanced_bce(np.zeros(2), np.ones(2), clip=value)


@pytest.mark.parametrize("value", [-0.1, 2.0, np.nan])
def test_a_share_of_old_labels_out_of_range_is_refused(value):
    with pytest.raises(ValueError, match=r"rho is .*\[0, 1\]"):
        meta.ema_labels(np.zeros(2), np.ones(2), rho=value, pinned=np.zeros(2, bool))


@pytest.mark.parametrize("rate", [None, "fast", np.ones(3), -0.1, np.nan])
def test_a_step_size_that_is_none_is_refused(rate):
    with pytest.raises(ValueError, match="learning_rate is"):
        meta.virtual_step(lambda w: w["b"] ** 2, {"b": jnp.ones([])}, learning_rate=rate)


def test_labels_that_a_loop_carries_keep_their_type_whatever_that_of_rho():
    with x64():
        labels, targets = np.float32([0.25, 0.5]), np.float32([0, 0])
        pinned = np.array([False, True])

        def step(labels, rho):
            return meta.ema_labels(labels, targets, rho=rho, pinned=pinned), None

        moved, _ = jax.lax.scan(step, labels, np.array([0.5, 0.5]))
        assert moved.dtype == np.float32
        np.testing.assert_array_equal(moved, [0.0625, 1])
        assert step(labels, np.float64(0.5))[0].dtype == np.float32


def test_a_step_of_a_wider_type_leaves_the_type_of_the_leaves():
    with x64():
        params = {"b": jnp.ones([], jnp.float32)}
        rate = jnp.asarray(0.25, jnp.float64)
        moved = meta.virtual_step(lambda w: w["b"] ** 2, params, learning_rate=rate)
        assert moved["b"].dtype == jnp.float32 and float(moved["b"]) == 0.5

        def types(*, rolled):
            estimate = meta.meta_gradient(
                lambda w, shift: (w["b"] - shift) ** 2,
                lambda w: w["b"] ** 2,
                params,
                jnp.float32(0.5),
                learning_rate=rate,
                num_steps=2,
                rolled=rolled,
            )
            return jax.tree_util.tree_map(jnp.result_type, estimate)

        assert types(rolled=False) == types(rolled=True)


def test_a_clip_of_zero_has_a_slope_and_takes_infinite_scores():
    """Nothing is clipped at 0, so that a slightly larger one changes nothing; inf costs 0 there."""
    scores, labels = jnp.array([1.0, -2.0]), jnp.array([1.0, 0.0])
    value, slope = jax.value_and_grad(lambda clip: meta.balanced_bce(scores, labels, clip=clip))(
        0.0
    )
    np.testing.assert_allclose(value, np.log1p(np.exp(-1)) + np.log1p(np.exp(-2)), rtol=1e-6)
    assert slope == 0
    certain = functools.partial(meta.balanced_bce, jnp.array([jnp.inf, -2.0]), clip=0.0)
    np.testing.assert_allclose(certain(labels), np.log1p(np.exp(-2)), rtol=1e-6)
    both = functools.partial(meta.balanced_bce, jnp.array([jnp.inf, -jnp.inf]), clip=0.0)
    assert both(labels) == 0
    assert np.isfinite(jax.grad(both)(labels)).all()
