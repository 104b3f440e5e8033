"""Tiles of rings in shared memory: sizes, places, and the layout that TMA writes and wgmma reads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value
from tilec.ir.layout import Digit, Layout, Swizzle
from tilec.lowering.emission.memory import whole_units
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tvm.ir import Var

#: Tiles in the pattern of 128 bytes begin at multiples of it, as its rows repeat after eight.
TILE_ALIGNMENT = 1024
#: Rows after which the pattern repeats.
GROUP_ROWS = 8


def tile_bytes(tile: Var) -> int:
    """Bytes of one version of a tile."""
    return math.prod(int_value(extent) or 1 for extent in tile.shape) * element_bytes(str(tile.dtype))


def slab_shape(tile: Var, halves: bool) -> tuple[int, int]:
    """Rows and columns that one version of an operand takes: rows end with a slab of 128 bytes, and there is
    a whole number of groups in each of their ``halves``. Products read what there is."""
    rows, columns = (int_value(extent) or 1 for extent in tile.shape)
    slab = ROW_BYTES // element_bytes(str(tile.dtype))
    return 2 * half_rows(rows) if halves else rows, -(-columns // slab) * slab


def half_rows(rows: int) -> int:
    """Rows that one block of a pair brings, in groups of the eight after which the swizzle repeats."""
    return -(-rows // (2 * GROUP_ROWS)) * GROUP_ROWS


def version_bytes(tile: Var, halves: bool) -> int:
    """Bytes of one version of an operand in a ring."""
    rows, columns = slab_shape(tile, halves)
    return rows * columns * element_bytes(str(tile.dtype))


def stage_bytes(tile: Var) -> int:
    """Bytes of one version of a tile whose first axis are its versions."""
    return tile_bytes(tile) // (int_value(tile.shape[0]) or 1)


def place_tiles(
    tiles: Iterable[Var], together: Sequence[Sequence[Var]]
) -> tuple[dict[Var, int], dict[Var, int], int]:
    """Where ``tiles`` begin in shared memory, aligned and one behind the other; the bytes from one of their
    versions to the next; the byte behind the last. Of tiles ``together`` each version lies behind that of the
    one before it."""
    at, places, steps = 0, {}, {}
    for tile in tiles:
        if tile in places:
            continue
        group = next((found for found in together if tile in found), (tile,))
        step, inside = sum(map(stage_bytes, group)), 0
        for each in group:
            places[each], steps[each] = at + inside, step
            inside += stage_bytes(each)
        at += whole_units(sum(map(tile_bytes, group)), TILE_ALIGNMENT)
    return places, steps, at


def tile_layout(shape: tuple[int, ...], dtype: str) -> Layout:
    """(stages, rows, columns) in slabs of 128 bytes of columns, all rows of a slab one below the other, the
    eight 16-byte chunks of a row swapped by the row's number."""
    row = ROW_BYTES // element_bytes(dtype)
    stages, rows, columns = shape
    slabs = columns // row
    digits = (
        (Digit(stages, rows * columns),),
        (Digit(rows, row),),
        (Digit(row, 1), Digit(slabs, rows * row)),
    )
    return Layout(digits, Swizzle(width=8, unit=row // 8, row=row))
