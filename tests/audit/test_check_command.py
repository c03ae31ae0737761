"""`python -m pujax.check DATA`: text and JSON say the same, and the exit status says how bad."""

import json
import os
import re
import shlex

import numpy as np
import pytest
from PIL import Image

from pujax import audit, check
from pujax.audit import inputs, recommendation, report
from pujax.data.readers import frames
from pujax.training.config import flags


def write_table(path, *, num_p=100, leak=False, copies=0, separation=4.0):
    """A CSV of two clouds, a column that may leak, and a label that says yes or nothing."""
    rng = np.random.default_rng(0)
    positive = np.arange(500) < num_p + 100
    x = (rng.normal(size=[500, 2]) + separation * positive[:, None]).tolist()
    lines = ["a,b,c,known"]
    for row, known in [(i, i < num_p) for i in range(500)] + [(i, False) for i in range(copies)]:
        c = row % 2 + 10 * (leak and known)
        lines.append(f"{x[row][0]!r},{x[row][1]!r},{c},{'yes' * known}")
    path.write_text("\n".join(lines))
    return str(path)


def run(*arguments):
    return check.main(["check", *map(str, arguments)])


@pytest.mark.parametrize(("words", "seed"), [((), 0), (("--seed=7",), 7)])
def test_the_seed_and_all_names_are_handed_on(tmp_path, monkeypatch, words, seed):
    given = {}

    def audited(path, **options):
        given.update(options, path=path)
        raise ValueError("enough")

    monkeypatch.setattr(audit, "audit", audited)
    names = {"label": "known", "positive": "yes", "id_column": "key"}
    names |= {"leave_out": "a,b", "words": "plz"}
    assert run("a.csv", *(f"--{name}={value}" for name, value in names.items()), *words) == 2
    assert given == names | {"path": "a.csv", "seed": seed}


def test_a_table_is_read_once(tmp_path, monkeypatch):
    paths = []
    read = frames.read

    def counted(path, **options):
        paths.append(path)
        return read(path, **options)

    monkeypatch.setattr(frames, "read", counted)
    options = dict.fromkeys(("id_column", "zero_is", "positive", "leave_out", "words"), "")
    path = write_table(tmp_path / "a.csv")
    found = inputs.read(path, **options | {"label": "known", "zero_is": "auto"})
    assert len(paths) == 1 and found.problem.features.shape == (500, 3)


@pytest.fixture(scope="module")
def leaking(tmp_path_factory):
    """Arguments, and where the JSON goes."""
    folder = tmp_path_factory.mktemp("leak")
    path = write_table(folder / "my rows.csv", leak=True)
    return path, folder / "found.json"


def test_nothing_but_an_earlier_result_is_overwritten(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    path = write_table(tmp_path / "a.csv")
    others = {"b.json": '{"findings": []}', "c.json": "[1]", "d.png": "\x89PNG"}
    for name, content in others.items():
        (tmp_path / name).write_text(content, encoding="latin-1")
    before = {name: (tmp_path / name).read_bytes() for name in (*others, "a.csv")}
    assert run(path, "--label=known", "--json=a.csv") == 2
    assert "--json is 'a.csv', the data themselves" in capsys.readouterr().err
    for name in others:
        assert run(path, "--label=known", f"--json={name}") == 2
        assert f"--json is '{name}', a file that pujax check did not" in capsys.readouterr().err
    assert before == {name: (tmp_path / name).read_bytes() for name in before}
    assert run(path, "--label=known", "--json=new.json") != 2
    for name, content in (("empty.json", ""), ("deep.json", "[" * 100_000)):
        (tmp_path / name).write_text(content)
    for allowed in ("new.json", "empty.json"):
        check._check_writable(allowed, path)
    assert run(path, "--label=known", "--json=new/folder/a.json") != 2
    assert report.is_document("new/folder/a.json")
    capsys.readouterr()
    monkeypatch.setattr(audit, "audit", lambda *a, **k: pytest.fail("the work was begun"))
    for place in ("/proc/a.json", "."):
        assert run(path, "--label=known", f"--json={place}") == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"--json is '{place}', ") and "; accepted: a file" in line
    os.mkfifo("pipe")
    for name, said in (("deep.json", "did not make"), ("pipe", "'pipe', no regular file")):
        with pytest.raises(ValueError, match=said):
            check._check_writable(name, path)


