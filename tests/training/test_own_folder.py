"""From one folder of images to predictions: what a run leaves, and how it is used again."""

import csv
import os
import shutil

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import pujax
from pujax import metrics, predict, training
from pujax.configs import own_folder
from pujax.training import config as config_lib
from pujax.training import experiment

MODES = ("RGB", "L", "RGBA", "CMYK")


def write(path, seed, bright):
    """A noisy image, in one of several modes and sizes, whose left half may be bright."""
    rng = np.random.default_rng(seed)
    pixels = rng.integers(0, 120, (11 + seed % 3, 10 + seed % 4, 3)).astype(np.uint8)
    pixels[:, :5] += 90 * np.uint8(bright)
    path.parent.mkdir(parents=True, exist_ok=True)
    image, mode = Image.fromarray(pixels), MODES[seed % 4]
    image.convert(mode).save(path.with_suffix(".jpg" if mode == "CMYK" else ".png"))


def fill(root):
    """40 labelled and 60 hidden positives, 100 negatives of which 20 are known, and a test set."""
    for i in range(40):
        write(root / "positive" / f"{i:03d}", i, True)
    for i in range(140):
        write(root / "unlabeled" / f"{i:03d}", 1000 + i, i % 7 < 3)
    for i in range(20):
        write(root / "negative" / "plate" / f"{i:03d}", 2000 + i, False)
    for i in range(20):
        write(root / "test" / ("positive" if i % 2 else "negative") / f"{i}", 3000 + i, i % 2)


def configured(root, **data):
    config = config_lib.default_config("nnpu")
    config.data.update({"source": "own_folder", "path": str(root), "image_size": 8})
    config.data.update({"positive_classes": (), "num_labeled": 0, "holdout": 0.25, "prior": 0.5})
    config.data.update(data)
    config.model.name = "small_cnn"
    config.model.options = {"channels": (4, 8, 8), "hidden": (8,)}
    config.method.update({"num_epochs": 4, "batch_size": 32, "learning_rate": 0.01})
    config.run.update({"figures": False, "eval_batch_size": 32, "decide": "top:30"})
    return config


pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture(scope="module")
def finished(tmp_path_factory, one_device):
    """Folder of images, of a finished run on it, what was printed, and its summary."""
    folder = tmp_path_factory.mktemp("own")
    fill(folder / "images")
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "message", said.append)
        summary = training.run(configured(folder / "images"), str(folder / "run"))
    return folder / "images", folder / "run", "\n".join(said), summary


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_every_unlabeled_image_is_listed_by_its_file(finished):
    images, run, said, summary = finished
    written = pd.read_csv(run / "predictions.csv")
    names = ["file", "score", "probability", "rank", "decision", "held_out"]
    assert list(written) == [*names, "probability_low", "probability_high"]
    listed = sorted(p for p in images.rglob("*.*") if p.relative_to(images).parts[0] != "test")
    names = [str(p.relative_to(images)) for p in listed]
    assert sorted(written.file) == [name for name in names if not name.startswith("positive/")]
    assert written.decision.sum() == 30 and written.held_out.sum() == 40
    bright = written.file.str.extract(r"unlabeled/(\d+)")[0].astype(float) % 7 < 3
    assert metrics.auc(written.score.to_numpy(), bright.to_numpy()) > 0.9
    assert "40 images in positive/" in said and "20 images in negative/ are known neg" in said


