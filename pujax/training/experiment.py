"""One run from a configuration to a folder of results."""

import datetime
import json
import os
from typing import Any

import ml_collections
from absl import logging
from jax.sharding import Mesh

from pujax.console import message, render_table
from pujax.data import dataset, multilabel_dataset, sources
from pujax.data.multilabel_dataset import MultilabelDataset
from pujax.data.pu_dataset import PUDataset
from pujax.files import to_plain, write_json
from pujax.plots import figures
from pujax.training import config as config_lib
from pujax.training import init_from, preemption, prior_estimation, sharding, train_loop
from pujax.training.config import data_section
from pujax.training.evaluation import summary, tasks
from pujax.training.evaluation.evaluator import Final
from pujax.training.metrics_writer import MetricsWriter
from pujax.training.progress import Progress


def load_data(config: ml_collections.ConfigDict) -> PUDataset | MultilabelDataset:
    """Loads the source a config names and draws the PU split, or hides labels.

    With `data.prior='auto'` its priors are NaN until `prior_estimation.settle` has estimated them.

    Raises:
      ValueError: naming the field, file or address that is wrong or missing.
    """
    options = data_section.source_options(config.data)
    raw = sources.load(config.data.source, directory=config.data.dir or None, **options)
    problem = multilabel_dataset if raw.is_multilabel else dataset
    return problem.build(raw, seed=config.seed, **data_section.settings(config.data))


def run(
    config: ml_collections.ConfigDict, workdir: str = "", *, name: str = ""
) -> dict[str, Any] | None:
    """Trains what a configuration says, or goes on with it, and leaves a folder of results.

    Args:
      config: as from a file in `configs/`.
      workdir: folder of the run; an unfinished run there is continued. '' makes `runs/NAME-TIME`.
      name: NAME of a new folder; '' is method and data set.

    Returns:
      The summary (what `summary.json` holds), or None after `run.stop_after_epoch`.

    Raises:
      SystemExit: after SIGINT or SIGTERM, with the status a shell expects, once all is saved.
      ValueError: for a configuration or data that cannot be, before anything is compiled or
        written.
    """
    config = init_from.resolve_model(config_lib.resolve(config))
    if config.run.distributed and not workdir:
        raise ValueError("--workdir is ''; accepted: one folder that all hosts share")
    sharding.join_hosts(config.run)
    folder = workdir or _new_folder(name or f"{config.method.name}_{config.data.source}")
    refuse_other_run(folder, config)
    data = init_from.attach(config, load_data(config))
    mesh = sharding.make_mesh()
    compared = config_lib.compared_methods(config.run)
    others = [config_lib.resolve(config_lib.to_compare(config, other)) for other in compared]
    configs = [config, *others]
    # All methods are built before the first trains, so that a wrong setting costs no time. An
    # estimate of the prior trains too.
    if prior_estimation.is_wanted(config):
        _build_all(configs, prior_estimation.provisional(config, data), mesh)
        data = prior_estimation.settle(config, data, folder, mesh)
    main, *others = _build_all(configs, data, mesh)
    kind = tasks.of(data)
    _say(kind.describe(config, data, summary.device(mesh)))
    results = []
    with preemption.StopRequest() as request:
        for each in (main, *others):
            inside = folder if each is main else os.path.join(folder, each.config.method.name)
            results.append(run_one(each, data, mesh, inside, request))
            if results[-1] is None:
                return None
    result, *compared = results
    if sharding.is_writer():
        known = result.get("comparison", {})
        result["comparison"] = known | {x["method"]: x["test"] | x["train"] for x in compared}
        write_json(os.path.join(folder, "summary.json"), result)
        rows = [kind.table_row(each) for each in results]
        message(f"{render_table(rows, kind.columns)}\nRun directory: {folder}")
    return result


def _build_all(
    configs: list[ml_collections.FrozenConfigDict], data: PUDataset, mesh: Mesh
) -> list[train_loop.Built]:
    return [train_loop.build(config, data, mesh) for config in configs]


