"""The summary of a sweep says of every cell what its runs say, and replaces no other file."""

import csv
import json
import os
import subprocess
import sys

import pytest
from PIL import Image, PngImagePlugin

from pujax.sweep import figure, summary, tables

RUN = {
    "oracle": False,
    "device": "1 x cpu",
    "versions": {"pujax": "0.1.0", "jax": "0.10.2", "python": "3.11.7"},
    "finished_at": "2026-11-22T10:00:00+00:00",
}


def record(row, seed, last, best, **more):
    metrics = {"last": {"accuracy": last}, "oracle_best_epoch": {"accuracy": best}}
    return {"row": row, "column": "digits", "seed": seed, "metrics": metrics, **RUN, **more}


def results(**changes):
    cells = [
        {"row": row, "column": "digits", "published": published, "note": note, "error": error}
        for row, published, note, error in (
            ("naive", [92.5, 0.5], "A remark.", ""),
            ("upper", None, "", ""),
            ("waits", [95.0, None], "", "seed 0: went wrong"),
        )
    ]
    records = [
        record("naive", 0, 0.90, 0.93),
        record("naive", 1, 0.92, None, finished_at="2026-11-23T01:00:00+00:00"),
        record("upper", 0, 0.99, 0.99, oracle=True),
    ]
    about = {"title": "A table", "seeds": [0, 1], "rules": ["last", "oracle_best_epoch"]}
    return about | {"metric": "accuracy", "cells": cells, "records": records} | changes


def rows(page):
    """Cells of the Markdown table, header first."""
    found = [line for line in page.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in line.split("|")[1:-1]] for line in found]
    return [found[0], *found[2:]]


def test_every_cell_and_rule_has_a_line_with_mean_deviation_and_difference(tmp_path):
    summary.write(results(), tmp_path / "table", note="On two cores.")
    with open(tmp_path / "table.csv") as file:
        lines = list(csv.DictReader(file))
    assert list(lines[0])[:8] == list(summary.COLUMNS)
    assert [(x["row"], x["rule"]) for x in lines] == [
        (row, rule) for row in ("naive", "upper", "waits") for rule in ("last", "oracle_best_epoch")
    ]
    first, second, third, _, waits, _ = lines
    assert (float(first["mean"]), first["seeds"]) == (91, "2")
    assert float(first["std"]) == pytest.approx(2**0.5, abs=1e-6)  # 90 and 92 over n - 1
    assert (float(first["published"]), float(first["published_std"])) == (92.5, 0.5)
    assert float(first["difference"]) == -1.5
    # A seed whose rule chose nothing is no part of the mean, and is not counted.
    assert (float(second["mean"]), second["std"], second["seeds"]) == (93, "", "1")
    assert second["oracle"] == "test labels" and first["oracle"] == ""
    assert third["oracle"] == "true training labels" and third["difference"] == ""
    assert (waits["mean"], waits["seeds"], waits["published"]) == ("", "0", "95.0")

    assert {x["criterion"] for x in lines} == {""}  # neither rule compares anything without truth

    page = (tmp_path / "table.md").read_text()
    header, *shown = rows(page)
    assert header == list(summary.COLUMNS)
    assert shown[0] == ["naive", "digits", "last", "91.00", "1.41", "2 of 2", "92.5 ± 0.5", "-1.50"]
    assert shown[1][2:6] == ["oracle_best_epoch (oracle: test labels)", "93.00", "-", "1 of 2"]
    assert shown[2][0] == "upper (true labels)" and shown[2][6:] == ["-", "-"]
    assert shown[4][3:] == ["not measured", "-", "0 of 2", "95", "-"]
    assert "\nOn two cores.\n" in page and "[table.csv](table.csv)" in page
    assert "3 runs on 1 x cpu; pujax 0.1.0, jax 0.10.2, python 3.11.7" in page
    assert "ended 2026-11-22 to 2026-11-23." in page
    assert "- naive on digits: A remark." in page
    assert "- waits on digits stopped: seed 0: went wrong" in page


