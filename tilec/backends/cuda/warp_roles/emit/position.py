"""Where a role stands in a ring as its loop goes on: a stage and a parity in registers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.tirx.script import builder as T

from tilec.backends.cuda.warp_roles.emit.build import cell, i32, let, put, when

if TYPE_CHECKING:
    from tvm.ir import Expr


class Position:
    """Where a role stands in a ring of ``stages``: the stage, and the parity of its round, 0 in the first.
    ``ahead``: both are known ahead of use, by selections in place of a branch: what a warpgroup computes
    between a wait and its products holds up the tensor cores."""

    def __init__(self, stages: int, first: Expr | int = 0, ahead: bool = False) -> None:
        self._stages, self._ahead = stages, ahead
        self._stage, self._parity = cell(first), cell(0)

    @property
    def stage(self) -> Expr:
        """The number of the stage."""
        return i32(0) if self._ahead and self._stages == 1 else self._stage[0]

    @property
    def parity(self) -> Expr:
        """The parity of the round, which full barriers are waited for with."""
        return self._parity[0]

    @property
    def other_parity(self) -> Expr:
        """That of the round before, which empty barriers are waited for with."""
        return T.bitwise_xor(self._parity[0], i32(1))

    def advance(self) -> None:
        """On to the next stage."""
        if self._ahead:
            self._advance_ahead()
            return
        put(self._stage, self._stage[0] + 1)
        with when(self._stage[0] == self._stages):
            put(self._stage, i32(0))
            put(self._parity, self.other_parity)

    def _advance_ahead(self) -> None:
        stage, last = self._stage[0], tirx.EQ(self._stage[0], i32(self._stages - 1))
        if self._stages == 1:
            put(self._parity, self.other_parity)
        elif self._stages == 2:
            put(self._parity, T.bitwise_xor(self._parity[0], stage))
            put(self._stage, T.bitwise_xor(stage, i32(1)))
        else:
            put(self._parity, tirx.Select(last, self.other_parity, self._parity[0]))
            put(self._stage, tirx.Select(last, i32(0), stage + 1))

    def step(self, count: int) -> None:
        """On by ``count`` stages, no more than there are."""
        put(self._stage, self._stage[0] + count)
        with when(self._stage[0] >= self._stages):
            put(self._stage, self._stage[0] - self._stages)
            put(self._parity, self.other_parity)

    def skip(self, trips: Expr) -> None:
        """On by as many stages as another role takes."""
        ahead = let("ahead", self._stage[0] + trips)
        put(self._parity, T.bitwise_and(self._parity[0] + T.truncdiv(ahead, i32(self._stages)), i32(1)))
        put(self._stage, T.truncmod(ahead, i32(self._stages)))
