"""Which shared tiles a producer fills: the loads that bring boxes, the rings that they go to, their stages.

A ring (`ring`) is one tile or several that are loaded together, as A and B of a product are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.tiles import alike, static_extents
from tilec.backends.cuda.analysis.products.tensor_memory import PAIR
from tilec.backends.cuda.analysis.products.turn_operands import is_read_across
from tilec.backends.cuda.analysis.products.wgmma import slab_bytes, slabs
from tilec.backends.cuda.limits import has_wgmma
from tilec.backends.cuda.statement_roles.rings.made_bytes import made_bytes
from tilec.backends.cuda.statement_roles.rings.ring import Ring, gap
from tilec.backends.cuda.statement_roles.rings.ring_room import warps_bytes, with_stages
from tilec.backends.cuda.statement_roles.split.loads import Load, Loads, by_tile, filled, is_loop
from tilec.backends.cuda.statement_roles.split.slices import Program, all_needed
from tilec.backends.cuda.statement_roles.split.tile_turns import turns_at_tiles
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import int_value
from tilec.ir.layout import Layout
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    For,
    Gemm,
    If,
    Kernel,
    Launch,
    Pipelined,
    Reduce,
    SparseGemm,
    Stmt,
    While,
    children,
    walk,
)
from tilec.lowering.analysis.uses import addressed_in, touches, uses_itself
from tilec.lowering.emission.memory import tile_bytes

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target

#: Stages of a ring that a loop without num_stages fills, and those that keep tensor cores busy
#: (`tilec.backends.cuda.analysis.pipelines.ring_depth` has times).
_STAGES, _ENOUGH = 2, 4


@dataclass(frozen=True, eq=False)
class Plan:
    """The rings of a launch, the loads that fill them, why others stay with those who compute (``kept``), the
    tiles that loads look their places up in, of which the producer has its own (``tables``), and how many
    warpgroups take tiles in turns (``turns``)."""

    rings: tuple[Ring, ...]
    loads: Mapping[Stmt, Load]
    kept: Mapping[Stmt, str]
    tables: Set[Var]
    turns: int


def plan_rings(
    kernel: Kernel,
    launch: Launch,
    program: Program,
    wide: Set[Stmt],
    target: Target,
    halved: Set[Var],
) -> Plan:
    """The rings of a launch whose products ``wide`` wgmma carries out, where a block will have half of each
    tile of ``halved``. Unfit where there is no ring, which a load of a loop is to blame for, or no room."""
    sorted_loads = Loads(kernel, launch, program)
    found, kept = _of_rings(sorted_loads, launch, program)
    if not found:
        again = [stmt for stmt in kept if any(map(is_loop, program.around[stmt]))]
        first = next(iter([*again, *kept]), None)
        raise Unfit("no load of it is a box that TMA brings" if first is None else kept[first], first)
    tiles = by_tile(found)
    rings = [_ring(each, tiles, program, wide, halved) for each in _together(tiles, launch)]
    tables = program.tables(all_needed(program, found))
    taken = sum(tile_bytes(Alloc(table)) for table in tables if table.scope() == "shared.dyn")
    taken += warps_bytes(launch, wide, target)
    made = made_bytes(launch, wide, {tile for ring in rings for tile in ring.tiles})
    staged = partial(with_stages, rings, found, launch, program, target, taken, made)
    groups = turns_at_tiles(launch, program, found) if has_wgmma(target) else 1
    with_room, turns = _in_turns(staged, groups)
    return Plan(with_room, found, kept, tables, turns)


def _in_turns(staged: Callable[[int], tuple[Ring, ...]], turns: int) -> tuple[tuple[Ring, ...], int]:
    """The rings that are ``staged`` for warpgroups which take tiles in turns, and how many these are; those
    for warpgroups that share a tile, and 1, where results of their own leave loads too few stages."""
    shared = staged(1)
    if turns == 1:
        return shared, 1
    with suppress(Unfit):
        own = staged(turns)
        if all(few.stages >= min(many.stages, _ENOUGH) for few, many in zip(own, shared, strict=True)):
            return own, turns
    return shared, 1


# ---- loads ----


def _of_rings(found: Loads, launch: Launch, program: Program) -> tuple[dict[Stmt, Load], dict[Stmt, str]]:
    """The loads of tiles that become rings, and why others do not."""
    tables = program.tables(all_needed(program, found.found))
    loads, kept = dict(found.found), dict(found.kept)
    brought = {filled(stmt) for stmt in (*loads, *kept)}
    uses = _Uses(launch.body)
    for alloc in {stmt.buffer: stmt for stmt in walk(launch.body) if isinstance(stmt, Alloc)}.values():
        if alloc.buffer not in brought:
            continue
        own = {stmt for stmt in loads if alloc.buffer.same_as(filled(stmt))}
        reason = _obstacle(alloc, own, kept, tables, uses)
        if reason is not None:
            for stmt in own:
                kept |= dict.fromkeys(loads.pop(stmt).parts, reason)
    return loads, kept


class _Uses:
    """The tiles of a launch that foreign code gets the address of, those that reductions read, and those that
    say where values of sparse operands are."""

    def __init__(self, body: Block) -> None:
        self.body, self.addressed = body, addressed_in(body)
        self.reduced = {stmt.src.buffer for stmt in walk(body) if isinstance(stmt, Reduce)}
        self.places = places_in(body)


def _obstacle(
    alloc: Alloc, own: Set[Stmt], kept: Collection[Stmt], tables: Collection[Var], uses: _Uses
) -> str | None:
    """Why a tile that loads of its ``own`` fill is no ring; None where it is one. ``kept``: loads that stay
    with those who compute; ``tables``: tiles with places of loads."""
    tile = alloc.buffer
    if any(tile.same_as(filled(stmt)) for stmt in kept):
        return f"another load of {tile.name} stays with those who compute"
    if tile in tables:
        return f"places of loads are looked up in {tile.name}"
    if tile in uses.addressed:
        return f"foreign code gets the address of {tile.name}"
    if not is_of_boxes(alloc, tile in uses.places):
        return f"T.annotate_layout gives {tile.name} another order than TMA writes"
    if tile in uses.reduced:
        return f"a reduction reads {tile.name} from shared memory"
    if not _is_ring(tile, uses.body, own):
        return f"{tile.name} is used where its load does not stand before"
    return None


def is_of_boxes(alloc: Alloc, in_rows: bool) -> bool:
    """Whether no layout is asked for that TMA does not write: slabs or, of a tile that lies ``in_rows``, rows
    one behind the other."""
    if alloc.asked is None:
        return True
    if in_rows:
        return alike(alloc.asked.layout, Layout.row_major(static_extents(alloc.buffer)))
    return slab_bytes(alloc.buffer) != 0 and alike(alloc.asked.layout, slabs(alloc.buffer))


def places_in(body: Block) -> set[Var]:
    """The tiles that say where values of sparse operands are."""
    return {stmt.e.buffer for stmt in walk(body) if isinstance(stmt, SparseGemm)}


def _is_ring(tile: Var, body: Block, loads: Set[Stmt]) -> bool:
    """Whether every use of a tile stands behind one of its ``loads`` in the same block or in one inside, and
    loads of one block alone around it."""
    return all(_is_covered(chain, loads) for stmt, chain in _chains(body) if uses_itself(stmt, tile))


def _chains(
    body: Block, outer: tuple[tuple[Block, int], ...] = ()
) -> Iterator[tuple[Stmt, tuple[tuple[Block, int], ...]]]:
    """Every statement, with the blocks around it and its position in each."""
    for position, stmt in enumerate(body):
        chain = (*outer, (body, position))
        yield stmt, chain
        for inner in children(stmt):
            yield from _chains(inner, chain)


def _is_covered(chain: tuple[tuple[Block, int], ...], loads: Set[Stmt]) -> bool:
    levels = [(block, position) for block, position in chain if loads & set(block)]
    if len(levels) != 1:
        return False
    block, position = levels[0]
    first = next(index for index, each in enumerate(block) if each in loads)
    return first <= position if block[position] in loads else first < position


# ---- rings ----


def _together(loads: Mapping[Var, list[Load]], launch: Launch) -> list[tuple[Var, ...]]:
    """Tiles whose loads follow each other everywhere and that are first used by the same statement; those
    that threads load are alone."""
    boxes: dict[Stmt, Var] = {}
    others: set[Stmt] = set()
    for tile, filling in loads.items():
        own = [load.stmt for load in filling]
        if _by_threads(filling):
            others.update(own)
        else:
            boxes |= dict.fromkeys(own, tile)
    groups: list[tuple[Var, ...]] = []
    for run in _runs(launch.body, boxes, others):
        groups += [run] if run not in groups else []
    alone: list[tuple[Var, ...]] = []
    for tile in loads:
        of_tile = [run for run in groups if tile in run]
        made = of_tile[0] if len(of_tile) == 1 and _agree(of_tile[0], groups) else (tile,)
        alone += [made] if made not in alone else []
    return alone


def _by_threads(loads: Iterable[Load]) -> bool:
    return any(load.no_box is not None for load in loads)


def _agree(run: tuple[Var, ...], groups: Sequence[tuple[Var, ...]]) -> bool:
    return all(run == other or not set(run) & set(other) for other in groups)


def _runs(block: Block, loads: Mapping[Stmt, Var], others: Set[Stmt]) -> Iterator[tuple[Var, ...]]:
    """The tiles of each run of loads in a block and those inside, apart where their first uses are; loads of
    ``others`` may stand between them."""
    run: dict[Var, Stmt | None] = {}
    for position, stmt in enumerate(block):
        tile = loads.get(stmt)
        if tile is not None:
            run[tile] = next((each for each in block[position + 1 :] if touches(each, tile)), None)
        elif not isinstance(stmt, Bind) and stmt not in others:
            yield from _by_use(run)
            run = {}
        for inner in children(stmt):
            yield from _runs(inner, loads, others)
    yield from _by_use(run)


def _by_use(run: Mapping[Var, Stmt | None]) -> Iterator[tuple[Var, ...]]:
    for use in dict.fromkeys(run.values()):
        yield tuple(tile for tile, first in run.items() if first is use)


def _ring(
    tiles: tuple[Var, ...],
    loads: Mapping[Var, list[Load]],
    program: Program,
    wide: Set[Stmt],
    halved: Set[Var],
) -> Ring:
    own = [load for tile in tiles for load in loads[tile]]
    stmts = {load.stmt for load in own}
    stages = max(_stages(stmt, program) for stmt in stmts)
    others = [stmt for stmt, around in program.around.items() if not stmts & {stmt, *around}]
    users = [stmt for stmt in others if any(uses_itself(stmt, tile) for tile in tiles)]
    brought = sum(tile_bytes(Alloc(tile)) // (PAIR if tile in halved else 1) for tile in tiles)
    around = {outer for stmt in stmts for outer in program.around[stmt]}
    by_products = all(
        stmt in wide
        and not _is_read_by_lanes(stmt, tiles)
        and all(outer in around or _always_runs(outer) for outer in program.around[stmt])
        for stmt in users
    )
    by_threads = _by_threads(own)
    size = brought if by_threads else brought + sum(map(gap, tiles))
    by_units = any(stmt in wide and not _is_read_by_lanes(stmt, tiles) for stmt in users)
    fenced = by_threads and any(load.width for load in own) and by_units
    return Ring(tiles, stages, size, brought, by_products, by_threads, fenced)


def _always_runs(stmt: Stmt) -> bool:
    """Whether what stands inside of a statement runs once at least."""
    if isinstance(stmt, (For, Pipelined)):
        bounds = [int_value(bound) for bound in (stmt.start, stmt.stop)]
        return None not in bounds and bounds[0] < bounds[1]  # type: ignore[operator]
    return not isinstance(stmt, (If, While))


def _is_read_by_lanes(stmt: Stmt, tiles: tuple[Var, ...]) -> bool:
    """Whether lanes read one of the tiles for a product: an operand across K, or where values are."""
    if isinstance(stmt, SparseGemm):
        return stmt.e.buffer in tiles
    return isinstance(stmt, Gemm) and is_read_across(stmt) and stmt.a.buffer in tiles


def _stages(load: Stmt, program: Program) -> int:
    """As many as the loop around it asks for; one where there is none."""
    loop = next((stmt for stmt in reversed(program.around[load]) if hasattr(stmt, "body")), None)
    if loop is None:
        return 1
    return max(_STAGES, loop.num_stages) if isinstance(loop, Pipelined) else _STAGES
