"""Halves of words of memory that lanes read at any distance, by few whole vectors whose halves change places:
AVX-512 takes each of 32 from one of two vectors by one instruction (`vpermt2w`), where joining pieces of a
vector takes one for each piece but the first.

bytes 74 to 143 of a row of blocks     ->     the vectors at 64 and at 128
bytes 146 to 215                       ->     the vectors at 128 and at 192

Vectors begin at multiples of their size from where the known part of an index counts, as far as a tensor has
their bytes, so that statements which read one behind the other have vectors in common, and these are loaded
once (docs/performance/cpu-quantised.md).
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.backends.cpu.emit.vectors.digits import in_first_lane
from tilec.backends.cpu.emit.vectors.pieces import places_of
from tilec.backends.cpu.products.tir import index, span
from tilec.ir.exprs import dtype_of, int_value, substitute
from tilec.lowering.emission.access import bounds_to_test

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tvm.ir import Expr

    from tilec.backends.cpu.emit.context import LaneContext
    from tilec.lowering.emission.storage import Storage
    from tilec.targets import Target

_HALF = 2
#: Bytes of a vector, and its halves of words.
_SIZE = 64
_HALVES = _SIZE // _HALF
#: Words of a vector.
WORDS = _SIZE // 4


def _has_windows(target: Target) -> bool:
    """Whether two vectors of a target give halves of words to a third."""
    return target.arch == "x86_64" and target.vector_bits == 8 * _SIZE


def halves_of_windows(
    storage: Storage, indices: Sequence[Expr], each: int, most: int, ctx: LaneContext
) -> Expr | None:
    """``each`` halves of words a lane, that begin with the byte at ``indices``, one lane behind the other, as
    a vector of uint16; None where they do not lie at even distances, in ``most`` vectors of bytes that the
    buffer has. Where it takes more of those that statements share, vectors begin with the bytes."""
    flat = storage.layout is None and storage.copies == 1 and int_value(storage.strides[-1]) == 1
    places = places_of(storage, indices, ctx) if flat and _has_windows(ctx.target) else None
    if places is None:
        return None
    halves = [place + _HALF * half for place in places for half in range(each)]
    reach = _Reach(storage, indices, halves, ctx)
    tried = (reach.starts(shared) for shared in (True, False))
    starts = next((found for found in tried if 0 < len(found) <= most), None)
    return None if starts is None else reach.taken(starts)


class _Reach:
    """Where vectors lie that have ``halves``: bytes behind that of the first lane, that at ``indices``."""

    def __init__(
        self, storage: Storage, indices: Sequence[Expr], halves: Sequence[int], ctx: LaneContext
    ) -> None:
        self.storage, self.halves, self.ctx = storage, halves, ctx
        self.first = ctx.facts.analyzer.simplify(storage.offset([in_first_lane(at, ctx) for at in indices]))
        assert ctx.lanes is not None
        own = {ctx.lanes.var: ctx.lanes.base}
        self.indices = [ctx.facts.analyzer.simplify(substitute(ctx.facts.inline(at), own)) for at in indices]
        self.known: dict[int, bool] = {}

    def starts(self, shared: bool) -> list[int]:
        """Where vectors begin that have all halves, those that statements share or their own; none where the
        buffer may not have as many bytes."""
        left, starts = sorted(set(self.halves)), []
        if any((later - half) % _HALF for half, later in pairwise(left)):
            return []
        while left:
            start = self._start(self._shared(left[0]) if shared else left[0])
            if start is None or not _has(start, left[0]):
                return []
            starts.append(start)
            left = [half for half in left if not _has(start, half)]
        return starts

    def taken(self, starts: Sequence[int]) -> Expr:
        """The halves, from vectors that begin there: those of the first two by one instruction, those of each
        other one by one more."""
        owners = [next(at for at, start in enumerate(starts) if _has(start, half)) for half in self.halves]
        own = [(half - starts[at]) // _HALF for half, at in zip(self.halves, owners, strict=True)]
        vectors = [self._whole(start) for start in starts]
        if len(vectors) == 1:
            return tirx.Shuffle(vectors, [index(at) for at in own])
        found, held = vectors[0], own
        for number, vector in enumerate(vectors[1:], 1):
            lanes = [
                _HALVES + at if owner == number else before if owner < number else 0
                for at, before, owner in zip(own, held, owners, strict=True)
            ]
            rest = [0] * (_HALVES - len(lanes)) if number < len(vectors) - 1 else []
            found = tirx.Shuffle([found, vector], [index(at) for at in lanes + rest])
            held = [*range(len(own))]
        return found

    def _start(self, start: int) -> int | None:
        """Where a vector begins in place of ``start``, so that the buffer has all of it; None where that is
        not known of any."""
        if not self._exists(start):
            start = min(self.halves)
        if self._exists(start + _SIZE - 1):
            return start
        start = self._row_end(max(self.halves)) - _SIZE
        return start if self._exists(start) else None

    def _shared(self, half: int) -> int:
        """Where a vector begins that statements with other places have as well: some vectors behind what is
        known of an index."""
        known = _known(self.first)
        odd = (known + half) % _HALF
        return (known + half - odd) // _SIZE * _SIZE + odd - known

    def _row_end(self, half: int) -> int:
        """The end of the row along the last axis that has a half, by whole halves; that of the half itself
        where rows are not known."""
        last, size = int_value(self.indices[-1]), int_value(self.storage.shape[-1])
        if last is None or size is None:
            return half + _HALF
        left = size - (last + half) % size
        return half + left // _HALF * _HALF

    def _exists(self, byte: int) -> bool:
        """Whether the buffer surely has a byte."""
        if min(self.halves) <= byte < max(self.halves) + _HALF:
            return True
        if byte not in self.known:
            self.known[byte] = self._is_inside(byte)
        return self.known[byte]

    def _is_inside(self, byte: int) -> bool:
        """Whether the indices of a byte are proven to lie inside: of rows of a known size that of another."""
        *outer, last = self.indices
        size, strides = int_value(self.storage.shape[-1]), self.storage.strides
        at = int_value(last)
        if size is None or at is None or len(outer) < 1 or int_value(strides[-2]) != size:
            moved = [*outer, last + tirx.const(byte, dtype_of(last))]
        else:
            rows, column = divmod(at + byte, size)
            row = outer[-1] + tirx.const(rows, dtype_of(outer[-1]))
            moved = [*outer[:-1], row, tirx.const(column, dtype_of(last))]
        return bounds_to_test(moved, self.storage.shape, self.ctx.facts) == []

    def _whole(self, start: int) -> Expr:
        """The halves of the vector at ``start``."""
        at = self.ctx.facts.analyzer.simplify(self.first + start)
        return tirx.reinterpret(f"uint16x{_HALVES}", tirx.BufferLoad(self.storage.data, [span(at, _SIZE)]))


def _has(start: int, half: int) -> bool:
    """Whether the vector at ``start`` has the two bytes at ``half``."""
    return start <= half <= start + _SIZE - _HALF


def _known(offset: Expr) -> int:
    """The number that an index of bytes adds to what is open."""
    if isinstance(offset, tirx.Add):
        return int_value(offset.b) or 0
    return int_value(offset) or 0
