"""Where threads wait for products that run in the background, and where tiles go back to their producer.

    wgmma(A[s], B[s], acc); give back A[s], B[s]; Y = acc
    ->
    wgmma(A[s], B[s], acc); wait for all products but 0; give back A[s], B[s]; Y = acc

A product goes on while its threads do other things: nobody may read its sums, change its operands or hand
their memory back before it is complete. Products complete in the order of their issue, so a wait says how
many may still be under way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm import sym, tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.pipelines.versions import parity
from tilec.backends.cuda.nodes import GiveBack, ProductsWait, WarpgroupProduct
from tilec.backends.cuda.passes.waits.place_shared import sharing
from tilec.ir.analysis.jumps import jumps
from tilec.ir.exprs import int_value, same
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Launch, Stmt, Store, children, walk, with_children
from tilec.ir.nodes.barriers import Arrive, NamedArrive, WaitPhase, WaitProducts
from tilec.ir.nodes.threads import Sync
from tilec.ir.traits import buffers, loads_of, regions, written
from tilec.lowering.passes.base import LaunchPass

#: Stages of a ring that products under way may hold when the next one is waited for.
_AHEAD = 2
#: Statements by which others learn that this group is done with what it read.
_TELLING = (Arrive, NamedArrive, Sync)


@dataclass(frozen=True)
class _Issued:
    """A product that is under way, and the tiles that go back when it is complete. ``known``: who arrives at
    a barrier does not tell of it; ``apart``: the tiles of which other trips write other versions, ``made``
    those of them that threads do."""

    product: WarpgroupProduct
    returns: tuple[GiveBack, ...] = ()
    known: bool = False
    apart: frozenset[Var] = frozenset()
    made: frozenset[Var] = frozenset()

    @property
    def read(self) -> set[Var]:
        """What the product multiplies."""
        return {self.product.a.buffer, self.product.b.buffer}


UnderWay = tuple[_Issued, ...]


class PlaceProductWaits(LaunchPass):
    """In: WarpgroupProducts in the order of their issue. Out: ProductsWait before every statement that
    touches a result, writes an operand or tells others to, for no more products than it needs: they end in
    order. What products take from registers is written while nothing is under way, or ptxas serialises them.
    A GiveBack goes behind the wait for the last product that reads its tiles. Products whose loop does not
    need them before its next trip issues others stay under way over its end, and what they read goes back
    there. Of tiles that threads make, two versions in turns, they are complete in front of the next trip's,
    so that the barrier there tells of it, too. Nothing is under way when a branch or a group ends, where a
    trip is left early, nor behind a loop that may have no trip. Behind WaitProducts of an author who arrives
    tells of no more products than those that it waits for."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its waits."""
        if not any(isinstance(stmt, (WarpgroupProduct, WaitProducts)) for stmt in walk(launch.body)):
            return launch
        products = [stmt for stmt in walk(launch.body) if isinstance(stmt, WarpgroupProduct)]
        held = {
            stmt.a.buffer: stmt.c.buffer for stmt in products if stmt.a.buffer.scope() == "local.fragment"
        }
        return replace(launch, body=_Waits(sharing(launch.body), held).closed(launch.body))


