"""Values of the language: expressions, pinned dimensions that keep their name, and symbols made at import.

Every operator goes through `apply`, which keeps the *text* of values that depend on dimensions alone, so that
tensor extents can be written down by name ("K // 2").
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterator
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceError, SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.language.values import casts
from tilec.language.values import session as sessions
from tilec.language.values.namespace import namespace
from tilec.language.values.operand_errors import no_number, operand_error
from tilec.language.values.places import source_error, unsupported
from tilec.language.values.scalars import dtype, element_of

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.language.values.builder import Frame

_TEXT_OPS = {"+", "-", "*", "//", "%", "<", "<=", ">", ">=", "==", "!="}
_CALLED = {"min": min, "max": max}
_OF_NUMBERS = {"+", "-", "*", "/", "//", "%", "<<", ">>"}
_FLOAT_OPS = {"+", "-", "*", "/", "<", "<=", ">", ">=", "==", "!=", "min", "max"}
_OPS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv,
    "//": operator.floordiv, "%": operator.mod, "<<": operator.lshift, ">>": operator.rshift,
    "&": operator.and_, "|": operator.or_, "^": operator.xor,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip
_OF_NUMPY = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%",
    "left_shift": "<<", "right_shift": ">>", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
}  # fmt: skip
_LITERAL = re.compile(r"T\.\w+\((-?[\d.]+(?:e[-+]?\d+)?)\)")  # as TVM writes numbers with their types
_ATOM = re.compile(r"\w+")


class Arithmetic:
    """The operators of expressions and symbols."""

    __slots__ = ()

    # fmt: off
    def __add__(self, other: Any) -> Any: return apply("+", self, other)
    def __radd__(self, other: Any) -> Any: return apply("+", other, self)
    def __sub__(self, other: Any) -> Any: return apply("-", self, other)
    def __rsub__(self, other: Any) -> Any: return apply("-", other, self)
    def __mul__(self, other: Any) -> Any: return apply("*", self, other)
    def __rmul__(self, other: Any) -> Any: return apply("*", other, self)
    def __truediv__(self, other: Any) -> Any: return apply("/", self, other)
    def __rtruediv__(self, other: Any) -> Any: return apply("/", other, self)
    def __floordiv__(self, other: Any) -> Any: return apply("//", self, other)
    def __rfloordiv__(self, other: Any) -> Any: return apply("//", other, self)
    def __mod__(self, other: Any) -> Any: return apply("%", self, other)
    def __rmod__(self, other: Any) -> Any: return apply("%", other, self)
    def __lshift__(self, other: Any) -> Any: return apply("<<", self, other)
    def __rlshift__(self, other: Any) -> Any: return apply("<<", other, self)
    def __rshift__(self, other: Any) -> Any: return apply(">>", self, other)
    def __rrshift__(self, other: Any) -> Any: return apply(">>", other, self)
    def __and__(self, other: Any) -> Any: return apply("&", self, other)
    def __rand__(self, other: Any) -> Any: return apply("&", other, self)
    def __or__(self, other: Any) -> Any: return apply("|", self, other)
    def __ror__(self, other: Any) -> Any: return apply("|", other, self)
    def __xor__(self, other: Any) -> Any: return apply("^", self, other)
    def __rxor__(self, other: Any) -> Any: return apply("^", other, self)
    def __lt__(self, other: Any) -> Any: return apply("<", self, other)
    def __le__(self, other: Any) -> Any: return apply("<=", self, other)
    def __gt__(self, other: Any) -> Any: return apply(">", self, other)
    def __ge__(self, other: Any) -> Any: return apply(">=", self, other)
    def __eq__(self, other: Any) -> Any: return apply("==", self, other)
    def __ne__(self, other: Any) -> Any: return apply("!=", self, other)
    def __neg__(self) -> Any: return apply("*", self, -1) if _is_deferred(self) else negative(self)
    # fmt: on

    __hash__ = object.__hash__

    def __pos__(self) -> Any:
        return self

    def __invert__(self) -> Any:
        return invert(self)

    def __abs__(self) -> Any:
        return absolute(self)

    def __pow__(self, other: Any) -> Any:
        raise unsupported("operator ** on expressions", remedy="use T.pow")

    __rpow__ = __pow__

    def __matmul__(self, other: Any) -> Any:
        raise unsupported("operator @ on expressions", remedy="use T.gemm")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """An operator whose other side is a number of NumPy; NumPy's functions are for arrays."""
        symbol, arrays = _OF_NUMPY.get(function.__name__), any(getattr(side, "ndim", 0) for side in inputs)
        if symbol is not None and method == "__call__" and not arrays:
            return apply(symbol, *(side.item() if hasattr(side, "item") else side for side in inputs))
        name = function.__name__
        remedy = f"use T.{name}" if hasattr(namespace(), name) else "compute on elements in a T.Parallel loop"
        raise source_error(
            SourceTypeError,
            f"np.{name} does not take an expression",
            why="NumPy computes while the kernel is built, when the expression has no value yet",
            remedy=remedy,
        )

    def __round__(self, digits: int | None = None) -> Any:
        raise source_error(SourceTypeError, "round() does not take an expression", remedy="use T.round")

    def __iter__(self) -> Iterator[Any]:
        raise source_error(
            SourceTypeError, "an expression cannot be iterated", remedy="loop with T.serial or T.Parallel"
        )


