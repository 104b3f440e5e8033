"""WarpGemm as mma.sync: operands by ldmatrix where a row's 16 bytes lie together, element by element else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.errors import UnsupportedError
from tilec.lowering.cpu.emit import sequence
from tilec.lowering.cuda.context import DeviceContext
from tilec.lowering.cuda.emit import call, emit, guarded
from tilec.lowering.cuda.mma import COLUMNS, ROWS, instruction_name
from tilec.lowering.cuda.nodes import WarpGemm
from tilec.lowering.cuda.operands import FragmentOperand, SharedOperand, rounded
from tilec.lowering.exprs import dtype_of, int_value
from tilec.lowering.places import place_of

if TYPE_CHECKING:
    from tvm.ir import Expr


_INTEGER = """
__device__ __forceinline__ void {name}(int* c, const unsigned* a, const unsigned* b) {{
  asm volatile("{instruction} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
"""


def _integer_product(instruction: str, c: Expr, a: Expr, b: Expr) -> tirx.Stmt:
    """mma.sync into signed sums, which TVM's table of instructions has as unsigned ones alone."""
    name = f"tilec_{instruction.replace('.', '_')}"
    code = _INTEGER.format(name=name, instruction=instruction)
    return call(T.cuda.func_call(name, c, a, b, source_code=code))


@emit.register(WarpGemm)
def _emit_product(stmt: WarpGemm, ctx: DeviceContext) -> tirx.Stmt:
    return _Product(stmt, ctx).emit()


class _Product:
    """The instructions of one warp."""

    def __init__(self, stmt: WarpGemm, ctx: DeviceContext) -> None:
        self.stmt, self.ctx, self.tile = stmt, ctx, stmt.tile
        down, across = self.tile.warps
        assert ctx.warp is not None
        divisor = tirx.const(across, "int32")
        warp = (
            ctx.warp
            if down * across == ctx.warps
            else tirx.truncmod(ctx.warp, tirx.const(down * across, "int32"))
        )
        self.row = tirx.truncdiv(warp, divisor) if down > 1 else tirx.const(0, "int32")
        self.column = tirx.truncmod(warp, divisor) if across > 1 else tirx.const(0, "int32")
        dtype = str(stmt.b.buffer.dtype)
        self.types = (str(stmt.a.buffer.dtype), dtype, str(stmt.c.buffer.dtype))
        self.accumulator = ctx.fragments[stmt.c.buffer].data
        self.base = self._slice()

    def emit(self) -> tirx.Stmt:
        """All steps along K, after the accumulator is cleared where it is to be."""
        ctx, (rows, columns) = self.ctx, self.tile.tiles
        a_regs = tirx.decl_buffer((rows * 4,), "uint32", name=ctx.fresh("a", "int32").name, scope="local")
        b_regs = tirx.decl_buffer((columns * 2,), "uint32", name=ctx.fresh("b", "int32").name, scope="local")
        a, b = self._operands()
        parts = [*self._clear(), tirx.AllocBuffer(a_regs), tirx.AllocBuffer(b_regs)]
        for step in range(self.tile.steps):
            for tile in range(rows):
                parts += a.load(a_regs, tile * 4, tile, step)
            for tile in range(0, columns, 2):
                parts += b.load_pair(b_regs, tile * 2, tile, step, min(2, columns - tile))
            if self.types[0] == "float32":
                parts += [rounded(a_regs, self.ctx), rounded(b_regs, self.ctx)]
            parts += [self._multiply(a_regs, b_regs, i, j) for i in range(rows) for j in range(columns)]
        return sequence(parts)

    def _operands(self) -> tuple[FragmentOperand | SharedOperand, SharedOperand]:
        stmt, (rows, columns) = self.stmt, self.tile.tiles
        first = self.row * tirx.const(rows * ROWS, "int32")
        across = self.column * tirx.const(columns * COLUMNS, "int32")
        down, wide = self.tile.warps
        b = SharedOperand(stmt.b, not stmt.trans_b, across, wide * columns * COLUMNS, self.ctx)
        fragment = self.ctx.fragments.get(stmt.a.buffer)
        if fragment is not None:
            return FragmentOperand(fragment.data, self.tile.steps), b
        return SharedOperand(stmt.a, stmt.trans_a, first, down * rows * ROWS, self.ctx), b

    def _multiply(self, a: Expr, b: Expr, i: int, j: int) -> tirx.Stmt:
        columns = self.tile.tiles[1]
        place = self.base + tirx.const((i * columns + j) * 4, "int32")
        sums = [self.accumulator[place + tirx.const(q, "int32")] for q in range(4)]
        name = instruction_name(self.tile.instruction, self.types)
        left, right = [a[i * 4 + q] for q in range(4)], [b[j * 2 + q] for q in range(2)]
        if self.types[2] == "int32":
            return _integer_product(
                name, self.accumulator.ptr_to([place]), a.ptr_to([i * 4]), b.ptr_to([j * 2])
            )
        return call(T.ptx[name](*sums, *left, *right, *sums))

    def _clear(self) -> list[tirx.Stmt]:
        verdict = self.ctx.facts.prove(self.stmt.clear)
        if verdict is False:
            return []
        rows, columns = self.tile.tiles
        var = self.ctx.fresh("r", "int32")
        zero = tirx.BufferStore(
            self.accumulator, tirx.const(0, str(self.accumulator.dtype)), [self.base + var]
        )
        loop = tirx.For(var, tirx.const(0), tirx.const(rows * columns * 4), tirx.ForKind.UNROLLED, zero)
        tests = [] if verdict else [self.ctx.value(self.stmt.clear)]
        return [guarded(loop, tests)]

    def _slice(self) -> Expr:
        """The first register of the accumulator's slice."""
        region, ctx = self.stmt.c, self.ctx
        rows, columns = self.tile.tiles
        count = rows * columns * 4
        whole, part = int_value(region.buffer.shape[-1]), int_value(region.extent[-1])
        across = whole // part  # type: ignore[operator]
        total: Expr = tirx.const(0, "int32")
        for axis, step in ((-2, count * across), (-1, count)):
            start, extent = region.start[axis], region.extent[axis]
            zero, size = tirx.const(0, dtype_of(start)), tirx.const(int_value(extent), dtype_of(start))
            if ctx.facts.prove(tirx.EQ(tirx.floormod(start, size), zero)) is not True:
                raise UnsupportedError(
                    f"T.gemm adds to a part of {region.buffer.name} that starts between its tiles",
                    place=place_of(self.stmt, "T.gemm"),
                    remedy=f"start slices at multiples of their size ({int_value(extent)})",
                )
            index = tirx.Cast("int32", ctx.value(ctx.facts.simplify(tirx.floordiv(start, size))))
            total = total + index * tirx.const(step, "int32")
        return ctx.facts.analyzer.simplify(total)
