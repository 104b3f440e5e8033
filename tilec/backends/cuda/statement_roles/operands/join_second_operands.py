"""Products of one first operand become one product with as many columns as all of them have.

    Q += X Wq; K += X Wk; V += X Wv    ->    (Q, K, V) += X (Wq, Wk, Wv)

An instruction reads its rows of the first operand from shared memory, however many columns it has: with 64 of
them it waits for these reads.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents
from tilec.backends.cuda.analysis.products.wgmma import GROUP_ROWS, SLABS, WIDEST, slab_bytes, wide_note
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.statement_roles.split.split_roles import loads_by_one_warp
from tilec.ir.exprs import int_value, same_all
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Copy,
    For,
    Gemm,
    Kernel,
    Launch,
    Pipelined,
    Region,
    Stmt,
    walk,
)
from tilec.ir.options import NO_ROLES
from tilec.ir.serial import serial_loop
from tilec.ir.traits import mentioned
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


class JoinSecondOperands(Pass):
    """In: pipelined loops of nothing but loads and products that share their first operand. Out: their second
    operands are matrices of one tile, where roles by what statements do bring it by TMA."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its operands side by side."""
        if not has_wgmma(target) or kernel.option(NO_ROLES) is not None:
            return kernel
        return rewrite_launches(kernel, lambda launch: joined(kernel, launch, target))


def joined(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    """A launch with its second operands side by side; ``launch`` itself where there are none to join."""
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, Pipelined)]
    joins = [join for join in (_join(loop, launch) for loop in loops) if join is not None]
    if not joins:
        return launch
    made: dict[Stmt, tuple[Stmt, ...]] = {}
    for join in joins:
        made |= join.made()
    body = rewrite_blocks(
        launch.body, lambda block: [new for stmt in block for new in made.get(stmt, (stmt,))]
    )
    found = with_notes(replace(launch, body=body), [join.note for join in joins])
    return found if loads_by_one_warp(kernel, found, target) else launch


def _join(loop: Pipelined, launch: Launch) -> _Join | None:
    """The second operands of a loop's products as one tile; None where there is no such tile."""
    gemms = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
    copies = {stmt.dst.buffer: stmt for stmt in loop.body if isinstance(stmt, Copy)}
    plain = all(isinstance(stmt, (Bind, Copy, Gemm)) for stmt in loop.body)
    if not plain or len(gemms) < 2 or not all(_is_beside(gemms[0], gemm) for gemm in gemms[1:]):
        return None
    tiles = [gemm.b.buffer for gemm in gemms]
    apart = len({*tiles, gemms[0].a.buffer}) == len(tiles) + 1
    if not apart or not all(tile in copies for tile in tiles):
        return None
    allocs = {stmt.buffer: stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc)}
    join = _Join(
        loop, tuple(gemms), tuple(copies[tile] for tile in tiles), tuple(allocs[tile] for tile in tiles)
    )
    users = [stmt for stmt in walk(launch.body) if mentioned(stmt) & set(tiles)]
    return join if join.is_fit and len(users) == 3 * len(tiles) else None


def _is_beside(one: Gemm, other: Gemm) -> bool:
    """Whether two products are alike but for their second operands and their sums."""
    same_first = one.a.buffer.same_as(other.a.buffer) and same_all(one.a.start, other.a.start)
    kinds = [
        (gemm.trans_a, gemm.trans_b, int_value(gemm.clear), gemm.policy, _kind(gemm.b), _kind(gemm.c))
        for gemm in (one, other)
    ]
    return same_first and kinds[0] == kinds[1] and not one.c.buffer.same_as(other.c.buffer)


def _kind(region: Region) -> tuple[str, str, tuple[int, ...], bool]:
    tile = region.buffer
    return str(tile.dtype), str(tile.scope()), static_extents(tile), is_whole(region)


@dataclass(frozen=True, eq=False)
class _Join:
    """The second operands of ``gemms``, by ``copies`` to the tiles of ``allocs``, as one tile."""

    loop: Pipelined
    gemms: tuple[Gemm, ...]
    copies: tuple[Copy, ...]
    allocs: tuple[Alloc, ...]

    @property
    def note(self) -> str:
        """What `explain` says of it."""
        seconds = (gemm.b for gemm in self.gemms)
        return wide_note(self.gemms[0].a, seconds, self._columns * len(self.gemms))

    @property
    def _columns(self) -> int:
        rows, columns = static_extents(self.allocs[0].buffer)
        return rows if self.gemms[0].trans_b else columns

    @property
    def is_fit(self) -> bool:
        """Whether the matrices lie behind each other as columns of one operand do, known when compiled."""
        tile, first = self.allocs[0].buffer, self.gemms[0]
        if len(tile.shape) != 2 or str(tile.scope()) != "shared.dyn" or int_value(first.clear) is None:
            return False
        if str(first.c.buffer.dtype) != "float32" or not is_whole(first.b) or not is_whole(first.c):
            return False
        at = self.loop.body.index
        named = all(at(stmt) < min(map(at, self.copies)) for stmt in self.loop.body if isinstance(stmt, Bind))
        whole = named and all(
            is_whole(copy.dst) and alloc.asked is None
            for copy, alloc in zip(self.copies, self.allocs, strict=True)
        )
        row = static_extents(tile)[-1] * element_bytes(str(tile.dtype))
        slabs = row == slab_bytes(tile) if first.trans_b else row % SLABS[0] == 0
        fits = self._columns % GROUP_ROWS == 0 and self._columns * len(self.gemms) <= WIDEST
        return whole and slabs and fits

    def made(self) -> dict[Stmt, tuple[Stmt, ...]]:
        """What becomes of the statements."""
        count = len(self.gemms)
        name = "_".join(str(alloc.buffer.name) for alloc in self.allocs)
        own = self.allocs[0].buffer
        tile = tirx.decl_buffer((count, *own.shape), str(own.dtype), name=name, scope=str(own.scope()))
        found: dict[Stmt, tuple[Stmt, ...]] = dict.fromkeys((*self.allocs, *self.copies), ())
        found[self.allocs[0]] = (replace(self.allocs[0], buffer=tile),)
        first = min(self.copies, key=self.loop.body.index)
        found[first] = (self._load(tile),)
        for number, gemm in enumerate(self.gemms):
            found[gemm] = (replace(gemm, b=_matrix(tile, number)),)
        return found

    def _load(self, tile: Var) -> For:
        """All loads, as those of one tile."""
        parts = tuple(replace(copy, dst=_matrix(tile, number)) for number, copy in enumerate(self.copies))
        return serial_loop(tirx.Var("all", "int32"), 1, parts, self.copies[0].loc)


def _matrix(tile: Var, number: int) -> Region:
    zero = tirx.const(0, "int32")
    _, rows, columns = static_extents(tile)
    return Region(tile, (tirx.const(number, "int32"), zero, zero), (1, rows, columns))
