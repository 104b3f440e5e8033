"""FirstOperands and RotatedGemm: a product whose operands are loaded across the trips of a loop."""

from __future__ import annotations

from tvm import tirx

from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.context import DeviceContext
from tilec.backends.cuda.emit.products.warp_gemm import Product
from tilec.backends.cuda.emit.statements import block_barrier, call, emit
from tilec.backends.cuda.nodes import FirstOperands, RotatedGemm
from tilec.lowering.emission.statements import guarded, sequence


@emit.register(FirstOperands)
def _emit_first(stmt: FirstOperands, ctx: DeviceContext) -> tirx.Stmt:
    product = Product(stmt, ctx)
    operands = product.operands(stmt.a, stmt.b)
    buffers = product.registers(operands)
    ctx.ahead[stmt.registers] = buffers
    loads = sequence(product.first(operands, buffers))
    room = [tirx.AllocBuffer(buffer) for buffer in buffers]
    return sequence([*room, guarded(loads, [ctx.value(stmt.more)])])


@emit.register(RotatedGemm)
def _emit_rotated(stmt: RotatedGemm, ctx: DeviceContext) -> tirx.Stmt:
    product = Product(stmt, ctx)
    operands, following = (product.operands(*pair) for pair in ((stmt.a, stmt.b), (stmt.next_a, stmt.next_b)))
    buffers, last = ctx.ahead[stmt.registers], stmt.tile.steps - 1
    parts = product.clear()
    parts += [part for operand in operands for part in operand.begin()]
    for step in range(last):
        parts += product.load(operands, buffers, step + 1)
        parts += product.step(buffers, step)
    parts += [call(instruction("cp.async.wait_group")(stmt.pending)), block_barrier(ctx)]
    ahead = sequence(product.first(following, buffers))
    parts.append(guarded(ahead, [ctx.value(stmt.more)]))
    return sequence([*parts, *product.step(buffers, last)])
