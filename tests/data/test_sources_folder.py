"""Image folders, with Alzheimer MRI slices as the case in use."""

import shutil
import sys

import numpy as np
import pytest
from PIL import Image

from pujax.data import dataset, image_files, sources
from pujax.data.sources import image_folder
from pujax.data.splits import class_pools
from tests import conftest

rng = np.random.default_rng(0)
CLASSES = ("NonDemented", "MildDemented", "VeryMildDemented", "ModerateDemented")


def write_image(path, pixels):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path)


def colour(side=6):
    return rng.integers(0, 256, (side, side, 3)).astype(np.uint8)


@pytest.fixture
def folder(tmp_path):
    """Two training images and one test image per class, as PNG so that pixels are exact."""
    for name in CLASSES:
        for i in range(2):
            write_image(tmp_path / "train" / name / f"{i}.png", colour())
        write_image(tmp_path / "test" / name / "0.PNG", colour())
    return tmp_path


def pixels(path):
    return np.asarray(Image.open(path).convert("RGB"))


def test_classes_are_numbered_alphabetically_and_images_come_in_order(folder):
    data = sources.load("alzheimer", directory=folder, color_order="rgb")
    order = ("MildDemented", "ModerateDemented", "NonDemented", "VeryMildDemented")
    assert data.class_names == order
    np.testing.assert_array_equal(data.train_labels, [0, 0, 1, 1, 2, 2, 3, 3])
    np.testing.assert_array_equal(data.test_labels, [0, 1, 2, 3])
    for row, label in enumerate(data.train_labels):
        path = folder / "train" / order[label] / f"{row % 2}.png"
        np.testing.assert_array_equal(data.train_inputs[row], pixels(path))
    assert data.mean == (0.5,) * 3 and data.std == (0.5,) * 3


def test_colours_are_read_blue_first_by_default(folder):
    rgb = sources.load("alzheimer", directory=folder, color_order="rgb")
    bgr = sources.load("alzheimer", directory=folder)
    np.testing.assert_array_equal(bgr.train_inputs, rgb.train_inputs[..., ::-1])
    np.testing.assert_array_equal(bgr.test_inputs, rgb.test_inputs[..., ::-1])


def test_one_channel_is_the_grey_value(folder):
    data = sources.load("alzheimer", directory=folder, channels=1)
    assert data.train_inputs.shape == (8, 6, 6, 1) and data.mean == (0.5,)
    path = folder / "train" / "MildDemented" / "0.png"
    grey = np.asarray(Image.open(path).convert("L"))
    np.testing.assert_array_equal(data.train_inputs[0, ..., 0], grey)


def test_a_grey_image_has_three_equal_channels(folder):
    write_image(folder / "train" / "MildDemented" / "0.png", colour()[..., 0])
    image = sources.load("alzheimer", directory=folder).train_inputs[0]
    assert (image[..., 0] == image[..., 1]).all() and (image[..., 0] == image[..., 2]).all()


def test_images_are_resized_bilinearly(folder):
    data = sources.load("alzheimer", directory=folder, image_size=11, color_order="rgb")
    image = Image.open(folder / "train" / "MildDemented" / "0.png")
    expected = np.asarray(image.resize((11, 11), Image.Resampling.BILINEAR))
    np.testing.assert_array_equal(data.train_inputs[0], expected)
    assert data.test_inputs.shape == (4, 11, 11, 3)


def test_images_of_several_sizes_need_a_common_one(folder):
    odd = folder / "train" / "NonDemented" / "1.png"
    write_image(odd, colour(7))
    with pytest.raises(ValueError, match=f"{odd} has the shape .*set image_size"):
        sources.load("alzheimer", directory=folder)
    assert sources.load("alzheimer", directory=folder, image_size=5).train_inputs.shape[1] == 5


