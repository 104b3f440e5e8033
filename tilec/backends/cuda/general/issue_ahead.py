"""Products are issued as soon as their operands are there, beside arithmetic that does not need them.

    S = Q K; weights of S; D = dO V; gradients of S and D    ->    S = Q K; D = dO V; weights of S; ...

A product moves up to the one before it in its block if it needs nothing of what stands between but stages of
rings, for which it waits; these statements follow it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.wgmma import Chooser
from tilec.backends.cuda.general.conflicts import is_known, touched
from tilec.backends.cuda.general.registers import fits_registers
from tilec.backends.cuda.nodes import BoxLoad, GiveBack
from tilec.ir.nodes import Alloc, Assume, Bind, Block, Gemm, Launch, Stmt, Store, children, walk
from tilec.ir.nodes.barriers import WARP, Group, WaitPhase
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var


class IssueAhead(LaunchPass):
    """In: statements of consumers in their author's order. Out: products of wgmma directly behind the one
    before, where nothing between gives them anything and registers hold all results, so that threads compute
    beside them."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its products moved; one without rings as it is."""
        if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
            return launch
        chooser = Chooser(launch, None)

        def consumers(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Group):
                return stmt
            given = [inner.barrier for inner in walk(stmt.body) if isinstance(inner, GiveBack)]
            once = frozenset(each for each in given if sum(each.same_as(other) for other in given) == 1)
            return replace(stmt, body=rewrite_blocks(stmt.body, _Mover(launch, stmt, chooser, once).block))

        return replace(launch, body=tuple(map(consumers, launch.body)))


@dataclass(frozen=True)
class _Mover:
    """Moves the products of ``group``. ``once``: barriers at which one statement gives a stage back, so that
    its next load comes behind all loads of the trip."""

    launch: Launch
    group: Group
    chooser: Chooser
    once: frozenset[Var]

    def block(self, block: Block) -> Block:
        """A block with its products moved up."""
        for stmt in block if fits_registers(block, self.group) else ():
            if self._is_wide(stmt):
                block = self._moved(block, block.index(stmt))
        return block

    def _is_wide(self, stmt: Stmt) -> bool:
        warps = self.group.count // WARP
        return isinstance(stmt, Gemm) and not isinstance(self.chooser.product(stmt, warps), str)

    def _moved(self, block: Block, place: int) -> Block:
        """``block`` with the product at ``place`` behind the one before."""
        first = max((i + 1 for i in range(place) if self._is_wide(block[i])), default=None)
        if first is None or not is_known(block[first:place]):
            return block
        product = block[place]
        along: list[Stmt] = [product]
        passed: list[Stmt] = []
        for stmt in reversed(block[first:place]):
            mine = touched((stmt,), self.launch)
            needed = any(mine.conflicts(touched((other,), self.launch)) for other in along)
            (along if needed else passed).insert(0, stmt)
        if not all(map(_is_wait, along[:-1])) or not all(map(self._may_follow, passed)):
            return block
        return (*block[:first], *along, *passed, *block[place + 1 :])

    def _may_follow(self, stmt: Stmt) -> bool:
        """Whether a wait for another ring may come before a statement: not where the producer first needs
        what this one gives back."""
        if isinstance(stmt, GiveBack):
            return stmt.barrier in self.once
        return not any(isinstance(inner, (GiveBack, WaitPhase)) for block in children(stmt)
                       for inner in walk(block))  # fmt: skip


def _is_wait(stmt: Stmt) -> bool:
    """Whether a statement waits for a stage of a ring, or says which."""
    if isinstance(stmt, Store):
        return bool(stmt.buffer.scope() == "local.var")
    return isinstance(stmt, (Alloc, Assume, Bind, WaitPhase))
