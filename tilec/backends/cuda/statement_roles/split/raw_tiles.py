"""Loads that compute bring what they read as it is, to raw tiles, of which those who compute make theirs.

T = float16(A[box])                  ->    raw = A[box]; T = float16(raw)
T[i, d] = float16(A[rows[i], d])     ->    raw[i, d] = A[rows[i], d]; T[i, d] = float16(raw[i, d])

So do vectors of a trip that come to registers from tensors (a mask of keys, a scale of each row), and those
that loops which make a tile of a loaded one read along its rows (a weight of each column).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from tvm import tirx
from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.analysis.accesses.gathers import store_of
from tilec.backends.cuda.analysis.layouts.tiles import is_whole, whole_tile
from tilec.backends.cuda.analysis.pipelines.loads_ahead import async_elements, load_of
from tilec.backends.cuda.statement_roles.boxes.loaded_boxes import tile_of_box
from tilec.backends.cuda.statement_roles.split.loads import filled, is_loop, is_small
from tilec.backends.cuda.warp_roles.tma import LARGEST_BOX
from tilec.ir.exprs import dtype_of, each_once, inlined, int_value, loads, substitute, uses
from tilec.ir.nodes import (
    PRODUCTS,
    Alloc,
    Copy,
    Kernel,
    Launch,
    Parallel,
    Region,
    Stmt,
    Store,
    children,
    walk,
)
from tilec.ir.traits import defined, loads_of
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.counted import counted
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import used_in
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.passes.expand_copies import expand_copy
from tilec.lowering.rewrite import with_elements

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var

    from tilec.targets import Target

#: More elements than any row has.
_ENDLESS = 1 << 30


def with_raw_tiles(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    """A launch whose loops bring boxes of tensors to raw tiles before they compute a shared tile of them, and
    rows that they look up where a multiprocessor holds one block at any rate: several of them wait for memory
    in turns (H200, us: attention to 2048 rows of float8 and 512 columns 220 for 390, to such of int8 and 128
    columns 274 for 117)."""
    rewrite = _RawTiles(kernel, launch, _is_alone(launch, target))
    body = rewrite.block(launch.body)
    return replace(launch, body=(*map(Alloc, rewrite.tiles), *body)) if rewrite.tiles else launch


def is_read_first(tile: Var, trip: Stmt) -> bool:
    """Whether nothing reads a tile behind the first product of a trip: a ring of one stage is filled for the
    next trip while that runs."""
    (body,) = children(trip)
    products = (place for place, stmt in enumerate(body) if _multiplies(stmt))
    behind = body[next(products, 0) :]
    return tile not in used_in(behind)


def _multiplies(stmt: Stmt) -> bool:
    return any(isinstance(inner, PRODUCTS) for inner in walk((stmt,)))


def _is_alone(launch: Launch, target: Target) -> bool:
    """Whether a multiprocessor has the shared memory for one block alone."""
    assert target.gpu is not None
    allocs = (stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc))
    taken = sum(tile_bytes(stmt) for stmt in allocs if stmt.buffer.scope() == "shared.dyn")
    return 2 * taken > target.gpu.shared_bytes


class _RawTiles(ScopedRewrite):
    """Splits the loads of one launch; ``looked_up``: of rows that a list names, too."""

    def __init__(self, kernel: Kernel, launch: Launch, looked_up: bool) -> None:
        super().__init__(kernel, launch)
        self._looks_up = looked_up
        self.tiles: list[Var] = []
        self._values = values_of(walk(launch.body))
        self._loops: list[tuple[Var, ...]] = []

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A load of a loop, split."""
        tile = filled(stmt)
        if self._loops and (_fills_fragment(stmt) if tile is None else not is_small(tile)):
            return self._split(stmt)
        if self._loops and tile is None and _makes_tile(stmt):
            return self._split(stmt, self._is_of_columns)
        if not is_loop(stmt):
            return super().stmt(stmt)
        self._loops.append(defined(stmt))
        made = super().stmt(stmt)
        self._loops.pop()
        return made

    def _is_of_columns(self, part: _Part, loop: Parallel) -> bool:
        """Whether a part is a vector along a loop's columns that is another one in each trip."""
        starts = [inlined(start, self._values) for start in part.box.start]
        return (
            [index.same_as(loop.vars[-1]) for index in part.indices] == [True]
            and part.box.extent[-1] == int_value(loop.extents[-1])
            and uses(starts[-1], self._loops[-1])
        )

    def _split(self, stmt: Stmt, chosen: Callable[[_Part, Parallel], bool] | None = None) -> list[Stmt]:
        as_it_is = _is_shared_copy(stmt) and str(stmt.src.buffer.dtype) == str(stmt.dst.buffer.dtype)  # type: ignore
        loop = expand_copy(stmt) if isinstance(stmt, Copy) else stmt
        if as_it_is or not isinstance(loop, Parallel) or self._is_gathered(stmt):
            return [stmt]
        gathers, loop = self._with_gathers(loop) if self._looks_up and chosen is None else ([], loop)
        parts = ((load, self._part(load, loop)) for load in _tensors(loop))
        found = {load: part for load, part in parts if part and (chosen is None or chosen(part, loop))}
        if not found:
            return [*gathers, loop] if gathers else [stmt]
        self.tiles += [part.tile for part in found.values()]
        copies = [Copy(part.box, whole_tile(part.tile), loc=stmt.loc) for part in found.values()]
        read = {load: tirx.BufferLoad(part.tile, list(part.indices)) for load, part in found.items()}
        return [*gathers, *copies, with_elements(loop, [*read.items()])]

    def _with_gathers(self, loop: Parallel) -> tuple[list[Parallel], Parallel]:
        """Loops that bring the rows which a loop looks up to raw tiles, where cp.async moves them, and the
        loop that reads these."""
        names = values_of(loop.body)
        gathers: list[Parallel] = []
        read: dict[TensorLoad, Expr] = {}
        for load in _tensors(loop):
            found = _gathered_rows(load, tuple(inlined(index, names) for index in load.indices), loop)
            if found is not None and self._is_gathered(found.copy):
                self.tiles.append(found.tile)
                gathers.append(found.copy)
                read[load] = found.element
        reading = with_elements(loop, [*read.items()]) if read else loop
        assert isinstance(reading, Parallel)
        return gathers, reading

    def _is_gathered(self, stmt: Stmt) -> bool:
        """Whether cp.async moves a load as it is."""
        load = load_of(stmt)
        return load is not None and async_elements(load, self._values, self.facts, None) != 0

    def _part(self, load: TensorLoad, loop: Parallel) -> _Part | None:
        """What a loop reads of a tensor, if it is a box that TMA brings."""
        names = values_of(loop.body)
        spans = _spans([inlined(index, names) for index in load.indices], loop)
        if not spans:
            return None
        box = Region(load.source, tuple(span.start for span in spans), tuple(span.size for span in spans))
        tile = tile_of_box(box, self._values, self.facts, "raw")
        indices = tuple(span.added for span in spans if span.size > 1)
        return None if tile is None else _Part(box, tile, indices)


