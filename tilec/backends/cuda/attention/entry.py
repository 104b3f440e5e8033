"""The kernel of a streamed launch: parameters, barriers, roles, the walk over tiles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.script.ir_builder import IRBuilder
from tvm.tirx.script import builder as T

import tilec.backends.cuda.attention.emit_masks
import tilec.backends.cuda.attention.emit_products
import tilec.backends.cuda.attention.emit_rings
import tilec.backends.cuda.attention.emit_store  # noqa: F401  (registers the code of statements)
from tilec.backends.cuda.attention.context import AttentionContext
from tilec.backends.cuda.attention.emit_products import first_turn
from tilec.backends.cuda.attention.layouts import word_fragments
from tilec.backends.cuda.attention.nodes import AttentionRoles, BoxStore
from tilec.backends.cuda.attention.walk import SLOT_BYTES, SLOTS, consume, produce
from tilec.backends.cuda.device.exchange import UNIFORM_LINE
from tilec.backends.cuda.emit.early_start import starts_early, wait_for_predecessor
from tilec.backends.cuda.emit.memory import Fragment
from tilec.backends.cuda.emit.statements import emit_marked
from tilec.backends.cuda.warp_roles.build import add, i32, let, ptx, registers, run, u32, when
from tilec.backends.cuda.warp_roles.context import SharedPlan
from tilec.backends.cuda.warp_roles.nodes import TensorMap, TmaLoad
from tilec.backends.cuda.warp_roles.parameters import map_code
from tilec.backends.cuda.warp_roles.position import Position
from tilec.backends.cuda.warp_roles.ring import TILE_ALIGNMENT
from tilec.backends.cuda.warp_roles.roads import roads_of
from tilec.backends.cuda.warp_roles.staging import finish_stores
from tilec.backends.cuda.warp_roles.strategy import roles_of
from tilec.ir.nodes import Alloc, Block, Kernel, Launch, Stmt, walk
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.emission.parameters import EntryParameters, grid_texts, spelled
from tilec.lowering.exprs import int_value
from tilec.lowering.lowered import LoweredLaunch
from tilec.lowering.passes.expand_copies import cast_to

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

_WARPS, _GROUP_THREADS = 4, 128
#: With more warpgroups than these registers are so scarce that addresses have to live in uniform ones. Else
#: they are left out: products that follow each other more slowly let those of the other warpgroup end first
#: (attention of 16384 keys on an H200: 697 TFLOP/s, 684 with uniform addresses).
_ROOMY = 2


def lower_attention(kernel: Kernel, launch: Launch, target: Target, marks: bool) -> LoweredLaunch:
    """Device TIR of a launch whose rows stay in registers; ``marks`` as in `DeviceContext`."""
    return _Entry(kernel, launch, roles_of(launch, AttentionRoles), target, marks).lower()


def _maps(found: AttentionRoles) -> list[TensorMap]:
    """One map for each tensor and box, in the order of use."""
    made: list[TensorMap] = []
    for stmt in (*walk(found.producer), *walk(found.consumer)):
        if isinstance(stmt, (TmaLoad, BoxStore)) and not any(_same(stmt.map, other) for other in made):
            made.append(stmt.map)
    return made


def _same(one: TensorMap, other: TensorMap) -> bool:
    return one.buffer.same_as(other.buffer) and (one.box, one.swizzle) == (other.box, other.swizzle)


def _notes(found: AttentionRoles) -> tuple[str, ...]:
    stages = ", ".join(f"{ring.source.name} {ring.stages}" for ring in found.rings)
    turns = ", products issued in turns" if found.turns else ""
    turns += ", one at a time for want of registers" if found.alone else ""
    how = "tiles in order of the grid" if found.order.longest is None else "tiles handed out longest first"
    stores = (
        "TMA stores"
        if any(isinstance(stmt, BoxStore) for stmt in found.consumer)
        else "stores from registers"
    )
    return (
        f"one producer and {found.roles.consumers} consumer warpgroups, rows in registers, wgmma, TMA rings"
        f" of {stages} stages, {stores}{turns}, persistent grid, {how}",
    )


def _warps(found: AttentionRoles) -> str:
    return f"warp roles: a loading warpgroup, multiplying ones {found.roles.consumers}, rows in registers"


def _plan(launch: Launch, found: AttentionRoles) -> SharedPlan:
    """Tiles, full and empty barriers of each ring by its tile, those of the ring of tile coordinates, and
    these."""
    rings: dict[object, int] = {ring.tile: 16 * ring.stages for ring in found.rings}
    sizes = {**rings, "orders": 16 * SLOTS, "coordinates": SLOTS * SLOT_BYTES}
    return SharedPlan.of((stmt.buffer for stmt in launch.body if isinstance(stmt, Alloc)), sizes)


class _Entry:
    """Builds the function of one launch."""

    def __init__(
        self, kernel: Kernel, launch: Launch, found: AttentionRoles, target: Target, marks: bool
    ) -> None:
        self._kernel, self._launch, self._found, self._target = kernel, launch, found, target
        self._marks = marks
        self._maps, self._plan = _maps(found), _plan(launch, found)

    def lower(self) -> LoweredLaunch:
        """The function and how to launch it."""
        ctx = self._context()
        func = self._function(ctx)
        grid = " * ".join(f"({text})" for text in grid_texts(self._kernel, self._launch))
        return LoweredLaunch(
            func,
            (grid,),
            self._launch.threads,
            notes=(
                *self._launch.notes,
                *_notes(self._found),
                *self._launch.schedule.without_effect("attention"),
            ),
            roads=roads_of(self._launch, (self._found,), _warps(self._found), ctx.roads),
            shared_bytes=self._plan.total,
            blocks_per_sm=1,
            programmatic=self._found.order.counter is not None or starts_early(self._launch, self._target),
            entry_registers=self._found.roles.entry_registers,
            tensor_maps=tuple(map_code(found, self._kernel) for found in self._maps),
        )

    def _context(self) -> AttentionContext:
        return AttentionContext(
            self._target,
            Facts(self._kernel, changed_in(self._launch)),
            warps=_WARPS * self._found.roles.consumers,
            marks=self._marks,
            roles=self._found.roles,
            plan=self._plan,
        )

    def _function(self, ctx: AttentionContext) -> tirx.PrimFunc:
        parameters = EntryParameters(self._kernel)
        params, setup = parameters.declare(ctx)
        with IRBuilder() as builder, T.prim_func(is_private=False, s_tir=False):
            T.func_name("kernel")
            T.func_attr({"tirx.noalias": True, "tirx.launch_bounds_min_blocks_per_sm": 1})
            for param in params:
                T.arg(param.name, param)
            arguments = [T.arg(f"map_{number}", T.TensorMap()) for number in range(len(self._maps))]
            for stmt in (*walk(self._found.producer), *walk(self._found.consumer)):
                if isinstance(stmt, (TmaLoad, BoxStore)):
                    place = next(i for i, known in enumerate(self._maps) if _same(known, stmt.map))
                    ctx.maps[stmt.map] = arguments[place]
            for part in setup:
                add(part)
            for bind in parameters.bindings():
                self._add((bind,), ctx)
            self._body(ctx, arguments)
        return builder.get()

    def _add(self, block: Block, ctx: AttentionContext) -> None:
        """The code of statements; what they define stays defined."""
        for stmt in block:
            with ctx.at(stmt):
                add(emit_marked(stmt, ctx))

    def _body(self, ctx: AttentionContext, arguments: list[Expr]) -> None:
        for var, extent in zip(self._launch.block_vars, self._launch.grid, strict=True):
            ctx.facts.bind_range(var, 0, extent)
        with (
            T.launch_thread("blockIdx.x", tirx.Var("blocks", "int32")) as block,
            T.launch_thread("threadIdx.x", self._found.roles.threads) as thread,
            T.attr(tirx.const(0, "int32"), "pragma_unroll_explicit", tirx.const(0, "int32")),
        ):
            self._roles(ctx, block, thread, arguments)

    def _extent(self, ctx: AttentionContext, extent: Expr | int) -> Expr:
        value = spelled(extent, self._kernel)
        return i32(value) if isinstance(value, int) else cast_to(ctx.value(value), "int32")

    def _roles(self, ctx: AttentionContext, block: Var, thread: Var, arguments: list[Expr]) -> None:
        consumers = self._found.roles.consumers
        memory = T.alloc_buffer((self._plan.total,), "uint8", scope="shared.dyn", align=TILE_ALIGNMENT)
        ctx.base = let("shared", T.cuda.cvta_generic_to_shared(memory.ptr_to([0])))
        ctx.thread = let("thread", thread)
        group = T.truncdiv(thread, i32(128))
        ctx.warpgroup = let("group", UNIFORM_LINE.call(group) if consumers > _ROOMY else group)
        ctx.own = let("own", T.truncmod(thread, i32(128)))
        ctx.lane = let("lane", T.truncmod(thread, i32(32)))
        ctx.warp = let("warp", T.truncdiv(thread, i32(32)))
        leader = tirx.EQ(thread, i32(consumers * 128))
        self._open_barriers(ctx, leader, arguments)
        if starts_early(self._launch, self._target):
            for part in wait_for_predecessor():
                add(part)
        with T.If(tirx.EQ(ctx.warpgroup, i32(consumers))):
            with T.Then():
                self._set_registers("dec", 0)
                with when(leader):
                    self._produce(ctx, block)
            with T.Else():
                self._set_registers("inc", 1)
                self._consume(ctx)

    def _set_registers(self, change: str, which: int) -> None:
        if self._found.roles.registers is not None:
            ptx(f"setmaxnreg.{change}.sync.aligned.u32", self._found.roles.registers[which])

    def _open_barriers(self, ctx: AttentionContext, leader: Expr, arguments: list[Expr]) -> None:
        consumers = self._found.roles.consumers
        with when(leader):
            for ring in self._found.rings:
                _open(ring.tile, ring.stages, consumers, ctx)
            _open("orders", SLOTS, _GROUP_THREADS * consumers, ctx)
            ptx("fence.mbarrier_init.release.cluster")
            ptx("fence.proxy.async")
            for each in arguments:
                ptx("prefetch.tensormap", T.address_of(each))
        run(T.cuda.cta_sync())

    def _open_rings(self, ctx: AttentionContext) -> None:
        """This role starts at the first stage of every ring."""
        ctx.positions = {ring.tile: Position(ring.stages, ahead=True) for ring in self._found.rings}
        ctx.env.update({ring.stage: ctx.stage(ring) for ring in self._found.rings})

    def _produce(self, ctx: AttentionContext, block: Var) -> None:
        self._open_rings(ctx)
        extents = [
            let(f"tiles_{axis}", self._extent(ctx, extent)) for axis, extent in enumerate(self._launch.grid)
        ]

        def body() -> None:
            with ctx.scope():
                self._add(self._found.producer, ctx)

        produce(self._kernel, self._launch, self._found.order, extents, block, ctx, body)

    def _consume(self, ctx: AttentionContext) -> None:
        self._open_rings(ctx)
        rest = self._allocated(ctx)
        if self._found.turns:
            first_turn(ctx)

        def body() -> None:
            with ctx.scope():
                self._add(rest, ctx)

        consume(self._launch, ctx, body)
        if any(isinstance(stmt, BoxStore) for stmt in rest):
            finish_stores(ctx)

    def _allocated(self, ctx: AttentionContext) -> tuple[Stmt, ...]:
        """Registers for all fragments of a tile; the statements that are left."""
        words = word_fragments(self._found.consumer)
        rest: list[Stmt] = []
        for stmt in self._found.consumer:
            if not isinstance(stmt, Alloc):
                rest.append(stmt)
            elif stmt.buffer in words:
                ctx.held[stmt.buffer] = registers(self._word_count(stmt.buffer), "uint32")
                assert stmt.layout is not None
                words_of = ctx.held[stmt.buffer]
                ctx.fragments[stmt.buffer] = Fragment(words_of, str(stmt.buffer.dtype), stmt.layout)
            else:
                self._add((stmt,), ctx)
        return tuple(rest)

    def _word_count(self, buffer: Var) -> int:
        rows, columns = (int_value(extent) or 1 for extent in buffer.shape)
        return rows * columns // (256 * self._found.roles.consumers)


def _open(name: object, stages: int, readers: int, ctx: AttentionContext) -> None:
    for stage in range(stages):
        for offset, count in ((8 * stage, 1), (8 * (stages + stage), readers)):
            ptx("mbarrier.init.shared.b64", ctx.named_place(name, offset), u32(count))
