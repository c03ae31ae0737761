"""Labelling mechanisms: propensities by hand, draws by their statistics, the oracle's posterior."""

import numpy as np
import pytest

from pujax.data import dataset
from pujax.data.raw import RawDataset
from pujax.data.splits import labeling_mechanisms, oracle_posterior
from pujax.data.splits import split as split_lib
from pujax.data.splits.settings import Settings
from pujax.training.evaluation import binary as evaluation

R = np.array([0.2, 0.4, 0.8])


@pytest.mark.parametrize(
    ("mechanism", "power", "wanted"),
    [
        ("scar", 1.0, [1, 1, 1]),
        # r / mean(r) is (3/7, 6/7, 12/7); over its largest.
        ("pusb", 1.0, [0.25, 0.5, 1]),
        ("power", 1.0, [0.25, 0.5, 1]),
        ("power", 2.0, [1 / 16, 1 / 4, 1]),
        ("power", 0.0, [1, 1, 1]),
        # Shares of r^2 are (1, 4, 16) / 21; nine tenths of these and a thirtieth, times 21.
        ("power_mixed", 2.0, [1.6 / 15.1, 4.3 / 15.1, 1]),
        # 2.5 - r is (2.3, 2.1, 1.7).
        ("boundary", 1.0, [1, (2.1 / 2.3) ** 10, (1.7 / 2.3) ** 10]),
        # gap is (-0.6, -0.2, 0.6): (1 + gap) / 2 is r, 1 - gap is (1.6, 1.2, 0.4).
        ("gap", 3.0, [1 / 64, 1 / 8, 1]),
        ("gap_boundary", 1.0, [1, 0.75, 0.25]),
        ("gap_boundary", 2.0, [1, 0.5625, 0.0625]),
    ],
)
def test_propensities_by_hand(mechanism, power, wanted):
    e = labeling_mechanisms.propensity(R, mechanism, power=power)
    np.testing.assert_allclose(e, wanted, rtol=1e-12)


@pytest.mark.parametrize("mechanism", labeling_mechanisms.NAMES)
def test_propensities_stay_positive_at_the_ends_and_under_high_powers(mechanism):
    e = labeling_mechanisms.propensity(np.array([0.0, 1e-300, 0.5, 1.0]), mechanism, power=1e4)
    assert e.min() > 0 and e.max() == 1


def test_an_unknown_mechanism_is_named():
    with pytest.raises(ValueError, match="data.labeling is 'odd'; accepted: 'scar'"):
        labeling_mechanisms.propensity(R, "odd")


def test_inclusion_by_hand():
    # Two of (1, 0.5, 0.25, 0.25): kappa = 1 adds up to 2.
    np.testing.assert_allclose(
        labeling_mechanisms.inclusion(np.array([0.25, 1, 0.5, 0.25]), 2), [0.25, 1, 0.5, 0.25]
    )
    # Two of (1, 0.1, 0.1): kappa = 2/1.2 would give the first 1.67, so it is certain, and the
    # others share the second place.
    np.testing.assert_allclose(
        labeling_mechanisms.inclusion(np.array([0.1, 1, 0.1]), 2), [0.5, 1, 0.5]
    )
    np.testing.assert_allclose(labeling_mechanisms.inclusion(np.array([0.1, 1, 0.3]), 3), [1, 1, 1])


def frequencies(e, count, mechanism, repeats=4000):
    rng, hits = np.random.default_rng(0), np.zeros(len(e))
    for _ in range(repeats):
        rows = labeling_mechanisms.draw(e, count, mechanism=mechanism, rng=rng)
        assert len(rows) == len(set(rows.tolist())) == count
        hits[rows] += 1
    return hits / repeats


# Standard error of a frequency from 4000 draws is at most 0.008; four of them.
_FOUR_SIGMA = 0.032


def test_scar_includes_every_positive_equally_often():
    found = frequencies(labeling_mechanisms.propensity(np.linspace(0.1, 0.9, 8), "scar"), 3, "scar")
    np.testing.assert_allclose(found, 3 / 8, atol=_FOUR_SIGMA)


