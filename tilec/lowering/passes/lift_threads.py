"""Loops in which the threads of a block share out the elements of a tile are loops over the tile.

for r in serial(4):
    for v in vectorized(8): x[v] = X[(r * 256 + tx) // 8, tx % 8 * 8 + v]
    for v in serial(8): y[v] = f(x[v])
    for v in vectorized(8): tile[(r * 256 + tx) // 8, tx % 8 * 8 + v] = y[v]
->
for i, j in parallel(128, 64): tile[i, j] = f(X[i, j])

What a thread keeps in arrays of its own between such loops is computed where it is stored. Of long values
parts get names there: names that others use twice would double each time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.analysis.known_trips import counts_from_zero
from tilec.ir.analysis.outermost import outermost
from tilec.ir.exprs import (
    cast_to,
    conjuncts,
    dtype_of,
    inlined,
    int_value,
    length,
    loads,
    reads,
    same_all,
    substitute,
    transform,
    uses,
    variables_of,
)
from tilec.ir.nodes import (
    PRODUCTS,
    Alloc,
    Atomic,
    Bind,
    Block,
    For,
    If,
    Launch,
    Stmt,
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import Group
from tilec.ir.nodes.threads import LANE_PRODUCTS, PER_THREAD, Lane, Return, Sync, ThreadReduce
from tilec.ir.traits import mentioned, read
from tilec.lowering.analysis.uses import written_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks
from tilec.lowering.tile_axes import over_axes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from tvm.ir import Expr, Var

#: What only threads do.
_OF_THREADS = (Lane, Return, ThreadReduce, Atomic, Group, *LANE_PRODUCTS)
#: Subexpressions of values that are written out where they are used; longer ones get a name.
_LONG = 64


class LiftThreads(LaunchPass):
    """In: launches. Out: one that multiplies tiles, and names its threads for nothing but to share out the
    elements of shared tiles, names none: each such nest of loops is a Parallel over the tile."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without its threads; as it is where they do something else, too."""
        if not launch.thread_vars or not any(isinstance(stmt, PRODUCTS) for stmt in walk(launch.body)):
            return launch
        try:
            body = _bare(_Lifting(launch).block(launch.body))
        except _Stays:
            return launch
        return launch if _names_threads(body, launch) else replace(launch, thread_vars=(), body=body)


class _Stays(Exception):
    """A launch is left as it is."""


@dataclass(frozen=True)
class _Array:
    """What a thread keeps in an array: ``value`` at ``vars``, in the trips of the loops ``around``; ``known``
    are values at other indices that have been asked for."""

    vars: tuple[Var, ...]
    value: Expr
    around: frozenset[Var]
    known: list[tuple[tuple[Expr, ...], Expr]] = field(default_factory=list)


@dataclass(frozen=True)
class _Nest:
    """Where a statement stands: in loops over ``vars`` with so many trips, on conditions."""

    vars: tuple[Var, ...] = ()
    extents: tuple[int, ...] = ()
    conds: tuple[Expr, ...] = ()


