"""The PU split: counts of the specification, priors, seeds, and the truth kept apart."""

import math

import numpy as np
import pytest

from pujax import methods
from pujax.data import dataset
from pujax.data.raw import OwnRows, RawDataset, check
from pujax.data.splits import case_control as case_control_lib
from pujax.data.splits import split as split_lib
from pujax.methods._common import calibration
from pujax.priors import PriorEstimate
from pujax.training import own_results, prior_estimation
from pujax.training.evaluation import binary
from tests import tiny


def make_raw(per_class=(60, 60, 60, 60), unknown=0, size=4):
    """A source whose pixels are the row number, so that rows can be traced."""
    labels = np.concatenate(
        [np.full(n, c, np.int32) for c, n in enumerate(per_class)]
        + [np.full(unknown, -1, np.int32)]
    )
    labels = np.random.default_rng(1).permutation(labels)
    inputs = np.zeros([len(labels), size, size, 1], np.uint8)
    inputs[:, 0, 0, 0] = np.arange(len(labels)) % 256
    inputs[:, 0, 1, 0] = np.arange(len(labels)) // 256
    names = tuple(map(str, range(len(per_class))))
    test_labels = np.arange(8, dtype=np.int32) % len(per_class)
    test_inputs = np.zeros([8, size, size, 1], np.uint8)
    return RawDataset("made", inputs, labels, test_inputs, test_labels, names, (0.5,), (0.5,))


def test_an_unknown_class_is_in_training_rows_only():
    source = make_raw(unknown=3)
    assert check(source) is source
    hidden = np.full_like(source.test_labels, -1)  # as tensorflow-datasets has them of a contest
    with pytest.raises(ValueError) as error:
        check(source._replace(test_labels=hidden))
    assert str(error.value) == (
        "source 'made': test_labels is 'in -1..-1'; accepted: 0..3, since every test label has to "
        "be known: choose another split, or a set with labels"
    )
    for split, least in (("train", -1), ("test", 0)):
        with pytest.raises(
            ValueError, match=f"{split}_labels is 'in -2..-2'; accepted: {least}..3$"
        ):
            labels = np.full_like(getattr(source, f"{split}_labels"), -2)
            check(source._replace(**{f"{split}_labels": labels}))
    nothing = source._replace(test_inputs=source.test_inputs[:0], test_labels=hidden[:0])
    assert check(nothing) is nothing


def row_numbers(inputs):
    return inputs[:, 0, 0, 0].astype(int) + 256 * inputs[:, 0, 1, 0].astype(int)


def build(raw=None, **changes):
    settings = {
        "positive_classes": (0, 1),
        "num_labeled": 20,
        "num_support": 16,
        "setting": "one_sample",
        "sampling": "stratified",
        "seed": 0,
    }
    return dataset.build(raw or make_raw(), **(settings | changes))


