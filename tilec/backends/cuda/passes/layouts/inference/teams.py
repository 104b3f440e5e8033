"""Teams: the warps of a group that work together, or all of a block, and what they do.

A launch without groups is one team, whose key is None. Of one whose author gives warps different work each
``Group`` is a team by its first thread and their number, and what stands around the groups is the whole
block's.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import team_warps
from tilec.ir.nodes import Alloc, Block, Parallel, Stmt, children, walk
from tilec.ir.nodes.barriers import Group
from tilec.ir.traits import buffers

if TYPE_CHECKING:
    from tvm.ir import Var

#: The first thread of a group and how many it has; None for the whole block.
TeamKey = tuple[int, int] | None


@dataclass
class Team:
    """So many ``warps`` that work together, and all statements of theirs that are not inside a Parallel."""

    warps: int
    stmts: list[Stmt] = field(default_factory=list)

    @cached_property
    def used(self) -> set[Var]:
        """The tiles that their statements name."""
        named = (walk((stmt,)) if isinstance(stmt, Parallel) else (stmt,) for stmt in self.stmts)
        inside = (stmt for part in named for stmt in part if not isinstance(stmt, Alloc))
        return {buffer for stmt in inside for buffer in buffers(stmt)}


def holders(fragment: Var, teams: Mapping[TeamKey, Team], warps: int) -> int:
    """How many warps hold a fragment: those of the group that it belongs to, else all ``warps``."""
    return min((team.warps for team in teams.values() if fragment in team.used), default=warps)


def teams_of(block: Block, warps: int) -> dict[TeamKey, Team]:
    """The teams of a launch with this body and so many warps."""
    found: dict[TeamKey, Team] = {}

    def visit(inner: Block, key: TeamKey, count: int) -> None:
        for stmt in inner:
            found.setdefault(key, Team(count)).stmts.append(stmt)
            own = (stmt.first, stmt.count) if isinstance(stmt, Group) else key
            for part in () if isinstance(stmt, Parallel) else children(stmt):
                visit(part, own, team_warps(stmt, count))

    visit(block, None, warps)
    return found
