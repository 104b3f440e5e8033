"""Which loops add a tile to a box of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.element_boxes import box_of
from tilec.backends.cuda.analysis.tiles import is_whole
from tilec.ir.exprs import inlined, int_value
from tilec.ir.nodes import Atomic, Bind, Copy, Parallel, Stmt

if TYPE_CHECKING:
    from tvm.ir import Var

#: Element types that TMA adds (PTX ISA, "cp.reduce.async.bulk.tensor").
_TYPES = ("float16", "bfloat16", "float32", "int32", "uint32")


def is_add(stmt: Stmt) -> bool:
    """Whether a statement adds to an element in any order with others, and asks for nothing else."""
    return isinstance(stmt, Atomic) and stmt.kind == "add" and stmt.prev is None and stmt.order == "relaxed"


def added_box(stmt: Stmt) -> Copy | None:
    """A loop that adds each element of a whole tile or fragment to one of a tensor, box to box, as a copy of
    the one to the other; None for anything else."""
    if not isinstance(stmt, Parallel) or not _adds_alone(stmt):
        return None
    last = stmt.body[-1]
    assert isinstance(last, Atomic)
    names: dict[Var, object] = {bind.var: bind.value for bind in stmt.body if isinstance(bind, Bind)}
    value = inlined(last.value, names)
    extents = [int_value(extent) or 0 for extent in stmt.extents]
    if not isinstance(value, TensorLoad) or str(last.buffer.dtype) not in _TYPES:
        return None
    places = [inlined(index, names) for index in last.indices]
    src = box_of(value.source, list(value.indices), stmt.vars, extents)
    dst = box_of(last.buffer, places, stmt.vars, extents)
    if src is None or dst is None or not is_whole(src):
        return None
    return Copy(src, dst, hints=stmt.hints, loc=stmt.loc)


def _adds_alone(loop: Parallel) -> bool:
    *binds, last = loop.body
    return is_add(last) and all(isinstance(stmt, Bind) for stmt in binds)
