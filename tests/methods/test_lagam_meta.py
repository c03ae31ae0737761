"""LaGAM by configuration: virtual steps, the support set out of P and U, recorded gradients."""

import functools
import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import methods
from pujax.estimator import PUClassifier
from pujax.methods import lagam
from pujax.methods._common import network as network_lib
from pujax.methods.lagam import pseudo_support, virtual_steps
from pujax.training import method_setup, sharding, train_step
from pujax.training.evaluation import binary
from tests import tiny
from tests.training.test_seed_axis import alone, assert_rows_close, members, rows_in, train

# No random views, which tests need not draw again, and no batch norm, which NumPy need not repeat.
PLAIN = {"model": "mlp", "options": {"hidden": (3,)}, "augment": False, "use_contrast": False}
RECORD = {"record_label_gradients": True}
PSEUDO = {"support_source": "pseudo_negatives", "pseudo_support_size": 24}


@functools.cache
def problem():
    return tiny.problem()


def setup(**changes):
    """Stage, arrays, a state at the start of the main stage and a batch of it."""
    mesh = tiny.mesh()
    made = method_setup.build(tiny.config("lagam", **(PLAIN | RECORD | changes)), problem(), mesh)
    arrays = sharding.replicate(made.data.training_data(), mesh)
    stage = made.method.stages[-1]
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, mesh)
    stored = np.random.default_rng(2).uniform(0.1, 0.6, len(state.labels)).astype(np.float32)
    stored[np.asarray(arrays.labeled)] = 1
    state = state._replace(labels=jnp.asarray(stored))
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    # The third epoch of the run, the second of the stage: the warm-up has one.
    return stage, arrays, state, tiny.gather(arrays, plan, 0, epoch=2, step=0, first_epoch=1)


_MADE = {}


def update(**changes):
    """Pulls and labels of a batch after a step, and running statistics; the same when asked again.

    What a test replaces in the package has no effect on it.
    """
    known = repr(sorted(changes.items()))
    if known not in _MADE:
        _MADE[known] = fresh_update(**changes)
    return _MADE[known]


def fresh_update(**changes):
    """`update` that sees what a test has replaced."""
    stage, _, state, batch = setup(**changes)

    @jax.jit  # what does not lead to these is not compiled
    def after(state, batch):
        new = stage.step(state, batch, jax.random.key(0))[0]
        return new.pulls[batch.ids], new.labels[batch.ids], new.batch_stats

    return jax.tree.map(np.asarray, after(state, batch))


def naive_pulls(state, batch, *, num_steps, rate, optimizer, width=1e-4):
    """Central differences in float64 through steps of a network with one hidden layer."""
    images = np.asarray(batch.inputs, np.float64).reshape(len(batch.inputs), -1) / 255
    support = np.asarray(batch.support_inputs, np.float64) / 255
    support = support.reshape(len(support), -1)
    mean, std = 0.6, 0.3  # of tiny.problem
    images, support = (images - mean) / std, (support - mean) / std
    labels = np.asarray(state.labels, np.float64)[np.asarray(batch.ids)]
    clean = np.asarray(batch.support_labels, np.float64)
    tree = state.params
    start = [
        np.asarray(x, np.float64)
        for x in (
            tree["backbone"]["dense1"]["kernel"],
            tree["backbone"]["dense1"]["bias"],
            tree["classifier"]["kernel"][:, 0],
            tree["classifier"]["bias"],
        )
    ]

    def forward(params, rows):
        before = rows @ params[0] + params[1]
        return before, np.maximum(before, 0) @ params[2] + params[3]

    def loss(params, rows, masses):
        z = forward(params, rows)[1]
        terms = np.logaddexp(0, z) * masses[:, 0], np.logaddexp(0, -z) * masses[:, 1]
        return sum(t.sum() / m for t, m in zip(terms, masses.sum(0), strict=True))

    def gradient(params, rows, masses):
        before, z = forward(params, rows)
        p = 1 / (1 + np.exp(-z))
        assert p.min() > 1e-4 and p.max() < 1 - 1e-4  # no clip
        of_z = masses[:, 0] * p / masses[:, 0].sum() - masses[:, 1] * (1 - p) / masses[:, 1].sum()
        of_before = np.outer(of_z, params[2]) * (before > 0)
        hidden = np.maximum(before, 0)
        return [rows.T @ of_before, of_before.sum(0), hidden.T @ of_z, of_z.sum(keepdims=True)]

    def after(masses):
        params, first, second = start, [0.0] * 4, [0.0] * 4
        for step in range(1, num_steps + 1):
            slopes = gradient(params, images, masses)
            if optimizer == "adam":
                first = [0.9 * m + 0.1 * g for m, g in zip(first, slopes, strict=True)]
                second = [0.999 * v + 0.001 * g**2 for v, g in zip(second, slopes, strict=True)]
                slopes = [
                    m / (1 - 0.9**step) / (np.sqrt(v / (1 - 0.999**step) + 1e-8) + 1e-8)
                    for m, v in zip(first, second, strict=True)
                ]
            elif optimizer == "momentum":
                first = [0.9 * m + g for m, g in zip(first, slopes, strict=True)]
                slopes = first
            params = [w - rate * g for w, g in zip(params, slopes, strict=True)]
        return loss(params, support, np.stack([1 - clean, clean], axis=1))

    masses = np.stack([1 - labels, labels], axis=1)
    slopes = np.zeros_like(masses)
    for place in np.ndindex(*masses.shape):
        moved = [masses.copy(), masses.copy()]
        moved[0][place] += width
        moved[1][place] -= width
        slopes[place] = (after(moved[0]) - after(moved[1])) / (2 * width)
    return slopes[:, 0] - slopes[:, 1]


