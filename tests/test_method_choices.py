"""The table of candidates is whole, and the defaults are what its rule chooses."""

import pathlib
import re

import pytest

from pujax import methods
from pujax.configs.sweeps import method_choices

PAGE = pathlib.Path(__file__).resolve().parents[1] / "docs" / "results" / "other_methods.md"
HEADER = ["candidate", *method_choices.SETS, "mean", "below the best", "nnPU risk", "accuracy %"]
NAMES = sorted(method_choices.CANDIDATES)


def rows(name):
    """Cells of the table of a method's candidates, by label, in the order of the page."""
    text = PAGE.read_text().partition("## How the defaults were chosen\n")[2]
    table = re.search(rf"^`{name}`:\n\n((?:\|.*\n)+)", text, re.MULTILINE)[1]
    lines = [[x.strip() for x in line.strip("|\n").split("|")] for line in table.splitlines()]
    assert [x.lower() for x in lines[0]] == [x.lower() for x in HEADER]
    return {line[0]: line[1:] for line in lines[2:]}


def chosen(table, column=4):
    """The first candidate within one standard error of the best."""
    for label, cells in table.items():
        below, _, error = cells[column].partition(" ± ")
        if float(below) <= float(error or 0):
            return label
    raise AssertionError("no candidate is the best")


@pytest.mark.parametrize("name", NAMES)
def test_every_candidate_is_in_the_table_in_the_order_of_the_plan(name):
    labels = [label.strip("*") for label in rows(name)]
    assert labels == list(method_choices.CANDIDATES[name])


@pytest.mark.parametrize("name", NAMES)
def test_means_and_differences_are_those_of_the_sets(name):
    table = rows(name)
    means = [float(cells[3]) for cells in table.values()]
    for mean, cells in zip(means, table.values(), strict=True):
        assert mean == pytest.approx(sum(map(float, cells[:3])) / 3, abs=0.0011)
        below = float(cells[4].partition(" ± ")[0])
        assert below == pytest.approx(max(means) - mean, abs=0.0011)


@pytest.mark.parametrize(
    ("name", "network", "model"), [("cvir", "small_cnn", "small_cnn"), ("lbe", "deep", "mlp")]
)
def test_a_default_has_the_highest_mean_with_a_larger_network_among_four_problems(
    name, network, model
):
    text = PAGE.read_text().partition(f"| `{name}`, candidate |")[2]
    lines = [
        [x.strip() for x in line.strip("|").split("|")]
        for line in text.partition("\n\n")[0].splitlines()[2:]
    ]
    table = {line[0]: (float(line[1]), float(line[4])) for line in lines}
    others = rows(name)
    assert [x.strip("*") for x in table] == list(others)
    for label, (criterion, mean) in table.items():
        four = [*map(float, others[label.strip("*")][:3]), criterion]
        assert mean == pytest.approx(sum(four) / 4, abs=0.001)
    (label,) = (x for x in table if x.startswith("**"))
    assert table[label][1] == max(mean for _, mean in table.values())
    default = methods.module(name).default_config()
    changes = method_choices.CANDIDATES[name][label.strip("*")]
    assert {field: default[field] for field in changes} == changes
    cells = method_choices.get_plan(f"method={name},network={network}").cells
    found = [(x.column, x.config.model.name, "hidden" in x.config.model.options) for x in cells]
    assert found == [("digits", model, False)] * len(table)


def test_the_default_of_robust_pu_is_the_first_near_the_best_of_five_problems():
    text = PAGE.read_text().partition("| `robust_pu`, candidate |")[2]
    lines = [
        [x.strip() for x in line.strip("|").split("|")]
        for line in text.partition("\n\n")[0].splitlines()[2:]
    ]
    table = {line[0]: line[1:] for line in lines}
    others = rows("robust_pu")
    assert [x.strip("*") for x in table] == list(others)
    means = {label: float(cells[4]) for label, cells in table.items()}
    for label, cells in table.items():
        five = [*map(float, others[label.strip("*")][:3]), *map(float, cells[:2])]
        assert means[label] == pytest.approx(sum(five) / 5, abs=0.001)
        below = float(cells[5].partition(" ± ")[0])
        assert below == pytest.approx(max(means.values()) - means[label], abs=0.0011)
    label = chosen(table, column=5)
    assert [x for x in table if x.startswith("**")] == [label]
    default = methods.module("robust_pu").default_config()
    changes = method_choices.CANDIDATES["robust_pu"][label.strip("*")]
    assert {field: default[field] for field in changes} == changes
    cells = method_choices.get_plan("method=robust_pu,network=deep").cells
    by_column = {x.column: x.config.data for x in cells}
    fashion = by_column["fashion_mnist"]
    assert (fashion.num_positives, fashion.num_negatives, fashion.num_validation) == (
        *(5000, 5000),
        1000,
    )
    for cell in cells:
        names = {"by proxy": "proxy_accuracy", "by its": "nnpu_risk", "by the VPU": "vpu_risk"}
        rules = [rule for words, rule in names.items() if words in cell.row]
        assert [cell.config.method.pretrain_selection] == (rules or ["last"]), cell.row
    found = {(x.column, x.config.model.name, "hidden" in x.config.model.options) for x in cells}
    assert found == {(name, "mlp", False) for name in method_choices.DEEP_SETS["robust_pu"]}


@pytest.mark.parametrize("name", [x for x in NAMES if x not in ("cvir", "lbe", "robust_pu")])
def test_the_default_is_the_candidate_that_the_rule_chooses(name):
    label = chosen(rows(name))
    assert [x for x in rows(name) if x.startswith("**")] == [label]
    default = methods.module(name).default_config()
    changes = method_choices.CANDIDATES[name][label.strip("*")]
    assert {field: default[field] for field in changes} == changes


def test_the_rule_takes_what_is_first_and_not_what_is_best():
    best, near, far = (["", "", "", "", x] for x in ("0.000", "0.010 ± 0.010", "0.020 ± 0.010"))
    assert chosen({"far": far, "near": near, "best": best}) == "near"
    assert chosen({"best": best, "near": near}) == "best"


@pytest.mark.thorough
def test_candidates_differ_in_their_own_fields_alone_and_hold_a_part_out():
    plan = method_choices.get_plan()
    assert len(plan.cells) == 3 * sum(map(len, method_choices.CANDIDATES.values()))
    by_place = {}
    for cell in plan.cells:
        name, label = cell.row.split(": ")
        assert cell.config.data.num_validation >= 200 and cell.config.run.selection == "auto"
        changes = method_choices.CANDIDATES[name][label]
        section = cell.config.method.to_dict()
        assert {field: section[field] for field in changes} == changes
        free = {field for other in method_choices.CANDIDATES[name].values() for field in other}
        rest = {field: x for field, x in section.items() if field not in free}
        others = (rest, cell.config.data.to_dict(), cell.config.model.to_dict())
        assert by_place.setdefault((name, cell.column), others) == others
    only = method_choices.get_plan("method=lbe")
    assert {cell.row.split(":")[0] for cell in only.cells} == {"lbe"}
