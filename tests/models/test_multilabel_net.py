"""Multi-label networks and their heads against an independent version in plain numpy."""

import functools
import re
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from pujax import models
from pujax.models import multilabel, semantic_graph
from pujax.models.multilabel import GraphConstants, MultilabelNet, SemanticGraph
from tests import equations
from tests.models import filled
from tests.x64 import x64

CLASSES, CHANNELS, WIDTH, ATTENTION, WORDS = 4, 6, 5, 3, 7
RNG = np.random.default_rng(5)
MAPS = RNG.normal(size=(3, 4, 7, CHANNELS)).astype(np.float32)
CONSTANTS = GraphConstants(
    RNG.normal(size=(CLASSES, WORDS)).astype(np.float32),
    RNG.uniform(size=(CLASSES, CLASSES)).astype(np.float32),
)
IMAGES = RNG.normal(size=(3, 16, 16, 3)).astype(np.float32)
TINY = {"stage_sizes": (1,), "width": 4}
SMALL_HEAD = {"reduced_width": WIDTH, "attention_width": ATTENTION}


def head(**options):
    return SemanticGraph(**{"width": WIDTH, "attention_width": ATTENTION, **options})


def graph_net(**options):
    return models.build_multilabel(
        "resnet_small", num_classes=CLASSES, head="semantic_graph", **SMALL_HEAD, **TINY, **options
    )


def graph_net_variables(module, constants=CONSTANTS):
    def init(key, images):
        return module.init(key, images, False, constants=constants)

    return filled.variables(types.SimpleNamespace(init=init), IMAGES)


@functools.cache
def head_variables():
    return filled.variables(head(), MAPS, CONSTANTS, False)


@functools.partial(jax.jit, static_argnums=(0, 4))
def run(module, variables, maps, constants, train=False):
    return module.apply(variables, maps, constants, train, mutable=["batch_stats"])


