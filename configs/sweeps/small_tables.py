"""Few rows of which few are positive, as in one's own table: AUC of every method that fits.

    python -m pujax.sweep --plan=configs/sweeps/small_tables.py --workdir=DIR \
        --data_dir=a9a=FOLDER,mushrooms=FOLDER,...

Arguments: part = losses (default), nnPU by its published loss and by that of
`configs/own_table.py`; methods, all that need no known negatives, with 600 rows of two sets.
told = true (default), half: the prior that a method is told, the true one or half of it.

600 or 3,000 rows are drawn by the seed so that as many are positive as the column says. Three
tenths of the positives have labels (one-sample), a fifth of the rows is held out for the methods
that choose an epoch by it, and the prior is given, so that a column tells methods apart and not
estimates of the prior. Network and lengths are those of `configs/own_table.py`. The AUC is that
of the test set, of all its rows.
"""

import ml_collections

from pujax import methods, sweep
from pujax.configs import common

# Sets and shares of positives among the rows; a9a and phishing as they are, and with fewer.
_SHARES = (
    *(("a9a", 0.24), ("a9a", 0.1), ("ijcnn1", 0.1), ("mushrooms", 0.5)),
    *(("mushrooms", 0.1), ("mushrooms", 0.03), ("phishing", 0.56), ("phishing", 0.1)),
)
_NUM_ROWS = (600, 3000)
_LABELED = 0.3
_HELD_OUT = 0.2
# Self-PU picks as many confident examples of either class: there are too few positives here.
_NEEDS_MORE = ("self_pu",)
# Two sets with few positives, for all methods.
_HARD = (("mushrooms", 0.03), ("phishing", 0.1))


def get_plan(argument: str = "") -> sweep.Plan:
    """The cells of one part."""
    chosen = common.parse(argument, part=("losses", "methods"), told=("true", "half"))
    factor = {"true": 1.0, "half": 0.5}[chosen["told"]]
    cells = []
    if chosen["part"] == "losses":
        for source, share in _SHARES:
            for num_rows in _NUM_ROWS:
                for loss in ("sigmoid", "logistic"):
                    config = _config("nnpu", source, share, num_rows, factor)
                    config.method.loss = loss
                    cells.append(sweep.Cell(loss, _column(source, share, num_rows), config))
        reference = "sigmoid"
    else:
        for source, share in _HARD:
            for name in methods.without_negatives():
                if name in _NEEDS_MORE:
                    continue
                config = _config(name, source, share, _NUM_ROWS[0], factor)
                cells.append(sweep.Cell(name, _column(source, share, _NUM_ROWS[0]), config))
        reference = "nnpu"
    title = "AUC with few rows of which few are positive"
    rules = ("reported",)
    return sweep.Plan(title, cells, (0, 1, 2), rules=rules, metric="auc", reference=reference)


def _column(source: str, share: float, num_rows: int) -> str:
    return f"{source} {round(100 * share)} % of {num_rows}"


def _config(
    name: str, source: str, share: float, num_rows: int, factor: float
) -> ml_collections.ConfigDict:
    """A method as on one's own table, on rows drawn from a set whose truth is known."""
    config, _ = common.own_rows(f"method={name}", source=source, num_epochs=30)
    num_positives = round(share * num_rows)
    num_held_out = round(_HELD_OUT * num_rows)
    config.data.update(
        {
            "positive_classes": (1,),
            "sampling": "uniform",
            "num_positives": num_positives,
            "num_negatives": num_rows - num_positives,
            "num_labeled": round(_LABELED * num_positives * (1 - _HELD_OUT)),
            "num_validation": num_held_out,
            "validation_labeled": round(_LABELED * num_positives * _HELD_OUT),
            "holdout": 0.0,
            "prior": None if factor == 1 else factor * share,
        }
    )
    config.model.name = "mlp"
    if "augment" in config.method:
        config.method.augment = False
    most = num_rows - num_held_out
    for field in config.method:
        if field.endswith("batch_size"):
            config.method[field] = min(config.method[field], most)
    config.run.figures = False
    return config
