"""Initial values, padding and batch norm follow PyTorch's conventions."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pujax.models import layers


class Conv(nn.Module):
    """Lets `layers.conv` be called from a test."""

    options: dict

    @nn.compact
    def __call__(self, inputs):
        return layers.conv(inputs, name="conv", **self.options)


class Dense(nn.Module):
    """Lets `layers.dense` be called from a test."""

    options: dict

    @nn.compact
    def __call__(self, inputs):
        return layers.dense(inputs, name="dense", **self.options)


def conv_params(channels, **options):
    inputs = np.zeros((1, 8, 8, channels), np.float32)
    return jax.jit(Conv(options).init)(jax.random.key(0), inputs)["params"]["conv"]


def dense_params(width, **options):
    inputs = np.zeros((1, width), np.float32)
    return jax.jit(Dense(options).init)(jax.random.key(0), inputs)["params"]["dense"]


@pytest.mark.parametrize(
    ("params", "fan_in"),
    [
        (lambda: conv_params(20, features=600, kernel_size=3), 20 * 9),
        (lambda: dense_params(25, features=4000), 25),
    ],
    ids=["conv", "dense"],
)
def test_default_initial_values_are_uniform_within_one_over_root_fan_in(params, fan_in):
    bound = fan_in**-0.5
    for leaf in params().values():
        assert leaf.dtype == jnp.float32
        values = np.asarray(leaf, np.float64).ravel()
        # All inside, and of n uniform values the largest misses the bound by about bound / n.
        assert np.abs(values).max() <= bound
        assert np.abs(values).max() > 0.98 * bound
        # Uniform: variance bound^2 / 3, fourth moment bound^4 / 5. The standard error of the
        # variance is 0.9 / sqrt(n) of it, at most 3.7 % with n = 600; three of them are allowed.
        tolerance = 3 * 0.9 / np.sqrt(values.size)
        assert np.var(values) == pytest.approx(bound**2 / 3, rel=tolerance)
        assert abs(values.mean()) < 3 * bound / np.sqrt(3 * values.size)


def test_kernel_and_bias_are_drawn_independently():
    params = dense_params(1, features=500)
    correlation = np.corrcoef(np.ravel(params["kernel"]), params["bias"])[0, 1]
    assert abs(correlation) < 0.2  # 4.5 standard errors of 1 / sqrt(500)


def test_he_normal_has_variance_two_over_fan_in_and_no_bias():
    params = conv_params(20, features=600, kernel_size=3, initializer="he_normal")
    kernel = np.asarray(params["kernel"], np.float64)
    # Standard error of a normal variance from n = 108,000 values: sqrt(2 / n) = 0.43 %.
    assert np.var(kernel) == pytest.approx(2 / 180, rel=0.015)
    assert np.abs(kernel).max() > 3 * np.sqrt(2 / 180)
    assert not np.any(params["bias"])


def test_he_normal_of_the_outputs_has_variance_two_over_fan_out_and_is_not_cut_off():
    params = conv_params(20, features=600, kernel_size=3, initializer="he_normal_fan_out")
    kernel = np.asarray(params["kernel"], np.float64)
    assert np.var(kernel) == pytest.approx(2 / 5400, rel=0.015)
    assert np.abs(kernel).max() > 3 * np.sqrt(2 / 5400)


def test_unknown_initializer_is_named_with_the_accepted_ones():
    with pytest.raises(ValueError, match="'glorot'.*torch.*he_normal"):
        dense_params(3, features=2, initializer="glorot")


def naive_conv(inputs, kernel, bias, stride, padding):
    """Definition of PyTorch's Conv2d: pad all four sides alike, then slide."""
    size = kernel.shape[0]
    padded = np.pad(inputs, ((0, 0), (padding, padding), (padding, padding), (0, 0)))
    rows = (padded.shape[1] - size) // stride + 1
    columns = (padded.shape[2] - size) // stride + 1
    out = np.zeros((inputs.shape[0], rows, columns, kernel.shape[3]))
    for row in range(rows):
        for column in range(columns):
            top, left = row * stride, column * stride
            window = padded[:, top : top + size, left : left + size]
            out[:, row, column] = np.tensordot(window, kernel, axes=3) + bias
    return out


