"""PURL's own mathematics: its objective, who moves when, what is held out, the prior it finds."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn import discriminant_analysis

from pujax import mutual_info, priors
from pujax.methods._common import holdout
from pujax.methods._common import network as network_lib
from pujax.methods.purl import class_prior, density_ratio, linear_maps
from pujax.training import method_setup, sharding, train_step
from pujax.training.evaluation import binary
from tests import equations, tiny

OPTIONS = {"model": "mlp", "options": {"hidden": (12, 6), "batch_norm": True}}
QUIET = {"gradient_noise": 0.0, "representation_learning_rate": 0.01}
LABELED = np.arange(30) < 10


@pytest.fixture(scope="module")
def data():
    return tiny.problem()


@functools.cache
def setup(**changes):
    """Configuration, method, arrays, and the state at the start of the first stage."""
    config, data = tiny.config("purl", **(OPTIONS | QUIET | changes)), tiny.problem()
    method = method_setup.build(config, data, tiny.mesh()).method
    arrays = sharding.replicate(data.training_data(), tiny.mesh())
    key = jax.random.key(0)
    return (
        config,
        method,
        arrays,
        train_step.init_state(method.stages[0], key, None, arrays, tiny.mesh()),
    )


def batch_of(stage, arrays, *, step=0):
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    return tiny.gather(arrays, plan, 0, epoch=0, step=step)


def points(seed=0, *, dim=3):
    return np.random.default_rng(seed).normal(size=(30, dim)).astype(np.float32)


# The objective and its closed form.


def test_the_objectives_are_those_of_mutual_information():
    ratios = points()[:, 0]
    p, u = ratios[LABELED], ratios[~LABELED]
    got = density_ratio.ratio_objective(ratios, LABELED)
    assert got == pytest.approx(float(mutual_info.pu_objective(p, u)), rel=1e-5)
    got = density_ratio.ratio_objective(ratios, LABELED, positive_share=0.3)
    assert got == pytest.approx(float(mutual_info.pn_objective(p, u, prior=0.3)), rel=1e-5)
    mean = density_ratio.mean_ratio(ratios, LABELED, positive_share=0.3)
    assert mean == pytest.approx(0.3 * p.mean() + 0.7 * u.mean(), rel=1e-5)


@pytest.mark.thorough
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_the_closed_form_is_where_the_gradient_vanishes(share):
    features, ridge = points(), 0.1

    def regularised(head):
        kernel, bias = head
        ratios = (features @ kernel + bias)[:, 0]
        loss = density_ratio.ratio_objective(ratios, LABELED, positive_share=share)
        return loss + ridge / 2 * (jnp.sum(kernel**2) + jnp.sum(bias**2))

    head = density_ratio.fit_head(features, LABELED, positive_share=share, ridge=ridge)
    assert head[0].shape == (3, 1) and head[1].shape == (1,)
    for gradient in jax.grad(regularised)(head):
        np.testing.assert_allclose(gradient, 0, atol=2e-6)


def test_the_closed_form_is_that_of_mutual_information_and_looks_at_what_counts():
    features = np.concatenate([points(), np.full([5, 3], 1e3, np.float32)])
    labeled = np.concatenate([LABELED, np.ones(5, bool)])
    basis = np.concatenate([points(), np.ones([30, 1], np.float32)], axis=1)
    wanted = mutual_info.fit_linear_ratio(basis[LABELED], basis[~LABELED], ridge=0.1).weights
    kernel, bias = density_ratio.fit_head(
        features, labeled, positive_share=0.0, ridge=0.1, counted=np.arange(35) < 30
    )
    np.testing.assert_allclose(np.append(kernel[:, 0], bias), wanted, rtol=1e-4)


def test_the_closed_form_is_found_in_full_precision_on_matrix_units():
    rows, labeled = jnp.ones([6, 3]), jnp.arange(6) % 2
    fit = functools.partial(density_ratio.fit_head, positive_share=0.2, ridge=0.1)
    assert set(equations.precisions(fit, rows, labeled)) == {equations.HIGHEST}


@pytest.mark.parametrize("updates", [0, 99])
def test_gradient_noise_has_the_variance_of_the_schedule(updates):
    zeros = {"a": np.zeros(40_000, np.float32), "b": np.zeros([200, 200], np.float32)}
    add_noise = jax.jit(functools.partial(density_ratio.add_noise, eta=0.01))
    noise = add_noise(jax.random.key(0), zeros, updates=updates)
    variance = 0.01 / (1 + updates) ** 0.55
    for leaf in jax.tree.leaves(noise):
        # The variance of 40,000 numbers is known to 0.7 percent.
        assert np.var(leaf) == pytest.approx(variance, rel=0.03)
        assert abs(np.mean(leaf)) < 0.03 * np.sqrt(variance)
    assert not np.array_equal(noise["a"], noise["b"].reshape(-1))


def test_noise_falls_with_all_updates_so_far():
    _, method, arrays, state = setup(gradient_noise=0.01)
    step, biases = jax.jit(method.stages[0].step), []
    for updates in (0, 5, 50_000):  # each moves the head
        batch = batch_of(method.stages[0], arrays, step=updates)
        after, _ = step(state, batch, jax.random.key(0))
        biases.append(float(after.current.params["classifier"]["bias"][0]))
    # The gradient is the same, and the normal numbers, too.
    scales = [(1 + updates) ** (-0.55 / 2) for updates in (0, 5, 50_000)]
    wanted = (scales[0] - scales[1]) / (scales[0] - scales[2])
    assert (biases[0] - biases[1]) / (biases[0] - biases[2]) == pytest.approx(wanted, rel=0.01)


# What is held out.


@pytest.mark.thorough
def test_examples_held_out_do_not_touch_training(data):
    _, method, arrays, state = setup()
    held = np.asarray(state.held)
    assert 0 < held[data.labeled].sum() <= 8 and held[~data.labeled].sum() == 30
    other = arrays._replace(inputs=jnp.where(held[:, None, None, None], 255, arrays.inputs))
    step = jax.jit(method.stages[0].step)
    first, second = (
        step(state, batch_of(method.stages[0], x), jax.random.key(0)) for x in (arrays, other)
    )
    jax.tree.map(np.testing.assert_array_equal, first, second)


# Who moves when.


def moved(first, second):
    """Names of the parameters that differ."""
    pairs = jax.tree.leaves_with_path(
        jax.tree.map(lambda a, b: bool(np.any(np.asarray(a) != np.asarray(b))), first, second)
    )
    return {"/".join(entry.key for entry in path) for path, is_moved in pairs if is_moved}


HEAD = {"classifier/kernel", "classifier/bias"}
LAST_NORM = {"backbone/norm2/scale", "backbone/norm2/bias"}


@pytest.mark.parametrize(
    ("changes", "in_head"),
    [
        ({}, HEAD),
        ({"pre_activation": True}, HEAD | LAST_NORM),
        ({"inner": "all"}, HEAD),
        ({"inner_steps": 1}, HEAD),
    ],
)
def test_four_updates_move_the_head_and_the_fifth_moves_the_features(data, changes, in_head):
    _, method, arrays, state = setup(**changes)
    everything = moved(state.current.params, jax.tree.map(lambda x: x + 1, state.current.params))
    step, num_inner = jax.jit(method.stages[0].step), changes.get("inner_steps", 4)
    for index in range(6):
        batch = batch_of(method.stages[0], arrays, step=index)
        new, _ = step(state, batch, jax.random.key(index))
        inner = everything if "inner" in changes else in_head
        assert moved(state.current.params, new.current.params) == (
            everything - in_head if index % (num_inner + 1) == num_inner else inner
        )
        state = new


def test_an_update_is_plain_descent_with_weight_decay(data):
    # A decay large enough that its share of the update shows beside the gradient's.
    config, method, arrays, state = setup(representation_weight_decay=5.0)
    stage, batch = method.stages[0], batch_of(method.stages[0], arrays)
    new, metrics = jax.jit(stage.step)(state, batch, jax.random.key(0))
    features = naive_features(state.current.params, rows_of(data, state, batch))
    kernel = np.asarray(state.current.params["classifier"]["kernel"])[:, 0]
    bias = float(state.current.params["classifier"]["bias"][0])
    p = np.asarray(batch.labeled) > 0
    w = features @ kernel + bias
    assert metrics["loss"] == pytest.approx(np.mean(w[~p] ** 2) / 2 - np.mean(w[p]), rel=1e-4)
    gradient = (w[~p, None] * features[~p]).mean(0) - features[p].mean(0)
    rate, decay = config.method.representation_learning_rate, 5.0
    np.testing.assert_allclose(
        new.current.params["classifier"]["kernel"][:, 0],
        kernel - rate * (gradient + decay * kernel),
        rtol=1e-4,
        atol=1e-6,
    )
    wanted = bias - rate * (np.mean(w[~p]) - 1 + decay * bias)
    assert new.current.params["classifier"]["bias"][0] == pytest.approx(wanted, rel=1e-4, abs=1e-6)


def rows_of(data, state, batch):
    """Normalised rows that a step sees: those held out replaced."""
    rows = holdout.replacements(state.held[batch.ids], batch.labeled)
    inputs = (np.asarray(batch.inputs)[rows] / 255 - data.info.mean[0]) / data.info.std[0]
    return inputs.reshape(len(inputs), -1)


def naive_features(params, out):
    """Two dense layers, each with batch norm over the batch and ReLU."""
    for index in (1, 2):
        out = out @ np.asarray(params["backbone"][f"dense{index}"]["kernel"], np.float64)
        out = (out - out.mean(0)) / np.sqrt(out.var(0) + 1e-5)
        norm = params["backbone"][f"norm{index}"]
        out = np.maximum(out * np.asarray(norm["scale"]) + np.asarray(norm["bias"]), 0)
    return out


def test_weight_decay_is_that_of_the_features_too():
    params = []
    for decay in (0.0, 5.0):
        config, method, arrays, state = setup(representation_weight_decay=decay)
        batch = batch_of(method.stages[0], arrays, step=4)  # which moves the features
        new, _ = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
        params.append(new.current.params["backbone"])
    rate = config.method.representation_learning_rate
    wanted = jax.tree.map(lambda p: -rate * 5.0 * p, state.current.params["backbone"])
    found = jax.tree.map(lambda without, with_decay: with_decay - without, *params)
    for got, due in zip(*map(jax.tree.leaves, (found, wanted)), strict=True):
        np.testing.assert_allclose(got, due, rtol=1e-4, atol=1e-6)
    assert np.abs(found["dense1"]["kernel"]).max() > 1e-3


@pytest.mark.parametrize(
    ("changes", "objective"),
    [
        ({"representation": "pnrl"}, functools.partial(mutual_info.pn_objective, prior=40 / 192)),
        (
            {"output": "softplus"},
            lambda p, u: mutual_info.pu_objective(np.log1p(np.exp(p)), np.log1p(np.exp(u))),
        ),
    ],
    ids=["pnrl", "softplus"],
)
def test_a_step_minimises_the_objective_that_is_asked_for(data, changes, objective):
    _, method, arrays, state = setup(**changes)
    batch = batch_of(method.stages[0], arrays)
    _, metrics = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
    head = jax.tree.map(np.asarray, state.current.params["classifier"])
    features = naive_features(state.current.params, rows_of(data, state, batch))
    w, p = (features @ head["kernel"] + head["bias"])[:, 0], np.asarray(batch.labeled) > 0
    assert (data.info.n_p, data.info.n) == (40, 192)
    assert metrics["loss"] == pytest.approx(float(objective(w[p], w[~p])), rel=1e-4)


@pytest.mark.thorough
def test_the_gradient_of_the_features_goes_through_the_closed_form(data):
    # The loss is flat in a head without a ridge: a large one shows whether it counts as moving.
    config, method, arrays, state = setup(
        head="closed_form",
        **{"head_ridge": 1.0, "representation_weight_decay": 0.0},
        representation_learning_rate=1.0,
    )
    batch = batch_of(method.stages[0], arrays)
    new, metrics = jax.jit(method.stages[0].step)(state, batch, jax.random.key(0))
    network = network_lib.build(config, data.info, embedding_dim=0)
    rows = holdout.replacements(state.held[batch.ids], batch.labeled)
    images, positive = network.normalize(batch.inputs[rows]), np.asarray(batch.labeled) > 0

    @jax.jit
    @functools.partial(jax.value_and_grad, has_aux=True)
    def by_hand(params):
        outputs, _ = network.train_pass(params, state.current.batch_stats, images)
        basis = jnp.concatenate([outputs.features, jnp.ones([len(positive), 1])], axis=1)
        p, u = basis[positive], basis[~positive]
        head = jnp.linalg.inv(u.T @ u / len(u) + jnp.eye(basis.shape[1])) @ p.mean(0)
        return jnp.mean((u @ head) ** 2) / 2 - jnp.mean(p @ head), head

    params = state.current.params
    (loss, head), gradient = by_hand(params)
    assert metrics["loss"] == pytest.approx(float(loss), rel=1e-4)
    found = new.current.params
    moves = jax.tree.map(lambda new, old: new - old, found["backbone"], params["backbone"])
    for got, due in zip(*map(jax.tree.leaves, (moves, gradient["backbone"])), strict=True):
        np.testing.assert_allclose(got, -due, rtol=1e-3, atol=1e-5)
    got = np.append(found["classifier"]["kernel"][:, 0], found["classifier"]["bias"])
    np.testing.assert_allclose(got, head, rtol=1e-3, atol=1e-5)


@pytest.mark.thorough
def test_the_closed_form_head_moves_the_features_at_every_update(data):
    _, method, arrays, state = setup(head="closed_form", head_ridge=0.05)
    new, _ = jax.jit(method.stages[0].step)(
        state, batch_of(method.stages[0], arrays), jax.random.key(0)
    )
    assert {x for x in moved(state.current.params, new.current.params) if "backbone" in x}
    refreshed = method.stages[0].refresh(new, arrays, jax.random.key(1))
    # Refitted on all examples that count, at the running statistics: by the value of what is
    # minimised, since the features are so unlike in size that float32 leaves the coefficients
    # themselves uncertain in the second decimal.
    features = np.asarray(method.embed(refreshed, arrays.inputs), np.float64)
    basis = np.concatenate([features, np.ones((len(features), 1))], axis=1)
    counted, positive = ~np.asarray(state.held), np.asarray(data.labeled) > 0
    unlabeled = basis[counted & ~positive]
    gram = unlabeled.T @ unlabeled / len(unlabeled) + 5e-2 * np.eye(basis.shape[1])
    mean = basis[counted & positive].mean(0)
    head = refreshed.current.params["classifier"]
    fitted = np.append(np.asarray(head["kernel"])[:, 0], head["bias"])
    least = -mean @ np.linalg.solve(gram, mean) / 2
    # Leaving out one example raises the value by 1.4e-4.
    assert fitted @ gram @ fitted / 2 - mean @ fitted == pytest.approx(least, abs=4e-5)


def test_features_before_the_activation_are_what_the_activation_takes(data):
    _, method, arrays, state = setup(pre_activation=True)
    before = np.asarray(method.embed(state, arrays.inputs))
    _, plain, _, same_state = setup()
    stats = state.current.batch_stats["backbone"]["norm2"]
    normalised = (before - stats["mean"]) / np.sqrt(stats["var"] + 1e-5)
    after = np.asarray(plain.embed(same_state, arrays.inputs))
    np.testing.assert_allclose(np.maximum(normalised, 0), after, rtol=1e-4, atol=1e-5)


def test_softplus_keeps_the_ratio_above_zero(data):
    _, method, arrays, state = setup(output="softplus")
    _, plain, _, _ = setup()
    raw = np.asarray(plain.predict(state, arrays.inputs)) + 1
    assert (raw < 0).any()
    np.testing.assert_allclose(
        method.predict(state, arrays.inputs) + 1, np.log1p(np.exp(raw)), rtol=1e-5
    )


# The best network is kept.


@pytest.mark.thorough
def test_the_network_that_fits_the_examples_held_out_best_is_kept(data):
    _, method, arrays, state = setup(representation_learning_rate=0.2)
    stage, held = method.stages[0], np.asarray(state.held)
    step, predict, objectives = jax.jit(stage.step), jax.jit(method.predict), []
    for index in range(24):
        state = stage.refresh(state, arrays, jax.random.key(index))
        ratios = np.asarray(predict(state, arrays.inputs)) + 1
        p, u = ratios[held & data.labeled], ratios[held & ~data.labeled]
        objectives.append(np.mean(u**2) / 2 - np.mean(p))
        assert state.current.objective == pytest.approx(objectives[-1], rel=1e-4, abs=1e-5)
        assert state.current.mean_ratio == pytest.approx(np.mean(u), rel=1e-4, abs=1e-5)
        assert state.best.objective == pytest.approx(min(objectives), rel=1e-4, abs=1e-5)
        state, _ = step(state, batch_of(stage, arrays, step=index), jax.random.key(index))
    assert objectives[-1] > min(objectives)  # it has overfitted, or this shows nothing
    last = method.stages[1].init(jax.random.key(0), state, arrays)
    assert last.features.objective == pytest.approx(min(objectives), rel=1e-4)


# Linear representations.


def test_principal_components_are_those_of_the_covariance():
    values = points(dim=5) * np.arange(1, 6)
    like = linear_maps.blank("pca", 5, pca_share=0.5)
    got = linear_maps.fit(like, "pca", values, LABELED, ridge=0.1)
    assert jax.tree.map(jnp.shape, got) == jax.tree.map(jnp.shape, like)
    _, vectors = np.linalg.eigh(np.cov(values.T))
    cosines = np.sum(np.asarray(got.matrix) * vectors[:, ::-1][:, :2], axis=0)
    np.testing.assert_allclose(np.abs(cosines), 1, atol=1e-5)
    np.testing.assert_allclose(got(values), (values - values.mean(0)) @ got.matrix, atol=1e-5)


def test_fisher_direction_is_that_of_scikit_learn():
    values = points(dim=5).astype(np.float64)
    values[LABELED] += 1
    got = linear_maps.fisher_direction(values, LABELED, ridge=1e-9)
    model = discriminant_analysis.LinearDiscriminantAnalysis(solver="lsqr")
    direction = model.fit(values, LABELED).coef_[0]
    np.testing.assert_allclose(got, direction / np.linalg.norm(direction), atol=1e-6)


def test_the_ridge_is_in_units_of_the_data():
    values = points(dim=5).astype(np.float64)
    first = linear_maps.fisher_direction(values, LABELED, ridge=0.5)
    second = linear_maps.fisher_direction(1000 * values, LABELED, ridge=0.5)
    np.testing.assert_allclose(first, second, rtol=1e-9)
    assert not np.allclose(first, linear_maps.fisher_direction(values, LABELED, ridge=5.0))


@pytest.mark.thorough
@pytest.mark.parametrize(("name", "width"), [("pca", 32), ("fda", 1), ("none", 64)])
def test_a_linear_representation_needs_no_stage_of_its_own(data, name, width):
    config, method, arrays, state = setup(representation=name)
    assert [stage.name for stage in method.stages] == ["classify"]
    assert method.stages[0].num_epochs == setup()[1].stages[1].num_epochs
    state = method.stages[0].refresh(state, arrays, jax.random.key(0))
    held, scale = np.asarray(state.held), (255 * data.info.std[0])
    values = data.inputs.reshape(data.info.n, -1) / scale - data.info.mean[0] / data.info.std[0]
    like = linear_maps.blank(name, 64, pca_share=0.5)
    ridge = config.method.fda_ridge
    fitted = linear_maps.fit(like, name, values[~held], data.labeled[~held], ridge=ridge)
    got = np.asarray(method.embed(state, arrays.inputs))
    assert got.shape == (data.info.n, width)
    np.testing.assert_allclose(np.abs(got), np.abs(fitted(values)), rtol=1e-2, atol=1e-2)
    assert set(method.estimates(state)) == {"estimated_prior"} and method.diagnose is None


@pytest.mark.thorough
def test_the_prior_of_u_that_repeats_p_is_estimated_on_the_rest_of_it(monkeypatch):
    """What is known of U is counted, and not estimated: 0.5 of the rest is more of all."""
    problem = tiny.problem(setting="two_sample")
    config = tiny.config("purl", **(OPTIONS | QUIET | {"representation": "none"}))
    method = method_setup.build(config, problem, tiny.mesh()).method
    arrays = sharding.replicate(problem.training_data(), tiny.mesh())
    stage = method.stages[0]
    state = train_step.init_state(stage, jax.random.key(0), None, arrays, tiny.mesh())
    seen = []

    def estimate(positives, unlabeled, **options):
        seen.append((positives, unlabeled))
        return 0.5

    monkeypatch.setattr(class_prior, "estimate", estimate)
    state = stage.refresh(state, arrays, jax.random.key(0))
    (positives, unlabeled), labeled = seen[0], problem.labeled
    ids, held = problem.source_ids, np.asarray(state.held)
    copied = ~labeled & np.isin(ids, ids[labeled])
    assert 0 < copied.sum() < (~labeled).sum()
    assert len(positives) == (labeled & ~held).sum()
    assert len(unlabeled) == (~labeled & ~copied & ~held).sum()
    assert not {x.tobytes() for x in positives} & {x.tobytes() for x in unlabeled}
    known = copied.sum() / (~labeled).sum()
    assert float(state.prior) == pytest.approx(known + (1 - known) * 0.5)


def test_a_prior_from_scores_that_say_nothing_is_refused(monkeypatch):
    section = tiny.config("purl", prior_points="out_of_bag", prior_method="best_bin").method
    info, rows = tiny.problem().info, points()
    monkeypatch.setattr(
        *("pujax.priors.out_of_bag", lambda *args, **options: priors.PriorEstimate(0.9, 0.0, 1.0))
    )
    with pytest.raises(ValueError, match=r"method.prior_points is 'out_of_bag'.* no better than"):
        class_prior.estimate(rows, rows, config=section, info=info, key=jax.random.key(0))


def test_pnrl_takes_unlabeled_for_negative(data):
    _, method, arrays, state = setup(representation="pnrl")
    state = method.stages[0].refresh(state, arrays, jax.random.key(0))
    held, ratios = np.asarray(state.held), np.asarray(method.predict(state, arrays.inputs)) + 1
    p, u = ratios[held & data.labeled], ratios[held & ~data.labeled]
    wanted = mutual_info.pn_objective(p, u, prior=data.info.n_p / data.info.n)
    assert state.current.objective == pytest.approx(float(wanted), rel=1e-4)
    # With P among the negatives the prior is known, whatever is estimated of U.
    state = method.stages[1].init(jax.random.key(0), state, arrays)
    found = {name: float(value) for name, value in method.estimates(state).items()}
    share = data.info.n_p / data.info.n
    smi = -share / (1 - share) * (found["validation_objective"] + 0.5)
    assert found["smi"] == pytest.approx(smi, rel=1e-4)


def test_the_classifier_trains_on_features_that_are_computed_once(data):
    _, method, arrays, state = setup()
    stage = method.stages[1]
    state = train_step.init_state(stage, jax.random.key(0), state, arrays, tiny.mesh())
    encoded = train_step.stage_data(stage, state, arrays, tiny.mesh(), batch_size=64)
    np.testing.assert_allclose(
        encoded.inputs, method.embed(state, arrays.inputs), rtol=1e-5, atol=1e-5
    )
    batch, step = batch_of(stage, encoded), jax.jit(stage.step)
    unknown = state._replace(features=jax.tree.map(lambda x: x * np.nan, state.features))
    after, again = (step(x, batch, jax.random.key(0))[0].params for x in (state, unknown))
    jax.tree.map(np.testing.assert_array_equal, after, again)
    moved = jax.tree.map(lambda x, y: np.any(x != y), after, state.params)
    assert any(jax.tree.leaves(moved))


def classifier_step(**changes):
    """The classifier's stage at its start, a batch of features, and where they were held out."""
    _, method, arrays, state = setup(**changes)
    stage = method.stages[1]
    state = train_step.init_state(stage, jax.random.key(0), state, arrays, tiny.mesh())
    encoded = train_step.stage_data(stage, state, arrays, tiny.mesh(), batch_size=64)
    batch = batch_of(stage, encoded)
    return stage, state, batch, np.asarray(state.held[batch.ids])


