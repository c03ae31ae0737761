"""Every method has a page, whose fields and figures are those of the code and the results."""

import re

import pytest

from pujax import catalogue, methods
from pujax.training.evaluation import model_selection
from tests import method_pages

PAGES = {path.stem: path.read_text() for path in sorted(method_pages.FOLDER.glob("*.md"))}
ENTRIES = {entry.name: entry for entry in catalogue.methods()}
SECTIONS = ["Formula", "What it needs", "Run it", "Measured", "What can go wrong", "Fields"]
DOCS = method_pages.FOLDER.parent


def section(page, heading):
    """The text of a page below a heading, up to the next one."""
    return re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)[1]


def figures(text):
    """Numbers with decimals, each with its deviation where it has one: '93.2' or '93.2 ± 0.4'."""
    return set(re.findall(r"\d*\.\d+(?: ± \d*\.\d+)?", text.replace("+-", "±")))


def unknown_figures(page):
    """Figures in the tables below `Measured` that none of the linked pages has."""
    text = section(page, "Measured")
    links = re.findall(r"\]\(\.\./((?:results|tables)/\w+\.md)", text)
    known = set().union(*(figures((DOCS / link).read_text()) for link in links))
    known |= {figure.split(" ")[0] for figure in known}
    return sorted(figures(text) - known)


def test_every_method_has_a_page_and_every_page_a_method():
    assert set(PAGES) == {*methods.names(), method_pages.SHARED_PAGE}


def test_every_method_is_in_the_table_of_all():
    overview = (DOCS / "methods.md").read_text()
    for name in methods.names():
        assert f"(methods/{name}.md)" in overview, name


def test_the_table_of_rules_is_that_of_the_code():
    """Which rule reports an epoch, with a prior and without one."""
    table = (
        (DOCS / "methods.md").read_text().split("| methods | rule | where no prior is known |")[1]
    )
    rows = re.findall(r"^\| (.*?) \| `(\w+)` \| (.*?) \|$", table.split("\n\n")[0], re.MULTILINE)
    by_key = {name.replace("_", ""): name for name in methods.of_kind(multilabel=False)}
    by_key["nnpusb"] = by_key.pop("pusb")
    written = {}
    for names, rule, without in rows:
        for name in names.split(", "):
            key = re.sub("[^a-z0-9]", "", name.lower())
            written[by_key.pop(key, name)] = rule, rule if without == "the same" else without[1:-1]
    others = written.pop("all others")
    written |= dict.fromkeys(by_key.values(), others)
    for name, (rule, without) in written.items():
        assert methods.selection(name) == rule, name
        options = {"has_validation": True, "has_prior": False}
        without_prior = methods.selection_without_prior(name)
        found = model_selection.resolved("auto", rule, without_prior=without_prior, **options)
        assert found == without, name


@pytest.mark.parametrize("name", PAGES)
def test_the_fields_of_a_page_are_those_of_the_code(name):
    start, end = method_pages.section(PAGES[name])
    hint = "python -m tests.method_pages writes them, and what a field does goes into its last cell"
    assert PAGES[name][start:end].strip() == method_pages.written(name, PAGES[name]).strip(), hint
    for field, (_, text) in method_pages.rows(PAGES[name]).items():
        assert text.strip(), f"{name}: what does {field} do?"


@pytest.mark.parametrize("name", methods.names())
def test_a_page_says_what_a_user_asks(name):
    page = PAGES[name]
    assert re.findall(r"^## (.*)$", page, re.MULTILINE) == SECTIONS
    assert section(page, "Formula").count("$$") >= 2
    needs = dict(re.findall(r"^- \*\*(.*?):\*\* (.*)\.$", section(page, SECTIONS[1]), re.MULTILINE))
    assert list(needs)[:2] == ["Class prior", "Known negatives"]
    if ENTRIES[name].needs_negatives or ENTRIES[name].is_oracle:
        assert needs["Known negatives"].startswith("yes")
    calibration = method_pages.configuration(name).get("calibration")
    assert (calibration == "auto") == needs["Data settings"].endswith("calibrated for each"), needs
    assert (calibration == "unlabeled") == ("that of U unless `cal" in needs["Data settings"]), (
        needs
    )
    command = section(page, SECTIONS[2])
    named = f"method={name}" in command or f"--config={name.removesuffix('_voc')}" in command
    assert named or name in ("p3mix_e", "p3mix_c"), command


@pytest.mark.parametrize("name", methods.names())
def test_the_figures_of_a_page_are_in_the_results_it_links_to(name):
    assert unknown_figures(PAGES[name]) == []


def test_a_wrong_page_is_found():
    page = PAGES["nnpu"]
    mean, other = re.findall(r"\| (\d+\.\d+ ± \d+\.\d+) \| 3 \|", page)[:2]
    assert unknown_figures(page.replace(mean, "12.34 ± 0.56")) == ["12.34 ± 0.56"]
    # A mean and a deviation that both are in the page of results, but not together.
    mixed = f"{mean.split(' ± ')[0]} ± {other.split(' ± ')[1]}"
    assert unknown_figures(page.replace(mean, mixed)) == [mixed]
    wrong = page.replace("| `gamma` | `1.0` |", "| `gamma` | `2.0` |")
    assert method_pages.written("nnpu", wrong) == method_pages.written("nnpu", page)
    assert wrong != page
    gone = method_pages.written("nnpu", page.replace("| `gamma` |", "| `gama` |"))
    assert method_pages.rows(method_pages.HEADING + gone)["gamma"] == ("1.0", "")