def run_one(
    built: train_loop.Built,
    data: PUDataset,
    mesh: Mesh,
    folder: str,
    request: preemption.StopRequest,
) -> dict[str, Any] | None:
    """Trains one method into one folder; None if it was stopped."""
    config = built.config
    finished = os.path.join(folder, "summary.json")
    refuse_other_run(folder, config)
    if os.path.exists(finished):
        return read_json(finished)
    run = train_loop.prepare(
        built, folder=os.path.join(folder, "checkpoints"), mesh=mesh, truth=data
    )
    writer = None
    if sharding.is_writer():
        write_json(os.path.join(folder, "config.json"), config.to_dict())
        writer = MetricsWriter(folder, tensorboard=config.run.tensorboard == "auto")
    total = sum(
        stage.num_epochs * run.steps_per_epoch(i) for i, stage in enumerate(run.method.stages)
    )
    try:
        with Progress(
            total, description=config.method.name, enabled=sharding.is_writer()
        ) as progress:
            now = train_loop.train(run, writer, progress, request)
        if now.stopped_by or not now.finished:
            _say(
                f"Stopped after {now.position.epoch} of {run.first_epochs[-1]} epochs of "
                f"{config.method.name}. The same command with --workdir={folder} goes on."
            )
            if now.stopped_by:
                raise SystemExit(128 + now.stopped_by)
            return None
        # All hosts take part in the evaluation, one of them writes.
        inputs = run.on_device.inputs if run.streamed is None else run.streamed
        if run.method.reveals and run.streamed is None:
            inputs = sharding.replicate(data.inputs, mesh)
        state = train_loop.reported_state(run, now)
        final = run.evaluator.final(state, inputs)
        if writer is None:
            return {}
        init_from.save(folder, config, run.method, state, data.info)
        if config.run.figures:
            _draw(config, final, data, writer.rows, os.path.join(folder, "figures"))
        result = to_plain(
            tasks.of(data).summarize(config, run.method, final, data, writer.rows, mesh)
        )
        for text in result["warnings"]:
            logging.warning("%s: %s", config.method.name, text)
        write_json(finished, result)
        return result
    finally:
        run.close()
        if writer:
            writer.close()


def _say(text: str) -> None:
    """Prints once, however many hosts there are."""
    if sharding.is_writer():
        message(text)


def read_json(path: str) -> dict[str, Any]:
    """Reads a file that an earlier call wrote.

    Raises:
      ValueError: naming the file, if it is not what was written.
    """
    try:
        with open(path) as file:
            return json.load(file)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path} is damaged ({error}); accepted: the file as written") from error


def _draw(config, final: Final, data: PUDataset, rows: list, folder: str) -> None:
    """Writes all figures of a run."""
    os.makedirs(folder, exist_ok=True)
    title = f"{config.method.name} on {data.info.name}, seed {config.seed}"
    truth, labeled = data.truth, data.labeled
    if isinstance(data, MultilabelDataset):  # one point per label
        truth, labeled = truth.ravel(), labeled.ravel() == 1
        final = final._replace(train_scores=final.train_scores.ravel())

    def path(name):
        return os.path.join(folder, name)

    figures.training_curves(rows, path("training.png"), title=title)
    if final.labels:
        figures.label_error(rows, path("label_error.png"), title=title)
    figures.score_histogram(final.train_scores, truth, labeled, path("scores.png"), title=title)
    if final.embeddings is not None:
        about = (final.embeddings, truth, labeled)
        for method in ("pca", "tsne"):
            file = path(f"embedding_{method}.png")
            figures.embedding(*about, file, method=method, title=title)


def _new_folder(name: str) -> str:
    """`runs/NAME-TIME`, free at this moment."""
    base = os.path.join("runs", f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    folder, number = base, 1
    while os.path.exists(folder):
        folder, number = f"{base}-{number}", number + 1
    return folder


def refuse_other_run(folder: str, config: ml_collections.FrozenConfigDict) -> None:
    """Raises if the folder holds a run with another configuration."""
    path = os.path.join(folder, "config.json")
    if not os.path.exists(path):
        return
    there = config_lib.fingerprint(ml_collections.ConfigDict(read_json(path)))
    found = config_lib.differences(there, config_lib.fingerprint(config))
    if found:
        raise ValueError(
            f"--workdir={folder} holds a run with another configuration ({'; '.join(found)}); "
            "accepted: the same configuration (of `run`, all but `selection` may change), or "
            "another folder"
        )
