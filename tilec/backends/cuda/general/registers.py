"""The registers of producers and consumers: setmaxnreg hands on what a block got at its launch."""

from __future__ import annotations

from tilec.backends.cuda.nodes import SetRegisters
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.ir.nodes import Launch, walk
from tilec.ir.nodes.barriers import Group

#: Registers of a producer and a consumer thread by the number of consumer warpgroups; None where each thread
#: has as many as it can use without.
HANDED_ON = {1: None, 2: (40, 232), 3: (32, 160)}


def entry_registers(launch: Launch) -> int:
    """Registers that each thread must have at launch: setmaxnreg waits for ever for more than the block got.
    0 where nothing is handed on."""
    total = sum(
        stmt.count * group.count
        for group in walk(launch.body)
        if isinstance(group, Group)
        for stmt in group.body
        if isinstance(stmt, SetRegisters)
    )
    x, y, z = launch.threads
    return total // (x * y * z // WARPGROUP * WARPGROUP) if total else 0
