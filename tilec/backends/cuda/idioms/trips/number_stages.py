"""Variables that count the stages of rings are remainders of their loop's number.

s = 0; for k in 0..n: ..a[s]..; s = 0 if s == 2 else s + 1    ->    for k in 0..n: ..a[k % 3]..
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from tvm import sym, tirx
from tvm.ir import Expr, TensorLoad, Var

from tilec.ir.exprs import cast_to, dtype_of, int_value, loads, transform
from tilec.ir.nodes import Alloc, Block, Break, Continue, For, Launch, Stmt, Store, every_block, walk
from tilec.ir.nodes.barriers import AllocBarrier, Group
from tilec.ir.traits import loads_of, mentioned, regions
from tilec.lowering.passes.base import LaunchPass, replaced
from tilec.lowering.rewrite import map_stmt

#: Stages that a variable may count.
_MOST = 16
_VARIABLE = "local.var"


class NumberStages(LaunchPass):
    """In: variables that name stages of shared tiles alone, begin in front of a serial loop and go round once
    in each of its trips. Out: the remainders that they are."""

    def launch(self, launch: Launch) -> Launch:
        """The launch without such variables."""
        if any(isinstance(stmt, (AllocBarrier, Group)) for stmt in walk(launch.body)):
            return launch
        while (found := next(_rounds(launch.body), None)) is not None:
            launch = replace(launch, body=found.numbered(launch.body))
        return launch


@dataclass(frozen=True)
class _Round:
    """A variable that ``store`` takes through ``stages`` numbers, from ``first`` on, a step in each trip."""

    alloc: Alloc
    loop: For
    store: Store
    stages: int
    first: int

    def numbered(self, body: Block) -> Block:
        """``body`` without the variable."""
        place = self.loop.body.index(self.store)
        parts = self.loop.body[:place], self.loop.body[place + 1 :]
        made = (self._named(stmt, step) for step, part in enumerate(parts) for stmt in part)
        loop = replace(self.loop, body=tuple(made))
        return replaced(body, {self.loop: (loop,), self.alloc: ()})

    def _named(self, stmt: Stmt, step: int) -> Stmt:
        number = self.loop.var - self.loop.start + (self.first + step)
        value = cast_to(tirx.floormod(number, self.stages), dtype_of(self.store.value))
        return map_stmt(stmt, lambda expr: _with(expr, self.alloc.buffer, value))


def _rounds(body: Block) -> Iterator[_Round]:
    for block in every_block(body):
        for alloc in block:
            if isinstance(alloc, Alloc) and alloc.buffer.scope() == _VARIABLE:
                yield from _round_of(body, block, alloc)


def _round_of(body: Block, block: Block, alloc: Alloc) -> Iterator[_Round]:
    """The one loop of a block in which alone a variable of it is named."""
    variable, first = alloc.buffer, None if alloc.init is None else int_value(alloc.init)
    users = [stmt for stmt in block if stmt is not alloc and _names(stmt, variable)]
    loop = users[0] if len(users) == 1 else None
    if first is None or not isinstance(loop, For) or loop.kind != "serial" or int_value(loop.step) != 1:
        return
    inside = [stmt for stmt in walk((loop,)) if variable in mentioned(stmt)]
    stores = [stmt for stmt in inside if isinstance(stmt, Store) and stmt.buffer.same_as(variable)]
    left_early = any(isinstance(stmt, (Break, Continue)) for stmt in walk((loop,)))
    if len(stores) != 1 or stores[0] not in loop.body or left_early:
        return
    stages = _stages(stores[0].value, variable)
    named = all(stmt is stores[0] or _names_stages(stmt, variable) for stmt in inside)
    if stages is not None and 0 <= first < stages and named:
        yield _Round(alloc, loop, stores[0], stages, first)


def _names(stmt: Stmt, variable: Var) -> bool:
    return any(variable in mentioned(inner) for inner in walk((stmt,)))


def _names_stages(stmt: Stmt, variable: Var) -> bool:
    """Whether a statement reads a variable as the first index of shared tiles alone."""
    tiles = [each for each in regions(stmt) if each.buffer.scope() == "shared.dyn"]
    indices = sum(load.source.same_as(variable) for each in tiles for load in loads(each.start[0]))
    return bool(indices) and indices == sum(load.source.same_as(variable) for load in loads_of(stmt))


def _stages(value: Expr, variable: Var) -> int | None:
    """How many numbers a variable goes through that becomes ``value`` in each step: 0, 1, .. and 0 again."""
    if any(not load.source.same_as(variable) for load in loads(value)):
        return None
    for number in range(_MOST):
        following = _at(value, variable, number)
        if following != number + 1:
            return number + 1 if following == 0 and number else None
    return None


def _at(value: Expr, variable: Var, number: int) -> int | None:
    analyzer = sym.Analyzer()
    return int_value(analyzer.simplify(_folded(_with(value, variable, tirx.const(number, dtype_of(value))))))


def _folded(expr: Expr) -> Expr:
    """An expression in which bits of constants are such."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, (tirx.BitwiseXor, tirx.BitwiseAnd)):
            return None
        sides = [int_value(sym.Analyzer().simplify(_folded(side))) for side in (node.a, node.b)]
        if sides[0] is None or sides[1] is None:
            return None
        bits = sides[0] ^ sides[1] if isinstance(node, tirx.BitwiseXor) else sides[0] & sides[1]
        return tirx.const(bits, dtype_of(node))

    return transform(expr, visit)


def _with(expr: Expr, variable: Var, value: Expr) -> Expr:
    """An expression with a value in place of a variable."""

    def visit(node: Expr) -> Expr | None:
        is_read = isinstance(node, TensorLoad) and node.source.same_as(variable)
        return value if is_read else None

    return transform(expr, visit)
