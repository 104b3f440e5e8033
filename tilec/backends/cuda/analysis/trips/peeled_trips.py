"""First trips that an author has put in front of a loop: the same statements at the loop's first number.

load(0); C += A B; for k in 1..n: load(k); C += A B    ->    for k in 0..n: load(k); C += A B
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tvm import sym, tirx

from tilec.ir.analysis.alike import Likeness
from tilec.ir.exprs import dtype_of, inlined, int_value, same, substitute
from tilec.ir.nodes import Alloc, Bind, Block, Copy, For, Gemm, Pipelined, Stmt, children, with_children
from tilec.lowering.analysis.accesses import computed_values_of, values_of
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts

_Loop: TypeAlias = "For | Pipelined"
_Names: TypeAlias = "Mapping[Var, Expr]"


def with_first_trips(block: Block, facts: Facts, names: _Names | None = None) -> Block:
    """``block`` in which the trip before the first one of a loop of products, where it stands in front of the
    loop, is one of the loop's; a product may start its sums there. ``names``: those of values around. The
    trip in front is always there: ``facts`` tell that the loop then has it, too. A loop in front that loads
    for that trip where there is one tells it as well: else nothing would be defined that the trip multiplies.
    """
    names = {**(names or {}), **computed_values_of(block)}
    made: list[Stmt] = []
    for stmt in block:
        stmt = with_children(stmt, [with_first_trips(inner, facts, names) for inner in children(stmt)])
        if isinstance(stmt, (For, Pipelined)) and _is_plain(stmt):
            made = _joined(stmt, made, facts, names)
        else:
            made.append(stmt)
    return tuple(made)


def _is_plain(loop: _Loop) -> bool:
    counts = isinstance(loop, Pipelined) or (loop.kind == "serial" and int_value(loop.step) == 1)
    return counts and any(isinstance(stmt, Gemm) for stmt in loop.body)


def _joined(loop: _Loop, before: list[Stmt], facts: Facts, names: _Names) -> list[Stmt]:
    """What stands before a loop, and the loop, with its first trip if that is there."""
    first = sym.Analyzer().simplify(loop.start - 1)
    own = [stmt for stmt in loop.body if not isinstance(stmt, Bind)]
    left, found = _trip_before(loop, before, len(own), names)
    there = any(stmt not in before for stmt in found)
    if not there and facts.prove(inlined(loop.start <= loop.stop, names)) is not True:
        return [*before, loop]
    values = {**names, **values_of(loop.body)}
    trip = map_block(tuple(own), lambda expr: substitute(inlined(expr, values), {loop.var: first}))
    if not Likeness(_equal_where(names)).block(_added(found), _added(trip)):
        return [*before, loop]
    clears = {stmt: _clear(done, stmt, loop, first) for done, stmt in zip(found, own, strict=True)}
    if any(clear is None for clear in clears.values()):
        return [*before, loop]
    body = tuple(replace(stmt, clear=clears[stmt]) if isinstance(stmt, Gemm) else stmt for stmt in loop.body)
    return [*left, replace(loop, start=first, body=body)]


def _trip_before(loop: _Loop, before: list[Stmt], count: int, names: _Names) -> tuple[list[Stmt], list[Stmt]]:
    """The last ``count`` statements in front of a loop, and what is left without them."""
    left, kept, found = list(before), list[Stmt](), list[Stmt]()
    while left and len(found) < count:
        stmt = left.pop()
        if isinstance(stmt, Alloc) or (isinstance(stmt, Bind) and stmt.var in names):
            kept.append(stmt)
        else:
            found += reversed(_loads_once(stmt, loop, names) or (stmt,))
    return [*left, *reversed(kept)], found[::-1]


def _loads_once(stmt: Stmt, loop: _Loop, names: _Names) -> Block:
    """The loads of a loop that has one trip where ``loop`` has the one before its first, and else none."""
    if not isinstance(stmt, For) or not all(isinstance(part, (Bind, Copy)) for part in stmt.body):
        return ()
    equal = _equal_where(names)
    end = tirx.min(stmt.start + 1, loop.stop)
    if not equal(stmt.stop, end) or not equal(stmt.start + 1, loop.start):
        return ()
    values = values_of(stmt.body)
    copies = tuple(part for part in stmt.body if isinstance(part, Copy))
    return map_block(copies, lambda expr: substitute(inlined(expr, values), {stmt.var: stmt.start}))


def _equal_where(names: _Names) -> Callable[[Expr, Expr], bool]:
    """Whether two values are the same one, with ``names`` for parts of them."""
    analyzer = sym.Analyzer()

    def equal(one: Expr, other: Expr) -> bool:
        if dtype_of(one) != dtype_of(other):
            return False
        left, right = (analyzer.simplify(inlined(each, names)) for each in (one, other))
        whole = str(dtype_of(one)).startswith("int")
        return same(left, right) or (whole and int_value(analyzer.simplify(left - right)) == 0)

    return equal


def _added(block: Block | list[Stmt]) -> Block:
    """Statements whose products all add to their sums."""
    keep = tirx.const(False, "bool")
    return tuple(replace(stmt, clear=keep) if isinstance(stmt, Gemm) else stmt for stmt in block)


def _clear(done: Stmt, stmt: Stmt, loop: _Loop, first: Expr) -> Expr | None:
    """When a product of a loop starts its sums, that in front of the loop being its first one; None where
    that cannot be said, a constant for other statements."""
    if not isinstance(done, Gemm) or not isinstance(stmt, Gemm):
        return tirx.const(False, "bool")
    at_first, later = int_value(done.clear), int_value(stmt.clear)
    if at_first is None or later is None or (later and not at_first):
        return None
    return stmt.clear if at_first == later else tirx.EQ(loop.var, first)
