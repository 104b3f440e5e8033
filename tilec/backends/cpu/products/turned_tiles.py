"""Tiles whose rows and columns change places: what is done with such a tile, done with the turned one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import transform
from tilec.ir.nodes import Alloc, Bind, Block, Copy, Fill, Gemm, Region, Stmt, Store
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.passes.base import rewrite_blocks
from tilec.lowering.passes.expand_copies import expand_copy
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def is_elementwise(stmt: Stmt, tile: Var) -> bool:
    """Whether ``stmt``, which names ``tile``, can be done with the turned one: all that it does with it but
    products."""
    if isinstance(stmt, Fill):
        return is_whole(stmt.dst)
    if isinstance(stmt, Copy):
        whole = stmt.src if stmt.src.buffer.same_as(tile) else stmt.dst
        return is_whole(whole) and not stmt.src.buffer.same_as(stmt.dst.buffer)
    return isinstance(stmt, (Store, Bind))


def holds_turnable(tile: Var, users: Iterable[Stmt], fits: Callable[[Gemm], bool]) -> bool:
    """Whether ``tile`` holds sums of products that fit, and ``users``, which name it, do nothing else with it
    than can be done with the turned one."""
    products = [user for user in users if isinstance(user, Gemm)]
    others = (user for user in users if not isinstance(user, Gemm))
    return bool(products) and all(map(fits, products)) and all(is_elementwise(user, tile) for user in others)


def with_turned(body: Block, tile: Var) -> Block:
    """``body`` with rows and columns of ``tile`` changing places: where it has the sums of products these are
    done the other way round, where it is an operand that is read turned. Copies of it are loops then."""
    turned = tirx.decl_buffer(tuple(reversed(tile.shape)), str(tile.dtype), tile.name, scope=tile.scope())

    def read(expr: Expr) -> Expr:
        return transform(expr, lambda node: _load(node, tile, turned))

    loops = rewrite_blocks(body, lambda block: [_expanded(stmt, tile) for stmt in block])
    return map_block(rewrite_blocks(loops, lambda block: [_stmt(stmt, tile, turned) for stmt in block]), read)


def _expanded(stmt: Stmt, tile: Var) -> Stmt:
    """A copy of ``tile`` as a loop; any other statement as it is."""
    if isinstance(stmt, Copy) and any(side.buffer.same_as(tile) for side in (stmt.src, stmt.dst)):
        return expand_copy(stmt)
    return stmt


def _load(node: Expr, tile: Var, turned: Var) -> Expr | None:
    if not isinstance(node, TensorLoad) or not node.source.same_as(tile):
        return None
    row, column = node.indices
    return tirx.BufferLoad(turned, [column, row])


def _stmt(stmt: Stmt, tile: Var, turned: Var) -> Stmt:
    """A statement that names ``tile`` itself; what it reads is left to others."""
    if isinstance(stmt, Alloc) and stmt.buffer.same_as(tile):
        return replace(stmt, buffer=turned)
    if isinstance(stmt, Store) and stmt.buffer.same_as(tile):
        return replace(stmt, buffer=turned, indices=tuple(reversed(stmt.indices)))
    if isinstance(stmt, Fill) and stmt.dst.buffer.same_as(tile):
        return replace(stmt, dst=_reversed(stmt.dst, turned))
    return _product(stmt, tile, turned) if isinstance(stmt, Gemm) else stmt


def _product(gemm: Gemm, tile: Var, turned: Var) -> Gemm:
    """A product into ``tile``, which is done the other way round, or of ``tile``, which it reads turned."""
    if gemm.c.buffer.same_as(tile):
        sides = replace(gemm, a=gemm.b, b=gemm.a, trans_a=not gemm.trans_b, trans_b=not gemm.trans_a)
        return replace(sides, c=_reversed(gemm.c, turned))
    if gemm.a.buffer.same_as(tile):
        gemm = replace(gemm, a=_reversed(gemm.a, turned), trans_a=not gemm.trans_a)
    if gemm.b.buffer.same_as(tile):
        gemm = replace(gemm, b=_reversed(gemm.b, turned), trans_b=not gemm.trans_b)
    return gemm


def _reversed(region: Region, turned: Var) -> Region:
    return Region(turned, tuple(reversed(region.start)), tuple(reversed(region.extent)))
