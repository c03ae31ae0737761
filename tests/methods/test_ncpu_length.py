"""NcPU in runs of other lengths: what 'auto' stands for, runs too short, and the chosen epoch."""

import functools
import logging
import re

import jax
import ml_collections
import numpy as np
import pytest

from pujax import methods
from pujax.configs import baseline
from pujax.configs import ncpu as ncpu_config
from pujax.data import dataset, raw
from pujax.data.batching import Batch
from pujax.methods._common import alignment
from pujax.methods.ncpu import length
from pujax.training import config as config_lib
from pujax.training import train_step
from pujax.training.config import data_section
from tests import tiny

STEPS = ("target_momentum", "threshold_momentum")
MOMENTA = ("label_momentum", "prototype_momentum", *STEPS)
PUBLISHED = {"warmup_epochs": 30, **dict.fromkeys(MOMENTA, 0.99)}
AUTO = dict.fromkeys(PUBLISHED, "auto")
# P and U of the published runs.
NUM_EXAMPLES = {"cifar10": 41_000, "cifar100": 41_000, "stl10": 91_000}


def section(**changes):
    """NcPU's fields, as a resolved configuration has them."""
    tree = config_lib.default_config("ncpu")
    tree.method.update(changes)
    return config_lib.resolve(tree).method


def numbers(num_examples, **changes):
    """What the fields that may be 'auto' stand for."""
    found = length.resolved(section(**changes), num_examples)
    return {name: found[name] for name in PUBLISHED}


def small(**changes):
    return tiny.config("ncpu", model="mlp", options={"hidden": (16,)}, **changes)


@functools.cache
def info(num_unlabeled=152):
    """Numbers of the tiny problem, 40 of P and 152 of U, or another size of U."""
    return tiny.problem().info._replace(n_u=num_unlabeled)


@pytest.mark.parametrize("task", NUM_EXAMPLES)
def test_the_published_runs_have_exactly_the_published_numbers(task):
    fields = config_lib.resolve(ncpu_config.get_config(f"task={task}")).method
    assert {fields[name] for name in PUBLISHED} == {"auto"} and fields.num_epochs == 1300
    found = length.resolved(fields, NUM_EXAMPLES[task])
    assert {name: found[name] for name in PUBLISHED} == PUBLISHED


@pytest.mark.parametrize("given", ["auto", "0.95", 0.95])
def test_a_momentum_is_a_number_or_the_word(given, monkeypatch):
    tree = tiny.shipped(monkeypatch, "ncpu", f"--config.method.target_momentum={given}")
    expected = "auto" if given == "auto" else 0.95
    assert config_lib.resolve(tree).method.target_momentum == expected
    assert section(target_momentum=given).target_momentum == expected  # as a sweep's --set


def test_small_configurations_keep_the_numbers_that_they_were_measured_with():
    for task, warmup, momentum in (("digits", 20, 0.93), ("fashion_mnist", 4, 0.99)):
        fields = config_lib.resolve(ncpu_config.get_config(f"task={task}")).method
        found = length.resolved(fields, 10_000)
        per_step = {found[name] for name in (*STEPS, "prototype_momentum")}
        assert (found.warmup_epochs, per_step) == (warmup, {momentum})


def test_fields_of_older_runs_stay_numbers():
    """Saved configurations have the published numbers in place of 'auto', at any length."""
    assert numbers(192, num_epochs=40, **PUBLISHED) == PUBLISHED
    assert length.resolved(section(learning_rate=1e-3), 1342).learning_rate == 1e-3


@pytest.mark.parametrize(
    ("num_examples", "changes", "rate"),
    [
        (41_000, {}, 1e-3),  # 160 steps in each of 30 epochs
        (1342, {}, 1e-2),  # 5 steps in each of 30: 150
        (20 * 256, {}, 1e-3),  # 20 steps in each of 30: 600
        (20 * 256 - 1, {}, 0.0010889308),  # 570: 0.001 (600 / 570)^1.660964
        (300, {}, 0.01),  # 1 step in each of 30
        (41_000, {"num_epochs": 130}, 0.0014486519),  # 160 steps in each of 3: 480
        (1342, {"warmup_epochs": 60}, 0.0031622777),  # 300
        (1342, {"warmup_epochs": 0}, 0.01),  # nothing to learn in
        (100, {}, 0.01),  # less than a batch
        (1342, {"learning_rate": 0.5}, 0.5),
    ],
)
def test_a_short_warm_up_has_a_higher_rate(num_examples, changes, rate):
    found = length.resolved(section(**changes), num_examples).learning_rate
    assert found == pytest.approx(rate, rel=1e-6)


