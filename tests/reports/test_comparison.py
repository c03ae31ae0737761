"""Several runs: who is paired with whom, and differences worked out by hand."""

import dataclasses
import statistics
from types import SimpleNamespace

import numpy as np
import pytest

from pujax import metrics, reports
from pujax.reports import comparison, evidence, page, verdict
from tests.reports import folders
from tests.reports.pages import Page


@pytest.fixture(autouse=True)
def few_resamples(monkeypatch):
    monkeypatch.setattr(evidence, "_RESAMPLES", 20)
    monkeypatch.setattr(page, "_MOST_IN_FULL", 0)


METHODS = ("nnpu", "vpu")


def set_accuracy(value):
    def change(summary):
        summary["test"]["accuracy"] = value

    return change


def seeds(place, method, accuracies, digests=None, **kept):
    digests = digests or [f"split{i}" for i in range(len(accuracies))]
    found = []
    for i, (value, digest) in enumerate(zip(accuracies, digests, strict=True)):
        folder = place / f"{method}_{i}"
        folders.tested(
            folder, method=method, seed=i, digest=digest, change=set_accuracy(value), **kept
        )
        found.append(folders.read(folder, folder.name))
    return found


def again(folder, *, seed, **fields):
    """A run as another seed, with scores as they are."""
    run = folders.read(folder, folder.name)
    place, config = f"{run.folder}_{seed}", {**run.config, "seed": seed}
    return dataclasses.replace(run, folder=place, config=config, **fields)


def test_paired_differences_have_students_interval_over_the_pairs(tmp_path):
    first = seeds(tmp_path, "nnpu", [0.80, 0.70, 0.90])
    second = seeds(tmp_path, "vpu", [0.82, 0.75, 0.91])
    (found,) = comparison.paired([*first, *second])
    differences = [0.02, 0.05, 0.01]
    mean, error = statistics.fmean(differences), statistics.stdev(differences) / 3**0.5
    t = 2.919986  # of 2 degrees of freedom, at 95 %
    assert found.pairs == 3 and found.group.name == "vpu" and found.reason == ""
    accuracy = found.differences["accuracy"]
    assert accuracy.value == pytest.approx(mean)
    assert accuracy.low == pytest.approx(mean - t * error, rel=1e-5)
    assert accuracy.high == pytest.approx(mean + t * error, rel=1e-5)
    # Its order does not matter, and what has no partner is left out.
    (again,) = comparison.paired([*first[::-1], second[2], second[0]])
    assert again.pairs == 2
    assert again.differences["accuracy"].value == pytest.approx((0.02 + 0.01) / 2)


def test_runs_on_other_data_are_not_paired_and_say_so(tmp_path):
    first = seeds(tmp_path, "nnpu", [0.8])
    other = seeds(tmp_path, "vpu", [0.9], digests=["another"])
    older = seeds(tmp_path, "gradpu", [0.9], digests=[""])
    unfinished = folders.write(tmp_path / "u", folders.config("dist_pu"), digest="split0")
    runs = [*first, *other, *older, folders.read(unfinished, "u")]
    reasons = [pairing.reason for pairing in comparison.paired(runs)]
    assert reasons == [
        "not paired: other data, split or labels",
        "not paired: a run did not write data.json",
        "not paired: a run is not finished",
    ]
    section, _ = comparison.section(runs)
    lines = section.tables[0].rows
    assert [line[1:3] for line in lines] == [("0", reason) for reason in reasons]


def test_images_in_files_and_in_memory_are_not_said_to_be_other_ones(tmp_path):
    for name, streaming in (("a", "on"), ("b", "off")):
        folders.tested(tmp_path / name, digest=name, streaming=streaming, path="photos")
    built = reports.build([str(tmp_path / name) for name in "ab"])
    assert built.verdict.sentences[1] == (
        "None can be paired: data.streaming differs, so that equal images are not known to be "
        "equal."
    )


def from_encoder(run, *, examples):
    config = {**run.config, "init_from": "pretrained"}
    return folders.changed(
        run, digest=f"{run.digest} and encoder", config=config, examples=examples
    )


