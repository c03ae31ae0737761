"""Runs that fall into one class: which epochs count, said once while they run, and at the end."""

import logging
import types

import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax import report, training
from pujax.data.batching import Batching
from pujax.methods import naive
from pujax.reports import doubts
from pujax.training import config as config_lib
from pujax.training import method_setup, preemption, run_state, train_loop
from pujax.training.evaluation import one_class, tasks
from pujax.training.evaluation.one_class import Period
from pujax.training.seed_axis import Member
from tests import tiny


def made_rows(shares, *, every=1, stages=None, held=()):
    """Rows with the share of the test set predicted positive; None is no evaluation."""
    stages = stages or ["main"] * len(shares)
    rows = [{"epoch": i * every, "stage": stage} for i, stage in enumerate(stages)]
    for row, share in zip(rows, shares, strict=True):
        if share is not None:
            row["test_predicted_positive"] = share
    for row, share in zip(rows, held, strict=False):
        row["val_predicted_positive"] = share
    return rows


@pytest.mark.parametrize(
    ("shares", "wanted"),
    [
        ([0.5, 0, 0, 0, 0], []),  # four
        ([0.5, 0, 0, 0, 0, 0], [Period(1, 5, "negative", True)]),
        ([1.0] * 5 + [0.9], [Period(0, 4, "positive", False)]),
        ([1, 1, 0, 0, 1], [Period(0, 4, "either", True)]),
        ([0, 0, 0.001, 0, 0, 0], []),
        (
            [0] * 5 + [0.5] + [1] * 5,
            [Period(0, 4, "negative", False), Period(6, 10, "positive", True)],
        ),
        (
            [0, None, None, None, 0],
            [Period(0, 4, "negative", True)],
        ),  # two evaluations, five epochs
        ([0, None, None, None, None, None], []),  # one evaluation
        ([None] * 6, []),
    ],
)
def test_periods_by_hand(shares, wanted):
    assert one_class.periods(made_rows(shares)) == wanted


def test_epochs_are_counted_and_not_evaluations():
    assert one_class.periods(made_rows([0.0, 0.0], every=4)) == [Period(0, 4, "negative", True)]
    assert one_class.periods(made_rows([0.0, 0.0], every=3)) == []


def test_only_the_last_stage_counts():
    rows = made_rows([0.0] * 8, stages=["before"] * 4 + ["main"] * 4)
    assert one_class.periods(rows) == []
    rows = made_rows([0.0] * 9, stages=["before"] * 4 + ["main"] * 5)
    assert one_class.periods(rows) == [Period(4, 8, "negative", True)]


def test_a_validation_set_counts_beside_the_test_set_and_in_its_place():
    assert one_class.periods(made_rows([0.0] * 5, held=[0.0, 0.0, 0.1, 0.0, 0.0])) == []
    assert one_class.periods(made_rows([0.0] * 5, held=[1.0] * 5)) == []
    assert len(one_class.periods(made_rows([None] * 5, held=[1.0] * 5))) == 1
    assert len(one_class.periods(made_rows([0.0] * 5, held=[0.0] * 5))) == 1


@pytest.mark.parametrize("stop", range(14))
def test_a_period_is_reached_once_and_again_after_a_recovery(stop):
    rows = made_rows([0.5] + [0] * 6 + [0.5] + [1] * 5)
    found = one_class.reached(rows[:stop])
    wanted = {6: Period(1, 5, "negative", True), 13: Period(8, 12, "positive", True)}
    assert found == wanted.get(stop)


def test_an_epoch_without_an_evaluation_reaches_nothing():
    rows = made_rows([0.0] * 5)
    assert one_class.reached(rows) == Period(0, 4, "negative", True)
    assert one_class.reached([*rows, {"epoch": 5, "stage": "main"}]) is None


def reached_by_periods(rows):
    """The same from all periods with the newest row and without it."""
    found, before = one_class.periods(rows), one_class.periods(rows[:-1])
    if not found or not found[-1].lasts or found[-1].last_epoch != rows[-1]["epoch"]:
        return None
    is_known = bool(before) and before[-1].first_epoch == found[-1].first_epoch
    return None if is_known else found[-1]


