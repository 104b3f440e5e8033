"""Device functions that move bytes between memories and registers, at the widths of instructions."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.helper import C_NAMES, Helper, Lanes

_WORDS = {1: "uchar", 2: "ushort", 4: "uint", 8: "uint2", 16: "uint4"}
_C_WORDS = {1: "unsigned char", 2: "unsigned short", 4: "unsigned", 8: "uint2", 16: "uint4"}
#: What names of `take_element` begin with.
TAKE = "tilec_take_element"
#: What a register of so many bytes is: its letter in assembly, its bits, its type.
_REGISTERS = {
    1: ("r", 32, "unsigned"), 2: ("h", 16, "unsigned short"), 4: ("r", 32, "unsigned"),
    8: ("l", 64, "unsigned long"),
}  # fmt: skip
#: Policies of the L2 cache: what createpolicy.fractional.L2::evict_first and ::evict_last give for all lines
#: of a copy, as assembled for sm_80 to sm_90a.
EVICTION = {"first": 0x12F0000000000000, "last": 0x14F0000000000000}


@cache
def cp_async(size: int, evict: str | None = None) -> Helper:
    """Starts a copy of ``size`` bytes into shared memory: zeros where the last argument is 0. Lines of the
    source leave the L2 cache ``evict``, one of `EVICTION`, by a policy that the assembler makes a constant of
    its GPU."""
    name, cache_ = f"tilec_cp_async_{size}", "cg" if size == 16 else "ca"
    instruction, policy, make, given = f"cp.async.{cache_}.shared.global", "", "", ""
    if evict is not None:
        name, instruction = f"{name}_evict_{evict}", f"{instruction}.L2::cache_hint"
        policy = f"createpolicy.fractional.L2::evict_{evict}.b64"
        make, given = f".reg .b64 policy; {policy} policy; ", ", policy"

    def meaning(lanes: Lanes, to: Any, source: Any, count: Any) -> None:
        hint = (lanes.ptx(policy),) if policy else ()
        lanes.ptx(instruction, lanes.shared(to), source, size, count == 0, *hint)

    return Helper(name, f"""
__device__ __forceinline__ void {name}(void* dst, const void* src, int bytes) {{
  unsigned address = (unsigned)__cvta_generic_to_shared(dst);
  asm volatile("{{ .reg .pred none; setp.eq.s32 none, %2, 0; {make}"
               "{instruction} [%0], [%1], {size}, none{given}; }}"
               :: "r"(address), "l"(src), "r"(bytes) : "memory");
}}
""", meaning)  # fmt: skip


@cache
def move(size: int) -> Helper:
    """Moves ``size`` bytes at once; places are numbers of that many bytes."""
    name, word = f"tilec_move_{size}", _WORDS[size]

    def meaning(lanes: Lanes, to: Any, to_at: Any, source: Any, from_at: Any) -> None:
        lanes.move(to, source, size, to_at, from_at)

    return Helper(name, f"""
__device__ __forceinline__ void {name}(void* to, long to_at, const void* from, long from_at) {{
  (({word}*)to)[to_at] = ((const {word}*)from)[from_at];
}}
""", meaning)  # fmt: skip


@cache
def take(size: int) -> Helper:
    """Reads ``size`` bytes at once where the last argument holds, zeros elsewhere; places are numbers of that
    many bytes. Zeros of words, with the load over them, are a load under a predicate; those of elements are
    put together one by one."""
    name, word = f"tilec_take_{size}", _C_WORDS[size]
    each = min(size, 8)

    def meaning(lanes: Lanes, to: Any, to_at: Any, source: Any, from_at: Any, inside: Any) -> None:
        for part in range(size // each):
            lanes.store(to, f"uint{8 * each}", 0, to_at * (size // each) + part)
        found = lanes.under(inside)
        if found is not None:
            found.move(to, source, size, to_at, from_at)

    return Helper(name, f"""
