"""The multilayer perceptron."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn

from pujax.models import mlp


def test_defaults_are_four_layers_of_300_with_bias():
    outputs, variables = jax.eval_shape(
        lambda: mlp.MLP().init_with_output(jax.random.key(0), jnp.zeros((2, 28, 28, 1)), False)
    )
    assert outputs.shape == (2, 300)
    kernels = [variables["params"][f"dense{i}"]["kernel"].shape for i in range(1, 5)]
    assert kernels == [(784, 300), (300, 300), (300, 300), (300, 300)]
    assert len(variables["params"]) == 4
    assert all("bias" in layer for layer in variables["params"].values())


def test_images_are_flattened_then_mapped():
    module = mlp.MLP(hidden=(7, 5))
    inputs = jax.random.normal(jax.random.key(1), (3, 2, 4, 2))
    variables = module.init(jax.random.key(0), inputs, False)
    out = np.asarray(inputs).reshape(3, 16)
    for name in ("dense1", "dense2"):
        layer = variables["params"][name]
        out = np.maximum(out @ np.asarray(layer["kernel"]) + np.asarray(layer["bias"]), 0)
    for shape in ((3, 2, 4, 2), (3, 16)):
        outputs = jax.jit(lambda x: module.apply(variables, x, True))(inputs.reshape(shape))
        np.testing.assert_allclose(outputs, out, atol=1e-6)


def test_batch_norm_replaces_the_bias_and_comes_before_relu():
    module = mlp.MLP(hidden=(6,), batch_norm=True)
    inputs = jax.random.normal(jax.random.key(1), (5, 4))
    variables = module.init(jax.random.key(0), inputs, False)
    assert set(variables["params"]["dense1"]) == {"kernel"}
    outputs, _ = module.apply(variables, inputs, True, mutable=["batch_stats"])
    out = inputs @ variables["params"]["dense1"]["kernel"]
    out = (out - out.mean(0)) / jnp.sqrt(out.var(0) + 1e-5)
    np.testing.assert_allclose(outputs, jnp.maximum(out, 0), atol=1e-5)


def test_dropout_with_a_key_zeroes_a_share_of_every_layer_and_scales_the_rest():
    module = mlp.MLP(hidden=(400, 400), dropout=0.25)
    inputs = jax.random.normal(jax.random.key(1), (50, 8))
    variables = module.init(jax.random.key(0), inputs, False)
    full = np.asarray(mlp.MLP(hidden=(400, 400)).apply(variables, inputs, True))
    np.testing.assert_array_equal(module.apply(variables, inputs, True), full)

    def layers_of(key):
        first, second = variables["params"]["dense1"], variables["params"]["dense2"]
        found = module.apply(
            variables,
            inputs,
            True,
            rngs={"dropout": key},
            capture_intermediates=lambda part, _: isinstance(part, nn.Dropout),
            mutable=["intermediates"],
        )[1]["intermediates"]
        hidden, last = (found[f"Dropout_{i}"]["__call__"][0] for i in range(2))
        one = np.maximum(inputs @ first["kernel"] + first["bias"], 0)
        two = np.maximum(hidden @ second["kernel"] + second["bias"], 0)
        return (one, np.asarray(hidden)), (two, np.asarray(last))

    for before, after in layers_of(jax.random.key(2)):
        kept = after[before > 0] > 0
        # 10,000 draws: a standard deviation of less than .0044.
        assert abs(kept.mean() - 0.75) < 0.02
        np.testing.assert_allclose(after[after > 0], before[after > 0] / 0.75, rtol=1e-4, atol=1e-5)
    (_, one), (_, two) = layers_of(jax.random.key(2))
    (_, other), _ = layers_of(jax.random.key(3))
    assert np.any((one > 0) != (other > 0))
    assert np.any((one > 0) != (two > 0))


def test_without_hidden_layers_the_features_are_the_input():
    module = mlp.MLP(hidden=())
    inputs = jnp.arange(12, dtype=jnp.int32).reshape(2, 3, 2)
    outputs = module.apply({}, inputs, False)
    assert outputs.dtype == jnp.float32
    np.testing.assert_array_equal(outputs, np.arange(12).reshape(2, 6))
