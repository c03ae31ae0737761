"""The page of all methods: those with the alignment switch, and the others by their defaults."""

import pytest

from pujax import methods
from pujax.configs import baseline, ncpu
from pujax.configs.sweeps import alignment
from pujax.sweep import plan as plan_lib


@pytest.mark.parametrize("data", ["digits", "fashion_mnist"])
def test_both_parts_hold_every_method_and_the_others_their_own_defaults(data):
    switch, others = (alignment.get_plan(f"data={data},rows={x}") for x in ("switch", "others"))
    for plan in (switch, others):
        plan_lib.check(plan)
    rows = {cell.row.removesuffix(", aligned") for cell in (*switch.cells, *others.cells)}
    assert rows == set(methods.of_kind(multilabel=False))
    like = ncpu.get_config(f"task={data}")
    held_out = 100 if data == "digits" else 500
    for cell in others.cells:
        own = baseline.get_config(f"method={cell.row},task={data}")
        assert cell.config.method.to_dict() == own.method.to_dict(), cell.row
        assert cell.config.model.name == "small_cnn"
        found = cell.config.data.to_dict()
        assert found.pop("num_validation") == held_out * (own.data.num_validation > 0), cell.row
        support = {"digits": 60, "fashion_mnist": 200}[data] if cell.row == "self_pu" else 0
        assert found.pop("num_support") == support, cell.row
        expected = like.data.to_dict()
        assert found == {k: expected[k] for k in found}, cell.row
