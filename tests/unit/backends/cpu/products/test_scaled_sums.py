"""Sums of each trip along K that are scaled on their way to those of all: few rows add up stored numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library
from test_group_bytes import NIBBLE

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.nodes import Alloc, Gemm, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("k")
M = dim(int32)
N = dim(int32)
K = dim(int32, div={div})
A = tensor({kind}, (M, K), ("M", "K"), access="in")
X = tensor(float32, (M, (K + {depth} - 1) // {depth}), ("M", "(K + {depth} - 1) // {depth}"), access="in")
W = tensor({stored}, (N, K // {each}), ("N", "K // {each}"), access="in")
S = tensor(float16, (N, (K + {depth} - 1) // {depth}), ("N", "(K + {depth} - 1) // {depth}"), access="in")
C = tensor(float32, (M, N), ("M", "N"), access="out")
with launch((N + 15) // 16, (M + {m} - 1) // {m}, threads=(128, 1, 1)) as (bx, by):
    As = alloc({kind}, ({m}, {depth}), "shared.dyn")
    packed = alloc({stored}, (16, {packed}), "shared.dyn")
    Ws = alloc({wide}, (16, {depth}), "shared.dyn")
    scales = alloc(float32, (16,), "shared.dyn")
    part = alloc({sums}, ({m}, 16), "local.fragment")
    acc = alloc(float32, ({m}, 16), "local.fragment")
    fill(acc[0:+{m}, 0:+16], 5.0)
    for ko in pipelined(0, (K + {depth} - 1) // {depth}, num_stages=2):
        copy(A[by * {m}:+{m}, ko * {depth}:+{depth}], As[0:+{m}, 0:+{depth}])
        copy(W[bx * 16:+16, ko * {packed}:+{packed}], packed[0:+16, 0:+{packed}])
        for j, k in parallel(16, {depth}):
            Ws[j, k] = cast({wide}, {value})
        {first}
        gemm(As[0:+{m}, 0:+{depth}], Ws[0:+16, 0:+{depth}], part[0:+{m}, 0:+16], trans_b=True, clear={clear})
        for j in parallel(16):
            scales[j] = cast(float32, S[bx * 16 + j, ko])
        for i, j in parallel({m}, 16):
            {update}
    copy(acc[0:+{m}, 0:+16], C[by * {m}:+{m}, bx * 16:+16])
"""
PART = "cast(float32, part[i, j])"
BOTH = f"acc[i, j] = acc[i, j] + {PART} * X[by * {{m}} + i, ko] * scales[j]"
NAMED = f"s = scales[j]\n            acc[i, j] = s * {PART} + acc[i, j]"
#: Values of weights by the type that stores them and how many that holds.
FORMS = {
    "nibbles": ("uint8", 2, f"{NIBBLE} - 8"),
    "bytes": ("int8", 1, "packed[j, k]"),
    "bytes without sign": ("uint8", 1, "packed[j, k]"),
}


def text(form: str, rows: int = 1, kind: str = "int8", depth: int = 128, **other: str) -> str:
    stored, each, value = FORMS[form]
    parts = {"div": depth, "sums": "int32", "first": "", "clear": "True", "update": BOTH.format(m=rows)}
    parts |= {"value": value, "wide": "uint8" if form == "bytes without sign" else "int8"}
    sizes = {"m": rows, "depth": depth, "each": each, "packed": depth // each}
    return TEXT.format(kind=kind, stored=stored, **sizes, **parts | other)


def _sums(kernel: str, target: str) -> tuple[int, int]:
    """How many sums of groups there are, and how many loops with a product."""
    stmts = list(walk(lower(parse_kernel(kernel), parse_target(target), until="sum_groups").body))
    sums = sum(isinstance(stmt, Alloc) and stmt.buffer.name == "planes" for stmt in stmts)
    return sums, sum(isinstance(stmt, Gemm) for stmt in stmts)


def _summed(kernel: str, target: str = "x86-64-v4+vnni") -> bool:
    """Whether tiles have sums of groups, with the loop beside them, and no loop alone."""
    sums, loops = _sums(kernel, target)
    return sums == loops


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("rows", "kind"), [(1, "int8"), (8, "uint8")])
def test_few_rows_add_up_stored_numbers(form: str, rows: int, kind: str) -> None:
    assert _summed(text(form, rows, kind))


CLEARED = {"first": "fill(part[0:+1, 0:+16], 0)", "clear": "False"}


@pytest.mark.parametrize("parts", [CLEARED, {"update": NAMED}, {"depth": 32, "div": 128}])
def test_other_ways_to_write_it(parts: dict) -> None:
    """A statement that clears, names and sides of a sum the other way round, groups that share lanes."""
    assert _summed(text("nibbles", **parts))


