"""Unsigned index arithmetic: division and remainder as the machine has them, without fixes for signs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

if TYPE_CHECKING:
    from tvm.ir import Expr


@dataclass(frozen=True, eq=False)
class Unsigned:
    """A uint32 expression with the operators of a number."""

    value: Expr

    def __add__(self, other: int | Unsigned) -> Unsigned:
        return Unsigned(self.value + _word_of(other))

    def __mul__(self, other: int) -> Unsigned:
        return Unsigned(self.value * _word_of(other))

    def __floordiv__(self, other: int) -> Unsigned:
        return Unsigned(tirx.truncdiv(self.value, _word_of(other)))

    def __mod__(self, other: int) -> Unsigned:
        return Unsigned(tirx.truncmod(self.value, _word_of(other)))


def _word_of(value: int | Unsigned) -> Expr:
    return value.value if isinstance(value, Unsigned) else tirx.const(value, "uint32")
