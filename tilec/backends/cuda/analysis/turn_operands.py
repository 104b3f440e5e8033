"""Operands stored across K, turned in shared memory: wgmma reads those of 8 and 32 bits along K alone."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.tiles import whole_tile
from tilec.backends.cuda.nodes import TurnBytes
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Copy, Parallel, Region, Stmt, Store
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.ir.nodes import Gemm

#: Columns and rows of a tile that a warp turns at once.
COLUMNS, ROWS = 16, 32


def turned(gemm: Gemm) -> tuple[list[Stmt], Gemm]:
    """The product with its 8-bit operands and 32-bit fragments along K, and the statements in front of it
    that turn them."""
    before: list[Stmt] = []
    if gemm.trans_a and _can_turn(gemm.a):
        gemm = replace(gemm, a=_turned(gemm.a, gemm, before), trans_a=False)
    if not gemm.trans_b and _can_turn(gemm.b):
        gemm = replace(gemm, b=_turned(gemm.b, gemm, before), trans_b=True)
    return before, gemm


def _can_turn(region: Region) -> bool:
    if element_bytes(str(region.buffer.dtype)) == 4 and region.buffer.scope() == "local.fragment":
        return True
    rows, columns = (int_value(extent) or 1 for extent in region.extent[-2:])
    narrow = element_bytes(str(region.buffer.dtype)) == 1
    return narrow and rows % ROWS == 0 and columns % COLUMNS == 0 and _starts_at_units(region)


def _starts_at_units(region: Region) -> bool:
    """Whether chunks of a region are chunks of its tile."""
    start = int_value(region.start[-1])
    return region.buffer.scope() == "local.fragment" or (start is not None and start % COLUMNS == 0)


def _turned(region: Region, gemm: Gemm, before: list[Stmt]) -> Region:
    if element_bytes(str(region.buffer.dtype)) == 4:
        return _stored_along(region, gemm, before)
    if region.buffer.scope() == "local.fragment":
        held = _tile(region, "shared", region.extent[-2:])
        before += [Alloc(held.buffer, loc=gemm.loc), Copy(region, held, loc=gemm.loc)]
        region = held
    made = _tile(region, "turned", region.extent[:-3:-1])
    before += [Alloc(made.buffer, loc=gemm.loc), TurnBytes(region, made, loc=gemm.loc)]
    return made


def _stored_along(region: Region, gemm: Gemm, before: list[Stmt]) -> Region:
    """A copy of a fragment of 32-bit elements with its axes exchanged."""
    made = _tile(region, "turned", region.extent[:-3:-1])
    i, j = (tirx.Var(name, "int32") for name in "ij")
    *lead, first, second = region.start
    value = tirx.BufferLoad(region.buffer, [*lead, first + i, second + j])
    store = Store(made.buffer, (j, i), value, loc=gemm.loc)
    extents = tuple(int_value(extent) or 1 for extent in region.extent[-2:])
    before += [Alloc(made.buffer, loc=gemm.loc), Parallel((i, j), extents, (store,), loc=gemm.loc)]
    return made


def _tile(region: Region, suffix: str, extents: tuple[object, ...]) -> Region:
    shape = tuple(int_value(extent) or 1 for extent in extents)
    name, dtype = f"{region.buffer.name}_{suffix}", str(region.buffer.dtype)
    return whole_tile(tirx.decl_buffer(shape, dtype, name=name, scope="shared.dyn"))
