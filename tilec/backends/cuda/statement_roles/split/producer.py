"""The program of those who load: the loads of a launch into the stages of rings, and what they need.

copy(A[.., k * 64], As)    ->    wait until As[s] is empty; box_load(A[.., k * 64], As[s], full[s])
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.pipelines.versions import with_versions
from tilec.backends.cuda.nodes import ArriveLanded, ArriveOnce, BoxLoad
from tilec.backends.cuda.statement_roles.split.lanes import by_lanes
from tilec.backends.cuda.statement_roles.split.look_ups import ahead_of_loops, with_look_ups
from tilec.backends.cuda.statement_roles.split.opened_rings import OpenedRings, looped
from tilec.backends.cuda.statement_roles.split.slices import all_needed
from tilec.backends.cuda.warp_roles.unfit import refusal_of
from tilec.ir.analysis.renaming import copied
from tilec.ir.nodes import Bind, Block, Copy, For, If, Region, Stmt, children, with_children
from tilec.ir.nodes.barriers import Arrive, Group, WaitPhase
from tilec.ir.nodes.threads import WARP
from tilec.ir.roads import Loss, Road
from tilec.lowering.analysis.roads import road_of
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tvm.ir import Var

    from tilec.backends.cuda.statement_roles.rings.ring import Ring
    from tilec.backends.cuda.statement_roles.split.loads import Load
    from tilec.backends.cuda.statement_roles.split.places import Known, Place


class Producer:
    """Writes the loads of ``opened`` rings; ``places``: where the producer stands in each. ``roads``: what
    became of each load, once the body is written."""

    def __init__(self, opened: OpenedRings, places: Mapping[Ring, Place]) -> None:
        self._opened, self._places = opened, places
        self.roads: list[Road] = []
        self._numbered = 0

    def body(self) -> Block:
        """The loads and what they need."""
        kept = all_needed(self._opened.program, self._opened.plan.loads)
        return copied(ahead_of_loops(self._put(self._opened.program.slice(kept, self._opened.plan.loads))))

    def _put(self, block: Block) -> Block:
        """A block with its loads into the next stages."""
        made: list[Stmt] = []
        done: set[Stmt] = set()
        known: Known = {}
        for position, stmt in enumerate(block):
            if stmt in done:
                continue
            if not self._opened.is_load(stmt):
                made.append(looped(with_children(stmt, [self._put(inner) for inner in children(stmt)])))
                continue
            ring = self._opened.ring_of(stmt)
            loads = [each for each in block[position:] if self._opened.fills(each, ring)][: len(ring.tiles)]
            done.update(loads)
            made += [
                bind
                for bind in block[position:]
                if isinstance(bind, Bind) and self._between(bind, block, loads)
            ]
            done.update(stmt for stmt in made if isinstance(stmt, Bind))
            made += self._filled(ring, [self._opened.plan.loads[each] for each in loads], known)
        return tuple(made)

    def _between(self, bind: Stmt, block: Block, loads: list[Stmt]) -> bool:
        """Whether a name stands between loads that go together."""
        return block.index(loads[0]) < block.index(bind) < block.index(loads[-1])

    def _filled(self, ring: Ring, loads: list[Load], known: Known) -> Block:
        names, (stage, parity), behind = self._places[ring].taken(ring, known)
        one = tirx.const(1, "int32")
        ahead: list[Stmt] = []
        if ring.by_threads:
            brought = [part for load in loads for part in self._threads(load, ring, stage, ahead)]
        else:
            expect = ArriveOnce(self._opened.full[ring], stage, tirx.const(ring.brought, "int32"))
            brought = [expect, *(self._boxes(load, ring, stage, ahead) for load in loads)]
        made: Block = (
            *names,
            *ahead,
            *self._under(ring),
            WaitPhase(self._opened.empty[ring], stage, tirx.bitwise_xor(parity, one)),
            *brought,
            *behind,
        )
        alone = not ring.by_threads and self._opened.loading > WARP
        return (Group(self._opened.threads, WARP, made),) if alone else made

    def _under(self, ring: Ring) -> Block:
        """Waits for the tiles where a ring will lie, which are filled once."""
        zero = tirx.const(0, "int32")
        under = [each for each in self._opened.rings if ring.over and each.tiles == ring.over]
        return tuple(WaitPhase(self._opened.empty[each], zero, zero) for each in under)

    def _threads(self, load: Load, ring: Ring, stage: Var, ahead: list[Stmt]) -> Block:
        """A load by all threads, each of which arrives when its part is there. What it looks up goes
        ``ahead``."""
        looked_up, own = with_look_ups(load.made, f"{ring.name}_{self._numbered}")
        self._numbered += 1
        ahead += looked_up
        made = with_versions((own,), {load.tile: (self._opened.tiles[load.tile], stage)})
        size = load.width * element_bytes(str(load.tile.dtype))
        how = f"cp.async of {size} bytes" if size else "stores"
        who = "warp" if self._opened.loading == WARP else "warpgroup"
        how = f"{how} by the loading {who}, ring of {ring.stages} stages"
        for part in load.parts:
            loss = None
            if load.no_box is not None and isinstance(part, Copy):
                loss = Loss("tma", load.no_box, "docs/cuda.md lists what TMA takes")
            elif not isinstance(part, Copy):
                loss = refusal_of(self._opened.launch, part)
            self.roads.append(road_of(part, "cp.async" if size else "threads", how, loss))
        arrive = ArriveLanded if size else Arrive
        return (*made, arrive(self._opened.full[ring], stage))

    def _boxes(self, load: Load, ring: Ring, stage: Var, ahead: list[Stmt]) -> Stmt:
        """A load by TMA. What the boxes of a loop look up goes ``ahead``."""
        boxes: dict[Stmt, Stmt] = {part: self._box(part, ring, stage) for part in load.parts}
        if isinstance(load.stmt, If):
            sides = ([boxes.get(part, part) for part in side] for side in children(load.stmt))
            return with_children(load.stmt, [*map(tuple, sides)])
        if not isinstance(load.stmt, For):
            return boxes[load.stmt]
        loop = replace(load.stmt, body=tuple(boxes.get(part, part) for part in load.stmt.body))
        looked_up, made = by_lanes(loop)
        ahead += looked_up
        return made

    def _box(self, copy: Stmt, ring: Ring, stage: Var) -> BoxLoad:
        assert isinstance(copy, Copy)
        tile = self._opened.tiles[copy.dst.buffer]
        dst = Region(tile, (stage, *copy.dst.start), (1, *copy.dst.extent))
        self.roads.append(road_of(copy, "tma", f"TMA, ring of {ring.stages} stages"))
        return BoxLoad(copy.src, dst, self._opened.full[ring], stage, copy.hints.eviction, loc=copy.loc)
