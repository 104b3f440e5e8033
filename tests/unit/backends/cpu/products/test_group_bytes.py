"""Few rows of bytes times weights of few bits: integers are added up as they are stored."""

from __future__ import annotations

import re

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.nodes import Gemm, If, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

#: Weights of 128 along K at a time; ``more`` stands behind what makes their tile.
TEXT = """
kernel("k")
M = dim(int32)
N = dim(int32)
K = dim(int32, div=32)
A = tensor({kind}, (M, K), ("M", "K"), access="in")
W = tensor({stored}, (N, K // {each}), ("N", "K // {each}"), access="in")
S = tensor(int8, (N,), ("N",), access="in")
C = tensor(int32, (M, N), ("M", "N"), access="out")
with launch((N + 15) // 16, (M + {m} - 1) // {m}, threads=(128, 1, 1)) as (bx, by):
    As = alloc({kind}, ({m}, {depth}), "shared.dyn")
    packed = alloc({stored}, (16, {packed}), "shared.dyn")
    Ws = alloc({wide}, (16, {depth}), "shared.dyn")
    acc = alloc(int32, ({m}, 16), "local.fragment")
    fill(acc[0:+{m}, 0:+16], 5)
    for ko in pipelined(0, (K + {depth} - 1) // {depth}, num_stages=2):
        {activations}
        copy(W[bx * 16:+16, ko * {packed}:+{packed}], packed[0:+16, 0:+{packed}])
        for j, k in parallel(16, {depth}):
            Ws[j, k] = cast({wide}, {value})
        gemm(As[0:+{m}, 0:+{depth}], Ws[0:+16, 0:+{depth}], acc[0:+{m}, 0:+16], trans_b=True, clear=False)
    copy(acc[0:+{m}, 0:+16], C[by * {m}:+{m}, bx * 16:+16])
"""
COPY = "copy(A[by * {m}:+{m}, ko * {depth}:+{depth}], As[0:+{m}, 0:+{depth}])"
PAIR = "(cast(int32, packed[j, k // 4]) >> k % 4 * 2 & 3)"
MOVED = "for i, k in parallel(1, 128):\n            As[i, k] = A[i, ko * 128 + k] + int8(1)"
NIBBLE = "(cast(int32, packed[j, k // 2]) >> k % 2 * 4 & 15)"
APART = "(cast(int32, packed[j, k // 32 * 16 + k % 16]) >> k % 32 // 16 * 4 & 15)"
SIGNED = "reinterpret(int8, (packed[j, k // 2] >> cast(uint8, k % 2 * 4) & uint8(15)) << uint8(4)) >> int8(4)"
#: Values of weights by the types that store them and their tile, how many a byte holds, and the number that
#: such bits are.
FORMS = {
    "offset": ("uint8", "int8", 2, f"{NIBBLE} - 8", lambda bits: bits - 8),
    "signed": ("uint8", "int8", 2, SIGNED, lambda bits: (bits ^ 8) - 8),
    "signed bytes": ("int8", "int8", 2, f"({NIBBLE} ^ 8) - 8", lambda bits: (bits ^ 8) - 8),
    "apart": ("uint8", "int8", 2, f"{APART} - 8", lambda bits: bits - 8),
    "pairs": (
        "uint8",
        "int8",
        4,
        f"{PAIR} - 2",
        lambda bits: bits - 2,
    ),
    "plain": ("uint8", "uint8", 2, NIBBLE, lambda bits: bits),
    "wide": ("uint8", "int8", 2, f"{NIBBLE} * 16 - 128", lambda bits: bits * 16 - 128),
}


