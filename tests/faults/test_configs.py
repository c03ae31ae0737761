"""Every configuration file with every value of every argument: builds, trains, saves, resumes.

The data are tiny and so are the networks; what a file sets beside sizes stays. Every value is
built. Of those that differ in numbers alone, such as the data sets of a paper, one is trained; with
the marker `thorough` the first of every argument, and the first of every file is stopped and
resumed. Behind the marker `slow` all are trained, stopped and resumed.
"""

import functools
import importlib
import itertools
import json
import pathlib

import numpy as np
import pytest

from pujax import methods, training
from pujax.data.dataset import AUTO
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup
from tests import tiny
from tests.faults import runs as small_runs

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FILES = sorted(p.stem for p in (REPOSITORY / "configs").glob("*.py") if p.stem != "common")
MOST = 30
"""Combinations of arguments of a file that are resolved, at most."""

_SIZES = {
    "num_epochs": 2,
    "warmup_epochs": 1,
    "pretrain_epochs": 1,
    "representation_epochs": 1,
    "round_epochs": 1,
    "pick_start": 0,
    "pick_stop": 1,
    "pick_every": 1,
    "teacher_start": 1,
    "start_hmix": 0,
    "batch_size": 16,
    "head_batch_size": 16,
    "classifier_batch_size": 16,
    "support_batch_size": 8,
    "positives_per_batch": 4,
    "validation_positives": 5,
    "validation_unlabeled": 5,
    "num_clusters": 2,
    "kmeans_restarts": 1,
    "num_neighbors": 2,
    "embedding_dim": 4,
    "padding": 1,
    "crop_sizes": (8,),
    "lr_cycle_epochs": 0,
    "frozen_stages": 0,
    "num_members": 2,
    "head": None,
}


@functools.cache
def arguments(name):
    """What a file accepts: the values of every argument, the default first."""
    common = importlib.import_module("pujax.configs.common")
    calls, parse = [], common.parse

    def recorded(argument, *, own_methods=False, **accepted):
        calls.append({key: values for key, values in accepted.items() if values is not None})
        return parse(argument, own_methods=own_methods, **accepted)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(common, "parse", recorded)
        module(name).get_config()
    return calls[0] if calls else {}  # a file may begin with another one's


def module(name):
    return importlib.import_module(f"pujax.configs.{name}")


def made(name, chosen):
    """The configuration of a file with some arguments, and what it cannot be without."""
    config = module(name).get_config(",".join(f"{k}={v}" for k, v in chosen.items()))
    if name in ("own_table", "own_folder"):
        config.data.path = "rows"
    if config.model.name == config_lib.SAVED:
        config.init_from = "run"
    if config.method.get("head") == "semantic_graph":
        config.method.word_vectors = "random"
    return config


def single_values(name):
    """The default, and one configuration for every other value of every argument."""
    yield {}
    for key, values in arguments(name).items():
        yield from ({key: value} for value in values[1:])


def small(config):
    """The same with tiny sizes, a perceptron and no random views."""
    name = config.method.name
    sizes = dict(_SIZES)
    if name in ("nnpu",) or not config.method.get("positives_per_batch"):
        del sizes["positives_per_batch"]
    if config.method.get("head") == "semantic_graph":
        sizes["head"] = "gap"  # it takes feature maps
        config.method.word_vectors = ""
    sizes = {key: value for key, value in sizes.items() if value is not None}
    if name == "purl":
        sizes["num_epochs"] = 3  # two where it has no stage that learns a representation
    if name == "holistic_pu":
        # Two records of scores, then a phase.
        sizes |= {"num_epochs": 3, "pretrain_epochs": 2, "steps_per_epoch": 8}
    if "augment" in config.method:
        sizes |= {"augment": False, "crop_sizes": ()}
    for key, value in sizes.items():
        if key in config.method:
            config.method[key] = value
    config.model.name, config.model.image_size = "mlp", 0
    batch_norm = config.model.options.get("batch_norm", name != "gradpu")
    config.model.options = {"hidden": (8,), "batch_norm": batch_norm}
    if config.data.prior == AUTO:
        config.data.prior = 0.5
    run = {"figures": False, "compare": "", "eval_every": 1, "eval_batch_size": 64}
    config.run.update(run | {"steps_per_dispatch": 0, "checkpoint_every": 1})
    return config


