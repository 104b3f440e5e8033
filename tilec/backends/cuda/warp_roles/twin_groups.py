"""Groups of threads that do the same with rows of their own, as one group with the rows of both.

Two consumers of 64 rows each, with fragments, tiles and rows of tensors of their own, are one of 128 rows:
what a row becomes does not depend on who has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tvm import sym, tirx
from tvm.ir import Expr, TensorLoad, Var

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.ir.analysis.alike import Likeness
from tilec.ir.analysis.renaming import Renaming, renamed_value
from tilec.ir.exprs import dtype_of, inlined, int_value, loads, same, transform
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    Fill,
    For,
    Gemm,
    If,
    Launch,
    Parallel,
    Pipelined,
    Reduce,
    Region,
    Stmt,
    Store,
    walk,
)
from tilec.ir.nodes.barriers import Arrive, BulkLoad, Group, SetRegisters, WaitPhase, WaitProducts
from tilec.ir.traits import expressions, mentioned
from tilec.lowering.analysis.accesses import computed_values_of, values_of
from tilec.lowering.passes.base import rewrite_blocks
from tilec.lowering.rewrite import map_block

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

#: What twins may do.
_KNOWN = (Alloc, Arrive, Bind, Copy, Fill, For, Gemm, If, Parallel, Pipelined, Reduce, SetRegisters, Store,
          WaitPhase, WaitProducts)  # fmt: skip


def with_joined_twins(launch: Launch) -> Launch:
    """``launch`` with neighbouring groups that are twins as one; as it is where none are."""
    names = computed_values_of(launch.body)
    for place, (one, other) in enumerate(zip(launch.body, launch.body[1:], strict=False)):
        if isinstance(one, Group) and isinstance(other, Group) and _are_neighbours(one, other):
            made = _joined(launch, place, one, other, _Twins(names))
            if made is not None:
                return made
    return launch


def _are_neighbours(one: Group, other: Group) -> bool:
    return one.count == other.count and other.first == one.first + one.count


def _joined(launch: Launch, place: int, one: Group, other: Group, twins: _Twins) -> Launch | None:
    """A launch with the groups at ``place`` and behind it as one; None where they are no twins."""
    if not twins.are(one, other):
        return None
    joined = _Joined(twins)
    parts = launch.body[:place], launch.body[place + 2 :]
    before, behind = (_outside(part, twins, joined) for part in parts)
    if before is None or behind is None:
        return None
    group = Group(one.first, 2 * one.count, joined.block(twins.body), loc=one.loc)
    return replace(launch, body=(*before, group, *behind))


def _plain(block: Block, names: Mapping[Var, Expr]) -> Block:
    """A block without names for values."""
    own = values_of(walk(block))
    bare = rewrite_blocks(block, lambda inner: [stmt for stmt in inner if not isinstance(stmt, Bind)])
    return map_block(bare, lambda expr: inlined(expr, {**names, **own}))


class _Twins(Likeness):
    """Whether a group does with rows of its own what another one does: ``split`` are the fragments of both,
    ``tiles`` those in shared memory that each has for itself, ``axes`` the axes of regions of tensors along
    which the other group's rows follow, ``rows`` the variables of loops that count rows."""

    def __init__(self, names: Mapping[Var, Expr]) -> None:
        super().__init__(self._is_same)
        self._outer = names
        self.body: Block = ()
        self.count = 0
        self.split: set[Var] = set()
        self.tiles: dict[Var, Var] = {}
        self.axes: dict[Region, int] = {}
        self.rows: set[Var] = set()

    def are(self, one: Group, other: Group) -> bool:
        """Whether two groups are twins."""
        stmts = [stmt for group in (one, other) for stmt in walk(group.body)]
        if not all(isinstance(stmt, _KNOWN) for stmt in stmts) or not any(isinstance(s, Gemm) for s in stmts):
            return False
        if any(True for stmt in stmts if isinstance(stmt, Bind) for _ in loads(stmt.value)):
            return False
        held = [s.buffer for s in stmts if isinstance(s, Alloc) and s.buffer.scope() == "local.fragment"]
        extents = {static_extents(buffer)[0] for buffer in held}
        if len(extents) != 1:
            return False
        self.count = min(extents)
        self.body = _plain(one.body, self._outer)
        return self.block(self.body, _plain(other.body, self._outer))

    # ---- statements ----

    def stmt(self, one: Any, other: Any) -> bool:
        """Whether two statements, or regions, do the same with their rows."""
        if isinstance(one, Region) and isinstance(other, Region):
            return self._region(one, other)
        if isinstance(one, Parallel) and isinstance(other, Parallel) and not self._counts_rows(one):
            return False
        if isinstance(one, Reduce) and one.axis == 0:
            return False
        if isinstance(one, Gemm) and one.trans_a:
            return False
        if isinstance(one, Store) and isinstance(other, Store) and one.buffer in self.split:
            return self._stores_to_row(one, other)
        found = super().stmt(one, other)
        if found and isinstance(one, Alloc) and one.buffer.scope() == "local.fragment":
            self.split.add(one.buffer)
        return found and self._fits(one)

    def _fits(self, stmt: Any) -> bool:
        """Whether what a statement writes are rows of its group alone."""
        if isinstance(stmt, Gemm):
            own = self._is_own(stmt.a) and self._is_own(stmt.c)
            return own and not self._is_own(stmt.b)
        if isinstance(stmt, (Copy, Fill)):
            return self._is_own(stmt.dst) and (isinstance(stmt, Fill) or self._is_own(stmt.src))
        return not isinstance(stmt, Reduce) or (self._is_own(stmt.src) and self._is_own(stmt.dst))

    def _is_own(self, region: Region) -> bool:
        return region.buffer in self.split or region.buffer in self.tiles or region in self.axes

    def _region(self, one: Region, other: Region) -> bool:
        extents = [int_value(extent) for extent in one.extent]
        if extents != [int_value(extent) for extent in other.extent] or len(one.start) != len(other.start):
            return False
        steps = [self._step(*pair) for pair in zip(one.start, other.start, strict=True)]
        if one.buffer in self.split:
            whole = int_value(one.start[0]) == 0 and extents[0] == self.count
            return whole and not any(steps) and bool(self.names.get(other.buffer) == one.buffer)
        if one.buffer.same_as(other.buffer):
            return not any(steps) or self._follows(one, steps, extents)
        return not any(steps) and self._pairs(one, other, extents)

    def _follows(self, one: Region, steps: Sequence[int | None], extents: Sequence[int | None]) -> bool:
        """Whether a region of a tensor has the rows behind those of the other group."""
        axis = next(axis for axis, extent in enumerate(extents) if extent != 1)
        expected = [self.count if each == axis else 0 for each in range(len(steps))]
        if str(one.buffer.scope()) != "global" or list(steps) != expected or extents[axis] != self.count:
            return False
        self.axes[one] = axis
        return True

    def _pairs(self, one: Region, other: Region, extents: Sequence[int | None]) -> bool:
        """Whether two shared tiles are whole rows of each group's own."""
        tiles = one.buffer, other.buffer
        shapes = [static_extents(tile) for tile in tiles]
        alike = shapes[0] == shapes[1] and str(tiles[0].dtype) == str(tiles[1].dtype)
        scopes = {str(tile.scope()) for tile in tiles}
        whole = len(extents) >= 2 and extents[-2] == shapes[0][-2] == self.count
        known = self.tiles.setdefault(one.buffer, other.buffer).same_as(other.buffer)
        return alike and scopes == {"shared.dyn"} and whole and int_value(one.start[-2]) == 0 and known

    def _step(self, one: Expr, other: Expr) -> int | None:
        difference = inlined(self._other(other), self._outer) - inlined(one, self._outer)
        return int_value(sym.Analyzer().simplify(difference))

    def load_of_both(self, one: Stmt, other: Stmt, joined: _Joined) -> Stmt | None:
        """The load of a tile for both groups in place of two; None where these are no such loads."""
        if not isinstance(one, (BulkLoad, Copy)) or not isinstance(other, (BulkLoad, Copy)):
            return None
        pair = self.tiles.get(one.dst.buffer)
        if pair is None or not pair.same_as(other.dst.buffer) or not super().stmt(one, other):
            return None
        own = one.src in self.axes and one.dst.buffer in self.tiles
        return replace(one, src=joined.region(one.src), dst=joined.region(one.dst)) if own else None

    # ---- values ----

    def _stores_to_row(self, one: Store, other: Store) -> bool:
        """Whether two stores to fragments are alike: the row is the loop's."""
        pairs = zip(one.indices[1:], other.indices[1:], strict=True)
        alike = all(self._is_same(left, self._other(right)) for left, right in pairs)
        row = self._other(other.indices[0]).same_as(one.indices[0])
        mine = self.names.get(other.buffer, other.buffer).same_as(one.buffer)
        return bool(alike and row and mine and self._is_same(one.value, self._other(other.value)))

    def _other(self, expr: Expr) -> Expr:
        """A value of the other group in the names of the one."""
        return renamed_value(expr, self.names)

    def _counts_rows(self, loop: Parallel) -> bool:
        """Whether one variable of a loop is the row of every element of a fragment."""
        firsts = [
            index for stmt in walk((loop,)) for buffer, index in _elements(stmt) if buffer in self.split
        ]
        sizes = dict(zip(loop.vars, loop.extents, strict=True))
        known = bool(firsts) and all(isinstance(each, Var) and each.same_as(firsts[0]) for each in firsts)
        if not known or int_value(sizes.get(firsts[0], 0)) != self.count:
            return False
        self.rows.add(firsts[0])
        return True

    def _is_same(self, one: Expr, other: Expr) -> bool:
        """Whether a value is the other one's, so many rows further."""
        if dtype_of(one) != dtype_of(other):
            return False
        analyzer = sym.Analyzer()
        left, right = (analyzer.simplify(inlined(each, self._outer)) for each in (self._moved(one), other))
        return same(left, right)

    def _moved(self, expr: Expr) -> Expr:
        """A value for the rows of the other group; what is held is that of the row."""

        def visit(node: Expr) -> Expr | None:
            if isinstance(node, TensorLoad) and node.source in self.split:
                return tirx.BufferLoad(node.source, [node.indices[0], *map(self._moved, node.indices[1:])])
            return node + self.count if isinstance(node, Var) and node in self.rows else None

        return transform(expr, visit)


