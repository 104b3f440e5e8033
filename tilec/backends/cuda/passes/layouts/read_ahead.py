"""Serial loops read what the next trip wants of tensors while they work on what is there.

    for l: h = h * X[l]    ->    next = X[0]
                                 for l: now = next;  next = X[l + 1];  h = h * now

A trip that begins with reads waits for memory, in full wherever a multiprocessor has few other warps: a scan
over 2048 steps of 64 channels a block takes 1228 us for 2653 on an H200. Where a thread reads little in a
trip, too little is on its way, and several trips are written out that read as many ahead:

    for l: h = h * X[l]    ->    next[0], next[1] = X[0], X[1]
                                 for g: h = h * next[0];  next[0] = X[2 * g + 2];  h = h * next[1];  ...

A row that a trip reads and then writes (`new = S[c]; S[c] = s; s = s * d + new`) is read ahead, too: no other
trip writes it.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.nodes import AheadLoop, BlockReduce, BlockScan, TakeAhead, ThreadLoop
from tilec.backends.cuda.statement_roles.split.order import is_one_wave
from tilec.backends.cuda.statement_roles.split.registers import fits_registers
from tilec.ir.exprs import (
    dtype_of,
    each_once,
    inlined,
    int32,
    int_value,
    linear_in,
    loads,
    same,
    substitute,
    transform,
    variables_of,
)
from tilec.ir.layout import Digit, Layout
from tilec.ir.layout_algebra import extent_of, select
from tilec.ir.nodes import Alloc, Atomic, Bind, Block, For, If, Kernel, Launch, Stmt, Store, children, walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.traits import defined, expressions, written
from tilec.lowering.analysis.accesses import accesses, values_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import changed_in, order_counts, overlapping, written_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches
from tilec.lowering.rewrite import map_stmt

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

#: Bytes of a thread's registers for what a loop reads ahead.
_ROOM = 192
#: Bytes that are on their way for a block of threads, of a thread ``_ROOM`` at most: where a trip has fewer,
#: several are read ahead, ``_DEEPEST`` at most and in ``_WRITTEN_OUT`` statements (H200, us with 1 trip, 32,
#: 64, 128, 192 and 384 bytes of a thread: recurrences of 64 threads 1020, 683, 546, 371, 336, 361 and 1543,
#: 1543, 1543, 1061, 656, 1099; of 128 threads 377, 386, 308, 250, 215, 225; sums of exponentials of 128
#: threads 162, 161, 162, 159, 161 to 171, 187).
_ON_THEIR_WAY, _DEEPEST, _WRITTEN_OUT = 16384, 16, 128
#: The same of blocks that have a multiprocessor each.
_ALONE = 4 * _ON_THEIR_WAY
#: Bytes of elements that are read ahead: of smaller ones registers hold none by itself.
_SIZES = (2, 4, 8)
#: Loops of fewer trips are left as they are.
_FEWEST = 4
#: What trips that read ahead are made of. Others have copies that run beside what threads do, or products,
#: whose operands want the registers.
_PLAIN = (ThreadLoop, BlockReduce, BlockScan, Store, Bind, Alloc, If, Atomic)


class ReadAhead(Pass):
    """In: launches with layouts. Out: serial loops whose ThreadLoops and names read tensors that nothing
    writes, or rows of which each trip has its own, at places that each trip knows as it begins, have read
    them a trip ahead, as far as registers go."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its reads ahead."""

        def ahead(launch: Launch) -> Launch:
            if launch.thread_vars or order_counts(launch):
                return launch
            facts = ScopedRewrite(kernel, launch).facts
            reader = _Reader(launch, changed_in(launch), thread_count(launch), facts)
            return replace(launch, body=rewrite_blocks(launch.body, reader.block))

        return rewrite_launches(kernel, ahead)


