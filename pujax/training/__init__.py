"""Running floor: the loop, sharding, checkpoints, configuration, reporting."""

from pujax.training.experiment import run

__all__ = ["run"]
