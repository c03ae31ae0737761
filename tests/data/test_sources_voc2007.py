"""Pascal VOC 2007 in its official folders: lists, annotations, difficult objects, missing files."""

import shutil

import numpy as np
import pytest

from pujax.data import raw, sources
from pujax.data.readers import download
from tests.data.listed_images import both, write_image

TRAIN = {
    # Objects as (class, difficult); the second has a part with a name of its own.
    "000005": [("chair", 0), ("chair", 0), ("tvmonitor", 1)],
    "000007": [("person", 0), ("car", 0)],
    "000009": [("dog", 1)],
    "000012": [],
}
TEST = {"000001": [("aeroplane", 0), ("tvmonitor", 0)], "000002": [("dog", 1), ("dog", 0)]}
PART = "<part><name>head</name><bndbox><xmin>1</xmin></bndbox></part>"


def annotation(objects):
    body = "".join(
        f"<object><name>{name}</name><pose>Left</pose><difficult>{difficult}</difficult>"
        f"{PART if name == 'person' else ''}</object>"
        for name, difficult in objects
    )
    return f"<annotation><folder>VOC2007</folder><size><depth>3</depth></size>{body}</annotation>"


def write(root, *, end="\n", start=""):
    for folder in ("Annotations", "ImageSets/Main", "JPEGImages"):
        (root / folder).mkdir(parents=True)
    for name, images in (("trainval", TRAIN), ("test", TEST)):
        # No newline after the last line.
        text = start + end.join(images)
        (root / "ImageSets" / "Main" / f"{name}.txt").write_bytes(text.encode())
        for i, objects in images.items():
            (root / "Annotations" / f"{i}.xml").write_text(annotation(objects))
            write_image(root / "JPEGImages" / f"{i}.jpg")


@pytest.fixture
def voc(tmp_path):
    write(tmp_path / "VOCdevkit" / "VOC2007")
    return tmp_path / "VOCdevkit" / "VOC2007"


def test_labels_are_those_of_the_objects_that_are_not_difficult(voc):
    data, train, test = both("voc2007", voc)
    assert train == {
        "000005.jpg": {"chair"},
        "000007.jpg": {"person", "car"},
        "000009.jpg": set(),
        "000012.jpg": set(),
    }
    assert test == {"000001.jpg": {"aeroplane", "tvmonitor"}, "000002.jpg": {"dog"}}
    assert list(train) == [f"{i}.jpg" for i in TRAIN]  # the order decides the known labels
    assert data.train_labels.dtype == np.int8 and set(np.unique(data.train_labels)) == {0, 1}
    assert data.mean == (0.485, 0.456, 0.406) and data.std == (0.229, 0.224, 0.225)


def test_the_twenty_classes_are_in_alphabetical_order(voc):
    data = sources.load("voc2007", directory=voc)
    names = data.class_names
    assert len(names) == 20 and list(names) == sorted(names)
    assert (names[0], names[8], names[14], names[19]) == (
        "aeroplane",
        "chair",
        "person",
        "tvmonitor",
    )
    assert np.flatnonzero(data.test_labels[0]).tolist() == [0, 19]
    # Only chair, person and car are known of any training image.
    assert raw.empty_classes(data.train_labels) == [i for i in range(20) if i not in (6, 8, 14)]


@pytest.mark.parametrize("end", ["\r\n", " \n", "\n\n"])
def test_lines_end_as_they_like(end, tmp_path):
    write(tmp_path, end=end, start="\ufeff")  # as some editors on Windows begin a file
    _, train, test = both("voc2007", tmp_path)
    assert list(train) == [f"{i}.jpg" for i in TRAIN] and len(test) == 2


@pytest.mark.parametrize("place", ["VOC2007", "VOCdevkit/VOC2007", "voc2007/VOCdevkit/VOC2007"])
def test_the_folder_is_found_from_above(place, tmp_path):
    write(tmp_path / place)
    data = sources.load("voc2007", directory=tmp_path)
    assert data.train_inputs.paths[0] == str(tmp_path / place / "JPEGImages" / "000005.jpg")


