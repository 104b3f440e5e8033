"""Numbers of elements that a loop takes apart: lanes lie side by side where dims are multiples of them, or
row by row where rows have some vectors, and go one by one elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import LEVELS, Library
from told import roads

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

TEXT = """
kernel("scaled")
M = dim(int32)
N = dim(int32)
X = tensor(float32, (3, M, N), ("3", "M", "N"), access="in")
G = tensor(float32, (M, N), ("M", "N"), access="in")
Y = tensor(float32, (3, M, N), ("3", "M", "N"), access="out")
with launch((3 * M * N + 127) // 128, threads=(64, 1, 1)) as (bx,):
    for i in parallel(128):
        p = bx * 128 + i
        if p < 3 * M * N:
            c = p // N % M
            Y[p // (M * N), c, p % N] = X[p // (M * N), c, p % N] * G[c, p % N]
"""


@pytest.mark.parametrize("level", LEVELS)
def test_flat_indices_find_their_elements(level: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    library, rng = Library({"scaled": TEXT}, level), np.random.default_rng(0)
    found = roads(library.images["scaled"].launches[0])
    assert {road.kind for road in found} == {"vectors"}
    assert not any(road.loss for road in found), "what short rows lose is no loss"
    assert any(road.instruction.startswith("loop over i is scalar where rows have fewer") for road in found)
    for m, n in ((1, 1), (2, 16), (3, 50), (5, 48), (16, 4), (7, 128), (5, 33), (2, 301), (40, 3)):
        x, g = rng.random((3, m, n), np.float32), rng.random((m, n), np.float32)
        y = np.full_like(x, np.nan)
        library.run("scaled", [x, g, y], {"M": m, "N": n})
        np.testing.assert_array_equal(y, x * g)


#: Rows whose lengths are known: a bias, and rows that end inside of a block, by a name and without.
KNOWN = """
kernel("known")
X = tensor(float32, (3, 7, {n}), ("3", "7", "{n}"), access="in")
B = tensor(float32, ({n},), ("{n}",), access="in")
Y = tensor(float32, (3, 7, {n}), ("3", "7", "{n}"), access="out")
Z = tensor(float32, (21, {n}), ("21", "{n}"), access="out")
with launch((21 * {n} + 127) // 128, threads=(64, 1, 1)) as (bx,):
    for i in parallel(128):
        p = bx * 128 + i
        if p < 21 * {n}:
            Y[p // (7 * {n}), p // {n} % 7, p % {n}] = X[p // (7 * {n}), p // {n} % 7, p % {n}] * B[p % {n}]
            z = p % (7 * {n}) + bx
            Z[(bx * 128 + i) // {n}, (bx * 128 + i) % {n}] = B[p % {n}] + cast(float32, z) + cast(float32, i)
"""
LENGTHS = (3, 17, 31, 50, 129, 301)


@pytest.mark.parametrize("level", LEVELS)
def test_rows_of_known_lengths(level: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    library = Library({f"k{n}": KNOWN.format(n=n) for n in LENGTHS}, level)
    for n in LENGTHS:
        x, b = (np.arange(size, dtype="float32").reshape(-1, n) for size in (21 * n, n))
        y, z = np.full((3, 7, n), np.nan, "float32"), np.full((21, n), np.nan, "float32")
        library.run(f"k{n}", [x.reshape(3, 7, n), b[0], y, z], {})
        p = np.arange(21 * n)
        np.testing.assert_array_equal(y.ravel(), x.ravel() * b[0][p % n])
        np.testing.assert_array_equal(z.ravel(), b[0][p % n] + p % (7 * n) + p // 128 + p % 128)


@pytest.mark.parametrize(("n", "by_rows"), [(50, True), (64, False), (9, False)])
def test_rows_of_some_vectors_have_loops_of_their_own(n: int, by_rows: bool) -> None:
    target = parse_target("x86-64-v3")
    kernel = parse_kernel(KNOWN.format(n=n))
    text = tir_text(to_tir(lower(kernel, target), target), target, "k")
    assert ("i_row" in text) is by_rows
