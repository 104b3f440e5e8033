"""Loops over neighbours in tensors whose rows may begin anywhere: which of them move vectors all the same.

Columns of a fragment are numbers that a kernel's loops agree on, and nothing else: all loops that meet in a
fragment may go through them in another order. They are shifted, so that what is stored begins at whole
vectors: place p of n has column p - s, and the first s places the last s columns. Those of a shared tile stay
where they are; a kernel may have it begin where memory has a vector (`start_copies`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.analysis import undefined_vars

from tilec.backends.cuda.analysis.accesses.loop_widths import widest_share
from tilec.backends.cuda.analysis.accesses.low_places import element_place, is_dense, low_place
from tilec.backends.cuda.analysis.accesses.vectors import divides, holds_vector, vector_width, widest
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.ir.exprs import all_of, conjuncts, dtype_of, int_value, linear_in, loads, same, substitute, uses
from tilec.ir.nodes import Alloc, Bind, Block, Kernel, Launch, Parallel, Reduce, Region, Stmt, Store, walk
from tilec.ir.traits import buffers
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.analysis.scopes import ScopedRewrite, conditioned
from tilec.lowering.analysis.uses import order_counts
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

#: An axis of a fragment, or of a loop.
Axis = tuple[object, int]
#: Most elements of a vector.
_MOST = 16
_WORD = 4  # bytes
#: Vectors of a row for each lane of a warp, from which on it pays that those at its ends take as long as two
#: or three others. On an H200 tiles of 16 gain (4096 x 5121 bfloat16: 68 us, 87 by elements), those of 1 to 4
#: lose where rows are shorter yet (8149 x 133 float16 in tiles of 1024: 14 us, 9 by elements). Float32 loses
#: at any length, by 1.1 to 3 times.
_LONG = 16


@dataclass(frozen=True)
class Ragged:
    """Vectors of ``width`` elements; ``shift``: by how much columns are shifted, None for not at all;
    ``body``: what a loop does, without a test that its stores repeat."""

    width: int
    shift: Expr | None
    body: Block


@dataclass(eq=False)
class _Loop:
    """A loop, what it does, and its accesses of tensors that move along its last variable, the names in them
    spelled out. ``known``: by how many elements each is a vector without any test; ``tiles``: those that it
    reads vectors of, in shared memory."""

    stmt: Parallel
    body: Block
    items: list[Access] = field(default_factory=list)
    known: list[int] = field(default_factory=list)
    places: list[Expr] = field(default_factory=list)
    tiles: list[int] = field(default_factory=list)
    is_plain: bool = True

    @property
    def columns(self) -> Axis:
        """Its last axis."""
        return self.stmt, len(self.stmt.vars) - 1


def ragged_loops(kernel: Kernel, launch: Launch) -> dict[Stmt, Ragged]:
    """The loops of a launch that move vectors whose places are tested."""
    if launch.thread_vars or order_counts(launch):
        return {}
    found = _Finder(kernel, launch)
    found.block(launch.body)
    made: dict[Stmt, Ragged] = {}
    for group in found.groups():
        made |= _Group(found, group).planned()
    return made


class _Finder(ScopedRewrite):
    """The loops of a launch, and which of their axes are one."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.threads, self.phase = thread_count(launch), bool(launch.schedule.phase)
        self.loops: list[_Loop] = []
        self.parents: dict[Axis, Axis] = {}
        self.fixed: set[Axis] = set()
        self.outside = {*launch.block_vars, *(dim.var for dim in kernel.dims if dim.var is not None)}

    def groups(self) -> Iterator[list[_Loop]]:
        """Loops whose columns are one axis, which nothing holds to its place."""
        fixed = {self.root(axis) for axis in self.fixed}
        found: dict[Axis, list[_Loop]] = {}
        for loop in self.loops:
            found.setdefault(self.root(loop.columns), []).append(loop)
        inner = {
            self.root((loop.stmt, axis)) for loop in self.loops for axis in range(len(loop.stmt.vars) - 1)
        }
        return (loops for axis, loops in found.items() if axis not in fixed | inner)

    def root(self, axis: Axis) -> Axis:
        """What stands for all axes that are one with this."""
        while axis in self.parents:
            axis = self.parents[axis]
        return axis

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Learns what a statement says of axes."""
        if isinstance(stmt, Parallel):
            self._loop(stmt)
            return [stmt]
        if isinstance(stmt, Reduce):
            self._reduce(stmt)
        elif not isinstance(stmt, Alloc):
            for buffer in buffers(stmt):
                self._fix(buffer)
        return super().stmt(stmt)

    def _fix(self, buffer: Var) -> None:
        self.fixed |= {(buffer, axis) for axis in range(len(buffer.shape))}

    def _join(self, one: Axis, other: Axis) -> None:
        one, other = self.root(one), self.root(other)
        if one != other:
            self.parents[one] = other

    def _reduce(self, stmt: Reduce) -> None:
        src, dst = stmt.src.buffer, stmt.dst.buffer
        if not (_is_whole(stmt.src) and _is_whole(stmt.dst)):
            self._fix(src)
            self._fix(dst)
            return
        kept = [axis for axis in range(len(src.shape)) if axis != stmt.axis]
        same = len(dst.shape) == len(src.shape)
        for place, axis in enumerate(kept):
            self._join((src, axis), (dst, axis if same else place))

    def _loop(self, stmt: Parallel) -> None:
        self._learn(stmt)
        for inner in walk(stmt.body):
            self._learn(inner)
        loop = _Loop(stmt, self._untested(stmt.body))
        loop.is_plain = all(isinstance(inner, (Bind, Store)) for inner in loop.body) and not stmt.hints.given
        self.loops.append(loop)
        for item in accesses(stmt.body):
            if item.buffer.scope() == "local.fragment":
                self._held(item, stmt)
            else:
                self._outer(item, loop)

    def _untested(self, body: Block) -> Block:
        """What a body does under a test that fails where all that it stores is outside of tensors: that is
        dropped there anyway."""
        cond, inside = conditioned(body)
        stores = [stmt for stmt in inside if isinstance(stmt, Store)]
        told = cond is not None and stores and all(self._tells(store, cond) for store in stores)
        return inside if told else body

    def _tells(self, store: Store, cond: Expr) -> bool:
        """Whether a condition holds wherever a tensor has the element that is stored."""
        if store.buffer.scope() != "global":
            return False
        pairs = list(zip(store.indices, store.buffer.shape, strict=True))
        within = [index < extent for index, extent in pairs] + [index >= 0 for index, _ in pairs]
        with self.facts.assume(all_of([self.facts.inline(test) for test in within])):
            return all(self.facts.prove(test) is True for test in conjuncts(cond))

    def _held(self, item: Access, loop: Parallel) -> None:
        """An element of a fragment: its axes are those of the loop's variables."""
        for axis, index in enumerate(item.indices):
            extent = int_value(item.buffer.shape[axis])
            at = next((at for at, var in enumerate(loop.vars) if index.same_as(var)), None)
            if at is not None and extent == int_value(loop.extents[at]):
                self._join((item.buffer, axis), (loop, at))
            elif extent != 1:
                self.fixed.add((item.buffer, axis))
                self.fixed |= {(loop, at) for at, var in enumerate(loop.vars) if uses(index, (var,))}

    def _outer(self, item: Access, loop: _Loop) -> None:
        """An element of memory."""
        var = loop.stmt.vars[-1]
        *rows, last = (self.facts.inline(index) for index in item.indices) if item.indices else [var]
        if not any(uses(index, (var,)) for index in (*rows, last)):
            return
        linear = linear_in(last, [var])
        names = {inner.var for inner in walk(loop.stmt.body) if isinstance(inner, Bind)}
        told = not any(uses(index, (var,)) for index in rows) and linear and int_value(linear[0]) == 1
        named = any(uses(index, names) for index in (*rows, last))
        is_tensor = item.buffer.scope() == "global"
        if not told or named or not is_dense(item.buffer) or (item.is_write and not is_tensor):
            loop.is_plain = False
            return
        known = vector_width(item.buffer, (*rows, last), var, _MOST, self.facts)
        if not is_tensor:
            loop.tiles.append(known)
            return
        loop.items.append(Access(item.buffer, (*rows, last), item.is_write))
        loop.known.append(known)
        loop.places.append(element_place(item.buffer, (*rows, linear[1])))


