"""Atomic updates where one call runs all blocks of a launch: stores, in vectors where lanes have elements of
their own; results are those of updates that others may come between."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import prod

import numpy as np
import pytest
from compiled import Library
from variant_code import compile_variant

from tilec.backends.pipeline import lower
from tilec.ir.exprs import int_value
from tilec.ir.interp import interpreter
from tilec.ir.nodes import Alloc, Atomic, Block, For, Parallel, Stmt, children, walk
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("{name}")
X = tensor(float32, (128, 64), ("128", "64"), access="in")
I = tensor(int32, (128,), ("128",), access="in")
Y = tensor(float32, (16, 65), ("16", "65"), access="inout")
W = tensor(int32, (16,), ("16",), access="inout")
with launch({blocks}, threads=(64, 1, 1)) as (bx,):
    for {loop}:
{body}
"""
ROWS, COUNTS, TRIPS = "j in parallel(64)", "i, j in parallel(32, 64)", "r in serial(0, 32, 1)"
#: Name to blocks, loop, and lines of its body.
BODIES = {
    "rows": (128, ROWS, ("atomic_add(Y[I[bx], j], X[bx, j])",)),
    "largest": (128, ROWS, ("atomic_max(Y[I[bx], j], X[bx, j])",)),
    "neighbours": (128, ROWS, ("atomic_add(Y[I[bx], j], X[bx, j])", "atomic_add(Y[I[bx], j + 1], X[bx, j])")),
    "masked": (128, ROWS, ("if X[bx, j] > cast(float32, 3):", "    atomic_add(Y[I[bx], j], X[bx, j])")),
    "places": (4, COUNTS, ("atomic_add(W[(I[bx * 32 + i] + j) % 16], 1)",)),
    "one": (4, COUNTS, ("atomic_add(W[3], 1)", "atomic_add(W[3], j)", "atomic_or(W[4], i)")),
    "row sums": (4, COUNTS, ("p = bx * 4 + i % 16", "atomic_add(Y[bx, i], X[bx * 32 + i, j])")),
    "column sums": (4, TRIPS, ("for j in parallel(64):", "    atomic_add(Y[bx, j], X[bx * 32 + r, j])")),
    "largest of rows": (4, COUNTS, ("e = bx * 32 + i", "atomic_max(Y[e // 8, e % 8], X[e, j])")),
    "some": (
        4,
        COUNTS,
        (
            "if bx * 32 + i < 100:",
            "    if X[bx * 32 + i, j] > cast(float32, 3):",
            "        atomic_add(W[i], 1)",
        ),
    ),
    "otherwise": (
        4,
        COUNTS,
        ("if i < 5:", "    atomic_or(W[i], j)", "else:", "    atomic_or(W[15], j % 4 * 64)"),
    ),
    "looked up": (4, COUNTS, ("atomic_min(Y[I[i], 1], X[bx * 32 + i, j])",)),
    "seen": (4, COUNTS, ("atomic_add(W[i % 16], 1)", "atomic_add(Y[0, W[0] % 8 * 0], X[bx, j])")),
    "columns": (4, COUNTS, ("row = I[bx * 32 + i]", "if j != 3:", "    atomic_add(Y[row, j + 1], X[bx, j])")),
    "own rows": (4, COUNTS, ("atomic_add(Y[bx, (i + j) % 65], X[bx, j])",)),
    "two columns": (128, ROWS, ("atomic_add(Y[I[bx], j], X[bx, j])", "atomic_add(Y[0, j], X[bx, j])")),
    "one name": (
        4,
        "n in serial(0, 2, 1)",
        (
            "for j in parallel(8):",
            "    atomic_add(Y[I[bx * 32 + n], bx * 8 + j], X[bx, j])",
            "for j in parallel(16):",
            "    atomic_add(W[j], n + bx)",
        ),
    ),
    "longer name": (4, "i, j in parallel(32, 9)", ("atomic_add(Y[I[i], bx * 8 + j], X[bx, j])",)),
    "exchange": (4, COUNTS, ("atomic_add(Y[0, j], Y[1, j % 3])", "atomic_add(Y[1, j % 3], Y[0, j])")),
}


def text(name: str, blocks: int | None = None) -> str:
    """One of the kernels."""
    usual, loop, lines = BODIES[name]
    body = "\n".join(f"        {line}" for line in lines)
    return TEXT.format(name=name, blocks=blocks or usual, loop=loop, body=body)


