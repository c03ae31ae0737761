"""The module of a method that cannot be used is named when it is asked for, and hurts no other."""

import os
import pathlib
import re
import sys

import pytest

from pujax import catalogue, commands, methods
from pujax.training.config import flags

HERE = pathlib.Path(methods.__file__).parent
WHOLE = '''"""Mine."""
import ml_collections
def default_config():
    return ml_collections.ConfigDict({"name": "mine"})
def build(config, info): ...
'''


@pytest.fixture
def mine(tmp_path, monkeypatch):
    """Writes the file of a method beside those of pujax."""
    for path in HERE.iterdir():
        if path.name != "__pycache__":
            os.symlink(path, tmp_path / path.name)
    monkeypatch.setattr(methods, "__path__", [str(tmp_path)])
    monkeypatch.setattr(catalogue, "_METHODS", tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def write(text):
        path = tmp_path / "mine.py"
        path.write_text(text, encoding="utf-8", errors="surrogateescape")
        return str(path)

    yield write
    sys.modules.pop("pujax.methods.mine", None)
    methods.__dict__.pop("mine", None)


def refused(capsys, *words):
    """What a command says in one line, with status 2."""
    assert commands.main(["pujax", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\ndef f(:\n", "line 2: invalid syntax"),
        ("\nimport ml_collection\n", "line 2: ModuleNotFoundError: No module named 'ml_collectio"),
        ("x = [][0]\n", "line 1: IndexError: list index out of range"),
        ("x = '\0'\n", ""),  # the words are another version's of Python
        ("x = '\udcff'\n", ""),
    ],
    ids=["syntax", "import", "error", "nul", "bytes"],
)
def test_a_file_that_cannot_be_imported_is_named_where_its_method_is_asked_for(
    text, reason, mine, tmp_path, capsys
):
    path = mine(text)
    start = f"method.name is 'mine', whose file {path} cannot be imported ({reason}"
    with pytest.raises(methods.UnusableMethod, match=re.escape(start)):
        methods.module("mine")
    assert refused(capsys, "methods", "mine").startswith(start)
    said = refused(capsys, "train", "--config=baseline:method=mine", f"--workdir={tmp_path}/run")
    assert said.startswith(f"command line: {start}") and not (tmp_path / "run").exists()
    said = refused(capsys, "sweep", "--config=baseline", "--methods=mine", "--dry_run")
    assert said.startswith(start)


@pytest.mark.parametrize(
    "text",
    ["def f(:\n", "import ml_collection\n", "x = '\0'\n", "x = '\udcff'\n"],
    ids=["syntax", "import", "nul", "bytes"],
)
def test_other_methods_and_their_lists_go_on(text, mine):
    mine(text)
    assert "mine" in methods.names()
    for name in ("baseline:method=nnpu,task=digits", "own_table", "own_folder:method=vpu"):
        assert flags.parse(["", f"--config={name}"])[0].method.name in ("nnpu", "vpu")
    assert {"nnpu", "vpu"} <= set(methods.without_negatives()) & set(
        methods.of_kind(multilabel=False)
    )


def test_a_list_says_what_it_leaves_out(mine, capsys):
    path = mine("\ndef f(:\n")
    said = f"Left out, which cannot be read: {path} (line 2: invalid syntax)\n"
    assert commands.main(["pujax", "methods"]) == 0
    out, err = capsys.readouterr()
    names = [line.split()[0] for line in out.splitlines()]
    assert err == said and names == [x for x in methods.names() if x != "mine"]
    for command in ("train", "compile"):
        assert commands.main(["pujax", command, "--help"]) == 0
    out, err = capsys.readouterr()
    assert out.count(said) == 1 and err == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "no default_config() and no build(); accepted: one that defines default_config() and"),
        ("def build(config, info): ...", "no default_config(); accepted: one that defines"),
        ("build = 3\ndef default_config(): ...", "no build(); accepted: one that defines"),
        (WHOLE + 'SELECTON = "last"', "the constant SELECTON (did you mean SELECTION?); accepted"),
        (WHOLE + "STAGE_LENGHTS: tuple = ()", "the constant STAGE_LENGHTS (did you mean STAGE_LEN"),
        (WHOLE.replace('"mine"', '"nnpu"'), "a default_config() that has the name 'nnpu'; accepte"),
        (WHOLE.replace("return", ""), "a default_config() that is None; accepted: a ConfigDict"),
        (WHOLE.replace("return", "return 1 / 0;"), "a default_config() that raises ZeroDivision"),
    ],
    ids=["empty", "build", "default_config", "misspelt", "annotated", "name", "stub", "raises"],
)
def test_a_module_that_is_not_that_of_a_method_is_refused(text, said, mine, capsys):
    path = mine(text)
    start = f"method.name is 'mine', whose file {path} has {said}"
    assert refused(capsys, "methods", "mine").startswith(start)
    with pytest.raises(ValueError, match=re.escape(start)):
        flags.parse(["", "--config=baseline:method=mine"])


@pytest.mark.parametrize(
    "name", ["_SELECTON", "STAGES", "LABELS", "NEGATIVES", "SELECTION_RULE", "selecton"]
)
def test_other_constants_are_fine(name, mine):
    mine(f"{WHOLE}{name} = 3\n")
    assert methods.module("mine").default_config().name == "mine"


def test_what_build_gives_is_a_method(mine):
    mine(WHOLE + "NETWORK = False\n")
    config = methods.module("mine").default_config()
    with pytest.raises(ValueError, match=r"build\(\) of mine is None; accepted: a Method"):
        methods.build(type(config)({"method": config}), None)