@dataclass(frozen=True)
class _Read:
    """A read of ``user``, the variables of the loop that its place follows, and that place with no names of
    the trip; ``next`` is the fragment of the next trip, ``now`` that of this one. Where the place follows
    none, all threads have the element."""

    user: ThreadLoop | Bind
    load: TensorLoad
    axes: tuple[int, ...]
    place: tuple[Expr, ...]
    next: Alloc
    now: Alloc

    @property
    def bytes(self) -> int:
        """What a thread holds of it."""
        assert self.next.layout is not None
        return extent_of(self.next.layout, "reg") * element_bytes(str(self.load.source.dtype))

    @property
    def width(self) -> int:
        """How many neighbours lie in one thread, one after the other."""
        along_last = self.axes and self.axes[-1] == len(_variables(self.user)) - 1
        return self.user.vector if along_last and isinstance(self.user, ThreadLoop) else 1

    @property
    def here(self) -> TensorLoad:
        """What the loop reads in its place."""
        return tirx.BufferLoad(self.now.buffer, self._element)

    def at(self, turn: Var) -> TensorLoad:
        """What it reads in its place in a trip of a group."""
        return tirx.BufferLoad(self.next.buffer, [turn, *self._element])

    @property
    def _element(self) -> list[Expr]:
        variables = _variables(self.user)
        return [variables[axis] for axis in self.axes] or [int32(0)]


