"""Operands of 8 and 32 bits stored across K, which wgmma reads along K alone: the first one is turned by
lanes on its way to registers, others in shared memory."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.nodes import TurnTile
from tilec.ir.exprs import int_value
from tilec.ir.nodes import Alloc, Copy, Parallel, Region, Stmt, Store
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.backends.cuda.nodes import WarpGemm
    from tilec.ir.nodes import Unscaled

Kind = TypeVar("Kind", bound="Unscaled")
#: Where operands are.
SHARED, HELD = "shared.dyn", "local.fragment"
#: Rows and columns of a tile that a warp turns at once, by the bytes of an element.
UNITS = {1: (32, 16), 4: (4, 32)}


def is_read_across(gemm: Unscaled | WarpGemm) -> bool:
    """Whether the first operand of a product of wgmma lies across K in shared memory, with elements of which
    lanes read those of their rows."""
    return gemm.trans_a and gemm.a.buffer.scope() == SHARED and element_bytes(str(gemm.a.buffer.dtype)) != 2


def turned(
    gemm: Kind, scopes: tuple[str, ...] = (SHARED, HELD), by_lanes: bool = False
) -> tuple[list[Stmt], Kind]:
    """The product with its operands of 8 and 32 bits in memory of ``scopes`` along K, and the statements in
    front of it that turn them. ``by_lanes``: its first operand stays where lanes can read it."""
    before: list[Stmt] = []
    stays = by_lanes and is_read_across(gemm) and _can_turn(gemm.a, (SHARED,))
    if gemm.trans_a and not stays and _can_turn(gemm.a, scopes):
        gemm = replace(gemm, a=_turned(gemm.a, gemm, before), trans_a=False)
    if not gemm.trans_b and _can_turn(gemm.b, scopes):
        gemm = replace(gemm, b=_turned(gemm.b, gemm, before), trans_b=True)
    return before, gemm


def _can_turn(region: Region, scopes: tuple[str, ...]) -> bool:
    scope, size = str(region.buffer.scope()), element_bytes(str(region.buffer.dtype))
    if scope not in scopes or size not in UNITS:
        return False
    if size == 4 and scope == HELD:
        return True
    units, sizes = UNITS[size], [int_value(extent) or 1 for extent in region.extent[-2:]]
    whole = not any(extent % unit for extent, unit in zip(sizes, units, strict=True))
    return whole and _starts_at_units(region, units[1])


def _starts_at_units(region: Region, columns: int) -> bool:
    """Whether chunks of a region are chunks of its tile."""
    start = int_value(region.start[-1])
    return region.buffer.scope() == HELD or (start is not None and start % columns == 0)


def _turned(region: Region, gemm: Unscaled, before: list[Stmt]) -> Region:
    if element_bytes(str(region.buffer.dtype)) == 4 and region.buffer.scope() == HELD:
        return _stored_along(region, gemm, before)
    if region.buffer.scope() == HELD:
        held = _tile(region, "shared", region.extent[-2:])
        before += [Alloc(held.buffer, loc=gemm.loc), Copy(region, held, loc=gemm.loc)]
        region = held
    made = _tile(region, "turned", region.extent[:-3:-1])
    before += [Alloc(made.buffer, loc=gemm.loc), TurnTile(region, made, loc=gemm.loc)]
    return made


def _stored_along(region: Region, gemm: Unscaled, before: list[Stmt]) -> Region:
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
