"""A user's own data with several labels per image: a table of file names, or image folders."""

import os
import shutil

import numpy as np
import pytest

from pujax.data import raw, sources
from pujax.data.readers import download, image_trees
from tests.data.listed_images import both, write_image


def load(path, **options):
    return sources.load("multilabel", directory=path, **options)


def write_table(folder, text, *, name="labels.csv", newline="\n"):
    """A table, and the images of its first column that end with `.jpg`."""
    (folder / name).write_bytes(text.replace("\n", newline).encode())
    for line in text.splitlines()[1:]:
        image = line.replace(";", ",").split(",")[0]
        if image.endswith(".jpg"):
            write_image(folder / image)


WIDE = "file,split,dog,cat\na.jpg,train,1,0\nsub/b.jpg,train,,1\nc.jpg,train,-1,0\nd.jpg,test,0,1"


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_a_column_per_label(newline, tmp_path):
    write_table(tmp_path, WIDE, newline=newline)
    data = load(tmp_path)
    assert data.class_names == ("dog", "cat")  # as the columns stand
    np.testing.assert_array_equal(data.train_labels, [[1, 0], [-1, 1], [-1, 0]])
    np.testing.assert_array_equal(data.test_labels, [[0, 1]])
    assert data.train_inputs.paths[1] == str(tmp_path / "sub" / "b.jpg")
    assert data.train_inputs.shape == (3, 224, 224, 3) and data.train_inputs.load_side == 256
    assert data.mean == (0.485, 0.456, 0.406)


@pytest.mark.parametrize("word", ["NA", "nan", "?", "None"])
def test_what_is_missing_in_other_tables_is_an_unknown_label(word, tmp_path, caplog):
    write_table(tmp_path, WIDE.replace(",,", f",{word},").replace(",-1,", f", {word} ,"))
    np.testing.assert_array_equal(load(tmp_path).train_labels, [[1, 0], [-1, 1], [-1, 0]])
    assert not caplog.text
    rows = [f"a.jpg,train,{word}", f"b.jpg,train,dog|{word}", "c.jpg,train,", "d.jpg,test,cat"]
    write_table(tmp_path, "\n".join(["file,split,labels", *rows]))
    data = load(tmp_path)
    assert data.class_names == ("cat", "dog")
    np.testing.assert_array_equal(data.train_labels, [[-1, -1], [-1, 1], [0, 0]])
    assert f"'labels' of 2 images, the first is 'a.jpg', holds '{word}' or the like" in caplog.text
    write_table(tmp_path, f"file,split,labels\na.jpg,train,dog\nb.jpg,test,{word}")
    with pytest.raises(ValueError, match="1 test images have an unknown label, .* 'b.jpg'"):
        load(tmp_path)


def test_a_column_of_all_labels(tmp_path):
    text = "image;split;labels\na.jpg;train;dog | cat\nb.jpg;train;\nc.jpg;test;ant|\n"
    write_table(tmp_path, text)
    data, train, test = both("multilabel", tmp_path)
    assert data.class_names == ("ant", "cat", "dog")
    assert train == {"a.jpg": {"dog", "cat"}, "b.jpg": set()} and test == {"c.jpg": {"ant"}}
    write_table(tmp_path, "file,labels,split\na.jpg,dog;cat,train\nc.jpg,cat,test")
    assert both("multilabel", tmp_path)[1] == {"a.jpg": {"dog", "cat"}}


def test_split_and_labels_may_be_in_upper_case(tmp_path):
    write_table(tmp_path, "File,Split,LABELS\na.jpg,Train,dog|cat\nc.jpg,TEST,cat")
    data, train, test = both("multilabel", tmp_path)
    assert train == {"a.jpg": {"dog", "cat"}} and test == {"c.jpg": {"cat"}}
    assert data.class_names == ("cat", "dog")
    write_table(tmp_path, "File,SPLIT,Dog\na.jpg,train,1\nc.jpg,Test,0")
    assert load(tmp_path).class_names == ("Dog",)
    write_table(tmp_path, "file,Split,split,dog\na.jpg,0,train,1\nc.jpg,1,test,0")
    assert load(tmp_path).class_names == ("Split", "dog")


