"""Blocks that are numbered row by row over tiles, the last row of them not whole, take them in bands of rows.

Blocks that run together then share rows and columns: of 132 consecutive tiles, 40 to a row, three or four
rows and 40 columns become 8 rows and 17 columns."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.idioms.grids.part_flat_grids import Parts, parts_of
from tilec.ir.exprs import as_expr, dtype_of
from tilec.ir.nodes import Bind, Gemm, Launch, walk
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.passes.base import LaunchPass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Rows of tiles of a band: what 8 of 128 rows load stays in L2 up to a K of 12000 in 16 bits
#: (`tilec.backends.cuda.matmul.assign.bands` has times).
_BAND = 8
_NOTE = "its blocks, numbered row by row over tiles, take them in bands of {} rows"


class WalkInBands(LaunchPass):
    """In: a launch of products over one axis that uses the block index n as n // c and n % c alone, not all
    rows of c blocks whole. Out: n stands for another tile: the whole rows go in bands, column by column of
    each; the last row follows."""

    def launch(self, launch: Launch) -> Launch:
        """The launch in bands."""
        if len(launch.grid) != 1 or launch.schedule.cluster_dims or launch.thread_vars:
            return launch
        if not any(isinstance(stmt, Gemm) for stmt in walk(launch.body)):
            return launch
        found = parts_of(launch, 0)
        return launch if found is None else _in_bands(launch, found, launch.schedule.band or _BAND)


def _in_bands(launch: Launch, found: Parts, rows: int) -> Launch:
    """The launch whose blocks find their tile in bands of so many rows."""
    (number,), (extent,) = launch.block_vars, launch.grid
    count = as_expr(extent, dtype_of(number))
    names = _place(number, found, count, rows)
    return with_notes(replace(launch, body=(*names, *found.body)), [_NOTE.format(rows)])


def _place(number: Var, found: Parts, count: Expr, rows: int) -> tuple[Bind, ...]:
    """Names for the row and the column of a block's tile, of ``count``: whole rows go in bands."""
    dtype, columns = dtype_of(number), found.divisor
    whole, first, at, height = (tirx.Var(name, dtype) for name in ("whole_rows", "first", "at", "height"))
    size, one, inside = tirx.const(rows, dtype), tirx.const(1, dtype), number < whole * columns
    return (
        Bind(whole, count // columns),
        Bind(first, number // (columns * size) * size),
        Bind(at, number % (columns * size)),
        Bind(height, tirx.max(tirx.min(size, whole - first), one)),
        Bind(found.quotient, tirx.Select(inside, first + at % height, number // columns)),
        Bind(found.remainder, tirx.Select(inside, at // height, number % columns)),
    )
