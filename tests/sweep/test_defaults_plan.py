"""The plan that asks whether defaults hold: all methods on all sets, or a part of it."""

import pytest

from pujax import methods
from pujax.configs.sweeps import defaults_hold
from pujax.sweep import plan as plan_lib

BINARY = [name for name in methods.names() if not methods.is_multilabel(name)]


def test_one_method_on_one_set_has_its_defaults_and_a_part_held_out():
    plan = defaults_hold.get_plan("method=lbe,part=digits")
    plan_lib.check(plan)
    (cell,) = plan.cells
    assert (cell.name, plan.reference) == ("lbe on digits", "")
    default = methods.module("lbe").default_config()
    assert cell.config.method.pretrain_selection == default.pretrain_selection == "vpu_risk"
    assert cell.config.data.num_validation == 100
    with pytest.raises(ValueError, match="method is 'lbf'; accepted: all, "):
        defaults_hold.get_plan("method=lbf")


@pytest.mark.thorough
def test_all_methods_are_on_all_sets():
    plan = defaults_hold.get_plan()
    plan_lib.check(plan)
    assert plan.reference == "naive"
    assert [cell.row for cell in plan.cells] == BINARY * 5
    assert {cell.config.data.num_validation for cell in plan.cells} == {100, 500}
