"""Trains a PU method: python train.py --config=configs/lagam_digits.py [--workdir=DIR]."""

import sys

from pujax import commands, huge_pages

if __name__ == "__main__":
    huge_pages.restart()  # before JAX is imported, which takes a second
    status = commands.run("pujax.train", sys.argv)
    commands.leave_if_compiling(status)
    sys.exit(status)
