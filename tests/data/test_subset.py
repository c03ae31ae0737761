"""Training sets of chosen counts, labels by file order, sorts of labels; ImPULSeS's problems."""

import sys

import numpy as np
import pytest

from pujax.configs import common
from pujax.data import dataset
from pujax.data.raw import RawDataset
from pujax.data.sources import cifar100
from pujax.training import config as config_lib
from pujax.training import experiment
from tests import conftest
from tests.data import official_layouts

VEHICLES = (8, 13, 48, 58, 90, 41, 69, 81, 85, 89)  # of CIFAR-100's fine classes


def source(per_class, unknown=0):
    """Rows whose pixels are the row number, in mixed order."""
    labels = np.repeat(np.arange(len(per_class)), per_class).astype(np.int32)
    labels = np.random.default_rng(1).permutation(np.r_[labels, np.full(unknown, -1)])
    ids = np.arange(len(labels))
    inputs = np.stack([ids % 256, ids // 256], axis=1).astype(np.uint8)[:, None, :, None]
    names = tuple(map(str, range(len(per_class))))
    test_labels = np.arange(20, dtype=np.int32) % len(per_class)
    return RawDataset(
        "made", inputs, labels, inputs[:20], test_labels, names, mean=(0.5,), std=(0.5,)
    )


def build(raw=None, **changes):
    settings = {
        "positive_classes": (0, 3),
        "num_labeled": 8,
        "num_support": 0,
        "setting": "one_sample",
        "sampling": "stratified",
        "seed": 0,
    }
    return dataset.build(raw or source([50, 60, 70, 80, 90]), **(settings | changes))


def rule(labels, classes, kept, labeled):
    """The published rule in plain loops: keep the first of a class, label the last of those."""
    p, out = set(), set()
    for c in classes:
        rows = [row for row, label in enumerate(labels) if label == c]
        out.update(rows[kept:])
        p.update(rows[kept - labeled : kept])
    return sorted(p), sorted(set(range(len(labels))) - p - out)


def assert_rows(data, labeled, unlabeled):
    np.testing.assert_array_equal(data.source_ids[data.labeled], labeled)
    np.testing.assert_array_equal(data.source_ids[~data.labeled], unlabeled)


def rows_of(inputs):
    return inputs[:, 0, 0, 0].astype(int) + 256 * inputs[:, 0, 1, 0].astype(int)


def test_mean_and_deviation_stay_those_of_the_source_whatever_rows_stay():
    data = build(num_positives=40, num_negatives=60)
    assert len(data.inputs) == 100 and (data.info.mean, data.info.std) == ((0.5,), (0.5,))


def test_the_imbalanced_problem_of_cifar_100_by_file_order():
    fields = dict(common.TASKS["cifar100-imbalanced"])
    assert (fields.pop("source"), fields.pop("label_set")) == ("cifar100", "fine")
    raw = source([500] * 100)
    data = build(raw, **fields)
    assert_rows(data, *rule(raw.train_labels, VEHICLES, 500, 100))
    assert (data.info.n_p, data.info.n_u) == (1000, 49_000)
    assert data.counts()["hidden_positives"] == 4000
    assert data.info.prior_unlabeled == 4000 / 49_000 and data.info.prior == 5000 / 50_000
    names = {cifar100.CLASS_NAMES["fine"][c] for c in fields["positive_classes"]}
    assert names == {
        *("bicycle", "bus", "motorcycle", "pickup_truck", "train"),
        *("lawn_mower", "rocket", "streetcar", "tank", "tractor"),
    }


def test_the_imbalanced_problem_of_cifar_10_by_file_order():
    fields = dict(common.TASKS["cifar10-imbalanced"])
    assert fields.pop("source") == "cifar10" and fields["positive_classes"] == (0, 1, 8, 9)
    raw = source([5000] * 10)
    data = build(raw, **fields)
    assert_rows(data, *rule(raw.train_labels, (0, 1, 8, 9), 750, 150))
    assert (data.info.n_p, data.info.n_u) == (600, 32_400)
    assert data.info.prior_unlabeled == 2400 / 32_400 and data.info.prior == 3000 / 33_000
    drawn = build(raw, **fields | {"setting": "two_sample"})
    assert (drawn.info.n_p, drawn.info.n_u) == (600, 33_000)
    assert drawn.info.prior == drawn.info.prior_unlabeled == 3000 / 33_000


@pytest.fixture(scope="module")
def cifar10(tmp_path_factory):
    """A folder with the official files, and their training labels."""
    real = conftest.real_data_folder("cifar10")
    sys.path.insert(0, str(real))
    try:
        import load
    finally:
        sys.path.remove(str(real))
        sys.modules.pop("load", None)
    arrays, folder = load.load(), tmp_path_factory.mktemp("cifar10")
    load.write_binary(folder, arrays)
    return folder, arrays["train_x"], arrays["train_y"]


def problem(task, folder, **changes):
    """The data of a named task."""
    config = config_lib.default_config("naive")
    common.set_task(config, task)
    config.data.update({"dir": str(folder), **changes})
    return experiment.load_data(config_lib.resolve(config))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "kept", "labeled", "hidden"),
    [("cifar10-imbalanced", 750, 150, 2400), ("cifar10-balanced", 5000, 1000, 16_000)],
)
def test_the_published_problems_of_cifar_10_hold_the_published_rows(
    cifar10, task, kept, labeled, hidden
):
    folder, images, labels = cifar10
    data = problem(task, folder)
    p, u = rule(labels.tolist(), (0, 1, 8, 9), kept, labeled)
    assert_rows(data, p, u)
    np.testing.assert_array_equal(data.inputs, images[p + u])
    assert data.info.prior_unlabeled == hidden / (30_000 + hidden)
    assert data.info.prior == 4 * kept / (30_000 + 4 * kept)
    counts = data.counts()
    assert (counts["labeled"], counts["hidden_positives"]) == (4 * labeled, hidden)
    assert counts["unlabeled"] == 30_000 + hidden
    assert (counts["test"], counts["test_positives"]) == (10_000, 4000)


