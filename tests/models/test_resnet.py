"""The residual networks against an independent version in plain jax.lax."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.models import resnet, resnet_v1
from tests import equations
from tests.models import filled


def lax_conv(inputs, params, stride=1):
    kernel = params["kernel"]
    pad = kernel.shape[0] // 2
    return jax.lax.conv_general_dilated(
        inputs,
        kernel,
        window_strides=(stride, stride),
        padding=[(pad, pad), (pad, pad)],
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def norm_relu(inputs, params):
    mean = inputs.mean((0, 1, 2))
    var = inputs.var((0, 1, 2))
    return jnp.maximum(
        params["scale"] * (inputs - mean) / jnp.sqrt(var + 1e-5) + params["bias"], 0.0
    )


def lax_block(inputs, params, stride):
    """Both kinds of block: the number of convolutions is read from the parameters."""
    num_convs = sum(name.startswith("conv") for name in params)
    strided = {2: 1, 3: 2}[num_convs]
    active = norm_relu(inputs, params["norm1"])
    out = active
    for index in range(1, num_convs + 1):
        if index > 1:
            out = norm_relu(out, params[f"norm{index}"])
        out = lax_conv(out, params[f"conv{index}"], stride if index == strided else 1)
    return out + (lax_conv(active, params["shortcut"], stride) if "shortcut" in params else inputs)


@functools.partial(jax.jit, static_argnums=0)
def train_mode(module, variables, inputs):
    return module.apply(variables, inputs, True, mutable=["batch_stats"])


def images(channels, side=6):
    values = np.random.default_rng(2).normal(size=(3, side, side, channels))
    return (values + 0.5).astype(np.float32)


@pytest.mark.parametrize(
    ("block", "channels", "stride", "has_shortcut"),
    [
        (resnet.PreActBlock, 4, 1, False),
        (resnet.PreActBlock, 4, 2, True),
        (resnet.PreActBlock, 3, 1, True),
        (resnet.PreActBottleneck, 16, 1, False),
        (resnet.PreActBottleneck, 16, 2, True),
        (resnet.PreActBottleneck, 4, 1, True),
    ],
)
def test_block_equals_its_definition(block, channels, stride, has_shortcut):
    module = block(width=4, stride=stride)
    inputs = images(channels)
    variables = filled.variables(module, inputs, False)
    params = variables["params"]
    assert ("shortcut" in params) == has_shortcut
    assert not any("bias" in leaf for name, leaf in params.items() if "norm" not in name)
    outputs, _ = train_mode(module, variables, inputs)
    expected = jax.jit(lambda inputs, params: lax_block(inputs, params, stride))(inputs, params)
    # Float32; sums of at most 36 products of order one, three layers deep.
    np.testing.assert_allclose(outputs, expected, atol=2e-5)


def test_network_is_stem_blocks_and_global_max_with_nothing_after_the_last_block():
    module = resnet.PreActResNet(stage_sizes=(2, 1), width=4)
    inputs = images(3, side=5)
    variables = filled.variables(module, inputs, False)
    params = variables["params"]
    features, _ = train_mode(module, variables, inputs)

    @jax.jit
    def definition(inputs, params):
        out = lax_conv(inputs, params["stem"])
        out = lax_block(out, params["stage1_block1"], 1)
        out = lax_block(out, params["stage1_block2"], 1)
        out = lax_block(out, params["stage2_block1"], 2)
        return out.max((1, 2))

    assert set(params) == {"stem", "stage1_block1", "stage1_block2", "stage2_block1"}
    np.testing.assert_allclose(features, definition(inputs, params), atol=5e-5)
    assert features.min() < 0  # a final ReLU would show here


def test_ncpus_network_has_a_normalised_stem_and_pools_averages():
    options = {"stem_norm": True, "pooling": "average", "initializer": "he_normal_fan_out"}
    module = resnet.PreActResNet(stage_sizes=(1, 1), width=8, **options)
    inputs = images(3, side=5)
    variables = filled.variables(module, inputs, False)
    params = variables["params"]
    features, _ = train_mode(module, variables, inputs)

    @jax.jit
    def definition(inputs, params):
        out = lax_conv(inputs, params["stem"])
        out = (out - out.mean((0, 1, 2))) / jnp.sqrt(out.var((0, 1, 2)) + 1e-5)
        out = jax.nn.relu(params["stem_norm"]["scale"] * out + params["stem_norm"]["bias"])
        out = lax_block(out, params["stage1_block1"], 1)
        return lax_block(out, params["stage2_block1"], 2).mean((1, 2))

    np.testing.assert_allclose(features, definition(inputs, params), atol=1e-4)
    first = jax.jit(lambda key: module.init(key, inputs, False))(jax.random.key(0))["params"]
    for kernel in (first["stem"], first["stage1_block1"]["conv2"], first["stage2_block1"]["conv1"]):
        rows, columns, _, fan = kernel["kernel"].shape
        expected = np.sqrt(2 / (rows * columns * fan))
        np.testing.assert_allclose(kernel["kernel"].std(), expected, rtol=0.2)


@pytest.mark.parametrize(
    ("module", "side", "width", "sides"),
    [
        (resnet.ResNet18(), 32, 512, [32] * 2 + [16] * 2 + [8] * 2 + [4] * 2),
        (resnet.ResNet18(), 96, 512, [96] * 2 + [48] * 2 + [24] * 2 + [12] * 2),
        (resnet.ResNet50(), 224, 2048, [224] * 3 + [112] * 4 + [56] * 6 + [28] * 3),
        (resnet.ResNetSmall(), 28, 64, [28, 14, 7]),
    ],
)
def test_resolution_halves_from_stage_to_stage(module, side, width, sides):
    def run(key, inputs):
        return module.init_with_output(
            key, inputs, False, capture_intermediates=lambda child, _: "block" in str(child.name)
        )

    inputs = jax.ShapeDtypeStruct((2, side, side, 3), jnp.float32)
    features, variables = jax.eval_shape(run, jax.random.key(0), inputs)
    assert features.shape == (2, width)
    assert features.dtype == jnp.float32
    blocks = variables["intermediates"]
    shapes = [blocks[name]["__call__"][0].shape for name in sorted(blocks)]
    assert [shape[1:3] for shape in shapes] == [(value, value) for value in sides]


KINDS = [
    (resnet.PreActResNet, {"pooling": "average"}),
    (resnet_v1.PostActResNet, {"stem": "cifar"}),
]


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_the_last_map_is_averaged_in_single_precision(kind, options):
    net = kind(stage_sizes=(1, 1), width=8, dtype=jnp.bfloat16, **options)
    inputs = np.zeros((2, 9, 9, 3), np.float32)
    variables = jax.eval_shape(lambda key: net.init(key, inputs, False), jax.random.key(0))

    def features(variables):
        return net.apply(variables, inputs, False)

    after = list(equations.of(features, variables))
    while (equation := after.pop(0)).primitive.name != "reduce_sum":
        pass
    summed = equation.invars[0].aval
    assert (summed.shape, summed.dtype) == ((2, 5, 5, 16), jnp.float32)
    assert {out.aval.dtype.name for one in after for out in one.outvars} == {"float32"}


@pytest.mark.parametrize(("kind", "options"), KINDS)
def test_every_layer_computes_in_the_type_that_is_asked_for(kind, options):
    net = kind(stage_sizes=(1, 1), width=8, dtype=jnp.bfloat16, **options)
    inputs = np.zeros((2, 9, 9, 3), np.float32)

    def outputs(key):
        return net.init_with_output(
            key,
            inputs,
            False,
            capture_intermediates=lambda child, _: (
                type(child).__name__ in ("Conv", "Convolution", "BatchNorm")
            ),
        )

    _, variables = jax.eval_shape(outputs, jax.random.key(0))
    leaves = jax.tree.leaves(variables["intermediates"])
    assert len(leaves) > 8 and {leaf.dtype for leaf in leaves} == {jnp.dtype(jnp.bfloat16)}


def test_images_without_a_channel_axis_are_rejected():
    with pytest.raises(ValueError, match=r"\(2, 8, 8\).*channels"):
        resnet.ResNetSmall().init(jax.random.key(0), jnp.zeros((2, 8, 8)), False)
