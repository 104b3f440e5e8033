"""Device code of loads of tiles that may end beyond their tensor."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.warp_roles.emit.build import coordinate, i32, let, u32
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.ring import stage_bytes
from tilec.ir.exprs import all_of

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.warp_roles.emit.context import RoleContext

    #: What emits a load whose boxes have so many rows.
    Emit = Callable[[TmaLoad, Expr], None]


class Tails:
    """What the loads of a ring bring of the tile under way: of one that ends beyond its tensor the rows
    inside."""

    def __init__(self, loads: Iterable[TmaLoad], ctx: RoleContext) -> None:
        self._loads = [load for load in loads if load.tail is not None]
        self._rows = {load.dst.buffer: _rows(load, ctx) for load in self._loads}
        self._boxes = {
            load.dst.buffer: _rows_of_box(load, self._rows[load.dst.buffer]) for load in self._loads
        }

    def apart(self, emit: Callable[[Tails], None]) -> None:
        """``emit(tails)``: once for a tile that is whole, whose trips then choose no boxes, and once for
        others, where there is a choice."""
        tests = [self._is_whole(load) for load in self._loads if load.tail is not load.map]
        if not tests:
            emit(self)
            return
        with T.If(let("whole", all_of(tests))):
            with T.Then():
                emit(Whole(self))
            with T.Else():
                emit(self)

    def bytes(self, whole: int) -> Expr:
        """The bytes of a stage, of which whole tiles have ``whole``. Their name is signed: TVM follows the
        range of names, and has no unsigned number for a bound that is negative before a choice is made."""
        total: Expr = i32(whole)
        for load in self._loads:
            height, rows = load.map.box[-2], self._boxes[load.dst.buffer]
            total = total - (height - rows) * i32(stage_bytes(load.dst.buffer) // height)
        return u32(let("bytes", total)) if self._loads else u32(whole)

    def bring(self, load: TmaLoad, emit: Emit) -> None:
        """``emit(load, rows)`` with the boxes that the tile has, each of so many ``rows``."""
        if load.tail is None or load.tail is load.map:
            emit(load, self._boxes.get(load.dst.buffer, i32(load.map.box[-2])))
            return
        with T.If(self._is_whole(load)):
            with T.Then():
                emit(load, i32(load.map.box[-2]))
            with T.Else():
                emit(replace(load, map=load.tail), self._boxes[load.dst.buffer])

    def _is_whole(self, load: TmaLoad) -> Expr:
        return tirx.EQ(self._rows[load.dst.buffer], i32(load.rows))


class Whole(Tails):
    """All of every tile that has a choice of boxes; of others what their only boxes bring."""

    def __init__(self, tails: Tails) -> None:
        self._loads = [load for load in tails._loads if load.tail is load.map]
        self._boxes = tails._boxes

    def bring(self, load: TmaLoad, emit: Emit) -> None:
        """``emit(load, rows)``."""
        emit(load, self._boxes.get(load.dst.buffer, i32(load.map.box[-2])))


def _rows(load: TmaLoad, ctx: RoleContext) -> Expr:
    """How many rows of the tile are brought: all, too, of one that lies outside altogether. The map of an
    only tile brings those of its tensor wherever a block stands: the second of a pair may be outside of the
    grid."""
    extent = coordinate(ctx.value(load.map.buffer.shape[-2]))
    if load.tail is load.map:
        return let(f"{load.map.buffer.name}_rows", extent)
    left = let(f"{load.map.buffer.name}_left", extent - coordinate(ctx.value(load.start[-2])))
    ends = tirx.And(left > 0, left < i32(load.rows))
    return let(f"{load.map.buffer.name}_rows", tirx.Select(ends, left, i32(load.rows)))


def _rows_of_box(load: TmaLoad, rows: Expr) -> Expr:
    """How many of these rows each box brings; some of a whole tile bring more."""
    if load.boxes == 1:
        return rows
    share = tirx.truncdiv(rows + (load.boxes - 1), i32(load.boxes))
    whole = tirx.EQ(rows, i32(load.rows))
    return let(f"{load.map.buffer.name}_share", tirx.Select(whole, i32(load.map.box[-2]), share))
