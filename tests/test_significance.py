"""p-values against closed forms: Student's t with one and two degrees of freedom, Holm by hand."""

import math

import numpy as np
import pytest
from scipy import stats

from pujax import significance


def test_two_pairs_have_the_arctangent_of_student_with_one_degree_of_freedom():
    # t = mean / (std / sqrt 2) = 3 / 1, and P(|T| > t) = 1 - 2 arctan(t) / pi.
    p = significance.paired_p_value([2.0, 4.0])
    assert p == pytest.approx(1 - 2 * math.atan(3) / math.pi, rel=1e-12)


def test_three_pairs_have_the_closed_form_with_two_degrees_of_freedom():
    values = [-1.0, 2.0, 5.0]
    t = 2 / (3 / math.sqrt(3))
    p = significance.paired_p_value(values)
    assert p == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-12)
    assert significance.paired_p_value([-x for x in values]) == pytest.approx(p)


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        *(([], math.nan), ([1.0], math.nan), ([1.0, math.nan], math.nan), ([2, 2], math.nan)),
        ([0, 0], 1),
        ([0.9 - 0.8, 0.8 - 0.7, 0.7 - 0.6], math.nan),  # equal up to rounding
    ],
)
def test_p_is_unknown_without_spread(differences, p):
    assert significance.paired_p_value(differences) == pytest.approx(p, nan_ok=True)


def test_holm_by_hand():
    # In order .01 (x 3), .02 (x 2), .04 (x 1); unknown ones count for nothing.
    found = significance.holm([0.04, math.nan, 0.01, 0.02])
    np.testing.assert_allclose(found, [0.04, math.nan, 0.03, 0.04])
    # .03 x 2 = .06 is not undercut by .04 x 1; and nothing is above 1.
    np.testing.assert_allclose(significance.holm([0.03, 0.04]), [0.06, 0.06])
    np.testing.assert_allclose(significance.holm([0.9, 0.6]), [1, 1])
    assert significance.holm([]).shape == (0,)


@pytest.mark.parametrize(
    ("p_values", "said"),
    [
        ([-1, 0.2], r"a number of p_values is -1.0; accepted: a number in \[0, 1\]"),
        ([0.1, math.inf], r"a number of p_values is inf; accepted: a number in \[0, 1\]"),
        (0.1, r"p_values has shape \(\); accepted: \[m\], one number each"),
        ([[0.1, 0.2]], r"p_values has shape \(1, 2\); accepted: \[m\], one number each"),
        (["a"], r"p_values is \['a'\]; accepted: \[m\], one number each"),
    ],
)
def test_what_are_no_p_values_are_named(p_values, said):
    with pytest.raises(ValueError, match=said):
        significance.holm(p_values)


def test_a_small_spread_is_a_spread():
    # t of the mean against its standard error, 4.4e-4.
    values = [1.0, 1.0005, 0.9999]
    t = np.mean(values) / (np.std(values, ddof=1) / math.sqrt(3))
    p = significance.paired_p_value(values)
    assert p == pytest.approx(1 - t / math.sqrt(2 + t * t), rel=1e-6) and 0 < p < 1e-4
    assert significance.mean_interval([1.0, 1.0005], level=0.9)[0] < 1


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_what_is_rounding_depends_on_the_size_of_the_numbers(scale):
    rounded = np.array([1.0, 1 + 1e-10, 1.0]) * scale
    assert math.isnan(significance.paired_p_value(rounded))
    assert 0 < significance.paired_p_value(np.array([1.0, 1 + 1e-7, 1.0]) * scale) < 1e-9


def test_a_level_or_numbers_that_cannot_be_are_named():
    for level in (2, 0, 1.0, math.nan, "a"):
        with pytest.raises(ValueError, match=r"level is .*; accepted: a number in \(0, 1\)"):
            significance.mean_interval([1.0, 2.0], level=level)
    with pytest.raises(ValueError, match=r"values is \['a', 'b'\]; accepted: \[m\]"):
        significance.mean_interval(["a", "b"], level=0.9)
    with pytest.raises(ValueError, match=r"differences has shape \(1, 2\); accepted: \[m\]"):
        significance.paired_p_value([[1.0, 2.0]])


def test_the_interval_of_a_mean_is_students_and_unknown_without_a_spread():
    values = [1.0, 4.0, 2.5, 0.5]
    expected = stats.t.interval(0.9, 3, np.mean(values), stats.sem(values))
    np.testing.assert_allclose(significance.mean_interval(values, level=0.9), expected)
    for unknown in ([], [1.0], [1.0, math.nan], [2.0, 2.0], [0.9 - 0.8, 0.8 - 0.7]):
        assert np.isnan(significance.mean_interval(unknown, level=0.9)).all()
    assert significance.mean_interval([0.0, 0.0], level=0.9) == (0, 0)
