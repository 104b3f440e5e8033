"""Exponents of powers whose second product is rounded up, so that equal scores leave 0 or less."""

from __future__ import annotations

import numpy as np
import pytest
from agree import agree, elaborated

import tilec.language as T
from tilec.backends.cuda.codegen import images as cuda
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.emulate.library import library
from tilec.targets import parse_target

SM80 = parse_target("sm_80")
C = 0.1275174


def powers(value, dtype="float32"):
    """``value`` of scores and the largest one of their row."""

    @T.prim_func
    def main(S: T.Tensor((8, 64), dtype), top: T.Tensor((8,), dtype), P: T.Tensor((8, 64), dtype)):
        with T.Kernel(1, threads=64):
            for i, j in T.Parallel(8, 64):
                P[i, j] = value(S[i, j], top[i])

    return main


def source(kernel) -> str:
    return cuda.source(to_tir(lower(elaborated(kernel, (), None, {}, {}), SM80), SM80), SM80, "kernel")


@pytest.mark.parametrize(
    "value",
    [
        lambda s, m: T.exp2(s * C - m * C),
        lambda s, m: T.exp(C * s - m * C),
        lambda s, m: T.exp2(s * C - (m * C - 8.0)),
    ],
    ids=["base 2", "base e", "a number beside it"],
)
def test_the_second_product_is_rounded_up(value):
    assert "__fmul_ru(" in source(powers(value))


@pytest.mark.parametrize(
    "value",
    [
        lambda s, m: T.exp2((s - m) * C),
        lambda s, m: T.exp2(s * C - m),
        lambda s, m: T.exp2(s * C - m * (2 * C)),
        lambda s, m: s * C - m * C,
    ],
    ids=["a factor of the difference", "no product", "another factor", "no power"],
)
def test_other_differences_stay(value):
    assert "__fmul_ru(" not in source(powers(value))


def test_powers_are_those_of_rounded_products():
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((8, 64)).astype(np.float32) * 20
    top = scores.max(1)
    expected = np.exp2((scores.astype(np.float64) - top[:, None]) * C)
    agree(powers(lambda s, m: T.exp2(s * C - m * C)), scores, top, expected=expected, rtol=1e-5)


def test_the_product_is_the_next_number_upwards():
    multiply, dtype = library("__fmul_ru", ["float32", "float32"])
    rng = np.random.default_rng(1)
    left, right = rng.standard_normal((2, 1000)).astype(np.float32)
    exact, made = left.astype(np.float64) * right, multiply(left, right)
    assert dtype == "float32"
    assert (made >= exact).all()
    assert (np.nextafter(made, np.float32(-np.inf)) < exact).all()
    assert multiply(np.float32(-1e30), np.float32(C)) * 1.0 >= np.float64(np.float32(-1e30)) * np.float32(C)
