"""Split-K, stream-K and persistent products, compiled and compared with NumPy."""

from __future__ import annotations

import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from compiled import Library

sys.path.insert(0, str(Path(__file__).parents[3] / "language"))
import test_language_idioms as idioms

NAMES = ("splitk", "streamk", "persistent")


@cache
def library() -> Library:
    """All products, compiled once."""
    return Library({name: idioms.made(name) for name in NAMES}, "x86-64-v3")


@pytest.mark.parametrize("rows", [1, 40, 65])
@pytest.mark.parametrize("depth", [5, 70])
@pytest.mark.parametrize("name", NAMES)
def test_products(name, rows, depth):
    rng = np.random.default_rng(rows)
    a, b = (rng.integers(-3, 4, shape).astype(np.float16) for shape in ((rows, depth), (depth, 48)))
    c = np.full((rows, 48), 2, np.float32)
    library().run(name, [a, b, c], {"M": rows, "K": depth})
    start = 0 if name == "persistent" else 2
    np.testing.assert_array_equal(c, start + a.astype(np.float32) @ b.astype(np.float32))