def test_runs_from_other_encoders_are_paired_on_the_same_examples(tmp_path):
    first = seeds(tmp_path, "nnpu", [0.8, 0.7])
    second = [from_encoder(x, examples=x.digest) for x in seeds(tmp_path, "vpu", [0.9, 0.8])]
    older = [*first, *second]
    newer = [*(folders.changed(x, examples=x.digest) for x in first), *second]
    for runs in (older, newer, [*second, *first]):
        (found,) = comparison.paired(runs)
        assert (found.pairs, found.splits, found.reason) == (2, 2, "")


def test_seeds_from_encoders_of_their_own_are_on_the_one_split_of_their_examples(tmp_path):
    digests, runs = ["encoder0", "encoder1"], []
    for method in ("nnpu", "vpu"):
        members = seeds(tmp_path, method, [0.8, 0.7], digests=digests)
        runs += [folders.changed(run, examples="split") for run in members]
    (found,) = comparison.paired(runs)
    assert (found.pairs, found.splits) == (2, 1)


def test_encoders_of_one_seed_and_split_are_told_apart_as_encoders(tmp_path):
    runs = seeds(tmp_path, "nnpu", [0.8, 0.7], digests=["encoder0", "encoder1"])
    runs = [folders.changed(run, examples="split") for run in runs]
    runs[1].config["seed"] = runs[0].config["seed"]
    names = [x.name for x in comparison.groups(runs)]
    assert names == ["nnpu", "nnpu (encoder of digest encoder1)"]


def test_an_encoder_that_keeps_examples_from_being_compared_is_the_reason(tmp_path):
    (first,), (second,) = seeds(tmp_path, "nnpu", [0.8]), seeds(tmp_path, "vpu", [0.9])
    (found,) = comparison.paired([first, from_encoder(second, examples="")])
    assert found.reason == (
        "not paired: init_from or model.init differs, so that equal data are not known to be equal"
    )
    (found,) = comparison.paired([first, from_encoder(second, examples="another")])
    assert found.reason == "not paired: other data, split or labels"


def test_a_difference_that_rounds_to_nothing_has_no_minus(tmp_path):
    runs = [*seeds(tmp_path, "nnpu", [0.8, 0.7]), *seeds(tmp_path, "vpu", [0.8 - 3e-9, 0.7 + 1e-9])]
    table = comparison.section(runs)[0].tables[0]
    shown = table.rows[0][table.columns.index("accuracy")]
    assert shown == "+0.0000 [+0.0000, +0.0000]"


def test_one_pair_has_the_interval_of_its_examples(tmp_path):
    folders.tested(tmp_path / "a", gap=1.0, positives=200, negatives=200)
    folders.tested(tmp_path / "b", gap=4.0, positives=200, negatives=200, method="vpu")
    folders.tested(tmp_path / "c", gap=4.0, method="vpu", with_scores=False)
    a, b, c = (folders.read(tmp_path / name, name) for name in "abc")
    (found,) = comparison.paired([a, b])
    difference = found.differences["auc"]
    assert difference.value == pytest.approx(b.summary["test"]["auc"] - a.summary["test"]["auc"])
    assert 0 < difference.low < difference.value < difference.high < 0.5
    (unknown,) = comparison.paired([a, c])
    assert not unknown.differences["auc"].has_interval
    table = comparison.section([a, c])[0].tables[0]
    assert all("[interval unknown]" in cell for cell in table.rows[0][2:])
    built = reports.build([str(tmp_path / "a"), str(tmp_path / "c")])
    assert "have no interval" in built.verdict.sentences[1]
    assert built.verdict.sentences[2] == "Next: train each with several seeds, and compare."


def test_groups_are_told_apart_by_the_fields_in_which_they_differ(tmp_path):
    for i, rate in enumerate([0.1, 0.1, 0.2]):
        tree = folders.config()
        tree["method"]["learning_rate"] = rate
        tree["seed"] = i
        tree["data"]["path"] = f"elsewhere{i}/x.csv"  # a place, and not what was trained
        tree["run"]["figures"] = bool(i)
        folders.write(tmp_path / str(i), tree, summary=folders.base_summary(seed=i))
    groups = comparison.groups([folders.read(tmp_path / str(i), str(i)) for i in range(3)])
    assert [group.name for group in groups] == [
        "nnpu (method.learning_rate=0.1)",
        "nnpu (method.learning_rate=0.2)",
    ]
    assert [len(group.runs) for group in groups] == [2, 1]


