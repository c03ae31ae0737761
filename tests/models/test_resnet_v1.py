"""The post-activation residual networks against an independent version in plain numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import models
from pujax.models import resnet_v1
from tests.models import filled


def conv(inputs, params, stride=1):
    """A convolution as a sum over the offsets inside its kernel."""
    kernel = np.asarray(params["kernel"], np.float64)
    side = kernel.shape[0]
    pad = side // 2
    padded = np.pad(inputs, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    height, width = ((size - 1) // stride + 1 for size in inputs.shape[1:3])
    out = 0
    for row in range(side):
        for column in range(side):
            seen = padded[:, row : row + stride * height : stride]
            seen = seen[:, :height, column : column + stride * width : stride][:, :, :width]
            out = out + seen @ kernel[row, column]
    return out


def norm(inputs, params, stats=None):
    """Batch norm by the batch, or by running statistics where they are given."""
    mean = inputs.mean((0, 1, 2)) if stats is None else stats["mean"]
    var = inputs.var((0, 1, 2)) if stats is None else stats["var"]
    return params["scale"] * (inputs - mean) / np.sqrt(var + 1e-5) + params["bias"]


def relu(inputs):
    return np.maximum(inputs, 0)


def max_pool(inputs):
    """3x3 windows around every second pixel; what lies outside of the image is never the most."""
    height, width = inputs.shape[1:3]
    out = np.empty((len(inputs), (height + 1) // 2, (width + 1) // 2, inputs.shape[3]))
    for row in range(out.shape[1]):
        for column in range(out.shape[2]):
            rows = slice(max(2 * row - 1, 0), 2 * row + 2)
            columns = slice(max(2 * column - 1, 0), 2 * column + 2)
            out[:, row, column] = inputs[:, rows, columns].max((1, 2))
    return out


def block(inputs, params, stride, stats=None):
    """Both kinds of block: the number of convolutions is read from the parameters."""
    stats = dict.fromkeys(params) if stats is None else stats
    num_convs = sum(name.startswith("conv") for name in params)
    strided = {2: 1, 3: 2}[num_convs]
    out = inputs
    for index in range(1, num_convs + 1):
        out = conv(out, params[f"conv{index}"], stride if index == strided else 1)
        out = norm(out, params[f"norm{index}"], stats[f"norm{index}"])
        out = relu(out) if index < num_convs else out
    shortcut = inputs
    if "shortcut" in params:
        shortcut = conv(inputs, params["shortcut"], stride)
        shortcut = norm(shortcut, params["shortcut_norm"], stats["shortcut_norm"])
    return relu(out + shortcut)


@functools.partial(jax.jit, static_argnums=(0, 3))
def run(module, variables, inputs, train):
    return module.apply(variables, inputs, train, mutable=["batch_stats"])


def images(channels, side=6):
    values = np.random.default_rng(2).normal(size=(3, side, side, channels))
    return (values + 0.5).astype(np.float32)


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize(
    ("kind", "channels", "stride", "has_shortcut"),
    [
        (resnet_v1.PostActBlock, 4, 1, False),
        (resnet_v1.PostActBlock, 4, 2, True),
        (resnet_v1.PostActBlock, 3, 1, True),
        (resnet_v1.PostActBottleneck, 16, 1, False),
        (resnet_v1.PostActBottleneck, 16, 2, True),
        (resnet_v1.PostActBottleneck, 4, 1, True),
    ],
)
def test_block_equals_its_definition(kind, channels, stride, has_shortcut, train):
    module = kind(width=4, stride=stride)
    inputs = images(channels)
    variables = filled.variables(module, inputs, False)
    params, stats = variables["params"], variables["batch_stats"]
    assert ("shortcut" in params) == has_shortcut
    # Every convolution has a batch norm and no bias of its own.
    assert len(params) == 2 * sum("kernel" in leaf for leaf in params.values())
    assert not any("bias" in leaf for leaf in params.values() if "kernel" in leaf)
    outputs, moved = run(module, variables, inputs, train)
    expected = block(inputs, params, stride, None if train else stats)
    # Float32; sums of at most 36 products of order one, three layers deep.
    np.testing.assert_allclose(outputs, expected, atol=3e-5)
    for name, old in stats.items():
        for part in ("mean", "var"):
            assert np.all(moved["batch_stats"][name][part] != old[part]) == train


@pytest.mark.parametrize("stem", resnet_v1.STEMS)
def test_network_is_stem_blocks_and_global_mean(stem):
    module = resnet_v1.PostActResNet(stage_sizes=(2, 1), width=4, stem=stem)
    inputs = images(3, side=11)
    variables = filled.variables(module, inputs, False)
    params = variables["params"]
    features, _ = run(module, variables, inputs, True)

    out = conv(inputs, params["stem"], 2 if stem == "imagenet" else 1)
    out = relu(norm(out, params["stem_norm"]))
    out = max_pool(out) if stem == "imagenet" else out
    out = block(out, params["stage1_block1"], 1)
    out = block(out, params["stage1_block2"], 1)
    out = block(out, params["stage2_block1"], 2)

    blocks = {"stage1_block1", "stage1_block2", "stage2_block1"}
    assert set(params) == {"stem", "stem_norm"} | blocks
    np.testing.assert_allclose(features, out.mean((1, 2)), atol=5e-5)


@pytest.mark.parametrize(
    ("module", "side", "width", "sides"),
    [
        (resnet_v1.ResNet18V1(), 224, 512, [56] * 2 + [28] * 2 + [14] * 2 + [7] * 2),
        (resnet_v1.ResNet50V1(), 224, 2048, [56] * 3 + [28] * 4 + [14] * 6 + [7] * 3),
        (resnet_v1.ResNet50V1(), 32, 2048, [8] * 3 + [4] * 4 + [2] * 6 + [1] * 3),
        (resnet_v1.ResNet50V1(stem="cifar"), 32, 2048, [32] * 3 + [16] * 4 + [8] * 6 + [4] * 3),
        (resnet_v1.ResNet18V1(stem="cifar", width=16), 32, 128, [32, 32, 16, 16, 8, 8, 4, 4]),
    ],
)
def test_resolution_halves_from_stage_to_stage(module, side, width, sides):
    def shapes_of(key, inputs):
        return module.init_with_output(
            key, inputs, False, capture_intermediates=lambda child, _: "block" in str(child.name)
        )

    inputs = jax.ShapeDtypeStruct((2, side, side, 3), jnp.float32)
    features, variables = jax.eval_shape(shapes_of, jax.random.key(0), inputs)
    assert features.shape == (2, width)
    assert features.dtype == jnp.float32
    blocks = variables["intermediates"]
    shapes = [blocks[name]["__call__"][0].shape for name in sorted(blocks)]
    assert [shape[1:3] for shape in shapes] == [(value, value) for value in sides]


@pytest.mark.parametrize(
    ("name", "stem", "count"),
    [
        ("resnet18_v1", "imagenet", 11_176_512),
        ("resnet50_v1", "imagenet", 23_508_032),
        # A 3x3 kernel in place of a 7x7 one, from 3 channels to 64.
        ("resnet18_v1", "cifar", 11_176_512 - 40 * 3 * 64),
        ("resnet50_v1", "cifar", 23_508_032 - 40 * 3 * 64),
    ],
)
def test_parameter_counts_are_those_of_torchvision_without_its_classifier(name, stem, count):
    module = models.build(name, stem=stem).backbone
    variables = jax.eval_shape(
        lambda key: module.init(key, jnp.zeros((1, 32, 32, 3)), False), jax.random.key(0)
    )
    assert models.count_parameters(variables["params"]) == count
    # Running means and variances, one of each for every scale of a batch norm.
    scales = [
        leaf.size
        for path, leaf in jax.tree_util.tree_leaves_with_path(variables["params"])
        if path[-1].key == "scale"
    ]
    assert models.count_parameters(variables["batch_stats"]) == 2 * sum(scales)


@pytest.mark.thorough
def test_initial_values_are_those_of_torchvision():
    module = resnet_v1.PostActResNet(
        stage_sizes=(1, 1), block=resnet_v1.PostActBottleneck, width=32
    )
    variables = jax.jit(lambda key: module.init(key, jnp.zeros((1, 32, 32, 3)), False))(
        jax.random.key(3)
    )
    for path, leaf in jax.tree_util.tree_leaves_with_path(variables["params"]):
        if path[-1].key == "kernel":
            fan_out = leaf.shape[0] * leaf.shape[1] * leaf.shape[3]
            # Four standard errors of a normal variance, sqrt(2 / n) of it.
            tolerance = 4 * np.sqrt(2 / leaf.size)
            assert np.mean(np.square(leaf)) == pytest.approx(2 / fan_out, rel=tolerance), path
        else:  # also the last batch norm of a block, whose scale other codes set to 0
            np.testing.assert_array_equal(leaf, 1 if path[-1].key == "scale" else 0)


def test_an_unknown_stem_is_named_by_build_and_by_the_module():
    with pytest.raises(ValueError, match="model.options.stem is 'vgg'; accepted: imagenet, cifar"):
        models.build("resnet18_v1", stem="vgg")
    module = resnet_v1.ResNet18V1(stem="vgg")
    with pytest.raises(ValueError, match="stem is 'vgg'; accepted: imagenet, cifar"):
        module.init(jax.random.key(0), jnp.zeros((2, 8, 8, 3)), False)


def test_images_without_a_channel_axis_are_rejected():
    with pytest.raises(ValueError, match=r"\(2, 8, 8\).*channels"):
        resnet_v1.ResNet18V1().init(jax.random.key(0), jnp.zeros((2, 8, 8)), False)