def _elements(stmt: Stmt) -> Iterator[tuple[Var, Expr]]:
    """Buffers whose elements a statement names, each with the first index."""
    if isinstance(stmt, Store):
        yield stmt.buffer, stmt.indices[0]
    for expr in expressions(stmt):
        for load in loads(expr):
            yield load.source, load.indices[0]


# ---- what they become ----


class _Joined(Renaming):
    """The statements of one twin for the rows of both."""

    def __init__(self, twins: _Twins) -> None:
        made = {buffer: _doubled(buffer, 0) for buffer in twins.split}
        super().__init__(made | {tile: _doubled(tile, -2) for tile in twins.tiles})
        self._twins = twins

    def stmt(self, stmt: Stmt) -> Stmt:
        """A statement, with both groups' rows in its loop."""
        if isinstance(stmt, Parallel):
            pairs = zip(stmt.vars, stmt.extents, strict=True)
            extents = (2 * self._twins.count if var in self._twins.rows else size for var, size in pairs)
            stmt = replace(stmt, extents=tuple(extents))
        return super().stmt(stmt)

    def region(self, region: Region) -> Region:
        """A region with the rows of both."""
        axis = 0 if region.buffer in self._twins.split else -2 if region.buffer in self._twins.tiles else None
        axis = self._twins.axes.get(region, axis)
        made = super().region(region)
        return made if axis is None else _wider(made, axis, 2 * self._twins.count)


