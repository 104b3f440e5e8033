"""Loops from shared tiles to shared tiles read all that a thread wants before it stores any of it.

    for r: v = S[r]; D[r] = f(v)    ->    for r: v[r] = S[r]
                                          for r: D[r] = f(v[r])

Compilers do not know that a store leaves alone what the next iteration reads, so that a thread waits for
shared memory once for each vector that it has.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.backends.cuda.nodes import ThreadLoop
from tilec.ir.exprs import loads
from tilec.ir.nodes import Bind, Store
from tilec.ir.traits import loads_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad

    from tilec.backends.cuda.emit.context import DeviceContext

#: Bytes of a thread's registers for what is read first.
_ROOM = 64


@dataclass(frozen=True, eq=False)
class FirstReads:
    """What a ``loop`` reads of ``tiles`` before it stores anything: ``registers`` for each read, of all
    vectors of a thread, and the ``moves`` of one vector."""

    loop: ThreadLoop
    tiles: frozenset[Var]
    ctx: DeviceContext
    registers: list[Var] = field(default_factory=list)
    moves: list[tirx.Stmt] = field(default_factory=list)

    @staticmethod
    def of(loop: ThreadLoop, ctx: DeviceContext) -> FirstReads | None:
        """None where a loop does anything else than read some shared tiles and store to others."""
        if type(loop) is not ThreadLoop or not all(isinstance(stmt, (Bind, Store)) for stmt in loop.body):
            return None
        stored = [stmt.buffer for stmt in loop.body if isinstance(stmt, Store) and stmt.buffer in ctx.places]
        found = [load.source for load in loads_of(*loop.body)]
        tiles = frozenset(tile for tile in found if tile in ctx.places)
        apart = all(_are_apart(tile, other, ctx) for tile in tiles for other in stored)
        return FirstReads(loop, tiles, ctx) if tiles and stored and apart else None

    @property
    def pays(self) -> bool:
        """Whether a thread has several vectors, and room for them."""
        total = sum(int(each.shape[0]) * element_bytes(str(each.dtype)) for each in self.registers)
        return 0 < total <= _ROOM

    def takes(self, load: TensorLoad) -> bool:
        """Whether an element is read first: one whose place no other read tells."""
        places = (self.ctx.facts.inline(index) for index in load.indices)
        return load.source in self.tiles and not any(True for place in places for _ in loads(place))

    def brought(self, vector: Var, moves: Sequence[tirx.Stmt]) -> list[tirx.Stmt]:
        """Nothing, as ``moves`` that bring a vector stand in a loop of their own."""
        counts = list(self._counts())
        total = int(vector.shape[0]) * math.prod(count for count, _ in counts)
        name = self.ctx.fresh(f"{vector.name}_all", "int32").name
        if counts:
            self.registers.append(tirx.decl_buffer((total,), str(vector.dtype), name=name, scope="local"))
            self.moves.extend((self.part(vector, self.registers[-1]), *moves))
        return []

    def part(self, vector: Var, registers: Var) -> tirx.Stmt:
        """A vector as its part of the registers."""
        place: Expr = tirx.const(0, "int32")
        for count, value in self._counts():
            place = place * tirx.const(count, "int32") + value
        return tirx.DeclBuffer(vector, data=registers.ptr_to([place * vector.shape[0]]))

    def _counts(self) -> Iterator[tuple[int, Expr]]:
        """How far each variable counts that the vectors of a thread are told by."""
        for var in self.loop.vars:
            for part in self.ctx.digits[var]:
                if part.in_register and isinstance(part.value, Var):
                    yield part.size, part.value


class HaveRead:
    """Gives out the vectors of `FirstReads`, in their order."""

    def __init__(self, first: FirstReads) -> None:
        self._first, self._left = first, list(first.registers)

    def takes(self, load: TensorLoad) -> bool:
        """As `FirstReads.takes`."""
        return self._first.takes(load)

    def brought(self, vector: Var, _moves: Sequence[tirx.Stmt]) -> list[tirx.Stmt]:
        """The vector, which is there already."""
        return [self._first.part(vector, self._left.pop(0))]


def _are_apart(tile: Var, other: Var, ctx: DeviceContext) -> bool:
    """Whether two tiles lie on other bytes of shared memory."""
    first, second = sorted((ctx.places[each], ctx.places[each] + _bytes(each, ctx)) for each in (tile, other))
    return first[1] <= second[0]


def _bytes(tile: Var, ctx: DeviceContext) -> int:
    data = ctx.storage(tile).data
    return int(data.shape[0]) * element_bytes(str(data.dtype))
