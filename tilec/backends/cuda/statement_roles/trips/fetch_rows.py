"""Elements of tensors that a loop over a tile needs for whole rows or columns come to registers ahead of it.

    for k: W[i, j] = f(raw[i, j]) * scales[i, k]
    ->    n[i] = scales[i, 0]; for k: s[i] = n[i]; n[i] = scales[i, k + 1]; W[i, j] = f(raw[i, j]) * s[i]

An element may also be for some columns side by side (``scales[i, (k * 128 + j) // 32]``, four of a row), and
where the tile is shared, so that threads have few columns of it, for a column or some of all rows
(``scales[k, j]``, ``zeros[k, j // 8]``). What trips do not change is read in front of their loop, all else a
trip ahead. Blocks of one warpgroup share a multiprocessor with others, which compute while it waits, and have
few registers. They read what a product stands in front of as the trip begins, and ahead of a trip a number
for each of few rows alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, TypeGuard

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.nodes import BoxLoad
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.exprs import dtype_of, inlined, int_value, loads, same, substitute, transform, uses
from tilec.ir.nodes import Alloc, Block, For, Gemm, Launch, Parallel, Stmt, Store, walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.traits import defined
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.counted import counted
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: How many groups a row of columns may have.
_GROUPS = (2, 4, 8)
#: How many columns of all rows may share an element: numbers that are packed in a word, say.
_WIDTHS = (16, 8, 4, 2)
_TILES = ("local.fragment", "shared.dyn")
#: How many numbers one warpgroup reads a trip ahead.
_FEW = 64


class FetchRows(LaunchPass):
    """In: loops of consumer warpgroups with products, and in their trips loops over the elements of
    fragments and of shared tiles. Out: a fragment for each element of a tensor that such a loop reads by its
    first variable alone, or for a few groups of its second one; of shared tiles also by the second alone."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with what its rows need in registers; one without rings as it is."""
        if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
            return launch
        changed = changed_in(launch)

        def rewrite(is_wide: bool) -> Callable[[Block], list[Stmt]]:
            return lambda block: [part for stmt in block for part in _fetched(stmt, changed, is_wide)]

        body = [
            replace(stmt, body=rewrite_blocks(stmt.body, rewrite(stmt.count > WARPGROUP)))
            if _computes(stmt)
            else stmt
            for stmt in launch.body
        ]
        return replace(launch, body=tuple(body))


def _computes(stmt: Stmt) -> TypeGuard[Group]:
    """Whether a statement is a group of warpgroups."""
    return isinstance(stmt, Group) and stmt.count >= WARPGROUP


def _fetched(stmt: Stmt, changed: Set[Var], is_wide: bool) -> Block:
    """A loop of products behind what its rows need; any other statement as it is."""
    if not isinstance(stmt, For) or stmt.kind != "serial" or int_value(stmt.step) != 1:
        return (stmt,)
    if not any(isinstance(inner, Gemm) for inner in stmt.body):
        return (stmt,)
    own = {var for inner in walk(stmt.body) for var in defined(inner)}
    rows = _Rows(stmt, changed, own, is_wide)
    body = tuple(rows.stmt(inner) for inner in stmt.body)
    return (*rows.before, replace(stmt, body=(*rows.first, *body)))


