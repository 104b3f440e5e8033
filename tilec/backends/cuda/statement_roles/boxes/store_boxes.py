"""Stores of whole shared tiles to boxes of tensors, and additions to them, by TMA."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.tiles import is_whole, static_extents, whole_tile
from tilec.backends.cuda.analysis.pipelines.asked_hints import said
from tilec.backends.cuda.analysis.pipelines.moving_boxes import moves
from tilec.backends.cuda.limits import has_tma
from tilec.backends.cuda.nodes import BoxLoad, TensorAdd, TensorStore
from tilec.backends.cuda.passes.waits.place_shared import pool_plan
from tilec.backends.cuda.statement_roles.boxes.added_boxes import AddedBox, added_box, is_add
from tilec.backends.cuda.statement_roles.boxes.loaded_boxes import check_box
from tilec.backends.cuda.statement_roles.rings.plan import is_of_boxes
from tilec.backends.cuda.warp_roles.ring import TILE_ALIGNMENT
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.nodes import LOOPS, Alloc, Atomic, Copy, Kernel, Launch, Parallel, Stmt, walk
from tilec.ir.options import NO_ROLES
from tilec.ir.traits import loads_of, regions, written
from tilec.lowering.analysis.accesses import values_of
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.analysis.uses import addressed_in, overlapping
from tilec.lowering.emission.memory import tile_bytes
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tvm.ir import Var

    from tilec.ir.roads import Road
    from tilec.targets import Target


class StoreBoxes(Pass):
    """In: Copies of whole shared tiles to tensors, in launches that bring boxes, or that ask for TMA. Out:
    TensorStores of those that go to boxes of a tensor that the launch does not read, nor writes otherwise. A
    tensor that several of them write is written when each of them ends; one that loops may bring to the same
    place again starts behind what it wrote before. Loops that add a whole shared tile,
    or what they make of fragments if a shared tile beside the others has room for it, to a box of a tensor
    are TensorAdds where the launch does nothing else to the tensor than add. What is added of one fragment to
    one tensor passes through one tile, which all trips have."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its stores."""
        if not has_tma(target) or kernel.option(NO_ROLES) is not None:
            return kernel
        return rewrite_launches(kernel, lambda launch: _stored(kernel, launch, target))


def _stored(kernel: Kernel, launch: Launch, target: Target) -> Launch:
    """A launch with its stores; as it is where a thread may tell other blocks of what is stored, which boxes
    would bring later."""
    tells = launch.thread_vars and any(isinstance(stmt, Atomic) for stmt in walk(launch.body))
    return launch if tells else _Stores(kernel, launch, target).run()


class _Staged(NamedTuple):
    """What passes through one shared tile: all that trips add of a fragment to a tensor in tiles of these
    extents and this type, however many loops the trips have become."""

    fragment: Var
    tensor: Var
    extents: tuple[int, ...]
    dtype: str


