"""Maxima and minima of which either operand may be NaN: the other one, by one test and one instruction."""

from __future__ import annotations

import re

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("{kind}_{dtype}")
A = tensor({dtype}, (64,), ("64",), access="in")
B = tensor({dtype}, (64,), ("64",), access="in")
Y = tensor({dtype}, (64,), ("64",), access="out", output=True)
with launch(1, threads=(32, 1, 1)) as (r,):
    for i in parallel(64):
        Y[i] = {kind}(A[i], B[i])
"""
KINDS = {"max": np.fmax, "min": np.fmin}
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")


def texts(dtype: str) -> dict[str, str]:
    return {f"{kind}_{dtype}": TEXT.format(kind=kind, dtype=dtype) for kind in KINDS}


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(("dtype", "signalling"), [("float32", 0x7FA00000), ("float64", 0x7FF4 << 48)])
def test_number_of_two(dtype: str, signalling: int, level: str) -> None:
    made = np.random.default_rng(0).standard_normal((2, 64)).astype(dtype)
    made[0, :8], made[1, 4:12] = np.nan, np.nan
    bits = made.view(f"uint{8 * made.itemsize}")
    bits[0, 20], bits[1, 21] = signalling, signalling
    a, b = made
    library = Library(texts(dtype), level)
    for kind, wanted in KINDS.items():
        y = np.zeros(64, dtype)
        library.run(f"{kind}_{dtype}", [a, b, y], {})
        expected = wanted(a, b)
        expected[20], expected[21] = b[20], a[21]
        np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("level", LEVELS)
def test_one_test_is_enough(level: str) -> None:
    target = parse_target(level)
    (text,) = (texts("float32")["max_float32"],)
    code = assembly(to_tir(lower(parse_kernel(text), target), target), target, "k")
    assert len(re.findall(r"\bv?cmp\w*ps\b", code)) == len(re.findall(r"\bv?maxps\b", code)) > 0
