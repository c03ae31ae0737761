"""What a run on examples with several labels leaves, and what its model says of new ones."""

import csv
import json
import pickle
import shutil

import numpy as np
import pytest
from PIL import Image
from scipy import special

import pujax
from pujax import checksums, metrics, predict, training
from pujax.data import image_preparation, preparation, sources
from pujax.data.image_preparation import ImagePreparation
from pujax.training import experiment, hub, new_rows, own_results, prediction_csv
from pujax.training.evaluation import multilabel
from tests import tiny
from tests.training import multilabel_runs as runs

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, one_device):
    """A run on a table at a threshold of its own, and its archive."""
    root = tmp_path_factory.mktemp("labels")
    path = runs.write_table(root / "small.npz")
    training.run(runs.table_config(path, threshold=0.6), str(root / "run"))
    return root / "run", path


def table(path):
    """Rows of a CSV file, its heading first."""
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def forge(place, changes):
    """Changes the description of a saved model, with the checksum that it then has."""
    path = place / "config.json"
    document = json.loads(path.read_text()) | changes
    del document["checksum"]
    document["checksum"] = checksums.of_document(document)
    path.write_text(json.dumps(document))


def scores_in(path, num_labels):
    """Ids and scores of the predictions of several labels."""
    rows = table(path)[1:]
    scores = [[float(x) for x in row[1 + num_labels : 1 + 2 * num_labels]] for row in rows]
    return [row[0] for row in rows], np.array(scores)


def test_a_run_lists_its_predictions_beside_what_was_known(finished):
    folder, path = finished
    heading, *rows = table(folder / "predictions.csv")
    names = ["sea", "sun", "sand"]
    after = [f"{what}_{name}" for what in ("score", "known") for name in names]
    assert heading == ["row", *names, *after]
    assert [row[0] for row in rows] == [str(i + 1) for i in range(120)]
    _, scores = scores_in(folder / "predictions.csv", 3)
    decisions = np.array([row[1:4] for row in rows], int)
    np.testing.assert_array_equal(decisions, scores >= special.logit(0.6))
    assert 0 < decisions.mean() < 1
    config = runs.table_config(path)
    labeled = experiment.load_data(config).labeled
    words = {1: "1", -1: "0", 0: ""}
    assert [row[7:] for row in rows] == [[words[x] for x in row] for row in labeled.tolist()]
    assert {"", "0", "1"} == {cell for row in rows for cell in row[7:]}


def test_a_saved_model_says_of_rows_what_the_run_says(finished, tmp_path):
    folder, path = finished
    with np.load(path) as archive:
        inputs, labels = archive["X_train"], archive["Y_test"]
        tested = archive["X_test"]
    model = pickle.loads(pickle.dumps(pujax.load(folder)))
    found = model.predict(inputs, chunk_size=7)
    assert found.label_names == ("sea", "sun", "sand") and found.id_name == "row"
    assert found.probabilities is None and found.scores.shape == (120, 3)
    _, scores = scores_in(folder / "predictions.csv", 3)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-6, atol=1e-6)
    for column in range(3):
        order = np.argsort(-found.scores[:, column])
        np.testing.assert_array_equal(found.ranks[order, column], np.arange(1, 121))
    # The rule of the run is the one that its own test metrics are of.
    summary = json.loads((folder / "summary.json").read_text())
    decisions = model.predict(tested).decisions
    true = (decisions & (labels == 1)).sum()
    assert true / labels.sum() == pytest.approx(summary["test"]["overall_recall"], rel=1e-6)


def test_what_training_rows_say_of_features_is_said(tmp_path, monkeypatch):
    path, said = runs.write_table(tmp_path / "small.npz"), []
    with np.load(path) as archive:
        arrays = dict(archive)
    arrays["X_train"][:, 5] = 0
    np.savez(path, **arrays)
    monkeypatch.setattr(experiment, "message", said.append)
    config = runs.table_config(path)
    experiment._configs(config, experiment.load_data(config), str(tmp_path / "run"), "")
    assert said == ["1 of 6 features are the same in all training rows and unused: '6'"]


