"""A sweep on a user's own table: columns for what can be known, and batches as a run has them."""

import csv
import json
import shutil
import statistics
import types

import ml_collections
import numpy as np
import pytest

from pujax import report, sweep, training
from pujax.data import sources
from pujax.sweep import __main__ as command
from pujax.sweep import own_rows, runner
from pujax.sweep import plan as plan_lib
from pujax.training import config as config_lib
from pujax.training import method_setup, run_state
from pujax.training.evaluation import model_selection, one_class
from tests import tiny

ROWS, SEEDS, METHODS = 200, (0, 1, 2), ("nnpu", "classic")
NAMES = ("auc_pu", "recall", "flagged_share", "lee_liu", "precision_top_100")
TESTED = ("accuracy", "f1", "auc", "average_precision")

pytestmark = pytest.mark.usefixtures("one_device")
_shared = tiny.shared_setups()


@pytest.fixture(autouse=True)
def one_method(monkeypatch):
    """Runs of equal settings share a built method and its programs; each trains anew."""
    monkeypatch.setattr(method_setup, "build", _shared)


def write_table(path, count, *, known):
    """Rows of three numbers; the label says who is positive, of all rows or of half of those."""
    rng = np.random.default_rng(count)
    positive = rng.random(count) < 0.4
    rows = rng.normal(size=[count, 3]) + 1.5 * positive[:, None]
    label = positive if known else positive & (rng.random(count) < 0.5)
    with open(path, "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["a", "b", "c", "fraud"])
        table.writerows([*row, int(x)] for row, x in zip(rows, label, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("own")
    write_table(path / "rows.csv", ROWS, known=False)
    write_table(path / "test.csv", 60, known=True)
    return path


def sweep_of(folder, name, *more, methods=METHODS, seeds=SEEDS):
    return [
        "sweep",
        "--config=own_table",
        f"--methods={','.join(methods)}",
        f"--seeds={','.join(map(str, seeds))}",
        f"--workdir={folder / name}",
        f"--set=data.path={folder / 'rows.csv'}",
        "--set=data.label=fraud",
        "--set=data.prior=0.35",
        "--set=model.options.hidden=(64,)",
        *more,
    ]


@pytest.fixture(scope="module")
def finished(folder):
    """A sweep without a test set, and the lines of its CSV files."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
        patch.setattr(method_setup, "build", _shared)
        assert command.main(sweep_of(folder, "swept", "--reference=classic")) == 0
    return folder / "swept"


def lines_of(path):
    with open(path) as file:
        return list(csv.DictReader(file))


def table(path):
    """Cells of the table's lines, header first."""
    lines = [line for line in path.read_text().splitlines() if line[:1] == "|"]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [rows[0], *rows[2:]]


def estimates(finished, method):
    """By name the values of all seeds, read from the files of the runs."""
    found = {name: [] for name in NAMES}
    for seed in SEEDS:
        path = finished / "own_table" / method / f"seed_{seed}" / "held_out.json"
        by_name = {x["name"]: x["value"] for x in json.loads(path.read_text())}
        for name in NAMES:
            found[name].append(by_name[name])
    return found


def test_the_columns_are_means_and_deviations_of_what_the_held_out_rows_say(finished):
    for file in ("table.md", "summary.md"):
        header, *lines = table(finished / file)
        assert header == [
            "data",
            "method",
            "reported: AUC of P against U",
            "reported: recall",
            "reported: flagged in U",
            "reported: Lee-Liu",
            "reported: precision of the top 100",
            "paired with 'classic'",
            "p (Holm)",
            "seeds",
        ]
        assert [line[1] for line in lines] == list(METHODS)
        for method, line in zip(METHODS, lines, strict=True):
            values = estimates(finished, method)
            # 40 rows are held out, so that nobody can know the precision of 100.
            assert values["precision_top_100"] == [None] * 3 and line[6] == "-"
            for name, cell, scale, digits in zip(
                NAMES[:4], line[2:6], (100, 100, 100, 1), (2, 2, 2, 3), strict=True
            ):
                ours = [scale * x for x in values[name]]
                mean, deviation = statistics.fmean(ours), statistics.stdev(ours)
                assert cell == f"{mean:.{digits}f} ± {deviation:.{digits}f}"
        assert len(set(estimates(finished, "nnpu")["auc_pu"])) == 3  # another part for every seed


def test_no_file_has_a_column_or_number_that_needs_true_labels(finished):
    page = (finished / "table.md").read_text()
    assert "Test accuracy" not in page and "published" not in page
    assert "hidden positives count as negatives" in page and "p is too small" in page
    runs = lines_of(finished / "results.csv")
    assert not set(runs[0]) & set(report.TEST_METRICS) and set(NAMES) < set(runs[0])
    assert "oracle_best_epoch" not in {line["rule"] for line in runs}
    reported = [line for line in runs if line["rule"] == "reported"]
    assert [(x["row"], x["seed"]) for x in reported] == [
        (m, str(s)) for m in METHODS for s in SEEDS
    ]
    for line in reported:
        expected = estimates(finished, line["row"])["auc_pu"][int(line["seed"])]
        assert float(line["auc_pu"]) == expected
    summary = lines_of(finished / "summary.csv")
    assert [x["metric"] for x in summary] == [*NAMES, *NAMES]
    for line in summary:
        ours = [x for x in estimates(finished, line["row"])[line["metric"]] if x is not None]
        scale = 1 if line["metric"] == "lee_liu" else 100
        assert line["seeds"] == str(len(ours))
        if ours:
            assert float(line["mean"]) == pytest.approx(scale * statistics.fmean(ours), abs=1e-6)
        else:
            assert line["mean"] == ""
    record = json.loads((finished / "results.json").read_text())["records"][0]
    assert {x["name"] for x in record["held_out"]} > set(NAMES)
    assert all({"low", "high"} <= x.keys() for x in record["held_out"])
    assert set(record["metrics"]["last"]) == {"epoch", "value", "is_oracle"}


def test_methods_are_compared_by_the_area_under_the_curve_of_p_against_u(finished):
    ours, others = (estimates(finished, method)["auc_pu"] for method in METHODS)
    points = [100 * (a - b) for a, b in zip(ours, others, strict=True)]
    _, first, second = table(finished / "table.md")
    expected = f"{statistics.fmean(points):+.2f} ± {statistics.stdev(points):.2f}"
    assert first[7] == expected and first[8] != "-" and second[7:9] == ["-", "-"]
    assert (finished / "paired_own_table.png").stat().st_size > 1000


def test_few_rows_are_trained_in_the_batches_of_a_single_run_which_are_said(
    folder, finished, capsys
):
    for seed in SEEDS:
        path = finished / "own_table" / "nnpu" / f"seed_{seed}" / "config.json"
        assert json.loads(path.read_text())["method"]["batch_size"] == 160
    # The same command goes on in its folder, where the lowered number stands.
    assert command.main(sweep_of(folder, "swept", "--reference=classic")) == 0
    swept = capsys.readouterr().out
    said = (
        "nnpu: method.batch_size is 160 in place of 256, since there are no more rows to train on"
    )
    assert swept.count(f"{said}\n") == 1
    assert swept.count("label 'fraud': ") == 1  # how the labels were read, once for all cells
    assert "seeds 0, 1, 2 (finished: 0, 1, 2)" in swept and " train 1/" not in swept

    plan, _ = command.parse(sweep_of(folder, "x"))
    config = plan.cells[0].config
    config.run.update({"compare": "", "figures": False, "stop_after_epoch": 1, "eval_every": 1})
    training.run(config, str(folder / "alone"))
    alone = capsys.readouterr().out
    assert f"{said}\n" in alone
    assert alone.splitlines()[:2] == swept.splitlines()[:2]  # of the file, and of the batches


def test_a_test_set_keeps_its_columns_beside_what_the_held_out_rows_say(folder, capsys):
    more = (f"--set=data.test_path={folder / 'test.csv'}", "--set=data.holdout=0.5")
    workdir = folder / "tested"
    more = (*more, "--set=run.decide=top:5")
    given = sweep_of(folder, "tested", *more, methods=("classic",), seeds=(0, 1))
    assert command.main(given) == 0
    for name in ("table.md", "summary.md"):
        assert "of a score above 0, not of run.decide=top:5." in (workdir / name).read_text()
    header, line = table(workdir / "table.md")
    assert header[2:6] == [f"reported: {model_selection.TITLES[name]}" for name in TESTED]
    assert header[6] == "reported: AUC of P against U" and header[-1] == "seeds"
    found = []
    for seed in (0, 1):
        path = workdir / "own_table" / "classic" / f"seed_{seed}" / "summary.json"
        found.append(100 * json.loads(path.read_text())["test"]["accuracy"])
    assert line[2] == f"{statistics.fmean(found):.2f} ± {statistics.stdev(found):.2f}"
    assert "-" not in line[2:7]
    runs = lines_of(workdir / "results.csv")
    assert {*TESTED, *NAMES} < set(runs[0]) and runs[-1]["rule"] == "oracle_best_epoch"
    # Rules that choose other epochs are compared by the test set alone, as elsewhere.
    assert command.main([*given, "--rules=last,oracle_best_epoch"]) == 0
    assert table(workdir / "table.md")[0][2:4] == [
        "last",
        "oracle_best_epoch (oracle: test labels)",
    ]
    capsys.readouterr()
    assert command.main([*given, "--rules=oracle"]) == 2
    assert "rules is 'oracle'; accepted: 'last', 'proxy_accuracy'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--rules=last"], "rules is 'last'; accepted: 'reported' with the metric 'auc_pu'"),
        (["--rules=oracle_best_epoch"], "rules is 'oracle_best_epoch'; accepted: 'reported'"),
        (["--rules=reported,proxy_auc"], "rules is 'proxy_auc'; accepted: 'reported'"),
        (["--set=data.holdout=0"], "nnpu on own_table: data.holdout is 0 without a test set; acc"),
        (
            ["--set=data.path=none.csv"],
            "nnpu on own_table: data.path is 'none.csv', which does not",
        ),
        (["--reference=vpu"], "reference is 'vpu'; accepted: 'classic', 'nnpu'"),
        (
            ["--set=data.prior=None", "--set=run.decide=probability:0.5"],
            "classic on own_table: run.decide is 'probability:0.5'; accepted: another rule",
        ),
    ],
)
def test_what_nobody_can_know_is_refused_before_anything_is_written(folder, capsys, more, said):
    methods = ("classic",) if "decide" in said else METHODS
    assert command.main(sweep_of(folder, "refused", *more, methods=methods)) == 2
    assert said in capsys.readouterr().err
    assert not (folder / "refused").exists()


