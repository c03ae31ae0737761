"""Counts of hand-written modules, and of a loop that was compiled here."""

import jax
import jax.numpy as jnp
import pytest

from pujax.aot import analysis, parts
from tests.aot import hlo_texts


def test_kernels_of_a_step_and_of_a_call():
    found = analysis.analyse(hlo_texts.STEPS, num_steps=32)
    step, call = found.per_step, found.per_call
    # Six fusions, two convolutions, a product, a sum over devices, two numbers of the loop.
    assert step.by_kind == {
        **{"fusion": 6, "convolution": 2, "matmul": 1, "collective": 1, "scalar": 2}
    }
    assert step.kernels == step.launches == 12
    assert step.by_part == {
        parts.RANDOM: 2,
        parts.FORWARD: 1,
        parts.NORM: 1,
        parts.BACKWARD: 3,
        parts.LOSSES: 1,
        parts.OPTIMIZER: 1,
        parts.FINITE: 1,
        parts.OTHER: 2,
    }
    assert step.by_part_and_kind[parts.BACKWARD] == {
        **{"convolution": 1, "matmul": 1, "collective": 1}
    }
    assert call.by_kind == {"copy": 1, "while": 1} and call.num_bytes == 24000
    assert step.flops == {"bf16": 2 * (2 * 13 * 13 * 2 * 6 * 4), "f32": 2 * 8 * 3 * 4}
    assert step.collectives == {"all-reduce": {"launches": 1, "bytes": 96}}
    assert found.unknown_loops == 0


def test_a_body_of_two_steps_counts_half():
    text = hlo_texts.STEPS.replace("constant(32)", "constant(16)")
    whole = analysis.analyse(hlo_texts.STEPS, num_steps=32).per_step
    half = analysis.analyse(text, num_steps=32).per_step
    assert half.kernels == whole.kernels / 2 and half.num_bytes == whole.num_bytes / 2
    assert half.collectives["all-reduce"] == {"launches": 0.5, "bytes": 48}


def test_of_one_step_a_call_all_is_the_step():
    found = analysis.analyse(hlo_texts.STEPS, num_steps=1)
    assert found.per_call.kernels == 0
    # A loop within a step runs as often as it is long: twelve kernels, and beside them two.
    assert found.per_step.kernels == 14 and found.per_step.launches == 2 + 32 * 12


def test_a_program_without_steps_is_a_call():
    found = analysis.analyse(hlo_texts.TILES)
    assert found.per_step is None and found.unknown_loops == 1
    # Of both branches the longer one runs; the loop of unknown length counts once.
    assert found.per_call.by_kind == {
        **{"copy": 1, "matmul": 1, "collective": 2, "while": 1, "conditional": 1},
        **{"scalar": 5, "other": 1},
    }
    assert found.per_call.kernels == 12 and found.per_call.launches == 11
    assert found.per_call.collectives == {
        "all-gather": {"launches": 1, "bytes": 1024 * 128 * 2},
        "collective-permute": {"launches": 1, "bytes": 256 * 128 * 2},
    }


def test_a_loop_that_was_unrolled_is_divided_by_its_steps():
    found = analysis.analyse(hlo_texts.TILES.replace("while", "negate"), num_steps=4)
    assert found.per_step.kernels == pytest.approx(
        analysis.analyse(hlo_texts.TILES.replace("while", "negate")).per_call.kernels / 4
    )
    assert found.per_call.kernels == 0


@pytest.mark.parametrize(
    ("op_name", "places", "part"),
    [
        ("jit(train)/jvp(PUNet)/backbone/stage1/conv1/dot", [], parts.FORWARD),
        ("jit(train)/transpose(jvp(PUNet))/backbone/conv1/dot", [], parts.BACKWARD),
        ("jit(train)/transpose(jvp(PUNet))/backbone/stage1/norm1/mul", [], parts.NORM),
        ("jit(train)/jvp(PUNet)/BatchNorm_0/mul", [], parts.NORM),
        ("jit(train)/jvp(PUNet)/normal_layer/mul", [], parts.FORWARD),
        ("jit(train)/jvp()/log", [], parts.LOSSES),
        ("jit(train)/transpose(jvp(jit(log_softmax)))/sub", [], parts.LOSSES),
        ("jit(train)/jit(_beta)/jit(_gamma)/while", [], parts.RANDOM),
        ("jit(train)/jit(_threefry_split)/add", [], parts.RANDOM),
        ("jit(train)/add", [("/l/optax/_src/update.py", "apply")], parts.OPTIMIZER),
        ("jit(train)/add", [("/l/pujax/augment/views.py", "weak_view")], parts.RANDOM),
        ("jit(train)/add", [("/l/pujax/risks/biased.py", "naive")], parts.LOSSES),
        (
            "jit(train)/jit(_where)/select_n",
            [("/l/pujax/training/train_step.py", "_keep_finite.<locals>.<lambda>")],
            parts.FINITE,
        ),
        # A loss that the optimizer's own function differentiates.
        ("jit(t)/jvp()/add", [("/l/pujax/methods/_common/optimizer.py", "descend")], parts.LOSSES),
        ("jit(predict)/dot", [("/l/pujax/models/mlp.py", "MLP.__call__")], parts.FORWARD),
        ("jit(train)/add", [], parts.OTHER),
        ("", [], parts.OTHER),
    ],
)
def test_parts_of_a_step(op_name, places, part):
    assert parts.of_operation(op_name, places) == part


def test_steps_that_were_compiled_here():
    def train(w, x):
        def body(w, _):
            return w - jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w), None

        return jax.lax.scan(body, w, jnp.arange(7))[0]

    text = jax.jit(train).lower(jnp.ones([5, 4]), jnp.ones([3, 5])).compile().as_text()
    found = analysis.analyse(text, num_steps=7)
    # Forward 3 x 5 x 4, and for the gradient of the weights as many.
    assert found.per_step.flops == {"f32": 2 * (2 * 3 * 5 * 4)}
    assert not found.per_call.flops and found.per_step.by_kind["matmul"] == 2
