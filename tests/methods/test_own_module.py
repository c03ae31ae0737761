"""A method of one's own is a module anywhere on Python's path, named with a dot."""

import csv
import re
import shutil
import sys

import numpy as np
import pytest

import pujax
from pujax import catalogue, commands, methods
from pujax.sweep import plan as plan_lib
from pujax.training import config as config_lib
from pujax.training import experiment, saved_model
from pujax.training.config import flags
from tests import tiny
from tests.contract import test_markers as markers
from tests.contract import test_methods as contract

NAME = "own_package.mine"
SMALL = ("--config.method.num_epochs=1", "--config.model.options.hidden=(8,)")
QUIET = ("--config.run.figures=False", "--config.run.tensorboard=off")

pytestmark = pytest.mark.usefixtures("own", "one_device")


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A package whose module `mine` is uPU under another name; its folder."""
    folder = tmp_path_factory.mktemp("own")
    tiny.write_own_method(folder, "own_package")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "dont_write_bytecode", True)
        patch.syspath_prepend(str(folder))
        yield folder
    forget()


def forget():
    """Lets Python look for the package again."""
    for name in ("own_package", NAME):
        sys.modules.pop(name, None)


def test_it_trains_on_the_digits_like_a_method_of_pujax(tmp_path):
    found = []
    for name in (NAME, "upu"):
        words = [f"--config=baseline:method={name},task=digits,backbone=mlp", *SMALL, *QUIET]
        config = flags.parse(["", *words])[0]
        assert config.method.name == name and config.data.num_validation == 100  # by SELECTION
        found.append(experiment.run(config, str(tmp_path / name)))
    mine, theirs = found
    assert (mine["method"], theirs["method"]) == (NAME, "upu")
    assert mine["test"] == theirs["test"]


@pytest.fixture(scope="module")
def trained(own, one_device, tmp_path_factory):
    """A run of it on a table of one's own, compared with another one."""
    folder = tmp_path_factory.mktemp("runs")
    rng = np.random.default_rng(0)
    labels = np.arange(80) % 4 == 0
    rows = np.column_stack([rng.normal(3.0 * labels, 1), rng.normal(0, 1, 80), labels])
    heading = {"header": "a,b,is_p", "comments": "", "fmt": ("%.6f", "%.6f", "%d")}
    np.savetxt(folder / "rows.csv", rows, delimiter=",", **heading)
    words = [f"--config=own_table:method={NAME}", f"--config.data.path={folder}/rows.csv", *SMALL]
    words += ["--config.data.label=is_p", "--config.data.prior=0.3", "--config.run.compare=naive"]
    experiment.run(flags.parse(["", *words, *QUIET])[0], str(folder / "run"))
    return folder


def test_a_saved_model_predicts(trained):
    scores = trained / "scores.csv"
    words = [str(trained / "run"), str(trained / "rows.csv"), f"--output={scores}"]
    assert commands.main(["pujax", "predict", *words]) == 0
    assert len(list(csv.reader(scores.read_text().splitlines()))) == 81
    model = pujax.load(trained / "run")
    assert NAME in repr(model) and model.predict(trained / "rows.csv").scores.shape == (80,)


def test_a_saved_model_without_its_module_is_refused_in_a_line(trained, own, capsys):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [place for place in sys.path if place != str(own)])
        forget()
        with pytest.raises(ValueError, match=f"config.json: method.name is '{NAME}', which is no"):
            saved_model.load(trained / "run")
        words = [str(trained / "run"), str(trained / "rows.csv"), f"--output={trained}/none.csv"]
        assert commands.main(["pujax", "predict", *words]) == 2
        err = capsys.readouterr().err
        assert err.count("\n") == 1 and "No module named 'own_package'" in err
        assert not (trained / "none.csv").exists()


@pytest.mark.parametrize("model", ["", "model"])  # in the model itself, or in its run's folder
def test_a_module_in_the_model_s_own_folder_is_not_imported(
    trained, own, tmp_path, monkeypatch, model
):
    """A stranger's model could bring one, and commands look for modules in the current folder."""
    folder = tmp_path / "own_package"
    shutil.copytree(trained / "run" / "model", folder / model)
    for file in (own / "own_package").glob("*.py"):
        (folder / file.name).write_text("raise SystemExit('code of the model ran')")
    monkeypatch.syspath_prepend(str(tmp_path))
    forget()
    with pytest.raises(
        ValueError, match="config.json: method.name is 'own_package.mine', a module"
    ):
        saved_model.load(folder)
    assert "own_package" not in sys.modules


