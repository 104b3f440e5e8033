"""Accesses with the same owner stay with one thread, by enumeration."""

from __future__ import annotations

import itertools

import pytest
from tvm import tirx

from tilec.ir.layout_algebra import places
from tilec.ir.nodes import Store
from tilec.lowering.cpu.accesses import Access
from tilec.lowering.cuda.fragments import coalesced
from tilec.lowering.cuda.nodes import ThreadLoop
from tilec.lowering.cuda.owners import owner

WARPS = 4
TILE = tirx.decl_buffer((64, 1024), "float32", name="t", scope="shared.dyn")
VARS = (tirx.Var("i", "int32"), tirx.Var("j", "int32"))
TRIP = tirx.Var("c", "int32")
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
        owners = (owner(access, one, WARPS, {}), owner(other, two, WARPS, {}))
        if owners[0] is None or owners[0] != owners[1]:
            continue
        left, right = threads(one, bases[0], 2), threads(two, bases[1], 2)
        assert all(len(left[key] | right[key]) == 1 for key in left.keys() & right.keys())


def test_a_loop_knows_its_own_elements():
    for which in LOOPS[:3]:
        loop, access = case(*which, which[0][1])
        assert owner(access, loop, WARPS, {}) is not None


def test_copies_and_shifted_elements_have_no_owner():
    loop, access = case((1, 64), 8, 0)  # eight lanes of one warp suffice: the others hold copies
    assert owner(access, loop, WARPS, {}) is None
    loop, access = case((1, 1024), 8, 64)
    assert owner(access, loop, WARPS, {}) is None