@pytest.mark.parametrize(
    ("per_class", "positives", "unlabeled", "positives_in_u"),
    [
        # lagam.md 2.2 at full size: 1000 labelled, 500 support; CIFAR-10-1, CIFAR-100-1, -2.
        ([5000] * 10, (0, 1, 8, 9), 48500, 0.3876),
        ([2500] * 20, (18, 19), 48500, 0.0814),
        ([2500] * 20, (0, 1, 7, 8, 11, 12, 13, 14, 15, 16), 48500, 0.4897),
    ],
)
def test_published_splits_have_the_published_counts(
    per_class, positives, unlabeled, positives_in_u
):
    raw = make_raw(tuple(per_class), size=2)
    data = build(raw, positive_classes=positives, num_labeled=1000, num_support=500)
    counts = data.counts()
    assert counts["labeled"] == 1000
    assert counts["unlabeled"] == unlabeled
    assert counts["support_positives"] == 500 * len(positives) // len(per_class)
    assert counts["hidden_positives"] / unlabeled == pytest.approx(positives_in_u, abs=5e-5)
    assert data.info.prior_unlabeled == pytest.approx(positives_in_u, abs=5e-5)
    per = np.bincount(raw.train_labels[data.source_ids[data.labeled]])[list(positives)]
    assert set(per) == {1000 // len(positives)}


def test_stratified_draw_tops_up_to_the_exact_number():
    # CIFAR-10-2: six positive classes share 1000, which the reference rounds down to 996.
    raw = make_raw((500,) * 10, size=2)
    data = build(raw, positive_classes=(2, 3, 4, 5, 6, 7), num_labeled=1000, num_support=500)
    assert data.counts()["labeled"] == 1000
    per = np.bincount(raw.train_labels[data.source_ids[data.labeled]])[2:8]
    assert per.sum() == 1000 and per.min() >= 166


def test_every_row_lands_in_exactly_one_part():
    raw = make_raw()
    settings = dataset.Settings(
        positive_classes=(0, 1),
        num_labeled=20,
        num_support=16,
        setting="one_sample",
        sampling="uniform",
    )
    split = split_lib.split(raw.train_labels, settings, seed=3)
    together = np.concatenate(split)
    assert sorted(together) == list(range(240))
    assert np.isin(raw.train_labels[split.labeled], (0, 1)).all()


def test_arrays_labels_and_truth_belong_to_the_same_rows():
    raw = make_raw((70,) * 5)
    data = build(raw)
    rows = row_numbers(data.inputs)
    np.testing.assert_array_equal(rows, data.source_ids)
    np.testing.assert_array_equal(data.truth, np.isin(raw.train_labels[rows], (0, 1)))
    support = row_numbers(data.support_inputs)
    np.testing.assert_array_equal(data.support_labels, np.isin(raw.train_labels[support], (0, 1)))
    assert not set(support) & set(rows)


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
def test_another_seed_draws_other_positives_and_another_support_set(sampling):
    first, same, other = (build(sampling=sampling, seed=seed) for seed in (0, 0, 1))
    np.testing.assert_array_equal(first.source_ids, same.source_ids)
    labeled = [set(d.source_ids[d.labeled]) for d in (first, other)]
    # 20 of 104 left positives: two independent draws share 4 on average.
    assert len(labeled[0] & labeled[1]) < 12
    assert not np.array_equal(first.support_inputs, other.support_inputs)


def test_two_sample_keeps_a_copy_of_each_labeled_positive_in_u():
    data = build(setting="two_sample")
    unlabeled = data.source_ids[~data.labeled]
    assert set(data.source_ids[data.labeled]) <= set(unlabeled)
    assert data.info.n_u == 240 - 16
    counts = data.counts()
    positive = counts["hidden_positives"] + counts["unlabeled_copies"]
    assert positive / counts["unlabeled"] == data.info.prior_unlabeled
    assert build().counts()["unlabeled_copies"] == 0
    assert data.info.prior == data.info.prior_unlabeled == pytest.approx(112 / 224)


def test_one_sample_priors_follow_the_counts_and_the_given_prior():
    data = build()
    assert data.info.prior == pytest.approx(112 / 224)
    assert data.info.prior_unlabeled == pytest.approx(92 / 204)
    given = build(prior=0.4)
    # pi_u = (pi (n_p + n_u) - n_p) / n_u, baselines.md section 13.
    assert given.info.prior_unlabeled == pytest.approx((0.4 * 224 - 20) / 204)
    assert given.info.prior_source == "given"


@pytest.mark.parametrize(("n", "n_p", "prior"), [(100, 3, 0.04), (500, 13, 0.03), (100, 7, 0.072)])
def test_a_prior_of_ones_own_rows_is_that_of_all_of_them(n, n_p, prior):
    # Of 3 labels a fifth is 1: the rows that train have another share of labels than all.
    labels = (np.arange(n) < n_p).astype(np.int32)
    own = OwnRows(id_name="row", ids=np.arange(n))
    rows = np.random.default_rng(0).normal(size=[n, 2]).astype(np.float32)
    source = RawDataset(
        *("own", rows, labels, rows[:0], labels[:0], ("negative", "positive"), (0.0,), (1.0,)),
        known_at_random=False,
        own=own,
    )
    fields = {"positive_classes": (1,), "num_labeled": 0, "num_support": 0, "sampling": "uniform"}

    def built(prior):
        return dataset.build(
            source, seed=0, setting="one_sample", holdout=0.2, prior=prior, **fields
        )

    data = built(prior)
    assert data.info.n_p + data.validation_labeled.sum() == n_p
    assert data.info.n_p / data.info.n != n_p / n
    assert data.info.prior_unlabeled == pytest.approx((prior * n - n_p) / (n - n_p))
    with pytest.raises(ValueError, match=f"where {n_p} positives are labelled; accepted: .* above"):
        built(0.99 * n_p / n)


@pytest.mark.parametrize(
    ("counts", "holdout", "held"),
    [
        ((100, 40), 0.2, (20, 8)),
        ((100, 3), 0.2, (20, 1)),  # rounded
        ((9, 2), 0.01, (1, 1)),  # at least one
        ((9, 2), 0.0, (0, 0)),
    ],
)
def test_a_share_of_p_and_of_u_is_held_out_and_at_least_one(counts, holdout, held):
    # U are the negatives and those of unknown class.
    rng = np.random.default_rng(0)
    binary = rng.permutation(np.repeat([1, 0, -1], [counts[0], 1, counts[1] - 1]))
    found = split_lib.as_labelled(binary, holdout=holdout, seed=3)
    assert (len(found.validation_labeled), len(found.validation_unlabeled)) == held
    assert (len(found.labeled), len(found.unlabeled)) == (counts[0] - held[0], counts[1] - held[1])
    assert sorted(np.concatenate(found)) == list(range(len(binary)))
    assert (binary[found.labeled] == 1).all() and (binary[found.validation_labeled] == 1).all()
    others = [split_lib.as_labelled(binary, holdout=holdout, seed=seed) for seed in range(9)]
    assert len({tuple(x.validation_labeled) for x in others}) > 1 or not holdout


def test_half_of_a_support_set_out_of_known_examples_is_negative():
    binary = np.random.default_rng(0).permutation(np.repeat([1, 0, -1], [10, 8, 40]))
    found = split_lib.as_labelled(binary, holdout=0.2, seed=3, num_support=7)
    assert sorted(binary[found.support]) == [0, 0, 0, 1, 1, 1, 1]
    assert (np.diff(found.support) > 0).all()
    # Its positives are taken out of P, and nothing else changes: its negatives stay in U.
    without = split_lib.as_labelled(binary, holdout=0.2, seed=3)
    for name in ("unlabeled", "validation_labeled", "validation_unlabeled"):
        np.testing.assert_array_equal(getattr(found, name), getattr(without, name))
    positives = found.support[binary[found.support] == 1]
    np.testing.assert_array_equal(found.labeled, np.setdiff1d(without.labeled, positives))
    assert set(found.support) <= {*without.labeled, *without.unlabeled}
    others = [split_lib.as_labelled(binary, holdout=0, seed=x, num_support=7) for x in range(9)]
    assert len({tuple(x.support) for x in others}) == 9


@pytest.mark.parametrize(
    ("counts", "count", "message"),
    [
        ((10, 8, 40), 17, "10 labelled positives and 8 known negatives; accepted: 2 to 16, half"),
        ((3, 8, 40), 6, "3 labelled positives and 8 known negatives; accepted: 2 to 4, half"),
        ((10, 1, 40), 1, "10 labelled positives and 1 known negative; accepted: 2 to 2, half"),
        (
            (10, 0, 40),
            4,
            "and 0 known negatives; accepted: 0, with a method that .*zero_is=negative",
        ),
    ],
)
def test_a_support_set_that_known_examples_cannot_fill_is_refused(counts, count, message):
    binary = np.repeat([1, 0, -1], counts)
    with pytest.raises(ValueError, match=f"^data.num_support is {count}, .*{message}"):
        split_lib.as_labelled(binary, holdout=0, seed=0, num_support=count)


@pytest.mark.parametrize(("setting", "in_u"), [("one_sample", 1 / 3), ("two_sample", 0.4)])
@pytest.mark.parametrize("num_support", [0, 8])
def test_the_priors_of_own_rows_do_not_depend_on_a_support_set(setting, in_u, num_support):
    # 10 labelled positives, 12 known negatives and 78 rows of unknown class, by the prior of 0.4:
    # of the 90 that are not labelled 30 are positive in one sample (0.4 of 100, less 10), and 36
    # where those 90 are a sample of the population.
    labels = np.repeat([1, 0, -1], [10, 12, 78]).astype(np.int32)
    rows = np.random.default_rng(0).normal(size=[100, 2]).astype(np.float32)
    source = RawDataset(
        *("own", rows, labels, rows[:0], labels[:0], ("negative", "positive"), (0.0,), (1.0,)),
        known_at_random=False,
        own=OwnRows(id_name="row", ids=np.arange(100)),
    )
    fields = {"positive_classes": (1,), "num_labeled": 0, "sampling": "uniform", "holdout": 0.2}
    fields |= {"seed": 0, "setting": setting, "num_support": num_support}
    data = dataset.build(source, prior=0.4, **fields)
    assert data.info.prior_unlabeled == pytest.approx(in_u) and data.info.prior == 0.4
    assert (data.info.n_p, data.info.n_u) == (8 - num_support // 2, 72)
    assert data.info.positives_apart == data.info.support_positives == num_support // 2
    assert sorted(data.support_labels) == [0] * (num_support // 2) + [1] * (num_support // 2)
    assert not set(data.validation_ids) & set(data.source_ids)
    # Which of the others are known to be negative stays unknown to training and to the report.
    assert set(data.truth[~data.labeled]) == {-1} == set(data.validation_truth[2:])
    # A share of labelled positives, and so probabilities of new rows, are of all rows.
    assert own_results._labeled_share(data) == pytest.approx(10 / 100)
    # Of what is held out, two are labelled and a share of 18 is positive: that of U.
    labeled = 2 if setting == "one_sample" else 0
    share = (labeled + 18 * in_u) / (labeled + 18)
    assert data.validation_prior() == pytest.approx(share if labeled else 0.4)
    # The weight of U in a risk makes its negatives those of the population, whatever is set apart.
    numbers = calibration.risk_numbers(data.info)
    assert numbers["unlabeled_weight"] * (1 - in_u) == pytest.approx(1 - 0.4)
    at = calibration.at_prior(data.info, 0.4)
    assert at.prior_unlabeled == pytest.approx(in_u)
    estimated = prior_estimation._with_priors(
        data, prior_estimation._alone(PriorEstimate(1 / 3), "km2"), "estimated"
    )
    population = 0.4 if setting == "one_sample" else 1 / 3
    assert estimated.info.prior == pytest.approx(population, abs=0.01)


@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_known_classes_speak_for_all_and_both_priors_agree(setting):
    # STL-10 in small: 500 of known class among 10500, 200 of them positive.
    raw = make_raw((100, 100, 150, 150), unknown=10_000, size=2)
    info = build(raw, num_labeled=100, num_support=0, setting=setting).info
    assert info.prior == 0.4 and info.prior_source == "counted among the known classes"
    if setting == "two_sample":
        assert info.prior_unlabeled == 0.4
    else:
        assert info.n_p + info.prior_unlabeled * info.n_u == pytest.approx(0.4 * info.n, rel=1e-12)


@pytest.mark.parametrize("setting", dataset.SETTINGS)
@pytest.mark.parametrize("per_class", [(60, 10), (90, 0)])
def test_known_classes_that_tell_no_prior_leave_it_unknown(per_class, setting):
    # All positives of known class are labelled, as in a folder of P, U and a few negatives; or no
    # negative of known class is left beside them.
    raw = make_raw(per_class, unknown=1000)
    if per_class[1] == 0:
        raw.train_labels[:2] = 1
        settings = {"num_labeled": 60, "num_support": 4, "num_validation": 0}
    else:
        settings = {"num_labeled": 60, "num_support": 0, "num_validation": 0}
    settings |= {"positive_classes": (0,), "setting": setting}
    info = build(raw, **settings).info
    assert math.isnan(info.prior) and math.isnan(info.prior_unlabeled)
    assert info.prior_source == "unknown"
    for name in ("nnpu", "dist_pu"):
        with pytest.raises(ValueError, match="data.prior is None; accepted: a number"):
            methods.module(name).build(tiny.config(name), info)
    assert methods.module("vpu").build(tiny.config("vpu"), info).stages
    assert build(raw, **settings, prior=0.2).info.prior == 0.2


def test_a_validation_set_needs_a_prior():
    raw = make_raw((60, 10), unknown=1000)
    settings = {"positive_classes": (0,), "num_support": 0, "num_validation": 20}
    held = 60 - (build(raw, num_labeled=20, **settings).truth == 1).sum()
    with pytest.raises(ValueError, match="data.prior is None; accepted: .*data.num_validation"):
        build(raw, num_labeled=int(60 - held), **settings)


def test_examples_of_unknown_class_are_unlabeled_and_outside_the_prior():
    data = build(make_raw(unknown=300))
    counts = data.counts()
    assert counts["unlabeled_without_truth"] == 300
    assert counts["unlabeled"] == 204 + 300
    assert data.info.prior == pytest.approx(112 / 224)


@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_reveal_all_gives_every_true_label_once_and_drops_unknown_classes(setting):
    data = build(make_raw((60, 60, 60, 30), unknown=300), setting=setting)
    revealed = data.reveal("all")
    # 16 support examples, 8 of each side: 112 positives and 82 negatives.
    assert len(revealed.inputs) == len(set(revealed.source_ids)) == 194
    np.testing.assert_array_equal(revealed.labeled, revealed.truth == 1)
    assert (revealed.info.n_p, revealed.info.n_u) == (112, 82)
    assert (revealed.info.prior, revealed.info.prior_unlabeled) == (112 / 194, 0)
    assert revealed.info.prior_source == "revealed"


@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_reveal_negatives_keeps_p_and_drops_the_hidden_positives_of_u(setting):
    data = build(make_raw(unknown=300), setting=setting)
    revealed = data.reveal("negatives")
    assert (revealed.info.n_p, revealed.info.n_u) == (20, 112)
    assert (revealed.info.prior, revealed.info.prior_unlabeled) == (20 / 132, 0)
    assert revealed.info.prior_source == "revealed"
    np.testing.assert_array_equal(
        revealed.source_ids[revealed.labeled], data.source_ids[data.labeled]
    )
    np.testing.assert_array_equal(revealed.truth, revealed.labeled)
    np.testing.assert_array_equal(row_numbers(revealed.inputs) % 256, revealed.source_ids % 256)


def test_reveal_of_another_word_is_refused():
    with pytest.raises(ValueError, match="reveals is 'some'.*accepted: 'all', 'negatives'"):
        build().reveal("some")


@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_validation_is_a_held_out_problem_of_the_same_setting(setting, sampling):
    raw = make_raw()
    data = build(raw, setting=setting, sampling=sampling, num_validation=40)
    held = row_numbers(data.validation_inputs)
    np.testing.assert_array_equal(data.validation_truth, np.isin(raw.train_labels[held], (0, 1)))
    p_val, u_val = held[data.validation_labeled], held[~data.validation_labeled]
    positives = int(data.validation_truth[~data.validation_labeled].sum())
    positives += len(p_val) if setting == "one_sample" else 0
    assert len(p_val) == positives // 2 and len(set(p_val)) == len(p_val)
    assert np.isin(raw.train_labels[p_val], (0, 1)).all()
    assert data.validation_labeled[: len(p_val)].all()  # P first
    assert len(u_val) == len(set(u_val)) == (40 - len(p_val) if setting == "one_sample" else 40)
    assert (set(p_val) <= set(u_val)) == (setting == "two_sample")
    if sampling == "stratified":
        assert set(np.bincount(raw.train_labels[np.unique(held)])) == {10}
    assert data.counts()["validation"] == 40
    assert data.counts()["validation_labeled"] == len(p_val)


@pytest.mark.thorough
@pytest.mark.parametrize("sampling", ["stratified", "uniform"])
@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_the_true_classes_win_by_every_criterion_on_unbalanced_validation_data(setting, sampling):
    # The share of positives, 0.1, is far from 1/2, that of an equal draw from both classes.
    data = build(
        make_raw((200, 1800), size=2),
        positive_classes=(0,),
        num_support=0,
        setting=setting,
        sampling=sampling,
        num_validation=400,
    )
    copies = data.validation_labeled if setting == "two_sample" else np.zeros(400, bool)
    share = data.validation_truth[~copies].mean()
    # Proportional up to rounding; uniform within four standard errors, 4 (0.09 / 400)^(1/2).
    assert share == pytest.approx(0.1, abs=0.0026 if sampling == "stratified" else 0.06)
    perfect = np.where(data.validation_truth == 1, 20.0, -20.0)
    best, negative, positive = (
        binary.validation_metrics(scores, data)
        for scores in (perfect, np.full_like(perfect, -20), np.full_like(perfect, 20))
    )
    for other in (negative, positive):
        assert best["val_proxy_accuracy"] > other["val_proxy_accuracy"]
        assert best["val_nnpu_risk"] < other["val_nnpu_risk"]


def test_copies_of_labeled_positives_in_u_are_not_hidden():
    data = build(setting="two_sample")
    assert data.counts()["unlabeled"] == 224
    assert data.counts()["hidden_positives"] == 112 - 20
    # Calling nothing positive but the copies recovers nothing.
    copies = np.isin(data.source_ids, data.source_ids[data.labeled])
    found = binary.compare_labels(copies.astype(float), data)
    assert found["hidden_positives"] == 92 and found["recovered_positives"] == 0
    assert found["label_accuracy"] == pytest.approx(112 / 204)
    assert math.isnan(found["label_precision"])


@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_training_support_and_validation_share_no_row(setting):
    data = build(setting=setting, num_validation=40, validation_labeled=5)
    parts = [data.source_ids, row_numbers(data.support_inputs), row_numbers(data.validation_inputs)]
    train, support, held = map(set, parts)
    assert not train & support and not train & held and not support & held
    assert train | support | held == set(range(240))
    assert data.validation_labeled.sum() == 5


def test_training_is_told_where_the_other_copy_of_an_example_is():
    data = build(setting="two_sample")
    copies = data.training_data().copies
    assert copies.dtype == np.int32
    rows = np.arange(len(copies))
    np.testing.assert_array_equal(copies[copies], rows)
    np.testing.assert_array_equal(data.source_ids[copies], data.source_ids)
    # Every P is in U; the rest of U is there once.
    assert (copies != rows)[data.labeled].all() and not data.labeled[copies[data.labeled]].any()
    assert (copies != rows).sum() == 2 * data.info.n_p
    assert build(setting="one_sample").training_data().copies is None
    # Of another sample than P.
    assert build(setting="two_sample", num_unlabeled=20).training_data().copies is None


def test_the_digest_covers_every_example_and_label():
    data = build(num_validation=40)
    assert data.digest() == build(num_validation=40).digest()
    others = [
        data._replace(**{name: 1 - np.asarray(getattr(data, name), np.int8)})
        for name in ("labeled", "truth", "support_labels", "test_labels")
        + ("validation_labeled", "validation_truth")
    ]
    others += [
        data._replace(**{name: 255 - getattr(data, name)})
        for name in ("inputs", "support_inputs", "test_inputs", "validation_inputs")
    ]
    assert len({data.digest(), *(other.digest() for other in others)}) == 1 + len(others)


def test_the_support_set_does_not_depend_on_the_validation_set():
    np.testing.assert_array_equal(build().support_inputs, build(num_validation=40).support_inputs)


@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_training_labels_do_not_depend_on_how_validation_is_labeled(setting):
    # An odd number of two classes, so that the last one is drawn at random from what is left.
    settings = {"setting": setting, "num_labeled": 21, "num_validation": 40}
    datasets = [build(validation_labeled=n, **settings) for n in (3, 4, 9)]
    assert [data.validation_labeled.sum() for data in datasets] == [3, 4, 9]
    for data in datasets[1:]:
        np.testing.assert_array_equal(data.labeled, datasets[0].labeled)
        np.testing.assert_array_equal(data.source_ids, datasets[0].source_ids)


def test_validation_holds_only_examples_of_known_class():
    data = build(make_raw(unknown=300), num_validation=60)
    assert data.validation_truth.min() == 0
    assert data.counts()["unlabeled_without_truth"] == 300


def test_unit_scaling_leaves_pixels_between_0_and_1():
    raw = make_raw()._replace(mean=(0.2, 0.3, 0.4), std=(0.5, 0.6, 0.7))
    standard, unit = build(raw).info, build(raw, scaling="unit").info
    assert (standard.mean, standard.std) == (raw.mean, raw.std)
    assert (unit.mean, unit.std) == ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


def test_training_data_do_not_hold_the_truth():
    data = build()
    hidden = data._replace(truth=np.full_like(data.truth, 7))
    for mine, theirs in zip(data.training_data(), hidden.training_data(), strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"positive_classes": ()}, "data.positive_classes"),
        ({"positive_classes": (9,)}, "data.positive_classes"),
        ({"positive_classes": (0, 1, 2, 3)}, "data.positive_classes"),
        ({"num_labeled": -1}, "data.num_labeled"),
        ({"num_labeled": 0, "num_support": 0, "num_unlabeled": 9}, "data.num_unlabeled"),
        ({"num_labeled": 0, "num_support": 500}, "data.num_support"),
        ({"holdout": 0.2}, "data.holdout"),
        ({"num_labeled": 0, "num_support": 0, "holdout": 1.0}, "data.holdout"),
        ({"num_labeled": 500}, "data.num_labeled"),
        ({"num_support": 500}, "data.num_support"),
        ({"setting": "three_sample"}, "data.setting"),
        ({"sampling": "biased"}, "data.sampling"),
        ({"scaling": "none"}, "data.scaling"),
        ({"labeling": "guess"}, "data.labeling"),
        ({"num_validation": 225}, "data.num_validation"),
        ({"num_validation": 1}, "data.num_validation"),
        ({"num_validation": 40, "validation_labeled": 21}, "data.validation_labeled"),
        ({"num_validation": 200, "num_labeled": 20}, "data.num_labeled"),
        ({"prior": 1.0}, "data.prior"),
        ({"prior": float("nan")}, "data.prior"),
        ({"prior": 0.05}, "data.prior"),  # below n_p / n: more labels than positives
        ({"prior": 0.05, "setting": "two_sample"}, "data.prior"),
        # Ten of 40 validation examples are labelled, and a fifth positive by the prior.
        ({"prior": 0.2, "num_validation": 40}, "data.prior"),
        ({"prior": 0.2, "num_validation": 40, "setting": "two_sample"}, "data.prior"),
    ],
)
def test_bad_settings_name_the_field(changes, field):
    with pytest.raises(ValueError, match=f"{field} is .*accepted"):
        build(**changes)


