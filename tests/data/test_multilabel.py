"""Hiding labels of a multi-label source: whose mask it is, what training sees, what is counted."""

import jax
import numpy as np
import pytest

from pujax.data import multilabel_dataset, sources
from pujax.data.image_files import ImageFiles
from pujax.data.raw import RawDataset
from tests import tiny
from tests.data.listed_images import write_image

# Columns: a class with everything, one that is never positive, one that nobody knows much of.
LABELS = np.array([[1, 0, -1], [0, 0, 1], [1, 0, 0], [0, 0, -1], [1, 0, 1]], np.int8)
TEST_LABELS = np.array([[1, 0, 0], [1, 0, 1]], np.int8)


def raw(labels=LABELS, *, test_labels=TEST_LABELS):
    inputs = np.arange(2 * (len(labels) + len(test_labels)), dtype=np.float32).reshape(-1, 2)
    return RawDataset(
        *("five", inputs[: len(labels)], labels, inputs[len(labels) :], test_labels),
        *(("a", "b", "c"), (1.0, 2.0), (3.0, 4.0)),
    )


def build(labels=LABELS, *, known_ratio=1.0, seed=0, **options):
    return multilabel_dataset.build(raw(labels), known_ratio=known_ratio, seed=seed, **options)


@pytest.mark.parametrize("seed", [0, 7])
@pytest.mark.parametrize("ratio", [0.1, 0.5, 0.9])
def test_the_mask_is_that_of_the_authors_code(seed, ratio):
    shape = (40, 6)
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    wanted = np.random.uniform(size=shape) < ratio  # noqa: NPY002
    np.random.set_state(before)  # noqa: NPY002
    np.testing.assert_array_equal(multilabel_dataset.known_mask(shape, ratio, seed), wanted)
    after = np.random.get_state()  # noqa: NPY002
    np.testing.assert_array_equal(before[1], after[1])  # the shared generator is left alone


def test_the_first_numbers_of_seed_0_are_those_of_numpys_legacy_generator():
    # 0.549 0.715 0.603 0.545 0.424 0.646: published in many a NumPy tutorial.
    np.testing.assert_array_equal(
        multilabel_dataset.known_mask((2, 3), 0.6, 0), [[True, False, False], [True, True, False]]
    )


def test_masks_of_one_seed_are_nested_and_every_entry_is_kept_with_the_ratio():
    shape, smaller = (300, 20), np.zeros((300, 20), bool)
    for ratio in (0.1, 0.2, 0.3, 0.5, 0.8, 1.0):
        mask = multilabel_dataset.known_mask(shape, ratio, 3)
        assert not (smaller & ~mask).any()
        # Six deviations of a share of 6000 fair draws are at most 0.04.
        assert abs(mask.mean() - ratio) < 0.04
        smaller = mask
    assert smaller.all()
    assert (
        multilabel_dataset.known_mask(shape, 0.5, 3) != multilabel_dataset.known_mask(shape, 0.5, 4)
    ).any()


def test_codes_of_known_and_unknown_labels():
    labels = np.array([[1, 0, -1, 1, 0, -1]], np.int8)
    known = np.array([[True, True, True, False, False, False]])
    found = multilabel_dataset.codes(labels, known)
    np.testing.assert_array_equal(found, [[1, -1, 0, 0, 0, 0]])
    assert found.dtype == np.int8


def test_at_ratio_1_all_is_known_that_anybody_knows():
    data = build()
    wanted = np.where(LABELS == 1, 1, np.where(LABELS == 0, -1, 0))
    np.testing.assert_array_equal(data.labeled, wanted)
    assert data.info.known_ratio == 1 and data.info.class_names == ("a", "b", "c")
    assert data.info.is_table and np.isnan(data.info.prior) and not data.streamed


def test_a_problem_hides_by_the_mask_and_leaves_the_test_labels():
    data = build(known_ratio=0.5, seed=1)
    mask = np.random.RandomState(1).uniform(size=LABELS.shape) < 0.5  # noqa: NPY002
    assert 0 < mask.sum() < mask.size
    np.testing.assert_array_equal(data.labeled, multilabel_dataset.codes(LABELS, mask))
    np.testing.assert_array_equal(data.truth, LABELS)
    np.testing.assert_array_equal(data.test_labels, TEST_LABELS)
    with_seed_1 = tiny.multilabel_problem(1, known_ratio=0.3)
    with_seed_2 = tiny.multilabel_problem(2, known_ratio=0.3)
    np.testing.assert_array_equal(with_seed_1.truth, with_seed_2.truth)
    assert (with_seed_1.labeled != with_seed_2.labeled).any()


def test_numbers_of_the_problem_do_not_depend_on_what_is_known():
    first, second = build(known_ratio=0.5, seed=1), build(known_ratio=0.5, seed=2)
    assert (first.labeled != second.labeled).any()
    assert first.info == second.info  # so that seeds of a sweep are one program