@pytest.mark.slow
def test_the_imbalanced_problem_as_case_control_data(cifar10):
    data = problem("cifar10-imbalanced", cifar10[0], setting="two_sample")
    assert (data.info.n_p, data.info.n_u) == (600, 33_000)
    assert data.info.prior == data.info.prior_unlabeled == 3000 / 33_000
    assert data.counts()["hidden_positives"] == 2400


def test_file_order_draws_nothing():
    counts = {"num_positives": 40, "num_negatives": 60}
    problems = [build(sampling="file_order", seed=seed, **counts) for seed in (0, 1)]
    assert problems[0].digest() == problems[1].digest()
    np.testing.assert_array_equal(problems[0].source_ids, problems[1].source_ids)


def test_by_file_order_the_lower_ids_give_what_does_not_divide():
    # Of 21 positives 11 and 10, of 7 labels 4 and 3; of 20 negatives 7, 7 and 6.
    raw = source([50, 60, 70, 80, 90])
    data = build(raw, sampling="file_order", num_labeled=7, num_positives=21, num_negatives=20)
    of = [np.flatnonzero(raw.train_labels == c) for c in range(5)]
    assert_rows(
        data,
        np.sort(np.r_[of[0][7:11], of[3][7:10]]),
        np.sort(np.r_[of[0][:7], of[3][:7], of[1][:7], of[2][:7], of[4][:6]]),
    )


def test_by_file_order_fewer_labels_than_classes_come_from_the_lower_ids():
    raw = source([50, 60, 70, 80, 90])
    data = build(raw, sampling="file_order", num_labeled=1)
    np.testing.assert_array_equal(
        data.source_ids[data.labeled], np.flatnonzero(raw.train_labels == 0)[-1:]
    )


@pytest.mark.parametrize("sampling", ["stratified", "uniform", "file_order"])
@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_as_many_of_every_class_stay_and_the_test_set_is_not_touched(setting, sampling):
    raw = source([50, 60, 70, 80, 90])
    data = build(raw, setting=setting, sampling=sampling, num_positives=40, num_negatives=120)
    per_class = np.bincount(raw.train_labels[np.unique(data.source_ids)])
    np.testing.assert_array_equal(per_class, [20, 40, 40, 20, 40])
    np.testing.assert_array_equal(rows_of(data.inputs), data.source_ids)
    np.testing.assert_array_equal(data.truth, np.isin(raw.train_labels[data.source_ids], (0, 3)))
    assert data.info.prior == 40 / 160
    in_u = 32 / 152 if setting == "one_sample" else 40 / 160
    assert data.info.prior_unlabeled == in_u
    np.testing.assert_array_equal(data.test_inputs, raw.test_inputs)
    assert data.counts()["test_positives"] == 8