def test_the_rate_that_is_found_is_said(caplog):
    method, data = methods.module("ncpu"), tiny.problem()
    tree = config_lib.resolve(small(num_epochs=20, learning_rate="auto"))
    with caplog.at_level(logging.INFO):
        method.build(tree, data.info)
        assert "method.learning_rate is 0.01: the warm-up has 12 steps" in caplog.text
        caplog.clear()
        given = config_lib.resolve(small(num_epochs=20, learning_rate=0.02))
        method.build(given, data.info)
    assert "learning_rate" not in caplog.text


def test_a_word_for_the_rate_does_not_carry_over_to_a_method_that_is_compared():
    config = baseline.get_config("method=ncpu,task=digits,backbone=mlp")
    other = config_lib.resolve(config_lib.to_compare(config, "nnpu")).method
    own = methods.module("nnpu").default_config()
    for field in ("learning_rate", "optimizer", "weight_decay", "lr_schedule"):
        assert other[field] == own[field]
    assert own.optimizer != config.method.optimizer and other.batch_size == 256
    config.method.learning_rate = 0.02
    other = config_lib.to_compare(config, "nnpu").method
    assert (other.learning_rate, other.optimizer) == (0.02, config.method.optimizer)
    beside = baseline.get_config("method=nnpu")
    back = config_lib.resolve(config_lib.to_compare(beside, "ncpu"))
    assert back.method.learning_rate == "auto" and back.method.target_momentum == "auto"
    # The rate that is found is one of SGD.
    published = methods.module("ncpu").default_config()
    for field in ("optimizer", "weight_decay", "lr_schedule"):
        assert back.method[field] == published[field] != beside.method[field]


def test_an_average_has_forgotten_where_it_began_at_the_end_of_any_run():
    for updates in (1, 10, 100, 458, 459, 208_000):
        momentum = alignment.paced(updates)
        assert momentum**updates <= 0.01 * (1 + 1e-9) and 0.01 <= momentum <= 0.99
    # ln 0.01 / ln 0.99 = 458.2: no momentum is lower than it has to be.
    assert alignment.paced(458) < 0.99 == alignment.paced(459)
    assert alignment.paced(100) == pytest.approx(0.954993, abs=1e-6)


def test_a_shorter_run_by_hand():
    # A tenth of the epochs: 3 of warm-up and 1 - 0.01 * 10; averages over steps stay.
    found = numbers(41_000, num_epochs=130)
    assert found["warmup_epochs"] == 3 and found["label_momentum"] == pytest.approx(0.9)
    assert [found[name] for name in (*STEPS, "prototype_momentum")] == [0.99] * 3
    # 20 epochs of 5 steps: 0.01 ^ (1 / 100) = 0.954993 per step. Of 25,600 examples 0.99.
    found = numbers(1442, num_epochs=20)
    assert [found[name] for name in STEPS] == pytest.approx([0.954993] * 2, abs=1e-6)
    assert found["prototype_momentum"] == 0.99
    # A step in all, of 4 examples: 0.01 ^ (1 / 4) = 0.316228.
    found = numbers(7, num_epochs=1, batch_size=4)
    assert [found[name] for name in STEPS] == pytest.approx([0.01] * 2)
    assert found["prototype_momentum"] == pytest.approx(0.316228, abs=1e-6)


@pytest.mark.parametrize(
    ("num_epochs", "warmup"), [(1, 0), (2, 1), (25, 1), (55, 1), (65, 2), (650, 15), (2600, 60)]
)
def test_the_warm_up_keeps_its_share_and_at_least_an_epoch_before_and_after(num_epochs, warmup):
    assert numbers(41_000, num_epochs=num_epochs)["warmup_epochs"] == warmup


def test_a_few_epochs_need_no_other_field():
    made = methods.build(small(num_epochs=25, **AUTO), info())
    assert made.diagnose({}) == []
    fields = methods.module("ncpu").default_config()
    methods.set_length(fields, 25)
    assert (fields.num_epochs, fields.warmup_epochs) == (25, "auto")
    fields.warmup_epochs = 8
    methods.set_length(fields, 50)
    assert fields.warmup_epochs == 16