@pytest.mark.thorough
def test_lagam_learns_from_known_negatives_and_predicts(tmp_path):
    fill(tmp_path / "images")
    config = own_folder.get_config("method=lagam")
    other = configured(tmp_path / "images")
    config.data.update({"path": other.data.path, "image_size": 8, "holdout": 0.25, "prior": 0.5})
    config.data.num_support = 20
    config.model.options = other.model.options
    config.run.update({"figures": False, "decide": "top:30", "compare": "nnpu"})
    fields = {"num_epochs": 6, "warmup_epochs": 2, "neighbors_after_epoch": 3}
    config.method.update(fields | {"padding": 1, "flip": False, "num_clusters": 2})
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(experiment, "message", said.append)
        summary = training.run(config, str(tmp_path / "run"))
    assert summary["counts"]["support"] == 20 and summary["counts"]["support_positives"] == 10
    lowered = "support_batch_size is 20 in place of 60, since there are no more clean ones"
    assert lowered in "\n".join(said)
    written = pd.read_csv(tmp_path / "run" / "predictions.csv")
    # All known negatives are unlabeled, those of the support set, too.
    assert written.file.str.startswith("negative/").sum() == 20 and len(written) == 160
    card = (tmp_path / "run" / "model" / "README.md").read_text()
    assert "a support set\nof 10 more positives and 10 known negatives." in card
    bright = written.file.str.extract(r"unlabeled/(\d+)")[0].astype(float) % 7 < 3
    assert metrics.auc(written.score.to_numpy(), bright.to_numpy()) > 0.9
    again = pujax.load(tmp_path / "run").predict(tmp_path / "images" / "unlabeled")
    scores = pd.Series(again.scores, index="unlabeled/" + pd.Series(again.ids))
    listed = written[written.file.str.startswith("unlabeled/")]
    np.testing.assert_allclose(listed.score, scores[listed.file], rtol=1e-5, atol=1e-6)
    assert (tmp_path / "run" / "nnpu" / "model").is_dir()


def test_compared_methods_keep_the_views_of_images_that_they_need(finished, tmp_path, monkeypatch):
    built = []
    monkeypatch.setattr(experiment, "_train_all", lambda setups, *_: built.extend(setups))
    config = configured(finished[0], num_support=8)
    config.run.compare = "holistic_pu,impulses,lagam,ncpu"
    assert training.run(config, str(tmp_path / "run")) is None
    views = {setup.config.method.name: setup.config.method.augment for setup in built}
    assert views == {name: name != "nnpu" for name in views} and len(views) == 5


