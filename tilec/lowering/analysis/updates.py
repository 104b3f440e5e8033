"""Atomic updates as plain stores, for where no other thread can come between.

    atomic_add(A[i], v)    ->    A[i] = A[i] + v

Fragments belong to one thread, and tasks of a CPU that own their elements share them with nobody.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir.extremes import extreme
from tilec.ir.nodes import Atomic, Store
from tilec.lowering.analysis.accesses import element_of

if TYPE_CHECKING:
    from tvm.ir import Expr

#: The kinds of updates that combine an element with a value.
UPDATES = ("add", "max", "min", "or")


def stored(stmt: Atomic) -> Store:
    """An update as the store of what it leaves."""
    return Store(stmt.buffer, stmt.indices, combined(stmt.kind, element_of(stmt), stmt.value), loc=stmt.loc)


def combined(kind: str, old: Expr, value: Expr) -> Expr:
    """What an update makes of what an element holds."""
    if kind == "add":
        return old + value
    return old | value if kind == "or" else extreme(kind, old, value, False)
