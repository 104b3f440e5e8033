"""Numbers below the smallest normal one: kept, unless the thread that computes says otherwise."""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from compiled import Library, numpy_type
from cpu_products import Product

from tilec.targets import parse_target, runs_here

SCALED = """
kernel("scaled")
X = tensor({dtype}, (64,), ("64",), access="in")
Y = tensor({dtype}, (64,), ("64",), access="out")
with launch(1, threads=(64, 1, 1)) as (bx,):
    for i in parallel(64):
        Y[i] = cast({dtype}, cast(float32, X[i]) * 0.25)
"""

#: Numbers whose quarters are denormal, on a grid that these have, and quarters of denormal numbers.
SMALLEST = {"float32": 2.0**-126, "bfloat16": 2.0**-126, "float16": 2.0**-14}
NUMBERS = np.array([1, -1, 1.5, 2, 0.5, -0.25, 0, 3])

#: Flush results to zero, and take operands as zero.
FLUSHES = 0x8040


def runnable(level: str) -> str:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    return level


def quarters(level: str, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel makes of the numbers, and what it should."""
    x = np.resize(NUMBERS * SMALLEST[dtype], 64).astype(numpy_type(dtype))
    y = np.full_like(x, np.nan)
    Library({"scaled": SCALED.format(dtype=dtype)}, level).run("scaled", [x, y], {})
    return y, (x.astype(np.float64) / 4).astype(x.dtype)


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize("dtype", SMALLEST)
def test_loops_keep_them(level: str, dtype: str) -> None:
    found, expected = quarters(runnable(level), dtype)
    assert np.count_nonzero(expected) > 50
    np.testing.assert_array_equal(found, expected)


@contextmanager
def flushing() -> Iterator[None]:
    """This thread flushes numbers below the smallest normal one (`fenv_t` of glibc ends with MXCSR)."""
    libm, before = ctypes.CDLL(ctypes.util.find_library("m")), (ctypes.c_uint32 * 8)()
    libm.fegetenv(before)
    changed = (ctypes.c_uint32 * 8)(*before)
    changed[7] |= FLUSHES
    libm.fesetenv(changed)
    try:
        yield
        libm.fegetenv(changed)
        assert changed[7] & FLUSHES == FLUSHES
    finally:
        libm.fesetenv(before)


def test_a_thread_that_flushes_them_goes_on_doing_so() -> None:
    library = Library({"scaled": SCALED.format(dtype="float32")}, runnable("x86-64-v3"))
    x = np.full(64, 2.0**-126, np.float32)
    y, kept = np.full(64, np.nan, np.float32), np.full(64, np.nan, np.float32)
    with flushing():
        library.run("scaled", [x, y], {})
    library.run("scaled", [x, kept], {})
    assert y.view(np.uint32).tolist() == [0] * 64
    assert kept.view(np.uint32).tolist() == [1 << 21] * 64


@pytest.mark.parametrize(
    ("level", "kept"), [("x86-64-v2", True), ("x86-64-v4", True), ("x86-64-v4+avx512bf16", False)]
)
def test_products_keep_them_but_for_those_of_pairs(level: str, kept: bool) -> None:
    """vdpbf16ps takes denormal operands as zeros."""
    product = Product(M=32, N=64, K=64, dtype="bfloat16")
    library = Library({"product": product.text("product")}, runnable(level))
    a = np.full((32, 64), 2.0**-130).astype(numpy_type("bfloat16"))
    b = np.full((64, 64), 2.0**10).astype(numpy_type("bfloat16"))
    c = np.full((32, 64), np.nan, np.float32)
    library.run("product", [a, b, c], {})
    np.testing.assert_array_equal(c, np.full_like(c, 2.0**-114 if kept else 0.0))


POWERS = """
kernel("powers")
X = tensor(float32, (64,), ("64",), access="in")
Y = tensor(float32, (64,), ("64",), access="out")
with launch(1, threads=(64, 1, 1)) as (bx,):
    for i in parallel(64):
        Y[i] = {name}(X[i])
"""
#: What C's <fenv.h> calls FE_ALL_EXCEPT and FE_UNDERFLOW on x86.
ALL, UNDERFLOW = 0x3D, 0x10


@pytest.mark.parametrize("level", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
@pytest.mark.parametrize(
    ("name", "far"),
    [("exp", -1e4), ("exp", -200), ("exp2", -1e4), ("exp10", -1e4), ("sigmoid", -1e4), ("tanh", -1e4)],
)
def test_what_a_mask_hides_is_no_underflow(level: str, name: str, far: float) -> None:
    """Which takes some processors more than 100 cycles a vector."""
    x, y = np.resize(np.array([far, -np.inf, 0], "float32"), 64), np.full(64, np.nan, "float32")
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    library = Library({"powers": POWERS.format(name=name)}, runnable(level))
    libm.feclearexcept(ALL)
    library.run("powers", [x, y], {})
    assert not libm.fetestexcept(UNDERFLOW)
    assert np.all(y[x < 0] == (-1 if name == "tanh" else 0))


def test_powers_far_below_all_numbers_are_no_underflow_with_avx512() -> None:
    x, y = np.resize(np.array([-150, -151.5, -500], "float32"), 64), np.full(64, np.nan, "float32")
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    library = Library({"powers": POWERS.format(name="exp2")}, runnable("x86-64-v4"))
    libm.feclearexcept(ALL)
    library.run("powers", [x, y], {})
    assert not libm.fetestexcept(UNDERFLOW)
    np.testing.assert_array_equal(y, 0)
