"""Loops that put something else behind a column of each row become masks of rows.

    for i, j: S[i, j] = if_then_else(c * j + f(i) < e and ..., g(S[i, j]), other)

One comparison of a column with its row's limit takes the place of all conditions, and one with where its
row begins (a window). What such a loop computes of elements on chip (a scale, a slope, a bias) is a loop of
its own in front of the mask, and so is what it computes with elements of tensors that are one for all. So is
what other conditions choose (whether two tokens are of one document), and the trips in which the mask hides
nothing test these alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tvm import sym, tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.analysis.trips.cuts import conditions
from tilec.backends.cuda.attention.nodes import AttentionRoles, RowMask
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.backends.cuda.warp_roles.epilogue import call_name
from tilec.backends.cuda.warp_roles.strategy import rewrite_roles, with_roles
from tilec.ir.exprs import all_of, dtype_of, inlined, int_value, linear_in, loads, same_all, uses
from tilec.ir.nodes import Bind, Block, Pipelined, Stmt, Store, is_global
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.conditions import gap, opposite
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.access import exists
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Kernel, Launch
    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target


#: The column from which on a condition fails, and the one up to which it does; None where there is none.
Bounds: TypeAlias = "tuple[Expr | None, Expr | None]"
#: A condition, what is chosen where it holds, and elsewhere.
Side: TypeAlias = "tuple[Expr, Expr, Expr]"


class FindMasks(Pass):
    """In: AttentionRoles with a Pipelined loop in its consumers. Out: RowMask in it for what loops mask of
    columns."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with the masks of its roles."""

        def masked(launch: Launch, roles: AttentionRoles) -> Launch:
            consumer = _Masks(kernel, launch).block(roles.consumer)
            return with_roles(launch, replace(roles, consumer=consumer))

        return rewrite_roles(kernel, AttentionRoles, masked)


class _Masks(ScopedRewrite):
    """Finds the masks of a consumer's loop."""

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A statement; a loop over trips with its masks."""
        if not isinstance(stmt, Pipelined):
            return super().stmt(stmt)
        return [replace(stmt, body=tuple(new for inner in stmt.body for new in _parted(inner, self.facts)))]


def _parted(stmt: Stmt, facts: Facts) -> Block:
    """What a loop over a whole fragment computes, and the mask behind it; any other statement as it is."""
    if not isinstance(stmt, ThreadLoop) or (choice := choice_in(stmt)) is None:
        return (stmt,)
    store, sides = choice
    found = [
        made for holds, kept, other in sides if (made := _masked(stmt, store, holds, kept, other, facts))
    ]
    found.sort(key=lambda made: made[0].begin is not None)
    return found[0][1] if found else (stmt,)


def _masked(
    loop: ThreadLoop, store: Store, holds: Expr, kept: Expr, other: Expr, facts: Facts
) -> tuple[RowMask, Block] | None:
    """The mask that puts ``other`` where ``holds`` fails, and it behind a loop that stores ``kept``, or alone
    where that is what is there."""
    column, columns = loop.vars[1], int_value(loop.extents[1]) or 0
    found = [(part, _bounds_of(part, column, columns)) for part in conditions(holds)]
    own = [part for part, bounds in found if bounds is not None]
    others = [part for part, bounds in found if bounds is None]
    read = [load.source for part in own for load in loads(part)]
    if (
        not any(uses(part, (column,)) for part in own)
        or store.buffer in read
        or uses(other, loop.vars)
        or not _may_be_read(kept, loop, facts)
    ):
        return None
    if others:
        kept = tirx.if_then_else(all_of(others), kept, other)
    limit, begin = _joint([bounds for _, bounds in found if bounds is not None], columns)
    names = zip(("limit", "begin"), (limit, begin), strict=True)
    binds = tuple(Bind(tirx.Var(name, dtype_of(at)), at) for name, at in names if at is not None)
    mask = RowMask(whole_tile(store.buffer), loop.vars[0], binds, other, loc=loop.loc)
    if is_own(kept, store):
        return mask, (mask,)
    return mask, (replace(loop, body=(replace(store, value=kept),)), mask)


def _may_be_read(value: Expr, loop: ThreadLoop, facts: Facts) -> bool:
    """Whether a value may as well be computed where a mask hides it: it reads no tensor, or an element that
    is one for all of the loop and is there."""
    read = [load for load in loads(value) if is_global(load.source)]
    return all(not uses(load, loop.vars) and exists(load, facts) for load in read)


def choice_in(loop: ThreadLoop) -> tuple[Store, tuple[Side, Side]] | None:
    """The store of a loop over a whole fragment that chooses for each element, and the choice both ways; None
    of another loop."""
    store = _only_store(loop.body) if len(loop.vars) == 2 else None
    if store is None or not same_all(store.indices, loop.vars):
        return None
    value = inlined(store.value, values_of(loop.body))
    if call_name(value) != "if_then_else":
        return None
    cond, first, second = value.args
    return store, ((cond, first, second), (opposite(cond), second, first))


def _only_store(body: Block) -> Store | None:
    """The one store of a block that otherwise binds names."""
    *names, last = body
    plain = isinstance(last, Store) and all(isinstance(stmt, Bind) for stmt in names)
    return last if plain else None  # type: ignore[return-value]


def is_own(value: Expr, store: Store) -> bool:
    """Whether a value is the element that a store replaces."""
    own = isinstance(value, TensorLoad) and value.source.same_as(store.buffer)
    return own and same_all(tuple(value.indices), store.indices)


def _joint(bounds: Sequence[Bounds], columns: int) -> tuple[Expr, Expr | None]:
    """The first column for which one of several conditions fails from there on, and the one up to which one
    does, None where they hold from the first one on."""
    limit: Expr | None = None
    begin: Expr | None = None
    for end, start in bounds:
        limit, begin = _joined(tirx.Min, limit, end), _joined(tirx.Max, begin, start)
    return (tirx.const(columns, dtype_of(begin)) if limit is None else limit), begin


def _joined(kind: Callable[[Expr, Expr], Expr], one: Expr | None, other: Expr | None) -> Expr | None:
    if one is None or other is None:
        return other if one is None else one
    return kind(one, other)


def _bounds_of(cond: Expr, column: Var, columns: int) -> Bounds | None:
    """The bounds of one comparison; where rows alone tell, all columns or none. None where that is open."""
    room = gap(cond)
    if room is None:
        return None
    if not uses(room, (column,)):
        dtype = dtype_of(room)
        return tirx.Select(cond, tirx.const(columns, dtype), tirx.const(0, dtype)), None
    linear = linear_in(room, [column])
    factor = int_value(linear[0]) if linear else None
    if not linear or factor not in (-1, 1):
        return None
    analyzer = sym.Analyzer()
    return (analyzer.simplify(linear[1]), None) if factor == -1 else (None, analyzer.simplify(1 - linear[1]))
