"""Sums that leave the tensor core after every trip, each times a factor of its row and one of its block of
columns: products of blocks with scales."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.ir.exprs import dtype_of, int_value, loads, substitute, transform, uses
from tilec.ir.nodes import Bind, Gemm, Parallel, Pipelined, Store
from tilec.ir.stmt import Aside, Block, Defines, Region, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.stmt import Buffer


#: A thread holds two elements of every eight columns.
_COLUMNS = 8


@dataclass(frozen=True, eq=False)
class Promotion(Stmt):
    """After every trip the tensor core's sum (the author's ``part``) is added to the accumulator times
    factors, which ``body`` computes for a ``trip`` of the loop, counted from ``start``: the first Bind that
    of a ``row`` of the tile, the second, if there is one, that of a ``column``, the same in every ``run`` of
    columns."""

    row: Defines[Var]
    column: Defines[Var]
    trip: Defines[Var]
    start: Expr
    body: Block
    run: int = 0
    part: Aside[Buffer | None] = None

    @property
    def factors(self) -> tuple[Expr, ...]:
        """The factor of a row, and that of a column if there is one."""
        return tuple(bind.value for bind in self.body if isinstance(bind, Bind))


def without_promotion(loop: Pipelined) -> tuple[Pipelined, Promotion | None]:
    """A loop whose product fills a tile that its next statement adds to the accumulator times factors of row
    and block of columns, as a loop whose product adds to the accumulator, and that statement; other loops as
    they are."""
    *before, last = loop.body
    gemms = [stmt for stmt in before if isinstance(stmt, Gemm)]
    if not isinstance(last, Parallel) or len(gemms) != 1 or gemms[0] is not before[-1]:
        return loop, None
    found = _scaled_sum(last, gemms[0].c)
    if found is None or int_value(gemms[0].clear) != 1:
        return loop, None
    accumulator, (by_row, by_column) = found
    run = run_length(by_column, last.vars[1], int_value(last.extents[1]) or 1)
    if run % _COLUMNS:
        return loop, None
    product = replace(gemms[0], c=replace(gemms[0].c, buffer=accumulator), clear=tirx.const(False, "bool"))
    row, column = last.vars
    trip = tirx.Var("trip", dtype_of(loop.var))
    by_row, by_column = (substitute(factor, {loop.var: trip}) for factor in (by_row, by_column))
    body: tuple[Bind, ...] = (Bind(tirx.Var("factor", "float32"), by_row),)
    if uses(by_column, (column,)):
        body = (*body, Bind(tirx.Var("column_factor", "float32"), by_column))
    part, run = gemms[0].c.buffer, run if len(body) > 1 else 0
    promotion = Promotion(row, column, trip, loop.start, body, run, part, loc=last.loc)
    return replace(loop, body=(*before[:-1], product)), promotion


def _scaled_sum(loop: Parallel, part: Region) -> tuple[Var, tuple[Expr, Expr]] | None:
    """The accumulator and the factors of ``c[i, j] = c[i, j] + part[i, j] * (f(i) * g(j))``."""
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
        factors = _factors(product, part.buffer, loop)
        if _is_element(old, store.buffer, loop) and factors is not None:
            return store.buffer, factors
    return None


def _factors(product: Expr, part: Var, loop: Parallel) -> tuple[Expr, Expr] | None:
    """What an element of ``part`` is multiplied by: a factor of its row and one of its column."""
    factors = _multiplied(product)
    others = [factor for factor in factors if not _is_element(factor, part, loop)]
    local = any(load.source.scope() != "global" for factor in others for load in loads(factor))
    if len(others) != len(factors) - 1 or local:
        return None
    row, column = loop.vars
    if any(uses(factor, (row,)) and uses(factor, (column,)) for factor in others):
        return None
    by_column = [factor for factor in others if uses(factor, (column,))]
    return _product([each for each in others if not uses(each, (column,))]), _product(by_column)


def _multiplied(product: Expr) -> list[Expr]:
    """The factors of a product."""
    if not isinstance(product, tirx.Mul):
        return [product]
    return [*_multiplied(product.a), *_multiplied(product.b)]


def _product(factors: list[Expr]) -> Expr:
    if not factors:
        return tirx.const(1.0, "float32")
    product, *others = factors
    for factor in others:
        product = product * factor
    return product


def _is_element(expr: Expr, buffer: Var, loop: Parallel) -> bool:
    """Whether an expression is ``buffer[i, j]`` of a loop."""
    if not isinstance(expr, TensorLoad) or not expr.source.same_as(buffer):
        return False
    return all(index.same_as(var) for index, var in zip(expr.indices, loop.vars, strict=True))


def _covers(loop: Parallel, part: Region) -> bool:
    return [int_value(extent) for extent in loop.extents] == [int_value(n) for n in part.buffer.shape]


# ---- how many neighbouring columns share a factor ----


def run_length(value: Expr, column: Var, columns: int) -> int:
    """The longest run of columns, aligned to its own length and a divisor of ``columns``, within which
    ``value`` is the same whatever its other variables are: ``column`` may stand in quotients
    ``(start + column) // n`` alone. 1 where it stands elsewhere."""
    found = [columns]

    def visit(node: Expr) -> Expr | None:
        block = _block_of(node, column)
        if block is None:
            return None
        found.append(block)
        return tirx.const(0, dtype_of(node))

    rest = transform(value, visit)
    return 1 if uses(rest, (column,)) else math.gcd(*found)


def _block_of(node: Expr, column: Var) -> int | None:
    """The common divisor of n and start in ``(start + column) // n``; None for other expressions."""
    if not isinstance(node, tirx.FloorDiv) or not uses(node.a, (column,)):
        return None
    size, zero = int_value(node.b), tirx.const(0, dtype_of(column))
    start = substitute(node.a, {column: zero})
    analyzer = sym.Analyzer()
    step = int_value(analyzer.simplify(node.a - start - column))
    if size is None or step != 0:
        return None
    known = analyzer.modular_set(start)
    return math.gcd(size, known.coeff, known.base)