def test_the_classifier_minimises_nnpu_at_the_estimated_prior(data):
    stage, state, batch, _ = classifier_step()
    # Every score is ln 3, so that an example is 1/4 wrong as a positive, 3/4 as a negative.
    last = {"kernel": jnp.zeros([16, 1]), "bias": jnp.full([1], np.log(3))}
    assert jax.tree.map(jnp.shape, state.params["classifier"]) == jax.tree.map(jnp.shape, last)
    state = state._replace(params=state.params | {"classifier": last}, prior=jnp.float32(0.25))
    _, metrics = jax.jit(stage.step)(state, batch, jax.random.key(0))
    # A quarter of the 152 of U are positive, and the 40 of P; the true prior, 1/2, gives 1/2.
    pi = (40 + 38) / 192
    assert pi / 4 + (1 - pi) * 3 / 4 == 0.546875 and data.info.prior == 0.5
    assert metrics["loss"] == pytest.approx(0.546875, rel=1e-5)


def test_examples_held_out_do_not_touch_the_classifier():
    stage, state, batch, held = classifier_step()
    assert 0 < held.sum() < len(held)
    other = batch._replace(inputs=jnp.where(held[:, None], 99, batch.inputs))
    step = jax.jit(stage.step)
    first, second = (step(state, x, jax.random.key(0)) for x in (batch, other))
    jax.tree.map(np.testing.assert_array_equal, first, second)


