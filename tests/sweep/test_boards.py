"""The plans of the two public boards: counts, overlap, priors and held-out parts of their data."""

import numpy as np
import pytest

from pujax import methods, sweep
from pujax.configs.sweeps import pu_bench, pubench
from pujax.data import dataset, raw, sources
from pujax.data.splits import oracle_posterior
from pujax.sweep import plan as plan_lib
from pujax.sweep import runner
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup
from pujax.training.config import data_section
from tests import tiny
from tests.conftest import real_data_folder

CLASSES = 10
TABLES = ("mushrooms", "spambase", "connect4", "usps", "letter")


def source(per_class, classes=CLASSES):
    """Examples whose input is their row, so many of every class."""
    labels = np.repeat(np.arange(classes), per_class).astype(np.int32)
    inputs = np.arange(len(labels), dtype=np.float32)[:, None]
    test = np.arange(classes, dtype=np.int32)
    names = tuple(map(str, range(classes)))
    rows = (inputs, labels, inputs[:classes], test)
    return raw.RawDataset("made", *rows, class_names=names, mean=(0.0,), std=(1.0,))


def rows_of(name):
    """The classes of a named source; the input of an example is its row."""
    absent = sources.without_data(name)
    train, test = (
        np.arange(len(labels), dtype=np.float32)[:, None]
        for labels in (absent.train_labels, absent.test_labels)
    )
    return absent._replace(train_inputs=train, test_inputs=test, mean=(0.0,), std=(1.0,))


def problem(data, cell, seed):
    return dataset.build(data, seed=seed, **data_section.settings(cell.config.data))


def cell_of(plan, row):
    return next(cell for cell in plan.cells if cell.row == row)


