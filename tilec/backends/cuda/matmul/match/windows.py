"""Gathers that are tiles of an image's columns: what a convolution multiplies by its weights.

TMA walks over them itself (PTX ISA, "im2col mode"; CUDA driver API, cuTensorMapEncodeIm2col): from one pixel
on it takes as many as the box says, row by row of a window and on into the next image, moved by the offsets
of the tap, with zeros for what lies outside of the image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cuda.analysis.accesses.gathers import Gather
from tilec.backends.cuda.analysis.accesses.vectors import divides
from tilec.backends.cuda.analysis.layouts.tiles import whole_tile
from tilec.backends.cuda.matmul.match.quotients import bounds_of, natural
from tilec.backends.cuda.matmul.nodes import WindowCopy
from tilec.backends.cuda.warp_roles.nodes import Window
from tilec.backends.cuda.warp_roles.unfit import Unfit
from tilec.ir.exprs import conjuncts, dtype_of, int_value, linear_in, same, substitute, transform, uses, walk
from tilec.ir.nodes import Region
from tilec.lowering.analysis.conditions import gap
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var

    from tilec.ir.nodes import Loc
    from tilec.lowering.analysis.facts import Facts

#: By axes of a window: the lowest and the highest corner, the farthest offset of a tap.
_CORNERS = {1: (-(1 << 15), (1 << 15) - 1), 2: (-128, 127), 3: (-16, 15)}
_FARTHEST = {1: (1 << 16) - 1, 2: (1 << 8) - 1, 3: (1 << 5) - 1}
_MOST_PIXELS, _WIDEST_STEP, _CHUNK = 1024, 8, 16
#: What helps where TMA has no such window.
_FEWER = "TMA has no such window: pad or dilate the image before, or accept the gather"


def window_copy(gather: Gather, facts: Facts, loc: Loc | None) -> WindowCopy | None:
    """A gather of pixels by channels as the copy of a window; None where it is something else. Unfit where
    TMA has no such window, or it is none. ``facts`` know the ranges of the gather's variables."""
    buffer = gather.source.source
    if len(gather.vars) != 2 or len(gather.source.indices) - 2 not in _CORNERS or len(buffer.strides):
        return None
    pixel, channel = gather.vars
    if not any(_divides(index, pixel) for index in gather.source.indices[:-1]):
        return None
    found, start, indices = _walked(gather, facts)
    columns = gather.extents[1]
    cond = None if gather.cond is None else _of_one_tap(gather.cond, channel, columns, facts)
    inside = cond is None or _is_bounds(cond, buffer, indices, facts)
    _need(
        inside,
        buffer,
        "its condition says more than that indices lie inside of the image",
        "leave it out: what is read outside of a tensor is 0",
    )
    window, offsets = _window(found[1:], buffer, facts)
    _check(buffer, gather.extents[0], start, facts)
    lower = (0, *window.lower)
    at = [
        facts.analyzer.simplify(axis.at(pixel) * axis.step + low + (axis.offset if low_axis == 0 else 0))
        for low_axis, (axis, low) in enumerate(zip(found, lower, strict=True))
    ]
    extent = (*(1 for _ in at), gather.extents[1])
    place = tuple(natural(each, facts) for each in (*at, start))
    moved = tuple(natural(each, facts) for each in offsets)
    return WindowCopy(Region(buffer, place, extent), moved, whole_tile(gather.tile), window, loc=loc)


def _divides(index: Expr, pixel: Var) -> bool:
    """Whether an index takes a quotient or a remainder of the pixel's number."""
    return any(
        isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) and uses(node, (pixel,)) for node in walk(index)
    )


def _walked(gather: Gather, facts: Facts) -> tuple[list[_Axis], Expr, tuple[Expr, ...]]:
    """The axes that the pixels of a gather are counted through, its first channel, and its indices as those
    of one tap. Unfit where they are no walk over an image."""
    buffer, (pixel, channel), columns = gather.source.source, gather.vars, gather.extents[1]
    indices = tuple(_of_one_tap(index, channel, columns, facts) for index in gather.source.indices)
    start = _channel(indices[-1], channel, pixel)
    if start is None or any(uses(index, (channel,)) for index in indices[:-1]):
        _need(
            False,
            buffer,
            f"the {columns} columns of a tile are not known to be channels of one tap",
            f'choose a K tile that divides the channels, pinned or with a guard such as "%{columns}"',
        )
    axes = [_axis(index, pixel, facts) for index in indices[:-1]]
    found = [axis for axis in axes if axis is not None]
    _need(
        len(found) == len(axes) and _is_walk(found, facts),
        buffer,
        "its pixels are not counted through rows and images by quotients and remainders of one number",
        "split the number m of a pixel into m // (OH * OW), m % (OH * OW) // OW and m % OW",
    )
    assert start is not None
    return found, start, indices


