"""Values of emulated lanes: a Python number where all lanes of a group agree, else an array with one value a
lane. The functions here compute as the device does: C division, wrapping, saturating conversions."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.dtypes import DTYPES
from tilec.ir.interp.intrinsics import power
from tilec.ir.interp.values import numpy_dtype

#: dtype as TVM names it -> NumPy type. 8-bit floats reach code generation as their bits.
TYPES: dict[str, np.dtype] = {
    row.name: numpy_dtype(row.name)
    for row in DTYPES.values()
    if row.bits >= 8 and row.name != "tfloat32" and not (row.is_float and row.bits == 8)
}
_BITS = {name: dtype.itemsize * 8 for name, dtype in TYPES.items()}


def is_float(dtype: str) -> bool:
    """Whether values of a dtype are floats."""
    return dtype[0] == "f" or dtype == "bfloat16"


def is_scalar(value: Any) -> bool:
    """Whether all lanes agree."""
    return not isinstance(value, np.ndarray)


def wrap(value: Any, dtype: str) -> Any:
    """An integer result brought back into its type; arrays have wrapped by themselves."""
    if isinstance(value, np.ndarray):
        return value
    value = int(value)
    bits = _BITS[dtype]
    value &= (1 << bits) - 1
    return value - (1 << bits) if dtype[0] == "i" and value >> (bits - 1) else value


def u32(value: Any) -> Any:
    """A uint32 result."""
    return value if isinstance(value, np.ndarray) else int(value) & 0xFFFFFFFF


def u64(value: Any) -> Any:
    """A uint64 result."""
    return value if isinstance(value, np.ndarray) else int(value) & 0xFFFFFFFFFFFFFFFF


def typed(value: Any, dtype: str) -> Any:
    """A value known to fit ``dtype`` in its form for it: arrays of the type, Python integers and booleans,
    NumPy floats."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == TYPES[dtype] else value.astype(TYPES[dtype])
    if dtype == "bool":
        return bool(value)
    return TYPES[dtype].type(value) if is_float(dtype) else int(value)


