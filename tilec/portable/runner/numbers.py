"""Elements of tensors as Python floats, from their bytes."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache

#: dtype -> format of `struct`.
_PLAIN = {
    "float64": "d", "float32": "f", "tfloat32": "f", "float16": "e", "bool": "B",
    "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
}  # fmt: skip
#: dtype of 8 bits -> (bits of the exponent, bits of the mantissa, whether the largest exponent is infinity).
_SMALL = {"float8_e4m3fn": (4, 3, False), "float8_e5m2": (5, 2, True)}
_BYTES = {"bfloat16": 2, "float8_e4m3fn": 1, "float8_e5m2": 1}


def size_of(dtype: str) -> int:
    """Bytes of an element. Raises ValueError for a type whose elements are no whole bytes, or unknown."""
    if dtype in _PLAIN:
        return struct.calcsize(_PLAIN[dtype])
    if dtype not in _BYTES:
        raise ValueError(f"elements of {dtype} cannot be measured: they are no whole bytes")
    return _BYTES[dtype]


def is_float(dtype: str) -> bool:
    """Whether all bits set are no number in this type."""
    return "float" in dtype


def elements(data: bytes | memoryview, dtype: str, offsets: Sequence[int]) -> list[float]:
    """The elements at ``offsets``, counted in elements from the start of ``data``."""
    read, size = _reader(dtype), size_of(dtype)
    return [read(data, offset * size) for offset in offsets]


@cache
def _reader(dtype: str) -> Callable[[bytes | memoryview, int], float]:
    if dtype in _PLAIN:
        unpack = struct.Struct("<" + _PLAIN[dtype]).unpack_from
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
