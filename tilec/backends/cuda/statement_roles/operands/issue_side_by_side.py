"""Products of one first operand, and of matrices that lie side by side, are issued as one.

wgmma(A, B[0], Q); wgmma(A, B[1], K)    ->    one instruction a step, with the registers of Q and K
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import sym

from tilec.backends.cuda.analysis.products.wgmma import WIDEST
from tilec.backends.cuda.nodes import SideBySide, SparseWarpgroupProduct, WarpgroupProduct
from tilec.ir.exprs import int_value, same_all
from tilec.ir.nodes import Block, Launch, Region, Stmt
from tilec.lowering.passes.base import LaunchPass, rewrite_blocks


class IssueSideBySide(LaunchPass):
    """In: products of wgmma directly behind each other, of one first operand and of matrices that lie behind
    each other in a tile. Out: a SideBySide of as many as the columns of an instruction hold."""

    def launch(self, launch: Launch) -> Launch:
        """The launch with wide products."""
        return replace(launch, body=rewrite_blocks(launch.body, _grouped))


def _grouped(block: Block) -> list[Stmt]:
    made: list[Stmt] = []
    run: list[WarpgroupProduct] = []
    for stmt in (*block, None):
        if isinstance(stmt, WarpgroupProduct) and (not run or _follows(run, stmt)):
            run.append(stmt)
            continue
        made += [SideBySide(tuple(run), loc=run[0].loc)] if len(run) > 1 else run
        run = [stmt] if isinstance(stmt, WarpgroupProduct) else []
        made += [] if stmt is None or run else [stmt]
    return made


def _follows(run: Sequence[WarpgroupProduct], stmt: WarpgroupProduct) -> bool:
    """Whether a product has the matrix behind that of the last one of ``run``, and all else alike."""
    last = run[-1]
    one_wide = last.width == last.tile.tiles[1] * 8 and last.width * (len(run) + 1) <= WIDEST
    if not one_wide or last.tile.warps[1] > 1 or not _takes_more_sums(last) or _form(last) != _form(stmt):
        return False
    one_first = last.a.buffer.same_as(stmt.a.buffer) and same_all(last.a.start, stmt.a.start)
    apart = all(not each.c.buffer.same_as(stmt.c.buffer) for each in run)
    return one_first and apart and _is_next(last.b, stmt.b)


def _takes_more_sums(product: WarpgroupProduct) -> bool:
    """Whether an instruction of a product may add to other registers beside its own."""
    if isinstance(product, SparseWarpgroupProduct):
        return False
    in_shared = product.a.buffer.scope() == "shared.dyn"
    return in_shared and str(product.c.buffer.dtype) == "float32" and int_value(product.clear) is not None


def _form(product: WarpgroupProduct) -> tuple[object, ...]:
    """What instructions have in their names and flags."""
    sides = product.trans_a, product.trans_b
    return product.tile, product.types, sides, int_value(product.clear), str(product.c.buffer.dtype)


def _is_next(one: Region, other: Region) -> bool:
    """Whether a matrix of a tile lies directly behind another one, as columns of one operand."""
    if not one.buffer.same_as(other.buffer) or len(one.start) < 3:
        return False
    whole = (
        int_value(extent) == int_value(size)
        for extent, size in zip(one.extent[-2:], one.buffer.shape[-2:], strict=True)
    )
    step = int_value(sym.Analyzer().simplify(other.start[-3] - one.start[-3]))
    return all(whole) and step == 1 and same_all(one.start[:-3], other.start[:-3])
