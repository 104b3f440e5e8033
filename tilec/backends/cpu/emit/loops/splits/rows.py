"""Flat loops over the rows of a matrix, `X[p // n, p % n]` for p = first + i, row by row.

    i in [0, e)    ->    k in [0, rows), j in [max(0, r - k n), min(n, r + e - k n)),    i = k n + j - r

where r = first % n. Quotients by n are then one number in the inner loop, and remainders are its variable, so
that elements lie side by side whatever n is. It is worth it where n has some vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.loops.nest import Nest
from tilec.backends.cpu.emit.loops.splits.range_splits import is_invariant, written_buffers
from tilec.backends.cpu.emit.loops.splits.versions import emit_versions
from tilec.ir.exprs import cast_to, dtype_of, int_value, linear_in, same, substitute, transform, uses
from tilec.ir.nodes import Bind
from tilec.ir.traits import Rewriter
from tilec.lowering.emission.powers_of_two import is_power
from tilec.lowering.emission.statements import branch, sequence

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Block, Stmt

#: More than there are rows.
_MOST = 2**31 - 1
#: Vectors of a row from which on it has a loop of its own.
_VECTORS = 2


def emit_rows(nest: Nest, numbers: Sequence[Expr], width: int, ctx: LaneContext) -> tirx.Stmt | None:
    """The TIR of a nest, twice where its elements are those of rows of one of ``numbers``: these
    may be short."""
    found = [(number, first) for number in numbers for first in _firsts(nest, number, ctx)]
    if not found:
        return emit_versions(nest, ctx)
    number, first = found[0]
    long = number >= tirx.const(_VECTORS * width, dtype_of(number))
    known = int_value(number)
    verdict = ctx.facts.prove(long) if known is None else known >= _VECTORS * width
    if verdict is False:
        return emit_versions(nest, ctx)
    with ctx.facts.assume(long):
        then = _emit_rows(nest, first, number, ctx)
    return then if verdict else branch(ctx.value(long), then, _short(nest, width, ctx))


def _short(nest: Nest, width: int, ctx: LaneContext) -> tirx.Stmt | None:
    """The version for short rows: what it loses is no loss of the statement, but said."""
    said = len(ctx.roads)
    made = emit_versions(nest, ctx)
    lost = [road.instruction for road in ctx.roads[said:] if road.loss is not None]
    del ctx.roads[said:]
    for instruction in dict.fromkeys(lost):
        ctx.take(
            nest.body, "vectors", f"{instruction} where rows have fewer than {_VECTORS * width} elements"
        )
    return made


def _firsts(nest: Nest, number: Expr, ctx: LaneContext) -> list[Expr]:
    """The element of the first iteration of a nest of one loop, if the elements that follow are what is taken
    apart, by ``number`` or multiples of it alone. A power of two is a multiple of the lanes, or short."""
    if len(nest.loops) != 1 or dtype_of(_narrow(number)) != dtype_of(nest.vars[0]) or is_power(number):
        return []
    digits = _Digits(nest.vars[0], number, ctx)
    digits.block(nest.body)
    written = written_buffers(nest.body)
    known = all(is_invariant(first, nest.vars, written, ctx) for first in digits.firsts)
    if len(digits.firsts) != 1 or digits.others or not known:
        return []
    return digits.firsts if ctx.facts.prove(digits.firsts[0] >= 0) else []


def _emit_rows(nest: Nest, first: Expr, number: Expr, ctx: LaneContext) -> tirx.Stmt | None:
    """The loops over rows and columns, which count in the type of the loop's own variable."""
    (var, _, extent), dtype = nest.loops[0], dtype_of(nest.vars[0])
    row = tirx.Var(f"{var.name}_row", dtype_of(number))
    start, step, column = (tirx.Var(f"{var.name}_{name}", dtype) for name in ("start", "step", "column"))
    size, zero = _narrow(number), tirx.const(0, dtype)
    with ctx.scope():
        parts = [
            _bind(row, tirx.floordiv(first, number), ctx),
            _bind(start, cast_to(tirx.floormod(first, number), dtype), ctx),
        ]
        rows = tirx.floordiv(start + extent - 1, size) + 1
        for name, stop in ((row, _MOST), (start, size), (step, rows), (column, size)):
            ctx.facts.bind_range(name, 0, stop)
        before = step * size - start
        low, high = tirx.max(zero, zero - before), tirx.min(size, extent - before)
        digits = _Digits(var, number, ctx, row + cast_to(step, dtype_of(row)), column, before + column)
        inner = emit_versions(Nest(((step, zero, rows), (column, low, high)), digits.block(nest.body)), ctx)
    return None if inner is None else sequence([*parts, inner])


