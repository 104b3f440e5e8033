"""What threads keep while the block does something else: their own storage and names in tiles of the
block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Var

from tilec.backends.cpu.threads.plan import Nest, Piece, Region, pieces, without_blocks
from tilec.ir import nodes as ir
from tilec.ir.exprs import dtype_of, int_value, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import buffers, expressions, is_single

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr

    from tilec.lowering.analysis.thread_grid import ThreadGrid


class Kept:
    """Which storage and names outlive the region that makes them. ``tiles`` by buffer, and by name; each has
    an element per thread as its last axis, arrays in ``widths`` so many."""

    def __init__(
        self,
        plan: Sequence[Piece],
        grid: ThreadGrid,
        pure: Mapping[Var, Expr],
        values: Mapping[Var, Expr],
        widths: Mapping[Var, int],
    ) -> None:
        self.grid = grid
        self._widths = widths
        self.pure = dict(pure)
        self.values = dict(values)
        self.tiles: dict[Var, Var] = {}
        self._sink(plan)
        homes, users = self._homes(plan), self._users(plan)
        for var, home in homes.items():
            if any(user is not home for user in users.get(var, ())) and var not in self.pure:
                self.tiles[var] = self._tile(var)

    def _homes(self, plan: Sequence[Piece]) -> dict[Var, Piece]:
        """The region in which threads' storage is allocated, or a name gets its value."""
        found: dict[Var, Piece] = {}
        for piece in pieces(plan):
            if isinstance(piece, Region):
                found.update((var, piece) for stmt in ir.walk(tuple(piece.stmts)) for var in _defined(stmt))
        return found

    def _users(self, plan: Sequence[Piece]) -> dict[Var, list[Piece]]:
        """The pieces in which a buffer or a name is used."""
        found: dict[Var, list[Piece]] = {}
        for piece in pieces(plan):
            for var in dict.fromkeys(self._used(piece)):
                found.setdefault(var, []).append(piece)
        return found

    def _used(self, piece: Piece) -> Iterator[Var]:
        if isinstance(piece, Region):
            stmts, guards = tuple(piece.stmts), piece.guards
        else:
            stmts = (without_blocks(piece.stmt) if isinstance(piece, Nest) else piece.stmt,)
            guards = ()
        own = {var for stmt in ir.walk(stmts) for var in _defined(stmt)}
        for guard in guards:
            yield from self._names(guard, set())
        for stmt in ir.walk(stmts):
            if not isinstance(stmt, ir.Alloc):
                yield from buffers(stmt)
            for expr in expressions(stmt):
                yield from self._names(expr, own)

    def _names(self, expr: Expr, own: set[Var]) -> Iterator[Var]:
        """Variables and buffers of an expression, with those of what it is computed from elsewhere."""
        for node in walk(expr):
            if isinstance(node, Var):
                yield node
                if node in self.pure and node not in own:
                    yield from self._names(self.pure[node], own)
            elif hasattr(node, "source"):
                yield node.source

    def _sink(self, plan: Sequence[Piece]) -> None:
        """Moves allocations to the only region that uses them, where that is another one of the same
        block."""
        users = self._users(plan)
        regions = ((piece, block) for block in _blocks(plan) for piece in block if isinstance(piece, Region))
        for piece, block in regions:
            for stmt in [item for item in piece.stmts if isinstance(item, ir.Alloc)]:
                found = users.get(stmt.buffer, [])
                target = found[0] if len(found) == 1 else None
                constant = stmt.init is None or not list(self._names(stmt.init, set()))
                if type(target) is Region and target is not piece and target in block and constant:
                    piece.stmts.remove(stmt)
                    target.stmts.insert(0, stmt)

    def _tile(self, var: Var) -> Var:
        count = self.grid.count
        if not tirx.is_buffer_var(var):
            return tirx.decl_buffer((count,), dtype_of(var), var.name, scope="local.fragment")
        shape = list(var.shape) if not is_single(var) else []
        width = self._widths.get(var)
        if width:
            shape[-1], count = shape[-1] // width, count * width
        return tirx.decl_buffer((*shape, count), str(var.dtype), var.name, scope="local.fragment")

    def element(self, buffer: Var, indices: Sequence[Expr]) -> tuple[Var, tuple[Expr, ...]]:
        """Where an element of a thread's storage lies now."""
        tile = self.tiles.get(buffer)
        if tile is None:
            return buffer, tuple(indices)
        first = () if is_single(buffer) else tuple(indices)
        width = self._widths.get(buffer)
        if not width:
            return tile, (*first, self.grid.number)
        last = first[-1]
        run = tirx.const(width, dtype_of(last))
        if int_value(buffer.shape[-1]) == width:
            return tile, (*first[:-1], tirx.const(0, "int32"), self.grid.number * run + last)
        return tile, (*first[:-1], last // run, self.grid.number * run + last % run)

    def name(self, var: Var, own: set[Var]) -> Expr | None:
        """What a name stands for in a piece that defines the names ``own``; None for itself."""
        if var in self.values:
            return self.values[var]
        if var in own:
            return None
        if var in self.pure:
            return self.pure[var]
        tile = self.tiles.get(var)
        return None if tile is None else tirx.BufferLoad(tile, [self.grid.number])


def _defined(stmt: ir.Stmt) -> tuple[Var, ...]:
    """The storage of threads and the names that a statement brings."""
    if isinstance(stmt, ir.Alloc):
        return (stmt.buffer,) if stmt.buffer.scope() in PER_THREAD else ()
    if isinstance(stmt, ir.Bind):
        return (stmt.var,)
    if isinstance(stmt, ir.Atomic) and stmt.prev is not None:
        return (stmt.prev,)
    return ()


def _blocks(plan: Sequence[Piece]) -> Iterator[list[Piece]]:
    """All blocks of a plan."""
    yield list(plan)
    for piece in pieces(plan):
        if isinstance(piece, Nest):
            yield from piece.blocks
