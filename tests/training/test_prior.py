"""`data.prior='auto'` estimates the prior before training, once, and trains on nothing else."""

import json

import ml_collections
import numpy as np
import pytest

from pujax import priors, sweep, training
from pujax.data import dataset
from pujax.priors import PriorEstimate
from pujax.sweep import cell_runner
from pujax.training import config as config_lib
from pujax.training import experiment, method_setup, prior_estimation
from tests import tiny

MLP = {"model": "mlp", "options": {"hidden": (16,)}}


def config(method="nnpu", *, seed=0, run=None, **data):
    settings = {"prior": "auto", "prior_method": "best_bin"} | data
    return tiny.config(method, **MLP, seed=seed, data=settings, run=run or {}, num_epochs=2)


def problem(setting="one_sample", **changes):
    return tiny.problem(setting=setting, prior=dataset.AUTO, **changes)


pytestmark = pytest.mark.usefixtures("one_device")


@pytest.fixture
def found(monkeypatch):
    """Stands in for the estimate, and counts how often it is asked for."""
    calls = []

    def fake(config, data, mesh):
        calls.append(config.seed)
        return fake.estimate

    fake.estimate = PriorEstimate(0.4, 0.3, 0.6)
    fake.calls = calls
    monkeypatch.setattr(prior_estimation, "estimate_unlabeled", fake)
    return fake


@pytest.mark.parametrize("method", ["best_bin", "ratio", "elkan_noto_e1", "pen_l1", "tice"])
def test_the_prior_of_separated_clouds_is_found(method):
    data = problem(num_labeled=60, num_support=0)
    result = prior_estimation.estimate_unlabeled(
        config(prior_method=method, prior_epochs=20), data, tiny.mesh(1)
    )
    true = np.mean(data.truth[data.hidden()])
    assert result.value == pytest.approx(true, abs=0.12)
    assert result.low <= result.value <= result.high


def test_hosts_take_the_estimate_of_the_first_whatever_their_own_is(found, tmp_path, monkeypatch):
    """Last digits may differ, and the prior is a constant of the program that they share."""
    found.estimate = PriorEstimate(0.4, 0.3, 0.6)
    of_first = json.dumps(
        {
            "estimate": {"value": 0.25, "low": 0.125, "high": 0.5},
            "method": "best_bin",
            "agree": True,
            "estimates": {"best_bin": {"value": 0.25, "low": 0.125, "high": 0.5}},
        }
    )
    monkeypatch.setattr(prior_estimation.sharding, "of_first_host", lambda text: of_first)
    data = prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))
    assert data.info.prior_unlabeled == pytest.approx(0.25)
    assert json.loads((tmp_path / "prior.json").read_text())["estimate"]["value"] == 0.25


@pytest.mark.thorough
def test_the_estimate_is_the_same_for_a_seed_on_eight_devices_and_without_the_truth():
    data = problem()
    first = prior_estimation.estimate_unlabeled(config(), data, tiny.mesh(1))
    blind = data._replace(
        truth=np.zeros_like(data.truth), test_labels=np.zeros_like(data.test_labels)
    )
    assert prior_estimation.estimate_unlabeled(config(), blind, tiny.mesh(1)) == first
    assert prior_estimation.estimate_unlabeled(config(), data, tiny.mesh(8)).value == pytest.approx(
        first.value, abs=0.02
    )


def test_the_held_out_halves_are_scored_and_copies_of_p_are_not_in_u(monkeypatch):
    data, seen = problem("two_sample", num_labeled=40), {}

    def fake(config, data, rows, held, mesh):
        seen.update(rows=rows, held=held)
        return np.linspace(0, 1, len(held))

    monkeypatch.setattr(prior_estimation, "network_scores", fake)
    prior_estimation.estimate_unlabeled(config(), data, tiny.mesh(1))
    rows, held = seen["rows"], seen["held"]
    assert data.labeled[rows].sum() == 20 and len(rows) + len(held) == 40 + data.hidden().sum()
    both = np.concatenate([data.inputs[rows], held]).reshape(len(rows) + len(held), -1)
    assert len(np.unique(both, axis=0)) == len(both)
    copies = np.isin(data.source_ids, data.source_ids[data.labeled]) & ~data.labeled
    assert copies.sum() == 40 and not np.isin(rows, np.flatnonzero(copies)).any()
    prior_estimation.estimate_unlabeled(config(seed=1), data, tiny.mesh(1))
    assert set(seen["rows"]) != set(rows)  # another seed, other halves


