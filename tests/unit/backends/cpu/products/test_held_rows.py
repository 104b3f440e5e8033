"""Products of a short K on the matrix unit of x86: tiles hold rows while the panels of columns pass."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import Library
from tile_unit import as_here, emulated_tiles

from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

TARGET = parse_target("x86-64-v4+amx")
#: Rows less their largest element: what follows the product goes from column to column.
TEXT = """
kernel("k")
M = dim(int32)
A = tensor({dtype}, (M, {k}), ("M", "{k}"), access="in")
B = tensor({dtype}, ({n}, {k}), ("{n}", "{k}"), access="in")
Y = tensor({sums}, (M, {n}), ("M", "{n}"), access="out")
with launch((M + 95) // 96, threads=(128, 1, 1)) as (bx,):
    a = alloc({dtype}, (96, {k}), "shared.dyn")
    b = alloc({dtype}, ({n}, {k}), "shared.dyn")
    s = alloc({sums}, (96, {n}), "local.fragment")
    top = alloc({sums}, (96,), "local.fragment")
    copy(A[bx * 96:+96, 0:+{k}], a[0:+96, 0:+{k}])
    copy(B[0:+{n}, 0:+{k}], b[0:+{n}, 0:+{k}])
    gemm(a[0:+96, 0:+{k}], b[0:+{n}, 0:+{k}], s[0:+96, 0:+{n}], trans_b=True, clear=True)
    reduce_max(s[0:+96, 0:+{n}], top[0:+96], axis=1, clear=True)
    for i, j in parallel(96, {n}):
        Y[bx * 96 + i, j] = s[i, j] - top[i]
"""
TYPES = {"bfloat16": ("float32", ml_dtypes.bfloat16), "int8": ("int32", np.int8)}


def text(dtype: str, columns: int, depth: int) -> str:
    return TEXT.format(dtype=dtype, sums=TYPES[dtype][0], n=columns, k=depth)


@pytest.mark.parametrize(
    ("dtype", "columns", "depth", "held"),
    [
        ("bfloat16", 96, 32, "tdpbf16ps_held1"),
        ("bfloat16", 96, 64, "tdpbf16ps_held2"),
        ("bfloat16", 512, 64, "tdpbf16ps_held2_past"),
        ("int8", 64, 128, "tdpbssd_held2"),
        ("bfloat16", 96, 96, None),
        ("bfloat16", 96, 48, None),
        ("bfloat16", 32, 64, None),
    ],
)
def test_rows_are_held_where_tiles_have_all_of_k(
    dtype: str, columns: int, depth: int, held: str | None
) -> None:
    code = str(to_tir(lower(parse_kernel(text(dtype, columns, depth)), TARGET), TARGET))
    assert f'"tilec_{held}"' in code if held else "_held" not in code


@pytest.mark.parametrize("unit", ["emulated", "machine"])
@pytest.mark.parametrize(
    ("dtype", "columns", "depth"),
    [("bfloat16", 96, 32), ("bfloat16", 80, 64), ("bfloat16", 512, 64), ("int8", 64, 128)],
)
def test_what_it_computes(dtype: str, columns: int, depth: int, unit: str) -> None:
    texts = {"k": text(dtype, columns, depth)}
    if unit == "machine":
        if not runs_here(TARGET):
            pytest.skip(f"this machine does not run {TARGET.name}")
        library = Library(texts, TARGET)
    else:
        with emulated_tiles():
            library = Library(texts, as_here(TARGET))
    sums, stored = TYPES[dtype]
    rng = np.random.default_rng(0)
    for rows in (1, 33, 96, 150):
        a, b = (rng.integers(-3, 4, shape).astype(stored) for shape in ((rows, depth), (columns, depth)))
        y = np.zeros((rows, columns), sums)
        library.run("k", [a, b, y], {"M": rows})
        scores = a.astype(np.int32) @ b.astype(np.int32).T
        np.testing.assert_array_equal(y, scores - scores.max(axis=1, keepdims=True))
