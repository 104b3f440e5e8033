"""Gemm becomes warp-level products on tensor cores, or plain loops where they do not fit."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.threads import rewrite_teams, warps_of
from tilec.backends.cuda.analysis.layouts.tiles import is_slice, whole_tile
from tilec.backends.cuda.analysis.products.chained_products import chained_sums
from tilec.backends.cuda.analysis.products.fit_operands import fit
from tilec.backends.cuda.analysis.products.mma import (
    MMA,
    WHOLE_ROWS,
    Matrices,
    extents,
    is_register_operand,
    sparse_tile,
)
from tilec.backends.cuda.analysis.products.turn_operands import is_read_across
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.nodes import (
    SparseWarpGemm,
    SparseWarpgroupProduct,
    WarpGemm,
    WarpgroupProduct,
    WarpTile,
)
from tilec.errors import UnsupportedError
from tilec.ir.exprs import cast_to, int_value
from tilec.ir.nodes import (
    PRODUCTS,
    Alloc,
    Block,
    Copy,
    Fill,
    Gemm,
    If,
    Kernel,
    Launch,
    Parallel,
    Region,
    ScaledGemm,
    SparseGemm,
    Stmt,
    Store,
    Unscaled,
)
from tilec.ir.nodes.threads import LaneMma
from tilec.ir.options import AGAINST_WGMMA, NO_ROLES
from tilec.ir.places import place_of
from tilec.ir.roads import Loss, Road
from tilec.ir.serial import serial_loop
from tilec.lowering.analysis.added_sums import where_added
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.passes.expand_sparse import DENSE, expand_sparse

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Accumulators of plain products: what partial sums are held in, by the type of the result.
_SUMS = {"float16": "float32", "bfloat16": "float32"}
#: What puts a product on the tensor cores of a warpgroup.
_FIT_GROUPS = (
    "give T.gemm tiles of 64 rows for each 128 threads, or as many columns, and operands in rows of a"
    " multiple of 32 bytes, 32-bit ones with K last"
)
_FIT_SPARSE = (
    "give T.gemm_sp tiles of 64 rows for each 128 threads, or as many columns, and a K of a multiple of 64"
    " bytes of B"
)
#: What puts a product on tensor cores.
_FIT = (
    "multiply 16-bit floats, float32 (as TF32) or 8-bit types with sums in float32 or int32, by tiles of"
    " constant extents"
)


@dataclass(frozen=True)
class SelectInstructions(Pass):
    """In: products. Out: WarpgroupProduct where wgmma has the types and the tile, WarpGemm where mma.sync has
    them, with operands in a type and a place that it takes (a copy through shared memory where they are not),
    SparseWarpgroupProduct or SparseWarpGemm of a SparseGemm where wgmma.sp or mma.sp has them (a dense tile
    and its product where neither does), ScaledWarpGemm of a ScaledGemm; else a Parallel of dot products.
    Other families than CUDA's have ``matrices`` of their own in place of mma.sync."""

    matrices: Matrices = MMA

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without Gemm."""
        against = kernel.option(NO_ROLES)
        kept = against if against == AGAINST_WGMMA else None
        return rewrite_launches(kernel, lambda launch: _Selection(launch, target, kept, self.matrices).run())


class _Selection:
    """The products of one launch. ``against``: the pass config that keeps it from wgmma."""

    def __init__(self, launch: Launch, target: Target, against: object, matrices: Matrices) -> None:
        self.launch, self.target, self.matrices = launch, target, matrices
        self.roads: list[Road] = []
        chained = set() if has_wgmma(target) else chained_sums(launch)
        self._policies: dict[Var, int] = dict.fromkeys(chained, WHOLE_ROWS)
        self._chooser = Chooser(launch, against)

    def run(self) -> Launch:
        """The launch without Gemm."""
        body = rewrite_teams(self.launch.body, warps_of(self.launch), self._block)
        return with_roads(replace(self.launch, body=body), self.roads)

    def _block(self, block: Block, warps: int) -> list[Stmt]:
        agreed = (_agreed(stmt, self._policies) for stmt in block)
        return [new for stmt in agreed for new in self._selected(stmt, warps)]

    def _selected(self, stmt: Stmt, warps: int) -> list[Stmt]:
        if isinstance(stmt, SparseGemm):
            return self._sparse(stmt, warps)
        if isinstance(stmt, ScaledGemm):
            return _scaled(stmt, warps, self.roads, self.matrices)
        if isinstance(stmt, LaneMma):
            self.roads.append(road_of(stmt, "mma.sync", f"{stmt.instruction} {stmt.shape} by hand"))
        if not isinstance(stmt, Gemm):
            return [stmt]
        if not has_wgmma(self.target):
            return _by_warps(stmt, warps, self.target, self.roads, self.matrices)
        found = self._chooser.product(stmt, warps)
        if isinstance(found, str):
            loss = Loss("wgmma", found, _FIT_GROUPS)
            return _by_warps(stmt, warps, self.target, self.roads, self.matrices, loss)
        tile, types = found
        turning, ready = self._chooser.turned(stmt)
        how = f", lanes turn {ready.a.buffer.name} on its way to registers" if is_read_across(ready) else ""
        self.roads.append(road_of(stmt, "wgmma", f"wgmma {tile.instruction}{how}"))
        before, product, after = _placed(ready, tile)
        return [*turning, *before, WarpgroupProduct(**vars(product), types=types), *after]

    def _sparse(self, stmt: SparseGemm, warps: int) -> list[Stmt]:
        """By wgmma.sp where the target has it, else by the instructions of warps."""
        found = self._chooser.product(stmt, warps) if has_wgmma(self.target) else None
        if found is None or isinstance(found, str):
            lost = None if found is None else Loss("wgmma", found, _FIT_SPARSE)
            return _sparse_by_warps(stmt, warps, self.target, self.roads, self.matrices, lost)
        tile, types = found
        turning, ready = self._chooser.turned(stmt)
        self.roads.append(road_of(stmt, "wgmma", f"wgmma.sp {tile.instruction}"))
        before, product, after = _placed(ready, tile)
        e = _in_memory(ready.e, ready, before)
        made = SparseWarpgroupProduct(**vars(product), types=types, e=e, trans_e=ready.trans_e)
        return [*turning, *before, made, *after]


def _agreed(stmt: Stmt, policies: dict[Var, int]) -> Stmt:
    """Products that add to one fragment share it between warps as the first one does, or as is told ahead."""
    if not isinstance(stmt, PRODUCTS):
        return stmt
    return replace(stmt, policy=policies.setdefault(stmt.c.buffer, stmt.policy))


def _by_warps(
    stmt: Gemm,
    warps: int,
    target: Target,
    roads: list[Road],
    matrices: Matrices,
    lost: Loss | None = None,
) -> list[Stmt]:
    """By the instructions of warps, or as dot products; ``lost``: why not by wgmma."""
    fitted = fit(stmt, target, matrices)
    tile = matrices.tile(fitted.gemm, warps, target)
    if not isinstance(tile, str) and not is_slice(fitted.gemm.c):
        tile = "its result is no equal slice of a fragment"
    if isinstance(tile, str):
        roads.append(
            road_of(stmt, "dots", "dot products without tensor cores", Loss("tensor_cores", tile, _FIT))
        )
        return _plain(stmt)
    for loss in (*fitted.losses, *([] if lost is None else [lost])) or (None,):
        roads.append(road_of(stmt, matrices.kind, f"{matrices.kind} {tile.instruction}", loss))
    before, product, after = _placed(fitted.gemm, tile, matrices.statement)
    return [*fitted.before, *before, product, *after, *fitted.after]


def _sparse_by_warps(
    gemm: SparseGemm, warps: int, target: Target, roads: list[Road], matrices: Matrices, lost: Loss | None
) -> list[Stmt]:
    """By mma.sp, or as a product of a dense tile; ``lost``: why not by wgmma."""
    tile = sparse_tile(gemm, warps, target)
    if not isinstance(tile, str) and not is_slice(gemm.c):
        tile = "its result is no equal slice of a fragment"
    if isinstance(tile, str):
        loss = Loss("", tile, "give T.gemm_sp types, extents and a place of its sums that mma.sp takes")
        roads.append(road_of(gemm, "mma.sync", DENSE, loss))
        return [
            new
            for part in expand_sparse(gemm)
            for new in (_by_warps(part, warps, target, roads, matrices) if isinstance(part, Gemm) else [part])
        ]
    roads.append(road_of(gemm, "mma.sync", f"mma.sp {tile.instruction}", lost))
    before: list[Stmt] = []
    after: list[Stmt] = []
    a, e, b = (_in_memory(region, gemm, before) for region in (gemm.a, gemm.e, gemm.b))
    c = gemm.c if gemm.c.buffer.scope() == "local.fragment" else _fragment(gemm.c, gemm, before, after)
    turned = gemm.trans_a, gemm.trans_b
    product = SparseWarpGemm(a, b, c, *turned, gemm.clear, tile, e, gemm.trans_e, loc=gemm.loc)
    return [*before, product, *after]


def _scaled(gemm: ScaledGemm, warps: int, roads: list[Road], matrices: Matrices) -> list[Stmt]:
    """By instructions with scales; `ExpandScaled` has written out what these do not take."""
    tile, instruction = matrices.scaled(gemm, warps)
    before: list[Stmt] = []
    after: list[Stmt] = []
    a, b, sfa, sfb = (_in_memory(region, gemm, before) for region in (gemm.a, gemm.b, gemm.sfa, gemm.sfb))
    c = gemm.c if gemm.c.buffer.scope() == "local.fragment" else _fragment(gemm.c, gemm, before, after)
    roads.append(road_of(gemm, matrices.kind, f"{matrices.kind} {instruction}"))
    turned = gemm.trans_a, gemm.trans_b
    statement = matrices.scaled_statement
    product = statement(a, b, c, *turned, gemm.clear, tile, sfa, sfb, gemm.group, loc=gemm.loc)
    return [*before, product, *after]


def _placed(
    gemm: Unscaled, tile: WarpTile, statement: type[WarpGemm] = WarpGemm
) -> tuple[list[Stmt], WarpGemm, list[Stmt]]:
    """The product on tensor cores, and copies of operands that are not where the instruction takes them."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    a, b, c = gemm.a, gemm.b, gemm.c
    if a.buffer.scope() == "local.fragment" and not is_register_operand(gemm, tile.of_warpgroups):
        a = _staged(a, gemm, before)
    b = _in_memory(b, gemm, before)
    if c.buffer.scope() != "local.fragment":
        c = _fragment(c, gemm, before, after)
    product = statement(a, b, c, gemm.trans_a, gemm.trans_b, gemm.clear, tile, loc=gemm.loc)
    return before, product, after


