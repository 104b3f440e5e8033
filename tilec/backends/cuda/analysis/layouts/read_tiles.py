"""A read of a loop as a fragment of its own, which a loop in front fills.

    for i, j: C[i, j] = C[i, j] * scale[i]    ->    for i: t[i] = scale[i]; for i, j: C[i, j] = C[i, j] * t[i]

All its loads are then under way at once, and each element is loaded once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.ir.exprs import dtype_of, substitute
from tilec.ir.nodes import Alloc, Parallel, Store

if TYPE_CHECKING:
    from tvm.ir import TensorLoad, Var


def read_tile(
    load: TensorLoad, loop: Parallel, variables: Sequence[Var], suffix: str
) -> tuple[Alloc, Parallel]:
    """A fragment with an element for each value of ``variables`` of a loop, those that tell the place of a
    read, and the loop that fills it; other variables of the loop have one value."""
    extents = dict(zip(loop.vars, loop_extents(loop), strict=True))
    sizes = tuple(extents[var] for var in variables)
    name = f"{load.source.name}_{suffix}"
    tile = tirx.decl_buffer(sizes, str(load.source.dtype), name=name, scope="local.fragment")
    fresh = tuple(tirx.Var(str(var.name), dtype_of(var)) for var in variables)
    moved = {var: tirx.const(0, dtype_of(var)) for var in loop.vars}
    moved |= dict(zip(variables, fresh, strict=True))
    value = tirx.BufferLoad(load.source, [substitute(index, moved) for index in load.indices])
    store = Store(tile, fresh, value, loc=loop.loc)
    return Alloc(tile, loc=loop.loc), Parallel(fresh, sizes, (store,), loc=loop.loc)
