"""What bytes and numbers of 16 bits are made of, in 16 bits where all that counts has room there.

for p in parallel(n): r = cast(int32, X[p, 0]); Y[p] = cast(uint8, 77 * r + 128 >> 8)
->
for p in parallel(n): r = cast(int16, X[p, 0]); Y[p] = cast(uint8, 77 * r + 128 >> 8), in int16 and uint16

Vectors then have twice the lanes of those of 32 bits. A variable of an iteration that is read for nothing
else has 16 bits, too: what it may hold is known where loops add to it a known number of times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from math import prod
from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import TensorLoad

from tilec.ir.analysis.known_trips import known_trips
from tilec.ir.analysis.numbers.intervals import Interval
from tilec.ir.exprs import cast_to, dtype_of, transform
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.nodes import Alloc, Bind, Block, For, If, Parallel, Stmt, Store, children, walk, with_children
from tilec.ir.traits import Rewriter, buffers, defined
from tilec.lowering.analysis.accumulations import accumulation
from tilec.lowering.analysis.idle_names import without_idle
from tilec.lowering.emission.storage import element_bytes
from tilec.lowering.narrow import NARROW, WIDE, WORD, Narrowing, computes
from tilec.lowering.passes.base import BlockPass

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


class NarrowNumbers(BlockPass):
    """In: Parallel loops whose iterations make numbers of 8 and 16 bits of such numbers, in wider ones. Out:
    those in 16 bits where results are the same."""

    def block(self, block: Block) -> Sequence[Stmt]:
        """The block with the numbers of its Parallel loops in as few bits."""
        return [_narrowed(stmt) if isinstance(stmt, Parallel) else stmt for stmt in block]


def _narrowed(loop: Parallel) -> Stmt:
    if not any(_is_cut(node) for stmt in walk((loop,)) for node in _computed(stmt)):
        return loop
    moving = {var for stmt in walk((loop,)) if not isinstance(stmt, For) for var in defined(stmt)}
    left = [stmt.buffer for stmt in walk(loop.body) if isinstance(stmt, Alloc) and _is_wide(stmt)]
    first = _Narrow(moving, left)
    first.block(loop.body)
    variables: list[Var] | None = None
    while variables is None or len(variables) != len(left):
        variables = left
        made = _Narrow(moving, variables, first.held())
        body = made.block(loop.body)
        met = {buffer for stmt in walk(body) if not isinstance(stmt, Alloc) for buffer in buffers(stmt)}
        left = [variable for variable in variables if variable not in met]
    return with_children(loop, [without_idle(body, {*made.work.twins, *made.work.twins.values()})])


def _is_wide(alloc: Alloc) -> bool:
    return alloc.buffer.scope() == "local.var" and str(alloc.buffer.dtype) in WIDE


def _is_cut(node: Expr) -> bool:
    """Whether an expression makes few bits of a wider number that is computed."""
    few = isinstance(node, tirx.Cast) and dtype_of(node) in NARROW
    return few and dtype_of(node.value) in WIDE and computes(node.value)


def _computed(stmt: Stmt) -> Iterator[Expr]:
    """The nodes of what a statement stores and names, indices left out."""
    return (node for node in walk_expr(stmt.value)) if isinstance(stmt, (Store, Bind)) else iter(())


class _Narrow(Rewriter):
    """Statements with ``variables`` of 16 bits, which may hold what is ``known``, and with names of 16 bits
    beside others."""

    def __init__(
        self, moving: set[Var], variables: Sequence[Var], known: Mapping[Var, Interval] | None = None
    ) -> None:
        super().__init__()
        twins = {each: tirx.decl_buffer((1,), WORD, str(each.name), scope="local.var") for each in variables}
        self.work = Narrowing(moving, twins, dict(known or {}))
        self._trips: list[int | None] = []
        self._begins: dict[Var, list[Interval | None]] = {each: [] for each in variables}
        self._adds: dict[Var, list[Interval | None]] = {each: [] for each in variables}

    def held(self) -> dict[Var, Interval]:
        """What the variables hold at most: what they begin with, and what is added to that in all trips."""
        found = {each: _total(begins, self._adds[each]) for each, begins in self._begins.items()}
        return {each: total for each, total in found.items() if total is not None}

    def stmts(self, stmt: Stmt) -> Block:
        """With a second name behind that of a wide number, and variables of 16 bits in place of others."""
        if isinstance(stmt, Bind):
            return self._bound(stmt)
        if isinstance(stmt, (Store, Alloc)):
            return (self._stored(stmt) if isinstance(stmt, Store) else self._variable(stmt),)
        trips = known_trips(stmt) if isinstance(stmt, For) else None
        if isinstance(stmt, For) and trips:
            self.work.ranges[stmt.var] = Interval(min(trips), max(trips))
        self._trips.append(1 if isinstance(stmt, If) else None if trips is None else len(trips))
        made = with_children(stmt, [self.block(block) for block in children(stmt)])
        self._trips.pop()
        return (made,)

    def _bound(self, stmt: Bind) -> Block:
        plain = replace(stmt, value=self._with_cuts(stmt.value))
        found = self.work.made(stmt.value) if dtype_of(stmt.var) in WIDE else None
        if found is None:
            return (plain,)
        twin = tirx.Var(str(stmt.var.name), WORD)
        self.work.twins[stmt.var] = twin
        if found.range is not None:
            self.work.ranges[stmt.var] = found.range
        return (plain, replace(stmt, var=twin, value=found.value))

    def _stored(self, stmt: Store) -> Store:
        twin = self.work.twins.get(stmt.buffer)
        if twin is None:
            return replace(stmt, value=self._with_cuts(stmt.value))
        self._note(stmt)
        found = self.work.made(stmt.value)
        return stmt if found is None else replace(stmt, buffer=twin, value=found.value)

    def _note(self, stmt: Store) -> None:
        """What a store makes of a variable."""
        item = accumulation(stmt)
        term = item.term if item is not None and item.kind == "sum" else None
        found = self.work.made(stmt.value if term is None else term)
        known = None if found is None else found.range
        if term is None:
            self._begins[stmt.buffer].append(known)
            return
        trips = [each for each in self._trips if each is not None]
        counted = len(trips) == len(self._trips)
        self._adds[stmt.buffer].append(_times(known, prod(trips)) if known is not None and counted else None)

    def _variable(self, stmt: Alloc) -> Alloc:
        twin = self.work.twins.get(stmt.buffer)
        if twin is None:
            return stmt
        found = self.work.made(tirx.const(0, WORD) if stmt.init is None else stmt.init)
        self._begins[stmt.buffer].append(None if found is None else found.range)
        if found is None or stmt.init is None:
            return replace(stmt, buffer=twin if found is not None else stmt.buffer)
        return replace(stmt, buffer=twin, init=found.value)

    def _with_cuts(self, value: Expr) -> Expr:
        """A value whose bytes are made of numbers of 16 bits where they may."""
        return transform(value, self._cut)

    def _cut(self, node: Expr) -> Expr | None:
        if isinstance(node, TensorLoad):
            return node
        few = dtype_of(node)
        found = self.work.made(node.value, 8 * element_bytes(few)) if _is_cut(node) else None
        return None if found is None else cast_to(found.value, few)


def _times(term: Interval, trips: int) -> Interval:
    """What a term adds in so many trips, or in fewer."""
    return Interval(min(term.low, 0) * trips, max(term.high, 0) * trips)


def _total(begins: Sequence[Interval | None], adds: Sequence[Interval | None]) -> Interval | None:
    known = [each for each in begins if each is not None]
    terms = [each for each in adds if each is not None]
    if not known or len(known) < len(begins) or len(terms) < len(adds):
        return None
    first = reduce(Interval.joined, known)
    return Interval(
        first.low + sum(term.low for term in terms), first.high + sum(term.high for term in terms)
    )
