"""Memory of tiles on a device: places in shared memory, registers of threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.sym import Analyzer

from tilec.backends.cuda.emit.held import Fragment
from tilec.ir.exprs import dtype_of, int_value, is_zero, substitute, summands
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import extent_of, is_in_slabs, is_row_major, row_pitch
from tilec.ir.roads import Loss
from tilec.lowering.emission.memory import first_value, flat_memory, static_shape
from tilec.lowering.emission.parameters import declare_at_address
from tilec.lowering.emission.statements import sequence
from tilec.lowering.emission.storage import Storage, convert
from tilec.targets import MOST_REGISTERS

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.emit.context import DeviceContext
    from tilec.ir.nodes import Alloc


@dataclass(frozen=True, eq=False)
class SharedStorage(Storage):
    """A tile in shared memory, at the places of its layout. ``sums`` has the values of names that rows may be
    sums in."""

    sums: Mapping[Var, Expr] = field(default_factory=dict)

    @property
    def pitch(self) -> int | None:
        """Elements from one row to the next, where the elements of a row lie side by side and a swizzle keeps
        them in it; None for tiles of another order."""
        assert self.layout is not None
        return row_pitch(self.layout)

    def offset(self, indices: Sequence[Expr]) -> Expr:
        """The index of one element; indices are not negative."""
        if not indices:
            return tirx.const(0, "int32")
        start, column = self.split(indices)
        return start + column

    def split(self, indices: Sequence[Expr]) -> tuple[Expr, Expr]:
        """The index as two summands: of the row, and of the column as the swizzle turns it. All of it is the
        second one where rows are not pieces of memory."""
        assert self.layout is not None
        if self.pitch is None and is_in_slabs(self.layout):
            return self._split_slabs(indices)
        if self.pitch is None:
            wide = [convert(index, "uint32") for index in indices]
            return tirx.const(0, "int32"), tirx.Cast("int32", self.layout.offset(wide))
        if not is_row_major(self.layout):
            return self._split_apart(self.pitch, indices)
        shape, swizzle = self.layout.shape, self.layout.swizzle
        rows: Expr = tirx.const(0, "uint32")
        for index, extent in zip(indices[:-1], shape[:-1], strict=True):
            rows = rows * tirx.const(extent, "uint32") + convert(index, "uint32")
        start = tirx.Cast("int32", rows * tirx.const(shape[-1], "uint32"))
        if swizzle is None:
            return start, tirx.Cast("int32", convert(indices[-1], "uint32"))
        step = swizzle.row // shape[-1]
        is_near = len(indices) > 1 and shape[-2] % (swizzle.width * step) == 0
        phase = self._phase(indices[-2] if is_near else rows, step, swizzle.width)
        return start, tirx.Cast("int32", _turned(indices[-1], phase, swizzle.unit))

    def _split_apart(self, pitch: int, indices: Sequence[Expr]) -> tuple[Expr, Expr]:
        """The summands where rows lie ``pitch`` apart, and gaps between them."""
        assert self.layout is not None
        swizzle, wide = self.layout.swizzle, [convert(index, "uint32") for index in indices]
        rows = Layout((*self.layout.digits[:-1], ())).offset(wide)
        start, column = tirx.Cast("int32", _unsigned(0) + rows), wide[-1]
        if swizzle is not None:
            phase = self._phase(indices[-2], swizzle.row // pitch, swizzle.width)
            column = tirx.bitwise_xor(column, phase * _unsigned(swizzle.unit))
        return start, tirx.Cast("int32", column)

    def _split_slabs(self, indices: Sequence[Expr]) -> tuple[Expr, Expr]:
        """The summands of a tile in slabs of columns: a slab's row, and the column in it."""
        assert self.layout is not None
        assert self.layout.swizzle is not None
        swizzle, wide = self.layout.swizzle, [convert(index, "uint32") for index in indices]
        near, slab = self.layout.digits[-1]
        rows = Layout((*self.layout.digits[:-1], ())).offset(wide)
        start = rows + tirx.truncdiv(wide[-1], _unsigned(near.size)) * _unsigned(slab.stride)
        phase = self._phase(indices[-2], swizzle.row // near.size, swizzle.width)
        column = tirx.truncmod(wide[-1], _unsigned(near.size))
        moved = tirx.bitwise_xor(column, phase * _unsigned(swizzle.unit))
        return tirx.Cast("int32", start), tirx.Cast("int32", moved)

    def _phase(self, row: Expr, step: int, width: int) -> Expr:
        """Which of ``width`` patterns turns a row, ``step`` rows having each. What a sum adds in whole
        periods is left out, so that all registers of a thread have one pattern where that is so."""
        parts = summands(substitute(row, self.sums))
        near = [part for part in parts if not _is_in_periods(part, step * width)]
        if len(near) < len(parts):
            row = reduce(tirx.Add, near) if near else tirx.const(0, dtype_of(row))
        return tirx.truncmod(tirx.truncdiv(convert(row, "uint32"), _unsigned(step)), _unsigned(width))


def _is_in_periods(part: Expr, period: int) -> bool:
    factor = int_value(part.b) if isinstance(part, tirx.Mul) else int_value(part)
    return factor is not None and factor % period == 0


def _turned(column: Expr, phase: Expr, unit: int) -> Expr:
    """A column in the unit of ``unit`` elements that a swizzle gives it. What a constant adds within one is
    added behind, so that compilers see which elements lie side by side."""
    within = 0
    if isinstance(column, tirx.Add) and 0 < (int_value(column.b) or 0) < unit:
        found = Analyzer().modular_set(column.a)
        if found.coeff % unit == 0 and found.base % unit == 0:
            column, within = column.a, int_value(column.b) or 0
    moved = tirx.bitwise_xor(convert(column, "uint32"), phase * _unsigned(unit))
    return moved + _unsigned(within) if within else moved


def _unsigned(value: int) -> Expr:
    return tirx.const(value, "uint32")


def allocate(stmt: Alloc, ctx: DeviceContext) -> tirx.Stmt | None:
    """The TIR that makes the memory of a tile and, for a variable, its first value."""
    scope = stmt.buffer.scope()
    if scope.startswith("shared"):
        return _shared(stmt, ctx)
    if scope == "local.fragment":
        return _fragment(stmt, ctx)
    if scope == "global.address":
        return declare_at_address(stmt, ctx)
    return _private(stmt, ctx)


def _shared(stmt: Alloc, ctx: DeviceContext) -> tirx.Stmt:
    assert isinstance(stmt.place, tuple)
    assert ctx.pool is not None
    layout = stmt.layout or Layout.row_major(static_shape(stmt.buffer))
    data = flat_memory(
        stmt.buffer, layout.size, ctx, "shared.dyn", layout, kind=partial(SharedStorage, sums=ctx.sums)
    )
    ctx.places[stmt.buffer] = stmt.place[1]
    return tirx.DeclBuffer(data, data=ctx.pool.ptr_to([stmt.place[1]]))


def _fragment(stmt: Alloc, ctx: DeviceContext) -> tirx.Stmt:
    assert stmt.layout is not None
    registers = extent_of(stmt.layout, "reg")
    data = flat_memory(stmt.buffer, registers, ctx, "local")
    ctx.fragments[stmt.buffer] = Fragment(data, str(stmt.buffer.dtype), stmt.layout)
    if registers > MOST_REGISTERS:
        loss = Loss(
            "",
            f"a thread has {MOST_REGISTERS} registers",
            "choose smaller tiles, or give T.Kernel more threads",
        )
        how = f"{stmt.buffer.name} takes {registers} registers of each thread: it spills to local memory"
        ctx.take(stmt, "registers", how, loss)
    if stmt.init is None:
        return tirx.AllocBuffer(data)
    start = tirx.const(0, "int32")
    if is_zero(stmt.init):
        return tirx.SeqStmt([tirx.AllocBuffer(data), zeroed(data, start, registers, ctx)])
    begun = _filled(data, start, registers, ctx.stored(stmt.init, str(stmt.buffer.dtype)), ctx)
    return tirx.SeqStmt([tirx.AllocBuffer(data), begun])


def zeroed(data: Var, first: Expr, count: int, ctx: DeviceContext) -> tirx.Stmt:
    """``data[first : first + count]`` = 0, unrolled."""
    return _filled(data, first, count, tirx.const(0, str(data.dtype)), ctx)


def _filled(data: Var, first: Expr, count: int, value: Expr, ctx: DeviceContext) -> tirx.Stmt:
    var = ctx.fresh("r", "int32")
    store = tirx.BufferStore(data, value, [first + var])
    return tirx.For(var, tirx.const(0), tirx.const(count), tirx.ForKind.UNROLLED, store)


def _private(stmt: Alloc, ctx: DeviceContext) -> tirx.Stmt | None:
    """Memory of one thread: T.alloc_local and T.alloc_var."""
    size = Layout.row_major(static_shape(stmt.buffer)).size
    data = flat_memory(stmt.buffer, size, ctx, "local")
    return sequence([tirx.AllocBuffer(data), *first_value(stmt, ctx)])
