"""Which statements bring data from tensors to shared tiles, and how a producer carries each out: as boxes of
TMA, as cp.async of its threads, or as stores of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cuda.analysis.accesses.gathers import store_of
from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents
from tilec.backends.cuda.analysis.pipelines.loads_ahead import async_elements, copy_load, load_of
from tilec.backends.cuda.analysis.products.wgmma import GROUP_ROWS
from tilec.backends.cuda.statement_roles.boxes.loaded_boxes import check_box
from tilec.backends.cuda.statement_roles.split.slices import Program
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import dtype_of, inlined, int_value, substitute
from tilec.ir.nodes import (
    LOOPS,
    PRODUCTS,
    Alloc,
    Bind,
    Copy,
    For,
    If,
    Kernel,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    children,
    is_global,
    walk,
    with_children,
)
from tilec.ir.traits import loads_of
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Block


#: Bytes of the largest tile that threads of a producer fill by loads and stores. Larger ones come faster by
#: all threads, by a conversion of a raw tile (H200: a float32 operand of 8192^3 converted 2.6 ms, 16.8 ms).
MOST_BYTES = 4096
#: Bytes of the smallest cp.async with which a loading warpgroup keeps up: a vector spread over a tile of
#: 64 x 64 in pieces of 4 bytes took a launch from 184 to 268 us on an H200.
_PIECE = 8


@dataclass(frozen=True, eq=False)
class Load:
    """A statement that fills all of a shared ``tile`` from tensors, a loop that does so part by part, or a
    branch each side of which does so.
    ``made``: what threads run for it, asynchronous copies of ``width`` elements each, or (0) the statement
    itself. ``no_box``: why it is no box; None for one."""

    stmt: Copy | Parallel | For | If
    tile: Var
    made: Stmt
    width: int
    no_box: str | None

    @property
    def parts(self) -> tuple[Copy | Parallel, ...]:
        """The statements that bring something."""
        return parts_of(self.stmt)


def parts_of(stmt: Stmt) -> tuple[Copy | Parallel, ...]:
    """The statements of a load that bring something."""
    inner = [part for block in children(stmt) for part in block] if isinstance(stmt, (For, If)) else [stmt]
    return tuple(part for part in inner if isinstance(part, (Copy, Parallel)))


def filled(stmt: Stmt) -> Var | None:
    """The shared tile that a statement fills from tensors, None where it does something else."""
    if isinstance(stmt, For):
        return _assembled(stmt)
    if isinstance(stmt, If):
        return _on_both_sides(stmt)
    if isinstance(stmt, Copy):
        fills = is_global(stmt.src.buffer) and str(stmt.dst.buffer.scope()) == "shared.dyn"
        return stmt.dst.buffer if fills else None
    store = store_of(stmt) if isinstance(stmt, Parallel) else None
    if store is None or str(store.buffer.scope()) != "shared.dyn":
        return None
    found = {each.source for each in loads_of(*walk((stmt,)))}
    vectors = all(is_global(buffer) or _is_vector(buffer) for buffer in found - {store.buffer})
    return store.buffer if any(map(is_global, found)) and vectors and store.buffer not in found else None


def _assembled(loop: For) -> Var | None:
    """The tile that a loop of copies fills, each row of it once."""
    tiles = _tiles_of(loop)
    if len(tiles) != 1:
        return None
    (tile,) = tiles
    bounds = [int_value(bound) for bound in (loop.start, loop.stop, loop.step)]
    shape = static_extents(tile)
    if None in bounds or not bounds[2] or any(stmt.dst.extent[1:] != shape[1:] for stmt in _copies(loop)):
        return None
    names = values_of(loop.body)
    rows: list[int] = []
    for copy in _copies(loop):
        for trip in range(*bounds):  # type: ignore[arg-type]
            first = substitute(inlined(copy.dst.start[0], names), {loop.var: _const(loop, trip)})
            row = int_value(sym.Analyzer().simplify(first))
            rows += [] if row is None else range(row, row + (int_value(copy.dst.extent[0]) or 0))
    return tile if sorted(rows) == list(range(shape[0])) else None


def _on_both_sides(branch: If) -> Var | None:
    """The tile that either side of a branch fills, by one copy behind its names."""
    tiles = []
    for *names, last in (branch.then, branch.orelse or (None,)):
        if not isinstance(last, Copy) or not all(isinstance(name, Bind) for name in names):
            return None
        tiles.append(filled(last) if is_whole(last.dst) else None)
    return tiles[0] if tiles[0] is not None and tiles[0].same_as(tiles[1]) else None


def _const(loop: For, trip: int) -> Expr:
    return tirx.const(trip, dtype_of(loop.var))


def _copies(loop: For) -> list[Copy]:
    return [stmt for stmt in loop.body if isinstance(stmt, Copy)]


def _tiles_of(loop: For) -> tuple[Var, ...]:
    """The shared tiles that a loop of nothing but copies from tensors fills in part."""
    if any(not isinstance(stmt, (Bind, Copy)) for stmt in loop.body):
        return ()
    tiles = [filled(copy) for copy in _copies(loop)]
    return () if None in tiles else tuple(dict.fromkeys(tiles))


def apart(body: Block) -> Block:
    """Statements with a loop for every tile where one loop fills several."""

    def rewrite(block: Block) -> list[Stmt]:
        return [new for stmt in block for new in _apart(stmt)]

    return rewrite_blocks(body, rewrite)


def _apart(stmt: Stmt) -> Block:
    tiles = _tiles_of(stmt) if isinstance(stmt, For) else ()
    if not isinstance(stmt, For) or len(tiles) < 2:
        return (stmt,)
    loops = [
        tuple(part for part in stmt.body if not isinstance(part, Copy) or part.dst.buffer.same_as(tile))
        for tile in tiles
    ]
    return tuple(new for body in loops for new in copied((replace(stmt, body=body),)))


def _is_vector(buffer: Var) -> bool:
    return sum(extent != 1 for extent in static_extents(buffer)) <= 1


class Loads(ScopedRewrite):
    """Sorts the loads of a launch: those that a producer carries out (``found``), and why it does not carry
    out others (``kept``)."""

    def __init__(self, kernel: Kernel, launch: Launch, program: Program) -> None:
        super().__init__(kernel, launch)
        self.found: dict[Stmt, Load] = {}
        self.kept: dict[Stmt, str] = {}
        self._program = program
        self._values = values_of(program.around)
        self._asked = {
            stmt.buffer: stmt.asked.layout
            for stmt in program.around
            if isinstance(stmt, Alloc) and stmt.asked is not None
        }
        self._operands = {
            region.buffer
            for stmt in program.around
            if isinstance(stmt, PRODUCTS)
            for region in (stmt.a, stmt.b)
        }
        self.block(launch.body)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Nothing is rewritten."""
        tile = filled(stmt)
        if tile is None:
            return super().stmt(stmt)
        for part in (stmt, *(part for block in children(stmt) for part in block)):
            self._learn(part)
        try:
            self.found[stmt] = self._load(stmt, tile)  # type: ignore[arg-type]
        except Unfit as unfit:
            self.kept |= dict.fromkeys(parts_of(stmt), str(unfit))
        return [stmt]

    def _load(self, stmt: Copy | Parallel | For | If, tile: Var) -> Load:
        """Unfit for a load that a producer cannot carry out."""
        parts = parts_of(stmt)
        for part in parts:
            need(not part.hints.avoids_tma, "its author keeps it from TMA")
            if isinstance(part, Copy):
                need(isinstance(stmt, For) or is_whole(part.dst), f"{tile.name} is filled in part")
                changed = part.src.buffer in self._program.changed
                need(not changed, f"the launch writes {part.src.buffer.name}")
        no_box = next(filter(None, map(self._no_box, parts)), None)
        width = min(self._width(part, tile) for part in parts)
        fast = is_small(tile) or (width and not self._is_scattered(stmt, tile, width))
        if no_box is not None and not (fast and any(map(is_loop, self._program.around[stmt]))):
            raise Unfit(no_box)
        self._program.needed(stmt)
        return Load(stmt, tile, self._asynchronous(stmt, width) if width else stmt, width, no_box)

    def _is_scattered(self, stmt: Stmt, tile: Var, width: int) -> bool:
        """Whether its pieces are so small that all threads bring them faster, where nothing asks for a tile
        ahead of its trip."""
        ahead = (loop for loop in self._program.around[stmt] if isinstance(loop, Pipelined))
        return width * element_bytes(str(tile.dtype)) < _PIECE and all(loop.num_stages < 2 for loop in ahead)

    def _width(self, part: Copy | Parallel, tile: Var) -> int:
        """Elements of one cp.async; 0 where it carries out nothing of the load."""
        ahead = copy_load(part) if isinstance(part, Copy) else load_of(part)
        if ahead is None or part.hints.prefer_instruction == "sync":
            return 0
        return async_elements(ahead, self._values, self.facts, self._asked.get(tile))

    def _asynchronous(self, stmt: Stmt, width: int) -> Stmt:
        """A load by cp.async."""
        if isinstance(stmt, (For, If)):
            inner = ([self._asynchronous(part, width) for part in block] for block in children(stmt))
            return with_children(stmt, [*map(tuple, inner)])
        ahead = copy_load(stmt) if isinstance(stmt, Copy) else load_of(stmt)
        return stmt if ahead is None else ahead.asynchronous(width, {}, {}, self.facts)

    def _no_box(self, stmt: Copy | Parallel) -> str | None:
        """Why TMA cannot bring it."""
        if not isinstance(stmt, Copy):
            return "its places are computed"
        start = tuple(inlined(each, self._values) for each in stmt.src.start)
        tile = stmt.dst.buffer
        try:
            if not is_whole(stmt.dst):
                first = inlined(stmt.dst.start[0], self._values)
                groups = divides(GROUP_ROWS, first, self.facts) and divides(
                    GROUP_ROWS, stmt.dst.extent[0], self.facts
                )
                matrices = stmt.dst.extent[1:] == static_extents(tile)[1:]
                need(
                    groups if len(tile.shape) == 2 else len(tile.shape) == 3 and matrices,
                    f"parts of {tile.name} are no groups of {GROUP_ROWS} rows",
                )
            is_operand, is_spaced = tile in self._operands, is_whole(stmt.dst)
            check_box(stmt.src, start, stmt.dst, is_operand, self.facts, is_spaced)
        except Unfit as unfit:
            return str(unfit)
        return None


def is_small(tile: Var) -> bool:
    """Whether threads of a producer fill a tile as fast as all threads do."""
    return tile_bytes(Alloc(tile)) <= MOST_BYTES


def is_loop(stmt: Stmt) -> bool:
    """Whether what is inside of a statement runs again and again."""
    return isinstance(stmt, LOOPS)


def by_tile(found: Mapping[Stmt, Load]) -> dict[Var, list[Load]]:
    """The loads of every tile."""
    tiles: dict[Var, list[Load]] = {}
    for load in found.values():
        tiles.setdefault(load.tile, []).append(load)
    return tiles