def test_u_share_becomes_the_priors_of_each_setting(tmp_path, found):
    one = prior_estimation.settle(config(), problem(), str(tmp_path / "one"), tiny.mesh(1))
    n_p, n_u = one.info.n_p, one.info.n_u
    assert one.info.prior_unlabeled == pytest.approx(0.4)
    assert one.info.prior == pytest.approx((n_p + 0.4 * n_u) / (n_p + n_u))
    ends = [(n_p + end * n_u) / (n_p + n_u) for end in (0.3, 0.6)]
    assert one.prior_interval == pytest.approx(ends)
    assert one.info.prior_source == "estimated by best_bin"

    data = problem("two_sample")
    two = prior_estimation.settle(config(), data, str(tmp_path / "two"), tiny.mesh(1))
    n_u = two.info.n_u
    assert two.info.prior == two.info.prior_unlabeled
    assert two.info.prior == pytest.approx((n_p + 0.4 * (n_u - n_p)) / n_u)

    drawn = problem("two_sample", num_unlabeled=80)
    apart = prior_estimation.settle(config(), drawn, str(tmp_path / "apart"), tiny.mesh(1))
    assert apart.info.prior == apart.info.prior_unlabeled == 0.4


def test_the_true_share_gives_the_counted_priors(tmp_path, found):
    for setting in dataset.SETTINGS:
        counted, data = tiny.problem(setting=setting), problem(setting)
        found.estimate = PriorEstimate(float(np.mean(data.truth[data.hidden()])))
        settled = prior_estimation.settle(config(), data, str(tmp_path / setting), tiny.mesh(1))
        assert settled.info.prior == pytest.approx(counted.info.prior)
        assert settled.info.prior_unlabeled == pytest.approx(counted.info.prior_unlabeled)
        assert settled.prior_interval is None


BOUNDS = {
    "best_bin": PriorEstimate(0.4, 0.35, 0.6),
    "ratio": PriorEstimate(0.5, 0.4, 0.55),
    "tice": PriorEstimate(0.2, 0.1, 0.3),
    "pearson": PriorEstimate(1.0, 0.0, 1.0),
}


def several(monkeypatch, known):
    """Stands in for the estimators of the rule; returns what they were given."""
    seen = {}

    def fake(positives, unlabeled, *, scores, **options):
        seen.update(positives=positives, unlabeled=unlabeled, scores=scores, **options)
        return known

    def scored(config, data, rows, held, mesh):
        return np.linspace(-9, 9, len(held))

    monkeypatch.setattr(prior_estimation, "estimates_of", fake)
    monkeypatch.setattr(prior_estimation, "network_scores", scored)
    return seen


