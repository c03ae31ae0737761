"""Implicit differentiation: closed forms, unrolled derivatives at convergence, unsolved systems."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from pujax import meta
from tests import meta_problems as quadratic
from tests.x64 import x64

thorough = pytest.mark.thorough
TIGHT = {"tolerance": 1e-13}


@pytest.mark.parametrize("damping", [0.0, pytest.param(0.4, marks=thorough)])
def test_conjugate_gradients_give_the_closed_form_at_the_minimum(damping):
    with x64():
        found, info = quadratic.estimate(
            "implicit_cg", num_steps=300, rolled=True, damping=damping, return_info=True, **TIGHT
        )
        np.testing.assert_allclose(found, quadratic.at_minimum(damping), rtol=1e-11)
        assert info.residual < 1e-12
        np.testing.assert_allclose(info.params, quadratic.after(300), rtol=1e-12)


def test_a_minimum_found_elsewhere_needs_no_step_size():
    minimum = np.linalg.solve(quadratic.A, quadratic.B @ quadratic.META)
    given = quadratic.inner, quadratic.outer, minimum, quadratic.META
    with x64():
        at_minimum = functools.partial(meta.meta_gradient, *given, num_steps=0)
        found = at_minimum(estimator="implicit_cg", **TIGHT)
        np.testing.assert_allclose(found, quadratic.at_minimum(), rtol=1e-11)
        found = at_minimum(estimator="implicit_neumann", step_size=0.5, num_terms=300)
        np.testing.assert_allclose(found, quadratic.at_minimum(), rtol=1e-11)
        with pytest.raises(ValueError, match="step_size is None; accepted: a positive number wh"):
            at_minimum(estimator="implicit_neumann")
        with pytest.raises(ValueError, match="learning_rate is None; accepted: a step size with"):
            meta.meta_gradient(*given, num_steps=1, estimator="implicit_cg")


@pytest.mark.parametrize("num_terms", [1, pytest.param(6, marks=thorough)])
def test_a_series_of_j_terms_is_the_truncated_derivative_of_j_steps_at_the_minimum(num_terms):
    minimum = np.linalg.solve(quadratic.A, quadratic.B @ quadratic.META)
    with x64():
        found, info = jax.jit(
            lambda m: meta.meta_gradient(
                quadratic.inner,
                quadratic.outer,
                minimum,
                m,
                learning_rate=quadratic.RATE,
                estimator="implicit_neumann",
                num_steps=0,
                num_terms=num_terms,
                return_info=True,
            )
        )(quadratic.META)
        expected = quadratic.gradient(400, num_terms)
        np.testing.assert_allclose(found, expected, rtol=1e-10)
        step = np.eye(4) - quadratic.RATE * quadratic.A
        right = minimum - quadratic.TARGET
        left = np.linalg.matrix_power(step, num_terms) @ right
        wanted = np.linalg.norm(left) / np.linalg.norm(right)
        np.testing.assert_allclose(info.residual, wanted, rtol=1e-10)


@thorough
def test_a_long_series_with_damping_and_its_own_step_reaches_the_damped_closed_form():
    with x64():
        found = quadratic.estimate(
            "implicit_neumann",
            num_steps=300,
            rolled=True,
            learning_rate=None,
            optimizer=optax.sgd(0.3),
            num_terms=300,
            step_size=0.5,
            damping=0.4,
        )
    np.testing.assert_allclose(found, quadratic.at_minimum(0.4), rtol=1e-11)


@thorough
def test_unrolled_and_implicit_gradients_agree_at_convergence_of_a_network_head():
    """Logistic regression with a learned decay and learned weights; the encoder stays."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(20, 3)), rng.integers(0, 2, 20)
    x_clean, y_clean = rng.normal(size=(9, 3)), rng.integers(0, 2, 9)
    params = {"encoder": rng.normal(size=(3, 3)), "head": np.zeros(3)}
    options = {"decay": np.float64(-1.0), "weights": rng.random(20)}

    def risk(tree, x, y, weights):
        scores = jnp.tanh(x @ tree["encoder"]) @ tree["head"]
        return jnp.mean(weights * jax.nn.softplus(jnp.where(y > 0, -scores, scores)))

    def inner(tree, options):
        decay = jnp.exp(options["decay"]) * jnp.sum(tree["head"] ** 2)
        return risk(tree, x, y, options["weights"]) + decay

    def found(estimator, **more):
        return jax.jit(
            lambda options: meta.meta_gradient(
                inner,
                lambda tree: risk(tree, x_clean, y_clean, 1.0),
                params,
                options,
                learning_rate=0.8,
                trainable=lambda path: path[-1].key == "head",
                estimator=estimator,
                num_steps=200,
                rolled=True,
                **more,
            )
        )(options)

    with x64():
        unrolled = found("reverse", segment=14)
        for other in (found("implicit_cg", **TIGHT), found("implicit_neumann", num_terms=200)):
            for name in options:
                np.testing.assert_allclose(other[name], unrolled[name], rtol=1e-9, atol=1e-14)
        assert abs(float(unrolled["decay"])) > 1e-4


@thorough
def test_a_line_search_leads_to_the_minimum():
    with x64():
        found = quadratic.estimate(
            "implicit_cg",
            learning_rate=None,
            optimizer=optax.lbfgs(),
            num_steps=15,
            rolled=True,
            **TIGHT,
        )
    np.testing.assert_allclose(found, quadratic.at_minimum(), rtol=1e-9)


