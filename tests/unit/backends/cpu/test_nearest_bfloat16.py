"""Rounding to bfloat16 by `vcvtneps2bf16`, which drops denormal numbers: they are kept."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen import objects
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

#: Full vectors, and an end.
COUNT = 13005
STORED = f"""
kernel("k")
X = tensor(float32, ({COUNT},), ("{COUNT}",), access="in")
Y = tensor(bfloat16, ({COUNT},), ("{COUNT}",), access="out")
with launch(1, threads=(64, 1, 1)) as (bx,):
    for i in parallel({COUNT}):
        Y[i] = cast(bfloat16, X[i] * 0.5)
"""
CAST = STORED.replace("bfloat16, (", "float32, (").replace(
    "cast(bfloat16, X[i] * 0.5)", "cast(float32, cast(bfloat16, X[i] * 0.5)) * 3.0"
)
TARGET = "x86-64-v4+avx512bf16"


def numbers() -> np.ndarray:
    """Every exponent: random mantissas, halfway ones and their neighbours; infinities and NaN."""
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 2**32, 6000, dtype=np.uint32)
    upper = rng.integers(0, 2**16, 2000, dtype=np.uint32) << 16
    small = rng.integers(0, 2**24, 1000, dtype=np.uint32)
    special = np.array([0, 2**31, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 0x00FFFFFF, 0x007FFFFF], np.uint32)
    parts = [special, small, bits, upper | 0x8000, upper | 0x7FFF, upper | 0x8001]
    return np.concatenate(parts).view(np.float32)[:COUNT]


@pytest.mark.parametrize("text", [STORED, CAST], ids=["stored", "cast"])
def test_all_numbers_round_to_nearest_even_and_denormal_ones_are_kept(text: str) -> None:
    if not runs_here(parse_target(TARGET)):
        pytest.skip(f"this machine does not run {TARGET}")
    x = numbers()
    with np.errstate(all="ignore"):
        want = (x * np.float32(0.5)).astype(ml_dtypes.bfloat16)
        want = want if text == STORED else want.astype(np.float32) * np.float32(3)
    y = np.zeros_like(want)
    Library({"k": text}, TARGET).run("k", [x, y], {})
    np.testing.assert_array_equal(y.astype(np.float32), want.astype(np.float32))
    np.testing.assert_array_equal(np.signbit(y[~np.isnan(want)]), np.signbit(want[~np.isnan(want)]))


def test_c_says_the_same_in_integers() -> None:
    target = parse_target(TARGET)
    source = objects.source(to_tir(lower(parse_kernel(STORED), target), target), target, "k")
    assert "tilec_bfloat16_16(" in source
    assert "bits[i] + 0x7fff" in source
