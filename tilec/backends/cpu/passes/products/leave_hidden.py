"""Products leave out what a mask hides behind a column of each row: the future, in causal attention.

    S = Q @ K; S[i, j] = S[i, j] if j - i <= reach else -inf; ...; o += P @ V        (P made of S)

Blocks of S of which nothing is seen are not computed, and P @ V ends in each block of rows where P ends, if
nothing but zeros comes behind the reach and V is finite: it looks (`products.depths`). A branch around the
mask, which says whether a tile has anything to hide, is part of the reach.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.nodes import MicroGemm
from tilec.backends.cpu.products.blocks.depths import has_depths
from tilec.backends.cpu.products.forms.tile_forms import TILE_FORMS
from tilec.ir.exprs import (
    COMPARE,
    cast_to,
    choice_of,
    conjuncts,
    dtype_of,
    inlined,
    int_value,
    linear_in,
    loads,
    reads,
    same_all,
    uses,
)
from tilec.ir.nodes import Block, If, Parallel, Stmt, Store, children, is_global, walk
from tilec.ir.traits import defined, written
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.conditions import gap, opposite
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.analysis.uses import touches
from tilec.lowering.passes.base import BlockPass, replaced

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: Axes of a tile of scores.
_AXES = 2


class LeaveHidden(BlockPass):
    """In: products, and Parallel loops that choose by row and column between an element of the product before
    and something else, or between two numbers that a product adds to, one of them infinite; they may stand in
    a branch. Out: the product
    before, and those behind it whose left operand is made of the tile, know how far behind its row a column
    is seen. One that adds to an infinity is computed: it makes NaN of some."""

    def block(self, block: Block) -> Block:
        """``block``, whose products leave out what its masks hide."""
        made: dict[Stmt, Block] = {}
        for number, stmt in enumerate(block):
            mask = _mask_of(stmt)
            if mask is not None:
                made |= {old: (new,) for old, new in mask.limited(block, number)}
        return replaced(block, made) if made else block


@dataclass(frozen=True, eq=False)
class _Mask:
    """A choice for each element of ``tile``: those more than ``reach`` columns behind their row are hidden;
    ``before`` a product adds to them, or behind it."""

    tile: Var
    reach: Expr
    before: bool

    def limited(self, block: Block, number: int) -> Iterator[tuple[MicroGemm, MicroGemm]]:
        """The products of ``block`` that the mask, its statement of this number, limits, before and since."""
        scores = () if self.before else self._scores(block[:number])
        yield from ((gemm, replace(gemm, c_reach=self.reach)) for gemm in scores)
        for gemm in self._weighed(block[number:]):
            if gemm.a_reach is None and has_depths(gemm):
                yield gemm, replace(gemm, a_reach=self.reach)

    def _scores(self, front: Block) -> Iterator[MicroGemm]:
        """The last products in ``front`` that compute the tile, one on each side of a branch; none where
        something else touches it behind them, or sets what the reach is made of."""
        for stmt in reversed(front):
            if touches(stmt, self.tile):
                yield from self._products_of(stmt)
                return
            if uses(self.reach, set(_all_defined(stmt))):
                return

    def _products_of(self, stmt: Stmt) -> Iterator[MicroGemm]:
        if isinstance(stmt, MicroGemm) and self._computes(stmt):
            yield stmt
        if isinstance(stmt, If):
            for side in children(stmt):
                yield from self._scores(side)

    def _computes(self, gemm: MicroGemm) -> bool:
        if not gemm.c.buffer.same_as(self.tile) or not is_whole(gemm.c) or gemm.block.form in TILE_FORMS:
            return False
        return not gemm.body and gemm.last is None and gemm.c_reach is None

    def _weighed(self, since: Block) -> Iterator[MicroGemm]:
        """The products ``since`` the mask whose rows are those of the tile, or of one that is made of it."""
        tiles = {self.tile}
        for stmt in walk(since):
            if isinstance(stmt, MicroGemm) and stmt.a.region.buffer in tiles and _is_upright(stmt):
                yield stmt
            if isinstance(stmt, Parallel) and any(touches(stmt, tile) for tile in tiles):
                found = (name for inner in walk((stmt,)) for name in written(inner))
                tiles |= {name for name in found if not is_global(name) and len(name.shape) == _AXES}


def _is_upright(gemm: MicroGemm) -> bool:
    """Whether the rows of the left operand are those of its tile from the first element on."""
    a = gemm.a
    return a.row == 0 and a.col == 1 and all(int_value(start) == 0 for start in a.region.start)


def _all_defined(stmt: Stmt) -> Iterator[Var]:
    return (name for inner in walk((stmt,)) for name in defined(inner))


def _mask_of(stmt: Stmt) -> _Mask | None:
    """The mask that a loop over all of a tile begins with, or that one in a branch does; None where it does
    not."""
    return _mask_of_branch(stmt) if isinstance(stmt, If) else _mask_of_loop(stmt)


def _mask_of_branch(branch: If) -> _Mask | None:
    """The masks of both sides, which end where they do as the condition is; a side without one hides
    nothing."""
    sides = [_first_mask(side) for side in (branch.then, branch.orelse)]
    known = [mask for mask in sides if mask is not None]
    if not known or next(loads(branch.cond), None) is not None:
        return None
    tile, before = known[0].tile, known[0].before
    if not all(mask.tile.same_as(tile) and mask.before == before for mask in known):
        return None
    everything = tirx.const(int_value(tile.shape[-1]), dtype_of(known[0].reach))
    reach = tirx.Select(branch.cond, *(everything if mask is None else mask.reach for mask in sides))
    return None if uses(reach, set(_all_defined(branch))) else _Mask(tile, reach, before)


def _first_mask(side: Block) -> _Mask | None:
    """The first mask of a side, if nothing touches its tile in front of it."""
    for number, stmt in enumerate(side):
        mask = _mask_of(stmt)
        if mask is not None:
            return None if any(touches(it, mask.tile) for it in side[:number]) else mask
    return None


def _mask_of_loop(stmt: Stmt) -> _Mask | None:
    """The mask that a loop over all of a tile begins with; None where it does not."""
    store = _first_store(stmt) if isinstance(stmt, Parallel) and len(stmt.vars) == _AXES else None
    if store is None:
        return None
    assert isinstance(stmt, Parallel)
    choice = choice_of(inlined(store.value, values_of(walk(stmt.body))))
    if choice is None:
        return None
    cond, value, other = choice
    hides = _hides(value, other, store.buffer)
    if hides is None:
        return None
    seen = opposite(cond) if hides is value else cond
    reach = _reach(seen, stmt.vars, set(_all_defined(stmt)))
    before = not (reads(value, {store.buffer}) or reads(other, {store.buffer}))
    return None if reach is None else _Mask(store.buffer, reach, before)


def _first_store(loop: Parallel) -> Store | None:
    """The store of an element of a tile at the variables of ``loop``, which go over all of it and touch it
    nowhere before."""
    sizes = tuple(map(int_value, loop.extents))
    for number, stmt in enumerate(loop.body):
        if not isinstance(stmt, Store) or is_global(stmt.buffer) or not same_all(stmt.indices, loop.vars):
            continue
        whole = None not in sizes and sizes == tuple(map(int_value, stmt.buffer.shape))
        return stmt if whole and not any(touches(it, stmt.buffer) for it in loop.body[:number]) else None
    return None


def _hides(value: Expr, other: Expr, tile: Var) -> Expr | None:
    """The side of a choice in place of the element of ``tile``, or the infinite one of two constants."""
    sides = [side for side in (value, other) if not reads(side, {tile})]
    if len(sides) == 1:
        return sides[0]
    infinite = [side for side in sides if isinstance(side, tirx.FloatImm) and math.isinf(side.value)]
    return infinite[0] if len(infinite) == 1 else None


def _reach(seen: Expr, variables: tuple[Var, ...], own: set[Var]) -> Expr | None:
    """How many columns behind its row an element may lie where ``seen`` holds, by names from outside of the
    loop; None where it does not say."""
    for cond in conjuncts(seen):
        rest = _distance(cond, variables)
        if rest is not None and not uses(rest, own) and next(loads(rest), None) is None:
            return sym.Analyzer().simplify(rest - 1)
    return None


def _distance(cond: Expr, variables: tuple[Var, ...]) -> Expr | None:
    """``d`` of a comparison that says column - row < d, in 64 bits."""
    if not isinstance(cond, COMPARE) or not dtype_of(cond.a).startswith("int"):
        return None
    positive = gap(type(cond)(cast_to(cond.a, "int64"), cast_to(cond.b, "int64")))
    factors = [] if positive is None else linear_in(positive, variables)
    if not factors or int_value(factors[0]) != 1 or int_value(factors[1]) != -1:
        return None
    return factors[2]
