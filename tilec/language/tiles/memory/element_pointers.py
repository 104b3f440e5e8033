"""Addresses of elements, for calls that take pointers."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilec.errors import SourceTypeError, SourceValueError
from tilec.language.control.loops import serial
from tilec.language.tiles.memory.boxes import box
from tilec.language.tiles.memory.buffers import Buffer, Element
from tilec.language.values.conversions import condition
from tilec.language.values.functions.intrinsics import if_then_else
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operands import expression
from tilec.language.values.value import Value, resolve

_ACCESS = ("r", "w", "rw")


@dataclass(frozen=True, eq=False)
class ElementPointer:
    """Where an element lies: what `access_ptr` and `address_of` give. ``access``: whether a callee reads
    ("r") or writes ("w") from there on."""

    buffer: Buffer
    indices: tuple[Any, ...]
    access: str = "rw"

    def element(self, distance: Any = 0) -> Element:
        """The element ``distance`` further along the last axis."""
        *lead, last = self.indices
        return self.buffer.element((*lead, sessions.simplify(last + expression(distance))))


def access_ptr(
    base: Any,
    access_type: str = "r",
    *extents: Any,
    offset: Any = 0,
    extent: Any = None,
    ignore_last_ndim: int = 0,
) -> ElementPointer:
    """The address of an element, or of the first one of a buffer or slice; ``offset`` elements further.

    ``extents`` and ``extent`` say how much a callee touches. Raises `SourceValueError` for an access that is
    none of r, w and rw."""
    if access_type not in _ACCESS:
        raise source_error(
            SourceValueError,
            f"T.access_ptr: access {access_type!r} is none of {', '.join(_ACCESS)}",
            construct="T.access_ptr",
            remedy='use "r", "w" or "rw"',
        )
    if ignore_last_ndim:
        raise unsupported("T.access_ptr(ignore_last_ndim=...)", remedy="give the element itself")
    return replace(pointer_to(base, "T.access_ptr", offset), access=access_type)


def address_of(element: Any) -> ElementPointer:
    """The address of an element."""
    return pointer_to(element, "T.address_of")


def pointer_to(given: Any, construct: str, offset: Any = 0) -> ElementPointer:
    """The pointer that an argument is, or the address of the element, buffer or slice that it is."""
    found = resolve(given)
    if not isinstance(found, ElementPointer):
        start = box(found, construct)
        found = ElementPointer(start.buffer, tuple(start.starts))
    start_of: ElementPointer = found
    if isinstance(offset, int) and offset == 0:
        return start_of
    return ElementPointer(*start_of.element(offset).place)


def ptx_cp_async(dst: Any, src: Any, num_elems: int, predicate: Any = None) -> None:
    """Copies ``num_elems`` neighbours from global to shared memory; zeros where ``predicate`` is false. They
    are there when the statement ends.

    Raises `SourceTypeError` for a number that is no build-time integer, `SourceValueError` for other
    memories."""
    construct = "T.ptx_cp_async"
    count = resolve(num_elems)
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise source_error(
            SourceTypeError,
            f"{construct} copies a build-time number of elements, not {num_elems!r}",
            construct=construct,
            remedy="give a positive integer",
        )
    to, origin = pointer_to(dst, construct), pointer_to(src, construct)
    scopes = (origin.buffer.scope(), to.buffer.scope())
    if not scopes[0].startswith("global") or scopes[1] != "shared.dyn":
        raise source_error(
            SourceValueError,
            f"{construct} from {scopes[0]} to {scopes[1]} memory",
            construct=construct,
            why="cp.async copies from global to shared memory",
            remedy="store the elements themselves",
        )
    loop = serial(count)
    place = loop.open()
    value: Any = origin.element(place)
    if predicate is not None:
        value = if_then_else(Value(condition(predicate, "predicate")), value, 0)
    to.element(place).store(value)
    loop.close()
