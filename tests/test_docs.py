"""What README and the docs show is true: snippets run, commands, fields and links exist."""

import ast
import importlib.util
import itertools
import pathlib
import re
import shlex

import pytest
from PIL import Image

from pujax import commands as pujax_commands
from pujax import configs, methods, usage
from pujax.training import config as config_lib
from pujax.training.config import flags
from tests import tiny

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *sorted(p.relative_to(REPOSITORY) for p in REPOSITORY.glob("docs/**/*.md")),
)
TEXTS = {str(page): (REPOSITORY / page).read_text() for page in PAGES}

# A block that begins with "```python sketch" shows a part of a program that cannot run by itself:
# it needs a file to download, a model trained before, or a package that pujax does not require.
BLOCK = re.compile(r"^```(\w+)( sketch)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(text, language, *, sketch=False):
    found = BLOCK.findall(text)
    return [code for name, mark, code in found if name == language and bool(mark) == sketch]


def commands(text):
    """Commands in blocks of a shell, one a line, with continued lines joined."""
    code = "\n".join(blocks(text, "sh")).replace("\\\n", " ")
    parts = [part for line in code.splitlines() for part in line.split(" && ")]
    return [shlex.join(shlex.split(part, comments=True)) for part in parts]


TRAINING = sorted(
    {
        command
        for text in TEXTS.values()
        for command in commands(text)
        if "train.py " in command and "..." not in command
    }
)


def pujax_lines(text):
    """Words of the commands `pujax ...`, in blocks of a shell and in spans, without the first."""
    spans = re.findall(r"`((?:\S*/)?pujax [^`\n]+)`", text)
    for line in [*commands(text), *spans]:
        words = shlex.split(line, comments=True)
        if words and re.fullmatch(r"(\S*/)?pujax", words[0]):
            yield tuple(words[1:])


OWN = sorted({words for text in TEXTS.values() for words in pujax_lines(text)})


@pytest.mark.parametrize("page", TEXTS)
def test_every_table_has_a_header_and_rows_of_its_width(page):
    """Without them a row is shown as a paragraph of bars."""
    text = re.sub(r"^```.*?^```$", "", TEXTS[page], flags=re.MULTILINE | re.DOTALL)
    for is_table, group in itertools.groupby(text.splitlines(), lambda x: x.startswith("|")):
        if is_table:
            header, line, *_ = table = [re.sub(r"`[^`]*`|\\\|", "", row) for row in (*group, "")]
            assert re.fullmatch(r"\|( ?:?-+:? ?\|)+", line), header
            assert len({row.count("|") for row in table[:-1]}) == 1, header


# The command's name in text about all of them.
PLACEHOLDER = "COMMAND"
SNIPPETS = [
    pytest.param("\n".join(code), id=page)
    for page, text in TEXTS.items()
    if (code := blocks(text, "python"))
]


@pytest.mark.parametrize("code", SNIPPETS)
def test_the_snippets_of_a_page_run_one_after_another(code, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(code, "snippets", "exec"), {"__name__": "snippets"})


@pytest.mark.parametrize("page", TEXTS)
def test_a_sketch_compiles_and_imports_what_pujax_has(page):
    for code in blocks(TEXTS[page], "python", sketch=True):
        lines = [node for node in ast.parse(code).body if isinstance(node, ast.ImportFrom)]
        for node in lines:
            if node.module.startswith("pujax"):
                exec(compile(ast.Module([node], []), "sketch", "exec"), {})


@pytest.mark.parametrize("page", TEXTS)
def test_every_block_names_its_language(page):
    fences = re.findall(r"^```(.*)$", TEXTS[page], re.MULTILINE)
    assert set(fences[0::2]) <= {"sh", "python", "python sketch", "", "text"}
    assert set(fences[1::2]) <= {""}


@pytest.mark.parametrize("command", TRAINING)
def test_a_training_command_reads_its_configuration(command, monkeypatch):
    monkeypatch.chdir(REPOSITORY)
    words = shlex.split(command)
    words = words[next(i for i, word in enumerate(words) if word.endswith("train.py")) :]
    flags.parse(words)


def wrong_words(words):
    """What a command line `pujax ...` says that there is not."""
    command, *rest = words
    if command == PLACEHOLDER or command.startswith("-"):
        return []
    if command not in pujax_commands.COMMANDS:
        return [command]
    wrong = []
    known = usage.text(command) if command in usage.texts() else None
    for word in rest:
        option, _, value = word.partition("=")
        if known and re.match(r"--(?!config\.)", option) and not re.search(rf"{option}\b", known):
            wrong.append(option)
        name = value.partition(":")[0]
        if option in ("--config", "--plan") and re.fullmatch("[a-z]\\w*", name):
            there = configs.plans() if option == "--plan" else configs.files()
            wrong += [word] * (name not in there)
    return wrong


@pytest.mark.parametrize("words", OWN, ids=" ".join)
def test_a_pujax_command_and_what_it_names_exist(words, monkeypatch, tmp_path):
    assert wrong_words(words) == []
    if any("mypackage.mine" in word for word in words):  # the reader's own method
        tiny.write_own_method(tmp_path, "mypackage")
        monkeypatch.syspath_prepend(str(tmp_path))
    if words[0] == "train" and any("--config=" in word and "..." not in word for word in words):
        monkeypatch.chdir(REPOSITORY)
        flags.parse(["pujax train", *words[1:]])


def test_a_wrong_pujax_command_is_found():
    page = "`pujax sweep --plan=digits` `/a/b/pujax nothing` `pujax.risks`\n"
    found = list(pujax_lines(f"{page}```sh\n.venv/bin/pujax train --config=lagam_digits\n```\n"))
    assert [words[0] for words in found] == ["train", "sweep", "nothing"]
    assert [wrong_words(words) for words in found] == [[], [], ["nothing"]]
    assert wrong_words(["sweep", "--plan=baseline", "--only=x"]) == ["--plan=baseline"]
    assert wrong_words(["train", "--config=digits:a=b"]) == ["--config=digits:a=b"]
    assert wrong_words(["predict", "RUN", "--decides=x"]) == ["--decides"]


def test_there_are_training_commands_and_snippets():
    assert len(TRAINING) >= 5 and len(SNIPPETS) >= 3
    assert {"train", "predict", "priors", "sweep", "compile", "methods"} <= {x[0] for x in OWN}


@pytest.mark.parametrize("page", TEXTS)
def test_configurations_files_and_fields_exist(page):
    text = TEXTS[page]
    for file in re.findall(
        r"(?:configs|benchmarks|docs|examples|tests|pujax)/[\w/]+\.(?:py|md|sbatch)\b", text
    ):
        assert (REPOSITORY / file).is_file() or file in MADE_BY_THE_READER, file
    for field in re.findall(r"--config\.([a-z_0-9.]+)=", text):
        assert field in FIELDS, field


def test_the_tests_that_show_what_is_promised_exist():
    sources = {path.name: path.read_text() for path in (REPOSITORY / "tests").rglob("test_*.py")}
    code = "\n".join(sources.values())
    named = re.findall(r"`(test_\w+)(\.py|\.\.\.|)`", TEXTS["docs/reliability.md"])
    assert len(named) > 20
    for name, ending in named:
        if ending == ".py":
            assert f"{name}.py" in sources
        else:
            assert re.search(rf"^def {name}{'' if ending else '[(]'}", code, re.MULTILINE), name


@pytest.mark.parametrize("page", TEXTS)
def test_modules_that_are_run_have_a_main(page):
    for module in re.findall(r"python -m ((?:pujax|benchmarks)[\w.]*)", TEXTS[page]):
        spec = importlib.util.find_spec(module)
        if spec.submodule_search_locations:
            spec = importlib.util.find_spec(f"{module}.__main__")
        assert '__name__ == "__main__"' in pathlib.Path(spec.origin).read_text(), module


@pytest.mark.parametrize("path", sorted(REPOSITORY.glob("benchmarks/*.py")), ids=lambda x: x.stem)
def test_benchmarks_find_what_they_import(path):
    """`python benchmarks/NAME.py` does not see the folders beside it; `python -m` does."""
    source = path.read_text()
    imported = re.findall(r"^(?:from|import) (\w+)", source, re.MULTILINE)
    if {"benchmarks", "configs", "examples", "tests"} & set(imported):
        assert f"python benchmarks/{path.name}" not in "\n".join([source, *TEXTS.values()])


def without_code(text):
    """A page without its blocks and spans of code."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"`[^`\n]*`", "", re.sub(r"^(    .*)$", "", text, flags=re.MULTILINE))


def anchors(text):
    """The names that GitHub gives to the headings of a page."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found = []
    for title in re.findall(r"^#{1,6} (.*)$", text, re.MULTILINE):
        title = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).strip().lower()
        name = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        found.append(name if name not in found else f"{name}-{found.count(name)}")
    return found


