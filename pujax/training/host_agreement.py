"""Hosts that train one run together must have the same settings and the same data.

Every host reads them for itself. With other ones it would compute other numbers, and the copies of
the weights would drift apart without an error.
"""

import json
from collections.abc import Sequence
from typing import Any

import jax
import ml_collections

from pujax.training import config as config_lib
from pujax.training import environment, sharding
from pujax.training.evaluation.tasks import Problem

_OF_A_HOST = ("process_id", "coordinator", "compilation_cache", "progress_seconds")
"""Fields of `run` in which hosts may differ."""


def check(configs: Sequence[ml_collections.FrozenConfigDict], data: Problem) -> None:
    """Refuses hosts with other settings or data than the first; every host must call it.

    Settings of JAX on which numbers depend count, too. Where files lie may differ, as in
    `config.fingerprint`.

    Args:
      configs: of the methods that will train.
      data: what they train on.

    Raises:
      ValueError: on all hosts, where any of them differs from the first.
    """
    if jax.process_count() == 1:
        return
    own = {config.method.name: _settings(config) for config in configs}
    own["data"] = {"digest": data.digest()}
    own["jax"] = environment.settings()
    own = json.loads(json.dumps(own))  # as JSON gives it back
    first = json.loads(sharding.of_first_host(json.dumps(own)))
    found = config_lib.differences(first, own)
    if not sharding.any_host(bool(found)):
        return
    here = f"process {jax.process_index()}"
    if not found:
        raise ValueError(
            f"some hosts differ from {here}, the messages of these say in what; accepted: the same "
            "settings and data on all hosts"
        )
    raise ValueError(
        f"{here} differs from the first host ({'; '.join(found)}); accepted: the same settings and "
        "data on all hosts"
    )


def _settings(config: ml_collections.FrozenConfigDict) -> dict[str, Any]:
    """The fingerprint of a configuration, and what of `run` decides about the program."""
    run = {name: value for name, value in config.run.items() if name not in _OF_A_HOST}
    return config_lib.fingerprint(config) | {"run": run}
