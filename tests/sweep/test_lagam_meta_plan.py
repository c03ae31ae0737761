"""The study of LaGAM's label update: what its rows share, and in what alone they differ."""

import pytest

from pujax.configs.sweeps import lagam_meta
from pujax.sweep import plan as plan_lib

REFERENCE = "kernel, K = 1 (published)"
COUNTS = {"digits": (100, 60, 0), "fashion_mnist": (500, 60, 9500)}
NETWORKS = {"digits": "small_cnn", "fashion_mnist": "lenet"}


@pytest.mark.parametrize("data", ["digits", "fashion_mnist"])
def test_rows_differ_from_the_published_update_in_the_method_alone(data):
    plan = lagam_meta.get_plan(f"data={data}")
    plan_lib.check(plan)
    assert (plan.reference, plan.seeds) == (REFERENCE, (0, 1, 2, 3, 4))
    first = plan.cells[0].config.to_dict()
    assert plan.cells[0].row == REFERENCE
    for cell in plan.cells[1:]:
        tree = cell.config.to_dict()
        method, reference = tree.pop("method"), {**first}.pop("method")
        assert tree == {name: value for name, value in first.items() if name != "method"}, cell.row
        assert method != reference, cell.row
        assert method["num_epochs"] == reference["num_epochs"], cell.row
    counts = tuple(first["data"][f"num_{name}"] for name in ("labeled", "support", "unlabeled"))
    assert counts == COUNTS[data]
    assert first["model"]["name"] == NETWORKS[data]


def test_other_data_are_refused():
    with pytest.raises(ValueError, match="data is 'cifar'; accepted: digits, fashion_mnist"):
        lagam_meta.get_plan("data=cifar")
