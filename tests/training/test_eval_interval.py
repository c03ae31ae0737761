import json
import math
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import ml_collections
import pytest

from pujax.configs import pu_mlc_voc
from pujax.models import convolution as convolution_lib
from pujax.sweep import runner
from pujax.sweep.plan import Cell, Plan
from pujax.training import method_setup, preemption
from pujax.training.evaluation import eval_interval
from pujax.training.evaluation.eval_interval import EvalInterval
from pujax.training.experiment import run_members
from pujax.training.seed_axis import Member
from tests import tiny

MLP = {"model": "mlp", "options": {"hidden": (16,), "batch_norm": False}}


def intervals(method="nnpu", *, eval_every=0, data=None, mesh=None, **changes):
    run = {"eval_every": eval_every} | changes.pop("run", {})
    config = tiny.config(method, run=run, **({"num_epochs": 40} | MLP | changes))
    data = tiny.problem() if data is None else data
    return method_setup.build(config, data, mesh or tiny.mesh()).eval_intervals


def array(*shape):
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def convolution(images, kernel):
    return jax.lax.conv_general_dilated(
        images, kernel, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )


def test_operations_of_products_are_counted_where_they_are():
    product = 2 * 3 * 4 * 5
    args = array(3, 4), array(4, 5)
    assert eval_interval.operations(jnp.dot, *args) == product
    assert eval_interval.operations(jax.jit(jnp.dot), *args) == product
    many = array(7, 3, 4), array(7, 4, 5)
    assert eval_interval.operations(jax.vmap(jnp.dot), *many) == 7 * product

    def rolled(a, b):
        return jax.lax.scan(lambda c, _: (c + jnp.dot(a, b).sum(), None), 0.0, None, length=6)[0]

    def either(a, b):
        return jax.lax.cond(a[0, 0] > 0, lambda: jnp.dot(a, b), lambda: jnp.zeros([3, 5]))

    assert eval_interval.operations(rolled, *args) == 6 * product

    def by_platform(a, b):
        twice = lambda a, b: jnp.dot(a, b) + jnp.dot(2 * a, b)  # noqa: E731
        return jax.lax.platform_dependent(a, b, cpu=twice, default=jnp.dot)

    assert eval_interval.operations(either, *args) == product
    assert eval_interval.operations(by_platform, *args) == product


def test_a_strided_convolution_costs_as_much_in_each_of_its_gradients():
    images, kernel = array(2, 9, 9, 3), array(3, 3, 3, 8)
    forward = 2 * (2 * 4 * 4 * 8) * (3 * 3 * 3)
    assert eval_interval.operations(convolution, images, kernel) == forward
    gradients = jax.grad(lambda *x: convolution(*x).sum(), argnums=(0, 1))
    found = eval_interval.operations(gradients, images, kernel)
    # The gradient of the images has places that the kernel does not reach: 9 * 9 / 4 for 4 * 4.
    assert found == pytest.approx(forward * (2 + 81 / 64), rel=1e-6)


def test_the_interval_keeps_evaluation_to_a_tenth_but_ten_times():
    # 200 test images of 64 pixels, and 12 batches of 16: the first layer has no gradient of inputs.
    forward, backward = 64 * 16 + 16, 64 * 16 + 2 * 16
    cost = 200 * forward / (12 * 16 * (forward + backward))
    (found,) = intervals()
    assert found.cost == pytest.approx(cost) and cost > 0.3
    assert found.every == 4  # of 40 epochs; a tenth alone would be 6
    (longer,) = intervals(num_epochs=100)
    assert longer == EvalInterval(6, found.cost)
    assert intervals(num_epochs=19)[0].every == 1


def test_calibration_and_other_predictions_are_counted():
    rows = SimpleNamespace(inputs=array(30, 4), labeled=range(30), test_labels=range(10))

    def cost(**parts):
        method = dict.fromkeys(("calibrate", "adjust", "alternatives"))
        method = SimpleNamespace(predict=lambda state, x: x @ state, **method | parts)
        return eval_interval._evaluation(method, array(4, 1), rows) / (2 * 4)  # products of a row

    assert cost() == 10
    assert cost(adjust=max) == 10 + 10  # scores before and after
    assert cost(calibrate=max) == 10 + 10 + 30  # of the training set, too
    assert cost(alternatives=dict.fromkeys("ab", lambda state, x: 3 * x @ state)) == 10 + 2 * 10


