"""Shared tiles that loops read across their rows lie so that lanes meet few banks twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.bank_conflicts import Wait, tile_layouts, waits
from tilec.backends.cuda.analysis.accesses.vectors import WIDEST
from tilec.backends.cuda.analysis.blocks.threads import warps_of
from tilec.backends.cuda.nodes import AsyncCopy, ThreadLoop, ThreadVector
from tilec.ir.layout import Layout, Swizzle
from tilec.ir.layout_algebra import BANK_BYTES, WARP_LANES, chunk
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    For,
    If,
    Launch,
    Stmt,
    Store,
    While,
    children,
    walk,
)
from tilec.ir.nodes.barriers import Group
from tilec.ir.traits import buffers
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks

if TYPE_CHECKING:
    from tvm.ir import Var

#: A swizzle is taken where accesses take less than so much of their time: places in rows cost fewer
#: instructions, and compilers join neighbours there. A gemv of 4-bit weights that gives its bytes to other
#: threads took twice as long on an H100 with two ways in place of four. Of whole vectors there are few
#: places, and no neighbours to join.
_GAIN, _GAIN_OF_VECTORS = 0.5, 1.0
#: Statements that name single elements, wherever these lie.
_ELEMENTS = (Bind, For, If, Store, ThreadVector, While)
#: Statements whose parts count by themselves.
_OPEN = (For, Group, If, While)
#: Bytes that stay together in a swizzle; what four lanes hold of a row of float32 sums are 32.
_UNITS = (32, 16, 8, 4)


class SpreadBanks(LaunchPass):
    """In: launches with layouts. Out: shared tiles in rows of which threads' loops and their copies alone use
    more than single elements are swizzled, where that leaves fewer accesses of a bank in turn."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with its tiles swizzled."""
        layouts = tile_layouts(launch)
        chosen = {tile: best for tile, stmts in _free_tiles(launch).items()
                  if (best := _best(tile, stmts, layouts, warps_of(launch))).swizzle}  # fmt: skip

        def laid(block: Block) -> list[Stmt]:
            return [_laid(stmt, chosen) for stmt in block]

        return replace(launch, body=rewrite_blocks(launch.body, laid)) if chosen else launch


def _free_tiles(launch: Launch) -> dict[Var, list[Stmt]]:
    """The tiles in rows that loops and copies alone use, and these."""
    rows = {stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc) and not stmt.layout}
    tiles = {tile for tile in rows - addressed_in(launch.body) if tile.scope() == "shared.dyn"}
    users: dict[Var, list[Stmt]] = {tile: [] for tile in tiles}
    for stmt, inner in _uses(launch.body):
        for tile in {buffer for each in inner for buffer in buffers(each)} & set(users):
            if type(stmt) is ThreadLoop or (isinstance(stmt, AsyncCopy) and not stmt.ends):
                users[tile].append(stmt)
            elif not isinstance(stmt, _ELEMENTS):
                del users[tile]
    return users


def _uses(block: Block) -> Iterator[tuple[Stmt, Sequence[Stmt]]]:
    """Statements with all that stands inside of them, those of branches, plain loops and groups of warps by
    themselves."""
    for stmt in block:
        if isinstance(stmt, Alloc):
            continue
        is_open = type(stmt) in _OPEN
        yield stmt, (stmt,) if is_open else list(walk((stmt,)))
        for inner in children(stmt) if is_open else ():
            yield from _uses(inner)


def _best(tile: Var, stmts: Sequence[Stmt], layouts: Mapping[Var, Layout], warps: int) -> Layout:
    """The layout of a tile in which its accesses take the least time."""
    fragments = {buffer: layout for buffer, layout in layouts.items() if buffer.scope() == "local.fragment"}

    def found(layout: Layout) -> list[Wait]:
        known = {**fragments, tile: layout}
        return [wait for stmt in stmts for wait in waits(stmt, known, warps)]

    def times(layout: Layout) -> float:
        return sum(wait.times for wait in found(layout))

    plain = layouts[tile]
    now = found(plain)
    in_vectors = all(wait.bytes == WIDEST for wait in now)
    most = (_GAIN_OF_VECTORS if in_vectors else _GAIN) * sum(wait.times for wait in now)
    if sum(wait.times / wait.ways for wait in now) >= most:  # no layout is as fast
        return plain
    together = max((stmt.width for stmt in stmts if isinstance(stmt, AsyncCopy)), default=1)
    made = _swizzles_of_vectors(tile, plain) if in_vectors else _swizzles(tile, plain)
    whole = [each for each in made if chunk(each) >= together]
    least = min(whole, key=times, default=plain)
    return least if times(least) < most else plain


def _swizzles(tile: Var, plain: Layout) -> list[Layout]:
    """Layouts whose rows have their chunks in another order than the rows beside them."""
    size, pitch = element_bytes(str(tile.dtype)), plain.shape[-1]
    if len(plain.shape) == 1:
        return []
    return [
        Layout(plain.digits, Swizzle(width, max(1, unit // size), pitch * step))
        for unit in _UNITS
        for width in (32, 16, 8, 4, 2)
        for step in (1, 2, 4, 8)
        if width * unit <= WARP_LANES * BANK_BYTES and pitch * size % (width * max(unit, size)) == 0
    ]


def _swizzles_of_vectors(tile: Var, plain: Layout) -> list[Layout]:
    """Layouts that keep vectors whole, whose lines of all banks have theirs in another order than the lines
    beside them."""
    size, line = element_bytes(str(tile.dtype)), WARP_LANES * BANK_BYTES
    if plain.shape[-1] * size % line:
        return []
    return [Layout(plain.digits, Swizzle(width, WIDEST // size, line // size)) for width in (2, 4, 8)]


def _laid(stmt: Stmt, chosen: Mapping[Var, Layout]) -> Stmt:
    if isinstance(stmt, Alloc) and stmt.buffer in chosen:
        return replace(stmt, layout=chosen[stmt.buffer])
    return stmt
