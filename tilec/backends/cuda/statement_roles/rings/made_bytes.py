"""Shared memory for a second version of operands that threads make beside products (`AlternateOperands`)."""

from __future__ import annotations

from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

from tilec.backends.cuda.statement_roles.operands.alternate_operands import made_for
from tilec.backends.cuda.statement_roles.operands.hold_operands import is_first
from tilec.backends.cuda.statement_roles.operands.turn_products import second_of
from tilec.ir.nodes import Alloc, For, Gemm, Launch, Pipelined, Stmt, walk
from tilec.ir.traits import read, written
from tilec.lowering.emission.memory import tile_bytes

if TYPE_CHECKING:
    from tvm.ir import Var


def made_bytes(launch: Launch, wide: Set[Stmt], brought: Set[Var]) -> int:
    """Bytes of the operands of ``wide`` products, none of those that are ``brought``, which threads make in
    each trip of a loop of nothing that the trip's products leave, such as weights of few bits: of those that
    cannot stay in registers (`HoldOperands`, `TurnProducts`)."""
    loops = (stmt for stmt in walk(launch.body) if isinstance(stmt, (For, Pipelined)))
    made = {tile for loop in loops for tile in _made_beside(loop, launch, wide)}
    return sum(tile_bytes(Alloc(tile)) for tile in made - brought)


def _made_beside(loop: For | Pipelined, launch: Launch, wide: Set[Stmt]) -> Iterator[Var]:
    products = [stmt for stmt in loop.body if isinstance(stmt, Gemm) and stmt in wide]
    left = _left_by(loop, products)
    for tile in made_for(products, loop, launch):
        if tile not in left and not is_first(tile, loop) and not second_of(tile, loop):
            yield tile


def _left_by(loop: For | Pipelined, products: list[Gemm]) -> set[Var]:
    """What products leave, and what a trip computes of it."""
    left: set[Var] = {product.c.buffer for product in products}
    for stmt in loop.body:
        inside = list(walk((stmt,)))
        if any(buffer in left for inner in inside for buffer in read(inner)):
            left.update(buffer for inner in inside for buffer in written(inner))
    return left