# The prior.


def test_a_prior_in_one_sample_data_is_that_of_the_population_too(data):
    numbers = class_prior.believed(data.info, 0.25)
    assert numbers.prior_unlabeled == 0.25
    assert numbers.prior == pytest.approx((40 + 0.25 * 152) / 192)
    cases = tiny.problem(setting="two_sample").info
    numbers = class_prior.believed(cases, 0.25)
    assert numbers.prior == numbers.prior_unlabeled == 0.25


def test_the_prior_is_found_once_on_the_features_that_are_not_held_out(data, monkeypatch):
    _, method, arrays, state = setup()
    stage, seen = method.stages[1], []

    def fake(positives, unlabeled):
        seen.append((positives, unlabeled))
        return priors.PriorEstimate(0.3)

    monkeypatch.setattr(priors, "km2", fake)
    state = stage.init(jax.random.key(0), state, arrays)
    state = stage.refresh(state, arrays, jax.random.key(1))
    assert state.prior == np.float32(0.3) and len(seen) == 1
    assert [stage.is_refreshed(epoch) for epoch in range(3)] == [True, False, False]
    features, held = np.asarray(method.embed(state, arrays.inputs)), np.asarray(state.held)
    np.testing.assert_allclose(seen[0][0], features[data.labeled & ~held], atol=1e-6)
    np.testing.assert_allclose(seen[0][1], features[~data.labeled & ~held], atol=1e-6)
    found = {name: float(value) for name, value in method.estimates(state).items()}
    smi = -0.3 / 0.7 * (found["validation_objective"] + 0.5)
    assert found["smi"] == pytest.approx(smi, rel=1e-5)
    assert method.diagnose(found) == mutual_info.diagnose(found["smi"], found["mean_ratio"])


