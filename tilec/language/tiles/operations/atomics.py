"""Atomic updates: of an element by every iteration that runs the statement, of a tile element by element."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceError, SourceValueError
from tilec.ir import nodes as ir
from tilec.ir.hints import Hints
from tilec.language.tiles.memory.boxes import box, meet, sized_box
from tilec.language.tiles.memory.buffers import Buffer, Element, Slice
from tilec.language.tiles.operations.tile_loops import element_at, long_extents, over
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.annotations import check_annotations, unheeded
from tilec.language.values.kernel.places import loc, source_error, unsupported
from tilec.language.values.operands import stored_value
from tilec.language.values.value import Value, resolve

_NO_HINTS = Hints()
_WIDE = ("int32", "uint32", "int64", "uint64")
_FLOATS = ("float16", "bfloat16", "float32", "float64")
#: The element types of each update.
_DTYPES = {
    "add": (*_WIDE, *_FLOATS),
    "max": ("int8", "uint8", "int16", "uint16", *_WIDE, *_FLOATS),
    "min": ("int8", "uint8", "int16", "uint16", *_WIDE, *_FLOATS),
    "or": _WIDE,
}
#: Element types that are added several at a time -> how many.
_PACKED = {2: ("float16", "bfloat16", "float32"), 4: ("float32",)}


def atomic_add(
    dst: Any,
    value: Any,
    memory_order: str | None = None,
    return_prev: bool = False,
    use_tma: bool = False,
    annotations: Any = None,
) -> Value | None:
    """Add ``value`` to an element, once per executing iteration, or a tile to a tile element by element.

    Elements outside of the tensor are left alone. ``memory_order``: relaxed (the default), consume, acquire,
    release, acq_rel or seq_cst. ``return_prev`` gives what the element held before, elements only. Raises
    `SourceValueError` for dtypes and orders that do not exist. Outside of T.Parallel each thread updates the
    element. The order of float additions is open."""
    check_annotations("T.atomic_add", annotations)
    hints = Hints(prefer_instruction="tma") if use_tma else Hints()
    return _update("add", dst, value, memory_order, return_prev, hints)


def atomic_max(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False, annotations: Any = None
) -> Value | None:
    """Keep the larger of an element and ``value``; otherwise as `atomic_add`. NaN counts for nothing, and no
    form keeps it: store a flag beside the element where ``T.isnan(value)``."""
    check_annotations("T.atomic_max", annotations)
    return _update("max", dst, value, memory_order, return_prev)


def atomic_min(
    dst: Any, value: Any, memory_order: str | None = None, return_prev: bool = False, annotations: Any = None
) -> Value | None:
    """Keep the smaller of an element and ``value``; otherwise, NaN too, as `atomic_max`."""
    check_annotations("T.atomic_min", annotations)
    return _update("min", dst, value, memory_order, return_prev)


def atomic_or(dst: Any, value: Any, memory_order: str | None = None) -> None:
    """Set the bits of ``value`` in an element."""
    _update("or", dst, value, memory_order, False)


def atomic_addx2(dst: Any, value: Any, return_prev: bool = False) -> None:
    """Add two consecutive elements starting at ``value`` to those starting at ``dst``, each atomically."""
    _packed(2, dst, value, return_prev)


def atomic_addx4(dst: Any, value: Any, return_prev: bool = False) -> None:
    """Add four consecutive elements starting at ``value`` to those starting at ``dst``, each atomically."""
    _packed(4, dst, value, return_prev)


def atomic_load(src: Any, memory_order: str = "seq_cst") -> Value:
    """What an element holds, read in one piece; ``memory_order``: relaxed, consume, acquire or seq_cst.
    `SourceValueError` for other orders, and for elements that atomics do not have."""
    name = "T.atomic_load"
    _check_order(name, memory_order, ("relaxed", "consume", "acquire", "seq_cst"))
    element = _element(src, name)
    builder = sessions.builder(name)
    prev = _variable(builder.wish("value"), element.buffer)
    nothing = stored_value(0, element.buffer.dtype, name)
    stmt = ir.Atomic("load", element.buffer.var, element.indices, nothing, prev, memory_order, loc=loc())
    builder.emit(stmt, name)
    return Value(prev, frame=builder.region())


def atomic_store(dst: Any, src: Any, memory_order: str = "seq_cst") -> None:
    """Write an element in one piece; ``memory_order``: relaxed, release or seq_cst. Errors: `atomic_load`."""
    name = "T.atomic_store"
    _check_order(name, memory_order, ("relaxed", "release", "seq_cst"))
    element = _element(dst, name)
    value = stored_value(src, element.buffer.dtype, name)
    stmt = ir.Atomic("store", element.buffer.var, element.indices, value, None, memory_order, loc=loc())
    sessions.builder(name).emit(stmt, name)


def _element(operand: Any, name: str) -> Element:
    """One element of shared or global memory."""
    found = resolve(operand)
    element = found if isinstance(found, Element) else sized_box(found, name).element()
    if (
        isinstance(found, Slice)
        or _is_tile(found)
        or getattr(element, "guard", None) is not None
        or not element.is_plain
    ):
        raise source_error(
            SourceValueError,
            f"{name} takes one element, not {found!r}",
            construct=name,
            remedy="index the buffer: C[i, j]",
        )
    _check_dtype(name, "add", element.buffer)
    return element


def _update(
    kind: str, dst: Any, value: Any, order: str | None, return_prev: bool, hints: Hints = _NO_HINTS
) -> Value | None:
    name = f"T.atomic_{kind}"
    order = _order(name, order)
    target, source = resolve(dst), resolve(value)
    _check_dtype(name, kind, box(target, name).buffer)
    if isinstance(source, (Buffer, Slice)) or isinstance(target, Slice) or _is_tile(target):
        if return_prev:
            raise _no_tile_result(name)
        _update_tile(kind, target, source, order, name, hints)
        return None
    if hints.given:
        unheeded(name, "elements are added one by one, not by TMA", "leave use_tma out")
    return _update_element(kind, target, source, order, return_prev, name)


def _is_tile(target: Any) -> bool:
    """Whether a destination is a buffer of more than one element."""
    return isinstance(target, Buffer) and any(extent != 1 for extent in sized_box(target, "").extents or ())


def _update_element(
    kind: str, target: Any, value: Any, order: str, return_prev: bool, name: str
) -> Value | None:
    element = target if isinstance(target, Element) else sized_box(target, name).element()
    builder = sessions.builder(name)
    if builder.is_per_thread() and not element.buffer.scope().startswith("local"):
        builder.run_per_thread()
    prev = _variable(builder.wish("old"), element.buffer) if return_prev else None
    if getattr(element, "guard", None) is not None or not element.is_plain:
        raise unsupported(f"{name} on a view of another size or dtype", remedy="index the buffer itself")
    given = stored_value(value, element.buffer.dtype, name)
    stmt = ir.Atomic(kind, element.buffer.var, element.indices, given, prev, order, loc=loc())
    builder.emit(stmt, name)
    return None if prev is None else Value(prev, frame=builder.region())


def _update_tile(kind: str, target: Any, value: Any, order: str, name: str, hints: Hints) -> None:
    """A loop over the elements; a number or an element is the same for all of them."""
    if not isinstance(value, (Buffer, Slice)):
        place = sized_box(target, name)
        source = None
    else:
        source, place = meet(box(value, name), box(target, name), name)

    def body(*at: Value) -> None:
        given = value if source is None else element_at(source, at)
        _update_element(kind, element_at(place, at), given, order, False, name)

    over(long_extents(place), body, hints)


def _packed(count: int, dst: Any, value: Any, return_prev: bool) -> None:
    name = f"T.atomic_addx{count}"
    if return_prev:
        raise unsupported(f"{name}(return_prev=True)", remedy=f"add {count} single elements")
    target, source = resolve(dst), resolve(value)
    if not isinstance(target, Element) or not isinstance(source, Element):
        raise source_error(
            SourceValueError,
            f"{name} takes two elements, the first of {count}",
            construct=name,
            remedy=f"write {name}(C[i, j], tile[i, j])",
        )
    if str(target.buffer.dtype) not in _PACKED[count]:
        raise source_error(
            SourceValueError,
            f"{name} of {target.buffer.dtype}",
            construct=name,
            remedy=f"use one of {', '.join(_PACKED[count])}, or T.atomic_add",
        )
    for step in range(count):
        _update_element("add", _moved(target, step), _moved(source, step), "relaxed", False, name)


def _moved(element: Element, step: int) -> Element:
    *outer, last = element.indices
    return Element(element.buffer, (*outer, sessions.simplify(last + step)))


def _variable(wish: str, buffer: Buffer) -> Any:
    from tvm import tirx

    return tirx.Var(wish, str(buffer.dtype))


def _order(name: str, order: str | None) -> str:
    order = order or "relaxed"
    _check_order(name, order, ir.MEMORY_ORDERS)
    return order


def _check_order(name: str, order: str, known: tuple[str, ...]) -> None:
    if order not in known:
        raise source_error(
            SourceValueError,
            f"{name}: memory_order {order!r} does not exist",
            construct=name,
            remedy=f"use one of {', '.join(known)}",
        )


def _check_dtype(name: str, kind: str, buffer: Buffer) -> None:
    if str(buffer.dtype) not in _DTYPES[kind]:
        raise source_error(
            SourceValueError,
            f"{name}: {buffer.name} is {buffer.dtype}",
            construct=name,
            remedy=f"use one of {', '.join(_DTYPES[kind])}",
        )


class _NoTileResult(SourceError, NotImplementedError):
    """A tile has no old value to return; callers may catch it as `NotImplementedError`."""


def _no_tile_result(name: str) -> SourceError:
    return source_error(
        _NoTileResult,
        f"{name} of a tile returns no previous values",
        construct=name,
        remedy="update single elements in T.Parallel",
    )
