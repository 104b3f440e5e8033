"""TIR of a `MicroGemm`: loops over panels and row blocks around a K loop whose accumulators are registers.

Columns go outermost, so that one panel of ``b`` stays in the first cache levels while the rows of ``a`` pass.
Rows and columns that fill no whole block are done by narrower blocks of the next powers of two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from tvm import tirx

from tilec.lowering.cpu.nodes import MicroGemm, RegisterBlock, element
from tilec.lowering.cpu.storage import compute_type, convert
from tilec.lowering.exprs import dtype_of, int_value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: Type of loop variables: tiles are small, and LLVM widens them where an address needs it.
INDEX = "int32"


class Memory(Protocol):
    """How a microkernel reaches the buffers of the tile IR. Indices are scalar TIR expressions in range."""

    def load(self, buffer: Var, indices: tuple[Expr, ...], lanes: int = 1) -> Expr:
        """The values of ``lanes`` consecutive elements along the last index."""

    def store(self, buffer: Var, indices: tuple[Expr, ...], value: Expr) -> tirx.Stmt:
        """Writes the lanes of ``value`` along the last index."""


#: Emits the epilogue of one register block: (row, col, block, accumulators) -> statement.
Epilogue = Callable[["Expr", "Expr", RegisterBlock, "Var"], "tirx.Stmt | None"]


def emit_product(gemm: MicroGemm, memory: Memory, fused_multiply: bool, epilogue: Epilogue) -> tirx.Stmt:
    """The statement that computes ``gemm``; ``fused_multiply`` where the target has an FMA instruction."""
    builder = _Builder(gemm, memory, fused_multiply, epilogue)
    parts = [builder.columns(block, start, count) for block, start, count in _column_blocks(gemm)]
    return sequence(*parts)


def _column_blocks(gemm: MicroGemm) -> Iterator[tuple[RegisterBlock, int, int]]:
    """Block, first column and number of blocks: whole ones, then one for every power of two in the rest."""
    columns, block = int_value(gemm.c.extent[-1]), gemm.block
    whole = columns // block.cols
    if whole:
        yield block, 0, whole
    start = whole * block.cols
    while start < columns:
        width = 1 << ((columns - start).bit_length() - 1)
        yield replace(block, cols=width, lanes=min(block.lanes, width)), start, 1
        start += width


class _Builder:
    """Emits the loops of one product."""

    def __init__(self, gemm: MicroGemm, memory: Memory, fused_multiply: bool, epilogue: Epilogue) -> None:
        self.gemm = gemm
        self.memory = memory
        self.fused_multiply = fused_multiply
        self.epilogue = epilogue
        self.dtype = compute_type(str(gemm.c.buffer.dtype))

    def columns(self, block: RegisterBlock, start: int, count: int) -> tirx.Stmt:
        """``count`` blocks side by side, each over all rows."""
        if count == 1:
            return self._rows(block, index(start))
        return loop(count, lambda j: self._rows(block, j * block.cols + start))

    def _rows(self, block: RegisterBlock, col: Expr) -> tirx.Stmt:
        """All rows of one column block: whole row blocks, then one narrower block per power of two."""
        rows = int_value(self.gemm.rows)
        if rows is not None:
            return self._static_rows(block, col, rows)
        limit = tirx.Var("rows", INDEX)
        whole = tirx.truncdiv(limit, index(block.rows))
        parts = [loop(whole, lambda i: self._block(block, i * block.rows, col))]
        done = whole * block.rows
        for size in _powers_below(block.rows):
            parts.append(self._tail(replace(block, rows=size), done, limit, col))
        value = tirx.max(index(self.gemm.rows), index(0))
        return sequence(tirx.Bind(limit, value), *parts)

    def _tail(self, block: RegisterBlock, whole: Expr, limit: Expr, col: Expr) -> tirx.Stmt:
        """The block of ``block.rows`` rows (a power of two), where the rows that remain have that bit."""
        rest = limit - whole
        bit = tirx.bitwise_and(rest, index(block.rows))
        before = rest - tirx.bitwise_and(rest, index(2 * block.rows - 1))
        return tirx.IfThenElse(bit != 0, self._block(block, whole + before, col), None)

    def _static_rows(self, block: RegisterBlock, col: Expr, rows: int) -> tirx.Stmt:
        whole = rows // block.rows
        parts = [loop(whole, lambda i: self._block(block, i * block.rows, col))] if whole else []
        done = whole * block.rows
        for size in _powers_below(block.rows):
            if (rows - whole * block.rows) & size:
                parts.append(self._block(replace(block, rows=size), index(done), col))
                done += size
        return sequence(*parts)

    def _block(self, block: RegisterBlock, row: Expr, col: Expr) -> tirx.Stmt:
        """One register block from its first row and column: start value, K loop, write back, epilogue."""
        accumulators = tirx.decl_buffer((block.rows * block.cols,), self.dtype, "acc", scope="local")
        parts = [
            tirx.AllocBuffer(accumulators),
            self._start(block, row, col, accumulators),
            self._depth(block, row, col, accumulators),
        ]
        if self.gemm.c.buffer not in self.gemm.registers:
            parts.append(self._write_back(block, row, col, accumulators))
        parts.append(self.epilogue(row, col, block, accumulators))
        return sequence(*(part for part in parts if part is not None))

    def _start(self, block: RegisterBlock, row: Expr, col: Expr, accumulators: Var) -> tirx.Stmt:
        zero = broadcast(tirx.const(0, self.dtype), block.lanes)
        cleared = each_vector(block, lambda r, v: put(accumulators, lane(block, r, v), zero))
        if int_value(self.gemm.clear) == 1:
            return cleared

        def loaded(r: Expr, v: Expr) -> tirx.Stmt:
            value = self.memory.load(self.gemm.c.buffer, self._c(row + r, col + v * block.lanes), block.lanes)
            return put(accumulators, lane(block, r, v), value)

        if int_value(self.gemm.clear) == 0:
            return each_vector(block, loaded)
        return tirx.IfThenElse(self.gemm.clear, cleared, each_vector(block, loaded))

    def _write_back(self, block: RegisterBlock, row: Expr, col: Expr, accumulators: Var) -> tirx.Stmt:
        def stored(r: Expr, v: Expr) -> tirx.Stmt:
            value = get(accumulators, lane(block, r, v), block.lanes)
            return self.memory.store(self.gemm.c.buffer, self._c(row + r, col + v * block.lanes), value)

        return each_vector(block, stored)

    def _depth(self, block: RegisterBlock, row: Expr, col: Expr, accumulators: Var) -> tirx.Stmt:
        """The K loop: ``block.unroll`` steps a trip, then the rest one by one."""

        def step(k: Expr) -> tirx.Stmt:
            return each_vector(block, lambda r, v: self._multiply(block, row, col, k, r, v, accumulators))

        depth, unroll = self.gemm.depth, block.unroll
        known = int_value(depth)
        if known is not None:
            trips, rest = known // unroll, known % unroll
            parts = [loop(trips, lambda k: unrolled(unroll, lambda u: step(k * unroll + u)))] if trips else []
            if rest:
                parts.append(unrolled(rest, lambda u: step(u + trips * unroll)))
            return sequence(*parts)
        limit = tirx.Var("depth", INDEX)
        trips = tirx.truncdiv(limit, index(unroll))
        return sequence(
            tirx.Bind(limit, tirx.max(index(depth), index(0))),
            loop(trips, lambda k: unrolled(unroll, lambda u: step(k * unroll + u))),
            loop(limit - trips * unroll, lambda u: step(trips * unroll + u)),
        )

    def _multiply(
        self, block: RegisterBlock, row: Expr, col: Expr, k: Expr, r: Expr, v: Expr, accumulators: Var
    ) -> tirx.Stmt:
        """Vector v of row r of the block += a[row + r, k] * b[k, col + vector v]."""
        at = lane(block, r, v)
        a = convert(self.memory.load(self.gemm.a.region.buffer, element(self.gemm.a, row + r, k)), self.dtype)
        start = element(self.gemm.b, k, col + v * block.lanes)
        b = convert(self.memory.load(self.gemm.b.region.buffer, start, block.lanes), self.dtype)
        old = get(accumulators, at, block.lanes)
        return put(accumulators, at, self._fma(broadcast(a, block.lanes), b, old))

    def _fma(self, a: Expr, b: Expr, old: Expr) -> Expr:
        if self.fused_multiply and self.dtype.startswith("float"):
            return tirx.call_intrin(dtype_of(old), "tirx.fma", a, b, old)
        return old + a * b

    def _c(self, row: Expr, col: Expr) -> tuple[Expr, ...]:
        region = self.gemm.c
        last = len(region.start) - 1
        return tuple(
            start + (row if axis == last - 1 else col) if axis >= last - 1 else start
            for axis, start in enumerate(region.start)
        )


def _powers_below(limit: int) -> Iterator[int]:
    """Powers of two below ``limit``, largest first."""
    size = 1 << max(limit - 1, 0).bit_length()
    while size > 1:
        size //= 2
        if size < limit:
            yield size


def index(value: Expr | int) -> Expr:
    """``value`` in the type of the loops here."""
    if isinstance(value, int):
        return tirx.IntImm(INDEX, value)
    return value if dtype_of(value) == INDEX else tirx.Cast(INDEX, value)


def broadcast(value: Expr, lanes: int) -> Expr:
    """``value`` in every lane; a scalar for one lane."""
    return value if lanes == 1 else tirx.Broadcast(value, lanes)


def span(start: Expr, lanes: int) -> Expr:
    """Indices of ``lanes`` consecutive elements."""
    return start if lanes == 1 else tirx.Ramp(start, index(1), lanes)


def lane(block: RegisterBlock, r: Expr, v: Expr) -> Expr:
    """First element of vector ``v`` of row ``r`` in the registers of a block."""
    return r * block.cols + v * block.lanes


def get(registers: Var, at: Expr, lanes: int) -> Expr:
    """``lanes`` registers' elements from ``at``."""
    return tirx.BufferLoad(registers, [span(at, lanes)])


