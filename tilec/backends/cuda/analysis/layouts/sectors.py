"""How fragments meet memory: what a warp has of a tensor side by side, and the loops that move or turn it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.loops import loop_axis, step_along
from tilec.ir.nodes import is_global
from tilec.lowering.analysis.accesses import Access, accesses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Var

    from tilec.ir.layout import Layout
    from tilec.ir.nodes import Parallel


def run_of_warp(layout: Layout, shape: Sequence[int]) -> int:
    """How many neighbours of a tile of ``shape``, in the order of memory, a warp has at least."""
    run = 1
    for digits, extent in zip(reversed(layout.digits), reversed(shape), strict=True):
        own = 1
        for digit in digits:
            if digit.space not in ("reg", "lane"):
                break
            own *= digit.size
        run *= min(own, extent)
        if own < extent:
            break
    return run


def turns(one: Access, other: Access, loop: Parallel) -> bool:
    """Whether two accesses of a loop name its variables in another order."""
    axes = [[loop_axis(index, loop) for index in item.indices] for item in (one, other)]
    met = {*axes[0]} & {*axes[1]} - {None}
    first, second = ([axis for axis in own if axis in met] for own in axes)
    return first != second


def moves_along(loop: Parallel, fragment: Var) -> bool:
    """Whether the variable that counts a fragment's last axis in a loop counts the last one of a tensor."""
    items = [item for item in accesses(loop.body) if item.indices]
    counted = {loop_axis(item.indices[-1], loop) for item in items if item.buffer.same_as(fragment)}
    variables = [loop.vars[axis] for axis in counted if axis is not None]
    tensors = [item.indices[-1] for item in items if is_global(item.buffer)]
    return any(step_along(index, var) == 1 for index in tensors for var in variables)
