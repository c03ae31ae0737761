"""The tables of results are whole, and their published figures are those of the plans."""

import csv
import pathlib
import re

import pytest

from pujax.configs.sweeps import pu_bench, pubench
from pujax.sweep import plan as plan_lib

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
TABLES = REPOSITORY / "docs" / "tables"
RESULTS = REPOSITORY / "docs" / "results"
PAPERS = ("lagam", "gradpu", "purl", "impulses", "pu_mlc", "ncpu")
LISTS = (*PAPERS, "boards")
HEADER = ["published", "ours", "difference", "seeds", "rule", "command"]
NUMBER = r"[+-]?\d+(?:,\d{3})*(?:\.\d+)?"


def published(paper):
    """Lines of the list of all published figures of a paper."""
    with open(TABLES / f"published_{paper}.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def rows_of(page):
    """Rows of all tables of a page of results that have `HEADER`, the first of which begins it."""
    lines = (RESULTS / f"{page}.md").read_text().splitlines()
    cells = [[x.strip() for x in line.strip("|").split("|")] for line in lines]
    starts = [i for i, line in enumerate(lines) if line.startswith("| published row")]
    assert all(cells[k][1:] == HEADER for k in starts), page
    before = lines[: starts[0]]
    assert len(before) < 10 and not any(line.startswith("|") for line in before), page
    ends = [next(i for i in range(k, len(lines)) if lines[i][:1] != "|") for k in starts]
    return [row for k, end in zip(starts, ends, strict=True) for row in cells[k + 2 : end]]


def numbers(text):
    """The numbers of a cell, without its links and the spans of code."""
    text = re.sub(r"\[[^]]*\]\([^)]*\)|`[^`]*`", "", text)
    return [x.replace(",", "") for x in re.findall(NUMBER, text)]


@pytest.mark.parametrize("name", sorted({path.stem for path in TABLES.iterdir()}))
def test_a_table_is_there_as_markdown_and_as_csv_with_the_same_numbers(name):
    page = (TABLES / f"{name}.md").read_text()
    with open(TABLES / f"{name}.csv", encoding="utf-8") as file:
        lines = list(csv.reader(file))
    assert len({len(line) for line in lines}) == 1 and len(lines) > 10
    shown = {float(x) for x in re.findall(r"\d*\.\d+|\d+", page.replace(",", ""))}
    measured = [i for i, column in enumerate(lines[0]) if column in ("mean", "std", "ours")]
    digits = 2 if "has the same with more decimals" in page else 99  # as a sweep writes them
    if "metric" in lines[0] and lines[1][lines[0].index("metric")] == "prior_error":
        digits = 3  # shares, while the others are in percent
    for line in lines[1:]:
        for place in measured:
            assert not line[place] or round(abs(float(line[place])), digits) in shown, line


@pytest.mark.parametrize("paper", LISTS)
def test_a_published_figure_is_measured_by_a_rule_or_listed_as_not_measured(paper):
    for line in published(paper):
        is_measured = line["ours"] != ""
        assert is_measured == (int(line["seeds"]) > 0) == (line["rule"] != ""), line
        assert is_measured == (not line["state"].startswith("not measured")), line
        assert ("oracle" in line["rule"]) == ("(oracle: " in line["rule"]), line
        if is_measured:
            digits = len(line["difference"].partition(".")[2])
            exact = float(line["ours"]) - float(line["published"])
            assert float(line["difference"]) == pytest.approx(exact, abs=0.51 * 10**-digits), line


@pytest.mark.parametrize("paper", LISTS)
def test_the_tables_of_a_page_agree_with_the_list_of_published_figures(paper):
    lines = published(paper)
    known = {
        float(line[key]) for line in lines for key in ("published", "published_std") if line[key]
    }
    measured = {float(line["ours"]) for line in lines if line["ours"]}
    rows = rows_of(paper)
    is_complete = all(line["ours"] for line in lines)
    assert is_complete != any("not measured" in row[2] for row in rows)
    for row in rows:
        if "min" in row[1]:
            continue  # times are no figures of the list
        assert {float(x) for x in numbers(row[1])} <= known, row
        figures = [float(x) for x in numbers(row[2])]
        if "not measured" in row[2]:
            assert row[4] == "0" and row[3] == "-" and not figures, row
        elif figures:
            assert figures[0] in measured and row[5] not in ("", "-"), row
            exact = figures[0] - float(numbers(row[1])[0])
            assert float(row[3].strip("*")) == pytest.approx(exact, abs=0.06), row
            sees_labels = "best epoch" in row[5] or "oracle_f1" in row[5]
            assert ("(oracle: " in row[5]) == sees_labels, row


def test_the_rows_of_pu_mlc_by_the_rule_are_those_of_their_tables():
    """Means, deviations and differences in points of the page, as the CSV files have them."""

    def table(name):
        with open(TABLES / f"pu_mlc_{name}.csv", encoding="utf-8") as file:
            lines = [x for x in csv.DictReader(file) if x["rule"] == "last"]
        return {(x["column"], x["row"], x["metric"]): x for x in lines}

    rule, fixed = table("rule"), table("gammas")
    page = (RESULTS / "pu_mlc.md").read_text()
    section = page[page.index("## Gamma by a rule") :]
    rows = re.findall(r"^\| ((?:scene|yeast|emotions), \d+ %) \| (.*)\|$", section, re.MULTILINE)
    assert len(rows) == 9
    for name, text in rows:
        column, cells = name.replace(",", ""), [x.strip() for x in text.split("|")]
        for place, metric in enumerate(("mean_average_precision", "overall_f1", "class_f1")):
            for first, row in (
                (0, "PU-MLC, gamma auto"),
                (6, "PU-MLC, gamma auto, known negatives"),
            ):
                line, shown = rule.get((column, row, metric)), cells[first + place]
                assert (line is None) == (shown == ""), (name, metric)
                if line:
                    mean, std = float(line["mean"]), float(line["std"])
                    assert shown == f"{mean:.1f} ± {std:.1f}", (name, metric)
            half = float(fixed[column, "gamma 0.5", metric]["mean"])
            auto = float(rule[column, "PU-MLC, gamma auto", metric]["mean"])
            assert float(cells[3 + place]) == pytest.approx(auto - half, abs=0.051), (name, metric)


_BOARD_COLUMNS = {
    "`proxy_accuracy` (AUC)": "proxy_accuracy",
    "`proxy_accuracy`: F1 (AUC)": "proxy_accuracy",
    "`proxy_auc` (AUC)": "proxy_auc",
    "`oracle` (AUC)": "oracle",
    "`oracle_f1`: F1 (AUC)": "oracle_f1",
    "last epoch (AUC)": "last",
    "last epoch: F1 (AUC)": "last",
    "set 3, case 1": "proxy_accuracy",
}


@pytest.mark.parametrize(
    ("page", "heading", "name", "metric", "columns", "least"),
    [
        ("boards", "PUBench, Letter", "pubench_letter", "accuracy", _BOARD_COLUMNS, 360),
        ("boards", "PU-Bench, Spambase", "pu_bench_spambase", "f1", _BOARD_COLUMNS, 180),
        (
            "alignment",
            "The methods without the switch",
            "alignment_others",
            "accuracy",
            {"accuracy %": "reported", "AUC %": "reported"},
            70,
        ),
    ],
)
def test_cells_of_a_page_are_those_of_its_table_rounded_once(
    page, heading, name, metric, columns, least
):
    """Rounded to two digits before they were rounded to one, some differed in the last."""
    with open(TABLES / f"{name}.csv", encoding="utf-8") as file:
        lines = {(x["row"], x["rule"], x["metric"]): x for x in csv.DictReader(file) if x["mean"]}
    text = (RESULTS / f"{page}.md").read_text()
    section = re.split(r"\n##+ ", text[text.index(f"# {heading}") :])[0]
    seen = 0
    for table in re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE):
        titles, _, *rows = [
            [x.strip() for x in line.strip("|\n").split("|")] for line in table.splitlines()
        ]
        for cells in rows:
            row = re.sub(r" \(true labels\)$|\[`|`\].*", "", cells[0])
            for title, cell in zip(titles, cells, strict=True):
                if title not in columns:
                    continue
                line = lines[row, columns[title], "auc" if title == "AUC %" else metric]
                auc = lines[row, columns[title], "auc"]
                exact = (line["mean"], line["std"], auc["mean"])
                shown = numbers(cell)
                assert len(shown) == (3 if "AUC)" in title or "case" in title else 2), cell
                for value, number in zip(shown, exact, strict=False):
                    digits = len(value.partition(".")[2])
                    assert value == f"{float(number):.{digits}f}", (row, title, cell)
                    seen += 1
    assert seen >= least


