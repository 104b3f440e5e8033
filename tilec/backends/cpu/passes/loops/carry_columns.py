"""Reductions down the columns of a tile keep their results in registers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import uses
from tilec.ir.nodes import Alloc, Block, Parallel, Stmt
from tilec.ir.serial import serial_nest
from tilec.lowering.analysis.accesses import element_of
from tilec.lowering.analysis.accumulations import Accumulation, find_accumulations
from tilec.lowering.passes.base import BlockPass, replaced

if TYPE_CHECKING:
    from tvm.ir import Var


class CarryColumns(BlockPass):
    """In: Parallel loops that accumulate over outer axes into elements along the last one (column sums). Out:
    a Parallel over the axes that are kept, whose body is a serial loop over the others and accumulates in a
    local.var: a vector register per column block instead of a trip through memory per row."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with such loops turned inside out."""
        return [_rewrite(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _rewrite(loop: Parallel) -> Stmt:
    summed = [axis for axis, var in enumerate(loop.vars) if _is_summed(loop, var)]
    if not summed or len(summed) == len(loop.vars) or summed[-1] == len(loop.vars) - 1:
        return loop
    found = find_accumulations(loop.body, loop.vars[summed[0]])
    last = loop.vars[-1]
    same_axes = all(_axes(loop, item) == summed for item in found)
    if not same_axes or not all(any(uses(index, (last,)) for index in item.store.indices) for item in found):
        return loop
    return _turned(loop, summed, found)


def _is_summed(loop: Parallel, var: Var) -> bool:
    return bool(find_accumulations(loop.body, var))


def _axes(loop: Parallel, item: Accumulation) -> list[int]:
    """The axes over which ``item`` accumulates."""
    moving = [any(uses(index, (var,)) for index in item.store.indices) for var in loop.vars]
    return [axis for axis, moves in enumerate(moving) if not moves]


def _turned(loop: Parallel, summed: list[int], found: list[Accumulation]) -> Parallel:
    body, before, after = loop.body, [], []
    for item in found:
        carried = tirx.decl_buffer(
            (1,), str(item.store.buffer.dtype), str(item.store.buffer.name), scope="local.var"
        )
        element = (tirx.const(0, "int32"),)
        before.append(Alloc(carried, item.identity(), loc=item.store.loc))
        inside = replace(item.store, buffer=carried, indices=element)
        update = replace(inside, value=item.combined(element_of(inside), item.term))
        body = replaced(body, {item.store: (update,)})
        after.append(replace(item.store, value=item.combined(element_of(item.store), element_of(inside))))
    extents = [loop.extents[axis] for axis in summed]
    body = serial_nest([loop.vars[axis] for axis in summed], extents, body, loop.loc)
    kept = [axis for axis in range(len(loop.vars)) if axis not in summed]
    return replace(
        loop,
        vars=tuple(loop.vars[axis] for axis in kept),
        extents=tuple(loop.extents[axis] for axis in kept),
        body=(*before, *body, *after),
    )
