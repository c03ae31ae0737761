"""Epoch selection: criteria by hand, choice among rows, and a kept state that survives a stop."""

import json
import math
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import methods
from pujax.methods.base import Method
from pujax.training import config as config_lib
from pujax.training import preemption, run_state, sharding, train_loop
from pujax.training.evaluation import binary, model_selection, summary, tasks
from pujax.training.evaluation.evaluator import Evaluator
from pujax.training.seed_axis import Member
from tests import tiny

# Scores of P_val, then U_val; two of three P above 0, one of five U.
SCORES = np.array([2.0, 1.0, -1.0, 3.0, -2.0, -0.5, -3.0, -4.0])
LABELED = np.array([1, 1, 1, 0, 0, 0, 0, 0], bool)
TRUTH = np.array([1, 1, 1, 1, 1, 0, 0, 0])


def sigmoid(x):
    return 1 / (1 + np.exp(-np.asarray(x)))


@pytest.mark.parametrize(
    ("rule", "suits", "has_validation", "has_prior", "expected"),
    [
        ("auto", "proxy_accuracy", True, True, "proxy_accuracy"),
        ("auto", "proxy_accuracy", True, False, "proxy_auc"),
        ("auto", "proxy_accuracy", False, True, "last"),
        ("auto", "vpu_risk", True, False, "vpu_risk"),
        ("auto", "last", True, True, "last"),
        ("last", "proxy_accuracy", True, True, "last"),
        ("oracle", "last", False, False, "oracle"),
    ],
)
def test_auto_is_the_rule_that_suits_the_method(rule, suits, has_validation, has_prior, expected):
    options = {"has_validation": has_validation, "has_prior": has_prior}
    found = model_selection.resolved(rule, suits, without_prior="proxy_auc", **options)
    assert found == expected


@pytest.mark.parametrize(
    ("name", "prior", "expected"),
    [
        ("lbe", 0.3, "nnpu_risk"),
        ("lbe", None, "last"),  # by the proxy AUC it lost up to eight points under biased labels
        ("ncpu", 0.3, "nnpu_risk"),
        ("ncpu", None, "last"),
        ("naive", 0.3, "proxy_accuracy_vpu"),
        ("naive", None, "vpu_risk"),
        ("pan", None, "proxy_auc"),
    ],
)
def test_without_a_prior_a_method_has_a_rule_that_needs_none(name, prior, expected):
    config = config_lib.default_config(name)
    config.data.update({"source": "own_table", "path": "a.csv", "label": "s", "num_labeled": 0})
    config.data.update({"positive_classes": (), "num_support": 0, "holdout": 0.2, "prior": prior})
    config.model.name = "mlp"
    assert config_lib.resolve(config).run.selection == expected


@pytest.mark.parametrize("name", methods.names())
def test_the_rule_that_suits_a_method_needs_no_negative(name):
    rule = methods.selection(name)
    assert rule in model_selection.RULES and not rule.startswith("oracle")
    assert rule == "last" or not methods.is_multilabel(name)
    found = methods.selection_without_prior(name)
    assert found in ("last", "proxy_auc", "vpu_risk")  # the rules that need no prior


def test_one_sample_criteria_by_hand():
    found = model_selection.criteria(SCORES, LABELED, TRUTH, prior=0.5, setting="one_sample")
    # 2 * 0.5 * 2/3 + 5 of 8 not above 0.
    assert found["val_proxy_accuracy"] == pytest.approx(2 / 3 + 5 / 8)
    # Of 15 pairs P against U: 2 beats 4, 1 beats 4, -1 beats -2, -3, -4.
    assert found["val_proxy_auc"] == pytest.approx(11 / 15)
    # Wrong are the third (P at -1) and the fifth (positive at -2).
    assert found["val_oracle_accuracy"] == pytest.approx(6 / 8)
    positive = 0.5 * np.mean(sigmoid(-SCORES[:3]))
    # The marginal term is the mean over P and U together.
    negative = np.mean(sigmoid(SCORES)) - 0.5 * np.mean(sigmoid(SCORES[:3]))
    assert negative > 0
    log_phi = np.log(sigmoid(SCORES))
    vpu = np.log(np.mean(sigmoid(SCORES))) - log_phi[:3].mean()
    assert found["val_vpu_risk"] == pytest.approx(vpu, rel=1e-5)
    mixed = 2 / 3 + 5 / 8 - 0.3 * vpu  # the lower the risk, the better
    assert found["val_proxy_accuracy_vpu"] == pytest.approx(mixed, rel=1e-5)
    # float32 inside the risk.
    assert found["val_nnpu_risk"] == pytest.approx(positive + negative, rel=1e-5)


