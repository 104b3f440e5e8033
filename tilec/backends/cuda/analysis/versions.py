"""Statements over another buffer: a version of a tile, or its stand-in in shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Expr, TensorLoad

from tilec.ir.nodes import Block, Region, Stmt, Store
from tilec.lowering.exprs import loads, transform

if TYPE_CHECKING:
    from tvm.ir import Var


def with_version(block: Block, tiles: Mapping[Var, Var], version: Expr) -> Block:
    """``block`` with every access of a tile going to ``version`` (a new first axis) of its replacement."""
    return with_versions(block, {tile: (made, version) for tile, made in tiles.items()})


def with_versions(block: Block, tiles: Mapping[Var, tuple[Var, Expr]]) -> Block:
    """``block`` with every access of a tile going to its replacement, and there to its version (a new first
    axis)."""
    return _Redirect({tile: (made, (version,)) for tile, (made, version) in tiles.items()}).block(block)


def with_buffers(block: Block, tiles: Mapping[Var, Var]) -> Block:
    """``block`` with buffers replaced by others of the same shape."""
    return _Redirect({tile: (made, ()) for tile, made in tiles.items()}).block(block)


class _Redirect:
    """Replaces buffers in loads, stores and regions by others, with indices to put before those of an
    access."""

    def __init__(self, tiles: Mapping[Var, tuple[Var, tuple[Expr, ...]]]) -> None:
        self._tiles = tiles

    def block(self, block: Block) -> Block:
        """The redirected statements."""
        return tuple(self._stmt(stmt) for stmt in block)

    def _stmt(self, stmt: Stmt) -> Stmt:
        changes = {item.name: self._value(getattr(stmt, item.name)) for item in fields(stmt)
                   if item.name not in ("loc", "buffer", "indices")}  # fmt: skip
        if isinstance(stmt, Store):
            indices = tuple(self._value(index) for index in stmt.indices)
            if stmt.buffer in self._tiles:
                made, lead = self._tiles[stmt.buffer]
                changes |= {"buffer": made}
                indices = (*lead, *indices)
            changes |= {"indices": indices}
        return replace(stmt, **changes)

    def _value(self, value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(self._value(part) for part in value)
        if isinstance(value, Stmt):
            return self._stmt(value)
        if isinstance(value, Region):
            return self._region(value)
        if isinstance(value, Expr) and not tirx.is_buffer_var(value):
            return self._expr(value)
        return value

    def _expr(self, expr: Expr) -> Expr:
        read = any(load.source in self._tiles for load in loads(expr))
        return transform(expr, self._load) if read else expr

    def _load(self, node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source in self._tiles:
            made, lead = self._tiles[node.source]
            return tirx.BufferLoad(made, [*lead, *(self._expr(index) for index in node.indices)])
        return None

    def _region(self, region: Region) -> Region:
        start = tuple(self._expr(part) for part in region.start)
        if region.buffer not in self._tiles:
            return replace(region, start=start)
        made, lead = self._tiles[region.buffer]
        return Region(made, (*lead, *start), (*(1 for _ in lead), *region.extent))