@pytest.mark.parametrize(
    ("optimizer", "rate"),
    [
        ("sgd", 0.3),
        pytest.param("momentum", 0.3, marks=pytest.mark.thorough),
        pytest.param("adam", 0.01, marks=pytest.mark.thorough),
    ],
)
def test_three_steps_of_all_parameters_equal_central_differences(optimizer, rate):
    changes = {"meta_trainable": "all", "meta_num_steps": 3, "meta_learning_rate": rate}
    changes |= {"meta_optimizer": optimizer}
    pulls, labels, _ = update(**changes)
    _, _, state, batch = setup(**changes)
    wanted = naive_pulls(state, batch, num_steps=3, rate=rate, optimizer=optimizer)
    np.testing.assert_allclose(pulls, wanted, rtol=2e-3, atol=1e-3 * np.abs(wanted).max())
    old = np.asarray(state.labels)[np.asarray(batch.ids)]
    is_free = np.asarray(batch.labeled) == 0
    # rho = 0.95 - 0.15 * 2 / 4.
    np.testing.assert_allclose(
        labels[is_free], (0.875 * old + 0.125 * (wanted > 0))[is_free], atol=1e-6
    )
    assert 0 < (wanted[is_free] > 0).sum() < is_free.sum()
    one = naive_pulls(state, batch, num_steps=1, rate=rate, optimizer=optimizer)
    assert not np.allclose(one, wanted, rtol=0.05, atol=0.05 * np.abs(wanted).max())


@pytest.mark.thorough
def test_through_the_network_the_published_update_is_the_same(monkeypatch):
    """With batch norm: the pass inside the virtual step is that which gave the features."""
    changes = {"options": {"hidden": (8,), "batch_norm": True}}
    on_features = fresh_update(**changes)
    monkeypatch.setattr(virtual_steps, "moves_features", lambda config: True)
    through_network = fresh_update(**changes)
    scale = np.abs(on_features[0]).max()
    np.testing.assert_allclose(through_network[0], on_features[0], rtol=1e-3, atol=1e-4 * scale)
    for a, b in zip(
        jax.tree.leaves(through_network[2]), jax.tree.leaves(on_features[2]), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6)


