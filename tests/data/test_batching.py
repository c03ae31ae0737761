"""Batches: a pure function of key, epoch and step; every example once; support seen evenly."""

import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from pujax.data import batching
from pujax.data.batching import Batching
from pujax.data.flat_images import FlatImages

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def plan(key=0, n=103, support=25, **sizes):
    sizes = {"batch_size": 10, "support_batch_size": 8} | sizes
    labeled = np.arange(n) % 5 == 1
    return batching.epoch_plan(
        jax.random.key(key),
        labeled,
        num_labeled=int(labeled.sum()),
        num_support=support,
        batching=Batching(**sizes),
    )


def test_an_epoch_sees_each_example_at_most_once_and_drops_the_partial_batch():
    ids = np.asarray(plan().ids)
    assert ids.shape == (10, 10)
    assert len(np.unique(ids)) == 100
    assert ids.min() >= 0 and ids.max() < 103


def test_support_examples_are_seen_equally_often_within_one():
    seen = np.asarray(plan().support)
    assert seen.shape == (10, 8)
    counts = np.bincount(seen.ravel(), minlength=25)
    assert counts.min() >= 3 and counts.max() <= 4  # 80 draws over 25 examples


def test_no_support_batches_without_a_size():
    assert plan(support_batch_size=0, support=0).support.shape == (10, 0)


def test_a_batch_without_support_holds_none(example_data):
    order = batching.EpochPlan(np.zeros([1, 2], np.int32), np.zeros([1, 0], np.int32))
    batch = batching.gather(example_data, order, 0, epoch=0, step=0)
    assert batch.support_inputs is None and batch.support_labels is None


def test_separate_batches_hold_the_asked_number_of_positives_first_and_cycle_through_p():
    order = plan(num_positives=4)  # P are the 21 ids that leave 1 modulo 5; 10 steps take 40
    ids = np.asarray(order.ids)
    assert ids.shape == (10, 10)
    assert (ids[:, :4] % 5 == 1).all() and (ids[:, 4:] % 5 != 1).all()
    seen = np.bincount(ids[:, :4].ravel(), minlength=103)[1::5]
    assert set(seen) == {1, 2}  # 40 draws from 21
    assert len(np.unique(ids[:, 4:])) == 60  # U is not exhausted, so no id comes twice
    np.testing.assert_array_equal(order.labeled, [1] * 4 + [0] * 6)


def test_the_pool_of_all_holds_labelled_positives_which_then_count_as_unlabeled(example_data):
    order = plan(n=40, support=6, num_positives=5, pool="all", steps=8)
    assert (np.asarray(order.ids)[:, 5:] % 5 == 1).any()
    assert sorted(np.asarray(order.ids)[:, 5:].ravel()) == list(range(40))  # 8 x 5, each once
    batch = batching.gather(example_data, order, 0, epoch=0, step=0)
    np.testing.assert_array_equal(batch.labeled, [1] * 5 + [0] * 5)


def test_a_fixed_number_of_steps_goes_round_the_data_again():
    ids = np.asarray(plan(steps=25).ids)
    assert ids.shape == (25, 10)
    assert set(np.bincount(ids.ravel(), minlength=103)) == {2, 3}  # 250 draws from 103


def test_order_depends_on_the_key_and_on_nothing_else():
    np.testing.assert_array_equal(plan(1).ids, plan(1).ids)
    assert not np.array_equal(plan(1).ids, plan(2).ids)


def test_gather_looks_up_rows(example_data):
    order = plan(n=40, support=6)
    batch = batching.gather(example_data, order, 2, epoch=3, step=7)
    ids = np.asarray(order.ids[2])
    np.testing.assert_array_equal(batch.inputs, np.asarray(example_data.inputs)[ids])
    np.testing.assert_array_equal(batch.labeled, np.asarray(example_data.labeled)[ids])
    support = np.asarray(order.support[2])
    np.testing.assert_array_equal(
        batch.support_labels, np.asarray(example_data.support_labels)[support]
    )
    assert (int(batch.epoch), int(batch.step)) == (3, 7)
    assert float(batch.progress) == 3.5  # the third of four steps begins


