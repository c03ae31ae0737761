"""The plan of a sweep: cells of a table, each a configuration, and the seeds that all share."""

import ast
import importlib.util
import inspect
import math
import os
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import ml_collections

from pujax import checks, configs, report
from pujax.data import sources
from pujax.training import config as config_lib
from pujax.training.config import flags
from pujax.training.evaluation import model_selection

FIGURES = ("paired", "curve")
"""What the names of a sweep's figures begin with."""
FIXED = {"figures": False, "compare": "", "tensorboard": "off"}
"""Fields of `run` in every run of a sweep, which draws and compares by itself."""
_SECTIONS = ("data", "method", "model", "run", "seed")
_NOT_IN_A_LINE = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of control characters, lone surrogates, and separators of lines."""
_LONGEST = 200  # file systems end at 255 bytes, and figures add to the name
_SEEDS = f"whole numbers from 0 to {2**31 - 1}"


class Cell(NamedTuple):
    """One entry of the table.

    Attributes:
      row: label of the row, usually a method, in one line. As the name of a folder it has at most
        200 characters.
      column: label of the column, usually a data set, likewise.
      config: configuration; its seed is replaced by the plan's.
      published: mean and standard deviation that a paper states, in percent where the metric is, or
        None. A deviation that the paper does not state is None too.
      note: a sentence for below the table.
    """

    row: str
    column: str
    config: ml_collections.ConfigDict
    published: tuple[float, float | None] | None = None
    note: str = ""

    @property
    def name(self) -> str:
        """Row and column, as messages show it and `--only` compares it."""
        return f"{self.row} on {self.column}"

    @property
    def folder(self) -> str:
        """Place of the cell inside the sweep's folder."""
        return os.path.join(slug(self.column), slug(self.row))


class Plan(NamedTuple):
    """A whole table.

    Attributes:
      title: heading of the table, in one line.
      cells: its entries, in order.
      seeds: seeds that every cell is trained with.
      rules: which epochs to report, of `report.RULES`; paired differences are those of the first.
        None is the last epoch, or on a user's own rows alone the one that each run reports.
      metric: one of `report.METRICS`: 'accuracy', 'f1', 'auc' or 'average_precision', for several
        labels 'mean_average_precision', 'overall_f1' or 'class_f1', all in percent; 'prior_error',
        the absolute error of the class prior that a method estimates; or, of a user's own rows at
        the epoch that a run reports, 'auc_pu', 'recall', 'flagged_share', 'precision_top_100' (in
        percent) or 'lee_liu', from the rows held out. '' is 'accuracy', or 'auc_pu' where all cells
        are of own rows without a test set, or 'mean_average_precision' where all have several
        labels.
      reference: label of a row that the others of its column are compared with, seed by seed; ''
        for none.
      also: other metrics that the table shows beside `metric`. None is none, or where `metric` is
        '' and all cells are of own rows, all that can be known.
      published_rule: one of `rules`, by which the published figures were chosen; '' for the first.
      costs: whether the table shows seconds and peak memory.
    """

    title: str
    cells: Sequence[Cell]
    seeds: Sequence[int] = (0, 1, 2)
    rules: Sequence[str] | None = None
    metric: str = ""
    reference: str = ""
    also: Sequence[str] | None = None
    published_rule: str = ""
    costs: bool = False


def slug(label: str) -> str:
    """A label as the name of a folder or file."""
    return re.sub(r"[^A-Za-z0-9._+-]+", "_", label).strip("._") or "_"


