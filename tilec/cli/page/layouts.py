"""Layouts of tiles as tables of places, which the page paints: memory by banks, fragments by threads."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilec.dtypes import lookup
from tilec.ir import nodes as ir
from tilec.ir.layout import Layout, digit_values
from tilec.ir.stmt import Stmt, walk
from tilec.ir.text.printer import format_layout

#: Rows and columns that are painted of a tile, from its first element on.
CORNER = 64
#: The banks of shared memory, and the bytes of one word of a bank (CUDA C++ Programming Guide, "Shared
#: Memory": 32 banks of 32 bits; AMD's and Apple's GPUs have as many).
BANKS, WORD = 32, 4
_THREADS = ("lane", "warp", "group")


@dataclass(frozen=True)
class Painted:
    """A tile: ``rows`` of cells. A cell of memory is its byte address, one of a fragment (lane, warp,
    register) of the first thread that holds it. ``shape`` is the whole tile's."""

    name: str
    dtype: str
    scope: str
    shape: tuple[int, ...]
    text: str
    in_memory: bool
    rows: tuple[tuple[int | tuple[int, int, int], ...], ...]


def painted(kernel: ir.Kernel) -> Iterator[Painted]:
    """Every tile of a kernel that has a layout and an extent that is known."""
    for stmt in walk(kernel.body):
        if not isinstance(stmt, ir.Alloc) or stmt.layout is None:
            continue
        shape = _shape(stmt)
        if shape:
            yield _painted(stmt, stmt.layout, shape)


def _shape(stmt: ir.Alloc) -> tuple[int, ...]:
    """The extents of a tile; none where one is a value of run time."""
    extents = stmt.buffer.shape
    return (
        tuple(int(each.value) for each in extents) if all(hasattr(each, "value") for each in extents) else ()
    )


def _painted(stmt: ir.Alloc, layout: Layout, shape: tuple[int, ...]) -> Painted:
    dtype = str(stmt.buffer.dtype)
    in_memory = not any(digit.space != "addr" for digits in layout.digits for digit in digits)
    height, width = (1, *shape)[-2:]
    front = (0,) * (len(shape) - 2)
    rows = tuple(
        tuple(
            _address(layout, index, lookup(dtype).bits) if in_memory else _holder(layout, index)
            for index in ((*front, row, col)[-len(shape) :] for col in range(min(width, CORNER)))
        )
        for row in range(min(height, CORNER))
    )
    text = format_layout(layout)
    return Painted(stmt.buffer.name, dtype, stmt.buffer.scope(), shape, text, in_memory, rows)


def _address(layout: Layout, index: Sequence[int], bits: int) -> int:
    return int(layout.offset(index)) * bits // 8


def _holder(layout: Layout, index: Sequence[int]) -> tuple[int, int, int]:
    places = dict.fromkeys((*_THREADS, "reg"), 0)
    for one, digits in zip(index, layout.digits, strict=True):
        for value, digit in zip(digit_values(one, digits), digits, strict=True):
            places[digit.space] += value * digit.stride
    return places["lane"], places["warp"] + places["group"], places["reg"]


def shared_rooms(stmts: Sequence[Stmt]) -> list[tuple[str, int]]:
    """Name and bytes of each tile in shared memory."""
    found = []
    for stmt in walk(tuple(stmts)):
        if not isinstance(stmt, ir.Alloc) or not stmt.buffer.scope().startswith("shared"):
            continue
        shape = _shape(stmt)
        if shape:
            size = stmt.layout.size if stmt.layout is not None else math.prod(shape)
            found.append((stmt.buffer.name, size * lookup(str(stmt.buffer.dtype)).bits // 8))
    return found
