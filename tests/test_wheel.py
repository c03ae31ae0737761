"""A wheel holds all that the commands need, and works far from the repository."""

import importlib.metadata
import json
import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
_BUILT_FROM = ("pyproject.toml", "setup.py", "requirements.txt", "README.md", "LICENSE")

pytestmark = pytest.mark.thorough


def _isolation():
    """The option that builds with the setuptools of this environment, where it can make wheels."""
    try:
        version = importlib.metadata.version("setuptools").split(".")
    except importlib.metadata.PackageNotFoundError:
        return []
    return ["--no-build-isolation"] if (int(version[0]), int(version[1])) >= (70, 1) else []


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """A wheel built from a copy of the repository, in which nothing is left behind."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    source.mkdir()
    for name in _BUILT_FROM:
        shutil.copy(REPOSITORY / name, source)
    for name in ("pujax", "configs"):
        no_caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(REPOSITORY / name, source / name, ignore=no_caches)
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    command = [*pip, "wheel", "-q", "--no-deps", *_isolation(), f"-w{folder}", str(source)]
    subprocess.run(command, check=True, timeout=300)
    (path,) = folder.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """An empty folder with the wheel alone, put before everything else that can be imported."""
    folder = tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    command = [*pip, "install", "-q", "--no-deps", "--no-compile", f"--target={folder}", str(wheel)]
    subprocess.run(command, check=True, timeout=300)
    return folder


def run(installed, cwd, *words):
    """What the console script says, in another folder and on one device."""
    changes = {"PYTHONPATH": str(installed), "JAX_NUM_CPU_DEVICES": "1"}
    command = [str(installed / "bin" / "pujax"), *words]
    return subprocess.run(
        command, cwd=cwd, env=os.environ | changes, capture_output=True, text=True, timeout=300
    )


def test_the_wheel_holds_the_configurations_once_and_nothing_beside_pujax(wheel):
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (points,) = (name for name in names if name.endswith("entry_points.txt"))
        assert "pujax = pujax.commands:main" in file.read(points).decode()
        for path in (REPOSITORY / "configs").rglob("*.py"):
            name = path.relative_to(REPOSITORY).as_posix()
            assert file.read(f"pujax/{name}") == path.read_bytes()
    assert {"pujax/py.typed", "pujax/reports/page.html", "pujax/reports/page.css"} <= names
    assert {name.split("/")[0].split("-")[0] for name in names} == {"pujax"}
    tree = {p.relative_to(REPOSITORY).as_posix() for p in (REPOSITORY / "pujax").rglob("*.py")}
    assert not tree - names


def test_an_installed_pujax_trains_a_configuration_by_its_name(installed, tmp_path):
    listed = run(installed, tmp_path, "methods")
    assert listed.returncode == 0 and "\nnnpu " in listed.stdout
    file = "--config=baseline:method=nnpu,backbone=mlp"
    short = ["--config.method.num_epochs=2", "--config.run.figures=false", "--workdir=run"]
    done = run(installed, tmp_path, "train", file, *short)
    assert done.returncode == 0, done.stderr
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert (summary["method"], summary["num_epochs"]) == ("nnpu", 2)
    assert summary["dataset"] == "digits" and sorted(tmp_path.iterdir()) == [tmp_path / "run"]


def test_a_package_of_the_user_called_configs_is_left_alone(installed, tmp_path):
    """The user's own is found beside a configuration, and pujax's are not in its place."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "__init__.py").write_text("LENGTH = -3\n")
    (tmp_path / "own.py").write_text(
        "import configs\n"
        "from pujax.configs import lagam_digits\n\n\n"
        "def get_config():\n"
        "    config = lagam_digits.get_config()\n"
        "    config.method.num_epochs = configs.LENGTH\n"
        "    return config\n"
    )
    done = run(installed, tmp_path, "train", "--config=own.py")
    assert done.returncode == 2 and done.stderr.startswith("method.num_epochs is -3; accepted: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["configs", "own.py"]


def test_an_installed_pujax_plans_by_name(installed, tmp_path):
    code = (
        "import pathlib, pujax; from pujax import configs; from pujax.sweep import plan\n"
        "print(pathlib.Path(pujax.__file__).parent, configs.FOLDER)\n"
        "print(len(plan.from_file('gradpu_table3').cells), len(configs.files()))"
    )
    command = [sys.executable, "-c", code]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    said = subprocess.check_output(command, cwd=tmp_path, env=environment, text=True)
    place = (installed / "pujax").resolve()
    count = len(list((REPOSITORY / "configs").glob("*.py"))) - 1  # all but common.py
    assert said.split() == [str(place), str(place / "configs"), "10", str(count)]
