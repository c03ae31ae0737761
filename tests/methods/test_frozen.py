"""Which parts of a network train, and what a step does with the others."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import optax
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
    trains = freezing.trainable(TREE, stages)
    pairs = zip(jax.tree.leaves(TREE), jax.tree.leaves(trains), strict=True)
    assert sorted(leaf for leaf, is_trained in pairs if not is_trained) == frozen


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
    paths = traverse_util.flatten_dict(freezing.trainable(params, 3), sep="/")
    trains, stays = (
        {p for p, is_trained in paths.items() if is_trained is x} for x in (True, False)
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


@pytest.mark.thorough
def test_the_published_count_of_trainable_parameters():
    backbone = resnet_v1.PostActResNet(
        stage_sizes=(3, 4, 23, 3), block=resnet_v1.PostActBottleneck, lgconv=True
    )
    params = shapes(backbone, 64)["backbone"]
    trains = freezing.trainable({"backbone": params}, 3)["backbone"]
    sizes = jax.tree.map(
        lambda leaf, is_trained: math.prod(leaf.shape) * is_trained, params, trains
    )
    assert sum(jax.tree.leaves(sizes)) == 20_400_896


@functools.cache
def small_network():
    """The parameters of a network, and a loss of them."""
    net = Net(resnet_v1.PostActResNet(**SMALL))
    variables = jax.jit(net.init)(jax.random.key(1), IMAGES)

    def loss(params):
        scores = net.apply({"params": params, "batch_stats": variables["batch_stats"]}, IMAGES)
        return jnp.mean(jnp.square(scores - 1))

    return variables["params"], loss


def step_of(loss, **changes):
    """A compiled step of Adam and its state's start."""
    config = optimizer.adam_config(learning_rate=3e-3, weight_decay=0.1, **changes)
    rule = optimizer.build(config, num_epochs=1)

    @jax.jit
    def step(params, state):
        updates, state = rule.update(jax.grad(loss)(params), state, params, progress=0.0)
        return optax.apply_updates(params, updates), state

    return rule.init, step


@pytest.mark.thorough
def test_the_backward_pass_ends_where_nothing_trains_below():
    params, loss = small_network()

    def convolutions(frozen_stages):
        init, step = step_of(loss, frozen_stages=frozen_stages)
        text = step.lower(params, init(params)).compile().as_text()
        return text.count(" convolution(") + text.count('custom_call_target="__onednn$conv')

    # The stem, two in the first block and three in each of the others; the gradient of every
    # kernel, and of every input but the images.
    assert convolutions(0) == 12 + 12 + 11
    # Three kernels of stage 4, and the input of the one that does not read frozen features.
    assert convolutions(3) == 12 + 3 + 1


@pytest.mark.thorough
def test_steps_lower_the_loss_and_leave_the_frozen_parts_alone():
    params, loss = small_network()
    init, step = step_of(loss, frozen_stages=3)
    state, start = init(params), params
    trains = freezing.trainable(params, 3)
    # Adam's two moments and its count, for what trains only.
    assert len(jax.tree.leaves(state)) == 2 * sum(jax.tree.leaves(trains)) + 1
    for _ in range(3):
        params, state = step(params, state)
    moved = jax.tree.map(lambda new, old: bool(np.any(new != old)), params, start)
    assert moved == trains
    assert loss(params) < loss(start)