@pytest.mark.parametrize("content", [b"", b"no image", "cut"])
def test_a_damaged_image_is_named(folder, content):
    path = folder / "test" / "NonDemented" / "0.PNG"
    path.write_bytes(path.read_bytes()[:60] if content == "cut" else content)
    with pytest.raises(ValueError, match=f"{path} cannot be read as an image"):
        sources.load("alzheimer", directory=folder)


def test_an_image_of_more_than_eight_bits_is_named(folder):
    path = folder / "test" / "NonDemented" / "0.PNG"
    Image.fromarray(np.full((6, 6), 40000, np.uint16)).save(path)
    with pytest.raises(ValueError, match=f"{path} cannot be .* 8 bits"):
        sources.load("alzheimer", directory=folder)


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_missing_split_is_named(folder, split):
    (folder / split).rename(folder / "elsewhere")
    with pytest.raises(ValueError, match=f"{folder / split} is missing"):
        sources.load("alzheimer", directory=folder)


def test_a_split_without_images_is_named(folder):
    for path in (folder / "test").rglob("*.PNG"):
        path.unlink()
    with pytest.raises(ValueError, match=f"{folder / 'test'} has no images"):
        sources.load("alzheimer", directory=folder)


def test_a_class_of_the_test_images_alone_is_named(folder):
    write_image(folder / "test" / "Unheard" / "0.png", colour())
    with pytest.raises(ValueError, match="classes that train has not: Unheard; accepted: "):
        sources.load("alzheimer", directory=folder)
    name = next(x.name for x in (folder / "train").iterdir() if x.is_dir())
    (folder / "train" / name).rename(folder / "train" / "Unh\u00e9ard")
    (folder / "test" / "Unheard").rename(folder / "test" / "Unhe\u0301ard")
    with pytest.raises(ValueError, match=r"Unhe\u0301ard \(letters are composed otherwise: .*\);"):
        sources.load("image_folder", directory=folder)


def test_other_files_are_passed_over(folder):
    (folder / "train" / "MildDemented" / "Thumbs.db").write_bytes(b"x")
    (folder / "train" / "MildDemented" / ".hidden.png").write_bytes(b"x")
    (folder / "train" / ".cache").mkdir()
    (folder / "notes.txt").write_bytes(b"x")
    assert len(sources.load("alzheimer", directory=folder).train_inputs) == 8


@pytest.mark.parametrize(
    ("option", "value"),
    [("image_size", -1), ("image_size", 2.5), ("channels", 2), ("color_order", "grb")],
)
def test_an_option_out_of_range_is_refused(folder, option, value):
    with pytest.raises(ValueError, match=f"{option} is {value!r}"):
        sources.load("alzheimer", directory=folder, **{option: value})


@pytest.mark.thorough
def test_the_real_images_have_the_published_counts(tmp_path):
    real = conftest.real_data_folder("alzheimer")
    sys.path.insert(0, str(real))
    try:
        import load
    finally:
        sys.path.remove(str(real))
        sys.modules.pop("load", None)
    load.write_folder(tmp_path / "alzheimer")
    data = sources.load("alzheimer", directory=tmp_path, channels=1)
    assert data.train_inputs.shape == (5121, 128, 128, 1)
    assert len(data.test_inputs) == 1279
    counts = dict(zip(data.class_names, np.bincount(data.train_labels).tolist(), strict=True))
    expected = {"Non_Demented": 2560, "Very_Mild_Demented": 1792, "Mild_Demented": 717}
    assert counts == expected | {"Moderate_Demented": 52}
    np.testing.assert_array_equal(np.bincount(data.test_labels), [179, 12, 640, 448])
    first = min((tmp_path / "alzheimer" / "train" / "Mild_Demented").iterdir())
    np.testing.assert_array_equal(data.train_inputs[0, ..., 0], np.asarray(Image.open(first)))


