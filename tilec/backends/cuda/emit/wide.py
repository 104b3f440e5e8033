"""Products of two words in 64 bits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.device.integers import WIDE
from tilec.ir.exprs import dtype_of, int_value

if TYPE_CHECKING:
    from tvm.ir import Expr


def wide_product(left: Expr, right: Expr) -> Expr | None:
    """The product of uint64 values that are known to fit in words, a run-time value among them; None for
    others."""
    words = [word for value in (left, right) if (word := _word(value)) is not None]
    if len(words) < 2 or all(isinstance(word, tirx.IntImm) for word in words):
        return None
    return WIDE.call(*words)


def _word(value: Expr) -> Expr | None:
    """A uint64 that fits as uint32; None for others."""
    if dtype_of(value) != "uint64":
        return None
    if isinstance(value, tirx.Cast) and dtype_of(value.value) == "uint32":
        return value.value
    number = int_value(value)
    return None if number is None or not 0 <= number < 1 << 32 else tirx.const(number, "uint32")
