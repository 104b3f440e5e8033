"""Sums that leave the tensor core after every trip, each times a factor: products of blocks with scales."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.nodes import Bind, Block, Gemm, Parallel, Pipelined, Region, Stmt, Store
from tilec.ir.printer import register
from tilec.lowering.exprs import dtype_of, int_value, loads, substitute, uses

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.printer import Printer


@dataclass(frozen=True, eq=False)
class Promotion(Stmt):
    """After every trip the tensor core's sum (the author's ``part``) is added to the accumulator times a
    factor, which ``body`` (one Bind) computes for a ``row`` of the tile and a ``trip`` of the loop, counted
    from ``start``."""

    part: Var
    row: Var
    trip: Var
    start: Expr
    body: Block

    @property
    def blocks(self) -> tuple[Block, ...]:
        """The blocks directly inside (`tilec.ir.nodes.children`)."""
        return (self.body,)

    @property
    def factor(self) -> Expr:
        """The factor of a row and a trip."""
        (bind,) = self.body
        assert isinstance(bind, Bind)
        return bind.value


@register(Promotion)
def _print(out: Printer, stmt: Promotion) -> None:
    out.nest(f"for {out.name(stmt.row)}, {out.name(stmt.trip)} in promoted_by():", stmt.body)


def without_promotion(loop: Pipelined) -> tuple[Pipelined, Promotion | None]:
    """A loop whose product fills a tile that its next statement adds to the accumulator times a factor of the
    row, as a loop whose product adds to the accumulator, and that statement; other loops as they are."""
    *before, last = loop.body
    gemms = [stmt for stmt in before if isinstance(stmt, Gemm)]
    if not isinstance(last, Parallel) or len(gemms) != 1 or gemms[0] is not before[-1]:
        return loop, None
    found = _scaled_sum(last, gemms[0].c)
    if found is None or int_value(gemms[0].clear) != 1:
        return loop, None
    accumulator, factor = found
    product = replace(gemms[0], c=replace(gemms[0].c, buffer=accumulator), clear=tirx.const(False, "bool"))
    body = (Bind(tirx.Var("factor", "float32"), factor),)
    promotion = Promotion(gemms[0].c.buffer, last.vars[0], loop.var, loop.start, body, loc=last.loc)
    return replace(loop, body=(*before[:-1], product)), promotion


def _scaled_sum(loop: Parallel, part: Region) -> tuple[Var, Expr] | None:
    """The accumulator and the factor of ``c[i, j] = c[i, j] + part[i, j] * factor(i)``."""
    store = loop.body[-1]
    binds = [stmt for stmt in loop.body[:-1] if isinstance(stmt, Bind)]
    if not isinstance(store, Store) or len(binds) != len(loop.body) - 1 or len(loop.vars) != 2:
        return None
    value = store.value
    for bind in reversed(binds):
        value = substitute(value, {bind.var: bind.value})
    if not isinstance(value, tirx.Add) or not _covers(loop, part) or dtype_of(value) != "float32":
        return None
    for old, product in ((value.a, value.b), (value.b, value.a)):
        factor = _factor(product, part.buffer, loop)
        if _is_element(old, store.buffer, loop) and factor is not None:
            return store.buffer, factor
    return None


def _factor(product: Expr, part: Var, loop: Parallel) -> Expr | None:
    """What an element of ``part`` is multiplied by, where that is the same for all columns."""
    if _is_element(product, part, loop):
        return tirx.const(1.0, "float32")
    if not isinstance(product, tirx.Mul):
        return None
    for element, factor in ((product.a, product.b), (product.b, product.a)):
        known = _is_element(element, part, loop) and not uses(factor, loop.vars[1:])
        if known and all(load.source.scope() == "global" for load in loads(factor)):
            return factor
    return None


def _is_element(expr: Expr, buffer: Var, loop: Parallel) -> bool:
    """Whether an expression is ``buffer[i, j]`` of a loop."""
    if not isinstance(expr, TensorLoad) or not expr.source.same_as(buffer):
        return False
    return all(index.same_as(var) for index, var in zip(expr.indices, loop.vars, strict=True))


def _covers(loop: Parallel, part: Region) -> bool:
    return [int_value(extent) for extent in loop.extents] == [int_value(n) for n in part.buffer.shape]