def test_text_and_json_hold_the_same_findings_in_order_of_severity(leaking, capsys):
    path, output = leaking
    assert run(path, "--label=known", f"--json={output}") == 3
    text, found = capsys.readouterr().out, json.loads(output.read_text())
    assert found["status"] == 3 and "100 labelled positives, 400 unlabeled, 3 columns" in text
    joined = " ".join(text.split())
    places = []
    for finding in found["findings"]:
        title = f"{finding['severity'].upper()}: {finding['title']}"
        places.append(joined.index(title))
        for sentence in [*finding["evidence"], finding["advice"]]:
            assert " ".join(sentence.split()) in joined
    assert places == sorted(places)
    shown = re.findall(r"^(ERROR|WARNING|NOTE): ", text, re.MULTILINE)
    assert shown == [x["severity"].upper() for x in found["findings"]]
    assert shown == sorted(shown, key=["ERROR", "WARNING", "NOTE"].index)
    names = [x["name"] for x in found["findings"]]
    assert names[0] == "leak" and "class_prior" in names
    assert "column 'c'" in found["findings"][0]["evidence"][0]
    assert found["recommendation"]["command"] in text
    assert found["recommendation"]["first"][0] in joined
    assert all(sentence in joined for sentence in found["not_checked"])


def test_the_recommended_command_reads_its_configuration(leaking, tmp_path, monkeypatch):
    path, _ = leaking
    monkeypatch.chdir(tmp_path)
    for kind, prior, num_labeled in (
        ("table", 0.5, 200),
        ("table", 0.2, 200),
        ("table", None, 20),
        ("images", 0.9, 200),
    ):
        damaged = audit.Finding("damaged", "warning", "t", (), "a")
        advised = recommendation.recommend(
            path,
            kind=kind,
            options={"label": "known", "words": "a b,c"} if kind == "table" else {},
            num_labeled=num_labeled,
            prior=prior,
            findings=[damaged] if kind == "images" else [],
        )
        words = shlex.split(advised.command)
        assert words[:2] == ["pujax", "train"]
        config = flags.parse(["pujax train", *words[2:]])[0]
        assert config.data.path == path and config.method.name == advised.method
        assert config.data.words == ("a b,c" if kind == "table" else "")


def test_the_recommendation_follows_what_was_measured():
    def advised(**options):
        defaults = {"kind": "table", "options": {"label": "y", "id_column": ""}, "findings": []}
        return recommendation.recommend("f.csv", **(defaults | options))

    assert advised(num_labeled=200, prior=0.5).method == "nnpu"
    rare = advised(num_labeled=200, prior=0.2)
    assert "base=boosting --config.method.correction=bagging" in rare.command
    assert "base=logistic" in advised(num_labeled=90, prior=0.2).command
    assert "base=logistic" in advised(num_labeled=20, prior=0.5).command
    # What docs/which_method.md says in words.
    assert "base=logistic" in advised(num_labeled=119, prior=1 / 3 - 0.01).command
    assert "base=boosting" in advised(num_labeled=120, prior=1 / 3 - 0.01).command
    assert advised(num_labeled=120, prior=0.34).method == advised(num_labeled=80, prior=1.0).method
    assert advised(num_labeled=79, prior=1.0).method == "classic"
    for labels, prior, why in ((20, 0.5, "(20)"), (90, 0.2, "about 20%"), (90, None, "nothing is")):
        assert why in advised(num_labeled=labels, prior=prior).reasons[0]
    # Below 80 labels bagging is not measured: what is measured there is named and compared.
    *_, measured, compared = advised(num_labeled=79, prior=0.2).reasons
    assert "imbalanced_nnpu" in measured and compared.endswith("run.compare=nnpu,imbalanced_nnpu")
    assert all("imbalanced" not in x for x in advised(num_labeled=80, prior=0.2).reasons)
    assert advised(kind="images", num_labeled=200, prior=None).method == "nnpu"
    named = advised(num_labeled=200, prior=0.5, options={"id_column": "none"})
    assert "--config.data.id_column=none" in named.command and "id_column" not in rare.command
    assert advised(num_labeled=200, prior=recommendation.RARE).method == "classic"
    leak = audit.Finding("leak", "warning", "one column alone", (), "see how it came to be")
    bias = audit.Finding("labeling", "warning", "t", (), "a")
    first = advised(num_labeled=200, prior=0.5, findings=[bias, leak]).first
    assert first == ("one column alone: see how it came to be",)
    uncertain = audit.Finding("class_prior", "warning", "t", (), "a", {"agree": False})
    reasons = advised(num_labeled=200, prior=0.5, findings=[uncertain]).reasons
    assert any("data.prior" in reason for reason in reasons)
    agreed = audit.Finding("class_prior", "note", "t", (), "a", {"agree": True})
    reasons = advised(num_labeled=200, prior=0.5, findings=[agreed]).reasons
    assert not any("data.prior" in reason for reason in reasons)


