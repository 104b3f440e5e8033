"""Which products of tcgen05 others than the warps that load their sums may issue: those of whole loops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.nodes import BoxLoad, GiveBack, HeldProduct, TensorCommit, TensorProduct
from tilec.backends.cuda.warp_roles.unfit import need
from tilec.ir.nodes import Block, For, If, Launch, Stmt, walk
from tilec.ir.nodes.barriers import Group, WaitPhase
from tilec.ir.traits import written

if TYPE_CHECKING:
    from tvm.ir import Var

#: Products of tcgen05.
PRODUCTS = (HeldProduct, TensorProduct)


def whole_loops(launch: Launch) -> list[If]:
    """The branches of a launch that each have a loop of products alone, which one warp issues, and loads of
    its sums behind it (`HoldSums`). Unfit where something else waits for stages, multiplies them or gives
    them back, as where threads name sums between products, and where others than TMA fill a first or second
    operand: what one group of threads orders for itself then would have to be told to another group, or to
    another block."""
    stmts = list(walk(launch.body))
    loops = [stmt for stmt in stmts if isinstance(stmt, If) and _is_whole(stmt)]
    inside = {stmt for loop in loops for stmt in walk(loop.then)}
    full = {stmt.barrier for stmt in stmts if isinstance(stmt, BoxLoad)}
    operands = {tile for stmt in stmts if isinstance(stmt, TensorProduct)
                for tile in (stmt.a.buffer, stmt.b.buffer)}  # fmt: skip
    apart = [stmt for stmt in stmts if stmt not in inside]
    for stmt in apart:
        need(not isinstance(stmt, PRODUCTS), "products are in no loop of products alone", stmt)
    for stmt in apart:
        need(not _is_of_stage(stmt, full), "a stage is used outside of loops of products alone", stmt)
    for stmt in stmts:
        by_threads = not isinstance(stmt, BoxLoad) and operands & set(written(stmt))
        need(not by_threads, "threads bring what products multiply", stmt)
    return loops


def _is_whole(branch: If) -> bool:
    """Whether one warp issues all products of a loop there."""
    first = branch.then[0] if branch.then else None
    loops = (stmt for stmt in walk((first,)) if isinstance(stmt, For)) if isinstance(first, Group) else ()
    return any(_multiplies(loop.body) for loop in loops)


def _multiplies(block: Block) -> bool:
    return any(isinstance(stmt, PRODUCTS) for stmt in walk(block))


def _is_of_stage(stmt: Stmt, full: set[Var]) -> bool:
    waits = isinstance(stmt, WaitPhase) and stmt.barrier in full
    return waits or isinstance(stmt, (GiveBack, TensorCommit))
