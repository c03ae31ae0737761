"""The file with the scores of every example: what is written is read, and nothing else is."""

import numpy as np
import pytest

from pujax import calibration
from pujax.training import example_scores
from pujax.training.evaluation.summary import Final
from tests import tiny


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    data, random = tiny.problem(), np.random.default_rng(0)
    train, test = (random.normal(size=len(x)) for x in (data.labeled, data.test_labels))
    final = Final({}, test, train, None, {}, {}, None)
    learned = calibration.fit(train[data.labeled], train, prior=0.4, setting="one_sample")
    maps = {"map_rows": np.arange(5), "map_pca": np.ones([5, 2]), "map_remark": "x"}
    example_scores.write(str(folder), data, final, learned=learned, maps=maps)
    return folder, data, final, learned, maps


def test_what_was_written_is_read(written):
    folder, data, final, learned, _ = written
    found = example_scores.read(folder)
    np.testing.assert_array_equal(found.train_scores, final.train_scores.astype(np.float32))
    np.testing.assert_array_equal(found.train_labeled, data.labeled)
    np.testing.assert_array_equal(found.test_labels, data.test_labels)
    assert found.held_scores.shape == found.held_labeled.shape == found.held_ids.shape == (0,)
    assert found.map_tsne.shape == (0, 2) and found.map_remark == "x"
    # Test rows are of the population, where labelled positives were not taken out.
    scores = found.test_scores.astype(float)
    expected = calibration.probabilities(learned, scores, unlabeled_only=False)
    np.testing.assert_allclose(found.test_probabilities, expected, rtol=1e-6)
    lower = calibration.probabilities(learned, scores)
    assert (found.test_probabilities > lower).all()
    assert example_scores.read(folder / "none") is None


def test_the_same_scores_are_the_same_bytes(written, tmp_path):
    folder, data, final, learned, maps = written
    example_scores.write(str(tmp_path), data, final, learned=learned, maps=maps)
    assert [path.name for path in tmp_path.iterdir()] == [example_scores.FILE]
    ours, theirs = (x / example_scores.FILE for x in (tmp_path, folder))
    assert ours.read_bytes() == theirs.read_bytes()


def test_scores_that_are_not_numbers_have_no_probabilities(written, tmp_path):
    _, data, final, learned, _ = written
    scores = final.train_scores.copy()
    scores[3] = np.nan
    example_scores.write(str(tmp_path), data, final._replace(train_scores=scores), learned=learned)
    found = example_scores.read(tmp_path)
    assert len(found.train_probabilities) == 0 and len(found.test_probabilities) > 0


@pytest.mark.parametrize(
    "change",
    [
        {"train_labeled": np.ones(3, bool)},
        {"test_labels": np.ones(3, np.int8)},
        {"map_pca": np.ones([5, 3])},
        {"map_tsne": np.ones([4, 2])},
        {"train_scores": np.array([None, 1])},
    ],
)
def test_other_shapes_are_refused(written, tmp_path, change):
    folder = written[0]
    arrays = dict(np.load(folder / example_scores.FILE)) | change
    np.savez(tmp_path / example_scores.FILE, **arrays)
    with pytest.raises(ValueError, match=r"scores\.npz is damaged \(.*accepted: the file as"):
        example_scores.read(tmp_path)
