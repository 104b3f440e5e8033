"""Fragments that lie in registers as a product's sums do, because loops compute one from the other.

C += A B; for i, j: S[i, j] = exp(C[i, j])    ->    S is held as C is; T[j, i] = S[i, j] is held across
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.loops import loop_lines
from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.nodes import TensorSums, WarpGemm
from tilec.ir.nodes import Copy, Parallel, Stmt
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Var

#: How a transposed place takes the axes of another one.
_ALIKE_ACROSS = -1


def sums_in(stmts: Iterable[Stmt]) -> set[Var]:
    """The fragments in which products leave their sums."""
    found: set[Var] = set()
    for stmt in stmts:
        if isinstance(stmt, WarpGemm):
            found.add(stmt.c.buffer)
        elif isinstance(stmt, TensorSums):
            found.add(stmt.dst.buffer)
    return found


def held_alike(stmts: Iterable[Stmt], sums: Set[Var]) -> set[Var]:
    """``sums`` and the fragments of their shape whose elements loops compute from theirs, place by place."""
    loops = [loop for stmt in stmts for loop in _loops(stmt)]
    found: set[Var] = set()
    more = set(sums)
    while more:
        found |= more
        more = {made for loop in loops for made in _made_from(loop, found)} - found
    return found


def held_across(stmts: Iterable[Stmt], held: Set[Var]) -> set[Var]:
    """The fragments of matrices whose elements loops compute from those of ``held`` at the transposed place,
    and others that are held like these."""
    loops = [loop for stmt in stmts for loop in _loops(stmt)]
    across = {made for loop in loops for made in _made_from(loop, held, _ALIKE_ACROSS)} - held
    return held_alike(loops, across)


def _loops(stmt: Stmt) -> Iterator[Parallel]:
    made = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
    if isinstance(made, Parallel):
        yield made


def _made_from(loop: Parallel, found: Set[Var], step: int = 1) -> Iterator[Var]:
    """The fragments that a loop writes where it reads those of ``found``, whose axes it takes by ``step``."""
    items = [item for item in accesses(loop.body) if item.buffer.scope() == "local.fragment"]
    read = [item for item in items if not item.is_write and item.buffer in found]
    for item in items:
        if item.is_write and any(_alike(item, other, loop, step) for other in read):
            yield item.buffer


def _alike(item: Access, other: Access, loop: Parallel, step: int) -> bool:
    """Whether two accesses name the same place of tiles of one shape, on lines of the loop, or with a
    ``step`` of -1 the transposed place."""
    place, source = loop_lines(item, loop), loop_lines(other, loop)
    if place is None or source is None or (step != 1 and len(place) != 2):
        return False
    same = static_extents(item.buffer) == static_extents(other.buffer)[::step]
    return same and place == source[::step]