THREE = {"meta_num_steps": 3, "meta_learning_rate": 0.5}
OPTIONS = [
    ({"meta_estimator": "mixed"}, True),
    ({"meta_estimator": "forward"}, True),
    ({"meta_estimator": "finite_difference"}, True),
    ({"meta_estimator": "truncated", "meta_window": 3}, True),
    ({"meta_estimator": "truncated", "meta_window": 2}, False),
    ({"meta_estimator": "one_step"}, False),
    ({"meta_estimator": "implicit_cg", "meta_damping": 0.1}, False),
    ({"meta_estimator": "implicit_neumann", "meta_terms": 3}, False),
    ({"meta_estimator": "es"}, False),
    ({"meta_optimizer": "momentum"}, False),
    ({"meta_optimizer": "adam"}, False),
    ({"meta_trainable": "head"}, False),
    ({"meta_trainable": "last_block"}, False),
    ({"meta_loss": "mean"}, False),
    ({"meta_num_steps": 2}, False),
]


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        pytest.param(*case, marks=() if "meta_loss" in case[0] else pytest.mark.thorough)
        for case in OPTIONS
    ],
    ids=str,
)
def test_every_option_changes_the_gradient_or_how_it_is_computed_and_nothing_else(changes, is_same):
    wanted, _, stats = update(**THREE)
    pulls, _, other_stats = update(**(THREE | changes))
    scale = np.abs(wanted).max()
    assert np.isfinite(pulls).all() and np.any(pulls)
    # Differences in float32 of losses, over steps of about 0.005.
    loose = 0.02 if changes.get("meta_estimator") == "finite_difference" else 1e-4
    assert np.allclose(pulls, wanted, rtol=0, atol=loose * scale) == is_same
    for a, b in zip(jax.tree.leaves(stats), jax.tree.leaves(other_stats), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.thorough
def test_steps_that_diverge_leave_labels_and_record_alone():
    changes = {"meta_trainable": "all", "meta_num_steps": 3, "meta_learning_rate": 1e30}
    pulls, labels, _ = update(**changes)
    _, _, state, batch = setup(**changes)
    np.testing.assert_array_equal(labels, state.labels[batch.ids])
    assert not pulls.any()


@pytest.mark.parametrize(
    ("changes", "is_guarded"),
    [
        *(({}, False), ({"meta_learning_rate": 9.0}, False), ({"meta_loss": "mean"}, False)),
        *(({"meta_num_steps": 2}, True), ({"meta_trainable": "head"}, True)),
        *(({"meta_optimizer": "adam"}, True), ({"meta_estimator": "forward"}, True)),
    ],
    ids=str,
)
def test_every_virtual_step_but_the_published_one_is_looked_at_for_divergence(changes, is_guarded):
    config = lagam.default_config()
    config.update(changes)
    virtual_steps.check(config)
    assert virtual_steps.is_published(config) != is_guarded


def test_more_pairs_of_es_come_closer():
    def cosine(pairs):
        a, b = update(**THREE)[0], update(**THREE, meta_estimator="es", meta_num_pairs=pairs)[0]
        return a @ b / np.linalg.norm(a) / np.linalg.norm(b)

    assert cosine(256) > 0.9


def shapes(model, **options):
    config = tiny.config("lagam", model=model, options=options or None, augment=False)
    network = network_lib.build(config, problem().info, embedding_dim=8)
    inputs = jax.ShapeDtypeStruct((2, 8, 8, 1), jnp.uint8)
    return jax.eval_shape(network.init, jax.eval_shape(jax.random.key, 0), inputs)[0]


@pytest.mark.parametrize(
    ("model", "options", "wanted"),
    [
        ("mlp", {"hidden": (4, 4), "batch_norm": True}, {"dense2", "norm2"}),
        ("small_cnn", {}, {"dense1"}),
        ("small_cnn", {"channels": (4, 4, 4), "hidden": ()}, {"conv3", "norm3"}),
        ("resnet_small", {"width": 4}, {"stage3_block1"}),
    ],
)
def test_the_last_block_is_that_of_the_network(model, options, wanted):
    params = shapes(model, **options)
    assert set(virtual_steps.last_block(params["backbone"])) == wanted
    moved = {}
    for subset in virtual_steps.SUBSETS:
        config = tiny.config("lagam", meta_trainable=subset).method
        moves = virtual_steps.trainable(config, params)
        paths = (path for path, _ in jax.tree.leaves_with_path(params) if moves(path))
        moved[subset] = {"/".join(x.key for x in path) for path in paths}
    assert moved["kernel"] == {"classifier/kernel"}
    assert moved["head"] == {"classifier/kernel", "classifier/bias"}
    names = {path.split("/")[1] for path in moved["last_block"] - moved["head"]}
    assert names == wanted
    every = {"/".join(x.key for x in path) for path, _ in jax.tree.leaves_with_path(params)}
    assert moved["all"] == {path for path in every if not path.startswith("projection")}


def test_what_does_not_train_does_not_move_in_a_virtual_step():
    config = tiny.config("lagam", meta_trainable="all").method
    moves = virtual_steps.trainable(config, {}, lambda path: path[1].key != "stage1_block1")
    paths = jax.tree.leaves_with_path({"backbone": {"stage1_block1": 0, "stage2_block1": 0}})
    assert [moves(path) for path, _ in paths] == [False, True]


def test_the_support_set_is_known_positives_and_the_lowest_scores_of_u():
    rng = np.random.default_rng(0)
    labeled = np.arange(20) < 6
    scores = rng.normal(size=20).astype(np.float32)
    scores[:6] = -9  # lower than all of U, and not to be taken
    inputs = jnp.arange(20.0)[:, None]
    data = types.SimpleNamespace(inputs=inputs, labeled=jnp.asarray(labeled))
    counts = {"num_positives": 4, "num_negatives": 5}
    for num_low in (5, 8):
        found = [
            pseudo_support.choose(
                data, jnp.asarray(scores), jax.random.key(seed), num_low=num_low, **counts
            )
            for seed in (0, 1)
        ]
        lowest = set(6 + np.argsort(scores[6:])[:num_low])
        negatives = []
        for support in found:
            positives = np.asarray(support.positives)[:, 0].astype(int)
            assert len(set(positives)) == 4 and set(positives) < set(range(6))
            negatives.append(set(np.asarray(support.negatives)[:, 0].astype(int)))
            assert len(negatives[-1]) == 5 and negatives[-1] <= lowest
        assert (negatives[0] == negatives[1]) == (num_low == 5)
        assert not np.array_equal(found[0].positives, found[1].positives)
    rows, labels = pseudo_support.draw(found[0], jax.random.key(0), size=7)
    rows = np.asarray(rows)[:, 0].astype(int)
    assert len(set(rows)) == 7 and labels.tolist() == [1] * 3 + [0] * 4
    assert (labeled[rows] == (np.asarray(labels) == 1)).all()
    # A class gives what it has.
    assert (
        pseudo_support.draw(found[0], jax.random.key(0), size=64)[1].tolist() == [1] * 4 + [0] * 5
    )


@pytest.mark.parametrize(("share", "wanted"), [(0.5, (40, 50, 76)), (0.1, (40, 15, 15))])
def test_the_share_of_low_scores_is_one_of_u(share, wanted):
    # 40 of P and 152 of U; a set of 100 is half of either where there are so many.
    config = tiny.config("lagam", pseudo_negative_share=share, pseudo_support_size=100).method
    assert tuple(lagam._pseudo_sizes(config, problem().info)) == wanted


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        ("truncated", {"window": 2}),
        ("implicit_cg", {"max_iterations": 3, "damping": 0.5}),
        ("implicit_neumann", {"num_terms": 3, "damping": 0.5, "step_size": 0.2}),
        ("es", {"num_pairs": 5, "sigma": 0.3, "key": "a key"}),
    ],
)
def test_an_estimator_gets_its_own_numbers(estimator, options):
    config = tiny.config(
        "lagam",
        **{"meta_estimator": estimator, "meta_num_steps": 4, "meta_learning_rate": 0.2},
        **{"meta_window": 2, "meta_terms": 3, "meta_damping": 0.5},
        **{"meta_num_pairs": 5, "meta_sigma": 0.3},
    )
    found = virtual_steps.arguments(config.method, "a key")
    found.pop("max_residual", None)
    assert found == options | {"estimator": estimator, "learning_rate": 0.2, "num_steps": 4}