class Value(Arithmetic):
    """An expression: depends on loop or block indices, runtime scalars, runtime dimensions or elements.

    ``text`` spells it over dimension names where it depends on those alone; ``frame`` is the region outside
    of which a bound name is dead."""

    __slots__ = ("_expr", "frame", "text")

    def __init__(self, expr: Expr, *, text: str | None = None, frame: Frame | None = None) -> None:
        self._expr = expr
        self.text = text
        self.frame = frame

    @property
    def expr(self) -> Expr:
        """TVM's expression. Raises `SourceRuntimeError` outside the region that the name belongs to."""
        check_alive(self.frame, str(self._expr))
        return self._expr

    @property
    def dtype(self) -> dtype:
        """The dtype of the value."""
        return dtype(str(self.expr.ty.dtype))

    def astype(self, to: Any) -> Value:
        """The value cast to another dtype."""
        return cast_value(self, dtype(to))

    def __tvm_ffi_value__(self) -> Expr:
        """What TVM's functions take for it."""
        return self.expr

    def __bool__(self) -> bool:
        known = sessions.prove(self.expr)
        if known is None:
            what = "the truth value of an expression is not known while building"
            raise no_number(SourceValueError, self.text, repr(self), what)
        return known

    def __index__(self) -> int:
        known = sessions.constant(self.expr)
        if known is None:
            raise no_number(SourceTypeError, self.text, repr(self), "an expression is no Python integer")
        return known

    __int__ = __index__

    def __float__(self) -> float:
        raise no_number(SourceTypeError, self.text, repr(self), "an expression is no Python float")

    def __repr__(self) -> str:
        return _LITERAL.sub(r"\1", str(self._expr))

    def described(self) -> str:
        """The value as errors list it."""
        return f"{self!r}: {self._expr.ty.dtype}"


class Vector(Arithmetic):
    """Several values of one dtype; operators work lane by lane, with a scalar in every lane."""

    __slots__ = ("lanes",)

    def __init__(self, lanes: tuple[Any, ...]) -> None:
        self.lanes = lanes

    @property
    def dtype(self) -> dtype:
        """The vector dtype."""
        return dtype(f"{self.lanes[0].dtype}x{len(self.lanes)}")

    def astype(self, to: Any) -> Any:
        """The lanes cast to another dtype."""
        return cast_vector(self, dtype(to))

    def __getitem__(self, lane: int) -> Any:
        return self.lanes[lane]

    def __bool__(self) -> bool:
        raise source_error(SourceTypeError, "a vector has no truth value", remedy="compare single lanes")

    def __repr__(self) -> str:
        return f"{self.dtype}({', '.join(map(repr, self.lanes))})"


