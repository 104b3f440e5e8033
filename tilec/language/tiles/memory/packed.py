"""Buffers of dtypes that nothing computes with: int4, uint4 and float4_e2m1fn, two elements a byte with the
first one in the low nibble, and float8_e8m0fnu.

Memory holds bytes; an element is computed with as int8, uint8, float16 or float32, which hold it exactly.
Copies between buffers of one such dtype move bytes.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceValueError
from tilec.ir.nodes.threads import PER_THREAD
from tilec.language.tiles.memory.boxes import Box
from tilec.language.tiles.memory.buffers import Buffer, Element
from tilec.language.tiles.memory.vector_memory import of_vectors
from tilec.language.tiles.memory.views import View
from tilec.language.values.functions.small_numbers import FLOAT4, decoded, encoded
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operands import cast_value, expression
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.scalars import element_of
from tilec.language.values.value import Value

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

_BYTE = make_dtype("uint8")
_EXPONENTS = make_dtype("float8_e8m0fnu")


def memory_type(kind: make_dtype) -> make_dtype:
    """The dtype of the elements that memory has for ``kind``."""
    element = element_of(kind)
    return _BYTE if element.bits < 8 or element == _EXPONENTS else element


def memory_shape(shape: tuple[Any, ...], kind: make_dtype, construct: str) -> tuple[Any, ...]:
    """The shape of that memory: an axis of lanes more for vectors, half the last axis for half bytes."""
    full = shape if kind.lanes == 1 else (*shape, kind.lanes)
    if kind.bits >= 8:
        return full
    if isinstance(full[-1], int) and full[-1] % 2:
        raise source_error(
            SourceValueError,
            f"{construct} of {kind} has a last axis of {full[-1]}",
            construct=construct,
            why="two elements share a byte",
            remedy="give it an even number of elements",
        )
    return (*full[:-1], full[-1] // 2)


def of_kind(memory: Buffer, shape: tuple[Any, ...], kind: make_dtype) -> Buffer:
    """The buffer that authors see of ``memory``, which has `memory_type` and `memory_shape`."""
    full, element = shape if kind.lanes == 1 else (*shape, kind.lanes), element_of(kind)
    if element == _EXPONENTS:
        return of_vectors(Exponents(memory, full, element), kind)
    return of_vectors(Packed(memory, full, element) if kind.bits < 8 else memory, kind)


class InBytes(View):
    """``root``'s bytes as elements of a dtype that nothing computes with."""

    def __init__(self, root: Buffer, shape: tuple[Any, ...], kind: make_dtype) -> None:
        super().__init__(root, shape)
        self.dtype = kind

    @property
    def memory(self) -> Var:
        """TVM's buffer of bytes."""
        return self.root.var

    def bytes_of(self, box: Box) -> Box:
        """A box of elements as one of bytes."""
        return Box(self.root, box.starts, box.extents)

    def byte_of(self, value: int | float) -> int:
        """The byte that holds a number, in every element."""
        raise NotImplementedError


class Exponents(InBytes):
    """``root``'s bytes as float8_e8m0fnu: powers of two, 2^(byte - 127), and NaN for 255."""

    def element(self, indices: tuple[Expr, ...]) -> Element:
        """One element."""
        return _ExponentElement(self, indices)

    def byte_of(self, value: int | float) -> int:
        """The nearest power of two, the larger one in the middle."""
        if not value > 0:
            return 0 if value == 0 else 255
        fraction, exponent = math.frexp(value)
        return max(0, min(254, exponent + 126 + (fraction >= 0.75)))


class _ExponentElement(Element):
    """An element of a buffer of powers of two."""

    __slots__ = ("_place",)

    is_plain = False

    def __init__(self, view: Exponents, indices: tuple[Expr, ...]) -> None:
        super().__init__(view.root, indices)
        self._place = view, indices

    @property
    def place(self) -> tuple[Buffer, tuple[Expr, ...]]:
        """The buffer and the indices as the author gave them."""
        return self._place

    @property
    def dtype(self) -> Any:
        """What the element is computed as."""
        return make_dtype("float32")

    @property
    def expr(self) -> Expr:
        """The power of two as float32."""
        found: Expr = decoded(Value(super().expr), _EXPONENTS).expr
        return found

    def store(self, value: Any) -> None:
        """Write the nearest power of two, the larger one in the middle; NaN for what is negative or no
        number."""
        super().store(encoded(value, _EXPONENTS))