def test_published_figures_stand_beside_the_rule_that_chose_them_and_the_first_metric():
    metrics = {rule: {"accuracy": 0.9, "auc": 0.8} for rule in ("last", "oracle")}
    # As a run of several labels, or of an older version, has it: keys without a value.
    records = [
        record("naive", seed, 0.9, None, metrics=metrics, one_class=None, warnings=None, seconds=3)
        for seed in (0, 1)
    ]
    found = results(
        records=records, rules=["last", "oracle"], also=["auc"], published_rule="oracle", costs=True
    )
    lines = summary.lines(found)
    naive = [line for line in lines if line["row"] == "naive"]
    assert [(x["rule"], x["metric"]) for x in naive] == [
        (rule, metric) for rule in ("last", "oracle") for metric in ("accuracy", "auc")
    ]
    assert [x["published"] for x in naive] == [None, None, 92.5, None]
    assert [x["difference"] for x in naive] == [None, None, -2.5, None]
    page = summary.to_markdown(found, lines, name="x")
    header, first, *_ = rows(page)
    shown = dict(zip(header, first, strict=True))
    assert shown["published"] == "92.5 ± 0.5" and shown["difference"] == "-2.50"
    assert shown["last: AUC"] == "80.00 ± 0.00" and shown["seconds"] == "3.0"
    assert "Seeds 0, 1. [x.csv](x.csv)" in page and "Test AUC in percent" in page


def test_without_a_rule_of_the_published_figure_it_stands_beside_every_rule():
    metrics = {rule: {"accuracy": 0.9} for rule in ("last", "oracle")}
    found = results(records=[record("naive", 0, 0.9, None, metrics=metrics)])
    found["rules"] = ["last", "oracle"]
    both = [line["published"] for line in summary.lines(found)[:2]]
    assert both == [92.5, 92.5]
    found["published_rule"] = "oracle"
    assert [line["published"] for line in summary.lines(found)[:2]] == [None, 92.5]


@pytest.mark.parametrize(
    "change",
    [
        {"also": None},
        {"also": ["nonsense"]},
        {"rules": []},
        {"costs": "yes"},
        {"published_rule": "oracle"},
        {"reference": 3},
        {"records": [{"row": "naive", "column": "digits", "metrics": {}, "oracle": False}]},
    ],
)
def test_what_only_newer_sweeps_write_is_checked_too(tmp_path, change):
    (tmp_path / "results.json").write_text(json.dumps(results(**change)))
    with pytest.raises(ValueError, match=f"of {tmp_path}/results.json is .*; accepted: "):
        tables.read(str(tmp_path))


def test_an_error_of_the_prior_is_no_percentage():
    metrics = {"last": {"prior_error": 0.0416}}
    cell = {"row": "PURL", "column": "a9a 0.7", "published": [0.04, 0.01], "note": "", "error": ""}
    found = results(
        rules=["last"],
        metric="prior_error",
        cells=[cell],
        records=[RUN | {"row": "PURL", "column": "a9a 0.7", "metrics": metrics}],
    )
    (line,) = summary.lines(found)
    assert (line["mean"], line["difference"]) == (0.0416, 0.0016)
    page = summary.to_markdown(found, [line], name="purl")
    assert rows(page)[1][3:] == ["0.042", "-", "1 of 2", "0.04 ± 0.01", "+0.002"]
    assert "percent" not in page


def test_what_a_run_does_not_state_is_unknown():
    bare = {"row": "naive", "column": "digits", "metrics": {}, "oracle": False}
    found = results(records=[bare])
    page = summary.to_markdown(found, summary.lines(found), name="x")
    assert "1 runs on unknown; pujax unknown, jax unknown, python unknown" in page
    assert "ended on unknown days" in page
    empty = results(records=[])
    assert "No run has finished." in summary.to_markdown(empty, summary.lines(empty), name="x")


@pytest.fixture
def swept(tmp_path):
    """The folder of a sweep."""
    folder = tmp_path / "sweep"
    folder.mkdir()
    (folder / "results.json").write_text(json.dumps(results()))
    return folder


def run(*arguments):
    return tables.main(["tables", *map(str, arguments)])