def broken_links(page, text):
    """Relative links of a page to files that are not there, or to headings that they lack."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", without_code(text)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (REPOSITORY / page).parent / name
        linked = target.read_text() if target.is_file() and name.endswith(".md") else ""
        if not target.exists() or (anchor and anchor not in anchors(linked if name else text)):
            broken.append(link)
    return broken


@pytest.mark.parametrize("page", TEXTS)
def test_every_relative_link_and_anchor_exists(page):
    assert broken_links(page, TEXTS[page]) == []


def test_a_broken_link_is_found():
    page = "docs/results.md"
    good = (
        "[a](results/lagam.md) ![b](figures/impulses_prior.png) [c](methods.md#many-runs-at-once)"
    )
    text = (
        f"# One, `two`: (2026-11-22)\n## One\n## One\n[d](#one-two-2026-11-22) [e](#one-1) {good}"
    )
    assert broken_links(page, text) == []
    for link in ("none.md", "results/lagam.md#none", "#none", "#one-2", "../none/"):
        assert broken_links(page, f"{text} [bad]({link})") == [link]
    assert broken_links(page, f"{text} `[code](none.md)`\n```text\n[code](none.md)\n```\n") == []


def test_every_page_is_in_the_navigation_of_the_site():
    nav = (REPOSITORY / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = set(re.findall(r"[\w/]+\.md", nav))
    folders = set(re.findall(r"([\w/]+)/\*", nav))
    pages = {path.relative_to(REPOSITORY / "docs") for path in REPOSITORY.glob("docs/**/*.md")}
    missing = [str(x) for x in pages if str(x) not in named and str(x.parent) not in folders]
    assert missing == [] and len(pages) > 60


def fields():
    """Dotted names of the fields of all methods' configurations."""
    names = set()
    for method in methods.names():
        pending = [("", config_lib.default_config(method))]
        while pending:
            path, tree = pending.pop()
            for key, value in tree.items():
                names.add(path + key)
                if hasattr(value, "items"):
                    pending.append((f"{path}{key}.", value))
    return names


