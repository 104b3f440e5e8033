"""When shared tiles are in use: the statements between a tile's first and last one."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tilec.ir.nodes import Alloc, Block, For, Pipelined, Stmt, While, children
from tilec.lowering.uses import buffers

if TYPE_CHECKING:
    from tvm.ir import Var

_LOOPS = (For, Pipelined, While)


@dataclass(frozen=True)
class Lifetime:
    """Positions of statements in program order, both included."""

    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are in use at some statement."""
        return self.first <= other.last and other.first <= self.last

    def __or__(self, other: Lifetime) -> Lifetime:
        return Lifetime(min(self.first, other.first), max(self.last, other.last))


def lifetimes(body: Block, *, brief: bool = False) -> dict[Var, Lifetime]:
    """The lifetime of every tile that is allocated in ``body`` and used.

    What is allocated outside of a loop and used in it may carry values from trip to trip: it lives as long as
    the loop runs. Asynchronous copies are complete when the loop that waits for them ends. ``brief``: what a
    statement needs for itself alone lives as long as that statement, in a loop too."""
    walker = _Walker(brief)
    walker.block(body, ())
    return walker.found()


@dataclass
class _Walker:
    """Numbers statements; ``uses`` pairs a tile with its position and the loops around, outermost first."""

    brief: bool
    position: int = 0
    spans: dict[int, Lifetime] = field(default_factory=dict)
    homes: dict[Var, tuple[int, ...]] = field(default_factory=dict)
    uses: list[tuple[Var, int, tuple[int, ...]]] = field(default_factory=list)

    def block(self, block: Block, loops: tuple[int, ...]) -> None:
        """Visits the statements of a block."""
        for stmt in block:
            self._stmt(stmt, loops)

    def _stmt(self, stmt: Stmt, loops: tuple[int, ...]) -> None:
        self.position += 1
        first = self.position
        if isinstance(stmt, Alloc):
            self.homes[stmt.buffer] = loops
            return
        self.uses += [(buffer, first, loops) for buffer in buffers(stmt)]
        scratch = getattr(stmt, "scratch", None)
        if scratch is not None:
            self.uses.append((scratch, first, () if self.brief else loops))
        inner = (*loops, first) if isinstance(stmt, _LOOPS) else loops
        for block in children(stmt):
            self.block(block, inner)
        if isinstance(stmt, _LOOPS):
            self.spans[first] = Lifetime(first, self.position)

    def found(self) -> dict[Var, Lifetime]:
        """The lifetimes, once everything is visited."""
        lives: dict[Var, Lifetime] = {}
        for buffer, position, loops in self.uses:
            if buffer not in self.homes:
                continue
            around = next((loop for loop in loops if loop not in self.homes[buffer]), None)
            life = Lifetime(position, position) if around is None else self.spans[around]
            lives[buffer] = lives[buffer] | life if buffer in lives else life
        return lives
