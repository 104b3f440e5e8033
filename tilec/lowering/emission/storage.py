"""Buffers as memory: where an element lies, and how a dtype is stored.

Values are computed in a *compute type*: float32 for float16, bfloat16 and float8, the dtype itself otherwise.
Memory holds the *stored type*: bfloat16 as its bits in uint16, float8 in uint8, bool as int8, everything else
as itself.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import ir as tvm_ir
from tvm import tirx

from tilec.dtypes import DTYPES, DType
from tilec.errors import UnsupportedError
from tilec.ir.analysis.numbers.ranges import cut
from tilec.ir.exprs import dtype_of, int_value, lane_of, scalar_dtype, walk
from tilec.ir.layout import Layout
from tilec.lowering.math.float8 import FLOAT8_TYPES, decode_float8, encode_float8, round_float8
from tilec.lowering.math.vectors import Vectors, lanes_of, literal, with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr, Var


def _stored(row: DType) -> str:
    if row.kind == "bool":
        return "int8"
    return row.name if row.numpy == row.name else f"uint{row.bits}"


#: Floats that are computed in float32.
SMALL_FLOATS = tuple(
    row.name for row in DTYPES.values() if row.name in FLOAT8_TYPES or (row.is_float and row.bits == 16)
)
_STORABLE = {
    row.name: _stored(row)
    for row in DTYPES.values()
    if row.name in SMALL_FLOATS or (row.bits >= 8 and row.numpy == row.name) or row.kind == "bool"
}


def stored_type(dtype: str) -> str:
    """The type of an element in memory. UnsupportedError for types that no code stores."""
    if dtype not in _STORABLE:
        raise UnsupportedError(
            f"elements of {dtype} cannot be stored",
            remedy=f"use one of {', '.join(sorted(_STORABLE))}",
        )
    return _STORABLE[dtype]


def compute_type(dtype: str) -> str:
    """The type that values of ``dtype`` are computed in."""
    return "float32" if dtype in SMALL_FLOATS else dtype


def element_bytes(dtype: str) -> int:
    """Bytes of one stored element."""
    return DTYPES[dtype].bytes


def convert(value: Expr, dtype: str) -> Expr:
    """``value`` cast lane by lane between plain types (floats to integers truncate, to bool compare)."""
    lanes = lanes_of(value)
    source = dtype_of(value).partition("x")[0]
    if source == dtype:
        return value
    number = int_value(lane_of(value))
    if number is not None and dtype.startswith(("int", "uint")):
        return literal(cut(number, dtype), dtype, lanes)
    if dtype == "bool":
        return tirx.NE(value, literal(0, source, lanes))
    if source == "bool" and lanes > 1:  # TVM's simplifier has no vector form of this cast
        return tirx.Select(value, literal(1, dtype, lanes), literal(0, dtype, lanes))
    counts = lanes > 1 and dtype.startswith("uint") and not source.startswith("float")
    if counts and any(isinstance(part, tirx.Ramp) for part in walk(value)):
        signed = tirx.Cast(with_lanes(dtype.removeprefix("u"), lanes), value)  # an unsigned ramp never falls
        return tirx.reinterpret(with_lanes(dtype, lanes), signed)
    return tirx.Cast(with_lanes(dtype, lanes), value)


def narrowed(value: Expr) -> Expr:
    """float64 values as float32 ones that may be rounded once more, to a type of fewer digits: the odd one of
    the two neighbours (S. Boldo, G. Melquiond, "Emulation of FMA and correctly rounded sums: proved
    algorithms using rounding to odd", 2008)."""
    v = Vectors(value)
    value = v.bind(value, "wide")
    near = v.bind(v.cast(value, "float32"), "near")
    back, bits = v.bind(v.cast(near, "float64"), "back"), v.bind(v.bits(near), "bits")
    one, zero = v.const(1, "int32"), v.const(0, "int32")
    below, above = tirx.LT(back, value), tirx.GT(back, value)
    grows = v.select(tirx.GT(value, v.const(0, "float64")), below, above)
    even = v.equal(tirx.bitwise_and(bits, one), zero)
    moves = v.logical_and(v.logical_or(below, above), even)
    step = v.select(moves, v.select(grows, one, v.const(-1, "int32")), zero)
    return v.close(v.from_bits(bits + step))


def decode(raw: Expr, dtype: str) -> Expr:
    """The compute value of stored elements."""
    if dtype == "bool":
        return tirx.NE(raw, literal(0, "int8", lanes_of(raw)))
    if dtype in FLOAT8_TYPES:
        return decode_float8(raw, dtype)
    if dtype != "bfloat16":
        return convert(raw, compute_type(dtype))
    bits = convert(raw, "uint32")
    shifted = tirx.shift_left(bits, literal(16, "uint32", lanes_of(raw)))
    return tirx.reinterpret(with_lanes("float32", lanes_of(raw)), shifted)


def encode(value: Expr, dtype: str) -> Expr:
    """Stored elements of compute values; rounds to nearest even."""
    if dtype in FLOAT8_TYPES:
        return encode_float8(value, dtype)
    if dtype != "bfloat16":
        return convert(value, stored_type(dtype))
    return _bfloat16_bits(value)


def rounded(value: Expr, dtype: str) -> Expr:
    """A compute value cast to ``dtype``; float8 saturates to its finite values."""
    if dtype in FLOAT8_TYPES:
        return round_float8(value, dtype)
    return value if compute_type(dtype) == dtype else decode(encode(value, dtype), dtype)


def is_nan(value: Expr) -> Expr:
    """Lane by lane whether a float is no number (a comparison with itself would be simplified away)."""
    number, lanes = lane_of(value), lanes_of(value)
    if isinstance(number, tirx.FloatImm):
        return literal(math.isnan(float(number.value)), "bool", lanes)
    v = Vectors(value)
    result = tvm_ir.PrimType(with_lanes("bool", lanes))
    return v.close(tvm_ir.Call("tirx.isnan", [v.name_long(value)], ret_ty=result))


def _bfloat16_bits(value: Expr) -> Expr:
    """The upper half of a float32, rounded to nearest even; NaN stays a (quiet) NaN. An integer of a byte is
    that half."""
    if _is_byte(value):
        bits = tirx.reinterpret(with_lanes("uint32", lanes_of(value)), value)
        return convert(tirx.shift_right(bits, literal(16, "uint32", lanes_of(value))), "uint16")
    v = Vectors(value)
    value = v.name(value)

    def number(value: int) -> Expr:
        return v.const(value, "uint32")

    bits = v.reinterpret(value, "uint32")
    upper = tirx.shift_right(bits, number(16))
    bias = tirx.Add(tirx.bitwise_and(upper, number(1)), number(0x7FFF))
    nearest = tirx.shift_right(tirx.Add(bits, bias), number(16))
    quiet = tirx.bitwise_or(upper, number(0x40))
    return v.close(convert(tirx.Select(is_nan(value), quiet, nearest), "uint16"))


def _is_byte(value: Expr) -> bool:
    """Whether a float is a converted integer of eight bits, all of which bfloat16 has."""
    whole = value.value if isinstance(value, tirx.Cast) else value
    while isinstance(whole, tirx.Cast) and scalar_dtype(whole) in ("int16", "int32", "int64"):
        whole = whole.value
    return scalar_dtype(whole) in ("int8", "uint8")


@dataclass(frozen=True, eq=False)
class Storage:
    """One buffer in memory.

    ``data`` is a flat TIR buffer of the stored type. Element ``indices`` lies at the sum of index * stride in
    ``index_type``, or where ``layout`` says; ``copies`` is how many values each element has (one per vector
    lane for temporaries of a vectorised loop). ``shape`` bounds the indices."""

    data: Var
    dtype: str
    shape: tuple[Expr, ...]
    strides: tuple[Expr, ...]
    index_type: str
    layout: Layout | None = None
    copies: int = 1

    def offset(self, indices: Sequence[Expr]) -> Expr:
        """The flat index of one element; ``indices`` are scalar TIR expressions."""
        if self.layout is not None:
            return tirx.const(0, self.index_type) + self.layout.offset(list(indices))
        total = tirx.const(0, self.index_type)
        for index, stride in zip(indices, self.strides, strict=True):
            total = total + convert(index, self.index_type) * stride
        return total * self.copies
