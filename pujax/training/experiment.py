"""One run from a configuration to a folder of results."""

import contextlib
import datetime
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import ml_collections
import numpy as np
from jax.sharding import Mesh

from pujax import accelerator, locks
from pujax.console import message, render_table
from pujax.data import dataset, multilabel_dataset, sources
from pujax.data.multilabel_dataset import MultilabelDataset
from pujax.data.pu_dataset import PUDataset
from pujax.files import check_folder, check_writable, read_json, to_plain, write_json
from pujax.training import (
    checkpoint,
    compilation_cache,
    compile_ahead,
    example_scores,
    host_agreement,
    hosts,
    init_from,
    method_setup,
    metrics_writer,
    own_labels,
    own_results,
    preemption,
    prior_estimation,
    run_state,
    sharding,
    train_loop,
)
from pujax.training import config as config_lib
from pujax.training.config import data_section
from pujax.training.evaluation import eval_interval, model_selection, summary, tasks
from pujax.training.evaluation.evaluator import Inputs
from pujax.training.evaluation.summary import Final
from pujax.training.evaluation.tasks import Problem
from pujax.training.loop_state import LoopState
from pujax.training.method_setup import MethodSetup
from pujax.training.progress import Progress
from pujax.training.seed_axis import Member

_LOG = logging.getLogger(__name__)

_MAX_POINTS = 2000
"""Points of the representation in its maps."""


def load_data(config: ml_collections.ConfigDict) -> Problem:
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
    """Trains what a configuration says, or resumes it, and writes a folder of results.

    Args:
      config: as from a file in `configs/`.
      workdir: folder of the run; an unfinished run there is continued. '' makes `runs/NAME-TIME`.
      name: NAME of a new folder; '' is method and data set.

    Returns:
      The summary (what `summary.json` holds), or None after `run.stop_after_epoch`.

    Raises:
      SystemExit: after SIGINT or SIGTERM, with the status a shell expects, once all is saved.
      ValueError: for a configuration or data that cannot be, before anything is compiled or
        written; a new folder that the run has made for itself is removed again.
    """
    given, config = config, init_from.resolve_model(config_lib.resolve(config))
    rule = given.run.get("selection", model_selection.AUTO)
    if config.run.distributed and not workdir:
        raise ValueError("--workdir is ''; accepted: one folder that all hosts share")
    hosts.join(config.run)
    accelerator.devices()  # where they cannot be started, the first use of JAX would be a traceback
    with hosts.leaving_together(is_outermost=True):
        if workdir:
            return _run(config, workdir, rule)
        with _new_folder(name or f"{config.method.name}_{config.data.source}") as folder:
            return _run(config, folder, rule)


def _run(config: ml_collections.FrozenConfigDict, folder: str, rule: str) -> dict[str, Any] | None:
    """`run`, once the configuration is checked and the hosts have joined.

    `rule` is `run.selection` as it was given: methods that are compared follow it in their own way.
    """
    compilation_cache.enable(config.run.compilation_cache)
    check_folder("--workdir", folder)
    checkpoint.check_place("--workdir", folder)
    _refuse_in_use(folder)
    data = init_from.attach(config, load_data(config))
    configs = _configs(config, data, folder, rule)
    host_agreement.check(configs, data)
    config, mesh = configs[0], sharding.make_mesh()
    # All methods are built before the first trains, so that a wrong setting costs no time. An
    # estimate of the prior trains too.
    with contextlib.ExitStack() as stack:
        if isinstance(data, PUDataset) and prior_estimation.is_wanted(config):
            provisional = prior_estimation.provisional(config, data)
            own_results.check_decision(config, provisional)
            _build_all(configs, provisional, mesh)
            stack.enter_context(in_use(folder))
            data = prior_estimation.settle(config, data, folder, mesh)
        own_results.check_decision(config, data)
        setups = _build_all(configs, data, mesh)
        stack.enter_context(in_use(folder))
        refuse_other_run(folder, config)  # again, now that no other run can change it
        _say(tasks.of(data).describe(config, data, summary.device(mesh)))
        results = _train_all(setups, data, mesh, folder)
        return None if results is None else _conclude(config, data, folder, results)


