"""Tensors that lie along their last but one axis, and the tiles that products take of them, are turned.

    B (K, N; strides 1, K); Bs = B[k * 32 :+ 32, n :+ 64]; C += A_s Bs
 -> B (N, K);               Bs = B[n :+ 64, k * 32 :+ 32]; C += A_s Bs^T

Copies move neighbours in memory: along the last axis there are none.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeVar

from tvm import tirx

from tilec.ir.analysis.aliases import named_in
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Copy, Gemm, Kernel, Param, Region, Stmt, TensorParam, walk
from tilec.ir.traits import Rewriter, buffers
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Var

    from tilec.targets import Target

_Kind = TypeVar("_Kind")


class TurnTensors(Pass):
    """In: strided tensors whose neighbours are along the last but one axis, and which are only copied to
    shared tiles that nothing but products takes. Out: both with these two axes in the other order, and
    products that take the tiles transposed."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its tensors and tiles turned."""
        turned = _turned(kernel)
        if not turned:
            return kernel
        turning = _Turning({buffer: _other_way(buffer) for buffer in turned})
        return replace(
            kernel, params=tuple(map(turning.param, kernel.params)), body=turning.block(kernel.body)
        )


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


def _other_way(buffer: Var) -> Var:
    shape, strides = _swapped(buffer.shape), _swapped(buffer.strides) if len(buffer.strides) else None
    name, scope = str(buffer.name), buffer.scope()
    return tirx.decl_buffer(shape, str(buffer.dtype), name=name, scope=scope, strides=strides)


def _swapped(axes: Sequence[_Kind]) -> tuple[_Kind, ...]:
    *outer, rows, columns = axes
    return (*outer, columns, rows)


class _Turning(Rewriter):
    """Statements over buffers the other way."""

    def __init__(self, made: dict[Var, Var]) -> None:
        super().__init__()
        self._made = made

    def param(self, param: Param) -> Param:
        """A parameter."""
        if not isinstance(param, TensorParam) or param.buffer not in self._made:
            return param
        assert param.strides is not None
        extents, strides = _swapped(param.extents), _swapped(param.strides)
        return replace(param, buffer=self._made[param.buffer], extents=extents, strides=strides)

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement; products take turned tiles transposed."""
        made = super().stmt(stmt)
        if not isinstance(stmt, Gemm) or not isinstance(made, Gemm):
            return made
        turns = (stmt.a.buffer in self._made, stmt.b.buffer in self._made)
        return replace(made, trans_a=made.trans_a != turns[0], trans_b=made.trans_b != turns[1])

    def region(self, region: Region) -> Region:
        """A region with its last two axes in the other order."""
        if region.buffer not in self._made:
            return super().region(region)
        return Region(self._made[region.buffer], _swapped(region.start), _swapped(region.extent))

    def defined(self, var: Var) -> Var:
        """The tile where it is allocated."""
        return self._made.get(var, var)