@dataclass(frozen=True)
class _Reader:
    """Rewrites loops: tensors that are ``changed`` are read in their trip, unless each has its own row.
    ``facts`` are those of calls."""

    launch: Launch
    changed: Container[Var]
    threads: int
    facts: Facts

    def block(self, block: Block) -> list[Stmt]:
        """A block whose loops read ahead."""
        return [new for stmt in block for new in self._stmt(stmt)]

    def _stmt(self, stmt: Stmt) -> list[Stmt]:
        if not isinstance(stmt, For) or not _is_plain(stmt) or self._is_short(stmt):
            return [stmt]
        found = _fitting(self._reads(stmt))
        if not found:
            return [stmt]
        names, loop = _named_end(stmt)
        depth = self._depth(found, loop)
        deep = [_deepened(each, depth) for each in found]
        if depth > 1 and self._fits([each.next for each in deep], loop):
            return [*names, *_in_groups(deep, loop, depth)]
        allocs = [alloc for each in found for alloc in (each.next, each.now)]
        if not self._fits(allocs, loop):
            return [stmt]
        first = _in_trip(found, loop, loop.start)
        body = tuple(new for inner in loop.body for new in _ahead(inner, loop, found))
        return [*allocs, *names, first, replace(loop, body=body)]

    def _is_short(self, loop: For) -> bool:
        """Whether a loop has few trips, whatever a call says."""
        return self.facts.prove(loop.stop - loop.start < _FEWEST) is True

    def _fits(self, allocs: Sequence[Alloc], loop: For) -> bool:
        made = (*allocs, *loop.body)
        return fits_registers(made, Group(0, self.threads, made))

    def _depth(self, found: Sequence[_Read], loop: For) -> int:
        """How many trips are read ahead: such that enough is on its way, and not too long a loop."""
        steps = sum(1 for _ in walk(loop.body))
        trips = int_value(loop.stop - loop.start) or _DEEPEST
        room = min(_on_their_way(self.launch) // self.threads, _ROOM) // sum(each.bytes for each in found)
        return max(min(_DEEPEST, trips, room, _WRITTEN_OUT // steps), 1)

    def _reads(self, loop: For) -> Iterator[_Read]:
        """What the trips of a loop may read ahead."""
        inner = {var for stmt in walk(loop.body) for var in defined(stmt)}
        for stmt in loop.body:
            if type(stmt) is not ThreadLoop and not isinstance(stmt, Bind):
                continue
            names = values_of((*loop.body, *walk((stmt,))))
            for load in each_once(each for expr in _values((stmt,)) for each in loads(expr)):
                place = tuple(inlined(index, names) for index in load.indices)
                if load.source in self.changed and not self._has_own_row(load.source, place, stmt, loop):
                    continue
                found = self._read(load, stmt, place)
                own = set() if found is None else set(variables_of(found.place))
                if found is not None and loop.var in own and not own & (inner - {*_variables(stmt)}):
                    yield found

    def _has_own_row(self, buffer: Var, place: tuple[Expr, ...], user: Stmt, loop: For) -> bool:
        """Whether all writes of a tensor are of the row that a trip reads by ``user`` in front of them."""
        inside = set(walk(loop.body))
        elsewhere = (stmt for stmt in walk(self.launch.body) if stmt not in inside)
        if buffer in overlapping(self.launch) or any(buffer in written(stmt) for stmt in elsewhere):
            return False
        before = loop.body[: loop.body.index(user) + 1]
        if buffer in written_in(before) or any(isinstance(stmt, Atomic) for stmt in inside):
            return False
        names, own = values_of(tuple(walk(loop.body))), {var for stmt in inside for var in defined(stmt)}
        writes = [item for item in accesses(loop.body) if item.is_write and item.buffer.same_as(buffer)]
        return any(
            _counts(index, loop.var, own)
            and all(same(inlined(item.indices[axis], names), index) for item in writes)
            for axis, index in enumerate(place)
        )

    def _read(self, load: TensorLoad, user: ThreadLoop | Bind, place: tuple[Expr, ...]) -> _Read | None:
        buffer, dtype = load.source, str(load.source.dtype)
        if buffer.scope() != "global" or element_bytes(dtype) not in _SIZES:
            return None
        used = set(variables_of(place))
        axes = tuple(axis for axis, var in enumerate(_variables(user)) if var in used)
        if any(next(loads(index), None) is not None for index in place):
            return None
        shape, layout = _shape(user, axes)
        tiles = [
            tirx.decl_buffer(shape, dtype, name=f"{buffer.name}_{when}", scope="local.fragment")
            for when in ("next", "now")
        ]
        following, now = (Alloc(tile, layout=layout, loc=user.loc) for tile in tiles)
        return _Read(user, load, axes, place, following, now)


def _on_their_way(launch: Launch) -> int:
    """Bytes that a block asks for at once: more where multiprocessors are known to have one each."""
    return _ALONE if is_one_wave(launch) else _ON_THEIR_WAY


def _counts(index: Expr, var: Var, inner: Container[Var]) -> bool:
    """Whether an index is another one for each value of ``var``, whatever the ``inner`` variables are."""
    linear = linear_in(index, [var])
    counts = bool(linear) and bool(int_value(linear[0]))
    return counts and not any(each in inner for each in variables_of((index,)))


def _variables(user: ThreadLoop | Bind) -> tuple[Var, ...]:
    return user.vars if isinstance(user, ThreadLoop) else ()


def _shape(user: ThreadLoop | Bind, axes: tuple[int, ...]) -> tuple[tuple[int, ...], Layout]:
    """The extents and the layout of a fragment for what follows some variables of a loop."""
    if isinstance(user, ThreadLoop) and axes:
        return tuple(user.extents[axis] for axis in axes), select(user.layout, axes)
    return (1,), Layout(((),))


def _named_end(loop: For) -> tuple[list[Bind], For]:
    """The loop behind a name for its end, where that reads memory: no trip may change it."""
    if next(loads(loop.stop), None) is None:
        return [], loop
    end = tirx.Var(f"{loop.var.name}_end", dtype_of(loop.stop))
    return [Bind(end, loop.stop, loc=loop.loc)], replace(loop, stop=end)


def _fitting(reads: Iterator[_Read]) -> list[_Read]:
    """Those that there is room for, the first ones first."""
    found: list[_Read] = []
    for each in reads:
        if sum(other.bytes for other in found) + each.bytes <= _ROOM:
            found.append(each)
    return found


def _in_groups(deep: Sequence[_Read], loop: For, depth: int) -> list[Stmt]:
    """The loop in groups of ``depth`` trips, each of which reads for the one at its place in the next."""
    dtype = dtype_of(loop.var)
    group, turn = (tirx.Var(f"{loop.var.name}_{name}", dtype) for name in ("group", "turn"))
    count, zero, one = (tirx.const(number, dtype) for number in (depth, 0, 1))

    def held(expr: Expr) -> Expr:
        return transform(expr, lambda node: next((e.at(turn) for e in deep if same(node, e.load)), None))

    def turns(body: Block) -> For:
        return For("unroll", turn, zero, count, one, body, loc=loop.loc)

    def read(trip: Expr) -> If:
        return If(trip < loop.stop, tuple(_fetch(each, loop.var, trip, turn) for each in deep))

    trip = (*(map_stmt(stmt, held) for stmt in loop.body), read(loop.var + count))
    body = turns((Bind(loop.var, loop.start + group * count + turn), If(loop.var < loop.stop, trip)))
    groups = tirx.floordiv(loop.stop - loop.start + tirx.const(depth - 1, dtype), count)
    allocs = [each.next for each in deep]
    return [
        *allocs,
        turns((read(loop.start + turn),)),
        replace(loop, var=group, start=zero, stop=groups, body=(body,)),
    ]


def _deepened(each: _Read, depth: int) -> _Read:
    """A read with a place for each of ``depth`` trips."""
    buffer, layout = each.next.buffer, each.next.layout
    assert layout is not None
    tile = tirx.decl_buffer((depth, *buffer.shape), str(buffer.dtype), name=buffer.name, scope=buffer.scope())
    turns = Digit(depth, extent_of(layout, "reg"), "reg")
    return replace(each, next=replace(each.next, buffer=tile, layout=Layout(((turns,), *layout.digits))))


def _is_plain(loop: For) -> bool:
    """Whether a loop runs trip by trip, and does nothing but what threads do one by one: not a single
    ThreadLoop of whole tiles, of which compilers write out several trips and begin with all of their reads.
    They move none of those that stand under the test whether an element is one of the tile's."""
    plain = all(isinstance(stmt, _PLAIN) for stmt in walk(loop.body))
    steps = [stmt for stmt in loop.body if not isinstance(stmt, (Alloc, Bind))]
    apart = len(steps) > 1 or any(isinstance(stmt, ThreadLoop) and stmt.is_padded for stmt in steps)
    return plain and apart and loop.kind == "serial" and int_value(loop.step) == 1


def _values(block: Block) -> Iterator[Expr]:
    """What the statements of a block use, but for branches that what is in memory decides: they may want none
    of what they would read."""
    for stmt in block:
        yield from expressions(stmt)
        if not isinstance(stmt, If) or next(loads(stmt.cond), None) is None:
            for inner in children(stmt):
                yield from _values(inner)


def _ahead(stmt: Stmt, loop: For, found: list[_Read]) -> list[Stmt]:
    """A statement of a trip that takes what was read for it, reads for the next one, and goes on."""
    own = [each for each in found if each.user is stmt]
    if not own:
        return [stmt]
    taken = [
        TakeAhead(whole_tile(each.next.buffer), whole_tile(each.now.buffer), each.width, loc=stmt.loc)
        for each in own
    ]
    again = _in_trip(own, loop, loop.var + tirx.const(1, dtype_of(loop.var)))

    def held(expr: Expr) -> Expr:
        return transform(expr, lambda node: next((each.here for each in own if same(node, each.load)), None))

    return [*taken, again, map_stmt(stmt, held)]


def _in_trip(reads: Sequence[_Read], loop: For, trip: Expr) -> If:
    """Reads what a trip wants, if there is one."""
    return If(trip < loop.stop, tuple(_fetch(each, loop.var, trip) for each in reads))


def _fetch(each: _Read, var: Var, trip: Expr, turn: Var | None = None) -> AheadLoop:
    """Reads what one loop wants of a tensor in a trip, which has its ``turn`` in a group."""
    variables = _variables(each.user)
    old = [variables[axis] for axis in each.axes]
    fresh = tuple(tirx.Var(str(own.name), dtype_of(own)) for own in old) or (tirx.Var("one", "int32"),)
    moved = {**dict(zip(old, fresh, strict=False)), var: trip}
    value = tirx.BufferLoad(each.load.source, [substitute(index, moved) for index in each.place])
    place = fresh if turn is None else (turn, *fresh)
    store = Store(each.next.buffer, place, value, loc=each.user.loc)
    extents, layout = _shape(each.user, each.axes)
    return AheadLoop(fresh, extents, layout, (store,), each.width, loc=each.user.loc)
