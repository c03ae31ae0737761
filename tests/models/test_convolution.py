"""The convolution for CPUs has the values and all derivatives of XLA's own."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax.models import convolution, layers
from tests.models.test_layers import Conv
from tests.x64 import x64

# Images, kernel, strides, padding.
CASES = {
    "padded": ((6, 5, 7, 3), (3, 3, 3, 4), (1, 1), ((1, 1), (1, 1))),
    "strided": ((4, 8, 9, 2), (3, 3, 2, 5), (2, 2), ((1, 1), (1, 1))),
    "not padded, 5 images": ((5, 9, 6, 1), (5, 5, 1, 2), (1, 1), ((0, 0), (0, 0))),
    "projection": ((4, 7, 7, 3), (1, 1, 3, 4), (2, 2), ((0, 0), (0, 0))),
    "two of everything": ((3, 8, 6, 2), (2, 3, 2, 3), (2, 1), ((1, 0), (0, 2))),
}


@pytest.fixture
def always(monkeypatch):
    """The rule for CPUs, however small the images are, one image at a time."""
    monkeypatch.setattr(convolution, "_pays", lambda *_: True)
    monkeypatch.setattr(convolution, "_PATCHES_BYTES", 0)


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


def assert_same(function, ours, theirs, *arrays):
    expected = jax.jit(functools.partial(function, theirs))(*arrays)
    actual = jax.jit(functools.partial(function, ours))(*arrays)
    for one, other in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("cache", [0, 2**14])
@pytest.mark.parametrize("name", CASES)
def test_values_and_derivatives_are_those_of_lax(always, monkeypatch, name, cache):
    monkeypatch.setattr(convolution, "_PATCHES_BYTES", cache)

    def both(convolve, images, kernel):
        return jax.value_and_grad(functools.partial(energy, convolve), (0, 1))(images, kernel)

    with x64():
        (images, kernel), ours, theirs = problem(name)
        assert_same(both, ours, theirs, images, kernel)


@pytest.mark.parametrize("argument", [0, 1])
def test_one_argument_may_be_constant(always, argument):
    def one(convolve, images, kernel):
        return jax.grad(functools.partial(energy, convolve), argument)(images, kernel)

    with x64():
        (images, kernel), ours, theirs = problem("strided")
        assert_same(one, ours, theirs, images, kernel)


def test_a_constant_argument_costs_nothing(always):
    (images, kernel), ours, _ = problem("padded", np.float32)
    program = jax.jit(jax.grad(functools.partial(energy, ours), 1)).lower(images, kernel)
    # The forward pass alone: neither the images' derivative nor a tangent of zeros.
    assert program.as_text().count("stablehlo.convolution") == 1


def test_patches_are_not_kept_from_the_forward_pass(always):
    (images, kernel), ours, _ = problem("padded", np.float32)
    _, pullback = jax.vjp(ours, images, kernel)
    kept = sum(leaf.size for leaf in jax.tree.leaves(pullback))
    assert kept <= images.size + kernel.size + 10  # and a few whole numbers


def test_forward_mode_and_second_derivatives(always):
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
        (images, kernel), ours, theirs = problem("strided")
        assert_same(derivatives, ours, theirs, images, kernel)


def test_networks_of_several_seeds(always):
    def each(convolve, images, kernels):
        slope = jax.grad(functools.partial(energy, convolve), (0, 1))
        return jax.vmap(slope, (None, 0))(images, kernels)

    with x64():
        (images, kernel), ours, theirs = problem("padded")
        assert_same(each, ours, theirs, images, jnp.stack([kernel, 2 * kernel, -kernel]))


def test_pieces_of_bfloat16_are_summed_in_float32(always):
    """Of 512 equal terms the last ones would be lost in eight bits."""
    images = jnp.ones((512, 1, 1, 1), jnp.bfloat16)
    kernel = jnp.ones((1, 1, 1, 1), jnp.bfloat16)

    def total(kernel):
        outputs = convolution.conv_general_dilated(images, kernel, (1, 1), ((0, 0), (0, 0)))
        assert outputs.dtype == jnp.bfloat16
        return jnp.sum(outputs, dtype=jnp.float32)

    slope = jax.jit(jax.grad(total))(kernel)
    assert slope.dtype == jnp.bfloat16
    assert slope.item() == 512


def test_programs_for_accelerators_have_xlas_own_derivative(always):
    (images, kernel), ours, theirs = problem("padded", np.float32)

    def operations(convolve, platform):
        slope = jax.jit(jax.grad(functools.partial(energy, convolve), (0, 1)))
        program = slope.trace(images, kernel).lower(lowering_platforms=(platform,)).as_text()
        heavy = "convolution|dot_general|while|dynamic_slice"
        return sorted(re.findall(rf"stablehlo\.({heavy})", program))

    for platform in ("cuda", "tpu"):
        assert operations(ours, platform) == operations(theirs, platform) == ["convolution"] * 3
    # The forward pass and the images' derivative are convolutions on a CPU too.
    assert operations(ours, "cpu").count("convolution") == 2
    assert "dot_general" in operations(ours, "cpu")


@pytest.mark.parametrize(
    ("sides", "devices", "backend", "pays"),
    [
        ((64, 8, 8, 64), 1, "cpu", True),
        ((64, 8, 8, 64), 8, "cpu", False),
        ((64, 8, 8, 64), 1, "gpu", False),
        ((64, 8, 7, 64), 1, "cpu", False),  # 56 places
        ((64, 8, 8, 1), 1, "cpu", False),  # 2.4 million products
    ],
)
def test_where_it_pays(monkeypatch, sides, devices, backend, pays):
    monkeypatch.setattr(jax, "device_count", lambda: devices)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    images, kernel = np.zeros(sides), np.zeros((3, 3, sides[-1], 64))
    assert convolution._pays(images, kernel, (1, 1), ((1, 1), (1, 1))) is pays


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


def test_layers_use_it(always):
    inputs = np.random.default_rng(0).normal(size=(6, 5, 5, 2)).astype(np.float32)
    net = Conv({"features": 3, "kernel_size": 3, "padding": 1})
    params = net.init(jax.random.key(0), inputs)

    def loss(params):
        return jnp.sum(net.apply(params, inputs) ** 2)

    assert "dot_general" in jax.jit(jax.grad(loss)).lower(params).as_text()
    assert layers.convolution is convolution
