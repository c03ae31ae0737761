"""Draws README's picture: the map and the scores of the digits run, legible at 400 pixels.

    python benchmarks/readme_picture.py --output=docs/figures/digits.png

Trains what README's first command trains, LaGAM on the digits with seed 0, and draws two of the
run's figures side by side, with larger letters than the figures of a run have. `--run=FOLDER` draws
a run that has been trained; without it, further options are of the training, such as
`--config.method.num_epochs=4`.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pujax import checks, training
from pujax.plots import style
from pujax.training import example_scores
from pujax.training.config import flags

_COMMAND = ("train.py", "--config=configs/lagam_digits.py", "--config.run.compare=")
_LETTERS = 11.5
"""Points; 10 pixels where the picture is 400 wide."""
_GROUPS = (  # of the map and of the scores, from back to front
    ("negatives in U", style.BLUE, "o", "--"),
    ("positives in U", style.VERMILION, "^", "-"),
    ("labelled", style.BLACK, "o", ":"),
)


def draw(run: str) -> Figure:
    """Both panels on white, which a dark page frames.

    Args:
      run: folder of a run, of which `scores.npz` is read.

    Raises:
      ValueError: if the run has no such file, or no map of its representation.
    """
    saved = example_scores.read(run)
    if saved is None or not len(saved.map_tsne):
        why = "no scores.npz" if saved is None else saved.map_remark or "no map"
        raise ValueError(
            f"--run is {run!r}, which has no map to draw ({why}); accepted: the folder of a run "
            "with scores.npz"
        )
    scores, classes, labeled = saved.train_scores, saved.train_truth, saved.train_labeled
    masks = (~labeled & (classes == 0), ~labeled & (classes == 1), labeled)
    figure = Figure(figsize=(6.4, 3.1), layout="constrained")
    left, right = figure.subplots(1, 2)
    edges = np.linspace(scores.min(), scores.max(), 28)
    handles = []
    for (name, color, marker, line), mask in zip(_GROUPS, masks, strict=True):
        is_ring = mask is masks[2]
        fill = "none" if is_ring else color
        size, alpha = (5.0, 1.0) if is_ring else (3.0, 0.7)
        flat = saved.map_tsne[mask[saved.map_rows]]
        left.plot(*flat.T, marker, ms=size, mec=color, mfc=fill, mew=is_ring, alpha=alpha)
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


def main(argv: Sequence[str] | None = None) -> int:
    """Trains, if there is no run yet, and draws."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", default="docs/figures/digits.png")
    parser.add_argument("--run", help="folder of a run; without it, one is trained")
    options, settings = parser.parse_known_args(argv)
    if options.run and settings:
        parser.error(f"{settings} are of the training, and --run names a run that is trained")
    try:
        place = os.path.dirname(options.output) or "."
        is_file = os.path.isdir(place) and not os.path.isdir(options.output)
        checks.require(is_file, "--output", options.output, "a file in a folder that exists")
        with tempfile.TemporaryDirectory() as folder:
            run = options.run
            if not run:
                run = os.path.join(folder, "run")
                config, *_ = flags.parse([*_COMMAND, *settings])
                training.run(config, run)
            figure = draw(run)
    except ValueError as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2
    figure.savefig(options.output, dpi=200, facecolor="white")
    print(f"{options.output}: {os.path.getsize(options.output)} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
