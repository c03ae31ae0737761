"""The similarity matrix in blocks: the same numbers in less memory, and over eight devices."""

import functools
import math
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pujax import contrastive
from tests.x64 import x64

OPTIONS = {"temperature": 0.3, "tau_plus": 0.2}


def unit_views(seed=0, views=2, batch=7, dim=4):
    points = np.random.default_rng(seed).normal(size=(views, batch, dim))
    return points / np.linalg.norm(points, axis=-1, keepdims=True)


def loss(views, temperature, tau_plus, block_size=0):
    return contrastive.multiview_debiased(
        views, temperature=temperature, tau_plus=tau_plus, block_size=block_size
    )


# One compiled direct form, block_size 0, for all block sizes that are compared with it.
derive = jax.jit(jax.value_and_grad(loss, (0, 1, 2)), static_argnums=3)


@pytest.mark.parametrize("num_views", [2, 3])
@pytest.mark.parametrize("block_size", [1, 3, 5, 100])
def test_values_and_all_gradients_equal_the_direct_form(num_views, block_size):
    # 7 images: blocks of 3 and 5 do not divide the batch. At tau_plus 0.4 the floor binds for some.
    with x64():
        views = unit_views(views=num_views)
        value, gradients = derive(views, 0.3, 0.4, block_size)
        expected, expected_gradients = derive(views, 0.3, 0.4, 0)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        for ours, theirs in zip(gradients, expected_gradients, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-13)
    single = views.astype(np.float32)
    value, gradients = derive(single, 0.3, 0.4, block_size)
    np.testing.assert_allclose(value, expected, rtol=1e-6)
    np.testing.assert_allclose(gradients[0], expected_gradients[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["nt_xent", "debiased"])
def test_both_losses_of_two_views_take_blocks(name):
    first, second = unit_views()
    options = OPTIONS if name == "debiased" else {"temperature": 0.3}
    call = functools.partial(getattr(contrastive, name), **options)
    with x64():
        both = functools.partial(jax.value_and_grad, argnums=(0, 1))
        expected = jax.jit(both(call))(first, second)
        found = jax.jit(both(functools.partial(call, block_size=3)))(first, second)
        np.testing.assert_allclose(found[0], expected[0], rtol=1e-13)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-12, atol=1e-13)


@pytest.mark.thorough
def test_blocks_can_be_mapped_and_derived_twice():
    many = np.stack([unit_views(seed) for seed in range(3)])
    with x64():
        blocks = functools.partial(loss, **OPTIONS, block_size=3)
        direct = functools.partial(loss, **OPTIONS)
        mapped = jax.jit(jax.vmap(jax.value_and_grad(blocks)))(many)
        for i, one in enumerate(many):
            value, (gradient, *_) = derive(one, *OPTIONS.values(), 0)
            np.testing.assert_allclose(mapped[0][i], value, rtol=1e-13)
            np.testing.assert_allclose(mapped[1][i], gradient, rtol=1e-12, atol=1e-13)

        def slope_along(views, direction, function):
            return jnp.sum(jax.grad(function)(views) * direction)

        second = jax.jit(jax.grad(slope_along), static_argnums=2)
        found, expected = (second(many[0], many[1], form) for form in (blocks, direct))
        np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)


def compiled(batch, dim, block_size, transform=jax.value_and_grad):
    views = jax.ShapeDtypeStruct((2, batch, dim), jnp.float32)
    function = functools.partial(loss, **OPTIONS, block_size=block_size)
    return jax.jit(transform(function)).lower(views).compile()


def test_batch_8192_fits_into_a_gigabyte():
    assert compiled(8192, 128, 512).memory_analysis().temp_size_in_bytes < 1e9


def test_memory_grows_with_the_batch_and_not_with_its_square():
    # Of the second derivative, which holds what the first one does and more.
    def twice(function):
        return jax.grad(lambda views: jnp.sum(jax.grad(function)(views) ** 2))

    small, large = (
        compiled(batch, 8, 16, twice).memory_analysis().temp_size_in_bytes for batch in (256, 1024)
    )
    assert large < 5 * small
    matrix = 4 * (2 * 1024) ** 2
    assert large < matrix / 4


def over_devices(block_size, batch=32, views=3):
    mesh = Mesh(np.array(jax.devices()[:8]), ("data",))
    rows = NamedSharding(mesh, PartitionSpec(None, "data"))
    same = NamedSharding(mesh, PartitionSpec())
    function = functools.partial(loss, **OPTIONS, block_size=block_size)
    points = jnp.asarray(unit_views(views=views, batch=batch, dim=16))
    program = jax.jit(jax.value_and_grad(function), in_shardings=rows, out_shardings=(same, rows))
    return points, jax.device_put(points, rows), program


@pytest.mark.thorough
@pytest.mark.parametrize("block_size", [0, 8, 5])
def test_eight_devices_equal_one(block_size):
    with x64():
        points, spread, program = over_devices(block_size)
        value, gradient = program(spread)
        alone = jax.device_put(points, jax.devices()[0])
        expected, (expected_gradient, *_) = derive(alone, *OPTIONS.values(), 0)
        np.testing.assert_allclose(value, expected, rtol=1e-13)
        np.testing.assert_allclose(gradient, expected_gradient, rtol=1e-12, atol=1e-14)
        # The result is that of the whole batch: not the mean over the devices' own parts.
        parts = [derive(part, *OPTIONS.values(), 0)[0] for part in jnp.split(alone, 8, axis=1)]
        assert abs(np.mean(parts) - expected) > 0.1


def test_blocks_share_the_work_and_never_gather_the_whole_batch():
    points, spread, program = over_devices(8, batch=64, views=2)
    text = program.lower(spread).compile().as_text()
    found = re.findall(r"= \w+\[([\d,]*)\]\S* (?:all-gather|all-reduce|all-to-all)", text)
    sizes = [math.prod(int(size) for size in shape.split(",") if size) for shape in found]
    # What travels is a block of anchors and their gradients, [8, 16].
    assert sizes and max(sizes) <= 8 * 16
    # Every product holds a device's own share of the pool, 8 of 64 images of 2 views.
    assert "f32[8,128]" not in text and "f32[8,2,64]" not in text


@pytest.mark.thorough
@pytest.mark.parametrize("block_size", [0, 8])
def test_explicit_axes_give_the_same_through_auto_axes(block_size):
    explicit = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((8,), ("data",), axis_types=explicit, devices=jax.devices()[:8])
    points = jnp.asarray(unit_views(batch=32), jnp.float32)
    function = functools.partial(loss, **OPTIONS, block_size=block_size)
    wanted = jax.jit(jax.value_and_grad(function))(points)
    wrapped = jax.sharding.auto_axes(function, out_sharding=PartitionSpec())
    with jax.set_mesh(mesh):
        spread = jax.device_put(points, NamedSharding(mesh, PartitionSpec(None, "data")))
        found = jax.jit(jax.value_and_grad(wrapped))(spread)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-6)
    np.testing.assert_allclose(found[1], wanted[1], rtol=1e-4, atol=1e-7)
