"""Expressions compiled to functions of the machine's state.

A value is a NumPy scalar, or an array that broadcasts over the iteration grid of the enclosing Parallel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from tvm import tirx
from tvm.ir import Call, TensorLoad, Var

from tilec.errors import EvalError, UnsupportedError
from tilec.ir.exprs import dtype_of
from tilec.ir.interp.intrinsics import intrinsic
from tilec.ir.interp.named import NAMED
from tilec.ir.interp.storage import Storage
from tilec.ir.interp.values import cast, is_float, numpy_dtype
from tilec.ir.text.expr_printer import format_expr

if TYPE_CHECKING:
    from tvm.ir import Expr


@dataclass
class State:
    """Scalars and buffers by variable number; ``mask`` says which iterations of the grid are active."""

    scalars: dict[int, Any] = field(default_factory=dict)
    buffers: dict[int, Storage] = field(default_factory=dict)
    mask: Any = True
    grid: tuple[int, ...] = ()


Value = Callable[[State], Any]


def value_of(expr: Expr, values: Mapping[Var, Any]) -> Any:
    """``expr`` where its variables have these values, NumPy's numbers or arrays that broadcast. Raises
    EvalError."""
    compiler, state = Compiler(), State()
    for var, value in values.items():
        state.scalars[compiler.number(var)] = value
    return compiler(expr)(state)


class Compiler:
    """Compiles each expression once; the same node gives the same function."""

    def __init__(self) -> None:
        self._numbers: dict[Var, int] = {}
        self._done: dict[Expr, Value] = {}

    def number(self, var: Var) -> int:
        """The key of a variable or buffer in the state."""
        return self._numbers.setdefault(var, len(self._numbers))

    def __call__(self, expr: Expr | int) -> Value:
        """The function that computes ``expr``."""
        if isinstance(expr, int):
            return _constant(np.int32(expr) if -(2**31) <= expr < 2**31 else np.int64(expr))
        if isinstance(expr, (tirx.IntImm, tirx.FloatImm)):  # equal ones may differ in dtype
            return self._literal(expr)
        known = self._done.get(expr)
        if known is None:
            known = self._done[expr] = self._compile(expr)
        return known

    def _compile(self, expr: Expr) -> Value:
        kind = type(expr)
        if kind in _UFUNCS:
            return _apply(_UFUNCS[kind], self(expr.a), self(expr.b))
        rule = _RULES.get(kind)
        if rule is None:
            raise UnsupportedError(f"the interpreter has no {kind.__name__}: {format_expr(expr)}")
        return rule(self, expr)

    def _var(self, expr: Var) -> Value:
        number = self.number(expr)
        return lambda state: state.scalars[number]

    def _literal(self, expr: Any) -> Value:
        return _constant(cast(expr.value, numpy_dtype(dtype_of(expr))))

    def _load(self, expr: TensorLoad) -> Value:
        number, indices = self.number(expr.source), [self(index) for index in expr.indices]
        return lambda state: state.buffers[number].read([index(state) for index in indices])

    def _cast(self, expr: Any) -> Value:
        dtype, value = numpy_dtype(dtype_of(expr)), self(expr.value)
        return lambda state: cast(value(state), dtype)

    def _min(self, expr: Any) -> Value:
        return _apply(_pick(np.minimum, np.fmin, expr), self(expr.a), self(expr.b))

    def _max(self, expr: Any) -> Value:
        return _apply(_pick(np.maximum, np.fmax, expr), self(expr.a), self(expr.b))

    def _div(self, expr: Any) -> Value:
        if is_float(numpy_dtype(dtype_of(expr))):
            return _apply(np.true_divide, self(expr.a), self(expr.b))
        return self._by(_truncdiv, expr)

    def _mod(self, expr: Any) -> Value:
        return self._by(np.fmod, expr)

    def _floordiv(self, expr: Any) -> Value:
        return self._by(np.floor_divide, expr)

    def _floormod(self, expr: Any) -> Value:
        return self._by(np.remainder, expr)

    def _by(self, function: Callable[[Any, Any], Any], expr: Any) -> Value:
        """Integer division of any kind; zero divisors of active iterations are an error."""
        left, right = self(expr.a), self(expr.b)

        def divide(state: State) -> Any:
            divisor = np.asarray(right(state))
            zero = np.equal(divisor, 0)
            if np.any(zero) and np.any(np.logical_and(zero, state.mask)):
                raise EvalError(f"division by zero in {format_expr(expr)}")
            return function(left(state), np.where(zero, np.ones((), divisor.dtype), divisor)[()])

        return divide

    def _not(self, expr: Any) -> Value:
        value = self(expr.a)
        return lambda state: np.logical_not(value(state))

    def _invert(self, expr: Any) -> Value:
        value = self(expr.a)
        return lambda state: np.invert(value(state))

    def _select(self, expr: Any) -> Value:
        parts = [self(part) for part in (expr.condition, expr.true_value, expr.false_value)]
        return lambda state: np.where(*(part(state) for part in parts))[()]

    def _and(self, expr: Any) -> Value:
        return _branch(self(expr.a), self(expr.b), _constant(np.False_))

    def _or(self, expr: Any) -> Value:
        return _branch(self(expr.a), _constant(np.True_), self(expr.b))

    def _let(self, expr: Any) -> Value:
        number, value, body = self.number(expr.var), self(expr.value), self(expr.body)

        def let(state: State) -> Any:
            state.scalars[number] = value(state)
            return body(state)

        return let

    def _call(self, expr: Call) -> Value:
        word = expr.op.name.split(".", 1)[-1]
        if word == "if_then_else":
            return _branch(*(self(arg) for arg in expr.args))
        if word == "call_pure_extern":
            return self._named(expr)
        function = intrinsic(word, numpy_dtype(dtype_of(expr)))
        args = [self(arg) for arg in expr.args]
        return lambda state: function(*(arg(state) for arg in args))

    def _named(self, expr: Call) -> Value:
        name, *rest = expr.args
        function = NAMED.get(str(name.value))
        if function is None:
            raise UnsupportedError(f"the interpreter has no function {name.value}")
        args = [self(arg) for arg in rest]
        return lambda state: function(*(arg(state) for arg in args))


def _constant(value: Any) -> Value:
    return lambda state: value


def _apply(function: Callable[[Any, Any], Any], left: Value, right: Value) -> Value:
    return lambda state: function(left(state), right(state))


def _pick(integers: np.ufunc, floats: np.ufunc, expr: Any) -> np.ufunc:
    """Floats take the operand that is no NaN."""
    return floats if is_float(numpy_dtype(dtype_of(expr))) else integers


def _truncdiv(left: Any, right: Any) -> Any:
    quotient = np.floor_divide(left, right)
    inexact = np.not_equal(quotient * right, left)
    return quotient + np.asarray(inexact & (np.less(left, 0) != np.less(right, 0))).astype(quotient.dtype)


def _branch(cond: Value, then: Value, orelse: Value) -> Value:
    """Only the taken side is evaluated, per iteration."""

    def branch(state: State) -> Any:
        taken = cond(state)
        outer = state.mask
        wanted = taken if outer is True else np.logical_and(taken, outer)
        if np.all(taken):
            return then(state)
        if not np.any(wanted):
            return orelse(state)
        state.mask = wanted
        yes = then(state)
        state.mask = np.logical_and(outer, np.logical_not(taken))
        no = orelse(state)
        state.mask = outer
        return np.where(taken, yes, no)

    return branch


_UFUNCS: dict[type, np.ufunc] = {
    tirx.Add: np.add,
    tirx.Sub: np.subtract,
    tirx.Mul: np.multiply,
    tirx.EQ: np.equal,
    tirx.NE: np.not_equal,
    tirx.LT: np.less,
    tirx.LE: np.less_equal,
    tirx.GT: np.greater,
    tirx.GE: np.greater_equal,
    tirx.BitwiseAnd: np.bitwise_and,
    tirx.BitwiseOr: np.bitwise_or,
    tirx.BitwiseXor: np.bitwise_xor,
    tirx.LShift: np.left_shift,
    tirx.RShift: np.right_shift,
}
_RULES: dict[type, Callable[[Compiler, Any], Value]] = {
    Var: Compiler._var,
    TensorLoad: Compiler._load,
    tirx.Cast: Compiler._cast,
    tirx.Min: Compiler._min,
    tirx.Max: Compiler._max,
    tirx.Div: Compiler._div,
    tirx.Mod: Compiler._mod,
    tirx.FloorDiv: Compiler._floordiv,
    tirx.FloorMod: Compiler._floormod,
    tirx.Not: Compiler._not,
    tirx.BitwiseNot: Compiler._invert,
    tirx.Select: Compiler._select,
    tirx.And: Compiler._and,
    tirx.Or: Compiler._or,
    tirx.Let: Compiler._let,
    Call: Compiler._call,
}
