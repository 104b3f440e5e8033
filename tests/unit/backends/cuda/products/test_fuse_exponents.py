"""Exponents of powers under fast math: what becomes a multiply-add, and what stays."""

from __future__ import annotations

import pytest

from tilec.backends.cuda.passes.loops.fuse_exponents import FuseExponents
from tilec.ir.text.parser import parse_kernel
from tilec.ir.text.printer import format_kernel
from tilec.targets import parse_target

SM90A = parse_target("sm_90a")
FAST = '{"fast_math": True}'
TEXT = """
kernel("small", options={options})
c = scalar(float32)
with launch(1, threads=(128, 1, 1)) as (bx,):
    S = alloc(float32, (64, 64), "local.fragment")
    top = alloc(float32, (64,), "local.fragment")
    for i, j in parallel(64, 64):
        S[i, j] = {value}
"""


def made(value: str, options: str = FAST) -> str:
    """What is stored in place of a value."""
    kernel = FuseExponents().apply(parse_kernel(TEXT.format(options=options, value=value)), SM90A)
    return format_kernel(kernel).rpartition("S[i, j] = ")[2].strip()


@pytest.mark.parametrize(
    ("value", "fused"),
    [
        ("exp2((S[i, j] - top[i]) * c)", "exp2(S[i, j] * c - top[i] * c)"),
        ("exp2(c * (S[i, j] - top[i]))", "exp2(S[i, j] * c - top[i] * c)"),
        ("exp2((S[i, j] - top[i]) * c) * 256.0", "exp2(S[i, j] * c - (top[i] * c - 8.0))"),
        ("exp2(S[i, j] - top[i]) * 0.25", "exp2(S[i, j] - (top[i] - -2.0))"),
        ("exp(S[i, j] - top[i])", "exp2(S[i, j] * 1.4426950408889634 - top[i] * 1.4426950408889634)"),
        ("exp2((S[i, j] - top[i]) * c) * 3.0", "exp2(S[i, j] * c - top[i] * c) * 3.0"),
        ("exp2((S[i, j] - top[i]) * c) + c", "exp2(S[i, j] * c - top[i] * c) + c"),
    ],
)
def test_the_row_is_taken_off_by_the_multiply_add(value, fused):
    assert made(value) == fused


@pytest.mark.parametrize(
    "value",
    [
        "exp2(S[i, j] * c - top[i])",
        "exp2((S[i, j] - S[i, j]) * c)",
        "exp2((top[i] - top[i]) * c)",
        "exp2((S[i, j] - top[i]) * S[i, j])",
        "exp2(S[i, j] * c) * 256.0",
    ],
    ids=["in form", "nothing stays", "nothing moves", "the factor moves", "nothing to take off"],
)
def test_other_powers_stay(value):
    assert made(value) == made(value, "{}")


def test_exact_arithmetic_stays():
    value = "exp2((S[i, j] - top[i]) * c) * 256.0"
    assert made(value, "{}") == value