def test_the_lead_of_pu_mlc_by_the_paper_s_rule_is_that_of_its_table():
    with open(TABLES / "pu_mlc_ratios.csv", encoding="utf-8") as file:
        lines = [x for x in csv.DictReader(file) if x["rule"] == "oracle_best_epoch"]
    means = {(x["row"], x["column"], x["metric"]): x["mean"] for x in lines}
    page = (RESULTS / "pu_mlc.md").read_text()
    rows = re.findall(r"^\| (scene|yeast|emotions), (mAP|OF1|CF1) \| (.*) \|$", page, re.MULTILINE)
    assert len(rows) == 9
    names = {"mAP": "mean_average_precision", "OF1": "overall_f1", "CF1": "class_f1"}
    for data, metric, text in rows:
        for percent, cell in zip(range(10, 101, 10), text.split(" | "), strict=True):
            ours, other = (
                float(means[row, f"{data} {percent} %", names[metric]])
                for row in ("PU-MLC, gamma 0.5", "assume-negative BCE")
            )
            assert cell == f"{ours - other:+.1f}", (data, metric, percent)


def test_gamma_by_the_rule_differs_from_fixed_ones_as_the_page_says():
    """Mean and worst of the thirty cells, by the last epoch and by the paper's own rule."""
    with open(TABLES / "pu_mlc_gammas.csv", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    means = {(x["rule"], x["metric"], x["row"], x["column"]): float(x["mean"]) for x in lines}
    columns = {x["column"] for x in lines}
    page = (RESULTS / "pu_mlc.md").read_text()
    tables = page.split("| fixed gamma |")[1:]
    assert len(tables) == 2 and len(columns) == 30
    for table, rule in zip(tables, ("last", "oracle_best_epoch"), strict=True):
        rows = re.findall(r"^ *\| ([\d.]+) \| (.*) \|$", table, re.MULTILINE)[:5]
        assert [x for x, _ in rows] == ["0", "0.25", "0.5", "0.75", "1"]
        for gamma, text in rows:
            shown = [x.strip() for x in text.split("|")]
            for place, metric in enumerate(("mean_average_precision", "overall_f1", "class_f1")):
                of = {
                    x: means[rule, metric, "gamma auto", x]
                    - means[rule, metric, f"gamma {float(gamma)}", x]
                    for x in columns
                }
                mean, (worst, _, where) = shown[2 * place], shown[2 * place + 1].partition(" (")
                for text, value in ((mean, sum(of.values()) / 30), (worst, min(of.values()))):
                    assert text.removeprefix("+") == f"{value:z.1f}", (gamma, rule, metric)
                if where:
                    assert where.replace(",", "") == min(of, key=of.get) + ")", (gamma, rule)


def test_the_summary_counts_every_published_figure():
    page = (REPOSITORY / "docs" / "results.md").read_text()
    counts, paper = {}, ""
    for line in page[: page.index("\n## ")].splitlines():
        cells = [x.strip() for x in line.strip("|").split("|")]
        if line.startswith("|") and len(cells) == 5:
            paper = (re.findall(r"results/(\w+)\.md", cells[0]) or [paper])[0]
            both = [int(x) if x.isdigit() else 0 for x in cells[2:4]]
            counts[paper] = [a + b for a, b in zip(counts.get(paper, [0, 0]), both, strict=True)]
    for name in LISTS:
        lines = published(name)
        figures = {(x["table"], x["row"], x["column"], x["metric"]): x["ours"] != "" for x in lines}
        assert counts[name] == [len(figures), sum(figures.values())], name


def plan_of(name, argument=""):
    path = REPOSITORY / "configs" / "sweeps" / f"{name}.py"
    return plan_lib.from_file(f"{path}:{argument}" if argument else str(path))


BOARD_SETS = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "mushrooms": "mushrooms",
    "spambase": "Spambase",
    "connect4": "Connect-4",
}


