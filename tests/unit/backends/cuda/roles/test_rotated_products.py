"""Products whose first operands are loaded a trip ahead: which ones, and the order of waits and loads."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_kernels import gemm, kinds

from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.cuda.nodes import AsyncCopy, FirstOperands, RotatedGemm, Sync, WaitGroup, WarpGemm
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate import EmulatedKernel
from tilec.ir.nodes import walk
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM80 = parse_target("sm_80")
LARGE = {"bM": 128, "bN": 256, "bK": 32, "threads": 256}


def test_a_large_product_waits_before_its_last_step() -> None:
    lowered = lower(gemm(**LARGE), SM80)
    order = kinds(lowered, AsyncCopy, WaitGroup, Sync, WarpGemm, FirstOperands)
    ahead = ["AsyncCopy"] * 4 + ["WaitGroup", "Sync", "FirstOperands"]
    assert order == [*ahead, "AsyncCopy", "AsyncCopy", "RotatedGemm", "Sync", "Sync"]
    (product,) = (stmt for stmt in walk(lowered.body) if isinstance(stmt, RotatedGemm))
    assert product.pending == 1
    text = format_kernel(lowered)
    assert "next_a=As[truncmod(ko + 1, 3):+1, 0:+128, 0:+32], next_b=Bs[truncmod(ko + 1, 3)" in text
    assert "more=ko + 1 < (K + 31) // 32" in text


def test_the_trip_loads_step_by_step_and_the_next_one_behind_the_barrier() -> None:
    text = cuda.source(to_tir(lower(gemm(**LARGE), SM80), SM80), SM80, "test")
    body = text[text.index("for (int ko") :]
    words = ("tilec_ldmatrix_x4(", "mma_sync", "cta_sync()", "wait_group")
    calls = [word for line in body.splitlines() for word in words if word in line and "void" not in line]
    runs = [call for call, before in zip(calls, [None, *calls], strict=False) if call != before]
    assert runs[:7] == [words[0], words[1], words[3], words[2], words[0], words[1], words[2]]


@pytest.mark.parametrize(
    "config",
    [
        {"threads": 128},
        {"bN": 128, "threads": 256},
        {**LARGE, "bK": 16},
        {**LARGE, "num_stages": 1},
    ],
)
def test_other_products_stay_as_they_are(config) -> None:
    lowered = lower(gemm(**config), SM80)
    assert not any(isinstance(stmt, RotatedGemm) for stmt in walk(lowered.body))


@pytest.mark.parametrize("depth", [8, 64, 104])
def test_it_multiplies_right_with_any_number_of_trips(depth) -> None:
    rows, columns = 130, 264
    rng = np.random.default_rng(depth)
    a, b = (rng.integers(-4, 5, shape).astype("float16") for shape in ((rows, depth), (depth, columns)))
    c = np.full((rows, columns), np.nan, "float16")
    EmulatedKernel(gemm(**LARGE), SM80)([a, b, c], {"M": rows, "N": columns, "K": depth})
    np.testing.assert_array_equal(c, a.astype("float32") @ b.astype("float32"))