@pytest.mark.parametrize(
    "parts",
    [
        {"clear": "False"},
        {"clear": "ko == 0"},
        {"first": "fill(part[0:+1, 0:+16], 1)", "clear": "False"},
        {"update": f"acc[i, j] = acc[i, j] + {PART} / scales[j]"},
        {"update": f"acc[i, j] = acc[i, j] + {PART} * {PART}"},
        {"update": f"acc[i, j] = acc[i, j] * {PART}"},
        {"update": f"acc[i, j] = acc[i, 0] + {PART} * scales[j]"},
        {"update": "acc[i, j] = acc[i, j] + cast(float32, part[i, 15 - j])"},
        {"update": "acc[i, j] = acc[i, j] + cast(float32, cast(float16, part[i, j])) * scales[j]"},
        {"rows": 9},
    ],
)
def test_other_loops_stay(parts: dict) -> None:
    """Sums that go on from the trip before or begin elsewhere, what is no scaled sum of the element, what
    rounds it, and more rows."""
    assert not _summed(text("nibbles", **parts))


@pytest.mark.parametrize(
    ("form", "rows", "depth", "summed"),
    [("bytes", 1, 128, True), ("bytes", 2, 128, False), ("bytes", 4, 64, True), ("nibbles", 8, 128, True)],
)
def test_rows_by_pairs_of_bytes(form: str, rows: int, depth: int, summed: bool) -> None:
    """Without an instruction for whole words bytes of one number are for fewer rows."""
    assert _summed(text(form, rows, depth=depth), "x86-64-v3") == summed


def test_parts_that_something_else_reads_stay() -> None:
    behind = "\n    copy(acc[0:+1, 0:+16], C"
    kernel = text("nibbles")
    read = "\n    for j in parallel(16):\n        acc[0, j] = acc[0, j] + cast(float32, part[0, j])"
    assert behind in kernel
    assert not _summed(kernel.replace(behind, read + behind))


def test_tiles_of_many_rows_tell_few_apart() -> None:
    assert _sums(text("nibbles", 16), "x86-64-v4") == (3, 4)


def test_instructions() -> None:
    """A step of 128 weights: two products, which begin with what is held, and one multiply-add."""
    target = parse_target("x86-64-v4+vnni")
    code = assembly(to_tir(lower(parse_kernel(text("nibbles")), target), target), target, "k")
    held = re.search(
        r"vmovdqu64\t\S+, (%zmm\d+)(?:\n.*){2,9}vpdpbusd.*\1\n(?:.*\n){1,5}.*vpdpbusd.*\1\n", code
    )
    assert held
    assert re.search(r"vfmadd\w+\t\S*\(.*\{1to16\}", code)


FLOATS = {"sums": "float32", "wide": "float16", "value": f"cast(float16, {NIBBLE} - 8)"}