def double(tree):
    return jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), tree)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def naive_head(variables, maps, constants, num_steps=3, train=False):
    """The definition, one image and one category after the other, nothing rearranged."""
    params, stats = double(variables["params"]), double(variables["batch_stats"])
    maps, words, graph = double(maps), double(constants.word_vectors), double(constants.adjacency)
    batch, height, width, channels = maps.shape
    if min(height, width) > 1:
        pooled = np.empty((batch, height // 2, width // 2, channels))
        for row in range(height // 2):
            for column in range(width // 2):
                window = maps[:, 2 * row : 2 * row + 2, 2 * column : 2 * column + 2]
                pooled[:, row, column] = window.mean((1, 2))
        maps = pooled
    features = maps @ params["reduction"]["kernel"][0, 0]
    mean = features.mean((0, 1, 2)) if train else stats["reduction_norm"]["mean"]
    var = features.var((0, 1, 2)) if train else stats["reduction_norm"]["var"]
    features = (features - mean) / np.sqrt(var + 1e-5)
    features = features * params["reduction_norm"]["scale"] + params["reduction_norm"]["bias"]
    features = features.reshape(batch, -1, features.shape[-1])

    def affine(name, vector):
        return vector @ params[name]["kernel"] + params[name]["bias"]

    def gate(kind, message, node):
        update = params["graph"]
        message, node = (
            vector @ update[f"{kind}_{part}"]["kernel"] + update[f"{kind}_{part}"]["bias"]
            for part, vector in (("message", message), ("node", node))
        )
        return message + node

    logits = np.empty((batch, len(words)))
    vectors = np.empty((batch, len(words), features.shape[-1]))
    for image in range(batch):
        categories = []
        for word in words @ params["word_projection"]["kernel"]:
            scores = []
            for feature in features[image]:
                joint = np.tanh(feature @ params["feature_projection"]["kernel"] * word)
                scores.append(affine("attention_score", affine("attention_hidden", joint))[0])
            attention = np.exp(scores) / np.sum(np.exp(scores))
            categories.append(sum(w * f for w, f in zip(attention, features[image], strict=True)))
        nodes = list(categories)
        for _ in range(num_steps):
            new = []
            for i, node in enumerate(nodes):
                incoming = sum(graph[i, j] * nodes[j] for j in range(len(nodes)))
                outgoing = sum(graph[j, i] * nodes[j] for j in range(len(nodes)))
                message = np.concatenate([incoming, outgoing])
                update = sigmoid(gate("update", message, node))
                reset = sigmoid(gate("reset", message, node))
                candidate = np.tanh(gate("candidate", message, reset * node))
                new.append((1 - update) * node + update * candidate)
            nodes = new
        for i, (node, category) in enumerate(zip(nodes, categories, strict=True)):
            vectors[image, i] = np.tanh(affine("fusion", np.concatenate([node, category])))
            classifier = params["classifiers"]
            logits[image, i] = vectors[image, i] @ classifier["kernel"][i] + classifier["bias"][i]
    return logits, vectors


@pytest.mark.parametrize("train", [True, False], ids=["train", "eval"])
@pytest.mark.parametrize("shape", [(4, 7), (2, 2), (1, 5)], ids=str)
@pytest.mark.parametrize("num_steps", [1, 3])
def test_head_equals_its_definition(num_steps, shape, train):
    maps = MAPS[:, : shape[0], : shape[1]]
    variables = head_variables()
    (logits, vectors), moved = run(head(num_steps=num_steps), variables, maps, CONSTANTS, train)
    expected_logits, expected_vectors = naive_head(variables, maps, CONSTANTS, num_steps, train)
    np.testing.assert_allclose(vectors, expected_vectors, rtol=1e-5, atol=5e-6)
    np.testing.assert_allclose(logits, expected_logits, rtol=1e-5, atol=5e-6)
    # Only a training call moves the statistics of the reduction.
    before = variables["batch_stats"]["reduction_norm"]
    for part in ("mean", "var"):
        now = moved["batch_stats"]["reduction_norm"][part]
        assert np.all(now != before[part]) == train


def test_decoupling_and_its_gradient_equal_the_materialised_form():
    features, projected = RNG.normal(size=(2, 6, 5)), RNG.normal(size=(2, 6, 3))
    words, weights = RNG.normal(size=(4, 3)), 3 * RNG.normal(size=3)
    target = RNG.normal(size=(2, 4, 5))

    def materialised(features, projected, words, weights):
        joint = jnp.tanh(projected[:, :, None] * words)
        attention = jax.nn.softmax(jnp.sum(joint * weights, axis=-1), axis=1)
        return jnp.sum(features[:, :, None] * attention[..., None], axis=1)

    with x64():
        arguments = (features, projected, words, weights)
        results = [
            jax.jit(jax.value_and_grad(lambda *x, f=form: jnp.sum(f(*x) * target), (0, 1, 2, 3)))(
                *arguments
            )
            for form in (semantic_graph.decouple, materialised)
        ]
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), *results)


def test_no_array_over_batch_positions_and_classes_has_a_further_axis():
    sizes = {"batch": 2, "positions": 11, "classes": 13}
    features, projected = np.ones((2, 11, 5), np.float32), np.ones((2, 11, 3), np.float32)

    def loss(*arguments):
        return jnp.sum(semantic_graph.decouple(*arguments) ** 2)

    arguments = (features, projected, np.ones((13, 3), np.float32), np.ones(3, np.float32))
    program = str(jax.make_jaxpr(jax.grad(loss, (0, 1, 2, 3)))(*arguments))
    # The printed program names the type of all that it computes, inside of its loops too.
    shapes = [
        tuple(int(side) for side in sides.split(",") if side)
        for sides in re.findall(r"f32\[([\d,]*)\]", program)
    ]
    assert (13, 2, 11) in shapes  # the walk reaches what it is to judge: the attention itself
    assert max(int(np.prod(shape)) for shape in shapes) <= np.prod(list(sizes.values()))


def test_biases_before_the_softmax_have_no_effect_by_the_definition():
    """Which is why the head does not add them: the naive version does."""
    variables = head_variables()
    changed = {**variables, "params": dict(variables["params"])}
    for name in ("attention_hidden", "attention_score"):
        leaf = variables["params"][name]
        changed["params"][name] = {"kernel": leaf["kernel"], "bias": leaf["bias"] + 1.5}
    for old, new in zip(
        naive_head(variables, MAPS, CONSTANTS), naive_head(changed, MAPS, CONSTANTS), strict=True
    ):
        np.testing.assert_allclose(old, new, rtol=1e-12)


def test_permuted_categories_give_permuted_logits():
    order = np.asarray([2, 0, 3, 1])
    variables = head_variables()
    permuted = GraphConstants(CONSTANTS.word_vectors[order], CONSTANTS.adjacency[order][:, order])
    params = dict(variables["params"])
    params["classifiers"] = jax.tree.map(
        lambda leaf: np.asarray(leaf)[order], params["classifiers"]
    )
    logits, vectors = map(np.asarray, run(head(), variables, MAPS, CONSTANTS)[0])
    new = run(head(), {**variables, "params": params}, MAPS, permuted)[0]
    new_logits, new_vectors = map(np.asarray, new)
    np.testing.assert_allclose(new_logits, logits[:, order], atol=1e-6)
    np.testing.assert_allclose(new_vectors, vectors[:, order], atol=1e-6)
    # The order matters to the head: without it the logits differ by far more.
    assert np.max(np.abs(new_logits - logits)) > 0.1


def test_edges_carry_messages_both_ways():
    variables = head_variables()

    def nodes(graph):
        found = run(head(), variables, MAPS, CONSTANTS._replace(adjacency=graph))
        return np.asarray(found[0][1])

    alone, edge = np.eye(CLASSES, dtype=np.float32), np.eye(CLASSES, dtype=np.float32)
    edge[0, 2] = 0.5
    changed = np.max(np.abs(nodes(edge) - nodes(alone)), axis=(0, 2))
    assert np.all(changed[[0, 2]] > 1e-3)
    np.testing.assert_array_equal(changed[[1, 3]], 0)


def test_published_sizes():
    module = SemanticGraph()
    for classes in (20, 80):
        constants = GraphConstants(
            np.zeros((classes, 300), np.float32), np.zeros((classes, classes), np.float32)
        )
        maps = jax.ShapeDtypeStruct((1, 14, 14, 2048), jnp.float32)
        params = jax.eval_shape(
            lambda key, maps, c=constants: module.init(key, maps, c, False), jax.random.key(0), maps
        )["params"]

        def count(*names, params=params):
            return models.count_parameters([params[name] for name in names])

        assert count("reduction", "reduction_norm") == 2_099_200
        decoupling = ("feature_projection", "word_projection", "attention_hidden")
        assert count(*decoupling, "attention_score") == 941_057
        assert count("graph") == 9_443_328
        assert count("fusion") == 2_098_176
        assert count("classifiers") == 1025 * classes
        assert count(*params) == 14_581_761 + 1025 * classes


def test_whole_published_network_by_shapes():
    def run(key, images, constants, head):
        module = models.build_multilabel("resnet101_v1", num_classes=20, head=head)
        return module.init_with_output(key, images, False, constants=constants)

    images = jax.ShapeDtypeStruct((2, 448, 448, 3), jnp.float32)
    constants = GraphConstants(np.zeros((20, 300), np.float32), np.zeros((20, 20), np.float32))
    shapes = jax.eval_shape(
        functools.partial(run, head="semantic_graph"), jax.random.key(0), images, constants
    )
    outputs, variables = shapes
    assert set(variables["params"]) == {"backbone", "semantic_graph"}
    assert outputs.logits.shape == (2, 20)
    assert outputs.features.shape == (2, 20, 1024)
    count = models.count_parameters(variables["params"])
    assert count == 42_500_160 + 14_581_761 + 1025 * 20

    outputs, variables = jax.eval_shape(
        functools.partial(run, head="gap", constants=None), jax.random.key(0), images
    )
    assert set(variables["params"]) == {"backbone", "classifier"}
    assert outputs.features.shape == (2, 2048)
    assert models.count_parameters(variables["params"]) == 42_500_160 + 2049 * 20


@pytest.mark.thorough
def test_initial_values_are_uniform_within_the_published_bounds():
    module = SemanticGraph(width=64, attention_width=32)
    constants = GraphConstants(jnp.zeros((20, 48)), jnp.zeros((20, 20)))
    params = jax.jit(lambda key: module.init(key, jnp.zeros((1, 2, 2, 40)), constants, False))(
        jax.random.key(0)
    )["params"]
    fans = {
        "reduction": 40,
        "feature_projection": 64,
        "word_projection": 48,
        "attention_hidden": 32,
        "attention_score": 32,
        "fusion": 128,
        "classifiers": 64,
    }
    graph = {f"{kind}_message": 128 for kind in ("update", "reset", "candidate")}
    graph |= {f"{kind}_node": 64 for kind in ("update", "reset", "candidate")}
    assert set(params["graph"]) == set(graph)
    for tree, widths in ((params, fans), (params["graph"], graph)):
        for name, fan_in in widths.items():
            kernel, bound = tree[name]["kernel"], fan_in**-0.5
            assert np.max(np.abs(kernel)) <= bound, name
            # Five standard errors of the largest of n uniform draws, about 1 - 1/n of the bound.
            assert np.max(np.abs(kernel)) > bound * (1 - 5 / kernel.size), name


@pytest.mark.parametrize("name", ["mlp", "resnet_small"])
def test_gap_is_pooled_features_and_one_affine_map(name):
    options = TINY if name == "resnet_small" else {"hidden": (6,)}
    module = models.build_multilabel(name, num_classes=3, **options)
    variables = filled.variables(module, IMAGES, False)
    outputs = jax.jit(lambda: module.apply(variables, IMAGES, False))()
    backbone = {part: variables[part]["backbone"] for part in variables}
    features = jax.jit(module.backbone.apply, static_argnums=2)(backbone, IMAGES, False)
    classifier = jax.tree.map(np.asarray, variables["params"]["classifier"])
    assert set(variables["params"]) == {"backbone", "classifier"}
    np.testing.assert_allclose(outputs.features, features, atol=1e-5)
    expected = np.asarray(features, np.float64) @ classifier["kernel"] + classifier["bias"]
    np.testing.assert_allclose(outputs.logits, expected, atol=1e-5)


def test_graph_network_is_the_head_on_the_last_feature_map():
    module = graph_net()
    variables = graph_net_variables(module)
    assert set(variables["params"]) == {"backbone", "semantic_graph"}
    outputs = jax.jit(lambda c: module.apply(variables, IMAGES, False, constants=c))(CONSTANTS)
    backbone = {part: variables[part]["backbone"] for part in variables}
    maps = jax.jit(module.backbone.apply, static_argnums=2)(backbone, IMAGES, False)
    assert maps.ndim == 4
    part = {part: variables[part]["semantic_graph"] for part in variables}
    logits, vectors = naive_head(part, maps, CONSTANTS)
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(outputs.features, vectors, rtol=1e-5, atol=1e-5)


@pytest.mark.thorough
def test_constants_are_arguments_of_a_compiled_step_and_have_no_parameters():
    module = graph_net(graph_steps=1)
    variables = graph_net_variables(module)
    params, stats = variables["params"], variables["batch_stats"]
    traces = []

    @jax.jit
    def loss_and_gradient(params, images, constants):
        traces.append(None)

        def loss(params):
            outputs, _ = module.apply(
                {"params": params, "batch_stats": stats},
                images,
                True,
                constants=constants,
                mutable=["batch_stats"],
            )
            return jnp.mean((outputs.logits - 1) ** 2)

        return jax.value_and_grad(loss)(params)

    before, gradient = loss_and_gradient(params, IMAGES, CONSTANTS)
    without_effect = {"attention_hidden", "attention_score"}
    for path, leaf in jax.tree_util.tree_leaves_with_path(gradient):
        names = {part.key for part in path}
        assert np.all(np.isfinite(leaf)), path
        is_bias = "bias" in names and names & without_effect
        assert np.any(leaf != 0) != bool(is_bias), path
    stepped = jax.tree.map(lambda leaf, slope: leaf - 1e-3 * slope, params, gradient)
    after, _ = loss_and_gradient(stepped, IMAGES, CONSTANTS)
    assert after < before
    other = CONSTANTS._replace(adjacency=CONSTANTS.adjacency + 0.5)
    assert loss_and_gradient(params, IMAGES, other)[0] != before
    assert len(traces) == 1
    # Another graph or other words fit the same parameters.
    again = graph_net_variables(module, other)
    assert jax.tree.structure(again) == jax.tree.structure(variables)


def test_gradients_are_finite_for_a_network_that_sees_nothing():
    constants = GraphConstants(0 * CONSTANTS.word_vectors, 0 * CONSTANTS.adjacency)

    def loss(params):
        variables = {**head_variables(), "params": params}
        return jnp.sum(head(num_steps=1).apply(variables, 0 * MAPS, constants, False)[0])

    gradient = jax.jit(jax.grad(loss))(head_variables()["params"])
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))