class _Lifting:
    """Rewrites the body of one launch."""

    def __init__(self, launch: Launch) -> None:
        grid = list(zip(launch.thread_vars, launch.threads, strict=True))
        self._threads = {var: count for var, count in grid if count != 1}
        self._names: dict[Var, Expr] = {var: tirx.const(0, "int32") for var, count in grid if count == 1}
        self._arrays: dict[Var, _Array] = {}
        self._long: dict[Var, Expr] = {}

    def block(self, block: Block) -> Block:
        """A block of tiles with its loops of threads lifted."""
        outer, self._arrays = self._arrays, {}
        made: list[Stmt] = []
        for stmt in block:
            lifted = self._lifted(stmt, _Nest()) if self._is_of_threads(stmt) else None
            if isinstance(stmt, Bind) and next(loads(stmt.value), None) is None:
                self._name(stmt)
            if lifted is None:
                lifted = [with_children(stmt, [self.block(inner) for inner in children(stmt)])]
            elif _reads_its_own(lifted):
                raise _Stays
            made += lifted
            self._forget(written_in(tuple(lifted)))
        self._arrays = outer
        return tuple(made)

    def _is_of_threads(self, stmt: Stmt) -> bool:
        """Whether a nest of loops has to do with threads or their arrays."""
        if not isinstance(stmt, (For, If, Store)):
            return False
        found = set().union(*(mentioned(inner) for inner in walk((stmt,))))
        own = any(tirx.is_buffer_var(var) and var.scope() in PER_THREAD for var in found)
        values = (self._names.get(var, var) for var in found)
        return own or any(uses(part, self._threads) for part in self._whole(values))

    def _forget(self, changed: set[Var]) -> None:
        """Arrays whose values read what a statement has changed are not known any more."""
        self._arrays = {
            tile: held
            for tile, held in self._arrays.items()
            if not any(reads(part, changed) for part in self._whole([held.value]))
        }

    def _lifted(self, stmt: Stmt, nest: _Nest) -> list[Stmt] | None:
        """What a nest stores as loops over tiles; None where it does something else, too."""
        if isinstance(stmt, Bind):
            self._name(stmt)
            return []
        if isinstance(stmt, If) and not stmt.orelse:
            inner = replace(nest, conds=(*nest.conds, self._known(stmt.cond)))
            return self._all_lifted(stmt.then, inner)
        if isinstance(stmt, For) and counts_from_zero(stmt) and int_value(stmt.stop):
            return self._trips(stmt, nest)
        if not isinstance(stmt, Store):
            return None
        return self._keep(stmt, nest) if stmt.buffer.scope() in PER_THREAD else self._stored(stmt, nest)

    def _trips(self, loop: For, nest: _Nest) -> list[Stmt] | None:
        extents = (*nest.extents, int_value(loop.stop) or 0)
        made = self._all_lifted(loop.body, replace(nest, vars=(*nest.vars, loop.var), extents=extents))
        self._arrays = {tile: held for tile, held in self._arrays.items() if loop.var not in held.around}
        return made

    def _all_lifted(self, block: Block, nest: _Nest) -> list[Stmt] | None:
        made: list[Stmt] = []
        for stmt in block:
            lifted = self._lifted(stmt, nest)
            if lifted is None:
                return None
            made += lifted
            self._forget(written_in(tuple(lifted)))
        return made

    def _keep(self, store: Store, nest: _Nest) -> list[Stmt]:
        """Learns what an array holds that a nest fills."""
        own, dtype = tuple(map(self._known, store.indices)), str(store.buffer.dtype)
        extents = dict(zip(nest.vars, nest.extents, strict=True))
        sizes = [int_value(size) for size in store.buffer.shape]
        value = _held(self._known(store.value), dtype)
        filled = [extents.get(var) for var in own] == sizes and len(set(own)) == len(own)
        if not filled or nest.conds or store.buffer.scope() == "local.var":
            raise _Stays
        self._arrays[store.buffer] = _Array(own, value, frozenset(nest.vars) - set(own))
        return []

    def _stored(self, store: Store, nest: _Nest) -> list[Stmt]:
        """The loop over the tile that a nest of threads fills."""
        indices, value = tuple(map(self._known, store.indices)), self._known(store.value)
        if self._parts([*indices, *nest.conds]):
            raise _Stays
        grid, conds = _narrowed(dict(zip(nest.vars, nest.extents, strict=True)) | self._threads, nest.conds)
        moving = {
            var: extent for var, extent in grid.items() if any(uses(index, (var,)) for index in indices)
        }
        still = [var for var in grid if var not in moving]
        flat = replace(store, indices=indices, value=_computed(value, str(store.buffer.dtype)))
        whole = list(self._whole([value]))
        tiles = [None] if store.buffer.scope() == "shared.dyn" else _shared_elements(whole)
        if not moving or any(uses(expr, still) for expr in (*whole, *conds)):
            raise _Stays
        flat, names = self._with_names(flat)
        made = (over_axes(flat, list(moving), list(moving.values()), conds, tile, names) for tile in tiles)
        loop = next(filter(None, made), None)
        if loop is None:
            raise _Stays
        return [loop]

    def _known(self, expr: Expr) -> Expr:
        """An expression without names, and with the values of arrays in place of their elements."""

        def visit(node: Expr) -> Expr | None:
            if not isinstance(node, TensorLoad) or node.source.scope() not in PER_THREAD:
                return None
            held = self._arrays.get(node.source)
            if held is None:
                raise _Stays
            return self._element(held, tuple(self._known(index) for index in node.indices))

        return transform(inlined(expr, self._names), visit)

    def _element(self, held: _Array, at: tuple[Expr, ...]) -> Expr:
        """What an array holds at indices; parts of it have names of their own at each."""
        found = next((value for indices, value in held.known if same_all(indices, at)), None)
        if found is None:
            values = dict(zip(held.vars, at, strict=True))
            for name, part in self._parts([held.value]).items():
                if uses(part, values):
                    values[name] = self._brief(substitute(part, values), str(name.name))
            found = substitute(held.value, values)
            held.known.append((at, found))
        return found

    # ---- names of long values ----

    def _name(self, bind: Bind) -> None:
        """Learns what a name stands for."""
        self._names[bind.var] = self._brief(self._known(bind.value), str(bind.var.name))

    def _brief(self, value: Expr, name: str) -> Expr:
        """A value; of a long one a name, which loops that use it bind."""
        if length(value, {}) <= _LONG:
            return value
        own = tirx.Var(name, dtype_of(value))
        self._long[own] = value
        return own

    def _parts(self, exprs: Iterable[Expr]) -> dict[Var, Expr]:
        """The names of long values in expressions, with these, each behind those that it uses."""
        found: dict[Var, Expr] = {}

        def add(exprs: Iterable[Expr]) -> None:
            for var in variables_of(exprs):
                if var in self._long and var not in found:
                    add([self._long[var]])
                    found[var] = self._long[var]

        add(exprs)
        return found

    def _whole(self, exprs: Iterable[Expr]) -> Iterator[Expr]:
        """Expressions, and what the names in them stand for."""
        given = list(exprs)
        yield from (*given, *self._parts(given).values())

    def _with_names(self, store: Store) -> tuple[Store, dict[Var, Expr]]:
        """A store whose value has names that no other loop binds, and what these stand for."""
        own: dict[Var, Expr] = {}
        names: dict[Var, Expr] = {}
        for name, part in self._parts([store.value]).items():
            own[name] = again = tirx.Var(str(name.name), dtype_of(name))
            names[again] = substitute(part, own)
        return replace(store, value=substitute(store.value, own)), names


