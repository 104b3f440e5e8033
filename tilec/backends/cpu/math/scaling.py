"""AVX-512's instructions that take a float apart at the point and multiply by a power of two."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tvm import tirx

from tilec.lowering.math.vectors import literal, spread, with_lanes

if TYPE_CHECKING:
    from tvm.ir import Expr

    from tilec.lowering.math.vectors import Vectors

#: Bits of a vector of so many float32 lanes, as the intrinsics are named by them.
_BITS = {4: 128, 8: 256, 16: 512}
#: VREDUCEPS: subtract the floor, raise nothing (Intel SDM volume 2).
_FLOOR = 0b1001
#: Of 512 bits the intrinsics take a rounding mode: the current one.
_CURRENT = 4


def has_scaling(v: Vectors) -> bool:
    """Whether the target that code is made for has them for vectors of so many lanes. One is the first of
    four, so that elements that fill no vector get the same bits."""
    from tvm.target.codegen import target_has_features

    return v.lanes in (1, *_BITS) and bool(target_has_features("avx512dq"))


def fraction(v: Vectors, x: Expr) -> Expr:
    """x - floor(x), in [0, 1); 0 for infinities."""
    return _masked(v, "reduce", x, tirx.const(_FLOOR, "int32"))


def scaled(v: Vectors, x: Expr, power: Expr) -> Expr:
    """x * 2^floor(power), rounded once; power may be infinite."""
    return _masked(v, "scalef", x, power)


def _masked(v: Vectors, name: str, *args: Expr) -> Expr:
    """An intrinsic whose mask is full, so that what it would keep is any vector."""
    lanes = max(v.lanes, min(_BITS))
    bits = _BITS[lanes]
    mask = tirx.const(-1, "int16" if bits == 512 else "int8")
    mode = (tirx.const(_CURRENT, "int32"),) if bits == 512 else ()
    intrinsic = f"llvm.x86.avx512.mask.{name}.ps.{bits}"
    kept = literal(0.0, "float32", lanes)
    given = [spread(arg, lanes) if str(arg.ty.dtype) == "float32" else arg for arg in args]
    result = tirx.call_llvm_pure_intrin(with_lanes("float32", lanes), intrinsic, *given, kept, mask, *mode)
    return result if v.lanes == lanes else tirx.Shuffle([result], [0])
