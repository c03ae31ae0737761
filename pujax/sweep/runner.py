"""Trains the cells of a plan one after another and collects their results."""

import contextlib
import glob
import logging
import os
from collections.abc import Sequence
from typing import NamedTuple

import ml_collections

from pujax.console import message
from pujax.data import sources
from pujax.files import check_folder, check_writable
from pujax.sweep import cell_runner, claims, own_rows, results, resume
from pujax.sweep import dry_run as dry_run_lib
from pujax.sweep import plan as plan_lib
from pujax.sweep.plan import Cell, Plan
from pujax.sweep.shards import Shard
from pujax.training import (
    checkpoint,
    compilation_cache,
    experiment,
    init_from,
    preemption,
    run_state,
    sharding,
)
from pujax.training import config as config_lib

_LOG = logging.getLogger(__name__)


class Sweep(NamedTuple):
    """A plan that was checked, and where it is trained.

    Attributes:
      plan: all cells, with rules and metrics settled.
      resolved: their configurations, one per seed.
      chosen: places in the plan of the cells that this call trains.
      place: what the cells have in common.
      left_out: what to say of results that the tables do not have any more, the latest last;
        `write_results` adds to it, since another process may have written meanwhile.
    """

    plan: Plan
    resolved: list[list[ml_collections.FrozenConfigDict]]
    chosen: tuple[int, ...]
    place: cell_runner.Place
    left_out: list[str]

    def is_over(self, index: int) -> bool:
        """Whether every seed of a cell has ended, well or with an error."""
        return self.place.is_over(self.plan.cells[index], self.plan.seeds)

    def has_error(self, index: int) -> bool:
        """Whether a seed of a cell was stopped by an error."""
        return bool(self.place.error(self.plan.cells[index], self.plan.seeds))

    def write_results(self) -> str:
        """Writes the files of results; returns the table."""
        with claims.results(self.place.workdir):
            with contextlib.suppress(ValueError):  # a damaged file, which is written anew
                left_out = results.outside(self.plan, self.place.workdir)
                self.left_out.extend([left_out] * bool(left_out))
            return results.write(self.plan, self.resolved, self.place)


def run(
    plan: Plan,
    workdir: str,
    *,
    dry_run: bool = False,
    only: str = "",
    sequential: bool = False,
    shard: Shard | None = None,
) -> int:
    """Trains what a plan says and is not finished yet, and writes the table.

    All configurations are resolved, and the methods of every cell's first seed built, before the
    first trains. Results are collected again after every cell, finished or not, from the folders of
    its seeds: `results.json`, `results.csv`, `table.md`, `summary.csv` and `summary.md`; at the
    end also the figures of `figure.write`. A call for a shard collects them once, and only if the
    cells of all shards are over. A cell that another process trains is left to it.

    Args:
      plan: the cells.
      workdir: folder of the sweep; finished seeds in it are kept, unfinished ones continue as they
        were started, in their group or alone. May be '' in a dry run.
      dry_run: says what would be trained, and trains, downloads and writes nothing.
      only: trains only the cell of this name, or those whose name holds this text.
      sequential: trains new seeds one after another even where they could train together.
      shard: trains only this share of those cells.

    Returns:
      How many cells were stopped by numbers that are not finite, could not be trained, or were
      left to another process. The reason is in `error.txt` in the folders of their seeds.

    Raises:
      SystemExit: after SIGINT or SIGTERM, once all is saved.
      ValueError: for a plan, configuration or data that is not accepted, or a folder that holds
        other results, before anything is compiled or written.
    """
    sweep = prepare(plan, workdir, dry_run=dry_run, only=only, sequential=sequential, shard=shard)
    if dry_run:
        return 0
    with preemption.StopRequest() as request:
        stopped = _train(sweep, sweep.chosen, request, writes=shard is None)
        failed = [i for i in stopped if sweep.has_error(i)]
        # What others trained may be finished meanwhile, or given up.
        skipped = [i for i in stopped if i not in failed]
        skipped = _train(sweep, skipped, request, writes=shard is None)
    show_table(sweep, needs_all=shard is not None)
    elsewhere = [i for i in skipped if not sweep.has_error(i)]
    if elsewhere:
        names = ", ".join(sweep.plan.cells[i].name for i in elsewhere)
        message(
            f"another process trains in the folders of these cells: {names}; repeat the command "
            "once it has ended if it has other seeds; until then the exit status is 1"
        )
    return len(failed) + len(skipped)


