"""Reductions of a tile into a thread's own storage: into a tile of the block, which every thread copies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir import nodes as ir
from tilec.ir.serial import serial_nest
from tilec.lowering.analysis.regions import static

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def through_tile(stmt: ir.Reduce) -> tuple[list[ir.Stmt], list[ir.Stmt]]:
    """What the block does in place of ``stmt``, and what each thread does then."""
    own, extents = stmt.dst, tuple(static(extent) for extent in stmt.dst.extent)
    tile = tirx.decl_buffer(extents, str(own.buffer.dtype), own.buffer.name, scope="local.fragment")
    zeros = tuple(tirx.const(0, "int32") for _ in extents)
    reduced = replace(stmt, dst=ir.Region(tile, zeros, extents))
    block: list[ir.Stmt] = [ir.Alloc(tile, loc=stmt.loc)]
    if not stmt.clear:
        block.append(_parallel(tile, own, extents, stmt.loc))
    return [*block, reduced], [_copied(tile, own, extents, stmt.loc)]


def _parallel(tile: Var, own: ir.Region, extents: tuple[int, ...], loc: ir.Loc | None) -> ir.Stmt:
    """The old contents, which are the same in all threads."""
    places = tuple(tirx.Var("i", "int32") for _ in extents)
    value = tirx.BufferLoad(own.buffer, list(_at(own, places)))
    return ir.Parallel(places, extents, (ir.Store(tile, places, value, loc=loc),), loc=loc)


def _copied(tile: Var, own: ir.Region, extents: tuple[int, ...], loc: ir.Loc | None) -> ir.Stmt:
    """The loops of a thread over its copy."""
    places = tuple(tirx.Var("i", "int32") for _ in extents)
    value = tirx.BufferLoad(tile, list(places))
    store = ir.Store(own.buffer, _at(own, places), value, loc=loc)
    return serial_nest(places, extents, (store,), loc)[0]


def _at(region: ir.Region, places: tuple[Var, ...]) -> tuple[Expr, ...]:
    return tuple(start + place for start, place in zip(region.start, places, strict=True))
