"""Variables and names of several groups of threads that hold the same, once the groups run in turns."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, TypeGuard

from tvm import tirx

from tilec.ir.analysis.renaming import renamed, renamed_value
from tilec.ir.exprs import dtype_of, loads, same
from tilec.ir.exprs import walk as walk_expr
from tilec.ir.foreign import is_foreign
from tilec.ir.nodes import (
    Alloc,
    Bind,
    Block,
    Stmt,
    Store,
    children,
    every_block,
    walk,
    with_children,
)
from tilec.ir.traits import expressions, is_single, mentioned, written

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_SCOPE = "local.var"


def counted_once(body: Block) -> Block:
    """``body`` with one variable, or name, for those that hold the same value wherever one of them is read,
    and without those that nobody reads."""
    while (pair := next(_twins(body), None)) is not None:
        one, other = pair
        body = renamed(_without(body, {other}), {other: one})
    while (idle := _idle(body)) != set():
        body = _without(body, idle)
    return body


def _without(body: Block, names: set[Var]) -> Block:
    """``body`` without what defines or changes ``names``."""
    return tuple(
        with_children(stmt, [_without(inner, names) for inner in children(stmt)])
        for stmt in body
        if not (isinstance(stmt, (Alloc, Bind, Store)) and _defines(stmt) in names)
    )


def _defines(stmt: Alloc | Bind | Store) -> Var:
    return stmt.var if isinstance(stmt, Bind) else stmt.buffer


# ---- variables that are alike ----


@dataclass(frozen=True, eq=False)
class _Change:
    """The statement of a block that defines a variable or changes it."""

    block: Block
    place: int

    @property
    def stmt(self) -> Stmt:
        """The statement."""
        return self.block[self.place]


def _twins(body: Block) -> Iterator[tuple[Var, Var]]:
    """Names of the same value, and variables that are changed side by side, to the same values."""
    changes = _changes(body)
    for one, other in combinations(changes, 2):
        if len(changes[one]) != len(changes[other]):
            continue
        if all(_alike(*pair, one, other) for pair in zip(changes[one], changes[other], strict=True)):
            yield one, other


def _changes(body: Block) -> dict[Var, list[_Change]]:
    found: dict[Var, list[_Change]] = {}
    for block in every_block(body):
        for place, stmt in enumerate(block):
            if _is_scalar(stmt) and (isinstance(stmt, Bind) or is_single(stmt.buffer)):
                found.setdefault(_defines(stmt), []).append(_Change(block, place))
    return found


def _alike(left: _Change, right: _Change, one: Var, other: Var) -> bool:
    """Whether two changes stand in one block and give the same value, with nothing between them that reads
    one of two variables or changes what the value is made of."""
    if left.block is not right.block or type(left.stmt) is not type(right.stmt):
        return False
    first, last = sorted((left.place, right.place))
    value, twin = _value(left.stmt), _value(right.stmt)
    if value is None or twin is None or dtype_of(value) != dtype_of(twin):
        return False
    if not same(value, renamed_value(twin, {other: one})):
        return False
    between = list(walk(left.block[first + 1 : last]))
    sources = {load.source for load in loads(value)}
    met = {name for stmt in between for name in mentioned(stmt)}
    changed = {name for stmt in between for name in written(stmt)}
    steady = isinstance(left.stmt, Bind) or not {one, other} & met
    return steady and not sources & changed


def _value(stmt: Stmt) -> Expr | None:
    """What a variable holds behind a statement; None where that cannot be told."""
    if isinstance(stmt, Alloc):
        return tirx.const(0, str(stmt.buffer.dtype)) if stmt.init is None else stmt.init
    assert isinstance(stmt, (Bind, Store))
    return None if _calls(stmt.value) else stmt.value


def _calls(expr: Expr) -> bool:
    return any(is_foreign(node) for node in walk_expr(expr))


# ---- what nobody reads ----


def _idle(body: Block) -> set[Var]:
    """Names and variables that nothing reads but what changes them."""
    stmts = list(walk(body))
    own = {_defines(stmt) for stmt in stmts if _is_scalar(stmt) and not any(map(_calls, expressions(stmt)))}
    return own - {name for stmt in stmts for name in _read_by(stmt)}


def _is_scalar(stmt: Stmt) -> TypeGuard[Alloc | Bind | Store]:
    if isinstance(stmt, (Alloc, Store)):
        return bool(stmt.buffer.scope() == _SCOPE)
    return isinstance(stmt, Bind)


def _read_by(stmt: Stmt) -> set[Var]:
    """What a statement reads, but for the variable that it makes."""
    return mentioned(stmt) - ({_defines(stmt)} if _is_scalar(stmt) else set())