def test_bfloat16_is_used_and_outputs_stay_float32():
    variables = head_variables()
    exact, _ = run(head(), variables, MAPS, CONSTANTS)
    half, _ = run(head(dtype=jnp.bfloat16), variables, MAPS, CONSTANTS)
    for full, rounded in zip(exact, half, strict=True):
        assert rounded.dtype == jnp.float32
        # Eight bits of precision, several products deep.
        assert 1e-5 < jnp.max(jnp.abs(rounded - full)) < 0.1
    module = graph_net(dtype="bfloat16")
    assert module.dtype == module.backbone.dtype == jnp.bfloat16
    shapes = jax.eval_shape(
        lambda key: module.init_with_output(key, IMAGES, False, constants=CONSTANTS),
        jax.random.key(0),
    )
    assert all(leaf.dtype == jnp.float32 for leaf in jax.tree.leaves(shapes))


def test_what_follows_the_large_products_is_in_single_precision_behind_bfloat16():
    module = head(dtype=jnp.bfloat16)

    def run_head(variables):
        return module.apply(
            variables,
            MAPS,
            CONSTANTS,
            False,
            capture_intermediates=lambda child, _: child.name == "reduction_norm",
            mutable=["intermediates"],
        )

    assert equations.types("tanh", run_head, head_variables()) == {"float32"}
    _, seen = jax.eval_shape(run_head, head_variables())
    assert {leaf.dtype for leaf in jax.tree.leaves(seen)} == {jnp.dtype(jnp.float32)}


