"""Devices that are not there: published facts about accelerators, and JAX devices to compile for.

Sources: NVIDIA's data sheets and architecture papers of A100 (2020), H100 SXM (2022) and H200
(2024), figures without sparsity; Google Cloud's pages "TPU v4", "v5e", "v5p" and "v6e".
"""

import contextlib
import importlib.util
import os
import re
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.experimental import topologies as jax_topologies
from jax.sharding import Mesh

_GIB = 1024**3
_AXIS = "data"


class Facts(NamedTuple):
    """What is published of one device as JAX sees it.

    Attributes:
      title: what it is called.
      memory: bytes.
      usable: share of them that JAX takes by default.
      bandwidth: of the memory, bytes a second.
      peak: floating-point operations a second of convolutions and matrix products, by type of the
        factors; float32 as JAX computes it by default, in tf32 on GPUs and in bfloat16 on TPUs.
      link: bytes a second that it sends to other devices.
      launch: seconds from one kernel to the next where the host launches each; 0 where the device
        runs a program by itself.
      description: of a GPU, what XLA wants to know beside this; '' for others.
    """

    title: str
    memory: int
    usable: float
    bandwidth: float
    peak: dict[str, float]
    link: float
    launch: float = 0.0
    description: str = ""


class Topology(NamedTuple):
    """Devices to compile for.

    Attributes:
      name: as the user gave it.
      platform: 'tpu', 'cuda' or 'cpu', as `lower(lowering_platforms=...)` takes it.
      facts: of one device; None for this machine's CPU.
      mesh: over all devices, like `pujax.training.sharding.make_mesh`'s.
      options: of the compiler.
    """

    name: str
    platform: str
    facts: Facts | None
    mesh: Mesh
    options: dict[str, Any]


def _gpu(
    title: str,
    *,
    mebibytes: int,
    bandwidth: float,
    bf16: float,
    link: float,
    cores: int,
    lanes: int,
    clock: float,
    cache: int,
    capability: tuple[int, int],
    shared: int,
    shared_block: int,
) -> Facts:
    """Facts about a GPU: `cores` multiprocessors of `lanes` units, clock in GHz, sizes in bytes."""
    major, minor = capability
    memory = mebibytes * 1024**2
    description = f"""gpu_device_info {{
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048
  shared_memory_per_block: 49152 shared_memory_per_core: {shared}
  shared_memory_per_block_optin: {shared_block}
  core_count: {cores} fpus_per_core: {lanes} clock_rate_ghz: {clock}
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  thread_dim_limit_x: 1024 thread_dim_limit_y: 1024 thread_dim_limit_z: 64
  memory_bandwidth: {int(bandwidth)} l2_cache_size: {cache} device_memory_size: {memory}
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  cuda_compute_capability {{ major: {major} minor: {minor} }}
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 minor: 10 patch: 0 }}
device_description_str: "{title}"
"""
    return Facts(
        title=title,
        memory=memory,
        usable=0.75,
        bandwidth=bandwidth,
        peak={"bf16": bf16, "f16": bf16, "f32": bf16 / 2},
        link=link,
        launch=2.5e-6,
        description=description,
    )


def _tpu(title: str, *, gibibytes: float, bandwidth: float, bf16: float, link: float) -> Facts:
    """Facts about a TPU's device; the memory is what its compiler hands out."""
    peak = {"bf16": bf16, "f32": bf16}
    return Facts(title, int(gibibytes * _GIB), 1.0, bandwidth, peak, link)


_HOPPER: dict[str, Any] = {
    "bf16": 989.5e12,
    "link": 450e9,
    "cores": 132,
    "lanes": 128,
    "clock": 1.98,
    "cache": 50 * 1024**2,
    "capability": (9, 0),
    "shared": 233472,
    "shared_block": 232448,
}
GPUS = {
    "h200": _gpu("NVIDIA H200", mebibytes=143771, bandwidth=4.8e12, **_HOPPER),
    "h100": _gpu("NVIDIA H100 80GB HBM3", mebibytes=81559, bandwidth=3.35e12, **_HOPPER),
    "a100": _gpu(
        "NVIDIA A100-SXM4-80GB",
        mebibytes=81920,
        bandwidth=2.039e12,
        bf16=312e12,
        link=300e9,
        cores=108,
        lanes=64,
        clock=1.41,
        cache=40 * 1024**2,
        capability=(8, 0),
        shared=167936,
        shared_block=166912,
    ),
}
TPUS = {
    "v4": _tpu("TPU v4", gibibytes=32, bandwidth=1.228e12, bf16=275e12, link=300e9),
    "v5e": _tpu("TPU v5e", gibibytes=15.75, bandwidth=0.819e12, bf16=197e12, link=200e9),
    "v5p": _tpu("TPU v5p", gibibytes=95, bandwidth=2.765e12, bf16=459e12, link=600e9),
    "v6e": _tpu("TPU v6e", gibibytes=31.25, bandwidth=1.638e12, bf16=918e12, link=400e9),
}
ACCEPTED = (
    f"{', '.join(GPUS)}, or as many on one machine as after a colon (h200:8); v5e or v6e with a "
    "grid of chips (v5e:4x4), v4 or v5p with one of three dimensions (v5p:2x2x4); cpu:N for this "
    "machine's CPU as N devices"
)
_GPU_PACKAGES = (
    "jax-cuda12-plugin jax-cuda12-pjrt nvidia-cuda-nvcc-cu12 nvidia-nvjitlink-cu12, "
    "pip install 'pujax[aot-gpu]'"
)
_TPU_PACKAGES = "libtpu, pip install 'pujax[aot-tpu]'"


