"""Gemm becomes warp-level products on tensor cores, or plain loops where they do not fit."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.fit_operands import fit
from tilec.backends.cuda.analysis.mma import dtypes, extents, sparse_tile, warp_tile
from tilec.backends.cuda.analysis.threads import rewrite_teams, warps_of
from tilec.backends.cuda.analysis.tiles import whole_tile
from tilec.backends.cuda.nodes import SparseWarpGemm, WarpGemm, WarpTile
from tilec.errors import UnsupportedError
from tilec.ir.exprs import int_value
from tilec.ir.nodes import (
    PRODUCTS,
    Alloc,
    Block,
    Copy,
    For,
    Gemm,
    If,
    Kernel,
    Launch,
    Parallel,
    Region,
    SparseGemm,
    Stmt,
    Store,
)
from tilec.ir.nodes.threads import LaneMma
from tilec.ir.places import place_of
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches
from tilec.lowering.passes.expand_copies import cast_to
from tilec.lowering.passes.expand_sparse import DENSE, expand_sparse

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Accumulators of plain products: what partial sums are held in, by the type of the result.
_SUMS = {"float16": "float32", "bfloat16": "float32"}
#: What puts a product on tensor cores.
_FIT = (
    "multiply 16-bit floats, float32 (as TF32) or 8-bit types with sums in float32 or int32, by tiles of"
    " constant extents"
)


class SelectInstructions(Pass):
    """In: Gemm, SparseGemm. Out: WarpGemm where mma.sync has the types and the tile, with operands in a type
    and a place that it takes (a copy through shared memory where they are not), SparseWarpGemm where mma.sp
    has them (a dense tile and its product where not); else a Parallel of dot products."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel without Gemm."""
        return rewrite_launches(kernel, lambda launch: _rewritten(launch, target))


def _rewritten(launch: Launch, target: Target) -> Launch:
    roads: list[Road] = []
    policies: dict[Var, int] = {}

    def rewrite(block: Block, warps: int) -> list[Stmt]:
        agreed = (_agreed(stmt, policies) for stmt in block)
        return [new for stmt in agreed for new in _selected(stmt, warps, target, roads)]

    body = rewrite_teams(launch.body, warps_of(launch), rewrite)
    return with_roads(replace(launch, body=body), roads)


def _agreed(stmt: Stmt, policies: dict[Var, int]) -> Stmt:
    """Products that add to one fragment share it between warps as the first one does."""
    if not isinstance(stmt, PRODUCTS):
        return stmt
    return replace(stmt, policy=policies.setdefault(stmt.c.buffer, stmt.policy))


def _selected(stmt: Stmt, warps: int, target: Target, roads: list[Road]) -> list[Stmt]:
    if isinstance(stmt, SparseGemm):
        return _sparse(stmt, warps, target, roads)
    if isinstance(stmt, LaneMma):
        roads.append(road_of(stmt, "mma.sync", f"{stmt.instruction} {stmt.shape} by hand"))
    if not isinstance(stmt, Gemm):
        return [stmt]
    fitted = fit(stmt, target)
    tile = warp_tile(fitted.gemm, warps, target)
    if not isinstance(tile, str) and not _is_slice(fitted.gemm.c):
        tile = "its result is no equal slice of a fragment"
    if isinstance(tile, str):
        roads.append(
            road_of(stmt, "dots", "dot products without tensor cores", Loss("tensor_cores", tile, _FIT))
        )
        return _plain(stmt)
    for loss in fitted.losses or (None,):
        roads.append(road_of(stmt, "mma.sync", f"mma.sync {tile.instruction}", loss))
    return [*fitted.before, *_on_tensor_cores(fitted.gemm, tile), *fitted.after]