def test_a_name_may_hold_a_comma(tmp_path):
    rows = ['a.jpg,train,"Gen A, B"', "b.jpg,train,B", 'c.jpg,test,"Gen A, B|C"']
    write_table(tmp_path, "\n".join(["file,split,labels", *rows]))
    assert load(tmp_path).class_names == ("B", "C", "Gen A, B")


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["1,2", "3", "1,3"], "comma in 2 of 3 labels, such as '1,2' of '0.jpg', looks"),
        (["a", "c", "a, b"], "comma in 1 of 3 labels, such as 'a, b' of '2.jpg', looks"),
        (["a, b", "a, b", "a, b"], "comma in 1 of 1 labels, such as 'a, b' of '0.jpg', looks"),
        (["a, b|c, d", "a, b", "c, d"], ""),
        (["a, b", "c", "c"], ""),
    ],
)
def test_a_comma_that_looks_like_a_separator_is_warned_of(cells, said, tmp_path, caplog):
    rows = [f'{i}.jpg,{"test" if i == 1 else "train"},"{cell}"' for i, cell in enumerate(cells)]
    write_table(tmp_path, "\n".join(["file,split,labels", *rows]))
    names = {name for cell in cells for name in cell.split("|")}
    assert load(tmp_path).class_names == tuple(sorted(names))
    assert said in caplog.text and bool(said) == bool(caplog.text)


def test_without_a_split_a_fifth_of_the_known_rows_is_held_out_always_the_same(tmp_path):
    rows = [f"{i}.jpg,{i % 2},{'' if i < 10 else 1}" for i in range(30)]
    write_table(tmp_path, "\n".join(["file,odd,all", *rows]))
    data = load(tmp_path / "labels.csv")
    assert (len(data.train_inputs), len(data.test_inputs)) == (26, 4)  # a fifth of 20
    again = load(tmp_path)
    assert again.test_inputs == data.test_inputs
    names = [path.rpartition("/")[2] for path in data.test_inputs.paths]
    assert all(int(name[:-4]) >= 10 for name in names)  # the others have an unknown label
    labels = [[int(name[:-4]) % 2, 1] for name in names]
    np.testing.assert_array_equal(data.test_labels, labels)
    assert not set(data.train_inputs.paths) & set(data.test_inputs.paths)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a.jpg,1,0\nb.jpg,0,1", "begins with the image 'a.jpg'; accepted: a header"),
        ("file,split\na.jpg,train\nb.jpg,test", "has no labels; accepted"),
        ("file,dog\na.jpg,yes", "'dog' of 'a.jpg' is 'yes'; accepted: 1, 0, -1 or nothing"),
        ("file,split,dog\na.jpg,val,1", "split of 'a.jpg' is 'val'; accepted: train or test"),
        ("file,split,dog\na.jpg,train,1", "has no 'test' in column 'split'; accepted: both"),
        ("file,split,dog\na.jpg,train,1\nb.jpg,test,", "1 test images have .* 'b.jpg'; accepted"),
        ("file,dog\na.jpg,1\na.jpg,0", "1 images in several lines, such as 'a.jpg'"),
        ("file,dog\nb/a.jpg,1\n./b//a.jpg,0", "1 images in several lines, such as 'b/a.jpg'"),
        ("split,file,dog\ntrain,a.jpg,1\ntrain,b.jpg,1", "its file name in the first column"),
        ("file,dog,\na.jpg,1,\nb.jpg,0,", "no name in column 3 of its header; accepted: a label"),
        ("file,dog\n,1", "example 1 has no file name"),
        ("file,dog\na.jpg,1,0", "line 2, has 3 cells; accepted: 2"),
        ("file,dog\na.jpg,1\nb.jpg,0", "2 images whose labels are all known; accepted: at least 5"),
        ("file,labels\na.jpg,\nb.jpg,", "has no labels"),
        (
            "file,labels\na.jpg,caf\u00e9\nb.jpg,cafe\u0301",
            "two names that look like .*NFC and NFD",
        ),
        ("file,caf\u00e9,cafe\u0301\na.jpg,1,0", "csv has two names that look like .*NFC and NFD"),
        (
            'file,labels\na.jpg,"dog, cat"\nb.jpg,dog\nc.jpg,cat|ant',
            "'labels' of 'a.jpg' is 'dog, cat', whose parts are labels of other images; accepted",
        ),
        (
            "dog,cat\n0.5,1\n0.7,0.25",
            "'cat' of '0.7' is '0.25'; .* numbers into an archive NAME.npz",
        ),
        ("file,split,dog\na.jpg,train,0\nb.jpg,test,1", "train_labels is 'without a 1'"),
    ],
)
def test_a_table_that_cannot_be_is_refused(text, message, tmp_path):
    write_table(tmp_path, text)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_a_table_that_is_no_text_is_named(tmp_path):
    (tmp_path / "labels.csv").write_bytes("file,Hündin\n".encode("latin-1"))
    with pytest.raises(
        ValueError, match="labels.csv, line 1, byte 7 is 0xfc; accepted: text in UTF-8"
    ):
        load(tmp_path)


