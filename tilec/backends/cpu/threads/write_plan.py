"""A plan as tile IR: a Parallel over the threads for each region, loops and tile statements of the block
between."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tvm import sym, tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cpu.threads.plan import Once, Piece, Region, Run
from tilec.errors import UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.exprs import cast_to, dtype_of, substitute, transform, uses
from tilec.ir.nodes import with_children
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.places import place_of
from tilec.ir.serial import serial
from tilec.ir.traits import Rewriter, defined
from tilec.lowering.analysis.counted import counted
from tilec.lowering.passes.base import rewrite_blocks
from tilec.lowering.rewrite import map_block, map_stmt, rename
from tilec.lowering.tile_axes import simpler

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.threads.kept_values import Kept


class Emitter:
    """Writes the pieces of one launch."""

    def __init__(self, kept: Kept) -> None:
        self._kept = kept
        self._grid = kept.grid
        self._single = {
            var: tirx.const(0, "int32")
            for var, extent in zip(self._grid.vars, self._grid.extents, strict=True)
            if extent == 1 and var is not self._grid.loops[0][0]
        }

    def block(self, plan: Sequence[Piece]) -> ir.Block:
        """The statements of a block."""
        return tuple(stmt for piece in plan for stmt in self._piece(piece))

    def _piece(self, piece: Piece) -> list[ir.Stmt]:
        if isinstance(piece, Region):
            return self._region(piece)
        if isinstance(piece, Once):
            return [self._once(piece.stmt, piece.reader)]
        blocks = [self.block(block) for block in piece.blocks]
        empty = with_children(piece.stmt, [() for _ in blocks])
        return [with_children(self._once(empty, piece.reader), blocks)]

    # Regions

    def _region(self, region: Region) -> list[ir.Stmt]:
        stmts = tuple(region.stmts)
        own = {var for stmt in ir.walk(stmts) for var in _names(stmt)}
        tiles = [
            ir.Alloc(self._kept.tiles[var], loc=stmt.loc)
            for stmt in ir.walk(stmts)
            for var in _made(stmt)
            if var in self._kept.tiles
        ]
        body = tuple(new for stmt in stmts for new in self._thread_stmt(stmt, own))
        for guard in reversed(region.guards):
            body = (ir.If(self._thread_value(guard, set()), body),) if body else ()
        if not body:
            return [*tiles]
        if isinstance(region, Run):
            return [*tiles, self._run(region, body)]
        axes = self._grid.loops
        loop = ir.Parallel(tuple(v for v, _ in axes), tuple(n for _, n in axes), body, loc=stmts[0].loc)
        return [*tiles, loop]

    def _run(self, run: Run, body: ir.Block) -> ir.Parallel:
        """A loop over the neighbours that threads go through, one thread's behind those of another one."""
        count = self._grid.count * run.trips
        place = tirx.Var("place", "int32")
        number = place // tirx.const(run.trips, "int32")
        at = {run.lane: cast_to(place % tirx.const(run.trips, "int32"), dtype_of(run.lane))}
        for var, extent in zip(self._grid.vars, self._grid.extents, strict=True):
            size = tirx.const(extent, "int32")
            at[var], number = number % size, number // size
        analyzer = counted((place,), (count,))
        body = map_block(rename(body, at), lambda expr: simpler(expr, analyzer))
        body = rewrite_blocks(body, lambda block: [_placed(stmt, analyzer) for stmt in block])
        return ir.Parallel((place,), (count,), body, loc=run.stmts[0].loc)

    def _thread_stmt(self, stmt: Any, own: set[Var]) -> list[ir.Stmt]:
        if ir.children(stmt):
            blocks = [
                tuple(n for s in block for n in self._thread_stmt(s, own)) for block in ir.children(stmt)
            ]
            bare = self._mapped(with_children(stmt, [() for _ in blocks]), own)
            return [with_children(_serial(bare), blocks)]
        if isinstance(stmt, ir.Alloc) and stmt.buffer in self._kept.tiles:
            return self._start(stmt, own)
        new = self._mapped(stmt, own)
        keep = [
            self._keep(var)
            for var in _made(stmt)
            if var in self._kept.tiles and not isinstance(stmt, ir.Alloc)
        ]
        return [new, *keep]

    def _keep(self, var: Var) -> ir.Stmt:
        """A name's value, for later regions."""
        return ir.Store(self._kept.tiles[var], (self._grid.number,), var)

    def _start(self, stmt: ir.Alloc, own: set[Var]) -> list[ir.Stmt]:
        """What a thread's own variable holds at first."""
        if stmt.init is None and stmt.buffer.scope() != "local.var":
            return []
        dtype = str(stmt.buffer.dtype)
        value = tirx.const(0, dtype) if stmt.init is None else self._thread_value(stmt.init, own)
        zeros = [tirx.const(0, "int32") for _ in stmt.buffer.shape]
        tile, indices = self._kept.element(stmt.buffer, zeros)
        return [self._mapped(ir.Store(tile, indices, value, loc=stmt.loc), own)]

    def _mapped(self, stmt: ir.Stmt, own: set[Var]) -> ir.Stmt:
        new = map_stmt(stmt, lambda expr: self._thread_value(expr, own))
        if isinstance(new, (ir.Store, ir.Atomic)):
            buffer, indices = self._kept.element(new.buffer, new.indices)
            indices = tuple(substitute(index, self._single) for index in indices)
            return replace(new, buffer=buffer, indices=indices)
        return new

    def _thread_value(self, expr: Expr, own: set[Var]) -> Expr:
        """An expression as a thread computes it in a region."""
        return substitute(self._value(expr, own), self._single)

    def _value(self, expr: Expr, own: set[Var]) -> Expr:
        def visit(node: Expr) -> Expr | None:
            if isinstance(node, Var):
                found = self._kept.name(node, own)
                return None if found is None else self._value(found, own)
            if isinstance(node, TensorLoad) and node.source in self._kept.tiles:
                indices = [self._value(index, own) for index in node.indices]
                tile, places = self._kept.element(node.source, indices)
                return tirx.BufferLoad(tile, list(places))
            return None

        return transform(expr, visit)

    # The block

    def _once(self, stmt: ir.Stmt, reader: int | None) -> ir.Stmt:
        """A statement of the block, which reads what thread ``reader`` has."""
        own = {var for inner in ir.walk((stmt,)) for var in _names(inner)}
        places = {} if reader is None else self._grid.indices_of(reader)

        def visit(expr: Expr) -> Expr:
            value = substitute(self._value(expr, own), places)
            if uses(value, self._grid.vars):
                raise self._unknown(stmt)
            return value

        return _Once(visit, lambda region: self._own_region(region, places, stmt)).stmt(stmt)

    def _own_region(self, region: ir.Region, places: dict[Var, Expr], stmt: ir.Stmt) -> ir.Region:
        if region.buffer not in self._kept.tiles:
            if region.buffer.scope() in PER_THREAD:
                raise self._unknown(stmt)
            return region
        zeros = [tirx.const(0, "int32") for _ in region.start]
        tile, _ = self._kept.element(region.buffer, zeros)
        single = len(tile.shape) == 1
        number = substitute(self._grid.number, places)
        start = (number,) if single else (*region.start, number)
        extent = (1,) if single else (*region.extent, 1)
        return ir.Region(tile, start, extent)

    def _unknown(self, stmt: ir.Stmt) -> UnsupportedError:
        return UnsupportedError(
            "a statement of the block reads what each thread has of its own",
            place=place_of(stmt),
            why="which of the threads come here is known at run time only",
            remedy="keep the value in T.alloc_shared, or compute it from what all threads share",
        )