def _tile_like(region: Region, scope: str) -> Var:
    name = f"{region.buffer.name}_{'shared' if scope == 'shared.dyn' else 'held'}"
    return tirx.decl_buffer(tuple(region.extent), str(region.buffer.dtype), name=name, scope=scope)


def _in_memory(region: Region, gemm: Stmt, before: list[Stmt]) -> Region:
    """A region of a shared tile, or a copy of a fragment's in one."""
    return _staged(region, gemm, before) if region.buffer.scope() == "local.fragment" else region


def _staged(region: Region, gemm: Stmt, before: list[Stmt]) -> Region:
    """A copy of a fragment's region in shared memory."""
    tile = _tile_like(region, "shared.dyn")
    before += [Alloc(tile, loc=gemm.loc), Copy(region, whole_tile(tile), loc=gemm.loc)]
    return whole_tile(tile)


def _fragment(
    region: Region, gemm: Gemm | SparseGemm | ScaledGemm, before: list[Stmt], after: list[Stmt]
) -> Region:
    """An accumulator in registers for one in memory, which is read where the product adds to it."""
    tile = _tile_like(region, "local.fragment")
    read = Copy(region, whole_tile(tile), loc=gemm.loc)
    before += [Alloc(tile, loc=gemm.loc), *where_added(gemm, (read,))]
    after.append(Copy(whole_tile(tile), region, loc=gemm.loc))
    return whole_tile(tile)


