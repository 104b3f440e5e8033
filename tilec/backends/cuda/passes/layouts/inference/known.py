"""What is known of a launch's layouts while they are inferred, and what its loops name of fragments."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.accesses.windows_of_loops import window_axes
from tilec.backends.cuda.analysis.layouts.fragments import WARP
from tilec.backends.cuda.analysis.layouts.held_alike import sums_in
from tilec.backends.cuda.analysis.layouts.loops import Lines, left_out, loop_extents, row_lines
from tilec.ir.exprs import int_value
from tilec.ir.layout import Layout
from tilec.ir.nodes import For, Launch, Parallel, Reduce, Stmt, walk
from tilec.lowering.analysis.accesses import Access, accesses
from tilec.lowering.analysis.uses import used_in, written_in

if TYPE_CHECKING:
    from collections.abc import Set

    from tvm.ir import Var

    from tilec.backends.cuda.analysis.accesses.loop_widths import VectorWidths
    from tilec.backends.cuda.analysis.layouts.summed_fragments import Summed
    from tilec.backends.cuda.passes.layouts.inference.teams import Team


@dataclass(eq=False)
class Known:
    """``layouts`` of fragments and shared tiles, ``loops``: which thread runs which iteration.

    Both grow as rules run; views for one team (`of_team`) share them. ``fragments``: those of the launch;
    ``widths``: how many elements a vector of each loop has; ``addressed``: tiles that foreign code gets the
    address of; ``summed``: fragments that reductions sum. ``warps`` run the loops and reductions in
    ``work``."""

    launch: Launch
    warps: int
    fragments: set[Var]
    widths: VectorWidths
    addressed: Set[Var]
    summed: dict[Var, Summed]
    layouts: dict[Var, Layout]
    loops: dict[Stmt, Layout] = field(default_factory=dict)
    work: Sequence[Parallel | Reduce] = ()

    def of_team(self, team: Team) -> Known:
        """The same for what a team runs: what becomes known there is known here, too."""
        work = [stmt for stmt in team.stmts if isinstance(stmt, (Parallel, Reduce))]
        return replace(self, warps=team.warps, work=work)

    def num_known(self) -> int:
        """How many layouts there are."""
        return len(self.layouts) + len(self.loops)

    def is_open(self, buffer: Var) -> bool:
        """Whether this is a fragment without a layout."""
        return buffer in self.fragments and buffer not in self.layouts

    def loops_of_work(self) -> Iterator[Parallel]:
        """The loops of the team."""
        return (stmt for stmt in self.work if isinstance(stmt, Parallel))

    @cached_property
    def made_of_sums(self) -> set[Var]:
        """The fragments that loops write from accumulators."""
        stmts = list(walk(self.launch.body))
        sums = sums_in(stmts)
        loops = [stmt for stmt in stmts if isinstance(stmt, Parallel)]
        used = ((loop, used_in((loop,))) for loop in loops)
        return {made for loop, names in used if names & sums for made in written_in(loop.body)} - sums

    @cached_property
    def _trips(self) -> set[Var]:
        """What counts the trips of loops of several, as many as is known."""
        loops = (stmt for stmt in walk(self.launch.body) if isinstance(stmt, For))
        return {loop.var for loop in loops if (int_value(loop.stop - loop.start) or 0) > 1}

    @cached_property
    def _found_windows(self) -> dict[Stmt, set[int]]:
        return {}

    def windows(self, loop: Parallel) -> set[int]:
        """The variables along which iterations of a loop read what their neighbours read."""
        if loop not in self._found_windows:
            self._found_windows[loop] = window_axes(loop, self._trips)
        return self._found_windows[loop]

    def open_rows(self, loop: Parallel) -> Iterator[tuple[Lines, ...]]:
        """What the iterations of a loop have of fragments without a layout whose rows they have."""
        for item in accesses(loop.body):
            rows = self.row_lines(item, loop) if self.is_open(item.buffer) else None
            if rows is not None:
                yield rows

    def row_lines(self, item: Access, loop: Parallel) -> tuple[Lines, ...] | None:
        """The lines of an access to rows; None also where what is left of the variables is too little for all
        threads."""
        rows = row_lines(item, loop, self._trips)
        if rows is None or not (out := left_out(rows, loop)):
            return rows
        left = math.prod(extent for axis, extent in enumerate(loop_extents(loop)) if axis not in out)
        return rows if left >= self.warps * WARP else None
