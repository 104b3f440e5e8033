"""What takes long in the places of a producer's gathers is computed ahead: in front of all loops that do not
change it, and of the wait for room in any case, so that its latency passes while the ring is full."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.backends.cuda.analysis.accesses.gathers import masked
from tilec.backends.cuda.nodes import AsyncGather, LookUp
from tilec.ir.exprs import dtype_of, int_value, loads, same, substitute, transform
from tilec.ir.nodes import Block, For, Stmt, Store, While, children, walk, with_children
from tilec.ir.traits import defined, mentioned, written
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_INDICES = ("int32", "int64")


def with_look_ups(stmt: Stmt, registers: str) -> tuple[Block, Stmt]:
    """What computes the costly parts of a producer's places ahead into ``registers``, and the load that finds
    them there; nothing and the load as it is where there are none."""
    if not isinstance(stmt, AsyncGather):
        return (), stmt
    (store,) = stmt.body
    assert isinstance(store, Store)
    parts = _Parts(store)
    made = parts.store(store)
    size = element_bytes(str(store.buffer.dtype))
    ahead: list[Stmt] = []
    for place, value in parts.found:
        own = {var: tirx.Var(str(var.name), dtype_of(var)) for var in stmt.vars}
        over = substitute(value, own)
        names = tuple(own.values())
        ahead.append(LookUp(place, names, over, stmt.extents, stmt.width, size, registers, loc=stmt.loc))
    return tuple(ahead), replace(stmt, body=(made,), registers=registers) if ahead else stmt


class _Parts:
    """The parts of a gather's places that take long: elements of tables, and quotients by run-time values;
    ``found``: with the name of each."""

    def __init__(self, store: Store) -> None:
        _, self._source = masked(store.value)
        self.found: list[tuple[Var, Expr]] = []

    def store(self, store: Store) -> Store:
        """A gather's store with names for these parts."""
        return replace(store, value=transform(store.value, self._named))

    def _named(self, node: Expr) -> Expr | None:
        if node.same_as(self._source) or dtype_of(node) not in _INDICES or not _is_costly(node):
            return None
        if any(load.source.scope().startswith("local") for load in loads(node)):
            return None
        known = next((place for place, value in self.found if same(value, node)), None)
        if known is None:
            known = tirx.Var("place", dtype_of(node))
            self.found.append((known, node))
        return known


def _is_costly(node: Expr) -> bool:
    divides = isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) and int_value(node.b) is None
    return divides or isinstance(node, TensorLoad)


def ahead_of_loops(block: Block) -> Block:
    """A block with its look-ups in front of the loops that change nothing of them."""
    made: list[Stmt] = []
    for stmt in block:
        inside = with_children(stmt, [ahead_of_loops(inner) for inner in children(stmt)])
        free = _unchanged(inside)
        made += [*free, replace(inside, body=_without(inside.body, free)) if free else inside]  # type: ignore
    return tuple(made)


def _unchanged(loop: Stmt) -> list[Stmt]:
    """The look-ups of a loop that are the same in all of its trips."""
    if not isinstance(loop, (For, While)):
        return []
    inside = list(walk((loop,)))
    changed = {buffer for stmt in inside for buffer in written(stmt)}
    free: list[Stmt] = []
    for stmt in loop.body:
        others = {var for other in inside if other is not stmt for var in defined(other)}
        if isinstance(stmt, LookUp) and not (others | changed) & mentioned(stmt):
            free.append(stmt)
    return free


def _without(block: Block, left: list[Stmt]) -> Block:
    return tuple(stmt for stmt in block if stmt not in left)
