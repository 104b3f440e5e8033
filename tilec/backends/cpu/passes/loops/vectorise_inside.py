"""Loops inside of a T.Parallel's iterations take the lanes, where their trips are the neighbours in memory.

for i in parallel(64): for k in serial(0, n): s[i] = s[i] + W[i, k] * x[k]
->
for i in serial(0, 64): for k in parallel(n): s[i] = s[i] + W[i, k] * x[k]

Sums of such a loop are those of lanes, added at its end, or behind the loops around that add to nothing else.
Iterations whose sums share what they read run several at a time. Where lanes of the iterations would gather
the same elements in each trip of a loop around, they hold them (`held_reads`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, TensorLoad

from tilec.backends.cpu.emit.loops.sums.joined import joined_rows
from tilec.backends.cpu.passes.few_bits.joined_sums import with_joined_sums
from tilec.backends.cpu.passes.loops.held_reads import with_held_reads
from tilec.ir.analysis.known_trips import counts_from_zero, known_trips
from tilec.ir.analysis.renaming import renamed
from tilec.ir.analysis.scalar_code import is_scalar_code
from tilec.ir.exprs import dtype_of, inlined, int_value, linear_in, operands, transform, uses
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    For,
    Parallel,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.serial import serial_nest
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accesses import Access, own_accesses, values_of
from tilec.lowering.analysis.accumulations import find_accumulations
from tilec.lowering.analysis.free_trips import are_free
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Kernel
    from tilec.targets import Target

#: Trips below which a loop is too short for lanes, and those of one whose count is not known.
_SHORT, _UNKNOWN = 3, 64
#: Lanes of the widest vectors of numbers, and those that share what an access or an operation costs, as not
#: all vectors are the widest.
_LANES, _SHARING = 16, 8
#: What an operation costs beside an access of one element, a call of a function, and the end of a sum.
_OPERATION, _CALL, _END = 0.25, 4.0, 2.0
#: Steps along which neighbours are read along with what lies between them, and what such an element costs.
_NEAR, _READ_NEAR = (2, 3, 4), 0.5
#: Calls that are no more than an operation.
_BITS = ("tirx.reinterpret", "tirx.if_then_else", "tirx.likely", "tirx.fabs")
#: How much dearer lanes of the iterations have to be. The estimate knows no cache.
_GAIN = 1.5


class VectoriseInside(Pass):
    """In: loops. Out: Parallel loops whose lanes would gather what loops inside read and write side by side
    are serial, and these loops are Parallel, as are those of a launch itself whose trips may be lanes."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such loops turned."""
        turned = partial(_in_block, registers=target.vector_registers)
        return rewrite_launches(
            kernel, lambda launch: replace(launch, body=_alone(rewrite_blocks(launch.body, turned), {}))
        )


def _in_block(block: Block, registers: int) -> list[Stmt]:
    return [
        made
        for stmt in block
        for made in (_turned(stmt, registers) if isinstance(stmt, Parallel) else [stmt])
    ]


def _alone(block: Block, names: Mapping[Var, Expr]) -> Block:
    """A block of a launch itself whose loops have lanes where their trips may run in any order and gain."""
    names = {**names, **values_of(block)}
    return tuple(
        made
        for stmt in block
        for made in ((stmt,) if isinstance(stmt, Parallel) else _with_lanes(stmt, names))
    )


def _with_lanes(stmt: Stmt, names: Mapping[Var, Expr]) -> Block:
    if not isinstance(stmt, For) or stmt.kind != "serial" or not is_scalar_code(stmt.body):
        return (with_children(stmt, [_alone(inner, names) for inner in children(stmt)]),)
    names = {**names, **values_of(walk(stmt.body))}
    found = _candidates((stmt,), names)
    gains = _GAIN * _cost((stmt,), names, _ALONE, found) < _cost((stmt,), names, _ALONE, ())
    return _replaced((stmt,), found) if gains else (stmt,)


def _turned(outer: Parallel, registers: int) -> Sequence[Stmt]:
    if outer.hints.given or not is_scalar_code(outer.body):
        return [outer]
    body, names = with_joined_sums(outer.body), values_of(walk(outer.body))
    found, held = _candidates(body, names), _with_held_reads(outer)
    if not found or _GAIN * _cost(body, names, _ALONE, found) >= _cost_of_lanes(held):
        return [held]
    return [_one_by_one(part) for part in joined_rows(replace(outer, body=body), registers)]


