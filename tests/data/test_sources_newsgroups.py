"""20 Newsgroups: reading archives and folders, the text that counts, and the real posts."""

import io
import tarfile

import numpy as np
import pytest

from pujax.data import sources
from pujax.data.readers import download
from pujax.data.sources import newsgroups
from tests import conftest

# (split, topic, number, text below the header)
POSTS = (
    ("train", "comp.graphics", "11", "pixels and pixels of a screen"),
    ("train", "comp.windows.x", "12", "a window on the screen"),
    ("train", "sci.space", "13", "the orbit of a moon"),
    ("train", "rec.autos", "14", "a fast car"),  # of the published 20 topics, but of neither side
    ("test", "comp.graphics", "21", "pixels and orbits"),
    ("test", "sci.space", "22", "unheard words"),
)


@pytest.fixture
def made(monkeypatch):
    """Counts of the posts above in place of the published ones."""
    monkeypatch.setattr(newsgroups, "COUNTS", {"train": (1, 2), "test": (1, 1)})


def content(topic, text):
    return f"From: someone\nNewsgroups: {topic}\nSubject: header\n\n{text}\n".encode("latin-1")


def write_archive(path, posts=POSTS, prefix=""):
    with tarfile.open(path, f"w:{path.suffix[1:]}") as archive:
        for split, topic, number, text in reversed(posts):
            info = tarfile.TarInfo(f"{prefix}20news-bydate-{split}/{topic}/{number}")
            data = content(topic, text)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


def write_folders(root):
    for split, topic, number, text in POSTS:
        path = root / f"20news-bydate-{split}" / topic / number
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content(topic, text))


def test_tf_idf_by_hand(made, tmp_path):
    write_folders(tmp_path)
    data = newsgroups.load(tmp_path)
    # By topic: comp.graphics, comp.windows.x, sci.space.
    np.testing.assert_array_equal(data.train_labels, [1, 1, 0])
    np.testing.assert_array_equal(data.test_labels, [1, 0])
    # Words of two letters and more, in alphabetical order; the header and rec.autos are not in.
    words = ["and", "moon", "of", "on", "orbit", "pixels", "screen", "the", "window"]
    assert data.train_inputs.shape == (3, len(words)) and data.train_inputs.dtype == np.float32
    counts = np.array([[1, 0, 1, 0, 0, 2, 1, 0, 0], [0, 0, 0, 1, 0, 0, 1, 1, 1]] + [[0] * 9])
    counts[2, [1, 2, 4, 7]] = 1
    idf = np.log((1 + 3) / (1 + (counts > 0).sum(0))) + 1  # scikit-learn's smooth form
    weights = counts * idf
    wanted = weights / np.linalg.norm(weights, axis=1, keepdims=True)
    np.testing.assert_allclose(data.train_inputs, wanted, rtol=1e-6)
    tested = np.array([1, 0, 0, 0, 0, 1, 0, 0, 0]) * idf  # 'orbits' is no word of the training set
    np.testing.assert_allclose(data.test_inputs[0], tested / np.linalg.norm(tested), rtol=1e-6)
    np.testing.assert_array_equal(data.test_inputs[1], 0)


@pytest.mark.parametrize("place", ["", "newsgroups"])
@pytest.mark.parametrize(
    "name", ["20news-bydate.tar.gz", "20news-bydate-comp-sci.tar.xz", "20news-bydate.tar.bz2"]
)
@pytest.mark.parametrize("prefix", ["", "./", "copy/"])
def test_an_archive_gives_what_its_folders_give(name, place, prefix, made, tmp_path):
    write_folders(tmp_path / "folders" / place)
    (tmp_path / "packed" / place).mkdir(parents=True, exist_ok=True)
    write_archive(tmp_path / "packed" / place / name, prefix=prefix)
    first, second = (newsgroups.load(tmp_path / name) for name in ("folders", "packed"))
    np.testing.assert_array_equal(first.train_inputs, second.train_inputs)
    np.testing.assert_array_equal(first.test_inputs, second.test_inputs)
    np.testing.assert_array_equal(first.train_labels, second.train_labels)


@pytest.mark.parametrize(
    ("post", "text"),
    [
        (b"A: 1\nB: 2\n\nfirst\n\nsecond", "first\n\nsecond"),
        (b"A: 1\r\n\r\nfirst", "first"),
        (b"A: 1\n \nfirst", "first"),
        (b"A: 1\nno end of the header", ""),
        (b"A: 1\n\ncaf\xe9", "caf\u00e9"),
    ],
)
def test_the_header_ends_at_the_first_blank_line(post, text):
    assert newsgroups.body(post) == text


def test_missing_posts_and_a_damaged_archive_are_refused(made, tmp_path):
    path = tmp_path / "20news-bydate.tar.xz"
    write_archive(path, POSTS[1:])
    with pytest.raises(
        ValueError, match="1 posts of sci.* and 1 of comp.*train; accepted: 1 and 2"
    ):
        newsgroups.load(tmp_path)
    write_archive(path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(ValueError, match="20news-bydate.tar.xz is damaged or truncated"):
        newsgroups.load(tmp_path)


def test_without_files_and_network_the_error_says_what_to_do(tmp_path, monkeypatch):
    def offline(*args, **kwargs):
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.urlopen", offline)
    monkeypatch.setattr("pujax.data.readers.http_transfer.BACKOFF_SECONDS", 0.0)
    with pytest.raises(download.MissingDataError) as caught:
        sources.load("newsgroups", directory=tmp_path)
    message = str(caught.value)
    assert "20news-bydate.tar.gz" in message and "http" in message and "sha256:" in message
    assert str(tmp_path / "newsgroups") in message and "20news-bydate-train" in message


@pytest.mark.thorough
def test_the_real_posts_have_their_published_counts_and_their_words_tell_the_classes_apart():
    data = sources.load("newsgroups", directory=conftest.real_data_folder("newsgroups"))
    assert data.train_inputs.shape == (5309, 2000) and data.test_inputs.shape == (3534, 2000)
    assert (int(data.train_labels.sum()), int(data.test_labels.sum())) == (2936, 1955)
    lengths = np.linalg.norm(data.train_inputs, axis=1)
    assert np.isclose(lengths, 1, atol=1e-5).sum() + (lengths == 0).sum() == 5309
    # The nearer class mean; a majority vote is right on 55 %.
    means = [data.train_inputs[data.train_labels == c].mean(0) for c in (0, 1)]
    means = [mean / np.linalg.norm(mean) for mean in means]
    called = data.test_inputs @ means[1] > data.test_inputs @ means[0]
    assert np.mean(called == data.test_labels) > 0.85
