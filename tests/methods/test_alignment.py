"""Alignment as a switch of other methods."""

import functools

import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

from pujax import contrastive, methods
from pujax.methods._common import alignment, views
from pujax.methods._common import network as network_lib
from pujax.training import method_setup, train_step
from tests import tiny

KEY = jax.random.key(5)
METHODS = ("naive", "upu", "nnpu", "vpu", "gradpu", "dist_pu", "lagam")
# VPU has two passes, Dist-PU and LaGAM have stages of their own; the others are like the first.
_LIKE_THE_FIRST = ("upu", "nnpu", "gradpu")
_LATER = [
    pytest.param(name, marks=pytest.mark.slow if name in _LIKE_THE_FIRST else pytest.mark.thorough)
    for name in METHODS[1:]
]


@functools.cache
def problem(table=False):
    return tiny.table_problem() if table else tiny.problem()


def config(name, **changes):
    options = {"hidden": (16,), "batch_norm": name != "gradpu"}
    if name == "lagam":
        changes = {"augment": False} | changes  # the others' default
    return tiny.config(name, model="mlp", options=options, **changes)


@functools.cache
def started(name, stage=0, **changes):
    """Configuration, stage, first state and a batch of the second epoch."""
    tree = config(name, **changes)
    made = tiny.Trainer(tree, problem())
    stage = made.method.stages[stage]
    state = train_step.init_state(stage, jax.random.key(0), None, made.arrays, made.mesh)
    plan = train_step.epoch_plan(stage, jax.random.key(1), 1, made.arrays)
    return tree, stage, state, tiny.gather(made.arrays, plan, 0, epoch=1, step=0)


def without_heads(tree):
    return {x: y for x, y in tree.items() if not x.startswith(("aligned_", "predictor_"))}


@pytest.mark.parametrize("name", ["naive", *_LATER])
def test_the_loss_is_the_methods_own_and_that_of_two_strong_views(name):
    tree, stage, state, batch = started(name, align_weight=3.0)
    c = tree.method
    net = network_lib.build(tree, problem().info, embedding_dim=0, aligned_dim=c.align_dim)
    weak = net.normalize(batch.inputs)  # tests have no weak views

    def scored():
        variables = {"params": state.params, "batch_stats": state.batch_stats}
        return net.module.apply(variables, weak, True, False, mutable=["batch_stats"])[0].logits

    # Both classes are predicted, so that pairs by other scores are other pairs.
    head = state.params["classifier"]
    head = head | {"bias": head["bias"] - jnp.median(scored())}
    state = state._replace(params={**state.params, "classifier": head})
    after, metrics = jax.jit(stage.step)(state, batch, KEY)
    _, plain, first, _ = started(name)
    own = first._replace(
        params=without_heads(state.params), batch_stats=without_heads(state.batch_stats)
    )
    _, expected = jax.jit(plain.step)(own, batch, KEY)
    align = metrics.pop("loss_align")
    np.testing.assert_allclose(metrics["loss"] - 3 * align, expected["loss"], rtol=1e-4, atol=1e-5)
    assert set(metrics) == set(expected)

    # The term itself, from the modules.
    drawn = strong_views(c)
    parts = 4 if name == "lagam" else 2  # which a step's key is split into
    keys = jax.random.split(jax.random.fold_in(KEY, parts))
    strong, other = (net.normalize(views.random_view(k, batch.inputs, drawn)) for k in keys)

    def heads(view):
        variables = {"params": state.params, "batch_stats": state.batch_stats}
        return net.module.apply(variables, view, True, False, True, mutable=["batch_stats"])[0]

    sides = scored() >= 0
    assert len(set(sides.tolist())) == 2
    pairs = sides[:, None] == sides[None, :]
    value = contrastive.noise_robust_alignment(
        heads(strong).prediction, heads(other).aligned, pairs
    )
    np.testing.assert_allclose(align, value, rtol=1e-4)
    # The first target is the network itself, and follows the weights before the step.
    for part in ("backbone", "aligned_out"):
        jax.tree.map(
            lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6),
            after.target.weights[part],
            state.params[part],
        )


def strong_views(section):
    chosen = {"flip": section.flip, "crop_area": section.align_crop_area}
    return ml_collections.ConfigDict(views.default_config(**chosen, **alignment.COLOURS))


def test_before_the_warm_up_ends_only_the_views_of_one_example_are_a_pair():
    _, stage, state, batch = started("naive", align_weight=3.0, align_clamp="none")
    step = jax.jit(stage.step)
    _, late = step(state, batch, KEY)
    _, early = step(state, batch._replace(epoch=jnp.int32(0)), KEY)
    assert early["loss_align"] != late["loss_align"]
    flat = jax.tree.map(jnp.copy, state)
    classifier = jax.tree.map(lambda x: -x, flat.params["classifier"])
    turned = flat._replace(params={**flat.params, "classifier": classifier})
    _, other = step(turned, batch._replace(epoch=jnp.int32(0)), KEY)
    np.testing.assert_array_equal(other["loss_align"], early["loss_align"])


@pytest.mark.parametrize("name", METHODS)
def test_it_is_off_by_default_and_then_leaves_no_trace(name):
    _, stage, state, _ = started(name)
    assert state.target is None
    assert without_heads(state.params) == state.params
    assert config(name).method.align_weight == 0


