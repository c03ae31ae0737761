"""Figures of a run: of which examples they are, and what is written before them."""

import pathlib

import jax.numpy as jnp
import numpy as np
import pytest

import pujax
from pujax import training
from pujax.methods import naive
from pujax.plots import embedding_map, figures
from pujax.training import example_scores, experiment
from pujax.training.evaluation import evaluator
from tests.faults import runs

pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture
def embedded(monkeypatch):
    """What a run embeds: `all` examples by the state that it reports, `count`, how many it embeds
    itself, and `drawn`, those of its maps, which are not projected but cut."""
    found = {}
    original = evaluator.Evaluator

    class Recording(original):
        def final(self, state, inputs, **options):
            whole = self._map(self._embed, self.calibrated(state), self._put(inputs))
            found["all"] = np.asarray(whole)
            return super().final(state, inputs, **options)

        def _map(self, function, state, inputs):
            if function is self._embed:
                found["count"] = len(inputs)
            return super()._map(function, state, inputs)

    def project(points, *, method):
        found["drawn"] = points
        return points[:, :2]

    monkeypatch.setattr("pujax.training.run_state.Evaluator", Recording)
    monkeypatch.setattr(embedding_map, "project", project)
    return found


# 300 examples are fewer than a batch, 700 are more than one.
@pytest.mark.parametrize(
    ("num_points", "count"), [(300, 512), pytest.param(700, 700, marks=pytest.mark.thorough)]
)
def test_maps_are_those_of_all_rows_embedded_and_few_are(
    embedded, tmp_path, monkeypatch, num_points, count
):
    monkeypatch.setattr(experiment, "_MAX_POINTS", num_points)
    training.run(runs.small(figures=True), str(tmp_path))
    found = example_scores.read(tmp_path)
    everything = embedded["all"]
    assert len(everything) == 1382 and embedded["count"] == count
    rows = embedding_map.sample(np.ones(1382, bool), found.train_labeled, 0, num_points)
    np.testing.assert_array_equal(found.map_rows, rows)
    np.testing.assert_array_equal(embedded["drawn"], everything[rows])


def test_examples_whose_representation_is_not_finite_are_in_no_map(embedded, tmp_path, monkeypatch):
    build = naive.build

    def broken(config, info):
        def embed(state, inputs):
            features = inputs.reshape(len(inputs), -1).astype(jnp.float32)
            return jnp.where(features[:, 2:3] > 100, jnp.nan, features)

        return build(config, info)._replace(embed=embed)

    monkeypatch.setattr(naive, "build", broken)
    training.run(runs.small(figures=True), str(tmp_path))
    is_finite = np.isfinite(embedded["all"]).all(axis=1)
    assert 100 < is_finite.sum() < 1300
    np.testing.assert_array_equal(example_scores.read(tmp_path).map_rows, np.flatnonzero(is_finite))
    np.testing.assert_array_equal(embedded["drawn"], embedded["all"][is_finite])


def contents(folder):
    """Every file of a run's folder that has no times in it, as bytes."""
    paths = sorted(path for path in pathlib.Path(folder).rglob("*") if path.is_file())
    timed = ("summary.json", "metrics.jsonl", "metrics.csv", "run.lock")
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if path.name not in timed and "checkpoints" not in path.parts
    }


def test_a_run_that_ends_in_its_figures_has_its_results_and_goes_on_to_the_same(
    tmp_path, monkeypatch
):
    config = runs.own_table(tmp_path / "rows.csv")
    training.run(config, str(tmp_path / "straight"))
    straight, folder = contents(tmp_path / "straight"), tmp_path / "ended"

    def refuse(*args, **options):
        raise OSError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(figures, "map_figure", refuse)
        with pytest.raises(OSError, match="no room"):
            training.run(config, str(folder))
    assert not (folder / "summary.json").exists() and not (folder / "scores.npz").exists()
    ended = contents(folder)
    assert {"predictions.csv", "held_out.json", "model/config.json"} < set(ended)
    assert all(straight[name] == content for name, content in ended.items())
    assert pujax.load(folder).predict(str(tmp_path / "rows.csv")).scores.shape == (120,)
    training.run(config, str(folder))
    assert contents(folder) == straight and "figures/embedding_tsne.png" in straight
