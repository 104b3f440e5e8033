"""Registers that products need, and the configs whose products are far from having them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.tiles import layouts_in
from tilec.backends.cuda.nodes import ScaledWarpGemm, SparseWarpGemm, WarpGemm
from tilec.errors import CompileError, Kind
from tilec.ir.layout_algebra import extent_of
from tilec.ir.nodes import Launch, walk
from tilec.ir.places import place_of
from tilec.targets import MOST_REGISTERS, registers_of_a_thread

if TYPE_CHECKING:
    from tilec.ir.layout import Layout

#: The most threads of a block.
_THREADS = 1024
#: What addresses, loop counters and the stack pointer take besides.
_RESERVED = 24
#: A product whose sums are so many times the registers of a thread spills most of them: a mistake.
_HOPELESS = 4


def check_registers(launch: Launch) -> None:
    """CompileError for a product whose sums are several times the registers of a thread. What takes a few
    more than there are spills, which is slow and right; the notes of the launch say how much."""
    limit = register_limit(thread_count(launch))
    layouts = layouts_in(launch.body)
    for stmt in walk(launch.body):
        if not isinstance(stmt, WarpGemm):
            continue
        sums, words = _sums(layouts[stmt.c.buffer], str(stmt.c.buffer.dtype)), _words(stmt)
        if sums > _HOPELESS * limit:
            raise _too_many(launch, stmt, sums, words, limit)


def register_limit(threads: int) -> int:
    """The registers that each thread of a block may have. Too many threads are refused elsewhere."""
    return registers_of_a_thread(min(threads, _THREADS))


def _sums(layout: Layout, dtype: str) -> int:
    return extent_of(layout, "reg") * (2 if dtype in ("float64", "int64") else 1)


def _words(stmt: WarpGemm) -> int:
    """The operands of one step."""
    rows, columns = stmt.tile.tiles
    if isinstance(stmt, SparseWarpGemm):
        return rows * 5 + columns * 4
    if isinstance(stmt, ScaledWarpGemm):
        return rows * 5 + columns * 3
    return rows * 4 + columns * 2


def _too_many(launch: Launch, stmt: WarpGemm, sums: int, words: int, limit: int) -> CompileError:
    threads = thread_count(launch)
    return CompileError(
        f"the product into {stmt.c.buffer.name} takes {sums + words + _RESERVED} registers of each thread, a "
        f"block of {threads} threads has {limit}",
        place=place_of(stmt, "T.gemm"),
        why=f"{sums} hold sums, {words} operands, {_RESERVED} are for addresses",
        remedy="use a smaller tile" if limit < MOST_REGISTERS else "use a smaller tile or more threads",
        kind=Kind.REGISTERS,
    )