def test_published_figures_in_the_plans_of_the_boards_are_listed():
    listed = {
        (x["table"], x["row"].partition(",")[0], x["column"].partition(",")[0], x["metric"]): x
        for x in published("boards")
        if "case 2" not in x["column"]
    }
    compared = 0
    for data, column in BOARD_SETS.items():
        plan = pu_bench.get_plan(f"data={data}")
        is_image = plan.metric == "accuracy"
        table = "PU-Bench, the paper" if is_image else "PU-Bench, a fork: one seed"
        for cell in plan.cells:
            if cell.published and cell.row != "lbe, P kept":
                line = listed[table, cell.row, column, "accuracy" if is_image else "F1"]
                assert float(line["published"]) == cell.published[0], cell.name
                compared += 1
    assert compared == 39
    names = {"dist_pu": "Dist-PU-c", "upu": "uPU-c", "upu, not calibrated": "uPU"}
    for cell in pubench.get_plan("data=cifar10,set=3,case=1").cells:
        if cell.published:
            line = listed["PUBench", names[cell.row], "CIFAR-10", "accuracy"]
            figures = float(line["published"]), float(line["published_std"])
            assert figures == cell.published, cell.name


def test_what_is_listed_as_measured_of_the_boards_stands_on_their_page():
    page = (RESULTS / "boards.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("|")]
    lines = [[x.strip() for x in row.strip("|").split("|")] for row in rows]
    for x in published("boards"):
        if not x["ours"]:
            continue
        figure = f"{x['ours']} ± {x['ours_std']}"
        if x["column"] in ("mushrooms", "Spambase"):
            own = [line for line in lines if line[0].partition(" (")[0] == x["row"]]
        else:
            names = x["column"], x["row"]
            own = [line for line in lines if (line[0], line[1].partition(" (")[0]) == names]
        assert any(figure in cell for line in own for cell in line[2:]), x


@pytest.mark.thorough
def test_published_figures_are_those_of_the_plans():
    listed = {
        (x["table"], x["row"], x["column"]): (float(x["published"]), float(x["published_std"]))
        for paper in ("purl", "gradpu")
        for x in published(paper)
        if x["published_std"]
    }
    compared = 0
    for table in ("1", "2"):
        for cell in plan_of("purl_tables", f"table={table}").cells:
            if cell.published:
                mean, error = listed[f"Table {table}", cell.row, cell.column]
                mean = mean if table == "1" else 100 - mean
                assert cell.published == pytest.approx((mean, error), abs=1e-9), cell.name
                compared += 1
    names = {"naive": "Naive", "supervised": "Sup."}
    for table in (1, 3, 4):
        for cell in plan_of(f"gradpu_table{table}").cells:
            row, column = cell.row.removesuffix(", not calibrated"), cell.column
            if table == 4:
                row = row.replace("beta_max 0", "beta_max=0").replace("alpha 0", "alpha=0")
                column = column.split(" k=")[0]
            key = (f"Table {table}", names.get(row, row), column)
            if cell.published:
                assert cell.published == listed[key], cell.name
                compared += 1
    for cell in plan_of("gradpu_table2").cells:
        column = f"{cell.column}, best epoch"
        (row,) = {
            row
            for table, row, of in listed
            if (table, of) == ("Table 2", column)
            and row.partition(" {")[0] == cell.row.rpartition(" ")[0]
        }
        assert cell.published == listed["Table 2", row, column], cell.name
        compared += 1
    assert compared == 2 * 147 + 34 + 10 + 20 + 69
