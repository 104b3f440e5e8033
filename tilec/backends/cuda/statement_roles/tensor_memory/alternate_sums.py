"""Products of the next tile run beside what follows the sums of one: tensor memory has sums of two tiles."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.products.tensor_memory import MOST, PAIR
from tilec.backends.cuda.limits import has_tensor_memory
from tilec.backends.cuda.nodes import (
    ArriveOnce,
    BoxLoad,
    EachTile,
    OpenTensorMemory,
    Sync,
    TensorCommit,
    TensorProduct,
    TensorSums,
    opens_memory,
)
from tilec.backends.cuda.statement_roles.rings.ring import Ring
from tilec.backends.cuda.statement_roles.split.places import Place
from tilec.backends.cuda.statement_roles.tensor_memory.whole_sums import whole_loops
from tilec.backends.cuda.warp_roles.nodes import WARPGROUP
from tilec.backends.cuda.warp_roles.unfit import Unfit, need
from tilec.ir.analysis.renaming import copied
from tilec.ir.exprs import loads
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Alloc, Bind, Block, If, Kernel, Launch, Stmt, Store, walk
from tilec.ir.nodes import threads as every
from tilec.ir.nodes.barriers import SCOPE, AllocBarrier, Group, WaitPhase
from tilec.ir.nodes.threads import PER_THREAD
from tilec.ir.traits import buffers, expressions, mentioned
from tilec.lowering.analysis.roads import with_notes
from tilec.lowering.analysis.uses import changed_in
from tilec.lowering.passes.base import Pass, rewrite_blocks, rewrite_launches

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target

#: Tiles whose sums tensor memory has.
_TILES = 2
_NOTE = "a warp of the loading warpgroup issues the next tile's products beside what follows the sums of one"


class AlternateSums(Pass):
    """In: launches whose blocks take tile after tile, with sums of one loop in each that leave as many
    columns of tensor memory free, and a loading warpgroup of which a warp alone loads. Out: another warp of
    it issues products, of every other tile into other columns; those who compute load the sums of a tile and
    go on while the next tile's are made. Others that take tile after tile have the reason among their
    notes."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its sums in turns."""
        return rewrite_launches(kernel, _alternated) if has_tensor_memory(target) else kernel


def _alternated(launch: Launch) -> Launch:
    groups = [stmt for stmt in launch.body if isinstance(stmt, Group)]
    loading = [group for group in groups if _with(group, BoxLoad)]
    computing = [group for group in groups if _with(group, TensorSums)]
    tiles = [stmt for group in computing for stmt in group.body if isinstance(stmt, EachTile)]
    if len(loading) != 1 or len(tiles) != 1:
        return launch
    try:
        return _Turns(launch, loading[0], computing[0], tiles[0]).made()
    except Unfit as unfit:
        return with_notes(launch, [f"nothing multiplies beside what follows the sums of a tile: {unfit}"])


