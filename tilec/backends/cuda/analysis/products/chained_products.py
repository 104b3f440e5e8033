"""Products of a trip whose sums become the first operand of another one in registers, as in attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.layouts.families import Families
from tilec.backends.cuda.analysis.products.mma import SQUARE, is_register_operand
from tilec.ir.nodes import LOOPS, Block, Gemm, Launch, walk
from tilec.ir.stmt import children

if TYPE_CHECKING:
    from tvm.ir import Var


def chained_sums(launch: Launch) -> set[Var]:
    """The sums of such products, and of those that multiply what is made of them; where authors ask for no
    policy.

    A warp holds whole rows of a first operand in registers: where warps share the columns of the sums that it
    is made of, each element goes to all warps of its rows through shared memory."""
    families = Families(launch)
    found: set[Var] = set()
    for products in _trips(launch.body):
        for product in products:
            found |= _chained(product, products, families)
    return found


def _chained(product: Gemm, products: list[Gemm], families: Families) -> set[Var]:
    if not is_register_operand(product, of_warpgroups=False):
        return set()
    family = families.of(product.a.buffer)
    sources = [each for each in products if each is not product and each.c.buffer in family]
    if not sources or any(each.policy != SQUARE for each in (*sources, product)):
        return set()
    return {each.c.buffer for each in (*sources, product)}


def _trips(block: Block) -> Iterator[list[Gemm]]:
    """The products of a block without those of the loops in it, and those of each loop."""
    yield list(_products(block))
    for loop in (stmt for stmt in walk(block) if isinstance(stmt, LOOPS)):
        yield list(_products(loop.body))


def _products(block: Block) -> Iterator[Gemm]:
    for stmt in block:
        if isinstance(stmt, Gemm):
            yield stmt
        elif not isinstance(stmt, LOOPS):
            for inner in children(stmt):
                yield from _products(inner)