@pytest.mark.parametrize("every", [1, 3])
def test_what_is_reached_follows_from_the_periods_of_all_rows(every):
    rng, found = np.random.default_rng(every), []
    for _ in range(60):
        shares = rng.choice([0.0, 1.0, 0.5, None], size=20, p=[0.6, 0.15, 0.05, 0.2])
        start = rng.integers(20)
        stages = ["before"] * start + ["main"] * (20 - start)
        rows = made_rows(shares, every=every, stages=stages)
        for stop in range(21):
            found.append(one_class.reached(rows[:stop]))
            assert found[-1] == reached_by_periods(rows[:stop])
    assert 30 < sum(x is not None for x in found) < 300


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_the_rows_that_are_looked_at_do_not_grow_with_the_run(share):
    class Row(dict):
        def get(self, *args):
            looked_at.add(self["epoch"])
            return super().get(*args)

    looked_at = set()
    rows = [Row(row) for row in made_rows([0.0] * 500 + [share])]
    assert one_class.reached(rows) is None
    assert len(looked_at) <= one_class.EPOCHS + 1


@pytest.mark.parametrize(
    ("section", "batching", "wanted"),
    [
        (
            {"learning_rate": 4e-4, "positives_per_batch": 0},
            Batching(250, num_positives=4),
            "; what may prevent that: a lower method.learning_rate (now 0.0004); more labelled "
            "positives in a batch, method.positives_per_batch (now 4 of 250)",
        ),
        # Drawn jointly, half of the batch already, or of a part with settings of its own.
        ({"learning_rate": 1, "positives_per_batch": 0}, Batching(250), "method.learning_rate"),
        ({"positives_per_batch": 0}, Batching(250, num_positives=125), "predicted negative"),
        (
            {"positives_per_batch": 0, "classifier_batch_size": 9},
            Batching(250, num_positives=4),
            "predicted negative",
        ),
        ({"ascent": True}, Batching(9), "positive part, method.ascent=False"),
        (
            {"ascent": True, "keep_positive": False},
            Batching(9),
            "correction steps that keep the positive part, method.keep_positive=True",
        ),
        ({"ascent": True, "keep_positive": True}, Batching(9), "predicted negative"),
        ({"ascent": False}, Batching(9), "predicted negative"),
        ({"learning_rate": 1, "head_learning_rate": 0.5}, Batching(9), "head_learning_rate (now 0"),
        ({"head_learning_rate": "auto"}, Batching(9), "rate (now 'auto', which the"),
    ],
)
def test_the_sentence_names_the_epoch_and_settings_that_there_are(section, batching, wanted):
    text = one_class.describe(
        Period(3, 9, "negative", True), ml_collections.ConfigDict(section), batching
    )
    assert text.startswith("since epoch 3 (counted from 0) every evaluated example is predicted ")
    if wanted.startswith(";"):
        assert text.endswith(wanted)
    assert wanted in text
    for name in ("positives_per_batch", "ascent", "keep_positive"):
        assert (name in text) == (name in wanted)


def test_a_period_that_ended_says_when():
    text = one_class.describe(
        Period(3, 9, "either", False), ml_collections.ConfigDict(), Batching(9)
    )
    assert text == (
        "from epoch 3 to epoch 9 (counted from 0) every evaluated example is predicted positive "
        "in some epochs and negative in the others"
    )


def settings(**run):
    return tiny.config(
        "naive",
        model="mlp",
        options={"hidden": (8,)},
        run={"checkpoint_every": 3} | run,
        num_epochs=8,
    )


@pytest.fixture
def collapses(monkeypatch):
    """The share predicted positive is 0.5 after the first evaluation, then 0."""

    def test_metrics(scores, labels, **options):
        calls.append(None)
        return {"accuracy": 0.5, "predicted_positive": 0.5 if len(calls) == 1 else 0.0}

    calls = []
    monkeypatch.setattr(tasks, "_BINARY", tasks._BINARY._replace(test_metrics=test_metrics))


def said(caplog):
    return [text for text in caplog.messages if "every evaluated example" in text]


def test_a_run_says_it_once_when_the_fifth_epoch_is_over(tmp_path, collapses, caplog):
    with caplog.at_level(logging.WARNING):
        tiny.train_in(tmp_path, settings(checkpoint_every=100), tiny.problem())
    (text,) = said(caplog)
    assert text.startswith("naive, seed 0: since epoch 1 (counted from 0) every evaluated")
    assert "a lower method.learning_rate (now 0.005)" in text