class _Group:
    """Loops over the same columns."""

    def __init__(self, finder: _Finder, loops: Sequence[_Loop]) -> None:
        self.finder, self.loops = finder, loops
        self.width = min(widest_share(loop.stmt, finder.threads) for loop in loops)
        sizes = [widest(item.buffer, self.width) for loop in loops for item in loop.items]
        self.width = max(sizes, default=1)

    def planned(self) -> dict[Stmt, Ragged]:
        """What becomes of each loop; nothing where vectors are known or cannot be."""
        if (
            not self._has_words()
            or not (self.finder.phase or self._is_long())
            or not all(loop.is_plain for loop in self.loops)
            or self._is_known()
        ):
            return {}
        written = {item.buffer for loop in self.loops for item in loop.items if item.is_write}
        if any(item.buffer in written and not item.is_write for loop in self.loops for item in loop.items):
            return {}
        shifts = self._in_place() if any(loop.tiles for loop in self.loops) else self._shifts()
        pairs = [] if shifts is None else zip(self.loops, shifts, strict=True)
        return {loop.stmt: Ragged(self.width, shift, loop.body) for loop, shift in pairs}

    def _has_words(self) -> bool:
        """Whether each access moves whole words of elements that are no larger."""
        sizes = [element_bytes(str(item.buffer.dtype)) for loop in self.loops for item in loop.items]
        return bool(sizes) and max(sizes) <= _WORD <= self.width * min(sizes) and self.width > 1

    def _is_long(self) -> bool:
        """Whether rows end with vectors, or have so many that their ends are a small part of the work, of
        elements of which a warp moves less than a line at once one by one. Tensors of one axis end once;
        those that hold a vector are parted there instead (`part_ends`), where all accesses begin at one."""
        facts = self.finder.facts
        items = [item for loop in self.loops for item in loop.items]
        if all(holds_vector(item.buffer, facts) for item in items):
            return not self._begin_at_vectors()
        even = all(divides(self.width, item.buffer.shape[-1], facts) for item in items)
        narrow = any(element_bytes(str(item.buffer.dtype)) < _WORD for item in items)
        rows = (loop_extents(loop.stmt)[-1] for loop in self.loops)
        long = narrow and all(each >= _LONG * WARP * self.width for each in rows)
        return even or long

    def _begin_at_vectors(self) -> bool:
        """Whether vectors of all accesses begin at multiples of their width."""
        lows = (self._low(place, loop) for loop in self.loops for place in loop.places)
        return all(int_value(low) == 0 for low in lows)

    def _is_known(self) -> bool:
        """Whether all accesses are whole vectors as they are."""
        return all(
            known >= widest(item.buffer, self.width)
            for loop in self.loops
            for item, known in zip(loop.items, loop.known, strict=True)
        )

    def _in_place(self) -> list[Expr | None] | None:
        """No shift, where shared tiles are read in vectors; with the key ``phase`` alone, as a kernel knows
        best whether what it stores begins at vectors. None where that differs from row to row of a loop."""
        tiles = [width for loop in self.loops for width in loop.tiles]
        rows = (uses(self._low(place, loop), loop.stmt.vars) for loop in self.loops for place in loop.places)
        if not self.finder.phase or min(tiles) < self.width or any(rows):
            return None
        return [None] * len(self.loops)

    def _shifts(self) -> list[Expr | None] | None:
        """By how much the columns of each loop are shifted, so that stores (without any, loads) begin at
        whole vectors; None where they differ in that."""
        storing = any(item.is_write for loop in self.loops for item in loop.items)
        found: list[Expr] = []
        for loop in self.loops:
            chosen = [
                place for item, place in zip(loop.items, loop.places, strict=True) if item.is_write == storing
            ]
            names = self._rows(loop)
            found += [substitute(self._low(place, loop), names) for place in chosen]
        if any(not self._alike(found[0], other) for other in found[1:]):
            return None if storing else [None] * len(self.loops)
        if not found or int_value(found[0]) == 0:
            return [None] * len(self.loops)
        return self._given(found[0])

    def _given(self, shift: Expr) -> list[Expr | None] | None:
        """The shift in the words of each loop; None where one has no word for a part of it."""
        made: list[Expr | None] = []
        for loop in self.loops:
            back = {row: var for var, row in self._rows(loop).items()}
            told = substitute(shift, back)
            known = {*self.finder.outside, *loop.stmt.vars[:-1]}
            alone = len(self.loops) == 1
            if next(loads(told), None) is not None or (not alone and set(undefined_vars(told)) - known):
                return None
            made.append(told)
        return made

    def _rows(self, loop: _Loop) -> Mapping[Var, Expr]:
        """One name for the variables of all loops that are one axis."""
        names = self.__dict__.setdefault("names", {})
        made: dict[Var, Expr] = {}
        for axis, (var, extent) in enumerate(zip(loop.stmt.vars[:-1], loop.stmt.extents, strict=False)):
            root = self.finder.root((loop.stmt, axis))
            if int_value(extent) != 1:
                made[var] = names.setdefault(root, tirx.Var(f"{var.name}_row", dtype_of(var)))
        return made

    def _alike(self, one: Expr, other: Expr) -> bool:
        return same(one, other) or divides(self.width, one - other, self.finder.facts)

    def _low(self, place: Expr, loop: _Loop) -> Expr:
        return low_place(place, self.width, loop.stmt, self.finder.facts)


def _is_whole(region: Region) -> bool:
    starts = all(int_value(start) == 0 for start in region.start)
    pairs = zip(region.extent, region.buffer.shape, strict=True)
    return starts and all(int_value(extent) == int_value(size) for extent, size in pairs)
