"""A bi-level problem with a closed form, in NumPy float64.

Inner loss `w'Aw / 2 - w'Bm`, outer loss `|w - t|^2 / 2`. A plain step of size a is `w <- Pw + aBm`
with `P = I - aA`, so that after K steps, of which the last J count,

    dF/dm = (a sum_{j < J} P^j B)' (w_K - t),

and at the minimum `w* = A^-1 B m` it is `(A^-1 B)' (w* - t)`.
"""

import jax
import jax.numpy as jnp
import numpy as np

from pujax import meta

RATE = 0.3
_rng = np.random.default_rng(0)
_basis = np.linalg.qr(_rng.normal(size=(4, 4)))[0]
A = _basis @ np.diag([0.5, 1.0, 1.5, 2.0]) @ _basis.T
B = _rng.normal(size=(4, 3))
START, TARGET, META = _rng.normal(size=4), _rng.normal(size=4), _rng.normal(size=3)


def inner(w, m):
    return w @ A @ w / 2 - w @ (B @ m)


def outer(w):
    return jnp.sum((w - TARGET) ** 2) / 2


def after(num_steps, m=META, start=START, forces=None):
    """The parameters after some plain steps; `forces [num_steps, 4]` add to `Bm`."""
    w = start
    for step in range(num_steps):
        w = w - RATE * (A @ w - B @ m - (0 if forces is None else forces[step]))
    return w


def gradient(num_steps, window=None, forces=None):
    """The closed form for a window of steps, None for all."""
    p = np.eye(4) - RATE * A
    window = num_steps if window is None else window
    influence = RATE * sum(np.linalg.matrix_power(p, j) for j in range(window)) @ B
    return influence.T @ (after(num_steps, forces=forces) - TARGET)


def at_minimum(damping=0.0):
    """The implicit gradient at the minimum."""
    solution = np.linalg.solve(A + damping * np.eye(4), np.linalg.solve(A, B @ META) - TARGET)
    return B.T @ solution


def estimate(estimator, m=META, *, num_steps=5, jit=True, **options):
    """`meta_gradient` on this problem."""
    options = {"learning_rate": RATE} | options

    def of_meta(m):
        return meta.meta_gradient(
            inner, outer, START, m, estimator=estimator, num_steps=num_steps, **options
        )

    return (jax.jit(of_meta) if jit else of_meta)(m)
