"""Building blocks of vector functions: constants, bit views and let-bindings of any lane count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from tvm import ir as tvm_ir
from tvm import sym, tirx
from tvm.ir import TensorLoad, Var

from tilec.ir.analysis.numbers.long_names import is_long
from tilec.ir.exprs import int_value, lane_of, loads, operands, walk

if TYPE_CHECKING:
    from tvm.ir import Expr


#: Floats, and integers of as many bits.
_BITS = {"float16": "uint16", "float32": "uint32", "float64": "uint64"}


def lanes_of(expr: Expr) -> int:
    """How many lanes a value has."""
    _, _, lanes = str(expr.ty.dtype).partition("x")
    return int(lanes) if lanes else 1


def with_lanes(dtype: str, lanes: int) -> str:
    """The vector type of ``lanes`` elements."""
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def spread(value: Expr, lanes: int) -> Expr:
    """A scalar in every lane; a vector as it is."""
    return tirx.Broadcast(value, lanes) if lanes > 1 and lanes_of(value) == 1 else value


def literal(value: float, dtype: str, lanes: int = 1) -> Expr:
    """A constant in every lane."""
    return spread(tirx.const(value, dtype), lanes)


def reinterpreted(dtype: str, bits: Expr) -> Expr:
    """Bits as numbers of another type; of a 0, which TVM would take for a null pointer, the 0 of that."""
    return tirx.const(0, dtype) if int_value(lane_of(bits)) == 0 else tirx.reinterpret(dtype, bits)


def without_range(value: Expr) -> Expr:
    """A value that is about to get a name, such that TVM's analyzer sees no range in it: it fails on products
    and quotients of a float that comes from a variable of a loop, whose range it knows, and another
    variable."""
    dtype = str(value.ty.dtype)
    element, _, _ = dtype.partition("x")
    if element not in _BITS or not _has_range(value):
        return value
    return tirx.reinterpret(dtype, tirx.reinterpret(with_lanes(_BITS[element], lanes_of(value)), value))


def _has_range(expr: Expr) -> bool:
    """Whether a float comes from an integer's variable, from a truth, or from another type's number; the
    analyzer knows nothing of loads and calls."""
    if isinstance(expr, (TensorLoad, tvm_ir.Call)):
        return False
    if isinstance(expr, tirx.Cast) and isinstance(expr.value, (tirx.FloatImm, tirx.IntImm)):
        return True
    if isinstance(expr, tirx.Cast) and "bool" in str(expr.value.ty.dtype):
        return True
    if isinstance(expr, tirx.Cast) and "int" in str(expr.value.ty.dtype):
        return _has_variable(expr.value)
    return any(_has_range(part) for part in operands(expr))


def _has_variable(expr: Expr) -> bool:
    if isinstance(expr, (TensorLoad, tvm_ir.Call)):
        return False
    return isinstance(expr, (Var, tirx.Ramp)) or any(_has_variable(part) for part in operands(expr))


def folded(value: Expr) -> Expr:
    """A value that is made of numbers alone, without quotients, as one number, where TVM finds it; any other
    as it is."""
    if any(isinstance(node, (TensorLoad, tvm_ir.Call, Var, tirx.Div)) for node in walk(value)):
        return value
    return sym.Analyzer().simplify(value)


class Vectors:
    """Makes expressions with the lane count of ``like`` and collects names for values used more than once.

    ``bind`` gives a value a name; ``close`` wraps the result in the bindings, first one outermost."""

    def __init__(self, like: Expr) -> None:
        self.lanes = lanes_of(like)
        self._bindings: list[tuple[Any, Expr]] = []

    def dtype(self, element: str) -> str:
        """``element`` with this lane count: "int32x16", or "int32" for a scalar."""
        return with_lanes(element, self.lanes)

    def const(self, value: float, element: str = "float32") -> Expr:
        """The same number in every lane."""
        return literal(value, element, self.lanes)

    def bind(self, value: Expr, name: str = "t") -> Expr:
        """A variable that stands for ``value``, evaluated once; the number where ``value`` is made of numbers
        alone: TVM's analyzer fails on a variable whose number it finds. Not for comparisons of several lanes,
        on whose variables it fails, too."""
        value = folded(self.opened(value))
        if isinstance(value, Var) or isinstance(lane_of(value), tirx.FloatImm):
            return value
        var = tirx.Var(name, str(value.ty.dtype))
        self._bindings.append((var, without_range(value)))
        return var

    def opened(self, value: Expr) -> Expr:
        """A value without its own names, which `close` puts side by side with the others: TVM takes
        exponential time over nested ones."""
        while isinstance(value, tirx.Let):
            self._bindings.append((value.var, value.value))
            value = value.body
        return value

    def name(self, value: Expr, name: str = "t") -> Expr:
        """As `bind`; numbers, variables and loads, which cost nothing twice, stay as they are."""
        is_known = isinstance(lane_of(value), (Var, TensorLoad, tirx.FloatImm))
        return value if is_known else self.bind(value, name)

    def name_long(self, value: Expr) -> Expr:
        """As `bind` for a long value; others stay as they are. TVM keeps no name of what reads nothing."""
        return self.bind(value) if is_long(value) and next(loads(value), None) is not None else value

    def close(self, result: Expr) -> Expr:
        """``result`` inside all bindings made so far."""
        for var, value in reversed(self._bindings):
            result = tirx.Let(var, value, result)
        return result

    def reinterpret(self, x: Expr, element: str) -> Expr:
        """The same bits as another element type of the same width."""
        return tirx.reinterpret(self.dtype(element), x)

    def bits(self, x: Expr) -> Expr:
        """The bits of a float32 as int32."""
        return self.reinterpret(x, "int32")

    def from_bits(self, x: Expr) -> Expr:
        """The float32 that has these bits."""
        return self.reinterpret(x, "float32")

    def cast(self, x: Expr, element: str) -> Expr:
        """Each lane converted to ``element``."""
        return tirx.Cast(self.dtype(element), x)

    def select(self, condition: Expr, yes: Expr, no: Expr) -> Expr:
        """Lane by lane, without branches."""
        return tirx.Select(condition, yes, no)

    def equal(self, a: Expr, b: Expr) -> Expr:
        """Lane by lane (== between expressions asks whether they are the same expression)."""
        return tirx.EQ(a, b)

    def differ(self, a: Expr, b: Expr) -> Expr:
        """Lane by lane; true where either is NaN."""
        return tirx.NE(a, b)

    def logical_and(self, a: Expr, b: Expr) -> Expr:
        """Both of two lane masks."""
        return tirx.And(a, b)

    def logical_or(self, a: Expr, b: Expr) -> Expr:
        """Either of two lane masks."""
        return tirx.Or(a, b)

    def clamp(self, x: Expr, low: float, high: float, element: str = "float32") -> Expr:
        """min(max(x, low), high) that keeps NaN; bound to a name.

        LLVM makes one instruction of each, the bounds being numbers; and TVM's simplifier, which takes
        exponential time over nested selections, does not look inside."""
        dtype = self.dtype(element)
        x = tirx.call_llvm_pure_intrin(dtype, "llvm.maximum", x, self.const(low, element))
        return self.bind(self.at_most(x, high, element), "x")

    def at_most(self, x: Expr, high: float, element: str = "float32") -> Expr:
        """min(x, high) that keeps NaN."""
        return tirx.call_llvm_pure_intrin(self.dtype(element), "llvm.minimum", x, self.const(high, element))

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
        return tirx.nearbyint(x)

    def sign_bit(self, x: Expr) -> Expr:
        """The sign of a float32 as int32: 0 or 0x80000000."""
        return self.bits(x) & self.const(-0x80000000, "int32")

    def with_sign(self, magnitude: Expr, sign: Expr) -> Expr:
        """``magnitude`` (not negative) with the sign bit ``sign`` (from `sign_bit`)."""
        return self.from_bits(self.bits(magnitude) | sign)
