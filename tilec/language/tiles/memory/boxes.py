"""Operands of tile operations as boxes of buffers, and how the extents of a copy's two sides meet."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from tilec.errors import SourceError, SourceIndexError, SourceTypeError, SourceValueError
from tilec.ir import nodes as ir
from tilec.ir.nodes import is_global
from tilec.language.tiles.memory.buffers import Buffer, Element, Slice, extents_of
from tilec.language.values.kernel import session as sessions
from tilec.language.values.kernel.places import source_error
from tilec.language.values.operands import expression
from tilec.language.values.value import resolve
from tilec.spelling import counted

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Faster memory has the larger number; it decides the extents of a copy.
_SPEED = {
    "global": 0,
    "global.workspace": 0,
    "shared.dyn": 1,
    "local.fragment": 2,
    "local": 2,
    "local.var": 2,
}


@dataclass(frozen=True, eq=False)
class Box:
    """A tile operand. ``extents`` is None for an element, whose box the other operand decides; ``whole``
    marks a buffer that was given without indices."""

    buffer: Buffer
    starts: tuple[Expr, ...]
    extents: tuple[Any, ...] | None
    whole: bool = False

    @property
    def speed(self) -> int:
        """How fast the memory is."""
        return _SPEED[self.buffer.scope()]

    def element(self) -> Element:
        """The box's first element."""
        return self.buffer.element(self.starts)

    def region(self) -> ir.Region:
        """The box as the IR writes it."""
        assert self.extents is not None, "extents are settled before a region is made"
        if not is_global(self.buffer):  # the ends of tensors are tested at run time
            self._need_inside(self.extents)
        return ir.Region(self.buffer.var, self.starts, self.extents)

    def _need_inside(self, extents: tuple[Any, ...]) -> None:
        from tilec.ir.exprs import int_value

        shape = self.buffer.shape
        for axis, (start, extent, size) in enumerate(zip(self.starts, extents, shape, strict=True)):
            low, count, bound = (int_value(expression_of(number)) for number in (start, extent, size))
            if low is None or count is None or bound is None or 0 <= low <= bound - count:
                continue
            raise source_error(
                SourceIndexError,
                f"elements {low} to {low + count - 1} of axis {axis} of {self.buffer.name} do not all exist",
                why=f"the axis has {bound}",
                remedy="let slices of tiles end within them, and make the other side of a copy as large",
            )


def box(operand: Any, construct: str) -> Box:
    """The box that a buffer, slice or element stands for."""
    operand = resolve(operand)
    if isinstance(operand, Buffer):
        operand = operand.scalars()
        zeros = tuple(expression(0) for _ in operand.shape)
        return Box(operand, zeros, extents_of(operand), whole=True)
    if isinstance(operand, Slice):
        return Box(operand.buffer, operand.starts, operand.extents)
    if isinstance(operand, Element):
        return Box(*operand.place, None)
    raise source_error(
        SourceTypeError,
        f"{construct} takes buffers, slices and elements, not {type(operand).__name__}",
        construct=construct,
        remedy="give a tile, A[i:j, k] or the element where it starts; T.fill writes one value",
    )


def sized_box(operand: Any, construct: str) -> Box:
    """As `box`, for operations where an element has no other side to take its extents from."""
    found = box(operand, construct)
    return found if found.extents is not None else replace(found, extents=(1,) * len(found.starts))


def meet(src: Box, dst: Box, construct: str) -> tuple[Box, Box]:
    """Both sides of an elementwise transfer with their extents settled.

    An element takes the other side's extents, right-aligned. Otherwise extent-1 axes are dropped, the rest
    pair up in order, and where a pair differs the side in faster memory decides (ties: the source)."""
    if src.extents is None:
        return _spread(src, dst, construct), dst
    if dst.extents is None:
        return src, _spread(dst, src, construct)
    if src.whole and dst.whole:
        _same_shape(src, dst, construct)
        return src, dst
    return _paired(src, dst, construct)