def test_the_default_takes_the_smallest_bound_warns_and_keeps_all(tmp_path, monkeypatch, caplog):
    seen = several(monkeypatch, BOUNDS)
    tree, data = config(prior_method="consensus"), problem("two_sample", num_labeled=40)
    settled = prior_estimation.settle(tree, data, str(tmp_path), tiny.mesh(1))
    n_u, hidden = data.info.n_u, int(data.hidden().sum())
    assert len(seen["positives"]) == 40 and len(seen["unlabeled"]) == hidden
    assert [len(x) for x in seen["scores"]] == [20, hidden - hidden // 2 - hidden % 2]
    assert all(x.min() >= 0 and x.max() <= 1 for x in seen["scores"])
    expected = (40 + 0.2 * hidden) / n_u
    assert settled.info.prior == pytest.approx(expected)
    source = "estimated by tice, the most cautious of 4 that disagree"
    assert settled.info.prior_source == source
    choice = settled.prior_choice
    assert (choice.method, choice.agree) == ("tice", False)
    assert choice.estimates["tice"][0] == pytest.approx(settled.info.prior_unlabeled)
    assert choice.estimates["ratio"][1] == pytest.approx((40 + 0.4 * hidden) / n_u)
    for name, found in BOUNDS.items():
        assert f"{name} {found.value:.3g} [" in caplog.text
    kept = json.loads((tmp_path / "prior.json").read_text())
    assert kept["method"] == "tice" and not kept["agree"] and set(kept["estimates"]) == set(BOUNDS)

    caplog.clear()
    seen.clear()
    again = prior_estimation.settle(tree, data, str(tmp_path), tiny.mesh(1))
    assert again.info == settled.info and again.prior_choice == choice and not seen
    assert "tice 0.2 [" in caplog.text

    # Of runs that share estimates, as the cells of a sweep do, the first one warns.
    known = {}
    for folder, is_said in (("first", True), ("second", False)):
        caplog.clear()
        prior_estimation.settle(tree, data, str(tmp_path / folder), tiny.mesh(1), known=known)
        assert ("tice 0.2 [" in caplog.text) == is_said
    with pytest.raises(ValueError, match="prior_method: 'consensus' there, 'best_bin' here"):
        prior_estimation.settle(config(), data, str(tmp_path), tiny.mesh(1))


def test_where_estimators_agree_best_bin_is_used_without_a_word(tmp_path, monkeypatch, caplog):
    several(monkeypatch, {name: BOUNDS[name] for name in ("best_bin", "ratio", "pearson")})
    tree = config(prior_method="consensus")
    settled = prior_estimation.settle(tree, problem(), str(tmp_path), tiny.mesh(1))
    assert settled.info.prior_unlabeled == pytest.approx(0.4)
    assert settled.info.prior_source == "estimated by best_bin" and settled.prior_choice.agree
    assert "disagree" not in caplog.text


def test_methods_on_features_get_fewer_rows_of_large_images(monkeypatch):
    seen, data = several(monkeypatch, BOUNDS), problem(num_labeled=40)
    width = int(np.prod(data.inputs.shape[1:]))
    monkeypatch.setattr(
        prior_estimation,
        "estimate",
        lambda p, u, **options: seen.update(positives=p, unlabeled=u) or PriorEstimate(0.5),
    )

    def shown(method):
        tree = config(prior_method=method)
        prior_estimation.estimate_all(tree, data, tiny.mesh(1))
        return seen["positives"], seen["unlabeled"]

    for method in ("consensus", "pearson"):
        monkeypatch.setattr(prior_estimation, "_MAX_NUMBERS", 2**25)
        p, u = shown(method)
        assert (len(p), len(u)) == (40, data.hidden().sum())
        for most, wanted in ((7 * width + width // 2, 7), (1, 4)):
            monkeypatch.setattr(prior_estimation, "_MAX_NUMBERS", most)
            few_p, few_u = shown(method)
            np.testing.assert_array_equal(few_p, p[:wanted])  # the first of the same random rows
            np.testing.assert_array_equal(few_u, u[:wanted])


def test_estimators_that_all_say_nothing_end_the_run(tmp_path, monkeypatch):
    several(monkeypatch, {"pearson": BOUNDS["pearson"]})
    tree = config(prior_method="consensus")
    with pytest.raises(ValueError, match="data.prior is 'auto', and the estimators find pearson 1"):
        prior_estimation.settle(tree, problem(), str(tmp_path / "run"), tiny.mesh(1))
    assert not (tmp_path / "run").exists()


@pytest.mark.thorough
def test_a_named_estimator_finds_what_it_finds_among_several(monkeypatch):
    monkeypatch.setattr(prior_estimation, "_NUM_RESAMPLES", 10)
    data, mesh = problem(num_labeled=60, num_support=0), tiny.mesh(1)
    found = prior_estimation.estimate_all(config(prior_method="consensus"), data, mesh)
    assert set(found.estimates) == set(priors.BOUNDS)
    alone = prior_estimation.estimate_all(config(), data, mesh)
    assert alone.estimates == {"best_bin": alone.estimate} and alone.agree
    assert alone.estimate == found.estimates["best_bin"]


def test_it_is_kept_in_the_folder_and_read_again(tmp_path, found):
    first = prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))
    found.estimate = PriorEstimate(0.9)
    second = prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))
    assert second.info == first.info and second.prior_interval == first.prior_interval
    assert len(found.calls) == 1
    kept = json.loads((tmp_path / "prior.json").read_text())
    assert kept["prior"] == first.info.prior and kept["estimate"]["value"] == 0.4


