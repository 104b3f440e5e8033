"""Blocks whose threads make an operand take two tiles that share it.

    block (n, m): for k: W = f(raw[n, k]); C[m, n] += A[m, k] W^T
    ->    block (n, m): for k: W = f(raw[n, k]); C[2 m and 2 m + 1, n] += A[2 m and 2 m + 1, k] W^T

An element is made once for both, and a product runs twice as long beside the warpgroup that makes the next
operand. Half as many blocks take longer where all tiles run at once: there is a launch for either case, one
of which has an empty grid. H200, sums of 128 x 128, beside a plain product, and of two tiles: integers of 8
bits 0.82 and 1.02, of 4 bits 0.72 and 0.94, looked up 0.59 and 0.83, float32 0.57 and 0.83, 8-bit floats 0.94
and 1.12, scaled where they lie 0.50 and 0.67; stored across K and turned by lanes, float32 0.86 and 1.04,
integers of 8 bits 0.98 and 1.11.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.joined_blocks import may_join
from tilec.backends.cuda.analysis.blocks.long_tiles import LongTiles, long_tiles
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.products.turn_operands import is_read_across
from tilec.backends.cuda.limits import gpu_limits, has_wgmma
from tilec.backends.cuda.statement_roles.split.loads import apart, filled
from tilec.backends.cuda.statement_roles.split.longer_tiles import with_longer_tiles
from tilec.backends.cuda.statement_roles.split.made_tiles import with_made_tiles
from tilec.backends.cuda.statement_roles.split.raw_tiles import with_raw_tiles
from tilec.backends.cuda.statement_roles.split.registers import MOST_GROUPS, handed_on, registers_held
from tilec.backends.cuda.statement_roles.split.split_roles import runs_ahead
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import dtype_of
from tilec.ir.nodes import Block, Gemm, Kernel, Launch, Pipelined, Stmt, walk
from tilec.ir.options import NO_ROLES
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Tiles of a block; registers of an operand that a thread makes, and of its addresses.
_TILES, _OPERAND = 2, 32
#: Tiles along an axis from which on an odd number is joined, too. H200, 8192 x 8192 integers of 4 bits, us as
#: they were and joined: 264 rows 132 and 142, 512 rows 131 and 98, 1056 rows 353 and 309.
_MANY = 8
_NOTE = "a block takes {} tiles along {}, which share {}"
_WIDE = "launched for grids of more tiles than a usual device has multiprocessors, in pairs along {}"
_NARROW = "launched for other grids: a block takes a tile"


class JoinTiles(Pass):
    """In: launches that no strategy has taken, whose threads make an operand of their only product in each
    trip of a loop. Out: where neighbouring blocks make the same operand, and registers and shared memory hold
    it, launches whose blocks take two of their tiles; beside them, for grids that a usual device runs at
    once, those as they were."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its launches."""
        if not has_wgmma(target) or kernel.option(NO_ROLES) is not None:
            return kernel
        body = (_launches(kernel, stmt, target) if _is_open(stmt) else (stmt,) for stmt in kernel.body)
        return replace(kernel, body=tuple(stmt for each in body for stmt in each))


def _is_open(stmt: Stmt) -> bool:
    """Whether a statement is a launch of several warpgroups that no strategy and no cluster shares out."""
    if not isinstance(stmt, Launch) or stmt.strategy is not None or stmt.thread_vars:
        return False
    groups, rest = divmod(thread_count(stmt), WARPGROUP)
    return not stmt.schedule.cluster_dims and not rest and 1 < groups <= MOST_GROUPS


