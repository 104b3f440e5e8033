"""Other shapes for the memory of a buffer: T.reshape, T.view and T.Tensor(shape, dtype, buffer.data)."""

from __future__ import annotations

from functools import reduce
from typing import Any

from tilec.errors import SourceAssertionError
from tilec.language.tiles.memory.bit_views import Retyped
from tilec.language.tiles.memory.buffers import Buffer
from tilec.language.tiles.memory.views import View
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error, unsupported
from tilec.language.values.operands import expression
from tilec.language.values.scalars import dtype as make_dtype
from tilec.language.values.value import resolve


def reshape(src: Buffer, shape: Any) -> Buffer:
    """The elements of ``src`` under another shape of as many elements; `SourceAssertionError` otherwise."""
    return view(src, shape)


def view(src: Buffer, shape: Any = None, dtype: Any = None) -> Buffer:
    """The bits of ``src`` under another shape, another dtype or both; without a shape the last axis changes
    with the width. `SourceAssertionError` where the bits are not as many."""
    kind = src.dtype if dtype is None else make_dtype(dtype)
    widths = (src.dtype.bits, kind.bits)
    entries = _rescaled(src.shape, *widths) if shape is None else entries_of(shape)
    if not _same_size(src.shape, entries, *widths):
        raise source_error(
            SourceAssertionError,
            f"{src.name} of shape {_shown(src.shape)} and dtype {src.dtype} does not hold {_shown(entries)} "
            f"of {kind}",
            construct="T.reshape" if dtype is None else "T.view",
            remedy="keep the number of elements" if dtype is None else "keep the number of bits",
        )
    return alias(src, entries, "T.reshape", kind)


def alias(src: Buffer, shape: tuple[Any, ...], construct: str, kind: make_dtype | None = None) -> Buffer:
    """The elements of a contiguous buffer under another shape, whatever its size; its bits as ``kind``."""
    root = src.root if isinstance(src, View) else src
    if root.is_strided:
        raise unsupported(
            f"{construct} of {root.name}, whose strides are its own", remedy="index the buffer itself"
        )
    if kind is not None and str(kind) != str(root.dtype):
        return Retyped(root, shape, kind)
    return View(root, shape)


def entries_of(shape: Any) -> tuple[Any, ...]:
    """The extents of a shape that the author wrote: a sequence, or the only one."""
    entries = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    return tuple(resolve(entry) for entry in entries)


def _same_size(old: tuple[Any, ...], new: tuple[Any, ...], *widths: int) -> bool:
    """Whether two shapes of elements of so many bits hold the same number of bits."""
    sizes = [
        reduce(lambda a, b: a * b, map(expression, shape), expression(width))
        for shape, width in zip((old, new), widths, strict=True)
    ]
    return sessions.constant(sizes[0] - sizes[1]) == 0


def _rescaled(shape: tuple[Any, ...], old: int, new: int) -> tuple[Any, ...]:
    """A shape whose last axis has elements of ``new`` bits in place of ``old``."""
    return shape if old == new else (*shape[:-1], shape[-1] * old // new)


def _shown(shape: tuple[Any, ...]) -> str:
    return f"({', '.join(map(str, shape))})"
