"""Images in files: the same pixels as Pillow gives by hand, random crops, and damaged files."""

import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

from pujax.data.image_files import ImageFiles
from pujax.data.readers import image_arrays

BICUBIC = Image.Resampling.BICUBIC


def photo(seed, height=37, width=50):
    """A smooth random picture, as photographs are, for which JPEG and resizing mean something."""
    small = np.random.default_rng(seed).integers(0, 256, (5, 6, 3), np.uint8)
    return Image.fromarray(small).resize((width, height), BICUBIC)


def save(image, path, **options):
    image.save(path, **options)
    return str(path)


@pytest.fixture
def files(tmp_path):
    names = ("a.jpg", "b.png", "c.jpg", "d.png", "e.jpg")
    paths = tuple(
        save(photo(i, height=30 + 5 * i), tmp_path / name) for i, name in enumerate(names)
    )
    return ImageFiles(paths, side=24, load_side=32)


def by_hand(path, *sides, crop=None):
    image = Image.open(path).convert("RGB").resize((sides[0], sides[0]), BICUBIC)
    if crop is not None:
        image = image.crop(crop).resize((sides[1], sides[1]), BICUBIC)
    return np.asarray(image)


def test_it_looks_like_an_array_of_the_decoded_images(files):
    assert len(files) == 5
    assert files.shape == (5, 24, 24, 3)
    assert files.dtype == files.read(0).dtype == np.uint8
    assert files.read(0).shape == files.shape[1:]
    assert files.nbytes == 0


def test_tested_images_are_resized_bicubically_whatever_their_aspect(files):
    for i, path in enumerate(files.paths):
        np.testing.assert_array_equal(files.read(i), by_hand(path, 24))
    assert not np.array_equal(files.read(0), files.read(2))


def test_an_image_of_the_right_size_is_not_changed(tmp_path):
    image = photo(0, height=16, width=16)
    files = ImageFiles((save(image, tmp_path / "a.png"),), side=16, load_side=16)
    np.testing.assert_array_equal(files.read(0), np.asarray(image))
    crop = files.read_crop(0, np.random.default_rng(0), (16,))
    np.testing.assert_array_equal(crop, np.asarray(image))


def test_a_crop_is_a_square_of_one_of_the_sizes_at_a_place_inside(files):
    """Every crop equals one of all possible ones, made by hand; sizes are drawn evenly."""
    sizes = (32, 30, 20)
    possible = {}
    for size in sizes:
        for left in range(33 - size):
            for top in range(33 - size):
                pixels = by_hand(files.paths[2], 32, 24, crop=(left, top, left + size, top + size))
                possible[pixels.tobytes()] = (size, left, top)
    rng = np.random.default_rng(0)
    drawn = [possible[files.read_crop(2, rng, sizes).tobytes()] for _ in range(600)]
    for size in sizes:
        assert 150 < sum(d[0] == size for d in drawn) < 250  # 200 expected, deviation 11.5
    assert {d[1:] for d in drawn if d[0] == 30} == {(x, y) for x in range(3) for y in range(3)}
    lefts, tops = np.array([d[1:] for d in drawn if d[0] == 20]).T
    assert set(lefts) == set(tops) == set(range(13))
    assert abs(np.corrcoef(lefts, tops)[0, 1]) < 0.3


def test_a_crop_depends_on_the_generator_alone(files):
    first, again, other = (
        files.read_crop(1, np.random.default_rng(seed), (28, 20)) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "LA", "CMYK", "1"])
def test_other_modes_become_rgb(tmp_path, mode):
    image = photo(1).convert(mode)
    path = save(image, tmp_path / ("a.jpg" if mode == "CMYK" else "a.png"))
    files = ImageFiles((path,), side=8, load_side=8)
    assert files.read(0).shape == (8, 8, 3)
    np.testing.assert_array_equal(files.read(0), by_hand(path, 8))


