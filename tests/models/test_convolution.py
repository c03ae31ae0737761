"""The convolution for CPUs has the values and all derivatives of XLA's own."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.models import convolution
from pujax.training.evaluation import eval_interval
from tests.models.test_layers import Conv
from tests.training.test_compile_ahead import counted
from tests.x64 import x64

# Images, kernel, strides, padding.
CASES = {
    "padded": ((6, 5, 7, 3), (3, 3, 3, 4), (1, 1), ((1, 1), (1, 1))),
    "strided": ((4, 8, 9, 2), (3, 3, 2, 5), (2, 2), ((1, 1), (1, 1))),
    "not padded, 5 images": ((5, 9, 6, 1), (5, 5, 1, 2), (1, 1), ((0, 0), (0, 0))),
    "projection": ((4, 7, 7, 3), (1, 1, 3, 4), (2, 2), ((0, 0), (0, 0))),
    "two of everything": ((3, 8, 6, 2), (2, 3, 2, 3), (2, 1), ((1, 0), (0, 2))),
}
# With stride 1: whole blocks, a rest, a block wider than the outputs, more zeros than pixels.
NARROW = {
    "padded": ((6, 5, 7, 3), (3, 3, 3, 4), (1, 1), ((1, 1), (1, 1))),
    "LeNet": ((5, 9, 12, 1), (5, 5, 1, 2), (1, 1), ((0, 0), (0, 0))),
    "a rest": ((4, 6, 9, 2), (3, 5, 2, 3), (1, 1), ((1, 0), (0, 2))),
    "fewer than a block": ((4, 7, 8, 2), (2, 6, 2, 3), (1, 1), ((0, 0), (0, 0))),
    "width 2": ((4, 4, 5, 3), (2, 2, 3, 2), (1, 1), ((1, 1), (1, 0))),
    "height 1": ((2, 3, 15, 2), (1, 7, 2, 2), (1, 1), ((0, 0), (3, 3))),
    "more zeros than image": ((3, 2, 2, 1), (3, 3, 1, 2), (1, 1), ((4, 5), (6, 3))),
}
CASES |= {f"narrow, {name}": case for name, case in NARROW.items()}


def set_cache(monkeypatch, size):
    """Says how many bytes of patches the cache holds, to what has been traced as well."""
    monkeypatch.setattr(convolution, "_PATCHES_BYTES", size)
    convolution._in_kernel.clear_cache()
    convolution._narrow.clear_cache()


@pytest.fixture
def by_patches(monkeypatch):
    """The derivative for CPUs, however small the images are, one image at a time."""
    monkeypatch.setattr(convolution, "_pays", lambda *_: True)
    monkeypatch.setattr(convolution, "_is_narrow", lambda *_: False)
    set_cache(monkeypatch, 0)


@pytest.fixture
def by_blocks(by_patches, monkeypatch):
    """Likewise, the whole convolution by blocks of places."""
    monkeypatch.setattr(convolution, "_is_narrow", lambda *_: True)


@pytest.fixture(params=["by_patches", "by_blocks"])
def case(request):
    """A name in CASES, under each of the two rules."""
    request.getfixturevalue(request.param)
    return {"by_patches": "strided", "by_blocks": "narrow, a rest"}[request.param]


def problem(name, dtype=np.float64):
    images, kernel, strides, padding = CASES[name]
    random = np.random.default_rng(0)
    arrays = [jnp.asarray(random.normal(size=shape), dtype) for shape in (images, kernel)]
    ours = functools.partial(
        convolution.conv_general_dilated, window_strides=strides, padding=padding
    )
    theirs = functools.partial(
        jax.lax.conv_general_dilated,
        window_strides=strides,
        padding=padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )
    return arrays, ours, theirs


def energy(convolve, images, kernel):
    """Not linear in either, so that second derivatives mix them."""
    return jnp.sum(jnp.tanh(convolve(images, kernel)) ** 2)


def after_training(convolve, images, kernel, rate, num_steps):
    def step(kernel, _):
        return kernel - rate * jax.grad(functools.partial(energy, convolve, images))(kernel), None

    return energy(convolve, images, jax.lax.scan(step, kernel, length=num_steps)[0])


def assert_same(function, ours, theirs, *arrays):
    expected = jax.jit(functools.partial(function, theirs))(*arrays)
    actual = jax.jit(functools.partial(function, ours))(*arrays)
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cache", [0, 2**14])
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_lax(request, monkeypatch, name, cache):
    request.getfixturevalue("by_blocks" if name.startswith("narrow") else "by_patches")
    set_cache(monkeypatch, cache)

    def both(convolve, images, kernel):
        return jax.value_and_grad(functools.partial(energy, convolve), (0, 1))(images, kernel)

    with x64():
        (images, kernel), ours, theirs = problem(name)
        assert_same(both, ours, theirs, images, kernel)


@pytest.mark.parametrize("argument", [0, 1])
def test_one_argument_may_be_constant(case, argument):
    def one(convolve, images, kernel):
        return jax.grad(functools.partial(energy, convolve), argument)(images, kernel)

    with x64():
        (images, kernel), ours, theirs = problem(case)
        assert_same(one, ours, theirs, images, kernel)


def test_a_constant_argument_costs_nothing(by_patches):
    (images, kernel), ours, _ = problem("padded", np.float32)
    # Before XLA removes what is not used: the count decides how often a run evaluates.
    slope = jax.grad(functools.partial(energy, ours), 1)
    forward = functools.partial(energy, ours)
    once = eval_interval.operations(forward, images, kernel)
    assert eval_interval.operations(slope, images, kernel) <= 2 * once
    assert str(jax.make_jaxpr(jax.grad(forward, 0))(images, kernel)).count("scan[") == 0


def test_patches_are_not_kept_from_the_forward_pass(case):
    (images, kernel), ours, _ = problem(case, np.float32)
    _, pullback = jax.vjp(ours, images, kernel)
    kept = sum(leaf.size for leaf in jax.tree.leaves(pullback))
    # And a few constants; the patches are 1,440 and 1,920 numbers.
    assert kept <= images.size + kernel.size + 200


@pytest.mark.parametrize("steps", [0, 4])
@pytest.mark.parametrize("rule", ["by_patches", "by_blocks"])
def test_memory_holds_the_patches_of_one_piece(request, rule, steps):
    """Also where a derivative goes through steps of training."""
    request.getfixturevalue(rule)
    images, kernel = jnp.ones((64, 16, 16, 8)), jnp.ones((3, 3, 8, 8))
    patches_bytes = 4 * 16 * 16 * 72  # of one image

    def bytes_of(convolve):
        loss = functools.partial(after_training, convolve, num_steps=steps)
        program = jax.jit(jax.grad(loss, 1)).lower(images, kernel, jnp.float32(0.1))
        return program.compile().memory_analysis().temp_size_in_bytes

    ours = functools.partial(
        convolution.conv_general_dilated, window_strides=(1, 1), padding=((1, 1), (1, 1))
    )
    theirs = functools.partial(convolution._plain, strides=(1, 1), padding=((1, 1), (1, 1)))
    # By blocks, several steps have copies of a batch's outputs besides, 43 in all. The patches of a
    # batch, were they kept, would be 80 more.
    most = 5 if rule == "by_patches" or not steps else 50
    assert bytes_of(ours) - bytes_of(theirs) < most * patches_bytes


def test_forward_mode_and_second_derivatives(case):
    def derivatives(convolve, images, kernel):
        loss = functools.partial(energy, convolve)
        slope = jax.grad(loss, (0, 1))
        ones = (jnp.ones_like(images), jnp.ones_like(kernel))
        forward = jax.jvp(loss, (images, kernel), ones)
        forward_over_reverse = jax.jvp(slope, (images, kernel), ones)

        def size_of_slope(images, kernel):
            return sum(jnp.sum(part**2) for part in slope(images, kernel))

        reverse_over_reverse = jax.grad(size_of_slope, (0, 1))(images, kernel)
        return forward, forward_over_reverse, reverse_over_reverse

    with x64():
        (images, kernel), ours, theirs = problem(case)
        assert_same(derivatives, ours, theirs, images, kernel)


def test_networks_of_several_seeds(case):
    def each(convolve, images, kernels):
        slope = jax.grad(functools.partial(energy, convolve), (0, 1))
        return jax.vmap(slope, (None, 0))(images, kernels)

    with x64():
        (images, kernel), ours, theirs = problem(case)
        assert_same(each, ours, theirs, images, jnp.stack([kernel, 2 * kernel, -kernel]))


def test_steps_of_training_in_a_loop_that_is_differentiated(case):
    """As a meta-gradient goes through them."""

    def slopes(convolve, *arrays):
        return jax.grad(functools.partial(after_training, convolve, num_steps=3), (1, 2))(*arrays)

    with x64():
        (images, kernel), ours, theirs = problem(case)
        assert_same(slopes, ours, theirs, images, kernel, jnp.asarray(0.01))


def test_inside_of_shard_map(case):
    """Where JAX checks which values differ between devices, those of loops too."""
    spec = jax.sharding.PartitionSpec
    mesh = jax.make_mesh((2,), ("data",), devices=jax.devices()[:2])

    def slope(convolve, images, kernel):
        return jax.grad(functools.partial(energy, convolve, images))(kernel)

    def on_two_devices(convolve, images, kernel):
        specs = {"in_specs": (spec("data"), spec()), "out_specs": spec()}
        return jax.shard_map(functools.partial(slope, convolve), mesh=mesh, **specs)(images, kernel)

    with x64():
        (images, kernel), ours, theirs = problem(case)
        split = jax.sharding.NamedSharding(mesh, spec("data"))
        images = jax.device_put(np.asarray(images), split)
        kernel = jax.device_put(np.asarray(kernel), jax.sharding.NamedSharding(mesh, spec()))
        assert_same(on_two_devices, ours, theirs, images, kernel)


@pytest.mark.parametrize("option", ["rhs_dilation", "lhs_dilation"])
def test_what_it_is_not_made_for_is_left_to_lax(by_patches, option):
    (images, kernel), ours, theirs = problem("two of everything", np.float32)
    layout = ("NHWC", "HWIO", "NHWC")
    actual = ours(images, kernel, **{option: (2, 2)}, dimension_numbers=layout)
    np.testing.assert_array_equal(actual, theirs(images, kernel, **{option: (2, 2)}))


def test_a_batch_of_any_size_can_be_exported(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    (batch,) = jax.export.symbolic_shape("batch")
    images = jax.ShapeDtypeStruct((batch, 28, 28, 3), np.float32)
    kernel = jax.ShapeDtypeStruct((3, 3, 3, 8), np.float32)

    def convolve(images, kernel):
        layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        options = ((1, 1), ((0, 0), (0, 0)))
        return convolution.conv_general_dilated(images, kernel, *options, **layout)

    exported = jax.export.export(jax.jit(convolve))(images, kernel)
    assert exported.out_avals[0].shape[1:] == (26, 26, 8)


def test_programs_for_accelerators_are_xlas_own(case):
    (images, kernel), ours, theirs = problem(case, np.float32)

    def operations(convolve, platform):
        slope = jax.jit(jax.grad(functools.partial(energy, convolve), (0, 1)))
        program = slope.trace(images, kernel).lower(lowering_platforms=(platform,)).as_text()
        heavy = "convolution|dot_general|while|dynamic_slice"
        return sorted(re.findall(rf"stablehlo\.({heavy})", program))

    for platform in ("cuda", "tpu"):
        assert operations(ours, platform) == operations(theirs, platform) == ["convolution"] * 3
    # The forward pass and the images' derivative may be convolutions on a CPU too.
    assert operations(ours, "cpu").count("convolution") == (0 if case.startswith("narrow") else 2)
    assert "dot_general" in operations(ours, "cpu")


@pytest.mark.parametrize(
    ("sides", "dtype", "devices", "backend", "pays"),
    [
        ((64, 8, 8, 64), np.float32, 1, "cpu", True),
        ((64, 8, 8, 64), np.float64, 1, "cpu", True),
        ((64, 8, 8, 64), jnp.bfloat16, 1, "cpu", False),
        ((64, 8, 8, 64), np.float32, 8, "cpu", False),
        ((64, 8, 8, 64), np.float32, 1, "gpu", False),
        ((64, 8, 7, 64), np.float32, 1, "cpu", False),  # 56 places
        ((64, 8, 8, 1), np.float32, 1, "cpu", False),  # 2.4 million products
        ((1, 99, 99, 64), np.float32, 1, "cpu", False),  # XLA's kernel is as large as one image
        ((0, 99, 99, 64), np.float32, 1, "cpu", False),
    ],
)
def test_where_it_pays(monkeypatch, sides, dtype, devices, backend, pays):
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    images, kernel = np.zeros(sides, dtype), np.zeros((3, 3, sides[-1], 64), dtype)
    assert convolution._pays(images, kernel, (1, 1), ((1, 1), (1, 1))) is pays


@pytest.mark.parametrize(
    ("kernel", "strides", "columns", "is_narrow"),
    [
        ((5, 5, 1, 10), (1, 1), 24, True),
        ((5, 5, 15, 20), (1, 1), 24, True),
        ((5, 5, 16, 20), (1, 1), 24, False),
        ((5, 5, 15, 21), (1, 1), 24, False),
        ((5, 5, 1, 10), (2, 1), 24, False),
        ((5, 5, 1, 10), (1, 2), 24, False),
        ((5, 5, 1, 10), (1, 1), 4, True),  # one block
        ((5, 5, 1, 10), (1, 1), 3, False),
        ((3, 1, 1, 10), (1, 1), 24, False),  # a block of no place
    ],
)
def test_where_blocks_of_places_are_faster(kernel, strides, columns, is_narrow):
    images = np.zeros((9, 28, (columns - 1) * strides[1] + kernel[1], kernel[2]), np.float32)
    nothing = ((0, 0), (0, 0))
    found = convolution._is_narrow(images, np.zeros(kernel, np.float32), strides, nothing)
    assert found is is_narrow


def test_an_image_smaller_than_the_kernel_has_no_outputs(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    images, kernel = jnp.ones((64, 8, 8, 1)), jnp.ones((28, 28, 1, 3))
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    options = ((1, 1), ((0, 0), (0, 0)))
    assert not convolution._pays(images, kernel, *options)
    found = convolution.conv_general_dilated(images, kernel, *options, **layout)
    assert found.shape == (64, 0, 0, 3)


def test_a_second_call_outside_of_jit_compiles_nothing(case):
    (images, kernel), ours, _ = problem(case, np.float32)
    both = jax.grad(functools.partial(energy, ours), (0, 1))

    def call():
        return ours(images, kernel), both(images, kernel)

    call()
    with counted() as compiled:
        call()
    assert not compiled


def test_images_with_an_explicit_sharding_are_left_to_lax(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 1)
    explicit = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((1,), ("data",), axis_types=explicit, devices=jax.devices()[:1])
    spec = jax.sharding.PartitionSpec
    split, whole = (jax.sharding.NamedSharding(mesh, axes) for axes in (spec("data"), spec()))
    images = jax.device_put(np.ones((64, 16, 16, 16), np.float32), split)
    kernel = jax.device_put(np.ones((3, 3, 16, 16), np.float32), whole)

    @jax.jit
    def slope(images, kernel):
        def loss(kernel):
            options = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
            padding = ((1, 1), (1, 1))
            outputs = convolution.conv_general_dilated(images, kernel, (1, 1), padding, **options)
            return jnp.sum(outputs)

        return jax.grad(loss)(kernel)

    found = np.asarray(slope(images, kernel))
    assert found[1, 1, 0, 0] == 64 * 16 * 16 and found[0, 1, 0, 0] == 64 * 15 * 16


@pytest.mark.parametrize(
    ("num_images", "patches", "kernel", "expected"),
    [
        (64, 2**19, 100, 1),  # one image fills the cache
        (64, 2**30, 100, 1),  # and one is the least
        (64, 2**17, 100, 4),
        (61, 2**17, 100, 1),  # a prime number of images
        (60, 2**17 - 1, 100, 4),
        (6, 1, 100, 6),  # all at once
        (64, 2**19, 2**24, 16),  # a large kernel
    ],
)
def test_images_at_a_time(num_images, patches, kernel, expected):
    assert convolution._piece(num_images, patches, kernel) == expected


@pytest.mark.parametrize(("rule", "convolutions"), [("by_patches", 1), ("by_blocks", 0)])
def test_layers_use_it(request, rule, convolutions):
    request.getfixturevalue(rule)
    inputs = np.random.default_rng(0).normal(size=(6, 5, 5, 2)).astype(np.float32)
    net = Conv({"features": 3, "kernel_size": 3, "padding": 1})
    params = net.init(jax.random.key(0), inputs)

    def loss(params):
        return jnp.sum(net.apply(params, inputs) ** 2)

    program = jax.jit(jax.grad(loss)).lower(params).as_text()
    assert "dot_general" in program and program.count("stablehlo.convolution") == convolutions
