"""Sums of products that a ring feeds lie in tensor memory, where the target has it.

One warp issues the products and waits for the stages that they read. Where a fragment is, in registers or in
tensor memory, follows from who named it last: what products add to, or take as their first operand, threads
put there; what threads name of products' sums they load, behind a wait for all products so far. A loop of
products alone is that warp's, and its sums are loaded behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, whole_tile
from tilec.backends.cuda.analysis.products.tensor_memory import ROWS, is_held
from tilec.backends.cuda.limits import has_tensor_memory
from tilec.backends.cuda.nodes import (
    REPEATING,
    CloseTensorMemory,
    GiveBack,
    HeldProduct,
    OpenTensorMemory,
    TensorCommit,
    TensorProduct,
    WaitLanded,
)
from tilec.backends.cuda.statement_roles.tensor_memory.held_fragments import HeldFragments
from tilec.backends.cuda.statement_roles.tensor_memory.move_fragments import Moves, by_one_warp
from tilec.backends.cuda.statement_roles.tensor_memory.tensor_places import MEMORY, REGISTERS, ZERO, State
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import int_value, is_zero
from tilec.ir.nodes import (
    Alloc,
    Assume,
    Bind,
    Block,
    Break,
    Continue,
    Fill,
    For,
    Gemm,
    If,
    Kernel,
    Launch,
    Stmt,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import AllocBarrier, Group, WaitPhase
from tilec.ir.nodes.threads import Sync
from tilec.ir.roads import Road
from tilec.ir.traits import buffers, written
from tilec.lowering.analysis.flow import overwrites
from tilec.lowering.analysis.roads import described, road_of, with_notes, with_roads
from tilec.lowering.analysis.uses import sets_variable
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


#: Why nothing of a launch is multiplied by tcgen05, for `explain`.
_NOTE = "no product has its sums in tensor memory: {}{}"


class HoldSums(Pass):
    """In: launches with a producer, each of whose products multiplies shared tiles, or 16-bit numbers of a
    fragment by one, into a fragment. Out: TensorProducts and HeldProducts of one warp, a thread of which
    issues them and whose TensorCommits give stages of rings back; TensorPuts in front of products, TensorSums
    in front of what names their sums. Other launches stay, with a note that says why."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its sums."""
        if not has_tensor_memory(target):
            return kernel
        return rewrite_launches(kernel, lambda launch: held(launch, target))


def held(launch: Launch, target: Target) -> Launch:
    """A launch with its sums."""
    consumers = [stmt for stmt in launch.body if isinstance(stmt, Group) and stmt.first == 0]
    kinds = {type(stmt) for stmt in walk(launch.body)}
    if len(consumers) != 1 or not kinds >= {Gemm, GiveBack}:
        return launch
    try:
        return _Sums(launch, consumers[0], target).made()
    except Unfit as unfit:
        return with_notes(launch, [_NOTE.format(_statement(unfit), unfit)])


def _statement(unfit: Unfit) -> str:
    """The statement that is to blame, if one is. Notes name no lines, which move while code stays."""
    return "" if unfit.stmt is None else f"{described((unfit.stmt,))}: "


