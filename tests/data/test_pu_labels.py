"""Labels in any common convention, and ids, are read as their user means them or asked about."""

import re
import unicodedata

import numpy as np
import pandas as pd
import pytest

from pujax.data.readers import frames, pu_labels
from pujax.data.sources import own_table


def table(tmp_path, text):
    (tmp_path / "a.csv").write_text(text)
    return frames.read(tmp_path / "a.csv")


def labels_of(cells, **options):
    """Labels of a column of text, beside one feature."""
    data = pd.DataFrame({"x": range(len(cells)), "s": pd.Series(cells, dtype="str")})
    return pu_labels.read(frames.of(data), "s", **options)


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        # Two values: the other one says that nothing is known.
        (["1", "0", "1", "0"], [1, -1, 1, -1]),
        (["1", "-1", "1", "-1"], [1, -1, 1, -1]),
        (["1.0", "0.0"], [1, -1]),
        (["True", "False"], [1, -1]),
        (["YES", "no"], [1, -1]),
        (["Pos", "NEG"], [1, -1]),
        (["positive", "negative"], [1, -1]),
        (["positive", ""], [1, -1]),
        (["positive", "Unlabeled"], [1, -1]),
        (["1", "NA", ""], [1, -1, -1]),
        # A third value for "unknown": the other one is a known negative.
        (["1", "0", ""], [1, 0, -1]),
        (["1", "0", "-1"], [1, 0, -1]),
        (["1", "0", "-1", ""], [1, 0, -1, -1]),
        (["1", "-1", ""], [1, 0, -1]),
        (["positive", "negative", "unlabeled"], [1, 0, -1]),
        (["yes", "no", "unknown"], [1, 0, -1]),
        (["P", "U"], [1, -1]),
        (["P", "N", "U"], [1, 0, -1]),
    ],
)
def test_conventions(cells, values):
    labels = labels_of(cells)
    np.testing.assert_array_equal(labels.values, values)
    assert labels.values.dtype == np.int8 and labels.column == "s"


@pytest.mark.parametrize(("zero_is", "zero"), [("auto", -1), ("unlabeled", -1), ("negative", 0)])
def test_a_zero_beside_a_word_for_positives_is_what_it_is_said_to_be(zero_is, zero):
    labels = labels_of(["fraud", "0", ""], positive="fraud", zero_is=zero_is)
    np.testing.assert_array_equal(labels.values, [1, zero, -1])


@pytest.mark.parametrize(("largest", "are_ids"), [(38, True), (39, False)])
def test_integers_are_ids_where_chance_would_have_repeated_five(largest, are_ids):
    """190 pairs of 20 integers from 1 to 38: five of them would be equal by chance."""
    codes = [*range(1, 20), largest]
    found = pu_labels.ids(frames.of(pd.DataFrame({"code": codes, "s": [1, 0] * 10})), label="s")
    assert found.column == ("code" if are_ids else None)
    assert ("kept as a feature" in " ".join(found.sentences)) is not are_ids


@pytest.mark.parametrize(("distinct", "is_refused"), [(19, True), (18, False)])
def test_an_id_of_which_a_twentieth_occurs_twice_is_a_mistake(distinct, is_refused):
    names = [f"k{i % distinct}" for i in range(20)]
    frame = frames.of(pd.DataFrame({"customer_id": names, "s": [1, 0] * 10}))
    if is_refused:
        with pytest.raises(ValueError, match="'k0'.*id_column='' keeps it as a feature"):
            pu_labels.ids(frame, label="s")
    else:
        assert pu_labels.ids(frame, label="s").column is None


@pytest.mark.parametrize(
    ("cells", "zero_is", "values"),
    [
        (["1", "0"], "negative", [1, 0]),
        (["1", "-1"], "negative", [1, 0]),
        (["1", "0", "-1"], "unlabeled", [1, -1, -1]),
        (["1", "0", ""], "unlabeled", [1, -1, -1]),
        (["1", "0", ""], "negative", [1, 0, -1]),
    ],
)
def test_what_zero_is_can_be_said(cells, zero_is, values):
    np.testing.assert_array_equal(labels_of(cells, zero_is=zero_is).values, values)


@pytest.mark.parametrize("kind", ["bool", "boolean", "int8", "float64", "category", "object"])
def test_typed_labels_equal_text(kind):
    values = pd.Series([1, 0, 1]).astype("bool" if kind == "boolean" else "int8").astype(kind)
    labels = pu_labels.read(frames.of(pd.DataFrame({"x": [1, 2, 3], "s": values})), "s")
    np.testing.assert_array_equal(labels.values, [1, -1, 1])


