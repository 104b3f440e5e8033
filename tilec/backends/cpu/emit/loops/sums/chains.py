"""Loops whose trips go on from what the trip before has stored, other than by adding to it: filters along
time, eliminations, polynomials. A vector of lanes alone would wait for each of its operations."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.exprs import inlined, int_value, same_all, uses
from tilec.ir.nodes import Alloc, For, Parallel, Stmt, Store, walk
from tilec.ir.nodes.threads import PER_THREAD
from tilec.lowering.analysis.accesses import Access, accesses, values_of
from tilec.lowering.analysis.accumulations import accumulation

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Expr, Var

#: Vectors under way at a time that hide how long operations take, and the trips of a loop that are worth it.
_VECTORS, _TRIPS = 4, 8


def chains_at_a_time(loop: Parallel, registers: int) -> int:
    """How many vectors of lanes have room in a quarter of the registers for the variables that trips of loops
    in ``loop`` go on from; 1 where no trip goes on from another."""
    names = values_of(walk(loop.body))
    inner = [stmt for stmt in walk(loop.body) if isinstance(stmt, For) and _is_long(stmt)]
    carried = {buffer for stmt in inner for buffer in _carried(stmt, names)}
    own = [buffer.shape for buffer in carried if buffer.scope() in PER_THREAD]
    held = sum(prod(int_value(extent) or 1 for extent in shape) for shape in own)
    return max(1, min(_VECTORS, registers // 4 // max(held, 1))) if carried else 1


def _is_long(loop: For) -> bool:
    trips = known_trips(loop)
    return trips is None or len(trips) >= _TRIPS


def _carried(loop: For, names: Mapping[Var, Expr]) -> set[Var]:
    """The buffers of which a trip reads what another one has stored, sums left out."""
    own = {stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc)}
    stores = [stmt for stmt in walk(loop.body) if isinstance(stmt, Store) and not _is_sum(stmt)]
    written = {stmt.buffer: _inlined(stmt.indices, names) for stmt in stores if stmt.buffer not in own}
    items = [item for item in accesses(loop.body) if not item.is_write and item.buffer in written]
    return {item.buffer for item in items if _goes_on(item, written[item.buffer], loop, names)}


def _goes_on(item: Access, written: tuple[Expr, ...], loop: For, names: Mapping[Var, Expr]) -> bool:
    """Whether an element is read that another trip may have stored at ``written``."""
    at = _inlined(item.indices, names)
    return not same_all(at, written) or not any(uses(index, (loop.var,)) for index in at)


def _inlined(indices: tuple[Expr, ...], names: Mapping[Var, Expr]) -> tuple[Expr, ...]:
    return tuple(inlined(index, names) for index in indices)


def _is_sum(stmt: Stmt) -> bool:
    made = accumulation(stmt) if isinstance(stmt, Store) else None
    return made is not None and made.kind == "sum"