@pytest.mark.parametrize("shape", [(8, 8), (7, 6)])
@pytest.mark.parametrize(
    ("kernel_size", "stride", "padding"), [(3, 1, 1), (3, 2, 1), (3, 2, 0), (1, 2, 0), (1, 1, 0)]
)
def test_conv_samples_the_grid_of_symmetric_padding(shape, kernel_size, stride, padding):
    rng = np.random.default_rng(0)
    inputs = rng.normal(size=(2, *shape, 3)).astype(np.float32)
    module = Conv({"features": 4, "kernel_size": kernel_size, "stride": stride, "padding": padding})
    outputs, variables = jax.jit(module.init_with_output)(jax.random.key(1), inputs)
    params = jax.tree.map(np.asarray, variables["params"]["conv"])
    expected = naive_conv(inputs, params["kernel"], params["bias"], stride, padding)
    assert outputs.shape == expected.shape
    # Float32 sums of at most 27 products of order one.
    np.testing.assert_allclose(outputs, expected, atol=1e-5)


def test_conv_rejects_images_smaller_than_its_kernel():
    module = Conv({"features": 2, "kernel_size": 3})
    with pytest.raises(ValueError, match=r"\(1, 2, 5, 3\).*at least 3"):
        module.init(jax.random.key(0), np.zeros((1, 2, 5, 3), np.float32))


def run_norm(inputs, mean, var, *, train, dtype=jnp.float32, scale=None, bias=None):
    """Outputs and new statistics of a `BatchNorm` with the given old statistics."""
    channels = inputs.shape[-1]
    variables = {
        "params": {
            "scale": np.ones(channels, np.float32) if scale is None else scale,
            "bias": np.zeros(channels, np.float32) if bias is None else bias,
        },
        "batch_stats": {"mean": mean, "var": var},
    }
    module = layers.BatchNorm(dtype=dtype)
    apply = jax.jit(
        lambda variables, inputs: module.apply(variables, inputs, train, mutable=["batch_stats"])
    )
    outputs, state = apply(variables, inputs)
    return outputs, state["batch_stats"]


def batch(shape=(6, 4, 3, 5), mean=0.7, std=1.6):
    rng = np.random.default_rng(3)
    return (mean + std * rng.normal(size=shape)).astype(np.float32)


OLD_MEAN = np.linspace(-1, 1, 5, dtype=np.float32)
OLD_VAR = np.linspace(0.5, 2, 5, dtype=np.float32)


def test_batch_norm_starts_with_zero_mean_unit_variance_whatever_it_is_initialised_with():
    for train in (False, True):
        init = jax.jit(layers.BatchNorm().init, static_argnums=2)
        variables = init(jax.random.key(0), batch(), train)
        assert set(variables["batch_stats"]) == {"mean", "var"}
        np.testing.assert_array_equal(variables["batch_stats"]["mean"], np.zeros(5))
        np.testing.assert_array_equal(variables["batch_stats"]["var"], np.ones(5))
        np.testing.assert_array_equal(variables["params"]["scale"], np.ones(5))
        np.testing.assert_array_equal(variables["params"]["bias"], np.zeros(5))


def test_views_in_turn_count_in_training_only():
    inputs = np.arange(12, dtype=np.float32).reshape(4, 3)
    norm = layers.BatchNorm()

    @jax.jit
    def run(key):
        with layers.interleaved_views(2):
            first = norm.init(key, inputs, True)
            seen, after = norm.apply(first, inputs, False, mutable=["batch_stats"])
            _, moved = norm.apply(first, inputs, True, mutable=["batch_stats"])
        return seen, *(part["batch_stats"] for part in (first, after, moved))

    seen, first, after, moved = run(jax.random.key(0))
    np.testing.assert_allclose(seen, inputs / np.sqrt(1 + 1e-5), rtol=1e-6)
    start = {"mean": np.zeros(3), "var": np.ones(3)}
    jax.tree.map(np.testing.assert_array_equal, first, start)
    jax.tree.map(np.testing.assert_array_equal, after, start)
    expected = 0.09 * inputs[::2].mean(0) + 0.1 * inputs[1::2].mean(0)
    np.testing.assert_allclose(moved["mean"], expected, rtol=1e-6)