def test_another_word_marks_positives_when_it_is_named():
    cells = ["Fraud", "ok", "review", ""]
    labels = labels_of(cells, positive="fraud")
    np.testing.assert_array_equal(labels.values, [1, -1, -1, -1])
    np.testing.assert_array_equal(labels_of(["0", "1"], positive="0").values, [1, -1])
    for cells, positive in [(["1.0", "2.0"], "2.0"), (["01", "02"], "02"), (["1", "2"], "2,0")]:
        np.testing.assert_array_equal(labels_of(cells, positive=positive).values, [-1, 1])


def test_a_mark_of_missing_cells_marks_no_positives():
    np.testing.assert_array_equal(labels_of(["\u22121", "", "1"]).values, [0, -1, 1])
    said = (
        "positive is 'NA', which stands for a missing cell; .* which holds 'b' 2 times, empty once"
    )
    with pytest.raises(ValueError, match=said):
        labels_of(["NA", "b", "b"], positive="NA")


def test_what_is_beside_an_array_is_no_feature_in_doubt(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones([N, 1]), amount=np.arange(N) * 7919)
    assert pu_labels.ids(frames.read(tmp_path / "a.npz")).sentences == ()


def test_the_sentence_counts_what_was_read_as_what():
    sentence = labels_of(["1"] * 160 + ["0"] * 7840).sentence
    assert sentence == (
        "label 's': 160 rows are '1' (labelled positive), 7,840 are '0' (unlabeled); "
        "a '0' that stands for a known negative trains as unlabeled, too"
    )
    sentence = labels_of(["yes", "no", "", ""]).sentence
    assert (
        "1 row is 'yes'" in sentence
        and "1 is 'no' (known negative)" in sentence
        and "2 are empty (unlabeled)" in sentence
    )
    assert sentence.endswith("; known negatives train as unlabeled rows")


def test_words_that_stand_for_a_missing_cell_are_said_as_they_are(tmp_path):
    sentence = labels_of(["1", "?", "?", "NA", "", "0"]).sentence
    for said in ("2 are '?' (unlabeled)", "1 is 'NA' (unl", "1 is empty (unl", "1 is '0' (known"):
        assert said in sentence
    pd.DataFrame({"x": [1, 2, 3], "s": [1.0, None, 0.0]}).to_parquet(tmp_path / "a.parquet")
    sentence = pu_labels.read(frames.read(tmp_path / "a.parquet"), "s").sentence
    assert "1 is empty (unlabeled), 1 is '0' (known negative)" in sentence


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x,s\n1,1\n2,0\n3,maybe\n4,2\n", "line 4, column 's' is 'maybe'; accepted: a label such"),
        ("x,s\n1,0\n2,0\n", "'s' has no positive: it holds '0' 2 times; accepted: one of 1, true"),
        ("x,s\n1,\n2,\n", "'s' has no positive: it holds empty 2 times"),
        ("x,s\n1,1\n2,1\n", "'s' has nothing but positives: '1' 2 times"),
        (
            "x,s\n1,1\n2,yes\n3,0\n",
            "'s' holds '1' once, 'yes' once, '0' once; accepted: one",
        ),
        ("x,s\n1,1\n2,no\n3,0\n", "accepted: one value for negatives"),
    ],
)
def test_what_is_doubtful_is_asked_with_the_values(tmp_path, text, message):
    with pytest.raises(ValueError) as error:
        pu_labels.read(table(tmp_path, text), "s")
    assert message in str(error.value) and "\n" not in str(error.value)
    assert str(tmp_path / "a.csv") in str(error.value)


def test_an_unknown_value_is_shown_with_the_others_and_their_counts():
    with pytest.raises(ValueError, match="'ok' 3 times, 'fraud' once"):
        labels_of(["ok", "fraud", "ok", "ok"])
    with pytest.raises(ValueError, match="and 94 other values"):
        labels_of([f"word{i}" for i in range(100)])
    with pytest.raises(ValueError, match="has no positive: it holds 'ok'.*accepted: bad in at"):
        labels_of(["ok", ""], positive="bad")


def test_an_absent_label_is_suggested(tmp_path):
    frame = table(tmp_path, "x,is_fraud\n1,1\n2,0\n")
    with pytest.raises(ValueError, match=r"label is 'isfraud'; .*did you mean 'is_fraud'\?"):
        pu_labels.read(frame, "isfraud")
    with pytest.raises(ValueError, match="label is None; accepted: .*'x', 'is_fraud'"):
        pu_labels.read(frame)
    with pytest.raises(ValueError, match="zero_is is 'no'; accepted"):
        pu_labels.read(frame, "is_fraud", zero_is="no")


