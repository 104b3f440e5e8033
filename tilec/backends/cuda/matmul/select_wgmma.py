"""Products of specialised launches become warpgroup products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.warp_roles.nodes import RingDrain, Specialised, WarpgroupGemm
from tilec.backends.cuda.warp_roles.wgmma import warpgroup_tile
from tilec.ir.nodes import Gemm, Kernel, Launch, Stmt
from tilec.lowering.passes.base import rewrite_launches

if TYPE_CHECKING:
    from tilec.targets import Target


@dataclass(frozen=True)
class SelectWgmma:
    """In: Specialised with Gemm in its RingDrain. Out: WarpgroupGemm, which reads shared memory through
    descriptors and completes in the background."""

    name: str = "select_wgmma"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with warpgroup products."""
        return rewrite_launches(kernel, _selected)


def _selected(launch: Launch) -> Launch:
    body = tuple(_with_products(stmt) if isinstance(stmt, Specialised) else stmt for stmt in launch.body)
    return replace(launch, body=body)


def _with_products(roles: Specialised) -> Specialised:
    def drained(stmt: Stmt) -> Stmt:
        if not isinstance(stmt, RingDrain):
            return stmt
        return replace(stmt, body=tuple(_product(inner, roles.roles.sharers) for inner in stmt.body))

    return replace(roles, consumer=tuple(drained(stmt) for stmt in roles.consumer))


def _product(stmt: Stmt, warpgroups: int) -> Stmt:
    if not isinstance(stmt, Gemm):
        return stmt
    tile = warpgroup_tile(stmt, warpgroups)
    return WarpgroupGemm(stmt.a, stmt.b, stmt.c, stmt.trans_a, stmt.trans_b, tile, loc=stmt.loc)
