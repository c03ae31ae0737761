"""PURL's Tables 1 and 2: error of the estimated prior and test accuracy, seven sets, three priors.

python -m pujax.sweep --plan=configs/sweeps/purl_tables.py:table=1 --workdir=DIR \
    --data_dir=a9a=FOLDER,mushrooms=FOLDER,...

`table=2` in the same folder trains nothing anew: both tables come from the same runs, and the files
there then hold the other one. Cells are named `ROW on DATA PRIOR`, for example
`--only='PURL on a9a'`. Ten seeds, one after the other where it says `--seeds`. What stands behind a
published figure is a standard error; behind one measured here, the standard deviation.
"""

from pujax import sweep
from pujax.configs import common, purl

_ROWS = {
    "none": "none",
    "pca_quarter": "PCA d/4",
    "pca_half": "PCA d/2",
    "pca_three_quarters": "PCA 3d/4",
    "fda": "FDA",
    "pnrl": "PNRL",
    "purl": "PURL",
}
# Not the paper's.
_PRIOR_POINTS = {"fresh": "PURL, fresh points", "out_of_bag": "PURL, out of bag"}
# Mean and standard error for each of `_ROWS`. Table 1: absolute error of the estimated prior.
_PRIOR_ERROR = """
ijcnn1        0.3 0.23±0.02 0.26±0.11 0.26±0.11 0.28±0.04 0.03±0.01 0.26±0.08 0.21±0.07
ijcnn1        0.5 0.18±0.05 0.14±0.09 0.14±0.09 0.17±0.06 0.04±0.01 0.21±0.08 0.19±0.07
ijcnn1        0.7 0.08±0.01 0.11±0.05 0.11±0.05 0.10±0.04 0.07±0.01 0.11±0.05 0.10±0.01
phishing      0.3 0.02±0.00 0.02±0.00 0.02±0.00 0.02±0.00 0.04±0.02 0.03±0.01 0.02±0.00
phishing      0.5 0.01±0.00 0.01±0.00 0.01±0.00 0.01±0.00 0.07±0.03 0.04±0.02 0.03±0.02
phishing      0.7 0.02±0.00 0.02±0.00 0.02±0.00 0.02±0.00 0.11±0.04 0.05±0.03 0.02±0.00
mushrooms     0.3 0.05±0.01 0.05±0.01 0.05±0.01 0.05±0.01 0.09±0.03 0.03±0.00 0.03±0.00
mushrooms     0.5 0.05±0.01 0.05±0.01 0.05±0.01 0.05±0.01 0.16±0.03 0.04±0.01 0.04±0.00
mushrooms     0.7 0.03±0.01 0.03±0.00 0.03±0.00 0.03±0.01 0.20±0.06 0.03±0.00 0.04±0.03
a9a           0.3 0.11±0.02 0.11±0.02 0.11±0.02 0.11±0.02 0.05±0.01 0.08±0.03 0.04±0.00
a9a           0.5 0.10±0.02 0.10±0.02 0.10±0.02 0.10±0.02 0.09±0.04 0.09±0.03 0.04±0.01
a9a           0.7 0.08±0.03 0.08±0.03 0.08±0.03 0.08±0.03 0.18±0.06 0.08±0.03 0.04±0.01
mnist         0.3 0.09±0.02 0.09±0.02 0.09±0.02 0.09±0.02 0.27±0.01 0.01±0.00 0.05±0.02
mnist         0.5 0.15±0.11 0.15±0.11 0.15±0.11 0.15±0.11 0.46±0.01 0.03±0.00 0.06±0.03
mnist         0.7 0.60±0.21 0.60±0.21 0.60±0.21 0.60±0.21 0.65±0.02 0.06±0.01 0.07±0.01
fashion_mnist 0.3 0.02±0.00 0.02±0.00 0.02±0.00 0.02±0.00 0.25±0.01 0.03±0.00 0.03±0.00
fashion_mnist 0.5 0.03±0.00 0.03±0.00 0.03±0.00 0.03±0.00 0.45±0.01 0.02±0.00 0.04±0.03
fashion_mnist 0.7 0.03±0.00 0.03±0.00 0.03±0.00 0.03±0.00 0.66±0.02 0.02±0.00 0.07±0.03
newsgroups    0.3 0.04±0.00 0.04±0.01 0.04±0.00 0.04±0.00 0.29±0.00 0.29±0.09 0.03±0.01
newsgroups    0.5 0.08±0.03 0.06±0.01 0.07±0.01 0.08±0.03 0.49±0.00 0.25±0.07 0.05±0.01
newsgroups    0.7 0.69±0.00 0.69±0.00 0.69±0.00 0.69±0.00 0.69±0.00 0.13±0.03 0.07±0.01
"""
# Table 2: test error in percent.
_TEST_ERROR = """
ijcnn1        0.3 25.32±1.23 27.79±2.05 27.79±2.05 29.21±1.30 7.00±0.59 28.57±2.52 25.92±2.64
ijcnn1        0.5 21.43±1.22 17.88±1.72 17.88±1.72 20.75±1.15 8.25±1.33 26.52±2.26 21.52±1.69
ijcnn1        0.7 12.07±0.53 14.94±1.02 14.94±1.02 14.61±1.15 11.23±1.34 17.34±1.58 13.70±1.04
phishing      0.3 7.41±0.46 7.46±0.48 7.46±0.48 7.57±0.46 10.30±2.42 11.09±0.98 7.62±0.45
phishing      0.5 12.85±2.11 9.75±0.46 9.75±0.46 9.82±0.40 24.43±3.09 32.02±3.05 10.05±0.46
phishing      0.7 8.07±0.44 8.85±1.08 8.85±1.08 7.63±0.37 25.62±1.40 29.04±0.73 8.02±0.37
mushrooms     0.3 0.73±0.20 1.15±0.58 0.57±0.14 0.49±0.14 1.52±0.36 0.24±0.06 0.43±0.09
mushrooms     0.5 0.57±0.11 0.57±0.11 0.78±0.16 0.57±0.11 3.40±0.47 1.10±0.24 3.40±2.39
mushrooms     0.7 1.42±0.28 1.42±0.28 1.50±0.27 1.42±0.28 6.38±0.66 1.40±0.27 1.61±0.48
a9a           0.3 24.93±1.19 26.49±1.89 26.49±1.89 26.20±1.73 21.09±0.59 26.31±2.36 22.32±0.65
a9a           0.5 30.35±1.55 26.07±1.01 26.07±1.01 29.52±1.81 22.70±0.77 27.48±1.47 23.70±0.67
a9a           0.7 20.35±0.80 20.54±0.61 20.54±0.61 19.94±0.78 19.70±0.97 20.59±0.60 19.39±0.66
mnist         0.3 24.58±2.82 17.99±1.44 17.99±1.44 22.18±2.75 20.92±0.74 12.74±0.63 11.76±0.78
mnist         0.5 23.00±1.60 22.35±1.10 22.35±1.10 23.55±1.80 42.10±1.85 15.35±0.75 18.18±2.43
mnist         0.7 53.34±3.78 52.19±4.41 54.42±3.99 53.39±3.74 60.86±1.25 16.38±0.84 18.64±2.83
fashion_mnist 0.3 14.88±1.30 18.02±2.86 18.02±2.86 15.12±1.18 19.24±0.91 14.54±1.14 13.54±0.75
fashion_mnist 0.5 13.40±0.69 12.05±0.96 12.05±0.96 13.22±0.62 37.73±1.56 12.15±0.48 14.10±1.16
fashion_mnist 0.7 9.94±1.30 8.89±0.84 8.89±0.84 8.54±0.84 55.65±2.14 8.65±0.83 9.29±0.47
newsgroups    0.3 38.89±3.00 40.30±3.64 42.48±3.54 38.70±3.81 18.66±0.47 66.62±1.59 36.31±4.13
newsgroups    0.5 44.48±1.82 43.85±2.03 46.67±1.15 47.77±0.87 34.73±0.80 50.00±0.00 45.88±1.64
newsgroups    0.7 50.69±0.95 53.61±0.73 51.77±1.05 50.36±0.83 50.69±0.95 30.61±0.59 29.85±0.13
"""