def find(name: str) -> Topology:
    """Devices by name; JAX computes nothing on an accelerator before or after.

    Args:
      name: 'h200', 'v5e:4x4', 'cpu:8' and so on, see `ACCEPTED`.

    Returns:
      A `Topology`.

    Raises:
      ValueError: in one line, for an unknown name, a grid that the compiler does not know, or a
        compiler that is not installed.
    """
    chip, _, grid = name.partition(":")
    if chip == "cpu" and re.fullmatch(r"[1-9]\d{0,3}", grid or "1"):
        return _cpu(name, int(grid or 1))
    if chip in GPUS and re.fullmatch(r"[1-9]\d?", grid or "1"):
        return _cuda(name, GPUS[chip], int(grid or 1))
    num_axes = 3 if chip in ("v4", "v5p") else 2
    if chip in TPUS and re.fullmatch("x".join([r"[1-9]\d*"] * num_axes), grid):
        return _tpus(name, TPUS[chip])
    raise ValueError(f"--topology is {name!r}; accepted: {ACCEPTED}")


def _cpu(name: str, count: int) -> Topology:
    if count > jax.config.values["jax_num_cpu_devices"]:
        with contextlib.suppress(RuntimeError):  # JAX's, where it has started: the number stays
            jax.config.update("jax_num_cpu_devices", count)
    devices = jax.devices("cpu")
    if len(devices) < count:
        raise ValueError(
            f"--topology is {name!r}, and JAX has started with {len(devices)} CPU devices; "
            f"accepted: up to cpu:{len(devices)}"
        )
    return Topology(name, "cpu", None, _mesh(devices[:count]), {})


def _cuda(name: str, facts: Facts, count: int) -> Topology:
    if not _has("jax_plugins.xla_cuda12", "jax_plugins.xla_cuda13"):
        raise _missing(name, _GPU_PACKAGES)
    try:
        found = jax_topologies.get_topology_desc(
            "cuda", "cuda", target_config=facts.description, topology=f"1x1x{count}"
        )
    except (NotImplementedError, jax.errors.JaxRuntimeError) as error:  # no plugin, or it refuses
        raise ValueError(f"--topology is {name!r}: {_line(error)}") from error
    # Autotuning would run kernels on a GPU. Without it the compiler takes its first choice.
    options = {"xla_gpu_autotune_level": 0}
    return Topology(name, "cuda", facts, _mesh(found.devices), options)


def _tpus(name: str, facts: Facts) -> Topology:
    if not _has("libtpu"):
        raise _missing(name, _TPU_PACKAGES)
    # libtpu would ask a metadata server that only machines with TPUs have.
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    # No chip is opened, so that several compilations may run beside one another.
    os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
    options = _MEGACORE if name.startswith("v4") else {}
    try:
        found = jax_topologies.get_topology_desc(name, "tpu", **options)
    except RuntimeError as error:  # JAX's own without a library, and what the compiler says
        raise ValueError(f"--topology is {name!r}: {_line(error)}") from error
    return Topology(name, "tpu", facts, _mesh(found.devices), {})


_MEGACORE = {"chip_config_name": "megacore"}
"""The two cores of a v4 chip are one device, as JAX has them on such a machine."""


def _has(*modules: str) -> bool:
    """Whether one of the modules is installed."""
    for module in modules:
        try:
            if importlib.util.find_spec(module) is not None:
                return True
        except ModuleNotFoundError:  # the package that it would be in is not there
            continue
    return False


def _missing(name: str, packages: str) -> ValueError:
    return ValueError(
        f"--topology is {name!r}, whose compiler is not installed: it is in the packages {packages}"
    )


def _line(error: Exception) -> str:
    """The first line of a compiler's message."""
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__


def _mesh(devices: Any) -> Mesh:
    return Mesh(np.asarray(devices), (_AXIS,))
