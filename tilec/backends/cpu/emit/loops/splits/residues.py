"""Iterations whose loops meet an element in one of several trips alone, as those of transposed convolutions.

for i in parallel(64): for k in serial(0, 4): if (i - k) % 2 == 0: s = s + X[(i - k) // 2] * W[k]
->
for i in parallel(32): for k in serial(0, 2): s = s + X[i - k] * W[k * 2]            where i * 2 was i
for i in parallel(32): for k in serial(0, 2): s = s + X[i - k] * W[k * 2 + 1]        where i * 2 + 1 was i

Loops then have the trips that do something, and lanes, whose iterations are of one remainder, do the same in
all of them with elements that lie side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.nodes import AskAhead
from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.exprs import (
    DIVISIONS,
    conjuncts,
    dtype_of,
    inlined,
    int_value,
    linear_in,
    loads,
    transform,
    uses,
)
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Parallel, children, walk
from tilec.ir.traits import Rewriter, defined
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.passes.base import rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Stmt
    from tilec.lowering.analysis.facts import Facts

#: Remainders beyond which there would be too much code, and iterations of each that are worth it.
_MOST, _FEW = 8, 4
#: Statements that do nothing that a trip could miss.
_HARMLESS = (Bind, Alloc, AskAhead)


def by_residue(loop: Parallel, lane: int, ctx: LaneContext) -> list[Parallel]:
    """Loops that do together what ``loop`` does, one for each remainder of the variable of the lanes where
    conditions around or in loops inside ask for it; these loops have the trips that do something."""
    remainders = _remainders(loop.body)
    if not remainders:
        return [loop]
    extent = int_value(loop.extents[lane]) or 0
    moving = (int_value(digit.b) or 0 for digit in remainders if _steps(digit, loop.vars[lane]))
    number = min((number for number in moving if number <= _MOST), default=0)
    if not number or extent < _FEW * number:
        return [_strided(loop, lane, ctx)]
    parts = (_residue(loop, lane, number, residue, extent) for residue in range(number))
    return [_strided(part, lane, ctx) for part in parts]


def _remainders(block: Block) -> list[Expr]:
    """Those by numbers, over no names, that conditions around or in loops ask for."""
    names = values_of(walk(block))
    nodes = (node for cond in _conditions(block) for node in walk_expr(inlined(cond, names)))
    return [node for node in nodes if isinstance(node, tirx.FloorMod) and int_value(node.b)]


def _conditions(block: Block, inside: bool = False) -> Iterator[Expr]:
    """Those of branches that are in loops, or have loops inside."""
    for stmt in block:
        if isinstance(stmt, If) and (inside or any(isinstance(each, For) for each in walk((stmt,)))):
            yield stmt.cond
        for inner in children(stmt):
            yield from _conditions(inner, inside or isinstance(stmt, For))


def _steps(digit: Expr, var: Var) -> bool:
    """Whether a remainder differs from one number of ``var`` to the next, by a number."""
    linear, size = linear_in(digit.a, [var]), int_value(digit.b)
    factor = int_value(linear[0]) if linear else None
    return bool(size and factor and factor % size) and next(loads(digit.a), None) is None


def _residue(loop: Parallel, lane: int, number: int, residue: int, extent: int) -> Parallel:
    """The iterations of one remainder."""
    old = loop.vars[lane]
    var = tirx.Var(str(old.name), dtype_of(old))
    return replace(
        loop,
        vars=(*loop.vars[:lane], var, *loop.vars[lane + 1 :]),
        extents=(*loop.extents[:lane], -(-(extent - residue) // number), *loop.extents[lane + 1 :]),
        body=copied(renamed(loop.body, {old: var * number + residue})),
    )


@dataclass(frozen=True, eq=False)
class Residue:
    """That a trip does something where its number is ``first`` modulo ``number``; none does where ``place``
    is no remainder by that."""

    first: Expr
    number: int
    place: Expr


def _strided(loop: Parallel, lane: int, ctx: LaneContext) -> Parallel:
    """Iterations with the trips of loops that do something, over numbers that no longer are taken apart."""
    names = values_of(walk(loop.body))
    body = rewrite_blocks(loop.body, _Strides(loop.vars[lane], names, ctx.facts).block)
    names = {var: value for var, value in values_of(walk(body)).items() if var in names}
    return replace(loop, body=_Digits(names, ctx.facts).block(body))


@dataclass(eq=False)
class _Strides:
    """Loops with the trips that do something, the same ones in lanes along ``lane``; ``names`` stand for
    values."""

    lane: Var
    names: Mapping[Var, Expr]
    facts: Facts

    def block(self, block: Block) -> Block:
        """A block whose inner blocks have such loops."""
        return tuple(new for stmt in block for new in self._strided(stmt))

    def _strided(self, stmt: Stmt) -> Block:
        """A loop behind a name for how often all numbers go into its first one, unless that is known."""
        loop = stmt if isinstance(stmt, For) and int_value(stmt.step) == 1 else None
        found = next(self._residues(loop), None) if loop is not None else None
        if loop is None or found is None:
            return (stmt,)
        dtype, number = dtype_of(loop.var), found.number
        before = found.first - loop.start
        residue, times = (
            self.facts.simplify(kind(before, number)) for kind in (tirx.floormod, tirx.floordiv)
        )
        names: Block = ()
        if int_value(residue) is None:
            names = (Bind(tirx.Var("times", dtype), times, loc=loop.loc),)
            times = names[0].var
        trip = tirx.Var(str(loop.var.name), dtype)
        trips = self.facts.simplify(tirx.floordiv(loop.stop - loop.start - residue + (number - 1), number))
        least = self.facts.simplify(found.first - times * number)
        body = renamed(loop.body, {loop.var: least + trip * number})
        return (*names, replace(loop, var=trip, start=tirx.const(0, dtype), stop=trips, body=body))

    def _residues(self, loop: For) -> Iterator[Residue]:
        """Those of conditions of ``loop`` that are the same in all trips and lanes."""
        inside = {var for stmt in walk(loop.body) for var in defined(stmt)}
        for cond in needed(loop.body, self.names):
            found = residue_of(cond, loop.var)
            if found is not None and not uses(found.first, inside) and self._is_alike(found):
                yield found

    def _is_alike(self, found: Residue) -> bool:
        if not uses(found.first, (self.lane,)):
            return True
        return int_value(self.facts.simplify(tirx.floormod(found.first, found.number))) is not None


class _Digits(Rewriter):
    """Statements whose quotients and remainders are linear where they are known to be."""

    def __init__(self, names: Mapping[Var, Expr], facts: Facts) -> None:
        super().__init__()
        self._names, self._facts = names, facts

    def expr(self, expr: Expr) -> Expr:
        """With such quotients and remainders."""
        return transform(expr, self._linear)

    def _linear(self, node: Expr) -> Expr | None:
        if not isinstance(node, (tirx.FloorDiv, tirx.FloorMod)):
            return None
        made = self._facts.simplify(inlined(node, self._names))
        return None if any(isinstance(part, DIVISIONS) for part in walk_expr(made)) else made


def needed(block: Block, names: Mapping[Var, Expr]) -> list[Expr]:
    """What has to hold, over no names, where a block does something."""
    stmts = [stmt for stmt in block if not isinstance(stmt, _HARMLESS)]
    only = stmts[0] if len(stmts) == 1 else None
    if isinstance(only, For):
        return needed(only.body, names)
    if not isinstance(only, If) or only.orelse:
        return []
    return [*conjuncts(inlined(only.cond, names)), *needed(only.then, names)]


def residue_of(cond: Expr, var: Var) -> Residue | None:
    """Which numbers of ``var`` a condition holds for, ``(var + rest) % number == place`` or that of a
    difference; None of any other one."""
    if not isinstance(cond, tirx.EQ) or not isinstance(cond.a, tirx.FloorMod):
        return None
    digit, number, place = cond.a, int_value(cond.a.b), cond.b
    linear = linear_in(digit.a, [var]) if dtype_of(digit.a) == dtype_of(var) else []
    factor = int_value(linear[0]) if linear else None
    if number is None or number < 2 or factor not in (1, -1) or uses(place, (var,)):
        return None
    if any(next(loads(part), None) is not None for part in (linear[1], place)):
        return None
    return Residue(place - linear[1] if factor == 1 else linear[1] - place, number, place)
