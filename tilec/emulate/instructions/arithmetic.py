"""Integer, bit and packed-float instructions, and approximate functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from tilec.emulate.group import Group
from tilec.emulate.instructions.registry import as_bits, function, instruction, unknown
from tilec.emulate.state.numbers import MATH, fma, rounded_once, typed

_TYPES = {"u16": "uint16", "s16": "int16", "b16": "uint16", "u32": "uint32", "s32": "int32", "b32": "uint32",
          "u64": "uint64", "s64": "int64", "b64": "uint64", "f32": "float32", "f64": "float64"}  # fmt: skip
_PACKED = {"f16x2": np.dtype(np.float16), "bf16x2": np.dtype(ml_dtypes.bfloat16),
           "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16)}  # fmt: skip
_TWO: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "min": np.fmin, "max": np.fmax,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
}  # fmt: skip
_TWO_WITH_NAN: dict[str, Callable[[Any, Any], Any]] = {"min": np.minimum, "max": np.maximum}


def _words(g: Group, dtype: str, values: tuple[Any, ...]) -> list[np.ndarray]:
    return [as_bits(value, dtype, g.count) for value in values]


@instruction("add", "sub", "mul", "min", "max", "and", "or", "xor", outputs=1)
def binary(g: Group, m: Any, parts: tuple[str, ...], left: Any, right: Any) -> tuple[Any, ...]:
    """op{.lo,.rn,.ftz,.NaN}.type of two values; with NaN, one of either side stays. mul.wide.u32: 64 bits."""
    if parts[:2] == ("mul", "wide") and parts[-1] == "u32":
        a, b = (each.astype(np.uint64) for each in _words(g, "uint32", (left, right)))
        return (a * b,)
    if "hi" in parts or "wide" in parts or "sat" in parts:
        raise unknown(parts)
    operation = _TWO_WITH_NAN[parts[0]] if "NaN" in parts else _TWO[parts[0]]
    if parts[-1] in _PACKED:
        return (_packed(g, parts, (left, right), operation),)
    dtype = _TYPES[parts[-1]]
    a, b = _words(g, dtype, (left, right))
    return (operation(a, b).astype(a.dtype, copy=False),)


@instruction("fma", "mad", outputs=1)
def fused(g: Group, m: Any, parts: tuple[str, ...], *values: Any) -> tuple[Any, ...]:
    """a * b + c, rounded once."""
    if parts[-1] in _PACKED:
        return (_packed(g, parts, values, lambda a, b, c: a * b + c),)
    if parts[-1] == "f32":
        return (rounded_once(fma, "float32")(*_words(g, "float32", values)),)
    if parts[0] == "mad" and "lo" in parts:
        a, b, c = _words(g, _TYPES[parts[-1]], values)
        return (a * b + c,)
    raise unknown(parts)


def _packed(g: Group, parts: tuple[str, ...], values: tuple[Any, ...], combine: Any) -> np.ndarray:
    """Lanes of 16-bit floats: formed in float64 and rounded once."""
    kind = _PACKED[parts[-1]]
    word = "uint32" if parts[-1].endswith("x2") else "uint16"
    wide = [each.view(kind).astype(np.float64) for each in _words(g, word, values)]
    made = np.asarray(combine(*wide))
    rounded = made.astype(np.float32 if kind.name == "bfloat16" else np.float64).astype(kind)
    if "relu" in parts:
        rounded = np.maximum(rounded, kind.type(0))
    return np.ascontiguousarray(rounded).view(np.uint32 if word == "uint32" else np.uint16)


@instruction("not", "neg", "abs", outputs=1)
def unary(g: Group, m: Any, parts: tuple[str, ...], value: Any) -> tuple[Any, ...]:
    """op.type of one value."""
    name = parts[0]
    if parts[-1] in _PACKED:
        return (_packed(g, parts, (value,), np.negative if name == "neg" else np.abs),)
    (a,) = _words(g, _TYPES[parts[-1]], (value,))
    return ({"not": np.bitwise_not, "neg": np.negative, "abs": np.abs}[name](a),)


@instruction("shl", "shr", outputs=1)
def shift(g: Group, m: Any, parts: tuple[str, ...], value: Any, by: Any) -> tuple[Any, ...]:
    """A shift; distances beyond the width give zero or the sign."""
    (a,) = _words(g, _TYPES[parts[-1]], (value,))
    (distance,) = _words(g, "uint32", (by,))
    bits = a.dtype.itemsize * 8
    near = np.minimum(distance, bits - 1).astype(a.dtype)
    made = a << near if parts[0] == "shl" else a >> near
    if parts[0] == "shl" or a.dtype.kind == "u":
        made = np.where(distance >= bits, a.dtype.type(0), made)
    return (made,)


@instruction("mov", outputs=1)
def mov(g: Group, m: Any, parts: tuple[str, ...], *values: Any) -> tuple[Any, ...]:
    """A copy, or two halves as one register."""
    if len(values) == 1:
        return (values[0],)
    if len(values) == 2 and parts[-1] == "b32":
        low, high = _words(g, "uint16", values)
        return (low.astype(np.uint32) | high.astype(np.uint32) << np.uint32(16),)
    if len(values) == 2 and parts[-1] == "b64":
        low, high = _words(g, "uint32", values)
        return (low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32),)
    raise unknown(parts)


@instruction("prmt", outputs=1)
def prmt(g: Group, m: Any, parts: tuple[str, ...], low: Any, high: Any, selector: Any) -> tuple[Any, ...]:
    """Bytes of two words chosen by the digits of a third; bit 3 of a digit spreads the byte's sign."""
    if parts[1:] != ("b32",):
        raise unknown(parts)
    a, b, chosen = _words(g, "uint32", (low, high, selector))
    pool = np.stack([a, b], axis=1).view(np.uint8)
    lanes = np.arange(g.count)
    made = np.empty((g.count, 4), np.uint8)
    for place in range(4):
        digit = (chosen >> np.uint32(4 * place)) & np.uint32(15)
        byte = pool[lanes, digit & np.uint32(7)]
        sign = np.where(byte & 0x80, np.uint8(0xFF), np.uint8(0))
        made[:, place] = np.where(digit & np.uint32(8), sign, byte)
    return (made.view(np.uint32)[:, 0],)


