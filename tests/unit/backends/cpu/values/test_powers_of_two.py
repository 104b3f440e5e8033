"""Quotients and remainders by powers of two that are known when code runs are shifts and masks."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.codegen.objects import assembly
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("digits")
X = tensor({dtype}, (64,), ("64",), access="in")
Q = tensor({dtype}, ({stages}, 64), ("{stages}", "64"), access="out")
R = tensor({dtype}, ({stages}, 64), ("{stages}", "64"), access="out")
with launch(1, threads=(64, 1, 1)) as (bx,):
    for t in serial(0, {stages}, 1):
        h = {one} << cast({dtype}, t)
        for i in parallel(64):
            Q[t, i] = X[i] // (h * {two})
            R[t, i] = X[i] % (h * {two})
"""
LEVEL = "x86-64-v3"


def _text(dtype: str, stages: int) -> str:
    one, two = ("1", "2") if dtype == "int32" else ("int64(1)", "int64(2)")
    return TEXT.format(dtype=dtype, stages=stages, one=one, two=two)


@pytest.mark.parametrize(("dtype", "stages"), [("int32", 30), ("int64", 62)])
def test_digits_are_those_of_floors(dtype: str, stages: int) -> None:
    limit = np.iinfo(dtype)
    x = np.random.default_rng(0).integers(limit.min, limit.max, 64, dtype=dtype, endpoint=True)
    x[:4] = [limit.min, limit.max, -1, 0]
    q, r = np.empty((2, stages, 64), dtype)
    Library({"digits": _text(dtype, stages)}, LEVEL).run("digits", [x, q, r], {})
    powers = np.array([2 << t for t in range(stages)], dtype)[:, None]
    np.testing.assert_array_equal(q, x // powers)
    np.testing.assert_array_equal(r, x % powers)


def _code(stages: int) -> str:
    target = parse_target(LEVEL)
    return assembly(to_tir(lower(parse_kernel(_text("int32", stages)), target), target), target, "k")


def test_nothing_is_divided_by_powers_that_the_type_holds() -> None:
    assert "idiv" not in _code(30)
    assert "idiv" in _code(31), "1 << 31 is negative"