def test_criteria_where_every_positive_is_labelled_or_too_many_are():
    """PUBench's set 5: nothing in U is positive, and the proxy needs no share of U."""
    scores, labeled = np.array([2.0, 1.0, -1.0, -2.0]), np.array([True, True, False, False])
    found = model_selection.criteria(scores, labeled, labeled, prior=0.5, setting="one_sample")
    assert found["val_proxy_accuracy"] == pytest.approx(1.5)  # 1 + prior: no error
    positive = 0.5 * np.mean(sigmoid(-scores[:2]))
    assert found["val_nnpu_risk"] == pytest.approx(
        positive + 0.5 * np.mean(sigmoid(scores[2:])), rel=1e-5
    )
    # By chance more of a small part are labelled than are positive: the risk is unknown.
    found = model_selection.criteria(scores, labeled, labeled, prior=0.4, setting="one_sample")
    assert found["val_proxy_accuracy"] == pytest.approx(2 * 0.4 + 0.5)
    assert np.isnan(found["val_nnpu_risk"])


def test_rounding_leaves_no_fewer_positives_than_labels():
    assert 0.29 * 100 < 29
    scores, labeled = np.linspace(2, -2, 100), np.arange(100) < 29
    found = model_selection.criteria(scores, labeled, labeled, prior=0.29, setting="one_sample")
    wanted = 0.29 * np.mean(sigmoid(-scores[:29])) + 0.71 * np.mean(sigmoid(scores[29:]))
    assert found["val_nnpu_risk"] == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_without_p_or_without_a_sample_of_the_population_nothing_is_known(setting):
    scores, truth = np.array([-1.0, 2.0, 0.5], np.float32), np.array([0, 1, 1])
    blind = [name for name in model_selection.COLUMNS.values() if "oracle" not in name]
    for labeled in (np.zeros(3, bool), np.ones(3, bool)):
        if labeled.all() and setting == "one_sample":
            continue
        found = model_selection.criteria(scores, labeled, truth, prior=0.5, setting=setting)
        assert np.isnan([found[name] for name in blind]).all()
        # True labels of U tell what they tell; without U there is nothing to be right about.
        assert math.isnan(found["val_oracle_accuracy"]) == bool(labeled.all())
    none = model_selection.criteria(scores[:0], labeled[:0], truth[:0], prior=0.5, setting=setting)
    assert np.isnan(list(none.values())).all()


def test_the_oracle_has_two_criteria():
    truth = np.array([1, 1, 1, 0, 0, 0, 0, 0])
    # Predicted positive are the first two of these and one negative: F1 is 2 * 2 / (3 + 3).
    found = model_selection.criteria(SCORES, LABELED, truth, prior=0.5, setting="one_sample")
    assert found["val_oracle_f1"] == pytest.approx(4 / 6)
    assert found["val_oracle_accuracy"] == pytest.approx(6 / 8)
    # In two-sample data they are those of U.
    found = model_selection.criteria(SCORES, LABELED, truth, prior=0.5, setting="two_sample")
    assert found["val_oracle_f1"] == 0 and found["val_oracle_accuracy"] == pytest.approx(4 / 5)
    rows = [
        {"stage": "main", "epoch": i, "val_oracle_f1": f1, "val_oracle_accuracy": accuracy}
        for i, (f1, accuracy) in enumerate([(0.5, 0.7), (0.6, 0.6)])
    ]
    chosen = [model_selection.describe(rows, rule) for rule in ("oracle", "oracle_f1")]
    assert [(x["epoch"], x["is_oracle"]) for x in chosen] == [(0, True), (1, True)]


