"""Products of consumers become warpgroup products: wgmma on tiles that the producer has brought."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.matmul.nodes import MatmulRoles, RingDrain, WarpgroupGemm
from tilec.backends.cuda.warp_roles.strategy import rewrite_roles, with_roles
from tilec.backends.cuda.warp_roles.wgmma import warpgroup_tile
from tilec.ir.nodes import Gemm, Kernel, Stmt
from tilec.lowering.passes.base import Pass

if TYPE_CHECKING:
    from tilec.targets import Target


class SelectWgmma(Pass):
    """In: MatmulRoles with Gemm in its RingDrain. Out: WarpgroupGemm, which reads shared memory through
    descriptors and completes in the background."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with warpgroup products."""
        return rewrite_roles(
            kernel, MatmulRoles, lambda launch, roles: with_roles(launch, _with_products(roles))
        )


def _with_products(roles: MatmulRoles) -> MatmulRoles:
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