def test_another_threshold_or_other_names_are_not_called_finished(finished, tmp_path):
    folder, path = finished
    with pytest.raises(ValueError, match=r"run\.threshold: 0\.6 there, 0\.3 here"):
        training.run(runs.table_config(path, threshold=0.3), str(folder))
    arrays = dict(np.load(path))
    arrays["label_names"] = arrays["label_names"][[1, 0, 2]]
    np.savez(tmp_path / "swapped.npz", **arrays)
    with pytest.raises(ValueError, match="holds a run on other data"):
        training.run(runs.table_config(str(tmp_path / "swapped.npz"), threshold=0.6), str(folder))


def test_a_rule_holds_for_each_label_by_itself(finished):
    folder, path = finished
    with np.load(path) as archive:
        inputs = archive["X_train"]
    model = pujax.load(folder)
    scores = model.predict(inputs).scores
    top = model.predict(inputs, decide="top:4").decisions
    np.testing.assert_array_equal(top, scores >= np.sort(scores, axis=0)[-4])
    assert top.sum(0).tolist() == [4, 4, 4]
    share = model.predict(inputs, decide="share:0.1").decisions
    assert share.sum(0).tolist() == [12, 12, 12]
    above = model.predict(inputs, decide="score:0.25").decisions
    np.testing.assert_array_equal(above, scores > 0.25)
    with pytest.raises(ValueError, match="decide is 'probability:0.5'.*no probability is known"):
        model.predict(inputs, decide="probability:0.5")


def test_the_command_writes_them_and_takes_the_place_of_its_own_only(finished, tmp_path, capsys):
    folder, path = finished
    with np.load(path) as archive:
        np.save(tmp_path / "new.npy", archive["X_test"][:5])
    output = tmp_path / "labels.csv"
    words = ["predict", str(folder), str(tmp_path / "new.npy"), f"--output={output}"]
    for _ in range(2):  # over its own output, too
        assert predict.main(words) == 0
    heading, *rows = table(output)
    assert heading == ["row", "sea", "sun", "sand", "score_sea", "score_sun", "score_sand"]
    count = sum(int(cell) for row in rows for cell in row[1:4])
    assert f"5 rows, {count} labels predicted: {output}" in capsys.readouterr().out
    shutil.copy(folder / "predictions.csv", output)  # which says what was known
    assert predict.main(words) == 2
    assert "a file that pujax predict did not make" in capsys.readouterr().err


def test_the_text_of_several_labels_by_hand():
    scores = np.array([[0.5, -1.25], [np.nan, np.nan], [2.0, 3.0]])
    columns = (np.array(["x", "y", 'z"'], object), scores, scores > 0)
    text = prediction_csv.label_text("file", ("a", "b"), *columns)
    assert text == 'file,a,b,score_a,score_b\nx,1,0,0.5,-1.25\ny,,,,\n"z""",1,1,2,3\n'
    known = np.array([[1, -1], [0, 1], [0, 0]])
    text = prediction_csv.label_text("a", ("a", "b"), *columns, known, with_header=True)
    assert text.splitlines()[:3] == [
        "id,a,b,score_a,score_b,known_a,known_b",
        "x,1,0,0.5,-1.25,1,0",
        "y,,,,,,1",
    ]
    # Labels that are called as the ids are, or would be.
    text = prediction_csv.label_text("a", ("a", "id"), *columns)
    assert text.splitlines()[0] == "_id,a,id,score_a,score_id"
    # A label that is called as another one's column of scores.
    text = prediction_csv.label_text("file", ("a", "score_a"), *columns)
    assert text.splitlines()[0] == "file,a,score_a,_score_a,_score_score_a"
    # Whichever of the labels it is.
    text = prediction_csv.label_text("file", ("score_c", "c"), *columns)
    assert text.splitlines()[0] == "file,score_c,c,_score_score_c,_score_c"
    part = prediction_csv.label_text("file", ("a", "b"), *columns, with_header=False)
    assert part.splitlines()[0] == "x,1,0,0.5,-1.25"


@pytest.mark.parametrize(
    ("heading", "is_one"),
    [
        ("file,a,score_a", True),
        ("file,a,score_a,_score_a,_score_score_a", True),
        ("file,a,b,score_a,score_b", True),
        ("file,a,b,score_b,score_a", False),
        ("file,a,b,score_a,score_b,known_a,known_b", False),
        ("file,a", False),
        ("file", False),
        ("file,split,dog,cat", False),
        ("row,score,probability,rank,decision", True),
        ("row,score,probability,rank,decision,held_out", False),
    ],
)
def test_headings_of_predictions_are_told_from_others(heading, is_one, tmp_path):
    assert prediction_csv.is_of_new_rows(heading.split(",")) == is_one
    (tmp_path / "a.csv").write_text(f"{heading}\n")
    assert predict._are_predictions(str(tmp_path / "a.csv")) == is_one