def test_two_sample_criteria_by_hand():
    # U_val repeats P_val, which the oracle counts once.
    scores = np.concatenate([SCORES[:3], SCORES])
    labeled = np.concatenate([np.ones(3, bool), np.zeros(8, bool)])
    truth = np.concatenate([TRUTH[:3], TRUTH])
    found = model_selection.criteria(scores, labeled, truth, prior=0.6, setting="two_sample")
    assert found["val_proxy_accuracy"] == pytest.approx(2 * 0.6 * 2 / 3 + 5 / 8)
    assert found["val_oracle_accuracy"] == pytest.approx(6 / 8)
    positive = 0.6 * np.mean(sigmoid(-SCORES[:3]))
    negative = np.mean(sigmoid(SCORES)) - 0.6 * np.mean(sigmoid(SCORES[:3]))
    assert found["val_nnpu_risk"] == pytest.approx(positive + max(negative, 0), rel=1e-5)


def test_the_vpu_risk_looks_at_scores_before_the_threshold():
    shifted, plain = (
        model_selection.criteria(
            SCORES - 1, LABELED, TRUTH, prior=0.5, setting="one_sample", **options
        )
        for options in ({}, {"plain_scores": SCORES})
    )
    wanted = model_selection.criteria(SCORES, LABELED, TRUTH, prior=0.5, setting="one_sample")
    assert plain["val_vpu_risk"] == wanted["val_vpu_risk"] != shifted["val_vpu_risk"]
    assert plain["val_proxy_accuracy"] == shifted["val_proxy_accuracy"]


def test_without_a_prior_the_rules_that_need_one_have_no_value_and_are_refused():
    found = model_selection.criteria(SCORES, LABELED, TRUTH, prior=math.nan, setting="one_sample")
    without = {name for name, value in found.items() if math.isnan(value)}
    assert without == {"val_proxy_accuracy", "val_nnpu_risk", "val_proxy_accuracy_vpu"}
    model_selection.check("vpu_risk", math.nan)
    with pytest.raises(ValueError, match=r"run.selection is 'nnpu_risk' and data.prior None"):
        model_selection.check("nnpu_risk", math.nan)


def test_a_negative_part_below_zero_is_left_out_of_the_risk():
    scores = np.where(LABELED, 5.0, -5.0)
    found = model_selection.criteria(scores, LABELED, TRUTH, prior=0.9, setting="two_sample")
    assert found["val_nnpu_risk"] == pytest.approx(0.9 * sigmoid(-5.0), rel=1e-5)


def test_scores_that_are_not_numbers_have_no_value():
    found = model_selection.criteria(
        SCORES * np.nan, LABELED, TRUTH, prior=0.5, setting="one_sample"
    )
    assert all(math.isnan(value) for value in found.values())


def made_rows(values, *, column="val_proxy_auc", stages=None):
    stages = stages or ["main"] * len(values)
    return [
        {"epoch": i, "stage": stage, column: value, "test_accuracy": i / 10, "test_f1": 0.5}
        for i, (value, stage) in enumerate(zip(values, stages, strict=True))
    ]


@pytest.mark.parametrize(
    ("rule", "values", "epoch"),
    [
        ("proxy_auc", [0.1, 0.3, 0.2], 1),
        ("proxy_auc", [0.1, 0.3, 0.3], 1),  # the earliest of equals
        ("nnpu_risk", [0.2, 0.1, 0.3, 0.1], 1),  # the lowest
        ("proxy_accuracy_vpu", [-0.1, 0.3, 0.2], 1),  # the risk is in it with a minus
        ("oracle", [None, 0.2, float("nan"), 0.1], 1),
        ("proxy_accuracy", [0.0, -0.0], 0),
    ],
)
def test_the_best_epoch_by_hand(rule, values, epoch):
    rows = made_rows(values, column=model_selection.COLUMNS[rule])
    assert model_selection.choose(rows, rule)["epoch"] == epoch
    assert model_selection.describe(rows, rule) == {
        "rule": rule,
        "epoch": epoch,
        "value": values[epoch],
        "is_oracle": rule == "oracle",
    }


def test_only_epochs_of_the_last_stage_count():
    rows = made_rows([0.9, 0.1, 0.2], stages=["warmup", "main", "main"])
    assert model_selection.choose(rows, "proxy_auc")["epoch"] == 2


