"""What a method's module says in upper case is known, and can be.

`methods.MARKERS` lists it, and docs/adding_a_method.md says what it means.
"""

import ast
import math
import pathlib
import re
import types

import pytest

from pujax import methods
from pujax.training import config as config_lib
from pujax.training.evaluation import model_selection
from tests import tiny


def unknown(source):
    """Upper-case names that a method's module gives a value, and that nothing reads."""
    nodes = [x for x in ast.parse(source).body if isinstance(x, (ast.Assign, ast.AnnAssign))]
    targets = [t for x in nodes for t in (x.targets if isinstance(x, ast.Assign) else [x.target])]
    names = {x.id for target in targets for x in ast.walk(target) if isinstance(x, ast.Name)}
    return sorted(x for x in names - set(methods.MARKERS) if re.fullmatch("[A-Z][A-Z0-9_]*", x))


def source_of(name):
    return pathlib.Path(methods.module(name).__file__).read_text()


def needs_prior(rule):
    try:
        model_selection.check(rule, math.nan)
    except ValueError:
        return True
    return False


def is_length(section, field):
    """Whether a field is a number of the epochs that the method has, or 'auto' for one."""
    value = section.get(field)
    if field.endswith("_epochs") and value == "auto":
        return True
    return field != "num_epochs" and type(value) is int and 0 <= value <= section["num_epochs"]


def wrong(module):
    """Names of the markers of a module whose values cannot be, given its fields."""
    section = module.default_config().to_dict()
    said = {name: vars(module).get(name, default) for name, default in methods.MARKERS.items()}
    lengths = (*said["STAGE_LENGTHS"], *said["ROUND_LENGTHS"])
    rule, without_prior = said["SELECTION"], said["SELECTION_WITHOUT_PRIOR"]
    good = {
        "COMPARES_VIEWS": section.get("augment") or not said["COMPARES_VIEWS"],
        "NETWORK": said["NETWORK"] == ("num_epochs" in section),
        "OWN_ROWS": all(
            type(section.get(field)) is type(value) and section[field] != value
            for field, value in said["OWN_ROWS"].items()
        ),
        "ROUND_LENGTHS": all(
            is_length(section, field)
            and section[field]
            and not section["num_epochs"] % section[field]
            for field in said["ROUND_LENGTHS"]
        ),
        "SELECTION": rule in model_selection.WITHOUT_TRUTH,
        "SELECTION_WITHOUT_PRIOR": without_prior in model_selection.WITHOUT_TRUTH
        and not needs_prior(without_prior)
        and (needs_prior(rule) or "SELECTION_WITHOUT_PRIOR" not in vars(module)),
        "STAGE_LENGTHS": all(is_length(section, field) for field in said["STAGE_LENGTHS"])
        and len(set(lengths)) == len(lengths),
    }
    # A value of another type, or one that says what holds anyway.
    idle = {
        name
        for name, default in methods.MARKERS.items()
        if name in vars(module) and (type(said[name]) is not type(default) or said[name] == default)
    }
    return sorted(idle | {name for name, is_good in good.items() if not is_good})


@pytest.mark.parametrize("name", tiny.METHODS)
def test_upper_case_names_of_a_method_are_known(name):
    hint = "pujax.methods.MARKERS lists what is read; other constants begin with an underscore"
    assert unknown(source_of(name)) == [], hint


@pytest.mark.parametrize("name", tiny.METHODS)
def test_what_a_method_says_of_itself_can_be(name):
    assert wrong(methods.module(name)) == []


@pytest.mark.parametrize("name", tiny.METHODS)
def test_a_method_says_whether_it_needs_negatives_or_hidden_labels(name):
    config = config_lib.default_config(name)
    config.model.name = "mlp"
    config.method.update(methods.own_rows(name))
    if "augment" in config.method:
        config.method.augment = False
    several = methods.is_multilabel(name)
    info = tiny.multilabel_problem(rows=True).info if several else tiny.own_table_info()
    try:
        reveals, refused = methods.build(config_lib.resolve(config), info).reveals, False
    except ValueError as error:
        assert "num_support" in str(error)
        reveals, refused = "", True
    assert getattr(methods.module(name), "ORACLE", False) == bool(reveals)
    if not several:
        assert methods.needs_negatives(name) == (refused or bool(reveals))


def module_of(name, **markers):
    """A module like that of a method, which says something else."""
    module = types.ModuleType(name)
    module.__dict__.update(vars(methods.module(name)))
    module.__dict__.update(markers)
    return module


@pytest.mark.parametrize(
    "marker", ["STAGE_LENGHTS", "STAGE_LENGTH", "SELECTIONS", "OWN_ROW", "NEED_NEGATIVES"]
)
def test_a_misspelt_one_is_found(marker):
    source = source_of("dist_pu")
    assert unknown(f'{source}\n{marker} = ("warmup_epochs",)\n') == [marker]
    assert unknown(f"{source}\n{marker}: tuple[str, ...] = ()\n") == [marker]
    assert unknown(f"{source}\n_{marker} = STAGE_LENGTHS\n") == []


@pytest.mark.parametrize(
    ("name", "marker", "value"),
    [
        ("dist_pu", "STAGE_LENGTHS", ("warmup_epoch",)),  # no such field
        ("dist_pu", "STAGE_LENGTHS", ("learning_rate",)),  # no number of epochs
        ("dist_pu", "STAGE_LENGTHS", ("batch_size",)),  # more than there are epochs
        ("dist_pu", "STAGE_LENGTHS", ("num_epochs",)),
        ("dist_pu", "STAGE_LENGTHS", ("warmup_epochs", "warmup_epochs")),
        ("dist_pu", "STAGE_LENGTHS", ["warmup_epochs"]),
        ("dist_pu", "STAGE_LENGTHS", ()),  # what holds anyway
        ("puupl", "STAGE_LENGTHS", ("round_epochs",)),  # a round's length already
        ("robust_pu", "ROUND_LENGTHS", ("rounds",)),
        ("robust_pu", "ROUND_LENGTHS", ("lr_every",)),  # 20 of 125
        ("cvir", "ROUND_LENGTHS", ("augment",)),
        ("self_pu", "ROUND_LENGTHS", ("batch_size",)),
        ("self_pu", "OWN_ROWS", {"calibration": False}),  # a word
        ("self_pu", "OWN_ROWS", {"calibrations_meta": False}),
        ("self_pu", "OWN_ROWS", {"calibration_meta": True}),  # as everywhere
        ("nnpu", "SELECTION", "oracle"),
        ("nnpu", "SELECTION", "vpu"),
        ("nnpu", "SELECTION_WITHOUT_PRIOR", "last"),  # never asked
        ("upu", "SELECTION_WITHOUT_PRIOR", "proxy_accuracy"),  # needs a prior, too
        ("nnpu", "COMPARES_VIEWS", True),  # has none by default
        ("nnpu", "NETWORK", False),
        ("nnpu", "ORACLE", False),
        ("nnpu", "MULTILABEL", 1),
    ],
)
def test_a_value_that_cannot_be_is_found(name, marker, value):
    assert wrong(module_of(name, **{marker: value})) == [marker]