def test_the_command_copies_the_tables_of_a_sweep_and_replaces_its_own(swept, tmp_path):
    target = tmp_path / "table"
    assert run(swept, f"--out={target}") == 0
    found = results()
    assert (tmp_path / "table.csv").read_text() == summary.to_csv(summary.lines(found))
    page = summary.to_markdown(found, summary.lines(found), name="table")
    assert (tmp_path / "table.md").read_text() == page
    (swept / "results.json").write_text(json.dumps(results(records=[])))
    assert run(swept, f"--out={target}", "--note=Again.") == 0
    assert "\nAgain.\n" in (tmp_path / "table.md").read_text()
    assert "91.0" not in (tmp_path / "table.csv").read_text()
    assert sorted(os.listdir(tmp_path)) == ["sweep", "table.csv", "table.md"]


@pytest.mark.parametrize("ending", ["csv", "md"])
def test_the_command_does_not_replace_a_file_that_is_no_summary(swept, tmp_path, capsys, ending):
    path = tmp_path / f"results.{ending}"
    path.write_text("row,column\nmine,1\n")
    assert run(swept, f"--out={tmp_path / 'results'}") == 2
    said = capsys.readouterr().err
    assert f"{path} is no summary of a sweep" in said and said.count("\n") == 1
    assert path.read_text() == "row,column\nmine,1\n" and len(os.listdir(tmp_path)) == 2


PAGE = "# Mine\n\n{}\n\n| data | method | note |\n| --- | --- | --- |\n| a | b | c |\n"
LINK = "[page.csv](page.csv)"


@pytest.mark.parametrize(
    ("text", "has_csv"),
    [
        (PAGE.format("By hand."), True),
        (PAGE.format(LINK) + "\n| day | note |\n| --- | --- |\n", True),
        (PAGE.format(LINK).removeprefix("# "), True),
        (PAGE.format(LINK), False),
    ],
    ids=["no link", "two tables", "no heading", "no CSV"],
)
def test_a_page_with_a_similar_table_is_not_replaced(swept, tmp_path, capsys, text, has_csv):
    target, page = tmp_path / "page", tmp_path / "page.md"
    assert run(swept, f"--out={target}") == 0
    if not has_csv:
        os.remove(f"{target}.csv")
    page.write_text(text)
    assert run(swept, f"--out={target}", "--note=Again.") == 2
    assert f"{page} is no summary of a sweep" in capsys.readouterr().err
    assert page.read_text() == text and os.path.exists(f"{target}.csv") == has_csv


@pytest.mark.parametrize("also", [[], ["auc"]])
def test_a_page_of_either_form_is_replaced(swept, tmp_path, also):
    (swept / "results.json").write_text(json.dumps(results(also=also)))
    for note in ("First.", "Again."):
        assert run(swept, f"--out={tmp_path / 'page'}", f"--note={note}") == 0
    assert "\nAgain.\n" in (tmp_path / "page.md").read_text()


