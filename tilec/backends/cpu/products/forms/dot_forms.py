"""Instructions that multiply several K elements a lane and add them up: when they serve, and how they are
called.

Their operands are *words* of 32 bits (64 in `matrix_forms`): ``group`` consecutive K elements. An accumulator
lane takes the products of one word of ``a`` with one of ``b``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tvm import tirx

from tilec.lowering.math.vectors import spread

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.backends.cpu.nodes import RegisterBlock
    from tilec.targets import Target


#: bfloat16 vectors do not survive TVM's legalisation: the call is made inside a function of LLVM text.
_BFLOAT16_SOURCE = """
declare <{lanes} x float> @{intrinsic}(<{lanes} x float>, <{pairs} x bfloat>, <{pairs} x bfloat>)
define linkonce_odr hidden <{lanes} x float> @tilec_{name}(<{lanes} x float> %sum, <{lanes} x i32> %a,
                                                          <{lanes} x i32> %b)
    alwaysinline nounwind memory(none) {{
  %left = bitcast <{lanes} x i32> %a to <{pairs} x bfloat>
  %right = bitcast <{lanes} x i32> %b to <{pairs} x bfloat>
  %next = call <{lanes} x float> @{intrinsic}(<{lanes} x float> %sum, <{pairs} x bfloat> %left,
                                              <{pairs} x bfloat> %right)
  ret <{lanes} x float> %next
}}
"""


@dataclass(frozen=True)
class DotForm:
    """``stored`` is the element type inside words; ``offset`` is added to every element of ``b`` (which the
    instruction takes as unsigned) and its share, offset * sum of ``a``, taken off the accumulators.
    ``turned``: the instruction's first operand has words of ``b``. ``source`` is the LLVM text of the
    function that `dot` calls, ``word`` the type of a word. ``takes_denormals_as_zeros``: of its
    operands, whatever the modes."""

    name: str
    group: int
    stored: str
    offset: int = 0
    turned: bool = False
    source: str = ""
    word: str = "int32"
    takes_denormals_as_zeros: bool = False

    @property
    def instruction(self) -> str:
        """What assemblers call it: the name, without the signs of operands where several forms share it."""
        return self.name.partition("_")[0]

    def holds(self, dtype: str) -> bool:
        """Whether elements of ``dtype`` are bit by bit those of words, as bytes of either sign are."""
        return dtype == self.stored or {dtype, self.stored} == {"int8", "uint8"}

    def block(self, vectors: RegisterBlock, rows: int, depth: int, columns: int) -> RegisterBlock | None:
        """The register block for a product of these extents, made from that of plain vectors; None where
        the instruction does not fit them."""
        if depth % self.group or columns % vectors.lanes:
            return None
        return replace(vectors, form=self.name)

    def ends_at(self, depth: int) -> bool:
        """Whether a product over ``depth`` K elements reads none behind them."""
        return depth % self.group == 0

    def panel(self, block: RegisterBlock) -> int:
        """Columns of a panel of ``b``."""
        return block.cols

    def demands(self, vectors: RegisterBlock) -> tuple[int, int]:
        """What K and the columns of a product have to be multiples of."""
        return self.group, vectors.lanes


def _bfloat16_form(name: str, intrinsic: str, lanes: int) -> DotForm:
    source = _BFLOAT16_SOURCE.format(name=name, intrinsic=intrinsic, lanes=lanes, pairs=2 * lanes)
    return DotForm(name, 2, "bfloat16", source=source)


#: vdpbf16ps: bfloat16 pairs, sums in float32; products are exact, subnormals count as zero (Intel SDM).
#: bfdot: the same, whose subnormals and order of rounding are the machine's (Arm ARM, BFDOT). vpdpbusd:
#: four unsigned by four signed bytes (Intel SDM), here of two signed operands, or of one without a sign
#: (u). sdot, udot: four bytes of one sign. pmaddwd: 16-bit pairs, exact for 8-bit values.
DOT_FORMS = {
    form.name: form
    for form in (
        replace(
            _bfloat16_form("vdpbf16ps", "llvm.x86.avx512bf16.dpbf16ps.512", 16), takes_denormals_as_zeros=True
        ),
        replace(_bfloat16_form("bfdot", "llvm.aarch64.neon.bfdot.v4f32.v8bf16", 4), turned=True),
        DotForm("vpdpbusd", 4, "int8", offset=128, turned=True),
        DotForm("vpdpbusd_us", 4, "int8"),
        DotForm("vpdpbusd_su", 4, "int8", turned=True),
        DotForm("sdot", 4, "int8", turned=True),
        DotForm("udot", 4, "uint8", turned=True),
        DotForm("pmaddwd", 2, "int16"),
    )
}

_VPDPBUSD = {
    ("int8", "int8"): "vpdpbusd",
    ("uint8", "int8"): "vpdpbusd_us",
    ("int8", "uint8"): "vpdpbusd_su",
}
_BYTE_SUMS = {
    ("vpdpbusd", 8): "llvm.x86.avx512.vpdpbusd.256",
    ("vpdpbusd", 16): "llvm.x86.avx512.vpdpbusd.512",
    ("sdot", 4): "llvm.aarch64.neon.sdot.v4i32.v16i8",
    ("udot", 4): "llvm.aarch64.neon.udot.v4i32.v16i8",
}
_PAIR_SUMS = {
    4: "llvm.x86.sse2.pmadd.wd",
    8: "llvm.x86.avx2.pmadd.wd",
    16: "llvm.x86.avx512.pmaddw.d.512",
}


def dot_form(target: Target, a: str, b: str, c: str) -> DotForm | None:
    """The form for operands of types ``a`` and ``b`` into ``c``; None where plain multiply-adds serve."""
    if (a, b, c) == ("bfloat16", "bfloat16", "float32"):
        return _bfloat16_dot(target)
    if c != "int32" or not {a, b} <= {"int8", "uint8"}:
        return None
    if target.arch == "aarch64":
        same = {("int8", "int8"): "sdot", ("uint8", "uint8"): "udot"}.get((a, b))
        return DOT_FORMS[same] if same is not None and target.has("dotprod") else None
    name = _VPDPBUSD.get((a, b)) if target.has("vnni") or target.has("avxvnni") else None
    return DOT_FORMS["pmaddwd" if name is None else name]


def _bfloat16_dot(target: Target) -> DotForm | None:
    """Processors with AMX start vdpbf16ps every second cycle, float32's FMA twice a cycle: there it has half
    the rate of what it replaces (measured on a Xeon of family 6, model 207)."""
    if target.has("bf16"):
        return DOT_FORMS["bfdot"]
    return DOT_FORMS["vdpbf16ps"] if target.has("avx512bf16") and not target.has("amx") else None


def dot(form: DotForm, a: Expr, b: Expr, total: Expr, lanes: int) -> Expr:
    """``total`` plus the products of the words in ``a`` and ``b``, all vectors of ``lanes`` words."""
    first, second = (b, a) if form.turned else (a, b)
    if form.source:
        return tirx.call_extern(f"float32x{lanes}", f"tilec_{form.name}", total, first, second)
    kind = f"{form.stored}x{lanes * form.group}"
    left, right = tirx.reinterpret(kind, first), tirx.reinterpret(kind, second)
    sums = _BYTE_SUMS.get((form.instruction, lanes))
    if sums is not None:
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", sums, total, left, right)
    return total + tirx.call_llvm_pure_intrin(f"int32x{lanes}", _PAIR_SUMS[lanes], left, right)


def offset_word(form: DotForm) -> Expr:
    """A word whose elements all are ``offset``, which as a mask flips the sign of 8-bit elements."""
    word = sum(form.offset << (32 // form.group * place) for place in range(form.group))
    return tirx.const(word - (1 << 32) if word >> 31 else word, "int32")


def add_offset(form: DotForm, words: Expr) -> Expr:
    """Words of ``b`` as the instruction takes them."""
    lanes = words.ty.dtype.lanes
    return tirx.bitwise_xor(words, spread(offset_word(form), lanes)) if form.offset else words
