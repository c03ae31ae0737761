"""LBE: the E-step and its edges, what EM's steps are, the split it cannot know, and its stages."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pujax import risks
from pujax.methods import lbe
from pujax.training import method_setup, sharding, train_step
from tests import tiny
from tests.pu_batches import sigmoid
from tests.x64 import x64

OPTIONS = {"model": "mlp", "options": {"hidden": (8,), "batch_norm": True}, "batch_size": 4096}
posterior_of = jax.jit(risks.lbe_posterior)


def random_scores(n=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n), rng.normal(size=n), np.arange(n) % 3 == 0


def test_posterior_has_its_closed_form_and_edges():
    a, b, s = random_scores()
    h, eta = sigmoid(a), sigmoid(b)
    with x64():
        wanted = np.where(s, 1, h * (1 - eta) / (h * (1 - eta) + 1 - h))
        np.testing.assert_allclose(posterior_of(a, b, s), wanted, rtol=1e-13)
        infinite = np.array([np.inf, np.inf, -np.inf, 2.0, 2.0, -np.inf])
        propensity = np.array([np.inf, 0.0, np.inf, np.inf, -np.inf, np.inf])
        edges = posterior_of(infinite, propensity, np.array([0, 0, 0, 0, 0, 1]))
        # h = eta = 1 has no denominator; h = 1; h = 0; eta = 1; eta = 0; labelled.
        np.testing.assert_allclose(edges, [0, 1, 0, 0, sigmoid(2), 1], rtol=1e-13)
    gradient = jax.grad(lambda a: jnp.sum(risks.lbe_posterior(a, jnp.float32(b), s)))(
        jnp.array([*a[:-1], np.inf], jnp.float32)
    )
    assert np.isfinite(gradient).all()


def test_losses_of_the_m_step_match_hand_values():
    scores, q = np.array([np.log(3), 0.0, -np.log(3), 0.0]), np.array([1.0, 0.5, 0.25, 0.0])
    labeled = np.array([1, 0, 0, 0])
    with x64():
        # Cross-entropies: log(4/3); log 2; (log 4)/4 + 3/4 log(4/3); log 2. The first of two equal
        # ones stays.
        loss, kept = jax.jit(functools.partial(risks.lbe_classifier, keep=0.75, epsilon=0))(
            scores, q
        )
        np.testing.assert_array_equal(kept, [True, True, True, False])
        wanted = np.log(4 / 3) + np.log(2) + np.log(4) / 4 + 0.75 * np.log(4 / 3)
        assert float(loss) == pytest.approx(wanted / 3, abs=1e-14)
        all_of_it, kept = risks.lbe_classifier(scores, q, keep=1.0, epsilon=1e-5)
        h = sigmoid(scores)
        losses = -q * np.log(h + 1e-5) - (1 - q) * np.log(1 - h + 1e-5)
        assert float(all_of_it) == pytest.approx(losses.mean(), abs=1e-14) and kept.all()
        propensity = jax.jit(functools.partial(risks.lbe_propensity, epsilon=0))
        # q of an unlabeled example is its weight, and the mean runs over all four.
        wanted = np.log(4 / 3) + 0.5 * np.log(2) + 0.25 * np.log(4 / 3)
        assert float(propensity(scores, q, labeled)) == pytest.approx(wanted / 4, abs=1e-14)


def test_shares_and_floors_may_be_traced():
    scores, propensities, labeled = random_scores()
    q = risks.lbe_posterior(scores, propensities, labeled)
    for known in (None, labeled):
        for keep in (0.29, 0.5, 1.0):
            expected = risks.lbe_classifier(scores, q, known, keep=keep, epsilon=1e-3)
            traced = jax.jit(
                lambda keep, epsilon, known=known: risks.lbe_classifier(
                    scores, q, known, keep=keep, epsilon=epsilon
                )
            )(keep, 1e-3)
            np.testing.assert_allclose(traced[0], expected[0], rtol=1e-6)
            np.testing.assert_array_equal(traced[1], expected[1])
    loss = functools.partial(risks.lbe_propensity, propensities, q, labeled)
    np.testing.assert_allclose(
        jax.jit(lambda epsilon: loss(epsilon=epsilon))(1e-3), loss(epsilon=1e-3), rtol=1e-6
    )


@pytest.mark.parametrize("loss", ["classifier", "propensity"])
def test_a_traced_floor_of_zero_is_a_known_one(loss):
    """At scores where a probability rounds to 0, too; the derivative by the floor is there."""
    q, labeled = np.array([1.0, 0.0, 0.5]), np.array([1, 0, 0])

    def value(scores, epsilon):
        if loss == "classifier":
            return risks.lbe_classifier(scores, q, keep=1.0, epsilon=epsilon)[0]
        return risks.lbe_propensity(scores, q, labeled, epsilon=epsilon)

    both = jax.value_and_grad(value, argnums=(0, 1))
    for scores in ([200.0, -200.0, 3.0], [1e4, -1e4, 0.0]):
        scores = jnp.array(scores)
        known = jax.value_and_grad(value)(scores, 0)
        traced, (slope, by_floor) = jax.jit(both)(scores, 0.0)
        np.testing.assert_allclose(traced, known[0], rtol=1e-6)
        np.testing.assert_allclose(slope, known[1], rtol=1e-6)
        assert np.isfinite(slope).all() and np.isfinite(by_floor)
        for floor in (1e-40, 1e-46):  # subnormal numbers, which devices round to 0
            of_known = jax.value_and_grad(value)(scores, floor)
            np.testing.assert_allclose(of_known[0], known[0], rtol=1e-6)
            np.testing.assert_allclose(of_known[1], known[1], rtol=1e-6)
            np.testing.assert_allclose(jax.jit(both)(scores, floor)[1][0], slope, rtol=1e-6)
    with x64():
        scores = jnp.array([2.0, -1.0, 3.0])
        _, (_, by_floor) = both(scores, 0.0)
        difference = (value(scores, 1e-7) - value(scores, 0)) / 1e-7
        assert float(by_floor) == pytest.approx(float(difference), rel=1e-5)


def test_a_term_without_weight_is_zero_at_infinite_scores():
    scores, labeled = jnp.array([jnp.inf, -jnp.inf, 0.0]), np.array([1, 0, 0])
    q = np.array([1.0, 0.0, 0.5])
    classifier = jax.value_and_grad(lambda s: risks.lbe_classifier(s, q, keep=1.0, epsilon=0)[0])
    value, slope = classifier(scores)
    assert float(value) == pytest.approx(np.log(2) / 3) and np.isfinite(slope).all()
    value, slope = jax.value_and_grad(lambda s: risks.lbe_propensity(s, q, labeled, epsilon=0))(
        scores
    )
    assert float(value) == pytest.approx(np.log(2) / 6) and np.isfinite(slope).all()


def test_the_slope_of_the_posterior_is_exact_where_it_rounds_to_one():
    def posterior(score):
        return risks.lbe_posterior(score[None], jnp.zeros(1), np.array([0]))[0]

    slope = float(jax.grad(posterior)(jnp.float32(30.0)))
    assert slope == pytest.approx(2 * np.exp(-30.0), rel=1e-5, abs=0)  # of sigmoid(30 - log(2))


def kept_naively(losses, labeled, keep):
    """The labelled positives, and of the others the share `keep` with the smallest losses."""
    others = sorted(np.flatnonzero(labeled == 0), key=lambda i: losses[i])
    kept = labeled > 0
    kept[others[: int(keep * len(others))]] = True
    return kept


def test_labelled_positives_are_kept_and_weigh_as_much_as_the_kept_others():
    rng = np.random.default_rng(3)
    scores, q = 2 * rng.normal(size=23), rng.random(23)
    labeled = (rng.random(23) < 0.3).astype(int)
    h = sigmoid(scores)
    losses = -q * np.log(h) - (1 - q) * np.log(1 - h)
    loss_of = jax.jit(functools.partial(risks.lbe_classifier, epsilon=0, keep=0.7))
    with x64():
        loss, kept = loss_of(scores, q, labeled)
        wanted = kept_naively(losses, labeled, 0.7)
        np.testing.assert_array_equal(kept, wanted)
        assert not np.array_equal(kept, loss_of(scores, q)[1])
        means = losses[labeled > 0].mean(), losses[wanted & (labeled == 0)].mean()
        assert float(loss) == pytest.approx(np.mean(means), abs=1e-14)
        slope = jax.grad(lambda z: loss_of(z, q, labeled)[0])(scores)
        counts = np.where(labeled > 0, (labeled > 0).sum(), (wanted & (labeled == 0)).sum())
        np.testing.assert_allclose(slope, np.where(wanted, h - q, 0) / counts / 2, atol=1e-15)
        # One group alone is not halved.
        all_p, kept = loss_of(scores, q, np.ones(23))
        assert float(all_p) == pytest.approx(losses.mean(), abs=1e-14) and kept.all()
        all_u, kept = loss_of(scores, q, np.zeros(23))
        assert float(all_u) == pytest.approx(float(loss_of(scores, q)[0]), abs=1e-14)
        assert kept.sum() == 16


@pytest.mark.thorough
def test_steps_of_em_are_steps_on_the_observed_likelihood():
    """With q of the parameters themselves: d/da is h - q and d/db is q eta on U."""
    a, b, s = random_scores(seed=1)
    n = len(a)

    def observed(a, b):
        log_h, log_eta = jax.nn.log_sigmoid(a), jax.nn.log_sigmoid(b)
        both = log_h + log_eta
        return -jnp.mean(jnp.where(s, both, jnp.log1p(-jnp.exp(both))))

    with x64():
        q = posterior_of(a, b, s)
        wanted = jax.jit(jax.grad(observed, argnums=(0, 1)))(a, b)
        of_h = jax.grad(lambda a: risks.lbe_classifier(a, q, keep=1.0, epsilon=0)[0])(a)
        of_eta = jax.grad(lambda b: risks.lbe_propensity(b, q, s, epsilon=0))(b)
        np.testing.assert_allclose(of_h, wanted[0], rtol=1e-11)
        np.testing.assert_allclose(of_eta, wanted[1], rtol=1e-11)
        np.testing.assert_allclose(of_h[~s], (sigmoid(a) - q)[~s] / n, rtol=1e-12)
        np.testing.assert_allclose(of_eta[~s], (q * sigmoid(b))[~s] / n, rtol=1e-12)
        # The posterior is a constant of the M-step.
        through = jax.grad(
            lambda a: risks.lbe_classifier(a, risks.lbe_posterior(a, b, s), keep=1.0, epsilon=0)[0]
        )(a)
        np.testing.assert_array_equal(through, of_h)


def featureless(weight_of, *, rounds, h=0.6, eta=0.3, share=0.1):
    """EM of constant h and eta with exact M-steps; `weight_of(q)` is U's weight for eta."""
    for _ in range(rounds):
        q = h * (1 - eta) / (1 - h * eta)
        h = share + (1 - share) * q
        eta = share / (share + (1 - share) * weight_of(q))
    return h, eta


