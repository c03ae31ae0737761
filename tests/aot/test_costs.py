"""Operations, traffic and exchanged bytes, against numbers worked out by hand."""

import itertools
import re

import jax
import numpy as np
import pytest
from jax import lax

from pujax.aot import costs, hlo
from tests.aot import hlo_texts


def lines_of(text, computation):
    module = hlo.parse(text)
    lines = module.computations[computation]
    return module, {line.name: line for line in lines}, costs.first_shapes(lines)


def flops(text, computation, name):
    module, lines, shapes = lines_of(text, computation)
    return costs.flops(module, lines[name], shapes)


def test_a_convolution_counts_what_is_not_padding():
    # 5 x 5 outputs, 3 x 3 kernels, padding 1: along an axis 4 + 5 + 4 pairs are inside.
    assert flops(hlo_texts.STEPS, "body", "conv") == 2 * 13 * 13 * 2 * 6 * 4


def test_the_gradient_of_a_convolution_costs_what_the_convolution_does():
    assert flops(hlo_texts.STEPS, "body", "grad") == 2 * 13 * 13 * 2 * 6 * 4
    backward = hlo_texts.STEPS.replace("custom-call(%images, %norm)", "custom-call(%norm, %kernel)")
    backward = backward.replace(
        "%grad = (bf16[6,3,3,2]{3,2,1,0}", "%grad = (bf16[4,5,5,2]{3,2,1,0}"
    )
    backward = backward.replace("BackwardFilter", "BackwardInput")
    assert flops(backward, "body", "grad") == 2 * 13 * 13 * 2 * 6 * 4


def test_matrix_products():
    assert flops(hlo_texts.STEPS, "body", "dw") == 2 * 8 * 3 * 4
    assert flops(hlo_texts.TILES, "main", "fused") == 2 * 256 * 512 * 128
    assert flops(hlo_texts.TILES, "main", "turned") == 0
    settings = '{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}'
    library = f"""ENTRY %main (a: bf16[6,4], b: bf16[4,5]) -> bf16[6,5] {{
  %a = bf16[6,4]{{1,0}} parameter(0)
  %b = bf16[4,5]{{1,0}} parameter(1)
  ROOT %c = (bf16[6,5]{{1,0}}, s8[9]{{0}}) custom-call(%a, %b), \
custom_call_target="__cublas$lt$matmul", backend_config={settings}
}}
"""
    assert flops(library, "main", "c") == 2 * 6 * 5 * 4


def naive_pairs(size, kernel, stride, padding, dilated):
    """Twice the products along one axis after the other that meet an element of the input."""
    whole, count = (size - 1) * dilated + 1, 0
    for start in range(0, whole + 2 * padding - kernel + 1, stride):
        places = [start + offset - padding for offset in range(kernel)]
        count += sum(0 <= place < whole and place % dilated == 0 for place in places)
    return count


CONVOLUTIONS = [*itertools.product((1, 2), (0, 1), (1,), (1, 2)), (1, 1, 2, 1)]


@pytest.mark.parametrize(("stride", "padding", "dilated", "groups"), CONVOLUTIONS)
def test_convolutions_of_many_sorts(stride, padding, dilated, groups):
    def convolve(x, w):
        return lax.conv_general_dilated(
            *(x, w, (stride, stride), [(padding, padding)] * 2),
            lhs_dilation=(dilated, dilated),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
            feature_group_count=groups,
        )

    inputs, kernel = np.ones((3, 7, 6, 4)), np.ones((3, 2, 4 // groups, 8))
    text = jax.jit(convolve).lower(inputs, kernel).as_text("hlo")
    # Before optimisation XLA prints neither signs before names nor the types of an entry.
    text = re.sub(r"ENTRY (\S+) \{", r"ENTRY %\1 (x: f32[]) -> f32[] {", text)
    module = hlo.parse(re.sub(r"convolution\((\S+), (\S+)\)", r"convolution(%\1, %\2)", text))
    lines = module.computations[module.entry]
    product = next(line for line in lines if line.opcode == "convolution")
    pairs = [naive_pairs(size, k, stride, padding, dilated) for size, k in ((7, 3), (6, 2))]
    expected = 2 * 3 * pairs[0] * pairs[1] * (4 // groups) * 8
    assert costs.flops(module, product, costs.first_shapes(lines)) == expected


def traffic(text, computation, name):
    module = hlo.parse(text)
    lines = module.computations[computation]
    line = next(line for line in lines if line.name == name)
    return costs.traffic(module, line, {x.name: x.shapes for x in lines})


def test_traffic_is_what_is_read_and_written():
    assert traffic(hlo_texts.STEPS, "main", "padded") == 2 * 12000
    assert traffic(hlo_texts.STEPS, "body", "new") == 3 * 96
    # Of 1,000 rows four are read, and a number that says which.
    assert traffic(hlo_texts.STEPS, "body", "rows") == 48 + 48 + 4
    # The second factor is on the chip.
    assert traffic(hlo_texts.TILES, "main", "fused") == 2 * (256 * 512 + 256 * 128)


def test_an_update_in_place_writes_the_part_that_changes():
    text = """%fused (p: f32[1000], q: f32[10], i: s32[]) -> f32[1000] {
  %p = f32[1000]{0} parameter(0)
  %q = f32[10]{0} parameter(1)
  %i = s32[] parameter(2)
  ROOT %changed = f32[1000]{0} dynamic-update-slice(%p, %q, %i)
}

ENTRY %main (a: f32[1000], b: f32[10], c: s32[]) -> f32[1000] {
  %a = f32[1000]{0} parameter(0)
  %b = f32[10]{0} parameter(1)
  %c = s32[] parameter(2)
  ROOT %f = f32[1000]{0} fusion(%a, %b, %c), kind=kLoop, calls=%fused
}
"""
    assert traffic(text, "main", "f") == 40 + 40 + 4


@pytest.mark.parametrize(
    ("text", "computation", "name", "kind", "num_bytes"),
    [
        (hlo_texts.STEPS, "body", "start", "all-reduce", 96),
        (hlo_texts.STEPS, "body", "done", "", None),
        (hlo_texts.TILES, "main", "gathering", "all-gather", 1024 * 128 * 2),
        (hlo_texts.TILES, "main", "turned", "collective-permute", 256 * 128 * 2),
        (hlo_texts.TILES, "main", "near", "", None),
    ],
)
def test_collectives(text, computation, name, kind, num_bytes):
    _, lines, _ = lines_of(text, computation)
    assert costs.collective(lines[name]) == kind
    if kind:
        assert costs.exchanged(lines[name]) == num_bytes


def test_the_type_that_is_multiplied_and_the_space_that_it_is_over():
    for text, computation, name, dtype, has in (
        (hlo_texts.STEPS, "body", "conv", "bf16", True),
        (hlo_texts.STEPS, "body", "dw", "f32", False),
        (hlo_texts.TILES, "main", "fused", "bf16", False),
        (hlo_texts.STEPS, "body", "new", "", False),
    ):
        module, lines, shapes = lines_of(text, computation)
        assert costs.matmul_dtype(module, lines[name], shapes) == dtype
        assert costs.has_convolution(module, lines[name]) == has