def _narrow(number: Expr) -> Expr:
    """A number before it was widened."""
    return number.value if isinstance(number, tirx.Cast) else number


def _bind(name: Var, value: Expr, ctx: LaneContext) -> tirx.Stmt:
    made = ctx.value(value)
    return tirx.Bind(ctx.define(name, made), made)


@dataclass(eq=False)
class _Digits(Rewriter):
    """A body without names of index arithmetic, in which quotients and remainders of ``var`` plus a number by
    ``number`` are ``row`` and ``column``, and ``var`` is ``place``. ``firsts`` are the numbers,
    ``others`` counts the quotients and remainders by what is no multiple of ``number``."""

    var: Var
    number: Expr
    ctx: LaneContext
    row: Expr | None = None
    column: Expr | None = None
    place: Expr | None = None

    def __post_init__(self) -> None:
        super().__init__()
        self.firsts: list[Expr] = []
        self.others = 0

    def stmts(self, stmt: Stmt) -> Block:
        """A statement; nothing for a name that is written out."""
        return () if self._is_written_out(stmt) else super().stmts(stmt)

    def expr(self, expr: Expr) -> Expr:
        """A value over rows and columns."""
        made = transform(self.ctx.facts.inline(expr), self._digit)
        return made if self.place is None else substitute(made, {self.var: self.place})

    def _is_written_out(self, stmt: Stmt) -> bool:
        return isinstance(stmt, Bind) and not self.ctx.facts.inline(stmt.var).same_as(stmt.var)

    def _digit(self, node: Expr) -> Expr | None:
        """What a quotient or remainder is, a remainder in the type of the loop's variable, too."""
        narrow = isinstance(node, tirx.Cast) and dtype_of(node) == dtype_of(self.var)
        digit = node.value if narrow and isinstance(node.value, tirx.FloorMod) else node
        if not isinstance(digit, (tirx.FloorDiv, tirx.FloorMod)):
            return None
        linear = linear_in(digit.a, [self.var])
        if not linear or int_value(linear[0]) != 1 or uses(linear[1], (self.var,)):
            return None
        factor = _factor(digit.b, self.number)
        self._note(linear[1], factor)
        if factor is None or self.row is None or self.column is None:
            return None
        return cast_to(self._of_row(digit, factor), dtype_of(node))

    def _of_row(self, digit: Expr, factor: Expr) -> Expr:
        if isinstance(digit, tirx.FloorDiv):
            return self.row if int_value(factor) == 1 else tirx.floordiv(self.row, factor)
        column = cast_to(self.column, dtype_of(self.number))
        return column if int_value(factor) == 1 else tirx.floormod(self.row, factor) * self.number + column

    def _note(self, first: Expr, factor: Expr | None) -> None:
        first = self.ctx.facts.simplify(first)
        self.others += factor is None
        if not any(same(first, known) for known in self.firsts):
            self.firsts.append(first)


def _factor(multiple: Expr, number: Expr) -> Expr | None:
    """``multiple`` // ``number`` where that is known to leave nothing."""
    if same(multiple, number):
        return tirx.const(1, dtype_of(number))
    whole, part = int_value(multiple), int_value(number)
    if whole and part and whole % part == 0:
        return tirx.const(whole // part, dtype_of(number))
    if not isinstance(multiple, tirx.Mul):
        return None
    return multiple.b if same(multiple.a, number) else multiple.a if same(multiple.b, number) else None
