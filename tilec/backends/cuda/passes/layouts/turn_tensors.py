"""Tensors that lie along their last but one axis, and the tiles that products take of them, are turned.

    B (K, N; strides 1, K); Bs = B[k * 32 :+ 32, n :+ 64]; C += A_s Bs
 -> B (N, K);               Bs = B[n :+ 64, k * 32 :+ 32]; C += A_s Bs^T

Copies move neighbours in memory: along the last axis there are none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.turned_sums import Turned, swapped, transposed
from tilec.ir.analysis.aliases import named_in
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Copy, Gemm, Kernel, Param, Stmt, TensorParam, walk
from tilec.ir.traits import buffers
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Var

    from tilec.targets import Target


class TurnTensors(Pass):
    """In: strided tensors whose neighbours are along the last but one axis, and which are only copied to
    shared tiles that nothing but products takes. Out: both with these two axes in the other order, and
    products that take the tiles transposed."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its tensors and tiles turned."""
        turned = {buffer: transposed(buffer) for buffer in _turned(kernel)}
        if not turned:
            return kernel
        params = tuple(_param(param, turned) for param in kernel.params)
        return replace(kernel, params=params, body=Turned(turned).block(kernel.body))


def _turned(kernel: Kernel) -> set[Var]:
    """The tensors and the tiles."""
    tensors = {param.buffer for param in kernel.params if isinstance(param, TensorParam)}
    found = _Uses({tensor for tensor in tensors if _lies_across(tensor)})
    if not found.tensors or named_in(kernel):
        return set()
    for stmt in walk(kernel.body):
        found.see(stmt)
    return found.alone()


def _lies_across(tensor: Var) -> bool:
    steps = [int_value(step) for step in tensor.strides]
    return len(steps) > 1 and steps[-2] == 1 and steps[-1] != 1


@dataclass(eq=False)
class _Uses:
    """What copies bring of ``tensors``, and which buffers statements use in other ways."""

    tensors: set[Var]
    _copies: list[tuple[Var, Var]] = field(default_factory=list)
    _used: set[Var] = field(default_factory=set)

    def see(self, stmt: Stmt) -> None:
        """A statement of the kernel."""
        if isinstance(stmt, Copy) and stmt.src.buffer in self.tensors and _is_tile(stmt):
            self._copies.append((stmt.src.buffer, stmt.dst.buffer))
        elif not (isinstance(stmt, Alloc) and stmt.asked is None) and not isinstance(stmt, Gemm):
            self._used.update(buffers(stmt))
        elif isinstance(stmt, Gemm):
            self._used.add(stmt.c.buffer)

    def alone(self) -> set[Var]:
        """The tensors and tiles that have no other uses, nor a copy to or from what has."""
        left = [pair for pair in self._copies if self._used.isdisjoint(pair)]
        while left != self._copies:
            self._used.update(buffer for pair in self._copies if pair not in left for buffer in pair)
            self._copies = left
            left = [pair for pair in left if self._used.isdisjoint(pair)]
        return {buffer for pair in left for buffer in pair}


def _is_tile(copy: Copy) -> bool:
    """Whether a copy fills a tile of two axes from the last two of its tensor."""
    *outer, rows, columns = (int_value(extent) for extent in copy.src.extent)
    shape = [int_value(extent) for extent in copy.dst.buffer.shape]
    whole = copy.dst.buffer.scope() == "shared.dyn" and is_whole(copy.dst)
    alike = shape == [rows, columns] and all(extent == 1 for extent in outer)
    return whole and alike and copy.hints.loop_layout is None


def _param(param: Param, turned: Mapping[Var, Var]) -> Param:
    """A parameter, transposed where its tensor is."""
    if not isinstance(param, TensorParam) or param.buffer not in turned:
        return param
    assert param.strides is not None
    extents, strides = swapped(param.extents), swapped(param.strides)
    return replace(param, buffer=turned[param.buffer], extents=extents, strides=strides)