def test_successive_draw_has_the_chances_of_drawing_one_by_one():
    e = np.array([1.0, 0.5, 0.5])
    # First place: 1/2, 1/4, 1/4. Item 0 misses both places only by the orders (1, 2) and (2, 1):
    # 2 * 1/4 * (0.5 / 1.5) = 1/6.
    found = frequencies(e, 2, "power")
    np.testing.assert_allclose(found, [5 / 6, 7 / 12, 7 / 12], atol=_FOUR_SIGMA)


def test_gap_draw_includes_each_with_exactly_its_scaled_propensity():
    e = np.array([1.0, 0.5, 0.1, 0.1, 0.2])
    found = frequencies(e, 2, "gap")
    # kappa = 2 / 1.9 would exceed 1 for the first; the other four share one place.
    np.testing.assert_allclose(found, [1, 5 / 9, 1 / 9, 1 / 9, 2 / 9], atol=_FOUR_SIGMA)


def test_thinning_takes_a_random_part_of_those_kept_with_probability_e():
    e = np.array([1.0, 1.0, 0.5])
    # The third is kept half of the time and then takes 2 of 3 places: 1/3. The other two share the
    # remaining 5/3.
    found = frequencies(e, 2, "pusb")
    np.testing.assert_allclose(found, [5 / 6, 5 / 6, 1 / 3], atol=_FOUR_SIGMA)


def test_a_high_power_labels_the_most_certain_positives():
    r = np.random.default_rng(1).permutation(np.linspace(0.05, 0.95, 40))
    e = labeling_mechanisms.propensity(r, "power", power=2000.0)
    for seed in range(5):
        drawn = labeling_mechanisms.draw(e, 5, mechanism="power", rng=np.random.default_rng(seed))
        assert set(drawn) == set(np.argsort(-r)[:5])


def test_boundary_favours_low_and_gap_favours_high_posteriors():
    r = np.linspace(0.5, 1.0, 400)
    means = {}
    for mechanism in labeling_mechanisms.NAMES:
        power = 10.0 if mechanism in labeling_mechanisms.WITH_POWER else 1.0
        e = labeling_mechanisms.propensity(r, mechanism, power=power)
        rng = np.random.default_rng(2)
        means[mechanism] = r[labeling_mechanisms.draw(e, 60, mechanism=mechanism, rng=rng)].mean()
    # A uniform draw of 60 has mean 0.75 with a standard error of 0.017.
    assert means["scar"] == pytest.approx(0.75, abs=0.06)
    for mechanism in ("pusb", "power", "power_mixed", "gap"):
        assert means[mechanism] > means["scar"]
    for mechanism in ("boundary", "gap_boundary"):
        assert means[mechanism] < means["scar"] - 0.08


def test_top_labels_the_largest_posteriors_whatever_the_seed():
    r = np.random.default_rng(1).permutation(np.linspace(0.05, 0.95, 40))
    r[:3] = 0.5
    for seed in range(3):
        parts = split(posterior=np.r_[r, r, r], labeling="top", num_support=0, seed=seed)
        positive = np.r_[r, r, r][:60]
        assert set(parts.labeled) == set(np.argsort(-positive, kind="stable")[:10])
    e = labeling_mechanisms.propensity(r, "top")
    np.testing.assert_allclose(e, r / 0.95, rtol=1e-12)


def test_of_equal_posteriors_top_labels_the_first():
    e = labeling_mechanisms.propensity(np.array([0.5, 0.8, 0.5, 0.8, 0.5]), "top")
    rng = np.random.default_rng(0)
    for count, wanted in ((1, [1]), (3, [1, 3, 0]), (4, [1, 3, 0, 2])):
        drawn = labeling_mechanisms.draw(e, count, mechanism="top", rng=rng)
        np.testing.assert_array_equal(drawn, wanted)