def get_plan(argument: str = "") -> sweep.Plan:
    """All cells; the argument is `table=1` (default) or `table=2`."""
    if common.parse(argument, table=("1", "2"))["table"] == "1":
        published, metric = _read(_PRIOR_ERROR), "prior_error"
        title = "PURL, Table 1: absolute error of the estimated prior"
    else:
        errors = _read(_TEST_ERROR).items()
        published = {name: (round(100 - mean, 2), error) for name, (mean, error) in errors}
        title, metric = "PURL, Table 2", "accuracy"
    cells = []
    for (source, prior, representation), figure in published.items():
        chosen = f"data={source},prior={prior},representation={representation}"
        config = purl.get_config(chosen)
        cells.append(sweep.Cell(_ROWS[representation], f"{source} {prior}", config, figure))
        if representation == "purl":
            for points, row in _PRIOR_POINTS.items():
                config = purl.get_config(f"{chosen},prior_points={points}")
                cells.append(sweep.Cell(row, f"{source} {prior}", config))
    return sweep.Plan(title, cells, seeds=tuple(range(10)), metric=metric)


def _read(table: str) -> dict[tuple[str, str, str], tuple[float, float]]:
    """Mean and standard error by source, prior and representation."""
    found = {}
    for line in table.strip().splitlines():
        source, prior, *figures = line.split()
        for representation, figure in zip(_ROWS, figures, strict=True):
            mean, error = figure.split("±")
            found[source, prior, representation] = (float(mean), float(error))
    return found
