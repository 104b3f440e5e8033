"""Consumer warpgroups with tiles of their own: one issues products while the other stores its results."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.warp_roles.build import i32, let, ptx, u32, when
from tilec.backends.cuda.warp_roles.nodes import RingDrain
from tilec.ir.nodes import walk

if TYPE_CHECKING:
    from tilec.backends.cuda.matmul.context import Context
    from tilec.backends.cuda.matmul.emit_ring import Position
    from tilec.backends.cuda.warp_roles.nodes import Specialised

#: Threads of two warpgroups meet at a named barrier; those below it are the warpgroups' own.
_MEET, _FIRST_BARRIER = 256, 3


class Turns:
    """The order of two warpgroups at the ring: each waits for its own barrier, and arrives at the other's."""

    def __init__(self, roles: Specialised, ctx: Context, position: Position) -> None:
        """The second warpgroup lets the first one go, and starts behind the first one's stages."""
        self._ctx = ctx
        drain = next(stmt for stmt in walk(roles.consumer) if isinstance(stmt, RingDrain))
        with when(tirx.EQ(ctx.group, i32(1))):
            ptx("bar.arrive", u32(_FIRST_BARRIER), _MEET)
            position.skip(let("trips", ctx.expr(drain.trips)), drain.ring.stages)

    def begin(self) -> None:
        """Waits for the turn."""
        ptx("bar.sync", u32(self._ctx.group + _FIRST_BARRIER), _MEET)

    def end(self) -> None:
        """The other one's turn."""
        ptx("bar.arrive", u32(_FIRST_BARRIER + 1 - self._ctx.group), _MEET)