class _Part(NamedTuple):
    """A box of a tensor, a raw tile of it, and where each iteration of a loop finds its element there."""

    box: Region
    tile: Var
    indices: tuple[Expr, ...]


def _spans(places: list[Expr], loop: Parallel) -> list[_Span]:
    """The indices that a loop goes to on each axis of a tensor; nothing where they are no box, or one with
    more elements than the loop reads, or with one alone."""
    spans = [_span(place, loop.vars, loop.extents) for place in places]
    known = [span for span in spans if span is not None and span.size <= LARGEST_BOX]
    total, size = (prod(int_value(extent) or 0 for extent in loop.extents), prod(span.size for span in known))
    return known if len(known) == len(spans) and 1 < size <= total else []


class _Span(NamedTuple):
    """The indices of an axis that a loop goes to: ``size`` of them from a start on, and what its variables
    add to that."""

    start: Expr
    added: Expr
    size: int


def _span(place: Expr, variables: Sequence[Var], extents: Sequence[int | Expr]) -> _Span | None:
    """None where something else is added, or less than nothing."""
    analyzer = counted(variables, [int_value(extent) or 1 for extent in extents])
    zeros = {var: tirx.const(0, dtype_of(var)) for var in variables}
    start = analyzer.simplify(substitute(place, zeros))
    added = analyzer.simplify(place - start)
    bound = analyzer.const_int_bound(added)
    if set(undefined_vars(added)) - set(variables) or bound.min_value or bound.max_value >= _ENDLESS:
        return None
    return _Span(start, added, bound.max_value + 1)


class _Rows(NamedTuple):
    """Rows of a tensor in a raw ``tile``, the loop that brings them, and where iterations find their
    element."""

    tile: Var
    copy: Parallel
    element: TensorLoad


def _gathered_rows(load: TensorLoad, places: tuple[Expr, ...], loop: Parallel) -> _Rows | None:
    """The rows that the first variable of a loop of two looks up, from a start on as far as the second one
    goes along them."""
    looked_up = any(next(loads(place), None) is not None for place in places[:-1])
    if len(loop.vars) != 2 or not looked_up:
        return None
    row, column = loop.vars
    along = _span(places[-1], (column,), loop.extents[1:])
    if along is None or along.size == 1 or any(uses(place, (column,)) for place in places[:-1]):
        return None
    tensor, shape = load.source, (loop.extents[0], along.size)
    tile = tirx.decl_buffer(shape, str(tensor.dtype), name=f"{tensor.name}_raw", scope="shared.dyn")
    own, other = (tirx.Var(str(var.name), dtype_of(var)) for var in loop.vars)
    rows = [substitute(place, {row: own}) for place in places[:-1]]
    store = Store(tile, (own, other), tirx.BufferLoad(tensor, [*rows, along.start + other]), loc=loop.loc)
    copy = Parallel((own, other), shape, (store,), loc=loop.loc)
    return _Rows(tile, copy, tirx.BufferLoad(tile, [row, along.added]))


def _is_shared_copy(stmt: Stmt) -> bool:
    return isinstance(stmt, Copy) and str(stmt.dst.buffer.scope()) == "shared.dyn"


def _fills_fragment(stmt: Stmt) -> bool:
    """Whether a statement sets a fragment from tensors, such as a mask of keys: threads would wait for memory
    in each trip."""
    if isinstance(stmt, Copy):
        dst = stmt.dst.buffer
        held = str(dst.scope()) == "local.fragment" and is_whole(stmt.dst)
        return held and str(stmt.src.buffer.scope()) == "global"
    store = store_of(stmt) if isinstance(stmt, Parallel) else None
    return store is not None and _is_vector(store.buffer) and bool(_tensors(stmt))  # type: ignore[arg-type]


def _makes_tile(stmt: Stmt) -> bool:
    """Whether a loop makes a tile of a loaded one."""
    store = store_of(stmt) if isinstance(stmt, Parallel) else None
    return store is not None and len(store.buffer.shape) == 2 and str(store.buffer.scope()) == "shared.dyn"


def _is_vector(buffer: Var) -> bool:
    return str(buffer.scope()) == "local.fragment" and len(buffer.shape) == 1


def _tensors(loop: Parallel) -> list[TensorLoad]:
    """The elements of tensors that a loop reads, each once."""
    every = loads_of(*loop.body)
    return each_once(load for load in every if str(load.source.scope()) == "global")