def _cost_of_lanes(outer: Parallel) -> float:
    """What the body costs an iteration with lanes along the axis that suits it best."""
    names = values_of(walk(outer.body))
    return min(
        _cost(outer.body, names, _ALONE if extent == 1 else _Axis(var), ())
        for var, extent in zip(outer.vars, outer.extents, strict=True)
    )


def _with_held_reads(outer: Parallel) -> Parallel:
    """`with_held_reads`, where the last axis fills a vector: arrays of few lanes are no shorter."""
    lanes = int_value(outer.extents[-1])
    if lanes is not None and lanes < _LANES:
        return outer
    return with_held_reads(outer, partial(_is_apart, var=outer.vars[-1]))


def _is_apart(item: Access, var: Var) -> bool:
    """Whether lanes along ``var`` gather an element, or pick it from vectors."""
    return _step(item, {}, var) not in (0, 1)


def _one_by_one(outer: Parallel) -> Stmt:
    """Iterations one after the other, their loops in lanes."""
    body = _replaced(outer.body, _candidates(outer.body, values_of(walk(outer.body))))
    return serial_nest(outer.vars, outer.extents, body, outer.loc)[0]


def _replaced(block: Block, found: Sequence[For]) -> Block:
    """A block with the loops found as Parallel, together with those around that are nothing else."""

    def made(stmt: Stmt) -> Block:
        if isinstance(stmt, For) and stmt in found:
            return _over_trips(stmt)
        inside = with_children(stmt, [_replaced(inner, found) for inner in children(stmt)])
        return ((_merged(inside) or inside) if isinstance(inside, For) else inside,)

    return tuple(new for stmt in block for new in made(stmt))


def _over_trips(loop: For) -> Block:
    """A loop as a Parallel over the numbers of its trips, behind names for where it starts and how many there
    are where it does not count from zero: what says so is read once."""
    if counts_from_zero(loop):
        return (Parallel((loop.var,), (_trips(loop) or loop.stop,), loop.body, loc=loop.loc),)
    dtype = dtype_of(loop.var)
    first, count, trip = (tirx.Var(f"{loop.var.name}_{part}", dtype) for part in ("first", "count", "trip"))
    length = tirx.max(loop.stop - first, tirx.const(0, dtype))
    body = renamed(loop.body, {loop.var: first + trip})
    return (
        Bind(first, loop.start, loc=loop.loc),
        Bind(count, length, loc=loop.loc),
        Parallel((trip,), (_trips(loop) or count,), body, loc=loop.loc),
    )


def _merged(loop: For) -> Parallel | None:
    """A loop over nothing but a Parallel that does nothing but add up, as one; None for any other."""
    inner = loop.body[0] if len(loop.body) == 1 else None
    if not isinstance(inner, Parallel) or not counts_from_zero(loop):
        return None
    variables = (loop.var, *inner.vars)
    sums = [{item.store.buffer for item in find_accumulations(inner.body, var)} for var in variables]
    own = {stmt.buffer for stmt in walk(inner.body) if isinstance(stmt, Alloc)}
    others = written_in(inner.body) - own - set.intersection(*sums)
    if others or any(uses(extent, variables) for extent in inner.extents if not isinstance(extent, int)):
        return None
    return replace(inner, vars=variables, extents=(_trips(loop) or loop.stop, *inner.extents))


def _trips(loop: For) -> int | None:
    known = known_trips(loop)
    return None if known is None else len(known)


# ---- which loops may ----


def _candidates(block: Block, names: Mapping[Var, Expr]) -> list[For]:
    """Loops whose trips are many and may run in any order; of one inside of another, the better one."""
    found: list[For] = []
    for stmt in block:
        inside = [loop for inner in children(stmt) for loop in _candidates(inner, names)]
        if isinstance(stmt, For) and _is_long(stmt) and are_free(stmt, names):
            whole, parts = (_cost((stmt,), names, _ALONE, turned) for turned in ([stmt], inside))
            found += [stmt] if whole <= parts else inside
            continue
        found += inside
    return found