def test_a_prior_of_exactly_the_labels_is_accepted_where_u_repeats_them():
    assert build(prior=20 / 224, setting="two_sample").info.prior == 20 / 224
    with pytest.raises(ValueError, match="accepted: a number above 0.0893"):
        build(prior=20 / 224)


def test_a_split_that_leaves_nothing_unlabeled_is_refused():
    with pytest.raises(ValueError, match="data.num_labeled is 30; accepted: fewer"):
        build(make_raw((40, 10)), positive_classes=(0,), num_support=20, num_labeled=30)


def case_control(raw=None, **changes):
    """50 P and 100 U at a class prior of 0.3, with 10 P and 20 U for validation."""
    settings = {
        "num_labeled": 50,
        "num_unlabeled": 100,
        "class_prior": 0.3,
        "num_support": 0,
        "setting": "two_sample",
        "sampling": "uniform",
        "num_validation": 30,
        "validation_labeled": 10,
    }
    return build(raw or make_raw((100, 100, 150, 150)), **(settings | changes))


@pytest.mark.parametrize("sampling", ["stratified", "balanced", "uniform"])
@pytest.mark.parametrize("prior", [0.3, 0.5, 0.7])
def test_case_control_samples_have_exactly_the_asked_share_of_positives(prior, sampling):
    raw = make_raw((100, 100, 150, 150))
    test_labels = np.repeat(np.arange(4, dtype=np.int32), [30, 30, 10, 10])
    raw = raw._replace(test_inputs=np.zeros([80, 4, 4, 1], np.uint8), test_labels=test_labels)
    data = case_control(raw, class_prior=prior, sampling=sampling)
    assert (data.info.n_p, data.info.n_u) == (50, 100)
    assert data.truth[data.labeled].all() and data.truth[~data.labeled].sum() == round(100 * prior)
    assert data.info.prior == data.info.prior_unlabeled == round(100 * prior) / 100
    assert data.info.prior_source == "drawn with data.class_prior"
    held = data.validation_labeled
    assert (held.sum(), (~held).sum()) == (10, 20) and data.validation_truth[held].all()
    assert data.validation_truth[~held].sum() == round(20 * prior)
    # The largest test set with that share out of 60 positives and 20 negatives.
    largest = {0.3: (29, 9), 0.5: (40, 20), 0.7: (68, 48)}[prior]
    assert (len(data.test_labels), data.test_labels.sum()) == largest
    assert data.counts()["test"] == len(data.test_inputs) == largest[0]


