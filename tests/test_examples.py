"""A model travels to other processes, and the example with Ray scores as one process does."""

import copy
import pickle
import shutil

import numpy as np
import pandas as pd
import pytest

import pujax
from pujax import training
from pujax.predict import Predictor
from tests import tiny
from tests.training import test_own_table as own_table


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folder of a run on a table with words, dates and missing cells, and the table."""
    folder = tmp_path_factory.mktemp("trained")
    frame, _ = own_table.table()
    frame.to_csv(folder / "customers.csv", index=False)
    config = own_table.configured(folder / "customers.csv")
    config.method.num_epochs = 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pujax.training.sharding.make_mesh", lambda: tiny.mesh(1))
        training.run(config, str(folder / "run"))
    return folder, frame


def assert_same(one, two):
    for field in ("ids", "scores", "probabilities", "ranks", "decisions"):
        np.testing.assert_array_equal(getattr(one, field), getattr(two, field))


@pytest.mark.thorough
def test_a_loaded_model_can_be_pickled_and_predicts_the_same(trained, tmp_path):
    folder, frame = trained
    shutil.copytree(folder / "run/model", tmp_path / "model")
    model = pujax.load(tmp_path)
    expected = model.predict(frame)
    shutil.rmtree(tmp_path / "model")  # the pickle needs no folder
    content = pickle.dumps(model)
    again = pickle.loads(pickle.dumps(pickle.loads(content)))
    assert_same(again.predict(frame), expected)
    assert_same(copy.deepcopy(model).predict(frame), expected)
    assert repr(model) == "Predictor(nnpu)"
    # The size is that of the files: no code and no training state is in it.
    files = sum(path.stat().st_size for path in (folder / "run/model").iterdir())
    assert len(content) < files + 1000


def test_a_model_that_was_not_loaded_is_not_pickled():
    with pytest.raises(ValueError, match="accepted: a predictor of pujax.load, to be pickled"):
        pickle.dumps(Predictor(model=None))


@pytest.mark.thorough
def test_the_example_scores_a_table_as_one_process_does(trained, tmp_path, monkeypatch):
    ray = pytest.importorskip("ray", reason="needs Ray, pip install 'pujax[ray]'")
    pytest.importorskip("ray.data", reason="needs Ray's data, pip install 'pujax[ray]'")
    from examples import score_with_ray

    folder, frame = trained
    parts = tmp_path / "table"
    parts.mkdir()
    for part in range(3):
        frame.iloc[part::3].to_parquet(parts / f"{part}.parquet", index=False)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False)
    try:
        score_with_ray.score(
            str(folder / "run"), str(parts), str(tmp_path / "scores"), workers=1, batch_size=50
        )
    finally:
        ray.shutdown()
    found = pd.read_parquet(tmp_path / "scores").set_index("customer")
    expected = pujax.load(folder / "run").predict(frame)
    assert len(found) == len(frame) and set(expected.ids) == set(found.index)
    found = found.loc[expected.ids]
    np.testing.assert_array_equal(found["score"], expected.scores)
    np.testing.assert_array_equal(found["probability"], expected.probabilities)
    np.testing.assert_array_equal(found["city"], frame["city"])
