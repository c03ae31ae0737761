"""The order of packages, read from the sources: imports run down, private names stay at home."""

import ast
import functools
import pathlib
import re
import subprocess
import sys

import pytest

from tests.faults.windows import MODULES

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]

# A file imports from its own package and from floors below it. A new package goes on one of them.
FLOORS = (
    ("catalogue", "command_line", "configs", "reading"),
    ("arrays", "checks", "checksums", "console", "files", "huge_pages", "locks", "processor"),
    ("packing", "significance", "usage"),
    ("accelerator",),
    (
        "risks",
        "contrastive",
        "meta",
        "mutual_info",
        "metrics",
        "clustering",
        "augment",
        "calibration",
    ),
    ("models", "linear_head"),
    ("data",),
    ("priors",),
    ("methods", "audit"),
    ("plots",),
    ("training",),
    ("report", "reports", "predict", "estimator", "folds", "aot"),
    ("sweep", "prior_study", "compile", "train", "check"),
    ("commands",),
    ("__main__",),
)
FLOOR_OF = {package: floor for floor, packages in enumerate(FLOORS) for package in packages}

# Public methods of named tuples, whatever their underscore says.
_NAMED_TUPLE = {"_replace", "_asdict", "_fields", "_make", "_field_defaults"}

# Where the name of a module differs from the name under which it is installed.
_DISTRIBUTION = {
    "PIL": "pillow",
    "absl": "absl-py",
    "orbax": "orbax-checkpoint",
    "sklearn": "scikit-learn",
}
# Imported only where installed; pujax says so where it is needed.
_OPTIONAL = {
    "huggingface_hub": ("pujax/training/hub.py",),
    "pyarrow": ("pujax/data/readers/frame_chunks.py", "pujax/data/readers/frames.py"),
    "ray": ("pujax/sweep/ray_engine.py",),
    "skops": ("pujax/data/table_encoder.py",),
    "skrub": ("pujax/data/table_encoder.py",),
    "submitit": ("pujax/sweep/slurm_engine.py",),
    "torch": ("pujax/models/torch_weights.py",),
    "tensorboardX": ("pujax/training/metrics_writer.py",),
}


def package_of(path):
    """Package of a module of pujax: 'pujax.risks.biased' and 'pujax.risks' are of 'risks'."""
    return path.split(".")[1]


@functools.cache
def nodes(text):
    """All nodes of the syntax tree of a source."""
    return tuple(ast.walk(ast.parse(text)))


def imports(text):
    """All imports of a module, those in functions too.

    Yields tuples of the line, the name that it binds, the dotted path, and whether the name stands
    for the first part of the path only, as in `import a.b`.
    """
    for node in nodes(text):
        if isinstance(node, ast.Import):
            for alias in node.names:
                bound = alias.asname or alias.name.split(".")[0]
                yield node.lineno, bound, alias.name, alias.asname is None
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import"
            for alias in node.names:
                path = f"{node.module}.{alias.name}"
                yield node.lineno, alias.asname or alias.name, path, False
        elif isinstance(node, ast.Call) and dotted(node.func)[-1:] == ["import_module"]:
            constants = [a.value for a in node.args if isinstance(a, ast.Constant)]
            yield from ((node.lineno, "", path, False) for path in constants)


def dotted(node):
    """The names of `a.b.c` in order; empty for anything else."""
    if isinstance(node, ast.Name):
        return [node.id]
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return [*before, node.attr] if before else []
    return []


def arrows_up(module, text):
    """Imports from the module's floor or above it, other than of its own package."""
    home, errors = package_of(module), []
    for line, _, path, _ in imports(text):
        if not path.startswith("pujax.") or package_of(path) in (home, "__version__"):
            continue
        if FLOOR_OF[package_of(path)] >= FLOOR_OF[home]:
            errors.append(f"{module}:{line} imports {path}")
    return errors


def foreign_private_names(module, text):
    """Private modules, functions and attributes of other packages that the module uses."""
    home = package_of(module)
    bound, used = {}, []
    for line, name, path, is_whole in imports(text):
        if path.startswith("pujax."):
            used.append((line, path))
            bound[name] = "pujax" if is_whole else path
    for node in nodes(text):
        names = dotted(node)
        if len(names) > 1 and names[0] in bound:
            used.append((node.lineno, ".".join([bound[names[0]], *names[1:]])))
    errors = []
    for line, path in used:
        private = [name for name in path.split(".") if re.match(r"_(?!_)", name)]
        if package_of(path) != home and set(private) - _NAMED_TUPLE:
            errors.append(f"{module}:{line} uses {path}")
    return errors


def undeclared(file, text, declared):
    """Packages of others that a file imports and requirements.txt does not name."""
    errors = []
    for line, _, path, _ in imports(text):
        name = path.split(".")[0]
        if name in sys.stdlib_module_names or name == "pujax" or file in _OPTIONAL.get(name, ()):
            continue
        if normal(_DISTRIBUTION.get(name, name)) not in declared:
            errors.append(f"{file}:{line} imports {name}")
    return errors


def unix_only(file, text):
    """Modules that Windows lacks, imported where no ImportError is caught, in functions too."""
    caught = set()
    for node in nodes(text):
        if isinstance(node, ast.Try) and ["ImportError"] in [dotted(x.type) for x in node.handlers]:
            caught |= set(range(node.lineno, node.handlers[0].lineno))
    return [
        f"{file}:{line} imports {path}"
        for line, _, path, _ in imports(text)
        if path.split(".")[0] in MODULES and line not in caught
    ]


