"""The last products of a trip are issued in the next one, behind that trip's first product.

Tensor cores are idle while threads compute what a product multiplies from the result of the one before, and
where trips follow each other there is always one that does not wait for it: the first product F of the next
trip. A loop whose trip is F, arithmetic A on its result and a rest R with products that F(k + 1) does not
meet becomes

    F(0) A(0)  |  F(k) R(k - 1) A(k), for k from 1 on  |  R(last)

so that A(k) runs beside the products of R(k - 1). F takes along all that stands before it in its trip. Of A
the statements that need nothing of R(k - 1) go first. Nothing but F(k) and R(k - 1) changes places with what
another trip does, and these touch nothing in common but stages of rings that differ.

Tried on an H200 and left: what stands in front of F and F does not need (masks of gathered keys, rows of
gradients) behind the issue of both (337 us, 319 without; 770 and 755); turns of two warpgroups at issuing
them, as attention's strategy has (319 and 322; dropout, which arithmetic bounds, 3115 and 2648).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx
from tvm.ir import Var

from tilec.backends.cuda.analysis.products.turn_operands import HELD
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.analysis.trips.lone_branch import lone_branch
from tilec.backends.cuda.nodes import BoxLoad, GiveBack
from tilec.backends.cuda.statement_roles.rings.blocks_together import blocks_in_memory
from tilec.backends.cuda.statement_roles.split.registers import fits_registers
from tilec.backends.cuda.statement_roles.trips.conflicts import Touched, is_known, touched
from tilec.backends.cuda.statement_roles.trips.fence_once import waited_for_first
from tilec.ir.analysis.renaming import copied, renamed
from tilec.ir.exprs import dtype_of, int_value, loads
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Bind,
    Block,
    For,
    Gemm,
    If,
    Kernel,
    Launch,
    Stmt,
    Store,
    children,
    walk,
)
from tilec.ir.nodes.barriers import Group, WaitPhase
from tilec.ir.traits import buffers, mentioned
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import changed_in, sets_variable, touches
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target

#: Stages that two trips beside each other hold of a ring that both read.
_HELD = 2
_NOTE = "the loop over {} issues its first product before the last ones of the trip before"


class RotateTrips(Pass):
    """In: loops of consumers that wait for stages of rings and give them back. Out: those with products that
    can wait for the next trip's first one issue them there, where registers hold what both need."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its loops rotated."""
        return rewrite_launches(kernel, lambda launch: _rotated(launch, target))


def _rotated(launch: Launch, target: Target) -> Launch:
    """The launch with its loops rotated; one without rings as it is."""
    if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
        return launch
    chooser, beside = Chooser(launch, None), blocks_in_memory(launch, target) > 1
    notes: list[str] = []

    def consumers(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, Group) or not any(isinstance(inner, Gemm) for inner in walk(stmt.body)):
            return stmt
        group = _Consumers(launch, stmt, chooser, notes, beside)
        return replace(stmt, body=rewrite_blocks(stmt.body, group.block))

    return with_notes(replace(launch, body=tuple(map(consumers, launch.body))), notes)