def prior_points(monkeypatch, estimator="km2", **changes):
    """What the estimator gets, state before and after, method and inputs as rows."""
    _, method, arrays, state = setup(**changes)
    seen = []

    def fake(positives, unlabeled, **options):
        seen.append((positives, unlabeled, options))
        return priors.PriorEstimate(0.3)

    monkeypatch.setattr(priors, estimator, fake)
    stage = method.stages[-1]
    if len(method.stages) > 1:
        state = stage.init(jax.random.key(0), state, arrays)
    new = stage.refresh(state, arrays, jax.random.key(1))
    (got,) = seen
    assert new.prior == np.float32(0.3)
    info = tiny.problem().info
    rows = (np.asarray(arrays.inputs).reshape(info.n, -1) / 255 - info.mean[0]) / info.std[0]
    return got, new, method, arrays, rows


def test_the_prior_can_be_found_on_fresh_points(data, monkeypatch):
    (p, u, _), state, method, arrays, _ = prior_points(monkeypatch, prior_points="fresh")
    features, held = np.asarray(method.embed(state, arrays.inputs)), np.asarray(state.held)
    assert (len(p), len(u)) == (8, 30)
    np.testing.assert_allclose(p, features[data.labeled & held], atol=1e-6)
    np.testing.assert_allclose(u, features[~data.labeled & held], atol=1e-6)


