"""Tiles of bfloat16 that products alone read are rounded by one instruction: denormal numbers are zeros."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

#: Rows of A, rounded, times B; ``also`` is one more statement.
TEXT = """
kernel("k")
A = tensor(float32, ({m}, {k}), ("{m}", "{k}"), access="in")
B = tensor(bfloat16, ({k}, 32), ("{k}", "32"), access="in")
Y = tensor(bfloat16, ({m}, {k}), ("{m}", "{k}"), access="inout")
C = tensor(float32, ({m}, 32), ("{m}", "32"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    x = alloc(bfloat16, ({m}, {k}), "shared.dyn")
    b = alloc(bfloat16, ({k}, 32), "shared.dyn")
    acc = alloc(float32, ({m}, 32), "local.fragment")
    copy(B[0:+{k}, 0:+32], b[0:+{k}, 0:+32])
    for i, j in parallel({m}, {k}):
        x[i, j] = cast(bfloat16, A[i, j] * 0.5)
    fill(acc[0:+{m}, 0:+32], 0.0)
    gemm(x[0:+{m}, 0:+{k}], b[0:+{k}, 0:+32], acc[0:+{m}, 0:+32], trans_a=False, trans_b=False, clear=False)
    {also}
    copy(acc[0:+{m}, 0:+32], C[0:+{m}, 0:+32])
"""
PLAIN = "x86-64-v4+avx512bf16"
UNIT = "x86-64-v4+avx512bf16+amx"
KEPT = "copy(x[0:+16, 0:+32], Y[0:+16, 0:+32])"


def text(rows: int = 16, also: str = "", depth: int = 32) -> str:
    return TEXT.format(m=rows, also=also, k=depth)


def code_of(source: str, target: str) -> str:
    wanted = parse_target(target)
    return assembly(to_tir(lower(parse_kernel(source), wanted), wanted), wanted, "k")


@pytest.mark.parametrize(
    ("target", "also", "rounds"),
    [(PLAIN, "", True), (UNIT, "", True), (PLAIN, KEPT, False), ("x86-64-v4+amx", "", False)],
)
def test_a_tile_is_rounded_so_where_products_alone_read_it(target: str, also: str, rounds: bool) -> None:
    code = code_of(text(also=also), target)
    assert ("vcvtne2ps2bf16" in code and "vfpclassps" not in code) == rounds


@pytest.mark.parametrize(
    ("depth", "pairs", "alone"), [(16, False, True), (32, True, False), (48, True, True)]
)
def test_vectors_side_by_side_are_rounded_at_once(depth: int, pairs: bool, alone: bool) -> None:
    code = code_of(text(depth=depth), PLAIN)
    assert ("vcvtne2ps2bf16" in code, "vcvtneps2bf16" in code) == (pairs, alone)


@pytest.mark.parametrize(("rows", "depth"), [(16, 32), (3, 32), (16, 48), (5, 112)])
def test_numbers_are_rounded_to_nearest_even(rows: int, depth: int) -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((rows, depth)) * 2.0 ** rng.integers(-100, 100, (rows, depth))
    a = a.astype(np.float32)
    a.view(np.uint32)[0] &= 0xFFFF0000
    a.view(np.uint32)[0] |= 0x8000  # halfway
    a[1, :4] = 2.0**-126, -(2.0**-130), 0, -0.0
    identity = np.eye(depth, 32).astype(ml_dtypes.bfloat16)
    y, c = np.zeros((rows, depth), ml_dtypes.bfloat16), np.full((rows, 32), np.nan, np.float32)
    Library({"k": text(rows, depth=depth)}, PLAIN).run("k", [a, identity, y, c], {})
    expected = (a * np.float32(0.5)).astype(ml_dtypes.bfloat16).astype(np.float32)
    expected[1, :2] = 0  # denormal ones
    np.testing.assert_array_equal(c[:, :depth], expected[:, :32])
