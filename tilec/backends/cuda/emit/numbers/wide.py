"""Products of two 32-bit words in 64 bits, by the one instruction that a device has for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from tvm import tirx

from tilec.backends.cuda.device.integers import WIDE
from tilec.ir.exprs import dtype_of, int_value, loads, same

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    #: Names of products, and what is multiplied.
    Products: TypeAlias = list[tuple[Var, Expr, Expr]]


def wide_product(left: Expr, right: Expr, known: Products | None) -> Expr | None:
    """The product of uint64 values that are known to fit in words, a run-time value among them; None for
    others. It goes to ``known``, if there are such, and is one of them where it is computed already; not if
    it reads memory, as a condition around it may say whether that is there."""
    words = [word for value in (left, right) if (word := _word(value)) is not None]
    if len(words) < 2 or all(isinstance(word, tirx.IntImm) for word in words):
        return None
    if known is None or any(True for word in words for _ in loads(word)):
        return WIDE.call(*words)
    first, second = words
    for var, own, other in known:
        if same(own, first) and same(other, second):
            return var
    var = tirx.Var("product", "uint64")
    known.append((var, first, second))
    return var


def with_products(stmt: tirx.Stmt, products: Products) -> tirx.Stmt:
    """A statement behind the names of its products."""
    names = [tirx.Bind(var, WIDE.call(first, second)) for var, first, second in products]
    return tirx.SeqStmt([*names, stmt]) if names else stmt


def _word(value: Expr) -> Expr | None:
    """A uint64 that fits as uint32; None for others."""
    if dtype_of(value) != "uint64":
        return None
    if isinstance(value, tirx.Cast) and dtype_of(value.value) == "uint32":
        return value.value
    number = int_value(value)
    return None if number is None or not 0 <= number < 1 << 32 else tirx.const(number, "uint32")