def _sparse(gemm: SparseGemm, warps: int, target: Target, roads: list[Road]) -> list[Stmt]:
    """By mma.sp, or as a product of a dense tile."""
    tile = sparse_tile(gemm, warps, target)
    if not isinstance(tile, str) and not _is_slice(gemm.c):
        tile = "its result is no equal slice of a fragment"
    if isinstance(tile, str):
        loss = Loss("", tile, "give T.gemm_sp types, extents and a place of its sums that mma.sp takes")
        roads.append(road_of(gemm, "mma.sync", DENSE, loss))
        return [new for part in expand_sparse(gemm) for new in _selected(part, warps, target, roads)]
    without_wgmma = Loss("warp_roles", "T.gemm_sp has no form with wgmma.mma_async.sp", "use T.gemm for it")
    lost = without_wgmma if target.name == "sm_90a" else None
    roads.append(road_of(gemm, "mma.sync", f"mma.sp {tile.instruction}", lost))
    before: list[Stmt] = []
    after: list[Stmt] = []
    a, e, b = (
        _staged(region, gemm, before) if region.buffer.scope() == "local.fragment" else region
        for region in (gemm.a, gemm.e, gemm.b)
    )
    c = gemm.c if gemm.c.buffer.scope() == "local.fragment" else _fragment(gemm.c, gemm, before, after)
    turned = gemm.trans_a, gemm.trans_b
    product = SparseWarpGemm(a, b, c, *turned, gemm.clear, tile, e, gemm.trans_e, loc=gemm.loc)
    return [*before, product, *after]


def _is_slice(region: Region) -> bool:
    """Whether an accumulator is a whole fragment, or one of equal slices of it."""
    sizes = zip(region.buffer.shape, region.extent, strict=True)
    return all(int_value(whole) % int_value(part) == 0 for whole, part in sizes)  # type: ignore[operator]


def _on_tensor_cores(gemm: Gemm, tile: WarpTile) -> list[Stmt]:
    """The product, with copies of operands that are not where the instruction takes them."""
    before: list[Stmt] = []
    after: list[Stmt] = []
    a, b, c = gemm.a, gemm.b, gemm.c
    if a.buffer.scope() == "local.fragment" and not _is_register_operand(gemm):
        a = _staged(a, gemm, before)
    if b.buffer.scope() == "local.fragment":
        b = _staged(b, gemm, before)
    if c.buffer.scope() != "local.fragment":
        c = _fragment(c, gemm, before, after)
    product = WarpGemm(a, b, c, gemm.trans_a, gemm.trans_b, gemm.clear, tile, loc=gemm.loc)
    return [*before, product, *after]


def _is_register_operand(gemm: Gemm) -> bool:
    """Whether a fragment serves as the A operand: 16 bits, whole, rows along M, no result of a product."""
    pairs = zip(gemm.a.start, gemm.a.extent, gemm.a.buffer.shape, strict=True)
    whole = all(int_value(s) == 0 and int_value(e) == int_value(n) for s, e, n in pairs)
    return whole and not gemm.trans_a and element_bytes(dtypes(gemm)[0]) == 2


def _tile_like(region: Region, scope: str) -> Var:
    name = f"{region.buffer.name}_{'shared' if scope == 'shared.dyn' else 'held'}"
    return tirx.decl_buffer(tuple(region.extent), str(region.buffer.dtype), name=name, scope=scope)


def _staged(region: Region, gemm: Gemm | SparseGemm, before: list[Stmt]) -> Region:
    """A copy of a fragment's region in shared memory."""
    tile = _tile_like(region, "shared.dyn")
    before += [Alloc(tile, loc=gemm.loc), Copy(region, whole_tile(tile), loc=gemm.loc)]
    return whole_tile(tile)


def _fragment(region: Region, gemm: Gemm | SparseGemm, before: list[Stmt], after: list[Stmt]) -> Region:
    """An accumulator in registers for one in memory."""
    tile = _tile_like(region, "local.fragment")
    before += [Alloc(tile, loc=gemm.loc), Copy(region, whole_tile(tile), loc=gemm.loc)]
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
    a, b = (
        _staged(region, gemm, before) if region.buffer.scope() == "local.fragment" else region
        for region in (gemm.a, gemm.b)
    )
    i, j, k = (tirx.Var(name, "int32") for name in "ijk")
    result = str(gemm.c.buffer.dtype)
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
        If(tirx.Not(gemm.clear), (Store(total, (zero,), old),)),
        For("serial", k, zero, tirx.const(sizes[2], "int32"), tirx.const(1, "int32"),
            (Store(total, (zero,), step),)),
        Store(gemm.c.buffer, at, cast_to(tirx.BufferLoad(total, [zero]), result), loc=gemm.loc),
    )  # fmt: skip
    return [*before, Parallel((i, j), sizes[:2], body, loc=gemm.loc)]


def _element(region: Region, row: Expr, column: Expr) -> tuple[Expr, ...]:
    """The indices of one element of a region's last two axes."""
    *lead, first, second = region.start
    shifted = (index if int_value(start) == 0 else start + index
               for start, index in ((first, row), (second, column)))  # fmt: skip
    return (*lead, *shifted)
