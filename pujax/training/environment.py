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


def current() -> dict[str, Any]:
    """Devices, hosts, processor cores, flags of XLA and JAX, and versions, of this process.

    XLA splits sums over the cores of a CPU, so that their number changes how sums are rounded.
    """
    return {
        "devices": f"{jax.device_count()} x {jax.devices()[0].device_kind}",
        "hosts": jax.process_count(),
        "cores": processor.num_cores(),
        "processor": _processor(),
        **{name: os.environ.get(name, "") for name in _VARIABLES},
        "jax_enable_x64": jnp.result_type(float) == jnp.float64,
        **{f"version of {name}": version for name, version in summary.versions().items()},
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
    saved = {"jax_enable_x64": False} | saved  # earlier versions did not say it
    return [
        f"{name}: {saved.get(name)!r} there, {here.get(name)!r} here"
        for name in sorted({*saved, *here})
        if saved.get(name) != here.get(name)
    ]
