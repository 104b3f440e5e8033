"""The product of two simdgroup matrices as a device helper: its text in Metal's language, and its meaning."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.helper import Helper, Lanes
from tilec.backends.metal.products.tiles import ELEMENTS, SIDE
from tilec.ir.interp.values import numpy_dtype

_TEXT = """
__device__ __forceinline__ void {name}(float* c, const unsigned* a, const unsigned* b) {{
  simdgroup_{matrix}8x8 rows, columns;
  simdgroup_float8x8 sums;
  rows.thread_elements()[0] = {first}(a[0]);
  rows.thread_elements()[1] = {second};
  columns.thread_elements()[0] = {first}(b[0]);
  columns.thread_elements()[1] = {behind};
  sums.thread_elements()[0] = c[0];
  sums.thread_elements()[1] = c[1];
  simdgroup_multiply_accumulate(sums, rows, columns, sums);
  c[0] = sums.thread_elements()[0];
  c[1] = sums.thread_elements()[1];
}}
"""
#: Of an operand's type: the matrix that it is multiplied in, and the functions that give the two elements.
_FORMS = {
    "float16": ("half", "tilec_low_half", "tilec_high_half"),
    "bfloat16": ("float", "tilec_low_bfloat", "tilec_high_bfloat"),
    "float32": ("float", "__uint_as_float", ""),
}


@cache
def multiply(dtype: str) -> Helper:
    """c += a b for a lane's elements of 8 by 8 matrices of ``dtype``: its words of a and b, its two sums."""
    matrix, first, high = _FORMS[dtype]
    second, behind = (f"{high or first}({name}[{0 if high else 1}])" for name in "ab")
    name = f"tilec_simd_{dtype}"
    text = _TEXT.format(name=name, matrix=matrix, first=first, second=second, behind=behind)

    def meaning(lanes: Lanes, c: Any, a: Any, b: Any) -> None:
        _multiply(lanes, c, *(_matrices(lanes, dtype, each) for each in (a, b)))

    return Helper(name, text, meaning)


def rows_and_columns(lane: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Of a lane's first element."""
    return lane // 2 % 4 + lane // 16 * 4, lane % 2 * 2 + lane // 8 % 2 * 4


def _matrices(lanes: Lanes, dtype: str, pointer: Any) -> np.ndarray:
    """The operand of every simdgroup: (simdgroup, 8, 8)."""
    count = ELEMENTS * numpy_dtype(dtype).itemsize // 4
    words = [lanes.load(pointer, "uint32", place) for place in range(count)]
    held = np.stack([np.broadcast_to(word, lanes.count) for word in words], axis=-1)
    elements = np.ascontiguousarray(held).view(numpy_dtype(dtype)).astype(np.float64)
    made = np.empty((lanes.count // 32, SIDE, SIDE))
    lane = np.arange(lanes.count)
    row, column = rows_and_columns(lane % 32)
    for place in range(ELEMENTS):
        made[lane // 32, row, column + place] = elements[:, place]
    return made


def _multiply(lanes: Lanes, c: Any, a: np.ndarray, b: np.ndarray) -> None:
    """Adds the products to the sums that each lane has."""
    if lanes.count % 32:
        raise ValueError("a part of a simdgroup multiplies")
    found = a @ b
    lane = np.arange(lanes.count)
    row, column = rows_and_columns(lane % 32)
    for place in range(ELEMENTS):
        added = found[lane // 32, row, column + place]
        lanes.store(c, "float32", (lanes.load(c, "float32", place) + added).astype(np.float32), place)