@dataclass(frozen=True)
class _Waits:
    """Walks blocks with what is under way. ``sharing``: the tiles on the bytes of another one; ``held``: the
    fragments that products multiply, and what they add to."""

    sharing: Mapping[Var, frozenset[Var]]
    held: Mapping[Var, Var]

    def closed(self, block: Block) -> Block:
        """A block at whose end nothing is under way."""
        made, left = self.opened(block, ())
        return (*made, *_wait(left, len(left)))

    def opened(self, block: Block, under_way: UnderWay) -> tuple[Block, UnderWay]:
        """A block with its waits, and the products that are under way behind it."""
        made: list[Stmt] = []
        last = max((place for place, stmt in enumerate(block) if _multiplies(stmt)), default=-1)
        for place, stmt in enumerate(block):
            if isinstance(stmt, GiveBack):
                reader = _last_reader(stmt, under_way)
                if reader is not None:
                    issued = under_way[reader]
                    later = replace(issued, returns=(*issued.returns, stmt))
                    under_way = (*under_way[:reader], later, *under_way[reader + 1 :])
                    continue
            if isinstance(stmt, WaitProducts):
                count = max(len(under_way) - stmt.pending, 0)
                made += _wait(under_way, count)
                under_way = tuple(replace(issued, known=True) for issued in under_way[count:])
                continue
            if isinstance(stmt, WaitPhase):
                count = _too_many(under_way, block[place:])
                made += _wait(under_way, count)
                under_way = under_way[count:]
            around = bool(children(stmt)) and _multiplies(stmt)
            count = len(under_way) if around else self._needed(under_way, stmt)
            added_to = stmt.c.buffer if isinstance(stmt, WarpgroupProduct) else None
            made += _wait(under_way, count, early=place > last, added_to=added_to)
            under_way = under_way[count:]
            if not around:
                made.append(stmt)
                under_way = (*under_way, _Issued(stmt)) if isinstance(stmt, WarpgroupProduct) else under_way
            elif isinstance(stmt, For):
                before, under_way = self._loop(stmt)
                made += before
            else:
                made.append(with_children(stmt, [self.closed(inner) for inner in children(stmt)]))
        return tuple(made), under_way

    def _loop(self, loop: For) -> tuple[Block, UnderWay]:
        """A loop, and the products that are under way behind it: those that its last trip leaves. They are
        under way when the next one begins, and complete behind the last product that it issues; before the
        first trip there may be none, which waits do not mind. The last trip waits for its own. Tiles of a
        trip's own that they read are allocated in front of the loop, as the waits behind it name them."""
        body, left = self.opened(loop.body, ())
        if not left:
            return (replace(loop, body=body),), ()
        if any(next(jumps(stmt), None) for stmt in loop.body):
            return (replace(loop, body=self.closed(loop.body)),), ()
        held = {stmt: _Held(stmt) for issued in left for stmt in issued.returns}
        carried = tuple(_carried(issued, loop, held) for issued in left)
        if not all(_may_stay(issued, loop) for issued in left) or not self._goes_on(loop, carried):
            return (replace(loop, body=self.closed(loop.body)),), ()
        body, under_way = self.opened(loop.body, carried)
        old = [issued for issued in under_way if any(issued is each for each in carried)]
        kept = tuple(issued for issued in under_way if not any(issued is each for each in carried))
        if [issued.product for issued in kept] != [issued.product for issued in left]:
            return (replace(loop, body=self.closed(loop.body)),), ()
        added = (*_wait(under_way, len(old)), _last_wait(loop), *(each.keep() for each in held.values()))
        body = _behind_last(body, added)
        read = {tile for issued in left for tile in issued.read}
        own = [stmt for stmt in body if isinstance(stmt, Alloc) and stmt.buffer in read]
        allocs = [*own, *(each.alloc() for each in held.values())]
        made = replace(loop, body=tuple(stmt for stmt in body if stmt not in own))
        if _has_trips(loop):
            return (*allocs, made), carried
        return (*allocs, If(loop.start < loop.stop, (made, *_wait(carried, len(carried))), loc=loop.loc)), ()

    def _goes_on(self, loop: For, left: UnderWay) -> bool:
        """Whether a trip issues a product before it needs all of the trip before."""
        first = next(place for place, stmt in enumerate(loop.body) if _multiplies(stmt))
        waits = any(_writes_own_registers(issued.product) or issued.made for issued in left)
        before = loop.body[: first + (not waits)]
        return all(self._needed(left, stmt) < len(left) for stmt in before)

    def _needed(self, under_way: UnderWay, stmt: Stmt) -> int:
        """How many of the oldest products have to be complete before a statement: all of them before one that
        may leave the block."""
        if next(jumps(stmt), None) is not None:
            return len(under_way)
        needed = [self._must_wait(stmt, issued) for issued in under_way]
        return max((index + 1 for index, must in enumerate(needed) if must), default=0)

    def _must_wait(self, stmt: Stmt, issued: _Issued) -> bool:
        """Whether a statement touches what a product writes, or may change what it reads. Products may add to
        one accumulator one after the other."""
        product = issued.product
        if isinstance(stmt, (Bind, WaitPhase, GiveBack)):
            return False
        if stmt is product and _writes_own_registers(product):
            return True
        if isinstance(stmt, WarpgroupProduct) and stmt.c.buffer.same_as(product.c.buffer):
            return bool(issued.made & {stmt.a.buffer, stmt.b.buffer})
        beside = {other for tile in issued.read for other in self.sharing.get(tile, ())}
        operands = (issued.read - issued.apart) | beside
        operands |= {tile for tile, sums in self.held.items() if not sums.same_as(product.c.buffer)}
        return any(
            (isinstance(inner, _TELLING) and not issued.known)
            or product.c.buffer in set(buffers(inner))
            or bool(operands & set(written(inner)))
            for inner in walk((stmt,))
        )