def test_several_seeds_run_as_a_batch_axis():
    seeds = [head_variables(), jax.tree.map(lambda leaf: 0.7 * leaf, head_variables())]
    stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *seeds)
    (together, _), _ = jax.vmap(lambda v: run(head(), v, MAPS, CONSTANTS))(stacked)
    for seed, variables in enumerate(seeds):
        (alone, _), _ = run(head(), variables, MAPS, CONSTANTS)
        np.testing.assert_allclose(together[seed], alone, atol=1e-5)


KNOWN = np.asarray(
    [
        [1, 1, 0, 0],
        [1, 0, 1, 0],
        [1, 1, 0, 0],
        [0, 0, 1, 0],
        [1, 0, 0, 0],
    ]
)
# Row i: among the images of i, the share with j. The last category is nowhere known.
SHARES = [[1, 2 / 4, 1 / 4, 0], [1, 1, 0, 0], [1 / 2, 0, 1, 0], [0, 0, 0, 0]]


@pytest.mark.parametrize("code", ["0/1", "bool", "-1/1", "float"])
def test_adjacency_by_hand(code):
    codes = {"0/1": KNOWN, "bool": KNOWN == 1, "-1/1": 2 * KNOWN - 1, "float": KNOWN * 1.0}
    found = jax.jit(multilabel.adjacency)(codes[code])
    assert found.dtype == jnp.float32
    np.testing.assert_allclose(found, SHARES, rtol=1e-6)


