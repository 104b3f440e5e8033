"""Statements over another buffer: a version of a tile, or its stand-in in shared memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Expr, TensorLoad

from tilec.ir.nodes import Block, Region, Stmt, Store
from tilec.lowering.exprs import transform

if TYPE_CHECKING:
    from tvm.ir import Var


def with_version(block: Block, tiles: Mapping[Var, Var], version: Expr) -> Block:
    """``block`` with every access of a tile going to ``version`` (a new first axis) of its replacement."""
    return _Redirect(tiles, (version,)).block(block)


def with_buffers(block: Block, tiles: Mapping[Var, Var]) -> Block:
    """``block`` with buffers replaced by others of the same shape."""
    return _Redirect(tiles, ()).block(block)


class _Redirect:
    """Replaces buffers in loads, stores and regions; ``lead`` are indices put before those of an access."""

    def __init__(self, tiles: Mapping[Var, Var], lead: tuple[Expr, ...]) -> None:
        self._tiles, self._lead = tiles, lead

    def block(self, block: Block) -> Block:
        """The redirected statements."""
        return tuple(self._stmt(stmt) for stmt in block)

    def _stmt(self, stmt: Stmt) -> Stmt:
        changes = {item.name: self._value(getattr(stmt, item.name)) for item in fields(stmt)
                   if item.name not in ("loc", "buffer", "indices")}  # fmt: skip
        if isinstance(stmt, Store):
            indices = tuple(self._value(index) for index in stmt.indices)
            if stmt.buffer in self._tiles:
                changes |= {"buffer": self._tiles[stmt.buffer]}
                indices = (*self._lead, *indices)
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
            return transform(value, self._load)
        return value

    def _load(self, node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source in self._tiles:
            indices = [transform(index, self._load) for index in node.indices]
            return tirx.BufferLoad(self._tiles[node.source], [*self._lead, *indices])
        return None

    def _region(self, region: Region) -> Region:
        start = tuple(transform(part, self._load) for part in region.start)
        if region.buffer not in self._tiles:
            return replace(region, start=start)
        extent = (*(1 for _ in self._lead), *region.extent)
        return Region(self._tiles[region.buffer], (*self._lead, *start), extent)
