"""Rings of tiles whose columns two groups share are two rings, one for the columns of each.

    for k: wait; S = Q K[k]^T; ...; O += P K[k], columns of O by group; both give K[k] back
    ->  for k: wait for one half of K's columns; S = Q K[k]^T of it; wait for the other one; S += that of it;
        ...; O += P K[k], columns by group; each group gives the half back that its product reads

A half is loaded again when one group is done with it, and products begin when one half is there. H200, 64
queries, 64 keys a trip of 512 + 64 elements: 127.3 us with whole rings, 123.4 so.

Callers see to it that a group that gives a part back has heard of the other one's products of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.nodes import ArriveOnce, BoxLoad, GiveBack
from tilec.backends.cuda.warp_roles.unfit import need
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.nodes import Alloc, Block, Gemm, Launch, Region, Stmt, children, walk, with_children
from tilec.ir.nodes.barriers import AllocBarrier, Group, WaitPhase
from tilec.ir.traits import mentioned
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var

#: Bytes of the rows of a slab: parts are whole slabs.
_SLAB = 128


def parted(launch: Launch, tile: Var, groups: tuple[Group, ...]) -> Launch:
    """A launch with the ring of a tile in as many parts as there are ``groups``, each of which multiplies the
    columns of a part. Unfit where something else happens to the tile."""
    ring = _Ring.of(launch, tile, groups)
    return replace(launch, body=tuple(made for stmt in launch.body for made in ring.stmt(stmt, None)))


@dataclass(frozen=True)
class _Ring:
    """The ring of a ``tile``, and its barriers."""

    tile: Var
    full: Var
    empty: Var
    groups: tuple[Group, ...]

    @staticmethod
    def of(launch: Launch, tile: Var, groups: tuple[Group, ...]) -> _Ring:
        """The ring of a tile that one statement loads."""
        loads = [
            stmt for stmt in walk(launch.body) if isinstance(stmt, BoxLoad) and stmt.dst.buffer.same_as(tile)
        ]
        given = [stmt for stmt in walk(launch.body) if isinstance(stmt, GiveBack) and tile in stmt.tiles]
        need(len(loads) == 1, "several statements load a tile")
        need(all(len(stmt.tiles) == 1 for stmt in given), "tiles share a ring")
        width = static_extents(tile)[-1] * element_bytes(str(tile.dtype))
        need(width % (len(groups) * _SLAB) == 0, "its columns are no whole slabs")
        return _Ring(tile, loads[0].barrier, given[0].barrier, groups)

    @cached_property
    def parts(self) -> tuple[Var, ...]:
        """The tiles of its parts."""
        *rows, columns = static_extents(self.tile)
        shape = (*rows, columns // len(self.groups))
        return tuple(
            tirx.decl_buffer(shape, str(self.tile.dtype), f"{self.tile.name}_{n}", scope="shared.dyn")
            for n in range(len(self.groups))
        )

    @cached_property
    def barriers(self) -> dict[Var, tuple[Var, ...]]:
        """The barriers of its parts."""
        return {
            barrier: tuple(
                tirx.decl_buffer(barrier.shape, "uint64", f"{barrier.name}_{n}", scope=str(barrier.scope()))
                for n in range(len(self.groups))
            )
            for barrier in (self.full, self.empty)
        }

    def stmt(self, stmt: Stmt, number: int | None) -> Iterator[Stmt]:
        """A statement of group ``number``, or of all others."""
        if isinstance(stmt, Group) and stmt in self.groups:
            number = self.groups.index(stmt)
        if not children(stmt):
            yield from self._plain(stmt, number)
            return
        yield with_children(stmt, [self.block(part, number) for part in children(stmt)])

    def block(self, block: Block, number: int | None) -> Block:
        """A block, whose loads and products of the tile are those of its parts."""
        made: list[Stmt] = []
        waits: list[WaitPhase] = []
        expected: list[ArriveOnce] = []
        for stmt in block:
            if isinstance(stmt, WaitPhase) and stmt.barrier in self.barriers:
                waits = [stmt]
            elif isinstance(stmt, ArriveOnce) and stmt.barrier.same_as(self.full):
                expected = [stmt]
            elif isinstance(stmt, BoxLoad) and stmt.dst.buffer.same_as(self.tile):
                need(bool(waits and expected), "a load stands elsewhere than its wait", stmt)
                made += self._loads(stmt, waits[0], expected[0])
                waits, expected = [], []
            elif isinstance(stmt, Gemm) and stmt.b.buffer.same_as(self.tile) and stmt.trans_b:
                made += self._products(stmt, waits)
                waits = []
            else:
                made += self.stmt(stmt, number)
        need(not waits and not expected, "a wait stands elsewhere than what it waits for")
        return tuple(made)

    def _plain(self, stmt: Stmt, number: int | None) -> Iterator[Stmt]:
        if isinstance(stmt, Alloc) and stmt.buffer.same_as(self.tile):
            yield from (replace(stmt, buffer=part) for part in self.parts)
        elif isinstance(stmt, AllocBarrier) and stmt.buffer in self.barriers:
            share = len(self.groups) if stmt.buffer.same_as(self.empty) else 1
            counts = tuple(count // share for count in stmt.counts)
            yield from (replace(stmt, buffer=each, counts=counts) for each in self.barriers[stmt.buffer])
        elif isinstance(stmt, GiveBack) and self.tile in stmt.tiles and number is not None:
            own = self.barriers[self.empty][number]
            yield replace(stmt, barrier=own, tiles=(self.parts[number],))
        elif isinstance(stmt, Gemm) and stmt.b.buffer.same_as(self.tile) and number is not None:
            yield replace(stmt, b=self._part(stmt.b, number, stmt))
        else:
            need(not {self.tile, *self.barriers} & mentioned(stmt), "a tile is used otherwise", stmt)
            yield stmt

    def _loads(self, load: BoxLoad, wait: WaitPhase, expected: ArriveOnce) -> Iterator[Stmt]:
        size = static_extents(self.parts[0])[-1]
        for number, part in enumerate(self.parts):
            full, empty = (self.barriers[barrier][number] for barrier in (self.full, self.empty))
            share = (int_value(expected.expect) or 0) // len(self.parts)
            src = _columns(load.src, number * size, size)
            yield replace(wait, barrier=empty)
            yield replace(expected, barrier=full, expect=tirx.const(share, "int32"))
            dst = Region(part, load.dst.start, (*load.dst.extent[:-1], size))
            yield replace(load, src=src, dst=dst, barrier=full)

    def _products(self, product: Gemm, waits: list[WaitPhase]) -> Iterator[Stmt]:
        """A product along the columns of the tile, part by part."""
        size = static_extents(self.parts[0])[-1]
        whole = int_value(product.b.extent[-1]) == size * len(self.parts)
        need(whole and not product.trans_a and bool(waits), "a product is of some columns", product)
        for number, part in enumerate(self.parts):
            yield replace(waits[0], barrier=self.barriers[self.full][number])
            b = Region(part, product.b.start, (*product.b.extent[:-1], size))
            clear = product.clear if number == 0 else tirx.const(False, "bool")
            yield replace(product, a=_columns(product.a, number * size, size), b=b, clear=clear)

    def _part(self, region: Region, number: int, stmt: Stmt) -> Region:
        size = static_extents(self.parts[0])[-1]
        own = int_value(region.start[-1]) == number * size and int_value(region.extent[-1]) == size
        need(own, "a group multiplies other columns", stmt)
        zero = tirx.const(0, dtype_of(region.start[-1]))
        return Region(self.parts[number], (*region.start[:-1], zero), region.extent)


def _columns(region: Region, first: int, size: int) -> Region:
    """Some columns of a region."""
    start = region.start[-1] + tirx.const(first, dtype_of(region.start[-1]))
    return replace(region, start=(*region.start[:-1], start), extent=(*region.extent[:-1], size))
