"""Products are issued as soon as their operands are there, beside arithmetic that does not need them.

    S = Q K; weights of S; D = dO V; gradients of S and D    ->    S = Q K; D = dO V; weights of S; ...

A product moves up to the one before it in its block if it needs nothing of what stands between but stages of
rings, for which it waits; these statements follow it. What a product takes from registers is written while no
product is under way (`place_product_waits`), so that products whose sums nobody reads in their trip let it
pass, and run together behind it:

    P = ...; dV += P dO; dS = ...; dK += dS Q    ->    P = ...; dS = ...; dV += P dO; dK += dS Q
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.products.wgmma import Chooser
from tilec.backends.cuda.nodes import BoxLoad, GiveBack
from tilec.backends.cuda.statement_roles.split.registers import fits_registers, holds_live
from tilec.backends.cuda.statement_roles.trips.conflicts import (
    Filled,
    Touched,
    filled_tiles,
    is_known,
    touched,
)
from tilec.ir.nodes import Alloc, Assume, Bind, Block, Gemm, Launch, Stmt, Store, children, walk
from tilec.ir.nodes.barriers import Group, WaitPhase
from tilec.ir.traits import buffers, mentioned, written
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var


class IssueAhead(LaunchPass):
    """In: statements of consumers in their author's order. Out: products of wgmma directly behind the one
    before, where nothing between gives them anything, and behind operands that threads make of what is there,
    where registers hold all results, so that threads compute beside them."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its products moved; one without rings as it is."""
        if not any(isinstance(stmt, BoxLoad) for stmt in walk(launch.body)):
            return launch
        chooser, filled = Chooser(launch, None), filled_tiles(launch)

        def consumers(stmt: Stmt) -> Stmt:
            if not isinstance(stmt, Group):
                return stmt
            given = [inner.barrier for inner in walk(stmt.body) if isinstance(inner, GiveBack)]
            once = frozenset(each for each in given if sum(each.same_as(other) for other in given) == 1)
            mover = _Mover(launch, stmt, chooser, once, filled)
            return replace(stmt, body=rewrite_blocks(stmt.body, mover.block))

        return replace(launch, body=tuple(map(consumers, launch.body)))


@dataclass(frozen=True)
class _Mover:
    """Moves the products of ``group``. ``once``: barriers at which one statement gives a stage back, so that
    its next load comes behind all loads of the trip; ``filled``: the tiles that barriers tell of."""

    launch: Launch
    group: Group
    chooser: Chooser
    once: frozenset[Var]
    filled: Filled

    def block(self, block: Block) -> Block:
        """A block with its products moved up, and operands in registers in front of products."""
        for stmt in block:
            if self.chooser.takes_in(stmt, self.group):
                before = range(block.index(stmt))
                wide = (i + 1 for i in before if self.chooser.takes_in(block[i], self.group))
                first = max(wide, default=None)
                block = block if first is None else self._moved(block, first, block.index(stmt))
        held = {stmt.a.buffer for stmt in block if self.chooser.takes_in(stmt, self.group)}
        held = {tile for tile in held if tile.scope() == "local.fragment"}
        for stmt in block:
            if any(held & set(written(inner)) for inner in walk((stmt,))):
                block = self._moved(block, self._first_to_pass(block, block.index(stmt)), block.index(stmt))
        return block

    def _first_to_pass(self, block: Block, place: int) -> int:
        """The first of the products in front of a statement that nothing but waits stands between, and whose
        sums nobody else reads."""
        first = place
        for start in range(place - 1, -1, -1):
            if self.chooser.takes_in(block[start], self.group) and self._adds_up(block, block[start]):
                first = start
            elif not _is_wait(block[start]) and not isinstance(block[start], GiveBack):
                break
        return first

    def _adds_up(self, block: Block, product: Stmt) -> bool:
        """Whether products alone touch the sums of one in its block."""
        assert isinstance(product, Gemm)
        users = [stmt for stmt in block if any(product.c.buffer in buffers(inner) for inner in walk((stmt,)))]
        return all(isinstance(stmt, Gemm) for stmt in users)

    def _moved(self, block: Block, first: int, place: int) -> Block:
        """``block`` with the statement at ``place`` in front of the one at ``first``, if it needs nothing of
        what stands between but waits, and registers hold what is alive then."""
        if first == place or not is_known(block[first:place]):
            return block
        along: list[Stmt] = [block[place]]
        passed: list[Stmt] = []
        for stmt in reversed(block[first:place]):
            mine = self._touched(stmt)
            bounds = isinstance(stmt, Assume) and any(mentioned(stmt) & mentioned(other) for other in along)
            needed = bounds or any(mine.conflicts(self._touched(other)) for other in along)
            (along if needed else passed).insert(0, stmt)
        if not all(map(_is_wait, along[:-1])) or not all(map(self._may_follow, passed)):
            return block
        moved = (*block[:first], *along, *passed, *block[place + 1 :])
        return moved if fits_registers(block, self.group) or holds_live(moved, self.group) else block

    def _touched(self, stmt: Stmt) -> Touched:
        return touched((stmt,), self.launch, self.filled)

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