class Loaded(Vector):
    """Words that are the bits of elements of ``kind`` in memory."""

    __slots__ = ("kind",)

    def __init__(self, lanes: tuple[Any, ...], kind: dtype) -> None:
        super().__init__(lanes)
        self.kind = kind


class Word(Value):
    """One such word."""

    __slots__ = ("kind",)

    def __init__(self, value: Value, kind: dtype) -> None:
        super().__init__(value.expr, text=value.text, frame=value.frame)
        self.kind = kind


class Dim(int):
    """A pinned dimension: an integer that remembers how it is spelled over dimension names."""

    text: str

    def __new__(cls, value: int, text: str) -> Dim:
        """``value``, spelled ``text``."""
        self = int.__new__(cls, value)
        self.text = text
        return self

    @property
    def dtype(self) -> dtype:
        """int32, as a runtime dimension has it."""
        return dtype("int32")

    def astype(self, to: Any) -> Value:
        """The number as a constant of a dtype."""
        return cast_value(self, dtype(to))

    # fmt: off
    def __add__(self, other: Any) -> Any: return _named("+", self, other)
    def __radd__(self, other: Any) -> Any: return _named("+", other, self)
    def __sub__(self, other: Any) -> Any: return _named("-", self, other)
    def __rsub__(self, other: Any) -> Any: return _named("-", other, self)
    def __mul__(self, other: Any) -> Any: return _named("*", self, other)
    def __rmul__(self, other: Any) -> Any: return _named("*", other, self)
    def __floordiv__(self, other: Any) -> Any: return _named("//", self, other)
    def __rfloordiv__(self, other: Any) -> Any: return _named("//", other, self)
    def __mod__(self, other: Any) -> Any: return _named("%", self, other)
    def __rmod__(self, other: Any) -> Any: return _named("%", other, self)
    # fmt: on


