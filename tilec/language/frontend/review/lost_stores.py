"""Stores of a parallel loop of which one alone is left: iterations of some axis store to the same element."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tilec.errors import Place, Remark
from tilec.ir import nodes as ir
from tilec.language.values.kernel.access import read_by

if TYPE_CHECKING:
    from tvm.ir import Var

#: Memory that the iterations of a loop share.
_SHARED = ("global", "global.workspace", "shared", "shared.dyn", "local.fragment")
#: What each variable that is bound in a loop's body is made of.
_Bound = Mapping[Any, frozenset[Any]]


def lost_stores(kernel: ir.Kernel) -> Iterator[Remark]:
    """A warning for each such store.

    An axis counts where the value depends on it, and neither the element nor a condition around the store
    does. What the loop reads, too, accumulates or is used before the next iteration; memory of one thread is
    skipped for that reason."""
    for stmt in ir.walk(kernel.body):
        if isinstance(stmt, ir.Parallel):
            axes = [var for var, extent in zip(stmt.vars, stmt.extents, strict=True) if not _is_one(extent)]
            used = frozenset(buffer for inner in ir.walk(stmt.body) for buffer in read_by(inner))
            for store, names in _stores(stmt.body, axes, _kept(stmt.body), frozenset(), used):
                yield _remark(kernel, stmt, store, names)


def _kept(body: ir.Block) -> _Bound:
    """What names that a loop's body binds, and variables and arrays of a thread that it stores to, are made
    of, in any trip of the loops inside."""
    made: dict[Any, frozenset[Any]] = {}
    before = None
    while made != before:
        before = dict(made)
        for stmt in ir.walk(body):
            if isinstance(stmt, ir.Bind):
                made[stmt.var] = _variables(stmt.value, made)
            elif isinstance(stmt, ir.Store) and stmt.buffer.scope() not in _SHARED:
                of = [_variables(part, made) for part in (stmt.value, *stmt.indices)]
                made[stmt.buffer] = made.get(stmt.buffer, frozenset()).union(*of)
    return made


def _is_one(extent: Any) -> bool:
    return isinstance(extent, int) and extent <= 1


def _stores(
    body: ir.Block, axes: list[Var], bound: _Bound, tested: frozenset[Any], used: frozenset[Any]
) -> Iterator[tuple[ir.Store, list[str]]]:
    """Stores and the names of the axes that they lose. ``tested``: variables that conditions around depend
    on; ``used``: buffers that the loop reads."""
    for stmt in body:
        if isinstance(stmt, ir.Store) and stmt.buffer not in used and stmt.buffer.scope() in _SHARED:
            lost = _lost(stmt, axes, bound, tested)
            yield from [(stmt, [str(var.name) for var in lost])] if lost else []
        branches = isinstance(stmt, (ir.If, ir.While))
        around = tested | (_variables(stmt.cond, bound) if branches else frozenset())  # type: ignore[attr-defined]
        for inner in () if isinstance(stmt, ir.Parallel) else ir.children(stmt):
            yield from _stores(inner, axes, bound, around, used)
        if any(isinstance(inner, (ir.Break, ir.Continue)) for inner in ir.walk((stmt,))):
            tested = around


def _lost(store: ir.Store, axes: list[Var], bound: _Bound, tested: frozenset[Any]) -> list[Var]:
    place = frozenset().union(*(_variables(index, bound) for index in store.indices))
    value = _variables(store.value, bound)
    return [axis for axis in axes if axis in value and axis not in place and axis not in tested]


def _variables(expr: Any, bound: _Bound) -> frozenset[Any]:
    """The variables that an expression depends on, through those that were bound."""
    from tvm.ir import Var

    from tilec.ir.exprs import loads, walk

    found = [part for part in walk(expr) if isinstance(part, Var)]
    found += [load.source for load in loads(expr)]
    return frozenset(found).union(*(bound[var] for var in found if var in bound))


def _remark(kernel: ir.Kernel, loop: ir.Parallel, store: ir.Store, names: list[str]) -> Remark:
    where = store.loc or loop.loc
    place = Place(where.file, where.line) if where else Place(kernel.name)
    every = " and ".join(names)
    what = f"every {every} stores another value to one element of {store.buffer.name}: one of them is left"
    remedy = f"index it by {every}, add to it, or store under a condition on {every}"
    return Remark(what, place, remedy)
