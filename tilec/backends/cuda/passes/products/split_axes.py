"""Axes of tensors along which tiles lie one behind the other, such as the heads of a row, become two.

    K (B, S, H * 72); K_s = K[b, k * 64 :+ 64, h * 72 :+ 72]; S += Q_s K_s^T
 -> K (B, S, H, 72);  K_s = K[b, k * 64 :+ 64, h, 0 :+ 72];   S += Q_s K_s^T

Outside of a tensor are zeros, so that there are zeros behind each tile then, and not its neighbour.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cuda.analysis.products.side_by_side import Cut, side_by_side
from tilec.ir.nodes import Kernel, Param, Region, TensorParam
from tilec.ir.traits import Rewriter
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Var

    from tilec.targets import Target


class SplitAxes(Pass):
    """In: tensors of a call that copies alone read, tile by tile along an axis, for products whose
    instructions do not take tiles of that size. Out: tensors with an axis for the number of a tile, and one
    for the place in it."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with such tensors."""
        cuts = side_by_side(kernel)
        if not cuts:
            return kernel
        rewriter = _Splitting(cuts)
        params = tuple(map(rewriter.param, kernel.params))
        return replace(kernel, params=params, body=rewriter.block(kernel.body))


class _Splitting(Rewriter):
    """Statements over tensors with an axis more."""

    def __init__(self, cuts: Mapping[Var, Cut]) -> None:
        super().__init__()
        self._cuts = cuts
        self._made = {tensor: _tensor(tensor, cut) for tensor, cut in cuts.items()}

    def param(self, param: Param) -> Param:
        """A parameter."""
        if not isinstance(param, TensorParam) or param.buffer not in self._cuts:
            return param
        cut = self._cuts[param.buffer]
        texts = list(param.extents)
        texts[cut.axis : cut.axis + 1] = [f"({texts[cut.axis]}) // {cut.size}", str(cut.size)]
        return replace(param, buffer=self._made[param.buffer], extents=tuple(texts))

    def region(self, region: Region) -> Region:
        """A tile by its number."""
        cut = self._cuts.get(region.buffer)
        if cut is None:
            return super().region(region)
        number = sym.Analyzer().simplify(tirx.floordiv(region.start[cut.axis], cut.size))
        start, extent = list(region.start), list(region.extent)
        start[cut.axis : cut.axis + 1] = [number, tirx.const(0, "int32")]
        extent[cut.axis : cut.axis + 1] = [tirx.const(1, "int32"), extent[cut.axis]]
        return Region(self._made[region.buffer], tuple(start), tuple(extent))


def _tensor(tensor: Var, cut: Cut) -> Var:
    """A tensor with its axis in two."""
    shape = list(tensor.shape)
    count = sym.Analyzer().simplify(tirx.floordiv(shape[cut.axis], cut.size))
    shape[cut.axis : cut.axis + 1] = [count, cut.size]
    return tirx.decl_buffer(shape, str(tensor.dtype), name=str(tensor.name), scope=tensor.scope())
