"""Consumer warpgroups with tiles of their own: one issues products while the other stores its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.matmul.nodes import RingDrain
from tilec.backends.cuda.warp_roles.build import i32, let, ptx, u32, when
from tilec.ir.nodes import walk

if TYPE_CHECKING:
    from tilec.backends.cuda.matmul.context import MatmulContext
    from tilec.backends.cuda.matmul.nodes import MatmulRoles
    from tilec.backends.cuda.warp_roles.position import Position

#: Threads of two warpgroups meet at a named barrier; those below it are the warpgroups' own.
_MEET, _FIRST_BARRIER = 256, 3


class Turns:
    """The order of two warpgroups at the ring: each waits for its own barrier, and arrives at the other's."""

    def __init__(self, roles: MatmulRoles, ctx: MatmulContext, position: Position) -> None:
        """The second warpgroup lets the first one go, and starts behind the first one's stages."""
        self._ctx = ctx
        drain = next(stmt for stmt in walk(roles.consumer) if isinstance(stmt, RingDrain))
        with when(tirx.EQ(ctx.warpgroup, i32(1))):
            ptx("bar.arrive", u32(_FIRST_BARRIER), _MEET)
            position.skip(let("trips", ctx.value(drain.trips)))

    def begin(self) -> None:
        """Waits for the turn."""
        ptx("bar.sync", u32(self._ctx.warpgroup + _FIRST_BARRIER), _MEET)

    def end(self) -> None:
        """The other one's turn."""
        ptx("bar.arrive", u32(_FIRST_BARRIER + 1 - self._ctx.warpgroup), _MEET)
