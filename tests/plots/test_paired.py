"""The figure of paired differences shows every seed, the mean and Student's interval."""

import math

import numpy as np
import pytest

from pujax.plots import figures, paired

ROWS = {"nnPU": [1.0, 2.0, 3.0], "one seed": [-4.0], "level": [0.5, 0.5]}


def drawn(**options):
    figure = paired.differences_figure(ROWS, reference="naive", unit="accuracy (points)", **options)
    return figure, figure.axes[0]


def points(axes, place):
    """All that is drawn in a row, by its marker."""
    lines = [line for line in axes.lines[1:] if abs(np.mean(line.get_ydata()) - place) < 0.1]
    return {line.get_marker(): np.asarray(line.get_xdata(), float) for line in lines}


def test_a_row_has_its_seeds_their_mean_and_an_interval():
    _, axes = drawn()
    first = points(axes, 0)
    np.testing.assert_array_equal(first["o"], [1, 2, 3])
    np.testing.assert_array_equal(first["D"], [2])
    # The 97.5 % point of Student's t with two degrees of freedom is 4.302653.
    np.testing.assert_allclose(
        first["None"], 2 + np.array([-1, 1]) * 4.302653 / math.sqrt(3), rtol=1e-6
    )
    single = points(axes, 1)
    np.testing.assert_array_equal(single["D"], single["o"])
    np.testing.assert_array_equal(single["D"], [-4])
    assert "None" not in single
    assert "None" not in points(axes, 2)  # without a spread nothing tells how large chance is
    for line in axes.lines[1:]:
        if line.get_marker() == "o":  # equal seeds stand apart, within their row
            heights = line.get_ydata()
            assert len(set(heights)) == len(heights) and np.ptp(heights) <= 0.5


def test_rows_run_from_top_to_bottom_and_axes_say_what_is_compared(tmp_path):
    figure, axes = drawn(title="A table: digits", note="seeds of one kind")
    assert [text.get_text() for text in axes.get_yticklabels()] == list(ROWS)
    low, high = axes.get_ylim()
    assert low > high  # the first row is on top
    label = axes.get_xlabel().replace("\n", " ")
    assert label.startswith("accuracy (points): difference from 'naive'")
    assert "95 % confidence intervals" in label and label.endswith("; seeds of one kind")
    assert not drawn()[1].get_xlabel().rstrip().endswith(";")
    assert figure.get_suptitle() == "A table: digits"
    figures.save(figure, tmp_path / "paired.png")
    assert (tmp_path / "paired.png").read_bytes().startswith(b"\x89PNG")


def test_names_are_no_formulas_and_long_ones_take_several_lines(tmp_path):
    rows = {"$\\pi$ = 0.5 $\\rho{$": [1.0], "a word and another one " * 6: [1.0, 2.0]}
    about = {"unit": "$a{$", "title": "$b{$ " * 40, "reference": "a row with a long name " * 6}
    figure = paired.differences_figure(rows, **about)
    figures.save(figure, tmp_path / "paired.png")
    first, second = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    assert first == "$\\pi$ = 0.5 $\\rho{$" and max(map(len, second.splitlines())) <= 40
    assert max(map(len, figure.axes[0].get_xlabel().splitlines())) <= 66


@pytest.mark.parametrize(
    ("rows", "named"),
    [({}, "differences is {}"), ({"a": []}, "'a'"), ({"b": [1.0, math.nan]}, "'b'")],
)
def test_what_cannot_be_drawn_is_named(rows, named):
    with pytest.raises(ValueError, match=named):
        paired.differences_figure(rows, reference="naive", unit="accuracy")