def _is_long(loop: For) -> bool:
    trips = _trips(loop)
    return int_value(loop.step) == 1 and (trips is None or trips >= _SHORT)


# ---- what pays ----


@dataclass(frozen=True, eq=False)
class _Axis:
    """The loop that has the lanes, and how many share what a vector costs; no loop: one."""

    var: Var | None
    lanes: float = _SHARING


#: Iterations that run one after the other.
_ALONE = _Axis(None, 1)


def _cost(block: Block, names: Mapping[Var, Expr], axis: _Axis, turned: Sequence[For]) -> float:
    """What a block costs an iteration, in elements that are moved one by one, with lanes along ``axis``;
    loops in ``turned`` have lanes along their own."""
    total = 0.0
    for stmt in block:
        if isinstance(stmt, For):
            sums = len(find_accumulations(stmt.body, stmt.var)) if stmt in turned else 0
            around = _ALONE if axis.var is not None and _differs(stmt, axis.var, names) else axis
            own = _Axis(stmt.var, _sharing(_trips(stmt), sums)) if stmt in turned else around
            total += (_trips(stmt) or _UNKNOWN) * _cost(stmt.body, names, own, turned) + _END * sums
            continue
        total += _own_cost(stmt, names, axis)
        total += sum(_cost(inner, names, axis, turned) for inner in children(stmt))
    return total


def _differs(loop: For, var: Var, names: Mapping[Var, Expr]) -> bool:
    """Whether lanes along ``var`` have other trips of a loop than each other, so that they run one by one."""
    return any(uses(_in_lanes(inlined(end, names), var), (var,)) for end in (loop.start, loop.stop))


def _sharing(trips: int | None, sums: int) -> float:
    """How many trips share a vector: a few stores are masked as one, a few sums take vectors of 4, 2, 1."""
    if trips is None or trips >= _SHARING:
        return _SHARING
    return trips / bin(trips).count("1") if sums else trips


def _own_cost(stmt: Stmt, names: Mapping[Var, Expr], axis: _Axis) -> float:
    """That of what a statement moves and computes itself."""
    values = [stmt.value] if isinstance(stmt, Store) else expressions(stmt)
    computed = sum(_computed(value) for value in values)
    return computed / axis.lanes + sum(_moved(item, names, axis) for item in own_accesses(stmt))


def _computed(expr: Expr) -> float:
    """What the operations of a value cost, but for those of places: addresses are the same work for all."""
    if isinstance(expr, TensorLoad):
        return 0.0
    inside = sum(_computed(operand) for operand in operands(expr))
    if isinstance(expr, Call) and getattr(expr.op, "name", "") not in _BITS:
        return _CALL + inside
    return (_OPERATION if operands(expr) else 0.0) + inside


def _moved(item: Access, names: Mapping[Var, Expr], axis: _Axis) -> float:
    """What moving one element costs: a share of a vector, nothing where all lanes have the same."""
    if item.buffer.scope() in PER_THREAD:
        return 0.0
    if axis.var is None:
        return 1.0
    step = _step(item, names, axis.var)
    if step in _NEAR and not item.is_write:
        return _READ_NEAR
    return {0: 0.0, 1: 1.0 / axis.lanes}.get(step, 1.0) if step is not None else 1.0


def _step(item: Access, names: Mapping[Var, Expr], var: Var) -> int | None:
    """How far apart in memory lanes along ``var`` have the element; None where that is no number."""
    step, size = 0, 1
    for index, extent in zip(reversed(item.indices), reversed(item.buffer.shape), strict=True):
        linear = linear_in(_in_lanes(inlined(index, names), var), [var])
        part = int_value(linear[0]) if linear else None
        if part is None or (part and not size):
            return None
        step, size = step + part * size, size * (int_value(extent) or 0)
    return step


def _in_lanes(index: Expr, var: Var) -> Expr:
    """An index as lanes along ``var`` see it: its quotient by a multiple of so many is one number."""

    def seen(node: Expr) -> Expr | None:
        divides = isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) and node.a.same_as(var)
        if not divides or not int_value(node.b) or int(node.b) % _LANES:
            return None
        return var if isinstance(node, tirx.FloorMod) else tirx.const(0, dtype_of(node))

    return transform(index, seen)
