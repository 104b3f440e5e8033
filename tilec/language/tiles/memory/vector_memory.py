"""Vectors in memory: buffers whose elements are vectors, and reads and writes of 32 to 256 bits at once.

A buffer of vectors is one of scalars with an axis more, that of the lanes, which authors do not see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.language.tiles.memory.buffers import Buffer, Element, Slice
from tilec.language.values.functions.intrinsics import if_then_else
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import cast_value, cast_vector, expression, lanes_of, wrap
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Loaded, Value, Vector, Word
from tilec.language.values.vectors import reinterpret_bits

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Names of the language -> bits that they move.
_WIDTHS = {"ldg": (32, 64, 128, 256), "stg": (32, 64, 128, 256), "lds": (32, 64, 128), "sts": (32, 64, 128)}


def _run(place: Any, count: int, construct: str) -> list[Element]:
    """``count`` elements from a place on, along the last axis."""
    if isinstance(place, Buffer):
        place = place[(0,) * len(place.shape)]
    elif isinstance(place, Slice):
        place = place.buffer.element(place.starts)
    if not isinstance(place, Element):
        raise source_error(
            SourceTypeError, f"{construct} takes an element or a region", remedy="write A[i] or A[i:j]"
        )
    buffer, indices = place.place
    last = Value(indices[-1])
    return [buffer.element((*indices[:-1], expression(apply("+", last, lane)))) for lane in range(count)]


def _count(place: Any, bits: int, construct: str) -> int:
    kind = place.buffer.dtype if isinstance(place, (Element, Slice)) else place.dtype
    if bits % kind.bits:
        raise source_error(
            SourceValueError,
            f"{construct} does not move whole elements of {kind}",
            remedy="use a width of whole elements, or index the buffer",
        )
    return int(bits // kind.bits)


def _loader(name: str, bits: int) -> Callable[..., Any]:
    words = make_dtype("uint32" if bits == 32 else f"uint32x{bits // 32}")

    def load(src: Any, pred: Any = None) -> Any:
        elements = _run(src, _count(src, bits, f"T.{name}"), f"T.{name}")
        found = [Value(element.expr) for element in elements]
        if pred is not None:
            found = [if_then_else(pred, value, cast_value(0, value.dtype)) for value in found]
        made = reinterpret_bits(Vector(tuple(found)) if len(found) > 1 else found[0], words)
        kind = elements[0].buffer.dtype
        return Loaded(made.lanes, kind) if isinstance(made, Vector) else Word(made, kind)

    load.__name__ = load.__qualname__ = name
    load.__doc__ = f"{bits} bits from an element on, as {words}; 0 where ``pred`` is false."
    return load


def _storer(name: str, bits: int) -> Callable[..., None]:
    words = make_dtype("uint32" if bits == 32 else f"uint32x{bits // 32}")

    def store(dst: Any, value: Any, pred: Any = None) -> None:
        elements = _run(dst, _count(dst, bits, f"T.{name}"), f"T.{name}")
        kind = elements[0].buffer.dtype
        given = _as_words(value, words)
        target = make_dtype(str(kind) if len(elements) == 1 else f"{kind}x{len(elements)}")
        found = reinterpret_bits(given, target)
        for element, lane in zip(elements, lanes_of(found, len(elements)), strict=True):
            element.store(lane if pred is None else if_then_else(pred, lane, Value(element.expr)))

    store.__name__ = store.__qualname__ = name
    store.__doc__ = f"Writes {bits} bits ({words}) from an element on, where ``pred`` holds."
    return store


def _as_words(value: Any, words: make_dtype) -> Any:
    """What is written: the bits of a value of that width, else numbers as words."""
    if isinstance(value, Slice):
        value = value.vector()
    if isinstance(value, Value) and value.dtype.bits == words.bits * words.lanes:
        return reinterpret_bits(value, words)
    if not isinstance(value, Vector):
        return cast_value(value, words)
    same_width = value.dtype.bits * len(value.lanes) == words.bits * words.lanes
    return reinterpret_bits(value, words) if same_width else cast_vector(value, words)


def ldg(src: Any, index: Any = None) -> Value:
    """``T.__ldg(A[i])`` or ``T.__ldg(A, i)``: a read of the element."""
    if index is None and not isinstance(src, Element):
        raise source_error(SourceTypeError, "T.__ldg takes an element", remedy="write T.__ldg(A[i])")
    return wrap(src if index is None else src[index])


def dp4a(a: Any, b: Any, c: Any) -> None:
    """``C[0] += `` the dot product of the four int8 that start at ``a`` and at ``b``; ``c`` is int32."""
    left, right = _run(a, 4, "T.dp4a"), _run(b, 4, "T.dp4a")
    (total,) = _run(c, 1, "T.dp4a")
    found = [str(run[0].buffer.dtype) for run in (left, right, [total])]
    if found != ["int8", "int8", "int32"]:
        raise source_error(
            SourceValueError,
            f"T.dp4a of {found[0]} and {found[1]} into {found[2]}",
            construct="T.dp4a",
            remedy="give int8, int8 and int32",
        )
    wide = make_dtype("int32")
    result: Any = Value(total.expr)
    for x, y in zip(left, right, strict=True):
        result = apply("+", result, apply("*", cast_value(x, wide), cast_value(y, wide)))
    total.store(result)


class VectorBuffer(Buffer):
    """A buffer of vectors: ``inner`` has the lanes as its last axis."""

    def __init__(self, inner: Buffer, kind: make_dtype) -> None:
        super().__init__(inner._var, inner.shape[:-1], frame=inner.frame)
        self.inner = inner
        self.dtype = kind

    def region(self, starts: tuple[Expr, ...], extents: tuple[Any, ...], axes: tuple[int, ...]) -> Slice:
        """A slice of the lanes, indexed by vectors."""
        lanes = self.inner.shape[-1]
        return Slice(self.inner, (*starts, expression(0)), (*extents, lanes), axes, self)

    def scalars(self) -> Buffer:
        """The lanes."""
        return self.inner

    def element(self, indices: Any) -> Any:
        """The vector at a place."""
        return Vector(
            tuple(self.inner.element((*indices, expression(lane))) for lane in range(self.dtype.lanes))
        )


def of_vectors(buffer: Buffer, kind: make_dtype) -> Buffer:
    """The buffer as one of ``kind``: of vectors that are its last axis, or as it is for a scalar dtype."""
    return buffer if kind.lanes == 1 else VectorBuffer(buffer, kind)


#: Every function of this module that the T namespace offers, by name.
FUNCTIONS: dict[str, Callable[..., Any]] = {
    **{f"{word}{bits}": _loader(f"{word}{bits}", bits) for word in ("ldg", "lds") for bits in _WIDTHS[word]},
    **{f"{word}{bits}": _storer(f"{word}{bits}", bits) for word in ("stg", "sts") for bits in _WIDTHS[word]},
    "__ldg": ldg,
    "dp4a": dp4a,
}