def test_missing_images_of_a_table_are_named_or_left_out(tmp_path):
    write_table(tmp_path, WIDE)
    shutil.rmtree(tmp_path / "sub")
    with pytest.raises(ValueError, match="1 of 3 training images .*: sub/b.jpg; accepted"):
        load(tmp_path)
    data = load(tmp_path, missing="skip")
    np.testing.assert_array_equal(data.train_labels, [[1, 0], [-1, 0]])


@pytest.mark.parametrize(
    ("written", "stored", "said"),
    [
        ("sub\\b.jpg", "sub/b.jpg", "there with / in place of"),
        ("sub/a\u0308.jpg", "sub/\u00e4.jpg", "composed otherwise: Unicode NFC and NFD"),
        ("sub/b.jpg", "sub/B.JPG", "there is 'B.JPG', in other upper or lower case"),
        ("sub/b.jpg", "sub/c.jpg", "sub/b.jpg; accepted"),
    ],
)
def test_an_image_that_is_nearly_there_is_said_to_be(written, stored, said, tmp_path):
    for name in ("a.jpg", stored):
        write_image(tmp_path / name)
    (tmp_path / "t.csv").write_text(
        f"file,split,dog\na.jpg,test,1\n{written},train,1\n", encoding="utf-8"
    )
    with pytest.raises(ValueError, match=said):
        load(tmp_path)


def write_folders(root, places):
    for seed, (image, classes) in enumerate(places.items()):
        for name in classes:
            write_image(root / name / image, seed=seed)


def test_an_image_in_several_class_folders_has_several_labels(tmp_path):
    write_folders(
        tmp_path / "train",
        {"b.png": ["dog"], "a.png": ["dog", "cat"], "n.png": ["_none"], "u.png": ["unlabeled"]},
    )
    write_folders(tmp_path / "train", {"half.png": ["unlabeled", "cat"]})
    write_folders(tmp_path / "test", {"a.png": ["_none"], "c.png": ["dog"]})
    data = load(tmp_path)
    assert data.class_names == ("cat", "dog")
    names = [path.removeprefix(f"{tmp_path}/") for path in data.train_inputs.paths]
    assert names == [
        "train/cat/a.png",
        "train/dog/b.png",
        "train/cat/half.png",
        "train/_none/n.png",
        "train/unlabeled/u.png",
    ]
    np.testing.assert_array_equal(data.train_labels, [[1, 1], [0, 1], [1, -1], [0, 0], [-1, -1]])
    np.testing.assert_array_equal(data.test_labels, [[0, 0], [0, 1]])
    assert data.train_inputs.shape[1:] == (224, 224, 3)


@pytest.mark.parametrize("split", ["train", ""])
def test_the_folder_of_images_of_no_class_may_be_in_upper_case(split, tmp_path):
    write_folders(tmp_path / split, {f"{i}.png": ["dog", "_NONE"][i % 2 :][:1] for i in range(10)})
    if split:  # which may be written otherwise in the other split
        write_folders(tmp_path / "test", {"a.png": ["_None"], "b.png": ["dog"]})
    data = load(tmp_path)
    assert data.class_names == ("dog",)
    for path, (label,) in zip(data.train_inputs.paths, data.train_labels, strict=True):
        assert label == ("/dog/" in path)
    if split:
        np.testing.assert_array_equal(data.test_labels, [[0], [1]])
    write_folders(tmp_path / split, {"c.png": ["_none"]})
    with pytest.raises(ValueError, match="folders '_NONE' and '_none', both of images of no class"):
        load(tmp_path)


