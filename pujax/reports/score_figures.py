"""Figures of all examples: scores of P and U, and a map of the representation."""

import numpy as np

from pujax.plots import embedding_map, figures
from pujax.reports import drawing, missing
from pujax.reports.parts import UNKNOWN, Figure, Section
from pujax.reports.run_folder import Run

_MAP_POINTS = 600


def histogram(run: Run, prefix: str) -> Section:
    """Scores of P and U."""
    title = "Scores of P and U"
    if run.is_multilabel:
        return Section("scores", title, ("See figures/scores.png in the run's folder.",))
    scores = run.scores
    if scores is None:
        return Section("scores", title, (missing.reason(run),))
    found = []
    parts = [("train", "trained on", scores.train_scores, scores.train_truth, scores.train_labeled)]
    if len(scores.held_scores):
        part = ("held", "held out", scores.held_scores, scores.held_truth, scores.held_labeled)
        parts.insert(0, part)
    for name, what, values, truth, labeled in parts:
        figure = figures.score_histogram_figure(values, truth, labeled, size=drawing.SIZE)
        figure.axes[0].set_ylabel("density (per unit of score)")
        finite = values[np.isfinite(values)]
        ends = f"{finite.min():.3g} to {finite.max():.3g}" if len(finite) else UNKNOWN
        found.append(
            Figure(
                drawing.svg(figure, f"{prefix}-scores-{name}"),
                f"Score histograms of P and U, {what}",
                f"Scores of the rows {what}, from {ends}; above 0 they are called positive by the "
                "score's sign. P and the positives of U should look alike.",
            )
        )
    return Section("scores", title, figures=tuple(found))


def embedding(run: Run, prefix: str) -> Section:
    """A map of the representation."""
    title = "Map of the representation"
    if run.is_multilabel:
        return Section("embedding", title, (missing.SEVERAL_LABELS,))
    scores = run.scores
    if scores is None:
        return Section("embedding", title, (missing.reason(run),))
    if not len(scores.map_rows):
        text = (
            "Not shown: the method has no representation to draw, or the run drew no figures "
            "(run.figures=False)."
        )
        return Section("embedding", title, (text,))
    method = "tsne" if len(scores.map_tsne) else "pca"
    flat = scores.map_tsne if method == "tsne" else scores.map_pca
    truth, labeled = scores.train_truth[scores.map_rows], scores.train_labeled[scores.map_rows]
    rows = embedding_map.sample(np.isfinite(flat).all(axis=1), labeled, 0, _MAP_POINTS)
    figure = figures.map_figure(
        flat[rows], truth[rows], labeled[rows], method=method, size=(4.2, 4.6)
    )
    name = {"tsne": "t-SNE", "pca": "the first two principal components"}[method]
    texts: tuple[str, ...] = ()
    if scores.map_remark:
        remark = scores.map_remark
        texts = (
            f"{remark[0].upper()}{remark[1:]}. Only principal components are shown, since t-SNE "
            "would draw structure that is not there.",
        )
    caption = f"{len(rows):,} training examples by {name}; circles are labelled positives."
    if method == "tsne":
        caption += " Distances between groups and their sizes mean nothing in t-SNE."
    drawn = Figure(
        drawing.svg(figure, f"{prefix}-map"), f"Map of the representation, {name}", caption
    )
    return Section("embedding", title, texts, figures=(drawn,))
