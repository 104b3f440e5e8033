"""The epilogue of a product: loops over elements of its accumulators, and what these may do.

for i, j: C[i, j] = f(acc[i, j], bias[j], ..)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tilec.backends.cuda.statement_roles.boxes.added_boxes import added_box, is_add
from tilec.backends.cuda.warp_roles.epilogue import check_elements
from tilec.backends.cuda.warp_roles.unfit import Unfit, about, need
from tilec.ir.exprs import inlined, int_value, loads
from tilec.ir.nodes import Alloc, Atomic, Bind, Block, Copy, Launch, Parallel, Stmt, Store
from tilec.ir.nodes import walk as walk_statements
from tilec.ir.traits import buffers
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.scopes import conditioned
from tilec.lowering.analysis.uses import overlapping
from tilec.lowering.passes.expand_copies import expand_copy
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Var

#: Rows and columns.
Shape: TypeAlias = tuple[int, int]
#: Elements that an epilogue adds to a tensor.
_ADDED = ("float32", "float16", "bfloat16")


def tail_of(after: Block) -> tuple[Parallel, ...]:
    """The loops behind that of a product, copies as loops; Unfit where something else stands there."""
    loops: list[Parallel] = []
    for stmt in after:
        if isinstance(stmt, Alloc):
            continue
        loop = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
        if not isinstance(loop, Parallel):
            raise Unfit(
                f"{type(stmt).__name__} stands behind its loop",
                stmt,
                "end with T.copy and T.Parallel over the accumulator; reduce in a launch of its own",
            )
        loops.append(_without_names(loop))
    return tuple(loops)


def _without_names(loop: Parallel) -> Parallel:
    """A loop that adds to elements of a tensor with values in place of names."""
    *binds, last = loop.body
    names = values_of(binds)
    if len(names) != len(binds) or not any(isinstance(stmt, Atomic) for stmt in walk_statements((last,))):
        return loop
    return replace(loop, body=(map_stmt(last, lambda expr: inlined(expr, names)),))


def _adds(stmt: Stmt, loop: Parallel, launch: Launch) -> bool:
    """Whether a statement adds floats to a tensor with which the launch does nothing else, where TMA cannot
    add whole tiles."""
    if not isinstance(stmt, Atomic) or not is_add(stmt) or str(stmt.buffer.dtype) not in _ADDED:
        return False
    every = [inner for inner in walk_statements(launch.body) if stmt.buffer in set(buffers(inner))]
    return len(every) == 1 and stmt.buffer not in overlapping(launch) and added_box(loop) is None


def check_tail(
    tail: Sequence[Parallel], fragments: Sequence[Alloc], shapes: Sequence[Shape], launch: Launch
) -> None:
    """Fragments and loops of an epilogue have the shapes of accumulators, and compute element by element.
    Raises Unfit."""
    for alloc in fragments:
        plain = alloc.buffer.scope() == "local.fragment" and _shape(alloc.buffer) in shapes
        need(
            plain,
            f"{alloc.buffer.name} is no fragment of the accumulator's shape",
            alloc,
            f"give it the shape {_spelled(shapes)}, or read the tensor in the epilogue itself",
        )
    for loop in tail:
        _check_loop(loop, {alloc.buffer for alloc in fragments}, shapes, launch)


def _check_loop(loop: Parallel, fragments: set[Var], shapes: Sequence[Shape], launch: Launch) -> None:
    extents = tuple(int_value(extent) for extent in loop.extents)
    need(
        extents in shapes,
        f"its epilogue has another shape than its accumulator {_spelled(shapes)}",
        loop,
        "let the epilogue run over the elements of the accumulator",
    )
    condition, body = conditioned(loop.body)
    other = next((buffer for buffer in _read_in(body) & fragments if _shape(buffer) != extents), None)
    need(
        other is None,
        f"its epilogue reads {other.name if other is not None else ''}, which has another shape",
        loop,
        "give accumulators that an epilogue reads together the same shape",
    )
    with about(loop):
        for stmt in body:
            need(
                isinstance(stmt, (Store, Bind)) or _adds(stmt, loop, launch),
                "its epilogue is no plain arithmetic",
                stmt,
                "use assignments and T.if_then_else, under one condition around all of them at most",
            )
            check_elements(stmt, loop, fragments)
    need(
        condition is None or not any(True for _ in loads(condition)),
        "its epilogue branches on what it reads",
        loop,
        "choose values by T.if_then_else instead of branching",
    )


def _spelled(shapes: Sequence[Shape]) -> str:
    """The shapes that accumulators have."""
    return " or ".join(map(str, dict.fromkeys(shapes)))


def _shape(buffer: Var) -> tuple[int | None, ...]:
    return tuple(int_value(extent) for extent in buffer.shape)


def _read_in(body: Block) -> set[Var]:
    return {buffer for stmt in body for buffer in buffers(stmt)}
