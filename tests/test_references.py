"""Names between backticks in the sources are names that there are."""

import ast
import re

import pytest

from tests import test_docs_api, test_imports

_DOTTED = re.compile(r"`((?:[A-Za-z]\w*\.)+\w+)(?:\([^`]*\))?`")
_PRIVATE = re.compile(r"`(_[a-z]\w*)(?:\([^`]*\))?`")
# Endings of files: `summary.json` is one beside a module `summary`.
_FILES = ("csv", "json", "jsonl", "py")


def unknown(file, module, text):
    """References to nothing: names of modules that a file imports, and private names of its own.

    What stands for a parameter or a field is left alone, since nothing says of what it is one.
    """
    bound = {
        name: "pujax" if is_whole else path
        for _, name, path, is_whole in test_imports.imports(text)
        if path.startswith("pujax.")
    }
    bound["pujax"] = "pujax"
    used = _identifiers(text)
    errors = []
    for number, line in enumerate(text.splitlines(), start=1):
        for name in _DOTTED.findall(line):
            first, *rest = name.split(".")
            is_word = rest[-1] in _FILES or rest[-1].isupper()
            if first in bound and not is_word and not _exists([*bound[first].split("."), *rest]):
                errors.append(f"{file}:{number} has `{name}`")
        for name in _PRIVATE.findall(line):
            if name not in used and not test_docs_api.source(f"{_package(file, module)}.{name}"):
                errors.append(f"{file}:{number} has `{name}`")
    return errors


def _exists(parts):
    """Whether the first of the parts that is no module is a name of the module before it."""
    module = parts[0]
    for part in parts[1:]:
        if test_docs_api.source(f"{module}.{part}"):
            module = f"{module}.{part}"
            continue
        if not test_docs_api.source(module):
            return True  # a field of what was imported
        imported, defined, _ = test_docs_api.bound(module)
        found = test_docs_api.tables_of_the_top()[0] if module == "pujax" else ()
        return part in imported or part in defined or part in found
    return True


def _identifiers(text):
    """All names that a source uses or defines, and its one-word strings."""
    found = set()
    for node in test_imports.nodes(text):
        for field in ("id", "attr", "name", "arg", "asname"):
            found.add(getattr(node, field, None))
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.add(node.value)
    return found


def _package(file, module):
    return module if file.endswith("__init__.py") else module.rpartition(".")[0]


def test_names_between_backticks_are_there():
    assert [error for source in test_imports.sources() for error in unknown(*source)] == []


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("from pujax.training.evaluation import summary\n# `summary.versions`", True),
        ("from pujax.training.evaluation import summary\n# `summary.summarize`", False),
        ("from pujax.training.evaluation import summary\n# `summary.json`", True),
        ("from pujax.training.evaluation.summary import Final\n# `Final.test`", True),
        ("# `pujax.load` and `pujax.metrics.auc`", True),
        ("# `pujax.metrics.area`", False),
        ("import pujax.risks\n# `pujax.risks.nnpu(scores)`", True),
        ("import pujax.risks\n# `pujax.risks.nmpu(scores)`", False),
        ("# `_fall`\ndef _fall(): pass", True),
        ("# `_fall`\ndef _rise(): pass", False),
        ("# `config.data.path`", True),
    ],
)
def test_a_name_that_is_gone_is_seen(text, is_there):
    assert (unknown("pujax/predict.py", "pujax.predict", text) == []) == is_there
