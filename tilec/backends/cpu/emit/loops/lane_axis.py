"""Which axis of a Parallel runs over vector lanes, and how many lanes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cpu.emit.numbers.moves import moved_bits
from tilec.ir.exprs import dtype_of, int_value, linear_in, operands, substitute, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Parallel, Store, walk
from tilec.ir.traits import expressions
from tilec.lowering.emission.storage import compute_type, element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.ir.nodes import Block

#: Axes shorter than this make poor vectors.
_SHORT = 4
#: What an access counts.
_READ, _WRITTEN = 1, 2
#: Lanes of a wide vector, for what they read near to each other.
_LANES = 16


def lane_axis(stmt: Parallel, ctx: LaneContext) -> int:
    """The axis along which most accesses are contiguous; the last of equally good ones."""
    scores = [_score(stmt, axis, ctx) for axis in range(len(stmt.vars))]
    return max(range(len(scores)), key=lambda axis: (scores[axis], axis))


def _score(stmt: Parallel, axis: int, ctx: LaneContext) -> tuple[bool, int]:
    extent = int_value(stmt.extents[axis])
    points = sum(_points(buffer, indices, weight, stmt.vars[axis], ctx)
                 for buffer, indices, weight in _accesses(stmt.body))  # fmt: skip
    return extent is None or extent >= _SHORT, points


def lies_apart(body: Block, var: Var, ctx: LaneContext) -> bool:
    """Whether lanes of ``var`` have elements of something in ``body`` apart in memory."""
    return any(_points(buffer, indices, weight, var, ctx) < 0 for buffer, indices, weight in _accesses(body))


def _accesses(body: Block) -> Iterator[tuple[Var, tuple[Expr, ...], int]]:
    for stmt in walk(body):
        if isinstance(stmt, Store):
            yield stmt.buffer, stmt.indices, _WRITTEN
        for expr in expressions(stmt):
            for node in walk_expr(expr):
                if isinstance(node, TensorLoad):
                    yield node.source, tuple(node.indices), _READ


def _points(buffer: Var, indices: tuple[Expr, ...], weight: int, var: Var, ctx: LaneContext) -> int:
    """Contiguous, or read near to each other: 1 per unit of ``weight``; the same element in all lanes: 0;
    anything else: -2."""
    storage = ctx.storages.get(buffer)
    if storage is None:
        return 0
    inlined = [ctx.facts.inline(index) for index in indices]
    moving = [position for position, index in enumerate(inlined) if uses(index, (var,))]
    if not moving:
        return 0
    if len(moving) > 1 or storage.layout is not None:
        return -2 * weight
    if int_value(storage.strides[moving[0]]) != 1:
        return -2 * weight
    linear = linear_in(inlined[moving[0]], [var])
    if linear:
        return weight if int_value(linear[0]) == 1 else -2 * weight
    return weight if weight == _READ and _is_near(inlined[moving[0]], var, ctx) else -2 * weight


def _is_near(index: Expr, var: Var, ctx: LaneContext) -> bool:
    """Whether a vector of lanes reads elements that a vector holds, digits of ``var`` such as j // 2."""
    first = tirx.Var(str(var.name), dtype_of(var)) * _LANES
    at = [substitute(index, {var: first + tirx.const(lane, dtype_of(var))}) for lane in range(_LANES)]
    gaps = [int_value(ctx.facts.analyzer.simplify(place - at[0])) for place in at]
    return all(gap is not None and abs(gap) < _LANES for gap in gaps)


def lane_count(body: Block, ctx: LaneContext) -> int:
    """How many elements of the widest type that ``body`` computes with fill a vector register."""
    widest = max((element_bytes(dtype) for dtype in _data_types(body)), default=4)
    return max(1, ctx.target.vector_bits // 8 // widest)


def _data_types(body: Block) -> Iterator[str]:
    for stmt in walk(body):
        if isinstance(stmt, Store):
            yield from _stored_types(stmt)
        elif not hasattr(stmt, "buffer"):
            for expr in expressions(stmt):
                yield from _value_types(expr)


def _stored_types(stmt: Store) -> Iterator[str]:
    bits = moved_bits(stmt)
    if bits is not None:
        yield dtype_of(bits)
        return
    yield compute_type(str(stmt.buffer.dtype))
    yield from _value_types(stmt.value)


def _value_types(expr: Expr) -> Iterator[str]:
    """The types of the elements that ``expr`` reads, those of indices left out."""
    if isinstance(expr, TensorLoad):
        yield compute_type(str(expr.source.dtype))
        return
    for part in operands(expr):
        yield from _value_types(part)
