"""Positive-unlabeled learning in JAX and Flax.

Importing it imports nothing else: `pujax.risks`, `pujax.load` and the rest come when they are used.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_FUNCTIONS = {
    "load": "pujax.predict",
    "PUClassifier": "pujax.estimator",
    "PUStratifiedKFold": "pujax.folds",
}
"""Names that a module further down defines."""
_MODULES = (
    *("aot", "audit", "augment", "calibration", "clustering", "contrastive", "data"),
    *("linear_head", "meta", "methods", "metrics", "models", "mutual_info", "prior_study"),
    *("priors", "reports", "risks", "sweep", "training"),
)


def __getattr__(name: str) -> Any:
    if name in _FUNCTIONS:
        return getattr(importlib.import_module(_FUNCTIONS[name]), name)
    if name in _MODULES:
        return importlib.import_module(f"pujax.{name}")
    raise AttributeError(f"module 'pujax' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_FUNCTIONS, *_MODULES])