@function("__byte_perm", dtype="uint32")
def byte_perm(g: Group, m: Any, low: Any, high: Any, selector: Any) -> Any:
    """`prmt` in C."""
    return prmt(g, m, ("prmt", "b32"), low, high, selector)[0]


@instruction("lop3", outputs=1)
def lop3(g: Group, m: Any, parts: tuple[str, ...], *values: Any) -> tuple[Any, ...]:
    """Any function of three bits, by its truth table."""
    if parts[1:] != ("b32",):
        raise unknown(parts)
    a, b, c = _words(g, "uint32", values[:3])
    table = int(values[3])
    made = np.zeros(g.count, np.uint32)
    for row in range(8):
        if table >> row & 1:
            terms = [word if row >> bit & 1 else ~word for word, bit in ((a, 2), (b, 1), (c, 0))]
            made |= terms[0] & terms[1] & terms[2]
    return (made,)


@instruction("shf", outputs=1)
def funnel(g: Group, m: Any, parts: tuple[str, ...], low: Any, high: Any, by: Any) -> tuple[Any, ...]:
    """A shift of a pair of words."""
    a, b, distance = _words(g, "uint32", (low, high, by))
    pair = a.astype(np.uint64) | b.astype(np.uint64) << np.uint64(32)
    near = (np.minimum(distance, 32) if "clamp" in parts else distance & np.uint32(31)).astype(np.uint64)
    made = pair << near >> np.uint64(32) if parts[1] == "l" else pair >> near
    return (made.astype(np.uint32),)


