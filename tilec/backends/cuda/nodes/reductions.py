"""Reductions, scans and exchanges of the threads of a block."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilec.ir.layout import Layout
from tilec.ir.nodes.threads import ThreadReduce
from tilec.ir.stmt import Region, Scratch, Stmt, Updates

if TYPE_CHECKING:
    from tilec.ir.stmt import Buffer


@dataclass(frozen=True, eq=False)
class BlockScan(Stmt):
    """``tile``, a whole fragment, becomes its inclusive scan along the last axis; with ``reverse`` from the
    end. ``scratch`` is a shared tile (pieces of a thread, warps along the axis, lines) where the axis is
    spread over warps, else None. Fields as in `tilec.ir.nodes.Scan`."""

    kind: str
    tile: Updates[Region]
    reverse: bool
    scratch: Scratch[Buffer | None] = None


@dataclass(frozen=True, eq=False)
class BlockReduce(Stmt):
    """A Reduce whose ``dst`` has the layout of ``src`` without ``axis``. ``scratch`` is a shared tile
    (warps along the axis, elements of dst) where the axis is spread over warps, else None."""

    kind: str
    src: Region
    dst: Updates[Region]
    axis: int
    clear: bool
    nan_propagate: bool
    scratch: Scratch[Buffer | None] = None


@dataclass(frozen=True, eq=False)
class OwnReduce(BlockReduce):
    """A BlockReduce of each thread's own elements: threads that share a result have parts of it."""


@dataclass(frozen=True, eq=False)
class JoinReduce(Stmt):
    """A BlockReduce of the ``parts`` that OwnReduce left, which lie as ``dst``: threads have them over which
    ``layout``, that of what was reduced, spreads the ``axis``."""

    kind: str
    parts: Region
    dst: Updates[Region]
    axis: int
    layout: Layout
    clear: bool
    nan_propagate: bool
    scratch: Scratch[Buffer | None] = None


@dataclass(frozen=True)
class Digits:
    """Digits of a thread's number in its block, as (stride, extent)."""

    parts: tuple[tuple[int, int], ...]


@dataclass(frozen=True, eq=False)
class JoinThreads(ThreadReduce):
    """A ThreadReduce: lanes that differ in a bit of ``masks`` exchange values, then threads that differ in a
    digit of ``digits`` read each other's in ``scratch`` (an element for each thread), if there are any."""

    syntax = "buffer[indices] = join_threads(combine, identity, value, cond, axes=)"

    masks: tuple[int, ...] = ()
    digits: Digits = Digits(())
    scratch: Scratch[Buffer | None] = None
