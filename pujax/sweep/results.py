"""The files that a sweep leaves: `results.json`, `results.csv`, `table.md` and the summary."""

import csv
import hashlib
import io
import json
import os
from collections.abc import Sequence
from typing import Any

import ml_collections

from pujax import reading, report
from pujax.files import read_json, replace_text, write_json
from pujax.sweep import plan as plan_lib
from pujax.sweep import resume, summary
from pujax.sweep.cell_runner import Place
from pujax.sweep.plan import Cell, Plan
from pujax.training import config as config_lib
from pujax.training import experiment

_DOCUMENT = "results.json"
_SUMMARY = "summary"
_FILES = (_DOCUMENT, "results.csv", "table.md", f"{_SUMMARY}.csv", f"{_SUMMARY}.md")


def refuse_foreign(workdir: str) -> None:
    """Raises a ValueError if a folder has files of the names that a sweep writes, but not from one.

    A sweep writes `results.json` first, and all of them again after every cell.
    """
    found = [name for name in _FILES if os.path.lexists(os.path.join(workdir, name))]
    path = os.path.join(workdir, _DOCUMENT)
    own = os.path.isfile(path) and reading.is_json_object(path, {"title", "cells", "records"})
    if found and not own:
        raise ValueError(
            f"--workdir={workdir} holds {', '.join(found)}, but no results.json of a sweep, and a "
            "sweep would write over that; accepted: another folder"
        )


def outside(plan: Plan, workdir: str) -> str:
    """What to say of results that the tables will no longer have; '' if there are none.

    Args:
      plan: of this call, which has other cells or seeds than an earlier one.
      workdir: the folder of both.

    Raises:
      ValueError: if `results.json` is not what a sweep wrote.
    """
    path = os.path.join(workdir, _DOCUMENT)
    if not os.path.isfile(path):
        return ""
    kept = {(cell.row, cell.column, seed) for cell in plan.cells for seed in plan.seeds}
    records = read_json(path).get("records")
    if not isinstance(records, list) or not all(map(summary.names_a_seed, records)):
        raise ValueError(
            f"{path} is damaged (its records are not those of a sweep); accepted: the file as "
            "written"
        )
    found = [tuple(map(record.get, ("row", "column", "seed"))) for record in records]
    lost = sum(1 for record in found if record not in kept)
    if not lost:
        return ""
    return (
        f"{lost} of the {len(found)} results in {path} are of cells or seeds that this call does "
        "not have: the tables leave them out, their folders stay, and a call that has all of them "
        "writes all again"
    )


def write(
    plan: Plan, resolved: Sequence[Sequence[ml_collections.FrozenConfigDict]], place: Place
) -> str:
    """Writes the results of all finished seeds of all cells, whoever trained them.

    Args:
      plan: the cells.
      resolved: their configurations, one per seed.
      place: of the sweep.

    Returns:
      The table.

    Raises:
      ValueError: if a finished seed was trained with another configuration.
    """
    workdir, entries, records = place.workdir, [], []
    for cell, configs in zip(plan.cells, resolved, strict=True):
        summaries = []
        for config in configs:
            finished = place.summary(cell, config.seed)
            if finished is not None:
                # A process with other settings may have trained it since the folder was checked.
                folder = resume.seed_folder(place.folder(cell), config.seed)
                experiment.refuse_other_run(
                    folder, config, chooses_later=plan_lib.chooses_epochs(plan)
                )
                summaries.append(finished)
                records.append(_record(cell, config, finished))
        entries.append(
            {
                "row": cell.row,
                "column": cell.column,
                "published": cell.published,
                "note": cell.note,
                "summaries": summaries,
                "error": place.error(cell, plan.seeds),
                "one_split": all(config.data.get("split_seed", -1) >= 0 for config in configs),
                "decide": cell.config.run.decide,
            }
        )
    shown: dict[str, Any] = {
        "rules": plan.rules,
        "metric": plan.metric,
        "reference": plan.reference,
        "also": plan.also,
        "published_rule": plan.published_rule,
        "costs": plan.costs,
    }
    header = {"title": plan.title, "seeds": plan.seeds, **shown}
    listed = [{k: v for k, v in entry.items() if k != "summaries"} for entry in entries]
    os.makedirs(workdir, exist_ok=True)
    document = header | {"cells": listed, "records": records}
    write_json(os.path.join(workdir, _DOCUMENT), document)
    replace_text(os.path.join(workdir, "results.csv"), _csv(records))
    table = report.render(plan.title, entries, num_seeds=len(plan.seeds), **shown)
    replace_text(os.path.join(workdir, "table.md"), table)
    summary.write(document, os.path.join(workdir, _SUMMARY))
    return table


def _record(cell: Cell, config: ml_collections.FrozenConfigDict, finished: Any) -> dict[str, Any]:
    """The record of one seed of one cell."""
    identity = config_lib.fingerprint(config)
    digest = hashlib.blake2b(json.dumps(identity, sort_keys=True).encode(), digest_size=8)
    kept = (
        "oracle",
        "dataset",
        "num_epochs",
        "setting",
        "counts",
        "prior",
        "selection",
        "train",
        "estimates",
        "warnings",
        "predicts_one_class",
        "one_class",
        "undone_steps",
        "finished_at",
        "seconds",
        "examples_per_second",
        "peak_memory_bytes",
        "versions",
        "device",
    )
    return {
        "row": cell.row,
        "column": cell.column,
        "seed": config.seed,
        "config_digest": digest.hexdigest(),
        "metrics": report.by_rule(finished),
        **{key: finished.get(key) for key in kept},
        **{key: finished[key] for key in ("held_out", "held_out_prior") if key in finished},
        "trained_together": finished.get("trained_together", 1),
        "config": identity,
    }


def _csv(records: list[dict[str, Any]]) -> str:
    """One line per cell, seed and rule, with the metrics of the data: own rows have others."""
    found = {key for record in records for values in record["metrics"].values() for key in values}
    has_test = not records or bool(found.intersection(report.TEST_METRICS))
    metrics = (*report.TEST_METRICS * has_test, *(x for x in report.HELD_OUT if x in found))
    columns = ("row", "column", "seed", "rule", "is_oracle", "epoch", *metrics)
    run_columns = ("seconds", "trained_together", "config_digest", "device")
    text = io.StringIO()
    table = csv.DictWriter(text, [*columns, *run_columns], restval="", lineterminator="\n")
    table.writeheader()
    for record in records:
        for rule, values in record["metrics"].items():
            line = {key: record[key] for key in ("row", "column", "seed", *run_columns)}
            line |= {key: values.get(key) for key in columns if key in values}
            table.writerow(line | {"rule": rule})
    return text.getvalue()
