"""The command line of a sweep; `pujax sweep --help` lists it."""

import os
import re
import sys

import jax
from absl import flags

from pujax import checks, command_line, console, huge_pages, usage
from pujax.sweep import launch, ray_engine, runner, shards, slurm_engine
from pujax.sweep import plan as plan_lib

# Flags that are integers, with the least that each may be and what it is by default.
_INTEGERS = {"cpus_per_cell": (1, 1), "gpus_per_cell": (0, 0), "minutes_per_cell": (1, 1440)}

# An empty one is a variable of a shell that is not set, and would train all there is.
_NEVER_EMPTY = ("methods", "tasks", "seeds", "rules", "only", "shard", "launch")


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("plan", "config", "workdir", "data_dir", "only", "shard", "launch", "reference"):
        flags.DEFINE_string(name, "", name, flag_values=values)
    for name in ("methods", "tasks", "seeds", "rules"):
        flags.DEFINE_list(name, [], name, flag_values=values)
    for name in ("set", "sbatch"):
        flags.DEFINE_multi_string(name, [], name, flag_values=values)
    for name, (_, number) in _INTEGERS.items():
        flags.DEFINE_integer(name, number, name, flag_values=values)
    for name in ("dry_run", "sequential"):
        flags.DEFINE_bool(name, False, name, flag_values=values)
    flags.DEFINE_bool("help", False, "help", short_name="h", flag_values=values)
    return values


def parse(argv: list[str]) -> tuple[plan_lib.Plan | None, flags.FlagValues]:
    """Reads the command line.

    Args:
      argv: program name and arguments.

    Returns:
      The plan, and the flags that say how to run it. With `--help` there is no plan.

    Raises:
      ValueError: naming the flag and what is wrong with it.
    """
    values = _flags()
    try:
        rest = values(argv)
    except flags.Error as error:
        given = re.match(r"flag --(\w+)=(.*?): ", str(error))
        if given and given[1] in _INTEGERS:
            accepted = f"accepted: an integer from {_INTEGERS[given[1]][0]}"
            raise ValueError(f"--{given[1]} is {given[2]!r}; {accepted}") from error
        raise ValueError(command_line.describe(error, values)) from error
    command_line.check_once(argv, values)
    if len(rest) > 1:
        raise ValueError(f"command line: {rest[1:]} is not understood; options begin with --")
    if values.help:
        return None, values
    text = usage.text("sweep", argv[0]).partition("\n")[0]
    if values.plan and values.config:
        raise ValueError(f"--plan and --config are both given; accepted: one of them\n{text}")
    if not values.plan and not values.config:
        raise ValueError(f"--plan or --config is missing; accepted: one of them\n{text}")
    if not values.workdir and not values.dry_run:
        raise ValueError(f"--workdir is missing; accepted: a folder\n{text}")
    for name in _NEVER_EMPTY:
        if values[name].present and not values[name].value:
            raise ValueError(f"--{name} is ''; accepted: a value, or the command without it")
    for name in ("methods", "tasks"):
        names = values[name].value or []
        if not all(names):
            accepted = "names with one comma between two"
            raise ValueError(f"--{name} is {','.join(names)!r}; accepted: {accepted}")
    _check_launch(values)
    if values.plan:
        for name in ("methods", "tasks", "rules", "reference"):
            if values[name].value:
                raise ValueError(f"--{name} is given with --plan; accepted: only with --config")
        plan = plan_lib.from_file(values.plan)
    else:
        plan = plan_lib.from_config(
            values.config,
            methods=values.methods,
            tasks=values.tasks,
            rules=tuple(values.rules) or None,
            reference=values.reference,
        )
    if values.seeds:
        plan = plan._replace(seeds=_seeds(values.seeds))
    plan_lib.check_cells(plan)
    plan = plan._replace(cells=tuple(plan.cells))
    trained = plan_lib.only(plan, values.only).cells if values.only else None
    plan = plan_lib.override(plan, values.set, trained=trained)
    if values.config:
        plan = plan_lib.with_usual_rules(plan)
    return plan_lib.set_folders(plan, values.data_dir), values


def _check_launch(values: flags.FlagValues) -> None:
    """Raises a ValueError for flags that do not fit the engine, or an engine that is not there."""
    of_engine = {
        "cpus_per_cell": ("ray", "slurm"),
        "gpus_per_cell": ("ray", "slurm"),
        "minutes_per_cell": ("slurm",),
        "sbatch": ("slurm",),
    }
    checks.one_of("--launch", values.launch, ("", "ray", "slurm"))
    for name, engines in of_engine.items():
        if values[name].present and values.launch not in engines:
            accepted = " or ".join(f"--launch={engine}" for engine in engines)
            raise ValueError(f"--{name} is {values[name].value!r}; accepted: with {accepted}")
    for name, (low, _) in _INTEGERS.items():
        checks.whole_number(f"--{name}", values[name].value, low)
    if values.launch and values.shard:
        raise ValueError(f"--shard is {values.shard!r} with --launch; accepted: one of them")
    if values.launch:
        {"ray": ray_engine, "slurm": slurm_engine}[values.launch].check()
    slurm_engine.sbatch_options(values.sbatch)


def _engine(values: flags.FlagValues) -> launch.Engine:
    """What the flags say that cells are trained by."""
    if values.launch == "ray":
        return ray_engine.RayEngine(values.cpus_per_cell, values.gpus_per_cell)
    return slurm_engine.SlurmEngine(
        os.path.join(os.path.abspath(values.workdir), "slurm"),
        values.cpus_per_cell,
        values.gpus_per_cell,
        values.minutes_per_cell,
        slurm_engine.sbatch_options(values.sbatch),
    )


def _seeds(texts: list[str]) -> tuple[int, ...]:
    try:
        return tuple(int(text) for text in texts)
    except ValueError as error:
        accepted = "whole numbers with commas between them, such as 0,1,2"
        raise ValueError(f"--seeds is {','.join(texts)!r}; accepted: {accepted}") from error


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    console.show_own_messages()
    try:
        plan, values = parse(argv)
        if plan is None:
            console.message(usage.text("sweep", argv[0]))
            return 0
        shard = shards.parse(values.shard) if values.shard else None
        options = {"only": values.only, "sequential": values.sequential}
        if values.launch and not values.dry_run:
            # This process trains nothing, and would keep memory of a GPU from its workers.
            jax.config.update("jax_platforms", "cpu")
            workdir = os.path.abspath(values.workdir)
            failed = launch.run(plan, workdir, _engine(values), **options)
        else:
            dry_run = values.dry_run
            failed = runner.run(plan, values.workdir, dry_run=dry_run, shard=shard, **options)
    except KeyboardInterrupt:  # not while a cell trains, where a first one saves
        sys.stderr.write("interrupted; the same command goes on from what was saved\n")
        return 130
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    huge_pages.restart()
    sys.exit(main(sys.argv))
