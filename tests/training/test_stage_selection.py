"""A stage before the last one may hand on its best epoch instead of its last one."""

import math
import types

import jax
import numpy as np
import pytest

from pujax import methods
from pujax.training import loop_state, method_setup, preemption, run_state, train_loop
from pujax.training.evaluation import model_selection, tasks
from pujax.training.seed_axis import Member
from tests import tiny

LENGTHS = {"pretrain": 4, "main": 2}
# Of the evaluations of two seeds that train together, in turn: the first seed is best after its
# second epoch, the other one after its third.
VALUES = (0.3, 0.2, 0.9, 0.4, 0.5, 0.8, 0.1, 0.6)
_setup = tiny.shared_setups()


def settings(*, seed=0, num_validation=40, **run):
    run = {"selection": "last", "checkpoint_every": 1} | run
    options = {"model": "mlp", "options": {"hidden": (8,)}, "num_epochs": 6, "seed": seed}
    return tiny.config("naive", run=run, data={"num_validation": num_validation}, **options)


def in_two_stages(method, rule):
    """A stage that trains and hands on by a rule, and one that leaves what it got as it is."""
    (stage,) = method.stages

    def stay(state, batch, key):
        return state, stage.step(state, batch, key)[1]

    pretrain = stage._replace(name="pretrain", num_epochs=LENGTHS["pretrain"], selection=rule)
    main = stage._replace(
        name="main",
        num_epochs=LENGTHS["main"],
        init=lambda key, previous, data: previous,
        step=stay,
    )
    return method._replace(stages=(pretrain, main))


def train(folder, configs, data, rule):
    """Trains the seeds of some configurations together; gives where the run stands."""
    mesh, members = tiny.mesh(), []
    for config in configs:
        setup = _setup(config, data, mesh)
        setup = setup._replace(
            method=in_two_stages(setup.method, rule),
            metric_names=setup.metric_names * 2,
            eval_intervals=setup.eval_intervals * 2,
        )
        members.append(Member(setup, data, str(folder / f"seed_{config.seed}")))
    run = run_state.prepare(members, mesh, folder=str(folder / "checkpoints"))
    try:
        return train_loop.train(run, tiny.NoProgress(), preemption.StopRequest())
    finally:
        run.close()


@pytest.mark.parametrize(
    ("rule", "prior", "message"),
    [
        ("oracle", 0.4, "is 'oracle'; accepted: 'last', 'proxy_accuracy'"),
        ("nnpu_risk", math.nan, "is 'nnpu_risk' and data.prior None; accepted: 'last'"),
    ],
)
def test_a_rule_that_sees_true_labels_or_needs_an_unknown_prior_is_refused(
    monkeypatch, rule, prior, message
):
    build, data = methods.build, tiny.problem(num_validation=40)
    data = data._replace(info=data.info._replace(prior=prior))

    def with_rule(config, info):
        method = build(config, tiny.problem(num_validation=40).info)
        return method._replace(stages=(method.stages[0]._replace(selection=rule),))

    monkeypatch.setattr(methods, "build", with_rule)
    with pytest.raises(ValueError, match=f"selection of stage 'train' {message}"):
        method_setup.build(settings(), data, tiny.mesh())


@pytest.mark.parametrize(
    ("part", "rules"),
    [
        ({"num_validation": 40}, ["vpu_risk", "last"]),
        ({"num_labeled": 0, "holdout": 0.2}, ["vpu_risk", "last"]),
        ({}, ["last", "last"]),
    ],
)
def test_a_stage_has_its_rule_wherever_a_part_is_held_out(part, rules):
    config = tiny.config("nnpu", model="mlp", data=part, run={"selection": "last"})
    (stage,) = methods.build(config, tiny.problem().info).stages
    stages = [stage._replace(selection="vpu_risk")] * 2
    run = types.SimpleNamespace(config=config, stages=stages)
    assert [loop_state.rule(run, index) for index in (0, 1)] == rules


def test_the_summary_says_which_epoch_was_handed_on():
    (stage,) = methods.build(settings(), tiny.problem(num_validation=40).info).stages
    stages = [stage._replace(name=name, selection="vpu_risk") for name in ("a", "b", "c")]
    stages[1] = stages[1]._replace(selection="last")
    values = {"a": (0.3, 0.1, 0.2), "b": (0.5,), "c": (0.0,)}
    rows = [{"stage": name, "val_vpu_risk": x} for name in values for x in values[name]]
    rows = [{"epoch": epoch} | row for epoch, row in enumerate(rows)]
    found = model_selection.handed_on(rows, stages)
    assert found == {"a": {"rule": "vpu_risk", "epoch": 1, "value": 0.1}}
    assert model_selection.handed_on([{"epoch": 0, "stage": "a"}], stages) == {}


@pytest.fixture
def values(monkeypatch):
    """Criteria that jump from one evaluation to the next; equal scores have equal ones."""

    def use(numbers):
        seen = {}

        def jumping(scores, data, **options):
            place = seen.setdefault(np.asarray(scores).tobytes(), len(seen))
            return dict.fromkeys(model_selection.COLUMNS.values(), numbers[place])

        monkeypatch.setattr(tasks, "_BINARY", tasks._BINARY._replace(validation_metrics=jumping))

    return use


