"""Accesses with the same owner stay with one thread, by enumeration."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from agree import agree, elaborated
from tvm import tirx
from tvm.ir import Range

import tilec.language as T
from tilec.backends.cuda.analysis.accesses.owners import Known, in_loop, owner
from tilec.backends.cuda.analysis.layouts.fragments import coalesced
from tilec.backends.cuda.nodes import Sync, ThreadLoop
from tilec.backends.pipeline import lower
from tilec.ir.layout_algebra import places
from tilec.ir.nodes import Store, walk
from tilec.lowering.analysis.accesses import Access
from tilec.targets import parse_target

WARPS = 4
TILE = tirx.decl_buffer((64, 1024), "float32", name="t", scope="shared.dyn")
FLAT = tirx.decl_buffer((1 << 16,), "float32", name="f", scope="shared.dyn")
VARS = (tirx.Var("i", "int32"), tirx.Var("j", "int32"))
TRIP = tirx.Var("c", "int32")
KNOWN = Known(defined={TRIP})
#: (extents, vector) of loops over rows and columns.
LOOPS = [
    ((1, 1024), 8),
    ((1, 1024), 4),
    ((4, 256), 8),
    ((4, 256), 1),
    ((16, 64), 8),
    ((16, 64), 1),
    ((3, 64), 4),
]
BASES = (0, 1, 64, 256)


def case(extents: tuple[int, int], vector: int, base: int) -> tuple[ThreadLoop, Access]:
    """A loop that reads t[i, j + base * c]."""
    access = Access(TILE, (VARS[0], VARS[1] + TRIP * base), False)
    body = (Store(TILE, access.indices, tirx.const(0.0, "float32")),)
    return ThreadLoop(VARS, extents, coalesced(extents, WARPS, vector), body, vector), access


def threads(loop: ThreadLoop, base: int, trips: int) -> dict[tuple[int, int], set[tuple[int, int]]]:
    """Element to the threads that touch it."""
    found: dict[tuple[int, int], set[tuple[int, int]]] = {}
    for trip, row, column in itertools.product(range(trips), range(loop.extents[0]), range(loop.extents[1])):
        place = places(loop.layout, (row, column))
        thread = (place.get("warp", 0), place.get("lane", 0))
        found.setdefault((row, column + trip * base), set()).add(thread)
    return found


@pytest.mark.parametrize(("first", "second"), itertools.combinations_with_replacement(LOOPS, 2))
def test_equal_owners_are_one_thread(first, second):
    for bases in itertools.product(BASES, repeat=2):
        (one, access), (two, other) = (
            case(*which, base) for which, base in zip((first, second), bases, strict=True)
        )
        owners = (owner(access, one, WARPS, KNOWN), owner(other, two, WARPS, KNOWN))
        if owners[0] is None or owners[0] != owners[1]:
            continue
        left, right = threads(one, bases[0], 2), threads(two, bases[1], 2)
        assert all(len(left[key] | right[key]) == 1 for key in left.keys() & right.keys())


@pytest.mark.parametrize(("first", "second"), itertools.combinations_with_replacement(LOOPS, 2))
def test_equal_owners_of_a_flat_tile_are_one_thread(first, second):
    left, right = (flat_case(*which) for which in (first, second))
    owners = [owner(access, loop, WARPS, KNOWN) for loop, access in (left, right)]
    if owners[0] is None or owners[0] != owners[1]:
        return
    one, two = (flat_threads(loop) for loop, _ in (left, right))
    assert all(len(one[key] | two[key]) == 1 for key in one.keys() & two.keys())


def flat_case(extents: tuple[int, int], vector: int) -> tuple[ThreadLoop, Access]:
    """A loop that reads f[i * columns + j + all of them * c]."""
    index = VARS[0] * extents[1] + VARS[1] + TRIP * (extents[0] * extents[1])
    access = Access(FLAT, (index,), False)
    body = (Store(FLAT, (index,), tirx.const(0.0, "float32")),)
    return ThreadLoop(VARS, extents, coalesced(extents, WARPS, vector), body, vector), access


def flat_threads(loop: ThreadLoop) -> dict[int, set[tuple[int, int]]]:
    """Element to the threads that touch it in two trips."""
    rows, columns = loop.extents
    found: dict[int, set[tuple[int, int]]] = {}
    for trip, row, column in itertools.product(range(2), range(rows), range(columns)):
        place = places(loop.layout, (row, column))
        thread = (place.get("warp", 0), place.get("lane", 0))
        found.setdefault(row * columns + column + trip * rows * columns, set()).add(thread)
    return found


def test_a_flat_index_tells_its_variables():
    loop, access = flat_case((4, 256), 8)
    assert owner(access, loop, WARPS, KNOWN) is not None


def test_a_loop_knows_its_own_elements():
    for which in LOOPS[:3]:
        loop, access = case(*which, which[0][1])
        assert owner(access, loop, WARPS, KNOWN) is not None


def test_copies_and_shifted_elements_have_no_owner():
    loop, access = case((1, 64), 8, 0)  # eight lanes of one warp suffice: the others hold copies
    assert owner(access, loop, WARPS, KNOWN) is None
    stored = owner(replace(access, is_write=True), loop, WARPS, KNOWN)
    assert stored is not None  # one of those that have an element writes it
    assert stored != owner(*case((1, 1024), 8, 0)[::-1], WARPS, KNOWN)
    rows = Access(TILE, (VARS[0], tirx.const(0, "int32")), True)  # lanes of other columns write it, too
    assert owner(rows, loop, WARPS, KNOWN) is None
    loop, access = case((1, 1024), 8, 64)
    assert owner(access, loop, WARPS, KNOWN) is None


def test_a_base_may_be_what_blocks_and_trips_add_up_to():
    block, loop = tirx.Var("b", "int32"), case((1, 1024), 8, 0)[0]

    def of(base):
        return owner(Access(TILE, (VARS[0], base + VARS[1]), False), loop, WARPS, KNOWN)

    assert of(block % 4 * 4096 + TRIP * 1024) == of(block * 1024) != of(block % 4 * 512 + TRIP * 1024)
    assert of(block % 4 * 512 + TRIP * 512) is None
    assert of(block * 3 // 8 * 8 - block * 3) == of(TRIP * 1024 + block * 3 // 8 * 8 - block * 3)
    assert of(tirx.const(64, "int32")) not in (None, of(tirx.const(0, "int32")))
    assert of(block * 3) != of(tirx.Var("b", "int32") * 3)


def test_a_thread_may_have_chunks():
    inner = tirx.Var("v", "int32")
    known = Known(defined={TRIP, inner}, ends={inner: Range(0, 8)})
    loop = case((4, 128), 1, 0)[0]

    def of(*rest):
        access = Access(TILE, (VARS[0], sum(rest, VARS[1] * 8)), False)
        return owner(in_loop(access, loop, known), loop, WARPS, known)

    assert None is not of() == of(inner) == of(7 - inner, TRIP * 1024) == of(tirx.const(3, "int32"))
    assert of(inner * 2) is None
    assert of(inner, tirx.const(1, "int32")) is None
    assert of(TRIP) is None


def test_threads_that_hold_a_row_together_do_not_meet_to_store_it():
    @T.prim_func
    def main(X: T.Tensor((128, 64), "float32"), Y: T.Tensor((128,), "float32")):
        with T.Kernel(1, threads=128):
            x, total = T.alloc_fragment((32, 64), "float32"), T.alloc_fragment((32,), "float32")
            for k in T.serial(4):
                T.copy(X[k * 32, 0], x)
                T.reduce_sum(x, total, dim=1)
                for i in T.Parallel(32):
                    Y[k * 32 + i] = total[i]

    x = np.random.default_rng(0).integers(-9, 10, (128, 64)).astype(np.float32)
    agree(main, x, expected=x.sum(1))
    made = lower(elaborated(main, (x,), None, {}, {}), parse_target("sm_80"))
    assert not any(isinstance(stmt, Sync) for stmt in walk(made.launches[0].body))
