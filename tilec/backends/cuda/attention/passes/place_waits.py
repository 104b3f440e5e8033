"""Where consumers wait for their products, and where tiles go back to the producer.

Products complete in the order of their issue. A statement that touches a result, or writes an operand, waits
until so many are under way as were issued after the last that it needs. Nothing is under way when a loop, a
branch or a block ends: ptxas keeps no track of it across these and would serialise all products.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.attention.nodes import (
    AsyncProduct,
    AttentionRoles,
    BoxStore,
    ProductsWait,
    RingRelease,
    RingWait,
    TileRing,
    Turn,
)
from tilec.backends.cuda.attention.passes.rewriting import AttentionPass, touched
from tilec.backends.cuda.nodes import ThreadLoop
from tilec.ir.nodes import Bind, Block, For, If, Stmt, children, walk, with_children
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.ir.nodes import Launch


#: With more warpgroups than these a turn lasts until its first product is complete (head size 64 on an H200:
#: 526 TFLOP/s, 509 where it ends with the issue; with two warpgroups 673 and 684). One of 8-bit operands,
#: whose products take half as long as the arithmetic between them, lasts until all of its products are
#: complete (918 TFLOP/s on an H200, 909 until the first one is, 859 where it ends with the issue).
_EARLY = 2


class PlaceWaits(AttentionPass):
    """In: AttentionRoles with RingWait and AsyncProduct in its consumers. Out: ProductsWait and RingRelease
    too."""

    def roles(self, roles: AttentionRoles, launch: Launch) -> AttentionRoles:
        """The roles with their waits."""
        rings = {ring.tile: ring for ring in roles.rings}
        top = [stmt.ring for stmt in roles.consumer if isinstance(stmt, RingWait)]
        made = _Waits(rings, top, roles.alone).at_top(roles.consumer)
        pending = _pending(made, roles)
        return replace(roles, consumer=made if pending is None else _with_late_turns(made, pending))


def _pending(block: Block, roles: AttentionRoles) -> int | None:
    """How many of its products are under way where a turn ends; None where it ends with their issue."""
    if roles.alone:
        return None
    if _is_small(block):
        return 0
    return 1 if roles.roles.consumers > _EARLY else None


def _is_small(block: Block) -> bool:
    """Whether all products are of 8-bit operands."""
    products = (stmt for stmt in walk(block) if isinstance(stmt, AsyncProduct))
    return all(element_bytes(str(stmt.b.buffer.dtype)) == 1 for stmt in products)


def _with_late_turns(block: Block, pending: int) -> Block:
    """``block`` with turns that end when at most ``pending`` of the products issued in them are under way."""
    made: list[Stmt] = []
    held: Stmt | None = None
    for stmt in block:
        if isinstance(stmt, Turn) and not stmt.begin:
            held = stmt
            continue
        blocks = children(stmt) if isinstance(stmt, (For, If)) else ()
        made.append(with_children(stmt, [_with_late_turns(part, pending) for part in blocks]))
        if held is not None and isinstance(stmt, ProductsWait) and stmt.pending <= pending:
            made.append(held)
            held = None
    return tuple(made)


class _Waits:
    """Walks straight lines of statements. ``top``: rings of the whole tile, given back behind the loop, or
    behind the store that they are staging memory of. ``alone``: one product is under way at a time."""

    def __init__(self, rings: dict[Var, TileRing], top: list[TileRing], alone: bool) -> None:
        self._rings, self._top, self._alone = rings, top, alone

    def at_top(self, block: Block) -> Block:
        """The statements of a tile. Warps meet before they give a tile of the top back: there may be no trip
        and no product; where results are staged, they do so anyway."""
        made = self.block(block)
        last = max(i for i, stmt in enumerate(made) if isinstance(stmt, (For, If, RingWait, ProductsWait)))
        staging = {stmt.staging for stmt in block if isinstance(stmt, BoxStore)}
        early = [RingRelease(ring, meets=True) for ring in self._top if ring.tile not in staging]
        late = [RingRelease(ring, stored=True) for ring in self._top if ring.tile in staging]
        return (*made[: last + 1], *early, *made[last + 1 :], *late)

    def block(self, block: Block) -> Block:
        """One block, with nothing under way at either end."""
        made: list[Stmt] = []
        under_way: list[AsyncProduct] = []
        for position, stmt in enumerate(block):
            if isinstance(stmt, (For, If)):
                made += self._wait(under_way, len(under_way), block[position:])
                made.append(with_children(stmt, [self.block(inner) for inner in children(stmt)]))
                continue
            made += self._wait(under_way, self._needed(under_way, stmt), block[position:])
            made.append(stmt)
            if isinstance(stmt, AsyncProduct):
                under_way.append(stmt)
            made += self._behind(stmt, block[position + 1 :])
        return (*made, *self._wait(under_way, len(under_way), ()))

    def _needed(self, under_way: list[AsyncProduct], stmt: Stmt) -> int:
        """How many of the oldest products have to be complete before a statement."""
        if self._alone and isinstance(stmt, AsyncProduct):
            return len(under_way)
        return max((i + 1 for i, product in enumerate(under_way) if _must_wait(stmt, product)), default=0)

    def _wait(self, under_way: list[AsyncProduct], count: int, rest: Block) -> list[Stmt]:
        """Waits for the ``count`` oldest products and gives back what they were the last to read."""
        if not count:
            return []
        done, under_way[:] = under_way[:count], under_way[count:]
        sums = {product.c.buffer: product.c for product in done}
        made: list[Stmt] = [ProductsWait(len(under_way), tuple(sums.values()))]
        for ring in self._read(done):
            if not any(ring is other for other in self._read([*under_way, *_until_wait(rest, ring)])):
                made.append(RingRelease(ring))
        return made

    def _behind(self, stmt: Stmt, rest: Block) -> list[Stmt]:
        """What gives back the tiles that a loop over elements is the last to read: its warps meet first."""
        if not isinstance(stmt, ThreadLoop):
            return []
        used = touched(stmt)[0]
        rings = (ring for tile, ring in self._rings.items() if tile in used)
        return [RingRelease(ring, meets=True) for ring in rings if not _is_used(ring, rest)]

    def _read(self, stmts: list[Stmt] | list[AsyncProduct]) -> list[TileRing]:
        """The rings of the loop that products read."""
        found: list[TileRing] = []
        for stmt in stmts:
            for region in (stmt.a, stmt.b) if isinstance(stmt, AsyncProduct) else ():
                ring = self._rings.get(region.buffer)
                if ring is not None and ring not in found and ring not in self._top:
                    found.append(ring)
        return found


def _until_wait(rest: Block, ring: TileRing) -> list[Stmt]:
    """The statements that still read the version at hand."""
    found: list[Stmt] = []
    for stmt in rest:
        if isinstance(stmt, RingWait) and stmt.ring is ring:
            break
        found.append(stmt)
    return found


def _is_used(ring: TileRing, rest: Block) -> bool:
    """Whether a loop over elements still reads the version at hand."""
    loops = (stmt for stmt in _until_wait(rest, ring) if isinstance(stmt, ThreadLoop))
    return any(ring.tile in touched(loop)[0] for loop in loops)


def _must_wait(stmt: Stmt, product: AsyncProduct) -> bool:
    """Whether a statement touches what a product writes, or writes what it reads. Products may add to one
    accumulator one after the other."""
    if isinstance(stmt, (Bind, RingWait, RingRelease, Turn)):
        return False
    everything, written = touched(stmt)
    operands = {product.a.buffer, product.b.buffer}
    if isinstance(stmt, AsyncProduct) and stmt.c.buffer.same_as(product.c.buffer):
        return bool(written & operands)
    return product.c.buffer in everything or bool(written & operands)
