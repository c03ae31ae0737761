"""The command `pujax`: what it lists is there, what its help says is true, and names find files."""

import importlib
import json
import pathlib
import re
import runpy
import shlex
import subprocess
import sys

import jax
import pytest

from pujax import catalogue, commands, configs, huge_pages, methods, priors, usage
from pujax.aot import topologies
from pujax.sweep import __main__ as sweep_command
from pujax.sweep import plan as plan_lib
from pujax.training import config as config_lib
from pujax.training.config import flags
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]


def run(*words):
    return commands.main(["pujax", *words])


def examples(command):
    """Command lines below the help text's 'Examples:', in words and without the first two."""
    lines = usage.text(command, f"pujax {command}").split("\nExamples:\n")[1].splitlines()
    assert all(line.startswith(f"  pujax {command}") for line in lines)
    return [shlex.split(line)[2:] for line in lines]


def options(text):
    """Names of the options in the help text of a command, without the configuration's fields."""
    return set(re.findall(r"^  --(\w+)(?=[=\[ ])", text, re.MULTILINE))


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_the_overview_lists_every_command(words, capsys):
    assert run(*words) == 0
    text = capsys.readouterr().out
    for command, (_, line) in commands.COMMANDS.items():
        assert re.search(rf"^  {command} +{re.escape(line)}$", text, re.MULTILINE)
    assert text.count("\n  pujax ") == 3


@pytest.mark.parametrize("word", ["trian", "", "--config=x", "help", "-m"])
def test_another_command_is_refused_in_a_line_that_lists_them(word, capsys):
    assert run(word, "--help") == 2
    said = f"command is {word!r}; accepted: {', '.join(commands.COMMANDS)}\n"
    assert capsys.readouterr() == ("", said)


@pytest.mark.parametrize("command", ["check", "priors"])
def test_devices_that_jax_cannot_start_are_one_line(command, tmp_path, monkeypatch, capsys):
    def devices():
        raise RuntimeError("no TPU here")

    monkeypatch.setattr(jax, "devices", devices)
    path = tmp_path / "table.csv"
    path.write_text("x,label\n1,1\n2,\n3,1\n4,\n")
    assert run(command, str(path), "--label=label") == 2
    error = capsys.readouterr().err
    assert error.startswith("JAX_PLATFORMS is ") and "no TPU here" in error
    assert error.count("\n") == 1


def test_an_interrupt_while_a_command_is_imported_is_one_line(monkeypatch, capsys):
    def interrupted(name):
        raise KeyboardInterrupt

    monkeypatch.setattr(huge_pages, "restart", lambda: None)
    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert run("train", "--config=lagam_digits") == 130
    monkeypatch.setattr(sys, "argv", ["train.py", "--config=configs/lagam_digits.py"])
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(pathlib.Path(__file__).parents[1] / "train.py"), run_name="__main__")
    assert ended.value.code == 130 and capsys.readouterr().err == 2 * "interrupted\n"