def of_two_months(place, path):
    """A run on each of two tables, named by the month."""
    for name in ("january", "february"):
        folders.tested(place / name, path=path.format(name), digest=name)
    return [folders.read(place / name, name) for name in ("january", "february")]


def test_runs_on_other_files_are_no_seeds_of_one_configuration(tmp_path):
    runs = of_two_months(tmp_path, "data/{}.csv")
    assert [x.name for x in comparison.groups(runs)] == [
        "nnpu (data.path=data/january.csv)",
        "nnpu (data.path=data/february.csv)",
    ]
    assert comparison.paired(runs)[0].reason == "not paired: other data, split or labels"
    # One run that is not finished does not hide why the others are not paired.
    tree = folders.config(path="data/february.csv") | {"seed": 1}
    folders.write(tmp_path / "u", tree, digest="february")
    runs.append(folders.read(tmp_path / "u", "u"))
    assert comparison.paired(runs)[0].reason == "not paired: other data, split or labels"


def test_a_seed_that_ran_twice_counts_once(tmp_path):
    first = seeds(tmp_path, "nnpu", [0.80])
    second = seeds(tmp_path, "vpu", [0.82])
    folders.tested(tmp_path / "again", method="vpu", digest="split0", change=set_accuracy(0.82))
    again = folders.read(tmp_path / "again", "again")
    (found,) = comparison.paired([*first, *second, again])
    assert found.pairs == 1 and found.differences["accuracy"].value == pytest.approx(0.02)
    assert found.differences["accuracy"].has_interval  # which two equal differences have not
    folders.tested(tmp_path / "copy", digest="split0", change=set_accuracy(0.80))
    copy = folders.read(tmp_path / "copy", "copy")
    assert comparison.paired([*first, copy, *second, again])[0].pairs == 1
    table = comparison.section([*second, again])[0].tables[0]
    assert "of 1 seed" in table.caption and table.rows[0][1] == "0.8200"
    sentences = reports.build([str(tmp_path / "vpu_0"), str(tmp_path / "again")]).verdict.sentences
    assert sentences[1].startswith("They are one seed of one configuration")


def test_where_the_split_does_not_depend_on_the_seed_equal_seeds_are_pairs(tmp_path):
    first = seeds(tmp_path, "nnpu", [0.80, 0.70, 0.90], digests=["same"] * 3)
    second = seeds(tmp_path, "vpu", [0.82, 0.75, 0.91], digests=["same"] * 3)
    (found,) = comparison.paired([*first, *second[::-1]])
    assert found.pairs == 3 and found.splits == 1
    assert found.differences["accuracy"].value == pytest.approx((0.02 + 0.05 + 0.01) / 3)
    (other,) = comparison.paired([first[0], second[1]])
    assert other.pairs == 1


def test_pairs_on_one_split_are_one_draw_of_its_examples(tmp_path):
    """The same scores with every seed say nothing more than once."""
    for method, gap in (("nnpu", 1.0), ("vpu", 1.3)):
        folders.tested(tmp_path / method, gap=gap, method=method, positives=200, negatives=200)
    first, second = ([again(tmp_path / x, seed=i) for i in range(3)] for x in METHODS)
    (found,) = comparison.paired([*first, *second])
    (alone,) = comparison.paired([first[0], second[0]])
    assert (found.pairs, alone.pairs) == (3, 1)
    assert found.differences["auc"] == pytest.approx(alone.differences["auc"])
    note = comparison.section([*first, *second])[0].tables[0].note
    assert "on a single split it is that of a bootstrap" in note and "overlap" not in note


