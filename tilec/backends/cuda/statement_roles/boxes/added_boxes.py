"""Which loops add a tile to a box of a tensor."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, whole_tile
from tilec.ir.exprs import inlined, int_value, loads
from tilec.ir.nodes import Atomic, Copy, If, Parallel, Region, Stmt, Store
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.element_boxes import box_of, is_inside

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Element types that TMA adds (PTX ISA, "cp.reduce.async.bulk.tensor").
_TYPES = ("float16", "bfloat16", "float32", "int32", "uint32")


def is_add(stmt: Stmt) -> bool:
    """Whether a statement adds to an element and asks for nothing that a launch could tell that does not read
    the tensor: an order of what it releases is none."""
    orders = ("relaxed", "release")
    return isinstance(stmt, Atomic) and stmt.kind == "add" and stmt.prev is None and stmt.order in orders


@dataclass(frozen=True)
class AddedBox:
    """What a loop adds to a box of a tensor: a whole tile or fragment ``src``, or else what ``values``, a
    loop of stores to ``src``, makes of fragments, with zeros where a condition leaves an element out.
    ``fragment`` is one that what is added comes from."""

    src: Region
    dst: Region
    fragment: Var | None = None
    values: Parallel | None = None

    def through(self, tile: Var) -> Stmt:
        """The statement that writes what is added to ``tile``, of the extents and the type of ``src``."""
        if self.values is None:
            return Copy(self.src, whole_tile(tile))
        (store,) = self.values.body
        assert isinstance(store, Store)
        return replace(self.values, body=(replace(store, buffer=tile),))


def added_box(stmt: Stmt) -> AddedBox | None:
    """The box of a loop that adds to elements of a tensor; None for anything else."""
    if not isinstance(stmt, Parallel):
        return None
    *binds, last = stmt.body
    names: dict[Var, Expr] = values_of(binds)
    cond = None
    if isinstance(last, If) and len(last.then) == 1 and not last.orelse:
        cond, (last,) = inlined(last.cond, names), last.then
    if not is_add(last) or len(names) != len(binds):
        return None
    assert isinstance(last, Atomic)
    value, places = inlined(last.value, names), [inlined(index, names) for index in last.indices]
    extents = [int_value(extent) or 0 for extent in stmt.extents]
    dst = box_of(last.buffer, places, stmt.vars, extents)
    if dst is None or str(last.buffer.dtype) not in _TYPES:
        return None
    if cond is not None and is_inside(cond, last.buffer, places):
        cond = None
    src = (
        box_of(value.source, list(value.indices), stmt.vars, extents)
        if isinstance(value, TensorLoad)
        else None
    )
    if cond is None and src is not None and is_whole(src):
        return AddedBox(src, dst, src.buffer if src.buffer.scope() == "local.fragment" else None)
    return _computed(stmt, dst, value, cond)


def _computed(stmt: Parallel, dst: Region, value: Expr, cond: Expr | None) -> AddedBox | None:
    """A loop that computes what it adds of fragments: adding 0 leaves an element as it is."""
    read = [load.source for load in loads(value)]
    fragment = next((source for source in read if source.scope() == "local.fragment"), None)
    if fragment is None or dst.buffer in read:
        return None
    name, dtype = f"{fragment.name}_staged", str(dst.buffer.dtype)
    tile = tirx.decl_buffer([int_value(each) for each in stmt.extents], dtype, name=name, scope="shared.dyn")
    kept = value if cond is None else tirx.if_then_else(cond, value, tirx.const(0, dtype))
    made = replace(stmt, body=(Store(tile, tuple(stmt.vars), kept, loc=stmt.loc),))
    return AddedBox(whole_tile(tile), dst, fragment, made)
