"""Trips that go on from what the trip before has stored: several vectors run at a time where that helps."""

from __future__ import annotations

import numpy as np
import pytest
from compiled import Library

from tilec.backends.cpu.emit.loops.sums.chains import chains_at_a_time
from tilec.ir.nodes import Parallel, walk
from tilec.ir.text.parser import parse_kernel

TEXT = """
kernel("{name}")
n = dim(int32)
X = tensor(float32, (n, 64), ("n", "64"), access="in")
Y = tensor(float32, (n, 64), ("n", "64"), access="inout")
with launch(1, threads=(64, 1, 1)) as (r,):
    for i in parallel(64):
        s = alloc(float32, (1,), "local.var", init=1.0)
        t = alloc(float32, (3,), "local")
        for k in serial(1, n, 1):
            {body}
        Y[0, i] = s[0]
"""
#: Name to the body of a loop, and how many vectors of 16 lanes run at a time.
CASES = {
    "variable": ("s[0] = s[0] * 0.5 + X[k, i] * s[0]", 4),
    "largest": ("s[0] = max(s[0], X[k, i])", 4),
    "stored": ("Y[k, i] = X[k, i] - 0.5 * Y[k - 1, i]", 4),
    "sum": ("s[0] = s[0] + X[k, i]", 1),
    "many": (
        "s[0] = s[0] * X[k, i]\n            t[0] = t[0] * s[0]\n            "
        "t[1] = t[0] - t[1]\n            t[2] = t[1] * t[0]",
        2,
    ),
    "own": ("Y[k, i] = Y[k, i] + X[k, i] * 3.0", 1),
}


def text(name: str) -> str:
    return TEXT.format(name=name, body=CASES[name][0])


@pytest.mark.parametrize("name", CASES)
def test_how_many_run_at_a_time(name: str) -> None:
    (loop,) = (stmt for stmt in walk(parse_kernel(text(name)).body) if isinstance(stmt, Parallel))
    assert chains_at_a_time(loop, registers=32) == CASES[name][1]


def test_numbers_are_the_same() -> None:
    library = Library({name: text(name) for name in ("variable", "stored")}, "x86-64-v4")
    x = np.random.default_rng(0).standard_normal((9, 64), dtype=np.float32)
    y, s = np.zeros_like(x), np.ones(64, np.float32)
    library.run("variable", [x, y], {"n": 9})
    for k in range(1, 9):
        s = s * np.float32(0.5) + x[k] * s
    np.testing.assert_allclose(y[0], s, rtol=1e-4)
    made, y = np.zeros_like(x), np.zeros_like(x)
    library.run("stored", [x, made], {"n": 9})
    for k in range(1, 9):
        y[k] = x[k] - np.float32(0.5) * y[k - 1]
    np.testing.assert_allclose(made[1:], y[1:], rtol=1e-5, atol=1e-5)