class Packed(InBytes):
    """``root``'s bytes as elements of four bits."""

    def element(self, indices: tuple[Expr, ...]) -> Element:
        """One element."""
        return _PackedElement(self, indices)

    def byte_of(self, value: int | float) -> int:
        """Of two elements that hold a number: a float4 the nearest, ties to an even code."""
        if not self.dtype.row.is_float:
            return (int(value) & 15) * 17
        magnitude = abs(float(value))
        code = min(range(8), key=lambda each: (abs(FLOAT4[each] - magnitude), each % 2))
        return (code | (8 if math.copysign(1, value) < 0 else 0)) * 17

    def bytes_of(self, box: Box) -> Box:
        """A box of elements as one of bytes. Raises `UnsupportedError` where it does not begin and end
        between bytes for certain."""
        assert box.extents is not None
        start, extent = Value(box.starts[-1]), box.extents[-1]
        if not (_is_even(start) and _is_even(extent if isinstance(extent, int) else Value(extent))):
            raise unsupported(
                f"a copy of {self.name} that does not move whole bytes",
                why=f"two {self.dtype} share a byte",
                remedy="begin and end at even columns",
            )
        first = sessions.simplify(apply("//", start, 2).expr)
        half = extent // 2 if isinstance(extent, int) else sessions.simplify(extent // expression(2))
        return Box(self.root, (*box.starts[:-1], first), (*box.extents[:-1], half))


class _PackedElement(Element):
    """An element of four bits of a byte."""

    __slots__ = ("_place", "_shift")

    is_plain = False

    def __init__(self, view: Packed, indices: tuple[Expr, ...]) -> None:
        last = Value(indices[-1])
        byte = sessions.simplify(apply("//", last, 2).expr)
        super().__init__(view.root, (*indices[:-1], byte))
        self._place = view, indices
        odd = cast_value(Value(sessions.simplify(apply("%", last, 2).expr)), _BYTE)
        self._shift = apply("*", odd, cast_value(4, _BYTE))

    @property
    def place(self) -> tuple[Buffer, tuple[Expr, ...]]:
        """The buffer and the indices as the author gave them."""
        return self._place

    @property
    def dtype(self) -> Any:
        """What the element is computed as."""
        return make_dtype(str(self.expr.ty.dtype))

    @property
    def expr(self) -> Expr:
        """The number that the four bits are."""
        found: Expr = decoded(self.bits(), self._place[0].dtype).expr
        return found

    def bits(self) -> Value:
        """Its four bits, in a byte."""
        byte = Value(super().expr)
        bits: Value = apply("&", apply(">>", byte, self._shift), cast_value(15, _BYTE))
        return bits

    def _meets_another(self) -> bool:
        """Whether another iteration of T.Parallel may have the other half: which half it is depends on it."""
        from tvm.ir import Var

        from tilec.ir.exprs import walk

        nests = (frame.nest for frame in sessions.builder("a store").frames if frame.kind == "parallel")
        spread = {var for nest in nests for var in nest.vars}
        return any(isinstance(node, Var) and node in spread for node in walk(self._shift.expr))

    def store(self, value: Any) -> None:
        """Write the four bits; the other half stays. Refused where another thread may write that one."""
        view = self._place[0]
        builder = sessions.builder(f"a store to {self.buffer.name}")
        private = self.buffer.scope() in PER_THREAD
        if not private and (builder.is_per_thread() or self._meets_another()):
            raise unsupported(
                f"a store to an element of {self.buffer.name}",
                why=f"two {view.dtype} share a byte, which two threads cannot write at a time",
                remedy="put both into a uint8 and store that, or use T.copy",
            )
        kept = apply("&", Value(super().expr), apply("^", apply("<<", _byte(15), self._shift), _byte(255)))
        super().store(apply("|", kept, apply("<<", _bits(value, view.dtype), self._shift)))


def _byte(value: Any) -> Value:
    return cast_value(value, _BYTE)


def _bits(value: Any, kind: make_dtype) -> Value:
    """The four bits of a number; those of an element of the same dtype are taken as they are."""
    if isinstance(value, _PackedElement) and value.place[0].dtype == kind:
        return value.bits()
    return encoded(value, kind)


def _is_even(value: Any) -> bool:
    rest = value % 2
    return (sessions.constant(rest.expr) if isinstance(rest, Value) else rest) == 0