def test_a_folder_of_ones_own_may_hold_images_without_a_class(folder):
    for i in range(3):
        write_image(folder / "train" / "unlabeled" / f"{i}.png", colour())
    data = sources.load("image_folder", directory=folder)
    assert data.class_names == tuple(sorted(CLASSES))
    np.testing.assert_array_equal(data.train_labels, [0, 0, 1, 1, 2, 2, 3, 3, -1, -1, -1])
    path = folder / "train" / "unlabeled" / "2.png"
    np.testing.assert_array_equal(data.train_inputs[-1], pixels(path))
    scaled = data.train_inputs.reshape(-1, 3) / 255
    np.testing.assert_allclose(data.mean, scaled.mean(0), rtol=1e-12)
    np.testing.assert_allclose(data.std, scaled.std(0), rtol=1e-12)


@pytest.mark.parametrize("ending", ["tif", "png"])
def test_ones_own_photographs_are_turned_and_transparency_is_laid_on_white(tmp_path, ending):
    """As `own_folder` and `pujax predict` read them, streamed or not."""
    photograph = np.repeat(np.array([[250], [5]], np.uint8), [4, 4], axis=0).repeat(6, axis=1)
    exif = Image.Exif()
    exif[0x0112] = 6  # its right side is up
    clear = np.full((6, 8, 4), [10, 20, 30, 0], np.uint8)
    for split in ("train", "test"):
        for name in ("a", "b"):
            folder = tmp_path / split / name
            folder.mkdir(parents=True)
            Image.fromarray(photograph).convert("RGB").save(folder / f"0.{ending}", exif=exif)
            Image.fromarray(clear).save(folder / "1.png")
    for streamed in (False, True):
        data = image_folder.load(tmp_path, streamed=streamed)
        images = image_files.as_array(data.train_inputs)
        assert images.shape == (4, 6, 8, 3)
        np.testing.assert_array_equal(images[0, ..., 0], np.rot90(photograph, -1))
        assert (images[1] == 255).all()


@pytest.mark.parametrize("name", ["Unlabeled", "unlabelled", "UNLABELED"])
def test_the_folder_without_a_class_may_be_called_in_other_ways(folder, name):
    write_image(folder / "train" / name / "0.png", colour())
    data = sources.load("image_folder", directory=folder)
    assert data.class_names == tuple(sorted(CLASSES)) and data.train_labels[-1] == -1
    write_image(folder / "train" / "unlabeled" / "0.png", colour())
    first, second = sorted([name, "unlabeled"])
    with pytest.raises(ValueError, match=f"'{first}' and '{second}', both of unlabeled images"):
        sources.load("image_folder", directory=folder)


def test_a_class_may_lack_test_images(folder):
    shutil.rmtree(folder / "test" / "MildDemented")
    data = sources.load("image_folder", directory=folder)
    assert data.class_names == tuple(sorted(CLASSES)) and data.test_labels.tolist() == [1, 2, 3]


def test_folders_within_those_of_classes_are_looked_into(folder):
    write_image(folder / "train" / "NonDemented" / "2024" / "may" / "0.png", colour())
    write_image(folder / "train" / "unlabeled" / "2024" / "0.png", colour())
    data = sources.load("image_folder", directory=folder)
    np.testing.assert_array_equal(data.train_labels, [0, 0, 1, 1, 2, 2, 2, 3, 3, -1])
    path = folder / "train" / "NonDemented" / "2024" / "may" / "0.png"
    np.testing.assert_array_equal(data.train_inputs[6], pixels(path))


@pytest.mark.parametrize("split", ["train", "test"])
def test_images_beside_class_folders_are_refused(folder, split):
    """Unlabeled ones, say, none of which would be read."""
    for i in range(2):
        write_image(folder / split / f"{i}.png", colour())
    with pytest.raises(
        ValueError, match=f"{split} holds 2 images beside the folders .'0.png' is the first.; acc"
    ):
        sources.load("image_folder", directory=folder)
    assert len(sources.load("alzheimer", directory=folder).train_inputs) == 8


