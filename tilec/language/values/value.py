"""Values of the language: expressions, vectors, pinned dimensions that keep their name, and symbols made at
import. `operators` says what their operators do, `operands` what they become where something takes them."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceRuntimeError, SourceTypeError, SourceValueError
from tilec.language.values.arithmetic import Arithmetic
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operand_errors import FOR_A_NUMBER, FOR_AN_INDEX, FOR_TRUTH, lacking, no_number
from tilec.language.values.scalars import dtype

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.language.values.kernel.builder import Frame

_LITERAL = re.compile(r"T\.\w+\((-?[\d.]+(?:e[-+]?\d+)?)\)")  # as TVM writes numbers with their types

#: What to do where a value is to outlive the region that makes it.
IN_FRONT = "make a T.alloc_var (or the buffer) before the region and assign to it inside"


#: What stands for attributes that tensors of one element, and indices of CUDA, have.
_OF_NUMBERS = {
    "to": "astype", "float": "astype", "item": "it as it is", "shape": "the shape of its buffer",
    **dict.fromkeys("xyz", "a name for each axis, as in `with T.Kernel(...) as (bx, by)`"),
}  # fmt: skip


class Value(Arithmetic):
    """An expression: depends on loop or block indices, runtime scalars, runtime dimensions or elements.

    ``text`` spells it over dimension names where it depends on those alone; ``frame`` is the region outside
    of which a bound name is dead; ``depth``, of results of operators, how many of them stand inside of each
    other."""

    __slots__ = ("_expr", "depth", "frame", "text")
    depth: int

    def __init__(self, expr: Expr, *, text: str | None = None, frame: Frame | None = None) -> None:
        self._expr = expr
        self.text = text
        self.frame = frame

    @property
    def expr(self) -> Expr:
        """TVM's expression. Raises `SourceRuntimeError` outside the region that the name belongs to."""
        check_alive(self.frame, self._expr)
        return self._expr

    @property
    def dtype(self) -> dtype:
        """The dtype of the value."""
        return dtype(str(self.expr.ty.dtype))

    def astype(self, to: Any) -> Value:
        """The value cast to another dtype."""
        return Arithmetic.rules.cast_value(self, dtype(to))

    def __getattr__(self, name: str) -> Any:
        raise lacking("an expression", name, _OF_NUMBERS)

    def __copy__(self) -> Value:
        """Expressions never change."""
        return self

    def __deepcopy__(self, memo: Any) -> Value:
        return self

    def __tvm_ffi_value__(self) -> Expr:
        """What TVM's functions take for it."""
        return self.expr

    def __bool__(self) -> bool:
        known = sessions.prove(self.expr)
        if known is None:
            what = "the truth value of an expression is not known while building"
            raise no_number(SourceValueError, self.text, repr(self), what, FOR_TRUTH)
        return known

    def __index__(self) -> int:
        return self._integer(FOR_AN_INDEX)

    def __int__(self) -> int:
        return self._integer(FOR_A_NUMBER)

    def _integer(self, remedy: str) -> int:
        known = sessions.constant(self.expr)
        if known is None:
            what = "an expression is no Python integer"
            raise no_number(SourceTypeError, self.text, repr(self), what, remedy)
        return known

    def __float__(self) -> float:
        raise no_number(
            SourceTypeError, self.text, repr(self), "an expression is no Python float", FOR_A_NUMBER
        )

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
        return Arithmetic.rules.cast_vector(self, dtype(to))

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
        return Arithmetic.rules.cast_value(self, dtype(to))

    # fmt: off
    def __add__(self, other: Any) -> Any: return Arithmetic.rules.named("+", self, other)
    def __radd__(self, other: Any) -> Any: return Arithmetic.rules.named("+", other, self)
    def __sub__(self, other: Any) -> Any: return Arithmetic.rules.named("-", self, other)
    def __rsub__(self, other: Any) -> Any: return Arithmetic.rules.named("-", other, self)
    def __mul__(self, other: Any) -> Any: return Arithmetic.rules.named("*", self, other)
    def __rmul__(self, other: Any) -> Any: return Arithmetic.rules.named("*", other, self)
    def __floordiv__(self, other: Any) -> Any: return Arithmetic.rules.named("//", self, other)
    def __rfloordiv__(self, other: Any) -> Any: return Arithmetic.rules.named("//", other, self)
    def __mod__(self, other: Any) -> Any: return Arithmetic.rules.named("%", self, other)
    def __rmod__(self, other: Any) -> Any: return Arithmetic.rules.named("%", other, self)
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
        return Arithmetic.rules.cast_value(self._needed(), dtype(to))

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


def are_several(value: Any) -> bool:
    """Whether a value is what a launch or a loop of several axes gives under one name."""
    return isinstance(value, (list, tuple)) and len(value) > 1 and all(isinstance(x, Value) for x in value)


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


def as_int(value: Any) -> Any:
    """An integer of NumPy (as its products of shapes are) as one of Python; everything else as it is."""
    return int(value) if isinstance(value, Integral) and not isinstance(value, int) else value


def plain(value: Any) -> Any:
    """What TVM's operators take for an operand: an expression or a plain Python number."""
    if isinstance(value, Value):
        return value.expr
    if isinstance(value, bool) or type(value).__name__ == "bool_":
        return bool(value)
    if isinstance(value, (int, Integral)):
        return int(value)
    return float(value)


def check_alive(frame: Frame | None, name: object) -> None:
    """Raise `SourceRuntimeError` if the region that defines ``name`` (what is written as that) is closed."""
    if frame is None or frame.open:
        return
    raise source_error(
        SourceRuntimeError,
        outlived(name),
        why=f"it was made inside the {frame.kind} region of line {frame.loc.line}, which has ended",
        remedy=IN_FRONT,
    )


def outlived(name: object) -> str:
    """What is wrong where a name is used behind its region."""
    return f"{name} is used outside its defining region"