def test_predictions_of_thousands_of_labels_are_known_by_their_heading(tmp_path):
    names = [f"GO:{i:07}" for i in range(3000)]
    numbers = np.zeros([1, 3000])
    text = prediction_csv.label_text("row", names, np.array([1]), numbers, numbers > 0)
    (tmp_path / "a.csv").write_text(text)
    assert predict._are_predictions(str(tmp_path / "a.csv"))


def test_predictions_of_labels_with_line_breaks_are_known_by_their_heading(tmp_path):
    names, numbers = ["dog\nbig", "c\rat", 'a"b', "d,e"], np.zeros([1, 4])
    text = prediction_csv.label_text("row", names, np.array([1]), numbers, numbers > 0)
    (tmp_path / "a.csv").write_text(text, newline="")
    assert predict._are_predictions(str(tmp_path / "a.csv"))
    (tmp_path / "a.csv").write_text(text.replace("score_d", "d"), newline="")
    assert not predict._are_predictions(str(tmp_path / "a.csv"))


@pytest.mark.parametrize("name", ["folder", "missing.npy", "empty.npy", "a.xlsx", "a.txt"])
def test_a_model_of_arrays_asks_for_no_table(name, tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "empty.npy").touch()
    for table in ("a.xlsx", "a.txt"):
        (tmp_path / table).write_text("x,y\n1,2\n")
    for first_index, formats in ((None, r"\.npy or \.npz"), (1, r"\.npy, \.npz or svmlight")):
        learned = preparation.Preparation(("1", "2"), first_index=first_index)
        with pytest.raises(ValueError, match=rf"accepted: (a file, )?{formats}$"):
            new_rows.of_table(learned, tmp_path / name, id_name="")


def test_an_array_of_other_images_is_refused_with_its_file(tmp_path):
    np.save(tmp_path / "grey.npy", np.zeros([2, 4, 5], np.uint8))
    with pytest.raises(ValueError, match=r"images in .*grey.npy is 'uint8 \(2, 4, 5\)'; accepted"):
        new_rows.of_images(ImagePreparation(4, 3), tmp_path / "grey.npy")


def test_grey_images_need_no_axis_of_channels_as_in_an_archive(tmp_path):
    images = np.random.default_rng(0).integers(0, 256, [3, 4, 5]).astype(np.uint8)
    learned = ImagePreparation(4, 1)
    expected = learned.transform(images[..., None])
    np.testing.assert_array_equal(learned.transform(images), expected)
    np.save(tmp_path / "grey.npy", images)
    for rows in (images, tmp_path / "grey.npy"):
        chunks = new_rows.of_images(learned, rows, num_rows=2).chunks
        np.testing.assert_array_equal(np.concatenate([x.inputs for x in chunks]), expected)
    colour = np.zeros([4, 5, 3], np.uint8)  # one image, not four that are three pixels wide
    with pytest.raises(ValueError, match=r"'uint8 \(4, 5, 3\)'; accepted: .* or \[n, height, wid"):
        learned.transform(colour)


def test_a_label_is_predicted_at_the_threshold_as_the_report_counts():
    scores = np.array([[0.0, 1.0], [-1.0, 0.5], [np.nan, 2.0]])
    assert multilabel.is_predicted(scores, 0.5).tolist() == [
        [True, True],
        [False, True],
        [False, True],
    ]
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=[40, 3]), rng.integers(0, 2, [40, 3])
    for threshold in (0.3, 0.5, 0.7):
        predicted = multilabel.is_predicted(scores, threshold)
        report = metrics.multilabel_report(special.expit(scores), labels, threshold=threshold)
        recall = (predicted & (labels == 1)).sum() / labels.sum()
        assert report.overall_recall == pytest.approx(recall, rel=1e-9)


