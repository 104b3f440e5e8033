"""Products by simdgroup matrices: right as Metal source that runs on this machine, where lanes have the
elements that Apple's GPUs give them, and right on the emulator."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from breadth import diagonal, parametrized
from metal_source import TARGET, OnMetal

import tilec.language as T
from tilec.backends.metal.products.tiles import SimdMatrices
from tilec.backends.pipeline import lower
from tilec.emulate import EmulatedKernel
from tilec.ir.guards import Guard
from tilec.ir.nodes import Kernel
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.language.frontend.elaborate import elaborate, load_entry

KERNELS = Path(__file__).parents[4] / "examples" / "kernels"
SIZES = {"M": 37, "N": 40, "K": 72}
TYPES = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float32": np.float32}
TOLERANCES = {"float16": 2e-3, "bfloat16": 1e-2, "float32": 1e-5}


def product(dtype: str, trans_b: bool, columns: int = 64) -> Kernel:
    dims = {"M": Guard(), "N": Guard(div=8), "K": Guard(div=8)}
    config = {"bM": 64, "bN": columns, "bK": 32, "num_stages": 2, "threads": 128}
    args = {"dtype": dtype, "trans_B": trans_b}
    return elaborate(load_entry("gemm.py:matmul", KERNELS), name="p", dims=dims, args=args, config=config)


def check(run: Callable[[list[Any], dict[str, int]], None], dtype: str, trans_b: bool) -> None:
    """Runs a product and compares it with NumPy."""
    rng, kind = np.random.default_rng(7), TYPES[dtype]
    a = rng.standard_normal((SIZES["M"], SIZES["K"])).astype(kind)
    b = rng.standard_normal((SIZES["K"], SIZES["N"])).astype(kind)
    wanted = a.astype(np.float32) @ b.astype(np.float32)
    c = np.zeros(wanted.shape, kind)
    run([a, np.ascontiguousarray(b.T) if trans_b else b, c], SIZES)
    bound = TOLERANCES[dtype]
    np.testing.assert_allclose(c.astype(np.float32), wanted, rtol=bound, atol=10 * bound)


@parametrized(
    ("dtype", "trans_b"),
    [(dtype, trans_b) for dtype in TYPES for trans_b in (False, True)],
    fast=diagonal(list(TYPES), (False, True)),
)
def test_source(dtype: str, trans_b: bool, tmp_path: Path) -> None:
    made = OnMetal(product(dtype, trans_b), tmp_path)
    assert made.image.launches[0].products == ("matrix cores",)
    check(made, dtype, trans_b)


def scaled_and_turned() -> Kernel:
    """C = (A * w)^T B, the left operand made element by element in registers, which are read as words."""

    @T.prim_func
    def main(
        A: T.Tensor((64, 32), "bfloat16"),
        w: T.Tensor((64,), "float32"),
        B: T.Tensor((64, 32), "bfloat16"),
        C: T.Tensor((32, 32), "float32"),
    ):
        with T.Kernel(1, threads=128):
            As, Bs = T.alloc_shared((16, 32), "bfloat16"), T.alloc_shared((16, 32), "bfloat16")
            turned = T.alloc_fragment((32, 16), "bfloat16")
            factor = T.alloc_fragment((16,), "float32")
            acc = T.alloc_fragment((32, 32), "float32")
            T.clear(acc)
            for k in T.Pipelined(4, num_stages=2):
                T.copy(A[k * 16, 0], As)
                T.copy(B[k * 16, 0], Bs)
                for i in T.Parallel(16):
                    factor[i] = w[k * 16 + i] + 1
                for i, j in T.Parallel(32, 16):
                    turned[i, j] = As[j, i] * factor[j]
                T.gemm(turned, Bs, acc)
            T.copy(acc, C)

    return elaborate(main, name="p", dims={}, args={}, config={})


def test_operands_from_registers(tmp_path: Path) -> None:
    rng, kind = np.random.default_rng(3), ml_dtypes.bfloat16
    a, b = (rng.integers(-4, 5, (64, 32)).astype(kind) for _ in range(2))
    w, c = rng.integers(0, 3, 64).astype(np.float32), np.full((32, 32), np.nan, np.float32)
    OnMetal(scaled_and_turned(), tmp_path)([a, w, b, c], {})
    np.testing.assert_array_equal(c, (a * (w[:, None] + 1).astype(kind)).astype("f4").T @ b.astype("f4"))


@pytest.mark.parametrize("dtype", TYPES)
def test_emulated(dtype: str) -> None:
    check(EmulatedKernel(product(dtype, False), TARGET), dtype, False)


def test_text_of_products() -> None:
    kernel = lower(product("float16", True), TARGET, until="select_instructions")
    text = format_kernel(kernel)
    assert "simd_mma(" in text
    assert "simd_tile('simdgroup'" in text.replace('"', "'")
    assert format_kernel(parse_kernel(text)) == text


def test_types_of_matrices() -> None:
    matrices = SimdMatrices()
    assert all(matrices.has((dtype, dtype, "float32"), TARGET) for dtype in TYPES)
    assert not matrices.has(("int8", "int8", "int32"), TARGET)