def test_a_write_that_fails_leaves_the_old_tables(swept, tmp_path, monkeypatch, capsys):
    assert run(swept, f"--out={tmp_path / 'table'}") == 0
    before = (tmp_path / "table.csv").read_text()
    (swept / "results.json").write_text(json.dumps(results(records=[])))

    def failing(*paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", failing)
    assert run(swept, f"--out={tmp_path / 'table'}") == 2
    assert "No space left" in capsys.readouterr().err
    assert (tmp_path / "table.csv").read_text() == before
    assert sorted(os.listdir(tmp_path)) == ["sweep", "table.csv", "table.md"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cells": None}, "cells of .* is None; accepted"),
        ({"records": [{"row": "a"}]}, "an entry of records of .* is {'row': 'a'}; accepted"),
        (
            {"records": [record("a", 0, 1, 1) | {"metrics": []}]},
            "an entry of records of .*; accepted",
        ),
        (
            {"records": [record(["a"], 0, 1, 1)]},
            "an entry of records of .* is {'row': \\['a'\\], .*; accepted",
        ),
        (
            {"cells": [{"row": "a", "column": "b", "published": 1}]},
            "an entry of cells of .*; accepted",
        ),
        (
            {"cells": [{"row": "a", "column": "b", "published": ["90", None]}]},
            "an entry of cells of .*; accepted",
        ),
        (
            {"records": [record("a", 0, "high", 1)]},
            "an entry of records of .*'accuracy': 'high'.*; accepted",
        ),
        (
            {"records": [record("a", 0, 1, 1) | {"metrics": {"last": 3}}]},
            "an entry of records of .*'last': 3.*; accepted",
        ),
        (
            {"records": [record("a", 0, 1, 1), record("a", 1, 1, 1), record("a", 0, 0, 0)]},
            r"records of .* is \"2 of \('a', 'digits', 0\)\"; accepted: one of each seed",
        ),
        ({"metric": "speed"}, "metric of .* is 'speed'; accepted: 'accuracy'"),
        ({"rules": ["first"]}, "rules of .* is 'first'; accepted: 'last'"),
    ],
)
def test_results_that_no_sweep_wrote_are_refused(swept, change, said):
    (swept / "results.json").write_text(json.dumps(results(**change)))
    with pytest.raises(ValueError, match=said):
        tables.read(str(swept))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "DIR is ''; accepted: one folder of a sweep"),
        (("{swept}",), "--out is ''; accepted: a path without an ending"),
        (("{swept}", "--out={here}/none/table"), "accepted: a path without an ending"),
        (("{swept}", "--out={here}/table.md"), "accepted: a path without an ending"),
        (("{here}", "--out={here}/table"), "without results.json; accepted: a sweep's folder"),
        (("{swept}", "--ou=x"), "--ou is not an option of this command (did you mean --out?)"),
    ],
)
def test_a_command_line_that_is_not_understood_is_one_line(
    swept, tmp_path, capsys, arguments, said
):
    given = [x.format(swept=swept, here=tmp_path) for x in arguments]
    assert run(*given) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1
    assert os.listdir(tmp_path) == ["sweep"]