def test_reveal_knows_what_anybody_knows_and_changes_nothing_else():
    hidden = build(known_ratio=0.3, seed=1)
    revealed = hidden.reveal("all")
    np.testing.assert_array_equal(revealed.labeled, build().labeled)
    assert revealed.info == build().info and hidden.info.known_ratio == 0.3
    np.testing.assert_array_equal(revealed.truth, hidden.truth)
    with pytest.raises(ValueError, match="reveals is 'unlabeled'; accepted: 'all'"):
        hidden.reveal("unlabeled")


def test_the_digest_covers_every_example_and_label():
    data = build(known_ratio=0.5, seed=1)
    assert data.digest() == build(known_ratio=0.5, seed=1).digest()
    others = [
        data._replace(truth=1 - data.truth),
        data._replace(test_labels=1 - data.test_labels),
        data._replace(test_inputs=data.test_inputs + 1),
        build(known_ratio=0.5, seed=2),
        data._replace(labeled=-data.labeled),
        data._replace(labeled=data.labeled.T),
        data._replace(inputs=data.inputs + 1),
    ]
    assert len({data.digest(), *(other.digest() for other in others)}) == 1 + len(others)


def test_counts_by_hand():
    # One known positive of class a in row 0, known negatives in (0, 1) and (1, 0); 12 are unknown.
    labeled = np.zeros((5, 3), np.int8)
    labeled[0, 0], labeled[0, 1], labeled[1, 0] = 1, -1, -1
    assert build()._replace(labeled=labeled).counts() == {
        "classes": 3,
        "train": 5,
        "labeled": 1,
        "labeled_negatives": 2,
        "unlabeled": 12,
        "hidden_positives": 4,  # (1, 2), (2, 0), (4, 0), (4, 2)
        "unlabeled_without_truth": 2,
        "classes_without_labeled": 2,
        "test": 2,
        "test_positives": 3,
        "classes_without_test_positives": 1,
    }


@pytest.mark.parametrize("ratio", [0, -0.1, 1.1, float("nan")])
def test_a_ratio_that_cannot_be_is_named(ratio):
    with pytest.raises(ValueError, match=rf"data.known_ratio is {ratio}; accepted: .*\(0, 1\]"):
        build(known_ratio=ratio)


def test_a_choice_without_any_known_positive_is_refused():
    with pytest.raises(ValueError, match=r"known_ratio is 1e-06; accepted: .* none of 5"):
        build(known_ratio=1e-6)


def test_scaling():
    assert (build().info.mean, build().info.std) == ((1.0, 2.0), (3.0, 4.0))
    plain = build(scaling="unit").info
    assert (plain.mean, plain.std) == ((0.0, 0.0), (1.0, 1.0))
    with pytest.raises(ValueError, match="data.scaling is 'max'; accepted: 'standard', 'unit'"):
        build(scaling="max")


def test_training_sees_codes_and_no_truth():
    data = build(known_ratio=0.5, seed=1)
    training = data.training_data()
    np.testing.assert_array_equal(training.inputs, data.inputs)
    np.testing.assert_array_equal(training.labeled, data.labeled)
    assert training.support_inputs.shape == (0, 2) and training.support_labels.shape == (0,)
    hidden = [x for x in jax.tree.leaves(training) if np.array_equal(x, LABELS)]
    assert not hidden


@pytest.fixture
def folder(tmp_path):
    """Three training images and a test image in class folders."""
    write_image(tmp_path / "train" / "cat" / "a.png", seed=0)
    write_image(tmp_path / "train" / "dog" / "a.png", seed=0)
    write_image(tmp_path / "train" / "dog" / "b.png", seed=1)
    write_image(tmp_path / "train" / "_none" / "c.png", seed=2)
    write_image(tmp_path / "test" / "cat" / "d.png", seed=3)
    return tmp_path


def test_of_image_files_training_holds_the_labels_and_a_shape(folder):
    options = {"directory": folder, "image_size": 8, "load_size": 10}
    loaded = sources.load("multilabel", **options)
    data = multilabel_dataset.build(loaded, known_ratio=1.0, seed=0)
    assert data.streamed and isinstance(data.inputs, ImageFiles)
    assert data.info.load_side == 10 and data.info.input_shape == (8, 8, 3) and data.info.n == 3
    training = data.training_data()
    np.testing.assert_array_equal(training.inputs, np.zeros([2, 8, 8, 3], np.uint8))
    np.testing.assert_array_equal(training.labeled, [[1, 1], [-1, 1], [-1, -1]])
    assert training.support_inputs.shape == (0, 8, 8, 3)
    digest = data.digest()
    assert digest == multilabel_dataset.build(loaded, known_ratio=1.0, seed=0).digest()
    reordered = data._replace(inputs=ImageFiles(data.inputs.paths[::-1], 8, 10))
    assert reordered.digest() != digest