def _doubled(buffer: Var, axis: int) -> Var:
    shape = list(static_extents(buffer))
    shape[axis] *= 2
    return tirx.decl_buffer(tuple(shape), str(buffer.dtype), str(buffer.name), scope=str(buffer.scope()))


def _wider(region: Region, axis: int, rows: int) -> Region:
    extent = list(region.extent)
    extent[axis] = rows
    return Region(region.buffer, region.start, tuple(extent))


def _outside(block: Block, twins: _Twins, joined: _Joined) -> Block | None:
    """The other statements of a launch, with one load for neighbouring ones of both twins; None where they
    use tiles of twins in other ways."""
    second = set(twins.tiles.values())

    def rewrite(inner: Block) -> list[Stmt]:
        made: list[Stmt] = []
        for stmt in inner:
            if isinstance(stmt, Alloc) and stmt.buffer in second:
                continue
            both = twins.load_of_both(made[-1], stmt, joined) if made else None
            made[len(made) - (both is not None) :] = [stmt if both is None else both]
        return [joined.stmt(stmt) if isinstance(stmt, Alloc) else stmt for stmt in made]

    found = rewrite_blocks(block, rewrite)
    used = {name for stmt in walk(found) for name in mentioned(stmt)}
    return None if used & {*twins.tiles, *second} else found