@dataclass(frozen=True)
class _Consumers:
    """Rotates the loops of the threads of ``group``, and says so in ``notes``. ``beside``: whether another
    block shares the multiprocessor."""

    launch: Launch
    group: Group
    chooser: Chooser
    notes: list[str]
    beside: bool

    def block(self, block: Block) -> list[Stmt]:
        """A block with its loops rotated."""
        made: list[Stmt] = []
        for stmt in block:
            branch = lone_branch(stmt.body, (Alloc, Bind)) if isinstance(stmt, For) else None
            trip = self._trip(_within(stmt, branch)) if isinstance(stmt, For) else None
            rotated = None if trip is None else trip.rotated() if branch is None else trip.in_branch(branch)
            if trip is not None and rotated is not None:
                self.notes.append(_NOTE.format(trip.loop.var.name))
            made += (stmt,) if rotated is None else rotated
        return made

    def _trip(self, loop: For) -> _Trip | None:
        """The parts of a loop's trip; None where it has none that may wait, or nothing to run beside them."""
        body = tuple(stmt for stmt in loop.body if not isinstance(stmt, Alloc))
        allocs = tuple(stmt for stmt in loop.body if isinstance(stmt, Alloc))
        wide = [place for place, stmt in enumerate(body) if self.chooser.takes_in(stmt, self.group)]
        trips = int_value(sym.Analyzer().simplify(loop.stop - loop.start))
        if loop.kind != "serial" or int_value(loop.step) != 1 or trips in (0, 1) or len(wide) < 2:
            return None
        if not is_known(body) or any(alloc.init is not None for alloc in allocs):
            return None
        first_end = self._end_of_first(body, wide[0])
        head, others = body[:first_end], body[first_end:]
        free = _free_tiles(body)
        first = self._touched(head).buffers().without(free)
        meets = [self._touched((stmt,)).buffers().without(free).conflicts(first) for stmt in others]
        cut = max((place + 1 for place, meet in enumerate(meets) if meet), default=0)
        rest = others[cut:]
        late = [stmt for stmt in rest if self.chooser.takes_in(stmt, self.group)]
        if not late or not _computes(others[:cut], head[-1]) or not fits_registers(loop.body, self.group):
            return None
        if any(isinstance(inner, (GiveBack, WaitPhase)) for stmt in rest for part in children(stmt)
               for inner in walk(part)) or not _rings(rest) <= free:  # fmt: skip
            return None
        if _waits_for_loads(head, others[:cut], rest) or (self.beside and any(map(_takes_made, late))):
            return None
        return _Trip(loop, allocs, head, self._in_order(others[:cut], late), rest, changed_in(self.launch))

    def _end_of_first(self, body: Block, place: int) -> int:
        """Behind the last product that adds to the sums of the first one before anybody reads them."""
        first = body[place]
        assert isinstance(first, Gemm)
        end = place + 1
        for position, stmt in enumerate(body[end:], end):
            if self.chooser.takes_in(stmt, self.group) and stmt.c.buffer.same_as(first.c.buffer):
                end = position + 1
            elif not isinstance(stmt, (Assume, Bind, WaitPhase)) and not sets_variable(stmt):
                break
        return end

    def _touched(self, block: Block) -> Touched:
        return touched(block, self.launch)

    def _in_order(self, block: Block, late: Sequence[Stmt]) -> Block:
        """``block`` with the statements first that need nothing of products under way."""
        free: list[Stmt] = []
        bound: list[Stmt] = list(late)
        for stmt in block:
            waits = any(self._touched((stmt,)).conflicts(self._touched((other,))) for other in bound)
            (bound if waits else free).append(stmt)
        return (*free, *bound[len(late) :])


def _takes_made(product: Stmt) -> bool:
    """Whether threads put a product's second operand into shared memory first.

    They then meet between the issue of both products, so that rotation brings little, and blocks beside this
    one run in the meantime anyway. H200, microseconds with trips rotated, and one behind the other:

        several blocks: 16 heads over selected blocks of keys    810     678
                        decoding of lists of blocks              69.2    68.0
                        the same, ragged                         64.6    62.9
                        the same, masked                         73.8    75.1
        one block:      decoding                                 63.2    63.6
                        the same, masked                         73.8    76.0"""
    return isinstance(product, Gemm) and product.b.buffer.scope() == HELD


def _within(loop: For, branch: If | None) -> For:
    """A loop of the trips that take a branch."""
    return loop if branch is None else replace(loop, body=(*loop.body[:-1], *branch.then))


def _computes(block: Block, product: Stmt) -> bool:
    """Whether threads do something with the result of a product."""
    assert isinstance(product, Gemm)
    users = (stmt for stmt in block if touches(stmt, product.c.buffer))
    return any(not isinstance(stmt, Gemm) for stmt in users)


def _rings(block: Block) -> set[Var]:
    """The tiles that a block gives back."""
    return {tile for stmt in walk(block) if isinstance(stmt, GiveBack) for tile in stmt.tiles}


def _free_tiles(body: Block) -> set[Var]:
    """The tiles of rings of which a trip takes one stage and leaves another: the next trip may begin before
    this one is done with it."""
    given = [stmt for stmt in walk(body) if isinstance(stmt, GiveBack)]
    once = [stmt for stmt in body if isinstance(stmt, GiveBack)]
    return {
        tile
        for stmt in once
        for tile in stmt.tiles
        if _stages(stmt) > 1 and sum(other.barrier.same_as(stmt.barrier) for other in given) == 1
    }


def _stages(given: GiveBack) -> int:
    return int_value(given.barrier.shape[0]) or 1


def _waits_for_loads(head: Block, middle: Block, rest: Block) -> bool:
    """Whether the head of a trip and the rest of the one before read all stages of a ring (keys that are
    values, too), so that loads have nothing but arithmetic to run beside (H200: 64 queries, 64 keys a trip of
    512 + 64 elements 187 us so, 140 with trips one behind the other; chunks of 64 x 64 249 and 224)."""
    read = {buffer for stmt in head if isinstance(stmt, Gemm) for buffer in buffers(stmt)}
    given = [stmt for stmt in rest if isinstance(stmt, GiveBack)]
    whole = any(_stages(stmt) <= _HELD and read & set(stmt.tiles) for stmt in given)
    return whole and not any(isinstance(stmt, Gemm) for stmt in walk(middle))