@cache
def library(name):
    return Library({name: text(name)}, "x86-64-v3")


@pytest.mark.parametrize("pieces", [1, 2, 3])
@pytest.mark.parametrize("name", BODIES)
def test_every_iteration_counts_once(name, pieces):
    rng = np.random.default_rng(len(name))
    x, at = rng.integers(-9, 9, (128, 64)).astype("float32"), rng.integers(-1, 18, 128).astype("int32")
    given = [x, at, np.ones((16, 65), "float32"), np.zeros(16, "int32")]
    if name == "exchange":
        given[2][:] = 0
    wanted = [array.copy() for array in given]
    interpreter.run(library(name).kernels[name], wanted, {})
    library(name).run(name, given, {}, pieces)
    for mine, theirs in zip(given, wanted, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_lanes_have_elements_of_their_own():
    notes = library("neighbours").notes("neighbours")
    assert any("vectors of 8 lanes" in note for note in notes)
    lost = [note for note in notes if "scalar" in note]
    assert lost
    assert all("where several threads share the blocks" in note for note in lost)


@pytest.mark.parametrize(
    ("name", "grid"),
    [
        ("rows", (2,)),
        ("largest", (2,)),
        ("masked", (2,)),
        ("columns", (2,)),
        ("own rows", (4,)),
        ("two columns", (2,)),
        ("neighbours", (128,)),
        ("places", (4,)),
        ("one name", (4,)),
        ("longer name", (4,)),
        ("exchange", (4,)),
    ],
)
def test_blocks_have_elements_of_their_own(name, grid):
    (launch,) = lower(parse_kernel(text(name)), parse_target("x86-64-v3")).launches
    assert launch.grid == grid
    is_usual = grid == (BODIES[name][0],) and name != "own rows"
    assert is_usual == any(isinstance(stmt, Atomic) for stmt in walk(launch.body))


@pytest.mark.parametrize("name", ["row sums", "column sums", "largest of rows", "some", "otherwise"])
def test_what_iterations_share_is_updated_once(name):
    kernel = lower(parse_kernel(text(name)), parse_target("x86-64-v3"))
    updates = [loops for stmt, loops in within(kernel.body, 1) if isinstance(stmt, Atomic)]
    assert updates
    assert all(trips <= 64 for trips in updates)


@pytest.mark.parametrize("name", ["neighbours", "places", "seen"])
def test_what_iterations_do_not_share_is_updated_where_it_was(name):
    kernel = lower(parse_kernel(text(name)), parse_target("x86-64-v3"))
    assert not any(isinstance(stmt, Alloc) for stmt in walk(kernel.body))


def within(block: Block, trips: int) -> Iterator[tuple[Stmt, int]]:
    """The statements of a block, each with how often it runs."""
    for stmt in block:
        yield stmt, trips
        counts = stmt.extents if isinstance(stmt, Parallel) else [stmt.stop] if isinstance(stmt, For) else []
        for inner in children(stmt):
            yield from within(inner, trips * prod(int_value(count) or 1 for count in counts))


def test_a_launch_of_one_block_has_no_atomic_instruction():
    image = compile_variant(parse_kernel(text("rows", blocks=1)), parse_target("x86-64-v3"), "k")
    assert not any("scalar" in str(road) for road in image.launches[0].roads)
    assert b"\xf0" + b"\x0f\xb1" not in image.code, "lock cmpxchg"


READS_ITS_OWN = """
kernel("turned")
X = tensor(float32, (128, 64), ("128", "64"), access="in")
I = tensor(int32, (128,), ("128",), access="in")
Z = tensor(float32, (128, 64), ("128", "64"), access="inout")
Y = tensor(float32, (16, 64), ("16", "64"), access="inout")
with launch(128, threads=(64, 1, 1)) as (bx,):
    for j in parallel(64):
        Z[bx, j] = X[bx, j]
    for j_1 in parallel(64):
        atomic_add(Y[I[bx], j_1], Z[bx, {column}])
"""


@pytest.mark.parametrize("column", ["j_1", "63 - j_1"])
def test_columns_stay_with_a_block_that_reads_what_it_has_stored(column):
    (launch,) = lower(parse_kernel(READS_ITS_OWN.format(column=column)), parse_target("x86-64-v3")).launches
    assert launch.grid == (128,)
