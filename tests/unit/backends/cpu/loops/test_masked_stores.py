"""Stores to tensors under a branch that parts lanes: side by side, or each to a place that is looked up."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import LEVELS, Library, numpy_type
from told import losses

from tilec.ir.interp import interpreter
from tilec.targets import parse_target, runs_here

CHOSEN = """
kernel("chosen")
n = dim(int32)
X = tensor({dtype}, (n,), ("n",), access="in")
M = tensor(int8, (n,), ("n",), access="in")
Y = tensor({dtype}, (n,), ("n",), access="inout")
with launch((n + 63) // 64, threads=(64, 1, 1)) as (bx,):
    for i in parallel(64):
        if M[bx * 64 + i] != cast(int8, 0):
            Y[bx * 64 + i] = cast({dtype}, cast(float32, X[bx * 64 + i]) * 2.0)
"""
#: Places behind the end, and in front of the first, have no element; of several to one place the last stays.
SCATTERED = """
kernel("scattered")
n = dim(int32)
X = tensor({dtype}, (n,), ("n",), access="in")
I = tensor(int32, (n,), ("n",), access="in")
Y = tensor({dtype}, (50,), ("50",), access="inout")
with launch(1, threads=(64, 1, 1)) as (bx,):
    for i in parallel(n):
        if I[i] != 7:
            Y[I[i]] = cast({dtype}, cast(float32, X[i]) * 2.0)
"""
#: All lanes have one element in common: the last one that takes part has written it.
COMMON = """
kernel("common")
n = dim(int32)
X = tensor({dtype}, (n,), ("n",), access="in")
M = tensor(int8, (n,), ("n",), access="in")
Y = tensor({dtype}, (15,), ("15",), access="inout")
with launch((n + 63) // 64, threads=(64, 1, 1)) as (bx,):
    t = alloc({dtype}, (64,), "local.fragment")
    for i in parallel(64):
        if bx * 64 + i < n:
            t[i] = X[bx * 64 + i]
            if M[bx * 64 + i] != cast(int8, 0):
                Y[bx * 4] = t[i]
            if i % 32 == 3:
                Y[bx * 4 + i // 32 + 1] = t[i]
"""
DTYPES = ("float32", "float16", "bfloat16", "int8")


def _scattered(y: np.ndarray, x: np.ndarray, at: np.ndarray) -> None:
    for value, place in zip(x, at, strict=True):
        if place != 7 and 0 <= place < 50:
            y[place] = value * 2


@pytest.mark.parametrize("level", LEVELS)
def test_lanes_store_where_the_branch_is_theirs(level: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    texts = {f"chosen_{dtype}": CHOSEN.format(dtype=dtype) for dtype in DTYPES}
    texts |= {f"scattered_{dtype}": SCATTERED.format(dtype=dtype) for dtype in DTYPES}
    library, rng = Library(texts, level), np.random.default_rng(0)
    assert not any(losses(image.launches[0]) for image in library.images.values())
    for dtype in DTYPES:
        for n in (1, 5, 64, 77):
            x = rng.integers(-9, 9, n).astype(numpy_type(dtype))
            mask, at = rng.integers(0, 2, n).astype("int8"), rng.integers(-3, 53, n).astype("int32")
            y = np.full(n, 5, numpy_type(dtype))
            library.run(f"chosen_{dtype}", [x, mask, y], {"n": n})
            np.testing.assert_array_equal(y, np.where(mask != 0, x * 2, 5).astype(y.dtype))
            y, wanted = np.full(50, 5, numpy_type(dtype)), np.full(50, 5, numpy_type(dtype))
            _scattered(wanted, x, at)
            library.run(f"scattered_{dtype}", [x, at, y], {"n": n})
            np.testing.assert_array_equal(y, wanted)


@pytest.mark.parametrize("level", LEVELS)
def test_the_last_lane_stores_what_all_have_in_common(level: str) -> None:
    if not runs_here(parse_target(level)):
        pytest.skip(f"this machine does not run {level}")
    library = Library({f"common_{dtype}": COMMON.format(dtype=dtype) for dtype in DTYPES}, level)
    assert not any(losses(image.launches[0]) for image in library.images.values())
    rng = np.random.default_rng(1)
    for dtype in DTYPES:
        for n in (1, 40, 64, 128, 200):
            x, mask = (rng.integers(low, high, n) for low, high in ((-9, 9), (0, 2)))
            given = [x.astype(numpy_type(dtype)), (mask * (n != 40)).astype("int8"), np.full(15, 5)]
            found, wanted = (
                [array.astype(numpy_type(dtype)) for array in (given[0], given[2])] for _ in "ab"
            )
            interpreter.run(library.kernels[f"common_{dtype}"], [wanted[0], given[1], wanted[1]], {"n": n})
            library.run(f"common_{dtype}", [found[0], given[1], found[1]], {"n": n})
            np.testing.assert_array_equal(found[1], wanted[1])