def _of_one_tap(expr: Expr, channel: Var, columns: int, facts: Facts) -> Expr:
    """``expr`` where a tile of ``columns`` columns of the unrolled filter lies in one tap: (k + j) // C is
    k // C, and (k + j) % C is k % C + j, if k and C are multiples of the tile's columns."""

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) or not uses(node.a, (channel,)):
            return None
        linear = linear_in(node.a, [channel])
        if not linear or int_value(linear[0]) != 1 or uses(node.b, (channel,)):
            return None
        if not all(divides(columns, part, facts) for part in (linear[1], node.b)):
            return None
        return linear[1] // node.b if isinstance(node, tirx.FloorDiv) else linear[1] % node.b + channel

    return transform(expr, visit)


@dataclass(frozen=True, eq=False)
class _Digit:
    """``number // low % size`` where ``number`` counts pixels; no ``size``: all that is left of it."""

    number: Expr
    low: Expr
    size: Expr | None = None

    def modulo(self, size: Expr, facts: Facts) -> _Digit | None:
        """The digit's remainder."""
        if self.size is not None and not _is_multiple(self.size, size, facts):
            return None
        return replace(self, size=size)

    def divided(self, by: Expr, facts: Facts) -> _Digit | None:
        """The digit's quotient."""
        if self.size is not None and not _is_multiple(self.size, by, facts):
            return None
        size = None if self.size is None else facts.simplify(tirx.floordiv(self.size, by))
        return _Digit(self.number, facts.simplify(self.low * by), size)


@dataclass(frozen=True, eq=False)
class _Axis:
    """An index of the image: ``value`` times ``step`` plus ``offset``, where ``value`` is ``digit``."""

    value: Expr
    digit: _Digit
    step: int
    offset: Expr

    def at(self, pixel: Var) -> Expr:
        """The value for the first pixel of a tile."""
        return substitute(self.value, {pixel: tirx.const(0, dtype_of(pixel))})


def _is_multiple(value: Expr, of: Expr, facts: Facts) -> bool:
    return int_value(facts.simplify(tirx.floormod(value, of))) == 0


def _channel(index: Expr, channel: Var, pixel: Var) -> Expr | None:
    """The first channel of a tile."""
    linear = linear_in(index, [channel])
    if not linear or int_value(linear[0]) != 1 or uses(linear[1], (pixel,)):
        return None
    start: Expr = linear[1]
    return start


def _axis(index: Expr, pixel: Var, facts: Facts) -> _Axis | None:
    """One index as a digit of the number of the pixel, a step and an offset."""
    values: list[Expr] = []
    name = tirx.Var("digit", dtype_of(index))

    def visit(node: Expr) -> Expr | None:
        if not isinstance(node, (tirx.FloorDiv, tirx.FloorMod)) or not uses(node, (pixel,)):
            return None
        values.append(node)
        return name

    rest = transform(index, visit)
    if not values:
        return _Axis(index, _Digit(index, tirx.const(1, dtype_of(index))), 1, tirx.const(0, dtype_of(index)))
    linear = linear_in(rest, [name])
    step = int_value(linear[0]) if linear else None
    digit = _digit(values[0], facts)
    if step is None or step < 1 or digit is None or uses(linear[1], (pixel,)):
        return None
    return _Axis(values[0], digit, step, linear[1]) if all(same(one, values[0]) for one in values) else None


def _digit(value: Expr, facts: Facts) -> _Digit | None:
    if not isinstance(value, (tirx.FloorDiv, tirx.FloorMod)):
        return _Digit(value, tirx.const(1, dtype_of(value)))
    inner = _digit(value.a, facts)
    if inner is None:
        return None
    step = inner.divided if isinstance(value, tirx.FloorDiv) else inner.modulo
    return step(value.b, facts)