def test_adjacency_without_images_or_positives_is_zero_and_keeps_float64():
    np.testing.assert_array_equal(multilabel.adjacency(np.zeros((0, 3))), np.zeros((3, 3)))
    np.testing.assert_array_equal(multilabel.adjacency(-np.ones((4, 2), int)), np.zeros((2, 2)))
    with x64():
        known = jnp.asarray(KNOWN[:, :3], jnp.float64)
        found = multilabel.adjacency(jnp.concatenate([known, known[:2]]))
        assert found.dtype == jnp.float64
        assert found[0, 2] == pytest.approx(2 / 6, rel=1e-15)


@pytest.mark.parametrize("shape", [(3,), (2, 2, 2)])
def test_adjacency_names_a_wrong_shape(shape):
    with pytest.raises(ValueError, match=r"known_positives have shape .*accepted: \[images, cl"):
        multilabel.adjacency(np.zeros(shape))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("resnet34", {}, "model name is 'resnet34'; accepted: resnet18, .*mlp"),
        ("mlp", {"head": "attention"}, "head is 'attention'; accepted: gap, semantic_graph"),
        (
            "mlp",
            {"head": "semantic_graph"},
            "'mlp' has no feature map; accepted: head='gap', or one of resnet18, .*resnet101_v1",
        ),
        ("cnn7", {"head": "semantic_graph"}, "'cnn7' has no feature map"),
        ("mlp", {"num_classes": 0}, "num_classes is 0; accepted: a positive whole number"),
        ("mlp", {"num_classes": 2.0}, "num_classes is 2.0; accepted: a positive whole number"),
        ("mlp", {"graph_steps": True}, "graph_steps is True; accepted: a positive whole number"),
        ("mlp", {"reduced_width": -4}, "reduced_width is -4; accepted: a positive whole number"),
        ("mlp", {"attention_width": None}, "attention_width is None; accepted: a positive"),
        ("mlp", {"width": 3}, "model.options.width is no option of 'mlp'; accepted: batch_norm"),
        ("resnet18", {"pool": False}, "model.options.pool is no option of 'resnet18'"),
        ("mlp", {"dtype": "float16"}, "dtype is 'float16'; accepted: float32, bfloat16"),
    ],
)
def test_bad_arguments_are_named_with_what_is_accepted(name, options, message):
    with pytest.raises(ValueError, match=message):
        models.build_multilabel(name, **{"num_classes": 3, **options})