def program(config):
    """What a run does, without how much of it: numbers count as 0, 1 or another one."""

    def kind(value):
        if isinstance(value, dict):
            return {name: kind(inner) for name, inner in value.items()}
        if isinstance(value, (bool, str)) or value is None:
            return value
        if isinstance(value, (int, float)):
            return value if value in (0, 1) else "number"
        return bool(value)

    tree = config.to_dict()
    kept = {"setting": tree["data"]["setting"], "selection": tree["run"]["selection"]}
    return json.dumps([kind(tree["method"]), kind(tree["model"]), kept], sort_keys=True)


@functools.cache
def problem(multilabel, setting, validation, support):
    if multilabel:
        return tiny.multilabel_problem(rows=True)
    more = {"num_support": 8 if support else 0, "setting": setting}
    more |= {"num_validation": 40} if validation else {}
    return tiny.table_problem(**more)


def problem_of(config):
    data = config.data
    validation = bool(data.get("num_validation") or data.get("holdout"))
    return problem(
        methods.is_multilabel(config.method.name), data.setting, validation, bool(data.num_support)
    )


@functools.cache
def runs():
    """By file, the arguments of every run that does what no run before it does."""
    found, kept = set(), {name: [] for name in FILES}
    for name in FILES:
        for chosen in single_values(name):
            run = program(small(made(name, chosen)))
            if run not in found:
                found.add(run)
                kept[name].append(chosen)
    return kept


def first_of_arguments(name):
    """Of these runs the default of a file, and one for every argument that makes a difference."""
    return list({tuple(chosen): chosen for chosen in reversed(runs()[name])}.values())[::-1]


@pytest.mark.parametrize("name", FILES)
def test_every_combination_of_arguments_resolves(name):
    asked = arguments(name)
    combinations = list(itertools.product(*asked.values()))
    rng = np.random.default_rng(0)
    num_resolved = 0
    for i in rng.permutation(len(combinations))[:MOST]:
        config = made(name, dict(zip(asked, combinations[i], strict=True)))
        try:
            config_lib.resolve(config)
            num_resolved += 1
        except ValueError as error:  # what does not go together is named
            assert "accepted" in str(error)
    assert num_resolved >= min(len(combinations), MOST) / 2


@pytest.mark.parametrize("name", FILES)
def test_every_value_of_every_argument_is_built(name):
    for chosen in single_values(name):
        assert config_lib.resolve(made(name, chosen))
        config = config_lib.resolve(small(made(name, chosen)))
        assert methods.build(config, problem_of(config).info).stages, chosen


@pytest.fixture
def tiny_runs(monkeypatch):
    """Runs see one device and the tiny data; one that goes on has the programs it began with."""
    monkeypatch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
    monkeypatch.setattr(experiment, "load_data", problem_of)
    monkeypatch.setattr(method_setup, "build", tiny.shared_setups())


def trained(config, folder, *, is_stopped):
    """The rows of a run, which is stopped after an epoch and resumed where it can be."""
    # What is fitted at once has nowhere to stop.
    if is_stopped and methods.has_network(config.method.name):
        config.run.stop_after_epoch = 1
        assert training.run(config, str(folder)) is None
        config.run.stop_after_epoch = 0
    summary = training.run(config, str(folder))
    assert summary["method"] == config.method.name and summary["test"]
    assert (folder / "checkpoints").is_dir()
    rows = small_runs.rows(folder)
    assert [row["epoch"] for row in rows] == list(range(summary["num_epochs"]))
    return rows


def marked(name):
    """The file of all methods is slow; each of them is put to its contract."""
    return pytest.param(name, marks=pytest.mark.slow if name == "baseline" else ())


@pytest.mark.thorough
@pytest.mark.parametrize("name", [marked(name) for name in FILES])
def test_it_trains_saves_resumes_and_evaluates(name, tmp_path, tiny_runs):
    for number, chosen in enumerate(first_of_arguments(name)):
        print(chosen)  # shown where it fails
        trained(small(made(name, chosen)), tmp_path / str(number), is_stopped=number == 0)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_run_goes_on_to_the_rows_of_one_that_was_not_stopped(name, tmp_path, tiny_runs):
    for number, chosen in enumerate(runs()[name]):
        print(chosen)
        config, folder = small(made(name, chosen)), tmp_path / str(number)
        resumed = trained(config.copy_and_resolve_references(), folder / "a", is_stopped=True)
        assert resumed == trained(config, folder / "b", is_stopped=False)
