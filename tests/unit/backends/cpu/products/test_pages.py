"""Tiles of rows that lie where a table says: the next is asked for, nothing behind the table read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from compiled import Library
from memory_ends import at_the_end
from tvm import sym

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.cpu.nodes import AskAhead
from tilec.backends.cpu.products.tir import SECOND
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.exprs import int_value
from tilec.ir.guards import Guard
from tilec.ir.nodes import walk
from tilec.ir.text.parser import parse_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry
from tilec.targets import parse_target, runs_here

EXAMPLES = Path(__file__).resolve().parents[5] / "examples" / "kernels"

#: Four pages of eight rows a trip; the last trip has those that are left.
KERNEL = """
kernel("paged")
N = dim(int32)
pages = dim(int32)
table = tensor(int32, (N,), ("N",), access="in")
Q = tensor(float32, (8, 32), ("8", "32"), access="in")
K = tensor(float32, (pages, 8, 32), ("pages", "8", "32"), access="in")
V = tensor(float32, (pages, 8, 32), ("pages", "8", "32"), access="in")
Y = tensor(float32, (8, 32), ("8", "32"), access="out", output=True)
with launch(1, threads=(128, 1, 1)) as (b,):
    q = alloc(float32, (8, 32), "shared.dyn")
    k = alloc(float32, (32, 32), "shared.dyn")
    v = alloc(float32, (32, 32), "shared.dyn")
    s = alloc(float32, (8, 32), "local.fragment")
    o = alloc(float32, (8, 32), "local.fragment")
    copy(Q[0:+8, 0:+32], q[0:+8, 0:+32])
    fill(o[0:+8, 0:+32], 0.0)
    for t in serial(0, (N + 3) // 4, 1):
        for i, j in parallel(32, 32):
            k[i, j] = if_then_else(t * 4 + i // 8 < N, K[table[t * 4 + i // 8], i % 8, j], 0.0)
        gemm(q[0:+8, 0:+32], k[0:+32, 0:+32], s[0:+8, 0:+32], trans_b=True, clear=True)
        for i_1, j_1 in parallel(32, 32):
            v[i_1, j_1] = if_then_else(t * 4 + i_1 // 8 < N, V[table[t * 4 + i_1 // 8], i_1 % 8, j_1], 0.0)
        gemm(s[0:+8, 0:+32], v[0:+32, 0:+32], o[0:+8, 0:+32], clear=False)
    copy(o[0:+8, 0:+32], Y[0:+8, 0:+32])
"""


@pytest.fixture(scope="module")
def library() -> Library:
    level = "x86-64-v4" if runs_here(parse_target("x86-64-v4")) else "x86-64-v3"
    return Library({"paged": KERNEL}, level)


@pytest.mark.parametrize("pages", [1, 4, 5, 11])
def test_pages_in_any_order(library: Library, pages: int) -> None:
    rng = np.random.default_rng(pages)
    q, (k, v) = rng.random((8, 32), np.float32), rng.random((2, 12, 8, 32), np.float32)
    table, found = rng.integers(0, 12, pages).astype(np.int32), np.empty((8, 32), np.float32)
    library.run("paged", [at_the_end(table), q, k, v, found], {"N": pages, "pages": 12})
    keys, values = (rows[table].reshape(-1, 32) for rows in (k, v))
    np.testing.assert_allclose(found, q @ keys.T @ values, rtol=1e-4)


@pytest.mark.parametrize("target", ["x86-64-v3", "x86-64-v4", "aarch64"])
def test_tiles_ask_for_the_next_ones(target: str) -> None:
    made_for = parse_target(target)
    text = tir_text(to_tir(lower(parse_kernel(KERNEL), made_for), made_for), made_for, "k")
    assert set(re.findall(r'llvm\.prefetch", T\.address_of\(([A-Z])', text)) >= {"K", "V"}


def test_values_of_a_head_ask_for_those_of_the_next_block() -> None:
    """Rows of a head are pieces of longer ones; blocks of 128 keys come last first."""
    entry = load_entry("attention.py:attention", EXAMPLES)
    names = ("B", "Sq", "Sk", "H", "Hkv", "q_batch", "q_row", "kv_batch", "kv_row")
    dims = {**{name: Guard() for name in names}, "D": Guard(eq=64)}
    kernel = elaborate(entry, name="kernel", dims=dims, args={}, config={"bM": 128, "bN": 128})
    lowered = lower(kernel, parse_target("x86-64-v4"))
    asked = [stmt for stmt in walk(lowered.body) if isinstance(stmt, AskAhead)]
    assert {(str(stmt.buffer.name), stmt.near) for stmt in asked} == {("V", SECOND)}
    further = (sym.Analyzer().simplify(stmt.ahead[1] - stmt.indices[1]) for stmt in asked)
    assert {int_value(rows) for rows in further} == {-128}


#: Each row of v is a sum of two, of which a variable of the loop inside says where they lie.
TAPS = """
        for i_1, j_1 in parallel(32, 32):
            v[i_1, j_1] = 0.0
            for tap in unroll(0, 2, 1):
                v[i_1, j_1] = v[i_1, j_1] + V[table[t + tap], i_1 % 8, j_1]"""


def test_what_a_loop_inside_alone_knows_is_not_asked_for() -> None:
    before, behind = KERNEL.split("\n        for i_1, j_1")
    kernel = parse_kernel(before + TAPS + behind[behind.index("\n        gemm") :])
    lowered = lower(kernel, parse_target("x86-64-v3"))
    assert {stmt.buffer.name for stmt in walk(lowered.body) if isinstance(stmt, AskAhead)} <= {"K"}


#: Rows of bytes that a table names, times a scale.
SCALED = """
kernel("scaled")
rows = dim(int32)
table = tensor(int32, (8,), ("8",), access="in")
X = tensor(int8, (rows, 32), ("rows", "32"), access="in")
S = tensor(float32, (8,), ("8",), access="in")
Y = tensor(float32, (8, 32), ("8", "32"), access="out", output=True)
with launch(1, threads=(128, 1, 1)) as (b,):
    for i, j in parallel(8, 32):
        Y[i, j] = cast(float32, X[table[i], j]) * S[i]
"""


@pytest.mark.parametrize("level", ["x86-64-v3", "x86-64-v4"])
def test_zeros_of_rows_that_are_not_there_meet_their_scale(level: str) -> None:
    """Infinities and NaN times zero are NaN, a negative scale makes the zero negative."""
    table, scales = np.int32([0, 9, -1, 2, 9, 9, 1, 0]), np.float32([2, np.inf, np.nan, np.inf, 3, -3, -1, 1])
    x, y = np.arange(96, dtype=np.int8).reshape(3, 32) + np.int8(1), np.zeros((8, 32), np.float32)
    Library({"scaled": SCALED}, level).run("scaled", [table, x, scales, y], {"rows": 3})
    there = (table >= 0) & (table < 3)
    with np.errstate(invalid="ignore"):
        expected = (
            np.where(there[:, None], x[np.where(there, table, 0)], 0).astype(np.float32) * scales[:, None]
        )
    np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(np.signbit(y[5]), True)