def test_rows_are_taken_in_the_order_that_was_asked(files):
    taken = files[np.array([4, 0, 0])]
    assert taken.paths == (files.paths[4], files.paths[0], files.paths[0])
    assert (taken.side, taken.load_side) == (24, 32)
    assert len(files[np.zeros(0, np.int64)]) == 0
    for rows in ([5], [-1], [0.0], [[0, 1]], [True]):
        with pytest.raises(ValueError, match="rows .*accepted"):
            files[np.array(rows)]


def test_the_digest_tells_other_names_sizes_and_orders_but_not_another_folder(files, tmp_path):
    digest = files.digest()
    assert files.digest() == digest
    assert files[np.array([1, 0, 2, 3, 4])].digest() != digest
    moved = tmp_path / "moved"
    moved.mkdir()
    paths = tuple(shutil.copy(path, moved) for path in files.paths)
    assert ImageFiles(paths, 24, 32).digest() == digest
    with open(paths[3], "ab") as file:
        file.write(b"\0")
    assert ImageFiles(paths, 24, 32).digest() != digest
    missing = ImageFiles((str(tmp_path / "no.jpg"),), 24, 32)
    with pytest.raises(ValueError, match="no.jpg cannot be read"):
        missing.digest()


def test_damaged_and_missing_files_are_named(files, tmp_path):
    whole = pathlib.Path(files.paths[0]).read_bytes()
    for name, content in (
        ("cut.jpg", whole[: len(whole) // 2]),
        ("text.png", b"no image"),
        ("empty.jpg", b""),
    ):
        (tmp_path / name).write_bytes(content)
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(deep).save(tmp_path / "deep.png")
    for name in ("cut.jpg", "text.png", "empty.jpg", "deep.png", "missing.jpg"):
        damaged = ImageFiles((str(tmp_path / name),), side=8, load_side=8)
        with pytest.raises(ValueError, match=f"{name} cannot be read as an image"):
            damaged.read(0)
        with pytest.raises(ValueError, match=f"{name} cannot be read as an image"):
            damaged.read_crop(0, np.random.default_rng(0), (8,))


def test_why_a_file_cannot_be_read_is_said_in_plain_words_and_its_name_once(files, tmp_path):
    whole, place = pathlib.Path(files.paths[0]).read_bytes(), tmp_path / "two  words"
    place.mkdir()
    plain = "the file is no image, or is cut off or damaged ("
    for content, said in (
        (whole[: len(whole) // 2], plain),  # in words that depend on where it ends
        (b"no image", f"{plain}cannot identify image file)"),
        (None, "No such file or directory"),
    ):
        path = place / "a.jpg"
        path.unlink(missing_ok=True)
        if content is not None:
            path.write_bytes(content)
        for read in (image_arrays.decode, image_arrays.decode_any):
            with pytest.raises(ValueError) as error:
                read(path, channels=3)
            assert str(error.value).startswith(f"{path} cannot be read as an image: {said}")
            assert str(error.value).count("a.jpg") == 1
    deep = np.arange(64, dtype=np.uint16).reshape(8, 8) * 1000
    Image.fromarray(deep).save(tmp_path / "deep.png")
    with pytest.raises(
        ValueError, match="an image: the mode of its pixels is .*; accepted: 8 bits"
    ):
        image_arrays.decode(tmp_path / "deep.png", channels=3)


def test_bad_arguments_are_named(files):
    with pytest.raises(ValueError, match="the type of paths is 'str'; accepted: tuple"):
        ImageFiles("a.jpg", 24, 32)
    for sides in ((0, 32), (24, -1), (24.0, 32), (True, 32)):
        with pytest.raises(ValueError, match="side is .*accepted"):
            ImageFiles(files.paths, *sides)
    rng = np.random.default_rng(0)
    for sizes in ((), (0,), (33,), (20, 33), (20.5,)):
        with pytest.raises(ValueError, match="crop_sizes is .*accepted: .* 32"):
            files.read_crop(0, rng, sizes)
    for index in (-1, 5):
        with pytest.raises(ValueError, match=f"index is {index}; accepted: 0 to 4"):
            files.read(index)