def _configs(
    config: ml_collections.FrozenConfigDict, data: Problem, folder: str, rule: str
) -> list[ml_collections.FrozenConfigDict]:
    """The configurations of the run's method, the first, and of those compared with it.

    On one's own rows batches fit the data, which is said. Raises where a folder holds another run.
    """
    own_data = data if isinstance(data, PUDataset) and data.own else None
    lowered: list[str] = []

    def fitting(given: ml_collections.FrozenConfigDict) -> ml_collections.FrozenConfigDict:
        if own_data is None:
            return given
        used = own_results.with_fitting_batches(given, own_data.info.n)
        lowered.append(own_results.describe_batches(given, used))
        return used

    if own_data is not None:
        own_results.check_names(config)
        own_results.check_rule(config, own_data)
    config = fitting(config)
    refuse_other_run(folder, config)
    refuse_other_data(folder, data)
    compared = config_lib.compared_methods(config.run)
    is_table = data.info.is_table
    others = [
        config_lib.resolve(config_lib.to_compare(config, other, is_table=is_table, rule=rule))
        for other in compared
    ]
    configs = [config, *map(fitting, others)]
    for other in configs[1:]:
        beside = os.path.join(folder, other.method.name)
        try:
            refuse_other_run(beside, other)
        except ValueError as error:  # which no flag may be able to give, as of an earlier version
            raise ValueError(f"{error}; or move {beside} away, to compare anew") from error
    notes = [*(data.own.notes if data.own else ()), *filter(None, lowered)]
    if notes:
        _say("\n".join(notes))
    return configs


def _train_all(
    setups: list[MethodSetup], data: Problem, mesh: Mesh, folder: str
) -> list[dict[str, Any]] | None:
    """The summaries of the run's method and of those compared with it; None if it was stopped."""
    names = [setup.config.method.name for setup in setups]
    folders = [folder, *(os.path.join(folder, name) for name in names[1:])]
    is_finished = [os.path.exists(os.path.join(inside, "summary.json")) for inside in folders]
    if all(is_finished):
        _say(f"Finished on {_finished_at(folder)}; nothing is trained again.")
    results = []
    with (
        preemption.StopRequest() as request,
        compile_ahead.compiling([] if is_finished[0] else setups, mesh),
    ):
        for setup, inside in zip(setups, folders, strict=True):
            result = run_one(setup, data, mesh, inside, request, workdir=folder)
            if result is None:
                return None
            results.append(result)
    return results


def _conclude(
    config: ml_collections.FrozenConfigDict,
    data: Problem,
    folder: str,
    results: list[dict[str, Any]],
) -> dict[str, Any]:
    """Writes and says the summary of the run's method, with what the compared ones reached."""
    result, task = results[0], tasks.of(data)
    if "held_out" in result:
        _say(own_results.describe(result, decide=config.run.decide))
    if sharding.is_writer():
        compared_with = {x["method"]: x["test"] | x["train"] for x in results[1:]}
        tables = [render_table([task.table_row(x) for x in results], task.columns)]
        if "held_out" in result:
            for x in results[1:]:
                compared_with[x["method"]] |= {"held_out": own_results.held_out(x)}
            tables = tables if result["test"] else []  # else its cells are empty
            tables.append(render_table(*own_results.table(results)))
        result["comparison"] = result.get("comparison", {}) | compared_with
        write_json(os.path.join(folder, "summary.json"), result)
        message("\n".join([*tables, f"Run directory: {folder}"]))
    return result


def _build_all(
    configs: list[ml_collections.FrozenConfigDict], data: Problem, mesh: Mesh
) -> list[MethodSetup]:
    """Builds the run's method, the first, and those that are compared with it.

    Raises:
      ValueError: for a method that cannot be had with its settings or with these data. Where it is
        a compared one it is named: the fields are not those that the command line shows. On one's
        own rows the configuration that suits it is named, too.
    """
    setups = []
    for config in configs:
        name = config.method.name
        try:
            setup = method_setup.build(config, data, mesh)
            if isinstance(data, PUDataset) and data.own:
                own_results.check_method(name, setup.method)
        except ValueError as error:
            if config is configs[0]:
                raise
            by_itself = ""
            if isinstance(data, PUDataset) and data.own:
                own = f"--config={config.data.source}:method={name}"
                by_itself = f"; {own} trains it with its own settings"
            raise ValueError(f"run.compare={name}: {error}{by_itself}") from error
        setups.append(setup)
    return setups


def run_one(
    setup: MethodSetup,
    data: Problem,
    mesh: Mesh,
    folder: str,
    request: preemption.StopRequest,
    *,
    workdir: str = "",
) -> dict[str, Any] | None:
    """Trains one method into one folder; None if it was stopped. See `run_members`."""
    refuse_other_run(folder, setup.config)
    results = run_members([Member(setup, data, folder)], mesh, request, workdir=workdir)
    return None if results is None else results[0]


