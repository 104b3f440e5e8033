"""Trips whose tiles are narrower along K than the rows of 128 bytes that wgmma reads become one, as wide.

    for k in range(n): As = A[.., k * 32:+32]; gemm(As, ..)
    ->
    for k in range(ceildiv(n, 2)): As = A[.., k * 64:+64]; gemm(As, ..)        (float16)

What a last trip has beyond the end of the tensors is zeros. A branch behind the product that is taken in the
last of as many trips (sums that are scaled every 128 of K) is what such a trip ends with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cuda.analysis.accesses.gathers import gather_of
from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents
from tilec.backends.cuda.analysis.pipelines.versions import with_buffers
from tilec.backends.cuda.analysis.products.wgmma import SLABS
from tilec.backends.cuda.analysis.trips.periods import sides
from tilec.ir.exprs import dtype_of, int_value, same, substitute, uses
from tilec.ir.nodes import Alloc, Copy, Gemm, If, Kernel, Launch, Parallel, Pipelined, Region, Stmt, walk
from tilec.ir.traits import mentioned
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches
from tilec.lowering.rewrite import rename

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

_NOTE = "{} trips of its loop over {} are one, so that rows of tiles have {} bytes"


class JoinTrips(Pass):
    """In: pipelined loops of two loads and a product of whole tiles, with rows of 16 to 64 bytes along K.
    Loads are copies, or loops whose place follows from the number of an element along K, as that of image
    columns. Out: loops of 2 to 8 times fewer trips over tiles as many times as deep, where what lies behind
    the last trip is outside of both tensors, so that zeros are multiplied, or there is nothing behind it, as
    there must not be where trips end with a branch."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with every launch rewritten."""
        return rewrite_launches(kernel, lambda launch: joined(kernel, launch))


def joined(kernel: Kernel, launch: Launch, fits: Callable[[Gemm], bool] = lambda gemm: True) -> Launch:
    """The launch with the trips of such loops joined whose product ``fits``."""
    facts = ScopedRewrite(kernel, launch).facts
    loops = [stmt for stmt in walk(launch.body) if isinstance(stmt, Pipelined)]
    found = [join for join in (_join(loop, launch) for loop in loops) if join and fits(join.gemm)]
    joins = [join for join in found if join.is_fit(facts)]
    if not joins:
        return launch
    made: dict[Stmt, Stmt] = {}
    for join in joins:
        made |= join.made()
    body = rewrite_blocks(launch.body, lambda block: [made.get(stmt, stmt) for stmt in block])
    return with_notes(replace(launch, body=body), [join.note for join in joins])


def _join(loop: Pipelined, launch: Launch) -> _Join | None:
    """The join of a loop that is two loads and a product; None for others."""
    loads = tuple(stmt for stmt in loop.body if _tile(stmt) is not None)
    gemms = [stmt for stmt in loop.body if isinstance(stmt, Gemm)]
    ends = tuple(stmt for stmt in loop.body[3:] if isinstance(stmt, If))
    if (len(loads), len(gemms), len(loop.body) - len(ends)) != (2, 1, 3):
        return None
    if (loop.stage, loop.order) != (None, None) or len(ends) > 1:
        return None
    (gemm,) = gemms
    axes = {gemm.a.buffer: int(not gemm.trans_a), gemm.b.buffer: int(gemm.trans_b)}
    times = _times(axes)
    return _Join(loop, launch, loads, gemm, ends, axes, times) if times > 1 else None


def _tile(stmt: Stmt) -> Var | None:
    """The tile that a load fills; None for other statements."""
    if isinstance(stmt, Copy):
        return stmt.dst.buffer
    gather = gather_of(stmt) if isinstance(stmt, Parallel) else None
    return None if gather is None else gather.tile


def _times(axes: Mapping[Var, int]) -> int:
    """How many trips fill rows of 128 bytes along K; 0 where tiles are no matrices or it does not divide."""
    if len(axes) != 2 or any(len(tile.shape) != 2 for tile in axes):
        return 0
    sizes = {static_extents(tile)[axis] * element_bytes(str(tile.dtype)) for tile, axis in axes.items()}
    size = next(iter(sizes))
    return SLABS[0] // size if len(sizes) == 1 and SLABS[0] % size == 0 else 0