@pytest.mark.parametrize("name", ["labels", "labeled", "y"])
def test_labels_beside_an_array_need_no_name(tmp_path, name):
    np.savez(tmp_path / "a.npz", x=np.ones((3, 2)), **{name: [True, False, True]})
    labels = pu_labels.read(frames.read(tmp_path / "a.npz"))
    np.testing.assert_array_equal(labels.values, [1, -1, 1])
    np.save(tmp_path / "a.npy", np.ones((3, 2)))
    with pytest.raises(ValueError, match=r"none, as it holds features only \(an .npz may hold"):
        pu_labels.read(frames.read(tmp_path / "a.npy"))


def test_a_named_id_keeps_its_text(tmp_path):
    ids = pu_labels.ids(table(tmp_path, "k,x\n007,1\n8,2\n"), "k")
    assert ids.values.tolist() == ["007", "8"] and ids.aside == ("k",)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k,x\na,1\nb,2\n\na,3\n", r"line 2 and line 5: column 'k' is 'a' in both"),
        ("k,x\na,1\n,2\n", r"line 3, column 'k' is empty"),
        ("key,x\na,1\n", r"id_column is 'k'; accepted: a column of"),
    ],
)
def test_ids_are_refused_by_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        pu_labels.ids(table(tmp_path, text), "k")


@pytest.mark.parametrize("form", ["NFC", "NFD"])
def test_a_name_with_spaces_or_in_another_form_is_the_same_column(tmp_path, form):
    """As a feature the label would tell all, and the id would tell the rows apart."""
    (tmp_path / "a.csv").write_text("x,état,Größe\n1,1,a\n2,0,b\n3,0,c\n", encoding="utf-8")
    label, name = (unicodedata.normalize(form, f" {x} ") for x in ("état", "Größe"))
    given = {"path": "a.csv", "label": label, "id_column": name}
    rows = own_table.read(tmp_path, **given)
    assert (rows.labels.column, rows.ids.column) == ("état", "Größe")
    assert rows.prepared().feature_names == ("x",)
    frame = frames.read(tmp_path / "a.csv")
    assert pu_labels.read(frame, label).column == "état"
    assert pu_labels.ids(frame, name, label="état").aside == ("Größe",)
    for field in ("leave_out", "words"):
        with pytest.raises(ValueError, match=f"data.{field} names 'état', which is the label"):
            own_table.read(tmp_path, **given, **{field: "état"})


def test_the_label_is_no_id(tmp_path):
    frame = table(tmp_path, "k,x\na,1\nb,2\n")
    with pytest.raises(ValueError, match="id_column is 'k', which is the label"):
        pu_labels.ids(frame, "k", label="k")
    assert pu_labels.ids(frame, label="k").column is None


N = 40
DAYS = pd.date_range("2024-01-01", periods=N).strftime("%d.%m.%Y")
NOISE = np.random.default_rng(0).normal(size=N)