def test_the_mean_over_pairs_on_one_split_has_the_width_of_one_pair(tmp_path):
    how = {"positives": 200, "negatives": 200, "digest": "same"}
    for i, gap in enumerate((1.3, 2.5)):
        folders.tested(tmp_path / f"nnpu_{i}", gap=1.0, seed=i, **how)
        folders.tested(tmp_path / f"vpu_{i}", gap=gap, seed=i, method="vpu", **how)
    a, b, c, d = (
        folders.read(tmp_path / f"{x}_{i}", f"{x}_{i}") for x in METHODS for i in range(2)
    )
    (both,), (one,) = comparison.paired([a, b, c, d]), comparison.paired([a, c])
    mean, alone = both.differences["auc"], one.differences["auc"]
    gaps = [y.summary["test"]["auc"] - x.summary["test"]["auc"] for x, y in ((a, c), (b, d))]
    assert mean.value == pytest.approx(statistics.fmean(gaps)) and mean.value > alone.high
    assert mean.low < mean.value < mean.high
    assert mean.high - mean.low == pytest.approx(alone.high - alone.low)


def test_pairs_on_one_of_several_splits_are_averaged(tmp_path):
    digests = ["a", "a", "b"]
    first = seeds(tmp_path, "nnpu", [0.80, 0.70, 0.90], digests=digests)
    second = seeds(tmp_path, "vpu", [0.82, 0.76, 0.91], digests=digests)
    (found,) = comparison.paired([*first, *second])
    assert (found.pairs, found.splits) == (3, 2)
    expected = comparison.mean_difference([0.04, 0.01])
    assert found.differences["accuracy"] == pytest.approx(expected)


def test_rows_held_out_in_several_splits_are_said_to_overlap(tmp_path):
    for method in METHODS:
        folders.held(tmp_path / method, method=method)
    runs = [
        again(tmp_path / x, seed=i, digest=digest) for x in METHODS for i, digest in enumerate("ab")
    ]
    assert "two splits hold out overlap" in comparison.section(runs)[0].tables[0].note
    assert "overlap" not in comparison.section([runs[0], runs[2]])[0].tables[0].note
    tested = on_test_sets(tmp_path)
    note = comparison.section(tested)[0].tables[0].note
    assert "overlap" not in note and "judged on the same test rows" in note
    for run in tested:
        run.config["data"]["class_prior"] = 0.4  # by which each seed draws test rows of its own
    note = comparison.section(tested)[0].tables[0].note
    assert "test rows of two splits overlap" in note and "same test rows" not in note


def on_test_sets(place):
    runs = [seeds(place / "tested", method, [0.8, 0.7]) for method in METHODS]
    return [run for one in runs for run in one]


def test_one_seed_on_two_tables_of_one_name_is_no_pair_of_seeds(tmp_path):
    runs = of_two_months(tmp_path, "{}/rows.csv")
    assert [x.name for x in comparison.groups(runs)] == [
        "nnpu (data.path=january/rows.csv)",
        "nnpu (data.path=february/rows.csv)",
    ]
    # The same name and folder, and other rows by now.
    for digest in "ab":
        folders.tested(tmp_path / digest, path="rows.csv", digest=digest * 10)
    runs = [folders.read(tmp_path / name, name) for name in "ab"]
    assert [x.name for x in comparison.groups(runs)] == ["nnpu", "nnpu (data of digest bbbbbbbb)"]


@pytest.mark.parametrize("field", ["label", "test_path", "dir", "path"])
def test_seeds_on_other_data_stay_together(tmp_path, field):
    """Three seeds of two methods on the data of two months: no group is a single run."""
    runs = []
    for method in METHODS:
        for month in ("jan", "feb"):
            for i in range(3):
                name = f"{method}_{month}_{i}"
                data = {"path": "x.npy", field: f"{month}/y.npy"}
                digest = f"{month}{i}"
                folders.tested(tmp_path / name, method=method, seed=i, digest=digest, **data)
                runs.append(folders.read(tmp_path / name, name))
    found = comparison.groups(runs)
    assert [len(group.runs) for group in found] == [3] * 4
    assert found[1].name == f"nnpu (data.{field}=feb/y.npy)"
    assert [x.pairs for x in comparison.paired(runs)] == [0, 3, 0]


