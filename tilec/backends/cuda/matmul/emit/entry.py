"""The kernel of a product: its ring, its barriers, what its roles do for every tile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING

from tvm.tirx.script import builder as T

from tilec.backends.cuda.emit.grid.early_start import WAIT, is_asked
from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.backends.cuda.matmul.emit.context import MatmulContext
from tilec.backends.cuda.matmul.emit.early import EarlyLoads, loads_early
from tilec.backends.cuda.matmul.emit.head import emit_head
from tilec.backends.cuda.matmul.emit.loaded_bytes import loaded_bytes
from tilec.backends.cuda.matmul.emit.notes import notes
from tilec.backends.cuda.matmul.emit.parts import Exchange, emit_sum, has_share, open_exchange
from tilec.backends.cuda.matmul.emit.ring import await_release, emit_drain, emit_fill
from tilec.backends.cuda.matmul.emit.turns import Turns
from tilec.backends.cuda.matmul.emit.walk_tiles import band_bits, each_tile
from tilec.backends.cuda.matmul.match.heads import is_scalar
from tilec.backends.cuda.matmul.nodes import (
    GatherLoad,
    MatmulRoles,
    MatrixView,
    Proceed,
    RingDrain,
    RingFill,
    SumParts,
)
from tilec.backends.cuda.matmul.passes.issue_wide import wide_product
from tilec.backends.cuda.warp_roles.emit.barriers import meet_cluster
from tilec.backends.cuda.warp_roles.emit.build import i32, let, ptx, registers, run, tile_count, u32, when
from tilec.backends.cuda.warp_roles.emit.context import SharedPlan
from tilec.backends.cuda.warp_roles.emit.entry import Entry, fence_barriers, prefetch, take_registers
from tilec.backends.cuda.warp_roles.emit.load_ahead import Lane
from tilec.backends.cuda.warp_roles.emit.parameters import declare, grid_extent
from tilec.backends.cuda.warp_roles.emit.position import Position
from tilec.backends.cuda.warp_roles.emit.residual import Residual, open_residuals, residual_bytes
from tilec.backends.cuda.warp_roles.emit.staging import finish_stores
from tilec.backends.cuda.warp_roles.emit.store import emit_store
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP, TensorMap, TileStore, TmaLoad
from tilec.backends.cuda.warp_roles.stores import parts_bytes
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Stmt, walk
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.parameters import grid_texts, spelled

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: The named barrier at which consumers learn that the ring is open; lower ones belong to warpgroups.
_OPEN = 6
#: What TVM's instructions want sums of integers to be held in.
_HELD = {"int32": "uint32"}


class MatmulEntry(Entry[MatmulRoles, MatmulContext]):
    """The kernel of a product."""

    kind, schedule = MatmulRoles, "products"

    def lower(self) -> LoweredCudaLaunch:
        """The function and how to launch it."""
        order, parts = self.roles.order, self.roles.roles
        texts = [f"({text})" for text in grid_texts(self.kernel, self.launch)]
        if order.pair is not None:
            texts[order.pair] = f"(({texts[order.pair]} + 1) // 2 * 2)"
        if order.split > 1:
            texts.append(str(order.split))
        return self.lowered(
            (" * ".join(texts),),
            f"loading warps {parts.loaders}, multiplying warpgroups {parts.consumers}",
            notes(self.launch, self.roles, self._begins_early),
            cluster=(order.cluster, 1, 1),
            blocks_per_unit=0 if self.launch.schedule.persistent is False else 1,
            entry_registers=parts.entry_registers,
            programmatic=self._begins_early,
            loaded=self._loaded,
        )

    # ---- what there is ----

    def tensor_maps(self) -> list[TensorMap]:
        """Loads, then stores and residuals."""
        self.views = {stmt.view: stmt.root for stmt in self.launch.body if isinstance(stmt, MatrixView)}
        loads = [
            each for stmt in walk(self.roles.producer) if isinstance(stmt, TmaLoad) for each in stmt.maps
        ]
        maps = (each for stmt in self._stores for each in (stmt.map, stmt.residual))
        return loads + [each for each in maps if each is not None]

    @property
    def _stores(self) -> list[TileStore]:
        return [stmt for stmt in self.roles.consumer if isinstance(stmt, TileStore)]

    @property
    def _sums(self) -> list[SumParts]:
        return [stmt for stmt in self.roles.consumer if isinstance(stmt, SumParts)]

    @property
    def _fill_of_ring(self) -> RingFill:
        return next(stmt for stmt in walk(self.roles.producer) if isinstance(stmt, RingFill))

    @property
    def _together(self) -> tuple[tuple[Var, ...], ...]:
        """Tiles of which each version lies behind that of the one before it."""
        drain = next(stmt for stmt in self.roles.consumer if isinstance(stmt, RingDrain))
        wide = (products for products in map(wide_product, drain.body) if len(products) > 1)
        return tuple(tuple(gemm.b.buffer for gemm in products) for products in wide)

    @property
    def _gathers(self) -> bool:
        return any(isinstance(stmt, GatherLoad) for stmt in walk(self.roles.producer))

    @property
    def _reads_residual(self) -> bool:
        return any(stmt.residual is not None for stmt in self._stores)

    @cached_property
    def _loaded(self) -> str:
        """What a block loads for a tile, by which a call finds out whether it begins early."""
        return "" if self.launch.schedule.pdl is False else loaded_bytes(self.roles, self.kernel)

    @property
    def _begins_early(self) -> bool:
        """Whether the launch may begin before the one in front has ended: asked to, or where a call knows
        whether that pays."""
        return is_asked(self.launch) or bool(self._loaded)

    @property
    def _starts_alone(self) -> bool:
        """Whether only the leader loads, and into its own block, so that it need not wait for anyone;
        consumers wait for it at the start of their role, and for other blocks."""
        return not self._gathers and self.roles.order.pair is None

    def context(self, marks: bool) -> MatmulContext:
        """Shared memory holds tiles, staging, parts of sums, the barriers of the ring, those of an exchange
        of parts, those of residuals."""
        parts, order = self.roles.roles, self.roles.order
        ring = self._fill_of_ring.ring
        sums = self._sums
        staging = max((stmt.staging_bytes for stmt in self._stores), default=0)
        sizes = {
            "staging": staging * parts.consumers,
            "parts": sum(parts_bytes(stmt.tile, stmt.parts) for stmt in sums) * parts.consumers,
            "barriers": 16 * ring.stages,
            "exchange": 16 * len(sums),
            "residual": residual_bytes(parts.consumers) if self._reads_residual else 0,
        }
        tiles = (stmt.buffer for stmt in self.launch.body if isinstance(stmt, Alloc))
        return MatmulContext(
            self.target,
            ScopedRewrite(self.kernel, self.launch).facts,
            marks=marks,
            roles=parts,
            plan=SharedPlan.of(tiles, sizes, self._together),
            ring=ring,
            staging_bytes=staging,
            order=order,
            begins_early=self._begins_early,
        )

    # ---- the function ----

    def grid(self) -> None:
        """One axis of persistent blocks."""
        ctx, parts = self.ctx, self.roles.roles
        declare(self.kernel, self.maps, ctx, self.views)
        self._extents = [
            let(f"tiles_{axis}", grid_extent(ctx, spelled(extent, self.kernel)))
            for axis, extent in enumerate(self.launch.grid)
        ]
        ctx.band_bits = band_bits(self._fill_of_ring, ctx)
        with (
            T.launch_thread("blockIdx.x", tile_count(self._extents) * ctx.order.cluster) as self._block,
            T.launch_thread("threadIdx.x", parts.threads) as thread,
        ):
            self.block(thread, parts.consumers)

    def name_threads(self, thread: Var) -> None:
        """Warpgroup, thread in it, rank in the cluster."""
        ctx = self.ctx
        ctx.warpgroup = let("group", T.truncdiv(thread, i32(WARPGROUP)))
        ctx.own = let("thread", T.truncmod(thread, i32(WARPGROUP)))
        if ctx.order.cluster > 1:
            ctx.rank = let("rank", T.truncmod(self._block, i32(ctx.order.cluster)))

    def open_barriers(self) -> None:
        """Those of the ring, of an exchange of parts, of residuals."""
        ctx = self.ctx
        loads = int(any(isinstance(stmt, TmaLoad) for stmt in walk(self.roles.producer)))
        prefetch(ctx.maps.values())
        ctx.barriers("barriers", ctx.ring.stages).open(
            loads + (ctx.roles.loaders if self._gathers else 0), ctx.roles.sharers * ctx.order.listeners
        )
        for stmt in self._sums:
            open_exchange(stmt, ctx)
        if self._reads_residual:
            open_residuals(ctx)
        fence_barriers()

    def begin(self) -> None:
        """Blocks that share loads meet; the launches in front are waited for."""
        order = self.ctx.order
        if order.split > 1:
            ptx("barrier.cluster.arrive.relaxed")
        if order.pair is not None:
            meet_cluster()
        elif not self._starts_alone:
            run(T.cuda.cta_sync())
        if self._begins_early:
            ptx(WAIT[0])
            if not loads_early(self.roles):
                ptx(WAIT[1])

    def loads(self, thread: Var) -> Expr:
        """The warps behind the consumers."""
        return self.ctx.warpgroup >= self.ctx.roles.consumers

    # ---- roles ----

    def produce(self, thread: Var, leader: Expr) -> None:
        """The ring is filled by one thread, or by all loaders where some loads are gathered."""
        ctx = self.ctx
        if self._starts_alone:
            ptx("bar.arrive", u32(_OPEN), ctx.roles.threads)
        take_registers(ctx.roles, consumes=False)
        if self._gathers:
            ctx.loader = let("loader", thread - ctx.roles.consumers * WARPGROUP)
        with nullcontext() if self._gathers else when(leader):
            self._fill()
        if ctx.order.split > 1:
            ptx("barrier.cluster.wait")

    def _fill(self) -> None:
        stages = self.ctx.ring.stages
        position = Position(stages)
        early = EarlyLoads(stages) if loads_early(self.roles) else None

        def rest(block: Sequence[Stmt]) -> None:
            for stmt in block:
                if isinstance(stmt, RingFill):
                    emit_fill(stmt, self.ctx, position, early)

        self._each_tile(lambda: _guarded(self.roles.producer, self.ctx, rest))
        if self.ctx.order.listeners > 1:
            await_release(self.ctx, position)

    def _each_tile(self, body: Callable[[], None], turn: Expr | None = None) -> None:
        each_tile(self.launch, self.roles.order, self._extents, self._block, self.ctx, body, turn)

    def consume(self, thread: Var) -> None:
        """The ring is emptied, and its sums are stored, tile by tile."""
        ctx = self.ctx
        self._begin_consumers()
        position, lane = Position(ctx.ring.stages), Lane(ctx)
        exchange = Exchange() if ctx.order.split > 1 else None
        turns = Turns(self.launch, self.roles, ctx, position) if ctx.roles.pingpong else None
        self._hold_fragments()
        for stmt in self._sums:
            ctx.present = has_share(stmt, ctx)
        residuals = {stmt: Residual(stmt, ctx) for stmt in self._stores if stmt.residual is not None}

        def own(block: Sequence[Stmt]) -> None:
            for residual in residuals.values():
                with self._present():
                    residual.begin()
            for stmt in block:
                if isinstance(stmt, RingDrain):
                    emit_drain(stmt, ctx, position, turns)
                elif isinstance(stmt, SumParts) and exchange is not None:
                    emit_sum(stmt, ctx, exchange)
                elif isinstance(stmt, TileStore):
                    with self._present():
                        emit_store(stmt, ctx, lane, residuals.get(stmt))

        def rest(block: Sequence[Stmt]) -> None:
            own(block) if turns is None else turns.take(lambda: own(block))

        def body() -> None:
            self._find_present()
            _guarded(self.roles.consumer, ctx, rest)

        self._each_tile(body, None if turns is None else turns.every)
        finish_stores(ctx)

    def _begin_consumers(self) -> None:
        """Consumers wait until their barriers and the launch in front of them are ready, and take the
        registers that the producer leaves."""
        ctx = self.ctx
        if self._starts_alone:
            ptx("bar.sync", u32(_OPEN), ctx.roles.threads)
        take_registers(ctx.roles, consumes=True)
        if ctx.order.split > 1:
            ptx("barrier.cluster.wait")
        if is_asked(self.launch) and loads_early(self.roles):
            ptx(WAIT[1])

    def _find_present(self) -> None:
        """Whether the tile at hand lies in the grid: of a pair of tiles the second one may not."""
        ctx, axis = self.ctx, self.ctx.order.pair
        if axis is not None:
            other = 1 - axis if ctx.order.crosses else axis
            ctx.present = ctx.env[self.launch.block_vars[other]] < self._extents[other]

    def _present(self) -> AbstractContextManager[None]:
        return nullcontext() if self.ctx.present is None else when(self.ctx.present)

    def _hold_fragments(self) -> None:
        """Registers of fragments."""
        ctx = self.ctx
        for stmt in self.roles.consumer:
            if isinstance(stmt, Alloc) and not is_scalar(stmt):
                rows, columns = (int_value(extent) or 1 for extent in stmt.buffer.shape)
                dtype = str(stmt.buffer.dtype)
                count = rows * columns // (WARPGROUP * ctx.roles.sharers)
                ctx.held[stmt.buffer] = registers(count, _HELD.get(dtype, dtype))


def _guarded(block: Sequence[Stmt], ctx: MatmulContext, rest: Callable[[Sequence[Stmt]], None]) -> None:
    """The scalar code of a role, and the rest of it where that says to proceed."""
    for stmt in filter(is_scalar, block):
        emit_head(stmt, ctx)
    condition = next((ctx.value(stmt.cond) for stmt in block if isinstance(stmt, Proceed)), None)
    with when(condition) if condition is not None else nullcontext():
        rest([stmt for stmt in block if not is_scalar(stmt)])