def _held(value: Expr, dtype: str) -> Expr:
    """What an array of a type holds of a value: what is computed of small floats is rounded once, as it is
    stored."""
    if "float" not in dtype or element_bytes(dtype) > 2 or isinstance(value, (TensorLoad, tirx.Cast)):
        return cast_to(value, dtype)
    return tirx.Cast(dtype, tirx.Cast("float32", value))


def _computed(value: Expr, dtype: str) -> Expr:
    """A value that is stored in a type: an array's own rounding is that of the store."""
    inner = value.value if isinstance(value, tirx.Cast) and dtype_of(value) == dtype else None
    return inner.value if isinstance(inner, tirx.Cast) and dtype_of(inner.value) == dtype else value


def _narrowed(grid: Mapping[Var, int], conds: Sequence[Expr]) -> tuple[dict[Var, int], list[Expr]]:
    """The variables of a nest with as many values as conditions leave them, and the conditions left."""
    made = dict(grid)
    left: list[Expr] = []
    for cond in (part for each in conds for part in conjuncts(each)):
        bound = int_value(cond.b) if isinstance(cond, tirx.LT) else None
        if bound is not None and cond.a in made:
            made[cond.a] = min(made[cond.a], bound)
        else:
            left.append(cond)
    return made, left


def _shared_elements(exprs: Iterable[Expr]) -> list[TensorLoad | None]:
    """The elements of shared tiles in expressions."""
    return [load for expr in exprs for load in loads(expr) if load.source.scope() == "shared.dyn"]


def _reads_its_own(lifted: Sequence[Stmt]) -> bool:
    """Whether loops that were one nest read what another one of them, or they themselves, store."""
    changed = written_in(tuple(lifted))
    return any(buffer in changed for loop in lifted for stmt in walk((loop,)) for buffer in read(stmt))


def _bare(body: Block) -> Block:
    """A body of tiles without barriers of its threads, and without names and arrays that nothing uses."""

    def bare(block: Block) -> list[Stmt]:
        return [stmt for stmt in block if not isinstance(stmt, Sync) and not _is_unused(stmt, body)]

    made = rewrite_blocks(body, bare)
    return made if len(list(walk(made))) == len(list(walk(body))) else _bare(made)


def _is_unused(stmt: Stmt, body: Block) -> bool:
    if isinstance(stmt, Bind):
        return not any(stmt.var in mentioned(other) for other in walk(body) if other is not stmt)
    if not isinstance(stmt, Alloc) or stmt.buffer.scope() not in PER_THREAD:
        return False
    return not any(stmt.buffer in mentioned(other) for other in walk(body) if other is not stmt)


def _names_threads(body: Block, launch: Launch) -> bool:
    """Whether threads do something for themselves, or on their own account."""
    names = set(launch.thread_vars)
    named = any(mentioned(stmt) & names for stmt in walk(body))
    return named or any(isinstance(stmt, _OF_THREADS) for stmt in outermost(body))
