"""Tiles on the move: transposed, or gathered from an image for a convolution."""

from __future__ import annotations

from typing import Any

from tilec.errors import SourceValueError
from tilec.language.tiles.memory.boxes import Box, same, sized_box
from tilec.language.tiles.memory.buffers import Buffer
from tilec.language.tiles.operations.tile_loops import over
from tilec.language.values.functions.intrinsics import if_then_else
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.annotations import check_annotations
from tilec.language.values.kernel.places import source_error
from tilec.language.values.layouts.asked_hints import hints_of
from tilec.language.values.operands import expression, wrap
from tilec.language.values.value import Value


def transpose(src: Any, dst: Any, annotations: Any = None) -> None:
    """``dst[..., j, i] = src[..., i, j]``, cast where dtypes differ. `SourceValueError` where the extents of
    ``dst`` are not those of ``src`` with the last two traded, or there are fewer than two."""
    check_annotations("T.transpose", annotations)
    source, target = sized_box(src, "T.transpose"), sized_box(dst, "T.transpose")
    given = source.extents or ()
    wanted = (*given[:-2], *reversed(given[-2:]))
    found = target.extents or ()
    if len(given) < 2 or len(found) != len(wanted) or not all(map(same, found, wanted)):
        raise source_error(
            SourceValueError,
            f"T.transpose: {source.buffer.name} is {tuple(given)}, {target.buffer.name} is {tuple(found)}",
            construct="T.transpose",
            remedy="trade the last two extents",
        )

    def body(*at: Value) -> None:
        _element(target, at).store(_element(source, (*at[:-2], at[-1], at[-2])))

    over(tuple(found), body)


def im2col(
    img: Buffer,
    col: Any,
    nhw_step: Any,
    c_step: Any,
    kernel: int,
    stride: int,
    dilation: int,
    pad: int,
    eviction_policy: str | None = None,
    annotations: Any = None,
) -> None:
    """Gather tile (nhw_step, c_step) of an image's columns: rows are output pixels, columns channels of taps.

    ``img`` is (N, H, W, C), ``col`` a tile (P, Q) with C a multiple of Q (`SourceValueError` where it is
    known not to be). Pixels outside of the image are 0."""
    hints = hints_of("T.im2col", {"eviction_policy": eviction_policy}, annotations)
    target = sized_box(col, "T.im2col")
    rows, columns = (target.extents or ())[-2:]
    _, height, width, channels = (Value(expression(extent)) for extent in img.shape)
    if sessions.constant(sessions.simplify((channels % columns).expr)) != 0:
        raise source_error(
            SourceValueError,
            f"T.im2col: {img.name} has {img.shape[3]} channels, the tile {columns} columns",
            construct="T.im2col",
            remedy="use a tile whose columns divide the channels",
        )
    out_height, out_width = (
        (extent + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for extent in (height, width)
    )
    start, tap = wrap(c_step) * columns % channels, wrap(c_step) * columns // channels
    down, across = tap // kernel * dilation - pad, tap % kernel * dilation - pad

    def body(p: Value, q: Value) -> None:
        pixel = wrap(nhw_step) * rows + p
        line = pixel // out_width
        y = line % out_height * stride + down
        x = pixel % out_width * stride + across
        inside = (y >= 0) & (y < height) & (x >= 0) & (x < width)
        place = (line // out_height, y, x, start + q)
        _element(target, (p, q)).store(if_then_else(inside, img[place], 0))

    over((rows, columns), body, hints)


def _element(box: Box, at: tuple[Value, ...]) -> Any:
    """The element of ``box`` at ``at``, counted from its start; leading axes may be missing."""
    starts = list(box.starts)
    for axis, place in enumerate(reversed(at), 1):
        starts[-axis] = sessions.simplify(starts[-axis] + place.expr)
    return box.buffer.element(tuple(starts))
