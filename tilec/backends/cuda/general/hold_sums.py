"""Sums of products that a ring feeds lie in tensor memory, where the target has it.

One warp issues the products and waits for the stages that they read. Where a fragment is, in registers or in
tensor memory, follows from who named it last: what products add to, or take as their first operand, threads
put there; what threads name of products' sums they load, behind a wait for all products so far. A loop of
products alone is that warp's, and its sums are loaded behind it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.fragments import WARP
from tilec.backends.cuda.analysis.tensor_memory import (
    MOST,
    ROWS,
    handed_out,
    held_tile,
    is_held,
    taken_columns,
    tensor_tile,
)
from tilec.backends.cuda.analysis.tiles import is_whole, whole_tile
from tilec.backends.cuda.idioms.flow import overwrites
from tilec.backends.cuda.limits import has_tensor_memory
from tilec.backends.cuda.nodes import (
    REPEATING,
    BoxLoad,
    CloseTensorMemory,
    GiveBack,
    HeldProduct,
    OpenTensorMemory,
    TensorCommit,
    TensorProduct,
    TensorPut,
    TensorSums,
    TensorTile,
    WaitLanded,
)
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import int_value
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
    Store,
    children,
    walk,
    with_children,
)
from tilec.ir.nodes.barriers import SCOPE, AllocBarrier, Arrive, Group, WaitPhase
from tilec.ir.nodes.threads import Sync
from tilec.ir.roads import Road
from tilec.ir.traits import buffers, written
from tilec.lowering.analysis.roads import road_of, with_notes, with_roads
from tilec.lowering.emission.storage import element_bytes
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
        return rewrite_launches(kernel, lambda launch: _held(launch, target))


def _held(launch: Launch, target: Target) -> Launch:
    consumers = [stmt for stmt in launch.body if isinstance(stmt, Group) and stmt.first == 0]
    kinds = {type(stmt) for stmt in walk(launch.body)}
    if len(consumers) != 1 or not kinds >= {Gemm, GiveBack}:
        return launch
    try:
        return _Sums(launch, consumers[0], target).made()
    except Unfit as unfit:
        return with_notes(launch, [_NOTE.format(_line(unfit), unfit)])


def _line(unfit: Unfit) -> str:
    """Where the statement stands that is to blame, if one is."""
    loc = None if unfit.stmt is None else unfit.stmt.loc
    return "" if loc is None else f"line {loc.line}: "


#: Where a fragment is: zeros that nobody has stored, registers, tensor memory, both.
_ZERO, _REGISTERS, _MEMORY, _BOTH = "zero", "registers", "memory", "both"


@dataclass
class _State:
    """What is known at a place of a program: where fragments are that hold something; what products under
    way use; what threads have loaded from or put to tensor memory since they last met, and whether they have
    waited for products since."""

    places: dict[Var, str] = field(default_factory=dict)
    busy: set[Var] = field(default_factory=set)
    touched: set[Var] = field(default_factory=set)
    waited: bool = False

    def copy(self) -> _State:
        """Another one that says the same."""
        return _State(dict(self.places), set(self.busy), set(self.touched), self.waited)

    def become(self, other: _State) -> None:
        """What another one says."""
        self.places, self.busy, self.touched, self.waited = vars(other.copy()).values()

    def joined(self, other: _State) -> _State:
        """What is known where two ways meet, if each brings fragments where they shall be then: where both
        have them, else in tensor memory; what only one of them has holds nothing on the other."""
        places = {name: other.places.get(name, place) for name, place in self.places.items()}
        places = {**other.places, **{name: _meet(self.places[name], places[name]) for name in places}}
        both = self.busy | other.busy, self.touched | other.touched
        return _State(places, *both, self.waited or other.waited)


def _meet(first: str, second: str) -> str:
    if first == second != _BOTH:
        return first
    either = {first, second}
    return _REGISTERS if _MEMORY not in either else _MEMORY


class _Sums:
    """The sums of one launch."""

    def __init__(self, launch: Launch, group: Group, target: Target) -> None:
        self.launch, self.group, self.target = launch, group, target
        products = [stmt for stmt in walk(launch.body) if isinstance(stmt, Gemm)]
        held = {stmt.a.buffer for stmt in products if is_held(stmt)}
        self.operands = {region.buffer for stmt in products for region in (stmt.a, stmt.b)} - held
        _check_orders(launch, self.operands)
        self.tiles = {stmt: self._tile(stmt) for stmt in products}
        self.fragments = self._fragments(products)
        self.columns = self._columns()
        self.staged = {
            tile for stmt in walk(launch.body) if isinstance(stmt, GiveBack) for tile in stmt.tiles
        }
        self.full: dict[Var, set[Var]] = {}
        self.by_threads: set[Var] = set()
        for stmt in launch.body:
            if stmt is not group:
                self._learn((stmt,))
        self.given: set[Var] = set()
        self.done = tirx.decl_buffer((1,), "uint64", name="sums_done", scope=SCOPE)
        self.parity = tirx.decl_buffer((1,), "int32", name="sums_round", scope="local.var")
        self.memory = tirx.decl_buffer((1,), "uint32", name="tensor_memory", scope=SCOPE)

    def _learn(self, block: Block) -> None:
        """Which tiles are there when those who wait for a barrier go on, and at which barriers threads arrive
        that have written some since they waited."""
        filled: set[Var] = set()
        for stmt in block:
            for inner in children(stmt):
                self._learn(inner)
            if isinstance(stmt, BoxLoad):
                self.full.setdefault(stmt.barrier, set()).add(stmt.dst.buffer)
            elif isinstance(stmt, WaitPhase):
                filled = set()
            elif isinstance(stmt, Arrive):
                self.full.setdefault(stmt.barrier, set()).update(filled)
                self.by_threads |= {stmt.barrier} if filled else set()
            else:
                filled |= {tile for inner in walk((stmt,)) for tile in written(inner)} & self.staged

    def _tile(self, product: Gemm) -> TensorTile:
        found = tensor_tile(product, self.group.count // WARP, self.target)
        if isinstance(found, str):
            raise Unfit(found, product)
        need(int_value(product.clear) is not None, "it may clear its sums itself", product)
        return found

    def _fragments(self, products: Sequence[Gemm]) -> dict[Var, TensorTile]:
        """What lies in tensor memory, and how: sums, and first operands behind them."""
        found: dict[Var, TensorTile] = {}
        own = [(product.c.buffer, self.tiles[product]) for product in products]
        own += [(stmt.a.buffer, held_tile(self.tiles[stmt])) for stmt in products if is_held(stmt)]
        for fragment, tile in own:
            known = found.setdefault(fragment, tile)
            same = (known.warps, known.tiles, known.columns) == (tile.warps, tile.tiles, tile.columns)
            need(same, f"products use {fragment.name} in two ways")
        return found

    def _columns(self) -> dict[Var, int]:
        """The first column of each fragment."""
        places: dict[Var, int] = {}
        at = 0
        for fragment, tile in self.fragments.items():
            places[fragment] = at
            at += taken_columns(tile, element_bytes(str(fragment.dtype)))
        need(0 < at <= MOST, f"tensor memory has no {at} columns")
        self.total = handed_out(at)
        return places

    def made(self) -> Launch:
        """The launch with its sums in tensor memory."""
        state = _State()
        inner = [*self._block(self.group.body, state), *self._settled(state), *self._met(state)]
        opened: Block = (OpenTensorMemory(self.memory, self.total), Sync("threads"))
        closed: Block = (CloseTensorMemory(self.memory, self.total),)
        begun = Alloc(self.parity, init=tirx.const(0, "int32"))
        group = replace(self.group, body=(*opened, begun, *inner, *closed))
        body = [Alloc(self.memory), AllocBarrier(self.done, (1,))]
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
        for product, tile in self.tiles.items():
            depth = tile.instruction.rpartition("k")[2]
            where = f"{product.a.buffer.name} and sums" if is_held(product) else "sums"
            how = f"tcgen05 m{ROWS}n{tile.columns}k{depth}, {where} in tensor memory"
            yield road_of(product, "tcgen05", how)

    # ---- statements ----

    def _block(self, block: Block, state: _State) -> list[Stmt]:
        """A block behind what ``state`` says, which then says what is known behind it."""
        return _joined(new for stmt in block for new in self._stmt(stmt, state))

    def _stmt(self, stmt: Stmt, state: _State) -> list[Stmt]:
        if isinstance(stmt, Gemm):
            return self._issued(stmt, state)
        if isinstance(stmt, GiveBack):
            made = self._given_back(stmt)
            return [stmt] if made is stmt else [self._by_one_warp(made)]
        if isinstance(stmt, WaitPhase):
            awaited = self._awaited(stmt)
            return [stmt] if awaited is None else [self._by_one_warp(awaited)]
        if not any(isinstance(inner, (Gemm, GiveBack, WaitPhase)) for inner in walk((stmt,))):
            return self._by_threads(stmt, state)
        if isinstance(stmt, For) and self._is_of_one_warp(stmt, state):
            return self._through(stmt, state)
        if isinstance(stmt, REPEATING):
            return self._loop(stmt, state)
        need(isinstance(stmt, If), "a product, or a stage, is in no loop or branch", stmt)
        return self._branches(stmt, state)

    def _by_one_warp(self, *block: Stmt) -> Group:
        """Others than that warp do not wait for stages: the next ones could come before a late one has
        looked."""
        return Group(0, WARP, block)

    def _issued(self, gemm: Gemm, state: _State) -> list[Stmt]:
        """A product, behind what brings fragments to tensor memory and ends what threads do there."""
        fragment, zero = gemm.c.buffer, state.places.get(gemm.c.buffer) in (None, _ZERO)
        clear = zero or int_value(gemm.clear) == 1
        made = [] if clear else self._put(fragment, state)
        used = {fragment, *(region.buffer for region in (gemm.a, gemm.b))}
        if is_held(gemm):
            made += self._put(gemm.a.buffer, state)
        if used & state.touched:
            made += self._met(state)
        state.busy |= used
        state.places[fragment] = _MEMORY
        return [*made, self._by_one_warp(self._product(gemm, tirx.const(clear, "bool")))]

    def _by_threads(self, stmt: Stmt, state: _State) -> list[Stmt]:
        """What threads do, behind loads of the sums that they name."""
        made: list[Stmt] = []
        inside = list(walk((stmt,)))
        if isinstance(stmt, Alloc):
            return [stmt]
        used = {tile for each in inside for tile in buffers(each)} & self.operands
        need(not used & self.staged, "threads read a stage, too", stmt)
        changed = used & {tile for each in inside for tile in written(each)}
        if changed & state.busy:
            made += self._settled(state)
        state.touched |= changed
        for fragment in self.fragments:
            own = [each for each in inside if fragment in set(buffers(each))]
            if not own:
                continue
            if isinstance(stmt, Fill) and is_whole(stmt.dst) and getattr(stmt.value, "value", None) == 0:
                state.places[fragment] = _ZERO
                return []
            if not overwrites(stmt, fragment):
                made += self._loaded(fragment, state)
            if any(fragment in set(written(each)) for each in own):
                state.places[fragment] = _REGISTERS
        return [*made, stmt]

    def _given_back(self, stmt: GiveBack) -> Stmt:
        """A stage that products alone read comes back when they are complete."""
        if not self._are_operands(stmt.tiles, stmt):
            return stmt
        self.given.add(stmt.barrier)
        return TensorCommit(stmt.barrier, stmt.index, stmt.tiles, loc=stmt.loc)

    def _awaited(self, stmt: WaitPhase) -> WaitPhase | None:
        """A wait for a stage that products alone read; what threads have brought, it makes visible to them.
        None for other waits."""
        if not self._are_operands(self.full.get(stmt.barrier, ()), stmt):
            return None
        kind = WaitLanded if stmt.barrier in self.by_threads else WaitPhase
        return kind(stmt.barrier, stmt.index, stmt.parity, loc=stmt.loc)

    def _are_operands(self, tiles: Iterable[Var], stmt: Stmt) -> bool:
        """Whether products read the tiles of a stage; Unfit where threads read some of them."""
        found = {tile in self.operands for tile in tiles}
        need(len(found) < 2, "threads read a stage, too", stmt)
        return found == {True}

    # ---- from place to place ----

    def _loaded(self, fragment: Var, state: _State) -> list[Stmt]:
        """A fragment in registers."""
        place = state.places.get(fragment)
        if place == _ZERO:
            state.places[fragment] = _REGISTERS
            return [Fill(whole_tile(fragment), tirx.const(0, str(fragment.dtype)))]
        if place != _MEMORY:
            return []
        made = self._settled(state) if fragment in state.busy else []
        state.places[fragment] = _BOTH
        state.touched.add(fragment)
        return [*made, TensorSums(whole_tile(fragment), *self._where(fragment))]

    def _put(self, fragment: Var, state: _State) -> list[Stmt]:
        """A fragment in tensor memory."""
        made = self._loaded(fragment, state) if state.places.get(fragment) == _ZERO else []
        if state.places.get(fragment) != _REGISTERS:
            return made
        if fragment in state.busy:
            made += self._settled(state)
        state.places[fragment] = _BOTH
        state.touched.add(fragment)
        return [*made, TensorPut(whole_tile(fragment), *self._where(fragment))]

    def _where(self, fragment: Var) -> tuple[TensorTile, Var, int]:
        return self.fragments[fragment], self.memory, self.columns[fragment]

    def _settled(self, state: _State) -> list[Stmt]:
        """A wait for all products so far. Threads meet between two of them: a late one has to find the
        phase."""
        if not state.busy:
            return []
        zero = tirx.const(0, "int32")
        round_ = tirx.BufferLoad(self.parity, [zero])
        made = self._met(state) if state.waited else []
        state.busy, state.waited = set(), True
        return [
            *made,
            self._by_one_warp(TensorCommit(self.done, zero, ())),
            WaitPhase(self.done, zero, round_),
            Store(self.parity, (zero,), tirx.bitwise_xor(round_, tirx.const(1, "int32"))),
        ]

    def _met(self, state: _State) -> list[Stmt]:
        """Threads meet, where they have done something in tensor memory or waited for it."""
        if not state.touched and not state.waited:
            return []
        state.touched, state.waited = set(), False
        return [Sync("threads")]

    def _brought(self, state: _State, places: dict[Var, str]) -> list[Stmt]:
        """Fragments where other ways have them that meet this one."""
        made: list[Stmt] = []
        for fragment, place in places.items():
            own = state.places.get(fragment, place)
            if own != place and place == _MEMORY:
                made += self._put(fragment, state)
            elif own != place:
                made += self._loaded(fragment, state)
        return made

    # ---- loops and branches ----

    def _loop(self, loop: Stmt, state: _State) -> list[Stmt]:
        """A loop, whose trips begin where the first one does."""
        (body,) = children(loop)
        need(not any(isinstance(stmt, (Break, Continue)) for stmt in walk(body)), "trips end early", loop)
        made = self._brought(state, self._around(body, state).places)
        state.become(self._around(body, state))
        inside = state.copy()
        trip = [*self._block(body, inside), *self._brought(inside, state.places)]
        state.become(state.joined(inside))
        return [*made, with_children(loop, [tuple(trip)])]

    def _around(self, body: Block, state: _State) -> _State:
        """What is known where any trip begins."""
        while True:
            trial = state.copy()
            self._block(body, trial)
            found = state.joined(trial)
            if found == state:
                return found
            state = found

    def _branches(self, stmt: Stmt, state: _State) -> list[Stmt]:
        """A branch, behind which fragments are in one place."""
        sides = [(state.copy(), inner) for inner in children(stmt)]
        blocks = [self._block(inner, own) for own, inner in sides]
        first, second = (own for own, _ in sides)
        ends = first.joined(second)
        for (own, _), block in zip(sides, blocks, strict=True):
            block += self._brought(own, ends.places)
        state.become(first.joined(second))
        return [with_children(stmt, [tuple(block) for block in blocks])]

    # ---- loops of one warp ----

    def _is_of_one_warp(self, loop: For, state: _State) -> bool:
        """Whether a loop does nothing but add products of stages to zeros."""
        own = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
        begins = all(state.places.get(each.c.buffer) == _ZERO and not int_value(each.clear) for each in own)
        return begins and bool(own) and all(map(self._is_issued, loop.body))

    def _is_issued(self, stmt: Stmt) -> bool:
        """Whether a statement of a trip is one of those that issue products, or a name."""
        if isinstance(stmt, Gemm):
            return not is_held(stmt)
        if isinstance(stmt, (GiveBack, WaitPhase)):
            tiles = stmt.tiles if isinstance(stmt, GiveBack) else self.full.get(stmt.barrier, ())
            return bool(tiles) and self.operands >= set(tiles)
        variable = isinstance(stmt, Store) and str(stmt.buffer.scope()) == "local.var"
        return variable or isinstance(stmt, (Assume, Bind))

    def _through(self, loop: For, state: _State) -> list[Stmt]:
        """The loop of one warp, behind which all wait for its products and bring sums to registers; zeros of
        a loop without trips."""
        own = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
        sums = dict.fromkeys(product.c.buffer for product in own)
        before = [*self._met(state)]
        state.busy |= set(sums)
        state.places |= dict.fromkeys(sums, _MEMORY)
        behind = self._settled(state)
        for fragment in sums:
            behind += self._loaded(fragment, state)
        behind += self._met(state)
        state.places |= dict.fromkeys(sums, _REGISTERS)
        fills = [Fill(whole_tile(fragment), tirx.const(0, str(fragment.dtype))) for fragment in sums]
        done = _joined((self._by_one_warp(self._issuing(loop)), *behind))
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
        tile, column = self.tiles[gemm], self.columns[gemm.c.buffer]
        where = (clear, tile, self.memory, column)
        if is_held(gemm):
            held = self.columns[gemm.a.buffer]
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


def _check_orders(launch: Launch, operands: set[Var]) -> None:
    """Unfit where an author gives an operand another order than descriptors say."""
    for stmt in walk(launch.body):
        asked = isinstance(stmt, Alloc) and stmt.buffer in operands and stmt.asked is not None
        need(not asked, "T.annotate_layout orders an operand", stmt)
