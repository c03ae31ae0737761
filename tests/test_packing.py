"""A tree as vectors: what comes back, and choices made on vectors."""

import jax
import jax.numpy as jnp
import numpy as np

from pujax import packing


def tree(seed=0, lead=()):
    rng = np.random.default_rng(seed)
    make = lambda *shape: jnp.asarray(rng.normal(size=(*lead, *shape)), jnp.float32)  # noqa: E731
    return {
        "kernel": make(3, 4),
        "count": jnp.asarray(rng.integers(0, 9, lead + (2,))),
        "half": make(5).astype(jnp.bfloat16),
        "scalar": make(),
        "empty": make(0, 2),
    }


def assert_equal(first, second):
    assert jax.tree.structure(first) == jax.tree.structure(second)
    for a, b in zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


def test_a_tree_comes_back_as_it_was():
    packed = packing.pack(tree())
    assert {k: v.shape for k, v in packed.vectors.items()} == {"float32": (13,), "bfloat16": (5,)}
    assert_equal(packing.unpack(packed, jax.eval_shape(tree)), tree())


def test_first_axes_stay():
    with_seeds = tree(lead=(3,))
    packed = packing.pack(with_seeds, num_axes=1)
    assert packed.vectors["float32"].shape == (3, 13)
    assert_equal(packing.unpack(packed, with_seeds, num_axes=1), with_seeds)
    one = jax.tree.map(lambda x: x[1], with_seeds)
    np.testing.assert_array_equal(
        packed.vectors["float32"][1], packing.pack(one).vectors["float32"]
    )


def test_a_choice_on_vectors_is_that_on_leaves():
    for condition in (True, False):
        wanted = tree(1) if condition else tree(2)
        for packed in (True, False):
            chosen = packing.choose(jnp.asarray(condition), tree(1), tree(2), packed=packed)
            assert_equal(chosen, wanted)