def exact_m_step(q, share, n=10):
    """The M-step's minimum over constant scores, by the risks themselves."""
    s = np.arange(n) < share * n
    posterior = np.where(s, 1.0, q)

    def minimum(risk):
        score = 0.0
        slope = jax.jit(jax.grad(lambda z: risk(jnp.full([n], z))))
        for _ in range(200):
            score -= 4.0 * float(slope(score))
        return sigmoid(score)

    of_h = lambda z: risks.lbe_classifier(z, posterior, keep=1.0, epsilon=0)[0]  # noqa: E731
    of_eta = lambda z: risks.lbe_propensity(z, posterior, s, epsilon=0)  # noqa: E731
    return minimum(of_h), minimum(of_eta)


def test_without_features_every_posterior_stays_and_eta_is_the_propensity_of_a_positive():
    """Two public implementations weigh U by 1: eta becomes the share of labels, and h goes to 1."""
    share = 0.1
    with x64():
        for q in (0.2, 0.6):
            h, eta = exact_m_step(q, share)
            np.testing.assert_allclose(h, share + (1 - share) * q, rtol=1e-6)
            np.testing.assert_allclose(eta, share / (share + (1 - share) * q), rtol=1e-6)
            np.testing.assert_allclose(h * eta, share, rtol=1e-6)
            a, b = (np.log(x / (1 - x)) for x in (h, eta))
            again = posterior_of(np.full(1, a), np.full(1, b), np.zeros(1))
            np.testing.assert_allclose(again, q, rtol=1e-6)  # a fixed point
    h, eta = featureless(lambda q: q, rounds=200)
    q = 0.6 * 0.7 / (1 - 0.18)
    np.testing.assert_allclose((h, eta), (0.1 + 0.9 * q, 0.1 / (0.1 + 0.9 * q)), rtol=1e-12)
    wrong_h, wrong_eta = featureless(lambda q: 1.0, rounds=200)
    assert wrong_eta == pytest.approx(0.1) and wrong_h > 0.9


