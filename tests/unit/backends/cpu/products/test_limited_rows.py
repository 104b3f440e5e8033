"""Rows that a branch around their store leaves out are not computed: those behind a sequence of a batch."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import Library
from tile_unit import as_here, emulated_tiles

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.pipeline import lower
from tilec.ir.exprs import int_value
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

#: Sequences back to back, two products for each row, blocks of 32 rows of one sequence.
TEXT = """
kernel("ragged")
tokens = dim(int32)
B = dim(int32)
bounds = tensor(int32, (B + 1,), ("B + 1",), access="in")
longest = scalar(int32)
X = tensor(bfloat16, (tokens, 32), ("tokens", "32"), access="in")
W = tensor(bfloat16, (32, 32), ("32", "32"), access="in")
V = tensor(bfloat16, (32, 32), ("32", "32"), access="in")
Y = tensor(float32, (tokens, 32), ("tokens", "32"), access="out")
with launch((longest + 31) // 32, B, threads=(128, 1, 1)) as (bx, b):
    x = alloc(bfloat16, (32, 32), "shared.dyn")
    w = alloc(bfloat16, (32, 32), "shared.dyn")
    v = alloc(bfloat16, (32, 32), "shared.dyn")
    s = alloc(float32, (32, 32), "local.fragment")
    p = alloc(bfloat16, (32, 32), "local.fragment")
    o = alloc(float32, (32, 32), "local.fragment")
    top = alloc(float32, (32,), "local.fragment")
    first = bounds[b]
    count = bounds[b + 1] - first
    for i, j in parallel(32, 32):
        x[i, j] = if_then_else(first + bx * 32 + i < tokens, X[first + bx * 32 + i, j], bfloat16(0.0))
    copy(W[0:+32, 0:+32], w[0:+32, 0:+32])
    copy(V[0:+32, 0:+32], v[0:+32, 0:+32])
    gemm(x[0:+32, 0:+32], w[0:+32, 0:+32], s[0:+32, 0:+32], clear=True)
    for i, j in parallel(32, 32):
        s[i, j] = if_then_else(j < 30, s[i, j], 0.0)
    for i in parallel(32):
        top[i] = 0.0
    for i, j in parallel(32, 32):
        top[i] = max(top[i], s[i, j])
    for i, j in parallel(32, 32):
        p[i, j] = cast(bfloat16, s[i, j] * 2.0)
    gemm(p[0:+32, 0:+32], v[0:+32, 0:+32], o[0:+32, 0:+32], clear=True)
    {last}
"""
STORE = """for i, j in parallel(32, 32):
        if {cond}:
            Y[first + bx * 32 + i, j] = o[i, j] + top[i]
"""
BRANCH = STORE.format(cond="bx * 32 + i < count")
#: All rows of a block go to a tensor as well, which keeps those behind the sequence.
BOTH = (
    BRANCH
    + """    for i in parallel(32):
        Y[first + bx * 32 + i, 0] = top[i]
"""
)
#: Of one row the others are taken.
ACROSS = """for i in parallel(32):
        top[i] = o[31 - i, 0]
    """ + BRANCH  # fmt: skip
#: What a sequence begins with, found by a loop: known in front of all that is done to rows.
FOUND = """at = alloc(int32, (1,), "local.var")
    for g in serial(0, B, 1):
        if g == b:
            at[0] = bounds[g]
    first = at[0]
"""
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4", "x86-64-v4+vnni+avx512bf16")


def text(last: str = BRANCH, *, searched: bool = False) -> str:
    made = TEXT.format(last=last)
    return made.replace("first = bounds[b]\n", FOUND) if searched else made


def limited(source: str) -> list[bool]:
    """Whether each product computes as many rows as a run tells."""
    body = lower(parse_kernel(source), parse_target("x86-64-v4")).body
    return [int_value(stmt.rows) is None for stmt in walk(body) if isinstance(stmt, MicroGemm)]


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (BRANCH, [True, True]),
        (STORE.format(cond="cast(int64, bx * 32 + i) < cast(int64, count) and j < 16"), [True, True]),
        (BOTH, [False, False]),
        (ACROSS, [False, False]),
        (STORE.format(cond="bx * 32 + i < count or j < 16"), [False, False]),
        (STORE.format(cond="count > bx * 32 + j"), [False, False]),
        (STORE.format(cond="cast(float32, bx * 32 + i) < cast(float32, count) * 0.5"), [False, False]),
        (STORE.format(cond="cast(int16, bx * 32 + i) < cast(int16, count)"), [False, False]),
    ],
)
def test_a_branch_says_which_rows_count(last: str, expected: list[bool]) -> None:
    assert limited(text(last)) == expected


def test_names_are_known_in_front_of_what_is_done_to_rows() -> None:
    assert limited(text(searched=True)) == [True, True]
    early = "    count = bounds[b + 1] - first\n"
    late = (
        text()
        .replace(early, "")
        .replace("    for i in parallel(32):\n", f"{early}    for i in parallel(32):\n", 1)
    )
    assert limited(late) == [False, False]


@pytest.mark.parametrize("target", TARGETS)
def test_results_of_sequences_of_any_length(target: str) -> None:
    if not runs_here(parse_target(target)):
        pytest.skip(f"this machine does not run {target}")
    check(Library({"k": text(), "searched": text(searched=True)}, target))


def test_results_of_an_emulated_matrix_unit() -> None:
    with emulated_tiles():
        check(Library({"k": text()}, as_here(parse_target("x86-64-v4+amx"))))


def check(library: Library) -> None:
    """Batches whose sequences have no row, one, a part of a block, several blocks."""
    rng = np.random.default_rng(0)
    for lengths in ((1,), (5, 32, 33, 0, 70), (31, 2, 64)):
        bounds = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        x, w, v = (
            rng.integers(-2, 3, (rows, 32)).astype(ml_dtypes.bfloat16) for rows in (sum(lengths), 32, 32)
        )
        dims = {"tokens": sum(lengths), "B": len(lengths)}
        s = x.astype(np.float32) @ w.astype(np.float32) * (np.arange(32) < 30)
        p = (2 * s).astype(ml_dtypes.bfloat16).astype(np.float32)
        expected = p @ v.astype(np.float32) + np.maximum(s.max(axis=1, keepdims=True), 0)
        for name in library.images:
            found = np.full((sum(lengths), 32), np.nan, np.float32)
            library.run(name, [bounds, max(lengths), x, w, v, found], dims)
            np.testing.assert_array_equal(found, expected, err_msg=f"{name} {lengths}")
