"""Tiles copied and filled: T.copy, T.async_copy, T.fill and T.clear."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.errors import SourceValueError
from tilec.ir import nodes as ir
from tilec.language.tiles.memory.boxes import box, meet, sized_box
from tilec.language.tiles.memory.packed import InBytes
from tilec.language.tiles.memory.views import View
from tilec.language.tiles.operations.tile_loops import element_at, long_extents, over
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.annotations import check_annotations
from tilec.language.values.kernel.places import loc, source_error
from tilec.language.values.layouts.asked_hints import hints_of, say_unheeded
from tilec.language.values.operands import stored_value, warn_of_loss
from tilec.language.values.value import is_number


def copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    disable_tma: bool = False,
    eviction_policy: str | None = None,
    prefer_instruction: str | None = None,
    annotations: Mapping[str, Any] | None = None,
    loop_layout: Any = None,
) -> None:
    """Copy a tile elementwise, casting where dtypes differ; out-of-range elements read 0 and are not written.

    Operands are buffers, slices or elements (the start of a tile of the other side's extents). Raises
    `SourceValueError` where the shapes cannot be brought together; the keywords are hints
    (`tilec.ir.hints`), which change no result."""
    given = {"coalesced_width": coalesced_width, "disable_tma": disable_tma or None,
             "eviction_policy": eviction_policy, "prefer_instruction": prefer_instruction,
             "loop_layout": loop_layout}  # fmt: skip
    hints = hints_of("T.copy", given, annotations)
    source, target = box(src, "T.copy"), box(dst, "T.copy")
    if source.extents is None and target.extents is None:
        say_unheeded("T.copy", hints, "one element goes as an assignment does")
        return target.element().store(src)
    source, target = meet(source, target, "T.copy")
    from_bytes, to_bytes = source.buffer, target.buffer
    if (
        isinstance(from_bytes, InBytes)
        and isinstance(to_bytes, InBytes)
        and from_bytes.dtype == to_bytes.dtype
    ):
        source, target = from_bytes.bytes_of(source), to_bytes.bytes_of(target)
    if (
        isinstance(source.buffer, View)
        or isinstance(target.buffer, View)
        or source.buffer.safe_value is not None
    ):
        return over(
            long_extents(target), lambda *at: element_at(target, at).store(element_at(source, at)), hints
        )
    stmt = ir.Copy(source.region(), target.region(), hints, loc=loc())
    return sessions.builder("T.copy").emit(stmt, "T.copy")


def async_copy(
    src: Any,
    dst: Any,
    *,
    coalesced_width: int | None = None,
    annotations: Any = None,
    loop_layout: Any = None,
) -> None:
    """A copy from global into shared memory that a later wait completes. Nobody relies on it before, so that
    it means what `copy` does; how far ahead of its use it begins is up to the target."""
    if (
        box(src, "T.async_copy").buffer.scope() != "global"
        or box(dst, "T.async_copy").buffer.scope() != "shared.dyn"
    ):
        raise source_error(
            SourceValueError,
            "T.async_copy copies from global into shared memory",
            construct="T.async_copy",
            remedy="use T.copy",
        )
    copy(src, dst, coalesced_width=coalesced_width, annotations=annotations, loop_layout=loop_layout)


def fill(region: Any, value: Any, annotations: Any = None) -> None:
    """Set every element of a buffer, slice or element to ``value``, cast to its dtype."""
    check_annotations("T.fill", annotations)
    _fill(region, value, "T.fill")


def clear(region: Any, annotations: Any = None) -> None:
    """Set every element of a buffer, slice or element to 0."""
    check_annotations("T.clear", annotations)
    _fill(region, 0, "T.clear")


def _fill(region: Any, value: Any, construct: str) -> None:
    target = sized_box(region, construct)
    if isinstance(target.buffer, InBytes) and is_number(value):
        value, target = target.buffer.byte_of(value), target.buffer.bytes_of(target)
    if isinstance(target.buffer, View):
        return over(long_extents(target), lambda *at: element_at(target, at).store(value))
    stmt = ir.Fill(target.region(), stored_value(value, target.buffer.dtype, construct), loc=loc())
    warn_of_loss(value, target.buffer.dtype, construct)
    return sessions.builder(construct).emit(stmt, construct)
