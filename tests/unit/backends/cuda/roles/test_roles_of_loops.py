"""Loops of launches whose statements tell the roles: boxes by lanes, loops joined, blocks that stay."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.nodes import BoxLoad, EachLane, EachTile
from tilec.backends.cuda.statement_roles.split.join_loops import joined
from tilec.backends.pipeline import lower
from tilec.ir.nodes import Bind, For, Kernel, Launch, Stmt, walk
from tilec.ir.nodes.barriers import WaitPhase
from tilec.ir.text.expr_printer import format_expr
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
HEAD = """kernel("kernel")
N = dim(int32)
A = tensor(float16, (N, 16, 128), ("N", "16", "128"), access="in")
B = tensor(float16, (128, 128), ("128", "128"), access="in")
table = tensor(int32, (N,), ("N",), access="in")
C = tensor(float32, (N, 128, 128), ("N", "128", "128"), access="out")
"""
LAUNCH = """with launch(N, 4, threads=(256, 1, 1)) as (bx, by):
    A_s = alloc(float16, (128, 64), "shared.dyn")
    B_s = alloc(float16, (128, 64), "shared.dyn")
    acc = alloc(float32, (128, 128), "local.fragment")
    fill(acc[0:+128, 0:+128], 0.0)
"""
PAGES = """    for k in pipelined(0, 2, num_stages=2):
        for p in serial(0, {count}, 1):
            page = table[bx + p]
            copy(A[page:+1, 0:+{rows}, k * 64:+64], A_s[p * {rows}:+{rows}, 0:+64])
        copy(B[0:+128, k * 64:+64], B_s[0:+128, 0:+64])
        gemm(A_s[0:+128, 0:+64], B_s[0:+128, 0:+64], acc[0:+128, 0:+128], trans_b=True, clear=False)
    copy(acc[0:+128, 0:+128], C[bx:+1, 0:+128, 0:+128])
"""
VECTORS = """    row = alloc(float32, (128,), "local.fragment")
    for k in pipelined(0, 2, num_stages=2):
        copy(A[bx:+128, by:+1, k * 64:+64], A_s[0:+128, 0:+64])
        copy(B[0:+128, k * 64:+64], B_s[0:+128, 0:+64])
        for i in parallel(128):
            row[i] = {value}
        gemm(A_s[0:+128, 0:+64], B_s[0:+128, 0:+64], acc[0:+128, 0:+128], trans_b=True, clear=False)
        for i, j in parallel(128, 128):
            acc[i, j] = acc[i, j] * row[i]
    copy(acc[0:+128, 0:+128], C[bx:+1, 0:+128, 0:+128])
"""
STEPS = """    steps = alloc(int32, ({count},), "shared.dyn")
    for k in pipelined(0, 2, num_stages=2):
        copy(table[bx * {count}:+{count}], steps[0:+{count}])
        copy(A[by:+128, 0:+1, k * 64:+64], A_s[0:+128, 0:+64])
        copy(B[0:+128, k * 64:+64], B_s[0:+128, 0:+64])
        gemm(A_s[0:+128, 0:+64], B_s[0:+128, 0:+64], acc[0:+128, 0:+128], trans_b=True, clear=False)
        for i, j in parallel(128, 128):
            acc[i, j] = acc[i, j] * cast(float32, steps[j // 32])
    copy(acc[0:+128, 0:+128], C[bx:+1, 0:+128, 0:+128])
"""
NEST = """with launch(1, threads=(128, 1, 1)) as (bx,):
    acc = alloc(float32, (128,), "local.fragment")
    for i in serial(0, 3, 1):
        for j in serial({start}, {stop}, 1):
            for t in parallel(128):
                acc[t] = {value}
"""


def roles(text: str) -> Launch:
    """The launch with its roles."""
    return lower(parse_kernel(HEAD + LAUNCH + text), SM90A, until="split_roles").launches[0]


def test_every_lane_brings_a_page() -> None:
    stmts: list[Stmt] = list(walk(roles(PAGES.format(count=8, rows=16)).body))
    ahead, load = (stmt for stmt in stmts if isinstance(stmt, EachLane))
    assert ahead.count == load.count == 8
    assert any("table" in format_expr(stmt.value) for stmt in walk(ahead.body) if isinstance(stmt, Bind))
    assert [stmt.alone for stmt in walk(load.body) if isinstance(stmt, BoxLoad)] == [True]
    assert not any("table" in format_expr(stmt.value) for stmt in load.body if isinstance(stmt, Bind))
    between = stmts[stmts.index(ahead) : stmts.index(load)]
    assert any(isinstance(stmt, WaitPhase) for stmt in between)


@pytest.mark.parametrize(
    ("value", "brought"),
    [
        ("cast(float32, table[k * 128 + i])", ["table_raw"]),
        ("if_then_else(k * 128 + i < N, cast(float32, table[k * 128 + i]), 0.0)", ["table_raw"]),
        ("cast(float32, table[k * 127 + i])", []),
        ("cast(float32, table[table[k * 128 + i]])", ["table_raw"]),
        ("cast(float32, table[k])", []),
    ],
)
def test_vectors_of_a_trip_come_by_tma(value: str, brought: list[str]) -> None:
    """At multiples of 16 bytes, and neighbours alone."""
    boxes = [stmt for stmt in walk(roles(VECTORS.format(value=value)).body) if isinstance(stmt, BoxLoad)]
    assert [str(stmt.dst.buffer.name) for stmt in boxes if len(stmt.dst.extent) == 2] == brought


@pytest.mark.parametrize(
    ("start", "stop", "value", "trips"),
    [
        ("0", "4", "1.0", "12"),
        ("1", "N", "1.0", "max(N - 1, 0) * 3"),
        ("0", "i", "1.0", None),
        ("0", "4", "cast(float32, j)", None),
        ("0", "4", "cast(float32, i)", None),
        ("0", "table[0]", "1.0", None),
    ],
)
def test_loops_that_only_repeat_are_one(start: str, stop: str, value: str, trips: str | None) -> None:
    kernel: Kernel = parse_kernel(HEAD + NEST.format(start=start, stop=stop, value=value))
    loops = [stmt for stmt in walk(joined(kernel.launches[0].body)) if isinstance(stmt, For)]
    found = format_expr(loops[0].stop) if len(loops) == 1 else None
    assert found == trips


@pytest.mark.parametrize(
    ("before", "stays"), [("", True), ("    copy(B[0:+128, 0:+64], B_s[0:+128, 0:+64])\n", False)]
)
def test_blocks_stay_where_all_loads_run_ahead(before: str, stays: bool) -> None:
    text = PAGES.format(count=8, rows=16)
    if before:
        line = next(line for line in text.splitlines(keepends=True) if "copy(B" in line)
        text = before + text.replace(line, "")
    found = [stmt for stmt in walk(roles(text).body) if isinstance(stmt, EachTile)]
    assert {stmt.band for stmt in found} == ({0} if stays else set())


@pytest.mark.parametrize("count", [8, 64])
def test_bands_are_of_one_tile_where_little_is_loaded_along_an_axis(count: int) -> None:
    """Even where a tile of the other axis is more bytes than all blocks load along this one."""
    found = [stmt for stmt in walk(roles(STEPS.format(count=count)).body) if isinstance(stmt, EachTile)]
    assert {stmt.band for stmt in found} == {1}