def test_a_method_that_the_network_does_not_suit_is_said_how_to_train(finished, tmp_path):
    config = configured(finished[0])
    config.run.compare = "gradpu"
    by_itself = "--config=own_folder:method=gradpu trains it with its own settings"
    with pytest.raises(ValueError, match=f"^run.compare=gradpu: model.*batch_norm.*; {by_itself}$"):
        training.run(config, str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_test_set_and_what_is_held_out_are_both_reported(finished):
    _, _, said, summary = finished
    assert summary["counts"]["test"] == 20 and summary["test"]["auc"] > 0.9
    held = {entry["name"]: entry["value"] for entry in summary["held_out"]}
    assert held["recall"] is not None and held["auc"] is not None
    assert "held-out rows say" in said and "test 20 (10 positive)" in said


def test_a_loaded_model_gives_the_bits_of_training(finished, tmp_path):
    images, run, *_ = finished
    assert predict.main(["p", str(run), str(images), f"--output={tmp_path / 'a.csv'}"]) == 0
    again = {row["file"]: row["score"] for row in rows(tmp_path / "a.csv")}
    written = rows(run / "predictions.csv")
    assert len(again) == 220 and len(written) == 160
    assert {row["file"]: row["score"] for row in written} == {
        row["file"]: again[row["file"]] for row in written
    }


def test_images_come_as_folder_paths_and_array(finished):
    images, run, *_ = finished
    model = pujax.load(run)
    whole = model.predict(images)
    assert whole.id_name == "file" and list(whole.ids) == sorted(whole.ids)
    paths = [str(images / name) for name in whole.ids[::-1]]
    listed = model.predict(paths)
    assert list(listed.ids) == paths
    close = {"rtol": 1e-5, "atol": 1e-6}  # a row's place in a batch may change how it is rounded
    np.testing.assert_allclose(listed.scores, whole.scores[::-1], **close)
    one = model.predict(paths[0])
    np.testing.assert_allclose(one.scores, listed.scores[:1], **close)
    pixels = np.random.default_rng(0).integers(0, 256, (50, 9, 7, 3)).astype(np.uint8)
    arrays = model.predict(pixels)
    assert arrays.id_name == "row" and list(arrays.ids) == list(range(1, 51))
    np.testing.assert_allclose(model.predict(pixels[::-1]).scores, arrays.scores[::-1], **close)


@pytest.mark.parametrize("size", [1, 7, 32, 100])
def test_scores_do_not_depend_on_the_chunks(finished, size):
    images, run, *_ = finished
    model = pujax.load(run)
    whole, cut = model.predict(images), model.predict(images, chunk_size=size)
    for name in ("ids", "scores", "probabilities", "ranks", "decisions"):
        np.testing.assert_array_equal(getattr(cut, name), getattr(whole, name))


def test_the_card_says_what_images_the_model_takes(finished):
    _, run, *_ = finished
    card = (run / "model" / "README.md").read_text()
    assert "Takes: images of any size" in card and "RGB, 8 x 8 pixels" in card


@pytest.fixture
def damaged(finished, tmp_path):
    """A folder of new images, one of which is damaged and one no image."""
    images, *_ = finished
    shutil.copytree(images / "unlabeled", tmp_path / "new")
    names = sorted(path.name for path in (tmp_path / "new").iterdir())
    (tmp_path / "new" / names[4]).write_bytes(b"nothing")
    (tmp_path / "new" / names[60]).write_bytes((images / "unlabeled" / names[60]).read_bytes()[:90])
    return tmp_path / "new", names


def test_a_damaged_image_is_refused_by_name_and_nothing_is_written(
    finished, damaged, tmp_path, capsys
):
    _, run, *_ = finished
    new, names = damaged
    target = tmp_path / "out" / "scores.csv"
    assert predict.main(["p", str(run), str(new), f"--output={target}"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert names[4] in line and "--unreadable=skip" in line and not target.parent.exists()


def test_damaged_images_stay_as_rows_without_a_score(finished, damaged, tmp_path, capsys):
    _, run, *_ = finished
    new, names = damaged
    target = tmp_path / "scores.csv"
    options = [f"--output={target}", "--unreadable=skip", "--decide=share:0.5"]
    assert predict.main(["p", str(run), str(new), *options]) == 0
    written = rows(target)
    assert [row["file"] for row in written] == names
    for i in (4, 60):
        assert list(written[i].values())[1:] == [""] * 6
    others = [row for i, row in enumerate(written) if i not in (4, 60)]
    assert sorted(int(row["rank"]) for row in others) == list(range(1, 139))
    assert sum(int(row["decision"]) for row in others) == 69
    captured = capsys.readouterr()
    assert "140 rows, 69 called positive, 2 without a score as they cannot be read" in captured.out
    assert names[4] in captured.err and names[60] in captured.err
    result = pujax.load(run).predict(new, unreadable="skip", decide="share:0.5")
    assert np.isnan(result.scores[[4, 60]]).all() and np.isnan(result.probabilities[[4, 60]]).all()
    assert not result.decisions[[4, 60]].any() and not result.ranks[[4, 60]].any()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (lambda images: images / "nowhere", "nowhere does not exist; accepted: images"),
        (lambda images: [], r"the rows are \[\]; accepted: images of any size"),
        (lambda images: [1], r"the rows are \[1\]; accepted: images of any size"),
        (lambda images: pd.DataFrame({"a": [1]}), "the rows are a DataFrame; accepted: images"),
        (
            lambda images: np.zeros([0, 8, 8, 1], np.uint8),
            r"the array of images is 'uint8 \(0, 8, 8, 1\)'; accepted: .*at least one image",
        ),
        (lambda images: np.zeros([3, 8]), r"the array of images is 'float64 \(3, 8\)'; accepted"),
    ],
)
def test_what_is_no_image_is_refused(finished, given, said):
    images, run, *_ = finished
    with pytest.raises(ValueError, match=said):
        pujax.load(run).predict(given(images))


@pytest.mark.parametrize("name", ["a.csv", "a.npz", "a.npy", "a.parquet", "notes"])
def test_a_file_that_is_no_image_says_what_the_model_takes(finished, tmp_path, capsys, name):
    _, run, *_ = finished
    (tmp_path / name).write_text("a,b\n1,2\n")
    output = f"--output={tmp_path / 'out.csv'}"
    for options in ([], ["--unreadable=skip"]):
        assert predict.main(["p", str(run), str(tmp_path / name), output, *options]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        what = "cannot be read (" if name == "a.npy" else "is no image; "  # one may hold pixels
        assert f"{name} {what}" in line and "; accepted: images of any size and mode" in line
        assert "in a folder, a list of paths" in line
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_an_image_may_be_called_anything(finished, tmp_path):
    images, run, *_ = finished
    name = min((images / "unlabeled").iterdir())
    shutil.copy(name, tmp_path / "photo")
    model = pujax.load(run)
    np.testing.assert_array_equal(
        model.predict(tmp_path / "photo").scores, model.predict(name).scores
    )


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_refused_and_not_waited_for(finished, tmp_path):
    os.mkfifo(tmp_path / "a.png")
    for given in (tmp_path / "a.png", tmp_path, [tmp_path / "a.png"]):
        with pytest.raises(ValueError, match=r"a\.png is no file; accepted: image"):
            pujax.load(finished[1]).predict(given)


def test_a_name_that_cannot_be_written_is_refused_before_images_are_read(finished, tmp_path):
    model = pujax.load(finished[1])
    with pytest.raises(ValueError, match=r"holds 'n\\udcff\.png'; accepted: names in UTF-8"):
        model.write(["n\udcff.png"], str(tmp_path / "out.csv"))
    assert not list(tmp_path.iterdir())


def test_predictions_never_take_the_place_of_what_they_are_made_of(finished, tmp_path):
    images, run, *_ = finished
    source = tmp_path / "in.png"
    shutil.copy(min((images / "unlabeled").iterdir()), source)
    before = source.read_bytes()
    (tmp_path / "link.png").symlink_to(source)
    model = pujax.load(run)
    for rows_, path in (
        (source, source),
        ([source], tmp_path / "link.png"),
        (tmp_path, source),  # one of the images of a folder
    ):
        with pytest.raises(ValueError, match="path is .*; accepted: another file than the rows"):
            model.write(rows_, str(path))
    with pytest.raises(ValueError, match="path is .*; accepted: the name of a file"):
        model.write(source, str(tmp_path))
    assert source.read_bytes() == before and len(list(tmp_path.iterdir())) == 2


def test_a_folder_without_images_is_refused(finished, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "a.txt").write_text("a")
    with pytest.raises(ValueError, match=r"empty holds no image; accepted: files called .jpg"):
        pujax.load(finished[1]).predict(tmp_path / "empty")


@pytest.mark.thorough
def test_other_images_do_not_go_on_in_the_same_folder(finished, tmp_path):
    images, run, *_ = finished
    shutil.copytree(images, tmp_path / "other")
    write(tmp_path / "other" / "unlabeled" / "999", 5, True)
    with pytest.raises(ValueError, match="holds a run on other data"):
        training.run(configured(tmp_path / "other"), str(run))
    moved = shutil.copytree(images, tmp_path / "moved")
    assert training.run(configured(moved), str(run))["held_out"] == finished[3]["held_out"]


@pytest.mark.thorough
def test_a_stopped_run_goes_on(finished, tmp_path):
    images, run, *_ = finished
    config = configured(images)
    config.run.stop_after_epoch = 2
    assert training.run(config, str(tmp_path)) is None
    training.run(configured(images), str(tmp_path))
    assert (tmp_path / "predictions.csv").read_text() == (run / "predictions.csv").read_text()


@pytest.mark.thorough
def test_a_streamed_run_gives_the_numbers_of_one_in_memory(finished, tmp_path):
    pytest.importorskip("grain")
    images, run, *_ = finished
    summary = training.run(configured(images, streaming="on"), str(tmp_path))
    streamed = pd.read_csv(tmp_path / "predictions.csv", index_col="file")
    memory = pd.read_csv(run / "predictions.csv", index_col="file")
    # Two programs, whose sums are rounded differently.
    np.testing.assert_allclose(streamed.score, memory.score, rtol=1e-5, atol=1e-6)
    assert summary["test"] == pytest.approx(finished[3]["test"], rel=1e-3)
    again = pujax.load(tmp_path).predict(images)
    scores = pd.Series(again.scores, index=again.ids)[streamed.index]
    np.testing.assert_allclose(scores, streamed.score, rtol=1e-6)