def leaves(tree):
    return [np.asarray(x) for x in jax.tree.leaves(tree)]


def test_pseudo_negatives_look_at_no_true_label():
    """Neither the hidden classes nor the clean examples, which need not be there."""
    config = tiny.config("lagam", **(PLAIN | PSEUDO))
    trainer = tiny.Trainer(config, problem())
    assert trainer.method.stages[-1].batching.support_batch_size == 0
    first = trainer.run(steps=3)
    data = problem()
    rng = np.random.default_rng(0)
    other = data._replace(truth=rng.permutation(data.truth), support_labels=1 - data.support_labels)
    trainer.arrays = sharding.replicate(other.training_data(), trainer.mesh)
    second = trainer.run(steps=3)
    for a, b in zip(leaves(first), leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)
    moved = np.asarray(first.state.labels)[~data.labeled]
    assert 0 < (moved > 0).sum() < len(moved)
    chosen = np.asarray(first.state.support.negatives).reshape(12, -1)
    rows = data.inputs.reshape(len(data.inputs), -1)
    found = [np.flatnonzero((rows == row).all(1)) for row in chosen]
    assert all(not data.labeled[ids].any() for ids in found)


@pytest.mark.thorough
def test_it_trains_without_a_support_set_and_finds_the_labels(tmp_path):
    config = tiny.config("lagam", **(PLAIN | PSEUDO | RECORD), num_epochs=8, rho_end=0.5)
    _, rows = tiny.train_in(tmp_path, config, tiny.problem(num_support=0))
    assert rows[-1]["label_accuracy"] > 0.9 and rows[-1]["label_gradient_agreement"] > 0.8


