"""What consumers of attention compute, as loops of threads over fragments that wgmma's accumulators lay out.

The common passes do it (`InferLayouts`), for one consumer warpgroup or several; what then would pass shared
memory is Unfit, because rows have to stay in registers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.fragments import accumulator_layout
from tilec.backends.cuda.analysis.layouts.tiles import alike, layouts_in
from tilec.backends.cuda.attention.nodes import AsyncProduct, BoxStore, PairLoop
from tilec.backends.cuda.nodes import BlockReduce, ThreadLoop, WarpTile
from tilec.backends.cuda.passes.layouts.infer_layouts import InferLayouts
from tilec.backends.cuda.passes.loops.split_loops import SplitLoops
from tilec.backends.cuda.passes.sums.reduce_accumulations import ReduceAccumulations
from tilec.backends.cuda.warp_roles.nodes import TensorMap
from tilec.backends.cuda.warp_roles.tma import box_map
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.backends.cuda.warp_roles.wgmma import ROW_BYTES
from tilec.ir.exprs import int_value
from tilec.ir.layout_algebra import canonical
from tilec.ir.nodes import Alloc, Block, Kernel, Launch, Stmt, walk
from tilec.ir.traits import loads_of
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.passes.base import rewrite_blocks
from tilec.lowering.passes.expand_copies import ExpandCopies

if TYPE_CHECKING:
    from tvm.ir import Var

    from tilec.ir.nodes import Copy
    from tilec.lowering.analysis.facts import Facts
    from tilec.targets import Target

_PASSES = (ExpandCopies(), SplitLoops(), ReduceAccumulations(), InferLayouts())


def laid_out(kernel: Kernel, launch: Launch, consumer: Block, warpgroups: int, target: Target) -> Block:
    """``consumer`` with layouts; Unfit where a statement needs elements of other rows or warps."""
    alone = replace(launch, threads=(128 * warpgroups, 1, 1), body=consumer)
    made: Kernel = replace(kernel, body=(alone,))
    for step in _PASSES:
        made = step.apply(made, target)
    (found,) = made.launches
    for stmt in walk(found.body):
        if isinstance(stmt, Alloc) and stmt.buffer.scope() == "shared.dyn":
            raise Unfit(
                f"{stmt.buffer.name} passes elements between threads",
                stmt,
                "read and write elements of a row at their own index, and reduce along rows alone",
            )
    _check_words(found.body, warpgroups)
    words = word_fragments(found.body)
    return rewrite_blocks(found.body, lambda block: [_paired(stmt, words) for stmt in block])


def _paired(stmt: Stmt, words: set[Var]) -> Stmt:
    if not isinstance(stmt, ThreadLoop) or not words & {
        getattr(inner, "buffer", None) for inner in stmt.body
    }:
        return stmt
    return PairLoop(stmt.vars, stmt.extents, stmt.layout, stmt.body, 2, loc=stmt.loc)


def word_fragments(block: Block) -> set[Var]:
    """Fragments that products take as words, of two neighbours of 16 bits or four of 8, or TMA of 16 bits."""
    found: set[Var] = set()
    for stmt in walk(block):
        if isinstance(stmt, AsyncProduct) and stmt.a.buffer.scope() == "local.fragment":
            found.add(stmt.a.buffer)
        elif isinstance(stmt, BoxStore):
            found.add(stmt.src.buffer)
    return found


def _check_words(block: Block, warpgroups: int) -> None:
    """Words are written as pairs by loops of one statement, and read by products and TMA alone."""
    words = word_fragments(block)
    layouts = layouts_in(block)
    for buffer in words:
        columns = int_value(buffer.shape[-1]) or 0
        tile = WarpTile("", (4 * warpgroups, 1), (1, columns // 8), 0)
        layout = layouts.get(buffer)
        if layout is None or not alike(canonical(layout), accumulator_layout(tile)):
            raise Unfit(
                f"{buffer.name} is not held as an accumulator is",
                remedy="use it in products, or in loops over fragments of the same shape",
            )
    for stmt in walk(block):
        read = {load.source for load in loads_of(stmt)}
        alone = isinstance(stmt, ThreadLoop) and len(stmt.body) == 1
        written = {stmt.dst.buffer} if isinstance(stmt, BlockReduce) else set()
        if isinstance(stmt, ThreadLoop) and not alone:
            written |= {getattr(inner, "buffer", None) for inner in walk(stmt.body)}
        if words & (read | written):
            raise Unfit(
                "a fragment that a product takes is used beside products",
                stmt,
                "copy it to a fragment of its own for the product, and compute in float32",
            )


def load_map(copy: Copy, facts: Facts) -> TensorMap:
    """Boxes of all rows of a tile by 128 bytes; Unfit where TMA cannot address them."""
    box = [int_value(extent) or 1 for extent in copy.src.extent]
    box[-1] = ROW_BYTES // element_bytes(str(copy.src.buffer.dtype))
    return box_map(copy.src.buffer, tuple(box), ROW_BYTES, facts)
