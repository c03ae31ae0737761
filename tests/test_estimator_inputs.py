"""`PUClassifier` with what pandas holds beside plain numbers, and from several threads."""

import threading

import numpy as np
import pandas as pd
import pytest

from pujax import PUClassifier
from pujax import estimator as estimator_lib

SMALL = {"hidden": (4,), "num_epochs": 2, "batch_size": 64, "prior": 0.4}
ACCEPTED = "accepted: numbers; `pujax train --config=own_table` reads words and missing cells"


def table(n=120):
    """Rows of two columns, and labels of which a third is 1."""
    rng = np.random.default_rng(0)
    positive = np.arange(n) % 2 == 0
    rows = pd.DataFrame(rng.normal(size=[n, 2]) + 2 * positive[:, None], columns=["a", "b"])
    return rows, (positive & (np.arange(n) % 3 > 0)).astype(int)


@pytest.fixture(scope="module")
def model():
    return PUClassifier(**SMALL, random_state=0).fit(*table())


@pytest.mark.parametrize(
    "times",
    [
        pd.date_range("2020-01-01", periods=120),
        pd.date_range("2020-01-01", periods=120, tz="Europe/Berlin"),
        pd.to_timedelta(np.arange(120), unit="D"),
        pd.period_range("2020-01", periods=120, freq="M"),
    ],
    ids=["dates", "with a zone", "durations", "periods"],
)
def test_times_are_named_by_their_column_in_fit_and_predict(model, times):
    rows, labels = table()
    message = f"^X has dates or times in column 'b'; {ACCEPTED}, dates too$"
    with pytest.raises(ValueError, match=message):
        PUClassifier(**SMALL).fit(rows.assign(b=times), labels)
    with pytest.raises(ValueError, match=message):
        model.predict(rows.assign(b=times))


@pytest.mark.parametrize("columns", ["b", "ab"])
def test_sparse_columns_are_taken_as_dense_ones(model, columns):
    rows, labels = table()
    sparse = rows.astype({name: pd.SparseDtype("float") for name in columns})
    expected = model.decision_function(rows)
    np.testing.assert_array_equal(model.decision_function(sparse), expected)
    again = PUClassifier(**SMALL, random_state=0).fit(sparse, labels)
    np.testing.assert_array_equal(again.decision_function(rows), expected)


def test_what_lies_below_a_mask_is_not_read(model):
    rows, labels = table()
    masked = np.ma.masked_array(rows.to_numpy(), mask=np.arange(240).reshape(120, 2) == 3)
    said = "is a masked array; accepted: an array without a mask$"
    for call in (lambda: PUClassifier(**SMALL).fit(masked, labels), lambda: model.predict(masked)):
        with pytest.raises(ValueError, match=f"^X {said}"):
            call()
    hidden = np.ma.masked_array(labels, mask=np.arange(120) < 40)
    for call in (PUClassifier(**SMALL).fit, model.score):
        with pytest.raises(ValueError, match=f"^y {said}"):
            call(rows, hidden)


def test_a_gap_in_new_rows_is_named_as_in_fit(model):
    rows, _ = table()
    rows.loc[3, "b"] = np.nan
    with pytest.raises(ValueError, match="^X has NaN, no number, in column 'b', row 3; accepted"):
        model.predict_proba(rows)
    words = rows.assign(b="x")
    with pytest.raises(ValueError, match="^X has 'x' in column 'b'; accepted: numbers"):
        model.predict(words)


@pytest.mark.parametrize(
    ("dtype", "classes"), [("boolean", [False, True]), ("Int64", [0, 1]), ("Float64", [0.0, 1.0])]
)
def test_nullable_labels_keep_their_kind(model, dtype, classes):
    rows, labels = table()
    found = PUClassifier(**SMALL, random_state=0).fit(rows, pd.Series(labels).astype(dtype))
    assert found.classes_.tolist() == classes
    assert (
        found.classes_.dtype.kind
        == np.asarray(classes).dtype.kind
        == found.predict(rows).dtype.kind
    )
    np.testing.assert_array_equal(found.decision_function(rows), model.decision_function(rows))


@pytest.mark.filterwarnings("ignore:predict")  # two epochs rank nothing
def test_several_threads_fit_as_one_does():
    """As a search with joblib's threads does; models of other widths share no program."""
    rows, labels = table()

    def fit(width):
        made = PUClassifier(**(SMALL | {"hidden": (width,)}), random_state=0)
        return made.fit(rows, labels).decision_function(rows)

    found = {}
    # Daemons: fits that waited for one another would hang, and the tests with them.
    threads = [
        threading.Thread(target=lambda width=width: found.update({width: fit(width)}), daemon=True)
        for width in (5, 6, 7)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert sorted(found) == [5, 6, 7]
    for width, scores in found.items():
        np.testing.assert_array_equal(scores, fit(width))


def test_a_fit_trains_with_the_lock_of_all_and_gives_it_back(monkeypatch):
    held = []

    def train(self, *given):
        held.append(estimator_lib._TRAINS.locked())
        raise ValueError("stopped")

    monkeypatch.setattr(PUClassifier, "_train", train)
    with pytest.raises(ValueError, match="stopped"):
        PUClassifier(**SMALL).fit(*table())
    assert held == [True] and not estimator_lib._TRAINS.locked()


def test_probabilities_that_are_all_the_same_are_told_beside_another_doubt(monkeypatch):
    monkeypatch.setattr("pujax.estimator._doubt", lambda *_: "one doubt")
    monkeypatch.setattr("pujax.estimator._flat", lambda *_: "another")
    with pytest.warns(UserWarning) as said:
        PUClassifier(**SMALL, random_state=0).fit(*table())
    texts = [str(one.message) for one in said]
    assert "one doubt" in texts and "another" in texts