@functools.cache
def stepped(num_unlabeled, **changes):
    """A state after steps in epochs 29 to 31, of a method built for so many examples."""
    data, mesh = tiny.problem(), tiny.mesh()
    tree = small(num_epochs=1300, batch_size=256, **changes)
    (stage,) = methods.build(tree, info(num_unlabeled)).stages
    arrays = data.training_data()
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, mesh)
    step = jax.jit(stage.step)
    for index in range(3):
        ids = np.arange(16) + 30 * index
        epoch, progress = np.int32(29 + index), np.float32(29 + index)
        batch = Batch(
            epoch=epoch,
            step=np.int32(index),
            progress=progress,
            stage_epoch=epoch,
            stage_progress=progress,
            ids=ids,
            inputs=arrays.inputs[ids],
            labeled=np.float32(arrays.labeled[ids]),
            support_inputs=None,
            support_labels=None,
        )
        state, _ = step(state, batch, jax.random.key(index))
    return state


def equal(one, other):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True)
    return all(np.array_equal(x, y) for x, y in pairs)


def test_at_the_published_length_a_state_is_that_of_the_published_numbers_bit_for_bit():
    published = stepped(40_960, **PUBLISHED)
    assert equal(stepped(40_960, **AUTO), published)
    shorter = stepped(152, **AUTO)  # no full batch, so that every average is of nothing
    assert not equal(shorter.target, published.target)
    assert not equal(shorter.prototypes, published.prototypes)
    assert not equal(shorter.threshold, published.threshold)


@pytest.mark.parametrize(
    ("num_epochs", "warmup", "needed"), [(100, 99, 105), (1300, 1299, 1372), (5, "auto", 71)]
)
def test_the_length_that_a_warning_names_is_the_smallest_that_is_enough(num_epochs, warmup, needed):
    momentum = 0.99 if warmup == "auto" else "auto"

    def said(epochs):
        changes = {"num_epochs": epochs, "warmup_epochs": warmup, "label_momentum": momentum}
        found = methods.build(small(target_momentum=0.5, **changes), info()).diagnose({})
        return re.findall(
            r"stored labels of unlabeled examples need (\d+) to pass", " ".join(found)
        )

    assert said(num_epochs) == said(needed - 1) == [str(needed)]
    assert said(needed) == []


@pytest.mark.parametrize(
    ("momentum", "epochs"), [(0.99, 69), (0.5, 1), (0.0, 1), (0.9, 7), (0.784, 3)]
)
def test_epochs_until_a_stored_label_turns(momentum, epochs):
    mass = 0.0
    for _ in range(epochs - 1):
        mass = momentum * mass + 1 - momentum
    assert mass < 0.5 <= momentum * mass + 1 - momentum + 1e-12
    assert length.epochs_to_turn(momentum) == epochs


def test_lengths_needed_are_those_that_trying_one_after_another_finds():
    def is_enough(fields, num_epochs):
        tree = ml_collections.ConfigDict({**fields, "num_epochs": num_epochs})
        momentum, epochs, mass = length.label_momentum(tree), 0, 0.0
        while mass < 0.5 - 1e-12:  # 1 - momentum^k, which may be one half exactly
            mass, epochs = momentum * mass + 1 - momentum, epochs + 1
        return length.warmup_epochs(tree) + epochs <= num_epochs

    for warmup in ("auto", 0, 3, 60):
        for momentum in ("auto", 0.0, 0.5, 0.95):
            for num_epochs in (1, 2, 13, 26, 61, 80):
                fields = {"warmup_epochs": warmup, "label_momentum": momentum}
                expected = num_epochs
                while not is_enough(fields, expected):
                    expected += 1
                tree = ml_collections.ConfigDict({**fields, "num_epochs": num_epochs})
                assert length.epochs_needed(tree) == expected, (fields, num_epochs)


