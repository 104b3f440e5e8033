"""The verifier's rules of groups and barriers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilec.ir.nodes import barriers

if TYPE_CHECKING:
    from tilec.ir.nodes import Stmt
    from tilec.ir.rules.scope import Scope


def _alloc(scope: Scope, stmt: barriers.AllocBarrier) -> None:
    name = stmt.buffer.name
    scope.need(stmt.buffer.scope() == barriers.SCOPE, f"{name} is no buffer of barriers")
    scope.need(bool(stmt.counts) and min(stmt.counts) >= 1, f"{name} has the counts {stmt.counts}")
    scope.define((stmt.buffer,))


def _group(scope: Scope, stmt: barriers.Group) -> None:
    whole = stmt.first % barriers.WARP == 0 and stmt.count % barriers.WARP == 0
    scope.need(whole, f"a group of the threads {stmt.first} to {stmt.first + stmt.count - 1}")
    scope.need(stmt.first >= 0 and stmt.count > 0, f"a group of {stmt.count} threads from {stmt.first} on")
    scope.inside((), stmt.body)


def _place(scope: Scope, stmt: Any) -> None:
    scope.access(stmt.barrier, (stmt.index,))
    scope.need(stmt.barrier.scope() == barriers.SCOPE, f"{stmt.barrier.name} is no barrier")


def _arrive(scope: Scope, stmt: barriers.Arrive) -> None:
    _place(scope, stmt)
    for part in (stmt.expect, stmt.block):
        if part is not None:
            scope.index(part)


def _expect(scope: Scope, stmt: barriers.ExpectBytes) -> None:
    _place(scope, stmt)
    scope.index(stmt.count)


def _wait(scope: Scope, stmt: barriers.WaitPhase) -> None:
    _place(scope, stmt)
    scope.index(stmt.parity)


def _load(scope: Scope, stmt: barriers.BulkLoad) -> None:
    _place(scope, stmt)
    scope.region(stmt.src)
    scope.region(stmt.dst)


def _cluster(scope: Scope, stmt: barriers.ClusterBarrier) -> None:
    scope.need(stmt.kind in barriers.CLUSTER_KINDS, f"barrier of a cluster of kind {stmt.kind!r}")


def _cluster_copy(scope: Scope, stmt: barriers.ClusterCopy) -> None:
    if stmt.barrier is not None:
        _place(scope, stmt)
    if stmt.block is not None:
        scope.index(stmt.block)
    scope.region(stmt.src)
    scope.region(stmt.dst)


def _grid(scope: Scope, stmt: barriers.GridBarrier) -> None:
    """There is nothing to name."""


def _named(scope: Scope, stmt: barriers.NamedArrive) -> None:
    known = 1 <= stmt.number <= 15 and stmt.count > 0 and stmt.count % barriers.WARP == 0
    scope.need(known, f"the named barrier {stmt.number} of {stmt.count} threads")


def _registers(scope: Scope, stmt: barriers.SetRegisters) -> None:
    scope.need(0 < stmt.count <= 256 and stmt.count % 8 == 0, f"{stmt.count} registers a thread")


def _products(scope: Scope, stmt: barriers.WaitProducts) -> None:
    scope.need(stmt.pending >= 0, f"{stmt.pending} products under way")


RULES: dict[type[Stmt], Callable[[Scope, Any], None]] = {
    barriers.AllocBarrier: _alloc,
    barriers.Group: _group,
    barriers.Arrive: _arrive,
    barriers.ExpectBytes: _expect,
    barriers.WaitPhase: _wait,
    barriers.BulkLoad: _load,
    barriers.ClusterBarrier: _cluster,
    barriers.ClusterCopy: _cluster_copy,
    barriers.GridBarrier: _grid,
    barriers.NamedArrive: _named,
    barriers.SetRegisters: _registers,
    barriers.WaitProducts: _products,
}
