"""Helpers that compute with ``tilec.tvm.tir`` on elements of tiles."""

from __future__ import annotations

from typing import Any

import numpy as np
from agree import agree

import tilec
import tilec.language as T
from tilec.tvm import tir


def _float4(packed: tir.PrimExpr, position: tir.PrimExpr, bias: int) -> Any:
    """An e2m1 number of two in a byte as a float16 of 1/2**14 of its value, less ``bias`` in the exponent."""
    mask = tir.const(15, "uint16")
    code = (packed >> (position.astype("uint16") * tir.const(4, "uint16"))) & mask
    sign = code >> tir.const(3, "uint16")
    rest = (code & tir.const(7, "uint16")) + tir.const(bias, "uint16")
    bits = (sign << tir.const(15, "uint16")) | (rest << tir.const(9, "uint16"))
    return tir.reinterpret("float16", bits)


@tilec.jit(out_idx=[1, 2])
def unpack(n: int) -> Any:
    @T.prim_func
    def main(
        P: T.Tensor((n // 2,), "uint8"), V: T.Tensor((n,), "float16"), S: T.Tensor((n,), "float32")
    ) -> None:
        with T.Kernel(1, threads=32):
            for i in T.Parallel(n):
                V[i] = _float4(P[i // 2].astype("uint16"), i % 2, 0)
                S[i] = tir.if_then_else(
                    i % 2 == 0,
                    tir.Cast("float32", P[i // 2]),
                    tir.max(tir.const(0.5, "float32"), tir.sqrt(4.0)),
                )

    return main


def test_helpers_written_with_tir() -> None:
    packed = np.arange(16, dtype=np.uint8) * 17
    codes = np.repeat(np.arange(16, dtype=np.uint16), 2)
    values = ((codes >> 3 << 15) | ((codes & 7) << 9)).view(np.float16)
    chosen = np.where(np.arange(32) % 2 == 0, np.repeat(packed, 2), 2).astype(np.float32)
    agree(unpack, packed, args={"n": 32}, expected=[values, chosen])


def _with_tvm(value: Any, scale: Any) -> Any:
    """TVM's own functions take values of the language, and kernels take what they give."""
    from tvm import tirx

    wide = tirx.Cast("float32", value)
    return tirx.Select(wide > tirx.const(2, "float32"), wide * scale, tirx.const(0.5, "float32"))


@T.prim_func
def of_both(A: T.Tensor((64,), "int32"), C: T.Tensor((64,), "float32")) -> None:
    with T.Kernel(1, threads=32):
        for i in T.Parallel(64):
            if _with_tvm(A[i], 1.0) == 3.0:
                C[i] = -1.0
            else:
                C[i] = _with_tvm(A[i], 2.0) + A[i]


def test_expressions_of_tvm_and_of_the_language_mix() -> None:
    values = np.arange(64) % 6
    wanted = np.where(values > 2, values * 3, values + 0.5)
    agree(of_both, values.astype(np.int32), expected=np.where(values == 3, -1, wanted).astype(np.float32))