def test_a_very_short_run_forgets_its_first_target_network_by_default():
    def said(momentum):
        tree = small(num_epochs=2, target_momentum=momentum, label_momentum=0.0)
        return [x for x in methods.build(tree, info()).diagnose({}) if "target network" in x]

    assert said("auto") == [] != said(0.99)  # 24 steps


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"warmup_epochs": 5}, r"method.warmup_epochs is 5.0; accepted: 'auto', or a number in \["),
        ({"warmup_epochs": -1}, r"method.warmup_epochs is -1.0; accepted: 'auto', or a number in"),
        (
            {"warmup_epochs": 1.5},
            "method.warmup_epochs is 1.5; accepted: 'auto', or a whole number",
        ),
        (
            {"warmup_epochs": "long"},
            r"method.warmup_epochs is 'long'; accepted: 'auto', or a number in \[0, 4\]",
        ),
        (
            {"target_momentum": 1.1},
            r"target_momentum is 1.1; accepted: 'auto', or a number in \[0, 1\]",
        ),
        (
            {"threshold_momentum": -0.1},
            r"threshold_momentum is -0.1; accepted: 'auto', or a number",
        ),
        (
            {"prototype_momentum": 1.0},
            r"prototype_momentum is 1.0; accepted: 'auto', .* in \[0, 1\)",
        ),
        *(
            (
                {"label_momentum": value},
                rf"label_momentum is {value!r}; accepted: 'auto', or a number in \[0, 1\)",
            )
            for value in (1.0, "slow", None, False)
        ),
    ],
)
def test_bad_lengths_and_momenta_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        methods.build(small(**changes), info())


def test_other_methods_that_align_take_numbers_alone():
    tree = config_lib.default_config("nnpu")
    with tree.ignore_type():
        tree.method.target_momentum = "auto"
    with pytest.raises(ValueError, match="method.target_momentum is 'auto'; accepted: a finite"):
        config_lib.resolve(tree)


def made(counts):
    """A source with so many examples by class, -1 for those of unknown class."""
    labels = np.repeat(list(counts), list(counts.values())).astype(np.int32)
    inputs = np.arange(len(labels), dtype=np.float32)[:, None]
    classes = max(counts) + 1
    test = np.arange(classes, dtype=np.int32)
    names = tuple(map(str, range(classes)))
    return raw.RawDataset(
        "made", inputs, labels, inputs[:classes], test, names, mean=(0.0,), std=(1.0,)
    )


@pytest.mark.parametrize(
    ("task", "counts", "sizes", "rule"),
    [
        ("cifar10", dict.fromkeys(range(10), 5000), (1000, 40_000, 500), "proxy_accuracy"),
        ("stl10", {-1: 100_000, **dict.fromkeys(range(10), 500)}, (1000, 90_000, 500), "proxy_auc"),
        ("digits", dict.fromkeys(range(10), 144), (100, 1240, 100), "vpu_risk"),
    ],
)
def test_an_epoch_is_chosen_on_a_part_held_out_beside_the_published_split(
    task, counts, sizes, rule
):
    tree = ncpu_config.get_config(f"task={task},selection={rule}")
    if task == "stl10":  # nobody knows it, and a validation set asks for one
        tree.data.prior = 0.5
    config = config_lib.resolve(tree)
    assert config.run.selection == rule
    data = dataset.build(made(counts), seed=0, **data_section.settings(config.data))
    assert (data.info.n_p, data.info.n_u, len(data.validation_ids)) == sizes
    assert data.validation_labeled.any() and not data.validation_labeled.all()
    assert not np.isin(data.validation_ids, data.source_ids).any()


@pytest.mark.parametrize("task", ["cifar10", "digits"])
@pytest.mark.parametrize("argument", ["", ",selection=last"])
def test_the_last_epoch_stays_the_rule_where_a_part_is_held_out(task, argument):
    tree = ncpu_config.get_config(f"task={task}{argument}")
    assert (tree.data.num_validation, config_lib.resolve(tree).run.selection) == (0, "last")
    tree.data.num_validation = 100
    assert config_lib.resolve(tree).run.selection == "last"


def test_without_a_rule_nothing_is_held_out_and_other_rules_are_refused():
    config = config_lib.resolve(ncpu_config.get_config("task=cifar10"))
    assert (config.data.num_validation, config.run.selection) == (0, "last")
    message = "config argument selection is 'oracle'; accepted: last, nnpu_risk, proxy_accuracy"
    with pytest.raises(ValueError, match=message):
        ncpu_config.get_config("selection=oracle")
