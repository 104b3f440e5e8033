"""TIR of `Atomic`: an atomic instruction on memory that blocks share, a plain update on a block's own tiles.

Iterations of a Parallel run one after the other in a worker, so only memory that other workers reach needs an
atomic instruction. 16-bit floats have none: a loop of compare and exchange does it, in float32 as everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit import atomic_functions
from tilec.backends.cpu.emit.loops.updates import is_undisturbed
from tilec.backends.cpu.emit.statements import emit
from tilec.backends.cpu.emit.vectors.lanes import NotVectorisable
from tilec.ir.nodes import Atomic, is_global
from tilec.lowering.emission.atomic import emit_update, keep
from tilec.lowering.emission.storage import (
    Storage,
    compute_type,
    decode,
    element_bytes,
    encode,
    is_nan,
    stored_type,
)

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cpu.emit.context import LaneContext

#: What integers and wide floats have instructions for; other elements are exchanged as their bits.
_EXCHANGED = ("float16", "bfloat16")


@emit.register(Atomic)
def _emit_atomic(stmt: Atomic, ctx: LaneContext) -> tirx.Stmt | None:
    if ctx.lanes is not None:
        raise NotVectorisable(
            f"updates of {stmt.buffer.name} happen one after the other{_when(stmt)}",
            "sum in a tile of the block, and update once for each element",
        )
    return emit_update(stmt, lambda held: _Update(stmt, ctx, held).code(), ctx)


def _when(stmt: Atomic) -> str:
    """The condition of a loss that one thread does not have (`emit/loops/updates.py`)."""
    tensor = is_global(stmt.buffer) and stmt.prev is None
    return " where several threads share the blocks" if tensor else ""


class _Update:
    """The code of one statement. ``held`` is the array for what the element held before, if that is asked
    for."""

    def __init__(self, stmt: Atomic, ctx: LaneContext, held: Var | None) -> None:
        self.stmt, self.ctx, self.held = stmt, ctx, held
        self.storage: Storage = ctx.storage(stmt.buffer)
        self.dtype = self.storage.dtype

    def code(self) -> tirx.Stmt:
        """The update of an element that exists."""
        value = self.ctx.value(self.stmt.value)
        place = self.ctx.offset(self.storage, self.stmt.indices)
        if self.stmt.kind in ("load", "store"):
            return self._accessed(place, value)
        if is_undisturbed(self.ctx) or not is_global(self.stmt.buffer):
            return self._plain(place, value)
        return self._exchanged(place, value) if self.dtype in _EXCHANGED else self._instruction(place, value)

    def _accessed(self, place: Expr, value: Expr) -> tirx.Stmt:
        """A read or a write of the element's bits. A block's own tiles are read and written plainly."""
        bits, shared = 8 * element_bytes(self.dtype), is_global(self.stmt.buffer)
        element = tirx.BufferLoad(self.storage.data, [place])
        if self.stmt.kind == "load":
            if not shared:
                return keep(self.held, decode(element, self.dtype))
            function = atomic_functions.load(bits, self.stmt.order)
            seen = tirx.reinterpret(stored_type(self.dtype), function.called(self._address(place)))
            return function.defined(keep(self.held, decode(seen, self.dtype)))
        new = encode(value, self.dtype)
        if not shared:
            return tirx.BufferStore(self.storage.data, new, [place])
        function = atomic_functions.store(bits, self.stmt.order)
        call = function.called(self._address(place), tirx.reinterpret(f"uint{bits}", new))
        return function.defined(tirx.Evaluate(call))

    def _plain(self, place: Expr, value: Expr) -> tirx.Stmt:
        """Read, combine, write."""
        old = self.ctx.fresh("old", compute_type(self.dtype))
        read = tirx.Bind(old, decode(tirx.BufferLoad(self.storage.data, [place]), self.dtype))
        new = encode(self._combined(old, value), self.dtype)
        write = tirx.BufferStore(self.storage.data, new, [place])
        return tirx.SeqStmt([read, write, *self._kept(old)])

    def _instruction(self, place: Expr, value: Expr) -> tirx.Stmt:
        function = atomic_functions.update(self.stmt.kind, self.dtype, self.stmt.order)
        call = function.called(self._address(place), value)
        return function.defined(keep(self.held, call))

    def _exchanged(self, place: Expr, value: Expr) -> tirx.Stmt:
        """Computes the new bits from those seen last, until nobody has come between."""
        bits = "uint16"
        seen, retry = (
            tirx.decl_buffer((1,), kind, name=self.ctx.fresh(name, "int32").name)
            for name, kind in (("seen", bits), ("retry", "int32"))
        )
        zero = tirx.const(0)
        last = tirx.BufferLoad(seen, [zero])
        first = tirx.reinterpret(bits, tirx.BufferLoad(self.storage.data, [place]))
        expected, found = self.ctx.fresh("expected", bits), self.ctx.fresh("found", bits)
        new = encode(self._combined(self._number(expected), value), self.dtype)
        function = atomic_functions.exchange(16, self.stmt.order)
        call = function.called(self._address(place), expected, tirx.reinterpret(bits, new))
        body = [
            tirx.Bind(expected, last),
            tirx.Bind(found, call),
            tirx.BufferStore(retry, tirx.Cast("int32", tirx.NE(found, expected)), [zero]),
            tirx.BufferStore(seen, found, [zero]),
        ]
        start = [
            tirx.AllocBuffer(seen),
            tirx.AllocBuffer(retry),
            tirx.BufferStore(seen, first, [zero]),
            tirx.BufferStore(retry, tirx.const(1), [zero]),
        ]
        again = tirx.NE(tirx.BufferLoad(retry, [zero]), tirx.const(0))
        loop = function.defined(tirx.While(again, tirx.SeqStmt(body)))
        return tirx.SeqStmt([*start, loop, *self._kept(self._number(last))])

    def _number(self, bits: Expr) -> Expr:
        raw = bits if self.dtype == "bfloat16" else tirx.reinterpret(self.dtype, bits)
        return decode(raw, self.dtype)

    def _address(self, place: Expr) -> Expr:
        return tirx.address_of(tirx.BufferLoad(self.storage.data, [place]))

    def _combined(self, old: Expr, value: Expr) -> Expr:
        kind = self.stmt.kind
        if kind == "add":
            return tirx.Add(old, value)
        if kind == "or":
            return tirx.BitwiseOr(old, value)
        extreme = (tirx.Max if kind == "max" else tirx.Min)(old, value)
        return tirx.Select(is_nan(value), old, extreme) if "float" in compute_type(self.dtype) else extreme

    def _kept(self, old: Expr) -> list[tirx.Stmt]:
        return [keep(self.held, old)] if self.held is not None else []
