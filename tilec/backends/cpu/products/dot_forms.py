"""Instructions that multiply several K elements a lane and add them up: when they serve, and how they are
called.

Their operands are 32-bit *words* of ``group`` consecutive K elements; an accumulator lane takes the products
of one word of ``a`` with one of ``b``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tvm import tirx

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.targets import Target


#: bfloat16 vectors do not survive TVM's legalisation: the call is made inside a function of LLVM text.
_BFLOAT16_SOURCE = """
declare <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float>, <32 x bfloat>, <32 x bfloat>)
define linkonce_odr hidden <16 x float> @tilec_dpbf16(<16 x float> %sum, <16 x i32> %a, <16 x i32> %b)
    alwaysinline nounwind memory(none) {
  %left = bitcast <16 x i32> %a to <32 x bfloat>
  %right = bitcast <16 x i32> %b to <32 x bfloat>
  %next = call <16 x float> @llvm.x86.avx512bf16.dpbf16ps.512(<16 x float> %sum, <32 x bfloat> %left,
                                                              <32 x bfloat> %right)
  ret <16 x float> %next
}
"""


@dataclass(frozen=True)
class DotForm:
    """``stored`` is the element type inside words; ``offset`` is added to every element of ``a`` (which the
    instruction takes as unsigned) and its share, offset * sum of ``b``, taken off the accumulators.
    ``source`` is the LLVM text of the function that `dot` calls."""

    name: str
    group: int
    stored: str
    offset: int = 0
    source: str = ""


#: vdpbf16ps: bfloat16 pairs, sums in float32; products are exact, subnormals count as zero (Intel SDM).
#: vpdpbusd: four unsigned by four signed bytes. sdot, udot: four bytes of one sign. pmaddwd: 16-bit pairs,
#: exact for 8-bit values.
DOT_FORMS = {
    form.name: form
    for form in (
        DotForm("vdpbf16ps", 2, "bfloat16", source=_BFLOAT16_SOURCE),
        DotForm("vpdpbusd", 4, "int8", offset=128),
        DotForm("sdot", 4, "int8"),
        DotForm("udot", 4, "uint8"),
        DotForm("pmaddwd", 2, "int16"),
    )
}

_BYTE_SUMS = {
    "vpdpbusd": "llvm.x86.avx512.vpdpbusd.512",
    "sdot": "llvm.aarch64.neon.sdot.v4i32.v16i8",
    "udot": "llvm.aarch64.neon.udot.v4i32.v16i8",
}
_PAIR_SUMS = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}


def choose_form(target: Target, a: str, b: str, c: str) -> DotForm | None:
    """The form for operands of types ``a`` and ``b`` into ``c``; None where plain multiply-adds serve."""
    if (a, b, c) == ("bfloat16", "bfloat16", "float32") and target.has("avx512bf16"):
        return DOT_FORMS["vdpbf16ps"]
    if c != "int32" or not {a, b} <= {"int8", "uint8"}:
        return None
    if target.arch == "aarch64":
        same = {("int8", "int8"): "sdot", ("uint8", "uint8"): "udot"}.get((a, b))
        return DOT_FORMS[same] if same is not None and target.has("dotprod") else None
    if target.has("vnni") and (a, b) == ("int8", "int8"):
        return DOT_FORMS["vpdpbusd"]
    return DOT_FORMS["pmaddwd"]


def dot(form: DotForm, a: Expr, b: Expr, total: Expr, lanes: int) -> Expr:
    """``total`` plus the products of the words in ``a`` and ``b``, all vectors of ``lanes`` words."""
    if form.source:
        return tirx.call_extern(f"float32x{lanes}", "tilec_dpbf16", total, a, b)
    kind = f"{form.stored}x{lanes * form.group}"
    left, right = tirx.reinterpret(kind, a), tirx.reinterpret(kind, b)
    if form.name in _BYTE_SUMS:
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", _BYTE_SUMS[form.name], total, left, right)
    return total + tirx.call_llvm_pure_intrin(f"int32x{lanes}", _PAIR_SUMS[lanes], left, right)


def offset_word(form: DotForm) -> Expr:
    """A word whose elements all are ``offset``, which as a mask flips the sign of 8-bit elements."""
    word = sum(form.offset << (32 // form.group * place) for place in range(form.group))
    return tirx.const(word - (1 << 32) if word >> 31 else word, "int32")