def test_support_and_validation_are_cut_out_of_what_stays():
    raw = source([50, 60, 70, 80, 90])
    data = build(raw, num_positives=40, num_negatives=100, num_support=15, num_validation=30)
    parts = [data.source_ids, rows_of(data.support_inputs), rows_of(data.validation_inputs)]
    together = np.concatenate(parts)
    assert len(together) == len(set(together)) == 140
    assert np.isin(raw.train_labels[together], (0, 3)).sum() == 40
    counts = data.counts()
    assert (counts["support"], counts["validation"], counts["labeled"]) == (15, 30, 8)


def test_each_row_of_a_class_is_as_likely_to_stay_as_any_other():
    raw, hits = source([20, 20, 20, 20, 20]), np.zeros(100)
    for seed in range(300):
        hits[build(raw, num_positives=10, num_negatives=15, seed=seed).source_ids] += 1
    # 300 draws of a quarter: a standard error of 0.025, and 100 rows.
    np.testing.assert_allclose(hits / 300, 0.25, atol=5 * 0.025)


def test_a_split_of_its_own_seed_is_that_of_a_run_with_this_seed():
    drawn = {"num_positives": 40, "num_support": 6, "num_validation": 20}
    wanted = build(seed=7, **drawn)
    for seed in (0, 7, 9):
        assert build(seed=seed, split_seed=7, **drawn).digest() == wanted.digest()
    assert build(seed=9, **drawn).digest() != wanted.digest()
    assert build(seed=9, split_seed=-1, **drawn).digest() == build(seed=9, **drawn).digest()
    held = {"num_labeled": 0, "holdout": 0.25}
    parts = [build(seed=seed, split_seed=3, **held).validation_ids for seed in (0, 1)]
    np.testing.assert_array_equal(*parts)
    assert build(seed=0, **held).validation_ids.tolist() != parts[0].tolist()


@pytest.mark.parametrize("split_seed", [-2, 0.5, 2**31])
def test_a_split_seed_that_is_none_is_refused(split_seed):
    with pytest.raises(ValueError, match=f"data.split_seed is {split_seed}; accepted"):
        build(split_seed=split_seed)


def test_smaller_training_sets_are_parts_of_larger_ones():
    small, large, fewer = (
        set(build(num_positives=p, num_negatives=n).source_ids)
        for p, n in ((20, 60), (60, 90), (60, 60))
    )
    assert len(small) == 80 and small < fewer < large
    assert small != set(build(num_positives=20, num_negatives=60, seed=1).source_ids)


def test_a_small_class_is_topped_up_from_the_others_at_random_only():
    raw = source([5, 60, 70, 80, 90])
    data = build(raw, num_positives=41, num_labeled=4)
    np.testing.assert_array_equal(np.bincount(raw.train_labels[data.source_ids])[[0, 3]], [5, 36])
    with pytest.raises(
        ValueError, match="data.num_positives is 41, which is 21 of class 0; .*5 tr"
    ):
        build(raw, num_positives=41, num_labeled=4, sampling="file_order")
    with pytest.raises(ValueError, match="data.num_labeled is 12, which is 6 of class 0; accepted"):
        build(raw, num_labeled=12, sampling="file_order")


@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_samples_at_a_class_prior_are_drawn_from_what_stays(setting):
    raw = source([50, 60, 70, 80, 90])
    kept = {"num_positives": 60, "num_negatives": 90}
    drawn = {"num_unlabeled": 40, "class_prior": 0.25, "setting": setting}
    data = build(raw, **kept, **drawn)
    assert (data.info.n_p, data.info.n_u, data.info.prior_unlabeled) == (8, 40, 0.25)
    assert set(data.source_ids) <= set(build(raw, **kept, setting="two_sample").source_ids)
    with pytest.raises(
        ValueError, match="data.num_unlabeled is 140; accepted: at most .* positive"
    ):
        build(raw, **kept, **(drawn | {"num_unlabeled": 140}))