def test_epochs_without_an_evaluation_are_passed_over():
    rows = made_rows([0.5, 0.1])
    del rows[0]["val_proxy_auc"]
    assert model_selection.choose(rows, "proxy_auc")["epoch"] == 1


def test_without_any_value_the_last_epoch_is_reported():
    rows = made_rows([None, None])
    assert model_selection.choose(rows, "proxy_auc") is None
    assert model_selection.describe(rows, "proxy_auc")["epoch"] == 1


def test_the_table_holds_every_rule_with_a_value():
    rows = made_rows([0.3, 0.2])
    table = model_selection.table(rows)
    assert set(table) == {"last", "proxy_auc"}
    assert table["last"]["epoch"] == 1 and table["last"]["accuracy"] == 0.1
    assert table["proxy_auc"] == {
        "epoch": 0,
        "value": 0.3,
        "is_oracle": False,
        "accuracy": 0.0,
        "f1": 0.5,
        "auc": None,
        "average_precision": None,
    }


def settings(rule="proxy_auc", **changes):
    # Every 2 epochs, so that the best epoch and the checkpoints are not the same.
    run = {"selection": rule, "checkpoint_every": 2} | changes.pop("run", {})
    data = {"num_validation": 40}
    return tiny.config(
        "naive",
        model="mlp",
        options={"hidden": (8,)},
        run=run,
        data=data,
        **({"num_epochs": 6} | changes),
    )


def set_criteria(monkeypatch, function):
    """What validation scores are turned into."""
    monkeypatch.setattr(tasks, "_BINARY", tasks._BINARY._replace(validation_metrics=function))


@pytest.fixture
def erratic(monkeypatch):
    """Criteria that jump from epoch to epoch: the largest is the third, the smallest the fourth."""
    values, seen = (0.3, 0.5, 0.9, 0.1, 0.6, 0.4), {}

    def wild(scores, data, **options):
        place = seen.setdefault(np.asarray(scores).tobytes(), len(seen))
        return dict.fromkeys(model_selection.COLUMNS.values(), values[place])

    set_criteria(monkeypatch, wild)


_setup = tiny.shared_setups()


def train(folder, config, data, *, change=lambda method: method):
    """Trains in a folder; gives where the run stands, the rows and the reported state."""
    mesh = tiny.mesh()
    setup = _setup(config, data, mesh)
    method = change(setup.method)
    count = len(method.stages)
    names, intervals = setup.metric_names * count, setup.eval_intervals * count
    setup = setup._replace(method=method, metric_names=names, eval_intervals=intervals)
    run = run_state.prepare([Member(setup, data, str(folder))], mesh)
    try:
        state = train_loop.train(run, tiny.NoProgress(), preemption.StopRequest())
        return state, run.writers[0].rows, state.reported(0) if state.is_finished else None
    finally:
        run.close()


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["proxy_auc", "nnpu_risk"])
def test_the_reported_state_is_that_of_the_chosen_epoch(tmp_path, erratic, rule):
    data = tiny.problem(num_validation=40)
    now, rows, state = train(tmp_path / "whole", settings(rule), data)
    row = model_selection.choose(rows, rule)
    assert row["epoch"] == (2 if rule == "proxy_auc" else 3)
    assert now.position.best_values == (row[model_selection.COLUMNS[rule]],)
    short = settings(rule, run={"stop_after_epoch": row["epoch"] + 1})
    there, _, _ = train(tmp_path / "part", short, data)
    tiny.assert_same(state, there.carry.state)


@pytest.mark.parametrize(
    "stops",
    [
        pytest.param((1,), marks=pytest.mark.thorough),
        (2, 3),
        pytest.param((1, 2, 3, 4, 5), marks=pytest.mark.slow),
    ],
)
def test_stop_and_go_on_selects_the_same_state_bit_for_bit(tmp_path, erratic, stops):
    data = tiny.problem(num_validation=40)
    straight, rows, state = train(tmp_path / "straight", settings(), data)
    for stop in (*stops, 0):
        config = settings(run={"stop_after_epoch": stop})
        resumed, resumed_rows, again = train(tmp_path / "resumed", config, data)
    assert [row["val_proxy_auc"] for row in rows] == [r["val_proxy_auc"] for r in resumed_rows]
    assert straight.position == resumed.position
    tiny.assert_same(state, again)
    tiny.assert_same(straight.carry, resumed.carry)