def test_weights_may_move_after_the_estimate(tmp_path, found):
    """What their file holds is in the digest of the data."""
    places = ["/old/w.pth", "w.pth", "/new/w.pth"]
    for place in places:
        moved = ml_collections.ConfigDict(config())
        moved.model.init = place
        moved = ml_collections.FrozenConfigDict(moved)
        prior_estimation.settle(moved, problem(), str(tmp_path), tiny.mesh(1))
    path = tmp_path / "prior.json"
    document = json.loads(path.read_text())
    assert document["of"]["model"]["init"] == "a file" and len(found.calls) == 1
    document["of"]["model"]["init"] = "/old/w.pth"  # as earlier versions wrote it
    path.write_text(json.dumps(document))
    prior_estimation.settle(moved, problem(), str(tmp_path), tiny.mesh(1))
    assert len(found.calls) == 1
    with pytest.raises(ValueError, match="model.init: 'a file' there, 'random' here"):
        prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prior_method": "ratio"}, "prior_method: 'best_bin' there, 'ratio' here"),
        ({"prior_epochs": 7}, "prior_epochs: 5 there, 7 here"),
    ],
)
def test_the_estimate_of_another_run_is_refused(tmp_path, found, change, message):
    prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))
    with pytest.raises(ValueError, match=rf"prior.json belongs to another run .*{message}"):
        prior_estimation.settle(config(**change), problem(), str(tmp_path), tiny.mesh(1))
    with pytest.raises(ValueError, match="data_digest"):
        prior_estimation.settle(config(), problem(seed=1), str(tmp_path), tiny.mesh(1))
    (tmp_path / "prior.json").write_text("{")
    with pytest.raises(ValueError, match="prior.json is damaged"):
        prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))


def test_what_is_kept_is_read_by_name_and_refused_where_it_is_no_estimate(tmp_path, found):
    first = prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))
    path = tmp_path / "prior.json"
    kept = json.loads(path.read_text())
    reordered = dict(reversed(kept["estimate"].items()))
    path.write_text(json.dumps(kept | {"estimate": reordered}))
    again = prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))
    assert again.info == first.info and again.prior_interval == first.prior_interval
    for change in (
        {"value": "abc"},
        {"value": "0.4"},
        {"value": None},
        {"low": [0.1]},
        {"low": 10**400},
        {"lowest": 0.1},
    ):
        path.write_text(json.dumps(kept | {"estimates": {"best_bin": kept["estimate"] | change}}))
        with pytest.raises(ValueError, match="prior.json is damaged"):
            prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))
        path.write_text(json.dumps(kept | {"estimate": kept["estimate"] | change}))
        with pytest.raises(ValueError, match="prior.json is damaged"):
            prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))
    for text in (json.dumps(kept | {"estimate": {"value": 0.4}}), "[]", '{"of": 3}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(ValueError, match="prior.json is damaged"):
            prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="prior.json is damaged"):
        prior_estimation.settle(config(), problem(), str(tmp_path), tiny.mesh(1))


@pytest.mark.parametrize("num_rows", [37, 90, 127, 180])
def test_batches_of_the_scorer_hold_as_many_of_p_as_of_u(monkeypatch, num_rows):
    class Built(Exception):
        pass

    def stop(tree, info):
        raise Built(tree.method.batch_size, tree.method.positives_per_batch)

    monkeypatch.setattr(prior_estimation.naive, "build", stop)
    data = problem()
    rows = np.arange(num_rows)
    with pytest.raises(Built) as seen:
        prior_estimation.network_scores(config(), data, rows, data.inputs[:2], tiny.mesh(1))
    size, positives = seen.value.args
    assert size == 2 * positives and size == min(128, num_rows - num_rows % 2)


def test_all_calls_of_the_scorer_are_one_program(monkeypatch):
    seen = []

    def make_train(stage, mesh):
        def train(carry, data, plan, key, *place, count):
            seen.append((place, count))
            return carry

        return train

    monkeypatch.setattr(prior_estimation.train_step, "make_train", make_train)
    monkeypatch.setattr(prior_estimation, "_MIN_STEPS", 5)
    data, rows = problem(), np.arange(60)
    tree = config(prior_epochs=2, run={"steps_per_dispatch": 3})
    prior_estimation.network_scores(tree, data, rows, data.inputs[:2], tiny.mesh(1))
    # Epoch, step, step of the training, and how many steps are wanted of the three.
    places = [(0, 0, 0, 3), (0, 3, 3, 2), (1, 0, 5, 3), (1, 3, 8, 2)]
    assert seen == [(place, 3) for place in places]


@pytest.mark.parametrize("values", [(0.0,), (1.0,), (1.0, 0.8, 1.0), (0.0, 0, 0.1), (0.5, 0, 1)])
def test_an_estimate_that_says_nothing_ends_the_run(tmp_path, found, values):
    found.estimate = PriorEstimate(*values)
    with pytest.raises(ValueError, match="data.prior is 'auto', and best_bin finds .*accepted"):
        prior_estimation.settle(config(), problem(), str(tmp_path / "run"), tiny.mesh(1))
    assert not (tmp_path / "run").exists()


