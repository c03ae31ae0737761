"""Rules of decision: by hand."""

import numpy as np
import pytest

from pujax.training import decisions

SCORES = np.array([0.5, -1.0, 2.0, 0.5, 0.0])
SHARES = np.array([0.6, 0.1, 0.9, 0.6, 0.5])


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ("score:0", [1, 0, 1, 1, 0]),
        ("score:-2", [1, 1, 1, 1, 1]),
        ("probability:0.6", [1, 0, 1, 1, 0]),
        ("probability:0.61", [0, 0, 1, 0, 0]),
        ("top:1", [0, 0, 1, 0, 0]),
        ("top:2", [1, 0, 1, 0, 0]),  # of equal scores the first
        ("top:9", [1, 1, 1, 1, 1]),
        ("share:0.4", [1, 0, 1, 0, 0]),
        ("share:0.35", [1, 0, 1, 0, 0]),  # 1.75 of 5 rows are 2
        ("share:0", [0, 0, 0, 0, 0]),
    ],
)
def test_who_is_called_positive(rule, wanted):
    np.testing.assert_array_equal(decisions.decide(rule, SCORES, SHARES), np.array(wanted, bool))


def test_equal_scores_share_the_smallest_rank():
    np.testing.assert_array_equal(decisions.ranks(SCORES), [2, 5, 1, 2, 4])


@pytest.mark.parametrize(
    "text", ["", "top", "top:0", "top:1.5", "share:1.1", "probability:x", "rank:3", "score:nan"]
)
def test_a_rule_that_cannot_be_is_named(text):
    with pytest.raises(ValueError, match="run.decide is .*; accepted: 'score:0'"):
        decisions.parse(text)


def test_a_probability_that_is_not_known_is_refused():
    with pytest.raises(ValueError, match="run.decide is 'probability:0.5'; .*no probability"):
        decisions.decide("probability:0.5", SCORES, None)