def test_a_seed_trained_again_on_a_changed_table_stands_alone(tmp_path):
    runs = [*seeds(tmp_path, "nnpu", [0.8, 0.7, 0.9]), *seeds(tmp_path, "vpu", [0.8, 0.8, 0.8])]
    folders.tested(tmp_path / "changed", digest="another0")
    runs.append(folders.read(tmp_path / "changed", "changed"))
    found = comparison.groups(runs)
    assert [len(group.runs) for group in found] == [3, 1, 3]
    assert found[1].name == "nnpu (data of digest another0)"
    assert [x.pairs for x in comparison.paired(runs)] == [0, 3]


def test_data_that_were_moved_are_the_same(tmp_path):
    for i, place in enumerate(("here", "there")):
        tree = folders.config(path=f"{place}/x.csv")
        tree["data"] |= {"test_path": f"{place}/t.csv", "label": f"{place}/y.npy"}
        tree["seed"] = i
        folders.write(tmp_path / place, tree, summary=folders.base_summary(seed=i), digest=place)
    runs = [folders.read(tmp_path / place, place) for place in ("here", "there")]
    assert len(comparison.groups(runs)) == 1


def test_a_number_that_one_pair_lacks_comes_from_the_other(tmp_path):
    first = seeds(tmp_path, "nnpu", [0.80, 0.70])
    second = seeds(tmp_path, "vpu", [None, 0.75], gap=3.0)
    (found,) = comparison.paired([*first, *second])
    (alone,) = comparison.paired([first[1], second[1]])
    assert found.pairs == 2
    assert found.differences["accuracy"] == alone.differences["accuracy"]


def test_a_number_that_a_pair_lacks_is_said_and_recommends_nothing(tmp_path):
    runs = seeds(tmp_path, "nnpu", [0.80, 0.70, 0.75])
    runs += seeds(tmp_path, "vpu", [0.90, None, 0.86])
    (found,) = comparison.paired(runs)
    assert found.differences["accuracy"].low > 0 and found.known["accuracy"] == 2
    assert comparison.better([found], evidence.of(runs[0])) is None
    assert comparison.better([found._replace(known={})], evidence.of(runs[0])) is not None
    tables = comparison.section(runs)[0].tables
    (table,) = [x for x in tables if x.caption.startswith("Difference from")]
    assert table.rows[0][table.columns.index("accuracy")].endswith("] (2 of 3)")
    assert table.rows[0][table.columns.index("AUC")].endswith("]")


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_worse_in_the_other_metric_is_not_recommended(tmp_path, order):
    """vpu decides better at its threshold, and ranks worse; the page does not contradict itself."""
    numbers = {"nnpu": ((0.80, 0.81, 0.79), (0.970, 0.965, 0.975))}
    numbers |= {"vpu": ((0.90, 0.915, 0.885), (0.900, 0.893, 0.908))}
    folder = tmp_path / "sweep"
    for place, (method, (accuracies, areas)) in zip("ab"[::order], numbers.items(), strict=True):
        for seed, (accuracy, auc) in enumerate(zip(accuracies, areas, strict=True)):
            folders.tested(
                folder / f"{place}_{seed}",
                method=method,
                seed=seed,
                digest=f"split{seed}",
                change=lambda s, x=accuracy, y=auc: s["test"].update(accuracy=x, auc=y),
            )
    built = reports.build([str(folder)])
    first, other = list(numbers)[::order]
    assert (
        f"{other} is {'worse' if order > 0 else 'better'} than {first}"
        in (built.verdict.sentences[1])
    )
    assert built.verdict.sentences[2].startswith(f"Next: take {first}, or the simplest")
    assert "instead" not in built.html and f"take {other}" not in built.html


def test_a_page_of_several_runs_recommends_what_is_better(tmp_path):
    folders.tested(tmp_path / "sweep" / "cell" / "seed_0", gap=1.5)
    folders.tested(tmp_path / "sweep" / "other" / "seed_0", gap=5.0, method="vpu")
    built = reports.build([str(tmp_path / "sweep")])
    assert "vpu is better than nnpu by" in built.verdict.sentences[1]
    assert built.verdict.sentences[2] == "Next: take vpu."
    assert built.verdict.level == "good"
    page = Page(built.html)
    row = page.row("Difference from nnpu", "vpu")
    assert row["pairs"] == "1" and row["AUC"].startswith("+0.")
    assert [row[0] for row in page.table("Every run")] == ["run", "cell/seed_0", "other/seed_0"]


