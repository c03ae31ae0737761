"""One of two hosts that train some configurations, one after the other.

    python -m tests.training.two_hosts PORT HOST FOLDER FILE...

FOLDER/NAME is the folder of the run of FILE, NAME.py. One process trains them all, since most of a
short run's time goes into starting.
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np

from pujax import training
from pujax.training import sharding, train_loop
from pujax.training.config import flags


def main(port: str, host: str, folder: str, *files: str) -> None:
    """Joins the other host and trains."""
    for place, file in enumerate(files):
        own = [f"--config={file}", f"--workdir={pathlib.Path(folder) / pathlib.Path(file).stem}"]
        if place == 0:  # a process joins once
            own.append("--config.run.distributed=true")
            own.append(f"--config.run.coordinator=localhost:{port}")
            own += ["--config.run.num_processes=2", f"--config.run.process_id={host}"]
        config, workdir, name = flags.parse(["", *own])
        training.run(config, workdir, name=name)
    check_agreement(int(host))


def check_agreement(host: int) -> None:
    """That what each host has for itself becomes that of the first, and nothing else."""
    mesh = sharding.make_mesh()
    everywhere = sharding.replicate(np.arange(3.0), mesh)
    own = {"number": jnp.float32(0.1 + host), "mask": np.arange(4) > host, "all": everywhere}
    agreed = sharding.arrays_of_first_host(own)
    assert agreed["number"] == np.float32(0.1) and agreed["number"].dtype == np.float32
    assert agreed["mask"].tolist() == [False, True, True, True] and agreed["all"] is everywhere
    assert sharding.largest(2.5 - host) == 2.5
    assert sharding.any_host(host == 1) and not sharding.any_host(host == 2)
    assert train_loop._steps_between_agreements(4, 4.0 + host * 4) == 2  # the slower one decides
    assert jax.process_count() == 2


if __name__ == "__main__":
    main(*sys.argv[1:])
