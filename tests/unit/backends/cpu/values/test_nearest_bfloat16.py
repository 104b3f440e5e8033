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


#: What bytes are converted to, and where that rounds: integers without a sign that negative ones become.
BYTES = """
kernel("k")
X = tensor({stored}, (256,), ("256",), access="in")
Y = tensor(bfloat16, (256,), ("256",), access="out")
with launch(1, threads=(64, 1, 1)) as (bx,):
    for i in parallel(256):
        Y[i] = cast(bfloat16, {value})
"""


@pytest.mark.parametrize(
    ("stored", "kind", "factor", "value"),
    [
        ("int8", "int8", 1, "cast(float32, X[i])"),
        ("uint8", "uint8", 1, "cast(float32, cast(int32, X[i]))"),
        ("int8", "uint32", 1, "cast(float32, cast(uint32, X[i]))"),
        ("uint8", "int32", 3, "cast(float32, cast(int32, X[i]) * 3)"),
    ],
)
def test_bytes_are_their_upper_halves_and_other_integers_are_rounded(
    stored: str, kind: str, factor: int, value: str
) -> None:
    x, y = np.arange(256).astype(np.uint8).view(stored), np.zeros(256, ml_dtypes.bfloat16)
    Library({"k": BYTES.format(stored=stored, value=value)}, "x86-64-v3").run("k", [x, y], {})
    want = (x.astype(kind) * np.array(factor, kind)).astype(np.float32).astype(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(y.astype(np.float32), want.astype(np.float32))


def test_bytes_are_not_rounded() -> None:
    """Nothing is added to their bits."""
    target = parse_target("x86-64-v3")
    text = BYTES.format(stored="int8", value="cast(float32, X[i])")
    assert "32767" not in str(to_tir(lower(parse_kernel(text), target), target))
    assert "32767" in str(to_tir(lower(parse_kernel(text.replace("X[i])", "X[i]) * 0.1")), target), target))
