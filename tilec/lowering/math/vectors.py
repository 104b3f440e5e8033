"""Building blocks of vector functions: constants, bit views and let-bindings of any lane count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm.ir import Expr


def element_type(x: Expr) -> str:
    """The element's dtype: "float32" for a float32x16."""
    return str(x.ty.dtype).split("x")[0]


def lanes(x: Expr) -> int:
    """How many elements ``x`` has; 1 for a scalar."""
    _, _, count = str(x.ty.dtype).partition("x")
    return int(count) if count else 1


class Vectors:
    """Makes expressions with the lane count of ``like`` and collects names for values used more than once.

    ``bind`` gives a value a name; ``close`` wraps the result in the bindings, first one outermost."""

    def __init__(self, like: Expr) -> None:
        self.lanes = lanes(like)
        self._bindings: list[tuple[Any, Expr]] = []

    def dtype(self, element: str) -> str:
        """``element`` with this lane count: "int32x16", or "int32" for a scalar."""
        return element if self.lanes == 1 else f"{element}x{self.lanes}"

    def const(self, value: float, element: str = "float32") -> Expr:
        """The same number in every lane."""
        from tvm import tirx

        number = tirx.const(value, element)
        return number if self.lanes == 1 else tirx.Broadcast(number, self.lanes)

    def bind(self, value: Expr, name: str = "t") -> Expr:
        """A variable that stands for ``value``, evaluated once. Not for comparisons of several lanes: TVM's
        analyzer fails on variables bound to them."""
        from tvm import tirx
        from tvm.ir import Var

        while isinstance(value, tirx.Let):  # side by side: TVM takes exponential time over nested ones
            self._bindings.append((value.var, value.value))
            value = value.body
        if isinstance(value, Var):
            return value
        var = tirx.Var(name, str(value.ty.dtype))
        self._bindings.append((var, value))
        return var

    def close(self, result: Expr) -> Expr:
        """``result`` inside all bindings made so far."""
        from tvm import tirx

        for var, value in reversed(self._bindings):
            result = tirx.Let(var, value, result)
        return result

    def reinterpret(self, x: Expr, element: str) -> Expr:
        """The same bits as another element type of the same width."""
        from tvm import tirx

        return tirx.reinterpret(self.dtype(element), x)

    def bits(self, x: Expr) -> Expr:
        """The bits of a float32 as int32."""
        return self.reinterpret(x, "int32")

    def from_bits(self, x: Expr) -> Expr:
        """The float32 that has these bits."""
        return self.reinterpret(x, "float32")

    def cast(self, x: Expr, element: str) -> Expr:
        """Each lane converted to ``element``."""
        from tvm import tirx

        return tirx.Cast(self.dtype(element), x)

    def select(self, condition: Expr, yes: Expr, no: Expr) -> Expr:
        """Lane by lane, without branches."""
        from tvm import tirx

        return tirx.Select(condition, yes, no)

    def equal(self, a: Expr, b: Expr) -> Expr:
        """Lane by lane (== between expressions asks whether they are the same expression)."""
        from tvm import tirx

        return tirx.EQ(a, b)

    def differ(self, a: Expr, b: Expr) -> Expr:
        """Lane by lane; true where either is NaN."""
        from tvm import tirx

        return tirx.NE(a, b)

    def logical_and(self, a: Expr, b: Expr) -> Expr:
        """Both of two lane masks."""
        from tvm import tirx

        return tirx.And(a, b)

    def logical_or(self, a: Expr, b: Expr) -> Expr:
        """Either of two lane masks."""
        from tvm import tirx

        return tirx.Or(a, b)

    def clamp(self, x: Expr, low: float, high: float, element: str = "float32") -> Expr:
        """min(max(x, low), high) that keeps NaN; bound to a name.

        LLVM makes one instruction of each, the bounds being numbers; and TVM's simplifier, which takes
        exponential time over nested selections, does not look inside."""
        from tvm import tirx

        dtype = self.dtype(element)
        x = tirx.call_llvm_pure_intrin(dtype, "llvm.maximum", x, self.const(low, element))
        return self.bind(tirx.call_llvm_pure_intrin(dtype, "llvm.minimum", x, self.const(high, element)), "x")

    def polynomial(self, x: Expr, coefficients: Iterable[float], element: str = "float32") -> Expr:
        """sum coefficients[k] x^k in Horner's form; one multiply-add per degree."""
        highest, *rest = reversed(tuple(coefficients))
        value = self.const(highest, element)
        for coefficient in rest:
            value = value * x + self.const(coefficient, element)
        return value

    def abs(self, x: Expr) -> Expr:
        """|x| of a float32, by clearing the sign."""
        return self.from_bits(self.bits(x) & self.const(0x7FFFFFFF, "int32"))

    def nearest(self, x: Expr) -> Expr:
        """The nearest integers as float32, ties to even."""
        from tvm import tirx

        return tirx.nearbyint(x)

    def sign_bit(self, x: Expr) -> Expr:
        """The sign of a float32 as int32: 0 or 0x80000000."""
        return self.bits(x) & self.const(-0x80000000, "int32")

    def with_sign(self, magnitude: Expr, sign: Expr) -> Expr:
        """``magnitude`` (not negative) with the sign bit ``sign`` (from `sign_bit`)."""
        return self.from_bits(self.bits(magnitude) | sign)