def test_what_cannot_be_used_is_not_recommended(tmp_path):
    """The best of three is no advice where its verdict is not to use it; the next one is."""
    how = {"positives": 200, "negatives": 200}
    folders.tested(tmp_path / "a", gap=1.0, **how)
    folders.tested(tmp_path / "b", gap=6.0, shift=90.0, method="vpu", **how)
    folders.tested(tmp_path / "c", gap=3.0, method="upu", **how)
    built = reports.build([str(tmp_path / name) for name in "abc"])
    assert "vpu is better than nnpu" in built.verdict.sentences[1]
    assert built.verdict.sentences[2] == "Next: take upu."
    assert built.verdict.level == "good"
    built = reports.build([str(tmp_path / name) for name in "ab"])
    assert built.verdict.sentences[2].startswith("Next: take nnpu, or the simplest")
    built = reports.build([str(tmp_path / name) for name in "ba"])
    assert built.verdict.level == "bad"
    assert built.verdict.sentences[2] == (
        "Next: do not take vpu; the verdict on each run is on the page."
    )
    # Beside one run, too.
    runs = [folders.read(tmp_path / name, name) for name in "abc"]
    pairings = comparison.paired(runs)
    assert [x.group.name for x in verdict.to_take(pairings)] == ["upu"]


def test_of_what_no_rule_judges_the_better_one_is_taken(tmp_path):
    """Runs of several labels are not judged by themselves, and may be ahead all the same."""
    first = seeds(tmp_path, "nnpu", [0.80, 0.70])
    second = seeds(tmp_path, "vpu", [0.82, 0.75])
    runs = [*first, *second]
    verdicts = [verdict.Verdict(verdict.UNJUDGED, ("", "", "")) for _ in runs]
    ahead = comparison.Pairing(
        comparison.groups(runs)[1], {"auc": comparison.Number(0.1, 0.05, 0.2)}, 2, "", 2
    )
    found = verdict.of_several(runs, verdicts, [ahead])
    assert found.level == verdict.UNJUDGED and found.sentences[2] == "Next: take vpu."


def test_seeds_of_one_configuration_have_mean_and_deviation(tmp_path):
    runs = seeds(tmp_path, "nnpu", [0.80, 0.70, 0.90])
    section, pairings = comparison.section(runs)
    assert pairings == [] and section.tables[0].rows[0][1] == "0.8000 ± 0.1000"


def test_a_mean_says_of_how_many_seeds_it_is(tmp_path):
    runs = seeds(tmp_path, "nnpu", [0.80, None, 0.90])
    tree = folders.config("nnpu") | {"seed": 3}
    folders.write(tmp_path / "unfinished", tree, digest="split3")
    runs.append(folders.read(tmp_path / "unfinished", "unfinished"))
    table = comparison.section(runs)[0].tables[0]
    assert table.caption.endswith("of 3 seeds")
    assert table.rows[0][1] == "0.8500 ± 0.0707 (2 of 3)"


def test_seeds_that_differ_by_the_same_prove_nothing(tmp_path):
    runs = seeds(tmp_path, "nnpu", [0.80, 0.70]) + seeds(tmp_path, "upu", [0.81, 0.71])
    ((_, differences, *_),) = comparison.paired(runs)
    assert differences["accuracy"].value == pytest.approx(0.01)
    assert not differences["accuracy"].has_interval


def test_of_several_methods_the_intervals_hold_together(tmp_path):
    runs = seeds(tmp_path, "nnpu", [0.80, 0.70, 0.90])
    for name in ("vpu", "upu"):
        runs += seeds(tmp_path, name, [0.82, 0.75, 0.91])
    found = [x.differences["accuracy"] for x in comparison.paired(runs)]
    mean, error = statistics.fmean([0.02, 0.05, 0.01]), statistics.stdev([0.02, 0.05, 0.01])
    t = 4.302653  # of 2 degrees of freedom, at 97.5 %: two intervals of 95 % for one of 90 %
    for one in found:
        assert one.low == pytest.approx(mean - t * error / 3**0.5, rel=1e-5)
    # What cannot be paired has no interval and widens none.
    runs += seeds(tmp_path, "gradpu", [0.9], digests=["another"])
    more = [x.differences.get("accuracy") for x in comparison.paired(runs)]
    assert more == [*found, None]


