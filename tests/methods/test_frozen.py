"""Splitting a network into what trains and what does not."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import traverse_util

from pujax.methods._common import freezing, optimizer
from pujax.models import resnet, resnet_v1

TREE = {
    "backbone": {
        "stem": {"kernel": 1},
        "stem_norm": {"scale": 2, "bias": 3},
        "stage1_block1": {
            "conv1": {"kernel": 4},
            "conv2": {
                "conv": {"kernel": 5},
                "global_branch": {"values": {"kernel": 6}, "norm": {"scale": 7, "bias": 8}},
            },
            "norm2": {"scale": 9},
        },
        "stage2_block10": {"norm1": {"bias": 10}},
        "stage10_block2": {"conv1": {"kernel": 11}},
        "nothing": {},
    },
    "classifier": {"kernel": 12},
    "stem": {"kernel": 13},  # of a head that has this name too
}


@pytest.mark.parametrize(
    ("stages", "frozen"),
    [
        (0, []),
        (1, [1, 2, 3, 4, 5, 9]),
        (2, [1, 2, 3, 4, 5, 9, 10]),
        (3, [1, 2, 3, 4, 5, 9, 10]),
        (10, [1, 2, 3, 4, 5, 9, 10, 11]),
    ],
)
def test_stem_and_first_stages_are_frozen_but_for_their_global_branches(stages, frozen):
    trains, stays = freezing.split(TREE, freezing.trainable_path(stages))
    assert sorted(jax.tree.leaves(stays)) == frozen
    assert sorted(jax.tree.leaves(trains)) == sorted(set(range(1, 14)) - set(frozen))
    assert freezing.merge(trains, stays) == TREE


def test_leaves_keep_their_places():
    trains, stays = freezing.split(TREE, lambda path: path.endswith("global_branch/norm/bias"))
    branch = {"global_branch": {"norm": {"bias": 8}}}
    assert trains == {"backbone": {"stage1_block1": {"conv2": branch}}}
    assert stays["backbone"]["stage1_block1"]["conv2"]["global_branch"]["norm"] == {"scale": 7}


@pytest.mark.parametrize("answer", [True, False])
def test_one_of_the_trees_may_be_empty(answer):
    trains, stays = freezing.split({"a": {"b": 1}}, lambda path: answer)
    assert (trains, stays) == (({"a": {"b": 1}}, {}) if answer else ({}, {"a": {"b": 1}}))
    assert freezing.merge(trains, stays) == {"a": {"b": 1}}


def test_a_leaf_in_both_trees_is_refused_by_name():
    with pytest.raises(ValueError, match="a/b is in both trees"):
        freezing.merge({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}})


@pytest.mark.parametrize("value", [-1, 1.5, True, None])
def test_a_wrong_number_of_stages_is_named(value):
    with pytest.raises(ValueError, match=f"method.frozen_stages is {value}; accepted"):
        freezing.trainable_path(value)


def test_a_backbone_without_those_stages_is_refused():
    freezing.check_stages(TREE, 10)
    with pytest.raises(ValueError, match="method.frozen_stages is 11; accepted: 0 to 10"):
        freezing.check_stages(TREE, 11)
    perceptron = {"backbone": {"dense1": {"kernel": 1}}}
    freezing.check_stages(perceptron, 0)
    with pytest.raises(ValueError, match="frozen_stages is 3; accepted: 0 to 0, the stages"):
        freezing.check_stages(perceptron, 3)


# Residual networks -------------------------------------------------------------------------------


class Net(nn.Module):
    """A backbone and one layer on it."""

    backbone: nn.Module

    @nn.compact
    def __call__(self, inputs, train=False):
        return nn.Dense(3, name="classifier")(self.backbone(inputs, train))


SMALL = {"stage_sizes": (1, 1, 1, 1), "width": 8}
IMAGES = np.random.default_rng(0).normal(size=(2, 16, 16, 3)).astype(np.float32)


def shapes(backbone, side=32):
    images = jax.ShapeDtypeStruct((1, side, side, 3), jnp.float32)
    return jax.eval_shape(Net(backbone).init, jax.random.key(0), images)["params"]


@pytest.mark.parametrize(
    "backbone",
    [
        resnet_v1.PostActResNet(**SMALL, lgconv=True),
        resnet_v1.PostActResNet(**SMALL, lgconv=True, block=resnet_v1.PostActBottleneck),
        resnet.PreActResNet(**SMALL, lgconv=True),
        resnet.PreActResNet(**SMALL),
    ],
    ids=["basic", "bottleneck", "preact", "preact_plain"],
)
def test_the_paths_of_real_networks(backbone):
    params = shapes(backbone)
    trains, stays = (
        set(traverse_util.flatten_dict(tree, sep="/"))
        for tree in freezing.split(params, freezing.trainable_path(3))
    )
    heads = ("backbone/stem", "backbone/stage1", "backbone/stage2", "backbone/stage3")
    for path in trains | stays:
        early = path.startswith(heads) and "/global_branch/" not in path
        assert early == (path in stays), path
    for stage in (1, 2, 3, 4):
        prefix = f"backbone/stage{stage}_"
        branches = [p for p in trains if p.startswith(prefix) and "/global_branch/" in p]
        assert bool(branches) == backbone.lgconv
    assert "classifier/kernel" in trains
    assert "backbone/stem/kernel" in stays


def test_the_published_count_of_trainable_parameters():
    backbone = resnet_v1.PostActResNet(
        stage_sizes=(3, 4, 23, 3), block=resnet_v1.PostActBottleneck, lgconv=True
    )
    trains, _ = freezing.split(shapes(backbone, 64), freezing.trainable_path(3))
    leaves = jax.tree.leaves(trains["backbone"])
    assert sum(math.prod(leaf.shape) for leaf in leaves) == 20_400_896


@functools.cache
def small_network():
    """A network, its trainable and frozen parameters and a loss of both."""
    net = Net(resnet_v1.PostActResNet(**SMALL))
    variables = jax.jit(net.init)(jax.random.key(1), IMAGES)
    trains, stays = freezing.split(variables["params"], freezing.trainable_path(3))

    def loss(trains, stays):
        params = freezing.merge(trains, stays)
        scores = net.apply({"params": params, "batch_stats": variables["batch_stats"]}, IMAGES)
        return jnp.mean(jnp.square(scores - 1))

    return trains, stays, loss


def test_the_gradient_is_the_part_of_the_whole_gradient():
    trains, stays, loss = small_network()
    part = jax.jit(jax.grad(loss))(trains, stays)
    whole = jax.jit(jax.grad(lambda params: loss(params, {})))(freezing.merge(trains, stays))
    wanted, _ = freezing.split(whole, freezing.trainable_path(3))
    assert jax.tree.structure(part) == jax.tree.structure(wanted)
    jax.tree.map(
        lambda ours, theirs: np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7),
        part,
        wanted,
    )


def test_the_backward_pass_ends_where_nothing_trains_below():
    trains, stays, loss = small_network()
    params = freezing.merge(trains, stays)

    def convolutions(function, *args):
        return str(jax.make_jaxpr(function)(*args)).count("conv_general_dilated[")

    # The stem, two in the first block and three in each of the others.
    assert convolutions(loss, trains, stays) == 12
    # The gradient of every kernel, and of every input but the images.
    assert convolutions(jax.grad(lambda params: loss(params, {})), params) == 12 + 12 + 11
    # Three kernels of stage 4, and the input of the one that does not read frozen features.
    assert convolutions(jax.grad(loss), trains, stays) == 12 + 3 + 1


def test_steps_lower_the_loss_and_leave_the_frozen_parts_alone():
    trains, stays, loss = small_network()
    config = optimizer.adam_config(learning_rate=3e-3, weight_decay=0.1)
    rule = optimizer.build(config, num_epochs=1)
    state = rule.init(trains)
    # Adam's two moments and its count, for what trains only.
    assert len(jax.tree.leaves(state)) == 2 * len(jax.tree.leaves(trains)) + 1

    @jax.jit
    def step(params, state):
        now, rest = freezing.split(params, freezing.trainable_path(3))
        now, state = rule.update(jax.grad(loss)(now, rest), state, now, 0.0)
        return freezing.merge(now, rest), state

    params = freezing.merge(trains, stays)
    for _ in range(3):
        params, state = step(params, state)
    after, rest = freezing.split(params, freezing.trainable_path(3))
    jax.tree.map(np.testing.assert_array_equal, rest, stays)
    assert all(
        np.any(np.asarray(new) != old)
        for new, old in zip(jax.tree.leaves(after), jax.tree.leaves(trains), strict=True)
    )
    assert loss(after, rest) < loss(trains, stays)