def check(plan: Plan) -> None:
    """Raises a ValueError for a plan that cannot be trained, before any data is read.

    What depends on the data is checked by `own_rows.settle`.
    """
    _check_line("title", plan.title)
    check_cells(plan)
    for field in ("reference", "published_rule"):
        value = getattr(plan, field)
        checks.require(isinstance(value, str), field, value, "a string, '' for none")
    for field, example in (("seeds", (0, 1, 2)), ("rules", ("last",)), ("also", ("auc",))):
        value = getattr(plan, field)
        is_list = _is_sequence(value) or (value is None and field != "seeds")
        checks.require(is_list, field, value, f"a sequence, such as {example}")
    if plan.reference:
        checks.one_of("reference", plan.reference, sorted({cell.row for cell in plan.cells}))
    checks.require(len(plan.seeds) > 0, "seeds", (), "at least one seed")
    for seed in plan.seeds:
        is_whole = isinstance(seed, int) and not isinstance(seed, bool)
        checks.require(is_whole and 0 <= seed < 2**31, "seeds", seed, _SEEDS)
    checks.require(
        len(set(plan.seeds)) == len(plan.seeds), "seeds", plan.seeds, "seeds that differ"
    )
    checks.one_of("metric", plan.metric, ("", *report.METRICS))
    rules, also = plan.rules, plan.also or ()
    checks.require(rules is None or len(rules) > 0, "rules", (), ", ".join(report.RULES))
    for rule in rules or ():
        checks.one_of("rules", rule, report.RULES)
        if rule in model_selection.COLUMNS:
            checks.require(
                any(config_lib.holds_out(cell.config) for cell in plan.cells),
                "rules",
                rule,
                f"'last', {report.REPORTED!r} and {report.BEST_EPOCH!r} while data.num_validation "
                "and data.holdout are 0 in every cell",
            )
    rules_differ = len(set(rules or ())) == len(rules or ())
    checks.require(rules_differ, "rules", rules, "rules that differ")
    if report.BEST_EPOCH in (rules or ()):
        accepted = f"{', '.join(map(repr, report.WITH_BEST_EPOCH))} with {report.BEST_EPOCH}"
        has_best = plan.metric in ("", *report.WITH_BEST_EPOCH)
        checks.require(has_best, "metric", plan.metric, accepted)
    others = [name for name in report.METRICS if name != (plan.metric or "accuracy")]
    for metric in also:
        checks.one_of("also", metric, others)
    checks.require(len(set(also)) == len(also), "also", also, "metrics that differ")
    if plan.published_rule:  # without rules it depends on the data which of the two is shown
        usual = (model_selection.LAST, report.REPORTED)
        checks.one_of("published_rule", plan.published_rule, rules or usual)
    checks.require(isinstance(plan.costs, bool), "costs", plan.costs, "True or False")
    taken: dict[str, Cell] = {}
    for cell in plan.cells:
        other = taken.setdefault(cell.folder, cell)
        if other is not cell:
            raise ValueError(
                f"cells are {other.name!r} and {cell.name!r}; accepted: labels whose folders "
                f"differ (both are {cell.folder!r})"
            )


def check_cells(plan: Plan) -> None:
    """Raises a ValueError unless a plan has cells, each with labels and a configuration."""
    are_cells = _is_sequence(plan.cells) and all(isinstance(x, Cell) for x in plan.cells)
    kinds = type(plan.cells).__name__
    if _is_sequence(plan.cells):
        kinds = f"{kinds} of {', '.join(sorted({type(x).__name__ for x in plan.cells}))}"
    if not are_cells:
        raise ValueError(f"cells is a {kinds}; accepted: a list of pujax.sweep.Cell")
    checks.require(len(plan.cells) > 0, "cells", (), "at least one cell")
    for cell in plan.cells:
        _check_cell(cell)


def _is_sequence(value: Any) -> bool:
    """Whether it is a list of things; a string and a named tuple are sequences to Python alone."""
    return isinstance(value, Sequence) and not isinstance(value, (str, Cell))


def _check_cell(cell: Cell) -> None:
    """Raises a ValueError for what a cell cannot be trained with or the table fails on."""
    for field in ("row", "column"):
        text = getattr(cell, field)
        _check_line(f"{field} of a cell", text)
        accepted = f"a label of at most {_LONGEST} characters as the name of a folder"
        checks.require(len(slug(text)) <= _LONGEST, f"{field} of a cell", text, accepted)
    lacking = _lacking(cell.config)
    if lacking:
        raise ValueError(
            f"config of {cell.name} is {lacking}; accepted: a ml_collections.ConfigDict with "
            f"{', '.join(_SECTIONS)}"
        )
    accepted = "None, or a mean and a standard deviation, which may be None, both finite"
    is_known = is_published(cell.published)
    checks.require(is_known, f"published of {cell.name}", cell.published, accepted)


def _check_line(field: str, text: Any) -> None:
    """Raises a ValueError for what cannot stand in a line of a table, or in a heading."""
    checks.require(isinstance(text, str), field, text, "a string")
    is_line = not any(unicodedata.category(x) in _NOT_IN_A_LINE for x in text)
    checks.require(is_line, field, text, "one line of text without control characters")


def is_published(figures: Any) -> bool:
    """Whether it is what `Cell.published` may be; JSON gives a tuple back as a list."""
    if figures is None:
        return True
    if not isinstance(figures, (tuple, list)) or len(figures) != 2:
        return False
    mean, std = figures
    return _is_finite(mean) and (std is None or _is_finite(std))


def _is_finite(value: Any) -> bool:
    return bool(checks.is_number(value)) and math.isfinite(value)


