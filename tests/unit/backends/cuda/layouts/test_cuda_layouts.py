"""Layouts of CUDA lowering against the tables of the PTX manual and against enumeration."""

from __future__ import annotations

import itertools
import math

import pytest
from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import (
    accumulator_layout,
    coalesced,
    free_runs,
    operand_layout,
)
from tilec.backends.cuda.analysis.layouts.tiles import swizzled
from tilec.backends.cuda.analysis.products.wgmma import slabs
from tilec.backends.cuda.nodes import WarpTile
from tilec.ir.layout import Digit, Layout
from tilec.ir.layout_algebra import bank_conflicts, canonical, is_in_slabs, is_injective, places, select

TILE = WarpTile("m16n8k16", warps=(2, 2), tiles=(2, 4), steps=2)


def test_accumulators_lie_as_the_ptx_manual_says():
    layout = accumulator_layout(WarpTile("m16n8k16", (1, 1), (1, 1), 1))
    for lane, register in itertools.product(range(32), range(4)):
        row = lane // 4 + 8 * (register // 2)
        column = lane % 4 * 2 + register % 2
        place = places(layout, (row, column))
        assert (place["lane"], place["reg"]) == (lane, register)


def test_operands_lie_as_the_ptx_manual_says():
    layout = operand_layout(WarpTile("m16n8k16", (1, 1), (1, 1), 1))
    for lane, element in itertools.product(range(32), range(8)):
        row = lane // 4 + 8 * (element // 2 % 2)
        column = lane % 4 * 2 + element % 2 + 8 * (element // 4)
        place = places(layout, (row, column))
        assert (place["lane"], place["reg"]) == (lane, element)


def test_the_rows_of_a_lane_are_neighbours_where_a_tile_says_so():
    tile = WarpTile("m64n8k16", (4, 1), (1, 1), 1, paired=True)
    for layout in (accumulator_layout(tile), operand_layout(tile)):
        for row in range(64):
            place = places(layout, (row, 0))
            assert (place["warp"], place["lane"], place["reg"]) == (row // 16, row % 16 // 2 * 4, row % 2 * 2)


def test_warps_share_an_accumulator_without_overlap():
    layout = accumulator_layout(TILE, slices=(1, 2))
    assert layout.shape == (64, 128)
    seen = {tuple(sorted(places(layout, e).items())) for e in itertools.product(range(64), range(128))}
    assert is_injective(layout)
    assert len(seen) == 64 * 128


def test_an_accumulator_serves_as_the_next_operand():
    rows = WarpTile("m16n8k16", warps=(4, 1), tiles=(1, 8), steps=4)
    assert canonical(accumulator_layout(rows)) == canonical(operand_layout(rows))


def test_a_row_statistic_is_held_by_the_four_lanes_of_its_row():
    rows = select(accumulator_layout(TILE), [0])
    for row in range(64):
        place = places(rows, (row,))
        assert place["lane"] % 4 == 0
        assert place["reg"] == row // 8 % 4


def test_what_digits_leave_of_lanes_is_between_them_and_behind():
    rows = select(accumulator_layout(TILE), [0])
    assert free_runs(rows, "lane", 32) == [(1, 4)]
    assert free_runs(coalesced((4, 64), 1, 8), "lane", 32) == []
    assert free_runs(Layout(((Digit(2, 2, "lane"), Digit(2, 8, "lane")),)), "lane", 32) == [
        (1, 2),
        (4, 2),
        (16, 2),
    ]
    assert free_runs(Layout(((Digit(4, 1, "lane"), Digit(2, 2, "lane")),)), "lane", 32) == [(4, 8)]
    assert free_runs(Layout(((Digit(2, 4, "warp"),),)), "warp", 6) == []


@pytest.mark.parametrize("extents", [(4096,), (8, 1024), (3, 40), (5, 7), (1, 384), (128, 32), (64, 64)])
@pytest.mark.parametrize("warps", [1, 3, 4, 8])
def test_coalesced_layouts_reach_every_element_once(extents, warps):
    vector = 4 if extents[-1] % 4 == 0 else 1
    layout = coalesced(extents, warps, vector)
    assert is_injective(layout)
    assert all(have >= want for have, want in zip(layout.shape, extents, strict=True))
    for element in itertools.product(*(range(min(extent, 64)) for extent in extents)):
        place = places(layout, element)
        assert place.get("lane", 0) < 32
        assert place.get("warp", 0) < warps


@pytest.mark.parametrize(
    ("extents", "warps", "vector", "registers"),
    [
        ((5, 96), 4, 2, 6),
        ((3, 200), 8, 1, 3),
        ((56, 64), 8, 8, 16),
        ((200,), 8, 1, 1),
        ((9, 24), 4, 1, 3),
        ((5, 40), 4, 1, 3),
    ],
)
def test_warps_that_divide_no_dimension_take_their_part_of_it(extents, warps, vector, registers):
    """They had held copies of up to 21 elements in place of 3."""
    layout = coalesced(extents, warps, vector)
    assert is_injective(layout)
    assert (
        math.prod(digit.size for axis in layout.digits for digit in axis if digit.space == "reg") == registers
    )


@pytest.mark.parametrize(
    ("dtype", "size", "columns"),
    [("float16", 2, 32), ("float16", 2, 64), ("float16", 2, 128), ("float32", 4, 32), ("int8", 1, 64)],
)
def test_eight_rows_of_a_swizzled_tile_meet_no_bank_twice(dtype, size, columns):
    tile = tirx.decl_buffer((64, columns), dtype, name="tile", scope="shared.dyn")
    layout, chunk = swizzled(tile), 16 // size
    for first, column in itertools.product(range(0, 64, 8), range(0, columns, chunk)):
        addresses = [layout.offset((first + row, column)) for row in range(8)]
        assert bank_conflicts(addresses * 4, size, chunk) == 1
        assert all(address % chunk == 0 for address in addresses)


def test_a_narrow_tile_is_left_as_it_is():
    tile = tirx.decl_buffer((8, 5), "float32", name="tile", scope="shared.dyn")
    assert swizzled(tile).swizzle is None


def test_tiles_in_slabs_are_told_from_others():
    tile = tirx.decl_buffer((3, 128, 64), "float32", name="tile", scope="shared.dyn")
    assert is_in_slabs(slabs(tile))
    assert not is_in_slabs(swizzled(tile))
    assert not is_in_slabs(coalesced((64, 64), 4, 1))
