"""A sweep over a method that estimates the class prior, and the plan of PURL's tables."""

import json
import statistics

import ml_collections
import pytest

from pujax import mutual_info, sweep
from pujax.configs import purl
from pujax.configs.sweeps import estimated_prior, purl_tables
from pujax.sweep import plan as plan_lib
from pujax.training import config as config_lib


@pytest.mark.parametrize(
    ("table", "figures"),
    [("1", [(0.1, 0.02), (0.04, 0.01)]), ("2", [(69.65, 1.55), (76.3, 0.67)])],
)
def test_the_plan_holds_the_published_figures(table, figures):
    plan = purl_tables.get_plan(f"table={table}")
    plan_lib.check(plan)
    assert len(plan.cells) == 7 * 3 * 9 and len(plan.seeds) == 10
    cells = {cell.name: cell for cell in plan.cells}
    assert [cells[f"{row} on a9a 0.5"].published for row in ("none", "PURL")] == figures
    config = cells["PCA 3d/4 on newsgroups 0.7"].config
    assert config.method.representation == "pca" and config.method.pca_share == 0.75
    assert config.data.class_prior == 0.7 and config.method.optimizer == "adagrad"
    for cell in plan.cells[:9]:
        config_lib.resolve(cell.config)


@pytest.mark.parametrize(("data", "rate"), [("a9a", 1e-3), ("mnist", 1e-3), ("newsgroups", 1e-2)])
def test_the_papers_protocol_keeps_its_rates(data, rate):
    assert purl.get_config(f"data={data}").method.learning_rate == rate


def test_the_points_of_the_prior_are_an_argument_and_the_old_name_says_so():
    fresh = purl.get_config("prior_points=fresh").method
    held = fresh.validation_positives, fresh.validation_unlabeled
    data = purl.get_config().data
    assert fresh.prior_points == "fresh" and held == (data.num_labeled // 5, 440)
    assert purl.get_config().method.prior_points == "training"
    with pytest.raises(ValueError, match="purl_held_out'; accepted: .*prior_points='fresh'"):
        purl.get_config("data=mnist,representation=purl_held_out")


def small(representation):
    config = config_lib.default_config("purl")
    config.data.num_labeled = 100
    config.model.name = "mlp"
    config.model.options = ml_collections.ConfigDict({"hidden": (16, 8), "batch_norm": True})
    config.method.update({"representation": representation, "classifier_hidden": (16,)})
    config.method.update({"num_epochs": 4, "representation_epochs": 2, "prior_max_points": 60})
    config.run.eval_every = 2
    return config


@pytest.mark.thorough
@pytest.mark.usefixtures("one_device")
def test_a_table_of_prior_errors_and_seeds_that_train_together(tmp_path):
    cells = [
        sweep.Cell("PURL", "digits", small("purl"), (0.04, 0.01)),
        sweep.Cell("PCA", "digits", small("pca")),
    ]
    plan = sweep.Plan("Errors", cells, seeds=(0, 1), metric="prior_error")
    assert sweep.run(plan, str(tmp_path)) == 0
    results = json.loads((tmp_path / "results.json").read_text())
    assert [x["trained_together"] for x in results["records"]] == [2] * 4
    errors = [x["metrics"]["last"]["prior_error"] for x in results["records"]]
    for record, error in zip(results["records"], errors, strict=True):
        found = record["estimates"]
        assert found["prior_error"] == error
        counts = record["counts"]
        truth = counts["hidden_positives"] / counts["unlabeled"]
        assert error == pytest.approx(abs(found["estimated_prior"] - truth), abs=1e-6)
        assert ("smi" in found) == (record["row"] == "PURL")
        if "smi" in found:
            said = mutual_info.diagnose(found["smi"], found["mean_ratio"])
            assert said and set(said) <= set(record["warnings"])  # two epochs are too few
    mean, std = statistics.fmean(errors[:2]), statistics.stdev(errors[:2])
    lines = (tmp_path / "table.md").read_text().splitlines()
    row = next(line for line in lines if "| PURL |" in line)
    wanted = f"| {mean:.3f} ± {std:.3f} | 0.04 ± 0.01 | {mean - 0.04:+.3f} | 2 of 2 |"
    assert row.endswith(wanted)
    assert "Absolute error of the estimated share of positives in U" in "\n".join(lines)


def test_where_the_prior_chooses_the_epoch_a_part_is_held_out():
    plan = estimated_prior.get_plan("method=gradpu")
    assert plan.rules == ("reported", "last")
    assert {cell.config.data.num_validation for cell in plan.cells} == {300}
    plan = estimated_prior.get_plan("method=nnpu")
    assert plan.rules is None
    for cell in plan.cells:
        assert cell.config.data.num_validation == 0
        assert cell.config.run.eval_every == cell.config.method.num_epochs


def test_rows_of_estimated_priors_differ_in_the_prior_alone():
    plan = estimated_prior.get_plan("method=dist_pu")
    by_column = {}
    for cell in plan.cells:
        by_column.setdefault(cell.column, {})[cell.row] = config_lib.resolve(cell.config)
    assert len(by_column) == 21 and plan.reference == "true prior"
    for column, configs in by_column.items():
        assert list(configs) == ["true prior", "out of bag", "best bin"]
        assert [x.data.prior for x in configs.values()] == [None, "auto", "auto"]
        assert [x.data.prior_method for x in list(configs.values())[1:]] == [
            "out_of_bag",
            "best_bin",
        ]
        plain = [x.to_dict() for x in configs.values()]
        for tree in plain:
            assert tree["data"]["class_prior"] == float(column.split()[1])
            assert tree["data"]["source"] == column.split()[0]
            tree["data"] |= {"prior": "", "prior_method": ""}
        assert plain[0] == plain[1] == plain[2]
