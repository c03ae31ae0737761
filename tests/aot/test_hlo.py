"""Reading of optimized HLO."""

import jax
import jax.numpy as jnp
import pytest

from pujax.aot import hlo
from pujax.aot.hlo import Shape
from tests.aot import hlo_texts


def find(module, name):
    return next(x for lines in module.computations.values() for x in lines if x.name == name)


@pytest.mark.parametrize(
    ("text", "shapes", "num_bytes"),
    [
        ("f32[2,3]{1,0}", [Shape("f32", (2, 3))], [24]),
        ("pred[]", [Shape("pred", ())], [1]),
        ("bf16[4,5]{1,0:T(8,128)(2,1)S(1)}", [Shape("bf16", (4, 5), 1)], [40]),
        ("(s32[], /*index=1*/u8[7]{0})", [Shape("s32", ()), Shape("u8", (7,))], [4, 7]),
        ("((f8e4m3fn[3]{0}, c64[2]{0}), s4[3]{0})", None, [3, 16, 2]),
        ("token[]", [Shape("token", ())], [0]),
    ],
)
def test_types_and_their_bytes(text, shapes, num_bytes):
    found = hlo.parse_shapes(text)
    assert [shape.num_bytes for shape in found] == num_bytes
    assert shapes is None or list(found) == shapes


def test_instructions_of_a_module():
    module = hlo.parse(hlo_texts.STEPS)
    assert module.entry == "main" and len(module.computations) == 6
    conv = find(module, "conv")
    assert (conv.opcode, conv.operands) == ("custom-call", ("images", "kernel"))
    assert conv.shapes == (Shape("bf16", (4, 5, 5, 6)), Shape("u8", (0,)))
    assert conv.attribute("dim_labels") == "b01f_o01i->b01f"
    assert conv.attribute("window") == "size=3x3 pad=1_1x1_1"
    assert conv.attribute("custom_call_target") == "__cudnn$convForward"
    assert conv.attribute("lhs_contracting_dims") == ""
    assert find(module, "loop").called() == ["condition", "body"]
    assert find(module, "result").is_root and not conv.is_root
    assert find(module, "state").shapes[2] == Shape("u8", (1000, 12))


def test_places_are_a_line_and_its_callers():
    module = hlo.parse(hlo_texts.STEPS)
    train = ("/x/pujax/training/train_step.py", "make_train.<locals>.train")
    assert module.places(find(module, "rows").frame) == [
        ("/x/pujax/augment/views.py", "weak_view"),
        train,
    ]
    assert module.places(find(module, "images").frame) == [train]
    assert module.places(find(module, "conv").frame) == []


def test_lengths_of_loops():
    steps, tiles = hlo.parse(hlo_texts.STEPS), hlo.parse(hlo_texts.TILES)
    assert steps.trip_count(find(steps, "loop")) == 32
    assert tiles.trip_count(find(tiles, "drawn")) is None
    told = hlo_texts.STEPS.replace("body=%body", 'body=%body, c={"known_trip_count":{"n":"7"}}')
    module = hlo.parse(told)
    assert module.trip_count(find(module, "loop")) == 7


def test_a_text_without_an_entry_is_refused():
    with pytest.raises(ValueError, match="no ENTRY computation"):
        hlo.parse("HloModule x\n")


def test_a_program_that_was_compiled_here():
    def train(w, x):
        def body(w, _):
            return w - jax.grad(lambda w: jnp.sum(jnp.tanh(x @ w)))(w), None

        return jax.lax.scan(body, w, jnp.arange(11))[0]

    compiled = jax.jit(train).lower(jnp.ones([4, 4]), jnp.ones([3, 4])).compile()
    text = compiled.as_text()
    module = hlo.parse(text)
    lines = [line for line in text.splitlines() if line.startswith("  ") and " = " in line]
    assert sum(map(len, module.computations.values())) == len(lines)
    loops = [x for lines in module.computations.values() for x in lines if x.opcode == "while"]
    assert [module.trip_count(loop) for loop in loops] == [11]
