"""Loads that compute bring what they read as it is, to raw tiles, of which those who compute make theirs.

T = float16(A[box])    ->    raw = A[box]; T = float16(raw)

So do vectors of a trip that come to registers from tensors (a mask of keys, a scale of each row), and those
that loops which make a tile of a loaded one read along its rows (a weight of each column).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import sym, tirx
from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.analysis.accesses.gathers import store_of
from tilec.backends.cuda.analysis.layouts.tiles import is_whole, whole_tile
from tilec.backends.cuda.analysis.pipelines.loads_ahead import async_elements, load_of
from tilec.backends.cuda.general.boxes.boxes import check_box
from tilec.backends.cuda.general.roles.loads import filled, is_loop, is_small
from tilec.backends.cuda.warp_roles.tma import LARGEST_BOX
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import dtype_of, each_once, inlined, int_value, loads, same, substitute, transform, uses
from tilec.ir.nodes import Alloc, Copy, Kernel, Launch, Parallel, Region, Stmt, walk
from tilec.ir.traits import defined, expressions
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.passes.expand_copies import expand_copy

if TYPE_CHECKING:
    from tvm.ir import Expr, TensorLoad, Var


def with_raw_tiles(kernel: Kernel, launch: Launch) -> Launch:
    """A launch whose loops bring boxes of tensors to raw tiles before they compute a shared tile of them."""
    rewrite = _RawTiles(kernel, launch)
    body = rewrite.block(launch.body)
    return replace(launch, body=(*map(Alloc, rewrite.tiles), *body)) if rewrite.tiles else launch


class _RawTiles(ScopedRewrite):
    """Splits the loads of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.tiles: list[Var] = []
        self._values = values_of(walk(launch.body))
        self._loops: list[tuple[Var, ...]] = []

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A load of a loop, split."""
        tile = filled(stmt)
        if self._loops and (_fills_vector(stmt) if tile is None else not is_small(tile)):
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
        parts = ((load, self._part(load, loop)) for load in _tensors(loop))
        found = {load: part for load, part in parts if part and (chosen is None or chosen(part, loop))}
        if not found:
            return [stmt]
        raw = {load: self._raw(part) for load, part in found.items()}
        copies = [Copy(part.box, whole_tile(raw[load]), loc=stmt.loc) for load, part in found.items()]
        read = {load: tirx.BufferLoad(raw[load], list(part.indices)) for load, part in found.items()}
        return [*copies, _reading(loop, read)]

    def _is_gathered(self, stmt: Stmt) -> bool:
        """Whether cp.async moves a load as it is."""
        load = load_of(stmt)
        return load is not None and async_elements(load, self._values, self.facts, None) != 0

    def _raw(self, part: _Part) -> Var:
        tile = part.tile()
        self.tiles.append(tile)
        return tile

    def _part(self, load: TensorLoad, loop: Parallel) -> _Part | None:
        """What a loop reads of a tensor, if it is a box that TMA brings."""
        names = values_of(loop.body)
        part = _part_of(load.source, [inlined(index, names) for index in load.indices], loop)
        if part is None:
            return None
        start = tuple(inlined(each, self._values) for each in part.box.start)
        try:
            check_box(part.box, start, whole_tile(part.tile()), False, self.facts)
        except Unfit:
            return None
        return part


@dataclass(frozen=True, eq=False)
class _Part:
    """A box of a tensor, and where each iteration of a loop finds its element in a raw tile of it."""

    box: Region
    indices: tuple[Expr, ...]

    def tile(self) -> Var:
        """A raw tile."""
        tensor = self.box.buffer
        shape = [extent for part in self.box.extent if (extent := int_value(part) or 0) != 1]
        return tirx.decl_buffer(shape, str(tensor.dtype), name=f"{tensor.name}_raw", scope="shared.dyn")


def _part_of(tensor: Var, places: list[Expr], loop: Parallel) -> _Part | None:
    """What a loop reads of a tensor: on each axis a start, and from there on what its variables add."""
    analyzer = sym.Analyzer()
    zeros = {var: tirx.const(0, dtype_of(var)) for var in loop.vars}
    for var, extent in zip(loop.vars, loop.extents, strict=True):
        analyzer.bind(var, tvm_ir.Range(zeros[var], tirx.const(int_value(extent) or 1, dtype_of(var))))
    start: list[Expr] = []
    added: list[Expr] = []
    sizes: list[int] = []
    for place in places:
        first = analyzer.simplify(substitute(place, zeros))
        rest = analyzer.simplify(place - first)
        bound = analyzer.const_int_bound(rest)
        if set(undefined_vars(rest)) - set(loop.vars) or bound.min_value or bound.max_value >= LARGEST_BOX:
            return None
        start.append(first)
        sizes.append(bound.max_value + 1)
        added += [rest] if bound.max_value else []
    total = prod(int_value(extent) or 0 for extent in loop.extents)
    return (
        _Part(Region(tensor, tuple(start), tuple(sizes)), tuple(added)) if 1 < prod(sizes) <= total else None
    )


def _is_shared_copy(stmt: Stmt) -> bool:
    return isinstance(stmt, Copy) and str(stmt.dst.buffer.scope()) == "shared.dyn"


def _fills_vector(stmt: Stmt) -> bool:
    """Whether a statement sets a fragment of one axis from tensors, such as a mask of keys: threads would
    wait for memory in each trip."""
    if isinstance(stmt, Copy):
        dst = stmt.dst.buffer
        return str(stmt.src.buffer.scope()) == "global" and is_whole(stmt.dst) and _is_vector(dst)
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
    every = (load for stmt in loop.body for expr in expressions(stmt) for load in loads(expr))
    return each_once(load for load in every if str(load.source.scope()) == "global")


def _reading(loop: Parallel, read: dict[TensorLoad, Expr]) -> Parallel:
    """A loop that reads raw tiles."""

    def visit(node: Expr) -> Expr | None:
        return next((made for load, made in read.items() if same(load, node)), None)

    body = tuple(replace(stmt, value=transform(stmt.value, visit)) for stmt in loop.body)  # type: ignore[attr-defined, call-arg]
    return replace(loop, body=body)