def run_members(
    members: Sequence[Member],
    mesh: Mesh,
    request: preemption.StopRequest,
    *,
    folder: str = "",
    workdir: str = "",
) -> list[dict[str, Any]] | None:
    """Trains one seed, or several in one program, to the end, or goes on with them.

    Every seed writes the folder that a separate run writes.

    Args:
      members: the seeds; of several, `seed_axis.why_sequential` must be ''.
      mesh: devices.
      request: tells whether a signal came.
      folder: where several seeds keep their checkpoints, in `checkpoints`.
      workdir: what the command of a run takes to go on, which is not the folder of a method that is
        compared; '' in a sweep, whose command says where it writes.

    Returns:
      The summaries (what every `summary.json` holds; on hosts that write nothing, empty ones), or
      None after `run.stop_after_epoch`.

    Raises:
      SystemExit: after a signal, once all is saved.
      NonFiniteError: see `run.nonfinite`; naming the seeds that stopped, once the others have
        ended.
      ValueError: if the folders hold something else.
    """
    for member in members:
        refuse_other_data(member.folder, member.truth)
    if len(members) == 1 and members[0].is_finished:
        return [read_summary(members[0].summary)]
    with contextlib.ExitStack() as stack:
        for member in members:
            stack.enter_context(in_use(member.folder))
        return _run_members(members, mesh, request, folder, workdir)


def _run_members(
    members: Sequence[Member],
    mesh: Mesh,
    request: preemption.StopRequest,
    folder: str,
    workdir: str,
) -> list[dict[str, Any]] | None:
    """`run_members` once their folders are this run's alone."""
    setup = members[0].setup
    for line in eval_interval.describe(setup.eval_intervals, setup.method):
        _say(f"{setup.config.method.name}: {line}")
    checkpoints = os.path.join(folder, "checkpoints") if folder else ""
    run = run_state.prepare(members, mesh, folder=checkpoints)
    name = run.config.method.name
    what = name if len(members) == 1 else f"{name} x {len(members)}"
    try:
        with (
            hosts.leaving_together(),
            Progress(run.num_steps(), description=what, enabled=sharding.is_writer()) as progress,
        ):
            state = train_loop.train(run, progress, request)
        if state.stopped_by or not state.is_finished:
            place = f" with --workdir={workdir}" if workdir else ""
            limit = "" if state.stopped_by else " once run.stop_after_epoch is larger, or 0"
            _say(
                f"Stopped after {state.position.epoch} of {run.num_epochs} epochs of {what}. The "
                f"same command{place} goes on{limit}."
            )
            if state.stopped_by:
                raise SystemExit(128 + state.stopped_by)
            if state.left:
                raise train_loop.NonFiniteError("; ".join(state.left))
            return None
        with hosts.leaving_together():
            results = [_finish(state, seed, len(members)) for seed in range(state.run.num_seeds)]
        if state.left:
            raise train_loop.NonFiniteError("; ".join(state.left))
        return results
    finally:
        run.close()


_LOCK = "run.lock"
_ACCEPTED = "another folder, or this one once that process has ended"


def _refuse_in_use(folder: str) -> None:
    """Raises where `in_use` would, and writes nothing."""
    path, what = os.path.join(folder, _LOCK), f"--workdir={folder}"

    def look() -> None:
        check_writable("--workdir", folder, is_folder=True)
        locks.refuse_held(path, what=what, accepted=_ACCEPTED)

    _on_writer(folder, look)


@contextlib.contextmanager
def in_use(folder: str) -> Iterator[None]:
    """Keeps other runs out of a folder while the block runs; of many hosts the first holds it.

    Raises:
      HeldError: naming the process that trains in this folder.
    """
    path, what = os.path.join(folder, _LOCK), f"--workdir={folder}"
    with contextlib.ExitStack() as stack:

        def hold() -> None:
            os.makedirs(folder, exist_ok=True)
            stack.enter_context(locks.hold(path, what=what, accepted=_ACCEPTED))

        _on_writer(folder, hold)
        yield


def _on_writer(folder: str, action: Callable[[], None]) -> None:
    """Lets the first host do something that may be refused; then it is refused on all hosts."""
    refusal: Exception | None = None
    if sharding.is_writer():
        try:
            action()
        except (ValueError, OSError) as error:
            refusal = error
    if sharding.any_host(refusal is not None):
        text = f"--workdir={folder} cannot be used; the message of the first host says why"
        raise refusal or ValueError(text)