@pytest.mark.parametrize(
    ("representation", "estimator"),
    [("purl", "best_bin"), pytest.param("none", "km2", marks=pytest.mark.thorough)],
)
def test_the_prior_can_be_found_by_networks_that_did_not_see_an_example(
    data, monkeypatch, representation, estimator
):
    changes = {"prior_points": "out_of_bag", "prior_method": estimator}
    (p, u, options), state, _, _, rows = prior_points(
        monkeypatch, "out_of_bag", representation=representation, **changes
    )
    held = np.asarray(state.held)
    np.testing.assert_allclose(p, rows[data.labeled & ~held], atol=1e-5)
    np.testing.assert_allclose(u, rows[~data.labeled & ~held], atol=1e-5)
    options.pop("key")
    assert options == {"estimator": estimator, "loss": "squared", "num_resamples": 0}


@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("pca", "training"),
        pytest.param("none", "training", marks=pytest.mark.thorough),
        pytest.param("none", "fresh", marks=pytest.mark.thorough),
    ],
)
def test_rows_are_standardised_before_the_prior_is_found(data, monkeypatch, name, points):
    (p, u, _), state, method, arrays, rows = prior_points(
        monkeypatch, representation=name, prior_points=points
    )
    held = np.asarray(state.held)
    wanted = (rows - rows[~held].mean(0)) / rows[~held].std(0)
    distances = np.linalg.norm(wanted[:, None] - wanted, axis=-1)
    if name == "pca":
        like = linear_maps.blank(name, 64, pca_share=0.5)
        of_rows = linear_maps.fit(like, name, wanted[~held], data.labeled[~held], ridge=0.1)
        distances = np.linalg.norm(of_rows(wanted)[:, None] - of_rows(wanted), axis=-1)
    used = held if points == "fresh" else ~held
    order = np.flatnonzero(data.labeled & used), np.flatnonzero(~data.labeled & used)
    got = np.concatenate([p, u])
    got = np.linalg.norm(got[:, None] - got, axis=-1)
    joined = np.concatenate(order)
    np.testing.assert_allclose(got, distances[np.ix_(joined, joined)], atol=1e-3)
    # The classifier's features stay as they were.
    plain = setup(representation=name, standardize_rows=False)
    _, other, arrays, start = plain
    kept = other.stages[0].refresh(start, arrays, jax.random.key(1))
    np.testing.assert_array_equal(
        method.embed(state, arrays.inputs), other.embed(kept, arrays.inputs)
    )


