"""Products in the types and depths of mma.sync: 8-bit floats as float16 where nothing else multiplies them,
16-bit sums in float32, K in whole steps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.analysis.products.mma import MMA, STEP_BYTES, Matrices, dtypes, extents
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Copy, Fill, Gemm, Region, Stmt
from tilec.ir.roads import Loss
from tilec.lowering.analysis.added_sums import where_added
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

#: What each type is held in exactly.
_WIDER = {"float8_e4m3fn": "float16", "float8_e5m2": "float16", "float16": "float16"}
_SUMS = ("float16", "bfloat16")


@dataclass
class Fitted:
    """A product on tensor cores, statements around it, and what they cost."""

    gemm: Gemm
    before: list[Stmt] = field(default_factory=list)
    after: list[Stmt] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)


def fit(gemm: Gemm, target: Target, matrices: Matrices = MMA) -> Fitted:
    """The product with operands converted and padded as far as that makes it one for tensor cores; as it is
    where nothing does."""
    found = Fitted(gemm)
    if extents(gemm) is None:
        return found
    types = multiplied_as(dtypes(gemm), target, matrices)
    if types is None:
        return found
    _convert(found, types)
    _pad(found, types[0])
    return found


def multiplied_as(
    types: tuple[str, str, str], target: Target, matrices: Matrices = MMA
) -> tuple[str, str, str] | None:
    """The types of the instruction for a product of ``types``; None where there is none."""
    a, b, c = types
    sums = "float32" if c in _SUMS else c
    if matrices.has((a, b, sums), target):
        return a, b, sums
    if a in _WIDER and b in _WIDER and sums == "float32" and matrices.has(("float16",) * 2 + (sums,), target):
        return "float16", "float16", sums
    return None


def _convert(found: Fitted, types: tuple[str, str, str]) -> None:
    gemm = found.gemm
    a, b = (
        _converted(region, wanted, found) for region, wanted in zip((gemm.a, gemm.b), types, strict=False)
    )
    found.gemm = replace(gemm, a=a, b=b)
    if str(gemm.c.buffer.dtype) == types[2]:
        return
    sums = _tile(gemm.c, gemm.c.extent, types[2], "local.fragment")
    read = Copy(gemm.c, sums, loc=gemm.loc)
    found.before += [Alloc(sums.buffer, loc=gemm.loc), *where_added(gemm, (read,))]
    found.after.append(Copy(sums, gemm.c, loc=gemm.loc))
    found.gemm = replace(found.gemm, c=sums)


def _converted(region: Region, wanted: str, found: Fitted) -> Region:
    if str(region.buffer.dtype) == wanted:
        return region
    tile = _tile(region, region.extent, wanted, "shared.dyn")
    loc = found.gemm.loc
    found.before += [Alloc(tile.buffer, loc=loc), Copy(region, tile, loc=loc)]
    why = f"{region.buffer.name} is converted to {wanted} in shared memory first"
    found.losses.append(Loss("", why, f"store it in a type that the target multiplies, such as {wanted}"))
    return tile


def _pad(found: Fitted, dtype: str) -> None:
    """Fills K up with zeros to whole steps of the instruction."""
    gemm = found.gemm
    step, depth = STEP_BYTES // element_bytes(dtype), (extents(gemm) or (0, 0, 0))[2]
    if depth % step == 0:
        return
    padded = -(-depth // step) * step
    why = f"K = {depth} is filled up with zeros to {padded}, a multiple of {step}"
    found.losses.append(Loss("", why, f"choose a K tile of a multiple of {step}"))
    a = _padded(gemm.a, -2 if gemm.trans_a else -1, padded, found)
    b = _padded(gemm.b, -1 if gemm.trans_b else -2, padded, found)
    found.gemm = replace(gemm, a=a, b=b)


def _padded(region: Region, axis: int, size: int, found: Fitted) -> Region:
    shape, loc = list(region.extent), found.gemm.loc
    shape[axis] = size
    tile = _tile(region, shape, str(region.buffer.dtype), "shared.dyn")
    zero = tirx.const(0, str(region.buffer.dtype))
    inside = replace(tile, extent=region.extent)
    found.before += [Alloc(tile.buffer, loc=loc), Fill(tile, zero, loc=loc), Copy(region, inside, loc=loc)]
    return tile


def _tile(region: Region, shape: Sequence[int | Expr], dtype: str, scope: str) -> Region:
    """A tile for a region, of another type or scope."""
    extent = tuple(int_value(size) or 1 for size in shape)
    name = f"{region.buffer.name}_fitted"
    return whole_tile(tirx.decl_buffer(extent, dtype, name=name, scope=scope))
