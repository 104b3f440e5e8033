"""Scales of bytes that products of few rows read are applied to sums and rows."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import Library, numpy_type

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.pipeline import lower
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

#: Scores of keys that are scaled in their tile, added to what the sums hold, times values that are scaled in
#: theirs; ``also`` is one more statement between the scaled keys and their product.
TEXT = """
kernel("k")
S = dim(int32)
Q = tensor({wide}, ({m}, 24), ("{m}", "24"), access="in")
K = tensor({stored}, (S, 24), ("S", "24"), access="in")
V = tensor({stored}, (S, 40), ("S", "40"), access="in")
A = tensor(float32, (S,), ("S",), access="inout")
B = tensor(float32, (S, 40), ("S", "40"), access="in")
Y = tensor({wide}, (16, 24), ("16", "24"), access="inout")
O = tensor(float32, ({m}, 40), ("{m}", "40"), access="out")
with launch(1, threads=(128, 1, 1)) as (bx,):
    q = alloc({wide}, ({m}, 24), "shared.dyn")
    b = alloc({stored}, (16, 24), "shared.dyn")
    f = alloc({wide}, (16, 24), "shared.dyn")
    v = alloc({wide}, (16, 40), "shared.dyn")
    s = alloc(float32, ({m}, 16), "local.fragment")
    o = alloc(float32, ({m}, 40), "local.fragment")
    copy(Q[0:+{m}, 0:+24], q[0:+{m}, 0:+24])
    fill(o[0:+{m}, 0:+40], 0.0)
    for k in pipelined(0, (S + 15) // 16, num_stages=2):
        copy(K[k * 16:+16, 0:+24], b[0:+16, 0:+24])
        for i, j in parallel(16, 24):
            f[i, j] = {keys}
        fill(s[0:+{m}, 0:+16], {first})
        {also}
        gemm(q[0:+{m}, 0:+24], f[0:+16, 0:+24], s[0:+{m}, 0:+16], trans_a=False, trans_b=True, clear={clear})
        for i, j in parallel(16, 40):
            v[i, j] = {values}
        gemm(s[0:+{m}, 0:+16], v[0:+16, 0:+40], o[0:+{m}, 0:+40], trans_a=False, trans_b=False, clear=False)
    copy(o[0:+{m}, 0:+40], O[0:+{m}, 0:+40])
"""
KEY, VALUE = "cast(float32, b[i, j])", "cast(float32, V[k * 16 + i, j])"
BY_TOKEN = {"keys": f"{KEY} * A[k * 16 + i]", "values": f"A[k * 16 + i] * {VALUE}"}
BY_TILE = {"keys": f"0.25 * {KEY}", "values": f"{VALUE} * (A[0] * 0.5)"}
BY_COLUMN = {"keys": f"{KEY} * B[0, j]", "values": f"(B[1, j] * {VALUE}) * A[k * 16 + i]"}
SCALES = {"token": BY_TOKEN, "tile": BY_TILE, "column": BY_COLUMN}


def text(rows: int = 4, stored: str = "int8", wide: str = "float32", **other: str) -> str:
    parts = {"also": "", "first": "0.0", "clear": "False"} | BY_TOKEN | other
    parts |= {name: f"cast({wide}, {parts[name]})" for name in ("keys", "values") if wide != "float32"}
    return TEXT.format(m=rows, stored=stored, wide=wide, **parts)


def read(target: str = "x86-64-v3", **parts: object) -> list[str]:
    """The types of the second operands of both products."""
    kernel = lower(parse_kernel(text(**parts)), parse_target(target), until="forward_operands")
    gemms = [stmt for stmt in walk(kernel.body) if isinstance(stmt, MicroGemm)]
    return [str(gemm.b.region.buffer.dtype) for gemm in gemms]


@pytest.mark.parametrize("scales", SCALES)
@pytest.mark.parametrize("wide", ["float32", "float16", "bfloat16"])
def test_products_read_bytes_of_scaled_tiles(wide: str, scales: str) -> None:
    assert read(wide=wide, **SCALES[scales]) == ["int8", "int8"]
    assert read("x86-64-v4+avx512bf16", wide=wide, **SCALES[scales]) == ["int8", "int8"]


def test_scaled_values_may_have_names() -> None:
    kernel = text(keys="number * factor").replace(
        "f[i, j]", f"number = {KEY}\n            factor = A[k * 16 + i]\n            f[i, j]"
    )
    lowered = lower(parse_kernel(kernel), parse_target("x86-64-v3"), until="forward_operands")
    gemms = [stmt for stmt in walk(lowered.body) if isinstance(stmt, MicroGemm)]
    assert [str(gemm.b.region.buffer.dtype) for gemm in gemms] == ["int8", "int8"]


@pytest.mark.parametrize(
    ("parts", "found"),
    [
        ({"rows": 7}, ["float32", "float32"]),
        ({"keys": f"{KEY} * B[i, j]"}, ["float32", "int8"]),
        ({"keys": f"{KEY} * B[j, i]"}, ["float32", "int8"]),
        ({"keys": f"{KEY} * exp(A[i])"}, ["float32", "int8"]),
        ({"keys": f"{KEY} * {KEY}"}, ["float32", "int8"]),
        ({"keys": f"{KEY} * A[i] + 1.0"}, ["float32", "int8"]),
        ({"keys": "cast(float32, b[i, 23 - j]) * A[i]"}, ["float32", "int8"]),
        ({"keys": f"{KEY} * s[0, i]"}, ["float32", "int8"]),
        ({"also": "A[0] = 2.0"}, ["float32", "int8"]),
        ({"also": "copy(f[0:+16, 0:+24], Y[0:+16, 0:+24])"}, ["float32", "int8"]),
    ],
)
def test_other_tiles_stay(parts: dict[str, object], found: list[str]) -> None:
    """More rows, scales of elements, other work, scales that change in between, and others that read."""
    assert read(**parts) == found


def expected(args: list[np.ndarray], scales: str, first: float) -> np.ndarray:
    q, k, v, a, b = (arg.astype(np.float64) for arg in args[:5])
    by_key, by_value = {
        "token": (a[:, None], a[:, None]),
        "tile": (0.25, a[0] * 0.5),
        "column": (b[:1, :24], b[1:2] * a[:, None]),
    }[scales]
    return (q @ (k * by_key).T + first) @ (v * by_value)


def arguments(rows: int, stored: str, wide: str, seed: int = 0) -> list[np.ndarray]:
    """With every byte that is a number among keys and values, and scales of both signs and 0."""
    rng, kind = np.random.default_rng(seed), np.dtype(getattr(ml_dtypes, stored, None) or stored)
    q = rng.standard_normal((rows, 24)).astype(numpy_type(wide))
    k, v = (rng.integers(0, 256, (37, size), np.uint8).view(kind) for size in (24, 40))
    for each in (k, v):
        each[~np.isfinite(each.astype(np.float32))] = 1
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((37,), (37, 40)))
    a[5] = 0.0
    out = np.full((rows, 40), np.nan, np.float32)
    return [q, k, v, a, b, np.zeros((16, 24), numpy_type(wide)), out]


@pytest.mark.parametrize(
    ("rows", "stored", "wide", "scales", "first", "target"),
    [
        (1, "int8", "float32", "token", 0.0, "x86-64-v3"),
        (5, "uint8", "float32", "column", -2.0, "x86-64-v3"),
        (3, "float8_e5m2", "float32", "tile", 0.0, "x86-64-v2"),
        (3, "int8", "bfloat16", "token", 1.5, "x86-64-v4+avx512bf16"),
        (2, "float8_e4m3fn", "float16", "column", 0.0, "x86-64-v4"),
    ],
)
def test_results(rows: int, stored: str, wide: str, scales: str, first: float, target: str) -> None:
    """With a last tile that the tensor has not all of; what 16 bits of a tile would round is not."""
    args = arguments(rows, stored, wide)
    made = text(rows, stored, wide, first=str(first), **SCALES[scales])
    Library({"k": made}, target).run("k", args, {"S": 37})
    wanted = expected(args, scales, first)
    np.testing.assert_allclose(args[-1], wanted, rtol=0, atol=4e-6 * np.abs(wanted).max())


def test_extreme_scales_are_those_of_the_tile() -> None:
    """Large ones, one that is no normal number, an infinity and NaN, beside numbers of one sign."""
    args = arguments(4, "int8", "float32")
    args[0][:] = np.abs(args[0])
    for each in args[1:3]:
        each[:] = np.maximum(each & 127, 1)
    made = Library({"k": text(4, clear="True")}, "x86-64-v3")
    for scale in (1e16, -1e16, 1e-40, np.inf, np.nan):
        args[3][:] = 1.0
        args[3][::4] = scale
        made.run("k", args, {"S": 37})
        np.testing.assert_allclose(args[-1], expected(args, "token", 0.0), rtol=1e-5)
