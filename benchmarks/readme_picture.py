"""Draws README's picture: the map and the scores of the digits run, legible at 400 pixels.

    python benchmarks/readme_picture.py --output=docs/figures/digits.png

Trains what README's first command trains, LaGAM on the digits with seed 0, and draws two of the
run's figures side by side, with larger letters than the figures of a run have.
"""

import argparse
import os
import tempfile

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pujax import training
from pujax.plots import embedding_map, figures, style
from pujax.training.config import flags

_COMMAND = ["train.py", "--config=configs/lagam_digits.py", "--config.run.compare="]
_LETTERS = 11.5
"""Points; 10 pixels where the picture is 400 wide."""
_GROUPS = (  # of the map and of the scores, from back to front
    ("negatives in U", style.BLUE, "o", "--"),
    ("positives in U", style.VERMILION, "^", "-"),
    ("labelled", style.BLACK, "o", ":"),
)


def trained() -> dict[str, np.ndarray]:
    """Embeddings `points` `[n, d]`, and `scores`, `classes` and `labeled` `[n]` of a new run."""
    kept: dict[str, np.ndarray] = {}

    def embedding(points, classes, labeled, *_, **__):
        kept.update(points=points, classes=classes, labeled=labeled)

    def score_histogram(scores, *_, **__):
        kept.update(scores=scores)

    # A run keeps no arrays of its figures: they are taken where it hands them to be drawn.
    figures.embedding, figures.score_histogram = embedding, score_histogram
    config, *_ = flags.parse(_COMMAND)
    with tempfile.TemporaryDirectory() as folder:
        training.run(config, os.path.join(folder, "run"))
    return kept


def draw(
    points: np.ndarray, scores: np.ndarray, classes: np.ndarray, labeled: np.ndarray
) -> Figure:
    """Both panels on white, which a dark page frames.

    Args:
      points: `[n, d]`.
      scores: `[n]` logits.
      classes: `[n]`, 1 positive, 0 negative.
      labeled: `[n]` bool.
    """
    masks = (~labeled & (classes == 0), ~labeled & (classes == 1), labeled)
    figure = Figure(figsize=(6.4, 3.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    flat = embedding_map.project(points, method="tsne", seed=0)
    edges = np.linspace(scores.min(), scores.max(), 28)
    handles = []
    for (name, color, marker, line), mask in zip(_GROUPS, masks, strict=True):
        is_ring = mask is masks[2]
        fill = "none" if is_ring else color
        size, alpha = (5.0, 1.0) if is_ring else (3.0, 0.7)
        left.plot(*flat[mask].T, marker, ms=size, mec=color, mfc=fill, mew=is_ring, alpha=alpha)
        density, _ = np.histogram(scores[mask], edges, density=True)
        right.stairs(density, edges, color=color, linestyle=line, linewidth=2.0)
        label = f"{name} ({mask.sum()})"
        mark = {"marker": marker, "markersize": 5.0, "markerfacecolor": fill}
        handles.append(Line2D([], [], color=color, linestyle=line, label=label, **mark))
    left.set_title("t-SNE of the features", fontsize=_LETTERS)
    left.set(xticks=[], yticks=[])
    right.set_title("scores", fontsize=_LETTERS)
    right.set_xlabel("negative < 0 < positive", fontsize=_LETTERS)
    right.set(yticks=[])
    right.tick_params(labelsize=_LETTERS)
    right.axvline(0.0, color=style.GREY, linewidth=1.0)
    right.spines[["top", "left", "right"]].set_visible(False)
    place = {"loc": "outside lower center", "ncols": 3, "columnspacing": 1.0}
    figure.legend(handles=handles[::-1], fontsize=10.0, frameon=False, handlelength=1.6, **place)
    return figure


def main() -> None:
    """Trains and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="docs/figures/digits.png")
    output = parser.parse_args().output
    figure = draw(**trained())
    figure.savefig(output, dpi=200, facecolor="white")
    print(f"{output}: {os.path.getsize(output)} bytes")


if __name__ == "__main__":
    main()