def test_rows_as_they_are_on_request(data, monkeypatch):
    changes = {"representation": "none", "standardize_rows": False}
    (p, _, _), state, _, _, rows = prior_points(monkeypatch, **changes)
    np.testing.assert_allclose(p, rows[data.labeled & ~np.asarray(state.held)], atol=1e-5)


def test_rows_are_standardised_by_those_that_count():
    rows = np.array([[1.0, 5, 2], [3, 5, 2], [7, 9, 2]], np.float32)
    got = linear_maps.standardized(rows, np.array([True, True, False]))
    np.testing.assert_allclose(got, [[-1, 0, 0], [1, 0, 0], [5, 0, 0]])


def estimate(data, monkeypatch, value, **changes):
    config = tiny.config("purl", **changes).method
    sizes = []

    def fake(positives, unlabeled):
        sizes.append((len(positives), len(unlabeled)))
        return priors.PriorEstimate(value)

    monkeypatch.setattr(priors, "km1", fake)
    monkeypatch.setattr(priors, "km2", fake)
    p, u = points()[LABELED], points()[~LABELED]
    key = jax.random.key(0)
    return class_prior.estimate(p, u, config=config, info=data.info, key=key), sizes


def test_at_most_so_many_points_are_looked_at(data, monkeypatch):
    assert estimate(data, monkeypatch, 0.4, prior_max_points=12) == (0.4, [(10, 12)])


