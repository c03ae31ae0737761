"""Running floor: the loop, sharding, checkpoints, configuration, reporting.

Importing it imports nothing else: `run` and the modules come when they are used.
"""

import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pujax.training import config as config
    from pujax.training.experiment import run

__all__ = ["run"]


def __getattr__(name: str) -> Any:
    if name == "run":
        from pujax.training import experiment

        return experiment.run
    if not name.startswith("_") and importlib.util.find_spec(f"{__name__}.{name}"):
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "config"})
