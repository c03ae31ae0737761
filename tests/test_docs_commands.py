"""Every command of README and the docs is tried, or is of a kind whose reason not to is stated."""

import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pandas as pd
import pytest

from pujax import commands as pujax_commands
from pujax import usage
from pujax.audit import class_prior
from pujax.training import prior_estimation, sharding
from pujax.training.config import flags
from tests import test_docs, tiny
from tests.conftest import real_data_folder
from tests.test_docs import REPOSITORY, TEXTS, commands

# Commands that no test runs, by their program, and why.
NOT_RUN = {
    "pip": "changes the environment; .ci/run installs the package and its extras",
    "python3": "makes the environment; .ci/run does",
    "source": "changes the reader's shell",
    "pre-commit": "changes the repository's hooks",
    "pytest": "is this very program",
    "ruff": "is what .ci/run begins with",
    "mypy": "is a part of .ci/run",
    "mkdocs": "needs the extra [docs]; .ci/run builds the site",
    "build": "fetches what it builds with; tests/test_wheel.py builds the wheel by pip",
    "git": "changes the repository",
    "hf": "uploads to the Hugging Face Hub, with an account",
    "sbatch": "needs SLURM",
    "ray": "needs a cluster of Ray",
    "gcloud": "rents machines",
    "xpk": "rents machines",
    "for": "a loop of the shell; what it starts is checked as a command of its own",
    "done;": "the end of such a loop",
    "kubectl": "needs a cluster",
}
TUTORIALS = ("docs/tutorial_table.md", "docs/tutorial_images.md")


def indented(text):
    """Commands in indented blocks, with continued lines joined."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL).replace("\\\n", " ")
    found = re.findall(r"^    (?:\S*/)?((?:python|pujax) .*)$", text, re.MULTILINE)
    return [shlex.join(shlex.split(line, comments=True)) for line in found]


COMMANDS = sorted({x for text in TEXTS.values() for x in [*commands(text), *indented(text)] if x})


def program(words):
    """What a command starts: `NAME` of `python -m NAME`, a script, or the program itself."""
    words = [word for word in words if not re.match(r"[A-Z_]+=", word)]  # variables before it
    if pathlib.Path(words[0]).name == "python" and len(words) > 1:
        return (words[2], words[3:]) if words[1] == "-m" else (words[1], words[2:])
    return pathlib.Path(words[0]).name, words[1:]


def wrong(command):
    """What is wrong with a command, '' where it is as it should be."""
    name, rest = program(shlex.split(command))
    if name in NOT_RUN:
        return ""
    options = [word.partition("=")[0] for word in rest if re.match(r"--\w", word)]
    options = [option for option in options if not option.startswith("--config.")]
    if name == "pujax":  # tests/test_docs.py reads the rest
        return "" if rest and rest[0] in pujax_commands.COMMANDS else "no such command"
    if name.endswith("train.py"):  # likewise
        return "" if any(x.startswith(("--config=", "PART,")) for x in rest) else "no configuration"
    known = known_options(name)
    if known is None:
        return f"unknown program {name}; say in NOT_RUN why it is not run, if that is meant"
    missing = [x for x in options if not re.search(rf"(--|[\"']){x.removeprefix('--')}\b", known)]
    return f"no option {missing[0]}" if missing else ""


def known_options(name):
    """The text that names the options of a module or a script of the repository, else None."""
    modules = {
        module.removesuffix(".__main__"): x for x, (module, _) in pujax_commands.COMMANDS.items()
    }
    if name in modules:
        return usage.text(modules[name])
    path = REPOSITORY / (name if name.endswith(".py") else name.replace(".", "/") + ".py")
    path = path if path.is_file() else path.with_suffix("") / "__main__.py"
    if not path.is_file():
        return None
    package = path.parent.glob("*.py") if path.name == "__main__.py" else [path]
    parts = path.with_name(f"{path.stem}_parts").glob("*.py")
    return "\n".join(file.read_text() for file in [*package, *parts])


def test_every_command_is_known_and_has_its_options():
    found = {command: wrong(command) for command in COMMANDS}
    assert {command: text for command, text in found.items() if text} == {}
    assert len(COMMANDS) > 100


def test_a_wrong_command_is_found():
    assert wrong("pujax nothing") and wrong("somewhere/else --x=1")
    assert wrong("python -m pujax.priors --nothing=1") == "no option --nothing"
    assert wrong("A=1 python -m pujax.priors FILE --label=x") == ""
    assert wrong("python benchmarks/own_data.py --sedes=1") == "no option --sedes"
    assert wrong("python train.py") == "no configuration"


def run_block(language, code, namespace):
    """Runs a block as a reader would, in the current folder."""
    if language == "python":
        exec(compile(code, "tutorial", "exec"), namespace)
        return
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        name, rest = program(words) if words else ("pip", [])
        if name in NOT_RUN:
            continue
        # `pujax check` ends with 1 where it has something to say.
        assert pujax_commands.main([name, *rest]) in ((0, 1) if rest[0] == "check" else (0,)), line


@pytest.mark.thorough
@pytest.mark.parametrize("page", TUTORIALS)
def test_a_tutorial_runs_from_top_to_bottom(page, tmp_path, monkeypatch):
    """With the parts that stand for themselves in no other test; their asserts are the readers'."""
    monkeypatch.chdir(tmp_path)
    # A reader has one device; eight simulated ones cost several times the time.
    monkeypatch.setattr(sharding, "make_mesh", lambda: tiny.mesh(1))
    for module, name in ((class_prior, "_RESAMPLES"), (prior_estimation, "_NUM_RESAMPLES")):
        monkeypatch.setattr(module, name, 5)
    namespace = {"__name__": "tutorial"}
    found = test_docs.BLOCK.findall(TEXTS[page])
    assert [language for language, *_ in found].count("python") == 2
    for language, _, code in found:
        run_block(language, code, namespace)
    assert pathlib.Path("scores.csv").is_file() and namespace["accuracy"] > 0.8
    # The configurations as they are shipped: a prior that is estimated, and probabilities.
    (run,) = pathlib.Path("runs").iterdir()
    summary = json.loads((run / "summary.json").read_text())
    assert summary["prior_source"].startswith("estimated by ") and 0 < summary["prior"] < 1
    assert pd.read_csv(run / "predictions.csv").probability.between(0, 1).all()