def _is_walk(axes: Sequence[_Axis], facts: Facts) -> bool:
    """Whether the digits, outermost first, are those of one number that grows by one from pixel to pixel."""
    number, low = axes[-1].digit.number, tirx.const(1, dtype_of(axes[-1].digit.number))
    for axis in reversed(axes):
        digit = axis.digit
        if not _equal(digit.number, number, facts) or not _equal(digit.low, low, facts):
            return False
        if (digit.size is None) != (axis is axes[0]):
            return False
        low = low if digit.size is None else facts.simplify(low * digit.size)
    return axes[0].step == 1


def _equal(a: Expr, b: Expr, facts: Facts) -> bool:
    return int_value(facts.simplify(a - b)) == 0


def _is_bounds(cond: Expr, buffer: Var, indices: Sequence[Expr], facts: Facts) -> bool:
    """Whether a condition says no more than that indices lie inside of the image."""
    bounds = [
        (index >= tirx.const(0, dtype_of(index)), index < extent)
        for index, extent in zip(indices, buffer.shape, strict=True)
    ]
    gaps = [gap(bound) for pair in bounds for bound in pair]
    parts = (part for part in conjuncts(cond) if facts.prove(part) is not True)
    return all(_is_one_of(gap(part), gaps, facts) for part in parts)


def _is_one_of(wanted: Expr | None, gaps: Sequence[Expr | None], facts: Facts) -> bool:
    return wanted is not None and any(one is not None and _equal(wanted, one, facts) for one in gaps)


# ---- the window ----


def _window(axes: Sequence[_Axis], buffer: Var, facts: Facts) -> tuple[Window, tuple[Expr, ...]]:
    """The window that the digits walk over, and the offsets of a tap in it."""
    (lowest, highest), farthest = _CORNERS[len(axes)], _FARTHEST[len(axes)]
    lower, upper, offsets = [], [], []
    for axis, extent in zip(axes, buffer.shape[1:-1], strict=True):
        first, last = bounds_of(axis.offset, facts)
        _need(last - first <= farthest, buffer, f"taps reach over more than {farthest} pixels", _FEWER)
        _need(
            axis.step <= _WIDEST_STEP, buffer, f"a stride of {axis.step} is more than {_WIDEST_STEP}", _FEWER
        )
        beyond = _upper(axis, first, extent, facts)
        _need(
            beyond is not None,
            buffer,
            "the last pixel that a tap meets varies with the size of the image",
            "compute places from (size + 2 * pad - dilation * (taps - 1) - 1) // stride + 1 of them",
        )
        assert beyond is not None
        inside = lowest <= first <= highest and lowest <= beyond <= highest
        _need(
            inside, buffer, f"padding of {-first} and {beyond} pixels is beyond {lowest} to {highest}", _FEWER
        )
        lower.append(first)
        upper.append(beyond)
        offsets.append(facts.analyzer.simplify(axis.offset - first))
    return Window(tuple(lower), tuple(upper), tuple(axis.step for axis in axes)), tuple(offsets)


def _upper(axis: _Axis, first: int, extent: Expr, facts: Facts) -> int | None:
    """How far the window reaches beyond the last pixel of an axis: no further than one step behind the last
    place. None where that is no constant."""
    assert axis.digit.size is not None
    count = facts.simplify(axis.digit.size)
    step = tirx.const(axis.step, dtype_of(count))
    rounded: list[Expr] = []
    name = tirx.Var("rounded", dtype_of(count))

    def visit(node: Expr) -> Expr | None:
        if isinstance(node, tirx.FloorDiv) and int_value(node.b) == axis.step:
            rounded.append(node)
            return name
        return None

    linear = linear_in(transform(count, visit), [name])
    span = (count - 1) * step
    if len(rounded) == 1 and linear and int_value(linear[0]) == 1:
        span = rounded[0].a + (linear[1] - 1) * step
    return int_value(facts.simplify(span + first + 1 - extent))


def _check(buffer: Var, pixels: int, start: Expr, facts: Facts) -> None:
    count = _CHUNK // element_bytes(str(buffer.dtype))
    most = f"a tile of {pixels} pixels is more than {_MOST_PIXELS}"
    _need(pixels <= _MOST_PIXELS, buffer, most, "choose an M tile of fewer rows")
    chunks = f"channels do not start at multiples of {_CHUNK} bytes"
    _need(divides(count, start, facts), buffer, chunks, f'give the channels a guard such as "%{count}"')


def _need(holds: bool, buffer: Var, why: str, remedy: str) -> None:
    if not holds:
        raise Unfit(f"{buffer.name} is gathered: {why}", remedy=remedy)