def test_case_control_samples_are_disjoint_and_nothing_is_repeated():
    data = case_control()
    held = row_numbers(data.validation_inputs)
    used = [*data.source_ids, *held]
    assert len(used) == len(set(used)) == 180
    np.testing.assert_array_equal(row_numbers(data.inputs), data.source_ids)
    # Every example of U hides its label, and every held-out one counts.
    np.testing.assert_array_equal(data.hidden(), ~data.labeled)
    counts = data.counts()
    assert (counts["unlabeled"], counts["hidden_positives"]) == (100, 30)
    assert (counts["validation"], counts["validation_labeled"]) == (30, 10)
    revealed = data.reveal("all")
    assert (revealed.info.n_p, revealed.info.n_u) == (80, 70)


def test_another_seed_draws_other_samples_and_the_same_seed_the_same():
    first, same, other = (case_control(seed=seed) for seed in (0, 0, 1))
    assert first.digest() == same.digest() != other.digest()
    np.testing.assert_array_equal(first.test_inputs, same.test_inputs)
    # Two independent draws of 50 of 200 positives share 12.5 on average.
    p = [set(d.source_ids[d.labeled]) for d in (first, other)]
    assert len(p[0] & p[1]) < 25


def test_the_test_set_of_a_share_is_drawn_anew_by_every_seed():
    """20 of 40 positive rows and all 20 negative ones are tested at a share of one half."""
    inputs = np.arange(60, dtype=np.uint8).reshape(60, 1, 1, 1) * np.ones([1, 4, 4, 1], np.uint8)
    test_labels = np.repeat(np.arange(4, dtype=np.int32), [20, 20, 10, 10])
    raw = make_raw((100, 100, 150, 150))._replace(test_inputs=inputs, test_labels=test_labels)
    tested = [
        set(case_control(raw, class_prior=0.5, seed=seed).test_inputs[:, 0, 0, 0].tolist())
        for seed in (0, 0, 1)
    ]
    assert tested[0] == tested[1] != tested[2]
    assert all(len(rows) == 40 and set(range(40, 60)) < rows for rows in tested)


