"""Trains the seeds of one cell, together where possible, and stores the error that stopped them."""

import contextlib
import functools
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import ml_collections
from jax.sharding import Mesh

from pujax import reading
from pujax.data.pu_dataset import PUDataset
from pujax.data.readers import download
from pujax.files import replace_text
from pujax.priors import Consensus
from pujax.sweep import resume
from pujax.sweep.plan import Cell
from pujax.training import (
    compilation_cache,
    experiment,
    init_from,
    method_setup,
    preemption,
    prior_estimation,
    seed_axis,
    train_loop,
)
from pujax.training.evaluation.tasks import Problem
from pujax.training.seed_axis import Member

_LOG = logging.getLogger(__name__)

ERROR = "error.txt"


class Place(NamedTuple):
    """What all cells of a sweep share.

    Attributes:
      workdir: folder of the sweep; '' in a dry run that looks at none.
      mesh: devices.
      load: gives the problem of a configuration.
      sequential: whether new seeds train one after another even where they could train together.
      estimates: class priors estimated so far, which cells of the same data share.
    """

    workdir: str
    mesh: Mesh
    load: Callable[[ml_collections.FrozenConfigDict], Problem]
    sequential: bool
    estimates: dict[str, Consensus]

    def folder(self, cell: Cell) -> str:
        """Folder of a cell."""
        return os.path.join(self.workdir, cell.folder)

    def summary(self, cell: Cell, seed: int) -> dict[str, Any] | None:
        """The summary of a finished seed, else None; a ValueError for one that no run wrote."""
        path = os.path.join(resume.seed_folder(self.folder(cell), seed), "summary.json")
        if not self.workdir or not os.path.exists(path):
            return None
        return experiment.read_summary(path)

    def unfinished(self, cell: Cell, seeds: Sequence[int]) -> list[int]:
        """The seeds of a cell that have no summary."""
        return [seed for seed in seeds if self.summary(cell, seed) is None]

    def is_over(self, cell: Cell, seeds: Sequence[int]) -> bool:
        """Whether every seed of a cell has a summary, or the reason why it has none."""
        return all(map(os.path.exists, self.error_files(cell, seeds)))

    def write_error(self, cell: Cell, seeds: Sequence[int], reason: str) -> None:
        """Writes why the unfinished ones of these seeds were stopped into their folders."""
        for path in self.error_files(cell, seeds):
            os.makedirs(os.path.dirname(path), exist_ok=True)
            replace_text(path, f"{reason}\n")

    def error_files(self, cell: Cell, seeds: Sequence[int]) -> list[str]:
        """Where the reasons of the unfinished ones of these seeds are, or would be."""
        folders = [resume.seed_folder(self.folder(cell), x) for x in self.unfinished(cell, seeds)]
        return [os.path.join(folder, ERROR) for folder in folders]

    def error(self, cell: Cell, seeds: Sequence[int]) -> str:
        """What stopped the unfinished seeds of a cell when they were trained last; '' if nothing.

        A reason that several seeds share is given once.
        """
        by_text: dict[str, list[str]] = {}
        for seed in self.unfinished(cell, seeds):
            path = os.path.join(resume.seed_folder(self.folder(cell), seed), ERROR)
            # Another process that trains the seed now may remove it in between.
            with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
                by_text.setdefault(file.read().strip(), []).append(str(seed))
        return "; ".join(f"seed {', '.join(names)}: {text}" for text, names in by_text.items())


def loader(size: int) -> Callable[[ml_collections.FrozenConfigDict], Problem]:
    """A function that gives the problem of a configuration and remembers the last few.

    What it raises of data that are not there, or cannot be read, names the flags of a sweep.
    """

    @functools.lru_cache(maxsize=size)
    def load(data: str, seed: int) -> Problem:
        fields = {"data": json.loads(data), "seed": seed}
        fields["data"]["positive_classes"] = tuple(fields["data"]["positive_classes"])
        return experiment.load_data(ml_collections.FrozenConfigDict(fields))

    def load_for(config: ml_collections.FrozenConfigDict) -> Problem:
        try:
            data = load(json.dumps(config.data.to_dict()), config.seed)
        except ValueError as error:
            raise _in_own_flags(error) from error
        return init_from.attach(config, data)

    return load_for


def _in_own_flags(error: ValueError) -> ValueError:
    """The error of a source, which advises with the flags of a single run, in those of a sweep."""
    text = str(error).replace("--config.data.dir", "--data_dir").replace("--config.", "--set=")
    if isinstance(error, download.MissingDataError):
        return download.MissingDataError(text, reason=error.reason)
    return ValueError(text)


