"""Warpgroups that take tiles in turns: one multiplies while another one stores its results.

    for each tile: for k: C += A[k] B[k]; store C             all, each some of the rows
    ->  for each tile t, t + 2, ..:  for k: C += A[k] B[k]; store C; pass by the stages of t + 1        one
        pass by the stages of t; for each tile t + 1, t + 3, ..:  the same                         the other

Loads come tile by tile. A group begins when the one in front of it has come to its last stage: stages go
round, and a barrier tells one round from the next alone.
H200, float16, tiles of 128 x 128, us where warpgroups share tiles, take turns at them, and by `matmul`:

M, N, K              64 of K a trip        32 of K a trip
8192, 8192, 8192     1551  1528  1526      1773  1538  1533
8192, 8192, 1024      211   201   196       245   201   196
4096, 4096, 256        21    18    17        27    18    17

With int8 the first of these take 910, 701 and 804, the second ones 188, 147 and 272.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.nodes import GiveBack
from tilec.backends.cuda.statement_roles.split.loads import is_loop
from tilec.backends.cuda.statement_roles.split.order import guard_of, is_one_wave, order_of
from tilec.backends.cuda.statement_roles.split.registers import handed_on, registers_held
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.exprs import dtype_of, inlined, int_value, variables_of
from tilec.ir.exprs import loads as loads_in
from tilec.ir.nodes import (
    LOOPS,
    Alloc,
    Assume,
    Bind,
    Block,
    For,
    Gemm,
    If,
    Launch,
    Pipelined,
    SparseGemm,
    Stmt,
    Store,
    Unscaled,
    walk,
)
from tilec.ir.nodes.barriers import SCOPE, AllocBarrier, WaitPhase
from tilec.ir.nodes.threads import WARP
from tilec.lowering.analysis.accesses import values_of

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.statement_roles.split.loads import Load
    from tilec.backends.cuda.statement_roles.split.places import Place
    from tilec.backends.cuda.statement_roles.split.slices import Program

#: What stands beside products and loads in a loop whose threads do nothing else.
_LIGHT = (Alloc, Assume, Bind, Gemm, SparseGemm, *LOOPS)
#: Warpgroups that take turns where an author has one.
GROUPS = 2
#: Columns from which the products of one warpgroup keep tensor cores busy, and rows of tiles that wait for
#: loads anyway, for which turns have more room. H200, sums of float16, 4096 x 4096 x 4096, us of blocks of
#: one warpgroup, several to a multiprocessor, and of two that take turns: tiles of 128 x 64 258 and 311, of
#: 64 x 64 381 and 317, of 64 x 128 328 and 246, of 64 x 256 298 and 196, of 128 x 128 203 and 181.
_COLUMNS, _ROWS = 128, 64


def turns_at_tiles(launch: Launch, program: Program, loads: Mapping[Stmt, Load]) -> int:
    """How many warpgroups of a launch take tiles in turns: all of them, where blocks walk over tiles, loops
    of products do nothing but multiply what ``loads`` bring, and one warpgroup holds a tile's sums. 1 where
    they share each tile."""
    threads = thread_count(launch)
    groups = threads // WARPGROUP
    if not may_take_turns(launch, loads):
        return 1
    if order_of(launch, program, list(loads), threads, guarded=True) is None:
        return 1
    given = handed_on(groups, loads.values(), launch.body)
    if given is None or registers_held(launch.body, WARPGROUP) > given[1]:
        return 1
    guard = guard_of(launch.body)
    around = (outer for load in loads for outer in program.around[load] if outer is not guard)
    return groups if all(_is_counted(outer, program) for outer in around) else 1


def may_take_turns(launch: Launch, loads: Collection[Stmt]) -> bool:
    """Whether nothing but what comes of ``loads`` can keep the warpgroups of a launch from turns; ``loads``
    may hold statements that turn out to be none."""
    if thread_count(launch) <= WARPGROUP or launch.schedule.pingpong is False or is_one_wave(launch):
        return False
    return _only_multiplies(launch, loads)


def _is_counted(outer: Stmt, program: Program) -> bool:
    """Whether a statement around loads is a loop whose trips are known in front of all loops."""
    if not isinstance(outer, (For, Pipelined)) or (isinstance(outer, For) and int_value(outer.step) != 1):
        return False
    names = values_of(program.definers.values())
    ends = [inlined(end, names) for end in (outer.start, outer.stop)]
    counters = [var for var in variables_of(ends) if isinstance(program.definers.get(var), LOOPS)]
    return not counters and not any(True for end in ends for _ in loads_in(end))


def _only_multiplies(launch: Launch, loads: Collection[Stmt]) -> bool:
    """Whether loops with products have nothing else but ``loads``, and one warpgroup carries out each
    product."""
    chooser = Chooser(launch, None)
    brought = {inner for load in loads for inner in walk((load,))}
    loops = [stmt for stmt in walk(launch.body) if is_loop(stmt) and _multiplies(stmt)]
    light = all(isinstance(stmt, _LIGHT) or stmt in brought for loop in loops for stmt in walk((loop,)))
    products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Unscaled)]
    fit = all(not isinstance(chooser.product(stmt, WARPGROUP // WARP), str) for stmt in products)
    return light and fit and all(_is_apt(static_extents(stmt.c.buffer)) for stmt in products)


def _is_apt(extents: tuple[int, ...]) -> bool:
    """Whether sums of these extents are for one warpgroup at a time."""
    *_, rows, columns = extents
    return columns >= _COLUMNS or (rows <= _ROWS and columns >= _ROWS)


def _multiplies(loop: Stmt) -> bool:
    return any(isinstance(stmt, Unscaled) for stmt in walk((loop,)))


class TileTurns:
    """The turns of ``groups`` groups of threads at tiles. ``block``: what is done for one; ``places``: where
    those who compute stand in rings. Where a guard says whether a tile does anything, each group looks at all
    tiles, and takes its turn at those that do."""

    def __init__(self, groups: int, block: Block, places: Sequence[Place]) -> None:
        self.groups, self._places, self._guard = groups, places, guard_of(block)
        self._names, self._block = ((), block) if self._guard is None else (block[:-1], self._guard.then)
        self._order = tirx.decl_buffer((groups,), "uint64", name="turns", scope=SCOPE)
        taking = [number for number, stmt in enumerate(self._block) if self._takes(stmt)]
        self._first, self._last = taking[0], taking[-1]

    def barriers(self) -> AllocBarrier:
        """The barrier at which each group hears of its turn, from all warps of the one before: its own are
        behind their waits then."""
        return AllocBarrier(self._order, (WARPGROUP // WARP,) * self.groups)

    def falls_to(self, turn: int) -> tuple[int, int]:
        """Which tiles of a block group ``turn`` looks at: the first one, and one of how many."""
        return (turn, self.groups) if self._guard is None else (0, 1)

    def begin(self, turn: int) -> Block:
        """What group ``turn`` does in front of all tiles: it goes past those of the groups before it. Nobody
        tells the first group of its first turn."""
        heard = Alloc(self._heard, init=tirx.const(int(turn == 0), "int32"))
        if self._guard is not None:
            return (heard, Alloc(self._whose, init=tirx.const(0, "int32")))
        return (heard, *self._passed_by(turn))

    def tile(self, turn: int) -> Block:
        """What group ``turn`` does for a tile that it looks at. It goes past those of the others as soon as
        its own takes no more stages: results leave last."""
        if self._guard is None:
            return self._own(turn, self._passed_by(self.groups - 1))
        zero, one = (tirx.const(number, "int32") for number in (0, 1))
        whose = tirx.BufferLoad(self._whose, [zero])
        mine = If(tirx.EQ(whose, tirx.const(turn, "int32")), self._own(turn, ()), self._passed_by(1))
        following = Store(self._whose, (zero,), (whose + one) % tirx.const(self.groups, "int32"))
        return (*self._names, replace(self._guard, then=(mine, following)))

    def _own(self, turn: int, others: Block) -> Block:
        """What group ``turn`` does for a tile of its own; ``others``: what goes past those of the others."""
        heard, zero = tirx.BufferLoad(self._heard, [tirx.const(0, "int32")]), tirx.const(0, "int32")
        turned = Store(self._heard, (zero,), tirx.bitwise_xor(heard, tirx.const(1, "int32")))
        wait = WaitPhase(self._order, tirx.const(turn, "int32"), heard)
        passes = GiveBack(self._order, tirx.const((turn + 1) % self.groups, "int32"), (), once=False)
        block = self._block
        taking = (*block[self._first : self._last], *self._handed_on(block[self._last], passes))
        return (*block[: self._first], wait, turned, *taking, *others, *block[self._last + 1 :])

    @cached_property
    def _whose(self) -> Var:
        """The variable of a thread for the group that the next tile falls to."""
        return tirx.decl_buffer((1,), "int32", name="whose_turn", scope="local.var")

    @cached_property
    def _heard(self) -> Var:
        """The variable of a thread for the parity of its next turn."""
        return tirx.decl_buffer((1,), "int32", name="turn_heard", scope="local.var")

    def _handed_on(self, last: Stmt, passes: GiveBack) -> Block:
        """The statement that takes the last stages of a tile, and what hands the turn on: in the last trip of
        a loop, whose products still run then."""
        body = last.body if isinstance(last, For) else ()
        behind = 1 + max((at for at, stmt in enumerate(body) if isinstance(stmt, WaitPhase)), default=-1)
        if not behind or not isinstance(last, For):
            return (last, passes)
        is_last = last.var + tirx.const(1, dtype_of(last.var)) >= last.stop
        trip = (*body[:behind], If(is_last, (passes,)), *body[behind:])
        return (replace(last, body=trip), If(last.stop <= last.start, (passes,)))

    def _passed_by(self, tiles: int) -> Block:
        """What goes past the stages of so many tiles, all of which are alike."""
        if tiles == 0:
            return ()
        names = values_of(walk((*self._names, *self._block)))
        counts = ((place, inlined(_advances(self._block, place), names)) for place in self._places)
        others = tirx.const(tiles, "int32")
        return tuple(stmt for place, count in counts for stmt in place.past(count * others))

    def _takes(self, stmt: Stmt) -> bool:
        """Whether a statement takes a stage of a ring."""
        return any(_advances_in(stmt, place) for place in self._places)


def _advances(block: Block, place: Place) -> Expr:
    """How often a block goes on to the next stage of a place."""
    total: Expr = tirx.const(0, "int32")
    for stmt in block:
        if isinstance(stmt, Store) and stmt.buffer.same_as(place.parity):
            total = total + tirx.const(1, "int32")
        elif _advances_in(stmt, place):
            assert isinstance(stmt, For), "stages are taken in loops alone"
            trips = tirx.Cast("int32", tirx.max(stmt.stop - stmt.start, tirx.const(0, dtype_of(stmt.var))))
            total = total + _advances(stmt.body, place) * trips
    return total


def _advances_in(stmt: Stmt, place: Place) -> bool:
    """Whether a statement goes on to the next stage of a place."""
    stores = (inner for inner in walk((stmt,)) if isinstance(inner, Store))
    return any(store.buffer.same_as(place.parity) for store in stores)
