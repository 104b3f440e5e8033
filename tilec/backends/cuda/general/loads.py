"""Which statements bring data from tensors to shared tiles, and how a producer carries each out: as boxes of
TMA, as cp.async of its threads, or as stores of theirs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.gathers import store_of
from tilec.backends.cuda.analysis.loads_ahead import async_elements, load_of
from tilec.backends.cuda.analysis.tiles import is_whole, static_extents
from tilec.backends.cuda.general.boxes import check_box
from tilec.backends.cuda.general.slices import Program
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.exprs import inlined, loads
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Copy,
    For,
    Gemm,
    Kernel,
    Launch,
    Parallel,
    Pipelined,
    Stmt,
    While,
    walk,
)
from tilec.ir.traits import expressions
from tilec.lowering.analysis.scopes import ScopedRewrite

if TYPE_CHECKING:
    from tvm.ir import Var


@dataclass(frozen=True, eq=False)
class Load:
    """A statement that fills all of a shared ``tile`` from tensors. ``made``: what threads run for it,
    asynchronous copies of ``width`` elements each, or (0) the statement itself. ``no_box``: why it is no box;
    None for one."""

    stmt: Copy | Parallel
    tile: Var
    made: Stmt
    width: int
    no_box: str | None


def filled(stmt: Stmt) -> Var | None:
    """The shared tile that a statement fills from tensors, None where it does something else."""
    if isinstance(stmt, Copy):
        fills = _is_tensor(stmt.src.buffer) and str(stmt.dst.buffer.scope()) == "shared.dyn"
        return stmt.dst.buffer if fills else None
    store = store_of(stmt) if isinstance(stmt, Parallel) else None
    if store is None or str(store.buffer.scope()) != "shared.dyn":
        return None
    found = {each.source for part in walk((stmt,)) for expr in expressions(part) for each in loads(expr)}
    vectors = all(_is_tensor(buffer) or _is_vector(buffer) for buffer in found - {store.buffer})
    return store.buffer if any(map(_is_tensor, found)) and vectors and store.buffer not in found else None


def _is_vector(buffer: Var) -> bool:
    return sum(extent != 1 for extent in static_extents(buffer)) <= 1


def _is_tensor(buffer: Var) -> bool:
    return str(buffer.scope()).startswith("global")


class Loads(ScopedRewrite):
    """Sorts the loads of a launch: those that a producer carries out (``found``), and why it does not carry
    out others (``kept``)."""

    def __init__(self, kernel: Kernel, launch: Launch, program: Program) -> None:
        super().__init__(kernel, launch)
        self.found: dict[Stmt, Load] = {}
        self.kept: dict[Stmt, str] = {}
        self._program = program
        self._values = {stmt.var: stmt.value for stmt in program.around if isinstance(stmt, Bind)}
        self._asked = {
            stmt.buffer: stmt.asked.layout
            for stmt in program.around
            if isinstance(stmt, Alloc) and stmt.asked is not None
        }
        self._operands = {
            region.buffer for stmt in program.around if isinstance(stmt, Gemm) for region in (stmt.a, stmt.b)
        }
        self.block(launch.body)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Nothing is rewritten."""
        tile = filled(stmt)
        if tile is not None:
            try:
                self.found[stmt] = self._load(stmt, tile)  # type: ignore[arg-type]
            except Unfit as unfit:
                self.kept[stmt] = str(unfit)
        return super().stmt(stmt)

    def _load(self, stmt: Copy | Parallel, tile: Var) -> Load:
        """Unfit for a load that a producer cannot carry out."""
        need(not stmt.hints.avoids_tma, "its author keeps it from TMA")
        if isinstance(stmt, Copy):
            need(is_whole(stmt.dst), f"{tile.name} is filled in part")
            changed = stmt.src.buffer in self._program.changed
            need(not changed, f"the launch writes {stmt.src.buffer.name}")
        no_box = self._no_box(stmt)
        if no_box is not None and not any(map(is_loop, self._program.around[stmt])):
            raise Unfit(no_box)
        self._program.needed(stmt)
        ahead = load_of(stmt)
        width = 0
        if ahead is not None and stmt.hints.prefer_instruction != "sync":
            width = async_elements(ahead, self._values, self.facts, self._asked.get(tile))
        made = stmt if ahead is None or not width else ahead.asynchronous(width, {}, {}, self.facts)
        return Load(stmt, tile, made, width, no_box)

    def _no_box(self, stmt: Copy | Parallel) -> str | None:
        """Why TMA cannot bring it."""
        if not isinstance(stmt, Copy):
            return "its places are computed"
        start = tuple(inlined(each, self._values) for each in stmt.src.start)
        try:
            check_box(stmt.src, start, stmt.dst, stmt.dst.buffer in self._operands, self.facts)
        except Unfit as unfit:
            return str(unfit)
        return None


def is_loop(stmt: Stmt) -> bool:
    """Whether what is inside of a statement runs again and again."""
    return isinstance(stmt, (For, Pipelined, While))


def by_tile(found: Mapping[Stmt, Load]) -> dict[Var, list[Load]]:
    """The loads of every tile."""
    tiles: dict[Var, list[Load]] = {}
    for load in found.values():
        tiles.setdefault(load.tile, []).append(load)
    return tiles