FIELDS = fields()
# Files that a reader of docs/adding_a_method.md or CONTRIBUTING.md writes.
MADE_BY_THE_READER = {
    *("pujax/methods/mine.py", "configs/mine.py", "pujax/methods/NAME.py", "configs/NAME.py"),
    *("pujax/data/sources/NAME.py", "tests/methods/test_NAME.py", "docs/methods/NAME.md"),
    *("tests/data/test_sources_NAME.py", "configs/sweeps/NAME.py", "pujax/models/NAME.py"),
}


def first_screen():
    """What README shows before its first heading of the second level."""
    return TEXTS["README.md"].partition("\n## ")[0]


def test_the_first_screen_has_the_commands_three_lines_of_python_and_the_picture():
    start = first_screen().partition("```\nmethod")[0]
    assert len(commands(start)) == 6 and len(start.splitlines()) < 30
    (code,) = blocks(start, "python", sketch=True)
    assert sum(map(bool, code.splitlines())) == 3
    (picture,) = re.findall(r"!\[[^]]{80,}\]\((docs/figures/\S+\.png)\)", start)
    assert (REPOSITORY / picture).stat().st_size < 250_000
    with Image.open(REPOSITORY / picture) as image:
        assert image.width == 1280 and 500 < image.height < 700
        assert image.convert("RGBA").getpixel((2, 2)) == (255, 255, 255, 255)  # on a dark page too


# Rows of README's table, in the tables that were measured.
MEASURED = {
    "pujax, nnPU": "nnpu",
    "pujax, bagged boosting": "classic boosting, bagging",
    "pulearn, Elkan-Noto, logistic": "pulearn Elkanoto, logistic",
    "pulearn, bagged logistic": "pulearn Bagging, logistic",
    "pulearn, bagged boosting": "pulearn Bagging, boosting",
    "pu-toolbox, Elkan-Noto": "pu-toolbox PUPipeline, elkan_noto",
}


def cells(text, start):
    """Cells of a table by its first column, without bold letters and without deviations."""
    lines = text[text.index(start) :].split("\n\n")[0].splitlines()
    rows = [[x.strip(" *") for x in line.strip("|").split("|")] for line in lines]
    return {name: [x.partition(" +-")[0] for x in rest] for name, *rest in rows}


def test_the_table_beside_other_packages_is_what_was_measured():
    page = TEXTS["docs/tables/own_data.md"]
    precision, calibration = cells(page, "| AP |"), cells(page, "| calibration error |")
    spent = cells(page, "| | CPU seconds")
    text = TEXTS["README.md"]
    shown = cells(text, "| | lines |")
    assert set(list(shown)[2:]) == set(MEASURED)
    columns = []
    for name, row in MEASURED.items():
        expected = [spent[row][2], *(precision[row][i] for i in (1, 3, 4))]
        expected += [*(calibration[row][i] for i in (1, 3)), spent[row][0]]
        assert shown[name] == expected, name
        columns.append([float(x) for x in expected])
    lines = [x.split("|") for x in text.splitlines() if x.startswith(("| pujax,", "| pu"))]
    lines = [line for line in lines if line[1].strip() in MEASURED]
    best = (min, max, max, max, min, min, min)
    for i, pick in enumerate(best):
        bold = [row[i] for row, line in zip(columns, lines, strict=True) if "**" in line[i + 2]]
        values = [row[i] for row in columns]
        assert set(bold) == {pick(values)} and len(bold) == values.count(pick(values)), i