def test_a_reference_belongs_to_a_configuration(capsys):
    assert command.main(["sweep", "--plan=digits", "--workdir=x", "--reference=nnpu"]) == 2
    assert "--reference is given with --plan; accepted: only with --config" in (
        capsys.readouterr().err
    )


def test_rows_that_changed_since_a_seed_finished_are_refused(folder, finished, tmp_path, capsys):
    shutil.copytree(finished, tmp_path / "swept")
    head, *rows = (folder / "rows.csv").read_text().splitlines()
    (tmp_path / "rows.csv").write_text("\n".join([head, *reversed(rows)]))
    before = (tmp_path / "swept/results.json").read_text()
    more = f"--set=data.path={tmp_path / 'rows.csv'}"
    assert command.main(sweep_of(tmp_path, "swept", more, seeds=(3, 2))) == 2
    said = capsys.readouterr().err
    assert f"{tmp_path / 'swept/own_table/nnpu/seed_2'} holds a run on other data" in said
    assert not (tmp_path / "swept/own_table/nnpu/seed_3").exists()
    assert (tmp_path / "swept/results.json").read_text() == before


@pytest.mark.parametrize(
    ("more", "seeds"),
    [
        (["--only=classic"], SEEDS),  # the other cell would keep its results
        ([], (3,)),  # nothing of these seeds was begun
    ],
)
def test_rows_that_changed_under_results_that_stay_are_refused(
    folder, finished, tmp_path, capsys, more, seeds
):
    shutil.copytree(finished, tmp_path / "swept")
    if more:
        shutil.rmtree(tmp_path / "swept/own_table/classic")
    head, *rows = (folder / "rows.csv").read_text().splitlines()
    (tmp_path / "rows.csv").write_text("\n".join([head, *reversed(rows)]))
    call = sweep_of(
        tmp_path, "swept", f"--set=data.path={tmp_path / 'rows.csv'}", *more, seeds=seeds
    )
    if seeds == SEEDS:
        assert command.main(call) == 2
        assert "nnpu/seed_0 holds a run on other data" in capsys.readouterr().err
        return
    # A table of other seeds alone is of one thing; together with the former ones it is refused.
    assert command.main(call) == 0
    capsys.readouterr()
    assert command.main([x.replace("--seeds=3", "--seeds=3,0") for x in call]) == 2
    assert "nnpu/seed_0 holds a run on other data" in capsys.readouterr().err