def test_no_gradient_reaches_the_target():
    tree, stage, state, batch = started("naive", align_weight=3.0)
    net = network_lib.build(
        tree, problem().info, embedding_dim=0, aligned_dim=tree.method.align_dim
    )
    aligner = alignment.switched(tree.method, problem().info, net)

    def vectors(params, target):
        found, _ = aligner.begin(
            alignment.Target(target, state.target.statistics),
            *(params, state.batch_stats, batch.inputs, KEY),
        )
        return jnp.sum(found.vectors)

    slopes = jax.grad(vectors, argnums=(0, 1))(state.params, state.target.weights)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(slopes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"align_weight": -1.0}, r"method.align_weight is -1.0; accepted: a number in \[0, inf\)"),
        ({"align_clamp": "x"}, "method.align_clamp is 'x'; accepted: 'components', 'none'"),
        ({"align_dim": 0}, r"method.align_dim is 0; accepted: a number in \[1, inf\)"),
        ({"align_warmup_epochs": 9}, r"align_warmup_epochs is 9; accepted: a number in \[0, 4\]"),
        ({"align_crop_area": 0.0}, r"align_crop_area is 0.0; accepted: a number in \(0, 1\]"),
        (
            {"align_weight": 0.0, "align_crop_area": 5.0},
            r"align_crop_area is 5.0; accepted: a number in \(0, 1\]",
        ),
        ({"pair_threshold": -0.5}, "method.pair_threshold is -0.5; accepted"),
        ({"target_momentum": 1.5}, "method.target_momentum is 1.5; accepted"),
    ],
)
def test_bad_settings_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        methods.build(config("nnpu", **({"align_weight": 1.0} | changes)), problem().info)


def test_a_table_is_told_that_its_views_are_not_published(caplog):
    methods.build(config("naive", align_weight=1.0), problem(table=True).info)
    assert "rows is a table of numbers, which has no crops and colours" in caplog.text


@pytest.mark.parametrize("name", ["nnpu", "lagam", "ncpu"])
def test_a_run_too_short_for_its_target_says_how_long_it_would_have_to_be(name, caplog):
    def said(momentum):
        tree = config(name, align_weight=1.0, target_momentum=momentum)
        found = methods.build(tree, problem().info).diagnose or (lambda estimates: [])
        return [text for text in found({}) if "target network" in text]

    (text,) = said(0.99)
    assert "method.num_epochs is 4, and the target network of the alignment needs 33" in text
    assert "48 steps): at the end it has 62 %" in text and text in caplog.text
    assert 0.99 ** (33 * 12) < 0.02 <= 0.99 ** (32 * 12)
    assert "the alignment never comes to have less" in said(1.0)[0]
    assert said(0.9) == []


def test_lagam_refuses_a_table():
    tree = config("lagam", align_weight=1.0)
    message = r"method.align_weight is 1.0; accepted: 0, since the data \(rows\) are a table"
    with pytest.raises(ValueError, match=message):
        methods.build(tree, problem(table=True).info)


@pytest.mark.thorough
def test_lagams_label_update_is_without_alignment_and_a_batch_left_out_leaves_the_target():
    changes = {"stage": 1, "record_label_gradients": True}
    _, stage, state, batch = started("lagam", align_weight=3.0, **changes)
    step = jax.jit(stage.step)
    after, metrics = step(state, batch, KEY)
    _, plain, first, _ = started("lagam", **changes)
    own = first._replace(
        params=without_heads(state.params), batch_stats=without_heads(state.batch_stats)
    )
    expected, others = jax.jit(plain.step)(own, batch, KEY)
    assert np.any(expected.pulls)
    np.testing.assert_allclose(after.pulls, expected.pulls, rtol=1e-3, atol=1e-7)
    np.testing.assert_array_equal(after.labels, expected.labels)
    total = others["loss"] + 3 * metrics["loss_align"]
    np.testing.assert_allclose(metrics["loss"], total, rtol=1e-4)
    leaves = (jax.tree.leaves(x.params["backbone"]) for x in (after, expected))
    assert all(np.max(np.abs(x - y)) > 1e-5 for x, y in zip(*leaves, strict=True))

    away = jax.tree.map(lambda x: x + 0.1, state.target.weights)
    state = state._replace(target=state.target._replace(weights=away))
    empty = batch._replace(ids=jnp.arange(100, 116), labeled=jnp.zeros([16]))
    left, metrics = step(state, empty, KEY)
    assert metrics["skipped"] == 1
    jax.tree.map(np.testing.assert_array_equal, left, state)
    moved = step(state, batch, KEY)[0].target.weights["aligned_out"]["kernel"]
    assert np.any(moved != away["aligned_out"]["kernel"])


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name", ["lagam", *(pytest.param(x, marks=pytest.mark.slow) for x in ("nnpu", "dist_pu"))]
)
def test_an_aligned_run_goes_on_bit_for_bit(name, tmp_path):
    tree = functools.partial(config, name, align_weight=1.0, run={"checkpoint_every": 1})
    setup = method_setup.build(tree(), problem(), tiny.mesh())

    def run(folder, config):
        return tiny.train_in(
            tmp_path / folder, config, problem(), setup=setup._replace(config=config)
        )

    straight = run("a", tree())
    run("b", tree(stop_after_epoch=2))
    resumed = run("b", tree())
    assert resumed[1] == straight[1]
    jax.tree.map(np.testing.assert_array_equal, resumed[0].carry.state, straight[0].carry.state)