@pytest.mark.thorough
def test_a_record_of_the_gradients_changes_nothing_else():
    config = {"model": "mlp", "options": {"hidden": (3,)}, "augment": False, "use_contrast": False}
    with_record, without = (
        tiny.Trainer(tiny.config("lagam", **config, record_label_gradients=on), problem())
        for on in (True, False)
    )
    first, second = (trainer.run(steps=2).state for trainer in (with_record, without))
    assert np.any(first.pulls) and second.pulls is None
    for a, b in zip(leaves(first._replace(pulls=None)), leaves(second), strict=True):
        np.testing.assert_array_equal(a, b)
    assert without.method.label_gradients is None
    np.testing.assert_array_equal(with_record.method.label_gradients(first), first.pulls)


def of_labels(labeled, truth):
    hidden = ~np.asarray(labeled, bool)
    return types.SimpleNamespace(truth=np.asarray(truth), hidden=lambda: hidden)


def test_agreement_of_gradients_with_the_truth_by_size():
    truth = np.array([1, 1, 0, 0, 1, 0, 1, 0, 0, -1, 1])
    labeled = np.array([0] * 10 + [1])
    # Sizes 1 to 8, of which the smallest two, and the fifth, are wrong; none, unknown, labelled.
    gradients = np.array([-1, -2, -3, -4, -5, -6, 7, -8, 0, 9, -9.0])
    found = binary.label_gradient_metrics(gradients, of_labels(labeled, truth))
    name = "label_gradient_agreement"
    wanted = {name: 5 / 8, f"{name}_q1": 0, f"{name}_q2": 1, f"{name}_q3": 0.5, f"{name}_q4": 1}
    assert found == wanted
    none = binary.label_gradient_metrics(np.zeros(11), of_labels(labeled, truth))
    assert none.keys() == wanted.keys() and all(np.isnan(x) for x in none.values())
    assert binary.label_gradient_metrics(gradients, of_labels(labeled, np.full(11, -1))) == {}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"meta_num_steps": 0}, "^method.meta_num_steps is 0; accepted: an integer from 1"),
        ({"meta_trainable": "heads"}, "^method.meta_trainable is 'heads'; accepted: 'kernel', 'he"),
        ({"meta_optimizer": "rmsprop"}, "^method.meta_optimizer is 'rmsprop'; accepted: 'sgd'"),
        ({"meta_loss": "nnpu"}, "^method.meta_loss is 'nnpu'; accepted: 'same', 'balanced'"),
        ({"meta_estimator": "pes"}, "^method.meta_estimator is 'pes'; accepted: 'reverse'"),
        (
            {"meta_estimator": "truncated", "meta_num_steps": 2, "meta_window": 3},
            "^method.meta_window is 3; accepted: 1 to 2, the steps of method.meta_num_steps",
        ),
        ({"meta_window": 0}, "^method.meta_window is 0; accepted: an integer from 1"),
        ({"meta_terms": 0}, "^method.meta_terms is 0; accepted: an integer from 1"),
        ({"meta_num_pairs": 0}, "^method.meta_num_pairs is 0; accepted: an integer from 1"),
        ({"meta_sigma": 0.0}, "^method.meta_sigma is 0.0; accepted: a number in"),
        ({"meta_damping": -1.0}, "^method.meta_damping is -1.0; accepted: a number in"),
        ({"support_source": "none"}, "^method.support_source is 'none'; accepted: 'support', 'ps"),
        ({"pseudo_negative_share": 0.0}, "^method.pseudo_negative_share is 0.0; accepted: a num"),
        ({"pseudo_negative_share": 1.5}, "^method.pseudo_negative_share is 1.5; accepted: a num"),
        ({"pseudo_support_size": 1}, "^method.pseudo_support_size is 1; accepted: an integer fr"),
        (PSEUDO | {"warmup_epochs": 0}, "^method.warmup_epochs is 0; accepted: at least 1 with"),
        (PSEUDO | {"support_batch_size": 1}, "^method.support_batch_size is 1; accepted: at le"),
    ],
    ids=str,
)
def test_bad_settings_are_named(changes, message):
    config = tiny.config("lagam", **(PLAIN | changes))
    with pytest.raises(ValueError, match=message):
        lagam.check(config.method, problem().info)