def differs(first, second):
    leaves = zip(jax.tree.leaves(first), jax.tree.leaves(second), strict=True)
    return any(np.any(np.asarray(a) != np.asarray(b)) for a, b in leaves)


@pytest.mark.parametrize(
    ("rule", "epochs"),
    [
        pytest.param("proxy_auc", 2, marks=pytest.mark.thorough),
        ("vpu_risk", 3),
        pytest.param("last", 4, marks=pytest.mark.thorough),
    ],
)
def test_the_next_stage_gets_the_state_of_the_epoch_that_the_rule_prefers(
    tmp_path, values, rule, epochs
):
    data = tiny.problem(num_validation=40)
    numbers = (0.3, 0.9, 0.1, 0.4)  # a high AUC is good, a high risk is not
    values(numbers)
    whole = train(tmp_path / "whole", [settings()], data, rule)
    values(numbers)
    part = train(tmp_path / "part", [settings(stop_after_epoch=epochs)], data, "last")
    assert whole.is_finished and whole.best is None and whole.position.best_values == (None,)
    tiny.assert_same(whole.reported(0), part.carry.state)
    if epochs < 4:
        values(numbers)
        last = train(tmp_path / "last", [settings(stop_after_epoch=4)], data, "last")
        assert differs(whole.reported(0), last.carry.state)


def test_without_a_part_held_out_or_a_value_it_is_the_last_epoch(tmp_path, values):
    data = tiny.problem()
    last = train(tmp_path / "last", [settings(num_validation=0)], data, "last")
    other = train(tmp_path / "other", [settings(num_validation=0)], data, "vpu_risk")
    tiny.assert_same(last.reported(0), other.reported(0))
    held = tiny.problem(num_validation=40)
    values([float("nan")] * 4)
    nothing = train(tmp_path / "nothing", [settings()], held, "vpu_risk")
    values([0.0] * 4)
    last = train(tmp_path / "held", [settings()], held, "last")
    tiny.assert_same(last.reported(0), nothing.reported(0))


@pytest.mark.parametrize("stops", [(1, 3), pytest.param((4,), marks=pytest.mark.thorough)])
def test_a_run_that_stops_within_the_stage_or_at_its_end_goes_on_to_the_same(
    tmp_path, values, stops
):
    data = tiny.problem(num_validation=40)
    values(VALUES)
    straight = train(tmp_path / "straight", [settings()], data, "vpu_risk")
    values(VALUES)
    for stop in (*stops, 0):
        config = settings(stop_after_epoch=stop)
        resumed = train(tmp_path / "resumed", [config], data, "vpu_risk")
    assert straight.position == resumed.position
    tiny.assert_same(straight.carry, resumed.carry)


@pytest.mark.parametrize(
    ("numbers", "best"),
    [
        (VALUES, (2, 3)),
        pytest.param(
            # Of the second seed no epoch has a value.
            [x if place % 2 == 0 else math.nan for place, x in enumerate(VALUES)],
            (2, 4),
            marks=pytest.mark.thorough,
        ),
    ],
)
def test_every_seed_hands_on_its_own_best_epoch(tmp_path, values, numbers, best):
    data = tiny.problem(num_validation=40)
    configs = [settings(seed=seed) for seed in (0, 1)]
    values(numbers)
    together = train(tmp_path / "together", configs, data, "proxy_auc")
    assert together.is_finished
    for seed, epochs in enumerate(best):
        values(numbers)
        stopped = [settings(seed=seed, stop_after_epoch=epochs) for seed in (0, 1)]
        part = train(tmp_path / f"part_{seed}", stopped, data, "last")
        wanted = part.run.of_seed(part.carry.state, seed)
        tiny.assert_same(together.run.of_seed(together.carry.state, seed), wanted)


def test_the_last_stage_goes_by_the_runs_own_rule(tmp_path, values):
    data = tiny.problem(num_validation=40)
    values(VALUES)
    # The last stage leaves the state as it is, so that its rule sees one value: that of the epoch
    # with the highest AUC, which the least risk would not have handed on.
    state = train(tmp_path, [settings(selection="vpu_risk")], data, "proxy_auc")
    assert [loop_state.rule(state.run, index) for index in (0, 1)] == ["proxy_auc", "vpu_risk"]
    assert state.position.best_values == (max(VALUES[:4]),)


@pytest.mark.parametrize(("numbers", "epochs"), [((0.3, 0.9), 4), ((0.9, 0.3), 3)])
def test_the_last_epoch_of_a_stage_is_evaluated_too(tmp_path, values, numbers, epochs):
    data = tiny.problem(num_validation=40)
    values(numbers)
    whole = train(tmp_path / "whole", [settings(eval_every=3)], data, "proxy_auc")
    values((0.0,) * 4)
    part = train(tmp_path / "part", [settings(stop_after_epoch=epochs)], data, "last")
    tiny.assert_same(whole.reported(0), part.carry.state)