def test_rows_without_an_id_are_called_by_their_line_as_in_other_messages(tmp_path):
    path = write_table(tmp_path / "a.csv")
    assert list(inputs.read(path, label="known").problem.ids[:2]) == ["line 2", "line 3"]
    lines = (tmp_path / "a.csv").read_text().splitlines()
    named = [f"{'key' if i == 0 else f'k{i}'},{line}" for i, line in enumerate(lines)]
    (tmp_path / "b.csv").write_text("\n".join(named))
    ids = inputs.read(str(tmp_path / "b.csv"), label="known").problem.ids
    assert list(ids[:2]) == ["key k1", "key k2"]


def test_three_labels_are_an_error_and_the_rest_is_not_checked(tmp_path, capsys):
    path = write_table(tmp_path / "few.csv", num_p=3)
    assert run(path, "--label=known") == 3
    text = capsys.readouterr().out
    assert "ERROR: 3 labels are fewer than any method can use" in text
    assert "Not checked: everything but counts and copies" in text and "prior:" not in text
    assert "RECOMMENDED: nothing to train yet" in text and "pujax train" not in text


@pytest.mark.thorough
def test_a_good_table_has_the_status_0_and_a_warning_1(tmp_path, capsys):
    good = write_table(tmp_path / "good.csv")
    assert run(good, "--label=known") == 0
    text = capsys.readouterr().out
    assert "WARNING" not in text and "RECOMMENDED: classic" in text  # a quarter is positive
    assert run(write_table(tmp_path / "bad.csv", copies=40), "--label=known") == 1
    assert "exact copy among the unlabeled rows: 40 of 100" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "DATA is ''; accepted: one file or one folder"),
        (("a", "b"), "DATA is 'a b'"),
        (("none.csv", "--label=known"), "DATA is 'none.csv', which does not exist"),
        (("{path}",), r"--label is ''; accepted: the column that holds the label: 'a', 'b'"),
        (("{path}", "--label=knwon"), "--?label is 'knwon'; accepted: a column.*did you mean"),
        (("{path}", "--label=known", "--positive=ja"), "has no positive"),
        (
            ("{path}", "--label=known", "--json={path}/x.json"),
            "--json is .*, but .*x.csv is no folder; a",
        ),
        (("{path}", "--label=known", "--seed=-1"), "^--seed is '-1'; accepted: an integer from 0"),
        (("{path}", "--label=known", "--seed=x"), "^--seed is 'x'; accepted: an integer from 0"),
        (("{path}", "--label"), "^--label has no value; accepted: --label=VALUE"),
        (("{path}", "--prior=0.2"), "^--prior is not an option of this command; accepted: --help,"),
        (("{path}", "--label=known", "--label=a"), "^--label is 'known' and 'a'; accepted: every"),
        (("{folder}",), "an empty folder; accepted: a folder that holds positive/"),
        (("{folder}", "--label=known"), "--label is 'known'; accepted: nothing, since DATA is the"),
        (("{folder}", "--id_column=a"), "--id_column is 'a'; accepted: nothing, since DATA is the"),
        (("{folder}", "--words=a"), "--words is 'a'; accepted: nothing, since DATA is the folder"),
        (("{path}", "--label=known", "--id_column=c"), "^--id_column is 'c'; accepted: a column"),
        (("{path}", "--label=known", "--leave_out=c"), "^--leave_out is 'c'; accepted: a column"),
        (("{path}", "--label=known", "--words=known"), "^--words names 'known', which is the labe"),
    ],
)
def test_bad_input_is_one_line_and_the_status_2(tmp_path, capsys, arguments, message):
    path = tmp_path / "x.csv"
    path.write_text("a,b,known\n" + "1,2,yes\n3,4,\n" * 20)
    (tmp_path / "empty").mkdir()
    words = [x.format(path=path, folder=tmp_path / "empty") for x in arguments]
    assert run(*words) == 2
    out, error = capsys.readouterr()
    assert out == "" and error.count("\n") == 1 and re.search(message, error), error
    assert not list(tmp_path.glob("*.json"))


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """40 bright and 60 mixed images: one copied, four damaged, a test image seen in training."""
    rng = np.random.default_rng(0)
    root = tmp_path_factory.mktemp("images")

    def write(name, is_bright, width):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = rng.integers(0, 100, [20, width]) + 150 * is_bright
        Image.fromarray(pixels.astype(np.uint8)).save(path)

    for i in range(40):
        write(f"positive/{i}.png", True, 24)
    for i in range(60):
        write(f"unlabeled/{i}.png", i % 3 == 0, 20)
    for name in ("positive", "negative"):
        write(f"test/{name}/a.png", name == "positive", 20)
    (root / "unlabeled/copy.png").write_bytes((root / "positive/3.png").read_bytes())
    (root / "test/positive/seen.png").write_bytes((root / "positive/4.png").read_bytes())
    for name in ("positive/bad.png", "unlabeled/bad.png", "test/negative/bad.png"):
        (root / name).write_bytes(b"no image")
    (root / "test/negative/gone.png").symlink_to(root / "nowhere.png")
    return root


