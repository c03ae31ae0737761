"""Many methods on many data sets over many seeds: one command and one table.

    python -m pujax.sweep --plan=configs/sweeps/digits.py --workdir=DIR
    python -m pujax.sweep --config=configs/baseline.py --methods=naive,nnpu --tasks=digits \
        --seeds=0,1,2 --workdir=DIR
"""

from pujax.sweep.plan import Cell, Plan
from pujax.sweep.runner import run

__all__ = ["Cell", "Plan", "run"]
