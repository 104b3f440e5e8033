"""Which thread holds which element of a fragment, and which thread runs which iteration of a loop.

Rules, strongest first; what an author asks for by T.annotate_layout stands above all of them, where the
statements can obey it:
1. A tensor-core product fixes its accumulator, and an A operand that is a fragment; a scan fixes its lines.
2. A loop takes its layout from a fragment whose indices are its variables; fragments that it indexes so take
   theirs from it, also those of which an iteration names a few elements of a row at constant places, or at
   those that a few trips choose: it has the row in its registers. There it names others, which data choose,
   as well. Variables of few values that such a row does not have are in registers, too. A fragment that
   turns another one does not follow where it would meet each sector of a tensor several times.
3. A reduction's result has the layout of its source without the axis: every thread along it knows the result.
4. What is left takes the widest coalesced vectors; a thread has neighbours where their windows overlap.
5. Shared operands of products, and tiles that lanes load by ldmatrix, are swizzled so that reading eight rows
meets no bank twice.
A statement that needs an element which another thread holds goes through shared memory, by copies that this
pass adds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.loop_widths import vector_widths
from tilec.backends.cuda.analysis.blocks.threads import warps_of
from tilec.backends.cuda.analysis.layouts.asked_layouts import obeyed
from tilec.backends.cuda.analysis.layouts.fragments import coalesced
from tilec.backends.cuda.analysis.layouts.summed_fragments import summed_fragments
from tilec.backends.cuda.analysis.layouts.tiles import static_extents
from tilec.backends.cuda.analysis.pipelines.asked_hints import layout_loss, said
from tilec.backends.cuda.analysis.products.registers import check_registers
from tilec.backends.cuda.passes.layouts.apply_layouts import LayoutRewrite
from tilec.backends.cuda.passes.layouts.inference.anchors import lay_anchors
from tilec.backends.cuda.passes.layouts.inference.choose import choose
from tilec.backends.cuda.passes.layouts.inference.follow import assign, propagate
from tilec.backends.cuda.passes.layouts.inference.known import Known
from tilec.backends.cuda.passes.layouts.inference.shared_tiles import lay_shared_tiles
from tilec.backends.cuda.passes.layouts.inference.teams import holders, teams_of
from tilec.ir.analysis.threads.uniform import Uniformity
from tilec.ir.layout_algebra import canonical
from tilec.ir.nodes import Alloc, Kernel, Launch, walk
from tilec.lowering.analysis.roads import road_of, with_roads
from tilec.lowering.analysis.uses import addressed_in
from tilec.lowering.passes.base import Pass, rewrite_launches

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Var

    from tilec.ir.roads import Road
    from tilec.targets import Target


class InferLayouts(Pass):
    """In: Parallel, Reduce, WarpGemm over tiles without layouts. Out: ThreadLoop, BlockReduce, WarpGemm;
    every fragment and every shared operand has a layout. CompileError for products that do not fit the
    registers."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with its layouts."""
        return rewrite_launches(kernel, lambda launch: _with_layouts(kernel, launch))


def _with_layouts(kernel: Kernel, launch: Launch) -> Launch:
    warps = warps_of(launch)
    allocs = (stmt.buffer for stmt in walk(launch.body) if isinstance(stmt, Alloc))
    fragments = {buffer for buffer in allocs if buffer.scope() == "local.fragment"}
    addressed, teams = addressed_in(launch.body), teams_of(launch.body, warps)
    asked, roads = obeyed(launch, {each: holders(each, teams, warps) for each in fragments}, addressed)
    widths, summed = vector_widths(kernel, launch), summed_fragments(launch.body, fragments)
    known = Known(launch, warps, fragments, widths, addressed, summed, layouts=dict(asked))
    lay_shared_tiles(known)
    for team in teams.values():
        part = known.of_team(team)
        lay_anchors(part, team)
        _infer(part)
        roads += _unobeyed(part)
    for buffer in fragments - set(known.layouts):
        known.layouts[buffer] = coalesced(static_extents(buffer), warps, 1)
    return _rewritten(known, asked.keys(), roads)


def _infer(known: Known) -> None:
    """The layouts of what a team holds and runs, as far as its instructions leave them open."""
    for loop in known.loops_of_work():
        layout = loop.hints.loop_layout
        if layout is not None and layout_loss(loop, known.warps) is None:
            assign(known, loop, layout)
    while propagate(known) or choose(known):
        pass


def _unobeyed(known: Known) -> tuple[Road, ...]:
    """What loops of a team do not obey of their authors' hints."""
    loops = [loop for loop in known.loops_of_work() if loop.hints.given]
    kept = ((loop, layout_loss(loop, known.warps)) for loop in loops)
    of_layouts = [road_of(loop, "layout", "keeps its own layout", loss) for loop, loss in kept if loss]
    others = (said(loop, loop.hints, "vectors", known.widths.found.get(loop, 1)) for loop in loops)
    return (*of_layouts, *(road for roads in others for road in roads))


def _rewritten(known: Known, asked: Set[Var], roads: tuple[Road, ...]) -> Launch:
    """The launch with statements that say their layouts, and what it takes in shared memory where two
    statements want different ones."""
    layouts = {buffer: canonical(layout) for buffer, layout in known.layouts.items()}
    uniformity = Uniformity(known.launch)
    rewrite = LayoutRewrite(
        known.warps, uniformity, known.fragments, layouts, known.loops, known.widths, frozenset(asked)
    )
    body = rewrite.launch_body(known.launch.body)
    found = with_roads(replace(known.launch, body=body), (*roads, *rewrite.roads))
    check_registers(found)
    return found
