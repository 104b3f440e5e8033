"""The C entry of a launch: parameters, the loop over linear block indices, memory of all buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import tirx

# Each of these registers the code of its statements.
import tilec.backends.cpu.emit.ask_ahead
import tilec.backends.cpu.emit.atomic
import tilec.backends.cpu.emit.lines
import tilec.backends.cpu.emit.loops.parallel
import tilec.backends.cpu.emit.panels.pack_panels
import tilec.backends.cpu.emit.panels.pack_words
import tilec.backends.cpu.emit.panels.transpose_panels
import tilec.backends.cpu.emit.product  # noqa: F401
from tilec.backends.cpu.emit.emitter import LaneEmitter
from tilec.backends.cpu.emit.loops.updates import open_updates
from tilec.backends.cpu.emit.vectors.streams import close_streams, open_streams
from tilec.backends.cpu.llvm_text import with_llvm
from tilec.backends.cpu.passes.place_tiles import scratch_bytes
from tilec.ir.exprs import as_expr, dtype_of, int_value
from tilec.ir.nodes import Kernel, Launch
from tilec.ir.roads import in_order, without
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.analysis.uses import changed_in, order_counts
from tilec.lowering.emission.parameters import (
    EntryParameters,
    grid_texts,
    in_64_bits,
    marked,
    workspace_slices,
)
from tilec.lowering.emission.statements import sequence
from tilec.lowering.lowered import LoweredKernel, LoweredLaunch

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


def lower_kernel(kernel: Kernel, target: Target) -> LoweredKernel:
    """TIR of every launch of a kernel whose tiles are placed."""
    launches = tuple(_Entry(kernel, launch, target).lower() for launch in kernel.launches)
    return LoweredKernel(kernel.name, launches, workspace_slices(kernel))


@dataclass(eq=False)
class _Entry:
    """Builds the function of one launch."""

    kernel: Kernel
    launch: Launch
    target: Target

    def lower(self) -> LoweredLaunch:
        """The function and how to launch it."""
        ctx = LaneEmitter(self.target, Facts(self.kernel, changed_in(self.launch)))
        ctx.in_order = order_counts(self.launch)
        params, setup = EntryParameters(self.kernel).open(ctx)
        scratch = tirx.Var("scratch", tvm_ir.PointerType(tvm_ir.PrimType("uint8")))
        ctx.scratch = scratch
        begin, end = tirx.Var("begin", "int64"), tirx.Var("end", "int64")
        setup += open_streams(self.kernel, self.launch, ctx)
        setup += open_updates(self.launch, ctx, begin, end)
        body = sequence([*setup, self._blocks(ctx, begin, end), *close_streams(ctx)])
        body = with_llvm("\n".join(ctx.functions.values()), body)
        func = tirx.PrimFunc([*params, scratch, begin, end], body).with_attr("tirx.noalias", True)
        func = marked(func, self.kernel)
        grid = grid_texts(self.kernel, self.launch)
        roads = in_order((*without("layout", self.launch.roads), *ctx.roads))
        size = scratch_bytes(self.launch)
        notes = (*self.launch.notes, *self.launch.schedule.without_effect_on_cpus())
        return LoweredLaunch(func, grid, self.launch.threads, size, notes, roads)

    def _blocks(self, ctx: LaneEmitter, begin: Var, end: Var) -> tirx.Stmt:
        """The loop over the blocks of this call; nothing where an axis of the grid is known to have none."""
        if any(int_value(extent) == 0 for extent in self.launch.grid):
            return tirx.Evaluate(tirx.const(0))
        linear = tirx.Var("block", "int64")
        parts, rest = [], linear
        extents = [in_64_bits(ctx.value(as_expr(extent))) for extent in self.launch.grid]
        for axis, (var, extent) in enumerate(zip(self.launch.block_vars, extents, strict=True)):
            last = axis == len(extents) - 1
            index = rest if last else tirx.truncmod(rest, extent)
            rest = rest if last else tirx.truncdiv(rest, extent)
            ctx.facts.bind_range(var, 0, as_expr(self.launch.grid[axis]))
            dtype = dtype_of(var)
            parts.append(tirx.Bind(ctx.define(var), index if dtype == "int64" else tirx.Cast(dtype, index)))
        ctx.facts.enter_block(self.launch.grid)
        body = ctx.block(self.launch.body)
        parts.append(body if body is not None else tirx.Evaluate(tirx.const(0)))
        return tirx.For(linear, begin, end - begin, tirx.ForKind.SERIAL, sequence(parts))