def _train(
    sweep: Sweep, indices: Sequence[int], request: preemption.StopRequest, *, writes: bool
) -> list[int]:
    """Trains these cells; returns those that were stopped, or left to another process."""
    stopped = []
    for index in indices:
        try:
            if not train_cell(sweep, index, request):
                stopped.append(index)
        finally:  # finished seeds are reported after a signal too
            if writes:
                sweep.write_results()
        if request.signal:
            raise SystemExit(128 + request.signal)
    return stopped


def show_table(sweep: Sweep, *, needs_all: bool) -> None:
    """Writes and prints the table.

    Args:
      sweep: whose cells were trained.
      needs_all: whether to do so only if all cells of the plan are over.
    """
    count = len(sweep.plan.cells)
    left = count - sum(map(sweep.is_over, range(count)))
    if needs_all and left:
        message(
            f"{left} of {count} cells are not finished: the shard that ends last writes the table, "
            "and so does the command without --shard"
        )
        return
    message(f"{sweep.write_results()}\nFolder of the sweep: {sweep.place.workdir}")
    if sweep.left_out:  # once more, where the table is looked at
        message(sweep.left_out[-1])
    columns = {cell.column for cell in sweep.plan.cells}
    # Else there is nothing to draw, and nothing to remove that was drawn of an earlier table.
    if sweep.plan.reference or len(columns) > 2 or _has_figures(sweep.place.workdir):
        _draw(sweep.place.workdir)


def _has_figures(workdir: str) -> bool:
    kinds = plan_lib.FIGURES
    return any(glob.glob(os.path.join(glob.escape(workdir), f"{kind}_*.png")) for kind in kinds)


def _draw(workdir: str) -> None:
    """Draws the figures; without them a sweep has ended just as well."""
    # Where they are needed: matplotlib loads for a second, and `tables` is run as a module.
    from pujax.sweep import figure, tables

    try:
        figure.write(tables.read(workdir), workdir)
    except Exception:
        _LOG.exception("the figures of %s could not be drawn", workdir)


