"""Which products of attention wgmma takes: 64 rows of the result for each consumer warpgroup."""

from __future__ import annotations

from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.backends.cuda.analysis.products.wgmma import ROWS, STEP_BYTES
from tilec.backends.cuda.attention.nodes import AsyncProduct
from tilec.backends.cuda.nodes import WarpTile
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.backends.cuda.warp_roles.wgmma import warpgroup_tile
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Gemm, Region

#: Warps of a warpgroup, and columns of one step of an accumulator's registers.
_WARPS, _COLUMNS = 4, 8


def async_product(gemm: Gemm, warpgroups: int) -> AsyncProduct:
    """The product by wgmma; Unfit where there is none."""
    tile = warpgroup_tile(gemm, warpgroups, whole=False)
    _check_sums(gemm, tile.rows)
    _check_operands(gemm)
    warps = WarpTile(
        f"m{ROWS}n{tile.columns}k{STEP_BYTES // _bytes(gemm)}",
        (_WARPS * warpgroups, 1),
        (1, tile.columns // _COLUMNS),
        tile.steps,
    )
    return AsyncProduct(
        gemm.a, gemm.b, gemm.c, gemm.trans_a, gemm.trans_b, gemm.clear, warps, tile.types, loc=gemm.loc
    )


def _check_sums(gemm: Gemm, rows: int) -> None:
    """Unfit where sums, of which a warpgroup has ``rows`` times 64 rows, are none of attention's."""
    if str(gemm.c.buffer.dtype) != "float32":
        raise Unfit(f"a product sums in {gemm.c.buffer.dtype}", remedy="accumulate in float32")
    if rows != 1:
        raise Unfit(
            f"{rows * ROWS} rows for each warpgroup: rows that stay in registers take {ROWS}",
            remedy=f"choose tiles of {ROWS} rows for each 128 threads",
        )
    if int_value(gemm.clear) is None:
        raise Unfit(
            "whether a product clears its accumulator is known at run time only",
            remedy="T.clear it, or give clear_accum a constant",
        )


def _check_operands(gemm: Gemm) -> None:
    """Unfit where operands lie elsewhere than wgmma takes them, or are parts of tiles."""
    for region in (gemm.a, gemm.b, gemm.c):
        columns = region is gemm.b and not gemm.trans_b and _has_all_rows(region)
        if len(region.buffer.shape) != 2 or not (columns or is_whole(region)):
            raise Unfit(
                f"a product uses a part of {region.buffer.name}", remedy="give each operand a tile of its own"
            )
    if gemm.b.buffer.scope() != "shared.dyn" or gemm.c.buffer.scope() != "local.fragment":
        raise Unfit(
            "a product has B outside of shared memory, or C outside of registers",
            remedy="copy B to T.alloc_shared, accumulate in T.alloc_fragment",
        )
    if gemm.a.buffer.scope() == "local.fragment" and gemm.trans_a:
        raise Unfit(
            f"{gemm.a.buffer.name} is no A operand in registers",
            remedy="give a fragment with its rows along M as A, or copy it to shared memory",
        )


def _has_all_rows(region: Region) -> bool:
    """Whether a region is the first columns of a tile, behind which wgmma reads none across K."""
    rows, _ = map(int_value, region.extent)
    return rows == int_value(region.buffer.shape[0]) and all(int_value(each) == 0 for each in region.start)


def _bytes(gemm: Gemm) -> int:
    return 1 if str(gemm.a.buffer.dtype).startswith("float8") else 2
