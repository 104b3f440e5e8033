"""``tilec.utils.language``: what helpers of kernel files ask about buffers and regions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

from tilec.errors import SourceTypeError
from tilec.language.tiles.memory.buffers import Buffer, Element, Slice, extents_of
from tilec.language.tiles.memory.element_pointers import access_ptr
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import expression
from tilec.language.values.operators import apply
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import Value
from tilec.packages import names_of_others


def _buffer(value: Any) -> Buffer:
    if isinstance(value, Buffer):
        return value
    if isinstance(value, (Element, Slice)):
        return value.place[0] if isinstance(value, Element) else value.buffer
    raise source_error(
        SourceTypeError,
        f"{type(value).__name__} is no buffer and no part of one",
        remedy="give a buffer, A[i, j] or A[i:j, :]",
    )


def _within(*scopes: str) -> Callable[[Any], bool]:
    def asked(value: Any) -> bool:
        return _buffer(value).scope().startswith(scopes)

    asked.__doc__ = f"Whether a buffer, or one of which it is a part, lies in {scopes[0]} memory."
    return asked


is_global = _within("global")
is_shared = is_shared_dynamic = _within("shared")
is_fragment = _within("local.fragment")
is_local_var = _within("local.var")


def is_local(value: Any) -> bool:
    """Whether a buffer, or one of which it is a part, is an array of each thread."""
    return _buffer(value).scope() == "local"


def is_tensor_memory(value: Any) -> bool:
    """False: no target has tensor memory."""
    return False


def array_reduce(array: Iterable[Any]) -> Any:
    """The product of sizes."""
    return reduce(lambda left, right: apply("*", left, right), array, 1)


def get_buffer_elems(buffer: Any) -> Any:
    """How many elements a buffer has."""
    return array_reduce(_buffer(buffer).shape)


def retrieve_shape(value: Any) -> list[Any]:
    """The extents of a buffer or a slice; 1 along every axis of an element."""
    if isinstance(value, Buffer):
        return list(value.shape)
    if isinstance(value, Slice):
        return [each if isinstance(each, int) else Value(each) for each in value.extents]
    return [1] * len(_buffer(value).shape)


def retrieve_stride(value: Any) -> list[Any]:
    """Elements from one index to the next along each axis of the buffer."""
    return list(_buffer(value).strides)


def get_buffer_region_from_load(load: Any, extents: Any = None) -> Slice | None:
    """The slice that starts at an element and has these extents (default 1); None for what is no element."""
    return to_buffer_region(load, extents=extents) if isinstance(load, Element) else None


def to_buffer_region(value: Any, access_type: str = "rw", extents: Any = None) -> Slice:
    """A buffer, a slice, or the elements from one on, as a slice."""
    if isinstance(value, Slice):
        return value
    buffer = _buffer(value)
    if isinstance(value, Element):
        return Slice(buffer, value.place[1], tuple(extents or (1,) * len(buffer.shape)))
    return Slice(buffer, tuple(expression(0) for _ in buffer.shape), extents_of(buffer))


def retrieve_ptr(value: Any, access_type: str = "r") -> Any:
    """The address of a buffer, a slice or an element, for a call of C code."""
    place = value if isinstance(value, Element) else _first(to_buffer_region(value))
    return access_ptr(place, access_type)


retrive_ptr_from_buffer_region = retrieve_ptr


def _first(region: Slice) -> Element:
    return region.buffer.element(region.starts)


def is_full_region(region: Any) -> bool:
    """Whether a slice is the whole of its buffer."""
    whole, found = to_buffer_region(_buffer(region)), to_buffer_region(region)
    starts = zip(whole.starts, found.starts, strict=True)
    sizes = zip(whole.extents, found.extents, strict=True)
    return all(prim_expr_equal(a, b) for pairs in (starts, sizes) for a, b in pairs)


def prim_expr_equal(left: Any, right: Any) -> bool:
    """Whether two sizes are provably equal."""
    from tilec.language.values.kernel import session as sessions

    sides = [each if isinstance(each, int) else expression(_value(each)) for each in (left, right)]
    if all(isinstance(each, int) for each in sides):
        return bool(sides[0] == sides[1])
    difference = sessions.simplify(expression(_value(left)) - expression(_value(right)))
    return sessions.constant(difference) == 0


def _value(size: Any) -> Any:
    return size if isinstance(size, (int, Value)) else Value(size)


def bits_product(shape: Iterable[Any], dtype: Any) -> Any:
    """Bits of a tile."""
    return apply("*", array_reduce(shape), make_dtype(dtype).bits)


__all__ = [
    "array_reduce",
    "bits_product",
    "get_buffer_elems",
    "get_buffer_region_from_load",
    "is_fragment",
    "is_full_region",
    "is_global",
    "is_local",
    "is_local_var",
    "is_shared",
    "is_shared_dynamic",
    "is_tensor_memory",
    "prim_expr_equal",
    "retrieve_ptr",
    "retrieve_shape",
    "retrieve_stride",
    "retrive_ptr_from_buffer_region",
    "to_buffer_region",
]

__getattr__ = names_of_others(__name__)
