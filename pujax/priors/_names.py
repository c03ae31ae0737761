"""Names of the estimators, which a configuration is checked against without importing them."""

NAMES = (
    "km1",
    "km2",
    "tice",
    "pen_l1",
    "pearson",
    "ted_n",
    "elkan_noto_e1",
    "elkan_noto_e2",
    "elkan_noto_e3",
    "ratio",
    "best_bin",
    "alphamax",
)
"""Methods of `pujax.priors.estimate`."""
