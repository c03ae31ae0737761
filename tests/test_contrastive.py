"""All contrastive losses: derivatives and precision. LaGAM's: naive versions, sets of positives."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import contrastive
from tests import equations
from tests.x64 import x64


def unit_views(seed=0, batch=5, dim=4):
    views = np.random.default_rng(seed).normal(size=(2, batch, dim))
    return views / np.linalg.norm(views, axis=-1, keepdims=True)


def random_mask(seed, batch):
    return np.random.default_rng(seed).random((batch, 2 * batch)) < 0.4


LOSSES = {
    "nt_xent": functools.partial(contrastive.nt_xent, temperature=0.5),
    "debiased": functools.partial(contrastive.debiased, temperature=0.5, tau_plus=0.1),
    "three_views": lambda q, k: contrastive.multiview_debiased(
        jnp.stack([q, k, jnp.roll(q, 1, axis=0)]), temperature=0.5, tau_plus=0.1
    ),
    "blocks": functools.partial(contrastive.debiased, temperature=0.5, tau_plus=0.1, block_size=2),
    "instance": functools.partial(contrastive.instance_discrimination, temperature=0.07),
    "group": lambda q, k: contrastive.group_contrast(
        q, k, random_mask(1, q.shape[0]), temperature=0.07
    ),
}


# Compiled, since operations one by one cost a program each.
instance_discrimination = jax.jit(contrastive.instance_discrimination)
group_contrast = jax.jit(contrastive.group_contrast)


def naive_log_p(queries, keys, temperature):
    pool = np.concatenate([queries, keys])
    table = np.full((len(queries), len(pool)), np.nan)
    for i in range(len(queries)):
        others = [m for m in range(len(pool)) if m != i]
        total = sum(np.exp(queries[i] @ pool[m] / temperature) for m in others)
        for j in others:
            table[i, j] = np.log(np.exp(queries[i] @ pool[j] / temperature) / total)
    return table


def naive_group(queries, keys, positives, temperature):
    table = naive_log_p(queries, keys, temperature)
    losses = []
    for i, row in enumerate(positives):
        chosen = [j for j in np.flatnonzero(row) if j != i]
        losses.append(-np.mean([table[i, j] for j in chosen]) if chosen else 0.0)
    return np.mean(losses)


def test_log_probabilities_match_the_naive_version():
    queries, keys = unit_views()
    with x64():
        table = np.asarray(jax.jit(contrastive.log_probabilities)(queries, keys, temperature=0.3))
    own = np.eye(5, 10, dtype=bool)
    assert np.all(table[own] == -np.inf)
    np.testing.assert_allclose(table[~own], naive_log_p(queries, keys, 0.3)[~own], rtol=1e-12)
    np.testing.assert_allclose(np.exp(table).sum(axis=1), 1, rtol=1e-12)


def test_losses_match_the_naive_versions():
    queries, keys = unit_views()
    mask = random_mask(1, 5)
    mask[2] = False
    with x64():
        instance = instance_discrimination(queries, keys, temperature=0.07)
        group = group_contrast(queries, keys, mask, temperature=0.07)
    partners = np.eye(5, 10, k=5, dtype=bool)
    np.testing.assert_allclose(instance, naive_group(queries, keys, partners, 0.07), rtol=1e-12)
    np.testing.assert_allclose(group, naive_group(queries, keys, mask, 0.07), rtol=1e-12)


@pytest.mark.parametrize("name", sorted(LOSSES))
def test_gradients_match_finite_differences(name):
    with x64():
        views = unit_views(seed=4, batch=3, dim=3)

        def loss(flat):
            return LOSSES[name](*flat.reshape(views.shape))

        steps = 1e-6 * np.eye(views.size)
        losses = jax.jit(jax.vmap(loss))
        upper, lower = (np.asarray(losses(views.ravel() + s)) for s in (steps, -steps))
        gradient = jax.jit(jax.grad(loss))(views.ravel())
        # Third derivatives grow like t^-3, at t = 0.07 an error of about 1e-9.
        np.testing.assert_allclose(gradient, (upper - lower) / 2e-6, atol=1e-7)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(LOSSES))
def test_compiled_mapped_and_second_derivatives_agree_and_stay_finite(name):
    queries, keys = unit_views(batch=3, dim=2).astype(np.float32)
    loss = LOSSES[name]
    np.testing.assert_allclose(jax.jit(loss)(queries, keys), loss(queries, keys), rtol=1e-5)
    mapped = jax.jit(jax.vmap(loss))(np.stack([queries, keys]), np.stack([keys, queries]))
    np.testing.assert_allclose(mapped, [loss(queries, keys), loss(keys, queries)], rtol=1e-5)
    assert np.isfinite(jax.jit(jax.hessian(loss))(queries, keys)).all()


@pytest.mark.parametrize("name", sorted(LOSSES))
@pytest.mark.thorough
def test_bfloat16_embeddings_are_compared_in_float32(name):
    queries, keys = (jnp.asarray(view, jnp.bfloat16) for view in unit_views())
    value = LOSSES[name](queries, keys)
    assert value.dtype == jnp.float32
    exact = LOSSES[name](queries.astype(jnp.float32), keys.astype(jnp.float32))
    np.testing.assert_array_equal(value, exact)


@pytest.mark.parametrize("temperature", [0.5, 0.005])
def test_one_image_and_low_temperature_are_finite(temperature):
    losses = [
        contrastive.instance_discrimination,
        lambda q, k, **options: contrastive.group_contrast(
            q, k, np.eye(q.shape[0], 2 * q.shape[0], k=q.shape[0]), **options
        ),
    ]
    for loss in losses:
        compiled = jax.jit(jax.value_and_grad(functools.partial(loss, temperature=temperature)))
        for batch in (1, 4):
            queries, keys = unit_views(batch=batch).astype(np.float32)
            for view in (keys, queries, -queries):
                value, gradient = compiled(queries, view)
                assert np.isfinite(value) and np.isfinite(gradient).all()
                if batch == 1:
                    # Nothing to be told apart from: a single image has no loss.
                    assert float(value) == pytest.approx(0, abs=1e-5)


@pytest.mark.thorough
def test_anchors_without_positives_contribute_zero():
    queries, keys = unit_views()
    empty = np.zeros((5, 10), bool)
    value, gradient = jax.value_and_grad(contrastive.group_contrast)(
        queries, keys, empty, temperature=0.07
    )
    assert float(value) == 0
    np.testing.assert_array_equal(gradient, 0)
    only_own = np.eye(5, 10, dtype=bool)
    assert float(contrastive.group_contrast(queries, keys, only_own, temperature=0.07)) == 0


def test_a_batch_of_nobody_has_the_mean_zero():
    nobody = np.zeros((0, 3), np.float32)
    found = contrastive.instance_discrimination(nobody, nobody, temperature=0.5)
    groups = contrastive.group_contrast(nobody, nobody, np.zeros((0, 0), bool), temperature=0.5)
    assert float(found) == 0 and float(groups) == 0


def test_instance_discrimination_is_group_contrast_with_the_keys_only():
    queries, keys = unit_views()
    mask = contrastive.latent_group_positives(queries, keys)
    np.testing.assert_array_equal(mask, np.eye(5, 10, k=5, dtype=bool))
    np.testing.assert_allclose(
        group_contrast(queries, keys, mask, temperature=0.07),
        instance_discrimination(queries, keys, temperature=0.07),
        rtol=1e-6,
    )


@pytest.mark.parametrize("use_clusters", [True, False])
@pytest.mark.parametrize("use_sides", [True, False])
@pytest.mark.parametrize("num_neighbors", [0, 1, 3])
def test_positives_match_the_naive_set(use_clusters, use_sides, num_neighbors):
    queries, keys = unit_views(seed=7, batch=6)
    clusters = np.array([0, 1, 0, 1, 0, 2]) if use_clusters else None
    sides = np.array([1, 1, 1, 0, 0, 0], bool) if use_sides else None
    pool = np.concatenate([queries, keys])
    expected = np.zeros((6, 12), bool)
    for i in range(6):
        nearest = np.argsort(-(pool @ queries[i]))[:num_neighbors]
        for j in range(12):
            same_cluster = clusters is None or clusters[i] == clusters[j % 6]
            same_side = sides is None or sides[i] == sides[j % 6]
            grouped = same_cluster and same_side and (use_clusters or use_sides)
            expected[i, j] = j != i and (grouped or j in nearest or j == 6 + i)
    find = functools.partial(contrastive.latent_group_positives, num_neighbors=num_neighbors)
    options = {"clusters": clusters, "sides": sides}
    mask = jax.jit(find)(queries, keys, **options)
    assert mask.dtype == bool
    np.testing.assert_array_equal(mask, expected)
    if use_clusters and use_sides and num_neighbors == 1:  # operation by operation too
        np.testing.assert_array_equal(find(queries, keys, **options), expected)


def test_neighbors_are_clipped_to_the_pool_and_never_the_anchor_itself():
    queries, keys = unit_views()
    find = functools.partial(contrastive.latent_group_positives, num_neighbors=99)
    mask = jax.jit(find)(queries, keys)
    np.testing.assert_array_equal(mask, ~np.eye(5, 10, dtype=bool))


def test_duplicates_do_not_displace_the_anchor_as_its_own_first_neighbor():
    queries = np.tile(unit_views(batch=1)[0], (4, 1))
    find = functools.partial(contrastive.latent_group_positives, num_neighbors=2)
    mask = np.asarray(jax.jit(find)(queries, queries))
    # One neighbour besides the anchor, and the own key.
    assert mask.sum(axis=1).max() <= 2
    assert not mask[np.arange(4), np.arange(4)].any()


def test_neighbor_mask_can_be_found_inside_a_differentiated_loss():
    queries, keys = unit_views()

    def loss(queries, keys):
        mask = contrastive.latent_group_positives(queries, keys, num_neighbors=3)
        return contrastive.group_contrast(queries, keys, mask, temperature=0.1)

    fixed = contrastive.latent_group_positives(queries, keys, num_neighbors=3)
    slope = jax.jit(jax.grad(contrastive.group_contrast))
    expected = slope(queries, keys, fixed, temperature=0.1)
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(queries, keys), expected, atol=1e-6)
    mapped = jax.jit(jax.vmap(loss))(np.stack([queries, keys]), np.stack([keys, queries]))
    np.testing.assert_allclose(mapped[0], loss(queries, keys), rtol=1e-5)


def test_a_compiled_step_computes_the_similarities_once():
    queries, keys = unit_views(batch=8, dim=16).astype(np.float32)

    def step(queries, keys):
        mask = contrastive.latent_group_positives(queries, keys, num_neighbors=3)
        group = contrastive.group_contrast(queries, keys, mask, temperature=0.07)
        return group + contrastive.instance_discrimination(queries, keys, temperature=0.07)

    lowered = jax.jit(step).lower(queries, keys)
    assert lowered.as_text().count("dot_general") == 3
    assert lowered.compile().as_text().count(" dot(") == 1


ALIGNED = functools.partial(
    contrastive.noise_robust_alignment, same_class=np.ones((4, 4), bool), clamp="none"
)


@pytest.mark.parametrize("loss", [ALIGNED, *LOSSES.values()], ids=["aligned", *LOSSES])
def test_similarities_and_their_gradients_are_products_in_full_precision(loss):
    rows = np.ones((4, 3), np.float32)
    for function in (loss, jax.grad(loss)):
        assert set(equations.precisions(function, rows, rows)) == {equations.HIGHEST}


def test_wrong_arguments_are_named():
    queries, keys = unit_views()
    with pytest.raises(ValueError, match=r"queries and keys must be .* \(5, 4\) and \(4, 4\)"):
        contrastive.instance_discrimination(queries, keys[:4], temperature=0.5)
    for loss in (contrastive.instance_discrimination, contrastive.log_probabilities):
        with pytest.raises(ValueError, match="temperature is 0.0, but must be above 0"):
            loss(queries, keys, temperature=0)
    with pytest.raises(ValueError, match="temperature is -0.5, but must be above 0"):
        contrastive.group_contrast(queries, keys, np.ones((5, 10)), temperature=-0.5)
    with pytest.raises(ValueError, match=r"positives has shape \(5, 5\)"):
        contrastive.group_contrast(queries, keys, np.ones((5, 5)), temperature=0.5)
    masks = {"holds NaN": np.full((5, 10), np.nan), "is complex64": np.full((5, 10), 1j)}
    masks[r"is \[\['word', "] = [["word"] * 10] * 5
    for said, mask in masks.items():
        with pytest.raises(ValueError, match=f"positives {said}.*; accepted: "):
            contrastive.group_contrast(queries, keys, mask, temperature=0.5)
    loss = functools.partial(contrastive.group_contrast, positives=np.full((5, 10), np.nan))
    with pytest.raises(ValueError, match="positives holds NaN; accepted: "):
        jax.eval_shape(functools.partial(loss, temperature=0.5), queries, keys)
    for wrong, said in ((keys * 1j, "complex64"), (keys.astype(str).tolist(), r"\[\[")):
        with pytest.raises(ValueError, match=f"keys is {said}.*; accepted: an array of real"):
            contrastive.log_probabilities(queries, wrong, temperature=0.5)
    with pytest.raises(ValueError, match=r"clusters is \['word', .*; accepted: an array of real"):
        contrastive.latent_group_positives(queries, keys, clusters=["word"] * 5)
    with pytest.raises(ValueError, match=r"sides has shape \(4,\)"):
        contrastive.latent_group_positives(queries, keys, sides=np.zeros(4))
    for num_neighbors in (-1, 2.5, None):
        with pytest.raises(ValueError, match=f"num_neighbors is {num_neighbors}"):
            contrastive.latent_group_positives(queries, keys, num_neighbors=num_neighbors)


@x64()
@pytest.mark.parametrize("name", ["log_probabilities", "instance_discrimination", "group_contrast"])
def test_a_number_of_numpy_does_not_change_the_type_of_the_views(name):
    queries, keys = unit_views().astype(np.float32)
    positives = [random_mask(1, 5)] if name == "group_contrast" else []
    loss = jax.jit(getattr(contrastive, name))
    found = loss(queries, keys, *positives, temperature=np.float64(0.07))
    assert found.dtype == jnp.float32


def test_a_temperature_of_several_lengths_is_named():
    with pytest.raises(
        ValueError, match=r"^temperature is \[\[1.0\], \[1.0, 2.0\]\], but must be a"
    ):
        contrastive.nt_xent(np.ones([2, 3]), np.ones([2, 3]), temperature=[[1.0], [1.0, 2.0]])