def test_u_is_a_fair_sample_of_both_classes():
    """The shares of the two positive and the two negative classes in U, over many draws."""
    raw = make_raw((50, 150, 100, 300))
    drawn = np.zeros(4)
    for seed in range(60):
        data = case_control(raw, num_validation=0, validation_labeled=0, seed=seed)
        drawn += np.bincount(raw.train_labels[data.source_ids[~data.labeled]], minlength=4)
    # 1800 positives and 4200 negatives; a quarter of each in the smaller class, within 4 errors.
    assert drawn[0] / 1800 == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 1800) ** 0.5)
    assert drawn[2] / 4200 == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 4200) ** 0.5)


def test_in_one_sample_data_the_population_is_p_and_u_together():
    data = case_control(setting="one_sample")
    assert (data.info.n_p, data.info.n_u) == (50, 100)
    assert data.truth[~data.labeled].sum() == 30
    assert data.info.prior_unlabeled == 0.3 and data.info.prior == (50 + 30) / 150
    # U_val is like U; its population has 10 + 6 positives of 30.
    assert data.validation_truth.sum() == 16
    assert data.validation_prior() == pytest.approx(16 / 30)
    assert case_control().validation_prior() == 0.3
    perfect = np.where(data.validation_truth == 1, 20.0, -20.0)
    best = binary.validation_metrics(perfect, data)
    assert best["val_nnpu_risk"] == pytest.approx(0, abs=1e-6)  # both parts vanish