def put(registers: Var, at: Expr, value: Expr) -> tirx.Stmt:
    """Stores the lanes of ``value`` from ``at``."""
    return tirx.BufferStore(registers, value, [span(at, value.ty.dtype.lanes)])


def each_vector(block: RegisterBlock, body: Callable[[Expr, Expr], tirx.Stmt]) -> tirx.Stmt:
    """``body(row, vector)`` for every vector of a block, unrolled."""
    return unrolled(block.rows, lambda r: unrolled(block.vectors, lambda v: body(r, v)))


def unrolled(count: int, body: Callable[[Expr], tirx.Stmt]) -> tirx.Stmt:
    """``body`` for 0 to count - 1, to be unrolled."""
    return body(index(0)) if count == 1 else loop(count, body, tirx.ForKind.UNROLLED)


def loop(
    count: int | Expr, body: Callable[[Expr], tirx.Stmt], kind: tirx.ForKind = tirx.ForKind.SERIAL
) -> tirx.Stmt:
    """``body`` for 0 to count - 1."""
    var = tirx.Var("i", INDEX)
    return tirx.For(var, index(0), index(count), kind, body(var))


def sequence(*parts: tirx.Stmt) -> tirx.Stmt:
    """Statements one after another."""
    return parts[0] if len(parts) == 1 else tirx.SeqStmt(list(parts))
