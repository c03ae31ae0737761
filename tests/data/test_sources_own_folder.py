"""One folder of a user's own images: its folders, modes and sizes, what is damaged, statistics."""

import contextlib
import os
import shutil
import struct
import types
import zlib

import numpy as np
import pytest
from PIL import Image, ImageOps

from pujax.data import dataset, image_preparation, raw, sources
from pujax.data.image_files import ImageFiles
from pujax.data.image_preparation import ImagePreparation
from pujax.data.readers import image_arrays, image_listing, image_trees

SETTINGS = {
    "positive_classes": (),
    "num_labeled": 0,
    "num_support": 0,
    "holdout": 0.25,
    "setting": "one_sample",
    "sampling": "uniform",
    "prior": 0.4,
}


def picture(seed=0, shape=(8, 6)):
    return np.random.default_rng(seed).integers(0, 256, (*shape, 3)).astype(np.uint8)


def write(path, pixels=None, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    image = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    image.save(path, **options)
    return path


@pytest.fixture
def folder(tmp_path):
    """Eight positive and 16 unlabeled images of several sizes, and four known negatives."""
    root = tmp_path / "cells"
    for name, count in (("Positive", 8), ("unlabelled", 16), ("neg", 4)):
        for i in range(count):
            write(root / name / f"{i:02d}.png", picture(ord(name[0]) + i, (6 + i % 3, 9)))
    return root


def load(root, **options):
    return sources.load("own_folder", path=str(root), image_size=6, **options)


def read(path, channels=3):
    return np.asarray(image_arrays.decode_any(path, channels=channels))


def test_images_are_called_by_their_path_and_labels_follow_the_folders(folder):
    write(folder / "unlabelled" / "plate 2" / "a.png", picture(1))
    write(folder / "unlabelled" / ".hidden.png", picture(1))
    (folder / "unlabelled" / "notes.txt").write_text("no image")
    data = load(folder)
    assert data.train_inputs.shape == (29, 6, 6, 3) and data.test_inputs.shape == (0, 6, 6, 3)
    names = [f"Positive/{i:02d}.png" for i in range(8)]
    names += [f"unlabelled/{i:02d}.png" for i in range(16)] + ["unlabelled/plate 2/a.png"]
    names += [f"neg/{i:02d}.png" for i in range(4)]
    assert list(data.own.ids) == names and data.own.id_name == "file"
    np.testing.assert_array_equal(data.train_labels, [1] * 8 + [-1] * 17 + [0] * 4)
    (note,) = data.own.notes
    for said in (
        "8 images in Positive/ are labelled positive",
        "17 images in unlabelled/",
        "6 x 6",
    ):
        assert said in note
    assert "4 images in neg/ are known negative" in note


def test_without_a_size_images_become_64_pixels(folder):
    assert sources.load("own_folder", path=str(folder)).train_inputs.shape[1:] == (64, 64, 3)
    assert load(folder, channels=1).train_inputs.shape[1:] == (6, 6, 1)


def test_a_relative_path_is_looked_for_in_the_data_folder_too(folder):
    data = sources.load("own_folder", directory=folder.parent, path="cells", image_size=6)
    assert len(data.train_inputs) == 28


def test_known_negatives_count_as_unlabeled_and_a_test_set_has_its_truth(folder):
    for i in range(3):
        write(folder / "test" / "pos" / f"{i}.png", picture(i))
        write(folder / "test" / "0" / f"{i}.png", picture(9 + i))
    data = dataset.build(load(folder), seed=0, **SETTINGS)
    assert data.info.n_p == 6 and data.info.n_u == 15 and len(data.validation_labeled) == 7
    assert (data.truth[~data.labeled] == -1).all()
    np.testing.assert_array_equal(data.test_labels, [1] * 3 + [0] * 3)
    np.testing.assert_array_equal(
        data.test_inputs[0], ImagePreparation(6, 3).transform(picture(0)[None])[0]
    )


def test_statistics_are_those_of_the_rows_that_training_sees(folder):
    raw = load(folder)
    data = dataset.build(raw, seed=1, **SETTINGS)
    seen = raw.train_inputs[data.source_ids].reshape(-1, 3) / 255
    assert len(data.source_ids) == 21
    np.testing.assert_allclose(data.info.mean, seen.mean(0), rtol=1e-12)
    np.testing.assert_allclose(data.info.std, seen.std(0), rtol=1e-12)
    others = np.setdiff1d(np.arange(28), data.source_ids)
    changed = raw.train_inputs.copy()
    changed[others] = 255 - changed[others]
    assert data.info.mean == raw.prepare(data.source_ids).mean
    assert data.info.mean != raw.prepare(others).mean


def test_a_channel_without_light_is_left_alone(folder):
    green = picture(0) * np.array([0, 1, 0], np.uint8)
    for path in folder.rglob("*.png"):
        write(path, green)
    info = dataset.build(load(folder), seed=0, **SETTINGS).info
    assert info.mean[0] == info.mean[2] == 0 and info.std[0] == info.std[2] == 1.0
    assert 0 < info.std[1] < 0.5
    for path in folder.rglob("*.png"):
        write(path, np.full([4, 4, 3], 7, np.uint8))
    with pytest.raises(ValueError, match="one and the same colour"):
        dataset.build(load(folder), seed=0, **SETTINGS)


def test_streamed_images_are_those_in_memory(folder):
    memory, files = (load(folder, streaming=streaming) for streaming in ("off", "on"))
    assert isinstance(files.train_inputs, ImageFiles)
    np.testing.assert_array_equal(files.train_inputs.array(), memory.train_inputs)
    problems = [dataset.build(raw, seed=3, **SETTINGS) for raw in (memory, files)]
    assert problems[0].info == problems[1].info and problems[1].streamed
    np.testing.assert_array_equal(problems[1].inputs.array(), problems[0].inputs)


def test_every_mode_becomes_the_colours_that_a_viewer_shows(tmp_path):
    pixels = picture()
    grey = pixels[..., 0]
    rgb = write(tmp_path / "rgb.png", pixels)
    np.testing.assert_array_equal(read(rgb), pixels)
    assert read(rgb, 1).shape == (8, 6)
    plain = write(tmp_path / "grey.png", grey)
    np.testing.assert_array_equal(read(plain), np.stack([grey] * 3, axis=-1))
    np.testing.assert_array_equal(read(plain, 1), grey)
    palette = Image.fromarray(pixels[:4, :4]).quantize(16)
    np.testing.assert_array_equal(
        read(write(tmp_path / "p.gif", palette)), np.asarray(palette.convert("RGB"))
    )
    ink = np.concatenate([255 - pixels, np.zeros([8, 6, 1], np.uint8)], axis=-1)
    cmyk = write(tmp_path / "cmyk.tif", Image.fromarray(ink, "CMYK"))
    np.testing.assert_array_equal(read(cmyk), pixels)
    one_bit = write(tmp_path / "bits.png", Image.fromarray(grey > 127))
    np.testing.assert_array_equal(read(one_bit, 1), np.where(grey > 127, 255, 0))


def test_sixteen_bits_keep_the_upper_eight(tmp_path):
    deep = np.random.default_rng(0).integers(0, 2**16, (7, 7)).astype(np.uint16)
    for name in ("deep.png", "deep.tif"):
        path = write(tmp_path / name, deep)
        np.testing.assert_array_equal(read(path, 1), deep // 256)
        np.testing.assert_array_equal(read(path)[..., 2], deep // 256)
        prepared = ImagePreparation(7, 1).transform([str(path)])
        np.testing.assert_array_equal(prepared[0, ..., 0], deep // 256)
    wrong = write(tmp_path / "float.tif", deep.astype(np.float32))
    with pytest.raises(ValueError, match=r"float.tif cannot be read .*'F'; accepted: integers"):
        read(wrong)
    beyond = write(tmp_path / "beyond.tif", deep.astype(np.int32) * 2)
    with pytest.raises(ValueError, match=r"beyond.tif cannot be read .*'I'; accepted: integers"):
        read(beyond)


def test_a_transparent_level_of_16_bits_is_laid_on_white(tmp_path):
    levels = np.arange(0, 48 * 1000, 1000, dtype=np.uint16).reshape(8, 6)
    path = write(tmp_path / "a.png", Image.fromarray(levels), transparency=5000)
    expected = np.where(levels == 5000, 255, levels >> 8)[..., None]
    np.testing.assert_array_equal(read(path), np.repeat(expected, 3, axis=-1))


@pytest.mark.parametrize(
    ("depth", "kind", "row", "clear", "expected"),
    [
        (1, 0, [0x40], [1], [[0] * 3, [255] * 3]),
        (2, 0, [0x60], [1], [[255] * 3, [170] * 3]),
        (2, 0, [0x60], [4 + 2], [[85] * 3, [255] * 3]),  # the upper bits say nothing
        (4, 0, [0x3E], [3], [[255] * 3, [238] * 3]),
        (8, 0, [62, 5], [5], [[62] * 3, [255] * 3]),
        (8, 2, range(6), [3, 4, 5], [[0, 1, 2], [255] * 3]),
        (16, 2, range(12), [1, 0x203, 0x405], [[255] * 3, [6, 8, 10]]),
    ],
)
def test_a_transparent_level_of_any_depth_is_laid_on_white(
    tmp_path, depth, kind, row, clear, expected
):
    def chunk(name, content):
        checksum = struct.pack(">I", zlib.crc32(name + content))
        return struct.pack(">I", len(content)) + name + content + checksum

    header = struct.pack(">2I5B", 2, 1, depth, kind, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"tRNS", struct.pack(f">{len(clear)}H", *clear))]
    parts += [chunk(b"IDAT", zlib.compress(bytes([0, *row]))), chunk(b"IEND", b"")]
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    np.testing.assert_array_equal(read(tmp_path / "a.png"), [expected])


@pytest.mark.parametrize("mode", ["RGBA", "LA", "P"])
def test_what_is_transparent_is_laid_on_white(tmp_path, mode):
    alpha = np.arange(0, 256, 5, dtype=np.uint8)[:48].reshape(8, 6)
    colours = picture() if mode == "RGBA" else np.stack([picture()[..., 0]] * 3, axis=-1)
    if mode == "P":
        image = Image.fromarray((np.arange(48) % 2).astype(np.uint8).reshape(8, 6), "P")
        image.putpalette([10, 20, 30, 40, 50, 60])
        path = write(tmp_path / "a.png", image, transparency=1)
        expected = np.where((np.arange(48) % 2).reshape(8, 6, 1), 255, [10, 20, 30])
        np.testing.assert_array_equal(read(path), expected)
        return
    bands = colours if mode == "RGBA" else colours[..., :1]
    path = write(tmp_path / "a.png", np.concatenate([bands, alpha[..., None]], axis=-1))
    share = alpha[..., None] / 255
    expected = share * colours + (1 - share) * 255
    assert np.abs(read(path) - expected).max() <= 1


@pytest.mark.parametrize(
    ("orientation", "turn"),
    [
        (1, lambda x: x),
        (3, lambda x: x[::-1, ::-1]),
        (6, lambda x: np.rot90(x, -1)),
        (8, lambda x: np.rot90(x, 1)),
        (2, lambda x: x[:, ::-1]),
    ],
)
def test_a_photograph_is_turned_as_its_camera_says(tmp_path, orientation, turn):
    exif = Image.Exif()
    exif[274] = orientation
    path = write(tmp_path / "a.png", picture(), exif=exif)
    np.testing.assert_array_equal(read(path), turn(picture()))
    # Given the path of such a file, Pillow 13.0 maps it into memory and mixes up its rows.
    grey = write(tmp_path / "a.tif", picture()[..., 0], exif=exif)
    np.testing.assert_array_equal(read(grey, 1), turn(picture()[..., 0]))


@pytest.mark.parametrize("ending", ["png", "jpg", "tif"])
def test_every_orientation_is_turned_as_pillow_turns_it(tmp_path, ending):
    seen = set()
    for orientation in range(1, 9):
        exif = Image.Exif()
        exif[274] = orientation
        path = write(tmp_path / f"{orientation}.{ending}", picture(), exif=exif)
        with Image.open(path) as image:
            expected = np.asarray(ImageOps.exif_transpose(image))
        np.testing.assert_array_equal(read(path), expected)
        assert image_arrays.stored_size(path, turned=True) == expected.shape[:2]
        seen.add(expected.tobytes())
    assert len(seen) == 8


def exif_of(*entries):
    """EXIF of tags whose types and values are as given, whatever Pillow would make of them."""
    packed = [struct.pack("<HHI4s", tag, kind, count, value) for tag, kind, count, value in entries]
    head = b"Exif\0\0II*\0" + struct.pack("<IH", 8, len(entries))
    return head + b"".join(packed) + struct.pack("<I", 0)


@pytest.mark.parametrize("ending", ["png", "jpg", "webp"])
@pytest.mark.parametrize(
    ("exif", "is_turned"),
    [
        (exif_of((0x0112, 2, 2, b"6\0\0\0")), False),  # an orientation in text
        (exif_of((0x0112, 3, 1, b"\6\0\0\0")), True),
        (exif_of((0x0112, 3, 1, b"\6\0\0\0"), (0x011A, 2, 4, b"abc\0")), True),
        (exif_of((0x0112, 3, 1, b"\x09\0\0\0")), False),
        (b"Exif\0\0" + b"none" * 3, False),
    ],
    ids=["text", "whole", "other tag", "nine", "no EXIF"],
)
def test_a_photograph_with_odd_exif_is_no_damaged_one(tmp_path, exif, is_turned, ending):
    plain = picture()
    lossless = {"webp": {"lossless": True}}.get(ending, {})
    path = write(tmp_path / f"a.{ending}", plain, exif=exif, **lossless)
    if ending == "jpg":
        plain = np.asarray(Image.open(path))
    expected = np.rot90(plain, -1) if is_turned else plain
    np.testing.assert_array_equal(read(path), expected)
    assert image_arrays.stored_size(path, turned=True) == expected.shape[:2]


def test_a_photograph_in_cielab_is_read_in_colour_and_in_grey(tmp_path):
    path = write(tmp_path / "a.tif", Image.fromarray(picture(), "LAB"))
    with Image.open(path) as image:
        assert image.mode == "LAB"
    colour = read(path)
    assert colour.shape == (8, 6, 3)
    np.testing.assert_array_equal(read(path, 1), np.asarray(Image.fromarray(colour).convert("L")))
    decoded = [np.asarray(image_arrays.decode(path, channels=n)) for n in (1, 3)]
    np.testing.assert_array_equal(decoded[0], read(path, 1))
    np.testing.assert_array_equal(decoded[1], colour)


def test_of_sixteen_bits_of_which_0_is_white_it_is_white(tmp_path):
    deep = np.random.default_rng(0).integers(0, 2**16, (7, 7)).astype(np.uint16)
    path = write(tmp_path / "a.tif", deep, tiffinfo={262: 0})
    np.testing.assert_array_equal(read(path, 1), (65535 - deep) // 256)


def test_an_array_becomes_what_its_files_become(tmp_path):
    learned = ImagePreparation(5, 3)
    images = np.stack([picture(i) for i in range(4)])
    paths = [str(write(tmp_path / f"{i}.png", image)) for i, image in enumerate(images)]
    np.testing.assert_array_equal(learned.transform(images), learned.transform(paths))
    solid = np.concatenate([images, np.full_like(images[..., :1], 255)], axis=-1)
    np.testing.assert_array_equal(learned.transform(solid), learned.transform(paths))
    grey = ImagePreparation(5, 1).transform(images[..., :1])
    np.testing.assert_array_equal(learned.transform(images[..., :1]), np.repeat(grey, 3, -1))
    for wrong in (images[0], images.astype(np.float32), images[..., :2]):
        with pytest.raises(ValueError, match="the array of images is .*accepted: uint8"):
            learned.transform(wrong)


def test_a_preparation_is_saved(tmp_path):
    learned = ImagePreparation(17, 1, "bicubic")
    learned.save(tmp_path)
    assert image_preparation.load(tmp_path) == learned
    text = (tmp_path / "preparation.json").read_text()
    for wrong in ("", "[]", "{}", text.replace("bicubic", "magic"), text.replace('"side"', '"x"')):
        (tmp_path / "preparation.json").write_text(wrong)
        with pytest.raises(ValueError, match=r"preparation.json cannot be read"):
            image_preparation.load(tmp_path)


def refusal(root, **options):
    with pytest.raises(ValueError) as error:
        sources.load("own_folder", path=str(root), image_size=6, **options)
    assert len(str(error.value).splitlines()) == 1
    return str(error.value)


def test_damaged_images_are_named_and_counted_or_left_out_and_spoken_of(folder):
    whole = (folder / "unlabelled" / "03.png").read_bytes()
    (folder / "unlabelled" / "03.png").write_bytes(whole[: len(whole) // 2])
    (folder / "unlabelled" / "11.png").write_bytes(b"")
    for streaming in ("off", "on"):
        said = refusal(folder, streaming=streaming)
        assert "unlabelled/03.png cannot be read" in said and "2 of 28 images" in said
        data = load(folder, unreadable="skip", streaming=streaming)
        assert len(data.train_inputs) == len(data.train_labels) == len(data.own.ids) == 26
        assert not {"unlabelled/03.png", "unlabelled/11.png"} & set(data.own.ids)
        note = data.own.notes[-1]
        assert "2 of 28 images cannot be read and are left out" in note
        assert "03.png" in note and "11.png" in note
    where = list(data.own.ids).index("unlabelled/04.png")
    expected = ImagePreparation(6, 3).transform([str(folder / "unlabelled" / "04.png")])
    np.testing.assert_array_equal(data.train_inputs[[where]].array(), expected)
    for path in (folder / "Positive").iterdir():
        path.write_bytes(b"nothing")
    assert "all positive or all other images" in refusal(folder, unreadable="skip")


def test_many_damaged_images_are_counted_and_the_first_named():
    reasons = {i: f"{i}.png cannot be read" for i in range(30)}
    said = image_trees.check_readable(reasons, 100, "skip")
    assert "30 of 100" in said and "19.png" in said and "20.png" not in said and "10 more" in said


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda f: f / "nowhere", "nowhere', which does not exist; accepted: a folder that holds"),
        (lambda f: f / "neg" / "00.png", "00.png', a file; accepted: a folder"),
        (lambda f: (f / "neg" / "new").mkdir() or f / "neg" / "new", "an empty folder; accepted"),
        (lambda f: (f / "positves").mkdir() or f, "'positves' (did you mean 'positive'?)"),
        (lambda f: (f / "train").mkdir() or f, "data.source=image_folder"),
        (lambda f: (f / "1").mkdir() or f, "'1' and 'Positive', both of them positive"),
        (lambda f: write(f / "a.png", picture()) and f, "1 image beside the folders ('a.png'"),
        (lambda f: (f / "unlabelled").rename(f.parent / "x") and f, "without unlabeled/"),
        (lambda f: (f / "Positive").rename(f.parent / "x") and f, "without positive/"),
        (lambda f: [p.unlink() for p in f.glob("Pos*/*")] and f, "whose Positive/ holds no image"),
        (lambda f: (f / "test").mkdir() or f, "which has no positive image; accepted: test/pos"),
        (
            lambda f: write(f / "test" / "positive" / "a.png", picture()) and f,
            "which has no negative image",
        ),
        (lambda f: (f / "test" / "unlabeled").mkdir(parents=True) or f, "folder 'unlabeled'"),
    ],
)
def test_what_a_folder_lacks_is_said_in_a_line_that_names_the_field(folder, change, said):
    message = refusal(change(folder))
    assert said in message and message.startswith("data.path is '")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("unreadable", "maybe", "data.unreadable is 'maybe'; accepted: 'fail', 'skip'"),
        ("channels", 2, "data.channels is 2; accepted: 1, 3"),
        ("label", "x", "data.label is 'x', but source 'own_folder' has no such option"),
    ],
)
def test_options_that_cannot_be_are_refused(folder, field, value, said):
    assert said in refusal(folder, **{field: value})


def test_images_too_large_for_the_memory_are_refused_by_their_size(folder):
    with pytest.raises(ValueError, match="image_size is 10000000, .* GiB for 28 images; accepted"):
        sources.load("own_folder", path=str(folder), image_size=10**7)


def test_labels_of_a_folder_are_as_they_are(folder):
    with pytest.raises(ValueError, match="data.num_labeled is 4; accepted: 0"):
        dataset.build(load(folder), seed=0, **(SETTINGS | {"num_labeled": 4, "holdout": 0.0}))


def test_eight_bits_in_a_type_of_thirty_two_do_not_become_black(tmp_path):
    levels = np.random.default_rng(0).integers(1, 256, (8, 8)).astype(np.int32)
    with pytest.raises(ValueError, match=r"a\.tif.* levels of 32 bits is .*25\d.*as 8 bits"):
        read(write(tmp_path / "a.tif", Image.fromarray(levels)))
    deep = levels.astype(np.int32) << 8
    np.testing.assert_array_equal(
        read(write(tmp_path / "b.tif", Image.fromarray(deep)), channels=1), levels
    )
    assert not read(write(tmp_path / "c.tif", Image.fromarray(levels * 0))).any()
    # A file that tells its number of bits may be dark.
    (tmp_path / "d.pgm").write_bytes(b"P5 2 1 65535\n" + np.array([200, 9], ">u2").tobytes())
    assert not read(tmp_path / "d.pgm").any()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes with names")
def test_a_pipe_is_no_image(folder):
    os.mkfifo(folder / "unlabelled" / "pipe.png")
    assert "pipe.png is no file; accepted: image files" in refusal(folder)


def test_linked_folders_are_looked_into_but_not_for_ever(folder, tmp_path):
    write(tmp_path / "elsewhere" / "z.png", picture())
    os.symlink(tmp_path / "elsewhere", folder / "neg" / "linked")
    os.symlink(folder / "neg", folder / "neg" / "again")
    names = image_listing.images_below(folder / "neg")
    assert names == [*(f"{i:02d}.png" for i in range(4)), "linked/z.png"]


def test_a_name_that_no_table_can_hold_is_refused(folder, monkeypatch):
    """The name is given as a listing gives it, since not every file system takes such a file."""
    name = os.fsdecode(b"\xff.png")
    entry = types.SimpleNamespace(name=name, is_dir=lambda: False)
    listing = os.scandir

    def with_name(place):
        found = list(listing(place))
        return contextlib.nullcontext([*found, entry] if place.endswith("neg") else found)

    monkeypatch.setattr(image_listing.os, "scandir", with_name)
    assert "accepted: names in UTF-8" in refusal(folder)


@pytest.mark.parametrize("streaming", ["off", "on"])
def test_test_images_that_are_training_images_are_counted_and_warned_of(folder, streaming):
    seen, new = folder / "unlabelled" / "00.png", picture(7)
    write(folder / "test" / "positive" / "a.png", new)
    write(folder / "test" / "negative" / "b.png", picture(8))
    assert load(folder, streaming=streaming).own.test_copies is None
    shutil.copy(seen, folder / "test" / "negative" / "c.png")
    shutil.copy(seen, folder / "neg" / "again.png")  # two of 30 are one
    # As large a file as one of training, and another one.
    same_size = folder / "test" / "positive" / "d.bmp"
    write(same_size, picture(9))
    write(folder / "Positive" / "d.bmp", picture(10))
    assert same_size.stat().st_size == (folder / "Positive" / "d.bmp").stat().st_size
    own = load(folder, streaming=streaming).own
    assert own.test_copies == raw.SharedRows(1, 0, 4, pytest.approx(2 / 30), "images")
    assert own.notes[-1] == f"warning: {own.test_copies.sentence}"
    assert own.notes[-1].startswith(
        "warning: 1 of 4 test images (25.0%) are also training images, the same file; of the "
        "training images 6.7% are"
    )