def text(form: str, rows: int = 1, kind: str = "int8", depth: int = 128, **other: str) -> str:
    stored, wide, each, value, _ = FORMS[form]
    parts = {"activations": COPY.format(m=rows, depth=depth), "value": value} | other
    sizes = {"m": rows, "depth": depth, "each": each, "packed": depth // each}
    return TEXT.format(kind=kind, stored=stored, wide=wide, **sizes, **parts)


def turned(kernel: str, rows: int) -> str:
    """``kernel`` with the weights as the first operand: a result of ``rows`` columns at a time."""
    sums, there = f"acc[0:+{rows}, 0:+16]", f"acc[0:+16, 0:+{rows}]"
    activations, weights = re.search(r"gemm\((.*\]), (Ws.*\]), acc", kernel).groups()
    changed = {
        f'({rows}, 16), "local.fragment"': f'(16, {rows}), "local.fragment"',
        f"gemm({activations}, {weights}, {sums}": f"gemm({weights}, {activations}, {there}",
        sums: there,
        f"C[by * {rows}:+{rows}, bx * 16:+16]": f"C[bx * 16:+16, by * {rows}:+{rows}]",
        '(M, N), ("M", "N"), access="out"': '(N, M), ("N", "M"), access="out"',
    }
    for old, new in changed.items():
        assert old in kernel
        kernel = kernel.replace(old, new)
    return kernel


def _has_product(kernel: str, target: str = "x86-64-v3") -> bool:
    lowered = lower(parse_kernel(kernel), parse_target(target), until="sum_groups")
    return any(isinstance(stmt, Gemm) for stmt in walk(lowered.body))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rows", "kind"), [(1, "int8"), (8, "uint8")])
def test_few_rows_make_no_tile(form: str, rows: int, kind: str) -> None:
    assert not _has_product(text(form, rows, kind))


@pytest.mark.parametrize(
    ("parts", "target"),
    [
        ({"rows": 9}, "x86-64-v4+vnni"),
        ({"value": f"({NIBBLE} - 8) * cast(int32, S[bx * 16 + j])"}, "x86-64-v4+vnni"),
        ({"value": f"{NIBBLE} - cast(int32, S[bx * 16 + j])"}, "x86-64-v4+vnni"),
        ({"activations": MOVED}, "x86-64-v4+vnni"),
        ({"depth": 32}, "x86-64-v4+vnni"),
        ({}, "aarch64"),
    ],
)
def test_other_products_stay(parts: dict, target: str) -> None:
    """More rows, numbers that columns scale or move, activations that are not 0 beyond their tensor, steps
    that fill no vector, and targets without products of bytes."""
    assert _has_product(text("offset", **parts), target)


@pytest.mark.parametrize(
    ("rows", "known", "branches"), [(16, "", 3), (16, ", div=4", 2), (16, ", div=16", 0)]
)
def test_tiles_of_many_rows_tell_few_apart(rows: int, known: str, branches: int) -> None:
    kernel = text("offset", rows).replace("M = dim(int32)", f"M = dim(int32{known})")
    stmts = list(walk(lower(parse_kernel(kernel), parse_target("x86-64-v4"), until="sum_groups").body))
    assert sum(isinstance(stmt, If) for stmt in stmts) == branches


@pytest.mark.parametrize(
    ("target", "instruction"),
    [
        ("x86-64-v4+vnni", "vpdpbusd"),
        ("x86-64-v3+avxvnni", "vpdpbusd"),
        ("x86-64-v3", "vpmaddubsw"),
        ("aarch64+dotprod", "sdot"),
    ],
)
def test_instructions(target: str, instruction: str) -> None:
    """Numbers without a sign take one instruction a vector, also without VNNI."""
    parsed = parse_target(target)
    code = assembly(to_tir(lower(parse_kernel(text("offset")), parsed), parsed), parsed, "k")
    assert re.search(rf"\b{instruction}\b", code)


@parametrized(
    ("target", "rows", "kind", "forms"),
    [
        ("x86-64-v4+vnni", 1, "int8", ("offset",)),
        ("x86-64-v4+vnni", 1, "int8", ("pairs", "signed")),
        ("x86-64-v3", 2, "uint8", ("apart",)),
        ("x86-64-v2", 1, "int8", ("signed", "wide")),
        ("x86-64-v3", 1, "uint8", ("plain", "signed bytes")),
        ("x86-64-v4+vnni", 3, "uint8", ("apart", "signed bytes", "plain")),
        ("x86-64-v4", 16, "int8", ("offset",)),
        ("x86-64-v3", 8, "uint8", ("pairs", "wide")),
    ],
    fast=[("x86-64-v4+vnni", 1, "int8", ("offset",)), ("x86-64-v3", 2, "uint8", ("apart",))],
)
def test_sums_are_exact(target: str, rows: int, kind: str, forms: tuple[str, ...]) -> None:
    """Rows and columns that fill no tile, a K of several pieces whose last step is not whole, sums that begin
    at something, and the largest products of bytes."""
    library = Library({str(at): text(form, rows, kind) for at, form in enumerate(forms)}, target)
    rng, (n, k) = np.random.default_rng(0), (21, 8192 + 160)
    for at, form in enumerate(forms):
        stored, _, each, _, number = FORMS[form]
        w = rng.integers(np.iinfo(stored).min, np.iinfo(stored).max, (n, k // each), stored, endpoint=True)
        w[3], w[4] = np.iinfo(stored).min, np.iinfo(stored).max
        bits = 8 // each
        fields = (w.astype(np.int64)[..., None] >> np.arange(each) * bits) & (1 << bits) - 1
        if form == "apart":
            fields = fields.reshape(n, -1, 16, each).swapaxes(2, 3)
        dense = number(fields.reshape(n, k))
        for m in (1, rows + 5):
            a = rng.integers(np.iinfo(kind).min, np.iinfo(kind).max, (m, k), kind, endpoint=True)
            a[0] = np.iinfo(kind).min
            a[-1] = np.iinfo(kind).max
            c = np.zeros((m, n), np.int32)
            library.run(str(at), [a, w, np.zeros(n, np.int8), c], {"M": m, "N": n, "K": k})
            np.testing.assert_array_equal(c, a.astype(np.int64) @ dense.T + 5, err_msg=form)


def test_weights_may_be_the_first_operand() -> None:
    """One column and several; a tile of many tells few apart as others do."""
    kernel = turned(text("offset", 2), 2)
    assert not _has_product(kernel)
    assert _has_product(turned(text("offset", 9), 9))
    library = Library({"k": kernel}, "x86-64-v3")
    rng, (n, k) = np.random.default_rng(0), (21, 160)
    w = rng.integers(0, 256, (n, k // 2), np.uint8)
    dense = np.stack([w & 15, w >> 4], 2).reshape(n, k).astype(np.int64) - 8
    for m in (1, 3):
        a, c = rng.integers(-128, 128, (m, k), np.int8), np.zeros((n, m), np.int32)
        library.run("k", [a, w, np.zeros(n, np.int8), c], {"M": m, "N": n, "K": k})
        np.testing.assert_array_equal(c, dense @ a.T + 5)