@pytest.mark.thorough
def test_going_on_from_an_older_checkpoint_repeats_the_selection(tmp_path, erratic):
    data = tiny.problem(num_validation=40)
    _, _, state = train(tmp_path, settings(), data)
    # As after a crash: the newest checkpoint is of epoch 4, the selected states are ahead of it.
    newest = max((tmp_path / "checkpoints").iterdir(), key=lambda p: int(p.name))
    for path in sorted(newest.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    newest.rmdir()
    _, _, again = train(tmp_path, settings(), data)
    tiny.assert_same(state, again)


def test_another_rule_does_not_go_on_in_the_same_folder(tmp_path):
    data = tiny.problem(num_validation=40)
    train(tmp_path, settings(run={"stop_after_epoch": 1}), data)
    with pytest.raises(ValueError, match="run.selection: 'proxy_auc' there, 'oracle' here"):
        train(tmp_path, settings("oracle"), data)


def test_the_rule_last_keeps_no_state_but_rows_hold_all_criteria(tmp_path):
    data = tiny.problem(num_validation=40)
    now, rows, state = train(tmp_path, settings("last", num_epochs=2), data)
    assert now.best is None
    tiny.assert_same(state, now.carry.state)
    assert set(model_selection.COLUMNS.values()) <= set(rows[0])
    assert set(model_selection.table(rows)) == set(model_selection.RULES)


def test_without_a_validation_set_rows_hold_no_criteria(tmp_path):
    _, rows, _ = train(tmp_path, settings("last", num_epochs=1), tiny.problem())
    assert not set(model_selection.COLUMNS.values()) & set(rows[0])


def test_only_the_last_stage_is_kept_in_training_too(tmp_path, monkeypatch):
    # Ever worse: the first epoch of the main stage is the best of its stage, not of the run.
    calls = []

    def falling(scores, data, **options):
        calls.append(None)
        return dict.fromkeys(model_selection.COLUMNS.values(), -float(len(calls)))

    set_criteria(monkeypatch, falling)
    data = tiny.problem(num_validation=40)

    def in_two_stages(method):
        lengths = {"warmup": 1, "main": 2}
        (stage,) = method.stages
        parts = (stage._replace(name=name, num_epochs=n) for name, n in lengths.items())
        return method._replace(stages=tuple(parts))

    now, rows, state = train(tmp_path, settings(), data, change=in_two_stages)
    assert [row["stage"] for row in rows] == ["warmup", "main", "main"]
    assert now.position.best_values == (rows[1]["val_proxy_auc"],)
    assert model_selection.choose(rows, "proxy_auc")["epoch"] == 1
    assert jax.tree.structure(state) == jax.tree.structure(now.carry.state)


def test_calibrate_is_called_for_evaluation_and_leaves_training_alone(tmp_path):
    data = tiny.problem(num_validation=40)
    seen = []

    def with_calibrate(method):
        def calibrate(state, training):
            seen.append(training.inputs.shape[0])
            return state._replace(offset=state.offset + 1e6)  # every score far below 0

        return method._replace(calibrate=calibrate)

    config = settings("last", num_epochs=2)
    plain, rows, _ = train(tmp_path / "plain", config, data)
    now, calibrated, _ = train(tmp_path / "other", config, data, change=with_calibrate)
    tiny.assert_same(plain.carry, now.carry)
    assert seen == [data.inputs.shape[0]] * 2  # once for every evaluation
    assert [row["loss"] for row in rows] == [row["loss"] for row in calibrated]
    assert all(row["test_predicted_positive"] == 0 for row in calibrated)
    # Nothing is called positive: no recall, and the whole validation set counts as negative.
    assert all(row["val_proxy_accuracy"] == 1 for row in calibrated)
    assert all(0 < row["test_predicted_positive"] < 1 for row in rows)


def final(test_scores, train_scores):
    return summary.Final({}, np.asarray(test_scores), np.asarray(train_scores), None, {}, {})


@pytest.mark.parametrize(
    ("test_scores", "train_scores", "wanted"),
    [
        ([1.0, -1.0], [1.0, -1.0], []),
        ([-2.0, -1.0], [1.0, -1.0], ["test example is predicted negative"]),
        ([2.0, -1.0], [1.0, 2.0], ["training example is predicted positive"]),
        ([2.0, 1.0], [0.0, 0.0], ["test", "training"]),
    ],
)
def test_a_model_that_predicts_one_class_is_warned_about(test_scores, train_scores, wanted):
    found = binary.warnings(final(test_scores, train_scores), made_rows([0.1]), "last")
    assert len(found) == len(wanted)
    assert all(part in text for part, text in zip(wanted, found, strict=True))


def test_epochs_that_few_held_out_positives_chose_are_named():
    rows = [
        {"stage": "nnpu", "epoch": 0, "val_proxy_accuracy": 0.8},
        {"stage": "nnpu", "epoch": 1, "val_proxy_accuracy": 0.9, "val_vpu_risk": 0.2},
        {"stage": "episodes", "epoch": 2, "val_vpu_risk": 0.3, "val_oracle_accuracy": 0.6},
        {
            "stage": "episodes",
            "epoch": 2,
            "val_proxy_accuracy": 0.8,
            "val_vpu_risk": 0.1,
            "val_oracle_accuracy": 0.7,
        },
    ]

    def stages(rule):
        return [types.SimpleNamespace(name="nnpu", selection=rule), None]

    def texts(stage_rule, rule, count):
        return model_selection.by_few_positives(rows, stages(stage_rule), rule, count)

    least = model_selection.FEW_POSITIVES
    first, reported = texts("proxy_accuracy", "vpu_risk", least - 1)
    assert first.startswith(
        "the epoch that stage 'nnpu' handed on was chosen by the proxy_accuracy"
    )
    assert "method.pretrain_selection to 'last'" in first and f"{least - 1} held-out" in first
    assert reported.startswith("the reported epoch was chosen by the vpu_risk on 19 held-out pos")
    assert (
        "run.selection to 'last'" in reported
        and "1 held-out positive," in texts("last", "vpu_risk", 1)[0]
    )
    # Enough of them, nothing held out, the last epoch, a rule without a value, and true labels.
    assert texts("proxy_accuracy", "vpu_risk", least) == texts("vpu_risk", "vpu_risk", 0) == []
    assert texts("last", "last", 1) == texts("last", "proxy_auc", 1) == []
    assert texts("last", "oracle", 1) == []
    assert texts("vpu_risk", "last", 1) == []  # one epoch of the stage has a value: no choice


def test_a_rule_without_values_is_warned_about():
    good = final([1.0, -1.0], [1.0, -1.0])
    assert "proxy_auc" in binary.warnings(good, made_rows([None]), "proxy_auc")[0]


@pytest.mark.parametrize(
    ("rule", "values", "epoch"),
    [
        ("proxy_auc", [math.nan, 0.1, 0.2], 2),  # what is not a number does not stand as the best
        ("proxy_auc", [0.1, math.inf, 0.2], 2),
        ("vpu_risk", [math.nan, 0.2, 0.1, 0.3], 2),  # a risk: the lowest
        ("vpu_risk", [0.2, -math.inf, 0.1], 2),
    ],
)
def test_a_value_that_is_not_finite_never_wins(rule, values, epoch):
    rows = made_rows(values, column=model_selection.COLUMNS[rule])
    assert model_selection.choose(rows, rule)["epoch"] == epoch


def test_where_no_epoch_has_a_value_the_last_state_is_reported(tmp_path, monkeypatch):
    def nothing(scores, data, **options):
        return dict.fromkeys(model_selection.COLUMNS.values(), math.nan)

    set_criteria(monkeypatch, nothing)
    state, rows, reported = train(tmp_path, settings(num_epochs=2), tiny.problem(num_validation=40))
    assert state.position.best_values == (None,)
    assert model_selection.describe(rows, "proxy_auc")["epoch"] == 1
    tiny.assert_same(reported, state.carry.state)


def test_validation_criteria_take_the_prior_of_the_population():
    data = tiny.problem(num_validation=40)
    assert data.validation_prior() == data.info.prior != data.info.prior_unlabeled
    scores = np.where(data.validation_labeled, 3.0, -1.0)
    found = binary.validation_metrics(scores, data)
    recall_part = 2 * data.info.prior  # every labelled positive is called positive
    share = np.mean(~data.validation_labeled)  # and everything else negative
    assert found["val_proxy_accuracy"] == pytest.approx(recall_part + share)


def offset_method(seen):
    """Scores are the first pixel, less 120 and an offset that only `calibrate` sets."""

    def score(state, inputs):
        return inputs.reshape(len(inputs), -1)[:, 0].astype(jnp.float32) - 120 - state

    def adjust(scores, population):
        seen.append(np.asarray(population))
        return scores - np.median(scores[population])

    alternatives = {"raw": lambda state, inputs: 0.5 * score(state, inputs) - 1000}
    return Method((), score, adjust=adjust, alternatives=alternatives)


@pytest.mark.parametrize("setting", ["one_sample", "two_sample"])
def test_a_transductive_rule_is_told_the_population_and_moves_all_scores(setting):
    data, seen = tiny.problem(num_validation=40, setting=setting), []
    judge = Evaluator(
        offset_method(seen), data, None, tiny.mesh(), task=tasks.of(data), batch_size=64
    )
    row = judge.begin(jnp.float32(0)).row()
    half = np.mean(data.test_inputs[:, 0, 0, 0] > np.median(data.test_inputs[:, 0, 0, 0]))
    assert row["test_predicted_positive"] == row["test_raw_predicted_positive"] == half
    labeled = data.validation_labeled
    population = np.ones(len(labeled), bool) if setting == "one_sample" else ~labeled
    assert labeled.any() and [len(x) for x in seen] == [200, 200, len(labeled)]
    assert seen[0].all() and seen[1].all()
    np.testing.assert_array_equal(seen[2], population)
    seen.clear()
    judge.final(jnp.float32(0), data.inputs)
    assert len(seen) == 3 and seen[0].all()
    np.testing.assert_array_equal(seen[1], population)
    population = np.ones(len(data.labeled), bool) if setting == "one_sample" else ~data.labeled
    np.testing.assert_array_equal(seen[2], population)


def test_a_calibrated_state_goes_into_all_scores_but_the_uncalibrated_ones():
    data = tiny.problem(num_validation=40)
    method = offset_method([])._replace(
        adjust=None, calibrate=lambda state, training: state + jnp.float32(len(training.inputs))
    )
    training = data.training_data()
    judge = Evaluator(method, data, training, tiny.mesh(), task=tasks.of(data), batch_size=64)
    state = jnp.float32(0)
    row, final = judge.begin(state).row(), judge.final(state, data.inputs)

    def scores(inputs, offset):
        return inputs[:, 0, 0, 0].astype(np.float32) - 120 - offset

    moved, plain = len(data.inputs), scores(data.test_inputs, 0)
    np.testing.assert_array_equal(final.test_scores, scores(data.test_inputs, moved))
    np.testing.assert_array_equal(final.train_scores, scores(data.inputs, moved))
    assert row["test_predicted_positive"] == np.mean(scores(data.test_inputs, moved) > 0)
    assert row["test_uncalibrated_accuracy"] == np.mean((plain > 0) == data.test_labels)
    assert row["test_uncalibrated_accuracy"] != row["test_accuracy"]
    inputs = data.validation_inputs
    wanted = binary.validation_metrics(scores(inputs, moved), data, plain_scores=scores(inputs, 0))
    assert {name: row[name] for name in wanted} == wanted
    assert binary.validation_metrics(scores(inputs, moved), data) != wanted


def test_the_best_epoch_is_that_of_the_first_hosts_values(monkeypatch, tmp_path):
    """Another host may round a criterion otherwise; it would keep another epoch of its part."""
    given = []

    def of_first_host(text):
        values = json.loads(text)
        given.append(values)
        return json.dumps([float(len(given) == 2) for _ in values])

    monkeypatch.setattr(sharding, "of_first_host", of_first_host)
    changes = {"num_epochs": 3, "run": {"selection": "proxy_auc"}, "data": {"num_validation": 40}}
    config = tiny.config("naive", model="mlp", options={"hidden": (4,)}, **changes)
    state, rows = tiny.train_in(tmp_path, config, tiny.problem(num_validation=40))
    assert given == [[row["val_proxy_auc"]] for row in rows]
    assert state.position.best_values == (1.0,)  # of the second epoch
