"""Which axes of tiles and of loops are columns of rows that a launch reduces: what its statements say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

from tilec.backends.cuda.analysis.blocks.long_tiles import on_chip
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import inlined, int_value, linear_in, loads, walk
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Atomic,
    Bind,
    Block,
    Break,
    Check,
    Continue,
    Copy,
    Fill,
    For,
    If,
    Parallel,
    Pipelined,
    Reduce,
    Region,
    Scan,
    Stmt,
    Store,
    While,
    children,
)
from tilec.ir.nodes import walk as walk_statements
from tilec.ir.traits import expressions
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.regions import is_whole
from tilec.lowering.passes.expand_copies import expand_copy, expand_fill, is_single

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: An axis of a tile, or the variable of a loop over elements (axis -1).
Axis: TypeAlias = "tuple[Var, int]"

#: Statements of which this file knows all that they do, beside those on whole tiles.
_PLAIN = (Alloc, Assume, Atomic, Bind, Break, Check, Continue, For, If, Parallel, Pipelined, Store, While)


@dataclass(frozen=True)
class Element:
    """An element that ``stmt`` touches in the loops over ``vars``; ``at`` with names replaced."""

    stmt: Stmt
    buffer: Var
    at: tuple[Expr, ...]
    vars: tuple[Var, ...]
    written: bool


@dataclass
class RowColumns:
    """The axes of a launch in classes: those that one loop, copy or reduction goes along together. Columns
    are the classes of axes that are reduced or scanned.

    ``names`` stand for these values, ``parts`` blocks share the columns. ``copies`` has the variables of the
    loop that a copy or a fill is, ``elements`` what is touched element by element."""

    names: dict[Var, Expr]
    parts: int
    copies: dict[Stmt, tuple[Var, ...]] = field(default_factory=dict)
    elements: list[Element] = field(default_factory=list)
    _of: dict[Axis, Axis] = field(default_factory=dict)
    _sizes: dict[Axis, int | None] = field(default_factory=dict)
    _fixed: list[tuple[Axis, str, Stmt]] = field(default_factory=list)
    _reduced: list[Axis] = field(default_factory=list)
    _moving: bool = False

    @cached_property
    def columns(self) -> set[Axis]:
        """The axes that are columns: those that are reduced, and those of loops along the same axes of
        tensors where each block may have a part of them."""
        roots = {self._root(axis) for axis in self._reduced}
        places = list(self._places())
        along = {place for place, axis in places if self._root(axis) in roots}
        for root in dict.fromkeys(self._root(axis) for place, axis in places if place in along):
            roots |= {root} if self._admits({*roots, root}) else set()
        return self._axes_of(roots)

    def _axes_of(self, roots: Collection[Axis]) -> set[Axis]:
        """The axes of some classes."""
        return {axis for axis in self._sizes if self._root(axis) in roots}

    def _places(self) -> Iterator[tuple[Axis, Axis]]:
        """The axes of tensors along which variables of loops count elements, and these variables."""
        for element in (element for element in self.elements if not on_chip(element.buffer)):
            for number, index in enumerate(element.at):
                used = [var for var in element.vars if any(var.same_as(node) for node in walk(index))]
                linear = linear_in(index, used)
                for var, factor in zip(used, linear[:-1], strict=False):
                    if int_value(factor) == 1:
                        yield (element.buffer, number), (var, -1)

    def _admits(self, roots: Collection[Axis]) -> bool:
        """Whether the columns of some classes have equal parts."""
        try:
            self._check(self._axes_of(roots))
        except Unfit:
            return False
        return True

    def size(self, axis: Axis) -> int:
        """The extent of a column axis."""
        found = self._sizes[axis]
        assert found is not None
        return found

    def check(self) -> None:
        """Unfit where the blocks cannot have equal parts of all columns."""
        self._check(self.columns)

    def _check(self, columns: set[Axis]) -> None:
        parts = self.parts
        for axis, why, stmt in self._fixed:
            need(axis not in columns, why, stmt)
        for axis in (each for each in self._sizes if each in columns):
            size, name = self._sizes[axis], axis[0].name
            need(size is not None, f"the columns of {name} are counted at run time")
            need(
                size is not None and size % parts == 0,
                f"{size} columns of {name} have no {parts} equal parts",
                remedy=f"take tiles of a multiple of {parts} columns",
            )
        tiles = [buffer for buffer, number in self._sizes if number >= 0 and (buffer, number) in columns]
        for buffer in tiles:
            need(tiles.count(buffer) == 1, f"{buffer.name} has columns along two axes")
        for element in self.elements:
            self._check_element(element, columns)

    def _check_element(self, element: Element, columns: set[Axis]) -> None:
        """Unfit where a loop goes along columns twice, or iterations of several blocks write one element on
        chip."""
        along = [var for var in element.vars if (var, -1) in columns]
        need(len(along) < 2, "a loop goes along columns twice", element.stmt)
        held = all(any(index.same_as(var) for index in element.at) for var in along)
        own = held or not element.written or not on_chip(element.buffer)
        need(own, f"all columns write one element of {element.buffer.name}", element.stmt)

    # ---- what statements say ----

    def block(self, block: Block, around: tuple[Var, ...] = ()) -> None:
        """Takes in the statements of a block, in the loops over elements of ``around``."""
        for stmt in block:
            self._stmt(stmt, around)

    def _stmt(self, stmt: Stmt, around: tuple[Var, ...]) -> None:
        if isinstance(stmt, (Copy, Fill)):
            self._moved(stmt, around)
        elif isinstance(stmt, (Reduce, Scan)):
            self._reduction(stmt)
        elif isinstance(stmt, _PLAIN):
            inner = self._loop(stmt, around) if isinstance(stmt, Parallel) else around
            if isinstance(stmt, Alloc) and stmt.asked is not None:
                why, axes = f"{stmt.buffer.name} has a layout of its author's", range(len(stmt.buffer.shape))
                self._fixed += [(self._axis(stmt.buffer, number), why, stmt) for number in axes]
            self._touched(stmt, inner)
            for each in children(stmt):
                self.block(each, inner)
        else:
            raise Unfit(f"a {type(stmt).__name__} has no part for each block", stmt)

    def _loop(self, loop: Parallel, around: tuple[Var, ...]) -> tuple[Var, ...]:
        for var, extent in zip(loop.vars, loop.extents, strict=True):
            self._sizes[var, -1] = int_value(extent)
        need(loop.hints.loop_layout is None, "its author says which thread has which iteration", loop)
        return (*around, *loop.vars)

    def _moved(self, stmt: Copy | Fill, around: tuple[Var, ...]) -> None:
        """A copy or a fill, as the loop that it is."""
        made = expand_copy(stmt) if isinstance(stmt, Copy) else expand_fill(stmt)
        own = made.vars if isinstance(made, Parallel) else ()
        for region in (stmt.src, stmt.dst) if isinstance(stmt, Copy) else ():
            wide = sum(not is_single(extent) for extent in region.extent)
            if wide != len(own):
                self._fixed += [((var, -1), f"{region.buffer.name} has other axes", stmt) for var in own]
        self.copies[stmt] = own
        start = len(self.elements)
        self._moving = True
        self._stmt(made, around)
        self._moving = False
        self.elements[start:] = [
            Element(stmt, each.buffer, each.at, each.vars, each.written) for each in self.elements[start:]
        ]
        self._fixed = [(axis, why, stmt if one is made else one) for axis, why, one in self._fixed]

    def _reduction(self, stmt: Reduce | Scan) -> None:
        for region in (stmt.src, stmt.dst):
            if not is_whole(region) or not on_chip(region.buffer):
                why = f"a part of {region.buffer.name} is reduced"
                self._fixed += [(axis, why, stmt) for axis in self._axes(region)]
        source, result = self._axes(stmt.src), self._axes(stmt.dst)
        self._reduced.append(source[stmt.axis])
        if isinstance(stmt, Reduce) and len(result) < len(source):
            source = [axis for number, axis in enumerate(source) if number != stmt.axis]
        for one, other in zip(source, result, strict=True):
            if isinstance(stmt, Scan) or one != self._reduced[-1]:
                self._join(one, other, stmt)

    def _axes(self, region: Region) -> list[Axis]:
        return [self._axis(region.buffer, number) for number in range(len(region.buffer.shape))]

    def _axis(self, buffer: Var, number: int) -> Axis:
        self._sizes.setdefault((buffer, number), int_value(buffer.shape[number]))
        return buffer, number

    def _touched(self, stmt: Stmt, around: tuple[Var, ...]) -> None:
        for buffer, indices, written in _elements(stmt):
            at = tuple(inlined(index, self.names) for index in indices)
            self.elements.append(Element(stmt, buffer, at, around, written))
            if not on_chip(buffer):
                continue
            for number, index in enumerate(at):
                # a known column that is read is told to all blocks
                told = int_value(index) is not None and not written and not self._moving
                if not told:
                    self._index(self._axis(buffer, number), index, around, stmt)

    def _index(self, axis: Axis, index: Expr, around: Sequence[Var], stmt: Stmt) -> None:
        """An axis goes along with the loop whose variable its index is, and with no other one."""
        used = [var for var in around if any(var.same_as(node) for node in walk(index))]
        if used and index.same_as(used[0]):
            self._join(axis, (used[0], -1), stmt)
        elif used or self._sizes[axis] != 1:
            why = f"an index of {axis[0].name} is no variable of a loop over elements"
            self._fixed += [(each, why, stmt) for each in (axis, *((var, -1) for var in used))]

    def _join(self, one: Axis, other: Axis, stmt: Stmt) -> None:
        if self._sizes[one] != self._sizes[other]:
            why = f"a part of the columns of {one[0].name} is used"
            self._fixed += [(one, why, stmt), (other, why, stmt)]
            return
        self._of[self._root(one)] = self._root(other)

    def _root(self, axis: Axis) -> Axis:
        while self._of.get(axis, axis) != axis:
            axis = self._of[axis]
        return axis


def row_columns(body: Block, parts: int) -> RowColumns:
    """What the statements of a launch say whose columns ``parts`` blocks are to share. Unfit where one has a
    meaning of its own for the block, or columns have no such parts."""
    found = RowColumns(values_of(walk_statements(body)), parts)
    found.block(body)
    found.check()
    return found


def _elements(stmt: Stmt) -> Iterator[tuple[Var, tuple[Expr, ...], bool]]:
    """The elements that a statement itself touches: those that it reads, then the one that it writes."""
    for expr in expressions(stmt):
        for load in loads(expr):
            yield load.source, tuple(load.indices), False
    if isinstance(stmt, Atomic) and stmt.prev is not None:
        yield stmt.buffer, stmt.indices, False
    if isinstance(stmt, (Store, Atomic)):
        yield stmt.buffer, stmt.indices, True