@pytest.mark.parametrize(
    ("field", "mark"), [("oracle", "oracle: true labels"), ("selection", "oracle epoch")]
)
def test_oracles_are_marked_and_not_recommended(tmp_path, field, mark):
    def oracle(summary):
        if field == "oracle":
            summary["oracle"] = True
        else:
            summary["selection"]["is_oracle"] = True

    folders.tested(tmp_path / "a", gap=1.5)
    folders.tested(tmp_path / "b", gap=5.0, method="supervised", change=oracle)
    built = reports.build([str(tmp_path / "a"), str(tmp_path / "b")])
    assert f"supervised ({mark}) is better" in built.verdict.sentences[1]
    assert built.verdict.sentences[2].startswith("Next: take nnpu")


def test_an_oracle_that_is_the_reference_is_not_recommended_either(tmp_path):
    def oracle(summary):
        summary["oracle"] = True

    folders.tested(tmp_path / "b", gap=5.0, method="supervised", change=oracle)
    folders.tested(tmp_path / "a", gap=1.5)
    found = reports.build([str(tmp_path / "b"), str(tmp_path / "a")]).verdict
    assert "nnpu is worse than supervised (oracle: true labels)" in found.sentences[1]
    assert found.sentences[2].startswith("Next: name a run that sees no true labels first")
    assert found.level == "unjudged"


def test_the_command_for_a_run_of_many_can_be_copied(tmp_path):
    for name in ("a b", "c"):
        folders.tested(tmp_path / name)
    page = reports.build([str(tmp_path / name) for name in ("a b", "c")]).html
    assert f"pujax report &#39;{tmp_path / 'a b'}&#39;</code>" in page


def test_runs_that_decide_or_choose_otherwise_are_no_copies(tmp_path):
    places = []
    for i, (rule, change) in enumerate(
        [
            ("last", {}),
            ("last", {"threshold": 0.3}),
            ("last", {"eval_every": 5}),
            ("vpu_risk", {"eval_every": 1}),
            ("vpu_risk", {"eval_every": 5}),
            ("vpu_risk", {"eval_every": 0}),  # every epoch, where a rule chooses
        ]
    ):
        tree = folders.config(num_validation=50)
        tree["run"] = {"selection": rule, "threshold": 0.5, "eval_every": 1} | change
        places.append(tmp_path / str(i))
        folders.write(places[-1], tree, summary=folders.base_summary())
    runs = [folders.read(place, place.name) for place in places]
    found = [[run.name for run in group.runs] for group in comparison.groups(runs)]
    assert sorted(found) == [["0", "2"], ["1"], ["3", "5"], ["4"]]
    names = [group.name for group in comparison.groups(runs)]
    assert all("run.selection" in name for name in names)
    assert [name for name in names if "run.threshold=0.3" in name]


def test_runs_with_several_labels_are_compared_in_their_own_metrics(tmp_path):
    tree = folders.config()
    for method, values in {"pu_mlc": [0.5, 0.6], "multilabel_supervised": [0.52, 0.63]}.items():
        for seed, value in enumerate(values):
            summary = folders.base_summary(method, seed) | {"setting": "multilabel"}
            summary["test"] = {"mean_average_precision": value, "overall_f1": None}
            own = tree | {"method": {"name": method}, "seed": seed}
            place = tmp_path / f"{method}_{seed}"
            folders.write(place, own, summary=summary, digest=f"split{seed}")
    names = [
        f"{method}_{seed}" for method in ("pu_mlc", "multilabel_supervised") for seed in (0, 1)
    ]
    built = reports.build([str(tmp_path / name) for name in names])
    page = Page(built.html)
    row = page.row("Difference from pu_mlc", "multilabel_supervised")
    assert row["pairs"] == "2" and row["mean average precision"].startswith("+0.0250 [")
    assert "overall F1" not in row and "In mean average precision" in built.verdict.sentences[1]


