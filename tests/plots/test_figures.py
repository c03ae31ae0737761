import numpy as np
import pytest
from matplotlib import colors, pyplot
from PIL import Image

from pujax.plots import embedding_map, figures, style

TITLE = "lagam on digits, seed 3"


def rows():
    """Seven epochs, two of them warm-up, evaluated at every second one."""
    result = []
    for epoch in range(7):
        row = {"epoch": epoch, "stage": "main" if epoch > 1 else "warmup", "loss": 2.0 - epoch / 9}
        row |= {"loss_mixup": 0.5, "loss_group": None if epoch < 2 else 0.25, "seconds": 9e9}
        if epoch % 2:
            row |= {"test_accuracy": 0.8 + epoch / 99, "test_f1": 0.75, "test_auc": float("nan")}
            row |= {"label_accuracy": 0.9, "label_mse": 0.1 / epoch}
        result.append(row)
    return result


def curves(axes):
    return {line.get_label(): line.get_xydata() for line in axes.lines if _is_named(line)}


def borders(axes):
    return [line.get_xdata()[0] for line in axes.lines if not _is_named(line)]


def _is_named(line):
    return not line.get_label().startswith("_")


def texts(axes):
    return [text.get_text() for text in axes.texts]


def blobs(n=60, d=5):
    """Two separate groups in `d` dimensions, every fifth positive labelled."""
    random = np.random.default_rng(0)
    classes = np.arange(n) % 2
    points = random.normal(size=[n, d]) + 10.0 * classes[:, None]
    return points.astype(np.float32), classes, (classes == 1) & (np.arange(n) % 5 == 0)


def test_training_curves_show_losses_and_metrics_where_they_were_measured():
    left, right = figures.training_curves_figure(rows(), title=TITLE).axes
    assert list(curves(left)) == ["total", "mixup", "group"]
    np.testing.assert_array_equal(curves(left)["total"][:, 0], np.arange(1, 8))
    np.testing.assert_array_equal(curves(left)["group"], [[e, 0.25] for e in range(3, 8)])
    # AUC was never a number; seconds are no metric.
    assert list(curves(right)) == ["accuracy", "F1", "learned labels of U (accuracy)"]
    expected = [[e + 1, 0.8 + e / 99] for e in (1, 3, 5)]
    np.testing.assert_array_equal(curves(right)["accuracy"], expected)


def test_several_labels_have_a_curve_for_each_of_three_metrics_and_no_other(recwarn, tmp_path):
    several = ("mean_average_precision", "overall_f1", "class_f1")
    others = [f"{x}{y}" for x in ("raw_", "oracle_") for y in several]
    others += ["overall_precision", "overall_recall", "class_precision", "class_recall"]
    row = {f"test_{name}": 0.4 for name in (*others, *several)} | {"test_tied_scores": 90}
    figure = figures.training_curves_figure([{"epoch": e, "loss": 1.0} | row for e in range(3)])
    legend = [text.get_text() for text in figure.axes[1].get_legend().get_texts()]
    assert legend == ["mean average precision", "overall F1", "F1, mean over labels"]
    figures.save(figure, tmp_path / "curves.png")
    assert not recwarn.list  # of a panel that its legend leaves no room


def test_training_curves_mark_where_stages_meet():
    for axes in figures.training_curves_figure(rows()).axes:
        # After 2 completed epochs and before the third.
        assert borders(axes) == [2.5]
        assert texts(axes) == ["main"]
    one_stage = [{"epoch": e, "loss": 1.0} for e in range(3)]
    assert borders(figures.training_curves_figure(one_stage).axes[0]) == []


def test_panels_have_title_axis_labels_and_units():
    for build in (figures.training_curves_figure, figures.label_error_figure):
        figure = build(rows(), title=TITLE)
        assert figure.get_suptitle() == TITLE
        assert all(a.get_xlabel() == "epochs completed" and a.get_ylabel() for a in figure.axes)
        assert "%" in figure.axes[1].get_ylabel()
        # Shares are drawn as fractions and labelled as percent.
        assert figure.axes[1].yaxis.get_major_formatter()(0.5).startswith("50")


@pytest.mark.parametrize("build", [figures.training_curves_figure, figures.label_error_figure])
@pytest.mark.parametrize("few", [[], [{"epoch": 0}], [{"epoch": 0, "loss": None}, {"epoch": 1}]])
def test_panels_without_numbers_say_so(build, few, tmp_path):
    figure = build(few)
    assert all(texts(axes) == ["nothing was measured"] for axes in figure.axes)
    figures.save(figure, tmp_path / "a.png")


def test_a_single_evaluation_is_visible():
    axes = figures.training_curves_figure([{"epoch": 0, "test_f1": np.float32(0.5)}]).axes[1]
    assert axes.lines[0].get_marker() == "o"
    long = [{"epoch": e, "test_f1": 0.5} for e in range(400)]
    assert figures.training_curves_figure(long).axes[1].lines[0].get_marker() == "None"


