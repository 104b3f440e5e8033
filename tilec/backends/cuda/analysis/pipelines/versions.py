"""Statements over another buffer: a version of a tile, or its stand-in in shared memory."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Expr, TensorLoad

from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.ir.exprs import dtype_of, int_value, loads, transform
from tilec.ir.nodes import Alloc, Block, Copy, Reduce, Region, Scan, Stmt
from tilec.ir.traits import Rewriter
from tilec.lowering.passes.base import rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var


#: Versions of a tile of which trips take turns.
VERSIONS = 2


def parity(trip: Var) -> Expr:
    """The version of a trip."""
    return tirx.FloorMod(trip, tirx.const(VERSIONS, dtype_of(trip)))


def with_version(block: Block, tiles: Mapping[Var, Var], version: Expr) -> Block:
    """``block`` with every access of a tile going to ``version`` (a new first axis) of its replacement."""
    return with_versions(block, {tile: (made, version) for tile, made in tiles.items()})


def with_versions(block: Block, tiles: Mapping[Var, tuple[Var, Expr]]) -> Block:
    """``block`` with every access of a tile going to its replacement, and there to its version (a new first
    axis); reductions read it from a fragment of its shape."""
    block = rewrite_blocks(block, lambda inner: [each for stmt in inner for each in _held(stmt, tiles)])
    return _Redirect({tile: (made, (version,)) for tile, (made, version) in tiles.items()}).block(block)


def _held(stmt: Stmt, tiles: Container[Var]) -> Block:
    extents = [int_value(extent) for extent in stmt.src.extent] if isinstance(stmt, Reduce) else [None]
    if not isinstance(stmt, Reduce) or stmt.src.buffer not in tiles or None in extents:
        return (stmt,)
    name = f"{stmt.src.buffer.name}_held"
    held = tirx.decl_buffer(extents, str(stmt.src.buffer.dtype), name=name, scope="local.fragment")
    whole = whole_tile(held)
    return Alloc(held, loc=stmt.loc), Copy(stmt.src, whole, loc=stmt.loc), replace(stmt, src=whole)


def with_buffers(block: Block, tiles: Mapping[Var, Var]) -> Block:
    """``block`` with buffers replaced by others of the same shape."""
    return _Redirect({tile: (made, ()) for tile, made in tiles.items()}).block(block)


class _Redirect(Rewriter):
    """Replaces buffers in loads, elements and regions by others, with indices to put before those of an
    access."""

    def __init__(self, tiles: Mapping[Var, tuple[Var, tuple[Expr, ...]]]) -> None:
        super().__init__()
        self._tiles = tiles

    def stmt(self, stmt: Stmt) -> Stmt:
        """The axis of a scan counts those that versions add, too."""
        made = super().stmt(stmt)
        if not isinstance(stmt, Scan) or stmt.src.buffer not in self._tiles:
            return made
        _, lead = self._tiles[stmt.src.buffer]
        return replace(made, axis=stmt.axis + len(lead))  # type: ignore[call-arg]

    def expr(self, expr: Expr) -> Expr:
        """With other loads."""
        read = any(load.source in self._tiles for load in loads(expr))
        return transform(expr, self._load) if read else expr

    def element(self, buffer: Var, indices: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        """The element of the version."""
        made, lead = self._tiles.get(buffer, (buffer, ()))
        return made, (*lead, *indices)

    def region(self, region: Region) -> Region:
        """The region of the version."""
        start = tuple(self.expr(part) for part in region.start)
        if region.buffer not in self._tiles:
            return replace(region, start=start)
        made, lead = self._tiles[region.buffer]
        return Region(made, (*lead, *start), (*(1 for _ in lead), *region.extent))

    def _load(self, node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source in self._tiles:
            made, lead = self._tiles[node.source]
            return tirx.BufferLoad(made, [*lead, *(self.expr(index) for index in node.indices)])
        return None