@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_balanced_samples_hold_the_same_number_of_every_class_of_a_side(setting):
    raw = make_raw((160, 240, 150, 350))
    test_labels = np.repeat(np.arange(4, dtype=np.int32), [30, 50, 20, 60])
    test_inputs = np.broadcast_to(test_labels[:, None, None, None], (160, 4, 4, 1)).astype(np.uint8)
    raw = raw._replace(test_inputs=test_inputs, test_labels=test_labels)
    topped_up = np.zeros(4)
    for seed in range(20):
        data = case_control(raw, sampling="balanced", setting=setting, num_unlabeled=101, seed=seed)
        # 50 P and 30 positives in U, 71 negatives; 10 P and 6 positives in U_val, 14 negatives.
        drawn = np.bincount(raw.train_labels[data.source_ids], minlength=4)
        held = np.bincount(raw.train_labels[data.validation_ids], minlength=4)
        np.testing.assert_array_equal(drawn[:2], [40, 40])
        np.testing.assert_array_equal(held, [8, 8, 7, 7])
        assert sorted(drawn[2:]) == [35, 36]
        topped_up += drawn == 36
        # All negatives of the test set, whose classes differ, and three of ten are positive.
        tested = np.bincount(data.test_inputs[:, 0, 0, 0], minlength=4)
        np.testing.assert_array_equal(tested, [17, 17, 20, 60])
    assert topped_up[2] > 2 and topped_up[3] > 2  # now one class, now the other, by chance


