"""Tensors that hold tiles side by side along an axis, all of a size that no instruction of products takes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.long_tiles import on_chip
from tilec.backends.cuda.analysis.products.mma import STEP_BYTES
from tilec.backends.cuda.analysis.products.odd_tiles import covers
from tilec.backends.cuda.warp_roles.tma import MOST_AXES
from tilec.ir.analysis.aliases import named_in
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Copy, Gemm, Kernel, Launch, Region, Stmt, TensorParam, walk
from tilec.ir.traits import buffers
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var


@dataclass(frozen=True)
class Cut:
    """Along ``axis`` of a tensor there are tiles of ``size`` alone, from its start to its end."""

    axis: int
    size: int


def side_by_side(kernel: Kernel) -> dict[Var, Cut]:
    """By tensor how tiles lie in it, where copies to tiles of launches with products alone use it."""
    tensors = [param.buffer for param in kernel.params if isinstance(param, TensorParam)]
    cuts = {tensor: set[Cut | None]() for tensor in tensors if _may_split(tensor)}
    if named_in(kernel):
        return {}
    for launch in kernel.launches:
        _Uses(kernel, launch, cuts).block(launch.body)
    alone = {tensor: next(iter(found)) for tensor, found in cuts.items() if len(found) == 1}
    return {tensor: cut for tensor, cut in alone.items() if cut is not None}


def _may_split(tensor: Var) -> bool:
    """Whether a tensor is contiguous, and TMA takes one with an axis more."""
    return len(tensor.shape) < MOST_AXES and not len(tensor.strides)


class _Uses(ScopedRewrite):
    """Walks a launch; nothing is rewritten. Each use of a tensor adds the cut that it has, or None."""

    def __init__(self, kernel: Kernel, launch: Launch, cuts: dict[Var, set[Cut | None]]) -> None:
        super().__init__(kernel, launch)
        self._cuts = cuts
        self._multiplies = any(isinstance(stmt, Gemm) for stmt in walk(launch.body))

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Looks at the tensors of a statement."""
        for tensor in {*buffers(stmt)} & self._cuts.keys():
            self._cuts[tensor].add(self._brought(stmt, tensor) if self._multiplies else None)
        return super().stmt(stmt)

    def _brought(self, stmt: Stmt, tensor: Var) -> Cut | None:
        """How a tile lies in a tensor that a statement brings on chip; None for other uses."""
        if not isinstance(stmt, Copy) or not stmt.src.buffer.same_as(tensor) or not on_chip(stmt.dst.buffer):
            return None
        return self._cut(stmt.src)

    def _cut(self, region: Region) -> Cut | None:
        """The axis of a region along which it is one of several tiles that no instruction takes."""
        step = STEP_BYTES // element_bytes(str(region.buffer.dtype))
        for axis, extent in enumerate(region.extent):
            size = int_value(extent)
            if size is not None and size > step and size % step and self._is_one_of(region, axis, size):
                return Cut(axis, size)
        return None

    def _is_one_of(self, region: Region, axis: int, size: int) -> bool:
        """Whether a region is one of tiles of ``size``, and not known to be all that its axis has."""
        whole, start = region.buffer.shape[axis], region.start[axis]
        if covers(region, axis):
            return False
        rests = (tirx.floormod(value, size) for value in (whole, start))
        return all(int_value(self.facts.simplify(rest)) == 0 for rest in rests)
