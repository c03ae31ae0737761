"""Says what a sweep would train, and how, without training."""

import contextlib
import pathlib
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from typing import Any

import ml_collections

from pujax.data.pu_dataset import PUDataset
from pujax.data.readers import download
from pujax.sweep import resume
from pujax.sweep.cell_runner import Place
from pujax.sweep.plan import Cell
from pujax.training import method_setup, own_results, prior_estimation, seed_axis, sharding
from pujax.training.seed_axis import Member


def describe(
    cell: Cell,
    configs: Sequence[ml_collections.FrozenConfigDict],
    place: Place,
    *,
    dry_run: bool,
) -> tuple[str, bool | None]:
    """Builds the method of a cell, which checks it, and says what there is to do.

    In a dry run nothing is downloaded, and no labeling mechanism is fitted: the numbers of labelled
    positives are those of `scar`.

    Returns:
      The text, and whether the method estimates numbers; None where it could not be built.

    Raises:
      ValueError: if configuration and data do not fit.
    """
    seeds = [config.seed for config in configs]
    if dry_run:
        if configs[0].data.source == "tfds":
            return f"  {cell.name}: data of 'tfds' are not looked at in a dry run", None
        configs = [_without_mechanism(config) for config in configs]
    try:
        with _offline(configs[0].data) if dry_run else contextlib.nullcontext():
            data = place.load(configs[0])
        if isinstance(data, PUDataset):
            data = prior_estimation.provisional(configs[0], data)
        own_results.check_decision(configs[0], data)
        setup = method_setup.build(configs[0], data, place.mesh)
        if isinstance(data, PUDataset) and data.own:
            own_results.check_method(configs[0].method.name, setup.method)
    except download.MissingDataError as error:
        if not dry_run:
            raise ValueError(f"{cell.name}: {error}") from error
        return f"  {cell.name}: data not found at {_root(configs[0].data)}", None
    except ValueError as error:
        raise ValueError(f"{cell.name}: {error}") from error
    n = len(setup.data.labeled)
    epochs = sum(stage.num_epochs for stage in setup.method.stages)
    steps = sum(x.num_epochs * x.batching.steps_per_epoch(n) for x in setup.method.stages)
    left = place.unfinished(cell, seeds)
    done = [seed for seed in seeds if seed not in left]
    text = f"  {cell.name}: {epochs} epochs, {steps} steps, seeds {', '.join(map(str, seeds))}" + (
        f" (finished: {', '.join(map(str, done))})" if done else ""
    )
    text += f"; {_mode(cell, configs, left, setup, place)}" if dry_run and left else ""
    return text, setup.method.estimates is not None


def _mode(
    cell: Cell, configs: Sequence, left: list[int], setup: method_setup.MethodSetup, place: Place
) -> str:
    """How the unfinished seeds of a cell would train."""
    unfinished = resume.Unfinished((), (), tuple(left))
    if place.workdir:
        unfinished = resume.find(place.folder(cell), left)
    parts = [f"the group of {', '.join(map(str, seeds))} goes on" for _, seeds in unfinished.groups]
    parts += [f"{seed} goes on alone" for seed in unfinished.alone]
    if unfinished.new:
        parts.append(_mode_of_new([c for c in configs if c.seed in unfinished.new], setup, place))
    return ", ".join(parts)


def _mode_of_new(configs: Sequence, setup: method_setup.MethodSetup, place: Place) -> str:
    """How seeds without checkpoints would train; their methods need not be built for that."""
    reason, mesh = "--sequential", place.mesh
    if not place.sequential:
        members = []
        for config in configs:
            truth = place.load(config)
            data = truth.reveal(setup.method.reveals) if setup.method.reveals else truth
            members.append(Member(setup._replace(config=config, data=data), truth, ""))
        reason = seed_axis.why_sequential(members, mesh)
        if not reason:
            mesh = sharding.spread_seeds(mesh, seed_axis.rows_for(members, mesh))
    setup.warn_of_uneven_batches(mesh.shape["data"])
    return f"one after another: {reason}" if reason else "together"


def _without_mechanism(config: ml_collections.FrozenConfigDict) -> ml_collections.FrozenConfigDict:
    changed = ml_collections.ConfigDict(config.to_dict())
    changed.data.update({"labeling": "scar", "labeling_power": 1.0})
    return ml_collections.FrozenConfigDict(changed)


class _NoNetwork(urllib.request.OpenerDirector):
    """An opener that refuses every address."""

    def open(self, *args: Any, **kwargs: Any) -> Any:
        """Raises the error of a missing network."""
        raise urllib.error.URLError("a dry run downloads nothing")


def _root(data: ml_collections.FrozenConfigDict) -> pathlib.Path:
    """Where the files of a `data` section are looked for."""
    return pathlib.Path(data.dir).expanduser() if data.dir else download.default_directory()


@contextlib.contextmanager
def _offline(data: ml_collections.FrozenConfigDict) -> Iterator[None]:
    """Inside, downloads through `urllib` (all of pujax use it) fail and leave no empty folders."""
    folder = _root(data) / data.source
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    urllib.request.install_opener(_NoNetwork())
    try:
        yield
    finally:
        urllib.request.install_opener(None)
        for path in missing:
            with contextlib.suppress(OSError):
                path.rmdir()  # created for the download, and empty