def singular(estimator, *, jit=False, **options):
    """A loss that is flat in the second parameter, which the outer loss looks at."""

    def of_meta(m):
        return meta.meta_gradient(
            lambda w, m: w[0] ** 2 / 2 - m * w[0],
            lambda w: jnp.sum(w),
            np.zeros(2, np.float32),
            m,
            learning_rate=0.5,
            estimator=estimator,
            return_info=True,
            **options,
        )

    return (jax.jit(of_meta) if jit else of_meta)(np.float32(1))


def test_a_singular_system_is_refused_with_its_residual_and_is_nan_inside_jit():
    with pytest.raises(
        ValueError,
        match=r"not solved.* singular.* residual is (nan|0\.\d+|1).* max_residual = 0.01",
    ):
        singular("implicit_cg")
    gradient, info = singular("implicit_cg", jit=True)
    assert np.isnan(gradient) and not info.residual <= 0.01


@thorough
def test_what_makes_a_system_solvable():
    # With damping d the solution is (1 / (1 + d), 1 / d), and the second has no influence.
    gradient, info = singular("implicit_cg", damping=0.25)
    np.testing.assert_allclose(gradient, 1 / 1.25, rtol=1e-5)
    assert float(info.residual) < 1e-5
    # The part that the flat direction cannot have stays: 1 / sqrt(2) of the right side.
    gradient, info = singular("implicit_neumann", num_terms=60)
    np.testing.assert_allclose(gradient, 1, rtol=1e-5)
    np.testing.assert_allclose(info.residual, 0.5**0.5, rtol=1e-5)


@thorough
def test_a_series_that_grows_is_refused():
    with pytest.raises(ValueError, match=r"residual is \d.*max_residual = 1.0.* smaller step_size"):
        singular("implicit_neumann", step_size=2.5)
    for step_size in (-0.1, 0.0, np.nan):
        with pytest.raises(ValueError, match=f"step_size is {step_size}, .*a positive number"):
            singular("implicit_neumann", step_size=step_size, max_residual=float("inf"))
    unmoved = meta.meta_gradient(
        *(lambda w, m: (w - m) ** 2, lambda w: w**2, jnp.float32(1), jnp.float32(2)),
        **{"learning_rate": 0.0, "estimator": "implicit_neumann", "num_terms": 3},
    )
    assert float(unmoved) == 0  # a rate that may be 0, and no step size was given
    gradient, info = singular("implicit_neumann", step_size=2.5, max_residual=float("inf"))
    assert np.isfinite(gradient) and info.residual > 1


@thorough
def test_stopping_early_on_purpose_is_possible_and_says_how_far_it_came():
    with x64(), pytest.raises(ValueError, match="residual"):
        quadratic.estimate("implicit_cg", jit=False, max_iterations=1)
    with x64():
        _, info = quadratic.estimate(
            "implicit_cg", max_iterations=1, max_residual=np.inf, return_info=True
        )
        assert 0.01 < info.residual < 1


@thorough
def test_statistics_and_the_batch_of_the_system_are_those_of_the_last_step():
    """Loss `s b w^2 / 2 - m w`: the curvature is the last statistic times the last batch."""

    def found(update, batches, steps):
        return meta.meta_gradient(
            lambda w, m, *, batch, batch_stats: (
                batch_stats * batch * w**2 / 2 - m * w,
                2 * batch_stats,
            ),
            lambda w, *, batch_stats: w,
            np.float64(0.5),
            np.float64(1),
            learning_rate=0.1,
            estimator="implicit_cg",
            num_steps=steps,
            batches=np.array(batches),
            batch_stats=np.float64(1),
            stats_update=update,
        )

    with x64():
        np.testing.assert_allclose(found("frozen", [3.0, 5.0], 2), 1 / 5, rtol=1e-12)
        np.testing.assert_allclose(found("stopped", [3.0, 5.0], 2), 1 / 20, rtol=1e-12)
        np.testing.assert_allclose(found("stopped", [3.0], 0), 1 / 3, rtol=1e-12)


@pytest.mark.parametrize(
    "options",
    [
        {"estimator": "implicit_neumann", "learning_rate": np.float64(0.1)},
        {"estimator": "implicit_neumann", "learning_rate": 0.1, "step_size": np.float64(0.1)},
        {"estimator": "implicit_neumann", "learning_rate": 0.1, "damping": np.float64(0.1)},
        {"estimator": "implicit_cg", "learning_rate": 0.1, "damping": np.float64(0.1)},
    ],
    ids=str,
)
def test_numbers_of_a_wider_type_than_the_parameters_change_nothing(options):
    with x64():
        params, given = {"w": jnp.ones(3, jnp.float32)}, jnp.full(3, 0.5, jnp.float32)

        def inner(params, given):
            return jnp.sum((params["w"] - given) ** 2)

        def outer(params):
            return jnp.sum(params["w"] ** 3)

        call = [inner, outer, params, given]
        limits = {"max_residual": float("inf")}
        wide = meta.meta_gradient(*call, **options, **limits)
        narrow = {k: v if k == "estimator" else float(v) for k, v in options.items()}
        expected = meta.meta_gradient(*call, **narrow, **limits)
        np.testing.assert_allclose(wide, expected, rtol=1e-6)
        assert wide.dtype == jnp.float32
