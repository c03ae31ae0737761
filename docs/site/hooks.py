"""What the site needs beyond mkdocs: pages of the repository's top folder, links out, formulas.

Formulas become MathML when the site is built, so that a browser shows them without a script and
without a network.
"""

import html
import pathlib
import posixpath
import re

from latex2mathml import converter
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

_ROOT = pathlib.Path(__file__).resolve().parents[2]
# Pages that live beside docs/, and what they are called on the site.
_TOP = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "CHANGELOG.md": "changelog.md",
}
_LINK = re.compile(r"(\]\()([^)\s]+)(\))")
_CODE = re.compile(r"(^```.*?^```$|`[^`\n]*`)", re.MULTILINE | re.DOTALL)
_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\([(\[])(.*?)\\[)\]]</\1>', re.DOTALL)
_FILES_OF = {"tables": "tables/index.md"}
# What pages link to and browsers show as it is.
_SHOWN = (
    "CITATION.cff",
    "examples/slurm.sbatch",
    *(str(path.relative_to(_ROOT)) for path in sorted((_ROOT / "examples").glob("*.py"))),
)


def on_config(config):
    """Lists the pages of a folder where the navigation says `FOLDER/*`."""
    config.nav = [_listed(entry) for entry in config.nav]
    return config


def _listed(entry):
    if isinstance(entry, dict):
        ((title, inside),) = entry.items()
        if isinstance(inside, list):
            # Pages that are named keep their place.
            return {title: list(dict.fromkeys(x for part in inside for x in _pages(part)))}
    return entry


def _pages(part):
    if not (isinstance(part, str) and part.endswith("/*")):
        return [part]
    folder = part.removesuffix("*")
    return [folder + path.name for path in sorted((_ROOT / "docs" / folder).glob("*.md"))]


def on_files(files, config):
    """Adds the pages of the top folder, and a list of the tables, to those of docs/."""
    for name, page in _TOP.items():
        text = (_ROOT / name).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=text))
    tables = sorted(x.stem for x in (_ROOT / "docs" / "tables").glob("*.md"))
    rows = "".join(f"- [{x}]({x}.md) ([CSV]({x}.csv))\n" for x in tables)
    files.append(File.generated(config, "tables/index.md", content=f"# Tables\n\n{rows}"))
    for name in _SHOWN:
        files.append(File.generated(config, name, abs_src_path=str(_ROOT / name)))
    return files


def on_page_markdown(markdown, page, config, files):
    """Turns links between files of the repository into links between pages of the site."""
    # A mark of this project's own, which says to its tests that a block is a part of a program.
    markdown = re.sub("^```python sketch$", "```python", markdown, flags=re.MULTILINE)
    return "".join(
        part if i % 2 else _LINK.sub(lambda x: _relinked(x, page.file.src_uri), part)
        for i, part in enumerate(_CODE.split(markdown))
    )


def _relinked(match, page):
    before, link, after = match.groups()
    target, sharp, anchor = link.partition("#")
    if not target or re.match(r"[a-z]+:", target):
        return match.group(0)
    place = {v: k for k, v in _TOP.items()}.get(page, f"docs/{page}")
    inside = posixpath.normpath(posixpath.join(posixpath.dirname(place), target))
    if inside in _TOP:
        there = _TOP[inside]
    elif inside in _SHOWN:
        there = inside
    elif inside.startswith("docs/"):
        there = _FILES_OF.get(inside.removeprefix("docs/"), inside.removeprefix("docs/"))
    else:
        return match.group(0)
    link = posixpath.relpath(there, posixpath.dirname(page) or ".")
    return f"{before}{link}{sharp}{anchor}{after}"


def on_page_content(content, page, config, files):
    """Formulas of a page as MathML."""
    return _FORMULA.sub(_mathml, content)


def _mathml(match):
    """A formula as MathML.

    Raises:
      PluginError: for a command that the converter does not know, which it would print as it is.
    """
    kind, _, formula = match.groups()
    formula = html.unescape(formula).strip()
    converted = converter.convert(formula, display="block" if kind == "div" else "inline")
    if "\\" in converted:
        raise PluginError(f"formula {formula!r} has a command that latex2mathml does not know")
    return converted