def test_training_normalises_by_the_biased_batch_variance():
    inputs = batch()
    scale, bias = np.arange(1, 6, dtype=np.float32), np.arange(5, dtype=np.float32)
    outputs, _ = run_norm(inputs, OLD_MEAN, OLD_VAR, train=True, scale=scale, bias=bias)
    exact = inputs.astype(np.float64)
    mean, var = exact.mean((0, 1, 2)), exact.var((0, 1, 2))
    expected = (exact - mean) / np.sqrt(var + 1e-5) * np.asarray(scale) + np.asarray(bias)
    np.testing.assert_allclose(outputs, expected, atol=2e-5)  # float32 at values up to 15


def test_running_statistics_keep_nine_tenths_and_take_the_unbiased_variance():
    inputs = batch()
    _, new = run_norm(inputs, OLD_MEAN, OLD_VAR, train=True)
    exact = inputs.astype(np.float64)
    expected_mean = 0.9 * OLD_MEAN + 0.1 * exact.mean((0, 1, 2))
    expected_var = 0.9 * OLD_VAR + 0.1 * exact.var((0, 1, 2), ddof=1)
    # The biased variance would differ by 1 / 71 of the batch term, 4e-3: far above the tolerance.
    np.testing.assert_allclose(new["mean"], expected_mean, atol=1e-6)
    np.testing.assert_allclose(new["var"], expected_var, atol=1e-6)


def test_new_statistics_are_linear_in_the_old_ones():
    inputs = batch()
    _, first = run_norm(inputs, OLD_MEAN, OLD_VAR, train=True)
    _, second = run_norm(inputs, OLD_MEAN + 2, OLD_VAR + 1, train=True)
    moved = jax.tree.map(lambda a, b: np.asarray(b) - np.asarray(a), first, second)
    np.testing.assert_allclose(moved["mean"], 0.9 * 2, atol=2e-6)
    np.testing.assert_allclose(moved["var"], 0.9, atol=2e-6)


def test_training_outputs_do_not_depend_on_the_running_statistics():
    first, _ = run_norm(batch(), OLD_MEAN, OLD_VAR, train=True)
    second, _ = run_norm(batch(), OLD_MEAN - 3, OLD_VAR * 4, train=True)
    np.testing.assert_allclose(first, second, atol=1e-5)  # float32 rounding at values up to 4


def test_evaluation_uses_the_running_statistics_and_leaves_them():
    inputs = batch()
    outputs, new = run_norm(inputs, OLD_MEAN, OLD_VAR, train=False)
    np.testing.assert_allclose(outputs, (inputs - OLD_MEAN) / np.sqrt(OLD_VAR + 1e-5), rtol=1e-5)
    np.testing.assert_array_equal(new["mean"], OLD_MEAN)
    np.testing.assert_array_equal(new["var"], OLD_VAR)


def test_variance_is_accurate_at_a_large_mean_once_the_running_mean_is_near():
    inputs = batch(shape=(512, 5), mean=3000, std=1)
    outputs, _ = run_norm(inputs, np.full(5, 2999, np.float32), OLD_VAR, train=True)
    # Float32 spacing at 3000 is 2.4e-4. A plain difference of squares at 9e6 would be off by 1.
    exact = inputs.astype(np.float64)
    expected = (exact - exact.mean(0)) / np.sqrt(exact.var(0) + 1e-5)
    np.testing.assert_allclose(outputs, expected, atol=1e-3)


def test_gradient_equals_that_of_the_definition():
    inputs, weights = batch(), batch(mean=0, std=1)[::-1]

    def naive(x):
        mean = x.mean((0, 1, 2))
        var = ((x - mean) ** 2).mean((0, 1, 2))
        return jnp.sum(weights * jnp.sin((x - mean) / jnp.sqrt(var + 1e-5)))

    def ours(x):
        outputs, _ = run_norm(x, OLD_MEAN, OLD_VAR, train=True)
        return jnp.sum(weights * jnp.sin(outputs))

    slopes = jax.jit(lambda x: (jax.grad(ours)(x), jax.grad(naive)(x)))(inputs)
    np.testing.assert_allclose(*slopes, atol=5e-6)


