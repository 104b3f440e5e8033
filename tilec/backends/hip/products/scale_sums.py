"""Sums of products that an instruction makes at a part of their value are held at that part meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.analysis.products.mma import dtypes
from tilec.backends.hip.products.instructions import matrix
from tilec.backends.hip.products.tiles import WaveGemm
from tilec.ir.exprs import int_value
from tilec.ir.nodes import (
    Block,
    For,
    If,
    Kernel,
    Parallel,
    Pipelined,
    Region,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import Group
from tilec.ir.traits import mentioned
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


class ScaleSums(Pass):
    """In: WaveGemms whose instruction makes a part of each product (`Matrix.factor`). Out: their sums are
    multiplied by that part before them and divided by it behind them, around whole loops that do nothing else
    with these. Both are exact, but for sums that are no normal numbers at that part."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such sums scaled."""
        return rewrite_launches(
            kernel, lambda launch: replace(launch, body=_block(launch.body, frozenset(), target))
        )


def _block(block: Block, held: frozenset[Var], target: Target) -> Block:
    return tuple(new for stmt in block for new in _stmt(stmt, held, target))


def _stmt(stmt: Stmt, held: frozenset[Var], target: Target) -> Iterator[Stmt]:
    """A statement with the sums that it adds to scaled, but for those that are ``held`` around it."""
    if isinstance(stmt, WaveGemm):
        yield from _around(stmt, target) if stmt.c.buffer not in held else (stmt,)
        return
    found = _added_alone(stmt, target) if isinstance(stmt, (For, Pipelined)) else {}
    sums = {buffer: factor for buffer, factor in found.items() if buffer not in held}
    yield from (_scaled(whole_tile(buffer), factor, stmt) for buffer, factor in sums.items())
    yield with_children(stmt, [_block(inner, held | sums.keys(), target) for inner in children(stmt)])
    yield from (_scaled(whole_tile(buffer), 1 / factor, stmt) for buffer, factor in sums.items())


def _around(gemm: WaveGemm, target: Target) -> Block:
    factor = _factor(gemm, target)
    if factor == 1:
        return (gemm,)
    behind = _scaled(gemm.c, 1 / factor, gemm)
    clear = int_value(gemm.clear)
    if clear:
        return gemm, behind
    before: Stmt = _scaled(gemm.c, factor, gemm)
    return before if clear == 0 else If(tirx.Not(gemm.clear), (before,), loc=gemm.loc), gemm, behind


def _factor(gemm: WaveGemm, target: Target) -> float:
    return matrix(target, dtypes(gemm), gemm.tile.instruction).factor


def _added_alone(loop: Stmt, target: Target) -> dict[Var, float]:
    """Sums with which a loop does nothing else than add products to them, each a part of its value. None of
    those of threads that have code of their own in it: the others have no part of these."""
    stmts = [stmt for inner in children(loop) for stmt in walk(inner)]
    if any(isinstance(stmt, Group) for stmt in stmts):
        return {}
    adding = {
        stmt: factor
        for stmt in stmts
        if isinstance(stmt, WaveGemm)
        and int_value(stmt.clear) == 0
        and (factor := _factor(stmt, target)) != 1
    }
    others = {name for stmt in stmts if stmt not in adding for name in mentioned(stmt)}
    return {stmt.c.buffer: factor for stmt, factor in adding.items() if stmt.c.buffer not in others}


def _scaled(region: Region, factor: float, stmt: Stmt) -> Parallel:
    """The elements of a region of sums multiplied by ``factor``."""
    i, j = (tirx.Var(name, "int32") for name in "ij")
    *lead, first, second = region.start
    at: tuple[Expr, ...] = (*lead, first + i, second + j)
    value = tirx.BufferLoad(region.buffer, list(at)) * tirx.const(factor, str(region.buffer.dtype))
    shape = tuple(int_value(extent) or 1 for extent in region.extent[-2:])
    return Parallel((i, j), shape, (Store(region.buffer, at, value, loc=stmt.loc),), loc=stmt.loc)