def normal(name):
    """A distribution's name as package indexes compare it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def declared_packages():
    lines = (REPOSITORY / "requirements.txt").read_text().splitlines()
    return {normal(re.match(r"[\w.-]+", line)[0]) for line in lines if line.strip()}


def sources():
    """(file, module, text) of every Python file of pujax."""
    for path in sorted((REPOSITORY / "pujax").rglob("*.py")):
        file = path.relative_to(REPOSITORY)
        module = ".".join(file.with_suffix("").parts).removesuffix(".__init__")
        if module != "pujax":
            yield file.as_posix(), module, path.read_text()


def test_every_package_has_a_floor():
    packages = {package_of(module) for _, module, _ in sources()}
    assert packages == set(FLOOR_OF)


def test_imports_run_down():
    assert [error for _, module, text in sources() for error in arrows_up(module, text)] == []


def test_private_names_are_used_in_their_own_package_only():
    errors = [e for _, module, text in sources() for e in foreign_private_names(module, text)]
    assert errors == []


def test_every_import_is_declared():
    declared = declared_packages()
    assert [e for file, _, text in sources() for e in undeclared(file, text, declared)] == []


def test_nothing_is_imported_that_windows_lacks():
    assert [error for file, _, text in sources() for error in unix_only(file, text)] == []


def test_every_requirement_is_imported():
    imported = set()
    for _, _, text in sources():
        imported |= {path.split(".")[0] for _, _, path, _ in imports(text)}
    used = {normal(_DISTRIBUTION.get(name, name)) for name in imported}
    # tensorflow-datasets imports the first where sets are read in its format, the second always,
    # and requires neither on every system; JAX imports filelock where its cache has a size.
    others = {"array-record", "filelock", "importlib-resources"}
    assert declared_packages() - used == others


@pytest.mark.parametrize(
    "text",
    [
        "from pujax.training import config",
        "from pujax import training",
        "import pujax.methods",
        "def f():\n    from pujax.methods.base import Stage",
        "import pujax.sweep as s",
        "import importlib\nimportlib.import_module('pujax.methods')",
        "from pujax import priors",
    ],
)
def test_an_arrow_that_runs_up_is_seen(text):
    assert len(arrows_up("pujax.data.dataset", text)) == 1
    assert not arrows_up(
        "pujax.data.dataset", "from pujax.data import raw; from pujax import risks"
    )


@pytest.mark.parametrize(
    "text",
    [
        "from pujax.methods import _common",
        "from pujax.methods._common import losses",
        "from pujax.priors.base import _best",
        "import pujax.methods._common.network as n",
        "from pujax import priors\npriors._names.NAMES",
        "from pujax.priors import base as b\nx = [b._best(1)]",
        "import pujax.priors\npujax.priors._names",
        "def f():\n    from pujax.priors import base\n    base.Estimate._hidden",
    ],
)
def test_a_foreign_private_name_is_seen(text):
    assert len(foreign_private_names("pujax.training.config", text)) >= 1


@pytest.mark.parametrize(
    "text",
    [
        "from pujax.priors import base\nbase.Estimate._replace\nbase.__doc__",
        "from pujax.training import _own\n_own._inner",
        "import jax\njax._src",
        "from pujax.priors import base\nself._base = base.best()",
    ],
)
def test_what_is_no_foreign_private_name(text):
    assert foreign_private_names("pujax.training.config", text) == []


def test_an_undeclared_import_is_seen():
    errors = undeclared("pujax/data/x.py", "import os, pandas\nfrom PIL import Image", {"pillow"})
    assert errors == ["pujax/data/x.py:1 imports pandas"]
    assert undeclared("pujax/data/x.py", "import torch", set())


def test_an_import_that_windows_lacks_is_seen():
    errors = unix_only("x.py", "import os, resource\ndef f():\n    from fcntl import flock")
    assert errors == ["x.py:1 imports resource", "x.py:3 imports fcntl.flock"]
    tried = "try:\n    import fcntl\nexcept {}:\n    fcntl = None"
    assert unix_only("x.py", tried.format("OSError")) == ["x.py:2 imports fcntl"]
    assert not unix_only("x.py", tried.format("ImportError"))


@pytest.mark.thorough
@pytest.mark.parametrize("module", ["pujax.training.experiment", "pujax.sweep"])
def test_what_loads_for_long_is_loaded_where_it_is_needed(module):
    names = {"grain", "matplotlib", "pandas", "scipy.stats", "sklearn", "tensorflow_datasets"}
    code = f"import sys, {module}\nprint(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "jax" in found.stdout.split()
    assert not names & set(found.stdout.split())


def test_packages_that_load_for_long_load_when_they_are_used():
    code = (
        "import sys, pujax, pujax.reports.__main__ as command\n"
        "assert pujax.training.decisions.__name__ == 'pujax.training.decisions'\n"
        "command.main(['pujax report'])\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("command line: RUN is missing")
    loaded = set(done.stdout.split())
    assert {"pujax.training", "pujax.reports"} <= loaded
    assert not loaded & {"jax", "jinja2", "matplotlib", "orbax", "pandas", "pujax.training.config"}


def test_their_names_are_there_for_programs_and_for_type_checkers():
    import pujax
    from pujax.reports import page
    from pujax.training import config, experiment

    assert pujax.training.run is experiment.run and pujax.training.config is config
    assert pujax.reports.build is page.build
    for package in (pujax.training, pujax.reports):
        assert set(package.__all__) <= set(dir(package))
        text = pathlib.Path(package.__file__).read_text()
        assert set(package.__all__) <= {name for _, name, _, _ in imports(text)}
        with pytest.raises(AttributeError, match=f"{package.__name__}' has no attribute 'nothing'"):
            _ = package.nothing