def test_a_method_that_needs_negatives_is_refused_with_the_name_of_its_cell(folder, tmp_path):
    config = config_lib.default_config("supervised")
    data = {"source": "own_table", "path": str(folder / "rows.csv"), "label": "fraud"}
    config.data.update(data | {"positive_classes": (), "num_labeled": 0, "num_support": 0})
    config.data.update({"holdout": 0.2, "prior": 0.3})
    plan = sweep.Plan("one", [sweep.Cell("upper", "mine", config)])
    with pytest.raises(ValueError, match="upper on mine: method.name is 'supervised'; accepted: "):
        sweep.run(plan, str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


def test_sources_say_whether_their_rows_are_the_users_own():
    assert [name for name in sources.NAMES if sources.is_own(name)] == ["own_folder", "own_table"]
    chosen = ["alzheimer", "image_folder", "multilabel", "own_folder", "own_table", "table", "tfds"]
    assert [name for name in sources.NAMES if not sources.is_published(name)] == chosen


@pytest.mark.parametrize(
    ("source", "init_from", "looked_at"),
    [
        ("digits", "", [0]),
        ("digits", "runs/encoder", [0]),
        ("digits", "runs/seed_{seed}", [0, 1]),
        ("table", "", [0, 1]),
    ],
)
def test_the_data_of_every_begun_seed_are_compared_where_they_can_differ(
    tmp_path, monkeypatch, source, init_from, looked_at
):
    configs = []
    for seed in range(3):
        config = config_lib.default_config("naive")
        config.data.source, config.init_from, config.seed = source, init_from, seed
        configs.append(ml_collections.FrozenConfigDict(config))
    for seed in (0, 1):  # the third has not begun
        (tmp_path / f"seed_{seed}").mkdir()
        (tmp_path / f"seed_{seed}" / run_state.DATA_FILE).write_text("{}")
    place = types.SimpleNamespace(folder=lambda cell: str(tmp_path), load=lambda config: config)
    compared = []

    def note(folder, config):
        compared.append(config.seed)

    monkeypatch.setattr(runner.experiment, "refuse_other_data", note)
    runner._refuse_other_data(None, configs, place)
    assert compared == looked_at


def rows(*, test=False, held_out=True, truth=False):
    return own_rows.OwnRows(test, held_out, truth, ())


def plan_of(count, **changes):
    cells = [sweep.Cell(str(i), "c", config_lib.default_config("naive")) for i in range(count)]
    return sweep.Plan("title", cells, **changes)


def test_a_plan_of_several_labels_alone_shows_what_is_measured_of_them():
    plan = plan_of(2)
    for cell, usual in zip(plan.cells, ("accuracy", "mean_average_precision"), strict=True):
        cell.config.data.source = "multilabel"
        settled = own_rows.settle(plan, [None, None])
        assert (settled.rules, settled.metric, settled.also) == (("last",), usual, ())


@pytest.mark.parametrize(
    ("known", "changes", "expected"),
    [
        ([None], {}, (("last",), "accuracy", ())),
        ([rows(), None], {}, (("last",), "accuracy", ())),  # the other one has a test set
        ([rows()], {}, (("reported",), "auc_pu", NAMES[1:])),
        ([rows()], {"metric": "recall"}, (("reported",), "recall", ())),
        ([rows()], {"also": ("lee_liu",)}, (("reported",), "auc_pu", ("lee_liu",))),
        ([rows(test=True)], {}, (("reported",), "accuracy", (*TESTED[1:], *NAMES))),
        ([rows(test=True)], {"rules": ("last",)}, (("last",), "accuracy", ())),
        (
            [rows(test=True, held_out=False)],
            {},
            (("reported",), "accuracy", TESTED[1:]),
        ),
        ([rows(test=True, truth=True)], {"rules": ("oracle",)}, (("oracle",), "accuracy", ())),
        (
            [rows(), None],
            {"rules": ("reported",), "metric": "auc", "also": ("auc_pu",)},
            (("reported",), "auc", ("auc_pu",)),
        ),
    ],
)
def test_what_a_plan_leaves_open_is_what_can_be_known(known, changes, expected):
    plan = plan_of(len(known), **changes)
    settled = own_rows.settle(plan, known)
    assert (settled.rules, settled.metric, settled.also) == expected
    assert own_rows.settle(settled, known) == settled
    if settled.rules != ("oracle",):  # the configurations hold out nothing to choose by
        plan_lib.check(settled)


@pytest.mark.parametrize(
    ("known", "changes", "message"),
    [
        ([rows()], {"metric": "accuracy"}, "metric is 'accuracy'; accepted: 'auc_pu', 'recall'"),
        ([rows()], {"also": ("prior_error",)}, "also is 'prior_error'; accepted: 'auc_pu'"),
        ([None], {"metric": "auc_pu"}, "metric is 'auc_pu'; accepted: 'accuracy', .*own rows"),
        ([rows()], {"rules": ("last",)}, "rules is 'last'; accepted: 'reported'"),
        (
            [rows(test=True)],
            {"rules": ("last",), "also": ("recall",)},
            "rules is 'last'; accepted: 'reported' with the metric 'recall'",
        ),
        ([rows(test=True)], {"rules": ("oracle_f1",)}, "rules is 'oracle_f1'; accepted: 'last'"),
        ([rows()], {"also": ("auc_pu",)}, "also is 'auc_pu'; accepted: 'recall', "),
        ([rows(test=True)], {"also": ("accuracy",)}, "also is 'accuracy'; accepted: 'f1', "),
        ([rows()], {"published_rule": "last"}, "published_rule is 'last'; accepted: 'reported'"),
        ([None], {"published_rule": "reported"}, "published_rule is 'reported'; accepted: 'last'"),
    ],
)
def test_what_a_plan_asks_for_and_nobody_can_know_is_refused(known, changes, message):
    with pytest.raises(ValueError, match=message):
        own_rows.settle(plan_of(len(known), **changes), known)


def test_a_metric_of_several_labels_needs_a_cell_that_has_them():
    single = plan_of(2)
    for field, value in (("metric", "class_f1"), ("also", ("class_f1",))):
        with pytest.raises(ValueError, match=f"^{field} is 'class_f1'; accepted: 'accuracy', 'f1'"):
            own_rows.settle(single._replace(**{field: value}), [None, None])
    several = plan_of(2, metric="auc")
    several.cells[0].config.data.source = "multilabel"
    assert own_rows.settle(several, [None, None]).metric == "auc"  # the other cell has it
    several.cells[1].config.data.source = "multilabel"
    with pytest.raises(ValueError, match="^metric is 'auc'; accepted: 'mean_average_precision', "):
        own_rows.settle(several, [None, None])


@pytest.mark.parametrize(("known", "rule"), [([rows()], "reported"), ([None], "last")])
def test_the_published_rule_may_be_the_one_that_the_data_decide_on(known, rule):
    plan = plan_of(1, published_rule=rule)
    plan_lib.check(plan)
    assert own_rows.settle(plan, known).rules == (rule,)


def summary(seed, *, training=(1.0, -1.0), test=0, **values):
    """As a run on own rows leaves it."""
    found = {"epoch": 3, "value": None, "is_oracle": False, "accuracy": 0.9 if test else None}
    return {
        "seed": seed,
        "oracle": False,
        "counts": {"test": test},
        "selections": {"last": found, "vpu_risk": found | {"epoch": 1}},
        "selection": {"rule": "vpu_risk"},
        "oracle_best_epoch": {"epoch": 2 if test else None, "test_accuracy": found["accuracy"]},
        "held_out": [{"name": name, "value": value} for name, value in values.items()],
        "predicts_one_class": one_class.sides(test=np.zeros(0), training=np.asarray(training)),
    }


def test_a_run_says_what_is_known_of_the_epoch_that_it_reports_and_of_no_other():
    without = report.by_rule(summary(0, auc_pu=0.75, recall=None, accuracy=0.7))
    assert list(without) == ["reported", "last", "vpu_risk"]
    # The accuracy that is estimated with the prior is not that of a test set.
    assert without["last"] == {"epoch": 3, "value": None, "is_oracle": False}
    expected = dict.fromkeys(NAMES) | {"auc_pu": 0.75}
    assert without["reported"] == without["vpu_risk"] | expected
    tested = report.by_rule(summary(0, test=60, auc_pu=0.75))
    assert tested["oracle_best_epoch"]["accuracy"] == tested["last"]["accuracy"] == 0.9
    assert tested["reported"] == tested["vpu_risk"] | expected


def test_a_mean_of_some_seeds_says_of_how_many_and_collapsed_models_are_counted():
    runs = [
        summary(0, training=(-2.0, -1.0), auc_pu=0.5, lee_liu=None),
        summary(1, auc_pu=0.7, lee_liu=1.5),
    ]
    cell = {"row": "a", "column": "b", "published": None, "note": "", "error": ""}
    page = report.render(
        "title",
        [cell | {"summaries": runs}],
        rules=("reported",),
        metric="auc_pu",
        also=("lee_liu", "recall"),
        num_seeds=2,
    )
    assert "| b | a | 60.00 ± 14.14 | 1.500 (1 of 2) | - | 2 of 2 |" in page
    assert "- a on b: 1 of 2 seeds predicts one class" in page


def test_a_table_says_which_numbers_do_not_follow_the_rule_of_decisions():
    cell = {"row": "a", "column": "b", "published": None, "note": "", "error": ""}
    cell |= {"decide": "score:0", "summaries": [summary(0, auc_pu=0.5)]}
    how = {"rules": ("reported",), "metric": "auc_pu", "num_seeds": 1, "also": ("recall",)}
    said = "are those of a score above 0, not of run.decide=top:5."
    assert "run.decide" not in report.render("title", [cell], **how)
    assert said in report.render("title", [cell, cell | {"decide": "top:5"}], **how)
    # No decision is in a ranking.
    how["also"] = ()
    assert "run.decide" not in report.render("title", [cell | {"decide": "top:5"}], **how)


@pytest.mark.parametrize("one_split", [True, False])
def test_a_table_says_whether_seeds_hold_out_the_same_rows(one_split):
    cell = {"row": "a", "column": "b", "published": None, "note": "", "error": ""}
    cell |= {"one_split": one_split, "summaries": [summary(i, auc_pu=0.5 + i) for i in range(2)]}
    how = {"rules": ("reported",), "metric": "auc_pu", "num_seeds": 2, "reference": "a"}
    page = report.render("title", [cell, cell | {"row": "c"}], **how)
    assert ("All seeds hold out the same rows" in page) == one_split
    assert ("Every seed holds out other rows" in page) == (not one_split)
    assert ("p is too small" in page) == (not one_split)
