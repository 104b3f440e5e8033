"""Where a lane reads in a shared tile: worked out once, all other places being constant distances away.

A place is ``start + (column ^ phase)``: the swizzle flips bits of the column by the row. A distance in rows
that is a multiple of the swizzle's period leaves the phase as it is, and one in columns whose bits are zero
in every lane's column flips or adds those bits alone. So a product needs an address per distinct flip, not
per load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.emit.memory import SharedStorage
from tilec.backends.cuda.emit.numbers.unsigned import Unsigned

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.ir.layout import Swizzle
    from tilec.ir.nodes import Region

#: A start that is known as an expression, and a number that divides it (0: it is zero).
Start = tuple["Expr", int]


@dataclass(frozen=True, eq=False)
class LanePlace:
    """``binds`` define ``start`` and ``column``; `pointer` is the address some rows and columns further."""

    binds: tuple[tirx.Stmt, ...]
    data: Var
    start: Expr
    column: Expr
    pitch: int
    group: int

    def pointer(self, rows: int, columns: int) -> Expr:
        """The address ``rows`` and ``columns`` away, which must be among those given to `lane_place`."""
        return self.data.ptr_to([self.at(rows, columns)])

    def at(self, rows: int, columns: int) -> Expr:
        """The same as a number of elements of ``data``."""
        flip = columns % self.group
        column = self.column if flip == 0 else tirx.bitwise_xor(self.column, tirx.const(flip, "int32"))
        far = rows * self.pitch + columns - flip
        return self.start + column + tirx.const(far, "int32")


def lane_place(
    region: Region,
    row: Unsigned,
    column: Unsigned,
    lead: tuple[Start, Start],
    steps: tuple[Sequence[int], Sequence[int]],
    wide: int,
    ctx: DeviceContext,
) -> LanePlace | None:
    """The place of element (``row``, ``column``) of the region from ``lead`` on, both within one instruction;
    the columns of lanes are less than ``wide``, a power of two.

    ``steps`` are the distances in rows and in columns that will be asked for; None where the swizzle does not
    leave them constant."""
    storage = ctx.storage(region.buffer)
    assert isinstance(storage, SharedStorage)
    assert storage.layout is not None
    pitch, swizzle = storage.pitch, storage.layout.swizzle
    if pitch is None:
        return None
    group = 1 if swizzle is None else swizzle.width * swizzle.unit
    if swizzle is not None and not _is_regular(region, swizzle, pitch, lead[1], steps, wide, ctx):
        return None
    starts = [tirx.Cast("int32", ctx.value(start)) for start in region.start]
    indices = [
        *starts[:-2],
        starts[-2] + lead[0][0] + tirx.Cast("int32", row.value),
        starts[-1] + lead[1][0] + tirx.Cast("int32", column.value),
    ]
    begin, turned = storage.split(indices)
    names = [ctx.fresh(f"{region.buffer.name}_{part}", "int32") for part in ("row", "column")]
    binds = tuple(tirx.Bind(name, value) for name, value in zip(names, (begin, turned), strict=True))
    return LanePlace(binds, storage.data, names[0], names[1], pitch, group)


def _is_regular(
    region: Region,
    swizzle: Swizzle,
    pitch: int,
    lead: Start,
    steps: tuple[Sequence[int], Sequence[int]],
    wide: int,
    ctx: DeviceContext,
) -> bool:
    """Whether no distance changes the phase, and none carries into other bits of a column."""
    group, period = swizzle.width * swizzle.unit, swizzle.width * (swizzle.row // pitch)
    if any(rows % period for rows in steps[0]):
        return False
    flips = 0
    for columns in steps[1]:
        flips |= columns % group
    free = 1 << flips.bit_length()
    if flips & (wide - 1):
        return False
    return lead[1] % free == 0 and divides(free, region.start[-1], ctx.facts)
