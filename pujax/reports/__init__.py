"""`pujax report`: one HTML page of one or several runs, which opens without a network.

The Markdown table of several seeds is in `pujax/report.py`.

A page is built from the files in the folders of runs; nothing is trained. `docs/reports.md` says
what is on it and by which rules its verdict is found. What it takes loads for seconds, so it is
imported when it is used.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pujax.reports.page import Page, Verdict, build, write

__all__ = ["Page", "Verdict", "build", "write"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from pujax.reports import page

        return getattr(page, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
