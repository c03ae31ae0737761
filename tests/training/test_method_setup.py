"""What a method may not report or be made of, since rows of a run could not tell it apart."""

import numpy as np
import pytest

from pujax import methods
from pujax.training import method_setup, row_names
from pujax.training.evaluation import binary
from tests import tiny

SMALL = {"model": "mlp", "options": {"hidden": (4,)}, "num_epochs": 1}


def built(monkeypatch, change):
    """Builds naive after a change of the method."""
    build = methods.build
    monkeypatch.setattr(methods, "build", lambda config, info: change(build(config, info)))
    return method_setup.build(tiny.config("naive", **SMALL), tiny.problem(), tiny.mesh())


def reporting(*names):
    """A change after which the step reports its loss by further names, too."""

    def change(method):
        (stage,) = method.stages

        def step(state, batch, key):
            state, metrics = stage.step(state, batch, key)
            return state, metrics | dict.fromkeys(names, metrics["loss"])

        return method._replace(stages=(stage._replace(step=step),))

    return change


def lasting(**lengths):
    """A change after which the method has stages of these names and lengths."""

    def change(method):
        (stage,) = method.stages
        stages = [stage._replace(name=k.strip("_"), num_epochs=v) for k, v in lengths.items()]
        return method._replace(stages=tuple(stages))

    return change


@pytest.mark.parametrize("name", ["step", "epoch", "seconds", "test_accuracy", "val_nnpu_risk"])
def test_a_metric_by_the_name_of_a_run_s_own_column_is_refused(monkeypatch, name):
    with pytest.raises(ValueError, match=f"^a metric of stage 'train' is '{name}'; accepted: name"):
        built(monkeypatch, reporting("loss_positive", name))


def test_other_names_of_metrics_are_kept(monkeypatch):
    setup = built(monkeypatch, reporting("loss_positive", "testing", "label_frequency"))
    assert setup.metric_names == [["label_frequency", "loss", "loss_positive", "testing"]]


def test_an_estimate_by_the_name_of_a_run_s_own_column_ends_the_run_before_its_row(
    monkeypatch, tmp_path
):
    def change(method):
        return method._replace(estimates=lambda state: {"test_accuracy": np.float32(1)})

    setup = built(monkeypatch, change)
    with pytest.raises(ValueError, match="^an estimate is 'test_accuracy'; accepted: names"):
        tiny.train_in(tmp_path, setup.config, tiny.problem(), setup=setup)
    assert not (tmp_path / "metrics.jsonl").exists()


def test_every_column_that_a_run_adds_is_refused_as_a_metric(tmp_path):
    data = tiny.problem(num_validation=40)
    method_config = tiny.config("naive", data={"num_validation": 40}, **SMALL)
    row = tiny.train_in(tmp_path, method_config, data)[1][0]
    labels = np.ones(len(data.labeled), np.float32)
    row |= binary.label_metrics(labels, data) | binary.label_gradient_metrics(labels, data)
    row |= binary.with_prior_error({"estimated_prior": 0.5}, data)
    own = set(row) - {"loss", "estimated_prior"}
    assert {"stage", "batches_without_positives", "val_proxy_auc", "prior_error"} < own
    for name in (*own, "seconds", "examples_per_second"):
        with pytest.raises(ValueError, match=f"^it is '{name}'; accepted"):
            row_names.check("it", [name])


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (
            {"train": 1, "train_": 2},
            "^name of a stage is 'train'; accepted: a name of its own for each of the stages "
            "'train', 'train'$",
        ),
        ({"a": 1, "b": 0, "c": 1}, "^num_epochs of stage 'b' is 0; accepted: an integer from 1$"),
        ({"a": 1.5}, "^num_epochs of stage 'a' is 1.5; accepted: an integer from 1$"),
    ],
)
def test_stages_of_one_name_and_empty_ones_are_refused(monkeypatch, lengths, message):
    with pytest.raises(ValueError, match=message):
        built(monkeypatch, lasting(**lengths))


def test_stages_of_two_names_are_accepted(monkeypatch):
    stages = built(monkeypatch, lasting(first=1, second=1)).method.stages
    assert [stage.name for stage in stages] == ["first", "second"]
