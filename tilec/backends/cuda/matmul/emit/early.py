"""Device code of loads that do not wait for the launches in front: none of those writes what they bring.

They fill the first stages of a block's first tile; then the loader waits, and brings what belongs to them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.emit.grid.early_start import WAIT
from tilec.backends.cuda.warp_roles.emit.build import cell, i32, ptx, put, when
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.ir.nodes import walk

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cuda.matmul.nodes import MatmulRoles


def loads_early(roles: MatmulRoles) -> bool:
    """Whether some of a launch's loads do not wait."""
    return any(isinstance(stmt, TmaLoad) and stmt.early for stmt in walk(roles.producer))


class EarlyLoads:
    """Which stages of a ring are filled early, by the one thread that loads."""

    def __init__(self, stages: int) -> None:
        self._stages, self._first = stages, cell(1)

    def begin(self, trips: Expr, fill: Callable[[Expr], None]) -> None:
        """``fill(number)`` for the first of a tile's ``trips``, then waits; nothing behind the first tile."""
        with when(tirx.EQ(self._first[0], i32(1))):
            count = T.min(trips, i32(self._stages))
            with T.serial(i32(0), count, annotations={"disable_unroll": True}) as number:
                fill(number)
            ptx(WAIT[1])

    def are_left(self, number: Expr) -> Expr:
        """Whether a trip's early loads are still to be started."""
        return tirx.Or(tirx.EQ(self._first[0], i32(0)), number >= i32(self._stages))

    def end(self) -> None:
        """The first tile is done with."""
        put(self._first, i32(0))