@instruction("bfe", outputs=1)
def bit_field(g: Group, m: Any, parts: tuple[str, ...], *operands: Any) -> tuple[Any, ...]:
    """Bits of a word, unsigned."""
    if parts[-1] != "u32":
        raise unknown(parts)
    a, low, count = (each.astype(np.uint64) for each in _words(g, "uint32", operands))
    low, count = (np.minimum(each & np.uint64(0xFF), np.uint64(32)) for each in (low, count))
    return ((a >> low & ((np.uint64(1) << count) - np.uint64(1))).astype(np.uint32),)


@instruction("popc", outputs=1)
def popc(g: Group, m: Any, parts: tuple[str, ...], value: Any) -> tuple[Any, ...]:
    """How many bits are set."""
    (a,) = _words(g, _TYPES[parts[-1]], (value,))
    return (np.unpackbits(a.view(np.uint8).reshape(g.count, -1), axis=1).sum(axis=1).astype(np.uint32),)


@function("__popc", dtype="int32")
def popc_(g: Group, m: Any, value: Any) -> Any:
    """`popc` in C."""
    return popc(g, m, ("popc", "b32"), value)[0].astype(np.int32)


@function("__popcll", dtype="int32")
def popcll(g: Group, m: Any, value: Any) -> Any:
    """`popc` of 64 bits in C."""
    return popc(g, m, ("popc", "b64"), value)[0].astype(np.int32)


@instruction("selp", outputs=1)
def selp(g: Group, m: Any, parts: tuple[str, ...], yes: Any, no: Any, test: Any) -> tuple[Any, ...]:
    """One of two values by a predicate."""
    if not isinstance(test, np.ndarray):
        return (yes if test else no,)
    a, b = _words(g, _TYPES[parts[-1]], (yes, no))
    return (np.where(test, a, b),)


_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal,
}  # fmt: skip


@instruction("setp", outputs=1)
def setp(g: Group, m: Any, parts: tuple[str, ...], left: Any, right: Any) -> tuple[Any, ...]:
    """A comparison as a predicate."""
    if isinstance(left, (int, bool)) and isinstance(right, (int, bool)):
        return (bool(_COMPARE[parts[1]](int(left), int(right))),)
    a, b = _words(g, _TYPES[parts[-1]], (typed_bool(left), typed_bool(right)))
    return (_COMPARE[parts[1]](a, b),)


def typed_bool(value: Any) -> Any:
    """A truth value as a word."""
    if isinstance(value, np.ndarray) and value.dtype == np.bool_:
        return typed(value, "uint32")
    return value


_APPROXIMATE = {"ex2": "exp2f", "lg2": "log2f", "rcp": "__frcp_rn", "rsqrt": "rsqrtf", "sqrt": "sqrtf",
                "tanh": "tanhf", "sin": "sinf", "cos": "cosf"}  # fmt: skip


@instruction(*_APPROXIMATE, outputs=1)
def approximate(g: Group, m: Any, parts: tuple[str, ...], value: Any) -> tuple[Any, ...]:
    """A function of one float, correctly rounded here."""
    computed = rounded_once(MATH[_APPROXIMATE[parts[0]]], "float32")
    if parts[-1] in _PACKED:
        return (_packed(g, parts, (value,), computed),)
    return (computed(*_words(g, "float32", (value,))),)


@instruction("div", outputs=1)
def divide(g: Group, m: Any, parts: tuple[str, ...], left: Any, right: Any) -> tuple[Any, ...]:
    """A quotient of float32."""
    if parts[-1] != "f32":
        raise unknown(parts)
    a, b = _words(g, "float32", (left, right))
    return (np.divide(a, b),)


@function("__dp4a", dtype="int32")
def dp4a(g: Group, m: Any, left: Any, right: Any, total: Any) -> Any:
    """Sum of four products of signed bytes."""
    words = _words(g, "uint32", (left, right))
    a, b = (word.view(np.int8).reshape(-1, 4).astype(np.int32) for word in words)
    return (a * b).sum(axis=1, dtype=np.int32) + as_bits(total, "int32", g.count)