@dataclass(frozen=True)
class _Trip:
    """A loop's trip: ``head`` up to its first product, ``middle``, and ``rest``, which may wait. ``changed``
    are the buffers that the launch writes."""

    loop: For
    allocs: Block
    head: Block
    middle: Block
    rest: Block
    changed: Set[Var]

    def rotated(self) -> Iterator[Stmt]:
        """The loop with the rest of a trip behind the head of the next one."""
        loop, dtype = self.loop, dtype_of(self.loop.var)
        first, end = tirx.Var("first", dtype), tirx.Var("end", dtype)
        one = tirx.const(1, dtype)
        held, keep, rest = self._handed_on()
        head, late = waited_for_first(self.head, _with(rest, loop.var, loop.var - one))
        trip = (*head, *late, *self.middle, *keep)
        body: Block = (
            *_with((*self.head, *self.middle, *keep), loop.var, first),
            replace(loop, start=first + one, stop=end, body=trip),
            *_with(rest, loop.var, end - one),
        )
        yield from (*self.allocs, *held, Bind(first, loop.start), Bind(end, loop.stop))
        if (int_value(sym.Analyzer().simplify(loop.stop - loop.start)) or 0) > 0:
            yield from body
        else:
            yield If(first < end, body, loc=loop.loc)

    def in_branch(self, branch: If) -> Block | None:
        """The loop with the rest of a trip behind the head of the next one that takes the branch; None where
        the rest asks which trip it was."""
        loop, zero = self.loop, tirx.const(0, "int32")
        held, keep, rest = self._handed_on()
        if any(loop.var in mentioned(stmt) for stmt in walk(rest)):
            return None
        begun = tirx.decl_buffer((1,), "int32", name="begun", scope="local.var")
        is_first = tirx.EQ(tirx.BufferLoad(begun, [zero]), zero)
        names = tuple(stmt for stmt in self.head if isinstance(stmt, Bind) and stmt not in branch.then)
        head = tuple(stmt for stmt in self.head if stmt not in names)
        first = (*head, *self.middle, *keep, Store(begun, (zero,), tirx.const(1, "int32")))
        later = copied((*head, *copied(rest), *self.middle, *keep))
        trip = replace(branch, then=(If(is_first, first, later, loc=branch.loc),))
        last = If(tirx.Not(is_first), copied(rest), (), loc=loop.loc)
        walked = replace(loop, body=(*names, trip))
        return (*self.allocs, *held, Alloc(begun, init=zero), walked, last)

    def _handed_on(self) -> tuple[Block, Block, Block]:
        """Variables for what the rest needs of its trip and cannot tell from the number of it, what keeps
        their values, and the rest with their names."""
        before = (*self.head, *self.middle)
        binds = {stmt.var: stmt for stmt in before if isinstance(stmt, Bind)}
        needed = _needed(self.rest, binds)
        held: list[Stmt] = []
        keep: list[Stmt] = []
        names: list[Stmt] = []
        zero = tirx.const(0, "int32")
        for var, stmt in binds.items():
            if var not in needed:
                continue
            if not any(load.source in self.changed or load.source.scope() == "local.var"
                       for load in loads(stmt.value)):  # fmt: skip
                names.append(stmt)
                continue
            place = tirx.decl_buffer((1,), dtype_of(var), name=f"{var.name}_held", scope="local.var")
            held.append(Alloc(place, init=tirx.const(0, dtype_of(var))))
            keep.append(Store(place, (zero,), var))
            names.append(Bind(var, tirx.BufferLoad(place, [zero])))
        known = [stmt for stmt in before if isinstance(stmt, Assume) and mentioned(stmt) <= needed]
        return tuple(held), tuple(keep), (*names, *known, *self.rest)


def _needed(block: Block, binds: dict[Var, Bind]) -> set[Var]:
    """The names that a block takes from ``binds``, and those that they are made of."""
    found: set[Var] = set()
    work = {name for stmt in walk(block) for name in mentioned(stmt)}
    while work:
        var = work.pop()
        if var in binds and var not in found:
            found.add(var)
            work |= mentioned(binds[var])
    return found


def _with(block: Block, var: Var, value: Expr) -> Block:
    """A copy of a block in another trip."""
    return renamed(copied(block), {var: value})