@pytest.mark.thorough
def test_the_command_is_a_module_that_the_package_does_not_import():
    command = [sys.executable, "-W", "error::RuntimeWarning", "-m", "pujax.sweep.tables", "--help"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "usage: python -m pujax.sweep.tables" in done.stdout


def test_every_column_with_pairs_has_a_figure_of_differences_in_points(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        figure.paired, "differences_figure", lambda rows, **about: drawn.append((rows, about))
    )
    monkeypatch.setattr(figure.figures, "save", lambda _, path: open(path, "wb").close())
    found = results(reference="naive")
    found["records"].append(record("upper", 1, float("nan"), 1.0))
    found["cells"].append({**found["cells"][1], "column": "a set/other"})
    (path,) = figure.write(found, tmp_path)
    assert os.listdir(tmp_path) == ["paired_digits.png"] == [os.path.basename(path)]
    ((rows, about),) = drawn
    assert rows == {"upper": [pytest.approx(9.0)]}
    assert about["reference"] == "naive" and about["title"] == "A table: digits"
    assert about["unit"] == "accuracy (points), rule: last"
    assert figure.write(results(), tmp_path) == []  # without a reference
    drawn.clear()
    found["cells"].pop()
    figure.write(found, tmp_path)
    assert drawn[0][1]["title"] == "A table" and not drawn[0][1]["note"]
    drawn.clear()
    for cell in found["cells"]:
        cell["one_split"] = True
    figure.write(found, tmp_path)
    assert drawn[0][1]["note"].startswith("all seeds are of one split")


def test_columns_that_differ_in_one_number_have_curves_over_it(tmp_path, monkeypatch):
    drawn = []
    monkeypatch.setattr(
        figure.number_curves, "curves_figure", lambda panels, **about: drawn.append((panels, about))
    )
    monkeypatch.setattr(figure.figures, "save", lambda _, path: open(path, "wb").close())
    found = results(metric="accuracy", also=["auc"])
    cell, taken = found["cells"][0], found["records"][0]
    found["cells"], found["records"] = [], []
    for i, (column, value) in enumerate(
        (("a9a, 5 labels", 0.5), ("a9a, 20 labels", 0.75), ("a9a, 100 labels", None))
    ):
        found["cells"].append({**cell, "column": column})
        metrics = {"accuracy": value, "auc": 0.25 * (i + 1)}
        found["records"].append({**taken, "column": column, "metrics": {"last": metrics}})
    more = {"last": {"accuracy": 0.625, "auc": None}}
    found["records"].append({**taken, "column": "a9a, 20 labels", "seed": 1, "metrics": more})
    (path,) = figure.write(found, tmp_path)
    assert os.path.basename(path) == "curve_a9a_labels.png"
    ((panels, about),) = drawn
    row = cell["row"]
    assert panels == {
        "accuracy, %": {row: {5.0: [50.0], 20.0: [75.0, 62.5]}},
        "AUC, %": {row: {5.0: [25.0], 20.0: [50.0], 100.0: [75.0]}},
    }
    assert about["numbers"] == "a9a, # labels"
    found["cells"].pop()
    assert figure.write(found, tmp_path) == []  # two numbers are no curve
    assert figure._NUMBER.findall("CIFAR-10, MNIST 1k, a9a 0.7") == ["0.7"]


def test_the_criterion_is_the_mean_of_what_a_rule_compared_epochs_by():
    found = results(rules=["last", "nnpu_risk"])
    for entry, risk in zip(found["records"], (0.125, 0.25, None), strict=True):
        entry["metrics"]["nnpu_risk"] = {"accuracy": 0.9, "value": risk}
        entry["metrics"]["last"]["value"] = None
    lines = {(x["row"], x["rule"]): x["criterion"] for x in summary.lines(found)}
    assert lines["naive", "nnpu_risk"] == 0.1875
    assert {lines["naive", "last"], lines["upper", "nnpu_risk"], lines["waits", "last"]} == {None}


def test_what_runs_report_by_an_oracle_says_so():
    found = results(rules=["reported", "last"])
    for entry, rule in zip(found["records"], ("oracle", "oracle_f1", "last"), strict=True):
        entry["metrics"]["reported"] = {"accuracy": 0.9}
        entry["selection"] = {"rule": rule}
    lines = summary.lines(found)
    saw = {(x["row"], x["rule"]): x["oracle"] for x in lines}
    assert saw["naive", "reported"] == "true validation labels" and not saw["naive", "last"]
    assert saw["upper", "reported"] == "true training labels" and not saw["waits", "reported"]
    _, naive, last, upper, *_ = rows(summary.to_markdown(found, lines, name="table"))
    assert naive[:3] == ["naive", "digits", "reported (oracle: true validation labels)"]
    assert (last[2], upper[2]) == ("last", "reported")
    wide = found | {"also": ["f1"]}
    _, naive, upper, waits = rows(summary.to_markdown(wide, summary.lines(wide), name="table"))
    assert naive[1] == "naive (reported by an oracle: true validation labels)"
    assert (upper[1], waits[1]) == ("upper (true labels)", "waits")


def test_a_summary_from_before_the_criterion_is_replaced_as_one(swept, tmp_path):
    now = summary.to_csv(summary.lines(results()))
    before = now.splitlines()[0].removesuffix(",criterion")
    (tmp_path / "table.csv").write_text(f"{before}\n")
    assert run(swept, f"--out={tmp_path / 'table'}") == 0
    assert (tmp_path / "table.csv").read_text() == now


def test_a_figure_of_an_earlier_table_does_not_stay_beside_another_one(tmp_path):
    """But what pujax did not draw stays, whatever it is called."""
    other = PngImagePlugin.PngInfo()
    other.add_text("Software", "another program")
    Image.new("RGB", (2, 2)).save(tmp_path / "paired_mine.png", pnginfo=other)
    (tmp_path / "curve_mine.png").write_text("no image")
    found = results(reference="naive")
    (path,) = figure.write(found, tmp_path)
    assert os.path.exists(path)
    assert figure.write(results(), tmp_path) == []
    assert sorted(os.listdir(tmp_path)) == ["curve_mine.png", "paired_mine.png"]
