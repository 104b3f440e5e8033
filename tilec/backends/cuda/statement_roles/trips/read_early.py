"""Elements of tensors that a trip reads into variables are read where nothing waits yet.

    S = Q K; ...; g = G[k]; S = S * g    ->    g = G[k]; S = Q K; ...; S = S * g

Memory answers beside the products and waits that stood in front, instead of behind them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import BoxLoad
from tilec.backends.cuda.statement_roles.trips.conflicts import is_known, touched
from tilec.ir.nodes import Bind, Block, For, Gemm, Launch, Stmt, Store, walk
from tilec.ir.nodes.barriers import Group, WaitPhase
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Var

_VARIABLES = ("local", "local.var")


class ReadEarly(LaunchPass):
    """In: loops of consumers. Out: statements that read tensors into variables stand in front of the products
    and waits of their trip that give them nothing."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its reads moved; one without rings as it is."""
        if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
            return launch
        mover = _Mover(launch, changed_in(launch))

        def consumers(stmt: Stmt) -> Stmt:
            return (
                replace(stmt, body=rewrite_blocks(stmt.body, mover.block))
                if isinstance(stmt, Group)
                else stmt
            )

        return replace(launch, body=tuple(map(consumers, launch.body)))


@dataclass(frozen=True)
class _Mover:
    """Moves the reads of a launch, which writes ``changed``."""

    launch: Launch
    changed: Set[Var]

    def block(self, block: Block) -> list[Stmt]:
        """A block with the trips of its loops."""
        return [
            replace(stmt, body=self._trip(stmt.body)) if isinstance(stmt, For) else stmt for stmt in block
        ]

    def _trip(self, trip: Block) -> Block:
        """A trip with its reads in front of what they do not need."""
        for stmt in trip:
            trip = self._moved(trip, trip.index(stmt)) if self._reads(stmt) else trip
        return trip

    def _moved(self, trip: Block, place: int) -> Block:
        """``trip`` with the read at ``place`` and the names that it needs as far up as they may go."""
        along, passed = [trip[place]], list[Stmt]()
        first = place
        for stmt in reversed(trip[:place]):
            mine = touched((stmt,), self.launch)
            needed = any(mine.conflicts(touched((other,), self.launch)) for other in along)
            if not is_known((stmt,)) or (needed and not isinstance(stmt, Bind)):
                break
            (along if needed else passed).insert(0, stmt)
            first -= 1
        if not any(map(_waits, passed)):
            return trip
        return (*trip[:first], *along, *passed, *trip[place + 1 :])

    def _reads(self, stmt: Stmt) -> bool:
        """Whether a statement does nothing but bring elements of tensors to a variable."""
        if not isinstance(stmt, Store) or stmt.buffer.scope() not in _VARIABLES:
            return False
        sources = {load.source for load in loads_of(stmt)}
        return bool(sources) and all(map(self._is_steady, sources))

    def _is_steady(self, source: Var) -> bool:
        return bool(source.scope() == "global") and source not in self.changed


def _waits(stmt: Stmt) -> bool:
    """Whether a statement, or one inside, takes long."""
    return any(isinstance(inner, (Gemm, WaitPhase)) for inner in walk((stmt,)))
