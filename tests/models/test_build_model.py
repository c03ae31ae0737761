"""`models.build`, and what every network it knows has in common."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import models
from tests.models import filled

# Every network, small enough to compile and run in a moment.
TINY = {
    "resnet18": {"stage_sizes": (1, 1), "width": 4},
    "resnet50": {"stage_sizes": (1, 1), "width": 2},
    "resnet_small": {"stage_sizes": (1, 1), "width": 4},
    "resnet18_v1": {"stage_sizes": (1, 1), "width": 4, "stem": "cifar"},
    "resnet50_v1": {"stage_sizes": (1, 1), "width": 2},
    "resnet101_v1": {"stage_sizes": (1, 1), "width": 8, "lgconv": True},
    "lenet": {"channels": (4, 4), "hidden": (8,)},
    "cnn7": {"channels": (4, 4, 4, 2), "hidden": (8, 8)},
    "cnn9": {"channels": (4, 4, 4, 4, 4, 2), "hidden": (8, 8)},
    "cnn13": {"channels": (4, 4, 4, 4, 4, 4, 4, 4, 2), "hidden": (8, 8)},
    "small_cnn": {"channels": (4, 4, 4), "hidden": (8,)},
    "mlp": {"hidden": (8, 8), "batch_norm": True},
}
DEEP = ("cnn9", "cnn13", "resnet50", "resnet101_v1")  # compile for seconds even at this width
IMAGES = np.random.default_rng(1).normal(size=(6, 16, 16, 3)).astype(np.float32)


def tiny(name, dtype="float32"):
    return models.build(name, embedding_dim=5, dtype=dtype, **TINY[name])


@functools.cache
def tiny_variables(name):
    return filled.variables(tiny(name), IMAGES, False)


@functools.partial(jax.jit, static_argnums=0)
def evaluate(module, variables, images):
    return module.apply(variables, images, False)


def test_tiny_networks_cover_every_name():
    assert set(TINY) == set(models.NAMES)


@pytest.mark.parametrize(
    ("name", "side", "count"),
    [
        ("resnet18", 32, 11_494_849),
        ("resnet18", 96, 11_494_849),
        ("resnet50", 224, 27_949_249),
        ("cnn7", 32, 4_198_411),
        ("cnn7", 96, 23_398_411),
        # 12288-1000-1000 after the convolutions, and the heads of every network.
        ("cnn9", 32, 15_420_641),
        ("cnn13", 32, 4_144_383),
    ],
)
def test_parameter_counts_are_the_published_ones(name, side, count):
    module = models.build(name)
    variables = jax.eval_shape(
        lambda key: module.init(key, jnp.zeros((1, side, side, 3)), False), jax.random.key(0)
    )
    assert models.count_parameters(variables["params"]) == count


@pytest.mark.parametrize(
    ("projection", "count"),
    [
        ("lagam", 2048 * 2048 + 2048 + 2048 * 128 + 128),
        ("impulses", 2048 * 2048 + 2048 * 128),
        ("dcl", 2048 * 512 + 2 * 512 + 512 * 128 + 128),
    ],
)
def test_projections_have_the_published_sizes(projection, count):
    module = models.build("mlp", hidden=(2048,), projection=projection)
    variables = jax.eval_shape(
        lambda key: module.init(key, jnp.zeros((1, 2)), False), jax.random.key(0)
    )
    heads = {k: v for k, v in variables["params"].items() if k.startswith("projection")}
    assert models.count_parameters(heads) == count


def test_count_parameters_adds_up_all_leaves():
    assert (
        models.count_parameters({"a": jnp.zeros((2, 3)), "b": [jnp.zeros(4), jnp.zeros(())]}) == 11
    )


@pytest.mark.parametrize(("side", "about"), [(8, 120_000), (28, 490_000)])
def test_small_cnn_has_the_size_that_its_docstring_says(side, about):
    variables = jax.eval_shape(
        lambda key: models.build("small_cnn").init(key, jnp.zeros((1, side, side, 1)), False),
        jax.random.key(0),
    )
    assert models.count_parameters(variables["params"]) == pytest.approx(about, rel=0.02)


@pytest.mark.thorough
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.thorough if name in DEEP else ())
        for name in models.NAMES
    ],
)
def test_every_network_learns_from_one_step_with_finite_gradients(name):
    module, variables = tiny(name), tiny_variables(name)
    state = {key: value for key, value in variables.items() if key != "params"}
    targets = jnp.asarray([1.0, -1, 1, -1, 1, -1])

    @jax.jit
    def loss_and_gradient(params, images):
        def loss(params):
            outputs, new_state = module.apply(
                {"params": params, **state}, images, True, mutable=["batch_stats"]
            )
            contrast = jnp.mean(outputs.embedding[0] @ outputs.embedding[1:].T)
            return jnp.mean((outputs.logits - targets) ** 2) + contrast, new_state

        return jax.value_and_grad(loss, has_aux=True)(params)

    params = variables["params"]
    (before, new_state), gradient = loss_and_gradient(params, IMAGES)
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        assert np.all(np.isfinite(leaf)), path
        if leaf.ndim > 1:
            assert np.any(leaf != 0), path
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(new_state))
    assert jax.tree.structure(new_state) == jax.tree.structure(state)
    # Along the negative gradient the loss must fall when the step is small enough.
    stepped = jax.tree.map(lambda leaf, slope: leaf - 1e-3 * slope, params, gradient)
    (after, _), _ = loss_and_gradient(stepped, IMAGES)
    assert after < before


@pytest.mark.parametrize("dtype", models.DTYPES)
@pytest.mark.parametrize("name", models.NAMES)
def test_parameters_statistics_and_outputs_are_float32(name, dtype):
    module = tiny(name, dtype)

    def run(key, images):
        variables = module.init(key, images, False)
        return variables, *module.apply(variables, images, True, mutable=["batch_stats"])

    variables, outputs, new_state = jax.eval_shape(run, jax.random.key(0), IMAGES)
    for leaf in jax.tree.leaves((variables, outputs, new_state)):
        assert leaf.dtype == jnp.float32
    assert outputs.logits.shape == (6,)
    assert outputs.features.shape[0] == 6
    assert outputs.embedding.shape == (6, 5)


@pytest.mark.parametrize("name", models.NAMES)
def test_bfloat16_is_used_and_stays_close_to_float32(name):
    exact = evaluate(tiny(name), tiny_variables(name), IMAGES).features
    half = evaluate(tiny(name, "bfloat16"), tiny_variables(name), IMAGES).features
    # Eight bits of precision, some layers deep: small against the features, yet not zero.
    error = jnp.max(jnp.abs(half - exact)) / jnp.max(jnp.abs(exact))
    assert 1e-5 < error < 0.05


@pytest.mark.parametrize("name", models.NAMES)
def test_in_evaluation_an_example_does_not_see_its_batch(name):
    whole = evaluate(tiny(name), tiny_variables(name), IMAGES).logits
    half = evaluate(tiny(name), tiny_variables(name), IMAGES[:3]).logits
    np.testing.assert_allclose(whole[:3], half, atol=1e-6)


def test_several_seeds_run_as_a_batch_axis():
    module = models.build("mlp", hidden=(8,), batch_norm=True, embedding_dim=0)
    keys = jax.random.split(jax.random.key(7), 2)

    @jax.jit
    def run(variables, images):
        return module.apply(variables, images, True, mutable=["batch_stats"])

    variables = jax.jit(jax.vmap(lambda key: module.init(key, IMAGES, False)))(keys)
    kernels = variables["params"]["classifier"]["kernel"]
    assert not np.any(kernels[0] == kernels[1])
    images = jnp.stack([IMAGES, IMAGES + 1])
    together = jax.vmap(run)(variables, images)
    for seed in range(2):
        alone = run(jax.tree.map(lambda leaf, seed=seed: leaf[seed], variables), images[seed])
        jax.tree.map(
            # Batched convolutions sum in another order.
            lambda many, one, seed=seed: np.testing.assert_allclose(many[seed], one, atol=1e-5),
            together,
            alone,
        )


def test_lists_from_a_config_are_accepted():
    module = models.build("mlp", hidden=[8, 4], embedding_dim=0)
    assert module == models.build("mlp", hidden=(8, 4), embedding_dim=0)
    assert hash(module.backbone) == hash(models.build("mlp", hidden=(8, 4)).backbone)


@pytest.mark.parametrize("name", ["mlp", "cnn7", "cnn13", "small_cnn"])
def test_a_network_may_be_without_hidden_layers(name):
    module = models.build(name, hidden=[], embedding_dim=0)
    assert module.backbone.hidden == ()
    inputs = jnp.ones([2, 6] if name == "mlp" else [2, 32, 32, 3])
    shapes = jax.eval_shape(lambda: module.init(jax.random.key(0), inputs, False))
    dense = [part for part in shapes["params"].get("backbone", {}) if "dense" in part.lower()]
    assert not dense and shapes["params"]["classifier"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("small_cnn", {"channels": ()}, r"model.options.channels is \(\); accepted: a tuple"),
        ("resnet18", {"stage_sizes": []}, r"model.options.stage_sizes is \(\); accepted: a tuple"),
        ("resnet34", {}, "'resnet34'; accepted: resnet18, resnet50, .*mlp"),
        (
            "mlp",
            {"width": 3},
            "model.options.width is no option of 'mlp'; "
            "accepted: batch_norm, dropout, hidden, initializer .model.options={} leaves out all",
        ),
        (
            "resnet18",
            {"block": None},
            "model.options.block is no option of 'resnet18'; accepted: initializer, lgconv",
        ),
        ("mlp", {"hidden": 300}, r"model.options.hidden is 300; accepted: a tuple.*\(300, 300"),
        ("mlp", {"dropout": 0.5, "hidden": ()}, "dropout is 0.5; accepted: 0.0 without a hidden"),
        ("mlp", {"dropout": 1.0}, r"model.options.dropout is 1.0; accepted: a number in \[0, 1\)"),
        ("resnet18", {"width": True}, "model.options.width is True; accepted: a int"),
        ("mlp", {"dtype": "float16"}, "dtype is 'float16'; accepted: float32, bfloat16"),
        ("mlp", {"dtype": "half-precision"}, "'half-precision'; accepted: float32, bfloat16"),
        (
            "mlp",
            {"initializer": "glorot"},
            "model.options.initializer is 'glorot'; accepted: torch, he_normal",
        ),
        (
            "mlp",
            {"projection": "simclr"},
            "projection is 'simclr'; accepted: lagam, impulses, dcl",
        ),
        ("mlp", {"embedding_dim": -1}, "embedding_dim is -1; accepted: an integer from 0"),
        ("mlp", {"embedding_dim": 2.5}, "embedding_dim is 2.5; accepted: an integer from 0"),
        ("mlp", {"embedding_dim": True}, "embedding_dim is True; accepted: an integer from 0"),
        ("mlp", {"embedding_dim": "x"}, "embedding_dim is 'x'; accepted: an integer from 0"),
        (
            "mlp",
            {"embedding_dim": 65537},
            r"embedding_dim is 65537; accepted: an integer from 0 up to 65536",
        ),
        ("mlp", {"aligned_dim": 1.5}, "aligned_dim is 1.5; accepted: an integer from 0"),
        ("mlp", {"aligned_dim": None}, "aligned_dim is None; accepted: an integer from 0"),
    ],
)
def test_bad_arguments_are_named_with_what_is_accepted(name, options, message):
    with pytest.raises(ValueError, match=message):
        models.build(name, **options)
