"""The tables of fields on the pages of the methods: `python -m tests.method_pages` writes them.

Names and defaults come from `default_config()`; what a field does is written by hand into the last
column, which is kept. A new field gets an empty cell there, which `tests/test_docs_methods.py`
refuses.
"""

import pathlib
import re

import ml_collections

from pujax import methods

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "docs" / "methods"
SHARED_PAGE = "shared_fields"
HEADING = "## Fields\n"
# Fields of one name that mean something else in a method than in the others.
_OWN = {("impulses", "head"), ("purl", "head"), ("classic", "learning_rate")}


def configuration(name: str) -> dict[str, object]:
    """The fields of a method and their defaults, in the order of its configuration."""
    section = methods.module(name).default_config()
    assert isinstance(section, ml_collections.ConfigDict)
    return {field: section[field] for field in section if field != "name"}


def shared_defaults() -> dict[str, object]:
    """The fields of the page that all methods share, with the defaults that it shows."""
    shown = {**configuration("pu_mlc"), **configuration("naive"), **configuration("lagam")}
    names = {*methods.shared_fields(), "batching", "positives_per_batch"}
    names |= {"pair_threshold", "target_momentum"}
    # What several methods learn beside their network, and how they align its representation.
    parts = ("online", "example_", "align_")
    return {x: shown[x] for x in shown if x in names or x.startswith(parts)}


def own_fields(name: str) -> dict[str, object]:
    """The fields that a method's own page explains."""
    shared = shared_defaults()
    fields = configuration(name).items()
    return {field: x for field, x in fields if field not in shared or (name, field) in _OWN}


def other_defaults(name: str) -> dict[str, object]:
    """The shared fields of a method whose default is not that of the shared page."""
    shared, own = shared_defaults(), own_fields(name)
    fields = configuration(name).items()
    return {field: x for field, x in fields if field not in own and x != shared[field]}


def section(page: str) -> tuple[int, int]:
    """Where the section of the fields begins, below its heading, and ends."""
    start = page.index(HEADING) + len(HEADING)
    end = page.find("\n## ", start)
    return start, len(page) if end < 0 else end + 1


def rows(page: str) -> dict[str, tuple[str, str]]:
    """Default and explanation of every field that a page's table has, as they are written."""
    start, end = section(page)
    found = re.findall(r"^\| `(\w+)` \| `(.*?)` \| (.*?) ?\|$", page[start:end], re.MULTILINE)
    return {field: (default, text) for field, default, text in found}


def written(name: str, page: str) -> str:
    """The section of the fields as it should be, with the explanations that the page has."""
    fields = shared_defaults() if name == SHARED_PAGE else own_fields(name)
    known = rows(page)
    lines = []
    if fields:
        lines += ["| field | default | what it does |", "|---|---|---|"]
    for field, default in fields.items():
        lines.append(f"| `{field}` | `{default!r}` | {known.get(field, ('', ''))[1]} |")
    if name != SHARED_PAGE and (other := other_defaults(name)):
        values = ", ".join(f"`{field}={default!r}`" for field, default in other.items())
        lines += [""] * bool(lines) + [
            f"[Shared fields](shared_fields.md) with another default: {values}."
        ]
    return "\n" + "\n".join(lines) + "\n\n"


def main() -> None:
    """Writes the section of every page anew."""
    for path in sorted(FOLDER.glob("*.md")):
        page = path.read_text(encoding="utf-8")
        start, end = section(page)
        text = page[:start] + written(path.stem, page) + page[end:]
        path.write_text(text.rstrip("\n") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
