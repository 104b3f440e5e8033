"""The pieces of a tile that one thread moves, each with its registers' part of the indices as a constant."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.emit.held import Piece
from tilec.backends.cuda.emit.products.lane_digits import thread_digit
from tilec.ir.exprs import dtype_of
from tilec.ir.layout_algebra import terms
from tilec.lowering.analysis.counted import counted

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.ir.layout import Layout
    from tilec.ir.layout_algebra import Term


def pieces_of(
    variables: Sequence[Var], extents: Sequence[int], layout: Layout, vector: int, ctx: DeviceContext
) -> tuple[list[tirx.Stmt], list[Piece]]:
    """Definitions of what the thread decides about each variable, and this thread's pieces of ``vector``
    elements under ``layout``."""
    binds: list[tirx.Stmt] = []
    own: list[Var] = []
    for axis, var in enumerate(variables):
        digits = [term for term in terms(layout, axis) if term.space != "reg"]
        name, bind = _thread_part(var, digits, ctx)
        own.append(name)
        binds.append(bind)
    last = len(variables) - 1
    steps = [_register_steps(layout, axis, vector if axis == last else 1) for axis in range(last + 1)]
    found = [_piece(variables, extents, own, offsets, ctx) for offsets in itertools.product(*steps)]
    return binds, [piece for piece in found if piece is not None]


def _piece(
    variables: Sequence[Var],
    extents: Sequence[int],
    own: Sequence[Var],
    offsets: Sequence[int],
    ctx: DeviceContext,
) -> Piece | None:
    """The piece ``offsets`` beyond what the thread decides; None where the tile ends before it."""
    values: dict[Var, Expr] = {}
    guards: list[Expr] = []
    for var, extent, part, offset in zip(variables, extents, own, offsets, strict=True):
        values[var] = part + tirx.const(offset, dtype_of(var))
        inside = tirx.LT(values[var], tirx.const(extent, dtype_of(var)))
        verdict = ctx.facts.prove(inside)
        if verdict is False:
            return None
        guards += [inside] if verdict is None else []
    return Piece(values, tuple(guards))


def _thread_part(var: Var, digits: Sequence[Term], ctx: DeviceContext) -> tuple[Var, tirx.Stmt]:
    """A name for the part of a variable that lanes and warps decide, known to be below its limit."""
    total: Expr = tirx.const(0, "int32")
    most = 0
    for term in digits:
        total = total + thread_digit(term.space, term.stride, term.size, ctx) * tirx.const(
            term.weight, "int32"
        )
        most += (term.size - 1) * term.weight
    value = total if dtype_of(var) == "int32" else tirx.Cast(dtype_of(var), total)
    part = tirx.Var(f"{var.name}_part", dtype_of(var))
    ctx.facts.bind_range(part, 0, most + 1)
    new = ctx.define(part, value)
    counted((new,), (most + 1,), ctx.facts.analyzer)
    return part, tirx.Bind(new, value)


def _register_steps(layout: Layout, axis: int, vector: int) -> list[int]:
    """The distances along an axis between the pieces of one thread."""
    return sorted(sum(choice) for choice in itertools.product(*_choices(layout, axis, vector)))


def _choices(layout: Layout, axis: int, vector: int) -> Iterator[range]:
    for term in terms(layout, axis):
        if term.space != "reg":
            continue
        first = vector if term.weight == 1 else 1
        yield range(0, term.size * term.weight, term.weight * first)
