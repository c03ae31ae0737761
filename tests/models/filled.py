"""Variables for tests of what networks compute."""

import jax
import numpy as np


def variables(module, *inputs):
    """Variables of a module, drawn by numpy: compiling their real initialisation takes seconds.

    Batch norm scales and statistics are away from 1 and 0, so that mixing them up would show.
    """
    rng = np.random.default_rng(11)

    def draw(path, leaf):
        values = rng.normal(size=leaf.shape)
        if leaf.ndim > 1:
            values *= 1.3 / np.sqrt(np.prod(leaf.shape[:-1]))
        elif path[-1].key in ("scale", "var"):
            values = 1 + 0.5 * np.tanh(values)
        else:
            values *= 0.3
        return values.astype(leaf.dtype)

    shapes = jax.eval_shape(lambda key: module.init(key, *inputs), jax.random.key(0))
    return jax.tree_util.tree_map_with_path(draw, shapes)