@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_a_size_alone_leaves_the_share_to_the_source(setting):
    raw = make_raw((100, 100, 300, 300), unknown=0)
    shares, sizes = [], set()
    for seed in range(40):
        data = case_control(
            raw,
            class_prior=None,
            setting=setting,
            num_labeled=10,
            num_validation=0,
            validation_labeled=0,
            seed=seed,
        )
        sizes.add((data.info.n_p, data.info.n_u, len(set(data.source_ids))))
        u = data.truth[~data.labeled]
        assert data.info.prior_unlabeled == np.mean(u)
        population = data.truth if setting == "one_sample" else u
        assert data.info.prior == pytest.approx(np.mean(population))
        shares.append(np.mean(population))
        assert len(data.test_labels) == 8
    assert sizes == {(10, 100, 110)}
    # A quarter of the source is positive; within four errors of the mean of 40 samples of 100.
    assert np.mean(shares) == pytest.approx(0.25, abs=4 * (0.25 * 0.75 / 4000) ** 0.5)


def test_a_prior_alone_draws_the_largest_u_that_has_it():
    raw = make_raw((100, 100, 150, 150))
    data = case_control(raw, num_unlabeled=0, num_validation=0, validation_labeled=0)
    # 150 positives are left for U, and 300 negatives: 128 and 300 are 0.3 to the nearest integer.
    assert data.info.n_u == 429 and data.truth[~data.labeled].sum() == round(0.3 * 429) == 129
    data = case_control(
        raw, num_unlabeled=0, class_prior=0.7, num_validation=0, validation_labeled=0
    )
    assert data.truth[~data.labeled].sum() == 150 == round(0.7 * data.info.n_u)


