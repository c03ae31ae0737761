"""The digits that ship inside scikit-learn, and the test set cut out of them."""

import numpy as np
import pytest
from sklearn import datasets

from pujax.data import sources


def rows(images):
    return [image.tobytes() for image in images]


def test_every_image_is_on_exactly_one_side():
    data = sources.load("digits")
    assert len(data.train_inputs) + len(data.test_inputs) == 1797
    images, labels = datasets.load_digits(return_X_y=True)
    levels = np.rint(images * 255 / 16).astype(np.uint8)  # 255/16 * 8 = 127.5 rounds to 128
    expected = sorted(zip(rows(levels), labels.tolist(), strict=True))
    inputs = np.concatenate([data.train_inputs, data.test_inputs])
    found = np.concatenate([data.train_labels, data.test_labels])
    assert sorted(zip(rows(inputs), found.tolist(), strict=True)) == expected


def test_grey_values_span_the_bytes():
    data = sources.load("digits")
    assert data.train_inputs.shape[1:] == (8, 8, 1)
    assert set(np.unique(data.train_inputs)) == {(255 * v + 8) // 16 for v in range(17)}
    assert (data.train_inputs.min(), data.train_inputs.max()) == (0, 255)


def test_the_test_set_has_the_same_share_of_every_class():
    data = sources.load("digits", test_fraction=0.25)
    test = np.bincount(data.test_labels, minlength=10)
    train = np.bincount(data.train_labels, minlength=10)
    np.testing.assert_array_equal(test, (0.25 * (train + test)).astype(int))


def test_the_test_set_is_the_same_in_every_call_and_no_random_state_counts():
    first = sources.load("digits")
    np.random.default_rng(7).random(3)
    second = sources.load("digits", seed=0)
    np.testing.assert_array_equal(first.test_inputs, second.test_inputs)
    # Pinned, never to change: results on this set are only comparable with the same images.
    assert (len(first.test_inputs), int(first.test_inputs.sum(dtype=np.int64))) == (355, 1759155)


def test_another_seed_holds_out_other_images():
    first, second = sources.load("digits"), sources.load("digits", seed=1)
    common = set(rows(first.test_inputs)) & set(rows(second.test_inputs))
    assert len(common) < 0.4 * len(first.test_inputs)  # 20 % by chance


def test_mean_and_deviation_are_those_of_the_training_images():
    data = sources.load("digits")
    pixels = data.train_inputs / 255.0
    np.testing.assert_allclose(data.mean[0], pixels.mean(), rtol=1e-12)
    np.testing.assert_allclose(data.std[0], pixels.std(), rtol=1e-12)


@pytest.mark.parametrize("fraction", [0.0, 1.0, -0.1, 0.001, 2.0])
def test_a_share_that_empties_a_side_is_refused(fraction):
    with pytest.raises(ValueError, match=f"test_fraction is {fraction}"):
        sources.load("digits", test_fraction=fraction)
