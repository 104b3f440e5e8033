"""A K loop of nothing but products becomes products over the whole K, whose accumulators stay in
registers. One whose ``b`` is read in place by long rows stays: memory is fastest where few rows are read far.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import sym, tirx

from tilec.backends.cpu.nodes import MicroGemm
from tilec.ir.exprs import int_value, substitute, uses
from tilec.ir.nodes import Block, For, Kernel, Pipelined, Stmt
from tilec.lowering.analysis.regions import depends, minima, moved, steps_of, stretched
from tilec.lowering.passes.base import Pass, rewrite_launch_blocks

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.targets import Target


class MergeKSteps(Pass):
    """In: loops over K steps. Out: those whose body is only ``MicroGemm`` on consecutive slices of K, none of
    them clearing or reading the sums of another, are replaced by their products over all of K."""

    def apply(self, kernel: Kernel, target: Target) -> Kernel:
        """The kernel with K loops merged."""
        analyzer = sym.Analyzer()

        def rewrite(block: Block) -> list[Stmt]:
            return [new for stmt in block for new in _merged(stmt, analyzer)]

        return rewrite_launch_blocks(kernel, rewrite)


def _merged(loop: Stmt, analyzer: sym.Analyzer) -> list[Stmt]:
    if not isinstance(loop, Pipelined) and not (isinstance(loop, For) and int_value(loop.step) == 1):
        return [loop]
    if _feeds_itself(loop.body):
        return [loop]
    whole = [_whole(stmt, loop, analyzer) for stmt in loop.body]
    products = [stmt for stmt in whole if stmt is not None]
    return list(products) if products and len(products) == len(whole) else [loop]


def _feeds_itself(body: Block) -> bool:
    """Whether a product of a loop reads what another one of it accumulates."""
    products = [stmt for stmt in body if isinstance(stmt, MicroGemm)]
    sums = {product.c.buffer for product in products}
    return any(matrix.region.buffer in sums for product in products for matrix in (product.a, product.b))


def _whole(gemm: Stmt, loop: Pipelined | For, analyzer: sym.Analyzer) -> MicroGemm | None:
    """One product of the loop over all of its trips; None where the slices do not follow one another."""
    if not isinstance(gemm, MicroGemm) or int_value(gemm.clear) != 0 or gemm.body:
        return None
    if gemm.reads_rows:
        return None
    if depends(gemm.c, loop.var) or any(_varies(count, loop.var) for count in (gemm.rows, gemm.columns)):
        return None
    step = _step(gemm, loop.var, analyzer)
    if step is None:
        return None
    depth = _whole_depth(gemm.depth, loop, step, analyzer)
    if depth is None:
        return None
    first = {loop.var: loop.start}
    a = replace(gemm.a, region=stretched(moved(gemm.a.region, first, analyzer), gemm.a.col, depth))
    b = replace(gemm.b, region=stretched(moved(gemm.b.region, first, analyzer), gemm.b.row, depth))
    return replace(gemm, a=a, b=b, depth=depth)


def _varies(count: int | Expr, var: Var) -> bool:
    return not isinstance(count, int) and uses(count, {var})


def _step(gemm: MicroGemm, var: Var, analyzer: sym.Analyzer) -> int | None:
    """How far both operands move along K per trip, where they move along nothing else."""
    a, b = steps_of(gemm.a.region, var, analyzer), steps_of(gemm.b.region, var, analyzer)
    if a is None or b is None or set(a) != {gemm.a.col} or set(b) != {gemm.b.row}:
        return None
    step = a[gemm.a.col]
    return step if step > 0 and b[gemm.b.row] == step else None


def _whole_depth(
    depth: int | Expr, loop: Pipelined | For, step: int, analyzer: sym.Analyzer
) -> int | Expr | None:
    """The sum over all trips of min(step, what is left), given as `min` of integers and linear
    expressions."""
    parts = []
    for part in minima(depth):
        if int_value(part) is not None:
            if int_value(part) != step:
                return None
            parts.append((loop.stop - loop.start) * step)
            continue
        if int_value(analyzer.simplify(substitute(part, {loop.var: loop.var + 1}) - part)) != -step:
            return None
        parts.append(substitute(part, {loop.var: loop.start}))
    total = parts[0]
    for part in parts[1:]:
        total = tirx.min(total, part)
    simple = analyzer.simplify(total)
    return simple if int_value(simple) is None else int_value(simple)
