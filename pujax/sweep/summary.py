"""The summary of a sweep, one line per cell and rule, as CSV and Markdown.

    python -m pujax.sweep.summary DIR --out=docs/tables/NAME

Reads nothing but `results.json` in the folder of a sweep, finished or not, so that neither the data
nor the plan have to be there. Every sweep leaves the same two files in its own folder.
"""

import csv
import io
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from absl import flags

from pujax import checks, console, report
from pujax.files import read_json, replace_text

COLUMNS = ("row", "column", "rule", "mean", "std", "seeds", "published", "difference")
CSV_COLUMNS = (*COLUMNS, "published_std", "metric", "oracle")
NOT_MEASURED = "not measured"

_USAGE = """usage: python -m pujax.sweep.summary DIR --out=PATH [--note=TEXT]
  DIR          the folder of a sweep, finished or not
  --out=PATH   writes PATH.csv and PATH.md, for example docs/tables/gradpu_table1
  --note=TEXT  a line for below the heading, such as the command and the machine
  --help       shows this text"""

# A file with neither of these lines was not written here, and is not replaced.
_HEADER = report.table_line(COLUMNS)
_CSV_HEADER = ",".join(CSV_COLUMNS)
_KEYS = {"title": str, "seeds": list, "rules": list, "metric": str, "cells": list, "records": list}


