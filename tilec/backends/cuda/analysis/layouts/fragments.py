"""Layouts of fragments: from instructions, and the coalesced default."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import TypeAlias

from tilec.backends.cuda.nodes import TensorTile, WarpTile
from tilec.ir.layout import Digit, Layout
from tilec.ir.layout_algebra import thread_terms

WARP, WARPS_OF_A_GROUP = 32, 4
#: Neighbouring lanes or warps that are taken together: the stride of the first digit, and their number.
Run: TypeAlias = tuple[int, int]
#: What padding for warps leaves a thread of its elements, at most: guards cost something, too.
_PADDED = 0.75
#: Neighbouring columns that one lane of an accumulator holds.
PAIR = 2


#: Which lane, register and warp have the 64 rows of an instruction of wgmma whose A lanes read across K, by
#: the bytes of its elements: two neighbours are those that the instruction has 8 rows apart. Of bytes a warp
#: has 16 rows, those of one chunk; of words those of four chunks of which half a warp reads two that meet no
#: bank twice.
ROWS_ACROSS = {
    1: (Digit(2, 2, "reg"), Digit(8, 4, "lane"), Digit(4, 1, "warp")),
    4: (
        Digit(2, 2, "reg"),
        Digit(2, 4, "lane"),
        Digit(2, 16, "lane"),
        Digit(2, 1, "warp"),
        Digit(2, 8, "lane"),
        Digit(2, 2, "warp"),
    ),
}


@singledispatch
def accumulator_layout(tile: WarpTile, slices: tuple[int, int] = (1, 1), across: int = 0) -> Layout:
    """The accumulator of mma.m16n8 or wgmma.m64 over all warps: a lane holds two neighbours of row lane // 4
    and two of the row 8 below (PTX ISA, "Matrix Fragments for mma.m16n8k16", "Register Fragments and Shared
    Memory Matrix Layouts" of wgmma). ``slices`` are rows and columns of products that lie side by side in one
    fragment, ``across`` the bytes of elements of A that lanes read across K."""
    rows, columns = tile.tiles
    count = rows * columns * 4
    rest = _row_digits(tile, columns * 4)
    i = (
        *((*ROWS_ACROSS[across], *rest[1:]) if across else (*_rows_of(tile, 2), *rest)),
        Digit(slices[0], count * slices[1], "reg"),
    )
    j = (
        Digit(PAIR, 1, "reg"),
        Digit(4, 1, "lane"),
        Digit(columns, 4, "reg"),
        Digit(tile.warps[1], _warp_step(tile), "warp"),
        Digit(slices[1], count, "reg"),
    )
    return Layout((i, j))


@accumulator_layout.register
def _tensor_layout(tile: TensorTile, slices: tuple[int, int] = (1, 1), across: int = 0) -> Layout:
    """Sums of tcgen05 as tcgen05.ld.16x256b brings them (PTX ISA, "tcgen05 Data Path Layout D"): a warp of a
    warpgroup reaches 32 rows of 128, which it has as two rows of instructions of mma.m16n8."""
    rows, columns = tile.tiles
    down, beside = tile.warps[0] // WARPS_OF_A_GROUP, tile.warps[1]
    i = (
        *_rows_of(tile, 2),
        Digit(rows, columns * 4, "reg"),
        Digit(WARPS_OF_A_GROUP, 1, "warp"),
        Digit(down, WARPS_OF_A_GROUP * beside, "warp"),
    )
    j = (
        Digit(PAIR, 1, "reg"),
        Digit(4, 1, "lane"),
        Digit(columns, 4, "reg"),
        Digit(beside, WARPS_OF_A_GROUP, "warp"),
    )
    return Layout((i, j))


def _rows_of(tile: WarpTile, stride: int) -> tuple[Digit, ...]:
    """Which lane and register have the 16 rows of a warp, the two of a lane ``stride`` registers apart."""
    lanes, own = Digit(8, 4, "lane"), Digit(2, stride, "reg")
    return (own, lanes) if tile.paired else (lanes, own)


def _warp_step(tile: WarpTile) -> int:
    """From a warp to the one beside it: in the next warpgroup, where these multiply."""
    return WARPS_OF_A_GROUP if tile.of_warpgroups else 1


def _row_digits(tile: WarpTile, stride: int) -> tuple[Digit, ...]:
    """Which warp and register hold the rows of a tile beyond the 16 of an instruction of mma.sync, registers
    of a row of instructions being ``stride`` apart."""
    down, across = tile.warps
    rows = tile.tiles[0]
    if not tile.of_warpgroups:
        return Digit(rows, stride, "reg"), Digit(down, across, "warp")
    return (
        Digit(WARPS_OF_A_GROUP, 1, "warp"),
        Digit(rows, stride, "reg"),
        Digit(down // WARPS_OF_A_GROUP, across * WARPS_OF_A_GROUP, "warp"),
    )


@singledispatch
def operand_layout(tile: WarpTile) -> Layout:
    """The A operand of mma.m16n8k16, and of wgmma, for all K of a product: elements of 16 and 8 bits as in
    an accumulator (the instruction has four neighbours of 8 bits in a lane, which lanes swap for it), of 32
    bits one in the place of two. Warps side by side along N hold copies."""
    depth = int(tile.instruction.rpartition("k")[2])
    pair = 1 if depth == 8 else 2
    count = tile.steps * depth // (4 * pair)
    i = (*_rows_of(tile, pair), *_row_digits(tile, count * 2 * pair))
    return Layout((i, (Digit(pair, 1, "reg"), Digit(4, 1, "lane"), Digit(count, 2 * pair, "reg"))))


def coalesced(extents: Sequence[int], warps: int, vector: int) -> Layout:
    """Neighbouring lanes hold neighbouring vectors of the last dimension; warps take leading dimensions where
    they divide them, the last one else; what is left goes to registers. Extents are padded: for warps where
    that leaves a thread well less to hold than warps with copies."""
    return extended(((),) * len(extents), extents, range(len(extents)), [(1, WARP)], [(1, warps)], vector)


def free_runs(layout: Layout, space: str, total: int) -> list[Run]:
    """What the digits of a layout leave of the ``total`` of a space: what is behind the last of them alone
    where they overlap, nothing where they do not divide it."""
    terms = [term for axis in range(len(layout.digits)) for term in thread_terms(layout, axis)]
    taken = sorted((term.stride, term.size) for term in terms if term.space == space)
    found: list[Run] = []
    end = 1
    for stride, size in taken:
        found.append((end, stride // end))
        if stride % end:
            found, end = [], max(stride * size for stride, size in taken)
            break
        end = stride * size
    return [run for run in (*found, (end, total // end)) if run[1] > 1] if total % end == 0 else []


def extended(
    fixed: Sequence[tuple[Digit, ...]],
    extents: Sequence[int],
    free: Sequence[int],
    lanes: Sequence[Run],
    warps: Sequence[Run],
    vector: int,
) -> Layout:
    """A layout whose dimensions ``free`` take some ``lanes`` and ``warps``, the others being ``fixed``."""
    parts: dict[int, list[Digit]] = {axis: [] for axis in free}
    counts = {axis: extents[axis] for axis in free}
    last = max(free)
    parts[last].append(Digit(vector, 1, "reg"))
    counts[last] = -(-counts[last] // vector)

    def take(axis: int, runs: Sequence[Run], space: str, most: int) -> list[Run]:
        """What a dimension leaves of the runs of which it takes ``most`` at most."""
        left: list[Run] = []
        for stride, size in runs:
            taken = math.gcd(size, most)
            parts[axis].append(Digit(taken, stride, space))
            counts[axis], most = -(-counts[axis] // taken), most // taken
            left.append((stride * taken, size // taken))
        return [run for run in left if run[1] > 1]

    for axis in sorted(free, reverse=True):
        lanes = take(axis, lanes, "lane", _power_above(counts[axis]))
    shares = _warps_along(counts, math.prod(size for _, size in warps))
    for axis in sorted(free):
        warps = take(axis, warps, "warp", shares[axis])
    stride = vector
    for axis in sorted(free, reverse=True):
        parts[axis].append(Digit(counts[axis], stride, "reg"))
        stride *= counts[axis]
    digits = [tuple(parts[axis]) if axis in parts else tuple(fixed[axis]) for axis in range(len(extents))]
    return Layout(tuple(digits))


def _warps_along(counts: Mapping[int, int], warps: int) -> dict[int, int]:
    """How many warps each dimension takes: as many as divide what it counts, the last one all that are left
    where it is long. Where others leave less than ``_PADDED`` of that to a thread, some of it padding, those
    that leave least, of nearly equal ones with few along the last, whose elements reductions combine."""
    exact, left = {}, warps
    for axis in sorted(counts):
        long = axis == max(counts) and counts[axis] >= left
        exact[axis] = left if long else math.gcd(left, counts[axis])
        left //= exact[axis]

    def held(shares: Mapping[int, int]) -> int:
        return math.prod(-(-count // shares[axis]) for axis, count in counts.items())

    ways = itertools.product((size for size in range(1, warps + 1) if warps % size == 0), repeat=len(counts))
    padded = [dict(zip(sorted(counts), way, strict=True)) for way in ways if warps % math.prod(way) == 0]
    least = min(held(shares) for shares in padded)
    if least >= _PADDED * held(exact):
        return exact
    near = (shares for shares in padded if held(shares) * _PADDED < least)
    return min(near, key=lambda shares: (shares[max(counts)], held(shares)))


def _power_above(count: int) -> int:
    """The least power of two that is at least ``count``."""
    return 1 << max(count - 1, 0).bit_length()
