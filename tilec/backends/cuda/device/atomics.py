"""Atomic updates: the device's instructions, or compare-and-swap without one.

Every function takes an address and a value and gives what the element held before. Relaxed ones are
instructions alone; stronger orders put a fence in front of them, behind them or both (PTX ISA, "Memory
Consistency Model")."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.floats import PAIRED
from tilec.backends.cuda.device.helper import Helper, Lanes

_NATIVE = """
__device__ __forceinline__ {value} {name}(void* at, {value} value) {{
  return ({value}){function}(({cell}*)at, ({cell})value);
}}
"""
_FENCED = """
__device__ __forceinline__ {value} {name}(void* at, {value} value) {{
{ahead}  {value} held = ({value}){function}(({cell}*)at, ({cell})value);
{behind}  return held;
}}
"""
_SWAPPED = """
__device__ __forceinline__ {value} {name}(void* at, {value} value) {{
  {bits}* cell = ({bits}*)at;
  {bits} held, before;
{ahead}  asm volatile("ld.relaxed.gpu.{ptx} %0, [%1];" : "={register}"(held) : "l"(cell));
  do {{
    before = held;
    {value} old = {decode};
    {value} made = {combine};
    {bits} next = {encode};
    {settled}held = {swap}(cell, before, next);
  }} while (held != before);
{behind}  return {decode};
}}
"""
_LOAD = """
__device__ __forceinline__ {value} {name}(void* at, {value} value) {{
  {bits} before;
{ahead}  asm volatile("ld.relaxed.gpu.{ptx} %0, [%1];" : "={register}"(before) : "l"(at) : "memory");
{behind}  return {decode};
}}
"""
_STORE = """
__device__ __forceinline__ {value} {name}(void* at, {value} made) {{
  {bits} bits = {encode};
{ahead}  asm volatile("st.relaxed.gpu.{ptx} [%0], %1;" : : "l"(at), "{register}"(bits) : "memory");
{behind}  return made;
}}
"""
#: The device compares and swaps no single byte: the aligned word around it is swapped, its other bytes
#: staying what they are, also where they lie outside of the tensor (words never cross the end of an
#: allocation, which starts and ends at multiples of more).
SWAP_BYTE = "tilec_swap_byte"
SWAP_BYTE_CODE = """
__device__ __forceinline__ unsigned short tilec_swap_byte(void* at, unsigned short expected,
                                                          unsigned short made) {
  unsigned long long place = (unsigned long long)at;
  unsigned* word = (unsigned*)(place & ~3ull);
  unsigned shift = 8u * (unsigned)(place & 3ull), mask = 0xFFu << shift;
  unsigned seen = *(volatile unsigned*)word;
  for (;;) {
    unsigned held = seen >> shift & 0xFFu;
    if (held != expected) return (unsigned short)held;
    unsigned found = atomicCAS(word, seen, (seen & ~mask) | ((unsigned)made << shift));
    if (found == seen) return (unsigned short)held;
    seen = found;
  }
}
"""
#: A relaxed update that changes nothing needs no swap: most maxima and minima are of this kind.
_SETTLED = "if (next != before) "
_ACCESSES = {"load": _LOAD, "store": _STORE}
_FENCE = "  __threadfence();\n"
_AHEAD, _BEHIND = ("release", "acq_rel", "seq_cst"), ("acquire", "consume", "acq_rel", "seq_cst")
_REGISTERS = {"unsigned short": ("b16", "h"), "unsigned": ("b32", "r"), "unsigned long long": ("b64", "l")}
_FUNCTIONS = {"add": "atomicAdd", "max": "atomicMax", "min": "atomicMin", "or": "atomicOr"}
_COMBINED = {
    "add": ("old + value", np.add),
    "max": ("max(old, value)", np.fmax),
    "min": ("min(old, value)", np.fmin),
}
#: Values of which CUDA's max and min are functions of floats, by these names in Metal, too.
_OF_FLOATS = {"float": {"max": "fmaxf(old, value)", "min": "fminf(old, value)"}}

_FROM_BITS = (
    '([](unsigned short b) {{ float f; asm("cvt.f32.{ptx} %0, %1;" : "=f"(f) : "h"(b)); return f; }})(before)'
)
_TO_BITS = (
    '([](float f) {{ unsigned short b; asm("cvt.rn.{ptx}.f32 %0, %1;" '
    ': "=h"(b) : "f"(f)); return b; }})(made)'
)


@dataclass(frozen=True)
class _Type:
    """How an element type is updated: the C type of values, its bits with the way to and from them, and the C
    type of the cell of each kind of update that is an instruction. ``swap`` is the function that compares and
    swaps the bits."""

    value: str
    bits: str
    decode: str
    encode: str
    native: Mapping[str, str] = field(default_factory=dict)
    swap: str = "atomicCAS"

    @property
    def is_byte(self) -> bool:
        """Whether bits travel in a wider register than the element has."""
        return self.swap == SWAP_BYTE


def _integer(value: str, bits: str, cell: str = "", unsigned_cell: str = "") -> _Type:
    """Additions and bits are the same for both signs."""
    native = (
        {"add": unsigned_cell or cell, "or": unsigned_cell or cell, "max": cell, "min": cell} if cell else {}
    )
    return _Type(value, bits, f"({value})before", f"({bits})made", native)


def _byte(value: str) -> _Type:
    """An element of 8 bits, which travels in a register of 16."""
    return _Type(
        value, "unsigned short", f"({value})before", "(unsigned short)(unsigned char)made", swap=SWAP_BYTE
    )


_TYPES = {
    "int8": _byte("signed char"),
    "uint8": _byte("unsigned char"),
    "int16": _integer("short", "unsigned short"),
    "uint16": _integer("unsigned short", "unsigned short"),
    "int32": _integer("int", "unsigned", "int"),
    "uint32": _integer("unsigned", "unsigned", "unsigned"),
    "int64": _integer("long", "unsigned long long", "long long", "unsigned long long"),
    "uint64": _integer("unsigned long", "unsigned long long", "unsigned long long"),
    "float32": _Type("float", "unsigned", "__uint_as_float(before)", "__float_as_uint(made)",
                     {"add": "float"}),
    "float64": _Type("double", "unsigned long long", "__longlong_as_double((long long)before)",
                     "(unsigned long long)__double_as_longlong(made)", {"add": "double"}),
    "float16": _Type("float", "unsigned short", _FROM_BITS.format(ptx="f16"), _TO_BITS.format(ptx="f16")),
    "bfloat16": _Type("float", "unsigned short", "__uint_as_float((unsigned)before << 16)",
                      _TO_BITS.format(ptx="bf16")),
}  # fmt: skip
_ADD_FLOATS = """
__device__ __forceinline__ void {name}(void* at, {params}) {{
  asm volatile("{instruction} [%0], {places};" :: "l"(at), {values} : "memory");
}}
"""
#: What PTX calls two elements of 16 bits in a word.
_PAIRS = {"float16": "f16x2", "bfloat16": "bf16x2"}
#: The element types with atomic updates.
DTYPES = tuple(_TYPES)


@cache
def atomic(kind: str, dtype: str, order: str) -> Helper | None:
    """The function for an update (one of `tilec.ir.nodes.ATOMIC_KINDS`); None where the device has none."""
    element = _TYPES.get(dtype)
    template = None if element is None else _template(kind, element, order)
    if element is None or template is None:
        return None
    name = f"tilec_atomic_{kind}_{dtype}" + ("" if order == "relaxed" else f"_{order}")
    ptx, register = _REGISTERS[element.bits]
    ptx = "u8" if element.is_byte else ptx
    text = template.format(
        name=name,
        value=element.value,
        bits=element.bits,
        decode=element.decode,
        encode=element.encode,
        swap=element.swap,
        cell=element.native.get(kind, ""),
        function=_FUNCTIONS.get(kind, ""),
        combine=_OF_FLOATS.get(element.value, {}).get(kind, _COMBINED.get(kind, ("",))[0]),
        ptx=ptx,
        register=register,
        settled=_SETTLED if order == "relaxed" else "",
        ahead=_FENCE if order in _AHEAD else "",
        behind=_FENCE if order in _BEHIND else "",
    )
    return Helper(name, text, _fenced(_meaning(kind, dtype, element, ptx, order), order))


@cache
def add_vector(dtype: str, width: int) -> Helper:
    """Adds to ``width`` neighbours in global memory, each atomically, at an address that is a multiple of
    their bytes: float32 values, or words of two 16-bit floats each (PTX ISA, "red")."""
    words = width // 2 if dtype in _PAIRS else width
    kind = f"noftz.{{}}{_PAIRS[dtype]}" if dtype in _PAIRS else "{}f32"
    instruction = "red.relaxed.gpu.global.add." + kind.format(f"v{words}." if words > 1 else "")
    word, register = ("unsigned", "r") if dtype in _PAIRS else ("float", "f")
    places = ", ".join(f"%{number + 1}" for number in range(words))
    text = _ADD_FLOATS.format(
        name=f"tilec_add_{dtype}x{width}",
        params=", ".join(f"{word} v{number}" for number in range(words)),
        instruction=instruction,
        places=f"{{{places}}}" if words > 1 else places,
        values=", ".join(f'"{register}"(v{number})' for number in range(words)),
    )
    return Helper(
        f"tilec_add_{dtype}x{width}", text, lambda lanes, at, *values: lanes.ptx(instruction, at, *values)
    )


# ---- meaning ----


def _fenced(update: Any, order: str) -> Any:
    def meaning(lanes: Lanes, at: Any, value: Any) -> Any:
        if order in _AHEAD:
            lanes.cuda("__threadfence")
        held = update(lanes, at, value)
        if order in _BEHIND:
            lanes.cuda("__threadfence")
        return held

    return meaning


def _meaning(kind: str, dtype: str, element: _Type, ptx: str, order: str) -> Any:
    load, store = f"ld.relaxed.gpu.{ptx}", f"st.relaxed.gpu.{ptx}"
    if kind == "load":
        return lambda lanes, at, value: _decoded(lanes, lanes.ptx(load, at), dtype)
    if kind == "store":
        return lambda lanes, at, value: _stored(lanes, at, value, dtype, store)
    if kind in element.native:
        cell = _CELLS[element.native[kind]]
        return lambda lanes, at, value: lanes.bits(
            lanes.cuda(_FUNCTIONS[kind], at, lanes.bits(value, cell), cell), dtype
        )
    return lambda lanes, at, value: _swapped(
        lanes, at, value, dtype, load, _COMBINED[kind][1], order == "relaxed"
    )


def _stored(lanes: Lanes, at: Any, value: Any, dtype: str, store: str) -> Any:
    lanes.ptx(store, at, _encoded(lanes, value, dtype))
    return value


def _swapped(lanes: Lanes, at: Any, value: Any, dtype: str, load: str, combine: Any, settles: bool) -> Any:
    """Until the element is what the update was made of, or, with ``settles``, what the update makes."""
    held = before = lanes.ptx(load, at)
    left: Lanes | None = lanes
    while left is not None:
        before = left.chosen(held, before)
        made = combine(_decoded(left, before, dtype), value).astype(_VALUES.get(dtype, dtype))
        bits = _encoded(left, made, dtype)
        swapping = left.under(bits != before) if settles else left
        if swapping is not None:
            swapped = swapping.cuda("atomicCAS", at, before, bits, str(bits.dtype))
            held = swapping.chosen(swapped, held)
        left = left.under(held != before)
    return _decoded(lanes, before, dtype)


#: The types in which 16-bit floats are computed, and how they become their bits.
_VALUES = {"float16": "float32", "bfloat16": "float32"}
_CELLS = {"int": "int32", "unsigned": "uint32", "long long": "int64", "unsigned long long": "uint64",
          "float": "float32", "double": "float64"}  # fmt: skip


def _decoded(lanes: Lanes, bits: Any, dtype: str) -> Any:
    return lanes.ptx(f"cvt.f32.{PAIRED[dtype]}", bits) if dtype in PAIRED else lanes.bits(bits, dtype)


def _encoded(lanes: Lanes, value: Any, dtype: str) -> Any:
    if dtype in PAIRED:
        return lanes.ptx(f"cvt.rn.{PAIRED[dtype]}.f32", value)
    return lanes.bits(lanes.bits(value, dtype), f"uint{8 * np.dtype(dtype).itemsize}")


def _template(kind: str, element: _Type, order: str) -> str | None:
    if kind in _ACCESSES:
        return _ACCESSES[kind]
    if kind in element.native:
        return _NATIVE if order == "relaxed" else _FENCED
    return _SWAPPED if kind in _COMBINED else None
