"""Every public name has an entry in the API reference, and every entry is a name."""

import ast
import pathlib
import re

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PAGES = {path.name: path.read_text() for path in sorted(REPOSITORY.glob("docs/api/*.md"))}
# Modules without `__all__` that pages or examples send readers to, and what of them is meant.
ALSO = {
    "pujax.data.sources": None,
    "pujax.data.batching": ("Batch", "Batching"),
    "pujax.data.raw": ("RawDataset",),
    "pujax.models.cnn": ("CNN7", "CNN13", "ConvNet", "SmallCNN"),
    "pujax.models.encoder": None,
    "pujax.models.heads": ("PUNet",),
    "pujax.models.lgconv": ("GlobalBranch", "LgConv"),
    "pujax.models.mlp": ("MLP",),
    "pujax.models.resnet": ("PreActResNet", "ResNet18", "ResNet50", "ResNetSmall"),
    "pujax.models.resnet_v1": ("PostActResNet", "ResNet18V1", "ResNet50V1", "ResNet101V1"),
    "pujax.models.torch_weights": ("expected", "load"),
    "pujax.predict": ("Predictions", "Predictor"),
    "pujax.training.config": ("default_config",),
}


def source(module):
    """The file of a module, or None."""
    path = REPOSITORY.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


def statements(tree):
    """Those at the top of a module, and those that are for type checkers alone."""
    for node in tree.body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            yield from node.body
        yield node


def bound(module):
    """Names at the top of a module: imported, and defined there; and its `__all__`, or None."""
    imported, defined, listed = set(), [], None
    for node in statements(ast.parse(source(module).read_text())):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            defined.append(node.name)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            imported |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [target.id for target in targets if isinstance(target, ast.Name)]
            defined += names
            if "__all__" in names:
                listed = ast.literal_eval(node.value)
    return imported, defined, listed


def tables_of_the_top():
    """What `pujax/__init__.py` finds by name: functions with their modules, and modules."""
    values = {}
    for node in ast.parse(source("pujax").read_text()).body:
        if isinstance(node, ast.Assign) and node.targets[0].id in ("_FUNCTIONS", "_MODULES"):
            expression = ast.Expression(node.value)
            values[node.targets[0].id] = eval(compile(expression, "pujax", "eval"))
    return values["_FUNCTIONS"], values["_MODULES"]


def public_names():
    """Dotted names of everything that users may rely on.

    They are what `pujax` itself finds; `__all__` of every module that has one, or else what a
    module that `pujax` finds defines; what `ALSO` lists; and what the pages import.
    """
    functions, modules = tables_of_the_top()
    names = {f"{module}.{name}" for name, module in functions.items()}
    for path in sorted(REPOSITORY.glob("pujax/**/*.py")):
        dotted = ".".join(path.relative_to(REPOSITORY).with_suffix("").parts)
        module = dotted.removesuffix(".__init__")
        if "._" in module:
            continue
        _, defined, listed = bound(module)
        if listed is None and module.removeprefix("pujax.") in modules:
            listed = defined
        listed = listed if module not in ALSO or ALSO[module] is None else ALSO[module]
        if listed is None and module in ALSO:
            listed = defined
        names |= {f"{module}.{name}" for name in listed or () if name[0] != "_"}
    names |= imported_by_the_pages()
    return names


def imported_by_the_pages():
    """What Python blocks import from below `pujax`, without modules."""
    texts = [path.read_text() for path in REPOSITORY.glob("docs/**/*.md")]
    texts.append((REPOSITORY / "README.md").read_text())
    names = set()
    for module, what in re.findall(
        r"^from (pujax[\w.]*) import (.*)$", "\n".join(texts), re.MULTILINE
    ):
        for name in what.split(", "):
            if not source(f"{module}.{name}"):
                names.add(f"{module}.{name}")
    # Two packages have the entries of what they take from a module below.
    names = {name.replace("pujax.data.pu_dataset.", "pujax.data.dataset.") for name in names}
    return {name.replace("pujax.methods.base.", "pujax.methods.") for name in names}


def entries():
    """Names that the reference has an entry for, in the order of its pages."""
    pages = "\n".join(PAGES.values())
    return re.findall(r"^::: (\S+)$(?!\n    options:)", pages, re.MULTILINE)


def test_every_public_name_has_an_entry():
    missing = public_names() - set(entries())
    lines = "\n".join(f"::: {name}" for name in sorted(missing))
    assert not missing, f"docs/api/ needs these lines, each on the page of its module:\n{lines}"


def test_every_entry_is_a_name():
    for name in entries():
        module, _, attribute = name.rpartition(".")
        imported, defined, _ = bound(module)
        assert attribute in imported | set(defined), name


def test_no_name_has_two_entries():
    assert len(entries()) == len(set(entries())) > 250


def test_the_modules_that_pages_introduce_exist_and_are_listed():
    overview = (REPOSITORY / "docs" / "api.md").read_text()
    for page, text in PAGES.items():
        assert text.startswith("# pujax") and f"(api/{page})" in overview, page
        for module in re.findall(r"^::: (\S+)\n    options:", text, re.MULTILINE):
            assert source(module), module


def test_a_module_that_has_a_page_comes_with_the_package():
    """`import pujax` is enough for `pujax.NAME`, as the page has it."""
    _, modules = tables_of_the_top()
    assert sorted([*modules, "pujax"]) == [page.removesuffix(".md") for page in PAGES]
    assert all(source(f"pujax.{name}") for name in modules)