@pytest.mark.thorough
def test_exact_em_never_lowers_the_observed_likelihood():
    """All examples, keep = 1, epsilon = 0, logistic models trained to convergence in a round."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 2))
    y = rng.random(200) < sigmoid(2 * x[:, 0])
    s = y & (rng.random(200) < sigmoid(x[:, 1] - 0.5))
    design = np.concatenate([x, np.ones((200, 1))], axis=1)

    with x64():

        @jax.jit
        def fitted(w, q):
            def step(_, w):
                of_h, of_eta = jax.grad(
                    lambda w: (
                        risks.lbe_classifier(design @ w[0], q, keep=1.0, epsilon=0)[0]
                        + risks.lbe_propensity(design @ w[1], q, s, epsilon=0)
                    )
                )(w)
                return w - 1.0 * jnp.stack([of_h, of_eta])

            return jax.lax.fori_loop(0, 500, step, w)

        w, last = np.zeros((2, 3)), -np.inf
        for _ in range(20):
            a, b = design @ w[0], design @ w[1]
            both = sigmoid(a) * sigmoid(b)
            likelihood = np.sum(np.log(np.where(s, both, 1 - both)))
            assert likelihood >= last - 1e-9
            last = likelihood
            w = np.asarray(fitted(w, posterior_of(a, b, s)))


def linear_em(x, s, *, rounds=40):
    """EM of two logistic models, the classifier first fitted to P against U, as in `lbe`."""
    design, share = np.concatenate([x, np.ones((len(x), 1))], axis=1), s.mean()

    def descend(loss, w):
        return jax.lax.fori_loop(0, 100, lambda _, w: w - jax.grad(loss)(w), w)

    @jax.jit
    def pretrained(w):
        weight = (1 - share) / share
        return descend(
            lambda w: share * risks.weighted_bce(design @ w, s, positive_weight=weight), w
        )

    @jax.jit
    def round_of(w):
        q = risks.lbe_posterior(design @ w[0], design @ w[1], s)
        return descend(
            lambda w: (
                risks.lbe_classifier(design @ w[0], q, keep=1.0)[0]
                + risks.lbe_propensity(design @ w[1], q, s)
            ),
            w,
        )

    start = pretrained(jnp.zeros(3))
    w = jnp.stack([start, start])
    for _ in range(rounds):
        w = round_of(w)
    return design @ np.asarray(start), *(design @ np.asarray(w).T).T


@pytest.mark.thorough
def test_labels_that_depend_on_an_example_are_taken_apart_from_its_class():
    """Class along one feature, labelling along the other."""
    rng, n = np.random.default_rng(0), 2000
    y = np.arange(n) < n // 2
    x = rng.normal(size=(n, 2))
    x[:, 0] += np.where(y, 2, -2)
    true = sigmoid(1.5 * x[:, 1] - 0.5)
    before, a, b = linear_em(x, y & (rng.random(n) < true))
    ranks = [np.argsort(np.argsort(values[y])) for values in (b, true)]
    assert np.corrcoef(ranks)[0, 1] > 0.9
    assert np.mean((a > 0) == y) > 0.93 > 0.85 > np.mean((before > 0) == y)
    # Labels at random: the propensity is about the same for all positives.
    _, a, b = linear_em(x, y & (rng.random(n) < 0.4))
    assert sigmoid(b[y]).std() < 0.1 and sigmoid(b[y]).mean() == pytest.approx(0.4, abs=0.1)


@pytest.mark.thorough
def test_of_linear_models_it_is_ahead_of_nnpu_where_labels_depend_on_the_example():
    """nnPU has the true prior, and by its assumption P for a sample of all positives."""
    n = 2000
    y = np.arange(n) < n // 2
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(n, 2))
        x[:, 0] += np.where(y, 1.5, -1.5)
        true = sigmoid(3 * x[:, 1] - 1)
        s = y & (rng.random(n) < true)
        _, a, b = linear_em(x, s)
        ranks = [np.argsort(np.argsort(values[y])) for values in (b, true)]
        assert np.corrcoef(ranks)[0, 1] > 0.95
        by_lbe, by_nnpu = (np.mean((z > 0) == y) for z in (a, linear_nnpu(x, s, prior=0.5)))
        assert by_lbe > by_nnpu + 0.04


def linear_nnpu(x, s, *, prior):
    """Scores of a linear model by nnPU on one sample, of which `s` are labelled."""
    design, n, n_p = np.concatenate([x, np.ones((len(x), 1))], axis=1), len(s), s.sum()
    known = {"unlabeled_prior": (prior * n - n_p) / (n - n_p), "unlabeled_weight": 1 - n_p / n}
    slope = jax.grad(
        lambda w: risks.nnpu(design @ w, s, prior=prior, loss=risks.sigmoid_loss, **known)
    )
    w = jax.jit(lambda w: jax.lax.fori_loop(0, 2000, lambda _, w: w - slope(w), w))(jnp.zeros(3))
    return design @ np.asarray(w)


@functools.cache
def setup(**changes):
    return tiny.initialised("lbe", **(OPTIONS | changes))


def batch_of(stage, arrays):
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    return tiny.gather(arrays, plan, 0, epoch=1, step=0)


@pytest.mark.thorough
def test_pretraining_sees_all_examples_at_once_and_weighs_the_groups_alike():
    data, method, arrays, state = setup()
    stage, n, r = method.stages[0], data.info.n, data.info.n_p / data.info.n
    assert (stage.batching.batch_size, stage.batching.steps_per_epoch(n)) == (n, 1)
    batch = batch_of(stage, arrays)
    step = jax.jit(stage.step)
    silent = [p._replace(params=jax.tree.map(jnp.zeros_like, p.params)) for p in state[:2]]
    silent = state._replace(classifier=silent[0], propensity=silent[1])
    _, metrics = step(silent, batch, jax.random.key(0))
    # At scores 0 every example costs log 2, P and U each with r (1 - r).
    for name in ("loss", "loss_propensity"):
        np.testing.assert_allclose(metrics[name], 2 * r * (1 - r) * np.log(2), rtol=1e-5)
    after, _ = step(state, batch, jax.random.key(0))
    for before, moved in (
        (state.classifier, after.classifier),
        (state.propensity, after.propensity),
    ):
        moves = jax.tree.map(lambda x, y: np.any(x != y), before.params, moved.params)
        assert any(jax.tree.leaves(moves))


def test_the_rounds_begin_with_new_optimizers_and_the_pretrained_networks():
    _, method, arrays, state = setup()
    first, second = method.stages
    pretrained, _ = jax.jit(first.step)(state, batch_of(first, arrays), jax.random.key(0))
    begun = train_step.init_state(second, jax.random.key(1), pretrained, arrays, tiny.mesh())
    for before, after in zip(pretrained[:2], begun[:2], strict=True):
        jax.tree.map(np.testing.assert_array_equal, before.params, after.params)
        moments = [x for x in jax.tree.leaves(after.opt_state) if np.ndim(x)]
        assert moments and not any(np.any(x) for x in moments)


@pytest.mark.thorough
def test_a_round_scores_all_examples_and_takes_steps_on_tenths():
    data, method, arrays, state = setup()
    stage = method.stages[1]
    n = data.info.n
    assert stage.batching.batch_size == n // 10 and stage.batching.steps == 40
    assert stage.is_refreshed(0) and stage.is_refreshed(1)
    assert [part.selection for part in method.stages] == ["vpu_risk", "last"]
    assert setup(pretrain_selection="last")[1].stages[0].selection == "last"
    assert setup(batch_size=8)[1].stages[0].batching.batch_size == 8
    after = stage.refresh(state, arrays, jax.random.key(0), 0)
    a = np.asarray(method.predict(state, arrays.inputs), np.float64)
    swapped = state._replace(classifier=state.propensity)
    b = np.asarray(method.predict(swapped, arrays.inputs), np.float64)
    q = np.where(data.labeled, 1, sigmoid(a - np.log1p(np.exp(b))))
    np.testing.assert_allclose(after.posterior, q, rtol=1e-4)
    estimates = method.estimates(after)
    np.testing.assert_allclose(estimates["estimated_prior"], q[~data.labeled].mean(), rtol=1e-4)
    eta = sigmoid(b)[data.labeled].mean()
    np.testing.assert_allclose(estimates["label_frequency"], eta, rtol=1e-4)


@pytest.mark.thorough
def test_the_two_networks_of_a_round_follow_losses_of_their_own():
    data, method, arrays, state = setup()
    stage = method.stages[1]
    state = stage.refresh(state, arrays, jax.random.key(0), 0)
    batch = batch_of(stage, arrays)
    step = jax.jit(stage.step)
    after, metrics = step(state, batch, jax.random.key(0))
    # Other numbers in one network leave the other's step as it is.
    other = state._replace(
        propensity=state.propensity._replace(
            params=jax.tree.map(lambda x: 2 * x, state.propensity.params)
        )
    )
    again, _ = step(other, batch, jax.random.key(0))
    for x, y in zip(
        jax.tree.leaves(after.classifier), jax.tree.leaves(again.classifier), strict=True
    ):
        np.testing.assert_array_equal(x, y)
    assert 0 < metrics["kept_positives"] < 2


def test_the_two_networks_start_apart():
    *_, state = setup()
    kernels = [player.params["classifier"]["kernel"] for player in state[:2]]
    assert np.any(kernels[0] != kernels[1])


@pytest.mark.parametrize("keep_positives", [False, True])
def test_a_round_minimises_the_losses_of_its_settings(keep_positives):
    given = {"keep": 0.5, "epsilon": 0.05, "subset_share": 0.5, "keep_positives": keep_positives}
    plain = {"options": {"hidden": (8,), "batch_norm": False}, "augment": False}
    _, method, arrays, state = tiny.initialised("lbe", **(OPTIONS | plain | given))
    stage = method.stages[1]
    state = stage.refresh(state, arrays, jax.random.key(0), 0)
    batch = batch_of(stage, arrays)
    _, metrics = jax.jit(stage.step)(state, batch, jax.random.key(0))
    swapped = state._replace(classifier=state.propensity)
    a, b = (method.predict(x, batch.inputs) for x in (state, swapped))
    q, s = state.posterior[batch.ids], batch.labeled
    known = s if keep_positives else None
    loss, _ = risks.lbe_classifier(a, q, known, keep=0.5, epsilon=0.05)
    np.testing.assert_allclose(metrics["loss"], loss, rtol=1e-4)
    loss = risks.lbe_propensity(b, q, s, epsilon=0.05)
    np.testing.assert_allclose(metrics["loss_propensity"], loss, rtol=1e-4)


@pytest.mark.thorough
def test_the_kept_positives_of_a_round_average_to_their_share():
    """Most subsets hold none of six positives; with nothing dropped all of them stay."""
    data = tiny.problem(num_labeled=6)
    config = tiny.config("lbe", **(OPTIONS | {"keep": 1.0, "subset_share": 0.1}))
    method = method_setup.build(config, data, tiny.mesh()).method
    stage, arrays = method.stages[1], sharding.replicate(data.training_data(), tiny.mesh())
    state = train_step.init_state(method.stages[0], jax.random.key(0), None, arrays, tiny.mesh())
    size = int(0.1 * data.info.n)
    steps = data.info.n // size  # one shuffle, as good as whole
    plan = train_step.epoch_plan(stage, jax.random.key(1), 0, arrays)
    step = jax.jit(stage.step)
    batches = [tiny.gather(arrays, plan, i, epoch=0, step=i) for i in range(steps)]
    found = [float(step(state, batch, jax.random.key(0))[1]["kept_positives"]) for batch in batches]
    held = [float(batch.labeled.sum()) for batch in batches]
    assert min(held) == 0  # as a share of its own subset it would be 0 there
    expected = sum(held) / (steps * size * data.info.n_p / data.info.n)
    assert np.mean(found) == pytest.approx(expected) and expected > 0.8


@pytest.mark.thorough
def test_a_propensity_may_start_at_one_half_everywhere_without_pretraining():
    _, method, arrays, state = setup(propensity_start="half")
    swapped = state._replace(classifier=state.propensity)
    np.testing.assert_array_equal(method.predict(swapped, arrays.inputs), 0)
    after, _ = jax.jit(method.stages[0].step)(
        state, batch_of(method.stages[0], arrays), jax.random.key(0)
    )
    for x, y in zip(
        jax.tree.leaves(state.propensity), jax.tree.leaves(after.propensity), strict=True
    ):
        np.testing.assert_array_equal(x, y)
    # The first posterior then is h / (2 - h).
    filled = method.stages[1].refresh(state, arrays, jax.random.key(0), 0)
    h = sigmoid(method.predict(state, arrays.inputs))
    is_u = ~np.asarray(arrays.labeled)
    np.testing.assert_allclose(np.asarray(filled.posterior)[is_u], (h / (2 - h))[is_u], rtol=1e-5)


@pytest.mark.thorough
def test_an_unweighted_start_of_the_propensity_counts_every_example_alike():
    _, method, arrays, state = setup(propensity_start="unweighted")
    stage = method.stages[0]
    silent = jax.tree.map(jnp.zeros_like, state.propensity.params)
    state = state._replace(propensity=state.propensity._replace(params=silent))
    _, metrics = jax.jit(stage.step)(state, batch_of(stage, arrays), jax.random.key(0))
    np.testing.assert_allclose(metrics["loss_propensity"], np.log(2), rtol=1e-6)


@pytest.mark.thorough
def test_with_kept_positives_a_round_drops_unlabeled_examples_alone():
    _, method, arrays, state = setup(keep_positives=True, keep=0.3, subset_share=0.5)
    stage = method.stages[1]
    batch = batch_of(stage, arrays)
    state = stage.refresh(state, arrays, jax.random.key(0), 0)
    _, metrics = jax.jit(stage.step)(state, batch, jax.random.key(0))
    of_a_subset = len(batch.labeled) * float(jnp.mean(arrays.labeled))
    assert metrics["kept_positives"] == pytest.approx(float(batch.labeled.sum()) / of_a_subset)
    assert float(batch.labeled.sum()) > 0
    other = setup(keep=0.3, subset_share=0.5)[1].stages[1]
    _, plain = jax.jit(other.step)(state, batch, jax.random.key(0))
    assert plain["kept_positives"] < metrics["kept_positives"]
    assert not np.isclose(plain["loss"], metrics["loss"])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("pretrain_epochs", 9),
        ("keep", 0.0),
        ("subset_share", 0.001),
        ("epsilon", -1.0),
        ("propensity_start", "prior"),
        ("pretrain_selection", "oracle"),
        ("batching", "separate"),
        ("round_steps", 0),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(field, value):
    with pytest.raises(ValueError, match=f"method.{field} is {value!r}; accepted"):
        lbe.build(tiny.config("lbe", **(OPTIONS | {field: value})), tiny.problem().info)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: risks.lbe_classifier(np.zeros(3), np.zeros(2)), r"posterior has shape \(2,\)"),
        (lambda: risks.lbe_classifier(np.zeros(3), np.zeros(3), keep=0.0), "keep is 0.0"),
        (lambda: risks.lbe_classifier(np.zeros(3), np.zeros(3), np.full(3, 2)), "labeled holds"),
        (lambda: risks.lbe_classifier(np.zeros(3), np.zeros(3), np.ones(2)), r"labeled has shape"),
        (
            lambda: risks.lbe_propensity(np.zeros(3), np.zeros(3), np.ones(3), epsilon=-1.0),
            "epsilon is -1.0",
        ),
        (
            lambda: risks.lbe_posterior(np.zeros(3), np.zeros(2), np.ones(3)),
            r"propensity_scores has shape \(2,\)",
        ),
    ],
)
def test_arguments_that_cannot_be_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_the_number_of_kept_examples_is_that_of_python_in_both_forms():
    """The authors' code has int(0.29 * 100), which is 28; no form may keep another number."""
    scores, q = jnp.linspace(-1, 1, 100), jnp.full(100, 0.5)
    of_all = functools.partial(risks.lbe_classifier, scores, q, keep=0.29)
    of_u = functools.partial(risks.lbe_classifier, scores, q, np.zeros(100), keep=0.29)
    for call in (of_all, of_u, jax.jit(of_all), jax.jit(of_u)):
        assert int(call()[1].sum()) == 28
