"""Loops whose few trips shuffle over distances of their own are written out: ``16 >> k`` is then a number.

Lanes that get what other lanes have, so many away, are vectors whose elements change places if it is known
how many."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import sym

from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.renaming import in_trip
from tilec.ir.exprs import int_value, uses
from tilec.ir.nodes import Break, Continue, For, children, walk, with_children
from tilec.ir.nodes.threads import SHUFFLES, Lane
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.ir.nodes import Block, Stmt

#: Steps of a warp, by powers of two, and some more.
_MOST = 8


def with_few_trips(block: Block) -> Block:
    """A block with such loops written out."""
    return tuple(new for stmt in block for new in _written_out(stmt))


def _written_out(stmt: Stmt) -> Block:
    stmt = with_children(stmt, [with_few_trips(inner) for inner in children(stmt)])
    if not isinstance(stmt, For) or not _shuffles_by(stmt):
        return (stmt,)
    trips = _trips(stmt)
    return (stmt,) if trips is None else tuple(new for trip in trips for new in _trip(stmt, trip))


def _trips(loop: For) -> range | None:
    trips = known_trips(loop)
    return trips if trips is not None and len(trips) <= _MOST else None


def _shuffles_by(loop: For) -> bool:
    """Whether lanes ask for others by the variable of a loop that runs to its end."""
    inside = list(walk(loop.body))
    if any(isinstance(stmt, (Break, Continue)) for stmt in inside):
        return False
    shuffles = (stmt for stmt in inside if isinstance(stmt, Lane) and stmt.kind in SHUFFLES)
    return any(uses(stmt.operands[1], (loop.var,)) for stmt in shuffles)


def _trip(loop: For, trip: int) -> Block:
    return map_block(in_trip(loop, trip), _number)


def _number(expr: Expr) -> Expr:
    """An expression that is one as a number."""
    made = sym.Analyzer().simplify(expr)
    return expr if int_value(made) is None else made
