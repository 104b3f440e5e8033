"""Products that add to the same sums go through one register block after the other."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from aarch64 import QEMU, EmulatedLibrary
from compiled import Library

from tilec.backends.cpu.nodes import JoinedProducts, MicroGemm
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Alloc, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

#: Rows of bytes times two planes of bytes in two groups along K, each of which has its own scale.
TEXT = """
kernel("k")
M = dim(int32)
W = tensor(uint8, (40, 64), ("40", "64"), access="in")
A = tensor(int8, (M, 2, 64), ("M", "2", "64"), access="in")
S = tensor(float32, (40, 2), ("40", "2"), access="in")
C = tensor(float32, (40, M), ("40", "M"), access="out")
with launch((M + 47) // 48, threads=(128, 1, 1)) as (b,):
    w = alloc(uint8, (40, 64), "shared.dyn")
    high = alloc(int8, (48, 64), "shared.dyn")
    low = alloc(int8, (48, 64), "shared.dyn")
    total = alloc(float32, (40, 48), "local.fragment")
    fill(total[0:+40, 0:+48], 0.0)
    for t in serial(0, 2, 1):
        copy(W[0:+40, 0:+64], w[0:+40, 0:+64])
        copy(A[b * 48:+48, 0:+1, 0:+64], high[0:+48, 0:+64])
        copy(A[b * 48:+48, 1:+1, 0:+64], low[0:+48, 0:+64])
{groups}
    for j, i in parallel(40, 48):
        C[j, b * 48 + i] = total[j, i]
"""
GROUP = """
        s{g} = alloc(float32, (40,), "local.fragment")
        acc{g} = alloc(int32, (40, 48), "local.fragment")
        for j in parallel(40):
            s{g}[j] = S[j, {g}] * 2.0
        gemm(w[0:+40, {k}:+32], high[0:+48, {k}:+32], acc{g}[0:+40, 0:+48], trans_b=True, clear=True)
        for j, i in parallel(40, 48):
            acc{g}[j, i] = acc{g}[j, i] * 256
        gemm(w[0:+40, {k}:+32], low[0:+48, {k}:+32], acc{g}[0:+40, 0:+48], trans_b=True, clear=False)
        for j, i in parallel(40, 48):
            total[j, i] = cast(float32, acc{g}[j, i]) * s{g}[j] + total[j, i]
"""
#: What a group does if the second one's scale is a sum that the first one has made.
AFTER = GROUP.replace("S[j, {g}] * 2.0", "S[j, {g}] * 2.0 + total[j, 0] * 0.0")

#: Two products of floats over a depth of K each into the same sums.
FLOATS = """
kernel("k")
M = dim(int32)
A = tensor(float32, (M, 2, {k}), ("M", "2", "{k}"), access="in")
B = tensor(float32, (2, {k}, 96), ("2", "{k}", "96"), access="in")
C = tensor(float32, (M, 96), ("M", "96"), access="out")
with launch((M + 15) // 16, threads=(128, 1, 1)) as (b,):
    a = alloc(float32, (16, {k}), "shared.dyn")
    c = alloc(float32, (16, {k}), "shared.dyn")
    v = alloc(float32, ({k}, 96), "shared.dyn")
    w = alloc(float32, ({k}, 96), "shared.dyn")
    s = alloc(float32, (16, 96), "local.fragment")
    copy(A[b * 16:+16, 0:+1, 0:+{k}], a[0:+16, 0:+{k}])
    copy(A[b * 16:+16, 1:+1, 0:+{k}], c[0:+16, 0:+{k}])
    for k, j in parallel({k}, 96):
        v[k, j] = B[0, k, j] + 1.0
    for k, j in parallel({k}, 96):
        w[k, j] = B[1, k, j] * 2.0
    gemm(a[0:+16, 0:+{k}], v[0:+{k}, 0:+96], s[0:+16, 0:+96], clear=True)
    gemm(c[0:+16, 0:+{k}], w[0:+{k}, 0:+96], s[0:+16, 0:+96], clear=False)
    for i, j in parallel(16, 96):
        s[i, j] = s[i, j] - 1.0
    copy(s[0:+16, 0:+96], C[b * 16:+16, 0:+96])
"""
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+vnni")


def text(groups: Sequence[str] = (GROUP, GROUP)) -> str:
    return TEXT.format(groups="".join(part.format(g=g, k=32 * g) for g, part in enumerate(groups)))


def joined(source: str, target: str) -> list[list[MicroGemm]]:
    """The products of a kernel that are joined, those of each statement."""
    body = lower(parse_kernel(source), parse_target(target)).body
    return [list(stmt.parts) for stmt in walk(body) if isinstance(stmt, JoinedProducts)]


@pytest.mark.parametrize("target", [*TARGETS, "aarch64+dotprod"])
def test_planes_and_groups_are_one_loop_over_blocks(target: str) -> None:
    body = lower(parse_kernel(text()), parse_target(target)).body
    (found,) = (stmt for stmt in walk(body) if isinstance(stmt, JoinedProducts))
    assert len(found.parts) == 4
    places = {stmt.buffer.name: stmt.place for stmt in walk(body) if isinstance(stmt, Alloc)}
    assert places["acc0"] == places["acc1"] == "registers"
    assert places["total"] != "registers"


def test_products_with_work_between_them_that_reads_their_sums_stay_apart() -> None:
    assert [len(parts) for parts in joined(text((GROUP, AFTER)), "x86-64-v3")] == [2, 2]


@pytest.mark.parametrize(("depth", "count"), [(16, 2), (128, 2), (144, 0)])
def test_panels_that_the_first_cache_does_not_keep_stay_apart(depth: int, count: int) -> None:
    parts = [len(parts) for parts in joined(FLOATS.format(k=depth), "x86-64-v3")]
    assert parts == ([count] if count else [])


@pytest.mark.parametrize("target", TARGETS)
def test_results_are_those_of_products_one_by_one(target: str) -> None:
    library = Library({"k": text(), "apart": text((GROUP, AFTER))}, target)
    for M in (1, 15, 16, 33, 48, 70):
        operands, expected = case(M)
        for name in ("k", "apart"):
            found = np.full((40, M), np.nan, np.float32)
            library.run(name, [*operands, found], {"M": M})
            np.testing.assert_array_equal(found, expected, err_msg=f"{name} {M}")


@pytest.mark.parametrize("target", TARGETS[:3])
def test_results_of_floats(target: str) -> None:
    library, rng = Library({"k": FLOATS.format(k=16)}, target), np.random.default_rng(0)
    b = rng.integers(-4, 5, (2, 16, 96)).astype(np.float32)
    for M in (1, 7, 16, 37):
        a = rng.integers(-4, 5, (M, 2, 16)).astype(np.float32)
        found = np.full((M, 96), np.nan, np.float32)
        library.run("k", [a, b, found], {"M": M})
        np.testing.assert_array_equal(found, a[:, 0] @ (b[0] + 1) + a[:, 1] @ (2 * b[1]) - 1)


@pytest.mark.skipif(QEMU is None, reason="qemu-aarch64 (package qemu-user) is not installed")
def test_results_of_aarch64() -> None:
    library = EmulatedLibrary({"k": text()}, "aarch64")
    for M in (1, 33, 48):
        operands, expected = case(M)
        found = np.full((40, M), np.nan, np.float32)
        library.run("k", [*operands, found], {"M": M})
        np.testing.assert_array_equal(found, expected)


def case(M: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Operands whose sums are exact in float32, and the results."""
    rng = np.random.default_rng(M)
    w = rng.integers(0, 16, (40, 64)).astype(np.uint8)
    a = rng.integers(-3, 4, (M, 2, 64)).astype(np.int8)
    s = rng.integers(1, 4, (40, 2)).astype(np.float32)
    wide = a[:, 0].astype(np.int64) * 256 + a[:, 1]
    sums = (w.reshape(40, 1, 2, 32).astype(np.int64) * wide.reshape(1, M, 2, 32)).sum(axis=-1)
    return [w, a, s], (2 * 2 * sums * s[:, None]).sum(axis=-1).astype(np.float32)
