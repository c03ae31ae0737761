"""The audit's tests ask for few resamples: intervals of priors are tested where they are made."""

import pytest

from pujax.audit import class_prior


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    """Intervals from 4 resamples, which cost a third of those from 50."""
    monkeypatch.setattr(class_prior, "_RESAMPLES", 4)
