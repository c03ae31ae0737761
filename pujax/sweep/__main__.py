"""The command line of a sweep; `python -m pujax.sweep --help` lists it."""

import sys

from absl import flags

from pujax import console
from pujax.sweep import plan as plan_lib
from pujax.sweep import runner
from pujax.training.evaluation import model_selection

_USAGE = """usage: python -m pujax.sweep --workdir=DIR (--plan=FILE | --config=FILE[:key=value,...])
  --workdir=DIR        folder of the results; a dry run needs none
  --plan=FILE[:ARG]    a Python file with get_plan([ARG]) -> pujax.sweep.Plan
  --config=FILE        a configuration file whose argument has `method` and `task`
  --methods=A,B        with --config: values of `method`
  --tasks=A,B          with --config: values of `task`
  --rules=A,B          with --config: which epochs to report
  --seeds=0,1,2        seeds of every cell (0,1,2; a plan has its own)
  --set=FIELD=VALUE    sets a field of every configuration; may be repeated
  --data_dir=FOLDER    where the data are; SOURCE=FOLDER,SOURCE=FOLDER for several places
  --only=TEXT          trains only the cells whose name holds TEXT
  --dry_run            says what would be trained; downloads and writes nothing
  --sequential         trains new seeds one after another
  --help               shows this text"""


def _flags() -> flags.FlagValues:
    values = flags.FlagValues()
    for name in ("plan", "config", "workdir", "data_dir", "only"):
        flags.DEFINE_string(name, "", name, flag_values=values)
    for name in ("methods", "tasks", "seeds", "rules"):
        flags.DEFINE_list(name, [], name, flag_values=values)
    flags.DEFINE_multi_string("set", [], "set", flag_values=values)
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
        raise ValueError(f"command line: {error}") from error
    if len(rest) > 1:
        raise ValueError(f"command line: {rest[1:]} is not understood; options begin with --")
    if values.help:
        return None, values
    if values.plan and values.config:
        raise ValueError(f"--plan and --config are both given; accepted: one of them\n{_USAGE}")
    if not values.plan and not values.config:
        raise ValueError(f"--plan or --config is missing; accepted: one of them\n{_USAGE}")
    if not values.workdir and not values.dry_run:
        raise ValueError(f"--workdir is missing; accepted: a folder\n{_USAGE}")
    if values.plan:
        for name in ("methods", "tasks", "rules"):
            if values[name].value:
                raise ValueError(f"--{name} is given with --plan; accepted: only with --config")
        plan = plan_lib.from_file(values.plan)
    else:
        plan = plan_lib.from_config(
            values.config,
            methods=values.methods,
            tasks=values.tasks,
            rules=values.rules or (model_selection.LAST,),
        )
    if values.seeds:
        plan = plan._replace(seeds=_seeds(values.seeds))
    plan = plan_lib.override(plan, values.set)
    return plan_lib.set_folders(plan, values.data_dir), values


def _seeds(texts: list[str]) -> tuple[int, ...]:
    try:
        return tuple(int(text) for text in texts)
    except ValueError as error:
        raise ValueError(f"--seeds is {','.join(texts)!r}; accepted: 0,1,2") from error


def main(argv: list[str]) -> int:
    """Runs what the command line says; returns the process's exit status."""
    console.show_own_messages()
    try:
        plan, values = parse(argv)
        if plan is None:
            console.message(_USAGE)
            return 0
        failed = runner.run(
            plan,
            values.workdir,
            dry_run=values.dry_run,
            only=values.only,
            sequential=values.sequential,
        )
    except (ValueError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