def from_file(text: str) -> Plan:
    """The plan of a Python file with `get_plan() -> Plan`.

    Args:
      text: `FILE`, or `FILE:ARGUMENT` for a file whose `get_plan` takes an argument; in place of
        FILE the name of a plan of pujax.

    Raises:
      ValueError: naming the file, if it has none, or one that does not take the argument.
    """
    path, _, argument = configs.find(text, "--plan").partition(":")
    get_plan = _function("--plan", path, "get_plan")
    if argument and not inspect.signature(get_plan).parameters:
        raise ValueError(f"--plan is {text!r}; accepted: {path!r}, which takes no argument")
    try:
        plan = get_plan(argument) if argument else get_plan()
        if isinstance(plan, Plan) and isinstance(plan.cells, Iterator):
            plan = plan._replace(cells=tuple(plan.cells))
    except ValueError:  # of a field or an argument, which it names
        raise
    except Exception as error:
        what = "whose get_plan returns a pujax.sweep.Plan"
        raise configs.failure("--plan", text, error, what) from error
    if not isinstance(plan, Plan):
        raise ValueError(
            f"--plan={text} gives a {type(plan).__name__}; accepted: a pujax.sweep.Plan"
        )
    return plan


def from_config(
    config: str,
    *,
    methods: Sequence[str] = (),
    tasks: Sequence[str] = (),
    seeds: Sequence[int] = (0, 1, 2),
    rules: Sequence[str] | None = None,
    reference: str = "",
) -> Plan:
    """Every method on every task of one configuration file.

    Args:
      config: `FILE` or `FILE:key=value,...`, a file with `get_config(argument)`; in place of FILE
        the name of a configuration of pujax.
      methods: values of the file's argument `method`; empty leaves its default.
      tasks: values of its argument `task`; empty leaves its default.
      seeds: seeds of every cell.
      rules: as in `Plan`.
      reference: as in `Plan`, one of `methods`.

    Raises:
      ValueError: if there is no such file, or it does not accept the arguments.
    """
    path, _, argument = configs.find(config).partition(":")
    get_config = _function("--config", path, "get_config")
    cells = []
    for task in tasks or ("",):
        for method in methods or ("",):
            parts = (argument, f"method={method}" * bool(method), f"task={task}" * bool(task))
            made = _made(get_config, ",".join(filter(None, parts)), config)
            cells.append(Cell(method or made.method.name, task or made.data.source, made))
    title = os.path.splitext(os.path.basename(path))[0]
    return Plan(title, tuple(cells), tuple(seeds), rules, reference=reference)


def _made(get_config: Any, argument: str, text: str) -> ml_collections.ConfigDict:
    """What a file's `get_config` returns, which must be a configuration."""
    what = configs.RETURNS_ONE
    try:
        made = get_config(argument)
    except ValueError:  # of an argument, which it names
        raise
    except Exception as error:
        raise configs.failure("--config", text, error, what) from error
    lacking = _lacking(made)
    if lacking:
        raise ValueError(f"--config={text}: get_config returns {lacking}; accepted: a file {what}")
    return made


def _lacking(config: Any) -> str:
    """What keeps a value from being a configuration; '' where it is one."""
    if not isinstance(config, ml_collections.ConfigDict | ml_collections.FrozenConfigDict):
        return f"a {type(config).__name__}"
    missing = [name for name in _SECTIONS if name not in config]
    return f"a ConfigDict without {', '.join(missing)}" if missing else ""


def chooses_epochs(plan: Plan) -> bool:
    """Whether a rule of its table looks at more of a run than its last and its reported epoch."""
    return bool({*(plan.rules or ())} - {model_selection.LAST, report.REPORTED})


def with_usual_rules(plan: Plan) -> Plan:
    """A plan without rules shows what each run reports, if a part is held out to choose it by."""
    if plan.rules is None and any(config_lib.holds_out(cell.config) for cell in plan.cells):
        return plan._replace(rules=(report.REPORTED,))
    return plan


def _function(flag: str, path: str, name: str) -> Any:
    """A function of a Python file."""
    if not os.path.isfile(path):
        raise ValueError(f"{flag} is {path!r}; accepted: {configs.accepted(flag)}")
    stem = re.sub(r"\W", "_", os.path.splitext(os.path.basename(path))[0])
    spec = importlib.util.spec_from_file_location(f"pujax_sweep_{stem}", path)
    if spec is None or spec.loader is None:
        raise ValueError(f"{flag} is {path!r}; accepted: a file whose name ends in .py")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except SyntaxError as error:
        where = f"{error.filename or path}, line {error.lineno}"
        raise ValueError(f"{flag}={path}: {error.msg} ({where}); accepted: Python") from error
    except ImportError as error:
        raise ValueError(f"{flag}={path}: {error}; accepted: a file that imports") from error
    except ValueError:  # of what it asks pujax for, which it names
        raise
    except Exception as error:
        raise configs.failure(flag, path, error, "that runs") from error
    if not hasattr(module, name):
        raise ValueError(f"{flag}={path} has no {name}(); accepted: a file that defines it")
    return getattr(module, name)


