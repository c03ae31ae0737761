"""Trains a PU method: python train.py --config=configs/lagam_digits.py [--workdir=DIR]."""

import sys

from pujax.train import main

if __name__ == "__main__":
    sys.exit(main(sys.argv))