class _Held:
    """The stage that goes back in the next trip; -1 before the first one."""

    def __init__(self, stmt: GiveBack) -> None:
        self._stmt = stmt
        name = f"{stmt.barrier.name}_held"
        self._stage = tirx.decl_buffer((1,), "int32", name=name, scope="local.var")

    def alloc(self) -> Stmt:
        """Its variable."""
        return Alloc(self._stage, init=tirx.const(-1, "int32"))

    def keep(self) -> Stmt:
        """The stage of this trip is kept."""
        return Store(self._stage, (tirx.const(0, "int32"),), self._stmt.index)

    def later(self) -> GiveBack:
        """Gives back the stage that was kept."""
        return replace(self._stmt, index=tirx.BufferLoad(self._stage, [tirx.const(0, "int32")]))


def _may_stay(issued: _Issued, loop: For) -> bool:
    """Whether a product may be under way when the next trip of its loop begins. What it holds until that trip
    has issued its own products may not be what the producer needs for them."""
    product = issued.product
    if product not in loop.body or _is_changed(product, loop) or _is_made(product, loop):
        return False
    given = [stmt for stmt in walk(loop.body) if isinstance(stmt, GiveBack)]
    return all(
        sum(other.barrier.same_as(stmt.barrier) for other in given) < _stages(stmt.barrier)
        for stmt in issued.returns
    )


def _is_made(product: WarpgroupProduct, loop: For) -> bool:
    """Whether a product takes registers that a trip writes. wgmma reads registers until it is waited for, and
    behind the end of a trip ptxas gives them to what the next one computes, copies of them, too: results then
    change from run to run where one sum is all that products add to, and elsewhere registers lack (gradients
    of keys on an H200: 877 us so, 865 without, 812 where two such products end a trip)."""
    tile = product.a.buffer
    return bool(tile.scope() == "local.fragment") and any(tile in written(stmt) for stmt in walk(loop.body))


def _is_changed(product: WarpgroupProduct, loop: For) -> bool:
    """Whether threads change the sums of a product in a trip. ptxas serialises all products where sums that
    do not stay with wgmma are under way from one trip to the next."""
    return any(
        product.c.buffer in set(written(stmt))
        for stmt in walk(loop.body)
        if not isinstance(stmt, WarpgroupProduct)
    )


def _carried(issued: _Issued, loop: For, held: Mapping[GiveBack, _Held]) -> _Issued:
    """A product that is under way when the next trip begins. That one writes elsewhere in rings whose stage
    has not gone back, and in tiles of which a trip uses the version of its parity alone."""
    made = frozenset(tile for tile in issued.read if tile.scope() == "shared.dyn" and _alternates(tile, loop))
    apart = made | {tile for stmt in issued.returns for tile in stmt.tiles}
    return replace(issued, returns=_held(issued, held), apart=apart, made=made)


def _alternates(tile: Var, loop: For) -> bool:
    """Whether a loop uses one version of a tile in even trips and another one in odd trips."""
    users = [stmt for stmt in walk(loop.body) if tile in set(buffers(stmt))]
    return all(_is_of_parity(stmt, tile, loop.var) for stmt in users)


def _is_of_parity(stmt: Stmt, tile: Var, trip: Var) -> bool:
    """Whether all that a statement names of a tile is the version of a trip."""
    found = [region.start[0] for region in regions(stmt) if region.buffer.same_as(tile)]
    found += [load.indices[0] for load in loads_of(stmt) if load.source.same_as(tile)]
    if isinstance(stmt, Store) and stmt.buffer.same_as(tile):
        found.append(stmt.indices[0])
    return bool(found) and all(same(place, parity(trip)) for place in found)


def _has_trips(loop: For) -> bool:
    """Whether a loop is known to have a trip. ptxas keeps sums of products in their registers where nothing
    is under way when paths with products and without meet; else it serialises all products."""
    return (int_value(sym.Analyzer().simplify(loop.stop - loop.start)) or 0) > 0


def _held(issued: _Issued, held: Mapping[GiveBack, _Held]) -> tuple[GiveBack, ...]:
    return tuple(held[stmt].later() for stmt in issued.returns)


def _too_many(under_way: UnderWay, following: Block) -> int:
    """How many of the oldest products have to be complete before a wait, so that the stages of a ring that
    do not go back before leave one to be filled for the next product, and no more than `_AHEAD` are kept from
    their loads."""
    product = next((stmt for stmt in following if isinstance(stmt, WarpgroupProduct)), None)
    if product is None:
        return 0
    read, rings = {product.a.buffer, product.b.buffer}, dict[Var, list[int]]()
    for number, issued in enumerate(under_way):
        for stmt in issued.returns:
            if read & set(stmt.tiles):
                rings.setdefault(stmt.barrier, []).append(number)
    return max((_beyond(held, _stages(barrier)) for barrier, held in rings.items()), default=0)