@pytest.fixture
def example_data():
    rng = np.random.default_rng(0)
    return batching.TrainingData(
        inputs=jax.numpy.asarray(rng.integers(0, 256, [40, 3, 3, 1], np.uint8)),
        labeled=jax.numpy.asarray(np.arange(40) < 9),
        support_inputs=jax.numpy.asarray(rng.integers(0, 256, [6, 3, 3, 1], np.uint8)),
        support_labels=jax.numpy.asarray(np.float32([0, 1, 0, 1, 1, 0])),
    )


@pytest.mark.thorough
@pytest.mark.parametrize("module", ["batching", "streaming", "pu_dataset"])
def test_what_training_imports_does_not_import_scikit_learn(module):
    code = f"import sys, pujax.data.{module}; assert 'sklearn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY)


@pytest.mark.parametrize("batch_size", [1, 7, 16, 40, 100])
def test_map_batches_equals_one_call(batch_size):
    inputs = jax.numpy.asarray(np.arange(40, dtype=np.float32).reshape(40, 1))
    seen = []

    def function(x):
        seen.append(x.shape)
        return {"double": 2 * x, "row": x[:, 0]}

    result = batching.map_batches(function, inputs, batch_size=batch_size)
    np.testing.assert_array_equal(result["double"], 2 * inputs)
    np.testing.assert_array_equal(result["row"], inputs[:, 0])
    assert len(set(seen)) == 1  # one shape, one compilation


@pytest.mark.parametrize("one_call", [True, False])
@pytest.mark.parametrize(
    ("rows", "batch_size", "message"),
    [
        (5, 0, "^batch_size is 0; accepted: an integer from 1"),
        (5, 2.5, "^batch_size is 2.5; accepted: an integer from 1"),
        (0, 4, r"^inputs has shape \(0, 2\); accepted: at least one row"),
    ],
)
def test_batches_that_cannot_be_are_refused(rows, batch_size, message, one_call):
    inputs = np.ones([rows, 2], np.float32)
    with pytest.raises(ValueError, match=message):
        batching.map_batches(scored, inputs, batch_size=batch_size, args=(1.0,), one_call=one_call)


def split_rows(*, num_devices, images=False):
    """Rows 0 to 39, or images of them as bytes, copied on devices."""
    rows = np.arange(40 * 12, dtype=np.uint8 if images else np.float32).reshape(40, 12)
    inputs = FlatImages(rows, (2, 2, 3)) if images else rows
    mesh = Mesh(np.asarray(jax.devices()[:num_devices]), ("data",))
    return jax.device_put(inputs, NamedSharding(mesh, PartitionSpec()))


@jax.jit
def scored(weight, inputs):
    flat = inputs.reshape(len(inputs), -1).astype("float32")
    return {"sum": weight * flat.sum(1), "rows": flat}


@pytest.mark.parametrize(
    "batch_size", [7, *(pytest.param(x, marks=pytest.mark.thorough) for x in (1, 16, 39, 40, 100))]
)
@pytest.mark.parametrize(("num_devices", "images"), [(1, False), (4, True)])
def test_one_call_over_all_batches_equals_a_call_for_each(batch_size, num_devices, images):
    inputs = split_rows(num_devices=num_devices, images=images)
    options = {"batch_size": batch_size, "args": (0.5,)}
    expected = batching.map_batches(scored, inputs, one_call=False, **options)
    found = batching.map_batches(scored, inputs, one_call=True, **options)
    jax.tree.map(np.testing.assert_array_equal, found, expected)
    assert found["rows"].shape == (40, 12)