def _plain(gemm: Gemm) -> list[Stmt]:
    """One dot product per element of the result."""
    sizes = extents(gemm)
    if sizes is None:
        raise UnsupportedError(
            "T.gemm needs build-time extents",
            place=place_of(gemm, "T.gemm"),
            remedy="use constant tile sizes",
        )
    before: list[Stmt] = []
    a, b = (_in_memory(region, gemm, before) for region in (gemm.a, gemm.b))
    i, j, k = (tirx.Var(name, "int32") for name in "ijk")
    result, clear = str(gemm.c.buffer.dtype), gemm.clear
    if int_value(clear) is None:  # what is cleared may never have been written: read it nowhere before
        before.append(If(clear, (Fill(gemm.c, tirx.const(0, result), loc=gemm.loc),), loc=gemm.loc))
        clear = tirx.const(False, "bool")
    kind = _SUMS.get(result, result)
    total = tirx.decl_buffer((1,), kind, name="total", scope="local.var")
    at = _element(gemm.c, i, j)
    old = cast_to(tirx.BufferLoad(gemm.c.buffer, list(at)), kind)
    zero = tirx.const(0, "int32")
    left = tirx.BufferLoad(a.buffer, list(_element(a, *((k, i) if gemm.trans_a else (i, k)))))
    right = tirx.BufferLoad(b.buffer, list(_element(b, *((j, k) if gemm.trans_b else (k, j)))))
    step = tirx.BufferLoad(total, [zero]) + cast_to(left, kind) * cast_to(right, kind)
    body: Block = (
        Alloc(total, init=tirx.const(0, kind)),
        If(tirx.Not(clear), (Store(total, (zero,), old),)),
        serial_loop(k, sizes[2], (Store(total, (zero,), step),)),
        Store(gemm.c.buffer, at, cast_to(tirx.BufferLoad(total, [zero]), result), loc=gemm.loc),
    )  # fmt: skip
    return [*before, Parallel((i, j), sizes[:2], body, loc=gemm.loc)]


def _element(region: Region, row: Expr, column: Expr) -> tuple[Expr, ...]:
    """The indices of one element of a region's last two axes."""
    *lead, first, second = region.start
    shifted = (index if int_value(start) == 0 else start + index
               for start, index in ((first, row), (second, column)))  # fmt: skip
    return (*lead, *shifted)
