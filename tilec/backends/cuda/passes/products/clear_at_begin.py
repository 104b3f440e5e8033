"""Sums that are 0 in front of a loop, and set to 0 again at the end of each trip, are set to 0 at its begin.

fill(P, 0); for k: P += A B; C += P * f; fill(P, 0)    ->    for k: fill(P, 0); P += A B; C += P * f
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from tilec.backends.cuda.analysis.layouts.tiles import is_whole
from tilec.ir.exprs import is_zero
from tilec.ir.nodes import Block, Break, Continue, Fill, For, Launch, Pipelined, Stmt, walk
from tilec.lowering.analysis.uses import count_uses, touches, uses_itself
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var

_Loop: TypeAlias = "For | Pipelined"


class ClearAtBegin(LaunchPass):
    """In: a Fill of a whole fragment with 0, as the next statement that names it a loop, and another such
    Fill as the last statement of this loop that does. Out: the loop's trips begin with it; it stands behind
    the loop where others use the fragment, too. A product may then start from 0 itself
    (`ClearInProducts`)."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with such loops."""
        return replace(launch, body=rewrite_blocks(launch.body, lambda block: _cleared(block, launch)))


def _cleared(block: Block, launch: Launch) -> list[Stmt]:
    made = list(block)
    for stmt in block:
        loop = _loop_behind(stmt, made)
        if loop is None:
            continue
        assert isinstance(stmt, Fill)
        others = [stmt] if _has_others(stmt, loop, launch) else []
        at = made.index(loop)
        made[at : at + 1] = [_begun(loop, stmt.dst.buffer), *others]
        made.remove(stmt)
    return made


def _loop_behind(stmt: Stmt, block: list[Stmt]) -> _Loop | None:
    """The loop that finds what a Fill has set to 0, and leaves it so; None where there is none."""
    if not _clears(stmt):
        return None
    assert isinstance(stmt, Fill)
    tile = stmt.dst.buffer
    user = next((each for each in block[block.index(stmt) + 1 :] if touches(each, tile)), None)
    if not isinstance(user, (For, Pipelined)) or _is_odd(user):
        return None
    users = [each for each in user.body if touches(each, tile)]
    return user if len(users) > 1 and _clears(users[-1]) and not uses_itself(user, tile) else None


def _is_odd(loop: _Loop) -> bool:
    """Whether trips may end early, or an author gives statements their places."""
    given = isinstance(loop, Pipelined) and (loop.stage, loop.order) != (None, None)
    return given or any(isinstance(stmt, (Break, Continue)) for stmt in walk(loop.body))


def _clears(stmt: Stmt) -> bool:
    """Whether a statement sets all of a fragment to 0."""
    if not isinstance(stmt, Fill) or stmt.dst.buffer.scope() != "local.fragment":
        return False
    return is_whole(stmt.dst) and is_zero(stmt.value)


def _has_others(fill: Fill, loop: _Loop, launch: Launch) -> bool:
    """Whether anything but a Fill and the loop behind it names a fragment."""
    every, own = (count_uses(block, fill.dst.buffer) for block in (launch.body, (loop,)))
    return every > own + 1


def _begun(loop: _Loop, tile: Var) -> _Loop:
    """The loop with its last Fill of a fragment first."""
    last = next(stmt for stmt in reversed(loop.body) if touches(stmt, tile))
    return replace(loop, body=(last, *(stmt for stmt in loop.body if stmt is not last)))
