"""MS-COCO 2014 in its official folders: which images and annotations count, and in what order."""

import json

import numpy as np
import pytest

from pujax.data import raw, sources
from pujax.data.readers import download
from tests.data.listed_images import both, write_image

# Ids with a gap, out of order, as published ids have gaps.
CATEGORIES = [{"id": 3, "name": "car"}, {"id": 1, "name": "person"}, {"id": 90, "name": "brush"}]
IMAGES = {"train": [9, 4, 25, 581921], "val": [42, 7]}
ANNOTATIONS = {
    "train": [(9, 3, 0), (9, 3, 0), (9, 90, 0), (4, 1, 1), (581921, 1, 0)],  # the 4 is a crowd
    "val": [(7, 90, 0)],
}


def file_name(split, image):
    return f"COCO_{split}2014_{image:012d}.jpg"


def content(split):
    return {
        "info": {"year": 2014},
        "licenses": [{"id": 1, "name": "a licence", "url": ""}],
        "images": [
            {"id": i, "file_name": file_name(split, i), "height": 8, "width": 8}
            for i in IMAGES[split]
        ],
        "annotations": [
            {
                "id": row,
                "image_id": image,
                "category_id": category,
                "iscrowd": crowd,
                "segmentation": {"counts": [1, 2], "size": [8, 8]} if crowd else [[0.5, 1.0]],
            }
            for row, (image, category, crowd) in enumerate(ANNOTATIONS[split])
        ],
        "categories": CATEGORIES,
    }


def write_json(root, split, value):
    path = root / "annotations" / f"instances_{split}2014.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture
def coco(tmp_path):
    for split in IMAGES:
        write_json(tmp_path, split, content(split))
        for i in IMAGES[split]:
            write_image(tmp_path / f"{split}2014" / file_name(split, i))
    return tmp_path


def test_an_image_has_every_category_that_it_has_an_annotation_of_a_crowd_too(coco):
    data, train, test = both("coco2014", coco)
    assert train == {
        file_name("train", 9): {"car", "brush"},
        file_name("train", 4): {"person"},
        file_name("train", 25): set(),  # no annotation
        file_name("train", 581921): {"person"},
    }
    assert test == {file_name("val", 42): set(), file_name("val", 7): {"brush"}}
    assert list(train) == [file_name("train", i) for i in IMAGES["train"]]  # as in the file
    assert data.train_labels.dtype == np.int8 and set(np.unique(data.train_labels)) == {0, 1}
    assert raw.empty_classes(data.test_labels) == [0, 1]


def test_class_ids_follow_the_category_ids(coco):
    data = sources.load("coco2014", directory=coco)
    assert data.class_names == ("person", "car", "brush")
    np.testing.assert_array_equal(data.train_labels[:2], [[0, 1, 1], [1, 0, 0]])


def test_paths_sizes_and_statistics(coco):
    data = sources.load("coco2014", directory=coco)
    assert data.test_inputs.paths[1] == str(coco / "val2014" / file_name("val", 7))
    assert data.train_inputs.shape == (4, 448, 448, 3) and data.train_inputs.load_side == 512
    assert data.mean == (0.485, 0.456, 0.406) and data.std == (0.229, 0.224, 0.225)
    (coco / "coco2014").mkdir()
    for name in ("train2014", "val2014", "annotations"):
        (coco / name).rename(coco / "coco2014" / name)
    assert sources.load("coco2014", directory=coco, image_size=56).train_inputs.load_side == 64


def test_missing_images_are_counted_and_named_or_left_out(coco):
    for i in (9, 25):
        (coco / "train2014" / file_name("train", i)).unlink()
    (coco / "train2014" / "COCO_train2014_000000000001.jpg").write_bytes(b"of no image in the file")
    with pytest.raises(ValueError, match="2 of 4 training images .*: COCO.*09.jpg, COCO.*25.jpg;"):
        sources.load("coco2014", directory=coco)
    _, train, test = both("coco2014", coco, missing="skip")
    assert set(train) == {file_name("train", i) for i in (4, 581921)} and len(test) == 2
    assert train[file_name("train", 4)] == {"person"}


def test_only_the_first_five_missing_images_are_named(coco):
    value = content("val")
    value["images"] += [{"id": i, "file_name": f"{i}.jpg"} for i in range(100, 180)]
    write_json(coco, "val", value)
    with pytest.raises(ValueError, match="80 of 82 test images .*: 100.jpg, .*, 104.jpg, ...;"):
        sources.load("coco2014", directory=coco)


def test_annotations_without_an_image_are_counted_and_named(coco):
    value = content("train")
    first = value["annotations"][0]
    value["annotations"] += [first | {"image_id": i} for i in (77, 78, 77)]
    write_json(coco, "train", value)
    with pytest.raises(
        ValueError,
        match="train2014.json: 3 annotations have image ids without an image: 77, 78; accepted",
    ):
        sources.load("coco2014", directory=coco, missing="skip")
    write_json(coco, "train", content("train") | {"annotations": [first | {"category_id": 2}]})
    with pytest.raises(ValueError, match="1 annotations have category ids without a category: 2;"):
        sources.load("coco2014", directory=coco)


@pytest.mark.parametrize(
    "categories", [CATEGORIES[:2], [*CATEGORIES[:2], {"id": 90, "name": "hairbrush"}]]
)
def test_both_files_must_have_the_same_categories(categories, coco):
    write_json(coco, "val", content("val") | {"categories": categories, "annotations": []})
    with pytest.raises(ValueError, match="categories .*val2014.json .* differ in .90, 'brush'"):
        sources.load("coco2014", directory=coco)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"images": [', "is no COCO instances file"),
        ("[1, 2]", "is no COCO instances file"),
        ('{"info": {}}', "lacks 'categories'"),
        ('{"categories": [{"id": 1, "name": "a"}], "images": [{"id": 1}]}', "lacks 'file_name'"),
        (
            '{"categories": [], "images": [], "annotations": []}',
            "has 0 images with 0 different ids",
        ),
    ],
)
def test_a_damaged_file_is_named(text, message, coco):
    (coco / "annotations" / "instances_train2014.json").write_text(text)
    with pytest.raises(ValueError, match=f"instances_train2014.json {message}"):
        sources.load("coco2014", directory=coco)


def test_two_images_of_one_id_are_refused(coco):
    value = content("train")
    value["images"].append(value["images"][0] | {"file_name": "other.jpg"})
    write_json(coco, "train", value)
    with pytest.raises(ValueError, match="5 images with 4 different ids"):
        sources.load("coco2014", directory=coco)


def test_what_is_missing_is_named_with_the_archives_that_hold_it(coco):
    (coco / "annotations" / "instances_val2014.json").unlink()
    with pytest.raises(download.MissingDataError) as caught:
        sources.load("coco2014", directory=coco)
    message = str(caught.value)
    assert message.startswith("cannot find annotations/instances_val2014.json of source 'coco2014'")
    assert "annotations_trainval2014.zip" in message and str(coco / "coco2014") in message