class _Sums:
    """The sums of one launch."""

    def __init__(self, launch: Launch, group: Group, target: Target) -> None:
        self.launch, self.group = launch, group
        self.held = HeldFragments(launch, group, target)
        self.moves = Moves(self.held)
        self.given: set[Var] = set()

    def made(self) -> Launch:
        """The launch with its sums in tensor memory."""
        state = State()
        inner = [*self._block(self.group.body, state), *self.moves.settled(state), *self.moves.met(state)]
        opened: Block = (OpenTensorMemory(self.moves.memory, self.held.total), Sync("threads"))
        closed: Block = (CloseTensorMemory(self.moves.memory, self.held.total),)
        begun = Alloc(self.moves.parity, init=tirx.const(0, "int32"))
        group = replace(self.group, body=(*opened, begun, *inner, *closed))
        body = [Alloc(self.moves.memory), AllocBarrier(self.moves.done, (1,))]
        body += [self._outer(stmt, group) for stmt in self.launch.body]
        return with_roads(replace(self.launch, body=tuple(body)), list(self._roads()))

    def _outer(self, stmt: Stmt, group: Group) -> Stmt:
        """A statement of the launch: stages come back by one arrival."""
        if stmt is self.group:
            return group
        if isinstance(stmt, AllocBarrier) and stmt.buffer in self.given:
            return replace(stmt, counts=(1,) * len(stmt.counts))
        return stmt

    def _roads(self) -> Iterator[Road]:
        for product, tile in self.held.tiles.items():
            depth = tile.instruction.rpartition("k")[2]
            where = f"{product.a.buffer.name} and sums" if is_held(product) else "sums"
            how = f"tcgen05 m{ROWS}n{tile.columns}k{depth}, {where} in tensor memory"
            yield road_of(product, "tcgen05", how)

    # ---- statements ----

    def _block(self, block: Block, state: State) -> list[Stmt]:
        """A block behind what ``state`` says, which then says what is known behind it."""
        return _joined(new for stmt in block for new in self._stmt(stmt, state))

    def _stmt(self, stmt: Stmt, state: State) -> list[Stmt]:
        if isinstance(stmt, Gemm):
            return self._issued(stmt, state)
        if isinstance(stmt, GiveBack):
            made = self._given_back(stmt)
            return [stmt] if made is stmt else [by_one_warp(made)]
        if isinstance(stmt, WaitPhase):
            awaited = self._awaited(stmt)
            return [stmt] if awaited is None else [by_one_warp(awaited)]
        if not any(isinstance(inner, (Gemm, GiveBack, WaitPhase)) for inner in walk((stmt,))):
            return self._by_threads(stmt, state)
        if isinstance(stmt, For) and self._is_of_one_warp(stmt, state):
            return self._through(stmt, state)
        if isinstance(stmt, REPEATING):
            return self._loop(stmt, state)
        need(isinstance(stmt, If), "a product, or a stage, is in no loop or branch", stmt)
        return self._branches(stmt, state)

    def _issued(self, gemm: Gemm, state: State) -> list[Stmt]:
        """A product, behind what brings fragments to tensor memory and ends what threads do there."""
        fragment, zero = gemm.c.buffer, state.places.get(gemm.c.buffer) in (None, ZERO)
        clear = zero or int_value(gemm.clear) == 1
        made = [] if clear else self.moves.put(fragment, state)
        used = {fragment, *(region.buffer for region in (gemm.a, gemm.b))}
        if is_held(gemm):
            made += self.moves.put(gemm.a.buffer, state)
        if used & state.touched:
            made += self.moves.met(state)
        state.busy |= used
        state.places[fragment] = MEMORY
        return [*made, by_one_warp(self._product(gemm, tirx.const(clear, "bool")))]

    def _by_threads(self, stmt: Stmt, state: State) -> list[Stmt]:
        """What threads do, behind loads of the sums that they name."""
        made: list[Stmt] = []
        inside = list(walk((stmt,)))
        if isinstance(stmt, Alloc):
            return [stmt]
        used = {tile for each in inside for tile in buffers(each)} & self.held.operands
        need(not used & self.held.staged, "threads read a stage, too", stmt)
        changed = used & {tile for each in inside for tile in written(each)}
        if changed & state.busy:
            made += self.moves.settled(state)
        state.touched |= changed
        for fragment in self.held.fragments:
            own = [each for each in inside if fragment in set(buffers(each))]
            if not own:
                continue
            if isinstance(stmt, Fill) and is_whole(stmt.dst) and is_zero(stmt.value):
                state.places[fragment] = ZERO
                return []
            if not overwrites(stmt, fragment):
                made += self.moves.loaded(fragment, state)
            if any(fragment in set(written(each)) for each in own):
                state.places[fragment] = REGISTERS
        return [*made, stmt]

    def _given_back(self, stmt: GiveBack) -> Stmt:
        """A stage that products alone read comes back when they are complete."""
        if not self.held.are_operands(stmt.tiles, stmt):
            return stmt
        self.given.add(stmt.barrier)
        return TensorCommit(stmt.barrier, stmt.index, stmt.tiles, loc=stmt.loc)

    def _awaited(self, stmt: WaitPhase) -> WaitPhase | None:
        """A wait for a stage that products alone read; what threads have brought, it makes visible to them.
        None for other waits."""
        if not self.held.are_operands(self.held.full.get(stmt.barrier, ()), stmt):
            return None
        kind = WaitLanded if stmt.barrier in self.held.by_threads else WaitPhase
        return kind(stmt.barrier, stmt.index, stmt.parity, loc=stmt.loc)

    # ---- loops and branches ----

    def _loop(self, loop: Stmt, state: State) -> list[Stmt]:
        """A loop, whose trips begin where the first one does."""
        (body,) = children(loop)
        need(not any(isinstance(stmt, (Break, Continue)) for stmt in walk(body)), "trips end early", loop)
        made = self.moves.brought(state, self._around(body, state).places)
        state.become(self._around(body, state))
        inside = state.copy()
        trip = [*self._block(body, inside), *self.moves.brought(inside, state.places)]
        state.become(state.joined(inside))
        return [*made, with_children(loop, [tuple(trip)])]

    def _around(self, body: Block, state: State) -> State:
        """What is known where any trip begins."""
        while True:
            trial = state.copy()
            self._block(body, trial)
            found = state.joined(trial)
            if found == state:
                return found
            state = found

    def _branches(self, stmt: Stmt, state: State) -> list[Stmt]:
        """A branch, behind which fragments are in one place."""
        sides = [(state.copy(), inner) for inner in children(stmt)]
        blocks = [self._block(inner, own) for own, inner in sides]
        first, second = (own for own, _ in sides)
        ends = first.joined(second)
        for (own, _), block in zip(sides, blocks, strict=True):
            block += self.moves.brought(own, ends.places)
        state.become(first.joined(second))
        return [with_children(stmt, [tuple(block) for block in blocks])]

    # ---- loops of one warp ----

    def _is_of_one_warp(self, loop: For, state: State) -> bool:
        """Whether a loop does nothing but add products of stages to zeros."""
        own = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
        begins = all(state.places.get(each.c.buffer) == ZERO and not int_value(each.clear) for each in own)
        return begins and bool(own) and all(map(self._is_issued, loop.body))

    def _is_issued(self, stmt: Stmt) -> bool:
        """Whether a statement of a trip is one of those that issue products, or a name."""
        if isinstance(stmt, Gemm):
            return not is_held(stmt)
        if isinstance(stmt, (GiveBack, WaitPhase)):
            tiles = stmt.tiles if isinstance(stmt, GiveBack) else self.held.full.get(stmt.barrier, ())
            return bool(tiles) and self.held.operands >= set(tiles)
        return sets_variable(stmt) or isinstance(stmt, (Assume, Bind))

    def _through(self, loop: For, state: State) -> list[Stmt]:
        """The loop of one warp, behind which all wait for its products and bring sums to registers; zeros of
        a loop without trips."""
        own = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
        sums = dict.fromkeys(product.c.buffer for product in own)
        before = [*self.moves.met(state)]
        state.busy |= set(sums)
        state.places |= dict.fromkeys(sums, MEMORY)
        behind = self.moves.settled(state)
        for fragment in sums:
            behind += self.moves.loaded(fragment, state)
        behind += self.moves.met(state)
        state.places |= dict.fromkeys(sums, REGISTERS)
        fills = [Fill(whole_tile(fragment), tirx.const(0, str(fragment.dtype))) for fragment in sums]
        done = _joined((by_one_warp(self._issuing(loop)), *behind))
        return [*before, If(loop.start < loop.stop, tuple(done), tuple(fills))]

    def _issuing(self, loop: For) -> For:
        """A loop that issues its products, the first of which for a fragment clears it in the first trip."""
        cleared: set[Var] = set()
        body: list[Stmt] = []
        for stmt in loop.body:
            if isinstance(stmt, Gemm):
                first = stmt.c.buffer not in cleared
                cleared.add(stmt.c.buffer)
                clear = tirx.EQ(loop.var, loop.start) if first else tirx.const(False, "bool")
                body.append(self._product(stmt, clear))
            elif isinstance(stmt, WaitPhase):
                body.append(self._awaited(stmt) or stmt)
            else:
                body.append(self._given_back(stmt) if isinstance(stmt, GiveBack) else stmt)
        return replace(loop, body=tuple(body))

    def _product(self, gemm: Gemm, clear: Expr) -> Stmt:
        tile, column = self.held.tiles[gemm], self.held.columns[gemm.c.buffer]
        where = (clear, tile, self.moves.memory, column)
        if is_held(gemm):
            held = self.held.columns[gemm.a.buffer]
            return HeldProduct(gemm.b, gemm.trans_b, *where, held, loc=gemm.loc)
        return TensorProduct(gemm.a, gemm.b, gemm.trans_a, gemm.trans_b, *where, loc=gemm.loc)


def _joined(block: Iterable[Stmt]) -> list[Stmt]:
    """A block in which neighbours that one warp runs are one statement."""
    made: list[Stmt] = []
    for stmt in block:
        last = made[-1] if made else None
        if isinstance(stmt, Group) and isinstance(last, Group):
            made[-1] = replace(last, body=(*last.body, *stmt.body))
        else:
            made.append(stmt)
    return made
