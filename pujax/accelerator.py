"""Devices, and what depends on their kind: forms of a computation that give the same numbers."""

import jax

from pujax import checks
from pujax.console import first_line

AUTO = "auto"
_SETTINGS = (AUTO, "on", "off")


def devices() -> list[jax.Device]:
    """All devices of all hosts, which the first call of a process starts.

    Raises:
      ValueError: where JAX cannot start them, as on a platform that this machine does not have.
    """
    try:
        return jax.devices()
    except (RuntimeError, AssertionError) as error:
        # The latter says nothing, and is of a GPU without JAX's plugin.
        reason = first_line(error) if str(error) else "a plugin of JAX for it is missing"
        platforms = jax.config.jax_platforms or ""  # type: ignore[attr-defined]
        raise ValueError(
            f"JAX_PLATFORMS is {platforms!r}, with which JAX starts no device "
            f"({reason}); accepted: platforms that this machine and its JAX have, such "
            "as 'cpu', or '' for the best of them"
        ) from error


def check_few_kernels(setting: str) -> None:
    """Raises a ValueError for a `run.few_kernels` that is no setting."""
    checks.one_of("run.few_kernels", setting, _SETTINGS)


def loops_beat_calls() -> bool:
    """Whether one call that loops over batches is better than a call for each.

    Calls cost an accelerator time. On a CPU they do not, and XLA runs the gradient of a convolution
    many times slower inside a rolled loop (jax-ml/jax#12868), though not a forward pass.
    """
    return jax.default_backend() != "cpu"


def few_kernels(setting: str) -> bool:
    """Whether to compute in few kernels at the price of copies.

    A step of a small network on an accelerator takes as long as its kernels take to be launched.
    A CPU launches nothing, and the copies cost it time.

    Args:
      setting: 'on', 'off', or 'auto', which is on where the default device is no CPU.
    """
    return setting == "on" or (setting == AUTO and jax.default_backend() != "cpu")
