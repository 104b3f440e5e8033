"""The kernel of a product of packed weights: the loading warp and the consumers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.emit.grid.early_start import is_asked, starts_early
from tilec.backends.cuda.emit.grid.raster import asked_group, banded
from tilec.backends.cuda.launch import LoweredCudaLaunch
from tilec.backends.cuda.packed_weights.assign import OTHER_REGISTERS
from tilec.backends.cuda.packed_weights.emit import Part, emit_loads, emit_products
from tilec.backends.cuda.packed_weights.nodes import PackedProduct
from tilec.backends.cuda.packed_weights.parts import emit_sum, meet_blocks
from tilec.backends.cuda.packed_weights.warp_products import warp_registers
from tilec.backends.cuda.warp_roles.emit.barriers import meet_cluster
from tilec.backends.cuda.warp_roles.emit.build import add, i32, let, ptx, registers, run, when
from tilec.backends.cuda.warp_roles.emit.context import SharedPlan, TileContext
from tilec.backends.cuda.warp_roles.emit.entry import Entry, fence_barriers, prefetch
from tilec.backends.cuda.warp_roles.emit.load_ahead import Lane
from tilec.backends.cuda.warp_roles.emit.parameters import declare, grid_extent
from tilec.backends.cuda.warp_roles.emit.staging import finish_stores
from tilec.backends.cuda.warp_roles.emit.store import emit_store
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP, Ring, Roles, TensorMap
from tilec.backends.cuda.warp_roles.ring import tile_bytes
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.parameters import grid_texts, spelled
from tilec.targets import REGISTER_FILE, SYSTEM_SHARED_BYTES

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


_AXES = "xyz"


class PackedEntry(Entry[PackedProduct, TileContext]):
    """The kernel of a product of packed weights."""

    kind, schedule = PackedProduct, "packed_weights"

    def lower(self) -> LoweredCudaLaunch:
        """The function and how to launch it."""
        product, texts = self.roles, list(grid_texts(self.kernel, self.launch))
        if product.pairs > 1:
            texts[0] = f"(({texts[0]}) + {product.pairs - 1}) // {product.pairs} * {product.pairs}"
        if product.split > 1:
            texts[0] = f"({texts[0]}) * {product.split}"
        return self.lowered(
            texts,
            f"a loading warp, {self.roles.teams.consumers} warpgroups",
            [self._note()],
            self.launch.schedule.min_blocks_per_sm or self._blocks_together(),
            programmatic=starts_early(self.launch, self.target),
            cluster=(product.cluster, 1, 1),
        )

    def _note(self) -> str:
        product, group = self.roles, asked_group(self.launch)
        teams, packing = product.teams, product.packing
        shared = "" if teams.depth == 1 else f", {teams.depth} of them along K"
        pairs = "" if product.pairs == 1 else ", activations multicast to pairs of blocks"
        split = "" if product.split == 1 else f", K split over clusters of {product.split}"
        bands = "" if group is None else f", bands of {group[0]}"
        how = (
            "wgmma's" if product.slices == 0 else f"mma.sync's ({product.slices} warps to a stage's columns)"
        )
        return (
            f"{teams.consumers} consumer warpgroups{shared}, weights of {packing.width} bits converted in"
            f" registers as {how} first operand, TMA ring of {product.stages} stages{pairs}{split}{bands}"
        )

    def _blocks_together(self) -> int:
        """Blocks that share a multiprocessor: as many as its memory and registers hold."""
        product, total = self.roles, self.ctx.plan.total
        assert self.target.gpu is not None
        by_memory = (self.target.gpu.shared_bytes + SYSTEM_SHARED_BYTES) // (total + SYSTEM_SHARED_BYTES)
        wide = product.tile.rows * product.tile.columns // 2 + OTHER_REGISTERS
        held = warp_registers(product) if product.slices else wide
        by_registers = REGISTER_FILE // (held * product.teams.threads)
        return max(1, min(by_memory, by_registers))

    def tensor_maps(self) -> list[TensorMap]:
        """Loads, then stores."""
        stores = [store.map for store in self.roles.store if store.map is not None]
        return [each for load in self.roles.loads for each in load.maps] + stores

    def context(self, marks: bool) -> TileContext:
        """Shared memory holds tiles, staging, barriers."""
        product = self.roles
        staging = max((store.staging_bytes for store in product.store), default=0)
        sizes = {"staging": staging * product.teams.rows, "barriers": 16 * product.stages}
        plan = SharedPlan.of((load.dst.buffer for load in product.loads), sizes)
        return TileContext(
            self.target,
            ScopedRewrite(self.kernel, self.launch).facts,
            marks=marks,
            roles=Roles(product.teams.consumers, None),
            plan=plan,
            ring=Ring(product.stages, sum(tile_bytes(tile) for tile in plan.tiles) // product.stages),
            staging_bytes=staging,
        )

    # ---- the function ----

    def grid(self) -> None:
        """A block for each tile, in clusters."""
        declare(self.kernel, self.maps, self.ctx)
        self._extents = [grid_extent(self.ctx, spelled(extent, self.kernel)) for extent in self.launch.grid]
        self._threads([])

    def _threads(self, blocks: list[Var]) -> None:
        """Opens one axis of the grid after the other, then the block."""
        axis = len(blocks)
        if axis < len(self._extents):
            whole = self.roles.pairs if axis == 0 else 1
            size = T.truncdiv(self._extents[axis] + (whole - 1), i32(whole)) * whole
            split = self.roles.split if axis == 0 else 1
            with T.launch_thread(f"blockIdx.{_AXES[axis]}", let(f"blocks_{axis}", size * split)) as block:
                tile = block if split == 1 else let("tile", T.truncdiv(block, i32(split)))
                if split > 1:
                    self.ctx.rank = let("rank", T.truncmod(block, i32(split)))
                self._threads([*blocks, tile])
            return
        with T.launch_thread("threadIdx.x", self.roles.teams.threads) as thread:
            order, places = banded(self.launch, blocks, self.roles.split)
            for part in order:
                add(part)
            self.ctx.env.update(zip(self.launch.block_vars, places, strict=True))
            self.block(thread, self.roles.teams.consumers)

    def open_barriers(self) -> None:
        """Those of the ring."""
        product = self.roles
        readers = 4 * product.teams.rows * product.pairs
        self.ctx.barriers("barriers", product.stages).open(1, readers)
        prefetch(self.ctx.maps.values())
        fence_barriers()
        if is_asked(self.launch):
            _wait_for_memory()

    def begin(self) -> None:
        """Blocks of a pair meet, and the trips of all loops are counted."""
        ctx, product = self.ctx, self.roles
        if product.pairs > 1:
            ctx.rank = let("rank", T.truncmod(ctx.env[self.launch.block_vars[0]], i32(product.pairs)))
        meet_cluster() if product.pairs > 1 else run(T.cuda.cta_sync())
        if is_asked(self.launch):
            ptx("griddepcontrol.launch_dependents")
        trips = let("trips", T.max(ctx.value(product.stop) - ctx.value(product.start), i32(0)))
        self._part: Part = (i32(0), trips)
        if product.split > 1:
            first, end = (T.truncdiv((ctx.rank + after) * trips, i32(product.split)) for after in (0, 1))
            first = let("first_trip", first)
            self._part = (first, let("own_trips", end - first))

    def loads(self, thread: Var) -> Expr:
        """The last warp."""
        return thread >= i32(self.roles.teams.consumers * WARPGROUP)

    def end(self) -> None:
        """A block may be written to until its partner is done."""
        if self.roles.pairs > 1:
            run(T.cuda.cluster_sync())

    # ---- roles ----

    def produce(self, thread: Var, leader: Expr) -> None:
        """One thread loads."""
        with when(leader):
            emit_loads(self.roles, self._part, is_asked(self.launch), self.ctx)
        if self.roles.split > 1:
            meet_blocks()

    def consume(self, thread: Var) -> None:
        """Teams convert and multiply; the first one stores, where the block has a tile."""
        ctx, product = self.ctx, self.roles
        warpgroup = let("warpgroup", T.truncdiv(thread, i32(WARPGROUP)))
        ctx.own = let("thread", T.truncmod(thread, i32(WARPGROUP)))
        ctx.warpgroup = let("group", T.truncmod(warpgroup, i32(product.teams.rows)))
        team = let("team", T.truncdiv(warpgroup, i32(product.teams.rows)))
        lane = Lane(ctx)
        ctx.held[product.c.buffer] = registers(product.tile.rows * product.tile.columns // 2, "float32")
        emit_products(product, self._part[1], team, ctx, lane)
        stores = tirx.EQ(team, i32(0))
        if product.split > 1:
            emit_sum(product, ctx, team)
            stores = tirx.And(stores, tirx.EQ(ctx.rank, i32(0)))
        if product.pairs > 1:
            stores = tirx.And(stores, ctx.env[self.launch.block_vars[0]] < self._extents[0])
        with when(stores):
            for stmt in product.store:
                emit_store(stmt, ctx, lane)
            finish_stores(ctx)


def _wait_for_memory() -> None:
    """Holds the loads of a launch that starts early back for some 1,000 clocks: they would take bandwidth
    from the last trips of the launch in front (8 rows by 14336 x 4096 on an H200: 9.9 us, 10.2 without)."""
    ptx("fence.proxy.async")
