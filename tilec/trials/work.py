"""What a call has to do: products and bytes, counted on the tile IR that a library carries.

Multiplications count where matrix products (`gemm`) say them: two operations for each pair, by the type of
the operands, tiles clipped to the tensors that they are copied from or to. Padding of a tile that some other
loop fills counts as if it were work. Bytes: every tensor once for each direction, as if nothing were read
twice; of a tensor whose first axis is indexed by elements of integer tensors alone (a table, pages), as many
rows as there are integers at most.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tilec.dtypes import lookup
from tilec.errors import EvalError, UnsupportedError
from tilec.ir import nodes as ir
from tilec.ir.interp.machine import Machine
from tilec.ir.interp.storage import Storage
from tilec.ir.interp.values import numpy_dtype
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.num_sms import INTERPRETED, NUM_SMS
from tilec.ir.small_floats import number_type, numbers_of
from tilec.package.model import ParamRecord
from tilec.trials.facts import KernelFacts
from tilec.trials.indices import gathered

#: Blocks that are counted together; more of a grid go in turns.
_LANES = 1 << 15
#: Elements of a buffer that is followed through stores: scalars and small tables of integers.
_SMALL = 64
_MOST_HOPS = 3  # copies between a tile and a tensor


@dataclass(frozen=True)
class Work:
    """``flops``: operations of matrix products by the type of their operands; ``bytes``: of tensors.
    ``unknown`` says why operations could not be counted; ``flops`` is empty then."""

    bytes: int
    flops: Mapping[str, int] = field(default_factory=dict)
    unknown: str = ""

    @property
    def total_flops(self) -> int:
        """Operations of all types."""
        return sum(self.flops.values())


def work_of(kernel: KernelFacts, ir_text: str, dims: Mapping[str, int], values: Mapping[str, Any]) -> Work:
    """The work of one call. ``values``: what the parameters that are read hold, by name."""
    from tilec.ir.text.parser import parse_kernel

    moved = _bytes(kernel, ir_text, dims)
    parsed = parse_kernel(ir_text)
    if not any(isinstance(stmt, ir.PRODUCTS) for stmt in ir.walk(parsed.body)):
        return Work(moved)
    counter = _Counter(parsed)
    try:
        with np.errstate(all="ignore"):
            counter.run(dims, values)
    except (EvalError, UnsupportedError, KeyError, IndexError) as error:
        return Work(moved, unknown=f"the number of products depends on what only running shows ({error})")
    return Work(moved, dict(counter.flops))


def _bytes(kernel: KernelFacts, ir_text: str, dims: Mapping[str, int]) -> int:
    shapes = {param.name: param.shape(dims) for param in kernel.tensors}
    lookups = gathered(ir_text)
    return sum(_tensor_bytes(param, shapes, lookups) for param in kernel.tensors)


def _tensor_bytes(
    param: ParamRecord, shapes: Mapping[str, tuple[int, ...]], lookups: Mapping[str, Sequence[str]]
) -> int:
    shape = shapes[param.name]
    if param.name in lookups and shape:
        rows = min(shape[0], max(math.prod(shapes[name]) for name in lookups[param.name]))
        shape = (rows, *shape[1:])
    directions = 2 if param.access == "inout" else 1
    return math.prod(shape) * lookup(param.dtype).bits * directions // 8


class _Counter(Machine):
    """Runs the scalar part of a kernel for many blocks at once, lanes of the machine's grid, and counts the
    products of tiles instead of forming them."""

    def __init__(self, kernel: ir.Kernel) -> None:
        super().__init__()
        self.kernel = kernel
        self.flops: dict[str, int] = {}
        self.tensors = {param.buffer: param for param in kernel.params if isinstance(param, ir.TensorParam)}
        self.copies = [stmt for stmt in ir.walk(kernel.body) if isinstance(stmt, ir.Copy)]
        self._relevant = {stmt: self._decides(stmt) for stmt in ir.walk(kernel.body)}

    def run(self, dims: Mapping[str, int], values: Mapping[str, Any]) -> None:
        """Counts one call."""
        known = {NUM_SMS: INTERPRETED, **dims}
        for dim in self.kernel.dims:
            if dim.var is not None:
                self.bind(dim.var, np.int64(known[dim.name]))
        for param in self.kernel.params:
            if isinstance(param, ir.ScalarParam):
                value = values.get(param.name, param.default)
                self.bind(param.var, numpy_dtype(str(param.var.ty.dtype)).type(value))
            elif _is_integer(param.buffer) and param.name in values:
                self.place(param.buffer, Storage(np.asarray(values[param.name])))
        self.block(self.kernel.body, True)

    def stmt(self, stmt: ir.Stmt, mask: Any) -> None:
        """Statements that decide nothing are left out."""
        if not self._relevant.get(stmt, True):
            return
        rule = _RULES.get(type(stmt))
        if rule is None:
            super().stmt(stmt, mask)
            return
        self.state.mask = mask
        rule(self, stmt, mask)

    def _decides(self, stmt: ir.Stmt) -> bool:
        """Whether a statement is a product, or may decide which products there are."""
        if isinstance(stmt, (*ir.PRODUCTS, ir.Launch, ir.Bind, ir.Alloc, ir.Break, ir.Continue)):
            return True
        if isinstance(stmt, (*_WRITERS, ir.Parallel)):
            return bool(_followed(stmt))
        return any(self._decides(each) for block in ir.children(stmt) for each in block)

    def launch(self, stmt: ir.Launch) -> None:
        """All blocks of a grid, `_LANES` at a time."""
        grid = [self.integer(extent) for extent in stmt.grid]
        count = math.prod(grid)
        for first in range(0, count, _LANES):
            numbers = np.arange(first, min(count, first + _LANES))
            for var, extent in zip(stmt.block_vars, grid, strict=True):
                self.bind(var, (numbers % extent).astype(np.int64))
                numbers = numbers // extent
            self.state.grid = numbers.shape
            self.block(stmt.body, np.ones(numbers.shape, np.bool_))
            self.state.grid = ()

    def gemm(self, stmt: ir.Gemm | ir.SparseGemm | ir.ScaledGemm, mask: Any) -> None:
        """Twice M x N x K for every live block; of a sparse operand the K that it holds."""
        has_scales = isinstance(stmt, ir.ScaledGemm)
        m, k = self._sides(stmt.a, stmt.trans_a, numbers_of(stmt.a) if has_scales else 1)
        other_k, n = self._sides(stmt.b, stmt.trans_b, numbers_of(stmt.b) if has_scales else 1)
        rows, columns = self._sides(stmt.c, False)
        pairs = np.minimum(m, rows) * np.minimum(n, columns) * np.minimum(k, other_k)
        live = np.broadcast_to(mask, self.state.grid)
        total = int(np.sum(np.where(live, pairs, 0), dtype=np.int64))
        dtype = number_type(stmt.a) if has_scales else str(stmt.a.buffer.dtype)
        self.flops[dtype] = self.flops.get(dtype, 0) + 2 * total

    def _sides(self, region: ir.Region, transposed: bool, numbers: int = 1) -> tuple[Any, Any]:
        """The last two extents of an operand, clipped to what it is copied from or to; ``numbers``: of an
        element."""
        tile = [np.int64(self.value(extent)) for extent in region.extent[-2:]]
        clipped = self._valid(region.buffer, _MOST_HOPS)
        sides = (
            [np.minimum(full, valid) for full, valid in zip(tile, clipped, strict=True)] if clipped else tile
        )
        rows, columns = sides[0], numbers * sides[1]
        return (columns, rows) if transposed else (rows, columns)

    def _valid(self, buffer: Any, hops: int) -> list[Any] | None:
        """How many of a tile's last two extents lie inside of the tensor that it is copied from or to; None
        where that is not known."""
        for copy in self.copies:
            for here, there in ((copy.dst, copy.src), (copy.src, copy.dst)):
                if here.buffer is not buffer and not here.buffer.same_as(buffer):
                    continue
                found = self._inside(there) if there.buffer in self.tensors else None
                if found is None and hops > 1 and there.buffer not in self.tensors:
                    found = self._valid(there.buffer, hops - 1) if here is copy.dst else None
                if found is not None:
                    return found
        return None

    def _inside(self, region: ir.Region) -> list[Any] | None:
        """Of a region of a tensor: how much of its last two axes with more than one element is there."""
        shape = region.buffer.shape
        try:
            axes = [
                (np.asarray(self.value(limit)), np.asarray(self.value(start)), np.asarray(self.value(extent)))
                for limit, start, extent in zip(shape, region.start, region.extent, strict=True)
            ]
        except KeyError:  # written with names of another loop
            return None
        wide = [axis for axis in axes if np.any(axis[2] != 1)]
        if len(wide) < 2:
            return None
        return [np.clip(limit - start, 0, extent) for limit, start, extent in wide[-2:]]


def _is_integer(buffer: Any) -> bool:
    return "int" in str(buffer.dtype) or str(buffer.dtype) == "bool"


def _is_followed(buffer: Any) -> bool:
    """Whether what a buffer holds is followed: scalars and small tables of one thread, of integers."""
    shape: list[Any] = [getattr(extent, "value", None) for extent in buffer.shape]
    known = all(extent is not None for extent in shape)
    local = buffer.scope() in PER_THREAD
    return local and known and _is_integer(buffer) and math.prod(shape) <= _SMALL


def _followed(stmt: ir.Stmt) -> list[Any]:
    """The buffers that are followed and that a statement, or one inside of it, writes."""
    return [
        target
        for each in ir.walk((stmt,))
        for target in (getattr(each, "buffer", None), getattr(getattr(each, "dst", None), "buffer", None))
        if isinstance(each, _WRITERS) and target is not None and _is_followed(target)
    ]


def _forget(counter: _Counter, stmt: ir.Stmt, mask: Any) -> None:
    """What tiles and parallel loops write is not followed: whoever reads it cannot be counted."""
    for buffer in _followed(stmt):
        counter.state.buffers.pop(counter.compile.number(buffer), None)


def _alloc(counter: _Counter, stmt: ir.Alloc, mask: Any) -> None:
    """Storage for bounds and counters; tiles have none."""
    if _is_followed(stmt.buffer):
        Machine.stmt(counter, stmt, mask)


def _bind(counter: _Counter, stmt: ir.Bind, mask: Any) -> None:
    """A name whose value needs a tile stays without one; whoever reads it cannot be counted."""
    try:
        counter.bind(stmt.var, counter.value(stmt.value))
    except KeyError:
        counter.state.scalars.pop(counter.compile.number(stmt.var), None)


_TILE_WRITERS = (ir.Copy, ir.Fill, ir.Reduce, ir.Scan, ir.Atomic)
_WRITERS = (ir.Store, *_TILE_WRITERS)
_RULES: dict[type, Callable[[_Counter, Any, Any], None]] = {
    ir.Alloc: _alloc,
    ir.Bind: _bind,
    ir.Launch: lambda counter, stmt, mask: counter.launch(stmt),
    **dict.fromkeys(ir.PRODUCTS, lambda counter, stmt, mask: counter.gemm(stmt, mask)),
    **dict.fromkeys((*_TILE_WRITERS, ir.Parallel), _forget),
}