def _finish(state: LoopState, seed: int, num_together: int) -> dict[str, Any]:
    """Evaluates the reported state of one seed, counted from 0, and writes its results."""
    run = state.run
    member, method = run.members[seed], run.methods[seed]
    if member.is_finished:
        return read_summary(member.summary)
    config, truth, folder = member.setup.config, member.truth, member.folder
    # All hosts take part in the evaluation, one of them writes.
    inputs: Inputs = truth.inputs
    if run.num_seeds == 1 and run.streamed is None and not method.reveals:
        inputs = run.on_device.inputs  # the same, and on the devices already
    reported = state.reported(seed)
    points = None
    if config.run.figures and method.embed is not None:
        points = _map_rows(truth)
    final = run.evaluators[seed].final(reported, inputs, embedded=points)
    # All hosts take part in calibrating, too.
    saved = jax.tree.map(sharding.to_host, run.evaluators[seed].calibrated(reported))
    if not run.writers:
        return {}
    rows, task = run.writers[seed].rows, tasks.of(truth)
    init_from.save(folder, config, method, reported, truth.info)
    learned = None
    held_out: dict[str, Any] = {}
    if isinstance(truth, PUDataset) and truth.own is not None:
        known = own_results.of(truth, final)
        learned = known.calibration
        doubt = own_results.write(folder, config, method, saved, truth, final, known)
        held_out = {
            "mean_probability": doubt,
            "held_out": [estimate._asdict() for estimate in known.estimates],
            "held_out_prior": {"used": truth.info.prior_unlabeled, "at_most": known.largest_prior},
            "held_out_by_prior": known.dependence,
        }
    if isinstance(truth, MultilabelDataset) and truth.own is not None:
        own_labels.write(folder, config, method, saved, truth, final)
    # Figures take the longest: a run that is killed there leaves its model and its predictions.
    maps: dict[str, Any] = {}
    if config.run.figures:
        maps = _draw(config, final, truth, rows, points, os.path.join(folder, "figures"))
    result = task.summarize(config, method, final, truth, rows, run.mesh) | held_out
    if isinstance(truth, PUDataset):
        example_scores.write(folder, truth, final, learned=learned, maps=maps)
    if num_together > 1:
        result["trained_together"] = num_together
    result = to_plain(result)
    for text in result["warnings"]:
        _LOG.warning("%s, seed %d: %s", config.method.name, config.seed, text)
    write_json(member.summary, result)
    return result


def _say(text: str) -> None:
    """Prints once, however many hosts there are."""
    if sharding.is_writer():
        message(text)


def _map_rows(data: Problem) -> np.ndarray:
    """Training examples of the maps, int `[m]`: the representation of all would fill the memory."""
    from pujax.plots import embedding_map  # where it is needed: it loads for long

    return embedding_map.sample(np.ones(len(data.inputs), bool), data.labeled, 0, _MAX_POINTS)


def _draw(
    config: ml_collections.FrozenConfigDict,
    final: Final,
    data: Problem,
    rows: list[dict[str, Any]],
    points: np.ndarray | None,
    folder: str,
) -> dict[str, Any]:
    """Writes all figures of a run; returns the maps of the representation for `example_scores`.

    Args:
      config: resolved configuration.
      final: evaluation of the reported state.
      data: the PU problem, truth included.
      rows: of metrics.
      points: int `[m]`, the training examples of `final.embeddings`.
      folder: for the figures.
    """
    from pujax.plots import embedding_map, figures  # where they are needed: they load for long

    os.makedirs(folder, exist_ok=True)
    title = f"{config.method.name} on {data.info.name}, seed {config.seed}"
    scores, truth, labeled = tasks.of(data).figure_points(final.train_scores, data)

    def path(name):
        return os.path.join(folder, name)

    figures.training_curves(rows, path("training.png"), title=title)
    if math.isfinite(final.labels.get("label_accuracy", math.nan)):
        figures.label_error(rows, path("label_error.png"), title=title)
    figures.score_histogram(scores, truth, labeled, path("scores.png"), title=title)
    if final.embeddings is None or points is None:
        return {}
    is_finite = np.isfinite(final.embeddings).all(axis=1)
    drawn, vectors = points[is_finite], final.embeddings[is_finite]
    remark = embedding_map.collapse(vectors, scores)
    maps: dict[str, Any] = {"map_rows": drawn, "map_remark": remark}
    for method in ("pca", "tsne"):
        flat = np.zeros([0, 2], np.float32)
        if method == "pca" or not remark:
            flat = embedding_map.project(vectors, method=method).astype(np.float32)
        maps[f"map_{method}"] = flat
        figure = figures.map_figure(
            flat, truth[drawn], labeled[drawn], method=method, title=title, remark=remark
        )
        figures.save(figure, path(f"embedding_{method}.png"))
    return maps


