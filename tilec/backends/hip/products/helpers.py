"""Matrix instructions as device helpers: their C++, and what they mean by the published layouts; and the bits
of 8-bit floats as gfx942 reads them."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.helper import Helper, Lanes
from tilec.backends.hip.products.instructions import SIDE, Form, Matrix
from tilec.ir.interp.values import numpy_dtype

_TEXT = """
__device__ __forceinline__ void {name}({sums}* c, const unsigned* a, const unsigned* b) {{
  typedef {operand} operand{operand_lanes};
  typedef {sums} sums __attribute__((ext_vector_type({run})));
  operand rows, columns;
  sums held;
  __builtin_memcpy(&rows, b, sizeof(rows));
  __builtin_memcpy(&columns, a, sizeof(columns));
  __builtin_memcpy(&held, c, sizeof(held));
  held = {builtin}({before}rows, {before}columns, held{behind});
  __builtin_memcpy(c, &held, sizeof(held));
}}
"""
_FNUZ_TEXT = """
__device__ __forceinline__ unsigned tilec_to_fnuz(unsigned word) {
  unsigned magnitude = word & 0x7f7f7f7fu, not_zero = magnitude + 0x7f7f7f7fu;
  unsigned nan = ((magnitude + 0x01010101u) >> 7) & 0x01010101u;
  return (magnitude + nan) | (word & not_zero & 0x80808080u);
}
"""
_BYTES = {"_Float16": 2, "__bf16": 2, "short": 2, "float": 4, "int": 4, "long": 8, "double": 8}
_KINDS = {"float": "float32", "int": "int32", "double": "float64"}


def words_of(made: Matrix) -> int:
    """Words of an operand in a lane."""
    return made.count * _BYTES[made.operand] // 4


@cache
def multiply(made: Matrix, form: Form, dtype: str) -> Helper:
    """c += a b^T for operands of ``dtype``: a lane's words of a row of a, those of a row of b, its sums."""
    dtype = made.reads or dtype
    name = f"tilec_{made.builtin.removeprefix('__builtin_amdgcn_')}_{dtype}"
    lanes = f" __attribute__((ext_vector_type({made.count})))" if made.count > 1 else ""
    text = _TEXT.format(name=name, operand_lanes=lanes, run=form.run, **vars(made))

    def meaning(given: Lanes, c: Any, a: Any, b: Any) -> None:
        add_products(
            given, form, _KINDS[made.sums], c, *(_rows(given, form, made, dtype, each) for each in (a, b))
        )

    return Helper(name, text, meaning)


def _numpy(dtype: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(ml_dtypes.float8_e4m3fnuz) if dtype == "float8_e4m3fnuz" else numpy_dtype(dtype)


def _to_fnuz(lanes: Lanes, word: Any) -> Any:
    held = np.ascontiguousarray(np.broadcast_to(word, lanes.count)).astype(np.uint32)
    halves = held.view(_numpy("float8_e4m3fn")).astype(np.float32) * np.float32(0.5)
    return halves.astype(_numpy("float8_e4m3fnuz")).view(np.uint32)


#: float8_e4m3fn in the four bytes of a word as float8_e4m3fnuz, each at half of its value: bits stay, but
#: those of a negative zero, which has none, and of NaN, the bits of a negative zero.
FNUZ = Helper("tilec_to_fnuz", _FNUZ_TEXT, _to_fnuz)


def _rows(lanes: Lanes, form: Form, made: Matrix, dtype: str, pointer: Any) -> np.ndarray:
    """Rows of an operand, of all waves: (wave, 16, depth)."""
    words = [lanes.load(pointer, "uint32", place) for place in range(words_of(made))]
    held = np.stack([np.broadcast_to(word, lanes.count) for word in words], axis=-1)
    elements = np.ascontiguousarray(held, np.uint32).view(_numpy(dtype))
    parts = elements.reshape(-1, form.pieces, SIDE, elements.shape[-1])
    if not form.repeats:
        whole: np.ndarray = parts.transpose(0, 2, 1, 3).reshape(len(parts), SIDE, -1)
        return whole
    if not np.array_equal(parts[:, 0].view(np.uint8), parts[:, 1].view(np.uint8)):
        raise ValueError("the halves of a wave hold different rows of an operand")
    rows: np.ndarray = parts[:, 0]
    return rows


def add_products(lanes: Lanes, form: Form, kind: str, c: Any, a: np.ndarray, b: np.ndarray) -> None:
    """Adds products of rows (wave, 16, depth) to the sums, of type ``kind``, that each lane has."""
    if lanes.count % form.lanes:
        raise ValueError(f"a part of a wave of {form.lanes} lanes multiplies")
    exact = np.int64 if kind == "int32" else np.float64
    found = b.astype(exact) @ a.astype(exact).transpose(0, 2, 1)  # rows of the instruction are columns of c
    for place in range(form.run):
        lane = np.arange(form.lanes)
        part = lane // SIDE
        row = form.pieces * place + part if form.apart else form.run * part + place
        added = found[:, row, lane % SIDE].reshape(-1)
        lanes.store(c, kind, (lanes.load(c, kind, place) + added).astype(kind), place)