@pytest.mark.parametrize(
    ("words", "work", "said"),
    [
        (
            ("train", "--config=lagam_digits"),
            "pujax.training.run",
            "interrupted; the same command with the same --workdir goes on from what was saved\n",
        ),
        (
            ("sweep", "--config=lagam_digits", "--workdir=w"),
            "pujax.sweep.runner.run",
            "interrupted; the same command goes on from what was saved\n",
        ),
        (("check", "a.csv", "--label=y"), "pujax.audit.audit", "interrupted\n"),
    ],
)
def test_an_interrupt_is_one_line(words, work, said, monkeypatch, capsys):
    def interrupted(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(work, interrupted)
    assert run(*words) == 130
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("code", [0, 2, 143])
def test_a_command_that_would_end_the_process_gives_its_status(code, monkeypatch):
    class Module:
        @staticmethod
        def main(words):
            raise SystemExit(code)

    monkeypatch.setattr(commands.importlib, "import_module", lambda name: Module)
    assert commands.run("pujax.train", ["train"]) == code


def test_the_version_is_said(capsys):
    assert run("--version") == 0
    assert re.fullmatch(r"pujax \d+\.\d+\.\S+\n", capsys.readouterr().out)


@pytest.mark.parametrize("command", commands.COMMANDS)
def test_every_command_has_a_module_and_a_help_text_with_three_examples(command, capsys):
    assert callable(importlib.import_module(commands.COMMANDS[command][0]).main)
    for word in ("--help", "-h"):
        assert run(command, word) == 0
        text = capsys.readouterr().out
        assert text.startswith(f"usage: pujax {command}") and "  --help" in text
        assert text.count(f"\n  pujax {command}") == 3
    assert not re.search(r"\{[a-z]+\}", text)


@pytest.mark.parametrize("command", usage.texts())
def test_the_module_of_a_command_shows_the_same_text(command, capsys):
    module = importlib.import_module(commands.COMMANDS[command][0])
    assert module.main([f"pujax {command}", "--help"]) == 0
    assert capsys.readouterr().out == usage.text(command, f"pujax {command}") + "\n"
    assert module.main(["x.py", "--help"]) == 0
    assert re.match(r"usage: python (-m pujax\.|train\.py)", capsys.readouterr().out)


def test_help_is_there_without_what_loads_for_long():
    code = (
        "import sys; from pujax import commands, usage\n"
        "commands.main(['pujax'])\n"
        "for command in usage.texts(): commands.main(['pujax', command, '--help'])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "pujax.usage" in loaded
    assert not loaded & {"jax", "numpy", "ml_collections", "pujax.methods", "pujax.training"}


def test_the_words_after_a_command_are_its_own(tmp_path, monkeypatch, capsys):
    (tmp_path / "echo.py").write_text("def main(argv):\n    print(argv)\n    return 7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *filter(None, sys.path)])
    monkeypatch.setitem(commands.COMMANDS, "echo", ("echo", "says what it is given"))
    assert run("echo", "a b", "--help", "train") == 7
    assert capsys.readouterr().out == "['pujax echo', 'a b', '--help', 'train']\n"
    # What lies in the current folder can be imported, and takes no installed package's place.
    assert sys.path[-1] == "" and "" not in sys.path[:-1]
    assert run("echo") == 7 and sys.path.count("") == 1


def test_what_the_help_repeats_is_what_holds():
    assert usage.ESTIMATORS == priors.NAMES
    assert topologies.ACCEPTED == usage.TOPOLOGIES
    text = usage.text("train")
    tree = config_lib.default_config("nnpu")
    fields = re.findall(r"^  --config\.([a-z_.]+)=(\S+)  ", text, re.MULTILINE)
    assert len(fields) == 12
    for path, value in fields:
        section, _, name = path.rpartition(".")
        assert repr((tree[section] if section else tree)[name]) == value, path


def test_the_help_lists_the_options_that_there_are():
    assert options(usage.text("sweep")) == {*sweep_command._flags()} - {"h"}
    compile_command = importlib.import_module("pujax.compile")
    assert options(usage.text("compile")) == {*compile_command._flags(), "config"} - {"h"}
    priors_command = importlib.import_module("pujax.priors.__main__")
    assert options(usage.text("priors")) == {*priors_command._flags(), "help"}
    check_command = importlib.import_module("pujax.check")
    assert options(usage.text("check")) == {*check_command._flags(), "help"}


@pytest.mark.thorough
def test_the_examples_of_the_help_are_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in examples("train"):
        config_lib.resolve(flags.parse(["pujax train", *words])[0])
    for words in examples("compile"):
        own = [word for word in words if not re.match("--(topology|json)=", word)]
        config_lib.resolve(flags.parse(["pujax compile", *own])[0])
    for words in examples("sweep"):
        plan, _ = sweep_command.parse(["pujax sweep", *words])
        plan_lib.check(plan)
    assert not list(tmp_path.iterdir())


def test_the_catalogue_says_of_every_method_what_its_module_says():
    entries = catalogue.methods()
    assert tuple(entry.name for entry in entries) == methods.names()
    for entry in entries:
        module = methods.module(entry.name)
        assert entry.summary == module.__doc__.splitlines()[0] and entry.summary.endswith(".")
        is_several = methods.is_multilabel(entry.name)
        assert entry.labels == ("several labels" if is_several else "one label")
        assert entry.needs_negatives == methods.needs_negatives(entry.name)
        problem = tiny.multilabel_problem(rows=True) if is_several else tiny.table_problem()
        has_views = "augment" in module.default_config()  # which a table has not
        changes = {"augment": False} if has_views else {}
        config = tiny.config(entry.name, model="mlp", **changes)
        assert entry.is_oracle == bool(methods.build(config, problem.info).reveals), entry.name
        kind = re.fullmatch(r"(one|several) labels?(, (oracle|needs negatives))?", entry.kind)
        assert kind and (kind[3] == "oracle") == entry.is_oracle


def test_methods_are_listed_in_a_line_each(capsys):
    assert run("methods") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == list(methods.names())
    shown = dict(zip(methods.names(), lines, strict=True))["nnpu"]
    assert "nnPU: the non-negative PU risk (Kiryo et al., NIPS 2017). [one label]" in shown
    assert run("methods", "--json") == 0
    found = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)}
    assert found["pu_mlc"]["labels"] == "several labels" and not found["pu_mlc"]["is_oracle"]
    assert found["lagam"]["kind"] == "one label, needs negatives"
    assert found["supervised"]["kind"] == "one label, oracle"


def test_a_method_is_shown_with_its_fields(capsys):
    default = methods.module("lagam").default_config().to_dict()
    assert run("methods", "lagam", "--json") == 0
    fields = json.loads(capsys.readouterr().out)["fields"]
    assert fields == json.loads(json.dumps({k: v for k, v in default.items() if k != "name"}))
    assert run("methods", "lagam") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("lagam: LaGAM: group-aware") and "  rho_start" in "\n".join(lines)
    shown = dict(line.split(maxsplit=1) for line in lines[2:])
    assert shown == {name: repr(default[name]) for name in fields}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nnup"], "NAME is 'nnup'; accepted: 'assume_negative', "),
        (["nnpu", "vpu"], "NAME is 'nnpu vpu'; accepted: one method, or none for all"),
        (["--jsn"], "--jsn is not an option of this command (did you mean --json?); accepted: --"),
    ],
)
def test_what_methods_cannot_show_is_one_line(words, said, capsys):
    assert run("methods", *words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and said in err


def test_the_configurations_are_those_of_the_repository():
    folder = REPOSITORY / "configs"
    assert folder == configs.FOLDER  # a wheel has them elsewhere: see test_wheel.py
    found = {path.stem: path for path in folder.glob("*.py") if path.stem != "common"}
    assert configs.files() == found and list(found)
    assert configs.plans() == {path.stem: path for path in folder.glob("sweeps/*.py")}
    assert list(configs.files()) == sorted(found)
    module = importlib.import_module("pujax.configs.sweeps.gradpu_table3")
    assert pathlib.Path(module.__file__) == folder / "sweeps" / "gradpu_table3.py"
    # They import each other by the name that holds in a wheel, too.
    for path in folder.rglob("*.py"):
        assert not re.search(r"^\s*(from|import) configs\b", path.read_text(), re.MULTILINE), path


def test_a_name_stands_for_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = str(REPOSITORY / "configs" / "lagam_cifar.py")
    assert configs.find("lagam_cifar") == path
    assert configs.find("lagam_cifar:task=cifar10-2,backbone=cnn7") == (
        f"{path}:task=cifar10-2,backbone=cnn7"
    )
    plan = str(REPOSITORY / "configs" / "sweeps" / "digits.py")
    assert configs.find("digits", "--plan") == plan
    # What was understood before names were is what it was.
    for text in (path, f"{path}:a=b", "nowhere.py", "./lagam_cifar", "a/b", "", "-:x"):
        if text != "-:x":
            assert configs.find(text) == text
    pathlib.Path("lagam_cifar").write_text("")
    assert configs.find("lagam_cifar:x") == "lagam_cifar:x"


@pytest.mark.parametrize("flag", ["--config", "--plan"])
def test_another_name_is_refused_with_the_names_that_there_are(flag):
    with pytest.raises(ValueError) as error:
        configs.find("common:x=1", flag)
    own = configs.plans() if flag == "--plan" else configs.files()
    assert str(error.value).startswith(f"{flag} is 'common'; accepted: the path of a Python file")
    assert str(error.value).endswith(f": {', '.join(own)}") and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "words",
    [
        ["--config=baseline:method=nnpu,backbone=mlp", "--config.seed=4"],
        ["--config", "baseline:method=nnpu,backbone=mlp", "--config.seed=4"],
        ["-config=baseline:method=nnpu,backbone=mlp", "--config.seed", "4"],
    ],
)
def test_training_reads_a_configuration_by_its_name(words, tmp_path, monkeypatch):
    path = REPOSITORY / "configs" / "baseline.py"
    wanted = flags.parse(["", f"--config={path}:method=nnpu,backbone=mlp", "--config.seed=4"])
    monkeypatch.chdir(tmp_path)
    config, workdir, name = flags.parse(["pujax train", *words])
    assert (config, workdir, name) == wanted
    assert (config.method.name, config.model.name, config.seed) == ("nnpu", "mlp", 4)
    assert name == "baseline"


