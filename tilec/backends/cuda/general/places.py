"""Where roles stand in rings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.nodes import Alloc, Assume, Bind, Block, Store

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.backends.cuda.general.rings import Ring


class Place:
    """Where a role stands in a ring: variables of its threads for the stage and the parity of the round."""

    def __init__(self, ring: Ring, role: str) -> None:
        self.ring = ring
        self.stage, self.parity = (
            tirx.decl_buffer((1,), "int32", name=f"{ring.name}_{word}_{role}", scope="local.var")
            for word in ("stage", "round")
        )

    def begin(self) -> Block:
        """The first stage of the first round."""
        zero = tirx.const(0, "int32")
        return Alloc(self.stage, init=zero), Alloc(self.parity, init=zero)

    def now(self) -> tuple[Block, Var, Var]:
        """Names for the stage and the parity at hand."""
        stage, parity = tirx.Var("stage", "int32"), tirx.Var("parity", "int32")
        first, stages = (tirx.const(number, "int32") for number in (0, self.ring.stages))
        value = first if self.ring.stages == 1 else _value(self.stage)
        known = Assume(tirx.And(stage >= first, stage < stages))
        return (Bind(stage, value), known, Bind(parity, _value(self.parity))), stage, parity

    def advance(self, stage: Var, parity: Var) -> Block:
        """On to the next stage."""
        zero, one = (tirx.const(number, "int32") for number in (0, 1))
        other = tirx.bitwise_xor(parity, one)
        if self.ring.stages == 1:
            return (Store(self.parity, (zero,), other),)
        last = tirx.EQ(stage, tirx.const(self.ring.stages - 1, "int32"))
        return (
            Store(self.parity, (zero,), tirx.Select(last, other, parity)),
            Store(self.stage, (zero,), tirx.Select(last, zero, stage + one)),
        )


def _value(buffer: Var) -> Expr:
    return tirx.BufferLoad(buffer, [tirx.const(0, "int32")])
