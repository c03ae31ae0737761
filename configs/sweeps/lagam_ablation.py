"""LaGAM's Tables 3 to 6 on the handwritten digits, and how many labels and support images it needs.

python -m pujax.sweep --plan=configs/sweeps/lagam_ablation.py --workdir=DIR

Five seeds. Each row changes the full method, `configs/lagam_digits.py`, by what its name says; the
figures that the paper prints are of CIFAR-10 and CIFAR-100 and stand in docs/results/lagam.md. The
authors' code has no random views in the rows of Table 3 without contrast: those that say "no views"
are its rows, the others keep the views, so that one part at a time is missing.
"""

from pujax import sweep
from pujax.configs import lagam_digits

_CLUSTERS = (2, 5, 50)
_SUPPORT = (10, 20, 100)
_LABELED = (30, 50, 200, 300)
_NO_CONTRAST = {"method.use_contrast": False, "method.augment": False}

_ROWS = {
    "full": {},
    # Table 3: the parts.
    "no contrast": {"method.use_contrast": False},
    "no meta": {"method.use_meta": False},
    "nnPU + contrast, no meta": {"method.use_meta": False, "method.classification_loss": "nnpu"},
    "no meta, no contrast": {"method.use_meta": False, "method.use_contrast": False},
    "no contrast, no views": _NO_CONTRAST,
    "no meta, no contrast, no views, plain loss": {
        "method.use_meta": False,
        "method.use_contrast": False,
        "method.augment": False,
        "method.classification_loss": "mean",
    },
    # Table 4: the label update.
    "soft update": {"method.label_update": "normalized"},
    "no EMA": {"method.rho_start": 0.0, "method.rho_end": 0.0},
    "soft update, no contrast, no views": _NO_CONTRAST | {"method.label_update": "normalized"},
    "no EMA, no contrast, no views": (
        _NO_CONTRAST | {"method.rho_start": 0.0, "method.rho_end": 0.0}
    ),
    # Table 5: the positives of the contrastive loss.
    "no neighbours": {"method.use_neighbors": False},
    "no neighbours, no cut-off": {"method.use_neighbors": False, "method.use_cutoff": False},
    "instances only": {"method.use_groups": False},
    # Table 6.
    **{f"{number} clusters": {"method.num_clusters": number} for number in _CLUSTERS},
    # Batches of the support set hold all of it where it has fewer than 60 images.
    **{
        f"support of {size}": {
            "data.num_support": size,
            "method.support_batch_size": min(size, 60),
        }
        for size in _SUPPORT
    },
    **{f"{number} labels": {"data.num_labeled": number} for number in _LABELED},
}


def get_plan() -> sweep.Plan:
    """All rows, in the order of the paper's tables."""
    cells = []
    for row, changes in _ROWS.items():
        config = lagam_digits.get_config()
        config.run.compare = ""
        config.update_from_flattened_dict(changes)
        cells.append(sweep.Cell(row, "digits", config))
    return sweep.Plan("LaGAM on digits, its parts", cells, seeds=(0, 1, 2, 3, 4), reference="full")
