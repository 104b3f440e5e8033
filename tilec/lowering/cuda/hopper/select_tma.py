"""Loads and stores of specialised launches become tensor copies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.ir.nodes import Bind, Copy, Gemm, Kernel, Launch, Parallel, Stmt, walk
from tilec.lowering.cpu.scopes import ScopedRewrite
from tilec.lowering.cuda.hopper.nodes import RingFill, Specialised, TmaLoad
from tilec.lowering.cuda.hopper.stores import plan_store
from tilec.lowering.cuda.hopper.tma import load_map
from tilec.lowering.cuda.hopper.wgmma import warpgroup_tile
from tilec.lowering.passes import rewrite_launches

if TYPE_CHECKING:
    from tilec.lowering.facts import Facts
    from tilec.targets import Target


@dataclass(frozen=True)
class SelectTma:
    """In: Specialised with Copy in its RingFill, Parallel behind its RingDrain. Out: TmaLoad, TileStore."""

    name: str = "select_tma"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with tensor copies."""
        return rewrite_launches(kernel, lambda launch: _selected(kernel, launch))


def _selected(kernel: Kernel, launch: Launch) -> Launch:
    roles = next((stmt for stmt in launch.body if isinstance(stmt, Specialised)), None)
    if roles is None:
        return launch
    scope = ScopedRewrite(kernel, launch)
    for stmt in (*roles.producer, *roles.consumer):
        if isinstance(stmt, Bind):
            scope.stmt(stmt)
    gemm = next(stmt for stmt in walk(roles.consumer) if isinstance(stmt, Gemm))
    tile = warpgroup_tile(gemm, roles.roles.consumers)
    made = replace(
        roles,
        producer=tuple(_loads(stmt, scope.facts) for stmt in roles.producer),
        consumer=tuple(plan_store(stmt, tile, scope.facts) if isinstance(stmt, Parallel) else stmt
                       for stmt in roles.consumer),
    )  # fmt: skip
    return replace(launch, body=tuple(made if stmt is roles else stmt for stmt in launch.body))


def _loads(stmt: Stmt, facts: Facts) -> Stmt:
    if not isinstance(stmt, RingFill):
        return stmt
    body = tuple(
        TmaLoad(load_map(inner, facts), inner.src.start, inner.dst, loc=inner.loc)
        if isinstance(inner, Copy)
        else inner
        for inner in stmt.body
    )
    return replace(stmt, body=body)
