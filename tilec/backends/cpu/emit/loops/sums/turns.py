"""Few sums of a loop take its trips in turns, so that they do not wait for each other.

s = 0; for c in serial(0, 32): for k in serial(0, 3): s = s + X[c, k + i] * W[c, k]
->
s = t = 0; for c in serial(0, 16): for k in serial(0, 3): s = s + X[c * 2, ..] ..; t = t + X[c * 2 + 1, ..] ..
s = s + t
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.loops.sums.joined import joined_trips, sums_of
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Alloc, Block, For, Parallel, Stmt, Store, walk
from tilec.lowering.analysis.accumulations import accumulation, identity, touches
from tilec.lowering.analysis.uses import written_in

if TYPE_CHECKING:
    from tvm.ir import Var

#: Additions under way at a time that hide how long one takes, and the trips of a loop that are worth it.
_CHAINS, _MOST, _TRIPS = 8, 4, 8
#: Types whose additions take several cycles.
_SLOW = ("float32", "float64")


def in_turns(loop: Parallel, lane: int) -> Parallel:
    """``loop``, whose lanes run along an axis, with as many sums under way as there should be."""
    sums = sums_of(loop.body)
    count = min(_MOST, _CHAINS // len(sums)) if sums else 1
    allocs = {stmt.buffer: stmt for stmt in loop.body if isinstance(stmt, Alloc)}
    if count < 2:
        return loop
    body = (made for stmt in loop.body for made in _shared_out(stmt, allocs, count, loop.vars[lane]))
    return replace(loop, body=tuple(body))


def _shared_out(stmt: Stmt, allocs: dict[Var, Alloc], count: int, lane: Var) -> Block:
    """A loop that does nothing but add to variables as one that takes several trips at a time."""
    if not isinstance(stmt, For) or not is_scalar_code(stmt.body):
        return (stmt,)
    trips = len(known_trips(stmt) or ())
    count = max(number for number in range(1, count + 1) if trips % number == 0)
    added = written_in(stmt.body) - {inner.buffer for inner in walk(stmt.body) if isinstance(inner, Alloc)}
    if count < 2 or trips < _TRIPS or not all(buffer in allocs and _is_sum(buffer, stmt) for buffer in added):
        return (stmt,)
    others = [{buffer: _like(buffer) for buffer in added} for _ in range(count - 1)]
    var = tirx.Var(str(stmt.var.name), dtype_of(stmt.var))
    bodies = [
        copied(renamed(stmt.body, {stmt.var: stmt.start + (var * count + number) * stmt.step, **names}))
        for number, names in enumerate([{}, *others])
    ]
    zero, one, stop = (tirx.const(number, dtype_of(var)) for number in (0, 1, trips // count))
    pairs = [(buffer, other) for names in others for buffer, other in names.items()]
    return (
        *(
            replace(allocs[buffer], buffer=other, init=identity("sum", str(buffer.dtype)))
            for buffer, other in pairs
        ),
        replace(stmt, var=var, start=zero, stop=stop, step=one, body=joined_trips(bodies, lane)),
        *(_added(buffer, other, stmt) for buffer, other in pairs),
    )


def _is_sum(buffer: Var, loop: For) -> bool:
    """Whether trips of a loop do nothing with a variable but to add to it, which takes a while."""
    stores = [stmt for stmt in walk(loop.body) if isinstance(stmt, Store) and stmt.buffer.same_as(buffer)]
    made = accumulation(stores[0]) if len(stores) == 1 else None
    slow = str(buffer.dtype) in _SLOW
    return slow and made is not None and made.kind == "sum" and touches(loop.body, buffer) == 2


def _like(buffer: Var) -> Var:
    return tirx.decl_buffer((1,), str(buffer.dtype), str(buffer.name), scope=buffer.scope())


def _begun(alloc: Alloc, other: Var) -> Alloc:
    """A variable like one that is there, to which nothing has been added."""
    return replace(alloc, buffer=other, init=identity("sum", str(other.dtype)))


def _added(buffer: Var, other: Var, origin: Stmt) -> Store:
    at = (tirx.const(0, "int32"),)
    total = tirx.BufferLoad(buffer, list(at)) + tirx.BufferLoad(other, list(at))
    return Store(buffer, at, total, loc=origin.loc)
