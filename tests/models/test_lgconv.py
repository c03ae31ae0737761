"""The local-global convolution against an independent version in plain numpy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import models
from pujax.models import layers, resnet, resnet_v1
from pujax.models.lgconv import LgConv
from tests import equations
from tests.models import filled
from tests.x64 import x64

HEADS = 4


def conv(inputs, params, stride=1):
    """Sum over the offsets in a kernel of odd side, padded by half of it."""
    kernel = np.asarray(params["kernel"], np.float64)
    pad = kernel.shape[0] // 2
    padded = np.pad(inputs, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    rows, columns = (range(0, size, stride) for size in inputs.shape[1:3])
    out = np.zeros((len(inputs), len(rows), len(columns), kernel.shape[3]))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            window = padded[:, row : row + kernel.shape[0], column : column + kernel.shape[1]]
            out[:, i, j] = np.einsum("bhwc,hwcd->bd", window, kernel)
    return out + np.asarray(params.get("bias", 0), np.float64)


def branch(inputs, params, stats, *, num_heads, stride):
    """The definition, image by image and head by head, all values at all pixels."""
    local = np.maximum(conv(inputs, params["reduce"]), 0)
    hidden = np.concatenate([local, local * 0 + local.mean((1, 2), keepdims=True)], axis=3)
    scores, gates = conv(hidden, params["attention"]), conv(hidden, params["gate"])
    values = conv(inputs, params["value"])
    width = inputs.shape[3] // num_heads
    shared = np.zeros(inputs.shape)
    for image in range(len(inputs)):
        for head in range(num_heads):
            own = slice(head * width, (head + 1) * width)
            weights = np.exp(scores[image, :, :, head])
            weights /= weights.sum()
            context = (weights[:, :, None] * values[image, :, :, own]).sum((0, 1))
            gate = 1 / (1 + np.exp(-gates[image, :, :, head]))
            shared[image, :, :, own] = gate[:, :, None] * context
    out = conv(inputs + shared, params["project"], stride)
    scale = np.asarray(params["norm"]["scale"], np.float64)
    out = (out - stats["norm"]["mean"]) / np.sqrt(stats["norm"]["var"] + 1e-5)
    return scale * out + params["norm"]["bias"]


def images(side=(5, 6), channels=8, dtype=np.float32):
    return np.random.default_rng(3).normal(size=(2, *side, channels)).astype(dtype)


@functools.partial(jax.jit, static_argnums=(0, 3))
def run(module, variables, inputs, train=False):
    return module.apply(variables, inputs, train, mutable=["batch_stats"])


@pytest.mark.parametrize(
    ("features", "strides", "side"),
    [(8, 1, (5, 6)), (12, 2, (5, 6)), (8, (2, 2), (6, 4)), (4, 1, (1, 1)), (8, 3, (7, 5))],
)
def test_layer_equals_its_definition(features, strides, side):
    stride = strides if isinstance(strides, int) else strides[0]
    module, inputs = LgConv(features, strides, num_heads=HEADS), images(side)
    variables = filled.variables(module, inputs)
    params, stats = variables["params"], variables["batch_stats"]
    assert set(params) == {"conv", "global_branch"}
    assert set(params["conv"]) == {"kernel"}
    outputs, _ = run(module, variables, inputs)
    expected = conv(inputs, params["conv"], stride) + branch(
        inputs, params["global_branch"], stats["global_branch"], num_heads=HEADS, stride=stride
    )
    assert outputs.dtype == jnp.float32
    np.testing.assert_allclose(outputs, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_double_precision_stays_and_half_precision_inputs_compute_in_single():
    with x64():
        inputs = jnp.ones([1, 4, 4, 8], jnp.float64)
        layer = LgConv(8, 1)
        params = jax.tree.map(
            lambda x: x.astype(jnp.float64), layer.init(jax.random.key(0), inputs)
        )
        assert layer.apply(params, inputs).dtype == jnp.float64
        single = jax.tree.map(lambda x: x.astype(jnp.float32), params)
        assert layer.apply(single, inputs.astype(jnp.bfloat16)).dtype == jnp.float32


def test_layer_equals_its_definition_in_float64():
    with x64():
        module = LgConv(8, 2, num_heads=HEADS, dtype=jnp.float64)
        inputs = images(dtype=np.float64)
        variables = jax.tree.map(np.float64, filled.variables(module, inputs))
        params, stats = variables["params"], variables["batch_stats"]
        outputs, _ = run(module, variables, inputs)
        expected = conv(inputs, params["conv"], 2) + branch(
            inputs, params["global_branch"], stats["global_branch"], num_heads=HEADS, stride=2
        )
        assert outputs.dtype == jnp.float64
        np.testing.assert_allclose(outputs, expected, rtol=1e-11, atol=1e-12)


def test_it_sees_the_whole_image_and_the_plain_convolution_does_not():
    module, inputs = LgConv(8, num_heads=HEADS), images((9, 9))
    variables = filled.variables(module, inputs)
    moved = inputs.copy()
    moved[:, 0, 0] += 1
    change = np.abs(run(module, variables, moved)[0] - run(module, variables, inputs)[0])
    assert np.all(change[:, 8, 8] > 1e-5)
    plain = np.abs(conv(moved - inputs, variables["params"]["conv"]))
    assert not np.any(plain[:, 2:, 2:])


def initial(module, inputs):
    return jax.jit(lambda key: module.init(key, inputs))(jax.random.key(5))


@pytest.mark.thorough
@pytest.mark.parametrize("strides", [1, 2])
def test_without_scale_it_is_the_convolution_exactly_and_nearly_so_at_first(strides):
    module, inputs = LgConv(16, strides), images((6, 6), 16)
    variables = initial(module, inputs)
    plain = np.asarray(
        jax.lax.conv_general_dilated(
            inputs,
            variables["params"]["conv"]["kernel"],
            (strides, strides),
            [(1, 1), (1, 1)],
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        )
    )
    first = run(module, variables, inputs)[0] - plain
    assert 0 < np.linalg.norm(first) / np.linalg.norm(plain) < 1e-2
    norm = variables["params"]["global_branch"]["norm"]
    norm["scale"] = jnp.zeros_like(norm["scale"])
    np.testing.assert_array_equal(jax.jit(module.apply)(variables, inputs), plain)


@pytest.mark.thorough
def test_initial_values_are_those_of_the_released_code():
    variables = initial(LgConv(256), images((2, 2), 64))
    branch = variables["params"]["global_branch"]
    scale = np.asarray(branch["norm"]["scale"])
    # A normal sample of 256: mean and spread within about four standard errors, both signs.
    assert abs(scale.mean()) < 3e-5
    assert 0.8e-4 < scale.std() < 1.2e-4
    assert not np.any(branch["norm"]["bias"])
    for name, fan_in in {"reduce": 64, "attention": 32, "gate": 32, "value": 64}.items():
        for part in ("kernel", "bias"):
            largest = np.max(np.abs(branch[name][part])) * np.sqrt(fan_in)
            assert 0.6 < largest <= 1, (name, part)
    stats = variables["batch_stats"]["global_branch"]["norm"]
    np.testing.assert_array_equal(stats["mean"], 0)
    np.testing.assert_array_equal(stats["var"], 1)


def test_batch_norm_is_frozen_in_training():
    module, inputs = LgConv(8, 2, num_heads=HEADS), images()
    variables = filled.variables(module, inputs)
    trained, stats = run(module, variables, inputs, True)
    evaluated, _ = run(module, variables, inputs, False)
    np.testing.assert_array_equal(trained, evaluated)
    jax.tree.map(np.testing.assert_array_equal, stats["batch_stats"], variables["batch_stats"])
    # Nothing to write either: applying it without a mutable collection works in training.
    jax.eval_shape(lambda: module.apply(variables, inputs, True))


@pytest.mark.thorough
def test_gradient_equals_finite_differences():
    with x64():
        module = LgConv(8, 2, num_heads=HEADS, dtype=jnp.float64)
        inputs = images((4, 3), dtype=np.float64)
        variables = jax.tree.map(np.float64, filled.variables(module, inputs))
        stats = {"batch_stats": variables["batch_stats"]}

        @jax.jit
        def loss(params, inputs):
            return jnp.sum(jnp.sin(module.apply({"params": params, **stats}, inputs, True)))

        point = (variables["params"], inputs)
        slopes = jax.grad(loss, (0, 1))(*point)
        rng = np.random.default_rng(8)
        for leaf_path, _ in jax.tree_util.tree_leaves_with_path(point):
            along = jax.tree_util.tree_map_with_path(
                lambda path, leaf, chosen=leaf_path: rng.normal(size=leaf.shape) * (path == chosen),
                point,
            )
            ahead, behind = (
                jax.tree.map(lambda x, d, step=step: x + step * d, point, along)
                for step in (1e-6, -1e-6)
            )
            numeric = (loss(*ahead) - loss(*behind)) / 2e-6
            products = jax.tree.map(lambda slope, d: jnp.sum(slope * d), slopes, along)
            exact = sum(jax.tree.leaves(products))
            np.testing.assert_allclose(numeric, exact, rtol=1e-5, atol=1e-7)


def test_huge_inputs_and_bfloat16_keep_values_and_gradients_finite():
    for dtype, factor in ((jnp.float32, 1e4), (jnp.bfloat16, 1e2)):
        module, inputs = LgConv(8, num_heads=HEADS, dtype=dtype), factor * images()
        variables = filled.variables(module, inputs)

        @jax.jit
        def values_and_gradient(variables, module=module, inputs=inputs):
            values, pull = jax.vjp(lambda v: module.apply(v, inputs, True), variables)
            return values, pull(jnp.ones_like(values))

        values, gradient = values_and_gradient(variables)
        assert values.dtype == dtype
        for leaf in jax.tree.leaves((values, gradient)):
            assert np.all(np.isfinite(np.asarray(leaf, np.float32)))


def test_softmax_and_means_are_in_single_precision_behind_bfloat16():
    module, inputs = LgConv(8, num_heads=HEADS, dtype=jnp.bfloat16), images()
    variables = jax.eval_shape(module.init, jax.random.key(0), inputs)
    for name in ("exp", "div"):
        assert equations.types(name, lambda v: module.apply(v, inputs), variables) == {"float32"}


def branch_sizes(module, inputs):
    """Parameters of every global branch in a module, by the path to it."""
    shapes = jax.eval_shape(lambda key: module.init(key, inputs, False), jax.random.key(0))
    sizes = {}
    for path, leaf in jax.tree_util.tree_leaves_with_path(shapes["params"]):
        keys = [part.key for part in path]
        if "global_branch" in keys:
            where = "/".join(keys[: keys.index("global_branch")])
            sizes[where] = sizes.get(where, 0) + leaf.size
    return sizes, models.count_parameters(shapes["params"])


@pytest.mark.parametrize(
    ("width", "count"), [(64, 10_016), (128, 38_448), (256, 150_608), (512, 596_112)]
)
def test_parameter_counts_per_layer(width, count):
    sizes, total = branch_sizes(LgConv(width), jnp.zeros((1, 2, 2, width)))
    assert sizes == {"": count}
    assert total == count + 9 * width**2


@pytest.mark.thorough
def test_resnet101_has_33_layers_and_the_published_counts():
    inputs = jnp.zeros((1, 64, 64, 3))
    sizes, total = branch_sizes(models.build("resnet101_v1", lgconv=True).backbone, inputs)
    assert len(sizes) == 33
    assert all(name.endswith("/conv2") for name in sizes)
    assert sum(sizes.values()) == 5_436_160
    assert total == 42_500_160 + 5_436_160
    assert branch_sizes(resnet_v1.ResNet101V1(), inputs) == ({}, 42_500_160)


@pytest.mark.parametrize(
    ("name", "layers_in_block"),
    [
        ("resnet18", {"conv1", "conv2"}),
        ("resnet50", {"conv2"}),
        ("resnet18_v1", {"conv1", "conv2"}),
        ("resnet50_v1", {"conv2"}),
    ],
)
def test_insertion_renames_nothing_but_the_kernels_of_3x3_convolutions(name, layers_in_block):
    def shapes(**options):
        module = models.build(name, stage_sizes=(1, 2), width=8, **options).backbone
        tree = jax.eval_shape(
            lambda key: module.init(key, jnp.zeros((1, 16, 16, 3)), False), jax.random.key(0)
        )
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        return {"/".join(part.key for part in path): leaf.shape for path, leaf in leaves}

    plain, local_global = shapes(lgconv=False), shapes(lgconv=True)
    kept = {name: shape for name, shape in local_global.items() if "global_branch" not in name}
    assert {name.replace("/conv/", "/"): shape for name, shape in kept.items()} == plain
    replaced = {name for name in kept if "/conv/" in name}
    assert replaced == {
        name.replace("/kernel", "/conv/kernel")
        for name, shape in plain.items()
        if shape[:2] == (3, 3) and "block" in name
    }
    assert {name.split("/")[-3] for name in replaced} == layers_in_block
    assert plain == shapes()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", [resnet.PreActResNet, resnet_v1.PostActResNet])
@pytest.mark.parametrize("local_global", [False, True])
def test_without_pool_the_last_feature_map_comes_back(kind, local_global):
    options = {"stage_sizes": (1, 1), "width": 8, "lgconv": local_global}
    inputs = np.random.default_rng(4).normal(size=(2, 16, 16, 3)).astype(np.float32)
    variables = filled.variables(kind(**options), inputs, False)
    features, _ = run(kind(**options), variables, inputs)
    maps, _ = run(kind(**options, pool=False, dtype=jnp.float32), variables, inputs)
    assert maps.ndim == 4 and maps.shape[1] > 1
    pooled = maps.max((1, 2)) if kind is resnet.PreActResNet else maps.mean((1, 2))
    np.testing.assert_allclose(features, pooled, rtol=1e-6)
    half = jax.eval_shape(
        lambda: kind(**options, pool=False, dtype=jnp.bfloat16).apply(variables, inputs, False)
    )
    assert half.dtype == jnp.float32


@pytest.mark.thorough
def test_the_replaced_convolution_keeps_its_initial_values():
    def spread(module):
        kernel = initial(module, images((2, 2), 64))["params"]["conv"]["kernel"]
        return float(np.mean(np.square(kernel)))

    assert spread(LgConv(32)) == pytest.approx(2 / (9 * 32), rel=0.05)
    assert spread(LgConv(32, initializer="torch")) == pytest.approx(1 / (3 * 9 * 64), rel=0.05)
    assert layers.INITIALIZERS.keys() >= {"he_normal_fan_out", "torch"}


@pytest.mark.parametrize(
    ("options", "channels", "message"),
    [
        ({}, 12, "num_heads is 8 and .* 12 channels; accepted: a divisor"),
        ({"num_heads": 0}, 8, "num_heads is 0"),
        ({"num_heads": 2}, 2, "reduction is 4 and .* 2 channels; accepted: 1 to 2"),
        ({"reduction": 0}, 8, "reduction is 0"),
        ({"strides": (1, 2)}, 8, r"strides is \(1, 2\); accepted: a positive number"),
        ({"strides": 0}, 8, "strides is 0"),
        ({"initializer": "ones"}, 8, "initializer is 'ones'"),
    ],
)
def test_bad_fields_are_named(options, channels, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(LgConv(8, **options).init, jax.random.key(0), images((4, 4), channels))


def test_a_network_of_a_width_that_heads_do_not_divide_says_so():
    module = models.build("resnet18_v1", width=4, stem="cifar", lgconv=True)
    with pytest.raises(ValueError, match="model.options.width a multiple of 8"):
        module.init(jax.random.key(0), images((8, 8), 3), False)
    with pytest.raises(ValueError, match="model.options.lgconv is 1; accepted: a bool"):
        models.build("resnet18_v1", lgconv=1)
    with pytest.raises(ValueError, match="model.options.pool is no option of 'resnet18_v1'"):
        models.build("resnet18_v1", pool=False)