def test_many_losses_stay_distinct():
    row = {"epoch": 0, "loss": 1.0} | {f"loss_{i}": float(i) for i in range(15)}
    axes = figures.training_curves_figure([row]).axes[0]
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == len(axes.lines) == 16


def test_label_error_draws_error_from_zero_and_accuracy():
    left, right = figures.label_error_figure(rows(), title=TITLE).axes
    (error,) = curves(left).values()
    np.testing.assert_array_equal(error, [[e + 1, 0.1 / e] for e in (1, 3, 5)])
    assert left.get_ylim()[0] == 0
    (accuracy,) = curves(right).values()
    np.testing.assert_array_equal(accuracy[:, 1], [0.9] * 3)


def groups(axes):
    """Number of points by the group's name in the legend, which repeats the number."""
    found = {}
    for scatter in axes.collections:
        name, count = scatter.get_label().removesuffix(")").split(" (")
        assert int(count) == len(scatter.get_offsets())
        found[name] = len(scatter.get_offsets())
    return found


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_a_map_colours_by_class_and_marks_labelled_positives(method):
    points, classes, labeled = blobs()
    classes = classes.copy()
    classes[:3] = -1
    flat = points[:, :2]
    (axes,) = figures.map_figure(flat, classes, labeled, title=TITLE, method=method).axes
    assert groups(axes) == {
        "unknown class": 3,
        "negative": 28,
        "positive": 29,
        "labelled positive": labeled.sum(),
    }
    by_name = {s.get_label().split(" (")[0]: s for s in axes.collections}
    for name, color in (("negative", style.BLUE), ("positive", style.VERMILION)):
        np.testing.assert_allclose(by_name[name].get_facecolor()[0, :3], colors.to_rgb(color))
    # A labelled positive keeps its place and gets a ring.
    rings, positives = (by_name[n].get_offsets() for n in ("labelled positive", "positive"))
    assert {tuple(p) for p in rings} <= {tuple(p) for p in positives}
    assert {tuple(p) for p in rings} == {tuple(p) for p in flat[labeled]}
    word = {"pca": "principal component", "tsne": "t-SNE"}[method]
    assert word in axes.get_xlabel() and word in axes.get_ylabel()


def test_a_map_without_points_says_so():
    nothing = np.zeros(0, int)
    (axes,) = figures.map_figure(np.zeros([0, 2]), nothing, nothing == 1, method="pca").axes
    assert texts(axes) == ["no finite points"]


def stairs(axes):
    return {patch.get_label().split(" (")[0]: patch.get_data() for patch in axes.patches}


def test_score_histogram_shows_densities_of_the_groups_with_an_edge_at_the_threshold():
    random = np.random.default_rng(1)
    truth = np.arange(300) % 3 - 1
    labeled = (truth == 1) & (np.arange(300) < 60)
    scores = random.normal(size=300) * 3 + 5 * truth
    (axes,) = figures.score_histogram_figure(scores, truth, labeled, title=TITLE).axes
    drawn = stairs(axes)
    masks = {
        "labelled positives": labeled,
        "U, positives": ~labeled & (truth == 1),
        "U, negatives": truth == 0,
        "U, class unknown": truth == -1,
    }
    assert list(drawn) == list(masks)
    for name, mask in masks.items():
        values, edges = drawn[name].values, drawn[name].edges
        share = values * np.diff(edges)
        assert 0.0 in edges
        # Both sums are of at most 45 doubles.
        np.testing.assert_allclose(share.sum(), 1.0, rtol=1e-12)
        np.testing.assert_allclose(share[edges[:-1] >= 0].sum(), np.mean(scores[mask] >= 0))
    assert 0.0 in borders(axes) and "decision threshold" in texts(axes)
    assert axes.get_xlabel() == "score (logit)" and "density" in axes.get_ylabel()


@pytest.mark.parametrize("scores", [[0.0, 0.0], [-7.0, -7.0], [1e-30, 2e-30], [3e38, -3e38]])
def test_score_histogram_covers_any_range(scores, tmp_path):
    figure = figures.score_histogram_figure(np.asarray(scores), np.ones(2), np.zeros(2, bool))
    ((name, data),) = stairs(figure.axes[0]).items()
    assert name == "U, positives"
    np.testing.assert_allclose(np.sum(data.values * np.diff(data.edges)), 1.0, rtol=1e-9)
    figures.save(figure, tmp_path / "a.png")


def test_score_histogram_without_finite_scores_says_so():
    broken = np.full(4, np.nan)
    figure = figures.score_histogram_figure(broken, np.ones(4), np.zeros(4, bool))
    assert "no finite scores" in texts(figure.axes[0])
    with pytest.raises(ValueError, match="shapes"):
        figures.score_histogram_figure(broken, np.ones(3), np.zeros(4, bool))


