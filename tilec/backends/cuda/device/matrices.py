"""Matrix instructions of one warp: ldmatrix, mma.sync, also with scales, mma.sp."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tilec.backends.cuda.device.helper import Helper, Lanes

#: What holds the sums: their C type, the letter of a register, and how many there are.
_SUMS = {"float32": ("float", "f", 4), "int32": ("int", "r", 4), "float16": ("unsigned", "r", 2)}
_HIGH_WORD = 1 << 30 | 1024 >> 4


def _loaded(count: int, trans: bool) -> Any:
    name = f"ldmatrix.sync.aligned.m8n8.x{count}{'.trans' if trans else ''}.shared.b16"

    def meaning(lanes: Lanes, to: Any, source: Any) -> None:
        made = lanes.ptx(name, lanes.shared(source))
        for place, word in enumerate([made] if count == 1 else made):
            lanes.store(to, "uint32", word, place)

    return meaning


def _parts(count: int, trans: bool, to: str) -> dict[str, Any]:
    return {
        "count": count,
        "trans": ".trans" if trans else "",
        "holes": ", ".join(f"%{place}" for place in range(count)),
        "outputs": ", ".join(f'"=r"({to}[{place}])' for place in range(count)),
    }


@cache
def ldmatrix(count: int, trans: bool) -> Helper:
    """Loads ``count`` matrices of 8 x 8 elements of 16 bits into as many words."""
    name = f"tilec_ldmatrix_x{count}{'_trans' if trans else ''}"
    text = """
__device__ __forceinline__ void {name}(unsigned* to, const void* from) {{
  unsigned address = (unsigned)__cvta_generic_to_shared(from);
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{holes}}}, [%{count}];"
               : {outputs} : "r"(address) : "memory");
}}
"""
    return Helper(name, text.format(name=name, **_parts(count, trans, "to")), _loaded(count, trans))


@cache
def lanes_ldmatrix(count: int, trans: bool) -> Helper:
    """The same into registers of any type."""
    name = f"tilec_lanes_ldmatrix_x{count}{'_trans' if trans else ''}"
    text = """
__device__ __forceinline__ void {name}(void* to, const void* from) {{
  unsigned address = (unsigned)__cvta_generic_to_shared(from);
  unsigned* words = (unsigned*)to;
  asm volatile("ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{holes}}}, [%{count}];"
               : {outputs} : "r"(address) : "memory");
}}
"""
    return Helper(name, text.format(name=name, **_parts(count, trans, "words")), _loaded(count, trans))


def _multiply(
    lanes: Lanes, name: str, sums: Any, dtype: str, count: int, *operands: Any, tail: Any = ()
) -> None:
    """Adds the product of words to ``count`` sums."""
    old = [lanes.load(sums, dtype, place) for place in range(count)]
    for place, value in enumerate(lanes.ptx(name, *operands, *old, *tail)):
        lanes.store(sums, dtype, lanes.bits(value, dtype), place)


def _words(lanes: Lanes, pointer: Any, count: int) -> list[Any]:
    return [lanes.load(pointer, "uint32", place) for place in range(count)]


@cache
def integer_mma(instruction: str) -> Helper:
    """mma.sync into signed sums, which TVM's table of instructions has as unsigned ones alone."""
    name = f"tilec_{instruction.replace('.', '_')}"

    def meaning(lanes: Lanes, c: Any, a: Any, b: Any) -> None:
        _multiply(lanes, instruction, c, "int32", 4, *_words(lanes, a, 4), *_words(lanes, b, 2))

    return Helper(name, f"""
__device__ __forceinline__ void {name}(int* c, const unsigned* a, const unsigned* b) {{
  asm volatile("{instruction} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}};"
               : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}}
""", meaning)  # fmt: skip


@cache
def double_mma(instruction: str) -> Helper:
    """mma.sync of float64, 16 rows or two times eight, whose registers TVM's table of instructions has as
    words."""
    name = f"tilec_{instruction.replace('.', '_')}"
    #: Numbers of the words of A and of the sums of each instruction.
    parts = [((0,), (0, 1)), ((1,), (2, 3))] if ".m8n8k4." in instruction else [((0, 1), (0, 1, 2, 3))]

    def meaning(lanes: Lanes, c: Any, a: Any, b: Any) -> None:
        right = lanes.load(b, "float64", 0)
        for rows, places in parts:
            left = [lanes.load(a, "float64", row) for row in rows]
            old = [lanes.load(c, "float64", place) for place in places]
            for place, value in zip(places, lanes.ptx(instruction, *left, right, *old), strict=True):
                lanes.store(c, "float64", value, place)

    def written(rows: tuple[int, ...], places: tuple[int, ...]) -> str:
        sums, left = ", ".join(f"%{place}" for place in places), ", ".join(f"%{4 + row}" for row in rows)
        return f'"{instruction} {{{sums}}}, {{{left}}}, {{%6}}, {{{sums}}};"'

    whole = "\n               ".join(written(*part) for part in parts)
    return Helper(name, f"""
__device__ __forceinline__ void {name}(double* c, const double* a, const double* b) {{
  asm volatile({whole}
               : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3]) : "d"(a[0]), "d"(a[1]), "d"(b[0]));
}}
""", meaning)  # fmt: skip


