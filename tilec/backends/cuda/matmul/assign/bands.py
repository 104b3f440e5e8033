"""Bands of tiles: along which axis of the grid they go, and how many tiles they have.

Blocks that run together take the tiles of a band, column by column of it; what its rows load stays in L2.
On an H200, float16, tiles of 128 x 128 in turns, us for bands of 16 and of 8 tiles along the rows of C, and
of 16 and 8 along its columns:

M, N, K              16 rows  8 rows  16 columns  8 columns
8192, 8192, 8192     1541     1491    1686        1496
2048, 8192, 8192     369      367     387         372
8192, 2048, 8192     380      374     374         368
16384, 4096, 4096    737      739     777         733
4096, 4096, 4096     185      185     189         185
8192, 8192, 2048     366      373     395         370

Tiles of 128 x 256, which load three quarters as much for the same work, take 1413 and 1421 for the first of
these, 1451 and 1420 along columns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.matmul.nodes import TileOrder, WindowCopy
from tilec.ir.exprs import int_value, uses

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.matmul.match.launch import Match
    from tilec.ir.nodes import Copy, Launch
    from tilec.lowering.analysis.facts import Facts

#: Tiles of a band where the author asks for none (T.use_swizzle).
_BAND = 16
#: Bytes of a band's rows that L2 keeps beside what passes through it: half of an H200's.
PANEL = 25 << 20
#: Bytes that a tile loads for each element of a step of K, times its elements: 128 x 128 tiles of 16 bits.
_LOADS = 2 * (128 + 128) / (128 * 128)


def bands(launch: Launch, found: Match, facts: Facts, pair: int | None) -> TileOrder:
    """The order of tiles, without what blocks of a cluster share, which are neighbours along ``pair``."""
    schedule, rows = launch.schedule, _axis_of_rows(launch, found, facts)
    asked = schedule.band_order
    axis = _walked(launch, found, facts, rows) if asked is None else int(asked != "column")
    axis = min(axis, len(launch.grid) - 1)
    if schedule.band is not None or not schedule.pingpong or not _loads_much(found):
        return TileOrder(axis, schedule.band or _BAND)
    if asked is None and axis == rows and _paired_across(launch, rows, pair):
        return TileOrder(1 - rows, _BAND // 2)
    if axis != rows:
        return TileOrder(axis, 2 * _BAND if asked is None else _BAND // 2)
    return TileOrder(axis, _BAND, narrows=found.same_trips(launch))


def _axis_of_rows(launch: Launch, found: Match, facts: Facts) -> int:
    """The one of the first two axes along which A alone changes; the second where there is none, or operands
    are swapped."""
    if launch.schedule.swap:
        return 1
    a, b = (
        [start for copy in copies for start in _starts(copy, facts)]
        for copies in (found.firsts, found.seconds)
    )
    own = [
        axis
        for axis, var in enumerate(launch.block_vars[:2])
        if any(uses(start, (var,)) for start in a) and not any(uses(start, (var,)) for start in b)
    ]
    return own[0] if len(own) == 1 else 1


def _paired_across(launch: Launch, rows: int, pair: int | None) -> bool:
    """Whether pairs of blocks that the author or the config asks for share rows: bands of 8 go along them
    then (H200, tiles of 128 x 128: 1551 us at 8192^3, 1604 along the rows; 188.4 and 189.2 at 4096^3)."""
    return launch.schedule.clusters is not None and pair == 1 - rows


def _walked(launch: Launch, found: Match, facts: Facts, rows: int) -> int:
    """The axis of rows, or the other one where blocks along the rows leave: some blocks alone would have the
    work of a band. With half of the rows there, bands of 16 along rows and of 16 and 32 across them take, in
    us on an H200, 963, 822 and 814 (16 groups; M, N, K = 4096, 4096, 2048), 1546, 1371 and 1310 (8 groups;
    4096, 7168, 4096)."""
    guard = None if found.guard is None else facts.inline(found.guard)
    return 1 - rows if guard is not None and uses(guard, launch.block_vars[rows : rows + 1]) else rows


def _starts(copy: Copy | WindowCopy, facts: Facts) -> list[Expr]:
    """Where a load starts, without names."""
    return [facts.inline(start) for start in copy.src.start]


def _loads_much(found: Match) -> bool:
    """Whether a tile loads as much for its work as one of 128 x 128."""
    size = sum(rows * columns for rows, columns in found.shapes)
    rows = {gemm.a.buffer: int_value(gemm.c.extent[0]) or 0 for gemm in found.gemms}
    columns = {gemm.b.buffer: int_value(gemm.c.extent[1]) or 0 for gemm in found.gemms}
    return 2 * (sum(rows.values()) + sum(columns.values())) >= _LOADS * size