def test_folders_within_those_of_classes_are_a_part_of_the_name(tmp_path):
    write_folders(tmp_path / "train", {"a.png": ["dog/may", "cat/may", "dog/june"]})
    write_folders(tmp_path / "train", {"u.png": ["Unlabelled"]})
    write_folders(tmp_path / "test", {"c.png": ["dog"]})
    data = load(tmp_path)
    assert data.class_names == ("cat", "dog")
    names = [path.removeprefix(f"{tmp_path}/train/") for path in data.train_inputs.paths]
    assert names == ["dog/june/a.png", "cat/may/a.png", "Unlabelled/u.png"]
    np.testing.assert_array_equal(data.train_labels, [[0, 1], [1, 1], [-1, -1]])


@pytest.mark.parametrize("layout", ["folders", "table"])
def test_test_images_that_are_training_images_are_counted(layout, tmp_path):
    for i in range(4):
        write_image(tmp_path / "train" / "dog" / f"{i}.png", seed=i)
    write_image(tmp_path / "test" / "dog" / "a.png", seed=4)
    if layout == "table":
        rows = [f"train/dog/{i}.png,train,1" for i in range(4)]
        rows += ["test/dog/a.png,test,1", "test/dog/b.png,test,1"]
        (tmp_path / "t.csv").write_text("\n".join(["file,split,dog", *rows]))
    write_image(tmp_path / "test" / "dog" / "b.png", seed=5)
    assert load(tmp_path).own.test_copies is None
    shutil.copy(tmp_path / "train" / "dog" / "2.png", tmp_path / "test" / "dog" / "b.png")
    assert load(tmp_path).own.test_copies == raw.SharedRows(1, 0, 2, 0, "images")


def test_what_cannot_be_opened_is_a_copy_of_none(tmp_path):
    """As of a table that names a folder: reading it as an image says so."""
    write_table(tmp_path, "file,split,dog\na,train,1\nb,test,1\nc.jpg,train,0")
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert load(tmp_path).own.test_copies is None


def test_files_that_are_gone_or_empty_are_copies_of_none(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).touch()
    assert image_trees.copies([tmp_path / "a.png", tmp_path / "b.png"], 1) is None
    assert image_trees.copies([tmp_path / "a.png", tmp_path / "gone.png"], 1) is None


def test_links_stand_for_copies(tmp_path):
    write_folders(tmp_path, {"train/dog/a.png": [""], "test/dog/b.png": [""]})
    (tmp_path / "train" / "cat").mkdir()
    (tmp_path / "train" / "cat" / "a.png").symlink_to(tmp_path / "train" / "dog" / "a.png")
    np.testing.assert_array_equal(load(tmp_path).train_labels, [[1, 1]])


