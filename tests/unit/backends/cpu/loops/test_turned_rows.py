"""Loops whose lanes walk along rows of their own: rows are turned where they may be, and the same numbers."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pytest
from breadth import parametrized
from compiled import Library

from tilec.backends.cpu.codegen.objects import tir_text
from tilec.backends.pipeline import lower
from tilec.backends.to_tir import to_tir
from tilec.ir.text.parser import parse_kernel
from tilec.targets import parse_target

TEXT = """
kernel("{name}")
n = dim(int32, min=1)
X = tensor({dtype}, (33, n), ("33", "n"), access="inout")
Y = tensor({dtype}, (33, n), ("33", "n"), access="inout")
with launch(1, threads=(32, 1, 1)) as (r,):
    for i in parallel(33):
        s = alloc(float32, (1,), "local.var", init=0.0)
        for k in serial({start}, n, 1):
            s[0] = s[0] * 0.5 + cast(float32, X[i, {at}])
            {store}
"""
PLAIN = {
    "dtype": "float32",
    "start": 0,
    "at": "k",
    "store": "Y[i, k] = s[0]",
}
HALF = {"dtype": "bfloat16", "store": "Y[i, k] = cast(bfloat16, s[0])"}
#: Name to what its kernel has, and whether rows of it are turned.
CASES = {
    "scan": (PLAIN, True),
    "half": (PLAIN | HALF, True),
    "later": (PLAIN | {"start": 3, "at": "k - 3"}, True),
    "in_place": (PLAIN | {"store": "X[i, k] = s[0]"}, True),
    "ahead": (PLAIN | {"store": "X[i, k] = s[0] + X[i, n - 1]"}, False),
    "behind": (PLAIN | {"start": 1, "at": "k - 1", "store": "X[i, k] = s[0]"}, False),
    "twice": (PLAIN | {"store": "Y[i, k] = s[0]\n            X[i, n - 1 - k] = s[0]"}, True),
    "some": (PLAIN | {"store": "if s[0] > 0.0:\n                X[i, k] = s[0]"}, False),
}
TARGETS = ("x86-64-v3", "x86-64-v4")


def text(name: str) -> str:
    return TEXT.format(name=name, **CASES[name][0])


@lru_cache(maxsize=1)
def library(target: str) -> Library:
    return Library({name: text(name) for name in CASES}, target)


def expected(name: str, x: np.ndarray, y: np.ndarray) -> None:
    """What the kernel makes of float32 arrays, in place."""
    case, n = CASES[name][0], x.shape[1]
    s = np.zeros(len(x), np.float32)
    for k in range(case["start"], n):
        s = s * np.float32(0.5) + x[:, k - {"later": 3, "behind": 1}.get(name, 0)]
        if name == "some":
            x[:, k] = np.where(s > 0, s, x[:, k])
        elif name == "ahead":
            x[:, k] = s + x[:, n - 1]
        else:
            (x if "X[i, k] =" in case["store"] else y)[:, k] = s
        if name == "twice":
            x[:, n - 1 - k] = s


@parametrized(
    ("target", "name"),
    [(target, name) for target in TARGETS for name in CASES],
    fast=[("x86-64-v4", name) for name in CASES],
)
@pytest.mark.parametrize("n", [1, 15, 16, 53])
def test_numbers_are_the_same(target: str, name: str, n: int) -> None:
    rng, wide = np.random.default_rng(0), name != "half"
    x = rng.integers(-8, 8, (33, n)).astype(np.float32)
    y = np.zeros_like(x)
    got = [each.copy() if wide else (each.view(np.uint32) >> 16).astype(np.uint16) for each in (x, y)]
    library(target).run(name, got, {"n": n})
    expected(name, x, y)
    if wide:
        np.testing.assert_allclose(got[0], x, rtol=1e-5, atol=1e-5)
    made = got[1] if wide else (got[1].astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(made, y, rtol=1e-5 if wide else 1e-2, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_rows_change_places_with_lanes(name: str) -> None:
    target = parse_target("x86-64-v4")
    code = tir_text(to_tir(lower(parse_kernel(text(name)), target), target), target, "k")
    assert ("k_part" in code) == CASES[name][1]
