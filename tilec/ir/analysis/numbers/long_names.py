"""Names whose values become long when the names in them are written out.

    b = a * a; c = b * b; d = c * c    ->    a, b, c and d take 1, 3, 7 and 15 nodes

A chain of names that each read the one in front twice (rounds of a hash, steps of Newton's) doubles with
every link: who writes it out takes exponential time and memory.
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

from tvm.ir import Var

from tilec.ir.exprs import walk

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Nodes of a value from which on it is long: more than indices and conditions have.
_LONG = 500
#: Those of an operand from which on it gets a name where it is read several times.
_LONG_OPERAND = 32


def is_long(operand: Expr) -> bool:
    """Whether an operand that an operation reads several times, or TVM asks several questions about, gets a
    name: what such operations in each other take would double with each."""
    return next(islice(walk(operand), _LONG_OPERAND, None), None) is not None


class LongNames:
    """Names in the order of their definitions."""

    def __init__(self) -> None:
        self._sizes: dict[Var, int] = {}

    def has(self, var: Var, value: Expr) -> bool:
        """Whether ``var`` is a long name of ``value``: the names behind it count as one that nobody writes
        out."""
        sizes = (self._sizes.get(node, 1) if isinstance(node, Var) else 1 for node in walk(value))
        self._sizes[var] = size = sum(sizes)
        if size < _LONG:
            return False
        del self._sizes[var]
        return True