def test_a_word_that_is_no_configuration_is_left_alone():
    argv = ["", "--config=lagam_digits", "--workdir", "nnpu", "--", "--config=vpu"]
    found = flags._with_files(argv)
    assert found[2:] == argv[2:] and found[1].endswith("lagam_digits.py")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["train", "--config=lagam_digit"], "--config is 'lagam_digit'; accepted: "),
        (["train", "--config=configs/none.py"], "--config is 'configs/none.py', which cannot be"),
        (["train", "--config=lagam_digits:task=x"], "'task=x' is unknown; accepted keys: none"),
        (["train"], "usage: pujax train --config=NAME"),
        (["sweep", "--plan=digit", "--workdir=x"], "--plan is 'digit'; accepted: "),
        (["sweep", "--config=digits", "--workdir=x"], "--config is 'digits'; accepted: "),
        (["compile", "--config=x", "--topology=cpu:2"], "--config is 'x'; accepted: "),
    ],
)
def test_a_wrong_name_is_one_line_and_nothing_is_written(
    words, said, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and said in err
    if "is unknown" not in said and words != ["train"]:
        assert ("gradpu_table1" if said.startswith("--plan") else "lagam_digits, ") in err
    assert not list(tmp_path.iterdir())


def test_a_file_that_does_not_import_is_one_line(tmp_path):
    (tmp_path / "own.py").write_text("from no_such_package import common\n")
    with pytest.raises(ValueError, match=r"own.py': No module named 'no_such_package'; accepted"):
        flags.parse(["", f"--config={tmp_path}/own.py"])


def test_a_sweep_reads_a_plan_by_its_name(tmp_path, monkeypatch):
    wanted = plan_lib.from_file(str(REPOSITORY / "configs" / "sweeps" / "digits.py"))
    monkeypatch.chdir(tmp_path)
    plan, values = sweep_command.parse(["pujax sweep", "--plan=digits", "--workdir=x"])
    assert plan.title == wanted.title
    assert [cell.config for cell in plan.cells] == [cell.config for cell in wanted.cells]
    found = plan_lib.from_config("baseline:backbone=mlp", methods=("naive",), tasks=("digits",))
    assert found.title == "baseline" and found.cells[0].config.model.name == "mlp"
