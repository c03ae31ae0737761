"""Scores cut where the class prior asks for it: which one, of which states, and when it is 0."""

import pickle

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax import PUClassifier, methods
from pujax.configs import p3mix, pan
from pujax.configs.sweeps import online
from pujax.methods._common import threshold
from pujax.training import method_setup, seed_axis
from pujax.training.evaluation import tasks
from pujax.training.evaluation.evaluator import Evaluator
from tests import tiny

MLP = {"model": "mlp", "options": {"hidden": (16, 16), "batch_norm": True}}
METHODS = ("cvir", "naive", "p3mix_c", "p3mix_e", "pan", "weighted_bce")


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


def built(data, name, rule="prior", **changes):
    """A method, and a state of it before the first step."""
    config = tiny.config(name, **MLP, threshold=rule, **changes)
    method = methods.build(config, data.info)
    return method, method.stages[0].init(jax.random.key(0), None, data.training_data())


def test_the_score_at_a_share_by_hand():
    scores = jnp.asarray([0.5, -1.0, 0.7, 0.1, 3.0])
    everyone = jnp.ones(5, bool)

    def at(share, keep=everyone, count=5):
        return float(threshold.at_share(scores, share, keep=keep, count=count))

    # Two of five are 0.7 and 3.0; 0.45 of them are no whole number and 2.25 ask for three.
    assert at(0.4) == pytest.approx(0.7)
    assert at(0.45) == pytest.approx(0.5)
    assert at(0.0) == at(0.1) == pytest.approx(3.0)
    assert at(1.0) == pytest.approx(-1.0)
    # Without 3.0 half of four are 0.5 and 0.7.
    assert at(0.5, jnp.asarray([True, True, True, True, False]), 4) == pytest.approx(0.5)


@pytest.mark.parametrize("name", METHODS)
def test_the_cut_leaves_the_share_of_positives_of_u_above_it(data, name):
    method, state = built(data, name)
    arrays = data.training_data()
    before = np.asarray(method.predict(state, arrays.inputs))
    ready = method.calibrate(state, arrays)
    scores = np.asarray(method.predict(ready, arrays.inputs))
    np.testing.assert_allclose(scores, before - float(ready.offset), atol=1e-6)
    of_u = scores[~data.labeled]
    # The cut is the score of one example, and what equals it is not above it.
    assert (of_u > 1e-9).sum() == round(data.info.prior_unlabeled * len(of_u)) - 1
    some = arrays.inputs[:8]
    np.testing.assert_allclose(method.embed(ready, some), method.embed(state, some), rtol=1e-6)
    like, got = (jax.eval_shape(lambda x: x, x) for x in (method.evaluated(state), ready))
    assert jax.tree.structure(like) == jax.tree.structure(got)  # what saved models are rebuilt by
    assert jax.tree.leaves(like) == jax.tree.leaves(got)
    if method.encoder:
        jax.tree.map(np.testing.assert_array_equal, method.encoder(ready), method.encoder(state))


@pytest.mark.parametrize("name", METHODS)
def test_only_the_rules_with_a_threshold_see_the_cut(data, name):
    """The VPU risk and the ranking are those of the scores as they were trained."""
    held = tiny.problem(num_validation=40)
    rows = {}
    for rule in ("zero", "prior"):
        method, state = built(held, name, rule)
        arrays = held.training_data()
        judge = Evaluator(method, held, arrays, tiny.mesh(), task=tasks.of(held), batch_size=64)
        rows[rule] = judge.begin(state).row()
    zero, moved = rows["zero"], rows["prior"]
    assert zero["val_vpu_risk"] == moved["val_vpu_risk"]
    assert zero["test_auc"] == pytest.approx(moved["test_auc"], abs=1e-3)
    assert zero["val_nnpu_risk"] != moved["val_nnpu_risk"]
    assert moved["test_uncalibrated_accuracy"] == zero["test_accuracy"]
    assert "test_uncalibrated_accuracy" not in zero


@pytest.mark.parametrize("name", METHODS)
def test_the_default_follows_the_prior_but_for_naive_and_cvir(name):
    rule = methods.module(name).default_config().threshold
    assert rule == ("zero" if name in ("cvir", "naive") else "auto")


@pytest.mark.parametrize(
    ("name", "rule", "prior"),
    [(name, "zero", 0.4) for name in METHODS]
    # CVIR needs a prior to train.
    + [(x, "auto", y) for x in METHODS if x != "cvir" for y in (np.nan, 0.0, 1.0)],
)
def test_without_a_prior_or_by_the_published_rule_the_cut_is_0(data, name, rule, prior):
    info = data.info._replace(prior=prior, prior_unlabeled=prior)
    method = methods.build(tiny.config(name, **MLP, threshold=rule), info)
    assert method.calibrate is None and method.evaluated is None