@dataclass
class _Rows:
    """What a loop of ``trips`` reads of tensors by rows: what stands ``before`` it and ``first`` in a trip.
    ``own``: the names that a trip defines; ``is_wide``: several warpgroups run it; ``is_behind``: so far the
    trip has issued a product."""

    trips: For
    changed: Set[Var]
    own: Set[Var]
    is_wide: bool
    is_behind: bool = False
    before: list[Stmt] = field(default_factory=list)
    first: list[Stmt] = field(default_factory=list)
    found: list[tuple[Expr, _Places, Var]] = field(default_factory=list)

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement of a trip, in their order."""
        self.is_behind |= isinstance(stmt, Gemm)
        return self._loop(stmt) if isinstance(stmt, Parallel) else stmt

    def _loop(self, loop: Parallel) -> Parallel:
        """A loop over elements that reads rows from registers."""
        store = loop.body[-1]
        if len(loop.vars) != 2 or not isinstance(store, Store) or store.buffer.scope() not in _TILES:
            return loop
        names = values_of(loop.body)
        if len(names) + 1 != len(loop.body):
            return loop
        shared = store.buffer.scope() == "shared.dyn"

        def visit(node: Expr) -> Expr | None:
            return self._held(node, loop, names, shared) if isinstance(node, TensorLoad) else None

        body = tuple(replace(stmt, value=transform(stmt.value, visit)) for stmt in loop.body)  # type: ignore[attr-defined, call-arg]
        return replace(loop, body=body)

    def _held(self, load: TensorLoad, loop: Parallel, names: dict[Var, Expr], shared: bool) -> Expr | None:
        """The element of a row or a column in registers; None where a load is something else."""
        indices = [inlined(index, names) for index in load.indices]
        if load.source.scope() != "global" or load.source in self.changed:
            return None
        if any(uses(index, tuple(self.own - {*loop.vars})) for index in indices):
            return None
        if any(True for index in indices for _ in loads(index)):
            return None
        found = _places(indices, loop, shared)
        if found is None:
            return None
        place, places, indices = found
        if not (self.is_wide or self.is_behind) and math.prod(places.extents) > _FEW:
            return None
        return tirx.BufferLoad(self._fragment(load.source, indices, places, loop), place)

    def _fragment(self, tensor: Var, indices: list[Expr], places: _Places, loop: Parallel) -> Var:
        """The registers of an element by its place, each read once."""
        load = tirx.BufferLoad(tensor, indices)
        for known, others, fragment in self.found:
            if others.extents == places.extents and same(substitute(known, others.as_in(places)), load):
                return fragment
        made = places.fragment(tensor, "row")
        self.found.append((load, places, made))
        if not any(uses(index, (self.trips.var,)) for index in indices):
            self.before.extend((Alloc(made), _set(made, load, places, loop)))
            return made
        if not self.is_wide and self.is_behind:
            self.first.extend((Alloc(made), _set(made, load, places, loop)))
            return made
        ahead, one = places.fragment(tensor, "ahead"), tirx.const(1, dtype_of(self.trips.var))
        following = tirx.min(self.trips.var + one, self.trips.stop - one)
        begun = substitute(load, {self.trips.var: self.trips.start})
        self.before.extend((Alloc(made), Alloc(ahead), _set(ahead, begun, places, loop)))
        self.first.append(_set(made, tirx.BufferLoad(ahead, list(places.vars)), places, loop))
        self.first.append(_set(ahead, substitute(load, {self.trips.var: following}), places, loop))
        return made


@dataclass(frozen=True)
class _Places:
    """The variables of rows, or of rows and groups of columns, and their extents."""

    vars: tuple[Var, ...]
    extents: tuple[int, ...]

    def as_in(self, others: _Places) -> dict[Var, Expr]:
        """Other variables for these."""
        return dict(zip(self.vars, others.vars, strict=True))

    def fragment(self, tensor: Var, word: str) -> Var:
        """Registers for elements of a tensor."""
        return tirx.decl_buffer(
            self.extents, str(tensor.dtype), name=f"{tensor.name}_{word}", scope="local.fragment"
        )


def _places(
    indices: list[Expr], loop: Parallel, shared: bool
) -> tuple[list[Expr], _Places, list[Expr]] | None:
    """Where registers hold what stands at ``indices``, by rows, by rows and a few groups of columns or, of
    ``shared`` tiles, by columns or groups of them: the place, the variables of places, and ``indices`` in
    terms of these."""
    row, column = loop.vars
    by_row, by_column = (any(uses(index, (var,)) for index in indices) for var in loop.vars)
    if not by_column:
        return ([row], _Places((row,), loop.extents[:1]), indices) if by_row else None
    if not by_row and not shared:
        return None
    extent = int_value(loop.extents[1]) or 0
    counts = _GROUPS if by_row else [extent // width for width in _WIDTHS]
    found = _by_groups(indices, column, extent, counts)
    if found is None:
        return None if by_row else ([column], _Places((column,), loop.extents[1:]), indices)
    width, group, moved = found
    rows, sizes = ((row,), loop.extents[:1]) if by_row else ((), ())
    at = tirx.floordiv(column, tirx.const(width, dtype_of(column)))
    return [*rows, at], _Places((*rows, group), (*sizes, extent // width)), moved


def _by_groups(
    indices: list[Expr], column: Var, extent: int, counts: Sequence[int]
) -> tuple[int, Var, list[Expr]] | None:
    """How many columns side by side have the same places, the variable that counts these groups, the fewest
    of ``counts``, and the places by it; None where no groups have."""
    group, rest = (tirx.Var(f"{column.name}_{name}", dtype_of(column)) for name in ("group", "rest"))
    for count in (count for count in counts if count and extent % count == 0):
        width = extent // count
        analyzer = counted((group, rest), (count, width))
        inside = {column: group * tirx.const(width, dtype_of(column)) + rest}
        moved = [analyzer.simplify(substitute(index, inside)) for index in indices]
        if not any(uses(index, (rest,)) for index in moved):
            return width, group, moved
    return None


def _set(fragment: Var, value: Expr, places: _Places, loop: Parallel) -> Parallel:
    """Sets every element of a fragment, for a loop."""
    own = tuple(tirx.Var(str(var.name), dtype_of(var)) for var in places.vars)
    value = substitute(value, dict(zip(places.vars, own, strict=True)))
    return Parallel(own, places.extents, (Store(fragment, own, value, loc=loop.loc),), loc=loop.loc)
