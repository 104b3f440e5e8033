"""Serial loops as rewriting makes them: of counts, of other loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import as_expr, dtype_of
from tilec.ir.nodes import For

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block, Loc, Pipelined


def serial_loop(var: Var, extent: int | Expr, body: Block, loc: Loc | None = None) -> For:
    """The loop whose ``var`` counts from 0 up to ``extent``."""
    dtype = dtype_of(var)
    zero, one = tirx.const(0, dtype), tirx.const(1, dtype)
    return For("serial", var, zero, as_expr(extent, dtype), one, body, loc=loc)


def serial_nest(
    variables: Sequence[Var], extents: Sequence[int | Expr], body: Block, loc: Loc | None = None
) -> Block:
    """``body`` in such a loop for each variable, that of the last one innermost."""
    for var, extent in reversed(list(zip(variables, extents, strict=True))):
        body = (serial_loop(var, extent, body, loc),)
    return body


def serial(loop: Pipelined, body: Block) -> For:
    """A loop of the same trips as a pipelined one, one after the other."""
    one = tirx.const(1, dtype_of(loop.var))
    return For("serial", loop.var, loop.start, loop.stop, one, body, loc=loop.loc)