def test_a_posterior_of_one_half_is_counted_as_negative():
    """Of r on four rows only the 0.5 of a positive one is wrong."""
    report = labeling_mechanisms.report(
        np.array([1, 1, 0, 0, -1]),
        np.array([0]),
        np.array([1, 2, 3]),
        mechanism="power",
        power=1.0,
        posterior=np.array([0.9, 0.5, 0.3, 0.2, np.nan]),
    )
    assert report.posterior_accuracy == 3 / 4
    assert (report.c, report.e_min, report.e_max) == (0.5, pytest.approx(0.5 / 0.9), 1)


def test_a_mixed_power_labels_one_in_ten_without_regard_to_the_posterior():
    """The most certain ten of a thousand have nearly all weight under a high power."""
    r = np.r_[np.full(990, 0.5), np.full(10, 1.0)]
    e = labeling_mechanisms.propensity(r, "power_mixed", power=100.0)
    first = [
        labeling_mechanisms.draw(e, 1, mechanism="power_mixed", rng=np.random.default_rng(seed))[0]
        for seed in range(2000)
    ]
    # 0.1 of the draws are equal for all, and 990 of 1,000 of these are not certain.
    assert np.mean(np.array(first) < 990) == pytest.approx(0.099, abs=4 * (0.1 * 0.9 / 2000) ** 0.5)