def test_biased_labels_are_those_of_what_stays():
    data = build(num_positives=60, num_negatives=90, labeling="power", labeling_power=2.0)
    assert data.truth[data.labeled].all()
    report = data.labeling
    assert (report.n_p, report.c, report.mechanism) == (8, 8 / 60, "power")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_positives": 131}, r"data.num_positives is 131; accepted: 0 \(all\), or 2 to 130"),
        (
            {"num_positives": 1, "num_labeled": 1},
            r"data.num_positives is 1; accepted: 0 \(all\), or 2 to 130",
        ),
        ({"num_negatives": 221}, r"data.num_negatives is 221; accepted: 0 \(all\), or 1 to 220"),
        ({"num_positives": -1}, "data.num_positives is -1; accepted"),
        ({"num_negatives": -1}, "data.num_negatives is -1; accepted"),
        (
            {"num_positives": 8, "num_labeled": 9},
            "data.num_labeled is 9; accepted: at most 8, which is data.num_positives",
        ),
        ({"num_positives": 20, "sampling": "first"}, "data.sampling is 'first'; accepted: 'strat"),
        ({"num_positives": 20, "positive_classes": (7,)}, "data.positive_classes is .* accepted"),
        ({"sampling": "file_order", "num_labeled": -1}, "data.num_labeled is -1; accepted"),
    ],
)
def test_counts_that_the_source_cannot_give_name_the_field(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**changes)


@pytest.mark.parametrize("field", ["num_positives", "num_negatives"])
def test_rows_of_unknown_class_cannot_be_counted_out(field):
    raw = source([50, 60, 70, 80, 90], unknown=10)
    with pytest.raises(ValueError, match=f"data.{field} is 20; accepted: 0 .* 10 of 360"):
        build(raw, **{field: 20})
    # They are unlabeled by file order as by any other.
    assert build(raw, sampling="file_order").counts()["unlabeled_without_truth"] == 10


@pytest.mark.parametrize("setting", dataset.SETTINGS)
@pytest.mark.parametrize("size", [0, 70])
def test_u_of_unknown_class_alone(setting, size):
    raw = source([50, 60, 70, 80, 90], unknown=100)
    options = {"setting": setting, "unlabeled_pool": "unknown_class", "num_unlabeled": size}
    found = build(raw, **options)
    labels = raw.train_labels[found.source_ids]
    assert found.info.n_p == 8 and found.info.n_u == (size or 100)
    assert set(labels[found.labeled]) == {0, 3} and set(labels[~found.labeled]) == {-1}
    assert len(np.unique(found.source_ids)) == found.info.n
    assert np.isnan(found.info.prior) and np.isnan(found.info.prior_unlabeled)
    other = build(raw, **options, seed=1)
    drawn, again = (set(x.source_ids[~x.labeled]) for x in (found, other))
    assert len(drawn) == len(again) and (drawn != again) == (size > 0)
    assert build(raw, **options, prior=0.3).info.prior_unlabeled >= 0.2
    # What is held out is of known class, 130 of 350 positive. In two-sample data its U is a sample
    # of those; in one-sample data it is what 10 labelled ones leave of 60, rounded class by class.
    held = build(raw, **options, prior=0.3, num_validation=60, validation_labeled=10)
    positives = held.validation_truth[~held.validation_labeled].sum()
    assert len(held.validation_truth) == 60
    assert positives == {"two_sample": round(50 * 130 / 350), "one_sample": 23 - 10}[setting]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "data.unlabeled_pool is 'unknown_class'; accepted: 'all', since the class of every"),
        ({"class_prior": 0.3}, "data.unlabeled_pool .* accepted: 'all' with data.class_prior=0.3"),
        ({"sampling": "file_order"}, "data.unlabeled_pool .* with data.sampling='file_order'"),
        ({"num_labeled": 0}, "data.unlabeled_pool .* with data.num_labeled=0"),
        ({"unlabeled_pool": "known"}, "data.unlabeled_pool is 'known'; accepted: 'all', 'unknown"),
    ],
)
def test_u_of_unknown_class_needs_such_examples(changes, message):
    with pytest.raises(ValueError, match=message):
        build(**{"unlabeled_pool": "unknown_class", **changes})
    raw = source([50, 60, 70, 80, 90], unknown=10)
    with pytest.raises(ValueError, match="data.num_unlabeled is 11; accepted: at most 10"):
        build(raw, unlabeled_pool="unknown_class", num_unlabeled=11)