def test_a_folder_of_images_is_checked_for_damage_copies_and_the_size_of_its_files(
    images, tmp_path, capsys
):
    output = tmp_path / "found.json"
    assert run(images, f"--json={output}") == 3
    found = {x["name"]: x for x in json.loads(output.read_text())["findings"]}
    assert found["damaged"]["numbers"]["images"] == {
        "positive": ["positive/bad.png"],
        "unlabeled": ["unlabeled/bad.png"],
        "test": ["test/negative/bad.png", "test/negative/gone.png"],
    }
    assert found["test_copies"]["numbers"]["images"] == ["test/positive/seen.png"]
    assert found["duplicates"]["numbers"]["labeled_rows"] == 1
    assert "positive/3.png (P) = unlabeled/copy.png (U)" in found["duplicates"]["evidence"][1]
    assert "width" in found["leak"]["title"] and found["leak"]["severity"] == "error"
    text = capsys.readouterr().out
    command = next(line for line in text.splitlines() if "pujax train" in line)
    assert "own_folder:method=nnpu" in command
    assert command.endswith("--config.data.unreadable=skip")
    assert "grey pixels" in text
    columns = inputs.read(str(images), label="").problem.columns
    assert len(columns) == 256 and columns[:17:16] == ("pixel 1, 1", "pixel 2, 1")
    assert columns[-1] == "pixel 16, 16"


def test_a_folder_of_images_that_are_all_alike_is_named(tmp_path, capsys):
    for role in ("positive", "unlabeled"):
        (tmp_path / role).mkdir()
        for i in range(6):
            Image.new("L", (8 + i, 8), 255).save(tmp_path / role / f"{i}.png")
    assert run(tmp_path) == 2
    *_, line = capsys.readouterr().err.splitlines()
    assert (
        line.startswith(f"{tmp_path}: all images that can be read are alike") and "accept" in line
    )


def test_a_leak_is_named_by_its_column_and_not_by_one_of_a_like_name(tmp_path, capsys):
    rng = np.random.default_rng(0)
    known = np.arange(300) % 3 == 0
    words = np.where(known, "paid", np.where(rng.random(300) < 0.5, "new", "old"))
    rows = zip(known, words, rng.normal(size=300).round(3), rng.normal(size=300), strict=True)
    lines = [f"{k:d},{word},{a},{b}" for k, word, a, b in rows]
    (tmp_path / "a.csv").write_text("\n".join(["known,status,status_paid,x", *lines]))
    assert run(tmp_path / "a.csv", "--label=known") == 3
    text = capsys.readouterr().out
    assert "column 'status':" in text and "column 'status_paid':" not in text
    # The command has no option for what a 0 is.
    assert "100 rows are '1'" in text and "zero_is" not in text