@dataclass(frozen=True, eq=False)
class _Join:
    """``times`` trips of a loop become one. ``ends``: the branch that its trips end with, if any; ``axes``:
    the axis along K of each operand's tile."""

    loop: Pipelined
    launch: Launch
    loads: tuple[Stmt, ...]
    gemm: Gemm
    ends: tuple[If, ...]
    axes: Mapping[Var, int]
    times: int

    @property
    def note(self) -> str:
        """What `explain` says of it."""
        return _NOTE.format(self.times, self.loop.var.name, SLABS[0])

    @property
    def _allocs(self) -> dict[Var, Alloc]:
        return {stmt.buffer: stmt for stmt in walk(self.launch.body) if isinstance(stmt, Alloc)}

    # ---- whether it may be ----

    def is_fit(self, facts: Facts) -> bool:
        """Whether sums go on from trip to trip, and zeros lie behind the last one."""
        plain = int_value(self.loop.start) == 0 and int_value(self.gemm.clear) == 0
        whole = not self.ends or divides(self.times, self.loop.stop, facts)
        if not plain or not whole or not all(map(self._is_last, self.ends)):
            return False
        return all(self._is_own(load) and self._goes_on(load, facts) for load in self.loads)

    def _is_last(self, branch: If) -> bool:
        """Whether a branch is taken in the last one of ``times`` trips, and in no other one."""
        taken = sides(branch.cond, self.loop, self.times)
        return not branch.orelse and taken == (False,) * (self.times - 1) + (True,)

    def _is_own(self, load: Stmt) -> bool:
        """Whether a load fills all of a tile that only the product reads."""
        tile = _tile(load)
        alloc = self._allocs.get(tile)
        if tile not in self.axes or alloc is None or alloc.asked is not None:
            return False
        if isinstance(load, Copy) and not is_whole(load.dst):
            return False
        others = (stmt for stmt in walk(self.launch.body) if not isinstance(stmt, (Alloc, Pipelined)))
        return sum(tile in mentioned(stmt) for stmt in others) == 2

    def _goes_on(self, load: Stmt, facts: Facts) -> bool:
        """Whether a load brings in a trip what is next along K, and behind the last one nothing."""
        if isinstance(load, Copy) and self._ends(load, facts):
            return True
        if not divides(self.times, self.loop.stop, facts):
            return False
        return self._is_next(load) if isinstance(load, Copy) else self._follows(load)

    def _follows(self, load: Stmt) -> bool:
        """Whether a place one trip on is that of an element as far along K as the tile is deep."""
        gather = gather_of(load) if isinstance(load, Parallel) else None
        if gather is None:
            return False
        along, var, analyzer = gather.vars[self.axes[gather.tile]], self.loop.var, sym.Analyzer()
        deep = static_extents(gather.tile)[self.axes[gather.tile]]
        return all(
            same(
                *(
                    analyzer.simplify(substitute(place, step))
                    for step in ({var: var + 1}, {along: along + deep})
                )
            )
            for place in gather.places
        )

    def _is_next(self, copy: Copy) -> bool:
        """Whether the boxes of trips that become one are one box."""
        tile, analyzer = copy.dst.buffer, sym.Analyzer()
        sides, at = static_extents(tile), len(copy.src.start) - 2 + self.axes[tile]
        if [int_value(extent) for extent in copy.src.extent[-2:]] != list(sides):
            return False
        first = {self.loop.var: self.loop.var * self.times}
        return all(
            int_value(analyzer.simplify(substitute(start, {self.loop.var: first[self.loop.var] + step})
                                        - substitute(start, first)))
            == (step * sides[self.axes[tile]] if axis == at else 0)
            for step in range(1, self.times)
            for axis, start in enumerate(copy.src.start)
        )  # fmt: skip

    def _ends(self, copy: Copy, facts: Facts) -> bool:
        """Whether a copy brings the next box along K in each trip, and behind the last one nothing."""
        source, tile, var = copy.src, copy.dst.buffer, self.loop.var
        at = len(source.start) - 2 + self.axes[tile]
        sides = [int_value(extent) for extent in source.extent]
        fixed = [start for axis, start in enumerate(source.start) if axis != at]
        if source.buffer.scope() != "global" or sides[-2:] != list(static_extents(tile)):
            return False
        step = substitute(source.start[at], {var: var + 1}) - source.start[at]
        behind = substitute(source.start[at], {var: self.loop.stop}) >= source.buffer.shape[at]
        along = int_value(sym.Analyzer().simplify(step)) == sides[at]
        return along and not any(uses(start, (var,)) for start in fixed) and facts.prove(behind) is True

    # ---- what it makes ----

    def made(self) -> dict[Stmt, Stmt]:
        """What becomes of the loop and of the allocations of its tiles."""
        tiles = {tile: self._deeper(tile) for tile in self.axes}
        var = tirx.Var(str(self.loop.var.name), dtype_of(self.loop.var))
        body = rename(self.loop.body[:3], {self.loop.var: var * self.times})
        last = {self.loop.var: var * self.times + (self.times - 1)}
        ends = [stmt for branch in self.ends for stmt in rename(branch.then, last)]
        stop = tirx.floordiv(self.loop.stop + (self.times - 1), self.times)
        stages = max(-(-self.loop.num_stages // self.times), 1)
        loop = replace(
            self.loop,
            var=var,
            stop=stop,
            num_stages=stages,
            body=(*(self._statement(stmt, tiles) for stmt in body), *ends),
        )
        allocs = self._allocs
        return {
            self.loop: loop,
            **{allocs[tile]: replace(allocs[tile], buffer=tiles[tile]) for tile in tiles},
        }

    def _deeper(self, tile: Var) -> Var:
        shape = list(static_extents(tile))
        shape[self.axes[tile]] *= self.times
        return tirx.decl_buffer(tuple(shape), str(tile.dtype), name=str(tile.name), scope=tile.scope())

    def _statement(self, stmt: Stmt, tiles: Mapping[Var, Var]) -> Stmt:
        if isinstance(stmt, Copy):
            tile = stmt.dst.buffer
            return replace(
                stmt, src=self._region(stmt.src, tile, tiles), dst=self._region(stmt.dst, tile, tiles)
            )
        if isinstance(stmt, Parallel):
            gather = gather_of(stmt)
            assert gather is not None
            own = {gather.tile: tiles[gather.tile]}
            return replace(
                stmt, extents=static_extents(tiles[gather.tile]), body=with_buffers(stmt.body, own)
            )
        assert isinstance(stmt, Gemm)
        a, b = (self._region(region, region.buffer, tiles) for region in (stmt.a, stmt.b))
        return replace(stmt, a=a, b=b)

    def _region(self, region: Region, tile: Var, tiles: Mapping[Var, Var]) -> Region:
        """A region as deep as the new ``tile`` is."""
        extent = list(region.extent)
        extent[len(extent) - 2 + self.axes[tile]] = static_extents(tiles[tile])[self.axes[tile]]
        return Region(tiles.get(region.buffer, region.buffer), region.start, tuple(extent))