def test_streamed_images_get_the_scores_of_training(tmp_path):
    pytest.importorskip("grain")
    folder = tmp_path / "images"
    runs.write_folders(folder)
    training.run(runs.folder_config(folder), str(tmp_path / "run"))
    ids, scores = scores_in(tmp_path / "run" / "predictions.csv", 2)
    model = pujax.load(tmp_path / "run")
    found = model.predict(str(folder / "train"))
    assert found.id_name == "file" and found.label_names == ("green", "red")
    rows = [list(found.ids).index(name) for name in ids]
    np.testing.assert_allclose(found.scores[rows], scores, rtol=1e-6, atol=1e-6)
    (folder / "broken.png").write_bytes(b"no image")
    paths = [str(folder / "train" / ids[0]), str(folder / "broken.png")]
    with pytest.raises(ValueError, match="broken.png cannot be read as an image"):
        model.predict(paths)
    skipped = model.predict(paths, unreadable="skip")
    assert np.isnan(skipped.scores[1]).all() and not skipped.decisions[1].any()
    assert skipped.ranks.tolist() == [[1, 1], [0, 0]]


@pytest.mark.thorough
def test_images_that_are_not_square_are_resized_alike(tmp_path):
    path = tmp_path / "wide.npz"
    runs.write_images(path)
    with np.load(path) as archive:
        parts = {name: archive[name] for name in archive.files}
    wide = {x: np.concatenate([parts[x], parts[x][..., :4]], axis=2) for x in ("X_train", "X_test")}
    np.savez(path, **(parts | wide))
    training.run(runs.image_config(path), str(tmp_path / "run"))
    _, scores = scores_in(tmp_path / "run" / "predictions.csv", 2)
    np.save(tmp_path / "new.npy", wide["X_train"][..., None])
    names = []
    for i, pixels in enumerate(wide["X_train"][:3]):
        names.append(str(tmp_path / f"{i}.png"))
        Image.fromarray(pixels).save(names[-1])
    model = pujax.load(tmp_path / "run")
    for rows in (wide["X_train"][..., None], tmp_path / "new.npy", names):
        found = model.predict(rows).scores
        np.testing.assert_allclose(found, scores[: len(found)], rtol=1e-6, atol=1e-6)
    assert "grey, 8 x 12 pixels" in model.model.preparation.takes


def test_a_preparation_of_images_that_are_not_square_is_kept(tmp_path):
    learned = ImagePreparation((2, 5), 3, resample="bicubic")
    learned.save(tmp_path)
    assert image_preparation.load(tmp_path) == learned and learned.shape == (2, 5, 3)
    image = np.random.default_rng(0).integers(0, 256, [4, 3, 3]).astype(np.uint8)
    tall = np.repeat(image, 2, axis=0)[:5, :2]  # as high as the others are wide
    for taken in (tall, image):
        resized = Image.fromarray(taken).resize((5, 2), Image.Resampling.BICUBIC)
        np.testing.assert_array_equal(learned.transform(taken[None])[0], np.asarray(resized))
    Image.fromarray(image).save(tmp_path / "a.png")
    np.testing.assert_array_equal(learned.transform([str(tmp_path / "a.png")])[0], resized)
    (tmp_path / "preparation.json").write_text(
        (tmp_path / "preparation.json").read_text().replace("2,", "2, 3,")
    )
    with pytest.raises(ValueError, match="preparation.json cannot be read"):
        image_preparation.load(tmp_path)


def test_photographs_of_ones_own_are_turned_as_their_camera_says(tmp_path):
    pixels = np.zeros([8, 8, 3], np.uint8)
    pixels[:, 4:] = 200  # upright: bright on the right
    exif = Image.Exif()
    exif[0x0112] = 3  # the camera was upside down
    for split in ("train", "test"):
        for name, options in (("plain", {}), ("turned", {"exif": exif})):
            image = Image.fromarray(pixels if name == "plain" else pixels[::-1, ::-1])
            (tmp_path / split / "dog").mkdir(parents=True, exist_ok=True)
            image.save(tmp_path / split / "dog" / f"{name}.png", **options)
    data = sources.load("multilabel", directory=tmp_path, image_size=8, load_size=8)
    plain, turned = data.train_inputs.array()
    np.testing.assert_array_equal(turned, plain)
    crops = [data.train_inputs.read_crop(i, np.random.default_rng(0), (8,)) for i in range(2)]
    np.testing.assert_array_equal(*crops)
    assert list(data.own.ids) == ["dog/plain.png", "dog/turned.png"]


