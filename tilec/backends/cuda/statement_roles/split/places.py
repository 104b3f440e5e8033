"""Where roles stand in rings.

Rings of equally many stages that are filled once each in the same block go round in step: a role stands at
the same place in all of them, and the first one that it comes to in a block says for the others which.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import Alloc, Assume, Bind, Block, Stmt, Store, children

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.statement_roles.rings.ring import Ring
    from tilec.backends.cuda.statement_roles.split.loads import Load

#: The stage and the parity at hand.
Names = tuple["Var", "Var"]
#: Of each place of a block the last names, and the rings that have taken them.
Known = dict["Place", tuple[Names, list["Ring"]]]


class Place:
    """Where a role stands in a ring, and in those in step with it: variables of its threads for the stage and
    the parity of the round."""

    def __init__(self, ring: Ring, role: str) -> None:
        self.ring = ring
        self.stage, self.parity = (
            tirx.decl_buffer((1,), "int32", name=f"{ring.name}_{word}_{role}", scope="local.var")
            for word in ("stage", "round")
        )

    def begin(self) -> Block:
        """The first stage of the first round."""
        zero = tirx.const(0, "int32")
        return Alloc(self.stage, init=zero), Alloc(self.parity, init=zero)

    def taken(self, ring: Ring, known: Known) -> tuple[Block, Names, Block]:
        """The names of the stage and the parity at hand in ``ring``, with what defines them and what goes on
        to the next stage: nothing where another ring in step has them among those that a block has ``known``,
        where they are put. One that has taken its stage, and is filled again, is at the next."""
        if self in known and ring not in known[self][1]:
            known[self][1].append(ring)
            return (), known[self][0], ()
        names, stage, parity = self.now()
        known[self] = (stage, parity), [ring]
        return names, (stage, parity), self.advance(stage, parity)

    def now(self) -> tuple[Block, Var, Var]:
        """Names for the stage and the parity at hand."""
        stage, parity = tirx.Var("stage", "int32"), tirx.Var("parity", "int32")
        first, stages = (tirx.const(number, "int32") for number in (0, self.ring.stages))
        value = first if self.ring.stages == 1 else _value(self.stage)
        known = Assume(tirx.And(stage >= first, stage < stages))
        return (Bind(stage, value), known, Bind(parity, _value(self.parity))), stage, parity

    def advance(self, stage: Var, parity: Var) -> Block:
        """On to the next stage."""
        zero, one = (tirx.const(number, "int32") for number in (0, 1))
        other = tirx.bitwise_xor(parity, one)
        if self.ring.stages == 1:
            return (Store(self.parity, (zero,), other),)
        last = tirx.EQ(stage, tirx.const(self.ring.stages - 1, "int32"))
        return (
            Store(self.parity, (zero,), tirx.Select(last, other, parity)),
            Store(self.stage, (zero,), tirx.Select(last, zero, stage + one)),
        )

    def past(self, stages: Expr) -> Block:
        """On by so many stages."""
        names, stage, parity = self.now()
        zero, one, all_stages = (tirx.const(number, "int32") for number in (0, 1, self.ring.stages))
        behind = tirx.Var("behind", "int32")
        rounds = tirx.bitwise_and(behind // all_stages, one)
        moved: list[Stmt] = [Store(self.parity, (zero,), tirx.bitwise_xor(parity, rounds))]
        if self.ring.stages > 1:
            moved.append(Store(self.stage, (zero,), behind % all_stages))
        return (*names, Bind(behind, stage + stages), *moved)


def places(leaders: Mapping[Ring, Ring], role: str) -> dict[Ring, Place]:
    """Where a role stands in each ring: in that of its leader."""
    own = {ring: Place(ring, role) for ring in dict.fromkeys(leaders.values())}
    return {ring: own[leader] for ring, leader in leaders.items()}


def begun(places: Mapping[Ring, Place]) -> Block:
    """The beginning of every place."""
    return tuple(stmt for place in dict.fromkeys(places.values()) for stmt in place.begin())


def in_step(body: Block, rings: Iterable[Ring], loads: Mapping[Stmt, Load]) -> dict[Ring, Ring]:
    """For every ring the first one that it goes round in step with: itself where there is none."""
    blocks = dict(_blocks(body))
    first: dict[object, Ring] = {}
    leaders: dict[Ring, Ring] = {}
    for ring in rings:
        own = [blocks[stmt] for stmt, load in loads.items() if load.tile in ring.tiles]
        together = len(own) == len(ring.tiles) and len(set(own)) == 1
        leaders[ring] = first.setdefault((own[0], ring.stages) if together else ring, ring)
    return leaders


def _blocks(block: Block, number: tuple[int, ...] = ()) -> Iterator[tuple[Stmt, tuple[int, ...]]]:
    """Every statement with the block that it stands in, by the way there."""
    for position, stmt in enumerate(block):
        yield stmt, number
        for side, inner in enumerate(children(stmt)):
            yield from _blocks(inner, (*number, position, side))


def _value(buffer: Var) -> Expr:
    return tirx.BufferLoad(buffer, [tirx.const(0, "int32")])