@pytest.mark.parametrize(
    ("name", "cells", "is_id"),
    [
        ("customer", [f"C{i}" for i in range(N)], True),
        ("mail", [f"p{i}@example.org" for i in range(N)], True),
        ("customer_id", [f"no {i}" for i in range(N)], True),
        ("customerId", np.arange(N) * 10**9 + 17, True),
        ("row", np.arange(100, 100 + N)[::-1], True),
        ("code", np.random.default_rng(0).permutation(100)[:N], True),
        ("income", np.arange(N) * 7919 + 10**6, False),
        ("remark", [f"remark number {i}" for i in range(N)], False),
        ("paid", np.arange(N) / 8, False),
        ("day_id", DAYS, False),
        ("size", NOISE, False),
        ("city", ["Ulm", "Bonn"] * (N // 2), False),
        ("phone", [f"12-34-{i:03}" for i in range(N)], True),
        ("short_day", pd.date_range("2024-01-01", periods=N).strftime("%d.%m.%y"), False),
        ("part_no", [f"12-03-{10 + i}" for i in range(N)], True),
        ("invoice", [f"2024/{i:04}" for i in range(N)], True),
        ("doi", [f"10.1111/{1234 + i}.{i}" for i in range(N)], True),
        ("time", [f"07:15:{i:02}" for i in range(N)], False),
        ("pressure", [f"{120 + i}/80" for i in range(N)], False),
        ("trace", [f"<0.{i:03}" for i in range(N)], False),
        ("change", [f"\u2212{i}.5" for i in range(N)], False),
    ],
)
def test_what_looks_like_an_id_is_set_aside(name, cells, is_id):
    found = pu_labels.ids(frames.of(pd.DataFrame({name: cells, "x": NOISE})))
    assert found.aside == ((name,) if is_id else ())
    if is_id:
        assert found.column == name and re.search(f"set aside.*'{name}'", found.sentences[0])
        assert found.values.tolist() == [str(cell) for cell in cells]
    assert pu_labels.ids(frames.of(pd.DataFrame({name: cells, "x": NOISE})), "").aside == ()


def test_of_several_ids_the_one_that_is_called_so_names_the_rows():
    words = [f"w{i}" for i in range(N)]
    found = pu_labels.ids(frames.of(pd.DataFrame({"hash": words, "user_id": words[::-1]})))
    assert found.column == "user_id" and found.aside == ("hash", "user_id")


def test_a_doubtful_id_stays_a_feature_and_is_spoken_of():
    income = np.arange(N) * 7919
    found = pu_labels.ids(frames.of(pd.DataFrame({"income": income, "x": NOISE})))
    assert found.values is None and "'income' is different in every row" in found.sentences[0]
    few = pu_labels.ids(frames.of(pd.DataFrame({"city": ["Ulm", "Bonn"], "x": [1, 2]})))
    assert few.aside == ()


def test_names_of_genes_are_no_ids_and_an_id_that_is_whole_names_the_rows():
    """ID1 to ID4 are genes, whose counts may differ in nearly every row."""
    counts = np.arange(N) * 7919 % 10**4
    counts[3] = counts[5]
    genes = pd.DataFrame({"ID1": counts, "x": NOISE})
    found = pu_labels.ids(frames.of(genes))
    assert found.aside == () and found.sentences == ()
    visits = genes.assign(visit_id=counts)[["x", "visit_id"]]
    with pytest.raises(ValueError, match="'visit_id' is .* in both"):
        pu_labels.ids(frames.of(visits))
    whole = visits.assign(sample_id=[f"S{i}" for i in range(N)])
    found = pu_labels.ids(frames.of(whole))
    assert found.aside == ("sample_id",)
    assert any("'visit_id' is called like an id and is kept" in x for x in found.sentences)
    # Neither a count of the rows, as pandas writes it, nor a name that is not called so, is enough.
    names = whole["sample_id"].tolist()
    for name, cells in (("Unnamed: 0", range(N)), ("index", range(N)), ("sample", names)):
        counted = visits.assign(**{name: list(cells)})
        with pytest.raises(ValueError, match="'visit_id' is .* in both"):
            pu_labels.ids(frames.of(counted))
    beside = {"ids": counts, "sample_id": np.arange(N)}
    with pytest.raises(ValueError, match="'ids' is .* in both"):
        pu_labels.ids(frames.Frame("a.npz", np.ones([N, 2]), beside=beside))


def test_many_doubtful_ids_are_spoken_of_in_one_sentence():
    def sentences(width):
        # Unique whole numbers whose range is so wide that chance would hardly repeat one.
        counts = {f"gene{i}": (np.arange(N) * 7919 + i) % 10**7 for i in range(width)}
        return pu_labels.ids(frames.of(pd.DataFrame({"x": NOISE, **counts}))).sentences

    assert len(sentences(3)) == 3 and all("id_column='gene" in x for x in sentences(3))
    (said,) = sentences(12)
    assert said.startswith("each of 12 columns is different in every row and kept as a feature")
    assert "'gene7' and 4 more); id_column=NAME" in said


def test_a_message_names_twenty_columns_and_how_many_more(tmp_path):
    wide = frames.of(pd.DataFrame(np.eye(25), columns=[f"gene{i}" for i in range(25)]))
    with pytest.raises(ValueError, match=r"did you mean.*: 'gene0', .*'gene19' and 5 more$"):
        wide.column("gen24", field="data.label")
    with pytest.raises(ValueError, match=r"which has 'gene0', .*'gene19' and 5 more$"):
        pu_labels.read(wide)
    wide.values.to_csv(tmp_path / "wide.csv", index=False)
    with pytest.raises(ValueError, match="'gene19' and 5 more, the last of which is 'gene24'$"):
        own_table.read(tmp_path, path="wide.csv")
    narrow = wide.without([f"gene{i}" for i in range(20, 25)])
    with pytest.raises(ValueError, match="'gene19'$"):
        pu_labels.read(narrow)


@pytest.mark.parametrize(
    ("cell", "accepted"),
    [
        ("1007", "'1007' in both"),
        ("", "line 11, column 'customer_id' is empty"),
        ("NA", "line 11, column 'customer_id' is 'NA', which stands for an empty cell; accepted: "),
    ],
)
def test_an_id_that_is_damaged_in_few_rows_is_no_feature(tmp_path, cell, accepted):
    lines = [f"{1000 + i},{i % 3}" for i in range(60)]
    lines[9] = f"{cell},2"
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["customer_id,x", *lines]) + "\n")
    with pytest.raises(ValueError, match=f"{accepted}.*id_column='' keeps it as a feature"):
        pu_labels.ids(frames.read(path))
    assert pu_labels.ids(frames.read(path), "").aside == ()
    path.write_text(path.read_text().replace("customer_id", "spent"))
    assert pu_labels.ids(frames.read(path)).aside == ()