@pytest.mark.parametrize("share", [0.01, 0.3, 0.5, 0.77, 0.99])
def test_the_largest_set_of_a_share_cannot_be_larger(share):
    def fits(size, positives, negatives):
        return round(share * size) <= positives and size - round(share * size) <= negatives

    for positives, negatives in [(0, 5), (1, 1), (10, 300), (57, 13), (400, 400)]:
        wanted = max(n for n in range(2000) if fits(n, positives, negatives))
        assert case_control_lib.largest(share, positives=positives, negatives=negatives) == wanted


def test_unknown_rows_may_be_drawn_only_where_no_share_is_asked():
    raw = make_raw((100, 100, 150, 150), unknown=500)
    sized = case_control(
        raw, class_prior=None, num_validation=0, validation_labeled=0, num_unlabeled=400
    )
    assert 100 < sized.counts()["unlabeled_without_truth"] < 300  # half of 400 on average
    assert case_control(raw).counts()["unlabeled_without_truth"] == 0


def test_half_of_the_positives_is_the_default_where_validation_is_drawn():
    data = case_control(validation_labeled=0)
    # a + round(0.3 (30 - a)) positives, half of them labelled: 7 and 7.
    assert data.validation_labeled.sum() == 7
    assert data.validation_truth.sum() == 14 and len(data.validation_truth) == 30


@pytest.mark.parametrize("mechanism", ["pusb", "boundary", "gap"])
def test_biased_labels_and_drawn_samples_go_together(mechanism):
    data = case_control(labeling=mechanism, num_labeled=20, validation_labeled=5)
    assert data.truth[data.labeled].all() and data.labeling.mechanism == mechanism
    assert data.truth[~data.labeled].mean() == 0.3
    assert data.validation_truth[data.validation_labeled].all()


def test_a_given_prior_overrides_the_drawn_one():
    data = case_control(prior=0.1)  # fewer than there are labels, which are not in U here
    assert (data.info.prior, data.info.prior_unlabeled) == (0.1, 0.1)
    assert data.info.prior_source == "given"


@pytest.mark.parametrize("setting", dataset.SETTINGS)
@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_unlabeled": -1}, "data.num_unlabeled is -1; accepted"),
        ({"class_prior": 1.0}, "data.class_prior is 1.0; accepted"),
        ({"class_prior": float("nan")}, "data.class_prior is nan; accepted"),
        ({"num_unlabeled": 900}, "data.num_unlabeled is 900; accepted: at most .* positives and"),
        ({"class_prior": None, "num_unlabeled": 900}, "data.num_unlabeled is 900; accepted: at"),
        ({"class_prior": None, "sampling": "balanced"}, "data.sampling is 'balanced'; accepted: '"),
        ({"class_prior": 0.001}, "data.num_validation is 30, which is 0 positives among 20"),
        (
            {"class_prior": 0.001, "num_validation": 0, "validation_labeled": 0},
            "data.class_prior is 0.001, which is 0 positives among 100",
        ),
        ({"num_validation": 490}, "data.num_validation is 490; accepted: fewer"),
        ({"num_labeled": 300}, "data.num_labeled is 300; accepted: 1 to"),
    ],
)
def test_samples_that_the_source_cannot_fill_name_the_field(changes, message, setting):
    with pytest.raises(ValueError, match=message):
        case_control(setting=setting, **changes)


def test_a_test_set_without_one_of_the_classes_is_refused():
    raw = make_raw((100, 100, 150, 150))
    raw = raw._replace(test_labels=np.zeros(8, np.int32))
    with pytest.raises(ValueError, match="data.class_prior is 0.3, which is 0 positives among"):
        case_control(raw)
