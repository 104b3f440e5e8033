"""How many threads and warps a block has, and who runs a statement."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.ir.nodes import Block, Launch, Stmt, children, walk, with_children
from tilec.ir.nodes.barriers import Group

#: Maps one block, whose inner blocks are already rewritten, and the number of warps that run it.
TeamRewrite = Callable[[Block, int], Sequence[Stmt]]


def thread_count(launch: Launch) -> int:
    """Threads of one block."""
    x, y, z = launch.threads
    return x * y * z


def warps_of(launch: Launch) -> int:
    """Warps of one block."""
    return -(-thread_count(launch) // WARP)


def team_warps(stmt: Stmt, warps: int) -> int:
    """The warps that run the blocks of a statement which ``warps`` warps run."""
    return stmt.count // WARP if isinstance(stmt, Group) else warps


def has_groups(launch: Launch) -> bool:
    """Whether some threads of a launch have code of their own."""
    return any(isinstance(stmt, Group) for stmt in walk(launch.body))


def rewrite_teams(block: Block, warps: int, rewrite: TeamRewrite) -> Block:
    """``block``, which ``warps`` warps run, with ``rewrite`` applied to every block inside, innermost first,
    and then to itself."""
    inside = (
        with_children(
            stmt, [rewrite_teams(inner, team_warps(stmt, warps), rewrite) for inner in children(stmt)]
        )
        for stmt in block
    )
    return tuple(rewrite(tuple(inside), warps))
