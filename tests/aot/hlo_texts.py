"""Small optimized HLO modules, written by hand after what XLA prints for GPUs and TPUs."""

import pathlib

_HERE = pathlib.Path(__file__).parent

STEPS = (_HERE / "steps.hlo").read_text()
"""A GPU's loop over 32 steps: a convolution, its gradient, a matrix product, a sum over 8 devices,
an update; a copy before the loop. Its frames 1 to 4 are lines of sources."""

TILES = (_HERE / "tiles.hlo").read_text()
"""A TPU's program: layouts with tiles, an array on the chip, a product within a fusion, two kinds
of collectives, a loop whose length nobody knows and a choice of two branches."""