@pytest.mark.parametrize("source", ["image_folder", "multilabel"])
def test_images_beside_the_split_folders_are_warned_about(folder, source, caplog):
    for i, path in enumerate((folder / "train").rglob("*.png")):  # several labels need other names
        path.rename(path.with_name(f"{path.parent.name}{i}.png"))
    for path in (folder / "test").rglob("*.PNG"):
        path.rename(path.with_name(f"{path.parent.name}.png"))
    (folder / "train" / "a class called like an image.png").mkdir()
    for place in ("notes/a.txt", "notes/.hidden/a.png", "notes/.a.png"):
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_bytes(b"")
    sources.load(source, directory=folder)
    assert not caplog.text
    for place in ("unlabeled/0.png", "val/x/y/0.png", "0.png", "1.png"):
        write_image(folder / place, colour())
    sources.load(source, directory=folder)
    said = "images beside train/ and test/ are not read: unlabeled/, val/, 0.png and 1 more; read"
    assert said in caplog.text


def test_a_test_image_must_have_a_class(folder):
    write_image(folder / "test" / "unlabeled" / "0.png", colour())
    with pytest.raises(ValueError, match="test has classes that train has not: unlabeled"):
        sources.load("image_folder", directory=folder)


def test_a_missing_folder_of_ones_own_is_explained(tmp_path):
    with pytest.raises(ValueError, match="train/CLASS.*--config.data.dir"):
        sources.load("image_folder", directory=tmp_path)


@pytest.mark.parametrize(
    ("names", "given", "wanted"),
    [
        (("negative", "positive"), (), (1,)),
        (("Neg", "Pos"), (), (1,)),
        (("0", "1"), (), (1,)),
        (("false", "true"), (), (1,)),
        (("healthy", "other", "positive"), (), (2,)),
        (("defect", "good"), ("defect",), (0,)),
        (("defect", "good", "worn"), ("worn", 0), (2, 0)),
    ],
)
def test_positive_classes_by_name_id_or_none(names, given, wanted):
    assert class_pools.ids_of(given, names) == wanted


def test_a_validation_set_without_positives_needs_more_examples():
    none = {0: np.zeros(0, int)}
    with pytest.raises(ValueError, match="is 2, with 0 positives among them; accepted: a larger"):
        class_pools.validation_labeled(0, none, 2)
    assert class_pools.validation_labeled(0, {0: np.arange(6)}, 20) == 3


def test_a_class_that_is_named_twice_is_refused():
    with pytest.raises(ValueError, match=r"positive_classes is \('b', 1\); accepted: each class"):
        class_pools.ids_of(("b", 1), ("a", "b"))


@pytest.mark.parametrize(
    ("names", "given", "message"),
    [
        (("defect", "good"), (), "none of the classes is called .*'defect' .id 0., 'good' .id 1."),
        (("pos", "positive"), (), "2 of the classes are called"),
        (tuple("0123456789"), (), "none of the classes"),  # which of ten digits is meant?
        (("defect", "good"), ("bad",), "holds 'bad'; accepted: names or ids of 'defect'"),
    ],
)
def test_doubtful_positive_classes_are_asked_for(names, given, message):
    with pytest.raises(ValueError, match=f"data.positive_classes .*{message}"):
        class_pools.ids_of(given, names)


def test_the_prior_of_ones_own_images_is_not_counted(folder):
    settings = {
        "num_labeled": 1,
        "num_support": 0,
        "setting": "one_sample",
        "sampling": "uniform",
        "positive_classes": (0,),
        "seed": 0,
    }
    for i in range(3):
        write_image(folder / "train" / "unlabeled" / f"{i}.png", colour())
    data = dataset.build(sources.load("image_folder", directory=folder), **settings)
    assert np.isnan(data.info.prior) and data.info.prior_source == "unknown"
    assert data.labeling.c is None and data.class_sides[0] == (min(CLASSES),)
    given = dataset.build(sources.load("image_folder", directory=folder), prior=0.4, **settings)
    assert given.info.prior == 0.4