def prepare(
    plan: Plan,
    workdir: str,
    *,
    dry_run: bool = False,
    only: str = "",
    sequential: bool = False,
    shard: Shard | None = None,
    writes_tables: bool = True,
) -> Sweep:
    """Checks a plan and its folder, and says what there is to do.

    The arguments are `run`'s, and `writes_tables`: False for a worker, which has one cell of the
    plan and says nothing of results that its tables would leave out.
    """
    plan_lib.check(plan)
    if not workdir and not dry_run:
        raise ValueError("workdir is ''; accepted: a folder, or none in a dry run")
    if workdir:
        check_folder("--workdir", workdir)
        checkpoint.check_place("--workdir", workdir)
        if not dry_run:
            check_writable("--workdir", workdir, is_folder=True)
    resolved = [_resolve(cell, plan) for cell in plan.cells]
    wanted = {cell.folder for cell in plan_lib.only(plan, only).cells}
    chosen = tuple(i for i, cell in enumerate(plan.cells) if cell.folder in wanted)
    chosen = chosen if shard is None else shard.of(chosen)
    if workdir:
        results.refuse_foreign(workdir)
    if not dry_run:
        compilation_cache.enable(resolved[0][0].run.compilation_cache)
    load = cell_runner.loader(len(plan.seeds) + 1)
    place = cell_runner.Place(workdir, sharding.make_mesh(), load, sequential, {})
    looked = [own_rows.look(*both, place) for both in zip(plan.cells, resolved, strict=True)]
    resolved, known = [configs for configs, _ in looked], [rows for _, rows in looked]
    plan = own_rows.settle(plan, known)
    notes = [note for i in chosen if (rows := known[i]) is not None for note in rows.notes]
    lines: list[str] = []
    estimates: list[bool | None] = [None] * len(plan.cells)
    for index, (cell, configs) in enumerate(zip(plan.cells, resolved, strict=True)):
        for config in configs if workdir else ():
            folder = resume.seed_folder(place.folder(cell), config.seed)
            experiment.refuse_other_run(folder, config, chooses_later=plan_lib.chooses_epochs(plan))
            place.summary(cell, config.seed)  # which the tables need of all cells
        if index in chosen:
            line, has_estimates = dry_run_lib.describe(cell, configs, place, dry_run=dry_run)
            lines.append(line)
            estimates[index] = has_estimates
        # A user's files may change between two calls, also under cells that only one of them has.
        is_fixed = sources.is_published(configs[0].data.source)
        if not dry_run and (index in chosen or not is_fixed):
            _refuse_other_data(cell, configs, place)
    own_rows.check_estimates(plan, estimates)
    outside = results.outside(plan, workdir) if workdir and writes_tables else ""
    left_out = [outside] * bool(outside)
    notes += left_out
    heading = f"{plan.title}: {len(chosen)} of {len(plan.cells)} cells"
    message("\n".join([*dict.fromkeys(notes), heading, *lines]))
    return Sweep(plan, resolved, chosen, place, left_out)


def _refuse_other_data(
    cell: Cell, configs: list[ml_collections.FrozenConfigDict], place: cell_runner.Place
) -> None:
    """Raises if the cell was begun on other data: its finished seeds stay, and would be mixed.

    Of published data the first seed that was begun stands for all, where seeds do not start from
    encoders of their own.
    """
    for config in configs:
        folder = resume.seed_folder(place.folder(cell), config.seed)
        if os.path.exists(os.path.join(folder, run_state.DATA_FILE)):
            experiment.refuse_other_data(folder, place.load(config))
            if sources.is_published(config.data.source) and init_from.SEED not in config.init_from:
                return


def train_cell(
    sweep: Sweep, index: int, request: preemption.StopRequest, *, wait: float = 0.0
) -> bool:
    """Trains the unfinished seeds of a cell, unless another process does.

    Args:
      sweep: the cells.
      index: of the cell.
      request: tells whether a signal came.
      wait: seconds to wait for the other process.

    Returns:
      Whether this process trained all of them and nothing stopped any.
    """
    cell, place = sweep.plan.cells[index], sweep.place
    if not place.unfinished(cell, sweep.plan.seeds):
        return True
    with claims.claim(place.folder(cell), wait=wait) as is_ours:
        if not is_ours:
            _LOG.warning("%s: another process trains it; it is left to that one", cell.name)
            return False
        return cell_runner.train(cell, sweep.resolved[index], place, request)


def _resolve(cell: Cell, plan: Plan) -> list[ml_collections.FrozenConfigDict]:
    """The cell's configuration for every seed."""
    result = []
    for seed in plan.seeds:
        config = ml_collections.ConfigDict(cell.config.to_dict())
        config.seed = seed
        config.run.update(plan_lib.FIXED)
        if not config.run.get("eval_every", 0):
            config.run.eval_every = 1  # a table's rules choose among all epochs, maybe later
        try:
            result.append(init_from.resolve_model(config_lib.resolve(config)))
        except ValueError as error:
            raise ValueError(f"{cell.name}: {error}") from error
        if result[-1].run.distributed:
            raise ValueError(
                f"{cell.name}: run.distributed is True; accepted: False, since one host trains a "
                "cell"
            )
    return result