@pytest.mark.thorough
def test_the_vectors_of_the_classes_go_with_the_model(tmp_path):
    path = runs.write_images(tmp_path / "images.npz")
    words = tmp_path / "vectors.npy"
    np.save(words, np.random.default_rng(0).normal(size=[2, 7]))
    config = runs.image_config(path)
    config.model.name, config.model.options = "resnet_small", {"width": 4, "stage_sizes": (1,)}
    small = {"reduced_width": 4, "attention_width": 4, "graph_steps": 1, "num_epochs": 1}
    config.method.update({"head": "semantic_graph", "word_vectors": str(words)} | small)
    training.run(config, str(tmp_path / "run"))
    words.unlink()
    place = tmp_path / "run" / "model"
    assert {file.name for file in place.iterdir()} <= set(hub.FILES)
    description = json.loads((place / "config.json").read_text())
    assert description["config"]["method"]["word_vectors"] == "word_vectors.npy"
    model = pickle.loads(pickle.dumps(pujax.load(place)))
    with np.load(path) as archive:
        found = model.predict(archive["X_train"][..., None])
    _, scores = scores_in(tmp_path / "run" / "predictions.csv", 2)
    np.testing.assert_allclose(found.scores, scores, rtol=1e-5, atol=1e-6)


def test_the_card_says_what_the_labels_are_and_what_was_known(finished):
    folder, path = finished
    text = (folder / "model" / "README.md").read_text()
    labeled = experiment.load_data(runs.table_config(path)).labeled
    assert "# pu_mlc on small.npz" in text and "- Labels: sea, sun, sand." in text
    assert "A classifier of 3 labels" in text and "on 120 examples" in text
    known = f"of whose labels {(labeled == 1).sum()} are known\nto be present, "
    assert f"{known}{(labeled == -1).sum()} known to be absent" in text
    assert "the sigmoid of its score is 0.6 or" in text
    assert "| mean_average_precision |" in text and "Estimates without" not in text
    assert str(folder.parent).encode() not in b"".join(
        file.read_bytes() for file in (folder / "model").iterdir()
    )


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"label_names": ["sea", "sun"]}, "label_names is"),
        ({"label_names": ["sun", "sea", "sand"]}, "label_names is"),
        ({"label_names": None}, "label_names is"),
        ({"label_names": ["sea"] * 1000}, "label_names is"),
        ({"threshold": 1.5}, "threshold is 1.5"),
        ({"threshold": None}, "threshold"),
    ],
)
def test_a_forged_description_is_refused_in_one_line(finished, tmp_path, changes, said):
    shutil.copytree(finished[0] / "model", tmp_path / "model")
    forge(tmp_path / "model", changes)
    with pytest.raises(ValueError, match=said) as error:
        pujax.load(tmp_path)
    assert "\n" not in str(error.value) and len(str(error.value)) < 1000


def test_a_preparation_that_does_not_fit_the_network_is_refused(finished, tmp_path):
    place = tmp_path / "model"
    shutil.copytree(finished[0] / "model", place)
    preparation.Preparation(("1", "2")).save(place)
    files = {"preparation.json": checksums.of_file(place / "preparation.json")}
    forge(place, {"files": files})
    accepted = r"preparation.json: the shape is \(2,\); accepted: \(6,\), which the network"
    with pytest.raises(ValueError, match=accepted):
        pujax.load(tmp_path)


def test_the_rule_of_one_label_is_refused_by_name(finished):
    config = runs.table_config(finished[1], decide="top:5")
    with pytest.raises(ValueError, match=r"run.decide is 'top:5'.*run.threshold decides"):
        training.run(config, str(finished[0].parent / "other"))
    assert not (finished[0].parent / "other").exists()


def test_the_threshold_of_several_labels_is_refused_with_one(tmp_path):
    config = tiny.config("nnpu", run={"threshold": 0.3})
    accepted = "run.threshold is 0.3; accepted: 0.5 with one label per example, .* run.decide says"
    with pytest.raises(ValueError, match=accepted):
        own_results.check_decision(config, tiny.problem())


def test_hidden_positives_are_counted_at_the_threshold_that_decides(finished):
    folder, path = finished
    decisions = np.array([row[1:4] for row in table(folder / "predictions.csv")[1:]], int)
    data = experiment.load_data(runs.table_config(path))
    hidden = (data.labeled == 0) & (data.truth == 1)
    counted = json.loads((folder / "summary.json").read_text())["train"]
    assert counted["recovered_positives"] == decisions[hidden].sum() > 0
    _, scores = scores_in(folder / "predictions.csv", 3)
    assert (scores[hidden] > 0).sum() != decisions[hidden].sum()  # else nothing is shown