@pytest.mark.parametrize("metric, n", [("accuracy", 100), ("f1", 200)])
def test_intervals_of_what_depends_on_the_share_of_positives_hold_the_truth(monkeypatch, metric, n):
    monkeypatch.setattr(evidence, "_RESAMPLES", 200)
    rng, held = np.random.default_rng(0), 0
    # Called positive: a twentieth of all rows by one run, 19 of 20 by the other, whatever their
    # class. With half of the rows positive both are right for half; how many of a sample are
    # positive decides which is ahead there.
    rates = np.array([0.05, 0.95])
    accuracy, f1 = 0.0, 0.95 * 2 / 2.9 - 0.05 * 2 / 1.1
    truth = {"accuracy": accuracy, "f1": f1}[metric]
    for _ in range(100):
        labels = (rng.random(n) < 0.5).astype(int)
        scores = np.where(rng.random([n, 2]) < rates, 1.0, -1.0)
        runs = [
            SimpleNamespace(scores=SimpleNamespace(test_scores=x, test_labels=labels))
            for x in scores.T
        ]
        statistic = {"accuracy": metrics.accuracy, "f1": metrics.f1}[metric]
        value = float(statistic(scores[:, 1], labels)) - float(statistic(scores[:, 0], labels))
        found = comparison._by_examples(tuple(runs), evidence.TEST, metric, value, 0.9)
        held += found.low <= truth <= found.high
    assert 83 <= held <= 97  # three deviations around 90


def test_every_resample_holds_both_classes():
    seen = []

    def share(scores, labels):
        seen.append(set(labels.tolist()))
        return labels.mean()

    labels = np.array([1, 0, 0, 0])  # a third of all draws of four would miss the positive
    evidence.resampled(share, np.arange(4.0), labels, value=0.25, fixed_classes=False)
    assert seen == [{0, 1}] * 20


@pytest.mark.parametrize("order", [("vpu", "upu"), ("upu", "vpu")])
def test_of_several_better_ones_the_best_is_taken_and_a_worse_one_is_said(tmp_path, order):
    gaps = {"nnpu": 1.5, "vpu": 4.0, "upu": 6.0, "naive": 0.7}
    for method, gap in gaps.items():
        folders.tested(tmp_path / method, gap=gap, method=method)
    found = reports.build([str(tmp_path / x) for x in ("nnpu", *order, "naive")]).verdict
    for method, word in (("vpu", "better"), ("upu", "better"), ("naive", "worse")):
        assert f"{method} is {word} than nnpu by" in found.sentences[1]
    assert found.sentences[2] == "Next: take upu."


def test_a_comparison_counts_the_verdicts_and_says_which_runs_are_missing(tmp_path):
    folders.tested(tmp_path / "a", gap=4.0)
    folders.tested(tmp_path / "b", gap=0.0, method="vpu")
    folders.tested(tmp_path / "c", gap=4.0, method="upu")
    runs = [str(tmp_path / x) for x in "abc"]
    found = reports.build(runs).verdict
    assert found.sentences[0] == "Of 3 runs, by the verdict on each: can be used: 2, do not use: 1."
    folders.write(tmp_path / "d", folders.config("naive"), rows=folders.epochs()[:2])
    found = reports.build([*runs, str(tmp_path / "d")]).verdict
    assert found.level == "unfinished" and "not finished: 1" in found.sentences[0]
    assert found.sentences[1].startswith("1 run did not finish")


@pytest.mark.parametrize(("count", "said"), [(1, "one seed of one"), (2, "are seeds of one")])
def test_runs_of_one_configuration_say_whether_they_show_chance(tmp_path, count, said):
    for i in range(2):
        seed = min(i, count - 1)
        folders.tested(tmp_path / str(i), gap=4.0, seed=seed, digest=f"split{seed}")
    found = reports.build([str(tmp_path / str(i)) for i in range(2)]).verdict
    assert said in found.sentences[1]


def test_a_method_is_as_good_as_its_worst_seed(tmp_path):
    for seed, gap in enumerate([4.0, 0.0]):
        folders.tested(tmp_path / str(seed), gap=gap, seed=seed, digest=f"split{seed}")
    found = reports.build([str(tmp_path / str(seed)) for seed in range(2)]).verdict
    assert found.level == "bad"
