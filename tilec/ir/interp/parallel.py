"""How the iterations of a Parallel may run together: all at once, with counted accumulations, or one by one.

All at once is right when no iteration reads what another writes. The language allows one exception: several
iterations may accumulate into one element. Such a statement is `element = f(element, value)`; where that is
the buffer's only use in the loop, the machine applies f once per iteration. Any other loop that reads what
several iterations write runs one iteration after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx
from tvm.ir import Expr, TensorLoad, Var

from tilec.ir import extremes
from tilec.ir import nodes as ir
from tilec.ir.exprs import int_value, operands, same_all, walk
from tilec.ir.interp.tile import extreme
from tilec.ir.interp.values import numpy_dtype
from tilec.ir.traits import expressions

if TYPE_CHECKING:
    from collections.abc import Iterable

_TILE = (ir.Copy, ir.Fill, *ir.PRODUCTS, ir.Reduce, ir.Scan, ir.Parallel, ir.Pipelined)


@dataclass(frozen=True)
class Accumulation:
    """``element = ufunc(element, value)``."""

    ufunc: np.ufunc
    value: Expr


@dataclass(frozen=True)
class Plan:
    """``together``: whether the iterations run as one vector. ``accumulations`` by their Store.
    ``always``: whether that holds for every run of the loop, whatever the values of outer variables."""

    together: bool
    accumulations: dict[ir.Stmt, Accumulation]
    always: bool = True


def plan(loop: ir.Parallel, distinct: Callable[[ir.Store], bool]) -> Plan:
    """The plan of a loop; ``distinct`` computes whether all iterations write different elements, for stores
    whose indices are known before the body runs."""
    stmts = list(ir.walk(loop.body))
    if any(isinstance(stmt, _TILE) for stmt in stmts) or not _atomics_commute(stmts):
        return Plan(False, {})
    own = {stmt.buffer for stmt in stmts if isinstance(stmt, ir.Alloc)}
    inner = set(_defined(stmts))
    accumulations: dict[ir.Stmt, Accumulation] = {}
    always = True
    for store in (stmt for stmt in stmts if isinstance(stmt, ir.Store) and stmt.buffer not in own):
        reads = _reads(stmts, store.buffer)
        if not reads or _separate(store, loop.vars, inner):
            continue
        known = not _depends(store.indices, inner)
        always = always and not known
        if known and distinct(store):
            continue
        found = accumulation(store) if reads == 1 else None
        if found is None:
            return Plan(False, {}, always)
        accumulations[store] = found
    return Plan(True, accumulations, always)


def _atomics_commute(stmts: list[ir.Stmt]) -> bool:
    """Whether no iteration sees what atomic updates leave: each may then run for all iterations at once."""
    atomics = [stmt for stmt in stmts if isinstance(stmt, ir.Atomic)]
    stored = {stmt.buffer for stmt in stmts if isinstance(stmt, ir.Store)}
    return all(
        (item.prev is None or item.kind == "load")
        and item.buffer not in stored
        and not _reads(stmts, item.buffer)
        and all(other.kind == item.kind for other in atomics if other.buffer.same_as(item.buffer))
        for item in atomics
    )


def accumulation(store: ir.Store) -> Accumulation | None:
    """The update that a store is, or None."""
    update = _update(store.value)
    if update is None:
        return None
    ufunc, left, right = update
    if _is_element(left, store):
        return Accumulation(ufunc, right)
    commutes = ufunc is not np.subtract
    return Accumulation(ufunc, left) if commutes and _is_element(right, store) else None


_UPDATES: dict[type, np.ufunc] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseXor: np.bitwise_xor,
}


def _update(value: Expr) -> tuple[np.ufunc, Expr, Expr] | None:
    found = extremes.parts(value)
    if found is not None:
        kind, keeps, left, right = found
        return extreme(kind, numpy_dtype(str(value.ty.dtype)), keeps), left, right
    ufunc = _UPDATES.get(type(value))
    return None if ufunc is None else (ufunc, value.a, value.b)


def _is_element(expr: Expr, store: ir.Store) -> bool:
    """Whether ``expr`` reads just the element that the store writes."""
    if not isinstance(expr, TensorLoad) or not expr.source.same_as(store.buffer):
        return False
    return same_all(tuple(expr.indices), store.indices)


def _defined(stmts: Iterable[ir.Stmt]) -> Iterator[Var]:
    """Scalars whose values are known only inside the body."""
    for stmt in stmts:
        if isinstance(stmt, (ir.Bind, ir.For)):
            yield stmt.var


def _reads(stmts: Iterable[ir.Stmt], buffer: Var) -> int:
    """How often elements of ``buffer`` are read."""
    nodes = (node for stmt in stmts for expr in expressions(stmt) for node in walk(expr))
    return sum(isinstance(node, TensorLoad) and node.source.same_as(buffer) for node in nodes)


def _depends(indices: Iterable[Expr], inner: set[Var]) -> bool:
    """Whether indices need values that only the running body has."""
    nodes = [node for index in indices for node in walk(index)]
    return any(isinstance(node, TensorLoad) or (isinstance(node, Var) and node in inner) for node in nodes)


def _separate(store: ir.Store, loop_vars: tuple[Var, ...], inner: set[Var]) -> bool:
    """Whether each loop variable has an index of its own, so that iterations write different elements."""
    alone = {_lone_var(index, loop_vars, inner) for index in store.indices}
    return all(var in alone for var in loop_vars)


def _lone_var(index: Expr, loop_vars: tuple[Var, ...], inner: set[Var]) -> Var | None:
    """The loop variable v where ``index`` is c * v + rest: c a nonzero integer, rest the same for all."""
    if isinstance(index, Var):
        return index if index in loop_vars else None
    if type(index) is tirx.Mul:
        factor, other = (index.b, index.a) if int_value(index.b) is not None else (index.a, index.b)
        return _lone_var(other, loop_vars, inner) if int_value(factor) else None
    if type(index) not in (tirx.Add, tirx.Sub):
        return None
    left, right = operands(index)
    if _uniform(right, loop_vars, inner):
        return _lone_var(left, loop_vars, inner)
    return _lone_var(right, loop_vars, inner) if _uniform(left, loop_vars, inner) else None


def _uniform(expr: Expr, loop_vars: tuple[Var, ...], inner: set[Var]) -> bool:
    """Whether an expression is the same in every iteration."""
    return not _depends((expr,), {*loop_vars, *inner})