def test_one_example_gives_finite_values_statistics_and_gradients():
    inputs = batch(shape=(1, 5))

    def loss(x):
        outputs, new = run_norm(x, OLD_MEAN, OLD_VAR, train=True)
        return jnp.sum(outputs**2) + outputs.sum(), new

    (value, new), gradient = jax.jit(jax.value_and_grad(loss, has_aux=True))(inputs)
    assert np.isfinite(value)
    assert np.all(np.isfinite(gradient))
    np.testing.assert_allclose(new["var"], 0.9 * OLD_VAR, rtol=1e-5, atol=1e-6)


def test_bfloat16_rounds_only_the_output():
    inputs = np.asarray(batch(), jnp.bfloat16)
    outputs, new = run_norm(inputs, OLD_MEAN, OLD_VAR, train=True, dtype=jnp.bfloat16)
    exact, exact_new = run_norm(inputs.astype(np.float32), OLD_MEAN, OLD_VAR, train=True)
    assert outputs.dtype == jnp.bfloat16
    assert new["mean"].dtype == new["var"].dtype == jnp.float32
    # Within a rounding to 8 bits, up to a tie decided by float32 noise.
    np.testing.assert_allclose(np.asarray(outputs, np.float32), exact, rtol=2**-8, atol=1e-6)
    np.testing.assert_allclose(new["mean"], exact_new["mean"], atol=1e-6)
    np.testing.assert_allclose(new["var"], exact_new["var"], atol=1e-6)


def test_a_batch_split_over_devices_has_the_statistics_of_the_whole():
    devices = jax.devices()
    inputs = batch(shape=(2 * len(devices), 3, 5)) + np.arange(2 * len(devices))[:, None, None]
    inputs = inputs.astype(np.float32)
    mesh = jax.sharding.Mesh(np.array(devices), ("data",))
    split = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("data"))
    expected, expected_new = run_norm(inputs, OLD_MEAN, OLD_VAR, train=True)
    outputs, new = run_norm(jax.device_put(inputs, split), OLD_MEAN, OLD_VAR, train=True)
    np.testing.assert_allclose(outputs, expected, atol=5e-6)
    np.testing.assert_allclose(new["mean"], expected_new["mean"], rtol=1e-5)
    np.testing.assert_allclose(new["var"], expected_new["var"], rtol=1e-5)


def test_flatten_keeps_the_order_of_memory():
    inputs = np.arange(24).reshape(2, 2, 2, 3)
    np.testing.assert_array_equal(layers.flatten(jnp.asarray(inputs)), np.arange(24).reshape(2, 12))


@pytest.mark.parametrize("side", [2, 3])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_max_pool_has_the_values_and_derivatives_of_flax(side, dtype):
    keys = jax.random.split(jax.random.key(0), 2)
    # Few different values, so that most windows have several that are largest.
    inputs = jax.random.randint(keys[0], (4, 7, 8, 3), -2, 3).astype(dtype)
    weights = jax.random.normal(keys[1], (4, 7 // side, 8 // side, 3), dtype)

    def flax_pool(inputs):
        return nn.max_pool(inputs, (side, side), strides=(side, side))

    def ours(inputs):
        return layers.max_pool(inputs, side)

    np.testing.assert_array_equal(ours(inputs), flax_pool(inputs))
    expected, found = (jax.vjp(pool, inputs)[1](weights)[0] for pool in (flax_pool, ours))
    assert np.count_nonzero(expected) == weights.size
    np.testing.assert_array_equal(found, expected)
    # Forward over reverse, as mixed-mode hypergradients need it.
    forward = jax.jvp(ours, (inputs,), (jnp.ones_like(inputs),))[1]
    np.testing.assert_array_equal(forward, jnp.ones_like(forward))
    moved = jax.jvp(jax.grad(lambda x: jnp.sum(ours(x) ** 2)), (inputs,), (inputs,))[1]
    np.testing.assert_array_equal(moved, jax.grad(lambda x: jnp.sum(ours(x) ** 2))(inputs))


@pytest.mark.parametrize("place", range(4))
def test_max_pool_keeps_what_is_not_a_number(place):
    inputs = np.zeros([1, 2, 2, 1], np.float32)
    inputs[0, place // 2, place % 2, 0] = np.nan
    assert np.isnan(layers.max_pool(inputs, 2)).all()
