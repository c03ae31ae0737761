"""Numbers beside which the rest of a column is nothing: who is named, and who is not."""

import numpy as np
import pandas as pd
import pytest

from pujax import PUClassifier, audit
from pujax.audit import scales
from pujax.data import raw
from pujax.data.sources import own_table


def table(size=2000, columns=3):
    return np.random.default_rng(0).normal(size=[size, columns]).astype(np.float32)


@pytest.mark.parametrize("value", [1e30, -1e30, 1e6])
def test_one_huge_number_is_named_with_its_row(value):
    rows = table()
    rows[17, 1] = value
    (found,) = raw.outliers(rows)
    assert (found.column, found.row) == (1, 17) and found.value == np.float32(value)
    distance = np.abs(np.delete(rows[:, 1], 17) - np.median(rows[:, 1]))
    # The number itself and the farthest one of the others are left out.
    assert found.typical == pytest.approx(np.sort(distance)[-2]) and found.left_out == 2


@pytest.mark.parametrize(("size", "few"), [(30, 3), (90, 9), (500, 10), (1500, 15), (2000, 20)])
def test_a_missing_number_that_is_written_as_another_is_found_in_up_to_a_hundredth(size, few):
    rows = table(size)
    for value in (1e12, -999_999):
        rows[:few, 0] = value
        assert [(one.column, one.left_out) for one in raw.outliers(rows)] == [(0, few)]
    rows[few, 0] = -999_999  # a kind of rows, by then
    assert raw.outliers(rows) == []
    rows[:few, 0] = np.linspace(1e6, 2e6, few)  # no code, as all differ
    rows[few, 0] = 0
    assert raw.outliers(rows) == []


@pytest.mark.parametrize(("size", "present"), [(100, 8), (500, 12), (2000, 30), (5000, 70)])
def test_a_mistyped_number_is_found_in_a_column_of_which_little_is_not_zero(size, present):
    counts = np.zeros([size, 1])
    counts[:present, 0] = np.random.default_rng(0).integers(1, 5, present)
    counts[0, 0] = 1e12
    assert [one.row for one in raw.outliers(counts)] == [0]


def test_heavy_tails_rare_counts_and_constants_are_left_alone():
    rng = np.random.default_rng(1)
    rare = np.zeros(2000)
    rare[:5] = (1, 1, 1, 5000, 9000)
    plain = [
        np.exp(3 * rng.normal(size=2000)),  # the largest income is 20,000 times the median
        np.exp(4 * rng.normal(size=2000)),
        np.repeat(rng.pareto(0.7, size=1000), 2),
        rng.standard_t(2, size=2000),
        rare,
        np.ones(2000),
        np.append(np.zeros(1999), 1e30),
        rng.normal(size=2000) + 1e6,
    ]
    assert raw.outliers(np.column_stack(plain)) == []
    assert raw.outliers(np.array([[1e30]])) == [] and raw.outliers(np.ones([5, 0])) == []


def test_of_several_columns_one_sentence_is_made():
    rows = table()
    said = {"columns": "abc", "row": "id {}".format, "remedy": "leave {} empty"}
    assert raw.describe_outliers(rows, **said) == ()
    rows[4, 0], rows[9, 2] = 1e20, -1e20
    (text,) = raw.describe_outliers(rows, **said)
    assert text.startswith("column 'a' holds 1e+20 in id 4, beside which")
    assert text.endswith("or leave them empty; 1 more column is like this")
    few = table(500)
    few[4, 0] = 1e20
    (text,) = raw.describe_outliers(few, **said)
    assert "all rows but 1 are within" in text and text.endswith(
        "correct that cell, or leave it empty"
    )


@pytest.mark.parametrize(("count", "it"), [(1, "it"), (9, "them")])
def test_a_cell_that_cannot_be_empty_is_to_be_clipped(count, it, tmp_path, monkeypatch):
    rows, labels = table(400).astype(np.float64), np.arange(400) < 100
    rows[:count, 1] = -999_999
    np.savez(tmp_path / "a.npz", x=rows, labels=labels.astype(int))
    pd.DataFrame(rows, columns=["a", "b", "c"]).assign(y=labels).to_csv(
        tmp_path / "a.csv", index=False
    )
    for name, remedy in (("a.npz", f"or clip {it}"), ("a.csv", f"or leave {it} empty")):
        read = own_table.load(tmp_path, path=name, label="" if name == "a.npz" else "y")
        assert read.prepare(np.arange(400)).own.notes[-1].endswith(remedy)
    monkeypatch.setattr(PUClassifier, "_train", lambda *args: None)
    with pytest.warns(UserWarning, match=f"or clip {it}$"):
        PUClassifier().fit(rows, labels)


def test_the_audit_warns_of_them_by_column_and_row():
    rows = table()
    rows[4, 1] = 1e20
    names = np.array([f"customer {i}" for i in range(2000)], object)
    problem = audit.problem(rows, np.arange(2000) < 300, ["a", "income", "b"], ids=names)
    (finding,) = scales.check(problem)
    assert finding.severity == "warning" and finding.title.endswith("'income'")
    assert "column 'income': 1e+20 in customer 4, where all rows but 2" in finding.evidence[0]
    (one,) = finding.numbers["outliers"]
    assert (one["column"], one["row"], one["value"]) == ("income", "customer 4", np.float32(1e20))
    few = problem._replace(labeled=np.arange(2000) < 4)  # which ends the audit early
    found, *_ = audit.check(few)
    assert "scale" in [one.name for one in found]
    assert scales.check(audit.problem(table(), np.arange(2000) < 300)) == []
