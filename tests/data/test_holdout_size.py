"""How many rows a test set is that is cut out of a source."""

import fractions

import numpy as np
import pytest

from pujax.data.readers import holdout, svmlight, uci_tables
from pujax.data.sources import connect4, letter


@pytest.mark.parametrize("percent", [29, 57, 58])
def test_a_share_is_rounded_down_and_not_below_a_whole_number(percent):
    share = fractions.Fraction(percent, 100)
    wanted = [int(n * share) for n in range(2000)]
    assert [holdout.size(n, percent / 100) for n in range(2000)] == wanted
    assert any(int(n * (percent / 100)) != wanted[n] for n in range(2000))
    labels = np.repeat([0, 1], [100, 300]).astype(np.int32)
    held = holdout.is_test(labels, test_fraction=percent / 100, seed=0)
    assert np.bincount(labels[held]).tolist() == [percent, 3 * percent]


@pytest.mark.parametrize("percent", [10, 20])
def test_published_test_sets_have_the_rows_that_they_had(percent):
    assert all(holdout.size(n, percent / 100) == int(n * (percent / 100)) for n in range(100_000))


def test_a_source_without_its_numbers_has_the_test_set_of_the_one_with_them():
    counts = {"letter": letter.SOURCE.counts, "connect4": connect4.SOURCE.train_counts}
    for name, source, reader in (
        ("letter", letter.SOURCE, uci_tables),
        ("connect4", connect4.SOURCE, svmlight),
    ):
        labels = np.repeat(np.arange(len(counts[name])), counts[name])
        for share in (0.07, 0.29, 0.57):
            held = holdout.is_test(labels, test_fraction=share, seed=0)
            without = reader.without_data(source, test_fraction=share)
            assert np.bincount(without.test_labels).tolist() == np.bincount(labels[held]).tolist()
