"""The numbers of a model, put back into the state that they were taken from."""

import jax
import numpy as np
import pytest

from pujax import methods
from pujax.training import model_numbers, sharding, train_step
from tests import tiny

SMALL = {"model": "mlp", "options": {"hidden": (4,)}, "augment": False}


@pytest.fixture(scope="module")
def trained():
    """A method, a state of it, what is saved of that, and what it was built for."""
    info = tiny.problem().info
    method = methods.build(tiny.config("nnpu", **SMALL), info)
    arrays = sharding.replicate(tiny.problem().training_data(), tiny.mesh())
    key = jax.random.key(0)
    state = train_step.init_state(method.stages[0], key, None, arrays, tiny.mesh())
    saved = model_numbers.numbers_of(method, jax.device_get(state), info)
    return method, info, saved, np.asarray(method.predict(state, arrays.inputs[:8])), arrays


def test_numbers_of_a_process_with_64_bits_are_read_with_32(trained):
    method, info, saved, scores, arrays = trained
    wide = {name: x.astype(np.float64) for name, x in saved.items()}
    state = model_numbers.restored(wide, method, info)
    types = {x.dtype for x in jax.tree.leaves(state.params)}
    assert types == {np.dtype("float32")}
    np.testing.assert_array_equal(method.predict(state, arrays.inputs[:8]), scores)


@pytest.mark.parametrize("dtype", [np.float16, np.int32])
def test_numbers_of_another_type_are_refused(trained, dtype):
    method, info, saved, _, _ = trained
    name = next(iter(saved))
    other = saved | {name: saved[name].astype(dtype)}
    with pytest.raises(ValueError, match=r"is (float16|int32)\[.*accepted: float32\["):
        model_numbers.restored(other, method, info)


def test_a_memory_of_many_rows_that_prediction_does_not_look_at_takes_no_memory():
    small = tiny.problem().info
    config = tiny.config("lagam", **SMALL)
    method = methods.build(config, small)
    arrays = sharding.replicate(tiny.problem().training_data(), tiny.mesh())
    state = train_step.init_state(method.stages[0], jax.random.key(0), None, arrays, tiny.mesh())
    saved = model_numbers.numbers_of(method, jax.device_get(state), small)
    size = sum(x.nbytes for x in saved.values())
    info = small._replace(n_u=10**10)
    large = methods.build(config, info)
    found = model_numbers.restored(saved, large, info, most_bytes=size)
    assert found.labels.shape == (info.n,)
    wanted = method.predict(state, arrays.inputs[:8])
    scores = jax.jit(large.predict)(found, arrays.inputs[:8])
    np.testing.assert_allclose(scores, wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=f"size of the state is {size}; accepted: at most"):
        model_numbers.restored(saved, large, info, most_bytes=size - 1)


def test_a_number_that_prediction_looks_at_is_not_left_out(trained):
    method, info, saved, _, _ = trained
    name = sorted(saved)[0]
    with pytest.raises(ValueError, match="is missing; accepted: all numbers that prediction looks"):
        model_numbers.restored({k: v for k, v in saved.items() if k != name}, method, info)
