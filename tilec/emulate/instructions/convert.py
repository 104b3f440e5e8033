"""cvt: conversions between formats, and the C functions that read bits as another type."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tilec.emulate.group import Group
from tilec.emulate.instructions.registry import as_bits, function, instruction, unknown
from tilec.emulate.state.numbers import TYPES, bfloat16_bits, cast, is_scalar, reinterpreted

_SMALL = {"e4m3x2": ml_dtypes.float8_e4m3fn, "e5m2x2": ml_dtypes.float8_e5m2}
_INTEGERS = {
    f"{sign}{bits}": f"{name}int{bits}" for sign, name in (("s", ""), ("u", "u")) for bits in (8, 16, 32, 64)
}
_ROUNDS = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}


@instruction("cvt", "cvt.pack", outputs=1)
def cvt(g: Group, m: Any, parts: tuple[str, ...], *sources: Any) -> tuple[Any, ...]:
    """One conversion; the last two parts name the types, target first."""
    target, source = parts[-2], parts[-1]
    found = _PAIRS.get((target, source))
    if found is not None:
        return (found(g, parts, *sources),)
    if target in _INTEGERS and source in _INTEGERS:
        return (cast(_as(g, sources[0], _INTEGERS[source]), _INTEGERS[source], _INTEGERS[target]),)
    if target in _INTEGERS and source in ("f32", "f16"):
        name = "float32" if source == "f32" else "float16"
        rounded = next((_ROUNDS[part] for part in parts if part in _ROUNDS), np.trunc)
        wide = np.asarray(rounded(_as(g, sources[0], name).astype(np.float64)))
        return (cast(wide, "float64", _INTEGERS[target]),)
    if target in ("f32", "f16") and source in _INTEGERS:
        return (_as(g, sources[0], _INTEGERS[source]).astype(np.float32 if target == "f32" else np.float16),)
    raise unknown(parts)


def _as(g: Group, value: Any, dtype: str) -> np.ndarray:
    """A register of any width as an array of ``dtype``."""
    size = TYPES[dtype].itemsize
    if isinstance(value, np.ndarray) and value.dtype.itemsize != size:
        return np.ascontiguousarray(value.astype(f"uint{8 * size}")).view(TYPES[dtype])
    return as_bits(value, dtype, g.count)


def _relu(parts: tuple[str, ...], values: np.ndarray) -> np.ndarray:
    return np.maximum(values, np.float32(0)) if "relu" in parts else values


def _to_half(g: Group, parts: tuple[str, ...], value: Any) -> Any:
    return _relu(parts, _as(g, value, "float32")).astype(np.float16).view(np.uint16)


def _to_bfloat(g: Group, parts: tuple[str, ...], value: Any) -> Any:
    return bfloat16_bits(_relu(parts, _as(g, value, "float32")))


def _pair(high: np.ndarray, low: np.ndarray) -> np.ndarray:
    return np.asarray(high.astype(np.uint32) << np.uint32(16) | low.astype(np.uint32))


def _to_half_pair(g: Group, parts: tuple[str, ...], high: Any, low: Any) -> Any:
    return _pair(_to_half(g, parts, high), _to_half(g, parts, low))


def _to_bfloat_pair(g: Group, parts: tuple[str, ...], high: Any, low: Any) -> Any:
    return _pair(_to_bfloat(g, parts, high), _to_bfloat(g, parts, low))


def _from_half(g: Group, parts: tuple[str, ...], bits: Any) -> Any:
    return _as(g, bits, "uint16").view(np.float16).astype(np.float32)


def _from_bfloat(g: Group, parts: tuple[str, ...], bits: Any) -> Any:
    return (_as(g, bits, "uint16").astype(np.uint32) << np.uint32(16)).view(np.float32)


def _tf32(g: Group, parts: tuple[str, ...], value: Any) -> Any:
    """To nearest with ties away from zero: half of the last place that stays is added."""
    bits = _as(g, value, "float32").view(np.uint32)
    special = (bits & np.uint32(0x7F800000)) == np.uint32(0x7F800000)
    half = np.uint32(0x1000)
    if "rn" in parts:
        half = np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))
    rounded = (bits + half) & np.uint32(0xFFFFE000)
    return np.where(special, bits, rounded)


def small_float(values: np.ndarray, kind: Any) -> np.ndarray:
    """The 8 bits of floats, finite values beyond the largest going to it."""
    limit = float(ml_dtypes.finfo(kind).max)
    clipped = np.where(np.isnan(values), values, np.clip(values, -limit, limit))
    return np.asarray(clipped).astype(np.float32).astype(kind).view(np.uint8)


def _to_small(g: Group, parts: tuple[str, ...], high: Any, low: Any) -> Any:
    kind = _SMALL[parts[-2]]
    made = [
        small_float(_relu(parts, _as(g, each, "float32")), kind).astype(np.uint16) for each in (high, low)
    ]
    return made[0] << np.uint16(8) | made[1]


def _small_from_halves(g: Group, parts: tuple[str, ...], pair: Any) -> Any:
    words = _as(g, pair, "uint32")
    halves = [
        (part & np.uint32(0xFFFF)).astype(np.uint16).view(np.float16).astype(np.float32)
        for part in (words >> np.uint32(16), words)
    ]
    return _to_small(g, parts, *halves)


def _halves_from_small(g: Group, parts: tuple[str, ...], bits: Any) -> Any:
    kind, wide = _SMALL[parts[-1]], _as(g, bits, "uint16")
    low, high = (wide & np.uint16(0xFF)).astype(np.uint8), (wide >> np.uint16(8)).astype(np.uint8)
    halves = [part.view(kind).astype(np.float16).view(np.uint16) for part in (high, low)]
    return _pair(*halves)


_PAIRS: dict[tuple[str, str], Any] = {
    ("f16", "f32"): _to_half,
    ("bf16", "f32"): _to_bfloat,
    ("f16x2", "f32"): _to_half_pair,
    ("bf16x2", "f32"): _to_bfloat_pair,
    ("f32", "f16"): _from_half,
    ("f32", "bf16"): _from_bfloat,
    ("tf32", "f32"): _tf32,
    ("e4m3x2", "f32"): _to_small,
    ("e5m2x2", "f32"): _to_small,
    ("e4m3x2", "f16x2"): _small_from_halves,
    ("e5m2x2", "f16x2"): _small_from_halves,
    ("f16x2", "e4m3x2"): _halves_from_small,
    ("f16x2", "e5m2x2"): _halves_from_small,
}


def _reads(source: str, dtype: str) -> Any:
    def run(g: Group, m: Any, value: Any) -> Any:
        if is_scalar(value):
            return reinterpreted(value, source, dtype)
        return reinterpreted(value.astype(TYPES[source], copy=False), source, dtype)

    return run


for _name, _from, _to in (
    ("__uint_as_float", "uint32", "float32"),
    ("__int_as_float", "int32", "float32"),
    ("__float_as_uint", "float32", "uint32"),
    ("__float_as_int", "float32", "int32"),
    ("__longlong_as_double", "int64", "float64"),
    ("__double_as_longlong", "float64", "int64"),
    ("__half_as_ushort", "float16", "uint16"),
    ("__ushort_as_half", "uint16", "float16"),
):
    function(_name, dtype=_to)(_reads(_from, _to))


def _converts(source: str, dtype: str) -> Any:
    def run(g: Group, m: Any, value: Any) -> Any:
        return cast(value, source, dtype)

    return run


function("__half2float", dtype="float32")(_converts("float16", "float32"))
function("__float2half_rn", "__float2half", dtype="float16")(_converts("float32", "float16"))