def test_it_does_not_depend_on_the_devices():
    assert intervals() == intervals(mesh=tiny.mesh(4))


@pytest.mark.parametrize("gradient", [False, True])
def test_it_does_not_depend_on_how_a_cpu_computes_a_layer_of_few_channels(monkeypatch, gradient):
    images, kernel = array(256, 28, 28, 1), array(5, 5, 1, 10)

    def convolve(images, kernel):
        layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
        padding = ((0, 0), (0, 0))
        return convolution_lib.conv_general_dilated(images, kernel, (1, 1), padding, **layout)

    found = set()
    for devices, backend in ((1, "cpu"), (2, "cpu"), (1, "gpu")):
        monkeypatch.setattr(jax, "device_count", lambda count=devices: count)
        monkeypatch.setattr(jax, "default_backend", lambda name=backend: name)
        function = jax.grad(lambda *x: convolve(*x).sum(), (0, 1)) if gradient else convolve
        found.add(eval_interval.operations(function, images, kernel))
    assert len(found) == 1 and min(found) >= 2 * (256 * 24 * 24 * 10) * 25


def test_a_number_is_kept_and_comparing_epochs_needs_all_of_them():
    assert intervals(eval_every=7)[0].every == 7
    held_out = tiny.problem(num_validation=40)
    assert intervals(data=held_out)[0].every == 1
    assert intervals(data=held_out, eval_every=3)[0].every == 3


@pytest.mark.thorough
def test_a_head_on_encoded_data_is_evaluated_less_often_than_its_pretraining():
    lengths = {"num_epochs": 140, "pretrain_epochs": 40}
    pretrain, head = intervals("impulses", **lengths)
    assert head.cost > 3 * pretrain.cost > 0
    assert pretrain.every <= 4 and head.every == 10


def test_published_protocols_that_report_the_best_epoch_evaluate_every_epoch():
    for data in ("voc", "coco"):
        assert pu_mlc_voc.get_config(f"data={data}").run.eval_every == 1


@pytest.mark.parametrize(("given", "expected"), [(0, 1), (5, 5)])
def test_a_sweep_evaluates_every_epoch_unless_its_plan_says_more(given, expected):
    config = ml_collections.ConfigDict(tiny.config("nnpu").to_dict())
    config.run.eval_every = given
    resolved = runner._resolve(Cell("row", "column", config), Plan("title", (), seeds=(0, 1)))
    assert [x.run.eval_every for x in resolved] == [expected] * 2


def trained(folder, eval_every):
    config = tiny.config(
        "nnpu", num_epochs=20, run={"eval_every": eval_every, "figures": False}, **MLP
    )
    data = tiny.problem()
    setup = method_setup.build(config, data, tiny.mesh())
    with preemption.StopRequest() as request:
        (summary,) = run_members([Member(setup, data, str(folder))], tiny.mesh(), request)
    return summary, [json.loads(x) for x in (folder / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.thorough
def test_a_run_says_why_and_ends_as_one_that_evaluates_every_epoch(tmp_path, capsys):
    every, all_rows = trained(tmp_path / "every", 1)
    assert "is evaluated every" not in capsys.readouterr().out
    seldom, rows = trained(tmp_path / "seldom", 0)
    text = capsys.readouterr().out
    assert text.count("Stage 'train' is evaluated every 2 epochs") == 1
    assert "--config.run.eval_every=1" in text
    assert [i for i, row in enumerate(rows) if "test_accuracy" in row] == [*range(1, 20, 2)]
    assert seldom["test"] == every["test"] and seldom["selections"] == every["selections"]
    assert [row["loss"] for row in rows] == [row["loss"] for row in all_rows]


def test_a_network_without_products_is_evaluated_every_epoch():
    assert eval_interval._every(math.nan, 100) == 1