def override(plan: Plan, settings: Sequence[str], *, trained: Sequence[Cell] | None = None) -> Plan:
    """The plan with fields set in every cell.

    Args:
      plan: a plan.
      settings: `SECTION.FIELD=VALUE` each.
      trained: the cells of the plan that will be trained, None for all. Another cell may lack a
        field, and is then left without it; where it has the field, that is set as well, so that a
        later call for all cells finds what this one wrote.

    Raises:
      ValueError: for a field that the configuration of a cell to be trained does not have.
    """
    cells = []
    for cell in plan.cells:
        config = ml_collections.ConfigDict(cell.config.to_dict())
        is_trained = trained is None or any(cell is other for other in trained)
        for setting in settings:
            if is_trained or _section(config, setting) is not None:
                _set(config, setting, cell)
        cells.append(cell._replace(config=config))
    return plan._replace(cells=tuple(cells))


def _set(config: ml_collections.ConfigDict, setting: str, cell: Cell) -> None:
    field, equals, text = setting.partition("=")
    *sections, last = field.removeprefix("config.").split(".")
    if [*sections, last] == ["seed"]:
        raise ValueError(f"--set is {setting!r}; accepted: another field; --seeds has the seeds")
    section = _section(config, setting)
    if not equals or section is None:
        lacking = f" ({cell.name} has no such field; --only=TEXT trains those that TEXT names)"
        which = "" if section is not None else lacking
        raise ValueError(
            f"--set is {setting!r}; accepted: SECTION.FIELD=VALUE with a field of every cell that "
            f"is trained{which}"
        )
    value: Any = text
    if isinstance(section.get(last), bool) and text.lower() in flags.BOOLEANS:
        value = flags.BOOLEANS[text.lower()]
    elif not isinstance(section.get(last), str) or section[last] == "auto":  # or a number
        try:
            value = ast.literal_eval(text)
        except (ValueError, TypeError, SyntaxError):
            value = text  # the configuration's check names the field and its values
    place = ".".join([*sections, last])
    if sections == ["run"] and value != FIXED.get(last, value):
        raise ValueError(
            f"--set is {setting!r}; accepted: another field, since {place} is {FIXED[last]!r} in "
            "every run of a sweep, whose methods are those of --methods or the plan"
        )
    # The options depend on the network; a dictionary in place of another section lacks fields.
    is_options = place == "model.options" and isinstance(value, dict)
    if isinstance(section.get(last), ml_collections.ConfigDict) and not is_options:
        raise ValueError(
            f"--set is {setting!r}; accepted: a field of the section {place}, as "
            f"{place}.{next(iter(section[last]), 'FIELD')}=VALUE"
        )
    with section.ignore_type():
        section[last] = value


def _section(config: ml_collections.ConfigDict, setting: str) -> ml_collections.ConfigDict | None:
    """The section that has the field of a setting; None if there is none."""
    *sections, last = setting.partition("=")[0].removeprefix("config.").split(".")
    section = config
    for name in sections:
        section = section.get(name) if isinstance(section, ml_collections.ConfigDict) else None
    is_free = sections == ["model", "options"]
    has_field = isinstance(section, ml_collections.ConfigDict) and (last in section or is_free)
    return section if has_field else None


def set_folders(plan: Plan, folders: str) -> Plan:
    """The plan with the folder of every cell's data.

    Args:
      plan: a plan.
      folders: `FOLDER`, or `SOURCE=FOLDER,...`; '' leaves the configurations' own.

    Raises:
      ValueError: for an unknown source.
    """
    chosen = _folders(folders)
    cells = []
    for cell in plan.cells:
        config = ml_collections.ConfigDict(cell.config.to_dict())
        folder = chosen.get(config.data.source, chosen.get(""))
        config.data.dir = config.data.dir if folder is None else folder
        cells.append(cell._replace(config=config))
    return plan._replace(cells=tuple(cells))


def _folders(text: str) -> Mapping[str, str]:
    """Folder by source; the key '' is for every other source."""
    if "=" not in text or os.sep in text.partition("=")[0]:  # a folder may have one in its name
        return {"": text} if text else {}
    chosen = {}
    for part in filter(None, text.split(",")):
        source, _, folder = part.partition("=")
        checks.one_of("--data_dir", source, sources.NAMES)
        chosen[source] = folder
    return chosen


def only(plan: Plan, text: str) -> Plan:
    """The cells whose name holds a text, or the one that has it as its whole name.

    "nnPU on MNIST k=1" is a part of "nnPU on MNIST k=10" too.

    Raises:
      ValueError: if there is none.
    """
    cells = tuple(cell for cell in plan.cells if text == cell.name)
    cells = cells or tuple(cell for cell in plan.cells if text in cell.name)
    if not cells:
        names = ", ".join(repr(cell.name) for cell in plan.cells)
        raise ValueError(f"--only is {text!r}; accepted: a part of {names}")
    return plan._replace(cells=cells)