def test_a_validation_set_with_more_labels_than_positives_is_refused(tmp_path, found):
    data = problem(num_validation=40, validation_labeled=19, num_labeled=20)
    found.estimate = PriorEstimate(0.05)
    with pytest.raises(ValueError, match="fewer data.validation_labeled"):
        prior_estimation.settle(config(), data, str(tmp_path), tiny.mesh(1))


def test_a_given_or_counted_prior_is_left_alone(tmp_path, found):
    for value in (None, 0.5):
        data, given = tiny.problem(prior=value), config(prior=value, prior_method="consensus")
        assert prior_estimation.settle(given, data, str(tmp_path), tiny.mesh(1)) is data
    assert not found.calls and not list(tmp_path.iterdir())


def small(method="nnpu", **changes):
    """A short run on the digits."""
    tree = config_lib.default_config(method)
    tree.data.update({"prior": "auto", "prior_method": "best_bin", "num_labeled": 200})
    tree.model.update({"name": "mlp", "options": {"hidden": (8,)}})
    tree.method.update({"num_epochs": 2, "batch_size": 128})
    tree.run.update({"figures": False} | changes)
    return tree


@pytest.mark.thorough
def test_a_run_says_keeps_and_resumes_with_its_estimate(tmp_path, capsys, found):
    assert training.run(small(stop_after_epoch=1, compare="naive"), str(tmp_path)) is None
    text = capsys.readouterr().out
    assert "(estimated by best_bin, 90 % interval" in text
    summary = training.run(small(compare="naive"), str(tmp_path))
    assert len(found.calls) == 1
    expected = (200 + 0.4 * summary["counts"]["unlabeled"]) / (200 + summary["counts"]["unlabeled"])
    assert summary["prior"] == pytest.approx(expected)
    assert summary["prior_source"] == "estimated by best_bin"
    low, high = summary["prior_interval"]
    assert low < summary["prior"] < high
    assert set(summary["comparison"]) == {"naive"}
    inside = json.loads((tmp_path / "naive" / "summary.json").read_text())
    assert inside["prior"] == summary["prior"]


def test_a_bad_setting_is_found_before_the_estimate_is_paid_for(tmp_path, found):
    tree = small()
    tree.method.learning_rate = -1.0
    with pytest.raises(ValueError, match="method.learning_rate"):
        training.run(tree, str(tmp_path / "run"))
    assert not found.calls and not (tmp_path / "run").exists()


def test_another_estimate_does_not_go_on_from_a_checkpoint(tmp_path, found):
    training.run(small(stop_after_epoch=1), str(tmp_path))
    (tmp_path / "prior.json").unlink()
    found.estimate = PriorEstimate(0.5)
    with pytest.raises(ValueError, match="belongs to another run .*estimated_prior"):
        training.run(small(), str(tmp_path))


@pytest.mark.thorough
def test_seeds_together_and_cells_of_a_sweep_share_what_was_estimated(tmp_path, found):
    plan = sweep.Plan(
        "t",
        [sweep.Cell(method, "digits", small(method)) for method in ("nnpu", "naive")],
        seeds=(0, 1),
    )
    assert sweep.runner.run(plan, str(tmp_path), dry_run=True) == 0
    assert not found.calls
    assert sweep.runner.run(plan, str(tmp_path)) == 0
    assert sorted(found.calls) == [0, 1]
    for path in tmp_path.rglob("summary.json"):
        summary = json.loads(path.read_text())
        assert summary["prior_source"] == "estimated by best_bin"
        assert summary["trained_together"] == 2


def test_a_problem_that_nobody_settled_has_no_prior_to_train_on():
    data = experiment.load_data(config_lib.resolve(small()))
    assert np.isnan(data.info.prior)
    with pytest.raises(ValueError, match="data.prior"):
        method_setup.build(config_lib.resolve(small()), data, tiny.mesh(1))
    frozen = ml_collections.FrozenConfigDict(small())
    assert np.isnan(cell_runner.loader(1)(frozen).info.prior)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("prior", "Auto", "data.prior is 'Auto'; accepted: a finite number, or 'auto'"),
        ("prior_method", "bbe", "data.prior_method is 'bbe'; accepted: 'km1'"),
        ("prior_epochs", 0, "data.prior_epochs is 0"),
    ],
)
def test_bad_fields_are_named(field, value, message):
    tree = small()
    tree.data[field] = value
    with pytest.raises(ValueError, match=message):
        config_lib.resolve(tree)
