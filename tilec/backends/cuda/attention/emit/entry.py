"""The kernel of attention: its rings, its barriers, what its roles do for every tile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

import tilec.backends.cuda.attention.emit.masks
import tilec.backends.cuda.attention.emit.products
import tilec.backends.cuda.attention.emit.rings
import tilec.backends.cuda.attention.emit.store
import tilec.backends.cuda.attention.emit.turns
import tilec.backends.cuda.attention.emit.votes
import tilec.backends.cuda.attention.emit.words  # noqa: F401  (registers the code of statements)
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.attention.assign.layouts import word_fragments
from tilec.backends.cuda.attention.emit.context import AttentionContext
from tilec.backends.cuda.attention.emit.products import first_turn
from tilec.backends.cuda.attention.emit.share_loads import shared_loads
from tilec.backends.cuda.attention.emit.turns import TURNERS
from tilec.backends.cuda.attention.emit.walk import SLOT_BYTES, SLOTS, consume, produce, wait_if_few
from tilec.backends.cuda.attention.nodes import AsyncProduct, AttentionRoles, BoxStore, RingTurn
from tilec.backends.cuda.attention.passes.rewriting import touched
from tilec.backends.cuda.device.exchange import UNIFORM_LINE
from tilec.backends.cuda.emit.grid.early_start import starts_early, wait_for_predecessor
from tilec.backends.cuda.emit.held import Fragment
from tilec.backends.cuda.emit.statements import emit_marked
from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.backends.cuda.warp_roles.emit.build import add, i32, let, registers, run, when
from tilec.backends.cuda.warp_roles.emit.context import SharedPlan
from tilec.backends.cuda.warp_roles.emit.entry import Entry, fence_barriers, prefetch, take_registers
from tilec.backends.cuda.warp_roles.emit.position import Position
from tilec.backends.cuda.warp_roles.emit.staging import finish_stores
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP, TensorMap, TmaLoad, same_map
from tilec.ir.exprs import cast_to, int_value
from tilec.ir.nodes import Alloc, Block, Stmt, walk
from tilec.ir.options import FAST_MATH
from tilec.lowering.analysis.facts import Facts
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.emission.parameters import EntryParameters, grid_texts, spelled
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


_WARPS = 4
#: With more warpgroups than these registers are so scarce that addresses have to live in uniform ones. Else
#: they are left out: products that follow each other more slowly let those of the other warpgroup end first
#: (attention of 16384 keys on an H200: 697 TFLOP/s, 684 with uniform addresses).
_ROOMY = 2


class AttentionEntry(Entry[AttentionRoles, AttentionContext]):
    """The kernel of attention."""

    kind, schedule = AttentionRoles, "attention"

    def lower(self) -> LoweredCudaLaunch:
        """The function and how to launch it."""
        consumers = self.roles.roles.consumers
        early = self.roles.order.counter is not None or starts_early(self.launch, self.target)
        return self.lowered(
            (" * ".join(f"({text})" for text in grid_texts(self.kernel, self.launch)),),
            f"a loading warpgroup, multiplying ones {consumers}, rows in registers",
            [self._note()],
            self.roles.together,
            blocks_per_unit=self.roles.together,
            programmatic=early,
            entry_registers=self.roles.roles.entry_registers,
        )

    def _note(self) -> str:
        found = self.roles
        stages = ", ".join(f"{ring.source.name} {ring.stages}" for ring in found.rings)
        turns = ", products issued in turns" if found.turns else ""
        turns += ", one at a time for want of registers" if found.alone else ""
        handed = "" if found.order.counter is None else " handed out"
        how = "in order of the grid" if found.order.longest is None else "longest first"
        how += "" if found.order.shared is None else ", those that share a tile side by side"
        boxes = any(isinstance(stmt, BoxStore) for stmt in found.consumer)
        return (
            f"one producer and {found.roles.consumers} consumer warpgroups, rows in registers, wgmma, TMA"
            f" rings of {stages} stages, {'TMA stores' if boxes else 'stores from registers'}{turns},"
            f" persistent grid, tiles{handed} {how}"
        )

    def tensor_maps(self) -> list[TensorMap]:
        """One map for each tensor and box, in the order of use."""
        made: list[TensorMap] = []
        for found in self._used_maps():
            if not any(same_map(found, other) for other in made):
                made.append(found)
        return made

    def _used_maps(self) -> Iterator[TensorMap]:
        stmts = (*walk(self.roles.producer), *walk(self.roles.consumer))
        return (stmt.map for stmt in stmts if isinstance(stmt, (TmaLoad, BoxStore)))

    def context(self, marks: bool) -> AttentionContext:
        """Shared memory holds tiles, the barriers of each ring by its tile, those of the ring of tile
        coordinates, and these."""
        rings: dict[object, int] = {ring.tile: 16 * ring.stages for ring in self.roles.rings}
        sizes = {**rings, "orders": 16 * SLOTS, "coordinates": SLOTS * SLOT_BYTES}
        tiles = (stmt.buffer for stmt in self.launch.body if isinstance(stmt, Alloc))
        return AttentionContext(
            self.target,
            Facts(self.kernel, changed_in(self.launch)),
            warps=_WARPS * self.roles.roles.consumers,
            marks=marks,
            fast_math=self.kernel.option(FAST_MATH) is not None,
            roles=self.roles.roles,
            plan=SharedPlan.of(tiles, sizes),
        )

    # ---- the function ----

    def grid(self) -> None:
        """One axis of persistent blocks."""
        ctx, parameters = self.ctx, EntryParameters(self.kernel)
        params, setup = parameters.declare(ctx)
        for param in params:
            T.arg(param.name, param)
        self._arguments = [T.arg(f"map_{number}", T.TensorMap()) for number in range(len(self.maps))]
        for used in self._used_maps():
            ctx.maps[used] = next(
                argument
                for known, argument in zip(self.maps, self._arguments, strict=True)
                if same_map(known, used)
            )
        for part in setup:
            add(part)
        for bind in parameters.bindings():
            self._add((bind,))
        for var, extent in zip(self.launch.block_vars, self.launch.grid, strict=True):
            ctx.facts.bind_range(var, 0, extent)
        with (
            T.launch_thread("blockIdx.x", tirx.Var("blocks", "int32")) as self._block,
            T.launch_thread("threadIdx.x", ctx.roles.threads) as thread,
            T.attr(tirx.const(0, "int32"), "pragma_unroll_explicit", tirx.const(0, "int32")),
        ):
            self.block(thread, ctx.roles.consumers)

    def name_threads(self, thread: Var) -> None:
        """Warpgroup, thread in it, lane and warp."""
        ctx = self.ctx
        ctx.thread = let("thread", thread)
        group = T.truncdiv(thread, i32(WARPGROUP))
        ctx.warpgroup = let("group", UNIFORM_LINE.call(group) if ctx.roles.consumers > _ROOMY else group)
        ctx.own = let("own", T.truncmod(thread, i32(WARPGROUP)))
        ctx.lane = let("lane", T.truncmod(thread, i32(32)))
        ctx.warp = let("warp", T.truncdiv(thread, i32(32)))

    def open_barriers(self) -> None:
        """Those of all rings."""
        consumers, turners = self.ctx.roles.consumers, TURNERS if self.roles.turner else 0
        turns = [stmt for stmt in walk(self.roles.turner) if isinstance(stmt, RingTurn)]
        sources, turned = {stmt.source.tile for stmt in turns}, {stmt.ring.tile for stmt in turns}
        for ring in self.roles.rings:
            writers = turners if ring.tile in turned else 1
            readers = turners if ring.tile in sources else consumers
            self.ctx.barriers(ring.tile, ring.stages).open(writers, readers)
        takers = WARPGROUP * consumers + turners + bool(self._shares()[1])
        self.ctx.barriers("orders", SLOTS).open(1, takers)
        fence_barriers()
        prefetch(self._arguments)

    def begin(self) -> None:
        """The launches in front are waited for."""
        run(T.cuda.cta_sync())
        if starts_early(self.launch, self.target):
            for part in wait_for_predecessor():
                add(part)
        if self.roles.order.few:
            wait_if_few(self.roles.order, self._extents())

    def loads(self, thread: Var) -> Expr:
        """The last warpgroup."""
        return tirx.EQ(self.ctx.warpgroup, i32(self.ctx.roles.consumers))

    # ---- roles ----

    def produce(self, thread: Var, leader: Expr) -> None:
        """One thread takes tiles and fills their rings, one of the next warp some of these where tiles come
        in parts; the warps beside turn tiles."""
        take_registers(self.ctx.roles, consumes=False)
        first, second = self._shares()
        with when(leader):
            self._open_rings()
            order, extents = self.roles.order, self._extents()
            produce(self.kernel, self.launch, order, extents, self._block, self.ctx, self._body(first))
        if second:
            with when(tirx.EQ(self.ctx.own, i32(WARP))):
                self._open_rings()
                consume(self.launch, self.ctx, self._body(second))
        if self.roles.turner:
            with when(self.ctx.own >= i32(WARPGROUP - TURNERS)):
                self._open_rings()
                consume(self.launch, self.ctx, self._body(self.roles.turner))

    def _shares(self) -> tuple[Block, Block]:
        """What the two loading threads bring."""
        return shared_loads(self.roles.producer)

    def consume(self, thread: Var) -> None:
        """Warpgroups compute their rows of every tile."""
        take_registers(self.ctx.roles, consumes=True)
        self._open_rings()
        self._name_tiles()
        rest = self._allocated()
        if self.roles.turns:
            first_turn(self.ctx)
        consume(self.launch, self.ctx, self._body(rest))
        if any(isinstance(stmt, BoxStore) for stmt in rest):
            finish_stores(self.ctx)

    def _add(self, block: Block) -> None:
        """The code of statements; what they define stays defined."""
        for stmt in block:
            with self.ctx.at(stmt):
                add(emit_marked(stmt, self.ctx))

    def _body(self, block: Block) -> Callable[[], None]:
        def body() -> None:
            with self.ctx.scope():
                self._add(block)

        return body

    def _extents(self) -> list[Var]:
        """Those of the grid, by names."""
        return [let(f"tiles_{axis}", self._extent(extent)) for axis, extent in enumerate(self.launch.grid)]

    def _extent(self, extent: Expr | int) -> Expr:
        value = spelled(extent, self.kernel)
        return i32(value) if isinstance(value, int) else cast_to(self.ctx.value(value), "int32")

    def _open_rings(self) -> None:
        """This role starts at the first stage of every ring."""
        ctx, rings = self.ctx, self.roles.rings
        ctx.positions = {ring.tile: Position(ring.stages, ahead=True) for ring in rings}
        ctx.env.update({ring.stage: ctx.stage(ring) for ring in rings})
        for ring in rings:
            ctx.facts.bind_range(ring.stage, 0, ring.stages)

    def _name_tiles(self) -> None:
        """The tiles that loops read element by element, as arrays."""
        loops = (stmt for stmt in walk(self.roles.consumer) if isinstance(stmt, ThreadLoop))
        used = {buffer for loop in loops for buffer in touched(loop)[0]}
        for stmt in self.launch.body:
            if isinstance(stmt, Alloc) and stmt.buffer in used:
                self._add((replace(stmt, place=("shared", self.ctx.plan.tiles[stmt.buffer])),))

    def _allocated(self) -> tuple[Stmt, ...]:
        """Registers for all fragments of a tile; the statements that are left."""
        words = word_fragments(self.roles.consumer)
        rest: list[Stmt] = []
        for stmt in self.roles.consumer:
            if not isinstance(stmt, Alloc):
                rest.append(stmt)
            elif stmt.buffer in words:
                self._hold_words(stmt)
            else:
                self._add((stmt,))
        return tuple(rest)

    def _hold_words(self, stmt: Alloc) -> None:
        assert stmt.layout is not None
        rows, columns = (int_value(extent) or 1 for extent in stmt.buffer.shape)
        count = rows * columns // (WARPGROUP * self.ctx.roles.consumers)
        size = element_bytes(str(stmt.buffer.dtype))
        words = registers(count * size // 4, "uint32")
        self.ctx.held[stmt.buffer] = words
        if size == 1:
            self.ctx.halves[stmt.buffer] = registers(count // 2, "uint16")
        products = (each for each in walk(self.roles.consumer) if isinstance(each, AsyncProduct))
        if any(product.turned and product.a.buffer.same_as(stmt.buffer) for product in products):
            self.ctx.in_order.add(stmt.buffer)
        self.ctx.fragments[stmt.buffer] = Fragment(words, str(stmt.buffer.dtype), stmt.layout)
