"""Which loops add a tile to a box of a tensor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.element_boxes import box_of, is_inside
from tilec.backends.cuda.analysis.tiles import is_whole
from tilec.ir.exprs import inlined, int_value
from tilec.ir.nodes import Atomic, Bind, Copy, If, Parallel, Stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Element types that TMA adds (PTX ISA, "cp.reduce.async.bulk.tensor").
_TYPES = ("float16", "bfloat16", "float32", "int32", "uint32")


def is_add(stmt: Stmt) -> bool:
    """Whether a statement adds to an element and asks for nothing that a launch could tell that does not read
    the tensor: an order of what it releases is none."""
    orders = ("relaxed", "release")
    return isinstance(stmt, Atomic) and stmt.kind == "add" and stmt.prev is None and stmt.order in orders


def added_box(stmt: Stmt) -> Copy | None:
    """A loop that adds each element of a whole tile or fragment to one of a tensor, box to box, as a copy of
    the one to the other; None for anything else. A condition may say that the element lies inside of the
    tensor."""
    if not isinstance(stmt, Parallel):
        return None
    *binds, last = stmt.body
    names: dict[Var, Expr] = {bind.var: bind.value for bind in binds if isinstance(bind, Bind)}
    cond = None
    if isinstance(last, If) and len(last.then) == 1 and not last.orelse:
        cond, (last,) = inlined(last.cond, names), last.then
    if not is_add(last) or len(names) != len(binds):
        return None
    assert isinstance(last, Atomic)
    value, places = inlined(last.value, names), [inlined(index, names) for index in last.indices]
    if not isinstance(value, TensorLoad) or str(last.buffer.dtype) not in _TYPES:
        return None
    if cond is not None and not is_inside(cond, last.buffer, places):
        return None
    extents = [int_value(extent) or 0 for extent in stmt.extents]
    src = box_of(value.source, list(value.indices), stmt.vars, extents)
    dst = box_of(last.buffer, places, stmt.vars, extents)
    if src is None or dst is None or not is_whole(src):
        return None
    return Copy(src, dst, hints=stmt.hints, loc=stmt.loc)