def test_the_classifier_may_have_batches_of_its_own():
    config, data = tiny.config("purl", classifier_batch_size=100, **OPTIONS), tiny.problem()
    ratio, classify = method_setup.build(config, data, tiny.mesh()).method.stages
    assert ratio.batching.batch_size == config.method.batch_size != 100
    # P has its share in the data, 40 of 192, however many the features are learned on.
    assert (classify.batching.batch_size, classify.batching.num_positives) == (100, 21)


def test_a_given_prior_is_not_estimated(data, monkeypatch):
    got = estimate(data, monkeypatch, 0.4, prior_method="given")
    assert got == (data.info.prior_unlabeled, [])


@pytest.mark.parametrize("value", [0.0, 1.0, np.nan])
def test_an_estimate_that_cannot_be_trained_with_is_named(data, monkeypatch, value):
    with pytest.raises(ValueError, match="method.prior_method is 'km1', which estimates"):
        estimate(data, monkeypatch, value, prior_method="km1")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("representation", "autoencoder"),
        ("representation_epochs", 4),
        ("inner", "tail"),
        ("inner_steps", 0),
        ("head", "newton"),
        ("output", "tanh"),
        ("pca_share", 1.5),
        ("validation_positives", 0),
        ("prior_method", "oracle"),
        ("prior_points", "test"),
        ("prior_points", "held_out"),
        ("representation", "purl_held_out"),
        ("classifier_batch_size", 1),
        ("prior_max_points", 1),
        ("classifier_hidden", (0,)),
    ],
)
def test_a_wrong_setting_is_named(data, field, value):
    with pytest.raises(ValueError, match=f"method.{field} is .*accepted"):
        method_setup.build(tiny.config("purl", **OPTIONS, **{field: value}), data, tiny.mesh())


