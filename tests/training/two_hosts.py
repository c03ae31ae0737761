"""One of two hosts that train some configurations, one after the other.

    python -m tests.training.two_hosts PORT HOST FOLDER FILE...

FOLDER/NAME is the folder of the run of FILE, NAME.py. One process trains them all, since most of a
short run's time goes into starting.
"""

import pathlib
import sys

from pujax import training
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


if __name__ == "__main__":
    main(*sys.argv[1:])
