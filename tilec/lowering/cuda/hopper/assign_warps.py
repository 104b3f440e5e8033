"""A matrix product's warps get roles: one warpgroup loads, the others compute and store."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tilec.ir.nodes import Alloc, Fill, Kernel, Launch, Stmt, walk
from tilec.lowering.cpu.scopes import ScopedRewrite
from tilec.lowering.cpu.uses import expressions
from tilec.lowering.cuda.hopper.clusters import pair_axis
from tilec.lowering.cuda.hopper.match import Match, Unfit, match
from tilec.lowering.cuda.hopper.nodes import Specialised, TileOrder
from tilec.lowering.cuda.hopper.ring import tile_bytes
from tilec.lowering.cuda.hopper.stores import staging_room
from tilec.lowering.cuda.hopper.tma import load_map
from tilec.lowering.cuda.hopper.wgmma import roles, warpgroup_tile
from tilec.lowering.exprs import uses
from tilec.lowering.passes import rewrite_launches

if TYPE_CHECKING:
    from tilec.lowering.facts import Facts
    from tilec.targets import Target

#: Tiles of a band where the author asks for none (T.use_swizzle): 16 won at 4096^3 on an H200.
_BAND = 16


@dataclass(frozen=True)
class AssignWarps:
    """In: launches of tile IR. Out: a launch that is one pipelined product with an elementwise epilogue holds
    a Specialised statement, its loads in the producer, the rest in the consumers, over a persistent grid. Any
    other launch stays, with the reason in its hints."""

    name: str = "assign_warps"

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with roles where they pay."""
        return rewrite_launches(kernel, lambda launch: _assigned(kernel, launch, target))


def specialised(launch: Launch) -> Specialised | None:
    """The roles of a launch, None where its warps have none."""
    return next((stmt for stmt in launch.body if isinstance(stmt, Specialised)), None)


def no_roles(launch: Launch) -> str | None:
    """Why the warps of a launch got no roles."""
    return next((str(value) for key, value in launch.hints if key == "no_roles"), None)


def launch_facts(kernel: Kernel, launch: Launch, found: Match) -> Facts:
    """What is known inside a launch's body, before its loop."""
    scope = ScopedRewrite(kernel, launch)
    for bind in found.head:
        scope.stmt(bind)
    return scope.facts


def _assigned(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    try:
        found = match(launch)
        _check(kernel, launch, found, target)
    except Unfit as unfit:
        return replace(launch, hints=(*launch.hints, ("no_roles", str(unfit))))
    parts = roles(found.warpgroups)
    body: tuple[Stmt, ...] = (
        *(stmt for stmt in launch.body if isinstance(stmt, Alloc) and stmt.buffer.scope() == "shared.dyn"),
        Specialised(parts, _order(kernel, launch, found), _producer(found), _consumer(launch, found)),
    )
    return replace(launch, threads=(parts.threads, 1, 1), body=body)


def _check(kernel: Kernel, launch: Launch, found: Match, target: Target) -> None:
    """Unfit unless every later step can do its part."""
    if any(key == "may_alias" for key, _ in launch.hints):
        raise Unfit("its tensors may alias each other")
    warpgroup_tile(found.gemm, found.warpgroups)
    facts = launch_facts(kernel, launch, found)
    for copy in (found.a, found.b):
        load_map(copy, facts)
    ring_bytes = max(found.loop.num_stages, 1) * sum(
        tile_bytes(copy.dst.buffer) for copy in (found.a, found.b)
    )
    if staging_room(ring_bytes, found.warpgroups, target) < 0:
        raise Unfit(f"stages of {ring_bytes} bytes do not fit the shared memory of a block")


def _order(kernel: Kernel, launch: Launch, found: Match) -> TileOrder:
    """Bands along the second grid axis (rows of C, as GEMMs are written), or what use_swizzle asks for."""
    asked = next((value for key, value in launch.hints if key == "use_swizzle"), None)
    panel, order = asked if isinstance(asked, tuple) and len(asked) == 2 else (_BAND, "row")
    axis = 0 if order == "column" else 1
    pair = pair_axis(launch, found, launch_facts(kernel, launch, found))
    return TileOrder(min(axis, len(launch.grid) - 1), int(panel), pair)


def _producer(found: Match) -> tuple[Stmt, ...]:
    loads = replace(found.loop, body=(*found.inner, found.a, found.b), stage=None, order=None)
    return (*_needed(found, (loads,)), loads)


def _consumer(launch: Launch, found: Match) -> tuple[Stmt, ...]:
    clear = next(stmt for stmt in launch.body if isinstance(stmt, Fill))
    products = replace(found.loop, body=(found.gemm,), stage=None, order=None)
    tail = (products, *found.tail)
    return (*_needed(found, tail), *found.fragments, clear, *tail)


def _needed(found: Match, block: tuple[Stmt, ...]) -> tuple[Stmt, ...]:
    """The bindings before the loop; both roles compute their own."""
    kept: list[Stmt] = []
    wanted = [expr for stmt in walk(block) for expr in expressions(stmt)]
    for bind in reversed(found.head):
        if any(uses(expr, (bind.var,)) for expr in wanted):
            kept.insert(0, bind)
            wanted.append(bind.value)
    return tuple(kept)
