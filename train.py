"""Trains a PU method: python train.py --config=configs/lagam_digits.py [--workdir=DIR]."""

import sys

from pujax import console, training
from pujax.training import train_loop
from pujax.training.config import flags


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    console.show_own_messages()
    try:
        config, workdir, name = flags.parse(argv)
        training.run(config, workdir, name=name)
    except (ValueError, OSError, train_loop.NonFiniteError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
