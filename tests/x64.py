"""Switch double precision on for part of a test."""

import contextlib
from collections.abc import Iterator

import jax


@contextlib.contextmanager
def x64() -> Iterator[None]:
    """Run the body with 64-bit numbers enabled, then restore the previous setting."""
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