class _Turns:
    """The sums of one launch. ``done`` and ``read`` tell of products that are complete and of sums that are
    loaded, one barrier for each set of columns; ``old`` are the barriers whose part they take."""

    def __init__(self, launch: Launch, loader: Group, consumer: Group, tiles: EachTile) -> None:
        self.launch, self.loader, self.consumer, self.tiles = launch, loader, consumer, tiles
        loops = whole_loops(launch)
        need(len(loops) == 1, "a tile has sums of several loops")
        (self.sums,) = loops
        need(self.sums in tiles.body, "a loop or a branch of its author stands around its loop")
        issued = [stmt for stmt in self.sums.then if isinstance(stmt, Group) and _with(stmt, TensorCommit)]
        need(loader.count == WARPGROUP, "no warp is left to issue products")
        (self.issued,) = issued
        self.opened = next(stmt for stmt in walk(launch.body) if isinstance(stmt, OpenTensorMemory))
        self.columns = self.opened.columns
        need(_TILES * self.columns <= MOST, f"tensor memory has no {_TILES * self.columns} columns")
        self.pair = self.opened.pair
        self.old = {stmt.barrier for stmt in self.sums.then if isinstance(stmt, (WaitPhase, ArriveOnce))}
        self.done, self.read = (
            tirx.decl_buffer((_TILES,), "uint64", name=name, scope=SCOPE)
            for name in ("sums_done", "sums_read")
        )
        loaded = next(stmt for stmt in self.sums.then if isinstance(stmt, TensorSums))
        ring = Ring((loaded.dst.buffer,), _TILES, 0, 0, True, False, False)
        self.making, self.loading = Place(ring, "made"), Place(ring, "loaded")
        self.counters = self._counters()

    def _counters(self) -> set[Var]:
        """Those of the old barriers' rounds."""
        waits = [
            stmt for stmt in walk(self.sums.then) if isinstance(stmt, WaitPhase) and stmt.barrier in self.old
        ]
        return {load.source for wait in waits for load in loads(wait.parity)}

    def made(self) -> Launch:
        """The launch."""
        issuer = Group(self.loader.first + WARP, WARP, self._issuer())
        parts: dict[Stmt, Stmt] = {
            self.loader: replace(self.loader, body=(*self.loader.body, issuer)),
            self.consumer: replace(self.consumer, body=self._computing()),
        }
        body = [parts.get(stmt, stmt) for stmt in self.launch.body if not self._is_old(stmt)]
        readers = PAIR if self.pair else 1
        counts = {self.done: 1, self.read: readers}
        body[:0] = [AllocBarrier(each, (count,) * _TILES, self.pair) for each, count in counts.items()]
        if not self.pair:
            first = next(place for place, stmt in enumerate(body) if isinstance(stmt, Group))
            body[first:first] = [self.opened, Sync()]
        made = rewrite_blocks(tuple(body), lambda block: [self._wider(stmt) for stmt in block])
        return with_notes(replace(self.launch, body=made), [_NOTE])

    def _wider(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, OpenTensorMemory):
            return replace(stmt, columns=_TILES * self.columns)
        return stmt

    def _is_old(self, stmt: Stmt) -> bool:
        """Whether a statement is of barriers and counters that others take the part of."""
        if isinstance(stmt, AllocBarrier):
            return stmt.buffer in self.old
        if isinstance(stmt, (WaitPhase, ArriveOnce)):
            return stmt.barrier in self.old
        return isinstance(stmt, (Alloc, Store)) and stmt.buffer in self.counters

    # ---- the warp that issues ----

    def _issuer(self) -> Block:
        """What it does, for every tile."""
        body = rewrite_blocks(self.issued.body, self._issue)
        branch = If(self.sums.cond, body)
        names = self._names(branch)
        made = replace(self.tiles, body=(*names, branch))
        return copied((*self._moved(), *self.making.begin(), made))

    def _issue(self, block: Block) -> list[Stmt]:
        names, slot, parity = self.making.now()
        made: list[Stmt] = []
        for stmt in block:
            if isinstance(stmt, TensorProduct):
                made.append(replace(stmt, offset=self._offset(self.making)))
            elif isinstance(stmt, TensorCommit) and stmt.barrier in self.old:
                made.append(replace(stmt, barrier=self.done, index=slot))
            elif not self._is_old(stmt):
                made.append(stmt)
        if not any(isinstance(stmt, TensorCommit) and stmt.barrier in self.old for stmt in block):
            return made
        free = WaitPhase(self.read, slot, tirx.bitwise_xor(parity, tirx.const(1, "int32")))
        return [*names, free, *made, *self.making.advance(slot, parity)]

    def _names(self, branch: If) -> list[Bind]:
        """The names that products are issued with, which the computing group finds in front of them."""
        place = self.tiles.body.index(self.sums)
        known = {
            stmt.var: stmt
            for stmt in (*self.consumer.body, *self.tiles.body[:place])
            if isinstance(stmt, Bind)
        }
        own = {stmt.buffer for stmt in walk(self.launch.body) if isinstance(stmt, Alloc)} | changed_in(
            self.launch
        )
        found: set[Bind] = set()
        work = [expr for stmt in walk((branch,)) for expr in expressions(stmt)]
        while work:
            used = {node for node in walk_expr(work.pop()) if isinstance(node, tirx.Var)}
            new = {known[name] for name in used if name in known} - found
            work += [bind.value for bind in new]
            found |= new
        for bind in found:
            there = own.isdisjoint(load.source for load in loads(bind.value))
            need(there, "products take a name from what those who compute have made", bind)
        return [bind for bind in known.values() if bind in found]

    def _moved(self) -> list[Alloc]:
        """The counters of stages, which those who compute do not need."""
        used = {buffer for stmt in walk(self.issued.body) for buffer in buffers(stmt)} - self.counters
        found = [stmt for stmt in self.consumer.body if isinstance(stmt, Alloc) and stmt.buffer in used]
        others = {buffer for buffer in used if buffer.scope() in PER_THREAD} - {stmt.buffer for stmt in found}
        need(not others, "products take a variable from a tile's own")
        return found

    # ---- those who compute ----

    def _computing(self) -> Block:
        moved = self._moved()
        inside = tuple(self._sums() if stmt is self.sums else stmt for stmt in self.tiles.body)
        made: list[Stmt] = list(self.loading.begin())
        before: Stmt | None = None
        for stmt in self.consumer.body:
            opening = opens_memory(stmt) or (isinstance(stmt, every.Sync) and opens_memory(before))
            before = stmt
            if opening or stmt in moved or self._is_old(stmt):
                continue
            made.append(replace(stmt, body=inside) if stmt is self.tiles else stmt)
        left = {name for stmt in walk(tuple(made)) for name in mentioned(stmt)}
        need(left.isdisjoint(alloc.buffer for alloc in moved), "those who compute count stages, too")
        return tuple(made)

    def _sums(self) -> If:
        """Loads of sums that are complete, behind which their columns are free."""
        zero = tirx.const(0, "int32")
        names, slot, parity = self.loading.now()
        kept = [stmt for stmt in self.sums.then if stmt is not self.issued and not self._is_old(stmt)]
        loaded = [
            replace(stmt, offset=self._offset(self.loading)) if isinstance(stmt, TensorSums) else stmt
            for stmt in kept
        ]
        free = ArriveOnce(self.read, slot, block=zero if self.pair else None)
        wait = WaitPhase(self.done, slot, parity)
        return replace(self.sums, then=(*names, wait, *loaded, free, *self.loading.advance(slot, parity)))

    def _offset(self, place: Place) -> Expr:
        """The columns in front of those of a tile."""
        return tirx.BufferLoad(place.stage, [tirx.const(0, "int32")]) * self.columns


def _with(stmt: Stmt, kind: type[Stmt]) -> bool:
    return any(isinstance(inner, kind) for inner in walk((stmt,)))
