"""What the last digits of a run depend on besides its configuration and data."""

import contextlib
import os
import platform
from typing import Any

import jax
import jax.numpy as jnp

from pujax import processor
from pujax.training.evaluation import summary

_VARIABLES = ("XLA_FLAGS", "LIBTPU_INIT_ARGS", "NPROC", "PJRT_NPROC")

_SETTINGS = {
    "jax_default_matmul_precision": None,
    "jax_default_prng_impl": "threefry2x32",
    "jax_threefry_partitionable": True,
}
"""Settings of JAX, and what they are unless somebody sets them."""

DEFAULTS: dict[str, Any] = {"jax_enable_x64": False, **_SETTINGS}
"""What checkpoints of earlier versions, which do not say it, are taken for."""


def current() -> dict[str, Any]:
    """Devices, hosts, processor cores, flags of XLA, settings of JAX, versions of packages.

    XLA splits sums over the cores of a CPU, so that their number changes how sums are rounded.
    """
    return {
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "hosts": jax.process_count(),
        "cores": processor.num_cores(),
        "processor": _processor(),
        **{name: os.environ.get(name, "") for name in _VARIABLES},
        **settings(),
        **{f"version of {name}": version for name, version in summary.versions().items()},
    }


def settings() -> dict[str, Any]:
    """Settings of JAX on which numbers depend: their types, products, and random ones."""
    return {
        "jax_enable_x64": jnp.result_type(float) == jnp.float64,
        **{name: getattr(jax.config, name, value) for name, value in _SETTINGS.items()},
    }


def _processor() -> str:
    """Model of the processor, on which the instructions depend that XLA chooses."""
    with contextlib.suppress(OSError), open("/proc/cpuinfo", encoding="utf-8") as file:
        for line in file:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def changes(saved: dict[str, Any]) -> list[str]:
    """In what the present differs from what `current` returned before, in words."""
    here = current()
    saved = DEFAULTS | saved
    return [
        f"{name}: {saved.get(name)!r} there, {here.get(name)!r} here"
        for name in sorted({*saved, *here})
        if saved.get(name) != here.get(name)
    ]
