"""LookUp as values in registers, and which pieces of a gather a thread moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import coalesced
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.copies.pieces import pieces_of
from tilec.backends.cuda.emit.held import LookedUp, Piece
from tilec.backends.cuda.emit.loops.thread_loop import replica_zero
from tilec.backends.cuda.emit.statements import emit
from tilec.backends.cuda.nodes import LookUp
from tilec.ir.exprs import dtype_of, same, substitute
from tilec.ir.layout import Digit, Layout
from tilec.targets import LINE

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def gathered_pieces(
    variables: Sequence[Var], extents: Sequence[int], width: int, size: int, ctx: DeviceContext
) -> tuple[list[tirx.Stmt], list[Piece]]:
    """This thread's pieces of a gather of elements of ``size`` bytes, as `pieces_of` gives them; of threads
    that would have the same, those of the first."""
    layout = _by_lines(extents, ctx.warps, width, size)
    binds, pieces = pieces_of(variables, extents, layout, width, ctx)
    first = replica_zero(layout, ctx)
    if first is None:
        return binds, pieces
    return binds, [replace(piece, guards=(*piece.guards, first)) for piece in pieces]


def _by_lines(extents: Sequence[int], warps: int, width: int, size: int) -> Layout:
    """A coalesced layout in which a thread has the same part of every line (of the L2 cache) of a row: it
    looks up few rows."""
    line = LINE // size
    if len(extents) < 2 or extents[-1] <= line or extents[-1] % line:
        return coalesced(extents, warps, width)
    narrow = coalesced((*extents[:-1], line), warps, width)
    held = prod(digit.size for digits in narrow.digits for digit in digits if digit.space == "reg")
    lines = Digit(extents[-1] // line, held, "reg")
    return Layout((*narrow.digits[:-1], (*narrow.digits[-1], lines)))


@emit.register(LookUp)
def _emit_look_up(stmt: LookUp, ctx: DeviceContext) -> tirx.Stmt:
    """Through registers: TVM would write arithmetic behind a name into every use of it, in a loop too."""
    code, pieces = gathered_pieces(stmt.vars, stmt.extents, stmt.width, stmt.size, ctx)
    known = ctx.looked_up.get(stmt.registers)
    if known is None or stmt.place in known.places:
        known = ctx.looked_up[stmt.registers] = LookedUp(stmt.vars, pieces)
    values = [ctx.facts.simplify(substitute(stmt.value, piece.values)) for piece in pieces]
    apart: list[Expr] = []
    for value in values:
        apart += [] if any(same(value, other) for other in apart) else [value]
    dtype = dtype_of(stmt.value)
    held = tirx.decl_buffer((len(apart),), dtype, ctx.fresh(str(stmt.place.name), dtype).name, scope="local")
    stores = [
        tirx.BufferStore(held, ctx.value(value), [tirx.const(number, "int32")])
        for number, value in enumerate(apart)
    ]
    names = [tirx.Var(str(stmt.place.name), dtype) for _ in apart]
    for number, name in enumerate(names):
        ctx.env[name] = tirx.BufferLoad(held, [tirx.const(number, "int32")])
    found = (next(n for n, other in enumerate(apart) if same(value, other)) for value in values)
    known.places[stmt.place] = [names[number] for number in found]
    return tirx.SeqStmt([*code, tirx.AllocBuffer(held), *stores])
