"""A loop of products over the panels of ``b`` becomes one product whose ``b`` has a panel axis."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym

from tilec.backends.cpu.nodes import Matrix, MicroGemm
from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.exprs import int_value, uses
from tilec.ir.nodes import Block, For, Kernel, Stmt
from tilec.lowering.analysis.regions import depends, moved, steps_of, stretched
from tilec.lowering.passes.base import Pass, rewrite_launch_blocks

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.targets import Target


class MergePanels(Pass):
    """In: ``for p: c[:, p * P : +P] += a @ b[p]`` with ``MicroGemm``. Out: one ``MicroGemm`` over all
    columns, its ``b`` in panels of P."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with panel loops merged."""
        analyzer = sym.Analyzer()

        def rewrite(block: Block) -> list[Stmt]:
            return [_merged(stmt, analyzer) or stmt for stmt in block]

        return rewrite_launch_blocks(kernel, rewrite)


def _merged(loop: Stmt, analyzer: sym.Analyzer) -> MicroGemm | None:
    """The product that a loop amounts to, None where it is no panel loop."""
    if not isinstance(loop, For) or len(loop.body) != 1 or not isinstance(loop.body[0], MicroGemm):
        return None
    gemm, trips = loop.body[0], known_trips(loop)
    width = int_value(gemm.b.width)
    if not trips or trips.step != 1 or width is None or gemm.b.panel is not None or width % gemm.block.cols:
        return None
    if int_value(gemm.columns) != width:
        return None
    if not _fixed(gemm, loop.var):
        return None
    panel = _panel_axis(gemm.b, loop.var, analyzer)
    last = len(gemm.c.start) - 1
    if panel is None or steps_of(gemm.c, loop.var, analyzer) != {last: width}:
        return None
    first = {loop.var: loop.start}
    b, c = moved(gemm.b.region, first, analyzer), moved(gemm.c, first, analyzer)
    return replace(
        gemm,
        b=Matrix(stretched(b, panel, len(trips)), gemm.b.row, gemm.b.col, panel),
        c=stretched(c, last, len(trips) * width),
        columns=len(trips) * width,
    )


def _fixed(gemm: MicroGemm, var: Var) -> bool:
    """Whether all but the places of ``b`` and ``c`` is the same in every trip."""
    parts = (gemm.clear, gemm.rows, gemm.columns, gemm.depth)
    varies = any(uses(part, {var}) for part in parts if not isinstance(part, int))
    return not varies and not depends(gemm.a.region, var)


def _panel_axis(b: Matrix, var: Var, analyzer: sym.Analyzer) -> int | None:
    """The axis other than row and column that moves by one panel a trip."""
    steps = steps_of(b.region, var, analyzer)
    if steps is None or len(steps) != 1:
        return None
    axis, step = next(iter(steps.items()))
    return axis if step == 1 and axis not in (b.row, b.col) else None
