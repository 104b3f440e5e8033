"""The operators of values as Python calls them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from tilec.errors import SourceError, SourceTypeError
from tilec.language.values.kernel.namespace import namespace
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.other_names import INSTEAD
from tilec.language.values.scalars import dtype

if TYPE_CHECKING:
    from tilec.language.values.value import Value

_OF_NUMPY = {
    "add": "+", "subtract": "-", "multiply": "*", "divide": "/", "floor_divide": "//", "remainder": "%",
    "left_shift": "<<", "right_shift": ">>", "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^",
    "less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "==", "not_equal": "!=",
}  # fmt: skip

#: What stands for functions of NumPy; T.where is refused.
_OF_ELEMENTS = {**INSTEAD, "where": "T.if_then_else"}

#: NumPy's reductions by the functions that they repeat.
_REDUCTIONS = {"add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min"}


def _in_place_of(name: str, whole: bool, instead: Mapping[str, str]) -> str:
    """What to write for a function of NumPy; of a ``whole`` array for one of that name."""
    own = f"T.{name}" if not whole and hasattr(namespace(), name) else None
    found = instead.get(name, own)
    return f"use {found}" if found else "compute on elements in a T.Parallel loop"


def no_array(name: str, what: str, *, whole: bool, instead: Mapping[str, str] = _OF_ELEMENTS) -> SourceError:
    """NumPy's function ``name`` was given ``what`` of the language, which is no array; ``instead`` of it
    something else stands for elements, or for a ``whole`` tile."""
    return source_error(
        SourceTypeError,
        f"np.{name} does not take {what}",
        why=f"NumPy computes while the kernel is built, when {what} has no value yet",
        remedy=_in_place_of(name, whole, instead),
    )


@dataclass(frozen=True)
class Rules:
    """What operators and casts do: ``apply`` is any operator of two sides, ``named`` one of a `Dim`. They are
    in `operators`, which computes with the classes that have operators."""

    apply: Callable[[str, Any, Any], Any]
    named: Callable[[str, Any, Any], Any]
    negative: Callable[[Any], Any]
    invert: Callable[[Any], Any]
    absolute: Callable[[Any], Any]
    cast_value: Callable[[Any, dtype], Value]
    cast_vector: Callable[[Any, dtype], Any]


class Arithmetic:
    """The operators of expressions, vectors and symbols."""

    __slots__ = ()
    rules: ClassVar[Rules]

    # fmt: off
    def __add__(self, other: Any) -> Any: return self.rules.apply("+", self, other)
    def __radd__(self, other: Any) -> Any: return self.rules.apply("+", other, self)
    def __sub__(self, other: Any) -> Any: return self.rules.apply("-", self, other)
    def __rsub__(self, other: Any) -> Any: return self.rules.apply("-", other, self)
    def __mul__(self, other: Any) -> Any: return self.rules.apply("*", self, other)
    def __rmul__(self, other: Any) -> Any: return self.rules.apply("*", other, self)
    def __truediv__(self, other: Any) -> Any: return self.rules.apply("/", self, other)
    def __rtruediv__(self, other: Any) -> Any: return self.rules.apply("/", other, self)
    def __floordiv__(self, other: Any) -> Any: return self.rules.apply("//", self, other)
    def __rfloordiv__(self, other: Any) -> Any: return self.rules.apply("//", other, self)
    def __mod__(self, other: Any) -> Any: return self.rules.apply("%", self, other)
    def __rmod__(self, other: Any) -> Any: return self.rules.apply("%", other, self)
    def __lshift__(self, other: Any) -> Any: return self.rules.apply("<<", self, other)
    def __rlshift__(self, other: Any) -> Any: return self.rules.apply("<<", other, self)
    def __rshift__(self, other: Any) -> Any: return self.rules.apply(">>", self, other)
    def __rrshift__(self, other: Any) -> Any: return self.rules.apply(">>", other, self)
    def __and__(self, other: Any) -> Any: return self.rules.apply("&", self, other)
    def __rand__(self, other: Any) -> Any: return self.rules.apply("&", other, self)
    def __or__(self, other: Any) -> Any: return self.rules.apply("|", self, other)
    def __ror__(self, other: Any) -> Any: return self.rules.apply("|", other, self)
    def __xor__(self, other: Any) -> Any: return self.rules.apply("^", self, other)
    def __rxor__(self, other: Any) -> Any: return self.rules.apply("^", other, self)
    def __lt__(self, other: Any) -> Any: return self.rules.apply("<", self, other)
    def __le__(self, other: Any) -> Any: return self.rules.apply("<=", self, other)
    def __gt__(self, other: Any) -> Any: return self.rules.apply(">", self, other)
    def __ge__(self, other: Any) -> Any: return self.rules.apply(">=", self, other)
    def __eq__(self, other: Any) -> Any: return self.rules.apply("==", self, other)
    def __ne__(self, other: Any) -> Any: return self.rules.apply("!=", self, other)
    # fmt: on

    __hash__ = object.__hash__

    def __divmod__(self, other: Any) -> tuple[Any, Any]:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> tuple[Any, Any]:
        return other // self, other % self

    def __pos__(self) -> Any:
        return self

    def __neg__(self) -> Any:
        return self.rules.negative(self)

    def __invert__(self) -> Any:
        return self.rules.invert(self)

    def __abs__(self) -> Any:
        return self.rules.absolute(self)

    def __pow__(self, other: Any, modulus: Any = None) -> Any:
        remedy = "use T.pow" if modulus is None else "multiply, and take the remainder with %"
        raise unsupported("operator ** on expressions", remedy=remedy)

    __rpow__ = __pow__

    def __matmul__(self, other: Any) -> Any:
        raise unsupported("operator @ on expressions", remedy="use T.gemm")

    def __array_ufunc__(self, function: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """An operator whose other side is a number of NumPy; NumPy's functions are for arrays."""
        symbol, arrays = _OF_NUMPY.get(function.__name__), any(getattr(side, "ndim", 0) for side in inputs)
        if symbol is not None and method == "__call__" and not arrays:
            left, right = (side.item() if hasattr(side, "item") else side for side in inputs)
            return self.rules.apply(symbol, left, right)
        name = _REDUCTIONS.get(function.__name__, "sum") if method == "reduce" else function.__name__
        raise no_array(name, "an expression", whole=method == "reduce")

    def __array_function__(self, function: Any, types: Any, args: Any, options: Any) -> Any:
        """NumPy's functions are for arrays."""
        raise no_array(function.__name__, "an expression", whole=False)

    def __round__(self, digits: int | None = None) -> Any:
        raise source_error(SourceTypeError, "round() does not take an expression", remedy="use T.round")

    def __iter__(self) -> Iterator[Any]:
        raise source_error(
            SourceTypeError, "an expression cannot be iterated", remedy="loop with T.serial or T.Parallel"
        )
