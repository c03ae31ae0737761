"""PU-MLC on small real sets over the share of known labels, and what its parts do.

    python -m pujax.sweep --plan=configs/sweeps/pu_mlc_small.py:part=ratios,folder=FOLDER \
        --workdir=DIR

Arguments: folder holds scene.npz, yeast.npz, emotions.npz, voc5.npz, coco128.npz; part = ratios
(default; PU-MLC with gamma 0.5, the assume-negative and the fully labelled cross-entropy from 10 %
to all labels known), rule (gamma by the rule at the same ratios, and known negatives from 60 % on),
choice (powers of the share of hidden labels beside fixed gammas on scene and emotions: what the
rule was chosen by, in archives whose test rows are training rows held out), gammas (fixed gammas
beside the rule at the same ratios), risk (gamma and the adaptive temperature at 10, 50 and 100 %),
images (LgConv on and off); metric = mean_average_precision (default), overall_f1, class_f1, the
first of the three that are shown. The table has the last epoch, at the threshold 0.5, and the best
epoch, threshold and weights on the test set (`oracle_best_epoch`), by which the paper reports. None
of these sets is in the paper.
"""

import os

from pujax import sweep
from pujax.configs import common, pu_mlc

_RATIOS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_FIXED = (0.0, 0.25, 0.5, 0.75, 1.0)
_MANY = 0.6  # share of known labels from which the known negatives are tried
_TABLES = ("scene", "yeast", "emotions")
_LABELS = {
    "assume_negative": "assume-negative BCE",
    "multilabel_supervised": "fully labelled BCE",
}
_METRICS = ("mean_average_precision", "overall_f1", "class_f1")


def get_plan(argument: str = "") -> sweep.Plan:
    """The cells of one part."""
    parts = {"ratios": _ratios, "rule": _rule, "choice": _choice, "risk": _risk}
    parts |= {"gammas": _gammas, "images": _images}
    chosen = common.parse(argument, part=tuple(parts), metric=_METRICS, folder=None)
    cells = parts[chosen["part"]]
    is_image = chosen["part"] == "images"
    return sweep.Plan(
        f"PU-MLC on small sets: {chosen['part']}",
        tuple(cells(chosen["folder"])),
        seeds=(0, 1) if is_image else (0, 1, 2, 3, 4),
        metric=chosen["metric"],
        also=[metric for metric in _METRICS if metric != chosen["metric"]],
        rules=("last", "oracle_best_epoch"),
    )


def _cell(folder, row, data, *, method="pu_mlc", ratio, lgconv="on", **changes) -> sweep.Cell:
    config = pu_mlc.get_config(f"data={data},method={method},lgconv={lgconv}")
    config.data.dir = os.path.join(folder, f"{data}.npz")
    config.data.known_ratio = ratio
    config.method.update(changes)
    return sweep.Cell(row, f"{data} {100 * ratio:.0f} %", config)


def _ratios(folder):
    for data in _TABLES:
        for ratio in _RATIOS:
            yield _cell(folder, "PU-MLC, gamma 0.5", data, ratio=ratio, gamma=0.5)
            method = "assume_negative"
            yield _cell(folder, _LABELS[method], data, method=method, ratio=ratio)
        method = "multilabel_supervised"
        yield _cell(folder, _LABELS[method], data, method=method, ratio=1.0)


def _rule(folder):
    for data in _TABLES:
        for ratio in _RATIOS:
            yield _cell(folder, "PU-MLC, gamma auto", data, ratio=ratio, gamma="auto")
            if ratio >= _MANY:
                row = "PU-MLC, gamma auto, known negatives"
                changes = {"gamma": "auto", "known_negatives": True}
                yield _cell(folder, row, data, ratio=ratio, **changes)


def _choice(folder):
    for data in ("scene", "emotions"):
        for ratio in (0.1, 0.3, 0.5, 0.8):
            for gamma in _FIXED:
                yield _cell(folder, f"gamma {gamma}", data, ratio=ratio, gamma=gamma)
            for power in (1, 2, 3, 4):
                row = f"(1 - r)^{power}"
                yield _cell(folder, row, data, ratio=ratio, gamma=(1 - ratio) ** power)


def _gammas(folder):
    for data in _TABLES:
        for ratio in _RATIOS:
            for gamma in (*_FIXED, "auto"):
                yield _cell(folder, f"gamma {gamma}", data, ratio=ratio, gamma=gamma)


def _risk(folder):
    for data in _TABLES:
        for ratio in (0.1, 0.5, 1.0):
            for gamma in _FIXED:
                for alpha in (0.0, 1.0, 2.0):
                    temperature = f"alpha {alpha:g}" if alpha else "temperature 1"
                    row = f"gamma {gamma:g}, {temperature}"
                    yield _cell(folder, row, data, ratio=ratio, gamma=gamma, alpha=alpha)


def _images(folder):
    for data, ratio in (("voc5", 0.1), ("coco128", 0.5)):
        for lgconv in ("on", "off"):
            row = f"PU-MLC, LgConv {lgconv}"
            yield _cell(folder, row, data, ratio=ratio, lgconv=lgconv, gamma=0.5)
        row = f"{_LABELS['assume_negative']}, LgConv off"
        yield _cell(folder, row, data, method="assume_negative", ratio=ratio, lgconv="off")