def train(
    cell: Cell,
    configs: Sequence[ml_collections.FrozenConfigDict],
    place: Place,
    request: preemption.StopRequest,
) -> bool:
    """Trains the seeds of a cell that are not finished.

    A seed that cannot be trained, or meets a number that is not finite, leaves the reason in its
    folder, and the others go on, in a group too.

    Args:
      cell: the cell.
      configs: resolved configurations, one per seed.
      place: what the cells have in common.
      request: tells whether a signal came.

    Returns:
      Whether nothing stopped any seed.

    Raises:
      SystemExit: after a signal, once all is saved.
    """
    by_seed = {config.seed: config for config in configs}
    unfinished = resume.find(place.folder(cell), place.unfinished(cell, list(by_seed)))
    failed: list[int] = []

    def member(seed: int) -> Member:
        if request.signal:  # estimates of the prior, which are kept, may take longer than a warning
            raise SystemExit(128 + request.signal)
        config = by_seed.get(seed) or with_seed(configs[0], seed)
        folder = resume.seed_folder(place.folder(cell), seed)
        data = place.load(config)
        if isinstance(data, PUDataset) and prior_estimation.is_wanted(config):
            # Building checks the method before the estimate, which takes long.
            method_setup.build(config, prior_estimation.provisional(config, data), place.mesh)
            data = prior_estimation.settle(config, data, folder, place.mesh, known=place.estimates)
        return Member(method_setup.build(config, data, place.mesh), data, folder)

    def keeping_errors(*seeds: int):
        return _keeping_errors(cell, seeds, place, failed)

    anew: list[int] = []
    for folder, seeds in unfinished.groups:
        _LOG.info("%s: the group of seeds %s goes on", cell.name, seeds)
        before = len(failed)
        with keeping_errors(*seeds):
            group = [member(seed) for seed in seeds]
            experiment.run_members(group, place.mesh, request, folder=folder)
        if len(failed) == before and not configs[0].run.stop_after_epoch:
            # The folder's name has all seeds, also one that left the group and has no checkpoint
            # of its own: it could not be saved, or somebody has removed it.
            asked = [x for x in seeds if x in by_seed and x not in unfinished.alone]
            anew += place.unfinished(cell, asked)
    if anew:
        _LOG.warning("%s: seeds %s left their group and start again alone", cell.name, anew)
    members, reason = [], "--sequential"
    if not place.sequential:
        for seed in unfinished.new:
            with keeping_errors(seed):
                members.append(member(seed))
        reason = seed_axis.why_sequential(members, place.mesh)
    together = [one.seed for one in members]
    if members and not reason:
        layout = seed_axis.describe(members, place.mesh)
        _LOG.info("%s: seeds %s together, %s", cell.name, together, layout)
        with keeping_errors(*together):
            folder = resume.make_group_folder(place.folder(cell), together)
            experiment.run_members(members, place.mesh, request, folder=folder)
        members = []
    ready = {one.seed: one for one in members}
    new = unfinished.new if place.sequential else tuple(ready)
    if new:
        _LOG.info("%s: seeds %s one after another: %s", cell.name, new, reason)
    for seed in (*unfinished.alone, *anew, *new):
        with keeping_errors(seed):
            one = ready.pop(seed, None) or member(seed)
            experiment.run_one(one.setup, one.truth, place.mesh, one.folder, request)
    compilation_cache.release()  # the next cell has programs of its own
    return not failed


@contextlib.contextmanager
def _keeping_errors(
    cell: Cell, seeds: Sequence[int], place: Place, failed: list[int]
) -> Iterator[None]:
    """Writes an error that stops these seeds into their folders and does not raise it.

    Of any kind, such as of a device without memory left: the other cells do not depend on it.
    """
    for path in place.error_files(cell, seeds):
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)
    try:
        yield
    except (train_loop.NonFiniteError, ValueError, OSError) as error:
        _LOG.error("%s, seeds %s: %s", cell.name, place.unfinished(cell, seeds), error)
        place.write_error(cell, seeds, str(error))
        failed.extend(seeds)
    except Exception as error:
        _LOG.exception("%s, seeds %s stopped", cell.name, place.unfinished(cell, seeds))
        place.write_error(cell, seeds, f"{type(error).__name__}: {reading.one_line(error)}")
        failed.extend(seeds)


def with_seed(
    config: ml_collections.ConfigDict | ml_collections.FrozenConfigDict, seed: int
) -> ml_collections.FrozenConfigDict:
    """The same configuration with another seed."""
    changed = ml_collections.ConfigDict(config.to_dict())
    changed.seed = seed
    return ml_collections.FrozenConfigDict(changed)