def test_sizes_are_those_of_the_paper_or_the_options(voc):
    files = sources.load("voc2007", directory=voc).train_inputs
    assert (files.shape, files.load_side) == ((4, 448, 448, 3), 512)
    files = sources.load("voc2007", directory=voc, image_size=64, load_size=80).test_inputs
    assert (files.shape, files.load_side) == ((2, 64, 64, 3), 80)
    assert sources.load("voc2007", directory=voc, image_size=56).train_inputs.load_side == 64


@pytest.mark.parametrize(
    ("option", "value"),
    [("image_size", -1), ("image_size", 2.5), ("load_size", -8), ("missing", "ignore")],
)
def test_an_option_out_of_range_is_refused(option, value, voc):
    with pytest.raises(ValueError, match=f"{option} is {value!r}; accepted"):
        sources.load("voc2007", directory=voc, **{option: value})


def test_missing_images_are_counted_and_named_or_left_out(voc, caplog):
    for name in ("000007", "000012"):
        (voc / "JPEGImages" / f"{name}.jpg").unlink()
    with pytest.raises(
        ValueError, match="2 of 4 training images are not in .*: 000007.jpg, 000012.jpg; accepted"
    ):
        sources.load("voc2007", directory=voc)
    data, train, test = both("voc2007", voc, missing="skip")
    assert train == {"000005.jpg": {"chair"}, "000009.jpg": set()} and len(test) == 2
    assert data.train_labels.shape == (2, 20)
    assert len(caplog.messages) == 1 and "2 of 4 training images" in caplog.messages[0]
    assert "000007.jpg, 000012.jpg; they are left out" in caplog.messages[0]


def test_skipping_every_image_is_no_way_out(voc):
    shutil.rmtree(voc / "JPEGImages")
    (voc / "JPEGImages").mkdir()
    with pytest.raises(download.MissingDataError, match="4 of 4 training images"):
        sources.load("voc2007", directory=voc, missing="skip")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (annotation([("unicorn", 0)]), "000007.xml has an object 'unicorn'; accepted: aeroplane"),
        (annotation([("dog", "maybe")]), "000007.xml: difficult is 'maybe'; accepted: 0 or 1"),
        ("<annotation><object>", "000007.xml cannot be read as XML"),
        ("", "000007.xml cannot be read as XML"),
    ],
)
def test_an_annotation_that_cannot_be_is_named(content, message, voc):
    (voc / "Annotations" / "000007.xml").write_text(content)
    with pytest.raises(ValueError, match=message):
        sources.load("voc2007", directory=voc)


def test_an_object_without_the_field_difficult_is_an_easy_one(voc):
    text = "<annotation><object><name> Dog </name></object></annotation>"
    (voc / "Annotations" / "000012.xml").write_text(text)
    assert both("voc2007", voc)[1]["000012.jpg"] == {"dog"}


def test_missing_annotations_are_counted_and_named_whatever_the_policy(voc):
    (voc / "Annotations" / "000012.xml").unlink()
    for missing in ("fail", "skip"):
        with pytest.raises(ValueError, match="lacks .* 1 of the 4 images in .*: 000012; accepted"):
            sources.load("voc2007", directory=voc, missing=missing)


def test_an_empty_list_is_named(voc):
    (voc / "ImageSets" / "Main" / "test.txt").write_text("\n")
    with pytest.raises(ValueError, match="test.txt is empty"):
        sources.load("voc2007", directory=voc)


def test_what_is_missing_is_named_with_the_archives_that_hold_it(voc, tmp_path):
    with pytest.raises(download.MissingDataError, match="VOCtest_06-Nov-2007.tar") as caught:
        sources.load("voc2007", directory=tmp_path / "nowhere")
    assert "JPEGImages" in str(caught.value) and str(tmp_path / "nowhere") in str(caught.value)
    # Only the training archive was unpacked.
    (voc / "ImageSets" / "Main" / "test.txt").unlink()
    with pytest.raises(
        download.MissingDataError, match=f"cannot find ImageSets/Main/test.txt .* in {voc} "
    ):
        sources.load("voc2007", directory=tmp_path)