def test_one_call_is_one_program_that_holds_a_batch_at_a_time():
    inputs, shapes = split_rows(num_devices=4), []

    @jax.jit
    def function(weight, batch):
        shapes.append(batch.shape)
        return weight * batch

    for weight in (1.0, 2.0):
        result = batching.map_batches(
            function, inputs, batch_size=12, args=(weight,), one_call=True
        )
        np.testing.assert_array_equal(result, weight * np.asarray(inputs))
    assert shapes == [(12, 12)]  # traced once, for both calls and the rows that are left over
    run = batching._compiled_over_batches(function, 12, batching._split_of(inputs, 12))
    assert run._cache_size() == 1
    (loop,) = jax.make_jaxpr(run)((1.0,), inputs).jaxpr.eqns
    program = str(loop.params["jaxpr"])
    assert "length=4" in program and program.count("mul ") == 1


def test_a_batch_is_split_where_the_devices_can_share_it_evenly():
    inputs = split_rows(num_devices=4)
    assert batching._split_of(inputs, 12) == NamedSharding(
        inputs.sharding.mesh, PartitionSpec(("data",))
    )
    assert batching._split_of(inputs, 10) is None


def test_one_call_is_chosen_by_the_device_and_for_compiled_functions(monkeypatch):
    inputs, calls = split_rows(num_devices=1), []
    run = batching._compiled_over_batches
    monkeypatch.setattr(
        batching, "_compiled_over_batches", lambda *key: calls.append(key) or run(*key)
    )
    batching.map_batches(scored, inputs, batch_size=16, args=(1.0,))
    assert not calls  # a CPU
    monkeypatch.setattr(batching.accelerator, "loops_beat_calls", lambda: True)
    batching.map_batches(lambda x: scored(1.0, x), inputs, batch_size=16)
    assert not calls  # a new function every time would be compiled every time
    batching.map_batches(scored, inputs, batch_size=16, args=(1.0,))
    assert len(calls) == 1


def test_inside_of_a_compiled_function_all_batches_are_one_loop():
    inputs = split_rows(num_devices=1)

    @jax.jit
    def total(inputs):
        return batching.map_batches(lambda x: 2 * x, inputs, batch_size=16, one_call=True)

    np.testing.assert_array_equal(total(inputs), 2 * np.asarray(inputs))
    assert "scan" in str(jax.make_jaxpr(total)(inputs))


@pytest.mark.thorough
def test_every_shuffle_is_another_one_and_nothing_shares_an_order():
    order = plan(n=20, support=20, batch_size=5, support_batch_size=5, steps=8)
    ids, support = np.asarray(order.ids).ravel(), np.asarray(order.support).ravel()
    assert sorted(ids[:20]) == sorted(ids[20:]) == list(range(20))
    assert not np.array_equal(ids[:20], ids[20:])
    assert not np.array_equal(support[:20], support[20:])
    assert not np.array_equal(ids, support)
    # Ten positives and ten others, drawn five and five: their places in P and in U.
    apart = batching.epoch_plan(
        jax.random.key(0),
        jax.numpy.arange(20) < 10,
        num_labeled=10,
        num_support=0,
        batching=Batching(10, num_positives=5),
    )
    places = np.asarray(apart.ids)
    assert not np.array_equal(places[:, :5], places[:, 5:] - 10)


def test_progress_of_a_stage_counts_from_its_first_epoch(example_data):
    order = plan(n=40, support=6)
    batch = batching.gather(example_data, order, 3, epoch=5, step=23, first_epoch=2)
    numbers = (batch.epoch, batch.step, batch.progress, batch.stage_epoch, batch.stage_progress)
    assert tuple(map(float, numbers)) == (5, 23, 5.75, 3, 3.75)  # the last of four steps begins


def test_progress_of_a_late_stage_is_as_exact_as_that_of_an_early_one(example_data):
    order = plan(n=40, support=6)
    late = batching.gather(example_data, order, 3, epoch=2**24 + 2, step=23, first_epoch=2**24)
    assert float(late.stage_progress) == 2.75  # of 2**24 + 2.75 no fraction is left