@pytest.mark.parametrize("rule", ["auto", "prior"])
@pytest.mark.parametrize("prior", [0.4, np.nan])
def test_a_share_that_a_method_estimates_is_that_of_the_cut(data, rule, prior):
    """Whatever is known of the data; until there is one, and where all is of one class, 0."""
    info = data.info._replace(prior=prior, prior_unlabeled=prior)
    config = tiny.config("cvir", **MLP, threshold=rule, alpha="estimated", hold_out_ratio=0.2)
    method, arrays = methods.build(config, info), data.training_data()
    state = method.stages[0].init(jax.random.key(0), None, arrays)
    before = np.asarray(method.predict(state, arrays.inputs))
    for share, above in ((0.0, None), (0.25, 0.25), (0.75, 0.75), (1.0, None)):
        ready = method.calibrate(state._replace(share=jnp.float32(share)), arrays)
        scores = np.asarray(method.predict(ready, arrays.inputs))
        assert float(method.estimates(ready)["estimated_prior"]) == share
        if above is None:
            np.testing.assert_array_equal(scores, before)
        else:
            of_u = scores[~data.labeled]
            assert (of_u > 1e-6).sum() == round(above * len(of_u)) - 1
    fixed = tiny.config("cvir", **MLP, threshold="zero", alpha="estimated", hold_out_ratio=0.2)
    assert methods.build(fixed, info).calibrate is None


@pytest.mark.parametrize("name", METHODS)
def test_a_model_of_an_earlier_version_is_cut_at_0(data, name):
    """Its configuration lacks the field."""
    tree = tiny.config(name, **MLP).to_dict()
    del tree["method"]["threshold"]
    assert methods.build(ml_collections.FrozenConfigDict(tree), data.info).calibrate is None


# P3MIX looks at all examples for its pool of positives, too.
@pytest.mark.parametrize("name", ["naive", "pan", "weighted_bce"])
def test_images_that_are_seen_batch_by_batch_are_cut_at_0(data, name):
    tree = ml_collections.ConfigDict(tiny.config(name, **MLP, threshold="auto").to_dict())
    tree.data.streaming = "on"
    assert methods.build(tree, data.info).calibrate is None
    tree.method.threshold = "prior"
    method = methods.build(tree, data.info)
    with pytest.raises(ValueError, match=r"accepted: method.threshold='zero', or other methods"):
        method_setup._check_streamed(method, tree, data)


@pytest.mark.parametrize("name", METHODS)
def test_a_cut_that_cannot_be_is_named(data, name):
    def build(rule, info):
        return methods.build(tiny.config(name, **MLP, threshold=rule), info)

    unknown = data.info._replace(prior=np.nan, prior_unlabeled=np.nan)
    with pytest.raises(ValueError, match=r"data\.prior"):
        build("prior", unknown)
    one_class = data.info._replace(prior=0.3, prior_unlabeled=0.0)
    with pytest.raises(ValueError, match=r"share of positives in U is 0.0; accepted"):
        build("prior", one_class)
    with pytest.raises(ValueError, match=r"method.threshold is 'half'; accepted: '.*'prior'"):
        build("half", data.info)


@pytest.mark.thorough
@pytest.mark.parametrize("decay", [0.0, 0.5])
@pytest.mark.parametrize("name", ["pan", "weighted_bce"])
def test_a_saved_model_has_the_cut_of_its_run(name, decay):
    """Of averaged weights, too, and where the state is rebuilt from numbers."""
    rng = np.random.default_rng(0)
    truth = rng.random(400) < 0.4
    rows = rng.normal(0, 1, [400, 5]) + 1.5 * truth[:, None]
    known = truth & (rng.random(400) < 0.5)
    options = {"average_decay": decay}
    model = PUClassifier(name, num_epochs=2, prior=0.4, holdout=0, options=options)
    model.fit(rows, known.astype(int))
    in_unlabeled = (0.4 * 400 - known.sum()) / (~known).sum()
    share = np.mean(pickle.loads(pickle.dumps(model)).decision_function(rows[~known]) > 0)
    assert share == pytest.approx(in_unlabeled, abs=1.5 / (~known).sum())


@pytest.mark.parametrize(("file", "argument"), [(pan, ""), (p3mix, ""), (p3mix, "variant=c")])
def test_the_papers_experiments_cut_at_0(file, argument):
    assert file.get_config(argument).method.threshold == "zero"


@pytest.mark.parametrize("part", ["scalars", "weights"])
def test_scalars_that_are_learned_are_compared_at_the_cut_that_they_can_move(part):
    cells = online.get_plan(f"part={part}").cells
    found = {x.config.method.threshold for x in cells if "threshold" in x.config.method}
    assert found == {"zero"}


def test_seeds_with_and_without_a_cut_keep_what_predicts_for_each(data):
    """A seed of which U has one class is cut at 0, beside one that is not."""
    one_class = data.info._replace(prior_unlabeled=1.0)
    config = tiny.config("weighted_bce", **MLP)
    plain, cut = (methods.build(config, info) for info in (one_class, data.info))
    arrays = data.training_data()
    for pair in ((plain, cut), (cut, plain)):
        shared = seed_axis.share_methods(pair, arrays)
        assert shared[0].stages[0].init is shared[1].stages[0].init
        for method in shared:
            state = method.stages[0].init(jax.random.key(0), None, arrays)
            ready = method.calibrate(state, arrays) if method.calibrate else state
            assert method.predict(ready, arrays.inputs[:4]).shape == (4,)
