"""A test metric that is added in one place is in every list of test metrics."""

import importlib.util

import numpy as np
import pytest

from pujax import metrics
from pujax.reports import comparison, evidence, run_folder, tables
from pujax.training.evaluation import binary, model_selection

NEW = "balanced"
LABELS = np.arange(40) % 2
SCORES = np.random.default_rng(0).normal(LABELS, 1)


@pytest.fixture
def added(monkeypatch):
    """Adds a metric; gives a function that runs the source of a module anew, as an import does."""
    metric = model_selection.BinaryMetric("balanced", "Balanced", "It.", depends_on_share=False)
    table = model_selection.BINARY | {NEW: metric}
    monkeypatch.setattr(model_selection, "BINARY", table)
    monkeypatch.setattr(model_selection, "BINARY_METRICS", tuple(table))
    monkeypatch.setattr(metrics, NEW, metrics.auc, raising=False)

    def anew(module):
        spec = importlib.util.spec_from_file_location(module.__name__, module.__file__)
        found = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(found)
        return found

    return anew


def test_a_new_test_metric_is_in_the_results_and_in_the_final_table(added):
    module = added(binary)
    tested = module.test_metrics(SCORES, LABELS)
    assert tested[NEW] == metrics.auc(SCORES, LABELS)
    result = {"method": "mine", "oracle": False, "selection": {"is_oracle": False}, "test": tested}
    row = module.table_row(result | {"train": {"recovered_positives": 0, "hidden_positives": None}})
    assert row["Balanced"] == tested[NEW] and list(row) == list(module.COLUMNS)


def test_a_new_test_metric_is_read_shown_and_compared_on_the_page(added):
    assert NEW in added(run_folder)._SHARES
    assert added(tables)._MEANINGS[NEW] == "It."
    compared = added(comparison)
    assert NEW in compared._METRICS[evidence.TEST] and NEW not in compared._OF_ALL
    assert compared._STATISTICS[NEW](SCORES, LABELS) == metrics.auc(SCORES, LABELS)


def test_a_new_test_metric_has_an_interval(added):
    values = {name: getattr(metrics, name)(SCORES, LABELS) for name in model_selection.BINARY}
    found = added(evidence)._from_scores(values, SCORES, LABELS)[NEW]
    assert found.low < found.value < found.high


@pytest.mark.parametrize("name", model_selection.BINARY_METRICS)
def test_every_test_metric_has_a_title_a_meaning_and_a_column(name):
    assert comparison.TITLES[name] == model_selection.BINARY[name].title
    assert tables._MEANINGS[name].endswith(".")
    assert model_selection.BINARY[name].heading in binary.COLUMNS
