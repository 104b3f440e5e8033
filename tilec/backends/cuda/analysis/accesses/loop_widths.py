"""How many neighbours vectors of loops have: as many as their accesses move at once, and threads leave."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tilec.backends.cuda.analysis.accesses.bit_fields import bit_field
from tilec.backends.cuda.analysis.accesses.vectors import (
    HELD_BY_TWO,
    WIDEST,
    begins_anywhere,
    combs,
    span,
    vector_width,
    widest,
)
from tilec.backends.cuda.analysis.blocks.threads import thread_count
from tilec.backends.cuda.analysis.layouts.fragments import PAIR
from tilec.backends.cuda.analysis.layouts.loops import loop_extents
from tilec.backends.cuda.device.floats import PAIRED
from tilec.backends.cuda.nodes import RaggedLoop
from tilec.ir.exprs import inlined, uses
from tilec.ir.nodes import Kernel, Launch, Parallel, Stmt, Store, is_global, walk
from tilec.lowering.analysis.accesses import Access, accesses, values_of
from tilec.lowering.analysis.scopes import ScopedRewrite
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tvm.ir import Var

#: Bytes of the widest elements of loops over registers alone whose results are rounded in pairs. Attention
#: with a bias is 2 % slower on an H200 with its weights, which come from float32 sums, rounded so.
_NARROW = 2


def widest_share(loop: Parallel, threads: int) -> int:
    """The most elements, neighbours along the last variable, that a vector of any loop has and that leave
    each of ``threads`` one vector."""
    extents = loop_extents(loop)
    return min(WIDEST, _power(max(1, math.prod(extents) // threads)), extents[-1] & -extents[-1])


class VectorWidths(NamedTuple):
    """Per Parallel the widest vector of its global accesses along the last variable, or of its shared ones
    where it has no others: one that leaves each thread a vector, (``alike``) one of loops that several
    threads run alike, and (``laid``) one of loops over tiles alone whose neighbours in a thread other
    statements have chosen: as many of them as an access moves."""

    found: dict[Stmt, int]
    alike: dict[Stmt, int]
    laid: dict[Stmt, int]


def vector_widths(kernel: Kernel, launch: Launch) -> VectorWidths:
    """The widths of all loops of a launch."""
    finder = _Widths(kernel, launch)
    finder.block(launch.body)
    return finder.widths


def _power(number: int) -> int:
    """The largest power of two up to ``number``."""
    return 1 << (number.bit_length() - 1)


def _in_memory(items: Sequence[Access]) -> list[Access]:
    """Those of tensors and shared tiles."""
    return [item for item in items if item.buffer.scope().startswith(("global", "shared.dyn"))]


class _Widths(ScopedRewrite):
    """Visits the loops of a launch with what is known there."""

    def __init__(self, kernel: Kernel, launch: Launch) -> None:
        super().__init__(kernel, launch)
        self.widths = VectorWidths({}, {}, {})

    def stmt(self, stmt: Stmt) -> list[Stmt]:
        """Records the width of a loop."""
        if not isinstance(stmt, Parallel):
            return super().stmt(stmt)
        if isinstance(stmt, RaggedLoop):
            self.widths.found[stmt] = stmt.width
            return [stmt]
        self._learn(stmt)
        for inner in walk(stmt.body):
            self._learn(inner)
        asked = _power(stmt.hints.coalesced_width or WIDEST)
        limit = min(asked, widest_share(stmt, thread_count(self.launch)))
        moving = [item for item in accesses(stmt.body) if self._moves(item, stmt.vars[-1])]
        self.widths.found[stmt] = self._width(stmt, moving, limit)
        alike = min(asked, widest_share(stmt, 1))
        if limit < alike:
            self.widths.alike[stmt] = self._width(stmt, moving, alike)
        memory = _in_memory(moving)
        if not any(is_global(item.buffer) for item in memory):
            self.widths.laid[stmt] = max((self._vector(item, stmt, asked) for item in memory), default=1)
        return [stmt]

    def _width(self, stmt: Parallel, items: Sequence[Access], limit: int) -> int:
        """The widest vector of accesses of tensors that move along the last variable. Where there are none,
        that of tiles, as far as none of them moves more than one access does: lanes then meet no bank
        twice. Single elements of tensors are neighbours of lanes, whatever tiles allow. ``items`` are all
        accesses that move."""
        memory = _in_memory(items)
        outside = [item for item in memory if is_global(item.buffer)]
        memory = outside or memory
        widths = {item: self._vector(item, stmt, limit) for item in memory}
        widths |= self._combed(memory, stmt, limit)
        if outside and max(widths.values()) > 1:
            return max(widths.values())
        wide = [item for item in items if item.is_write or widths.get(item, 1) > 1]
        limit = min(limit, WIDEST // max((element_bytes(str(item.buffer.dtype)) for item in wide), default=1))
        halves = any(item.is_write and str(item.buffer.dtype) in PAIRED for item in items)
        narrow = all(element_bytes(str(item.buffer.dtype)) <= _NARROW for item in items)
        if not memory and ((halves and narrow) or self._unpacks(stmt)):
            return limit
        runs = (self._run(item, stmt, limit) for item in memory if not item.is_write)
        inside = [] if outside else [min(width, limit) for width in widths.values()]
        return max([1, *inside, *runs])

    def _unpacks(self, stmt: Parallel) -> bool:
        """Whether a loop makes bytes of integers of fewer bits."""
        names = values_of(stmt.body)
        found = (
            bit_field(inlined(each.value, names), self.facts.analyzer)
            for each in stmt.body
            if isinstance(each, Store) and element_bytes(str(each.buffer.dtype)) == 1
        )
        return any(field is not None and field.width < 8 for field in found)

    def _moves(self, item: Access, var: Var) -> bool:
        return any(uses(self.facts.inline(index), (var,)) for index in item.indices)

    def _vector(self, item: Access, stmt: Parallel, limit: int) -> int:
        return vector_width(item.buffer, item.indices, stmt.vars[-1], limit, self.facts)

    def _combed(self, items: Sequence[Access], stmt: Parallel, limit: int) -> dict[Access, int]:
        """How many values of the last variable name together what one access moves, of accesses to every
        second or fourth element that together name all."""
        found: dict[Access, int] = {}
        for item, (comb, _) in combs(items, stmt.vars[-1], self.facts).items():
            count = min(limit, max(PAIR, widest(item.buffer, WIDEST) // comb.stride))
            if comb.width(item.buffer, count, WIDEST, self.facts):
                found[item] = count
        return found

    def _run(self, item: Access, stmt: Parallel, limit: int) -> int:
        """How many values of the last variable read from one short run, or from two vectors, by fewer
        accesses, as far as `limit`: lanes that take an access for each value take neighbours at once."""
        held = begins_anywhere(item.buffer, item.indices, stmt.vars[-1], limit, self.facts)
        if held >= HELD_BY_TWO:
            return held
        while limit > 1 and not self._is_run(item, stmt, limit):
            limit //= 2
        return limit

    def _is_run(self, item: Access, stmt: Parallel, count: int) -> bool:
        found = span(item.buffer, item.indices, stmt.vars[-1], count, count, self.facts)
        return found is not None and (1 + max(found[1])) // found[0] < count
