"""The study of LaGAM's labels late in a run: what its rows share."""

import pytest

from pujax import methods
from pujax.configs.sweeps import lagam_labels
from pujax.sweep import plan as plan_lib

REFERENCE = "projected (published)"
OTHERS = ["naive", "nnpu", "vpu", "dist_pu", "supervised"]
COUNTS = {"digits": (100, 60, 0), "fashion_mnist": (400, 200, 8000)}
# What the comparison fixes: the length, the batches, and what a network is shown.
FIXED = ("num_epochs", "batch_size", "augment", "flip", "padding")


@pytest.mark.parametrize("data", list(COUNTS))
def test_updates_differ_in_the_method_alone(data):
    plan = lagam_labels.get_plan(f"data={data}")
    plan_lib.check(plan)
    first = plan.cells[0].config.to_dict()
    assert plan.reference == plan.cells[0].row == REFERENCE
    for cell in plan.cells[1:]:
        tree = cell.config.to_dict()
        assert tree.pop("method") != first["method"], cell.row
        assert tree == {name: value for name, value in first.items() if name != "method"}, cell.row


@pytest.mark.parametrize("data", list(COUNTS))
def test_methods_see_what_lagam_sees_and_are_as_they_are_otherwise(data):
    plan = lagam_labels.get_plan(f"data={data},rows=methods")
    plan_lib.check(plan)
    assert [cell.row for cell in plan.cells] == [REFERENCE, *OTHERS]
    first = plan.cells[0].config.to_dict()
    assert first == lagam_labels.get_plan(f"data={data}").cells[0].config.to_dict()
    counts = tuple(first["data"][f"num_{name}"] for name in ("labeled", "support", "unlabeled"))
    assert counts == COUNTS[data]
    for cell in plan.cells[1:]:
        tree = cell.config.to_dict()
        method = tree.pop("method")
        assert tree == {name: value for name, value in first.items() if name != "method"}, cell.row
        assert [method[x] for x in FIXED] == [first["method"][x] for x in FIXED], cell.row
        assert method["name"] == cell.row
        default = methods.module(cell.row).default_config().to_dict()
        free = {x for x in method if method[x] != default[x]}
        assert free <= {*FIXED, "warmup_epochs", "steps_per_epoch"}, cell.row
        assert not method.get("steps_per_epoch"), cell.row
        warmup = first["method"]["warmup_epochs"]
        assert method.get("warmup_epochs", warmup) == warmup, cell.row
        assert cell.config.run.selection == "auto" and not cell.config.data.num_validation


def test_other_rows_are_refused():
    with pytest.raises(ValueError, match="rows is 'all'; accepted: updates, methods"):
        lagam_labels.get_plan("rows=all")