@pytest.mark.parametrize("seed", [0, 5])
def test_board_a_one_sample_counts(seed):
    cell = cell_of(pubench.get_plan("set=3,case=1"), "nnpu")
    found = problem(source(5000), cell, seed)
    # 6,000 of 20,000 are labelled, a tenth of both parts is held out.
    assert (found.info.n_p, found.info.n_u) == (5400, 12_600)
    assert (found.validation_labeled.sum(), (~found.validation_labeled).sum()) == (600, 1400)
    assert found.info.prior == pytest.approx(0.5, abs=1e-3)
    assert found.info.prior_unlabeled == pytest.approx(0.286, abs=1e-3)
    ids = np.concatenate([found.source_ids, found.validation_ids])
    assert len(ids) == len(np.unique(ids)) == 20_000  # P and U share no example
    np.testing.assert_array_equal(np.bincount(ids // 5000), [2000] * CLASSES)
    labeled = found.source_ids[found.labeled] // 5000
    counts = np.bincount(labeled, minlength=CLASSES)
    np.testing.assert_array_equal(counts[[0, 1, 2, 8, 9]], [1080] * 5)
    assert counts.sum() == 5400


def test_board_a_two_sample_counts():
    cell = cell_of(pubench.get_plan("set=8,case=2"), "nnpu")
    found = problem(source(5000), cell, 0)
    assert (found.info.setting, found.info.n_p, found.info.n_u) == ("two_sample", 5400, 12_600)
    assert found.info.prior == found.info.prior_unlabeled == 0.5
    assert found.truth[~found.labeled].mean() == 0.5
    assert found.validation_labeled.sum() == 600 and len(found.validation_labeled) == 2000
    assert len(np.unique(found.source_ids)) == len(found.source_ids)
    positive, negative = [2, 3, 5, 7, 9], [0, 1, 4, 6, 8]
    for kept, labeled, ids in (
        (0.9, found.labeled, found.source_ids),
        (0.1, found.validation_labeled, found.validation_ids),
    ):
        p, u = (np.bincount(ids[rows] // 5000, minlength=CLASSES) for rows in (labeled, ~labeled))
        # 6,000 P in five classes, and 14,000 U in ten.
        np.testing.assert_array_equal(p[positive], [1200 * kept] * 5)
        np.testing.assert_array_equal(p[negative], [0] * 5)
        np.testing.assert_array_equal(u, [1400 * kept] * CLASSES)


@pytest.mark.parametrize(
    ("data", "labels", "count"),
    [("cifar10", 0.1, 1980), ("mnist", 0.1, 2919), ("mushrooms", 0.1, 310), ("spambase", 0.1, 143)],
)
def test_board_b_labels_a_share_of_the_positives_that_stay(data, labels, count):
    assert pu_bench.num_labeled(data, labels) == count


def test_board_b_keeps_the_labelled_in_u():
    cell = cell_of(pu_bench.get_plan("data=cifar10"), "nnpu")
    found = problem(source(5000), cell, 42)
    assert (found.info.n_p, found.info.n_u) == (1980, 49_500)
    labeled, unlabeled = found.source_ids[found.labeled], found.source_ids[~found.labeled]
    assert len(np.intersect1d(labeled, unlabeled)) == 1980
    assert len(np.unique(unlabeled)) == 49_500
    share = found.truth[~found.labeled].mean()
    assert found.info.prior == found.info.prior_unlabeled == pytest.approx(share)
    assert share == pytest.approx(0.4, abs=0.002)
    held = np.unique(found.validation_ids)
    assert len(held) == 500 and not np.isin(held, unlabeled).any()
    assert set(np.unique(labeled // 5000)) == {0, 1, 8, 9}


def test_board_b_in_one_sample_takes_the_labelled_out_of_u():
    cell = cell_of(pu_bench.get_plan("data=cifar10,setting=one_sample,labels=0.5"), "nnpu")
    found = problem(source(5000), cell, 42)
    assert (found.info.n_p, found.info.n_u) == (9900, 39_600)
    assert len(np.unique(found.source_ids)) == 49_500
    hidden = found.truth[~found.labeled].sum()
    assert found.info.prior == pytest.approx((9900 + hidden) / 49_500)
    assert found.info.prior_unlabeled == pytest.approx(hidden / 39_600)


@pytest.mark.parametrize("name", ["scar", "lbe_a", "lbe_b", "pusb", "pusb_drawn"])
def test_board_b_labels_by_what_its_mechanisms_say(name):
    """The smallest chance among the positives of mushrooms, of which the linear model is sure."""
    data = sources.load("mushrooms", directory=real_data_folder("libsvm"))
    plan = pu_bench.get_plan(f"labeling={name},labels=0.05,part=main")
    plan_lib.check(plan)
    cell = cell_of(plan, "nnpu")
    found = problem(data, cell, 2)
    assert found.info.n_p == 155 and found.labeling.mechanism == cell.config.data.labeling
    r = oracle_posterior.fit(data.train_inputs, data.train_labels, seed=2)
    weights = {
        "scar": np.ones_like,
        "lbe_a": lambda r: 0.9 * r**10 / (r**10).sum() + 0.1 / len(r),
        "lbe_b": lambda r: (2.5 - r) ** 10,
        "pusb_drawn": lambda r: r,
        "pusb": lambda r: r >= np.sort(r)[-155],
    }[name]
    positives = np.unique(found.source_ids[found.truth == 1])
    e = weights(r[positives]).astype(float)
    assert found.labeling.e_min == pytest.approx(e.min() / e.max(), rel=1e-6)
    assert e.min() / e.max() < (1.1 if name == "scar" else 0.95)
    # Which were labelled: the mean weight is that of a draw by these weights, which is larger.
    labeled = np.isin(positives, found.source_ids[found.labeled])
    assert labeled.sum() == 155
    by_weight, drawn = np.average(e, weights=e), np.mean(e[labeled])
    error = np.sqrt(np.average((e - by_weight) ** 2, weights=e) / 155)
    assert drawn == pytest.approx(by_weight, abs=4 * error + 1e-9)


def test_board_b_labels_what_the_posterior_says():
    """Overlapping classes: certain positives under lbe_a and pusb, doubtful ones under lbe_b."""
    rng = np.random.default_rng(0)
    labels = np.repeat([0, 1], [3367, 3133]).astype(np.int32)
    made = source(3367, classes=2)
    inputs = (labels + rng.normal(size=len(labels)))[:, None].astype(np.float32)
    made = made._replace(train_inputs=inputs, train_labels=labels)
    means = {}
    for name in ("scar", "lbe_a", "lbe_b", "pusb", "pusb_drawn"):
        found = problem(made, cell_of(pu_bench.get_plan(f"labeling={name}"), "nnpu"), 2)
        means[name] = inputs[found.source_ids[found.labeled]].mean()
    # 310 labelled of deviation 1 around 1: an error of 0.06.
    assert means["scar"] == pytest.approx(1, abs=0.23)
    assert means["pusb"] > means["lbe_a"] > means["pusb_drawn"] > means["scar"] + 0.1
    assert means["lbe_b"] < means["scar"] - 0.2


@pytest.mark.parametrize("changed", ["labels=0.3", "setting=one_sample", "labeling=pusb"])
def test_board_b_has_published_rows_by_default_alone(changed):
    assert any(cell.published for cell in pu_bench.get_plan("data=mnist").cells)
    plan = pu_bench.get_plan(f"data=mnist,{changed}")
    assert not any(cell.published for cell in plan.cells)
    assert plan.title != pu_bench.get_plan("data=mnist").title


@pytest.mark.parametrize(
    "name", ["mushrooms", "mnist", "fashion_mnist", "cifar10", "spambase", "connect4"]
)
def test_counts_of_board_b_are_those_of_the_sources(name):
    data = sources.without_data(name)  # of which other tests compare the sizes with the files
    cell = cell_of(pu_bench.get_plan(f"data={name}"), "nnpu")
    positive = np.isin(data.train_labels, cell.config.data.positive_classes)
    assert (positive.sum(), len(positive)) == pu_bench.COUNTS[name]


@pytest.mark.parametrize(
    "plan",
    [
        *(pu_bench.get_plan(f"data={name}") for name in pu_bench.COUNTS),
        pu_bench.get_plan("data=mushrooms,labels=0.5,part=main"),
        *(pubench.get_plan(f"data={name},set={k}") for name in pubench.SIZES for k in (1, 8)),
        pubench.get_plan("data=cifar10,set=10"),
    ],
    ids=lambda plan: plan.title,
)
def test_every_cell_of_a_board_is_accepted(plan):
    plan_lib.check(plan)
    assert isinstance(plan, sweep.Plan) and plan.reference == "nnpu" and plan.costs
    for cell in plan.cells:
        config = config_lib.resolve(cell.config)
        assert config.data.num_validation > 0, cell.name
        rows = config.data.source in TABLES
        assert not (rows and config.method.get("augment", False)), cell.name


@pytest.mark.parametrize(
    ("plan", "made"),
    [
        (pubench.get_plan("data=cifar10,set=3,case=1"), source(2000)),
        (pubench.get_plan("data=usps,set=8"), rows_of("usps")),
        (pu_bench.get_plan("data=cifar10"), source(600)),
        (pu_bench.get_plan("data=spambase"), rows_of("spambase")),
    ],
    ids=("pubench-cifar10", "pubench-usps", "pu_bench-cifar10", "pu_bench-spambase"),
)
def test_all_rows_of_a_board_train_on_one_split_per_seed(plan, made, monkeypatch):
    """In PUBench the method's name is in the seed of the split: differences are unpaired there."""
    monkeypatch.setattr(sources, "load", lambda *args, **options: made)
    plan = plan._replace(seeds=plan.seeds[:2])
    rows, with_support = {}, set()
    for cell in plan.cells:
        for config in runner._resolve(cell, plan):  # as a sweep trains them
            found = experiment.load_data(config)
            if found.info.n_support:  # taken out of P and U
                with_support.add(cell.row)
                continue
            split = (config.seed, found.digest(), found.info)
            rows.setdefault(split, []).append(cell.row)
    assert [seed for seed, *_ in rows] == list(plan.seeds)
    assert len({digest for _, digest, _ in rows}) == 2
    without = [cell.row for cell in plan.cells if cell.row not in with_support]
    assert len(without) > 10 and list(rows.values()) == [without, without]
    # On PU-Bench's images LaGAM has examples of known class; elsewhere it has pseudo-negatives.
    assert with_support == ({"lagam"} if plan.title.startswith("PU-Bench, cifar10") else set())


def test_rows_that_are_not_the_method_say_so_and_published_figures_where_they_are_from():
    noted = {cell.row for cell in pubench.get_plan().cells if "the board" in cell.note}
    assert noted == {"robust_pu", "lbe", "holistic_pu", "pulda", "cvir", "dist_pu"}
    images, tables = (pu_bench.get_plan(f"data={name}") for name in ("mnist", "mushrooms"))
    for plan, source in ((images, "the paper"), (tables, "one seed")):
        for cell in plan.cells:
            assert (source in cell.note) == (cell.published is not None), cell.name
    assert cell_of(images, "lbe").published == cell_of(images, "lbe, P kept").published
    assert cell_of(images, "lbe").published == (97.23, None)
    assert "'lbe, P kept'" in cell_of(tables, "lbe").note
    for row, kept in (("lbe", False), ("lbe, P kept", True)):
        assert cell_of(tables, row).config.method.keep_positives is kept
    one_sample, two_sample = (pubench.get_plan(f"set={k}") for k in (3, 8))
    for row, mode, figure in (("upu", "auto", 86.48), ("upu, not calibrated", "none", 82.04)):
        cell = cell_of(one_sample, row)
        assert (cell.config.method.calibration, cell.published[0]) == (mode, figure)
    assert "upu, not calibrated" not in {cell.row for cell in two_sample.cells}
    assert "500 examples of known class" in cell_of(images, "lagam").note
    assert cell_of(pu_bench.get_plan("data=mnist,labels=0.5"), "lbe").published is None
    for plan in ("data=letter", "data=usps", "set=4", "case=2"):
        cells = pubench.get_plan(plan).cells
        assert not any(cell.published or "published" in cell.note for cell in cells)
    assert "published: Dist-PU-c" in cell_of(pubench.get_plan(), "dist_pu").note


@pytest.mark.parametrize(
    "plan",
    [
        *(pu_bench.get_plan(f"data={name}") for name in pu_bench.COUNTS),
        *(pubench.get_plan(f"data={name}") for name in pubench.SIZES),
    ],
    ids=lambda plan: plan.title,
)
def test_every_method_of_one_label_has_a_row(plan):
    names = {name for name in methods.names() if not methods.is_multilabel(name)}
    rows = [cell.row for cell in plan.cells]
    # A method of each board has a second row, so that there are 26.
    second = {"lbe, P kept" if "PU-Bench" in plan.title else "upu, not calibrated"}
    assert set(rows) == names | second and len(rows) == len(names) + len(second) == len(set(rows))
    assert len(names) == 25
    assert "auc" in plan.also and {"accuracy", ""} & {plan.metric, *plan.also}  # '' is accuracy


@pytest.mark.parametrize("row", ["holistic_pu", "impulses", "lagam", "ncpu"])
def test_methods_made_for_views_train_on_the_tables_of_both_boards(row):
    for plan, data in (
        (pu_bench.get_plan("data=mushrooms"), rows_of("mushrooms")),
        (pubench.get_plan("data=usps,set=3"), rows_of("usps")),
        (pubench.get_plan("data=letter,set=8"), rows_of("letter")),
    ):
        cell = cell_of(plan, row)
        found = problem(data, cell, 2)
        assert found.info.is_table and found.info.n_support == 0  # no known negative
        setup = method_setup.build(config_lib.resolve(cell.config), found, tiny.mesh())
        assert setup.method.stages
    if row == "lagam":
        assert "pseudo-negatives" in cell.note and "known class" not in cell.note


@pytest.mark.parametrize(
    ("row", "steps"),
    [
        *(("nnpu", 19_908), ("dist_pu", 19_908), ("lbe", 21_336), ("cvir", 27_729)),
        *(("lagam", 19_908), ("ncpu", 19_908), ("impulses", 19_908), ("holistic_pu", 27_729)),
        ("self_pu", 19_908),  # without a clean set, which the board does not give
    ],
)
def test_board_a_trains_twenty_thousand_steps_or_what_its_plan_says(row, steps):
    cell = cell_of(pubench.get_plan("data=usps"), row)
    data = problem(rows_of("usps"), cell, 0)
    stages = method_setup.build(cell.config, data, tiny.mesh()).method.stages
    found = [stage.num_epochs * stage.batching.steps_per_epoch(3600) for stage in stages]
    assert sum(found) == steps


@pytest.mark.parametrize("data", ["usps", "cifar10"])
def test_board_a_has_one_optimizer_for_all_stages(data):
    """Rates of 1e-4 and less were a warm-up's, made for Adam, under SGD."""
    board = {"optimizer": "sgd", "learning_rate": 1e-3, "momentum": 0.9, "weight_decay": 0.0}
    board["lr_schedule"] = "constant"
    for cell in pubench.get_plan(f"data={data}").cells:
        fields = {**cell.config.method}
        if cell.row != "classic":  # which has no epochs
            assert {name: fields[name] for name in board} == board, cell.name
        assert fields.get("augment", data == "cifar10") == (data == "cifar10"), cell.name
        for name in ("warmup", "pretrain", "representation"):
            assert fields.get(f"{name}_learning_rate", 1e-3) == 1e-3, cell.name
            assert fields.get(f"{name}_weight_decay", 0.0) == 0, cell.name
            assert fields.get(f"{name}_lr_floor", 1.0) == 1, cell.name


@pytest.mark.parametrize("data", pubench.SIZES)
def test_board_a_has_a_resnet_32_for_images_and_one_hidden_layer_for_rows(data):
    networks = {cell.row: cell.config.model for cell in pubench.get_plan(f"data={data}").cells}
    if data == "cifar10":
        gradpu = networks.pop("gradpu")  # whose penalty needs a network without batch norm
        assert (gradpu.name, gradpu.options.to_dict()) == ("cnn13", {"batch_norm": False})
    for network in networks.values():
        options = network.options.to_dict()
        if data == "cifar10":
            # Two convolutions in every block, the first layer and the last.
            assert 2 * sum(options.pop("stage_sizes")) + 2 == 32
            assert (network.name, options) == ("resnet18_v1", {"width": 16, "stem": "cifar"})
        else:
            assert (network.name, options) == ("mlp", {"hidden": (500,)})


def test_board_a_has_upu_without_calibration_where_that_makes_a_difference():
    for number in range(1, 11):
        rows = {cell.row for cell in pubench.get_plan(f"set={number}").cells}
        assert ("upu, not calibrated" in rows) == (number <= 5)  # one-sample data


def test_board_a_has_the_logistic_loss_for_the_risks_it_has():
    losses = {cell.row: cell.config.method.get("loss") for cell in pubench.get_plan().cells}
    rows = ["naive", "upu", "upu, not calibrated", "nnpu", "imbalanced_nnpu", "pusb", "robust_pu"]
    rows += ["self_pu", "puupl", "purl", "impulses", "supervised"]
    assert {row for row, loss in losses.items() if loss} == set(rows)
    assert {losses[row] for row in rows} == {"logistic"}


@pytest.mark.parametrize("case", [1, 2])
@pytest.mark.parametrize(
    ("name", "positive", "labels", "total"),
    [
        ("letter", {1: "BVLRIOWSJKCHZ", 2: "DTAYQGBLIWJCZ"}, 3900, 13_000),
        ("usps", {1: "47958", 2: "16498"}, 1200, 4000),
    ],
)
def test_board_a_draws_equal_shares_of_all_classes_of_a_table(name, positive, labels, total, case):
    made = rows_of(name)
    is_positive = np.array([class_name in positive[case] for class_name in made.class_names])
    for number in (3, 8):
        cell = cell_of(pubench.get_plan(f"data={name},set={number},case={case}"), "nnpu")
        found = problem(made, cell, 0)
        ids = np.concatenate([found.source_ids, found.validation_ids])
        labeled = np.concatenate([found.labeled, found.validation_labeled])
        assert len(np.unique(ids)) == len(ids) == total and labeled.sum() == labels
        p, u = (
            np.bincount(made.train_labels[ids[rows]], minlength=len(is_positive))
            for rows in (labeled, ~labeled)
        )
        np.testing.assert_array_equal(p, np.where(is_positive, labels // is_positive.sum(), 0))
        share = total / len(is_positive)
        expected = share - p if number == 3 else np.full(len(p), (total - labels) / len(p))
        np.testing.assert_array_equal(u, expected)
        assert found.info.prior == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("name", ["letter", "usps"])
@pytest.mark.parametrize("number", [9, 10])
def test_board_a_refuses_the_sets_that_a_table_cannot_fill(number, name):
    with pytest.raises(ValueError, match=f"set is {number}; accepted: 1 to 8 with data={name}"):
        pubench.get_plan(f"data={name},set={number}")
    assert pubench.get_plan(f"data=cifar10,set={number}").cells


def test_board_a_keeps_the_shares_of_what_counts_epochs():
    fields = {cell.row: cell.config.method for cell in pubench.get_plan("data=usps").cells}
    own = config_lib.default_config("self_pu").method
    ratio = fields["self_pu"].num_epochs / own.num_epochs
    for name in ("pick_start", "pick_stop", "teacher_start", "consistency_ramp_epochs"):
        assert fields["self_pu"][name] == round(ratio * own[name])
    robust = fields["robust_pu"]  # 5 episodes by default
    episodes = (robust.num_epochs - robust.pretrain_epochs) / robust.episode_epochs
    assert int(episodes) == 5
    rounds = config_lib.default_config("puupl").method
    for name in pubench.SIZES:
        found = cell_of(pubench.get_plan(f"data={name}"), "puupl").config.method
        assert found.num_epochs / found.round_epochs == rounds.num_epochs / rounds.round_epochs


def test_board_a_leaves_out_of_set_5_what_needs_positives_in_u():
    plan = pubench.get_plan("data=usps,set=5")
    rows = {cell.row for cell in plan.cells}
    assert not rows & {"cvir", "dist_pu", "imbalanced_nnpu", "impulses", "pulda", "self_pu"}
    assert {cell.row for cell in pubench.get_plan("data=usps").cells} - rows and "nnpu" in rows
    for cell in plan.cells:
        data = problem(rows_of("usps"), cell, 0)
        assert data.info.prior_unlabeled == 0 and data.info.n_p == data.info.n_u == 1800
        method_setup.build(cell.config, data, tiny.mesh())


def test_board_b_budgets_are_the_boards():
    fields = {cell.row: cell.config.method for cell in pu_bench.get_plan("data=mnist").cells}
    cell = cell_of(pu_bench.get_plan("data=mnist"), "vpu")
    cell.config.model.name = "mlp"  # the made examples are a number each
    found = problem(source(6000), cell, 2)
    (stage,) = method_setup.build(cell.config, found, tiny.mesh()).method.stages
    assert (stage.batching.num_positives, stage.batching.batch_size) == (500, 1000)
    assert (fields["vpu"].learning_rate, fields["vpu"].mixup_weight) == (3e-5, 0.03)
    assert (fields["holistic_pu"].optimizer, fields["holistic_pu"].learning_rate) == ("sgd", 1e-2)
    assert fields["robust_pu"].pretrain_learning_rate == 1e-4
    assert (fields["supervised"].batch_size, fields["supervised"].num_epochs) == (128, 50)


def test_board_b_keeps_rates_that_defaults_have_left():
    plan = pu_bench.get_plan("data=spambase")
    section = {cell.row: cell.config.method for cell in plan.cells}

    assert section["purl"].learning_rate == 1e-3
    assert section["impulses"].head_learning_rate == 3e-4


def test_plans_are_found_by_their_names():
    for text, plan in (
        ("pu_bench:data=mnist", pu_bench.get_plan("data=mnist")),
        ("pubench:set=6", pubench.get_plan("set=6")),
    ):
        assert plan_lib.from_file(text).title == plan.title
