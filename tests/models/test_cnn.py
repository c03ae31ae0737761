"""The plain convolutional networks: sizes of the published ones, values of small ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.models import cnn
from tests.models import filled


def shapes(module, side, channels=3):
    inputs = jax.ShapeDtypeStruct((2, side, side, channels), jnp.float32)
    return jax.eval_shape(
        lambda key, inputs: module.init_with_output(key, inputs, False), jax.random.key(0), inputs
    )


@pytest.mark.parametrize(
    ("module", "side", "flat", "features"),
    [
        (cnn.CNN7(), 32, 10 * 14 * 14, 1000),
        (cnn.CNN7(), 96, 10 * 46 * 46, 1000),
        (cnn.LeNet(), 28, 320, 50),
        (cnn.CNN9(), 32, 12288, 1000),
        (cnn.CNN13(), 32, 10 * 8 * 8, 1000),
        (cnn.SmallCNN(), 8, 64 * 2 * 2, 128),
        (cnn.SmallCNN(), 28, 64 * 7 * 7, 128),
    ],
)
def test_first_dense_layer_is_sized_from_the_input(module, side, flat, features):
    outputs, variables = shapes(module, side)
    assert variables["params"]["dense1"]["kernel"].shape[0] == flat
    assert outputs.shape == (2, features)
    assert outputs.dtype == jnp.float32


def test_layers_of_the_published_networks():
    def kernels(module):
        params = shapes(module, 32)[1]["params"]
        return [params[f"conv{i + 1}"]["kernel"].shape for i in range(len(module.channels))]

    three, one = (3, 3), (1, 1)
    assert kernels(cnn.CNN7()) == [
        *((*three, 3, 96), (*three, 96, 96), (*one, 96, 192), (*one, 192, 10))
    ]
    assert kernels(cnn.CNN13()) == [
        *((*three, 3, 96), (*three, 96, 96), (*three, 96, 96)),
        *((*three, 96, 192), (*three, 192, 192), (*three, 192, 192)),
        *((*three, 192, 192), (*one, 192, 192), (*one, 192, 10)),
    ]


def test_batch_norm_is_where_it_was_published_and_can_be_left_out():
    assert "batch_stats" not in shapes(cnn.CNN7(), 32)[1]
    with_norm = shapes(cnn.CNN13(), 32)[1]
    assert set(with_norm["batch_stats"]) == {f"norm{i}" for i in range(1, 10)}
    assert "batch_stats" not in shapes(cnn.CNN13(batch_norm=False), 32)[1]


def lax_net(inputs, params, plan, norm, pool=1):
    """Convolutions of `plan` (stride, padding), norm, pool and ReLU, then dense layers."""
    out = inputs
    for index, (stride, pad) in enumerate(plan, start=1):
        layer = params[f"conv{index}"]
        out = jax.lax.conv_general_dilated(
            out,
            layer["kernel"],
            (stride, stride),
            [(pad, pad), (pad, pad)],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
        out = out + layer["bias"]
        if norm:
            out = (out - out.mean((0, 1, 2))) / jnp.sqrt(out.var((0, 1, 2)) + 1e-5)
            out = out * params[f"norm{index}"]["scale"] + params[f"norm{index}"]["bias"]
        n, height, width, channels = out.shape
        out = out[:, : height // pool * pool, : width // pool * pool]
        out = out.reshape(n, height // pool, pool, width // pool, pool, channels).max((2, 4))
        out = jnp.maximum(out, 0)
    out = out.reshape(len(out), -1)
    for index in range(1, 3):
        if f"dense{index}" in params:
            layer = params[f"dense{index}"]
            out = jnp.maximum(out @ layer["kernel"] + layer["bias"], 0)
    return out


@pytest.mark.parametrize(
    ("module", "plan", "norm", "pool"),
    [
        (
            cnn.CNN7(channels=(4, 5, 6, 3), hidden=(7, 6)),
            [(1, 0), (2, 0), (1, 0), (1, 0)],
            False,
            1,
        ),
        (
            cnn.CNN13(channels=(4, 3, 5, 4, 3, 5, 4, 3, 2), hidden=(7, 6)),
            [(1, 1), (1, 1), (2, 1), (1, 1), (1, 1), (2, 1), (1, 1), (1, 0), (1, 0)],
            True,
            1,
        ),
        (
            cnn.SmallCNN(channels=(4, 5, 6), hidden=(7,)),
            [(1, 1), (2, 1), (2, 1)],
            True,
            1,
        ),
        (cnn.LeNet(channels=(4, 5), hidden=(7,)), [(1, 0), (1, 0)], False, 2),
    ],
    ids=["cnn7", "cnn13", "small_cnn", "lenet"],
)
def test_network_equals_its_definition(module, plan, norm, pool):
    inputs = np.random.default_rng(1).normal(size=(4, 8 * pool, 8 * pool, 3)).astype(np.float32)
    variables = filled.variables(module, inputs, False)
    outputs, _ = jax.jit(
        lambda variables, inputs: module.apply(variables, inputs, True, mutable=["batch_stats"])
    )(variables, inputs)
    expected = jax.jit(lambda params, inputs: lax_net(inputs, params, plan, norm, pool))(
        variables["params"], inputs
    )
    assert np.count_nonzero(expected) > 0
    # Up to nine float32 layers; batch norm divides by small deviations and multiplies rounding.
    np.testing.assert_allclose(outputs, expected, atol=1e-4 if norm else 1e-6)


def test_cnn7_needs_images_of_five_by_five():
    assert shapes(cnn.CNN7(), 5)[0].shape == (2, 1000)
    with pytest.raises(ValueError, match="at least 3"):
        shapes(cnn.CNN7(), 4)


@pytest.mark.parametrize(
    ("module", "inputs", "message"),
    [
        (cnn.CNN7(channels=(4, 4)), (2, 8, 8, 3), r"channels is \(4, 4\); accepted: 4 numbers"),
        (cnn.SmallCNN(), (2, 64), r"\(2, 64\); accepted: \[batch, height, width, channels\]"),
    ],
)
def test_bad_input_is_named_with_what_is_accepted(module, inputs, message):
    with pytest.raises(ValueError, match=message):
        module.init(jax.random.key(0), jnp.zeros(inputs), False)
