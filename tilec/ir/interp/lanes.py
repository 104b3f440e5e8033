"""Shuffles, votes and reductions on arrays with one entry per thread of a block."""

from __future__ import annotations

from typing import Any

import numpy as np

from tilec.ir.interp import tile
from tilec.ir.nodes.threads import SHUFFLES, WARP


def of_warps(
    kind: str, operands: list[np.ndarray], taken: np.ndarray, width: int, limit: np.ndarray | None
) -> np.ndarray:
    """What every thread gets in its warp. ``taken``: the threads that are here; ``limit``: masks of lanes."""
    count = len(taken)
    lanes = np.arange(count) % WARP
    if limit is not None:
        taken = taken & ((limit >> lanes.astype(np.uint32)) & 1).astype(np.bool_)
    if kind in SHUFFLES:
        return _shuffled(kind, operands[0], operands[1].astype(np.int64), taken, width)
    found = np.zeros(count, operands[0].dtype if kind.startswith("warp_") else np.uint64)
    for first in range(0, count, WARP):
        here = slice(first, min(first + WARP, count))
        found[here] = _of_warp(kind, [operand[here] for operand in operands], taken[here])
    return found


def _shuffled(kind: str, value: np.ndarray, lane: np.ndarray, taken: np.ndarray, width: int) -> np.ndarray:
    number = np.arange(len(value))
    own = number % WARP
    first = own // width * width
    if kind == "shfl":
        source = first + lane % width
    elif kind == "shfl_xor":
        source = own ^ lane
    else:
        source = own + lane if kind == "shfl_down" else own - lane
    low = 0 if kind == "shfl_xor" else first
    inside = (source >= low) & (source < first + width)
    place = np.where(inside, number - own + source, number)
    place = np.where(place < len(value), place, number)
    return np.asarray(value[np.where(taken[place], place, number)])


def _of_warp(kind: str, operands: list[np.ndarray], taken: np.ndarray) -> Any:
    if kind.startswith("warp_"):
        values = operands[0][taken]
        return tile.reduce(kind.removeprefix("warp_"), values, 0, values.dtype, False)
    if kind == "active":
        return _bits(taken)
    if kind in ("match_any", "match_all"):
        return _matching(kind, operands[0], taken)
    holds = operands[0].astype(np.bool_) & taken
    if kind == "ballot":
        return _bits(holds)
    return int(holds.any()) if kind == "any" else int(holds[taken].all())


def _matching(kind: str, values: np.ndarray, taken: np.ndarray) -> Any:
    """Bits of the lanes with the same bits; for "match_all" of all lanes here, or none."""
    words = np.ascontiguousarray(values).view(f"u{values.dtype.itemsize}")
    if kind == "match_any":
        return [_bits((words == word) & taken) for word in words]
    return _bits(taken) if len(np.unique(words[taken])) == 1 else 0


def _bits(holds: np.ndarray) -> int:
    return sum(1 << int(lane) for lane in np.flatnonzero(holds))


def of_block(kind: str, holds: np.ndarray, taken: np.ndarray) -> np.ndarray:
    """A vote of the whole block: how many, all, or any of the threads that are here."""
    found = holds.astype(np.bool_)[taken]
    result = {"block_count": found.sum(), "block_and": found.all(), "block_or": found.any()}[kind]
    return np.full(len(taken), int(result), np.int32)
