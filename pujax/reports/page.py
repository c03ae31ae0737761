"""Builds the page of one or several runs from its sections, and writes it."""

import functools
import importlib.resources
import os
import re
import shlex
from collections.abc import Sequence
from typing import NamedTuple

import jinja2

import pujax
from pujax import files
from pujax.console import plural
from pujax.reports import (
    calibration,
    comparison,
    examples,
    ranking,
    run_folder,
    score_figures,
    shares,
    tables,
    training,
    verdict,
)
from pujax.reports.parts import Section
from pujax.reports.run_folder import Run
from pujax.reports.verdict import Verdict

PAGE = "report.html"
MARK = '<meta name="generator" content="pujax report">'
"""What tells a page of pujax from a file that somebody else wrote."""
_LOOKED_AT = 4096
_MOST_IN_FULL = 4
"""Runs of a page that are shown with all their sections."""
_LONG = 14
"""Rows from which on a table is folded."""
_SYMBOLS = {
    verdict.GOOD: "✓",
    verdict.CARE: "!",
    verdict.BAD: "✕",
    verdict.UNJUDGED: "?",
    verdict.UNFINISHED: "…",
}


class Page(NamedTuple):
    """A page and what it says first.

    Attributes:
      html: text of the file.
      verdict: at its top.
    """

    html: str
    verdict: Verdict


class _Shown(NamedTuple):
    """A run on the page, `quoted` its folder; without sections where there are too many runs."""

    name: str
    quoted: str
    prefix: str
    verdict: Verdict
    sections: tuple[Section, ...]


def build(folders: Sequence[str], *, with_examples: bool = True) -> Page:
    """The page of one or several runs.

    Args:
      folders: of runs, finished or not, or of sweeps, which stand for all their runs. Differences
        are from the runs that are configured as the first one.
      with_examples: whether rows and pictures of the data are shown; scores are either way.

    Returns:
      The page, which is not written yet.

    Raises:
      ValueError: naming the folder or the file that cannot be read.
    """
    runs = run_folder.find(folders)
    if len(runs) == 1:
        shown, compared = _alone(runs[0], with_examples)
        top, title = shown.verdict, f"{runs[0].method} on {runs[0].dataset}, seed {runs[0].seed}"
        return Page(_render(title, f"Run {shown.name}", top, [shown], compared), top)
    compared, pairings = comparison.section(runs)
    alike = {run.folder for run in comparison.groups(runs)[0].runs}
    shown_runs, verdicts = [], []
    advised = verdict.to_take(pairings)
    for i, run in enumerate(runs):
        differences = advised if run.folder in alike else ()
        has_examples = with_examples and i < _MOST_IN_FULL
        one = verdict.of(run, differences, with_examples=has_examples)
        verdicts.append(one)
        prefix = f"run-{i + 1}"
        parts: tuple[Section, ...] = ()
        if i < _MOST_IN_FULL:
            parts = _sections(run, f"{prefix}-", with_examples)
        shown_runs.append(_Shown(run.name, shlex.quote(run.folder), prefix, one, parts))
    top = verdict.of_several(runs, verdicts, pairings)
    title = f"Comparison of {plural(len(runs), 'run')}"
    about = ", ".join(group.name for group in comparison.groups(runs))
    return Page(_render(title, about, top, shown_runs, compared), top)


def write(path: str, page: Page) -> None:
    """Writes a page atomically, in place of an earlier page of pujax and of nothing else.

    Args:
      path: of the file; its folder is made if missing.
      page: of `build`.

    Raises:
      ValueError: naming the file, if it is not one of pujax, or cannot be written.
    """
    check_writable(path)
    files.make_folder_of(path)
    files.replace_text(path, page.html)


def check_writable(path: str) -> None:
    """Raises a ValueError unless `write` may write there."""
    files.check_writable("--out", path)
    if os.path.exists(path):
        with open(path, encoding="utf-8", errors="replace") as file:
            if MARK not in file.read(_LOOKED_AT):
                raise ValueError(
                    f"--out is {path!r}, a file that pujax report did not make; accepted: the name "
                    "of a new file, or of an earlier report"
                )


def _alone(run: Run, with_examples: bool) -> tuple[_Shown, Section | None]:
    """The only run of a page, beside the methods that it trained for comparison."""
    others = run_folder.compared(run)
    compared: Section | None = None
    pairings: list[comparison.Pairing] = []
    if others:
        compared, pairings = comparison.section([run, *others])
    one = verdict.of(run, verdict.to_take(pairings), with_examples=with_examples)
    parts = _sections(run, "", with_examples)
    if compared is not None:
        parts = (*parts[:2], compared, *parts[2:])
    return _Shown(run.name, shlex.quote(run.folder), "", one, parts), compared


def _sections(run: Run, prefix: str, with_examples: bool) -> tuple[Section, ...]:
    """All sections of a run but its comparison; `prefix` begins the ids of its figures."""
    drawn = (
        shares.flagged,
        ranking.ranking,
        calibration.calibration,
        score_figures.histogram,
        training.curves,
        score_figures.embedding,
    )
    shown = Section("examples", "Examples", (examples.OFF,))
    if with_examples:
        shown = examples.section(run)
    figures = [build_section(run, f"{prefix}figure") for build_section in drawn]
    return (
        tables.quality(run),
        figures[0],
        shown,
        *figures[1:],
        tables.counts(run),
        tables.settings(run),
    )


def _is_beside(one: Section) -> bool:
    """Whether the only table of a section stands beside its only figure."""
    return len(one.figures) == len(one.tables) == 1


@functools.cache
def _template() -> tuple[jinja2.Template, str]:
    """The template, which escapes whatever comes from data, and the style sheet."""
    place = importlib.resources.files("pujax.reports")
    page, css = (place.joinpath(name).read_text("utf-8") for name in ("page.html", "page.css"))
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["tied"] = _tied
    return environment.from_string(page), css


def _tied(cell: str) -> str:
    """A cell whose number and interval stay on one line."""
    return re.sub(r"^\S+( %)? \[[^]]+\]$", lambda found: found[0].replace(" ", "\xa0"), cell)


def _render(
    title: str, about: str, top: Verdict, runs: Sequence[_Shown], compared: Section | None
) -> str:
    template, css = _template()
    return template.render(
        title=title,
        about=about,
        top=top,
        runs=runs,
        comparison=compared,
        css=css,
        symbols=_SYMBOLS,
        version=pujax.__version__,
        long=_LONG,
        is_beside=_is_beside,
    )