def test_every_figure_becomes_a_png_of_its_size_with_something_on_it(tmp_path):
    folder = tmp_path / "figures"
    points, classes, labeled = blobs()
    figures.training_curves(rows(), folder / "training.png", title=TITLE)
    figures.label_error(rows(), folder / "label_error.png", title=TITLE)
    for method in ("pca", "tsne"):
        flat = figures.map_figure(points[:, :2], classes, labeled, title=TITLE, method=method)
        figures.save(flat, folder / f"{method}.png")
    figures.score_histogram(points[:, 0], classes, labeled, folder / "scores.png", title=TITLE)
    names = {path.name for path in folder.iterdir()}
    assert names == {"training.png", "label_error.png", "pca.png", "tsne.png", "scores.png"}
    for path in folder.iterdir():
        assert path.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
        with Image.open(path) as image:
            image.verify()
        with Image.open(path) as image:
            assert 700 <= image.width <= 1500 and 450 <= image.height <= 900
            pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
        assert len(np.unique(pixels, axis=0)) > 50
    # No figure was left with pyplot's global state.
    assert pyplot.get_fignums() == []


def test_a_figure_that_cannot_be_drawn_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.png"
    figures.training_curves(rows(), path)
    before = path.read_bytes()

    def fail(*args, **kwargs):
        raise MemoryError

    monkeypatch.setattr(figures.FigureCanvasAgg, "print_figure", fail)
    with pytest.raises(MemoryError):
        figures.training_curves([], path)
    assert path.read_bytes() == before and list(tmp_path.iterdir()) == [path]


def _boxes(figure):
    """The panels and their legends on a canvas, in pixels."""
    canvas = figures.FigureCanvasAgg(figure)
    canvas.draw()
    renderer = canvas.get_renderer()
    return [
        (axes.get_window_extent(renderer), axes.get_legend().get_window_extent(renderer))
        for axes in figure.axes
    ], figure.bbox


def test_a_legend_covers_neither_a_panel_nor_the_edge_of_the_figure():
    random = np.random.default_rng(0)
    truth = np.arange(90) % 3 - 1
    scores = figures.score_histogram_figure(random.normal(size=90), truth, truth == 1)
    many = [{"epoch": 0, "loss": 1.0, "test_f1": 0.5} | {f"loss_{i}": 1.0 for i in range(9)}]
    few = figures.training_curves_figure(rows())
    for figure in (few, figures.training_curves_figure(many), scores):
        boxes, whole = _boxes(figure)
        for panel, legend in boxes:
            assert legend.y1 < panel.y0 and panel.height > 0.4 * whole.height
            assert whole.x0 <= legend.x0 and legend.x1 <= whole.x1 and whole.y0 <= legend.y0
    left, right = _boxes(figures.training_curves_figure(many))[0]
    assert left[1].x1 < right[1].x0


def test_f1_can_be_seen_where_as_many_are_called_positive():
    same = [{"epoch": e, "test_f1": 0.5, "test_predicted_positive": 0.5} for e in range(50)]
    by_name = {x.get_label(): x for x in figures.training_curves_figure(same).axes[1].lines}
    f1, called = by_name["F1"], by_name["predicted positive (share)"]
    assert called.get_zorder() < f1.get_zorder()
    assert called.get_linewidth() > 2 * f1.get_linewidth() and called.get_alpha() < 0.5


@pytest.mark.parametrize(("offset", "side"), [(1000.0, "left"), (-1000.0, "right")])
def test_a_threshold_far_from_all_scores_is_named_and_not_drawn(offset, side):
    scores = np.linspace(0, 1, 50) + offset
    (axes,) = figures.score_histogram_figure(scores, np.ones(50), np.zeros(50, bool)).axes
    assert axes.get_title(loc=side) == f"decision threshold: 0, {side} of this range"
    low, high = axes.get_xlim()
    assert high - low < 2 and borders(axes) == []
    ((_, data),) = stairs(axes).items()
    assert (data.values > 0).sum() > 20  # not all in one bin


@pytest.mark.parametrize("sign", [1, -1])
def test_the_threshold_is_named_inside_of_the_panel(sign):
    # All scores on one side, so that the threshold stands at the other edge.
    scores = sign * np.linspace(0.1, 1, 50)
    figure = figures.score_histogram_figure(scores, np.ones(50), np.zeros(50, bool))
    figures.FigureCanvasAgg(figure).draw()
    (axes,) = figure.axes
    (text,) = [text for text in axes.texts if text.get_text() == "decision threshold"]
    box, panel = text.get_window_extent(), axes.get_window_extent()
    assert panel.x0 <= box.x0 and box.x1 <= panel.x1


def test_a_collapsed_embedding_is_said_and_not_drawn_by_tsne():
    random = np.random.default_rng(0)
    points = 1 + 1e-6 * random.normal(size=[40, 8])
    classes, labeled = np.arange(40) % 2, np.arange(40) < 3
    remark = embedding_map.collapse(points)
    nothing = np.zeros([0, 2])
    (axes,) = figures.map_figure(nothing, classes, labeled, method="tsne", remark=remark).axes
    assert not axes.collections
    assert "Not drawn: the representation has collapsed" in " ".join(texts(axes)[0].split())
    flat = embedding_map.project(points, method="pca")
    (axes,) = figures.map_figure(flat, classes, labeled, method="pca", remark=remark).axes
    assert groups(axes)["positive"] == 20 and "has collapsed" in axes.get_title(loc="left")
