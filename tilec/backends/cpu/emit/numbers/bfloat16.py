"""Rounding to bfloat16 by one instruction, `vcvtneps2bf16`: to nearest even whatever a thread's modes are,
NaN quiet. It takes denormal numbers as zeros (Intel SDM, VCVTNEPS2BF16), so that a vector that has some is
rounded as integers, behind a branch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx
from tvm.ir import Call, Op

from tilec.lowering.math.vectors import lanes_of

if TYPE_CHECKING:
    from tvm.ir import Expr

#: Lanes to the bits of a vector of so many float32, as intrinsics are named by them.
_BITS = {16: 512, 8: 256}
#: Lanes of vectors that are rounded two at a time.
PAIR_LANES = tuple(_BITS)
_INSTRUCTION = "llvm.x86.avx512bf16.cvtneps2bf16"
_PAIR_INSTRUCTION = "llvm.x86.avx512bf16.cvtne2ps2bf16"
#: Begins the names of functions for whose results denormal numbers are zeros.
_ZEROS = "tilec_vcvtneps2bf16"
_CLASS = "llvm.x86.avx512.fpclass.ps"
#: VFPCLASSPS: denormal numbers of either sign (Intel SDM volume 2).
_DENORMAL = 0x20

_EXTERN = Op.get("tirx.call_pure_extern")

_WITH_ZEROS = """define linkonce_odr hidden <{lanes} x i16> @{name}(<{lanes} x float> %value)
    alwaysinline nounwind memory(none) {{
  %near = call <{lanes} x bfloat> @{instruction}(<{lanes} x float> %value)
  %bits = bitcast <{lanes} x bfloat> %near to <{lanes} x i16>
  ret <{lanes} x i16> %bits
}}
"""
#: Two vectors, the one behind first (VCVTNE2PS2BF16, which rounds alike).
_PAIR = """define linkonce_odr hidden <{both} x i16> @{name}(<{lanes} x float> %low, <{lanes} x float> %high)
    alwaysinline nounwind memory(none) {{
  %near = call <{both} x bfloat> @{instruction}(<{lanes} x float> %high, <{lanes} x float> %low)
  %bits = bitcast <{both} x bfloat> %near to <{both} x i16>
  ret <{both} x i16> %bits
}}
"""
#: A denormal number is no NaN, and has no exponent that the carry could make infinite.
_KEEPING = """define linkonce_odr hidden <{lanes} x i16> @{name}(<{lanes} x float> %value)
    alwaysinline nounwind memory(none) {{
  %near = call <{lanes} x bfloat> @{instruction}(<{lanes} x float> %value)
  %bits = bitcast <{lanes} x bfloat> %near to <{lanes} x i16>
  %are = call <{lanes} x i1> @{kind}(<{lanes} x float> %value, i32 {denormal})
  %mask = bitcast <{lanes} x i1> %are to i{lanes}
  %none = icmp eq i{lanes} %mask, 0
  %likely = call i1 @llvm.expect.i1(i1 %none, i1 true)
  br i1 %likely, label %done, label %some
some:
  %whole = bitcast <{lanes} x float> %value to <{lanes} x i32>
  %upper = lshr <{lanes} x i32> %whole, splat (i32 16)
  %odd = and <{lanes} x i32> %upper, splat (i32 1)
  %half = add <{lanes} x i32> %whole, splat (i32 32767)
  %carried = add <{lanes} x i32> %half, %odd
  %shifted = lshr <{lanes} x i32> %carried, splat (i32 16)
  %short = trunc <{lanes} x i32> %shifted to <{lanes} x i16>
  %mixed = select <{lanes} x i1> %are, <{lanes} x i16> %short, <{lanes} x i16> %bits
  br label %done
done:
  %result = phi <{lanes} x i16> [ %bits, %0 ], [ %mixed, %some ]
  ret <{lanes} x i16> %result
}}
"""


def nearest_bfloat16(value: Expr, functions: dict[str, str], zeros: bool = False) -> Expr | None:
    """The bits of float32 lanes rounded to bfloat16; None where no instruction has as many. ``zeros``:
    denormal numbers may become zeros. The function that rounds goes into ``functions``: its text by its
    name."""
    lanes = lanes_of(value)
    if lanes not in _BITS:
        return None
    name = f"{_ZEROS if zeros else 'tilec_bfloat16'}_{lanes}"
    instruction, kind = (f"{intrinsic}.{_BITS[lanes]}" for intrinsic in (_INSTRUCTION, _CLASS))
    _declare(functions, f"<{lanes} x bfloat> @{instruction}(<{lanes} x float>)")
    if not zeros:
        _declare(functions, f"<{lanes} x i1> @{kind}(<{lanes} x float>, i32 immarg)")
        _declare(functions, "i1 @llvm.expect.i1(i1, i1)")
    text = _WITH_ZEROS if zeros else _KEEPING
    functions[name] = text.format(
        lanes=lanes, name=name, instruction=instruction, kind=kind, denormal=_DENORMAL
    )
    return tirx.call_pure_extern(f"uint16x{lanes}", name, value)


def rounds_to_zeros(value: Expr) -> bool:
    """Whether a value is such bits, denormal numbers having become zeros."""
    is_call = isinstance(value, Call) and value.op.same_as(_EXTERN)
    return is_call and value.args[0].value == f"{_ZEROS}_{lanes_of(value)}"


def pair_of_bfloat16(low: Expr, high: Expr, functions: dict[str, str]) -> Expr:
    """Such bits of two vectors, those of ``low`` first, in as many instructions as of one."""
    lanes = lanes_of(low)
    both, name = 2 * lanes, f"tilec_vcvtne2ps2bf16_{2 * lanes}"
    instruction = f"{_PAIR_INSTRUCTION}.{_BITS[lanes]}"
    _declare(functions, f"<{both} x bfloat> @{instruction}(<{lanes} x float>, <{lanes} x float>)")
    functions[name] = _PAIR.format(both=both, lanes=lanes, name=name, instruction=instruction)
    return tirx.call_pure_extern(f"uint16x{both}", name, low, high)


def _declare(functions: dict[str, str], what: str) -> None:
    """One text may declare an intrinsic once."""
    declared = f"declare {what}\n"
    functions[declared] = declared
