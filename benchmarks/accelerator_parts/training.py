"""Whole runs for as long as the budget allows, each continued by the next call."""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import ml_collections

from benchmarks.accelerator_parts import problems
from benchmarks.accelerator_parts.worker import Context, NotHereError
from pujax import sweep, training
from pujax.configs import gradpu, lagam_cifar, lagam_digits
from pujax.configs import ncpu as ncpu_config
from pujax.configs.sweeps import gradpu_table1
from pujax.sweep import plan as sweep_plan

_MARGIN_SECONDS = 40
"""To end the call in progress, and to write a checkpoint."""
_CURVE = ("epoch", "stage", "loss", "test_accuracy", "label_accuracy", "seconds")
_POLL_SECONDS = 2.0
_EPOCHS = ("warmup_epochs", "neighbors_after_epoch")
"""Settings that are a number of epochs, beside `num_epochs` and `lr_drops`."""
TINY_EPOCHS = 4


def lagam(context: Context) -> bool:
    """Trains LaGAM on CIFAR-10-1 in bfloat16; the curve is written as it goes.

    Returns:
      Whether it is at its end.
    """
    tree = lagam_digits.get_config() if context.tiny else lagam_cifar.get_config()
    if context.tiny:
        tree.method.update({"num_epochs": TINY_EPOCHS, "warmup_epochs": 2, "lr_drops": (3,)})
        tree.method.update({"augment": False, "num_clusters": 3, "neighbors_after_epoch": 3})
    return _train(context, tree, "lagam")


def ncpu(context: Context) -> bool:
    """Trains NcPU on CIFAR-10 in bfloat16, as `lagam` does.

    Returns:
      Whether it is at its end.
    """
    tree = ncpu_config.get_config("task=digits" if context.tiny else "task=cifar10")
    if context.tiny:
        tree.method.update({"num_epochs": TINY_EPOCHS, "warmup_epochs": 1, "align_dim": 8})
    return _train(context, tree, "ncpu")


def shortened(method: ml_collections.ConfigDict, num_epochs: int) -> None:
    """Gives a method another length: what it does at an epoch it does at the same share of the run.

    Args:
      method: its settings, which are changed.
      num_epochs: of the run.
    """
    factor = num_epochs / method.num_epochs

    def moved(epoch: int) -> int:
        return max(round(epoch * factor), 1) if epoch else 0

    # 'auto' follows the length by itself.
    counted = [name for name in _EPOCHS if method.get(name, "auto") != "auto"]
    changed: dict[str, Any] = {name: moved(method[name]) for name in counted}
    if method.lr_schedule == "multistep":  # others take no drops
        drops = {moved(epoch) for epoch in method.lr_drops}
        changed["lr_drops"] = tuple(sorted(drop for drop in drops if drop < num_epochs))
    method.update({"num_epochs": num_epochs, **changed})


def _train(context: Context, tree: Any, name: str) -> bool:
    if context.tiny:
        tree.model.name = "mlp"
        tree.model.options = ml_collections.ConfigDict({"hidden": (16,)})
    else:
        _require_data(context)
        tree = problems.with_data(tree, context.data_dir)
        tree.model.dtype = "bfloat16"
    if context.num_epochs:
        shortened(tree.method, context.num_epochs)
    tree.run.update({"figures": False, "tensorboard": "off", "compare": ""})
    folder = os.path.join(context.out, "runs", name)

    def report() -> None:
        rows = curve(os.path.join(folder, "metrics.jsonl"))
        context.record(
            folder=folder,
            num_epochs=tree.method.num_epochs,
            epochs_asked=context.num_epochs,
            epochs_done=len(rows),
            training_seconds=sum(row.get("seconds") or 0.0 for row in rows),
            curve=rows,
        )

    with _stopped_in_time(context, report):
        result = training.run(tree, folder)
    if result is not None:
        context.record(test=result["test"])
    return result is not None


def table1(context: Context) -> bool:
    """Trains GradPU's Table 1, all seeds of a cell in one program.

    Returns:
      True: unless it is stopped it is at its end.

    Raises:
      RuntimeError: if cells could not be trained.
    """
    if context.tiny:
        plan = sweep.Plan("GradPU on digits", _tiny_cells(), seeds=(0, 1))
    else:
        _require_data(context)
        plan = sweep_plan.set_folders(gradpu_table1.get_plan(), context.data_dir)
    folder = os.path.join(context.out, "runs", "gradpu_table1")

    def report() -> None:
        path = os.path.join(folder, "results.json")
        records = []
        if os.path.exists(path):
            with open(path, encoding="utf-8") as file:
                records = json.load(file)["records"]
        context.record(
            folder=folder,
            seeds_done=len(records),
            seeds=len(plan.cells) * len(plan.seeds),
            trained_together=[record["trained_together"] for record in records],
            training_seconds=sum(record["seconds"] for record in records),
        )

    with _stopped_in_time(context, report):
        failed = sweep.run(plan, folder)
    with open(os.path.join(folder, "table.md"), encoding="utf-8") as file:
        context.record(table=file.read())
    if failed:
        raise RuntimeError(f"{failed} cells were not trained, see error.txt below {folder}")
    return True


def _tiny_cells() -> list[sweep.Cell]:
    cells = []
    for method in ("naive", "gradpu"):
        config = gradpu.get_config(f"task=digits,method={method}")
        config.model.options = ml_collections.ConfigDict({"hidden": (16,)})
        config.method.num_epochs = 2
        cells.append(sweep.Cell(method, "digits", config))
    return cells


def _require_data(context: Context) -> None:
    if not context.data_dir:
        raise NotHereError("--data_dir does not say where the published data are")


def curve(path: str) -> list[dict[str, Any]]:
    """What is kept of the epochs in a run's metrics; a line that is not complete is left out."""
    if not os.path.exists(path):
        return []
    rows = []
    with open(path, encoding="utf-8") as file:
        for line in file:
            with contextlib.suppress(json.JSONDecodeError):
                row = json.loads(line)
                rows.append({name: row[name] for name in _CURVE if name in row})
    return rows


@contextlib.contextmanager
def _stopped_in_time(context: Context, report: Callable[[], None]) -> Iterator[None]:
    """Reports while a run goes on, and asks it to stop before the budget is over.

    The signal is the one by which a scheduler asks: the run saves all and raises SystemExit.
    """
    done = threading.Event()
    poll, margin = (0.05, 0.0) if context.tiny else (_POLL_SECONDS, _MARGIN_SECONDS)

    def watch() -> None:
        while not done.wait(poll):
            with contextlib.suppress(OSError, ValueError):  # said by the report at the end, if so
                report()
            if context.seconds_left() < margin:
                os.kill(os.getpid(), signal.SIGTERM)  # once: a second one ends it at once
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        report()
