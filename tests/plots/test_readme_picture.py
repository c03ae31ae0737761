"""README's picture is drawn from what a run hands to its figures."""

import inspect

import numpy as np
import pytest

from benchmarks import readme_picture
from pujax.plots import figures


@pytest.mark.thorough
def test_the_picture_has_two_panels_and_the_counts_of_three_groups(tmp_path):
    rng = np.random.default_rng(0)
    classes = np.repeat([1, 0], [30, 20])
    labeled = np.arange(50) < 8
    points = rng.normal(size=[50, 5]) + 4 * classes[:, None]
    figure = readme_picture.draw(points, points[:, 0] - 2, classes, labeled)
    figure.savefig(tmp_path / "picture.png", dpi=20)
    assert len(figure.axes) == 2
    (legend,) = figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["labelled (8)", "positives in U (22)", "negatives in U (20)"]
    drawn = [len(line.get_xdata()) for line in figure.axes[0].lines]
    assert drawn == [20, 22, 8]


def test_the_arrays_are_taken_where_a_run_has_them():
    """`readme_picture.trained` stands in for these two, by their first parameters."""
    points, scores = (
        list(inspect.signature(x).parameters) for x in (figures.embedding, figures.score_histogram)
    )
    assert points[:3] == ["points", "classes", "labeled"] and scores[0] == "scores"
