"""What the blocks of a cluster tell each other of the rows that they share, through shared memory of each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.ir.exprs import dtype_of
from tilec.ir.extremes import extreme
from tilec.ir.nodes import Alloc, Block, Fill, For, Parallel, Reduce, Region, Scan, Stmt, Store
from tilec.ir.nodes.barriers import ClusterBarrier, ClusterCopy
from tilec.ir.serial import serial_loop
from tilec.lowering.analysis.accumulations import identity
from tilec.lowering.analysis.regions import static

if TYPE_CHECKING:
    from tvm.ir import Expr

#: All threads of a cluster meet (PTX ISA, "barrier.cluster").
MEET: Block = (ClusterBarrier("arrive"), ClusterBarrier("wait"))


@dataclass
class Meeting:
    """The ends of reductions and scans whose elements ``parts`` blocks share, of which a block has the part
    ``rank``: each stores what its part comes to in all of them, and all take in the same in the same order.
    ``tiles``: what they need for that, a tile of its own each."""

    parts: int
    rank: Expr
    tiles: list[Stmt] = field(default_factory=list)

    def reduced(self, stmt: Reduce) -> Block:
        """A reduction of a block's columns, and one of what all blocks have."""
        own = self._own(stmt.dst.buffer, stmt.dst.buffer.shape, stmt)
        room, told = self._told(own, stmt)
        all_parts = replace(stmt, src=whole_tile(room), axis=len(own.shape))
        part = replace(stmt, dst=whole_tile(own), clear=True)
        return (part, *told, all_parts)

    def scanned(self, stmt: Scan) -> Block:
        """A scan of a block's columns, which takes in what the blocks in front have."""
        shape = [extent for axis, extent in enumerate(stmt.dst.buffer.shape) if axis != stmt.axis]
        own = self._own(stmt.dst.buffer, shape, stmt)
        room, told = self._told(own, stmt)
        part = Reduce(stmt.kind, stmt.src, whole_tile(own), stmt.axis, True, loc=stmt.loc)
        behind = self._taken_in(own, room, stmt)
        return (part, *told, stmt, *behind)

    def _taken_in(self, own: Var, room: Var, stmt: Scan) -> Block:
        """What blocks in front have, in ``own`` and then in every element of the result."""
        dst = stmt.dst.buffer
        nothing = identity(stmt.kind, str(own.dtype))
        number = Var("p", dtype_of(self.rank))
        before = number > self.rank if stmt.reverse else number < self.rank

        def each(var: tuple[Var, ...]) -> Store:
            told = tirx.if_then_else(before, tirx.BufferLoad(room, [*var, number]), nothing)
            return Store(own, var, _combined(stmt.kind, tirx.BufferLoad(own, list(var)), told))

        def element(var: tuple[Var, ...]) -> Store:
            row = [index for axis, index in enumerate(var) if axis != stmt.axis]
            value = _combined(stmt.kind, tirx.BufferLoad(dst, list(var)), tirx.BufferLoad(own, row))
            return Store(dst, var, value)

        zero, one = (tirx.const(value, dtype_of(number)) for value in (0, 1))
        count = tirx.const(self.parts, dtype_of(number))
        rounds = For("unroll", number, zero, count, one, (_over(own, each, stmt),), loc=stmt.loc)
        return (Fill(whole_tile(own), nothing, loc=stmt.loc), rounds, _over(dst, element, stmt))

    def element(self, tile: Var, axis: int, column: int, stmt: Stmt) -> tuple[Var, Block]:
        """A tile with what each block has in a column of its part of ``tile``, along a last axis, and the
        statements that fill it."""
        shape = [extent for number, extent in enumerate(tile.shape) if number != axis]
        own = self._own(tile, shape or [1], stmt)

        def taken(var: tuple[Var, ...]) -> Store:
            at: list[Expr] = list(var) if shape else []
            at.insert(axis, tirx.const(column, "int32"))
            return Store(own, var, tirx.BufferLoad(tile, at))

        room, told = self._told(own, stmt)
        return room, (_over(own, taken, stmt), *told)

    def _own(self, of: Var, shape: Sequence[int | Expr], stmt: Stmt) -> Var:
        """A fragment for what the part of a block comes to."""
        extents, dtype = [static(extent) for extent in shape], str(of.dtype)
        own = tirx.decl_buffer(extents, dtype, f"{of.name}_own", scope="local.fragment")
        self.tiles.append(Alloc(own, loc=stmt.loc))
        return own

    def _told(self, own: Var, stmt: Stmt) -> tuple[Var, Block]:
        """A shared tile with the parts of all blocks, and how they come there: who has met the others sees
        them."""
        shape, dtype = [static(extent) for extent in own.shape], str(own.dtype)
        room = tirx.decl_buffer([*shape, self.parts], dtype, f"{own.name}_parts", scope="shared.dyn")
        self.tiles.append(Alloc(room, loc=stmt.loc))
        to, zero = Var("to", "int32"), tirx.const(0, "int32")
        place = Region(room, (*[zero] * len(shape), self.rank), (*shape, 1))
        sent = ClusterCopy(whole_tile(own), place, block=to, loc=stmt.loc)
        return room, (serial_loop(to, self.parts, (sent,), stmt.loc), *MEET)


def _over(buffer: Var, store: Callable[[tuple[Var, ...]], Store], origin: Stmt) -> Parallel:
    """``store`` at every element of a tile."""
    variables = tuple(Var(f"i{axis}", "int32") for axis in range(len(buffer.shape)))
    shape = tuple(static(extent) for extent in buffer.shape)
    return Parallel(variables, shape, (store(variables),), loc=origin.loc)


def _combined(kind: str, one: Expr, other: Expr) -> Expr:
    return one + other if kind == "sum" else extreme(kind, one, other, False)
