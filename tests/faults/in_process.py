"""The small runs of `runs` in this process: no part of that file, which every process imports."""

import pytest

from pujax import training
from tests import tiny
from tests.faults import runs


def train(workdir, *, devices=1, num_epochs=3, **run):
    """The same run in this process, which spares the imports of another one."""
    config = runs.small(**run)
    config.method.num_epochs = num_epochs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(devices))
        training.run(config, str(workdir))
