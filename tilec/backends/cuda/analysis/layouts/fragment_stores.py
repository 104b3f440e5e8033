"""Loops that store what a fragment of a product holds to a shared tile: which lane best stores what.

Of the sums of mma and wgmma a lane has pairs of neighbours of a row, eight rows a warp. Pairs of 16 bits go
by stmatrix, to which each lane names a row of 16 bytes, and which transposes where columns of the fragment
are rows of the tile. Pairs of 4-byte numbers are 8 bytes, of which half a warp stores four rows at once: in
TMA's patterns two of these rows meet in the same banks, unless some lanes store another one of their pairs
first. Places of further pairs differ from that of the first one in bits and distances that are the same for
all lanes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from tvm import tirx
from tvm.ir import TensorLoad, Var

from tilec.backends.cuda.analysis.layouts.fragments import PAIR
from tilec.ir.exprs import dtype_of, uses
from tilec.ir.layout import Layout
from tilec.ir.layout_algebra import bank_conflicts, element_at, extent_of
from tilec.ir.nodes import Store
from tilec.lowering.emission.storage import element_bytes

if TYPE_CHECKING:
    from tilec.backends.cuda.nodes import ThreadLoop

_LANES = 32
#: Elements of a row of stmatrix, and matrices of one instruction.
_ROW, _MATRICES = 8, 4
#: Instructions from which on matrices are transposed on their way. Results of 16 rows, two of them, at the
#: end of a short block: 676 us on an H200, 691 transposed so.
_LEAST_TURNED = 4
#: What float32 is rounded to in pairs.
_ROUNDED = ("float16", "bfloat16")


@dataclass(frozen=True)
class Step:
    """The place of a further access, from that of the first one: ``(first ^ flip) + far``."""

    flip: int
    far: int


@dataclass(frozen=True)
class FragmentStore:
    """``steps``: of each stmatrix of four pairs of registers, in order, or of each pair. ``lane_bit`` and
    ``pair_bit``: lanes with that bit set store pair p ^ pair_bit in place of p; 0 where none do. ``turned``:
    the tile holds the fragment transposed."""

    store: Store
    fragment: Var
    steps: tuple[Step, ...]
    matrices: bool
    lane_bit: int = 0
    pair_bit: int = 0
    turned: bool = False


def fragment_store(stmt: ThreadLoop, layouts: Mapping[Var, Layout]) -> FragmentStore | None:
    """How threads store a fragment's pairs; None for other loops, and where it takes several accesses of a
    bank in turn."""
    store = stmt.body[0] if len(stmt.body) == 1 else None
    value = store.value if isinstance(store, Store) else None
    value = value.value if isinstance(value, tirx.Cast) else value
    if not isinstance(store, Store) or not isinstance(value, TensorLoad):
        return None
    if len(stmt.vars) != 2 or len(store.indices) < 2:
        return None
    own, tile = layouts.get(value.source), layouts.get(store.buffer)
    if own is None or tile is None or not _is_plain(stmt, store):
        return None
    places = _places(stmt.layout, tile) if _is_held_so(stmt, value, own) else None
    if places is None:
        return None
    made, given = str(store.buffer.dtype), dtype_of(value)
    if element_bytes(made) == 2 and (given == made or (given == "float32" and made in _ROUNDED)):
        plain = _by_matrices(store, value.source, places, turned=False)
        return plain or _by_matrices(store, value.source, places, turned=True)
    alike = given == made and element_bytes(made) == 4
    return _by_pairs(store, value.source, places) if alike else None


def _is_plain(stmt: ThreadLoop, store: Store) -> bool:
    """Whether every thread has whole pairs of its own, and stores them where the loop stands."""
    *lead, row, column = store.indices
    moves = any(uses(index, stmt.vars) for index in lead)
    here = row.same_as(stmt.vars[0]) and column.same_as(stmt.vars[1])
    whole = tuple(stmt.extents) == stmt.layout.shape and extent_of(stmt.layout, "group") == 1
    return store.buffer.scope() == "shared.dyn" and here and whole and not moves


def _is_held_so(stmt: ThreadLoop, value: TensorLoad, own: Layout) -> bool:
    """Whether an iteration reads the element of a fragment that it is named after, or the transposed one,
    and that lies with its thread."""
    if value.source.scope() != "local.fragment" or len(value.indices) != 2:
        return False
    for order in (slice(None), slice(None, None, -1)):
        pairs = zip(value.indices, stmt.vars[order], strict=True)
        if all(index.same_as(var) for index, var in pairs):
            return Layout(own.digits[order]) == stmt.layout
    return False


def _places(own: Layout, tile: Layout) -> np.ndarray | None:
    """Where each warp and lane stores the element of each register; None where threads have the same ones."""
    count, warps = extent_of(own, "reg"), extent_of(own, "warp")
    lead = (0,) * (len(tile.shape) - 2)
    place = {
        "warp": np.arange(warps)[:, None, None],
        "lane": np.arange(_LANES)[None, :, None],
        "reg": np.arange(count)[None, None, :],
        "group": 0,
    }
    element = element_at(own, place)
    found = np.broadcast_to(tile.offset((*lead, *element)), (warps, _LANES, count))
    behind = tile.offset((*(min(size - 1, 1) for size in tile.shape[:-2]), *element))
    if lead and len(np.unique(behind - found)) > 1:
        return None
    return found if len(np.unique(found)) == found.size and count % PAIR == 0 else None


def _by_matrices(store: Store, fragment: Var, places: np.ndarray, turned: bool) -> FragmentStore | None:
    """By stmatrix: four lanes have the pairs of a row of 16 bytes, or eight lanes a column each."""
    warps, _, count = places.shape
    pairs = count // PAIR
    found = places.reshape(warps, _ROW, _ROW // PAIR, pairs, PAIR).transpose(0, 1, 2, 4, 3)
    matrices = found.reshape(warps, _ROW, _ROW, pairs)  # by row and column of what lanes have of each pair
    matrices = matrices.transpose(0, 2, 1, 3) if turned else matrices
    rows = matrices[:, :, 0, :]
    joined = np.all(matrices == rows[:, :, None, :] + np.arange(_ROW)[None, None, :, None])
    banks = np.sort(rows // _ROW % _ROW, axis=1)
    alone = np.all(banks == np.arange(_ROW)[None, :, None]) and np.all(rows % _ROW == 0)
    few = turned and pairs < _LEAST_TURNED * _MATRICES
    if pairs % _MATRICES or few or not joined or not alone:
        return None
    named = rows.reshape(warps, _ROW, pairs // _MATRICES, _MATRICES).transpose(0, 3, 1, 2)
    first = rows[:, :1, :_MATRICES] - rows[:, :1, :1]  # the matrices of an instruction lie as two bits say
    if not np.all(first[..., 3] == first[..., 1] + first[..., 2]):
        return None
    steps = _steps(named.reshape(warps, _LANES, -1))
    return None if steps is None else FragmentStore(store, fragment, steps, True, turned=turned)


def _by_pairs(store: Store, fragment: Var, places: np.ndarray) -> FragmentStore | None:
    """By vectors of two: as they come, or with pairs that some lanes exchange."""
    if not np.all(places[:, :, 1::PAIR] == places[:, :, ::PAIR] + 1):
        return None
    places = places[:, :, ::PAIR]
    pairs = places.shape[-1]
    lanes, numbers = np.arange(_LANES), np.arange(pairs)
    bits = [(0, 0)] + [(1 << lane, 1 << pair) for lane in range(5) for pair in range(pairs.bit_length() - 1)]
    for lane_bit, pair_bit in bits if pairs & (pairs - 1) == 0 else bits[:1]:
        moved = numbers[None, :] ^ np.where(lanes & lane_bit, pair_bit, 0)[:, None]
        chosen = np.take_along_axis(places, np.broadcast_to(moved, places.shape), axis=2)
        steps = _steps(chosen)
        ways = (bank_conflicts(chosen[0, :, pair].tolist(), 4, 2) for pair in range(pairs))
        if steps is not None and all(each == 1 for each in ways):
            return FragmentStore(store, fragment, steps, False, lane_bit, pair_bit)
    return None


def _steps(places: np.ndarray) -> tuple[Step, ...] | None:
    """From the first access to each one, the same for all threads; None where it is not."""
    first = places[..., :1]
    apart = places ^ first
    if not np.all(apart == apart[:1, :1]):
        return None
    used = int(np.bitwise_or.reduce(first, axis=None))
    return tuple(Step(int(each) & used, int(each) & ~used) for each in apart[0, 0])
