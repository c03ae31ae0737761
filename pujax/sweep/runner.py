"""Trains the cells of a plan one after another and collects their results."""

import csv
import hashlib
import io
import json
import os
from typing import Any

import ml_collections

from pujax import report
from pujax.console import message
from pujax.files import replace_text, write_json
from pujax.sweep import cell_runner, resume
from pujax.sweep import dry_run as dry_run_lib
from pujax.sweep import plan as plan_lib
from pujax.sweep.plan import Cell, Plan
from pujax.training import compilation_cache, experiment, init_from, preemption, sharding
from pujax.training import config as config_lib


def run(
    plan: Plan,
    workdir: str,
    *,
    dry_run: bool = False,
    only: str = "",
    sequential: bool = False,
) -> int:
    """Trains what a plan says and is not finished yet, and writes the table.

    All configurations are resolved, and the methods of every cell's first seed built, before the
    first trains. Results are collected again after every cell, finished or not, from the folders of
    its seeds: `results.json`, `results.csv` and `table.md`.

    Args:
      plan: the cells.
      workdir: folder of the sweep; finished seeds in it are kept, unfinished ones continue as they
        were started, in their group or alone. May be '' in a dry run.
      dry_run: says what would be trained, and trains, downloads and writes nothing.
      only: trains only the cells whose name holds this text.
      sequential: trains new seeds one after another even where they could train together.

    Returns:
      How many cells were stopped by numbers that are not finite, or could not be trained. The
      reason is in `error.txt` in the folders of their seeds.

    Raises:
      SystemExit: after SIGINT or SIGTERM, once all is saved.
      ValueError: for a plan, configuration or data that is not accepted, or a folder that holds
        other results, before anything is compiled or written.
    """
    plan_lib.check(plan)
    if not workdir and not dry_run:
        raise ValueError("workdir is ''; accepted: a folder, or none in a dry run")
    resolved = [_resolve(cell, plan) for cell in plan.cells]
    chosen = {cell.folder for cell in plan_lib.only(plan, only).cells}
    if not dry_run:
        compilation_cache.enable(resolved[0][0].run.compilation_cache)
    load = cell_runner.loader(len(plan.seeds) + 1)
    place = cell_runner.Place(workdir, sharding.make_mesh(), load, sequential, {})
    lines = []
    for cell, configs in zip(plan.cells, resolved, strict=True):
        for config in configs if workdir else ():
            folder = resume.seed_folder(place.folder(cell), config.seed)
            experiment.refuse_other_run(folder, config)
        if cell.folder in chosen:
            lines.append(dry_run_lib.describe(cell, configs, place, dry_run=dry_run))
    message("\n".join([f"{plan.title}: {len(chosen)} of {len(plan.cells)} cells", *lines]))
    if dry_run:
        return 0
    num_failed = 0
    with preemption.StopRequest() as request:
        for cell, configs in zip(plan.cells, resolved, strict=True):
            if cell.folder not in chosen:
                continue
            try:
                num_failed += not cell_runner.train(cell, configs, place, request)
            finally:  # finished seeds are reported after a signal too
                _write_results(plan, resolved, place)
            if request.signal:
                raise SystemExit(128 + request.signal)
    with open(os.path.join(workdir, "table.md"), encoding="utf-8") as file:
        message(f"{file.read()}\nFolder of the sweep: {workdir}")
    return num_failed


def _resolve(cell: Cell, plan: Plan) -> list[ml_collections.FrozenConfigDict]:
    """The cell's configuration for every seed."""
    result = []
    for seed in plan.seeds:
        config = ml_collections.ConfigDict(cell.config.to_dict())
        config.seed = seed
        config.run.update({"figures": False, "compare": "", "tensorboard": "off"})
        try:
            result.append(init_from.resolve_model(config_lib.resolve(config)))
        except ValueError as error:
            raise ValueError(f"{cell.name}: {error}") from error
        if result[-1].run.distributed:
            raise ValueError(
                f"{cell.name}: run.distributed is True; accepted: False, since one host trains a "
                "sweep"
            )
    return result


def _write_results(plan: Plan, resolved: list, place: cell_runner.Place) -> None:
    """Writes the results of all finished seeds into the three files."""
    workdir, entries, records = place.workdir, [], []
    for cell, configs in zip(plan.cells, resolved, strict=True):
        summaries = []
        for config in configs:
            summary = place.summary(cell, config.seed)
            if summary is not None:
                summaries.append(summary)
                records.append(_record(cell, config, summary))
        entries.append(
            {
                "row": cell.row,
                "column": cell.column,
                "published": cell.published,
                "note": cell.note,
                "summaries": summaries,
                "error": place.error(cell, plan.seeds),
            }
        )
    header = {"title": plan.title, "seeds": plan.seeds, "rules": plan.rules, "metric": plan.metric}
    listed = [{k: v for k, v in entry.items() if k != "summaries"} for entry in entries]
    os.makedirs(workdir, exist_ok=True)
    write_json(
        os.path.join(workdir, "results.json"), header | {"cells": listed, "records": records}
    )
    replace_text(os.path.join(workdir, "results.csv"), _csv(records))
    table = report.render(
        plan.title, entries, rules=plan.rules, metric=plan.metric, num_seeds=len(plan.seeds)
    )
    replace_text(os.path.join(workdir, "table.md"), table)


def _record(cell: Cell, config: ml_collections.FrozenConfigDict, summary: Any) -> dict[str, Any]:
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
        "undone_steps",
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
        "metrics": report.by_rule(summary),
        **{key: summary.get(key) for key in kept},
        "trained_together": summary.get("trained_together", 1),
        "config": identity,
    }


def _csv(records: list[dict[str, Any]]) -> str:
    """One line per cell, seed and rule."""
    columns = ("row", "column", "seed", "rule", "is_oracle", "epoch", *report.METRICS)
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
