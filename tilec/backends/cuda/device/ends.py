"""Vectors at the ends of rows, moved element by element, and vectors that begin between two others."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.helper import Helper, Lanes

#: Bytes that are moved at once at the end of a row.
WORD = 4
#: An element of so many bytes, in C and as a dtype.
_ELEMENTS = {1: ("unsigned char", "uint8"), 2: ("unsigned short", "uint16"), 4: ("unsigned", "uint32")}


#: The word that begins ``shift`` bytes behind the start of one of ``held``.
_SHIFTED = "(unsigned)((((unsigned long)held[i + 1] << 32) | held[i]) >> (shift & 3) * 8)"


@cache
def realign(size: int, element: int) -> Helper:
    """Makes the first of two neighbouring vectors of ``size`` bytes the one that begins ``rest`` elements of
    so many bytes further on."""
    name, words = f"tilec_realign_{size}_{element}", size // 4

    def meaning(lanes: Lanes, low: Any, above: Any, rest: Any) -> None:
        both = [lanes.load(part, "uint32", word) for part in (low, above) for word in range(words)]
        held = np.stack([np.broadcast_to(each, (lanes.count,)) for each in both]).astype(np.uint64)
        shift = np.broadcast_to(np.asarray(rest) * element, (lanes.count,)).astype(np.int64)
        lane, last = np.arange(lanes.count), 2 * words - 1
        for word in range(words):
            first = np.minimum(shift // 4 + word, last)
            pair = held[first, lane] | held[np.minimum(first + 1, last), lane] << np.uint64(32)
            made = (pair >> (shift % 4 * 8).astype(np.uint64)).astype(np.uint32)
            lanes.store(low, "uint32", made, word)

    steps = "".join(
        f"  for (int i = 0; i < {words + step}; ++i) {{\n"
        f"    if (shift & {step * 4}) held[i] = held[i + {step}];\n  }}\n"
        for step in (2, 1)
        if step < words
    )
    last = "held[i]" if element == WORD else _SHIFTED
    return Helper(name, f"""
__device__ __forceinline__ void {name}(void* low, const void* above, int rest) {{
  unsigned held[{2 * words}];
  unsigned shift = rest * {element};
  for (int i = 0; i < {words}; ++i) {{
    held[i] = ((unsigned*)low)[i];
    held[{words} + i] = ((const unsigned*)above)[i];
  }}
{steps}  for (int i = 0; i < {words}; ++i) {{ ((unsigned*)low)[i] = {last}; }}
}}
""", meaning)  # fmt: skip


#: Which elements of a vector from ``index`` on exist: those from ``begin`` to before ``end``, and where it
#: goes around, of the first ``turned`` some a lap further on.
_RANGE = """  int begin = index < 0 ? (int)(0 - index) : 0;
  int end = extent - index < {count} ? (int)(extent - index) : {count};
  if (turned > begin) begin = turned;
"""
#: What a row that goes around has of a vector: ``moved`` of each of its elements that lie a lap further on.
_TURNED = """  if (turned > 0 && index + lap < extent) {{
    #pragma unroll
    for (int i = 0; i < {count}; ++i) {{
      if (i < turned && index + lap + i < extent) {{{moved}}}
    }}
  }}
"""


@cache
def read_end(size: int, element: int) -> Helper:
    """Reads the elements of a vector of ``size`` bytes, of so many bytes each, of which the first ``turned``
    lie ``lap`` further on than the others; 0 where ``index``, that of the first in its row, comes to one that
    is negative or not below ``extent``. All are asked for before one is waited for."""
    name, (word, dtype) = f"tilec_read_end_{size}_{element}", _ELEMENTS[element]
    count, words = size // element, size // WORD

    def meaning(
        lanes: Lanes, to: Any, source: Any, at: Any, index: Any, extent: Any, turned: Any, lap: Any
    ) -> None:
        held = np.zeros((lanes.count, count), dtype)
        for number in range(count):
            step, inside = _inside(lanes, number, index, extent, turned, lap)
            if inside is not None:
                held[:, number] = inside.chosen(inside.load(source, dtype, at + step), held[:, number])
        _keep(lanes, to, held)

    each = WORD // element
    parts = [f"found[{each} * i + {part}] << {8 * element * part}" for part in range(each)]
    made = " | ".join(f"({part})" for part in parts)
    moved = f" found[i] = ((const {word}*)from)[at + lap + i]; "
    return Helper(name, f"""
