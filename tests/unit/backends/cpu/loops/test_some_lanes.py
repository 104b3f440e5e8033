"""Loops of which some lanes have no element, or take another branch than the others."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import LEVELS, Library, numpy_type
from memory_ends import at_the_end
from told import losses, roads

import tilec
import tilec.language as T
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target, runs_here

#: What lies up to three places in front of each element; in front of the first there is nothing.
TAPS = """
kernel("taps")
n = dim(int32)
X = tensor({dtype}, (n,), ("n",), access="in")
W = tensor(float32, (4,), ("4",), access="in")
Y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 63) // 64, threads=(64, 1, 1)) as (bx,):
    for i in parallel(64):
        total = alloc(float32, (1,), "local")
        total[0] = 0.0
        for w in serial(0, 4, 1):
            total[0] = total[0] + if_then_else(bx * 64 + i + w >= 3,
                                               cast(float32, X[bx * 64 + i + w - 3]), 0.0) * W[w]
        Y[bx * 64 + i] = total[0]
"""
BRANCHED = """
kernel("branched")
n = dim(int32)
X = tensor({dtype}, (n,), ("n",), access="in")
W = tensor(float32, (4,), ("4",), access="in")
Y = tensor(float32, (n,), ("n",), access="out")
with launch((n + 63) // 64, threads=(64, 1, 1)) as (bx,):
    for i in parallel(64):
        total = alloc(float32, (1,), "local")
        total[0] = 0.0
        for w in serial(0, 4, 1):
            if bx * 64 + i + w >= 3:
                total[0] = total[0] + cast(float32, X[bx * 64 + i + w - 3]) * W[w]
        Y[bx * 64 + i] = total[0]
"""
#: A window of columns two apart, padded by one.
STRIDED = """
kernel("strided")
n = dim(int32)
X = tensor(float32, (n,), ("n",), access="in")
Y = tensor(float32, (32,), ("32",), access="out")
with launch(1, threads=(32, 1, 1)) as (bx,):
    for i in parallel(32):
        top = alloc(float32, (1,), "local")
        top[0] = -1.0
        for w in serial(0, 3, 1):
            if 2 * i + w >= 1 and 2 * i + w - 1 < n:
                top[0] = max(top[0], X[2 * i + w - 1])
        Y[i] = top[0]
"""
DTYPES = ("float32", "float16", "bfloat16", "int8")


@pytest.mark.parametrize("text", [TAPS, BRANCHED], ids=["chosen", "branched"])
@pytest.mark.parametrize("level", LEVELS)
def test_neighbours_are_read_where_there_are_any(level: str, text: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    kernels = {dtype: text.format(dtype=dtype) for dtype in DTYPES}
    library, rng = Library(kernels, level), np.random.default_rng(0)
    for dtype in DTYPES:
        assert not losses(library.images[dtype].launches[0])
        for n in (1, 3, 64, 77):
            x, w = rng.integers(-9, 9, n).astype(numpy_type(dtype)), rng.integers(-9, 9, 4).astype("float32")
            y = np.full(n, np.nan, np.float32)
            library.run(dtype, [x, w, y], {"n": n})
            np.testing.assert_array_equal(y, np.convolve(x.astype("float32"), w[::-1])[:n])


@pytest.mark.parametrize(
    ("level", "vectors"), [("x86-64-v2", False), ("x86-64-v3", True), ("x86-64-v4", True)]
)
def test_elements_that_lie_apart_are_looked_up(level: str, vectors: bool) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    library = Library({"strided": STRIDED}, level)
    assert bool(losses(library.images["strided"].launches[0])) != vectors
    for n in (1, 20, 63, 64):
        x, y = np.arange(n, dtype=np.float32), np.full(32, np.nan, np.float32)
        library.run("strided", [x, y], {"n": n})
        last = np.minimum(2 * np.arange(32) + 1, n - 1)
        np.testing.assert_array_equal(y, np.where(2 * np.arange(32) - 1 < n, last, -1))


def test_aarch64_reads_neighbours_as_vectors() -> None:
    target = parse_target("aarch64")
    lowered = to_tir(lower(parse_kernel(TAPS.format(dtype="float16")), target), target)
    assert not losses(lowered.launches[0])


#: A branch that parts lanes around what has no mask.
LOOPED = """
kernel("looped")
X = tensor(float32, (64,), ("64",), access="in")
Y = tensor(float32, (64,), ("64",), access="out")
with launch(1, threads=(32, 1, 1)) as (bx,):
    for i in parallel(64):
        if X[i] > 0.0:
            for w in serial(0, 3, 1):
                Y[i] = X[i] + cast(float32, w)
"""


def test_the_remedy_names_what_has_no_mask() -> None:
    target = parse_target("x86-64-v3")
    lowered = to_tir(lower(parse_kernel(LOOPED), target), target)
    (loss,) = (road.loss for road in roads(lowered.launches[0]) if road.loss is not None)
    assert "leave loops, atomic updates and tiles out of the branch" in loss.remedy


@pytest.mark.parametrize(
    ("told", "remedy"),
    [
        ('check(X[i] > 0.0, "positive")', "assert outside of the loop"),
        ('print("x {}", X[i])', "print outside of the loop"),
    ],
)
def test_the_remedy_names_what_is_told_of_an_element(told: str, remedy: str) -> None:
    target = parse_target("x86-64-v3")
    text = LOOPED.partition("        if X")[0] + f"        {told}\n        Y[i] = X[i]\n"
    lowered = to_tir(lower(parse_kernel(text), target), target)
    assert [road.loss.remedy for road in roads(lowered.launches[0]) if road.loss is not None] == [remedy]


@pytest.mark.parametrize("count", [3, 100, 4010])
def test_lanes_that_have_no_element_read_none_one_by_one(count):
    X = at_the_end(np.arange(64, dtype=np.float16).reshape(2, 32))
    Y = np.zeros((2, 4000), np.float32)

    @T.prim_func
    def main(X: T.Tensor((2, 32), "float16"), N: T.int32, Y: T.Tensor((2, 4000), "float32")):
        with T.Kernel(1, threads=32):
            for i, j in T.Parallel(2, 4000):
                Y[i, j] = T.cast(X[j, j + i], "float32") + 1.0 if j < N - 2 else 3.0

    tilec.compile(main, target="cpu")(X, count, Y)
    places = np.arange(4000) + np.arange(2)[:, None]
    found = np.where(np.arange(4000) < 2, X[np.arange(4000) % 2, places % 32], 0) + 1.0
    np.testing.assert_array_equal(Y, np.where(np.arange(4000) < count - 2, found, 3.0))