#: What holds the sums of wgmma in helpers (TVM's table of instructions has unsigned words of int32 and
#: float16, and no wgmma.sp): their C type, the letter of a register, and the bytes of a sum.
_WORDS_OF_SUMS = {"int32": ("int", "r", 4), "float16": ("unsigned", "r", 2), "float32": ("float", "f", 4)}


@cache
def wgmma(
    instruction: str, dtype: str, count: int, has_registers: bool, tail: tuple[int, ...] = ()
) -> Helper:
    """wgmma into ``count`` registers of each thread, which hold sums of 32 bits, or two of float16: B by a
    descriptor, A too or in four words; ``adds`` whether the sums are kept; ``tail``: signs and sides."""
    return _wgmma(instruction, dtype, count, has_registers, None, tail)


@cache
def sparse_wgmma(
    instruction: str, dtype: str, count: int, has_registers: bool, selector: int, tail: tuple[int, ...] = ()
) -> Helper:
    """wgmma.sp, as `wgmma`; ``e`` is a word of the places of A's values, in the lanes of a ``selector``."""
    return _wgmma(instruction, dtype, count, has_registers, selector, tail)


def _wgmma(
    instruction: str,
    dtype: str,
    count: int,
    has_registers: bool,
    selector: int | None,
    tail: tuple[int, ...],
) -> Helper:
    """Of dense operands without a ``selector``."""
    kind, letter, size = _WORDS_OF_SUMS[dtype]
    chosen = () if selector is None else (selector,)
    side = "_".join(["registers"] * has_registers + [str(part) for part in (*chosen, *tail)])
    name = f"tilec_{instruction.replace('.', '_')}_{side}".rstrip("_")

    def meaning(lanes: Lanes, sums: Any, a: Any, b: Any, *rest: Any) -> None:
        *e, adds = rest
        places = [sums.index + place for place in range(count * 4 // size)]
        left = _words(lanes, a, 4) if has_registers else [a]
        kept = [(a.registers, a.index + place) for place in range(4)] if has_registers else []
        words = [word for pointer in e for word in _words(lanes, pointer, 1)]
        kept += [(pointer.registers, pointer.index) for pointer in e]
        lanes.ptx(instruction, [(sums.registers, places)], *left, b, *words, *chosen, adds, *tail, kept=kept)

    held = ", ".join(f"%{place}" for place in range(count))
    outputs = ", ".join(f'"+{letter}"(c[{place}])' for place in range(count))
    at = count + (4 if has_registers else 1)
    left = "{" + ", ".join(f"%{place}" for place in range(count, at)) + "}" if has_registers else f"%{count}"
    given = ", ".join(f'"r"(a[{place}])' for place in range(4)) if has_registers else '"l"(a)'
    rest = "".join(f", {part}" for part in tail)
    parameter = "const unsigned* a" if has_registers else "unsigned long a"
    places = "" if selector is None else f", %{at + 1}, {selector}"
    word, more = ("", "") if selector is None else (", const unsigned* e", '"r"(e[0]), ')
    return Helper(name, f"""
__device__ __forceinline__ void {name}(void* sums, {parameter}, unsigned long b{word}, unsigned adds) {{
  {kind}* c = ({kind}*)sums;
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{at + 1 + len(chosen)}, 0; "
               "{instruction} {{{held}}}, {left}, %{at}{places}, p{rest}; }}"
               : {outputs} : {given}, "l"(b), {more}"r"(adds));
}}
""", meaning)  # fmt: skip


@cache
def wgmma_pin(dtype: str, count: int) -> Helper:
    """Keeps what reads ``count`` registers of such sums behind this point, as
    `tilec.backends.cuda.device.exchange.pin`."""
    kind, letter, _ = _WORDS_OF_SUMS[dtype]
    name = f"tilec_pin_{dtype}_{count}"
    return Helper(name, f"""
__device__ __forceinline__ void {name}(void* sums) {{
  {kind}* c = ({kind}*)sums;
#pragma unroll
  for (int i = 0; i < {count}; ++i) asm volatile("" : "+{letter}"(c[i]) :: "memory");
}}
""", lambda lanes, sums: None)  # fmt: skip


def _quad(lanes: Lanes, pairs: Any, lane: Any) -> Any:
    own = np.asarray(lane) & 3
    low, high = (
        lanes.bits(lanes.cuda("__shfl_sync", 0xFFFFFFFF, pairs, 2 * (own & 1) + side, 4, "uint32"), "uint32")
        for side in (0, 1)
    )
    return np.where(own & 2 != 0, low >> 16 | high & 0xFFFF0000, low & 0xFFFF | high << 16).astype(np.uint32)


#: Four neighbours along K of an 8-bit operand from two pairs that each lane of a quad has of 16 columns, as
#: accumulators lie: columns 2t, 2t + 1 in the low half of ``pairs`` and 2t + 8, 2t + 9 in the high one.
QUAD = Helper("tilec_quad", """
__device__ __forceinline__ unsigned tilec_quad(unsigned pairs, int lane) {
  unsigned low = __shfl_sync(0xffffffffu, pairs, (lane & 1) * 2, 4);
  unsigned high = __shfl_sync(0xffffffffu, pairs, (lane & 1) * 2 + 1, 4);
  return __byte_perm(low, high, lane & 2 ? 0x7632u : 0x5410u);
}
""", _quad)  # fmt: skip


@cache
def sparse_mma(instruction: str, dtype: str) -> Helper:
    """mma.sp into sums of ``dtype``: values of A, two steps of B, the values' places."""
    kind, letter, _ = _SUMS[dtype]
    name = "tilec_" + "".join(part if part.isalnum() else "_" for part in instruction)

    def meaning(lanes: Lanes, c: Any, a: Any, b: Any, e: Any) -> None:
        operands = (*_words(lanes, a, 4), *_words(lanes, b, 4))
        _multiply(lanes, instruction, c, dtype, 4, *operands, tail=(e, 0))

    return Helper(name, f"""
__device__ __forceinline__ void {name}({kind}* c, const unsigned* a, const unsigned* b, unsigned e) {{
  asm volatile("{instruction} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9, %10, %11}}, "
               "{{%0, %1, %2, %3}}, %12, 0x0;"
               : "+{letter}"(c[0]), "+{letter}"(c[1]), "+{letter}"(c[2]), "+{letter}"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]),
                 "r"(b[0]), "r"(b[1]), "r"(b[2]), "r"(b[3]), "r"(e));
}}
""", meaning)  # fmt: skip


@cache
def scaled_mma(instruction: str, a_byte: int, b_byte: int) -> Helper:
    """mma.sync with scales into float32: those of A and B begin at these bytes of the words of the first
    lanes of each four."""
    name = "tilec_" + "".join(part if part.isalnum() else "_" for part in instruction)
    name = f"{name}_{a_byte}_{b_byte}"

    def meaning(lanes: Lanes, c: Any, a: Any, b: Any, a_scales: Any, b_scales: Any) -> None:
        operands = (*_words(lanes, a, 4), *_words(lanes, b, 2))
        tail = (a_scales, a_byte, 0, b_scales, b_byte, 0)
        _multiply(lanes, instruction, c, "float32", 4, *operands, tail=tail)

    return Helper(name, f"""
__device__ __forceinline__ void {name}(float* c, const unsigned* a, const unsigned* b, unsigned sfa,
                                       unsigned sfb) {{
  asm volatile("{instruction} {{%0, %1, %2, %3}}, {{%4, %5, %6, %7}}, {{%8, %9}}, {{%0, %1, %2, %3}}, "
               "%10, {{{a_byte}, 0}}, %11, {{{b_byte}, 0}};"
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(sfa), "r"(sfb));
}}
""", meaning)  # fmt: skip


@cache
def lanes_mma(instruction: str, dtype: str, a_words: int, b_words: int) -> Helper:
    """mma.sync into sums of ``dtype``, on words of A and of B."""
    kind, letter, count = _SUMS[dtype]
    names = [f"{part}{n}" for part, words in (("a", a_words), ("b", b_words)) for n in range(words)]
    holes = [f"%{place}" for place in range(count + len(names))]
    name = f"tilec_lanes_{instruction.replace('.', '_')}"
    sums, a = ", ".join(holes[:count]), ", ".join(holes[count : count + a_words])
    b = ", ".join(holes[count + a_words :])
    outputs = ", ".join(f'"+{letter}"(c[{place}])' for place in range(count))
    held = "uint32" if dtype == "float16" else dtype

    def meaning(lanes: Lanes, into: Any, *words: Any) -> None:
        _multiply(lanes, instruction, into, held, count, *words)

    return Helper(name, f"""
__device__ __forceinline__ void {name}(void* sums, {", ".join(f"unsigned {word}" for word in names)}) {{
  {kind}* c = ({kind}*)sums;
  asm volatile("{instruction} {{{sums}}}, {{{a}}}, {{{b}}}, {{{sums}}};"
               : {outputs} : {", ".join(f'"r"({word})' for word in names)});
}}
""", meaning)  # fmt: skip


def _turned(lanes: Lanes, words: Any) -> None:
    for first in (0, 2):
        low, high = (lanes.load(words, "uint32", first + part) for part in (0, 1))
        for part, selector in ((0, 0x6420), (1, 0x7531)):
            lanes.store(words, "uint32", lanes.cuda("__byte_perm", low, high, selector), first + part)


#: Of pairs of bytes in two rows and two words, each column's four bytes in a word; twice.
TURN = Helper("tilec_turn", """
__device__ __forceinline__ void tilec_turn(unsigned* words) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    unsigned low = words[i], high = words[i + 1];
    words[i] = __byte_perm(low, high, 0x6420u);
    words[i + 1] = __byte_perm(low, high, 0x7531u);
  }
}
""", _turned)  # fmt: skip


def _turned_by(lanes: Lanes, to: Any, source: Any, selector: Any) -> None:
    for first in (0, 2):
        low, high = (lanes.load(source, "uint32", first + part) for part in (0, 1))
        for part, chosen in ((0, selector), (1, selector ^ 0x1111)):
            lanes.store(to, "uint32", lanes.cuda("__byte_perm", low, high, chosen), first + part)


#: The same with the bytes that a selector of prmt picks, and their neighbours; not before what stands in
#: front of it.
TURN_BY = Helper("tilec_turn_by", """
__device__ __forceinline__ void tilec_turn_by(unsigned* to, const unsigned* from, unsigned selector) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    unsigned low = from[i], high = from[i + 1];
    asm volatile("prmt.b32 %0, %1, %2, %3;" : "=r"(to[i]) : "r"(low), "r"(high), "r"(selector) : "memory");
    asm volatile("prmt.b32 %0, %1, %2, %3;"
                 : "=r"(to[i + 1]) : "r"(low), "r"(high), "r"(selector ^ 0x1111u) : "memory");
  }
}
""", _turned_by)  # fmt: skip
#: What wgmma takes of a float32, in a register of its own, not before what stands in front of it: the
#: assembler makes no register of two, as it does of a copy.
CUT = Helper("tilec_cut", """
__device__ __forceinline__ unsigned tilec_cut(unsigned word) {
  unsigned made;
  asm volatile("and.b32 %0, %1, 0xffffe000;" : "=r"(made) : "r"(word) : "memory");
  return made;
}
""", lambda lanes, word: lanes.bits(word, "uint32") & np.uint32(0xFFFFE000))  # fmt: skip
#: A word of two halves, in a register of its own, not before what stands in front of it.
PAIR = Helper("tilec_pair", """
__device__ __forceinline__ unsigned tilec_pair(unsigned low, unsigned high) {
  unsigned made;
  asm volatile("prmt.b32 %0, %1, %2, 0x5410;" : "=r"(made) : "r"(low), "r"(high) : "memory");
  return made;
}
""", lambda lanes, low, high: lanes.cuda("__byte_perm", low, high, 0x5410))  # fmt: skip
#: The matrix descriptor of wgmma with this low word (PTX ISA, "Shared Memory Matrix Layout"): 128-byte
#: swizzle, 1024 bytes from one group of eight rows to the next.
DESCRIPTOR = Helper("tilec_descriptor", f"""
__device__ __forceinline__ unsigned long long tilec_descriptor(unsigned low) {{
  return (unsigned long long){_HIGH_WORD}u << 32 | low;
}}
""", lambda lanes, low: lanes.bits(low, "uint32").astype("uint64") | _HIGH_WORD << 32)  # fmt: skip


@cache
def store_matrices(trans: bool) -> Helper:
    """Stores four matrices, of whose words each lane has one, and names a row of 16 bytes of one of them;
    ``trans``: of the transposed ones."""
    instruction = f"stmatrix.sync.aligned.m8n8.x4{'.trans' if trans else ''}.shared.b16"
    name = f"tilec_store_matrices{'_trans' if trans else ''}"

    def meaning(lanes: Lanes, at: Any, *words: Any) -> None:
        lanes.ptx(instruction, lanes.shared(at), *words)

    return Helper(name, f"""
__device__ __forceinline__ void {name}(void* at, unsigned a, unsigned b, unsigned c,
                                                     unsigned d) {{
  unsigned address = (unsigned)__cvta_generic_to_shared(at);
  asm volatile("{instruction} [%0], {{%1, %2, %3, %4}};"
               :: "r"(address), "r"(a), "r"(b), "r"(c), "r"(d) : "memory");
}}
""", meaning)  # fmt: skip