def labels(num_positive=60, num_negative=60):
    return np.repeat([0, 1, 2], [num_positive // 2, num_positive // 2, num_negative])


def split(**changes):
    settings = {
        "positive_classes": (0, 1),
        "num_labeled": 10,
        "num_support": 6,
        "sampling": "stratified",
        "setting": "one_sample",
        "seed": 0,
    }
    settings |= changes
    seed, r = settings.pop("seed"), settings.pop("posterior", None)
    return split_lib.split(labels(), Settings(**settings), seed=seed, posterior=r)


def test_every_row_lands_in_one_part_under_every_mechanism():
    r = np.linspace(0.01, 0.99, 120)
    for mechanism in labeling_mechanisms.NAMES:
        parts = split(labeling=mechanism, posterior=r, num_validation=30)
        assert sorted(np.concatenate(parts)) == list(range(120))
        assert (labels()[parts.labeled] < 2).all()
        assert (labels()[parts.validation_labeled] < 2).all()
        assert len(parts.labeled) == 10
        held = np.concatenate([parts.validation_labeled, parts.validation_unlabeled])
        half = np.sum(labels()[held] < 2) // 2
        found = len(parts.validation_labeled)
        assert 0 < found <= half if mechanism == "pusb" else found == half  # as many as it kept


def test_the_mechanism_labels_the_validation_positives_too():
    r = np.random.default_rng(0).permutation(np.linspace(0.1, 0.99, 120))
    parts = split(labeling="power", labeling_power=300.0, posterior=r, num_validation=30)
    held = np.concatenate([parts.validation_labeled, parts.validation_unlabeled])
    positives = held[labels()[held] < 2]
    top = positives[np.argsort(-r[positives])][: len(positives) // 2]
    assert set(parts.validation_labeled) == set(top)


def test_thinning_that_keeps_too_few_names_the_field():
    r = np.full(120, 1e-6)
    r[0] = 1.0
    with pytest.raises(ValueError, match=r"data.num_labeled is 10; accepted: .*data.labeling"):
        split(labeling="pusb", posterior=r)


def test_the_default_draw_is_what_it_was_before_mechanisms_existed():
    # Published results rest on these rows.
    parts = split(num_support=0, num_labeled=6)
    rng = np.random.default_rng([0, 0x5057])
    pools = [rng.permutation(np.flatnonzero(labels() == c)) for c in range(3)]
    rng.permutation(np.concatenate(pools))  # the support set's draw
    np.testing.assert_array_equal(
        parts.labeled, np.sort(np.concatenate([pools[0][:3], pools[1][:3]]))
    )


@pytest.mark.parametrize("mechanism", labeling_mechanisms.NAMES)
def test_the_stream_of_the_training_labels_is_not_used_by_the_validation_set(mechanism):
    r = np.linspace(0.3, 0.9, 120)
    parts = split(
        labeling=mechanism, posterior=r, sampling="uniform", num_support=0, num_validation=30
    )
    rng = np.random.default_rng([0, 0x5057])
    pools = [rng.permutation(np.flatnonzero(labels() == c)) for c in range(3)]
    rng.permutation(np.concatenate(pools))  # the support set's draw
    held = np.concatenate([parts.validation_labeled, parts.validation_unlabeled])
    left = np.concatenate([pool[~np.isin(pool, held)] for pool in pools[:2]])
    if mechanism == "scar":
        labeled = rng.permutation(left)[:10]
    else:
        rows = np.sort(left)
        e = labeling_mechanisms.propensity(r[rows], mechanism)
        labeled = rows[labeling_mechanisms.draw(e, 10, mechanism=mechanism, rng=rng)]
    np.testing.assert_array_equal(parts.labeled, np.sort(labeled))


def clouds(n=400, overlap=1.0, unknown=0, seed=0):
    """Images whose first pixel tells the class up to an overlap."""
    rng = np.random.default_rng(seed)
    y = np.tile([0, 1], n // 2).astype(np.int32)
    x = rng.integers(0, 256, [n, 2, 2, 1])
    x[:, 0, 0, 0] = np.clip(
        128 + 40 * (2 * (y == 0) - 1) + overlap * 30 * rng.normal(size=n), 0, 255
    )
    y[:unknown] = -1
    names = ("yes", "no")
    return RawDataset("made", x.astype(np.uint8), y, x.astype(np.uint8), y, names, (0.5,), (0.5,))


def test_the_posterior_follows_the_informative_pixel_and_is_calibrated():
    raw = clouds(2000)
    binary = split_lib.binary_labels(raw.train_labels, (0,))
    r = oracle_posterior.fit(raw.train_inputs, binary, seed=0)
    assert r.dtype == np.float64 and r.min() >= 0 and r.max() <= 1
    rank = np.corrcoef(np.argsort(np.argsort(r)), raw.train_inputs[:, 0, 0, 0])[0, 1]
    assert rank > 0.95
    # Two unit Gaussians 8/3 apart: Bayes accuracy Phi(4/3) = 0.909; 2000 draws, 4 sigma = 0.026.
    assert np.mean((r > 0.5) == (binary == 1)) == pytest.approx(0.909, abs=0.03)
    for low, high in ((0.1, 0.5), (0.5, 0.9)):
        rows = (r > low) & (r < high)
        assert np.mean(binary[rows]) == pytest.approx(np.mean(r[rows]), abs=0.1)


def test_the_posterior_is_that_of_the_known_examples_alone_and_nan_elsewhere():
    raw = clouds(unknown=100)
    binary = split_lib.binary_labels(raw.train_labels, (0,))
    first, again = (oracle_posterior._fit(raw.train_inputs, binary, seed=3) for _ in range(2))
    np.testing.assert_array_equal(first, again)
    assert first.shape == (400,) and np.isnan(first[:100]).all()
    alone = oracle_posterior._fit(raw.train_inputs[100:], binary[100:], seed=3)
    np.testing.assert_array_equal(first[100:], alone)


def test_the_posterior_does_not_depend_on_the_size_of_its_chunks(monkeypatch):
    raw = clouds()
    binary = split_lib.binary_labels(raw.train_labels, (0,))
    whole = oracle_posterior._fit(raw.train_inputs, binary, seed=0)
    monkeypatch.setattr(oracle_posterior, "_CHUNK", 7)
    # The overall variance is summed in another order, in float64.
    np.testing.assert_allclose(
        oracle_posterior._fit(raw.train_inputs, binary, seed=0), whole, atol=1e-5
    )


def test_an_equal_problem_is_fitted_once(monkeypatch):
    raw = clouds(seed=5)
    binary = split_lib.binary_labels(raw.train_labels, (0,))
    fits = []
    monkeypatch.setattr(oracle_posterior, "_remembered", {})
    monkeypatch.setattr(oracle_posterior, "_MOST_REMEMBERED", 2)

    def counted(inputs, binary, seed):
        fits.append(seed)
        return np.full(len(inputs), len(fits) / 10)

    monkeypatch.setattr(oracle_posterior, "_fit", counted)
    first = oracle_posterior.fit(raw.train_inputs, binary, seed=0)
    assert oracle_posterior.fit(raw.train_inputs.copy(), binary.copy(), seed=0) is first
    assert fits == [0]
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1
    oracle_posterior.fit(raw.train_inputs, 1 - binary, seed=0)
    oracle_posterior.fit(raw.train_inputs, binary, seed=1)  # forgets the oldest
    oracle_posterior.fit(raw.train_inputs, binary, seed=0)
    assert fits == [0, 0, 1, 0]


def test_the_posterior_needs_both_classes():
    with pytest.raises(ValueError, match=r"data.positive_classes .*accepted: at least 3"):
        oracle_posterior.fit(clouds().train_inputs, np.r_[np.ones(398, int), 0, 0], seed=0)


def test_a_large_set_is_tuned_on_a_stratified_subsample():
    binary = np.repeat([1, 0, -1], [2000, 18000, 500])
    target = binary[binary >= 0]
    rows = oracle_posterior._subsample(target, 10, seed=0)
    assert len(rows) == len(set(rows)) == 10_000
    np.testing.assert_array_equal(np.bincount(target[rows]), [9000, 1000])
    few = oracle_posterior._subsample(target, 27648, seed=0)
    assert len(few) == 500


@pytest.mark.parametrize("setting", dataset.SETTINGS)
def test_the_report_says_what_was_done(setting):
    common = {
        "positive_classes": (0,),
        "num_labeled": 50,
        "num_support": 0,
        "setting": setting,
        "sampling": "uniform",
        "seed": 0,
    }
    plain = dataset.build(clouds(), **common)
    assert plain.labeling == labeling_mechanisms.Report(n_p=50, c=0.25)
    # What rests on the truth is not among the numbers that a method sees.
    assert "labeling" not in plain.info._fields
    assert plain.info == dataset.build(clouds(), **(common | {"seed": 1})).info
    biased = dataset.build(clouds(), **common, labeling="power", labeling_power=3.0)
    report = biased.labeling
    assert (report.mechanism, report.power, report.n_p, report.c) == ("power", 3.0, 50, 0.25)
    assert 0 < report.e_min < report.e_median < report.e_max == 1
    assert 0.8 < report.posterior_accuracy < 1
    pixels, labeled = biased.inputs[:, 0, 0, 0].astype(float), biased.labeled
    hidden = ~labeled & (biased.truth == 1)
    assert pixels[labeled].mean() > pixels[hidden].mean()  # the certain ones are labelled
    assert dataset.build(clouds(), **common, labeling="pusb").labeling.power is None
    assert biased.info.n_u == (350 if setting == "one_sample" else 400)


@pytest.mark.parametrize("labeling", ["scar", "power"])
def test_the_report_is_of_the_positives_that_p_was_drawn_from(labeling):
    """Of a U that is drawn by itself, or of unknown class, P is no part."""
    about = {"positive_classes": (0,), "num_labeled": 20, "num_support": 10, "seed": 0}
    about |= {"sampling": "uniform", "labeling": labeling, "num_validation": 20}
    raw = clouds(400)
    two = dataset.build(raw, **about, setting="two_sample", num_unlabeled=150)
    other = clouds(400, unknown=100)
    pool = {"unlabeled_pool": "unknown_class", "prior": 0.4}
    apart = dataset.build(other, **about, setting="one_sample", **pool)
    one = dataset.build(raw, **about, setting="one_sample", num_unlabeled=150)
    parts = (two.source_ids, two.validation_ids)
    taken = np.concatenate([parts[0][~two.labeled], parts[1]])
    binary = (raw.train_labels == 0).astype(int)
    # What is in no part, but for the support set, whose positives are known in number only.
    left = binary.sum() - binary[taken].sum() - two.info.support_positives
    assert two.labeling.c == pytest.approx(20 / left)
    known = (other.train_labels == 0).sum() - (apart.validation_truth == 1).sum()
    assert apart.labeling.c == pytest.approx(20 / (known - apart.info.support_positives))
    assert one.labeling.c == pytest.approx(20 / (one.truth == 1).sum())
    # Where rows of unknown class might be among them, c is not known.
    mixed = dataset.build(other, **about, setting="two_sample", num_unlabeled=150, prior=0.4)
    assert mixed.labeling.c is None
    if labeling == "power":
        for report in (two.labeling, apart.labeling):
            assert report.e_min < 0.9  # of those passed over, too


def test_an_equal_draw_from_unequal_classes_is_reported_as_scar_within_class():
    # Ten labels each from 40 and 160 positives: e is 1/4 and 1/16, or 1 and 1/4 of the largest.
    classes = np.repeat([0, 1, 2], [40, 160, 100])
    binary = (classes < 2).astype(np.int8)
    labeled = np.r_[0:10, 40:50]
    rest = np.setdiff1d(np.arange(300), labeled)
    about = {"mechanism": "scar", "power": 1.0, "posterior": None}
    report = labeling_mechanisms.report(binary, labeled, rest, **about, classes=classes)
    assert report.within_class and report.c == 0.1
    assert (report.e_min, report.e_median, report.e_max) == (0.25, 0.25, 1.0)
    assert "scar within class, c 0.1000, relative e 0.25" in evaluation.describe_labeling(report)
    plain = labeling_mechanisms.report(binary, labeled, rest, **about)
    assert not plain.within_class and "within" not in evaluation.describe_labeling(plain)
    # One positive class: nothing differs from SCAR.
    single = labeling_mechanisms.report(binary, labeled, rest, **about, classes=binary)
    assert single == plain


@pytest.mark.parametrize("sampling", dataset.SAMPLINGS)
def test_a_problem_says_whether_its_draw_looked_at_the_class(sampling):
    raw = clouds()
    raw.train_labels[:120] = 2
    data = dataset.build(
        raw,
        positive_classes=(0, 2),
        num_labeled=40,
        num_support=0,
        setting="one_sample",
        sampling=sampling,
        class_prior=0.5 if sampling == "balanced" else None,  # which it asks for
        seed=0,
    )
    assert data.labeling.within_class == (sampling != "uniform")
    # Balanced classes are as large as each other, so that equal numbers are equal chances.
    assert (data.labeling.e_min < 1) == (sampling not in ("uniform", "balanced"))


def test_sources_with_unknown_classes_can_be_labeled_with_a_bias():
    data = dataset.build(
        clouds(unknown=100),
        positive_classes=(0,),
        num_labeled=20,
        num_support=10,
        setting="one_sample",
        sampling="uniform",
        seed=0,
        labeling="boundary",
        num_validation=20,
    )
    assert data.counts()["unlabeled_without_truth"] == 100
    assert (data.truth[data.labeled] == 1).all()


def test_the_posterior_of_a_table_does_not_depend_on_the_units_of_its_features():
    rng = np.random.default_rng(0)
    binary = np.repeat(np.int8([0, 1]), 200)
    rows = rng.normal(size=[400, 3]) + binary[:, None]
    plain = oracle_posterior.fit(rows.astype(np.float32), binary, seed=0)
    units = oracle_posterior.fit(
        (rows * [1e-3, 1, 1e4] + [0, 50, -3]).astype(np.float32), binary, seed=0
    )
    np.testing.assert_allclose(plain, units, atol=0.01)  # float32 rounding and L-BFGS's stop
    # The posterior of these clouds is sigmoid(x1 + x2 + x3 - 3/2).
    true = 1 / (1 + np.exp(1.5 - rows.sum(1)))
    assert np.corrcoef(plain, true)[0, 1] > 0.97


@pytest.mark.parametrize(("positives", "negatives", "few"), [(2, 9, 2), (9, 2, 2), (9, 0, 0)])
def test_too_few_of_a_class_to_fit_the_labelling_model_on_are_counted(positives, negatives, few):
    binary = np.repeat([1, 0, -1], [positives, negatives, 5])
    rows = np.random.default_rng(0).normal(size=[len(binary), 3])
    with pytest.raises(ValueError, match=f"leaves {few} examples of known class on one side"):
        oracle_posterior.fit(rows, binary, seed=0)
