"""Buffers without axes become buffers of one element along one axis, so that all have a last axis.

   S (); Y[i] = X[i] * S[]
-> S (1,); Y[i] = X[i] * S[0]
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Expr, TensorLoad

from tilec.ir.exprs import transform
from tilec.ir.nodes import Alloc, Kernel, Param, Region, TensorParam, walk
from tilec.ir.traits import Rewriter
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.ir import Var

    from tilec.targets import Target

_FIRST = (tirx.const(0, "int32"),)


class GiveAxes(Pass):
    """In: tensors and tiles of any rank. Out: of rank 1 at least."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with an axis of one element where there was none."""
        params = [param.buffer for param in kernel.params if isinstance(param, TensorParam)]
        tiles = [stmt.buffer for stmt in walk(kernel.body) if isinstance(stmt, Alloc)]
        rewriter = _Axes(buffer for buffer in (*params, *tiles) if not buffer.shape)
        if not rewriter.made:
            return kernel
        return replace(
            kernel, params=tuple(map(rewriter.param, kernel.params)), body=rewriter.block(kernel.body)
        )


class _Axes(Rewriter):
    """Statements over such buffers; ``made``: by the ones that had no axis."""

    def __init__(self, single: Iterable[Var]) -> None:
        super().__init__()
        self.made = {buffer: _with_axis(buffer) for buffer in single}

    def param(self, param: Param) -> Param:
        """A parameter."""
        if not isinstance(param, TensorParam) or param.buffer not in self.made:
            return param
        strides = None if param.strides is None else ("1",)
        return replace(param, buffer=self.made[param.buffer], extents=("1",), strides=strides)

    def expr(self, expr: Expr) -> Expr:
        """With reads at the first place."""
        return transform(expr, self._read)

    def _read(self, node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad) and node.source in self.made:
            return tirx.BufferLoad(self.made[node.source], list(_FIRST))
        return None

    def buffer(self, buffer: Var) -> Var:
        """The one with an axis."""
        return self.made.get(buffer, buffer)

    def defined(self, var: Var) -> Var:
        """The one with an axis."""
        return self.made.get(var, var)

    def element(self, buffer: Var, indices: tuple[Expr, ...]) -> tuple[Var, tuple[Expr, ...]]:
        """The only one."""
        return self.buffer(buffer), indices or _FIRST

    def region(self, region: Region) -> Region:
        """All of the buffer."""
        one = (tirx.const(1, "int32"),)
        given = super().region(region)
        return given if region.start else replace(given, start=_FIRST, extent=one)


def _with_axis(buffer: Var) -> Var:
    return tirx.decl_buffer((1,), str(buffer.dtype), str(buffer.name), scope=str(buffer.scope()))
