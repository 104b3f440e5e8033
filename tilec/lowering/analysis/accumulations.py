"""Stores that accumulate the iterations of a loop into one element."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.ir.exprs import loads, same_all, uses
from tilec.ir.extremes import extreme, parts
from tilec.ir.nodes import Atomic, Block, If, Store, is_global, walk
from tilec.ir.reductions import REDUCTIONS
from tilec.ir.traits import expressions, loads_of
from tilec.lowering.emission.storage import compute_type

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


#: What takes bits together, by the kind of a reduction.
BITWISE: dict[str, type] = {
    "bitand": tirx.BitwiseAnd,
    "bitor": tirx.BitwiseOr,
    "bitxor": tirx.BitwiseXor,
}
#: Where reductions start that begin at an end of a type: of floats, and of integers by their dtype.
ENDS: dict[str, tuple[float, Callable[[str], Expr]]] = {
    "lowest": (float("-inf"), tirx.min_value),
    "highest": (float("inf"), tirx.max_value),
}
_BITS = {node: kind for kind, node in BITWISE.items()}


@dataclass(frozen=True, eq=False)
class Accumulation:
    """``store`` is ``element = element (+, max, min, &, | or ^) term``; ``kind`` is "sum", "max", "min" or
    one of `BITWISE`, and ``nan_propagate`` says of "max" and "min" that NaN stays."""

    store: Store
    kind: str
    term: Expr
    nan_propagate: bool = False

    @property
    def dtype(self) -> str:
        """The element type."""
        return str(self.store.buffer.dtype)

    def identity(self) -> Expr:
        """The element that changes nothing."""
        return identity(self.kind, self.dtype)

    def combined(self, old: Expr, new: Expr) -> Expr:
        """The value of ``old`` with ``new`` taken in."""
        return joined(self.kind, old, new, self.nan_propagate)


def joined(kind: str, old: Expr, new: Expr, nan_propagate: bool) -> Expr:
    """Two results of a reduction of this kind together; ``nan_propagate``: of maxima and minima NaN stays."""
    join = REDUCTIONS[kind].join
    if join in BITWISE:
        return BITWISE[join](old, new)
    return old + new if join == "sum" else extreme(join, old, new, nan_propagate)


def identity(kind: str, dtype: str) -> Expr:
    """What a reduction of this kind gives of no elements (`tilec.ir.reductions`)."""
    start = REDUCTIONS[kind].start
    if start == "ones":
        return tirx.bitwise_not(tirx.const(0, dtype))
    if start == "zero":
        return tirx.const(0, dtype)
    infinity, end = ENDS[start]
    return tirx.const(infinity, dtype) if dtype.startswith(("float", "bfloat")) else end(dtype)


def find_accumulations(body: Block, var: Var) -> list[Accumulation]:
    """The stores of ``body`` (also under If) that accumulate the iterations over ``var`` into one element
    of a tile that nothing else in ``body`` touches."""
    found = []
    moving = dependents(body, var)
    for store in _plain_stores(body):
        if any(uses(index, moving) for index in store.indices):
            continue
        item = accumulation(store)
        if item is not None and touches(body, store.buffer) == 2:
            found.append(item)
    return found


def dependents(body: Block, var: Var) -> tuple[Var, ...]:
    """``var`` and what the body binds or counts in dependence on it."""
    moving: tuple[Var, ...] = (var,)
    for stmt in walk(body):
        if isinstance(stmt, Atomic) and stmt.prev is not None:
            moving = (*moving, stmt.prev)
        if hasattr(stmt, "var") and any(uses(expr, moving) for expr in expressions(stmt)):
            moving = (*moving, stmt.var)
    return moving


def _plain_stores(block: Block) -> list[Store]:
    stores = []
    for stmt in block:
        if isinstance(stmt, Store):
            stores.append(stmt)
        if isinstance(stmt, If):
            stores += _plain_stores(stmt.then) + _plain_stores(stmt.orelse)
    return stores


def accumulation(store: Store) -> Accumulation | None:
    """A store as an accumulation; None where it is none, or goes to global memory."""
    value = store.value
    if isinstance(value, tirx.Cast) and compute_type(str(store.buffer.dtype)) == "float32":
        value = value.value
    update = _update(value)
    if update is None or is_global(store.buffer):
        return None
    kind, keeps, left, right = update
    for old, term in ((left, right), (right, left)):
        if _reads_back(old, store) and not any(load.source.same_as(store.buffer) for load in loads(term)):
            return Accumulation(store, kind, term, keeps)
    return None


def _update(value: Expr) -> tuple[str, bool, Expr, Expr] | None:
    kind = "sum" if isinstance(value, tirx.Add) else _BITS.get(type(value))
    return parts(value) if kind is None else (kind, False, value.a, value.b)


def _reads_back(expr: Expr, store: Store) -> bool:
    if isinstance(expr, tirx.Cast) and compute_type(str(store.buffer.dtype)) == "float32":
        expr = expr.value
    source = getattr(expr, "source", None)
    return (
        source is not None and source.same_as(store.buffer) and same_all(tuple(expr.indices), store.indices)
    )


def touches(block: Block, buffer: Var) -> int:
    """How often ``buffer`` is read or written in ``block``."""
    count = 0
    for stmt in walk(block):
        count += isinstance(stmt, (Store, Atomic)) and stmt.buffer.same_as(buffer)
        count += sum(load.source.same_as(buffer) for load in loads_of(stmt))
    return count