class Deferred(Arithmetic):
    """A computation on symbols that were made while a module was imported; it gets its meaning per kernel:
    ``call`` has the function and its arguments."""

    __slots__ = ("_args", "_make")

    def __init__(self, make: Callable[..., Any], *args: Any) -> None:
        self._make = make
        self._args = args

    @property
    def call(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """What is computed."""
        return self._make, self._args

    def resolve(self) -> Any:
        """The `Dim` or `Value` that it stands for in the kernel being built."""
        return self._make(*(resolve(arg) for arg in self._args))

    def astype(self, to: Any) -> Value:
        """The dimension cast to another dtype."""
        return cast_value(self._needed(), dtype(to))

    def __bool__(self) -> bool:
        return bool(self._needed())

    def __index__(self) -> int:
        return operator.index(self._needed())

    def _needed(self) -> Any:
        if not sessions.active():
            raise source_error(
                SourceRuntimeError,
                "a symbolic dimension has no value outside a kernel",
                remedy="compute with it inside the kernel or its factory",
            )
        return self.resolve()


def resolve(value: Any) -> Any:
    """``value`` itself, what a symbol made at import stands for in the kernel being built, or the value of an
    expression that TVM's own functions made."""
    if isinstance(value, Deferred):
        return value.resolve() if sessions.active() else value
    return _adopted(value) if type(value).__module__.startswith("tvm") else value


def _adopted(value: Any) -> Any:
    """TVM's comparisons are objects that have yet to become expressions."""
    from tvm.ir import Expr

    made = value.asobject() if hasattr(value, "asobject") else value
    return Value(made) if isinstance(made, Expr) else value


def is_number(value: Any) -> bool:
    """Whether ``value`` is a Python or NumPy number."""
    return isinstance(value, (bool, int, float, Real)) or type(value).__name__ == "bool_"


def is_symbolic(*values: Any) -> bool:
    """Whether any of the values is an expression or a symbol."""
    return any(isinstance(value, (Value, Deferred)) for value in values)


def text_of(value: Any) -> str | None:
    """How ``value`` is spelled over dimension names; None if it depends on anything else."""
    if isinstance(value, (Dim, Value)):
        return value.text
    return str(int(value)) if isinstance(value, int) and not isinstance(value, bool) else None


def plain(value: Any) -> Any:
    """What TVM's operators take for an operand: an expression or a plain Python number."""
    if isinstance(value, Value):
        return value.expr
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return bool(value)
    if isinstance(value, (int, Integral)):
        return int(value)
    return float(value)


def apply(symbol: str, left: Any, right: Any) -> Any:
    """``left symbol right`` for any mix of numbers, dimensions, expressions and symbols."""
    if not sessions.active() and (_is_deferred(left) or _is_deferred(right)):
        return Deferred(apply, symbol, left, right)
    left, right = _operand(resolve(left)), _operand(resolve(right))
    if isinstance(left, Vector) or isinstance(right, Vector):
        return _lane_by_lane(symbol, left, right)
    if not (_is_operand(left) and _is_operand(right)):
        return _identity(symbol, left, right)
    if isinstance(left, Value) or isinstance(right, Value):
        return _expression(symbol, left, right)
    return _named(symbol, left, right) if isinstance(left, int) else _python(symbol)(left, right)


def _operand(value: Any) -> Any:
    """What is computed with where ``value`` stands: of a slice its elements as a vector."""
    vector = getattr(value, "vector", None)
    return value if vector is None else vector()


def _lane_by_lane(symbol: str, left: Any, right: Any) -> Any:
    """An operation of vectors of one length, or of a vector and a scalar."""
    counts = {len(side.lanes) for side in (left, right) if isinstance(side, Vector)}
    if len(counts) > 1:
        raise source_error(
            SourceTypeError,
            f"operator {symbol} does not take {left.dtype} and {right.dtype}",
            remedy="give both as many lanes",
        )
    (count,) = counts
    sides = [side.lanes if isinstance(side, Vector) else (side,) * count for side in (left, right)]
    return Vector(tuple(apply(symbol, a, b) for a, b in zip(*sides, strict=True)))


def invert(value: Any) -> Any:
    """``~value``; of a bool the negation."""
    from tvm import tirx

    if isinstance(value, Vector):
        return Vector(tuple(map(invert, value.lanes)))
    value = wrap(value)
    if value.dtype == "bool":
        return Value(tirx.Not(value.expr))
    if value.dtype.row.is_float:
        raise source_error(
            SourceTypeError, f"operator ~ does not take {value.dtype}", remedy="use T.reinterpret first"
        )
    return Value(tirx.bitwise_not(value.expr))


def absolute(value: Any) -> Any:
    """The absolute value; of 8-bit floats computed in float32."""
    from tvm import tirx

    if isinstance(value, Vector):
        return Vector(tuple(map(absolute, value.lanes)))
    value = wrap(value)
    row = value.dtype.row
    if row.is_float and row.bits == 8:
        return cast_value(absolute(cast_value(value, dtype("float32"))), value.dtype)
    return value if row.kind in ("uint", "bool") else Value(tirx.abs(value.expr))


def negative(value: Any) -> Any:
    """``-value``."""
    if isinstance(value, Vector):
        return Vector(tuple(negative(lane) for lane in value.lanes))
    if not isinstance(value, Value):
        return -value
    if value.dtype == "bool":
        raise source_error(
            SourceTypeError, "unary minus on a bool", remedy="use `not`, or cast to an integer first"
        )
    if value.dtype.row.is_float and value.dtype.bits == 8:
        return cast_value(negative(cast_value(value, dtype("float32"))), value.dtype)
    if value.dtype.startswith("uint"):
        return Value(cast_value(0, value.dtype).expr - value.expr)
    return Value(-value.expr, text=_text("-", 0, value))


def check_alive(frame: Frame | None, name: str) -> None:
    """Raise `SourceRuntimeError` if the region that defines ``name`` is closed."""
    if frame is None or frame.open:
        return
    raise source_error(
        SourceRuntimeError,
        f"{name} is used outside its defining region",
        why=f"it was made inside the {frame.kind} region of line {frame.loc.line}, which has ended",
        remedy="make a T.alloc_var (or the buffer) before the region and assign to it inside",
    )


def _is_deferred(value: Any) -> bool:
    return isinstance(value, Deferred)


def _is_operand(value: Any) -> bool:
    return isinstance(value, Value) or is_number(value)


def _identity(symbol: str, left: Any, right: Any) -> Any:
    """Comparisons with None, strings and the like are Python's; everything else is a type error."""
    if symbol in ("==", "!="):
        return (left is right) == (symbol == "==")
    other = right if _is_operand(left) else left
    if symbol not in _CALLED and isinstance(other, (str, list, tuple, dict, type(None))):
        raise source_error(
            SourceTypeError,
            f"operator {symbol} does not take an expression and {other!r}",
            remedy="compute with numbers and expressions; f-strings show expressions while building",
        )
    if symbol not in _CALLED:
        return NotImplemented
    raise source_error(
        SourceTypeError,
        f"T.{symbol} takes numbers and expressions, not {type(other).__name__}",
        construct=f"T.{symbol}",
        remedy=f"use T.{symbol} on elements in a T.Parallel loop, T.reduce_{symbol} on a tile",
    )


def _python(symbol: str) -> Callable[[Any, Any], Any]:
    function: Callable[[Any, Any], Any] = _CALLED.get(symbol) or _OPS[symbol]
    return function


def _named(symbol: str, left: Any, right: Any) -> Any:
    """Arithmetic of pinned dimensions with integers: a `Dim` while both sides have a text."""
    if not (isinstance(left, int) and isinstance(right, int)):
        return (
            NotImplemented
            if isinstance(left, Arithmetic) or isinstance(right, Arithmetic)
            else _python(symbol)(_unnamed(left), _unnamed(right))
        )
    result = _python(symbol)(int(left), int(right))
    text = _text(symbol, left, right)
    named = isinstance(left, Dim) or isinstance(right, Dim)
    return Dim(result, text) if named and text is not None else result


def _unnamed(value: Any) -> Any:
    return int(value) if isinstance(value, Dim) else value


def _expression(symbol: str, left: Any, right: Any) -> Value:
    if _is_bool(left) and _is_bool(right) and symbol in _OF_NUMBERS:
        raise source_error(
            SourceTypeError,
            f"operator {symbol} does not take bool and bool",
            remedy="use & | ^ on conditions, or cast one side: T.cast(x, 'int32')",
        )
    if _meets_small_float(left, right):
        return _small_float(symbol, left, right)
    try:
        result = _tvm(symbol)(plain(left), plain(right))
    except SourceError:
        raise
    except Exception as error:  # TVM reports operand errors in many classes
        raise operand_error(symbol, _types(left, right), right, error) from error
    if symbol in ("==", "!="):
        result = result.asobject()
    return Value(result, text=_text(symbol, left, right))


def _is_bool(value: Any) -> bool:
    return value.dtype == "bool" if isinstance(value, Value) else isinstance(value, bool)


def _meets_small_float(*values: Any) -> bool:
    """Whether operands meet in an 8-bit float: one is of that kind and none is a wider float."""
    rows = [value.dtype.row for value in values if isinstance(value, Value)]
    wide = any(row.is_float and row.bits > 8 for row in rows) or any(isinstance(v, float) for v in values)
    return not wide and any(row.is_float and row.bits == 8 for row in rows)


def _small_float(symbol: str, left: Any, right: Any) -> Value:
    """An operation on 8-bit floats: computed in float32 and rounded back; comparisons are exact."""
    kinds = {value.dtype for value in (left, right) if isinstance(value, Value) and value.dtype.row.is_float}
    if len(kinds) != 1 or symbol not in _FLOAT_OPS:
        error = TypeError("8-bit floats meet their own kind and integers")
        raise operand_error(symbol, _types(left, right), right, error)
    (kind,) = kinds
    wide = (cast_value(cast_value(value, kind), dtype("float32")) for value in (left, right))
    result = _expression(symbol, *wide)
    return result if result.dtype == "bool" else cast_value(result, kind)


def _tvm(symbol: str) -> Callable[[Any, Any], Any]:
    if symbol not in _CALLED:
        return _OPS[symbol]
    from tvm import tirx

    function: Callable[[Any, Any], Any] = tirx.min if symbol == "min" else tirx.max
    return function


def _text(symbol: str, left: Any, right: Any) -> str | None:
    a, b = text_of(left), text_of(right)
    if a is None or b is None:
        return None
    if symbol in _CALLED:
        return f"{symbol}({a}, {b})"
    if symbol not in _TEXT_OPS:
        return None
    return f"{_bracketed(a)} {symbol} {_bracketed(b)}"


def _bracketed(text: str) -> str:
    return text if _ATOM.fullmatch(text) else f"({text})"


def _types(*values: Any) -> str:
    """The dtypes of operands as errors show them."""
    return " and ".join(str(value.dtype) if isinstance(value, Value) else repr(value) for value in values)


# ---- conversions ----


def expression(value: Any, construct: str = "an operand") -> Expr:
    """``value`` as an expression: integers become int32 (int64 if they need it), floats float32."""
    value = resolve(value)
    if isinstance(value, Value):
        return value.expr
    if not is_number(value):
        raise no_operand(construct, value)
    return casts.constant(plain(value), casts.natural(plain(value)))


def wrap(value: Any) -> Value:
    """``value`` as a `Value`."""
    value = resolve(value)
    return value if isinstance(value, Value) else Value(expression(value))


def stored_value(value: Any, to: str, construct: str = "a store") -> Expr:
    """``value`` cast as a store into a ``to`` element casts it: numbers wrap, floats truncate toward zero."""
    value = resolve(value)
    to = element_of(dtype(to)) if to == "tfloat32" else to
    if isinstance(value, Value):
        return casts.cast(value.expr, to)
    if not is_number(value):
        raise no_operand(construct, value)
    return casts.constant(casts.wrap_number(plain(value), dtype(to).row), to)


def cast_value(value: Any, to: dtype) -> Value:
    """``T.cast``: by the store rules; a cast to the own dtype is the value itself."""
    value = resolve(value)
    if isinstance(value, Value) and value.dtype == to:
        return value
    return Value(stored_value(value, to, "T.cast"))


def no_operand(construct: str, value: Any) -> SourceError:
    """The error for something that is neither a number nor an expression."""
    kind = type(value).__name__
    tile = kind in ("Buffer", "Slice")
    return source_error(
        SourceTypeError,
        f"{construct} takes numbers and expressions, not {'a whole tile' if tile else kind}",
        remedy="give elements, A[i, j], in a T.Parallel loop" if tile else "give a number or an expression",
    )


def lanes_of(value: Any, count: int) -> tuple[Any, ...]:
    """The lanes of a vector of ``count``; a scalar in each of them."""
    if not isinstance(value, Vector):
        return (value,) * count
    if len(value.lanes) == count:
        return value.lanes
    raise source_error(
        SourceValueError,
        f"a vector of {len(value.lanes)} lanes stands where {count} are needed",
        remedy="use vectors of one width, or scalars, which are broadcast",
    )


def cast_vector(value: Any, kind: dtype) -> Any:
    """A vector cast lane by lane, a scalar to all lanes; ``kind`` names a scalar or a vector dtype."""
    count = len(value.lanes) if isinstance(value, Vector) else kind.lanes
    if kind.lanes not in (1, count):
        raise source_error(
            SourceValueError,
            f"a vector of {count} lanes cannot be cast to {kind}",
            remedy="cast to a dtype of as many lanes",
        )
    return Vector(tuple(cast_value(lane, element_of(kind)) for lane in lanes_of(value, count)))