# Folder of real data by source. Commands on other data need a GPU, or are on data of one's own,
# which the tutorials make.
FOLDERS = {"digits": "", "mnist": "mnist", "fashion_mnist": "fashion_mnist"}
FOLDERS |= dict.fromkeys(("a9a", "ijcnn1", "mushrooms", "phishing"), "libsvm")
FOLDERS |= {"newsgroups": "newsgroups"}


def training(command):
    """Arguments of a command that trains on data of `FOLDERS`, and its source; None for others."""
    name, rest = program(shlex.split(command))
    is_one = (name == "pujax" and rest[0] == "train") or name == "train.py"
    if not is_one or "..." in command or not any(x.startswith("--config=") for x in rest):
        return None
    if "mypackage" in command:  # a method that the reader writes
        return None
    rest = rest[name == "pujax" :]
    config, *_ = flags.parse(["train.py", *rest])
    source = config.data.source
    return (rest, source) if source in FOLDERS else None


def trained():
    """The commands that train, once each however the program is written."""
    found = {}
    for command in COMMANDS:
        arguments = training(command)
        if arguments:
            shown = [x.replace("configs/", "").replace(".py", "") for x in sorted(arguments[0])]
            found.setdefault(" ".join(shown), arguments)
    return found


@pytest.fixture(scope="module")
def training_commands():
    found = trained()
    assert len(found) > 20
    return found


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_training_commands_on_data_at_hand_end_an_epoch(part, training_commands, tmp_path):
    # Optimised programs on one device, as outside of the tests.
    environment = os.environ | {"XLA_FLAGS": "", "JAX_NUM_CPU_DEVICES": "1"}
    failed = {}
    for number, shown in enumerate(sorted(training_commands)[part::4]):
        arguments, source = training_commands[shown]
        replaced = ("--workdir=", "--config.data.dir=") if FOLDERS[source] else ("--workdir=",)
        arguments = [x for x in arguments if not x.startswith(replaced)]
        if FOLDERS[source]:
            arguments.append(f"--config.data.dir={real_data_folder(FOLDERS[source])}")
        short = ["--config.run.stop_after_epoch=1", "--config.run.compare="]
        short += ["--config.run.figures=False", f"--workdir={tmp_path / str(number)}"]
        command = [sys.executable, "train.py", *arguments, *short]
        run = subprocess.run(
            command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
        )
        if run.returncode or not (tmp_path / str(number) / "config.json").is_file():
            failed[shown] = f"status {run.returncode}: {run.stderr[-500:]}"
    assert failed == {}