def lines(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One line per cell and rule, cells without a finished seed included.

    Args:
      results: what `results.json` holds.

    Returns:
      Dicts with the keys `CSV_COLUMNS`. `mean`, `std` (n - 1), `published`, `published_std` and
      `difference` (of the means) are in percent where the metric is, rounded to six decimals, and
      None where unknown; `seeds` counts the values behind the mean; `oracle` says which true labels
      training or the rule saw, and is '' if none.
    """
    metric = results["metric"]
    scale = 100 if metric in report.PERCENT else 1
    found = []
    for cell in results["cells"]:
        place = (cell["row"], cell["column"])
        records = [x for x in results["records"] if (x["row"], x["column"]) == place]
        published, published_std = cell["published"] or (None, None)
        for rule in results["rules"]:
            values = [record["metrics"].get(rule, {}).get(metric) for record in records]
            spread = report.spread([None if x is None else scale * x for x in values])
            mean = spread.mean if spread else None
            oracles = ["true training labels"] * any(record["oracle"] for record in records)
            oracles += [report.ORACLES[rule]] if rule in report.ORACLES else []
            numbers = {
                "mean": mean,
                "std": spread.std if spread else None,
                "published": published,
                "difference": None if mean is None or published is None else mean - published,
                "published_std": published_std,
            }
            found.append(
                {
                    "row": cell["row"],
                    "column": cell["column"],
                    "rule": rule,
                    **{k: None if x is None else round(x, 6) for k, x in numbers.items()},
                    "seeds": spread.count if spread else 0,
                    "metric": metric,
                    "oracle": "; ".join(oracles),
                }
            )
    return found


def to_csv(summary: Sequence[Mapping[str, Any]]) -> str:
    """The lines as CSV; an unknown number is an empty cell."""
    text = io.StringIO()
    table = csv.DictWriter(text, CSV_COLUMNS, lineterminator="\n")
    table.writeheader()
    table.writerows(summary)
    return text.getvalue()


def to_markdown(
    results: Mapping[str, Any], summary: Sequence[Mapping[str, Any]], *, name: str, note: str = ""
) -> str:
    """The lines as a Markdown page.

    Args:
      results: what `results.json` holds.
      summary: its `lines`.
      name: of the CSV file beside the page, without its ending.
      note: a line for below the heading; '' for none.
    """
    digits = 2 if results["metric"] in report.PERCENT else 3
    seeds = ", ".join(map(str, results["seeds"]))
    page = [
        f"# {results['title']}",
        "",
        *[note, ""] * bool(note),
        f"{report.describe(results['metric'])} at the epoch that each rule reports: mean and "
        f"standard deviation (n - 1) over the seeds {seeds}; the difference is that from the "
        f"published mean. [{name}.csv]({name}.csv) has the same numbers, not rounded.",
        "",
        _made_with(results["records"]),
        "",
        _HEADER,
        report.table_line(["---"] * len(COLUMNS)),
        *(_line(entry, digits, len(results["seeds"])) for entry in summary),
        "",
    ]
    notes = [
        f"- {cell['row']} on {cell['column']}{what}: {cell[key]}"
        for key, what in (("note", ""), ("error", " stopped"))
        for cell in results["cells"]
        if cell.get(key)
    ]
    return "\n".join([*page, *notes, *[""] * bool(notes)])


def _line(entry: Mapping[str, Any], digits: int, num_seeds: int) -> str:
    def number(key: str, sign: str = "") -> str:
        return "-" if entry[key] is None else f"{entry[key]:{sign}.{digits}f}"

    published = (entry["published"], entry["published_std"])
    trains_on_truth = " (true labels)" if "true training labels" in entry["oracle"] else ""
    return report.table_line(
        [
            entry["row"] + trains_on_truth,
            entry["column"],
            report.rule_label(entry["rule"]),
            number("mean") if entry["seeds"] else NOT_MEASURED,
            number("std"),
            f"{entry['seeds']} of {num_seeds}",
            report.published_figure(None if published[0] is None else published),
            number("difference", "+"),
        ]
    )


def _made_with(records: Sequence[Mapping[str, Any]]) -> str:
    """Devices, versions and days of the runs; what a run does not state is unknown."""
    if not records:
        return "No run has finished."

    def known(values: set) -> str:
        return ", ".join(sorted(str(x) for x in values if x is not None)) or "unknown"

    devices = known({record.get("device") for record in records})
    versions = [
        f"{name} {known({(record.get('versions') or {}).get(name) for record in records})}"
        for name in ("pujax", "jax", "python")
    ]
    days = sorted({(record.get("finished_at") or "")[:10] for record in records} - {""})
    when = " to ".join([days[0], days[-1]][: len(days)]) if days else "on unknown days"
    return f"{len(records)} runs on {devices}; {', '.join(versions)}; ended {when}."


def write(results: Mapping[str, Any], path: str | os.PathLike, *, note: str = "") -> None:
    """Writes the summary as `PATH.csv` and `PATH.md`, each atomically.

    Args:
      results: what `results.json` holds.
      path: of both files, without an ending, in a folder that exists.
      note: as in `to_markdown`.
    """
    path = os.fspath(path)
    summary = lines(results)
    page = to_markdown(results, summary, name=os.path.basename(path), note=note)
    replace_text(f"{path}.csv", to_csv(summary))
    replace_text(f"{path}.md", page)


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
    for key, is_whole in (("cells", _is_cell), ("records", _is_record)):
        for entry in results[key]:
            checks.require(is_whole(entry), f"an entry of {key} of {path}", entry, accepted)
    checks.one_of(f"metric of {path}", results["metric"], report.METRICS)
    for rule in results["rules"]:
        checks.one_of(f"rules of {path}", rule, report.RULES)
    return results


def _is_cell(entry: Any) -> bool:
    if not isinstance(entry, dict) or not {"row", "column", "published"} <= entry.keys():
        return False
    published = entry["published"]
    return published is None or (isinstance(published, list) and len(published) == 2)


def _is_record(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and {"row", "column", "metrics", "oracle"} <= entry.keys()
        and isinstance(entry["metrics"], dict)
    )


def _check_target(path: str) -> None:
    """Raises a ValueError if the two files cannot be written, or would replace others."""
    folder, name = os.path.split(path)
    accepted = "a path without an ending in a folder that exists"
    is_place = bool(name) and os.path.isdir(folder or ".") and not os.path.isdir(path)
    checks.require(is_place and not name.endswith((".csv", ".md")), "--out", path, accepted)
    for file, header in ((f"{path}.csv", _CSV_HEADER), (f"{path}.md", _HEADER)):
        if os.path.lexists(file) and header not in _text(file).splitlines():
            raise ValueError(
                f"--out is {path!r}, but {file} is no summary of a sweep; accepted: a path whose "
                "files are missing or such summaries"
            )


def _text(path: str) -> str:
    if not os.path.isfile(path):
        return ""
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    console.show_own_messages()
    values = flags.FlagValues()
    for name in ("out", "note"):
        flags.DEFINE_string(name, "", name, flag_values=values)
    flags.DEFINE_bool("help", False, "help", short_name="h", flag_values=values)
    try:
        rest = values(argv)[1:]
        if values.help:
            console.message(_USAGE)
            return 0
        checks.require(len(rest) == 1, "DIR", " ".join(rest), "one folder of a sweep")
        _check_target(values.out)
        results = read(rest[0])
        write(results, values.out, note=values.note)
        console.message(f"Written: {values.out}.csv and {values.out}.md")
    except (ValueError, OSError, flags.Error) as error:
        sys.stderr.write(f"{' '.join(str(error).split())}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
