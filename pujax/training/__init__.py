"""Running floor: the loop, sharding, checkpoints, configuration, reporting.

Importing it imports nothing else: `run`, and with it the trainer, comes when it is used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pujax.training import config as config
    from pujax.training.experiment import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from pujax.training import experiment

        return experiment.run
    if name == "config":
        return importlib.import_module("pujax.training.config")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "config"})