def test_negatives_are_needed_as_the_configuration_says():
    assert methods.needs_negatives("lagam")
    assert methods.needs_negatives("lagam", {"meta_num_steps": 2})
    assert not methods.needs_negatives("lagam", PSEUDO)
    assert not methods.needs_negatives("lagam", tiny.config("lagam", use_meta=False).method)
    assert "lagam" not in methods.without_negatives()
    assert "lagam" in methods.without_negatives("lagam", PSEUDO)
    assert "lagam" not in methods.without_negatives("naive", PSEUDO)
    assert "pu_mlc" not in methods.without_negatives("pu_mlc", {})


@pytest.mark.thorough
@pytest.mark.usefixtures("one_device")
def test_the_estimator_takes_lagam_without_clean_examples():
    rng = np.random.default_rng(0)
    truth = np.arange(200) % 2
    rows = rng.normal(size=[200, 4]) + 3 * truth[:, None]
    known = (truth == 1) & (np.arange(200) < 60)
    options = {**PSEUDO, "use_contrast": False, "warmup_epochs": 4, "rho_start": 0.6}
    settings = {"num_epochs": 30, "batch_size": 20, "hidden": (8,), "prior": 70 / 170}
    model = PUClassifier("lagam", options=options, random_state=0, **settings)
    model.fit(rows, known.astype(int))
    assert (model.predict(rows) == truth).mean() > 0.9
    with pytest.raises(ValueError, match="^method is 'lagam'; accepted"):
        PUClassifier("lagam").fit(rows, known.astype(int))


EVERYTHING = PSEUDO | RECORD | {"meta_trainable": "all", "meta_num_steps": 2, "num_epochs": 3}


@pytest.mark.thorough
def test_seeds_together_equal_seeds_alone(tmp_path):
    changes = EVERYTHING | {"use_contrast": False, "augment": False, "meta_learning_rate": 0.1}
    changes |= {"label_update": "normalized"}  # a sign would turn over at a rounding
    group = members(tmp_path, "lagam", **changes)
    train(group, tmp_path)
    for member in group:
        seed = member.setup.config.seed
        _, rows = alone(member, tmp_path / f"alone_{seed}")
        drop = ("label_gradient", "label_", "recovered")  # counts of examples near a boundary

        def kept(found, drop=drop):
            return [{k: v for k, v in row.items() if not k.startswith(drop)} for row in found]

        assert_rows_close(kept(rows_in(tmp_path / f"seed_{seed}")), kept(rows))


@pytest.mark.thorough
def test_eight_devices_equal_one():
    changes = PLAIN | EVERYTHING | {"label_update": "normalized", "meta_learning_rate": 0.1}
    config = tiny.config("lagam", **changes)
    one, eight = (tiny.Trainer(config, problem(), num_devices=n).run(steps=3).state for n in (1, 8))
    np.testing.assert_array_equal(one.support.negatives, eight.support.negatives)
    for a, b in zip(leaves(one), leaves(eight), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.thorough
def test_stop_and_go_on_equals_a_straight_run_bit_for_bit(tmp_path):
    shared = tiny.shared_setups()

    def run(folder, **changes):
        config = tiny.config("lagam", **(PLAIN | EVERYTHING), **changes)
        setup = shared(config, problem(), tiny.mesh())
        return tiny.train_in(tmp_path / folder, config, problem(), setup=setup)

    straight, rows = run("straight")
    for epochs in (2, 0):  # in the middle of the main stage
        resumed, resumed_rows = run("resumed", stop_after_epoch=epochs)
    assert resumed_rows == rows and resumed.is_finished
    for a, b in zip(leaves(straight.carry), leaves(resumed.carry), strict=True):
        np.testing.assert_array_equal(a, b)
