"""Curves over a number: which points are drawn, and what is refused."""

import numpy as np
import pytest

from pujax.plots import number_curves

PANELS = {
    "AUC, %": {
        "head": {20.0: [90.0, 92.0, 94.0], 5.0: [80.0]},
        "scratch": {5.0: [60.0, 70.0], 20.0: [85.0, 85.0]},
    },
    "F1, %": {"head": {20.0: [70.0]}},
}


def test_points_are_means_and_bars_one_deviation():
    figure = number_curves.curves_figure(PANELS, numbers="digits, # labels", title="Few $ labels")
    first, second = figure.axes
    lines = {x.get_label(): x for x in first.containers}
    assert list(lines) == ["head", "scratch"]
    data = lines["head"].lines[0].get_xydata()
    np.testing.assert_allclose(data, [[5, 80], [20, 92]])
    bars = lines["head"].lines[2][0].get_segments()
    assert len(bars[0]) == 0  # of one seed the deviation is not known, and has no bar
    np.testing.assert_allclose(bars[1][:, 1], [92 - 2, 92 + 2])
    assert first.get_xlabel() == "digits, # labels" and second.get_ylabel() == "F1, %"
    assert [x.get_text() for x in first.get_xticklabels()] == ["5", "20"]
    dollars = {"AUC": {"$\\gamma": {5.0: [1.0]}, "a $_{$": {5.0: [2.0]}, "_b": {5.0: [2.0]}}}
    texts = number_curves.curves_figure(dollars, numbers="#").legends[0].get_texts()
    assert not any(x.get_parse_math() for x in texts)  # as math the second is none
    assert [x.get_text() for x in texts] == list(dollars["AUC"])
    assert first.get_xscale() == "linear"
    wide = {"AUC": {"head": {5.0: [1.0], 10.0: [1.0], 40.0: [1.0]}}}
    assert number_curves.curves_figure(wide, numbers="#").axes[0].get_xscale() == "log"
    even = {"AUC": {"head": {float(x): [1.0] for x in range(10, 101, 10)}}}
    assert number_curves.curves_figure(even, numbers="#").axes[0].get_xscale() == "linear"
    zero = {"AUC": {"head": {0.0: [1.0], 10.0: [1.0], 40.0: [1.0]}}}
    assert number_curves.curves_figure(zero, numbers="#").axes[0].get_xscale() == "linear"


@pytest.mark.parametrize(
    ("panels", "said"),
    [
        ({}, "panels is {}"),
        ({"AUC": {"head": {5.0: [float("nan")]}}}, "values of 'head'"),
        ({"AUC": {"head": {5.0: []}}}, "values of 'head'"),
        ({"AUC": {"head": {float("inf"): [1.0]}}}, "values of 'head'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(panels, said):
    with pytest.raises(ValueError, match=said):
        number_curves.curves_figure(panels, numbers="#")
