"""Elements of tensors as Python floats, from their bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache

from tilec.portable.loader import DTYPES

#: Kind of DLPack -> bits -> format of `struct`.
_FORMATS = {
    0: {8: "b", 16: "h", 32: "i", 64: "q"},
    1: {8: "B", 16: "H", 32: "I", 64: "Q"},
    2: {16: "e", 32: "f", 64: "d"},
    6: {8: "B"},
}
#: dtype of 8 bits -> (bits of the exponent, bits of the mantissa, whether the largest exponent is infinity).
_SMALL = {"float8_e4m3fn": (4, 3, False), "float8_e5m2": (5, 2, True)}


def size_of(dtype: str) -> int:
    """Bytes of an element. Raises ValueError for a type whose elements are no whole bytes, or unknown."""
    _, bits = DTYPES.get(dtype, (0, 0))
    if not _format(dtype) and dtype != "bfloat16" and dtype not in _SMALL:
        raise ValueError(f"elements of {dtype} cannot be measured: they are no whole bytes")
    return bits // 8


def _format(dtype: str) -> str:
    """As `struct` writes a type; empty where it has none."""
    kind, bits = DTYPES.get(dtype, (0, 0))
    return _FORMATS.get(kind, {}).get(bits, "")


def is_float(dtype: str) -> bool:
    """Whether all bits set are no number in this type."""
    return "float" in dtype


def elements(data: bytes | memoryview, dtype: str, offsets: Sequence[int]) -> list[float]:
    """The elements at ``offsets``, counted in elements from the start of ``data``."""
    read, size = _reader(dtype), size_of(dtype)
    return [read(data, offset * size) for offset in offsets]


@cache
def _reader(dtype: str) -> Callable[[bytes | memoryview, int], float]:
    if _format(dtype):
        unpack = struct.Struct("<" + _format(dtype)).unpack_from
        return lambda data, at: float(unpack(data, at)[0])
    if dtype == "bfloat16":
        return lambda data, at: float(struct.unpack("<f", b"\0\0" + bytes(data[at : at + 2]))[0])
    table = [_small(byte, *_SMALL[dtype]) for byte in range(256)]
    return lambda data, at: table[data[at]]


def _small(byte: int, exponent_bits: int, mantissa_bits: int, has_infinity: bool) -> float:
    """The value of a float of 8 bits (OCP 8-bit floating point specification, section 5)."""
    sign = -1.0 if byte & 0x80 else 1.0
    exponent = byte >> mantissa_bits & (1 << exponent_bits) - 1
    mantissa = byte & (1 << mantissa_bits) - 1
    bias, top = (1 << exponent_bits - 1) - 1, (1 << exponent_bits) - 1
    if has_infinity and exponent == top:
        return float("nan") if mantissa else sign * float("inf")
    if not has_infinity and exponent == top and mantissa == (1 << mantissa_bits) - 1:
        return float("nan")
    if exponent == 0:
        return float(sign * mantissa * 2.0 ** (1 - bias - mantissa_bits))
    return float(sign * (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias))
