"""Products with few rows are computed transposed: ``C.T = B.T @ A.T``.

wgmma takes 64 rows at least and 8 columns: with 16 tokens and thousands of features the features had better
be its rows (16 x 14336 x 4096 on an H200: 29.9 us so, 35.0 with a tile of 64 rows that is mostly empty).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.turned_sums import with_transposed
from tilec.backends.cuda.analysis.products.wgmma import ROWS
from tilec.backends.cuda.matmul.match.launch import Match, match
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.nodes import Copy, Parallel, Stmt
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tilec.ir.nodes import Launch


def swapped(launch: Launch, few_rows: bool = False) -> Launch | None:
    """``launch`` with its product transposed; None where it is no product that can be, or (``few_rows``) has
    rows enough."""
    try:
        found = match(launch)
    except Unfit:
        return None  # whoever plans roles says why
    enough = all(rows % (ROWS * found.warpgroups) == 0 for rows, _ in found.shapes)
    if not can_swap(found) or (few_rows and enough):
        return None
    made = with_transposed(launch, [alloc.buffer for alloc in found.fragments])
    return replace(made, body=tuple(map(_reversed, made.body)))


def can_swap(found: Match) -> bool:
    """Whether all that touches the sums is turned with them."""
    return found.guard is None and found.promotion is None


def _reversed(stmt: Stmt) -> Stmt:
    """A loop over elements that goes along rows of what is transposed."""
    loop = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
    if not isinstance(loop, Parallel):
        return stmt
    return replace(loop, vars=loop.vars[::-1], extents=loop.extents[::-1])
