"""Barriers of rings, and arriving at those of another block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.device.exchange import ALL_LANES
from tilec.backends.cuda.warp_roles.emit.build import i32, ptx, registers, u32

if TYPE_CHECKING:
    from tvm.ir import Expr


@dataclass(frozen=True)
class Barriers:
    """Those of a ring, from the shared address ``first`` on: a full one for each stage, which its loads
    complete, and behind them the empty ones, at which those who are done with it arrive."""

    first: Expr
    stages: int

    def full(self, stage: Expr) -> Expr:
        """The barrier of a stage that is filled."""
        return self.first + u32(stage) * u32(8)

    def empty(self, stage: Expr) -> Expr:
        """The barrier of a stage that is given back."""
        return self.full(stage) + u32(8 * self.stages)

    def open(self, loaders: int, readers: int) -> None:
        """Sets them up for so many arrivals."""
        for stage in range(self.stages):
            ptx("mbarrier.init.shared.b64", self.full(i32(stage)), u32(loaders))
            ptx("mbarrier.init.shared.b64", self.empty(i32(stage)), u32(readers))


def meet_warp() -> None:
    """All lanes of a warp meet, and see what the others have written."""
    ptx("bar.warp.sync", u32(ALL_LANES))


def meet_cluster() -> None:
    """All threads of a cluster meet, and know of barriers whose setup was fenced. A release of all that they
    have written would wait for the whole GPU."""
    ptx("barrier.cluster.arrive.relaxed.aligned")
    ptx("barrier.cluster.wait.aligned")


def arrive(barrier: Expr, block: Expr | None = None) -> None:
    """Arrives at a barrier, or at the one in its place in another block of the cluster."""
    if block is None:
        ptx("mbarrier.arrive.shared.b64", barrier, u32(1))
    else:
        ptx("mbarrier.arrive.shared::cluster.b64", in_block(barrier, block))


def in_block(address: Expr, block: Expr | int) -> Expr:
    """An address of this block's shared memory in another block of the cluster."""
    remote = registers(1, "uint32")
    ptx("mapa.shared::cluster.u32", remote[0], address, u32(block))
    return remote[0]
