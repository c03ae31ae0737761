"""Running floor: the loop, sharding, checkpoints, configuration, reporting."""