def _beyond(held: list[int], stages: int) -> int:
    """How many products that is of a ring of ``stages``, one of which each of ``held`` keeps."""
    most = min(stages - 1, _AHEAD)
    return held[-most - 1] + 1 if len(held) > most else 0


def _stages(barrier: Var) -> int:
    """How many stages of a ring a barrier tells of."""
    return int_value(barrier.shape[0]) or 1


def _last_reader(stmt: GiveBack, under_way: UnderWay) -> int | None:
    """The last product under way that reads a tile of those that go back."""
    tiles = set(stmt.tiles)
    numbers = [index for index, issued in enumerate(under_way) if tiles & issued.read]
    return max(numbers, default=None)


def _last_wait(loop: For) -> Stmt:
    """The wait of the last trip for its own products. ptxas moved reads of their sums in front of the wait
    behind a loop that NVVM had written out twice (12 of 24 sums of 16 x 192, two stages; CUDA 12.9 and 13):
    with this one they are complete there whatever is moved."""
    return If(loop.var + loop.step >= loop.stop, (ProductsWait(0, (), ()),), loc=loop.loc)


def _behind_last(block: Block, added: Block) -> Block:
    """``block`` with statements behind its last product."""
    last = max(index for index, stmt in enumerate(block) if isinstance(stmt, WarpgroupProduct))
    return (*block[: last + 1], *added, *block[last + 1 :])


def _writes_own_registers(product: WarpgroupProduct) -> bool:
    """Whether a product takes registers that it writes itself, in the next trip again."""
    return product.registers is not None


def _multiplies(stmt: Stmt) -> bool:
    return any(isinstance(inner, WarpgroupProduct) for inner in walk((stmt,)))


def _wait(under_way: UnderWay, count: int, early: bool = False, added_to: Var | None = None) -> list[Stmt]:
    """The waits for the ``count`` oldest products, behind which what they read goes back. ``early``: a stage
    of the trip before goes back in front of the wait for products of this one, as no other one is left that
    its next load could run beside (gradients of queries on an H200: 1596 us without, 1496 so)."""
    cuts = (
        place
        for place in range(count - 1)
        if (early and _is_of_before(under_way, place)) or _gives_first(under_way[:count], place)
    )
    ends = [*(place + 1 for place in cuts), count] if count else []
    pairs = zip((0, *ends), ends, strict=False)
    return [stmt for start, end in pairs for stmt in _complete(under_way, start, end, added_to)]


def _is_of_before(under_way: UnderWay, place: int) -> bool:
    """Whether a product always gives back a stage of a ring of which an older one reads another stage."""
    given = (stmt for stmt in under_way[place].returns if not isinstance(stmt.index, TensorLoad))
    returned = [(tile, stmt.index) for stmt in given for tile in stmt.tiles]
    older = (issued.product for issued in under_way[:place])
    read = [region for product in older for region in (product.a, product.b)]
    return any(
        region.buffer.same_as(tile) and not same(region.start[0], index)
        for region in read
        for tile, index in returned
    )


def _gives_first(under_way: UnderWay, place: int) -> bool:
    """Whether a product gives back a stage of a ring of which a later one gives back another."""
    own = [stmt.barrier for stmt in under_way[place].returns]
    later = [stmt.barrier for issued in under_way[place + 1 :] for stmt in issued.returns]
    return any(barrier.same_as(other) for barrier in own for other in later)


def _complete(under_way: UnderWay, start: int, end: int, added_to: Var | None) -> list[Stmt]:
    """The wait for some products, all older ones being complete, behind which what they read goes back. The
    next product may add to sums, ``added_to``."""
    done = under_way[start:end]
    left = {issued.product.c.buffer for issued in under_way[end:]} | {added_to}
    sums = {issued.product.c.buffer: issued.product.c for issued in done}
    complete = tuple(region for buffer, region in sums.items() if buffer not in left)
    tiles = [region.buffer for issued in done for region in (issued.product.a, issued.product.b)]
    shared = tuple(tile for tile in dict.fromkeys(tiles) if tile.scope() == "shared.dyn")
    waits: list[Stmt] = [ProductsWait(len(under_way) - end, shared, complete)]
    return waits + [_given(stmt) for issued in done for stmt in issued.returns]


def _given(stmt: GiveBack) -> Stmt:
    """A stage goes back: one that was kept in a trip before only if there was one."""
    if not isinstance(stmt.index, TensorLoad):
        return stmt
    return If(stmt.index >= tirx.const(0, "int32"), (stmt,))