def test_what_is_to_be_changed_of_pan_is_the_rate_of_its_opponent():
    """A lower rate of the classifier makes it worse, see docs/results/defaults.md."""
    config, batching = tiny.config("pan").method, Batching(16, num_positives=8)
    (change,) = one_class._changes(config, batching)
    assert change == f"a lower method.discriminator_rate (now {config.discriminator_rate:g})"


def test_what_is_to_be_changed_of_ncpu_is_a_rate_that_is_too_low():
    """A classifier that has learnt nothing in the warm-up keeps one class: docs/results/ncpu.md."""
    config, batching = tiny.config("ncpu", learning_rate="auto").method, Batching(16)
    (change,) = one_class._changes(config, batching)
    assert change == "a higher method.learning_rate (now 'auto', which the log has as a number)"
    assert one_class.rate_word(tiny.config("ncpu", gate=False).method) == "lower"
    for section, word in (({"gate": True}, "higher"), ({}, "lower")):
        run = types.SimpleNamespace(
            summary={"one_class": [{"lasts": True}]}, config={"method": section}
        )
        assert f"with a {word} method.learning_rate" in doubts._one_class_epochs(run, None).advice


@pytest.mark.thorough
def test_a_run_that_goes_on_counts_what_was_before_and_does_not_repeat_it(
    tmp_path, collapses, caplog
):
    data = tiny.problem()
    with caplog.at_level(logging.WARNING):
        for stop, count in ((4, 0), (6, 1), (7, 1), (0, 1)):  # 3, 5, 6 and 7 epochs of one class
            tiny.train_in(tmp_path, settings(stop_after_epoch=stop), data)
            assert len(said(caplog)) == count


@pytest.mark.thorough
def test_every_seed_of_a_group_says_it_for_itself(tmp_path, monkeypatch, caplog):
    firsts, calls = (1, 9, 0), []  # the epoch in which each seed falls into one class

    def test_metrics(scores, labels, **options):
        epoch, place = divmod(len(calls), len(firsts))
        calls.append(None)
        return {"accuracy": 0.5, "predicted_positive": float(epoch >= firsts[place]) or 0.5}

    monkeypatch.setattr(tasks, "_BINARY", tasks._BINARY._replace(test_metrics=test_metrics))
    made, mesh = [], tiny.mesh()
    for seed in (3, 4, 5):
        config = tiny.config("naive", model="mlp", seed=seed, num_epochs=6)
        data = tiny.problem(seed)
        setup = method_setup.build(config, data, mesh)
        made.append(Member(setup, data, str(tmp_path / f"seed_{seed}")))
    run = run_state.prepare(made, mesh, folder=str(tmp_path / "checkpoints"))
    with caplog.at_level(logging.WARNING):
        train_loop.train(run, tiny.NoProgress(), preemption.StopRequest())
    run.close()
    starts = [text.split(" every")[0] for text in said(caplog)]
    assert starts == [
        "naive, seed 5: since epoch 0 (counted from 0)",
        "naive, seed 3: since epoch 1 (counted from 0)",
    ]


@pytest.mark.thorough
def test_the_summary_names_the_epoch_and_the_table_counts_it(tmp_path, monkeypatch):
    build = naive.build

    def collapsed(config, info):
        return build(config, info)._replace(predict=lambda state, x: jnp.full(len(x), 1.0))

    monkeypatch.setattr(naive, "build", collapsed)
    config = config_lib.default_config("naive")
    config.model.name, config.model.options = "mlp", {"hidden": (8,)}
    config.data.num_support, config.run.figures = 0, False
    config.method.update({"num_epochs": 5, "augment": False})
    summary = training.run(config, str(tmp_path))
    assert summary["one_class"] == [
        {"first_epoch": 0, "last_epoch": 4, "predicted": "positive", "lasts": True}
    ]
    text = summary["warnings"][-1]
    assert text.startswith("since epoch 0 (counted from 0) every evaluated example is predicted p")
    cell = {"row": "a", "column": "b", "published": None, "note": "", "error": ""}
    table = report.render("title", [cell | {"summaries": [summary]}], rules=["last"], num_seeds=1)
    said = "1 of 1 seeds predicts one class; seed 0 predicts one class in epochs 0 to 4"
    assert f"{said} (epochs are counted from 0)" in table
