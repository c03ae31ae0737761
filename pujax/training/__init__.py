"""Running floor: the loop, sharding, checkpoints, configuration, reporting."""

from pujax.training.run import run

__all__ = ["run"]