def test_it_can_be_compared_and_estimated_with():
    config = flags.parse(["", "--config=own_table", f"--config.run.compare={NAME}"])[0]
    config.data.path = "rows.csv"
    other = config_lib.resolve(config_lib.to_compare(config_lib.resolve(config), NAME))
    assert other.method.name == NAME
    assert NAME in methods.without_negatives(NAME) and NAME not in methods.without_negatives()
    rows = np.random.default_rng(0).normal(size=[40, 2]).astype(np.float32)
    labels = np.arange(40) % 2
    model = pujax.PUClassifier(NAME, prior=0.6, num_epochs=1, hidden=(4,), holdout=0)
    assert model.fit(rows, labels).predict(rows).shape == (40,)


def test_it_is_a_row_of_a_sweep():
    plan = plan_lib.from_config("baseline", methods=[NAME, "upu"], tasks=["digits"], reference=NAME)
    plan_lib.check(plan)
    assert [cell.folder for cell in plan.cells] == [f"digits/{NAME}", "digits/upu"]


def test_lists_are_those_of_pujax_and_its_fields_are_shown(capsys):
    assert NAME not in methods.names()
    assert NAME not in [entry.name for entry in catalogue.methods()]
    assert commands.main(["pujax", "methods", NAME]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"{NAME}: uPU: the unbiased PU risk") and "  learning_rate" in out


def test_the_contract_can_be_run_on_it():
    contract.test_default_config_builds_and_names_itself(NAME)
    contract.test_it_takes_a_table_of_numbers(NAME)
    markers.test_upper_case_names_of_a_method_are_known(NAME)
    markers.test_what_a_method_says_of_itself_can_be(NAME)
    (parameters,) = tiny.by_kind([NAME]).args[1]
    assert parameters.marks == ()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "nowhere.mine",
            "which is no module (ModuleNotFoundError: No module named 'nowhere'); acc",
        ),
        ("own_package.other", "which is no module (ModuleNotFoundError: No module named 'own_pack"),
        ("own_package.mine.x", "which is no module (ModuleNotFoundError: No module named 'own_pac"),
        ("os.path", "whose file "),
    ],
)
def test_what_is_no_method_is_refused_in_a_line(name, said, capsys):
    assert commands.main(["pujax", "methods", name]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    assert err.startswith(f"method.name is {name!r}, {said}")
    with pytest.raises(ValueError, match=re.escape(f"method.name is {name!r}, ")):
        flags.parse(["", f"--config=baseline:method={name}"])


@pytest.mark.parametrize("name", [".", "..", ".mine", "mine.", "a b.c", "a/b.py"])
def test_a_name_that_no_module_can_have_is_refused(name):
    accepted = "accepted: the dotted name of a module, PACKAGE.MODULE"
    with pytest.raises(ValueError, match=re.escape(f"method.name is {name!r}; {accepted}")):
        config_lib.default_config(name)


def test_what_has_protocols_of_its_own_takes_its_own_methods_only():
    with pytest.raises(ValueError, match=f"config argument method is '{NAME}'; accepted: gradpu,"):
        flags.parse(["", f"--config=gradpu:method={NAME}"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("open({mark!r}, 'w')", "has no default_config() and no build(); accepted"),
        (
            "def build(): ...\ndefault_config = exit(0)",
            "cannot be imported (line 2: SystemExit: 0)",
        ),
    ],
    ids=["no method", "a script"],
)
def test_a_file_is_looked_at_before_it_runs(own, tmp_path, text, said):
    mark = tmp_path / "ran"
    file = own / "own_package" / "script.py"
    file.write_text(text.format(mark=str(mark)))
    with pytest.raises(methods.UnusableMethod, match=re.escape(f"whose file {file} {said}")):
        methods.module("own_package.script")
    assert not mark.exists()
    file.unlink()