__device__ __forceinline__ void {name}(void* to, long to_at, const void* from, long from_at, bool inside) {{
  {word} value = {{}};
  if (inside) {{ value = ((const {word}*)from)[from_at]; }}
  (({word}*)to)[to_at] = value;
}}
""", meaning)  # fmt: skip


@cache
def take_element(size: int, places: str) -> Helper:
    """The bits of an element of ``size`` bytes of a tensor that nothing writes, at a place of the type
    ``places``, where the last argument holds; zero elsewhere, where nothing is read. A load under a
    predicate: of a test in C++ compilers make a branch, in which they compute the place and wait for the
    element."""
    name, dtype, index = f"{TAKE}_{places}_{size}", f"uint{8 * size}", C_NAMES[places]
    letter, bits, word = _REGISTERS[size]
    found = "unsigned char" if size == 1 else word

    def meaning(lanes: Lanes, source: Any, place: Any, inside: Any) -> Any:
        found, zero = lanes.under(inside), np.dtype(dtype).type(0)
        return zero if found is None else found.chosen(found.load(source, dtype, place), zero)

    return Helper(name, f"""
__device__ __forceinline__ {found} {name}(const void* from, {index} place, bool inside) {{
  {word} value;
  asm("{{ .reg .pred inside; setp.ne.s32 inside, %2, 0; @!inside mov.b{bits} %0, 0; "
      "@inside ld.global.nc.u{8 * size} %0, [%1]; }}"
      : "=&{letter}"(value)
      : "l"((const char*)from + place * {size}L), "r"((int)inside));
  return value;
}}
""", meaning)  # fmt: skip


def _branching(size: int, places: str) -> str:
    """`take_element` without assembly."""
    word = _C_WORDS[size] if size < 8 else "unsigned long"
    params = f"const void* from, {C_NAMES[places]} place, bool inside"
    return f"""
__device__ __forceinline__ {word} {TAKE}_{places}_{size}({params}) {{
  return inside ? ((const {word}*)from)[place] : ({word})0;
}}
"""


#: `take_element` for GPUs that are not NVIDIA's, by its text.
PLAIN_TAKES = {
    take_element(size, places).text: _branching(size, places)
    for size in _REGISTERS
    for places in ("int32", "int64")
}


@cache
def read_at(size: int) -> Helper:
    """Moves ``size`` bytes at once from so many bytes behind an address, a multiple of that."""
    name, word = f"tilec_read_{size}", _C_WORDS[size]

    def meaning(lanes: Lanes, to: Any, source: Any, from_at: Any) -> None:
        lanes.move(to, source, size, 0, from_at // size)

    return Helper(name, f"""
__device__ __forceinline__ void {name}(void* to, const void* from, int from_at) {{
  *({word}*)to = *(const {word}*)((const char*)from + from_at);
}}
""", meaning)  # fmt: skip


@cache
def fetch(size: int) -> Helper:
    """Moves ``size`` bytes at once."""
    name, word = f"tilec_fetch_{size}", _C_WORDS[size]
    return Helper(
        name,
        f"__forceinline__ __device__ void {name}(void* to, const void* from) {{\n"
        f"  *({word}*)to = *(const {word}*)from;\n}}\n",
        lambda lanes, to, source: lanes.move(to, source, size),
    )


@cache
def bits(size: int) -> Helper:
    """1, 2 or 4 bytes as an unsigned word."""
    name, dtype = f"tilec_bits_{size}", f"uint{8 * size}"

    def meaning(lanes: Lanes, source: Any) -> Any:
        return _word(lanes.load(source, dtype))

    return Helper(name, f"""
__device__ __forceinline__ unsigned {name}(const void* from) {{ return *(const {_C_WORDS[size]}*)from; }}
""", meaning)  # fmt: skip


def _word(value: Any) -> Any:
    return value.astype(np.uint32) if isinstance(value, np.ndarray) else int(value)


#: Four bytes of two words, by the digits of a selector.
BYTES = Helper("tilec_bytes", """
__device__ __forceinline__ unsigned tilec_bytes(unsigned low, unsigned high, unsigned selector) {
  return __byte_perm(low, high, selector);
}
""", lambda lanes, low, high, selector: lanes.cuda("__byte_perm", low, high, selector))  # fmt: skip
#: The 16 bits at a shared address.
LOAD16 = Helper("tilec_load16", """
__device__ __forceinline__ unsigned tilec_load16(unsigned address) {
  unsigned short value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address));
  return value;
}
""", lambda lanes, address: _word(lanes.ptx("ld.shared.u16", address)))  # fmt: skip
