"""The plan of few rows of which few are positive."""

import pytest

from pujax import methods
from pujax.configs import own_table
from pujax.configs.sweeps import small_tables
from pujax.training import config as config_lib


def test_losses_differ_in_the_loss_alone_and_one_of_them_is_that_of_own_tables():
    plan = small_tables.get_plan()
    of_columns = {}
    for cell in plan.cells:
        of_columns.setdefault(cell.column, {})[cell.row] = cell.config
    assert len(of_columns) == 16
    own = own_table.get_config("")
    for both in of_columns.values():
        changed = both["sigmoid"].copy_and_resolve_references()
        changed.method.loss = "logistic"
        assert changed == both["logistic"]
        assert both["logistic"].method == own.method and both["logistic"].model == own.model


def test_rows_labels_and_the_prior_are_as_the_column_says():
    cells = {cell.name: cell.config for cell in small_tables.get_plan("told=half").cells}
    data = cells["sigmoid on phishing 10 % of 600"].data
    assert (data.num_positives, data.num_negatives, data.num_validation) == (60, 540, 120)
    assert data.num_labeled == 14 and data.prior == 0.05  # 0.3 of the 48 that are not held out
    told = {cell.name: cell.config for cell in small_tables.get_plan().cells}
    assert told["sigmoid on phishing 10 % of 600"].data.prior is None


def test_all_methods_but_one_are_compared_with_nnpu_and_their_batches_fit():
    plan = small_tables.get_plan("part=methods")
    rows = {cell.row for cell in plan.cells}
    assert rows == set(methods.without_negatives()) - {"self_pu"} and plan.reference == "nnpu"
    for cell in plan.cells:
        config_lib.resolve(cell.config)
        sizes = [v for k, v in cell.config.method.items() if k.endswith("batch_size")]
        assert all(size <= 480 for size in sizes)


def test_an_unknown_part_is_refused():
    with pytest.raises(ValueError, match="part is 'all'; accepted: losses, methods"):
        small_tables.get_plan("part=all")
