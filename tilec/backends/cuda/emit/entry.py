"""The device function of a launch: parameters, block and thread indices, memory of all buffers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, cast

from tvm import ir as tvm_ir
from tvm import tirx
from tvm.tirx.script import builder as T

import tilec.backends.cuda.emit.copies.copy
import tilec.backends.cuda.emit.copies.gather
import tilec.backends.cuda.emit.loops.cut_rows
import tilec.backends.cuda.emit.loops.thread_loop
import tilec.backends.cuda.emit.products.fragments
import tilec.backends.cuda.emit.products.rotated
import tilec.backends.cuda.emit.products.scaled
import tilec.backends.cuda.emit.products.sparse
import tilec.backends.cuda.emit.products.warp_gemm
import tilec.backends.cuda.emit.threads.atomic
import tilec.backends.cuda.emit.threads.cluster
import tilec.backends.cuda.emit.threads.exchanges
import tilec.backends.cuda.emit.threads.lines
import tilec.backends.cuda.emit.threads.reduce
import tilec.backends.cuda.emit.threads.scan
import tilec.backends.cuda.statement_roles.emit.parts
import tilec.backends.cuda.statement_roles.emit.product
import tilec.backends.cuda.statement_roles.emit.sparse_product
import tilec.backends.cuda.statement_roles.emit.sums
import tilec.backends.cuda.statement_roles.emit.tiles
import tilec.backends.cuda.statement_roles.emit.turn  # noqa: F401  (registers the code of statements)
from tilec.backends.cuda.analysis.accesses.bank_conflicts import conflicts
from tilec.backends.cuda.analysis.blocks.threads import has_groups, warps_of
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.products.units import tiles_of_units
from tilec.backends.cuda.device.exchange import UNIFORM
from tilec.backends.cuda.device.intrinsics import register_intrinsics
from tilec.backends.cuda.device.ptx import instruction
from tilec.backends.cuda.emit.emitter import DeviceEmitter
from tilec.backends.cuda.emit.grid.early_start import (
    is_asked,
    release_successor,
    starts_early,
    wait_for_predecessor,
)
from tilec.backends.cuda.emit.grid.longest_first import by_length
from tilec.backends.cuda.emit.grid.raster import asked_group, banded
from tilec.backends.cuda.emit.loops.access_notes import thread_roads
from tilec.backends.cuda.emit.numbers.float_fields import with_float_fields
from tilec.backends.cuda.emit.numbers.unsigned import Unsigned
from tilec.backends.cuda.emit.statements import call
from tilec.backends.cuda.emit.threads.groups import free_barriers
from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.backends.cuda.nodes import EachTile
from tilec.backends.cuda.passes.threads.grid_barriers import has_grid_meet
from tilec.backends.cuda.passes.threads.open_barriers import cluster_shape
from tilec.backends.cuda.passes.waits.place_shared import pool_bytes
from tilec.backends.cuda.statement_roles.emit.box import maps_of
from tilec.backends.cuda.statement_roles.split.registers import blocks_at_entry, entry_registers
from tilec.backends.cuda.warp_roles.emit.parameters import map_code
from tilec.backends.cuda.warp_roles.ring import TILE_ALIGNMENT
from tilec.backends.cuda.warp_roles.strategy import Strategy
from tilec.ir.analysis.aliases import named
from tilec.ir.exprs import all_of, dtype_of
from tilec.ir.nodes import Kernel, Launch, walk
from tilec.ir.nvcc_flags import device_flags
from tilec.ir.options import FAST_MATH, FLAGS
from tilec.ir.roads import in_order
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.analysis.thread_grid import ThreadGrid
from tilec.lowering.analysis.uses import changed_in, overlapping, used_in
from tilec.lowering.emission.parameters import EntryParameters, grid_texts, marked, workspace_slices
from tilec.lowering.emission.statements import sequence
from tilec.lowering.emission.storage import convert
from tilec.lowering.lowered import LoweredKernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr, Var

    from tilec.targets import Target

_AXES = "xyz"
#: Groups of threads that walk over tiles where those who compute share each: they, and those who load.
_SHARED_WALKS = 2


def lower_kernel(kernel: Kernel, target: Target, marks: bool = False) -> LoweredKernel:
    """TIR of every launch of a kernel whose shared tiles are placed; ``marks`` as in `DeviceContext`."""
    register_intrinsics()
    launches = tuple(_lowered(kernel, launch, target, marks) for launch in kernel.launches)
    notes = device_flags(cast("tuple[str, ...]", kernel.option(FLAGS) or ())).notes()
    if notes and launches:
        launches = (replace(launches[0], notes=(*launches[0].notes, *notes)), *launches[1:])
    return LoweredKernel(kernel.name, launches, workspace_slices(kernel))


def _lowered(kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredCudaLaunch:
    if isinstance(launch.strategy, Strategy):
        return launch.strategy.lower(kernel, launch, target, marks)
    return _Entry(kernel, launch, target, marks).lower()


@dataclass(eq=False)
class _Entry:
    """Builds the function of one launch."""

    kernel: Kernel
    launch: Launch
    target: Target
    marks: bool = False

    def _lasting(self) -> frozenset[Var]:
        """The tensors that nothing writes while the launch runs: neither its own blocks nor a launch in front
        that has yet to end."""
        if has_grid_meet(self.launch.body) or is_asked(self.launch):
            return frozenset()
        read = {buffer for buffer in used_in(self.launch.body) if buffer.scope() == "global"}
        return frozenset(read - changed_in(self.launch) - overlapping(self.launch))

    def lower(self) -> LoweredCudaLaunch:
        """The function and how to launch it."""
        ctx = self._context()
        params, setup = EntryParameters(self.kernel).open(ctx)
        maps = maps_of(self.launch)
        ctx.maps = {found: tirx.Var(f"map_{number}", T.TensorMap().ty) for number, found in enumerate(maps)}
        func = with_float_fields(self._function([*params, *ctx.maps.values()], self._code(setup, ctx)))
        texts = grid_texts(self.kernel, self.launch)
        return LoweredCudaLaunch(
            func,
            (" * ".join(f"({text})" for text in texts),) if self._walks else texts,
            self.launch.threads,
            notes=self._notes(),
            roads=in_order(
                (*self.launch.roads, *ctx.roads, *thread_roads(self.launch), *conflicts(self.launch))
            ),
            shared_bytes=pool_bytes(self.launch),
            cluster=cluster_shape(self.launch),
            programmatic=self._starts_early,
            cooperative=has_grid_meet(self.launch.body),
            tensor_maps=tuple(map_code(found, self.kernel) for found in maps),
            entry_registers=entry_registers(self.launch),
            blocks_per_unit=int(self._walks),
        )

    def _context(self) -> DeviceEmitter:
        return DeviceEmitter(
            self.target,
            Facts(self.kernel, changed_in(self.launch)),
            warps=warps_of(self.launch),
            block_warps=warps_of(self.launch),
            free_barriers=free_barriers(self.launch),
            marks=self.marks,
            fast_math=self.kernel.option(FAST_MATH) is not None,
            overlapping=named(self.launch),
            lasting=self._lasting(),
        )

    def _code(self, setup: Sequence[tirx.Stmt], ctx: DeviceEmitter) -> tirx.Stmt:
        """What each thread does, behind ``setup``."""
        indices, binds = self._indices(ctx)
        pool = self._pool(pool_bytes(self.launch), ctx)
        ctx.facts.enter_block(self.launch.grid)
        with ctx.facts.remember(_has_blocks(self.launch)):
            body = ctx.block(self.launch.body)
        waits = (
            wait_for_predecessor()
            if self._starts_early
            else release_successor(self.kernel, self.launch, self.target)
        )
        inside = [*setup, *pool, *binds, *_near(ctx), *waits, *([body] if body is not None else [])]
        code = tirx.AttrStmt(tirx.const(0), "pragma_unroll_explicit", tirx.const(0), sequence(inside))
        for var, tag, extent in reversed(indices):
            axis = tirx.IterVar(tvm_ir.Range(tirx.const(0), extent), var, tirx.IterVar.ThreadIndex, tag)
            code = tirx.AttrStmt(axis, "thread_extent", extent, code)
        return code

    def _function(self, params: Sequence[Var], code: tirx.Stmt) -> tirx.PrimFunc:
        func = marked(tirx.PrimFunc([*params], code).with_attr("tirx.noalias", True), self.kernel)
        blocks = self.launch.schedule.min_blocks_per_sm or blocks_at_entry(self.launch) or None
        return func if blocks is None else func.with_attr("tirx.launch_bounds_min_blocks_per_sm", blocks)

    def _notes(self) -> tuple[str, ...]:
        schedule = self.launch.schedule
        notes = (*self.launch.notes, *self._without_turns(), *schedule.without_effect("threads"))
        if not is_asked(self.launch) or self._starts_early:
            return notes
        return (*notes, f"no programmatic dependent launch: {self.target.name} has none, sm_90 has")

    def _without_turns(self) -> tuple[str, ...]:
        """A note where turns are asked for and warpgroups take none."""
        walks = sum(isinstance(stmt, EachTile) for stmt in walk(self.launch.body))
        in_vain = self.launch.schedule.pingpong and walks <= _SHARED_WALKS
        return ("pingpong = True has no effect: warpgroups share each tile here",) if in_vain else ()

    @cached_property
    def _starts_early(self) -> bool:
        """Whether the launch begins before the one in front of it ends."""
        return starts_early(self.launch, self.target)

    @property
    def _walks(self) -> bool:
        """Whether a block takes several tiles."""
        return any(isinstance(stmt, EachTile) for stmt in walk(self.launch.body))

    def _order(self, blocks: list[Var]) -> tuple[list[tirx.Stmt], list[Expr]]:
        """The places of a block in the grid, and the statements that find them."""
        found = None if asked_group(self.launch) else by_length(self.launch, blocks, self.target)
        return found or banded(self.launch, blocks)

    def _indices(self, ctx: DeviceEmitter) -> tuple[list[tuple[Var, str, Expr]], list[tirx.Stmt]]:
        """Thread axes with their extents, and the statements that name block, thread, lane and warp."""
        count = 1 if self._walks else len(self.launch.grid)
        blocks = [tirx.Var(f"block_{axis}", "int32") for axis in _AXES[:count]]
        axes = [(block, f"blockIdx.{axis}", tirx.Var(f"grid_{axis}", "int32"))
                for block, axis in zip(blocks, _AXES, strict=False)]  # fmt: skip
        of_blocks = self._block_numbers(blocks, ctx)
        own, thread, of_threads = self._thread_numbers(ctx)
        return [*axes, *own], [*of_blocks, *of_threads, *self._in_the_block(thread, ctx)]

    def _block_numbers(self, blocks: list[Var], ctx: DeviceEmitter) -> list[tirx.Stmt]:
        """Names for the block's places in the grid, but in launches that walk over it."""
        for var, extent in zip(self.launch.block_vars, self.launch.grid, strict=True):
            ctx.facts.bind_range(var, 0, extent)
        (ctx.tile_block, *_), ctx.block_vars = blocks, self.launch.block_vars
        order, places = ([], []) if self._walks else self._order(blocks)
        binds = list(order)
        for var, place in zip(self.launch.block_vars, places, strict=not self._walks):
            value = place if dtype_of(var) == "int32" else tirx.Cast(dtype_of(var), place)
            binds.append(tirx.Bind(ctx.define(var), value))
        return binds

    def _thread_numbers(
        self, ctx: DeviceEmitter
    ) -> tuple[list[tuple[Var, str, Expr]], Expr, list[tirx.Stmt]]:
        """Thread axes with their extents, a thread's number in its block, and names for the author's numbers
        of threads."""
        axes: list[tuple[Var, str, Expr]] = []
        binds: list[tirx.Stmt] = []
        thread: Expr = tirx.const(0, "int32")
        step = 1
        for position, extent in enumerate(self.launch.threads):
            index = tirx.Var(f"thread_{_AXES[position]}", "int32")
            axes.append((index, f"threadIdx.{_AXES[position]}", tirx.const(extent, "int32")))
            if self.launch.thread_vars:
                ctx.facts.bind_range(self.launch.thread_vars[position], 0, extent)
                value = index if extent > 1 else tirx.const(0, "int32")
                binds.append(tirx.Bind(ctx.define(self.launch.thread_vars[position]), value))
            if extent > 1:
                thread = thread + (index if step == 1 else index * tirx.const(step, "int32"))
            step *= extent
        return axes, thread, binds

    def _in_the_block(self, thread: Expr, ctx: DeviceEmitter) -> list[tirx.Stmt]:
        """Names for a thread's number in its block, in its warp and that of its warp; who does what once."""
        ctx.thread, ctx.lane, ctx.warp = (ctx.fresh(name, "int32") for name in ("thread", "lane", "warp"))
        ctx.block_thread, ctx.block_warp = ctx.thread, ctx.warp
        number = Unsigned(convert(ctx.thread, "uint32"))
        lane, warp = (convert(each.value, "int32") for each in (number % WARP, number // WARP))
        if not self.launch.thread_vars:
            ctx.once = tirx.EQ(ctx.thread, tirx.const(0, "int32"))
        else:
            ctx.number = ThreadGrid.of(self.launch).number
        return [
            tirx.Bind(ctx.thread, thread),
            tirx.Bind(ctx.lane, lane),
            tirx.Bind(ctx.warp, self._uniform(warp)),
        ]

    def _uniform(self, warp: Expr) -> Expr:
        """The number of a warp: where groups of warps multiply, a value that the assembler knows to be the
        same in all lanes, so that what it puts around products stands in no divergent path."""
        apart = has_groups(self.launch) and tiles_of_units(self.launch.body)
        return UNIFORM.call(warp) if apart else warp

    def _pool(self, size: int, ctx: DeviceEmitter) -> list[tirx.Stmt]:
        if size == 0:
            return []
        if not tiles_of_units(self.launch.body):
            ctx.pool = tirx.decl_buffer((size,), "uint8", name="pool", scope="shared.dyn")
            return [tirx.AllocBuffer(ctx.pool)]
        ctx.pool = tirx.decl_buffer(
            (size,), "uint8", name="pool", scope="shared.dyn", data_alignment=TILE_ALIGNMENT
        )
        address = T.cuda.cvta_generic_to_shared(ctx.pool.ptr_to([0]))
        ctx.pool_address = tirx.Var("shared", address.ty)
        return [tirx.AllocBuffer(ctx.pool), tirx.Bind(ctx.pool_address, address)]


def _near(ctx: DeviceEmitter) -> list[tirx.Stmt]:
    """One thread brings tensor maps near, before a box asks for them."""
    if not ctx.maps:
        return []
    brought = [call(instruction("prefetch.tensormap")(T.address_of(each))) for each in ctx.maps.values()]
    return [tirx.IfThenElse(tirx.EQ(ctx.thread, tirx.const(0, "int32")), sequence(brought), None)]


def _has_blocks(launch: Launch) -> Expr:
    """What a block knows of its grid: there is one."""
    extents = [extent for extent in launch.grid if not isinstance(extent, int)]
    positive = [tirx.GT(extent, tirx.const(0, dtype_of(extent))) for extent in extents]
    return all_of(positive or [tirx.const(True, "bool")])