@pytest.mark.parametrize(
    ("constants", "message"),
    [
        (None, "constants is None; accepted with the head 'semantic_graph': GraphConstants"),
        (
            CONSTANTS._replace(word_vectors=np.zeros((3, 300))),
            r"word_vectors has shape \(3, 300\); accepted: one vector for each of 4 categories",
        ),
        (CONSTANTS._replace(word_vectors=np.zeros(4)), r"word_vectors has shape \(4,\)"),
        (
            CONSTANTS._replace(adjacency=np.zeros((4, 5))),
            r"adjacency has shape \(4, 5\); accepted: \[4, 4\]",
        ),
    ],
)
def test_wrong_constants_are_named(constants, message):
    with pytest.raises(ValueError, match=message):
        jax.eval_shape(
            lambda key: graph_net().init(key, IMAGES, False, constants=constants), jax.random.key(0)
        )


class Same(nn.Module):
    """A backbone that puts out its input."""

    @nn.compact
    def __call__(self, inputs, train):
        return inputs


@pytest.mark.parametrize(
    ("kind", "shape", "message"),
    [
        ("gap", (2, 4, 4, 3), r"shape \(2, 4, 4, 3\); accepted with the head 'gap': \[batch, d\]"),
        ("semantic_graph", (2, 5), r"shape \(2, 5\); accepted with the head 'semantic_graph': \[b"),
    ],
)
def test_a_head_names_features_that_it_does_not_take(kind, shape, message):
    module = MultilabelNet(Same(), CLASSES, kind)
    with pytest.raises(ValueError, match=message):
        module.init(jax.random.key(0), jnp.zeros(shape), False, constants=CONSTANTS)
    with pytest.raises(ValueError, match="head is 'none'; accepted: gap, semantic_graph"):
        module.clone(head="none").init(jax.random.key(0), jnp.zeros(shape), False)