DRAWS = [
    ("num_support", 10),
    ("num_validation", 20),
    ("num_unlabeled", 50),
    ("class_prior", 0.3),
    ("labeling", "gap"),
]


@pytest.mark.parametrize(("field", "value"), DRAWS)
def test_file_order_refuses_what_is_drawn_at_random_before_anything_is_loaded(field, value):
    message = f"data.sampling is 'file_order'; accepted: .* with data.{field}={value!r}"
    with pytest.raises(ValueError, match=message):
        build(sampling="file_order", **{field: value})
    config = config_lib.default_config("naive")
    config.data.update({"sampling": "file_order", field: value})
    with pytest.raises(ValueError, match=message):
        config_lib.resolve(config)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"num_positives": -1}, "data.num_positives is -1; accepted"),
        ({"num_negatives": -1}, "data.num_negatives is -1; accepted"),
        ({"num_positives": 99}, "data.num_labeled is 100; accepted: at most 99, which is data.num"),
        ({"label_set": "fine"}, "data.label_set is 'fine', but source 'digits' has no such option"),
        (
            {"source": "cifar100", "label_set": "rough"},
            "data.label_set is 'rough'; accepted: '', 'coarse', 'fine'",
        ),
    ],
)
def test_bad_fields_are_named_before_anything_is_loaded(fields, message):
    config = config_lib.default_config("naive")
    config.data.update(fields)
    with pytest.raises(ValueError, match=message):
        config_lib.resolve(config)


def test_a_config_chooses_the_counts_on_real_digits():
    config = config_lib.default_config("naive")
    config.data.update({"num_positives": 200, "num_negatives": 300, "num_labeled": 50})
    data = experiment.load_data(config_lib.resolve(config))
    counts = data.counts()
    assert (counts["labeled"], counts["unlabeled"], counts["hidden_positives"]) == (50, 450, 150)
    assert data.info.prior == 200 / 500 and data.info.prior_unlabeled == 150 / 450


def test_a_run_with_other_counts_is_another_run():
    config = config_lib.default_config("naive")
    other = config_lib.default_config("naive")
    other.data.update({"num_positives": 200, "num_negatives": 300})
    found = config_lib.differences(
        *(config_lib.fingerprint(config_lib.resolve(x)) for x in (config, other))
    )
    assert found == [
        "data.num_negatives: 0 there, 300 here",
        "data.num_positives: 0 there, 200 here",
    ]


def test_a_config_chooses_the_labels_of_cifar_100(tmp_path):
    # Two images of fine class 8, three others; coarse class 18 is three of the five.
    coarse, fine = np.array([18, 18, 2, 18, 0]), np.array([8, 13, 70, 8, 4])
    x = np.random.default_rng(0).integers(0, 256, [5, 32, 32, 3]).astype(np.uint8)
    files = {f"{n}.bin": official_layouts.cifar_binary(x, coarse, fine) for n in ("train", "test")}
    official_layouts.write_files(tmp_path / "cifar-100-binary", files)
    config = config_lib.default_config("naive")
    settings = {"source": "cifar100", "dir": str(tmp_path), "num_labeled": 1}
    config.data.update({**settings, "sampling": "file_order"})
    for label_set, positive, wanted in [
        ("fine", 8, [0, 3]),
        ("coarse", 18, [0, 1, 3]),
        ("", 18, 0),
    ]:
        config.data.update({"label_set": label_set, "positive_classes": (positive,)})
        data = experiment.load_data(config_lib.resolve(config))
        wanted = wanted or [0, 1, 3]
        assert sorted(data.source_ids[data.truth == 1]) == wanted
        np.testing.assert_array_equal(np.flatnonzero(data.test_labels), wanted)
        np.testing.assert_array_equal(data.source_ids[data.labeled], [3])