class _Stores(ScopedRewrite):
    """Rewrites the stores of one launch."""

    def __init__(self, kernel: Kernel, launch: Launch, target: Target) -> None:
        super().__init__(kernel, launch)
        assert target.gpu is not None
        self.roads: list[Road] = []
        self._room = target.gpu.shared_bytes - pool_plan(launch).total
        stmts = list(walk(launch.body))
        self._brings = any(isinstance(stmt, BoxLoad) for stmt in stmts)
        self._allocs = {stmt.buffer: stmt for stmt in stmts if isinstance(stmt, Alloc)}
        self._writers = Counter(name for stmt in stmts for name in written(stmt))
        self._by_copies = Counter(
            stmt.dst.buffer for stmt in stmts if isinstance(stmt, Copy) and _is_store(stmt)
        )
        self._adders = Counter(stmt.buffer for stmt in stmts if isinstance(stmt, Atomic) and is_add(stmt))
        self._read = {name for stmt in stmts for name in _read(stmt)} | overlapping(launch)
        self._named = addressed_in(launch.body)
        self._values = values_of(stmts)
        self._loops: list[Stmt] = []
        self._staged: dict[_Staged, Alloc] = {}

    def run(self) -> Launch:
        """The launch with its stores."""
        made = super().run()
        if not self.roads:
            return self.launch
        return with_roads(replace(made, body=(*self._staged.values(), *made.body)), self.roads)

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """A store or an addition as a box; others as they are."""
        added = added_box(stmt)
        if added is not None:
            assert isinstance(stmt, Parallel)
            return self._added(stmt, added)
        if not isinstance(stmt, Copy) or not _is_store(stmt):
            return self._inside(stmt)
        if not self._brings and stmt.hints.prefer_instruction != "tma":
            return [stmt]
        try:
            self._check(stmt, self._by_copies)
        except Unfit:
            return [stmt]
        self.roads += [road_of(stmt, "tma", "TMA store"), *said(stmt, stmt.hints, "tma")]
        several = self._by_copies[stmt.dst.buffer] > 1
        again = not several and not moves(stmt.dst, self._loops, self._values)
        return [TensorStore(stmt.src, stmt.dst, stmt.hints.eviction, several, again, loc=stmt.loc)]

    def _inside(self, stmt: Stmt) -> list[Stmt]:
        """A statement over rewritten blocks, which know the loops around them."""
        mine = [stmt] if isinstance(stmt, LOOPS) else []
        self._loops += mine
        made = super().stmt(stmt)
        del self._loops[len(self._loops) - len(mine) :]
        return made

    def _added(self, stmt: Parallel, added: AddedBox) -> list[Stmt]:
        """An addition as a box, of fragments through a shared tile; others as they are."""
        staged = _staged(added)
        passed = None if staged is None else self._staged.get(staged, Alloc(_tile_of(staged)))
        try:
            self._check(Copy(added.src, added.dst, hints=stmt.hints), self._adders)
            fits = passed is None or passed in self._staged.values() or self._fits(passed)
            need(fits, f"shared memory has no room for {added.src.buffer.name}")
        except Unfit:
            return [stmt]
        self.roads += [road_of(stmt, "tma", "TMA reduction"), *said(stmt, stmt.hints, "tma")]
        if staged is None or passed is None:
            return [TensorAdd(added.src, added.dst, stmt.hints.eviction, loc=stmt.loc)]
        self._staged[staged] = passed
        made = TensorAdd(whole_tile(passed.buffer), added.dst, stmt.hints.eviction, loc=stmt.loc)
        return [replace(added.through(passed.buffer), loc=stmt.loc), made]

    def _fits(self, staged: Alloc) -> bool:
        """Whether a tile lies beside all others; it has its room then."""
        size = tile_bytes(staged) + TILE_ALIGNMENT
        fits = self._brings and size <= self._room
        self._room -= size if fits else 0
        return fits

    def _check(self, stmt: Copy, writers: Counter[Var]) -> None:
        """Unfit for a store that TMA does not carry out; ``writers``: by tensor, how many statements like it
        there are."""
        tile, tensor = stmt.src.buffer, stmt.dst.buffer
        need(not stmt.hints.avoids_tma, "its author keeps it from TMA")
        need(len(static_extents(tile)) > 1, f"{tile.name} is a vector")
        need(tensor not in self._read, f"the launch reads {tensor.name}")
        need(self._writers[tensor] == writers[tensor], f"threads write {tensor.name}, too")
        need(tile not in self._named, f"foreign code gets the address of {tile.name}")
        need(
            tile not in self._allocs or is_of_boxes(self._allocs[tile], False),
            f"T.annotate_layout gives {tile.name} another order",
        )
        check_box(stmt.dst, stmt.dst.start, stmt.src, True, self.facts)


def _staged(added: AddedBox) -> _Staged | None:
    """What of an addition passes through a shared tile; nothing where that is what is added."""
    if added.fragment is None:
        return None
    tile = added.src.buffer
    return _Staged(added.fragment, added.dst.buffer, static_extents(tile), str(tile.dtype))


def _tile_of(staged: _Staged) -> Var:
    name = f"{staged.fragment.name}_staged"
    return tirx.decl_buffer(staged.extents, staged.dtype, name=name, scope="shared.dyn")


def _is_store(stmt: Copy) -> bool:
    """Whether a copy has a whole shared tile for its source."""
    return str(stmt.src.buffer.scope()) == "shared.dyn" and is_whole(stmt.src)


def _read(stmt: Stmt) -> Iterator[Var]:
    """The buffers that a statement reads itself, and those that it updates."""
    yield from (load.source for load in loads_of(stmt))
    yield from ({region.buffer for region in regions(stmt)} - set(written(stmt)))
