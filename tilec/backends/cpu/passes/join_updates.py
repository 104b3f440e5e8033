"""Atomic updates of one element by many iterations of a block are joined in a tile: one update for each.

for i, j in parallel(8, 512): atomic_add(Y[b * 8 + i], X[b * 8 + i, j])
->
for i in parallel(8): part[i] = 0
for i, j in parallel(8, 512): part[i] = part[i] + X[b * 8 + i, j]
for i in parallel(8): atomic_add(Y[b * 8 + i], part[i])

Several threads update an element of a tensor one after the other, each by an instruction that waits for the
element's line. What a block adds up for itself takes vectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import (
    all_of,
    cast_to,
    conjuncts,
    dtype_of,
    inlined,
    int_value,
    loads,
    reads,
    uses,
)
from tilec.ir.nodes import Alloc, Atomic, Block, For, If, Parallel, Stmt, Store, children, is_global, walk
from tilec.ir.traits import buffers, defined, expressions, written
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.accumulations import identity
from tilec.lowering.analysis.owned_elements import ends_of
from tilec.lowering.analysis.updates import UPDATES, combined
from tilec.lowering.emission.storage import compute_type
from tilec.lowering.passes.base import BlockPass, rewrite_blocks
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    Loops = tuple[tuple[Var, int | Expr], ...]

#: Those that 0 changes nothing of: one more of them where a branch was never taken.
_HARMLESS = ("add", "or")
#: Elements of a tensor that a block joins its updates of, at most: what a first-level cache holds.
_MOST = 8192


class JoinUpdates(BlockPass):
    """In: loops with atomic updates of tensors, of which iterations share elements. Out: loops that add up in
    tiles of the block, whose elements are the updates behind them."""

    def block(self, block: Block) -> list[Stmt]:
        """The block with such loops rewritten."""
        return [new for stmt in block for new in _joined(stmt)]


@dataclass(frozen=True, eq=False)
class _Update:
    """An update of a nest, and the conditions that it is under. Of the ``loops`` around it the variables of
    those in ``kept`` say which element it is."""

    atomic: Atomic
    loops: Loops
    conds: tuple[Expr, ...]
    kept: Loops = ()


def _joined(nest: Stmt) -> list[Stmt]:
    if not isinstance(nest, (For, Parallel)):
        return [nest]
    names = values_of(walk((nest,)))
    found = [shared for each in _updates((nest,), (), ()) if (shared := _shared(each, nest, names))]
    parts = [_Part(update, names) for update in found]
    for part in parts:
        (nest,) = rewrite_blocks((nest,), part.added)
    return [*(stmt for part in parts for stmt in part.begin()), nest, *(part.end() for part in parts)]


# ---- which updates ----


def _updates(block: Block, loops: Loops, conds: tuple[Expr, ...]) -> Iterator[_Update]:
    """The updates of a block, with what is around them."""
    for stmt in block:
        if isinstance(stmt, Atomic):
            yield _Update(stmt, loops, conds)
        elif isinstance(stmt, If):
            yield from _updates(stmt.then, loops, (*conds, *conjuncts(stmt.cond)))
            yield from _updates(stmt.orelse, loops, (*conds, tirx.Not(stmt.cond)))
        else:
            inside = (*loops, *ends_of((stmt,)))
            for inner in children(stmt):
                yield from _updates(inner, inside, conds)


def _shared(update: _Update, nest: Stmt, names: Mapping[Var, Expr]) -> _Update | None:
    """An update of elements that iterations share, with what says where behind the nest; None for another."""
    atomic = update.atomic
    if not _may_wait(atomic, nest):
        return None
    indices = [inlined(index, names) for index in atomic.indices]
    kept = tuple(loop for loop in update.loops if any(uses(index, loop[:1]) for index in indices))
    several = any(int_value(count) != 1 for var, count in update.loops if (var, count) not in kept)
    if not several or not _fits(kept) or not all(_stands(index, kept, nest) for index in indices):
        return None
    conds = [inlined(cond, names) for cond in update.conds]
    stable = tuple(cond for cond in conds if _stands(cond, kept, nest))
    if len(stable) < len(conds) and atomic.kind not in _HARMLESS:
        return None
    return replace(update, conds=stable, kept=kept)


def _may_wait(atomic: Atomic, nest: Stmt) -> bool:
    """Whether nothing in ``nest`` sees when an update happens."""
    plain = atomic.kind in UPDATES and atomic.prev is None and atomic.order == "relaxed"
    if not plain or not is_global(atomic.buffer):
        return False
    touching = [stmt for stmt in walk((nest,)) if atomic.buffer in buffers(stmt)]
    return all(isinstance(stmt, Atomic) and _only_updates(stmt, atomic) for stmt in touching)


def _only_updates(stmt: Atomic, atomic: Atomic) -> bool:
    """Whether a statement does to the tensor of an update what the update does, in any order with it."""
    alike = stmt.kind == atomic.kind and stmt.prev is None and stmt.buffer.same_as(atomic.buffer)
    return alike and not any(reads(expr, (atomic.buffer,)) for expr in expressions(stmt))


def _fits(kept: Loops) -> bool:
    sizes = [int_value(count) or _MOST + 1 for _, count in kept]
    return prod(sizes) <= _MOST


def _stands(expr: Expr, kept: Loops, nest: Stmt) -> bool:
    """Whether an expression means behind ``nest``, in loops over ``kept``, what it means inside."""
    own = {var for stmt in walk((nest,)) for var in defined(stmt)} - {var for var, _ in kept}
    changed = {buffer for stmt in walk((nest,)) for buffer in (*written(stmt), *defined(stmt))}
    return not uses(expr, own) and not any(load.source in changed for load in loads(expr))


# ---- what becomes of them ----


class _Part:
    """What a block comes to of an update: an element for each iteration of the loops that are kept."""

    def __init__(self, update: _Update, names: Mapping[Var, Expr]) -> None:
        self._update, self._names, atomic = update, names, update.atomic
        self._dtype = compute_type(str(atomic.buffer.dtype))
        sizes = [int_value(count) for _, count in update.kept] or [1]
        scope = "local.fragment" if update.kept else "local.var"
        self._tile = tirx.decl_buffer(sizes, self._dtype, f"{atomic.buffer.name}_part", scope=scope)
        self._at = tuple(var for var, _ in update.kept) or (tirx.const(0, "int32"),)

    def begin(self) -> list[Stmt]:
        """The statements in front of the nest."""
        kind, loc = self._update.atomic.kind, self._update.atomic.loc
        nothing = identity("sum" if kind in _HARMLESS else kind, self._dtype)
        if not self._update.kept:
            return [Alloc(self._tile, nothing, loc=loc)]
        return [Alloc(self._tile, loc=loc), self._each((Store(self._tile, self._at, nothing, loc=loc),))]

    def added(self, block: Block) -> Block:
        """A block with a store to the tile in the place of the update."""
        return tuple(self._store() if stmt is self._update.atomic else stmt for stmt in block)

    def _store(self) -> Stmt:
        atomic, old = self._update.atomic, tirx.BufferLoad(self._tile, list(self._at))
        value = cast_to(atomic.value, self._dtype)
        return Store(self._tile, self._at, combined(atomic.kind, old, value), loc=atomic.loc)

    def end(self) -> Stmt:
        """The updates behind the nest."""
        atomic, conds = self._update.atomic, self._update.conds
        total = cast_to(tirx.BufferLoad(self._tile, list(self._at)), str(atomic.buffer.dtype))
        indices = tuple(inlined(index, self._names) for index in atomic.indices)
        update: Stmt = replace(atomic, indices=indices, value=total)
        return self._each((If(all_of(list(conds)), (update,), loc=atomic.loc),) if conds else (update,))

    def _each(self, body: Block) -> Stmt:
        kept = self._update.kept
        if not kept:
            return body[0]
        names = {var: tirx.Var(str(var.name), dtype_of(var)) for var, _ in kept}
        counts = tuple(int_value(count) or 0 for _, count in kept)
        return Parallel(tuple(names.values()), counts, rename(body, names), loc=self._update.atomic.loc)
