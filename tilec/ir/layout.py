"""Where the elements of a tile lie: digit maps from logical indices to places."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Digit:
    """One digit of a mixed-radix index: ``size`` values, each ``stride`` places apart in ``space``.

    Spaces: "addr" for memory; "reg", "lane", "warp", "group" for fragments spread over threads."""

    size: int
    stride: int
    space: str = "addr"


@dataclass(frozen=True)
class Swizzle:
    """Chunks of ``unit`` places trade places within groups of ``width`` of them: chunk c of a group becomes
    c ^ (address // row % width). ``width`` is a power of two, ``row`` a multiple of ``unit * width``: then
    every address has one image, and a row keeps its places."""

    width: int
    unit: int
    row: int

    def apply(self, address: Any) -> Any:
        """The image of an address (an integer or an expression that is not negative)."""
        return address ^ ((address // self.row) % self.width) * self.unit


@dataclass(frozen=True)
class Layout:
    """Per logical dimension its digits, least significant first: 64 = 32:1 then 2:8192 is a panel of 32.

    A dimension's extent is the product of its digits' sizes (padding included). In spaces other than "addr"
    a place that no digit reaches holds a copy of the element whose other places agree: a fragment without
    lane digits is held by every lane. ``swizzle`` moves addresses after the digits have named them."""

    digits: tuple[tuple[Digit, ...], ...]
    swizzle: Swizzle | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents that the digits span, padding included."""
        extents = []
        for digits in self.digits:
            extent = 1
            for digit in digits:
                extent *= digit.size
            extents.append(extent)
        return tuple(extents)

    @property
    def size(self) -> int:
        """One more than the largest offset."""
        return 1 + sum((digit.size - 1) * digit.stride for digits in self.digits for digit in digits)

    def offset(self, indices: Sequence[Any]) -> Any:
        """The place of one element; ``indices`` are integers or expressions, one per dimension."""
        if len(indices) != len(self.digits):
            raise ValueError(f"a layout of rank {len(self.digits)} got {len(indices)} indices")
        total: Any = 0
        for index, digits in zip(indices, self.digits, strict=True):
            for value, digit in zip(digit_values(index, digits), digits, strict=True):
                total = total + (value if digit.stride == 1 else value * digit.stride)
        return total if self.swizzle is None else self.swizzle.apply(total)

    @classmethod
    def row_major(cls, shape: Sequence[int]) -> Layout:
        """Without gaps, the last dimension fastest."""
        return cls.padded(shape, shape[-1] if shape else 1)

    @classmethod
    def padded(cls, shape: Sequence[int], pitch: int) -> Layout:
        """Row-major with ``pitch`` places (at least the last extent) from one row to the next."""
        if shape and pitch < shape[-1]:
            raise ValueError(f"rows of {shape[-1]} elements do not fit a pitch of {pitch}")
        stride, digits = 1, []
        for axis in range(len(shape) - 1, -1, -1):
            digits.append((Digit(shape[axis], stride),))
            stride *= pitch if axis == len(shape) - 1 else shape[axis]
        return cls(tuple(reversed(digits)))

    @classmethod
    def panels(cls, rows: int, cols: int, width: int) -> Layout:
        """(rows, cols) in panels of ``width`` columns, each panel row-major; the last one is padded."""
        count = -(-cols // width)
        return cls(((Digit(rows, width),), (Digit(width, 1), Digit(count, rows * width))))


def digit_values(index: Any, digits: tuple[Digit, ...]) -> list[Any]:
    """The value of each digit of ``index``; the most significant one takes all that is left."""
    values = []
    for digit in digits[:-1]:
        values.append(index % digit.size)
        index = index // digit.size
    return [*values, index] if digits else []
