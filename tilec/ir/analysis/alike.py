"""Whether blocks do the same under names of their own: passes write such blocks once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

from tvm import tirx
from tvm.ir import Expr, Var

from tilec.ir.analysis.renaming import renamed_value
from tilec.ir.exprs import dtype_of, int_value
from tilec.ir.stmt import Part, Stmt, parts

if TYPE_CHECKING:
    from tilec.ir.stmt import Block

_OWN_NAMES = ("defines", "operands")


class Likeness:
    """Compares blocks, of which each has names of its own. ``equal`` says whether two values are the same
    one; ``names``: for names of the other block those of the one, more of which are found on the way."""

    def __init__(self, equal: Callable[[Expr, Expr], bool]) -> None:
        self._equal = equal
        self.names: dict[Var, Var] = {}

    def block(self, one: Block, other: Block) -> bool:
        """Whether two blocks do the same."""
        return len(one) == len(other) and all(map(self.stmt, one, other))

    def stmt(self, one: Any, other: Any) -> bool:
        """Whether two statements, or parts of such, do."""
        if type(one) is not type(other):
            return False
        return all(
            self._part(part, getattr(one, part.name), getattr(other, part.name))
            for part in parts(type(one))
            if part.word != "aside"
        )

    def _part(self, part: Part, one: Any, other: Any) -> bool:
        if isinstance(one, tuple) and isinstance(other, tuple):
            return len(one) == len(other) and all(
                self._part(part, *pair) for pair in zip(one, other, strict=True)
            )
        if isinstance(one, Var) and isinstance(other, Var):
            return self._name(part, one, other)
        if isinstance(one, Expr) and isinstance(other, Expr):
            return self._equal(one, renamed_value(other, self.names))
        if isinstance(one, Stmt) or (is_dataclass(one) and part.holds):
            return self.stmt(one, other)
        return bool(one == other)

    def _name(self, part: Part, one: Var, other: Var) -> bool:
        if part.word in _OWN_NAMES:
            return self._define(one, other)
        if tirx.is_buffer_var(other):
            return bool(self.names.get(other, other).same_as(one))
        return self._equal(one, self.names.get(other, other))

    def _define(self, one: Var, other: Var) -> bool:
        self.names[other] = one
        return _kind(one) == _kind(other)


def _kind(name: Var) -> tuple[object, ...]:
    """What a name stands for: the type of a value; a buffer's, its scope and its extents where known."""
    if not tirx.is_buffer_var(name):
        return (dtype_of(name),)
    return (str(name.dtype), str(name.scope()), tuple(map(int_value, name.shape)))
