"""From which score on LaGAM calls an example positive."""

import importlib
import math
import statistics

import jax
import numpy as np
import pytest

from pujax.configs.sweeps import pu_bench, pubench
from pujax.methods import lagam, naive
from pujax.methods.lagam import decision
from pujax.training import method_setup, sharding, train_step
from tests import tiny

DENSE = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}, "augment": False}


def best_cut(score_at, prior):
    """The score from which on accuracy is largest, of two Gaussians at +1 and -1, by trying all."""
    positive, negative = statistics.NormalDist(1), statistics.NormalDist(-1)
    points = np.linspace(-4, 4, 8001)
    right = [prior * (1 - positive.cdf(x)) + (1 - prior) * negative.cdf(x) for x in points]
    return score_at(points[int(np.argmax(right))])


@pytest.mark.parametrize("prior", [0.02, 0.24, 0.5, 0.8])
@pytest.mark.parametrize(("form", "share"), [("balanced", 0.3), ("mean", 0.1), ("mean", 0.6)])
def test_the_cut_is_the_one_of_the_largest_accuracy(prior, form, share):
    """The minimiser's scores are known here: the log of the weighted densities' ratio, 2x + c."""
    weight = 0.5 if form == "balanced" else share
    found = decision.threshold(form, prior=prior, training_share=share)

    assert found == pytest.approx(
        best_cut(lambda x: 2 * x + math.log(weight / (1 - weight)), prior), abs=0.002
    )


def test_what_is_published_is_right_where_classes_are_as_frequent_as_their_weight():
    assert decision.threshold("balanced", prior=0.5, training_share=0.1) == 0
    assert decision.threshold("mean", prior=0.2, training_share=0.2) == 0
    assert decision.threshold("nnpu", prior=0.2, training_share=0.1) == 0


def section(**changes):
    config = lagam.default_config()
    config.update(changes)
    return config


def offset(info, **changes):
    return decision.offset(section(**changes), info)


def test_a_rare_class_is_cut_higher_by_default_and_not_as_published():
    info = tiny.problem(positive_classes=(0,)).info  # a quarter of one-sample data

    assert info.prior == pytest.approx(0.25, abs=0.01)
    assert offset(info) == pytest.approx(math.log((1 - info.prior) / info.prior))
    assert offset(info, threshold="prior") == offset(info)
    assert offset(info, threshold="zero") == 0
    # The plain mean over P and U is that of the population.
    assert offset(info, classification_loss="mean") == pytest.approx(0, abs=1e-6)


def test_in_two_samples_the_mean_weighs_the_labelled_positives_as_well():
    data = tiny.problem(positive_classes=(0,), setting="two_sample", num_support=0)
    info = data.info
    share = (info.n_p + info.prior * info.n_u) / info.n

    found = offset(info, classification_loss="mean")

    assert share > info.prior + 0.05
    assert found == pytest.approx(
        math.log(share / (1 - share)) - math.log(info.prior / (1 - info.prior))
    )


@pytest.mark.parametrize(
    ("setting", "rule"), [("one_sample", "pooled"), ("two_sample", "unlabeled")]
)
@pytest.mark.parametrize("form", ["balanced", "mean"])
def test_without_learned_labels_scores_are_those_of_p_against_u(setting, rule, form):
    info = tiny.problem(positive_classes=(0,), setting=setting, num_support=0).info
    weights = {"balanced": 1.0, "mean": info.n_p / info.n_u}

    found = offset(info, use_meta=False, classification_loss=form)

    assert found == pytest.approx(
        naive.threshold(
            rule,
            weight_ratio=weights[form],
            labeled_share=info.n_p / info.n,
            in_unlabeled=info.prior_unlabeled,
        )
    )
    assert found < offset(info, classification_loss=form)  # U holds positives
    assert offset(info, use_meta=False, classification_loss="nnpu") == 0


@pytest.mark.parametrize("prior", [float("nan"), 0.0, 1.0])
def test_without_a_usable_prior_it_is_the_published_cut(prior):
    info = tiny.problem().info._replace(prior=prior)

    assert offset(info) == 0


def test_a_configuration_of_an_earlier_version_cuts_at_zero():
    older = section()
    del older["threshold"]
    info = tiny.problem(positive_classes=(0,)).info

    decision.check(older, info)

    assert decision.offset(older, info) == 0


def test_unknown_rules_and_a_missing_prior_are_named():
    info = tiny.problem().info
    unknown = info._replace(prior=float("nan"), prior_unlabeled=float("nan"))

    with pytest.raises(ValueError, match=r"method\.threshold is 'pooled'; accepted: .*prior"):
        lagam.check(section(threshold="pooled"), info)
    with pytest.raises(ValueError, match=r"data\.prior"):
        lagam.check(section(threshold="prior"), unknown)
    decision.check(section(), unknown)


def test_scores_are_cut_and_nothing_else_changes():
    data = tiny.problem(positive_classes=(0,))
    mesh = tiny.mesh()
    scores = {}
    for rule in ("zero", "auto"):
        made = method_setup.build(tiny.config("lagam", threshold=rule, **DENSE), data, mesh)
        arrays = sharding.replicate(made.data.training_data(), mesh)
        state = train_step.init_state(made.method.stages[-1], jax.random.key(0), None, arrays, mesh)
        scores[rule] = np.asarray(made.method.predict(state, data.test_inputs))

    moved = scores["zero"] - scores["auto"]
    np.testing.assert_allclose(moved, offset(data.info), rtol=1e-5)
    assert offset(data.info) > 1


@pytest.mark.parametrize("name", ["cifar", "stl10", "alzheimer", "mnist", "digits"])
def test_the_papers_experiments_cut_at_zero(name):
    module = importlib.import_module(f"pujax.configs.lagam_{name}")

    assert module.get_config().method.threshold == "zero"


@pytest.mark.parametrize(
    ("plan", "argument"), [(pu_bench, "data=mushrooms"), (pu_bench, "data=mnist"), (pubench, "")]
)
def test_the_boards_cut_at_zero(plan, argument):
    cells = [x for x in plan.get_plan(argument).cells if "threshold" in x.config.method]

    assert {"lagam", "naive", "p3mix_c", "p3mix_e", "pan", "weighted_bce"} <= {x.row for x in cells}
    assert {x.config.method.threshold for x in cells} == {"zero"}
