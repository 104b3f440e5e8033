"""Consumer warpgroups with tiles of their own: one issues products while the other stores its results.

Where all tiles are as deep alike, a warpgroup takes every other tile of its block, and passes over as many
stages as its own tile had. Where blocks look up whether and how far a tile goes, each walks over all
tiles, and takes every other one of those that have something to do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.matmul.match.heads import is_scalar
from tilec.backends.cuda.matmul.nodes import Proceed, RingDrain
from tilec.backends.cuda.warp_roles.emit.build import cell, i32, let, ptx, put, u32, when
from tilec.ir.exprs import uses
from tilec.ir.nodes import Bind, Launch, walk

if TYPE_CHECKING:
    from collections.abc import Callable

    from tvm.ir import Expr

    from tilec.backends.cuda.matmul.emit.context import MatmulContext
    from tilec.backends.cuda.matmul.nodes import MatmulRoles
    from tilec.backends.cuda.warp_roles.emit.position import Position
    from tilec.ir.stmt import Stmt

#: Threads of two warpgroups meet at a named barrier; those below it are the warpgroups' own.
_MEET, _FIRST_BARRIER = 256, 3


class Turns:
    """The order of two warpgroups at the ring: each waits for its own barrier, and arrives at the other's."""

    def __init__(self, launch: Launch, roles: MatmulRoles, ctx: MatmulContext, position: Position) -> None:
        """The second warpgroup lets the first one go, and starts behind the first one's stages where these
        are known."""
        self._ctx, self._position = ctx, position
        self._drain = next(stmt for stmt in walk(roles.consumer) if isinstance(stmt, RingDrain))
        self._tiles = cell(0) if _looks_up(launch, roles, self._drain) else None
        with when(tirx.EQ(ctx.warpgroup, i32(1))):
            ptx("bar.arrive", u32(_FIRST_BARRIER), _MEET)
            if self._tiles is None:
                position.skip(let("trips", ctx.value(self._drain.trips)))

    @property
    def every(self) -> Expr | None:
        """The warpgroup's number, where it walks over every other tile; None where it walks over all."""
        return self._ctx.warpgroup if self._tiles is None else None

    def take(self, own: Callable[[], None]) -> None:
        """A tile that is there: ``own`` where it is this warpgroup's."""
        if self._tiles is None:
            own()
            return
        with T.If(tirx.EQ(self._tiles[0], self._ctx.warpgroup)):
            with T.Then():
                own()
            with T.Else():
                self._position.skip(let("trips", self._ctx.value(self._drain.trips)))
        put(self._tiles, 1 - self._tiles[0])

    def begin(self) -> None:
        """Waits for the turn."""
        ptx("bar.sync", u32(self._ctx.warpgroup + _FIRST_BARRIER), _MEET)

    def end(self) -> None:
        """The other one's turn."""
        ptx("bar.arrive", u32(_FIRST_BARRIER + 1 - self._ctx.warpgroup), _MEET)

    def leave(self, trips: Expr) -> None:
        """Past the stages of the tile that follows one of ``trips``, where all have so many."""
        if self._tiles is None:
            self._position.skip(trips)


def _looks_up(launch: Launch, roles: MatmulRoles, drain: RingDrain) -> bool:
    """Whether a block has to look at a tile to know whether and how far it goes."""
    if any(isinstance(stmt, Proceed) or not isinstance(stmt, Bind) for stmt in _head(roles)):
        return True
    names = [stmt.var for stmt in _head(roles) if isinstance(stmt, Bind)]
    return uses(drain.trips, (*launch.block_vars, *names))


def _head(roles: MatmulRoles) -> list[Stmt]:
    return [stmt for stmt in roles.consumer if is_scalar(stmt) or isinstance(stmt, Proceed)]