def same(a: Any, b: Any) -> bool:
    """Whether two extents are equal for every admitted value of the dimensions."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    return sessions.constant(expression_of(a) - expression_of(b)) == 0


def expression_of(extent: Any) -> Expr:
    """An extent as an expression."""
    return expression(extent) if isinstance(extent, int) else extent


def _spread(element: Box, other: Box, construct: str) -> Box:
    """The element's box: the other side's extents, right-aligned, leading axes 1."""
    assert other.extents is not None
    extents, rank = list(other.extents), len(element.starts)
    while len(extents) > rank and same(extents[0], 1):
        extents.pop(0)
    if len(extents) > rank:
        axes = counted(rank, "axis", "axes")
        raise source_error(
            SourceValueError,
            f"{construct}: {element.buffer.name} has {axes}, too few for a tile of {_shown(other)}",
            construct=construct,
            remedy="index a buffer with at least as many axes",
        )
    return replace(element, extents=(1,) * (rank - len(extents)) + tuple(extents))


def _same_shape(src: Box, dst: Box, construct: str) -> None:
    assert src.extents is not None
    assert dst.extents is not None
    if len(src.extents) != len(dst.extents):
        raise _mismatch(construct, src, dst, f"ranks {len(src.extents)} and {len(dst.extents)} differ")
    for axis, (a, b) in enumerate(zip(src.extents, dst.extents, strict=True)):
        if not same(a, b):
            raise _mismatch(
                construct, src, dst, f"axis {axis} has {a} in {src.buffer.name} and {b} in {dst.buffer.name}"
            )


def _paired(src: Box, dst: Box, construct: str) -> tuple[Box, Box]:
    source_decides = src.speed >= dst.speed
    decider, follower = (src, dst) if source_decides else (dst, src)
    settled = list(follower.extents or ())
    given = list(decider.extents or ())
    for mine, theirs in _pairs(given, settled, construct, src, dst):
        if mine is None or theirs is None:
            continue
        if same(given[mine], 1) and not same(settled[theirs], 1):
            given[mine] = settled[theirs]
        if not source_decides:
            _fits(given[mine], settled[theirs], src, dst, theirs, construct)
        settled[theirs] = given[mine]
    decider, follower = replace(decider, extents=tuple(given)), replace(follower, extents=tuple(settled))
    return (decider, follower) if source_decides else (follower, decider)


def _pairs(
    a: list[Any], b: list[Any], construct: str, src: Box, dst: Box
) -> list[tuple[int | None, int | None]]:
    """Which axis of one side runs with which of the other."""
    wide_a = [axis for axis, extent in enumerate(a) if not same(extent, 1)]
    wide_b = [axis for axis, extent in enumerate(b) if not same(extent, 1)]
    if len(wide_a) == len(wide_b):
        return list(zip(wide_a, wide_b, strict=True))
    offset = len(a) - len(b)
    covered = {axis - offset for axis in wide_a} <= set(range(len(b)))
    if not covered or not {axis + offset for axis in wide_b} <= set(range(len(a))):
        raise _mismatch(construct, src, dst, "the axes with an extent other than 1 do not pair up")
    return [(axis + offset, axis) for axis in range(len(b)) if 0 <= axis + offset < len(a)]


def _fits(mine: Any, theirs: Any, src: Box, dst: Box, axis: int, construct: str) -> None:
    """A deciding destination must not be smaller than what the source states."""
    if same(mine, theirs):
        return
    if sessions.prove(expression_of(mine) < expression_of(theirs)):
        raise _mismatch(
            construct,
            src,
            dst,
            f"axis {axis} of {src.buffer.name} has extent {theirs}, {dst.buffer.name} holds {mine}",
        )


def _mismatch(construct: str, src: Box, dst: Box, why: str) -> SourceError:
    return source_error(
        SourceValueError,
        f"{construct}: the shapes of {src.buffer.name} and {dst.buffer.name} do not match",
        construct=construct,
        why=f"{why}; {src.buffer.name} is {_shown(src)}, {dst.buffer.name} is {_shown(dst)}",
        remedy="slice the larger side, or give it an element as start: T.copy(A[i, j], tile)",
    )


def _shown(operand: Box) -> str:
    return f"({', '.join(map(str, operand.extents or ()))})"
