"""Rows and pictures of the data: the right ones, escaped, and only of data that are the same."""

import base64
import io

import ml_collections
import numpy as np
import pandas as pd
import pytest
from PIL import Image

from pujax.data.readers import download
from pujax.reports import examples
from pujax.training import config as config_lib
from pujax.training import experiment
from tests.reports import folders

NAME = "note <script>alert(1)</script>"


def run_on(folder, tree):
    """A run on real data, whose scores are made up, and the problem."""
    data = experiment.load_data(config_lib.resolve(ml_collections.ConfigDict(tree)))
    random = np.random.default_rng(0)
    arrays = {
        "train_scores": random.normal(size=len(data.labeled)).astype(np.float32),
        "train_labeled": data.labeled,
        "train_truth": data.truth,
        "train_ids": data.source_ids,
        "test_scores": random.normal(size=len(data.test_labels)).astype(np.float32),
        "test_labels": data.test_labels,
        "held_scores": random.normal(size=len(data.validation_labeled)).astype(np.float32),
        "held_labeled": data.validation_labeled,
        "held_truth": data.validation_truth,
        "held_ids": data.validation_ids,
    }
    folders.write(folder, tree, summary=folders.base_summary(), scores=arrays, digest=data.digest())
    return folders.read(folder), data


def test_pictures_are_those_of_the_examples(tmp_path):
    run, data = run_on(tmp_path / "run", folders.config(source="digits", num_labeled=100))
    found = examples.section(run)
    assert found.texts == () and len(found.cards) == 5
    unlabeled = np.flatnonzero(~data.labeled)
    best = unlabeled[np.argmax(run.scores.train_scores[unlabeled])]
    card = found.cards[0].cards[0]
    assert card.name == f"training row {data.source_ids[best] + 1}"
    content = base64.b64decode(card.picture.removeprefix("data:image/png;base64,"))
    with Image.open(io.BytesIO(content)) as image:
        np.testing.assert_array_equal(np.asarray(image), np.asarray(data.inputs[[best]])[0, ..., 0])
    truth = {1: "positive", 0: "negative"}[int(data.truth[best])]
    assert ("known", f"unlabeled, in truth {truth}") in card.facts
    wrong = found.cards[4]
    assert "wrong class" in wrong.caption and len(wrong.cards) == 6


def test_data_that_have_changed_are_not_shown(tmp_path):
    run, _ = run_on(tmp_path / "run", folders.config(source="digits", num_labeled=100))
    found = examples.section(folders.changed(run, digest="another"))
    assert "no longer what this run was trained on" in found.texts[0]
    assert found.cards == () and len(found.tables) == 5


def table_file(path, column):
    random = np.random.default_rng(0)
    lines = [f"customer,amount,{column},fraud"]
    for i in range(60):
        word = "<b>bold</b>" if i % 3 else "plain"
        amount = random.normal() + (i < 20)
        lines.append(f"C{i},{amount:.3f},{word},{int(i < 20 and i % 2)}")
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.thorough
def test_rows_of_a_table_are_those_of_the_file_and_carry_no_markup(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table_file(tmp_path / "x.csv", NAME)
    tree = folders.config(
        source="own_table",
        path="x.csv",
        label="fraud",
        positive_classes=[1],
        num_labeled=0,
        holdout=0.2,
        prior=0.3,
    )
    run, data = run_on(tmp_path / "run", tree)
    found = examples.section(run)
    columns = found.tables[0].columns
    assert columns == ("example", "score", "known", "amount", NAME)
    cells = dict(line.split(",", 1) for line in (tmp_path / "x.csv").read_text().splitlines()[1:])
    for table in found.tables:
        for row in table.rows:
            id_name, own = row[0].split()
            assert id_name == "customer"
            amount, word, _ = cells[own].split(",")
            assert row[3:] == (amount, word)
    (tmp_path / "x.csv").unlink()
    gone = examples.section(run)
    assert "data.path is 'x.csv', which does not exist" in gone.texts[0]


def test_label_ids_and_what_was_left_out_are_not_shown(tmp_path):
    random = np.random.default_rng(0)
    table = pd.DataFrame({"customer_id": [f"C{i}" for i in range(60)], "name": "Jane"})
    table["order_id"] = [f"O{i}" for i in range(60)]
    table = table.assign(amount=random.normal(size=60), fraud=np.arange(60) % 3 // 2)
    table.to_csv(tmp_path / "x.csv", index=False)
    table.assign(amount=random.normal(size=60)).to_csv(tmp_path / "t.csv", index=False)
    tree = folders.config(
        source="own_table",
        dir=str(tmp_path),
        path="x.csv",
        test_path="t.csv",
        label="fraud",
        leave_out="name",
        positive_classes=(1,),
        num_labeled=0,
        prior=0.5,
    )
    run, data = run_on(tmp_path / "run", tree)
    assert data.own.preparation.aside == ("fraud", "customer_id", "order_id", "name")
    found = examples.section(run)
    assert len(found.tables) == 5
    assert all(shown.columns[3:] == ("amount",) for shown in found.tables)


def test_nothing_is_downloaded(tmp_path):
    checksum = "md5:" + "0" * 32
    with (
        download.offline(),
        pytest.raises(download.MissingDataError, match="nothing is downloaded here"),
    ):
        download.fetch(
            "http://127.0.0.1:9/x", directory=tmp_path / "d", filename="x", checksum=checksum
        )
    assert not (tmp_path / "d").exists()
    run = folders.read(folders.tested(tmp_path / "run", source="mnist", dir=str(tmp_path)))
    (text,) = examples.section(run).texts
    assert "could not be read again" in text and "nothing is downloaded here" in text
    tfds = folders.tested(tmp_path / "tfds", source="tfds", tfds_name="mnist")
    assert "tensorflow-datasets" in examples.section(folders.read(tfds)).texts[0]


def test_a_copy_of_a_known_positive_in_u_is_no_unlabeled_example(tmp_path):
    run = folders.read(folders.tested(tmp_path / "run"))
    scores = run.scores
    # As in two-sample data: the last rows of U are the first known positives once more.
    scores.train_ids[-5:] = scores.train_ids[:5]
    scores.train_scores[-5:] = 99.0
    kinds = examples._kinds(run)
    shown = {row for kind in kinds[:3] for _, row in kind.members}
    assert shown and not shown & set(range(125, 130))


@pytest.mark.parametrize(
    ("setting", "name"), [("one_sample", "probability in U"), ("two_sample", "probability")]
)
def test_probabilities_say_of_which_rows_they_are(setting, name, tmp_path):
    run, _ = run_on(tmp_path / "run", folders.config(source="digits", num_labeled=100))
    scores, summary = run.scores, run.summary | {"setting": setting}
    stated = {
        f"{part}_probabilities": np.full(len(getattr(scores, f"{part}_scores")), share, np.float32)
        for part, share in (("train", 0.25), ("test", 0.5))
    }
    run = folders.changed(run, summary=summary, scores=folders.changed(scores, **stated))
    found = examples.section(run)
    assert any("lower than that of a new row" in text for text in found.texts) == (
        setting == "one_sample"
    )
    assert all((name, "25.0 %") in card.facts for kind in found.cards[:4] for card in kind.cards)
    assert all(("probability", "50.0 %") in card.facts for card in found.cards[4].cards)