@pytest.mark.parametrize("odd", ["2024-02-31", "unknown"])
def test_a_column_of_dates_or_numbers_is_no_id_for_one_bad_cell(odd):
    columns = {
        "when": pd.date_range("2024-01-01", periods=N).strftime("%Y-%m-%d"),
        "seen": DAYS,
        "paid": [f"{i}.5" for i in range(N)],
        "income": [str(i * 7919 + 10**6) for i in range(N)],
    }
    for name, cells in columns.items():
        for row in (0, 7):
            cells = [odd if i == row else cell for i, cell in enumerate(cells)]
            frame = frames.of(pd.DataFrame({name: pd.Series(cells, dtype="str"), "x": NOISE}))
            assert pu_labels.ids(frame).aside == (), (name, row)
    several = [odd if i % 5 == 0 else cell for i, cell in enumerate(columns["when"])]
    several = [f"{cell}-{i}" for i, cell in enumerate(several)]
    found = pu_labels.ids(frames.of(pd.DataFrame({"when": several, "x": NOISE})))
    assert found.aside == ("when",)


def test_codes_most_of_which_are_digits_are_ids():
    for first in "03":
        codes = [f"{first}{i * 7919 + 10**8}{'X' if i % 11 == 5 else i % 10}" for i in range(N)]
        frame = frames.of(pd.DataFrame({"isbn": codes, "x": NOISE}))
        assert pu_labels.ids(frame).aside == ("isbn",)


@pytest.mark.parametrize(
    ("name", "cells", "why"),
    [
        ("patient_id", [10**4 + i % 25 for i in range(N)], ", as it holds some values more than"),
        ("patient_id", [f"P{i % 25}" for i in range(N)], ", as it holds some values more than"),
        ("patient_id", [f"P{i}" if i % 2 else None for i in range(N)], ", as some of its cells"),
        ("heat_index", [60 + i % 30 for i in range(N)], None),  # a number that is measured
        ("order_no", [10**6 + 7 * (i // 2) for i in range(N)], None),
        ("branch_no", [i % 19 for i in range(N)], None),  # of so few kinds
        ("branch_id", [f"B{i % 19}" for i in range(N)], None),
        ("mass_index", NOISE.round(1), None),  # fractions
        ("day_id", [*DAYS[:25], *DAYS[:15]], None),
        ("amount", [10**4 + i % 25 for i in range(N)], None),  # is not called so
    ],
)
def test_a_repeated_id_that_stays_a_feature_is_spoken_of(name, cells, why):
    frame = frames.of(pd.DataFrame({name: cells, "x": NOISE, "row": [f"R{i}" for i in range(N)]}))
    for given, column in ((None, "row"), ("row", "row")):
        found = pu_labels.ids(frame, given)
        said = [text for text in found.sentences if "is called like an id" in text]
        assert found.column == column and name not in found.aside
        assert len(said) == (why is not None)
        if why:
            start = f"column {name!r} is called like an id and is kept as a feature{why}"
            assert said[0].startswith(start) and "leave it out if" in said[0]
    assert pu_labels.ids(frame, "").sentences == ()  # all columns are wanted
    assert pu_labels.ids(frame, "row", label=name).sentences == ()


def test_a_second_id_beside_a_named_one_is_spoken_of():
    frame = frames.of(pd.DataFrame({"row": range(N), "user_id": [f"u{i}" for i in range(N)]}))
    (said,) = pu_labels.ids(frame, "row").sentences
    assert said.startswith("column 'user_id' is called like an id and is kept as a feature; leave")
    assert pu_labels.ids(frame).sentences[1:] == ()  # where both are found, both are set aside
