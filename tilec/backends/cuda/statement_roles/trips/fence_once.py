"""One fence for what two trips' products read that are issued one behind the other.

    wait(K); fence; S = Q K; wait(V); fence; O += P V    ->    wait(V); wait(K); fence; S = Q K; O += P V

What the products of the trip before read was loaded before what those of this one read: whoever waits for the
latter finds the former there.
"""

from __future__ import annotations

from tilec.backends.cuda.nodes import WaitLanded
from tilec.ir.nodes import Assume, Bind, Block, walk
from tilec.ir.nodes.barriers import WaitPhase
from tilec.ir.traits import defined, mentioned, written


def waited_for_first(head: Block, rest: Block) -> tuple[Block, Block]:
    """The statements of a trip's ``head`` behind the waits of the ``rest`` of the trip before, and the rest
    without them; both as they are where one of them has no fence, or other statements stand in the way."""
    names = tuple(stmt for stmt in rest if isinstance(stmt, (Assume, Bind)))
    waits = tuple(stmt for stmt in rest if isinstance(stmt, WaitLanded))
    left = tuple(stmt for stmt in rest if stmt not in names and stmt not in waits)
    fenced = any(isinstance(stmt, WaitLanded) for stmt in head)
    if not fenced or not waits or _stand_in_the_way((*head, *left), (*names, *waits)):
        return head, rest
    plain = tuple(WaitPhase(stmt.barrier, stmt.index, stmt.parity, loc=stmt.loc) for stmt in waits)
    return (*names, *plain, *head), left


def _stand_in_the_way(others: Block, moved: Block) -> bool:
    """Whether statements that others move in front of give these something, or wait in branches and loops."""
    inside = list(walk(others))
    given = {var for stmt in inside for var in (*defined(stmt), *written(stmt))}
    hidden = any(isinstance(stmt, WaitLanded) and stmt not in others for stmt in inside)
    return hidden or any(given & mentioned(stmt) for stmt in moved)