def test_a_link_to_nothing_beside_an_image_of_its_name_is_named(tmp_path):
    write_folders(tmp_path, {"train/dog/a.png": [""], "test/dog/b.png": [""]})
    (tmp_path / "train" / "cat").mkdir()
    (tmp_path / "train" / "cat" / "a.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(ValueError, match="cat/a.png cannot be read: .*; accepted: an image, or a"):
        load(tmp_path)


def test_links_to_nothing_are_missing_images(tmp_path):
    write_folders(tmp_path, {"train/dog/a.png": [""], "train/dog/b.png": [""]})
    write_folders(tmp_path, {"test/dog/c.png": [""]})
    (tmp_path / "train" / "dog" / "b.png").unlink()
    (tmp_path / "train" / "dog" / "b.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(
        download.MissingDataError, match="1 of 2 training images are not in .*: dog/b.png"
    ):
        load(tmp_path)
    (left,) = load(tmp_path, missing="skip").train_inputs.paths
    assert left == str(tmp_path / "train" / "dog" / "a.png")


def test_without_split_folders_a_fifth_of_the_known_images_is_held_out(tmp_path):
    write_folders(tmp_path, {f"{i}.png": ["dog", "cat"][: 1 + i % 2] for i in range(10)})
    write_folders(tmp_path, {f"u{i}.png": ["unlabeled"] for i in range(10)})
    data = load(tmp_path)
    assert (len(data.train_inputs), len(data.test_inputs)) == (18, 2)
    assert load(tmp_path).test_inputs == data.test_inputs
    for path, row in zip(data.test_inputs.paths, data.test_labels, strict=True):
        assert row.tolist() == [int(path[-5]) % 2, 1]


def test_without_split_folders_images_may_lie_deeper_too(tmp_path):
    write_folders(tmp_path, {f"{i}.png": ["dog/may", "cat/may"][: 1 + i % 2] for i in range(10)})
    data = load(tmp_path)
    assert data.class_names == ("cat", "dog") and len(data.train_inputs) == 8
    write_image(tmp_path / "beside.png")
    with pytest.raises(ValueError, match="holds 1 image beside the folders .'beside.png'"):
        load(tmp_path)


def test_different_images_of_one_name_are_refused(tmp_path):
    """Folders that number their images 001, 002, ... each would else become wrong labels."""
    write_image(tmp_path / "train" / "dog" / "001.bmp", seed=1)
    write_image(tmp_path / "train" / "cat" / "001.bmp", seed=2)
    for name in ("dog", "cat"):  # of one size and age
        os.utime(tmp_path / "train" / name / "001.bmp", (0, 0))
    write_image(tmp_path / "test" / "dog" / "a.bmp")
    with pytest.raises(ValueError, match="dog/001.bmp is another image than .*cat/001.bmp"):
        load(tmp_path)


@pytest.mark.parametrize(
    ("train", "test", "message"),
    [
        ({"a.png": ["dog"]}, {}, "test is missing"),
        ({"a.png": ["dog"]}, {"b.png": ["ant"]}, "classes that train has not: ant; accepted: dog"),
        ({"a.png": ["caf\u00e9"]}, {"b.png": ["cafe\u0301"]}, "NFC and NFD.; accepted: caf\u00e9$"),
        (
            {"a.png": ["caf\u00e9", "cafe\u0301"]},
            {"b.png": ["dog"]},
            "train has two names that look like 'caf",
        ),
        (  # one image with two labels is meant, not two images that lack one each
            {"caf\u00e9.png": ["dog"], "cafe\u0301.png": ["cat"]},
            {"b.png": ["dog"]},
            "train has two names that look like 'caf.*png'",
        ),
        ({"a.png": ["dog"]}, {"b.png": ["unlabeled"]}, "unlabeled has images; accepted: none"),
        ({"a.png": ["dog", "_none"]}, {"b.png": ["dog"]}, "dog/a.png is in _none too"),
        (
            {"a.png": ["_none", "unlabeled"], "b.png": ["dog"]},
            {"b.png": ["dog"]},
            "unlabeled/a.png is in _none too",
        ),
        (
            {"a.png": ["dog", ""]},
            {"b.png": ["dog"]},
            "train holds 1 image beside the folders .'a.png' is the first.; accepted: images in c",
        ),
        ({"a.png": ["_none"]}, {"b.png": ["_none"]}, "class_names is ..; accepted: at least one"),
        ({"a.txt.gif": ["dog"]}, {"y.png": ["dog/.x"]}, "test has no images in class folders"),
    ],
)
def test_folders_that_cannot_be_are_refused(train, test, message, tmp_path):
    write_folders(tmp_path / "train", train)
    write_folders(tmp_path / "test", test)
    with pytest.raises(ValueError, match=message):
        load(tmp_path)


def test_what_is_missing_or_ambiguous_is_said(tmp_path):
    with pytest.raises(download.MissingDataError, match="NAME.npz with X_train, Y_train") as caught:
        load(tmp_path)
    assert str(tmp_path / "multilabel") in str(caught.value)
    (tmp_path / "notes.txt").write_text("x")
    with pytest.raises(ValueError, match="notes.txt is a file; accepted: an archive"):
        load(tmp_path / "notes.txt")
    (tmp_path / "multilabel").mkdir()
    write_table(tmp_path / "multilabel", WIDE)
    assert len(load(tmp_path).train_inputs) == 3
    np.savez(tmp_path / "multilabel" / "own.npz", X_train=np.zeros((2, 2)))
    with pytest.raises(ValueError, match="holds labels.csv, own.npz; accepted: one"):
        load(tmp_path)