def test_settings_that_exclude_each_other_are_named(data):
    both = tiny.config("purl", head="closed_form", output="softplus", **OPTIONS)
    with pytest.raises(ValueError, match="method.output is 'softplus'; accepted: 'linear'"):
        method_setup.build(both, data, tiny.mesh())
    both = tiny.config("purl", prior_points="out_of_bag", prior_method="km1", **OPTIONS)
    with pytest.raises(ValueError, match="prior_method is 'km1'; accepted: 'km2', 'best_bin', "):
        method_setup.build(both, data, tiny.mesh())
    both = tiny.config("purl", prior_points="out_of_bag", prior_max_points=3, **OPTIONS)
    with pytest.raises(ValueError, match="prior_max_points is 3; accepted: at least 4 while"):
        method_setup.build(both, data, tiny.mesh())
    with pytest.raises(ValueError, match="model.name is 'small_cnn'; accepted: 'mlp'"):
        method_setup.build(tiny.config("purl", pre_activation=True), data, tiny.mesh())


def test_what_is_gone_is_named_with_what_took_its_place(data):
    for field, value in (("prior_points", "held_out"), ("representation", "purl_held_out")):
        config = tiny.config("purl", **OPTIONS, **{field: value})
        with pytest.raises(ValueError, match=f"{field} is '{value}'; accepted: .*'fresh'"):
            method_setup.build(config, data, tiny.mesh())


@pytest.mark.parametrize(
    ("points", "num_labeled", "text"),
    [("fresh", 9, "at least 2 of P held out, not 1"), ("out_of_bag", 4, "at least 4 of P, not 3")],
)
def test_points_that_are_too_few_for_an_estimate_are_named(points, num_labeled, text):
    few = tiny.problem(num_labeled=num_labeled, num_support=0)
    config = tiny.config("purl", prior_points=points, **OPTIONS)
    with pytest.raises(ValueError, match=f"prior_points is '{points}'; accepted: .*{text}"):
        method_setup.build(config, few, tiny.mesh())


# What a run reports.


@pytest.mark.thorough
@pytest.mark.parametrize("points", ["training", "fresh", "out_of_bag"])
def test_rows_hold_what_was_found_and_how_far_off_it_is(data, tmp_path, points):
    _, rows = tiny.train_in(tmp_path, tiny.config("purl", prior_points=points, **OPTIONS), data)
    truth = data.truth[~data.labeled].mean()
    for row in rows:
        assert np.isfinite(row["validation_objective"]) and np.isfinite(row["mean_ratio"])
        assert ("estimated_prior" in row) == (row["stage"] == "classify")
    last = rows[-1]
    assert last["prior_error"] == pytest.approx(abs(last["estimated_prior"] - truth))
    assert last["prior_error"] < 0.2  # the clouds do not overlap


def test_an_error_is_reported_where_the_truth_of_all_of_u_is_known(data):
    found = {"estimated_prior": 0.4, "smi": 0.1}
    truth = data.truth.copy()
    truth[~data.labeled] = np.arange(152) % 4 == 0
    got = binary.with_prior_error(found, data._replace(truth=truth))
    assert got == found | {"prior_error": pytest.approx(0.15)}
    truth[-1] = -1
    assert binary.with_prior_error(found, data._replace(truth=truth)) == found
    assert binary.with_prior_error({"smi": 0.1}, data) == {"smi": 0.1}