@contextlib.contextmanager
def _new_folder(name: str) -> Iterator[str]:
    """Makes `runs/NAME-TIME`, which is this run's alone, and removes it if nothing came into it."""
    base = os.path.join("runs", f"{name}-{datetime.datetime.now():%Y%m%d-%H%M%S}")
    folder, number = base, 1
    is_first = not os.path.exists("runs")
    check_folder("--workdir", base)
    checkpoint.check_place("--workdir", base)
    check_writable("--workdir", base, is_folder=True)
    while True:
        try:
            os.makedirs(folder)  # of two runs that begin in one second, one takes the next name
            break
        except FileExistsError:
            folder, number = f"{base}-{number}", number + 1
    try:
        yield folder
    finally:
        with contextlib.suppress(OSError):
            if os.listdir(folder) == [_LOCK]:
                os.remove(os.path.join(folder, _LOCK))
            os.rmdir(folder)  # fails where there is anything in it
            if is_first:
                os.rmdir("runs")


def _finished_at(folder: str) -> str:
    """When the summary of a folder was made."""
    known = read_summary(os.path.join(folder, "summary.json")).get("finished_at")
    return known or "a day that its summary does not tell"


def read_summary(path: str) -> dict[str, Any]:
    """The summary of a finished run.

    Raises:
      ValueError: if no run wrote it.
    """
    found = read_json(path)
    sections = ("selections", "oracle_best_epoch", "test", "train")
    if not all(isinstance(found.get(name), dict) for name in sections):
        raise ValueError(
            f"{path} is damaged (it has no results of a run); accepted: the file as written"
        )
    return found


# What a run writes after its `config.json` and its first row, so that without both it is somebody
# else's.
_WRITTEN = (
    *("summary.json", run_state.DATA_FILE, metrics_writer.CSV),
    *(example_scores.FILE, init_from.FILE, "held_out.json"),
    *(own_results.PREDICTIONS, own_results.MODEL),
)


def _refuse_foreign(folder: str) -> None:
    """Raises if the folder holds no run, but files of the names that a run writes."""

    def holds(name: str) -> bool:
        return os.path.lexists(os.path.join(folder, name))

    found = [name for name in _WRITTEN if holds(name)]
    if holds(metrics_writer.JSON_LINES):
        is_own = metrics_writer.begins_with_a_row(os.path.join(folder, metrics_writer.JSON_LINES))
        found = [] if is_own else [metrics_writer.JSON_LINES, *found]
    if found and not holds("config.json"):  # another process may have begun the run since
        raise ValueError(
            f"--workdir={folder} holds {', '.join(found)}, but no config.json of a run, and a run "
            "would write over that; accepted: another folder"
        )


def refuse_other_data(folder: str, data: Problem) -> None:
    """Raises if the folder holds a run on other examples or labels, of any of its parts."""
    path = os.path.join(folder, run_state.DATA_FILE)
    if os.path.exists(path) and read_json(path).get("digest") != data.digest():
        raise ValueError(
            f"--workdir={folder} holds a run on other data (the digest of its training, "
            "validation and test examples and labels differs); accepted: the same data, or "
            "another folder"
        )


def refuse_other_run(
    folder: str, config: ml_collections.FrozenConfigDict, *, chooses_later: bool = False
) -> None:
    """Raises if the folder holds a run with another configuration, or files that no run wrote.

    Args:
      folder: of the run.
      config: what it is to be.
      chooses_later: whether epochs are chosen among those that it evaluated, once it has ended, so
        that `run.eval_every` must be the same, too.
    """
    path = os.path.join(folder, "config.json")
    if not os.path.exists(path):
        _refuse_foreign(folder)
        return
    document, wanted = read_json(path), config_lib.fingerprint(config)
    try:
        kept = ml_collections.ConfigDict(document)
        stored = config_lib.fingerprint(kept)
    except (AttributeError, TypeError, ValueError) as error:  # other programs have such files, too
        raise ValueError(
            f"--workdir={folder} holds a config.json that no run wrote; accepted: another folder"
        ) from error
    if chooses_later:
        for fields, of in ((stored, kept), (wanted, config)):
            fields["run"]["eval_every"] = max(of.get("run", {}).get("eval_every", 0), 1)
    differences = config_lib.differences(stored, wanted)
    if differences:
        raise ValueError(
            f"--workdir={folder} holds a run with another configuration "
            f"({'; '.join(differences)}); accepted: the same configuration (of `run`, all but "
            "`selection`, `decide`, `threshold` and, where a rule chooses among epochs, "
            "`eval_every` may change), or another folder"
        )
