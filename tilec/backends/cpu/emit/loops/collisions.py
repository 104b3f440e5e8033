"""Iterations that update one and the same element, which has to happen one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.products.tir import prefetch
from tilec.ir.exprs import int_value, linear_in, reads, uses
from tilec.ir.nodes import Alloc, Block, Store, walk
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.accumulations import dependents
from tilec.lowering.analysis.exchanges import exchanges

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext


def shared_elements(var: Var, body: Block, ctx: LaneContext) -> list[Var]:
    """The buffers of which iterations over ``var`` may both read and write one element at indices that vary
    with ``var``, or update one that all share and no accumulator holds. Elements that an iteration exchanges
    are its own."""
    moving = dependents(body, var)
    own = {stmt.buffer for stmt in walk(body) if isinstance(stmt, Alloc)}
    read = {load.source for load in loads_of(*walk(body))}
    found: dict[Var, None] = {}
    for stmt in walk(body):
        if not isinstance(stmt, Store) or stmt.buffer in own or stmt.buffer not in read:
            continue
        indices = [ctx.facts.inline(index) for index in stmt.indices]
        moves = any(uses(index, moving) for index in indices)
        if not _is_apart(indices, var, moving) if moves else _is_counted(stmt, ctx):
            found[stmt.buffer] = None
    return [buffer for buffer in found if not (_scatters(ctx) and exchanges(buffer, body, ctx))]


def _is_counted(stmt: Store, ctx: LaneContext) -> bool:
    """Whether iterations update one element that no accumulator holds."""
    return stmt not in ctx.accumulators and reads(stmt.value, (stmt.buffer,))


def _scatters(ctx: LaneContext) -> bool:
    """Whether vectors of exchanged elements are worth it: they lie side by side, or one instruction scatters
    them."""
    return bool(ctx.multiples) or ctx.target.vector_bits >= 512


def barrier(shared: Sequence[Var], ctx: LaneContext) -> list[tirx.Stmt]:
    """What keeps LLVM from making vectors of a loop over ``shared`` elements itself, where it loses updates
    at indices such as j % 3: a prefetch, which has no vector form and costs next to nothing."""
    return [prefetch(_start(ctx.storage(buffer).data)) for buffer in shared]


def _start(data: Var) -> Expr:
    return tirx.call_intrin("handle", "tirx.address_of", tirx.BufferLoad(data, [tirx.const(0, "int32")]))


def _is_apart(indices: Sequence[Expr], var: Var, moving: tuple[Var, ...]) -> bool:
    """Whether some index moves with ``var`` and with nothing else that does: never back to an element."""
    for index in indices:
        linear = linear_in(index, [var])
        if linear and int_value(linear[0]) and not uses(linear[1], moving):
            return True
    return False