__device__ __forceinline__ void {name}(
    void* to, const void* from, long at, long index, long extent, int turned, int lap) {{
  unsigned found[{count}];
{_RANGE.format(count=count)}  #pragma unroll
  for (int i = 0; i < {count}; ++i) {{
    found[i] = 0;
    if (i >= begin && i < end) {{ found[i] = ((const {word}*)from)[at + i]; }}
  }}
{_TURNED.format(count=count, moved=moved)}  #pragma unroll
  for (int i = 0; i < {words}; ++i) {{ ((unsigned*)to)[i] = {made}; }}
}}
""", meaning)  # fmt: skip


@cache
def cut_end(size: int, element: int) -> Helper:
    """Makes of a vector of ``size`` bytes, read whole, what `read_end` would have read: elements beside the
    row become 0, those that lie ``lap`` further on are read."""
    name, (word, dtype) = f"tilec_cut_end_{size}_{element}", _ELEMENTS[element]
    count, words = size // element, size // WORD

    def meaning(
        lanes: Lanes, to: Any, source: Any, at: Any, index: Any, extent: Any, turned: Any, lap: Any
    ) -> None:
        held = _elements(lanes, to, words, dtype)
        for number in range(count):
            step, inside = _inside(lanes, number, index, extent, turned, lap)
            exists = (index + step >= 0) & (index + step < extent)
            held[:, number] = np.where(exists, held[:, number], 0)
            moved = None if inside is None else inside.under(step > number)
            if moved is not None:
                held[:, number] = moved.chosen(moved.load(source, dtype, at + step), held[:, number])
        _keep(lanes, to, held)

    each, bits = WORD // element, 8 * element
    full = (1 << bits) - 1
    kept = " | ".join(
        f"({each} * i + {part} >= begin && {each} * i + {part} < end ? {full << bits * part:#x}u : 0)"
        for part in range(each)
    )
    moved = f"""
        ((unsigned*)to)[i / {each}] |= (unsigned)((const {word}*)from)[at + lap + i] << (i % {each} * {bits});
      """
    return Helper(name, f"""
__device__ __forceinline__ void {name}(
    void* to, const void* from, long at, long index, long extent, int turned, int lap) {{
{_RANGE.format(count=count)}  #pragma unroll
  for (int i = 0; i < {words}; ++i) {{ ((unsigned*)to)[i] &= {kept}; }}
{_TURNED.format(count=count, moved=moved)}}}
""", meaning)  # fmt: skip


@cache
def write_end(size: int, element: int) -> Helper:
    """Writes the elements of a vector as `read_end` reads them."""
    name, (word, dtype) = f"tilec_write_end_{size}_{element}", _ELEMENTS[element]
    count, words = size // element, size // WORD

    def meaning(
        lanes: Lanes, to: Any, at: Any, source: Any, index: Any, extent: Any, turned: Any, lap: Any
    ) -> None:
        held = _elements(lanes, source, words, dtype)
        for number in range(count):
            step, inside = _inside(lanes, number, index, extent, turned, lap)
            if inside is not None:
                inside.store(to, dtype, np.ascontiguousarray(held[:, number]), at + step)

    each = WORD // element
    part = f"({word})(((const unsigned*)from)[i / {each}] >> (i % {each} * {8 * element}))"
    moved = f" (({word}*)to)[at + lap + i] = {part}; "
    return Helper(name, f"""
__device__ __forceinline__ void {name}(
    void* to, long at, const void* from, long index, long extent, int turned, int lap) {{
{_RANGE.format(count=count)}  #pragma unroll
  for (int i = 0; i < {count}; ++i) {{
    if (i >= begin && i < end) {{ (({word}*)to)[at + i] = {part}; }}
  }}
{_TURNED.format(count=count, moved=moved)}}}
""", meaning)  # fmt: skip


def _elements(lanes: Lanes, source: Any, words: int, dtype: str) -> Any:
    """The elements of a vector of so many words, one lane a row."""
    loaded = [np.broadcast_to(lanes.load(source, "uint32", word), (lanes.count,)) for word in range(words)]
    return np.ascontiguousarray(np.stack(loaded, 1).astype(np.uint32)).view(dtype)


def _keep(lanes: Lanes, to: Any, held: np.ndarray) -> None:
    """Stores the words of such a vector."""
    for number, value in enumerate(np.ascontiguousarray(held).view(np.uint32).T):
        lanes.store(to, "uint32", np.ascontiguousarray(value), number)


def _inside(
    lanes: Lanes, number: int, index: Any, extent: Any, turned: Any, lap: Any
) -> tuple[Any, Lanes | None]:
    """How far an element of a vector is from where that begins, and the lanes in which it exists."""
    step = number + np.where(number < np.asarray(turned), lap, 0)
    return step, lanes.under((index + step >= 0) & (index + step < extent))
