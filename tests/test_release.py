"""One version everywhere, and a citation that tools can read."""

import pathlib
import re
import tomllib

import yaml

import pujax

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
CITATION = yaml.safe_load((REPOSITORY / "CITATION.cff").read_text())


def test_the_version_stands_in_one_place_and_the_citation_repeats_it():
    assert re.fullmatch(r"\d+\.\d+\.\d+", pujax.__version__)
    assert str(CITATION["version"]) == pujax.__version__
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert "version" in project["project"]["dynamic"]
    assert f"## {pujax.__version__} " in (REPOSITORY / "CHANGELOG.md").read_text()


def test_the_citation_has_what_the_format_asks_and_the_five_papers():
    assert CITATION["cff-version"] == "1.2.0" and CITATION["type"] == "software"
    assert {"message", "title", "authors", "license"} <= set(CITATION)
    assert len(CITATION["references"]) == 5
    for paper in CITATION["references"]:
        assert paper["title"] and paper["authors"] and 2020 < paper["year"] < 2030
        assert paper["type"] in ("article", "conference-paper")
        assert all(set(author) == {"family-names", "given-names"} for author in paper["authors"])


def test_the_site_is_built_by_ci_and_its_tools_are_an_extra():
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    extra = project["project"]["optional-dependencies"]["docs"]
    names = {re.match(r"[\w-]+", line)[0] for line in extra}
    assert names == {"latex2mathml", "mkdocs", "mkdocs-material", "mkdocstrings"}
    assert all(re.search(r"[<>]=?", line) for line in extra)
    assert 'mkdocs" build --strict' in (REPOSITORY / ".ci" / "run").read_text()
