"""Products with two values in each group of four of the left operand, and what makes such operands."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from agree import agree, elaborated
from breadth import parametrized
from sparse_products import operands, product

import tilec.language as T
from tilec.backends.cuda.nodes import SparseWarpGemm
from tilec.backends.pipeline import lower
from tilec.emulate.instructions import mma
from tilec.errors import EvalError, InputError, UnsupportedError
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import native_target, parse_target
from tilec.utils import sparse

TYPES = [
    ("float16", "int32", "float32", ("sm_80",)),
    ("int8", "int32", "int32", ("cpu", "sm_80")),
    ("float8_e4m3fn", "uint8", "float32", ("sm_90a", "sm_80")),
]
FURTHER = [
    ("float16", "int16", "float32", ("cpu", "sm_80", "sm_90a")),
    ("bfloat16", "uint8", "float32", ("cpu", "sm_80")),
    ("uint8", "uint8", "int32", ("sm_80",)),
]


@parametrized(("dtype", "places", "sums", "targets"), TYPES + FURTHER, fast=TYPES)
def test_types_of_values_and_places(dtype, places, sums, targets):
    a, e, b, wanted = operands(48, 40, 128, dtype, places)
    agree(product(48, 40, 128, dtype, places, sums), a, e, b, expected=wanted, targets=targets)


@pytest.mark.parametrize(
    "turned", [(False, False, True), (True, True, False), (True, False, True), (False, True, False)]
)
def test_operands_stored_the_other_way_round(turned):
    arrays = operands(32, 32, 64, "float16", "int16")
    given = [np.ascontiguousarray(x.T) if turn else x for x, turn in zip(arrays, turned, strict=False)]
    made = product(32, 32, 64, "float16", "int16", "float32", turned)
    agree(made, *given, expected=arrays[3], targets=("cpu", "sm_80"))


def test_it_runs_on_sparse_tensor_cores_where_they_take_it():
    made = elaborated(product(32, 32, 64, "float16", "int16", "float32"), (), {}, {}, {})
    for name, says in (("sm_80", ""), ("sm_90a", "2 warps are no whole warpgroups")):
        lowered = lower(made, parse_target(name))
        assert any(isinstance(stmt, SparseWarpGemm) for stmt in walk(lowered.launches[0].body))
        assert says in " ".join(map(str, lowered.launches[0].roads))
    odd = elaborated(product(32, 32, 48, "float16", "int16", "float32", tiles=(32, 32, 48)), (), {}, {}, {})
    lowered = lower(odd, parse_target("sm_80"))
    assert not any(isinstance(stmt, SparseWarpGemm) for stmt in walk(lowered.launches[0].body))
    assert "K = 48 is no multiple of 32" in " ".join(map(str, lowered.launches[0].roads))
    on_cpu = lower(odd, native_target()).launches[0].roads
    assert any("multiplies a dense tile: CPUs have no sparse products" in str(road) for road in on_cpu)


def test_a_k_that_fills_no_instruction_goes_through_a_dense_tile():
    a, e, b, wanted = operands(32, 32, 48, "float16", "int16")
    made = product(32, 32, 48, "float16", "int16", "float32", tiles=(32, 32, 48))
    agree(made, a, e, b, expected=wanted, targets=("cpu", "sm_80"))


def test_its_text_parses_back():
    made = elaborated(product(32, 32, 64, "int8", "int32", "int32", (True, True, False)), (), {}, {}, {})
    text = format_kernel(made)
    assert "gemm_sp(" in text
    assert "trans_e=True" in text
    assert format_kernel(parse_kernel(text)) == text


def test_values_out_of_order_are_an_error():
    a, e, b, _ = operands(32, 32, 64, "float16", "int16")
    made = product(32, 32, 64, "float16", "int16", "float32")
    with pytest.raises(EvalError, match="row 0, group 0 are at places 3 and 0"):
        agree(made, np.ones_like(a), np.full_like(e, 3), b, targets=())


def _shapes(dtype, places, words):
    @T.prim_func
    def main(A: T.Tensor((32, 32), dtype), C: T.Tensor((32, 32), "float32")):
        with T.Kernel(1, threads=64):
            a, e = T.alloc_shared((32, 32), dtype), T.alloc_shared((32, words), places)
            b, c = T.alloc_shared((64, 32), dtype), T.alloc_fragment((32, 32), "float32")
            T.copy(A, a)
            T.gemm_sp(a, e, b, c, clear_accum=True)
            T.copy(c, C)

    return main


@pytest.mark.parametrize(
    ("arguments", "error", "says"),
    [
        (("float16", "int16", 8), AssertionError, "e has 32 rows of 8 integers of 16 bits"),
        (("float16", "float32", 4), ValueError, "e is float32"),
        (("float32", "int16", 4), UnsupportedError, "T.gemm_sp of float32"),
    ],
)
def test_operands_that_do_not_fit_are_named(arguments, error, says):
    with pytest.raises(error, match=says):
        elaborated(_shapes(*arguments), (), {}, {}, {})


# ---- operands ----


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(("dtype", "arch"), [("float16", "8.0"), ("bfloat16", "9.0"), ("int8", "8.9")])
def test_compressing_keeps_every_value(dtype, arch, transposed):
    kind = getattr(torch, dtype)
    dense = sparse.randn_semi_sparse(16, 64, dtype="float32", device="cpu", transposed=transposed)
    dense = (4 * dense).to(kind)
    values, places = sparse.compress(dense, transposed=transposed, arch=arch, block_k=64)
    assert str(places.dtype) == {"9.0": "torch.uint8", "8.0": "torch.int16", "8.9": "torch.int32"}[arch]
    width = sparse.get_e_factor(dtype, places.dtype)
    wanted = (64 // width, 16) if transposed else (16, 64 // width)
    assert tuple(places.shape) == wanted
    assert torch.equal(sparse.decompress(values, places, transposed), dense)


def test_more_than_two_values_of_four_are_an_error():
    dense = torch.zeros(4, 32, dtype=torch.float16)
    dense[2, 8:11] = 1
    with pytest.raises(InputError, match="row 2 has more than two values other than 0 in columns 8 to 11"):
        sparse.torch_compress(dense)
    with pytest.raises(InputError, match="K = 24 is no multiple of 16"):
        sparse.torch_compress(torch.zeros(4, 24, dtype=torch.float16))


def test_arange_semi_sparse_counts():
    found = sparse.arange_semi_sparse(2, 8, dtype="float32", device="cpu")
    assert found.tolist() == [[0, 1, 0, 0, 4, 5, 0, 0], [8, 9, 0, 0, 12, 13, 0, 0]]


# ---- the instruction ----


def test_lanes_that_hold_places_of_16_bit_types():
    """PTX ISA, sparse mma.m16n8k16 and m16n8k32 of .f16: rows g and g + 8 in the halves of a word, 16 columns
    a lane."""
    words = np.arange(32, dtype=np.uint32)[None] | (np.arange(32, dtype=np.uint32)[None] + 100) << 16
    for count, selector in ((1, 0), (1, 3), (2, 0), (2, 1)):
        found = mma._wide_rows(words, selector, count)[0]
        for group in range(8):
            lanes = [4 * group + count * selector + each for each in range(count)]
            assert found[group].tolist() == lanes
            assert found[group + 8].tolist() == [lane + 100 for lane in lanes]


def test_lanes_that_hold_places_of_8_bit_types():
    """PTX ISA, sparse mma.m16n8k64 of .s8: 32 columns a lane; lanes 1 and 3 of four hold row g + 8."""
    found = mma._narrow_rows(np.arange(32, dtype=np.uint32)[None])[0]
    for group in range(8):
        assert found[group].tolist() == [4 * group, 4 * group + 2]
        assert found[group + 8].tolist() == [4 * group + 1, 4 * group + 3]
