"""The effect of a wrong class prior on a linear head, `python -m pujax.prior_study RUNDIR`.

Section VI-C of ImPULSeS: the share of positives in U is multiplied by factors from 0.1 to 10, and
the test AUC is followed over the epochs of the head. All factors and seeds train as one program.
"""

from pujax.prior_study.heads import FACTORS, LOSSES, Study, of_run, study
from pujax.prior_study.results import figure, table, write

__all__ = ["FACTORS", "LOSSES", "Study", "figure", "of_run", "study", "table", "write"]