class _Once(Rewriter):
    """A statement of the block over what one thread has."""

    def __init__(self, value: Callable[[Expr], Expr], region: Callable[[ir.Region], ir.Region]) -> None:
        super().__init__()
        self._value_of, self._region_of = value, region

    def expr(self, expr: Expr) -> Expr:
        """The value that the thread has."""
        return self._value_of(expr)

    def region(self, region: ir.Region) -> ir.Region:
        """Where the thread's elements are kept."""
        return self._region_of(super().region(region))


def _placed(stmt: ir.Stmt, analyzer: sym.Analyzer) -> ir.Stmt:
    """A statement that stores to simpler places."""
    if not isinstance(stmt, ir.Store):
        return stmt
    return replace(stmt, indices=tuple(map(analyzer.simplify, stmt.indices)))


def _serial(stmt: ir.Stmt) -> ir.Stmt:
    """A pipelined loop of one thread is a serial one."""
    return serial(stmt, stmt.body) if isinstance(stmt, ir.Pipelined) else stmt


def _made(stmt: ir.Stmt) -> tuple[Var, ...]:
    """The storage or name that a statement brings to what follows it."""
    return () if ir.children(stmt) else defined(stmt)


def _names(stmt: ir.Stmt) -> tuple[Var, ...]:
    """The names that are defined inside of a piece: they are themselves there."""
    return () if isinstance(stmt, ir.Alloc) else defined(stmt)
