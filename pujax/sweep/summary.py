"""The summary of a sweep as CSV and Markdown: one line per cell and rule, or all rules in one."""

import csv
import io
import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

from pujax import report
from pujax.files import replace_text

COLUMNS = ("row", "column", "rule", "mean", "std", "seeds", "published", "difference")
CSV_COLUMNS = (*COLUMNS, "published_std", "metric", "oracle", "criterion")
NOT_MEASURED = "not measured"
_TRAINING = "true training labels"

# How header lines begin by which a file is known to be a summary: of the CSV, where older ones end
# before the criterion, and of the table on a page.
_CSV_HEADER = ",".join(CSV_COLUMNS[:-1])
_HEADERS = (report.table_line(COLUMNS), report.table_line(report.FIRST_COLUMNS))


def names_a_seed(entry: Any) -> bool:
    """Whether an entry of the `records` of `results.json` says of which seed and cell it is."""
    return (
        isinstance(entry, dict)
        and {"row", "column", "seed"} <= entry.keys()
        and isinstance(entry["row"], str)
        and isinstance(entry["column"], str)
        and type(entry["seed"]) is int
    )


def is_record(entry: Any) -> bool:
    """Whether such an entry says what the seed gave."""
    return (
        names_a_seed(entry)
        and {"metrics", "oracle"} <= entry.keys()
        and isinstance(entry["metrics"], dict)
        and all(map(_are_numbers, entry["metrics"].values()))
    )


def _are_numbers(values: Any) -> bool:
    """Whether these are metrics by name, of which any may be unknown."""
    if not isinstance(values, dict):
        return False
    shown = [values.get(name) for name in (*report.METRICS, "value")]
    return all(x is None or isinstance(x, (int, float)) for x in shown)


def lines(results: Mapping[str, Any]) -> list[dict[str, Any]]:
    """One line per cell, rule and metric, cells without a finished seed included.

    Args:
      results: what `results.json` holds.

    Returns:
      Dicts with the keys `CSV_COLUMNS`. `mean`, `std` (n - 1), `published`, `published_std` and
      `difference` (of the means) are in percent where the metric is, rounded to six decimals, and
      None where unknown; `seeds` counts the values behind the mean; `oracle` says which true labels
      training or the rule saw, and is '' if none. `criterion` is the mean of what the rule compared
      epochs by, at the epoch that it chose: over rows that hold out the same examples it compares
      settings without a test set. Published figures stand on the lines of the first metric, and of
      `published_rule` where there is one.
    """
    shown = (results["metric"], *results.get("also", ()))
    found = []
    for cell in results["cells"]:
        records = records_of(cell, results)
        for rule, metric in itertools.product(results["rules"], shown):
            scale = 100 if metric in report.PERCENT else 1
            is_published = cell["published"] is not None and metric == shown[0]
            is_published &= rule == (results.get("published_rule") or rule)
            published, published_std = cell["published"] if is_published else (None, None)
            values = [record["metrics"].get(rule, {}).get(metric) for record in records]
            spread = report.spread([None if x is None else scale * x for x in values])
            compared = report.spread([x["metrics"].get(rule, {}).get("value") for x in records])
            mean = spread.mean if spread else None
            oracles = [_TRAINING] * any(record["oracle"] for record in records)
            oracles += filter(None, [report.oracle_of(rule, records)])
            numbers = {
                "mean": mean,
                "std": spread.std if spread else None,
                "published": published,
                "difference": None if mean is None or published is None else mean - published,
                "published_std": published_std,
                "criterion": compared.mean if compared else None,
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
    if results.get("also"):  # a line for every metric would hide the table
        return _wide_page(results, name, note)
    digits = 2 if results["metric"] in report.PERCENT else 3
    seeds = ", ".join(map(str, results["seeds"]))
    page = [
        f"# {results['title']}",
        "",
        *[note, ""] * bool(note),
        f"{report.describe(results['metric'])} at the epoch that each rule reports: mean and "
        f"standard deviation (n - 1) over the seeds {seeds}; the difference is that from the "
        f"published mean. [{name}.csv]({name}.csv) has the same with more decimals.",
        "",
        _made_with(results["records"]),
        "",
        _HEADERS[0],
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


def is_csv(text: str) -> bool:
    """Whether it is a file that `to_csv` wrote."""
    return text.startswith(_CSV_HEADER)


def is_page(text: str, *, name: str) -> bool:
    """Whether it is laid out as `to_markdown` does: a heading, the link to its CSV, one table.

    Args:
      text: of a file.
      name: of the CSV file beside it, without its ending.
    """
    lines = text.splitlines()
    headers = [line for line, below in itertools.pairwise(lines) if below.startswith("| ---")]
    has_link = f"[{name}.csv]({name}.csv)" in text
    is_only_table = len(headers) == 1 and headers[0].startswith(_HEADERS)
    return text.startswith("# ") and has_link and is_only_table


def _wide_page(results: Mapping[str, Any], name: str, note: str) -> str:
    """One line per cell, with rules and metrics side by side."""
    cells = [
        {"note": "", "error": "", **cell, "summaries": records_of(cell, results)}
        for cell in results["cells"]
    ]
    options = ("rules", "metric", "reference", "also", "published_rule", "costs")
    page = report.render(
        results["title"],
        cells,
        num_seeds=len(results["seeds"]),
        **{name: results[name] for name in options if name in results},
    )
    heading, _, rest = page.partition("\n\n")
    seeds = ", ".join(map(str, results["seeds"]))
    linked = f"Seeds {seeds}. [{name}.csv]({name}.csv) has the same with more decimals."
    about = [note] * bool(note) + [linked, _made_with(results["records"])]
    return "\n\n".join([heading, *about, rest])


def records_of(cell: Mapping[str, Any], results: Mapping[str, Any]) -> list[Any]:
    """Of the seeds of a cell that are finished."""
    place = (cell["row"], cell["column"])
    return [x for x in results["records"] if (x["row"], x["column"]) == place]


def _line(entry: Mapping[str, Any], digits: int, num_seeds: int) -> str:
    def number(key: str, sign: str = "") -> str:
        return "-" if entry[key] is None else f"{entry[key]:{sign}.{digits}f}"

    published = (entry["published"], entry["published_std"])
    trains_on_truth = " (true labels)" if _TRAINING in entry["oracle"] else ""
    saw = entry["oracle"].removeprefix(_TRAINING).removeprefix("; ")
    return report.table_line(
        [
            entry["row"] + trains_on_truth,
            entry["column"],
            entry["rule"] + (f" (oracle: {saw})" if saw else ""),
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
