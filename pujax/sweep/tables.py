"""Copies the summary of a sweep to where tables are kept, in the docs for example.

    python -m pujax.sweep.tables DIR --out=docs/tables/NAME

Reads nothing but `results.json` in the folder of a sweep, finished or not, so that neither the data
nor the plan have to be there.
"""

import collections
import os
import sys
from typing import Any

from absl import flags

from pujax import checks, console, report
from pujax.files import read_json
from pujax.sweep import plan as plan_lib
from pujax.sweep import summary

_USAGE = """usage: python -m pujax.sweep.tables DIR --out=PATH [--note=TEXT]
  DIR          the folder of a sweep, finished or not
  --out=PATH   writes PATH.csv and PATH.md, for example docs/tables/gradpu_table1
  --note=TEXT  a line for below the heading, such as the command and the machine
  --help       shows this text"""

_KEYS = {"title": str, "seeds": list, "rules": list, "metric": str, "cells": list, "records": list}

_OPTIONS: dict[str, Any] = {"reference": "", "also": [], "published_rule": "", "costs": False}


def read(folder: str) -> dict[str, Any]:
    """The results of a sweep.

    Raises:
      ValueError: if the folder has no `results.json`, or one that no sweep has written.
    """
    path = os.path.join(folder, "results.json")
    if not os.path.isfile(path):
        raise ValueError(f"DIR is {folder!r}, without results.json; accepted: a sweep's folder")
    results = read_json(path)
    accepted = "the file as a sweep writes it"
    for key, kind in _KEYS.items():
        value = results.get(key)
        checks.require(isinstance(value, kind), f"{key} of {path}", value, accepted)
    for key, is_whole in (("cells", _is_cell), ("records", summary.is_record)):
        for entry in results[key]:
            checks.require(is_whole(entry), f"an entry of {key} of {path}", entry, accepted)
    counts = collections.Counter((x["row"], x["column"], x["seed"]) for x in results["records"])
    for name, count in counts.items():
        checks.require(count == 1, f"records of {path}", f"{count} of {name}", "one of each seed")
    for key, unset in _OPTIONS.items():
        value = results.setdefault(key, unset)  # sweeps of older versions have none
        checks.require(type(value) is type(unset), f"{key} of {path}", value, accepted)
    for metric in (results["metric"], *results["also"]):
        checks.one_of(f"metric of {path}", metric, report.METRICS)
    checks.require(len(results["rules"]) > 0, f"rules of {path}", [], accepted)
    for rule in results["rules"]:
        checks.one_of(f"rules of {path}", rule, report.RULES)
    if results["published_rule"]:
        checks.one_of(f"published_rule of {path}", results["published_rule"], results["rules"])
    return results


def _is_cell(entry: Any) -> bool:
    keys = {"row", "column", "published"}
    is_whole = isinstance(entry, dict) and keys <= entry.keys()
    return is_whole and plan_lib.is_published(entry["published"])


def _check_target(path: str) -> None:
    """Raises a ValueError if the two files cannot be written, or would replace others."""
    folder, name = os.path.split(path)
    accepted = "a path without an ending in a folder that exists"
    is_place = bool(name) and os.path.isdir(folder or ".") and not os.path.isdir(path)
    checks.require(is_place and not name.endswith((".csv", ".md")), "--out", path, accepted)
    table, page = f"{path}.csv", f"{path}.md"
    is_own_page = summary.is_page(_text(page), name=name) and os.path.lexists(table)
    for file, is_own in ((table, summary.is_csv(_text(table))), (page, is_own_page)):
        if os.path.lexists(file) and not is_own:
            raise ValueError(
                f"--out is {path!r}, but {file} is no summary of a sweep; accepted: a path whose "
                "files are missing or such summaries, a page beside its CSV"
            )


def _text(path: str) -> str:
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    values = flags.FlagValues()
    for name in ("out", "note"):
        flags.DEFINE_string(name, "", name, flag_values=values)

    def copy(rest: list[str]) -> int:
        checks.require(len(rest) == 1, "DIR", " ".join(rest), "one folder of a sweep")
        _check_target(values.out)
        summary.write(read(rest[0]), values.out, note=values.note)
        console.message(f"Written: {values.out}.csv and {values.out}.md")
        return 0

    return console.run_command(argv, values, lambda: _USAGE, copy)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