def array(value: Any, dtype: str, count: int) -> np.ndarray:
    """One value a lane."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == TYPES[dtype] else value.astype(TYPES[dtype])
    return np.full(count, value, TYPES[dtype])


def cast(value: Any, source: str, dtype: str) -> Any:
    """A conversion as CUDA does it: integers wrap, floats go to integers toward zero and saturate."""
    if source == dtype:
        return value
    if dtype == "bool":
        return value != 0
    if isinstance(value, np.ndarray):
        if is_float(source) and not is_float(dtype):
            return _truncated(value, dtype)
        return value.astype(TYPES[dtype])
    if is_float(source):
        return TYPES[dtype].type(value) if is_float(dtype) else int(_truncated(np.asarray([value]), dtype)[0])
    value = value if source == "bool" else wrap(value, source)
    return TYPES[dtype].type(value) if is_float(dtype) else wrap(value, dtype)


def _truncated(value: np.ndarray, dtype: str) -> np.ndarray:
    info = np.iinfo(TYPES[dtype])
    wide = np.nan_to_num(np.trunc(value.astype(np.float64)), nan=0.0, posinf=2.0**70, neginf=-(2.0**70))
    made = np.clip(wide, float(info.min), float(info.max)).astype(
        np.uint64 if dtype == "uint64" else np.int64
    )
    made = np.where(wide >= float(info.max), info.max, made)
    return np.asarray(made).astype(TYPES[dtype])


def select(cond: Any, yes: Any, no: Any, dtype: str) -> Any:
    """``cond ? yes : no`` per lane."""
    if not isinstance(cond, np.ndarray):
        return yes if cond else no
    kind = TYPES[dtype].type
    left = yes if isinstance(yes, np.ndarray) else kind(yes)
    right = no if isinstance(no, np.ndarray) else kind(no)
    return np.where(cond, left, right)


def lazily(mask: Any, cond: Any, yes: Callable[[Any], Any], no: Callable[[Any], Any], dtype: str) -> Any:
    """``cond ? yes : no`` where a side reads memory: each side runs for its own lanes alone."""
    if not isinstance(cond, np.ndarray):
        return yes(mask) if cond else no(mask)
    taken = cond if mask is None else cond & mask
    left = ~cond if mask is None else mask & ~cond
    if not taken.any():
        return no(mask)
    if not left.any():
        return yes(mask)
    return select(cond, yes(taken), no(left), dtype)


def both(mask: Any, first: Any, second: Callable[[Any], Any]) -> Any:
    """``first && second``, the second for lanes where the first holds."""
    if not isinstance(first, np.ndarray):
        return logical(second(mask)) if first else False
    lanes = first if mask is None else first & mask
    return first & logical(second(lanes)) if lanes.any() else first


def either(mask: Any, first: Any, second: Callable[[Any], Any]) -> Any:
    """``first || second``, the second for lanes where the first does not hold."""
    if not isinstance(first, np.ndarray):
        return True if first else logical(second(mask))
    lanes = ~first if mask is None else mask & ~first
    return first | logical(second(lanes)) if lanes.any() else first


def logical(value: Any) -> Any:
    """A truth value."""
    if isinstance(value, np.ndarray):
        return value if value.dtype == np.bool_ else value != 0
    return bool(value)


def negated(value: Any) -> Any:
    """``!value``."""
    return ~logical(value) if isinstance(value, np.ndarray) else not value


def land(first: Any, second: Any) -> Any:
    """``first && second`` of values that are both known."""
    if not isinstance(first, np.ndarray):
        return logical(second) if first else False
    return logical(first) & logical(second)


def lor(first: Any, second: Any) -> Any:
    """``first || second`` of values that are both known."""
    if not isinstance(first, np.ndarray):
        return True if first else logical(second)
    return logical(first) | logical(second)


def div(left: Any, right: Any) -> Any:
    """Integer division toward zero."""
    if isinstance(left, np.ndarray) and not isinstance(right, np.ndarray) and right > 0 and (left >= 0).all():
        return left // right
    if not isinstance(left, np.ndarray) and not isinstance(right, np.ndarray):
        quotient = abs(left) // abs(right)
        return quotient if (left < 0) == (right < 0) else -quotient
    if isinstance(right, np.ndarray):
        right = np.where(right == 0, right.dtype.type(1), right)
    whole = left // right
    rest = left - whole * right
    return np.where((rest != 0) & ((left < 0) ^ (right < 0)), whole + whole.dtype.type(1), whole)


def mod(left: Any, right: Any) -> Any:
    """The remainder of `div`."""
    return left - div(left, right) * right


def udiv(left: Any, right: Any) -> Any:
    """Division of values that are not negative."""
    if isinstance(right, np.ndarray):
        right = np.where(right == 0, right.dtype.type(1), right)
    return left // right


def umod(left: Any, right: Any) -> Any:
    """The remainder of values that are not negative."""
    if isinstance(right, np.ndarray):
        right = np.where(right == 0, right.dtype.type(1), right)
    return left % right


def fdiv(left: Any, right: Any) -> Any:
    """Division of floats."""
    return np.divide(left, right)


def least(left: Any, right: Any, dtype: str) -> Any:
    """min(): a NaN gives the other operand, as fminf does."""
    if is_scalar(left) and is_scalar(right):
        return typed(np.fmin(left, right), dtype) if is_float(dtype) else min(left, right)
    return np.fmin(left, right).astype(TYPES[dtype], copy=False)


def most(left: Any, right: Any, dtype: str) -> Any:
    """max(): a NaN gives the other operand."""
    if is_scalar(left) and is_scalar(right):
        return typed(np.fmax(left, right), dtype) if is_float(dtype) else max(left, right)
    return np.fmax(left, right).astype(TYPES[dtype], copy=False)


def shift_left(left: Any, right: Any, dtype: str) -> Any:
    """``left << right``, bits beyond the type lost."""
    if is_scalar(left) and is_scalar(right):
        return wrap(left << right, dtype)
    return typed(typed(left, dtype) << right, dtype)


def reinterpreted(value: Any, source: str, dtype: str) -> Any:
    """The same bits as another type of the same size."""
    if source == dtype:
        return value
    if isinstance(value, np.ndarray):
        return np.ascontiguousarray(value).view(TYPES[dtype])
    made = np.asarray([value], TYPES[source]).view(TYPES[dtype])[0]
    return made if is_float(dtype) else int(made)


def rounded_once(function: Callable[..., Any], dtype: str) -> Callable[..., Any]:
    """A function of float64 as one of ``dtype``, float64 or float32: computed in float64 and rounded once."""
    kind = np.float64 if dtype == "float64" else np.float32

    def computed(*values: Any) -> Any:
        made = np.asarray(function(*(np.asarray(value, np.float64) for value in values)))
        return kind(made) if made.ndim == 0 else made.astype(kind)

    return computed


_ERF = np.frompyfunc(math.erf, 1, 1)


def _erf(value: Any) -> Any:
    return np.asarray(_ERF(value), np.float64)


def _exp10(value: Any) -> Any:
    return np.power(10.0, value)


def _product_up(left: Any, right: Any) -> Any:
    """left * right, which float64 holds, as the next float32 from there on upwards."""
    exact = left * right
    near = exact.astype(np.float32)
    return np.where(near < exact, np.nextafter(near, np.float32(np.inf)), near)


#: Functions of one number.
MATH: dict[str, Callable[[Any], Any]] = {
    name: function
    for names, function in (
        (("expf", "__expf", "exp"), np.exp),
        (("exp2f", "exp2"), np.exp2),
        (("exp10f", "__exp10f", "exp10"), _exp10),
        (("logf", "__logf", "log"), np.log),
        (("log2f", "__log2f", "log2"), np.log2),
        (("log10f", "__log10f", "log10"), np.log10),
        (("log1pf", "log1p"), np.log1p),
        (("expm1f", "expm1"), np.expm1),
        (("sqrtf", "__fsqrt_rn", "sqrt"), np.sqrt),
        (("rsqrtf", "__frsqrt_rn", "rsqrt"), lambda value: 1.0 / np.sqrt(value)),
        (("__frcp_rn",), lambda value: 1.0 / value),
        (("sinf", "__sinf", "sin"), np.sin),
        (("cosf", "__cosf", "cos"), np.cos),
        (("tanf", "__tanf", "tan"), np.tan),
        (("sinhf", "sinh"), np.sinh),
        (("coshf", "cosh"), np.cosh),
        (("tanhf", "tanh"), np.tanh),
        (("asinf", "asin"), np.arcsin),
        (("acosf", "acos"), np.arccos),
        (("atanf", "atan"), np.arctan),
        (("asinhf", "asinh"), np.arcsinh),
        (("acoshf", "acosh"), np.arccosh),
        (("atanhf", "atanh"), np.arctanh),
        (("erff", "erf"), _erf),
        (("floorf", "floor"), np.floor),
        (("ceilf", "ceil"), np.ceil),
        (("truncf", "trunc"), np.trunc),
        (("rintf", "nearbyintf", "rint", "nearbyint"), np.rint),
        (("roundf", "round"), lambda value: np.copysign(np.floor(np.abs(value) + 0.5), value)),
        (("fabsf", "fabs"), np.abs),
    )
    for name in names
}


#: Functions of two numbers.
MATH2: dict[str, Callable[[Any, Any], Any]] = {
    name: function
    for names, function in (
        (("powf", "__powf", "pow"), power),
        (("fmodf", "fmod"), np.fmod),
        (("atan2f", "atan2"), np.arctan2),
        (("hypotf", "hypot"), np.hypot),
        (("copysignf", "copysign"), np.copysign),
        (("nextafterf",), lambda left, right: np.nextafter(np.float32(left), np.float32(right))),
        (("nextafter",), np.nextafter),
        (("fmaxf",), np.fmax),
        (("fminf",), np.fmin),
        (("__fdividef", "__fdiv_rn"), np.divide),
        (("__fmul_ru",), _product_up),
        (("ldexpf",), lambda left, right: np.ldexp(left, right.astype(np.int64))),
    )
    for name in names
}


def fma(left: Any, right: Any, third: Any) -> Any:
    """left * right + third, in float64, which holds products of float32."""
    return left * right + third


def long_fma(left: Any, right: Any, third: Any) -> Any:
    """left * right + third of float64, in the longest floats that there are."""
    return left.astype(np.longdouble) * right + third


def bits_set(value: Any, bits: int) -> Any:
    """How many of ``bits`` bits are set."""
    if is_scalar(value):
        return bin(int(value) & ((1 << bits) - 1)).count("1")
    words = np.ascontiguousarray(value).view(np.uint8).reshape(len(value), -1)
    return np.unpackbits(words, axis=1).sum(axis=1).astype(np.int32)


def bfloat16_bits(value: Any) -> Any:
    """The bits of the bfloat16 nearest to a float32, ties to even."""
    bits = np.atleast_1d(np.asarray(value, np.float32)).view(np.uint32)
    rounded = ((bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    rounded = np.where((bits & 0x7FFFFFFF) > 0x7F800000, np.uint16(0x7FFF), rounded)
    return rounded if isinstance(value, np.ndarray) else int(rounded[0])