@parametrized(
    ("target", "rows", "kind", "depth", "forms"),
    [
        ("x86-64-v4+vnni", 1, "int8", 128, ("nibbles", "bytes")),
        ("x86-64-v4+vnni", 2, "int8", 32, ("nibbles", "bytes without sign")),
        ("x86-64-v4", 8, "uint8", 64, ("bytes", "nibbles")),
        ("x86-64-v3", 1, "int8", 64, ("nibbles", "bytes", "bytes without sign")),
        ("x86-64-v3", 16, "uint8", 128, ("nibbles", "bytes without sign")),
        ("x86-64-v2", 3, "int8", 32, ("nibbles", "bytes")),
        ("x86-64-v4", 1, "float16", 128, ("nibbles",)),
        ("x86-64-v3", 3, "float16", 32, ("nibbles",)),
    ],
    fast=[
        ("x86-64-v4+vnni", 1, "int8", 128, ("nibbles", "bytes")),
        ("x86-64-v3", 3, "float16", 32, ("nibbles",)),
    ],
)
def test_results(target: str, rows: int, kind: str, depth: int, forms: tuple[str, ...]) -> None:
    """Rows and columns that fill no tile, a K of several pieces, the largest products of bytes, sums that
    begin at something."""
    other = FLOATS if kind == "float16" else {}
    library = Library(
        {str(at): text(form, rows, kind, depth, **other) for at, form in enumerate(forms)}, target
    )
    rng, (n, k) = np.random.default_rng(0), (21, 8192 + 3 * 128)
    scales = rng.uniform(0.5, 1, (n, k // depth)).astype(np.float16)
    for at, form in enumerate(forms):
        stored, each, _ = FORMS[form]
        w = rng.integers(np.iinfo(stored).min, np.iinfo(stored).max, (n, k // each), stored, endpoint=True)
        w[3], w[4] = np.iinfo(stored).min, np.iinfo(stored).max
        dense = (
            np.stack([w & 15, w >> 4], 2).reshape(n, k).astype(np.int64) - 8 if each == 2 else w.astype(int)
        )
        for m in (1, rows + 5):
            a = _activations(rng, kind, (m, k))
            x = rng.uniform(0.5, 1, (m, k // depth)).astype(np.float32)
            c = np.zeros((m, n), np.float32)
            library.run(str(at), [a, x, w, scales, c], {"M": m, "N": n, "K": k})
            wanted = (a * x.astype(np.float64).repeat(depth, 1)) @ (dense * scales.repeat(depth, 1)).T + 5
            room = 1e-6 * np.abs(a.astype(np.float64)) @ np.abs(dense).T
            assert (np.abs(c - wanted) <= room + 1e-3).all(), form


#: Updates that add something of their own, and what that is for a row, its sum by ``x`` and ``s``.
OFFSETS = {
    "minima": (f"acc[i, j] = acc[i, j] + {PART} * {{x}} * scales[j] - scales[j] * 3.0", lambda x, s: -3 * s),
    "zeros": (f"acc[i, j] = acc[i, j] + ({PART} + 100.0) * scales[j] * {{x}}", lambda x, s: 100 * s * x),
    "turned": (
        f"acc[i, j] = (40.0 - {PART} * -1.0) * {{x}} * scales[j] + acc[i, j]",
        lambda x, s: 40 * s * x,
    ),
    "integers": (
        "acc[i, j] = acc[i, j] + cast(float32, 9 - (0 - part[i, j])) * {x} * scales[j]",
        lambda x, s: 9 * s * x,
    ),
}


@parametrized(
    ("target", "rows", "kind", "depth", "offsets"),
    [
        ("x86-64-v4+vnni", 2, "int8", 32, ("minima", "turned")),
        ("x86-64-v3", 1, "uint8", 128, ("integers", "zeros")),
        ("x86-64-v4", 16, "int8", 64, ("minima",)),
        ("x86-64-v3", 3, "float16", 128, ("zeros", "minima")),
    ],
    fast=[("x86-64-v4+vnni", 2, "int8", 32, ("minima", "turned"))],
)
def test_offsets(target: str, rows: int, kind: str, depth: int, offsets: tuple[str, ...]) -> None:
    """What each trip adds counts once, behind the last trip of a piece nothing does."""
    other = FLOATS if kind == "float16" else {}
    updates = {name: OFFSETS[name][0].format(x=f"X[by * {rows} + i, ko]") for name in offsets}
    kernels = {
        str(at): text("nibbles", rows, kind, depth, div=128, update=update, **other)
        for at, update in enumerate(updates.values())
    }
    assert rows > 8 or all(_summed(kernel, target) for kernel in kernels.values())
    library, rng = Library(kernels, target), np.random.default_rng(0)
    n, k = 21, 8192 + 3 * 128
    w = rng.integers(0, 256, (n, k // 2), np.uint8)
    dense = np.stack([w & 15, w >> 4], 2).reshape(n, k).astype(np.int64) - 8
    scales = rng.uniform(0.5, 1, (n, k // depth)).astype(np.float16)
    for at, name in enumerate(offsets):
        for m in (1, rows + 5):
            a, x = _activations(rng, kind, (m, k)), rng.uniform(0.5, 1, (m, k // depth)).astype(np.float32)
            c = np.zeros((m, n), np.float32)
            library.run(str(at), [a, x, w, scales, c], {"M": m, "N": n, "K": k})
            wanted = (a * x.astype(np.float64).repeat(depth, 1)) @ (dense * scales.repeat(depth, 1)).T + 5
            wanted += OFFSETS[name][1](x[:, None].astype(float), scales[None].astype(float)).sum(2)
            room = 1e-6 * np.abs(a.astype(np.float64)) @ np.abs(dense).T
            assert (np.abs(c - wanted) <= room + 0.05).all(), name


@parametrized(
    ("target", "rows", "kind", "depth"),
    [
        ("x86-64-v4+vnni", 1, "int8", 128),
        ("x86-64-v3", 2, "uint8", 32),
        ("x86-64-v4", 16, "int8", 64),
        ("x86-64-v3", 3, "float16", 128),
    ],
    fast=[("x86-64-v4+vnni", 1, "int8", 128)],
)
def test_infinite_scales(target: str, rows: int, kind: str, depth: int) -> None:
    """Of a column, of a row, and a trip's NaN: each meets the sum of its group, in which some lanes have
    nothing, and no other sum."""
    other = FLOATS if kind == "float16" else {}
    library = Library({"k": text("nibbles", rows, kind, depth, div=128, **other)}, target)
    n, k, rng = 21, 8192 + 128, np.random.default_rng(0)
    w = np.full((n, k // 2), 0x88, np.uint8)
    w[:, :: depth // 2] = 0x8A
    s = rng.uniform(0.5, 1, (n, k // depth)).astype(np.float16)
    s[2, 0], s[4, -1], s[6, 1] = np.inf, -np.inf, np.nan
    for m in (1, rows + 5):
        a, c = np.ones((m, k), kind), np.zeros((m, n), np.float32)
        x = rng.uniform(0.5, 1, (m, k // depth)).astype(np.float32)
        x[m // 2, -1] = np.inf if m > 1 else 1
        library.run("k", [a, x, w, s, c], {"M": m, "N": n, "K": k})
        wanted = 2 * x.astype(np.float64) @ s.astype(np.float64).T + 5
        np.testing.assert_allclose(c, wanted, rtol=1e-5)


def test_infinite_offsets() -> None:
    """An infinite minimum is added to sums that are finite."""
    update = f"acc[i, j] = acc[i, j] + {PART} * scales[j] - X[by + i, ko]"
    library = Library({"k": text("nibbles", update=update)}, "x86-64-v3")
    w, s = np.full((21, 128), 0x88, np.uint8), np.ones((21, 2), np.float16)
    a, x, c = np.ones((1, 256), np.int8), np.full((1, 2), np.inf, np.float32), np.zeros((1, 21), np.float32)
    library.run("k", [a, x, w, s, c], {"M": 1, "N": 21, "K": 256})
    np.testing.assert_array_equal(c, np.full((1, 21), -np.inf, np.float32))


def test_offsets_of_other_steps_stay() -> None:
    """A trip of two groups, which would both add what it adds."""
    minima = OFFSETS["minima"][0].format(x="X[by + i, ko]")
    assert not _summed(text("nibbles", depth=256, update=minima))


def _activations(rng: np.random.Generator, kind: str, shape: tuple[int, int]) -> np.ndarray:
    if kind == "float16":
        return rng.standard_normal(shape).astype(kind)
    bounds = np.iinfo(kind)
    found = rng.integers(bounds.min, bounds.max, shape, kind, endpoint=True)
    found[0], found[-1] = bounds.min, bounds.max
    return found


def test_weights_may_be_the_first_operand() -> None:
    """Sums of (N, M): scales of columns and rows change places."""
    kernel = text("nibbles", 2)
    product = "gemm(As[0:+2, 0:+128], Ws[0:+16, 0:+128], part[0:+2, 0:+16]"
    changed = {
        product: "gemm(Ws[0:+16, 0:+128], As[0:+2, 0:+128], part[0:+16, 0:+2]",
        '(2, 16), "local.fragment"': '(16, 2), "local.fragment"',
        "acc[0:+2, 0:+16]": "acc[0:+16, 0:+2]",
        "C[by * 2:+2, bx * 16:+16]": "C[bx * 16:+16, by * 2:+2]",
        "for i, j in parallel(2, 16)": "for j, i in parallel(16, 2)",
        "acc[i, j]": "acc[j, i]",
        "part[i, j]": "part[j, i]",
        '(M, N), ("M", "N"), access="out"': '(N, M), ("N", "M"), access="out"',
    }
    for old, new in changed.items():
        assert old in kernel
        kernel = kernel.replace(old, new)
    assert _summed(kernel)
    library, rng, (n, m, k) = Library({"k": kernel}, "x86-64-v3"), np.random.default_rng(0), (21, 3, 256)
    w, a = rng.integers(0, 256, (n, k // 2), np.uint8), rng.integers(-128, 128, (m, k), np.int8)
    s, x = rng.uniform(0.5, 1, (n, 2)).astype(np.float16), rng.uniform(0.5, 1, (m, 2)).astype(np.float32)
    c = np.zeros((n, m), np.float32)
    library.run("k", [a, x, w, s, c], {"M": m, "N": n, "K": k})
    dense = (np.stack([w & 15, w >> 4], 2).reshape(n, k).astype(np.int64) - 8) * s.repeat(128, 1).astype(
        float
    )
    np.testing.assert_allclose(c, dense @ (a * x.repeat(128, 1)).T + 5, rtol=1e-5, atol=0.1)