def _launches(kernel: Kernel, launch: Stmt, target: Target) -> Block:
    """A launch of tiles two by two, and one of each tile for grids without enough of them."""
    assert isinstance(launch, Launch)
    found = next(_joined(kernel, launch, target), None)
    if found is None:
        return (launch,)
    tiles, wide = found
    several = _several(tiles, gpu_limits(target, {}).units)
    facts = ScopedRewrite(kernel, launch).facts
    if facts.prove(several < 1):
        return (launch,)
    if facts.prove(several >= 1):
        return (wide,)
    (narrow,) = copied((launch,))
    assert isinstance(narrow, Launch)
    return (_where(wide, several, _WIDE.format(tiles.block.name)), _where(narrow, 1 - several, _NARROW))


def _joined(kernel: Kernel, launch: Launch, target: Target) -> Iterator[tuple[LongTiles, Launch]]:
    """The ways to join blocks of a launch, along each axis of its grid."""
    product = _product(kernel, launch, target)
    if product is None:
        return
    for block in launch.block_vars:
        tiles = long_tiles(launch, block)
        shared = [tile for tile in product.made if tile not in tiles.axes]
        if not shared or product.sums not in tiles.axes:
            continue
        if not may_join(tiles, ScopedRewrite(kernel, launch).facts):
            continue
        names = ", ".join(str(tile.name) for tile in shared)
        wide = with_notes(with_longer_tiles(tiles, _TILES), [_NOTE.format(_TILES, block.name, names)])
        if _fits(wide) and runs_ahead(kernel, wide, target):
            yield tiles, wide


def _several(tiles: LongTiles, units: int) -> Expr:
    """1 where a grid has more tiles than multiprocessors, and pairs of them along the axis or so many that an
    odd one counts for little; 0 elsewhere. What TMA fills with zeros takes longer than what it brings."""
    grid = [tirx.const(0, "int32") + extent for extent in tiles.launch.grid]
    along = grid[tiles.launch.block_vars.index(tiles.block)]
    one = tirx.const(1, dtype_of(along))
    pairs = along // _TILES * (1 - along % _TILES) + along // _MANY
    return tirx.min(one, prod(grid[1:], start=grid[0]) // (units + 1)) * tirx.min(one, pairs)


def _where(launch: Launch, some: Expr, note: str) -> Launch:
    """A launch whose grid is empty where ``some`` is 0."""
    return with_notes(replace(launch, grid=(launch.grid[0] * some, *launch.grid[1:])), [note])


# ---- which launches ----


@dataclass(frozen=True)
class _Product:
    """The operands that threads make in each trip for a product, and its sums."""

    made: tuple[Var, ...]
    sums: Var


def _product(kernel: Kernel, launch: Launch, target: Target) -> _Product | None:
    """The only product of a launch, if threads make operands of it in the loop around it."""
    products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
    if len(products) != 1:
        return None
    parted = with_raw_tiles(kernel, with_made_tiles(replace(launch, body=apart(launch.body))), target)
    loops = (stmt for stmt in walk(parted.body) if isinstance(stmt, Pipelined))
    sides = next((sides for loop in loops if (sides := _made_sides(loop))), ())
    regions = (products[0].a, products[0].b)
    made = tuple(region.buffer for region, own in zip(regions, sides, strict=False) if own)
    return _Product(made, products[0].c.buffer) if made else None


def _made_sides(loop: Pipelined) -> tuple[bool, ...]:
    """For each operand of the product in a loop whether threads compute it there; where they compute none,
    whether they turn it on its way to registers."""
    gemm = next((stmt for stmt in loop.body if isinstance(stmt, Gemm)), None)
    if gemm is None:
        return ()
    made = written_in(tuple(stmt for stmt in loop.body if stmt is not gemm and filled(stmt) is None))
    sides = tuple(region.buffer in made for region in (gemm.a, gemm.b))
    return sides if any(sides) else (is_read_across(gemm), False)


def _fits(launch: Launch) -> bool:
    """Whether a thread has the registers of all fragments, and of an operand that it makes."""
    threads = thread_count(launch)
    given = handed_on(threads // WARPGROUP, ())
    return given is not None and registers_held(launch.body, threads) + _OPERAND <= given[1]
