"""Tiles get their versions: the producer fills them, consumers wait for them before their first use."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.pipelines.versions import with_version, with_versions
from tilec.backends.cuda.attention.assign.layouts import load_map
from tilec.backends.cuda.attention.assign.tiles import is_load
from tilec.backends.cuda.attention.nodes import (
    AsyncProduct,
    AttentionRoles,
    RingPut,
    RingTurn,
    RingWait,
    TileRing,
    Turn,
    ZeroRows,
)
from tilec.backends.cuda.attention.passes.rewriting import producer_facts, touched
from tilec.backends.cuda.nodes import ThreadLoop, TurnTile
from tilec.backends.cuda.warp_roles.nodes import TmaLoad
from tilec.backends.cuda.warp_roles.ring import tile_layout
from tilec.backends.cuda.warp_roles.strategy import rewrite_roles
from tilec.ir.exprs import dtype_of, int_value, same, uses
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Copy,
    For,
    If,
    Kernel,
    Launch,
    Stmt,
    children,
    walk,
    with_children,
)
from tilec.lowering.passes.base import Pass, rewrite_blocks

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tvm.ir import Expr, Var

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target


class PlanTileRings(Pass):
    """In: AttentionRoles with copies in its producer. Out: RingPut with TmaLoad there, RingWait before the
    products that read a tile, whose operands are the versions at hand; all shared tiles have layouts."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its rings."""
        return rewrite_roles(kernel, AttentionRoles, lambda launch, roles: _planned(kernel, launch, roles))


def _planned(kernel: Kernel, launch: Launch, found: AttentionRoles) -> Launch:
    rings = {ring.source: ring for ring in found.rings}
    facts = producer_facts(kernel, launch, found.producer)
    consumer = found.consumer
    top = [ring for ring in found.rings if _is_put(ring, found.producer)]
    consumer = _with_waits(consumer, rings, set(top))
    consumer = _waited_at_top(consumer, top)
    consumer = with_versions(consumer, {ring.source: (ring.tile, ring.stage) for ring in found.rings})
    producer = _puts(_with_places(found.producer), rings, facts)
    turner = rewrite_blocks(found.turner, lambda block: [_turn(stmt, rings) for stmt in block])
    made = replace(found, producer=producer, turner=turner, consumer=consumer)
    body = tuple(_placed(stmt, rings) if isinstance(stmt, Alloc) else made for stmt in launch.body)
    return replace(launch, body=body)


def _placed(stmt: Alloc, rings: dict[Var, TileRing]) -> Alloc:
    ring = next((each for each in rings.values() if each.tile.same_as(stmt.buffer)), None)
    shape = tuple(int_value(extent) or 1 for extent in stmt.buffer.shape)
    versions = shape if ring is not None else (1, *shape)
    layout = tile_layout(versions, str(stmt.buffer.dtype))
    if ring is None:
        layout = replace(layout, digits=layout.digits[1:])
    return replace(stmt, layout=layout)


# ---- the producer ----


def _with_places(block: Block) -> Block:
    """``block`` with names for the coordinates of loads that no loop in it changes: they take divisions."""
    names: list[Bind] = []
    changing = {stmt.var for stmt in walk(block) if isinstance(stmt, (For, Bind))}

    def named(expr: Expr) -> Expr:
        if not any(isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) for node in walk_expr(expr)) or uses(
            expr, changing
        ):
            return expr
        known = next((bind for bind in names if same(bind.value, expr)), None)
        if known is None:
            known = Bind(tirx.Var("place", dtype_of(expr)), expr)
            names.append(known)
        return known.var

    def placed(stmt: Stmt) -> Stmt:
        if isinstance(stmt, Copy) and is_load(stmt):
            return replace(stmt, src=replace(stmt.src, start=tuple(named(start) for start in stmt.src.start)))
        return with_children(stmt, [tuple(placed(each) for each in inner) for inner in children(stmt)])

    made = tuple(placed(stmt) for stmt in block)
    return (*names, *made)


def _is_put(ring: TileRing, block: Block) -> bool:
    return any(is_load(stmt) and stmt.dst.buffer.same_as(ring.source) for stmt in block)  # type: ignore[attr-defined]


def _puts(block: Block, rings: dict[Var, TileRing], facts: Facts) -> Block:
    """``block`` with a put for each run of copies to one tile."""
    made: list[Stmt] = []
    for tile, run in groupby(block, _filled):
        if tile is None:
            made += (_within(stmt, rings, facts) for stmt in run)
            continue
        loads = tuple(_load(stmt, rings[tile], facts) for stmt in run)  # type: ignore[arg-type]
        made.append(RingPut(rings[tile], loads, loc=loads[0].loc))
    return tuple(made)


def _within(stmt: Stmt, rings: dict[Var, TileRing], facts: Facts) -> Stmt:
    return with_children(stmt, [_puts(part, rings, facts) for part in children(stmt)])


def _filled(stmt: Stmt) -> Var | None:
    return stmt.dst.buffer if isinstance(stmt, Copy) and is_load(stmt) else None


def _load(copy: Copy, ring: TileRing, facts: Facts) -> TmaLoad:
    (versioned,) = with_version((copy,), {ring.source: ring.tile}, ring.stage)
    dst = versioned.dst  # type: ignore[attr-defined]
    return TmaLoad(load_map(copy, facts), copy.src.start, dst, evict=copy.hints.eviction, loc=copy.loc)


def _turn(stmt: Stmt, rings: dict[Var, TileRing]) -> Stmt:
    if not isinstance(stmt, TurnTile):
        return stmt
    return RingTurn(rings[stmt.src.buffer], rings[stmt.dst.buffer], loc=stmt.loc)


# ---- the consumers ----


def _reads(stmt: Stmt, tiles: Iterable[Var]) -> tuple[Var, ...]:
    if isinstance(stmt, AsyncProduct):
        return (stmt.a.buffer, stmt.b.buffer)
    if isinstance(stmt, ThreadLoop):
        used = touched(stmt)[0]
        return tuple(tile for tile in tiles if tile in used)
    return (stmt.tile.buffer,) if isinstance(stmt, ZeroRows) else ()


def _with_waits(block: Block, rings: dict[Var, TileRing], known: set[TileRing]) -> Block:
    """``block`` with a wait before the first use of each tile: before a turn that begins right there, so that
    nobody waits in his turn for what it begins with."""
    made: list[Stmt] = []
    waited = set(known)
    for stmt in block:
        if isinstance(stmt, (For, If)):
            stmt = with_children(stmt, [_with_waits(inner, rings, known) for inner in children(stmt)])
            waited = set(known)
        for buffer in _reads(stmt, rings):
            ring = rings.get(buffer)
            if ring is None or ring in waited:
                continue
            waited.add(ring)
            begins = bool(made) and isinstance(made[-1], Turn) and made[-1].begin
            at = len(made) - 1 if begins else len(made)
            made.insert(at, RingWait(ring, loc=stmt.loc))
        made.append(stmt)
    return tuple(made)


def _waited_at_top(block: Block, top: list[TileRing]) -> Block:
    """Tiles that are loaded once are waited for before the loop, whether or not it has a trip, and before
    what in front of it reads one of them."""
    tiles = {ring.source for ring in top}
    first = (
        i for i, stmt in enumerate(block) if isinstance(stmt, (For, If)) or tiles & {*_reads(stmt, tiles)}
    )
    at = next(first, len(block))
    return (*block[:at], *(RingWait(ring) for ring in top), *block[at:])
